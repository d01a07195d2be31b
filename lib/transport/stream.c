/* SPDX-License-Identifier: Apache-2.0 */
/* See stream.h. */
#include "transport/stream.h"

#include <errno.h>
#include <string.h>

#define PARTS 64 /* of memory that one call sends or fills, at most */

void rr_stream_frame(struct rr_stream *s, const struct rr_frame *f, struct rr_spot payload)
{
    rr_frame_write(f, s->head);
    s->out = payload;
    s->out_bytes = f->length;
    s->sent = 0;
    s->busy = true;
}

/* Bytes, or PENDING; EPEER: the lane takes no more. */
static int64_t send_parts(struct rr_stream *s, const ringred_span *part, int parts)
{
    int32_t system = 0;
    int64_t k = s->by->send(s->self, s->peer, s->rail, part, parts, &system);

    if (RR_LIKELY(k > 0))
        return k;
    if (k < 0) {
        s->send_errno = system ? system : EPIPE;
        return RINGRED_EPEER;
    }
    if (s->by->progress)
        s->by->progress(s->self);
    return 0;
}

/* As many of the bytes there as there are parts for. Returns the parts. */
static int spread(struct rr_spot w, size_t bytes, ringred_span *part, int most)
{
    int n = 0;

    while (bytes && n < most) {
        size_t k = bytes;
        part[n].bytes = rr_spot_run(&w, &k);
        part[n++].length = k;
        w = rr_spot_behind(w, k);
        bytes -= k;
    }
    return n;
}

int rr_stream_push(struct rr_stream *s)
{
    size_t whole = RR_FRAME_BYTES + s->out_bytes;

    while (s->sent < whole) {
        size_t skip = s->sent < RR_FRAME_BYTES ? s->sent : RR_FRAME_BYTES, at = s->sent - skip;
        ringred_span part[PARTS];
        bool rest = skip == RR_FRAME_BYTES;
        part[0] = (ringred_span){ s->head + skip, RR_FRAME_BYTES - skip };
        int parts = spread(rr_spot_behind(s->out, at), s->out_bytes - at, part + 1, PARTS - 1);
        int64_t k = send_parts(s, part + rest, parts + 1 - rest);
        if (k <= 0)
            return k < 0 ? RINGRED_EPEER : RINGRED_PENDING;
        s->sent += (size_t)k;
    }
    s->busy = false;
    return 0;
}

size_t rr_stream_waiting(const struct rr_stream *s)
{
    size_t rest = s->busy ? RR_FRAME_BYTES + s->out_bytes - s->sent : 0;
    int64_t queued = s->by && s->by->queued ? s->by->queued(s->self, s->peer, s->rail) : 0;

    return rest + (queued > 0 ? (size_t)queued : 0);
}

int rr_stream_write(struct rr_stream *s, const void *bytes, size_t length, size_t *sent)
{
    while (*sent < length && !s->send_errno) {
        const ringred_span part = { (char *)(uintptr_t)bytes + *sent, length - *sent };
        int64_t k = send_parts(s, &part, 1);
        if (k == 0)
            return RINGRED_PENDING;
        *sent += k > 0 ? (size_t)k : 0;
    }
    return s->send_errno ? RINGRED_EPEER : 0;
}

bool rr_stream_drained(const struct rr_stream *s)
{
    if (s->by->drained(s->self, s->peer, s->rail) == 0)
        return true;
    if (s->by->progress)
        s->by->progress(s->self);
    return false;
}

/* Bytes; or 0, with what there is to say in *rc: PENDING, EPEER. */
static size_t receive(struct rr_stream *s, const ringred_span *part, int parts, int *rc, int *system)
{
    int32_t error = 0;
    int64_t k = s->by->recv(s->self, s->peer, s->rail, part, parts, &error);

    *rc = k > 0 ? 0 : k < 0 ? RINGRED_EPEER : RINGRED_PENDING;
    if (RR_LIKELY(k > 0))
        return (size_t)k;
    if (k < 0)
        *system = error;
    else if (s->by->progress)
        s->by->progress(s->self);
    return 0;
}

int rr_stream_fill(struct rr_stream *s, int *system)
{
    if (s->lo) {
        memmove(s->room, s->room + s->lo, s->hi - s->lo);
        s->hi -= s->lo;
        s->lo = 0;
    }
    if (RR_UNLIKELY(s->spilled)) {
        size_t k = s->spilled < RR_STREAM_ROOM - s->hi ? s->spilled : RR_STREAM_ROOM - s->hi;
        memcpy(s->room + s->hi, s->spill, k);
        s->hi += k;
        s->spill += k;
        s->spilled -= k;
        return 0;
    }
    const ringred_span part = { s->room + s->hi, RR_STREAM_ROOM - s->hi };
    int rc;
    s->hi += receive(s, &part, 1, &rc, system);
    return rc;
}

int rr_stream_read_both(struct rr_stream *s, void *to, size_t most, int *system)
{
    const ringred_span part[2] = { { s->room, RR_FRAME_BYTES }, { to, most } };
    int rc;
    size_t k = receive(s, part, 2, &rc, system);

    if (k > 0) {
        s->lo = 0;
        s->hi = k < RR_FRAME_BYTES ? k : RR_FRAME_BYTES;
        s->spill = to;
        s->spilled = k - s->hi;
    }
    return rc;
}

static void got_some(struct rr_stream *s, size_t k)
{
    s->in = rr_spot_behind(s->in, k);
    s->left -= k;
}

/* Payload that was read along with headers: what is in the room, then what was spilled. The spill lies
 * in the destination itself, behind whatever the room has had from it, so nothing is overtaken. */
static size_t take_read_ahead(struct rr_stream *s)
{
    size_t k = s->hi - s->lo < s->left ? s->hi - s->lo : s->left, taken = k;

    rr_spot_put(s->in, s->room + s->lo, k);
    s->lo += k;
    got_some(s, k);
    k = s->spilled < s->left ? s->spilled : s->left;
    if (!k)
        return taken;
    if (s->in.pieces)
        rr_spot_put(s->in, s->spill, k); /* spilled by another message: it lies elsewhere */
    else if (s->spill != (unsigned char *)s->in.at)
        memmove(s->in.at, s->spill, k);
    s->spill += k;
    s->spilled -= k;
    got_some(s, k);
    return taken + k;
}

int rr_stream_take(struct rr_stream *s, size_t *got, int *system)
{
    if (s->left && !rr_stream_is_empty(s))
        *got += take_read_ahead(s);
    while (s->left) {
        ringred_span part[PARTS];
        int parts = spread(s->in, s->left, part, s->in.pieces ? PARTS : 1), rc;
        size_t k = receive(s, part, parts, &rc, system);
        if (rc)
            return rc;
        got_some(s, k);
        *got += k;
    }
    return 0;
}

void rr_stream_skip(struct rr_stream *s, size_t *bytes)
{
    size_t k = s->hi - s->lo < *bytes ? s->hi - s->lo : *bytes;

    s->lo += k;
    *bytes -= k;
}
