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

static int missing(struct rr_boot *b, ringred_error *why)
{
    char absent[120], here[120], strangers[240] = "", period[32];
    struct rr_text a = { absent, sizeof absent, 0 }, h = { here, sizeof here, 0 };
    struct rr_text s = { strangers, sizeof strangers, 0 };
    int first = 1, code = RINGRED_ETIMEOUT;

    while (first < b->size - 1 && b->line[first].joined)
        first++;
    list_ranks(&a, b, false);
    list_ranks(&h, b, true);
    tell_strangers(b->meet, &s);
    if (b->meet->worst == RR_VERDICT_VERSION)
        code = RINGRED_EVERSION;
    if (b->meet->worst == RR_VERDICT_KEY)
        code = RINGRED_EAUTH;
    return rr_fail(why, code, first, 0,
                   "rank%s %s never arrived at %s within %s (here: %s of %d)%s",
                   b->size - b->x.got == 1 ? "" : "s", absent, b->where, rr_boot_period(b, period),
                   here, b->size, strangers);
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
        code = d->seen[i].verdict == RR_VERDICT_VERSION ? RINGRED_EVERSION : code;
        code = d->seen[i].verdict == RR_VERDICT_KEY ? RINGRED_EAUTH : code;
    }
    return rr_fail(why, code, 0, 0, "nothing answered as root at %s within %s (%d rounds): %s",
                   b->where, period, d->round + 1, story);
}

/* ---- the root: who comes ---- */

static bool line_has_ended(const struct rr_line *l)
{
    char byte;
    ssize_t n = recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void rr_meet_admit(void *boot, int fd, int rank, int stream)
{
    struct rr_boot *b = boot;

    (void)stream; /* there is one */
    if (rank > 0 && rank < b->size && b->line[rank].fd < 0) {
        rr_line_init(&b->line[rank], fd, rank);
        return;
    }
    for (int i = b->size; i < b->lines; i++)
        if (b->line[i].fd < 0) {
            rr_line_init(&b->line[i], fd, rank);
            return;
        }
    close(fd); /* it comes again */
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

    if (r < 0 || r >= b->size)
        return no_such_rank(b, r, &j->entry, why);
    l = &b->line[r];
    if (r == 0)
        return twice(&b->entry[0], &j->entry, 0, why);
    if (l->fd >= 0 && l->joined && !line_has_ended(l))
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
static void promote(struct rr_entry *e, int fd)
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
        promote(&b->entry[0], b->line[r].fd);
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

/* A numeric address is bound as it stands, a name on all addresses: it may resolve to something
 * else here than it does for the others. */
static int listen_at(const struct rr_root *root, uint16_t port)
{
    struct rr_roots one = { .at[0] = *root, .count = 1 };
    struct rr_address a[RR_DIAL_ADDRESSES];
    const char *problem;
    int fd = -EADDRNOTAVAIL;

    one.at[0].port = port;
    one.at[0].more = 0;
    if (rr_host_is_numeric(root->host) || rr_roots_are_loopback(&one)) {
        if (rr_roots_resolve(&one, a, RR_DIAL_ADDRESSES, &problem) > 0)
            fd = rr_listen(&a[0]);
        if (fd != -EADDRNOTAVAIL) /* that would be a translated address: listen wherever it ends */
            return fd;
    }
    return rr_listen_any(&port);
}

static int root_listen(struct rr_boot *b, ringred_error *why)
{
    int fd = -EADDRINUSE;

    if (b->launch.listener >= 0) {
        b->meet->borrowed = true;
        b->meet->listener[b->meet->listeners++] = b->launch.listener;
        return 0;
    }
    for (int i = 0; i < b->roots.count; i++)
        for (int k = 0; k <= b->roots.at[i].more; k++) {
            const struct rr_root *root = &b->roots.at[i];
            uint16_t port = rr_root_port(root, k);
            fd = listen_at(root, port);
            if (fd < 0)
                continue;
            b->meet->listener[b->meet->listeners++] = fd;
            snprintf(b->where, sizeof b->where, strchr(root->host, ':') ? "[%s]:%u" : "%s:%u",
                     root->host, port);
            return 0;
        }
    if (fd == -EADDRINUSE)
        return RINGRED_PENDING;
    return rr_fail(why, rr_system_code(-fd), 0, -fd, "rank 0 cannot listen at %s", b->where);
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
    g->badge = (struct rr_badge){ b->launch.key, job, b->rank, purpose, 0 };
    return g;
}

/* One listener for every address where they must be picked, else one for all. */
static int listen_each(struct rr_boot *b, struct rr_entry *e, ringred_error *why)
{
    int kept = 0, system = 0;

    for (int i = 0; i < e->addresses; i++) {
        struct rr_address a = e->address[i];
        int fd = rr_listen(&a);
        if (fd < 0) {
            system = -fd;
            continue;
        }
        b->data->listener[b->data->listeners++] = fd;
        e->address[kept++] = a;
    }
    e->addresses = kept;
    return kept ? 0
                : rr_fail(why, rr_system_code(system), b->rank, system,
                          "rank %d cannot listen for its peers", b->rank);
}

static int listen_all(struct rr_boot *b, struct rr_entry *e, ringred_error *why)
{
    uint16_t port = 0;
    int fd = rr_listen_any(&port);

    if (fd < 0)
        return rr_fail(why, rr_system_code(-fd), b->rank, -fd,
                       "rank %d cannot listen for its peers", b->rank);
    b->data->listener[b->data->listeners++] = fd;
    for (int i = 0; i < e->addresses; i++)
        e->address[i].port = port;
    return 0;
}

static int listen_for_data(struct rr_boot *b, const struct rr_settings *settings,
                           ringred_error *why)
{
    struct rr_entry *e = &b->entry[b->rank];
    bool only_loopback = !b->picked && rr_roots_are_loopback(&b->roots);
    int n = rr_interfaces(settings, e->address, RR_ADDRESSES, why), kept = 0;

    RR_TRY(n);
    for (int i = 0; i < n; i++)
        if (!only_loopback || e->address[i].loopback)
            e->address[kept++] = e->address[i];
    e->addresses = kept;
    return b->picked || only_loopback ? listen_each(b, e, why) : listen_all(b, e, why);
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
    b->polls.room = (int)((size_t)b->lines + (size_t)b->size + guests);
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

int rr_meet_dialled(struct rr_boot *b, struct rr_dial *d)
{
    char text[RR_ADDRESS_TEXT];
    ringred_error why = { 0 };

    rr_address_text(rr_dial_address(d), text);
    if (d->state == RR_DIAL_DONE) {
        rr_line_init(&b->line[0], rr_hand_take(&d->hand), 0);
        promote(&b->entry[b->rank], b->line[0].fd);
        uint64_t left = b->deadline_ns == INT64_MAX
                            ? UINT64_MAX
                            : (uint64_t)rr_deadline_ms(b->deadline_ns, INT32_MAX);
        struct rr_join j = { (uint32_t)b->size, left, b->entry[b->rank] };
        rr_join_write(&j, b->x.ups);
        rr_line_send(&b->line[0], b->x.up, b->step, b->x.ups, b->x.up_bytes);
        return 0;
    }
    if (d->hand.verdict == RR_VERDICT_LOST)
        rr_fail(&why, rr_system_code(d->hand.system), b->rank, d->hand.system,
                "rank %d cannot dial rank 0", b->rank);
    else if (d->hand.verdict == RR_VERDICT_VERSION)
        rr_fail(&why, RINGRED_EVERSION, 0, 0,
                "rank 0 at %s speaks wire version %d, this library version %d", text,
                d->hand.version, RR_WIRE_VERSION);
    else
        rr_fail(&why, RINGRED_EAUTH, 0, 0, "rank 0 at %s and rank %d were given different keys",
                text, b->rank);
    return rr_boot_fail(b, &why);
}

static int meet_as_root(struct rr_boot *b)
{
    b->meet->open = true;
    int rc = rr_boot_loop(b, rr_gathering_is_done, missing, b->deadline_ns);
    b->meet->open = false;
    for (int i = b->size; i < b->lines; i++)
        rr_line_close(&b->line[i]);
    return rc;
}

static bool is_counted(const struct rr_boot *b)
{
    return b->x.done || (b->line[0].fd >= 0 && b->line[0].joined);
}

static int meet_as_other(struct rr_boot *b)
{
    struct rr_badge badge = { b->launch.key, b->launch.job, b->rank, RR_PURPOSE_MEET, 0 };
    ringred_error why = { 0 };
    int64_t until = b->deadline_ns;
    int rc;

    rr_dial_init(&b->dial[0], &badge, 0);
    b->dial[0].roots = &b->roots;
    b->dial[0].from = b->picked ? &b->entry[b->rank] : NULL;
    b->dial[0].strict = b->roots.count == 1 && b->roots.at[0].more == 0;
    b->dials = 1;
    if (b->rank == 0)
        until = rr_deadline(CHALLENGE_NS) < until ? rr_deadline(CHALLENGE_NS) : until;
    rc = rr_boot_loop(b, is_counted, no_root, until);
    if (rc == 0) /* the root's word on who is missing is better than mine */
        rc = rr_boot_loop(b, rr_gathering_is_done, no_root,
                          b->deadline_ns == INT64_MAX ? INT64_MAX : b->deadline_ns + GRACE_NS);
    rr_dial_drop(&b->dial[0]);
    b->dials = 0;
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
    b->picked = rr_setting_text(settings, RR_SET_INTERFACE)[0] != 0;
    RR_TRY(furnish(b, why));
    RR_TRY(listen_for_data(b, settings, why));
    RR_TRY(listen_locally(b, why));
    if (b->is_root) {
        int rc = root_listen(b, why);
        RR_TRY(rc);
        /* somebody else is there: if it is another rank 0, let it hear of this one */
        b->is_root = rc == 0;
        b->lines = b->is_root ? b->lines : 1;
    }
    if (!b->launch.has_key)
        rr_log(b->log, RINGRED_LOG_WARN,
               "no key was given (setting key, key_file or key_fd): any process that reaches %s "
               "can join",
               b->where);
    return meet(b, why);
}

int rr_boot_open(const struct rr_launch *launch, const struct rr_settings *settings,
                 const struct rr_log *log, int64_t deadline_ns, struct rr_boot **boot,
                 ringred_error *why)
{
    struct rr_boot *b = rr_alloc(1, sizeof *b);
    ringred_error failure = { 0 };
    int rc;

    if (!b) {
        rr_unique_id_spent(launch->listener);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator");
    }
    b->launch = *launch;
    b->rank = launch->rank;
    b->size = launch->size;
    b->log = log;
    b->started_ns = rr_now_ns();
    b->deadline_ns = deadline_ns;
    b->entry = rr_alloc((size_t)b->size, sizeof *b->entry);
    if (!b->entry) {
        rc = no_memory(b, &failure);
    } else {
        describe_myself(b, settings);
        rc = b->size > 1 ? open_network(b, settings, &failure) : 0;
    }
    if (launch->listener >= 0)
        rr_unique_id_spent(launch->listener); /* an id serves once */
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
        int64_t until =
            b->is_root || b->deadline_ns == INT64_MAX ? b->deadline_ns : b->deadline_ns + GRACE_NS;
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
    rr_free(b);
}
