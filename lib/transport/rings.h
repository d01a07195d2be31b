/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: what two ranks that share memory use as a stream where they have no socket. */
#ifndef RR_RINGS_H
#define RR_RINGS_H

#include "transport/transport.h"

#include <ringred/transport.h>

struct rr_rings;

/* As send and recv of a transport's table. */
int64_t rr_rings_put(struct rr_rings *r, const ringred_span *part, int parts);
int64_t rr_rings_get(struct rr_rings *r, const ringred_span *part, int parts);

struct rr_rings *rr_rings_new(struct rr_shared *shared, int peer); /* NULL: no memory */
void rr_rings_free(struct rr_rings *r);
int rr_rings_prepare(struct rr_rings *r, ringred_error *why); /* makes what I write, if it is not there: 0, ENOMEM */

#endif
