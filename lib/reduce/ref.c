/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a sum, in plain C: the executable reference of the canonical tree. Every other
 * kernel gives these bytes; where a machine has none of them, this one does the work.
 *
 * Rules. Each addition and the one division round to nearest even. Denormals are kept. x + y of
 * opposite infinities is a NaN; (+0) + (-0) is +0, (-0) + (-0) is -0. A NaN result is the quiet NaN
 * with sign 0 and an empty payload, whatever the payloads that went in. */
#include "reduce/kernels.h"

#include "reduce/fpmode.h"

#include <string.h>

/* How k sources become q leaves: the first rem leaves are pairs, q is a power of two. */
static int leaves(int k)
{
    int q = 1;

    while (q * 2 <= k)
        q *= 2;
    return q;
}

static float load_float32(const void *array, size_t i)
{
    float x;

    memcpy(&x, (const char *)array + i * sizeof x, sizeof x);
    return x;
}

static void store_float32(void *array, size_t i, float x)
{
    uint32_t bits = RR_NAN_FLOAT32;

    if (x == x)
        memcpy(&bits, &x, sizeof bits);
    memcpy((char *)array + i * sizeof bits, &bits, sizeof bits);
}

static float fold_float32(const void *const *source, int k, size_t i)
{
    float leaf[RR_REDUCE_SOURCES];
    int q = leaves(k), rem = k - q;

    for (int j = 0; j < rem; j++)
        leaf[j] = load_float32(source[2 * j], i) + load_float32(source[2 * j + 1], i);
    for (int j = rem; j < q; j++)
        leaf[j] = load_float32(source[rem + j], i);
    for (; q > 1; q /= 2)
        for (int j = 0; j < q / 2; j++)
            leaf[j] = leaf[2 * j] + leaf[2 * j + 1];
    return leaf[0];
}

void rr_reduce_ref_float32(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const uint64_t mode = fpmode_enter();

    for (size_t i = 0; i < r->count; i++) {
        float x = fold_float32(source, r->sources, i);

        if (r->divisor > 1)
            x /= (float)r->divisor;
        for (int d = 0; d < r->destinations; d++)
            store_float32(destination[d], i, x);
    }
    fpmode_leave(mode);
}

static double load_float64(const void *array, size_t i)
{
    double x;

    memcpy(&x, (const char *)array + i * sizeof x, sizeof x);
    return x;
}

static void store_float64(void *array, size_t i, double x)
{
    uint64_t bits = RR_NAN_FLOAT64;

    if (x == x)
        memcpy(&bits, &x, sizeof bits);
    memcpy((char *)array + i * sizeof bits, &bits, sizeof bits);
}

static double fold_float64(const void *const *source, int k, size_t i)
{
    double leaf[RR_REDUCE_SOURCES];
    int q = leaves(k), rem = k - q;

    for (int j = 0; j < rem; j++)
        leaf[j] = load_float64(source[2 * j], i) + load_float64(source[2 * j + 1], i);
    for (int j = rem; j < q; j++)
        leaf[j] = load_float64(source[rem + j], i);
    for (; q > 1; q /= 2)
        for (int j = 0; j < q / 2; j++)
            leaf[j] = leaf[2 * j] + leaf[2 * j + 1];
    return leaf[0];
}

void rr_reduce_ref_float64(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const uint64_t mode = fpmode_enter();

    for (size_t i = 0; i < r->count; i++) {
        double x = fold_float64(source, r->sources, i);

        if (r->divisor > 1)
            x /= (double)r->divisor;
        for (int d = 0; d < r->destinations; d++)
            store_float64(destination[d], i, x);
    }
    fpmode_leave(mode);
}
