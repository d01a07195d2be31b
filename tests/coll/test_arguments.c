/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong arguments are refused with a sentence that names them, and change nothing: the communicator
 * works afterwards. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SUM RINGRED_SUM
#define F32 RINGRED_FLOAT32

/* rc must be EINVAL, and the communicator's sentence must speak of `word`. */
static void refused(ringred_comm *comm, int32_t rc, const char *word, int line)
{
    ringred_error error;

    ringred_error_init(&error);
    rank_check_msg(rc == RINGRED_EINVAL, "line %d: %d (%s) and not EINVAL", line, rc, ringred_status_text(rc));
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(error.code == RINGRED_EINVAL && strstr(error.text, word) != NULL,
                   "line %d: %d, \"%s\" does not speak of %s", line, error.code, error.text, word);
}
#define REFUSED(rc, word) refused(comm, rc, word, __LINE__)

static void wrong_allreduces(ringred_comm *comm)
{
    float a[8] = { 0 }, b[8] = { 0 };
    ringred_request *request = NULL;

    REFUSED(ringred_allreduce(comm, a, b, 8, 0, SUM), "type");
    REFUSED(ringred_allreduce(comm, a, b, 8, 77, SUM), "77");
    REFUSED(ringred_allreduce(comm, a, b, 8, F32, 0), "operator");
    REFUSED(ringred_allreduce(comm, a, b, 8, SUM, F32), "operator"); /* swapped */
    REFUSED(ringred_allreduce(comm, NULL, b, 8, F32, SUM), "send");
    REFUSED(ringred_allreduce(comm, a, NULL, 8, F32, SUM), "recv");
    REFUSED(ringred_allreduce(comm, a, a + 1, 4, F32, SUM), "overlap");
    REFUSED(ringred_allreduce(comm, a + 3, a, 4, F32, SUM), "overlap");
    REFUSED(ringred_allreduce(comm, a, b, SIZE_MAX / 2, F32, SUM), "elements");
    REFUSED(ringred_allreduce_start(comm, a, b, 8, F32, SUM, NULL), "request");
    REFUSED(ringred_allreduce_start(comm, a, b, 8, 0, SUM, &request), "type");
    rank_check(request == NULL);
    rank_check_int(ringred_allreduce(NULL, a, b, 8, F32, SUM), RINGRED_EINVAL);
}

static void wrong_others(ringred_comm *comm, const struct rank *me)
{
    float a[8] = { 0 }, b[8] = { 0 };

    REFUSED(ringred_broadcast(comm, a, b, 8, F32, -1), "root");
    REFUSED(ringred_broadcast(comm, a, b, 8, F32, me->size), "root");
    REFUSED(ringred_broadcast(comm, a, NULL, 8, F32, 0), "recv");
    REFUSED(ringred_broadcast(comm, NULL, b, 8, F32, me->rank), "send");
    REFUSED(ringred_broadcast(comm, a, b, 8, 99, 0), "type");
    REFUSED(ringred_broadcast_start(comm, a, b, 8, F32, 0, NULL), "request");
    REFUSED(ringred_barrier_start(comm, NULL), "request");
    rank_check_int(ringred_broadcast(NULL, a, b, 8, F32, 0), RINGRED_EINVAL);
    rank_check_int(ringred_barrier(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_wait(NULL, 0), RINGRED_EINVAL);
    rank_check_int(ringred_test(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_rank(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_size(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_local_rank(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_local_size(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_abort(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_destroy(NULL), 0);
}

static void wrong_pairs(ringred_comm *comm)
{
    static const unsigned char in[256];
    unsigned char out[256];

    for (int type = 0; type <= RINGRED_BYTES + 1; type++)
        for (int op = RINGRED_SUM - 1; op <= RINGRED_LXOR + 1; op++) {
            int32_t rc = ringred_allreduce(comm, in, out, 4, type, op);
            rank_check_msg(rc == (numbers_legal(type, op) ? 0 : RINGRED_EINVAL), "type %d, operator %d: %d", type,
                           op, rc);
        }
}

static void wrong_memory(ringred_comm *comm)
{
    ringred_error small = { .struct_size = 4 };
    void *memory = NULL, *own = malloc(64);
    char text[16];

    REFUSED(ringred_alloc(comm, 64, NULL), "memory");
    rank_check_int(ringred_alloc(NULL, 64, &memory), RINGRED_EINVAL);
    rank_check(memory == NULL);
    rank_check(ringred_alloc(comm, SIZE_MAX - 5, &memory) < 0 && memory == NULL);
    rank_check_int(ringred_free(own), RINGRED_EINVAL);
    rank_check_int(ringred_free(NULL), 0);
    free(own);
    rank_check_int(ringred_comm_error(comm, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_error(comm, &small), RINGRED_EINVAL);
    rank_check(ringred_comm_describe(comm, "allreduce", 8, NULL, 5) < 0);
    rank_check(ringred_comm_describe(comm, "allreduce", 8, NULL, 0) > 0);
    rank_check(ringred_comm_describe(comm, "allreduce", 8, text, sizeof text) > 16);
    rank_check(strlen(text) == sizeof text - 1);
}

static void wrong_then_right(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float x = 1;

    wrong_allreduces(comm);
    wrong_others(comm, me);
    wrong_pairs(comm);
    wrong_memory(comm);
    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, F32, SUM), "allreduce afterwards");
    rank_check(x == (float)me->size);
    coll_must(comm, ringred_allreduce(comm, NULL, NULL, 0, F32, SUM), "nothing at all");
    coll_must(comm, ringred_broadcast(comm, NULL, NULL, 0, F32, me->size - 1), "nothing at all");
    coll_close(comm);
}

static void test_wrong_arguments_are_refused_and_change_nothing(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=auto" } }, { 2, { "transport=shm" } }, { 3, { "transport=tcp" } }
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++)
        ranks_fork(setups[i].ranks, wrong_then_right, (void *)(uintptr_t)&setups[i]);
}

/* ---- making a communicator: these fail before anybody is looked for ---- */

static void create_fails(const ringred_config *config, int32_t code, const char *word)
{
    ringred_comm *comm = NULL;
    ringred_error why;
    const int32_t rc = ringred_comm_create(config, &comm, &why);

    if (rc != code || why.code != code || strstr(why.text, word) == NULL)
        fail_msg("%d (%s), \"%s\"; should be %d and speak of %s", rc, ringred_status_text(rc), why.text, code,
                 word);
    assert_null(comm);
    assert_int_equal(ringred_comm_create(config, &comm, NULL), code);
}

static ringred_config config_of(int32_t rank, int32_t size, const char *const *settings)
{
    ringred_config config;

    ringred_config_init(&config, sizeof config);
    config.rank = rank;
    config.size = size;
    config.settings = settings;
    config.timeout_ns = RINGRED_SECOND;
    return config;
}

static void test_wrong_configurations_are_refused(void **state)
{
    ringred_config config = config_of(0, 1, NULL);

    (void)state;
    assert_int_equal(ringred_comm_create(&config, NULL, NULL), RINGRED_EINVAL);
    config.struct_size = 0;
    create_fails(&config, RINGRED_EINVAL, "struct_size");
    config = config_of(-2, 4, NULL);
    create_fails(&config, RINGRED_EINVAL, "rank");
    config = config_of(0, 0, NULL);
    create_fails(&config, RINGRED_EINVAL, "size");
    config = config_of(0, -7, NULL);
    create_fails(&config, RINGRED_EINVAL, "size");
}

static void test_wrong_settings_name_the_nearest_or_the_range(void **state)
{
    static const char *const unknown[] = { "algoritm=ring", NULL }, *const value[] = { "transport=pigeon", NULL };
    static const char *const shape[] = { "transport", NULL }, *const range[] = { "ranks_per_host=-1", NULL };
    ringred_config config = config_of(0, 1, unknown);

    (void)state;
    create_fails(&config, RINGRED_ESETTING, "algorithm");
    config = config_of(0, 1, value);
    create_fails(&config, RINGRED_ESETTING, "shm");
    config = config_of(0, 1, shape);
    create_fails(&config, RINGRED_ESETTING, "transport");
    config = config_of(0, 1, range);
    create_fails(&config, RINGRED_ESETTING, "ranks_per_host");
}

/* A caller that was built against a longer struct: fine as long as what we do not know is zero. */
static void test_longer_configurations_are_read_if_their_tail_is_zero(void **state)
{
    struct {
        ringred_config config;
        uint64_t newer[2];
    } longer = { config_of(0, 1, NULL), { 0, 0 } };
    ringred_comm *comm = NULL;
    ringred_error why;

    (void)state;
    longer.config.struct_size = sizeof longer;
    assert_int_equal(ringred_comm_create(&longer.config, &comm, &why), 0);
    assert_int_equal(ringred_comm_destroy(comm), 0);
    longer.newer[1] = 1;
    create_fails(&longer.config, RINGRED_EVERSION, "newer");
}

static void test_every_status_has_a_text(void **state)
{
    static const int32_t codes[] = {
        RINGRED_OK, RINGRED_PENDING, RINGRED_EINVAL, RINGRED_ESETTING, RINGRED_EUNSUPPORTED, RINGRED_EBUSY,
        RINGRED_EFORKED, RINGRED_ENOMEM, RINGRED_ELIMIT, RINGRED_ESYSTEM, RINGRED_EPEER, RINGRED_ETIMEOUT,
        RINGRED_EABORTED, RINGRED_EWIRE, RINGRED_EMISMATCH, RINGRED_ECONFIG, RINGRED_EVERSION, RINGRED_EAUTH,
        RINGRED_EINTERNAL,
    };
    const size_t n = sizeof codes / sizeof codes[0];

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(ringred_status_text(codes[i]), ringred_status_text(codes[j]));
    assert_non_null(ringred_status_text(12345));
    assert_string_equal(ringred_version(), RINGRED_VERSION);
    assert_int_equal(ringred_abi_version(), RINGRED_ABI_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments_are_refused_and_change_nothing),
        cmocka_unit_test(test_wrong_configurations_are_refused),
        cmocka_unit_test(test_wrong_settings_name_the_nearest_or_the_range),
        cmocka_unit_test(test_longer_configurations_are_read_if_their_tail_is_zero),
        cmocka_unit_test(test_every_status_has_a_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
