/* SPDX-License-Identifier: Apache-2.0 */
/* The list of algorithms. */
#include "algo/parts.h"

/* clang-format off */
const struct rr_algo_row rr_algo_table[RR_ALGOS] = {
    /*                          name                     what          tree   shared linked */
    [RR_ALGO_COPY] =           { "copy",                 RR_ALLREDUCE, true,  false, false, rr_build_copy },
    [RR_ALGO_SHM_ONESHOT] =    { "shm-oneshot",          RR_ALLREDUCE, true,  true,  false, rr_build_shm_oneshot },
    [RR_ALGO_SHM_TWOSHOT] =    { "shm-twoshot",          RR_ALLREDUCE, true,  true,  false, rr_build_shm_twoshot },
    [RR_ALGO_ONESHOT] =        { "oneshot",              RR_ALLREDUCE, true,  false, true,  rr_build_oneshot },
    [RR_ALGO_TWOSHOT] =        { "twoshot",              RR_ALLREDUCE, true,  false, true,  rr_build_twoshot },
    [RR_ALGO_STAR] =           { "star",                 RR_ALLREDUCE, true,  false, true,  rr_build_star },
    [RR_ALGO_RING] =           { "ring",                 RR_ALLREDUCE, false, false, true,  rr_build_ring },
    [RR_ALGO_DOUBLING] =       { "doubling",             RR_ALLREDUCE, true,  false, true,  rr_build_doubling },
    [RR_ALGO_HIERARCHICAL] =   { "hierarchical",         RR_ALLREDUCE, true,  false, true,  rr_build_hierarchical },
    [RR_ALGO_SHM_BROADCAST] =  { "shm-broadcast",        RR_BROADCAST, true,  true,  false, rr_build_shm_broadcast },
    [RR_ALGO_BINOMIAL] =       { "binomial",             RR_BROADCAST, true,  false, true,  rr_build_binomial },
    [RR_ALGO_HIER_BROADCAST] = { "hier-broadcast",       RR_BROADCAST, true,  false, true,  rr_build_hier_broadcast },
    [RR_ALGO_SHM_BARRIER] =    { "shm-barrier",          RR_BARRIER,   true,  true,  false, rr_build_shm_barrier },
    [RR_ALGO_DISSEMINATION] =  { "dissemination",        RR_BARRIER,   true,  false, true,  rr_build_dissemination },
    [RR_ALGO_HIER_BARRIER] =   { "hier-barrier",         RR_BARRIER,   true,  false, true,  rr_build_hier_barrier },
    [RR_ALGO_BROADCAST_TWOSHOT] = { "broadcast-twoshot", RR_BROADCAST, true,  false, true,  rr_build_broadcast_twoshot },
    [RR_ALGO_REDUCE] = { "reduce", RR_REDUCE, true,  false, true,  rr_build_reduce },
    [RR_ALGO_REDUCE_TWOSHOT] = { "reduce-twoshot", RR_REDUCE, true,  false, true,  rr_build_reduce_twoshot },
    [RR_ALGO_ALLGATHER] = { "allgather", RR_ALLGATHER, true,  false, true,  rr_build_allgather },
    [RR_ALGO_RING_ALLGATHER] = { "ring-allgather", RR_ALLGATHER, true,  false, true,  rr_build_ring_allgather },
    [RR_ALGO_BRUCK_ALLGATHER] = { "bruck-allgather", RR_ALLGATHER, true,  false, true,  rr_build_bruck_allgather },
    [RR_ALGO_GATHER] = { "gather", RR_GATHER, true,  false, true,  rr_build_gather },
    [RR_ALGO_REDUCE_SCATTER] = { "reduce-scatter", RR_REDUCE_SCATTER, true,  false, true,  rr_build_reduce_scatter },
    [RR_ALGO_RING_REDUCE_SCATTER] = { "ring-reduce-scatter", RR_REDUCE_SCATTER, false, false, true,  rr_build_ring_reduce_scatter },
    [RR_ALGO_SCATTER] = { "scatter", RR_SCATTER, true,  false, true,  rr_build_scatter },
    [RR_ALGO_ALLTOALL] = { "alltoall", RR_ALLTOALL, true,  false, true,  rr_build_alltoall },
    [RR_ALGO_BRUCK_ALLTOALL] = { "bruck-alltoall", RR_ALLTOALL, true,  false, true,  rr_build_bruck_alltoall },
    [RR_ALGO_SHM_REDUCE] = { "shm-reduce", RR_REDUCE, true,  true,  false, rr_build_shm_reduce },
    [RR_ALGO_SHM_REDUCE_TWOSHOT] = { "shm-reduce-twoshot", RR_REDUCE, true,  true,  false, rr_build_shm_reduce_twoshot },
    [RR_ALGO_SHM_ALLGATHER] = { "shm-allgather", RR_ALLGATHER, true,  true,  false, rr_build_shm_allgather },
    [RR_ALGO_SHM_GATHER] = { "shm-gather", RR_GATHER, true,  true,  false, rr_build_shm_gather },
    [RR_ALGO_SHM_REDUCE_SCATTER] = { "shm-reduce-scatter", RR_REDUCE_SCATTER, true,  true,  false, rr_build_shm_reduce_scatter },
    [RR_ALGO_SHM_SCATTER] = { "shm-scatter", RR_SCATTER, true,  true,  false, rr_build_shm_scatter },
    [RR_ALGO_SHM_ALLTOALL] = { "shm-alltoall", RR_ALLTOALL, true,  true,  false, rr_build_shm_alltoall },
};
/* clang-format on */
