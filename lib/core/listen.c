/* SPDX-License-Identifier: Apache-2.0 */
/* For programs with an event loop of their own: one descriptor to sleep on. It is an epoll set of three: the family's
 * own set, which sockets and mates ring; a bell for what other threads have moved; and a timer, since the peers' health
 * has to be looked after, and where nobody can ring. Between two polls the family lies down as a waiter does, owned by
 * nobody: whoever waits in earnest gets it up again. */
#include "core/core.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TRIES 4 /* to lie down, before the timer says: at once again */

static int put(int set, int fd)
{
    struct epoll_event event = { .events = EPOLLIN };

    return fd < 0 ? -1 : epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int open_all(struct rr_family *f)
{
    struct rr_listener *l = &f->listener;

    l->timer = rr_fd_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    l->bell = rr_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int set = rr_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (set >= 0 && put(set, l->timer) == 0 && put(set, l->bell) == 0 && (f->threaded || put(set, f->epoll) == 0)) {
        atomic_store(&l->set, set); /* the last: polls of other threads look at it */
        return set;
    }
    int system = errno;
    rr_fd_close(set);
    rr_listen_close(f);
    errno = system;
    return RINGRED_ELIMIT;
}

int rr_listen_descriptor(struct rr_family *f)
{
    if (f->forks != rr_forks())
        return RINGRED_EFORKED;
    pthread_mutex_lock(&f->pool);
    int fd = f->listener.set >= 0 ? f->listener.set : open_all(f);
    pthread_mutex_unlock(&f->pool);
    return fd;
}

void rr_listen_close(struct rr_family *f)
{
    struct rr_listener *l = &f->listener;

    if (l->lies)
        rr_wait_get_up(f);
    rr_fd_close(l->set);
    rr_fd_close(l->bell);
    rr_fd_close(l->timer);
    l->set = l->bell = l->timer = -1;
}

void rr_listen_ring(struct rr_family *f)
{
    const uint64_t one = 1;

    if (!atomic_exchange(&f->listener.armed, 0))
        return;
    ssize_t ignored = write(f->listener.bell, &one, sizeof one);
    (void)ignored; /* it can only be full, and then it wakes */
}

/* ---- polling ---- */

static void silence(const struct rr_listener *l)
{
    uint64_t ignored;

    if (read(l->bell, &ignored, sizeof ignored) < 0)
        ignored = 0; /* it had not rung */
    if (read(l->timer, &ignored, sizeof ignored) < 0)
        ignored = 0;
}

/* Says that the next news are to be told, then tries to own progress. Whoever else owns it may have looked before the
 * news came that we have just silenced: he rings in any case when he leaves. */
static bool arm(struct rr_family *f)
{
    _Atomic uint32_t *armed = &f->listener.armed;

    atomic_store(armed, 1);
    if (rr_family_own(f))
        return true;
    atomic_store(armed, RR_ARMED_FOR_ALL); /* then look; who leaves gives progress up, then looks at this */
    if (!rr_family_own(f))
        return false;
    atomic_store(armed, 1);
    return true;
}

static void set_timer(struct rr_family *f, int ms)
{
    struct itimerspec when = { .it_value = { ms / 1000, ms % 1000 * 1000000L + (ms == 0) } };

    (void)timerfd_settime(f->listener.timer, 0, &when, NULL); /* it is a timer, and the time is legal */
}

/* With progress owned: what is in flight will ring, or the timer does. */
static void lie_down(struct rr_family *f)
{
    struct rr_waiter w = { .stays = true };
    ringred_error why;
    int most = RR_SLEEP_MS, rc = RINGRED_PENDING;
    bool moved = true;

    for (int i = 0; i < TRIES && moved && rc == RINGRED_PENDING; i++)
        rc = rr_wait_lie_down(f, &w, rr_now_ns(), &most, &moved, &why);
    f->listener.lies = true;
    if (rc < 0)
        (void)rr_family_break(f, &why);
    set_timer(f, moved || rc != RINGRED_PENDING ? 0 : most);
}

static int poll_owned(struct rr_family *f)
{
    struct epoll_event event[8];

    while (epoll_wait(f->epoll, event, 8, 0) == 8) /* edge-triggered: what it tells is looked for. A sleeping owner wants it */
        ;
    if (f->listener.lies)
        rr_wait_get_up(f);
    int rc = rr_drive(f, NULL, 0);
    if (rc == RINGRED_PENDING && f->listener.set >= 0)
        lie_down(f);
    return rc;
}

int rr_listen_poll(struct rr_family *f)
{
    int rc = RINGRED_PENDING;

    if (f->forks != rr_forks())
        return RINGRED_EFORKED;
    bool listens = atomic_load(&f->listener.set) >= 0;
    if (listens)
        silence(&f->listener);
    bool owns = listens ? arm(f) : rr_family_own(f);
    if (owns && !f->threaded)
        rc = poll_owned(f);
    else if (owns)
        rc = rr_drive(f, NULL, 0);
    if (owns) {
        f->other_ended = false; /* the caller looks at its requests next */
        if (rc == 0)
            atomic_store(&f->listener.armed, 0); /* whoever starts something polls before he sleeps */
        rr_family_disown(f);
    }
    return atomic_load(&f->state) == RR_COMM_READY ? rc : rr_family_status(f);
}
