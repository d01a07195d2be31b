/* SPDX-License-Identifier: Apache-2.0 */
/* The poll set, and the gate: accepts connections and keeps each apart until it has proved whose it
 * is. Strangers cost a bounded number of descriptors and never hold up an honest peer. */
#include "boot/inside.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 16
#define SPARED_NS        ((int64_t)250000000) /* no guest younger than that is thrown out */

/* ---- polls ---- */

int rr_polls_add(struct rr_polls *p, int fd, short events)
{
    if (p->used == p->room)
        return -1; /* there is room for all there can be; one left out is served at the next wake */
    p->at[p->used] = (struct pollfd){ .fd = fd, .events = events };
    return p->used++;
}

bool rr_polls_ready(const struct rr_polls *p, int index)
{
    return index >= 0 && p->at[index].revents != 0;
}

void rr_polls_wake(struct rr_polls *p, int64_t when_ns)
{
    if (when_ns < p->wake_ns)
        p->wake_ns = when_ns;
}

/* ---- gate ---- */

void rr_gate_polls(struct rr_gate *g, struct rr_polls *p)
{
    bool paused = rr_now_ns() < g->pause_ns;

    for (int i = 0; i < g->listeners; i++)
        g->at[i] = paused ? -1 : rr_polls_add(p, g->listener[i], POLLIN);
    if (paused)
        rr_polls_wake(p, g->pause_ns);
    for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
        struct rr_guest *s = &g->guest[i];
        if (s->hand.state == RR_HAND_FREE)
            continue;
        s->at = rr_polls_add(p, s->hand.fd, rr_hand_events(&s->hand));
        rr_polls_wake(p, s->hand.give_up_ns);
    }
}

static void peer_text(int fd, char text[RR_ADDRESS_TEXT])
{
    struct sockaddr_storage s = { 0 };
    socklen_t n = sizeof s;
    struct rr_address a;

    snprintf(text, RR_ADDRESS_TEXT, "an unknown address");
    if (getpeername(fd, (struct sockaddr *)&s, &n) < 0)
        return;
    rr_address_of((struct sockaddr *)&s, &a);
    if (a.family != RR_FAMILY_NONE)
        rr_address_text(&a, text);
}

/* One line in the log for the first; the rest are counted. A connection that closes without a word
 * (a health check, a peer that tries elsewhere) is no news. */
static void note_stranger(struct rr_gate *g, const struct rr_hand *h, const char *from,
                          const struct rr_log *log)
{
    char claim[32] = "";

    if (h->verdict == RR_VERDICT_LOST && h->done == 0)
        return;
    if (h->peer >= 0)
        snprintf(claim, sizeof claim, ", said to be rank %d", h->peer);
    if (h->verdict >= g->worst) {
        g->worst = h->verdict;
        g->version = h->version;
        snprintf(g->last, sizeof g->last, "%s%s: %s", from, claim, rr_verdict_text(h->verdict));
    }
    if (g->strangers++ == 0)
        rr_log(log, RINGRED_LOG_WARN,
               "refused a connection from %s%s: %s (more of them are only counted)", from, claim,
               rr_verdict_text(h->verdict));
}

static void guest_turn(struct rr_gate *g, struct rr_guest *s, const struct rr_log *log,
                       rr_admit *admit, void *context)
{
    char from[RR_ADDRESS_TEXT];
    struct rr_seal seal;
    int rc, rank, stream;

    peer_text(s->hand.fd, from);
    rc = rr_hand_step(&s->hand);
    if (rc == RINGRED_PENDING)
        return;
    if (rc < 0) {
        note_stranger(g, &s->hand, from, log);
        rr_hand_drop(&s->hand);
        return;
    }
    rank = s->hand.peer;
    stream = s->hand.stream;
    seal = s->hand.seal;
    admit(context, rr_hand_take(&s->hand), rank, stream, &seal);
    sodium_memzero(&seal, sizeof seal);
}

/* Has it proved itself? Then its dialler may have taken it already, and would not come again. */
static bool is_welcome(const struct rr_guest *s)
{
    return s->hand.state == RR_HAND_SEND_WELCOME || s->hand.state == RR_HAND_READ_TAKEN;
}

/* A free place, or that of the oldest guest who has not proved itself, who keeps it until somebody
 * has come; NULL if even that one has only just come itself, or there is none. */
static struct rr_guest *place(struct rr_gate *g, int64_t now)
{
    struct rr_guest *oldest = NULL;

    for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
        struct rr_guest *s = &g->guest[i];
        if (s->hand.state == RR_HAND_FREE)
            return s;
        if (!is_welcome(s) && (!oldest || s->since_ns < oldest->since_ns))
            oldest = s;
    }
    if (oldest && now - oldest->since_ns >= SPARED_NS)
        return oldest;
    g->pause_ns = (oldest ? oldest->since_ns : now) + SPARED_NS;
    return NULL;
}

/* Out of descriptors: pause until somebody has closed one, and say so if nobody here can. */
static void keep_out(struct rr_gate *g, int system, int64_t now)
{
    bool alone = true;

    for (int i = 0; i < RR_BOOT_STRANGERS; i++)
        alone = alone && g->guest[i].hand.state == RR_HAND_FREE;
    g->pause_ns = now + SPARED_NS;
    if (alone)
        g->limited = system;
}

static void let_in(struct rr_gate *g, int listener, const struct rr_log *log, rr_admit *admit,
                   void *context)
{
    int one = 1;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int64_t now = rr_now_ns();
        struct rr_guest *s = place(g, now);
        if (!s)
            return;
        int fd = rr_fd_accept(listener);
        if (fd < 0) {
            if (rr_system_code(errno) != RINGRED_ESYSTEM)
                keep_out(g, errno, now);
            if (errno != EINTR && errno != ECONNABORTED)
                return;
            continue;
        }
        if (s->hand.state != RR_HAND_FREE) {
            g->strangers++;
            rr_hand_drop(&s->hand);
        }
        if (g->badge.purpose != RR_PURPOSE_LOCAL)
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* slower without */
        rr_hand_accept(&s->hand, &g->badge, fd);
        s->since_ns = now;
        s->at = -1;
        guest_turn(g, s, log, admit, context); /* a quick peer may be through at once */
    }
}

void rr_gate_turn(struct rr_gate *g, const struct rr_polls *p, const struct rr_log *log,
                  rr_admit *admit, void *context)
{
    int64_t now = rr_now_ns();

    for (int i = 0; i < RR_BOOT_STRANGERS; i++) {
        struct rr_guest *s = &g->guest[i];
        if (s->hand.state == RR_HAND_FREE)
            continue;
        if (rr_polls_ready(p, s->at) || now >= s->hand.give_up_ns)
            guest_turn(g, s, log, admit, context);
    }
    for (int i = 0; i < g->listeners; i++)
        if (rr_polls_ready(p, g->at[i]))
            let_in(g, g->listener[i], log, admit, context);
}

void rr_gate_shut(struct rr_gate *g)
{
    for (int i = 0; g && i < RR_BOOT_STRANGERS; i++)
        rr_hand_drop(&g->guest[i].hand);
    if (g)
        g->open = false;
}

void rr_gate_free(struct rr_gate *g)
{
    if (!g)
        return;
    rr_gate_shut(g);
    for (int i = 0; i < g->listeners && !g->borrowed; i++)
        rr_fd_close(g->listener[i]);
    rr_free(g);
}
