/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a table or the caller's function chooses, results have the bits of the tree; ranks whose tables or
 * functions differ are told. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_BYTES ((size_t)1 << 20)
#define TITLE "ringred-tuning 1\n"

static uint64_t seed;

struct campaign {
    struct coll_setup setup;
    uint64_t seed;
    ringred_choose_fn choose;
    const char **names;
};

static void one_call(struct rank *me, ringred_comm *comm, struct coll_memory *m, struct numbers_random *all,
                     struct numbers_random *mine, const uint8_t *host, uint64_t types)
{
    struct coll_call c = { .exact = true, .count = numbers_below(all, 3) ? numbers_below(all, 3000)
                                                                        : numbers_below(all, MOST_BYTES / 8) };
    bool broadcast = numbers_below(all, 4) == 0;

    static const int type[] = { RINGRED_FLOAT32, RINGRED_FLOAT64, RINGRED_FLOAT16, RINGRED_BFLOAT16 };
    c.job.type = type[numbers_below(all, types)];
    c.job.op = numbers_below(all, 2) ? RINGRED_SUM : RINGRED_AVG;
    c.job.kind = (enum numbers_kind)numbers_below(all, 3);
    c.job.ranks = me->size;
    c.job.seed = numbers_next(all);
    c.job.host = host;
    c.root = (int)numbers_below(all, (uint64_t)me->size);
    coll_prepare(&c, m, me, mine);
    if (broadcast) {
        coll_must(comm, ringred_broadcast(comm, c.send, c.recv, c.count, c.job.type, c.root), c.text);
        coll_check_broadcast(&c, me);
    } else {
        coll_must(comm, ringred_allreduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op), c.text);
        coll_check_allreduce(&c, me);
    }
}

static void campaign_run(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open_choosing(me, &p->setup, p->choose, p->names);
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    struct coll_memory m;

    uint8_t room[NUMBERS_RANKS];
    const uint8_t *host = coll_hosts(&p->setup, room);

    coll_memory_open(&m, comm, MOST_BYTES);
    for (int i = 0; i < 100; i++)
        one_call(me, comm, &m, &all, &mine, host, p->choose ? 2 : 4); /* doubling is not for narrow ones */
    coll_close(comm);
    coll_memory_close(&m);
}

/* A file with that text; its name as a setting, good until the next. */
static const char *table(const char *text)
{
    static char setting[64];
    int fd;

    snprintf(setting, sizeof setting, "tuning=/tmp/ringred-tuning-XXXXXX");
    fd = mkstemp(setting + 7);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return setting;
}

static void test_tables_change_no_bit(void **state)
{
    static const struct {
        int ranks;
        const char *setting, *text;
    } cases[] = {
        { 3, "transport=shm", "allreduce 4B * * * shm-oneshot 4K\nallreduce * * * ..999 last\nallreduce * 3 1 * shm-twoshot 9K\n" },
        { 2, "transport=shm", "allreduce * * * 1K..8K tiny\nallreduce * * * * last\nallreduce * * * * shm-oneshot\n" },
        { 3, "transport=tcp", "allreduce float32 * 3 * star 64K\nallreduce * * * ..64K doubling 2K\nallreduce * * * * oneshot\n"
                              "broadcast * * * * broadcast-twoshot 3000\n" },
        { 5, "transport=tcp", "allreduce * * * * ring\nallreduce * 5 5 ..1K oneshot 1K\nallreduce * * * 1K.. doubling 10K\n" },
        { 4, "ranks_per_host=2", "allreduce * 4 2 ..10K twoshot 2K\nallreduce * * * * hierarchical 5K\n"
                                 "broadcast * * * ..4K binomial\n" },
        { 5, "ranks_per_host=3", "allreduce * * * ..10K twoshot 2K\nallreduce * * * 10K.. hierarchical 5K\n" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, TITLE "%s", cases[i].text);
        struct campaign p = { { cases[i].ranks, { cases[i].setting, table(text) } }, seed + i, NULL, NULL };
        ranks_fork(cases[i].ranks, campaign_run, &p);
        unlink(p.setup.setting[1] + 7);
    }
}

/* Where the usual way rounds otherwise, an answer is refused and changes nothing. */
static void refused_call(struct rank *me)
{
    static const char *flat[] = { "twoshot", NULL };
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open_choosing(me, &p->setup, p->choose, flat);
    uint16_t in[4] = { 0 }, out[4];
    float x[4] = { 0 };
    ringred_error why;

    rank_check_int(ringred_allreduce(comm, in, out, 4, RINGRED_BFLOAT16, RINGRED_SUM), RINGRED_EINVAL);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(strstr(why.text, "rounds otherwise") != NULL, "%s", why.text);
    rank_check_int(ringred_allreduce(comm, x, x, 4, RINGRED_FLOAT32, RINGRED_SUM), me->size == 4 ? 0 : RINGRED_EINVAL);
    coll_must(comm, ringred_allreduce(comm, in, out, 4, RINGRED_BFLOAT16, RINGRED_MAX), "max");
    coll_close(comm);
}

/* Any of the names that suits, and any segment, by the call alone. */
static void choose_anything(void *context, ringred_choice *choice)
{
    const char *const *name = context;
    uint64_t draw = (choice->bytes * 0x9e3779b97f4a7c15u + (uint64_t)choice->op) >> 33;
    int n = 0;

    if (strcmp(choice->collective, "allreduce") != 0)
        return;
    while (name[n])
        n++;
    choice->algorithm = name[draw % (uint64_t)n];
    choice->segment = draw / 7 % 3 ? (uint64_t)1024 << draw / 21 % 9 : 0;
}

static void test_functions_change_no_bit(void **state)
{
    static const char *shm[] = { "shm-oneshot", "shm-twoshot", "last", NULL };
    static const char *tcp[] = { "oneshot", "twoshot", "star", "doubling", NULL };
    static const char *both[] = { "hierarchical", "twoshot", "oneshot", NULL };
    const struct campaign cases[] = {
        { { 3, { "transport=shm", "stage=16M" } }, seed + 20, choose_anything, shm },
        { { 3, { "transport=tcp" } }, seed + 21, choose_anything, tcp },
        { { 4, { "ranks_per_host=2" } }, seed + 22, choose_anything, both },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_fork(cases[i].setup.ranks, campaign_run, (void *)(uintptr_t)&cases[i]);
}

static void test_answers_that_round_otherwise_are_refused(void **state)
{
    const struct campaign cases[] = {
        { { 4, { "ranks_per_host=2" } }, seed, choose_anything, NULL },
        { { 3, { "ranks_per_host=2" } }, seed, choose_anything, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_fork(cases[i].setup.ranks, refused_call, (void *)(uintptr_t)&cases[i]);
}

/* The root of a star wants scratch that the others do not: all must come to the segment that suits it. */
static void one_long_call(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);
    struct numbers_random mine = { seed + 2000 + (uint64_t)me->rank };
    struct coll_call c = { .exact = true, .count = (size_t)3 << 20 };
    struct coll_memory m;

    coll_memory_open(&m, comm, c.count * 4);
    c.job.type = RINGRED_FLOAT32;
    c.job.op = RINGRED_SUM;
    c.job.ranks = me->size;
    c.job.seed = seed;
    coll_prepare(&c, &m, me, &mine);
    coll_must(comm, ringred_allreduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op), c.text);
    coll_check_allreduce(&c, me);
    coll_must(comm, ringred_reduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op, 1), "a long reduce");
    coll_close(comm);
    coll_memory_close(&m);
}

static void test_ranks_agree_on_a_segment_that_only_some_have_room_for(void **state)
{
    static const struct coll_setup setups[] = {
        { 4, { "transport=tcp", "algorithm=star,reduce", "segment=4M" } },
        { 3, { "transport=tcp", "algorithm=doubling,reduce", "segment=2M" } },
        { 5, { "transport=tcp", "algorithm=star,reduce" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        ranks_fork(setups[i].ranks, one_long_call, (void *)(uintptr_t)&setups[i]);
}

/* ---- what differs between ranks ---- */

static void other_table(struct rank *me)
{
    const char *const *settings = me->argument;
    ringred_unique_id id = { 0 };
    const char *mine[] = { settings[me->rank == me->size - 1], "init_timeout=20", NULL };
    ringred_config config;
    ringred_comm *comm = NULL;
    ringred_error why;

    ringred_error_init(&why);
    if (me->rank == 0)
        rank_check(ringred_unique_id_create(&id, &why) == 0);
    ranks_pass(me, &id, sizeof id);
    ringred_config_init(&config, sizeof config);
    config.rank = me->rank;
    config.size = me->size;
    config.id = &id;
    config.settings = mine;
    rank_check_int(ringred_comm_create(&config, &comm, &why), RINGRED_ECONFIG);
    rank_check_msg(strstr(why.text, "tuning") && strstr(why.text, "rank 2"), "%s", why.text);
}

static void test_ranks_with_other_tables_are_refused(void **state)
{
    char one[64], two[64];
    const char *differ[] = { one, two }, *none[] = { one, "tuning=" };

    (void)state;
    snprintf(one, sizeof one, "%s", table(TITLE "allreduce * * * * shm-oneshot\n"));
    snprintf(two, sizeof two, "%s", table(TITLE "allreduce * * * * shm-twoshot\n"));
    ranks_fork(3, other_table, differ);
    ranks_fork(3, other_table, none);
    unlink(one + 7);
    unlink(two + 7);
}

static void choose_first(void *context, ringred_choice *choice)
{
    const char *const *name = context;

    if (strcmp(choice->collective, "allreduce") == 0) {
        choice->algorithm = name[0];
        choice->segment = name[0] == name[1] ? 4096 : 0;
    }
}

static void choose_second(void *context, ringred_choice *choice)
{
    const char *const *name = context;

    if (strcmp(choice->collective, "allreduce") == 0) {
        choice->algorithm = name[1];
        choice->segment = name[0] == name[1] ? 8192 : 0;
    }
}

struct quarrel {
    int ranks;
    const char *setting;
    const char *name[2];
};

static void other_answer(struct rank *me)
{
    const struct quarrel *q = me->argument;
    const struct coll_setup setup = { me->size, { q->setting } };
    ringred_comm *comm = coll_open_choosing(me, &setup, me->rank == 1 ? choose_second : choose_first,
                                            (void *)(uintptr_t)q->name);
    float *x = calloc(50000, sizeof *x);
    ringred_error error;

    rank_check(x != NULL);
    coll_must(comm, ringred_barrier(comm), "the agreed call before");
    ranks_meet(me);
    int32_t rc = ringred_allreduce(comm, x, x, q->name[1][0] == 't' && q->name[1][1] == 'i' ? 500 : 50000,
                                   RINGRED_FLOAT32, RINGRED_SUM);
    if (rc == 0)
        rc = ringred_barrier(comm);
    rank_check_msg(rc == RINGRED_EMISMATCH, "%s and %s: %d", q->name[0], q->name[1], rc);
    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(strstr(error.text, "choose") != NULL, "%s", error.text);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EMISMATCH);
    free(x);
}

static void test_functions_that_answer_differently_are_found(void **state)
{
    static const struct quarrel quarrels[] = {
        { 2, "transport=shm", { "shm-oneshot", "shm-twoshot" } },
        { 2, "transport=shm", { "shm-twoshot", "shm-twoshot" } }, /* other segments */
        { 2, "transport=shm", { "shm-oneshot", "tiny" } },
        { 3, "transport=shm", { "shm-twoshot", "last" } },
        { 2, "transport=tcp", { "oneshot", "twoshot" } },
        { 3, "transport=tcp", { "twoshot", "twoshot" } },
        { 3, "transport=tcp", { "twoshot", "star" } },
        { 4, "ranks_per_host=2", { "hierarchical", "twoshot" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof quarrels / sizeof *quarrels; i++)
        ranks_fork(quarrels[i].ranks, other_answer, (void *)(uintptr_t)&quarrels[i]);
}

static void choose_nonsense(void *context, ringred_choice *choice)
{
    (void)context;
    if (choice->bytes == 4)
        choice->algorithm = "quickly";
}

static void refuse(struct rank *me)
{
    const struct coll_setup setup = { me->size, { "transport=auto" } };
    ringred_comm *comm = coll_open_choosing(me, &setup, choose_nonsense, NULL);
    float x[2] = { 1, 1 };
    ringred_error error;

    rank_check_int(ringred_allreduce(comm, x, x, 1, RINGRED_FLOAT32, RINGRED_SUM), RINGRED_EINVAL);
    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(strstr(error.text, "quickly") != NULL, "%s", error.text);
    coll_must(comm, ringred_allreduce(comm, x, x, 2, RINGRED_FLOAT32, RINGRED_SUM), "the next call");
    rank_check(x[0] == 2 && x[1] == 2);
    coll_close(comm);
}

static void test_an_answer_that_makes_no_sense_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    ranks_fork(2, refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_change_no_bit),
        cmocka_unit_test(test_functions_change_no_bit),
        cmocka_unit_test(test_answers_that_round_otherwise_are_refused),
        cmocka_unit_test(test_ranks_agree_on_a_segment_that_only_some_have_room_for),
        cmocka_unit_test(test_ranks_with_other_tables_are_refused),
        cmocka_unit_test(test_functions_that_answer_differently_are_found),
        cmocka_unit_test(test_an_answer_that_makes_no_sense_is_refused_and_changes_nothing),
    };

    seed = numbers_seed("test_choice");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
