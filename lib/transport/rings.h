/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: what two ranks that share memory use as a stream where they have no socket. */
#ifndef RR_RINGS_H
#define RR_RINGS_H

#include "transport/transport.h"

#include <sys/uio.h>

struct rr_rings;

/* As send and recv that do not wait: bytes, or -1 with errno EAGAIN; ENOMEM: there is no room for a ring. */
ssize_t rr_rings_put(struct rr_rings *r, const struct iovec *part, size_t parts);
ssize_t rr_rings_get(struct rr_rings *r, void *to, size_t most);

struct rr_rings *rr_rings_new(struct rr_shared *shared, int peer); /* NULL: no memory */
void rr_rings_free(struct rr_rings *r);

#endif
