/* SPDX-License-Identifier: Apache-2.0 */
/* A transport plug-in by a user of the headers: lanes over libfabric's connected endpoints, of its provider "tcp".
 *
 * A lane is an endpoint (FI_EP_MSG), which keeps order; the lower rank of two dials, and says first who it is. Bytes go
 * in pieces, out of SLOTS pieces of memory and into as many at the peer. A sender has a credit for each of these: it
 * comes back when a piece has been read, with the next piece or by itself, as the number that travels beside a
 * message. So nothing comes for which no memory is posted, and nothing is allocated once a lane is made. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ringred/transport.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define PIECE 16384 /* bytes */
#define SLOTS 16
#define SPARE 4           /* receives for messages without bytes: two returns of credit, the end */
#define MANY (SLOTS / 2)  /* credits that go back by themselves */
#define CREDITS 0xffffu   /* what a message says beside its bytes: credits that go back, */
#define FINISH (1u << 16) /* and that it is the last one */
#define CARD_MOST 256
#define FDS 65536 /* descriptors above are left alone */

struct piece {
    struct lane *lane;
    unsigned char *bytes;
    size_t length;
};

struct lane {
    struct fid_ep *ep; /* NULL: not made yet */
    void *memory;
    struct piece in[SLOTS + SPARE], out[SLOTS], last; /* last: the message that ends the lane */
    struct piece *due[SLOTS];                         /* pieces that came, in order */
    uint64_t came, read;                              /* how many did, and were read to the end */
    size_t at;                                        /* bytes read of the one in turn */
    uint64_t sent, gone;                              /* pieces that were sent, and whose memory is free again */
    uint32_t credits, owed;
    bool up, finishing, told, drained, finished;
    int32_t broken; /* an errno */
};

struct self {
    const ringred_host *host;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_pep *door;
    struct fid_cq *cq;
    struct lane *lanes; /* [ranks][rails] */
    int32_t address_bytes;
    int bell; /* in the set of watch: rung when progress has taken in what a sleeper was promised to be told of */
    bool armed;
    unsigned char had[FDS / 8]; /* descriptors that are not libfabric's */
};

/* What a rank says when it dials. */
struct card {
    int32_t rank, rail;
    unsigned char secret[32]; /* keeps others from taking a rank's place; that it is the rank, the library finds out */
};

static struct lane *lane(struct self *s, int peer, int rail)
{
    return &s->lanes[peer * s->host->rails + rail];
}

/* ---- descriptors ----
 * Those that libfabric opens would pass to programs that this one starts, which then keep connections of the dead
 * open; it has no option for that. So whatever is new after a call is marked. */

static void each_descriptor(struct self *s, void (*visit)(struct self *s, int fd))
{
    DIR *folder = opendir("/proc/self/fd");

    for (struct dirent *e; folder && (e = readdir(folder));) {
        const int fd = atoi(e->d_name);
        if (fd > 2 && fd < FDS && fd != dirfd(folder))
            visit(s, fd);
    }
    if (folder)
        closedir(folder);
}

static void note(struct self *s, int fd)
{
    s->had[fd / 8] |= (unsigned char)(1u << fd % 8);
}

static void mark(struct self *s, int fd)
{
    if (!(s->had[fd / 8] & 1u << fd % 8))
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* ---- opening ---- */

static int32_t fail(const struct self *s, ringred_error *why, int32_t code, int32_t rank, const char *what, int64_t rc)
{
    char text[200];

    snprintf(text, sizeof text, "libfabric: %s%s%s", what, rc < 0 ? ": " : "", rc < 0 ? fi_strerror((int)-rc) : "");
    return s->host->fail(why, code, rank, rc < 0 && -rc < FI_ERRNO_OFFSET ? (int32_t)-rc : 0, text);
}

static int find(struct fi_info **info)
{
    struct fi_info *hints = fi_allocinfo();

    if (!hints)
        return -FI_ENOMEM;
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_MSG;
    hints->fabric_attr->prov_name = strdup("tcp");
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->data_progress = hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->cq_data_size = sizeof(uint32_t);
    hints->tx_attr->size = SLOTS + SPARE;
    hints->rx_attr->size = SLOTS + SPARE;
    const int rc = fi_getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, info); /* FI_TCP_IFACE chooses */
    fi_freeinfo(hints);
    return rc;
}

static int32_t fabric_usable(const ringred_host *host, ringred_error *why)
{
    struct fi_info *info = NULL;
    const int rc = find(&info);

    (void)host; /* may be NULL */
    if (rc == 0) {
        fi_freeinfo(info);
        return 0;
    }
    if (why) {
        why->code = RINGRED_EUNSUPPORTED;
        snprintf(why->text, sizeof why->text, "libfabric has no provider \"tcp\" here: %s", fi_strerror(-rc));
    }
    return RINGRED_EUNSUPPORTED;
}

static void shut(struct fid *fid)
{
    if (fid)
        (void)fi_close(fid);
}

#define SHUT(object) shut((object) ? &(object)->fid : NULL)

static void fabric_close(void *self, int64_t deadline_ns)
{
    struct self *s = self;

    (void)deadline_ns; /* drained waited for all that could still go */
    for (int i = 0; s->lanes && i < s->host->ranks * s->host->rails; i++)
        SHUT(s->lanes[i].ep);
    SHUT(s->door);
    SHUT(s->cq);
    SHUT(s->eq);
    SHUT(s->domain);
    SHUT(s->fabric);
    for (int i = 0; s->lanes && i < s->host->ranks * s->host->rails; i++)
        free(s->lanes[i].memory);
    if (s->info)
        fi_freeinfo(s->info);
    s->host->close_descriptor(s->host->context, s->bell);
    free(s->lanes);
    free(s);
}

/* The first thing that does not work: its status, and in *what what it is. */
static int furnish(struct self *s, const char **what)
{
    struct fi_eq_attr events = { .wait_obj = FI_WAIT_FD };
    struct fi_cq_attr news = { .wait_obj = FI_WAIT_FD, .format = FI_CQ_FORMAT_DATA };
    int rc;

    news.size = (size_t)(s->host->ranks * s->host->rails) * (2 * SLOTS + 2 * SPARE);
    if ((rc = find(&s->info)) != 0)
        *what = "no provider \"tcp\"";
    else if ((rc = fi_fabric(s->info->fabric_attr, &s->fabric, NULL)) != 0)
        *what = "cannot open the fabric";
    else if ((rc = fi_domain(s->fabric, s->info, &s->domain, NULL)) != 0)
        *what = "cannot open the domain";
    else if ((rc = fi_eq_open(s->fabric, &events, &s->eq, NULL)) != 0)
        *what = "cannot make an event queue";
    else if ((rc = fi_cq_open(s->domain, &news, &s->cq, NULL)) != 0)
        *what = "cannot make a completion queue";
    else if ((rc = fi_passive_ep(s->fabric, s->info, &s->door, NULL)) != 0 ||
             (rc = fi_pep_bind(s->door, &s->eq->fid, 0)) != 0 || (rc = fi_listen(s->door)) != 0)
        *what = "cannot listen";
    return rc;
}

static int32_t fabric_open(const ringred_host *host, void **self, ringred_error *why)
{
    struct self *s = calloc(1, sizeof *s);
    const char *what = "";

    if (!s)
        return host->fail(why, RINGRED_ENOMEM, -1, 0, "libfabric: no memory");
    s->host = host;
    s->bell = host->own_descriptor(host->context, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    s->lanes = calloc((size_t)(host->ranks * host->rails), sizeof *s->lanes);
    each_descriptor(s, note);
    const int rc = s->lanes && s->bell >= 0 ? furnish(s, &what) : -FI_ENOMEM;
    each_descriptor(s, mark);
    if (rc == 0) {
        *self = s;
        return 0;
    }
    (void)fail(s, why, RINGRED_ESYSTEM, -1, what, rc);
    fabric_close(s, 0);
    return RINGRED_ESYSTEM;
}

static int32_t fabric_address(void *self, void *to, ringred_error *why)
{
    struct self *s = self;
    size_t bytes = RINGRED_ADDRESS_MOST;
    const int rc = fi_getname(&s->door->fid, to, &bytes);

    if (rc)
        return fail(s, why, RINGRED_ESYSTEM, -1, "cannot tell its address", rc);
    s->address_bytes = (int32_t)bytes;
    return s->address_bytes;
}

/* ---- what comes ---- */

static void post(struct lane *l, struct piece *p)
{
    const ssize_t rc = fi_recv(l->ep, p->bytes, PIECE, NULL, 0, p);

    if (rc && !l->broken)
        l->broken = EIO;
}

/* What waits in vain is tried again when something that was sent has gone out. */
static void return_credits(struct lane *l)
{
    if (l->owed >= MANY && !l->broken && fi_injectdata(l->ep, l->last.bytes, 0, l->owed, 0) == 0)
        l->owed = 0;
}

static void tell_end(struct lane *l)
{
    const struct fi_msg end = { .context = &l->last, .data = FINISH | l->owed };

    if (l->told || l->broken || fi_sendmsg(l->ep, &end, FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE))
        return;
    l->owed = 0;
    l->told = true;
}

static void take_message(const struct fi_cq_data_entry *e)
{
    struct piece *p = e->op_context;
    struct lane *l = p->lane;

    l->credits += (uint32_t)e->data & CREDITS;
    l->finished = l->finished || (e->data & FINISH);
    p->length = e->len;
    if (e->len && l->came - l->read < SLOTS)
        l->due[l->came++ % SLOTS] = p;
    else
        post(l, p);
}

static void take_sent(const struct fi_cq_data_entry *e)
{
    struct piece *p = e->op_context;
    struct lane *l = p->lane;

    if (p == &l->last)
        l->drained = true;
    else
        l->gone++;
    return_credits(l);
}

/* Receives are always posted; they fail when the connection ends, behind all that came. */
static void take_error(struct self *s)
{
    struct fi_cq_err_entry e = { 0 };

    if (fi_cq_readerr(s->cq, &e, 0) != 1)
        return;
    struct lane *l = ((struct piece *)e.op_context)->lane;
    if (!l->broken)
        l->broken = e.err && e.err != FI_ECANCELED && e.err < FI_ERRNO_OFFSET ? e.err : ECONNRESET;
}

static void fabric_progress(void *self)
{
    struct self *s = self;
    struct fi_cq_data_entry e[16];
    ssize_t n;

    while ((n = fi_cq_read(s->cq, e, 16)) > 0 || n == -FI_EAVAIL) {
        if (s->armed)
            (void)eventfd_write(s->bell, 1); /* cannot overflow */
        s->armed = false;
        if (n < 0)
            take_error(s);
        for (ssize_t i = 0; i < n; i++)
            (e[i].flags & FI_RECV ? take_message : take_sent)(&e[i]);
    }
}

/* ---- making lanes ---- */

static int make_lane(struct self *s, struct lane *l, struct fi_info *info)
{
    unsigned char *memory = malloc((2 * SLOTS + SPARE) * (size_t)PIECE);
    int rc = memory ? fi_endpoint(s->domain, info, &l->ep, l) : -FI_ENOMEM;

    l->memory = memory;
    if (rc || (rc = fi_ep_bind(l->ep, &s->eq->fid, 0)) != 0 ||
        (rc = fi_ep_bind(l->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV)) != 0 || (rc = fi_enable(l->ep)) != 0)
        return rc;
    l->credits = SLOTS;
    l->last = (struct piece){ .lane = l, .bytes = memory };
    for (int i = 0; i < SLOTS; i++, memory += PIECE)
        l->out[i] = (struct piece){ .lane = l, .bytes = memory };
    for (int i = 0; i < SLOTS + SPARE; i++, memory += PIECE) {
        l->in[i] = (struct piece){ .lane = l, .bytes = memory };
        post(l, &l->in[i]);
    }
    return l->broken ? -FI_EIO : 0;
}

static int32_t dial(struct self *s, int peer, int rail, const void *address, int32_t bytes, ringred_error *why)
{
    struct card card = { s->host->rank, rail, { 0 } };

    if (bytes != s->address_bytes)
        return fail(s, why, RINGRED_EWIRE, peer, "an address of another kind", 0);
    s->host->secret(s->host->context, "libfabric card", card.secret);
    int rc = make_lane(s, lane(s, peer, rail), s->info);
    if (rc == 0)
        rc = fi_connect(lane(s, peer, rail)->ep, address, &card, sizeof card);
    return rc ? fail(s, why, RINGRED_EPEER, peer, "cannot dial a rank", rc) : 0;
}

/* Who dials? NULL: nobody who may. */
static struct lane *place(struct self *s, const uint8_t *wanted, const void *bytes, size_t length)
{
    unsigned char secret[32];
    struct card card;

    if (length < sizeof card)
        return NULL;
    memcpy(&card, bytes, sizeof card);
    s->host->secret(s->host->context, "libfabric card", secret);
    if (memcmp(card.secret, secret, sizeof secret) != 0 || card.rank < 0 || card.rank >= s->host->rank ||
        !wanted[card.rank] || card.rail < 0 || card.rail >= s->host->rails || lane(s, card.rank, card.rail)->ep)
        return NULL;
    return lane(s, card.rank, card.rail);
}

static void welcome(struct self *s, const uint8_t *wanted, const struct fi_eq_cm_entry *e, size_t length)
{
    struct lane *l = place(s, wanted, e->data, length);

    if (!l)
        (void)fi_reject(s->door, e->info->handle, NULL, 0);
    else if (make_lane(s, l, e->info) || fi_accept(l->ep, NULL, 0))
        l->broken = EIO; /* sending on it tells */
    fi_freeinfo(e->info);
}

/* Waits a moment for one event of making lanes. */
static int32_t turn(struct self *s, const uint8_t *wanted, ringred_error *why)
{
    union {
        struct fi_eq_cm_entry cm;
        unsigned char room[sizeof(struct fi_eq_cm_entry) + CARD_MOST];
    } e;
    struct fi_eq_err_entry bad = { 0 };
    uint32_t event = 0;
    const ssize_t n = fi_eq_sread(s->eq, &event, &e, sizeof e, 10, 0);

    if (n == -FI_EAVAIL && fi_eq_readerr(s->eq, &bad, 0) > 0) {
        const struct lane *l = bad.fid && bad.fid->fclass == FI_CLASS_EP ? bad.fid->context : NULL;
        return fail(s, why, RINGRED_EPEER, l ? (int32_t)((l - s->lanes) / s->host->rails) : -1, "cannot reach a rank",
                    -bad.err);
    }
    if (n < (ssize_t)sizeof e.cm)
        return 0;
    if (event == FI_CONNREQ)
        welcome(s, wanted, &e.cm, (size_t)n - sizeof e.cm);
    else if (event == FI_CONNECTED)
        ((struct lane *)e.cm.fid->context)->up = true;
    return 0;
}

static int missing(struct self *s, const uint8_t *wanted)
{
    for (int i = 0; i < s->host->ranks * s->host->rails; i++)
        if (wanted[i / s->host->rails] && !s->lanes[i].up)
            return i / s->host->rails;
    return -1;
}

static int32_t fabric_connect(void *self, const uint8_t *wanted, const void *const *address, const int32_t *bytes,
                              int64_t deadline_ns, ringred_error *why)
{
    struct self *s = self;
    int32_t rc = 0;

    memset(s->had, 0, sizeof s->had);
    each_descriptor(s, note);
    for (int peer = s->host->rank + 1; peer < s->host->ranks; peer++)
        for (int rail = 0; wanted[peer] && rail < s->host->rails && rc == 0; rail++)
            rc = dial(s, peer, rail, address[peer], bytes[peer], why);
    for (int who; rc == 0 && (who = missing(s, wanted)) >= 0;) {
        if (s->host->is_interrupted(s->host->context))
            return fail(s, why, RINGRED_EINTERRUPTED, s->host->rank, "the caller wants to stop", 0);
        if (s->host->now_ns() >= deadline_ns)
            return fail(s, why, RINGRED_ETIMEOUT, who, "a rank did not come", 0);
        rc = turn(s, wanted, why);
    }
    each_descriptor(s, mark);
    return rc;
}

/* ---- lanes ---- */

/* Copies bytes of the parts, from `skip` on, at most a piece. */
static size_t gather(const ringred_span *part, int32_t parts, size_t skip, unsigned char *to)
{
    size_t sum = 0;

    for (int32_t i = 0; i < parts && sum < PIECE; i++) {
        const size_t from = skip < part[i].length ? skip : part[i].length;
        const size_t k = part[i].length - from < PIECE - sum ? part[i].length - from : PIECE - sum;
        memcpy(to + sum, (const char *)part[i].bytes + from, k);
        skip -= from;
        sum += k;
    }
    return sum;
}

/* The bytes of one piece that was sent; 0: none for now, or the lane is broken. */
static size_t send_piece(struct lane *l, const ringred_span *part, int32_t parts, size_t skip)
{
    struct piece *p = &l->out[l->sent % SLOTS];

    if (l->broken || l->finishing || !l->credits || l->sent - l->gone == SLOTS)
        return 0;
    const size_t k = gather(part, parts, skip, p->bytes);
    const ssize_t rc = k ? fi_senddata(l->ep, p->bytes, k, NULL, l->owed, 0, p) : -FI_EAGAIN;
    if (rc && rc != -FI_EAGAIN)
        l->broken = ECONNRESET;
    if (rc)
        return 0;
    l->owed = 0;
    l->credits--;
    l->sent++;
    return k;
}

static int64_t fabric_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts,
                           int32_t *system)
{
    struct lane *l = lane(self, peer, rail);
    size_t sum = 0;

    for (size_t k; (k = send_piece(l, part, parts, sum)) > 0;)
        sum += k;
    if (sum || (!l->broken && !l->finishing))
        return (int64_t)sum;
    *system = l->broken ? l->broken : EPIPE;
    return RINGRED_EPEER;
}

/* Fills one part from the pieces that came. to NULL: drops. */
static size_t read_pieces(struct lane *l, unsigned char *to, size_t most)
{
    size_t sum = 0;

    while (sum < most && l->read < l->came) {
        struct piece *p = l->due[l->read % SLOTS];
        const size_t k = p->length - l->at < most - sum ? p->length - l->at : most - sum;
        if (to)
            memcpy(to + sum, p->bytes + l->at, k);
        sum += k;
        l->at += k;
        if (l->at < p->length)
            break;
        l->at = 0;
        l->read++;
        l->owed++;
        post(l, p);
        return_credits(l);
    }
    return sum;
}

static int64_t fabric_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts,
                           int32_t *system)
{
    struct lane *l = lane(self, peer, rail);
    size_t sum = 0;

    if (l->read == l->came)
        fabric_progress(self);
    for (int32_t i = 0; i < parts; i++)
        sum += read_pieces(l, part[i].bytes, part[i].length);
    if (sum || l->read < l->came || (!l->broken && !l->finished))
        return (int64_t)sum;
    *system = l->finished ? 0 : l->broken;
    return RINGRED_EPEER;
}

static void fabric_finish(void *self, int32_t peer, int32_t rail)
{
    struct lane *l = lane(self, peer, rail);

    l->finishing = true;
    tell_end(l);
}

static void fabric_reset(void *self, int32_t peer, int32_t rail)
{
    struct lane *l = lane(self, peer, rail);

    l->broken = l->broken ? l->broken : ECONNRESET;
    l->read = l->came;
    (void)fi_shutdown(l->ep, 0); /* an error means that it is down already */
}

static int32_t fabric_drained(void *self, int32_t peer, int32_t rail)
{
    struct lane *l = lane(self, peer, rail);

    fabric_progress(self);
    (void)read_pieces(l, NULL, SIZE_MAX);
    if (l->finishing)
        tell_end(l);
    return l->broken || (l->finishing ? l->drained : l->sent == l->gone) ? 0 : RINGRED_PENDING;
}

/* ---- waiting ---- */

static int32_t fabric_watch(void *self, int32_t epoll, ringred_error *why)
{
    struct self *s = self;
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    int fd = -1;
    const int rc = fi_control(&s->cq->fid, FI_GETWAIT, &fd);

    if (rc)
        return fail(s, why, RINGRED_ESYSTEM, -1, "its queue has no descriptor", rc);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) || epoll_ctl(epoll, EPOLL_CTL_ADD, s->bell, &event))
        return fail(s, why, RINGRED_ESYSTEM, -1, "cannot watch its queue", -errno);
    return 0;
}

static int32_t fabric_arm(void *self)
{
    struct self *s = self;
    struct fid *queue = &s->cq->fid;

    s->armed = fi_trywait(s->fabric, &queue, 1) == 0;
    return s->armed ? 0 : RINGRED_PENDING;
}

static const ringred_transport table = {
    .struct_size = sizeof table,
    .name = "libfabric",
    .text = "libfabric's provider tcp",
    .usable = fabric_usable,
    .open = fabric_open,
    .address = fabric_address,
    .connect = fabric_connect,
    .send = fabric_send,
    .recv = fabric_recv,
    .finish = fabric_finish,
    .reset = fabric_reset,
    .drained = fabric_drained,
    .watch = fabric_watch,
    .arm = fabric_arm,
    .progress = fabric_progress,
    .close = fabric_close,
};

__attribute__((visibility("default"))) const ringred_transport *RINGRED_TRANSPORT_ENTRY(void);

const ringred_transport *RINGRED_TRANSPORT_ENTRY(void)
{
    return &table;
}
