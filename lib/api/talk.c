/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to messages from one rank to another. */
#include "core/core.h"

void ringred_message_init(ringred_message *message, size_t size)
{
    const ringred_message ours = { .source = RINGRED_ANY_SOURCE };

    rr_struct_init(message, size, &ours, sizeof ours);
}

static int check(ringred_comm *c, const struct rr_message *m)
{
    const char *what = m->sends ? "send" : "recv";
    size_t bytes = rr_type_bytes(m->type);

    if (!c)
        return RINGRED_EINVAL;
    if (!bytes)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %d is no type", what, m->type);
    if (m->count > (SIZE_MAX >> 1) / bytes)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: %zu elements are more than any memory has", what, m->count);
    if (m->count && !m->buffer)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: the buffer is NULL", what);
    if (m->peer >= c->ranks || m->peer < (m->sends ? 0 : RINGRED_ANY_SOURCE))
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: rank %d; give one from 0 to %d%s", what, m->peer, c->ranks - 1,
                              m->sends ? "" : ", or RINGRED_ANY_SOURCE");
    if (m->peer == c->rank || c->ranks == 1)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: rank %d, which is this one: a rank does not send to itself", what,
                              c->rank);
    if (m->tag < 0)
        return rr_comm_refuse(c, RINGRED_EINVAL, "%s: tag %d; give one from 0 up", what, m->tag);
    if (m->message && m->message->struct_size < sizeof *m->message)
        return rr_comm_refuse(c, RINGRED_EINVAL, "recv: message.struct_size is %u; call ringred_message_init first",
                              m->message->struct_size);
    return 0;
}

static int run(ringred_comm *c, const struct rr_message *m)
{
    RR_TRY(check(c, m));
    return rr_talk_run(c, m);
}

static int start(ringred_comm *c, const struct rr_message *m, ringred_request **request)
{
    RR_TRY(check(c, m));
    return request ? rr_talk_start(c, m, request)
                   : rr_comm_refuse(c, RINGRED_EINVAL, "%s: request is NULL", m->sends ? "send" : "recv");
}

int32_t ringred_send(ringred_comm *comm, const void *send, size_t count, int32_t type, int32_t dest, int32_t tag)
{
    return run(comm, &(struct rr_message){ true, send, count, type, dest, tag, NULL });
}

int32_t ringred_send_start(ringred_comm *comm, const void *send, size_t count, int32_t type, int32_t dest, int32_t tag,
                           ringred_request **request)
{
    return start(comm, &(struct rr_message){ true, send, count, type, dest, tag, NULL }, request);
}

int32_t ringred_recv(ringred_comm *comm, void *recv, size_t count, int32_t type, int32_t source, int32_t tag,
                     ringred_message *message)
{
    return run(comm, &(struct rr_message){ false, recv, count, type, source, tag, message });
}

int32_t ringred_recv_start(ringred_comm *comm, void *recv, size_t count, int32_t type, int32_t source, int32_t tag,
                           ringred_message *message, ringred_request **request)
{
    return start(comm, &(struct rr_message){ false, recv, count, type, source, tag, message }, request);
}
