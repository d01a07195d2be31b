/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: the table of docs/NUMBERS.md holds.
 *  - A matrix of random reductions over layouts, transports and settings of `numerics`, thousands of them: every
 *    rank gets the reference's bits, which are those of one host wherever the table says so; one rank calls with
 *    denormals flushed and rounding up, which comes back as it was.
 *  - Sums and averages of float32 by four ranks have the same bits in shared memory, as 2 x 2 hosts and over TCP.
 *  - Sums of float16 and bfloat16 are the exact sums rounded once, or twice where hosts exchange theirs.
 *  - Averages of large and of tiny float16 neither overflow nor vanish on the way.
 *     bits [POINTS]         at least so many points of the matrix (5000) */
#include "calls.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static uint64_t seed;
static long wanted_points = 5000;
static atomic_long *points; /* shared: counted by rank 0 of each job */

/* ---- the matrix ---- */

static const struct coll_setup layouts[] = {
    { 1, { "transport=auto" } },
    { 2, { "transport=shm" } },
    { 3, { "transport=shm" } },
    { 4, { "transport=shm" } },
    { 7, { "transport=shm" } },
    { 8, { "transport=shm" } },
    { 2, { "transport=tcp" } },
    { 4, { "transport=tcp" } },
    { 5, { "transport=tcp" } },
    { 6, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
    { 6, { "ranks_per_host=2" } },
    { 8, { "ranks_per_host=4" } },
    { 8, { "ranks_per_host=2" } },
    { 5, { "ranks_per_host=3" } },
    { 6, { "ranks_per_host=3" } },
    { 4, { "ranks_per_host=2", "numerics=portable" } },
    { 8, { "ranks_per_host=4", "numerics=portable" } },
    { 4, { "ranks_per_host=2", "transport=tcp" } },
    { 6, { "transport=tcp", "numerics=portable" } },
};
#define LAYOUTS (sizeof layouts / sizeof *layouts)
#define MOST    ((size_t)4200)

static struct call draw(struct numbers_random *all, const struct rank *me, const uint8_t *host)
{
    static const enum calls_kind kinds[] = { CALLS_ALLREDUCE, CALLS_ALLREDUCE, CALLS_REDUCE, CALLS_REDUCE_SCATTER };
    const size_t counts[] = { 1, 2, 7, 16, 61, 257, 1021, MOST - 3 };
    struct call c = { .kind = kinds[numbers_below(all, 4)], .exact = true };

    c.root = (int)numbers_below(all, (uint64_t)me->size);
    c.count = counts[numbers_below(all, 8)] + numbers_below(all, 3);
    c.v = c.kind == CALLS_REDUCE_SCATTER && numbers_below(all, 2);
    c.job = (struct numbers_job){ .kind = numbers_below(all, 2) ? NUMBERS_WILD : NUMBERS_ROUNDING,
                                  .ranks = me->size, .seed = numbers_next(all),
                                  .host = c.v ? NULL : host }; /* v forms use links between all ranks */
    do {
        c.job.type = 1 + (int)numbers_below(all, RINGRED_BYTES);
        c.job.op = RINGRED_SUM + (int)numbers_below(all, 11);
    } while (!numbers_legal(c.job.type, c.job.op));
    return c;
}

/* Rounds up, and flushes what is denormal. */
static void spoil_modes(void)
{
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#else
    uint64_t fpcr;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ __volatile__("msr fpcr, %0" ::"r"(fpcr | 1u << 24));
#endif
}

static void matrix(struct rank *me)
{
    const struct coll_setup *l = me->argument;
    struct numbers_random all = { seed + (uint64_t)(l - layouts) }, mine = { numbers_next(&all) + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, l);
    uint8_t room[NUMBERS_RANKS];
    const uint8_t *host = coll_hosts(l, room);
    const int spoilt = me->size > 1 ? 1 : 0;
    struct calls_memory m;
    fenv_t usual;

    calls_memory_open(&m, comm, (size_t)me->size * MOST * 16 + CALLS_MARGIN);
    for (long i = 0; i < (wanted_points + (long)LAYOUTS - 1) / (long)LAYOUTS; i++) {
        struct call c = draw(&all, me, host);
        int32_t rc;

        c.in_place = numbers_below(&mine, 2);
        calls_prepare(&c, &m, me, &mine);
        fegetenv(&usual);
        if (me->rank == spoilt)
            spoil_modes();
        rc = calls_run(comm, &c);
        rank_check_int(fegetround(), me->rank == spoilt ? FE_UPWARD : FE_TONEAREST);
        fesetenv(&usual);
        coll_must(comm, rc, c.text);
        calls_check(&c, &m, me);
        if (me->rank == 0)
            atomic_fetch_add(points, 1);
    }
    coll_close(comm);
    calls_memory_close(&m);
}

static void test_a_random_matrix_has_the_bits_that_are_promised(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++) {
        const struct ranks_plan plan = { .size = layouts[i].ranks, .run = matrix,
                                         .argument = (void *)(uintptr_t)&layouts[i], .deadline_s = 3600 };

        ranks_run(&plan);
    }
}

/* ---- float32 on three layouts ---- */

#define VECTOR ((size_t)300007)
static float *result[2][3]; /* shared: by operator and layout, what rank 0 got */

struct of_four {
    struct coll_setup setup;
    int which;
};

static void sum_of_four(struct rank *me)
{
    const struct of_four *l = me->argument;
    ringred_comm *comm = coll_open(me, &l->setup);
    float *x = malloc(VECTOR * sizeof *x), *y = malloc(VECTOR * sizeof *y);

    rank_check(x && y);
    numbers_fill(x, RINGRED_FLOAT32, NUMBERS_ROUNDING, seed, me->rank, 0, VECTOR);
    for (int op = 0; op < 2; op++) {
        coll_must(comm, ringred_allreduce(comm, x, y, VECTOR, RINGRED_FLOAT32, RINGRED_SUM + op), "allreduce");
        if (me->rank == 0)
            memcpy(result[op][l->which], y, VECTOR * sizeof *y);
        ranks_meet(me);
        rank_check_msg(!memcmp(result[op][l->which], y, VECTOR * sizeof *y), "rank %d has other bits than rank 0",
                       me->rank);
        ranks_meet(me);
    }
    coll_close(comm);
    free(x);
    free(y);
}

static void *shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void test_float32_has_the_same_bits_in_shared_memory_between_hosts_and_over_tcp(void **state)
{
    static struct of_four ways[] = { { { 4, { "transport=shm" } }, 0 },
                                     { { 4, { "ranks_per_host=2" } }, 1 },
                                     { { 4, { "transport=tcp" } }, 2 } };

    (void)state;
    for (int op = 0; op < 2; op++)
        for (int i = 0; i < 3; i++)
            result[op][i] = shared(VECTOR * sizeof(float));
    for (int i = 0; i < 3; i++)
        ranks_fork(4, sum_of_four, &ways[i]);
    for (int op = 0; op < 2; op++)
        for (int i = 1; i < 3; i++)
            assert_memory_equal(result[op][0], result[op][i], VECTOR * sizeof(float));
}

/* ---- 16 bits against exact sums ---- */

static int fraction_bits(int type)
{
    return type == RINGRED_FLOAT16 ? 10 : 7;
}

static double value_of(int type, uint16_t bits)
{
    const int fraction = fraction_bits(type), bias = type == RINGRED_FLOAT16 ? 15 : 127;
    const int exponent = (bits & 0x7fff) >> fraction, low = bits & ((1 << fraction) - 1);
    const double size = exponent ? ldexp((1 << fraction) + low, exponent - bias - fraction)
                                 : ldexp(low, 1 - bias - fraction);

    return bits & 0x8000 ? -size : size;
}

/* Of a sum within the range of normal numbers, or zero. */
static double rounded(int type, double x)
{
    int exponent;

    if (x == 0)
        return x;
    (void)frexp(x, &exponent);
    const double unit = ldexp(1, exponent - 1 - fraction_bits(type));
    return nearbyint(x / unit) * unit;
}

/* From 2^-4 to 2^5, so that float32 holds every partial sum of 16 exactly. */
static uint16_t some_number(int type, struct numbers_random *r)
{
    const int fraction = fraction_bits(type), bias = type == RINGRED_FLOAT16 ? 15 : 127;
    const uint64_t h = numbers_next(r);

    return (uint16_t)((h & 1) << 15 | ((uint64_t)bias - 4 + (h >> 8) % 9) << fraction |
                      (h >> 32 & ((1u << fraction) - 1)));
}

#define SUMS 4096

static void round_once_or_twice(struct rank *me)
{
    const struct coll_setup *l = me->argument;
    ringred_comm *comm = coll_open(me, l);
    uint8_t room[NUMBERS_RANKS];
    const uint8_t *host = coll_hosts(l, room);
    uint16_t x[16][SUMS], y[SUMS];

    for (int type = RINGRED_FLOAT16; type <= RINGRED_BFLOAT16; type++) {
        struct numbers_random r = { seed + (uint64_t)type };

        for (int rank = 0; rank < me->size; rank++)
            for (int i = 0; i < SUMS; i++)
                x[rank][i] = some_number(type, &r);
        coll_must(comm, ringred_allreduce(comm, x[me->rank], y, SUMS, type, RINGRED_SUM), "allreduce");
        for (int i = 0; i < SUMS; i++) {
            double exact = 0, want = 0, half_units = 0;

            for (int h = 0; h <= (host ? host[me->size - 1] : 0); h++) { /* they follow each other */
                double part = 0;

                for (int k = 0; k < me->size; k++)
                    part += !host || host[k] == h ? value_of(type, x[k][i]) : 0;
                exact += part;
                half_units += host ? fabs(part - rounded(type, part)) : 0;
                want += host ? rounded(type, part) : part;
            }
            want = rounded(type, want);
            half_units += fabs(want) * ldexp(1, -1 - fraction_bits(type));
            rank_check_msg(value_of(type, y[i]) == want, "type %d, element %d is %.12g, should be %.12g (exactly %.12g)", type,
                           i, value_of(type, y[i]), want, exact);
            rank_check_msg(fabs(want - exact) <= half_units, "type %d, element %d: %g is too far from %g", type, i,
                           want, exact);
        }
    }
    coll_close(comm);
}

static void test_sums_of_16_bits_are_rounded_at_most_twice(void **state)
{
    static const struct coll_setup some[] = {
        { 4, { "transport=shm" } },
        { 7, { "transport=shm" } },
        { 4, { "transport=tcp" } },
        { 5, { "transport=tcp" } },
        { 4, { "ranks_per_host=2" } },
        { 6, { "ranks_per_host=2" } },
        { 8, { "ranks_per_host=4" } },
        { 8, { "ranks_per_host=2" } },
        { 5, { "ranks_per_host=3" } },
        { 8, { "ranks_per_host=4", "numerics=portable" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        ranks_fork(some[i].ranks, round_once_or_twice, (void *)(uintptr_t)&some[i]);
}

/* ---- averages at both ends of float16 ---- */

static void average(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    const uint16_t given = me->size == 4 ? 0x7b53 : 0x0001; /* 60000; 2^-24, about 6e-8 */
    ringred_comm *comm = coll_open(me, setup);
    uint16_t x[67], y[67];

    rank_check(value_of(RINGRED_FLOAT16, 0x7b53) == 60000);
    for (int i = 0; i < 67; i++)
        x[i] = given;
    coll_must(comm, ringred_allreduce(comm, x, y, 67, RINGRED_FLOAT16, RINGRED_AVG), "average");
    for (int i = 0; i < 67; i++)
        rank_check_msg(y[i] == given, "the average of %d times %g is %g", me->size,
                       value_of(RINGRED_FLOAT16, given), value_of(RINGRED_FLOAT16, y[i]));
    coll_close(comm);
}

static void test_averages_of_float16_neither_overflow_nor_vanish(void **state)
{
    static const struct coll_setup setups[] = {
        { 4, { "transport=shm" } },     { 4, { "transport=tcp" } },     { 4, { "ranks_per_host=2" } },
        { 4, { "ranks_per_host=3" } },  { 8, { "transport=shm" } },     { 8, { "transport=tcp" } },
        { 8, { "ranks_per_host=2" } },  { 8, { "ranks_per_host=4" } },  { 8, { "ranks_per_host=3" } },
        { 8, { "ranks_per_host=4", "numerics=portable" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        ranks_fork(setups[i].ranks, average, (void *)(uintptr_t)&setups[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_random_matrix_has_the_bits_that_are_promised),
        cmocka_unit_test(test_float32_has_the_same_bits_in_shared_memory_between_hosts_and_over_tcp),
        cmocka_unit_test(test_sums_of_16_bits_are_rounded_at_most_twice),
        cmocka_unit_test(test_averages_of_float16_neither_overflow_nor_vanish),
    };
    int failed;

    if (argc > 1)
        wanted_points = strtol(argv[1], NULL, 10);
    seed = numbers_seed("bits");
    points = shared(sizeof *points);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%s: %ld reductions drawn at random, and float32 on three layouts, 16 bits against exact sums, averages "
           "at both ends\n", failed ? "FAILS" : "holds", atomic_load(points));
    return failed != 0;
}
