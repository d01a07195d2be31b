/* SPDX-License-Identifier: Apache-2.0 */
/* Does the bench notice what is wrong? A plain loop over the ranks stands in for the library: what
 * it makes of every type and operator passes, and one thing done wrong does not. */
#include "bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 9
#define COUNT      600

/* A job of n ranks whose buffers all lie here. */
struct job {
    struct bench_options options;
    struct bench_rank rank[MOST_RANKS];
    struct bench_point point[MOST_RANKS];
    int n;
};

static void open_job(struct job *j, const char *collective, int n, int32_t type, int32_t op)
{
    *j = (struct job){ .n = n };
    j->options.row = bench_row_of(collective);
    j->options.collective = bench_collective_of(j->options.row);
    j->options.uneven = 1;
    j->options.root = n - 1;
    for (int me = 0; me < n; me++) {
        struct bench_rank *r = &j->rank[me];
        struct bench_point *p = &j->point[me];

        *r = (struct bench_rank){ .options = &j->options, .rank = me, .size = n };
        *p = (struct bench_point){ .type = type, .op = op, .width = bench_width(type) };
        r->parts = calloc((size_t)n, sizeof *r->parts);
        bench_shape(r, p, COUNT * p->width);
        p->send = malloc(p->sends * p->width + 1);
        p->recv = malloc(p->recvs * p->width + 1);
        assert_true(r->parts && p->send && p->recv);
        bench_fill(r, p);
    }
}

static void close_job(struct job *j)
{
    for (int me = 0; me < j->n; me++) {
        free(j->rank[me].parts);
        free(j->point[me].send);
        free(j->point[me].recv);
    }
}

static char *at(void *buffer, const struct job *j, size_t element)
{
    return (char *)buffer + element * j->point[0].width;
}

/* Moves every part to where it belongs. */
static void move(struct job *j)
{
    const struct bench_row *row = j->options.row;

    for (int to = 0; to < j->n; to++) {
        size_t place = 0;

        if (row->root == BENCH_TO_ROOT && to != j->options.root)
            continue;
        for (int from = 0; from < j->n; from++) {
            size_t before = row->send == BENCH_PARTS
                                ? bench_before(&j->rank[from], &j->point[from], from, to)
                                : 0;
            size_t count = bench_part(&j->rank[to], &j->point[to], from, to);

            if (row->root == BENCH_FROM_ROOT && from != j->options.root)
                continue;
            memcpy(at(j->point[to].recv, j, place), at(j->point[from].send, j, before),
                   count * j->point[0].width);
            place += row->recv == BENCH_PARTS ? count : 0;
        }
    }
}

static size_t wrong(const struct job *j)
{
    size_t most = 0;

    for (int me = 0; me < j->n; me++) {
        size_t mine = bench_count_wrong(&j->rank[me], &j->point[me]);

        most = mine > most ? mine : most;
    }
    return most;
}

static const char *const movers[] = { "broadcast",  "allgather", "gather",   "scatter",  "alltoall",
                                      "allgatherv", "gatherv",   "scatterv", "alltoallv" };
#define MOVERS (sizeof movers / sizeof *movers)

static void test_what_is_moved_right_passes(void **state)
{
    (void)state;
    for (size_t m = 0; m < MOVERS; m++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            struct job j;

            open_job(&j, movers[m], n, RINGRED_INT16, 0);
            move(&j);
            assert_int_equal(wrong(&j), 0);
            close_job(&j);
        }
}

static void test_a_result_that_nobody_wrote_shows(void **state)
{
    (void)state;
    for (size_t m = 0; m < MOVERS; m++) {
        struct job j;

        open_job(&j, movers[m], 4, RINGRED_FLOAT32, 0);
        assert_true(wrong(&j) > COUNT / 8);
        close_job(&j);
    }
}

/* An element, a part in its neighbour's place, an input that changed. */
static void test_each_element_in_the_wrong_place_shows(void **state)
{
    (void)state;
    for (size_t m = 0; m < MOVERS; m++) {
        struct job j;
        struct bench_point *p;

        open_job(&j, movers[m], 4, RINGRED_FLOAT64, 0);
        p = &j.point[3]; /* the root */
        move(&j);
        memcpy(at(p->recv, &j, 0), at(p->recv, &j, p->recvs - 1), 8);
        assert_int_equal(wrong(&j), 1);
        move(&j);
        memmove(at(p->recv, &j, 1), p->recv, (p->recvs - 1) * 8);
        assert_true(wrong(&j) > p->recvs * 9 / 10);
        move(&j);
        ((char *)p->send)[5] ^= 1;
        assert_true(wrong(&j) >= 1);
        close_job(&j);
    }
}

static void test_what_is_written_where_nothing_is_due_shows(void **state)
{
    struct job j;

    (void)state;
    open_job(&j, "gather", 3, RINGRED_UINT8, 0);
    move(&j);
    ((char *)j.point[0].recv)[7] = 1;
    assert_int_equal(wrong(&j), 1);
    close_job(&j);
}

/* ---- reductions: in float64 and uint64, whose arithmetic is the compiler's ---- */

static double folded(int32_t op, double a, double b)
{
    switch (op) {
    case RINGRED_PROD:
        return a * b;
    case RINGRED_MIN:
        return a < b ? a : b;
    case RINGRED_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* Reduces the ranks first .. n - 1 of an allreduce of float64 into every output. */
static void reduce(struct job *j, int first)
{
    int32_t op = j->point[0].op;

    for (size_t i = 0; i < j->point[0].count; i++) {
        double all = ((double *)j->point[first].send)[i];

        for (int r = first + 1; r < j->n; r++)
            all = folded(op, all, ((double *)j->point[r].send)[i]);
        for (int r = 0; r < j->n; r++)
            ((double *)j->point[r].recv)[i] = op == RINGRED_AVG ? all / j->n : all;
    }
}

static void test_a_rank_left_out_shows(void **state)
{
    (void)state;
    for (int32_t op = RINGRED_SUM; op <= RINGRED_MAX; op++)
        for (int n = 2; n <= MOST_RANKS; n++) {
            struct job j;

            open_job(&j, "allreduce", n, RINGRED_FLOAT64, op);
            reduce(&j, 0);
            assert_int_equal(wrong(&j), 0);
            reduce(&j, 1);
            assert_true(wrong(&j) > COUNT / 25);
            close_job(&j);
        }
}

/* ---- the encoder against numbers that the formats' own descriptions give ---- */

static void test_floats_are_encoded_as_their_formats_say(void **state)
{
    static const struct {
        int32_t type;
        double number;
        unsigned bits;
    } known[] = {
        { RINGRED_FLOAT16, 1, 0x3c00 },          { RINGRED_FLOAT16, -2048, 0xe800 },
        { RINGRED_FLOAT16, 1.0 / 3, 0x3555 },    { RINGRED_FLOAT16, 0x1p-24, 0x0001 },
        { RINGRED_FLOAT16, 2049, 0x6800 },       { RINGRED_FLOAT16, 2051, 0x6802 },
        { RINGRED_BFLOAT16, 1, 0x3f80 },         { RINGRED_BFLOAT16, -256, 0xc380 },
        { RINGRED_BFLOAT16, 1.0 / 3, 0x3eab },   { RINGRED_BFLOAT16, 0, 0 },
        { RINGRED_FLOAT8_E4M3FN, 1, 0x38 },      { RINGRED_FLOAT8_E4M3FN, 448, 0x7e },
        { RINGRED_FLOAT8_E4M3FN, -16, 0xd8 },    { RINGRED_FLOAT8_E4M3FN, 0x1p-9, 0x01 },
        { RINGRED_FLOAT8_E4M3FN, 0x1p-6, 0x08 }, { RINGRED_FLOAT8_E5M2, 1, 0x3c },
        { RINGRED_FLOAT8_E5M2, -57344, 0xfb },   { RINGRED_FLOAT8_E5M2, 0x1p-16, 0x01 },
        { RINGRED_FLOAT8_E5M2, 7, 0x47 },        { RINGRED_FLOAT8_E5M2, 1.125, 0x3c },
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned bits = 0;

        bench_encode(known[i].type, (struct bench_number){ .re = known[i].number }, &bits);
        assert_int_equal(bits, known[i].bits);
    }
}

/* What a sum or product of some ranks can come to is a number of the type, so no order matters. */
static void test_partial_sums_are_exact(void **state)
{
    static const struct {
        int32_t type;
        double most;
    } narrow[] = { { RINGRED_FLOAT16, 2048 },
                   { RINGRED_BFLOAT16, 256 },
                   { RINGRED_FLOAT8_E4M3FN, 16 },
                   { RINGRED_FLOAT8_E5M2, 8 },
                   { RINGRED_FLOAT32, 1 << 24 } };

    (void)state;
    for (size_t t = 0; t < sizeof narrow / sizeof *narrow; t++)
        for (int n = 1; n <= 70; n++)
            for (unsigned k = 0; k < 256; k++) {
                double most = 0;

                for (int r = 0; r < n; r++) {
                    double x = bench_number_of(narrow[t].type, RINGRED_SUM, n, r, k).re;

                    most += x < 0 ? -x : x;
                }
                assert_true(most <= narrow[t].most);
            }
}

static void test_every_pair_differs_between_ranks(void **state)
{
    (void)state;
    for (int32_t type = RINGRED_FLOAT32; type < RINGRED_BYTES; type++)
        for (int32_t op = RINGRED_SUM; op <= RINGRED_LXOR; op++) {
            int differ = 0;

            for (unsigned k = 0; bench_is_pair(type, op) && k < 256; k++) {
                unsigned char a[BENCH_WIDEST] = { 0 }, b[BENCH_WIDEST] = { 0 };

                bench_encode(type, bench_number_of(type, op, 4, 0, k), a);
                bench_encode(type, bench_number_of(type, op, 4, 1, k), b);
                differ += memcmp(a, b, sizeof a) != 0;
            }
            assert_true(differ > 60 || !bench_is_pair(type, op));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_moved_right_passes),
        cmocka_unit_test(test_a_result_that_nobody_wrote_shows),
        cmocka_unit_test(test_each_element_in_the_wrong_place_shows),
        cmocka_unit_test(test_what_is_written_where_nothing_is_due_shows),
        cmocka_unit_test(test_a_rank_left_out_shows),
        cmocka_unit_test(test_floats_are_encoded_as_their_formats_say),
        cmocka_unit_test(test_partial_sums_are_exact),
        cmocka_unit_test(test_every_pair_differs_between_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
