/* SPDX-License-Identifier: Apache-2.0 */
/* What build.c collects and finish.c turns into a plan. Inside the plan room only. */
#ifndef RR_PLAN_BUILDER_H
#define RR_PLAN_BUILDER_H

#include "plan/plan.h"

/* An array that grows. */
struct rr_list {
    void *at;
    size_t used, room, item_bytes;
};

/* A dependency as it was asked for: steps get theirs in any order, finish.c sorts them. */
struct rr_wait {
    uint32_t step;
    struct rr_dep dep;
};

struct rr_builder {
    int ranks, me;
    int failed; /* the first failure; everything after it is ignored */
    const char *name;
    uint16_t stage_parts;
    bool windowed, shared;
    struct rr_list steps, spans, waits, peers, temps;
};

/* `n` more items at the end, zeroed; NULL: no memory. */
void *rr_list_add(struct rr_list *l, size_t n);
void rr_builder_free(struct rr_builder *b);

static inline bool rr_step_is_message(const struct rr_step *s)
{
    return s->kind == RR_STEP_SEND || s->kind == RR_STEP_RECV;
}

/* 0 or EINVAL: indexes name something, dependencies point back (sound.c). */
int rr_plan_check(const struct rr_plan *p);

#endif
