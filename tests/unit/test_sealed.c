/* SPDX-License-Identifier: Apache-2.0 */
/* What is encrypted on the way: lanes over a pipe that this test holds, and lines over a socket. It lets bytes through a
 * few at a time, and changes, repeats, leaves out, reflects or cuts them. */
#include "boot/inside.h"
#include "transport/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOM ((size_t)1 << 20)

struct pipe {
    unsigned char bytes[ROOM];
    size_t lo, hi, most; /* most: that go through in a call */
    bool ended;
};

struct end {
    struct pipe *out, *in;
    struct rr_lanes lanes;
    int rails;
};

static struct pipe there, back;
static struct end one, two; /* of rank 0, whose peer is rank 1, and the other way round */
static unsigned char want[ROOM], got[ROOM];
static enum rr_cipher cipher;

/* ---- the lanes below ---- */

static int64_t pipe_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct pipe *p = ((struct end *)self)->out;
    size_t n = 0;

    (void)peer, (void)rail, (void)system;
    for (int32_t i = 0; i < parts && n < p->most; i++) {
        size_t k = part[i].length < p->most - n ? part[i].length : p->most - n;
        assert_true(p->hi + k <= ROOM);
        memcpy(p->bytes + p->hi, part[i].bytes, k);
        p->hi += k;
        n += k;
    }
    return (int64_t)n;
}

static int64_t pipe_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    struct pipe *p = ((struct end *)self)->in;
    size_t n = p->hi - p->lo < p->most ? p->hi - p->lo : p->most;

    (void)peer, (void)rail, (void)parts;
    *system = 0;
    if (p->hi == p->lo && p->ended)
        return RINGRED_EPEER;
    n = n < part->length ? n : part->length;
    memcpy(part->bytes, p->bytes + p->lo, n);
    p->lo += n;
    return (int64_t)n;
}

static void pipe_finish(void *self, int32_t peer, int32_t rail)
{
    (void)peer, (void)rail;
    ((struct end *)self)->out->ended = true;
}

static int32_t pipe_drained(void *self, int32_t peer, int32_t rail)
{
    (void)self, (void)peer, (void)rail;
    return 0;
}

static void pipe_close(void *self, int64_t deadline_ns)
{
    (void)self, (void)deadline_ns;
}

static const ringred_transport pipes = {
    .struct_size = sizeof pipes,
    .name = "pipe",
    .send = pipe_send,
    .recv = pipe_recv,
    .finish = pipe_finish,
    .drained = pipe_drained,
    .close = pipe_close,
};

static void end_open(struct end *e, int me, struct pipe *out, struct pipe *in, const struct rr_seal *seal)
{
    struct rr_seal lane[4] = { { RR_CIPHER_NONE, { 0 }, { 0 } } };
    ringred_error why;

    e->out = out;
    e->in = in;
    e->lanes = (struct rr_lanes){ .ranks = 2, .me = me, .by = &pipes, .self = e };
    lane[2 * !me] = lane[2 * !me + 1] = *seal;
    assert_int_equal(rr_seal_lanes(&e->lanes, lane, 2, &why), 0);
}

static int open_both(void **state)
{
    struct rr_seal seal, twin;

    cipher = (enum rr_cipher)(intptr_t)*state;
    if (cipher == RR_CIPHER_AES256GCM && !crypto_aead_aes256gcm_is_available())
        cipher = RR_CIPHER_CHACHA20; /* this processor has no AES */
    seal.cipher = twin.cipher = cipher;
    randombytes_buf(seal.out, sizeof seal.out);
    randombytes_buf(seal.in, sizeof seal.in);
    memcpy(twin.out, seal.in, sizeof seal.in);
    memcpy(twin.in, seal.out, sizeof seal.out);
    there.lo = there.hi = back.lo = back.hi = 0;
    there.most = back.most = ROOM;
    there.ended = back.ended = false;
    end_open(&one, 0, &there, &back, &seal);
    end_open(&two, 1, &back, &there, &twin);
    for (size_t i = 0; i < ROOM; i++)
        want[i] = (unsigned char)(i * 31 + i / 251);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    one.lanes.by->close(one.lanes.self, 0);
    two.lanes.by->close(two.lanes.self, 0);
    return 0;
}

static int64_t say(const void *bytes, size_t length)
{
    const ringred_span part = { (void *)(uintptr_t)bytes, length };
    int32_t system = 0;

    return one.lanes.by->send(one.lanes.self, 1, 0, &part, 1, &system);
}

static int64_t hear(size_t room, int32_t *system)
{
    const ringred_span part = { got, room };

    *system = 0;
    return two.lanes.by->recv(two.lanes.self, 0, 0, &part, 1, system);
}

/* ---- lanes ---- */

/* As frames are sent: a head and a payload, in as many calls as it takes; read in parts of any size. */
static void test_what_is_sent_arrives_however_few_bytes_go_through(void **state)
{
    (void)state;
    static const size_t mosts[] = { 1, 3, 19, 20, 21, 1000, 16384, 16404, 50000, ROOM };
    const size_t bytes = 150000;
    int32_t system;

    for (size_t m = 0; m < sizeof mosts / sizeof *mosts; m++) {
        size_t sent = 0, arrived = 0;
        there.lo = there.hi = 0;
        there.most = mosts[m];
        memset(got, 0, bytes);
        while (arrived < bytes) {
            size_t head = bytes - sent < 32 ? bytes - sent : 32, body = randombytes_uniform(40000);
            body = bytes - sent - head < body ? bytes - sent - head : body;
            for (size_t whole = sent + head + body; sent < whole && m > 1;) { /* one frame; few bytes: all of it, later */
                const ringred_span part[2] = { { want + sent, head }, { want + sent + head, whole - sent - head } };
                int64_t n = one.lanes.by->send(one.lanes.self, 1, 0, head ? part : part + 1, head ? 2 : 1, &system);
                assert_true(n >= 0);
                sent += (size_t)n;
                head = (size_t)n < head ? head - (size_t)n : 0;
            }
            if (m <= 1 && sent < bytes) {
                int64_t n = say(want + sent, bytes - sent);
                assert_true(n >= 0);
                sent += (size_t)n;
            }
            const ringred_span part[2] = { { got + arrived, 7 }, { got + arrived + 7, bytes + 64 - arrived } };
            int64_t n = two.lanes.by->recv(two.lanes.self, 0, 0, part, 2, &system);
            assert_true(n >= 0);
            arrived += (size_t)n;
            assert_true(arrived <= sent + 1); /* its last byte is not called sent before all has gone */
        }
        assert_memory_equal(got, want, bytes);
    }
}

static void test_nothing_of_it_is_seen_on_the_way(void **state)
{
    (void)state;
    assert_int_equal(say(want, 5000), 5000);
    for (size_t i = 0; i + 16 < there.hi; i++)
        assert_memory_not_equal(there.bytes + i, want + 64, 16);
}

/* The record arrives as `bytes`; nothing of it is handed out, nor anything behind it. */
static void is_refused(const unsigned char *bytes, size_t length)
{
    int32_t system;

    memcpy(there.bytes, bytes, length);
    there.lo = 0;
    there.hi = length;
    memset(got, 0x5a, 256);
    int64_t n = hear(256, &system);
    if (n == 0) { /* it says that it is longer: the rest never comes */
        there.ended = true;
        assert_int_equal(hear(256, &system), RINGRED_EPEER);
        there.ended = false;
        return;
    }
    assert_int_equal(n, RINGRED_EPEER);
    assert_int_equal(system, EBADMSG);
    for (int i = 0; i < 256; i++)
        assert_true(got[i] == 0x5a || got[i] == 0);
    assert_int_equal(hear(256, &system), RINGRED_EPEER);
    assert_int_equal(system, EBADMSG);
}

static void test_any_changed_bit_of_a_record_is_noticed(void **state)
{
    unsigned char record[120];

    for (size_t bit = 0; bit < 8 * sizeof record; bit++) {
        (void)close_both(state);
        *state = (void *)(intptr_t)cipher;
        (void)open_both(state);
        assert_int_equal(say(want, 100), 100);
        assert_int_equal(there.hi, sizeof record);
        memcpy(record, there.bytes, sizeof record);
        record[bit / 8] ^= (unsigned char)(1 << bit % 8);
        is_refused(record, sizeof record);
    }
}

/* The second record is repeated, or comes first, or is one of the other direction. */
static void test_records_come_once_in_order_and_from_the_peer(void **state)
{
    unsigned char first[84], second[84];
    int32_t system;

    for (int what = 0; what < 3; what++) {
        (void)close_both(state);
        *state = (void *)(intptr_t)cipher;
        (void)open_both(state);
        assert_int_equal(say(want, 64), 64);
        memcpy(first, there.bytes, sizeof first);
        assert_int_equal(say(want + 64, 64), 64);
        memcpy(second, there.bytes + sizeof first, sizeof second);
        if (what == 0) {
            there.hi = sizeof first;
            assert_int_equal(hear(256, &system), 64);
            is_refused(first, sizeof first);
        } else if (what == 1) {
            is_refused(second, sizeof second);
        } else {
            const ringred_span part = { want, 64 };
            assert_int_equal(two.lanes.by->send(two.lanes.self, 0, 0, &part, 1, &system), 64);
            is_refused(back.bytes, back.hi); /* its own */
        }
    }
}

static void test_keys_change_and_go_on(void **state)
{
    int32_t system;

    (void)state;
    for (uint32_t i = 0; i < 2 * RR_RECORD_KEY + 3; i++) {
        there.lo = there.hi = 0;
        assert_int_equal(say(&i, sizeof i), sizeof i);
        assert_int_equal(hear(sizeof i, &system), sizeof i);
        assert_memory_equal(got, &i, sizeof i);
    }
}

/* An end that was said is an end; one that was not, on another lane than the first, was made by somebody on the way. */
static void test_an_end_is_told_from_a_cut(void **state)
{
    const ringred_span part = { got, 64 };
    int32_t system = 0;

    one.lanes.by->finish(one.lanes.self, 1, 0);
    assert_true(there.ended);
    assert_int_equal(one.lanes.by->drained(one.lanes.self, 1, 0), 0);
    assert_int_equal(hear(64, &system), RINGRED_EPEER);
    assert_int_equal(system, 0);
    (void)close_both(state);
    *state = (void *)(intptr_t)cipher;
    (void)open_both(state);
    there.ended = true;
    assert_int_equal(two.lanes.by->recv(two.lanes.self, 0, 1, &part, 1, &system), RINGRED_EPEER);
    assert_int_equal(system, ECONNRESET);
}

/* ---- lines ---- */

static void line_pair(struct rr_line *from, struct rr_line *to)
{
    struct rr_seal seal = { cipher, { 1 }, { 2 } }, twin = { cipher, { 2 }, { 1 } };
    int end[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
    assert_int_equal(rr_line_open(from, end[0], 1, &seal), 0);
    assert_int_equal(rr_line_open(to, end[1], 0, &twin), 0);
}

/* Notes that fill the socket: writer and reader take turns. */
static void test_notes_arrive_over_a_line(void **state)
{
    static const size_t sizes[] = { 0, 1, 1023, 1024, 1025, 500000 };
    struct rr_line from, to;

    (void)state;
    line_pair(&from, &to);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        enum rr_line_news news = RR_LINE_QUIET;
        memset(got, 0, sizes[i]);
        rr_line_send(&from, RR_NOTE_UP, (uint32_t)i, want, sizes[i]);
        while (news != RR_LINE_WHOLE) {
            assert_true(rr_line_write(&from) >= 0);
            news = rr_line_read(&to);
            assert_int_not_equal(news, RR_LINE_ENDED);
            if (news == RR_LINE_HEADED)
                to.body = got;
        }
        assert_int_equal(to.in.step, i);
        assert_int_equal(to.in.bytes, sizes[i]);
        assert_memory_equal(got, want, sizes[i]);
        rr_line_next(&to);
    }
    rr_line_close(&from);
    rr_line_close(&to);
}

static void test_a_changed_note_ends_the_line(void **state)
{
    unsigned char bytes[256];

    (void)state;
    for (size_t bit = 0; bit < 8 * (RR_NOTE_HEAD + RR_RECORD_MORE + 40 + RR_RECORD_MORE); bit++) {
        struct rr_line from, to;
        int end[2];
        line_pair(&from, &to);
        rr_line_send(&from, RR_NOTE_UP, 7, want, 40);
        assert_int_equal(rr_line_write(&from), 0);
        ssize_t n = recv(to.fd, bytes, sizeof bytes, 0);
        assert_int_equal(n, RR_NOTE_HEAD + 40 + 2 * RR_RECORD_MORE);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
        assert_int_equal(send(end[0], bytes, (size_t)n, 0), n);
        close(end[0]); /* what says that it is longer never comes */
        close(to.fd);
        to.fd = end[1];
        enum rr_line_news news = rr_line_read(&to);
        if (news == RR_LINE_HEADED) {
            to.body = got;
            news = rr_line_read(&to);
        }
        assert_int_equal(news, RR_LINE_ENDED);
        rr_line_close(&from);
        rr_line_close(&to);
    }
}

#define BOTH(test)                                                                                                    \
    cmocka_unit_test_prestate_setup_teardown(test, open_both, close_both, (void *)(intptr_t)RR_CIPHER_AES256GCM),      \
        cmocka_unit_test_prestate_setup_teardown(test, open_both, close_both, (void *)(intptr_t)RR_CIPHER_CHACHA20)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_what_is_sent_arrives_however_few_bytes_go_through),
        BOTH(test_nothing_of_it_is_seen_on_the_way),
        BOTH(test_any_changed_bit_of_a_record_is_noticed),
        BOTH(test_records_come_once_in_order_and_from_the_peer),
        BOTH(test_keys_change_and_go_on),
        BOTH(test_an_end_is_told_from_a_cut),
        BOTH(test_notes_arrive_over_a_line),
        BOTH(test_a_changed_note_ends_the_line),
    };

    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
