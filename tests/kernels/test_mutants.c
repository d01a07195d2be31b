/* SPDX-License-Identifier: Apache-2.0 */
/* Would the comparison of test_reduce find a kernel that is wrong? Kernels with one mistake each, made of
 * the reference, go through the same draws, often enough that every one must be caught. */
#include "compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SCRATCH 4096

typedef void *const *into;
typedef const void *const *from;

static void right(const struct rr_reduce *r, into to, from s)
{
    rr_reduce_reference(r->type, r->op)(r, to, s);
}

/* ---- which elements ---- */

static void leaves_out_the_last_element(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.count -= r->count > 0;
    right(&wrong, to, s);
}

static void writes_one_more(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.count++;
    right(&wrong, to, s);
}

static void leaves_out_a_destination(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.destinations -= r->destinations > 1;
    right(&wrong, to, s);
}

static void takes_a_source_twice(const struct rr_reduce *r, into to, from s)
{
    const void *wrong[RR_REDUCE_SOURCES];

    memcpy(wrong, s, (size_t)r->sources * sizeof wrong[0]);
    wrong[r->sources - 1] = s[0];
    right(r, to, wrong);
}

static void writes_before_it_reads(const struct rr_reduce *r, into to, from s)
{
    memset(to[0], 0, r->count * rr_type_bytes(r->wide_destinations ? RINGRED_FLOAT32 : r->type));
    right(r, to, s);
}

static void writes_into_a_source(const struct rr_reduce *r, into to, from s)
{
    right(r, to, s);
    if (r->count > 0)
        *(unsigned char *)(uintptr_t)s[r->sources - 1] ^= 1;
}

/* ---- in which order ---- */

static void goes_from_right_to_left(const struct rr_reduce *r, into to, from s)
{
    const void *wrong[RR_REDUCE_SOURCES];

    for (int i = 0; i < r->sources; i++)
        wrong[i] = s[r->sources - 1 - i];
    right(r, to, wrong);
}

static void adds_one_after_another(const struct rr_reduce *r, into to, from s)
{
    unsigned char sum[SCRATCH];
    struct rr_reduce two = *r;
    void *into_sum = sum;

    if (r->sources < 3 || r->weight) {
        right(r, to, s);
        return;
    }
    two.sources = 2;
    for (int i = 1; i < r->sources; i++) {
        const void *pair[2] = { i == 1 ? s[0] : sum, s[i] };
        const bool last = i == r->sources - 1;

        two.divisor = last ? r->divisor : 1;
        two.scale = last ? r->scale : 0;
        two.destinations = last ? r->destinations : 1;
        right(&two, last ? to : &into_sum, pair);
    }
}

static void narrows_in_between(const struct rr_reduce *r, into to, from s)
{
    unsigned char half[2][SCRATCH];
    struct rr_reduce two = *r;

    if (r->sources != 4 || r->weight || r->wide_sources || r->wide_destinations) {
        right(r, to, s);
        return;
    }
    two = (struct rr_reduce){ .type = r->type, .op = r->op, .sources = 2, .destinations = 1, .divisor = 1,
                              .count = r->count };
    for (int i = 0; i < 2; i++) {
        void *into_half = half[i];

        right(&two, &into_half, s + 2 * i);
    }
    const void *halves[2] = { half[0], half[1] };
    two = *r;
    two.sources = 2;
    right(&two, to, halves);
}

/* ---- what is done besides ---- */

static void multiplies_by_a_reciprocal(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    if (r->scale == 0 && r->divisor > 1) {
        wrong.scale = 1.0 / r->divisor;
        wrong.divisor = 1;
    }
    right(&wrong, to, s);
}

static void knows_no_weights(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.weight = NULL;
    right(&wrong, to, s);
}

static void knows_no_scale(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.scale = 0;
    right(&wrong, to, s);
}

static void knows_no_operator(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.op = r->op == RINGRED_MIN ? RINGRED_MAX : RINGRED_MIN;
    right(&wrong, to, s);
}

static void takes_it_for_unsigned(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.type = r->type - RINGRED_INT8 + RINGRED_UINT8;
    right(&wrong, to, s);
}

static void takes_it_for_bytes(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce wrong = *r;

    wrong.type = RINGRED_UINT8;
    right(&wrong, to, s);
}

/* ---- how one result is rounded: changes what the reference wrote ---- */

static void each_float(const struct rr_reduce *r, into to, from s, uint32_t (*change)(uint32_t bits))
{
    right(r, to, s);
    for (int d = 0; d < r->destinations; d++)
        for (size_t i = 0; i < r->count; i++) {
            const size_t bytes = rr_type_bytes(r->wide_destinations ? RINGRED_FLOAT32 : r->type);
            uint32_t bits = 0;

            memcpy(&bits, (char *)to[d] + i * bytes, bytes);
            bits = change(bits);
            memcpy((char *)to[d] + i * bytes, &bits, bytes);
        }
}

static uint32_t flushed(uint32_t bits)
{
    return bits & 0x7f800000 ? bits : bits & 0x80000000;
}

static void flushes_denormals(const struct rr_reduce *r, into to, from s)
{
    each_float(r, to, s, flushed);
}

static uint32_t loud(uint32_t bits)
{
    return bits == 0x7fc00000 ? 0xffc00000 : bits;
}

static void has_another_nan(const struct rr_reduce *r, into to, from s)
{
    each_float(r, to, s, loud);
}

static uint32_t saturated(uint32_t bits)
{
    return bits == 0x7c00 ? 0x7bff : bits;
}

static void saturates_float16(const struct rr_reduce *r, into to, from s)
{
    if (r->wide_destinations)
        right(r, to, s);
    else
        each_float(r, to, s, saturated);
}

static uint32_t positive(uint32_t bits)
{
    return bits == 0x80000000 ? 0 : bits;
}

static void loses_the_sign_of_zero(const struct rr_reduce *r, into to, from s)
{
    each_float(r, to, s, positive);
}

/* Narrows what the reference has in float32 in another way. */
static void narrow_otherwise(const struct rr_reduce *r, into to, from s, uint32_t add)
{
    uint32_t wide[SCRATCH];
    struct rr_reduce unrounded = *r;
    void *into_wide = wide;

    if (r->wide_destinations) {
        right(r, to, s);
        return;
    }
    unrounded.wide_destinations = true;
    unrounded.destinations = 1;
    right(&unrounded, &into_wide, s);
    for (size_t i = 0; i < r->count; i++) {
        const uint16_t bits = (uint16_t)((wide[i] + add) >> 16);

        for (int d = 0; d < r->destinations; d++)
            memcpy((char *)to[d] + 2 * i, &bits, 2);
    }
}

static void cuts_bfloat16(const struct rr_reduce *r, into to, from s)
{
    narrow_otherwise(r, to, s, 0);
}

static void rounds_ties_of_bfloat16_up(const struct rr_reduce *r, into to, from s)
{
    narrow_otherwise(r, to, s, 0x8000);
}

/* ---- two sources, element by element ---- */

static bool is_simple(const struct rr_reduce *r)
{
    return r->sources == 2 && r->divisor <= 1 && !r->weight && r->scale == 0;
}

static void each_pair(const struct rr_reduce *r, into to, from s, float (*one)(float a, float b))
{
    for (size_t i = 0; i < r->count && is_simple(r); i++) {
        const uint32_t quiet = 0x7fc00000;
        float a, b;

        memcpy(&a, (const char *)s[0] + 4 * i, 4);
        memcpy(&b, (const char *)s[1] + 4 * i, 4);
        a = one(a, b);
        for (int d = 0; d < r->destinations; d++)
            memcpy((char *)to[d] + 4 * i, isnan(a) ? (const void *)&quiet : (const void *)&a, 4);
    }
    if (!is_simple(r))
        right(r, to, s);
}

static float simple_min(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static void has_equal_zeros(const struct rr_reduce *r, into to, from s)
{
    each_pair(r, to, s, simple_min);
}

static float forgiving_max(float a, float b)
{
    return isnan(a) ? b : isnan(b) ? a : a > b || (a == b && signbit(b)) ? a : b;
}

static void ignores_nan(const struct rr_reduce *r, into to, from s)
{
    each_pair(r, to, s, forgiving_max);
}

static float sum_cut(float a, float b)
{
    const double exact = (double)a + b;
    const float near = (float)exact;

    return fabs(near) > fabs(exact) && isfinite(near) ? nextafterf(near, 0) : near;
}

static void rounds_sums_to_zero(const struct rr_reduce *r, into to, from s)
{
    each_pair(r, to, s, sum_cut);
}

static void saturates_int8(const struct rr_reduce *r, into to, from s)
{
    for (size_t i = 0; i < r->count && is_simple(r); i++) {
        const int sum = ((const int8_t *)s[0])[i] + ((const int8_t *)s[1])[i];

        for (int d = 0; d < r->destinations; d++)
            ((int8_t *)to[d])[i] = (int8_t)(sum > 127 ? 127 : sum < -128 ? -128 : sum);
    }
    if (!is_simple(r))
        right(r, to, s);
}

static void fuses_complex_products(const struct rr_reduce *r, into to, from s)
{
    for (size_t i = 0; i < r->count && is_simple(r); i++) {
        const uint64_t quiet = 0x7ff8000000000000;
        double a[2], b[2], x[2];

        memcpy(a, (const char *)s[0] + 16 * i, 16);
        memcpy(b, (const char *)s[1] + 16 * i, 16);
        x[0] = fma(a[0], b[0], -(a[1] * b[1]));
        x[1] = fma(a[0], b[1], a[1] * b[0]);
        for (int j = 0; j < 2; j++)
            if (isnan(x[j]))
                memcpy(&x[j], &quiet, 8);
        for (int d = 0; d < r->destinations; d++)
            memcpy((char *)to[d] + 16 * i, x, 16);
    }
    if (!is_simple(r))
        right(r, to, s);
}

static void rounds_averages_down(const struct rr_reduce *r, into to, from s)
{
    struct rr_reduce sum = *r;

    sum.divisor = 1;
    right(&sum, to, s);
    for (int d = 0; d < r->destinations; d++)
        for (size_t i = 0; i < r->count && r->divisor > 1; i++) {
            int64_t x, by = r->divisor;

            memcpy(&x, (char *)to[d] + 8 * i, 8);
            x = x / by - (x % by < 0);
            memcpy((char *)to[d] + 8 * i, &x, 8);
        }
}

/* ---- all of them ---- */

#define MUTANT(name, type, op) { #name, name, { RINGRED_##type, RINGRED_##op } }
static const struct {
    const char *name;
    rr_reduce_fn kernel;
    struct compare_pair pair;
} mutants[] = {
    MUTANT(leaves_out_the_last_element, FLOAT32, SUM),
    MUTANT(leaves_out_the_last_element, BOOL, LOR),
    MUTANT(writes_one_more, INT8, MAX),
    MUTANT(writes_one_more, FLOAT16, SUM),
    MUTANT(leaves_out_a_destination, BFLOAT16, SUM),
    MUTANT(takes_a_source_twice, UINT64, PROD),
    MUTANT(writes_before_it_reads, FLOAT64, SUM),
    MUTANT(writes_into_a_source, INT32, BAND),
    MUTANT(goes_from_right_to_left, FLOAT32, SUM),
    MUTANT(goes_from_right_to_left, COMPLEX64, PROD),
    MUTANT(adds_one_after_another, FLOAT64, SUM),
    MUTANT(adds_one_after_another, COMPLEX128, SUM),
    MUTANT(narrows_in_between, FLOAT16, SUM),
    MUTANT(narrows_in_between, FLOAT8_E5M2, PROD),
    MUTANT(multiplies_by_a_reciprocal, FLOAT32, AVG),
    MUTANT(multiplies_by_a_reciprocal, FLOAT16, AVG),
    MUTANT(knows_no_weights, FLOAT8_E4M3FN, SUM),
    MUTANT(knows_no_scale, COMPLEX64, SUM),
    MUTANT(knows_no_operator, UINT16, MIN),
    MUTANT(takes_it_for_unsigned, INT8, MIN),
    MUTANT(takes_it_for_unsigned, INT64, AVG),
    MUTANT(takes_it_for_bytes, BOOL, BXOR),
    MUTANT(takes_it_for_bytes, BOOL, MAX),
    MUTANT(flushes_denormals, FLOAT32, PROD),
    MUTANT(has_another_nan, FLOAT32, SUM),
    MUTANT(saturates_float16, FLOAT16, SUM),
    MUTANT(loses_the_sign_of_zero, FLOAT32, PROD),
    MUTANT(cuts_bfloat16, BFLOAT16, SUM),
    MUTANT(rounds_ties_of_bfloat16_up, BFLOAT16, SUM),
    MUTANT(has_equal_zeros, FLOAT32, MIN),
    MUTANT(ignores_nan, FLOAT32, MAX),
    MUTANT(rounds_sums_to_zero, FLOAT32, SUM),
    MUTANT(saturates_int8, INT8, SUM),
    MUTANT(fuses_complex_products, COMPLEX128, PROD),
    MUTANT(rounds_averages_down, INT64, AVG),
};

static bool is_caught(size_t m, struct numbers_random *random)
{
    char text[512];

    for (int round = 0; round < 20000; round++) {
        const int k = 1 + round % 9, d = 1 + (int)numbers_below(random, 4);
        const struct compare_call c = compare_draw(mutants[m].pair, k, d, numbers_below(random, 71), random);

        assert_true(compare_reference(&c, text, sizeof text));
        if (!compare_kernel(mutants[m].name, mutants[m].kernel, &c, text, sizeof text))
            return true;
    }
    return false;
}

static void test_every_mutant_is_caught(void **state)
{
    struct numbers_random random = { numbers_seed("test_mutants") };

    (void)state;
    for (size_t m = 0; m < sizeof mutants / sizeof mutants[0]; m++)
        if (!is_caught(m, &random))
            fail_msg("not caught: %s (%s)", mutants[m].name, rr_type_name(mutants[m].pair.type));
}

static void test_the_reference_itself_is_not(void **state)
{
    struct numbers_random random = { numbers_seed("test_mutants") };
    struct compare_pair pairs[RR_TYPES * RR_OPS];
    const int n = compare_pairs(pairs);
    char text[512];

    (void)state;
    for (int round = 0; round < 5 * n; round++) {
        const struct compare_pair pair = pairs[round % n];
        const struct compare_call c = compare_draw(pair, 1 + round % 9, 1 + round % 4, 50, &random);

        assert_true(compare_reference(&c, text, sizeof text));
        assert_true(compare_kernel("right", right, &c, text, sizeof text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mutant_is_caught),
        cmocka_unit_test(test_the_reference_itself_is_not),
    };

    return cmocka_run_group_tests(tests, compare_set_up, compare_tear_down);
}
