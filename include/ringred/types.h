/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, operators and status codes. Types and operators come from separate ranges that
 * start above zero, so that swapped or zeroed arguments are refused instead of believed. */
#ifndef RINGRED_TYPES_H
#define RINGRED_TYPES_H

#include <stdint.h>

/* Element types. */
#define RINGRED_FLOAT32 ((int32_t)1)
#define RINGRED_FLOAT64 ((int32_t)2)
#define RINGRED_FLOAT16 ((int32_t)3)       /* IEEE binary16 */
#define RINGRED_BFLOAT16 ((int32_t)4)      /* the upper half of a float32 */
#define RINGRED_FLOAT8_E4M3FN ((int32_t)5) /* no infinities; largest 448 */
#define RINGRED_FLOAT8_E5M2 ((int32_t)6)   /* the upper half of a float16 */
#define RINGRED_INT8 ((int32_t)7)
#define RINGRED_INT16 ((int32_t)8)
#define RINGRED_INT32 ((int32_t)9)
#define RINGRED_INT64 ((int32_t)10)
#define RINGRED_UINT8 ((int32_t)11)
#define RINGRED_UINT16 ((int32_t)12)
#define RINGRED_UINT32 ((int32_t)13)
#define RINGRED_UINT64 ((int32_t)14)
#define RINGRED_BOOL ((int32_t)15)         /* one byte; any value but 0 is true, results are 0 or 1 */
#define RINGRED_COMPLEX64 ((int32_t)16)    /* two float32: real, imaginary */
#define RINGRED_COMPLEX128 ((int32_t)17)   /* two float64 */
#define RINGRED_BYTES ((int32_t)18)        /* opaque bytes: moved; reduced by operators of the caller's alone */

/* Operators of reductions. Which type takes which, and what NaN, signed zeros, infinities, denormals
 * and overflow become, stands in docs/NUMBERS.md; other pairs are refused with EINVAL. */
#define RINGRED_SUM ((int32_t)257)  /* the sum over the ranks, in the order of one tree (docs/ARCHITECTURE.md) */
#define RINGRED_AVG ((int32_t)258)  /* that sum divided by the number of ranks, rounded once */
#define RINGRED_PROD ((int32_t)259)
#define RINGRED_MIN ((int32_t)260)
#define RINGRED_MAX ((int32_t)261)
#define RINGRED_BAND ((int32_t)262) /* bitwise and, or, exclusive or */
#define RINGRED_BOR ((int32_t)263)
#define RINGRED_BXOR ((int32_t)264)
#define RINGRED_LAND ((int32_t)265) /* logical: elements are false (0) or true; results are 0 or 1 */
#define RINGRED_LOR ((int32_t)266)
#define RINGRED_LXOR ((int32_t)267)

/* Status. 0 is done, above 0 is not an error, below 0 is a failure. The hundreds say what is broken. */
#define RINGRED_OK ((int32_t)0)
#define RINGRED_PENDING ((int32_t)1) /* the request is still running */

/* -1xx: the caller's mistake; nothing has changed. */
#define RINGRED_EINVAL ((int32_t)-101)    /* an argument is wrong; the sentence says which */
#define RINGRED_ESETTING ((int32_t)-102)  /* a setting is unknown, out of range or contradicts another */
#define RINGRED_EUNSUPPORTED ((int32_t)-103) /* legal, but not in this build or on this machine */
#define RINGRED_EBUSY ((int32_t)-104)     /* another thread is inside a start on this communicator */
#define RINGRED_EFORKED ((int32_t)-105)   /* this process is a fork of the one that made the communicator */

/* -2xx: out of something; nothing has changed, and a later try may work. */
#define RINGRED_ENOMEM ((int32_t)-201)
#define RINGRED_ELIMIT ((int32_t)-202)    /* descriptors, requests in flight, shared memory */
#define RINGRED_ESYSTEM ((int32_t)-203)   /* a system call failed; ringred_error.system has its errno */

/* -3xx: a peer or a link is lost; the communicator is broken. */
#define RINGRED_EPEER ((int32_t)-301)     /* ringred_error.rank died, left, or reset its connection */
#define RINGRED_ETIMEOUT ((int32_t)-302)  /* a blocking call or set-up did not end in its time */
#define RINGRED_EABORTED ((int32_t)-303)  /* somebody called ringred_comm_abort */
#define RINGRED_EWIRE ((int32_t)-304)     /* bytes came that no ringred peer would send */
#define RINGRED_EINTERRUPTED ((int32_t)-305) /* the caller's function `interrupt` ended a set-up call */
#define RINGRED_EPARTITION ((int32_t)-306) /* too few ranks are left to go on: the others may live, and do so */

/* -4xx: the ranks disagree; the communicator is broken. */
#define RINGRED_EMISMATCH ((int32_t)-401) /* ranks asked for different collectives */
#define RINGRED_ECONFIG ((int32_t)-402)   /* ranks were started with contradicting ranks, sizes or settings */

/* -5xx: version, proof of identity, plug-in. */
#define RINGRED_EVERSION ((int32_t)-501)
#define RINGRED_EAUTH ((int32_t)-502)     /* a peer did not prove that it knows the job's key */

/* -9xx: a mistake in the library. */
#define RINGRED_EINTERNAL ((int32_t)-901)

#endif
