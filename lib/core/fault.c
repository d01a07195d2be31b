/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator breaks: once, by the first failure that is found here or on this host; then every
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
static int set(ringred_comm *c, enum rr_comm_state to)
{
    int from = atomic_load(&c->state);

    do {
        if (!(states[from].next & 1u << to))
            return -1;
    } while (!atomic_compare_exchange_weak(&c->state, &from, to));
    return from;
}

static bool log_step(const ringred_comm *c, int from, enum rr_comm_state to)
{
    if (from >= 0)
        rr_log(&c->log, RINGRED_LOG_TRACE, "communicator: %s -> %s", states[from].name, states[to].name);
    return from >= 0;
}

bool rr_comm_set(ringred_comm *c, enum rr_comm_state to)
{
    return log_step(c, set(c, to), to);
}

int rr_comm_status(ringred_comm *c)
{
    pthread_mutex_lock(&c->lock);
    int code = c->fault.code;
    pthread_mutex_unlock(&c->lock);
    return code ? code : RINGRED_EINVAL;
}

int rr_comm_break(ringred_comm *c, const ringred_error *why)
{
    const uint64_t one = 1;
    ringred_error first = *why;
    int from = -1;

    pthread_mutex_lock(&c->lock);
    bool is_first = !c->fault.code;
    if (is_first) {
        if (c->engine.shared)
            (void)rr_shared_judge(c->engine.shared, &first); /* then the host's verdict is ours */
        snprintf(first.transport, sizeof first.transport, "%s",
                 c->all_local ? "shm" : c->engine.shared ? "shm+tcp" : "tcp");
        c->fault = first;
        from = set(c, RR_COMM_BROKEN);
    }
    int code = c->fault.code;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    ssize_t ignored = write(c->wake, &one, sizeof one);
    (void)ignored; /* it can only be full, and then it wakes */
    if (is_first) { /* the log may call back: no lock is held */
        rr_log(&c->log, RINGRED_LOG_ERROR, "%s", first.text);
        (void)log_step(c, from, RR_COMM_BROKEN);
    }
    return code;
}

void rr_comm_tell(ringred_comm *c)
{
    struct rr_transport *links = c->engine.links;

    if (links && !atomic_load(&c->told))
        links->ops->tell(links, &c->fault);
    else if (links)
        links->ops->flush(links); /* what a peer had no room for */
    atomic_store(&c->told, true);
}

int rr_comm_refuse(ringred_comm *c, int code, const char *format, ...)
{
    va_list arguments;
    char text[400];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&c->lock);
    rr_fail(&c->refused, code, -1, 0, "%s", text);
    pthread_mutex_unlock(&c->lock);
    return code;
}
