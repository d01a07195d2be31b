/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with options: the struct says what the plain calls say, sums are scaled with one rounding, what has ended tells
 * its caller, a program sleeps on one descriptor, and set-up calls end when their caller says so. */
#include "calls.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 30000

static const struct coll_setup setups[] = {
    { 1, { NULL } },
    { 2, { "transport=shm" } },
    { 3, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
    { 3, { "progress=thread" } },
    { 4, { "ranks_per_host=2", "progress=thread" } },
};
#define SETUPS (sizeof setups / sizeof setups[0])

/* ---- the same as the plain calls ---- */

static void each_collective(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    const int32_t n = me->size;
    int32_t send[64], plain[64], other[64];
    size_t counts[8], one[8];
    ringred_call call;

    for (int i = 0; i < 64; i++)
        send[i] = 1000 * me->rank + i;
    for (int r = 0; r < n; r++) {
        counts[r] = (size_t)r + 1;
        one[r] = (size_t)(r + me->rank) % 3;
    }
#define SAME(what, expression, ...)                                     \
    do {                                                                \
        memset(plain, 0, sizeof plain);                                 \
        memset(other, 0, sizeof other);                                 \
        coll_must(comm, expression, #what);                             \
        ringred_call_init(&call, sizeof call, RINGRED_##what);                       \
        call.type = RINGRED_INT32;                                      \
        call.send = send;                                               \
        call.recv = other;                                              \
        __VA_ARGS__;                                                    \
        coll_must(comm, ringred_run(comm, &call), #what " by options"); \
        rank_check_msg(memcmp(plain, other, sizeof plain) == 0, "%s differs", #what); \
    } while (0)
    SAME(ALLREDUCE, ringred_allreduce(comm, send, plain, 5, RINGRED_INT32, RINGRED_MAX), call.count = 5,
         call.op = RINGRED_MAX);
    SAME(REDUCE, ringred_reduce(comm, send, plain, 5, RINGRED_INT32, RINGRED_SUM, n - 1), call.count = 5,
         call.op = RINGRED_SUM, call.root = n - 1);
    SAME(REDUCE_SCATTER, ringred_reduce_scatter(comm, send, plain, 5, RINGRED_INT32, RINGRED_SUM), call.count = 5,
         call.op = RINGRED_SUM);
    SAME(BROADCAST, ringred_broadcast(comm, send, plain, 9, RINGRED_INT32, n / 2), call.count = 9, call.root = n / 2);
    SAME(ALLGATHER, ringred_allgather(comm, send, plain, 3, RINGRED_INT32), call.count = 3);
    SAME(GATHER, ringred_gather(comm, send, plain, 3, RINGRED_INT32, 0), call.count = 3);
    SAME(SCATTER, ringred_scatter(comm, send, plain, 3, RINGRED_INT32, 0), call.count = 3);
    SAME(ALLTOALL, ringred_alltoall(comm, send, plain, 3, RINGRED_INT32), call.count = 3);
    SAME(BARRIER, ringred_barrier(comm), call.type = 0);
    SAME(REDUCE_SCATTERV, ringred_reduce_scatterv(comm, send, plain, counts, RINGRED_INT32, RINGRED_SUM),
         call.send_counts = counts, call.op = RINGRED_SUM);
    SAME(ALLGATHERV, ringred_allgatherv(comm, send, counts[me->rank], plain, counts, NULL, RINGRED_INT32),
         call.count = counts[me->rank], call.recv_counts = counts);
    SAME(GATHERV, ringred_gatherv(comm, send, counts[me->rank], plain, counts, NULL, RINGRED_INT32, 0),
         call.count = counts[me->rank], call.recv_counts = counts);
    SAME(SCATTERV, ringred_scatterv(comm, send, counts, NULL, plain, counts[me->rank], RINGRED_INT32, 0),
         call.count = counts[me->rank], call.send_counts = counts);
    SAME(ALLTOALLV, ringred_alltoallv(comm, send, one, NULL, plain, one, NULL, RINGRED_INT32),
         call.send_counts = call.recv_counts = one);
    coll_close(comm);
}

static void test_a_struct_says_what_the_plain_calls_say(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, each_collective, 60);
}

/* ---- scaled sums ---- */

static const double factors[] = { 0.5, 3, -1.0 / 3, 1e-3, 1.0 / 65536 };

/* What each element of a scaled sum is, where sums are whole numbers that the accumulator holds. */
static double scaled(int type, double sum, double scale)
{
    return type == RINGRED_FLOAT64 ? sum * scale : (double)((float)sum * (float)scale);
}

static double value_at(const void *at, int type, size_t i)
{
    uint16_t half;
    float f;
    double d;

    if (type == RINGRED_FLOAT64)
        return memcpy(&d, (const char *)at + 8 * i, 8), d;
    if (type == RINGRED_FLOAT32)
        return memcpy(&f, (const char *)at + 4 * i, 4), (double)f;
    memcpy(&half, (const char *)at + 2 * i, 2);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&f, &bits, 4);
    return f;
}

static void set_at(void *at, int type, size_t i, double v)
{
    const float f = (float)v;
    uint32_t bits;

    if (type == RINGRED_FLOAT64) {
        memcpy((char *)at + 8 * i, &v, 8);
    } else if (type == RINGRED_FLOAT32) {
        memcpy((char *)at + 4 * i, &f, 4);
    } else { /* bfloat16, to the nearest */
        memcpy(&bits, &f, 4);
        const uint16_t half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy((char *)at + 2 * i, &half, 2);
    }
}

static void scale_one(ringred_comm *comm, struct rank *me, int32_t what, int32_t type, int32_t op, size_t count,
                      double factor)
{
    static double send[4 * MOST], recv[4 * MOST];
    const size_t parts = what == RINGRED_REDUCE_SCATTER ? (size_t)me->size : 1, first = parts > 1 ? (size_t)me->rank * count : 0;
    double want[1];
    ringred_call call;

    for (size_t i = 0; i < parts * count; i++)
        set_at(send, type, i, (double)(i % 13 + (size_t)me->rank));
    ringred_call_init(&call, sizeof call, what);
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.type = type;
    call.op = op;
    call.scale = factor;
    call.root = me->size - 1;
    coll_must(comm, ringred_run(comm, &call), "a scaled sum");
    for (size_t i = 0; i < count && !(what == RINGRED_REDUCE && me->rank != me->size - 1); i++) {
        double sum = (double)me->size * (double)((first + i) % 13) + (double)(me->size * (me->size - 1) / 2);
        if (op == RINGRED_AVG) /* rounded before it is scaled, in the accumulator */
            sum = type == RINGRED_FLOAT64 ? sum / me->size : (double)((float)sum / (float)me->size);
        set_at(want, type, 0, scaled(type, sum, factor));
        rank_check_msg(value_at(recv, type, i) == value_at(want, type, 0), "collective %d type %d op %d by %g: %g, not %g",
                       what, type, op, factor, value_at(recv, type, i), value_at(want, type, 0));
    }
}

static void scale_all(struct rank *me)
{
    static const int32_t types[] = { RINGRED_FLOAT32, RINGRED_FLOAT64, RINGRED_BFLOAT16 };
    static const int32_t whats[] = { RINGRED_ALLREDUCE, RINGRED_REDUCE, RINGRED_REDUCE_SCATTER };
    static const size_t counts[] = { 1, 7, 1000, MOST };
    ringred_comm *comm = coll_open(me, me->argument);

    for (int t = 0; t < 3; t++)
        for (int w = 0; w < 3; w++)
            for (int c = 0; c < 4; c++)
                for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
                    scale_one(comm, me, whats[w], types[t], RINGRED_SUM, counts[c], factors[f]);
                    if (me->size != 3 || types[t] != RINGRED_BFLOAT16) /* averages by hosts round twice */
                        scale_one(comm, me, whats[w], types[t], RINGRED_AVG, counts[c], factors[f]);
                }
    coll_close(comm);
}

static void test_sums_are_scaled_with_one_rounding(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, scale_all, 120);
}

static void scale_by_ranks(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float x[8] = { 1 };
    ringred_call call;
    ringred_error why;

    ringred_call_init(&call, sizeof call, me->argument == &setups[1] ? RINGRED_REDUCE : RINGRED_ALLREDUCE);
    call.send = call.recv = x;
    call.count = 8;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.scale = me->rank ? 0.5 : 0.25;
    int32_t rc = ringred_run(comm, &call);
    if (rc == 0) /* it may have left before the others said what they want */
        rc = ringred_barrier(comm);
    rank_check_int(rc, RINGRED_EMISMATCH);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(strstr(why.text, "scaled"), "%s", why.text);
    (void)ringred_comm_destroy(comm); /* it tells of the same */
}

static void test_ranks_that_scale_differently_are_told(void **state)
{
    (void)state;
    coll_each(setups + 1, 3, scale_by_ranks, 30);
}

/* ---- callbacks ---- */

struct told {
    _Atomic int times, status;
    ringred_comm *comm;
    struct told *next; /* started by the word of this one */
    float x[4];
};

static void tell(void *context, int32_t status)
{
    struct told *t = context;

    if (t->next && status == 0) {
        ringred_call call;
        ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
        call.send = call.recv = t->next->x;
        call.count = 4;
        call.type = RINGRED_FLOAT32;
        call.op = RINGRED_SUM;
        call.done = tell;
        call.done_context = t->next;
        t->next->comm = t->comm;
        t->next->status = ringred_start(t->comm, &call, NULL);
    }
    t->status = status;
    t->times++;
}

static void start_told(struct told *t, ringred_comm *comm)
{
    ringred_call call;

    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = t->x;
    call.count = 4;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.done = tell;
    call.done_context = t;
    t->comm = comm;
    coll_must(comm, ringred_start(comm, &call, NULL), "start");
}

static void callbacks(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    static struct told told[200], chain[3];

    coll_must(comm, ringred_comm_split(comm, 0, me->rank, &part), "split");
    for (int i = 0; i < 200; i++) {
        told[i].x[0] = (float)(me->rank + i);
        start_told(&told[i], i % 3 ? comm : part);
        while (i % 16 == 15 && !(told[i - 15].times && told[i - 14].times && told[i - 13].times)) /* of both */
            coll_must(comm, ringred_poll(comm) < 0, "poll");
    }
    for (int i = 0; i < 3; i++) {
        chain[i].x[0] = 1;
        chain[i].next = i < 2 ? &chain[i + 1] : NULL;
    }
    while (told[199].times == 0 || told[198].times == 0) /* too many may be in flight, else */
        coll_must(comm, ringred_poll(comm) < 0, "poll");
    start_told(&chain[0], comm);
    while (chain[2].times == 0)
        coll_must(comm, ringred_poll(comm) < 0, "poll");
    for (int i = 0; i < 200; i++) {
        rank_check_int(told[i].times, 1);
        rank_check_int(told[i].status, 0);
        rank_check(told[i].x[0] == (float)(me->size * i + me->size * (me->size - 1) / 2));
    }
    rank_check(chain[2].x[0] == (float)me->size);
    coll_must(part, ringred_comm_destroy(part), "destroy");
    coll_close(comm);
}

static void test_what_has_ended_tells_its_caller_once(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, callbacks, 60);
}

static void callback_of_a_failure(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static struct told told[3];

    if (me->rank == 0) { /* the last of them nobody joins */
        for (int i = 0; i < 3; i++)
            start_told(&told[i], comm);
        for (int rc = RINGRED_PENDING; rc >= 0;)
            rc = ringred_poll(comm);
        for (int i = 0; i < 3; i++) {
            while (told[i].times == 0) /* the thread may be about to tell */
                sched_yield();
            rank_check_int(told[i].times, 1);
            rank_check(i < 2 ? told[i].status == 0 || told[i].status == RINGRED_EPEER : told[i].status == RINGRED_EPEER);
        }
        rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
        return;
    }
    float x[4] = { 0 };
    for (int i = 0; i < 2; i++)
        coll_must(comm, ringred_allreduce(comm, x, x, 4, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    (void)ringred_comm_destroy(comm); /* rank 0 may have told already */
}

static void test_a_failure_is_told_to_callbacks_too(void **state)
{
    static const struct coll_setup pairs[] = {
        { 2, { "transport=shm" } }, { 2, { "transport=tcp" } }, { 2, { "progress=thread" } },
        { 2, { "transport=tcp", "progress=thread" } },
    };

    (void)state;
    coll_each(pairs, sizeof pairs / sizeof pairs[0], callback_of_a_failure, 30);
}

/* The callback starts another operation, and while it does so another thread aborts. */
static ringred_comm *to_abort;

static void *abort_it(void *nothing)
{
    rank_check_int(ringred_comm_abort(to_abort), 0);
    return nothing;
}

static void abort_at_the_second(void *context, ringred_choice *choice)
{
    int *starts = context;
    pthread_t other;

    (void)choice;
    if (!to_abort || ++*starts != 2)
        return;
    rank_check(pthread_create(&other, NULL, abort_it, NULL) == 0);
    pthread_join(other, NULL);
}

static void callback_amid_an_abort(struct rank *me)
{
    int starts = 0;
    ringred_comm *comm = coll_open_choosing(me, me->argument, me->rank ? NULL : abort_at_the_second, &starts);
    static struct told told[2];
    float x[4] = { 0 };

    if (me->rank) {
        (void)ringred_allreduce(comm, x, x, 4, RINGRED_FLOAT32, RINGRED_SUM);
        (void)ringred_comm_destroy(comm);
        return;
    }
    to_abort = comm;
    told[0].next = &told[1];
    start_told(&told[0], comm);
    while (told[1].times == 0)
        (void)ringred_poll(comm);
    rank_check_int(told[0].status, 0);
    rank_check_int(told[1].times, 1);
    rank_check_int(told[1].status, RINGRED_EABORTED);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EABORTED);
}

static void test_a_callback_may_start_while_another_thread_aborts(void **state)
{
    (void)state;
    coll_each(setups + 1, 2, callback_amid_an_abort, 30);
}

/* The first callback starts an operation on each communicator, which end together; the word of the first of them waits
 * until another thread is destroying the communicator of the second. */
static struct {
    ringred_comm *comm, *part;
    struct told last;
    _Atomic int begun, asked;
} overlap;

static void *destroy_part(void *nothing)
{
    while (!overlap.begun)
        sched_yield();
    rank_check_int(ringred_comm_destroy(overlap.part), 0);
    rank_check_int(overlap.last.times, 1);
    return nothing;
}

static int32_t count_asked(void *nothing)
{
    (void)nothing;
    overlap.asked++;
    return 0;
}

static void wait_for_the_other(void *nothing, int32_t status)
{
    (void)nothing;
    rank_check_int(status, 0);
    overlap.asked = 0;
    overlap.begun = 1;
    for (int i = 0; i < 20000 && overlap.asked < 2; i++)
        sched_yield();
}

static void start_both(void *context, int32_t status)
{
    static float x[4];
    ringred_call call;

    (void)context;
    rank_check_int(status, 0);
    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = x;
    call.count = 4;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.done = wait_for_the_other;
    coll_must(overlap.comm, ringred_start(overlap.comm, &call, NULL), "start");
    start_told(&overlap.last, overlap.part);
}

static void destroy_amid_callbacks(struct rank *me)
{
    ringred_call call;
    ringred_config config;
    ringred_comm *part;
    ringred_error why;
    ringred_request *request[2];
    float x[2] = { 1, 2 };
    pthread_t other;

    (void)me;
    ringred_error_init(&why);
    ringred_config_init(&config, sizeof config);
    config.interrupt = count_asked;
    rank_check_msg(ringred_comm_create(&config, &overlap.comm, &why) == 0, "%s", why.text);
    coll_must(overlap.comm, ringred_comm_split(overlap.comm, 0, 0, &overlap.part), "split");
    rank_check(pthread_create(&other, NULL, destroy_part, NULL) == 0);
    ringred_call_init(&call, sizeof call, RINGRED_BARRIER);
    call.done = start_both;
    coll_must(overlap.comm, ringred_start(overlap.comm, &call, NULL), "start");
    while (overlap.last.times == 0)
        coll_must(overlap.comm, ringred_poll(overlap.comm) < 0, "poll");
    pthread_join(other, NULL);
    coll_must(overlap.comm, ringred_comm_split(overlap.comm, 0, 0, &part), "split");
    for (int i = 0; i < 2; i++)
        coll_must(part, ringred_allreduce_start(part, &x[i], &x[i], 1, RINGRED_FLOAT32, RINGRED_SUM, &request[i]), "start");
    rank_check(request[0] != request[1]);
    for (int i = 0; i < 2; i++)
        coll_must(part, ringred_wait(request[i], RINGRED_FOREVER), "wait");
    rank_check_int(ringred_comm_destroy(part), 0);
    coll_close(overlap.comm);
}

static void test_destroy_waits_for_callbacks_in_other_threads(void **state)
{
    (void)state;
    ranks_fork(1, destroy_amid_callbacks, NULL);
}

static void callback_at_the_end(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static struct told told;

    if (me->rank == 0)
        start_told(&told, comm);
    (void)ringred_comm_destroy(comm); /* rank 0 leaves in the middle */
    rank_check_int(told.times, me->rank == 0);
    rank_check(me->rank != 0 || told.status < 0);
}

/* The word of the end starts another one: it is refused, or told of its end, too. */
static struct told last_word;

static void start_once_more(void *context, int32_t status)
{
    ringred_call call;
    int32_t *started = context;

    rank_check(status < 0);
    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = last_word.x;
    call.count = 4;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.done = tell;
    call.done_context = &last_word;
    *started = ringred_start(last_word.comm, &call, NULL);
}

static void callback_that_starts_at_the_end(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static float x[4];
    int32_t started = 1;
    ringred_call call;

    last_word.comm = comm;
    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = x;
    call.count = 4;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.done = start_once_more;
    call.done_context = &started;
    if (me->rank == 0)
        coll_must(comm, ringred_start(comm, &call, NULL), "start");
    (void)ringred_comm_destroy(comm);
    if (me->rank == 0)
        rank_check_msg(started < 0 ? last_word.times == 0 : last_word.times == 1, "started: %d, and told %d times",
                       started, last_word.times);
}

static void test_what_starts_during_destroy_is_not_forgotten(void **state)
{
    (void)state;
    coll_each(setups + 1, SETUPS - 1, callback_that_starts_at_the_end, 30);
}

static void test_destroy_tells_what_will_not_end(void **state)
{
    (void)state;
    coll_each(setups + 1, SETUPS - 1, callback_at_the_end, 30);
}

/* ---- event loops ---- */

static void sleep_on(int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };

    rank_check(poll(&p, 1, 20000) == 1); /* it rings: by itself, or for the look at the peers */
}

static void event_loop(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static float x[4][MOST];
    const int fd = ringred_comm_descriptor(comm);
    ringred_request *request[4];
    struct numbers_random mine = { 77 + (uint64_t)me->rank };

    rank_check(fd >= 0);
    rank_check_int(ringred_comm_descriptor(comm), fd);
    for (int round = 0; round < 40; round++) {
        const size_t count = round % 4 == 3 ? MOST : 5;
        for (int i = 0; i < 4; i++) {
            x[i][0] = x[i][count - 1] = (float)(me->rank + round);
            if (i == 2 && numbers_below(&mine, 2))
                ranks_meet(me); /* some are late */
            else if (i == 2)
                ranks_meet(me);
            coll_must(comm, ringred_allreduce_start(comm, x[i], x[i], count, RINGRED_FLOAT32, RINGRED_SUM, &request[i]),
                      "start");
        }
        for (int left = 4; left;) {
            coll_must(comm, ringred_poll(comm) < 0, "poll");
            for (int i = 0; i < 4; i++) {
                const int32_t rc = request[i] ? ringred_test(request[i]) : RINGRED_PENDING;
                coll_must(comm, rc < 0, "test");
                if (rc != 0)
                    continue;
                request[i] = NULL;
                left--;
                rank_check(x[i][count - 1] == (float)(me->size * round + me->size * (me->size - 1) / 2));
            }
            if (left)
                sleep_on(fd);
        }
        if (round % 5 == 0) /* and one that waits in earnest in between */
            coll_must(comm, ringred_barrier(comm), "barrier");
    }
    int32_t rc;
    while ((rc = ringred_poll(comm)) == RINGRED_PENDING) /* the thread has not gone to sleep yet */
        sleep_on(fd);
    rank_check_int(rc, 0);
    coll_close(comm);
}

static void test_a_program_sleeps_on_one_descriptor(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, event_loop, 120);
}

/* Each operation is started by the word of the one before it, and nothing else wakes the program. */
static void chained_loop(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    const int fd = ringred_comm_descriptor(comm);
    static struct told chain[40];

    for (int i = 0; i < 40; i++) {
        chain[i].x[0] = 1;
        chain[i].next = i < 39 ? &chain[i + 1] : NULL;
    }
    start_told(&chain[0], comm);
    for (;;) {
        coll_must(comm, ringred_poll(comm) < 0, "poll");
        if (chain[39].times)
            break;
        sleep_on(fd);
    }
    rank_check(chain[39].x[0] == (float)me->size);
    coll_close(comm);
}

static void test_what_a_callback_starts_wakes_the_program(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, chained_loop, 60);
}

/* Another thread owns progress, and has looked in vain, when the message comes and the program polls: then that thread
 * goes away. It is held there by the line that it logs of an operation that does not move. */
static struct {
    struct rank *me;
    ringred_request *request;
    _Atomic int said, polled;
} beside;

static void hold(void *context, int32_t level, const char *line)
{
    (void)context;
    if (level != RINGRED_LOG_WARN || !strstr(line, "has not moved") || beside.said)
        return;
    ranks_meet(beside.me);
    (void)poll(NULL, 0, 250); /* the message has come, and the timer has run out: else there is nothing to lose */
    beside.said = 1;
    while (!beside.polled)
        sched_yield();
}

static void *look_once(void *nothing)
{
    while (!beside.said)
        rank_check_int(ringred_test(beside.request), RINGRED_PENDING);
    return nothing;
}

static void sleep_beside_a_thread(struct rank *me)
{
    ringred_config wishes;
    pthread_t other;
    float x = (float)me->rank;
    int32_t rc;

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = me->rank ? NULL : hold;
    ringred_comm *comm = coll_open_with(me, me->argument, &wishes);
    const int fd = ringred_comm_descriptor(comm);
    if (me->rank) {
        ranks_meet(me);
        coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_MAX), "allreduce");
        ranks_meet(me); /* and is silent until then */
        coll_close(comm);
        return;
    }
    beside.me = me;
    coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_MAX, &beside.request), "start");
    rank_check_int(ringred_poll(comm), RINGRED_PENDING);
    rank_check(pthread_create(&other, NULL, look_once, NULL) == 0);
    while (!beside.said)
        sched_yield();
    rank_check_int(ringred_poll(comm), RINGRED_PENDING);
    rank_check_int(ringred_test(beside.request), RINGRED_PENDING);
    beside.polled = 1;
    pthread_join(other, NULL);
    do {
        sleep_on(fd);
        coll_must(comm, ringred_poll(comm) < 0, "poll");
    } while ((rc = ringred_test(beside.request)) == RINGRED_PENDING);
    coll_must(comm, rc, "test");
    rank_check_int((int)x, 1);
    ranks_meet(me);
    coll_close(comm);
}

static void test_a_program_sleeps_beside_a_thread_that_works(void **state)
{
    static const struct coll_setup pairs[] = {
        { 2, { "transport=tcp", "stall_warning=0.001" } }, { 2, { "transport=shm", "stall_warning=0.001" } },
    };

    (void)state;
    coll_each(pairs, 2, sleep_beside_a_thread, 60);
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 0 waits for a peer that is late, asleep on the descriptor. */
static void sleeps(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    const int fd = ringred_comm_descriptor(comm);
    ringred_request *request;
    float x = 1;

    if (me->rank == 0) {
        coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
        const double before = cpu_seconds();
        int turns = 0, rc;
        coll_must(comm, ringred_poll(comm) < 0, "poll");
        while ((rc = ringred_test(request)) == RINGRED_PENDING) {
            if (turns++ == 3)
                ranks_meet(me); /* by now it sleeps: let them come */
            sleep_on(fd);
            coll_must(comm, ringred_poll(comm) < 0, "poll");
        }
        coll_must(comm, rc, "test");
        rank_check_msg(turns < 100 && cpu_seconds() - before < 0.5, "%d turns, %g s of CPU", turns, cpu_seconds() - before);
    } else {
        ranks_meet(me);
        coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    }
    rank_check(x == (float)me->size);
    coll_close(comm);
}

static void test_the_descriptor_is_quiet_while_nothing_happens(void **state)
{
    (void)state;
    coll_each(setups + 1, 3, sleeps, 30);
}

/* ---- interrupts ---- */

static int32_t say_stop(void *context)
{
    int *asked = context;

    return ++*asked >= 3;
}

static void nobody_comes(struct rank *me)
{
    const char *settings[] = { me->rank ? "x" : "transport=tcp", NULL };
    int asked = 0;
    ringred_config config;
    ringred_comm *comm = NULL;
    ringred_error why;
    ringred_unique_id id;

    ringred_error_init(&why);
    rank_check_int(ringred_unique_id_create(&id, &why), 0);
    ringred_config_init(&config, sizeof config);
    config.rank = 0;
    config.size = 2;
    config.id = &id;
    config.settings = settings;
    config.interrupt = say_stop;
    config.interrupt_context = &asked;
    rank_check_int(ringred_comm_create(&config, &comm, &why), RINGRED_EINTERRUPTED);
    rank_check_msg(comm == NULL && strstr(why.text, "interrupted"), "%s", why.text);
    rank_check_int(asked, 3);
}

static void test_making_a_communicator_can_be_interrupted(void **state)
{
    const struct ranks_plan plan = { .size = 1, .run = nobody_comes, .deadline_s = 20 };

    (void)state;
    ranks_run(&plan);
}

static int32_t stop_once(void *context)
{
    return *(const int *)context;
}

static void split_alone(struct rank *me)
{
    ringred_config wishes;
    ringred_comm *part = NULL;
    ringred_error why;
    int stop = 0;

    ringred_error_init(&why);
    ringred_config_init(&wishes, sizeof wishes);
    wishes.interrupt = stop_once;
    wishes.interrupt_context = &stop;
    ringred_comm *comm = coll_open_with(me, me->argument, &wishes);
    stop = me->rank == 0;
    if (me->rank == 0) {
        rank_check_int(ringred_comm_split(comm, 0, 0, &part), RINGRED_EINTERRUPTED);
        rank_check(part == NULL);
    }
    ranks_meet(me);
    rank_check_int(me->rank ? ringred_barrier(comm) : RINGRED_EINTERRUPTED, RINGRED_EINTERRUPTED);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EINTERRUPTED);
}

static void test_a_split_can_be_interrupted(void **state)
{
    (void)state;
    coll_each(setups + 1, 2, split_alone, 30);
}

/* ---- mistakes ---- */

static void refused(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;
    float x[4] = { 1, 2, 3, 4 };
    struct {
        ringred_call call;
        uint64_t newer;
    } longer = { .newer = 0 };
    ringred_call good;
    int32_t i32[4] = { 0 };

    ringred_call_init(&good, sizeof good, RINGRED_ALLREDUCE);
    good.send = good.recv = x;
    good.count = 4;
    good.type = RINGRED_FLOAT32;
    good.op = RINGRED_SUM;
#define REFUSED(code, ...)                                     \
    do {                                                       \
        ringred_call bad = good;                               \
        __VA_ARGS__;                                           \
        rank_check_int(ringred_run(comm, &bad), code);         \
    } while (0)
    REFUSED(RINGRED_EINVAL, bad.struct_size = 8);
    REFUSED(RINGRED_EINVAL, bad.collective = 0);
    REFUSED(RINGRED_EINVAL, bad.collective = RINGRED_ALLTOALLV + 1);
    REFUSED(RINGRED_EINVAL, bad.scale = 0);
    REFUSED(RINGRED_EINVAL, bad.scale = (double)NAN);
    REFUSED(RINGRED_EINVAL, bad.scale = 2, bad.op = RINGRED_MAX);
    REFUSED(RINGRED_EINVAL, bad.scale = 2, bad.type = RINGRED_INT32, bad.send = bad.recv = i32);
    REFUSED(RINGRED_EINVAL, bad.timeout_ns = -7);
    REFUSED(RINGRED_EINVAL, bad.reserved = 1);
    REFUSED(RINGRED_EINVAL, bad.done = tell);
    REFUSED(RINGRED_EINVAL, bad.recv = NULL);
    REFUSED(RINGRED_EINVAL, bad.collective = RINGRED_ALLGATHERV);
    rank_check_int(ringred_run(comm, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_run(NULL, &good), RINGRED_EINVAL);
    rank_check_int(ringred_start(comm, &good, NULL), RINGRED_EINVAL);
    good.done = tell;
    rank_check_int(ringred_start(comm, &good, &request), RINGRED_EINVAL);
    good.done = NULL;
    longer.call = good;
    longer.call.struct_size = sizeof longer;
    coll_must(comm, ringred_run(comm, &longer.call), "a longer struct with a zero tail");
    longer.newer = 1;
    rank_check_int(ringred_run(comm, &longer.call), RINGRED_EVERSION);
    rank_check_int(ringred_poll(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_descriptor(NULL), RINGRED_EINVAL);
    coll_close(comm);
}

static void test_mistakes_are_refused(void **state)
{
    (void)state;
    coll_each(setups, 2, refused, 30);
}

static void too_late(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float x = 1;
    ringred_call call;

    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = &x;
    call.count = 1;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.timeout_ns = 1000000;
    if (me->rank == 0)
        rank_check_int(ringred_run(comm, &call), RINGRED_ETIMEOUT);
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* broken */
}

static void test_a_call_has_a_time_limit_of_its_own(void **state)
{
    (void)state;
    coll_each(setups + 1, 2, too_late, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_struct_says_what_the_plain_calls_say),
        cmocka_unit_test(test_sums_are_scaled_with_one_rounding),
        cmocka_unit_test(test_ranks_that_scale_differently_are_told),
        cmocka_unit_test(test_what_has_ended_tells_its_caller_once),
        cmocka_unit_test(test_a_failure_is_told_to_callbacks_too),
        cmocka_unit_test(test_a_callback_may_start_while_another_thread_aborts),
        cmocka_unit_test(test_destroy_waits_for_callbacks_in_other_threads),
        cmocka_unit_test(test_destroy_tells_what_will_not_end),
        cmocka_unit_test(test_what_starts_during_destroy_is_not_forgotten),
        cmocka_unit_test(test_a_program_sleeps_on_one_descriptor),
        cmocka_unit_test(test_what_a_callback_starts_wakes_the_program),
        cmocka_unit_test(test_a_program_sleeps_beside_a_thread_that_works),
        cmocka_unit_test(test_the_descriptor_is_quiet_while_nothing_happens),
        cmocka_unit_test(test_making_a_communicator_can_be_interrupted),
        cmocka_unit_test(test_a_split_can_be_interrupted),
        cmocka_unit_test(test_mistakes_are_refused),
        cmocka_unit_test(test_a_call_has_a_time_limit_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
