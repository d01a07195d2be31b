/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators other than the first have no segment of their own: their pages and stages lie in the heaps of
 * their ranks, which all mates have mapped, and names between ranks are offsets. So making one costs no
 * descriptor, no mapping and little memory.
 *  - A PAGE is a slot of a heap chunk. It belongs to one communicator until all its ranks here have left that, and
 *    then to another; chunks are kept. A mate that looks at a page which has gone to another communicator meanwhile
 *    finds a higher generation: its own one is over.
 *  - A STAGE is held by a communicator that has something to do, and left with it until another one wants it and
 *    all mates have ended what they might read it for. So there are as many as communicators were ever at work at
 *    the same time, not as many as there are communicators. */
#include "transport/shared.h"

#include <string.h>

struct rr_slot {
    struct rr_slot *next;
    struct rr_page *page;       /* with a team behind it */
    size_t bytes;
    bool taken, begins;         /* begins: the chunk is at page, too */
};

struct rr_stage {
    struct rr_stage *next;
    char *memory;
    size_t bytes;
    struct rr_shared *holder;   /* NULL: nobody */
};

struct rr_borrowed {
    struct rr_shared base;      /* first: the engine's view */
    struct rr_slot *slot;
    int ranks;
    struct rr_mate mate[];      /* [ranks], then local[ranks] */
};

static struct rr_shm *shm_of(const struct rr_shared *s)
{
    return (struct rr_shm *)(s->home ? s->home : (struct rr_shared *)(uintptr_t)s);
}

static size_t slot_bytes(int ranks)
{
    return rr_page_bytes(ranks) + sizeof(struct rr_team);
}

/* ---- pages ---- */

/* A new chunk of the heap, cut into slots of one size. */
static int more_slots(struct rr_shm *m, size_t bytes, ringred_error *why)
{
    size_t chunk = rr_round_up(bytes, RR_HEAP_CHUNK), n = chunk / bytes;
    struct rr_slot *slot[RR_HEAP_CHUNK / sizeof(struct rr_page) + 1];
    void *memory;
    size_t made = 0;

    RR_TRY(rr_heap_alloc(&m->base, chunk, &memory, why));
    while (made < n && (slot[made] = rr_alloc(1, sizeof **slot)) != NULL)
        made++;
    if (made == 0) {
        (void)rr_heap_free(memory);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for another communicator");
    }
    for (size_t i = 0; i < made; i++) {
        *slot[i] = (struct rr_slot){ m->slots, (struct rr_page *)(void *)((char *)memory + i * bytes), bytes, false, i == 0 };
        m->slots = slot[i];
    }
    return 0;
}

static struct rr_slot *free_slot(struct rr_shm *m, size_t bytes)
{
    struct rr_slot *s = m->slots;

    while (s && (s->taken || s->bytes != bytes))
        s = s->next;
    return s;
}

/* ---- the end of one ---- */

bool rr_shared_is_over(const struct rr_shared *s)
{
    bool over = true;

    for (int i = 0; i < s->locals && over; i++) {
        const struct rr_mate *mate = &s->mate[s->local[i]];
        over = !mate->page || atomic_load_explicit(&mate->page->closed, memory_order_acquire) >= mate->generation;
    }
    return over;
}

void rr_shared_free(struct rr_shared *s)
{
    struct rr_borrowed *b = (struct rr_borrowed *)s;

    if (!s)
        return;
    for (struct rr_stage *at = shm_of(s)->stages; at; at = at->next)
        if (at->holder == s)
            at->holder = NULL;
    b->slot->taken = false;
    rr_free(b);
}

void rr_shared_return(struct rr_shared *s, uint64_t last)
{
    if (!s)
        return;
    struct rr_page *page = s->mate[s->me].page;
    s->busy = false;
    atomic_store(&page->ended, UINT64_MAX); /* reads nobody's stage */
    atomic_store(&page->left, last + 1);
    atomic_store_explicit(&page->closed, s->mate[s->me].generation, memory_order_release);
    s->ring(s);
}

/* ---- making one ---- */

static int touch(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    return s->home->touch(s->home, s->mate[peer].home, offset, bytes);
}

int rr_shared_borrow(struct rr_shared *home, int ranks, int me, const int16_t *member, size_t stage_bytes,
                     struct rr_shared **shared, uint64_t *offset, uint64_t *generation, ringred_error *why)
{
    struct rr_shm *m = (struct rr_shm *)home;
    size_t bytes = slot_bytes(ranks), n = (size_t)ranks;

    if (!home->windows)
        return rr_fail(why, RINGRED_ELIMIT, -1, 0,
                       "communicators that share memory lie in the heaps of their ranks, and there is no address "
                       "space for these (setting heap)");
    if (!free_slot(m, bytes))
        RR_TRY(more_slots(m, bytes, why));
    struct rr_borrowed *b = rr_alloc(1, sizeof *b + n * (sizeof *b->mate + sizeof *b->base.local));
    if (!b)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for another communicator");
    b->slot = free_slot(m, bytes);
    b->slot->taken = true;
    b->ranks = ranks;
    b->base = (struct rr_shared){ .host = home->host, .home = home, .mate = b->mate,
                                  .local = (int16_t *)(void *)(b->mate + n), .me = me,
                                  .stage_bytes = stage_bytes, .heap_bytes = home->heap_bytes,
                                  .fences = home->fences, .windows = home->windows, .publish = home->publish,
                                  .publish_context = home->publish_context, .ring = home->ring, .touch = touch };
    for (int r = 0; r < ranks; r++)
        if (home->mate[member[r]].page)
            b->base.local[b->base.locals++] = (int16_t)r;

    struct rr_page *page = b->slot->page;
    uint64_t closed = atomic_load(&page->closed);
    memset(page, 0, bytes);
    atomic_store(&page->closed, closed);
    b->mate[me] = (struct rr_mate){ .page = page, .heap = home->mate[home->me].heap, .home = home->me,
                                    .generation = closed + 1 };
    for (int r = 0; r < ranks; r++)
        b->mate[r].home = member[r];
    *offset = (uint64_t)((char *)page - home->mate[home->me].heap);
    *generation = closed + 1;
    *shared = &b->base;
    return 0;
}

int rr_shared_find(struct rr_shared *s, int rank, uint64_t offset, uint64_t generation, ringred_error *why)
{
    struct rr_borrowed *b = (struct rr_borrowed *)s;
    struct rr_mate *mate = &s->mate[rank];
    size_t bytes = slot_bytes(b->ranks);
    char *heap = s->home->mate[mate->home].heap;

    if (rank != s->me) {
        if (offset > s->heap_bytes || bytes > s->heap_bytes - offset)
            return rr_fail(why, RINGRED_EWIRE, mate->home, 0, "rank %d's page is not in its heap", mate->home);
        mate->heap = heap;
        mate->page = (struct rr_page *)(void *)(heap + offset);
        mate->generation = generation;
        RR_TRY(s->touch(s, rank, offset, bytes));
    }
    if (rank == s->local[0])
        s->team = (struct rr_team *)(void *)((char *)mate->page + rr_page_bytes(b->ranks));
    return 0;
}

/* ---- stages ---- */

/* Have all mates ended what this one has? Then nobody reads its stage. */
static bool is_unread(const struct rr_shared *s)
{
    uint64_t last = atomic_load(&s->mate[s->me].page->ended);
    bool unread = !s->busy;

    for (int i = 0; i < s->locals && unread; i++)
        unread = atomic_load_explicit(&s->mate[s->local[i]].page->ended, memory_order_acquire) >= last;
    return unread;
}

int rr_shared_hold(struct rr_shared *s, ringred_error *why)
{
    struct rr_shm *m = shm_of(s);
    struct rr_stage *found = NULL, *mine = NULL;
    void *memory;

    for (struct rr_stage *at = m->stages; at && !mine; at = at->next) {
        if (at->holder == s)
            mine = at;
        else if (at->bytes >= s->stage_bytes && (!at->holder || is_unread(at->holder)))
            found = at;
    }
    if (!mine && !found) {
        found = rr_alloc(1, sizeof *found);
        int rc = found ? rr_heap_alloc(&m->base, s->stage_bytes, &memory, why)
                       : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a stage");
        if (rc < 0) {
            rr_free(found);
            return rc;
        }
        *found = (struct rr_stage){ m->stages, memory, s->stage_bytes, NULL };
        m->stages = found;
    }
    if (!mine) {
        found->holder = s;
        s->mate[s->me].stage = found->memory;
    }
    s->busy = true;
    return 0;
}

void rr_shared_idle(struct rr_shared *s)
{
    s->busy = false;
}

void rr_borrow_close(struct rr_shm *m)
{
    while (m->stages) {
        struct rr_stage *s = m->stages;
        m->stages = s->next;
        rr_heap_leave(s->memory);
        rr_free(s);
    }
    while (m->slots) {
        struct rr_slot *s = m->slots;
        m->slots = s->next;
        if (s->begins)
            rr_heap_leave(s->page);
        rr_free(s);
    }
}
