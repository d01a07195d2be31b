/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a kernel, drawn at random or set by a test, and whether what it does is right: the bytes
 * of the reference in every destination, and no other byte changed. */
#ifndef COMPARE_H
#define COMPARE_H

#include "numerics.h"
#include "reduce/reduce.h"

#define COMPARE_BYTES 40000 /* of one array, at most */
#define COMPARE_DESTINATIONS 9

struct compare_call {
    struct rr_reduce reduce;
    enum numbers_kind kind;
    /* Where each array begins in its own room, with guard bytes around. */
    size_t source_offset[RR_REDUCE_SOURCES], destination_offset[COMPARE_DESTINATIONS];
    int in_place; /* this source is destination 0; -1: none is */
    uint64_t seed;
};

/* All pairs of a type and an operator. */
struct compare_pair {
    int type, op;
};
int compare_pairs(struct compare_pair *pair); /* as many as are legal; room for RR_TYPES * RR_OPS */

int compare_set_up(void **state); /* cmocka's */
int compare_tear_down(void **state);

/* A call with divisors, weights, scale, wide arrays, offsets and a source in place drawn as legal. */
struct compare_call compare_draw(struct compare_pair pair, int k, int d, size_t count,
                                 struct numbers_random *random);
/* The reference's result, and whether the tests' own reference agrees. */
bool compare_reference(const struct compare_call *c, char *text, size_t room);
/* After that: whether the kernel does the same. */
bool compare_kernel(const char *name, rr_reduce_fn kernel, const struct compare_call *c, char *text,
                    size_t room);

#endif
