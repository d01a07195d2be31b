/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose other end has proved itself and then sends anything. Byte 0: how long the messages are
 * that we wait for; byte 1: how many bytes arrive at a time; the rest is what arrives. Whatever it is,
 * nothing is written outside of the messages, nobody waits in vain, and each failure has its code and
 * a sentence. */
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

static bool target_open(struct target *t, size_t length, int fd)
{
    static struct rr_settings settings;
    static const char *const arguments[] = { "tcp_congestion=system", NULL };
    static const struct rr_congestion none = { "", "" };
    const int fds[2] = { -1, fd };
    ringred_error why;

    t->room = malloc(length + GUARD);
    must(t->room != NULL);
    memset(t->room, 0x5a, length + GUARD);
    t->m.length = length;
    if (!rr_setting_text(&settings, RR_SET_TCP_CONGESTION)[0])
        must(rr_settings_load(&settings, arguments, &why) == 0);
    if (rr_tcp_open(2, 0, fds, 1, &none, &settings, NULL, &t->links, &why) < 0) {
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct target t = { 0 };
    int end[2];
    bool goes_on = true;

    if (bytes < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
        return 0;
    size_t piece = data[1] ? 8u * data[1] : bytes;
    if (!target_open(&t, lengths[data[0] % 6], end[0])) {
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
    if (goes_on)
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

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
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
