/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from one rank to another. They are no operations of a communicator: each moves by itself, in the order of
 * the starts, beside whatever plans run. */
#include "core/core.h"

#include <string.h>

static struct rr_transport *links_of(const struct rr_family *f)
{
    return f->links ? f->links->core : f->post;
}

/* With pool taken. */
static int enqueue(ringred_comm *c, const struct rr_message *m, struct ringred_request **request)
{
    struct rr_family *f = c->family;
    struct ringred_request *q = rr_request_take(c);
    size_t each = rr_type_bytes(m->type);

    if (!q)
        return rr_comm_refuse(c, RINGRED_ELIMIT, "%d requests are in flight, the most there may be: wait "
                              "for one first", RR_REQUESTS);
    if (!c->request)
        f->spare = q->next;
    memset(&q->talk, 0, sizeof q->talk);
    q->comm = c;
    q->talks = m->sends ? RR_SENDS : RR_RECEIVES;
    q->message = m->message;
    q->still_ms = 0;
    q->still_done = 0;
    q->stall_said = false;
    q->done = NULL;
    q->talk.ask = (struct rr_ask){ .collective = RR_TALK, .type = (uint8_t)m->type, .root = m->tag, .count = m->count };
    q->talk.element_bytes = each;
    q->talk.most = m->sends ? 0 : m->count;
    q->talk.move.bytes = (void *)(uintptr_t)m->buffer;
    q->talk.move.channel = c->channel;
    q->talk.move.way = m->peer;
    q->talk.move.peer = m->peer < 0 || !c->member ? m->peer : c->member[m->peer];
    q->talk.move.length = m->sends ? m->count * each : 0;
    if (m->sends)
        rr_talk_start_send(links_of(f), &q->talk);
    q->after = NULL;
    atomic_store_explicit(&q->state, RR_REQUEST_RUNNING, memory_order_relaxed);
    atomic_fetch_add(&c->talking, 1);
    *f->talk_comers_end = q;
    f->talk_comers_end = &q->after;
    atomic_store_explicit(&f->comers, 1, memory_order_release);
    *request = q;
    return 0;
}

/* What is sent to a rank through shared memory has room there from the first message on; later there is nobody to be
 * told that there is none. */
static int prepare(ringred_comm *c, const struct rr_message *m)
{
    struct rr_transport *post = c->family->post;
    ringred_error why;

    if (!post || m->peer < 0)
        return 0;
    int rc = rr_post_prepare(post, c->member ? c->member[m->peer] : m->peer, &why);
    return rc < 0 ? rr_comm_refuse(c, rc, "%s", why.text) : 0;
}

int rr_talk_start(ringred_comm *c, const struct rr_message *m, ringred_request **request)
{
    int rc = rr_start_begin(c);

    if (rc < 0)
        return rc;
    rc = prepare(c, m);
    if (rc == 0) {
        pthread_mutex_lock(&c->family->pool);
        rc = enqueue(c, m, request);
        pthread_mutex_unlock(&c->family->pool);
    }
    rr_start_end(c, rc == 0);
    return rc;
}

int rr_talk_run(ringred_comm *c, const struct rr_message *m)
{
    ringred_request *q = NULL;

    RR_TRY(rr_talk_start(c, m, &q));
    return rr_request_wait_or_break(q, m->sends ? "send" : "recv", rr_setting(&c->family->settings, RR_SET_TIMEOUT), false);
}

/* ---- progress ---- */

void rr_talks_come(struct rr_family *f)
{
    struct ringred_request **at = &f->talks;

    if (!f->talk_comers)
        return;
    while (*at)
        at = &(*at)->after;
    *at = f->talk_comers;
    f->talk_comers = NULL;
    f->talk_comers_end = &f->talk_comers;
}

static void end(struct ringred_request *q)
{
    ringred_message *m = q->message;

    if (m) {
        m->source = q->talk.move.way;
        m->tag = q->talk.ask.root;
        m->count = q->talk.ask.count;
    }
    q->status = 0;
    atomic_fetch_sub(&q->comm->talking, 1);
    atomic_store_explicit(&q->state, RR_REQUEST_DONE, memory_order_release);
}

int rr_talks_progress(struct rr_family *f, const struct rr_waiter *w, bool *moved, bool *ended, ringred_error *why)
{
    struct rr_transport *links = links_of(f);

    for (struct ringred_request **at = &f->talks; *at;) {
        struct ringred_request *q = *at;
        size_t done = q->talk.move.done;
        int rc = q->talks == RR_SENDS ? rr_talk_send(links, &q->talk, why) : rr_talk_recv(links, &q->talk, why);
        if (rc < 0)
            return rc;
        *moved = *moved || rc == 0 || done != q->talk.move.done;
        if (rc) {
            at = &q->after;
            continue;
        }
        *at = q->after;
        end(q);
        if (q == w->until) {
            *ended = true;
            return 0;
        }
        f->other_ended = true;
        if (w->stays)
            rr_tell_others(f);
    }
    return 0;
}

int rr_talks_look(struct rr_family *f, int64_t now, ringred_error *why)
{
    for (struct ringred_request *q = f->talks; q; q = q->after) {
        ringred_comm *c = q->comm;
        rr_stall_look_talk(q, now);
        for (int r = 0; r < c->ranks && f->post; r++)
            c->gone[r] |= f->gone[rr_engine_member(&c->engine, r)];
        if (f->post)
            rr_shared_left(c->engine.shared, c->gone);
        RR_TRY(rr_talk_look(links_of(f), &q->talk, f->post ? c->gone : NULL, why));
    }
    return 0;
}
