/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce gives the bits of the tree, whatever the transport, layout, algorithm, segment, size,
 * memory, alignment, in place or not, and however these differ between the ranks. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST_BYTES ((size_t)5 << 20)

static uint64_t seed;

struct campaign {
    const struct coll_setup *setup;
    size_t most;               /* bytes of a call */
    bool exact;
    uint64_t seed;
    const uint8_t *host;       /* of each rank, where sums have the tree of the layout */
};

static const size_t counts[] = {
    0,    1,    2,    3,    4,    5,    7,    8,    9,     13,    14,    15,    16,    17,    31,   32,
    33,   61,   63,   64,   65,   127,  128,  251,  256,   257,   509,   512,   1021,  1024,  1025, 2039,
    2048, 2049, 4093, 4096, 4097, 8191, 8192, 8193, 16381, 16385, 32771, 65537, 98299, 196613,
};
static const size_t large_counts[] = { 262147, 524309, 1048583 };

static void one(struct rank *me, ringred_comm *comm, struct coll_memory *m, struct coll_call *c,
                struct numbers_random *mine)
{
    coll_prepare(c, m, me, mine);
    coll_must(comm, ringred_allreduce(comm, c->send, c->recv, c->count, c->job.type, c->job.op), c->text);
    coll_check_allreduce(c, me);
}

static void all_counts(struct rank *me, ringred_comm *comm, struct coll_memory *m, const struct campaign *p,
                       const size_t *count, size_t n, int variants)
{
    struct numbers_random all = { p->seed + n }, mine = { p->seed + 1000 + (uint64_t)me->rank };

    for (size_t i = 0; i < n; i++)
        for (int v = 0; v < variants; v++) {
            const uint64_t draw = variants == 4 ? (uint64_t)v : numbers_next(&all);
            struct coll_call c = { .count = count[i], .exact = p->exact };

            c.job.type = draw & 1 ? RINGRED_FLOAT32 : RINGRED_FLOAT64;
            c.job.op = draw & 2 ? RINGRED_SUM : RINGRED_AVG;
            c.job.kind = p->exact ? (enum numbers_kind)numbers_below(&all, 3) : NUMBERS_ROUNDING;
            c.job.ranks = me->size;
            c.job.host = p->host;
            c.job.seed = numbers_next(&all);
            if (c.count * numbers_bytes(c.job.type) <= p->most)
                one(me, comm, m, &c, &mine);
        }
}

static void campaign_run(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    struct coll_memory m;

    coll_memory_open(&m, comm, p->most);
    all_counts(me, comm, &m, p, counts, sizeof counts / sizeof counts[0] - 6, 4);
    all_counts(me, comm, &m, p, counts, sizeof counts / sizeof counts[0], 1);
    all_counts(me, comm, &m, p, large_counts, sizeof large_counts / sizeof large_counts[0], 1);
    coll_close(comm); /* no rank waits for another here: any order must do */
    coll_memory_close(&m);
}

static void run_all(const struct coll_setup *setups, size_t n, size_t most, bool exact)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t host[NUMBERS_RANKS];
        struct campaign p = { &setups[i], most, exact, seed + i, coll_hosts(&setups[i], host) };
        const struct ranks_plan plan = { .size = setups[i].ranks, .run = campaign_run, .argument = &p,
                                         .deadline_s = 60 };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_run(&plan);
    }
}
#define RUN(setups, most, exact) run_all(setups, sizeof(setups) / sizeof(setups)[0], most, exact)

static void test_one_host_shared_memory(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=auto" } }, { 2, { "transport=shm" } }, { 3, { "transport=shm" } },
        { 4, { "transport=shm" } },  { 5, { "transport=shm" } }, { 7, { "transport=shm" } },
    };

    (void)state;
    RUN(setups, MOST_BYTES, true);
}

static void test_shared_memory_algorithms_and_segments(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm", "algorithm=oneshot" } },
        { 3, { "transport=shm", "algorithm=oneshot", "segment=4096" } },
        { 2, { "transport=shm", "algorithm=twoshot", "segment=1024" } },
        { 3, { "transport=shm", "algorithm=twoshot" } },
        { 4, { "transport=shm", "algorithm=twoshot", "segment=20000", "stage=256K" } },
        { 5, { "transport=shm", "algorithm=oneshot", "stage=64K" } },
    };

    (void)state;
    RUN(setups, (size_t)1 << 20, true);
}

static void test_links(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=tcp" } }, { 2, { "transport=tcp" } }, { 3, { "transport=tcp" } },
        { 4, { "transport=tcp" } }, { 5, { "transport=tcp" } }, { 7, { "transport=tcp" } },
    };

    (void)state;
    RUN(setups, (size_t)3 << 20, true);
}

static void test_link_algorithms_and_segments(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=tcp", "algorithm=oneshot" } },
        { 3, { "transport=tcp", "algorithm=oneshot", "segment=4096" } },
        { 5, { "transport=tcp", "algorithm=oneshot" } },
        { 2, { "transport=tcp", "algorithm=twoshot", "segment=2048" } },
        { 3, { "transport=tcp", "algorithm=twoshot", "segment=30000" } },
        { 2, { "transport=tcp", "algorithm=doubling" } },
        { 3, { "transport=tcp", "algorithm=doubling", "segment=8192" } },
        { 4, { "transport=tcp", "algorithm=doubling" } },
        { 7, { "transport=tcp", "algorithm=doubling" } },
    };

    (void)state;
    RUN(setups, (size_t)1 << 20, true);
}

static void test_hosts(void **state)
{
    static const struct coll_setup setups[] = {
        { 4, { "ranks_per_host=2" } },
        { 6, { "ranks_per_host=2" } },
        { 4, { "ranks_per_host=2", "algorithm=hierarchical", "segment=4096" } },
        { 8, { "ranks_per_host=4" } },
        { 4, { "ranks_per_host=1" } },
        { 6, { "ranks_per_host=3", "numerics=portable" } },
    };

    (void)state;
    RUN(setups, (size_t)2 << 20, true);
}

static void test_hosts_of_any_number_of_ranks(void **state)
{
    static const struct coll_setup setups[] = {
        { 6, { "hosts=aaabbb" } },
        { 7, { "hosts=aaaabbc" } },
        { 6, { "hosts=abcabc", "segment=4096" } },
        { 4, { "hosts=abbb", "algorithm=hierarchical", "segment=5000" } },
        { 7, { "hosts=abcaaaa", "stage=128K" } },
        { 5, { "hosts=aabbb", "numerics=portable" } },
    };

    (void)state;
    RUN(setups, (size_t)1 << 20, true);
}

/* ---- which tree ---- */

struct tree {
    struct coll_setup setup;
    const char *allreduce, *reduce; /* of float32 sums */
};

static void ask(struct rank *me)
{
    const struct tree *t = me->argument;
    ringred_comm *comm = coll_open(me, &t->setup);
    char text[8192], want[64];

    rank_check(ringred_comm_describe(comm, "reduce", 1 << 16, text, sizeof text) < (int64_t)sizeof text);
    snprintf(want, sizeof want, "\"tree\":\"%s\",\"transports\"", t->allreduce);
    rank_check_msg(strstr(text, want) != NULL, "not %s: %s", want, text);
    snprintf(want, sizeof want, "\"tree\":\"%s\",\"plan\"", t->reduce);
    rank_check_msg(strstr(text, want) != NULL, "not %s: %s", want, text);
    coll_close(comm);
}

static void test_a_communicator_says_which_tree_its_sums_have(void **state)
{
    static struct tree trees[] = {
        { { 3, { "transport=shm" } }, "canonical", "canonical" },
        { { 4, { "ranks_per_host=2" } }, "canonical", "canonical" },
        { { 4, { "hosts=aabb" } }, "canonical", "canonical" },
        { { 4, { "hosts=aaab" } }, "layout", "layout" },
        { { 4, { "hosts=abab" } }, "layout", "layout" },
        { { 4, { "hosts=aaab", "numerics=portable" } }, "canonical", "canonical" },
        { { 4, { "hosts=aaab", "algorithm=twoshot" } }, "canonical", "layout" },
        { { 3, { "transport=tcp", "numerics=fast", "algorithm=ring" } }, "any", "canonical" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        ranks_fork(trees[i].setup.ranks, ask, &trees[i]);
}

static void test_ring_is_near_the_sum(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=tcp", "algorithm=ring", "numerics=fast" } },
        { 3, { "transport=tcp", "algorithm=ring", "numerics=fast" } },
        { 5, { "transport=tcp", "algorithm=ring", "numerics=fast", "segment=16384" } },
    };

    (void)state;
    RUN(setups, (size_t)1 << 20, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host_shared_memory),
        cmocka_unit_test(test_shared_memory_algorithms_and_segments),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_link_algorithms_and_segments),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_hosts_of_any_number_of_ranks),
        cmocka_unit_test(test_a_communicator_says_which_tree_its_sums_have),
        cmocka_unit_test(test_ring_is_near_the_sum),
    };

    seed = numbers_seed("test_allreduce");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
