/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose other end has proved itself and then sends anything. Byte 0: how long the messages are that we wait for; byte 1:
 * how many bytes arrive at a time; the rest is what arrives. With bit 7 of byte 0 the link has two streams, and what arrives comes
 * in pieces: a byte (bit 0: the stream, bit 1: filling), one of length, and these bytes. Whatever it is, nothing is written outside
 * of the messages, nobody waits in vain, and each failure has its code and a sentence. */
#include "fuzz.h"

#include "transport/frame.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGES 3
#define GUARD 64

static const size_t lengths[] = { 0, 12, 100, 4096, 5000, 20000 };
static const struct rr_ask mine = { .collective = RR_ALLREDUCE, .type = 1, .op = 1, .count = 9, .sequence = 5 };

struct target {
    struct rr_transport *links;
    struct rr_move m;
    unsigned char *room;        /* the message and a guard */
    int messages;               /* that have arrived */
};

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void post(struct target *t)
{
    t->m = (struct rr_move){ .peer = 1, .slot = (uint16_t)t->messages, .segment = (uint32_t)t->messages,
                             .bytes = t->room, .length = t->m.length, .ask = &mine };
}

/* false: it is over. */
static bool is_fine(int rc, const ringred_error *why)
{
    if (rc >= 0)
        return true;
    must(why->code == rc && why->rank >= -1 && why->rank < 2 && why->text[0] &&
         memchr(why->text, 0, sizeof why->text));
    return false;
}

/* As the engine does: receives what it can, now and then looks after the peer. */
static bool turn(struct target *t, bool looks)
{
    ringred_error why = { 0 };
    uint8_t gone[2] = { 0 };
    int rc = 0;

    while (t->messages < MESSAGES && rc == 0) {
        rc = t->links->ops->recv(t->links, &t->m, &why);
        must(t->m.done <= t->m.length);
        if (rc == 0) {
            t->messages++;
            post(t);
        }
    }
    if (!is_fine(rc, &why))
        return false;
    return !looks || is_fine(t->links->ops->check(t->links, gone, &why), &why);
}

static bool target_open(struct target *t, size_t length, const int *fd, int streams)
{
    static struct rr_settings settings;
    static const char *const arguments[] = { "tcp_congestion=system", NULL };
    static const struct rr_congestion none = { "", "" };
    const int fds[4] = { -1, streams > 1 ? -1 : fd[0], fd[0], streams > 1 ? fd[1] : -1 };
    ringred_error why;

    t->room = malloc(length + GUARD);
    must(t->room != NULL);
    memset(t->room, 0x5a, length + GUARD);
    t->m.length = length;
    if (!rr_setting_text(&settings, RR_SET_TCP_CONGESTION)[0])
        must(rr_settings_load(&settings, arguments, &why) == 0);
    if (rr_tcp_open(2, 0, fds, streams, &none, &settings, NULL, &t->links, &why) < 0) {
        free(t->room);
        return false;
    }
    t->links->ops->begin(t->links, NULL, &mine);
    post(t);
    return true;
}

static void target_close(struct target *t)
{
    const ringred_error why = { .code = RINGRED_EWIRE, .rank = 1, .text = "enough of this" };
    size_t length = t->m.length;

    t->links->ops->tell(t->links, &why);
    t->links->ops->probe(t->links, NULL, &mine);
    for (size_t i = 0; i < GUARD; i++)
        must(t->room[length + i] == 0x5a);
    free(t->room); /* what the engine lent is the caller's again */
    (void)t->links->ops->close(t->links, 7, 0);
}

/* This end has something to say, too, perhaps to somebody who has gone: what he said last counts. */
static void answer(struct target *t)
{
    static char words[64];
    struct rr_move m = { .peer = 1, .bytes = words, .length = sizeof words, .ask = &mine };
    ringred_error why = { 0 };

    (void)is_fine(t->links->ops->send(t->links, &m, &why), &why);
}

/* Pieces on two streams. */
static void striped(const uint8_t *data, size_t bytes)
{
    static const uint8_t filling[255 * 64];
    struct target t = { 0 };
    int ours[2], theirs[2];
    bool goes_on = true;

    for (int i = 0; i < 2; i++) {
        int end[2];
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) == 0);
        ours[i] = end[0];
        theirs[i] = end[1];
    }
    must(target_open(&t, data[1] & 1 ? 20000 : 70000, ours, 2));
    for (size_t at = 2; at + 2 <= bytes && goes_on;) {
        uint8_t how = data[at];
        size_t n = data[at + 1];
        at += 2;
        size_t k = how & 2 ? n * 64 : n < bytes - at ? n : bytes - at;
        const uint8_t *from = how & 2 ? filling : data + at;
        at += how & 2 ? 0 : k;
        goes_on = send(theirs[how & 1], from, k, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 && turn(&t, how & 4);
        if (how & 8)
            (void)shutdown(theirs[how & 1], SHUT_WR);
    }
    if (goes_on)
        goes_on = turn(&t, true);
    close(theirs[0]);
    close(theirs[1]);
    if (goes_on)
        (void)turn(&t, true);
    target_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct target t = { 0 };
    int end[2];
    bool goes_on = true;

    if (bytes >= 2 && data[0] & 128) {
        striped(data, bytes);
        return 0;
    }
    if (bytes < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
        return 0;
    size_t piece = data[1] ? 8u * data[1] : bytes;
    if (!target_open(&t, lengths[(data[0] & 63) % 6], end, 1)) {
        close(end[1]);
        return 0;
    }
    for (size_t at = 2; at < bytes && goes_on; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        goes_on = send(end[1], data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 && turn(&t, at / piece % 3 == 2);
    }
    if (goes_on)
        goes_on = turn(&t, true);
    close(end[1]);
    if (goes_on && data[0] & 64)
        answer(&t);
    else if (goes_on)
        (void)turn(&t, true);
    target_close(&t);
    return 0;
}

/* ---- what a peer would say ---- */

static size_t put(uint8_t *to, size_t at, enum rr_frame_kind kind, uint64_t sequence, int slot,
                  const void *payload, size_t bytes)
{
    struct rr_frame f = { .kind = (uint8_t)kind, .length = (uint32_t)bytes, .slot = (uint16_t)slot,
                          .segment = (uint32_t)slot, .ask = mine };

    f.ask.sequence = sequence;
    rr_frame_write(&f, to + at);
    if (payload)
        memcpy(to + at + RR_FRAME_BYTES, payload, bytes);
    else
        memset(to + at + RR_FRAME_BYTES, 0x33, bytes);
    return at + RR_FRAME_BYTES + bytes;
}

static size_t put_fault(uint8_t *to, size_t at)
{
    const ringred_error why = { .code = RINGRED_EMISMATCH, .rank = 1, .text = "the ranks disagree" };
    unsigned char payload[RR_FAULT_BYTES];
    size_t bytes = rr_frame_write_fault(&why, payload);

    return put(to, at, RR_FRAME_FAULT, 0, 0, payload, bytes);
}

static size_t head(uint8_t *to, size_t at, int stream, enum rr_frame_kind kind, int slot, uint32_t begin, size_t bytes)
{
    struct rr_frame f = { .kind = (uint8_t)kind, .length = (uint32_t)bytes, .slot = (uint16_t)slot, .segment = (uint32_t)slot,
                          .ask = mine };

    if (kind == RR_FRAME_STRIPE)
        f.ask.root = (int)begin;
    to[at] = (uint8_t)stream;
    to[at + 1] = RR_FRAME_BYTES;
    rr_frame_write(&f, to + at + 2);
    return at + 2 + RR_FRAME_BYTES;
}

static size_t fill(uint8_t *to, size_t at, int stream, size_t bytes)
{
    while (bytes) { /* whole 64s, then the rest */
        size_t n = bytes >= 64 ? bytes / 64 < 255 ? bytes / 64 : 255 : bytes;
        to[at] = (uint8_t)(stream | (bytes >= 64 ? 2 : 0));
        to[at + 1] = (uint8_t)n;
        at += 2;
        if (bytes < 64)
            memset(to + at, 0x33, n);
        at += bytes >= 64 ? 0 : n;
        bytes -= bytes >= 64 ? 64 * n : n;
    }
    return at;
}

/* Messages in two parts, whose stripes come after them, before them, twice, elsewhere, or not whole. */
static size_t stripes(int which, uint8_t *to)
{
    size_t first = 16384, all = 20000, at = 2;

    to[0] = 128;
    to[1] = 1;
    for (int i = 0; i < 2; i++) {
        int slot = which == 4 ? 2 : i;
        uint32_t begin = (uint32_t)first + (which == 3 ? 100 : 0);
        if (which == 1) { /* before the message */
            at = head(to, at, 1, RR_FRAME_STRIPE, slot, begin, all - first);
            at = fill(to, at, 1, all - first);
        }
        at = head(to, at, 0, RR_FRAME_DATA, i, 0, first);
        at = fill(to, at, 0, first);
        if (which == 6) { /* another that is longer than what is missing then */
            at = head(to, at, 1, RR_FRAME_STRIPE, slot, 100, 3000);
            at = fill(to, at, 1, 3000);
        }
        if (which != 1) {
            at = head(to, at, which == 2 ? 0 : 1, RR_FRAME_STRIPE, slot, begin, all - first);
            at = fill(to, at, which == 2 ? 0 : 1, which == 5 ? 100 : all - first);
        }
    }
    to[at++] = 1 | 8; /* that stream ends */
    to[at++] = 0;
    return head(to, at, 0, RR_FRAME_BYE, 0, 0, 0);
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    if (room >= 8192 && which >= 12 && which <= 18)
        return stripes(which - 12, to);
    if (room >= 8192 && which >= 19 && which <= 21) { /* the last words of somebody who has gone */
        size_t n = which == 19 ? put_fault(to, 2) : which == 20 ? put(to, 2, RR_FRAME_BYE, 9, 0, "", 0) : put(to, 2, RR_FRAME_ASK, 5, 0, "", 0);
        to[0] = 64 + 1;
        to[1] = 0;
        return n;
    }
    size_t at = 2, length = lengths[which % 6 == 5 ? 4 : which % 6];

    if (room < 8192 || which > 11)
        return 0;
    to[0] = (uint8_t)(which % 6);
    to[1] = which < 6 ? 0 : (uint8_t)(which * 3);
    if (length > 2000)
        length = which == 5 ? 1000 : length; /* the last one is of another length than is due */
    switch (which % 4) {
    case 0:
        at = put(to, at, RR_FRAME_ASK, 5, 0, "", 0);
        at = put(to, at, RR_FRAME_DATA, 5, 0, NULL, length);
        return put(to, at, RR_FRAME_BYE, 9, 0, "", 0);
    case 1:
        for (int i = 0; i < MESSAGES && length < 2000; i++)
            at = put(to, at, RR_FRAME_DATA, 5, i, NULL, length);
        return put_fault(to, at);
    case 2:
        at = put(to, at, RR_FRAME_DATA, 6, 0, NULL, 60);
        at = put(to, at, RR_FRAME_ASK, 6, 0, "", 0);
        at = put(to, at, RR_FRAME_DATA, 6, 1, NULL, 600);
        return put_fault(to, at);
    default:
        at = put(to, at, RR_FRAME_ASK, 4, 0, "", 0);
        at = put(to, at, RR_FRAME_ASK, 5, 0, "", 0);
        return put(to, at, RR_FRAME_DATA, 5, 0, NULL, length);
    }
}
