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
        rr_fd_close(*at); /* it has lost that one on the way, and dialled again */
    *at = fd;
}

static struct rr_seal *seal_of(const struct rr_boot *b, int rank, int stream)
{
    return b->seal ? &b->seal[rank * b->streams + stream] : NULL;
}

/* Both ends of a connection. */
static bool read_ends(int fd, struct rr_address *mine, struct rr_address *theirs)
{
    struct sockaddr_storage s = { 0 }, m = { 0 };
    socklen_t n = sizeof s, k = sizeof m;

    if (getpeername(fd, (struct sockaddr *)&s, &n) < 0 || getsockname(fd, (struct sockaddr *)&m, &k) < 0)
        return false;
    rr_address_of((struct sockaddr *)&s, theirs);
    rr_address_of((struct sockaddr *)&m, mine);
    return true;
}

void rr_wire_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal)
{
    struct rr_boot *b = boot;

    if (rank < 0 || rank >= b->rank || stream < 0 || stream >= b->want[rank]) {
        rr_fd_close(fd);
        return;
    }
    rr_net_keep(&b->net, fd);
    keep(b, rank, stream, fd);
    if (b->seal)
        *seal_of(b, rank, stream) = *seal;
}

/* The kernel's word on who is at the other end of a Unix socket. */
static bool is_that_rank(const struct rr_boot *b, int fd, int rank)
{
    struct ucred cred;
    socklen_t n = sizeof cred;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && cred.uid == geteuid() &&
           cred.pid == b->entry[rank].member.pid;
}

void rr_local_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal)
{
    struct rr_boot *b = boot;

    (void)seal; /* it leaves no host */
    if (rank <= b->rank || rank >= b->size || stream != 0 || !b->want[rank] || !is_that_rank(b, fd, rank)) {
        rr_fd_close(fd);
        return;
    }
    keep(b, rank, 0, fd);
}

int rr_wire_dialled(struct rr_boot *b, struct rr_dial *d)
{
    ringred_error why = { 0 };
    int fd;

    if (d->state != RR_DIAL_DONE) {
        rr_fail(&why, rr_system_code(d->system), b->rank, d->system, "rank %d cannot dial rank %d", b->rank,
                d->peer);
        return rr_boot_fail(b, &why);
    }
    fd = rr_dial_take(d, d->badge.purpose == RR_PURPOSE_DATA ? seal_of(b, d->peer, d->badge.stream) : NULL);
    if (d->badge.purpose == RR_PURPOSE_LOCAL && !is_that_rank(b, fd, d->peer)) {
        rr_fd_close(fd);
        rr_dial_again(d);
        return 0;
    }
    keep(b, d->peer, d->badge.stream, fd);
    return 0;
}

/* ---- whom to dial where ---- */

/* Those on networks that both are on come first. Where there are several, streams begin with them in turn. */
static void spread(const struct rr_net *net, struct rr_address *to, int n, int stream)
{
    int near = rr_net_near(net, to, n);

    for (int turn = 0; near > 1 && turn < stream % near; turn++) {
        struct rr_address first = to[0];
        for (int i = 0; i + 1 < near; i++)
            to[i] = to[i + 1];
        to[near - 1] = first;
    }
}

static const char *why_unreachable(const struct rr_boot *b, int rank)
{
    const struct rr_entry *e = &b->entry[rank];

    if (!e->addresses)
        return "no address";
    for (int i = 0; i < e->addresses; i++)
        if (!e->address[i].loopback)
            return "no address that the interfaces allowed here (setting interface) lead to: ";
    return e->net == b->entry[b->rank].net ? "only loopback addresses, which are not allowed here (setting interface): "
                                           : "only loopback addresses, and is on another network: ";
}

static int unreachable(const struct rr_boot *b, int rank, ringred_error *why)
{
    const struct rr_entry *e = &b->entry[rank];
    char text[RR_ADDRESS_TEXT], addresses[200] = "";
    struct rr_text t = { addresses, sizeof addresses, 0 };

    for (int i = 0; i < e->addresses && t.used + RR_ADDRESS_TEXT < t.room; i++)
        rr_text_add(&t, "%s%s", i ? ", " : "", rr_address_text(&e->address[i], text));
    return rr_fail(why, RINGRED_ECONFIG, rank, 0, "rank %d on %s cannot be reached by rank %d on %s: it has %s%s", rank,
                   e->member.name, b->rank, b->entry[b->rank].member.name, why_unreachable(b, rank), addresses);
}

static int add_dial(struct rr_boot *b, int rank, int stream, ringred_error *why)
{
    const struct rr_entry *e = &b->entry[rank];
    struct rr_badge badge = { b->launch.key, b->session, b->rank, RR_PURPOSE_DATA, stream, b->offers };
    struct rr_dial *d = &b->dial[b->dials++];
    struct rr_address to[RR_ADDRESSES];
    int n = rr_entry_ways(e, b->entry[b->rank].net, to);

    rr_dial_init(d, &badge, rank);
    d->net = &b->net;
    d->extra = &b->extra;
    d->inside = b->inside;
    d->outside = b->outside;
    if (n > 1 && e->net != b->entry[b->rank].net)
        spread(&b->net, to, n, stream);
    rr_dial_aim(d, to, n);
    return d->count ? 0 : unreachable(b, rank, why);
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

/* ---- which way it went ---- */

static const struct rr_dial *dial_to(const struct rr_boot *b, int rank)
{
    for (int i = 0; i < b->dials; i++)
        if (b->dial[i].peer == rank && b->dial[i].badge.stream == 0)
            return &b->dial[i];
    return NULL;
}

static void tell_why(const struct rr_boot *b, int rank, struct rr_text *t)
{
    const struct rr_dial *d = dial_to(b, rank);

    rr_text_add(t, "%s", b->net.picked ? " (setting interface; " : " (");
    if (!d)
        rr_text_add(t, "the way that rank %d found)", rank);
    else if (d->count == 1)
        rr_text_add(t, "the only candidate)");
    else
        rr_text_add(t, "the first of %d candidates that answered)", d->count);
}

static void note_address(struct rr_boot *b, int rank)
{
    struct rr_entry *e = &b->entry[rank];
    struct rr_address mine, theirs;
    char text[RR_ADDRESS_TEXT];

    if (!read_ends(*place(b, rank, 0), &mine, &theirs))
        return;
    for (int k = 0; k < e->addresses; k++)
        if (rr_address_same_ip(&theirs, &e->address[k]))
            theirs.port = e->address[k].port; /* of its listener, whoever dialled */
    snprintf(e->member.address, sizeof e->member.address, "%s", rr_address_text(&theirs, text));
}

/* Does an earlier stream take the same way? */
static bool is_told(const struct rr_boot *b, int rank, int stream, const struct rr_address *mine,
                    const struct rr_address *theirs)
{
    struct rr_address from, to;

    for (int i = 0; i < stream; i++)
        if (read_ends(*place(b, rank, i), &from, &to) && rr_address_same_ip(&from, mine) &&
            rr_address_same_ip(&to, theirs))
            return true;
    return false;
}

/* One line for each peer: the ways that its streams take, each once, and why these. */
static void tell_way(const struct rr_boot *b, int rank)
{
    char line[600] = "", to[RR_ADDRESS_TEXT], from[RR_ADDRESS_TEXT];
    struct rr_text t = { line, sizeof line, 0 };
    struct rr_address mine, theirs;

    for (int i = 0; i < b->want[rank] && t.used + 220 < t.room; i++) {
        if (!read_ends(*place(b, rank, i), &mine, &theirs) || is_told(b, rank, i, &mine, &theirs))
            continue;
        const struct rr_nic *nic = rr_net_find(&b->net, &mine);
        rr_text_add(&t, "%s%s from %s over %s", t.used ? ", " : "", rr_address_text(&theirs, to),
                    rr_address_text(&mine, from), nic ? nic->name : "an interface that has gone");
    }
    if (b->want[rank] > 1)
        rr_text_add(&t, ", %d streams", b->want[rank]);
    tell_why(b, rank, &t);
    rr_log(b->log, RINGRED_LOG_INFO, "link to rank %d on %s: %s", rank, b->entry[rank].member.name, line);
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

static int finish(struct rr_boot *b, struct rr_gate *gate, int rc, ringred_error *why)
{
    for (int i = 0; i < b->dials; i++)
        rr_dial_drop(&b->dial[i]);
    b->dials = 0;
    rr_gate_shut(gate);
    for (int i = 0; rc < 0 && i < b->size * b->streams; i++) {
        if (b->fd[i] >= 0)
            rr_fd_close(b->fd[i]);
        b->fd[i] = -1;
    }
    if (rc < 0 && why)
        *why = b->failure;
    b->want = NULL;
    b->fd = NULL;
    b->seal = NULL;
    return rc;
}

/* Room to dial more than one connection to each rank, and to wait for them. */
static int grow(struct rr_boot *b)
{
    size_t more = (size_t)b->size * (size_t)b->streams, polls_more = more * RR_DIAL_RACE;
    struct rr_dial *dial = rr_alloc(more, sizeof *dial);
    struct pollfd *polls = rr_alloc((size_t)b->polls.room + polls_more, sizeof *polls);
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
    b->polls.room += (int)polls_more;
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
    for (int r = 0; r < b->size; r++) {
        if (!b->want[r])
            continue;
        note_address(b, r);
        if (b->log && b->log->level >= RINGRED_LOG_INFO)
            tell_way(b, r);
    }
    /* whoever is not through yet may still tell of a failure */
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

int rr_boot_wire(struct rr_boot *b, const uint8_t *want, int streams, int *fd, struct rr_seal *seal,
                 ringred_error *why)
{
    begin(b, want, streams, fd);
    b->seal = seal;
    if (b->failure.code || b->size == 1)
        return finish(b, b->data, b->failure.code, why);
    return finish(b, b->data, wire(b), why);
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
    struct rr_badge badge = { b->launch.key, b->session, b->rank, RR_PURPOSE_LOCAL, 0, 0 };
    int lowest = lowest_here(b);

    for (int r = 0; r < b->size; r++)
        want[r] = r != b->rank &&
                  (b->rank == lowest ? b->entry[r].member.host == b->entry[lowest].member.host
                                     : r == lowest);
    if (b->rank == lowest) {
        b->local->open = true;
    } else {
        struct rr_dial *d = &b->dial[b->dials++];
        struct rr_address at = { .family = RR_FAMILY_UNIX };
        rr_dial_init(d, &badge, lowest);
        memcpy(at.ip, b->entry[lowest].local, sizeof at.ip);
        rr_dial_aim(d, &at, 1);
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
    rc = finish(b, b->local, rc, why);
    rr_gate_free(b->local);
    b->local = NULL;
    rr_free(want);
    return rc;
}
