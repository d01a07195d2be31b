/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the reduce room: sums of k sources into d destinations, in one pass.
 *
 * What every kernel computes, for each element i:
 *     acc = fold(source[0][i], ..., source[k-1][i])      the canonical tree over the k sources, in order
 *     if divisor > 1: acc = acc / divisor                one IEEE division, round to nearest even
 *     destination[0..d-1][i] = acc
 * where fold is: q = the largest power of two <= k, rem = k - q; the first 2*rem sources are added
 * in pairs (0,1),(2,3)..., the rest stand alone; then a balanced binary tree over those q values.
 * A NaN result is one quiet NaN per type (sign 0, top mantissa bit only). Denormals are kept. Sources
 * may be the same array as a destination (element by element); otherwise no overlap.
 * ref.c is the meaning; every other file matches it byte for byte. */
#ifndef RR_REDUCE_H
#define RR_REDUCE_H

#include "base/base.h"

#define RR_REDUCE_SOURCES 256 /* the most that one call takes */

struct rr_reduce {
    int type;                  /* RINGRED_FLOAT32, ... */
    int op;                    /* RINGRED_SUM (AVG is SUM with a divisor) */
    int sources, destinations; /* at least one of each */
    uint32_t divisor;          /* 1: no division */
    size_t count;
};

typedef void (*rr_reduce_fn)(const struct rr_reduce *r, void *const *destination, const void *const *source);

/* The fastest kernel of this machine for a type and an operator; NULL: not offered. A kernel checks
 * the caller's rounding and flush modes (MXCSR, FPCR), sets them aside and puts them back. */
rr_reduce_fn rr_reduce_kernel(int type, int op);
rr_reduce_fn rr_reduce_reference(int type, int op); /* ref.c */
const char *rr_reduce_name(void);                   /* "avx512", "avx2", "neon", "c" */
/* Kernels by name, for tests and for the setting; NULL where this machine cannot run it. */
rr_reduce_fn rr_reduce_named(const char *name, int type, int op);

/* Copy for memory that another core reads next or has just written. */
void rr_copy(void *to, const void *from, size_t bytes);

static inline size_t rr_type_bytes(int type)
{
    return type == RINGRED_FLOAT32 ? 4 : type == RINGRED_FLOAT64 ? 8 : 0;
}
const char *rr_type_name(int type); /* "float32"; "?" if unknown */
const char *rr_op_name(int op);     /* "sum" */

#endif
