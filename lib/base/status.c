/* SPDX-License-Identifier: Apache-2.0 */
/* What each status code means, in words. */
#include "base/base.h"

const char *ringred_status_text(int32_t status)
{
    switch (status) {
    case RINGRED_OK:
        return "done";
    case RINGRED_PENDING:
        return "still running";
    case RINGRED_EINVAL:
        return "an argument is wrong; nothing has changed";
    case RINGRED_ESETTING:
        return "a setting is unknown, out of range or contradicts another; nothing has changed";
    case RINGRED_EUNSUPPORTED:
        return "not offered by this build or on this machine; nothing has changed";
    case RINGRED_EBUSY:
        return "another thread is starting a collective on this communicator; nothing has changed";
    case RINGRED_EFORKED:
        return "this process is a fork of the one that made the communicator";
    case RINGRED_ENOMEM:
        return "out of memory; nothing has changed";
    case RINGRED_ELIMIT:
        return "out of descriptors, requests or shared memory; nothing has changed";
    case RINGRED_ESYSTEM:
        return "a system call failed";
    case RINGRED_EPEER:
        return "a peer died, left or reset its connection; the communicator is broken";
    case RINGRED_ETIMEOUT:
        return "the time is over";
    case RINGRED_EABORTED:
        return "the communicator was aborted";
    case RINGRED_EWIRE:
        return "a peer sent bytes that no ringred peer would send; the communicator is broken";
    case RINGRED_EINTERRUPTED:
        return "the caller's function interrupted a call that sets up or tears down";
    case RINGRED_EPARTITION:
        return "too few ranks are left to go on; the others may have gone on without this one";
    case RINGRED_EMISMATCH:
        return "ranks asked for different collectives; the communicator is broken";
    case RINGRED_ECONFIG:
        return "ranks were started with contradicting ranks, sizes or settings";
    case RINGRED_EVERSION:
        return "a peer or a caller speaks another version";
    case RINGRED_EAUTH:
        return "a peer did not prove that it knows the job's key";
    case RINGRED_EINTERNAL:
        return "a mistake in libringred";
    default:
        return "unknown status";
    }
}

void ringred_error_init(ringred_error *error)
{
    if (error)
        *error = (ringred_error){ .struct_size = sizeof *error, .rank = -1 };
}
