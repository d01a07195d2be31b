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
};
/* clang-format on */
