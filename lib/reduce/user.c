/* SPDX-License-Identifier: Apache-2.0 */
/* The fold with an operator of the caller's: the tree of reduce.h, in the order of the sources, whole elements only. A
 * piece of each source at a time, so that partial results stay in a room that was made with the operator. */
#include "reduce/reduce.h"

#include <string.h>

/* A partial result: over 2^level values of the tree, where it lies. */
struct partial {
    int level;
    const char *at;
};

static void join(const struct rr_user_op *u, struct partial *left, const struct partial *right, char *to, size_t n)
{
    u->fn(u->context, left->at, right->at, to, n);
    left->at = to;
    left->level++;
}

/* The fold of elements [from, from + n) into `to`, which may be where some source lies. */
static void fold(const struct rr_reduce *r, const void *const *source, size_t from, size_t n, char *to)
{
    const struct rr_user_op *u = r->user;
    size_t at = from * u->element_bytes, bytes = n * u->element_bytes;
    struct partial stack[RR_USER_LEVELS];
    int q = 1, depth = 0;

    while (2 * q <= r->sources)
        q *= 2;
    int pairs = r->sources - q;
    for (int i = 0; i < q; i++) {
        /* a stack holds ever smaller subtrees, so its depth names a place that nobody else is at */
        char *room = u->room + (size_t)depth * u->piece * u->element_bytes;
        struct partial *top = &stack[depth++];
        if (i < pairs) {
            struct partial right = { 0, (const char *)source[2 * i + 1] + at };
            *top = (struct partial){ -1, (const char *)source[2 * i] + at };
            join(u, top, &right, room, n);
        } else {
            *top = (struct partial){ 0, (const char *)source[i + pairs] + at };
        }
        for (; depth > 1 && stack[depth - 2].level == stack[depth - 1].level; depth--)
            join(u, &stack[depth - 2], &stack[depth - 1],
                 u->room + (size_t)(depth - 2) * u->piece * u->element_bytes, n);
    }
    if (stack[0].at != to)
        memcpy(to, stack[0].at, bytes);
}

void rr_reduce_user(const struct rr_reduce *r, void *const *destination, const void *const *source)
{
    const struct rr_user_op *u = r->user;

    for (size_t from = 0; from < r->count; from += u->piece) {
        size_t n = r->count - from < u->piece ? r->count - from : u->piece;
        char *first = (char *)destination[0] + from * u->element_bytes;
        fold(r, source, from, n, first);
        for (int d = 1; d < r->destinations; d++)
            memcpy((char *)destination[d] + from * u->element_bytes, first, n * u->element_bytes);
    }
}
