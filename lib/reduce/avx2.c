/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and copies with AVX2 and F16C. Tails of sums are loaded under a mask and stored in pieces,
 * since masked stores are slow on some CPUs; dispatch.c has asked the CPU. */
#include "reduce/kernels.h"

#include <immintrin.h>

#define LANE_BYTES 32

/* From element 8 - n on: n times all ones. */
static const int32_t part_mask[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };

static inline __m256i part_mask_at(size_t elements)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(part_mask + 8 - elements));
}

static inline const float *floats(const void *p)
{
    return p;
}

static inline const double *doubles(const void *p)
{
    return p;
}

static inline __m256 load_f(const char *p)
{
    return _mm256_loadu_ps(floats(p));
}

static inline __m256 load_part_f(const char *p, size_t n)
{
    return _mm256_maskload_ps(floats(p), part_mask_at(n));
}

static inline void store_f(char *p, __m256 x)
{
    _mm256_storeu_ps((float *)(void *)p, x);
}

static inline void store_part_f(char *p, __m256 x, size_t n)
{
    __m128i half = _mm_castps_si128(_mm256_castps256_ps128(x));

    if (n & 4) {
        _mm_storeu_si128((__m128i *)(void *)p, half);
        half = _mm_castps_si128(_mm256_extractf128_ps(x, 1));
        p += 16;
    }
    if (n & 2) {
        _mm_storeu_si64(p, half);
        half = _mm_unpackhi_epi64(half, half);
        p += 8;
    }
    if (n & 1)
        _mm_storeu_si32(p, half);
}

static inline __m256 fill_f(float x)
{
    return _mm256_set1_ps(x);
}

static inline __m256 add_f(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}

static inline __m256 mul_f(__m256 a, __m256 b)
{
    return _mm256_mul_ps(a, b);
}

static inline __m256 div_f(__m256 a, __m256 b)
{
    return _mm256_div_ps(a, b);
}

static inline __m256 quiet_f(__m256 x)
{
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)RR_NAN_FLOAT32));

    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline bool any_nan_f(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 bad = _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q));

    return _mm256_movemask_ps(bad) != 0;
}

#define ELEMENT float
#define VECTOR __m256
#define X(name) name##_f
#include "reduce/lanes.h"

static inline __m256d load_d(const char *p)
{
    return _mm256_loadu_pd(doubles(p));
}

static inline __m256d load_part_d(const char *p, size_t n)
{
    return _mm256_maskload_pd(doubles(p), part_mask_at(2 * n));
}

static inline void store_d(char *p, __m256d x)
{
    _mm256_storeu_pd((double *)(void *)p, x);
}

static inline void store_part_d(char *p, __m256d x, size_t n)
{
    __m128i half = _mm_castpd_si128(_mm256_castpd256_pd128(x));

    if (n & 2) {
        _mm_storeu_si128((__m128i *)(void *)p, half);
        half = _mm_castpd_si128(_mm256_extractf128_pd(x, 1));
        p += 16;
    }
    if (n & 1)
        _mm_storeu_si64(p, half);
}

static inline __m256d fill_d(double x)
{
    return _mm256_set1_pd(x);
}

static inline __m256d add_d(__m256d a, __m256d b)
{
    return _mm256_add_pd(a, b);
}

static inline __m256d mul_d(__m256d a, __m256d b)
{
    return _mm256_mul_pd(a, b);
}

static inline __m256d div_d(__m256d a, __m256d b)
{
    return _mm256_div_pd(a, b);
}

static inline __m256d quiet_d(__m256d x)
{
    const __m256d nan = _mm256_castsi256_pd(_mm256_set1_epi64x((long long)RR_NAN_FLOAT64));

    return _mm256_blendv_pd(x, nan, _mm256_cmp_pd(x, x, _CMP_UNORD_Q));
}

static inline bool any_nan_d(__m256d a, __m256d b, __m256d c, __m256d d)
{
    const __m256d bad = _mm256_or_pd(_mm256_cmp_pd(a, b, _CMP_UNORD_Q), _mm256_cmp_pd(c, d, _CMP_UNORD_Q));

    return _mm256_movemask_pd(bad) != 0;
}

#define ELEMENT double
#define VECTOR __m256d
#define X(name) name##_d
#include "reduce/lanes.h"

#define HALF_LANES 8
#define HALF_VECTOR __m256

static inline __m256 half_load(const char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void half_store(char *p, __m256 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

#include "reduce/loops.h"

static const struct rr_loops loops = LOOPS(rr_reduce_avx2_float32, rr_reduce_avx2_float64);

void rr_reduce_avx2(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    rr_tiles(&loops, r, destination, source);
}

void rr_reduce_avx2_float32(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_f(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}

void rr_reduce_avx2_float64(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_d(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}

static inline __m256i line_half(const void *from)
{
    return _mm256_loadu_si256(from);
}

void rr_copy_avx2(void *to, const void *from, size_t bytes)
{
    char *t = to;
    const char *f = from;
    const size_t head = (0 - (uintptr_t)t) % 32;

    if (head > 0) {
        _mm256_storeu_si256((__m256i *)to, line_half(f));
        t += head;
        f += head;
        bytes -= head;
    }
    for (; bytes >= 128; bytes -= 128, t += 128, f += 128) {
        const __m256i a = line_half(f), b = line_half(f + 32), c = line_half(f + 64), d = line_half(f + 96);
        __m256i *line = (__m256i *)(void *)t;

        _mm256_store_si256(line, a);
        _mm256_store_si256(line + 1, b);
        _mm256_store_si256(line + 2, c);
        _mm256_store_si256(line + 3, d);
    }
    for (; bytes >= 32; bytes -= 32, t += 32, f += 32)
        _mm256_store_si256((__m256i *)(void *)t, line_half(f));
    if (bytes > 0) /* the vector that ends with the array; the copy is longer than one */
        _mm256_storeu_si256((__m256i *)(void *)(t + bytes - 32), line_half(f + bytes - 32));
}
