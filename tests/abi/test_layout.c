/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes, offsets and numbers that programs have compiled in. A line changes only together with
 * the ABI number; new fields are new lines. */
#include <ringred/ringred.h>
#include <ringred/team.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PIN_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define PIN(type, field, at) _Static_assert(offsetof(type, field) == (at), #type "." #field " has moved")

PIN_SIZE(ringred_error, 520);
PIN(ringred_error, struct_size, 0);
PIN(ringred_error, code, 4);
PIN(ringred_error, rank, 8);
PIN(ringred_error, system, 12);
PIN(ringred_error, transport, 16);
PIN(ringred_error, text, 32);

PIN_SIZE(ringred_unique_id, 256);

PIN_SIZE(ringred_config, 136);
PIN(ringred_config, struct_size, 0);
PIN(ringred_config, rank, 4);
PIN(ringred_config, size, 8);
PIN(ringred_config, reserved, 12);
PIN(ringred_config, root, 16);
PIN(ringred_config, id, 24);
PIN(ringred_config, key, 32);
PIN(ringred_config, key_bytes, 40);
PIN(ringred_config, timeout_ns, 48);
PIN(ringred_config, settings, 56);
PIN(ringred_config, log, 64);
PIN(ringred_config, log_context, 72);
PIN(ringred_config, choose, 80);
PIN(ringred_config, choose_context, 88);
PIN(ringred_config, interrupt, 96);
PIN(ringred_config, interrupt_context, 104);
PIN(ringred_config, allgather, 112);
PIN(ringred_config, allgather_context, 120);
PIN(ringred_config, store, 128);

PIN_SIZE(ringred_call, 112);
PIN(ringred_call, struct_size, 0);
PIN(ringred_call, collective, 4);
PIN(ringred_call, send, 8);
PIN(ringred_call, recv, 16);
PIN(ringred_call, count, 24);
PIN(ringred_call, type, 32);
PIN(ringred_call, op, 36);
PIN(ringred_call, root, 40);
PIN(ringred_call, reserved, 44);
PIN(ringred_call, send_counts, 48);
PIN(ringred_call, send_places, 56);
PIN(ringred_call, recv_counts, 64);
PIN(ringred_call, recv_places, 72);
PIN(ringred_call, scale, 80);
PIN(ringred_call, timeout_ns, 88);
PIN(ringred_call, done, 96);
PIN(ringred_call, done_context, 104);

PIN_SIZE(ringred_store, 32);
PIN(ringred_store, struct_size, 0);
PIN(ringred_store, reserved, 4);
PIN(ringred_store, context, 8);
PIN(ringred_store, set, 16);
PIN(ringred_store, get, 24);

PIN_SIZE(ringred_choice, 56);
PIN(ringred_choice, struct_size, 0);
PIN(ringred_choice, ranks, 4);
PIN(ringred_choice, hosts, 8);
PIN(ringred_choice, type, 12);
PIN(ringred_choice, op, 16);
PIN(ringred_choice, root, 20);
PIN(ringred_choice, bytes, 24);
PIN(ringred_choice, collective, 32);
PIN(ringred_choice, algorithm, 40);
PIN(ringred_choice, segment, 48);

PIN_SIZE(ringred_team_call, 56);
PIN(ringred_team_call, struct_size, 0);
PIN(ringred_team_call, collective, 4);
PIN(ringred_team_call, send, 8);
PIN(ringred_team_call, recv, 16);
PIN(ringred_team_call, count, 24);
PIN(ringred_team_call, type, 32);
PIN(ringred_team_call, op, 36);
PIN(ringred_team_call, root, 40);
PIN(ringred_team_call, ranks, 44);
PIN(ringred_team_call, scale, 48);

PIN_SIZE(ringred_team, 96);
PIN(ringred_team, struct_size, 0);
PIN(ringred_team, order, 4);
PIN(ringred_team, name, 8);
PIN(ringred_team, text, 16);
PIN(ringred_team, usable, 24);
PIN(ringred_team, can, 32);
PIN(ringred_team, id, 40);
PIN(ringred_team, open, 48);
PIN(ringred_team, start, 56);
PIN(ringred_team, test, 64);
PIN(ringred_team, descriptor, 72);
PIN(ringred_team, abort, 80);
PIN(ringred_team, close, 88);

static void test_numbers_are_what_programs_have_compiled_in(void **state)
{
    static const struct {
        int32_t is, was;
    } numbers[] = {
        { RINGRED_FLOAT32, 1 },      { RINGRED_FLOAT64, 2 },       { RINGRED_SUM, 257 },
        { RINGRED_AVG, 258 },        { RINGRED_OK, 0 },            { RINGRED_PENDING, 1 },
        { RINGRED_EINVAL, -101 },    { RINGRED_ESETTING, -102 },   { RINGRED_EUNSUPPORTED, -103 },
        { RINGRED_EBUSY, -104 },     { RINGRED_EFORKED, -105 },    { RINGRED_ENOMEM, -201 },
        { RINGRED_ELIMIT, -202 },    { RINGRED_ESYSTEM, -203 },    { RINGRED_EPEER, -301 },
        { RINGRED_ETIMEOUT, -302 },  { RINGRED_EABORTED, -303 },   { RINGRED_EWIRE, -304 },
        { RINGRED_EMISMATCH, -401 }, { RINGRED_ECONFIG, -402 },    { RINGRED_EVERSION, -501 },
        { RINGRED_EAUTH, -502 },     { RINGRED_EINTERNAL, -901 },  { RINGRED_LOG_NONE, 0 },
        { RINGRED_LOG_ERROR, 1 },    { RINGRED_LOG_WARN, 2 },      { RINGRED_LOG_INFO, 3 },
        { RINGRED_LOG_TRACE, 4 },     { RINGRED_EINTERRUPTED, -305 }, { RINGRED_EPARTITION, -306 }, { RINGRED_ALLREDUCE, 513 },
        { RINGRED_ALLTOALLV, 526 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_int_equal(numbers[i].is, numbers[i].was);
    assert_true(RINGRED_FOREVER == -1 && sizeof(RINGRED_FOREVER) == 8);
    assert_true(RINGRED_SECOND == 1000000000 && sizeof(RINGRED_SECOND) == 8);
}

static void test_init_functions_write_the_size_and_nothing_beyond(void **state)
{
    struct {
        ringred_config config;
        ringred_error error;
        ringred_store store;
        unsigned char after;
    } room;

    (void)state;
    room.after = 0xa5;
    ringred_config_init(&room.config, sizeof room.config);
    ringred_error_init(&room.error);
    assert_int_equal(room.config.struct_size, sizeof room.config);
    assert_int_equal(room.config.rank, -1);
    assert_int_equal(room.config.size, -1);
    assert_int_equal(room.error.struct_size, sizeof room.error);
    assert_int_equal(room.error.code, 0);
    assert_int_equal(room.error.rank, -1);
    assert_int_equal(room.error.text[0], 0);
    assert_int_equal(room.after, 0xa5);
    ringred_store_init(&room.store, sizeof room.store);
    assert_int_equal(room.store.struct_size, sizeof room.store);
    assert_null(room.store.set);
    assert_int_equal(room.after, 0xa5);
    memset(&room, 0xa5, sizeof room); /* a program that knows less of the struct than we do */
    ringred_config_init(&room.config, offsetof(ringred_config, log));
    assert_int_equal(room.config.struct_size, offsetof(ringred_config, log));
    assert_int_equal(room.config.rank, -1);
    assert_null(room.config.settings);
    assert_int_equal(((const unsigned char *)&room.config)[offsetof(ringred_config, log)], 0xa5);
    ringred_config_init(NULL, 0);
    ringred_error_init(NULL);
    ringred_store_init(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_what_programs_have_compiled_in),
        cmocka_unit_test(test_init_functions_write_the_size_and_nothing_beyond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
