/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce, reduce-scatter, allgather, gather, scatter and alltoall give each rank what it is due, whatever
 * the transport, layout, algorithm, segment, count and root, with buffers of every kind, in place on
 * some ranks and out of place on others, in turn on one communicator with allreduces, broadcasts and
 * barriers between them. */
#include "calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define PART_BYTES ((size_t)640 << 10)

static uint64_t seed;

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
    bool exact;
    const uint8_t *host; /* of each rank, where sums go by hosts */
};

/* ---- campaigns ---- */

static size_t draw_count(struct numbers_random *all, int n, size_t element)
{
    const size_t near[] = { 0, 1, (size_t)n - 1, (size_t)n, (size_t)n + 1, 17, 257, 1021, 4099, 30011 };
    size_t most = PART_BYTES / element;

    if (numbers_below(all, 4) == 0)
        return numbers_below(all, (uint32_t)most);
    return near[numbers_below(all, sizeof near / sizeof *near)];
}

/* Half of the calls with float32 and sums; rings add in another order, which only wide floats bear. */
static void draw_type(struct numbers_random *all, struct numbers_job *job, bool reduces, bool exact)
{
    do {
        bool usual = numbers_below(all, 2);
        job->type = usual ? RINGRED_FLOAT32 : exact ? 1 + (int)numbers_below(all, RINGRED_BYTES)
                                                    : 1 + (int)numbers_below(all, 2);
        job->op = usual || !exact ? RINGRED_SUM + (int)numbers_below(all, 2)
                                  : RINGRED_SUM + (int)numbers_below(all, 11);
    } while (reduces && !numbers_legal(job->type, job->op));
}

static void one_call(ringred_comm *comm, const struct calls_memory *m, struct rank *me,
                     const struct campaign *p, struct numbers_random *all, struct numbers_random *mine)
{
    struct call c = { .kind = (enum calls_kind)numbers_below(all, CALLS_KINDS), .exact = p->exact };
    const struct calls_collective *what = &calls_collectives[c.kind];

    c.root = (int)numbers_below(all, (uint32_t)me->size);
    c.job = (struct numbers_job){ .type = RINGRED_FLOAT32,
                                  .kind = what->reduces && !p->exact ? NUMBERS_COUNTING : NUMBERS_WILD,
                                  .ranks = me->size,
                                  .host = p->host,
                                  .seed = numbers_next(all) };
    draw_type(all, &c.job, what->reduces, p->exact);
    c.count = draw_count(all, me->size, numbers_bytes(c.job.type));
    c.in_place = numbers_below(mine, 2);
    calls_prepare(&c, m, me, mine);
    coll_must(comm, calls_run(comm, &c), c.text);
    calls_check(&c, m, me);
}

static void calls(struct rank *me)
{
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    struct calls_memory m;

    calls_memory_open(&m, comm, (size_t)me->size * PART_BYTES + CALLS_MARGIN);
    for (int i = 0; i < 250; i++)
        one_call(comm, &m, me, p, &all, &mine);
    coll_close(comm);
    calls_memory_close(&m);
}

static void run_all(const struct coll_setup *setups, size_t n, bool exact)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t host[NUMBERS_RANKS];
        struct campaign p = { &setups[i], seed + i, exact, coll_hosts(&setups[i], host) };
        struct ranks_plan plan = { .size = setups[i].ranks, .run = calls, .argument = &p, .deadline_s = 60 };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_run(&plan);
    }
}
#define RUN(setups, exact) run_all(setups, sizeof setups / sizeof *setups, exact)

static void test_one_rank(void **state)
{
    static const struct coll_setup setups[] = { { 1, { "transport=auto" } } };

    (void)state;
    RUN(setups, true);
}

static void test_shared_memory(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } },
        { 3, { "transport=shm" } },
        { 4, { "transport=shm", "segment=4096" } },
        { 5, { "transport=shm", "stage=128K" } },
        { 7, { "transport=shm", "stage=1M" } },
        { 3, { "transport=shm", "algorithm=shm-reduce", "segment=8192" } },
        { 3, { "transport=shm", "algorithm=shm-reduce-twoshot" } },
    };

    (void)state;
    RUN(setups, true);
}

static void test_links(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=tcp" } },
        { 3, { "transport=tcp", "segment=4096" } },
        { 4, { "transport=tcp" } },
        { 5, { "transport=tcp", "segment=30000" } },
        { 7, { "transport=tcp" } },
        { 3, { "transport=tcp", "algorithm=broadcast-twoshot,reduce-twoshot,ring-allgather,bruck-alltoall" } },
        { 5, { "transport=tcp", "algorithm=bruck-allgather,bruck-alltoall,reduce,binomial", "segment=5000" } },
        { 4, { "transport=tcp", "algorithm=bruck-allgather,bruck-alltoall,reduce-twoshot" } },
        { 3, { "transport=tcp", "algorithm=star-allgather", "segment=4096" } },
        { 3, { "transport=tcp", "tcp_streams=3" } },
    };

    (void)state;
    RUN(setups, true);
}

static void test_several_hosts(void **state)
{
    static const struct coll_setup setups[] = {
        { 4, { "ranks_per_host=2" } },
        { 6, { "ranks_per_host=2", "segment=4096" } },
        { 4, { "ranks_per_host=2", "numerics=portable" } },
        { 5, { "hosts=aaabb" } },
        { 5, { "hosts=abaca", "segment=4096" } },
        { 7, { "hosts=aabbaba" } },
        { 3, { "hosts=aba", "numerics=portable" } },
        { 6, { "hosts=abbbbc", "algorithm=reduce,reduce-scatter,allgather,twoshot,hier-broadcast", "numerics=portable" } },
    };

    (void)state;
    RUN(setups, true);
}

static void test_rings_add_in_another_order(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=tcp", "numerics=fast", "algorithm=ring,ring-reduce-scatter" } },
        { 3, { "transport=tcp", "numerics=fast", "algorithm=ring,ring-reduce-scatter", "segment=4096" } },
        { 5, { "transport=tcp", "numerics=fast", "algorithm=ring,ring-reduce-scatter" } },
    };

    (void)state;
    RUN(setups, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_several_hosts),
        cmocka_unit_test(test_rings_add_in_another_order),
    };

    seed = numbers_seed("test_collectives");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
