/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces that several algorithms are put together from. Inside the algo room only. */
#ifndef RR_ALGO_PARTS_H
#define RR_ALGO_PARTS_H

#include "algo/algo.h"

#define RR_MOST 1024 /* ranks that one step can name; of a communicator there are RR_REDUCE_SOURCES, which a kernel takes */

/* ---- groups (groups.c) ---- */

/* Ranks that do something together, in order, and which of them I am. */
struct rr_group {
    int n, mine;
    int16_t rank[RR_MOST];
};

/* The group's ranks without me, the one behind me first, so that not all turn to the same one. */
struct rr_others {
    int n;
    int16_t rank[RR_MOST];
    int index[RR_MOST]; /* of that rank in the group */
};

/* All ranks; the ranks of my host. EINVAL: more than RR_MOST. */
int rr_group_all(const struct rr_layout *layout, int me, struct rr_group *g);
int rr_group_host(const struct rr_layout *layout, int me, struct rr_group *g);

/* Who sits where, and how a vector is cut over the ranks of a host: into as many SLICES as the largest host
 * has ranks, but at most twice the mean. Place i of a host (counted round) owns slice i: where a host has
 * fewer ranks they own several, where it has more some own none. */
struct rr_hosts {
    int n, slices;
    int16_t first[RR_MOST + 1]; /* where the ranks of a host begin in rank[] */
    int16_t rank[RR_MOST];      /* host by host, ascending */
    int16_t place[RR_MOST];     /* of a rank among those of its host */
};
int rr_hosts_of(const struct rr_layout *layout, struct rr_hosts *h); /* EINVAL: more than RR_MOST */

static inline int rr_host_size(const struct rr_hosts *h, int host)
{
    return h->first[host + 1] - h->first[host];
}
static inline int16_t rr_host_rank(const struct rr_hosts *h, int host, int place)
{
    return h->rank[h->first[host] + place % rr_host_size(h, host)];
}

/* Temps of this shape that nobody uses, up to `most`: ranks with fewer than others must cut segments alike. */
void rr_pad_temps(struct rr_builder *b, struct rr_span shape, int have, int most);
void rr_others_of(const struct rr_group *g, struct rr_others *others);

/* Temps that other ranks have and this one does not use: all ranks' plans of an algorithm need the same
 * scratch, since the size of a segment depends on it. */
static inline void rr_unused_temps(struct rr_builder *b, struct rr_span shape, int n)
{
    for (int i = 0; i < n; i++)
        (void)rr_builder_temp(b, shape); /* a failure sticks to the builder */
}

/* The same cut of another buffer. */
static inline struct rr_span rr_at(struct rr_span shape, enum rr_place place, int rank)
{
    shape.place = (uint8_t)place;
    shape.rank = (int16_t)rank;
    return shape;
}

/* One part of a buffer; parts of a temp, one behind the other. */
static inline struct rr_span rr_part(enum rr_place place, int rank, int part)
{
    return rr_span_parts(rr_span_whole(place, rank), part, 1);
}
static inline struct rr_span rr_temp_parts(int temp, int part, int parts)
{
    return rr_span_parts(rr_span_whole(RR_TEMP, temp), part, parts);
}

/* A plan of one copy from input to output: what is left of every algorithm for one rank. */
int rr_alone(const char *name, struct rr_plan **plan);

/* ---- shared memory (shm.c) ---- */

struct rr_published {
    int first, await; /* its first step; the step after which everybody's input can be read */
};
/* Puts the others' blocks of my input, of `slices` owned in turn, where they can read them; waits until all
 * have done so. */
struct rr_published rr_shm_publish(struct rr_builder *b, const struct rr_group *g, int slices);

/* Copies my input to my stage (flags 0 or RR_PRIVATE_IN). Says ARRIVED after step `after` (-1: at once) and
 * waits for everybody else's. */
int rr_shm_copy_in(struct rr_builder *b, const struct rr_group *g, unsigned flags);
int rr_shm_arrive(struct rr_builder *b, const struct rr_group *g, int after);

/* The places where one block of the result goes: my output, every window, my stage (flag
 * RR_PRIVATE_OUT belongs to it). Room for RR_MOST + 1; returns how many. */
int rr_shm_outputs(const struct rr_group *g, struct rr_span shape, struct rr_span *spans);

/* Says that my blocks of the result are out, waits for the others and fetches theirs where they could
 * not put it. Returns the step that says so (-1: I own none): it must wait for whatever writes the blocks. */
int rr_shm_collect(struct rr_builder *b, const struct rr_group *g, int slices, struct rr_published in, int lag);

/* The leader hands `from`, there once step `after` is done (-1: from the start), to its host. With
 * `windows`, `from` is its input, read from its window if it has one, and goes to its own output
 * too; else its stage is read. */
void rr_shm_serve(struct rr_builder *b, const struct rr_group *g, struct rr_span from, bool windows,
                  int after);
void rr_shm_fetch(struct rr_builder *b, const struct rr_group *g, int leader, bool windows);

/* ---- links (direct.c) ---- */

/* A sum over a group. in[i]: my summand of member i's block, there once step ready[i] is done (-1:
 * from the start); a one-shot has one block, in[0]. `outs`: where the sum goes, whole, my own
 * output first. */
struct rr_exchange {
    const struct rr_group *group;
    const struct rr_span *in;
    const int *ready;
    const struct rr_span *outs;
    int n_outs;
    unsigned flags;
    int slot; /* of its first round; the second has the next one */
};
/* Which steps did it. Sends and receives alternate: the i-th is step send0 + 2 * i, recv0 + 2 * i.
 */
struct rr_exchanged {
    int send0, sends; /* to members mine + 1, mine + 2, ...; these and `sum` read `in` */
    int sum;          /* writes the sum, in a two-shot my block of it */
    int recv0,
        recvs; /* two-shot: these bring the other blocks, of members mine - 1, mine - 2, ... */
};
struct rr_exchanged rr_direct_oneshot(struct rr_builder *b, const struct rr_exchange *e);
struct rr_exchanged rr_direct_twoshot(struct rr_builder *b, const struct rr_exchange *e);

/* ---- trees and rounds (binomial.c, dissemination.c) ---- */

/* Where a member of a binomial tree gets its data from and hands it to. Member 0 is the root. */
struct rr_binomial {
    int parent;              /* -1: the root */
    int children, child[16]; /* the deepest subtree first */
};
struct rr_binomial rr_binomial_of(int n, int member);

/* Rounds of a barrier between n members; rank NULL: member i is rank i. Starts after step `ready`
 * (-1: at once). Returns the last step, `ready` if there is none. */
int rr_disseminate(struct rr_builder *b, const int16_t *rank, int n, int mine, int ready);

/* ---- the builders, a file for each family ---- */
#define RR_BUILDER(name) \
    int name(const struct rr_layout *layout, int me, int root, struct rr_plan **plan)
RR_BUILDER(rr_build_copy);
RR_BUILDER(rr_build_shm_oneshot);
RR_BUILDER(rr_build_shm_twoshot);
RR_BUILDER(rr_build_oneshot);
RR_BUILDER(rr_build_twoshot);
RR_BUILDER(rr_build_star);
RR_BUILDER(rr_build_ring);
RR_BUILDER(rr_build_doubling);
RR_BUILDER(rr_build_hierarchical);
RR_BUILDER(rr_build_shm_broadcast);
RR_BUILDER(rr_build_binomial);
RR_BUILDER(rr_build_hier_broadcast);
RR_BUILDER(rr_build_shm_barrier);
RR_BUILDER(rr_build_dissemination);
RR_BUILDER(rr_build_hier_barrier);
RR_BUILDER(rr_build_broadcast_twoshot);
RR_BUILDER(rr_build_reduce);
RR_BUILDER(rr_build_reduce_twoshot);
RR_BUILDER(rr_build_allgather);
RR_BUILDER(rr_build_ring_allgather);
RR_BUILDER(rr_build_star_allgather);
RR_BUILDER(rr_build_bruck_allgather);
RR_BUILDER(rr_build_gather);
RR_BUILDER(rr_build_reduce_scatter);
RR_BUILDER(rr_build_ring_reduce_scatter);
RR_BUILDER(rr_build_scatter);
RR_BUILDER(rr_build_alltoall);
RR_BUILDER(rr_build_bruck_alltoall);
RR_BUILDER(rr_build_shm_reduce);
RR_BUILDER(rr_build_shm_reduce_twoshot);
RR_BUILDER(rr_build_shm_allgather);
RR_BUILDER(rr_build_shm_gather);
RR_BUILDER(rr_build_shm_reduce_scatter);
RR_BUILDER(rr_build_shm_scatter);
RR_BUILDER(rr_build_shm_alltoall);

#endif
