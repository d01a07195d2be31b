/* SPDX-License-Identifier: Apache-2.0 */
/* Operations and messages that are stuck: past the setting stall_warning one line for each, in words: which it is, for how
 * long nothing has moved, and which ranks have not come to it. A rank of this host has come if it stands in its arrival
 * line, one behind a link if it told that it waits in it. Long before that, the record is told (record.h). */
#include "core/core.h"

#include <stdio.h>
#include <string.h>

#define NOTE_MS 100 /* without a move: the record is told; and how often anew */

/* What an operation waits for; a byte for each rank. */
struct outlook {
    uint8_t awaits[RR_RECORD_RANKS], missing[RR_RECORD_RANKS];
    bool by_others;             /* whom it waits for has come; those that are missing are missed elsewhere */
};

static bool has_come(const ringred_comm *c, const struct rr_run *run, int peer)
{
    const struct rr_engine *e = &c->engine;

    if (e->shared && e->shared->mate[peer].page && (run->lane || run->program->plan->shared))
        return rr_run_has_arrived(e, run, peer);
    return e->links && rr_channel_has_asked(e->links->core, e->channel, peer, run->ask.sequence);
}

static bool are_any(const uint8_t *which)
{
    return memchr(which, 1, RR_RECORD_RANKS) != NULL;
}

static bool is_at_teams(const struct rr_run *run)
{
    return run->team && run->handed;
}

/* Whom it waits for; if they all wait, too, who has not been heard of. */
static void look_out(const ringred_comm *c, const struct rr_run *run, struct outlook *o)
{
    memset(o, 0, sizeof *o);
    if (is_at_teams(run))
        return;
    rr_run_lacks(&c->engine, run, o->awaits);
    for (int peer = 0; peer < c->ranks; peer++) {
        o->awaits[peer] = o->awaits[peer] != 0;
        o->missing[peer] = o->awaits[peer] && !has_come(c, run, peer);
    }
    o->by_others = are_any(o->awaits) && !are_any(o->missing);
    for (int peer = 0; peer < c->ranks && o->by_others; peer++)
        o->missing[peer] = peer != c->rank && !has_come(c, run, peer);
}

/* "1, 3": as the job calls them. */
static void list(const ringred_comm *c, const uint8_t *which, struct rr_text *t)
{
    int n = 0;

    for (int peer = 0; peer < c->ranks; peer++)
        if (which[peer])
            rr_text_add(t, "%s%d", n++ ? ", " : "", rr_engine_member(&c->engine, peer));
}

static void say_who(const ringred_comm *c, const struct rr_run *run, const struct outlook *o, struct rr_text *t)
{
    if (is_at_teams(run)) {
        rr_text_add(t, "its team is at work");
        return;
    }
    if (!are_any(o->awaits)) {
        rr_text_add(t, "this rank has work of its own to do");
        return;
    }
    if (o->by_others) {
        rr_text_add(t, "it waits for rank ");
        list(c, o->awaits, t);
        rr_text_add(t, ", which is in it, too%s", are_any(o->missing) ? "; " : "");
    }
    if (are_any(o->missing)) {
        rr_text_add(t, "not here yet: rank ");
        list(c, o->missing, t);
    }
}

/* All ranks that have asked each other come to the same answer, whomever each of them needs itself. */
int rr_stall_missing(const ringred_comm *c, const struct rr_run *run)
{
    int first = -1, here = 0;

    for (int peer = 0; peer < c->ranks && !is_at_teams(run); peer++) {
        if (peer == c->rank)
            continue;
        bool come = has_come(c, run, peer);
        here += come;
        first = first < 0 && !come ? peer : first;
    }
    return first >= 0 && here ? first : rr_run_waits_for(&c->engine, run, NULL);
}

static void say(const ringred_comm *c, const struct rr_run *run, int64_t waited_ns, const struct outlook *o)
{
    char what[200], who[400] = "";
    struct rr_text asked = { what, sizeof what, 0 }, whom = { who, sizeof who, 0 };

    rr_ask_print(&run->ask, &asked);
    say_who(c, run, o, &whom);
    rr_log(&c->family->log, RINGRED_LOG_WARN, "operation %llu%s, %s, has not moved for %.3g s: %s",
           (unsigned long long)run->ask.sequence, c == c->family->first ? "" : " of a part of the ranks", what,
           (double)waited_ns / 1e9, who);
}

/* Milliseconds since *since, which is 0 before the first look. */
static uint32_t still_for(uint32_t *since, int64_t now)
{
    uint32_t now_ms = (uint32_t)(now / 1000000);

    if (!*since)
        *since = now_ms ? now_ms : 1;
    return now_ms - *since;
}

static bool is_stall(const struct rr_family *f, int64_t still_ns)
{
    int64_t limit = rr_setting(&f->settings, RR_SET_STALL_WARNING);

    return limit >= 0 && still_ns >= limit;
}

/* A short while ago. */
static bool is_noted(const struct rr_record_slot *s, uint64_t number, uint32_t now_ms)
{
    return atomic_load_explicit(&s->still, memory_order_relaxed) == number &&
           now_ms - atomic_load_explicit(&s->noted_ms, memory_order_relaxed) < NOTE_MS;
}

void rr_stall_look(ringred_comm *c, const struct rr_run *run, int64_t now)
{
    uint32_t still_ms = still_for(&c->still_ms, now), now_ms = (uint32_t)(now / 1000000);
    bool says = !c->stall_said && is_stall(c->family, (int64_t)still_ms * 1000000);
    struct outlook o;

    if (!says && (still_ms < NOTE_MS || is_noted(c->record, run->ask.sequence, now_ms)))
        return;
    look_out(c, run, &o);
    rr_record_still(c, run->ask.sequence, o.awaits, o.missing);
    atomic_store_explicit(&c->record->noted_ms, now_ms, memory_order_relaxed);
    if (!says)
        return;
    c->stall_said = true;
    say(c, run, (int64_t)still_ms * 1000000, &o);
    rr_dump_file(c->family);
}

void rr_stall_look_talk(struct ringred_request *q, int64_t now)
{
    const struct rr_move *move = &q->talk.move;
    char what[160], whom[32] = "any rank";
    struct rr_text asked = { what, sizeof what, 0 };

    if (q->still_done != move->done)
        q->still_ms = 0;
    q->still_done = move->done;
    int64_t still_ns = (int64_t)still_for(&q->still_ms, now) * 1000000;
    if (q->stall_said || !is_stall(q->comm->family, still_ns))
        return;
    q->stall_said = true;
    rr_ask_print(&q->talk.ask, &asked);
    if (move->way >= 0)
        snprintf(whom, sizeof whom, "rank %d", move->peer);
    rr_log(&q->comm->family->log, RINGRED_LOG_WARN, "%s %s %s has not moved for %.3g s", what,
           q->talks == RR_SENDS ? "to" : "from", whom, (double)still_ns / 1e9);
}
