/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the reduce room share: the kernels that dispatch.c chooses from, and the loops
 * that tiles.c makes kernels of. */
#ifndef RR_KERNELS_H
#define RR_KERNELS_H

#include "reduce/reduce.h"

#define RR_NAN_FLOAT32 UINT32_C(0x7fc00000)
#define RR_NAN_FLOAT64 UINT64_C(0x7ff8000000000000)
#define RR_NAN_FLOAT16 0x7e00u
#define RR_NAN_BFLOAT16 0x7fc0u
#define RR_NAN_E4M3FN 0x7fu
#define RR_NAN_E5M2 0x7eu

typedef void (*rr_copy_fn)(void *to, const void *from, size_t bytes);

/* Loops over n numbers. `to` may be one of the arrays that are read. A float that has not been settled
 * yet may be any NaN; a truth value may be any number. */
typedef void (*rr_one_fn)(void *to, const void *from, size_t n);
typedef void (*rr_by_fn)(void *to, const void *from, size_t n, double by);
typedef void (*rr_two_fn)(void *to, const void *a, const void *b, size_t n);
typedef void (*rr_sum_fn)(void *to, const void *const *from, size_t n, double by);

/* What one instruction set has. NULL: not offered, or nothing needs doing. */
struct rr_loops {
    rr_one_fn load[RR_TYPES];        /* to float32, which floats of 8 and 16 bits accumulate in */
    rr_one_fn store[RR_TYPES];       /* from the accumulator's type, settled */
    rr_one_fn truth[9];              /* by the bytes of an integer: 0 or 1 */
    rr_by_fn times[RR_TYPES];        /* accumulators times a factor */
    rr_by_fn over[RR_TYPES];         /* ... divided */
    rr_two_fn two[RR_TYPES][RR_OPS]; /* ... joined */
    rr_two_fn pair[RR_TYPES][RR_OPS]; /* two sources to a destination, settled */
    rr_sum_fn sum[RR_TYPES][3];      /* two to four sources added, times a factor, settled */
    rr_reduce_fn sum_float32, sum_float64;
};

/* A kernel for all pairs, which the call names. */
void rr_tiles(const struct rr_loops *loops, const struct rr_reduce *r, void *const *destination,
              const void *const *source);

/* Each set has a kernel for everything, and sums of float32 and float64 by themselves. */
#define RR_KERNELS(set)                                                                                 \
    void rr_reduce_##set(const struct rr_reduce *r, void *const *destination, const void *const *source); \
    void rr_reduce_##set##_float32(const struct rr_reduce *r, void *const *destination,                 \
                                   const void *const *source);                                          \
    void rr_reduce_##set##_float64(const struct rr_reduce *r, void *const *destination,                 \
                                   const void *const *source);
RR_KERNELS(ref)
RR_KERNELS(avx2)
RR_KERNELS(avx512)
RR_KERNELS(neon)
#undef RR_KERNELS

void rr_copy_avx2(void *to, const void *from, size_t bytes);
void rr_copy_avx512(void *to, const void *from, size_t bytes);

#endif
