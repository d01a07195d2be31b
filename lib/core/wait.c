/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: spin, then give way (sched_yield), then sleep on one epoll set that everything which can end
 * the wait is in: the mates' doorbell, their processes, the sockets, and our own wake-up. Spinning is
 * right only while the rank that we wait for has a CPU of its own. That is not so where ranks outnumber
 * CPUs, and not when other jobs push two ranks onto one CPU, which nobody tells us: so a spin that was
 * in vain makes the next ones short, until one succeeds. The peers' health is looked after now and
 * then, and before each sleep. */
#include "core/core.h"

#include <sched.h>
#include <sys/epoll.h>

#define LOOK_NS 5000000       /* between two looks at the peers' health while spinning */
#define PROBE_NS 100000000    /* waited for so long: ask the peers what they are doing */
#define SPIN_TURNS 16         /* turns of spinning, about 20 us, before giving way */
#define SHORT_TURNS 1         /* where spinning was in vain lately */
#define HOGGED_NS 100000      /* a yield that takes longer was a bad idea */
#define CLOCK_TURNS 8         /* turns between two readings of the clock */
#define GONE_NS 1000000000    /* what a team has to end in once a rank is gone: that may have done its part */

/* An operation that has waited for long, however its waits are cut, asks the peers what they do. */
static void probe_if_time(ringred_comm *c, const struct rr_run *run, int64_t now)
{
    if (!c->probe_ns)
        c->probe_ns = now + PROBE_NS;
    if (now < c->probe_ns || !c->engine.links)
        return;
    c->engine.links->ops->probe(c->engine.links, c->engine.channel, &run->ask);
    c->probe_ns = now + 10 * PROBE_NS;
}

/* 1 + the operation after which a rank left; 0: it has not, or said nothing. */
static uint64_t left_after(const ringred_comm *c, int peer)
{
    const struct rr_engine *e = &c->engine;
    uint64_t left = e->links ? rr_channel_left_after(e->links->core, e->channel, peer) : 0;

    if (e->shared && e->shared->mate[peer].page && (c->gone[peer] & RR_GONE_MEMORY))
        left = atomic_load(&e->shared->mate[peer].page->left);
    return left;
}

/* While a team is at work it needs all ranks, but those that have ended this operation. -1: it has them, or still has
 * time to end. */
static int team_lacks(const ringred_comm *c, const struct rr_run *run, int64_t now)
{
    struct rr_crew *crew = c->engine.crew;

    for (int peer = 0; crew && peer < c->ranks; peer++) {
        if (peer == c->rank || !c->gone[peer] || left_after(c, peer) > run->ask.sequence)
            continue;
        if (!crew->gone_ns)
            crew->gone_ns = now;
        return now - crew->gone_ns < GONE_NS && !crew->lost.code ? -1 : peer;
    }
    return -1;
}

/* Does the operation under way need a rank that is gone? */
static int look_at(ringred_comm *c, const struct rr_run *run, int64_t now, ringred_error *why)
{
    struct rr_engine *e = &c->engine;

    for (int r = 0; r < c->ranks; r++)
        c->gone[r] |= c->family->gone[rr_engine_member(e, r)];
    if (e->shared)
        rr_shared_left(e->shared, c->gone);
    if (e->links)
        rr_channel_left(e->links->core, e->channel, c->gone);
    int peer = run->team && run->handed ? team_lacks(c, run, now) : rr_run_waits_for(e, run, c->gone);
    if (peer < 0)
        return 0;
    int them = rr_engine_member(e, peer);
    uint64_t left = left_after(c, peer);
    bool shares = e->shared && e->shared->mate[peer].page && (c->gone[peer] & RR_GONE_MEMORY);
    if (shares && !left)
        return rr_fail(why, RINGRED_EPEER, them, 0, "rank %d is gone: its process has ended", them);
    if (left)
        return rr_fail(why, RINGRED_EPEER, them, 0,
                       "rank %d left the communicator after operation %llu, while this rank is in operation %llu",
                       them, (unsigned long long)left - 1, (unsigned long long)run->ask.sequence);
    return e->links->ops->explain(e->links, them, why);
}

/* What the peers' kernels and the host's verdict say. */
int rr_wait_look(struct rr_family *f, int64_t now, ringred_error *why)
{
    if (f->shared) {
        if (rr_shared_verdict(f->shared, why))
            return why->code;
        f->shared->check(f->shared, f->gone);
    }
    if (f->links)
        RR_TRY(f->links->ops->check(f->links, f->gone, why));
    for (ringred_comm *c = f->running; c; c = c->next) {
        if (!c->active)
            continue;
        const struct rr_run *run = &rr_at_head(c)->run;
        probe_if_time(c, run, now);
        rr_stall_look(c, run, now);
        RR_TRY(look_at(c, run, now, why));
    }
    if (f->talks)
        RR_TRY(rr_talks_look(f, now, why));
    return 0;
}

int rr_wait_lie_down(struct rr_family *f, struct rr_waiter *w, int64_t now, int *most_ms, bool *moved,
                     ringred_error *why)
{
    if (f->listener.lies)
        rr_wait_get_up(f);
    atomic_store(&f->asleep, 1);
    if (f->shared && rr_shared_sleep_begin(f->shared) < 0)
        *most_ms = now - w->since_ns > 32000000 ? 2 : 1; /* nobody will ring: sleep in proportion */
    if (RR_UNLIKELY(!rr_teams_ring(f)))
        *most_ms = 1;
    bool again = f->links && f->links->ops->arm(f->links) == RINGRED_PENDING;
    int rc = rr_progress(f, w, moved, why);
    *moved = *moved || again;
    return rc;
}

void rr_wait_get_up(struct rr_family *f)
{
    if (f->shared)
        rr_shared_sleep_end(f->shared);
    atomic_store_explicit(&f->asleep, 0, memory_order_relaxed);
    f->listener.lies = false;
}

/* Sleeps unless what we wait for came while we were getting ready to. */
static int sleep_turn(struct rr_family *f, struct rr_waiter *w, int64_t now, int64_t deadline_ns,
                      ringred_error *why)
{
    struct epoll_event event[8];
    int most = RR_SLEEP_MS;
    bool moved;
    int rc = rr_wait_lie_down(f, w, now, &most, &moved, why);

    if (rc == RINGRED_PENDING && !moved && atomic_load(&f->state) == RR_COMM_READY)
        (void)epoll_wait(f->epoll, event, 8, rr_deadline_ms(deadline_ns, most)); /* errors: look again */
    rr_wait_get_up(f);
    return rc;
}

void rr_wait_ended(struct rr_family *f, struct rr_waiter *w)
{
    if (w->turns == 0)
        return;
    if (w->turns > SPIN_TURNS)
        f->vain = f->vain < 3 ? f->vain + 1 : 3;
    else if (w->turns <= SHORT_TURNS && f->vain)
        f->vain--;
    w->since_ns = w->look_ns = w->last_ns = 0;
    w->turns = 0;
}

/* false: spinning is of no use now. */
static bool spin(const struct rr_family *f, const struct rr_waiter *w)
{
    uint32_t spins = f->crowded ? 0 : f->vain > 1 ? SHORT_TURNS : SPIN_TURNS;

    if (w->turns >= spins)
        return false;
    rr_pause();
    return true;
}

int rr_wait_turn(struct rr_family *f, struct rr_waiter *w, int64_t deadline_ns, ringred_error *why)
{
    bool spun = spin(f, w);

    if (!spun)
        sched_yield();
    if (++w->turns % CLOCK_TURNS && spun)
        return RINGRED_PENDING;

    int64_t now = rr_now_ns(), passed = now - w->last_ns;
    w->last_ns = now;
    if (!w->since_ns) {
        w->since_ns = now;
        w->look_ns = now + LOOK_NS;
        return RINGRED_PENDING;
    }
    if (now >= deadline_ns)
        return RR_WAIT_OVER;
    /* a yield that took long went to somebody with much to do: asleep, we are preferred on waking */
    bool tired = now - w->since_ns >= f->spin_ns || (!spun && passed > HOGGED_NS);
    if (now >= w->look_ns || tired) {
        RR_TRY(rr_wait_look(f, now, why));
        w->look_ns = now + LOOK_NS;
    }
    if (!tired)
        return RINGRED_PENDING;
    int rc = sleep_turn(f, w, now, deadline_ns, why);
    w->last_ns = rr_now_ns();
    return rc;
}

int rr_wait_poll(struct rr_family *f, ringred_error *why)
{
    int64_t now = rr_now_ns();

    if (now < f->look_ns)
        return RINGRED_PENDING;
    f->look_ns = now + LOOK_NS;
    RR_TRY(rr_wait_look(f, now, why));
    return RINGRED_PENDING;
}
