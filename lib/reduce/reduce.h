/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the reduce room: k sources become d destinations, in one pass. docs/NUMBERS.md has the
 * rules of every type and operator; here is their order. For each element i, a kernel computes
 *     term[s] = weight[s] * source[s][i]                 if there are weights
 *     acc = fold(term[0], ..., term[k-1])                the canonical tree over the k sources, in order
 *     if divisor > 1: acc = acc / divisor                one division
 *     if scale: acc = acc * scale
 *     destination[0..d-1][i] = acc
 * where fold is: q = the largest power of two <= k, rem = k - q; the first 2*rem sources are joined
 * in pairs (0,1),(2,3)..., the rest stand alone; then a balanced binary tree over those q values.
 * Floats of 8 and 16 bits are widened to float32, which all of this happens in, and narrowed once, at
 * the end; the other types are what they are accumulated in. Each operation rounds to nearest even and
 * keeps denormals; a NaN result is one quiet NaN per type.
 * Sources may be the same array as a destination (element by element) if they hold elements of one
 * size; otherwise no overlap. Arrays begin at any address. One source is a copy with all of the above.
 * ref.c is the meaning; every other file matches it byte for byte. */
#ifndef RR_REDUCE_H
#define RR_REDUCE_H

#include "base/base.h"

#define RR_REDUCE_SOURCES 256 /* the most that one call takes */

/* Types are 1 .. RR_TYPES - 1, operators RINGRED_SUM + (0 .. RR_OPS - 1). */
#define RR_TYPES (RINGRED_BYTES + 1)
#define RR_OPS (RINGRED_LXOR - RINGRED_SUM + 1)

/* An operator of the caller's, numbered from RR_USER_OP. One thread at a time uses it. */
#define RR_USER_OP (256 + 64)
#define RR_USER_OPS 64
#define RR_USER_BYTES_MOST ((size_t)1 << 20)
struct rr_user_op {
    ringred_op_fn fn;
    void *context;
    size_t element_bytes;
    size_t piece;              /* elements that are folded at once */
    char *room;                /* for partial results: RR_USER_LEVELS pieces */
};
#define RR_USER_LEVELS 10      /* of the tree over RR_REDUCE_SOURCES, and one for a pair */

/* Zero in what comes after divisor, but for count: none of it. */
struct rr_reduce {
    int type, op;              /* those that the kernel was asked for; AVG is SUM with a divisor */
    int sources, destinations; /* at least one of each */
    uint32_t divisor;          /* 1: no division. More with SUM and AVG alone, and never of bool */
    /* Floats of 8 and 16 bits: these arrays hold float32, so that partial results travel unrounded.
     * With other types they say nothing. */
    bool wide_sources, wide_destinations;
    size_t count;
    /* SUM and AVG of floats and complex numbers. Together and aligned, since kernels read them at
     * once, when the caller has hardly written them. */
    const float *weight;       /* a factor for each source */
    double scale;              /* rounded to the type of the accumulator (float32 or float64) */
    const struct rr_user_op *user; /* rr_reduce_user's, whose elements these are; type and op say nothing */
};

typedef void (*rr_reduce_fn)(const struct rr_reduce *r, void *const *destination, const void *const *source);

/* The fastest kernel of this machine for a type and an operator; NULL: no legal pair. A kernel checks
 * the caller's rounding and flush modes (MXCSR, FPCR), sets them aside and puts them back. */
rr_reduce_fn rr_reduce_kernel(int type, int op);
rr_reduce_fn rr_reduce_reference(int type, int op); /* ref.c */
void rr_reduce_user(const struct rr_reduce *r, void *const *destination, const void *const *source); /* user.c */
const char *rr_reduce_name(void);                   /* "avx512", "avx2", "neon", "c" */
/* Kernels by name, for tests and for the setting; NULL where this machine cannot run it. */
rr_reduce_fn rr_reduce_named(const char *name, int type, int op);

/* Copy for memory that another core reads next or has just written. */
void rr_copy(void *to, const void *from, size_t bytes);

/* ---- what types and operators there are ---- */
extern const uint8_t rr_type_bytes_table[RR_TYPES];

static inline size_t rr_type_bytes(int type) /* 0: unknown */
{
    return type > 0 && type < RR_TYPES ? rr_type_bytes_table[type] : 0;
}
bool rr_op_legal(int type, int op); /* false for unknown ones, too */
const char *rr_type_name(int type); /* "float32"; "?" if unknown */
const char *rr_op_name(int op);     /* "sum" */
int rr_type_of_name(const char *name); /* -1: unknown */
int rr_op_of_name(const char *name);

#endif
