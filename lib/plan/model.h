/* SPDX-License-Identifier: Apache-2.0 */
/* A case made concrete, for the two provers: how long segments are, which memory a span means on
 * which rank, what is switched off. Inside the plan room only. */
#ifndef RR_PLAN_MODEL_H
#define RR_PLAN_MODEL_H

#include "plan/plan.h"

/* A span of a segment: elements, and the same in pieces. A segment is cut wherever any span of any
 * rank begins or ends; within a piece all elements fare alike, so one stands for all. */
struct rr_cut {
    size_t lo, hi;
    uint32_t first, pieces;
};

enum rr_memory { RR_NOWHERE, RR_VECTOR, RR_STAGES, RR_TEMPS };

/* The memory that a span names: whose, of its vectors (0: in, 1: out) or temps which, and the first part
 * of it. What lies in the same place has the same name: in place, the vector with fewer parts is called
 * by its part of the other. */
struct rr_where {
    enum rr_memory memory; /* RR_NOWHERE: switched off */
    int rank, index, part;
};

struct rr_model {
    const struct rr_case *c;
    size_t segments;    /* of the vector; the last may be shorter than the others */
    size_t elements[2]; /* of a segment: [0] any but the last, [1] the last */
    uint32_t pieces[2];
    size_t *span0; /* [ranks] where a rank's spans begin in cut[] */
    struct rr_cut *cut[2];
    int *host;     /* [ranks] the lowest rank that it shares memory with */
    bool *windows; /* [ranks] of a host: every rank there has an output window */
};

int rr_model_init(struct rr_model *m, const struct rr_case *c, ringred_error *why);
void rr_model_done(struct rr_model *m);

static inline const struct rr_cut *rr_model_cut(const struct rr_model *m, int rank, uint32_t span,
                                                size_t segment)
{
    return &m->cut[segment + 1 == m->segments][m->span0[rank] + span];
}

struct rr_where rr_model_vector(const struct rr_model *m, int rank, enum rr_place place, int part);
bool rr_model_step_is_off(const struct rr_model *m, int rank, const struct rr_step *x);
/* EINTERNAL: it means nothing (a vector that cannot be reached, an input that is written). */
int rr_model_where(const struct rr_model *m, int rank, const struct rr_step *x, uint32_t span,
                   bool write, struct rr_where *where, ringred_error *why);

static inline bool rr_fact(const uint8_t *fact, int rank)
{
    return fact && fact[rank];
}

const char *rr_step_name(int kind); /* "send" */

#endif
