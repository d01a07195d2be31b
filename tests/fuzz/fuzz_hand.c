/* SPDX-License-Identifier: Apache-2.0 */
/* Handshakes with an end that may say anything. Byte 0: which end is ours; byte 1: how many bytes
 * arrive at a time; the rest is what the other end says. Nobody who does not know the key is ever
 * believed. */
#include "fuzz.h"

#include "boot/inside.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char key[RR_KEY_BYTES] = "nobody knows this key";
static const unsigned char job[RR_JOB_BYTES] = "the job";
static const struct rr_badge badge = { key, job, 3, RR_PURPOSE_MEET, 0, 0 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_hand h;
    int end[2], rc = RINGRED_PENDING;

    if (bytes < 2 || sodium_init() < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return 0;
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

/* What the other end would have said in a handshake of its own. */
size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    struct rr_badge other = badge;
    struct rr_hand dialler, listener;
    int end[2];
    size_t n = 2;

    if (which > 1 || room < 256 || sodium_init() < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) < 0)
        return 0;
    other.rank = 0;
    rr_hand_dial(&dialler, &badge, end[0], 0, INT64_MAX);
    rr_hand_accept(&listener, &other, end[1]);
    for (int turns = 0; turns < 8; turns++) {
        (void)rr_hand_step(&listener);
        (void)rr_hand_step(&dialler);
    }
    to[0] = (uint8_t)(which == 0);
    to[1] = 0;
    if (which == 0) {
        memcpy(to + n, dialler.greeting, RR_GREETING_BYTES);
        memcpy(to + n + RR_GREETING_BYTES, dialler.welcome, RR_WELCOME_BYTES);
        n += RR_GREETING_BYTES + RR_WELCOME_BYTES;
    } else {
        memcpy(to + n, listener.proof, RR_PROOF_BYTES);
        memcpy(to + n + RR_PROOF_BYTES, dialler.taken, RR_TAKEN_BYTES);
        n += RR_PROOF_BYTES + RR_TAKEN_BYTES;
    }
    rr_hand_drop(&dialler);
    rr_hand_drop(&listener);
    return n;
}
