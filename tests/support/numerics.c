/* SPDX-License-Identifier: Apache-2.0 */
/* The executable reference of what is reduced; see numerics.h. */
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
    const char *given = getenv("TEST_SEED");
    struct timespec now;
    uint64_t seed;

    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 0) : mix((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 32));
    fprintf(stderr, "%s: seed 0x%" PRIx64 " (TEST_SEED repeats it)\n", test, seed);
    return seed;
}

/* ---- types ---- */

/* A float is put together from its fields. `most` is the exponent field of infinities. */
struct format {
    int width, mantissa_bits, bias, most;
};
static const struct format formats[] = {
    [RINGRED_FLOAT32] = { 32, 23, 127, 255 },     [RINGRED_FLOAT64] = { 64, 52, 1023, 2047 },
    [RINGRED_FLOAT16] = { 16, 10, 15, 31 },       [RINGRED_BFLOAT16] = { 16, 7, 127, 255 },
    [RINGRED_FLOAT8_E4M3FN] = { 8, 3, 7, 16 },    [RINGRED_FLOAT8_E5M2] = { 8, 2, 15, 31 },
};

static bool is_float(int type)
{
    return type >= RINGRED_FLOAT32 && type <= RINGRED_FLOAT8_E5M2;
}

static bool is_narrow(int type)
{
    return is_float(type) && formats[type].width < 32;
}

static bool is_complex(int type)
{
    return type == RINGRED_COMPLEX64 || type == RINGRED_COMPLEX128;
}

static int part_of(int type)
{
    return type == RINGRED_COMPLEX64 ? RINGRED_FLOAT32 : RINGRED_FLOAT64;
}

static bool is_signed(int type)
{
    return type >= RINGRED_INT8 && type <= RINGRED_INT64;
}

size_t numbers_bytes(int type)
{
    switch (type) {
    case RINGRED_COMPLEX64:
    case RINGRED_INT64:
    case RINGRED_UINT64:
        return 8;
    case RINGRED_COMPLEX128:
        return 16;
    case RINGRED_INT32:
    case RINGRED_UINT32:
        return 4;
    case RINGRED_INT16:
    case RINGRED_UINT16:
        return 2;
    default:
        return is_float(type) ? (size_t)formats[type].width / 8 : 1;
    }
}

/* ---- one element: a float32 or what is narrower is held as float64, which is exact ---- */

struct value {
    double re, im;
    uint64_t u; /* integers, extended to 64 bits */
};

/* The value of a narrow float's bits without the sign, also of those that are an infinity or a NaN: as
 * if the numbers went on. */
static double size_of_code(int type, unsigned code)
{
    const struct format *f = &formats[type];
    const unsigned exponent = code >> f->mantissa_bits, mantissa = code - (exponent << f->mantissa_bits);
    const double fraction = ldexp(mantissa, -f->mantissa_bits);

    return exponent ? ldexp(1 + fraction, (int)exponent - f->bias) : ldexp(fraction, 1 - f->bias);
}

/* The first code that is not finite. Its neighbour below is the largest number. */
static unsigned first_beyond(int type)
{
    return type == RINGRED_FLOAT8_E4M3FN ? 0x7f : (unsigned)formats[type].most << formats[type].mantissa_bits;
}

static double of_code(int type, unsigned bits)
{
    const unsigned sign = 1u << (formats[type].width - 1), code = bits & ~sign, beyond = first_beyond(type);
    double size = code < beyond ? size_of_code(type, code) : code > beyond ? NAN : INFINITY;

    if (code == beyond && type == RINGRED_FLOAT8_E4M3FN)
        size = NAN;
    return bits & sign ? -size : size;
}

/* Looks for the two neighbours and takes the nearer one, or the even one. */
static unsigned nearest_code(int type, double x)
{
    static const unsigned nan[] = { [RINGRED_FLOAT16] = 0x7e00, [RINGRED_BFLOAT16] = 0x7fc0,
                                    [RINGRED_FLOAT8_E4M3FN] = 0x7f, [RINGRED_FLOAT8_E5M2] = 0x7e };
    const unsigned sign = signbit(x) ? 1u << (formats[type].width - 1) : 0, beyond = first_beyond(type);
    unsigned low = 0, high = beyond;
    double below, above;

    if (isnan(x))
        return nan[type];
    x = fabs(x);
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;

        *(size_of_code(type, middle) <= x ? &low : &high) = middle;
    }
    below = x - size_of_code(type, low);
    above = size_of_code(type, high) - x;
    if (above < below || (above == below && high % 2 == 0))
        low = high;
    if (low == beyond && type == RINGRED_FLOAT8_E4M3FN)
        return nan[type];
    return sign | low;
}

/* The low bits of u as a number of the type. */
static uint64_t cut(int type, uint64_t u)
{
    const int width = 8 * (int)numbers_bytes(type);
    const uint64_t top = UINT64_C(1) << (width - 1);

    if (type == RINGRED_BOOL)
        return u != 0;
    u &= top | (top - 1);
    return is_signed(type) ? (u ^ top) - top : u;
}

static double load_float(int type, const void *from)
{
    uint32_t bits = 0;
    float single;
    double x;

    if (type == RINGRED_FLOAT64) {
        memcpy(&x, from, sizeof x);
        return x;
    }
    if (type == RINGRED_FLOAT32) {
        memcpy(&single, from, sizeof single);
        return single;
    }
    memcpy(&bits, from, formats[type].width == 16 ? 2 : 1);
    return of_code(type, bits);
}

static void store_float(int type, void *to, double x)
{
    const uint32_t nan32 = UINT32_C(0x7fc00000), bits = is_narrow(type) ? nearest_code(type, x) : 0;
    const uint64_t nan64 = UINT64_C(0x7ff8000000000000);
    const float single = (float)x;

    if (type == RINGRED_FLOAT64)
        memcpy(to, isnan(x) ? (const void *)&nan64 : (const void *)&x, sizeof x);
    else if (type == RINGRED_FLOAT32)
        memcpy(to, isnan(x) ? (const void *)&nan32 : (const void *)&single, sizeof single);
    else
        memcpy(to, &bits, formats[type].width == 16 ? 2 : 1);
}

static struct value load(int type, const void *array, size_t i)
{
    const size_t bytes = numbers_bytes(type);
    const char *at = (const char *)array + i * bytes;
    struct value x = { 0, 0, 0 };

    if (is_complex(type)) {
        x.re = load_float(part_of(type), at);
        x.im = load_float(part_of(type), at + numbers_bytes(part_of(type)));
    } else if (is_float(type)) {
        x.re = load_float(type, at);
    } else {
        memcpy(&x.u, at, bytes < 8 ? bytes : 8);
        x.u = cut(type, x.u);
        x.re = is_signed(type) ? (double)(int64_t)x.u : (double)x.u; /* for tolerance and texts */
    }
    return x;
}

static void store(int type, void *array, size_t i, struct value x)
{
    const size_t bytes = numbers_bytes(type);
    char *at = (char *)array + i * bytes;

    if (is_complex(type)) {
        store_float(part_of(type), at, x.re);
        store_float(part_of(type), at + numbers_bytes(part_of(type)), x.im);
    } else if (is_float(type)) {
        store_float(type, at, x.re);
    } else {
        memcpy(at, &x.u, bytes < 8 ? bytes : 8);
    }
}

/* ---- inputs ---- */

static uint64_t compose(const struct format *f, uint64_t sign, int exponent, uint64_t mantissa)
{
    return sign << (f->width - 1) | (uint64_t)exponent << f->mantissa_bits |
           (mantissa & ((UINT64_C(1) << f->mantissa_bits) - 1));
}

static uint64_t rounding_bits(const struct format *f, uint64_t h, uint64_t m)
{
    const int spread = f->bias > 8 ? 8 : f->bias - 1;

    return compose(f, h >> 63, f->bias - spread + (int)((h >> 8) % (2 * (unsigned)spread + 1)), m);
}

/* Most are ordinary; h has nothing to do with the mantissa's random bits m. */
static uint64_t wild_bits(const struct format *f, uint64_t h, uint64_t m)
{
    const int most = f->most < 1 << (f->width - 1 - f->mantissa_bits) ? f->most : f->most - 1;
    const uint64_t sign = h >> 63;
    const unsigned what = (unsigned)h % 64;

    if (what == 0)
        return compose(f, sign, most, most == f->most ? m | 1 : m | 7); /* NaN, quiet or signalling */
    if (what == 1)
        return compose(f, sign, most, 0);                           /* infinity */
    if (what < 6)
        return compose(f, sign, 0, m);                              /* denormal */
    if (what < 10)
        return compose(f, sign, 0, 0);                              /* zero */
    if (what < 12)
        return compose(f, sign, f->most - 1 - (int)((h >> 8) % 2), m); /* sums may overflow */
    if (what < 16)
        return compose(f, sign, 1 + (int)((h >> 8) % 3), m);        /* differences are denormal */
    return rounding_bits(f, h, m);
}

/* Integers: bool is any byte. */
static uint64_t integer_bits(int type, enum numbers_kind kind, uint64_t h, uint64_t m)
{
    const uint64_t top = UINT64_C(1) << (8 * numbers_bytes(type) - 1);
    const unsigned what = (unsigned)h % 16;

    if (type == RINGRED_BOOL)
        return kind == NUMBERS_WILD && what > 9 ? m : h & 1;
    if (kind == NUMBERS_WILD && what < 8)
        return what < 2 ? top - (h >> 8 & 1) : what < 5 ? 0 : 0 - (h >> 8 & 1);
    return cut(type, m) >> (h >> 8) % 8;
}

static uint64_t bits_at(int type, enum numbers_kind kind, uint64_t seed, int rank, size_t i)
{
    const uint64_t h = mix(seed + mix(((uint64_t)rank << 48) + i + 1)), m = mix(h);
    const int whole = (int)(h % 17) - 8 + rank;
    const struct value x = { whole, 0, (uint64_t)(int64_t)whole };
    uint64_t bits = 0;

    if (!is_float(type) && kind != NUMBERS_COUNTING)
        return integer_bits(type, kind, h, m);
    if (kind == NUMBERS_WILD)
        return wild_bits(&formats[type], h, m);
    if (kind == NUMBERS_ROUNDING)
        return rounding_bits(&formats[type], h, m);
    store(type, &bits, 0, x);
    return type == RINGRED_BOOL ? h & 1 : bits;
}

void numbers_fill(void *to, int type, enum numbers_kind kind, uint64_t seed, int rank, size_t first,
                  size_t count)
{
    const size_t bytes = numbers_bytes(type);

    if (is_complex(type)) {
        numbers_fill(to, part_of(type), kind, seed, rank, 2 * first, 2 * count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = bits_at(type, kind, seed, rank, first + i);

        memcpy((char *)to + i * bytes, &bits, bytes < 8 ? bytes : 8);
    }
}

/* ---- operators: each operation on floats goes through memory ---- */

/* Accumulates in float32. */
static bool is_single(int type)
{
    return type == RINGRED_COMPLEX64 || (is_float(type) && type != RINGRED_FLOAT64);
}

static double operation(int type, char what, double a, double b)
{
    if (is_single(type)) {
        const volatile float x = (float)a, y = (float)b;
        const volatile float z = what == '+' ? x + y : what == '-' ? x - y : what == '*' ? x * y : x / y;
        return z;
    }
    const volatile double z = what == '+' ? a + b : what == '-' ? a - b : what == '*' ? a * b : a / b;
    return z;
}

static double extreme(int op, double a, double b)
{
    const bool least = op == RINGRED_MIN;

    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return (signbit(a) != 0) == least ? a : b;
    return least ? fmin(a, b) : fmax(a, b);
}

static struct value join_floats(int type, int op, struct value a, struct value b)
{
    struct value x = { 0, 0, 0 };

    if (op == RINGRED_MIN || op == RINGRED_MAX) {
        x.re = extreme(op, a.re, b.re);
    } else if (op != RINGRED_PROD) {
        x.re = operation(type, '+', a.re, b.re);
        x.im = operation(type, '+', a.im, b.im);
    } else if (is_complex(type)) {
        x.re = operation(type, '-', operation(type, '*', a.re, b.re), operation(type, '*', a.im, b.im));
        x.im = operation(type, '+', operation(type, '*', a.re, b.im), operation(type, '*', a.im, b.re));
    } else {
        x.re = operation(type, '*', a.re, b.re);
    }
    return x;
}

static uint64_t join_integers(int type, int op, uint64_t a, uint64_t b)
{
    const uint64_t top = is_signed(type) ? UINT64_C(1) << 63 : 0; /* turned over, the order is the unsigned */
    const bool in_order = (a ^ top) < (b ^ top);

    switch (op) {
    case RINGRED_SUM:
    case RINGRED_AVG:
        return a + b;
    case RINGRED_PROD:
        return a * b;
    case RINGRED_MIN:
        return in_order ? a : b;
    case RINGRED_MAX:
        return in_order ? b : a;
    case RINGRED_BAND:
        return a & b;
    case RINGRED_BOR:
        return a | b;
    case RINGRED_BXOR:
        return a ^ b;
    case RINGRED_LAND:
        return (a != 0) + (b != 0) == 2;
    case RINGRED_LOR:
        return (a != 0) + (b != 0) > 0;
    default:
        return (a != 0) + (b != 0) == 1;
    }
}

static struct value join(int type, int op, struct value a, struct value b)
{
    struct value x = { 0, 0, 0 };

    if (is_float(type) || is_complex(type))
        return join_floats(type, op, a, b);
    x.u = cut(type, join_integers(type, op, a.u, b.u));
    return x;
}

static struct value balanced(int type, int op, const struct value *leaf, int n)
{
    if (n == 1)
        return leaf[0];
    return join(type, op, balanced(type, op, leaf, n / 2), balanced(type, op, leaf + n / 2, n / 2));
}

/* The fold shape: what exceeds a power of two is paired off at the low end first. */
static struct value fold(int type, int op, const struct value *value, int n)
{
    struct value leaf[NUMBERS_RANKS];
    int power = 1, at = 0, leaves = 0;

    while (2 * power <= n)
        power *= 2;
    while (leaves < power) {
        const bool pair = leaves < n - power;

        leaf[leaves++] = pair ? join(type, op, value[at], value[at + 1]) : value[at];
        at += pair ? 2 : 1;
    }
    return balanced(type, op, leaf, power);
}

/* Both parts, or an integer, cut towards zero. */
static struct value divide(int type, struct value x, uint32_t by)
{
    const bool minus = is_signed(type) && x.u >> 63;

    x.re = operation(type, '/', x.re, by);
    x.im = operation(type, '/', x.im, by);
    x.u = minus ? 0 - (0 - x.u) / by : x.u / by;
    return x;
}

static struct value multiply(int type, struct value x, double by)
{
    x.re = operation(type, '*', x.re, by);
    x.im = operation(type, '*', x.im, by);
    return x;
}

static struct value finish(const struct numbers_call *c, struct value x)
{
    if (c->divisor > 1)
        x = divide(c->type, x, c->divisor);
    if (c->scale != 0)
        x = multiply(c->type, x, c->scale);
    if (c->op >= RINGRED_LAND)
        x.u = x.u != 0;
    return x;
}

void numbers_reduce(void *to, const struct numbers_call *c, const void *const *source, size_t count)
{
    const int from_type = is_narrow(c->type) && c->wide_sources ? RINGRED_FLOAT32 : c->type;
    const int to_type = is_narrow(c->type) && c->wide_destinations ? RINGRED_FLOAT32 : c->type;

    for (size_t i = 0; i < count; i++) {
        struct value value[NUMBERS_RANKS] = { { 0 } };

        for (int r = 0; r < c->sources; r++) {
            value[r] = load(from_type, source[r], i);
            if (c->weight)
                value[r] = multiply(c->type, value[r], c->weight[r]);
        }
        store(to_type, to, i, finish(c, fold(c->type, c->op, value, c->sources)));
    }
}

bool numbers_legal(int type, int op)
{
    const bool adds = op == RINGRED_SUM || op == RINGRED_AVG || op == RINGRED_PROD;

    if (type < RINGRED_FLOAT32 || type >= RINGRED_BYTES || op < RINGRED_SUM || op > RINGRED_LXOR)
        return false;
    if (type == RINGRED_COMPLEX64 || type == RINGRED_COMPLEX128)
        return adds;
    if (type == RINGRED_BOOL)
        return op != RINGRED_AVG;
    return adds || op == RINGRED_MIN || op == RINGRED_MAX ||
           (type >= RINGRED_INT8 && type <= RINGRED_UINT64);
}

/* ---- hosts: the layout tree ---- */

/* The hosts of a job as lists of ranks, in the order of their lowest ranks. */
struct hosts {
    int n, members[NUMBERS_RANKS];
    uint8_t rank[NUMBERS_RANKS][NUMBERS_RANKS];
    bool equal; /* in size */
};

static void find_hosts(struct hosts *h, const struct numbers_job *job)
{
    h->n = 0;
    h->equal = true;
    memset(h->members, 0, sizeof h->members);
    for (int r = 0; r < job->ranks; r++) {
        const int host = job->host ? job->host[r] : job->per_host > 0 ? r / job->per_host : r;

        h->rank[host][h->members[host]++] = (uint8_t)r;
        h->n = host < h->n ? h->n : host + 1;
    }
    for (int i = 1; i < h->n; i++)
        h->equal = h->equal && h->members[i] == h->members[0];
}

/* Are hosts' sums used? Those of narrow floats are narrowed when they go to other hosts, which 8 bits, products,
 * and means of unequally many do not bear: these are summed in the tree of ranks. */
static bool goes_by_hosts(const struct numbers_job *job, const struct hosts *h)
{
    const bool adds = job->op == RINGRED_SUM || (job->op == RINGRED_AVG && h->equal);

    return h->n > 1 && h->n < job->ranks &&
           (!is_narrow(job->type) || (formats[job->type].width == 16 && adds));
}

/* Folds each host's ranks, then the hosts; of an average of narrow floats each time the mean. */
static void expect_by_hosts(void *to, const struct numbers_job *job, const struct hosts *h, size_t first,
                            size_t count)
{
    const bool average = job->op == RINGRED_AVG, means = average && is_narrow(job->type);
    const size_t bytes = numbers_bytes(job->type);

    for (size_t i = 0; i < count; i++) {
        unsigned char element[NUMBERS_RANKS][16], part[NUMBERS_RANKS][16];
        const void *source[NUMBERS_RANKS];
        struct numbers_call c = { .type = job->type, .op = job->op };

        for (int n = 0; n < h->n; n++) {
            for (int k = 0; k < h->members[n]; k++) {
                numbers_fill(element[k], job->type, job->kind, job->seed, h->rank[n][k], first + i, 1);
                source[k] = element[k];
            }
            c.sources = h->members[n];
            c.divisor = means ? (uint32_t)c.sources : 1;
            numbers_reduce(part[n], &c, source, 1);
        }
        for (int n = 0; n < h->n; n++)
            source[n] = part[n];
        c.sources = h->n;
        c.divisor = means ? (uint32_t)h->n : average ? (uint32_t)job->ranks : 1;
        numbers_reduce((unsigned char *)to + i * bytes, &c, source, 1);
    }
}

void numbers_expect(void *to, const struct numbers_job *job, size_t first, size_t count)
{
    struct hosts h;

    find_hosts(&h, job);
    if (goes_by_hosts(job, &h)) {
        expect_by_hosts(to, job, &h, first, count);
        return;
    }
    const struct numbers_call c = { .type = job->type, .op = job->op, .sources = job->ranks,
                                    .divisor = job->op == RINGRED_AVG ? (uint32_t)job->ranks : 1 };

    for (size_t i = 0; i < count; i++) {
        struct value value[NUMBERS_RANKS];

        for (int r = 0; r < job->ranks; r++) {
            unsigned char element[16];

            numbers_fill(element, job->type, job->kind, job->seed, r, first + i, 1);
            value[r] = load(job->type, element, 0);
        }
        store(job->type, to, i, finish(&c, fold(job->type, job->op, value, job->ranks)));
    }
}

/* ---- comparing ---- */

static void describe(const void *got, const void *want, int type, size_t i, char *text, size_t room)
{
    const size_t bytes = numbers_bytes(type);
    uint64_t a = 0, b = 0;

    const struct value x = load(type, got, i), y = load(type, want, i);

    if (bytes > sizeof a) {
        snprintf(text, room, "element %zu is %.17g%+.17gi, should be %.17g%+.17gi", i, x.re, x.im, y.re,
                 y.im);
        return;
    }
    memcpy(&a, (const char *)got + i * bytes, bytes);
    memcpy(&b, (const char *)want + i * bytes, bytes);
    snprintf(text, room, "element %zu is %.17g (0x%0*" PRIx64 "), should be %.17g (0x%0*" PRIx64 ")", i, x.re,
             (int)(2 * bytes), a, y.re, (int)(2 * bytes), b);
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

static bool are_near(double a, double b, double tolerance)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance;
}

long numbers_stray(const void *got, const void *want, int type, size_t count, double tolerance, char *text,
                   size_t room)
{
    for (size_t i = 0; i < count; i++) {
        const struct value a = load(type, got, i), b = load(type, want, i);

        if (!are_near(a.re, b.re, tolerance) || !are_near(a.im, b.im, tolerance)) {
            describe(got, want, type, i, text, room);
            return (long)i;
        }
    }
    return -1;
}
