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
#include "transport/plugin.h"

/* What each rank asks for: travels in full with every message, so that a disagreement can be put in
 * words by whoever sees it first. */
struct rr_ask {
    uint8_t collective, type, op, reserved; /* type and op: low bytes of the public numbers */
    int32_t root;
    uint64_t count;                       /* bits from RR_ASK_COUNT on: a choice that is not the library's own */
    uint64_t sequence;                    /* number of the operation on this communicator, from 1 */
};

#define RR_ASK_COUNT 52

/* The bits of root above those of a rank are made from what a sum is scaled by, so that ranks that scale by different
 * factors find out; 0: it is not scaled. */
#define RR_ASK_ROOT (RR_RANKS_MOST - 1)
void rr_ask_scale(struct rr_ask *ask, double scale);

static inline enum rr_collective rr_ask_what(const struct rr_ask *ask)
{
    return (enum rr_collective)(ask->collective & ~(RR_RAGGED | RR_LISTED));
}
static inline int rr_ask_root(const struct rr_ask *ask)
{
    return rr_ask_what(ask) == RR_REDUCE ? ask->root & RR_ASK_ROOT : ask->root;
}
/* EMISMATCH: how many elements I expect of a peer, how many it has for me. */
int rr_ask_parts(const struct rr_ask *ask, int my_rank, uint64_t mine, int their_rank, uint64_t theirs,
                 ringred_error *why);
/* Compares what a peer asks for with mine: 0, or EMISMATCH with both in words. */
int rr_ask_compare(const struct rr_ask *mine, int my_rank, const struct rr_ask *theirs, int their_rank,
                   ringred_error *why);
uint32_t rr_ask_hash(const struct rr_ask *ask);
void rr_ask_print(const struct rr_ask *ask, struct rr_text *t);

/* The messages of one communicator on a link transport (channel.c). The first exists with the transport. While a
 * link has carried no other, messages travel in plan order and whatever comes is what is due. From then on
 * operations of different communicators meet in any order: a message of up to RR_EAGER bytes may come before it is
 * wanted and is kept, as many as the sender has credit for; a larger one waits at its sender until it is wanted. */
struct rr_channel;
struct rr_shared;

/* One transfer: the engine's, until it has ended. */
struct rr_move {
    int peer;
    int way;                              /* the peer's rank on the channel's communicator */
    struct rr_channel *channel;           /* NULL: the first */
    struct rr_move *next;                 /* the rest is the transport's */
    bool posted, begun, counted, charged;
    bool offers, granted;                 /* point to point: says that a large one is there; it may go */
    uint16_t slot;
    uint32_t segment;
    void *bytes;                          /* read by send, written by recv */
    const struct rr_pieces *pieces;       /* where they lie instead, from byte `from` on; NULL: there */
    size_t from;
    size_t length, done;
    size_t striped;                       /* of it, what stripes have brought, or are bringing */
    const struct rr_ask *ask;
    uint64_t elements;                    /* of the whole part, where parts are of unequal length */
};

static inline struct rr_spot rr_move_spot(const struct rr_move *m)
{
    return (struct rr_spot){ .at = m->bytes, .pieces = m->pieces, .from = m->from };
}

struct rr_transport;
struct rr_shared;

/* A rank of this host that has ended may have left all that is wanted of it in a socket, and the other way
 * round: so two kinds of being gone. */
#define RR_GONE_MEMORY 1 /* will say nothing more in shared memory */
#define RR_GONE_LINK 2   /* will send nothing more */

struct rr_transport_ops {
    uint32_t struct_size;
    const char *name;
    bool ordered;
    /* 0: ended. RINGRED_PENDING: call again. < 0: failed, why written. */
    int (*send)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    int (*recv)(struct rr_transport *t, struct rr_move *m, ringred_error *why);
    /* Looks at peers that nobody is receiving from, and flushes what control frames are queued: sets
     * RR_GONE_LINK in gone[r] for those that will send no more. < 0: a peer told of a failure. */
    int (*check)(struct rr_transport *t, uint8_t *gone, ringred_error *why);
    /* This rank enters an operation. */
    void (*begin)(struct rr_transport *t, struct rr_channel *channel, const struct rr_ask *ask);
    /* Puts everything that can end a wait into an epoll set, once, edge-triggered. */
    int (*watch)(struct rr_transport *t, int epoll, ringred_error *why);
    int (*arm)(struct rr_transport *t); /* about to sleep there; PENDING: look again first */
    /* Says to every peer: the communicator is broken, and why. Nothing of a move in flight is touched
     * afterwards. Takes a tenth of a second at most; flush goes on with what peers had no room for. */
    void (*tell)(struct rr_transport *t, const ringred_error *why);
    void (*flush)(struct rr_transport *t);
    /* Queues to every peer: my operation has waited for long, compare it with yours. */
    void (*probe)(struct rr_transport *t, struct rr_channel *channel, const struct rr_ask *ask);
    /* Goodbye after operation `last`, half-close, drain until the deadline; frees. */
    int (*close)(struct rr_transport *t, uint64_t last, int64_t deadline_ns);
    /* One sentence of how a gone peer went; NULL if it is not known. */
    int (*explain)(struct rr_transport *t, int peer, ringred_error *why);
    void (*describe)(const struct rr_transport *t, struct rr_text *text);
    /* Has the peer's machine answered nothing for peer_timeout? */
    bool (*silent)(struct rr_transport *t, int peer);
};

struct rr_transport {
    const struct rr_transport_ops *ops;
    struct rr_transport *core;            /* itself, or what a decorator stands before: channels are its */
    const struct rr_interrupt *interrupt; /* NULL: nothing ends close but its deadline */
};

/* A channel between members (ranks of the job), mine among them. Peers are told its name, they tell theirs. */
int rr_channel_new(struct rr_transport *core, int ranks, const int16_t *member, struct rr_channel **channel,
                   ringred_error *why);
uint16_t rr_channel_name(const struct rr_channel *channel);
void rr_channel_route(struct rr_channel *channel, int way, uint16_t name);
/* Sets RR_GONE_LINK for members that have left the channel, and of which nothing is kept. */
void rr_channel_left(struct rr_transport *core, const struct rr_channel *channel, uint8_t *gone);
/* 1 + the operation after which a member left; 0: it has not. */
uint64_t rr_channel_left_after(struct rr_transport *core, const struct rr_channel *channel, int way);
/* Has a member told that it waits in this operation, or sent something for it that is not wanted yet? */
bool rr_channel_has_asked(struct rr_transport *core, const struct rr_channel *channel, int way, uint64_t sequence);
/* Says goodbye after operation `last`. It frees itself once all members have. */
void rr_channel_leave(struct rr_transport *core, struct rr_channel *channel, uint64_t last);
/* One that nobody was told of. */
void rr_channel_free(struct rr_transport *core, struct rr_channel *channel);
/* ---- messages from one rank to another, outside of plans (talk.c) ---- */
#define RR_TALK 0x40                      /* ask.collective; root: the tag; sequence: number of the message between the two */
#define RR_TALK_SLOT 0xffff

/* One end of such a message: the engine's, until it has ended. The caller sets move.peer, way (-1: any rank), channel,
 * bytes, and ask's collective, type, root; sending, count and move.length, too; receiving, `most` and the others
 * are what came. */
struct rr_talk {
    struct rr_move move;
    struct rr_ask ask;
    size_t most, element_bytes;
    enum { RR_TALK_NEW, RR_TALK_OFFERED, RR_TALK_TAKEN } state;
    bool told;
    struct rr_talk *next;                 /* of those that are offered */
};
/* Both: 0: ended. PENDING: call again. < 0: failed. start: in the order of the starts. */
void rr_talk_start_send(struct rr_transport *core, struct rr_talk *talk);
int rr_talk_send(struct rr_transport *core, struct rr_talk *talk, ringred_error *why);
int rr_talk_recv(struct rr_transport *core, struct rr_talk *talk, ringred_error *why);
/* Is it of a peer that has gone, or of peers that all have? EPEER. gone: of the channel's ranks, what is known
 * elsewhere; NULL: nothing. */
int rr_talk_look(struct rr_transport *core, const struct rr_talk *talk, const uint8_t *gone, ringred_error *why);
/* For ranks that share memory and have no links: streams in shared memory, for these messages alone. */
int rr_post_open(struct rr_shared *shared, int ranks, int me, const struct rr_log *log, struct rr_transport **post,
                 ringred_error *why);
/* Memory for what is sent to a peer is there from now on: 0, ENOMEM. By any thread. */
int rr_post_prepare(struct rr_transport *post, int peer, ringred_error *why);
void rr_post_close(struct rr_transport *post);

#define RR_OFFERS 64                      /* that a rank has made to another on one channel at once, at most */
#define RR_EAGER 32768
#define RR_CREDIT 131072                  /* bytes under way from a rank to another on one channel, unasked for */

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

/* Before anything was sent: lanes seal what they carry (sealed.c) with seal[ranks][streams], which is wiped. */
int rr_links_seal(struct rr_transport *links, struct rr_seal *seal, int streams, ringred_error *why);

/* ---- ranks that share memory ---- */

#define RR_INLINE 48                      /* payload bytes that travel in the flag's own line */
#define RR_SEGMENT_BITS 24                /* a counter is (operation << 24) + segments done */

/* What a rank says when it enters an operation; two, used in turn, since nobody can be more than one
 * operation ahead of anybody. The counter is written last and read first. */
struct rr_arrival {
    _Alignas(RR_LINE) union {
        unsigned char payload[RR_INLINE]; /* tiny lane: the vector itself */
        uint64_t longest;                 /* parts of unequal length: elements of this rank's longest */
        struct {
            uint64_t in, out;             /* offsets of the windows in the rank's heap */
            uint64_t stage;               /* of its stage, where that is borrowed from there */
            uint8_t in_window, out_window;
        } window;
    } u;
    uint32_t hash;                        /* of the rr_ask */
    uint32_t reserved;
    _Atomic uint64_t counter;             /* RR_ARRIVED */
};
_Static_assert(sizeof(struct rr_arrival) == RR_LINE, "an arrival is one cache line");

/* What one rank says to its mates on one communicator: of the first it lies in the host's segment, of others in the
 * rank's heap. Written by that rank alone unless noted. Behind it, uint64_t[2][ranks], stand its parts of unequal
 * length: elements for each rank; and behind these uint64_t[ranks]: see rr_page_rings. */
struct rr_page {
    struct rr_arrival arrival[2];
    struct {
        _Alignas(2 * RR_LINE) _Atomic uint64_t value;
    } counter[RR_COUNTERS];               /* [RR_ARRIVED] is unused: it stands in the arrival */
    _Alignas(2 * RR_LINE) struct rr_ask ask[2]; /* the full text behind the hash */
    _Alignas(2 * RR_LINE) _Atomic uint32_t asleep; /* set by the owner, taken back by whoever rings */
    _Atomic uint64_t left;                /* 1 + the last operation of a rank that said goodbye */
    /* of pages in heaps: the last operation that this rank has ended, and so reads nobody's stage for; how many
     * communicators that lay here it has left */
    _Atomic uint64_t ended, closed;
};

static inline uint64_t *rr_page_parts(const struct rr_page *page, uint32_t turn, int ranks)
{
    return (uint64_t *)(uintptr_t)(page + 1) + turn * (size_t)ranks;
}

/* Of the first communicator's: 1 + where in its heap this rank's ring to each other one is; 0: there is none. */
static inline _Atomic uint64_t *rr_page_rings(const struct rr_page *page, int ranks)
{
    return (_Atomic uint64_t *)(uintptr_t)(rr_page_parts(page, 2, ranks));
}

static inline size_t rr_page_bytes(int ranks)
{
    return rr_round_up(sizeof(struct rr_page) + 3 * (size_t)ranks * sizeof(uint64_t), 2 * RR_LINE);
}

/* What all ranks of a communicator on a host share: the last-arriver lane's. */
struct rr_team {
    struct {
        _Alignas(2 * RR_LINE) _Atomic uint64_t counter; /* as in an arrival: the operation is over */
        int32_t by;                       /* who did the work */
    } over[2];                            /* in turn, as arrivals are */
    _Alignas(2 * RR_LINE) _Atomic uint64_t arrived; /* arrivals ever */
};

/* What all ranks of a host share besides. */
struct rr_host_page {
    struct rr_team team;                  /* of the first communicator */
    _Alignas(2 * RR_LINE) _Atomic uint32_t sleepers; /* ranks whose asleep is set, or about to be */
    _Alignas(2 * RR_LINE) _Atomic uint32_t verdict; /* 0 none, 1 being written, 2 there */
    ringred_error why;
};

struct rr_mate {                          /* a rank of this host as this rank reaches it; zero for others */
    struct rr_page *page;
    char *stage, *heap;
    int home;                             /* another communicator than the first: its rank there */
    uint64_t generation;                  /* what closed will be when it has left */
};

struct rr_shared {
    struct rr_host_page *host;
    struct rr_team *team;
    struct rr_shared *home;               /* the first communicator's, from which this one borrows; its own: NULL */
    struct rr_mate *mate;                 /* [ranks of the communicator] */
    int16_t *local;                       /* the ranks of this host, ascending */
    int locals, me;
    bool busy;                            /* of one that borrows: its stage is in use */
    size_t stage_bytes, heap_bytes;
    bool fences;                          /* sleepers can make every mate pass a fence (doorbell.c) */
    bool windows;                         /* every mate reaches every heap; else all buffers are ordinary */
    /* RR_GONE_MEMORY for the ranks whose process has ended; cheap, but a system call. */
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

/* ---- communicators that borrow (borrow.c); nothing here may be called by two threads at once ---- */

/* What of `home` the members (ranks there, mine being `me` of them) share. Mates are told where my page is:
 * *offset in my heap, and which generation of it. */
int rr_shared_borrow(struct rr_shared *home, int ranks, int me, const int16_t *member, size_t stage_bytes,
                     struct rr_shared **shared, uint64_t *offset, uint64_t *generation, ringred_error *why);
int rr_shared_find(struct rr_shared *s, int rank, uint64_t offset, uint64_t generation, ringred_error *why);
/* Takes a stage out of my heap, or one that was another's and is not in use. Until it is idle, it is kept. */
int rr_shared_hold(struct rr_shared *s, ringred_error *why);
void rr_shared_idle(struct rr_shared *s);
/* Has a rank of this host broken the communicator? It says so before its caller gets his buffers back: if it has not, what
 * was read from these was right. */
static inline bool rr_shared_is_judged(const struct rr_shared *s)
{
    rr_loads_before(); /* what was read of their buffers */
    return atomic_load_explicit(&s->host->verdict, memory_order_acquire) != 0;
}
/* I have ended an operation, and read nobody's stage any more. */
static inline void rr_shared_ended(struct rr_shared *s, uint64_t sequence)
{
    if (RR_UNLIKELY(s->home != NULL))
        atomic_store_explicit(&s->mate[s->me].page->ended, sequence, memory_order_release);
}
void rr_shared_return(struct rr_shared *s, uint64_t last); /* says goodbye */
bool rr_shared_is_over(const struct rr_shared *s);         /* all mates have, too */
void rr_shared_free(struct rr_shared *s);                  /* what is over, or what nobody was told of */

size_t rr_stage_bytes(size_t wish, int locals); /* of a rank's stage; wish: the setting, 0 chosen */

/* The first verdict of a host counts. judge: false if there was one already, copied into *why. */
bool rr_shared_judge(struct rr_shared *s, ringred_error *why);
bool rr_shared_verdict(struct rr_shared *s, ringred_error *why); /* true: there is one, copied */

/* Makes and maps the memory of this host's ranks (those with my member's host); local[] are the
 * sockets of rr_boot_local. Collective over the host. */
int rr_shared_open(int ranks, int me, const struct rr_boot *boot, const int *local,
                   const struct rr_settings *settings, int64_t deadline_ns,
                   struct rr_shared **shared, ringred_error *why);
/* Sets RR_GONE_MEMORY for mates that have said goodbye. */
void rr_shared_left(const struct rr_shared *s, uint8_t *gone);
void rr_shared_leave(struct rr_shared *s, uint64_t last); /* says goodbye, and stays for those that borrow */
void rr_shared_close(struct rr_shared *s, uint64_t last); /* last operation, told to the mates */

/* Puts the faults of the setting fault between the engine and both kinds of transport (faulty.c). */
int rr_faulty_wrap(int ranks, int me, const struct rr_settings *settings,
                   struct rr_transport **links, struct rr_shared *shared, ringred_error *why);

/* ringred_alloc memory: a heap of this process that its mates reach. s NULL: private memory. */
int rr_heap_alloc(struct rr_shared *s, size_t bytes, void **memory, ringred_error *why);
int rr_heap_free(void *memory); /* EINVAL if it is not ours, EFORKED if it is the parent's */

#endif
