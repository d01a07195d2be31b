/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: where one rank asks for another count, type, operator, root or order, every rank gets an
 * error with both sides in words within 2 s of the last arrival, in that call or the next. */
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND_NS (2 * RINGRED_SECOND)
#define MOST     ((size_t)1 << 18)

struct call {
    char kind; /* 'a' allreduce, 'b' broadcast, '|' barrier */
    size_t count;
    int32_t type, last; /* last: operator or root */
};

static const struct disagreement {
    const char *name;
    struct call common, other;
    const char *words[2];
    bool swapped; /* the next call is the other rank's, instead of one that all agree on */
} cases[] = {
    { "count",
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 101, RINGRED_FLOAT32, RINGRED_SUM },
      { "100", "101" },
      false },
    { "no elements",
      { 'a', 0, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 1, RINGRED_FLOAT32, RINGRED_SUM },
      { "0", "1" },
      false },
    { "large count",
      { 'a', MOST, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', MOST - 1, RINGRED_FLOAT32, RINGRED_SUM },
      { "262144", "262143" },
      false },
    { "large and small",
      { 'a', MOST, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 1, RINGRED_FLOAT32, RINGRED_SUM },
      { "262144", "1" },
      false },
    { "type",
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 100, RINGRED_FLOAT64, RINGRED_SUM },
      { "float32", "float64" },
      false },
    { "type, same bytes",
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 50, RINGRED_FLOAT64, RINGRED_SUM },
      { "float32", "float64" },
      false },
    { "operator",
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { 'a', 100, RINGRED_FLOAT32, RINGRED_AVG },
      { "sum", "avg" },
      false },
    { "root",
      { 'b', 100, RINGRED_FLOAT32, 0 },
      { 'b', 100, RINGRED_FLOAT32, 1 },
      { "root 0", "root 1" },
      false },
    { "order",
      { 'b', 100, RINGRED_FLOAT32, 0 },
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { "broadcast", "allreduce" },
      true },
    { "barrier",
      { '|', 0, 0, 0 },
      { 'a', 100, RINGRED_FLOAT32, RINGRED_SUM },
      { "barrier", "allreduce" },
      false },
};
#define CASES (sizeof cases / sizeof cases[0])

struct notes {
    const struct disagreement *which;
    _Atomic int64_t last_arrival_ns, told_ns[JOB_RANKS];
};

static int run(ringred_comm *comm, const struct call *c, void *data)
{
    if (c->kind == 'a')
        return ringred_allreduce(comm, data, data, c->count, c->type, c->last);
    if (c->kind == 'b')
        return ringred_broadcast(comm, data, data, c->count, c->type, c->last);
    return ringred_barrier(comm);
}

static bool mentions(const char *text, const char *word)
{
    return strstr(text, word) != NULL;
}

/* The middle rank is the odd one. */
static void disagree(struct job *job, ringred_comm *comm, int rank)
{
    struct notes *n = (struct notes *)(void *)job->shared->notes;
    const struct disagreement *d = n->which;
    bool odd = rank == job->size / 2;
    void *data = calloc(MOST, 8);
    ringred_error why;
    int rc = 0;

    if (!data)
        job_fail(rank, "no memory");
    for (int i = 0; i < 2; i++) /* what agrees works */
        if (ringred_allreduce(comm, data, data, 10, RINGRED_FLOAT32, RINGRED_SUM) < 0)
            job_fail(rank, "%s: the calls before failed", d->name);
    job_meet(job, job->size);
    n->last_arrival_ns = job_now_ns();
    rc = run(comm, odd ? &d->other : &d->common, data);
    if (rc >= 0)
        rc = d->swapped ? run(comm, odd ? &d->common : &d->other, data) : ringred_barrier(comm);
    n->told_ns[rank] = job_now_ns();
    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    if (rc != RINGRED_EMISMATCH)
        job_fail(rank, "%s: status %d: %s", d->name, rc, why.text);
    if (!mentions(why.text, d->words[0]) || !mentions(why.text, d->words[1]))
        job_fail(rank, "%s: not both sides in: %s", d->name, why.text);
    if (ringred_barrier(comm) != RINGRED_EMISMATCH)
        job_fail(rank, "%s: a later call does not tell", d->name);
    (void)ringred_comm_destroy(comm); /* tells again of the disagreement */
}

static bool once(const char *transport, int size, const struct disagreement *d, int64_t *slowest_ns)
{
    struct job job;
    struct notes *n;

    job_open(&job, size, transport);
    n = (struct notes *)(void *)job.shared->notes;
    n->which = d;
    job_start(&job, disagree);
    for (int r = 0; r < size; r++) {
        while (!atomic_load(&n->told_ns[r]) && !atomic_load(&job.shared->failed))
            job_nap_ms(1);
        if (n->told_ns[r] - n->last_arrival_ns > *slowest_ns)
            *slowest_ns = n->told_ns[r] - n->last_arrival_ns;
    }
    if (job_wait(&job, -1))
        return true;
    fprintf(stderr, "    (%s, %d ranks, %s)\n", d->name, size, transport);
    return false;
}

int main(void)
{
    static const char *const transports[] = { "shm", "tcp" };
    int64_t slowest_ns = 0;
    int held = 0, all = 0;

    for (int t = 0; t < 2; t++)
        for (int size = 2; size <= 4; size++)
            for (size_t i = 0; i < CASES; i++, all++)
                held += once(transports[t], size, &cases[i], &slowest_ns);
    printf("%s: %d of %d disagreements told to every rank with both sides, the slowest after %.3f "
           "s (at most 2 s)\n",
           held == all && slowest_ns <= BOUND_NS ? "holds" : "FAILS", held, all,
           (double)slowest_ns / 1e9);
    return held == all && slowest_ns <= BOUND_NS ? 0 : 1;
}
