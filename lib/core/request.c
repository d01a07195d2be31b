/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: started in order by one thread at a time, run in order by whichever thread owns progress
 * (progress.c), waited for by any. Nothing here allocates, but for what the first use of a plan, or of parts of unequal
 * length, needs and keeps. */
#include "core/core.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void bind_buffers(ringred_comm *c, const struct rr_call *call, struct rr_run *r)
{
    bool reduces = rr_is_reduction(call->what), average = call->op == RINGRED_AVG;

    r->in = call->in ? call->in : c->area->scratch; /* nothing to read or write: any place will do */
    r->out = call->out ? call->out : c->area->scratch;
    r->in_pieces = call->in_pieces;
    r->out_pieces = call->out_pieces;
    r->count = call->count;
    r->type = call->type;
    r->op = average ? RINGRED_SUM : call->op;
    r->element_bytes = rr_call_element_bytes(call);
    r->in_place = call->in == call->out;
    r->divisor = reduces && average ? (uint32_t)c->ranks : 1;
    r->scale = call->scale;
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
    r->algo = run->algo;
    r->program = run->program;
    r->segment = run->segment;
}

bool rr_request_go_on(ringred_comm *c, struct ringred_request *q)
{
    struct rr_list_run *run;
    struct rr_call call;

    if (!rr_list_next(q, &call, &run))
        return false;
    rr_trace_end(&c->engine, &q->run);
    rr_record_end(c->record, q->run.ask.sequence);
    if (c->engine.shared)
        rr_shared_ended(c->engine.shared, q->run.ask.sequence);
    bind_listed(&q->run, run);
    bind_buffers(c, &call, &q->run);
    q->run.ask.sequence++;
    c->active = false;
    return true;
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

/* What comes before a call that a team does. */
static const struct rr_call barrier = { .what = RR_BARRIER };

/* Fails where a plan has to be made and cannot be. */
static int take_plan(ringred_comm *c, const struct rr_call *call, const struct rr_chosen *x, struct rr_run *r,
                     ringred_error *why)
{
    r->team = x->way.lane == RR_LANE_TEAM;
    r->lane = r->team ? RR_LANE_NONE : x->way.lane;
    if (r->lane != RR_LANE_NONE)
        return 0;
    if (r->team)
        call = &barrier;
    enum rr_algo algo = r->team ? rr_choose_algo(c, call) : x->way.algo;
    r->algo = (int)algo;
    struct rr_choice *choice = rr_plan_get(c, algo, call->root, why);
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

    bind_buffers(c, RR_UNLIKELY(r->team) ? &barrier : call, r);
    if (RR_UNLIKELY(r->team))
        r->call = rr_team_call(c, call);
    r->ask = (struct rr_ask){ .collective = (uint8_t)(call->what | (call->ragged ? RR_RAGGED : 0)),
                              .type = (uint8_t)call->type,
                              .op = reduces ? (uint8_t)call->op : 0,
                              .root = call->root,
                              .count = call->count,
                              .sequence = ++c->sequence };
    if (call->ragged)
        ask_for_counts(&r->ask, call, c->ranks);
    if (RR_UNLIKELY(call->scale != 0))
        rr_ask_scale(&r->ask, call->scale);
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
        struct rr_call one = rr_list_call(q, i);
        one.ours = true;
        struct rr_list_run *run = rr_list_run(q, i);
        struct rr_chosen x;
        int rc = rr_choose(c, &one, &x, &why);
        if (rc == 0)
            rc = take_plan(c, &one, &x, &q->run, &why);
        if (rc == 0 && x.way.lane != RR_LANE_NONE && rr_list_pack(q, i) < 0)
            rc = rr_fail(&why, RINGRED_ENOMEM, -1, 0, "no memory for a bucket");
        if (rc < 0)
            return rr_comm_refuse(c, rc, "%s", why.text);
        ways = ways * 31 + x.code;
        run->lane = q->run.lane;
        run->algo = q->run.algo;
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
    q->done = call->done;
    q->done_context = call->done_context;
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
    if (RR_UNLIKELY(q->done != NULL))
        atomic_fetch_add(&c->owed, 1);
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

static void send_off(struct rr_family *f)
{
    if (f->threaded) {
        rr_mover_poke(f);
    } else if (rr_family_own(f)) { /* what can be sent now */
        (void)rr_drive(f, NULL, 0);
        rr_family_disown(f);
    } else {
        rr_wake_owner(f);
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
    struct rr_family *f = c->family;
    ringred_request *q;

    RR_TRY(start(c, call, request ? request : &q));
    send_off(f);
    if (RR_UNLIKELY(call->done && atomic_load(&f->state) != RR_COMM_READY)) {
        atomic_store(&f->late, true); /* then look; whoever owns progress looks at this when he leaves */
        if (rr_family_own(f))
            rr_family_disown(f);
    }
    return 0;
}

void rr_requests_fire(struct ringred_request *ended)
{
    while (ended) {
        struct ringred_request *q = ended;
        ringred_comm *c = q->comm; /* which is not destroyed before its callers have had their word */
        ringred_done_fn done = q->done;
        void *context = q->done_context;
        ended = q->fired;
        done(context, give_back(q, q->status));
        atomic_fetch_sub(&c->owed, 1);
    }
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
            rc = rr_drive(f, q, deadline);
            bool broken = !is_done(q) && atomic_load(&f->state) != RR_COMM_READY;
            rr_family_disown(f);
            if (broken)
                return give_back(q, rr_family_status(f));
        } else if (timeout_ns != 0) {
            if (f->threaded && !*wants)
                atomic_fetch_add(&f->wanted, 1);
            *wants = f->threaded;
            rr_wake_owner(f);
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
    struct ringred_request *head = rr_at_head(c);
    int peer = head && c->active ? rr_stall_missing(c, &head->run) : -1;

    if (q->talks)
        return q->talk.move.way < 0 ? -1 : q->talk.move.peer;
    return peer < 0 ? -1 : rr_engine_member(&c->engine, peer);
}

/* The caller gave up on a blocking call: the others cannot know, so this breaks the communicator.
 * Another thread may own progress, for a request of its own; it leaves when the state is broken. */
static int give_up(ringred_request *q, const char *what, int64_t timeout_ns, bool interrupted)
{
    struct rr_family *f = q->comm->family;
    ringred_error why;
    bool owns = rr_family_own(f);
    int peer = owns ? waits_for(q->comm, q) : -1;

    if (!is_done(q)) {
        unsigned long long number = q->talks ? q->talk.ask.sequence : q->run.ask.sequence;
        if (interrupted)
            rr_fail(&why, RINGRED_EINTERRUPTED, peer, 0, "%s, operation %llu, was interrupted by the caller of rank %d", what,
                    number, f->rank);
        else
            rr_fail(&why, RINGRED_ETIMEOUT, peer, 0, "%s, operation %llu, did not end within %.3g s", what, number,
                    (double)timeout_ns * 1e-9);
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

/* The caller is asked in between whether to go on. */
static int wait_in_slices(ringred_request *q, int64_t timeout_ns, bool *interrupted)
{
    const struct rr_interrupt *interrupt = &q->comm->family->interrupt;
    int64_t deadline = rr_deadline(timeout_ns);
    int rc;

    do {
        int64_t slice = rr_now_ns() + RR_INTERRUPT_NS / 2;
        slice = slice < deadline ? slice : deadline;
        rc = rr_request_wait(q, slice > rr_now_ns() ? slice - rr_now_ns() : 0);
        *interrupted = rc == RINGRED_PENDING && rr_is_interrupted(interrupt);
    } while (rc == RINGRED_PENDING && !*interrupted && rr_now_ns() < deadline);
    return rc;
}

int rr_request_wait_or_break(ringred_request *q, const char *what, int64_t timeout_ns, bool sets_up)
{
    bool interrupted = false;
    int rc;

    if (RR_UNLIKELY(sets_up && q->comm->family->interrupt.fn))
        rc = wait_in_slices(q, timeout_ns, &interrupted);
    else
        rc = rr_request_wait(q, timeout_ns == 0 ? 1 : timeout_ns);
    return RR_LIKELY(rc != RINGRED_PENDING) ? rc : give_up(q, what, timeout_ns, interrupted);
}

int rr_comm_run(ringred_comm *c, const struct rr_call *call)
{
    ringred_request *q;

    RR_TRY(start(c, call, &q));
    return rr_request_wait_or_break(q, rr_collective_name(call->what),
                                    call->timed ? call->timeout_ns : rr_setting(&c->family->settings, RR_SET_TIMEOUT),
                                    call->sets_up);
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
