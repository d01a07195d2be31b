/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the collectives with equal parts share: one call of any of them, also in its v form,
 * with buffers of every kind, and what each rank must have afterwards. */
#ifndef CALLS_H
#define CALLS_H

#include "coll.h"

enum calls_kind {
    CALLS_REDUCE,
    CALLS_REDUCE_SCATTER,
    CALLS_ALLGATHER,
    CALLS_GATHER,
    CALLS_SCATTER,
    CALLS_ALLTOALL,
    CALLS_ALLREDUCE,
    CALLS_BROADCAST,
    CALLS_BARRIER,
    CALLS_KINDS
};

struct calls_collective {
    const char *name;
    char in, out; /* parts: '1', 'n', or on the root only: 'r' one, 'R' n */
    bool reduces, has_v;
};
extern const struct calls_collective calls_collectives[CALLS_KINDS];

struct call {
    enum calls_kind kind;
    bool v;               /* the form that takes lengths, which are all the same here */
    int root;
    size_t count;         /* of one part */
    size_t period;        /* inputs repeat after so many elements; 0: they do not */
    struct numbers_job job;
    bool exact;           /* bits of the tree; else only near them */
    bool in_place;        /* wanted, where there are both an input and an output */
    /* by calls_prepare: */
    int in_parts, out_parts;
    size_t bytes;         /* of one part */
    unsigned char *send, *recv;
    char text[200];
};

/* Buffers of `bytes`, which have to include CALLS_MARGIN; those of the library, at most CALLS_WINDOW. */
#define CALLS_MARGIN ((size_t)256)
#define CALLS_WINDOW ((size_t)20 << 20)
struct calls_memory {
    size_t bytes, window_bytes;
    unsigned char *plain[2], *window[2], *want;
};
void calls_memory_open(struct calls_memory *m, ringred_comm *comm, size_t bytes);
void calls_memory_close(struct calls_memory *m);

/* What is drawn from `mine` is known to this rank alone: memory, and where in it. */
void calls_prepare(struct call *c, const struct calls_memory *m, const struct rank *me,
                   struct numbers_random *mine);
int32_t calls_run(ringred_comm *comm, const struct call *c);
void calls_check(const struct call *c, const struct calls_memory *m, const struct rank *me);

#endif
