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

/* Compares what a peer asks for with mine: 0, or EMISMATCH with both in words. */
static inline enum rr_collective rr_ask_what(const struct rr_ask *ask)
{
    return (enum rr_collective)(ask->collective & ~RR_RAGGED);
}
/* EMISMATCH: how many elements I expect of a peer, how many it has for me. */
int rr_ask_parts(const struct rr_ask *ask, int my_rank, uint64_t mine, int their_rank, uint64_t theirs,
                 ringred_error *why);
int rr_ask_compare(const struct rr_ask *mine, int my_rank, const struct rr_ask *theirs, int their_rank,
                   ringred_error *why);
uint32_t rr_ask_hash(const struct rr_ask *ask);
void rr_ask_print(const struct rr_ask *ask, struct rr_text *t);

/* One transfer: the engine's, until it has ended. */
struct rr_move {
    int peer;
    uint16_t slot;
    uint32_t segment;
    void *bytes;                          /* read by send, written by recv */
    size_t length, done;
    const struct rr_ask *ask;
    uint64_t elements;                    /* of the whole part, where parts are of unequal length */
};

struct rr_transport;

struct rr_transport_ops {
    uint32_t struct_size;
    const char *name;
    bool ordered;
    /* 0: ended. RINGRED_PENDING: call again. < 0: failed, why written. */
    int (*send)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    int (*recv)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    /* Looks at peers that nobody is receiving from, and flushes what control frames are queued: sets
     * gone[r] for those that will send no more. < 0: a peer told of a failure. `ask` is my operation. */
    int (*check)(struct rr_transport *t, const struct rr_ask *ask, uint8_t *gone, ringred_error *why);
    /* Puts everything that can end a wait into an epoll set, once, edge-triggered. */
    int (*watch)(struct rr_transport *t, int epoll, ringred_error *why);
    /* Says to every peer: the communicator is broken, and why. Nothing of a move in flight is touched
     * afterwards. Takes a tenth of a second at most; flush goes on with what peers had no room for. */
    void (*tell)(struct rr_transport *t, const ringred_error *why);
    void (*flush)(struct rr_transport *t);
    /* Queues to every peer: my operation has waited for long, compare it with yours. */
    void (*probe)(struct rr_transport *t, const struct rr_ask *ask);
    /* Goodbye after operation `last`, half-close, drain until the deadline; frees. */
    int (*close)(struct rr_transport *t, uint64_t last, int64_t deadline_ns);
    /* One sentence of how a gone peer went; NULL if it is not known. */
    int (*explain)(struct rr_transport *t, int peer, ringred_error *why);
    void (*describe)(const struct rr_transport *t, struct rr_text *text);
};

struct rr_transport {
    const struct rr_transport_ops *ops;
};

/* Congestion control of sockets inside a host and of those that leave it. probe: which is best inside
 * this host, a small number for choose; takes some 10 ms. ESETTING: the kernel has not what is wished. */
struct rr_congestion {
    char inside[32], outside[32];
};
int rr_congestion_probe(void);
int rr_congestion_choose(const struct rr_settings *settings, int found, struct rr_congestion *c,
                         ringred_error *why);

/* Takes the sockets of fd[ranks][streams] (-1: none, or no more), which it closes in the end, also when it
 * fails. */
int rr_tcp_open(int ranks, int me, const int *fd, int streams, const struct rr_congestion *congestion,
                const struct rr_settings *settings, const struct rr_log *log,
                struct rr_transport **transport, ringred_error *why);

/* ---- ranks that share memory ---- */

#define RR_INLINE 48                      /* payload bytes that travel in the flag's own line */
#define RR_SEGMENT_BITS 24                /* a counter is (operation << 24) + segments done */

#define RR_PAGE_PARTS 256                 /* the most ranks that a communicator has */

/* What a rank says when it enters an operation; two, used in turn, since nobody can be more than one
 * operation ahead of anybody. The counter is written last and read first. */
struct rr_arrival {
    _Alignas(RR_LINE) union {
        unsigned char payload[RR_INLINE]; /* tiny lane: the vector itself */
        uint64_t longest;                 /* parts of unequal length: elements of this rank's longest */
        struct {
            uint64_t in, out;             /* offsets of the windows in the rank's heap */
            uint8_t in_window, out_window;
        } window;
    } u;
    uint32_t hash;                        /* of the rr_ask */
    uint32_t reserved;
    _Atomic uint64_t counter;             /* RR_ARRIVED */
};
_Static_assert(sizeof(struct rr_arrival) == RR_LINE, "an arrival is one cache line");

/* One rank's page of the host's segment. Written by that rank alone unless noted. */
struct rr_page {
    struct rr_arrival arrival[2];
    struct {
        _Alignas(2 * RR_LINE) _Atomic uint64_t value;
    } counter[RR_COUNTERS];               /* [RR_ARRIVED] is unused: it stands in the arrival */
    _Alignas(2 * RR_LINE) struct rr_ask ask[2]; /* the full text behind the hash */
    _Alignas(2 * RR_LINE) _Atomic uint32_t asleep; /* set by the owner, taken back by whoever rings */
    _Atomic uint64_t left;                /* 1 + the last operation of a rank that said goodbye */
    _Alignas(2 * RR_LINE) uint64_t part[2][RR_PAGE_PARTS]; /* parts of unequal length: elements for each rank */
};

/* What all ranks of a host share besides. */
struct rr_host_page {
    struct {
        _Alignas(2 * RR_LINE) _Atomic uint64_t counter; /* as in an arrival: the operation is over */
        int32_t by;                       /* who did the work */
    } over[2];                            /* last-arriver lane; in turn, as arrivals are */
    _Alignas(2 * RR_LINE) _Atomic uint64_t arrived; /* last-arriver lane: arrivals ever */
    _Alignas(2 * RR_LINE) _Atomic uint32_t sleepers; /* ranks whose asleep is set, or about to be */
    _Alignas(2 * RR_LINE) _Atomic uint32_t verdict; /* 0 none, 1 being written, 2 there */
    ringred_error why;
};

struct rr_mate {                          /* a rank of this host as this rank reaches it; zero for others */
    struct rr_page *page;
    char *stage, *heap;
};

struct rr_shared {
    struct rr_host_page *host;
    struct rr_mate *mate;                 /* [ranks of the communicator] */
    int16_t *local;                       /* the ranks of this host, ascending */
    int locals, me;
    size_t stage_bytes, heap_bytes;
    bool fences;                          /* sleepers can make every mate pass a fence (doorbell.c) */
    bool windows;                         /* every mate reaches every heap; else all buffers are ordinary */
    /* 1 for the ranks whose process has ended; cheap, but a system call. */
    void (*check)(struct rr_shared *s, uint8_t *gone);
    /* NULL, or a decorator's word before a counter of mine is raised: false leaves it as it is. */
    bool (*publish)(void *context);
    void *publish_context;
    bool publish_owned;                   /* the context is freed with this */
    /* Rings the doorbells of those who sleep. Called only when sleepers was seen above zero. */
    void (*ring)(struct rr_shared *s);
    /* Makes peer's heap [offset, offset + bytes) readable without faults; once per range. */
    int (*touch)(struct rr_shared *s, int peer, uint64_t offset, size_t bytes);
};

static inline bool rr_shared_may_publish(struct rr_shared *s)
{
    return RR_LIKELY(!s->publish) || s->publish(s->publish_context);
}

/* After a publish: wake whoever sleeps. A sleeper fences all CPUs before it looks a last time
 * (membarrier), so nothing is needed here but the order of the compiler. */
static inline void rr_shared_published(struct rr_shared *s)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (RR_UNLIKELY(atomic_load_explicit(&s->host->sleepers, memory_order_relaxed) != 0))
        s->ring(s);
}

/* Before and after sleeping. begin: whoever publishes from now on rings, and what was published before
 * is visible. EUNSUPPORTED: no such promise here; sleep in slices. */
int rr_shared_sleep_begin(struct rr_shared *s);
void rr_shared_sleep_end(struct rr_shared *s);
int rr_shared_watch(struct rr_shared *s, int epoll, ringred_error *why);

/* The first verdict of a host counts. judge: false if there was one already, copied into *why. */
bool rr_shared_judge(struct rr_shared *s, ringred_error *why);
bool rr_shared_verdict(struct rr_shared *s, ringred_error *why); /* true: there is one, copied */

size_t rr_shared_stage(size_t wish, int locals); /* bytes of a rank's stage where so many share a host; wish 0: chosen */

/* Makes and maps the memory of this host's ranks (those with my member's host); local[] are the
 * sockets of rr_boot_local. Collective over the host. */
int rr_shared_open(int ranks, int me, const struct rr_boot *boot, const int *local,
                   const struct rr_settings *settings, int64_t deadline_ns,
                   struct rr_shared **shared, ringred_error *why);
void rr_shared_close(struct rr_shared *s, uint64_t last); /* last operation, told to the mates */

/* Puts the faults of the setting fault between the engine and both kinds of transport (faulty.c). */
int rr_faulty_wrap(int ranks, int me, const struct rr_settings *settings,
                   struct rr_transport **links, struct rr_shared *shared, ringred_error *why);

/* ringred_alloc memory: a heap of this process that its mates reach. s NULL: private memory. */
int rr_heap_alloc(struct rr_shared *s, size_t bytes, void **memory, ringred_error *why);
int rr_heap_free(void *memory); /* EINVAL if it is not ours, EFORKED if it is the parent's */

#endif
