/* SPDX-License-Identifier: Apache-2.0 */
/* progress=thread: one thread of the process moves what was started, of all families that ask for it. It owns the
 * progress of a family only while something is in flight there and no caller wants to own it: whoever waits moves
 * things himself, as without the thread. It sleeps, holding what it owns, in one epoll set of all their epoll sets;
 * of those that it does not hold none can wake it, and where nothing is in flight it sleeps for ever. */
#include "core/core.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SPIN_NS 20000          /* after something has moved, where there are CPUs for it */
#define LOOK_NS 5000000        /* between two looks at the peers' health while something is in flight */
#define MOVES 16               /* of one family before the others' turn */

struct rr_mover {
    struct rr_family *family;
    struct rr_mover *next;
    bool held;                  /* the thread owns its progress */
    bool lies;                  /* between rr_wait_lie_down and rr_wait_get_up */
    struct rr_waiter waiter;
};

/* What the process has one of. */
static struct {
    pthread_mutex_t gate;       /* one attaches or detaches at a time; held across a fork */
    int users;                  /* guarded by gate */
    pthread_t thread;

    pthread_mutex_t lock;       /* guards change and its kind; held across a fork */
    pthread_cond_t changed;
    struct rr_mover *change;    /* to be added or taken off; NULL: nothing */
    bool adds, stops;

    _Atomic uint32_t news;      /* there is a change */
    _Atomic uint32_t asleep;    /* or about to be: look for news, and at poked of every family, then sleep */
    int epoll, wake;

    struct rr_mover *movers;    /* the thread's */
} all = { .gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .changed = PTHREAD_COND_INITIALIZER, .epoll = -1, .wake = -1 };

/* ---- forks: the child has no thread, and what its parent's looked after is not its own ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&all.gate);
    pthread_mutex_lock(&all.lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&all.lock);
    pthread_mutex_unlock(&all.gate);
}

static void after_in_child(void)
{
    all.users = 0;
    all.change = NULL;
    all.movers = NULL;
    all.epoll = all.wake = -1; /* closed with all of ours */
    atomic_store(&all.news, 0);
    atomic_store(&all.asleep, 0);
    pthread_cond_init(&all.changed, NULL);
    after_in_parent();
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_in_parent, after_in_child); /* without memory for it: no new thread */
}

/* ---- the CPUs ---- */

/* "0-3,7"; false: not of that form, or no CPU below CPU_SETSIZE. */
static bool parse_cpus(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (*text) {
        char *end;
        if (!isdigit((unsigned char)*text))
            return false;
        unsigned long from = strtoul(text, &end, 10), to = from;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return false;
            to = strtoul(end + 1, &end, 10);
        }
        if (from > to || to >= CPU_SETSIZE || (*end && *end != ',') || (*end && !end[1]))
            return false;
        for (; from <= to; from++)
            CPU_SET(from, set);
        text = *end ? end + 1 : end;
    }
    return true;
}

int rr_mover_check(const struct rr_settings *settings, ringred_error *why)
{
    const char *cpus = rr_setting_text(settings, RR_SET_PROGRESS_CPUS);
    cpu_set_t set;

    return parse_cpus(cpus, &set) ? 0
                                  : rr_fail(why, RINGRED_ESETTING, -1, 0,
                                            "progress_cpus is \"%.64s\", which is not a list of CPUs such as 0-3,7", cpus);
}

/* ---- one family's turn ---- */

static void let_go(struct rr_mover *m)
{
    m->held = false;
    m->waiter.since_ns = 0;
    rr_family_disown(m->family);
}

static bool may_take(struct rr_family *f)
{
    return atomic_load(&f->poked) && !atomic_load(&f->wanted);
}

/* Between taking `poked` back and owning, another may have owned progress and looked at it in vain: so it is set
 * again before the last try. Whoever owns progress then wakes us. */
static bool take(struct rr_family *f)
{
    if (!may_take(f))
        return false;
    atomic_store(&f->poked, 0);
    if (rr_family_own(f))
        return true;
    atomic_store(&f->poked, 1);
    return rr_family_own(f);
}

static bool is_wanted(struct rr_family *f)
{
    return atomic_load(&f->wanted) || atomic_load(&f->state) != RR_COMM_READY;
}

/* Did anything move? */
static bool serve(struct rr_mover *m, int64_t now)
{
    struct rr_family *f = m->family;
    ringred_error why;
    bool moved = false, any = false;
    int rc = RINGRED_PENDING;

    if (!m->held && !take(f))
        return false;
    m->held = true;
    for (int i = 0; i < MOVES && rc == RINGRED_PENDING && !is_wanted(f); i++) {
        rc = rr_progress(f, &m->waiter, &moved, &why);
        if (f->ended)
            rr_fire_ended(f);
        any = any || moved;
        if (!moved)
            break;
    }
    if (any || !m->waiter.since_ns) {
        m->waiter.since_ns = now;
        m->waiter.look_ns = now + LOOK_NS;
    } else if (rc == RINGRED_PENDING && now >= m->waiter.look_ns) {
        m->waiter.look_ns = now + LOOK_NS;
        rc = rr_wait_look(f, now, &why);
        rc = rc < 0 ? rc : RINGRED_PENDING;
    }
    if (rc < 0)
        (void)rr_family_break(f, &why); /* every request reads what counts from the family */
    if (rc != RINGRED_PENDING || is_wanted(f))
        let_go(m);
    return any;
}

/* ---- sleeping ---- */

static void arm(struct rr_mover *m, uint32_t events)
{
    struct epoll_event event = { .events = events | EPOLLONESHOT, .data.ptr = m };

    (void)epoll_ctl(all.epoll, EPOLL_CTL_MOD, m->family->epoll, &event); /* it is there; then we sleep in slices */
}

/* The family's own set is edge-triggered: what it tells is taken out, and looked for. */
static void drain(struct rr_family *f)
{
    struct epoll_event event[8];

    while (epoll_wait(f->epoll, event, 8, 0) == 8)
        ;
}

/* May the thread sleep, as far as this family goes? It then lies down for what it holds of it. */
static bool lie_down(struct rr_mover *m, int64_t now, int *most_ms)
{
    struct rr_family *f = m->family;
    ringred_error why;
    bool moved = false;

    if (!m->held)
        return !may_take(f) || atomic_load(&f->owned);
    int mine = RR_SLEEP_MS, rc = rr_wait_look(f, now, &why);
    if (rc >= 0 && !is_wanted(f)) {
        m->lies = true;
        rc = rr_wait_lie_down(f, &m->waiter, now, &mine, &moved, &why);
    }
    if (rc < 0)
        (void)rr_family_break(f, &why);
    *most_ms = *most_ms < 0 || mine < *most_ms ? mine : *most_ms;
    return rc == RINGRED_PENDING && !moved && !is_wanted(f);
}

static void sleep_on_all(int64_t now)
{
    struct epoll_event event[8];
    struct rr_mover *m;
    int most = -1;
    bool may = true;

    atomic_store(&all.asleep, 1);
    for (m = all.movers; m; m = m->next)
        may = lie_down(m, now, &most) && may;
    if (may && !atomic_load(&all.news)) {
        for (m = all.movers; m; m = m->next)
            if (m->held)
                arm(m, EPOLLIN);
        (void)epoll_wait(all.epoll, event, 8, most); /* errors: look again */
    }
    for (m = all.movers; m; m = m->next) {
        if (!m->lies)
            continue;
        drain(m->family);
        rr_wait_get_up(m->family);
        m->lies = false;
    }
    atomic_store(&all.asleep, 0);
}

/* ---- the thread ---- */

static void take_off(struct rr_mover *m)
{
    struct rr_mover **at = &all.movers;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    if (m->held)
        let_go(m);
}

/* false: that was the last. */
static bool take_news(void)
{
    bool goes_on = true;

    if (RR_LIKELY(!atomic_load(&all.news)))
        return true;
    pthread_mutex_lock(&all.lock);
    struct rr_mover *m = all.change;
    if (m && all.adds) {
        m->next = all.movers;
        all.movers = m;
    }
    pthread_mutex_unlock(&all.lock);
    if (m && !all.adds)
        take_off(m); /* it may tell peers, and log: no lock is held */
    pthread_mutex_lock(&all.lock);
    goes_on = !all.stops;
    all.change = NULL;
    atomic_store(&all.news, 0);
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    return goes_on;
}

static void *move(void *nothing)
{
    int64_t spin_until = 0;

    while (take_news()) {
        int64_t now = rr_now_ns();
        bool moved = false, roomy = true, slept = false;
        for (struct rr_mover *m = all.movers; m; m = m->next) {
            moved = serve(m, now) || moved;
            roomy = roomy && m->family->roomy;
        }
        if (moved) {
            spin_until = now + SPIN_NS;
        } else if (roomy && now < spin_until) {
            rr_pause();
        } else {
            sleep_on_all(now);
            slept = true;
        }
        if (slept)
            spin_until = rr_now_ns() + SPIN_NS;
    }
    return nothing;
}

/* ---- attaching and detaching; with gate taken ---- */

static void stop(void)
{
    rr_fd_close(all.epoll);
    rr_fd_close(all.wake);
    all.epoll = all.wake = -1;
}

static int start_thread(const char *cpus, ringred_error *why)
{
    pthread_attr_t attributes;
    sigset_t every, before;
    cpu_set_t set;

    pthread_attr_init(&attributes);
    (void)parse_cpus(cpus, &set); /* it was checked */
    if (*cpus)
        (void)pthread_attr_setaffinity_np(&attributes, sizeof set, &set); /* else pthread_create refuses */
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* what a thread blocks, its child does */
    int rc = pthread_create(&all.thread, &attributes, move, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (rc == EINVAL && *cpus)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "progress_cpus: this process may use none of the CPUs %.64s", cpus);
    if (rc)
        return rr_fail(why, RINGRED_ELIMIT, -1, rc, "cannot start the progress thread");
    (void)pthread_setname_np(all.thread, "ringred"); /* a name is nothing to fail for */
    return 0;
}

static int start(const char *cpus, ringred_error *why)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };

    all.stops = false;
    all.epoll = rr_fd_own(epoll_create1(EPOLL_CLOEXEC));
    all.wake = rr_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int rc = all.epoll < 0 || all.wake < 0 || epoll_ctl(all.epoll, EPOLL_CTL_ADD, all.wake, &event)
                 ? rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot make an epoll set for the progress thread")
                 : start_thread(cpus, why);
    if (rc < 0)
        stop();
    return rc;
}

static void change(struct rr_mover *m, bool adds)
{
    pthread_mutex_lock(&all.lock);
    all.change = m;
    all.adds = adds;
    all.stops = !adds && all.users == 1;
    atomic_store(&all.news, 1);
    rr_mover_wake();
    while (all.change)
        pthread_cond_wait(&all.changed, &all.lock);
    pthread_mutex_unlock(&all.lock);
}

static int attach(struct rr_mover *m, ringred_error *why)
{
    struct rr_family *f = m->family;
    struct epoll_event event = { .events = EPOLLONESHOT, .data.ptr = m };

    if (all.users == 0)
        RR_TRY(start(rr_setting_text(&f->settings, RR_SET_PROGRESS_CPUS), why));
    all.users++;
    if (epoll_ctl(all.epoll, EPOLL_CTL_ADD, f->epoll, &event) == 0) {
        change(m, true);
        return 0;
    }
    rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot watch the sockets of a communicator");
    if (all.users == 1) {
        change(NULL, false);
        pthread_join(all.thread, NULL);
        stop();
    }
    all.users--;
    return why->code;
}

int rr_mover_attach(struct rr_family *f, ringred_error *why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct rr_mover *m = rr_alloc(1, sizeof *m);

    if (!m)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the progress thread");
    m->family = f;
    m->waiter.stays = true;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&all.gate);
    int rc = attach(m, why);
    pthread_mutex_unlock(&all.gate);
    if (rc < 0) {
        rr_free(m);
        return rc;
    }
    f->mover = m;
    f->threaded = true;
    return 0;
}

void rr_mover_detach(struct rr_family *f)
{
    struct rr_mover *m = f->mover;

    if (!m)
        return;
    f->mover = NULL;
    pthread_mutex_lock(&all.gate);
    change(m, false);
    (void)epoll_ctl(all.epoll, EPOLL_CTL_DEL, f->epoll, NULL); /* it is there */
    if (--all.users == 0) {
        pthread_join(all.thread, NULL);
        stop();
    }
    pthread_mutex_unlock(&all.gate);
    f->threaded = false;
    rr_free(m);
}

/* ---- waking ---- */

void rr_mover_wake(void)
{
    const uint64_t one = 1;

    if (!atomic_load(&all.asleep))
        return;
    ssize_t ignored = write(all.wake, &one, sizeof one);
    (void)ignored; /* it can only be full, and then it wakes */
}

void rr_mover_poke(struct rr_family *f)
{
    const uint64_t one = 1;

    atomic_store(&f->poked, 1);
    if (!atomic_load(&f->asleep)) {
        rr_mover_wake();
        return;
    }
    ssize_t ignored = write(f->wake, &one, sizeof one); /* whoever owns progress sleeps there */
    (void)ignored; /* it can only be full, and then it wakes */
}
