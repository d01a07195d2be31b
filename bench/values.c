/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that results are checked with. Element i of rank r is
 *     noise(i) + (r + 1) * (1 + i % 8),   noise(i) in 0..1023
 * so that a block in the wrong place, a rank left out or a rank counted twice all show, while the
 * sum over the ranks is known without adding and is a whole number that float32 holds exactly for
 * up to a thousand ranks. */
#include "bench.h"

static double noise(size_t i)
{
    return (double)((uint32_t)i * 2654435761u >> 22);
}

static double value(size_t i, int rank)
{
    return noise(i) + (rank + 1.0) * (1.0 + (double)(i % 8));
}

/* The right element i. An average is the exact sum, divided once. */
static double right(const struct bench_rank *r, const struct bench_point *p, size_t i)
{
    double n = r->size, sum = n * noise(i) + n * (n + 1) / 2 * (1.0 + (double)(i % 8));

    if (r->options->collective == BENCH_BROADCAST)
        return value(i, r->options->root);
    if (p->op == RINGRED_SUM)
        return sum;
    return p->type == RINGRED_FLOAT32 ? (double)((float)sum / (float)n) : sum / n;
}

static double element(const void *buffer, int32_t type, size_t i)
{
    return type == RINGRED_FLOAT32 ? (double)((const float *)buffer)[i]
                                   : ((const double *)buffer)[i];
}

static void set_element(void *buffer, int32_t type, size_t i, double to)
{
    if (type == RINGRED_FLOAT32)
        ((float *)buffer)[i] = (float)to;
    else
        ((double *)buffer)[i] = to;
}

void bench_fill(const struct bench_rank *r, const struct bench_point *p)
{
    for (size_t i = 0; i < p->count; i++)
        set_element(p->send, p->type, i, value(i, r->rank));
    for (size_t i = 0; !p->in_place && i < p->count; i++)
        set_element(p->recv, p->type, i, -1.0); /* a result that nobody wrote must show */
}

size_t bench_count_wrong(const struct bench_rank *r, const struct bench_point *p)
{
    size_t wrong = 0;

    for (size_t i = 0; i < p->count; i++) {
        wrong += element(p->recv, p->type, i) != right(r, p, i);
        wrong += !p->in_place && element(p->send, p->type, i) != value(i, r->rank);
    }
    return wrong;
}
