/* SPDX-License-Identifier: Apache-2.0 */
/* The timing loop. Calls follow each other without a barrier, on one buffer. Each rank times its
 * own calls, short ones in batches so that the clock is not the cost, and takes quantiles of them;
 * the slowest rank's quantile is reported. A checked call runs before and after the timed ones. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLES_LEAST 5
#define SAMPLES_MOST  200000
#define WARMUPS_MOST  65536
#define RANKS_MOST    4096

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int call_waited(const struct bench_rank *r, const struct bench_point *p)
{
    ringred_request *request;
    int rc;

    if (r->options->collective == BENCH_ALLREDUCE)
        rc = ringred_allreduce_start(r->comm, p->send, p->recv, p->count, p->type, p->op, &request);
    else
        rc = ringred_broadcast_start(r->comm, p->send, p->recv, p->count, p->type, r->options->root,
                                     &request);
    return rc < 0 ? rc : ringred_wait(request, RINGRED_FOREVER);
}

static inline int call(const struct bench_rank *r, const struct bench_point *p)
{
    if (r->options->asynchronous)
        return call_waited(r, p);
    if (r->options->collective == BENCH_ALLREDUCE)
        return ringred_allreduce(r->comm, p->send, p->recv, p->count, p->type, p->op);
    return ringred_broadcast(r->comm, p->send, p->recv, p->count, p->type, r->options->root);
}

/* There is no operator max to rely on: everybody adds up one row of numbers per rank in which only
 * its own row is not zero, and so sees all of them. */
int bench_largest(const struct bench_rank *r, double *numbers, int count)
{
    static double rows[8 * RANKS_MOST]; /* no allocation between timed calls */
    int rc;

    if (count > 8 || r->size > RANKS_MOST)
        return RINGRED_EINVAL;
    memset(rows, 0, sizeof *rows * (size_t)(count * r->size));
    memcpy(rows + count * r->rank, numbers, sizeof *rows * (size_t)count);
    rc = ringred_allreduce(r->comm, rows, rows, (size_t)(count * r->size), RINGRED_FLOAT64,
                           RINGRED_SUM);
    if (rc < 0)
        return rc;
    for (int k = 0; k < r->size; k++)
        for (int i = 0; i < count; i++)
            numbers[i] = rows[k * count + i] > numbers[i] ? rows[k * count + i] : numbers[i];
    return 0;
}

/* One checked call: adds the most elements that any rank found wrong. */
static int check(const struct bench_rank *r, const struct bench_point *p, double *wrong)
{
    double mine;
    int rc;

    if (!r->options->check) {
        *wrong = -1;
        return 0;
    }
    bench_fill(r, p);
    rc = call(r, p);
    if (rc < 0)
        return rc;
    mine = (double)bench_count_wrong(r, p);
    rc = bench_largest(r, &mine, 1);
    if (rc >= 0)
        *wrong += mine;
    return rc;
}

/* Runs calls in doubling numbers until a tenth of the time is spent: warms up, and tells how long
 * one call takes, the same on every rank. */
static int estimate(const struct bench_rank *r, const struct bench_point *p, double *one)
{
    const struct bench_options *o = r->options;

    for (int n = o->seconds > 0 || o->warmups < 1 ? 1 : o->warmups;; n *= 2) {
        double start = now(), spent;
        int rc = 0;

        for (int i = 0; i < n && rc >= 0; i++)
            rc = call(r, p);
        spent = now() - start;
        if (rc >= 0)
            rc = bench_largest(r, &spent, 1);
        if (rc < 0)
            return rc;
        *one = spent / n;
        if (!(o->seconds > 0) || spent > 0.1 * o->seconds || n >= WARMUPS_MOST)
            return 0;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Times `samples` batches; samples[i] is the seconds of one call in batch i. */
static int time_calls(const struct bench_rank *r, const struct bench_point *p, double *sample,
                      int samples, int batch, double *mean)
{
    double start = now(), last = start;

    for (int i = 0; i < samples; i++) {
        double at;

        for (int j = 0; j < batch; j++) {
            int rc = call(r, p);

            if (rc < 0)
                return rc;
        }
        at = now();
        sample[i] = (at - last) / batch;
        last = at;
    }
    *mean = (last - start) / samples / batch;
    return 0;
}

static int quantiles(const struct bench_rank *r, double *sample, int samples, double mean,
                     struct bench_result *result)
{
    double q[6];
    int rc;

    qsort(sample, (size_t)samples, sizeof *sample, compare);
    q[0] = sample[samples / 2];
    q[1] = sample[samples / 10];
    q[2] = sample[(long)samples * 9 / 10];
    q[3] = sample[(long)samples * 99 / 100];
    q[4] = mean;
    q[5] = sample[samples - 1];
    rc = bench_largest(r, q, 6);
    if (rc < 0)
        return rc;
    result->median = q[0] * 1e6;
    result->p10 = q[1] * 1e6;
    result->p90 = q[2] * 1e6;
    result->p99 = q[3] * 1e6;
    result->mean = q[4] * 1e6;
    result->worst = q[5] * 1e6;
    return 0;
}

static int samples_for(const struct bench_options *o, double one, int batch)
{
    double fit;

    if (!(o->seconds > 0))
        return (o->iterations + batch - 1) / batch;
    fit = o->seconds / (one * batch);
    if (fit < SAMPLES_LEAST)
        return SAMPLES_LEAST;
    return fit > SAMPLES_MOST ? SAMPLES_MOST : (int)fit;
}

int bench_measure(const struct bench_rank *r, const struct bench_point *p,
                  struct bench_result *result)
{
    const struct bench_options *o = r->options;
    double one = 0, mean = 0, *sample;
    int batch, samples, rc;

    *result = (struct bench_result){ 0 };
    rc = check(r, p, &result->wrong);
    if (rc < 0)
        return rc;
    memset(p->send, 0, p->bytes); /* nothing + nothing stays nothing: no overflow, no denormals */
    memset(p->recv, 0, p->bytes);
    rc = estimate(r, p, &one);
    if (rc < 0)
        return rc;

    batch = o->together ? o->together : one < 5e-6 ? 16 : one < 50e-6 ? 4 : 1;
    samples = samples_for(o, one, batch);
    sample = malloc(sizeof *sample * (size_t)samples);
    if (!sample)
        return RINGRED_ENOMEM;
    rc = time_calls(r, p, sample, samples, batch, &mean);
    if (rc >= 0)
        rc = quantiles(r, sample, samples, mean, result);
    free(sample);
    result->calls = (long)samples * batch;
    return rc < 0 ? rc : check(r, p, &result->wrong);
}
