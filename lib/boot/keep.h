/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator keeps for a reunion of its ranks: how to reach them, what to prove to them, and in which others
 * they may have gone on meanwhile. */
#ifndef RR_BOOT_KEEP_H
#define RR_BOOT_KEEP_H
#include "boot/boot.h"
#include "boot/inside.h"

#define RR_DOUBTS 16 /* communicators made of one that this rank is not sure of */

/* A communicator that may have been made, for others and not for this rank: they may have gone on in it. */
struct rr_doubt {
    int size;                   /* of it */
    uint8_t *in;                /* [size of the reunion] which of those are in it; the rest of it are new */
};

struct rr_reunion {
    int holders;                /* communicators that came from here; guarded by keep.c, as `before` and `half` are */
    struct rr_reunion *before;  /* of the communicator that this one was made from; NULL: none */
    struct rr_doubt doubt[RR_DOUBTS];
    int doubts;
    bool forgot;                /* there were more of them than could be kept */
    struct rr_reunion *half;    /* of communicators in doubt, linked by `before`: who is in them finds me alive */
    int rank, size;
    bool has_key;
    unsigned char key[RR_KEY_BYTES], job[RR_JOB_BYTES];
    struct rr_entry *entry;     /* [size] */
    int listener[RR_ADDRESSES], listeners;
};

#endif
