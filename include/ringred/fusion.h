/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: the many gradients of a training step, averaged in few large operations.
 *
 * Each gradient has a key, the same on all ranks. In the first step everybody adds all that it has, in any order, and
 * waits; then the ranks compare what they have, and from then on gradients are taken in rank 0's order of that step,
 * cut into buckets. In later steps a bucket begins as soon as this rank has added all of it and the buckets before it
 * have begun, so it is under way while the rest of the step is computed. Where gradients lie may change from step to
 * step. They are read and written in place, where they lie: nothing is packed.
 *
 *     ringred_fusion_create(comm, NULL, &fusion, &why);
 *     for (each step) {
 *         for (each gradient, in the order in which they come, by any thread)
 *             ringred_fusion_add(fusion, "layer4.weight", gradient, count, RINGRED_FLOAT32);
 *         ringred_fusion_wait(fusion, RINGRED_FOREVER);
 *     }
 *     ringred_fusion_destroy(fusion);
 *
 * What becomes of a gradient is what ringred_allreduce makes of it, to the bit, whatever the buckets are. */
#ifndef RINGRED_FUSION_H
#define RINGRED_FUSION_H

#include <ringred/ringred.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ringred_fusion ringred_fusion;

#define RINGRED_FUSION_KEY_MOST 255 /* bytes of a key, without the terminator */

typedef struct ringred_fusion_options {
    uint32_t struct_size;
    int32_t op;              /* RINGRED_AVG (as init writes it) or RINGRED_SUM */
    size_t bucket_bytes;     /* a bucket is full from here on; 0: 1 MiB where all ranks share memory, else 4 MiB */
} ringred_fusion_options;
RINGRED_API void ringred_fusion_options_init(ringred_fusion_options *options, size_t size);

/* Collective over comm, from which it takes a communicator of its own (ringred_comm_split): operations on comm and on
 * other fusions may go on beside it. options NULL: as init writes them. why may be NULL. Blocks. EINVAL, ENOMEM, ELIMIT, and as
 * ringred_comm_split. */
RINGRED_API int32_t ringred_fusion_create(ringred_comm *comm, const ringred_fusion_options *options,
                                          ringred_fusion **fusion, ringred_error *why);

/* One more gradient of this step; count elements of type, which stay the library's until the wait has returned 0.
 * The key is copied. Any thread may call it. It may start a bucket, which sends what can be sent at once, and does not
 * wait. EINVAL: it is in this step already, differs from the first step's in count or type, or was not there then. */
RINGRED_API int32_t ringred_fusion_add(ringred_fusion *fusion, const char *key, void *gradient, size_t count, int32_t type);

/* Moves what can be moved, without waiting: 0: nothing is under way; RINGRED_PENDING: something is. */
RINGRED_API int32_t ringred_fusion_poll(ringred_fusion *fusion);

/* Waits until all gradients of the step have been added (by other threads), and averaged; then the next step begins.
 * Where none has been added there is nothing to wait for. RINGRED_PENDING: not within timeout_ns; it may be called
 * again. The first one is collective: all that is in the first step has been added before; timeout_ns does not count
 * for comparing, the setting timeout does. ENOMEM: nothing is lost; call it again. EBUSY: another thread is in the first one. EMISMATCH: the ranks do not have the same gradients, in words with key and rank; nothing was
 * averaged. A gradient that is not added within the setting stall_warning is named in the log. */
RINGRED_API int32_t ringred_fusion_wait(ringred_fusion *fusion, int64_t timeout_ns);

/* The latest refusal, or the failure that ended it; code 0: there is none. */
RINGRED_API int32_t ringred_fusion_error(ringred_fusion *fusion, ringred_error *error);

/* In any order across ranks, but with nothing under way; NULL is fine. Gradients that were added and not waited for
 * are left as they are. Status as ringred_comm_destroy. */
RINGRED_API int32_t ringred_fusion_destroy(ringred_fusion *fusion);

#ifdef __cplusplus
}
#endif

#endif
