/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of this machine against ref.c, byte for byte, and ref.c against the tests' own
 * reference and against results written by hand: every type and operator, sources, destinations,
 * counts, offsets, special numbers, in place, hostile modes. */
#include "compare.h"

#include "reduce/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "avx512", "avx2", "neon", "c" };
#define NAMES (sizeof names / sizeof names[0])

static struct compare_pair pairs[RR_TYPES * RR_OPS];
static int pair_count;
static uint64_t seed;

static int set_up(void **state)
{
    for (size_t i = 0; i < NAMES; i++)
        if (rr_reduce_named(names[i], RINGRED_FLOAT32, RINGRED_SUM) == NULL)
            fprintf(stderr, "SKIPPED: kernels of %s: this machine does not have it\n", names[i]);
    pair_count = compare_pairs(pairs);
    seed = numbers_seed("test_reduce");
    return compare_set_up(state);
}

static void check(const struct compare_call *c)
{
    char text[512];

    if (!compare_reference(c, text, sizeof text))
        fail_msg("%s", text);
    for (size_t i = 0; i < NAMES; i++) {
        rr_reduce_fn kernel = rr_reduce_named(names[i], c->reduce.type, c->reduce.op);

        if (kernel != NULL && !compare_kernel(names[i], kernel, c, text, sizeof text))
            fail_msg("%s", text);
    }
}

static int below(struct numbers_random *random, int limit)
{
    return (int)numbers_below(random, (uint64_t)limit);
}

static void test_every_small_count_has_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed };

    (void)state;
    for (int p = 0; p < pair_count; p++)
        for (int k = 1; k <= 9; k++)
            for (size_t count = 0; count <= 70; count++) {
                const int d = 1 + below(&random, 4);
                const struct compare_call c = compare_draw(pairs[p], k, d, count, &random);

                check(&c);
            }
}

/* Sums of float32 and float64 have shapes of their own. */
static void test_sums_of_float32_and_float64_in_every_shape(void **state)
{
    static const int source_counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                         31, 32, 33, 48, 63, 64 };
    struct numbers_random random = { seed + 1 };

    (void)state;
    for (int type = RINGRED_FLOAT32; type <= RINGRED_FLOAT64; type++)
        for (size_t k = 0; k < sizeof source_counts / sizeof source_counts[0]; k++)
            for (int d = 1; d <= 5; d++)
                for (size_t count = 0; count <= 70; count++) {
                    const struct compare_pair sum = { type, RINGRED_SUM };
                    const struct compare_call c = compare_draw(sum, source_counts[k], d, count, &random);

                    check(&c);
                }
}

static void test_counts_around_lanes_and_tiles_have_the_bits_of_the_reference(void **state)
{
    static const int middles[] = { 128, 256, 512, 1024, 2048, 4096, 8192 };
    struct numbers_random random = { seed + 2 };

    (void)state;
    for (int p = 0; p < pair_count; p++)
        for (size_t m = 0; m < sizeof middles / sizeof middles[0]; m++)
            for (int round = 0; round < (middles[m] > 1024 ? 1 : 4); round++) {
                const size_t widest = rr_type_bytes(pairs[p].type) < 4 ? 4 : rr_type_bytes(pairs[p].type);
                const size_t count = (size_t)(middles[m] - 3 + below(&random, 7));
                const int k = 1 + below(&random, round == 1 ? 40 : 5);
                struct compare_call c;

                if (count * widest > COMPARE_BYTES)
                    continue;
                c = compare_draw(pairs[p], k, 1 + below(&random, k > 5 ? 2 : COMPARE_DESTINATIONS), count,
                                 &random);
                check(&c);
            }
}

static void test_many_sources_have_the_bits_of_the_reference(void **state)
{
    static const int most[] = { 127, 128, 129, 254, 255, 256 };
    struct numbers_random random = { seed + 3 };

    (void)state;
    for (int p = 0; p < pair_count; p++) {
        const size_t count = 150 + numbers_below(&random, 20);
        const struct compare_call c = compare_draw(pairs[p], most[p % 6], 1 + p % 2, count, &random);

        check(&c);
    }
    for (int type = RINGRED_FLOAT32; type <= RINGRED_FLOAT64; type++)
        for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
            const struct compare_pair sum = { type, RINGRED_SUM };
            const struct compare_call c = compare_draw(sum, most[i], 1 + (int)i, 1030 + i, &random);

            check(&c);
        }
}

/* Every place of every offset in the lines, for the shapes that matter most. */
static void test_every_offset_has_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed + 4 };

    (void)state;
    for (int p = 0; p < pair_count; p++)
        for (size_t offset = 0; offset < 64; offset++) {
            const int k = 2 + (int)offset % 4;
            struct compare_call c = compare_draw(pairs[p], k, 1 + (int)offset / 4 % 2, 200 + offset, &random);

            c.destination_offset[0] = offset;
            c.source_offset[1] = offset;
            if (c.reduce.wide_sources == c.reduce.wide_destinations)
                c.in_place = offset % 3 == 0 ? 1 : -1;
            check(&c);
        }
}

/* ---- special numbers ---- */

/* Runs every kernel over arrays that are given, and compares with the tests' own reference. */
static void check_arrays(const struct rr_reduce *r, const void *const *source)
{
    static unsigned char want[COMPARE_BYTES], got[2][COMPARE_BYTES];
    const struct numbers_call model = { r->type, r->op, r->sources, r->divisor, r->wide_sources,
                                        r->wide_destinations, r->weight, r->scale };
    void *to[2] = { got[0], got[1] };
    char text[256];

    numbers_reduce(want, &model, source, r->count);
    for (size_t n = 0; n < NAMES; n++) {
        rr_reduce_fn kernel = rr_reduce_named(names[n], r->type, r->op);
        const int type = r->wide_destinations ? RINGRED_FLOAT32 : r->type;

        if (kernel == NULL)
            continue;
        kernel(r, to, source);
        for (int d = 0; d < r->destinations; d++)
            if (numbers_differ(got[d], want, type, r->count, text, sizeof text) >= 0)
                fail_msg("%s %s %s of %d, divisor %u: %s", names[n], rr_type_name(r->type), rr_op_name(r->op),
                         r->sources, r->divisor, text);
    }
}

#define SPECIALS 15
static const uint64_t special[][SPECIALS] = {
    [RINGRED_FLOAT32] = { 0x7fc00000, 0xffc00000, 0x7fc12345, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7f800000,
                          0xff800000, 0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff,
                          0xff7fffff },
    [RINGRED_FLOAT64] = { 0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000012345, 0x7ff0000000000001,
                          0xfff0000000000001, 0x7ff7ffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
                          0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800fffffffffffff,
                          0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff },
    [RINGRED_FLOAT16] = { 0x7e00, 0xfe00, 0x7e5a, 0x7c01, 0xfc01, 0x7dff, 0x7c00, 0xfc00, 0x0000, 0x8000,
                          0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff },
    [RINGRED_BFLOAT16] = { 0x7fc0, 0xffc0, 0x7fda, 0x7f81, 0xff81, 0x7fbf, 0x7f80, 0xff80, 0x0000, 0x8000,
                           0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f },
};

static void put_special(void *array, int type, size_t i, size_t which)
{
    const size_t bytes = numbers_bytes(type);

    memcpy((char *)array + bytes * i, &special[type][which], bytes);
}

static void check_special(struct compare_pair pair, int k, size_t lane, size_t a, size_t b)
{
    enum { COUNT = 83 };
    unsigned char inputs[9][COUNT * 8];
    const bool divides = pair.op == RINGRED_SUM;
    struct rr_reduce r = { .type = pair.type, .op = pair.op, .sources = k, .count = COUNT,
                           .divisor = divides ? 1 + (uint32_t)lane % 3 : 1 };
    const void *source[9];

    for (int s = 0; s < k; s++) {
        numbers_fill(inputs[s], pair.type, NUMBERS_COUNTING, 1, s, 0, COUNT);
        source[s] = inputs[s];
    }
    for (int s = 0; s < k; s++) {
        put_special(inputs[s], pair.type, lane, a);
        put_special(inputs[(s + 1) % k], pair.type, lane, b);
        r.destinations = 1 + s % 2;
        check_arrays(&r, source);
    }
}

static void test_special_numbers_in_each_lane_and_source(void **state)
{
    static const int ops[] = { RINGRED_SUM, RINGRED_PROD, RINGRED_MIN, RINGRED_MAX };

    (void)state;
    for (int type = RINGRED_FLOAT32; type <= RINGRED_BFLOAT16; type++)
        for (int o = 0; o < 4; o++)
            for (int k = 1; k <= 9; k += k < 5 ? 1 : 2)
                for (size_t lane = 0; lane < 83; lane += type > RINGRED_FLOAT64 || o > 0 ? 13 : k < 4 ? 1 : 5)
                    for (size_t a = 0; a < SPECIALS; a++) {
                        const struct compare_pair pair = { type, ops[o] };

                        check_special(pair, k, lane, a, (a * 7 + lane) % SPECIALS);
                    }
}

/* Every pair of elements of one byte, under every operator. */
static void test_every_pair_of_bytes(void **state)
{
    static unsigned char first[256], second[256];

    (void)state;
    for (int i = 0; i < 256; i++)
        second[i] = (unsigned char)i;
    for (int p = 0; p < pair_count; p++)
        for (int a = 0; a < 256 && rr_type_bytes(pairs[p].type) == 1; a++) {
            const struct rr_reduce r = { .type = pairs[p].type, .op = pairs[p].op, .sources = 2,
                                         .destinations = 1, .divisor = pairs[p].op == RINGRED_AVG ? 2 : 1,
                                         .count = 256 };
            const void *source[] = { first, second };

            memset(first, a, sizeof first);
            check_arrays(&r, source);
        }
}

/* Copied to its own type, which makes NaNs canonical, and to float32. */
static void test_every_float_of_16_bits(void **state)
{
    static uint16_t all[1 << 14];

    (void)state;
    for (int type = RINGRED_FLOAT16; type <= RINGRED_BFLOAT16; type++)
        for (int quarter = 0; quarter < 4; quarter++)
            for (int wide = 0; wide < 2; wide++) {
                const struct rr_reduce r = { .type = type, .op = RINGRED_SUM, .sources = 1, .destinations = 1,
                                             .divisor = 1, .count = wide ? 8192 : 1 << 14,
                                             .wide_destinations = wide };
                const void *source[] = { all };

                for (int i = 0; i < 1 << 14; i++)
                    all[i] = (uint16_t)(quarter << 14 | i);
                check_arrays(&r, source);
                source[0] = all + 8192;
                if (wide)
                    check_arrays(&r, source);
            }
}

/* Every upper half of a float32, with lower halves around ties. */
static void test_narrowing_rounds_to_nearest_even_everywhere(void **state)
{
    static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x1000, 0xf000 };
    static uint32_t wide[8192];

    (void)state;
    for (int type = RINGRED_FLOAT16; type <= RINGRED_FLOAT8_E5M2; type++)
        for (uint32_t high = 0; high < 1 << 16; high += 1024) {
            const struct rr_reduce r = { .type = type, .op = RINGRED_SUM, .sources = 1, .destinations = 1,
                                         .divisor = 1, .count = 8192, .wide_sources = true };
            const void *source[] = { wide };

            for (uint32_t i = 0; i < 8192; i++)
                wide[i] = (high + i / 8) << 16 | low[i % 8];
            check_arrays(&r, source);
        }
}

/* A power of two divides by its reciprocal inside: also where the quotient is a denormal. */
static void test_division_by_powers_of_two_rounds_denormals_like_division(void **state)
{
    struct numbers_random random = { seed + 5 };

    (void)state;
    for (int type = RINGRED_FLOAT32; type <= RINGRED_FLOAT8_E5M2; type++)
        for (int power = 1; power <= 31; power++) {
            const struct compare_pair sum = { type, RINGRED_SUM };
            struct compare_call c = compare_draw(sum, 2 + power % 3, 1, 500, &random);

            c.kind = NUMBERS_WILD;
            c.reduce.divisor = UINT32_C(1) << power;
            c.reduce.weight = NULL;
            c.reduce.scale = 0;
            check(&c);
        }
}

/* ---- rules, by hand: one element of each source, and what must come out ---- */

struct rule {
    int type, op;
    uint32_t divisor;
    int sources;
    uint64_t source[4], want;
};

#define TYPE(name) RINGRED_##name
static const struct rule rules[] = {
    /* A tree, not a chain: (1 + 2^-24) + (2^-24 + 2^-24) with the first sum rounded down. */
    { TYPE(FLOAT32), TYPE(SUM), 1, 4, { 0x3f800000, 0x33800000, 0x33800000, 0x33800000 }, 0x3f800001 },
    { TYPE(FLOAT32), TYPE(SUM), 1, 2, { 0x7f800000, 0xff800000 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(SUM), 1, 2, { 0xff812345, 0x3f800000 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(SUM), 1, 2, { 0x80000000, 0x80000000 }, 0x80000000 },
    { TYPE(FLOAT32), TYPE(SUM), 1, 2, { 0x80000000, 0x00000000 }, 0x00000000 },
    { TYPE(FLOAT32), TYPE(SUM), 1, 2, { 0x00000001, 0x00000001 }, 0x00000002 },
    { TYPE(FLOAT32), TYPE(AVG), 3, 2, { 0x3f800000, 0x00000000 }, 0x3eaaaaab },
    { TYPE(FLOAT32), TYPE(PROD), 1, 2, { 0x7f800000, 0x00000000 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(PROD), 1, 2, { 0x80000000, 0x3f800000 }, 0x80000000 },
    { TYPE(FLOAT32), TYPE(MIN), 1, 2, { 0x3f800000, 0x7fc00001 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(MIN), 1, 2, { 0xffc00001, 0x3f800000 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(MAX), 1, 2, { 0x3f800000, 0xff800001 }, 0x7fc00000 },
    { TYPE(FLOAT32), TYPE(MIN), 1, 2, { 0x00000000, 0x80000000 }, 0x80000000 },
    { TYPE(FLOAT32), TYPE(MIN), 1, 2, { 0x80000000, 0x00000000 }, 0x80000000 },
    { TYPE(FLOAT32), TYPE(MAX), 1, 2, { 0x80000000, 0x00000000 }, 0x00000000 },
    { TYPE(FLOAT32), TYPE(MAX), 1, 2, { 0x00000000, 0x80000000 }, 0x00000000 },
    { TYPE(FLOAT64), TYPE(MAX), 1, 2, { 0x8000000000000000, 0 }, 0 },
    { TYPE(FLOAT64), TYPE(SUM), 1, 2, { 0x7ff0000000000000, 0xfff0000000000000 }, 0x7ff8000000000000 },
    /* Narrowed once: 2048 + (1 + 1), where 2048 + 1 alone would round to 2048. */
    { TYPE(FLOAT16), TYPE(SUM), 1, 4, { 0x6800, 0x3c00, 0x3c00, 0x0000 }, 0x6801 },
    { TYPE(FLOAT16), TYPE(SUM), 1, 2, { 0x7bff, 0x4c00 }, 0x7c00 },            /* 65504 + 16 */
    { TYPE(FLOAT16), TYPE(SUM), 1, 2, { 0x7bff, 0x4b80 }, 0x7bff },            /* 65504 + 15 */
    { TYPE(FLOAT16), TYPE(AVG), 2, 2, { 0x7bff, 0x7bff }, 0x7bff },            /* beyond it in between */
    { TYPE(FLOAT16), TYPE(AVG), 2, 2, { 0x0001, 0x0000 }, 0x0000 },            /* half of the least: even */
    { TYPE(FLOAT16), TYPE(AVG), 2, 2, { 0x0001, 0x0002 }, 0x0002 },
    { TYPE(FLOAT16), TYPE(SUM), 1, 2, { 0xfc00, 0x7c00 }, 0x7e00 },
    { TYPE(FLOAT16), TYPE(MIN), 1, 2, { 0xfe01, 0x3c00 }, 0x7e00 },
    { TYPE(BFLOAT16), TYPE(SUM), 1, 2, { 0x3f80, 0x3b80 }, 0x3f80 },           /* 1 + 2^-8: tie, to even */
    { TYPE(BFLOAT16), TYPE(SUM), 1, 2, { 0x3f81, 0x3b80 }, 0x3f82 },
    { TYPE(BFLOAT16), TYPE(SUM), 1, 2, { 0x7f7f, 0x7f7f }, 0x7f80 },
    { TYPE(BFLOAT16), TYPE(SUM), 1, 2, { 0x0001, 0x0001 }, 0x0002 },
    { TYPE(BFLOAT16), TYPE(SUM), 1, 2, { 0xff81, 0x0001 }, 0x7fc0 },
    { TYPE(FLOAT8_E4M3FN), TYPE(SUM), 1, 2, { 0x7e, 0x58 }, 0x7e },            /* 448 + 16: tie, to even */
    { TYPE(FLOAT8_E4M3FN), TYPE(SUM), 1, 2, { 0x7e, 0x59 }, 0x7f },            /* 448 + 18 */
    { TYPE(FLOAT8_E4M3FN), TYPE(SUM), 1, 2, { 0xfe, 0xfe }, 0x7f },
    { TYPE(FLOAT8_E4M3FN), TYPE(SUM), 1, 2, { 0x01, 0x01 }, 0x02 },
    { TYPE(FLOAT8_E4M3FN), TYPE(PROD), 1, 2, { 0xff, 0x38 }, 0x7f },
    { TYPE(FLOAT8_E5M2), TYPE(SUM), 1, 2, { 0x7b, 0x7b }, 0x7c },
    { TYPE(FLOAT8_E5M2), TYPE(SUM), 1, 2, { 0x7c, 0xfc }, 0x7e },
    { TYPE(FLOAT8_E5M2), TYPE(MAX), 1, 2, { 0x80, 0x00 }, 0x00 },
    { TYPE(INT8), TYPE(SUM), 1, 2, { 127, 1 }, 0x80 },
    { TYPE(INT8), TYPE(AVG), 2, 2, { 0xfe, 0xff }, 0xff },                     /* -3 / 2 = -1 */
    { TYPE(INT8), TYPE(AVG), 2, 2, { 100, 100 }, 0xe4 },                       /* -56 / 2: wrapped first */
    { TYPE(UINT8), TYPE(AVG), 2, 2, { 100, 101 }, 100 },
    { TYPE(UINT8), TYPE(AVG), 2, 2, { 200, 100 }, 22 },
    { TYPE(INT8), TYPE(MIN), 1, 2, { 0x80, 0x7f }, 0x80 },
    { TYPE(UINT8), TYPE(MIN), 1, 2, { 0x80, 0x7f }, 0x7f },
    { TYPE(INT32), TYPE(PROD), 1, 2, { 0x10000, 0x10001 }, 0x10000 },
    { TYPE(INT64), TYPE(AVG), 3, 2, { UINT64_MAX - 6, 0 }, UINT64_MAX - 1 },   /* -7 / 3 = -2 */
    { TYPE(UINT64), TYPE(AVG), 3, 2, { UINT64_MAX - 6, 0 }, (UINT64_MAX - 6) / 3 },
    { TYPE(INT16), TYPE(BXOR), 1, 3, { 0x00ff, 0x0ff0, 0xf000 }, 0xff0f },
    { TYPE(INT16), TYPE(LAND), 1, 2, { 0x0100, 0x8000 }, 1 },
    { TYPE(UINT32), TYPE(LOR), 1, 1, { 0x80000000 }, 1 },
    { TYPE(UINT32), TYPE(LXOR), 1, 3, { 5, 6, 7 }, 1 },
    { TYPE(BOOL), TYPE(SUM), 1, 2, { 1, 1 }, 1 },
    { TYPE(BOOL), TYPE(SUM), 1, 1, { 0x40 }, 1 },
    { TYPE(BOOL), TYPE(PROD), 1, 2, { 0x40, 0x80 }, 1 },
    { TYPE(BOOL), TYPE(MAX), 1, 2, { 0, 0x80 }, 1 },
    { TYPE(BOOL), TYPE(BAND), 1, 2, { 0x0f, 0xf0 }, 1 },
    { TYPE(BOOL), TYPE(BXOR), 1, 2, { 0x0f, 0xf0 }, 0 },
    /* (1 + 2i)(3 + 4i) = -5 + 10i; a NaN in one part stays there. */
    { TYPE(COMPLEX64), TYPE(PROD), 1, 2, { 0x400000003f800000, 0x4080000040400000 }, 0x41200000c0a00000 },
    { TYPE(COMPLEX64), TYPE(SUM), 1, 2, { 0xff8123453f800000, 0x000000003f800000 }, 0x7fc0000040000000 },
    { TYPE(COMPLEX64), TYPE(AVG), 2, 2, { 0x400000003f800000, 0x4080000040400000 }, 0x4040000040000000 },
};

static void test_the_rules_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct rule *rule = &rules[i];
        const struct rr_reduce r = { .type = rule->type, .op = rule->op, .sources = rule->sources,
                                     .destinations = 1, .divisor = rule->divisor, .count = 1 };
        const void *source[] = { &rule->source[0], &rule->source[1], &rule->source[2], &rule->source[3] };

        for (size_t n = 0; n < NAMES; n++) {
            rr_reduce_fn kernel = rr_reduce_named(names[n], rule->type, rule->op);
            uint64_t got = 0;
            void *to = &got;

            if (kernel == NULL)
                continue;
            kernel(&r, &to, source);
            if (got != rule->want)
                fail_msg("%s: rule %zu, %s %s: 0x%llx instead of 0x%llx", names[n], i, rr_type_name(r.type),
                         rr_op_name(r.op), (unsigned long long)got, (unsigned long long)rule->want);
        }
    }
}

/* Weights, divisor and scale in their order: ((0.5 * 3 + 2 * 5) / 4) * 8. */
static void test_weights_divisor_and_scale_in_their_order(void **state)
{
    static const uint16_t three = 0x4200, five = 0x4500; /* float16 */
    static const float weight[] = { 0.5f, 2 };
    const struct rr_reduce r = { .type = RINGRED_FLOAT16, .op = RINGRED_AVG, .sources = 2, .destinations = 1,
                                 .divisor = 4, .count = 1, .wide_destinations = true, .weight = weight,
                                 .scale = 8 };
    const void *source[] = { &three, &five };
    float got = 0;
    void *to = &got;

    (void)state;
    rr_reduce_kernel(r.type, r.op)(&r, &to, source);
    assert_true(got == 23);
}

/* ---- the caller's floating point modes ---- */

#if defined(__x86_64__)
static uint64_t mode_get(void)
{
    uint32_t mode;

    __asm__ __volatile__("stmxcsr %0" : "=m"(mode)::"memory");
    return mode;
}

static void mode_set(uint64_t to)
{
    uint32_t mode = (uint32_t)to;

    __asm__ __volatile__("ldmxcsr %0" ::"m"(mode) : "memory");
}

/* Each rounding; flush to zero; denormals are zero; all of them with every trap open. */
static const uint64_t hostile_modes[] = { 0x1f80, 0x3f80, 0x5f80, 0x7f80, 0x9f80, 0x1fc0, 0xffc0, 0xe040 };
#else
static uint64_t mode_get(void)
{
    uint64_t mode;

    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode)::"memory");
    return mode;
}

static void mode_set(uint64_t mode)
{
    __asm__ __volatile__("msr fpcr, %0" ::"r"(mode) : "memory");
}

/* Each rounding; flush to zero; default NaN. */
static const uint64_t hostile_modes[] = { 0, 1u << 22, 2u << 22, 3u << 22, 1u << 24, 1u << 25, 15u << 22 };
#endif

static rr_reduce_fn tested;
static uint64_t mode, mode_after;

static void run_in_mode(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const uint64_t before = mode_get();

    mode_set(mode);
    tested(r, destination, source);
    mode_after = mode_get();
    mode_set(before);
}

static void check_modes(const char *name, struct compare_pair pair, int k, struct numbers_random *random)
{
    struct compare_call c = compare_draw(pair, k, 1, 150, random);
    rr_reduce_fn kernel = rr_reduce_named(name, pair.type, pair.op);
    char text[512];

    if (kernel == NULL)
        return;
    c.kind = NUMBERS_WILD;
    if (!compare_reference(&c, text, sizeof text))
        fail_msg("%s", text);
    for (size_t m = 0; m < sizeof hostile_modes / sizeof hostile_modes[0]; m++) {
        mode = hostile_modes[m];
        tested = kernel;
        if (!compare_kernel(name, run_in_mode, &c, text, sizeof text))
            fail_msg("mode 0x%llx: %s", (unsigned long long)mode, text);
        if ((mode_after & ~UINT64_C(0x3f)) != mode)
            fail_msg("%s: mode 0x%llx came back as 0x%llx", name, (unsigned long long)mode,
                     (unsigned long long)mode_after);
    }
}

static void test_the_callers_modes_change_no_bit_and_come_back(void **state)
{
    struct numbers_random random = { seed + 6 };

    (void)state;
    for (size_t n = 0; n < NAMES; n++)
        for (int p = 0; p < pair_count; p++)
            for (int k = 1; k <= 6; k++)
                check_modes(names[n], pairs[p], k, &random);
}

/* ---- choosing, and copying ---- */

static bool is_legal(int type, int op)
{
    const bool integer = type >= RINGRED_INT8 && type <= RINGRED_UINT64;

    if (type == RINGRED_BYTES || (type == RINGRED_BOOL && op == RINGRED_AVG))
        return false;
    if (type == RINGRED_COMPLEX64 || type == RINGRED_COMPLEX128)
        return op <= RINGRED_PROD;
    return integer || type == RINGRED_BOOL || op <= RINGRED_MAX;
}

static void test_every_legal_pair_has_kernels_and_no_other(void **state)
{
    (void)state;
    assert_int_equal(pair_count, 6 * 5 + 8 * 11 + 10 + 2 * 3);
    for (int type = 1; type < RR_TYPES; type++)
        for (int op = RINGRED_SUM; op < RINGRED_SUM + RR_OPS; op++) {
            assert_int_equal(rr_op_legal(type, op), is_legal(type, op));
            assert_int_equal(rr_reduce_kernel(type, op) != NULL, is_legal(type, op));
            assert_int_equal(rr_reduce_reference(type, op) != NULL, is_legal(type, op));
        }
}

static void test_types_and_operators_have_names_and_sizes(void **state)
{
    (void)state;
    for (int type = 1; type < RR_TYPES; type++) {
        assert_int_equal(rr_type_of_name(rr_type_name(type)), type);
        assert_int_equal(rr_type_bytes(type), numbers_bytes(type));
    }
    for (int op = RINGRED_SUM; op < RINGRED_SUM + RR_OPS; op++)
        assert_int_equal(rr_op_of_name(rr_op_name(op)), op);
    assert_int_equal(rr_type_of_name("float8_e4m3fn"), RINGRED_FLOAT8_E4M3FN);
    assert_int_equal(rr_op_of_name("lxor"), RINGRED_LXOR);
    assert_int_equal(rr_type_of_name("?"), -1);
    assert_int_equal(rr_op_of_name(""), -1);
    assert_string_equal(rr_type_name(RR_TYPES), "?");
    assert_string_equal(rr_op_name(RINGRED_LXOR + 1), "?");
    assert_int_equal(rr_type_bytes(0), 0);
    assert_int_equal(rr_type_bytes(-1), 0);
    assert_int_equal(rr_type_bytes(RR_TYPES), 0);
}

static void test_unknown_kernels_types_and_operators_are_not_offered(void **state)
{
    (void)state;
    assert_null(rr_reduce_named("mmx", RINGRED_FLOAT32, RINGRED_SUM));
    assert_null(rr_reduce_kernel(0, RINGRED_SUM));
    assert_null(rr_reduce_kernel(RINGRED_FLOAT32, 0));
    assert_null(rr_reduce_kernel(RINGRED_SUM, RINGRED_FLOAT32));
    assert_ptr_equal(rr_reduce_kernel(RINGRED_FLOAT32, RINGRED_SUM),
                     rr_reduce_named(rr_reduce_name(), RINGRED_FLOAT32, RINGRED_SUM));
}

static void check_copy(rr_copy_fn copy, size_t least)
{
    enum { BYTES = COMPARE_BYTES, ROOM = BYTES + 256 };
    static unsigned char source[ROOM], destination[ROOM];
    struct numbers_random random = { seed + 7 };

    for (int i = 0; i < ROOM; i++)
        source[i] = (unsigned char)numbers_next(&random);
    for (int round = 0; round < 6000; round++) {
        const size_t bytes = round < 2000 ? least + (size_t)round : least + numbers_below(&random, BYTES / 2);
        const unsigned char *from = source + 128 + numbers_below(&random, 64);
        const size_t at = 128 + numbers_below(&random, 64);

        memset(destination, 0xa5, ROOM);
        copy(destination + at, from, bytes);
        assert_memory_equal(destination + at, from, bytes);
        for (size_t i = at - 64; i < at; i++)
            assert_int_equal(destination[i], 0xa5);
        for (size_t i = at + bytes; i < at + bytes + 64 && i < ROOM; i++)
            assert_int_equal(destination[i], 0xa5);
    }
}

static void test_copies_copy_and_nothing_else(void **state)
{
    (void)state;
    check_copy(rr_copy, 0);
#if defined(__x86_64__)
    if (rr_reduce_named("avx2", RINGRED_FLOAT32, RINGRED_SUM))
        check_copy(rr_copy_avx2, 256); /* rr_copy gives them no shorter ones */
    if (rr_reduce_named("avx512", RINGRED_FLOAT32, RINGRED_SUM))
        check_copy(rr_copy_avx512, 256);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_legal_pair_has_kernels_and_no_other),
        cmocka_unit_test(test_types_and_operators_have_names_and_sizes),
        cmocka_unit_test(test_unknown_kernels_types_and_operators_are_not_offered),
        cmocka_unit_test(test_the_rules_by_hand),
        cmocka_unit_test(test_weights_divisor_and_scale_in_their_order),
        cmocka_unit_test(test_every_pair_of_bytes),
        cmocka_unit_test(test_every_float_of_16_bits),
        cmocka_unit_test(test_narrowing_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(test_special_numbers_in_each_lane_and_source),
        cmocka_unit_test(test_every_small_count_has_the_bits_of_the_reference),
        cmocka_unit_test(test_sums_of_float32_and_float64_in_every_shape),
        cmocka_unit_test(test_counts_around_lanes_and_tiles_have_the_bits_of_the_reference),
        cmocka_unit_test(test_many_sources_have_the_bits_of_the_reference),
        cmocka_unit_test(test_every_offset_has_the_bits_of_the_reference),
        cmocka_unit_test(test_division_by_powers_of_two_rounds_denormals_like_division),
        cmocka_unit_test(test_the_callers_modes_change_no_bit_and_come_back),
        cmocka_unit_test(test_copies_copy_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, set_up, compare_tear_down);
}
