/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of wrong results. Each test is named by its report (docs/TESTING.md); what must come out is written down here
 * once more, apart from the library and from the other tests. */
#include "coll.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

static const struct coll_setup layouts[] = {
    { 4, { "transport=shm" } },
    { 4, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

/* ---- PR-22: counts that differ ---- */

struct counts {
    struct coll_setup setup;
    size_t one, other; /* what rank 0 gives, what the others give */
};

static void differ_in_count(struct rank *me)
{
    const struct counts *c = me->argument;
    ringred_comm *comm = coll_open(me, &c->setup);
    size_t count = me->rank ? c->other : c->one;
    float *x = calloc(count + 1, sizeof *x);
    ringred_error why;
    char text[2][32];

    rank_check(x != NULL);
    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me);
    int32_t rc = ringred_allreduce(comm, x, x, count, RINGRED_FLOAT32, RINGRED_SUM);
    rank_check_msg(rc == RINGRED_EMISMATCH, "%zu beside %zu: %d", c->one, c->other, rc); /* never a sum with a wrong tail */
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    snprintf(text[0], sizeof text[0], "%zu float32", c->one);
    snprintf(text[1], sizeof text[1], "%zu float32", c->other);
    rank_check_msg(strstr(why.text, text[0]) && strstr(why.text, text[1]), "%zu beside %zu: %s", c->one, c->other, why.text);
    rank_check_int(ringred_barrier(comm), RINGRED_EMISMATCH);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EMISMATCH);
    free(x);
}

static void test_PR_22_counts_that_differ_never_give_a_sum(void **state)
{
    static const size_t pairs[][2] = { { 0, 1 }, { 100, 200 }, { 100, 101 }, { 8192, 8191 }, { 100, 300000 },
                                       { 262144, 262145 }, { 2000000, 1000000 } };

    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
            struct counts c = { layouts[i], pairs[k][0], pairs[k][1] };
            ranks_fork(4, differ_in_count, &c);
        }
}

/* ---- PR-23: averages of half precision ---- */

/* Of 5 (float16) or 8 (bfloat16) bits of exponent. */
static double narrow_value(uint16_t bits, int exponent)
{
    int mantissa = 15 - exponent, bias = (1 << (exponent - 1)) - 1;
    int e = bits >> mantissa & ((1 << exponent) - 1), m = bits & ((1 << mantissa) - 1);
    double sign = bits >> 15 ? -1 : 1;

    if (e == (1 << exponent) - 1)
        return m ? (double)NAN : sign * (double)INFINITY;
    return sign * (e ? ldexp(1 + ldexp(m, -mantissa), e - bias) : ldexp(m, 1 - bias - mantissa));
}

/* The nearest, the even one of two: looked for among all there are. */
static uint16_t narrow_of(double value, int exponent)
{
    uint16_t best = 0;
    double least = (double)INFINITY;

    for (int b = 0; b < 65536; b++) {
        double v = narrow_value((uint16_t)b, exponent), away = fabs(v - value);
        if (isnan(v) || isinf(v))
            continue; /* none of ours overflows */
        if (away < least || (away == least && !(b & 1) && (b >> 15) == (value < 0)))
            best = (uint16_t)b;
        least = away < least ? away : least;
    }
    return best;
}

#define NARROW 6 /* sorts of elements */

static double narrow_input(int sort, int rank, int exponent)
{
    static const double tiny[2] = { 6e-8, 1e-40 };
    const double small = tiny[exponent == 8];

    switch (sort) {
    case 0:
        return 60000; /* the sum overflows */
    case 1:
        return small; /* an eighth of it is lost */
    case 2:
        return rank % 2 ? 60000 : small;
    case 3:
        return rank % 2 ? -60000 : 60000;
    case 4:
        return rank ? 1 : 65504; /* rounded once */
    default:
        return rank * 0.1;
    }
}

static void average(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);

    for (int exponent = 5; exponent <= 8; exponent += 3) {
        uint16_t x[NARROW * 8], y[NARROW * 8];
        for (int i = 0; i < NARROW * 8; i++)
            x[i] = narrow_of(narrow_input(i % NARROW, me->rank, exponent), exponent);
        coll_must(comm, ringred_allreduce(comm, x, y, NARROW * 8, exponent == 5 ? RINGRED_FLOAT16 : RINGRED_BFLOAT16, RINGRED_AVG),
                  "average");
        for (int i = 0; i < NARROW * 8; i++) {
            double mean = 0;
            for (int r = 0; r < me->size; r++)
                mean += narrow_value(narrow_of(narrow_input(i % NARROW, r, exponent), exponent), exponent);
            rank_check_msg(y[i] == narrow_of(mean / me->size, exponent), "%s, sort %d: %g and not %g",
                           exponent == 5 ? "float16" : "bfloat16", i % NARROW, narrow_value(y[i], exponent), mean / me->size);
        }
    }
    coll_close(comm);
}

static void test_PR_23_averages_of_halves_are_the_mean_rounded_once(void **state)
{
    static const struct coll_setup setups[] = {
        { 8, { "transport=shm" } }, { 8, { "transport=tcp" } }, { 8, { "ranks_per_host=4", "numerics=portable" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof *setups, average, 60);
}

/* ---- PR-25: NaN and zeros in min and max ---- */

#define NANS 131 /* elements: vectors and a tail, of all types */

struct lane {
    int32_t type;
    size_t bytes;
    uint64_t nan, canonical, one, two, minus_zero, odd; /* bits; odd: a NaN with sign and payload */
};

static const struct lane lanes[] = {
    { RINGRED_FLOAT32, 4, 0x7fc00000, 0x7fc00000, 0x3f800000, 0x40000000, 0x80000000, 0xffa00001 },
    { RINGRED_FLOAT64, 8, 0x7ff8000000000000, 0x7ff8000000000000, 0x3ff0000000000000, 0x4000000000000000,
      0x8000000000000000, 0xfff4000000000001 },
    { RINGRED_FLOAT16, 2, 0x7e00, 0x7e00, 0x3c00, 0x4000, 0x8000, 0xfd01 },
    { RINGRED_BFLOAT16, 2, 0x7fc0, 0x7fc0, 0x3f80, 0x4000, 0x8000, 0xffa1 },
    { RINGRED_FLOAT8_E5M2, 1, 0x7e, 0x7e, 0x3c, 0x40, 0x80, 0xfd },
    { RINGRED_FLOAT8_E4M3FN, 1, 0x7f, 0x7f, 0x38, 0x40, 0x80, 0xff },
};

static void put(unsigned char *to, size_t i, const struct lane *l, uint64_t bits)
{
    memcpy(to + i * l->bytes, &bits, l->bytes); /* little-endian, as all we run on */
}

static void check(const unsigned char *of, size_t i, const struct lane *l, uint64_t want, const char *what)
{
    uint64_t got = 0;

    memcpy(&got, of + i * l->bytes, l->bytes);
    rank_check_msg(got == want, "type %d, element %zu, %s: %llx and not %llx", l->type, i, what, (unsigned long long)got,
                   (unsigned long long)want);
}

/* In shape k of an element: a NaN on one rank, NaNs on all, a zero of either sign on one, none. */
static void nans_of(struct rank *me, ringred_comm *comm, const struct lane *l, int shift, int32_t op)
{
    unsigned char x[NANS * 8], y[NANS * 8];
    const uint64_t extreme = op == RINGRED_MIN ? l->one : l->two;

    for (size_t i = 0; i < NANS; i++) {
        bool mine = ((int)i + shift) % me->size == me->rank;
        switch (i % 5) {
        case 0:
            put(x, i, l, mine ? l->nan : l->one);
            break;
        case 1:
            put(x, i, l, mine ? l->odd : l->two);
            break;
        case 2:
            put(x, i, l, l->odd);
            break;
        case 3:
            put(x, i, l, mine ? l->minus_zero : 0);
            break;
        default:
            put(x, i, l, mine ? extreme : op == RINGRED_MIN ? l->two : l->one);
        }
    }
    coll_must(comm, ringred_allreduce(comm, x, y, NANS, l->type, op), "min or max");
    for (size_t i = 0; i < NANS; i++) {
        if (i % 5 < 3)
            check(y, i, l, l->canonical, "a NaN");
        else if (i % 5 == 3)
            check(y, i, l, op == RINGRED_MIN ? l->minus_zero : 0, "a zero");
        else
            check(y, i, l, extreme, "numbers");
    }
}

static void nans(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);

    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        for (int shift = 0; shift < me->size; shift++)
            for (int32_t op = RINGRED_MIN; op <= RINGRED_MAX; op++)
                nans_of(me, comm, &lanes[i], shift, op);
    coll_close(comm);
}

static void test_PR_25_a_nan_of_any_rank_stays_in_min_and_max(void **state)
{
    static const struct coll_setup setups[] = {
        { 3, { "transport=shm" } }, { 3, { "transport=tcp" } }, { 4, { "ranks_per_host=2" } }, { 3, { "transport=shm", "algorithm=last" } },
        { 2, { "transport=tcp", "algorithm=ring", "numerics=fast" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof *setups, nans, 60);
}

/* ---- PR-28: nothing to do, or less than one element for each ---- */

static void all_empty(ringred_comm *comm)
{
    const size_t none[RANKS_MOST] = { 0 };
    const int32_t t = RINGRED_FLOAT32;

    coll_must(comm, ringred_allreduce(comm, NULL, NULL, 0, t, RINGRED_SUM), "allreduce of nothing");
    coll_must(comm, ringred_reduce(comm, NULL, NULL, 0, t, RINGRED_MAX, ringred_comm_size(comm) - 1), "reduce of nothing");
    coll_must(comm, ringred_reduce_scatter(comm, NULL, NULL, 0, t, RINGRED_SUM), "reduce_scatter of nothing");
    coll_must(comm, ringred_broadcast(comm, NULL, NULL, 0, t, 0), "broadcast of nothing");
    coll_must(comm, ringred_allgather(comm, NULL, NULL, 0, t), "allgather of nothing");
    coll_must(comm, ringred_gather(comm, NULL, NULL, 0, t, 0), "gather of nothing");
    coll_must(comm, ringred_scatter(comm, NULL, NULL, 0, t, 0), "scatter of nothing");
    coll_must(comm, ringred_alltoall(comm, NULL, NULL, 0, t), "alltoall of nothing");
    coll_must(comm, ringred_allgatherv(comm, NULL, 0, NULL, none, NULL, t), "allgatherv of nothing");
    coll_must(comm, ringred_gatherv(comm, NULL, 0, NULL, none, NULL, t, 0), "gatherv of nothing");
    coll_must(comm, ringred_scatterv(comm, NULL, none, NULL, NULL, 0, t, 0), "scatterv of nothing");
    coll_must(comm, ringred_reduce_scatterv(comm, NULL, NULL, none, t, RINGRED_SUM), "reduce_scatterv of nothing");
    coll_must(comm, ringred_alltoallv(comm, NULL, none, NULL, NULL, none, NULL, t), "alltoallv of nothing");
    coll_must(comm, ringred_allreduce_list(comm, NULL, NULL, NULL, NULL, 0, RINGRED_SUM), "a list of nothing");
}

/* Ranks 0, 2, .. have nothing to give. */
static void some_empty(struct rank *me, ringred_comm *comm)
{
    int32_t mine[RANKS_MOST] = { 0 }, all[RANKS_MOST * RANKS_MOST], sum[RANKS_MOST];
    size_t counts[RANKS_MOST] = { 0 }, from[RANKS_MOST] = { 0 }, total = 0;

    for (int r = 0; r < me->size; r++) {
        counts[r] = r % 2 ? (size_t)r : 0;
        total += counts[r];
        mine[r] = me->rank * 100 + r;
    }
    for (int r = 0; r < me->size; r++)
        from[r] = counts[me->rank];
    coll_must(comm, ringred_allgatherv(comm, counts[me->rank] ? mine : NULL, counts[me->rank], all, counts, NULL, RINGRED_INT32),
              "allgatherv with empty parts");
    size_t at = 0;
    for (int r = 0; r < me->size; r++)
        for (size_t k = 0; k < counts[r]; k++)
            rank_check_int(all[at++], r * 100 + (int)k);
    rank_check(at == total);
    for (size_t i = 0; i < total; i++)
        all[i] = me->rank + (int)i;
    coll_must(comm, ringred_reduce_scatterv(comm, all, counts[me->rank] ? sum : NULL, counts, RINGRED_INT32, RINGRED_SUM),
              "reduce_scatterv with empty parts");
    at = 0;
    for (int r = 0; r < me->rank; r++)
        at += counts[r];
    for (size_t k = 0; k < counts[me->rank]; k++)
        rank_check_int(sum[k], me->size * (me->size - 1) / 2 + me->size * (int)(at + k));
    /* rank r is sent counts[r] by everybody; so rank r gets counts[r] from each, and those with even numbers nothing */
    int32_t to[RANKS_MOST * RANKS_MOST];
    at = 0;
    for (int r = 0; r < me->size; r++)
        for (size_t k = 0; k < counts[r]; k++)
            to[at++] = me->rank * 100 + r;
    coll_must(comm, ringred_alltoallv(comm, to, counts, NULL, counts[me->rank] ? all : NULL, from, NULL, RINGRED_INT32),
              "alltoallv with empty parts");
    at = 0;
    for (int r = 0; r < me->size; r++)
        for (size_t k = 0; k < from[r]; k++)
            rank_check_int(all[at++], r * 100 + me->rank);
}

static void empty(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);

    for (int round = 0; round < 3; round++) {
        all_empty(comm);
        some_empty(me, comm);
        for (int count = 1; count < me->size + 2; count++) { /* fewer elements than ranks */
            int32_t x[RANKS_MOST], parts[RANKS_MOST];
            for (int i = 0; i < count; i++)
                x[i] = (me->rank + 1) * (i + 1);
            coll_must(comm, ringred_allreduce(comm, x, x, (size_t)count, RINGRED_INT32, RINGRED_SUM), "few elements");
            for (int i = 0; i < count; i++)
                rank_check_int(x[i], me->size * (me->size + 1) / 2 * (i + 1));
            coll_must(comm, ringred_broadcast(comm, x, parts, (size_t)count, RINGRED_INT32, me->size - 1), "few elements");
            rank_check_int(memcmp(x, parts, (size_t)count * sizeof *x), 0);
        }
    }
    coll_close(comm);
}

static void test_PR_28_nothing_or_little_to_do_is_done(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=auto" } }, { 5, { "transport=shm" } }, { 5, { "transport=tcp" } }, { 6, { "ranks_per_host=3" } }, { 5, { "hosts=abbab" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof *setups, empty, 60);
}

/* ---- PR-29, PR-30: large counts ---- */

/* Any number of bytes that take one MiB of memory: the same pages, again and again, and a tail of their own. */
#define TILE ((size_t)1 << 20)

struct mirror {
    unsigned char *at;
    size_t bytes;
};

static struct mirror mirror_open(size_t bytes, unsigned char fill)
{
    size_t room = (bytes + TILE - 1) / TILE * TILE;
    struct mirror m = { mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), room };
    int fd = memfd_create("mirror", MFD_CLOEXEC);

    rank_check(m.at != MAP_FAILED && fd >= 0 && ftruncate(fd, 2 * TILE) == 0);
    for (size_t at = 0; at < room; at += TILE)
        rank_check(mmap(m.at + at, TILE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, at + TILE < room ? 0 : TILE) != MAP_FAILED);
    close(fd);
    memset(m.at, fill, TILE);
    memset(m.at + room - TILE, fill, TILE);
    return m;
}

static void mirror_close(struct mirror m)
{
    munmap(m.at, m.bytes);
}

static void broadcast_2g(struct rank *me)
{
    const size_t count = ((size_t)1 << 31) + 4097;
    ringred_comm *comm = coll_open(me, me->argument);
    struct mirror m = mirror_open(count, me->rank ? 0 : 7);

    if (me->rank == 0)
        m.at[count - 1] = 9;
    coll_must(comm, ringred_broadcast(comm, m.at, m.at, count, RINGRED_INT8, 0), "2 GiB");
    rank_check_int(m.at[0], 7);
    rank_check_int(m.at[TILE - 1], 7);
    rank_check_int(m.at[count - 2], 7);
    rank_check_int(m.at[count - 1], 9);
    mirror_close(m);
    coll_close(comm);
}

static void test_PR_29_one_transfer_may_be_of_more_than_two_gib(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm", "timeout=60" } }, { 2, { "transport=tcp", "timeout=60" } } };

    (void)state;
    coll_each(setups, 2, broadcast_2g, 90);
}

/* Each count is legal, what all ranks have together is above 2^32; and counts whose bytes have no number. */
static void allgather_4g(struct rank *me)
{
    const size_t count = ((size_t)1 << 28) + 3; /* of 8 bytes, of two ranks: 2^32 and 48 */
    ringred_comm *comm = coll_open(me, me->argument);
    struct mirror mine = mirror_open(count * 8, (unsigned char)(me->rank + 1)), all = mirror_open(2 * count * 8, 0);
    int64_t *part = (int64_t *)(void *)all.at, one = 1;
    const size_t many[2] = { SIZE_MAX / 2, SIZE_MAX / 2 };

    coll_must(comm, ringred_allgather(comm, mine.at, all.at, count, RINGRED_INT64), "4 GiB");
    rank_check(part[2 * count - 1] == INT64_C(0x0202020202020202)); /* the tail is of rank 1 alone */
    rank_check(all.at[0] == 1 || all.at[0] == 2);
    rank_check_int(ringred_allgather(comm, &one, all.at, SIZE_MAX / 2, RINGRED_INT8), RINGRED_EINVAL);
    rank_check_int(ringred_allgather(comm, &one, all.at, SIZE_MAX / 8, RINGRED_INT64), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce(comm, &one, all.at, SIZE_MAX / 2, RINGRED_INT64, RINGRED_SUM), RINGRED_EINVAL);
    rank_check_int(ringred_allgatherv(comm, &one, SIZE_MAX / 2, all.at, many, NULL, RINGRED_INT16), RINGRED_EINVAL);
    coll_must(comm, ringred_allreduce(comm, &one, &one, 1, RINGRED_INT64, RINGRED_SUM), "what was refused has changed nothing");
    rank_check_int(one, 2);
    mirror_close(mine);
    mirror_close(all);
    coll_close(comm);
}

static void test_PR_30_counts_of_all_ranks_together_may_be_large_or_too_large(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm", "timeout=60" } } };

    (void)state;
    coll_each(setups, 1, allgather_4g, 90);
}

/* ---- PR-31: bits that depend on how it is cut ---- */

#define TENSORS 24
#define MOST    6000

static uint32_t (*agreed)[TENSORS * MOST]; /* the bits that the first variant gave, for each number of ranks */

struct tensors {
    size_t count[TENSORS], at[TENSORS], total;
    float *in, *out;
};

static struct tensors tensors_of(int rank)
{
    struct numbers_random sizes = { seed };
    struct tensors t = { .total = 0, .in = malloc(TENSORS * MOST * sizeof *t.in), .out = malloc(TENSORS * MOST * sizeof *t.out) };

    rank_check(t.in && t.out);
    for (int i = 0; i < TENSORS; i++) {
        t.count[i] = 1 + (size_t)numbers_below(&sizes, i % 3 ? 300 : MOST - 1);
        t.at[i] = t.total;
        t.total += t.count[i];
    }
    numbers_fill(t.in, RINGRED_FLOAT32, NUMBERS_ROUNDING, seed, rank, 0, t.total);
    return t;
}

static void check_bits(struct rank *me, const struct tensors *t, const char *what)
{
    uint32_t *first = agreed[me->size];
    long at = -1;

    for (size_t i = 0; i < t->total && at < 0; i++)
        at = memcmp(&first[i], &t->out[i], sizeof *first) ? (long)i : -1;
    rank_check_msg(at < 0, "%s: element %ld has other bits", what, at);
}

static void cut_in_many_ways(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup);
    struct tensors t = tensors_of(me->rank);
    const void *send[TENSORS];
    void *recv[TENSORS];
    int32_t types[TENSORS];

    coll_must(comm, ringred_allreduce(comm, t.in, t.out, t.total, RINGRED_FLOAT32, RINGRED_SUM), "all in one");
    ranks_meet(me);
    if (me->rank == 0 && !strcmp(setup->setting[0], "transport=shm"))
        memcpy(agreed[me->size], t.out, t.total * sizeof(float));
    ranks_meet(me);
    check_bits(me, &t, "all in one");
    for (int i = 0; i < TENSORS; i++) {
        send[i] = t.in + t.at[i];
        recv[i] = t.out + t.at[i];
        types[i] = RINGRED_FLOAT32;
        coll_must(comm, ringred_allreduce(comm, send[i], recv[i], t.count[i], RINGRED_FLOAT32, RINGRED_SUM), "one by one");
    }
    check_bits(me, &t, "one by one");
    for (int i = 0; i < TENSORS; i += 2)
        coll_must(comm, ringred_allreduce(comm, send[i], recv[i], t.count[i] + t.count[i + 1], RINGRED_FLOAT32, RINGRED_SUM), "in pairs");
    check_bits(me, &t, "in pairs");
    memset(t.out, 0, t.total * sizeof *t.out);
    coll_must(comm, ringred_allreduce_list(comm, send, recv, t.count, types, TENSORS, RINGRED_SUM), "a list");
    check_bits(me, &t, "a list");
    free(t.in);
    free(t.out);
    coll_close(comm);
}

static void test_PR_31_bits_do_not_depend_on_how_tensors_are_joined(void **state)
{
    static const char *const settings[][2] = { { "transport=shm", NULL }, { "transport=tcp", NULL }, { "segment=1K", NULL },
                                               { "ranks_per_host=2", "numerics=portable" }, { "algorithm=twoshot", NULL } };

    (void)state;
    agreed = mmap(NULL, 10 * sizeof *agreed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(agreed != MAP_FAILED);
    for (int ranks = 2; ranks < 8; ranks++)
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            struct coll_setup s = { ranks, { settings[k][0], settings[k][1] } };
            ranks_fork(ranks, cut_in_many_ways, &s);
        }
    munmap(agreed, 10 * sizeof *agreed);
}

/* ---- PR-32: any address ---- */

static void any_address(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static _Alignas(64) unsigned char send[4096], recv[4096];
    const size_t count = 77;

    for (size_t from = 0; from < 64; from++)
        for (size_t k = 0; k < 4; k++) {
            size_t to = k == 0 ? from : (from * 7 + k * 11) % 64;
            float value;
            for (size_t i = 0; i < count; i++) {
                value = (float)(me->rank + 1) * (float)(i + 1);
                memcpy(send + from + 4 * i, &value, 4);
            }
            memset(recv, 0xcc, sizeof recv);
            coll_must(comm, ringred_allreduce(comm, send + from, k == 3 ? send + from : recv + to, count, RINGRED_FLOAT32, RINGRED_SUM),
                      "at an odd address");
            const unsigned char *out = k == 3 ? send + from : recv + to;
            for (size_t i = 0; i < count; i++) {
                memcpy(&value, out + 4 * i, 4);
                rank_check_msg(value == (float)(me->size * (me->size + 1) / 2) * (float)(i + 1), "from %zu to %zu: element %zu is %g",
                               from, to, i, (double)value);
            }
            rank_check(k == 3 || (recv[to + 4 * count] == 0xcc && (!to || recv[to - 1] == 0xcc)));
        }
    coll_close(comm);
}

static void test_PR_32_buffers_may_lie_at_any_address(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, any_address, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_22_counts_that_differ_never_give_a_sum),
        cmocka_unit_test(test_PR_23_averages_of_halves_are_the_mean_rounded_once),
        cmocka_unit_test(test_PR_25_a_nan_of_any_rank_stays_in_min_and_max),
        cmocka_unit_test(test_PR_28_nothing_or_little_to_do_is_done),
        cmocka_unit_test(test_PR_29_one_transfer_may_be_of_more_than_two_gib),
        cmocka_unit_test(test_PR_30_counts_of_all_ranks_together_may_be_large_or_too_large),
        cmocka_unit_test(test_PR_31_bits_do_not_depend_on_how_tensors_are_joined),
        cmocka_unit_test(test_PR_32_buffers_may_lie_at_any_address),
    };

    seed = numbers_seed("test_reported");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
