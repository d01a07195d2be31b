/* SPDX-License-Identifier: Apache-2.0 */
/* See stream.h. */
#include "transport/stream.h"

#include "transport/rings.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

void rr_stream_frame(struct rr_stream *s, const struct rr_frame *f, const void *payload)
{
    rr_frame_write(f, s->head);
    s->out = payload;
    s->out_bytes = f->length;
    s->sent = 0;
    s->busy = true;
}

int rr_stream_push(struct rr_stream *s)
{
    size_t whole = RR_FRAME_BYTES + s->out_bytes;

    while (s->sent < whole) {
        size_t skip = s->sent < RR_FRAME_BYTES ? s->sent : RR_FRAME_BYTES, at = s->sent - skip;
        struct iovec part[2] = { { s->head + skip, RR_FRAME_BYTES - skip },
                                 { (unsigned char *)(uintptr_t)s->out + at, s->out_bytes - at } };
        struct msghdr message = { .msg_iov = part + (skip == RR_FRAME_BYTES),
                                  .msg_iovlen = 2 - (skip == RR_FRAME_BYTES) };
        ssize_t k = s->rings ? rr_rings_put(s->rings, message.msg_iov, message.msg_iovlen)
                             : sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k < 0) {
            s->send_errno = errno;
            return RINGRED_EPEER;
        }
        s->sent += (size_t)k;
    }
    s->busy = false;
    return 0;
}

size_t rr_stream_waiting(const struct rr_stream *s)
{
    size_t rest = s->busy ? RR_FRAME_BYTES + s->out_bytes - s->sent : 0;
    int queued = 0;

    if (!s->rings && ioctl(s->fd, SIOCOUTQNSD, &queued) < 0)
        queued = 0;
    return rest + (size_t)queued;
}

int rr_stream_write(struct rr_stream *s, const void *bytes, size_t length, size_t *sent)
{
    while (*sent < length && !s->send_errno) {
        struct iovec part = { (char *)(uintptr_t)bytes + *sent, length - *sent };
        ssize_t k = s->rings ? rr_rings_put(s->rings, &part, 1)
                             : send(s->fd, part.iov_base, part.iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return RINGRED_PENDING;
        if (k < 0)
            s->send_errno = errno;
        else
            *sent += (size_t)k;
    }
    return s->send_errno ? RINGRED_EPEER : 0;
}

/* What recv and recvmsg say. */
static int verdict(ssize_t k, int *system)
{
    if (k > 0)
        return 0;
    if (k < 0 && errno == EAGAIN)
        return RINGRED_PENDING;
    *system = k < 0 ? errno : 0;
    return RINGRED_EPEER;
}

static ssize_t receive(struct rr_stream *s, void *to, size_t most)
{
    ssize_t k;

    if (RR_UNLIKELY(s->rings != NULL))
        return rr_rings_get(s->rings, to, most);
    do
        k = recv(s->fd, to, most, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k;
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
    ssize_t k = receive(s, s->room + s->hi, RR_STREAM_ROOM - s->hi);
    s->hi += k > 0 ? (size_t)k : 0;
    return verdict(k, system);
}

int rr_stream_read_both(struct rr_stream *s, void *to, size_t most, int *system)
{
    struct iovec part[2] = { { s->room, RR_FRAME_BYTES }, { to, most } };
    struct msghdr message = { .msg_iov = part, .msg_iovlen = 2 };
    ssize_t k;

    do
        k = recvmsg(s->fd, &message, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k > 0) {
        s->lo = 0;
        s->hi = (size_t)k < RR_FRAME_BYTES ? (size_t)k : RR_FRAME_BYTES;
        s->spill = to;
        s->spilled = (size_t)k - s->hi;
    }
    return verdict(k, system);
}

/* Payload that was read along with headers: what is in the room, then what was spilled. The spill lies
 * in the destination itself, behind whatever the room has had from it, so nothing is overtaken. */
static size_t take_read_ahead(struct rr_stream *s)
{
    size_t k = s->hi - s->lo < s->left ? s->hi - s->lo : s->left, taken = k;

    memcpy(s->in, s->room + s->lo, k);
    s->lo += k;
    s->in += k;
    s->left -= k;
    k = s->spilled < s->left ? s->spilled : s->left;
    if (!k)
        return taken;
    if (s->spill != s->in)
        memmove(s->in, s->spill, k);
    s->spill += k;
    s->spilled -= k;
    s->in += k;
    s->left -= k;
    return taken + k;
}

int rr_stream_take(struct rr_stream *s, size_t *got, int *system)
{
    if (s->left && !rr_stream_is_empty(s))
        *got += take_read_ahead(s);
    while (s->left) {
        ssize_t k = receive(s, s->in, s->left);
        int rc = verdict(k, system);
        if (rc)
            return rc;
        s->in += k;
        s->left -= (size_t)k;
        *got += (size_t)k;
    }
    return 0;
}

void rr_stream_skip(struct rr_stream *s, size_t *bytes)
{
    size_t k = s->hi - s->lo < *bytes ? s->hi - s->lo : *bytes;

    s->lo += k;
    *bytes -= k;
}
