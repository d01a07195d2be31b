/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake, with the test in the middle: it carries every byte between the two ends, and
 * changes, delays, repeats or reflects them. */
#include "boot/inside.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const unsigned char key_a[RR_KEY_BYTES] = "one key";
static const unsigned char key_b[RR_KEY_BYTES] = "another key";
static const unsigned char job_a[RR_JOB_BYTES] = "a job";
static const unsigned char job_b[RR_JOB_BYTES] = "another job";

/* dialler <-> d, a <-> listener; the test copies between d and a */
struct wire {
    struct rr_hand dialler, listener;
    int d, a;
    int dialled, accepted;   /* last results of the two ends */
    size_t down, up;         /* bytes carried: listener to dialler, dialler to listener */
    long flip_down, flip_up; /* bit to change in what is carried, -1: none */
    size_t piece;            /* carried at a time, 0: all there is */
};

static void pair(int end[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
}

static void wire_init(struct wire *w, const struct rr_badge *dialler, int wanted,
                      const struct rr_badge *listener)
{
    int x[2], y[2];

    memset(w, 0, sizeof *w);
    w->flip_down = w->flip_up = -1;
    pair(x);
    pair(y);
    w->d = x[1];
    w->a = y[1];
    rr_hand_dial(&w->dialler, dialler, x[0], wanted, INT64_MAX);
    rr_hand_accept(&w->listener, listener, y[0]);
}

static void wire_done(struct wire *w)
{
    rr_hand_drop(&w->dialler);
    rr_hand_drop(&w->listener);
    close(w->d);
    close(w->a);
}

/* Carries what is there; closes the far side when the near one has. */
static bool carry(int from, int to, size_t *carried, long flip, size_t piece)
{
    unsigned char bytes[256];
    ssize_t n = recv(from, bytes, piece ? piece : sizeof bytes, 0);

    if (n == 0)
        (void)shutdown(to, SHUT_WR);
    if (n <= 0)
        return false;
    long at = flip / 8 - (long)*carried;
    if (flip >= 0 && at >= 0 && at < n)
        bytes[at] ^= (unsigned char)(1 << (flip % 8));
    *carried += (size_t)n;
    (void)send(to, bytes, (size_t)n, MSG_NOSIGNAL); /* the other end may be gone */
    return true;
}

static void wire_run(struct wire *w)
{
    bool moved = true;
    int quiet = 0;

    while (moved || quiet++ < 2) {
        w->dialled = rr_hand_step(&w->dialler);
        w->accepted = rr_hand_step(&w->listener);
        moved = carry(w->a, w->d, &w->down, w->flip_down, w->piece);
        moved = carry(w->d, w->a, &w->up, w->flip_up, w->piece) || moved;
        if (moved)
            quiet = 0;
    }
}

static const struct rr_badge rank1 = { key_a, job_a, 1, RR_PURPOSE_DATA, 0, 0 };
static const struct rr_badge rank4 = { key_a, job_a, 4, RR_PURPOSE_DATA, 0, 0 };
static const struct rr_badge sealed1 = { key_a, job_a, 1, RR_PURPOSE_DATA, 0, RR_OFFERS_SEAL | RR_OFFERS_AES };
static const struct rr_badge sealed4 = { key_a, job_a, 4, RR_PURPOSE_DATA, 0, RR_OFFERS_SEAL | RR_OFFERS_AES };
static const struct rr_badge plain_aes4 = { key_a, job_a, 4, RR_PURPOSE_DATA, 0, RR_OFFERS_SEAL };

static void test_two_ends_with_one_key_prove_each_other(void **state)
{
    (void)state;
    struct wire w;

    wire_init(&w, &rank1, 4, &rank4);
    wire_run(&w);
    assert_int_equal(w.dialled, 0);
    assert_int_equal(w.accepted, 0);
    assert_int_equal(w.listener.peer, 1);
    assert_int_equal(w.down, RR_GREETING_BYTES + RR_WELCOME_BYTES);
    assert_int_equal(w.up, RR_PROOF_BYTES + RR_TAKEN_BYTES);
    wire_done(&w);
}

static void test_a_byte_at_a_time_is_enough(void **state)
{
    (void)state;
    struct wire w;

    wire_init(&w, &rank1, 4, &rank4);
    w.piece = 1;
    wire_run(&w);
    assert_int_equal(w.dialled, 0);
    assert_int_equal(w.accepted, 0);
    wire_done(&w);
}

static void is_noticed(const struct rr_badge *dialler, const struct rr_badge *listener, long flip_down, long flip_up)
{
    struct wire w;

    wire_init(&w, dialler, 4, listener);
    w.flip_down = flip_down;
    w.flip_up = flip_up;
    wire_run(&w);
    assert_int_not_equal(w.dialled, 0);
    assert_int_not_equal(w.accepted, 0);
    wire_done(&w);
}

/* Whatever bit changes on the way before both have proved themselves, neither end believes. */
static void test_any_changed_bit_is_noticed(void **state)
{
    (void)state;
    for (long bit = 0; bit < 8 * (RR_GREETING_BYTES + RR_WELCOME_BYTES); bit++) {
        is_noticed(&rank1, &rank4, bit, -1);
        is_noticed(&sealed1, &sealed4, bit, -1);
    }
    for (long bit = 0; bit < 8 * RR_PROOF_BYTES; bit++) {
        is_noticed(&rank1, &rank4, -1, bit);
        is_noticed(&sealed1, &sealed4, -1, bit);
    }
}

/* The dialler believes by then; the listener goes only with one who has said "taken" as it is said. */
static void test_a_changed_taken_is_not_taken(void **state)
{
    (void)state;
    for (long bit = 8 * RR_PROOF_BYTES; bit < 8 * (RR_PROOF_BYTES + RR_TAKEN_BYTES); bit++) {
        struct wire w;
        wire_init(&w, &rank1, 4, &rank4);
        w.flip_up = bit;
        wire_run(&w);
        assert_int_equal(w.dialled, 0);
        assert_int_not_equal(w.accepted, 0);
        wire_done(&w);
    }
}

/* ---- encryption ---- */

static void keys_of(const struct rr_badge *dialler, const struct rr_badge *listener, struct rr_seal *seal)
{
    struct wire w;

    wire_init(&w, dialler, 4, listener);
    wire_run(&w);
    assert_int_equal(w.dialled, 0);
    assert_int_equal(w.accepted, 0);
    assert_int_equal(w.dialler.seal.cipher, w.listener.seal.cipher);
    assert_memory_equal(w.dialler.seal.out, w.listener.seal.in, RR_KEY_BYTES);
    assert_memory_equal(w.dialler.seal.in, w.listener.seal.out, RR_KEY_BYTES);
    *seal = w.dialler.seal;
    wire_done(&w);
    assert_true(sodium_is_zero(w.dialler.seal.out, RR_KEY_BYTES));
    assert_true(sodium_is_zero(w.dialler.secret, sizeof w.dialler.secret));
}

static void test_each_direction_of_each_connection_has_a_key_of_its_own(void **state)
{
    (void)state;
    struct rr_seal one, other;

    keys_of(&sealed1, &sealed4, &one);
    keys_of(&sealed1, &sealed4, &other);
    assert_int_equal(one.cipher, RR_CIPHER_AES256GCM);
    assert_memory_not_equal(one.out, one.in, RR_KEY_BYTES);
    assert_memory_not_equal(one.out, other.out, RR_KEY_BYTES);
    assert_memory_not_equal(one.in, other.in, RR_KEY_BYTES);
    assert_memory_not_equal(one.in, other.out, RR_KEY_BYTES);
}

static void test_the_cipher_is_one_that_both_have(void **state)
{
    (void)state;
    struct rr_seal seal;

    keys_of(&sealed1, &plain_aes4, &seal);
    assert_int_equal(seal.cipher, RR_CIPHER_CHACHA20);
    keys_of(&rank1, &rank4, &seal);
    assert_int_equal(seal.cipher, RR_CIPHER_NONE);
}

/* A dialler that has been welcomed and takes another connection leaves nothing behind. */
static void test_a_connection_that_is_not_taken_does_not_exist(void **state)
{
    (void)state;
    struct wire w;
    unsigned char welcome[RR_WELCOME_BYTES];

    wire_init(&w, &rank1, 4, &rank4);
    while (w.down < RR_GREETING_BYTES || w.up < RR_PROOF_BYTES) {
        w.dialled = rr_hand_step(&w.dialler);
        w.accepted = rr_hand_step(&w.listener);
        (void)carry(w.a, w.d, &w.down, -1, 0);
        (void)carry(w.d, w.a, &w.up, -1, 0);
    }
    assert_int_equal(rr_hand_step(&w.listener), RINGRED_PENDING);
    assert_int_equal(recv(w.a, welcome, sizeof welcome, 0), sizeof welcome);
    assert_int_equal(w.listener.state, RR_HAND_READ_TAKEN);
    rr_hand_drop(&w.dialler);
    assert_false(carry(w.d, w.a, &w.up, -1, 0));
    assert_int_equal(rr_hand_step(&w.listener), -1);
    assert_int_equal(w.listener.verdict, RR_VERDICT_LOST);
    wire_done(&w);
}

/* The dialler was away for longer than the listener's patience, which closed behind its welcome. */
static void test_a_listener_that_has_gone_is_not_taken(void **state)
{
    (void)state;
    struct wire w;

    wire_init(&w, &rank1, 4, &rank4);
    while (w.listener.state != RR_HAND_READ_TAKEN) {
        if (w.dialler.state != RR_HAND_READ_WELCOME)
            w.dialled = rr_hand_step(&w.dialler);
        w.accepted = rr_hand_step(&w.listener);
        (void)carry(w.a, w.d, &w.down, -1, 0);
        (void)carry(w.d, w.a, &w.up, -1, 0);
    }
    w.listener.give_up_ns = rr_now_ns();
    assert_int_equal(rr_hand_step(&w.listener), -1);
    while (carry(w.a, w.d, &w.down, -1, 0))
        continue;
    assert_int_equal(w.down, RR_GREETING_BYTES + RR_WELCOME_BYTES);
    assert_int_equal(rr_hand_step(&w.dialler), -1);
    assert_int_equal(w.dialler.verdict, RR_VERDICT_LOST);
    wire_done(&w);
}

static void expect(const struct rr_badge *dialler, int wanted, const struct rr_badge *listener,
                   enum rr_verdict of_dialler, enum rr_verdict of_listener)
{
    struct wire w;

    wire_init(&w, dialler, wanted, listener);
    wire_run(&w);
    assert_int_equal(w.dialler.verdict, of_dialler);
    assert_int_equal(w.listener.verdict, of_listener);
    wire_done(&w);
}

static void test_verdicts_say_what_differs(void **state)
{
    (void)state;
    struct rr_badge other_key = { key_b, job_a, 1, RR_PURPOSE_DATA, 0, 0 };
    struct rr_badge other_job = { key_a, job_b, 1, RR_PURPOSE_DATA, 0, 0 };
    struct rr_badge other_purpose = { key_a, job_a, 1, RR_PURPOSE_MEET, 0, 0 };

    expect(&other_key, 4, &rank4, RR_VERDICT_KEY, RR_VERDICT_KEY);
    expect(&other_job, 4, &rank4, RR_VERDICT_OTHER_JOB, RR_VERDICT_LOST);
    expect(&other_purpose, 4, &rank4, RR_VERDICT_OTHER_RANK, RR_VERDICT_LOST);
    expect(&rank1, 5, &rank4, RR_VERDICT_OTHER_RANK, RR_VERDICT_LOST);
}

/* Data goes in clear only where neither end encrypts. Those who meet are told by name which setting differs. */
static void test_encryption_cannot_be_talked_away(void **state)
{
    (void)state;
    const struct rr_badge meets1 = { key_a, job_a, 1, RR_PURPOSE_MEET, 0, RR_OFFERS_SEAL };
    const struct rr_badge meets4 = { key_a, job_a, 4, RR_PURPOSE_MEET, 0, 0 };
    struct rr_seal seal;

    expect(&sealed1, 4, &rank4, RR_VERDICT_SEAL, RR_VERDICT_LOST);
    expect(&rank1, 4, &sealed4, RR_VERDICT_SEAL, RR_VERDICT_LOST);
    keys_of(&meets1, &meets4, &seal);
    assert_int_equal(seal.cipher, RR_CIPHER_NONE);
}

static void test_another_version_is_named_on_both_sides(void **state)
{
    (void)state;
    struct wire w;
    unsigned char hello[RR_PROOF_BYTES] = "ringred\n\7";

    wire_init(&w, &rank1, 4, &rank4);
    assert_int_equal(send(w.d, hello, RR_GREETING_BYTES, 0), RR_GREETING_BYTES);
    assert_int_equal(rr_hand_step(&w.dialler), -1);
    assert_int_equal(w.dialler.verdict, RR_VERDICT_VERSION);
    assert_int_equal(w.dialler.version, 7);
    /* it has said its own version, so that the other library can name it */
    assert_int_equal(recv(w.d, hello, sizeof hello, 0), 10);
    assert_int_equal(hello[8], RR_WIRE_VERSION);

    hello[8] = 9;
    assert_int_equal(rr_hand_step(&w.listener), RINGRED_PENDING);
    assert_int_equal(send(w.a, hello, 10, 0), 10);
    assert_int_equal(rr_hand_step(&w.listener), -1);
    assert_int_equal(w.listener.verdict, RR_VERDICT_VERSION);
    assert_int_equal(w.listener.version, 9);
    wire_done(&w);
}

static void test_noise_is_dropped_at_its_first_byte(void **state)
{
    (void)state;
    struct wire w;

    wire_init(&w, &rank1, 4, &rank4);
    assert_int_equal(send(w.a, "GET / HTTP/1.1\r\n", 1, 0), 1);
    assert_int_equal(rr_hand_step(&w.listener), -1);
    assert_int_equal(w.listener.verdict, RR_VERDICT_STRANGER);
    wire_done(&w);
}

/* A proof that was heard on one connection opens no other: the listener's nonce differs. */
static void test_a_proof_cannot_be_replayed(void **state)
{
    (void)state;
    struct wire w, again;
    unsigned char proof[RR_PROOF_BYTES];

    wire_init(&w, &rank1, 4, &rank4);
    wire_run(&w);
    memcpy(proof, w.listener.proof, sizeof proof);
    wire_done(&w);

    wire_init(&again, &rank1, 4, &rank4);
    assert_int_equal(rr_hand_step(&again.listener), RINGRED_PENDING);
    assert_int_equal(send(again.a, proof, sizeof proof, 0), sizeof proof);
    assert_int_equal(rr_hand_step(&again.listener), -1);
    assert_int_equal(again.listener.verdict, RR_VERDICT_KEY);
    wire_done(&again);
}

/* Two listeners of the job cannot be made to prove themselves to each other, nor a dialler to
 * itself. */
static void test_messages_cannot_be_reflected(void **state)
{
    (void)state;
    struct wire w;
    unsigned char bytes[RR_PROOF_BYTES];

    wire_init(&w, &rank1, 4, &rank4);
    assert_int_equal(rr_hand_step(&w.listener), RINGRED_PENDING);
    ssize_t n = recv(w.a, bytes, sizeof bytes, 0);
    assert_int_equal(send(w.a, bytes, (size_t)n, 0), n); /* its own greeting */
    assert_int_equal(send(w.a, bytes, (size_t)(RR_PROOF_BYTES - n), 0), RR_PROOF_BYTES - n);
    assert_int_equal(rr_hand_step(&w.listener), -1);
    assert_int_equal(w.listener.verdict, RR_VERDICT_KEY);

    assert_int_equal(send(w.d, bytes, (size_t)n, 0), n);
    assert_int_equal(rr_hand_step(&w.dialler), RINGRED_PENDING);
    n = recv(w.d, bytes, sizeof bytes, 0);
    assert_int_equal(n, RR_PROOF_BYTES);
    assert_int_equal(send(w.d, bytes, RR_WELCOME_BYTES, 0), RR_WELCOME_BYTES); /* its own proof */
    assert_int_equal(rr_hand_step(&w.dialler), -1);
    assert_int_equal(w.dialler.verdict, RR_VERDICT_KEY);
    wire_done(&w);
}

/* Who stays silent, or begins and stops, is given up after a time that does not depend on it. */
static void test_silence_has_a_deadline(void **state)
{
    (void)state;
    struct wire w;
    int64_t before = rr_now_ns();

    wire_init(&w, &rank1, 4, &rank4);
    assert_true(w.listener.give_up_ns >= before + RR_HAND_NS);
    assert_true(w.listener.give_up_ns <= rr_now_ns() + RR_HAND_NS);
    assert_int_equal(rr_hand_step(&w.listener), RINGRED_PENDING);
    assert_int_equal(send(w.a, "r", 1, 0), 1);
    assert_int_equal(rr_hand_step(&w.listener), RINGRED_PENDING);
    assert_true(w.listener.give_up_ns <= rr_now_ns() + RR_HAND_STALL_NS);
    w.listener.give_up_ns = rr_now_ns();
    assert_int_equal(rr_hand_step(&w.listener), -1);
    assert_int_equal(w.listener.verdict, RR_VERDICT_SLOW);
    wire_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ends_with_one_key_prove_each_other),
        cmocka_unit_test(test_a_byte_at_a_time_is_enough),
        cmocka_unit_test(test_any_changed_bit_is_noticed),
        cmocka_unit_test(test_a_changed_taken_is_not_taken),
        cmocka_unit_test(test_each_direction_of_each_connection_has_a_key_of_its_own),
        cmocka_unit_test(test_the_cipher_is_one_that_both_have),
        cmocka_unit_test(test_encryption_cannot_be_talked_away),
        cmocka_unit_test(test_a_connection_that_is_not_taken_does_not_exist),
        cmocka_unit_test(test_a_listener_that_has_gone_is_not_taken),
        cmocka_unit_test(test_verdicts_say_what_differs),
        cmocka_unit_test(test_another_version_is_named_on_both_sides),
        cmocka_unit_test(test_noise_is_dropped_at_its_first_byte),
        cmocka_unit_test(test_a_proof_cannot_be_replayed),
        cmocka_unit_test(test_messages_cannot_be_reflected),
        cmocka_unit_test(test_silence_has_a_deadline),
    };

    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
