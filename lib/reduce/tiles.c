/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel for every type and operator, made of an instruction set's loops. The work goes tile by
 * tile, so that what one loop leaves for the next stays in the L1 cache; the tree over the sources is
 * walked from left to right, with partial results of whole subtrees waiting on a stack of tiles. The
 * shapes that matter most, a few sources that need no more than joining, go in one loop. */
#include "reduce/fpmode.h"
#include "reduce/kernels.h"

#include <assert.h>
#include <string.h>

#define TILE_BYTES 4096
#define STACK_TILES 10 /* 256 leaves: 8 partial results wait, for the 9th, which is a pair */

struct tile {
    char bytes[TILE_BYTES];
};

/* One call: which loops, and the bytes of a source's, an accumulator's, a destination's element. */
struct work {
    const struct rr_reduce *r;
    rr_one_fn load, store; /* NULL: the array holds accumulators */
    rr_two_fn two;
    rr_by_fn times, over;
    double by;             /* divisor, or its exact reciprocal: then with times */
    size_t from, acc, to;
};

static void work_init(struct work *w, const struct rr_loops *loops, const struct rr_reduce *r)
{
    const int type = r->type, op = r->op - RINGRED_SUM;
    const bool narrow = loops->load[type] != NULL;
    const int acc = narrow ? RINGRED_FLOAT32 : type;
    const bool logical = type == RINGRED_BOOL || r->op >= RINGRED_LAND;
    const bool exact = loops->times[acc] && (r->divisor & (r->divisor - 1)) == 0;

    w->r = r;
    w->load = narrow && r->wide_sources ? NULL : loops->load[type];
    w->store = logical                          ? loops->truth[rr_type_bytes(type)]
               : narrow && r->wide_destinations ? loops->store[acc]
                                                : loops->store[type];
    w->two = loops->two[acc][op];
    w->times = loops->times[acc];
    w->over = exact ? w->times : loops->over[acc];
    w->by = exact && r->divisor > 1 ? 1.0 / r->divisor : r->divisor;
    w->acc = rr_type_bytes(acc);
    w->from = w->load ? rr_type_bytes(type) : w->acc;
    w->to = narrow && !r->wide_destinations ? rr_type_bytes(type) : w->acc;
}

/* The accumulators of one source, in the tile unless they lie in the source as they are. */
static const void *term(const struct work *w, const void *const *source, int s, size_t first, void *tile,
                        size_t n)
{
    const void *at = (const char *)source[s] + first * w->from;

    if (w->load) {
        w->load(tile, at, n);
        at = tile;
    }
    if (w->r->weight) {
        w->times(tile, at, n, w->r->weight[s]);
        at = tile;
    }
    return at;
}

/* Joins n elements of all sources; the last operation writes to `last`. Returns where the result is:
 * there, or with a single source perhaps in the source. */
static const void *fold(const struct work *w, const void *const *source, size_t first, void *last, size_t n)
{
    struct tile tile[STACK_TILES] __attribute__((aligned(RR_LINE)));
    const void *waits[STACK_TILES];
    const int k = w->r->sources;
    int q = 1, depth = 0, s = 0;

    if (k == 1)
        return term(w, source, 0, first, last, n);
    while (q * 2 <= k)
        q *= 2;
    for (int j = 0; j < q; j++) {
        const void *x = term(w, source, s++, first, &tile[depth], n);

        if (j < k - q) {
            w->two(&tile[depth], x, term(w, source, s++, first, &tile[depth + 1], n), n);
            x = &tile[depth];
        }
        for (int carry = j; carry & 1; carry >>= 1) {
            void *to = j == q - 1 && depth == 1 ? last : &tile[depth - 1];

            w->two(to, waits[--depth], x, n);
            x = to;
        }
        waits[depth++] = x;
    }
    return waits[0];
}

/* n elements from `first` on, into one destination. */
static void reduce_tile(const struct work *w, void *to, const void *const *source, size_t first, size_t n)
{
    const bool finishes = w->store || w->r->divisor > 1 || w->r->scale != 0;
    struct tile room __attribute__((aligned(RR_LINE)));
    const void *x = fold(w, source, first, finishes ? room.bytes : to, n);

    if (w->r->divisor > 1) {
        w->over(room.bytes, x, n, w->by);
        x = room.bytes;
    }
    if (w->r->scale != 0) {
        w->times(room.bytes, x, n, w->r->scale);
        x = room.bytes;
    }
    if (w->store)
        w->store(to, x, n);
    else if (x != to)
        memcpy(to, x, n * w->acc);
}

static void tiles(const struct work *w, void *const *destination, const void *const *source)
{
    const size_t tile = TILE_BYTES / w->acc;

    for (size_t first = 0, n; first < w->r->count; first += n) {
        void *to = (char *)destination[0] + first * w->to;

        n = w->r->count - first < tile ? w->r->count - first : tile;
        reduce_tile(w, to, source, first, n);
        for (int d = 1; d < w->r->destinations; d++)
            memcpy((char *)destination[d] + first * w->to, to, n * w->to);
    }
}

/* The loop that does a whole call at once, if there is one. */
struct shortcut {
    rr_two_fn pair;
    rr_sum_fn sum;
    double by;
    size_t element;
};

static bool shortcut_init(struct shortcut *c, const struct rr_loops *loops, const struct rr_reduce *r)
{
    const bool exact = (r->divisor & (r->divisor - 1)) == 0;
    const bool sums = r->op == RINGRED_SUM || r->op == RINGRED_AVG;

    if (r->sources < 2 || r->sources > 4 || r->weight || r->scale != 0 || r->wide_sources ||
        r->wide_destinations)
        return false;
    c->pair = r->sources == 2 && r->divisor <= 1 ? loops->pair[r->type][r->op - RINGRED_SUM] : NULL;
    c->sum = sums && exact ? loops->sum[r->type][r->sources - 2] : NULL;
    c->by = r->divisor > 1 ? 1.0 / r->divisor : 1;
    c->element = rr_type_bytes(r->type);
    return c->pair || c->sum;
}

static void shortcut_run(const struct shortcut *c, void *to, const void *const *source, size_t n)
{
    if (c->pair)
        c->pair(to, source[0], source[1], n);
    else
        c->sum(to, source, n, c->by);
}

static void shortcut_tiles(const struct shortcut *c, const struct rr_reduce *r, void *const *destination,
                           const void *const *source)
{
    const size_t tile = TILE_BYTES / c->element;

    for (size_t first = 0, n; first < r->count; first += n) {
        const void *at[4];
        char *to = (char *)destination[0] + first * c->element;

        n = r->count - first < tile ? r->count - first : tile;
        for (int s = 0; s < r->sources; s++)
            at[s] = (const char *)source[s] + first * c->element;
        shortcut_run(c, to, at, n);
        for (int d = 1; d < r->destinations; d++)
            memcpy((char *)destination[d] + first * c->element, to, n * c->element);
    }
}

/* Complex numbers are added part by part. */
static void sum_parts(const struct rr_loops *loops, const struct rr_reduce *r, void *const *destination,
                      const void *const *source)
{
    const bool wide = r->type == RINGRED_COMPLEX128;
    struct rr_reduce parts = *r;

    parts.type = wide ? RINGRED_FLOAT64 : RINGRED_FLOAT32;
    parts.count = 2 * r->count;
    (wide ? loops->sum_float64 : loops->sum_float32)(&parts, destination, source);
}

void rr_tiles(const struct rr_loops *loops, const struct rr_reduce *r, void *const *destination,
              const void *const *source)
{
    const bool complex_sum = r->type >= RINGRED_COMPLEX64 && r->op != RINGRED_PROD;
    struct shortcut c;
    struct work w;
    uint64_t mode;

    assert(rr_op_legal(r->type, r->op));
    if (complex_sum) {
        sum_parts(loops, r, destination, source);
        return;
    }
    mode = fpmode_enter();
    if (!shortcut_init(&c, loops, r)) {
        work_init(&w, loops, r);
        tiles(&w, destination, source);
    } else if (r->destinations == 1) {
        shortcut_run(&c, destination[0], source, r->count);
    } else {
        shortcut_tiles(&c, r, destination, source);
    }
    fpmode_leave(mode);
}
