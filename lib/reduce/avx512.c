/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and copies with AVX-512 F, BW, DQ and VL. Tails of sums are masked; dispatch.c has asked
 * the CPU. */
#include "reduce/kernels.h"

#include <immintrin.h>

#define LANE_BYTES 64

static inline __m512 load_f(const char *p)
{
    return _mm512_loadu_ps(p);
}

static inline __m512 load_part_f(const char *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static inline void store_f(char *p, __m512 x)
{
    _mm512_storeu_ps(p, x);
}

static inline void store_part_f(char *p, __m512 x, size_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

static inline __m512 fill_f(float x)
{
    return _mm512_set1_ps(x);
}

static inline __m512 add_f(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

static inline __m512 mul_f(__m512 a, __m512 b)
{
    return _mm512_mul_ps(a, b);
}

static inline __m512 div_f(__m512 a, __m512 b)
{
    return _mm512_div_ps(a, b);
}

static inline __m512 quiet_f(__m512 x)
{
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)RR_NAN_FLOAT32));

    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

static inline bool any_nan_f(__m512 a, __m512 b, __m512 c, __m512 d)
{
    return !_mm512_kortestz(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q),
                            _mm512_cmp_ps_mask(c, d, _CMP_UNORD_Q));
}

#define ELEMENT float
#define VECTOR __m512
#define X(name) name##_f
#include "reduce/lanes.h"

static inline __m512d load_d(const char *p)
{
    return _mm512_loadu_pd(p);
}

static inline __m512d load_part_d(const char *p, size_t n)
{
    return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}

static inline void store_d(char *p, __m512d x)
{
    _mm512_storeu_pd(p, x);
}

static inline void store_part_d(char *p, __m512d x, size_t n)
{
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), x);
}

static inline __m512d fill_d(double x)
{
    return _mm512_set1_pd(x);
}

static inline __m512d add_d(__m512d a, __m512d b)
{
    return _mm512_add_pd(a, b);
}

static inline __m512d mul_d(__m512d a, __m512d b)
{
    return _mm512_mul_pd(a, b);
}

static inline __m512d div_d(__m512d a, __m512d b)
{
    return _mm512_div_pd(a, b);
}

static inline __m512d quiet_d(__m512d x)
{
    const __m512d nan = _mm512_castsi512_pd(_mm512_set1_epi64((long long)RR_NAN_FLOAT64));

    return _mm512_mask_mov_pd(x, _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q), nan);
}

static inline bool any_nan_d(__m512d a, __m512d b, __m512d c, __m512d d)
{
    return !_mm512_kortestz(_mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q),
                            _mm512_cmp_pd_mask(c, d, _CMP_UNORD_Q));
}

#define ELEMENT double
#define VECTOR __m512d
#define X(name) name##_d
#include "reduce/lanes.h"

#define HALF_LANES 16
#define HALF_VECTOR __m512

static inline __m512 half_load(const char *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void half_store(char *p, __m512 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "reduce/loops.h"

static const struct rr_loops loops = LOOPS(rr_reduce_avx512_float32, rr_reduce_avx512_float64);

void rr_reduce_avx512(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    rr_tiles(&loops, r, destination, source);
}

void rr_reduce_avx512_float32(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_f(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}

void rr_reduce_avx512_float64(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_d(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}

void rr_copy_avx512(void *to, const void *from, size_t bytes)
{
    char *t = to;
    const char *f = from;
    const size_t head = (0 - (uintptr_t)t) % 64;

    if (head > 0) { /* whole lines are written at once */
        _mm512_storeu_si512(t, _mm512_loadu_si512(f));
        t += head;
        f += head;
        bytes -= head;
    }
    for (; bytes >= 256; bytes -= 256, t += 256, f += 256) {
        const __m512i a = _mm512_loadu_si512(f), b = _mm512_loadu_si512(f + 64);
        const __m512i c = _mm512_loadu_si512(f + 128), d = _mm512_loadu_si512(f + 192);

        _mm512_store_si512(t, a);
        _mm512_store_si512(t + 64, b);
        _mm512_store_si512(t + 128, c);
        _mm512_store_si512(t + 192, d);
    }
    for (; bytes >= 64; bytes -= 64, t += 64, f += 64)
        _mm512_store_si512(t, _mm512_loadu_si512(f));
    if (bytes > 0) /* the vector that ends with the array; the copy is longer than one */
        _mm512_storeu_si512(t + bytes - 64, _mm512_loadu_si512(f + bytes - 64));
}
