/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: lanes that encrypt what they carry over other lanes. */
#ifndef RR_SEALED_H
#define RR_SEALED_H

#include "transport/link.h"

/* Puts itself before the lanes: by and self are its own afterwards. Its close closes them. The
 * lanes must need no progress, and tell of news without being armed. seal[peer * rails + rail]:
 * RR_CIPHER_NONE: there is no such lane. */
int rr_seal_lanes(struct rr_lanes *lanes, const struct rr_seal *seal, int rails,
                  ringred_error *why);

#endif
