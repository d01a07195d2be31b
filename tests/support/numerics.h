/* SPDX-License-Identifier: Apache-2.0 */
/* What the numbers of a collective must be, written a second time and plainly, without a line of lib/:
 * one element after another, recursion over the tree, every operation forced to memory. Used by all
 * tests that compare bits. Inputs are a function of seed, rank and position, so that each rank can
 * work out what every other rank has put in. */
#ifndef NUMERICS_H
#define NUMERICS_H

#include <ringred/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NUMBERS_RANKS 256

/* A small random number generator: equal seeds, equal numbers. */
struct numbers_random {
    uint64_t state;
};
uint64_t numbers_next(struct numbers_random *r);
uint64_t numbers_below(struct numbers_random *r, uint64_t limit); /* 0 .. limit - 1 */
/* From the environment variable TEST_SEED, else from the clock; prints it. */
uint64_t numbers_seed(const char *test);

/* Kinds of input. */
enum numbers_kind {
    NUMBERS_COUNTING, /* small whole numbers: every order gives the same sum */
    NUMBERS_ROUNDING, /* finite, of mixed sign and size: another order gives other bits */
    NUMBERS_WILD      /* those, and NaNs with payloads, infinities, denormals, zeros, huge numbers,
                       * least and greatest integers, bools of any byte */
};

size_t numbers_bytes(int type); /* of an element */
bool numbers_legal(int type, int op);
/* Elements first .. first + count - 1 of a rank's input, into any address. */
void numbers_fill(void *to, int type, enum numbers_kind kind, uint64_t seed, int rank, size_t first,
                  size_t count);

/* What a kernel is asked for (lib/reduce/reduce.h). In zeros, nothing but the fold. */
struct numbers_call {
    int type, op, sources;
    uint32_t divisor;
    bool wide_sources, wide_destinations; /* floats of 8 and 16 bits: the arrays hold float32 */
    const float *weight;                  /* of each source, or NULL */
    double scale;
};
/* The fold of the arrays in order, into one array, which overlaps none of them. */
void numbers_reduce(void *to, const struct numbers_call *c, const void *const *source, size_t count);

/* An allreduce. Neither hosts: the canonical tree, the fold over the ranks. With hosts the layout tree: the
 * fold over each host's ranks, then over hosts, in the order of their lowest ranks. Where hosts hold equal
 * blocks of 2^k ranks in turn the two are one tree. Sums and averages of float16 and bfloat16 are narrowed
 * once more where a host's part goes to other hosts. What does not bear that (sums of 8 bits, products of
 * narrow floats, their averages over unequal hosts) has the canonical tree. */
struct numbers_job {
    int type, op, ranks;
    enum numbers_kind kind;
    uint64_t seed;
    int per_host;        /* so many ranks in turn share a host, or ... */
    const uint8_t *host; /* [ranks] number of each rank's host, in order of lowest rank; NULL: see per_host */
};
/* Elements first .. first + count - 1 of what every rank must receive from an allreduce. */
void numbers_expect(void *to, const struct numbers_job *job, size_t first, size_t count);

/* Compares bits; -1: equal, else the index of the first element that differs, with both in text. */
long numbers_differ(const void *got, const void *want, int type, size_t count, char *text, size_t room);
/* The same within an absolute error, where the order is free; NaN equals NaN. */
long numbers_stray(const void *got, const void *want, int type, size_t count, double tolerance, char *text,
                   size_t room);

#endif
