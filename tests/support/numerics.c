/* SPDX-License-Identifier: Apache-2.0 */
/* The executable reference of sums; see numerics.h. */
#include "numerics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- random numbers ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t numbers_next(struct numbers_random *r)
{
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(r->state);
}

uint64_t numbers_below(struct numbers_random *r, uint64_t limit)
{
    return numbers_next(r) % limit;
}

uint64_t numbers_seed(const char *test)
{
    const char *given = getenv("RINGRED_TEST_SEED");
    struct timespec now;
    uint64_t seed;

    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 0) : mix((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 32));
    fprintf(stderr, "%s: seed 0x%" PRIx64 " (RINGRED_TEST_SEED repeats it)\n", test, seed);
    return seed;
}

/* ---- inputs ---- */

/* A number of either format is put together from its fields. */
struct format {
    int mantissa_bits, bias, most; /* most: the exponent field of infinities */
};
static const struct format format32 = { 23, 127, 255 }, format64 = { 52, 1023, 2047 };

static const struct format *format_of(int type)
{
    return type == RINGRED_FLOAT32 ? &format32 : &format64;
}

size_t numbers_bytes(int type)
{
    return type == RINGRED_FLOAT32 ? 4 : 8;
}

static uint64_t compose(const struct format *f, uint64_t sign, int exponent, uint64_t mantissa)
{
    const int width = f->mantissa_bits;
    const uint64_t top = sign << (width == 23 ? 31 : 63);

    return top | ((uint64_t)exponent << width) | (mantissa & ((UINT64_C(1) << width) - 1));
}

/* Most are ordinary; h has nothing to do with the mantissa's random bits m. */
static uint64_t wild_bits(const struct format *f, uint64_t h, uint64_t m)
{
    const uint64_t sign = h >> 63;
    const unsigned what = (unsigned)h % 64;

    if (what == 0)
        return compose(f, sign, f->most, m | 1);                    /* NaN, quiet or signalling */
    if (what == 1)
        return compose(f, sign, f->most, 0);                        /* infinity */
    if (what < 6)
        return compose(f, sign, 0, m);                              /* denormal */
    if (what < 10)
        return compose(f, sign, 0, 0);                              /* zero */
    if (what < 12)
        return compose(f, sign, f->most - 1 - (int)((h >> 8) % 2), m); /* sums may overflow */
    if (what < 16)
        return compose(f, sign, 1 + (int)((h >> 8) % 3), m);        /* differences are denormal */
    return compose(f, sign, f->bias - 8 + (int)((h >> 8) % 17), m);
}

static uint64_t bits_at(int type, enum numbers_kind kind, uint64_t seed, int rank, size_t i)
{
    const struct format *f = format_of(type);
    const uint64_t h = mix(seed + mix(((uint64_t)rank << 48) + i + 1)), m = mix(h);
    const double whole = (double)(int)(h % 17) - 8 + rank;
    const float narrow = (float)whole;
    uint64_t bits = 0;

    if (kind == NUMBERS_WILD)
        return wild_bits(f, h, m);
    if (kind == NUMBERS_ROUNDING)
        return compose(f, h >> 63, f->bias - 8 + (int)((h >> 8) % 17), m);
    if (type == RINGRED_FLOAT64)
        memcpy(&bits, &whole, sizeof whole);
    else
        memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

void numbers_fill(void *to, int type, enum numbers_kind kind, uint64_t seed, int rank, size_t first,
                  size_t count)
{
    const size_t bytes = numbers_bytes(type);

    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = bits_at(type, kind, seed, rank, first + i);

        memcpy((char *)to + i * bytes, &bits, bytes);
    }
}

/* ---- sums: float32 numbers are held as float64 between operations, which is exact ---- */

static double add(int type, double a, double b)
{
    if (type == RINGRED_FLOAT32) {
        const volatile float x = (float)a, y = (float)b;
        const volatile float sum = x + y;
        return sum;
    }
    const volatile double sum = a + b;
    return sum;
}

static double divide(int type, double a, uint32_t by)
{
    if (type == RINGRED_FLOAT32) {
        const volatile float x = (float)a, y = (float)by;
        const volatile float quotient = x / y;
        return quotient;
    }
    const volatile double quotient = a / by;
    return quotient;
}

static double balanced(int type, const double *leaf, int n)
{
    if (n == 1)
        return leaf[0];
    return add(type, balanced(type, leaf, n / 2), balanced(type, leaf + n / 2, n / 2));
}

/* The fold shape: what exceeds a power of two is paired off at the low end first. */
static double fold(int type, const double *value, int n)
{
    double leaf[NUMBERS_RANKS];
    int power = 1, at = 0, leaves = 0;

    while (2 * power <= n)
        power *= 2;
    while (leaves < power) {
        const bool pair = leaves < n - power;

        leaf[leaves++] = pair ? add(type, value[at], value[at + 1]) : value[at];
        at += pair ? 2 : 1;
    }
    return balanced(type, leaf, power);
}

static double load(int type, const void *array, size_t i)
{
    float narrow;
    double x;

    if (type == RINGRED_FLOAT64) {
        memcpy(&x, (const char *)array + i * sizeof x, sizeof x);
        return x;
    }
    memcpy(&narrow, (const char *)array + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static void store(int type, void *array, size_t i, double x)
{
    const float narrow = (float)x;
    const uint32_t nan32 = UINT32_C(0x7fc00000);
    const uint64_t nan64 = UINT64_C(0x7ff8000000000000);
    char *to = (char *)array + i * numbers_bytes(type);

    if (type == RINGRED_FLOAT64)
        memcpy(to, isnan(x) ? (const void *)&nan64 : (const void *)&x, sizeof x);
    else
        memcpy(to, isnan(x) ? (const void *)&nan32 : (const void *)&narrow, sizeof narrow);
}

void numbers_fold(void *to, int type, const void *const *source, int k, uint32_t divisor, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double value[NUMBERS_RANKS], x;

        for (int r = 0; r < k; r++)
            value[r] = load(type, source[r], i);
        x = fold(type, value, k);
        store(type, to, i, divisor > 1 ? divide(type, x, divisor) : x);
    }
}

void numbers_expect(void *to, const struct numbers_job *job, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double value[NUMBERS_RANKS], x;

        for (int r = 0; r < job->ranks; r++) {
            const uint64_t bits = bits_at(job->type, job->kind, job->seed, r, first + i);

            value[r] = load(job->type, &bits, 0);
        }
        x = fold(job->type, value, job->ranks);
        if (job->op == RINGRED_AVG && job->ranks > 1)
            x = divide(job->type, x, (uint32_t)job->ranks);
        store(job->type, to, i, x);
    }
}

/* ---- comparing ---- */

static void describe(const void *got, const void *want, int type, size_t i, char *text, size_t room)
{
    const size_t bytes = numbers_bytes(type);
    uint64_t a = 0, b = 0;

    memcpy(&a, (const char *)got + i * bytes, bytes);
    memcpy(&b, (const char *)want + i * bytes, bytes);
    snprintf(text, room, "element %zu is %.17g (0x%0*" PRIx64 "), should be %.17g (0x%0*" PRIx64 ")", i,
             load(type, got, i), (int)(2 * bytes), a, load(type, want, i), (int)(2 * bytes), b);
}

long numbers_differ(const void *got, const void *want, int type, size_t count, char *text, size_t room)
{
    const size_t bytes = numbers_bytes(type);

    if (count == 0 || memcmp(got, want, count * bytes) == 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)got + i * bytes, (const char *)want + i * bytes, bytes) != 0) {
            describe(got, want, type, i, text, room);
            return (long)i;
        }
    }
    return -1;
}

long numbers_stray(const void *got, const void *want, int type, size_t count, double tolerance, char *text,
                   size_t room)
{
    for (size_t i = 0; i < count; i++) {
        const double a = load(type, got, i), b = load(type, want, i);
        const bool near = a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance;

        if (!near) {
            describe(got, want, type, i, text, room);
            return (long)i;
        }
    }
    return -1;
}
