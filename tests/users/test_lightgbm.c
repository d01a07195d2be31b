/* SPDX-License-Identifier: Apache-2.0 */
/* A user of the API before it is frozen: the two functions that LightGBM takes for a network of somebody else's, over
 * ringred, and a caller that uses them as LightGBM does (blocks of unequal length, a reducer over bytes that is handed over as
 * a pointer to a function pointer, an allgather whose input and output are one array). */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS_MOST 64

/* ---- the bridge ---- */

typedef void (*reducer_fn)(const char *src, char *dst, int type_size, int32_t bytes);

struct bridge_op {
    reducer_fn reduce;
    int type_size;
    int32_t op;
};

/* LightGBM's functions have no context: one network for each thread, as it has itself. */
static _Thread_local struct bridge {
    ringred_comm *comm;
    struct bridge_op op[8];
    int ops;
    int32_t failed;
} bridge;

static void join(void *context, const void *left, const void *right, void *result, size_t count)
{
    const struct bridge_op *op = context;
    const size_t bytes = count * (size_t)op->type_size;

    if (result == right) { /* dst = dst + src: commutative, but for the order of a NaN's payload */
        op->reduce(left, result, op->type_size, (int32_t)bytes);
        return;
    }
    if (result != left)
        memcpy(result, left, bytes);
    op->reduce(right, result, op->type_size, (int32_t)bytes);
}

/* The same calls come in the same order on all ranks, so operators are made in the same order, too. */
static int32_t op_of(reducer_fn reduce, int type_size)
{
    for (int i = 0; i < bridge.ops; i++)
        if (bridge.op[i].reduce == reduce && bridge.op[i].type_size == type_size)
            return bridge.op[i].op;
    struct bridge_op *op = &bridge.op[bridge.ops];
    *op = (struct bridge_op){ reduce, type_size, 0 };
    const int32_t rc = ringred_op_create(bridge.comm, join, op, (size_t)type_size, &op->op);
    if (rc < 0)
        return rc;
    bridge.ops++;
    return op->op;
}

static void bridge_reduce_scatter(char *in, int32_t in_size, int type_size, const int32_t *start, const int32_t *len,
                                  int nblock, char *out, int32_t out_size, const reducer_fn *reducer)
{
    size_t counts[BLOCKS_MOST];
    const int32_t op = op_of(*reducer, type_size);

    (void)in_size;
    (void)start;
    (void)out_size;
    for (int i = 0; i < nblock; i++)
        counts[i] = (size_t)(len[i] / type_size);
    const int32_t rc = op < 0 ? op : ringred_reduce_scatterv(bridge.comm, in, out, counts, RINGRED_BYTES, op);
    bridge.failed = bridge.failed ? bridge.failed : rc; /* the caller asks afterwards: these functions return nothing */
}

static void bridge_allgather(char *in, int32_t in_size, const int32_t *start, const int32_t *len, int nblock, char *out,
                             int32_t out_size)
{
    size_t counts[BLOCKS_MOST], places[BLOCKS_MOST];
    const int me = ringred_comm_rank(bridge.comm);

    (void)in_size;
    (void)out_size;
    for (int i = 0; i < nblock; i++) {
        counts[i] = (size_t)len[i];
        places[i] = (size_t)start[i];
    }
    memmove(out + start[me], in, counts[me]); /* in may be out */
    const int32_t rc = ringred_allgatherv(bridge.comm, out + start[me], counts[me], out, counts, places, RINGRED_UINT8);
    bridge.failed = bridge.failed ? bridge.failed : rc;
}

/* ---- LightGBM ---- */

static void sum_doubles(const char *src, char *dst, int type_size, int32_t bytes)
{
    double a, b;

    for (int32_t at = 0; at < bytes; at += type_size) {
        memcpy(&a, src + at, sizeof a);
        memcpy(&b, dst + at, sizeof b);
        b += a;
        memcpy(dst + at, &b, sizeof b);
    }
}

static void max_ints(const char *src, char *dst, int type_size, int32_t bytes)
{
    int32_t a, b;

    for (int32_t at = 0; at < bytes; at += type_size) {
        memcpy(&a, src + at, sizeof a);
        memcpy(&b, dst + at, sizeof b);
        b = a > b ? a : b;
        memcpy(dst + at, &b, sizeof b);
    }
}

/* Blocks that are unequal, some empty. */
static int32_t cut(int32_t elements, int type_size, int n, int32_t *start, int32_t *len)
{
    int32_t at = 0;

    for (int i = 0; i < n; i++) {
        const int32_t share = i + 1 == n ? elements : i == 1 ? 0 : elements / 3;
        start[i] = at;
        len[i] = share * type_size;
        at += len[i];
        elements -= share;
    }
    return at;
}

static void histograms(struct rank *me, int32_t elements)
{
    static double in[20000], out[20000];
    int32_t start[BLOCKS_MOST], len[BLOCKS_MOST];
    const reducer_fn reducer = sum_doubles;
    const int32_t bytes = cut(elements, sizeof(double), me->size, start, len);

    for (int32_t i = 0; i < elements; i++)
        in[i] = i + 1000.0 * me->rank;
    bridge_reduce_scatter((char *)in, bytes, sizeof(double), start, len, me->size, (char *)out, len[me->rank], &reducer);
    rank_check_int(bridge.failed, 0);
    const int32_t first = start[me->rank] / 8;
    for (int32_t i = 0; i < len[me->rank] / 8; i++)
        rank_check(out[i] == me->size * (double)(first + i) + 500.0 * me->size * (me->size - 1));
    /* its own Allreduce: the block goes back to everybody, from the beginning of the array that it is gathered in */
    bridge_allgather((char *)out, len[me->rank], start, len, me->size, (char *)out, bytes);
    rank_check_int(bridge.failed, 0);
    for (int32_t i = 0; i < elements; i++)
        rank_check(out[i] == me->size * (double)i + 500.0 * me->size * (me->size - 1));
}

static void best_splits(struct rank *me)
{
    int32_t in[12], out[12], start[BLOCKS_MOST], len[BLOCKS_MOST];
    const reducer_fn reducer = max_ints;
    const int32_t bytes = cut(12, sizeof(int32_t), me->size, start, len);

    for (int i = 0; i < 12; i++)
        in[i] = (i * 7 + me->rank * 5) % 11;
    bridge_reduce_scatter((char *)in, bytes, sizeof(int32_t), start, len, me->size, (char *)out, len[me->rank], &reducer);
    rank_check_int(bridge.failed, 0);
    for (int32_t i = 0; i < len[me->rank] / 4; i++) {
        int32_t most = 0;
        for (int r = 0; r < me->size; r++) {
            const int32_t x = ((start[me->rank] / 4 + i) * 7 + r * 5) % 11;
            most = x > most ? x : most;
        }
        rank_check_int(out[i], most);
    }
}

static void train(struct rank *me)
{
    memset(&bridge, 0, sizeof bridge);
    bridge.comm = coll_open(me, me->argument);
    for (int tree = 0; tree < 5; tree++) {
        histograms(me, 18870); /* 37 features of 255 bins, twice */
        best_splits(me);
        histograms(me, 111);
    }
    coll_close(bridge.comm);
}

static void test_lightgbm_trains_over_two_functions(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } }, { 3, { "transport=tcp" } }, { 4, { "ranks_per_host=2" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof setups[0], train, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_lightgbm_trains_over_two_functions) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
