/* SPDX-License-Identifier: Apache-2.0 */
/* Which plan a call runs. Everything here depends on what all ranks know: the call, the layout, the
 * agreed settings. The limits were measured (docs/ARCHITECTURE.md); they never change a result's bits,
 * since every candidate but the ring evaluates the same tree. */
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

static bool is_possible(const ringred_comm *c, enum rr_algo algo)
{
    return c->allreduce[algo].program.plan != NULL;
}

static enum rr_algo by_size(const ringred_comm *c, size_t bytes)
{
    int n = c->ranks;

    if (n == 1)
        return RR_ALGO_COPY;
    if (c->all_local)
        return bytes <= shm_oneshot_most(n) ? RR_ALGO_SHM_ONESHOT : RR_ALGO_SHM_TWOSHOT;
    if (is_possible(c, RR_ALGO_HIERARCHICAL))
        return RR_ALGO_HIERARCHICAL;
    if (c->crowded_any && n > 2 && n <= 8 && bytes <= star_most(n))
        return RR_ALGO_STAR;
    if (bytes <= link_oneshot_most(n))
        return RR_ALGO_ONESHOT;
    if (n > 8 && bytes <= DOUBLING_MOST)
        return RR_ALGO_DOUBLING;
    return RR_ALGO_TWOSHOT;
}

static const struct wish {
    const char *name;
    enum rr_algo shared, linked;
} wishes[] = {
    { "oneshot", RR_ALGO_SHM_ONESHOT, RR_ALGO_ONESHOT },
    { "twoshot", RR_ALGO_SHM_TWOSHOT, RR_ALGO_TWOSHOT },
    { "star", RR_ALGO_STAR, RR_ALGO_STAR },
    { "ring", RR_ALGO_RING, RR_ALGO_RING },
    { "doubling", RR_ALGO_DOUBLING, RR_ALGO_DOUBLING },
    { "hierarchical", RR_ALGO_HIERARCHICAL, RR_ALGO_HIERARCHICAL },
};

void rr_choose_init(ringred_comm *c)
{
    const char *wish = rr_setting_text(&c->settings, RR_SET_ALGORITHM);
    bool fast = strcmp(rr_setting_text(&c->settings, RR_SET_NUMERICS), "fast") == 0;

    bool lanes = c->all_local && c->ranks > 1 && c->ranks <= RR_LANE_RANKS;
    bool chosen = strcmp(wish, "auto") == 0;

    c->tiny_most = lanes && (chosen || strcmp(wish, "tiny") == 0) ? RR_LANE_BYTES : -1;
    c->last_most = -1;
    if (lanes && ((chosen && c->crowded_any) || strcmp(wish, "last") == 0)) {
        size_t most = c->engine.shared->stage_bytes / 4; /* a piece, and those before and after it */
        c->last_most = (int64_t)(chosen && most > LAST_MOST ? LAST_MOST : most);
    }
    c->wish = -1;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        enum rr_algo algo = c->all_local ? wishes[i].shared : wishes[i].linked;
        if (strcmp(wish, wishes[i].name) == 0 && is_possible(c, algo) &&
            (fast || rr_algo_table[algo].tree))
            c->wish = (int)algo;
    }
}

static size_t preferred_segment(const ringred_comm *c, const struct rr_plan *plan, size_t bytes)
{
    size_t wish = (size_t)rr_setting(&c->settings, RR_SET_SEGMENT), n = (size_t)c->ranks;

    if (wish)
        return wish < KI ? KI : wish;
    if (plan->shared)
        return SHM_SEGMENT;
    if (plan == c->allreduce[RR_ALGO_RING].program.plan)
        return RING_BLOCK * n;
    size_t segment = c->crowded_any ? LINK_SEGMENT_CROWDED
                     : bytes <= LINK_MEDIUM_MOST ? LINK_SEGMENT_MEDIUM
                                                 : LINK_SEGMENT;
    size_t whole = c->crowded_any ? LINK_WHOLE_MOST_CROWDED : LINK_WHOLE_MOST;
    if (bytes <= whole)
        return whole;
    return segment < LINK_BLOCK_LEAST * n ? LINK_BLOCK_LEAST * n : segment;
}

/* The largest power-of-two part of the preferred segment that scratch and stage have room for. */
static size_t fitted_segment(const ringred_comm *c, const struct rr_plan *plan, size_t count,
                             size_t element_bytes)
{
    size_t whole = count * element_bytes, bytes = preferred_segment(c, plan, whole);

    if (plan->shared) {
        size_t stage = c->engine.shared->stage_bytes, most = stage / (2 * RR_PLAN_WINDOW + 2);
        bytes = bytes < most ? bytes : most;
        /* Each segment costs every rank a turn on the CPU. One segment of a quarter of the stage is safe:
         * beside it only the last pieces of the operation before can be in use, 4/10 of the stage. */
        if (c->crowded_any && plan->windowed && whole <= stage / 4)
            bytes = stage / 4;
    }
    /* a counter has RR_SEGMENT_BITS for segments; a vector that large has a large segment to spare */
    size_t least = whole >> (RR_SEGMENT_BITS - 1);
    bytes = bytes > least ? bytes : least;
    size_t segment = bytes / (RR_LINE * 2) * (RR_LINE * 2) / element_bytes;
    while (rr_program_scratch(plan, count, element_bytes, segment) > c->engine.scratch_bytes &&
           segment > RR_LINE)
        segment /= 2;
    return segment;
}

enum rr_lane rr_choose_lane(const ringred_comm *c, size_t bytes)
{
    if ((int64_t)bytes <= c->tiny_most)
        return RR_LANE_TINY;
    return (int64_t)bytes <= c->last_most ? RR_LANE_LAST : RR_LANE_NONE;
}

static struct rr_choice *choice_of(ringred_comm *c, const struct rr_call *call, size_t element_bytes)
{
    if (call->what == RR_ALLREDUCE)
        return &c->allreduce[c->wish >= 0 ? (enum rr_algo)c->wish
                                          : by_size(c, call->count * element_bytes)];
    return call->what == RR_BROADCAST ? &c->broadcast[call->root] : &c->barrier;
}

static size_t element_bytes_of(const struct rr_call *call)
{
    return call->what == RR_BARRIER ? 1 : rr_type_bytes(call->type);
}

struct rr_choice *rr_choose(ringred_comm *c, const struct rr_call *call, size_t *segment)
{
    size_t element_bytes = element_bytes_of(call);
    struct rr_choice *choice = choice_of(c, call, element_bytes);

    if (choice->count != call->count || choice->element_bytes != element_bytes || !choice->segment) {
        choice->count = call->count;
        choice->element_bytes = element_bytes;
        choice->segment = fitted_segment(c, choice->program.plan, call->count, element_bytes);
    }
    *segment = choice->segment;
    return choice;
}

const struct rr_plan *rr_choice_of(ringred_comm *c, const struct rr_call *call, size_t *segment)
{
    const struct rr_plan *plan = choice_of(c, call, element_bytes_of(call))->program.plan;

    *segment = plan ? fitted_segment(c, plan, call->count, element_bytes_of(call)) : 0;
    return plan;
}
