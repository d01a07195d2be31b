/* SPDX-License-Identifier: Apache-2.0 */
/* A stream between two ranks that share memory: a ring for each direction, in the heap of whoever writes it, made
 * when it first does. Where it is stands in the writer's page, so the reader finds it without being told. */
#include "transport/rings.h"
#include "transport/shared.h"

#include <pthread.h>
#include <string.h>

#define RING_BYTES ((size_t)256 << 10)

struct ring {
    _Alignas(2 * RR_LINE) _Atomic uint64_t written; /* the writer's; bytes ever */
    _Alignas(2 * RR_LINE) _Atomic uint64_t read;    /* the reader's */
    _Alignas(2 * RR_LINE) unsigned char bytes[];
};
#define ROOM (RING_BYTES - sizeof(struct ring))

struct rr_rings {
    struct rr_shared *shared;
    int peer;
    struct ring *_Atomic out;   /* NULL: not made yet; guarded by making, until it is */
    struct ring *in;
};

struct rr_rings *rr_rings_new(struct rr_shared *shared, int peer)
{
    struct rr_rings *r = rr_alloc(1, sizeof *r);

    if (r)
        *r = (struct rr_rings){ .shared = shared, .peer = peer };
    return r;
}

void rr_rings_free(struct rr_rings *r)
{
    if (r && r->out)
        rr_heap_leave(r->out); /* the peer may read what is in it yet */
    rr_free(r);
}

static _Atomic uint64_t *where(const struct rr_rings *r, int writer, int reader)
{
    return rr_page_rings(r->shared->mate[writer].page, ((const struct rr_shm *)r->shared)->ranks) + reader;
}

static int make(struct rr_rings *r, ringred_error *why)
{
    struct rr_shared *s = r->shared;
    void *memory;

    if (!s->windows)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "a rank has no address space for memory that ranks share (setting heap)");
    RR_TRY(rr_heap_alloc(s, RING_BYTES, &memory, why));
    memset(memory, 0, sizeof *r->out); /* what a heap gives out again has old bytes in it if it was left, not freed */
    r->out = memory;
    atomic_store_explicit(where(r, s->me, r->peer), (uint64_t)((char *)memory - s->mate[s->me].heap) + 1,
                          memory_order_release);
    return 0;
}

/* Whoever starts to send, and the owner of progress who answers, may both be the first. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

int rr_rings_prepare(struct rr_rings *r, ringred_error *why)
{
    if (RR_LIKELY(atomic_load_explicit(&r->out, memory_order_acquire) != NULL))
        return 0;
    pthread_mutex_lock(&making);
    int rc = atomic_load(&r->out) ? 0 : make(r, why);
    pthread_mutex_unlock(&making);
    return rc;
}

/* Copies into the ring at a place that goes round. */
static void put(struct ring *ring, uint64_t at, const unsigned char *from, size_t bytes)
{
    size_t begin = at % ROOM, first = bytes < ROOM - begin ? bytes : ROOM - begin;

    memcpy(ring->bytes + begin, from, first);
    memcpy(ring->bytes, from + first, bytes - first);
}

int64_t rr_rings_put(struct rr_rings *r, const ringred_span *part, int parts)
{
    ringred_error why;
    size_t sum = 0;

    if (rr_rings_prepare(r, &why) < 0) /* this is an answer; it has time until there is memory */
        return 0;
    struct ring *out = atomic_load_explicit(&r->out, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&out->written, memory_order_relaxed);
    size_t room = ROOM - (size_t)(at - atomic_load_explicit(&out->read, memory_order_acquire));
    for (int i = 0; i < parts && sum < room; i++) {
        size_t bytes = part[i].length < room - sum ? part[i].length : room - sum;
        if (bytes)
            put(out, at + sum, part[i].bytes, bytes);
        sum += bytes;
    }
    if (sum == 0)
        return 0;
    atomic_store_explicit(&out->written, at + sum, memory_order_release);
    rr_shared_published(r->shared);
    return (int64_t)sum;
}

static bool find(struct rr_rings *r)
{
    struct rr_shared *s = r->shared;
    uint64_t at = atomic_load_explicit(where(r, r->peer, s->me), memory_order_acquire);

    if (at == 0 || !s->mate[r->peer].heap || s->heap_bytes < RING_BYTES || at - 1 > s->heap_bytes - RING_BYTES ||
        (at - 1) % _Alignof(struct ring) != 0)
        return false;
    r->in = (struct ring *)(void *)(s->mate[r->peer].heap + at - 1);
    return s->touch(s, r->peer, at - 1, RING_BYTES) == 0;
}

/* From a place that goes round. */
static void get(const struct ring *ring, uint64_t at, unsigned char *to, size_t bytes)
{
    size_t begin = at % ROOM, first = bytes < ROOM - begin ? bytes : ROOM - begin;

    memcpy(to, ring->bytes + begin, first);
    memcpy(to + first, ring->bytes, bytes - first);
}

int64_t rr_rings_get(struct rr_rings *r, const ringred_span *part, int parts)
{
    size_t sum = 0;

    if (RR_UNLIKELY(!r->in) && !find(r))
        return 0;
    uint64_t at = atomic_load_explicit(&r->in->read, memory_order_relaxed);
    uint64_t there = atomic_load_explicit(&r->in->written, memory_order_acquire) - at;
    if (there > ROOM) /* more than there is room for: a mate that went mad; nothing more is read */
        return 0;
    for (int i = 0; i < parts && sum < there; i++) {
        size_t bytes = part[i].length < there - sum ? part[i].length : (size_t)there - sum;
        if (bytes)
            get(r->in, at + sum, part[i].bytes, bytes);
        sum += bytes;
    }
    if (sum == 0)
        return 0;
    atomic_store_explicit(&r->in->read, at + sum, memory_order_release);
    rr_shared_published(r->shared); /* the writer may sleep for room */
    return (int64_t)sum;
}
