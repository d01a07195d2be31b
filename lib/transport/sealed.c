/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that encrypt what they carry over other lanes, in records (boot/seal.c). Both directions of a lane have keys of
 * their own, which their handshake made, so nothing of another lane, day or direction opens here. Always holds: bytes
 * are handed out once the record's tag has been found right, and what follows a wrong one never; a nonce is used once; a
 * frame is not done before the lane below has all of it. */
#include "transport/sealed.h"

#include <errno.h>
#include <string.h>

#define HEAD   RR_RECORD_HEAD
#define TAG    RR_RECORD_TAG
#define RECORD (RR_RECORD_MOST + RR_RECORD_MORE)

struct lane {
    struct rr_sealing out, in;
    size_t length, sent; /* of the record in flight; 0: there is none */
    bool holds;          /* its last byte has not been called taken */
    enum {
        OPEN,
        ENDING,
        LAST,
        DONE
    } state; /* of our direction: LAST: its last record is in flight */

    bool ended, forged; /* the peer has said that nothing follows; what came was none of its */
    size_t plain;       /* bytes at lo that are open and not handed out */
    size_t lo, hi;      /* of what was read ahead */
    unsigned char record[RECORD], room[4 * RECORD];
};

struct sealed {
    const ringred_transport *by; /* the lanes below */
    void *self;
    int lanes, rails;
    struct lane *lane[]; /* [ranks * rails]; NULL: there is none */
};

static struct lane *lane_of(void *self, int peer, int rail)
{
    const struct sealed *s = self;

    return s->lane[peer * s->rails + rail];
}

/* ---- out ---- */

/* 0: the lane below has the record in flight; PENDING, EPEER. */
static int flush(const struct sealed *s, struct lane *l, int peer, int rail, int32_t *system)
{
    while (l->sent < l->length) {
        const ringred_span rest = { l->record + l->sent, l->length - l->sent };
        int64_t k = s->by->send(s->self, peer, rail, &rest, 1, system);
        if (k <= 0)
            return k < 0 ? RINGRED_EPEER : RINGRED_PENDING;
        l->sent += (size_t)k;
    }
    l->length = l->sent = 0;
    return 0;
}

/* Where the next record's bytes lie, `skip` bytes behind the front: in one part, or copied out of
 * several. */
static const unsigned char *gather(const ringred_span *part, int parts, size_t skip,
                                   unsigned char *room, size_t *length)
{
    size_t n = 0;

    for (int i = 0; i < parts && n < RR_RECORD_MOST; i++) {
        if (skip >= part[i].length) {
            skip -= part[i].length;
            continue;
        }
        const unsigned char *from = (const unsigned char *)part[i].bytes + skip;
        size_t k =
            part[i].length - skip < RR_RECORD_MOST - n ? part[i].length - skip : RR_RECORD_MOST - n;
        skip = 0;
        if (n == 0 && (k == RR_RECORD_MOST || i == parts - 1)) {
            *length = k;
            return from;
        }
        memcpy(room + n, from, k);
        n += k;
    }
    *length = n;
    return room;
}

/* The last byte of a record is called taken when all of it has gone, so that the caller comes again
 * until then, and takes nothing back that has begun to go. */
static int64_t sealed_send(void *self, int32_t peer, int32_t rail, const ringred_span *part,
                           int32_t parts, int32_t *system)
{
    const struct sealed *s = self;
    struct lane *l = lane_of(self, peer, rail);
    int rc = flush(s, l, peer, rail, system);
    size_t taken = l->holds, length;

    if (rc)
        return rc < 0 ? rc : 0;
    l->holds = false;
    for (;;) {
        const unsigned char *from = gather(part, parts, taken, l->record + HEAD, &length);
        if (!length)
            return (int64_t)taken;
        l->length = rr_seal_record(&l->out, from, length, l->record);
        taken += length;
        rc = flush(s, l, peer, rail, system);
        if (rc < 0)
            return rc;
        if (rc) {
            l->holds = true;
            return (int64_t)taken - 1;
        }
    }
}

/* The record in flight, then one of no bytes, which says that this is the end; then the lane below
 * may end. */
static void go_to_end(const struct sealed *s, struct lane *l, int peer, int rail)
{
    int32_t system;
    int rc = flush(s, l, peer, rail, &system);

    if (rc == 0 && l->state == ENDING) {
        l->state = LAST;
        l->length = rr_seal_record(&l->out, l->record + HEAD, 0, l->record);
        rc = flush(s, l, peer, rail, &system);
    }
    if (rc == RINGRED_PENDING)
        return;
    l->state = DONE;
    l->length = l->sent = 0; /* where it has failed, nobody waits for it */
    s->by->finish(s->self, peer, rail);
}

static void sealed_finish(void *self, int32_t peer, int32_t rail)
{
    struct lane *l = lane_of(self, peer, rail);

    l->state = ENDING;
    go_to_end(self, l, peer, rail);
}

static int32_t sealed_drained(void *self, int32_t peer, int32_t rail)
{
    const struct sealed *s = self;
    struct lane *l = lane_of(self, peer, rail);

    if (l->state == ENDING || l->state == LAST)
        go_to_end(s, l, peer, rail);
    int32_t rc = s->by->drained(s->self, peer, rail);
    return l->length ? RINGRED_PENDING : rc;
}

/* ---- in ---- */

static int64_t hand_out(struct lane *l, const ringred_span *part, int parts)
{
    size_t n = 0;

    for (int i = 0; i < parts && l->plain; i++) {
        size_t k = part[i].length < l->plain ? part[i].length : l->plain;
        memcpy(part[i].bytes, l->room + l->lo, k);
        l->lo += k;
        l->plain -= k;
        n += k;
    }
    if (!l->plain)
        l->lo += TAG;
    return (int64_t)n;
}

/* Opens the record at the front, into the first part if that has room for it. > 0: so many bytes
 * are there; 0: it is not whole; EPEER: it is none, or the last. */
static int64_t open_record(struct lane *l, const ringred_span *part, int parts)
{
    if (l->hi - l->lo < HEAD)
        return 0;
    uint32_t length = rr_record_length(l->room + l->lo);
    if (length > RR_RECORD_MOST) {
        l->forged = true;
        return RINGRED_EPEER;
    }
    if (l->hi - l->lo < HEAD + length + TAG)
        return 0;
    bool direct = length <= part->length;
    l->forged = !rr_unseal_record(&l->in, l->room + l->lo, direct ? part->bytes : l->room + l->lo + HEAD);
    l->ended = !l->forged && length == 0;
    if (l->forged || l->ended)
        return RINGRED_EPEER;
    l->lo += HEAD;
    if (!direct) {
        l->plain = length;
        return hand_out(l, part, parts);
    }
    l->lo += length + TAG;
    return length;
}

/* Bytes of the lane below: there is room for a record behind what is there. */
static int64_t read_ahead(const struct sealed *s, struct lane *l, int peer, int rail,
                          int32_t *system)
{
    if (l->lo == l->hi || sizeof l->room - l->lo < RECORD) {
        memmove(l->room, l->room + l->lo, l->hi - l->lo);
        l->hi -= l->lo;
        l->lo = 0;
    }
    const ringred_span room = { l->room + l->hi, sizeof l->room - l->hi };
    int64_t k = s->by->recv(s->self, peer, rail, &room, 1, system);
    l->hi += k > 0 ? (size_t)k : 0;
    return k;
}

/* Until a record is there, or the lane below has nothing more: what it has told of is not told of
 * again. */
static int64_t sealed_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part,
                           int32_t parts, int32_t *system)
{
    const struct sealed *s = self;
    struct lane *l = lane_of(self, peer, rail);

    if (l->plain)
        return hand_out(l, part, parts);
    for (;;) {
        int64_t n = l->forged || l->ended ? RINGRED_EPEER : open_record(l, part, parts);
        if (n < 0)
            *system = l->forged ? EBADMSG : 0;
        if (n)
            return n;
        n = read_ahead(s, l, peer, rail, system);
        if (n < 0 && rail > 0 && !*system)
            *system = ECONNRESET; /* anybody may cut; on the first lane it is seen by the goodbye
                                     that is missing */
        if (n <= 0)
            return n;
    }
}

/* ---- what passes through ---- */

static void sealed_reset(void *self, int32_t peer, int32_t rail)
{
    const struct sealed *s = self;
    s->by->reset(s->self, peer, rail);
}

static int64_t sealed_silence(void *self, int32_t peer)
{
    const struct sealed *s = self;
    return s->by->silence ? s->by->silence(s->self, peer) : 0;
}

static int64_t sealed_queued(void *self, int32_t peer, int32_t rail)
{
    const struct sealed *s = self;
    const struct lane *l = lane_of(self, peer, rail);
    int64_t below = s->by->queued ? s->by->queued(s->self, peer, rail) : -1;

    return below < 0 ? below : below + (int64_t)(l->length - l->sent);
}

static int64_t sealed_busy_us(void *self, int32_t peer, int32_t rail)
{
    const struct sealed *s = self;
    return s->by->busy_us ? s->by->busy_us(s->self, peer, rail) : -1;
}

static int32_t sealed_watch(void *self, int32_t epoll, ringred_error *why)
{
    const struct sealed *s = self;
    return s->by->watch(s->self, epoll, why);
}

/* ---- opening and closing ---- */

static void sealed_free(struct sealed *s)
{
    for (int i = 0; i < s->lanes; i++) {
        if (s->lane[i])
            sodium_memzero(s->lane[i], sizeof *s->lane[i]);
        rr_free(s->lane[i]);
    }
    rr_free(s);
}

static void sealed_close(void *self, int64_t deadline_ns)
{
    struct sealed *s = self;

    s->by->close(s->self, deadline_ns);
    sealed_free(s);
}

static const ringred_transport sealed = {
    .struct_size = sizeof sealed,
    .name = "tcp",
    .text = "TCP sockets, encrypted",
    .send = sealed_send,
    .recv = sealed_recv,
    .finish = sealed_finish,
    .reset = sealed_reset,
    .drained = sealed_drained,
    .silence = sealed_silence,
    .queued = sealed_queued,
    .busy_us = sealed_busy_us,
    .watch = sealed_watch,
    .close = sealed_close,
};

static struct lane *lane_new(const struct rr_seal *seal)
{
    struct lane *l = rr_alloc_aligned(RR_LINE, sizeof *l);

    if (!l)
        return NULL;
    rr_sealing_init(&l->out, seal->cipher, seal->out);
    rr_sealing_init(&l->in, seal->cipher, seal->in);
    return l;
}

int rr_seal_lanes(struct rr_lanes *lanes, const struct rr_seal *seal, int rails, ringred_error *why)
{
    int count = lanes->ranks * rails;
    struct sealed *s = rr_alloc(1, sizeof *s + (size_t)count * sizeof *s->lane);
    bool all = s;

    if (s)
        *s =
            (struct sealed){ .by = lanes->by, .self = lanes->self, .lanes = count, .rails = rails };
    for (int i = 0; i < count && all; i++) {
        s->lane[i] = seal[i].cipher ? lane_new(&seal[i]) : NULL;
        all = s->lane[i] || !seal[i].cipher;
    }
    if (!all) {
        if (s)
            sealed_free(s);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to encrypt %d links", lanes->ranks);
    }
    lanes->by = &sealed;
    lanes->self = s;
    return 0;
}

int rr_links_seal(struct rr_transport *links, struct rr_seal *seal, int streams, ringred_error *why)
{
    struct rr_links *t = rr_links_of(links);
    struct rr_lanes lanes = { .ranks = t->ranks, .me = t->me, .by = t->by, .self = t->self };
    int rc = rr_seal_lanes(&lanes, seal, streams, why);

    for (int i = 0; i < t->ranks * streams && rc == 0; i++)
        t->ciphers[seal[i].cipher]++;
    sodium_memzero(seal, (size_t)(t->ranks * streams) * sizeof *seal);
    if (rc < 0)
        return rc;
    t->by = lanes.by;
    t->self = lanes.self;
    for (int peer = 0; peer < t->ranks; peer++)
        for (int i = 0; i < t->link[peer].streams; i++) {
            t->link[peer].stream[i].by = t->by;
            t->link[peer].stream[i].self = t->self;
        }
    return 0;
}
