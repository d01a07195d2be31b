/* SPDX-License-Identifier: Apache-2.0 */
/* What a fork must not do to the process that it leaves: a child that keeps our sockets open would hide
 * our death from the peers. So the descriptors that live as long as a communicator are listed, and a
 * child closes its copies (close, never shutdown: the connection is the parent's). Mappings stay; every
 * call on an inherited object is refused by comparing rr_forks() with what it was. Other threads may fork at any moment:
 * sockets between ranks are made and listed in one, while forks wait. */
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list; held across a fork */
static int *list;
static size_t used, room;
static _Atomic uint32_t forks;

static void before(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (size_t i = 0; i < used; i++)
        close(list[i]);
    used = 0;
    atomic_fetch_add(&forks, 1);
    pthread_mutex_unlock(&lock);
}

static void watch(void)
{
    (void)pthread_atfork(before, in_parent, in_child); /* without memory for it forks go unnoticed */
}

uint32_t rr_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

static bool has_room(void)
{
    if (used < room)
        return true;
    size_t more = room ? 2 * room : 64;
    int *longer = rr_alloc(more, sizeof *longer);
    if (!longer)
        return false;
    for (size_t i = 0; i < used; i++)
        longer[i] = list[i];
    rr_free(list);
    list = longer;
    room = more;
    return true;
}

/* Before the lock is taken: forks take the C library's lock of its handlers, then ours. */
static void watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
}

static bool is_listed(int fd)
{
    for (size_t i = 0; i < used; i++)
        if (list[i] == fd)
            return true;
    return false;
}

/* With the lock held. */
static int own(int fd)
{
    if (fd < 0 || is_listed(fd))
        return fd;
    if (has_room()) {
        list[used++] = fd;
        return fd;
    }
    close(fd);
    errno = ENOMEM;
    return -1;
}

int rr_fd_own(int fd)
{
    watch_forks();
    if (fd < 0)
        return fd;
    pthread_mutex_lock(&lock);
    fd = own(fd);
    pthread_mutex_unlock(&lock);
    return fd;
}

int rr_fd_socket(int family)
{
    watch_forks();
    pthread_mutex_lock(&lock);
    int fd = own(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    pthread_mutex_unlock(&lock);
    return fd;
}

int rr_fd_accept(int listener)
{
    watch_forks();
    pthread_mutex_lock(&lock);
    int fd = own(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    pthread_mutex_unlock(&lock);
    return fd;
}

bool rr_fd_has_ended(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void rr_fd_close(int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < used; i++)
        if (list[i] == fd) {
            list[i] = list[--used];
            break;
        }
    close(fd);
    if (!used) { /* nothing of ours is left when nothing is in use */
        rr_free(list);
        list = NULL;
        room = 0;
    }
    pthread_mutex_unlock(&lock);
}
