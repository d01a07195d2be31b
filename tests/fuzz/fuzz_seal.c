/* SPDX-License-Identifier: Apache-2.0 */
/* What comes on a connection that is encrypted, from somebody who does not have its keys. Byte 0: how many bytes go
 * through at a time, of 64, and which cipher (bit 6); the rest is what arrives, once on a lane and once on a line; or, with bit 7,
 * as records about where one key follows another. Whatever it is, what is handed out is the beginning of what the peer
 * sealed, whose bytes and records are always the same. */
#include "fuzz.h"

#include "boot/inside.h"
#include "transport/sealed.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLAIN 4096

static struct rr_seal seal = { RR_CIPHER_CHACHA20, { 1 }, { 2 } }, twin = { RR_CIPHER_CHACHA20, { 2 }, { 1 } };
static const size_t lengths[] = { RR_NOTE_HEAD, 40, RR_NOTE_HEAD, 1000, 1, 700 }; /* of the records, by turns */

struct pipe {
    const uint8_t *at;
    size_t left, most;
};

static void must(bool claim)
{
    if (!claim)
        abort();
}

/* What the peer says: two notes, then anything. */
static void write_plain(unsigned char *to)
{
    static const uint32_t kind = RR_NOTE_UP;
    static const uint64_t bytes[] = { 40, 1000 };

    for (size_t i = 0; i < PLAIN; i++)
        to[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t i = 0; i < 2; i++) {
        unsigned char *note = to + i * (RR_NOTE_HEAD + 40);
        memcpy(note, &kind, 4);
        memcpy(note + 8, &bytes[i], 8);
    }
}

static int64_t pipe_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct pipe *p = self;
    size_t n = p->left < p->most ? p->left : p->most;

    (void)peer, (void)rail, (void)parts;
    *system = 0;
    if (!p->left)
        return RINGRED_EPEER;
    n = n < part->length ? n : part->length;
    memcpy(part->bytes, p->at, n);
    p->at += n;
    p->left -= n;
    return (int64_t)n;
}

static void pipe_close(void *self, int64_t deadline_ns)
{
    (void)self, (void)deadline_ns;
}

static const ringred_transport pipes = { .struct_size = sizeof pipes, .name = "pipe", .recv = pipe_recv, .close = pipe_close };

static void try_lane(const uint8_t *data, size_t bytes, size_t most, const unsigned char *plain)
{
    struct pipe pipe = { data, bytes, most };
    struct rr_lanes lanes = { .ranks = 1, .by = &pipes, .self = &pipe };
    unsigned char got[2][300];
    ringred_error why;
    int32_t system;
    size_t at = 0;
    int64_t n;

    if (rr_seal_lanes(&lanes, &twin, 1, &why) < 0)
        return;
    do {
        const ringred_span part[] = { { got[0], 1 + at % 300 }, { got[1], 300 } };
        n = lanes.by->recv(lanes.self, 0, 0, part, 2, &system);
        must(n != 0 && n <= (int64_t)(part[0].length + part[1].length));
        for (size_t i = 0; n > 0 && i < (size_t)n; i++, at++)
            must(at < PLAIN && (i < part[0].length ? got[0][i] : got[1][i - part[0].length]) == plain[at]);
    } while (n > 0);
    must(lanes.by->recv(lanes.self, 0, 0, &(ringred_span){ got, sizeof got }, 1, &system) < 0);
    lanes.by->close(lanes.self, 0);
}

static void try_line(const uint8_t *data, size_t bytes, size_t most, const unsigned char *plain)
{
    unsigned char body[1000];
    struct rr_line l;
    int end[2];
    size_t note = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return;
    if (rr_line_open(&l, end[0], 0, &twin) < 0) {
        close(end[1]);
        return;
    }
    enum rr_line_news news = RR_LINE_QUIET;
    for (size_t at = 0; at < bytes && news == RR_LINE_QUIET; at += most) {
        if (send(end[1], data + at, bytes - at < most ? bytes - at : most, MSG_NOSIGNAL | MSG_DONTWAIT) <= 0)
            break;
        while ((news = rr_line_read(&l)) == RR_LINE_HEADED || news == RR_LINE_WHOLE) {
            if (news == RR_LINE_WHOLE) {
                must(note < 2 && (l.in.bytes == 40 || l.in.bytes == 1000));
                must(memcmp(body, plain + (note ? 2 * RR_NOTE_HEAD + 40 : RR_NOTE_HEAD), l.in.bytes) == 0);
                note++;
                rr_line_next(&l);
            } else if (note < 2) {
                l.body = body;
            } else {
                break; /* what comes behind them is none */
            }
        }
    }
    close(end[1]);
    rr_line_close(&l);
}

/* The last two with one key, and what comes with the next. */
static void try_records(const uint8_t *data, size_t bytes, const unsigned char *plain)
{
    static unsigned char got[RR_RECORD_MOST];
    struct rr_sealing s;
    size_t at = 0;

    rr_sealing_init(&s, twin.cipher, twin.in);
    s.records = RR_RECORD_KEY - 2;
    while (bytes >= RR_RECORD_HEAD && rr_record_length(data) <= RR_RECORD_MOST &&
           bytes >= rr_record_length(data) + RR_RECORD_MORE && rr_unseal_record(&s, data, got)) {
        size_t n = rr_record_length(data);
        must(at + n <= PLAIN && memcmp(got, plain + at, n) == 0);
        at += n;
        data += n + RR_RECORD_MORE;
        bytes -= n + RR_RECORD_MORE;
    }
}

static void set_cipher(uint8_t how)
{
    seal.cipher = twin.cipher = how & 64 && crypto_aead_aes256gcm_is_available() ? RR_CIPHER_AES256GCM : RR_CIPHER_CHACHA20;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static unsigned char plain[PLAIN];

    if (bytes < 2 || sodium_init() < 0)
        return 0;
    size_t most = data[0] % 64 ? data[0] % 64 : bytes;
    write_plain(plain);
    set_cipher(data[0]);
    if (data[0] & 128) {
        try_records(data + 1, bytes - 1, plain);
        return 0;
    }
    try_lane(data + 1, bytes - 1, most, plain);
    try_line(data + 1, bytes - 1, most, plain);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    unsigned char plain[PLAIN];
    struct rr_sealing s;
    size_t at = 1, from = 0;

    bool ciphered = which / 5 % 2, at_change = which / 10;

    if (room < PLAIN + 1000 || which > 19 || sodium_init() < 0)
        return 0;
    which %= 5;
    to[0] = (uint8_t)(which * 7 | (ciphered ? 64 : 0) | (at_change ? 128 : 0));
    write_plain(plain);
    set_cipher(to[0]);
    rr_sealing_init(&s, seal.cipher, seal.out);
    s.records = at_change ? RR_RECORD_KEY - 2 : 0;
    for (int i = 0; i < 1 + 2 * which && from + lengths[i % 6] <= PLAIN; from += lengths[i % 6], i++)
        at += rr_seal_record(&s, plain + from, lengths[i % 6], to + at);
    if (which == 4 && !at_change)
        at += rr_seal_record(&s, plain, 0, to + at); /* the end */
    return at;
}
