/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: 64 ranks on one machine, over shared memory and over TCP: right sums, a communicator in under 5 s, and
 * memory and descriptors within the formula of docs/USER.md ("Limits").
 *     sixty_four_ranks [ranks, 64] */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CREATE_NS (5 * RINGRED_SECOND)
#define COUNT     5000

/* The formula: per rank, on a machine of n ranks, over shared memory and over TCP. */
#define SHM_FDS(n) (7 + 2 * ((n) - 1))
#define TCP_FDS(n) (4 + ((n) - 1))
#define SHM_KIB(n) (320 + 58 * (n))
#define TCP_KIB(n) (8448 + 16 * (n))
#define PART_FDS   0
#define PART_KIB   64

struct figures {
    int64_t create_ns;
    long fds, kib; /* what the communicator has added to the process */
    long part_fds, part_kib;
};

struct notes {
    struct figures at[JOB_RANKS]; /* more than JOB_ROOM would be too many */
};

/* Private memory in use. The shared stage is the host's, and counted once. */
static long private_kib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static struct notes *notes_of(struct job *job)
{
    _Static_assert(sizeof(struct notes) <= JOB_ROOM, "the notes fit");
    return (struct notes *)(void *)job->shared->notes;
}

static void check_sums(ringred_comm *comm, int rank, int size)
{
    static float send[COUNT], recv[COUNT];

    for (int i = 0; i < COUNT; i++)
        send[i] = (float)((rank + i) % 128);
    for (int count = 1; count <= COUNT; count += COUNT - 1) {
        int rc = ringred_allreduce(comm, send, recv, (size_t)count, RINGRED_FLOAT32, RINGRED_SUM);
        for (int i = 0; i < count && rc == 0; i++) {
            float want = 0;
            for (int r = 0; r < size; r++)
                want += (float)((r + i) % 128);
            if (recv[i] != want)
                job_fail(rank, "element %d of %d is %g instead of %g", i, count, (double)recv[i], (double)want);
        }
        if (rc < 0)
            job_fail(rank, "allreduce: status %d", rc);
    }
}

static void live(struct job *job, int rank)
{
    struct figures *mine = &notes_of(job)->at[rank];
    ringred_comm *comm, *part;

    job_meet(job, job->size);
    long fds = job_entries("/proc/self/fd"), kib = private_kib();
    int64_t began = job_now_ns();
    comm = job_join(job, 0, rank, job->size, job->settings);
    mine->create_ns = job_now_ns() - began;
    mine->fds = job_entries("/proc/self/fd") - fds;
    mine->kib = private_kib() - kib;
    if (ringred_comm_split(comm, rank % 2, rank, &part) < 0)
        job_fail(rank, "split failed");
    mine->part_fds = job_entries("/proc/self/fd") - fds - mine->fds;
    mine->part_kib = private_kib() - kib - mine->kib;
    check_sums(comm, rank, job->size);
    if (ringred_comm_destroy(part) < 0 || ringred_comm_destroy(comm) < 0)
        job_fail(rank, "destroy failed");
}

static bool show(const char *transport, int ranks)
{
    bool is_shm = strcmp(transport, "shm") == 0, fine;
    struct figures worst = { 0 };
    struct job job;

    job_open(&job, ranks, transport);
    job_start_bare(&job, live);
    fine = job_end(&job, -1);
    for (int r = 0; r < ranks; r++) {
        const struct figures *f = &notes_of(&job)->at[r];
#define WORST(field) worst.field = f->field > worst.field ? f->field : worst.field
        WORST(create_ns);
        WORST(fds);
        WORST(kib);
        WORST(part_fds);
        WORST(part_kib);
    }
    job_done(&job);
    long fds = is_shm ? SHM_FDS(ranks) : TCP_FDS(ranks), kib = is_shm ? SHM_KIB(ranks) : TCP_KIB(ranks);
    fine = fine && worst.create_ns <= CREATE_NS && worst.fds <= fds && worst.kib <= kib && worst.part_fds <= PART_FDS &&
           worst.part_kib <= PART_KIB;
    printf("%s: create %.3f s of %.0f; a rank has at most %ld descriptors of %ld, %ld KiB of %ld; another communicator "
           "adds %ld descriptors of %d, %ld KiB of %d\n", transport, (double)worst.create_ns / 1e9,
           (double)CREATE_NS / 1e9, worst.fds, fds, worst.kib, kib, worst.part_fds, PART_FDS, worst.part_kib, PART_KIB);
    return fine;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : JOB_RANKS;

    if (ranks < 2 || ranks > JOB_RANKS) {
        fprintf(stderr, "2 to %d ranks\n", JOB_RANKS);
        return 1;
    }
    bool shm = show("shm", ranks), tcp = show("tcp", ranks);
    printf("%s: %d ranks on one machine, over shared memory and over TCP\n", shm && tcp ? "holds" : "FAILS", ranks);
    return !(shm && tcp);
}
