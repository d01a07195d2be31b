/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: a rank killed in a loop of 16 MiB allreduces at 4 ranks is named by each survivor within
 * 2 s, on shm and on tcp, from pending and from later calls; destroy works; and the survivors can
 * make a new communicator in the same processes. killed_rank [rounds, 3] */
#include "job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS    4
#define COUNT    ((size_t)4 << 20) /* of floats: 16 MiB */
#define BOUND_NS (2 * RINGRED_SECOND)

struct notes {
    atomic_int calls; /* that rank 0 has done */
    _Atomic int64_t killed_ns;
    _Atomic int64_t noticed_ns[RANKS];
    int victim;
};

static struct notes *notes_of(struct job *job)
{
    return (struct notes *)(void *)job->shared->notes;
}

/* The failure must be told here, and must name the victim. */
static void expect_loss(struct job *job, ringred_comm *comm, int rank, int rc, const char *where)
{
    struct notes *n = notes_of(job);
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    if (rc != RINGRED_EPEER || why.code != RINGRED_EPEER || why.rank != n->victim)
        job_fail(rank, "%s: status %d, rank %d: %s", where, rc, why.rank, why.text);
}

/* Two requests in flight at a time, so that one is pending behind another when the rank is lost. */
static void loop_until_lost(struct job *job, ringred_comm *comm, int rank, float *const data[2])
{
    struct notes *n = notes_of(job);

    for (;;) {
        ringred_request *request[2];
        int rc[2];

        for (int i = 0; i < 2; i++)
            rc[i] = ringred_allreduce_start(comm, data[i], data[i], COUNT, RINGRED_FLOAT32,
                                            RINGRED_AVG, &request[i]);
        for (int i = 0; i < 2; i++)
            rc[i] = rc[i] < 0 ? rc[i] : ringred_wait(request[i], RINGRED_FOREVER);
        if (rc[0] == 0 && rc[1] == 0) {
            atomic_fetch_add(&n->calls, rank == 0);
            continue;
        }
        atomic_store(&n->noticed_ns[rank], job_now_ns());
        expect_loss(job, comm, rank, rc[1], "pending call");
        if (rc[0] != 0)
            expect_loss(job, comm, rank, rc[0], "first pending call");
        return;
    }
}

static void later_calls(struct job *job, ringred_comm *comm, int rank, float *data)
{
    int64_t began = job_now_ns();

    expect_loss(job, comm, rank,
                ringred_allreduce(comm, data, data, 1, RINGRED_FLOAT32, RINGRED_SUM),
                "later allreduce");
    expect_loss(job, comm, rank, ringred_barrier(comm), "later barrier");
    if (job_now_ns() - began > BOUND_NS / 10)
        job_fail(rank, "later calls took %lld ms", (long long)((job_now_ns() - began) / 1000000));
}

/* The survivors close ranks: 0, 1, .. without the victim. */
static void begin_again(struct job *job, int rank)
{
    const struct notes *n = notes_of(job);
    int place = rank - (rank > n->victim);
    ringred_comm *comm = job_join(job, 1, place, RANKS - 1, job->settings);
    float x = 1;

    if (ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM) < 0 || x != RANKS - 1)
        job_fail(rank, "the new communicator gives %g", (double)x);
    if (ringred_comm_destroy(comm) < 0)
        job_fail(rank, "the new communicator does not end well");
}

static void survive(struct job *job, ringred_comm *comm, int rank)
{
    float *data[2] = { calloc(COUNT, sizeof(float)), calloc(COUNT, sizeof(float)) };
    int rc;

    if (!data[0] || !data[1])
        job_fail(rank, "no memory");
    loop_until_lost(job, comm, rank, data);
    later_calls(job, comm, rank, data[0]);
    rc = ringred_comm_destroy(comm);
    if (rc != 0 && rc != RINGRED_EPEER)
        job_fail(rank, "destroy: status %d", rc);
    begin_again(job, rank);
}

static bool once(const char *transport, int victim, int64_t *slowest_ns)
{
    struct job job;
    struct notes *n;

    job_open(&job, RANKS, transport);
    n = notes_of(&job);
    n->victim = victim;
    job_start(&job, survive);
    while (atomic_load(&n->calls) < 3 && !atomic_load(&job.shared->failed))
        job_nap_ms(1);
    job_nap_ms(victim * 3 + rand() % 10); /* somewhere in a call */
    atomic_store(&n->killed_ns, job_now_ns());
    kill(job.pid[victim], SIGKILL);
    /* the notes go with the job: look before waiting for its end */
    for (int r = 0; r < RANKS; r++) {
        while (r != victim && !atomic_load(&n->noticed_ns[r]) &&
               !atomic_load(&job.shared->failed) && job_now_ns() < n->killed_ns + 10 * BOUND_NS)
            job_nap_ms(1);
        if (r != victim && n->noticed_ns[r] - n->killed_ns > *slowest_ns)
            *slowest_ns = n->noticed_ns[r] - n->killed_ns;
    }
    return job_wait(&job, victim);
}

int main(int argc, char **argv)
{
    static const char *const transports[] = { "shm", "tcp" };
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    double worst[2];
    bool fine = true;

    for (int t = 0; t < 2; t++) {
        int64_t slowest_ns = 0;

        for (int i = 0; i < rounds; i++)
            fine = once(transports[t], (i + 1) % RANKS, &slowest_ns) && fine;
        worst[t] = (double)slowest_ns / 1e9;
        fine = fine && slowest_ns <= BOUND_NS;
    }
    printf("%s: the slowest survivor named the killed rank after %.3f s on shm, %.3f s on tcp (at "
           "most 2 s)\n",
           fine ? "holds" : "FAILS", worst[0], worst[1]);
    return fine ? 0 : 1;
}
