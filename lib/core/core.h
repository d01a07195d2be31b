/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the core room: communicators and requests. */
#ifndef RR_CORE_H
#define RR_CORE_H

#include "algo/algo.h"
#include "base/base.h"
#include "boot/boot.h"
#include "core/record.h"
#include "core/tuning.h"
#include "engine/engine.h"
#include "transport/transport.h"

#include <pthread.h>

#define RR_SCRATCH_BYTES ((size_t)8 << 20)
#define RR_SLEEP_MS 100 /* the longest sleep while something is in flight: bounds every loss of a wake-up */
#define RR_REQUESTS 64 /* in flight at once on one communicator; a power of two */

_Static_assert(RR_REQUESTS <= RR_OFFERS, "each request is one message at most");

enum rr_comm_state { RR_COMM_NEW, RR_COMM_WIRING, RR_COMM_READY, RR_COMM_BROKEN, RR_COMM_CLOSED };

/* free -> running -> done -> free; the starter makes it running, the progress owner done, the waiter free */
enum rr_request_state { RR_REQUEST_FREE, RR_REQUEST_RUNNING, RR_REQUEST_DONE };

struct ringred_request {
    ringred_comm *comm;
    _Atomic int state;
    int status;                 /* once done */
    struct rr_run run;
    struct rr_ragged ragged;    /* run.ragged, in use with parts of unequal length */
    struct rr_list *list;       /* a list's (list.c); made at first use, kept */
    bool listed;                /* it is one */
    size_t *room;               /* [4][ranks of the job] copies of callers' counts; made at first use, kept */
    struct ringred_request *next; /* of family.spare, or of all that were made */
    struct rr_talk talk;        /* a message from one rank to another instead of a run (talk.c) */
    enum { RR_NO_TALK, RR_SENDS, RR_RECEIVES } talks;
    size_t still_done;          /* of a message: when it was looked at last; the owner's, as the next two */
    uint32_t still_ms;          /* since when it has not moved, low bits; 0: nobody has looked */
    bool stall_said;            /* that it does not move */
    ringred_message *message;   /* NULL, or where to say what came */
    ringred_done_fn done;       /* instead of somebody who waits; NULL: somebody waits */
    void *done_context;
    struct ringred_request *fired; /* of family.ended */
    struct ringred_request *after; /* of family.talks, or talk_comers */
};

/* What a run works with while it is active. The first communicator has one of its own, the others take one
 * while they have something to do. */
struct rr_area {
    int number;
    bool taken;                 /* guarded by the family's pool lock */
    struct rr_area *next;
    char *scratch;
    uint32_t *done;
    struct rr_bases *bases;
    struct rr_move *send, *recv;
    struct ringred_request *queue[RR_REQUESTS];
};

/* A plan of the cache, with a program for each area that has run it. */
struct rr_choice {
    const struct rr_plan *plan;
    struct rr_program **program;
    int programs;
    size_t count, element_bytes, wish, segment; /* what was chosen last; guarded as the cache is */
};

/* Plans for one layout and rank: allreduces and the barrier are made at once, others at first use; all are kept.
 * The first communicator's is guarded by its `starting`, those of the others, which share equal ones, by the pool
 * lock. */
struct rr_plans {
    struct rr_plans *next;
    struct rr_layout layout;
    int16_t *host;              /* [ranks], layout.host */
    int rank;
    bool shared;                /* with ranks that share memory */
    uint32_t most_steps;
    struct rr_choice **plan[RR_ALGOS]; /* [1], of rooted collectives [ranks] by root. NULL: not possible */
};

/* All communicators of one job in this process: they share links, memory, progress and fate. */
struct rr_family {
    int rank, ranks;            /* of the job */
    struct rr_settings settings;
    struct rr_log log;
    uint32_t forks;             /* rr_forks() when it was made */
    _Atomic int state;          /* enum rr_comm_state */
    bool crowded;               /* more ranks on this machine than CPUs for them */
    bool crowded_any;           /* on some machine of the job; the same on all ranks */
    bool wired;                 /* links leave a machine: bytes cost more than turns on a CPU */
    struct rr_congestion congestion;
    struct rr_shared *shared;   /* NULL: this rank shares memory with nobody */
    struct rr_transport *links; /* NULL: none */
    struct rr_transport *post;  /* without links: for messages between ranks that share memory */
    struct rr_interrupt interrupt;
    struct rr_wires wires;      /* what the setting transport says */
    struct rr_tuning *tuning;   /* NULL: none; the same on all ranks */
    int links_wanted;           /* connections to all other ranks together; 0: none, or not yet known */
    const ringred_team *team;   /* of the setting team; NULL: none */
    unsigned char team_secret[32];
    ringred_choose_fn choose;   /* NULL: none */
    void *choose_context;
    int16_t *host;              /* [ranks] who sits with whom, whether or not they share memory */
    struct rr_record *record;   /* what this rank did last (record.h) */
    int record_fd;              /* its memory file; -1: there is none, and only this process reads it */
    _Atomic bool dumped;        /* dump_dir has got its file */
    ringred_comm *first;        /* of all ranks; it frees itself with the family */
    struct rr_reunion *reunion; /* where those that are left of it meet; of one rank: what its ancestors' ranks dial, or NULL */
    _Atomic uint32_t shrinking; /* somebody is inside rr_comm_shrink */
    int doubtful;               /* of one rank: it may have become a communicator of so many; 0: not so */
    int handles;                /* communicators that have not been destroyed; guarded by pool */

    /* progress: one thread owns it, the others sleep on changed */
    _Atomic uint32_t owned;
    _Atomic uint32_t waiters;
    _Atomic uint32_t asleep;    /* the owner sleeps, or is about to */
    struct ringred_request *talks; /* messages under way, in the order of their starts; the owner's */
    ringred_comm *running;      /* the first, then those with something to do; the owner's */
    _Atomic uint32_t comers;    /* there are some in `incoming`, or errands */
    int epoll, wake;            /* what a sleeping owner waits on; wake: an eventfd of our own */
    uint8_t *gone;              /* [ranks] RR_GONE_; the owner's */
    int vain;                   /* spins that were in vain lately, 0 to 3; the owner's */
    int64_t look_ns;            /* when polling looks after the peers next; the owner's */
    int64_t spin_ns;            /* how long to spin or yield before sleeping */
    struct ringred_request *ended; /* whose callers get their word when the owner leaves; the owner's */
    bool other_ended;           /* something that its owner did not wait for has ended; the owner's */
    struct rr_listener {        /* a program that sleeps on the descriptor (listen.c) */
        _Atomic int set;        /* the descriptor: an epoll set of these two, and of the family's own; -1: not there */
        int timer, bell;
        bool lies;              /* between rr_wait_lie_down and rr_wait_get_up, owned by nobody; the owner's */
        _Atomic uint32_t armed; /* the bell is to be rung at the next news; or whenever progress is given up */
#define RR_ARMED_FOR_ALL 2
    } listener;

    /* progress=thread (mover.c) */
    bool threaded;
    bool roomy;                 /* this machine has a CPU for each rank and one for each rank's thread */
    _Atomic uint32_t poked;     /* there is, or may be, something for the thread to move; see rr_family_disown */
    _Atomic uint32_t wanted;    /* callers that wait and would rather own progress themselves: it leaves it to them */
    struct rr_mover *mover;     /* the thread's part */

    pthread_mutex_t lock;       /* guards changed, fault, and refused of every communicator */
    pthread_cond_t changed;
    ringred_error fault;        /* what broke it; then never changed */
    _Atomic bool told;          /* the peers have been told of the fault, as far as they listen */
    _Atomic bool late;          /* something to be told of its end was started meanwhile: give it up, too */

    pthread_mutex_t pool;       /* guards what follows; taken before `lock`, if both are */
    struct rr_errand *errands;
    struct rr_crew *crews;      /* the communicators' teams */
    ringred_comm *over;         /* those that this rank has destroyed and not all mates, by next */
    struct ringred_request *talk_comers, **talk_comers_end; /* messages that have just been started */
    ringred_comm *incoming;     /* communicators that have just got something to do */
    struct rr_area *areas;
    int areas_made;
    struct rr_plans *plans;     /* of all communicators but the first */
    struct ringred_request *spare;        /* for these, too */
    struct rr_chunk {
        struct rr_chunk *next;
        struct ringred_request request[RR_REQUESTS];
    } *chunks;
};

struct ringred_comm {
    struct rr_family *family;
    int rank, ranks, local_rank, local_ranks;
    bool all_local;             /* every rank shares memory with every other */
    bool portable;              /* numerics=portable: no bit that depends on the layout */
    bool even;                  /* hosts' sums are parts of the canonical tree */
    bool equal;                 /* hosts have equally many ranks */
    _Atomic uint32_t owed;      /* requests whose callers have not had their word yet (ringred_start's done) */
    size_t least_stage;         /* a stage of the host that has the smallest: all ranks cut segments alike */
    int64_t tiny_most, last_most; /* bytes up to which allreduces take these lanes; -1: never */
    int wish[RR_COLLECTIVES];   /* the algorithm that the settings ask for and that is possible, or -1 */
    uint32_t wished;            /* bit of a collective: a lane or algorithm that the settings ask for is possible */
    struct rr_layout layout;
    int16_t *host;              /* [ranks], layout.host */
    int16_t *member;            /* [ranks] ranks of the job; NULL: all, by their numbers */
    struct rr_plans *plans;
    struct rr_area *area;       /* NULL: nothing to do */
    struct rr_record_slot *record;
    struct rr_engine engine;
    struct rr_channel *channel; /* on the family's links; NULL: the first, or there are none */
    _Atomic uint32_t talking;   /* messages under way */

    /* starting: one thread at a time, the others get EBUSY */
    _Atomic uint32_t starting;
    uint64_t sequence;          /* of the last operation started; guarded by starting */
    struct rr_chosen_last *last; /* [RR_COLLECTIVES] with a table, else NULL; guarded by starting */
    struct ringred_request *request; /* [RR_REQUESTS]; NULL: from the family's spare ones */
    struct ringred_request **queue; /* [RR_REQUESTS] the area's */
    _Atomic uint32_t tail;      /* operations ever queued; written by the starter */

    /* progress; the owner's */
    _Atomic uint32_t head;      /* operations ever ended; written by the owner */
    bool active;                /* the run at the head has begun */
    bool stall_said;            /* that it does not move */
    uint8_t ops;                /* the caller's operators, at most 64, see op */
    uint32_t still_ms;          /* since when it has not moved, low bits; 0: it has, or nobody has looked */
    ringred_comm *next;         /* of family.running, or incoming */
    uint8_t *gone;              /* [ranks] RR_GONE_ */
    int64_t probe_ns;           /* when the run at the head asks the peers what they do; 0: not waited yet */

    ringred_error refused;      /* the latest call that was refused */
    struct rr_user_op **op;     /* [ops] the caller's operators (op.c) */
};

/* Something that only the owner of progress may do. */
struct rr_errand {
    int (*run)(struct rr_family *family, void *with);
    void *with;
    int rc;
    bool done;
    struct rr_errand *next;
};

int rr_comm_open(const ringred_config *config, ringred_comm **comm, ringred_error *why);
/* As `old` was configured. A failure with *last set happened in the last step, which may have succeeded for others:
 * then *comm is what was made, not ready. */
int rr_comm_open_like(const struct rr_family *old, const struct rr_launch *launch, int64_t deadline_ns,
                      ringred_comm **comm, bool *last, ringred_error *why);
int rr_comm_close(ringred_comm *comm);
int rr_family_free(struct rr_family *family); /* works on half-made ones */

/* ---- communicators made from others (split.c) ---- */
struct rr_split {
    int32_t color, key;         /* color < 0: takes part, and gets none */
    uint64_t list;              /* hash of the ranks that a list named; 0: no list */
    int32_t listed;             /* how many these are */
    int32_t lacking;            /* not 0: this rank has no memory for what comes with it; then nobody gets one */
};
int rr_comm_split(ringred_comm *parent, const struct rr_split *mine, ringred_comm **comm);
int rr_comm_exchange(ringred_comm *comm, const void *mine, void *all, size_t bytes); /* an allgather that sets up */
void rr_parts_free(struct rr_family *family); /* of those that are over, and of all that are not */
void rr_comm_drop(ringred_comm *comm); /* says goodbye and frees; the first only says goodbye */

/* ---- communicators of those that are left, or of more (shrink.c) ---- */
int rr_comm_shrink(ringred_comm *comm, int64_t timeout_ns, ringred_comm **smaller, int32_t *ranks, ringred_error *why);
int rr_comm_grow(ringred_comm *comm, const ringred_unique_id *id, int size, int64_t timeout_ns, ringred_comm **larger,
                 ringred_error *why);

/* One call of a collective as the API hands it down; arguments are checked. */
struct rr_call {
    enum rr_collective what;
    const void *in;
    void *out;
    const struct rr_pieces *in_pieces, *out_pieces; /* where these lie, if in many places; NULL: at in and out */
    size_t count;               /* elements of one part; ragged: of the longest that all ranks know of, or 0 */
    int type, op, root;
    const struct rr_ragged *ragged; /* NULL: all parts are alike. Displacements NULL: one behind the other */
    const struct rr_vectors *vectors; /* NULL: one. Else a list of them; in, out, count and type say nothing */
    const struct rr_user_op *user; /* op is one of the caller's; NULL: it is not */
    double scale;               /* of the sum; 0: none */
    bool timed;                 /* the blocking form takes timeout_ns instead of the setting */
    bool sets_up;               /* the blocking form may be interrupted */
    bool ours;                  /* no team takes it */
    int64_t timeout_ns;
    ringred_done_fn done;       /* instead of a request */
    void *done_context;
};

/* ---- operators of the caller's (op.c) ---- */
int rr_op_create(ringred_comm *comm, ringred_op_fn fn, void *context, size_t element_bytes, int32_t *op);
void rr_ops_free(ringred_comm *comm);
static inline const struct rr_user_op *rr_comm_op(const ringred_comm *c, int op) /* NULL: none of these */
{
    return op >= RR_USER_OP && op < RR_USER_OP + c->ops ? c->op[op - RR_USER_OP] : NULL;
}

/* ---- teams of strangers (team.c) ---- */
ringred_team_call rr_team_call(const ringred_comm *comm, const struct rr_call *call);
/* Why the setting's team does not run a call; NULL: it can. Without a team opened, too: on paper. */
const char *rr_team_refusal(const ringred_comm *comm, const struct rr_call *call);
bool rr_team_takes(const ringred_comm *comm, const struct rr_call *call); /* and no algorithm is wished for */
/* One of its own, not open: is there memory, and can this rank use it? */
int rr_team_prepare(ringred_comm *comm, ringred_error *why);
/* Both collective: a team for the first communicator; for one that is being made from another and is prepared, c NULL:
 * not for this rank. member: c's ranks, as the parent calls them; all: [parent's ranks + 1], room. */
int rr_team_meet(ringred_comm *comm, struct rr_boot *boot, int64_t deadline_ns, ringred_error *why);
int rr_team_split(ringred_comm *parent, ringred_comm *c, const int16_t *member, struct rr_team_offer *all);
/* With pool taken, and progress owned: it is the caller's to close. */
struct rr_crew *rr_team_leave(ringred_comm *comm);
void rr_team_drop(ringred_comm *comm);          /* closes it, where nobody else can own progress */
void rr_teams_abort(struct rr_family *family);  /* with progress owned: what is at work touches no buffer any more */
bool rr_teams_ring(const struct rr_family *family); /* with progress owned: has all that is under way a descriptor? */

/* ---- many vectors in one request (list.c): runs in turn, each of a large vector or of a bucket of small ones ---- */
#define RR_LIST_MOST ((size_t)1 << 20)
struct rr_vectors {
    const void *const *in;
    void *const *out;
    const size_t *count;
    const int32_t *type;
    size_t n;
};
/* One of its runs. */
struct rr_list_run {
    int type;
    size_t first, members, count; /* of the list, in its order; elements of all together */
    size_t packed;              /* the first so many of them go through the bucket */
    enum rr_lane lane;          /* what was chosen for it */
    int algo;
    struct rr_program *program;
    size_t segment;
};
/* Copies what the caller gave into request->list and cuts it into runs. *runs: how many, at least one. ENOMEM. */
int rr_list_take(struct ringred_request *request, const struct rr_call *call, const struct rr_shape *shape,
                 size_t *runs);
struct rr_list_run *rr_list_run(struct ringred_request *request, size_t i);
uint64_t rr_list_signature(const struct rr_vectors *vectors); /* what must be alike on all ranks */
int rr_list_pack(struct ringred_request *request, size_t i); /* all of run i, for a lane, into the bucket. ENOMEM */
struct rr_call rr_list_call(const struct ringred_request *request, size_t i); /* that run i is */
/* The run that is under way: fills its bucket; empties it and goes on to the next, false: that was the last. */
void rr_list_begin(const struct ringred_request *request);
bool rr_list_next(struct ringred_request *request, struct rr_call *call, struct rr_list_run **run);
void rr_list_free(struct rr_list *list);
int rr_family_do(struct rr_family *family, int (*run)(struct rr_family *family, void *with), void *with);
void rr_wake_waiters(struct rr_family *family);
void rr_tell_others(struct rr_family *family); /* the owner's, who goes on: something has ended */
void rr_requests_give_up(struct rr_family *family, int status); /* those with `done`, which fire when progress is given up */
int rr_family_poll(struct rr_family *family); /* lets what is in flight move */
void rr_requests_drop(ringred_comm *comm); /* those that were not waited for; it has nothing to do */
int rr_comm_start(ringred_comm *comm, const struct rr_call *call, ringred_request **request);
int rr_comm_run(ringred_comm *comm, const struct rr_call *call); /* start and wait */
/* What all starts have in common: refuses what cannot be, lets one thread in, and afterwards sends off what can be. */
int rr_start_begin(ringred_comm *comm);
void rr_start_end(ringred_comm *comm, bool started);
struct ringred_request *rr_request_take(ringred_comm *comm); /* with starting taken, and pool unless it is the first */
/* The blocking forms: what is not over in time, or interrupted while it sets up, breaks the family. */
int rr_request_wait_or_break(ringred_request *request, const char *what, int64_t timeout_ns, bool sets_up);
void rr_requests_fire(struct ringred_request *ended); /* with nothing locked */
void rr_fire_ended(struct rr_family *family); /* with progress owned: of those that have ended so far */
int rr_request_wait(ringred_request *request, int64_t timeout_ns); /* PENDING: the time is over */

/* Which plan a call runs, and in what segments. Depends only on what all ranks know. */
enum rr_algo rr_choose_algo(const ringred_comm *comm, const struct rr_call *call);
enum rr_lane rr_choose_lane(const ringred_comm *comm, size_t bytes);
/* wish: bytes; 0: as the settings say, or chosen. */
size_t rr_choose_segment(struct rr_choice *choice, const ringred_comm *comm, const struct rr_call *call, size_t wish);
/* Elements of a segment; 0: so long a vector needs a larger stage. */
size_t rr_segment_of(const ringred_comm *comm, const struct rr_plan *plan, size_t count, size_t element_bytes,
                     size_t wish);
bool rr_algo_is_possible(const ringred_comm *comm, enum rr_algo algo); /* an allreduce or barrier, with this layout */
/* May an allreduce go through sums of parts of the ranks, in the type of its elements? */
bool rr_takes_partial_sums(const ringred_comm *comm, const struct rr_call *call, enum rr_algo algo);
int rr_choose_streams(int hosts, int local); /* connections to a rank of another host, with so many ranks on each */
int rr_choose_check(const struct rr_settings *settings, ringred_error *why); /* setting algorithm */
void rr_choose_init(ringred_comm *comm); /* once, when the plans are there */

/* "canonical", "layout" (each host's ranks, then the hosts) or "any": the tree of a sum of such a call. */
const char *rr_choose_tree(const ringred_comm *comm, const struct rr_call *call);

/* Sums by way of hosts have a tree of their own, or are narrowed once more: does this algorithm differ in that from
 * what calls like this one usually take? */
bool rr_has_other_bits(const ringred_comm *comm, const struct rr_call *call, enum rr_algo algo);
bool rr_is_narrow(int type); /* a float whose sums must not be rounded on their way more often than is promised */

/* ---- plans (plans.c) ---- */
/* A cache for a layout, which is copied. NULL: *why tells. */
struct rr_plans *rr_plans_new(const ringred_comm *comm, ringred_error *why);
void rr_plans_free(struct rr_plans *plans);
static inline uint32_t rr_plan_steps_most(int ranks) /* of any plan that is made after the communicator */
{
    return 16 * (uint32_t)ranks + 64;
}
bool rr_plan_usable(const ringred_comm *comm, enum rr_algo algo); /* with these transports and hosts */
/* The plan of an algorithm, and its program for the communicator's area, made if it is not there yet. With what
 * guards the cache taken. NULL: *why tells. */
struct rr_choice *rr_plan_get(ringred_comm *comm, enum rr_algo algo, int root, ringred_error *why);

/* ---- areas (area.c) ---- */
int rr_area_add(struct rr_family *family, struct rr_area **area, ringred_error *why); /* with pool taken */
void rr_area_bind(ringred_comm *comm, struct rr_area *area);
void rr_areas_free(struct rr_family *family);

static inline size_t rr_call_element_bytes(const struct rr_call *call)
{
    if (RR_UNLIKELY(call->user != NULL))
        return call->user->element_bytes;
    return call->what == RR_BARRIER ? 1 : rr_type_bytes(call->type);
}

/* Breaks every communicator of the family: the first failure counts, here and on this host. Returns the code that
 * counts. */
int rr_family_break(struct rr_family *family, const ringred_error *why);
int rr_family_abort(struct rr_family *family, const ringred_error *why); /* from any thread */
int rr_family_status(struct rr_family *family); /* of one that is not ready */
static inline bool rr_family_is_ready(const struct rr_family *family)
{
    return atomic_load(&family->state) == RR_COMM_READY;
}
bool rr_family_set(struct rr_family *family, enum rr_comm_state to); /* false: not a legal step */
/* With progress owned: tells the peers if that is still to be done. */
void rr_family_tell(struct rr_family *family);
int rr_comm_refuse(ringred_comm *comm, int code, const char *format, ...) RR_PRINTF(3, 4);

struct rr_waiter;

/* ---- messages from one rank to another (talk.c) ---- */
struct rr_message {
    bool sends;
    const void *buffer;
    size_t count;               /* receiving: there is room for */
    int type, peer, tag;        /* peer -1: any */
    ringred_message *message;
};
int rr_talk_start(ringred_comm *comm, const struct rr_message *m, ringred_request **request);
int rr_talk_run(ringred_comm *comm, const struct rr_message *m);
void rr_talks_come(struct rr_family *family); /* with pool taken, and progress owned */
int rr_talks_progress(struct rr_family *family, const struct rr_waiter *w, bool *moved, bool *ended, ringred_error *why);
int rr_talks_look(struct rr_family *family, int64_t now, ringred_error *why);

/* ---- progress ---- */
struct rr_waiter {
    const struct ringred_request *until; /* NULL: until there is nothing to do */
    bool stays;                 /* whoever else waits is told of what ends, since we go on */
    int64_t since_ns, look_ns;  /* when it began to wait in vain; when to look after the peers next */
    int64_t last_ns;            /* the clock's last reading */
    uint32_t turns;
};
/* With progress owned: runs until `until` has ended (NULL: everything has), nothing more can be done at once
 * (deadline 0), or the deadline is over. */
int rr_drive(struct rr_family *family, const struct ringred_request *until, int64_t deadline_ns);
void rr_wake_owner(struct rr_family *family); /* of something that has just been started, if it sleeps */
static inline uint64_t rr_record_how(const struct rr_run *r)
{
    return (uint64_t)(r->team ? RR_LANE_TEAM : r->lane) | (uint64_t)r->algo << 8 | (uint64_t)r->element_bytes << 32;
}
static inline struct ringred_request *rr_at_head(const ringred_comm *c) /* NULL: it has nothing to do */
{
    uint32_t head = atomic_load_explicit(&c->head, memory_order_relaxed);

    if (head == atomic_load_explicit(&c->tail, memory_order_acquire))
        return NULL;
    return c->queue[head % RR_REQUESTS];
}
/* A list goes on with its next run, which is an operation of its own. false: there is none. */
bool rr_request_go_on(ringred_comm *comm, struct ringred_request *request);
/* With progress owned: does what can be done now, once, for every communicator. 0: w's request has ended, or
 * nothing is to be done; PENDING; < 0: failed. *moved tells whether anything happened. */
int rr_progress(struct rr_family *family, const struct rr_waiter *w, bool *moved, ringred_error *why);

/* The rank that an operation misses most: one that has not come to it, and not one that waits for that, too, as far as
 * is known; -1: nobody in particular. With progress owned. */
int rr_stall_missing(const ringred_comm *comm, const struct rr_run *run);
void rr_stall_look(ringred_comm *comm, const struct rr_run *run, int64_t now); /* stall.c; with progress owned */
void rr_stall_look_talk(struct ringred_request *q, int64_t now); /* of a message */

/* ---- what this rank did last (record.c) ---- */
int rr_record_open(struct rr_family *family, const struct rr_boot *boot, ringred_error *why);
void rr_record_close(struct rr_family *family);
void rr_record_take(ringred_comm *comm, const char *name);
/* The split-th of the parent's, first: what the parent calls its rank 0. */
void rr_record_take_part(const ringred_comm *parent, ringred_comm *comm, uint32_t split, int first);
void rr_record_leave(ringred_comm *comm);
void rr_record_copy(void *to, const void *from, size_t bytes); /* word by word, beside those who write */
void rr_record_fail(struct rr_record *record, const ringred_error *why); /* with the family's lock, once */
/* With progress owned: what the operation waits for; a byte for each rank. */
void rr_record_still(ringred_comm *comm, uint64_t number, const uint8_t *awaits, const uint8_t *missing);

/* ---- saying so as JSON (dump.c) ---- */
void rr_dump_print(const struct rr_record *record, struct rr_text *t); /* that nobody writes; it may come from anywhere */
struct rr_record *rr_dump_copy(const struct rr_family *family); /* NULL: no memory */
int64_t rr_comm_dump(ringred_comm *comm, char *text, size_t room);
void rr_dump_file(struct rr_family *family); /* as the setting dump_dir says; needs no lock */
void rr_dump_broken(struct rr_family *family); /* the same once, if it has failed */
/* The record of another process (dump_process.c), the which-th. */
int rr_dump_process(int32_t pid, int32_t which, struct rr_text *t, ringred_error *why);
/* Bytes of such a file. EWIRE: they are none. */
int rr_dump_read(const void *bytes, size_t length, struct rr_text *t, ringred_error *why);

/* ---- programs that sleep on a descriptor (listen.c) ---- */
int rr_listen_descriptor(struct rr_family *family);
int rr_listen_poll(struct rr_family *family);
void rr_listen_ring(struct rr_family *family); /* there is news, or somebody else ought to look after progress */
void rr_listen_close(struct rr_family *family);

/* Tries to become the owner; gives progress up again. */
bool rr_family_own(struct rr_family *family);
void rr_family_disown(struct rr_family *family);

/* ---- progress=thread (mover.c) ---- */
int rr_mover_check(const struct rr_settings *settings, ringred_error *why); /* setting progress_cpus */
/* The process's thread looks after the family from now on; it is started if there is none. ELIMIT, ENOMEM, ESETTING. */
int rr_mover_attach(struct rr_family *family, ringred_error *why);
/* It has let go of the family, and ends if that was the last. Does nothing if it was not attached. */
void rr_mover_detach(struct rr_family *family);
/* Something was started, or is left to be done. */
void rr_mover_poke(struct rr_family *family);
void rr_mover_wake(void);   /* poked is set: it must look, if it sleeps */

/* ---- waiting (wait.c) ---- */
void rr_wait_ended(struct rr_family *family, struct rr_waiter *w); /* something moved */
/* After a turn in which nothing moved: spins, yields or sleeps, and looks after the peers now and then.
 * PENDING; 0: as rr_progress; < 0: failed, why written; RR_WAIT_OVER: the deadline is over
 * (no failure: ETIMEOUT may be what a peer tells). */
#define RR_WAIT_OVER 2
int rr_wait_turn(struct rr_family *family, struct rr_waiter *w, int64_t deadline_ns, ringred_error *why);
/* Before and after sleeping in an epoll set that holds the family's: whoever has something for us rings from now on,
 * and what came before is seen. As rr_progress; *most_ms is lowered where nobody will ring. */
int rr_wait_lie_down(struct rr_family *family, struct rr_waiter *w, int64_t now, int *most_ms, bool *moved,
                     ringred_error *why);
void rr_wait_get_up(struct rr_family *family);
int rr_wait_look(struct rr_family *family, int64_t now, ringred_error *why); /* after the peers. 0 or < 0 */
/* Instead of a turn, where the caller only polls: looks after the peers if it is time. PENDING or < 0. */
int rr_wait_poll(struct rr_family *family, ringred_error *why);
int64_t rr_comm_describe(ringred_comm *comm, const char *collective, uint64_t bytes, char *text,
                         size_t room);
/* What a question about a simulation (sim/sim.h) is answered with, as JSON. The text's end, or a status. */
int rr_simulate_answer(const char *question, struct rr_text *t, ringred_error *why);
/* What a question about a choice is answered with, with settings "name=value" as a communicator takes them. */
int rr_explain_answer(const char *question, const char *const *settings, struct rr_text *t, ringred_error *why);
/* Every lane and plan there is, for any communicator. */
void rr_algorithms_describe(struct rr_text *t);

#endif
