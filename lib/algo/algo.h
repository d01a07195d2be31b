/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the algo room: pure functions that write plans. table.c is the list. */
#ifndef RR_ALGO_H
#define RR_ALGO_H

#include "plan/plan.h"

/* Where the ranks sit: host[r] numbers the host of rank r, hosts numbered in order of their lowest
 * rank. All ranks have the same layout. */
struct rr_layout {
    int ranks, hosts;
    const int16_t *host;
};

/* Is a host's sum a part of the canonical tree? Hosts hold equal, contiguous blocks of 2^k ranks, or there is
 * one. Else plans that sum host by host evaluate the layout tree: each host's ranks, then the hosts. */
bool rr_layout_is_even(const struct rr_layout *layout);

enum rr_algo {
    RR_ALGO_COPY,          /* one rank: input to output */
    RR_ALGO_SHM_ONESHOT,   /* everybody publishes all, everybody sums; one signal */
    RR_ALGO_SHM_TWOSHOT,   /* staged or pushed: each sums its block of all and hands it to all */
    RR_ALGO_ONESHOT,       /* links: send all to all, sum */
    RR_ALGO_TWOSHOT,       /* links: reduce-scatter and allgather, each directly */
    RR_ALGO_STAR,          /* links: everything to rank 0 and back; the fewest messages */
    RR_ALGO_RING,          /* links: segmented ring; not the canonical tree */
    RR_ALGO_DOUBLING,      /* links: recursive doubling with fold */
    RR_ALGO_HIERARCHICAL,  /* shared memory inside hosts, links between them */
    RR_ALGO_SHM_BROADCAST,
    RR_ALGO_BINOMIAL,      /* links: binomial broadcast */
    RR_ALGO_HIER_BROADCAST,
    RR_ALGO_SHM_BARRIER,
    RR_ALGO_DISSEMINATION, /* links: barrier in ceil(log2 n) rounds */
    RR_ALGO_HIER_BARRIER,
    RR_ALGO_BROADCAST_TWOSHOT, /* links: blocks from the root, then from all to all */
    RR_ALGO_REDUCE,         /* links: everything to the root */
    RR_ALGO_REDUCE_TWOSHOT, /* links: each sums a block, blocks to the root */
    RR_ALGO_ALLGATHER,      /* links: each to all */
    RR_ALGO_RING_ALLGATHER, /* links: passed on from neighbour to neighbour */
    RR_ALGO_BRUCK_ALLGATHER, /* links: ceil(log2 n) rounds */
    RR_ALGO_STAR_ALLGATHER,  /* links: everything to rank 0 and back; the fewest messages */
    RR_ALGO_GATHER,         /* links: each to the root */
    RR_ALGO_REDUCE_SCATTER, /* links: each part to its owner */
    RR_ALGO_RING_REDUCE_SCATTER, /* links; not the canonical tree */
    RR_ALGO_SCATTER,        /* links: from the root to each */
    RR_ALGO_ALLTOALL,       /* links: each part to its owner */
    RR_ALGO_BRUCK_ALLTOALL, /* links: ceil(log2 n) rounds */
    RR_ALGO_SHM_REDUCE,     /* the root sums */
    RR_ALGO_SHM_REDUCE_TWOSHOT, /* each sums a block */
    RR_ALGO_SHM_ALLGATHER,  /* everybody publishes, everybody takes */
    RR_ALGO_SHM_GATHER,
    RR_ALGO_SHM_REDUCE_SCATTER,
    RR_ALGO_SHM_SCATTER,
    RR_ALGO_SHM_ALLTOALL,
    RR_ALGOS
};

struct rr_algo_row {
    const char *name;
    enum rr_collective what;
    bool tree;             /* evaluates the canonical tree */
    bool shared, linked;   /* needs all ranks on one host / links between ranks */
    /* For people (ringred-info --algorithms), of n ranks on h hosts and S bytes of one part. Rounds: messages,
     * or waits in shared memory, that follow each other. Bytes: what the busiest rank sends over links or
     * puts into shared memory. Needs: what is not said above; NULL: nothing. */
    const char *rounds, *bytes, *needs;
    /* root counts for rooted collectives only. 0, EINVAL (this layout cannot be done so), ENOMEM. */
    int (*build)(const struct rr_layout *layout, int me, int root, struct rr_plan **plan);
};
extern const struct rr_algo_row rr_algo_table[RR_ALGOS];

#endif
