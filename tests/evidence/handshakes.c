/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: handshakes that were heard are of no use to whoever replays, reflects, cuts or changes them. Handshakes of each purpose,
 * of ends that encrypt and of ends that do not, are recorded on their way. Then: every bit of every message is changed on the way;
 * the way ends at every byte, in either direction; what each end said is said again to new ones of its kind, whole, cut at every
 * byte and with every bit changed; all sequences of up to three of the messages are said to both kinds, alone and behind each end's
 * own words. Nobody is believed. */
#include "boot/inside.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DOWN (RR_GREETING_BYTES + RR_WELCOME_BYTES) /* what a listener says */
#define UP   (RR_PROOF_BYTES + RR_TAKEN_BYTES)      /* and a dialler */

static const unsigned char key[RR_KEY_BYTES] = "the key of the job";
static const unsigned char job[RR_JOB_BYTES] = "the job";
static const enum rr_purpose purposes[] = { RR_PURPOSE_MEET, RR_PURPOSE_DATA, RR_PURPOSE_LOCAL, RR_PURPOSE_REUNION };
static uint8_t offers;
static int admitted; /* where nobody should have been */

struct heard {
    unsigned char down[DOWN], up[UP];
    size_t downs, ups;
};

static void must(bool claim, const char *what)
{
    if (claim)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void pair(int end[2])
{
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) == 0, "no socket pair");
}

/* ---- a handshake with somebody in between ---- */

/* A bit to change, or a byte to end at, in one direction; -1: none. */
struct meddling {
    long flip_down, flip_up, cut_down, cut_up;
};

/* false: nothing came. */
static bool carry(int from, int to, unsigned char *log, size_t *carried, long flip, long cut)
{
    unsigned char bytes[256];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);

    if (n <= 0) {
        if (n == 0)
            (void)shutdown(to, SHUT_WR);
        return false;
    }
    memcpy(log + *carried, bytes, (size_t)n);
    long at = flip / 8 - (long)*carried, last = cut - (long)*carried;
    if (flip >= 0 && at >= 0 && at < n)
        bytes[at] ^= (unsigned char)(1 << flip % 8);
    *carried += (size_t)n;
    if (cut < 0 || last > 0)
        (void)send(to, bytes, (size_t)(cut >= 0 && last < n ? last : n), MSG_NOSIGNAL); /* it may have gone */
    if (cut >= 0 && last <= n)
        (void)shutdown(to, SHUT_WR);
    return true;
}

/* What both ends come to. */
static void shake(enum rr_purpose purpose, const struct meddling *m, struct heard *heard, int *dialled, int *accepted)
{
    const struct rr_badge one = { .key = key, .job = job, .rank = 1, .purpose = purpose, .offers = offers },
                          four = { .key = key, .job = job, .rank = 4, .purpose = purpose, .offers = offers };
    struct rr_hand dialler, listener;
    int d[2], a[2];

    pair(d);
    pair(a);
    heard->downs = heard->ups = 0;
    rr_hand_dial(&dialler, &one, d[0], 4, INT64_MAX);
    rr_hand_accept(&listener, &four, a[0]);
    for (int quiet = 0; quiet < 3; quiet++) {
        *dialled = rr_hand_step(&dialler);
        *accepted = rr_hand_step(&listener);
        if (carry(a[1], d[1], heard->down, &heard->downs, m->flip_down, m->cut_down))
            quiet = 0;
        if (carry(d[1], a[1], heard->up, &heard->ups, m->flip_up, m->cut_up))
            quiet = 0;
    }
    rr_hand_drop(&dialler);
    rr_hand_drop(&listener);
    close(d[1]);
    close(a[1]);
}

static const struct meddling none = { -1, -1, -1, -1 };

/* A listener takes nobody; a dialler believes only one whose every bit it has heard. */
static long change_on_the_way(enum rr_purpose purpose)
{
    struct heard heard;
    int dialled, accepted;
    long bits = 0;

    for (long bit = 0; bit < 8 * DOWN; bit++, bits++) {
        struct meddling m = none;
        m.flip_down = bit;
        shake(purpose, &m, &heard, &dialled, &accepted);
        admitted += dialled == 0 || accepted == 0;
    }
    for (long bit = 0; bit < 8 * UP; bit++, bits++) {
        struct meddling m = none;
        m.flip_up = bit;
        shake(purpose, &m, &heard, &dialled, &accepted);
        admitted += accepted == 0 || (dialled == 0 && bit < 8 * RR_PROOF_BYTES);
    }
    return bits;
}

static long cut_on_the_way(enum rr_purpose purpose)
{
    struct heard heard;
    int dialled, accepted;

    for (long at = 0; at < DOWN; at++) {
        struct meddling m = none;
        m.cut_down = at;
        shake(purpose, &m, &heard, &dialled, &accepted);
        admitted += dialled == 0 || accepted == 0;
    }
    for (long at = 0; at < UP; at++) {
        struct meddling m = none;
        m.cut_up = at;
        shake(purpose, &m, &heard, &dialled, &accepted);
        admitted += accepted == 0 || (dialled == 0 && at < RR_PROOF_BYTES);
    }
    return DOWN + UP;
}

/* ---- words said to a new end ---- */

/* reflect: it hears what it says itself first. */
static void say_to(bool listener, enum rr_purpose purpose, int rank, const unsigned char *words, size_t bytes, bool reflect)
{
    const struct rr_badge badge = { .key = key, .job = job, .rank = rank, .purpose = purpose, .offers = offers };
    unsigned char own[256];
    struct rr_hand h;
    int end[2], rc;

    pair(end);
    if (listener)
        rr_hand_accept(&h, &badge, end[0]);
    else
        rr_hand_dial(&h, &badge, end[0], 4, INT64_MAX);
    rc = rr_hand_step(&h);
    for (int i = 0; i < 4 && reflect; i++) {
        ssize_t n = recv(end[1], own, sizeof own, 0);
        if (n > 0)
            (void)send(end[1], own, (size_t)n, MSG_NOSIGNAL);
        rc = rc == RINGRED_PENDING ? rr_hand_step(&h) : rc;
    }
    (void)send(end[1], words, bytes, MSG_NOSIGNAL); /* it may have gone */
    rc = rc == RINGRED_PENDING ? rr_hand_step(&h) : rc;
    (void)shutdown(end[1], SHUT_WR);
    rc = rc == RINGRED_PENDING ? rr_hand_step(&h) : rc;
    admitted += rc == 0 || h.state == RR_HAND_PROVED;
    rr_hand_drop(&h);
    close(end[1]);
}

/* To those that the recorded ones were, and to all others of the job. */
static long replay(enum rr_purpose heard_at, const struct heard *heard)
{
    unsigned char words[UP > DOWN ? UP : DOWN];
    long replays = 0;

    for (size_t p = 0; p < sizeof purposes / sizeof *purposes; p++)
        for (int rank = 0; rank < 6; rank++, replays += 2) {
            say_to(true, purposes[p], rank, heard->up, UP, false);
            say_to(false, purposes[p], rank, heard->down, DOWN, false);
        }
    for (size_t cut = 0; cut < UP; cut++, replays++)
        say_to(true, heard_at, 4, heard->up, cut, false);
    for (size_t cut = 0; cut < DOWN; cut++, replays++)
        say_to(false, heard_at, 1, heard->down, cut, false);
    for (long bit = 0; bit < 8 * UP; bit++, replays++) {
        memcpy(words, heard->up, UP);
        words[bit / 8] ^= (unsigned char)(1 << bit % 8);
        say_to(true, heard_at, 4, words, UP, false);
    }
    for (long bit = 0; bit < 8 * DOWN; bit++, replays++) {
        memcpy(words, heard->down, DOWN);
        words[bit / 8] ^= (unsigned char)(1 << bit % 8);
        say_to(false, heard_at, 1, words, DOWN, false);
    }
    return replays;
}

/* All sequences of up to three messages, of either end, to both kinds of end, alone and behind their own words. */
static long reorder(enum rr_purpose purpose, const struct heard *heard)
{
    const struct {
        const unsigned char *at;
        size_t bytes;
    } message[] = { { NULL, 0 },
                    { heard->down, RR_GREETING_BYTES },
                    { heard->down + RR_GREETING_BYTES, RR_WELCOME_BYTES },
                    { heard->up, RR_PROOF_BYTES },
                    { heard->up + RR_PROOF_BYTES, RR_TAKEN_BYTES } };
    unsigned char words[3 * RR_PROOF_BYTES];
    long sequences = 0;

    for (int which = 0; which < 125; which++) {
        size_t n = 0;
        for (int i = 0, rest = which; i < 3; i++, rest /= 5) {
            if (message[rest % 5].bytes)
                memcpy(words + n, message[rest % 5].at, message[rest % 5].bytes);
            n += message[rest % 5].bytes;
        }
        for (int kind = 0; kind < 4; kind++, sequences++)
            say_to(kind & 1, purpose, kind & 1 ? 4 : 1, words, n, kind & 2);
    }
    return sequences;
}

int main(void)
{
    long bits = 0, cuts = 0, replays = 0, sequences = 0;
    int dialled, accepted;
    struct heard heard;

    must(sodium_init() >= 0, "no libsodium");
    for (size_t p = 0; p < 2 * sizeof purposes / sizeof *purposes; p++) {
        const enum rr_purpose purpose = purposes[p / 2];
        offers = p % 2 ? RR_OFFERS_SEAL : 0;
        shake(purpose, &none, &heard, &dialled, &accepted);
        must(dialled == 0 && accepted == 0 && heard.downs == DOWN && heard.ups == UP, "an honest handshake fails");
        replays += replay(purpose, &heard);
        sequences += reorder(purpose, &heard);
        bits += change_on_the_way(purpose);
        cuts += cut_on_the_way(purpose);
    }
    printf("%s: %ld bits changed and %ld ends on the way, %ld replays, %ld sequences of heard and own words: %d admitted\n",
           admitted ? "FAILS" : "holds", bits, cuts, replays, sequences, admitted);
    return admitted != 0;
}
