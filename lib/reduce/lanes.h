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

#ifndef RR_LANES_H
#define RR_LANES_H

#define ALWAYS static inline __attribute__((always_inline))

#define TILE_BYTES 4096
#define STACK_TILES 5  /* 256 sources are 32 subtrees: at most 5 partial sums wait */
#define PASS_SOURCES 8
#define PASS_DESTINATIONS 4

/* What a pass does beyond adding its sources. */
struct extra {
    double by;                       /* divisor, or its exact reciprocal where that is one */
    bool scale, reciprocal;
    int carries;                     /* partial sums to add on the left, nearest first */
    const char *carry[STACK_TILES];
};

static void extra_init(struct extra *e, uint32_t divisor)
{
    e->carries = 0;
    e->scale = divisor > 1;
    e->reciprocal = (divisor & (divisor - 1)) == 0;
    e->by = e->reciprocal ? 1.0 / divisor : divisor;
}

#endif

/* The canonical tree over k sources at offset o; k is a constant where this is inlined. n is the
 * number of elements, or 0 for a whole vector. */
ALWAYS VECTOR X(get)(const void *from, size_t o, size_t n)
{
    const char *p = (const char *)from + o;

    return n ? X(load_part)(p, n) : X(load)(p);
}

ALWAYS VECTOR X(leaf)(const void *const *s, int pairs, int j, size_t o, size_t n)
{
    if (j >= pairs)
        return X(get)(s[pairs + j], o, n);
    return X(add)(X(get)(s[2 * j], o, n), X(get)(s[2 * j + 1], o, n));
}

ALWAYS VECTOR X(fold)(const void *const *s, int k, size_t o, size_t n)
{
    const int q = k >= 4 ? 4 : k >= 2 ? 2 : 1, pairs = k - q;

    if (q == 1)
        return X(get)(s[0], o, n);
    if (q == 2)
        return X(add)(X(leaf)(s, pairs, 0, o, n), X(leaf)(s, pairs, 1, o, n));
    return X(add)(X(add)(X(leaf)(s, pairs, 0, o, n), X(leaf)(s, pairs, 1, o, n)),
                  X(add)(X(leaf)(s, pairs, 2, o, n), X(leaf)(s, pairs, 3, o, n)));
}

/* One finished vector, but for its NaNs. */
ALWAYS VECTOR X(value)(const void *const *s, int k, size_t o, size_t n, const struct extra *e, bool more,
                       VECTOR by)
{
    VECTOR x = X(fold)(s, k, o, n);

    if (!more)
        return x;
    for (int c = 0; c < e->carries; c++)
        x = X(add)(X(get)(e->carry[c], o, n), x);
    if (e->scale)
        x = e->reciprocal ? X(mul)(x, by) : X(div)(x, by);
    return x;
}

ALWAYS void X(put)(void *const *to, int d, size_t o, size_t n, VECTOR x)
{
    for (int i = 0; i < d; i++) {
        if (n)
            X(store_part)((char *)to[i] + o, x, n);
        else
            X(store)((char *)to[i] + o, x);
    }
}

/* k and d are constants. Sources may be destinations: a block is read before it is written. */
ALWAYS void X(pass)(void *const *to0, const void *const *from, size_t bytes, const struct extra *e, int k,
                    int d, bool more)
{
    const void *s[PASS_SOURCES];
    void *to[PASS_DESTINATIONS];
    const VECTOR by = X(fill)(more ? (ELEMENT)e->by : (ELEMENT)0);
    size_t o = 0;

    for (int i = 0; i < k; i++)
        s[i] = from[i];
    for (int i = 0; i < d; i++)
        to[i] = to0[i];
    if (bytes >= 16 * LANE_BYTES && !(more && e->carries)) {
        const size_t head = (0 - (uintptr_t)to[0]) % LANE_BYTES / sizeof(ELEMENT);

        if (head > 0) { /* stores that cross lines cost more than one odd vector */
            X(put)(to, d, 0, head, X(quiet)(X(value)(s, k, 0, head, e, more, by)));
            o = head * sizeof(ELEMENT);
        }
    }
    for (; bytes - o >= 4 * LANE_BYTES; o += 4 * LANE_BYTES) {
        VECTOR x0 = X(value)(s, k, o, 0, e, more, by);
        VECTOR x1 = X(value)(s, k, o + LANE_BYTES, 0, e, more, by);
        VECTOR x2 = X(value)(s, k, o + 2 * LANE_BYTES, 0, e, more, by);
        VECTOR x3 = X(value)(s, k, o + 3 * LANE_BYTES, 0, e, more, by);

        if (RR_UNLIKELY(X(any_nan)(x0, x1, x2, x3))) {
            x0 = X(quiet)(x0);
            x1 = X(quiet)(x1);
            x2 = X(quiet)(x2);
            x3 = X(quiet)(x3);
        }
        X(put)(to, d, o, 0, x0);
        X(put)(to, d, o + LANE_BYTES, 0, x1);
        X(put)(to, d, o + 2 * LANE_BYTES, 0, x2);
        X(put)(to, d, o + 3 * LANE_BYTES, 0, x3);
    }
    for (; bytes - o >= LANE_BYTES; o += LANE_BYTES)
        X(put)(to, d, o, 0, X(quiet)(X(value)(s, k, o, 0, e, more, by)));
    if (o < bytes) {
        const size_t n = (bytes - o) / sizeof(ELEMENT);

        X(put)(to, d, o, n, X(quiet)(X(value)(s, k, o, n, e, more, by)));
    }
}

#define PASS(k, d)                                                                                      \
    static void X(sum_##k##_##d)(void *const *to, const void *const *from, size_t bytes,                \
                                 const struct extra *e)                                                 \
    {                                                                                                   \
        X(pass)(to, from, bytes, e, k, d, false);                                                       \
    }                                                                                                   \
    static void X(more_##k##_##d)(void *const *to, const void *const *from, size_t bytes,               \
                                  const struct extra *e)                                                \
    {                                                                                                   \
        X(pass)(to, from, bytes, e, k, d, true);                                                        \
    }
PASS(1, 1) PASS(1, 2) PASS(1, 3) PASS(1, 4)
PASS(2, 1) PASS(2, 2) PASS(2, 3) PASS(2, 4)
PASS(3, 1) PASS(3, 2) PASS(3, 3) PASS(3, 4)
PASS(4, 1) PASS(4, 2) PASS(4, 3) PASS(4, 4)
PASS(5, 1) PASS(6, 1) PASS(7, 1) PASS(8, 1)
#undef PASS

typedef void (*X(pass_fn))(void *const *to, const void *const *from, size_t bytes, const struct extra *e);

#define ROW(word, k) { X(word##_##k##_1), X(word##_##k##_2), X(word##_##k##_3), X(word##_##k##_4) }
static const X(pass_fn) X(narrow)[2][4][4] = { /* [extra][sources - 1][destinations - 1] */
    { ROW(sum, 1), ROW(sum, 2), ROW(sum, 3), ROW(sum, 4) },
    { ROW(more, 1), ROW(more, 2), ROW(more, 3), ROW(more, 4) },
};
#undef ROW
static const X(pass_fn) X(wide)[2][5] = { /* [extra][sources - 4], one destination */
    { X(sum_4_1), X(sum_5_1), X(sum_6_1), X(sum_7_1), X(sum_8_1) },
    { X(more_4_1), X(more_5_1), X(more_6_1), X(more_7_1), X(more_8_1) },
};

/* Sums one tile of more than four sources. s is already at the tile. */
static void X(tree)(void *to, const void *const *s, int k, size_t bytes, const struct extra *last)
{
    char tile[STACK_TILES][TILE_BYTES] __attribute__((aligned(RR_LINE)));
    int q = 4, depth = 0;

    while (q * 2 < k)
        q *= 2;                      /* a full tree of 2q is q pairs: k is 5 to 8 for each four leaves */

    const int groups = q / 4, pairs = k - q;
    struct extra e = { 0 };

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
        X(wide)[e.carries > 0 || e.scale][paired](&into, s, bytes, &e);
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
    const uint64_t mode = fpmode_enter();
    struct extra e;

    extra_init(&e, r->divisor);
    if (RR_LIKELY(r->sources <= 4 && r->destinations <= PASS_DESTINATIONS))
        X(narrow)[e.scale][r->sources - 1][r->destinations - 1](destination, source,
                                                              r->count * sizeof(ELEMENT), &e);
    else
        X(tiles)(r, destination, source, &e);
    fpmode_leave(mode);
}

#undef ELEMENT
#undef VECTOR
#undef X
