/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: the links of tcp.c, what sending (link_send.c) and receiving (link_recv.c)
 * know of each other. */
#ifndef RR_LINK_H
#define RR_LINK_H

#include "transport/stream.h"

#define RR_LINK_TAIL 2048 /* bytes of control frames that wait for their turn */
#define RR_LINK_ASKED 16  /* operations whose text is remembered */

enum link_state { LINK_DOWN, LINK_UP, LINK_LEFT, LINK_DEAD };

struct rr_link {
    struct rr_stream *stream;   /* [streams]; NULL: no link */
    int streams;
    enum link_state state;
    uint64_t left_after;        /* LINK_LEFT: the peer's last operation */
    int system;                 /* LINK_DEAD: errno, 0 for an end of stream */

    /* out: the message under way, then the tail */
    const struct rr_move *sending;
    size_t given;               /* bytes of it that streams have been given */
    _Atomic uint64_t payload;   /* bytes of messages that have gone out, without heads; any thread may look */
    unsigned char *rest;        /* what was left of a data frame when the communicator broke */
    size_t rest_bytes, rest_sent;
    unsigned char tail[RR_LINK_TAIL];
    size_t tail_bytes, tail_sent;

    /* in */
    struct rr_move *receiving;  /* whose first header has been taken */
    int64_t hunt_until_ns;      /* the peer is out of step: data is dropped until it says why */
    size_t drop;                /* bytes of a frame's payload that are still to be dropped */
    struct rr_ask strange;      /* what it sent instead of what was due */
};

struct rr_tcp {
    struct rr_transport base;
    int ranks, me;
    const struct rr_log *log;
    struct rr_congestion congestion;
    struct rr_link *link;          /* [ranks] */
    int64_t peer_timeout_ns, silence_ns; /* setting; when to look next */
    struct rr_ask asked[RR_LINK_ASKED]; /* what this rank asked for lately, by sequence */
};

static inline struct rr_tcp *rr_tcp_of(struct rr_transport *t)
{
    return (struct rr_tcp *)t;
}

/* Lengths that two ranks alone agree on: on the wire, the count is the part's. */
static inline bool rr_ask_is_by_pairs(const struct rr_ask *ask)
{
    return (ask->collective & RR_RAGGED) && ask->count == 0;
}

int rr_link_lost(struct rr_tcp *t, int peer, int system, ringred_error *why); /* EPEER, in words */

/* ---- sending ---- */
int rr_link_send(struct rr_transport *base, struct rr_move *m, ringred_error *why);
int rr_link_flush_tail(struct rr_link *l); /* 0, PENDING, EPEER */
void rr_link_queue(struct rr_tcp *t, int peer, const struct rr_frame *f, const void *payload); /* a control frame */
int rr_link_send_errno(const struct rr_link *l); /* of the first stream that takes no more; 0: all do */
size_t rr_link_stripe(const struct rr_link *l, size_t length); /* bytes of the first frame of a message */

/* What this rank asks for; what it asked for in the operation that a peer speaks of (NULL: too long ago, or not
 * yet). */
void rr_link_remember(struct rr_tcp *t, const struct rr_ask *ask);
const struct rr_ask *rr_link_recall(const struct rr_tcp *t, const struct rr_ask *theirs);

/* ---- receiving ---- */
int rr_link_recv(struct rr_transport *base, struct rr_move *m, ringred_error *why);
/* Takes control frames off the front of the first stream; 0 when a data header is there, read but not taken. */
int rr_link_next_header(struct rr_tcp *t, int peer, struct rr_frame *f, ringred_error *why);
/* A peer takes no more: what it said before it went, or that it is lost. */
int rr_link_last_words(struct rr_tcp *t, int peer, const struct rr_ask *mine, ringred_error *why);
bool rr_link_has_left(const struct rr_link *l); /* nothing will come of what has not begun to be received */

#endif
