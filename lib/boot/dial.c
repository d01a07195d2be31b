/* SPDX-License-Identifier: Apache-2.0 */
/* The dial: tries the ways to reach a rank, several at once, until the one who answers proves to be that rank
 * of this job. The next candidate begins soon after the last, sooner if that one fails, later if somebody is
 * there, and all begin again, with growing patience, when none was right. So an address that swallows
 * everything costs a moment, and which interface is the right one is found out, not guessed. Whose deadline it
 * is, is its owner's business. */
#include "boot/inside.h"

#include <errno.h>
#include <net/if.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define STAGGER_NS  ((int64_t)30000000)  /* after a candidate that nobody has answered yet */
#define SILENT_NS   ((int64_t)1000000000) /* after one whose kernel has: the process is busy, most likely */
#define SILENT_AMONG_MANY ((int64_t)200000000) /* where it may be a stranger who never speaks first */
#define PATIENCE_NS ((int64_t)500000000) /* for a connection in the first round; doubled in each */
#define PATIENCE_AMONG_MANY \
    ((int64_t)1000000000)             /* at most, where strangers may sit on other candidates */
#define PAUSE_NS   ((int64_t)5000000) /* between the first rounds; doubled in each */
#define PAUSE_MOST ((int64_t)250000000)

void rr_dial_init(struct rr_dial *d, const struct rr_badge *badge, int peer)
{
    memset(d, 0, sizeof *d);
    d->badge = *badge;
    d->peer = peer;
    d->problem = "";
    d->chosen = d->winner = -1;
    for (int i = 0; i < RR_DIAL_RACE; i++)
        d->try[i].at = -1;
}

/* ---- candidates ---- */

static int add(struct rr_candidate *list, int n, const struct rr_address *to, const struct rr_nic *from)
{
    if (n == RR_DIAL_CANDIDATES)
        return n;
    list[n] = (struct rr_candidate){ .to = *to, .from = from };
    return n + 1;
}

/* May it be the source on the way there? Loopback reaches loopback, and what is of use on one wire its like. */
static bool is_source(const struct rr_nic *nic, const struct rr_address *to)
{
    const struct rr_address *a = &nic->address;

    return nic->taken && a->family == to->family && a->loopback == to->loopback &&
           rr_address_is_link_local(a) == rr_address_is_link_local(to) && (!to->scope || to->scope == nic->index);
}

static bool is_loopback_taken(const struct rr_net *net)
{
    for (int i = 0; i < net->count; i++)
        if (net->nic[i].taken && net->nic[i].address.loopback)
            return true;
    return false;
}

/* From where to go to it: from anywhere, or, where the setting interface has picked some, from each of these: those
 * on its network in the first pass, the others in the second. A link-local address lies behind one of my
 * interfaces, and nothing says which. */
static int add_ways(const struct rr_dial *d, const struct rr_address *to, int pass, struct rr_candidate *list, int n)
{
    const struct rr_net *net = d->net;
    bool somewhere = rr_address_is_link_local(to) && !to->scope;
    bool exempt = d->roots && to->loopback && net && !is_loopback_taken(net); /* a launcher's root: leaves no host */

    if (to->family == RR_FAMILY_UNIX || !net || (!net->picked && !somewhere) || exempt)
        return pass ? n : add(list, n, to, NULL);
    for (int i = 0; i < net->count; i++) {
        const struct rr_nic *nic = &net->nic[i];
        struct rr_address a = *to;
        if (!is_source(nic, to) || rr_nic_is_near(nic, to) == (pass == 1))
            continue;
        a.scope = rr_address_is_link_local(to) ? nic->index : 0;
        n = add(list, n, &a, net->picked ? nic : NULL);
    }
    return n;
}

static int list_ways(const struct rr_dial *d, const struct rr_address *to, int count, struct rr_candidate *list)
{
    int n = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            n = add_ways(d, &to[i], pass, list, n);
    return n;
}

void rr_dial_aim(struct rr_dial *d, const struct rr_address *list, int n)
{
    struct rr_candidate ways[RR_DIAL_CANDIDATES];
    int count = list_ways(d, list, n, ways);
    bool same = count == d->count;

    for (int i = 0; i < count && same; i++)
        same = rr_address_same_ip(&ways[i].to, &d->at[i].to) && ways[i].to.port == d->at[i].to.port &&
               ways[i].to.scope == d->at[i].to.scope && ways[i].from == d->at[i].from;
    if (same)
        return; /* and what came of them stays known */
    memcpy(d->at, ways, (size_t)count * sizeof *ways);
    d->count = count;
}

/* A name may come to mean something else while its owner starts, but asking costs others' time. */
static void look_up(struct rr_dial *d)
{
    struct rr_address found[RR_DIAL_CANDIDATES];

    if (!d->roots || !(d->round == 0 || d->count == 0 || (!d->roots->numeric && d->round % 8 == 0)))
        return;
    int n = rr_roots_resolve(d->roots, found, RR_DIAL_CANDIDATES, &d->problem);
    if (n || !d->count) /* not found again says nothing of what was found before */
        rr_dial_aim(d, found, n);
    if (n && !d->count)
        d->problem = "none of the interfaces of the setting interface leads to such an address";
}

/* ---- tries under way ---- */

static int under_way(const struct rr_dial *d)
{
    int n = 0;

    for (int i = 0; i < RR_DIAL_RACE; i++)
        n += d->try[i].hand.state != RR_HAND_FREE;
    return n;
}

/* A free place, if one more may be under way. */
static struct rr_try *place(struct rr_dial *d)
{
    if (under_way(d) > 0 && d->extra && *d->extra >= RR_DIAL_EXTRA)
        return NULL;
    for (int i = 0; i < RR_DIAL_RACE; i++)
        if (d->try[i].hand.state == RR_HAND_FREE)
            return &d->try[i];
    return NULL;
}

static void end_try(struct rr_dial *d, struct rr_try *t)
{
    if (t->hand.state == RR_HAND_FREE)
        return;
    if (d->extra && under_way(d) > 1)
        --*d->extra;
    rr_hand_drop(&t->hand);
}

static bool is_among_many(const struct rr_dial *d)
{
    return d->roots && !d->strict;
}

static int64_t patience(const struct rr_dial *d)
{
    int64_t ns = PATIENCE_NS << (d->round < 6 ? d->round : 6);

    if (is_among_many(d) && ns > PATIENCE_AMONG_MANY)
        ns = PATIENCE_AMONG_MANY;
    return ns < RR_HAND_NS ? ns : RR_HAND_NS;
}

static void pause_dial(struct rr_dial *d, int64_t now)
{
    int64_t ns = PAUSE_NS << (d->round < 6 ? d->round : 6);

    ns = ns < PAUSE_MOST ? ns : PAUSE_MOST;
    d->again_ns = now + ns / 2 + randombytes_uniform((uint32_t)ns); /* so that many ranks do not come in step */
    d->next = 0;
    d->round++;
}

static bool is_final(enum rr_verdict verdict)
{
    return verdict == RR_VERDICT_VERSION || verdict == RR_VERDICT_KEY;
}

/* All candidates were wrong. */
static void end_round(struct rr_dial *d, int64_t now)
{
    for (int i = 0; i < d->count && d->strict; i++)
        if (is_final(d->at[i].verdict)) {
            d->chosen = i;
            d->state = RR_DIAL_FATAL;
            return;
        }
    pause_dial(d, now);
}

static void win(struct rr_dial *d, struct rr_try *t)
{
    d->state = RR_DIAL_DONE;
    d->chosen = t->of;
    d->winner = (int)(t - d->try);
    for (int i = 0; i < RR_DIAL_RACE; i++)
        if (i != d->winner)
            end_try(d, &d->try[i]);
}

static bool is_an_answer(int system)
{
    return system != ETIMEDOUT && system != EHOSTUNREACH && system != ENETUNREACH;
}

static void lose(struct rr_dial *d, struct rr_try *t, int64_t now)
{
    d->at[t->of].verdict = t->hand.verdict;
    d->at[t->of].system = t->hand.system;
    if (t->hand.verdict == RR_VERDICT_VERSION)
        d->version = t->hand.version;
    end_try(d, t);
    d->again_ns = now;
}

static void step(struct rr_dial *d, struct rr_try *t, int64_t now)
{
    bool was_connecting = t->hand.state == RR_HAND_CONNECTING;
    int rc = rr_hand_step(&t->hand);

    if (rc == 0) {
        d->answered = true;
        win(d, t);
    } else if (rc < 0) {
        d->answered = d->answered || (t->hand.verdict != RR_VERDICT_SLOW && is_an_answer(t->hand.system));
        lose(d, t, now);
    } else if (was_connecting && t->hand.state != RR_HAND_CONNECTING) {
        /* somebody is there: it is worth more time, and the others are in less of a hurry */
        d->answered = true;
        if (t->hand.state == RR_HAND_READ_GREETING && t->hand.done == 0)
            t->hand.give_up_ns = now + (is_among_many(d) ? PATIENCE_AMONG_MANY : RR_HAND_NS);
        d->again_ns = now + (is_among_many(d) ? SILENT_AMONG_MANY : SILENT_NS);
    }
}

static void begin_try(struct rr_dial *d, struct rr_try *t, int64_t now)
{
    struct rr_candidate *c = &d->at[d->next];
    int fd = rr_net_dial(d->net, &c->to, c->from, c->to.loopback ? d->inside : d->outside);

    if (fd < 0 && rr_system_code(-fd) != RINGRED_ESYSTEM) { /* no descriptor, no memory */
        if (under_way(d) == 0 && !(d->extra && *d->extra > 0)) {
            d->state = RR_DIAL_FATAL; /* and nobody gives one back: trying again would not help */
            d->chosen = d->next;
        }
        c->verdict = RR_VERDICT_LOST;
        c->system = d->system = -fd;
        d->again_ns = now + PAUSE_NS;
        return;
    }
    t->of = d->next++;
    d->again_ns = now + STAGGER_NS;
    if (fd < 0) {
        c->verdict = RR_VERDICT_LOST;
        c->system = -fd;
        d->again_ns = now;
        return;
    }
    if (d->extra && under_way(d) > 0)
        ++*d->extra;
    rr_hand_dial(&t->hand, &d->badge, fd, d->peer, now + patience(d));
    t->at = -1;
    step(d, t, now);
}

/* Begins what may begin by now; all that is refused at once is through in one turn. */
static void begin(struct rr_dial *d, int64_t now)
{
    for (int i = 0; i <= RR_DIAL_CANDIDATES && d->state == RR_DIAL_TRYING && now >= d->again_ns; i++) {
        if (d->next == 0 && under_way(d) == 0)
            look_up(d);
        if (d->next >= d->count) {
            if (under_way(d) == 0)
                end_round(d, now);
            return;
        }
        struct rr_try *t = place(d);
        if (!t)
            return;
        begin_try(d, t, now);
    }
}

/* ---- the loop's side ---- */

void rr_dial_polls(struct rr_dial *d, struct rr_polls *p)
{
    int busy = 0;

    for (int i = 0; i < RR_DIAL_RACE && d->state == RR_DIAL_TRYING; i++) {
        struct rr_try *t = &d->try[i];
        t->at = -1;
        if (t->hand.state == RR_HAND_FREE)
            continue;
        busy++;
        t->at = rr_polls_add(p, t->hand.fd, rr_hand_events(&t->hand));
        rr_polls_wake(p, t->hand.give_up_ns);
    }
    if (d->state == RR_DIAL_TRYING && (!busy || (d->next < d->count && place(d))))
        rr_polls_wake(p, d->again_ns);
}

void rr_dial_turn(struct rr_dial *d, const struct rr_polls *p)
{
    int64_t now = rr_now_ns();

    for (int i = 0; i < RR_DIAL_RACE && d->state == RR_DIAL_TRYING; i++) {
        struct rr_try *t = &d->try[i];
        if (t->hand.state != RR_HAND_FREE && (rr_polls_ready(p, t->at) || now >= t->hand.give_up_ns))
            step(d, t, now);
    }
    begin(d, now);
}

int rr_dial_take(struct rr_dial *d, struct rr_seal *seal)
{
    struct rr_hand *h = &d->try[d->winner].hand;

    if (seal)
        *seal = h->seal;
    return rr_hand_take(h);
}

void rr_dial_again(struct rr_dial *d)
{
    rr_dial_drop(d);
    d->state = RR_DIAL_TRYING;
    d->chosen = d->winner = -1;
    pause_dial(d, rr_now_ns());
}

/* ---- words ---- */

static bool is_under_way(const struct rr_dial *d, int candidate)
{
    for (int i = 0; i < RR_DIAL_RACE; i++)
        if (d->try[i].hand.state != RR_HAND_FREE && d->try[i].of == candidate)
            return true;
    return false;
}

static void tell_candidate(const struct rr_dial *d, int i, struct rr_text *t)
{
    const struct rr_candidate *c = &d->at[i];
    char text[RR_ADDRESS_TEXT];
    bool tried = c->verdict != RR_VERDICT_NONE;

    rr_text_add(t, "%s%s%s: ", rr_address_text(&c->to, text), c->from ? " from " : "", c->from ? c->from->name : "");
    if (tried && c->system)
        rr_text_add(t, "%s", strerrordesc_np(c->system));
    else
        rr_text_add(t, "%s", rr_verdict_text(tried ? c->verdict : RR_VERDICT_SLOW));
    if (tried && c->system == EADDRINUSE && d->net && d->net->least)
        rr_text_add(t, " (no port of port_range %u-%u is free)", d->net->least, d->net->most);
}

void rr_dial_story(const struct rr_dial *d, struct rr_text *t)
{
    int told = 0;

    if (d->count == 0)
        rr_text_add(t, "%s", d->problem);
    for (int i = 0; i < d->count && told < 4; i++) {
        if (d->at[i].verdict == RR_VERDICT_NONE && !is_under_way(d, i))
            continue;
        rr_text_add(t, "%s", told++ ? ", " : "");
        tell_candidate(d, i, t);
    }
    if (d->count && !told)
        tell_candidate(d, 0, t);
}

void rr_dial_drop(struct rr_dial *d)
{
    for (int i = 0; d && i < RR_DIAL_RACE; i++)
        end_try(d, &d->try[i]);
}
