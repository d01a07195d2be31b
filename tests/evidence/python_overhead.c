/* SPDX-License-Identifier: Apache-2.0 */
/* For python_overhead.py: a C program's loop of 4-byte allreduces, on the communicator that Python made. */
#include <ringred/ringred.h>

#include <time.h>

RINGRED_API int64_t rounds_ns(ringred_comm *comm, float *x, int32_t rounds);

int64_t rounds_ns(ringred_comm *comm, float *x, int32_t rounds)
{
    struct timespec a, b;

    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int32_t i = 0; i < rounds; i++) {
        int32_t rc = ringred_allreduce(comm, x, x, 1, RINGRED_FLOAT32, RINGRED_MAX);
        if (rc < 0)
            return rc;
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (b.tv_sec - a.tv_sec) * RINGRED_SECOND + b.tv_nsec - a.tv_nsec;
}
