/* SPDX-License-Identifier: Apache-2.0 */
/* The loop that anybody would write, compiled for this very machine: the mark for bench_reduce. */
#include "plain_loop.h"

void plain_add_float32(float *d, const float *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] += s[i];
}

void plain_add_float64(double *d, const double *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] += s[i];
}

void plain_sum2_float32(float *restrict d, const float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = a[i] + b[i];
}

void plain_sum4_float32(float *restrict d, const float *restrict a, const float *restrict b,
                        const float *restrict c, const float *restrict e, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = (a[i] + b[i]) + (c[i] + e[i]);
}
