/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of events: a binary heap. */
#include "sim/world.h"

#include <string.h>

static bool is_before(const struct rr_event *a, const struct rr_event *b)
{
    return a->at_ps < b->at_ps || (a->at_ps == b->at_ps && a->order < b->order);
}

static bool grow(struct rr_events *q)
{
    size_t room = q->room ? 2 * q->room : 1024;
    struct rr_event *heap = rr_alloc(room, sizeof *heap);

    if (!heap) {
        q->failed = true;
        return false;
    }
    if (q->used > 0)
        memcpy(heap, q->heap, q->used * sizeof *heap);
    rr_free(q->heap);
    q->heap = heap;
    q->room = room;
    return true;
}

void rr_events_add(struct rr_events *q, int64_t at_ps, enum rr_event_kind kind, struct rr_target who)
{
    struct rr_event e = { .at_ps = at_ps, .order = q->made++, .who = who, .kind = (uint8_t)kind };

    if (q->used == q->room && !grow(q))
        return;
    size_t i = q->used++;
    for (; i > 0 && is_before(&e, &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

struct rr_event rr_events_take(struct rr_events *q)
{
    struct rr_event first = q->heap[0], last = q->heap[--q->used];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= q->used)
            break;
        if (child + 1 < q->used && is_before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!is_before(&q->heap[child], &last))
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    q->heap[i] = last;
    return first;
}

void rr_events_done(struct rr_events *q)
{
    rr_free(q->heap);
    *q = (struct rr_events){ 0 };
}
