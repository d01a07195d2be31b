/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from one rank to another: order, tags, any source, sizes around what is sent unasked, beside collectives
 * and on parts; what does not fit; who leaves. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct coll_setup setups[] = {
    { 2, { "transport=shm" } },
    { 4, { "transport=shm" } },
    { 2, { "transport=tcp" } },
    { 3, { "transport=tcp", "tcp_streams=3" } },
    { 4, { "ranks_per_host=2" } },
    { 5, { "ranks_per_host=2" } },
};

static void each_setup(void (*run)(struct rank *me))
{
    coll_each(setups, sizeof setups / sizeof *setups, run, 60);
}

static void fill(uint32_t *to, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = seed * 2654435761u + (uint32_t)i * 40503u;
}

static void check(const uint32_t *got, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        rank_check_msg(got[i] == seed * 2654435761u + (uint32_t)i * 40503u, "element %zu of %zu, message %u", i, count,
                       seed);
}

static uint32_t *room(size_t count)
{
    uint32_t *p = malloc((count + 1) * sizeof *p);

    rank_check(p != NULL);
    memset(p, 0xee, (count + 1) * sizeof *p);
    return p;
}

/* elements of uint32; 8192 of them are 32 KiB */
static const size_t counts[] = { 0, 1, 10, 1024, 1025, 8191, 8192, 8193, 70000, 1000003 };
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Round a ring, blocking: even ranks send first. */
static void ring(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;

    for (uint32_t i = 0; i < COUNTS; i++) {
        uint32_t *out = room(counts[i]), *in = room(counts[i]);
        ringred_message m;
        ringred_request *request;
        ringred_message_init(&m, sizeof m);
        fill(out, counts[i], 100 * i + (uint32_t)me->rank);
        coll_must(comm, ringred_send_start(comm, out, counts[i], RINGRED_UINT32, next, 7, &request), "send");
        coll_must(comm, ringred_recv(comm, in, counts[i], RINGRED_UINT32, before, 7, &m), "recv");
        rank_check_int(m.source, before);
        rank_check_int(m.tag, 7);
        rank_check(m.count == counts[i]);
        check(in, counts[i], 100 * i + (uint32_t)before);
        rank_check(in[counts[i]] == 0xeeeeeeee);
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
        free(out);
        free(in);
    }
    coll_close(comm);
}

static void test_messages_of_all_sizes_go_round(void **state)
{
    (void)state;
    each_setup(ring);
}

/* Two tags, received in another order than sent; within a tag in order, also where large and small follow. */
static void tags(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    enum { EACH = 12 };
    uint32_t *buffer[2][EACH];
    ringred_request *request[2][EACH];

    for (int tag = 0; tag < 2 && me->rank < 2; tag++)
        for (uint32_t i = 0; i < EACH; i++)
            buffer[tag][i] = room(counts[i % 9]);
    for (uint32_t i = 0; i < EACH && me->rank == 0; i++)
        for (int tag = 0; tag < 2; tag++) {
            size_t n = counts[i % 9];
            fill(buffer[tag][i], n, 2 * i + (uint32_t)tag);
            coll_must(comm, ringred_send_start(comm, buffer[tag][i], n, RINGRED_UINT32, 1, tag, &request[tag][i]), "send");
        }
    coll_must(comm, ringred_barrier(comm), "a barrier passes what nobody receives");
    for (int tag = 1; tag >= 0 && me->rank == 1; tag--)
        for (uint32_t i = 0; i < EACH; i++) {
            ringred_message m;
            ringred_message_init(&m, sizeof m);
            coll_must(comm, ringred_recv(comm, buffer[tag][i], counts[i % 9], RINGRED_UINT32, 0, tag, &m), "recv");
            rank_check(m.count == counts[i % 9]);
            check(buffer[tag][i], m.count, 2 * i + (uint32_t)tag);
        }
    for (int tag = 0; tag < 2 && me->rank < 2; tag++)
        for (uint32_t i = 0; i < EACH; i++) {
            if (me->rank == 0)
                coll_must(comm, ringred_wait(request[tag][i], RINGRED_FOREVER), "wait");
            free(buffer[tag][i]);
        }
    coll_close(comm);
}

static void test_tags_have_orders_of_their_own(void **state)
{
    (void)state;
    each_setup(tags);
}

/* Everybody sends to rank 0, which takes what comes; shorter than there is room for. */
static void any(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    enum { EACH = 30 };
    uint32_t *buffer = room(20000);
    int from[RANKS_MOST] = { 0 };

    for (uint32_t i = 0; i < EACH && me->rank > 0; i++) {
        size_t n = i % 3 == 2 ? 20000 - i : i;
        fill(buffer, n, i);
        coll_must(comm, ringred_send(comm, buffer, n, RINGRED_UINT32, 0, 5), "send");
    }
    for (int i = 0; i < EACH * (me->size - 1) && me->rank == 0; i++) {
        ringred_message m;
        ringred_message_init(&m, sizeof m);
        coll_must(comm, ringred_recv(comm, buffer, 20000, RINGRED_UINT32, RINGRED_ANY_SOURCE, 5, &m), "recv");
        rank_check(m.source > 0 && m.source < me->size);
        uint32_t k = (uint32_t)from[m.source]++;
        rank_check(m.count == (k % 3 == 2 ? 20000 - k : k));
        check(buffer, m.count, k);
    }
    free(buffer);
    coll_close(comm);
}

static void test_a_receive_takes_what_comes_of_any_rank(void **state)
{
    (void)state;
    each_setup(any);
}

/* On parts, while collectives run on both; ranks go by the part's numbers. */
static void beside(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part = NULL;
    uint32_t *out = room(50000), *in = room(50000);
    float one = 1, sum[2] = { 0, 0 };
    ringred_request *request[4];

    coll_must(comm, ringred_comm_split(comm, 0, -me->rank, &part), "split");
    int here = ringred_comm_rank(part), next = (here + 1) % me->size, before = (here + me->size - 1) % me->size;
    for (uint32_t round = 0; round < 20; round++) {
        size_t n = round % 2 ? 50000 : 500;
        ringred_message m;
        ringred_message_init(&m, sizeof m);
        fill(out, n, (uint32_t)here + round);
        int order = (int)(round + (uint32_t)me->rank) % 2;
        coll_must(part, ringred_recv_start(part, in, 50000, RINGRED_UINT32, before, 1, &m, &request[0]), "recv");
        for (int i = 0; i < 2; i++)
            coll_must(comm, (i ^ order) ? ringred_allreduce_start(comm, &one, &sum[0], 1, RINGRED_FLOAT32, RINGRED_SUM, &request[2])
                                        : ringred_allreduce_start(part, &one, &sum[1], 1, RINGRED_FLOAT32, RINGRED_SUM, &request[3]),
                      "allreduce");
        coll_must(part, ringred_send_start(part, out, n, RINGRED_UINT32, next, 1, &request[1]), "send");
        for (int i = 0; i < 4; i++)
            coll_must(comm, ringred_wait(request[(i + me->rank) % 4], RINGRED_FOREVER), "wait");
        rank_check(m.count == n && m.source == before);
        check(in, n, (uint32_t)before + round);
        rank_check(sum[0] == (float)me->size && sum[1] == (float)me->size);
    }
    free(out);
    free(in);
    coll_close(me->rank % 2 ? part : comm);
    coll_close(me->rank % 2 ? comm : part);
}

static void test_messages_pass_beside_collectives(void **state)
{
    (void)state;
    each_setup(beside);
}

/* A collective that one rank starts before its message and the other after its receive. */
static void crossed(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    size_t count = 300000;
    uint32_t *in = room(count), *out = room(count), value = 41;
    ringred_request *request;

    fill(out, count, 1);
    if (me->rank == 0) {
        coll_must(comm, ringred_allreduce_start(comm, out, in, count, RINGRED_UINT32, RINGRED_MAX, &request), "start");
        for (int r = 1; r < me->size; r++)
            coll_must(comm, ringred_send(comm, &value, 1, RINGRED_UINT32, r, 0), "send");
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    } else {
        uint32_t got = 0;
        coll_must(comm, ringred_recv(comm, &got, 1, RINGRED_UINT32, 0, 0, NULL), "recv");
        rank_check_int(got, 41);
        coll_must(comm, ringred_allreduce(comm, out, in, count, RINGRED_UINT32, RINGRED_MAX), "allreduce");
    }
    check(in, count, 1);
    free(in);
    free(out);
    coll_close(comm);
}

static void test_a_message_overtakes_a_collective(void **state)
{
    (void)state;
    each_setup(crossed);
}

static void does_not_fit(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    uint32_t buffer[20000] = { 0 };
    ringred_error why;
    int32_t rc = 0;

    if (me->rank == 0)
        rc = ringred_send(comm, buffer, me->size % 2 ? 20000 : 20, RINGRED_UINT32, 1, 3);
    else if (me->rank == 1)
        rc = ringred_recv(comm, buffer, 10, RINGRED_UINT32, 0, 3, NULL);
    if (me->rank != 1 && rc == 0)
        rc = ringred_barrier(comm);
    rank_check_msg(rc == RINGRED_EMISMATCH, "%d", rc);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(strstr(why.text, "room for 10") != NULL, "%s", why.text);
    ringred_comm_destroy(comm);
}

static void test_what_does_not_fit_is_told_to_all(void **state)
{
    (void)state;
    each_setup(does_not_fit);
}

/* The last rank leaves while the others wait for a message of its; what it had sent is received. */
static void leaves(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    int last = me->size - 1;
    uint32_t value = 9, got = 0;
    ringred_error why;

    if (me->rank == last) {
        for (int r = 0; r < last; r++)
            coll_must(comm, ringred_send(comm, &value, 1, RINGRED_UINT32, r, 0), "send");
        coll_close(comm);
        return;
    }
    ringred_error_init(&why);
    coll_must(comm, ringred_recv(comm, &got, 1, RINGRED_UINT32, last, 0, NULL), "recv");
    rank_check_int(got, 9);
    ranks_meet(me);
    int32_t rc = ringred_recv(comm, &got, 1, RINGRED_UINT32, me->rank ? last : me->size == 2 ? RINGRED_ANY_SOURCE : last, 0,
                              NULL);
    rank_check_msg(rc == RINGRED_EPEER, "%d", rc);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(strstr(why.text, "left") != NULL, "%s", why.text);
    ringred_comm_destroy(comm);
}

static void leaves_and_meets(struct rank *me)
{
    leaves(me);
    if (me->rank == me->size - 1)
        ranks_meet(me);
}

static void test_who_leaves_is_missed(void **state)
{
    (void)state;
    each_setup(leaves_and_meets);
}

static void refused(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    uint32_t value = 0;
    ringred_message m = { 0 };
    ringred_request *request = NULL;

    rank_check_int(ringred_send(NULL, &value, 1, RINGRED_UINT32, 0, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, 1, 999, 1 - me->rank, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, NULL, 1, RINGRED_UINT32, 1 - me->rank, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, SIZE_MAX / 4, RINGRED_UINT32, 1 - me->rank, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, 1, RINGRED_UINT32, me->rank, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, 1, RINGRED_UINT32, 2, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, 1, RINGRED_UINT32, RINGRED_ANY_SOURCE, 0), RINGRED_EINVAL);
    rank_check_int(ringred_send(comm, &value, 1, RINGRED_UINT32, 1 - me->rank, -1), RINGRED_EINVAL);
    rank_check_int(ringred_recv(comm, &value, 1, RINGRED_UINT32, -2, 0, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_recv(comm, &value, 1, RINGRED_UINT32, 1 - me->rank, 0, &m), RINGRED_EINVAL);
    rank_check_int(ringred_send_start(comm, &value, 1, RINGRED_UINT32, 1 - me->rank, 0, NULL), RINGRED_EINVAL);
    rank_check(request == NULL);
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
        cmocka_unit_test(test_messages_of_all_sizes_go_round),
        cmocka_unit_test(test_tags_have_orders_of_their_own),
        cmocka_unit_test(test_a_receive_takes_what_comes_of_any_rank),
        cmocka_unit_test(test_messages_pass_beside_collectives),
        cmocka_unit_test(test_a_message_overtakes_a_collective),
        cmocka_unit_test(test_what_does_not_fit_is_told_to_all),
        cmocka_unit_test(test_who_leaves_is_missed),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };

    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
