/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the transport room: what the engine needs from a wire, and nothing about who it is.
 *
 * A link transport moves messages between this rank and its peers. Order between two ranks in one
 * direction is a declared property (`ordered`): where a transport has it, the engine posts receives in
 * plan order and checks each header. At most one send and one receive are in flight per peer; both
 * functions start or continue the transfer and return PENDING until it has ended.
 *
 * A transport whose peers share memory offers `shared` instead: stages, counters and windows that
 * the engine reads and writes itself. */
#ifndef RR_TRANSPORT_H
#define RR_TRANSPORT_H

#include "base/base.h"
#include "boot/boot.h"
#include "plan/plan.h"

/* What each rank asks for: travels in full with every message, so that a disagreement can be put in
 * words by whoever sees it first. */
struct rr_ask {
    uint8_t collective, type, op, flags;  /* type and op: low bytes of the public numbers */
    int32_t root;
    uint64_t count;
    uint64_t sequence;                    /* number of the operation on this communicator, from 1 */
};

/* One transfer: the engine's, until it has ended. */
struct rr_move {
    int peer;
    uint16_t slot;
    uint32_t segment;
    void *bytes;                          /* read by send, written by recv */
    size_t length, done;
    const struct rr_ask *ask;
};

struct rr_transport;

struct rr_transport_ops {
    uint32_t struct_size;
    const char *name;
    bool ordered;
    /* 0: ended. RINGRED_PENDING: call again. < 0: failed, why written. */
    int (*send)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    int (*recv)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    /* Looks at peers nobody is waiting for: ends, resets, complaints. Cheap, but a system call. */
    int (*check)(struct rr_transport *t, ringred_error *why);
    /* Adds the descriptors to wait on: all peers' input, and output where a send is stuck. Called once
     * with `arm` before sleeping and once without afterwards. */
    int (*arm)(struct rr_transport *t, bool sleeping);
    /* Tells every peer that the communicator is broken and why; never blocks for long. */
    void (*tell)(struct rr_transport *t, const ringred_error *why);
    /* My request so far waits; let peers compare it with theirs. */
    void (*probe)(struct rr_transport *t, const struct rr_ask *ask);
    /* Goodbye, half-close, drain until the deadline; frees. */
    int (*close)(struct rr_transport *t, int64_t deadline_ns);
    void (*describe)(const struct rr_transport *t, struct rr_text *text);
};

struct rr_transport {
    const struct rr_transport_ops *ops;
};

#endif
