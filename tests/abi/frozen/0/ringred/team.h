/* SPDX-License-Identifier: Apache-2.0 */
/* For authors of teams: plug-ins that run whole collectives, as NCCL does.
 *
 * A team is a shared object that exports one function, RINGRED_TEAM_ENTRY, which returns a table of functions.
 * With the setting team=NAME the library loads "libringred-NAME.so", as it does transports (transport.h), and hands
 * it what it can do. The rest goes the library's own way beside it: setting up, agreement, barriers, messages from
 * rank to rank, parts of unequal length, lists of vectors and the caller's own operators.
 *
 * Each communicator of two ranks or more has a team of its own, that of a split, too. Before a call is handed
 * over, the library has made sure that every rank asks for the same, so a team never sees two that differ; it gets
 * calls one after another, in the same order on all ranks. Calls of different communicators come in any order.
 *
 * Numbers. Integers, bools and data that are only moved come out as docs/NUMBERS.md says, to the bit. Reductions
 * of floats and complex numbers are handed over under numerics=fast, or if the team declares RINGRED_ORDER_TREE:
 * then they come out as docs/NUMBERS.md says, too. ringred_comm_describe tells which of the two a sum gets.
 *
 * Failures. What start or test answers below zero breaks the communicators of the job with that sentence; with
 * EPEER and no rank the library first looks for a moment which rank is gone. When they break otherwise (a rank has
 * died, a time limit is over, somebody aborts), and when one is destroyed in the middle, the library calls abort on
 * each team that is at work. A rank that goes while a team is at work may have done its part: the team gets a second
 * to end, then they break.
 *
 * Threads. Functions of one team are called by one thread at a time, which need not be the same one each time;
 * teams of different communicators are independent; `can` may be called at any time. No function may wait, but open
 * for the other ranks, and abort and close for threads of the team's own, nor call back into libringred other than
 * through the host table.
 *
 * The host table is that of transports: rank and ranks are those of the communicator, rails is 0. */
#ifndef RINGRED_TEAM_H
#define RINGRED_TEAM_H

#include <ringred/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In which order floats are added. */
#define RINGRED_ORDER_ANY ((int32_t)0)
#define RINGRED_ORDER_TREE ((int32_t)1) /* the library's one tree over all ranks, rounded as it rounds */

/* One call, as ringred.h describes it. It grows at its end. */
typedef struct ringred_team_call {
    uint32_t struct_size;
    int32_t collective;   /* RINGRED_ALLREDUCE to RINGRED_ALLTOALL */
    const void *send;     /* NULL where this rank has nothing to read, or to write; in place as in ringred.h. Both */
    void *recv;           /* are the team's until test has returned 0, or abort has returned */
    size_t count;         /* elements of one part; not 0 */
    int32_t type;
    int32_t op;           /* 0: no reduction */
    int32_t root;         /* -1: the collective has none */
    int32_t ranks;        /* of the communicator */
    double scale;         /* of the whole sum or average; 1: none */
} ringred_team_call;

typedef struct ringred_team {
    uint32_t struct_size;
    int32_t order;        /* RINGRED_ORDER_... */
    const char *name;     /* as in the setting; lower-case letters, digits, '-' and '_', at most 15 */
    const char *text;     /* what it is, in one line */

    /* Can it be used on this machine? 0, or EUNSUPPORTED and why not. host may be NULL. NULL: always. */
    int32_t (*usable)(const ringred_host *host, ringred_error *why);
    /* Does it take such a call? 0, or EUNSUPPORTED. The same on all ranks, whatever happened before; send and recv are
     * NULL. Any thread, at any time. */
    int32_t (*can)(const ringred_team_call *call);

    /* ---- making a team: on every rank of a communicator at about the same time ---- */

    /* On rank 0, when all ranks can use the team: what they need to find each other, up to RINGRED_ADDRESS_MOST bytes,
     * which the library takes to all. Returns their number or a status. What it holds on to belongs to the open that
     * follows, which is left out only if a rank fails in between. */
    int32_t (*id)(const ringred_host *host, void *to, ringred_error *why);
    /* *self is handed to all functions below. Waits until all are there or the deadline is over (ETIMEOUT). */
    int32_t (*open)(const ringred_host *host, const void *id, int32_t bytes, int64_t deadline_ns, void **self,
                    ringred_error *why);

    /* ---- calls ---- */

    int32_t (*start)(void *self, const ringred_team_call *call, ringred_error *why);
    /* 0: all that was started has ended here: recv is written, and the other ranks end without any more of this one.
     * PENDING. Or what has failed. It is called often. */
    int32_t (*test)(void *self, ringred_error *why);
    /* A descriptor that becomes readable, each time anew, when test may have news. The library sleeps on it
     * (edge-triggered) and never reads it. NULL, or below 0: there is none, and test is called about every
     * millisecond. */
    int32_t (*descriptor)(void *self);

    /* Ends everything at once: afterwards no buffer is touched, and only close follows. */
    void (*abort)(void *self);
    /* Frees everything, without waiting for other ranks. What is under way was aborted before. NULL is not passed. */
    void (*close)(void *self);
} ringred_team;

/* The entry of a team. Its name carries the number of this interface: RINGRED_PLUGIN_ABI_VERSION. The table must stay
 * valid; a shorter one than the library's has NULL in what is missing. */
#define RINGRED_TEAM_ENTRY ringred_team_1
typedef const ringred_team *(*ringred_team_entry)(void);

#ifdef __cplusplus
}
#endif

#endif
