/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the ranks of a host share. The lowest of them makes it and passes it over the
 * sockets that boot has proved; nothing of it has a name, it cannot be shrunk under us, and its pages
 * are reserved and mapped before the first collective. */
#include "transport/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define FDS_AT_ONCE 250 /* descriptors in one message; the kernel takes 253 */
#define STAGGER (17 * RR_LINE) /* keeps equal offsets of two ranks out of the same cache sets */

static struct rr_shm *self(struct rr_shared *s)
{
    return (struct rr_shm *)s;
}

/* ---- passing descriptors ---- */

static int pass_fds(int socket, const int *fd, int n, int64_t deadline_ns, ringred_error *why)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_AT_ONCE * sizeof(int))];
    } room = { 0 };
    char byte = (char)n;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &room,
                              .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(c), fd, n * sizeof(int));
    for (;;) {
        if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            return 0;
        if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS)
            return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot pass shared memory to a mate");
        struct pollfd wait = { errno == ETOOMANYREFS ? -1 : socket, POLLOUT, 0 };
        int left = rr_deadline_ms(deadline_ns, errno == ETOOMANYREFS ? 1 : 1000);
        if (!left)
            return rr_fail(why, RINGRED_ETIMEOUT, -1, 0, "a mate did not take the shared memory in time");
        (void)poll(&wait, 1, left); /* the send tells what came of it */
    }
}

static int take_message(int socket, int *fd, int n, ringred_error *why)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_AT_ONCE * sizeof(int))];
    } room = { 0 };
    char byte;
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &room,
                              .msg_controllen = sizeof room.bytes };
    ssize_t k = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return RINGRED_PENDING;
    if (k <= 0)
        return rr_fail(why, RINGRED_EPEER, -1, k < 0 ? errno : 0, "a mate left while memory was shared");
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(n * sizeof(int))) {
        for (size_t at = CMSG_LEN(0); c && c->cmsg_type == SCM_RIGHTS && at < c->cmsg_len; at += sizeof(int)) {
            int came;
            memcpy(&came, (char *)c + at, sizeof came);
            close(came);
        }
        if (message.msg_flags & MSG_CTRUNC) /* the kernel has dropped what this process has no room for */
            return rr_fail(why, RINGRED_ELIMIT, -1, EMFILE, "a mate's descriptors did not arrive");
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "a mate's message brought no descriptors");
    }
    memcpy(fd, CMSG_DATA(c), n * sizeof(int));
    return 0;
}

static int take_fds(int socket, int *fd, int n, int64_t deadline_ns, ringred_error *why)
{
    for (;;) {
        int rc = take_message(socket, fd, n, why);
        if (rc != RINGRED_PENDING)
            return rc;
        struct pollfd wait = { socket, POLLIN, 0 };
        int left = rr_deadline_ms(deadline_ns, 1000);
        if (!left)
            return rr_fail(why, RINGRED_ETIMEOUT, -1, 0, "a mate did not share its memory in time");
        (void)poll(&wait, 1, left); /* the next receive tells what came of it */
    }
}

/* ---- the segment ---- */

static int self_ranks(const struct rr_shared *s)
{
    return ((const struct rr_shm *)s)->ranks;
}

static size_t share_bytes(const struct rr_shared *s) /* of one rank: its page, its stage, the stagger */
{
    return rr_round_up(rr_page_bytes(self_ranks(s)), PAGE) + s->stage_bytes + rr_round_up(STAGGER, PAGE);
}

static size_t whole_bytes(const struct rr_shared *s)
{
    return rr_round_up(sizeof(struct rr_host_page), PAGE) + (size_t)s->locals * share_bytes(s);
}

static int make_segment(const struct rr_shared *s, ringred_error *why)
{
    size_t bytes = whole_bytes(s);
    int fd;

    if (bytes > rr_file_limit())
        return rr_fail(why, RINGRED_ELIMIT, -1, EFBIG, "shared memory of %zu bytes is above the limit of "
                       "file sizes, %llu (ulimit -f)", bytes, (unsigned long long)rr_file_limit());
    fd = memfd_create("ringred", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return rr_fail(why, errno == EMFILE || errno == ENFILE ? RINGRED_ELIMIT : RINGRED_ESYSTEM, -1, errno,
                       "cannot make shared memory");
    if (ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes)) {
        int system = errno;
        close(fd);
        return rr_fail(why, RINGRED_ENOMEM, -1, system,
                       "cannot reserve %zu bytes of shared memory for %d ranks (setting stage)", bytes,
                       s->locals);
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int system = errno;
        close(fd);
        return rr_fail(why, RINGRED_ESYSTEM, -1, system, "cannot seal shared memory");
    }
    return fd;
}

static int map_segment(struct rr_shm *m, int fd, ringred_error *why)
{
    struct rr_shared *s = &m->base;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || (size_t)st.st_size != whole_bytes(s))
        return rr_fail(why, RINGRED_ECONFIG, -1, 0,
                       "the host's shared memory is not of the form that this rank expects: is the "
                       "setting stage the same on all ranks?");
    m->segment_bytes = whole_bytes(s);
    m->segment = mmap(NULL, m->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (m->segment == MAP_FAILED) {
        m->segment = NULL;
        return rr_fail(why, RINGRED_ENOMEM, -1, errno, "cannot map %zu bytes of shared memory",
                       m->segment_bytes);
    }
    s->host = m->segment;
    s->team = &s->host->team;
    char *at = (char *)m->segment + rr_round_up(sizeof(struct rr_host_page), PAGE);
    for (int i = 0; i < s->locals; i++, at += share_bytes(s)) {
        struct rr_mate *mate = &s->mate[s->local[i]];
        mate->page = (struct rr_page *)(void *)at;
        mate->stage = at + rr_round_up(rr_page_bytes(m->ranks), PAGE) + (size_t)(i % 4) * (STAGGER / 4 / RR_LINE) * RR_LINE;
    }
    return 0;
}

static void map_heap(struct rr_shm *m, int rank, int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    struct rr_shared *s = &m->base;

    /* without a heap that fits, the mate's buffers count as ordinary ones */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || (size_t)st.st_size < s->heap_bytes)
        return;
    void *p = mmap(NULL, s->heap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p != MAP_FAILED)
        s->mate[rank].heap = p;
}

/* Any number of them, in as few messages as there can be; both ends count alike. */
static int pass_many(int socket, const int *fd, int n, int64_t deadline_ns, ringred_error *why)
{
    for (int at = 0; at < n; at += FDS_AT_ONCE)
        RR_TRY(pass_fds(socket, fd + at, n - at < FDS_AT_ONCE ? n - at : FDS_AT_ONCE, deadline_ns, why));
    return 0;
}

static int take_many(int socket, int *fd, int n, int64_t deadline_ns, ringred_error *why)
{
    for (int at = 0; at < n; at += FDS_AT_ONCE)
        RR_TRY(take_fds(socket, fd + at, n - at < FDS_AT_ONCE ? n - at : FDS_AT_ONCE, deadline_ns, why));
    return 0;
}

/* The lowest rank hands everybody the segment and everybody's heap and doorbell. */
static int lead(struct rr_shm *m, const int *socket, int *pair, int64_t deadline_ns, ringred_error *why)
{
    struct rr_shared *s = &m->base;
    int *list = rr_alloc(2 * (size_t)s->locals, sizeof *list), segment = -1;
    int rc = list ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks of this host", s->locals);

    if (rc == 0)
        rc = segment = make_segment(s, why);
    if (rc >= 0)
        rc = map_segment(m, segment, why);
    for (int i = 1; rc == 0 && i < s->locals; i++)
        rc = take_fds(socket[s->local[i]], &pair[2 * s->local[i]], 2, deadline_ns, why);
    for (int i = 1; rc == 0 && i < s->locals; i++) {
        int n = 0;
        list[n++] = segment;
        for (int j = 0; j < s->locals; j++)
            for (int k = 0; k < 2 && j != i; k++)
                list[n++] = pair[2 * s->local[j] + k];
        rc = pass_many(socket[s->local[i]], list, n, deadline_ns, why);
    }
    if (segment >= 0)
        close(segment);
    rr_free(list);
    return rc;
}

static int follow(struct rr_shm *m, int socket, int *pair, int64_t deadline_ns, ringred_error *why)
{
    struct rr_shared *s = &m->base;
    int most = 2 * s->locals - 1, n = 1, *list = rr_alloc((size_t)most, sizeof *list), rc;

    if (!list)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks of this host", s->locals);
    for (int i = 0; i < most; i++)
        list[i] = -1;
    rc = pass_fds(socket, &pair[2 * s->me], 2, deadline_ns, why);
    if (rc == 0)
        rc = take_many(socket, list, most, deadline_ns, why);
    for (int j = 0; j < s->locals; j++)
        for (int k = 0; k < 2 && s->local[j] != s->me; k++)
            pair[2 * s->local[j] + k] = list[n++];
    if (rc == 0)
        rc = map_segment(m, list[0], why);
    if (list[0] >= 0)
        close(list[0]);
    rr_free(list);
    return rc;
}

/* ---- looking after mates ---- */

/* Where there are no pidfds (seccomp). A process that nobody has collected, or another one with its number, takes signals. */
static bool has_ended(const struct rr_shm *m, int rank)
{
    if (kill(m->pid[rank], 0) && errno == ESRCH)
        return true;
    int64_t began = m->began[rank] > 0 ? rr_process_began(m->pid[rank]) : -1;
    return began >= 0 && began != m->began[rank];
}

static void shm_check(struct rr_shared *s, uint8_t *gone)
{
    struct rr_shm *m = self(s);

    for (int i = 0; i < s->locals; i++) {
        int rank = s->local[i];
        struct pollfd look = { m->pidfd[rank], POLLIN, 0 };
        if (rank == s->me || (gone[rank] & RR_GONE_MEMORY))
            continue;
        if (m->pidfd[rank] >= 0)
            gone[rank] |= poll(&look, 1, 0) == 1 ? RR_GONE_MEMORY : 0;
        else
            gone[rank] |= has_ended(m, rank) ? RR_GONE_MEMORY : 0;
    }
}

void rr_shared_left(const struct rr_shared *s, uint8_t *gone)
{
    for (int i = 0; i < s->locals; i++)
        if (s->local[i] != s->me && atomic_load(&s->mate[s->local[i]].page->left))
            gone[s->local[i]] |= RR_GONE_MEMORY;
}

int rr_shared_watch(struct rr_shared *s, int epoll, ringred_error *why)
{
    struct rr_shm *m = self(s);

    for (int i = 0; i < s->locals; i++) {
        int rank = s->local[i], fd = rank == s->me ? m->bell[rank] : m->pidfd[rank];
        struct epoll_event event = { .events = EPOLLIN | EPOLLET };
        if (fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
            return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot watch rank %d", rank);
    }
    return 0;
}

bool rr_shared_verdict(struct rr_shared *s, ringred_error *why)
{
    if (atomic_load_explicit(&s->host->verdict, memory_order_acquire) != 2)
        return false;
    *why = s->host->why;
    why->text[sizeof why->text - 1] = 0;
    return true;
}

bool rr_shared_judge(struct rr_shared *s, ringred_error *why)
{
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&s->host->verdict, &none, 1)) {
        s->host->why = *why;
        atomic_store_explicit(&s->host->verdict, 2, memory_order_release);
        rr_shm_ring(s);
        return true;
    }
    /* somebody is writing it, a few hundred bytes; if it dies in between, our own stands */
    for (int tries = 0; tries < 100000 && !rr_shared_verdict(s, why); tries++)
        rr_pause();
    return false;
}

/* A peer's window is about to be used: map its pages now, in one go, not by faults on the way. */
static int shm_touch(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    struct rr_shm *m = self(s);

    if (m->last[peer].offset == offset && m->last[peer].bytes == bytes)
        return 0;
    m->last[peer] = (struct rr_window){ offset, bytes };
    for (uint64_t c = offset / RR_HEAP_CHUNK; bytes && c <= (offset + bytes - 1) / RR_HEAP_CHUNK; c++) {
        uint64_t *word = &m->touched[peer][c / 64], bit = 1ull << c % 64;
        if (*word & bit)
            continue;
        if (madvise(s->mate[peer].heap + c * RR_HEAP_CHUNK, RR_HEAP_CHUNK, MADV_POPULATE_WRITE) == 0)
            *word |= bit; /* an older kernel faults them in one by one, once */
    }
    return 0;
}

/* ---- opening and closing ---- */

static size_t heap_limit(const struct rr_settings *settings, int locals)
{
    size_t most = ((size_t)16 << 40) / (size_t)locals, wish = (size_t)rr_setting(settings, RR_SET_HEAP);
    struct sysinfo info;

    if (!wish)
        wish = sysinfo(&info) == 0 ? (size_t)info.totalram * info.mem_unit : (size_t)1 << 32;
    return rr_round_up(wish < most ? wish : most, RR_HEAP_CHUNK);
}

/* 4 MiB, so that a piece has left other caches before it is written again; with many ranks less, since
 * each maps all stages. But segments that have a part for each rank must fit, ten at least (select.c): of
 * half a KiB, and of two lines if the setting is small. */
size_t rr_stage_bytes(size_t wish, int locals)
{
    size_t least = 10 * (size_t)locals * (wish ? 2 * RR_LINE : 512), share = ((size_t)32 << 20) / (size_t)locals;

    if (!wish)
        wish = share > (size_t)4 << 20 ? (size_t)4 << 20 : share;
    least = least < (size_t)64 << 10 ? (size_t)64 << 10 : least;
    return rr_round_up(wish < least ? least : wish, PAGE);
}

static struct rr_shm *shm_new(int ranks, int locals)
{
    struct rr_shm *m = rr_alloc(1, sizeof *m);
    size_t n = (size_t)ranks;

    if (!m)
        return NULL;
    m->ranks = ranks;
    m->bell = rr_alloc(n, sizeof *m->bell);
    m->pidfd = rr_alloc(n, sizeof *m->pidfd);
    m->pid = rr_alloc(n, sizeof *m->pid);
    m->began = rr_alloc(n, sizeof *m->began);
    m->touched = rr_alloc(n, sizeof *m->touched);
    m->last = rr_alloc(n, sizeof *m->last);
    m->base.mate = rr_alloc(n, sizeof *m->base.mate);
    m->base.local = rr_alloc((size_t)locals, sizeof *m->base.local);
    for (int r = 0; m->bell && m->pidfd && r < ranks; r++)
        m->bell[r] = m->pidfd[r] = -1;
    if (!m->bell || !m->pidfd || !m->pid || !m->began || !m->touched || !m->last || !m->base.mate || !m->base.local) {
        rr_shared_close(&m->base, 0);
        return NULL;
    }
    return m;
}

static void find_mates(struct rr_shm *m, int me, const struct rr_boot *boot)
{
    struct rr_shared *s = &m->base;

    s->me = me;
    for (int r = 0; r < m->ranks; r++) {
        if (rr_boot_member(boot, r)->host != rr_boot_member(boot, me)->host)
            continue;
        s->local[s->locals++] = (int16_t)r;
        m->pid[r] = rr_boot_member(boot, r)->pid;
        if (r != me)
            m->pidfd[r] = rr_fd_own((int)syscall(SYS_pidfd_open, m->pid[r], 0));
        if (m->pidfd[r] < 0)
            m->began[r] = rr_process_began(m->pid[r]);
    }
}

static int make_own(struct rr_shm *m, int *pair, ringred_error *why)
{
    struct rr_shared *s = &m->base;

    m->bell[s->me] = rr_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (m->bell[s->me] < 0)
        return rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot make an eventfd");
    m->heap = rr_heap_new(s->heap_bytes);
    if (m->heap)
        s->mate[s->me].heap = rr_heap_base(m->heap);
    /* without a heap a descriptor that is none goes in its place: mates then do without windows */
    pair[2 * s->me] = m->heap ? rr_heap_fd(m->heap) : m->bell[s->me];
    pair[2 * s->me + 1] = m->bell[s->me];
    return 0;
}

static int take_others(struct rr_shm *m, int *pair, ringred_error *why)
{
    struct rr_shared *s = &m->base;
    int rc = 0;

    for (int i = 0; i < s->locals; i++) {
        int rank = s->local[i];
        if (rank == s->me || pair[2 * rank] < 0)
            continue;
        map_heap(m, rank, pair[2 * rank]);
        close(pair[2 * rank]);
        m->bell[rank] = rr_fd_own(pair[2 * rank + 1]);
        m->touched[rank] = rr_alloc(s->heap_bytes / RR_HEAP_CHUNK / 64 + 1, sizeof(uint64_t));
        if (!m->touched[rank])
            rc = rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory");
    }
    return rc;
}

int rr_shared_open(int ranks, int me, const struct rr_boot *boot, const int *local,
                   const struct rr_settings *settings, int64_t deadline_ns, struct rr_shared **shared,
                   ringred_error *why)
{
    int locals = 0, *pair = rr_alloc(2 * (size_t)ranks, sizeof *pair), rc;

    for (int r = 0; r < ranks; r++)
        locals += rr_boot_member(boot, r)->host == rr_boot_member(boot, me)->host;
    struct rr_shm *m = pair ? shm_new(ranks, locals) : NULL;
    if (!m) {
        rr_free(pair);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks of this host", locals);
    }
    for (int i = 0; i < 2 * ranks; i++)
        pair[i] = -1;
    m->base.ring = rr_shm_ring;
    m->base.touch = shm_touch;
    m->base.check = shm_check;
    m->base.stage_bytes = rr_stage_bytes((size_t)rr_setting(settings, RR_SET_STAGE), locals);
    m->base.heap_bytes = heap_limit(settings, locals);
    m->base.fences = rr_shm_fences();
    find_mates(m, me, boot);

    rc = make_own(m, pair, why);
    if (rc == 0 && locals > 1)
        rc = m->base.local[0] == me ? lead(m, local, pair, deadline_ns, why)
                                    : follow(m, local[m->base.local[0]], pair, deadline_ns, why);
    else if (rc == 0) {
        int segment = make_segment(&m->base, why);
        rc = segment < 0 ? segment : map_segment(m, segment, why);
        if (segment >= 0)
            close(segment);
    }
    int taken = take_others(m, pair, why);
    m->base.windows = true;
    for (int i = 0; i < locals; i++)
        m->base.windows = m->base.windows && m->base.mate[m->base.local[i]].heap;
    rr_free(pair);
    rc = rc ? rc : taken;
    if (rc) {
        rr_shared_close(&m->base, 0);
        return rc;
    }
    *shared = &m->base;
    return 0;
}

void rr_shared_leave(struct rr_shared *s, uint64_t last)
{
    atomic_store(&s->mate[s->me].page->left, last + 1);
    rr_shm_ring(s);
}

void rr_shared_close(struct rr_shared *s, uint64_t last)
{
    struct rr_shm *m = self(s);

    if (!s)
        return;
    if (s->host)
        rr_shared_leave(s, last);
    for (int r = 0; r < m->ranks && m->bell && m->pidfd; r++) {
        rr_fd_close(m->bell[r]);
        rr_fd_close(m->pidfd[r]);
        if (s->mate && s->mate[r].heap && r != s->me)
            munmap(s->mate[r].heap, s->heap_bytes);
        if (m->touched)
            rr_free(m->touched[r]);
    }
    rr_borrow_close(m);
    if (m->segment)
        munmap(m->segment, m->segment_bytes);
    rr_heap_release(m->heap);
    if (s->publish_owned)
        rr_free(s->publish_context);
    rr_free(m->bell);
    rr_free(m->pidfd);
    rr_free(m->pid);
    rr_free(m->began);
    rr_free(m->touched);
    rr_free(m->last);
    rr_free(s->mate);
    rr_free(s->local);
    rr_free(m);
}
