/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the fusion room: the gradients that there are. */
#ifndef RR_FUSION_TABLE_H
#define RR_FUSION_TABLE_H

#include "base/base.h"
#include "core/core.h"
#include "fusion/fusion.h"

struct rr_gradient {
    char *key;
    uint64_t hash;
    size_t bucket;              /* once there are buckets */
    bool added;                 /* in this step */
};

/* In an order that all ranks have once they have agreed. What lists want as arrays is kept as such. */
struct rr_gradients {
    size_t n, room;
    struct rr_gradient *gradient;
    void **at;
    size_t *count;
    int32_t *type;
    uint32_t *slot;             /* [slots] of the hash table: 1 + number; 0: free */
    size_t slots;               /* a power of two, more than n */
};

#define RR_NO_GRADIENT SIZE_MAX
size_t rr_gradients_find(const struct rr_gradients *t, const char *key);
int rr_gradients_add(struct rr_gradients *t, const char *key, void *at, size_t count, int32_t type); /* ENOMEM, ELIMIT */
void rr_gradients_free(struct rr_gradients *t);

/* All have the same as rank 0, in its order from then on: a collective in three parts, of which each is done once. */
struct rr_agreement {
    enum { RR_AGREE_LENGTHS, RR_AGREE_TEXTS, RR_AGREE_COMPARE, RR_AGREE_DONE } part;
    uint64_t *bytes, each;      /* [ranks] how many each rank's are; the most */
    unsigned char *all;         /* [ranks][each] */
};
/* 0: it is done. ENOMEM: to be called again. EMISMATCH and EWIRE: *why is one sentence. Else a failure that broke the
 * communicator, which has its own. */
int rr_agreement_go_on(struct rr_agreement *a, struct rr_gradients *t, ringred_comm *comm, ringred_error *why);
void rr_agreement_end(struct rr_agreement *a); /* frees */

#endif
