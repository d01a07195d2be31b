/* SPDX-License-Identifier: Apache-2.0 */
/* What buffers look like: the parts of each collective's, and where blocks begin and end. Blocks begin at
 * whole lines, so that two ranks that write neighbouring blocks of one buffer never share a line. */
#include "plan/plan.h"

/* Elements of every block but the last ones, which may be shorter or empty. */
static size_t block_elements(size_t elements, size_t of, size_t element_bytes)
{
    size_t line = element_bytes < RR_LINE ? RR_LINE / element_bytes : 1;
    size_t share = elements / of + (elements % of != 0);

    return (share + line - 1) / line * line;
}

const char *rr_collective_name(enum rr_collective what)
{
    static const char *const names[RR_COLLECTIVES] = {
        [RR_ALLREDUCE] = "allreduce",
        [RR_BROADCAST] = "broadcast",
        [RR_BARRIER] = "barrier",
        [RR_REDUCE] = "reduce",
        [RR_ALLGATHER] = "allgather",
        [RR_GATHER] = "gather",
        [RR_REDUCE_SCATTER] = "reduce_scatter",
        [RR_SCATTER] = "scatter",
        [RR_ALLTOALL] = "alltoall",
    };

    return what > 0 && what < RR_COLLECTIVES ? names[what] : "?";
}

struct rr_shape rr_shape_of(enum rr_collective what, int ranks, int root, int rank)
{
    bool here = rank == root;

    switch (what) {
    case RR_REDUCE:
        return (struct rr_shape){ 1, here };
    case RR_ALLGATHER:
        return (struct rr_shape){ 1, ranks };
    case RR_GATHER:
        return (struct rr_shape){ 1, here ? ranks : 0 };
    case RR_REDUCE_SCATTER:
        return (struct rr_shape){ ranks, 1 };
    case RR_SCATTER:
        return (struct rr_shape){ here ? ranks : 0, 1 };
    case RR_ALLTOALL:
        return (struct rr_shape){ ranks, ranks };
    default:
        return (struct rr_shape){ 1, 1 };
    }
}

struct rr_range rr_block_range(struct rr_range r, const struct rr_span *s, size_t element_bytes)
{
    for (int i = 0; i < RR_LEVELS && s->of[i] != 1; i++) {
        size_t elements = r.hi - r.lo;
        size_t p = block_elements(elements, s->of[i], element_bytes);
        size_t lo = s->at[i] * p, hi = lo + p;

        r.hi = r.lo + (hi < elements ? hi : elements);
        r.lo = r.lo + (lo < elements ? lo : elements);
    }
    return r;
}

size_t rr_block_most(size_t elements, const uint16_t *of, size_t element_bytes)
{
    for (int i = 0; i < RR_LEVELS && of[i] != 1; i++) {
        size_t p = block_elements(elements, of[i], element_bytes);
        if (p < elements)
            elements = p;
    }
    return elements;
}
