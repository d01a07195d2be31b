/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: what two ranks that share memory use as a stream where they have no socket. */
#ifndef RR_RINGS_H
#define RR_RINGS_H

#include "transport/transport.h"

#include <ringred/transport.h>

struct rr_rings;

/* As send and recv of a transport's table. */
int64_t rr_rings_put(struct rr_rings *r, const ringred_span *part, int parts, int32_t *system);
int64_t rr_rings_get(struct rr_rings *r, const ringred_span *part, int parts);

struct rr_rings *rr_rings_new(struct rr_shared *shared, int peer); /* NULL: no memory */
void rr_rings_free(struct rr_rings *r);

#endif
