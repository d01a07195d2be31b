/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: started in order by one thread at a time, run in order by whichever thread owns progress,
 * waited for by any. Nothing here allocates, but for what the first use of a plan, or of parts of unequal
 * length, needs and keeps. */
#include "core/core.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- progress ---- */

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

static struct ringred_request *at_head(ringred_comm *c)
{
    uint32_t head = atomic_load_explicit(&c->head, memory_order_relaxed);

    if (head == atomic_load_explicit(&c->tail, memory_order_acquire))
        return NULL;
    return c->queue[head % RR_REQUESTS];
}

/* The owner's: is anything left to be done? */
static bool is_busy(struct rr_family *f)
{
    if (atomic_load(&f->state) != RR_COMM_READY)
        return false;
    if (atomic_load(&f->comers) != 0)
        return true;
    for (ringred_comm *c = f->running; c; c = c->next)
        if (at_head(c))
            return true;
    return f->talks != NULL;
}

/* `poked` says truly whether the thread has anything to do: whoever starts something sets it afterwards, and whoever
 * leaves takes it back and then looks. Whoever sees it once progress is free wakes the thread, which sets `asleep`
 * before it looks at both. */
static void release(struct rr_family *f)
{
    if (RR_UNLIKELY(f->threaded)) {
        (void)atomic_exchange(&f->poked, 0);
        if (is_busy(f))
            atomic_store(&f->poked, 1);
    }
    atomic_exchange(&f->owned, 0); /* a full fence: a waiter counts itself, then looks at owned */
    if (RR_UNLIKELY(atomic_load(&f->waiters) != 0))
        rr_wake_waiters(f);
    if (RR_UNLIKELY(f->threaded) && atomic_load(&f->poked))
        rr_mover_wake();
}

/* Gives progress up. Telling the peers that the family is broken reads the buffers of requests in
 * flight, so it comes first: whoever owns progress after us may give its request back. Who broke it
 * after that look could not tell, so look again. */
void rr_family_disown(struct rr_family *f)
{
    do {
        if (RR_UNLIKELY(atomic_load(&f->state) != RR_COMM_READY))
            rr_family_tell(f);
        release(f);
    } while (RR_UNLIKELY(atomic_load(&f->state) != RR_COMM_READY && !atomic_load(&f->told)) && rr_family_own(f));
}

static void end_head(ringred_comm *c, struct ringred_request *q)
{
    rr_trace_end(&c->engine, &q->run);
    if (c->engine.shared)
        rr_shared_ended(c->engine.shared, q->run.ask.sequence);
    q->status = 0;
    c->active = false;
    atomic_fetch_add_explicit(&c->head, 1, memory_order_release);
    atomic_store_explicit(&q->state, RR_REQUEST_DONE, memory_order_release);
}

static void bind_buffers(ringred_comm *c, const struct rr_call *call, struct rr_run *r)
{
    bool reduces = rr_is_reduction(call->what), average = call->op == RINGRED_AVG;

    r->in = call->in ? call->in : c->area->scratch; /* nothing to read or write: any place will do */
    r->out = call->out ? call->out : c->area->scratch;
    r->count = call->count;
    r->type = call->type;
    r->op = average ? RINGRED_SUM : call->op;
    r->element_bytes = rr_call_element_bytes(call);
    r->in_place = call->in == call->out;
    r->divisor = reduces && average ? (uint32_t)c->ranks : 1;
    r->means = reduces && average && rr_is_narrow(call->type);
    r->user = reduces ? call->user : NULL;
    r->reduce = !reduces ? NULL : r->user ? rr_reduce_user : rr_reduce_kernel(call->type, r->op);
    r->meeting = false;
}

/* The run of a list that is under way, as it was chosen when the list was started. */
static void bind_listed(struct rr_run *r, const struct rr_list_run *run)
{
    r->ragged = NULL;
    r->lane = run->lane;
    r->program = run->program;
    r->segment = run->segment;
}

/* A list goes on with its next run, which is an operation of its own. false: there is none. */
static bool go_on(ringred_comm *c, struct ringred_request *q)
{
    struct rr_list_run *run;
    struct rr_call call;

    if (!rr_list_next(q, &call, &run))
        return false;
    rr_trace_end(&c->engine, &q->run);
    if (c->engine.shared)
        rr_shared_ended(c->engine.shared, q->run.ask.sequence);
    bind_listed(&q->run, run);
    bind_buffers(c, &call, &q->run);
    q->run.ask.sequence++;
    c->active = false;
    return true;
}

static int begin(ringred_comm *c, struct ringred_request *q, ringred_error *why)
{
    struct rr_run *r = &q->run;

    c->active = true;
    c->probe_ns = 0;
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
    bool idle = !at_head(c);
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

/* A run is touched only after a look at the state, so that nobody touches one once the family is broken and
 * progress has changed hands. */
static inline int advance(ringred_comm *c, struct ringred_request *q, const struct rr_waiter *w, bool *moved,
                   ringred_error *why)
{
    bool now = false;
    int rc = c->active ? 0 : begin(c, q, why);

    if (rc == 0)
        rc = rr_run_advance(&c->engine, &q->run, &now, why);
    *moved = *moved || now;
    if (rc)
        return rc;
    *moved = true;
    if (RR_UNLIKELY(q->listed) && go_on(c, q))
        return RINGRED_PENDING;
    end_head(c, q);
    /* whoever waits for it need not sleep until we leave; adding nothing is a fence */
    if (q != w->until && w->stays && atomic_fetch_add(&c->family->waiters, 0) != 0)
        rr_wake_waiters(c->family);
    return 0;
}

static int progress_all(struct rr_family *f, const struct rr_waiter *w, bool *moved, ringred_error *why)
{
    bool busy = false;

    for (ringred_comm **at = &f->running; *at;) {
        ringred_comm *c = *at;
        struct ringred_request *q = at_head(c);
        if (q) {
            int rc = advance(c, q, w, moved, why);
            if (rc < 0 || (rc == 0 && q == w->until))
                return rc;
            busy = true;
        }
        if (c == f->first || at_head(c) || !retire(at))
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
    struct ringred_request *q = at_head(c);
    int rc = q ? advance(c, q, w, moved, why) : 0;
    return rc == 0 && q != w->until && at_head(c) ? RINGRED_PENDING : rc;
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

/* With progress owned: runs until `until` has ended (NULL: everything has), nothing more can be done at once
 * (deadline 0), or the deadline is over. */
static int drive(struct rr_family *f, const struct ringred_request *until, int64_t deadline_ns)
{
    struct rr_waiter w = { .until = until, .stays = deadline_ns != 0 };
    ringred_error why;
    uint32_t moves = 0;

    while (RR_LIKELY(atomic_load_explicit(&f->state, memory_order_relaxed) == RR_COMM_READY)) {
        bool moved;
        int rc = progress(f, &w, &moved, &why);
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

/* ---- starting ---- */

/* NULL: too many are in flight, or no memory for more. Of other communicators than the first: with pool taken. */
struct ringred_request *rr_request_take(ringred_comm *c)
{
    struct rr_family *f = c->family;

    for (int i = 0; c->request && i < RR_REQUESTS; i++)
        if (atomic_load_explicit(&c->request[i].state, memory_order_acquire) == RR_REQUEST_FREE)
            return &c->request[i];
    if (c->request || atomic_load(&c->tail) - atomic_load(&c->head) >= RR_REQUESTS)
        return NULL;
    if (!f->spare) {
        struct rr_chunk *chunk = rr_alloc(1, sizeof *chunk);
        if (!chunk)
            return NULL;
        chunk->next = f->chunks;
        f->chunks = chunk;
        for (int i = 0; i < RR_REQUESTS; i++) {
            chunk->request[i].next = f->spare;
            f->spare = &chunk->request[i];
        }
    }
    return f->spare;
}

static int give_back(ringred_request *q, int status)
{
    ringred_comm *c = q->comm;

    if (c->request) {
        atomic_store_explicit(&q->state, RR_REQUEST_FREE, memory_order_release);
        return status;
    }
    pthread_mutex_lock(&c->family->pool);
    atomic_store_explicit(&q->state, RR_REQUEST_FREE, memory_order_release);
    q->next = c->family->spare;
    c->family->spare = q;
    pthread_mutex_unlock(&c->family->pool);
    return status;
}

/* Fails where a plan has to be made and cannot be. */
static int take_plan(ringred_comm *c, const struct rr_call *call, const struct rr_chosen *x, struct rr_run *r,
                     ringred_error *why)
{
    r->lane = x->way.lane;
    if (r->lane != RR_LANE_NONE)
        return 0;
    struct rr_choice *choice = rr_plan_get(c, x->way.algo, call->root, why);
    if (!choice)
        return why->code;
    r->program = choice->program[c->area->number];
    r->segment = rr_choose_segment(choice, c, call, x->segment);
    return r->segment ? 0
                      : rr_fail(why, RINGRED_ELIMIT, -1, 0,
                                "%s of %zu elements of %zu bytes needs more room than there is (setting stage)",
                                rr_collective_name(call->what), call->count, rr_call_element_bytes(call));
}

static const size_t *copy_counts(const size_t *from, size_t *to, int n)
{
    if (!from)
        return NULL;
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

/* Displacements that the caller left out: one part behind the other. */
static const size_t *copy_places(const size_t *at, const size_t *count, size_t *to, int n)
{
    size_t sum = 0;

    if (at || !count)
        return copy_counts(at, to, n);
    for (int r = 0; r < n; r++) {
        to[r] = sum;
        sum += count[r];
    }
    return to;
}

/* The caller's arrays are his again when the call returns. */
static int bind_ragged(ringred_comm *c, const struct rr_call *call, struct ringred_request *q)
{
    const struct rr_ragged *from = call->ragged;
    size_t n = (size_t)c->ranks;

    q->run.ragged = NULL;
    if (!from)
        return 0;
    if (!q->room)
        q->room = rr_alloc(4 * (size_t)c->family->ranks, sizeof *q->room);
    if (!q->room)
        return rr_comm_refuse(c, RINGRED_ENOMEM, "no memory for the counts of %d ranks", c->ranks);
    size_t *room = q->room;
    q->ragged = *from;
    q->ragged.in_count = copy_counts(from->in_count, room, c->ranks);
    q->ragged.in_at = copy_places(from->in_at, from->in_count, room + n, c->ranks);
    q->ragged.out_count = copy_counts(from->out_count, room + 2 * n, c->ranks);
    q->ragged.out_at = copy_places(from->out_at, from->out_count, room + 3 * n, c->ranks);
    q->run.ragged = &q->ragged;
    return 0;
}

/* Counts that every rank must have given alike, in few bits. */
static int32_t counts_hash(const size_t *count, int n)
{
    uint64_t h = 0;

    for (int r = 0; r < n; r++)
        h = (h ^ count[r]) * 0xff51afd7ed558ccdu + 0x9e3779b97f4a7c15u;
    return (int32_t)(h >> 32 & INT32_MAX);
}

static uint64_t counts_sum(const size_t *count, int n)
{
    uint64_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += count[r];
    return sum;
}

/* Where all ranks give the same counts, the request carries their sum, and a hash in place of a root. */
static void ask_for_counts(struct rr_ask *ask, const struct rr_call *call, int n)
{
    const struct rr_ragged *g = call->ragged;
    const size_t *known = call->what == RR_ALLGATHER ? g->out_count
                          : call->what == RR_REDUCE_SCATTER ? g->in_count : NULL;

    ask->count = known ? counts_sum(known, n) : 0;
    ask->root = known ? counts_hash(known, n) : call->root;
}

static void bind_run(ringred_comm *c, const struct rr_call *call, struct rr_run *r)
{
    bool reduces = rr_is_reduction(call->what);

    bind_buffers(c, call, r);
    r->ask = (struct rr_ask){ .collective = (uint8_t)(call->what | (call->ragged ? RR_RAGGED : 0)),
                              .type = (uint8_t)call->type,
                              .op = reduces ? (uint8_t)call->op : 0,
                              .root = call->root,
                              .count = call->count,
                              .sequence = ++c->sequence };
    if (call->ragged)
        ask_for_counts(&r->ask, call, c->ranks);
}

/* Every run of a list says what the whole list is, so that ranks that disagree about any of it find out in the first. */
static int bind_list(ringred_comm *c, const struct rr_call *call, struct ringred_request *q)
{
    const struct rr_shape shape = rr_shape_of(call->what, c->ranks, call->root, c->rank);
    ringred_error why;
    uint64_t ways = 0;
    size_t runs;

    if (rr_list_take(q, call, &shape, &runs) < 0)
        return rr_comm_refuse(c, RINGRED_ENOMEM, "no memory for a list of %zu vectors", call->vectors->n);
    for (size_t i = 0; i < runs; i++) {
        const struct rr_call one = rr_list_call(q, i);
        struct rr_list_run *run = rr_list_run(q, i);
        struct rr_chosen x;
        int rc = rr_choose(c, &one, &x, &why);
        if (rc == 0)
            rc = take_plan(c, &one, &x, &q->run, &why);
        if (rc < 0)
            return rr_comm_refuse(c, rc, "%s", why.text);
        ways = ways * 31 + x.code;
        run->lane = q->run.lane;
        run->program = q->run.program;
        run->segment = q->run.segment;
    }
    const struct rr_call first = rr_list_call(q, 0);
    bind_listed(&q->run, rr_list_run(q, 0));
    bind_run(c, &first, &q->run);
    q->run.ask.collective = (uint8_t)(call->what | RR_LISTED);
    q->run.ask.type = 0;
    q->run.ask.count = rr_list_signature(call->vectors) ^ ways;
    c->sequence += runs - 1; /* each run is an operation */
    return 0;
}

/* With starting taken, and the pool lock unless it is the first communicator. */
static int enqueue(ringred_comm *c, const struct rr_call *call, const struct rr_chosen *x,
                   struct ringred_request **request)
{
    struct ringred_request *q = rr_request_take(c);
    ringred_error why;

    if (!q)
        return rr_comm_refuse(c, RINGRED_ELIMIT, "%d requests are in flight, the most there may be: wait "
                              "for one first", RR_REQUESTS);
    q->comm = c;
    q->talks = RR_NO_TALK;
    q->listed = call->vectors != NULL;
    if (RR_UNLIKELY(q->listed)) {
        RR_TRY(bind_list(c, call, q));
    } else {
        int rc = take_plan(c, call, x, &q->run, &why);
        if (RR_UNLIKELY(rc < 0))
            return rr_comm_refuse(c, rc, "%s", why.text);
        RR_TRY(bind_ragged(c, call, q));
        bind_run(c, call, &q->run);
        q->run.ask.count |= x->code;
    }
    uint32_t tail = atomic_load_explicit(&c->tail, memory_order_relaxed);
    atomic_store_explicit(&q->state, RR_REQUEST_RUNNING, memory_order_relaxed);
    c->queue[tail % RR_REQUESTS] = q;
    atomic_store_explicit(&c->tail, tail + 1, memory_order_release);
    *request = q;
    return 0;
}

/* Another communicator than the first: what it works with is taken, and given back, under the pool lock. */
static int enqueue_other(ringred_comm *c, const struct rr_call *call, const struct rr_chosen *x,
                         struct ringred_request **request)
{
    struct rr_family *f = c->family;
    struct rr_area *area;
    ringred_error why;
    int rc = 0;

    pthread_mutex_lock(&f->pool);
    bool comes = !c->area;
    if (comes && (rc = rr_area_add(f, &area, &why)) < 0)
        (void)rr_comm_refuse(c, rc, "%s", why.text);
    if (rc == 0 && comes)
        rr_area_bind(c, area);
    if (rc == 0 && c->engine.shared && (rc = rr_shared_hold(c->engine.shared, &why)) < 0)
        (void)rr_comm_refuse(c, rc, "%s", why.text);
    if (rc == 0)
        rc = enqueue(c, call, x, request);
    if (rc == 0) {
        f->spare = (*request)->next;
    } else if (comes && c->area) {
        c->area->taken = false;
        c->area = NULL;
        if (c->engine.shared)
            rr_shared_idle(c->engine.shared);
    }
    if (rc == 0 && comes) {
        c->next = f->incoming;
        f->incoming = c;
        atomic_store_explicit(&f->comers, 1, memory_order_release);
    }
    pthread_mutex_unlock(&f->pool);
    return rc;
}

int rr_start_begin(ringred_comm *c)
{
    struct rr_family *f = c->family;

    if (RR_UNLIKELY(f->forks != rr_forks()))
        return RINGRED_EFORKED;
    if (RR_UNLIKELY(atomic_load_explicit(&f->state, memory_order_acquire) != RR_COMM_READY)) {
        if (rr_family_own(f))
            rr_family_disown(f); /* peers that had no room for our last words may have now */
        return rr_family_status(f);
    }
    return atomic_exchange_explicit(&c->starting, 1, memory_order_acquire) ? RINGRED_EBUSY : 0;
}

static int start(ringred_comm *c, const struct rr_call *call, struct ringred_request **request)
{
    struct rr_chosen x;
    ringred_error why;
    int rc = rr_start_begin(c);

    if (RR_UNLIKELY(rc < 0))
        return rc;
    if (RR_LIKELY(!call->vectors)) /* each run of a list has its own */
        rc = rr_choose(c, call, &x, &why);
    if (RR_UNLIKELY(rc < 0))
        (void)rr_comm_refuse(c, rc, "%s", why.text);
    else
        rc = RR_LIKELY(c == c->family->first) ? enqueue(c, call, &x, request) : enqueue_other(c, call, &x, request);
    atomic_store_explicit(&c->starting, 0, memory_order_release);
    return rc;
}

/* Progress is another thread's: if it sleeps, it does not know of what has just been started. */
static void wake_owner(struct rr_family *f)
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
            wake_owner(f);
            sched_yield();
        }
    }
    return e.rc;
}

static void send_off(struct rr_family *f)
{
    if (f->threaded) {
        rr_mover_poke(f);
    } else if (rr_family_own(f)) { /* what can be sent now */
        (void)drive(f, NULL, 0);
        rr_family_disown(f);
    } else {
        wake_owner(f);
    }
}

void rr_start_end(ringred_comm *c, bool started)
{
    atomic_store_explicit(&c->starting, 0, memory_order_release);
    if (started)
        send_off(c->family);
}

int rr_comm_start(ringred_comm *c, const struct rr_call *call, ringred_request **request)
{
    RR_TRY(start(c, call, request));
    send_off(c->family);
    return 0;
}

/* ---- waiting ---- */

static void sleep_on_changed(struct rr_family *f, const ringred_request *q, int64_t deadline_ns)
{
    struct timespec until;
    int64_t most = rr_now_ns() + RINGRED_SECOND; /* a bound, should a wake-up be lost */

    most = most < deadline_ns ? most : deadline_ns;
    until = (struct timespec){ most / RINGRED_SECOND, most % RINGRED_SECOND };
    pthread_mutex_lock(&f->lock);
    atomic_fetch_add(&f->waiters, 1);
    if (atomic_load(&f->owned) && atomic_load(&q->state) == RR_REQUEST_RUNNING)
        pthread_cond_timedwait(&f->changed, &f->lock, &until); /* of CLOCK_MONOTONIC */
    atomic_fetch_sub(&f->waiters, 1);
    pthread_mutex_unlock(&f->lock);
}

static bool is_done(const ringred_request *q)
{
    return atomic_load_explicit(&q->state, memory_order_acquire) == RR_REQUEST_DONE;
}

/* A request of a broken communicator is given back only by an owner of progress: until then another
 * thread may be inside its run, at work on the caller's buffers. */
static int wait_for(ringred_request *q, int64_t timeout_ns, bool *wants)
{
    struct rr_family *f = q->comm->family;
    int64_t deadline = timeout_ns == 0 ? 0 : rr_deadline(timeout_ns);

    if (f->forks != rr_forks())
        return RINGRED_EFORKED;
    for (;;) {
        int rc = 0;
        if (is_done(q))
            return give_back(q, q->status);
        if (rr_family_own(f)) {
            rc = drive(f, q, deadline);
            bool broken = !is_done(q) && atomic_load(&f->state) != RR_COMM_READY;
            rr_family_disown(f);
            if (broken)
                return give_back(q, rr_family_status(f));
        } else if (timeout_ns != 0) {
            if (f->threaded && !*wants)
                atomic_fetch_add(&f->wanted, 1);
            *wants = f->threaded;
            wake_owner(f);
            sleep_on_changed(f, q, deadline);
        }
        if (is_done(q))
            return give_back(q, q->status);
        if (timeout_ns == 0 || rc == RR_WAIT_OVER || rr_now_ns() >= deadline)
            return RINGRED_PENDING;
    }
}

int rr_request_wait(ringred_request *q, int64_t timeout_ns)
{
    struct rr_family *f = q->comm->family;
    bool wants = false;
    int rc = wait_for(q, timeout_ns, &wants);

    if (!wants)
        return rc;
    atomic_fetch_sub(&f->wanted, 1);
    if (atomic_load(&f->poked)) /* the thread may have left progress to us, and then we did not need it */
        rr_mover_wake();
    return rc;
}

/* Whom a request waits for, as the job calls it; -1: nobody in particular. With progress owned. */
static int waits_for(ringred_comm *c, const ringred_request *q)
{
    struct ringred_request *head = at_head(c);
    int peer = head && c->active ? rr_run_waits_for(&c->engine, &head->run, NULL) : -1;

    if (q->talks)
        return q->talk.move.way < 0 ? -1 : q->talk.move.peer;
    return peer < 0 ? -1 : rr_engine_member(&c->engine, peer);
}

/* The caller gave up on a blocking call: the others cannot know, so this breaks the communicator.
 * Another thread may own progress, for a request of its own; it leaves when the state is broken. */
static int give_up(ringred_request *q, const char *what, int64_t timeout_ns)
{
    struct rr_family *f = q->comm->family;
    ringred_error why;
    bool owns = rr_family_own(f);
    int peer = owns ? waits_for(q->comm, q) : -1;

    if (!is_done(q)) {
        rr_fail(&why, RINGRED_ETIMEOUT, peer, 0, "%s, operation %llu, did not end within %.3g s", what,
                (unsigned long long)(q->talks ? q->talk.ask.sequence : q->run.ask.sequence), (double)timeout_ns * 1e-9);
        if (peer >= 0)
            rr_fail(&why, why.code, peer, 0, "%s: waiting for rank %d", why.text, peer);
        (void)rr_family_break(f, &why); /* an earlier failure may be the one that counts */
    }
    while (!owns && !(owns = rr_family_own(f)))
        sched_yield();
    int rc = is_done(q) ? q->status : rr_family_status(f);
    rr_family_disown(f);
    return give_back(q, rc);
}

int rr_request_wait_or_break(ringred_request *q, const char *what)
{
    int64_t timeout = rr_setting(&q->comm->family->settings, RR_SET_TIMEOUT);
    int rc = rr_request_wait(q, timeout == 0 ? 1 : timeout);

    return RR_LIKELY(rc != RINGRED_PENDING) ? rc : give_up(q, what, timeout);
}

int rr_comm_run(ringred_comm *c, const struct rr_call *call)
{
    ringred_request *q;

    RR_TRY(start(c, call, &q));
    return rr_request_wait_or_break(q, rr_collective_name(call->what));
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
    int rc = drive(f, NULL, rr_now_ns() + 1000000);
    rr_family_disown(f);
    return rc;
}

void rr_requests_drop(ringred_comm *c)
{
    struct rr_family *f = c->family;

    pthread_mutex_lock(&f->pool);
    for (struct rr_chunk *chunk = f->chunks; chunk && !c->request; chunk = chunk->next)
        for (int i = 0; i < RR_REQUESTS; i++) {
            struct ringred_request *q = &chunk->request[i];
            if (q->comm != c || atomic_load(&q->state) == RR_REQUEST_FREE)
                continue;
            atomic_store(&q->state, RR_REQUEST_FREE);
            q->next = f->spare;
            f->spare = q;
        }
    pthread_mutex_unlock(&f->pool);
}
