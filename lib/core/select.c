/* SPDX-License-Identifier: Apache-2.0 */
/* Which plan a call runs. Everything here depends on what all ranks know: the call, the layout, the
 * agreed settings. The limits were measured (docs/ARCHITECTURE.md); they never change a result's bits,
 * since every candidate but the ring evaluates the same tree: where hosts' sums are no part of the canonical
 * tree, a sum of a type goes over hosts, in the tree of the layout, or over links, whatever its size. */
#include "core/core.h"

#include <string.h>

#define KI ((size_t)1 << 10)

/* Last arriver against two-shot, with more ranks than CPUs. */
#define LAST_MOST (128 * KI)

/* Where one way of doing it becomes faster than the other, in bytes; the tiny lane below that. */
static size_t shm_oneshot_most(int ranks)
{
    return ranks == 2 ? 32 * KI : 8 * KI;
}

static size_t link_oneshot_most(int ranks)
{
    return ranks <= 2 ? 8 * KI : ranks <= 8 ? 16 * KI : 0;
}

/* A two-shot has n (n - 1) messages in each of its two rounds, the star n - 1. */
static size_t star_most(int ranks)
{
    return 128 * KI * (size_t)ranks;
}

#define DOUBLING_MOST (32 * KI)

/* Bytes of a segment before it is fitted into scratch and stage. */
#define SHM_SEGMENT (384 * KI)
#define RING_BLOCK (256 * KI)

/* Links: a vector of a few MiB goes through the sockets' own buffers faster in one or two pieces than
 * in many, since every piece waits for all ranks; larger ones overlap better, and stay in caches, in
 * small pieces. With more ranks than CPUs a wait costs a turn on the CPU, so more goes in one piece. */
#define LINK_WHOLE_MOST (1024 * KI)
#define LINK_WHOLE_MOST_CROWDED (4096 * KI)
#define LINK_MEDIUM_MOST (8192 * KI)
#define LINK_SEGMENT_MEDIUM (2048 * KI)
#define LINK_SEGMENT (1024 * KI)
#define LINK_SEGMENT_CROWDED (512 * KI)
#define LINK_BLOCK_LEAST (64 * KI)

/* Where one round of everything gives way to two rounds of blocks, or many messages to few. */
#define SHM_REDUCE_MOST (32 * KI)
#define LINK_REDUCE_MOST (64 * KI)
#define BINOMIAL_MOST (64 * KI)
#define BRUCK_MOST (2 * KI) /* of one part */
#define CROWDED_STAR_MOST (16 * KI) /* of one part of an allgather, with more ranks than CPUs */
#define CROWDED_BRUCK_MOST (256 * KI)
#define BRUCK_RANKS 8       /* from more on */

bool rr_algo_is_possible(const ringred_comm *c, enum rr_algo algo)
{
    return c->plans->plan[algo][0] != NULL;
}

bool rr_is_narrow(int type)
{
    return type == RINGRED_FLOAT16 || type == RINGRED_BFLOAT16 || type == RINGRED_FLOAT8_E4M3FN ||
           type == RINGRED_FLOAT8_E5M2;
}

static bool adds(const struct rr_call *call)
{
    return call->op == RINGRED_SUM || call->op == RINGRED_AVG || call->op == RINGRED_PROD;
}

/* Does another order of the operations give other bits? */
static bool is_inexact(const struct rr_call *call)
{
    return adds(call) && (rr_is_narrow(call->type) || call->type == RINGRED_FLOAT32 ||
                          call->type == RINGRED_FLOAT64 || call->type == RINGRED_COMPLEX64 ||
                          call->type == RINGRED_COMPLEX128);
}

/* May hosts' sums, in the type of the elements, go to other hosts? Those of 16-bit floats are narrowed once more,
 * and their averages are means of means, which only hosts of equal size bear. */
static bool may_sum_hosts(const ringred_comm *c, const struct rr_call *call)
{
    if (!is_inexact(call))
        return true;
    if (c->portable)
        return c->even && !rr_is_narrow(call->type);
    return !rr_is_narrow(call->type) || (rr_type_bytes(call->type) == 2 && call->op != RINGRED_PROD &&
                                         (c->equal || call->op != RINGRED_AVG));
}

/* May a reduction go through sums of parts of the ranks, in the type of its elements? */
bool rr_takes_partial_sums(const ringred_comm *c, const struct rr_call *call, enum rr_algo algo)
{
    if (!rr_is_reduction(call->what))
        return true;
    if (call->user) /* which need not be commutative */
        return rr_algo_table[algo].tree && (c->even || !rr_algo_spans_hosts(algo));
    if (rr_algo_spans_hosts(algo))
        return may_sum_hosts(c, call);
    if (algo == RR_ALGO_DOUBLING || algo == RR_ALGO_RING || algo == RR_ALGO_RING_REDUCE_SCATTER)
        return !rr_is_narrow(call->type) || !adds(call);
    return true;
}

/* By way of hosts, where ranks share memory inside them, and, of a vector for each rank, stages have room. */
static bool goes_by_hosts(const ringred_comm *c, const struct rr_call *call)
{
    bool many = call->what == RR_REDUCE_SCATTER || call->what == RR_ALLGATHER;
    size_t part = c->least_stage / (2 * RR_PLAN_WINDOW + 2) / (many ? (size_t)c->ranks : 1);

    return c->engine.shared && !c->all_local && !call->ragged && part >= 2 * RR_LINE &&
           rr_takes_partial_sums(c, call, RR_ALGO_HIERARCHICAL);
}

bool rr_has_other_bits(const ringred_comm *c, const struct rr_call *call, enum rr_algo algo)
{
    return rr_is_reduction(call->what) && is_inexact(call) && (!c->even || rr_is_narrow(call->type)) &&
           rr_algo_spans_hosts(algo) != goes_by_hosts(c, call);
}

static enum rr_algo allreduce_by_size(const ringred_comm *c, const struct rr_call *call, size_t bytes)
{
    int n = c->ranks;

    if (n == 1)
        return RR_ALGO_COPY;
    if (c->all_local)
        return bytes <= shm_oneshot_most(n) ? RR_ALGO_SHM_ONESHOT : RR_ALGO_SHM_TWOSHOT;
    if (goes_by_hosts(c, call))
        return RR_ALGO_HIERARCHICAL;
    if (c->family->crowded_any && !c->family->wired && n > 2 && n <= 8 && bytes <= star_most(n))
        return RR_ALGO_STAR;
    if (bytes <= link_oneshot_most(n))
        return RR_ALGO_ONESHOT;
    if (n > 8 && bytes <= DOUBLING_MOST && rr_takes_partial_sums(c, call, RR_ALGO_DOUBLING))
        return RR_ALGO_DOUBLING;
    return RR_ALGO_TWOSHOT;
}

static enum rr_algo shared_by_size(enum rr_collective what, size_t bytes)
{
    switch (what) {
    case RR_BROADCAST:
        return RR_ALGO_SHM_BROADCAST;
    case RR_REDUCE:
        return bytes <= SHM_REDUCE_MOST ? RR_ALGO_SHM_REDUCE : RR_ALGO_SHM_REDUCE_TWOSHOT;
    case RR_ALLGATHER:
        return RR_ALGO_SHM_ALLGATHER;
    case RR_GATHER:
        return RR_ALGO_SHM_GATHER;
    case RR_REDUCE_SCATTER:
        return RR_ALGO_SHM_REDUCE_SCATTER;
    case RR_SCATTER:
        return RR_ALGO_SHM_SCATTER;
    case RR_ALLTOALL:
        return RR_ALGO_SHM_ALLTOALL;
    default:
        return RR_ALGO_SHM_BARRIER;
    }
}

static enum rr_algo linked_by_size(const ringred_comm *c, const struct rr_call *call, size_t bytes)
{
    bool hosts = goes_by_hosts(c, call);
    bool bruck = c->ranks > BRUCK_RANKS && bytes <= BRUCK_MOST;
    bool small = c->ranks == 2 || bytes <= LINK_REDUCE_MOST;

    switch (call->what) {
    case RR_BROADCAST:
        if (hosts)
            return RR_ALGO_HIER_BROADCAST;
        return c->ranks == 2 || bytes <= BINOMIAL_MOST ? RR_ALGO_BINOMIAL : RR_ALGO_BROADCAST_TWOSHOT;
    case RR_REDUCE:
        return hosts ? RR_ALGO_HIER_REDUCE : small ? RR_ALGO_REDUCE : RR_ALGO_REDUCE_TWOSHOT;
    case RR_ALLGATHER:
        if (hosts)
            return RR_ALGO_HIER_ALLGATHER;
        if (c->family->crowded_any && !c->family->wired && c->ranks > 2 && c->ranks <= 8 && bytes <= CROWDED_BRUCK_MOST)
            return bytes <= CROWDED_STAR_MOST ? RR_ALGO_STAR_ALLGATHER : RR_ALGO_BRUCK_ALLGATHER;
        return bruck ? RR_ALGO_BRUCK_ALLGATHER : RR_ALGO_ALLGATHER;
    case RR_GATHER:
        return RR_ALGO_GATHER;
    case RR_REDUCE_SCATTER:
        return hosts ? RR_ALGO_HIER_REDUCE_SCATTER : RR_ALGO_REDUCE_SCATTER;
    case RR_SCATTER:
        return RR_ALGO_SCATTER;
    case RR_ALLTOALL:
        return bruck ? RR_ALGO_BRUCK_ALLTOALL : RR_ALGO_ALLTOALL;
    default:
        return hosts ? RR_ALGO_HIER_BARRIER : RR_ALGO_DISSEMINATION;
    }
}

enum rr_algo rr_choose_algo(const ringred_comm *c, const struct rr_call *call)
{
    size_t bytes = call->count * rr_call_element_bytes(call);
    int wish = c->wish[call->what];

    if (call->ragged) /* plans that neither cut parts nor put several into one message */
        return wish == RR_ALGO_RING_ALLGATHER ? RR_ALGO_RING_ALLGATHER
               : c->all_local                 ? shared_by_size(call->what, bytes)
                                              : linked_by_size(c, call, SIZE_MAX);
    if (wish >= 0 && rr_takes_partial_sums(c, call, (enum rr_algo)wish))
        return (enum rr_algo)wish;
    if (call->what == RR_ALLREDUCE)
        return allreduce_by_size(c, call, bytes);
    if (c->ranks == 1 && call->what <= RR_BARRIER)
        return RR_ALGO_COPY;
    return c->all_local ? shared_by_size(call->what, bytes) : linked_by_size(c, call, bytes);
}

/* ---- the setting algorithm: names with commas; a lane, a row of the table, or one of these ---- */

static const struct wish {
    const char *name;
    enum rr_algo shared, linked;
} wishes[] = {
    { "oneshot", RR_ALGO_SHM_ONESHOT, RR_ALGO_ONESHOT },
    { "twoshot", RR_ALGO_SHM_TWOSHOT, RR_ALGO_TWOSHOT },
};

#define NAME_BYTES 32

/* Takes the next name off a list; false: the list has ended. */
static bool next_name(const char **list, char *name)
{
    size_t n = strcspn(*list, ",");

    if (!**list)
        return false;
    memcpy(name, *list, n < NAME_BYTES ? n : NAME_BYTES - 1);
    name[n < NAME_BYTES ? n : NAME_BYTES - 1] = 0;
    *list += n + ((*list)[n] == ',');
    return true;
}

static bool is_lane(const char *name)
{
    return strcmp(name, "auto") == 0 || strcmp(name, "tiny") == 0 || strcmp(name, "last") == 0;
}

static int algo_of_name(const char *name, bool shared)
{
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        if (strcmp(name, wishes[i].name) == 0)
            return (int)(shared ? wishes[i].shared : wishes[i].linked);
    for (int algo = 0; algo < RR_ALGOS; algo++)
        if (strcmp(name, rr_algo_table[algo].name) == 0)
            return algo;
    return -1;
}

int rr_choose_check(const struct rr_settings *settings, ringred_error *why)
{
    const char *list = rr_setting_text(settings, RR_SET_ALGORITHM);
    char name[NAME_BYTES];

    while (next_name(&list, name))
        if (!is_lane(name) && algo_of_name(name, false) < 0)
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "algorithm: there is no \"%s\"; ringred-info --algorithms lists them", name);
    return 0;
}

static bool is_wished(const struct rr_settings *settings, const char *wish)
{
    const char *list = rr_setting_text(settings, RR_SET_ALGORITHM);
    char name[NAME_BYTES];

    while (next_name(&list, name))
        if (strcmp(name, wish) == 0)
            return true;
    return false;
}

static void choose_plans(ringred_comm *c)
{
    const char *list = rr_setting_text(&c->family->settings, RR_SET_ALGORITHM);
    bool fast = strcmp(rr_setting_text(&c->family->settings, RR_SET_NUMERICS), "fast") == 0;
    char name[NAME_BYTES];

    for (int what = 0; what < RR_COLLECTIVES; what++)
        c->wish[what] = -1;
    while (next_name(&list, name)) {
        int algo = algo_of_name(name, c->all_local);
        if (algo < 0 || !rr_plan_usable(c, (enum rr_algo)algo) || (!fast && !rr_algo_table[algo].tree))
            continue;
        enum rr_collective what = rr_algo_table[algo].what;
        if ((what == RR_ALLREDUCE || what == RR_BARRIER) && !rr_algo_is_possible(c, (enum rr_algo)algo))
            continue;
        if (c->ranks > 1 || algo == RR_ALGO_COPY) /* one rank has one way */
            c->wish[what] = algo;
    }
}

const char *rr_choose_tree(const ringred_comm *c, const struct rr_call *call)
{
    enum rr_algo algo = rr_choose_algo(c, call);

    if (rr_team_takes(c, call))
        return c->family->team->order == RINGRED_ORDER_TREE ? "canonical" : "any";
    if (!rr_algo_table[algo].tree)
        return "any";
    return rr_algo_spans_hosts(algo) && !c->even ? "layout" : "canonical";
}

/* Of the largest host; how many ranks the smallest has. */
static size_t least_stage(const ringred_comm *c, int *least)
{
    int most = 0;

    *least = c->ranks;

    for (int host = 0; host < c->layout.hosts; host++) {
        int locals = 0;
        for (int r = 0; r < c->ranks; r++)
            locals += c->layout.host[r] == host;
        most = locals > most ? locals : most;
        *least = locals < *least ? locals : *least;
    }
    return rr_stage_bytes((size_t)rr_setting(&c->family->settings, RR_SET_STAGE), most);
}

void rr_choose_init(ringred_comm *c)
{
    const struct rr_settings *s = &c->family->settings;
    bool lanes = c->all_local && c->ranks > 1 && c->ranks <= RR_LANE_RANKS;

    rr_free(c->last);
    c->last = NULL;
    if (c->family->tuning)
        c->last = rr_alloc(RR_COLLECTIVES, sizeof *c->last); /* no memory: it walks the table each time */
    c->portable = strcmp(rr_setting_text(s, RR_SET_NUMERICS), "portable") == 0;
    c->even = rr_layout_is_even(&c->layout);
    int least;
    c->least_stage = least_stage(c, &least);
    c->equal = least * c->layout.hosts == c->ranks;
    choose_plans(c);
    c->wished = is_wished(s, "tiny") || is_wished(s, "last") ? 1u << RR_ALLREDUCE : 0;
    for (int what = 0; what < RR_COLLECTIVES; what++)
        c->wished |= c->wish[what] >= 0 ? 1u << what : 0;
    bool chosen = c->wish[RR_ALLREDUCE] < 0 && !is_wished(s, "tiny") && !is_wished(s, "last");
    c->tiny_most = lanes && (chosen || is_wished(s, "tiny")) ? RR_LANE_BYTES : -1;
    c->last_most = -1;
    if (lanes && ((chosen && c->family->crowded_any) || is_wished(s, "last"))) {
        size_t most = c->engine.shared->stage_bytes / 4; /* a piece, and those before and after it */
        c->last_most = (int64_t)(chosen && most > LAST_MOST ? LAST_MOST : most);
    }
}

static size_t preferred_segment(const ringred_comm *c, const struct rr_plan *plan, size_t bytes)
{
    size_t wish = (size_t)rr_setting(&c->family->settings, RR_SET_SEGMENT), n = (size_t)c->ranks;

    if (wish)
        return wish < KI ? KI : wish;
    if (plan->shared)
        return SHM_SEGMENT;
    if (!plan->tree)
        return RING_BLOCK * n;
    bool crowded = c->family->crowded_any && !c->family->wired;
    size_t segment = crowded ? LINK_SEGMENT_CROWDED
                     : bytes <= LINK_MEDIUM_MOST ? LINK_SEGMENT_MEDIUM
                                                 : LINK_SEGMENT;
    size_t whole = crowded ? LINK_WHOLE_MOST_CROWDED : LINK_WHOLE_MOST;
    if (bytes <= whole)
        return whole;
    return segment < LINK_BLOCK_LEAST * n ? LINK_BLOCK_LEAST * n : segment;
}

/* The largest power-of-two part of the preferred segment that scratch and stage have room for. */
size_t rr_segment_of(const ringred_comm *c, const struct rr_plan *plan, size_t count, size_t element_bytes, size_t wish)
{
    size_t whole = count * element_bytes, bytes = wish ? wish : preferred_segment(c, plan, whole);
    size_t one = rr_round_up(element_bytes, 2 * RR_LINE);
    bytes = bytes > one ? bytes : one;
    size_t least = whole >> (RR_SEGMENT_BITS - 1); /* a counter has RR_SEGMENT_BITS for segments */

    if (plan->shared) {
        size_t stage = c->least_stage, most = stage / (2 * RR_PLAN_WINDOW + 2) / plan->stage_parts;
        if (least > most)
            return 0;
        bytes = bytes < most ? bytes : most;
        /* Each segment costs every rank a turn on the CPU. One segment of a quarter of the stage is safe:
         * beside it only the last pieces of the operation before can be in use, 4/10 of the stage. */
        size_t quarter = stage / 4 / plan->stage_parts;
        if (!wish && c->family->crowded_any && plan->windowed && whole <= quarter)
            bytes = quarter;
    }
    bytes = bytes > least ? bytes : least;
    size_t segment = bytes / (RR_LINE * 2) * (RR_LINE * 2) / element_bytes;
    size_t fewest = element_bytes <= 16 ? RR_LINE : 1; /* larger ones are the caller's */
    while (segment && rr_program_scratch(plan, count, element_bytes, segment) > c->engine.scratch_bytes &&
           segment > fewest)
        segment /= 2;
    bool fits = segment && rr_program_scratch(plan, count, element_bytes, segment) <= c->engine.scratch_bytes;
    return fits || element_bytes <= 16 ? segment : 0;
}

enum rr_lane rr_choose_lane(const ringred_comm *c, size_t bytes)
{
    if ((int64_t)bytes <= c->tiny_most)
        return RR_LANE_TINY;
    return (int64_t)bytes <= c->last_most ? RR_LANE_LAST : RR_LANE_NONE;
}

size_t rr_choose_segment(struct rr_choice *choice, const ringred_comm *c, const struct rr_call *call, size_t wish)
{
    size_t element_bytes = rr_call_element_bytes(call);

    if (call->ragged && !call->count) /* not from what one rank alone knows */
        return rr_segment_of(c, choice->plan, ((size_t)64 << 20) / element_bytes, element_bytes, wish);
    if (choice->count != call->count || choice->element_bytes != element_bytes || choice->wish != wish ||
        !choice->segment) {
        choice->count = call->count;
        choice->element_bytes = element_bytes;
        choice->wish = wish;
        choice->segment = rr_segment_of(c, choice->plan, call->count, element_bytes, wish);
    }
    return choice->segment;
}
