/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has and has used, as its kernel counts it; and running tools. */
#ifndef SELF_H
#define SELF_H

#include <stdbool.h>
#include <stdint.h>

struct self {
    int descriptors, threads, mappings;
    long kib; /* private memory in use */
};
struct self self_look(void);
int64_t self_cpu_ns(void); /* of all threads */
int64_t self_now_ns(void);

/* Runs a program of the system, found by PATH, with words up to a NULL; true: it ended with 0. */
bool self_run(const char *const *words);
#define SELF_RUN(...) self_run((const char *const[]){ __VA_ARGS__, NULL })
/* How often to try what a few times show: all of those a report asks for where TEST_WHOLE is in the environment. */
int self_times(int few, int whole);
/* A file in /proc or /sys: writes a text to it. */
bool self_write(const char *path, const char *text);

#endif
