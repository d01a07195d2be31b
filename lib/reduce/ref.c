/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of every type and operator, in plain C: the executable form of docs/NUMBERS.md. Every
 * other kernel gives these bytes; where a machine has none of them, this one does the work. One
 * element after another; every operation is written as it is said. */
#include "reduce/kernels.h"

#include "reduce/fpmode.h"

#include <math.h>
#include <string.h>

/* What one element is accumulated in. Integers are extended to 64 bits; bool is 0 or 1. */
struct number {
    union {
        float f; /* floats up to 32 bits, complex64 */
        double d;
        uint64_t u;
    } re, im;
};

/* Floats of 8 and 16 bits. `over` is what lies beyond the largest finite number. */
struct format {
    int mantissa, bias;
    uint32_t over, nan;
};
static const struct format formats[] = {
    [RINGRED_FLOAT16] = { 10, 15, 0x7c00, RR_NAN_FLOAT16 },
    [RINGRED_BFLOAT16] = { 7, 127, 0x7f80, RR_NAN_BFLOAT16 },
    [RINGRED_FLOAT8_E4M3FN] = { 3, 7, 0x7f, RR_NAN_E4M3FN },
    [RINGRED_FLOAT8_E5M2] = { 2, 15, 0x7c, RR_NAN_E5M2 },
};

static bool is_narrow(int type)
{
    return type >= RINGRED_FLOAT16 && type <= RINGRED_FLOAT8_E5M2;
}

static bool is_signed(int type)
{
    return type >= RINGRED_INT8 && type <= RINGRED_INT64;
}

static bool is_double(int type)
{
    return type == RINGRED_FLOAT64 || type == RINGRED_COMPLEX128;
}

static bool is_complex(int type)
{
    return type == RINGRED_COMPLEX64 || type == RINGRED_COMPLEX128;
}

static bool is_integer(int type)
{
    return type >= RINGRED_INT8 && type <= RINGRED_BOOL;
}

/* ---- one element of an array ---- */

/* Exact. */
static float widen(int type, uint32_t bits)
{
    const struct format *f = &formats[type];
    const int width = 8 * (int)rr_type_bytes(type);
    const uint32_t size = bits & ((1u << (width - 1)) - 1), one = 1u << f->mantissa;
    const int exponent = (int)(size >> f->mantissa);
    double x;

    if (size > f->over || (size == f->over && f->over == f->nan))
        return NAN;
    if (size == f->over)
        x = INFINITY;
    else if (exponent == 0)
        x = ldexp(size, 1 - f->bias - f->mantissa);
    else
        x = ldexp((size & (one - 1)) + one, exponent - f->bias - f->mantissa);
    return (float)(bits >> (width - 1) ? -x : x);
}

/* To nearest, ties to even; denormals are kept. */
static uint32_t narrow(int type, float x)
{
    const struct format *f = &formats[type];
    const uint32_t sign = signbit(x) ? 1u << (8 * rr_type_bytes(type) - 1) : 0;
    double units, rest;
    uint64_t whole;
    int exponent;

    if (isnan(x))
        return f->nan;
    if (isinf(x))
        return f->over == f->nan ? f->nan : sign | f->over;
    frexp(x, &exponent); /* |x| is in [2^(exponent-1), 2^exponent) */
    exponent = exponent - 1 < 1 - f->bias || x == 0 ? 1 - f->bias : exponent - 1;
    units = ldexp(fabs((double)x), f->mantissa - exponent); /* of the last place of the result */
    whole = (uint64_t)units;
    rest = units - (double)whole;
    whole += rest > 0.5 || (rest == 0.5 && (whole & 1));
    whole += (uint64_t)(exponent + f->bias - 1) << f->mantissa; /* whole carries its leading one */
    if (whole >= f->over)
        return f->over == f->nan ? f->nan : sign | f->over;
    return sign | (uint32_t)whole;
}

/* The low bytes of u, as a number of the type. */
static uint64_t wrap(int type, uint64_t u)
{
    const int unused = 64 - 8 * (int)rr_type_bytes(type);

    if (type == RINGRED_BOOL)
        return u != 0;
    if (is_signed(type))
        return (uint64_t)((int64_t)(u << unused) >> unused);
    return u << unused >> unused;
}

static struct number load(int type, bool wide, const void *array, size_t i)
{
    const size_t bytes = rr_type_bytes(type);
    const char *at = (const char *)array + i * (wide ? sizeof(float) : bytes);
    struct number x = { { .u = 0 }, { .u = 0 } };

    if (is_narrow(type) && !wide) {
        uint32_t bits = 0;

        memcpy(&bits, at, bytes);
        x.re.f = widen(type, bits);
    } else if (is_integer(type)) {
        uint64_t bits = 0;

        memcpy(&bits, at, bytes);
        x.re.u = wrap(type, bits);
    } else if (is_double(type)) {
        memcpy(&x.re.d, at, 8);
        if (is_complex(type))
            memcpy(&x.im.d, at + 8, 8);
    } else {
        memcpy(&x.re.f, at, 4);
        if (is_complex(type))
            memcpy(&x.im.f, at + 4, 4);
    }
    return x;
}

static void store_float32(void *at, float x)
{
    uint32_t bits = RR_NAN_FLOAT32;

    if (!isnan(x))
        memcpy(&bits, &x, sizeof bits);
    memcpy(at, &bits, sizeof bits);
}

static void store_float64(void *at, double x)
{
    uint64_t bits = RR_NAN_FLOAT64;

    if (!isnan(x))
        memcpy(&bits, &x, sizeof bits);
    memcpy(at, &bits, sizeof bits);
}

static void store(int type, bool wide, void *array, size_t i, struct number x)
{
    const size_t bytes = rr_type_bytes(type);
    char *at = (char *)array + i * (wide ? sizeof(float) : bytes);

    if (is_narrow(type) && !wide) {
        const uint32_t bits = narrow(type, x.re.f);

        memcpy(at, &bits, bytes);
    } else if (is_integer(type)) {
        memcpy(at, &x.re.u, bytes);
    } else if (is_double(type)) {
        store_float64(at, x.re.d);
        if (is_complex(type))
            store_float64(at + 8, x.im.d);
    } else {
        store_float32(at, x.re.f);
        if (is_complex(type))
            store_float32(at + 4, x.im.f);
    }
}

/* ---- operators ---- */

/* -0 is less than +0; a NaN wins. */
static bool is_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double lesser(double a, double b)
{
    return isnan(a) || is_less(a, b) ? a : b;
}

static double greater(double a, double b)
{
    return isnan(a) || is_less(b, a) ? a : b;
}

static struct number join_floats(int op, struct number a, struct number b)
{
    switch (op) {
    case RINGRED_PROD:
        a.re.f *= b.re.f;
        break;
    case RINGRED_MIN:
        a.re.f = (float)lesser(a.re.f, b.re.f);
        break;
    case RINGRED_MAX:
        a.re.f = (float)greater(a.re.f, b.re.f);
        break;
    default:
        a.re.f += b.re.f;
    }
    return a;
}

static struct number join_doubles(int op, struct number a, struct number b)
{
    switch (op) {
    case RINGRED_PROD:
        a.re.d *= b.re.d;
        break;
    case RINGRED_MIN:
        a.re.d = lesser(a.re.d, b.re.d);
        break;
    case RINGRED_MAX:
        a.re.d = greater(a.re.d, b.re.d);
        break;
    default:
        a.re.d += b.re.d;
    }
    return a;
}

static struct number join_complex(int type, int op, struct number a, struct number b)
{
    struct number x;

    if (type == RINGRED_COMPLEX64 && op == RINGRED_PROD) {
        x.re.f = a.re.f * b.re.f - a.im.f * b.im.f;
        x.im.f = a.re.f * b.im.f + a.im.f * b.re.f;
    } else if (type == RINGRED_COMPLEX64) {
        x.re.f = a.re.f + b.re.f;
        x.im.f = a.im.f + b.im.f;
    } else if (op == RINGRED_PROD) {
        x.re.d = a.re.d * b.re.d - a.im.d * b.im.d;
        x.im.d = a.re.d * b.im.d + a.im.d * b.re.d;
    } else {
        x.re.d = a.re.d + b.re.d;
        x.im.d = a.im.d + b.im.d;
    }
    return x;
}

static uint64_t join_integers(int type, int op, uint64_t a, uint64_t b)
{
    const bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;

    switch (op) {
    case RINGRED_PROD:
        return a * b;
    case RINGRED_MIN:
        return less ? a : b;
    case RINGRED_MAX:
        return less ? b : a;
    case RINGRED_BAND:
        return a & b;
    case RINGRED_BOR:
        return a | b;
    case RINGRED_BXOR:
        return a ^ b;
    case RINGRED_LAND:
        return a && b;
    case RINGRED_LOR:
        return a || b;
    case RINGRED_LXOR:
        return !a != !b;
    default:
        return a + b;
    }
}

static struct number join(int type, int op, struct number a, struct number b)
{
    if (is_complex(type))
        return join_complex(type, op, a, b);
    if (is_double(type))
        return join_doubles(op, a, b);
    if (!is_integer(type))
        return join_floats(op, a, b);
    a.re.u = wrap(type, join_integers(type, op, a.re.u, b.re.u));
    return a;
}

/* ---- the steps of a call ---- */

/* How k sources become q leaves: the first rem leaves are pairs, q is a power of two. */
static int leaves(int k)
{
    int q = 1;

    while (q * 2 <= k)
        q *= 2;
    return q;
}

static struct number multiply(int type, struct number x, double by)
{
    if (is_double(type)) {
        x.re.d *= by;
        x.im.d *= by;
    } else {
        x.re.f *= (float)by;
        x.im.f *= (float)by;
    }
    return x;
}

static struct number divide(int type, struct number x, uint32_t by)
{
    if (is_signed(type)) {
        x.re.u = (uint64_t)((int64_t)x.re.u / by);
    } else if (is_integer(type)) {
        x.re.u /= by;
    } else if (is_double(type)) {
        x.re.d /= by;
        x.im.d /= by;
    } else {
        x.re.f /= (float)by;
        x.im.f /= (float)by;
    }
    return x;
}

static struct number term(const struct rr_reduce *r, int type, const void *const *source, int s, size_t i)
{
    const struct number x = load(type, is_narrow(type) && r->wide_sources, source[s], i);

    return r->weight ? multiply(type, x, r->weight[s]) : x;
}

static struct number fold(const struct rr_reduce *r, int type, int op, const void *const *source, size_t i)
{
    struct number leaf[RR_REDUCE_SOURCES];
    int q = leaves(r->sources), rem = r->sources - q;

    for (int j = 0; j < rem; j++)
        leaf[j] = join(type, op, term(r, type, source, 2 * j, i), term(r, type, source, 2 * j + 1, i));
    for (int j = rem; j < q; j++)
        leaf[j] = term(r, type, source, rem + j, i);
    for (; q > 1; q /= 2)
        for (int j = 0; j < q / 2; j++)
            leaf[j] = join(type, op, leaf[2 * j], leaf[2 * j + 1]);
    return leaf[0];
}

/* A logical operator leaves 0 or 1, of one source, too. */
static struct number truth(struct number x)
{
    x.re.u = x.re.u != 0;
    return x;
}

void rr_reduce_ref(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const uint64_t mode = fpmode_enter();
    const int type = r->type, op = r->op;

    for (size_t i = 0; i < r->count; i++) {
        struct number x = fold(r, type, op, source, i);

        if (r->divisor > 1)
            x = divide(type, x, r->divisor);
        if (r->scale != 0)
            x = multiply(type, x, r->scale);
        if (op >= RINGRED_LAND)
            x = truth(x);
        for (int d = 0; d < r->destinations; d++)
            store(type, is_narrow(type) && r->wide_destinations, destination[d], i, x);
    }
    fpmode_leave(mode);
}

/* ---- sums of float32 and float64 once more, as fast as a machine needs that has no other kernels ---- */

#define SUM(type, real)                                                                          \
    static real sum_##type(const void *const *source, int k, size_t i)                           \
    {                                                                                            \
        real leaf[RR_REDUCE_SOURCES], x, y;                                                      \
        int q = leaves(k), rem = k - q;                                                          \
                                                                                                 \
        for (int j = 0; j < rem; j++) {                                                          \
            memcpy(&x, (const char *)source[2 * j] + i * sizeof x, sizeof x);                    \
            memcpy(&y, (const char *)source[2 * j + 1] + i * sizeof y, sizeof y);                \
            leaf[j] = x + y;                                                                     \
        }                                                                                        \
        for (int j = rem; j < q; j++)                                                            \
            memcpy(&leaf[j], (const char *)source[rem + j] + i * sizeof x, sizeof x);            \
        for (; q > 1; q /= 2)                                                                    \
            for (int j = 0; j < q / 2; j++)                                                      \
                leaf[j] = leaf[2 * j] + leaf[2 * j + 1];                                         \
        return leaf[0];                                                                          \
    }                                                                                            \
                                                                                                 \
    static void sums_##type(const struct rr_reduce *r, void *const *destination, const void *const *source) \
    {                                                                                            \
        const uint64_t mode = fpmode_enter();                                                    \
                                                                                                 \
        for (size_t i = 0; i < r->count; i++) {                                                  \
            real x = sum_##type(source, r->sources, i);                                          \
                                                                                                 \
            if (r->divisor > 1)                                                                  \
                x /= (real)r->divisor;                                                           \
            for (int d = 0; d < r->destinations; d++)                                            \
                store_##type((char *)destination[d] + i * sizeof x, x);                          \
        }                                                                                        \
        fpmode_leave(mode);                                                                      \
    }
SUM(float32, float)
SUM(float64, double)

void rr_reduce_ref_float32(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    (r->weight || r->scale != 0 ? rr_reduce_ref : sums_float32)(r, destination, source);
}

void rr_reduce_ref_float64(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    (r->weight || r->scale != 0 ? rr_reduce_ref : sums_float64)(r, destination, source);
}
