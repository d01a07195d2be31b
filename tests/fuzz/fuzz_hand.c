/* SPDX-License-Identifier: Apache-2.0 */
/* Handshakes with an end that may say anything. Byte 0: how; byte 1: how many bytes arrive at a time; the rest is what the
 * other end says. Nobody who does not know the key is ever believed. Or, with bit 1 of byte 0, two ends that know it, with
 * somebody in between who changes what the rest is not zero at: what a listener says, 112 bytes, then what a dialler says.
 * Each end believes the other only if nothing that it stands on was changed. Other bits of byte 0: 0: ours is the dialler;
 * 2 and 3: ours encrypts, the other end does; 4: the connection is for data. */
#include "fuzz.h"

#include "boot/inside.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char key[RR_KEY_BYTES] = "nobody knows this key";
static const unsigned char job[RR_JOB_BYTES] = "the job";

/* Rank 3 is ours. */
static struct rr_badge badge_of(int rank, uint8_t how)
{
    bool seals = how & (rank == 3 ? 4 : 8);

    return (struct rr_badge){ key, job, rank, how & 16 ? RR_PURPOSE_DATA : RR_PURPOSE_MEET, 0,
                              seals ? RR_OFFERS_SEAL | (how & 32 ? RR_OFFERS_AES : 0) : 0 };
}

#define DOWN (RR_GREETING_BYTES + RR_WELCOME_BYTES)
#define UP   (RR_PROOF_BYTES + RR_TAKEN_BYTES)

/* Carries what is there, changed. */
static bool carry(int from, int to, const uint8_t *change, size_t most, size_t *carried)
{
    unsigned char bytes[256];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);

    if (n == 0)
        (void)shutdown(to, SHUT_WR);
    if (n <= 0 || *carried + (size_t)n > most)
        return false;
    for (ssize_t i = 0; i < n; i++)
        bytes[i] ^= change[*carried + (size_t)i];
    *carried += (size_t)n;
    (void)send(to, bytes, (size_t)n, MSG_NOSIGNAL); /* it may have gone */
    return true;
}

static bool is_changed(const uint8_t *change, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (change[i])
            return true;
    return false;
}

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void pair(int end[2])
{
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) == 0);
}

static void check_seals(const struct rr_seal *d, const struct rr_seal *a, uint8_t how)
{
    must(d->cipher == a->cipher && (d->cipher != RR_CIPHER_NONE) == ((how & 12) == 12));
    must(memcmp(d->out, a->in, sizeof d->out) == 0 && memcmp(d->in, a->out, sizeof d->in) == 0);
}

static void between(uint8_t how, const uint8_t *data, size_t bytes)
{
    const struct rr_badge one = badge_of(1, how), three = badge_of(3, how);
    uint8_t change[DOWN + UP] = { 0 };
    struct rr_hand dialler, listener;
    int d[2], a[2], dialled = 0, accepted = 0;
    size_t down = 0, up = 0;

    memcpy(change, data, bytes < sizeof change ? bytes : sizeof change);
    pair(d);
    pair(a);
    rr_hand_dial(&dialler, &one, d[0], 3, INT64_MAX);
    rr_hand_accept(&listener, &three, a[0]);
    for (int quiet = 0; quiet < 3; quiet++) {
        dialled = rr_hand_step(&dialler);
        accepted = rr_hand_step(&listener);
        if (carry(a[1], d[1], change, DOWN, &down) || carry(d[1], a[1], change + DOWN, UP, &up))
            quiet = 0;
    }
    bool differ = how & 16 && !(how & 4) != !(how & 8), spoilt = differ || is_changed(change, DOWN + RR_PROOF_BYTES);
    must((dialled == 0) != spoilt && (accepted == 0) != (spoilt || is_changed(change, sizeof change)));
    must(rr_verdict_text(listener.verdict)[0] && rr_verdict_text(dialler.verdict)[0]);
    if (accepted == 0) {
        must(rr_hand_events(&listener) == 0);
        check_seals(&dialler.seal, &listener.seal, how);
        close(rr_hand_take(&listener));
    }
    rr_hand_drop(&dialler);
    rr_hand_drop(&listener);
    close(d[1]);
    close(a[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_hand h;
    int end[2], rc = RINGRED_PENDING;

    if (bytes < 2 || sodium_init() < 0)
        return 0;
    if (data[0] & 2) {
        between(data[0], data + 2, bytes - 2);
        return 0;
    }
    const struct rr_badge badge = badge_of(3, data[0]);
    pair(end);
    size_t piece = data[1] ? 16u + data[1] : bytes;
    if (data[0] & 1)
        rr_hand_dial(&h, &badge, end[0], 0, INT64_MAX);
    else
        rr_hand_accept(&h, &badge, end[0]);
    for (size_t at = 2; at < bytes && rc == RINGRED_PENDING; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        if (send(end[1], data + at, n, MSG_NOSIGNAL) < 0)
            break;
        rc = rr_hand_step(&h);
    }
    close(end[1]);
    if (rc == RINGRED_PENDING)
        rc = rr_hand_step(&h);
    if (rc == 0 || h.state == RR_HAND_PROVED)
        abort();
    rr_hand_drop(&h);
    return 0;
}

/* Nothing is changed; the head, the offers, a MAC, the last byte of all; and what has ends that differ. */
static size_t changed(int which, uint8_t *to)
{
    static const uint8_t at[] = { 0, 8, 11, 40, DOWN + 11, DOWN + 60, DOWN + UP - 1 };
    static const uint8_t how[] = { 2, 2 | 12, 2 | 12 | 16 | 32, 2 | 4, 2 | 8 | 16, 2 | 4 | 16 };

    memset(to, 0, 2 + DOWN + UP);
    to[0] = how[which % 6];
    to[2 + at[which / 6]] = which >= 6;
    return 2 + DOWN + UP;
}

/* What the other end would have said in a handshake of its own. */
static size_t said(int which, uint8_t *to)
{
    uint8_t how = (uint8_t)(which % 2 | (which & 2 ? 4 | 8 : 0));
    const struct rr_badge three = badge_of(3, how), zero = badge_of(0, how);
    struct rr_hand dialler, listener;
    size_t n = 2;
    int end[2];

    pair(end);
    rr_hand_dial(&dialler, &three, end[0], 0, INT64_MAX);
    rr_hand_accept(&listener, &zero, end[1]);
    for (int turns = 0; turns < 8; turns++) {
        (void)rr_hand_step(&listener);
        (void)rr_hand_step(&dialler);
    }
    to[0] = how;
    to[1] = (uint8_t)(which & 4 ? 3 : 0);
    if (how & 1) {
        memcpy(to + n, dialler.greeting, RR_GREETING_BYTES);
        memcpy(to + n + RR_GREETING_BYTES, dialler.welcome, RR_WELCOME_BYTES);
        n += DOWN;
    } else {
        memcpy(to + n, listener.proof, RR_PROOF_BYTES);
        memcpy(to + n + RR_PROOF_BYTES, dialler.taken, RR_TAKEN_BYTES);
        n += UP;
    }
    rr_hand_drop(&dialler);
    rr_hand_drop(&listener);
    return n;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    if (which >= 8 + 7 * 6 || room < 512 || sodium_init() < 0)
        return 0;
    return which < 8 ? said(which, to) : changed(which - 8, to);
}
