/* SPDX-License-Identifier: Apache-2.0 */
/* Which congestion control data sockets get. Inside a host nothing is lost and nothing needs pacing, yet a
 * kernel whose default paces (bbr) holds loopback to half of what cubic or reno reach. Rather than
 * assume it, one rank of each machine times a few transfers through fresh loopback sockets of its own
 * under each; its mates take what it found. Between hosts the system's choice stands. */
#include "transport/frame.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROBE_BYTES ((size_t)512 << 10) /* at a time; below it the choice makes no difference */
#define PROBE_TURNS 12                  /* a control that models the path needs some to do so */
#define PROBE_ROUNDS 3
#define PROBE_MOST_NS (RINGRED_SECOND / 4) /* of everything */
#define CLEARLY 0.97                    /* of the system's time */

static const char *const candidates[] = { "", "cubic", "reno" }; /* "": the system's own */
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

static bool set_congestion(int fd, const char *name)
{
    return !*name || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

/* Two connected loopback sockets under that control from before their first byte: a socket that has
 * begun under a pacing control stays paced. */
static bool open_pair(const char *name, int pair[2])
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[1] = -1;
    if (listener >= 0 && pair[0] >= 0 && set_congestion(listener, name) &&
        set_congestion(pair[0], name) && bind(listener, (struct sockaddr *)&at, length) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &length) == 0 &&
        connect(pair[0], (struct sockaddr *)&at, length) == 0)
        pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0)
        close(listener);
    for (int i = 0; i < 2 && pair[1] >= 0; i++)
        (void)setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return pair[1] >= 0;
}

/* Through one socket and out of the other, as fast as both buffers allow. */
static bool pass_through(int from, int to, char *buffer, int64_t deadline)
{
    size_t sent = 0, got = 0;

    while (got < PROBE_BYTES) {
        ssize_t s = sent < PROBE_BYTES ? send(from, buffer, PROBE_BYTES - sent,
                                              MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        ssize_t r = recv(to, buffer, PROBE_BYTES - got, MSG_DONTWAIT);
        sent += s > 0 ? (size_t)s : 0;
        got += r > 0 ? (size_t)r : 0;
        if (s <= 0 && r <= 0 && rr_now_ns() >= deadline)
            return false;
    }
    return true;
}

/* Nanoseconds of a train of transfers both ways under one control; INT64_MAX: it cannot be had. */
static int64_t time_of(const char *name, char *buffer, int64_t deadline)
{
    int pair[2];
    bool fine = open_pair(name, pair);
    int64_t start = rr_now_ns();

    for (int i = 0; fine && i < PROBE_TURNS; i++)
        fine = pass_through(pair[i & 1], pair[!(i & 1)], buffer, deadline);
    int64_t took = rr_now_ns() - start;
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    return fine ? took : INT64_MAX;
}

int rr_congestion_probe(void)
{
    int64_t sum[CANDIDATES] = { 0 }, deadline = rr_deadline(PROBE_MOST_NS);
    char *buffer = rr_alloc_aligned(4096, PROBE_BYTES);
    int least = 0;

    for (int round = 0; buffer && round < PROBE_ROUNDS; round++)
        for (int c = 0; c < CANDIDATES; c++) {
            int64_t ns = time_of(candidates[c], buffer, deadline);
            sum[c] = ns > INT64_MAX - sum[c] ? INT64_MAX : sum[c] + ns;
        }
    rr_free(buffer);
    for (int c = 1; buffer && c < CANDIDATES; c++)
        if ((double)sum[c] < CLEARLY * (double)sum[0] && sum[c] < sum[least])
            least = c;
    return least;
}

/* A text of what the kernel would take, for the error. */
static void list_available(char *text, size_t room)
{
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");

    if (!f || !fgets(text, (int)room, f))
        snprintf(text, room, "unknown");
    text[strcspn(text, "\n")] = 0;
    if (f)
        fclose(f);
}

/* Between hosts the system's choice stands but for bbr: collectives send from many hosts to one at the same
 * time, and there its bursts and its model of the path cost a quarter of the wire (four hosts of 1 Gb/s,
 * all to all: bbr 70 to 88 % of the wire, cubic 98 to 100 %). */
int rr_congestion_choose(const struct rr_settings *settings, int found, struct rr_congestion *c,
                         ringred_error *why)
{
    const char *wish = rr_setting_text(settings, RR_SET_TCP_CONGESTION);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;
    socklen_t length = sizeof c->outside - 1;

    memset(c, 0, sizeof *c);
    if (fd < 0)
        return rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot make a socket");
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, c->outside, &length))
        c->outside[0] = 0; /* then sockets are left as they come */
    if (strcmp(wish, "auto") != 0 && strcmp(wish, "system") != 0) {
        char available[128];
        list_available(available, sizeof available);
        if (!set_congestion(fd, wish))
            rc = rr_fail(why, RINGRED_ESETTING, -1, errno,
                         "tcp_congestion is \"%.31s\", the kernel has %s", wish, available);
        snprintf(c->outside, sizeof c->outside, "%.31s", wish);
    }
    memcpy(c->inside, c->outside, sizeof c->inside);
    if (strcmp(wish, "auto") == 0 && strcmp(c->outside, "bbr") == 0 && set_congestion(fd, "cubic"))
        snprintf(c->outside, sizeof c->outside, "cubic"); /* see above */
    if (strcmp(wish, "auto") == 0 && found > 0 && found < CANDIDATES)
        snprintf(c->inside, sizeof c->inside, "%s", candidates[found]);
    close(fd);
    return rc;
}

/* Both ends of the socket on one host? */
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

void rr_congestion_apply(int fd, const struct rr_congestion *c)
{
    const char *name = is_inside_host(fd) ? c->inside : c->outside;
    char now[32] = "";
    socklen_t length = sizeof now - 1;

    /* mostly it was set before the connection was made */
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &length) || strcmp(now, name) != 0)
        (void)set_congestion(fd, name); /* a wish: every one of them works */
}
