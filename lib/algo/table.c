/* SPDX-License-Identifier: Apache-2.0 */
/* The list of algorithms. */
#include "algo/parts.h"

#define NARROW "no sums of 8- and 16-bit floats, whose partial sums would be rounded"
#define EQUAL "equal parts"
#define HOSTS "several hosts, ranks that share one"
#define HOST_SUMS HOSTS "; no sums of 8-bit floats; the tree of the layout (docs/NUMBERS.md)"

/* name, collective, tree, shared, linked, rounds, bytes, needs, build */
/* clang-format off */
const struct rr_algo_row rr_algo_table[RR_ALGOS] = {
    [RR_ALGO_COPY] = { "copy", RR_ALLREDUCE, true, false, false, "0", "0", "one rank", rr_build_copy },
    [RR_ALGO_SHM_ONESHOT] = { "shm-oneshot", RR_ALLREDUCE, true, true, false, "1", "S", NULL, rr_build_shm_oneshot },
    [RR_ALGO_SHM_TWOSHOT] = { "shm-twoshot", RR_ALLREDUCE, true, true, false, "2", "S", NULL, rr_build_shm_twoshot },
    [RR_ALGO_ONESHOT] = { "oneshot", RR_ALLREDUCE, true, false, true, "1", "(n-1) S", NULL, rr_build_oneshot },
    [RR_ALGO_TWOSHOT] = { "twoshot", RR_ALLREDUCE, true, false, true, "2", "2(n-1)/n S", NULL, rr_build_twoshot },
    [RR_ALGO_STAR] = { "star", RR_ALLREDUCE, true, false, true, "2", "(n-1) S", NULL, rr_build_star },
    [RR_ALGO_RING] = { "ring", RR_ALLREDUCE, false, false, true, "2(n-1)", "2(n-1)/n S", NARROW, rr_build_ring },
    [RR_ALGO_DOUBLING] = { "doubling", RR_ALLREDUCE, true, false, true, "ceil(log2 n), + 1 if n is no power of 2", "ceil(log2 n) S", NARROW, rr_build_doubling },
    [RR_ALGO_HIERARCHICAL] = { "hierarchical", RR_ALLREDUCE, true, true, true, "2 + 2, between 2 hosts 2 + 1", "2(h-1)/n S", HOST_SUMS, rr_build_hierarchical },
    [RR_ALGO_SHM_BROADCAST] = { "shm-broadcast", RR_BROADCAST, true, true, false, "2", "S", NULL, rr_build_shm_broadcast },
    [RR_ALGO_BINOMIAL] = { "binomial", RR_BROADCAST, true, false, true, "ceil(log2 n)", "ceil(log2 n) S", NULL, rr_build_binomial },
    [RR_ALGO_HIER_BROADCAST] = { "hier-broadcast", RR_BROADCAST, true, true, true, "1 + ceil(log2 h)", "ceil(log2 h) S", HOSTS, rr_build_hier_broadcast },
    [RR_ALGO_SHM_BARRIER] = { "shm-barrier", RR_BARRIER, true, true, false, "1", "0", NULL, rr_build_shm_barrier },
    [RR_ALGO_DISSEMINATION] = { "dissemination", RR_BARRIER, true, false, true, "ceil(log2 n)", "0", NULL, rr_build_dissemination },
    [RR_ALGO_HIER_BARRIER] = { "hier-barrier", RR_BARRIER, true, true, true, "2 + ceil(log2 h)", "0", HOSTS, rr_build_hier_barrier },
    [RR_ALGO_BROADCAST_TWOSHOT] = { "broadcast-twoshot", RR_BROADCAST, true, false, true, "2", "2(n-1)/n S", NULL, rr_build_broadcast_twoshot },
    [RR_ALGO_REDUCE] = { "reduce", RR_REDUCE, true, false, true, "1", "S", NULL, rr_build_reduce },
    [RR_ALGO_REDUCE_TWOSHOT] = { "reduce-twoshot", RR_REDUCE, true, false, true, "2", "S", NULL, rr_build_reduce_twoshot },
    [RR_ALGO_ALLGATHER] = { "allgather", RR_ALLGATHER, true, false, true, "1", "(n-1) S", NULL, rr_build_allgather },
    [RR_ALGO_RING_ALLGATHER] = { "ring-allgather", RR_ALLGATHER, true, false, true, "n-1", "(n-1) S", NULL, rr_build_ring_allgather },
    [RR_ALGO_BRUCK_ALLGATHER] = { "bruck-allgather", RR_ALLGATHER, true, false, true, "ceil(log2 n)", "(n-1) S", EQUAL, rr_build_bruck_allgather },
    [RR_ALGO_STAR_ALLGATHER] = { "star-allgather", RR_ALLGATHER, true, false, true, "2", "n(n-1) S", EQUAL, rr_build_star_allgather },
    [RR_ALGO_GATHER] = { "gather", RR_GATHER, true, false, true, "1", "S", NULL, rr_build_gather },
    [RR_ALGO_REDUCE_SCATTER] = { "reduce-scatter", RR_REDUCE_SCATTER, true, false, true, "1", "(n-1) S", NULL, rr_build_reduce_scatter },
    [RR_ALGO_RING_REDUCE_SCATTER] = { "ring-reduce-scatter", RR_REDUCE_SCATTER, false, false, true, "n-1", "(n-1) S", EQUAL "; " NARROW, rr_build_ring_reduce_scatter },
    [RR_ALGO_SCATTER] = { "scatter", RR_SCATTER, true, false, true, "1", "(n-1) S", NULL, rr_build_scatter },
    [RR_ALGO_ALLTOALL] = { "alltoall", RR_ALLTOALL, true, false, true, "1", "(n-1) S", NULL, rr_build_alltoall },
    [RR_ALGO_BRUCK_ALLTOALL] = { "bruck-alltoall", RR_ALLTOALL, true, false, true, "ceil(log2 n)", "n/2 ceil(log2 n) S", EQUAL, rr_build_bruck_alltoall },
    [RR_ALGO_SHM_REDUCE] = { "shm-reduce", RR_REDUCE, true, true, false, "2", "S", NULL, rr_build_shm_reduce },
    [RR_ALGO_SHM_REDUCE_TWOSHOT] = { "shm-reduce-twoshot", RR_REDUCE, true, true, false, "2", "S", NULL, rr_build_shm_reduce_twoshot },
    [RR_ALGO_SHM_ALLGATHER] = { "shm-allgather", RR_ALLGATHER, true, true, false, "2", "S", NULL, rr_build_shm_allgather },
    [RR_ALGO_SHM_GATHER] = { "shm-gather", RR_GATHER, true, true, false, "2", "S", NULL, rr_build_shm_gather },
    [RR_ALGO_SHM_REDUCE_SCATTER] = { "shm-reduce-scatter", RR_REDUCE_SCATTER, true, true, false, "2", "(n-1) S", NULL, rr_build_shm_reduce_scatter },
    [RR_ALGO_SHM_SCATTER] = { "shm-scatter", RR_SCATTER, true, true, false, "2", "(n-1) S", NULL, rr_build_shm_scatter },
    [RR_ALGO_SHM_ALLTOALL] = { "shm-alltoall", RR_ALLTOALL, true, true, false, "2", "(n-1) S", NULL, rr_build_shm_alltoall },
    [RR_ALGO_HIER_ALLGATHER] = { "hier-allgather", RR_ALLGATHER, true, true, true, "1 + 2", "(h-1) S", HOSTS "; " EQUAL, rr_build_hier_allgather },
    [RR_ALGO_HIER_REDUCE_SCATTER] = { "hier-reduce-scatter", RR_REDUCE_SCATTER, true, true, true, "2 + 1", "(h-1) S", HOST_SUMS "; " EQUAL, rr_build_hier_reduce_scatter },
    [RR_ALGO_HIER_REDUCE] = { "hier-reduce", RR_REDUCE, true, true, true, "2 + 1", "S/g from g ranks of a host", HOST_SUMS, rr_build_hier_reduce },
};
/* clang-format on */
