/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that reductions are checked with. What a rank has depends on the rank and on the
 * class of the position; for each type and operator the numbers are such that the result is known
 * without trusting anybody: sum         small whole numbers, not zero on so few ranks that every
 * partial sum is exact in the type itself, in whatever order it is made avg         the same. Of
 * floats that are narrower than float32 all numbers are multiples of the number of ranks, so that
 * the average is exact, also of some of the ranks; otherwise it is the exact sum, divided and
 * rounded once (integers: cut towards zero) prod        powers of two, also negative ones and, if
 * complex, imaginary ones; integers 3 too min, max    floats that the type holds exactly; integers
 * of all their bits band, ...   patterns of bits, for and sparse in zeros and for or sparse in ones
 *   land, ...   zeros and any other numbers; bools of any byte
 * Ranks take turns: in class k rank i has the turn (i + k) mod n, and a few turns are special. */
#include "bench.h"

#include <string.h>

enum kind { FLOATING, COMPLEX, SIGNED, UNSIGNED, TRUTH };

/* The limits of a type. */
static const struct limits {
    int32_t type;
    enum kind kind;
    int exponent, mantissa; /* bits of a float that is narrower than float32; else 0 */
    int turns;              /* how many ranks have numbers other than zero in a sum ... */
    uint64_t most;          /* ... and the largest of them */
    uint64_t held;          /* every whole number up to this is held exactly */
} limits[] = {
    { RINGRED_FLOAT32, FLOATING, 0, 0, 4096, 1000, 1 << 24 },
    { RINGRED_FLOAT64, FLOATING, 0, 0, 4096, (uint64_t)1 << 40, (uint64_t)1 << 53 },
    { RINGRED_FLOAT16, FLOATING, 5, 10, 256, 8, 2048 },
    { RINGRED_BFLOAT16, FLOATING, 8, 7, 64, 4, 256 },
    { RINGRED_FLOAT8_E4M3FN, FLOATING, 4, 3, 8, 2, 16 },
    { RINGRED_FLOAT8_E5M2, FLOATING, 5, 2, 4, 2, 8 },
    { RINGRED_INT8, SIGNED, 0, 0, 32, 3, 0 },
    { RINGRED_INT16, SIGNED, 0, 0, 256, 100, 0 },
    { RINGRED_INT32, SIGNED, 0, 0, 4096, 100000, 0 },
    { RINGRED_INT64, SIGNED, 0, 0, 4096, (uint64_t)1 << 40, 0 },
    { RINGRED_UINT8, UNSIGNED, 0, 0, 32, 3, 0 },
    { RINGRED_UINT16, UNSIGNED, 0, 0, 256, 100, 0 },
    { RINGRED_UINT32, UNSIGNED, 0, 0, 4096, 100000, 0 },
    { RINGRED_UINT64, UNSIGNED, 0, 0, 4096, (uint64_t)1 << 40, 0 },
    { RINGRED_BOOL, TRUTH, 0, 0, 0, 0, 0 },
    { RINGRED_COMPLEX64, COMPLEX, 0, 0, 4096, 1000, 1 << 24 },
    { RINGRED_COMPLEX128, COMPLEX, 0, 0, 4096, (uint64_t)1 << 40, (uint64_t)1 << 53 },
};

static const struct limits *limits_of(int32_t type)
{
    size_t i = 0;

    while (limits[i].type != type)
        i++;
    return &limits[i];
}

uint64_t bench_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 1;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- elements ---- */

/* The bits of a float of the given shape, rounded to nearest, ties to even. */
static unsigned narrow(double x, int exponent_bits, int mantissa_bits)
{
    unsigned sign = (unsigned)(x < 0) << (exponent_bits + mantissa_bits);
    int least = 2 - (1 << (exponent_bits - 1)), exponent = least;
    double size = x < 0 ? -x : x, unit = 1;
    long whole;

    for (int e = 0; e > least; e--)
        unit /= 2;
    for (; size >= 2 * unit; unit *= 2)
        exponent++;
    size = size / unit * (double)(1 << mantissa_bits);
    whole = (long)size;
    size -= (double)whole;
    whole += size > 0.5 || (size == 0.5 && whole % 2 == 1);
    return sign + ((unsigned)(exponent - least) << mantissa_bits) + (unsigned)whole;
}

void bench_encode(int32_t type, struct bench_number x, void *element)
{
    const struct limits *t = limits_of(type);
    double wide[2] = { x.re, x.im };
    float single[2] = { (float)x.re, (float)x.im };

    if (t->exponent)
        x.whole = narrow(x.re, t->exponent, t->mantissa);
    if (type == RINGRED_FLOAT32 || type == RINGRED_COMPLEX64)
        memcpy(element, single, bench_width(type));
    else if (type == RINGRED_FLOAT64 || type == RINGRED_COMPLEX128)
        memcpy(element, wide, bench_width(type));
    else
        memcpy(element, &x.whole, bench_width(type)); /* the lower bytes come first */
}

/* ---- what a rank has ---- */

/* Is n a number of the type, which sums of a few multiples of it are as well? */
static bool is_held(const struct limits *t, uint64_t n)
{
    while (n > t->held && n % 2 == 0)
        n /= 2;
    return n <= t->held;
}

static bool averages_are_exact(const struct limits *t, int n)
{
    return t->exponent && is_held(t, (uint64_t)n) && (unsigned)n < (1u << (t->exponent + 1));
}

static struct bench_number signed_number(const struct limits *t, uint64_t size, bool negative)
{
    struct bench_number x = { .re = (double)size, .whole = size };

    if (negative && size && t->kind != UNSIGNED)
        x = (struct bench_number){ .re = -x.re, .whole = -size };
    return x;
}

static struct bench_number summand(const struct limits *t, bool average, int n, int rank,
                                   unsigned k)
{
    bool exact = average && averages_are_exact(t, n);
    uint64_t bits = bench_mix((uint64_t)rank, k), most = exact ? 1 : t->most;
    uint64_t size = 1 + (bits >> 8) % most;
    int turns = exact ? 4 : t->turns;
    struct bench_number x;

    if ((rank + (int)k) % n >= turns)
        return (struct bench_number){ 0 };
    x = signed_number(t, exact ? size * (uint64_t)n : size, bits & 1);
    if (t->kind == COMPLEX)
        x.im = (bits & 2 ? -1.0 : 1.0) * (double)(1 + (bits >> 40) % most);
    return x;
}

static struct bench_number factor(const struct limits *t, int n, int rank, unsigned k)
{
    uint64_t bits = bench_mix((uint64_t)rank, k), two = 2 + (bits >> 8) % 2;
    bool special = (rank + (int)k) % n < 3, whole = t->kind == SIGNED || t->kind == UNSIGNED;
    struct bench_number x = signed_number(t, special && whole ? two : 1, bits & 1);

    if (special && !whole)
        x.re *= two == 2 ? 2 : 0.5;
    if (t->kind == COMPLEX && bits & 2)
        x = (struct bench_number){ .im = x.re };
    return x;
}

static struct bench_number ordered(const struct limits *t, int rank, unsigned k)
{
    uint64_t bits = bench_mix((uint64_t)rank, k);

    if (t->kind == FLOATING)
        return signed_number(t, (bits >> 8) % (t->held + 1), bits & 1);
    return (struct bench_number){ .whole = bits };
}

static struct bench_number pattern(int32_t op, int n, int rank, unsigned k)
{
    uint64_t a = bench_mix((uint64_t)rank, k), b = bench_mix((uint64_t)rank, ~(uint64_t)k);
    bool special = (rank + (int)k) % n < 4;

    if (op == RINGRED_BAND)
        return (struct bench_number){ .whole = special ? a | b : ~(uint64_t)0 };
    if (op == RINGRED_BOR)
        return (struct bench_number){ .whole = special ? a & b : 0 };
    return (struct bench_number){ .whole = a };
}

/* What a bool means by the other operators. */
static int32_t logic(int32_t op)
{
    switch (op) {
    case RINGRED_PROD:
    case RINGRED_MIN:
    case RINGRED_BAND:
        return RINGRED_LAND;
    case RINGRED_SUM:
    case RINGRED_MAX:
    case RINGRED_BOR:
        return RINGRED_LOR;
    case RINGRED_BXOR:
        return RINGRED_LXOR;
    default:
        return op;
    }
}

/* In every other class one rank has it its own way. */
static struct bench_number truth(int32_t op, int n, int rank, unsigned k)
{
    uint64_t bits = bench_mix((uint64_t)rank, k), yes = 1 + (bits >> 8) % 127;
    bool alone = k % 2 == 1 && (rank + (int)k) % n == 0, is = bits & 1;

    if (op != RINGRED_LXOR)
        is = (op == RINGRED_LAND) != alone;
    return (struct bench_number){ .whole = is ? yes : 0 };
}

static bool is_logical(int32_t op)
{
    return op == RINGRED_LAND || op == RINGRED_LOR || op == RINGRED_LXOR;
}

struct bench_number bench_number_of(int32_t type, int32_t op, int n, int rank, unsigned k)
{
    const struct limits *t = limits_of(type);

    if (t->kind == TRUTH || is_logical(op))
        return truth(logic(op), n, rank, k);
    if (op == RINGRED_SUM || op == RINGRED_AVG)
        return summand(t, op == RINGRED_AVG, n, rank, k);
    if (op == RINGRED_PROD)
        return factor(t, n, rank, k);
    if (op == RINGRED_MIN || op == RINGRED_MAX)
        return ordered(t, rank, k);
    return pattern(op, n, rank, k);
}

/* ---- what comes out ---- */

/* The value of the lower `width` bytes. */
static int64_t as_signed(uint64_t whole, size_t width)
{
    int unused = 64 - 8 * (int)width;

    return (int64_t)(whole << unused) >> unused;
}

static uint64_t as_unsigned(uint64_t whole, size_t width)
{
    int unused = 64 - 8 * (int)width;

    return whole << unused >> unused;
}

static bool is_less(int32_t type, struct bench_number a, struct bench_number b)
{
    size_t width = bench_width(type);

    if (limits_of(type)->kind == FLOATING)
        return a.re < b.re;
    if (limits_of(type)->kind == SIGNED)
        return as_signed(a.whole, width) < as_signed(b.whole, width);
    return as_unsigned(a.whole, width) < as_unsigned(b.whole, width);
}

static struct bench_number product(struct bench_number a, struct bench_number b)
{
    return (struct bench_number){ .re = a.re * b.re - a.im * b.im,
                                  .im = a.re * b.im + a.im * b.re,
                                  .whole = a.whole * b.whole };
}

static uint64_t bitwise(int32_t op, uint64_t a, uint64_t b)
{
    switch (op) {
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
    default:
        return !a != !b;
    }
}

static struct bench_number join(int32_t type, int32_t op, struct bench_number a,
                                struct bench_number b)
{
    switch (op) {
    case RINGRED_SUM:
    case RINGRED_AVG:
        return (struct bench_number){ a.re + b.re, a.im + b.im, a.whole + b.whole };
    case RINGRED_PROD:
        return product(a, b);
    case RINGRED_MIN:
        return is_less(type, b, a) ? b : a;
    case RINGRED_MAX:
        return is_less(type, a, b) ? b : a;
    default:
        return (struct bench_number){ .whole = bitwise(op, a.whole, b.whole) };
    }
}

/* float64 is divided as it is, everything narrower as float32; both sums are exact. */
static struct bench_number divided(int32_t type, struct bench_number x, int n)
{
    size_t width = bench_width(type);

    if (limits_of(type)->kind == SIGNED)
        return (struct bench_number){ .whole = (uint64_t)(as_signed(x.whole, width) / n) };
    if (limits_of(type)->kind == UNSIGNED)
        return (struct bench_number){ .whole = as_unsigned(x.whole, width) / (uint64_t)n };
    if (type == RINGRED_FLOAT64 || type == RINGRED_COMPLEX128)
        return (struct bench_number){ .re = x.re / n, .im = x.im / n };
    return (struct bench_number){ .re = (double)((float)x.re / (float)n),
                                  .im = (double)((float)x.im / (float)n) };
}

struct bench_number bench_reduced(int32_t type, int32_t op, int n, unsigned k)
{
    struct bench_number all = bench_number_of(type, op, n, 0, k);

    if (limits_of(type)->kind == TRUTH)
        op = logic(op);
    if (is_logical(op))
        all.whole = all.whole != 0; /* of one rank, too */
    for (int rank = 1; rank < n; rank++)
        all = join(type, op, all, bench_number_of(type, op, n, rank, k));
    return op == RINGRED_AVG ? divided(type, all, n) : all;
}
