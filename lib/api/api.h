/* SPDX-License-Identifier: Apache-2.0 */
/* What the doors share: checks of the arguments of a call, which a sentence of the communicator's tells about. */
#ifndef RR_API_H
#define RR_API_H

#include "core/core.h"

int rr_api_check(ringred_comm *comm, struct rr_call *call);
/* Of one with parts of unequal length, which call->ragged points to afterwards. */
int rr_api_check_parts(ringred_comm *comm, struct rr_call *call, struct rr_ragged *parts);

#endif
