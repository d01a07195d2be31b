/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake that opens every connection: four messages of fixed size, in which both ends prove
 * that they know the job's key before anything else is read (docs/WIRE.md), and the dialler says that
 * of all connections which it has tried it has taken this one. The machine here moves
 * over a non-blocking descriptor that its owner polls; it knows no addresses and no ranks' meaning.
 */
#ifndef RR_BOOT_HAND_H
#define RR_BOOT_HAND_H

#include "boot/boot.h"

#define RR_NONCE_BYTES    32
#define RR_MAC_BYTES      32
#define RR_JOB_BYTES      16
#define RR_GREETING_BYTES 64 /* who listens here, for which job */
#define RR_PROOF_BYTES    88 /* who dials whom, and the dialler's proof */
#define RR_WELCOME_BYTES  48 /* the listener's proof */
#define RR_TAKEN_BYTES    16 /* the dialler's choice */

#define RR_HAND_NS       ((int64_t)5000000000) /* most that one handshake may take */
#define RR_HAND_STALL_NS ((int64_t)2000000000) /* and after its first byte */

enum rr_purpose { RR_PURPOSE_MEET = 1, RR_PURPOSE_DATA, RR_PURPOSE_LOCAL, RR_PURPOSE_REUNION };

enum rr_hand_state {
    RR_HAND_FREE,
    RR_HAND_CONNECTING,    /* dialler */
    RR_HAND_READ_GREETING, /* dialler */
    RR_HAND_SEND_PROOF,    /* dialler */
    RR_HAND_READ_WELCOME,  /* dialler */
    RR_HAND_SEND_TAKEN,    /* dialler */
    RR_HAND_SEND_GREETING, /* listener */
    RR_HAND_READ_PROOF,    /* listener */
    RR_HAND_SEND_WELCOME,  /* listener */
    RR_HAND_READ_TAKEN,    /* listener */
    RR_HAND_PROVED,
    RR_HAND_FAILED,
};

/* Why a handshake failed. */
enum rr_verdict {
    RR_VERDICT_NONE,
    RR_VERDICT_LOST, /* closed or reset, or no connection; `system` may say why */
    RR_VERDICT_SLOW,
    RR_VERDICT_STRANGER, /* does not speak this protocol */
    RR_VERDICT_VERSION,  /* another wire version: `version` */
    RR_VERDICT_OTHER_JOB,
    RR_VERDICT_OTHER_RANK,
    RR_VERDICT_SEAL, /* one end encrypts, the other does not */
    RR_VERDICT_KEY,  /* the same job, but another key */
};

/* What an end brings along; the pointers are borrowed for as long as the hand lives. */
struct rr_badge {
    const unsigned char *key; /* RR_KEY_BYTES */
    const unsigned char *job; /* RR_JOB_BYTES */
    int rank;
    enum rr_purpose purpose;
    int stream;     /* dialler, data: which of the connections to that rank */
    uint8_t offers; /* RR_OFFERS_*; 0: nothing is sealed */
};

/* What an end says of sealing, under the MACs. */
#define RR_OFFERS_SEAL 1 /* it encrypts, and but for meeting goes with nobody who does not */
#define RR_OFFERS_AES  2 /* and has AES in hardware */

uint8_t rr_hand_offers(const struct rr_settings *settings);

struct rr_hand {
    enum rr_hand_state state;
    enum rr_verdict verdict;
    int fd;
    int peer;            /* dialler: the rank wanted; listener: the rank that dialled */
    int stream;          /* listener: which of that rank's connections */
    int version, system; /* with the verdict */
    struct rr_badge badge;
    int64_t give_up_ns;
    size_t done; /* bytes of the present message */
    unsigned char greeting[RR_GREETING_BYTES];
    unsigned char proof[RR_PROOF_BYTES];
    unsigned char welcome[RR_WELCOME_BYTES];
    unsigned char taken[RR_TAKEN_BYTES];
    unsigned char secret[RR_NONCE_BYTES]; /* of an end that encrypts: its nonce is the public half */
    struct rr_seal seal;                  /* once it is proved, if both ends encrypt */
};

/* Takes fd over: closes it if the handshake fails or is dropped. */
void rr_hand_dial(struct rr_hand *h, const struct rr_badge *badge, int fd, int peer,
                  int64_t give_up_ns);
void rr_hand_accept(struct rr_hand *h, const struct rr_badge *badge, int fd);
short rr_hand_events(const struct rr_hand *h);
/* Goes on as far as it can. RINGRED_PENDING, 0: proved, < 0: failed and closed, see the verdict. A
 * listener's hand proves only what its dialler has taken, so a dialler may drop any other at any time. */
int rr_hand_step(struct rr_hand *h);
void rr_hand_drop(struct rr_hand *h);
int rr_hand_take(struct rr_hand *h); /* the proved descriptor, now the caller's; the seal is forgotten */
const char *rr_verdict_text(enum rr_verdict verdict);

#endif
