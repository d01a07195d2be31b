/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous: every rank reaches the root, says who it is, and hears who all are. A root serves
 * whoever comes while it is itself in a rendezvous; a rank that comes between two of them, or to
 * one that is failing, is turned away without a word and tries again until its own deadline. So no
 * rank needs to know how many communicators the others have made before, or failed to make. */
#include "boot/inside.h"

#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_NS \
    ((int64_t)2000000000) /* for the root's word on who is missing, after my own deadline */
#define CHALLENGE_NS ((int64_t)3000000000) /* for a root to answer a second rank 0 */
#define CHALLENGE_AFTER_NS ((int64_t)300000000) /* a root that still waits looks for a second one */

/* ---- sentences ---- */

/* "0-2, 5": the ranks that have joined, or those that have not. */
static void list_ranks(struct rr_text *t, const struct rr_boot *b, bool joined)
{
    const char *comma = "";

    for (int r = 0; r < b->size; r++) {
        int first = r;
        while (r < b->size && (r == 0 || b->line[r].joined) == joined)
            r++;
        if (r == first)
            continue;
        if (t->used + 24 > t->room) {
            rr_text_add(t, "%s...", comma);
            return;
        }
        rr_text_add(t,
                    r - first == 1   ? "%s%d"
                    : r - first == 2 ? "%s%d, %d"
                                     : "%s%d-%d",
                    comma, first, r - 1);
        comma = ", ";
    }
}

static void tell_strangers(const struct rr_gate *g, struct rr_text *t)
{
    if (g->strangers == 0)
        return;
    rr_text_add(t, "; %ld connection%s refused", g->strangers,
                g->strangers == 1 ? " was" : "s were");
    if (g->last[0])
        rr_text_add(t, ", such as %s", g->last);
    if (g->worst == RR_VERDICT_VERSION)
        rr_text_add(t, " (%d, here %d)", g->version, RR_WIRE_VERSION);
}

/* "; they are on node1 (pids 17, 18), node2 (pid 9)": where those that have come were started. */
static void list_places(struct rr_text *t, const struct rr_boot *b)
{
    const char *separator = "; they are on ";

    for (int r = 0; r < b->size; r++) {
        bool told = r > 0 && !b->line[r].joined;
        int pids = 0;
        for (int k = 0; k < r && !told; k++)
            told = (k == 0 || b->line[k].joined) && strcmp(b->entry[k].member.name, b->entry[r].member.name) == 0;
        if (told)
            continue;
        if (t->used + 100 > t->room) {
            rr_text_add(t, ", ...");
            return;
        }
        rr_text_add(t, "%s%s (pid", separator, b->entry[r].member.name);
        for (int k = r; k < b->size && pids < 5; k++)
            if ((k == 0 || b->line[k].joined) && strcmp(b->entry[k].member.name, b->entry[r].member.name) == 0) {
                if (pids == 4)
                    rr_text_add(t, ", ...");
                else
                    rr_text_add(t, "%s %d", pids ? "," : "", b->entry[k].member.pid);
                pids++;
            }
        rr_text_add(t, ")");
        separator = ", ";
    }
}

static int missing(struct rr_boot *b, ringred_error *why)
{
    char absent[100], here[100], places[200] = "", strangers[200] = "", period[32];
    struct rr_text a = { absent, sizeof absent, 0 }, h = { here, sizeof here, 0 };
    struct rr_text s = { strangers, sizeof strangers, 0 }, p = { places, sizeof places, 0 };
    int first = 1, code = RINGRED_ETIMEOUT;

    while (first < b->size - 1 && b->line[first].joined)
        first++;
    list_ranks(&a, b, false);
    list_ranks(&h, b, true);
    tell_strangers(b->meet, &s);
    if (!s.used) /* who was refused says more, and a sentence has an end */
        list_places(&p, b);
    if (b->meet->worst == RR_VERDICT_VERSION)
        code = RINGRED_EVERSION;
    if (b->meet->worst == RR_VERDICT_KEY)
        code = RINGRED_EAUTH;
    return rr_fail(why, code, first, 0,
                   "rank%s %s never arrived at %.120s within %s (here: %s of %d)%s%s",
                   b->size - b->x.got == 1 ? "" : "s", absent, b->where, rr_boot_period(b, period),
                   here, b->size, strangers, places);
}

/* A name that means this machine itself, as names of machines often do in their own /etc/hosts. */
static bool leads_nowhere(const struct rr_dial *d)
{
    for (int i = 0; i < d->count; i++)
        if (!d->at[i].to.loopback)
            return false;
    return d->count > 0;
}

static int no_root(struct rr_boot *b, ringred_error *why)
{
    char story[300] = "", period[32], holder[64];
    struct rr_text s = { story, sizeof story, 0 };
    struct rr_dial *d = &b->dial[0];
    int code = RINGRED_ETIMEOUT;

    rr_boot_period(b, period);
    if (b->rank == 0) {
        rr_port_holder(b->roots.at[0].port, holder, sizeof holder);
        return rr_fail(why, RINGRED_ESYSTEM, 0, EADDRINUSE, "rank 0 cannot listen at %s%s%s",
                       b->where, *holder ? ", which is held by " : "", holder);
    }
    if (b->line[0].fd >= 0)
        return rr_fail(why, RINGRED_ETIMEOUT, 0, 0,
                       "rank 0 at %s answered, but not all ranks met there within %s", b->where,
                       period);
    rr_dial_story(d, &s);
    for (int i = 0; i < d->count; i++) {
        code = d->at[i].verdict == RR_VERDICT_VERSION ? RINGRED_EVERSION : code;
        code = d->at[i].verdict == RR_VERDICT_KEY ? RINGRED_EAUTH : code;
    }
    return rr_fail(why, code, 0, 0, "nothing answered as root at %.120s within %s (%d rounds): %s%s", b->where, period,
                   d->round + 1, story,
                   leads_nowhere(d) && !rr_roots_are_loopback(&b->roots)
                       ? "; here that name means this machine (a loopback address), see /etc/hosts"
                       : "");
}

/* ---- the root: who comes ---- */

void rr_meet_admit(void *boot, int fd, int rank, int stream, const struct rr_seal *seal)
{
    struct rr_boot *b = boot;

    (void)stream; /* there is one */
    rr_net_keep(&b->net, fd);
    if (rank > 0 && rank < b->size && b->line[rank].fd < 0) {
        (void)rr_line_open(&b->line[rank], fd, rank, seal); /* without memory it comes again */
        return;
    }
    for (int i = b->size; i < b->lines; i++)
        if (b->line[i].fd < 0) {
            (void)rr_line_open(&b->line[i], fd, rank, seal);
            return;
        }
    rr_fd_close(fd); /* it comes again */
}

static int no_such_rank(const struct rr_boot *b, int rank, const struct rr_entry *e,
                        ringred_error *why)
{
    return rr_fail(why, RINGRED_ECONFIG, -1, 0,
                   "%s (pid %d) came as rank %d, but the %d ranks of this job are 0 to %d",
                   e->member.name, e->member.pid, rank, b->size, b->size - 1);
}

static int twice(const struct rr_entry *a, const struct rr_entry *c, int rank, ringred_error *why)
{
    return rr_fail(why, RINGRED_ECONFIG, rank, 0,
                   "rank %d was started twice: on %s (pid %d) and on %s (pid %d)", rank,
                   a->member.name, a->member.pid, c->member.name, c->member.pid);
}

/* A join on a spare line: somebody else is on the line of its rank, or was when it came. */
static int settle(struct rr_boot *b, struct rr_line *spare, const struct rr_join *j,
                  ringred_error *why)
{
    int r = spare->rank;
    struct rr_line *l;

    if (r == 0 && memcmp(j->entry.local, b->entry[0].local, sizeof j->entry.local) == 0) { /* I dialled myself */
        rr_line_close(spare);
        rr_line_close(&b->line[0]);
        b->dials = 0; /* so nobody else is there */
        return 0;
    }

    if (r < 0 || r >= b->size)
        return no_such_rank(b, r, &j->entry, why);
    l = &b->line[r];
    if (r == 0)
        return twice(&b->entry[0], &j->entry, 0, why);
    if (l->fd >= 0 && l->joined && !rr_fd_has_ended(l->fd))
        return twice(&b->entry[r], &j->entry, r, why);
    if (l->joined) { /* it left and is back: this rendezvous fails, and it meets the next */
        rr_line_close(spare);
        return 0;
    }
    /* an earlier connection of the same rank, given up by it before it could say anything */
    rr_line_close(l);
    struct rr_line moved = *spare;
    *spare = (struct rr_line){ .fd = -1 };
    *l = moved;
    l->joined = true;
    return 1;
}

/* The address by which a rank reached me is known to work: let it be the first that others try. */
static void promote(const struct rr_boot *b, struct rr_entry *e, int fd)
{
    struct sockaddr_storage s = { 0 };
    socklen_t n = sizeof s;
    struct rr_address local, moved;
    int i = 0;

    if (getsockname(fd, (struct sockaddr *)&s, &n) < 0)
        return;
    rr_address_of((struct sockaddr *)&s, &local);
    if (local.loopback || local.family == RR_FAMILY_NONE)
        return;
    while (i < e->addresses && !rr_address_same_ip(&e->address[i], &local))
        i++;
    if (i == e->addresses && i > 0 && !b->net.picked && !rr_roots_are_loopback(&b->roots)) {
        /* this machine has more addresses than there is room for, and this one is of use */
        i = i < RR_ADDRESSES ? e->addresses++ : RR_ADDRESSES - 1;
        local.port = e->address[0].port;
        e->address[i] = local;
    }
    if (i == e->addresses)
        return; /* an address that the settings exclude, or a translated one */
    moved = e->address[i];
    memmove(e->address + 1, e->address, (size_t)i * sizeof *e->address);
    e->address[0] = moved;
}

static void write_table(struct rr_boot *b)
{
    unsigned char *at = b->x.answer;

    for (int r = 1; r < b->size; r++)
        promote(b, &b->entry[0], b->line[r].fd);
    memcpy(at, b->session, RR_JOB_BYTES);
    for (int r = 0; r < b->size; r++)
        rr_entry_write(&b->entry[r], at + RR_JOB_BYTES + (size_t)r * RR_ENTRY_BYTES);
    b->x.answering = true;
}

int rr_meet_joined(struct rr_boot *b, struct rr_line *l, ringred_error *why)
{
    struct rr_join j;
    size_t index = (size_t)(l - b->line);
    int r = l->rank;

    if (rr_join_read(b->x.ups + index * RR_JOIN_BYTES, RR_JOIN_BYTES, &j) < 0)
        return rr_fail(why, RINGRED_EWIRE, r, 0, "rank %d joined with a malformed entry", r);
    if (j.size != (uint32_t)b->size)
        return rr_fail(
            why, RINGRED_ECONFIG, r, 0,
            "rank %d on %s (pid %d) was started for %u ranks, but rank 0 on %s (pid %d) for %d", r,
            j.entry.member.name, j.entry.member.pid, j.size, b->entry[0].member.name,
            b->entry[0].member.pid, b->size);
    if (strcmp(j.release, RINGRED_VERSION) != 0)
        return rr_fail(why, RINGRED_EVERSION, r, 0,
                       "rank %d on %s (pid %d) uses libringred %s, but rank 0 on %s (pid %d) %s: all ranks of a job must "
                       "use one release", r, j.entry.member.name, j.entry.member.pid, j.release, b->entry[0].member.name,
                       b->entry[0].member.pid, RINGRED_VERSION);
    if (index >= (size_t)b->size) {
        int rc = settle(b, l, &j, why);
        if (rc <= 0)
            return rc;
        l = &b->line[r];
        rr_line_next(l);
    }
    l->joined = l->given = true;
    b->entry[r] = j.entry;
    b->x.got++;
    if (j.left_ms < (uint64_t)INT64_MAX / 1000000) {
        int64_t its = rr_deadline((int64_t)j.left_ms * 1000000);
        b->deadline_ns = its < b->deadline_ns ? its : b->deadline_ns;
    }
    rr_line_send(l, RR_NOTE_HERE, b->step, NULL, 0);
    rr_log(b->log, RINGRED_LOG_TRACE, "rank %d is here: %s, pid %d (%d of %d)", r,
           j.entry.member.name, j.entry.member.pid, b->x.got, b->size);
    if (b->x.got == b->size)
        write_table(b);
    return 0;
}

/* ---- the root: where it listens ---- */

static bool add_listener(struct rr_boot *b, int fd)
{
    if (fd >= 0 && b->meet->listeners < RR_ADDRESSES)
        b->meet->listener[b->meet->listeners++] = fd;
    return fd >= 0;
}

/* On every address that the setting interface allows. */
static int listen_picked(struct rr_boot *b, uint16_t port)
{
    struct rr_address a[RR_ADDRESSES];
    int n = rr_net_addresses(&b->net, a, RR_ADDRESSES), fd = -EADDRNOTAVAIL;

    for (int i = 0; i < n; i++) {
        a[i].port = port;
        fd = rr_listen(&a[i]);
        if (add_listener(b, fd))
            continue;
        while (b->meet->listeners)
            rr_fd_close(b->meet->listener[--b->meet->listeners]);
        break;
    }
    return fd < 0 ? fd : 0;
}

/* A numeric address is bound as it stands, a name on all addresses: it may resolve to something
 * else here than it does for the others. */
static int listen_at(struct rr_boot *b, const struct rr_root *root, uint16_t port)
{
    struct rr_roots one = { .at[0] = *root, .count = 1 };
    struct rr_address a[RR_DIAL_CANDIDATES];
    const char *problem;
    int fd = -EADDRNOTAVAIL;

    one.at[0].port = port;
    one.at[0].more = 0;
    if (rr_host_is_numeric(root->host) || rr_roots_are_loopback(&one)) {
        if (rr_roots_resolve(&one, a, RR_DIAL_CANDIDATES, &problem) > 0) {
            const struct rr_nic *nic = rr_net_find(&b->net, &a[0]);
            if (nic && !a[0].scope)
                a[0].scope = nic->address.scope; /* a link-local address needs one */
            fd = rr_listen(&a[0]);
        }
        if (add_listener(b, fd) || fd != -EADDRNOTAVAIL) /* that would be a translated address: listen wherever it ends */
            return fd < 0 ? fd : 0;
    }
    if (b->net.picked)
        return listen_picked(b, port);
    fd = rr_listen_any(&port);
    return add_listener(b, fd) ? 0 : fd;
}

/* A root that is an address of an interface which must not be used. */
static int check_root(const struct rr_boot *b, const struct rr_root *root, ringred_error *why)
{
    struct rr_roots one = { .at[0] = *root, .count = 1 };
    struct rr_address a;
    const char *problem;

    one.at[0].more = 0;
    if (!b->net.picked || !rr_host_is_numeric(root->host) || rr_roots_resolve(&one, &a, 1, &problem) != 1 || a.loopback)
        return 0;
    const struct rr_nic *nic = rr_net_find(&b->net, &a);
    if (!nic || nic->taken)
        return 0;
    return rr_fail(why, RINGRED_ESETTING, 0, 0,
                   "the root is at %s, an address of %s, which the setting interface leaves out", root->host, nic->name);
}

static int root_listen(struct rr_boot *b, ringred_error *why)
{
    int rc = -EADDRINUSE;

    if (b->launch.listener >= 0) {
        b->meet->borrowed = true;
        b->meet->listeners = rr_unique_id_listeners(b->launch.listener, b->meet->listener);
        return 0;
    }
    for (int i = 0; i < b->roots.count; i++)
        for (int k = 0; k <= b->roots.at[i].more; k++) {
            const struct rr_root *root = &b->roots.at[i];
            uint16_t port = rr_root_port(root, k);
            RR_TRY(check_root(b, root, why));
            rc = listen_at(b, root, port);
            if (rc < 0)
                continue;
            snprintf(b->where, sizeof b->where, strchr(root->host, ':') ? "[%s]:%u" : "%s:%u",
                     root->host, port);
            return 0;
        }
    if (rc == -EADDRINUSE)
        return RINGRED_PENDING;
    return rr_fail(why, rr_system_code(-rc), 0, -rc, "rank 0 cannot listen at %s", b->where);
}

/* ---- everybody: what I am ---- */

static struct rr_gate *new_gate(struct rr_boot *b, enum rr_purpose purpose,
                                const unsigned char *job, ringred_error *why)
{
    struct rr_gate *g = rr_alloc(1, sizeof *g);

    if (!g) {
        rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator of %d ranks",
                b->size);
        return NULL;
    }
    g->badge = (struct rr_badge){ b->launch.key, job, b->rank, purpose, 0,
                                  purpose == RR_PURPOSE_LOCAL ? 0 : b->offers };
    return g;
}

static int cannot_listen(const struct rr_boot *b, int system, ringred_error *why)
{
    char busy[300] = "";
    struct rr_text t = { busy, sizeof busy, 0 };

    if (system == EADDRINUSE)
        rr_net_busy(&b->net, &t);
    return rr_fail(why, rr_system_code(system), b->rank, system, "rank %d cannot listen for its peers%s", b->rank, busy);
}

/* One listener for every address where they must be picked, else one for all. */
static int listen_each(struct rr_boot *b, struct rr_entry *e, ringred_error *why)
{
    int kept = 0, system = EADDRNOTAVAIL;

    for (int i = 0; i < e->addresses; i++) {
        struct rr_address a = e->address[i];
        int fd = rr_net_listen(&b->net, &a);
        if (fd < 0) {
            system = -fd;
            continue;
        }
        b->data->listener[b->data->listeners++] = fd;
        e->address[kept++] = a;
    }
    e->addresses = kept;
    return kept ? 0 : cannot_listen(b, system, why);
}

static int listen_all(struct rr_boot *b, struct rr_entry *e, ringred_error *why)
{
    uint16_t port = 0;
    int fd = rr_net_listen_any(&b->net, &port);

    if (fd < 0)
        return cannot_listen(b, -fd, why);
    b->data->listener[b->data->listeners++] = fd;
    for (int i = 0; i < e->addresses; i++)
        e->address[i].port = port;
    return 0;
}

static int listen_for_data(struct rr_boot *b, ringred_error *why)
{
    struct rr_entry *e = &b->entry[b->rank];
    bool only_loopback = !b->net.picked && rr_roots_are_loopback(&b->roots);
    int n = rr_net_addresses(&b->net, e->address, RR_ADDRESSES), kept = 0;

    for (int i = 0; i < n; i++)
        if (!only_loopback || e->address[i].loopback)
            e->address[kept++] = e->address[i];
    e->addresses = kept;
    return b->net.picked || only_loopback ? listen_each(b, e, why) : listen_all(b, e, why);
}

static int listen_locally(struct rr_boot *b, ringred_error *why)
{
    struct rr_entry *e = &b->entry[b->rank];
    struct rr_address a = { .family = RR_FAMILY_UNIX };
    int fd;

    randombytes_buf(e->local, sizeof e->local);
    memcpy(a.ip, e->local, sizeof a.ip);
    fd = rr_listen(&a);
    if (fd < 0)
        return rr_fail(why, rr_system_code(-fd), b->rank, -fd, "rank %d cannot open a local socket",
                       b->rank);
    b->local->listener[b->local->listeners++] = fd;
    return 0;
}

static void describe_myself(struct rr_boot *b, const struct rr_settings *settings)
{
    struct rr_entry *e = &b->entry[b->rank];

    e->member.pid = getpid();
    if (gethostname(e->member.name, sizeof e->member.name) < 0)
        snprintf(e->member.name, sizeof e->member.name, "an unnamed host");
    e->member.name[sizeof e->member.name - 1] = 0;
    rr_identity(settings, b->rank, &e->member.host, &e->net);
}

/* ---- opening ---- */

static int no_memory(struct rr_boot *b, ringred_error *why)
{
    return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator of %d ranks",
                   b->size);
}

/* Everything that one of several ranks needs: gates, lines, dials and what the loop waits for. */
static int furnish(struct rr_boot *b, ringred_error *why)
{
    size_t guests = 3 * (RR_BOOT_STRANGERS + RR_ADDRESSES);

    b->is_root = b->rank == 0;
    b->lines = b->is_root ? b->size + RR_SPARE_LINES : 1;
    b->polls.room = (int)((size_t)b->lines + (size_t)b->size * RR_DIAL_RACE + guests);
    b->line = rr_alloc((size_t)b->size + RR_SPARE_LINES, sizeof *b->line);
    b->dial = rr_alloc((size_t)b->size, sizeof *b->dial);
    b->polls.at = rr_alloc((size_t)b->polls.room, sizeof *b->polls.at);
    for (int i = 0; b->line && i < b->lines; i++)
        rr_line_init(&b->line[i], -1, i < b->size ? i : -1);
    if (!b->line || !b->dial || !b->polls.at) {
        b->lines = b->line ? b->lines : 0;
        return no_memory(b, why);
    }
    randombytes_buf(b->session, sizeof b->session);
    b->meet = new_gate(b, RR_PURPOSE_MEET, b->launch.job, why);
    b->data = new_gate(b, RR_PURPOSE_DATA, b->session, why);
    b->local = new_gate(b, RR_PURPOSE_LOCAL, b->session, why);
    return b->meet && b->data && b->local ? 0 : RINGRED_ENOMEM;
}

static int join(struct rr_boot *b, struct rr_dial *d)
{
    struct rr_seal seal;
    int fd = rr_dial_take(d, &seal), rc = rr_line_open(&b->line[0], fd, 0, &seal);
    uint64_t left = b->deadline_ns == INT64_MAX ? UINT64_MAX
                                                : (uint64_t)rr_deadline_ms(b->deadline_ns, INT32_MAX);

    sodium_memzero(&seal, sizeof seal);
    if (rc < 0)
        return rc;
    if (!b->is_root)
        promote(b, &b->entry[b->rank], fd);
    rr_net_keep(&b->net, fd);
    struct rr_join j = { (uint32_t)b->size, left, RINGRED_VERSION, b->entry[b->rank] };
    rr_join_write(&j, b->x.ups);
    rr_line_send(&b->line[0], b->x.up, b->step, b->x.ups, b->x.up_bytes);
    return 0;
}

int rr_meet_dialled(struct rr_boot *b, struct rr_dial *d)
{
    char text[RR_ADDRESS_TEXT];
    ringred_error why = { 0 };

    if (d->state == RR_DIAL_DONE) {
        if (join(b, d) == 0)
            return 0;
        (void)no_memory(b, &why);
        return rr_boot_fail(b, &why);
    }
    if (b->is_root) { /* whoever is there is no rank of this job */
        b->dials = 0;
        return 0;
    }
    const struct rr_candidate *c = &d->at[d->chosen];
    rr_address_text(&c->to, text);
    if (c->verdict == RR_VERDICT_VERSION)
        rr_fail(&why, RINGRED_EVERSION, 0, 0,
                "rank 0 at %s speaks wire version %d, this library version %d", text,
                d->version, RR_WIRE_VERSION);
    else if (c->verdict == RR_VERDICT_KEY)
        rr_fail(&why, RINGRED_EAUTH, 0, 0, "rank 0 at %s and rank %d were given different keys",
                text, b->rank);
    else
        rr_fail(&why, rr_system_code(d->system), b->rank, d->system, "rank %d cannot dial rank 0", b->rank);
    return rr_boot_fail(b, &why);
}

static void dial_root(struct rr_boot *b, const struct rr_badge *badge)
{
    struct rr_dial *d = &b->dial[0];

    rr_dial_init(d, badge, 0);
    d->roots = &b->roots;
    d->net = &b->net;
    d->extra = &b->extra;
    b->dials = 1;
}

static void end_dial(struct rr_boot *b)
{
    rr_dial_drop(&b->dial[0]);
    b->dials = 0;
}

/* If this root is a name or a translated address, another machine may have a rank 0 that listens there too, with
 * the same right: where ranks of each host are numbered from 0, say. So a root that waits for long dials
 * itself, and hears whether that leads to another one. */
static int meet_as_root(struct rr_boot *b)
{
    struct rr_badge badge = { b->launch.key, b->launch.job, 0, RR_PURPOSE_MEET, 0, b->offers };

    if (!b->meet->borrowed && !rr_roots_are_loopback(&b->roots)) {
        dial_root(b, &badge);
        b->dial[0].again_ns = rr_now_ns() + CHALLENGE_AFTER_NS;
    }
    b->meet->open = true;
    int rc = rr_boot_loop(b, rr_gathering_is_done, missing, b->deadline_ns);
    b->meet->open = false;
    end_dial(b);
    rr_line_close(&b->line[0]);
    for (int i = b->size; i < b->lines; i++)
        rr_line_close(&b->line[i]);
    return rc;
}

static int64_t with_grace(int64_t deadline_ns)
{
    return deadline_ns > INT64_MAX - GRACE_NS ? INT64_MAX : deadline_ns + GRACE_NS;
}

static bool is_counted(const struct rr_boot *b)
{
    return b->x.done || (b->line[0].fd >= 0 && b->line[0].joined);
}

static int meet_as_other(struct rr_boot *b)
{
    struct rr_badge badge = { b->launch.key, b->launch.job, b->rank, RR_PURPOSE_MEET, 0, b->offers };
    ringred_error why = { 0 };
    int64_t until = b->deadline_ns;
    int rc;

    dial_root(b, &badge);
    b->dial[0].strict = b->roots.count == 1 && b->roots.at[0].more == 0;
    if (b->rank == 0)
        until = rr_deadline(CHALLENGE_NS) < until ? rr_deadline(CHALLENGE_NS) : until;
    rc = rr_boot_loop(b, is_counted, no_root, until);
    if (rc == 0) /* the root's word on who is missing is better than mine */
        rc = rr_boot_loop(b, rr_gathering_is_done, no_root, with_grace(b->deadline_ns));
    end_dial(b);
    if (rc == 0 && rr_table_read(b->x.answer, b->x.down_bytes, b->size, b->session, b->entry) < 0) {
        rr_fail(&why, RINGRED_EWIRE, 0, 0, "rank 0 sent a malformed table of the ranks");
        rc = rr_boot_fail(b, &why);
    }
    return rc;
}

/* The exchange of the rendezvous: joins up, the table down. */
static int meet(struct rr_boot *b, ringred_error *why)
{
    size_t table = RR_JOB_BYTES + (size_t)b->size * RR_ENTRY_BYTES;
    size_t joins = (size_t)(b->is_root ? b->lines : 1) * RR_JOIN_BYTES;
    unsigned char *room = rr_alloc(1, table + joins);
    int rc;

    if (!room)
        return no_memory(b, why);
    struct rr_gathering x = { .up = RR_NOTE_JOIN,
                              .down = RR_NOTE_TABLE,
                              .ups = room + table,
                              .mine = room + table,
                              .answer = room,
                              .up_bytes = RR_JOIN_BYTES,
                              .down_bytes = table };
    rr_gathering_begin(b, &x);
    rc = b->is_root ? meet_as_root(b) : meet_as_other(b);
    memset(&b->x, 0, sizeof b->x);
    rr_free(room);
    return rc;
}

static int open_network(struct rr_boot *b, const struct rr_settings *settings, ringred_error *why)
{
    RR_TRY(rr_roots_parse(b->launch.root, &b->roots, why));
    snprintf(b->where, sizeof b->where, "%.299s", b->launch.root);
    RR_TRY(rr_net_open(settings, &b->net, why));
    RR_TRY(furnish(b, why));
    if (b->is_root) {
        int rc = root_listen(b, why);
        RR_TRY(rc);
        /* somebody else is there: if it is another rank 0, let it hear of this one */
        b->is_root = rc == 0;
        b->lines = b->is_root ? b->lines : 1;
    }
    RR_TRY(listen_for_data(b, why)); /* after the root, whose port may be one of the range */
    RR_TRY(listen_locally(b, why));
    if (!b->launch.has_key)
        rr_log(b->log, RINGRED_LOG_WARN,
               "no key was given (setting key, key_file or key_fd): any process that reaches %s "
               "can join",
               b->where);
    return meet(b, why);
}

/* One rank needs no network, but a setting that is wrong is told all the same. */
static int check_alone(const struct rr_settings *settings, ringred_error *why)
{
    struct rr_net net;

    if (!rr_setting_text(settings, RR_SET_INTERFACE)[0] && !rr_setting_text(settings, RR_SET_PORT_RANGE)[0])
        return 0;
    RR_TRY(rr_net_open(settings, &net, why));
    rr_net_close(&net);
    return 0;
}

void rr_launch_drop(const struct rr_launch *launch)
{
    if (launch->listener >= 0)
        rr_unique_id_spent(launch->listener);
}

int rr_boot_open(const struct rr_launch *launch, const struct rr_settings *settings,
                 const struct rr_log *log, int64_t deadline_ns, struct rr_boot **boot,
                 ringred_error *why)
{
    struct rr_boot *b = rr_alloc(1, sizeof *b);
    ringred_error failure = { 0 };
    int rc;

    if (!b) {
        rr_launch_drop(launch);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator");
    }
    b->launch = *launch;
    b->rank = launch->rank;
    b->size = launch->size;
    b->log = log;
    b->offers = rr_hand_offers(settings);
    b->started_ns = rr_now_ns();
    b->deadline_ns = deadline_ns;
    b->entry = rr_alloc((size_t)b->size, sizeof *b->entry);
    if (!b->entry) {
        rc = no_memory(b, &failure);
    } else {
        describe_myself(b, settings);
        rc = b->size > 1 ? open_network(b, settings, &failure) : check_alone(settings, &failure);
    }
    rr_launch_drop(launch); /* an id serves once */
    if (rc < 0) {
        if (why)
            *why = b->failure.code ? b->failure : failure;
        rr_boot_close(b);
        return rc;
    }
    rr_gate_free(b->meet);
    b->meet = NULL;
    *boot = b;
    return 0;
}

/* ---- afterwards ---- */

uint64_t rr_boot_net(const struct rr_boot *b, int rank)
{
    return b->entry[rank].net;
}

void rr_boot_secret(const struct rr_boot *b, const char *label, unsigned char secret[32])
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, b->launch.key, sizeof b->launch.key, 32);
    crypto_generichash_update(&s, b->session, sizeof b->session);
    crypto_generichash_update(&s, (const unsigned char *)label, strlen(label));
    crypto_generichash_final(&s, secret, 32);
}

const struct rr_member *rr_boot_member(const struct rr_boot *boot, int rank)
{
    return rank >= 0 && rank < boot->size ? &boot->entry[rank].member : NULL;
}

static int unanswered(struct rr_boot *b, ringred_error *why)
{
    char period[32];

    return rr_fail(
        why, RINGRED_ETIMEOUT, b->is_root ? -1 : 0, 0,
        "the ranks met at %s but did not get any further within %s (%d of %d answered rank 0)",
        b->where, rr_boot_period(b, period), b->is_root ? b->x.got : 0, b->size);
}

int rr_boot_allgather(struct rr_boot *b, const void *mine, size_t bytes, void *all,
                      ringred_error *why)
{
    struct rr_gathering x = { .up = RR_NOTE_UP,
                              .down = RR_NOTE_DOWN,
                              .mine = mine,
                              .ups = all,
                              .answer = all,
                              .up_bytes = bytes,
                              .down_bytes = bytes * (size_t)b->size };
    int rc = b->failure.code;

    if (rc == 0 && (b->size == 1 || b->is_root) && bytes)
        memmove((unsigned char *)all + (size_t)b->rank * bytes, mine, bytes);
    if (rc == 0 && b->size > 1) {
        int64_t until = b->is_root ? b->deadline_ns : with_grace(b->deadline_ns);
        rr_gathering_begin(b, &x);
        rc = rr_boot_loop(b, rr_gathering_is_done, unanswered, until);
        memset(&b->x, 0, sizeof b->x);
    }
    if (rc < 0 && why)
        *why = b->failure;
    return rc;
}

void rr_boot_close(struct rr_boot *b)
{
    if (!b)
        return;
    for (int i = 0; b->line && i < b->lines; i++) {
        if (b->line[i].fd >= 0 && !b->failure.code) {
            rr_line_send(&b->line[i], RR_NOTE_BYE, 0, NULL, 0);
            (void)rr_line_write(&b->line[i]); /* whoever is still there will see the end anyway */
        }
        rr_line_close(&b->line[i]);
    }
    for (int i = 0; i < b->dials; i++)
        rr_dial_drop(&b->dial[i]);
    rr_gate_free(b->meet);
    rr_gate_free(b->data);
    rr_gate_free(b->local);
    sodium_memzero(&b->launch.key, sizeof b->launch.key);
    rr_free(b->line);
    rr_free(b->dial);
    rr_free(b->polls.at);
    rr_free(b->entry);
    rr_net_close(&b->net);
    rr_free(b);
}
