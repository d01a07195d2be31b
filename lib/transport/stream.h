/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: one lane of a link, which carries frames both ways. */
#ifndef RR_STREAM_H
#define RR_STREAM_H

#include "transport/frame.h"

#include <ringred/transport.h>

#define RR_STREAM_ROOM 8192 /* bytes read ahead: several small frames in one call */

struct rr_stream {
    const ringred_transport *by; /* whose lane it is, and which */
    void *self;
    int peer, rail;
    int fd;                     /* sockets.c's */
    int64_t owed_ns;            /* sockets.c's: since when its peer has owed an acknowledgement, as far as was looked */
    struct rr_rings *rings;     /* rings.c's */

    /* out: the frame in flight, if busy */
    bool busy;
    int send_errno;             /* the lane takes no more; what the peer said before is still to be read */
    unsigned char head[RR_FRAME_BYTES];
    struct rr_spot out;
    size_t out_bytes, sent;     /* of the payload; of head and payload */
    size_t waiting;             /* share.c: bytes that are still to be delivered; the part of a message that it gets; */
    uint32_t weight;            /* and how long the kernel has called it busy */
    uint64_t busy_us;

    bool ended;                 /* nothing more will come; read_errno: why, 0 for an end of stream */
    int read_errno;

    /* in: the payload under way */
    struct rr_spot in;          /* where what is left of it goes */
    size_t left;
    struct rr_move *into;       /* several channels: the message that it belongs to; */
    struct rr_kept *kept;       /* or it has come before it is wanted. NULL: none is under way */
    unsigned char room[RR_STREAM_ROOM];
    size_t lo, hi;
    unsigned char *spill;       /* what came behind the room's bytes and lies where the posted receive */
    size_t spilled;             /* wants its payload: see rr_stream_read_both */
};

/* Statuses: 0, RINGRED_PENDING, or EPEER with the errno in *system, 0 at the end of the stream. */

void rr_stream_frame(struct rr_stream *s, const struct rr_frame *f, struct rr_spot payload);
int rr_stream_push(struct rr_stream *s);                      /* the frame in flight; 0: all of it is out */
size_t rr_stream_waiting(const struct rr_stream *s);           /* bytes that the peer's kernel does not have yet */
int rr_stream_write(struct rr_stream *s, const void *bytes, size_t length, size_t *sent); /* plain bytes */

bool rr_stream_drained(const struct rr_stream *s);             /* the peer's machine has everything, or never will */

int rr_stream_fill(struct rr_stream *s, int *system);         /* reads ahead into the room, which has some left */
/* A large payload whose header has not come yet: header and payload in one call. Where another frame comes
 * first, what follows it has come to the wrong place; fill takes it from there. */
int rr_stream_read_both(struct rr_stream *s, void *to, size_t most, int *system);
int rr_stream_take(struct rr_stream *s, size_t *got, int *system); /* the payload under way; 0: all of it came */
void rr_stream_skip(struct rr_stream *s, size_t *bytes);      /* of what was read ahead */

static inline bool rr_stream_is_empty(const struct rr_stream *s)
{
    return s->lo == s->hi && !s->spilled;
}

#endif
