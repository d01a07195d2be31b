/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the plan room: what a plan is, how one is built, printed and proved.
 *
 * A plan is one rank's program for one collective. It depends only on what all ranks know, makes no
 * system call and holds no address or count: those are bound when a call is issued, so one plan
 * serves every count of its shape.
 *
 * Words. A buffer holds one VECTOR of `count` elements, or one for each rank, its PARTS, one behind the
 * other (rr_shape_of says which). A vector is cut into SEGMENTS of equal size (the last may be
 * shorter; a vector of zero elements is one empty segment); all parts alike, so a segment is the
 * same range of every part. A segment is cut into
 * BLOCKS: block i of n covers [min(i*p, e), min((i+1)*p, e)) of its e elements, the last one to
 * e, where p = ceil(e/n) rounded up to whole 64-byte lines; blocks may be cut again (levels). A STEP
 * handles one segment after another, in order; INSTANCE (x, s) is step x working on segment s. An
 * instance may run when each of its dependencies (t, back) is met: step t has finished its
 * segments up to s - back, clamped to what exists. Nothing else orders steps.
 *
 * The same program runs on every segment; a step's `lag` says in which turn of the loop it takes a
 * segment: turn i runs (x, i - lag of x) for all x in program order. Messages between two ranks in
 * one direction travel in that order, so a receiver knows what comes next. rr_plan_finish adds the
 * dependencies that keep it.
 *
 * Places a span can name:
 *   IN(r)     rank r's input vector. r = me: the send buffer. Another rank of the same host: its
 *             window if it has one, else its stage, where its COPY step (flag PRIVATE_IN) has put it.
 *   OUT(r)    rank r's output vector. r = me: the receive buffer. Another rank: its window; as a
 *             destination it is skipped when that rank has no window.
 *   STAGE(r)  rank r's piece of shared memory for this segment, laid out like the segment of as many
 *             parts as are named of it.
 *             As a destination with flag PRIVATE_OUT it is skipped if every rank of the host has an
 *             output window.
 *   TEMP(k)   this rank's private memory: as many slots as `window`, used in turn by segments; the
 *             span's block starts at its beginning, a part behind the other.
 *   KEPT(k)   IN(me), or, if this rank is in place, TEMP(k), which a COPY with RR_IN_PLACE has
 *             filled: an input that is still to be read when the output is being written.
 * In place, IN(me) and OUT(me) are the same bytes; where only one of them has parts, the other is
 * its part `me`. A plan must be right both ways. */
#ifndef RR_PLAN_H
#define RR_PLAN_H

#include "base/base.h"

#define RR_LEVELS 3
#define RR_PLAN_WINDOW 4  /* segments in flight: slots of a TEMP, and half the pieces of a stage */

enum rr_place { RR_IN = 1, RR_OUT, RR_STAGE, RR_TEMP, RR_KEPT };

/* Block at[0] of of[0] of a segment of one part, of that block at[1] of of[1], ...; of = 1: not cut. */
struct rr_span {
    uint8_t place;
    int16_t rank;              /* whose; for RR_TEMP and RR_KEPT the index of the temp */
    uint16_t part, parts;      /* the first part; how many, more than one in a temp only */
    uint16_t at[RR_LEVELS], of[RR_LEVELS];
};

enum rr_step_kind {
    RR_STEP_SEND = 1,          /* one source span to `peer` */
    RR_STEP_RECV,              /* from `peer` into one destination span */
    RR_STEP_REDUCE,            /* fold of the sources, in their order, into the destinations */
    RR_STEP_COPY,              /* one source into the destinations */
    RR_STEP_SIGNAL,            /* my counter `counter` says: done up to this segment */
    RR_STEP_AWAIT,             /* until that counter of every rank in peers[] says so */
    RR_STEP_LAST
};

/* Flags: what one rank alone knows may switch a step or a destination off, never change who talks to whom. */
#define RR_PRIVATE_IN 1u       /* COPY: only if my input has no window */
#define RR_PRIVATE_OUT 2u      /* COPY: only if my output has no window; see STAGE above */
#define RR_DIVIDE 4u           /* REDUCE: this is the final sum; an average divides here. COPY: if it is of a
                                * reduction, a sum of one */
#define RR_IN_PLACE 8u         /* COPY: only if I am in place; fills what KEPT names */
#define RR_WINDOW_IN 32u       /* AWAIT: only if my input has a window, else nobody has read it there */
#define RR_PARTIAL 16u         /* REDUCE: the sum of a host, that goes on; an average of a narrow type is taken here
                                * over the host and at the end over hosts, so that nothing overflows */

/* Counters of one rank in shared memory. The first says "I am in this call, here are my windows". */
enum rr_counter { RR_ARRIVED, RR_READY, RR_REDUCED, RR_LEFT, RR_COUNTERS };

struct rr_dep {
    uint16_t step;
    int16_t back;
};

struct rr_step {
    uint8_t kind, flags, counter, lag;
    int16_t peer;              /* SEND, RECV */
    uint16_t slot;             /* SEND, RECV: names the message within a segment, equal at both ends */
    uint16_t sources, destinations, deps, peers; /* how many ... */
    uint32_t source, destination, dep, peer0;    /* ... from this index of the plan's arrays */
};

struct rr_temp {
    uint16_t of[RR_LEVELS];    /* a slot has room for the largest such block of a segment, ... */
    uint16_t parts;            /* ... so many times */
};

struct rr_plan {
    int ranks, me;
    const char *name;          /* static text: "direct two-shot" */
    uint32_t steps, spans, deps, peers, temps;
    struct rr_step *step;
    struct rr_span *span;
    struct rr_dep *dep;
    int16_t *peer;
    struct rr_temp *temp;
    uint8_t most_lag;
    uint16_t stage_parts;      /* parts of a segment that a piece of the stage has room for */
    bool shared;               /* some rank has SIGNAL or AWAIT steps: needs hosts' shared memory */
    bool linked;               /* has SEND or RECV steps */
    bool windowed;             /* if all ranks have windows, they may take the vector as one segment
                                * once they have met */
    bool tree;                 /* evaluates the canonical tree, over hosts that of the layout; ring does not */
};

/* ---- building: builders add steps; the first failure sticks and rr_plan_finish returns it ---- */
struct rr_builder;
struct rr_builder *rr_builder_new(int ranks, int me, const char *name); /* NULL: no memory */
struct rr_span rr_span_whole(enum rr_place place, int rank);
struct rr_span rr_span_block(struct rr_span s, int at, int of);        /* cuts one level deeper */
struct rr_span rr_span_parts(struct rr_span s, int part, int parts);
int rr_builder_temp(struct rr_builder *b, struct rr_span shape);       /* index of a temp as large as that block */

void rr_builder_stage(struct rr_builder *b, int parts);                /* 1 if not called; the same on all ranks */
void rr_builder_shared(struct rr_builder *b); /* other ranks' plans use shared memory: cut segments as they do */

/* All ranks may take the vector as one segment once they have met, if all have windows. Holds only where
 * nothing then goes through a stage or a link; all ranks' plans must say so alike. */
void rr_builder_windowed(struct rr_builder *b);

/* Each adds one step and returns its index. */
int rr_add_send(struct rr_builder *b, int peer, int slot, struct rr_span from);
int rr_add_recv(struct rr_builder *b, int peer, int slot, struct rr_span to);
int rr_add_reduce(struct rr_builder *b, const struct rr_span *sources, int n,
                  const struct rr_span *destinations, int d, unsigned flags);
int rr_add_copy(struct rr_builder *b, struct rr_span from, const struct rr_span *destinations, int d,
                unsigned flags);
int rr_add_signal(struct rr_builder *b, enum rr_counter counter);
int rr_add_await(struct rr_builder *b, enum rr_counter counter, const int16_t *peers, int n);
int rr_add_farewell(struct rr_builder *b, const int16_t *peers, int n); /* await LEFT with RR_WINDOW_IN */
void rr_after(struct rr_builder *b, int step, int on, int back);       /* step waits for (on, s - back) */
void rr_lag(struct rr_builder *b, int step, int lag);

/* Takes the builder; adds the dependencies of message order; checks that every dependency points back in
 * the order of turns, and without messages those with back <= 0 on earlier steps. EINVAL, ENOMEM. */
int rr_plan_finish(struct rr_builder *b, struct rr_plan **plan);
void rr_plan_free(struct rr_plan *plan);
size_t rr_plan_bytes(const struct rr_plan *plan);                      /* what it holds, for the cache's bound */
void rr_plan_print(const struct rr_plan *plan, struct rr_text *t);     /* for people; one line per step */

/* ---- counting: where a block of a segment begins and ends, in elements ---- */
struct rr_range {
    size_t lo, hi;
};
struct rr_range rr_block_range(struct rr_range segment, const struct rr_span *s, size_t element_bytes);
size_t rr_block_most(size_t elements, const uint16_t *of, size_t element_bytes); /* elements of the largest block */

/* ---- proving (check.c, symbolic.c): for tests and tools ----
 * A case is all ranks' plans of one collective, a count and the facts that ranks may know alone. */
enum rr_collective {
    RR_ALLREDUCE = 1, RR_BROADCAST, RR_BARRIER, RR_REDUCE, RR_ALLGATHER, RR_GATHER, RR_REDUCE_SCATTER,
    RR_SCATTER, RR_ALLTOALL, RR_COLLECTIVES
};

#define RR_RAGGED 0x80 /* added to a collective in what ranks tell each other: parts of unequal length */
#define RR_LISTED 0x40 /* likewise: many vectors; the count is their number and a hash of all that must be alike */

const char *rr_collective_name(enum rr_collective what); /* "reduce_scatter"; "?" */
static inline bool rr_is_rooted(enum rr_collective what)
{
    return what == RR_BROADCAST || what == RR_REDUCE || what == RR_GATHER || what == RR_SCATTER;
}
static inline bool rr_is_reduction(enum rr_collective what)
{
    return what == RR_ALLREDUCE || what == RR_REDUCE || what == RR_REDUCE_SCATTER;
}

/* Parts of a rank's input and output; 0: it has none. */
struct rr_shape {
    int in, out;
};
struct rr_shape rr_shape_of(enum rr_collective what, int ranks, int root, int rank);

struct rr_case {
    enum rr_collective what;
    int ranks, root;
    struct rr_plan *const *plan;   /* [ranks] */
    size_t count, segment, element_bytes;
    bool average;
    const int16_t *host;           /* NULL: sums have the canonical tree; else [ranks] hosts, numbered in order of
                                    * their lowest rank: the layout tree, each host's ranks first, then hosts */
    const uint8_t *in_place, *in_window, *out_window; /* [ranks] 0 or 1; NULL: 0 everywhere */
    int stage_pieces;              /* pieces that each rank's stage goes round; >= 2 * RR_PLAN_WINDOW */
    int channel;                   /* messages a link holds before the sender waits: 0, 1, -1 unbounded */
    uint64_t seed;                 /* 0: program order; else a random order of what may run */
};

/* Runs the case with expression trees for elements (equal elements are collapsed to one). 0, or
 * EINTERNAL with what went wrong: a deadlock, an unread or mismatched message, an element of an output
 * whose tree, division or value is not the collective's. */
int rr_plan_prove(const struct rr_case *c, ringred_error *why);

/* Static: any two instances that touch the same bytes of one memory, one of them writing, are ordered
 * by dependencies, messages and counters. Considers enough segments to go round every window twice. */
int rr_plan_hazards(const struct rr_case *c, ringred_error *why);

/* The same for given calls in turn on the same stages, each with its number of segments. */
int rr_plan_hazards_in_turn(const struct rr_case *const *c, const uint32_t *segments, int calls,
                            ringred_error *why);

#endif
