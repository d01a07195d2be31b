/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: once warm, at most 8 minor faults and no allocation or new descriptor over 10,000
 * allreduces of 1 KiB, 1,000 of 1 MiB, and a million of random sizes up to 64 KiB. steady_state
 * [--quick]     a tenth of them over tcp */
#include "job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FAULTS_MOST 8

/* Every allocation of the process comes by here, the library's included. */
static atomic_long allocations;

#define VISIBLE __attribute__((visibility("default")))
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

VISIBLE void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

VISIBLE void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, bytes);
}

VISIBLE void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}

VISIBLE void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, bytes);
}

VISIBLE int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    void *got = aligned_alloc(alignment, bytes);

    if (got)
        *memory = got;
    return got ? 0 : ENOMEM;
}

struct state {
    long faults, allocations, descriptors;
};

static struct state look(void)
{
    struct state s;
    struct rusage u;

    s.descriptors = job_entries("/proc/self/fd");
    s.allocations = atomic_load(&allocations);
    getrusage(RUSAGE_SELF, &u);
    s.faults = u.ru_minflt;
    return s;
}

/* What came between two looks; the second one's own cost is taken off by looking twice. */
static struct state since(struct state before)
{
    struct rusage u;
    struct state s;

    getrusage(RUSAGE_SELF, &u);
    s.faults = u.ru_minflt - before.faults;
    s.allocations = atomic_load(&allocations) - before.allocations;
    s.descriptors = job_entries("/proc/self/fd") - before.descriptors;
    return s;
}

struct phase {
    const char *name;
    long calls;
    size_t most; /* elements; calls of random counts up to it where `varied` */
    bool varied;
};

struct notes {
    struct phase phase;
    struct state cost[JOB_RANKS];
};

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

static void calls(const struct phase *p, ringred_comm *comm, int rank, float *data, long n)
{
    uint32_t random = 2463534242u; /* the same sizes on every rank */

    for (long i = 0; i < n; i++) {
        size_t count = p->varied ? next_random(&random) % (p->most + 1) : p->most;
        int rc = ringred_allreduce(comm, data, data, count, RINGRED_FLOAT32, RINGRED_AVG);

        if (rc < 0)
            job_fail(rank, "call %ld: status %d", i, rc);
    }
}

static void measure(struct job *job, ringred_comm *comm, int rank)
{
    struct notes *n = (struct notes *)(void *)job->shared->notes;
    float *data = calloc(n->phase.most, sizeof *data);
    struct state before;

    if (!data)
        job_fail(rank, "no memory");
    memset(data, 0, n->phase.most * sizeof *data);
    calls(&n->phase, comm, rank, data, n->phase.calls < 2000 ? 100 : 1000);
    before = look();
    before = look();
    calls(&n->phase, comm, rank, data, n->phase.calls);
    n->cost[rank] = since(before);
    if (ringred_comm_destroy(comm) < 0)
        job_fail(rank, "destroy failed");
    job_meet(job, job->size + 1); /* the parent reads the notes */
}

/* The most that any rank spent. */
static bool once(const char *transport, const struct phase *p, struct state *worst)
{
    struct job job;
    struct notes *n;

    job_open(&job, 2, transport);
    n = (struct notes *)(void *)job.shared->notes;
    n->phase = *p;
    job_start(&job, measure);
    while (atomic_load(&job.shared->meetings) < job.size && !atomic_load(&job.shared->failed))
        job_nap_ms(1);
    for (int r = 0; r < job.size; r++) {
        const struct state *s = &n->cost[r];

        printf("  %s, %ld of %s: %ld faults, %ld allocations, %ld descriptors (rank %d)\n",
               transport, p->calls, p->name, s->faults, s->allocations, s->descriptors, r);
        worst->faults = s->faults > worst->faults ? s->faults : worst->faults;
        worst->allocations += s->allocations;
        worst->descriptors += s->descriptors > 0 ? s->descriptors : 0;
    }
    fflush(stdout);
    atomic_fetch_add(&job.shared->meetings, 1);
    return job_wait(&job, -1);
}

int main(int argc, char **argv)
{
    static const char *const transports[] = { "shm", "tcp" };
    bool quick = argc > 1 && !strcmp(argv[1], "--quick"), fine = true;
    struct state worst = { 0 };

    for (int t = 0; t < 2; t++) {
        const struct phase phases[] = {
            { "1 KiB", 10000, 256, false },
            { "1 MiB", 1000, 262144, false },
            { "random sizes up to 64 KiB", quick && t ? 100000 : 1000000, 16384, true },
        };

        for (int i = 0; i < 3; i++)
            fine = once(transports[t], &phases[i], &worst) && fine;
    }
    fine = fine && worst.faults <= FAULTS_MOST && worst.allocations == 0 && worst.descriptors == 0;
    printf("%s: at most %ld minor faults (8 allowed), %ld allocations, %ld new descriptors\n",
           fine ? "holds" : "FAILS", worst.faults, worst.allocations, worst.descriptors);
    return fine ? 0 : 1;
}
