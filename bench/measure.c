/* SPDX-License-Identifier: Apache-2.0 */
/* The timing loop. Calls follow each other without a barrier, on one buffer. Each rank times its
 * own calls, short ones in batches so that the clock is not the cost, and takes quantiles of them;
 * the slowest rank's quantile is reported. A checked call runs before and after the timed ones. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_LEAST 5
#define SAMPLES_MOST  200000
#define WARMUPS_MOST  65536
#define RANKS_MOST    4096
#define LATE_ROUNDS   8
#define LATE_S        1e-4

/* What is timed: the call; or, for --overlap, computing alone, and computing beside a call. */
enum timed { CALL, COMPUTE, BOTH };

struct timing {
    enum timed what;
    long work; /* what is computed */
    int samples, batch;
    double *sample; /* seconds of one call in each batch */
    double mean;
};

/* This rank on the communicator of p's k-th other. */
static struct bench_rank other(const struct bench_rank *r, int k)
{
    struct bench_rank on = *r;

    on.comm = r->others[k];
    return on;
}

/* On all communicators: odd ranks start them the other way round. */
static int start_all(const struct bench_rank *r, const struct bench_point *p,
                     ringred_request **request)
{
    int n = r->options->comms, rc = 0;

    for (int i = 0; i < n && rc >= 0; i++) {
        int k = r->rank % 2 ? n - 1 - i : i;
        struct bench_rank on = k ? other(r, k - 1) : *r;

        rc = bench_start(&on, k ? &p->others[k - 1] : p, &request[k]);
    }
    return rc;
}

static int do_both(const struct bench_rank *r, const struct bench_point *p, long work)
{
    ringred_request *request[BENCH_COMMS];
    int rc = start_all(r, p, request);

    if (rc >= 0 && work)
        bench_work(work);
    for (int k = 0; k < r->options->comms && rc >= 0; k++)
        rc = ringred_wait(request[k], RINGRED_FOREVER);
    return rc;
}

static inline int call(const struct bench_rank *r, const struct bench_point *p)
{
    return r->options->asynchronous || p->others ? do_both(r, p, 0) : bench_call(r, p);
}

static inline int do_once(const struct bench_rank *r, const struct bench_point *p,
                          const struct timing *t)
{
    if (t->what == CALL)
        return call(r, p);
    if (t->what == BOTH)
        return do_both(r, p, t->work);
    bench_work(t->work);
    return 0;
}

/* Everybody adds up one row of numbers per rank in which only its own row is not zero, and so sees
 * all of them. */
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

/* Nobody may leave a barrier before the last has come; some ranks in turn are late. Between hosts
 * there is no clock to tell by. */
static int check_barrier(const struct bench_rank *r, const struct bench_point *p, double *wrong)
{
    if (ringred_comm_local_size(r->comm) != r->size) {
        *wrong = -1;
        return 0;
    }
    for (int late = 0; late < r->size && late < LATE_ROUNDS; late++) {
        double entered = bench_now() + (late == r->rank ? LATE_S : 0), left;
        int rc;

        while (bench_now() < entered)
            continue;
        rc = call(r, p);
        left = bench_now();
        if (rc >= 0)
            rc = bench_largest(r, &entered, 1);
        if (rc < 0)
            return rc;
        *wrong += left < entered;
    }
    return bench_largest(r, wrong, 1);
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
    if (r->options->collective == BENCH_BARRIER)
        return check_barrier(r, p, wrong);
    bench_fill(r, p);
    for (int k = 0; p->others && k < r->options->comms - 1; k++)
        bench_fill(r, &p->others[k]);
    rc = call(r, p);
    if (rc < 0)
        return rc;
    mine = (double)bench_count_wrong(r, p);
    for (int k = 0; p->others && k < r->options->comms - 1; k++)
        mine += (double)bench_count_wrong(r, &p->others[k]);
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
        double start = bench_now(), spent;
        int rc = 0;

        for (int i = 0; i < n && rc >= 0; i++)
            rc = call(r, p);
        spent = bench_now() - start;
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

/* Times batches and sorts what they took. */
static int run(const struct bench_rank *r, const struct bench_point *p, struct timing *t)
{
    double start = bench_now(), last = start;

    for (int i = 0; i < t->samples; i++) {
        double at;

        for (int j = 0; j < t->batch; j++) {
            int rc = do_once(r, p, t);

            if (rc < 0)
                return rc;
        }
        at = bench_now();
        t->sample[i] = (at - last) / t->batch;
        last = at;
    }
    t->mean = (last - start) / t->samples / t->batch;
    qsort(t->sample, (size_t)t->samples, sizeof *t->sample, compare);
    return 0;
}

static int quantiles(const struct bench_rank *r, const struct timing *t,
                     struct bench_result *result)
{
    double q[6];
    int rc;

    q[0] = t->sample[t->samples / 2];
    q[1] = t->sample[t->samples / 10];
    q[2] = t->sample[(long)t->samples * 9 / 10];
    q[3] = t->sample[(long)t->samples * 99 / 100];
    q[4] = t->mean;
    q[5] = t->sample[t->samples - 1];
    rc = bench_largest(r, q, 6);
    if (rc < 0)
        return rc;
    result->median = q[0] * 1e6;
    result->p10 = q[1] * 1e6;
    result->p90 = q[2] * 1e6;
    result->p99 = q[3] * 1e6;
    result->mean = q[4] * 1e6;
    result->worst = q[5] * 1e6;
    result->calls = (long)t->samples * t->batch;
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

static int median_of(const struct bench_rank *r, const struct bench_point *p, struct timing *t,
                     double *us)
{
    double median;
    int rc = run(r, p, t);

    median = t->sample[t->samples / 2];
    if (rc >= 0)
        rc = bench_largest(r, &median, 1);
    *us = median * 1e6;
    return rc;
}

/* The computation alone, then between start and wait. What the two together take less than one
 * after the other was hidden. */
static int measure_overlap(const struct bench_rank *r, const struct bench_point *p,
                           struct timing *t, struct bench_result *result)
{
    double one = result->median * 1e-6, saved;
    double length = r->options->compute_s > 0 ? r->options->compute_s : one;
    int fit = samples_for(r->options, length > one ? length : one, 1), rc;

    t->batch = 1;
    t->samples = fit < t->samples ? fit : t->samples;
    t->work = bench_work_for(length);
    t->what = COMPUTE;
    rc = median_of(r, p, t, &result->compute);
    if (rc < 0)
        return rc;
    t->what = BOTH;
    rc = median_of(r, p, t, &result->both);
    saved = result->median + result->compute - result->both;
    if (result->median > 0)
        result->hidden = saved > result->median ? 1 : saved < 0 ? 0 : saved / result->median;
    return rc;
}

static int time_point(const struct bench_rank *r, const struct bench_point *p,
                      struct bench_result *result)
{
    const struct bench_options *o = r->options;
    struct timing t = { .what = CALL };
    double one = 0;
    int rc = estimate(r, p, &one);

    if (rc < 0)
        return rc;
    t.batch = o->together ? o->together : one < 5e-6 ? 16 : one < 50e-6 ? 4 : 1;
    t.samples = samples_for(o, one, t.batch);
    t.sample = malloc(sizeof *t.sample * (size_t)t.samples);
    if (!t.sample)
        return RINGRED_ENOMEM;
    rc = run(r, p, &t);
    if (rc >= 0)
        rc = quantiles(r, &t, result);
    if (rc >= 0 && o->overlap)
        rc = measure_overlap(r, p, &t, result);
    free(t.sample);
    return rc;
}

static void clear(const struct bench_point *p)
{
    memset(p->send, 0, p->sends * p->width); /* nothing + nothing: no overflow, no denormals */
    memset(p->recv, 0, p->recvs * p->width);
}

int bench_measure(const struct bench_rank *r, const struct bench_point *p,
                  struct bench_result *result)
{
    int rc;

    *result = (struct bench_result){ 0 };
    rc = check(r, p, &result->wrong);
    if (rc < 0)
        return rc;
    clear(p);
    for (int k = 0; p->others && k < r->options->comms - 1; k++)
        clear(&p->others[k]);
    rc = time_point(r, p, result);
    return rc < 0 ? rc : check(r, p, &result->wrong);
}
