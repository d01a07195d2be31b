/* SPDX-License-Identifier: Apache-2.0 */
/* What happens before what when calls run one after another: the static order that dependencies,
 * messages and counters give, whatever the timing. Inside the plan room and its tests. */
#ifndef RR_PLAN_GRAPH_H
#define RR_PLAN_GRAPH_H

#include "plan/arena.h"
#include "plan/model.h"

/* One of the calls. */
struct rr_call {
    const struct rr_model *m; /* its vector is one full segment, which stands for all */
    uint32_t segments;
    uint64_t first_segment; /* counted from the first call: says which piece of a stage is used */
    uint32_t *node0;        /* [ranks] */
    uint32_t **offset;      /* [ranks][steps] */
};

/* Nodes: the start and the end of each rank's part of each call; each instance (a send has two
 * nodes: its start, before which the message cannot leave, and its end, when its bytes are free
 * again; the message may arrive before that end). An edge goes from what comes first. */
struct rr_graph {
    struct rr_call *call;
    int calls;
    uint32_t nodes, edges, room;
    uint32_t (*edge)[2];        /* from, to; until the order is known */
    uint32_t *before0, *before; /* in topological order: the places of a node's predecessors */
    uint32_t *place;            /* of a node in topological order */
    struct rr_arena arena;
    ringred_error *why;
};

/* Calls one after another on the same ranks; call[].m and call[].segments are given. EINTERNAL: a
 * deadlock, or messages that do not match. */
int rr_graph_init(struct rr_graph *g, struct rr_call *call, int calls, ringred_error *why);
void rr_graph_done(struct rr_graph *g);

static inline uint32_t rr_graph_start(const struct rr_graph *g, int call, int rank)
{
    return g->call[call].node0[rank];
}
static inline uint32_t rr_graph_end(const struct rr_graph *g, int call, int rank)
{
    return g->call[call].node0[rank] + 1;
}
/* Where an instance begins and where it is done. */
uint32_t rr_graph_in(const struct rr_graph *g, int call, int rank, uint32_t step, uint32_t segment);
uint32_t rr_graph_out(const struct rr_graph *g, int call, int rank, uint32_t step,
                      uint32_t segment);
/* The step that raises a counter; -1: none. */
int64_t rr_graph_signal(const struct rr_plan *p, int counter);
/* "rank 2, call 1: step 3 (copy) of segment 5" */
void rr_graph_print_node(const struct rr_graph *g, uint32_t node, struct rr_text *text);

/* Questions: must `a` be done before `b` begins? Asked one by one, answered together. */
struct rr_question {
    uint32_t a_out, b_in; /* or, if either_way, b before a: */
    uint32_t b_out, a_in;
    bool either_way;
    const char *about; /* static text for the sentence */
};
struct rr_questions {
    struct rr_question *at;
    size_t used, room;
};
int rr_questions_add(struct rr_questions *q, struct rr_question one);
void rr_questions_done(struct rr_questions *q);
/* 0: all hold. EINTERNAL: one does not; *broken is its index. */
int rr_graph_answer(struct rr_graph *g, const struct rr_questions *q, size_t *broken);

#endif
