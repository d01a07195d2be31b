/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of forked ranks for the tests of the boot room: each rank is a process that runs one
 * function and leaves what it found in memory that the test can read. */
#ifndef BOOT_JOB_H
#define BOOT_JOB_H

#include "boot/inside.h"

#include <sys/types.h>

#define JOB_MOST 8

struct job_rank {
    int code; /* of the step that failed, or 0 */
    ringred_error why;
    int32_t pid;
    int fds_before, fds_after;
    int64_t took_ns;
    long numbers[4]; /* for the test */
};

struct job {
    int n;    /* processes */
    int port; /* held for the root: bound, but nobody listens */
    int holder;
    char root[64];
    struct job_rank *at; /* [JOB_MOST], shared */
    pid_t pid[JOB_MOST];
    /* what tests may change before they start it; the defaults are an ordinary job */
    int rank[JOB_MOST], size[JOB_MOST];
    const char *roots[JOB_MOST];
    const char *key[JOB_MOST];
    const char *settings[8];
    double seconds;
    int log_fd;  /* >= 0: log lines go there, one a write */
    int gate[2]; /* a pipe: ranks that call job_wait go on when the test calls job_release */
    bool may_die[JOB_MOST];             /* a signal may end it */
    const char *variables[JOB_MOST][8]; /* if [i][0] is set: found by these instead of arguments */
    ringred_unique_id *id;              /* shared; if set, instead of root and key */
};

typedef int job_fn(struct job *job, int i, struct job_rank *me);

void job_init(struct job *job, int n, const char *host);
void job_start(struct job *job, job_fn *fn);
/* Waits for all; fails the test if one did not exit by itself. */
void job_join(struct job *job);
void job_run(struct job *job, job_fn *fn);
void job_done(struct job *job);

void job_wait(struct job *job);    /* in a rank */
void job_release(struct job *job); /* in the test: all that wait, or will */

/* What most ranks do: find, open. */
int job_open(struct job *job, int i, struct job_rank *me, struct rr_boot **boot);
int job_fds(void); /* open descriptors of this process */

#endif
