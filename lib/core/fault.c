/* SPDX-License-Identifier: Apache-2.0 */
/* How a family of communicators breaks: once, by the first failure that is found here or on this host; then every
 * call, pending or later, returns that status, and the peers are told. */
#include "core/core.h"

#include <stdio.h>
#include <unistd.h>

static const struct state_row {
    const char *name;
    unsigned next; /* legal successors, a bit each */
} states[] = {
    [RR_COMM_NEW] = { "new", 1u << RR_COMM_WIRING | 1u << RR_COMM_CLOSED },
    [RR_COMM_WIRING] = { "wiring", 1u << RR_COMM_READY | 1u << RR_COMM_CLOSED },
    [RR_COMM_READY] = { "ready", 1u << RR_COMM_BROKEN | 1u << RR_COMM_CLOSED },
    [RR_COMM_BROKEN] = { "broken", 1u << RR_COMM_CLOSED },
    [RR_COMM_CLOSED] = { "closed", 0 },
};

/* The state before; -1: not a legal step. */
static int set(struct rr_family *f, enum rr_comm_state to)
{
    int from = atomic_load(&f->state);

    do {
        if (!(states[from].next & 1u << to))
            return -1;
    } while (!atomic_compare_exchange_weak(&f->state, &from, to));
    return from;
}

static bool log_step(const struct rr_family *f, int from, enum rr_comm_state to)
{
    if (from >= 0)
        rr_log(&f->log, RINGRED_LOG_TRACE, "communicator: %s -> %s", states[from].name, states[to].name);
    return from >= 0;
}

bool rr_family_set(struct rr_family *f, enum rr_comm_state to)
{
    return log_step(f, set(f, to), to);
}

int rr_family_status(struct rr_family *f)
{
    pthread_mutex_lock(&f->lock);
    int code = f->fault.code;
    pthread_mutex_unlock(&f->lock);
    return code ? code : RINGRED_EABORTED; /* it is being destroyed */
}

int rr_family_break(struct rr_family *f, const ringred_error *why)
{
    const uint64_t one = 1;
    ringred_error first = *why;
    int from = -1;

    pthread_mutex_lock(&f->lock);
    bool is_first = !f->fault.code;
    if (is_first) {
        if (f->shared)
            (void)rr_shared_judge(f->shared, &first); /* then the host's verdict is ours */
        bool shm = f->first && f->first->all_local;
        snprintf(first.transport, sizeof first.transport, "%s%.11s", f->shared ? shm ? "shm" : "shm+" : "",
                 shm ? "" : f->wires.name);
        f->fault = first;
        rr_record_fail(f->record, &first);
        from = set(f, RR_COMM_BROKEN);
    }
    int code = f->fault.code;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    ssize_t ignored = write(f->wake, &one, sizeof one);
    (void)ignored; /* it can only be full, and then it wakes */
    rr_listen_ring(f);
    if (is_first) { /* the log may call back: no lock is held */
        rr_log(&f->log, RINGRED_LOG_ERROR, "%s", first.text);
        (void)log_step(f, from, RR_COMM_BROKEN);
    }
    return code;
}

void rr_family_tell(struct rr_family *f)
{
    struct rr_transport *links = f->links;

    if (links && !atomic_load(&f->told))
        links->ops->tell(links, &f->fault);
    else if (links)
        links->ops->flush(links); /* what a peer had no room for */
    atomic_store(&f->told, true);
}

int rr_comm_refuse(ringred_comm *c, int code, const char *format, ...)
{
    va_list arguments;
    char text[400];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (c->family->forks != rr_forks())
        return RINGRED_EFORKED; /* another thread may have held the lock when it was copied */
    pthread_mutex_lock(&c->family->lock);
    rr_fail(&c->refused, code, -1, 0, "%s", text);
    pthread_mutex_unlock(&c->family->lock);
    return code;
}
