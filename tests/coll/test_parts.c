/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made from others: what they compute, that they may be used in any order and by several threads,
 * what they cost, and how they end. */
#include "coll.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST ((size_t)1 << 20)

static const struct coll_setup setups[] = {
    { 2, { "transport=shm" } },
    { 4, { "transport=shm" } },
    { 5, { "transport=shm", "stage=65536" } },
    { 2, { "transport=tcp" } },
    { 4, { "transport=tcp" } },
    { 3, { "transport=tcp", "tcp_streams=3" } },
    { 4, { "ranks_per_host=2", "numerics=portable" } },
    { 7, { "ranks_per_host=3", "numerics=portable" } },
    { 8, { "ranks_per_host=4", "numerics=portable" } },
};

static void each_setup(void (*run)(struct rank *me))
{
    coll_each(setups, sizeof setups / sizeof *setups, run, 100);
}

/* This rank as a part knows it. */
static struct rank in_part(const struct rank *me, ringred_comm *part)
{
    struct rank r = *me;

    r.rank = ringred_comm_rank(part);
    r.size = ringred_comm_size(part);
    return r;
}

/* One call on a communicator, drawn from `all`, checked. */
static void one_call(ringred_comm *comm, const struct rank *me, struct coll_memory *memory,
                     struct numbers_random *all, struct numbers_random *mine)
{
    static const size_t counts[] = { 0, 1, 5, 13, 300, 1500, 20011, 100003 };
    struct rank here = in_part(me, comm);
    struct coll_call c = { .exact = true, .count = counts[numbers_below(all, 8)],
                           .root = (int)numbers_below(all, (uint64_t)here.size) };
    uint64_t what = numbers_below(all, 4);

    c.job = (struct numbers_job){ .type = numbers_below(all, 2) ? RINGRED_FLOAT32 : RINGRED_FLOAT64,
                                  .op = numbers_below(all, 2) ? RINGRED_SUM : RINGRED_AVG, .ranks = here.size,
                                  .kind = NUMBERS_WILD, .seed = numbers_next(all) };
    coll_prepare(&c, memory, &here, mine);
    if (what == 0) {
        coll_must(comm, ringred_broadcast(comm, c.send, c.recv, c.count, c.job.type, c.root), c.text);
        coll_check_broadcast(&c, &here);
    } else if (what == 1) {
        coll_must(comm, ringred_barrier(comm), "barrier");
    } else {
        coll_must(comm, ringred_allreduce(comm, c.send, c.recv, c.count, c.job.type, c.job.op), c.text);
        coll_check_allreduce(&c, &here);
    }
}

static ringred_comm *split(ringred_comm *comm, int color, int key)
{
    ringred_comm *part = NULL;

    coll_must(comm, ringred_comm_split(comm, color, key, &part), "split");
    return part;
}

/* ---- what they are, what they compute ---- */

static void splits(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part[4];
    struct numbers_random all = { 11 }, mine = { 5 + (uint64_t)me->rank };
    struct coll_memory memory;
    int half = me->rank % 2, n = me->size;

    coll_memory_open(&memory, comm, MOST * 8);
    part[0] = split(comm, half, me->rank);
    rank_check_int(ringred_comm_size(part[0]), (n + 1 - half) / 2);
    rank_check_int(ringred_comm_rank(part[0]), me->rank / 2);
    part[1] = split(comm, 0, -me->rank); /* all, the other way round */
    rank_check_int(ringred_comm_rank(part[1]), n - 1 - me->rank);
    part[2] = split(comm, me->rank == n - 1 ? RINGRED_NO_COLOR : 7, 0);
    rank_check((part[2] == NULL) == (me->rank == n - 1));
    part[3] = split(part[1], me->rank < n / 2, 0); /* of a part */
    for (int i = 0; i < 60; i++) {
        int which = (int)numbers_below(&all, 5);
        struct numbers_random draw = { numbers_next(&all) };
        ringred_comm *on = which == 4 ? comm : part[which];
        if (on)
            one_call(on, me, &memory, &draw, &mine);
    }
    for (int i = 0; i < 4; i++)
        coll_must(comm, ringred_comm_destroy(part[(i + me->rank) % 4]), "destroy");
    struct numbers_random draw = { 3 };
    one_call(comm, me, &memory, &draw, &mine);
    coll_memory_close(&memory);
    coll_close(comm);
}

static void test_parts_compute_what_a_communicator_of_their_ranks_does(void **state)
{
    (void)state;
    each_setup(splits);
}

static void lists(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = NULL, *none = comm;
    struct numbers_random all = { 21 }, mine = { 5 + (uint64_t)me->rank };
    struct coll_memory memory;
    int32_t last = me->size - 1, ends[2] = { last, 0 }, wrong[2] = { 0, me->rank == 0 ? last : last - 1 };
    bool named = me->rank == 0 || me->rank == last;
    ringred_error why;

    coll_memory_open(&memory, comm, MOST * 8);
    coll_must(comm, ringred_comm_group(comm, named ? ends : NULL, named ? 2 : 0, &part), "group");
    rank_check((part != NULL) == named);
    if (part) {
        rank_check_int(ringred_comm_rank(part), me->rank == 0);
        for (int i = 0; i < 10; i++)
            one_call(part, me, &memory, &all, &mine);
    }
    if (me->size > 2 && me->rank < 2) { /* two ranks, two lists: refused, and nothing is broken */
        wrong[1] = me->rank == 0 ? 1 : 2;
        rank_check_int(ringred_comm_group(comm, me->rank == 0 ? wrong : (int32_t[]){ 0, 1, 2 }, 2 + me->rank, &none),
                       RINGRED_EINVAL);
        rank_check(none == comm);
        ringred_error_init(&why);
        rank_check_int(ringred_comm_error(comm, &why), 0);
        rank_check_msg(strstr(why.text, "list") != NULL, "%s", why.text);
    } else if (me->size > 2) {
        coll_must(comm, ringred_comm_group(comm, NULL, 0, &none), "group of none");
        rank_check(none == NULL);
    }
    struct numbers_random draw = { 3 };
    one_call(comm, me, &memory, &draw, &mine);
    coll_memory_close(&memory);
    coll_close(comm); /* the part outlives it */
    if (part) {
        uint64_t one = 1, sum = 0;
        coll_must(part, ringred_allreduce(part, &one, &sum, 1, RINGRED_UINT64, RINGRED_SUM), "after the parent's end");
        rank_check_int(sum, 2);
        coll_close(part);
    }
}

static void test_lists_name_ranks_and_parts_outlive_their_parent(void **state)
{
    (void)state;
    each_setup(lists);
}

/* ---- orders ---- */

struct big {
    float *send, *recv;
};

static struct big big_open(size_t count, float value)
{
    struct big b = { malloc(count * sizeof(float)), malloc(count * sizeof(float)) };

    rank_check(b.send && b.recv);
    for (size_t i = 0; i < count; i++)
        b.send[i] = value + (float)(i % 7);
    return b;
}

static void big_check(struct big *b, size_t count, int ranks, float sum)
{
    for (size_t i = 0; i < count; i++)
        rank_check_msg(b->recv[i] == sum + (float)(i % 7) * (float)ranks, "element %zu is %g", i, (double)b->recv[i]);
    free(b->send);
    free(b->recv);
}

#define LARGE ((size_t)16 << 20) /* float32: 64 MiB */

/* The most bytes that have lain here at once before they were wanted; 0 without links. */
static size_t kept(ringred_comm *comm)
{
    char text[4096];

    rank_check(ringred_comm_describe(comm, NULL, 0, text, sizeof text) < (int64_t)sizeof text);
    const char *at = strstr(text, "\"kept\":");
    return at ? strtoull(at + 7, NULL, 10) : 0;
}

/* Two communicators of the same ranks, one order on half of the ranks, the other on the rest. */
static void opposite(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part[2] = { split(comm, 0, 0), split(comm, 0, -me->rank) };
    size_t count = me->size > 4 ? LARGE / 8 : LARGE;
    int first = me->rank % 2;
    ringred_request *request[2];
    struct big b[2];

    for (int i = 0; i < 2; i++)
        b[i] = big_open(count, (float)(me->rank + 1 + i));
    for (int i = 0; i < 2; i++) {
        int k = i ^ first;
        coll_must(part[k], ringred_allreduce_start(part[k], b[k].send, b[k].recv, count, RINGRED_FLOAT32, RINGRED_SUM,
                                                   &request[k]), "start");
    }
    for (int i = 0; i < 2; i++) /* each rank waits for the one first that half of the others start last */
        coll_must(comm, ringred_wait(request[i ^ first], RINGRED_FOREVER), "wait");
    for (int i = 0; i < 2; i++)
        big_check(&b[i], count, me->size, (float)(me->size * (me->size + 1) / 2 + i * me->size));
    rank_check_msg(kept(comm) <= (size_t)me->size * 3 * 131072, "%zu bytes were kept", kept(comm));
    for (int i = 0; i < 2; i++)
        coll_close(part[i]);
    coll_close(comm);
}

static void test_two_communicators_in_opposite_orders(void **state)
{
    (void)state;
    each_setup(opposite);
}

struct worker {
    const struct rank *me;
    ringred_comm *comm;
    struct coll_memory *memory;
    int order;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    struct numbers_random all = { 77 + (uint64_t)w->order }, mine = { 1000 + (uint64_t)w->me->rank };

    for (int i = 0; i < 40; i++)
        one_call(w->comm, w->me, w->memory, &all, &mine);
    return NULL;
}

/* A thread for each communicator, none waits for another. */
static void threads(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct coll_memory memory[3];
    struct worker worker[3];
    pthread_t thread[3];

    for (int i = 0; i < 3; i++) {
        coll_memory_open(&memory[i], comm, MOST * 8);
        worker[i] = (struct worker){ me, i == 0 ? comm : split(comm, i == 1 ? 0 : me->rank % 2, 0), &memory[i],
                                     i < 2 ? i : 2 + me->rank % 2 };
    }
    for (int i = 0; i < 3; i++) {
        int k = (i + me->rank) % 3;
        rank_check(pthread_create(&thread[k], NULL, work, &worker[k]) == 0);
    }
    for (int i = 0; i < 3; i++)
        rank_check(pthread_join(thread[i], NULL) == 0);
    for (int i = 1; i < 3; i++)
        coll_close(worker[i].comm);
    for (int i = 0; i < 3; i++)
        coll_memory_close(&memory[i]);
    coll_close(comm);
}

static void test_threads_use_their_own_communicators(void **state)
{
    (void)state;
    each_setup(threads);
}

/* A root runs ahead as far as its credit lets it, and another communicator does not notice. */
static void runs_ahead(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = split(comm, 0, 0);
    ringred_request *request[60];
    uint32_t value[60];

    for (uint32_t i = 0; i < 60; i++) {
        value[i] = me->rank == 0 ? 100 + i : 0;
        if (me->rank == 0)
            coll_must(part, ringred_broadcast_start(part, &value[i], &value[i], 1, RINGRED_UINT32, 0, &request[i]),
                      "broadcast");
    }
    for (int i = 0; i < 20; i++) {
        float one = 1, sum = 0;
        coll_must(comm, ringred_allreduce(comm, &one, &sum, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
        rank_check(sum == (float)me->size);
    }
    for (uint32_t i = 0; i < 60; i++) {
        if (me->rank != 0)
            coll_must(part, ringred_broadcast(part, &value[i], &value[i], 1, RINGRED_UINT32, 0), "broadcast");
        else
            coll_must(part, ringred_wait(request[i], RINGRED_FOREVER), "wait");
        rank_check_int(value[i], 100 + i);
    }
    rank_check_msg(kept(comm) <= (size_t)me->size * 2 * 131072, "%zu bytes were kept", kept(comm));
    coll_close(part);
    coll_close(comm);
}

static void test_a_root_may_run_ahead(void **state)
{
    (void)state;
    each_setup(runs_ahead);
}

/* ---- what they cost ---- */

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    rank_check(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

#define MANY 1000

static void many(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), **part = calloc(MANY, sizeof *part);
    int before = 0;
    size_t bytes = 0;

    rank_check(part != NULL);
    for (int i = 0; i < MANY; i++) {
        if (i == 10) { /* room for a few has been made */
            before = descriptors();
            bytes = mallinfo2().uordblks;
        }
        part[i] = split(comm, i % 3 ? 0 : me->rank % 2, i % 5 ? 0 : -me->rank);
    }
    size_t each = (mallinfo2().uordblks - bytes) / (MANY - 10);
    rank_check_int(descriptors(), before);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    rank_check_msg(each <= 2624, "a communicator takes %zu bytes, its page in shared memory 1536 and its record 5120", each);
#endif
    for (int i = 0; i < MANY; i += 37) {
        uint32_t one = 1, sum = 0;
        coll_must(part[i], ringred_allreduce(part[i], &one, &sum, 1, RINGRED_UINT32, RINGRED_SUM), "allreduce");
        rank_check_int(sum, ringred_comm_size(part[i]));
    }
    for (int i = 0; i < MANY; i++)
        coll_close(part[(i * 7 + me->rank) % MANY]);
    rank_check_int(descriptors(), before);
    free(part);
    coll_close(comm);
    if (me->rank == 0)
        printf("             %zu bytes each\n", each);
}

static void test_a_thousand_cost_no_descriptors_and_little_memory(void **state)
{
    (void)state;
    each_setup(many);
}

/* Made, used and destroyed again and again, in another order on each rank: nothing grows. */
static void cycles(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    size_t bytes = 0;

    for (int i = 0; i < 300; i++) {
        ringred_comm *a = split(comm, 0, 0), *b = split(comm, me->rank % 2, 0);
        uint32_t one = 1, sum = 0;
        coll_must(a, ringred_allreduce(a, &one, &sum, 1, RINGRED_UINT32, RINGRED_SUM), "allreduce");
        rank_check_int(sum, me->size);
        coll_close(me->rank % 2 ? a : b);
        coll_close(me->rank % 2 ? b : a);
        if (i == 100)
            bytes = mallinfo2().uordblks;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    size_t kept = 3 * (size_t)me->size * 16 * 4300; /* what may come before it is wanted, on three channels */
    rank_check_msg(mallinfo2().uordblks < bytes + 65536 + kept, "%zu bytes more after 200 cycles",
                   (size_t)mallinfo2().uordblks - bytes);
#endif
    (void)bytes; /* the tools' allocators do not say */
    coll_close(comm);
}

static void test_making_and_destroying_leaves_nothing(void **state)
{
    (void)state;
    each_setup(cycles);
}

/* ---- how they end ---- */

/* Who left a part is missed by those who go on with it, as soon as they need it; and then all are broken. */
static void left_alone(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = split(comm, 0, 0);
    uint32_t one = 1, sum = 0;
    ringred_error why;

    coll_must(part, ringred_allreduce(part, &one, &sum, 1, RINGRED_UINT32, RINGRED_SUM), "allreduce");
    ranks_meet(me); /* a failure ends what is in flight elsewhere, too */
    if (me->rank == 1) {
        coll_close(part);
        while (ringred_barrier(comm) == 0) /* until the others' failure comes round */
            ;
    } else {
        int32_t rc = ringred_allreduce(part, &one, &sum, 1, RINGRED_UINT32, RINGRED_SUM);
        rank_check_msg(rc == RINGRED_EPEER, "%d", rc);
        ringred_error_init(&why);
        rank_check_int(ringred_comm_error(part, &why), 0);
        rank_check_int(why.rank, 1);
        rank_check_msg(strstr(why.text, "rank 1 left") != NULL, "%s", why.text);
        rank_check_int(ringred_barrier(comm), RINGRED_EPEER);
        ringred_comm_destroy(part);
    }
    ringred_comm_destroy(comm);
}

static void test_who_leaves_a_part_is_named(void **state)
{
    (void)state;
    each_setup(left_alone);
}

/* Ranks that ask a part for different things. */
static void disagree(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = split(comm, 0, -me->rank);
    float in[8] = { 0 }, out[8];
    ringred_error why;

    ranks_meet(me); /* all have it */
    int32_t rc = ringred_allreduce(part, in, out, me->rank == 0 ? 7 : 8, RINGRED_FLOAT32, RINGRED_SUM);
    for (int i = 0; i < 3 && rc == 0; i++) /* in this call, or the next */
        rc = ringred_barrier(part);
    rank_check_msg(rc == RINGRED_EMISMATCH, "%d", rc);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(part, &why), 0);
    rank_check_msg(strstr(why.text, "7 float32") && strstr(why.text, "8 float32"), "%s", why.text);
    rank_check_int(ringred_comm_destroy(part), RINGRED_EMISMATCH);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EMISMATCH);
}

static void test_a_disagreement_on_a_part_is_told(void **state)
{
    (void)state;
    each_setup(disagree);
}

/* More parts than a link has room for words on, while half a message is on it and its receiver is late. */
#define LEFT 60
#define LONG ((size_t)16 << 20)

static void leave_many(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part[LEFT];
    float *x = malloc(LONG * sizeof *x);
    ringred_request *request;

    rank_check(x != NULL);
    for (int i = 0; i < LEFT; i++)
        part[i] = split(comm, 0, 0);
    for (size_t i = 0; i < LONG; i++)
        x[i] = (float)(me->rank + 1);
    if (me->rank == 1)
        ranks_meet(me);
    coll_must(comm, ringred_broadcast_start(comm, x, x, LONG, RINGRED_FLOAT32, 0, &request), "start");
    for (int i = 0; me->rank == 0 && i < 100; i++)
        rank_check_int(ringred_test(request), RINGRED_PENDING);
    for (int i = 0; me->rank == 0 && i < LEFT; i++)
        coll_close(part[i]);
    if (me->rank == 0)
        ranks_meet(me);
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "broadcast");
    for (size_t i = 0; i < LONG; i++)
        rank_check(x[i] == 1);
    if (me->rank == 1) { /* it learns of each that rank 0 has left it */
        rank_check_int(ringred_barrier(part[LEFT - 1]), RINGRED_EPEER);
        for (int i = 0; i < LEFT; i++)
            rank_check_int(ringred_comm_destroy(part[i]), RINGRED_EPEER);
        rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
    } else {
        (void)ringred_barrier(comm); /* until the other has gone */
        rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
    }
    free(x);
}

static void test_many_parts_are_left_while_a_message_is_under_way(void **state)
{
    (void)state;
    coll_each(setups + 3, 1, leave_many, 30);
}

static void refused(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = NULL;
    int32_t outside[2] = { 0, me->size }, twice[2] = { 0, 0 }, others[1] = { me->rank == 0 };

    rank_check_int(ringred_comm_split(NULL, 0, 0, &part), RINGRED_EINVAL);
    rank_check_int(ringred_comm_split(comm, 0, 0, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_comm_split(comm, -2, 0, &part), RINGRED_EINVAL);
    rank_check_int(ringred_comm_group(comm, outside, 2, &part), RINGRED_EINVAL);
    rank_check_int(ringred_comm_group(comm, twice, 2, &part), RINGRED_EINVAL);
    rank_check_int(ringred_comm_group(comm, others, 1, &part), RINGRED_EINVAL);
    rank_check_int(ringred_comm_group(comm, NULL, 1, &part), RINGRED_EINVAL);
    rank_check(part == NULL);
    coll_must(comm, ringred_barrier(comm), "barrier");
    coll_close(comm);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    ranks_fork(2, refused, (void *)(uintptr_t)&setups[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_compute_what_a_communicator_of_their_ranks_does),
        cmocka_unit_test(test_lists_name_ranks_and_parts_outlive_their_parent),
        cmocka_unit_test(test_two_communicators_in_opposite_orders),
        cmocka_unit_test(test_threads_use_their_own_communicators),
        cmocka_unit_test(test_a_root_may_run_ahead),
        cmocka_unit_test(test_a_thousand_cost_no_descriptors_and_little_memory),
        cmocka_unit_test(test_making_and_destroying_leaves_nothing),
        cmocka_unit_test(test_who_leaves_a_part_is_named),
        cmocka_unit_test(test_a_disagreement_on_a_part_is_told),
        cmocka_unit_test(test_many_parts_are_left_while_a_message_is_under_way),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };

    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
