/* SPDX-License-Identifier: Apache-2.0 */
/* Links between ranks that share memory and have no others: their streams are rings in shared memory. They carry the
 * messages from one rank to another (talk.c), which use frames, credit and offers as they do on sockets. That a
 * peer has gone is told by its process and its page. */
#include "transport/link.h"
#include "transport/rings.h"

static int64_t ring_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    (void)system; /* the end of a mate is told elsewhere */
    return rr_rings_put(((struct rr_links *)self)->link[peer].stream[rail].rings, part, parts);
}

static int64_t ring_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    (void)system; /* the end of a mate is told elsewhere */
    return rr_rings_get(((struct rr_links *)self)->link[peer].stream[rail].rings, part, parts);
}

static const ringred_transport rings = {
    .struct_size = sizeof rings, .name = "shm", .text = "rings in shared memory", .send = ring_send, .recv = ring_recv
};

static const struct rr_transport_ops post_ops = { .struct_size = sizeof post_ops, .name = "shm", .ordered = true };

void rr_post_close(struct rr_transport *post)
{
    if (!post)
        return;
    struct rr_links *t = rr_links_of(post);
    for (int peer = 0; peer < t->ranks && t->link; peer++)
        if (t->link[peer].stream) {
            rr_rings_free(t->link[peer].stream->rings);
            rr_free(t->link[peer].stream->kept);
            rr_free(t->link[peer].stream);
        }
    rr_channels_free(t);
    rr_free(t->link);
    rr_free(t);
}

static int open_link(struct rr_shared *shared, struct rr_links *t, int peer)
{
    struct rr_link *l = &t->link[peer];

    l->stream = rr_alloc(1, sizeof *l->stream);
    if (!l->stream)
        return RINGRED_ENOMEM;
    l->streams = 1;
    *l->stream = (struct rr_stream){ .by = &rings, .self = t, .peer = peer, .fd = -1, .rings = rr_rings_new(shared, peer) };
    l->state = LINK_UP;
    return l->stream->rings ? 0 : RINGRED_ENOMEM;
}

int rr_post_prepare(struct rr_transport *post, int peer, ringred_error *why)
{
    return rr_rings_prepare(rr_links_of(post)->link[peer].stream->rings, why);
}

int rr_post_open(struct rr_shared *shared, int ranks, int me, const struct rr_log *log, struct rr_transport **post,
                 ringred_error *why)
{
    struct rr_links *t = rr_alloc(1, sizeof *t);
    int rc = t ? 0 : RINGRED_ENOMEM;

    if (rc == 0) {
        *t = (struct rr_links){ .base = { .ops = &post_ops, .core = &t->base }, .ranks = ranks, .me = me, .log = log };
        t->link = rr_alloc((size_t)ranks, sizeof *t->link);
        rc = t->link ? rr_channel_new(&t->base, ranks, NULL, &t->first, why) : RINGRED_ENOMEM;
    }
    for (int i = 0; i < shared->locals && rc == 0; i++)
        if (shared->local[i] != me)
            rc = open_link(shared, t, shared->local[i]);
    if (rc < 0) {
        rr_post_close(t ? &t->base : NULL);
        return rr_fail(why, rc, -1, 0, "no memory for messages between %d ranks", ranks);
    }
    *post = &t->base;
    return 0;
}
