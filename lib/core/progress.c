/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: whichever thread owns it advances the operation at the head of every communicator that has one, and the
 * messages between ranks. What only the owner may do is asked of it as an errand. */
#include "core/core.h"

#include <sched.h>
#include <unistd.h>

bool rr_family_own(struct rr_family *f)
{
    return atomic_exchange_explicit(&f->owned, 1, memory_order_acquire) == 0;
}

void rr_wake_waiters(struct rr_family *f)
{
    pthread_mutex_lock(&f->lock);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* The owner's: is anything left to be done? */
static bool is_busy(struct rr_family *f)
{
    if (atomic_load(&f->state) != RR_COMM_READY)
        return false;
    if (atomic_load(&f->comers) != 0)
        return true;
    for (ringred_comm *c = f->running; c; c = c->next)
        if (rr_at_head(c))
            return true;
    return f->talks != NULL;
}

/* `poked` says truly whether the thread has anything to do: whoever starts something sets it afterwards, and whoever
 * leaves takes it back and then looks. Whoever sees it once progress is free wakes the thread, which sets `asleep`
 * before it looks at both. */
static void release(struct rr_family *f)
{
    struct ringred_request *ended = f->ended;
    bool news = f->other_ended || !(f->listener.lies || f->threaded);

    f->ended = NULL;
    f->other_ended = false;
    if (RR_UNLIKELY(f->threaded)) {
        (void)atomic_exchange(&f->poked, 0);
        bool busy = is_busy(f);
        if (busy)
            atomic_store(&f->poked, 1);
        news = news || !busy;
    }
    atomic_exchange(&f->owned, 0); /* a full fence: a waiter counts itself, then looks at owned */
    if (RR_UNLIKELY(atomic_load(&f->waiters) != 0))
        rr_wake_waiters(f);
    uint32_t armed = atomic_load(&f->listener.armed);
    if (RR_UNLIKELY(armed != 0) && (news || armed == RR_ARMED_FOR_ALL))
        rr_listen_ring(f);
    if (RR_UNLIKELY(ended != NULL))
        rr_requests_fire(ended);
    if (RR_UNLIKELY(f->threaded) && atomic_load(&f->poked))
        rr_mover_wake();
}

static void fire_later(struct ringred_request *q, int status)
{
    struct ringred_request **at = &q->comm->family->ended;

    while (*at)
        at = &(*at)->fired;
    q->status = status;
    q->fired = NULL;
    *at = q;
}

/* With progress owned, and nobody to run anything any more: those whose callers get a word get it. */
static void give_up_on(ringred_comm *c, int status)
{
    uint32_t tail = atomic_load(&c->tail);

    for (uint32_t i = atomic_load(&c->head); i != tail; i++) {
        struct ringred_request *q = c->queue[i % RR_REQUESTS];
        if (!q->done || atomic_load(&q->state) != RR_REQUEST_RUNNING)
            continue;
        atomic_store(&q->state, RR_REQUEST_DONE);
        fire_later(q, status);
    }
}

void rr_requests_give_up(struct rr_family *f, int status)
{
    for (ringred_comm *c = f->running; c; c = c->next)
        give_up_on(c, status);
    pthread_mutex_lock(&f->pool);
    for (ringred_comm *c = f->incoming; c; c = c->next)
        give_up_on(c, status);
    pthread_mutex_unlock(&f->pool);
}

/* Was it broken, or did something come to be given up, after the owner looked and before he left? */
static bool is_left_over(struct rr_family *f)
{
    return atomic_load(&f->state) != RR_COMM_READY && (!atomic_load(&f->told) || atomic_load(&f->late));
}

/* Gives progress up. Telling the peers that the family is broken reads the buffers of requests in
 * flight, so it comes first: whoever owns progress after us may give its request back. Who broke it
 * after that look could not tell, so look again. */
void rr_family_disown(struct rr_family *f)
{
    do {
        if (RR_UNLIKELY(atomic_load(&f->state) != RR_COMM_READY)) {
            rr_family_tell(f);
            rr_teams_abort(f);
            rr_dump_broken(f);
            atomic_store(&f->late, false); /* then look */
            rr_requests_give_up(f, rr_family_status(f));
        }
        release(f);
    } while (RR_UNLIKELY(is_left_over(f)) && rr_family_own(f));
}

static void end_head(ringred_comm *c, struct ringred_request *q)
{
    rr_trace_end(&c->engine, &q->run);
    rr_record_end(c->record, q->run.ask.sequence);
    if (c->engine.shared)
        rr_shared_ended(c->engine.shared, q->run.ask.sequence);
    q->status = 0;
    c->active = false;
    if (RR_UNLIKELY(q->done != NULL))
        fire_later(q, 0);
    atomic_fetch_add_explicit(&c->head, 1, memory_order_release);
    atomic_store_explicit(&q->state, RR_REQUEST_DONE, memory_order_release);
}

static int begin_run(ringred_comm *c, struct ringred_request *q, ringred_error *why)
{
    struct rr_run *r = &q->run;

    c->active = true;
    c->probe_ns = 0;
    c->still_ms = 0;
    c->stall_said = false;
    rr_trace_begin(&c->engine);
    if (RR_UNLIKELY(q->listed))
        rr_list_begin(q);
    if (r->lane == RR_LANE_TINY) {
        rr_lane_begin(&c->engine, r);
        return 0;
    }
    if (r->lane == RR_LANE_LAST)
        return rr_last_begin(&c->engine, r, why);
    if (r->ragged && r->program->plan->shared && !r->count) {
        rr_ragged_begin(&c->engine, r);
        return 0;
    }
    if (r->ragged && !r->count)
        r->count = rr_ragged_most(r->ragged, c->ranks);
    if (rr_program_fit(&c->engine, r->program, r->count, r->element_bytes, r->segment) < 0)
        return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "a plan does not fit into scratch");
    rr_run_begin(&c->engine, r);
    return 0;
}

/* Recorded when the mates can see it already: they need not wait for that. */
static int begin(ringred_comm *c, struct ringred_request *q, ringred_error *why)
{
    int rc = begin_run(c, q, why);

    rr_record_begin(c->record, &q->run.ask, rr_record_how(&q->run));
    return rc;
}

static void run_errand(struct rr_family *f)
{
    struct rr_errand *e = f->errands;

    f->errands = e->next;
    e->rc = e->run(f, e->with);
    e->done = true; /* guarded by pool */
    rr_wake_waiters(f);
}

/* Communicators that have got something to do run from now on. */
static void take_comers(struct rr_family *f)
{
    pthread_mutex_lock(&f->pool);
    while (f->errands)
        run_errand(f);
    while (f->incoming) {
        ringred_comm *c = f->incoming;
        f->incoming = c->next;
        c->next = f->first->next;
        f->first->next = c;
    }
    rr_talks_come(f);
    atomic_store_explicit(&f->comers, 0, memory_order_relaxed);
    pthread_mutex_unlock(&f->pool);
}

/* A communicator that has nothing to do gives its area back and leaves the list. */
static bool retire(ringred_comm **at)
{
    ringred_comm *c = *at;

    pthread_mutex_lock(&c->family->pool);
    bool idle = !rr_at_head(c);
    if (idle) {
        c->area->taken = false;
        c->area = NULL;
        if (c->engine.shared)
            rr_shared_idle(c->engine.shared);
        *at = c->next;
    }
    pthread_mutex_unlock(&c->family->pool);
    return idle;
}

/* Adding nothing is a fence: others look at what has ended, then sleep. */
void rr_tell_others(struct rr_family *f)
{
    if (atomic_fetch_add(&f->waiters, 0) != 0)
        rr_wake_waiters(f);
    if (RR_UNLIKELY(atomic_load(&f->listener.armed) != 0))
        rr_listen_ring(f);
}

/* A run is touched only after a look at the state, so that nobody touches one once the family is broken and
 * progress has changed hands. */
static inline int advance(ringred_comm *c, struct ringred_request *q, const struct rr_waiter *w, bool *moved,
                   ringred_error *why)
{
    bool now = false;
    int rc = c->active ? 0 : begin(c, q, why);

    if (rc == 0)
        rc = rr_run_advance(&c->engine, &q->run, &now, why);
    if (now) {
        *moved = true;
        c->still_ms = 0;
    }
    if (rc)
        return rc;
    if (c->engine.shared && RR_UNLIKELY(rr_shared_is_judged(c->engine.shared))) /* whose sentence will be ours */
        return rr_fail(why, RINGRED_EABORTED, -1, 0, "a rank of this host broke the communicator");
    *moved = true;
    if (RR_UNLIKELY(q->listed) && rr_request_go_on(c, q))
        return RINGRED_PENDING;
    end_head(c, q);
    c->family->other_ended = c->family->other_ended || q != w->until;
    /* whoever waits for it need not sleep until we leave */
    if (q != w->until && w->stays)
        rr_tell_others(c->family);
    return 0;
}

static int progress_all(struct rr_family *f, const struct rr_waiter *w, bool *moved, ringred_error *why)
{
    bool busy = false;

    for (ringred_comm **at = &f->running; *at;) {
        ringred_comm *c = *at;
        struct ringred_request *q = rr_at_head(c);
        if (q) {
            int rc = advance(c, q, w, moved, why);
            if (rc < 0 || (rc == 0 && q == w->until))
                return rc;
            busy = true;
        }
        if (c == f->first || rr_at_head(c) || !retire(at))
            at = &c->next;
    }
    if (f->talks) {
        bool ended = false;
        int rc = rr_talks_progress(f, w, moved, &ended, why);
        if (rc < 0 || ended)
            return rc;
        busy = busy || f->talks;
    }
    return busy ? RINGRED_PENDING : 0;
}

/* The usual case, one communicator, has a way of its own: a tiny sum takes a tenth of a microsecond. */
static inline int progress(struct rr_family *f, const struct rr_waiter *w, bool *moved, ringred_error *why)
{
    ringred_comm *c = f->first;

    *moved = false;
    if (RR_UNLIKELY(atomic_load_explicit(&f->comers, memory_order_acquire) != 0))
        take_comers(f);
    if (RR_UNLIKELY(c->next || f->talks))
        return progress_all(f, w, moved, why);
    struct ringred_request *q = rr_at_head(c);
    int rc = q ? advance(c, q, w, moved, why) : 0;
    return rc == 0 && q != w->until && rr_at_head(c) ? RINGRED_PENDING : rc;
}

int rr_progress(struct rr_family *f, const struct rr_waiter *w, bool *moved, ringred_error *why)
{
    return progress(f, w, moved, why);
}

#define MOVES 16 /* sweeps that moved something between two looks at the time limit */

static bool is_over(int64_t deadline_ns)
{
    return deadline_ns != INT64_MAX && (deadline_ns == 0 || rr_now_ns() >= deadline_ns);
}

void rr_fire_ended(struct rr_family *f)
{
    struct ringred_request *ended = f->ended;

    f->ended = NULL;
    rr_requests_fire(ended);
}

int rr_drive(struct rr_family *f, const struct ringred_request *until, int64_t deadline_ns)
{
    struct rr_waiter w = { .until = until, .stays = deadline_ns != 0 };
    ringred_error why;
    uint32_t moves = 0;

    if (RR_UNLIKELY(f->listener.lies) && deadline_ns)
        rr_wait_get_up(f); /* and whoever sleeps on the descriptor hears of it when we leave */
    while (RR_LIKELY(atomic_load_explicit(&f->state, memory_order_relaxed) == RR_COMM_READY)) {
        bool moved;
        int rc = progress(f, &w, &moved, &why);
        if (RR_UNLIKELY(f->ended != NULL)) {
            rr_fire_ended(f);
            rc = rc == 0 && !until ? RINGRED_PENDING : rc; /* what the callbacks have started is to be done, too */
        }
        if (rc == RINGRED_PENDING && !moved) {
            rc = deadline_ns ? rr_wait_turn(f, &w, deadline_ns, &why) : rr_wait_poll(f, &why);
            if (rc == RR_WAIT_OVER || (rc == RINGRED_PENDING && !deadline_ns))
                return rc;
        } else if (rc == RINGRED_PENDING) {
            rr_wait_ended(f, &w);
            if (++moves % MOVES == 0 && is_over(deadline_ns))
                return deadline_ns ? RR_WAIT_OVER : RINGRED_PENDING;
        }
        if (rc == 0) {
            rr_wait_ended(f, &w);
            return 0;
        }
        if (rc < 0) {
            (void)rr_family_break(f, &why); /* every request reads what counts from the family */
            break;
        }
    }
    return 0;
}

/* Progress is another thread's: if it sleeps, it does not know of what has just been started. */
void rr_wake_owner(struct rr_family *f)
{
    const uint64_t one = 1;

    if (!atomic_fetch_add(&f->asleep, 0)) /* a fence: it says that it sleeps, then looks for comers */
        return;
    ssize_t ignored = write(f->wake, &one, sizeof one);
    (void)ignored; /* it can only be full, and then it wakes */
}

static bool is_run(struct rr_family *f, struct rr_errand *e, bool own_it)
{
    pthread_mutex_lock(&f->pool);
    bool done = e->done;
    if (!done && own_it)
        while (f->errands) /* those of others, too: they wait for whoever owns progress */
            run_errand(f);
    pthread_mutex_unlock(&f->pool);
    return done || own_it;
}

int rr_family_do(struct rr_family *f, int (*run)(struct rr_family *family, void *with), void *with)
{
    struct rr_errand e = { run, with, 0, false, NULL };

    pthread_mutex_lock(&f->pool);
    e.next = f->errands;
    f->errands = &e;
    atomic_store_explicit(&f->comers, 1, memory_order_release);
    pthread_mutex_unlock(&f->pool);
    for (bool done = false; !done;) {
        bool owns = rr_family_own(f);
        done = is_run(f, &e, owns);
        if (owns)
            rr_family_disown(f);
        if (!done) {
            rr_wake_owner(f);
            sched_yield();
        }
    }
    return e.rc;
}

int rr_family_abort(struct rr_family *f, const ringred_error *why)
{
    if (atomic_load(&f->state) != RR_COMM_READY)
        return rr_family_status(f);
    (void)rr_family_break(f, why);
    if (rr_family_own(f)) /* otherwise whoever owns progress wakes up, leaves and tells */
        rr_family_disown(f);
    return 0;
}

int rr_family_poll(struct rr_family *f)
{
    if (!rr_family_own(f))
        return sched_yield();
    int rc = rr_drive(f, NULL, rr_now_ns() + 1000000);
    rr_family_disown(f);
    return rc;
}
