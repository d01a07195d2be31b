/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `faulty`: a rank that misbehaves on purpose, for tests (setting fault, docs/TESTING.md).
 *
 *     fault=KIND:rank=R:after=N[:ms=M]      several with commas; KIND is delay, drop, truncate or kill
 *
 * Rank R does N things that peers can see (messages sent, counters raised), and then: `kill` ends its
 * process; `drop` leaves out the next one; `truncate` sends half of the next message; `delay` waits M
 * milliseconds before each from then on. It stands between the engine and what it decorates, and
 * everything else passes through. */
#include "transport/transport.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAULTS 8

enum kind { NOTHING, DELAY, DROP, TRUNCATE, KILL, KINDS };
static const char *const kinds[KINDS] = { "", "delay", "drop", "truncate", "kill" };

struct faulty {
    struct rr_transport base;
    struct rr_transport *links;  /* NULL: none */
    struct rr_shared *shared;    /* NULL: none */
    struct rr_transport_ops ops; /* links' own, but for send and close */
    bool *counted;               /* [ranks] the message in flight to that peer has been counted */
    uint64_t done;               /* things that peers could see */
    int faults;
    struct fault {
        enum kind kind;
        uint64_t after;
        int64_t ms;
        bool spent;              /* it has happened: all but delays happen once */
    } fault[FAULTS];
};

static void delay(int64_t ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

/* What is to go wrong with the next visible thing. */
static enum kind next(struct faulty *f, bool is_message)
{
    uint64_t now = f->done++;
    enum kind found = NOTHING;

    for (int i = 0; i < f->faults; i++) {
        struct fault *x = &f->fault[i];
        if (now < x->after || x->spent || (x->kind == TRUNCATE && !is_message))
            continue;
        if (x->kind == DELAY) {
            delay(x->ms);
            continue;
        }
        x->spent = true;
        found = x->kind;
    }
    if (found == KILL)
        kill(getpid(), SIGKILL);
    return found;
}

static int faulty_send(struct rr_transport *t, struct rr_move *m, ringred_error *why)
{
    struct faulty *f = (struct faulty *)t;

    if (!f->counted[m->peer]) { /* a message is tried until it is out; it counts once */
        enum kind kind = next(f, true);
        if (kind == DROP)
            return 0;
        if (kind == TRUNCATE)
            m->length /= 2;
        f->counted[m->peer] = true;
    }
    int rc = f->links->ops->send(f->links, m, why);
    if (rc != RINGRED_PENDING)
        f->counted[m->peer] = false;
    return rc;
}

static bool faulty_publish(void *context)
{
    return next(context, false) != DROP;
}

/* ---- what passes through ---- */

static int faulty_recv(struct rr_transport *t, struct rr_move *m, ringred_error *why)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->recv(links, m, why);
}

static int faulty_check(struct rr_transport *t, uint8_t *gone, ringred_error *why)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->check(links, gone, why);
}

static void faulty_begin(struct rr_transport *t, struct rr_channel *channel, const struct rr_ask *ask)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    links->ops->begin(links, channel, ask);
}

static int faulty_watch(struct rr_transport *t, int epoll, ringred_error *why)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->watch(links, epoll, why);
}

static int faulty_arm(struct rr_transport *t)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->arm(links);
}

static void faulty_tell(struct rr_transport *t, const ringred_error *why)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    links->ops->tell(links, why);
}

static void faulty_flush(struct rr_transport *t)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    links->ops->flush(links);
}

static void faulty_probe(struct rr_transport *t, struct rr_channel *channel, const struct rr_ask *ask)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    links->ops->probe(links, channel, ask);
}

static int faulty_explain(struct rr_transport *t, int peer, ringred_error *why)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->explain(links, peer, why);
}

static bool faulty_silent(struct rr_transport *t, int peer)
{
    struct rr_transport *links = ((struct faulty *)t)->links;
    return links->ops->silent(links, peer);
}

static void faulty_describe(const struct rr_transport *t, struct rr_text *text)
{
    const struct rr_transport *links = ((const struct faulty *)t)->links;
    links->ops->describe(links, text);
}

static int faulty_close(struct rr_transport *t, uint64_t last, int64_t deadline_ns)
{
    struct faulty *f = (struct faulty *)t;
    int rc = f->links->ops->close(f->links, last, deadline_ns);

    rr_free(f); /* counted lies behind it */
    return rc;
}

/* ---- reading the setting ---- */

static int parse_one(const char *text, struct fault *x, int *rank, ringred_error *why)
{
    char word[16];
    int r = 0, ms = 0, end = 0, more = 0;
    long after = 0;

    x->kind = NOTHING;
    if (sscanf(text, "%15[a-z]:rank=%6d:after=%9ld%n", word, &r, &after, &end) >= 3 && end) {
        if (sscanf(text + end, ":ms=%9d%n", &ms, &more) >= 1)
            end += more;
        for (int k = DELAY; k < KINDS && (text[end] == 0 || text[end] == ','); k++)
            if (strcmp(word, kinds[k]) == 0)
                x->kind = (enum kind)k;
    }
    if (x->kind == NOTHING || after < 0 || ms < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "fault is \"%.64s\", which is not of the form kind:rank=R:after=N[:ms=M] with a "
                       "kind of delay, drop, truncate, kill", text);
    x->after = (uint64_t)after;
    x->ms = ms;
    *rank = r;
    return 0;
}

static int parse(struct faulty *f, int me, const char *text, bool links, ringred_error *why)
{
    while (text && *text) {
        struct fault x = { NOTHING, 0, 0, false };
        int rank = -1;
        RR_TRY(parse_one(text, &x, &rank, why));
        if (x.kind == TRUNCATE && !links)
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "fault=truncate cuts messages, and this communicator has no links");
        if (rank == me && f->faults < FAULTS)
            f->fault[f->faults++] = x;
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

int rr_faulty_wrap(int ranks, int me, const struct rr_settings *settings,
                   struct rr_transport **links, struct rr_shared *shared, ringred_error *why)
{
    const char *text = rr_setting_text(settings, RR_SET_FAULT);

    if (!*text)
        return 0;
    struct faulty *f = rr_alloc(1, sizeof *f + (size_t)ranks * sizeof *f->counted);
    if (!f)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for faults");
    int rc = parse(f, me, text, *links != NULL, why);
    if (rc < 0) {
        rr_free(f);
        return rc;
    }
    f->base.ops = &f->ops;
    f->base.core = *links;
    f->counted = (bool *)(f + 1);
    f->links = *links;
    f->shared = shared;
    if (shared) {
        shared->publish = faulty_publish;
        shared->publish_context = f; /* freed with the links, or with the shared memory */
        shared->publish_owned = !*links;
    }
    if (*links) {
        f->ops = (struct rr_transport_ops){ .struct_size = sizeof f->ops,
                                            .name = f->links->ops->name,
                                            .ordered = f->links->ops->ordered,
                                            .send = faulty_send,
                                            .recv = faulty_recv,
                                            .check = faulty_check,
                                            .begin = faulty_begin,
                                            .watch = faulty_watch,
                                            .arm = faulty_arm,
                                            .tell = faulty_tell,
                                            .flush = faulty_flush,
                                            .probe = faulty_probe,
                                            .close = faulty_close,
                                            .explain = faulty_explain,
                                            .silent = faulty_silent,
                                            .describe = faulty_describe };
        *links = &f->base;
    }
    return 0;
}
