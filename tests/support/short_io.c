/* SPDX-License-Identifier: Apache-2.0 */
/* See short_io.h. */
#include "short_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))
#define PARTS 64

static atomic_long most = -1;
static atomic_ulong count;

void short_io_set(long bytes)
{
    atomic_store(&most, bytes);
}

unsigned long short_io_count(void)
{
    return atomic_load(&count);
}

static void real(const char *name, void *function)
{
    void *at = dlsym(RTLD_NEXT, name);

    memcpy(function, &at, sizeof at);
}

static uint32_t draw(void)
{
    static _Atomic uint64_t state = 1;
    uint64_t next = atomic_load(&state) * 6364136223846793005u + 1442695040888963407u;

    atomic_store(&state, next);
    return (uint32_t)(next >> 33);
}

static bool is_stream(int fd)
{
    int type = 0;
    socklen_t n = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

static bool is_file(int fd)
{
    struct stat s;

    return fstat(fd, &s) == 0 && (S_ISFIFO(s.st_mode) || (S_ISREG(s.st_mode) && s.st_size > 0));
}

/* How much of `bytes` goes at once; 0, if there are any: this call is interrupted. */
static size_t part_of(size_t bytes, int fd, bool files)
{
    int kept = errno;
    long n = atomic_load(&most);
    bool is_short = n >= 0 && bytes && (is_stream(fd) || (files && is_file(fd)));

    errno = kept;
    if (!is_short)
        return bytes;
    bool interrupted = draw() % 7 == 0;
    size_t k = n ? (size_t)n : 1 + draw() % 16;
    if (interrupted || k < bytes)
        atomic_fetch_add(&count, 1);
    if (interrupted)
        errno = EINTR;
    return interrupted ? 0 : k < bytes ? k : bytes;
}

SEEN ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
    static ssize_t (*next)(int, void *, size_t, int);
    size_t n = flags & (MSG_PEEK | MSG_WAITALL) ? bytes : part_of(bytes, fd, false);

    if (!next)
        real("recv", &next);
    return bytes && !n ? -1 : next(fd, to, n, flags);
}

SEEN ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);
    size_t n = part_of(bytes, fd, false);

    if (!next)
        real("send", &next);
    return bytes && !n ? -1 : next(fd, from, n, flags);
}

SEEN ssize_t read(int fd, void *to, size_t bytes)
{
    static ssize_t (*next)(int, void *, size_t);
    size_t n = part_of(bytes, fd, true);

    if (!next)
        real("read", &next);
    return bytes && !n ? -1 : next(fd, to, n);
}

SEEN ssize_t write(int fd, const void *from, size_t bytes)
{
    static ssize_t (*next)(int, const void *, size_t);
    size_t n = part_of(bytes, fd, false);

    if (!next)
        real("write", &next);
    return bytes && !n ? -1 : next(fd, from, n);
}

/* The beginning of what a message has, of at most n bytes, which may end within a part. */
static void cut(struct msghdr *m, struct iovec part[PARTS], size_t n)
{
    size_t parts = m->msg_iovlen < PARTS ? m->msg_iovlen : PARTS, i = 0;

    memcpy(part, m->msg_iov, parts * sizeof *part);
    for (; i < parts && part[i].iov_len < n; i++)
        n -= part[i].iov_len;
    if (i < parts) {
        part[i].iov_len = n;
        parts = i + 1;
    }
    m->msg_iov = part;
    m->msg_iovlen = parts;
}

static size_t bytes_of(const struct msghdr *m)
{
    size_t bytes = 0;

    for (size_t i = 0; i < m->msg_iovlen; i++)
        bytes += m->msg_iov[i].iov_len;
    return bytes;
}

SEEN ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, struct msghdr *, int);
    struct msghdr less = *message;
    struct iovec part[PARTS];
    size_t bytes = bytes_of(message), n = bytes;

    if (!next)
        real("recvmsg", &next);
    if (!message->msg_control)
        n = part_of(bytes, fd, false);
    if (n == bytes)
        return next(fd, message, flags);
    if (n == 0)
        return -1;
    cut(&less, part, n);
    return next(fd, &less, flags);
}

SEEN ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);
    struct msghdr less = *message;
    struct iovec part[PARTS];
    size_t bytes = bytes_of(message), n = bytes;

    if (!next)
        real("sendmsg", &next);
    if (!message->msg_control)
        n = part_of(bytes, fd, false);
    if (n == bytes)
        return next(fd, message, flags);
    if (n == 0)
        return -1;
    cut(&less, part, n);
    return next(fd, &less, flags);
}
