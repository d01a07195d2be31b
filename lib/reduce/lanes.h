/* SPDX-License-Identifier: Apache-2.0 */
/* The shape that the vector kernels share. Included once per element type by a file that has defined
 *
 *     LANE_BYTES            of a vector
 *     ELEMENT, VECTOR       the C types of an element and of a vector
 *     X(name)               name with a suffix of the type
 *     load, load_part       a vector; its first n < lanes elements, the rest zero
 *     store, store_part     the opposite
 *     fill, add, mul, div   the obvious; each lane is one IEEE operation
 *     quiet                 NaN lanes replaced by the canonical one
 *     any_nan               whether any lane of four vectors is a NaN
 *
 * Up to four sources into up to four destinations go in one pass in registers. Above that the work
 * goes tile by tile, and the tree over the sources is cut into subtrees of four leaves (a leaf is one
 * source or a pair): each is one pass over its 4 to 8 sources, partial sums of whole subtrees wait on
 * a stack of tiles in the L1 cache and are added as their right-hand neighbours arrive. NaN costs one
 * compare for each two vectors; only a block that holds one is touched again, in registers. */
#include "reduce/fpmode.h"

#include <string.h>

#ifndef RR_LANES_H
#define RR_LANES_H

#define ALWAYS static inline __attribute__((always_inline))

#define TILE_BYTES 4096
#define STACK_TILES 5  /* 256 sources are 32 subtrees: at most 5 partial sums wait */
#define PASS_SOURCES 8
#define PASS_DESTINATIONS 4

/* What a pass does beyond adding its sources. Which of it, a constant says: */
enum mode { SUM, MULTIPLY, DIVIDE, CARRY, MODES = CARRY };

/* Of a pass: a constant wherever it is used, so that nothing of it is left at run time. */
#define SHAPE(k, d, mode) ((unsigned)(k) | (unsigned)(d) << 8 | (unsigned)(mode) << 16)

ALWAYS int shape_sources(unsigned shape)
{
    return shape & 0xff;
}

ALWAYS int shape_destinations(unsigned shape)
{
    return shape >> 8 & 0xff;
}

ALWAYS enum mode shape_mode(unsigned shape)
{
    return (enum mode)(shape >> 16);
}

struct extra {
    double by;                       /* divisor, or its exact reciprocal where there is one */
    enum mode scale;                 /* SUM: not scaled */
    int carries;                     /* partial sums to add on the left, nearest first: mode CARRY */
    const char *carry[STACK_TILES];
};

static void extra_init(struct extra *e, uint32_t divisor)
{
    e->carries = 0;
    e->scale = SUM;
    if (divisor <= 1)
        return;
    e->scale = (divisor & (divisor - 1)) == 0 ? MULTIPLY : DIVIDE;
    e->by = e->scale == MULTIPLY ? 1.0 / divisor : divisor;
}

/* Nothing but a divisor is asked for beyond the sum. Compares bits, since reading MXCSR next would wait
 * for an operation on floats. */
static inline bool is_plain(const struct rr_reduce *r)
{
    uint64_t scale;

    memcpy(&scale, &r->scale, sizeof scale);
    return ((uintptr_t)r->weight | scale << 1) == 0;
}

#endif

/* The addresses of one pass. */
struct X(run) {
    const struct extra *e;
    VECTOR by;
    const void *s[PASS_SOURCES];
    void *to[PASS_DESTINATIONS];
};

/* At byte o; n elements, or 0 for a whole vector. */
ALWAYS VECTOR X(get)(const void *from, size_t o, size_t n)
{
    const char *p = (const char *)from + o;

    return n ? X(load_part)(p, n) : X(load)(p);
}

ALWAYS VECTOR X(leaf)(const struct X(run) *r, int pairs, int j, size_t o, size_t n)
{
    if (j >= pairs)
        return X(get)(r->s[pairs + j], o, n);
    return X(add)(X(get)(r->s[2 * j], o, n), X(get)(r->s[2 * j + 1], o, n));
}

/* The canonical tree over at most eight sources. */
ALWAYS VECTOR X(fold)(const struct X(run) *r, unsigned shape, size_t o, size_t n)
{
    const int k = shape_sources(shape), q = k >= 4 ? 4 : k >= 2 ? 2 : 1, pairs = k - q;

    if (q == 1)
        return X(get)(r->s[0], o, n);
    if (q == 2)
        return X(add)(X(leaf)(r, pairs, 0, o, n), X(leaf)(r, pairs, 1, o, n));
    return X(add)(X(add)(X(leaf)(r, pairs, 0, o, n), X(leaf)(r, pairs, 1, o, n)),
                  X(add)(X(leaf)(r, pairs, 2, o, n), X(leaf)(r, pairs, 3, o, n)));
}

/* The values of `vectors` vectors, finished but for their NaNs. */
ALWAYS void X(values)(const struct X(run) *r, unsigned shape, VECTOR *x, int vectors, size_t o,
                      size_t n)
{
    const enum mode mode = shape_mode(shape), scale = mode == CARRY ? r->e->scale : mode;

    for (int v = 0; v < vectors; v++)
        x[v] = X(fold)(r, shape, o + v * LANE_BYTES, n);
    if (mode == CARRY)
        for (int c = 0; c < r->e->carries; c++)
            for (int v = 0; v < vectors; v++)
                x[v] = X(add)(X(get)(r->e->carry[c], o + v * LANE_BYTES, n), x[v]);
    if (scale == MULTIPLY)
        for (int v = 0; v < vectors; v++)
            x[v] = X(mul)(x[v], r->by);
    if (scale == DIVIDE)
        for (int v = 0; v < vectors; v++)
            x[v] = X(div)(x[v], r->by);
}

ALWAYS void X(put)(const struct X(run) *r, unsigned shape, VECTOR x, size_t o, size_t n)
{
    for (int i = 0; i < shape_destinations(shape); i++) {
        if (n)
            X(store_part)((char *)r->to[i] + o, x, n);
        else
            X(store)((char *)r->to[i] + o, x);
    }
}

ALWAYS void X(one)(const struct X(run) *r, unsigned shape, size_t o, size_t n)
{
    VECTOR x;

    X(values)(r, shape, &x, 1, o, n);
    X(put)(r, shape, X(quiet)(x), o, n);
}

/* A block is read before it is written: sources may be destinations. */
ALWAYS void X(four)(const struct X(run) *r, unsigned shape, size_t o)
{
    VECTOR x[4];

    X(values)(r, shape, x, 4, o, 0);
    if (RR_UNLIKELY(X(any_nan)(x[0], x[1], x[2], x[3])))
        for (int v = 0; v < 4; v++)
            x[v] = X(quiet)(x[v]);
    for (int v = 0; v < 4; v++)
        X(put)(r, shape, x[v], o + v * LANE_BYTES, 0);
}

ALWAYS void X(pass)(unsigned shape, void *const *to, const void *const *from, size_t bytes,
                    const struct extra *e)
{
    struct X(run) run, *const r = &run;
    size_t o = 0;

    r->e = e;
    for (int i = 0; i < shape_sources(shape); i++)
        r->s[i] = from[i];
    for (int i = 0; i < shape_destinations(shape); i++)
        r->to[i] = to[i];
    if (shape_mode(shape) != SUM)
        r->by = X(fill)((ELEMENT)e->by);
    if (bytes >= 16 * LANE_BYTES) {
        const size_t head = (0 - (uintptr_t)to[0]) % LANE_BYTES / sizeof(ELEMENT);

        if (head > 0) /* stores that cross lines cost more than one odd vector */
            X(one)(r, shape, 0, head);
        o = head * sizeof(ELEMENT);
    }
    for (; bytes - o >= 4 * LANE_BYTES; o += 4 * LANE_BYTES)
        X(four)(r, shape, o);
    for (; bytes - o >= LANE_BYTES; o += LANE_BYTES)
        X(one)(r, shape, o, 0);
    if (o < bytes)
        X(one)(r, shape, o, (bytes - o) / sizeof(ELEMENT));
}

#define PASS(word, mode, k, d)                                                                          \
    static void X(word##_##k##_##d)(void *const *to, const void *const *from, size_t bytes,             \
                                    const struct extra *e)                                              \
    {                                                                                                   \
        X(pass)(SHAPE(k, d, mode), to, from, bytes, e);                                                 \
    }
#define ROW(word, mode, k) \
    PASS(word, mode, k, 1) PASS(word, mode, k, 2) PASS(word, mode, k, 3) PASS(word, mode, k, 4)
#define TABLE(word, mode) ROW(word, mode, 1) ROW(word, mode, 2) ROW(word, mode, 3) ROW(word, mode, 4)
TABLE(sum, SUM)
TABLE(multiply, MULTIPLY)
TABLE(divide, DIVIDE)
PASS(sum, SUM, 5, 1)
PASS(sum, SUM, 6, 1)
PASS(sum, SUM, 7, 1)
PASS(sum, SUM, 8, 1)
PASS(carry, CARRY, 4, 1)
PASS(carry, CARRY, 5, 1)
PASS(carry, CARRY, 6, 1)
PASS(carry, CARRY, 7, 1)
PASS(carry, CARRY, 8, 1)
#undef PASS
#undef ROW
#undef TABLE

typedef void (*X(pass_fn))(void *const *to, const void *const *from, size_t bytes, const struct extra *e);

#define ROW(word, k) { X(word##_##k##_1), X(word##_##k##_2), X(word##_##k##_3), X(word##_##k##_4) }
#define TABLE(word) { ROW(word, 1), ROW(word, 2), ROW(word, 3), ROW(word, 4) }
static const X(pass_fn) X(narrow)[MODES][4][4] = { /* [scale][sources - 1][destinations - 1] */
    TABLE(sum), TABLE(multiply), TABLE(divide)
};
#undef ROW
#undef TABLE
static const X(pass_fn) X(wide)[2][5] = { /* [carries or scales][sources - 4], one destination */
    { X(sum_4_1), X(sum_5_1), X(sum_6_1), X(sum_7_1), X(sum_8_1) },
    { X(carry_4_1), X(carry_5_1), X(carry_6_1), X(carry_7_1), X(carry_8_1) },
};

/* Sums one tile of more than four sources. s is already at the tile. */
static void X(tree)(void *to, const void *const *s, int k, size_t bytes, const struct extra *last)
{
    char tile[STACK_TILES][TILE_BYTES] __attribute__((aligned(RR_LINE)));
    struct extra e = { .scale = SUM };
    int q = 4, depth = 0, groups, pairs;

    while (q * 2 < k)
        q *= 2; /* where k is a power of two itself, all leaves are pairs */
    groups = q / 4;
    pairs = k - q;
    for (int g = 0; g < groups; g++) {
        const int left = pairs - 4 * g, paired = left < 0 ? 0 : left > 4 ? 4 : left;
        const bool ends = g == groups - 1;
        void *into;

        if (ends)
            e = *last;
        e.carries = 0;
        for (int carry = g; carry & 1; carry >>= 1)
            e.carry[e.carries++] = tile[--depth];
        into = ends ? to : tile[depth++];
        X(wide)[e.carries > 0 || e.scale != SUM][paired](&into, s, bytes, &e);
        s += 4 + paired;
    }
}

static void X(copies)(void *const *to, int d, size_t o, size_t bytes, int done)
{
    for (int i = done; i < d; i++) {
        void *one = (char *)to[i] + o;
        const void *from = (const char *)to[0] + o;

        X(sum_1_1)(&one, &from, bytes, NULL);
    }
}

static void X(tiles)(const struct rr_reduce *r, void *const *destination, const void *const *source,
                     const struct extra *e)
{
    const size_t bytes = r->count * sizeof(ELEMENT);
    const int d = r->destinations, k = r->sources;
    const int at_once = k > 4 ? 1 : d < PASS_DESTINATIONS ? d : PASS_DESTINATIONS;

    for (size_t o = 0; o < bytes; o += TILE_BYTES) {
        const size_t n = bytes - o < TILE_BYTES ? bytes - o : TILE_BYTES;
        const void *s[RR_REDUCE_SOURCES];
        void *to[PASS_DESTINATIONS];

        for (int i = 0; i < k; i++)
            s[i] = (const char *)source[i] + o;
        for (int i = 0; i < at_once; i++)
            to[i] = (char *)destination[i] + o;
        if (k > 4)
            X(tree)(to[0], s, k, n, e);
        else
            X(narrow)[e->scale][k - 1][at_once - 1](to, s, n, e);
        X(copies)(destination, d, o, n, at_once);
    }
}

static void X(reduce)(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const uint64_t fpmode = fpmode_enter();
    const size_t bytes = r->count * sizeof(ELEMENT);
    const int k = r->sources, d = r->destinations;
    struct extra e;

    extra_init(&e, r->divisor);
    if (RR_LIKELY(k <= 4 && d <= PASS_DESTINATIONS))
        X(narrow)[e.scale][k - 1][d - 1](destination, source, bytes, &e);
    else if (k > 4 && k <= PASS_SOURCES && d == 1)
        X(wide)[e.scale != SUM][k - 4](destination, source, bytes, &e);
    else
        X(tiles)(r, destination, source, &e);
    fpmode_leave(fpmode);
}

#undef ELEMENT
#undef VECTOR
#undef X
