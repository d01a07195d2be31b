/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: whatever the collective, the type, the operator, the ranks, the transport, the layout of hosts, the
 * place of the buffers and the count, each rank gets the reference's bits; and pairs of a type and an operator
 * that have no meaning are refused.
 *     grid                  a sample in which every pair of two such choices occurs, drawn from a seed
 *     grid --whole          all of them
 *     grid --part 3/24      every 24th of all of them, from the third
 * A count is that of one part. "shm" between hosts means shared memory inside them. */
#include "calls.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define TYPES   18
#define OPS     11
#define PRIME   4099
#define LARGEST ((size_t)1 << 20)
#define TRIES   40 /* draws of the rest of a point, of which the best is taken */

/* ---- the choices ---- */

static const struct coll_setup layouts[] = {
    { 1, { "transport=shm" } },
    { 2, { "transport=shm" } },
    { 3, { "transport=shm" } },
    { 4, { "transport=shm" } },
    { 5, { "transport=shm" } },
    { 7, { "transport=shm" } },
    { 1, { "transport=tcp" } },
    { 2, { "transport=tcp" } },
    { 3, { "transport=tcp" } },
    { 4, { "transport=tcp" } },
    { 5, { "transport=tcp" } },
    { 7, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } }, /* 2 hosts x 2 */
    { 6, { "ranks_per_host=2" } }, /* 3 hosts x 2 */
    { 5, { "ranks_per_host=3" } }, /* 3 and 2 */
    { 7, { "ranks_per_host=3" } }, /* 3, 3 and 1 */
    { 4, { "ranks_per_host=2", "transport=tcp" } },
    { 6, { "ranks_per_host=2", "transport=tcp" } },
    { 5, { "ranks_per_host=3", "transport=tcp" } },
    { 7, { "ranks_per_host=3", "transport=tcp" } },
};
#define LAYOUTS ((int)(sizeof layouts / sizeof *layouts))

enum place { IN, OUT, MIXED, PLACES };
enum count { ZERO, ONE, BELOW_N, N, ABOVE_N, A_PRIME, A_MEBI, COUNTS };

static size_t count_of(int which, int n)
{
    const size_t counts[COUNTS] = { 0, 1, (size_t)n - 1, (size_t)n, (size_t)n + 1, PRIME, LARGEST };

    return counts[which];
}

/* Collectives, and behind them those that have a v form. */
static struct what {
    enum calls_kind kind;
    bool v;
} whats[2 * CALLS_KINDS];
static int what_count;

static void list_collectives(void)
{
    for (int v = 0; v < 2; v++)
        for (int kind = 0; kind < CALLS_BARRIER; kind++)
            if (!v || calls_collectives[kind].has_v)
                whats[what_count++] = (struct what){ (enum calls_kind)kind, v };
}

/* One point of the grid: a choice on each axis. On the axis of operators, OPS means none. */
enum axis { LAYOUT, WHAT, TYPE, OP, PLACE, COUNT, AXES };
#define MOST_CHOICES 24
struct point {
    int at[AXES];
};

static int choices(enum axis axis)
{
    const int n[AXES] = { LAYOUTS, what_count, TYPES, OPS + 1, PLACES, COUNTS };

    return n[axis];
}

static bool is_legal(const struct point *p)
{
    const struct what *what = &whats[p->at[WHAT]];

    if (what->kind == CALLS_ALLTOALL && what->v && p->at[PLACE] != OUT)
        return false;
    if (!calls_collectives[what->kind].reduces)
        return p->at[OP] == OPS;
    return p->at[OP] < OPS && numbers_legal(1 + p->at[TYPE], RINGRED_SUM + p->at[OP]);
}

/* ---- which points ---- */

static struct point *points;
static size_t point_count, point_room;

static void add(struct point p)
{
    if (point_count == point_room) {
        point_room = point_room ? 2 * point_room : 1024;
        points = realloc(points, point_room * sizeof *points);
        if (points == NULL)
            exit(1);
    }
    points[point_count++] = p;
}

/* The number'th of all combinations, legal or not. */
static struct point combination(size_t number)
{
    struct point p;

    for (int a = 0; a < AXES; a++) {
        p.at[a] = (int)(number % (size_t)choices((enum axis)a));
        number /= (size_t)choices((enum axis)a);
    }
    return p;
}

/* Layouts are the innermost axis; the next round of them begins with another, so that each part has all. */
static void add_whole(size_t part, size_t parts)
{
    size_t all = 1, legal = 0;

    for (int a = 0; a < AXES; a++)
        all *= (size_t)choices((enum axis)a);
    for (size_t i = 0; i < all; i++) {
        struct point p = combination(i);

        if (!is_legal(&p))
            continue;
        if ((legal + legal / LAYOUTS) % parts == part)
            add(p);
        legal++;
    }
}

/* Pairs of choices that a point still has to have: indexed by both axes and both choices. */
static bool wanted[AXES][AXES][MOST_CHOICES][MOST_CHOICES];
static size_t pair_count;

static size_t gain(const struct point *p, bool take)
{
    size_t n = 0;

    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++) {
            bool *w = &wanted[a][b][p->at[a]][p->at[b]];

            n += *w;
            *w = *w && !take;
        }
    return n;
}

static void want_every_possible_pair(void)
{
    size_t all = 1;

    for (int a = 0; a < AXES; a++)
        all *= (size_t)choices((enum axis)a);
    for (size_t i = 0; i < all; i++) {
        const struct point p = combination(i);

        for (int a = 0; a < AXES && is_legal(&p); a++)
            for (int b = a + 1; b < AXES; b++)
                wanted[a][b][p.at[a]][p.at[b]] = true;
    }
}

static struct point draw_with(struct numbers_random *random, int a, int i, int b, int j)
{
    struct point p;

    do {
        for (int c = 0; c < AXES; c++)
            p.at[c] = (int)numbers_below(random, (uint64_t)choices((enum axis)c));
        p.at[a] = i;
        p.at[b] = j;
    } while (!is_legal(&p));
    return p;
}

static void add_for(struct numbers_random *random, int a, int i, int b, int j)
{
    struct point best = draw_with(random, a, i, b, j);
    size_t most = gain(&best, false);

    for (int t = 0; t < TRIES; t++) {
        struct point p = draw_with(random, a, i, b, j);

        if (gain(&p, false) > most) {
            best = p;
            most = gain(&p, false);
        }
    }
    pair_count += gain(&best, true);
    add(best);
}

static void add_sample(uint64_t seed)
{
    struct numbers_random random = { seed };

    want_every_possible_pair();
    for (int a = 0; a < AXES; a++)
        for (int b = a + 1; b < AXES; b++)
            for (int i = 0; i < choices((enum axis)a); i++)
                for (int j = 0; j < choices((enum axis)b); j++)
                    if (wanted[a][b][i][j])
                        add_for(&random, a, i, b, j);
}

/* ---- running those of one layout ---- */

static uint64_t seed;
static int now; /* the layout */

static void one(ringred_comm *comm, const struct calls_memory *m, struct rank *me, const struct point *p,
                uint64_t salt)
{
    const struct what *what = &whats[p->at[WHAT]];
    struct numbers_random all = { seed + salt }, mine = { seed + salt + 1000 + (uint64_t)me->rank };
    struct call c = { .kind = what->kind, .v = what->v, .exact = true, .period = PRIME };
    uint8_t host[NUMBERS_RANKS];

    c.root = (int)numbers_below(&all, (uint64_t)me->size);
    c.job = (struct numbers_job){ .type = 1 + p->at[TYPE], .op = RINGRED_SUM + p->at[OP] % OPS, .ranks = me->size,
                                  .kind = NUMBERS_WILD, .seed = numbers_next(&all),
                                  .host = c.v ? NULL : coll_hosts(&layouts[now], host) }; /* v forms: links */
    c.count = count_of(p->at[COUNT], me->size);
    c.in_place = p->at[PLACE] == IN || (p->at[PLACE] == MIXED && (me->rank + salt) % 2);
    calls_prepare(&c, m, me, &mine);
    coll_must(comm, calls_run(comm, &c), c.text);
    calls_check(&c, m, me);
}

/* Each collective that reduces, with each pair that has no meaning. */
static void refused(ringred_comm *comm, const struct calls_memory *m, struct rank *me)
{
    for (int w = 0; w < what_count; w++)
        for (int type = 1; type <= TYPES; type++)
            for (int op = RINGRED_SUM; op < RINGRED_SUM + OPS; op++) {
                struct call c = { .kind = whats[w].kind, .v = whats[w].v, .count = 1, .in_parts = 1,
                                  .out_parts = 1, .send = m->plain[0], .recv = m->plain[1] };

                if (!calls_collectives[c.kind].reduces || numbers_legal(type, op))
                    continue;
                c.job = (struct numbers_job){ .type = type, .op = op, .ranks = me->size };
                rank_check_int(calls_run(comm, &c), RINGRED_EINVAL);
            }
}

static size_t room_needed(int n)
{
    size_t most = 0;

    for (size_t i = 0; i < point_count; i++)
        if (points[i].at[LAYOUT] == now) {
            const struct calls_collective *what = &calls_collectives[whats[points[i].at[WHAT]].kind];
            const bool many = strchr("nR", what->in) || strchr("nR", what->out);
            const size_t bytes = (many ? (size_t)n : 1) * count_of(points[i].at[COUNT], n) *
                                 numbers_bytes(1 + points[i].at[TYPE]);

            most = bytes > most ? bytes : most;
        }
    return most + 4096;
}

static void all_of_a_layout(struct rank *me)
{
    ringred_comm *comm = coll_open(me, &layouts[now]);
    struct calls_memory m;

    calls_memory_open(&m, comm, room_needed(me->size));
    refused(comm, &m, me);
    for (size_t i = 0; i < point_count; i++)
        if (points[i].at[LAYOUT] == now)
            one(comm, &m, me, &points[i], i);
    coll_must(comm, ringred_barrier(comm), "barrier");
    coll_close(comm);
    calls_memory_close(&m);
}

static void test_every_point_has_the_references_bits(void **state)
{
    (void)state;
    for (now = 0; now < LAYOUTS; now++) {
        const struct ranks_plan plan = { .size = layouts[now].ranks, .run = all_of_a_layout,
                                         .deadline_s = 4 * 3600 };

        ranks_run(&plan);
    }
}

static int usage(void)
{
    fprintf(stderr, "grid [--whole | --part I/N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_point_has_the_references_bits) };
    const bool sample = argc == 1, whole = argc == 2 && !strcmp(argv[1], "--whole");
    unsigned part = 1, parts = 1;
    struct timespec from, to;
    int failed;

    if (!sample && !whole &&
        (argc != 3 || strcmp(argv[1], "--part") || sscanf(argv[2], "%u/%u", &part, &parts) != 2 || part < 1 ||
         part > parts))
        return usage();
    seed = numbers_seed("grid");
    list_collectives();
    if (sample)
        add_sample(seed);
    else
        add_whole(part - 1, parts);
    clock_gettime(CLOCK_MONOTONIC, &from);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%s: %zu points in %ld s", failed ? "FAILS" : "holds", point_count, (long)(to.tv_sec - from.tv_sec));
    if (sample)
        printf(", in which each of %zu pairs of choices occurs", pair_count);
    else
        printf(", part %u of %u of the whole grid", part, parts);
    printf("\n");
    free(points);
    return failed != 0;
}
