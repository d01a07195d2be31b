/* SPDX-License-Identifier: Apache-2.0 */
/* The dial: tries the addresses of a rank in turn, again and again with growing patience, until the
 * one who answers proves to be that rank of this job. Whose deadline it is, is its owner's
 * business. */
#include "boot/inside.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_NS ((int64_t)500000000) /* for one address in the first round; doubled in each */
#define PATIENCE_AMONG_MANY \
    ((int64_t)1000000000)             /* at most, where strangers may sit on other candidates */
#define PAUSE_NS   ((int64_t)5000000) /* between the first rounds; doubled in each */
#define PAUSE_MOST ((int64_t)250000000)

void rr_dial_init(struct rr_dial *d, const struct rr_badge *badge, int peer)
{
    memset(d, 0, sizeof *d);
    d->badge = *badge;
    d->peer = peer;
    d->at = -1;
    d->problem = "";
}

static int64_t patience(const struct rr_dial *d)
{
    int64_t ns = PATIENCE_NS << (d->round < 6 ? d->round : 6);

    if (d->roots && !d->strict && ns > PATIENCE_AMONG_MANY)
        ns = PATIENCE_AMONG_MANY;
    return ns < RR_HAND_NS ? ns : RR_HAND_NS;
}

static int64_t pause_after(const struct rr_dial *d)
{
    int64_t ns = PAUSE_NS << (d->round < 6 ? d->round : 6);

    ns = ns < PAUSE_MOST ? ns : PAUSE_MOST;
    return ns / 2 + randombytes_uniform((uint32_t)ns); /* so that many ranks do not come in step */
}

static void next_address(struct rr_dial *d)
{
    rr_hand_drop(&d->hand);
    d->state = RR_DIAL_IDLE;
    d->again_ns = 0;
    if (++d->next < d->count)
        return;
    d->next = 0;
    d->again_ns = rr_now_ns() + pause_after(d);
    d->round++;
}

static bool is_final(enum rr_verdict verdict)
{
    return verdict == RR_VERDICT_VERSION || verdict == RR_VERDICT_KEY;
}

static void step(struct rr_dial *d)
{
    int rc = rr_hand_step(&d->hand);

    if (rc == 0)
        d->state = RR_DIAL_DONE;
    if (rc >= 0)
        return;
    d->seen[d->next].verdict = d->hand.verdict;
    d->seen[d->next].system = d->hand.system;
    if (d->strict && is_final(d->hand.verdict))
        d->state = RR_DIAL_FATAL;
    else
        next_address(d);
}

/* The one address of that family that I may come from; with several, routing knows better. */
static const struct rr_address *source(const struct rr_dial *d, const struct rr_address *to)
{
    const struct rr_address *found = NULL;

    for (int i = 0; d->from && to->family != RR_FAMILY_UNIX && i < d->from->addresses; i++) {
        const struct rr_address *a = &d->from->address[i];
        if (a->family != to->family || a->loopback != to->loopback)
            continue;
        if (found)
            return NULL;
        found = a;
    }
    return found;
}

/* A name may come to mean something else while its owner starts, but asking costs others' time. */
static bool looks_up_now(const struct rr_dial *d)
{
    if (!d->roots || d->next > 0)
        return false;
    return d->round == 0 || d->count == 0 || (!d->roots->numeric && d->round % 8 == 0);
}

static void try_address(struct rr_dial *d)
{
    int fd;

    if (looks_up_now(d))
        d->count = rr_roots_resolve(d->roots, d->to, RR_DIAL_ADDRESSES, &d->problem);
    if (d->count == 0) {
        next_address(d);
        return;
    }
    fd = rr_socket_dial(&d->to[d->next], source(d, &d->to[d->next]),
                        d->to[d->next].loopback ? d->inside : d->outside);
    if (fd < 0) {
        d->seen[d->next].verdict = d->hand.verdict = RR_VERDICT_LOST;
        d->seen[d->next].system = d->hand.system = -fd;
        if (rr_system_code(-fd) == RINGRED_ESYSTEM)
            next_address(d);
        else
            d->state = RR_DIAL_FATAL; /* no descriptor, no memory: trying again would not help */
        return;
    }
    rr_hand_dial(&d->hand, &d->badge, fd, d->peer, rr_now_ns() + patience(d));
    d->state = RR_DIAL_TRYING;
    step(d);
}

void rr_dial_again(struct rr_dial *d)
{
    next_address(d);
}

void rr_dial_polls(struct rr_dial *d, struct rr_polls *p)
{
    d->at = -1;
    if (d->state == RR_DIAL_TRYING) {
        d->at = rr_polls_add(p, d->hand.fd, rr_hand_events(&d->hand));
        rr_polls_wake(p, d->hand.give_up_ns);
    } else if (d->state == RR_DIAL_IDLE) {
        rr_polls_wake(p, d->again_ns);
    }
}

void rr_dial_turn(struct rr_dial *d, const struct rr_polls *p)
{
    int64_t now = rr_now_ns();

    if (d->state == RR_DIAL_TRYING && (rr_polls_ready(p, d->at) || now >= d->hand.give_up_ns))
        step(d);
    /* all that is refused at once is tried in one turn */
    for (int i = 0; d->state == RR_DIAL_IDLE && now >= d->again_ns && i < RR_DIAL_ADDRESSES; i++)
        try_address(d);
}

const struct rr_address *rr_dial_address(const struct rr_dial *d)
{
    return &d->to[d->next];
}

void rr_dial_story(const struct rr_dial *d, struct rr_text *t)
{
    char text[RR_ADDRESS_TEXT];
    int told = 0;

    if (d->count == 0)
        rr_text_add(t, "%s", d->problem);
    for (int i = 0; i < d->count && told < 4; i++) {
        int system = d->seen[i].system;
        if (d->seen[i].verdict == RR_VERDICT_NONE)
            continue;
        rr_text_add(t, "%s%s: %s", told++ ? ", " : "", rr_address_text(&d->to[i], text),
                    system ? strerrordesc_np(system) : rr_verdict_text(d->seen[i].verdict));
    }
    if (d->count && !told)
        rr_text_add(t, "%s: %s", rr_address_text(&d->to[d->next], text),
                    rr_verdict_text(RR_VERDICT_SLOW));
}

void rr_dial_drop(struct rr_dial *d)
{
    if (d)
        rr_hand_drop(&d->hand);
}
