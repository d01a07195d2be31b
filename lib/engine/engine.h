/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the engine room: runs plans.
 *
 * A PROGRAM is a plan with the ranges of its blocks worked out for the count it ran last. A RUN is one
 * operation: a program bound to buffers. Runs come from a pool of the communicator; nothing here
 * allocates. One run of a communicator is active at a time, in the order of their starts. */
#ifndef RR_ENGINE_H
#define RR_ENGINE_H

#include "base/base.h"
#include "plan/plan.h"
#include "reduce/reduce.h"
#include "transport/transport.h"

/* A block's place within a segment, in bytes. */
struct rr_extent {
    size_t at, bytes;
};
enum rr_cut { RR_CUT_FULL, RR_CUT_LAST, RR_CUT_WHOLE, RR_CUTS }; /* a full segment, the last, the vector as one */

struct rr_program {
    const struct rr_plan *plan;
    size_t count, element_bytes, segment;  /* what the extents were worked out for */
    struct rr_extent *extent[RR_CUTS];     /* [spans] each */
    size_t *temp_at, *temp_bytes;          /* [temps]: where the first slot begins, bytes of one slot */
    size_t slots;                          /* of each temp: as many as segments are in flight */
};

struct rr_run;
struct rr_trace;

struct rr_engine {
    int rank, ranks;
    const int16_t *member;                 /* [ranks] what links, heaps and errors call these ranks; NULL: the same */
    /* Runs one instance of a step: rr_step_run, or a decorator of it. 0: ended. PENDING. < 0: failed. */
    int (*step)(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment, ringred_error *why);
    struct rr_shared *shared;              /* NULL: no rank shares memory with this one */
    struct rr_transport *links;            /* NULL: no links */
    struct rr_channel *channel;            /* of links; NULL: the first */
    struct rr_crew *crew;                  /* a stranger's team; NULL: none */
    char *scratch;                         /* temps */
    size_t scratch_bytes;
    size_t stage_at;                       /* where the next piece of the stage goes; the same on all ranks */
    /* the same on all ranks of the host: operations of the last-arriver lane so far, of shared memory */
    uint64_t last_runs, shared_runs;
    struct rr_trace *trace;                /* NULL: none */
    uint64_t bytes_sent;                   /* by links, for tests and describe */
    /* what the active run works with, made for the largest plan */
    uint32_t *done;                        /* [steps of the plan]: segments that a step has finished */
    struct rr_bases {                      /* where a rank's vectors are */
        char *in, *out;
        uint8_t in_window, out_window;
    } *bases;                              /* [ranks] */
    struct rr_move *send, *recv;           /* [ranks]; in flight if .ask is set */
    uint32_t polls;                        /* looks at a counter before an await gives up for now */
};

struct rr_run {
    struct rr_program *program;
    size_t segment;                        /* elements, for rr_program_fit */
    struct rr_ask ask;
    const char *in;
    char *out;
    const struct rr_pieces *in_pieces, *out_pieces; /* where they lie, instead of in and out; NULL: there */
    size_t count, segments;                /* elements of the vector; at least one segment */
    size_t element_bytes;
    enum rr_lane {
        RR_LANE_NONE, RR_LANE_TINY, RR_LANE_LAST, /* the two instead of a program */
        RR_LANE_TEAM                       /* a choice only: the run is a barrier and `team` */
    } lane;
    int algo;                              /* what the caller calls the program, if there is no lane */
    int type, op;
    bool in_place;
    struct rr_ragged {                     /* parts of unequal length; counted in elements */
        const size_t *in_count, *in_at;    /* [ranks] parts of the input; NULL: it has one */
        const size_t *out_count, *out_at;
        size_t own_in, own_out;            /* of a vector of one part */
    } *ragged;                             /* NULL: all parts have `count` */
    bool meeting;                          /* ragged, in shared memory: the ranks agree on `count` first */
    bool means;                            /* an average of a narrow type: see RR_PARTIAL */
    uint32_t divisor;                      /* of an average, else 1 */
    double scale;                          /* of the whole sum, after that; 0: none */
    rr_reduce_fn reduce;
    const struct rr_user_op *user;         /* an operator of the caller's; NULL: none */
    uint64_t base;                         /* the counters' value before the first segment */
    uint32_t turn;                         /* which of the pages' two lines for arrivals is this run's */
    uint32_t hash;
    size_t segment_bytes, part_bytes;      /* of one part: a segment, the whole */
    size_t stage_part_bytes;               /* of a segment of one part in a stage */
    size_t pieces, first_piece, piece_bytes; /* where the segments lie in the stages: number of the
                                              * first piece, or with one segment its offset */
    bool in_window, out_window, all_out_windows, all_in_windows;
    bool whole;                            /* all ranks have windows: the vector is one segment */
    bool team;                             /* the program is a barrier; then the engine's crew does `call` */
    bool handed;                           /* that was started */
    ringred_team_call call;
    bool straight;                         /* program order is enough: one segment, no links */
    bool ended;                            /* last-arriver lane: this rank did the work */
    uint32_t first;                        /* steps before it have ended */
    uint32_t awaited;                      /* straight: peers of the step `first` seen already */
    uint32_t *done;                        /* these four are the engine's, lent to the active run */
    struct rr_bases *bases;
    struct rr_move *send, *recv;
};

/* Works out the extents for a count unless they already are. ELIMIT if scratch is too small. */
int rr_program_fit(struct rr_engine *e, struct rr_program *p, size_t count, size_t element_bytes,
                   size_t segment);
size_t rr_program_scratch(const struct rr_plan *plan, size_t count, size_t element_bytes, size_t segment);

/* Binds the run (program, ask, in, out, count, type, divisor, reduce are set) and makes it ready to advance. */
void rr_run_begin(struct rr_engine *e, struct rr_run *r);

/* Before a ragged run in shared memory: tells the mates my longest part, learns theirs, and compares what
 * each has for the other (ragged.c). Ends with `count` the longest of all. */
void rr_ragged_begin(struct rr_engine *e, struct rr_run *r);
int rr_ragged_meet(struct rr_engine *e, struct rr_run *r, ringred_error *why);
size_t rr_ragged_most(const struct rr_ragged *g, int ranks); /* my longest part */

/* Short lanes instead of a program (lane.c, last.c), where all ranks share memory. */
#define RR_LANE_BYTES 2048 /* tiny: at most */
#define RR_LANE_RANKS 64   /* both */
void rr_lane_begin(struct rr_engine *e, struct rr_run *r);
int rr_lane_advance(struct rr_engine *e, struct rr_run *r, ringred_error *why);
int rr_last_begin(struct rr_engine *e, struct rr_run *r, ringred_error *why);
int rr_last_advance(struct rr_engine *e, struct rr_run *r, ringred_error *why);

/* The barrier of a run that a team does has ended: all ranks ask for the same (team.c). */
int rr_run_hand_over(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why);

/* Does what can be done now. 0: ended. PENDING. < 0: failed. *moved tells whether anything happened. */
int rr_run_advance(struct rr_engine *e, struct rr_run *r, bool *moved, ringred_error *why);

int rr_step_run(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment, ringred_error *why);

/* A Chrome trace of everything, if path is not "" (trace.c); %r in it is the rank. log outlives it. */
int rr_trace_open(struct rr_engine *e, const char *path, uint32_t most_steps, const struct rr_log *log, ringred_error *why);
void rr_trace_begin(struct rr_engine *e);                     /* an operation */
void rr_trace_end(struct rr_engine *e, const struct rr_run *r);
void rr_trace_close(struct rr_engine *e);

/* A rank as links, heaps and errors call it: its number in the job. */
static inline int rr_engine_member(const struct rr_engine *e, int rank)
{
    return RR_LIKELY(!e->member) ? rank : e->member[rank];
}

/* A rank that the run still needs something from, of those gone in the way that it is needed (among:
 * RR_GONE_ bits; NULL: of all); -1: none. */
int rr_run_waits_for(const struct rr_engine *e, const struct rr_run *r, const uint8_t *among);
/* Sets lacks[peer] for every peer that a step waits for which could run otherwise. */
void rr_run_lacks(const struct rr_engine *e, const struct rr_run *r, uint8_t *lacks);
bool rr_run_has_arrived(const struct rr_engine *e, const struct rr_run *r, int peer); /* one of this host */

#endif
