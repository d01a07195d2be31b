/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with the Advanced SIMD that every aarch64 has. Tails of sums are loaded and stored in pieces. */
#include "reduce/kernels.h"

#include <arm_neon.h>

#define LANE_BYTES 16

static inline const float *floats(const void *p)
{
    return p;
}

static inline const double *doubles(const void *p)
{
    return p;
}

static inline float32x4_t load_f(const char *p)
{
    return vld1q_f32(floats(p));
}

static inline float32x4_t load_part_f(const char *p, size_t n)
{
    float32x4_t x = vdupq_n_f32(0);

    if (n & 2) {
        x = vcombine_f32(vld1_f32(floats(p)), vdup_n_f32(0));
        if (n & 1)
            x = vld1q_lane_f32(floats(p + 8), x, 2);
        return x;
    }
    return vld1q_lane_f32(floats(p), x, 0);
}

static inline void store_f(char *p, float32x4_t x)
{
    vst1q_f32((float *)(void *)p, x);
}

static inline void store_part_f(char *p, float32x4_t x, size_t n)
{
    float *to = (float *)(void *)p;

    if (!(n & 2)) {
        vst1q_lane_f32(to, x, 0);
        return;
    }
    vst1_f32(to, vget_low_f32(x));
    if (n & 1)
        vst1q_lane_f32(to + 2, x, 2);
}

static inline float32x4_t fill_f(float x)
{
    return vdupq_n_f32(x);
}

static inline float32x4_t add_f(float32x4_t a, float32x4_t b)
{
    return vaddq_f32(a, b);
}

static inline float32x4_t mul_f(float32x4_t a, float32x4_t b)
{
    return vmulq_f32(a, b);
}

static inline float32x4_t div_f(float32x4_t a, float32x4_t b)
{
    return vdivq_f32(a, b);
}

static inline float32x4_t quiet_f(float32x4_t x)
{
    return vbslq_f32(vceqq_f32(x, x), x, vreinterpretq_f32_u32(vdupq_n_u32(RR_NAN_FLOAT32)));
}

static inline bool any_nan_f(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d)
{
    const uint32x4_t ab = vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b));
    const uint32x4_t cd = vandq_u32(vceqq_f32(c, c), vceqq_f32(d, d));

    return vminvq_u32(vandq_u32(ab, cd)) == 0;
}

#define ELEMENT float
#define VECTOR float32x4_t
#define X(name) name##_f
#include "reduce/lanes.h"

static inline float64x2_t load_d(const char *p)
{
    return vld1q_f64(doubles(p));
}

static inline float64x2_t load_part_d(const char *p, size_t n)
{
    (void)n; /* a part of two is one */
    return vld1q_lane_f64(doubles(p), vdupq_n_f64(0), 0);
}

static inline void store_d(char *p, float64x2_t x)
{
    vst1q_f64((double *)(void *)p, x);
}

static inline void store_part_d(char *p, float64x2_t x, size_t n)
{
    (void)n;
    vst1q_lane_f64((double *)(void *)p, x, 0);
}

static inline float64x2_t fill_d(double x)
{
    return vdupq_n_f64(x);
}

static inline float64x2_t add_d(float64x2_t a, float64x2_t b)
{
    return vaddq_f64(a, b);
}

static inline float64x2_t mul_d(float64x2_t a, float64x2_t b)
{
    return vmulq_f64(a, b);
}

static inline float64x2_t div_d(float64x2_t a, float64x2_t b)
{
    return vdivq_f64(a, b);
}

static inline float64x2_t quiet_d(float64x2_t x)
{
    return vbslq_f64(vceqq_f64(x, x), x, vreinterpretq_f64_u64(vdupq_n_u64(RR_NAN_FLOAT64)));
}

static inline bool any_nan_d(float64x2_t a, float64x2_t b, float64x2_t c, float64x2_t d)
{
    const uint64x2_t ab = vandq_u64(vceqq_f64(a, a), vceqq_f64(b, b));
    const uint64x2_t cd = vandq_u64(vceqq_f64(c, c), vceqq_f64(d, d));

    return vminvq_u32(vreinterpretq_u32_u64(vandq_u64(ab, cd))) == 0;
}

#define ELEMENT double
#define VECTOR float64x2_t
#define X(name) name##_d
#include "reduce/lanes.h"

#define HALF_LANES 4
#define HALF_VECTOR float32x4_t

static inline float32x4_t half_load(const char *p)
{
    return vcvt_f32_f16(vld1_f16((const float16_t *)(const void *)p));
}

static inline void half_store(char *p, float32x4_t x)
{
    vst1_f16((float16_t *)(void *)p, vcvt_f16_f32(x));
}

#include "reduce/loops.h"

static const struct rr_loops loops = LOOPS(rr_reduce_neon_float32, rr_reduce_neon_float64);

void rr_reduce_neon(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    rr_tiles(&loops, r, destination, source);
}

void rr_reduce_neon_float32(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_f(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}

void rr_reduce_neon_float64(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    if (RR_LIKELY(is_plain(r)))
        reduce_d(r, destination, source);
    else
        rr_tiles(&loops, r, destination, source);
}
