/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the reduce room share: the kernels that dispatch.c chooses from. */
#ifndef RR_KERNELS_H
#define RR_KERNELS_H

#include "reduce/reduce.h"

#define RR_NAN_FLOAT32 UINT32_C(0x7fc00000)
#define RR_NAN_FLOAT64 UINT64_C(0x7ff8000000000000)

typedef void (*rr_copy_fn)(void *to, const void *from, size_t bytes);

void rr_reduce_ref_float32(const struct rr_reduce *r, void *const *destination, const void *const *source);
void rr_reduce_ref_float64(const struct rr_reduce *r, void *const *destination, const void *const *source);

void rr_reduce_avx2_float32(const struct rr_reduce *r, void *const *destination, const void *const *source);
void rr_reduce_avx2_float64(const struct rr_reduce *r, void *const *destination, const void *const *source);
void rr_copy_avx2(void *to, const void *from, size_t bytes);

void rr_reduce_avx512_float32(const struct rr_reduce *r, void *const *destination,
                              const void *const *source);
void rr_reduce_avx512_float64(const struct rr_reduce *r, void *const *destination,
                              const void *const *source);
void rr_copy_avx512(void *to, const void *from, size_t bytes);

void rr_reduce_neon_float32(const struct rr_reduce *r, void *const *destination, const void *const *source);
void rr_reduce_neon_float64(const struct rr_reduce *r, void *const *destination, const void *const *source);

#endif
