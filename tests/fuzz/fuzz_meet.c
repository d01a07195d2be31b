/* SPDX-License-Identifier: Apache-2.0 */
/* A rendezvous with a peer that has proved itself and then says anything. Byte 0: bit 0: whether ours is the root; bits 1 to 6: as
 * which rank the peer came to it, where from 32 on another came before as the same one, and has gone; bit 7: this is a later
 * exchange, which both have come to. The rest is what the peer says. Whatever it is, the set-up ends or waits; it does no
 * harm. */
#include "fuzz.h"

#include "boot/inside.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS 3
#define LATER 40 /* bytes of a rank in a later exchange */
#define TABLE (RR_JOB_BYTES + RANKS * RR_ENTRY_BYTES)

struct room {
    struct rr_boot boot;
    struct rr_entry entry[RANKS];
    struct rr_line line[RANKS + RR_SPARE_LINES];
    struct pollfd polls[64];
    unsigned char joins[(RANKS + RR_SPARE_LINES) * RR_JOIN_BYTES], table[TABLE];
    struct rr_dial dial[RANKS];
};

/* As whom a peer may prove itself: its claim is any number. */
static const int claims[] = { 1, 2, 0, RANKS, -1, -5, 2000000, INT32_MAX, INT32_MIN };

static void come_and_go(struct rr_boot *b, int claim)
{
    int end[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return;
    rr_meet_admit(b, end[0], claim, 0, &(struct rr_seal){ 0 });
    close(end[1]);
}

static void prepare(struct room *m, uint8_t how, int fd)
{
    bool root = how & 1, later = how & 128;
    int which = how >> 1 & 63, claim = claims[which % (sizeof claims / sizeof *claims)];
    struct rr_boot *b = &m->boot;

    b->rank = root ? 0 : 1;
    b->size = RANKS;
    b->is_root = root;
    b->deadline_ns = INT64_MAX;
    b->entry = m->entry;
    b->line = m->line;
    b->dial = m->dial;
    b->lines = root ? RANKS + RR_SPARE_LINES : 1;
    b->polls = (struct rr_polls){ m->polls, 0, 64, 0 };
    for (int i = 0; i < b->lines; i++)
        rr_line_init(&m->line[i], -1, i < RANKS ? i : -1);
    if (root && which >= 32)
        come_and_go(b, claim);
    if (root)
        rr_meet_admit(b, fd, claim, 0, &(struct rr_seal){ 0 });
    else
        rr_line_init(&m->line[0], fd, 0);
    struct rr_gathering x = { .up = RR_NOTE_JOIN,
                              .down = RR_NOTE_TABLE,
                              .ups = m->joins,
                              .mine = m->joins,
                              .answer = m->table,
                              .up_bytes = RR_JOIN_BYTES,
                              .down_bytes = TABLE };
    if (later) {
        x = (struct rr_gathering){ .up = RR_NOTE_UP, .down = RR_NOTE_DOWN, .ups = m->joins, .mine = m->joins,
                                   .answer = m->table, .up_bytes = LATER, .down_bytes = RANKS * LATER };
        for (int i = 0; i < b->lines && i < RANKS; i++)
            m->line[i].joined = true;
    }
    rr_gathering_begin(b, &x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct room *m = calloc(1, sizeof *m);
    int end[2];

    if (!m || bytes < 1 || sodium_init() < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0) {
        free(m);
        return 0;
    }
    bool root = data[0] & 1;
    prepare(m, data[0], end[0]);
    if (bytes > 1 && send(end[1], data + 1, bytes - 1, MSG_NOSIGNAL) < 0)
        bytes = 1;
    close(end[1]);
    for (int turns = 0; turns < 16 && m->boot.failure.code == 0 && !m->boot.x.done; turns++) {
        m->boot.polls.wake_ns = 0; /* look, and do not wait */
        (void)rr_boot_turn(&m->boot);
    }
    if (m->boot.x.done && !root && !(data[0] & 128)) {
        unsigned char session[RR_JOB_BYTES];
        (void)rr_table_read(m->table, sizeof m->table, RANKS, session, m->entry);
    }
    if (m->boot.failure.code > 0)
        abort();
    for (int i = 0; i < m->boot.lines; i++)
        rr_line_close(&m->line[i]);
    rr_dial_drop(&m->dial[0]);
    free(m);
    return 0;
}

static size_t note(uint8_t *to, uint32_t kind, uint32_t step, const void *body, size_t bytes)
{
    uint64_t n = bytes;

    memcpy(to, &kind, 4);
    memcpy(to + 4, &step, 4);
    memcpy(to + 8, &n, 8);
    if (bytes)
        memcpy(to + 16, body, bytes);
    return 16 + bytes;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    struct rr_join j = { .size = RANKS, .left_ms = 1000, .release = RINGRED_VERSION, .entry = { .addresses = 2 } };
    unsigned char body[TABLE > RR_JOIN_BYTES ? TABLE : RR_JOIN_BYTES] = "session";
    ringred_error why = { .code = RINGRED_ECONFIG, .rank = 2, .text = "rank 2 was started twice" };
    size_t n = 1;

    if (room < 8192)
        return 0;
    memcpy(j.entry.member.name, "a-host", 7);
    j.entry.address[0].family = RR_FAMILY_IP4;
    j.entry.address[1].family = RR_FAMILY_IP6;
    to[0] = which == 0 || which == 3;
    if (which >= 4 && which < 4 + 2 * (int)(sizeof claims / sizeof *claims)) { /* join, bye */
        to[0] = (uint8_t)(1 | (which - 4) / 2 << 1);
        which = which % 2 ? 4 : 0;
    }
    switch (which) {
    case 0:
        rr_join_write(&j, body);
        return n + note(to + n, RR_NOTE_JOIN, 1, body, RR_JOIN_BYTES);
    case 1:
        for (int r = 0; r < RANKS; r++)
            rr_entry_write(&j.entry, body + RR_JOB_BYTES + r * RR_ENTRY_BYTES);
        n += note(to + n, RR_NOTE_HERE, 1, NULL, 0);
        return n + note(to + n, RR_NOTE_TABLE, 1, body, TABLE);
    case 2:
    case 3:
        rr_fail_write(&why, body);
        n += note(to + n, RR_NOTE_UP, 2, NULL, 0);
        return n + note(to + n, RR_NOTE_FAIL, 0, body, RR_FAIL_BYTES);
    case 4 + 2 * sizeof claims / sizeof *claims:
    case 5 + 2 * sizeof claims / sizeof *claims:
        to[0] = (uint8_t)(which & 1);
        rr_fail_write(&why, body);
        return n + note(to + n, RR_NOTE_FAIL, 1, body, RR_FAIL_BYTES);
    case 6 + 2 * sizeof claims / sizeof *claims: /* up and bye; twice; what is due later; down; an end */
    case 7 + 2 * sizeof claims / sizeof *claims:
    case 8 + 2 * sizeof claims / sizeof *claims:
        to[0] = 129;
        n += note(to + n, RR_NOTE_UP, 1, body, LATER);
        if (which & 2)
            n += note(to + n, RR_NOTE_UP, which & 1 ? 2 : 1, body, LATER);
        return n + note(to + n, RR_NOTE_BYE, 0, NULL, 0);
    case 9 + 2 * sizeof claims / sizeof *claims:
    case 10 + 2 * sizeof claims / sizeof *claims:
        to[0] = 128;
        n += note(to + n, which & 1 ? RR_NOTE_DOWN : RR_NOTE_HERE, 1, body, which & 1 ? RANKS * LATER : 0);
        return n + note(to + n, RR_NOTE_BYE, 0, NULL, 0);
    case 11 + 2 * sizeof claims / sizeof *claims:
        to[0] = 129;
        return n + 10;
    case 12 + 2 * sizeof claims / sizeof *claims:
        to[0] = 128;
        return n + 10;
    case 13 + 2 * sizeof claims / sizeof *claims:
        to[0] = 1 | 36 << 1; /* rank 1 again */
        rr_join_write(&j, body);
        return n + note(to + n, RR_NOTE_JOIN, 1, body, RR_JOIN_BYTES);
    case 4:
        return n + note(to + n, RR_NOTE_BYE, 0, NULL, 0);
    default:
        return 0;
    }
}
