/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: started in order by one thread at a time, run in order by whichever thread owns progress,
 * waited for by any. Nothing here allocates, but for what the first use of a plan, or of parts of unequal
 * length, needs and keeps. */
#include "core/core.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* ---- progress ---- */

static bool own(ringred_comm *c)
{
    return atomic_exchange_explicit(&c->owned, 1, memory_order_acquire) == 0;
}

static void wake_waiters(ringred_comm *c)
{
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void release(ringred_comm *c)
{
    atomic_exchange(&c->owned, 0); /* a full fence: a waiter counts itself, then looks at owned */
    if (RR_UNLIKELY(atomic_load(&c->waiters) != 0))
        wake_waiters(c);
}

/* Gives progress up. Telling the peers that the communicator is broken reads the buffers of requests in
 * flight, so it comes first: whoever owns progress after us may give its request back. Who broke it
 * after that look could not tell, so look again. */
static void disown(ringred_comm *c)
{
    do {
        if (RR_UNLIKELY(atomic_load(&c->state) != RR_COMM_READY))
            rr_comm_tell(c);
        release(c);
    } while (RR_UNLIKELY(atomic_load(&c->state) != RR_COMM_READY && !atomic_load(&c->told)) && own(c));
}

static struct ringred_request *at_head(ringred_comm *c)
{
    uint32_t head = atomic_load_explicit(&c->head, memory_order_relaxed);

    if (head == atomic_load_explicit(&c->tail, memory_order_acquire))
        return NULL;
    return c->queue[head % RR_REQUESTS];
}

static void end_head(ringred_comm *c, struct ringred_request *q, int status)
{
    rr_trace_end(&c->engine, &q->run);
    q->status = status;
    c->active = false;
    atomic_fetch_add_explicit(&c->head, 1, memory_order_release);
    atomic_store_explicit(&q->state, RR_REQUEST_DONE, memory_order_release);
}

static int begin(ringred_comm *c, struct ringred_request *q, ringred_error *why)
{
    struct rr_run *r = &q->run;

    c->active = true;
    c->probe_ns = 0;
    rr_trace_begin(&c->engine);
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

#define MOVES 16 /* sweeps that moved something between two looks at the time limit */

static bool is_over(int64_t deadline_ns)
{
    return deadline_ns != INT64_MAX && (deadline_ns == 0 || rr_now_ns() >= deadline_ns);
}

/* With progress owned: runs until `until` has ended, nothing more can be done at once (deadline 0), or
 * the deadline is over. A run is touched only after a look at the state, so that nobody touches one
 * once the communicator is broken and progress has changed hands. */
static int drive(ringred_comm *c, const struct ringred_request *until, int64_t deadline_ns)
{
    struct rr_waiter w = { 0 };
    ringred_error why;
    struct ringred_request *q;
    uint32_t moves = 0;

    while ((q = at_head(c)) != NULL) {
        bool moved = false;
        if (RR_UNLIKELY(atomic_load_explicit(&c->state, memory_order_relaxed) != RR_COMM_READY))
            break;
        int rc = c->active ? 0 : begin(c, q, &why);
        if (rc == 0)
            rc = rr_run_advance(&c->engine, &q->run, &moved, &why);
        if (rc == RINGRED_PENDING && !moved) {
            rc = deadline_ns ? rr_wait_turn(c, &w, &q->run, deadline_ns, &why)
                             : rr_wait_poll(c, &q->run, &why);
            if (rc == RR_WAIT_OVER || (rc == RINGRED_PENDING && !deadline_ns))
                return rc;
        } else if (moved) {
            rr_wait_ended(c, &w);
            if (++moves % MOVES == 0 && rc == RINGRED_PENDING && is_over(deadline_ns))
                return deadline_ns ? RR_WAIT_OVER : RINGRED_PENDING;
        }
        if (rc == 0) {
            end_head(c, q, 0);
            rr_wait_ended(c, &w);
            if (q == until)
                return 0;
            /* whoever waits for it need not sleep until we leave; adding nothing is a fence */
            if (deadline_ns != 0 && atomic_fetch_add(&c->waiters, 0) != 0)
                wake_waiters(c);
        } else if (rc < 0) {
            (void)rr_comm_break(c, &why); /* every request reads what counts from the communicator */
            break;
        }
    }
    return 0;
}

/* ---- starting ---- */

static struct ringred_request *take_request(ringred_comm *c)
{
    for (int i = 0; i < RR_REQUESTS; i++) {
        struct ringred_request *q = &c->request[i];
        if (atomic_load_explicit(&q->state, memory_order_acquire) == RR_REQUEST_FREE)
            return q;
    }
    return NULL;
}

/* Fails where a plan has to be made and cannot be. */
static int choose(ringred_comm *c, const struct rr_call *call, struct rr_run *r, ringred_error *why)
{
    r->lane = call->what == RR_ALLREDUCE ? rr_choose_lane(c, call->count * rr_call_element_bytes(call))
                                         : RR_LANE_NONE;
    if (r->lane != RR_LANE_NONE)
        return 0;
    struct rr_choice *choice = rr_plan_get(c, rr_choose_algo(c, call), call->root, why);
    if (!choice)
        return why->code;
    r->program = &choice->program;
    r->segment = rr_choose_segment(choice, c, call);
    return r->segment ? 0
                      : rr_fail(why, RINGRED_ELIMIT, -1, 0,
                                "%s of %zu elements needs a larger stage than %zu bytes (setting stage)",
                                rr_collective_name(call->what), call->count, c->engine.shared->stage_bytes);
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
    size_t n = (size_t)c->ranks, slot = (size_t)(q - c->request);

    q->run.ragged = NULL;
    if (!from)
        return 0;
    if (!c->ragged_room)
        c->ragged_room = rr_alloc(RR_REQUESTS * 4 * n, sizeof *c->ragged_room);
    if (!c->ragged_room)
        return rr_comm_refuse(c, RINGRED_ENOMEM, "no memory for the counts of %d ranks", c->ranks);
    size_t *room = c->ragged_room + slot * 4 * n;
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
    bool reduces = rr_is_reduction(call->what), average = call->op == RINGRED_AVG;

    r->in = call->in ? call->in : c->engine.scratch; /* nothing to read or write: any place will do */
    r->out = call->out ? call->out : c->engine.scratch;
    r->count = call->count;
    r->type = call->type;
    r->op = average ? RINGRED_SUM : call->op;
    r->element_bytes = rr_call_element_bytes(call);
    r->in_place = call->in == call->out;
    r->divisor = reduces && average ? (uint32_t)c->ranks : 1;
    r->means = reduces && average && rr_is_narrow(call->type);
    r->reduce = reduces ? rr_reduce_kernel(call->type, r->op) : NULL;
    r->meeting = false;
    r->ask = (struct rr_ask){ .collective = (uint8_t)(call->what | (call->ragged ? RR_RAGGED : 0)),
                              .type = (uint8_t)call->type,
                              .op = reduces ? (uint8_t)call->op : 0,
                              .root = call->root,
                              .count = call->count,
                              .sequence = ++c->sequence };
    if (call->ragged)
        ask_for_counts(&r->ask, call, c->ranks);
}

/* With starting taken. */
static int enqueue(ringred_comm *c, const struct rr_call *call, struct ringred_request **request)
{
    struct ringred_request *q = take_request(c);
    ringred_error why;

    if (!q)
        return rr_comm_refuse(c, RINGRED_ELIMIT, "%d requests are in flight, the most there may be: wait "
                              "for one first", RR_REQUESTS);
    int rc = choose(c, call, &q->run, &why);
    if (RR_UNLIKELY(rc < 0))
        return rr_comm_refuse(c, rc, "%s", why.text);
    RR_TRY(bind_ragged(c, call, q));
    uint32_t tail = atomic_load_explicit(&c->tail, memory_order_relaxed);
    q->comm = c;
    bind_run(c, call, &q->run);
    atomic_store_explicit(&q->state, RR_REQUEST_RUNNING, memory_order_relaxed);
    c->queue[tail % RR_REQUESTS] = q;
    atomic_store_explicit(&c->tail, tail + 1, memory_order_release);
    *request = q;
    return 0;
}

static int start(ringred_comm *c, const struct rr_call *call, struct ringred_request **request)
{
    int rc;

    if (RR_UNLIKELY(c->forks != rr_forks()))
        return RINGRED_EFORKED;
    if (RR_UNLIKELY(atomic_load_explicit(&c->state, memory_order_acquire) != RR_COMM_READY)) {
        if (own(c))
            disown(c); /* peers that had no room for our last words may have now */
        return rr_comm_status(c);
    }
    if (atomic_exchange_explicit(&c->starting, 1, memory_order_acquire))
        return RINGRED_EBUSY;
    rc = enqueue(c, call, request);
    atomic_store_explicit(&c->starting, 0, memory_order_release);
    return rc;
}

int rr_comm_start(ringred_comm *c, const struct rr_call *call, ringred_request **request)
{
    RR_TRY(start(c, call, request));
    if (own(c)) { /* send off what can be sent now */
        (void)drive(c, NULL, 0);
        disown(c);
    }
    return 0;
}

/* ---- waiting ---- */

static void sleep_on_changed(ringred_comm *c, const ringred_request *q, int64_t deadline_ns)
{
    struct timespec until;
    int64_t most = rr_now_ns() + RINGRED_SECOND; /* a bound, should a wake-up be lost */

    most = most < deadline_ns ? most : deadline_ns;
    until = (struct timespec){ most / RINGRED_SECOND, most % RINGRED_SECOND };
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->waiters, 1);
    if (atomic_load(&c->owned) && atomic_load(&q->state) == RR_REQUEST_RUNNING)
        pthread_cond_timedwait(&c->changed, &c->lock, &until); /* of CLOCK_MONOTONIC */
    atomic_fetch_sub(&c->waiters, 1);
    pthread_mutex_unlock(&c->lock);
}

static int give_back(ringred_request *q, int status)
{
    atomic_store_explicit(&q->state, RR_REQUEST_FREE, memory_order_release);
    return status;
}

static bool is_done(const ringred_request *q)
{
    return atomic_load_explicit(&q->state, memory_order_acquire) == RR_REQUEST_DONE;
}

/* A request of a broken communicator is given back only by an owner of progress: until then another
 * thread may be inside its run, at work on the caller's buffers. */
int rr_request_wait(ringred_request *q, int64_t timeout_ns)
{
    ringred_comm *c = q->comm;
    int64_t deadline = timeout_ns == 0 ? 0 : rr_deadline(timeout_ns);

    if (c->forks != rr_forks())
        return RINGRED_EFORKED;
    for (;;) {
        int rc = 0;
        if (is_done(q))
            return give_back(q, q->status);
        if (own(c)) {
            rc = drive(c, q, deadline);
            bool broken = !is_done(q) && atomic_load(&c->state) != RR_COMM_READY;
            disown(c);
            if (broken)
                return give_back(q, rr_comm_status(c));
        } else if (timeout_ns != 0) {
            sleep_on_changed(c, q, deadline);
        }
        if (is_done(q))
            return give_back(q, q->status);
        if (timeout_ns == 0 || rc == RR_WAIT_OVER || rr_now_ns() >= deadline)
            return RINGRED_PENDING;
    }
}

/* The caller gave up on a blocking call: the others cannot know, so this breaks the communicator.
 * Another thread may own progress, for a request of its own; it leaves when the state is broken. */
static int give_up(ringred_comm *c, ringred_request *q, const struct rr_call *call, int64_t timeout_ns)
{
    ringred_error why;
    bool owns = own(c);
    struct ringred_request *head = owns ? at_head(c) : NULL;
    int peer = head && c->active ? rr_run_waits_for(&c->engine, &head->run, NULL) : -1;

    if (!is_done(q)) {
        rr_fail(&why, RINGRED_ETIMEOUT, peer, 0, "%s, operation %llu, did not end within %.3g s",
                rr_collective_name(call->what), (unsigned long long)q->run.ask.sequence, (double)timeout_ns * 1e-9);
        if (peer >= 0)
            rr_fail(&why, why.code, peer, 0, "%s: waiting for rank %d", why.text, peer);
        (void)rr_comm_break(c, &why); /* an earlier failure may be the one that counts */
    }
    while (!owns && !(owns = own(c)))
        sched_yield();
    int rc = is_done(q) ? q->status : rr_comm_status(c);
    disown(c);
    return give_back(q, rc);
}

int rr_comm_run(ringred_comm *c, const struct rr_call *call)
{
    ringred_request *q;
    int64_t timeout = rr_setting(&c->settings, RR_SET_TIMEOUT);

    RR_TRY(start(c, call, &q));
    int rc = rr_request_wait(q, timeout == 0 ? 1 : timeout);
    return RR_LIKELY(rc != RINGRED_PENDING) ? rc : give_up(c, q, call, timeout);
}

int rr_comm_abort(ringred_comm *c, const ringred_error *why)
{
    if (atomic_load(&c->state) != RR_COMM_READY)
        return rr_comm_status(c);
    (void)rr_comm_break(c, why);
    if (own(c)) /* otherwise whoever owns progress wakes up, leaves and tells */
        disown(c);
    return 0;
}
