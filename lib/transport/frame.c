/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a frame, written and read. What is read comes from outside and is checked here. */
#include "transport/frame.h"

#include <string.h>

static void put(unsigned char **at, const void *value, size_t bytes)
{
    memcpy(*at, value, bytes);
    *at += bytes;
}

void rr_frame_write(const struct rr_frame *f, unsigned char *to)
{
    const unsigned char head[4] = { f->kind, f->ask.collective, f->ask.type, f->ask.op };
    uint32_t sequence = (uint32_t)f->ask.sequence;

    put(&to, head, sizeof head);
    put(&to, &f->length, sizeof f->length);
    put(&to, &f->channel, sizeof f->channel);
    put(&to, &f->slot, sizeof f->slot);
    put(&to, &f->segment, sizeof f->segment);
    put(&to, &f->ask.root, sizeof f->ask.root);
    put(&to, &sequence, sizeof sequence);
    put(&to, &f->ask.count, sizeof f->ask.count);
}

int rr_frame_read(const unsigned char *from, int peer, struct rr_frame *f, ringred_error *why)
{
    struct rr_reader r = { from, from + RR_FRAME_BYTES, false };

    memset(f, 0, sizeof *f);
    f->kind = rr_read_u8(&r);
    f->ask.collective = rr_read_u8(&r);
    f->ask.type = rr_read_u8(&r);
    f->ask.op = rr_read_u8(&r);
    f->length = rr_read_u32(&r);
    f->channel = rr_read_u16(&r);
    f->slot = rr_read_u16(&r);
    f->segment = rr_read_u32(&r);
    f->ask.root = (int32_t)rr_read_u32(&r);
    f->ask.sequence = rr_read_u32(&r);
    f->ask.count = rr_read_u64(&r);

    bool data = f->kind == RR_FRAME_DATA || f->kind == RR_FRAME_STRIPE;
    uint32_t most = data ? RR_FRAME_MOST : f->kind == RR_FRAME_FAULT ? RR_FAULT_BYTES : 0; /* of others, and of offers */
    if (r.bad || f->kind < RR_FRAME_DATA || f->kind > RR_FRAME_LEAVE || f->length > most)
        return rr_fail(why, RINGRED_EWIRE, peer, 0,
                       "rank %d sent a frame of kind %u with %u bytes, which no ringred peer sends", peer,
                       f->kind, f->length);
    return 0;
}

size_t rr_frame_write_fault(const ringred_error *why, unsigned char *to)
{
    unsigned char *at = to;
    uint16_t text = (uint16_t)strnlen(why->text, RR_FAULT_BYTES - 10);

    put(&at, &why->code, sizeof why->code);
    put(&at, &why->rank, sizeof why->rank);
    put(&at, &text, sizeof text);
    put(&at, why->text, text);
    return (size_t)(at - to);
}

int rr_frame_read_fault(struct rr_reader *r, int ranks, int peer, ringred_error *why)
{
    char text[RR_FAULT_BYTES] = "";
    int32_t code = (int32_t)rr_read_u32(r), rank = (int32_t)rr_read_u32(r);
    uint16_t bytes = rr_read_u16(r);

    if (bytes < sizeof text)
        rr_read_bytes(r, text, bytes);
    else
        r->bad = true;
    if (r->bad || code >= 0 || rank < -1 || rank >= ranks)
        return rr_fail(why, RINGRED_EWIRE, peer, 0, "rank %d reported a failure that cannot be read", peer);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = '?';
    if (!*text)
        return rr_fail(why, code, rank, 0, "rank %d reported a failure without words: %s", peer,
                       ringred_status_text(code));
    return rr_fail(why, code, rank, 0, "%s", text);
}

int rr_ask_out_of_step(const struct rr_ask *mine, int my_rank, const struct rr_ask *theirs,
                       int their_rank, ringred_error *why)
{
    char a[128], b[128];
    struct rr_text left = { a, sizeof a, 0 }, right = { b, sizeof b, 0 };

    rr_ask_print(mine, &left);
    rr_ask_print(theirs, &right);
    return rr_fail(why, RINGRED_EMISMATCH, their_rank, 0,
                   "the ranks disagree: rank %d is in operation %llu, %s, and rank %d has gone on to "
                   "operation %llu, %s, without taking part",
                   my_rank, (unsigned long long)mine->sequence, a, their_rank,
                   (unsigned long long)theirs->sequence, b);
}
