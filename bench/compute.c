/* SPDX-License-Identifier: Apache-2.0 */
/* The computation that runs beside a collective. It is an amount of work, not a time: where the
 * library takes the CPU away it takes longer. */
#include "bench.h"

#include <time.h>

#define TRIES         5
#define LONG_ENOUGH_S 1e-4

double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_work(long amount)
{
    static volatile double number; /* so that nobody knows what comes out, and somebody wants it */
    double x = number;

    for (long i = 0; i < amount; i++)
        x = x * 0.999 + 0.001; /* each waits for the one before */
    number = x;
}

/* The least of a few tries: somebody else may have had the CPU in the others. */
static double time_of(long amount)
{
    double least = 1e9;

    for (int i = 0; i < TRIES; i++) {
        double start = bench_now(), spent;

        bench_work(amount);
        spent = bench_now() - start;
        least = spent < least ? spent : least;
    }
    return least;
}

long bench_work_for(double seconds)
{
    long amount = 1000;
    double spent = time_of(amount);

    for (; spent < LONG_ENOUGH_S; amount *= 2)
        spent = time_of(2 * amount);
    return (long)((double)amount * seconds / spent) + 1;
}
