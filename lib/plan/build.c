/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a plan step by step. Algorithms call this; nothing here knows any algorithm. The first
 * failure sticks: later calls do nothing and return step 0, and rr_plan_finish passes it on. What a
 * step names is checked there too (sound.c). */
#include "plan/builder.h"

#include <string.h>

#define MOST_STEPS 0xffff
#define MOST_RANKS 0x7fff

void *rr_list_add(struct rr_list *l, size_t n)
{
    if (l->used + n > l->room) {
        size_t room = l->room * 2 > l->used + n ? l->room * 2 : l->used + n + 16;
        void *bigger = rr_alloc(room, l->item_bytes);
        if (!bigger)
            return NULL;
        if (l->used > 0)
            memcpy(bigger, l->at, l->used * l->item_bytes);
        rr_free(l->at);
        l->at = bigger;
        l->room = room;
    }

    void *first = (char *)l->at + l->used * l->item_bytes;
    l->used += n;
    return first;
}

struct rr_builder *rr_builder_new(int ranks, int me, const char *name)
{
    struct rr_builder *b = rr_alloc(1, sizeof *b);
    if (!b)
        return NULL;

    b->ranks = ranks;
    b->me = me;
    b->name = name;
    b->stage_parts = 1;
    b->steps.item_bytes = sizeof(struct rr_step);
    b->spans.item_bytes = sizeof(struct rr_span);
    b->waits.item_bytes = sizeof(struct rr_wait);
    b->peers.item_bytes = sizeof(int16_t);
    b->temps.item_bytes = sizeof(struct rr_temp);
    if (ranks < 1 || ranks > MOST_RANKS || me < 0 || me >= ranks)
        b->failed = RINGRED_EINVAL;
    return b;
}

void rr_builder_free(struct rr_builder *b)
{
    if (!b)
        return;
    rr_free(b->steps.at);
    rr_free(b->spans.at);
    rr_free(b->waits.at);
    rr_free(b->peers.at);
    rr_free(b->temps.at);
    rr_free(b);
}

static int fail(struct rr_builder *b, int code)
{
    if (b->failed == 0)
        b->failed = code;
    return 0;
}

void rr_builder_stage(struct rr_builder *b, int parts)
{
    if (parts < 1 || parts > UINT16_MAX)
        fail(b, RINGRED_EINVAL);
    b->stage_parts = (uint16_t)parts;
}

void rr_builder_shared(struct rr_builder *b)
{
    b->shared = true;
}

void rr_builder_windowed(struct rr_builder *b)
{
    b->windowed = true;
}

/* ---- spans ---- */

struct rr_span rr_span_whole(enum rr_place place, int rank)
{
    return (struct rr_span){
        .place = (uint8_t)place, .rank = (int16_t)rank, .parts = 1, .of = { 1, 1, 1 }
    };
}

/* A cut that is wrong, or too deep, gives a span without a place, which no plan may have. */
struct rr_span rr_span_block(struct rr_span s, int at, int of)
{
    int level = 0;

    if (of == 1 && at == 0)
        return s;
    while (level < RR_LEVELS && s.of[level] != 1)
        level++;
    if (level == RR_LEVELS || of < 1 || of > UINT16_MAX || at < 0 || at >= of) {
        s.place = 0;
        return s;
    }

    s.at[level] = (uint16_t)at;
    s.of[level] = (uint16_t)of;
    return s;
}

struct rr_span rr_span_parts(struct rr_span s, int part, int parts)
{
    if (part < 0 || parts < 1 || part + parts > UINT16_MAX)
        s.place = 0;
    s.part = (uint16_t)part;
    s.parts = (uint16_t)parts;
    return s;
}

/* Keeps `n` spans; the index of the first. */
static uint32_t add_spans(struct rr_builder *b, const struct rr_span *spans, int n)
{
    uint32_t first = (uint32_t)b->spans.used;
    struct rr_span *to = rr_list_add(&b->spans, (size_t)n);
    if (!to) {
        fail(b, RINGRED_ENOMEM);
        return 0;
    }
    memcpy(to, spans, (size_t)n * sizeof *spans);
    return first;
}

int rr_builder_temp(struct rr_builder *b, struct rr_span shape)
{
    if (!b || b->failed)
        return 0;
    if (shape.place == 0 || b->temps.used >= INT16_MAX)
        return fail(b, RINGRED_EINVAL);

    struct rr_temp *t = rr_list_add(&b->temps, 1);
    if (!t)
        return fail(b, RINGRED_ENOMEM);
    memcpy(t->of, shape.of, sizeof t->of);
    t->parts = shape.parts;
    return (int)b->temps.used - 1;
}

/* ---- steps ---- */

static int add_step(struct rr_builder *b, struct rr_step step)
{
    if (b->failed)
        return 0;
    if (b->steps.used >= MOST_STEPS)
        return fail(b, RINGRED_EINVAL);

    struct rr_step *s = rr_list_add(&b->steps, 1);
    if (!s)
        return fail(b, RINGRED_ENOMEM);
    *s = step;
    return (int)b->steps.used - 1;
}

static int add_message(struct rr_builder *b, enum rr_step_kind kind, int peer, int slot,
                       struct rr_span span)
{
    struct rr_step step = { .kind = (uint8_t)kind, .peer = (int16_t)peer, .slot = (uint16_t)slot };

    if (b->failed)
        return 0;
    if (peer < 0 || peer >= b->ranks || peer == b->me || slot < 0 || slot > UINT16_MAX)
        return fail(b, RINGRED_EINVAL);
    if (kind == RR_STEP_SEND) {
        step.sources = 1;
        step.source = add_spans(b, &span, 1);
    } else {
        step.destinations = 1;
        step.destination = add_spans(b, &span, 1);
    }
    return add_step(b, step);
}

int rr_add_send(struct rr_builder *b, int peer, int slot, struct rr_span from)
{
    return add_message(b, RR_STEP_SEND, peer, slot, from);
}

int rr_add_recv(struct rr_builder *b, int peer, int slot, struct rr_span to)
{
    return add_message(b, RR_STEP_RECV, peer, slot, to);
}

int rr_add_reduce(struct rr_builder *b, const struct rr_span *sources, int n,
                  const struct rr_span *destinations, int d, unsigned flags)
{
    struct rr_step step = { .kind = RR_STEP_REDUCE, .flags = (uint8_t)flags };

    if (b->failed)
        return 0;
    if (n < 1 || n > UINT16_MAX || d < 1 || d > UINT16_MAX)
        return fail(b, RINGRED_EINVAL);
    step.sources = (uint16_t)n;
    step.source = add_spans(b, sources, n);
    step.destinations = (uint16_t)d;
    step.destination = add_spans(b, destinations, d);
    return add_step(b, step);
}

int rr_add_copy(struct rr_builder *b, struct rr_span from, const struct rr_span *destinations,
                int d, unsigned flags)
{
    int step = rr_add_reduce(b, &from, 1, destinations, d, flags);

    if (!b->failed)
        ((struct rr_step *)b->steps.at)[step].kind = RR_STEP_COPY;
    return step;
}

int rr_add_signal(struct rr_builder *b, enum rr_counter counter)
{
    return add_step(b, (struct rr_step){ .kind = RR_STEP_SIGNAL, .counter = (uint8_t)counter });
}

int rr_add_await(struct rr_builder *b, enum rr_counter counter, const int16_t *peers, int n)
{
    struct rr_step step = { .kind = RR_STEP_AWAIT, .counter = (uint8_t)counter };

    if (b->failed)
        return 0;
    if (n < 0 || n > UINT16_MAX)
        return fail(b, RINGRED_EINVAL);
    step.peers = (uint16_t)n;
    step.peer0 = (uint32_t)b->peers.used;
    int16_t *to = rr_list_add(&b->peers, (size_t)n);
    if (!to)
        return fail(b, RINGRED_ENOMEM);
    if (n > 0)
        memcpy(to, peers, (size_t)n * sizeof *peers);
    return add_step(b, step);
}

int rr_add_farewell(struct rr_builder *b, const int16_t *peers, int n)
{
    int step = rr_add_await(b, RR_LEFT, peers, n);

    if (!b->failed)
        ((struct rr_step *)b->steps.at)[step].flags = RR_WINDOW_IN;
    return step;
}

/* ---- order ---- */

void rr_after(struct rr_builder *b, int step, int on, int back)
{
    if (b->failed)
        return;
    if (step < 0 || (size_t)step >= b->steps.used || on < 0 || (size_t)on >= b->steps.used ||
        back < INT16_MIN || back > INT16_MAX) {
        fail(b, RINGRED_EINVAL);
        return;
    }

    struct rr_wait *w = rr_list_add(&b->waits, 1);
    if (!w) {
        fail(b, RINGRED_ENOMEM);
        return;
    }
    w->step = (uint32_t)step;
    w->dep = (struct rr_dep){ .step = (uint16_t)on, .back = (int16_t)back };
}

void rr_lag(struct rr_builder *b, int step, int lag)
{
    if (b->failed)
        return;
    if (step < 0 || (size_t)step >= b->steps.used || lag < 0 || lag > UINT8_MAX) {
        fail(b, RINGRED_EINVAL);
        return;
    }
    ((struct rr_step *)b->steps.at)[step].lag = (uint8_t)lag;
}
