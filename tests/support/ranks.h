/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one function as n ranks, each a forked process or a thread, inside a cmocka test. A check that
 * fails in a rank, a crash or a rank that does not end in time fails the test, with the rank's number
 * and what it wrote to stderr. cmocka's own assertions must not be used inside ranks: they would jump
 * into the copy of the test runner that each process has. */
#ifndef RANKS_H
#define RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MOST 64
#define RANKS_SHARED 4096

struct ranks_hall; /* what the ranks of one run share */

struct rank {
    int rank, size;
    void *argument;
    void *shared;               /* RANKS_SHARED zeroed bytes that all ranks see */
    struct ranks_hall *hall;
};

struct ranks_plan {
    int size;
    void (*run)(struct rank *me);
    void *argument;
    int deadline_s;             /* 0: 120, patience for a busy machine: bounds are measured, not waited for */
    bool threads;               /* ranks are threads of this process */
    uint64_t may_die;           /* bit r: rank r may end by a signal */
};

void ranks_run(const struct ranks_plan *plan);
/* The usual case: n processes. */
void ranks_fork(int size, void (*run)(struct rank *me), void *argument);
void ranks_threads(int size, void (*run)(struct rank *me), void *argument);

/* Rank 0's bytes (at most 4096) to all. All ranks call it, in the same order. */
void ranks_pass(struct rank *me, void *bytes, size_t count);
/* Returns when all ranks have come here; knows nothing of the library. */
void ranks_meet(struct rank *me);

/* Ends this rank, and so fails the test. */
_Noreturn void ranks_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define rank_check(claim)                                         \
    do {                                                          \
        if (!(claim))                                             \
            ranks_fail(__FILE__, __LINE__, "not so: %s", #claim); \
    } while (0)
#define rank_check_msg(claim, ...)                       \
    do {                                                 \
        if (!(claim))                                    \
            ranks_fail(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
#define rank_check_int(got, want) ranks_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
void ranks_check_int(const char *file, int line, const char *what, long long got, long long want);

#endif
