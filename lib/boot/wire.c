/* SPDX-License-Identifier: Apache-2.0 */
/* Data connections between ranks, and local sockets inside a host. The lower rank dials on data
 * links; on a host all ranks dial its lowest. Everything stays watched by the loop until all ranks
 * are through. */
#include "boot/inside.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- proved connections ---- */

static int *place(const struct rr_boot *b, int rank, int stream)
{
    return &b->fd[rank * b->streams + stream];
}

static void keep(struct rr_boot *b, int rank, int stream, int fd)
{
    int *at = place(b, rank, stream);

    if (*at >= 0)
        close(*at); /* given up by the dialler before it knew that it was through */
    *at = fd;
}

static void note_address(struct rr_boot *b, int rank, int fd)
{
    struct sockaddr_storage s = { 0 }, m = { 0 };
    socklen_t n = sizeof s, k = sizeof m;
    struct rr_address theirs = { 0 }, mine = { 0 };
    char text[RR_ADDRESS_TEXT], from[RR_ADDRESS_TEXT];

    if (getpeername(fd, (struct sockaddr *)&s, &n) < 0 ||
        getsockname(fd, (struct sockaddr *)&m, &k) < 0)
        return;
    rr_address_of((struct sockaddr *)&s, &theirs);
    rr_address_of((struct sockaddr *)&m, &mine);
    for (int i = 0; i < b->entry[rank].addresses; i++)
        if (rr_address_same_ip(&theirs, &b->entry[rank].address[i]))
            theirs.port = b->entry[rank].address[i].port; /* of its listener, whoever dialled */
    snprintf(b->entry[rank].member.address, sizeof b->entry[rank].member.address, "%s",
             rr_address_text(&theirs, text));
    rr_log(b->log, RINGRED_LOG_INFO, "data link to rank %d: %s from %s", rank, text,
           rr_address_text(&mine, from));
}

void rr_wire_admit(void *boot, int fd, int rank, int stream)
{
    struct rr_boot *b = boot;

    if (rank < 0 || rank >= b->rank || stream < 0 || stream >= b->want[rank]) {
        close(fd);
        return;
    }
    keep(b, rank, stream, fd);
    note_address(b, rank, fd);
}

/* The kernel's word on who is at the other end of a Unix socket. */
static bool is_that_rank(const struct rr_boot *b, int fd, int rank)
{
    struct ucred cred;
    socklen_t n = sizeof cred;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && cred.uid == geteuid() &&
           cred.pid == b->entry[rank].member.pid;
}

void rr_local_admit(void *boot, int fd, int rank, int stream)
{
    struct rr_boot *b = boot;

    if (rank <= b->rank || rank >= b->size || stream != 0 || !b->want[rank] || !is_that_rank(b, fd, rank)) {
        close(fd);
        return;
    }
    keep(b, rank, 0, fd);
}

int rr_wire_dialled(struct rr_boot *b, struct rr_dial *d)
{
    ringred_error why = { 0 };
    int fd;

    if (d->state != RR_DIAL_DONE) {
        rr_fail(&why, rr_system_code(d->hand.system), b->rank, d->hand.system,
                "rank %d cannot dial rank %d", b->rank, d->peer);
        return rr_boot_fail(b, &why);
    }
    fd = rr_hand_take(&d->hand);
    if (d->badge.purpose == RR_PURPOSE_LOCAL && !is_that_rank(b, fd, d->peer)) {
        close(fd);
        rr_dial_again(d);
        return 0;
    }
    keep(b, d->peer, d->badge.stream, fd);
    if (d->badge.purpose == RR_PURPOSE_DATA)
        note_address(b, d->peer, fd);
    return 0;
}

/* ---- whom to dial where ---- */

/* Where two hosts share several networks, their streams take them in turn. */
static void spread(struct rr_dial *d, int stream)
{
    int near = rr_addresses_near(d->to, d->count);

    for (int turn = 0; near > 1 && turn < stream % near; turn++) {
        struct rr_address first = d->to[0];
        for (int i = 0; i + 1 < near; i++)
            d->to[i] = d->to[i + 1];
        d->to[near - 1] = first;
    }
}

static int add_dial(struct rr_boot *b, int rank, int stream, ringred_error *why)
{
    const struct rr_entry *e = &b->entry[rank];
    struct rr_badge badge = { b->launch.key, b->session, b->rank, RR_PURPOSE_DATA, stream };
    struct rr_dial *d = &b->dial[b->dials++];

    rr_dial_init(d, &badge, rank);
    d->from = b->picked ? &b->entry[b->rank] : NULL;
    d->inside = b->inside;
    d->outside = b->outside;
    for (int i = 0; i < e->addresses; i++)
        if (e->address[i].family != RR_FAMILY_NONE &&
            (!e->address[i].loopback || e->net == b->entry[b->rank].net))
            d->to[d->count++] = e->address[i];
    if (stream > 0)
        spread(d, stream);
    if (d->count)
        return 0;
    return rr_fail(why, RINGRED_ECONFIG, rank, 0,
                   "rank %d on %s cannot be reached by rank %d on %s: it has %s", rank,
                   e->member.name, b->rank, b->entry[b->rank].member.name,
                   e->addresses ? "only loopback addresses, and is on another network"
                                : "no address");
}

static bool is_through(const struct rr_boot *b, int rank)
{
    for (int i = 0; i < b->want[rank]; i++)
        if (*place(b, rank, i) < 0)
            return false;
    return true;
}

static bool all_are_through(const struct rr_boot *b)
{
    for (int r = 0; r < b->size; r++)
        if (r != b->rank && !is_through(b, r))
            return false;
    return true;
}

/* Names the first that is missing, and why if this rank dials it. */
static int stuck(struct rr_boot *b, ringred_error *why)
{
    char story[300] = "", period[32];
    struct rr_text s = { story, sizeof story, 0 };
    int r = 0;

    while (r < b->size - 1 && (r == b->rank || is_through(b, r)))
        r++;
    rr_boot_period(b, period);
    for (int i = 0; i < b->dials; i++)
        if (b->dial[i].peer == r && *place(b, r, b->dial[i].badge.stream) < 0) {
            rr_dial_story(&b->dial[i], &s);
            return rr_fail(why, RINGRED_ETIMEOUT, r, 0,
                           "rank %d could not reach rank %d on %s within %s: %s", b->rank, r,
                           b->entry[r].member.name, period, story);
        }
    return rr_fail(why, RINGRED_ETIMEOUT, r, 0,
                   "rank %d on %s did not reach rank %d on %s within %s", r,
                   b->entry[r].member.name, b->rank, b->entry[b->rank].member.name, period);
}

/* ---- the two calls ---- */

static void begin(struct rr_boot *b, const uint8_t *want, int streams, int *fd)
{
    b->want = want;
    b->fd = fd;
    b->streams = streams;
    b->dials = 0;
    for (int i = 0; i < b->size * streams; i++)
        fd[i] = -1;
}

static int finish(struct rr_boot *b, struct rr_gate **gate, int rc, ringred_error *why)
{
    for (int i = 0; i < b->dials; i++)
        rr_dial_drop(&b->dial[i]);
    b->dials = 0;
    rr_gate_free(*gate);
    *gate = NULL;
    for (int i = 0; rc < 0 && i < b->size * b->streams; i++) {
        if (b->fd[i] >= 0)
            close(b->fd[i]);
        b->fd[i] = -1;
    }
    if (rc < 0 && why)
        *why = b->failure;
    b->want = NULL;
    b->fd = NULL;
    return rc;
}

/* Room to dial more than one connection to each rank, and to wait for them. */
static int grow(struct rr_boot *b)
{
    size_t more = (size_t)b->size * (size_t)b->streams;
    struct rr_dial *dial = rr_alloc(more, sizeof *dial);
    struct pollfd *polls = rr_alloc((size_t)b->polls.room + more, sizeof *polls);
    ringred_error why = { 0 };

    if (!dial || !polls) {
        rr_free(dial);
        rr_free(polls);
        rr_fail(&why, RINGRED_ENOMEM, -1, 0, "no memory for %d connections to each of %d ranks", b->streams,
                b->size);
        return rr_boot_fail(b, &why);
    }
    rr_free(b->dial);
    rr_free(b->polls.at);
    b->dial = dial;
    b->polls.at = polls;
    b->polls.room += (int)more;
    return 0;
}

static int wire(struct rr_boot *b)
{
    ringred_error why = { 0 };

    if (b->streams > 1)
        RR_TRY(grow(b));
    for (int r = b->rank + 1; r < b->size; r++)
        for (int i = 0; i < b->want[r]; i++)
            if (add_dial(b, r, i, &why) < 0)
                return rr_boot_fail(b, &why);
    b->data->open = true;
    RR_TRY(rr_boot_loop(b, all_are_through, stuck, b->deadline_ns));
    /* listens on until all are through: a dialler may have given up what this rank thinks it has */
    return rr_boot_allgather(b, NULL, 0, NULL, NULL);
}

void rr_boot_congestion(struct rr_boot *b, const char *inside, const char *outside)
{
    b->inside = inside;
    b->outside = outside;
    /* what is accepted inherits it; who comes from outside is put right by the transport */
    for (int i = 0; b->data && i < b->data->listeners; i++)
        (void)setsockopt(b->data->listener[i], IPPROTO_TCP, TCP_CONGESTION, inside,
                         (socklen_t)strlen(inside));
}

int rr_boot_wire(struct rr_boot *b, const uint8_t *want, int streams, int *fd, ringred_error *why)
{
    begin(b, want, streams, fd);
    if (b->failure.code || b->size == 1)
        return finish(b, &b->data, b->failure.code, why);
    return finish(b, &b->data, wire(b), why);
}

static int lowest_here(const struct rr_boot *b)
{
    int r = 0;

    while (b->entry[r].member.host != b->entry[b->rank].member.host)
        r++;
    return r;
}

static int meet_locally(struct rr_boot *b, uint8_t *want)
{
    struct rr_badge badge = { b->launch.key, b->session, b->rank, RR_PURPOSE_LOCAL, 0 };
    int lowest = lowest_here(b);

    for (int r = 0; r < b->size; r++)
        want[r] = r != b->rank &&
                  (b->rank == lowest ? b->entry[r].member.host == b->entry[lowest].member.host
                                     : r == lowest);
    if (b->rank == lowest) {
        b->local->open = true;
    } else {
        struct rr_dial *d = &b->dial[b->dials++];
        rr_dial_init(d, &badge, lowest);
        d->to[0].family = RR_FAMILY_UNIX;
        memcpy(d->to[0].ip, b->entry[lowest].local, sizeof d->to[0].ip);
        d->count = 1;
    }
    return rr_boot_loop(b, all_are_through, stuck, b->deadline_ns);
}

int rr_boot_local(struct rr_boot *b, int *fd, ringred_error *why)
{
    uint8_t *want = rr_alloc((size_t)b->size, 1);
    ringred_error failure = { 0 };
    int rc = b->failure.code;

    begin(b, want, 1, fd);
    if (!want && rc == 0) {
        rr_fail(&failure, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator of %d ranks",
                b->size);
        rc = rr_boot_fail(b, &failure);
    }
    if (rc == 0 && b->size > 1)
        rc = meet_locally(b, want);
    rc = finish(b, &b->local, rc, why);
    rr_free(want);
    return rc;
}
