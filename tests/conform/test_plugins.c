/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins through the library: what is found, what is refused and in which words, and collectives over lanes that
 * trickle, beside shared memory and alone. */
#include "calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int32_t try_with(const char *transport, const char *more, ringred_error *why)
{
    char setting[64];
    const char *settings[] = { setting, more, NULL };
    ringred_config config;
    ringred_comm *comm = NULL;

    snprintf(setting, sizeof setting, "transport=%s", transport);
    ringred_config_init(&config, sizeof config);
    ringred_error_init(why);
    config.rank = 0;
    config.size = 1;
    config.settings = settings;
    const int32_t rc = ringred_comm_create(&config, &comm, why);
    if (rc == 0)
        (void)ringred_comm_destroy(comm); /* nothing was done with it */
    return rc;
}

static int32_t try(const char *transport, ringred_error *why)
{
    return try_with(transport, NULL, why);
}

static void test_what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *transport;
        int32_t code;
        const char *words;
    } wrong[] = {
        { "nosuch", RINGRED_ESETTING, "no transport \"nosuch\"" },
        { "../unix", RINGRED_ESETTING, "no transport" },
        { "shm,shm", RINGRED_ESETTING, "no transport" },
        { "UNIX", RINGRED_ESETTING, "no transport" },
        { "", RINGRED_ESETTING, "no transport" },
        { "broken5", RINGRED_EVERSION, "made for plug-in interface 7, this library has 1" },
        { "broken6", RINGRED_EVERSION, "no function \"drained\"" },
        { "broken7", RINGRED_EVERSION, "its table has 16 bytes" },
        { "broken8", RINGRED_EVERSION, "calls itself \"unix\", not \"broken8\"" },
    };
    ringred_error why;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(try(wrong[i].transport, &why), wrong[i].code);
        if (!strstr(why.text, wrong[i].words))
            fail_msg("transport=%s: %s", wrong[i].transport, why.text);
    }
    assert_int_equal(try_with("unix", "tcp_encryption=on", &why), RINGRED_ESETTING); /* not ours to encrypt */
    assert_non_null(strstr(why.text, "not what transport=unix carries"));
    assert_int_equal(try("unix", &why), 0);
    assert_int_equal(try("shm,unix", &why), 0);
}

static void test_what_is_there_is_listed(void **state)
{
    static char text[200000];

    (void)state;
    assert_true(ringred_describe(text, sizeof text) > 0);
    assert_non_null(strstr(text, "{\"name\":\"unix\",\"usable\":true,\"plugin\":true,\"text\":\"Unix sockets"));
    assert_non_null(strstr(text, "{\"name\":\"broken5\",\"usable\":false"));
}

static void collectives(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    struct calls_memory memory;
    struct numbers_random all = { 91 }, mine = { 92 + (uint64_t)me->rank };

    calls_memory_open(&memory, comm, 700000);
    coll_must(comm, ringred_comm_split(comm, me->rank % 2, 0, &part), "split");
    for (int i = 0; i < 60; i++) {
        static const size_t counts[] = { 0, 1, 17, 1000, 10007, 20000 };
        struct call c = { .kind = (enum calls_kind)numbers_below(&all, CALLS_KINDS), .exact = true };
        c.count = counts[numbers_below(&all, 6)];
        c.root = (int)numbers_below(&all, (uint64_t)me->size);
        c.job = (struct numbers_job){ .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .ranks = me->size,
                                      .kind = NUMBERS_ROUNDING, .seed = numbers_next(&all) };
        calls_prepare(&c, &memory, me, &mine);
        coll_must(comm, calls_run(comm, &c), c.text);
        calls_check(&c, &memory, me);
        float x = 1;
        coll_must(part, ringred_allreduce(part, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce of a part");
        rank_check(x == (float)((me->size + 1 - me->rank % 2) / 2));
    }
    coll_must(part, ringred_comm_destroy(part), "destroy");
    calls_memory_close(&memory);
    coll_close(comm);
}

static void test_collectives_run_over_plug_ins(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=unix" } },
        { 4, { "transport=trickle" } },
        { 3, { "transport=trickle", "tcp_streams=4" } },
        { 4, { "transport=shm,trickle", "ranks_per_host=2" } },
        { 3, { "transport=trickle", "progress=thread" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof setups[0], collectives, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_is_said),
        cmocka_unit_test(test_what_is_there_is_listed),
        cmocka_unit_test(test_collectives_run_over_plug_ins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
