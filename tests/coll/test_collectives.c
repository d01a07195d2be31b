/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce, reduce-scatter, allgather, gather, scatter and alltoall give each rank what it is due, whatever
 * the transport, layout, algorithm, segment, count and root, with buffers of every kind, in place on
 * some ranks and out of place on others, in turn on one communicator with allreduces, broadcasts and
 * barriers between them. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_PARTS 7
#define PART_BYTES ((size_t)640 << 10)
#define GUARD      64

static uint64_t seed;

enum kind { REDUCE, REDUCE_SCATTER, ALLGATHER, GATHER, SCATTER, ALLTOALL, ALLREDUCE, BROADCAST, BARRIER, KINDS };

static const struct collective {
    const char *name;
    char in, out; /* parts: '1', 'n', or on the root only: 'r' one, 'R' n */
    bool reduces, rooted;
} collectives[KINDS] = {
    [REDUCE] = { "reduce", '1', 'r', true, true },
    [REDUCE_SCATTER] = { "reduce_scatter", 'n', '1', true, false },
    [ALLGATHER] = { "allgather", '1', 'n', false, false },
    [GATHER] = { "gather", '1', 'R', false, true },
    [SCATTER] = { "scatter", 'R', '1', false, true },
    [ALLTOALL] = { "alltoall", 'n', 'n', false, false },
    [ALLREDUCE] = { "allreduce", '1', '1', true, false },
    [BROADCAST] = { "broadcast", 'r', '1', false, true },
    [BARRIER] = { "barrier", '0', '0', false, false },
};

struct call {
    enum kind kind;
    int root, in_parts, out_parts;
    size_t count, bytes; /* of one part */
    struct numbers_job job;
    bool in_place, exact;
    unsigned char *send, *recv;
    char text[200];
};

struct campaign {
    const struct coll_setup *setup;
    uint64_t seed;
    bool exact;
    int per_host;        /* hosts whose sums are part of the tree have so many ranks; 0: none do */
    const uint8_t *host; /* of each rank, where sums have the tree of the layout */
};

static int parts(char code, bool root, int n)
{
    switch (code) {
    case '1':
        return 1;
    case 'n':
        return n;
    case 'r':
        return root;
    case 'R':
        return root ? n : 0;
    default:
        return 0;
    }
}

/* ---- buffers ---- */

struct memory {
    unsigned char *plain[2], *window[2];
};

static void open_memory(struct memory *m, ringred_comm *comm, size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        void *window = NULL;
        m->plain[i] = malloc(bytes);
        rank_check(m->plain[i] != NULL);
        coll_must(comm, ringred_alloc(comm, bytes, &window), "ringred_alloc");
        m->window[i] = window;
    }
}

static void close_memory(struct memory *m)
{
    for (int i = 0; i < 2; i++) {
        free(m->plain[i]);
        rank_check_int(ringred_free(m->window[i]), 0);
    }
}

static unsigned char *place(const struct memory *m, int which, const struct call *c, struct numbers_random *mine)
{
    unsigned char *room = numbers_below(mine, 2) ? m->window[which] : m->plain[which];
    size_t offset = numbers_below(mine, 3) ? 0 : numbers_below(mine, 64);

    return room + GUARD + offset / numbers_bytes(c->job.type) * numbers_bytes(c->job.type);
}

/* What is drawn from `mine` is known to this rank alone. */
static void prepare(struct call *c, const struct memory *m, struct rank *me, struct numbers_random *mine)
{
    size_t own = (size_t)me->rank * c->bytes;

    c->in_place = numbers_below(mine, 2) && c->in_parts && c->out_parts;
    c->send = place(m, 0, c, mine);
    c->recv = place(m, 1, c, mine);
    if (c->in_place && c->in_parts == c->out_parts)
        c->recv = c->send;
    else if (c->in_place && c->in_parts < c->out_parts)
        c->send = c->recv + own;
    else if (c->in_place)
        c->recv = c->send + own;
    else
        memset(c->recv, 0xee, c->bytes * (size_t)c->out_parts);
    memset(c->recv - GUARD, 0xa5, c->in_place ? 0 : GUARD);
    memset(c->recv + c->bytes * (size_t)c->out_parts, 0x5a, c->in_place ? 0 : GUARD);
    numbers_fill(c->send, c->job.type, c->job.kind, c->job.seed, me->rank, 0, c->count * (size_t)c->in_parts);
    snprintf(c->text, sizeof c->text, "%s of %zu, type %d, op %d, root %d, %s, seed 0x%llx",
             collectives[c->kind].name, c->count, c->job.type, c->job.op, c->root,
             c->in_place ? "in place" : "out of place", (unsigned long long)c->job.seed);
}

/* ---- the call ---- */

static int32_t run(ringred_comm *comm, const struct call *c)
{
    const void *send = c->in_parts ? c->send : NULL;
    void *recv = c->out_parts ? c->recv : NULL;
    int type = c->job.type, op = c->job.op;

    switch (c->kind) {
    case REDUCE:
        return ringred_reduce(comm, send, recv, c->count, type, op, c->root);
    case REDUCE_SCATTER:
        return ringred_reduce_scatter(comm, send, recv, c->count, type, op);
    case ALLGATHER:
        return ringred_allgather(comm, send, recv, c->count, type);
    case GATHER:
        return ringred_gather(comm, send, recv, c->count, type, c->root);
    case SCATTER:
        return ringred_scatter(comm, send, recv, c->count, type, c->root);
    case ALLTOALL:
        return ringred_alltoall(comm, send, recv, c->count, type);
    case ALLREDUCE:
        return ringred_allreduce(comm, send, recv, c->count, type, op);
    case BROADCAST:
        return ringred_broadcast(comm, send, recv, c->count, type, c->root);
    default:
        return ringred_barrier(comm);
    }
}

/* Part p of my output: what it must hold, in `want`. */
static void expect(const struct call *c, const struct rank *me, int p, void *want)
{
    const struct numbers_job *job = &c->job;
    size_t mine = (size_t)me->rank * c->count;

    switch (c->kind) {
    case REDUCE:
    case ALLREDUCE:
        numbers_expect(want, job, 0, c->count);
        break;
    case REDUCE_SCATTER:
        numbers_expect(want, job, mine, c->count);
        break;
    case ALLGATHER:
    case GATHER:
        numbers_fill(want, job->type, job->kind, job->seed, p, 0, c->count);
        break;
    case SCATTER:
        numbers_fill(want, job->type, job->kind, job->seed, c->root, mine, c->count);
        break;
    case BROADCAST:
        numbers_fill(want, job->type, job->kind, job->seed, c->root, 0, c->count);
        break;
    default:
        numbers_fill(want, job->type, job->kind, job->seed, p, mine, c->count);
        break;
    }
}

static void check(const struct call *c, const struct rank *me, void *want)
{
    char text[200];
    size_t all = c->bytes * (size_t)c->out_parts;

    for (int p = 0; p < c->out_parts; p++) {
        const unsigned char *got = c->recv + (size_t)p * c->bytes;
        bool bits = !collectives[c->kind].reduces || c->exact;
        expect(c, me, p, want);
        long at = bits ? numbers_differ(got, want, c->job.type, c->count, text, sizeof text)
                       : numbers_stray(got, want, c->job.type, c->count, c->exact ? 0 : 0.002, text, sizeof text);
        rank_check_msg(at < 0, "%s: part %d: %s", c->text, p, text);
    }
    for (size_t i = 0; i < GUARD && !c->in_place; i++)
        rank_check_msg(c->recv[-1 - (ptrdiff_t)i] == 0xa5 && c->recv[all + i] == 0x5a,
                       "%s: wrote outside of recv", c->text);
    numbers_fill(want, c->job.type, c->job.kind, c->job.seed, me->rank, 0, c->count * (size_t)c->in_parts);
    if (!c->in_place)
        rank_check_msg(memcmp(c->send, want, c->bytes * (size_t)c->in_parts) == 0, "%s: send was written",
                       c->text);
}

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

static void one_call(ringred_comm *comm, const struct memory *m, struct rank *me, const struct campaign *p,
                     struct numbers_random *all, struct numbers_random *mine, void *want)
{
    struct call c = { .kind = (enum kind)numbers_below(all, KINDS), .exact = p->exact };
    const struct collective *what = &collectives[c.kind];

    c.root = (int)numbers_below(all, (uint32_t)me->size);
    c.job = (struct numbers_job){ .type = RINGRED_FLOAT32,
                                  .kind = what->reduces && !p->exact ? NUMBERS_COUNTING : NUMBERS_WILD,
                                  .ranks = me->size,
                                  .per_host = p->per_host,
                                  .host = p->host,
                                  .seed = numbers_next(all) };
    draw_type(all, &c.job, what->reduces, p->exact);
    c.count = draw_count(all, me->size, numbers_bytes(c.job.type));
    c.bytes = c.count * numbers_bytes(c.job.type);
    c.in_parts = parts(what->in, me->rank == c.root, me->size);
    c.out_parts = parts(what->out, me->rank == c.root, me->size);
    prepare(&c, m, me, mine);
    coll_must(comm, run(comm, &c), c.text);
    check(&c, me, want);
}

static void calls(struct rank *me)
{
    const struct campaign *p = me->argument;
    struct numbers_random all = { p->seed }, mine = { p->seed + 1000 + (uint64_t)me->rank };
    ringred_comm *comm = coll_open(me, p->setup);
    size_t room = (size_t)me->size * PART_BYTES + 4 * GUARD;
    struct memory m;
    void *want = malloc(room);

    rank_check(want != NULL);
    open_memory(&m, comm, room);
    for (int i = 0; i < 250; i++)
        one_call(comm, &m, me, p, &all, &mine, want);
    coll_close(comm);
    close_memory(&m);
    free(want);
}

static void run_all(const struct coll_setup *setups, size_t n, bool exact, int per_host)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t host[NUMBERS_RANKS];
        struct campaign p = { &setups[i], seed + i, exact, per_host, coll_hosts(&setups[i], host) };
        struct ranks_plan plan = { .size = setups[i].ranks, .run = calls, .argument = &p, .deadline_s = 60 };
        char text[200];

        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_run(&plan);
    }
}
#define RUN(setups, exact) run_all(setups, sizeof setups / sizeof *setups, exact, 0)

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
    };
    static const struct coll_setup once[] = {
        { 4, { "ranks_per_host=2", "numerics=portable" } },
        { 5, { "hosts=aaabb" } },
        { 5, { "hosts=abaca", "segment=4096" } },
        { 7, { "hosts=aabbaba" } },
        { 3, { "hosts=aba", "numerics=portable" } },
        { 6, { "hosts=abbbbc", "algorithm=reduce,reduce-scatter,allgather,twoshot,hier-broadcast", "numerics=portable" } },
    };

    (void)state;
    run_all(setups, sizeof setups / sizeof *setups, true, 2);
    RUN(once, true);
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
