/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of this machine against ref.c, byte for byte, and ref.c against the tests' own
 * reference: sources, destinations, counts, offsets, special numbers, in place, hostile modes. */
#include "numerics.h"
#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_BYTES 40000   /* of one array */
#define GUARD 128
#define MOST_D 9

static const char *const names[] = { "avx512", "avx2", "neon", "c" };
static const int types[] = { RINGRED_FLOAT32, RINGRED_FLOAT64 };
static uint64_t seed;

/* One call: where each array begins in its own room, with guard bytes around. */
struct call {
    struct rr_reduce reduce;
    enum numbers_kind kind;
    size_t source_offset[RR_REDUCE_SOURCES], destination_offset[MOST_D];
    int in_place;              /* this source is destination 0; -1: none is */
    uint64_t seed;
};

static unsigned char *source_room[RR_REDUCE_SOURCES], *destination_room[MOST_D];
static unsigned char *want, *independent;

static int set_up(void **state)
{
    (void)state;
    for (int k = 0; k < RR_REDUCE_SOURCES; k++)
        source_room[k] = aligned_alloc(64, rr_round_up(MOST_BYTES + 2 * GUARD, 64));
    for (int d = 0; d < MOST_D; d++)
        destination_room[d] = aligned_alloc(64, rr_round_up(MOST_BYTES + 2 * GUARD, 64));
    want = malloc(MOST_BYTES);
    independent = malloc(MOST_BYTES);
    seed = numbers_seed("test_reduce");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int k = 0; k < RR_REDUCE_SOURCES; k++)
        free(source_room[k]);
    for (int d = 0; d < MOST_D; d++)
        free(destination_room[d]);
    free(want);
    free(independent);
    return 0;
}

static const char *call_text(const char *kernel, const struct call *c)
{
    static char text[256];

    snprintf(text, sizeof text, "%s %s: %zu elements, %d into %d, in place %d, divisor %u, offsets %zu, %zu",
             kernel, rr_type_name(c->reduce.type), c->reduce.count, c->reduce.sources,
             c->reduce.destinations, c->in_place, c->reduce.divisor, c->source_offset[0],
             c->destination_offset[0]);
    return text;
}

static void fill_sources(const struct call *c, const void **source)
{
    for (int k = 0; k < c->reduce.sources; k++) {
        unsigned char *at = source_room[k] + GUARD + c->source_offset[k];

        numbers_fill(at, c->reduce.type, c->kind, c->seed, k, 0, c->reduce.count);
        source[k] = at;
    }
}

static bool all_are(const unsigned char *from, const unsigned char *to, unsigned char value)
{
    for (; from < to; from++)
        if (*from != value)
            return false;
    return true;
}

static void check_room(const unsigned char *room, const unsigned char *at, size_t bytes, const char *text)
{
    if (memcmp(at, want, bytes) != 0)
        fail_msg("%s: wrong bytes", text);
    if (!all_are(room, at, 0xa5) || !all_are(at + bytes, at + bytes + GUARD / 2, 0xa5))
        fail_msg("%s: wrote outside the destination", text);
}

/* Runs one kernel into destinations that are all guard bytes before, or over a source. */
static void check_kernel(const char *name, rr_reduce_fn kernel, const struct call *c)
{
    const size_t bytes = c->reduce.count * rr_type_bytes(c->reduce.type);
    const void *source[RR_REDUCE_SOURCES];
    void *destination[MOST_D];

    fill_sources(c, source);
    for (int d = 0; d < c->reduce.destinations; d++) {
        memset(destination_room[d], 0xa5, c->destination_offset[d] + bytes + 2 * GUARD);
        destination[d] = destination_room[d] + GUARD + c->destination_offset[d];
    }
    if (c->in_place >= 0)
        destination[0] = (unsigned char *)source_room[c->in_place] + GUARD + c->source_offset[c->in_place];
    kernel(&c->reduce, destination, source);

    for (int d = c->in_place >= 0; d < c->reduce.destinations; d++)
        check_room(destination_room[d], destination[d], bytes, call_text(name, c));
    if (c->in_place >= 0 && memcmp(destination[0], want, bytes) != 0)
        fail_msg("%s: wrong bytes", call_text(name, c));
    for (int k = 0; k < c->reduce.sources; k++) {
        numbers_fill(independent, c->reduce.type, c->kind, c->seed, k, 0, c->reduce.count);
        if (k != c->in_place && memcmp(independent, source[k], bytes) != 0)
            fail_msg("%s: wrote into source %d", call_text(name, c), k);
    }
}

static void check(const struct call *c)
{
    const struct rr_reduce *r = &c->reduce;
    const void *source[RR_REDUCE_SOURCES];
    void *to = want;
    struct rr_reduce one = *r;
    char text[256];

    fill_sources(c, source);
    one.destinations = 1;
    rr_reduce_reference(r->type, r->op)(&one, &to, source);
    numbers_fold(independent, r->type, source, r->sources, r->divisor, r->count);
    if (numbers_differ(want, independent, r->type, r->count, text, sizeof text) >= 0)
        fail_msg("reference against tests: %s: %s", call_text("c", c), text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rr_reduce_fn kernel = rr_reduce_named(names[i], r->type, r->op);

        if (kernel != NULL)
            check_kernel(names[i], kernel, c);
    }
}

static struct call call_of(int type, int k, int d, size_t count, struct numbers_random *random)
{
    static const uint32_t divisors[] = { 1, 1, 2, 3, 4, 5, 7, 8, 64, 100, 256 };
    struct call c = { .reduce = { .type = type, .op = RINGRED_SUM, .sources = k, .destinations = d,
                                  .count = count } };
    const bool odd = numbers_below(random, 8) == 0;   /* not even aligned to elements */
    const bool aligned = numbers_below(random, 4) == 0;

    c.reduce.divisor = divisors[numbers_below(random, sizeof divisors / sizeof divisors[0])];
    c.kind = numbers_below(random, 2) ? NUMBERS_WILD : NUMBERS_ROUNDING;
    c.in_place = numbers_below(random, 3) == 0 ? (int)numbers_below(random, (uint64_t)k) : -1;
    c.seed = numbers_next(random);
    for (int i = 0; i < k + d; i++) {
        const size_t unit = odd ? 1 : rr_type_bytes(type);
        const size_t offset = aligned ? 0 : numbers_below(random, 64) / unit * unit;

        if (i < k)
            c.source_offset[i] = offset;
        else
            c.destination_offset[i - k] = offset;
    }
    return c;
}

static const int source_counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                                     31, 32, 33, 48, 63, 64 };

static void test_every_small_count_has_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed };

    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (size_t k = 0; k < sizeof source_counts / sizeof source_counts[0]; k++)
            for (int d = 1; d <= 5; d++)
                for (size_t count = 0; count <= 70; count++) {
                    const struct call c = call_of(types[t], source_counts[k], d, count, &random);

                    check(&c);
                }
}

static void test_counts_around_tiles_have_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed + 1 };
    static const size_t bytes[] = { 256, 512, 1024, 2048, 4096, 8192, 12288 };

    (void)state;
    for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++)
        for (int around = -5; around <= 5; around++)
            for (int round = 0; round < 24; round++) {
                const int type = types[round % 2];
                const size_t count = bytes[b] / rr_type_bytes(type) + (size_t)around;
                const int k = round < 12 ? 1 + round / 2 : 1 + (int)numbers_below(&random, 40);
                const struct call c = call_of(type, k, 1 + (int)numbers_below(&random, MOST_D), count, &random);

                check(&c);
            }
}

static void test_many_sources_have_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed + 2 };
    static const int most[] = { 127, 128, 129, 255, 256 };

    (void)state;
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++)
        for (size_t t = 0; t < 2; t++) {
            const size_t count = 1030 + numbers_below(&random, 20);
            const struct call c = call_of(types[t], most[i], 1 + (int)i, count, &random);

            check(&c);
        }
}

/* Every place of every offset in the lines, for the shapes that matter most. */
static void test_every_offset_has_the_bits_of_the_reference(void **state)
{
    struct numbers_random random = { seed + 3 };

    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (int k = 2; k <= 5; k++)
            for (size_t offset = 0; offset < 64; offset++) {
                struct call c = call_of(types[t], k, 1 + (int)offset % 2, 600 + offset, &random);

                c.destination_offset[0] = offset;
                c.source_offset[1] = offset;
                c.in_place = offset % 3 == 0 ? 1 : -1;
                check(&c);
            }
}

/* ---- special numbers, one at a time: each lane, each source ---- */

static const uint32_t special32[] = {
    0x7fc00000, 0xffc00000, 0x7fc12345, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7f800000, 0xff800000,
    0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
};
static const uint64_t special64[] = {
    0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000012345, 0x7ff0000000000001, 0xfff0000000000001,
    0x7ff7ffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x0000000000000000, 0x8000000000000000,
    0x0000000000000001, 0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff,
};
#define SPECIALS (sizeof special32 / sizeof special32[0])

static void put_special(void *array, int type, size_t i, size_t which)
{
    if (type == RINGRED_FLOAT32)
        memcpy((char *)array + 4 * i, &special32[which], 4);
    else
        memcpy((char *)array + 8 * i, &special64[which], 8);
}

static void check_special(int type, int k, size_t lane, size_t a, size_t b, uint32_t divisor)
{
    enum { COUNT = 83 };
    unsigned char inputs[RR_REDUCE_SOURCES < 9 ? RR_REDUCE_SOURCES : 9][COUNT * 8], out[2][COUNT * 8];
    const void *source[9];
    void *to[2] = { out[0], out[1] };
    struct rr_reduce r = { type, RINGRED_SUM, k, 1, divisor, COUNT };
    const size_t bytes = COUNT * rr_type_bytes(type);

    for (int s = 0; s < k; s++) {
        numbers_fill(inputs[s], type, NUMBERS_COUNTING, 1, s, 0, COUNT);
        source[s] = inputs[s];
    }
    for (int s = 0; s < k; s++) {
        put_special(inputs[s], type, lane, a);
        put_special(inputs[(s + 1) % k], type, lane, b);
        numbers_fold(want, type, source, k, divisor, COUNT);
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            rr_reduce_fn kernel = rr_reduce_named(names[n], type, RINGRED_SUM);

            if (kernel == NULL)
                continue;
            r.destinations = 1 + s % 2;
            kernel(&r, to, source);
            if (memcmp(out[0], want, bytes) || (r.destinations == 2 && memcmp(out[1], want, bytes)))
                fail_msg("%s %s: special %zu and %zu in lane %zu of source %d of %d, divisor %u", names[n],
                         rr_type_name(type), a, b, lane, s, k, divisor);
        }
    }
}

static void test_special_numbers_in_each_lane_and_source(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (int k = 1; k <= 9; k++)
            for (size_t lane = 0; lane < 83; lane += k < 4 ? 1 : 5)
                for (size_t a = 0; a < SPECIALS; a++)
                    check_special(types[t], k, lane, a, (a * 7 + lane) % SPECIALS, 1 + (uint32_t)lane % 3);
}

static void test_special_numbers_in_pairs(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (size_t a = 0; a < SPECIALS; a++)
            for (size_t b = 0; b < SPECIALS; b++)
                for (uint32_t divisor = 1; divisor <= 3; divisor++)
                    check_special(types[t], 2, (a + b) % 83, a, b, divisor);
}

/* A power of two divides by its reciprocal inside: also where the quotient is a denormal. */
static void test_division_by_powers_of_two_rounds_denormals_like_division(void **state)
{
    struct numbers_random random = { seed + 4 };

    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (int power = 1; power <= 31; power++) {
            struct call c = call_of(types[t], 2, 1, 500, &random);

            c.kind = NUMBERS_WILD;
            c.reduce.divisor = UINT32_C(1) << power;
            check(&c);
        }
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

static void check_modes(const char *name, int type, int k, uint32_t divisor)
{
    enum { COUNT = 777 };
    struct rr_reduce r = { type, RINGRED_SUM, k, 1, divisor, COUNT };
    rr_reduce_fn kernel = rr_reduce_named(name, type, RINGRED_SUM);
    const void *source[RR_REDUCE_SOURCES];
    void *to = destination_room[0];
    struct call c = { .reduce = r, .kind = NUMBERS_WILD, .seed = seed };

    if (kernel == NULL)
        return;
    fill_sources(&c, source);
    numbers_fold(want, type, source, k, divisor, COUNT);
    for (size_t m = 0; m < sizeof hostile_modes / sizeof hostile_modes[0]; m++) {
        const uint64_t before = mode_get();
        uint64_t after;

        mode_set(hostile_modes[m]);
        kernel(&r, &to, source);
        after = mode_get();
        mode_set(before);
        if ((after & ~UINT64_C(0x3f)) != hostile_modes[m])
            fail_msg("%s: mode 0x%llx came back as 0x%llx", name, (unsigned long long)hostile_modes[m],
                     (unsigned long long)after);
        if (memcmp(to, want, COUNT * rr_type_bytes(type)) != 0)
            fail_msg("%s %s: other bits under mode 0x%llx", name, rr_type_name(type),
                     (unsigned long long)hostile_modes[m]);
    }
}

static void test_the_callers_modes_change_no_bit_and_come_back(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        for (size_t t = 0; t < 2; t++)
            for (int k = 1; k <= 18; k++)
                check_modes(names[n], types[t], k, 1 + (uint32_t)k % 4);
}

/* ---- choosing, and copying ---- */

static void test_unknown_kernels_types_and_operators_are_not_offered(void **state)
{
    (void)state;
    assert_null(rr_reduce_named("mmx", RINGRED_FLOAT32, RINGRED_SUM));
    assert_null(rr_reduce_kernel(0, RINGRED_SUM));
    assert_null(rr_reduce_kernel(RINGRED_FLOAT32, 0));
    assert_null(rr_reduce_kernel(RINGRED_SUM, RINGRED_FLOAT32));
    assert_non_null(rr_reduce_kernel(RINGRED_FLOAT64, RINGRED_SUM));
    assert_ptr_equal(rr_reduce_kernel(RINGRED_FLOAT32, RINGRED_SUM),
                     rr_reduce_named(rr_reduce_name(), RINGRED_FLOAT32, RINGRED_SUM));
}

static void test_copies_copy_and_nothing_else(void **state)
{
    struct numbers_random random = { seed + 5 };

    (void)state;
    for (int round = 0; round < 6000; round++) {
        const size_t bytes = round < 2000 ? (size_t)round : numbers_below(&random, MOST_BYTES - 64);
        const unsigned char *from = source_room[0] + GUARD + numbers_below(&random, 64);
        unsigned char *to = destination_room[0] + GUARD + numbers_below(&random, 64);

        memset(destination_room[0], 0xa5, MOST_BYTES + 2 * GUARD);
        rr_copy(to, from, bytes);
        assert_memory_equal(to, from, bytes);
        assert_true(all_are(destination_room[0], to, 0xa5));
        assert_true(all_are(to + bytes, destination_room[0] + MOST_BYTES + 2 * GUARD, 0xa5));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_count_has_the_bits_of_the_reference),
        cmocka_unit_test(test_counts_around_tiles_have_the_bits_of_the_reference),
        cmocka_unit_test(test_many_sources_have_the_bits_of_the_reference),
        cmocka_unit_test(test_every_offset_has_the_bits_of_the_reference),
        cmocka_unit_test(test_special_numbers_in_each_lane_and_source),
        cmocka_unit_test(test_special_numbers_in_pairs),
        cmocka_unit_test(test_division_by_powers_of_two_rounds_denormals_like_division),
        cmocka_unit_test(test_the_callers_modes_change_no_bit_and_come_back),
        cmocka_unit_test(test_unknown_kernels_types_and_operators_are_not_offered),
        cmocka_unit_test(test_copies_copy_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
