/* SPDX-License-Identifier: Apache-2.0 */
/* The line: notes between a rank and the root, or between two ranks of a reunion, over a connection that has been
 * proved; and the forms of what they carry. Whoever reads a note decides whether its kind and length are what it waits
 * for. */
#include "boot/inside.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MOST 1024 /* bytes in a record: a root has two for each rank */

struct rr_line_seal {
    struct rr_sealing in, out;
    size_t got, holds, length, sent; /* of the record that comes; bytes in, and of, the one that goes, and sent */
    unsigned char record_in[RECORD_MOST + RR_RECORD_MORE], record_out[RECORD_MOST + RR_RECORD_MORE];
};

void rr_line_init(struct rr_line *l, int fd, int rank)
{
    memset(l, 0, sizeof *l);
    l->fd = fd;
    l->at = -1;
    l->rank = rank;
}

int rr_line_open(struct rr_line *l, int fd, int rank, const struct rr_seal *seal)
{
    rr_line_init(l, fd, rank);
    if (seal->cipher == RR_CIPHER_NONE)
        return 0;
    l->seal = rr_alloc_aligned(RR_LINE, sizeof *l->seal);
    if (!l->seal) {
        rr_line_close(l);
        return RINGRED_ENOMEM;
    }
    rr_sealing_init(&l->seal->out, seal->cipher, seal->out);
    rr_sealing_init(&l->seal->in, seal->cipher, seal->in);
    return 0;
}

void rr_line_close(struct rr_line *l)
{
    if (l->fd >= 0)
        rr_fd_close(l->fd);
    l->fd = -1;
    l->sending = false;
    if (l->seal)
        sodium_memzero(l->seal, sizeof *l->seal);
    rr_free(l->seal);
    l->seal = NULL;
}

/* ---- records, where it is encrypted ---- */

/* As recv does, of what the next record holds: all of it, so that poll tells of whatever is left. */
static ssize_t recv_sealed(struct rr_line *l, unsigned char *to, size_t room)
{
    struct rr_line_seal *s = l->seal;

    for (;;) {
        size_t length = s->got < RR_RECORD_HEAD ? 0 : rr_record_length(s->record_in);
        size_t whole = s->got < RR_RECORD_HEAD ? RR_RECORD_HEAD : length + RR_RECORD_MORE;
        if (s->got >= RR_RECORD_HEAD && (length == 0 || length > room || length > RECORD_MOST))
            break;
        if (s->got == whole) {
            s->got = 0;
            if (!rr_unseal_record(&s->in, s->record_in, to))
                break;
            return (ssize_t)length;
        }
        ssize_t n = recv(l->fd, s->record_in + s->got, whole - s->got, 0);
        if (n <= 0)
            return n;
        s->got += (size_t)n;
    }
    errno = EBADMSG;
    return -1;
}

/* As send does. What is refused after its record has begun to go must come again as it was. */
static ssize_t send_sealed(struct rr_line *l, const unsigned char *from, size_t bytes, int flags)
{
    struct rr_line_seal *s = l->seal;

    if (!s->holds) {
        s->holds = bytes < RECORD_MOST ? bytes : RECORD_MOST;
        s->length = rr_seal_record(&s->out, from, s->holds, s->record_out);
        s->sent = 0;
    }
    while (s->sent < s->length) {
        ssize_t n = send(l->fd, s->record_out + s->sent, s->length - s->sent, flags);
        if (n < 0)
            return n;
        s->sent += (size_t)n;
    }
    size_t held = s->holds;
    s->holds = 0;
    return (ssize_t)held;
}

/* ---- reading ---- */

static enum rr_line_news end(struct rr_line *l, int system)
{
    l->system = system;
    return RR_LINE_ENDED;
}

/* Reads until `*done` is `bytes`. QUIET: not yet. */
static enum rr_line_news fill(struct rr_line *l, unsigned char *to, size_t bytes, size_t *done,
                              enum rr_line_news full)
{
    while (*done < bytes) {
        ssize_t n = l->seal ? recv_sealed(l, to + *done, bytes - *done) : recv(l->fd, to + *done, bytes - *done, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RR_LINE_QUIET;
        if (n <= 0)
            return end(l, n < 0 ? errno : 0);
        *done += (size_t)n;
    }
    return full;
}

enum rr_line_news rr_line_read(struct rr_line *l)
{
    enum rr_line_news news = fill(l, l->head, RR_NOTE_HEAD, &l->head_done, RR_LINE_HEADED);
    struct rr_reader r = { l->head, l->head + RR_NOTE_HEAD, false };

    if (news != RR_LINE_HEADED)
        return news;
    l->in.kind = rr_read_u32(&r);
    l->in.step = rr_read_u32(&r);
    l->in.bytes = rr_read_u64(&r);
    if (l->in.kind == RR_NOTE_FAIL && l->in.bytes == RR_FAIL_BYTES)
        l->body = l->fail;
    if (!l->body && l->in.bytes)
        return RR_LINE_HEADED;
    return fill(l, l->body, l->in.bytes, &l->body_done, RR_LINE_WHOLE);
}

bool rr_line_wants_input(const struct rr_line *l)
{
    return l->head_done < RR_NOTE_HEAD || (l->body && l->body_done < l->in.bytes);
}

void rr_line_next(struct rr_line *l)
{
    l->head_done = l->body_done = 0;
    l->body = NULL;
}

/* ---- writing ---- */

void rr_line_send(struct rr_line *l, enum rr_note_kind kind, uint32_t step, const void *body,
                  size_t bytes)
{
    uint32_t k = kind;
    uint64_t n = bytes;

    memcpy(l->out_head, &k, 4);
    memcpy(l->out_head + 4, &step, 4);
    memcpy(l->out_head + 8, &n, 8);
    l->out = body;
    l->out_bytes = bytes;
    l->out_done = 0;
    l->sending = true;
}

int rr_line_write(struct rr_line *l)
{
    while (l->sending && l->out_done < RR_NOTE_HEAD + l->out_bytes) {
        bool head = l->out_done < RR_NOTE_HEAD;
        const unsigned char *at =
            head ? l->out_head + l->out_done : l->out + (l->out_done - RR_NOTE_HEAD);
        size_t left = head ? RR_NOTE_HEAD - l->out_done : RR_NOTE_HEAD + l->out_bytes - l->out_done;
        int flags = MSG_NOSIGNAL | (head && l->out_bytes ? MSG_MORE : 0);
        ssize_t n = l->seal ? send_sealed(l, at, left, flags) : send(l->fd, at, left, flags);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RINGRED_PENDING;
        if (n < 0) {
            l->system = errno;
            return -1;
        }
        l->out_done += (size_t)n;
    }
    l->sending = false;
    return 0;
}

/* ---- forms ---- */

static void read_text(struct rr_reader *r, char *to, size_t bytes)
{
    rr_read_bytes(r, to, bytes);
    to[bytes - 1] = 0;
    rr_text_tame(to);
}

void rr_fail_write(const ringred_error *why, unsigned char to[RR_FAIL_BYTES])
{
    memset(to, 0, RR_FAIL_BYTES);
    memcpy(to, &why->code, 4);
    memcpy(to + 4, &why->rank, 4);
    memcpy(to + 8, &why->system, 4);
    memcpy(to + 16, why->text, sizeof why->text - 1);
}

int rr_fail_read(const unsigned char *from, size_t bytes, ringred_error *why)
{
    struct rr_reader r = { from, from + bytes, false };

    memset(why, 0, sizeof *why);
    why->struct_size = sizeof *why;
    why->code = (int32_t)rr_read_u32(&r);
    why->rank = (int32_t)rr_read_u32(&r);
    why->system = (int32_t)rr_read_u32(&r);
    (void)rr_read_u32(&r); /* zero */
    rr_read_bytes(&r, why->text, sizeof why->text);
    why->text[sizeof why->text - 1] = 0;
    rr_text_tame(why->text);
    if (why->rank < -1 || why->rank >= RR_RANKS_MOST)
        why->rank = -1;
    if (r.bad || why->code >= 0 || why->code < -999 || !why->text[0])
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "a peer told of a failure that is none");
    return why->code;
}

int rr_entry_ways(const struct rr_entry *e, uint64_t net, struct rr_address to[RR_ADDRESSES])
{
    int n = 0;

    for (int i = 0; i < e->addresses; i++)
        if (e->address[i].family != RR_FAMILY_NONE && (!e->address[i].loopback || e->net == net))
            to[n++] = e->address[i];
    return n;
}

void rr_entry_write(const struct rr_entry *e, unsigned char to[RR_ENTRY_BYTES])
{
    uint32_t count = (uint32_t)e->addresses;

    memset(to, 0, RR_ENTRY_BYTES);
    memcpy(to, &e->member.host, 8);
    memcpy(to + 8, &e->net, 8);
    memcpy(to + 16, &e->member.pid, 4);
    memcpy(to + 20, e->member.name, 63);
    memcpy(to + 84, e->local, 16);
    memcpy(to + 100, &count, 4);
    for (int i = 0; i < e->addresses; i++)
        rr_address_write(&e->address[i], to + 104 + i * RR_ADDRESS_BYTES);
}

int rr_entry_read(struct rr_reader *r, struct rr_entry *e)
{
    uint32_t count;

    memset(e, 0, sizeof *e);
    e->member.host = rr_read_u64(r);
    e->net = rr_read_u64(r);
    e->member.pid = (int32_t)rr_read_u32(r);
    read_text(r, e->member.name, sizeof e->member.name);
    rr_read_bytes(r, e->local, sizeof e->local);
    count = rr_read_u32(r);
    for (int i = 0; i < RR_ADDRESSES; i++)
        rr_address_read(r, &e->address[i]);
    if (r->bad || count > RR_ADDRESSES)
        return RINGRED_EWIRE;
    e->addresses = (int)count;
    return 0;
}

void rr_join_write(const struct rr_join *j, unsigned char to[RR_JOIN_BYTES])
{
    memset(to, 0, 32);
    memcpy(to, &j->size, 4);
    memcpy(to + 8, &j->left_ms, 8);
    memcpy(to + 16, j->release, strnlen(j->release, sizeof j->release - 1));
    rr_entry_write(&j->entry, to + 32);
}

int rr_join_read(const unsigned char *from, size_t bytes, struct rr_join *j)
{
    struct rr_reader r = { from, from + bytes, false };

    j->size = rr_read_u32(&r);
    (void)rr_read_u32(&r); /* zero */
    j->left_ms = rr_read_u64(&r);
    read_text(&r, j->release, sizeof j->release);
    RR_TRY(rr_entry_read(&r, &j->entry));
    return r.at == r.end ? 0 : RINGRED_EWIRE;
}

int rr_table_read(const unsigned char *from, size_t bytes, int size,
                  unsigned char session[RR_JOB_BYTES], struct rr_entry *entries)
{
    struct rr_reader r = { from, from + bytes, false };

    rr_read_bytes(&r, session, RR_JOB_BYTES);
    for (int i = 0; i < size; i++)
        RR_TRY(rr_entry_read(&r, &entries[i]));
    return r.bad || r.at != r.end ? RINGRED_EWIRE : 0;
}
