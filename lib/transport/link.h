/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: the links of links.c, what sending (link_send.c) and receiving (link_recv.c) know of each
 * other. */
#ifndef RR_LINK_H
#define RR_LINK_H

#include "transport/stream.h"

#define RR_LINK_TAIL 2048 /* bytes of control frames that wait for their turn */
#define RR_LINK_ASKED 16  /* operations whose text is remembered */
#define RR_STREAMS_MOST 16
#define RR_STRIPE_LEAST ((size_t)16 << 10) /* a message that is no longer is not cut */
#define RR_STRIPE_MOST ((size_t)128 << 10)
#define RR_STRIPE_GRAIN ((size_t)4 << 10)

enum link_state { LINK_DOWN, LINK_UP, LINK_LEFT, LINK_DEAD };

struct rr_link {
    struct rr_stream *stream;   /* [streams]; NULL: no link */
    int streams;
    enum link_state state;
    uint64_t left_after;        /* LINK_LEFT: the peer's last operation */
    int system;                 /* LINK_DEAD: errno, 0 for an end of stream */

    bool out_shared, in_shared; /* this direction carries, or has carried, other channels than the first: mux.c */
    bool muxed;                 /* somebody has looked for them here: what comes is sorted from now on */

    /* out: the message under way, then the tail */
    const struct rr_move *sending;
    size_t given;               /* bytes of it that streams have been given */
    size_t level;               /* to which they are to be filled: share.c */
    size_t unmeasured;          /* bytes of long messages since streams were weighed */
    _Atomic uint64_t payload;   /* bytes of messages that have gone out, without heads; any thread may look */
    unsigned char *rest;        /* what was left of a data frame when the communicator broke */
    size_t rest_bytes, rest_sent;
    unsigned char tail[RR_LINK_TAIL];
    size_t tail_bytes, tail_sent;
    bool leaves;                /* there are channels of which the peer is still to be told that this rank has left */

    /* in */
    struct rr_move *receiving;  /* whose first header has been taken */
    struct rr_move *hoping;     /* that has been tried to receive; what was read ahead may lie in its buffer */
    struct rr_move *posted;     /* several channels: messages that are wanted */
    struct rr_kept *kept;       /* those that have come before they are */
    uint32_t arrived;           /* those that have come, and nobody has looked since */
    struct rr_talk *offered;    /* large messages from rank to rank that wait to be taken */
    int64_t hunt_until_ns;      /* the peer is out of step: data is dropped until it says why */
    size_t drop;                /* bytes of a frame's payload that are still to be dropped */
    struct rr_ask strange;      /* what it sent instead of what was due */
};

/* A frame that has come before its message is wanted. */
struct rr_kept {
    struct rr_kept *next;
    struct rr_frame head;
    size_t room;
    bool charged;               /* it has taken credit */
    uint32_t *held, cost;       /* what its sender is held to, and its share of that; NULL: nothing */
    uint64_t stamp;             /* in order of their coming */
    unsigned char bytes[];      /* [room] */
};

/* From this rank to a member of a channel and back. Counters go round. */
struct rr_way {
    uint16_t name;              /* what the member calls the channel */
    bool left;                  /* it has left, after operation left_after */
    bool leaves;                /* it is still to be told that this rank has */
    uint32_t large_sent, large_asked;  /* messages that went; that the member wants */
    uint32_t wanted, wanted_said;      /* large messages that this rank wants; that the member was told of */
    struct rr_credit {                 /* of plans' messages; of those from one rank to another */
        uint32_t sent, sent_taken;     /* bytes that went unasked; that the member says it has taken */
        uint32_t taken, taken_said;    /* bytes that this rank has taken; that the member was told of */
        uint32_t held;                 /* bytes that are kept here; never more than its credit */
    } small[2];
    uint32_t offers;                   /* that are kept here */
    uint32_t talked, talked_gone;      /* number of the last message from rank to rank that was started; that went */
    uint32_t arrived;                  /* as link.arrived, of this channel */
    uint32_t asked;                    /* low bits of the latest operation that it told to wait in */
    uint64_t left_after;
};

struct rr_channel {
    uint16_t name;              /* what peers call it when they write to us; the first: 0 */
    bool over;                  /* this rank has left it, */
    uint64_t last;              /* after this operation */
    int ranks;
    const int16_t *member;      /* [ranks] ranks of the job; NULL: all, by their numbers */
    struct rr_way *way;         /* [ranks] */
    struct rr_ask asked[RR_LINK_ASKED]; /* what this rank asked for lately, by sequence */
};

struct rr_links {
    struct rr_transport base;
    const ringred_transport *by;   /* whose lanes these are */
    void *self;
    void *host;                    /* a plug-in's host table, freed with the links */
    int ranks, me;
    const struct rr_log *log;
    struct rr_congestion congestion;
    int ciphers[RR_CIPHER_CHACHA20 + 1]; /* lanes that are sealed with each */
    struct rr_link *link;          /* [ranks] */
    int64_t peer_timeout_ns, silence_ns; /* setting; when to look next */
    struct rr_channel **channel;   /* [channels] by name; NULL: free */
    size_t channels;
    struct rr_channel *first;      /* channel[0] */
    struct rr_kept *spare[3];      /* room for what comes before it is wanted: offers, tiny and small messages */
    size_t kept_now;
    uint64_t stamps;
    _Atomic size_t kept_most;      /* any thread may look */
};

static inline struct rr_links *rr_links_of(struct rr_transport *t)
{
    return (struct rr_links *)t;
}

/* Lengths that two ranks alone agree on: on the wire, the count is the part's. */
static inline bool rr_ask_is_by_pairs(const struct rr_ask *ask)
{
    return (ask->collective & RR_RAGGED) && ask->count == 0;
}

/* Links over lanes that are there. */
struct rr_lanes {
    int ranks, me;
    const ringred_transport *by;
    void *self;                    /* NULL: the links themselves (sockets.c) */
    const uint8_t *streams;        /* [ranks] lanes to each; 0: none */
};
int rr_links_open(const struct rr_lanes *from, const struct rr_settings *settings, const struct rr_log *log,
                  struct rr_links **links, ringred_error *why);

int rr_link_lost(struct rr_links *t, int peer, int system, ringred_error *why); /* EPEER, in words */

/* ---- sending ---- */
int rr_link_send(struct rr_transport *base, struct rr_move *m, ringred_error *why);
int rr_link_flush_tail(struct rr_link *l); /* 0, PENDING, EPEER; never while a message is under way */
void rr_link_queue(struct rr_links *t, int peer, const struct rr_frame *f, const void *payload); /* a control frame */
int rr_link_send_errno(const struct rr_link *l); /* of the first stream that takes no more; 0: all do */
size_t rr_link_first(const struct rr_link *l, const struct rr_move *m); /* bytes of the first frame of a message */

/* ---- several streams (share.c) ---- */
void rr_share_begin(struct rr_link *l);
void rr_share_level(struct rr_link *l); /* of what is left of the message under way */
size_t rr_share_part(const struct rr_link *l, const struct rr_stream *s); /* a stream's next part; 0: it has enough */
void rr_share_sent(struct rr_link *l, size_t bytes); /* in long messages: now and then streams are weighed */
void rr_share_weigh(struct rr_link *l, const uint64_t *busy_us);

int rr_link_begin_send(struct rr_links *t, struct rr_move *m, ringred_error *why);
int rr_link_go_on(struct rr_links *t, struct rr_move *m, ringred_error *why); /* with what is under way */

/* ---- receiving ---- */
int rr_link_recv(struct rr_transport *base, struct rr_move *m, ringred_error *why);
/* Takes control frames off the front of the first stream; 0 when a data header is there, read but not taken. */
int rr_link_next_header(struct rr_links *t, int peer, struct rr_frame *f, ringred_error *why);
/* A peer takes no more: what it said before it went, or that it is lost. */
int rr_link_last_words(struct rr_links *t, int peer, ringred_error *why);
bool rr_link_has_left(const struct rr_link *l); /* nothing will come of what has not begun to be received */
#define RR_LINK_ENDED 3 /* a stream has ended: stream.ended, .read_errno */
int rr_link_read_ahead(struct rr_stream *s);              /* 0, PENDING, ENDED */
int rr_link_front(struct rr_links *t, int peer, struct rr_frame *f, ringred_error *why); /* next_header, or ENDED */
bool rr_link_is_clean_end(const struct rr_link *l, const struct rr_stream *s);
/* Is the data frame what the move is for? */
int rr_link_expect(struct rr_links *t, const struct rr_move *m, struct rr_frame *f, ringred_error *why);
int rr_link_stripe_at(struct rr_links *t, struct rr_move *m, const struct rr_frame *f, size_t *at, ringred_error *why);

/* ---- channels (channel.c) ---- */
struct rr_way *rr_channel_way(const struct rr_channel *c, int peer); /* NULL: it is no member */
struct rr_channel *rr_channel_find(const struct rr_links *t, uint16_t name);       /* NULL: there is none */
static inline struct rr_channel *rr_channel_of(const struct rr_links *t, const struct rr_move *m)
{
    return RR_LIKELY(!m->channel) ? t->first : m->channel;
}
static inline struct rr_way *rr_way_of(const struct rr_move *m)
{
    return &m->channel->way[m->way];
}
void rr_channel_remember(struct rr_channel *c, const struct rr_ask *ask);
/* What this rank asked for in the operation that a peer speaks of; NULL: too long ago, or not yet. */
void rr_channel_asks(struct rr_channel *c, int peer, uint64_t sequence); /* a peer tells that it waits */
const struct rr_ask *rr_channel_recall(const struct rr_channel *c, const struct rr_ask *theirs);
/* A control frame about a channel has come. */
void rr_channel_told(struct rr_links *t, int peer, const struct rr_frame *f);
/* Says what is still to be said about wants and credit, as far as there is room. */
void rr_channel_say(struct rr_links *t, struct rr_channel *c, int way);
/* A control frame about a channel; false: no room for now. */
bool rr_channel_tell(struct rr_links *t, int peer, const struct rr_frame *f);
/* Of channels that this rank has left, as far as there is room. */
void rr_channel_say_left(struct rr_links *t, int peer);
void rr_channels_free(struct rr_links *t);

/* A peer takes a message that was offered. */
void rr_talk_taken(struct rr_link *l, const struct rr_channel *c, uint64_t number);

/* ---- several channels (mux.c) ---- */
uint32_t rr_mux_cost(size_t bytes); /* credit that a small message takes */
bool rr_mux_has_credit(const struct rr_credit *of, size_t bytes);
void rr_kept_free(struct rr_links *t, struct rr_kept *k);
void rr_mux_shared(struct rr_links *t, int peer); /* the peer says so of its direction */
int rr_mux_send(struct rr_links *t, struct rr_move *m, ringred_error *why);
int rr_mux_recv(struct rr_links *t, struct rr_move *m, ringred_error *why);
/* Is something of a peer's there, or under way behind its last word, that will be looked at yet? c NULL: on any
 * channel. */
bool rr_mux_owes(const struct rr_link *l, const struct rr_channel *c, int way);
int rr_mux_pump(struct rr_links *t, int peer, ringred_error *why); /* takes what has come; 0, or < 0 */

#endif
