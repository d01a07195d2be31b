/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: counts beyond 2^31 elements, vectors beyond 2 GiB, and parts of no length at all, over both
 * transports.   huge [--quick]     Needs about 12 GiB of memory; says SKIP where there is less. */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MANY  ((size_t)1 << 31) /* and a few more */
#define EXTRA ((size_t)17)
#define NEED  ((size_t)12 << 30)

static int8_t value(size_t i, int rank)
{
    return (int8_t)((i * 7 + (i >> 20)) % 23 + (size_t)rank);
}

static void *room(int rank, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        job_fail(rank, "no memory for %zu bytes", bytes);
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void must(ringred_comm *comm, int rank, int32_t rc, const char *what)
{
    ringred_error why;

    ringred_error_init(&why);
    if (rc < 0 && ringred_comm_error(comm, &why) == 0)
        job_fail(rank, "%s: %s", what, why.text);
}

static void sums(ringred_comm *comm, int rank, int8_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value(i, rank);
    must(comm, rank, ringred_allreduce(comm, x, x, n, RINGRED_INT8, RINGRED_SUM), "allreduce");
    for (size_t i = 0; i < n; i++)
        if (x[i] != (int8_t)(value(i, 0) + value(i, 1)))
            job_fail(rank, "allreduce: element %zu is %d", i, x[i]);
}

static void broadcasts(ringred_comm *comm, int rank, int8_t *x, size_t n)
{
    for (size_t i = 0; i < n && rank == 1; i++)
        x[i] = value(i, 5);
    must(comm, rank, ringred_broadcast(comm, x, x, n, RINGRED_BYTES, 1), "broadcast");
    for (size_t i = 0; i < n; i++)
        if (x[i] != value(i, 5))
            job_fail(rank, "broadcast: byte %zu is %d", i, x[i]);
}

/* One part beyond 2 GiB, one empty. */
static void uneven(ringred_comm *comm, int rank, int8_t *x, size_t n)
{
    size_t counts[2] = { n, 0 };

    for (size_t i = 0; i < n && rank == 0; i++)
        x[i] = value(i, 9);
    must(comm, rank, ringred_allgatherv(comm, rank ? NULL : x, rank ? 0 : n, x, counts, NULL, RINGRED_INT8),
         "allgatherv");
    for (size_t i = 0; i < n; i++)
        if (x[i] != value(i, 9))
            job_fail(rank, "allgatherv: element %zu is %d", i, x[i]);
    counts[0] = 0;
    must(comm, rank, ringred_allgatherv(comm, NULL, 0, NULL, counts, NULL, RINGRED_INT8), "nothing at all");
}

static void check(int rank, const char *what, const int8_t *x, size_t n, int of)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != value(i, of))
            job_fail(rank, "%s: element %zu is %d", what, i, x[i]);
}

/* The other calls with parts: all that is large belongs to rank 0, rank 1 has nothing. */
static void members_without_elements(ringred_comm *comm, int rank, int8_t *x, size_t n)
{
    const size_t counts[2] = { n, 0 }, none[2] = { 0, 0 }, own = rank ? 0 : n;
    int8_t *mine = rank ? NULL : x;

    for (size_t i = 0; i < own; i++)
        x[i] = value(i, 3);
    must(comm, rank, ringred_gatherv(comm, mine, own, mine, rank ? NULL : counts, NULL, RINGRED_INT8, 0), "gatherv");
    must(comm, rank, ringred_scatterv(comm, mine, rank ? NULL : counts, NULL, mine, own, RINGRED_INT8, 0), "scatterv");
    check(rank, "gatherv and scatterv in place", x, own, 3);
    for (size_t i = 0; i < n; i++)
        x[i] = value(i, rank);
    must(comm, rank, ringred_reduce_scatterv(comm, x, mine, counts, RINGRED_INT8, RINGRED_MAX), "reduce_scatterv");
    check(rank, "reduce_scatterv", x, own, 1);
    must(comm, rank, ringred_alltoallv(comm, NULL, none, NULL, NULL, none, NULL, RINGRED_INT8), "alltoallv");
    must(comm, rank, ringred_reduce_scatterv(comm, NULL, NULL, none, RINGRED_INT8, RINGRED_SUM), "of nothing");
}

/* Rank 1 sends rank 0 one message beyond 2 GiB and gets none. */
static void one_way(ringred_comm *comm, int rank, int8_t *x, size_t n)
{
    const size_t send[2] = { rank ? n : 0, 0 }, recv[2] = { 0, rank ? 0 : n };

    for (size_t i = 0; i < n; i++)
        x[i] = value(i, rank ? 7 : 0);
    must(comm, rank, ringred_alltoallv(comm, rank ? x : NULL, send, NULL, rank ? NULL : x, recv, NULL, RINGRED_INT8), "alltoallv");
    check(rank, "alltoallv", x, n, 7);
}

static size_t many = MANY + EXTRA;

static void body(struct job *job, ringred_comm *comm, int rank)
{
    int8_t *x = room(rank, many);

    (void)job;
    sums(comm, rank, x, many);
    broadcasts(comm, rank, x, many);
    uneven(comm, rank, x, many);
    members_without_elements(comm, rank, x, many);
    one_way(comm, rank, x, many);
}

int main(int argc, char **argv)
{
    long pages = sysconf(_SC_AVPHYS_PAGES);
    bool quick = argc > 1 && !strcmp(argv[1], "--quick");

    if (!quick && (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) < NEED) {
        printf("SKIP: %zu GiB of free memory are needed\n", NEED >> 30);
        return 77;
    }
    if (quick)
        many = ((size_t)1 << 24) + EXTRA;
    for (int i = 0; i < 2; i++) {
        struct job job;
        job_open(&job, 2, i ? "tcp" : "shm");
        job.patience_ns = 1800 * RINGRED_SECOND;
        job_start(&job, body);
        if (!job_wait(&job, -1)) {
            printf("FAILS over %s\n", i ? "tcp" : "shm");
            return 1;
        }
    }
    printf("holds: %zu elements in one call over shm and tcp, and none\n", many);
    return 0;
}
