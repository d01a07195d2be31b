/* SPDX-License-Identifier: Apache-2.0 */
/* The door of the fusion room: gradients in buckets. */
#ifndef RR_FUSION_H
#define RR_FUSION_H

#include "base/base.h"

#include <ringred/fusion.h>

/* options are checked. The functions are those of the public header. */
int rr_fusion_open(ringred_comm *comm, const ringred_fusion_options *options, ringred_fusion **fusion);
int rr_fusion_add(ringred_fusion *fusion, const char *key, void *gradient, size_t count, int32_t type);
int rr_fusion_poll(ringred_fusion *fusion);
int rr_fusion_wait(ringred_fusion *fusion, int64_t timeout_ns);
int rr_fusion_refuse(ringred_fusion *fusion, int code, const char *format, ...) RR_PRINTF(3, 4);
/* Writes what there is to tell, if there is something. Not NULL: it is this communicator that tells. */
ringred_comm *rr_fusion_error(ringred_fusion *fusion, ringred_error *error);
bool rr_fusion_is_forked(const ringred_fusion *fusion); /* it is a parent's */
int rr_fusion_close(ringred_fusion *fusion);

#endif
