/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are stuck: past the setting stall_warning one line for each, in words: which it is, for how long
 * nothing has moved, and which ranks have not come to it. A rank of this host has come if it stands in its arrival
 * line, one behind a link if it told that it waits in it. */
#include "core/core.h"

static bool has_come(const ringred_comm *c, const struct rr_run *run, int peer)
{
    const struct rr_engine *e = &c->engine;

    if (e->shared && e->shared->mate[peer].page && (run->lane || run->program->plan->shared))
        return rr_run_has_arrived(e, run, peer);
    return e->links && rr_channel_has_asked(e->links->core, e->channel, peer, run->ask.sequence);
}

/* "1, 3": the ranks of the job that `which` marks and that have come, or have not. How many. */
static int list(const ringred_comm *c, const struct rr_run *run, const uint8_t *which, bool come, struct rr_text *t)
{
    int n = 0;

    for (int peer = 0; peer < c->ranks; peer++)
        if (which[peer] && has_come(c, run, peer) == come)
            rr_text_add(t, "%s%d", n++ ? ", " : "", rr_engine_member(&c->engine, peer));
    return n;
}

/* Who it waits for; if they all wait, too, who has not been heard of. */
static void say_who(const ringred_comm *c, const struct rr_run *run, uint8_t *lacks, struct rr_text *t)
{
    size_t used;

    if (run->team && run->handed) {
        rr_text_add(t, "its team is at work");
        return;
    }
    rr_run_lacks(&c->engine, run, lacks);
    used = t->used;
    rr_text_add(t, "not here yet: rank ");
    if (list(c, run, lacks, false, t))
        return;
    t->used = used;
    rr_text_add(t, "it waits for rank ");
    if (!list(c, run, lacks, true, t)) {
        t->used = used;
        rr_text_add(t, "this rank has work of its own to do");
        return;
    }
    for (int peer = 0; peer < c->ranks; peer++)
        lacks[peer] = peer != c->rank;
    used = t->used;
    rr_text_add(t, ", which is in it, too; not here yet: rank ");
    if (!list(c, run, lacks, false, t))
        t->used = used;
}

static void say(const ringred_comm *c, const struct rr_run *run, int64_t waited_ns, uint8_t *lacks)
{
    char what[200], who[400] = "";
    struct rr_text asked = { what, sizeof what, 0 }, whom = { who, sizeof who, 0 };

    rr_ask_print(&run->ask, &asked);
    say_who(c, run, lacks, &whom);
    who[whom.used < sizeof who ? whom.used : sizeof who - 1] = 0;
    rr_log(&c->family->log, RINGRED_LOG_WARN, "operation %llu%s, %s, has not moved for %.3g s: %s",
           (unsigned long long)run->ask.sequence, c == c->family->first ? "" : " of a part of the ranks", what,
           (double)waited_ns / 1e9, who);
}

void rr_stall_look(ringred_comm *c, const struct rr_run *run, int64_t now)
{
    int64_t limit = rr_setting(&c->family->settings, RR_SET_STALL_WARNING);
    uint32_t now_ms = (uint32_t)(now / 1000000);

    if (!c->still_ms)
        c->still_ms = now_ms ? now_ms : 1;
    int64_t still_ns = (int64_t)(uint32_t)(now_ms - c->still_ms) * 1000000;
    if (c->stall_said || limit < 0 || still_ns < limit)
        return;
    c->stall_said = true;
    uint8_t *lacks = rr_alloc((size_t)c->ranks, 1);
    if (lacks)
        say(c, run, still_ns, lacks);
    rr_free(lacks);
}
