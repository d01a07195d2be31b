/* SPDX-License-Identifier: Apache-2.0 */
/* A link with several channels whose other end has proved itself and then sends anything. Byte 0: how long the
 * messages are that we wait for; byte 1: how many bytes arrive at a time; the rest is what arrives. Meanwhile this
 * rank waits for a message of a plan on each of two channels and for one of any rank, and has offered one. Whatever
 * comes, nothing is written outside of the messages, and each failure has its code and a sentence. */
#include "fuzz.h"

#include "transport/frame.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUARD 64
#define TAG 3
#define LONG 40000

static const size_t lengths[] = { 0, 12, 4096, 5000, 33000, LONG };
static const struct rr_ask mine = { .collective = RR_ALLREDUCE, .type = 1, .op = 1, .count = 9, .sequence = 5 };

struct target {
    struct rr_transport *links;
    struct rr_channel *part;
    size_t length;
    struct rr_move m[2];        /* on the first channel, on the other */
    bool over[2];
    struct rr_talk in, out;
    bool sent;
    unsigned char *room[3];     /* of these messages, each with a guard */
};

static void must(bool claim)
{
    if (!claim)
        abort();
}

static bool is_fine(int rc, const ringred_error *why)
{
    if (rc >= 0)
        return true;
    must(why->code == rc && why->rank >= -1 && why->rank < 2 && why->text[0] &&
         memchr(why->text, 0, sizeof why->text));
    return false;
}

static void post(struct target *t, int i)
{
    uint16_t slot = (uint16_t)(t->m[i].slot + t->over[i]);

    t->m[i] = (struct rr_move){ .peer = 1, .way = 1, .channel = i ? t->part : NULL, .slot = slot, .bytes = t->room[i],
                                .length = t->length, .ask = &mine };
    t->over[i] = false;
}

static void listen_again(struct target *t)
{
    t->in = (struct rr_talk){ .move = { .peer = -1, .way = -1, .channel = t->part, .bytes = t->room[2] },
                              .ask = { .collective = RR_TALK, .type = RINGRED_UINT8, .root = TAG },
                              .most = t->length, .element_bytes = 1 };
}

/* As the engine does. false: it is over. */
static bool turn(struct target *t, bool looks)
{
    ringred_error why = { 0 };
    uint8_t gone[2] = { 0 };

    for (int i = 0; i < 2; i++) {
        int rc = 0;
        for (int n = 0; n < 3 && rc == 0; n++) {
            rc = t->links->ops->recv(t->links, &t->m[i], &why);
            must(t->m[i].done <= t->m[i].length);
            if (rc == 0) {
                t->over[i] = true;
                post(t, i);
            }
        }
        if (!is_fine(rc, &why))
            return false;
    }
    int rc = rr_talk_recv(t->links, &t->in, &why);
    if (!is_fine(rc, &why))
        return false;
    if (rc == 0) {
        must(t->in.ask.count <= t->length && t->in.ask.root == TAG && t->in.move.way == 1);
        listen_again(t);
    }
    rc = t->sent ? 0 : rr_talk_send(t->links, &t->out, &why);
    t->sent = rc == 0;
    if (!is_fine(rc, &why))
        return false;
    return !looks || (is_fine(t->links->ops->check(t->links, gone, &why), &why) &&
                      is_fine(rr_talk_look(t->links, &t->in, NULL, &why), &why));
}

static bool target_open(struct target *t, int fd)
{
    static struct rr_settings settings;
    static const char *const arguments[] = { "tcp_congestion=system", NULL };
    static const struct rr_congestion none = { "", "" };
    static unsigned char offered[LONG];
    const int fds[2] = { -1, fd };
    const int16_t member[2] = { 0, 1 };
    ringred_error why;

    if (!rr_setting_text(&settings, RR_SET_TCP_CONGESTION)[0])
        must(rr_settings_load(&settings, arguments, &why) == 0);
    if (rr_tcp_open(2, 0, fds, 1, &none, &settings, NULL, &t->links, &why) < 0)
        return false;
    must(rr_channel_new(t->links, 2, member, &t->part, &why) == 0);
    rr_channel_route(t->part, 1, 1);
    for (int i = 0; i < 3; i++) {
        t->room[i] = malloc(t->length + GUARD);
        must(t->room[i] != NULL);
        memset(t->room[i], 0x5a, t->length + GUARD);
    }
    for (int i = 0; i < 2; i++) {
        t->links->ops->begin(t->links, i ? t->part : NULL, &mine);
        post(t, i);
    }
    listen_again(t);
    t->out = (struct rr_talk){ .move = { .peer = 1, .way = 1, .channel = t->part, .bytes = offered, .length = LONG },
                               .ask = { .collective = RR_TALK, .type = RINGRED_UINT8, .root = TAG, .count = LONG },
                               .element_bytes = 1 };
    rr_talk_start_send(t->links, &t->out);
    return true;
}

static void target_close(struct target *t)
{
    const ringred_error why = { .code = RINGRED_EWIRE, .rank = 1, .text = "enough of this" };

    t->links->ops->tell(t->links, &why);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < GUARD; k++)
            must(t->room[i][t->length + k] == 0x5a);
        free(t->room[i]);
    }
    (void)t->links->ops->close(t->links, 7, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct target t = { 0 };
    int end[2];
    bool goes_on = true;

    if (bytes < 2 || bytes > ((size_t)1 << 20) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
        return 0;
    size_t piece = data[1] ? 8u * data[1] : bytes;
    t.length = lengths[data[0] % 6];
    if (!target_open(&t, end[0])) {
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

static size_t put(uint8_t *to, size_t at, enum rr_frame_kind kind, int channel, struct rr_ask ask, int slot, size_t bytes)
{
    struct rr_frame f = { .kind = (uint8_t)kind, .length = (uint32_t)bytes, .channel = (uint16_t)channel,
                          .slot = (uint16_t)slot, .ask = ask };

    rr_frame_write(&f, to + at);
    memset(to + at + RR_FRAME_BYTES, 0x33, bytes);
    return at + RR_FRAME_BYTES + bytes;
}

static size_t count(uint8_t *to, size_t at, enum rr_frame_kind kind, int channel, int slot, uint64_t n)
{
    return put(to, at, kind, channel, (struct rr_ask){ .count = n }, slot, 0);
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    struct rr_ask talk = { .collective = RR_TALK, .type = RINGRED_UINT8, .root = TAG, .count = 12, .sequence = 1 };
    struct rr_ask early = mine;
    size_t at = 2;

    if (room < 8192 || which > 7)
        return 0;
    to[0] = (uint8_t)(which < 4 ? 1 : which);
    to[1] = (uint8_t)(which * 5);
    early.sequence = 6;
    if (which != 3)
        at = count(to, at, RR_FRAME_SHARE, 0, 0, 0);
    if (which % 2)
        at = put(to, at, RR_FRAME_DATA, 1, early, 0, 100);
    at = put(to, at, RR_FRAME_DATA, 1, mine, 0, which < 4 ? 12 : 100);
    at = put(to, at, RR_FRAME_DATA, 1, talk, RR_TALK_SLOT, 12);
    at = count(to, at, RR_FRAME_TAKE, 1, 0, 1);
    at = count(to, at, RR_FRAME_CREDIT, 1, which % 3 ? RR_TALK_SLOT : 0, 8192);
    at = count(to, at, RR_FRAME_WANT, 0, 0, 1);
    talk.count = 5000;
    talk.sequence = 2;
    at = put(to, at, RR_FRAME_OFFER, 1, talk, RR_TALK_SLOT, 0);
    at = put(to, at, RR_FRAME_DATA, 0, mine, 0, 12);
    at = count(to, at, RR_FRAME_LEAVE, 1, 0, 5);
    return which % 2 ? put(to, at, RR_FRAME_BYE, 0, mine, 0, 0) : at;
}
