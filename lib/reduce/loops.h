/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops for every type and operator, which the compiler turns into vectors of the instruction
 * set that the including file is compiled for; they make up a struct rr_loops. No loop branches on
 * what it reads: where the reference decides, these select. The file has load_f, store_f, fill_f,
 * add_f, mul_f and quiet_f of lanes.h, and half_load and half_store, which convert HALF_LANES float16
 * to a HALF_VECTOR of float32 and back as the hardware does. */
#include "reduce/kernels.h"

#include <string.h>

#if defined(__clang__)
#define EACH _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < n; i++)
#else
#define EACH _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++)
#endif

/* Arrays begin at any address, and hold what they hold. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef float any_float32 ANYWHERE;
typedef double any_float64 ANYWHERE;
typedef int8_t any_int8 ANYWHERE;
typedef int16_t any_int16 ANYWHERE;
typedef int32_t any_int32 ANYWHERE;
typedef int64_t any_int64 ANYWHERE;
typedef uint8_t any_uint8 ANYWHERE;
typedef uint16_t any_uint16 ANYWHERE;
typedef uint32_t any_uint32 ANYWHERE;
typedef uint64_t any_uint64 ANYWHERE;

#define ONE(name, to_type, from_type, expression)                        \
    static void name(void *to, const void *from, size_t n)               \
    {                                                                    \
        any_##to_type *t = to;                                           \
        const any_##from_type *f = from;                                 \
        EACH t[i] = expression(f[i]);                                    \
    }
#define BY(name, type, expression)                                       \
    static void name(void *to, const void *from, size_t n, double by)    \
    {                                                                    \
        any_##type *t = to;                                              \
        const any_##type *f = from;                                      \
        EACH t[i] = expression(f[i], by);                                \
    }
#define TWO(name, type, expression)                                      \
    static void name(void *to, const void *first, const void *second, size_t n) \
    {                                                                    \
        any_##type *t = to;                                              \
        const any_##type *a = first, *b = second;                        \
        EACH t[i] = expression(a[i], b[i]);                              \
    }

/* ---- integers: unsigned arithmetic wraps ---- */

#define INTEGER(type, wide, quotient)                                                            \
    static inline type##_t least_##type(type##_t a, type##_t b)                                  \
    {                                                                                            \
        return a < b ? a : b;                                                                    \
    }                                                                                            \
    static inline type##_t most_##type(type##_t a, type##_t b)                                   \
    {                                                                                            \
        return a < b ? b : a;                                                                    \
    }                                                                                            \
    static inline type##_t over_one_##type(type##_t x, double by)                                \
    {                                                                                            \
        return (type##_t)((wide)x / (quotient)by);                                               \
    }                                                                                            \
    TWO(min_##type, type, least_##type)                                                          \
    TWO(max_##type, type, most_##type)                                                           \
    BY(over_##type, type, over_one_##type)

/* Quotients of fewer than 54 (25) bits are exact enough in float64 (float32) to be cut. */
INTEGER(int8, float, float)
INTEGER(int16, float, float)
INTEGER(int32, double, double)
INTEGER(int64, int64_t, int64_t)
INTEGER(uint8, float, float)
INTEGER(uint16, float, float)
INTEGER(uint32, double, double)
INTEGER(uint64, uint64_t, uint64_t)

#define SUM_OF(a, b) a + b
#define PRODUCT_OF(a, b) a * b
#define AND_OF(a, b) a & b
#define OR_OF(a, b) a | b
#define XOR_OF(a, b) a ^ b
#define BOTH(a, b) (a != 0) & (b != 0)
#define EITHER(a, b) (a | b) != 0
#define ODD(a, b) (a != 0) ^ (b != 0)

#define WORD_OP(name, type, unsigned_type, of)                                                   \
    static inline type##_t name##_one_##type(unsigned_type a, unsigned_type b)                   \
    {                                                                                            \
        return (type##_t)(of(a, b));                                                             \
    }                                                                                            \
    TWO(name##_##type, type, name##_one_##type)
#define WORD(type, unsigned_type)                                                                \
    static inline type##_t truth_one_##type(type##_t x)                                          \
    {                                                                                            \
        return x != 0;                                                                           \
    }                                                                                            \
    ONE(truth_##type, type, type, truth_one_##type)                                              \
    WORD_OP(sum, type, unsigned_type, SUM_OF)                                                    \
    WORD_OP(prod, type, unsigned_type, PRODUCT_OF)                                               \
    WORD_OP(band, type, unsigned_type, AND_OF)                                                   \
    WORD_OP(bor, type, unsigned_type, OR_OF)                                                     \
    WORD_OP(bxor, type, unsigned_type, XOR_OF)                                                   \
    WORD_OP(land, type, unsigned_type, BOTH)                                                     \
    WORD_OP(lor, type, unsigned_type, EITHER)                                                    \
    WORD_OP(lxor, type, unsigned_type, ODD)

WORD(uint8, uint32_t)
WORD(uint16, uint32_t)
WORD(uint32, uint32_t)
WORD(uint64, uint64_t)

/* ---- float32 and float64 ---- */

/* A NaN loses against nothing: the first as itself, the second because no comparison holds. Of two
 * zeros, the bits decide: with the sign of either for the lesser, of both for the greater. */
#define FLOAT(type, real, bits_type, nan)                                                        \
    static inline bits_type bits_##type(real x)                                                  \
    {                                                                                            \
        bits_type bits;                                                                          \
        memcpy(&bits, &x, sizeof bits);                                                          \
        return bits;                                                                             \
    }                                                                                            \
    static inline real of_bits_##type(bits_type bits)                                            \
    {                                                                                            \
        real x;                                                                                  \
        memcpy(&x, &bits, sizeof x);                                                             \
        return x;                                                                                \
    }                                                                                            \
    static inline real quiet_##type(real x)                                                      \
    {                                                                                            \
        const bits_type bits = bits_##type(x);                                                   \
        return of_bits_##type(x == x ? bits : nan);                                              \
    }                                                                                            \
    static inline real sum_one_##type(real a, real b)                                            \
    {                                                                                            \
        return a + b;                                                                            \
    }                                                                                            \
    static inline real prod_one_##type(real a, real b)                                           \
    {                                                                                            \
        return a * b;                                                                            \
    }                                                                                            \
    static inline real min_one_##type(real a, real b)                                            \
    {                                                                                            \
        const bits_type x = bits_##type(a), y = bits_##type(b), same = a == b ? x : 0;           \
        const bool first = (a < b) | (a != a);                                                   \
        return of_bits_##type(first ? x : y | same);                                             \
    }                                                                                            \
    static inline real max_one_##type(real a, real b)                                            \
    {                                                                                            \
        const bits_type x = bits_##type(a), y = bits_##type(b), same = a == b ? x : (bits_type)-1; \
        const bool first = (a > b) | (a != a);                                                   \
        return of_bits_##type(first ? x : y & same);                                             \
    }                                                                                            \
    static inline real times_one_##type(real x, double by)                                       \
    {                                                                                            \
        return x * (real)by;                                                                     \
    }                                                                                            \
    static inline real over_one_##type(real x, double by)                                        \
    {                                                                                            \
        return x / (real)by;                                                                     \
    }                                                                                            \
    TWO(sum_##type, type, sum_one_##type)                                                        \
    FLOAT_OP(prod, type, real)                                                                   \
    FLOAT_OP(min, type, real)                                                                    \
    FLOAT_OP(max, type, real)                                                                    \
    ONE(settle_##type, type, type, quiet_##type)                                                 \
    BY(times_##type, type, times_one_##type)                                                     \
    BY(over_##type, type, over_one_##type)
#define FLOAT_OP(name, type, real)                                                               \
    static inline real name##_quiet_##type(real a, real b)                                       \
    {                                                                                            \
        return quiet_##type(name##_one_##type(a, b));                                            \
    }                                                                                            \
    TWO(name##_##type, type, name##_one_##type)                                                  \
    TWO(name##_pair_##type, type, name##_quiet_##type)

FLOAT(float32, float, uint32_t, RR_NAN_FLOAT32)
FLOAT(float64, double, uint64_t, RR_NAN_FLOAT64)

/* ---- complex numbers: their sums are sums of their parts, elsewhere ---- */

/* Products wait in memory for their sums, behind a fence for the compiler: gcc 12 fuses them in the
 * vectors of AVX-512 otherwise, whatever -ffp-contract says. */
#define PRODUCTS 64
#define COMPLEX(type, part, real)                                                                \
    static inline void products_##type(any_##part *t, const any_##part *a, const any_##part *b,  \
                                       size_t n)                                                 \
    {                                                                                            \
        real xu[PRODUCTS], yv[PRODUCTS], xv[PRODUCTS], yu[PRODUCTS];                             \
        EACH                                                                                     \
        {                                                                                        \
            const real x = a[2 * i], y = a[2 * i + 1], u = b[2 * i], v = b[2 * i + 1];           \
            xu[i] = x * u, yv[i] = y * v, xv[i] = x * v, yu[i] = y * u;                          \
        }                                                                                        \
        __asm__ __volatile__("" ::"r"(xu), "r"(yv), "r"(xv), "r"(yu) : "memory");                \
        EACH t[2 * i] = xu[i] - yv[i], t[2 * i + 1] = xv[i] + yu[i];                             \
    }                                                                                            \
    static void prod_##type(void *to, const void *first, const void *second, size_t n)           \
    {                                                                                            \
        any_##part *t = to;                                                                      \
        const any_##part *a = first, *b = second;                                                \
        for (; n > PRODUCTS; n -= PRODUCTS) {                                                    \
            products_##type(t, a, b, PRODUCTS);                                                  \
            t += 2 * PRODUCTS, a += 2 * PRODUCTS, b += 2 * PRODUCTS;                             \
        }                                                                                        \
        products_##type(t, a, b, n);                                                             \
    }                                                                                            \
    static void settle_##type(void *to, const void *from, size_t n)                              \
    {                                                                                            \
        settle_##part(to, from, 2 * n);                                                          \
    }
COMPLEX(complex64, float32, float)
COMPLEX(complex128, float64, double)

/* ---- bfloat16 and float8: their bits come and go as the lowest ones of a uint32_t ---- */

static inline float widen_bfloat16(uint32_t x)
{
    return of_bits_float32(x << 16);
}

/* The upper half is the bfloat16. */
static inline uint32_t near_bfloat16(float x)
{
    const uint32_t bits = bits_float32(x);

    return x == x ? bits + 0x7fff + (bits >> 16 & 1) : RR_NAN_FLOAT32;
}

static inline uint32_t narrow_bfloat16(float x)
{
    return near_bfloat16(x) >> 16;
}

/* size, the bits without the sign, is a float32 that is too small by a power of two (of denormals,
 * too); from `over` on it is none. */
static inline float widen(uint32_t size, uint32_t sign, int mantissa, float power, int32_t over)
{
    const uint32_t moved = size << (23 - mantissa);
    const uint32_t bits = bits_float32(of_bits_float32(moved) * power);

    return of_bits_float32(((int32_t)size >= over ? moved | 0x7f800000 : bits) | sign);
}

/* The bits without the sign, rounded to nearest even, of |x| with its bits in size. Below the smallest
 * normal number, adding a number with the same last place rounds. `most` is beyond the largest. */
static inline uint32_t narrow(int32_t size, int mantissa, int bias, int32_t most)
{
    const int drop = 23 - mantissa;
    const int32_t small = (128 - bias) << 23, base = (127 - bias) << 23;
    const int32_t last = (128 - bias + drop) << 23; /* its last place is that of denormals */
    const int32_t held = size < most ? size : most;
    const int32_t normal = (held + ((1 << (drop - 1)) - 1 - base) + (held >> drop & 1)) >> drop;
    const uint32_t denormal = bits_float32(of_bits_float32((uint32_t)held) + of_bits_float32((uint32_t)last));

    return held < small ? denormal - (uint32_t)last : (uint32_t)normal;
}

static inline float widen_float8_e5m2(uint32_t x)
{
    return widen(x & 0x7f, (x & 0x80) << 24, 2, 0x1p112f, 0x7c);
}

static inline uint32_t narrow_float8_e5m2(float x)
{
    const uint32_t bits = bits_float32(x), near = narrow(bits & 0x7fffffff, 2, 15, 0x47800000);

    return x == x ? near | (bits >> 24 & 0x80) : RR_NAN_E5M2;
}

static inline float widen_float8_e4m3fn(uint32_t x)
{
    return widen(x & 0x7f, (x & 0x80) << 24, 3, 0x1p120f, 0x7f);
}

static inline uint32_t narrow_float8_e4m3fn(float x)
{
    const uint32_t bits = bits_float32(x), near = narrow(bits & 0x7fffffff, 3, 7, 0x44000000);

    return (int32_t)near < (int32_t)RR_NAN_E4M3FN ? near | (bits >> 24 & 0x80) : RR_NAN_E4M3FN;
}

/* Sums take words of two or four elements, which stay in their lanes: nothing is shuffled. */
#define BYTE(type, j, word) widen_##type((word) >> 8 * (j) & 0xff)
#define LOW(word) of_bits_float32((word) << 16)
#define HIGH(word) of_bits_float32((word) & 0xffff0000)
#define BYTE_TREE2(type, j) (BYTE(type, j, s0[i]) + BYTE(type, j, s1[i]))
#define BYTE_TREE3(type, j) (BYTE_TREE2(type, j) + BYTE(type, j, s2[i]))
#define BYTE_TREE4(type, j) (BYTE_TREE2(type, j) + (BYTE(type, j, s2[i]) + BYTE(type, j, s3[i])))
#define HALF_TREE2(part) (part(s0[i]) + part(s1[i]))
#define HALF_TREE3(part) (HALF_TREE2(part) + part(s2[i]))
#define HALF_TREE4(part) (HALF_TREE2(part) + (part(s2[i]) + part(s3[i])))
#define BYTE_SUM(k, type, j) narrow_##type(BYTE_TREE##k(type, j) * by) << 8 * (j)
#define BYTES_SUM(k, type) \
    BYTE_SUM(k, type, 0) | BYTE_SUM(k, type, 1) | BYTE_SUM(k, type, 2) | BYTE_SUM(k, type, 3)
#define HALVES_SUM(k, type) \
    narrow_##type(HALF_TREE##k(LOW) * by) | (near_##type(HALF_TREE##k(HIGH) * by) & 0xffff0000)

/* The tree over k sources, times a factor, of which 1 changes nothing. */
#define NARROW_SUM(k, type, bytes, words)                                                        \
    static void words##k##_##type(void *to, const void *const *from, size_t n, float by)         \
    {                                                                                            \
        any_uint32 *t = to;                                                                      \
        const any_uint32 *s0 = from[0], *s1 = from[1], *s2 = from[k < 3 ? 0 : 2],                \
                         *s3 = from[k < 4 ? 0 : 3];                                              \
        (void)s2, (void)s3;                                                                      \
        EACH t[i] = words(k, type);                                                              \
    }                                                                                            \
    static void sum##k##_##type(void *to, const void *const *from, size_t n, double factor)      \
    {                                                                                            \
        const size_t rest = n * bytes % 4, whole = n * bytes - rest;                             \
        uint32_t part[k] = { 0 }, sum;                                                           \
        const void *last[k];                                                                     \
        words##k##_##type(to, from, whole / 4, (float)factor);                                   \
        for (int j = 0; j < k; j++) {                                                            \
            memcpy(&part[j], (const char *)from[j] + whole, rest);                               \
            last[j] = &part[j];                                                                  \
        }                                                                                        \
        words##k##_##type(&sum, last, rest > 0, (float)factor);                                  \
        memcpy((char *)to + whole, &sum, rest);                                                  \
    }
#define NARROW(type, word, bytes, words)                                                         \
    static inline word##_t narrow_one_##type(float x)                                            \
    {                                                                                            \
        return (word##_t)narrow_##type(x);                                                       \
    }                                                                                            \
    ONE(load_##type, float32, word, widen_##type)                                                \
    ONE(store_##type, word, float32, narrow_one_##type)                                          \
    NARROW_SUM(2, type, bytes, words)                                                            \
    NARROW_SUM(3, type, bytes, words)                                                            \
    NARROW_SUM(4, type, bytes, words)

NARROW(bfloat16, uint16, 2, HALVES_SUM)
NARROW(float8_e4m3fn, uint8, 1, BYTES_SUM)
NARROW(float8_e5m2, uint8, 1, BYTES_SUM)

/* ---- float16: the hardware converts whole vectors, of which the last is filled up with zeros ---- */

#define FLOAT16(j) half_load(s[j])
#define FLOAT16_TREE2 add_f(FLOAT16(0), FLOAT16(1))
#define FLOAT16_TREE3 add_f(FLOAT16_TREE2, FLOAT16(2))
#define FLOAT16_TREE4 add_f(FLOAT16_TREE2, add_f(FLOAT16(2), FLOAT16(3)))
#define FLOAT16_SUM(k)                                                                           \
    static void sum##k##_float16(void *to, const void *const *from, size_t n, double factor)     \
    {                                                                                            \
        const HALF_VECTOR by = fill_f((float)factor);                                            \
        char last[k][2 * HALF_LANES] = { { 0 } }, *t = to;                                       \
        const char *s[k];                                                                        \
        for (int j = 0; j < k; j++)                                                              \
            s[j] = from[j];                                                                      \
        for (; n >= HALF_LANES; n -= HALF_LANES, t += 2 * HALF_LANES) {                          \
            half_store(t, quiet_f(mul_f(FLOAT16_TREE##k, by)));                                  \
            for (int j = 0; j < k; j++)                                                          \
                s[j] += 2 * HALF_LANES;                                                          \
        }                                                                                        \
        for (int j = 0; j < k; j++)                                                              \
            s[j] = memcpy(last[j], s[j], 2 * n);                                                 \
        half_store(last[0], quiet_f(mul_f(FLOAT16_TREE##k, by)));                                \
        memcpy(t, last[0], 2 * n);                                                               \
    }
FLOAT16_SUM(2)
FLOAT16_SUM(3)
FLOAT16_SUM(4)

static void load_float16(void *to, const void *from, size_t n)
{
    char last[2 * HALF_LANES] = { 0 }, wide[4 * HALF_LANES], *t = to;
    const char *f = from;

    for (; n >= HALF_LANES; n -= HALF_LANES, t += 4 * HALF_LANES, f += 2 * HALF_LANES)
        store_f(t, half_load(f));
    memcpy(last, f, 2 * n);
    store_f(wide, half_load(last));
    memcpy(t, wide, 4 * n);
}

static void store_float16(void *to, const void *from, size_t n)
{
    char last[4 * HALF_LANES] = { 0 }, *t = to;
    const char *f = from;

    for (; n >= HALF_LANES; n -= HALF_LANES, t += 2 * HALF_LANES, f += 4 * HALF_LANES)
        half_store(t, quiet_f(load_f(f)));
    memcpy(last, f, 4 * n);
    half_store(last, quiet_f(load_f(last)));
    memcpy(t, last, 2 * n);
}

/* ---- the table: operators in their order, sum avg prod min max band bor bxor land lor lxor ---- */

#define FLOAT_OPS(type) { sum_##type, sum_##type, prod_##type, min_##type, max_##type }
#define FLOAT_PAIRS(type) { NULL, NULL, prod_pair_##type, min_pair_##type, max_pair_##type }
#define INTEGER_OPS(type, word)                                                              \
    {                                                                                        \
        sum_##word, sum_##word, prod_##word, min_##type, max_##type, band_##word, bor_##word, \
            bxor_##word, land_##word, lor_##word, lxor_##word                                \
    }
#define BOOL_OPS                                                                             \
    {                                                                                        \
        lor_uint8, NULL, land_uint8, land_uint8, lor_uint8, land_uint8, lor_uint8, lxor_uint8, \
            land_uint8, lor_uint8, lxor_uint8                                                \
    }
#define INTEGERS                                                \
    [RINGRED_INT8] = INTEGER_OPS(int8, uint8),                  \
    [RINGRED_INT16] = INTEGER_OPS(int16, uint16),               \
    [RINGRED_INT32] = INTEGER_OPS(int32, uint32),               \
    [RINGRED_INT64] = INTEGER_OPS(int64, uint64),               \
    [RINGRED_UINT8] = INTEGER_OPS(uint8, uint8),                \
    [RINGRED_UINT16] = INTEGER_OPS(uint16, uint16),             \
    [RINGRED_UINT32] = INTEGER_OPS(uint32, uint32),             \
    [RINGRED_UINT64] = INTEGER_OPS(uint64, uint64),             \
    [RINGRED_BOOL] = BOOL_OPS

#define LOOPS(sum_of_float32, sum_of_float64)                                                    \
    {                                                                                            \
        .load = { [RINGRED_FLOAT16] = load_float16,                                                \
                  [RINGRED_BFLOAT16] = load_bfloat16,                                            \
                  [RINGRED_FLOAT8_E4M3FN] = load_float8_e4m3fn,                                  \
                  [RINGRED_FLOAT8_E5M2] = load_float8_e5m2 },                                    \
        .store = { [RINGRED_FLOAT32] = settle_float32,                                           \
                   [RINGRED_FLOAT64] = settle_float64,                                           \
                   [RINGRED_FLOAT16] = store_float16,                                              \
                   [RINGRED_BFLOAT16] = store_bfloat16,                                          \
                   [RINGRED_FLOAT8_E4M3FN] = store_float8_e4m3fn,                                \
                   [RINGRED_FLOAT8_E5M2] = store_float8_e5m2,                                    \
                   [RINGRED_COMPLEX64] = settle_complex64,                                       \
                   [RINGRED_COMPLEX128] = settle_complex128 },                                   \
        .truth = { [1] = truth_uint8, [2] = truth_uint16, [4] = truth_uint32, [8] = truth_uint64 }, \
        .times = { [RINGRED_FLOAT32] = times_float32, [RINGRED_FLOAT64] = times_float64 },       \
        .over = { [RINGRED_FLOAT32] = over_float32,                                              \
                  [RINGRED_FLOAT64] = over_float64,                                              \
                  [RINGRED_INT8] = over_int8,                                                    \
                  [RINGRED_INT16] = over_int16,                                                  \
                  [RINGRED_INT32] = over_int32,                                                  \
                  [RINGRED_INT64] = over_int64,                                                  \
                  [RINGRED_UINT8] = over_uint8,                                                  \
                  [RINGRED_UINT16] = over_uint16,                                                \
                  [RINGRED_UINT32] = over_uint32,                                                \
                  [RINGRED_UINT64] = over_uint64 },                                              \
        .two = { [RINGRED_FLOAT32] = FLOAT_OPS(float32),                                         \
                 [RINGRED_FLOAT64] = FLOAT_OPS(float64),                                         \
                 [RINGRED_COMPLEX64] = { [2] = prod_complex64 },                                 \
                 [RINGRED_COMPLEX128] = { [2] = prod_complex128 },                               \
                 INTEGERS },                                                                     \
        .pair = { [RINGRED_FLOAT32] = FLOAT_PAIRS(float32),                                      \
                  [RINGRED_FLOAT64] = FLOAT_PAIRS(float64),                                      \
                  INTEGERS },                                                                    \
        .sum = { [RINGRED_FLOAT16] = { sum2_float16, sum3_float16, sum4_float16 },                        \
                 [RINGRED_BFLOAT16] = { sum2_bfloat16, sum3_bfloat16, sum4_bfloat16 },           \
                 [RINGRED_FLOAT8_E4M3FN] = { sum2_float8_e4m3fn, sum3_float8_e4m3fn,             \
                                             sum4_float8_e4m3fn },                               \
                 [RINGRED_FLOAT8_E5M2] = { sum2_float8_e5m2, sum3_float8_e5m2,                   \
                                           sum4_float8_e5m2 } },                                 \
        .sum_float32 = sum_of_float32,                                                           \
        .sum_float64 = sum_of_float64,                                                           \
    }
