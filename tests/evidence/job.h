/* SPDX-License-Identifier: Apache-2.0 */
/* For evidence: a job of ranks on this machine, each a process, that share one page to compare
 * notes. Uses the public header alone, as what is shown must hold for a client. */
#ifndef EVIDENCE_JOB_H
#define EVIDENCE_JOB_H

#include <ringred/ringred.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define JOB_RANKS 64
#define JOB_ROOM  4096

struct job {
    int size;
    const char *settings[8]; /* ended by NULL */
    int64_t init_timeout_ns; /* 0: the setting's */
    int64_t patience_ns;     /* of job_wait and job_meet; 0: two minutes */
    struct job_shared *shared;
    pid_t pid[JOB_RANKS];
};

/* What all ranks and the parent see. */
struct job_shared {
    ringred_unique_id id[2]; /* of the job, and of one that it may make later */
    atomic_int id_is_there[2];
    atomic_int meetings;                        /* used by job_meet */
    atomic_int failed;                          /* ranks that said job_fail */
    char said[JOB_RANKS][512];                  /* what they said */
    _Alignas(64) unsigned char notes[JOB_ROOM]; /* the experiment's own */
};

/* Runs in each rank's process, with a communicator; a rank that returns has done its part. */
typedef void (*job_body)(struct job *job, ringred_comm *comm, int rank);

void job_open(struct job *job, int size, const char *transport);
void job_start(struct job *job, job_body body);
void job_start_rank(struct job *job, int rank, job_body body); /* or one at a time, rank 0 first */
/* Processes that make their communicators themselves (job_join). */
void job_start_bare(struct job *job, void (*body)(struct job *job, int rank));
/* Waits for all. True if every rank but `lost` (-1: none) ended well; says on stderr what did not.
 */
bool job_wait(struct job *job, int lost);
bool job_end(struct job *job, int lost); /* the same, but the shared page stays, until job_done */
void job_done(struct job *job);

/* ---- in a rank ---- */

/* Ends this rank, and the job's success. */
__attribute__((noreturn, format(printf, 2, 3))) void job_fail(int rank, const char *format, ...);
ringred_comm *job_join(struct job *job, int which, int rank, int size, const char *const *settings);
void job_meet(struct job *job,
              int of); /* waits until `of` processes have come, outside the library */

int64_t job_now_ns(void);
void job_nap_ms(int ms);
/* Where a process listens: ports, and names of abstract sockets. Returns how many. */
#define JOB_NAME 64
int job_ports(pid_t pid, int *port, int room);
int job_names(pid_t pid, char (*name)[JOB_NAME], int room);
int job_entries(const char *folder); /* such as /proc/self/fd: to be compared with what it was before */

#endif
