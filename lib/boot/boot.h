/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the boot room: how the ranks of a job find each other and prove who they are, before any collective, and
 * how those that are left of a communicator do so again. Making a communicator is one poll loop with one deadline, and a
 * reunion is another. Collectives use nothing of it but the sealing, where links are encrypted. */
#ifndef RR_BOOT_H
#define RR_BOOT_H

#include "base/base.h"

#include <sodium.h>

#define RR_WIRE_VERSION 2
#define RR_KEY_BYTES    32
#define RR_RANKS_MOST   4096 /* what a root needs is 12 bits (rr_ask_scale) */

/* What the environment or the caller says about this process's place in the job. */
struct rr_launch {
    int rank, size, local_rank, local_size; /* local ones -1 where unknown */
    char root[512];  /* "host:port[+n][,...]": where rank 0 may be; +n: and the n ports after it */
    char source[32]; /* a name of the table of launchers, "unique id", "arguments", "single" */
    const char *fresh; /* what handed on the job's fresh key; NULL: nothing did */
    unsigned char key[RR_KEY_BYTES]; /* hashed from the secret, or from the job's name if none */
    bool has_key;                    /* a secret was given */
    unsigned char job[16];           /* hash that names the job: two jobs differ */
    int listener; /* borrowed: an open listening socket of rank 0 (unique id, root_fd), or -1 */
    struct rr_interrupt interrupt;
};

/* Decides from config, settings and environment. ESETTING names what contradicts what. */
int rr_launch_find(const ringred_config *config, const struct rr_settings *settings,
                   struct rr_launch *launch, ringred_error *why);
/* As JSON: what would be used. Reads no key. */
void rr_launch_describe(const struct rr_settings *settings, struct rr_text *t);

/* Opens a listener for a rendezvous and writes the id that names it and carries a new key. */
int rr_unique_id_open(const struct rr_settings *settings, ringred_unique_id *id,
                      ringred_error *why);

struct rr_member {
    uint64_t host; /* equal: same kernel, network and pid namespace, and same pretended host */
    int32_t pid;
    char name[64];    /* host name, for messages */
    char address[64]; /* the numeric address of its data listener, chosen so far */
};

/* Equal in two processes: they run on one kernel, whatever their namespaces. Where the kernel does
 * not tell (no /proc), each process counts as on a machine of its own. */
uint64_t rr_machine_hash(void);

/* ---- sealing: how connections are encrypted ---- */

/* What seals one connection: made in its handshake, and of no other. */
enum rr_cipher { RR_CIPHER_NONE, RR_CIPHER_AES256GCM, RR_CIPHER_CHACHA20 };
struct rr_seal {
    enum rr_cipher cipher;
    unsigned char out[RR_KEY_BYTES], in[RR_KEY_BYTES]; /* of what this end sends, and gets */
};

/* Bytes travel in records: a length, which is authenticated, the bytes in cipher, and a tag. Their number is the nonce,
 * so nothing can be changed, repeated, left out or put elsewhere unseen. docs/WIRE.md */
#define RR_RECORD_HEAD 4
#define RR_RECORD_TAG  16
#define RR_RECORD_MORE (RR_RECORD_HEAD + RR_RECORD_TAG) /* bytes of a record beyond those that it holds */
#define RR_RECORD_MOST ((size_t)16 << 10)               /* bytes in a record */
#define RR_RECORD_KEY  65536                            /* records that have one key */

/* One direction. */
struct rr_sealing {
    crypto_aead_aes256gcm_state aes; /* of the key */
    enum rr_cipher cipher;
    uint64_t records; /* so far: the nonce of the next */
    unsigned char key[RR_KEY_BYTES];
};

void rr_sealing_init(struct rr_sealing *s, enum rr_cipher cipher, const unsigned char key[RR_KEY_BYTES]);
/* Of `length` bytes, which may lie in the record already. Returns the size of the record. */
size_t rr_seal_record(struct rr_sealing *s, const unsigned char *from, size_t length, unsigned char *record);
/* Of the record's head: how many bytes it says that it holds. */
uint32_t rr_record_length(const unsigned char *record);
/* Checks the whole record, then opens it. False: it is none of the peer's, or not its next. */
bool rr_unseal_record(struct rr_sealing *s, const unsigned char *record, unsigned char *to);

struct rr_boot;

/* Meets all ranks at rank 0; returns when everybody's member entry is known to everybody. The
 * failure says which ranks are missing, doubled or of another size, on every rank that is there. */
int rr_boot_open(const struct rr_launch *launch, const struct rr_settings *settings,
                 const struct rr_log *log, int64_t deadline_ns, struct rr_boot **boot,
                 ringred_error *why);
const struct rr_member *rr_boot_member(const struct rr_boot *boot, int rank);
uint64_t rr_boot_net(const struct rr_boot *boot, int rank); /* equal: each other's loopback can be reached */

/* 32 bytes that all ranks of this communicator have, and nobody else where the job has a key; others for each label. */
void rr_boot_secret(const struct rr_boot *boot, const char *label, unsigned char secret[32]);

/* Everybody's `bytes` bytes to everybody, by way of rank 0. all has size * bytes. Collective. */
int rr_boot_allgather(struct rr_boot *boot, const void *mine, size_t bytes, void *all,
                      ringred_error *why);

/* For rr_boot_wire: the congestion control that sockets get before they connect, inside a host and
 * out of it. The texts must live as long as boot. */
void rr_boot_congestion(struct rr_boot *boot, const char *inside, const char *outside);

/* want[r] proved TCP connections to every rank r (symmetric between ranks, at most `streams`), into
 * fd[r * streams + i] (-1 elsewhere): non-blocking, owned (rr_fd_own), TCP_NODELAY. The lower rank dials.
 * seal[r * streams + i] is what seals it, under the setting tcp_encryption (NULL is fine without).
 * address[r] is set in the members. Collective. */
int rr_boot_wire(struct rr_boot *boot, const uint8_t *want, int streams, int *fd, struct rr_seal *seal,
                 ringred_error *why);

/* Proved Unix sockets between the lowest rank of this host and each other rank of it: on the lowest
 * rank fd[r] for each other local rank r, elsewhere fd[lowest]; -1 for the rest. Checks peer
 * credentials. Non-blocking, owned (rr_fd_own). Collective over the host's ranks. */
int rr_boot_local(struct rr_boot *boot, int *fd, ringred_error *why);

/* Tells all ranks that set-up has failed here, for a reason that this room does not know: they get
 * that sentence instead of "rank 3 ended". Every later call returns it. */
void rr_boot_tell(struct rr_boot *boot, const ringred_error *why);

/* Closes what boot still holds. NULL is fine. */
void rr_boot_close(struct rr_boot *boot);

/* ---- those that are left of a communicator (reunion.c) ---- */
struct rr_reunion;
struct rr_meeting;

/* What is needed for a reunion of boot's ranks later: its listeners, who everybody is, the key. Of more than one
 * rank. `before`: of the communicator that this one is made from, whose listeners are kept, too; NULL: none. It is let
 * go of, or handed over. */
int rr_boot_keep(struct rr_boot *boot, struct rr_reunion *before, struct rr_reunion **reunion, ringred_error *why);
void rr_reunion_hold(struct rr_reunion *reunion); /* for another drop; NULL is fine */
void rr_reunion_drop(struct rr_reunion *reunion); /* NULL is fine */

/* A communicator that was made of reunion's ranks may have been believed in by others, and is not by this rank: from now
 * on this rank goes on only with a majority of its `size` ranks, too. member: which [size] they are; NULL: all of
 * reunion's, and new ones. */
int rr_reunion_doubt(struct rr_reunion *reunion, const int *member, int size, ringred_error *why);
/* Keeps the listeners of such a communicator, so that its others do not take this rank for dead. */
void rr_reunion_adopt(struct rr_reunion *reunion, struct rr_reunion *half);

/* Hides the key of an id, or shows it again, by the key that those of reunion have in common. */
void rr_reunion_mask(const struct rr_reunion *reunion, ringred_unique_id *id);

/* What a unique id says, for rank `rank` of `size`. */
void rr_launch_drop(const struct rr_launch *launch); /* its listener, where it is not to be used */
int rr_launch_by_id(const ringred_unique_id *id, int rank, int size, struct rr_launch *launch, ringred_error *why);

/* What may be known of a rank that has not come. */
#define RR_FATE_DEAD 1   /* proved: its process has ended, or nobody listens where it did */
#define RR_FATE_SILENT 2 /* its machine answers nothing */

struct rr_reunion_call {
    const struct rr_log *log;
    const struct rr_settings *settings;
    const struct rr_interrupt *interrupt;
    void (*look)(void *context, uint8_t *fate); /* what the kernel says now of each rank; asked for now and then */
    void *context;
    int64_t patience_ns;        /* until when those are waited for that may still come */
    int64_t deadline_ns;
};

/* Those that make a communicator. */
struct rr_agreed {
    struct rr_launch launch;    /* for rr_boot_open; its interrupt is still to be set */
    int *member;                /* [launch.size] ranks of before, in order; room for all, the caller's */
};

/* call is borrowed until the end. */
int rr_reunion_begin(struct rr_reunion *reunion, const struct rr_reunion_call *call, struct rr_meeting **meeting,
                     ringred_error *why);
/* Again after each set-up that failed because somebody was lost; `doubt`: in its last step, so that it may have
 * succeeded for others. AGREED_BEFORE: then it has, and this rank has to believe in what it has made, too. */
#define RR_AGREED_BEFORE 1
int rr_reunion_agree(struct rr_meeting *meeting, bool doubt, struct rr_agreed *agreed, ringred_error *why);
bool rr_reunion_lost(struct rr_meeting *meeting); /* has one of those that were named gone since? */
void rr_reunion_end(struct rr_meeting *meeting, bool done); /* done: it has a communicator. NULL is fine */

#endif
