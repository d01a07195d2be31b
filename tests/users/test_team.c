/* SPDX-License-Identifier: Apache-2.0 */
/* A team of a stranger's, the fake NCCL, through the library: which calls it gets, that their numbers are those that
 * are promised, and that nothing waits in it for ever. */
#include "calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CULPRIT 1

/* What a rank does under which settings and variables of the fake. */
struct scene {
    struct coll_setup setup;
    const char *set[3]; /* "NAME=value" */
    int32_t status;
    const char *words;
    int named; /* the rank that errors must name; -1: any */
    uint64_t deaths;
    bool exact;
    int calls; /* that the fake must have had; -1: some */
};

static void play(const struct scene *scenes, size_t n, void (*run)(struct rank *me))
{
    for (size_t i = 0; i < n; i++) {
        char text[200];

        coll_setup_text(&scenes[i].setup, text, sizeof text);
        print_message("             %s %s\n", text, scenes[i].set[0] ? scenes[i].set[0] : "");
        ranks_run(&(struct ranks_plan){ .size = scenes[i].setup.ranks,
                                        .run = run,
                                        .deadline_s = 60,
                                        .argument = (void *)(uintptr_t)&scenes[i],
                                        .may_die = scenes[i].deaths });
    }
}
#define PLAY(scenes, run) play(scenes, sizeof scenes / sizeof scenes[0], run)

static void set_variables(const struct scene *s)
{
    for (int i = 0; i < 3 && s->set[i]; i++)
        rank_check(putenv((char *)(uintptr_t)s->set[i]) == 0);
}

static ringred_comm *open_scene(struct rank *me)
{
    const struct scene *s = me->argument;

    set_variables(s);
    return coll_open(me, &s->setup);
}

/* What a fake has counted in this process. */
static int count_of(const char *team, const char *what)
{
    char file[4096];
    _Atomic int *count;

    snprintf(file, sizeof file, "%s/libringred-%s.so", getenv("RINGRED_PLUGIN_PATH"), team);
    void *object = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    if (!object)
        return 0;
    void *symbol = dlsym(object, what);
    rank_check(symbol != NULL);
    memcpy(&count, &symbol, sizeof count);
    return atomic_load(count);
}

static int calls_of(const char *team)
{
    return count_of(team, "fake_nccl_calls");
}

static int all_calls(void)
{
    return calls_of("fakenccl") + calls_of("faketree");
}

static void check_error(ringred_comm *comm, const struct scene *s, int32_t rc)
{
    ringred_error error;

    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(rc == s->status, "status %d and not %d: %s", rc, s->status, error.text);
    rank_check_msg(strstr(error.text, s->words) != NULL, "\"%s\" does not say \"%s\"", error.text, s->words);
    rank_check_msg(s->named < 0 || error.rank == s->named, "names rank %d and not %d: %s", error.rank, s->named,
                   error.text);
}

/* ---- numbers ---- */

#define PART_BYTES ((size_t)100 << 10)

static void one_of_many(ringred_comm *comm, const struct calls_memory *m, struct rank *me, struct numbers_random *all,
                        struct numbers_random *mine)
{
    const struct scene *s = me->argument;
    static const size_t counts[] = { 0, 1, 3, 17, 1000, 12000 };
    uint8_t host[NUMBERS_RANKS];
    struct call c = { .kind = (enum calls_kind)numbers_below(all, CALLS_KINDS), .exact = s->exact };

    c.root = (int)numbers_below(all, (uint64_t)me->size);
    c.count = counts[numbers_below(all, 6)];
    c.job = (struct numbers_job){ .ranks = me->size,
                                  .seed = numbers_next(all),
                                  .host = coll_hosts(&s->setup, host),
                                  .kind = s->exact ? NUMBERS_WILD : NUMBERS_COUNTING };
    do {
        const bool usual = numbers_below(all, 2);
        c.job.type = 1 + (int)numbers_below(all, usual ? 2 : s->exact ? RINGRED_BYTES : 2);
        c.job.op = RINGRED_SUM + (int)numbers_below(all, usual || !s->exact ? 2 : 11);
    } while (calls_collectives[c.kind].reduces && !numbers_legal(c.job.type, c.job.op));
    c.count = c.count * numbers_bytes(c.job.type) > PART_BYTES ? 1000 : c.count;
    c.in_place = numbers_below(mine, 2);
    calls_prepare(&c, m, me, mine);
    coll_must(comm, calls_run(comm, &c), c.text);
    calls_check(&c, m, me);
}

static void many_calls(struct rank *me)
{
    ringred_comm *comm = open_scene(me);
    struct numbers_random all = { 71 }, mine = { 72 + (uint64_t)me->rank };
    struct calls_memory m;

    calls_memory_open(&m, comm, (size_t)me->size * PART_BYTES + CALLS_MARGIN);
    for (int i = 0; i < 150; i++)
        one_of_many(comm, &m, me, &all, &mine);
    rank_check_msg(all_calls() > 20, "the team had %d calls only", all_calls());
    calls_memory_close(&m);
    coll_close(comm);
}

static void test_numbers_are_those_that_are_promised(void **state)
{
    static const struct scene scenes[] = {
        { .setup = { 2, { "team=fakenccl" } }, .exact = true },
        { .setup = { 3, { "team=fakenccl", "transport=tcp" } }, .exact = true },
        { .setup = { 3, { "team=fakenccl", "numerics=fast" } } },
        { .setup = { 4, { "team=fakenccl", "numerics=fast", "ranks_per_host=2" } }, .set = { "FAKE_NCCL_NO_BELL=1" } },
        { .setup = { 4, { "team=faketree" } }, .exact = true },
        { .setup = { 5, { "team=faketree", "transport=tcp", "progress=thread" } }, .exact = true },
        { .setup = { 4, { "team=faketree", "ranks_per_host=2" } }, .exact = true },
        { .setup = { 5, { "team=faketree", "hosts=aabbb" } }, .exact = true },
        { .setup = { 5, { "team=faketree", "hosts=aabbb", "numerics=portable" } }, .exact = true },
    };

    (void)state;
    PLAY(scenes, many_calls);
}

/* ---- which calls ---- */

static void join(void *context, const void *left, const void *right, void *result, size_t count)
{
    (void)context;
    (void)left;
    memmove(result, right, count);
}

/* Calls that no team takes. */
static void other_calls(struct rank *me)
{
    ringred_comm *comm = open_scene(me), *part;
    const size_t counts[] = { 1, 1, 1 };
    const int32_t types[] = { RINGRED_INT32, RINGRED_INT64 };
    int32_t x[4] = { 1, 2, 3, 4 }, op;
    int64_t y = 5;
    const void *send[] = { x, &y };
    void *recv[] = { x, &y };

    coll_must(comm, ringred_barrier(comm), "barrier");
    coll_must(comm, ringred_allreduce(comm, x, x, 0, RINGRED_INT32, RINGRED_SUM), "nothing");
    coll_must(comm, ringred_allreduce_list(comm, send, recv, counts, types, 2, RINGRED_SUM), "allreduce_list");
    coll_must(comm, ringred_allgatherv(comm, x + me->rank, 1, x, counts, NULL, RINGRED_INT32), "allgatherv");
    coll_must(comm, ringred_op_create(comm, join, NULL, 1, &op), "op_create");
    coll_must(comm, ringred_allreduce(comm, x, x, 4, RINGRED_BYTES, op), "an operator of ours");
    coll_must(comm, ringred_alltoall(comm, x, x, 1, RINGRED_INT32), "alltoall, which the fake cannot");
    coll_must(comm, ringred_allreduce(comm, x, x, 1, RINGRED_INT32, RINGRED_BXOR), "an operator that the fake has not");
    coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split");
    coll_close(part);
    rank_check_int(all_calls(), 0);
    coll_close(comm);
}

static void float_sum(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me);
    char text[4000];
    float x = 1;

    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    rank_check(x == (float)me->size);
    rank_check_int(all_calls(), s->calls);
    rank_check(ringred_comm_describe(comm, "allreduce", 4, text, sizeof text) < (int64_t)sizeof text);
    rank_check_msg(strstr(text, s->words) != NULL, "no %s in %s", s->words, text);
    rank_check((strstr(text, "\"plan\":\"team fake") != NULL) == (s->calls > 0));
    rank_check(strstr(text, "\"team\":{\"name\":\"fake") != NULL);
    coll_close(comm);
}

static void test_a_team_gets_only_what_it_may(void **state)
{
    static const struct scene others[] = {
        { .setup = { 2, { "team=fakenccl", "numerics=fast" } } },
        { .setup = { 3, { "team=faketree", "transport=tcp" } } },
    };
    static const struct scene sums[] = {
        { .setup = { 2, { "team=fakenccl" } }, .words = "\"tree\":\"canonical\"", .calls = 0 },
        { .setup = { 2, { "team=fakenccl", "numerics=portable" } }, .words = "\"tree\":\"canonical\"", .calls = 0 },
        { .setup = { 2, { "team=fakenccl", "numerics=fast" } }, .words = "\"tree\":\"any\"", .calls = 1 },
        { .setup = { 2, { "team=faketree" } }, .words = "\"tree\":\"canonical\"", .calls = 1 },
        { .setup = { 3, { "team=faketree", "hosts=abb" } }, .words = "\"tree\":\"layout\"", .calls = 0 },
        { .setup = { 2, { "team=faketree", "algorithm=twoshot" } }, .words = "\"tree\":\"canonical\"", .calls = 0 },
        { .setup = { 2, { "team=faketree", "algorithm=tiny" } }, .words = "\"open\":true", .calls = 0 },
    };

    (void)state;
    PLAY(others, other_calls);
    PLAY(sums, float_sum);
}

static void choose(void *context, ringred_choice *choice)
{
    const char *answer = context;

    rank_check_msg(strcmp(choice->algorithm, "team") == 0, "the choice was %s", choice->algorithm);
    choice->algorithm = answer ? answer : choice->algorithm;
}

static void choosing(struct rank *me)
{
    static char answers[][16] = { "team", "twoshot" };
    const struct scene *s = me->argument;
    ringred_comm *comm;
    float x = 1;

    set_variables(s);
    comm = coll_open_choosing(me, &s->setup, choose, answers[s->calls == 0]);
    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    rank_check_int(all_calls(), s->calls);
    coll_close(comm);
}

static void test_the_function_choose_has_the_last_word(void **state)
{
    static const struct scene scenes[] = {
        { .setup = { 2, { "team=faketree", "transport=tcp" } }, .calls = 1 },
        { .setup = { 2, { "team=faketree", "transport=tcp" } }, .calls = 0 },
    };

    (void)state;
    PLAY(scenes, choosing);
}

static void test_explaining_names_the_team(void **state)
{
    static const char *const fast[] = { "team=fakenccl", "numerics=fast", NULL }, *const plain[] = { "team=fakenccl",
                                                                                                     NULL };
    static const char *const none[] = { "team=nosuch", NULL };
    static char text[20000];

    (void)state;
    assert_true(ringred_explain("per_host=4 nodes=1 bytes=1M", fast, text, sizeof text) > 0);
    assert_non_null(strstr(
        text,
        "\"choice\":{\"algorithm\":\"team\",\"segment\":0,\"rule\":\"team\",\"team\":\"fakenccl\",\"tree\":\"any\"}"));
    assert_true(ringred_explain("per_host=4 nodes=1 bytes=1M", plain, text, sizeof text) > 0);
    assert_null(strstr(text, "\"rule\":\"team\""));
    assert_true(ringred_explain("per_host=4 nodes=1 bytes=1M type=int32", plain, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"tree\":\"any\""));
    assert_int_equal(ringred_explain("per_host=4 nodes=1 bytes=1M", none, text, sizeof text), RINGRED_ESETTING);
    assert_true(ringred_describe(text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"teams\":[{\"name\":\"fake"));
}

/* ---- disagreement ---- */

static void disagree(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me);
    const bool odd = me->rank == CULPRIT;
    float x[4] = { 0 };
    int32_t rc;

    coll_must(comm, ringred_barrier(comm), "the agreed call before");
    ranks_meet(me); /* else a rank may still be in that call when the others find out */
    if (s->calls == 2 && odd)
        rank_check(setenv("FAKE_NCCL_CANNOT", "1", 1) == 0);
    if (s->calls != 1)
        rc = ringred_allreduce(comm, x, x, odd && s->calls == 0 ? 3 : 4, RINGRED_FLOAT32, RINGRED_SUM);
    else
        rc = odd ? ringred_barrier(comm) : ringred_broadcast(comm, x, x, 4, RINGRED_FLOAT32, 0);
    check_error(comm, s, rc);
    rank_check_int(all_calls(), 0);
    rank_check_int(ringred_comm_destroy(comm), s->status);
}

static void test_disagreement_is_found_before_the_team_is_asked(void **state)
{
#define DIFFERS(n, transport, what, text)                                                                            \
    {                                                                                                                \
        .setup = { n, { "team=fakenccl", "numerics=fast", transport } }, .status = RINGRED_EMISMATCH, .words = text, \
        .named = -1, .calls = what                                                                                   \
    }
    static const struct scene scenes[] = {
        DIFFERS(2, "transport=shm", 0, "asked for allreduce (sum) of"),
        DIFFERS(3, "transport=tcp", 0, "asked for allreduce (sum) of"),
        DIFFERS(4, "ranks_per_host=2", 0, "asked for allreduce (sum) of"),
        DIFFERS(3, "transport=shm", 1, "barrier"),
        DIFFERS(3, "transport=tcp", 1, "barrier"),
        DIFFERS(2, "transport=shm", 2, "or the team"),
        DIFFERS(3, "transport=tcp", 2, "or the team"),
        DIFFERS(4, "ranks_per_host=2", 2, "or the team"),
    };

    (void)state;
    PLAY(scenes, disagree);
}

/* ---- what goes wrong ---- */

#define COUNT ((size_t)100000)

/* Calls until one fails: 3 at most. */
static void call_until_failure(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me);
    float *x = malloc(COUNT * sizeof *x);
    int32_t rc = 0;

    for (int i = 0; i < 3 && rc == 0; i++) {
        for (size_t k = 0; k < COUNT; k++)
            x[k] = 1;
        rc = ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM);
        rank_check(rc < 0 || x[COUNT - 1] == (float)me->size);
    }
    check_error(comm, s, rc);
    rank_check(calls_of("fakenccl") < 2 || count_of("fakenccl", "fake_nccl_aborts") == 1);
    free(x); /* nobody is at work on it any more */
    rank_check_int(ringred_comm_destroy(comm), s->status);
}

static void test_a_rank_that_dies_is_named(void **state)
{
#define DIES(n, transport, ...)                                                                                       \
    {                                                                                                                 \
        .setup = { n, { "team=fakenccl", "numerics=fast", transport } }, .set = { "FAKE_NCCL_DIE=1:2", __VA_ARGS__ }, \
        .status = RINGRED_EPEER, .words = "rank 1", .named = CULPRIT, .deaths = 1u << CULPRIT                         \
    }
    static const struct scene scenes[] = {
        DIES(2, "transport=shm", NULL),
        DIES(3, "transport=tcp", NULL),
        DIES(4, "ranks_per_host=2", NULL),
        DIES(2, "transport=shm", "FAKE_NCCL_DEAF=1"),
        DIES(3, "transport=tcp", "FAKE_NCCL_DEAF=1"),
        DIES(3, "progress=thread", "FAKE_NCCL_DEAF=1", "FAKE_NCCL_NO_BELL=1"),
    };

    (void)state;
    PLAY(scenes, call_until_failure);
}

static void test_what_a_team_fails_with_is_told_to_all(void **state)
{
#define FAILS(n, transport)                                                                               \
    {                                                                                                     \
        .setup = { n, { "team=fakenccl", "numerics=fast", transport } }, .set = { "FAKE_NCCL_FAIL=1:2" }, \
        .status = RINGRED_ESYSTEM, .words = "team fakenccl: unhandled system error", .named = -1          \
    }
    static const struct scene scenes[] = {
        FAILS(2, "transport=shm"),
        FAILS(3, "transport=tcp"),
        FAILS(4, "ranks_per_host=2"),
        FAILS(3, "progress=thread"),
    };

    (void)state;
    PLAY(scenes, call_until_failure);
}

static void test_a_time_limit_ends_what_waits_in_a_team(void **state)
{
#define STALLS(n, transport)                                                                                     \
    {                                                                                                            \
        .setup = { n, { "team=fakenccl", "numerics=fast", "timeout=0.3", transport } },                          \
        .set = { "FAKE_NCCL_STALL=1:2" }, .status = RINGRED_ETIMEOUT, .words = "did not end within", .named = -1 \
    }
    static const struct scene scenes[] = { STALLS(2, "transport=shm"), STALLS(3, "transport=tcp"),
                                           STALLS(2, "progress=thread") };

    (void)state;
    PLAY(scenes, call_until_failure);
}

static void *abort_it(void *comm)
{
    while (calls_of("fakenccl") == 0) /* the team is at work */
        sched_yield();
    rank_check_int(ringred_comm_abort(comm), 0);
    return NULL;
}

static void aborts(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me);
    float *x = calloc(COUNT, sizeof *x);
    pthread_t thread;

    if (me->rank == 0)
        rank_check(pthread_create(&thread, NULL, abort_it, comm) == 0);
    check_error(comm, s, ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM));
    free(x);
    if (me->rank == 0)
        rank_check(pthread_join(thread, NULL) == 0);
    rank_check_int(ringred_comm_destroy(comm), s->status);
}

static void test_another_thread_aborts(void **state)
{
#define ABORTS(n, transport)                                                                               \
    {                                                                                                      \
        .setup = { n, { "team=fakenccl", "numerics=fast", transport } }, .set = { "FAKE_NCCL_STALL=1:1" }, \
        .status = RINGRED_EABORTED, .words = "rank 0 aborted", .named = 0                                  \
    }
    static const struct scene scenes[] = { ABORTS(2, "transport=shm"), ABORTS(3, "transport=tcp"),
                                           ABORTS(2, "progress=thread") };

    (void)state;
    PLAY(scenes, aborts);
}

/* ---- the end, in the middle ---- */

static void ended(void *context, int32_t status)
{
    rank_check_int(count_of("fakenccl", "fake_nccl_aborts"), 1); /* what the caller frees now is nobody's */
    *(int32_t *)context = status;
}

static void leaves(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me);
    float *x = calloc(COUNT, sizeof *x);
    int32_t status = 0;
    ringred_call call;

    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = x;
    call.count = COUNT;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.done = ended;
    call.done_context = &status;
    if (me->rank == CULPRIT) {
        coll_must(comm, ringred_start(comm, &call, NULL), "start");
        while (calls_of("fakenccl") == 0)
            rank_check(ringred_poll(comm) >= 0);
        rank_check_int(ringred_comm_destroy(comm), 0);
        rank_check_int(status, RINGRED_EABORTED);
    } else {
        check_error(comm, s,
                    ringred_run(comm, &(ringred_call){ .struct_size = sizeof call,
                                                       .collective = RINGRED_ALLREDUCE,
                                                       .send = x,
                                                       .recv = x,
                                                       .count = COUNT,
                                                       .type = RINGRED_FLOAT32,
                                                       .op = RINGRED_SUM,
                                                       .scale = 1,
                                                       .timeout_ns = RINGRED_BY_SETTING }));
        rank_check_int(ringred_comm_destroy(comm), s->status);
    }
    free(x); /* nobody is at work on it any more */
}

static void test_destroy_ends_what_is_in_flight(void **state)
{
#define LEAVES(n, transport, ...)                                                   \
    {                                                                               \
        .setup = { n, { "team=fakenccl", "numerics=fast", transport } },            \
        .set = { "FAKE_NCCL_STALL=1:1", __VA_ARGS__ }, .status = RINGRED_EPEER,     \
        .words = "rank 1 left the communicator after operation 0", .named = CULPRIT \
    }
    static const struct scene scenes[] = {
        LEAVES(2, "transport=shm", NULL),
        LEAVES(3, "transport=tcp", NULL),
        LEAVES(2, "transport=shm", "FAKE_NCCL_DEAF=1"),
    };

    (void)state;
    PLAY(scenes, leaves);
}

/* A communicator of several is destroyed while its team is at work; its thread of progress, if any, is in it. */
static void leaves_part(struct rank *me)
{
    const struct scene *s = me->argument;
    ringred_comm *comm = open_scene(me), *part;
    float *x = calloc(COUNT, sizeof *x);
    ringred_request *request;

    coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split");
    coll_must(part, ringred_allreduce_start(part, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    while (calls_of("fakenccl") == 0)
        rank_check(ringred_poll(comm) >= 0 || me->rank != CULPRIT);
    if (me->rank == CULPRIT)
        rank_check_int(ringred_comm_destroy(part), s->status);
    else
        check_error(part, s, ringred_wait(request, RINGRED_FOREVER));
    free(x); /* nobody is at work on it any more */
    if (me->rank != CULPRIT)
        rank_check_int(ringred_comm_destroy(part), s->status);
    rank_check_int(ringred_comm_destroy(comm), s->status);
}

static void test_destroying_a_part_ends_what_is_in_flight(void **state)
{
#define LEAVES_PART(n, transport)                                                                  \
    {                                                                                              \
        .setup = { n, { "team=fakenccl", "numerics=fast", "linger=0.2", transport } },             \
        .set = { "FAKE_NCCL_STALL=1:1" }, .status = RINGRED_EABORTED,                              \
        .words = "rank 1 destroyed a communicator in the middle of an operation", .named = CULPRIT \
    }
    static const struct scene scenes[] = {
        LEAVES_PART(2, "transport=shm"),
        LEAVES_PART(3, "transport=tcp"),
        LEAVES_PART(3, "progress=thread"),
    };

    (void)state;
    PLAY(scenes, leaves_part);
}

/* ---- several communicators ---- */

static void parts(struct rank *me)
{
    ringred_comm *comm = open_scene(me), *half, *alone, *pair;
    const int32_t two[] = { 1, 0 };
    int32_t x = 1, y = 1, z = 1;
    ringred_request *a, *b;

    coll_must(comm, ringred_comm_split(comm, me->rank % 2, -me->rank, &half), "split");
    coll_must(comm, ringred_comm_split(comm, me->rank, 0, &alone), "split into single ranks");
    coll_must(comm, ringred_comm_group(comm, two, me->rank < 2 ? 2 : 0, &pair), "group");
    rank_check((pair != NULL) == (me->rank < 2));
    const int before = all_calls();
    for (int i = 0; i < 20; i++) { /* ranks start them in different orders */
        x = y = 1;
        if ((me->rank + i) % 2)
            coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_INT32, RINGRED_SUM, &a), "allreduce");
        coll_must(half, ringred_allreduce_start(half, &y, &y, 1, RINGRED_INT32, RINGRED_SUM, &b),
                  "allreduce of a half");
        if ((me->rank + i) % 2 == 0)
            coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_INT32, RINGRED_SUM, &a), "allreduce");
        coll_must(comm, ringred_wait(a, RINGRED_FOREVER), "wait");
        coll_must(half, ringred_wait(b, RINGRED_FOREVER), "wait for a half");
        rank_check_int(x, me->size);
        rank_check_int(y, (me->size + 1 - me->rank % 2) / 2);
    }
    rank_check_int(all_calls() - before, 2 * 20 - (ringred_comm_size(half) == 1 ? 20 : 0));
    coll_must(alone, ringred_allreduce(alone, &z, &z, 1, RINGRED_INT32, RINGRED_SUM), "allreduce of one");
    if (pair) {
        int32_t got = 0;
        coll_must(pair, ringred_broadcast(pair, &me->rank, &got, 1, RINGRED_INT32, 0), "broadcast");
        rank_check_int(got, 1);
        coll_close(pair);
    }
    coll_close(alone);
    if (me->rank % 2) {
        coll_close(comm); /* the half goes on */
        coll_must(half, ringred_allreduce(half, &y, &y, 1, RINGRED_INT32, RINGRED_MAX), "allreduce of a half");
        coll_close(half);
    } else {
        coll_must(half, ringred_allreduce(half, &y, &y, 1, RINGRED_INT32, RINGRED_MAX), "allreduce of a half");
        coll_close(half);
        coll_close(comm);
    }
}

static void test_each_communicator_has_a_team_of_its_own(void **state)
{
    static const struct scene scenes[] = {
        { .setup = { 4, { "team=fakenccl" } } },
        { .setup = { 3, { "team=fakenccl", "transport=tcp" } } },
        { .setup = { 4, { "team=fakenccl", "ranks_per_host=2", "progress=thread" } } },
    };

    (void)state;
    PLAY(scenes, parts);
}

static void two_jobs(struct rank *me)
{
    ringred_comm *a = open_scene(me), *b = open_scene(me);
    int32_t x = 1, y = 2;
    ringred_request *first, *second;

    coll_must(a, ringred_allreduce_start(a, &x, &x, 1, RINGRED_INT32, RINGRED_SUM, &first), "the first job's");
    coll_must(b, ringred_allreduce_start(b, &y, &y, 1, RINGRED_INT32, RINGRED_SUM, &second), "the second job's");
    coll_must(b, ringred_wait(second, RINGRED_FOREVER), "wait");
    coll_must(a, ringred_wait(first, RINGRED_FOREVER), "wait");
    rank_check_int(x, me->size);
    rank_check_int(y, 2 * me->size);
    rank_check_int(all_calls(), 2);
    coll_close(a);
    coll_close(b);
}

static void test_two_jobs_in_a_process(void **state)
{
    static const struct scene scenes[] = { { .setup = { 3, { "team=fakenccl" } } } };

    (void)state;
    PLAY(scenes, two_jobs);
}

/* ---- making one ---- */

static int32_t try(struct rank *me, const char *setting, ringred_error *why)
{
    const char *settings[] = { "init_timeout=20", setting, NULL };
    ringred_unique_id id;
    ringred_config config;
    ringred_comm *comm;

    memset(&id, 0, sizeof id);
    ringred_error_init(why);
    if (me->rank == 0)
        rank_check(ringred_unique_id_create(&id, why) == 0);
    ranks_pass(me, &id, sizeof id);
    ringred_config_init(&config, sizeof config);
    config.rank = me->rank;
    config.size = me->size;
    config.id = &id;
    config.settings = settings;
    const int32_t rc = ringred_comm_create(&config, &comm, why);
    if (rc == 0)
        rank_check_int(ringred_comm_destroy(comm), 0);
    return rc;
}

static void refused(struct rank *me)
{
    ringred_error why;

    rank_check_int(try(me, me->rank ? "team=" : "team=fakenccl", &why), RINGRED_ECONFIG);
    rank_check_msg(strstr(why.text, "the setting team must be the same on all ranks") != NULL, "%s", why.text);
    rank_check_int(try(me, "team=nosuch", &why), RINGRED_ESETTING);
    rank_check_msg(strstr(why.text, "there is no team \"nosuch\"") != NULL, "%s", why.text);
    rank_check_int(try(me, "team=lanes", &why), RINGRED_EVERSION);
    rank_check_msg(strstr(why.text, "it is no team") != NULL, "%s", why.text);
    rank_check_int(try(me, "team=fakelacks", &why), RINGRED_EVERSION);
    rank_check_msg(strstr(why.text, "its table has no function \"start\"") != NULL, "%s", why.text);
    rank_check_int(try(me, "transport=fakenccl", &why), RINGRED_EVERSION);
    rank_check_msg(strstr(why.text, "it is no transport") != NULL, "%s", why.text);
    rank_check(setenv("FAKE_NCCL_UNUSABLE", "1", 1) == 0);
    rank_check_int(try(me, "team=fakenccl", &why), RINGRED_EUNSUPPORTED);
    rank_check_msg(strstr(why.text, "rank 1 cannot use team fakenccl: there is no device here") != NULL, "%s",
                   why.text);
    if (me->rank == 0)
        rank_check(setenv("RINGRED_PLUGIN_PATH", "/nowhere", 1) == 0); /* one rank alone does not have it */
    rank_check(unsetenv("FAKE_NCCL_UNUSABLE") == 0);
    rank_check_int(try(me, "team=faketree", &why), RINGRED_ESETTING);
    rank_check_msg(strstr(why.text, "rank 0 cannot use team faketree: there is no team") != NULL, "%s", why.text);
}

static void refused_part(struct rank *me)
{
    ringred_comm *comm = open_scene(me), *part = NULL;
    ringred_error why;
    int32_t x = 1;

    rank_check(setenv("FAKE_NCCL_UNUSABLE", "1", 1) == 0);
    const int32_t rc = ringred_comm_split(comm, me->rank == 2, 0, &part); /* 0, 1, 3 together; 2 alone */
    rank_check_int(rc, me->rank == 2 ? 0 : RINGRED_EUNSUPPORTED);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(
        me->rank == 2 ||
            strstr(why.text, "rank 1 could not take part in a new communicator: team fakenccl: there is no device") !=
                NULL,
        "%s", why.text);
    rank_check_int(ringred_comm_destroy(part), 0);
    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_INT32, RINGRED_SUM), "allreduce afterwards");
    rank_check_int(x, me->size);
    coll_close(comm);
}

static void test_all_ranks_have_a_team_or_none(void **state)
{
    static const struct scene scenes[] = { { .setup = { 3, { "team=fakenccl" } } } },
                              four[] = { { .setup = { 4, { "team=fakenccl" } } } };

    (void)state;
    PLAY(scenes, refused);
    PLAY(four, refused_part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_those_that_are_promised),
        cmocka_unit_test(test_a_team_gets_only_what_it_may),
        cmocka_unit_test(test_the_function_choose_has_the_last_word),
        cmocka_unit_test(test_explaining_names_the_team),
        cmocka_unit_test(test_disagreement_is_found_before_the_team_is_asked),
        cmocka_unit_test(test_a_rank_that_dies_is_named),
        cmocka_unit_test(test_what_a_team_fails_with_is_told_to_all),
        cmocka_unit_test(test_a_time_limit_ends_what_waits_in_a_team),
        cmocka_unit_test(test_another_thread_aborts),
        cmocka_unit_test(test_destroy_ends_what_is_in_flight),
        cmocka_unit_test(test_destroying_a_part_ends_what_is_in_flight),
        cmocka_unit_test(test_each_communicator_has_a_team_of_its_own),
        cmocka_unit_test(test_two_jobs_in_a_process),
        cmocka_unit_test(test_all_ranks_have_a_team_or_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
