/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the core room: what the ranks of a communicator tell each other while it is made. */
#ifndef RR_CARD_H
#define RR_CARD_H

#include "core/core.h"

#define RR_CARD_CPUS 1024

struct rr_card {
    uint64_t machine;          /* hash of the kernel's boot id */
    int32_t shared_failed;     /* a status, when this rank could not share memory */
    char shared_why[200];      /* and why */
    int32_t no_windows;        /* this rank cannot reach every mate's heap */
    int32_t no_fences;         /* sleepers cannot make this rank pass a fence */
    int32_t congestion;        /* what probing loopback found; 0: nothing better */
    uint64_t tuning;           /* hash of the table; 0: none */
    char agreed[512];          /* the settings that must be equal: values in the order of must_agree, each with a line end */
    uint64_t cpus[RR_CARD_CPUS / 64];
};

void rr_card_write(const ringred_comm *c, struct rr_card *card);
/* Settings and tables that must be equal: 0, or ECONFIG with both in words. card: [ranks] */
int rr_cards_compare(const ringred_comm *c, const struct rr_boot *boot, const struct rr_card *card, ringred_error *why);
void rr_cards_count_cpus(ringred_comm *c, const struct rr_card *card); /* are there more ranks than CPUs for them? */
/* "rank 2 on node1 (pid 17)" */
const char *rr_who(const struct rr_boot *boot, int rank, char *text, size_t room);

#endif
