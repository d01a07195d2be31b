/* SPDX-License-Identifier: Apache-2.0 */
/* A reunion with a rank that has proved itself and then says anything. Byte 0: which rank is ours, which is the other;
 * byte 1: how many bytes arrive at a time; the rest is what it says. Whatever it is, who takes part is never more than
 * there are, and each failure has a sentence. */
#include "fuzz.h"

#include "boot/reunion.c"

#include <stdlib.h>

#define RANKS 4
#define EACH (RR_FAIL_BYTES > RANKS + sizeof(ringred_unique_id) ? RR_FAIL_BYTES : RANKS + sizeof(ringred_unique_id))

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void nothing_known(void *context, uint8_t *fate)
{
    (void)context, (void)fate;
}

static void write_go(uint8_t go[RANKS + sizeof(ringred_unique_id)])
{
    uint16_t version = RR_WIRE_VERSION, count = 1;
    struct rr_address a = { .family = RR_FAMILY_IP4, .port = 4000, .ip = { 10, 1 } };
    unsigned char *id = go + RANKS;

    memset(go, 0, RANKS + sizeof(ringred_unique_id));
    memset(go, 1, RANKS);
    memcpy(id, "ringred#", 8);
    memcpy(id + 8, &version, 2);
    memcpy(id + 10, &count, 2);
    rr_address_write(&a, id + 68);
    crypto_shorthash(id + 240, id, 240, (const unsigned char *)"ringred#\0\0\0\0\0\0\0\0");
}

struct room {
    struct rr_reunion u;
    struct rr_reunion_call call;
    struct rr_meeting m;
    struct rr_settings settings;
    struct rr_log log;
    struct mate mate[RANKS];
    unsigned char said[RANKS][EACH], heard[RANKS][EACH], go[EACH];
    uint8_t fate[RANKS];
    struct pollfd at[4 * RANKS + RR_BOOT_STRANGERS];
};

static struct rr_meeting *prepare(struct room *room, int me, int other, int fd)
{
    struct rr_meeting *m = &room->m;

    room->u = (struct rr_reunion){ .holders = 1, .rank = me, .size = RANKS };
    room->call = (struct rr_reunion_call){ .log = &room->log, .settings = &room->settings, .look = nothing_known };
    *m = (struct rr_meeting){ .u = &room->u, .call = &room->call, .mate = room->mate, .go = room->go, .fate = room->fate };
    m->polls.at = room->at;
    m->polls.room = (int)(sizeof room->at / sizeof *room->at);
    for (int r = 0; r < RANKS; r++) {
        rr_line_init(&m->mate[r].out, -1, r);
        rr_line_init(&m->mate[r].in, -1, r);
        m->mate[r].said = room->said[r];
        m->mate[r].heard = room->heard[r];
    }
    admit(m, fd, other, 0, &(struct rr_seal){ 0 });
    return m;
}

/* What it has come to. */
static void judge(struct rr_meeting *m)
{
    int member[RANKS];
    struct rr_agreed agreed = { .member = member };
    ringred_error why = { 0 };

    if (m->failure.code)
        must(m->failure.code < 0 && m->failure.text[0] && memchr(m->failure.text, 0, sizeof m->failure.text) &&
             m->failure.rank >= -1 && m->failure.rank < RR_RANKS_MOST);
    if (m->named) {
        int rc = write_launch(m, &agreed, &why);
        must(rc < 0 ? why.code == rc && why.text[0] : agreed.launch.rank < agreed.launch.size && agreed.launch.size <= RANKS);
        for (int i = 0; rc == 0 && i < agreed.launch.size; i++)
            must(member[i] >= 0 && member[i] < RANKS && (i == 0 || member[i] > member[i - 1]));
    }
    (void)rr_reunion_lost(m);
    must(m->mate[m->u->rank].fate == 0 && lowest_here(m) <= m->u->rank);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct room *room = calloc(1, sizeof *room);
    int end[2];

    if (!room || bytes < 2 || sodium_init() < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0) {
        free(room);
        return 0;
    }
    int me = data[0] % RANKS, other = data[0] / RANKS % (RANKS + 1) - (data[0] >= 128);
    size_t piece = data[1] ? data[1] : bytes;
    struct rr_meeting *m = prepare(room, me, other, end[0]); /* no such rank: it is closed */
    for (size_t at = 2; at < bytes; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        if (send(end[1], data + at, n, MSG_NOSIGNAL) < 0)
            break;
        if (other >= 0 && other < RANKS)
            listen_to(m, other);
    }
    close(end[1]);
    if (other >= 0 && other < RANKS)
        listen_to(m, other);
    judge(m);
    for (int r = 0; r < RANKS; r++)
        rr_line_close(&m->mate[r].in);
    free(room);
    return 0;
}

/* ---- what a rank would say ---- */

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
    const ringred_error why = { .code = RINGRED_EPARTITION, .rank = 2, .text = "they are no majority" };
    static const uint8_t view[RANKS] = { 0, 0, RR_FATE_DEAD, RR_FATE_SILENT };
    uint8_t go[RANKS + sizeof(ringred_unique_id)], body[RR_FAIL_BYTES];
    size_t n = 2;

    if (room < 4096 || which > 5 || sodium_init() < 0)
        return 0;
    to[0] = (uint8_t)(which == 5 ? 1 + 4 * RANKS : 1); /* ours is rank 1, the other 0, or none */
    to[1] = (uint8_t)(which % 2 * 7);
    n += note(to + n, RR_NOTE_VIEW, 0, view, sizeof view);
    switch (which) {
    case 0:
        write_go(go);
        return n + note(to + n, RR_NOTE_GO, 1, go, sizeof go);
    case 1:
        write_go(go);
        n += note(to + n, RR_NOTE_BACK, 3, view, sizeof view);
        return n + note(to + n, RR_NOTE_GO, 4, go, sizeof go);
    case 2:
        return n + note(to + n, RR_NOTE_LEFT, 1, "somebody's job..", RR_JOB_BYTES);
    case 3:
        rr_fail_write(&why, body);
        return n + note(to + n, RR_NOTE_FAIL, 1, body, RR_FAIL_BYTES);
    case 4:
        memset(body, 0, RR_JOB_BYTES); /* the job of mine */
        return n + note(to + n, RR_NOTE_LEFT, 1, body, RR_JOB_BYTES);
    default:
        return n + note(to + n, RR_NOTE_QUIT, 1, NULL, 0);
    }
}
