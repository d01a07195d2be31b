/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of failure_matrix share: a cell of the matrix, and the page on which its ranks and the parent compare
 * notes. failure_matrix.c runs cells and judges them, failure_rank.c is what ranks do, failure_cause.c makes one
 * fail. */
#ifndef EVIDENCE_FAILURE_H
#define EVIDENCE_FAILURE_H

#include "job.h"

#define RANKS   4
#define CULPRIT 3 /* alone on host 1 over tcp, with rank 2 where two hosts have two ranks each */
#define LATE    2 /* comes to init, and to shrink, when the culprit has failed there already */

#define PEER_TIMEOUT_NS (2 * RINGRED_SECOND)
#define CALL_TIMEOUT_NS (7 * RINGRED_SECOND / 2) /* longer than peer_timeout: a stopped rank outlasts that */
#define INIT_TIMEOUT_NS (4 * RINGRED_SECOND)
#define SHRINK_TIMEOUT_NS (12 * RINGRED_SECOND) /* half of it is longer than peer_timeout */

enum cause { KILL, STOP, CUT_BOTH, CUT_ONE, RESET, EXIT_EARLY, EXIT_IN_INIT, NO_MEMORY, CGROUP, CAUSES };
enum moment { IDLE, INIT, SMALL, LARGE, SHRINK, DESTROY, MOMENTS };
enum layout { SHM, TCP, TWO_HOSTS, LAYOUTS };
enum mode { BLOCKING, STARTED, THREAD, MODES };

struct cell {
    enum cause cause;
    enum moment moment;
    enum layout layout;
    enum mode mode;
    int nth; /* allocation that fails in init or shrink */
};

struct outcome {
    atomic_int done;          /* the rank has nothing more to tell */
    int status, named;        /* what the call in which it noticed gave */
    int later;                /* the same of a call after that */
    int destroyed;            /* the same of destroy */
    int descriptors, threads; /* more than before the communicator was made */
    int64_t began_ns, ended_ns; /* of the call in which it noticed */
    int64_t cpu_ns;           /* of the process, when it noticed */
    int64_t quiet_ns;         /* CPU used in QUIET_MS thereafter */
    int64_t later_ns, destroy_ns;
    char text[160];
};

#define QUIET_MS 30

struct notes {
    struct cell cell;
    atomic_int ready[RANKS];  /* the rank has come to the moment */
    bool shrinks[RANKS];      /* it is on its way there */
    atomic_int calls;         /* that rank 0 has done */
    atomic_int placed;        /* the culprit is where it is to be */
    atomic_int act;           /* the culprit: fail now */
    atomic_int failed;        /* it has */
    atomic_int last;          /* no call after this one */
    atomic_int over[RANKS];   /* the rank's wait has timed out */
    _Atomic int64_t failed_ns;
    struct outcome of[RANKS];
};

_Static_assert(sizeof(struct notes) <= JOB_ROOM, "notes fit");

static inline struct notes *notes_of(struct job *job)
{
    return (struct notes *)(void *)job->shared->notes;
}

/* ---- failure_rank.c ---- */

void failure_rank(struct job *job, int rank);
void failure_enter_hosts(const int *keepers); /* network namespaces by process; from now on, ranks lie in them */
int failure_host_of(enum layout layout, int rank);
int failure_enter(int host); /* 0: this process lies in the host's network now */

/* ---- failure_cause.c ---- */

const char *failure_cannot(const struct cell *c, bool hosts); /* why that cell has no meaning here; NULL: it has */
bool failure_is_own(enum cause cause);                      /* the culprit does it itself */
void failure_prepare(struct job *job);                      /* before the culprit makes its communicator */
void failure_cause(struct job *job);                        /* by the parent */
void failure_cause_own(struct job *job);                    /* by the culprit */
void failure_clean(struct job *job);                        /* what the cause has left */

#endif
