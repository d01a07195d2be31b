/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the core room: communicators and requests. */
#ifndef RR_CORE_H
#define RR_CORE_H

#include "algo/algo.h"
#include "base/base.h"
#include "boot/boot.h"
#include "engine/engine.h"
#include "transport/transport.h"

#include <pthread.h>

#define RR_REQUESTS 64 /* in flight at once on one communicator; a power of two */

enum rr_comm_state { RR_COMM_NEW, RR_COMM_WIRING, RR_COMM_READY, RR_COMM_BROKEN, RR_COMM_CLOSED };

/* free -> running -> done -> free; the starter makes it running, the progress owner done, the waiter free */
enum rr_request_state { RR_REQUEST_FREE, RR_REQUEST_RUNNING, RR_REQUEST_DONE };

struct ringred_request {
    ringred_comm *comm;
    _Atomic int state;
    int status;                 /* once done */
    struct rr_run run;
    struct rr_ragged ragged;    /* run.ragged, in use with parts of unequal length */
};

/* A plan of the cache with room for its extents. */
struct rr_choice {
    struct rr_program program;
    size_t count, element_bytes, segment; /* what was chosen last; guarded by starting */
};

struct ringred_comm {
    int rank, ranks, local_rank, local_ranks;
    struct rr_settings settings;
    struct rr_log log;
    uint32_t forks;             /* rr_forks() when it was made */
    _Atomic int state;          /* enum rr_comm_state */

    struct rr_layout layout;
    int16_t *host;              /* [ranks], layout.host */
    bool all_local;             /* every rank shares memory with every other */
    int64_t tiny_most, last_most; /* bytes up to which allreduces take these lanes; -1: never */
    int wish[RR_COLLECTIVES];   /* the algorithm that the settings ask for and that is possible, or -1 */
    bool portable;              /* numerics=portable: no bit that depends on the layout */
    bool even;                  /* hosts' sums are parts of the canonical tree */
    size_t least_stage;         /* a stage of the host that has the smallest: all ranks cut segments alike */
    bool crowded;               /* more ranks on this machine than CPUs for them */
    bool crowded_any;           /* on some machine of the job; the same on all ranks */
    bool wired;                 /* links leave a machine: bytes cost more than turns on a CPU */
    struct rr_congestion congestion;
    struct rr_engine engine;
    struct rr_choice **plan[RR_ALGOS];    /* [1], of rooted collectives [ranks] by root; allreduces and the
                                           * barrier are made with the communicator, others at first
                                           * use; kept. NULL: not possible with this layout */

    /* starting: one thread at a time, the others get EBUSY */
    _Atomic uint32_t starting;
    uint64_t sequence;          /* of the last operation started; guarded by starting */
    struct ringred_request request[RR_REQUESTS];
    struct ringred_request *queue[RR_REQUESTS];
    size_t *ragged_room;        /* [RR_REQUESTS][4][ranks] copies of callers' counts; made at first use, kept */
    _Atomic uint32_t tail;      /* operations ever queued; written by the starter */

    /* progress: one thread owns it, the others sleep on changed */
    _Atomic uint32_t owned;
    _Atomic uint32_t head;      /* operations ever ended; written by the owner */
    bool active;                /* the run at the head has begun; the owner's */
    _Atomic uint32_t waiters;
    pthread_mutex_t lock;       /* guards changed and fault */
    pthread_cond_t changed;
    int epoll, wake;            /* what a sleeping owner waits on; wake: an eventfd of our own */
    uint8_t *gone;              /* [ranks] will send no more; the owner's */
    int vain;                   /* spins that were in vain lately, 0 to 3; the owner's */
    int64_t look_ns;            /* when polling looks after the peers next; the owner's */
    int64_t probe_ns;           /* when the run at the head asks the peers what they do; 0: not waited yet */
    int64_t spin_ns;            /* how long to spin or yield before sleeping */

    ringred_error fault;        /* what broke it; then never changed */
    ringred_error refused;      /* the latest call that was refused */
    _Atomic bool told;          /* the peers have been told of the fault, as far as they listen */
};

int rr_comm_open(const ringred_config *config, ringred_comm **comm, ringred_error *why);
int rr_comm_close(ringred_comm *comm);

/* One call of a collective as the API hands it down; arguments are checked. */
struct rr_call {
    enum rr_collective what;
    const void *in;
    void *out;
    size_t count;               /* elements of one part; ragged: of the longest that all ranks know of, or 0 */
    int type, op, root;
    const struct rr_ragged *ragged; /* NULL: all parts are alike. Displacements NULL: one behind the other */
};
int rr_comm_start(ringred_comm *comm, const struct rr_call *call, ringred_request **request);
int rr_comm_run(ringred_comm *comm, const struct rr_call *call); /* start and wait */
int rr_request_wait(ringred_request *request, int64_t timeout_ns); /* PENDING: the time is over */

/* Which plan a call runs, and in what segments. Depends only on what all ranks know. */
enum rr_algo rr_choose_algo(const ringred_comm *comm, const struct rr_call *call);
enum rr_lane rr_choose_lane(const ringred_comm *comm, size_t bytes);
size_t rr_choose_segment(struct rr_choice *choice, const ringred_comm *comm, const struct rr_call *call);
/* Elements of a segment; 0: so long a vector needs a larger stage. */
size_t rr_segment_of(const ringred_comm *comm, const struct rr_plan *plan, size_t count, size_t element_bytes);
int rr_choose_check(const struct rr_settings *settings, ringred_error *why); /* setting algorithm */
void rr_choose_init(ringred_comm *comm); /* once, when the plans are there */

/* "canonical", "layout" (each host's ranks, then the hosts) or "any": the tree of a sum of such a call. */
const char *rr_choose_tree(const ringred_comm *comm, const struct rr_call *call);

bool rr_is_narrow(int type); /* a float whose sums must not be rounded on their way more often than is promised */

/* ---- plans (plans.c) ---- */
int rr_plans_init(ringred_comm *comm, ringred_error *why);
void rr_plans_done(ringred_comm *comm);
static inline uint32_t rr_plan_steps_most(int ranks) /* of any plan that is made after the communicator */
{
    return 16 * (uint32_t)ranks + 64;
}
bool rr_plan_usable(const ringred_comm *comm, enum rr_algo algo); /* with these transports and hosts */
/* The plan of an algorithm, made if it is not there yet. With starting taken. NULL: *why tells. */
struct rr_choice *rr_plan_get(ringred_comm *comm, enum rr_algo algo, int root, ringred_error *why);

static inline size_t rr_call_element_bytes(const struct rr_call *call)
{
    return call->what == RR_BARRIER ? 1 : rr_type_bytes(call->type);
}

/* Breaks the communicator: the first failure counts, here and on this host. Returns the code that counts. */
int rr_comm_break(ringred_comm *comm, const ringred_error *why);
int rr_comm_abort(ringred_comm *comm, const ringred_error *why); /* from any thread */
int rr_comm_status(ringred_comm *comm); /* of a communicator that is not ready */
bool rr_comm_set(ringred_comm *comm, enum rr_comm_state to); /* false: not a legal step */
/* With progress owned: tells the peers if that is still to be done. */
void rr_comm_tell(ringred_comm *comm);
int rr_comm_refuse(ringred_comm *comm, int code, const char *format, ...) RR_PRINTF(3, 4);

/* ---- waiting (wait.c) ---- */
struct rr_waiter {
    int64_t since_ns, look_ns;  /* when it began to wait in vain; when to look after the peers next */
    int64_t last_ns;            /* the clock's last reading */
    uint32_t turns;
};
void rr_wait_ended(ringred_comm *comm, struct rr_waiter *w); /* something moved */
/* After a turn in which nothing moved: spins, yields or sleeps, and looks after the peers now and then.
 * PENDING; 0: the run ended meanwhile; < 0: failed, why written; RR_WAIT_OVER: the deadline is over
 * (no failure: ETIMEOUT may be what a peer tells). */
#define RR_WAIT_OVER 2
int rr_wait_turn(ringred_comm *comm, struct rr_waiter *w, struct rr_run *run, int64_t deadline_ns,
                 ringred_error *why);
/* Instead of a turn, where the caller only polls: looks after the peers if it is time. PENDING or < 0. */
int rr_wait_poll(ringred_comm *comm, const struct rr_run *run, ringred_error *why);
int64_t rr_comm_describe(ringred_comm *comm, const char *collective, uint64_t bytes, char *text,
                         size_t room);
/* Every lane and plan there is, for any communicator. */
void rr_algorithms_describe(struct rr_text *t);

#endif
