/* SPDX-License-Identifier: Apache-2.0 */
/* Which congestion control a socket gets. What is best differs by path: a kernel whose default is bbr
 * paces loopback to half of what cubic or reno reach, and on a lossy long path it is the other way
 * round. So each rank and one partner time a few exchanges under each, before any frame is sent, and
 * take another than the system's only where it is clearly faster. */
#include "transport/frame.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PROBE_BYTES ((size_t)2 << 20) /* each way; below it the choice makes no difference */
#define PROBE_BLOCK ((size_t)128 << 10)
#define PROBE_ROUNDS 3
#define CLEARLY 0.85                  /* of the system's time */
#define ENOUGH_NS 10000000            /* a wire this slow is the limit itself: stop probing */

static const char *const candidates[] = { "", "cubic", "reno" }; /* "": the system's own */
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

static bool set_congestion(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

/* Sends and receives `bytes` at once. false: the time is over or the link is lost. */
static bool exchange(int fd, char *out, char *in, size_t bytes, size_t block, int64_t deadline)
{
    size_t sent = 0, got = 0;

    while (sent < bytes || got < bytes) {
        size_t a = bytes - sent < block ? bytes - sent : block;
        size_t b = bytes - got < block ? bytes - got : block;
        ssize_t s = a ? send(fd, out, a, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (s < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        ssize_t r = b ? recv(fd, in, b, MSG_DONTWAIT) : 0;
        if ((r < 0 && errno != EAGAIN && errno != EINTR) || (r == 0 && b))
            return false;
        sent += s > 0 ? (size_t)s : 0;
        got += r > 0 ? (size_t)r : 0;
        if (s <= 0 && r <= 0) {
            struct pollfd wait = { fd, (short)((a ? POLLOUT : 0) | (b ? POLLIN : 0)), 0 };
            int left = rr_deadline_ms(deadline, 1000);
            if (!left || poll(&wait, 1, left) < 0)
                return false;
        }
    }
    return true;
}

/* Nanoseconds of one exchange, the slower end's; both ends get the same figure. -1: failed. */
static int64_t trial(int fd, char *out, char *in, int64_t deadline)
{
    int64_t mine, theirs, start;

    memset(out, 0, sizeof mine);
    if (!exchange(fd, out, in, 1, 1, deadline))
        return -1;
    start = rr_now_ns();
    if (!exchange(fd, out, in, PROBE_BYTES, PROBE_BLOCK, deadline))
        return -1;
    mine = rr_now_ns() - start;
    memcpy(out, &mine, sizeof mine);
    char back[sizeof mine];
    if (!exchange(fd, out, back, sizeof mine, sizeof mine, deadline))
        return -1;
    memcpy(&theirs, back, sizeof theirs);
    return mine > theirs ? mine : theirs;
}

/* The number of the best control on this socket; -1: the link failed. */
static int probe(int fd, char *out, char *in, const char *system)
{
    int64_t best[CANDIDATES], deadline = rr_deadline(2 * RINGRED_SECOND);

    for (int c = 0; c < CANDIDATES; c++)
        best[c] = INT64_MAX;
    for (int round = 0; round < PROBE_ROUNDS; round++)
        for (int c = 0; c < CANDIDATES; c++) {
            bool can = set_congestion(fd, c ? candidates[c] : system);
            int64_t ns = trial(fd, out, in, deadline);
            if (ns < 0)
                return -1;
            if (c == 0 && round == 0 && ns > ENOUGH_NS)
                return 0;
            if (can && ns < best[c])
                best[c] = ns;
        }
    set_congestion(fd, system);
    int least = 0;
    for (int c = 1; c < CANDIDATES; c++)
        if ((double)best[c] < CLEARLY * (double)best[0] && best[c] < best[least])
            least = c;
    return least;
}

static bool is_linked(const int16_t *group, int a, int b)
{
    return group[a] != group[b];
}

/* Pairs up the ranks: the partner at the smallest distance 2^k to whom there is a link, if that rank
 * chooses likewise. Both ends work this out alike. */
static int choice(int ranks, const int16_t *group, int rank)
{
    for (int bit = 1; bit < ranks; bit *= 2)
        if ((rank ^ bit) < ranks && is_linked(group, rank, rank ^ bit))
            return rank ^ bit;
    return -1;
}

/* Both ends of the socket on one host? Then what was found for one such path holds for all. */
static bool is_inside_host(int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t a = sizeof here, b = sizeof there;

    if (getsockname(fd, (struct sockaddr *)&here, &a) || getpeername(fd, (struct sockaddr *)&there, &b))
        return false;
    if (here.ss_family == AF_INET && there.ss_family == AF_INET)
        return memcmp(&((struct sockaddr_in *)&here)->sin_addr,
                      &((struct sockaddr_in *)&there)->sin_addr, sizeof(struct in_addr)) == 0;
    if (here.ss_family == AF_INET6 && there.ss_family == AF_INET6)
        return memcmp(&((struct sockaddr_in6 *)&here)->sin6_addr,
                      &((struct sockaddr_in6 *)&there)->sin6_addr, sizeof(struct in6_addr)) == 0;
    return false;
}

/* On all sockets, or on those of the same kind of path as *like. */
static void use(int ranks, const int *fd, const char *name, const int *like)
{
    for (int peer = 0; peer < ranks; peer++)
        if (fd[peer] >= 0 && (!like || is_inside_host(fd[peer]) == is_inside_host(*like)))
            set_congestion(fd[peer], name);
}

int rr_congestion_choose(int ranks, int me, const int *fd, const int16_t *group,
                         const struct rr_settings *settings, const struct rr_log *log, char *name,
                         size_t room, ringred_error *why)
{
    const char *wish = rr_setting_text(settings, RR_SET_TCP_CONGESTION);
    int partner = choice(ranks, group, me), found;
    char system[32] = "";
    socklen_t length = sizeof system - 1;

    snprintf(name, room, "system");
    if (strcmp(wish, "system") == 0)
        return 0;
    if (strcmp(wish, "auto") != 0) {
        use(ranks, fd, wish, NULL);
        snprintf(name, room, "%s", wish);
        return 0;
    }
    if (partner < 0 || choice(ranks, group, partner) != me)
        return 0;
    if (getsockopt(fd[partner], IPPROTO_TCP, TCP_CONGESTION, system, &length))
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "cannot ask for the congestion control");
    char *out = rr_alloc_aligned(4096, 2 * PROBE_BLOCK);
    if (!out)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to probe links with");
    found = probe(fd[partner], out, out + PROBE_BLOCK, system);
    rr_free(out);
    if (found < 0)
        return rr_fail(why, RINGRED_EPEER, partner, 0, "the link to rank %d failed while it was probed",
                       partner);
    snprintf(name, room, "%s", found ? candidates[found] : system);
    rr_log(log, RINGRED_LOG_INFO, "links like the one to rank %d: congestion control %s (system: %s)",
           partner, name, system);
    if (found)
        use(ranks, fd, candidates[found], &fd[partner]);
    return 0;
}
