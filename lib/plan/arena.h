/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is given back all at once; the provers need many small pieces of it. */
#ifndef RR_PLAN_ARENA_H
#define RR_PLAN_ARENA_H

#include "base/base.h"

struct rr_arena {
    struct rr_arena_chunk {
        struct rr_arena_chunk *next;
        size_t used, room;
    } * chunk;
    bool failed; /* no memory at least once */
};

/* Zeroed; NULL: no memory. Never NULL for 0 bytes. */
static inline void *rr_arena_take(struct rr_arena *a, size_t count, size_t bytes)
{
    size_t head = rr_round_up(sizeof(struct rr_arena_chunk), 16);
    size_t need = rr_round_up(count * bytes + 1, 16);
    struct rr_arena_chunk *c = a->chunk;

    if (!c || c->room - c->used < need) {
        size_t room = c && 2 * c->room < (1u << 20) ? 2 * c->room : c ? 1u << 20 : 1u << 14;
        if (room < need)
            room = need;
        c = rr_alloc(1, head + room);
        if (!c) {
            a->failed = true;
            return NULL;
        }
        c->room = room;
        c->next = a->chunk;
        a->chunk = c;
    }
    char *at = (char *)c + head + c->used;
    c->used += need;
    return at;
}

static inline void rr_arena_done(struct rr_arena *a)
{
    while (a->chunk) {
        struct rr_arena_chunk *next = a->chunk->next;
        rr_free(a->chunk);
        a->chunk = next;
    }
}

#endif
