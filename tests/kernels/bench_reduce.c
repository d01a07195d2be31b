/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how fast the kernels are beside a plain loop that gcc has vectorised for this machine. Not a
 * test. Candidates take turns in short bursts and each keeps its best burst, so that a neighbour on
 * the machine disturbs all alike. GB/s counts every byte loaded and stored once.
 *   bench_reduce [MOST_BYTES [odd]]     sums of float32 and float64 in many shapes; odd: unaligned
 *   bench_reduce types [MOST_BYTES]     every type, operator by operator, in few shapes */
#include "plain_loop.h"
#include "reduce/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_K 16
#define MOST_D 4

static void *room[MOST_K + MOST_D];

enum what { PLAIN, KERNEL, MEMCPY, COPY };

struct candidate {
    const char *name;
    enum what what;
    rr_reduce_fn kernel;
    double best_ns;
};

struct shape {
    int type, k, d;
    bool in_place;
    uint32_t divisor;
    size_t bytes;
    int op; /* 0: sum */
};

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void plain(const struct shape *s)
{
    const size_t n = s->bytes / rr_type_bytes(s->type);

    if (s->type == RINGRED_FLOAT64)
        plain_add_float64(room[0], room[1], n);
    else if (s->k == 4)
        plain_sum4_float32(room[MOST_K], room[0], room[1], room[2], room[3], n);
    else if (s->in_place)
        plain_add_float32(room[0], room[1], n);
    else
        plain_sum2_float32(room[MOST_K], room[0], room[1], n);
}

static void once(const struct candidate *c, const struct shape *s)
{
    const struct rr_reduce r = { .type = s->type, .op = s->op ? s->op : RINGRED_SUM, .sources = s->k,
                                 .destinations = s->d, .divisor = s->divisor,
                                 .count = s->bytes / rr_type_bytes(s->type) };
    const void *from[MOST_K];
    void *to[MOST_D];

    for (int i = 0; i < s->k; i++)
        from[i] = room[i];
    for (int i = 0; i < s->d; i++)
        to[i] = s->in_place && i == 0 ? room[0] : room[MOST_K + i];
    if (c->what == PLAIN)
        plain(s);
    else if (c->what == KERNEL)
        c->kernel(&r, to, from);
    else if (c->what == MEMCPY)
        memcpy(room[MOST_K], room[0], s->bytes);
    else
        rr_copy(room[MOST_K], room[0], s->bytes);
    __asm__ __volatile__("" ::: "memory");
}

static void measure(struct candidate *c, int n, const struct shape *s)
{
    const double burst_ns = 200e3;

    for (int i = 0; i < n; i++)
        c[i].best_ns = 1e30;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < n; i++) {
            const size_t moved = s->bytes * (size_t)(s->k + s->d);
            const int times = moved > (1u << 22) ? 1 : 1 + (int)(burst_ns / (20 + (double)moved / 60));
            double t;

            once(&c[i], s);
            t = now_ns();
            for (int j = 0; j < times; j++)
                once(&c[i], s);
            t = (now_ns() - t) / times;
            if (t < c[i].best_ns)
                c[i].best_ns = t;
        }
    }
}

static int candidates(struct candidate *c, const struct shape *s)
{
    static const char *const names[] = { "avx512", "avx2", "neon", "c" };
    int n = 0;

    if ((s->type == RINGRED_FLOAT32 && s->d == 1 && (s->k == 2 || (s->k == 4 && !s->in_place))) ||
        (s->type == RINGRED_FLOAT64 && s->d == 1 && s->k == 2 && s->in_place))
        c[n++] = (struct candidate){ .name = "plain", .what = PLAIN };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rr_reduce_fn kernel = rr_reduce_named(names[i], s->type, RINGRED_SUM);

        if (kernel)
            c[n++] = (struct candidate){ .name = names[i], .what = KERNEL, .kernel = kernel };
    }
    return n;
}

static void print(const struct candidate *c, int n, const struct shape *s)
{
    for (int i = 0; i < n; i++)
        printf("  %s %.1f ns %.1f", c[i].name, c[i].best_ns,
               (double)s->bytes * (s->k + s->d) / c[i].best_ns);
    printf("\n");
    fflush(stdout);
}

static void sums(const struct shape *shapes, size_t n, const size_t *sizes, size_t m)
{
    struct candidate c[8];

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++) {
            struct shape s = shapes[i];
            int many;

            s.bytes = sizes[j];
            many = candidates(c, &s);
            measure(c, many, &s);
            printf("%s k=%-2d d=%d %s /%u %9zu B:", rr_type_name(s.type), s.k, s.d,
                   s.in_place ? "in " : "out", s.divisor, s.bytes);
            print(c, many, &s);
        }
}

static void copies(const size_t *sizes, size_t m)
{
    struct candidate c[2] = { { .name = "memcpy", .what = MEMCPY }, { .name = "rr_copy", .what = COPY } };

    for (size_t j = 0; j < m; j++) {
        const struct shape s = { RINGRED_FLOAT32, 1, 1, false, 1, sizes[j], 0 };

        measure(c, 2, &s);
        printf("copy %9zu B:", s.bytes);
        print(c, 2, &s);
    }
}

/* GB/s of the best kernel: columns are sources/destinations or the divisor. */
static void types(size_t most)
{
    static const struct shape shapes[] = { { 0, 2, 1, false, 1, 0, 0 }, { 0, 2, 2, false, 1, 0, 0 },
                                           { 0, 3, 1, false, 1, 0, 0 }, { 0, 4, 1, false, 1, 0, 0 },
                                           { 0, 4, 1, false, 4, 0, 0 }, { 0, 3, 1, false, 3, 0, 0 } };
    static const size_t sizes[] = { 512, 16384, 262144, 1u << 22, 1u << 25 };

    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0] && sizes[j] <= most; j++) {
        printf("%zu B: 2/1 2/2 3/1 4/1 4/1:4 3/1:3\n", sizes[j]);
        for (int type = 1; type < RR_TYPES; type++)
            for (int op = RINGRED_SUM; op < RINGRED_SUM + RR_OPS; op++) {
                if (!rr_op_legal(type, op) || op == RINGRED_AVG || op > RINGRED_BAND)
                    continue;
                printf("%-14s %-5s", rr_type_name(type), rr_op_name(op));
                for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                    struct candidate c = { .what = KERNEL, .kernel = rr_reduce_kernel(type, op) };
                    struct shape s = shapes[i];

                    if (s.divisor > 1 && !(op == RINGRED_SUM && rr_op_legal(type, RINGRED_AVG)))
                        continue;
                    s.type = type;
                    s.op = op;
                    s.bytes = sizes[j];
                    measure(&c, 1, &s);
                    printf(" %6.1f", (double)s.bytes * (s.k + s.d) / c.best_ns);
                }
                printf("\n");
                fflush(stdout);
            }
    }
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        { RINGRED_FLOAT32, 2, 1, true, 1, 0, 0 },  { RINGRED_FLOAT32, 2, 1, false, 1, 0, 0 },
        { RINGRED_FLOAT32, 2, 2, false, 1, 0, 0 }, { RINGRED_FLOAT32, 2, 2, true, 1, 0, 0 },
        { RINGRED_FLOAT32, 3, 1, false, 1, 0, 0 }, { RINGRED_FLOAT32, 4, 1, false, 1, 0, 0 },
        { RINGRED_FLOAT32, 4, 4, false, 1, 0, 0 }, { RINGRED_FLOAT32, 2, 1, true, 2, 0, 0 },
        { RINGRED_FLOAT32, 2, 1, true, 3, 0, 0 },  { RINGRED_FLOAT64, 2, 1, true, 1, 0, 0 },
        { RINGRED_FLOAT32, 5, 1, false, 1, 0, 0 }, { RINGRED_FLOAT32, 8, 1, false, 1, 0, 0 },
        { RINGRED_FLOAT32, 8, 4, false, 1, 0, 0 }, { RINGRED_FLOAT32, 16, 1, false, 1, 0, 0 },
    };
    static const size_t sizes[] = { 8, 64, 200, 4096, 16384, 131072, 1u << 20, 1u << 25 };
    const bool by_type = argc > 1 && strcmp(argv[1], "types") == 0;
    const char *given = argc > 1 + by_type ? argv[1 + by_type] : NULL;
    const size_t most = given ? strtoull(given, NULL, 0) : 1u << 25, offset = argc > 2 && !by_type ? 20 : 0;
    size_t m = 0;

    while (m < sizeof sizes / sizeof sizes[0] && sizes[m] <= most)
        m++;
    for (int i = 0; i < MOST_K + MOST_D; i++) {
        room[i] = aligned_alloc(4096, most + 65536);
        if (room[i] == NULL)
            return 1;
        memset(room[i], 0, most + 65536);
        room[i] = (char *)room[i] + 1088 * i + offset;
    }
    if (by_type) {
        types(most);
        return 0;
    }
    sums(shapes, sizeof shapes / sizeof shapes[0], sizes, m);
    copies(sizes, m);
    return 0;
}
