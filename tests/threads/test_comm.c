/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators and threads: ranks that are threads of one process, and several threads that use one
 * communicator. Run under the thread sanitizer, too, which sees what processes hide from it. */
#include "coll.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST ((size_t)1 << 17)

static const struct coll_setup setups[] = {
    { 2, { "transport=shm" } },     { 3, { "transport=shm", "algorithm=last", "stage=65536" } },
    { 4, { "transport=shm", "stage=65536" } }, { 2, { "transport=tcp" } },
    { 3, { "transport=tcp" } },     { 4, { "ranks_per_host=2" } },
};
enum { SETUPS = sizeof setups / sizeof setups[0] };

static void each_setup(void (*run)(struct rank *me))
{
    for (int i = 0; i < SETUPS; i++) {
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_threads(setups[i].ranks, run, (void *)(uintptr_t)&setups[i]);
    }
}

static pthread_t thread(void *(*run)(void *), void *argument)
{
    pthread_t t;

    rank_check(pthread_create(&t, NULL, run, argument) == 0);
    return t;
}

/* ---- dumps beside everything ---- */

struct dumper {
    ringred_comm *comm;
    atomic_bool over;
    int dumps;
};

static void *dump(void *argument)
{
    struct dumper *d = argument;
    char *text = malloc(1 << 18);

    rank_check(text != NULL);
    do {
        rank_check(ringred_comm_dump(d->comm, text, 1 << 18) > 0);
        rank_check_msg(ringred_dump_process(getpid(), 0, text, 1 << 18) > 0, "%s", text);
        d->dumps++;
    } while (!atomic_load(&d->over));
    free(text);
    return NULL;
}

static void dumped(struct rank *me)
{
    struct dumper d = { .comm = coll_open(me, me->argument) };

    ranks_meet(me); /* the ranks are one process, and the first record there may be another's, which is not made yet */
    pthread_t dumper = thread(dump, &d);

    for (int i = 0; i < 300; i++) {
        float x = 1;
        ringred_comm *part;
        coll_must(d.comm, ringred_allreduce(d.comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
        if (i % 50 == 0) {
            coll_must(d.comm, ringred_comm_split(d.comm, 0, 0, &part), "split");
            coll_must(part, ringred_barrier(part), "barrier");
            coll_close(part);
        }
    }
    ranks_meet(me);
    if (me->rank == 0)
        (void)ringred_comm_abort(d.comm);
    rank_check(ringred_barrier(d.comm) < 0);
    atomic_store(&d.over, true);
    rank_check(pthread_join(dumper, NULL) == 0 && d.dumps > 0);
    ranks_meet(me);
    (void)ringred_comm_destroy(d.comm); /* its status is the failure */
}

static void test_dumps_are_taken_beside_everything(void **state)
{
    (void)state;
    each_setup(dumped);
}

/* ---- ranks as threads ---- */

static void loops(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct numbers_random all = { 7 }, mine = { 100 + (uint64_t)me->rank };
    struct coll_memory memory;

    coll_memory_open(&memory, comm, MOST * 8);
    for (int i = 0; i < 40; i++) {
        static const size_t counts[] = { 0, 1, 12, 13, 500, 3000, 10007, 50000 };
        struct coll_call c = { .exact = true, .root = (int)numbers_below(&all, (uint64_t)me->size) };
        c.count = counts[numbers_below(&all, 8)];
        c.job = (struct numbers_job){ .type = i & 1 ? RINGRED_FLOAT64 : RINGRED_FLOAT32,
                                      .op = i & 2 ? RINGRED_SUM : RINGRED_AVG, .ranks = me->size,
                                      .kind = NUMBERS_WILD, .seed = numbers_next(&all) };
        coll_prepare(&c, &memory, me, &mine);
        if (i % 5 == 4) {
            coll_must(comm, ringred_broadcast(comm, c.send, c.recv, c.count, c.job.type, c.root), c.text);
            coll_check_broadcast(&c, me);
        } else {
            coll_must(comm, ringred_allreduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op), c.text);
            coll_check_allreduce(&c, me);
        }
        if (i % 7 == 0)
            coll_must(comm, ringred_barrier(comm), "barrier");
    }
    coll_memory_close(&memory);
    coll_close(comm);
}

static void test_ranks_may_be_threads(void **state)
{
    (void)state;
    each_setup(loops);
}

/* ---- requests of one thread, waited for by others ---- */

#define FLIGHT 24
#define ROUNDS 6

struct flight {
    ringred_comm *comm;
    int ranks, from, step;
    ringred_request *request[FLIGHT];
    float *x[FLIGHT];
    size_t count[FLIGHT];
};

static void *wait_for_some(void *argument)
{
    struct flight *f = argument;

    for (int i = f->from; i < FLIGHT; i += f->step) {
        int32_t rc = RINGRED_PENDING;
        if (i % 3 == 0)
            while ((rc = ringred_test(f->request[i])) == RINGRED_PENDING)
                sched_yield();
        else if (i % 3 == 1)
            while ((rc = ringred_wait(f->request[i], 100000)) == RINGRED_PENDING)
                ;
        else
            rc = ringred_wait(f->request[i], RINGRED_FOREVER);
        coll_must(f->comm, rc, "wait");
        for (size_t k = 0; k < f->count[i]; k++)
            rank_check(f->x[i][k] == (float)(f->ranks * (i + 1)));
        memset(f->x[i], 0xff, f->count[i] * sizeof(float)); /* it is ours again */
    }
    return NULL;
}

static void share_requests(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct flight f = { .comm = comm, .ranks = me->size };

    for (int i = 0; i < FLIGHT; i++) {
        f.count[i] = (size_t)(i % 4 ? i * i * 20 : 1);
        f.x[i] = malloc(f.count[i] * sizeof(float));
        rank_check(f.x[i] != NULL);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct flight part[3];
        pthread_t helper[3];

        for (int i = 0; i < FLIGHT; i++) {
            for (size_t k = 0; k < f.count[i]; k++)
                f.x[i][k] = (float)(i + 1);
            coll_must(comm, ringred_allreduce_start(comm, f.x[i], f.x[i], f.count[i], RINGRED_FLOAT32,
                                                    RINGRED_SUM, &f.request[i]), "start");
        }
        for (int h = 0; h < 3; h++) {
            part[h] = f;
            part[h].from = h;
            part[h].step = 3;
            helper[h] = thread(wait_for_some, &part[h]);
        }
        for (int h = 0; h < 3; h++)
            pthread_join(helper[h], NULL);
    }
    for (int i = 0; i < FLIGHT; i++)
        free(f.x[i]);
    coll_close(comm);
}

static void test_any_thread_may_wait_for_a_request(void **state)
{
    (void)state;
    each_setup(share_requests);
}

/* ---- starting from several threads at once ---- */

struct starter {
    ringred_comm *comm;
    int ranks, calls;
    atomic_int *busy;
};

static void *start_many(void *argument)
{
    struct starter *s = argument;
    double x[600];
    char text[600];

    for (int i = 0; i < s->calls;) {
        for (int k = 0; k < 600; k++)
            x[k] = k;
        int32_t rc = ringred_allreduce(s->comm, x, x, 600, RINGRED_FLOAT64, RINGRED_SUM);
        if (rc == RINGRED_EBUSY) { /* nothing has changed */
            rank_check(x[7] == 7);
            atomic_fetch_add(s->busy, 1);
            sched_yield();
            continue;
        }
        coll_must(s->comm, rc, "allreduce");
        for (int k = 0; k < 600; k++)
            rank_check(x[k] == k * s->ranks);
        rank_check(ringred_comm_describe(s->comm, i & 1 ? "broadcast" : "allreduce", 4096, text, 600) > 0);
        i++;
    }
    return NULL;
}

/* All calls are alike, so it does not matter which thread's is the first. */
static void start_together(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    atomic_int busy = 0;
    struct starter s = { comm, me->size, 60, &busy };
    pthread_t helper[3];

    for (int h = 0; h < 3; h++)
        helper[h] = thread(start_many, &s);
    for (int h = 0; h < 3; h++)
        pthread_join(helper[h], NULL);
    coll_close(comm);
}

static void test_starts_at_once_are_refused_and_may_be_tried_again(void **state)
{
    (void)state;
    each_setup(start_together);
}

/* ---- two communicators ---- */

struct user {
    ringred_comm *comm;
    int ranks;
};

static void *use(void *argument)
{
    struct user *u = argument;
    float x[1000];

    for (int i = 0; i < 60; i++) {
        size_t n = (size_t)(i % 10) * 111;
        for (size_t k = 0; k < n; k++)
            x[k] = (float)k;
        coll_must(u->comm, ringred_allreduce(u->comm, x, x, n, RINGRED_FLOAT32, RINGRED_AVG), "allreduce");
        for (size_t k = 0; k < n; k++)
            rank_check(x[k] == (float)k);
    }
    return NULL;
}

static void two(struct rank *me)
{
    ringred_comm *a = coll_open(me, me->argument), *b = coll_open(me, me->argument);
    struct user ua = { a, me->size }, ub = { b, me->size };
    ringred_request *ra, *rb;
    float x = 1, y = 2;

    pthread_t helper = thread(use, &ua);
    (void)use(&ub);
    pthread_join(helper, NULL);
    for (int i = 0; i < 20; i++) { /* one thread, another order on each rank */
        bool a_first = (me->rank + i) & 1;
        x = 1;
        y = 2;
        if (a_first)
            coll_must(a, ringred_allreduce_start(a, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM, &ra), "start");
        coll_must(b, ringred_allreduce_start(b, &y, &y, 1, RINGRED_FLOAT32, RINGRED_SUM, &rb), "start");
        if (!a_first)
            coll_must(a, ringred_allreduce_start(a, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM, &ra), "start");
        coll_must(b, ringred_wait(rb, RINGRED_FOREVER), "wait");
        coll_must(a, ringred_wait(ra, RINGRED_FOREVER), "wait");
        rank_check(x == (float)me->size && y == (float)(2 * me->size));
    }
    coll_close(me->rank & 1 ? a : b);
    coll_close(me->rank & 1 ? b : a);
}

static void test_two_communicators_do_not_meet(void **state)
{
    (void)state;
    each_setup(two);
}

/* ---- breaking ---- */

struct victim {
    ringred_comm *comm;
    ringred_request *request;
    float *x;
    int32_t status;
};

/* Frees the buffer at once: nobody may be at work on it any more. */
static void *wait_in_vain(void *argument)
{
    struct victim *v = argument;

    v->status = ringred_wait(v->request, RINGRED_FOREVER);
    free(v->x);
    return NULL;
}

/* All ranks but the last have requests in flight; threads wait for them, and rank 0 aborts. */
static void abort_from_aside(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct victim v[4];
    pthread_t helper[4];
    ringred_error error;

    for (int i = 0; i < 4 && me->rank + 1 < me->size; i++) {
        v[i] = (struct victim){ .comm = comm, .x = calloc(MOST, sizeof(float)) };
        rank_check(v[i].x != NULL);
        coll_must(comm, ringred_allreduce_start(comm, v[i].x, v[i].x, MOST, RINGRED_FLOAT32, RINGRED_SUM,
                                                &v[i].request), "start");
        helper[i] = thread(wait_in_vain, &v[i]);
    }
    ranks_meet(me);
    if (me->rank == 0)
        rank_check_int(ringred_comm_abort(comm), 0);
    for (int i = 0; i < 4 && me->rank + 1 < me->size; i++) {
        pthread_join(helper[i], NULL);
        rank_check_int(v[i].status, RINGRED_EABORTED);
    }
    ranks_meet(me);
    ringred_error_init(&error);
    if (me->rank + 1 < me->size) {
        rank_check_int(ringred_comm_error(comm, &error), 0);
        rank_check_int(error.code, RINGRED_EABORTED);
        rank_check_int(error.rank, 0);
        rank_check_int(ringred_barrier(comm), RINGRED_EABORTED);
    }
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* the last rank may not have looked */
}

static void test_an_abort_ends_all_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        ranks_threads(setups[i % SETUPS].ranks, abort_from_aside, (void *)(uintptr_t)&setups[i % SETUPS]);
}

/* Rank 0 has a thread that waits for ever and a blocking call whose time runs out meanwhile. */
static void time_out_beside_a_wait(struct rank *me)
{
    struct coll_setup setup = *(const struct coll_setup *)me->argument;
    ringred_error error;

    for (int i = 0; i < COLL_SETTINGS; i++)
        if (!setup.setting[i]) {
            setup.setting[i] = "timeout=0.05";
            break;
        }
    ringred_comm *comm = coll_open(me, &setup);
    if (me->rank == 0) {
        struct victim v = { .comm = comm, .x = calloc(1, sizeof(float)) };
        float y = 1;
        rank_check(v.x != NULL);
        coll_must(comm, ringred_allreduce_start(comm, v.x, v.x, 1, RINGRED_FLOAT32, RINGRED_SUM, &v.request),
                  "start");
        pthread_t helper = thread(wait_in_vain, &v);
        rank_check_int(ringred_allreduce(comm, &y, &y, 1, RINGRED_FLOAT32, RINGRED_SUM), RINGRED_ETIMEOUT);
        pthread_join(helper, NULL);
        rank_check_int(v.status, RINGRED_ETIMEOUT);
        ringred_error_init(&error);
        rank_check_int(ringred_comm_error(comm, &error), 0);
        rank_check_int(error.code, RINGRED_ETIMEOUT);
    }
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* the others have not looked */
}

static void test_a_call_that_times_out_needs_not_own_progress(void **state)
{
    (void)state;
    each_setup(time_out_beside_a_wait);
}

/* ---- the log may call back ---- */

static void ask_back(void *context, int32_t level, const char *line)
{
    ringred_comm **comm = context;
    ringred_error error;

    (void)level, (void)line;
    ringred_error_init(&error);
    if (*comm)
        rank_check_int(ringred_comm_error(*comm, &error), 0);
}

static void test_the_log_may_ask_what_is_wrong(void **state)
{
    const char *const settings[] = { "log=trace", NULL };
    ringred_comm *comm = NULL, *seen = NULL;
    ringred_config config;
    ringred_error why;

    (void)state;
    ringred_config_init(&config, sizeof config);
    config.rank = 0;
    config.size = 1;
    config.settings = settings;
    config.log = ask_back;
    config.log_context = &seen;
    assert_int_equal(ringred_comm_create(&config, &comm, &why), 0);
    seen = comm;
    assert_int_equal(ringred_comm_abort(comm), 0);
    seen = NULL; /* it is about to go */
    assert_int_equal(ringred_comm_destroy(comm), RINGRED_EABORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dumps_are_taken_beside_everything),
        cmocka_unit_test(test_ranks_may_be_threads),
        cmocka_unit_test(test_any_thread_may_wait_for_a_request),
        cmocka_unit_test(test_starts_at_once_are_refused_and_may_be_tried_again),
        cmocka_unit_test(test_two_communicators_do_not_meet),
        cmocka_unit_test(test_an_abort_ends_all_waits),
        cmocka_unit_test(test_a_call_that_times_out_needs_not_own_progress),
        cmocka_unit_test(test_the_log_may_ask_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
