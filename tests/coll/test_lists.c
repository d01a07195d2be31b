/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of vectors: each becomes what a call of its own makes of it, to the bit; ranks that give other lists are told. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 10000

struct list {
    size_t n;
    const void **send;
    void **recv, **alone;
    size_t *counts;
    int32_t *types;
};

static const struct coll_setup setups[] = {
    { 1, { "transport=shm" } },     { 2, { "transport=shm" } },
    { 3, { "transport=tcp" } },     { 4, { "ranks_per_host=2" } },
    { 3, { "transport=shm", "progress=thread" } },
    { 2, { "transport=tcp", "tcp_streams=3" } },
    { 4, { "transport=shm" } },
};
enum { SETUPS = sizeof setups / sizeof setups[0] };

static void *have(size_t count, size_t bytes)
{
    void *p = calloc(count + !count, bytes);

    rank_check(p != NULL);
    return p;
}

static void open_list(struct list *l, size_t n)
{
    *l = (struct list){ n, have(n, sizeof *l->send), have(n, sizeof *l->recv), have(n, sizeof *l->alone),
                        have(n, sizeof *l->counts), have(n, sizeof *l->types) };
}

static void close_list(struct list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->send[i] != l->recv[i])
            free((void *)(uintptr_t)l->send[i]);
        free(l->recv[i]);
        free(l->alone[i]);
    }
    free(l->send);
    free(l->recv);
    free(l->alone);
    free(l->counts);
    free(l->types);
}

/* Types that every operator here takes, some narrow, of many lengths; in place or not as this rank likes. */
static void fill_list(struct list *l, struct rank *me, struct numbers_random *all, struct numbers_random *mine)
{
    static const int32_t types[] = { RINGRED_FLOAT32, RINGRED_BFLOAT16, RINGRED_FLOAT64, RINGRED_INT32,
                                     RINGRED_FLOAT16, RINGRED_UINT8 };
    static const size_t counts[] = { 0, 1, 3, 16, 65, 500, 1000, 0, 7, 3000 };

    for (size_t i = 0; i < l->n; i++) {
        l->types[i] = types[numbers_below(all, 6)];
        l->counts[i] = numbers_below(all, 200) ? counts[numbers_below(all, 10)] : 20000 + numbers_below(all, 50000);
        uint64_t seed = numbers_next(all);
        size_t bytes = l->counts[i] * numbers_bytes(l->types[i]);
        void *input = have(bytes, 1);
        numbers_fill(input, l->types[i], NUMBERS_ROUNDING, seed, me->rank, 0, l->counts[i]);
        l->recv[i] = numbers_below(mine, 2) ? input : have(bytes, 1);
        l->send[i] = input;
        l->alone[i] = have(bytes, 1);
        memcpy(l->alone[i], input, bytes);
    }
}

static void check_list(const struct list *l, const char *what, bool there)
{
    for (size_t i = 0; i < l->n && there; i++)
        rank_check_msg(memcmp(l->recv[i], l->alone[i], l->counts[i] * numbers_bytes(l->types[i])) == 0,
                       "%s: vector %zu of %zu, %zu elements of type %d, is not what it is alone", what, i, l->n,
                       l->counts[i], l->types[i]);
}

static void compare(struct rank *me, ringred_comm *comm, size_t n, int what, int32_t op, int root,
                    struct numbers_random *all, struct numbers_random *mine)
{
    const void *const *send;
    ringred_request *request = NULL;
    struct list l;
    int32_t rc;

    open_list(&l, n);
    fill_list(&l, me, all, mine);
    send = l.send;
    bool blocks = numbers_below(all, 2);
    if (what == 0)
        rc = blocks ? ringred_allreduce_list(comm, send, l.recv, l.counts, l.types, n, op)
                    : ringred_allreduce_list_start(comm, send, l.recv, l.counts, l.types, n, op, &request);
    else if (what == 1)
        rc = blocks ? ringred_reduce_list(comm, send, l.recv, l.counts, l.types, n, op, root)
                    : ringred_reduce_list_start(comm, send, l.recv, l.counts, l.types, n, op, root, &request);
    else
        rc = blocks ? ringred_broadcast_list(comm, send, l.recv, l.counts, l.types, n, root)
                    : ringred_broadcast_list_start(comm, send, l.recv, l.counts, l.types, n, root, &request);
    coll_must(comm, rc, "list");
    for (size_t i = 0; i < n; i++) { /* beside it, if it was only started */
        void *x = l.alone[i];
        if (what == 0)
            coll_must(comm, ringred_allreduce(comm, x, x, l.counts[i], l.types[i], op), "allreduce");
        else if (what == 1)
            coll_must(comm, ringred_reduce(comm, x, x, l.counts[i], l.types[i], op, root), "reduce");
        else
            coll_must(comm, ringred_broadcast(comm, x, x, l.counts[i], l.types[i], root), "broadcast");
    }
    if (!blocks)
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    check_list(&l, what == 0 ? "allreduce" : what == 1 ? "reduce" : "broadcast", what != 1 || me->rank == root);
    close_list(&l);
}

static void all_kinds(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    struct numbers_random all = { 11 }, mine = { 100 + (uint64_t)me->rank };
    static const int32_t ops[] = { RINGRED_SUM, RINGRED_MAX, RINGRED_AVG };
    static const size_t ns[] = { 0, 1, 2, 30, 300 };

    for (int what = 0; what < 3; what++)
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
            compare(me, comm, ns[i], what, ops[i % 3], (int)numbers_below(&all, (uint64_t)me->size), &all, &mine);
    coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split"); /* over links whose messages are sorted */
    for (int what = 0; what < 3; what++)
        compare(me, what & 1 ? comm : part, 100, what, ops[what], 0, &all, &mine);
    coll_close(part);
    coll_close(comm);
}

static void test_each_vector_becomes_what_it_is_alone(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++)
        ranks_fork(setups[i].ranks, all_kinds, (void *)(uintptr_t)&setups[i]);
}

static void many(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    float *x = have(MANY * 10, sizeof *x);
    void **at = have(MANY, sizeof *at);
    size_t *counts = have(MANY, sizeof *counts);
    int32_t *types = have(MANY, sizeof *types);

    coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split");
    for (int i = 0; i < MANY; i++) {
        at[i] = &x[10 * i];
        counts[i] = (size_t)(i % 11);
        types[i] = i % 3 ? RINGRED_FLOAT32 : RINGRED_INT32;
    }
    for (int round = 0; round < 4; round++) {
        ringred_comm *c = round & 1 ? part : comm;
        for (int i = 0; i < MANY * 10; i++)
            if (types[i / 10] == RINGRED_FLOAT32)
                x[i] = (float)(i % 100);
            else
                memcpy(&x[i], &(int){ i % 100 }, 4);
        coll_must(c, ringred_allreduce_list(c, (const void *const *)at, at, counts, types, MANY, RINGRED_SUM), "list");
        for (int i = 0; i < MANY * 10; i++) {
            int times = (size_t)(i % 10) < counts[i / 10] ? me->size : 1, whole;
            memcpy(&whole, &x[i], 4);
            rank_check_int(types[i / 10] == RINGRED_FLOAT32 ? (int)x[i] : whole, times * (i % 100));
        }
    }
    free(x);
    free(at);
    free(counts);
    free(types);
    coll_close(comm);
    coll_close(part);
}

static void test_ten_thousand_in_one(void **state)
{
    (void)state;
    for (int i = 0; i < SETUPS; i++)
        ranks_fork(setups[i].ranks, many, (void *)(uintptr_t)&setups[i]);
}

/* ---- what is refused, and found ---- */

static void refuse(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float x[4] = { 1, 1, 1, 1 }, y[4];
    const void *send[2] = { x, x + 2 };
    void *recv[2] = { y, y + 2 };
    size_t counts[2] = { 2, 2 }, huge[2] = { 1, SIZE_MAX / 2 };
    int32_t types[2] = { RINGRED_FLOAT32, RINGRED_FLOAT32 }, wrong[2] = { RINGRED_FLOAT32, 99 };
    int32_t bytes[2] = { RINGRED_FLOAT32, RINGRED_BYTES };
    ringred_request *r;

    rank_check_int(ringred_allreduce_list(NULL, send, recv, counts, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, NULL, recv, counts, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, NULL, counts, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, NULL, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, NULL, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, wrong, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, bytes, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, types, 2, 3), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, huge, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, types, ((size_t)1 << 20) + 1, RINGRED_SUM),
                   RINGRED_EINVAL);
    rank_check_int(ringred_reduce_list(comm, send, recv, counts, types, 2, RINGRED_SUM, me->size), RINGRED_EINVAL);
    rank_check_int(ringred_broadcast_list(comm, send, recv, counts, types, 2, -1), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce_list_start(comm, send, recv, counts, types, 2, RINGRED_SUM, NULL), RINGRED_EINVAL);
    recv[1] = x + 3;
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    recv[1] = NULL;
    rank_check_int(ringred_allreduce_list(comm, send, recv, counts, types, 2, RINGRED_SUM), RINGRED_EINVAL);
    counts[1] = 0;
    coll_must(comm, ringred_allreduce_list_start(comm, send, recv, counts, types, 2, RINGRED_SUM, &r), "start");
    coll_must(comm, ringred_wait(r, RINGRED_FOREVER), "wait");
    rank_check(y[0] == (float)me->size && y[1] == (float)me->size);
    coll_must(comm, ringred_allreduce_list(comm, NULL, NULL, NULL, NULL, 0, RINGRED_SUM), "nothing");
    coll_close(comm);
}

static void test_wrong_lists_are_refused(void **state)
{
    (void)state;
    ranks_fork(2, refuse, (void *)(uintptr_t)&setups[1]);
}

enum wrong { COUNT, TYPE, FEWER, ORDER, PLAIN, OP, WRONGS };

struct campaign {
    const struct coll_setup *setup;
    enum wrong wrong;
};

/* The lists have as many bytes, and mostly as many elements. */
static void disagree(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    float x[64] = { 0 };
    void *at[3] = { x, x + 20, x + 40 };
    size_t counts[3] = { 4, 5, 6 }, n = 3;
    int32_t types[3] = { RINGRED_FLOAT32, RINGRED_INT32, RINGRED_FLOAT32 }, op = RINGRED_SUM;
    bool odd = me->rank + 1 == me->size;
    ringred_error error;

    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me);
    if (odd && p->wrong == COUNT) {
        counts[0]++;
        counts[2]--;
    }
    types[1] = odd && p->wrong == TYPE ? RINGRED_UINT32 : types[1];
    n = odd && p->wrong == FEWER ? 2 : n;
    if (odd && p->wrong == ORDER) {
        counts[0] = 6;
        counts[2] = 4;
    }
    op = odd && p->wrong == OP ? RINGRED_MAX : op;
    int32_t rc = odd && p->wrong == PLAIN
                     ? ringred_allreduce(comm, x, x, 15, RINGRED_FLOAT32, RINGRED_SUM)
                     : ringred_allreduce_list(comm, (const void *const *)at, at, counts, types, n, op);
    if (rc == 0)
        rc = ringred_barrier(comm);
    rank_check_int(rc, RINGRED_EMISMATCH);
    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_msg(strstr(error.text, "allreduce_list") && strstr(error.text, "of a list of 3 vectors"), "%s",
                   error.text);
    (void)ringred_comm_destroy(comm); /* it is broken */
}

static void test_ranks_that_give_other_lists_are_told(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++)
        for (int wrong = 0; wrong < WRONGS; wrong++) {
            struct campaign p = { &setups[i], (enum wrong)wrong };
            ranks_fork(setups[i].ranks, disagree, &p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_vector_becomes_what_it_is_alone),
        cmocka_unit_test(test_ten_thousand_in_one),
        cmocka_unit_test(test_wrong_lists_are_refused),
        cmocka_unit_test(test_ranks_that_give_other_lists_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
