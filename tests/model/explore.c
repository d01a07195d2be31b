/* SPDX-License-Identifier: Apache-2.0 */
/* See explore.h. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct key {
    uint64_t a, b;
};

struct seen {
    struct key *slot;           /* open addressing; 0, 0: empty */
    size_t size, used;          /* size: a power of two */
};

struct frame {
    int next;                   /* the move to try next */
    bool left;                  /* some move led to another state */
};

struct walk {
    const struct system *system;
    struct explored *result;
    struct seen seen;
    unsigned char *state;       /* [room] of system->bytes, a stack */
    struct frame *frame;
    size_t depth, room;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9fb21c651e98df25u;
    return h ^ (h >> 32);
}

static struct key key_of(const unsigned char *at, size_t bytes)
{
    struct key k = { 0x243f6a8885a308d3u, 0x13198a2e03707344u };
    uint64_t word[2];

    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(word, at, sizeof word);
        k.a = mix(k.a, word[0]);
        k.b = mix(k.b, word[1]);
    }
    memset(word, 0, sizeof word);
    memcpy(word, at, bytes);
    k.a = mix(k.a, word[0]);
    k.b = mix(k.b, word[1]) | 1; /* never 0 */
    return k;
}

static bool seen_put(struct seen *s, struct key k)
{
    size_t i = k.a & (s->size - 1);

    for (; s->slot[i].b; i = (i + 1) & (s->size - 1))
        if (s->slot[i].a == k.a && s->slot[i].b == k.b)
            return false;
    s->slot[i] = k;
    s->used++;
    return true;
}

static void seen_grow(struct seen *s)
{
    struct seen more = { NULL, s->size ? 2 * s->size : 1 << 12, 0 };

    more.slot = calloc(more.size, sizeof *more.slot);
    assert_non_null(more.slot);
    for (size_t i = 0; i < s->size; i++)
        if (s->slot[i].b)
            (void)seen_put(&more, s->slot[i]);
    free(s->slot);
    *s = more;
}

/* true: never been there. */
static bool is_new(struct walk *w, const unsigned char *state)
{
    if (2 * (w->seen.used + 1) > w->seen.size)
        seen_grow(&w->seen);
    return seen_put(&w->seen, key_of(state, w->system->bytes));
}

static unsigned char *state_at(struct walk *w, size_t depth)
{
    return w->state + depth * w->system->bytes;
}

/* Room for one state more than depth says: the one that a move is tried on. */
static void make_room(struct walk *w)
{
    if (w->depth + 2 <= w->room)
        return;
    w->room = 2 * w->room + 16;
    w->state = realloc(w->state, w->room * w->system->bytes);
    w->frame = realloc(w->frame, w->room * sizeof *w->frame);
    assert_true(w->state && w->frame);
}

static void add_path(struct walk *w)
{
    char *wrong = w->result->wrong;
    size_t used = strlen(wrong);

    used += (size_t)snprintf(wrong + used, EXPLORE_TEXT - used, " (%zu moves, the last:", w->depth);
    for (size_t i = w->depth > 60 ? w->depth - 60 : 0; i < w->depth && used + 8 < EXPLORE_TEXT; i++)
        used += (size_t)snprintf(wrong + used, EXPLORE_TEXT - used, " %d", w->frame[i].next - 1);
    if (used + 2 < EXPLORE_TEXT)
        strcpy(wrong + used, ")");
}

static void descend(struct walk *w)
{
    make_room(w);
    w->frame[w->depth++] = (struct frame){ 0, false };
    w->result->states++;
}

/* The state on top has no moves left to try. */
static void ascend(struct walk *w)
{
    w->depth--;
    if (w->frame[w->depth].left)
        return;
    w->result->ends++;
    if (!w->system->may_end(state_at(w, w->depth)))
        snprintf(w->result->wrong, EXPLORE_TEXT, "nobody can move, and not all have ended");
}

static void step(struct walk *w)
{
    struct frame *top = &w->frame[w->depth - 1];
    const unsigned char *from = state_at(w, w->depth - 1);
    unsigned char *to = state_at(w, w->depth);

    if (top->next == w->system->moves) {
        ascend(w);
        return;
    }
    memcpy(to, from, w->system->bytes);
    if (!w->system->move(to, top->next++, w->result->wrong))
        return;
    w->result->moves++;
    if (memcmp(to, from, w->system->bytes) == 0)
        return;
    top->left = true;
    if (is_new(w, to))
        descend(w);
}

void explore(const struct system *system, const void *initial, struct explored *result)
{
    struct walk w = { .system = system, .result = result };

    memset(result, 0, sizeof *result);
    make_room(&w);
    memcpy(w.state, initial, system->bytes);
    (void)is_new(&w, w.state);
    descend(&w);
    while (w.depth && !result->wrong[0])
        step(&w);
    if (result->wrong[0])
        add_path(&w);
    free(w.seen.slot);
    free(w.state);
    free(w.frame);
}
