/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of unequal length, empty ones among them, anywhere in their buffers: every element comes where it
 * is due, nothing between the parts is touched, and ranks that disagree about a length are told which
 * and how. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 8
#define PART_MOST  ((size_t)40000) /* elements */
#define GAP        7

static uint64_t seed;

enum kind { ALLGATHERV, GATHERV, SCATTERV, REDUCE_SCATTERV, ALLTOALLV, KINDS };
static const char *const names[KINDS] = { "allgatherv", "gatherv", "scatterv", "reduce_scatterv", "alltoallv" };

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
};

/* Lengths that every rank can work out: from rank `from` to rank `to`. */
static size_t length(uint64_t call, int from, int to)
{
    struct numbers_random r = { call * 1000003 + (uint64_t)from * 1009 + (uint64_t)to };
    size_t most = numbers_below(&r, 8) == 0 ? PART_MOST : numbers_below(&r, 2) ? 600 : 20;

    return numbers_below(&r, 4) == 0 ? 0 : numbers_below(&r, most);
}

/* Where parts lie: one behind the other, or with gaps in any order. Returns what to pass as places. */
static const size_t *lay_out(struct numbers_random *mine, const size_t *count, size_t *at, int n)
{
    int order[MOST_RANKS];
    size_t next = 0;
    bool plain = numbers_below(mine, 2);

    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0 && !plain; i--) {
        int j = (int)numbers_below(mine, (uint64_t)i + 1), k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
    for (int i = 0; i < n; i++) {
        at[order[i]] = next;
        next += count[order[i]] + (plain ? 0 : numbers_below(mine, GAP));
    }
    return plain ? NULL : at;
}

struct call {
    enum kind kind;
    int type, root, me, n;
    uint64_t seed;
    struct numbers_job job;
    size_t in_count[MOST_RANKS], in_at[MOST_RANKS], out_count[MOST_RANKS], out_at[MOST_RANKS];
    const size_t *in_places, *out_places;
    bool in_parts, out_parts, has_out;
};

static void lengths(struct call *c)
{
    for (int r = 0; r < c->n; r++) {
        switch (c->kind) {
        case ALLGATHERV:
        case GATHERV:
            c->out_count[r] = length(c->seed, r, 0);
            c->in_count[r] = length(c->seed, c->me, 0);
            break;
        case SCATTERV:
        case REDUCE_SCATTERV:
            c->in_count[r] = length(c->seed, 0, r);
            c->out_count[r] = length(c->seed, 0, c->me);
            break;
        default:
            c->in_count[r] = length(c->seed, c->me, r);
            c->out_count[r] = length(c->seed, r, c->me);
            break;
        }
    }
}

static int32_t run(ringred_comm *comm, const struct call *c, const void *in, void *out)
{
    size_t own_in = c->in_count[c->me], own_out = c->out_count[c->me];

    switch (c->kind) {
    case ALLGATHERV:
        return ringred_allgatherv(comm, in, own_in, out, c->out_count, c->out_places, c->type);
    case GATHERV:
        return ringred_gatherv(comm, in, own_in, out, c->has_out ? c->out_count : NULL, c->out_places, c->type,
                               c->root);
    case SCATTERV:
        return ringred_scatterv(comm, in, c->in_parts ? c->in_count : NULL, c->in_places, out, own_out, c->type,
                                c->root);
    case REDUCE_SCATTERV:
        return ringred_reduce_scatterv(comm, in, out, c->in_count, c->type, c->job.op);
    default:
        return ringred_alltoallv(comm, in, c->in_count, c->in_places, out, c->out_count, c->out_places, c->type);
    }
}

/* What rank r sends in its part p. In a reduction, the elements of one vector over all parts. */
static void fill(const struct call *c, void *to, int r, int p, size_t first, size_t count)
{
    uint64_t each = c->kind == REDUCE_SCATTERV ? c->job.seed : c->job.seed + (uint64_t)p * 977;

    numbers_fill(to, c->type, c->job.kind, each, r, first, count);
}

static void make_input(const struct call *c, unsigned char *in)
{
    size_t bytes = numbers_bytes(c->type);

    if (!c->in_parts)
        fill(c, in, c->me, 0, 0, c->in_count[c->me]);
    for (int p = 0; p < c->n && c->in_parts; p++)
        fill(c, in + c->in_at[p] * bytes, c->me, p, c->in_at[p], c->in_count[p]);
}

static void expect(const struct call *c, void *want, int p, size_t count)
{
    size_t at = 0;

    switch (c->kind) {
    case ALLGATHERV:
    case GATHERV:
        fill(c, want, p, 0, 0, count);
        return;
    case SCATTERV:
        break; /* below: elements count from where the root's part lies, which only the root knows */
    case REDUCE_SCATTERV:
        for (int r = 0; r < c->me; r++)
            at += c->in_count[r];
        numbers_expect(want, &c->job, at, count);
        return;
    default:
        break;
    }
    fill(c, want, c->kind == SCATTERV ? c->root : p, c->me, 0, count);
}

/* Parts of scatterv and alltoallv start counting at 0, wherever they lie. */
static void make_numbered_input(const struct call *c, unsigned char *in)
{
    size_t bytes = numbers_bytes(c->type);

    for (int p = 0; p < c->n; p++)
        fill(c, in + c->in_at[p] * bytes, c->me, p, 0, c->in_count[p]);
}

static void check(const struct call *c, const unsigned char *out, unsigned char *want, size_t room)
{
    size_t bytes = numbers_bytes(c->type);
    unsigned char *image = want + room / 2;
    char text[200];

    memset(image, 0xee, room / 2);
    for (int p = 0; p < (c->out_parts ? c->n : 1) && c->has_out; p++) {
        size_t at = c->out_parts ? c->out_at[p] : 0, count = c->out_parts ? c->out_count[p] : c->out_count[c->me];
        expect(c, want, p, count);
        memcpy(image + at * bytes, want, count * bytes);
        rank_check_msg(numbers_differ(out + at * bytes, want, c->type, count, text, sizeof text) < 0,
                       "%s, seed 0x%llx, part %d of %zu: %s", names[c->kind], (unsigned long long)c->seed, p,
                       count, text);
    }
    rank_check_msg(memcmp(image, out, room / 2) == 0, "%s, seed 0x%llx: wrote between or behind the parts",
                   names[c->kind], (unsigned long long)c->seed);
}

static void one_call(ringred_comm *comm, struct rank *me, struct numbers_random *all,
                     struct numbers_random *mine, unsigned char *in, unsigned char *out, unsigned char *want,
                     size_t room)
{
    struct call c = { .kind = (enum kind)numbers_below(all, KINDS), .me = me->rank, .n = me->size };

    c.type = numbers_below(all, 2) ? RINGRED_FLOAT32 : RINGRED_FLOAT64;
    c.root = (int)numbers_below(all, (uint64_t)me->size);
    c.seed = numbers_next(all);
    c.job = (struct numbers_job){ .type = c.type, .op = numbers_below(all, 2) ? RINGRED_SUM : RINGRED_AVG,
                                  .ranks = me->size, .kind = NUMBERS_ROUNDING, .seed = c.seed };
    c.in_parts = c.kind >= REDUCE_SCATTERV || (c.kind == SCATTERV && c.root == c.me);
    c.out_parts = c.kind == ALLGATHERV || c.kind == ALLTOALLV || (c.kind == GATHERV && c.root == c.me);
    c.has_out = c.kind != GATHERV || c.root == c.me;
    lengths(&c);
    c.in_places = lay_out(mine, c.in_count, c.in_at, c.n);
    c.out_places = lay_out(mine, c.out_count, c.out_at, c.n);
    if (c.kind == REDUCE_SCATTERV)
        for (int p = 0; p < c.n; p++)
            c.in_at[p] = p ? c.in_at[p - 1] + c.in_count[p - 1] : 0;
    memset(out, 0xee, room / 2);
    if (c.kind == SCATTERV || c.kind == ALLTOALLV)
        make_numbered_input(&c, in);
    else
        make_input(&c, in);
    coll_must(comm, run(comm, &c, in, out), names[c.kind]);
    check(&c, out, want, room);
}

static void calls(struct rank *me)
{
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 77 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    size_t room = 2 * (size_t)me->size * (PART_MOST + GAP) * 8 + 64;
    unsigned char *in = malloc(room), *out = malloc(room), *want = malloc(room);

    rank_check(in && out && want);
    for (int i = 0; i < 120; i++)
        one_call(comm, me, &all, &mine, in, out, want, room);
    coll_close(comm);
    free(in);
    free(out);
    free(want);
}

static void test_every_element_comes_where_it_is_due(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=auto" } },
        { 2, { "transport=shm" } },
        { 3, { "transport=shm", "segment=4096" } },
        { 5, { "transport=shm", "stage=128K" } },
        { 2, { "transport=tcp" } },
        { 3, { "transport=tcp", "segment=4096" } },
        { 5, { "transport=tcp", "algorithm=ring-allgather" } },
        { 4, { "ranks_per_host=2" } },
        { 5, { "ranks_per_host=3", "segment=10000" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        struct campaign p = { &setups[i], seed + i };
        char text[200];
        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_fork(setups[i].ranks, calls, &p);
    }
}

/* Rank 1 sends rank 0 an element more than that expects. */
static void disagree(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    enum kind kind = (enum kind)p->seed;
    size_t four[3] = { 4, 4, 4 }, other[3] = { 4, 4, 4 };
    float in[16] = { 0 }, out[16];
    ringred_error error;
    int32_t rc;

    other[kind == ALLTOALLV ? 0 : 1] = me->rank == 1 ? 5 : 4;
    if (kind == ALLTOALLV)
        rc = ringred_alltoallv(comm, in, other, NULL, out, four, NULL, RINGRED_FLOAT32);
    else if (kind == GATHERV)
        rc = ringred_gatherv(comm, in, me->rank == 1 ? 5 : 4, out, four, NULL, RINGRED_FLOAT32, 0);
    else if (kind == ALLGATHERV)
        rc = ringred_allgatherv(comm, in, me->rank == 1 ? 5 : 4, out, other, NULL, RINGRED_FLOAT32);
    else
        rc = ringred_reduce_scatterv(comm, in, out, other, RINGRED_FLOAT32, RINGRED_SUM);
    for (int i = 0; i < 1000 && rc == 0; i++)
        rc = ringred_barrier(comm); /* who was not asked hears of it in a later call */
    ringred_error_init(&error);
    (void)ringred_comm_error(comm, &error);
    rank_check_msg(rc == RINGRED_EMISMATCH, "%s: status %d, %s", names[kind], rc, error.text);
    rank_check_msg(strstr(error.text, kind == ALLTOALLV || kind == GATHERV ? "5" : "13") != NULL,
                   "%s: the sentence does not tell: %s", names[kind], error.text);
    (void)ringred_comm_destroy(comm);
}

static void test_ranks_that_disagree_about_a_length_are_told(void **state)
{
    static const struct coll_setup setups[] = { { 3, { "transport=shm" } }, { 3, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct campaign p = { &setups[i], (uint64_t)kind };
            if (kind != SCATTERV)
                ranks_fork(3, disagree, &p);
        }
}

static void refuse(ringred_comm *comm, int32_t rc, const char *word)
{
    ringred_error error;

    ringred_error_init(&error);
    (void)ringred_comm_error(comm, &error);
    rank_check_msg(rc == RINGRED_EINVAL && strstr(error.text, word), "not \"%s\": %d, %s", word, rc, error.text);
}

static void mistakes(struct rank *me)
{
    static const struct coll_setup alone = { 1, { "transport=auto" } };
    ringred_comm *comm = coll_open(me, &alone);
    size_t one[1] = { 4 }, huge[1] = { SIZE_MAX / 4 }, three[1] = { 3 };
    float a[16] = { 0 }, b[16];

    refuse(comm, ringred_allgatherv(comm, a, 4, b, NULL, NULL, RINGRED_FLOAT32), "NULL");
    refuse(comm, ringred_allgatherv(comm, a, 3, b, one, NULL, RINGRED_FLOAT32), "expects 4");
    refuse(comm, ringred_allgatherv(comm, a, 4, b, huge, NULL, RINGRED_FLOAT32), "memory");
    refuse(comm, ringred_alltoallv(comm, a, one, NULL, b, three, NULL, RINGRED_FLOAT32), "itself");
    refuse(comm, ringred_alltoallv(comm, a, one, NULL, a + 2, one, NULL, RINGRED_FLOAT32), "overlap");
    refuse(comm, ringred_reduce_scatterv(comm, a, a + 2, one, RINGRED_FLOAT32, RINGRED_SUM), "overlap");
    refuse(comm, ringred_gatherv(comm, a, 4, NULL, one, NULL, RINGRED_FLOAT32, 0), "recv is NULL");
    refuse(comm, ringred_scatterv(comm, a, one, NULL, b, 4, RINGRED_FLOAT32, 1), "root is 1");
    refuse(comm, ringred_alltoallv_start(comm, a, one, NULL, b, one, NULL, RINGRED_FLOAT32, NULL), "request");
    coll_must(comm, ringred_allgatherv(comm, a, 4, b, one, NULL, RINGRED_FLOAT32), "after all that");
    size_t behind[1] = { 8 };
    coll_must(comm, ringred_alltoallv(comm, a, one, NULL, a, one, behind, RINGRED_FLOAT32), "apart in one buffer");
    coll_must(comm, ringred_allgatherv(comm, a + 8, 4, a, one, behind, RINGRED_FLOAT32), "in place");
    coll_close(comm);
}

static void overlapping(struct rank *me)
{
    static const struct coll_setup two = { 2, { "transport=shm" } };
    ringred_comm *comm = coll_open(me, &two);
    size_t count[2] = { 4, 4 }, across[2] = { 2, 0 };
    float a[16] = { 0 }, b[16];

    refuse(comm, ringred_allgatherv(comm, a, 4, b, count, across, RINGRED_FLOAT32), "parts 0 and 1");
    count[0] = 0; /* an empty part lies nowhere */
    across[0] = 1, across[1] = 0;
    coll_must(comm, ringred_allgatherv(comm, a, count[me->rank], b, count, across, RINGRED_FLOAT32), "an empty part");
    coll_close(comm);
}

static void test_mistakes_are_refused(void **state)
{
    (void)state;
    ranks_fork(1, mistakes, NULL);
    ranks_fork(2, overlapping, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element_comes_where_it_is_due),
        cmocka_unit_test(test_ranks_that_disagree_about_a_length_are_told),
        cmocka_unit_test(test_mistakes_are_refused),
    };

    seed = numbers_seed("test_ragged");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
