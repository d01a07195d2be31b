/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: the bytes of a frame (docs/WIRE.md), and what peers' requests say. */
#ifndef RR_FRAME_H
#define RR_FRAME_H

#include "transport/transport.h"

#define RR_FRAME_BYTES 32
#define RR_FAULT_BYTES 512
#define RR_FRAME_MOST (1u << 30) /* no frame of ours is larger */

/* STRIPE: a later part of a message whose first part is DATA; where it belongs stands in ask.root. */
enum rr_frame_kind {
    RR_FRAME_DATA = 1, RR_FRAME_ASK, RR_FRAME_FAULT, RR_FRAME_BYE, RR_FRAME_STRIPE,
    RR_FRAME_WANT,   /* ask.count large messages have been wanted */
    RR_FRAME_CREDIT, /* ask.count bytes of small ones have been taken */
    RR_FRAME_SHARE,  /* from here on this direction of the link carries several channels */
    RR_FRAME_OFFER,  /* as DATA, without any: a large message that is sent when it is taken */
    RR_FRAME_TAKE,   /* ask.count: number of a message that was offered */
    RR_FRAME_LEAVE   /* the sender has left the channel after operation ask.count */
};

struct rr_frame {
    uint8_t kind;
    uint16_t channel; /* as the receiver has named it */
    uint16_t slot;
    uint32_t length, segment;
    struct rr_ask ask; /* sequence: the low 32 bits */
};

void rr_frame_write(const struct rr_frame *f, unsigned char *to);
/* EWIRE if it is none of ours. from has RR_FRAME_BYTES. */
int rr_frame_read(const unsigned char *from, int peer, struct rr_frame *f, ringred_error *why);

size_t rr_frame_write_fault(const ringred_error *why, unsigned char *to);
/* Reads what a peer said is wrong into *why; returns its code, always a failure. */
int rr_frame_read_fault(struct rr_reader *r, int ranks, int peer, ringred_error *why);

/* A peer is in another operation than mine and will not send what I wait for. */
int rr_ask_out_of_step(const struct rr_ask *mine, int my_rank, const struct rr_ask *theirs,
                       int their_rank, ringred_error *why);

void rr_congestion_apply(int fd, const struct rr_congestion *c);

#endif
