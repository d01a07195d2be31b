/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of collectives share: making a communicator among the ranks of a test, and one
 * collective with buffers of every kind, checked against the numbers it must give. They see nothing
 * of the library but its public headers. */
#ifndef COLL_H
#define COLL_H

#include "numerics.h"
#include "ranks.h"

#include <ringred/ringred.h>

#define COLL_SETTINGS 8

/* How a communicator is made. */
struct coll_setup {
    int ranks;
    const char *setting[COLL_SETTINGS]; /* "name=value", ended by NULL; "hosts=abba": each rank's setting host */
};
/* For struct numbers_job: the hosts in order of their lowest rank; NULL: sums do not go by hosts, since there are none
 * or by numerics=portable or transport=tcp. */
const uint8_t *coll_hosts(const struct coll_setup *s, uint8_t *host);
/* Runs all ranks of each setup, as processes; the setup is their argument. */
void coll_each(const struct coll_setup *setups, size_t n, void (*run)(struct rank *me), int deadline_s);
void coll_setup_text(const struct coll_setup *s, char *text, size_t room);

/* The setup's communicator; ends the rank with the library's sentence if it cannot be made. */
ringred_comm *coll_open(struct rank *me, const struct coll_setup *setup);
ringred_comm *coll_open_choosing(struct rank *me, const struct coll_setup *setup, ringred_choose_fn choose,
                                 void *context); /* choose NULL: none */
/* with the functions that *wishes has; who is who, and the settings, are the setup's */
ringred_comm *coll_open_with(struct rank *me, const struct coll_setup *setup, const ringred_config *wishes);
/* The same where it may fail; wishes NULL: none. With an id of the wishes' the ranks need not meet before. */
int32_t coll_try(struct rank *me, const struct coll_setup *setup, const ringred_config *wishes, ringred_comm **comm,
                 ringred_error *why);
void coll_close(ringred_comm *comm);
/* Ends the rank unless rc is 0, with the communicator's sentence and `what`. */
void coll_must(ringred_comm *comm, int32_t rc, const char *what);

/* Buffers with room for `most` bytes at any offset below 64 and guards around. */
struct coll_memory {
    size_t most;
    unsigned char *plain[2], *window[2]; /* malloc, ringred_alloc */
};
void coll_memory_open(struct coll_memory *m, ringred_comm *comm, size_t most);
void coll_memory_close(struct coll_memory *m);

/* One call. What is drawn from `mine` is known to this rank alone. */
struct coll_call {
    struct numbers_job job;
    size_t count;
    int root;                   /* of a broadcast */
    bool exact;                 /* bits of the tree; else only near them */
    unsigned char *send, *recv; /* chosen by coll_prepare */
    char text[160];
};
void coll_prepare(struct coll_call *c, struct coll_memory *m, struct rank *me, struct numbers_random *mine);
void coll_check_allreduce(struct coll_call *c, struct rank *me);
void coll_check_broadcast(struct coll_call *c, struct rank *me);

#endif
