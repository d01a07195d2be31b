/* SPDX-License-Identifier: Apache-2.0 */
/* See plain_loop.c. */
#ifndef PLAIN_LOOP_H
#define PLAIN_LOOP_H

#include <stddef.h>

void plain_add_float32(float *d, const float *s, size_t n);
void plain_add_float64(double *d, const double *s, size_t n);
void plain_sum2_float32(float *restrict d, const float *restrict a, const float *restrict b, size_t n);
void plain_sum4_float32(float *restrict d, const float *restrict a, const float *restrict b,
                        const float *restrict c, const float *restrict e, size_t n);

#endif
