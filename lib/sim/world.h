/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the simulated world: ranks, links, wires, CPUs, and the queue of what happens next. Inside the
 * sim room only. Time is a whole number of picoseconds, so that what is equal by hand is equal here too. */
#ifndef RR_SIM_WORLD_H
#define RR_SIM_WORLD_H

#include "sim/sim.h"

#include <math.h>

#define RR_SECOND 1e12            /* picoseconds */
#define RR_NEVER INT64_MAX

struct rr_target { /* a step of a rank */
    int rank;
    uint32_t step;
};

/* ---- what happens at a time (queue.c) ---- */
enum rr_event_kind {
    RR_EVENT_OUT = 1,  /* the first bytes of a SEND are in its socket */
    RR_EVENT_CPU,      /* a CPU is through with a step */
    RR_EVENT_ARRIVAL,  /* the last byte of a message; rank: its sender, step: its receiver */
    RR_EVENT_SEEN,     /* a rank's counter; step: which */
};

struct rr_event {
    int64_t at_ps;
    uint64_t order;    /* events of one time come as they were made */
    struct rr_target who;
    uint8_t kind;
};

struct rr_events {
    struct rr_event *heap;
    size_t used, room;
    uint64_t made;
    bool failed;       /* no memory at least once */
};

void rr_events_add(struct rr_events *q, int64_t at_ps, enum rr_event_kind kind, struct rr_target who);
struct rr_event rr_events_take(struct rr_events *q); /* the earliest; there must be one */
void rr_events_done(struct rr_events *q);
static inline int64_t rr_events_next(const struct rr_events *q)
{
    return q->used ? q->heap[0].at_ps : RR_NEVER;
}

/* ---- the wires (net.c) ---- */

struct rr_letter {     /* a message that has not left its host whole */
    struct rr_letter *next;
    double end, bytes; /* the last byte's number in the stream; bytes of it */
};

/* One direction between two ranks. */
struct rr_way {
    int16_t from, to;
    int16_t out, in;   /* wires; -1: inside one host */
    int32_t slot;      /* where it is among those that move; -1: it rests */
    uint32_t arrived;  /* messages that are there and not yet received */
    int32_t sending, receiving; /* the step whose turn it is; -1: none */
    double sent;       /* bytes on the wire, while it rests */
    double given, allowed; /* in the socket so far; that the receiver has room for */
    double send_end;   /* `sending` is done when so many are on the wire */
    struct rr_letter *head, *tail;
};

/* A way with bytes that want to move: what is looked at all the time. */
struct rr_moving {
    double sent, goal; /* bytes on the wire; when so many are, something is through */
    double rate;       /* bytes in a picosecond, since net.at_ps */
    struct rr_way *way;
    int16_t out, in;
    uint8_t weight;    /* streams that the message in front uses */
};

struct rr_wire {
    double rate;       /* bytes in a picosecond */
    double bytes;      /* that have gone over it */
    double left;       /* while rates are found: what is not given out; for how many streams */
    int64_t weight;
    bool tight;
};

struct rr_net {
    const struct rr_machine *machine;
    int hosts, wires;
    struct rr_wire *wire;      /* [2 hosts]: out of each host, then into each */
    struct rr_moving *moving;
    uint32_t *todo;            /* while rates are found: those that have none yet */
    size_t used, room;
    struct rr_letter *spare;
    int64_t at_ps;             /* until when rr_moving.sent is right */
    int64_t shared_ps;         /* when rates were found last */
    int64_t next_ps;           /* when something will be through; RR_NEVER */
    int64_t quantum_ps;        /* with very many ways at once, rates are found no more often than this */
    bool dirty, failed;
    bool endless;              /* some way has all the rate there is */
    double messages;
};

/* What the wires have to tell: `sender` done with step `sending`, or a message that has left. */
struct rr_news {
    void (*sent)(void *context, struct rr_way *way);
    void (*left)(void *context, struct rr_way *way);
    void *context;
};

int rr_net_init(struct rr_net *net, const struct rr_sim *sim);
void rr_net_done(struct rr_net *net);
/* A message of so many bytes (with its header) is in the socket; `sending` says whose. */
void rr_net_give(struct rr_net *net, struct rr_way *way, int32_t step, double bytes, const struct rr_news *news);
void rr_net_allow(struct rr_net *net, struct rr_way *way, double bytes); /* its receiver reads on */
void rr_net_share(struct rr_net *net, int64_t now_ps);   /* finds the rates anew, if it is time */
void rr_net_move(struct rr_net *net, int64_t now_ps, const struct rr_news *news);
void rr_letters_free(struct rr_letter *head);

/* ---- ranks (ranks.c) ---- */

/* Ranks that share CPUs, and those of them that wait for one. */
struct rr_cpus {
    int count, busy;
    int *queue;        /* [ranks] goes round */
    int first, waiting;
};

enum { RR_DO_NOTHING, RR_DO_ASKED, RR_DO_READY, RR_DO_RUNNING, RR_DO_POSTED }; /* a step: in the list of what to look at, ... */

struct rr_actor {
    struct rr_plan *plan;
    uint32_t *done, *cursor; /* [steps] segments finished; dependencies of the next one seen to be met */
    uint8_t *state;          /* [steps] */
    uint32_t *user0;         /* [steps + 1] those that depend on a step */
    uint16_t *user;
    uint64_t *ready;         /* a bit for each step that waits for a CPU */
    uint32_t ready_steps;
    uint32_t sweep;          /* where the look for one begins: the engine goes round */
    uint32_t seen[RR_COUNTERS]; /* its counters, as its mates see them */
    bool busy, waits;        /* on a CPU; in the queue for one */
    struct rr_cpus *cpus;
    int host;
};

struct rr_world {
    const struct rr_sim *sim;
    const struct rr_machine *machine;
    int ranks;
    size_t segments, elements[2]; /* of a segment: [0] any but the last, [1] the last */
    struct rr_actor *actor;
    struct rr_cpus *cpus;
    int cpu_groups;
    struct rr_way **way;     /* [from][to]; NULL: never used */
    struct rr_net net;
    struct rr_events events;
    int64_t now_ps;
    struct rr_target *look;  /* steps that may be able to run: goes round */
    size_t look_room, look_at, looks;
    size_t left, steps;
    int64_t *end_ps;         /* [ranks] */
    uint64_t *togo;          /* [ranks] instances */
    bool failed;             /* no memory at least once */
};

int rr_world_init(struct rr_world *w, const struct rr_sim *sim, ringred_error *why);
void rr_world_done(struct rr_world *w);
struct rr_way *rr_world_way(struct rr_world *w, int from, int to); /* NULL: no memory */
/* Bytes of a span in a segment. */
double rr_world_bytes(const struct rr_world *w, int rank, uint32_t span, size_t segment);

#endif
