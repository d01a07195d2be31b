/* SPDX-License-Identifier: Apache-2.0 */
/* What a fork must not do to the process that it leaves: a child that keeps our sockets open would hide
 * our death from the peers. So the descriptors that live as long as a communicator are listed, and a
 * child closes its copies (close, never shutdown: the connection is the parent's). Mappings stay; every
 * call on an inherited object is refused by comparing rr_forks() with what it was. */
#include "base/base.h"

#include <pthread.h>
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

int rr_fd_own(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool fits;

    pthread_once(&once, watch);
    if (fd < 0)
        return fd;
    pthread_mutex_lock(&lock);
    fits = has_room();
    if (fits)
        list[used++] = fd;
    pthread_mutex_unlock(&lock);
    if (fits)
        return fd;
    close(fd);
    return -1;
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
