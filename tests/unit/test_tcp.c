/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose other end is this test: frames that arrive in one piece, in two, with control frames
 * between them, and what is told when the two ends disagree. */
#include "transport/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define ROOM 300000

static struct rr_transport *links;
static int peer; /* our end, as rank 1 */
static struct rr_ask mine;
static unsigned char wire[ROOM], got[ROOM], want[ROOM];

static int open_link(void **state)
{
    static const char *const settings[] = { "tcp_congestion=system", NULL };
    static const struct rr_congestion none = { "", "" };
    struct rr_settings *s = rr_alloc(1, sizeof *s);
    ringred_error why;
    int end[2], fd[2] = { -1, -1 }, rc;

    (void)state;
    if (!s || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end))
        return -1;
    fd[1] = end[0];
    peer = end[1];
    rc = rr_settings_load(s, settings, &why);
    if (rc == 0)
        rc = rr_tcp_open(2, 0, fd, 1, &none, s, NULL, &links, &why);
    rr_free(s);
    mine = (struct rr_ask){ .collective = RR_ALLREDUCE, .type = 1, .op = 1, .count = 7, .sequence = 5 };
    for (size_t i = 0; i < ROOM; i++)
        want[i] = (unsigned char)(i * 31 + i / 251);
    if (rc == 0)
        links->ops->begin(links, NULL, &mine);
    return rc;
}

static int close_link(void **state)
{
    (void)state;
    close(peer);
    (void)links->ops->close(links, 0, 0); /* nobody reads the goodbye */
    return 0;
}

static size_t put(size_t at, enum rr_frame_kind kind, const struct rr_ask *ask, const void *payload,
                  size_t bytes)
{
    struct rr_frame f = { .kind = (uint8_t)kind, .length = (uint32_t)bytes, .ask = *ask };

    assert_true(at + RR_FRAME_BYTES + bytes <= ROOM);
    rr_frame_write(&f, wire + at);
    memcpy(wire + at + RR_FRAME_BYTES, payload, bytes);
    return at + RR_FRAME_BYTES + bytes;
}

static size_t put_fault(size_t at, int code, const char *text)
{
    ringred_error why = { .code = code, .rank = 1 };
    unsigned char payload[RR_FAULT_BYTES];

    strcpy(why.text, text);
    return put(at, RR_FRAME_FAULT, &(struct rr_ask){ 0 }, payload, rr_frame_write_fault(&why, payload));
}

static void say(size_t from, size_t to)
{
    while (from < to) {
        ssize_t n = send(peer, wire + from, to - from, MSG_NOSIGNAL);
        assert_true(n > 0);
        from += (size_t)n;
    }
}

static int receive(struct rr_move *m, ringred_error *why)
{
    return links->ops->recv(links, m, why);
}

/* got, in pieces that lie in the other order and grow: 1, 2, 3... bytes. */
static const struct rr_pieces *scattered(size_t bytes)
{
    static struct rr_piece piece[1000];
    static struct rr_pieces p = { piece, 0 };
    size_t end = 0;

    for (p.n = 0; end < bytes; p.n++) {
        size_t n = p.n + 1 < bytes - end ? p.n + 1 : bytes - end;
        end += n;
        piece[p.n] = (struct rr_piece){ (char *)got + bytes - end, end };
    }
    return &p;
}

/* asks control frames, then a message, of which the first `cut` bytes come first. */
static void once(int asks, size_t bytes, size_t cut, bool scatter)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = bytes, .ask = &mine };
    static unsigned char gathered[ROOM];
    ringred_error why = { 0 };
    size_t at = 0;

    for (int i = 0; i < asks; i++)
        at = put(at, RR_FRAME_ASK, &mine, "", 0);
    at = put(at, RR_FRAME_DATA, &mine, want, bytes);
    cut = cut < at ? cut : at;
    memset(got, 0, sizeof got);
    say(0, cut);
    if (scatter) {
        m.bytes = NULL;
        m.pieces = scattered(bytes);
    }
    int rc = receive(&m, &why);
    assert_int_equal(rc, cut == at ? 0 : RINGRED_PENDING);
    say(cut, at);
    if (rc)
        assert_int_equal(receive(&m, &why), 0);
    rr_spot_get(rr_move_spot(&m), gathered, bytes);
    assert_memory_equal(gathered, want, bytes);
    assert_int_equal(got[bytes], 0);
}

static void test_messages_arrive_whole_behind_whatever_was_said_before(void **state)
{
    static const size_t sizes[] = { 0, 1, 4096, 4097, 8160, 8161, 8192, 20000, 100000 };
    static const size_t cuts[] = { ROOM, 1, 31, 32, 33, 64, 100, 4128, 8192, 8224, 20001 };

    (void)state;
    for (int asks = 0; asks < 4; asks++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
                for (int scatter = 0; scatter < 2; scatter++)
                    once(asks, sizes[s], cuts[c], scatter);
}

static void test_a_message_from_many_places_goes_out_in_order(void **state)
{
    static const size_t sizes[] = { 1, 3, 4096, 20000, 100000 };
    ringred_error why;

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct rr_move m = { .peer = 1, .pieces = scattered(sizes[s]), .length = sizes[s], .ask = &mine };
        size_t at = 0, whole = RR_FRAME_BYTES + sizes[s];
        int rc = RINGRED_PENDING;
        rr_spot_put(rr_move_spot(&m), want, sizes[s]);
        while (at < whole) {
            rc = rc ? links->ops->send(links, &m, &why) : rc;
            ssize_t n = recv(peer, wire + at, whole - at, MSG_DONTWAIT);
            assert_true(rc >= 0 && n > 0);
            at += (size_t)n;
        }
        if (rc)
            assert_int_equal(links->ops->send(links, &m, &why), 0);
        assert_memory_equal(wire + RR_FRAME_BYTES, want, sizes[s]);
    }
}

/* Several small messages where one large one is due, and then why. */
static void test_a_peer_that_went_on_is_heard_out(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = 50000, .ask = &mine };
    struct rr_ask other = mine;
    ringred_error why = { 0 };
    size_t at = 0;

    (void)state;
    other.sequence = 6;
    for (int i = 0; i < 20; i++)
        at = put(at, RR_FRAME_DATA, &other, want, 1000);
    at = put_fault(at, RINGRED_EMISMATCH, "rank 1 knows why");
    say(0, at);
    assert_int_equal(receive(&m, &why), RINGRED_EMISMATCH);
    assert_string_equal(why.text, "rank 1 knows why");
}

/* A peer that says why it stops and goes: its word counts, whoever finds the broken connection first, and
 * whatever data it had sent before. */
static void told_and_gone(size_t data, size_t taken, bool by_send)
{
    struct rr_move in = { .peer = 1, .bytes = got, .length = data, .ask = &mine };
    struct rr_move out = { .peer = 1, .bytes = want, .length = ROOM, .ask = &mine };
    ringred_error why = { 0 };
    uint8_t gone[2] = { 0 };
    size_t at = data ? put(0, RR_FRAME_DATA, &mine, want, data) : 0;

    at = put_fault(at, RINGRED_EPEER, "rank 0 was lost");
    say(0, taken);
    if (taken)
        assert_int_equal(receive(&in, &why), RINGRED_PENDING);
    say(taken, at);
    assert_int_equal(shutdown(peer, SHUT_RDWR), 0);
    if (by_send) {
        assert_int_equal(links->ops->send(links, &out, &why), RINGRED_EPEER);
    } else {
        links->ops->probe(links, NULL, &mine); /* finds that nothing can be sent any more */
        assert_int_equal(links->ops->check(links, gone, &why), RINGRED_EPEER);
    }
    assert_string_equal(why.text, "rank 0 was lost");
}

static void test_the_last_word_counts_more_than_the_errno(void **state)
{
    static const size_t sizes[] = { 0, 4, 4096, 50000 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int by_send = 0; by_send < 2; by_send++)
            for (size_t taken = 0; taken < RR_FRAME_BYTES + sizes[i]; taken += sizes[i] / 2 + 20) {
                if (taken && !sizes[i])
                    continue;
                close_link(state);
                assert_int_equal(open_link(state), 0);
                told_and_gone(sizes[i], taken, by_send);
            }
}

static void test_what_a_lost_peer_asked_for_is_compared(void **state)
{
    struct rr_move out = { .peer = 1, .bytes = want, .length = ROOM, .ask = &mine };
    struct rr_ask other = mine;
    ringred_error why = { 0 };

    (void)state;
    other.count = 8;
    say(0, put(0, RR_FRAME_DATA, &other, want, 32));
    assert_int_equal(shutdown(peer, SHUT_RDWR), 0);
    assert_int_equal(links->ops->send(links, &out, &why), RINGRED_EMISMATCH);
}

static void test_health_is_looked_at_while_a_message_is_due(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = 60000, .ask = &mine };
    ringred_error why = { 0 };
    uint8_t gone[2] = { 0 };
    size_t at = put(0, RR_FRAME_ASK, &mine, "", 0), end = put(at, RR_FRAME_DATA, &mine, want, 60000);

    (void)state;
    say(0, at + 20000);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    assert_int_equal(links->ops->check(links, gone, &why), 0);
    assert_int_equal(gone[1], 0);
    say(at + 20000, end);
    assert_int_equal(links->ops->check(links, gone, &why), 0);
    assert_int_equal(receive(&m, &why), 0);
    assert_memory_equal(got, want, 60000);
}

/* Who asked a hundred times a peer that does not read still has room to say why it stops. */
static void test_probes_leave_room_for_the_last_word(void **state)
{
    const ringred_error last = { .code = RINGRED_EABORTED, .rank = 0, .text = "the last word" };
    struct rr_move m = { .peer = 1, .bytes = want, .length = ROOM, .ask = &mine };
    ringred_error why = { 0 };
    static char all[2 * ROOM];
    size_t n = 0;
    ssize_t k;

    (void)state;
    int least = 4096;
    assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &least, sizeof least), 0);
    assert_int_equal(links->ops->send(links, &m, &why), RINGRED_PENDING);
    for (int i = 0; i < 100; i++)
        links->ops->probe(links, NULL, &mine);
    links->ops->tell(links, &last);
    for (int turns = 0; turns < 100; turns++) {
        uint8_t gone[2] = { 0 };
        while ((k = recv(peer, all + n, sizeof all - n, MSG_DONTWAIT)) > 0)
            n += (size_t)k;
        assert_int_equal(links->ops->check(links, gone, &why), 0);
    }
    assert_true(n > ROOM);
    assert_non_null(memmem(all, n, "the last word", 13));
}

/* A message of the first channel, in plan order, comes in part while only another channel is listened to. */
static void test_what_is_set_aside_for_another_channel_is_found(void **state)
{
    static const size_t sizes[] = { 0, 100, 5000, 40000, 100000 };
    static const int16_t member[2] = { 0, 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t cut = 0; cut <= sizes[i] + RR_FRAME_BYTES; cut += sizes[i] / 3 + 20) {
            struct rr_channel *part;
            unsigned char other[10];
            ringred_error why = { 0 };
            close_link(state);
            assert_int_equal(open_link(state), 0);
            assert_int_equal(rr_channel_new(links, 2, member, &part, &why), 0);
            rr_channel_route(part, 1, 1);
            links->ops->begin(links, part, &mine);
            struct rr_move m = { .peer = 1, .way = 1, .bytes = got, .length = sizes[i], .ask = &mine };
            struct rr_move n = { .peer = 1, .way = 1, .channel = part, .bytes = other, .length = 10, .ask = &mine };
            size_t at = put(0, RR_FRAME_DATA, &mine, want, sizes[i]);
            memset(got, 0, sizeof got);
            say(0, cut);
            assert_int_equal(receive(&n, &why), RINGRED_PENDING);
            int rc = receive(&m, &why);
            assert_int_equal(rc, cut == at ? 0 : RINGRED_PENDING);
            say(cut, at);
            if (rc)
                assert_int_equal(receive(&m, &why), 0);
            assert_memory_equal(got, want, sizes[i]);
        }
}

/* A message of the first channel is under way while another channel is listened to. */
static void test_what_is_under_way_ends_before_another_channel_reads(void **state)
{
    static const int16_t member[2] = { 0, 1 };
    struct rr_channel *part;
    unsigned char other[10] = { 0 };
    ringred_error why = { 0 };

    (void)state;
    assert_int_equal(rr_channel_new(links, 2, member, &part, &why), 0);
    rr_channel_route(part, 1, 1);
    links->ops->begin(links, part, &mine);
    struct rr_move m = { .peer = 1, .way = 1, .bytes = got, .length = 50000, .ask = &mine };
    struct rr_move n = { .peer = 1, .way = 1, .channel = part, .bytes = other, .length = 10, .ask = &mine };
    size_t at = put(0, RR_FRAME_DATA, &mine, want, 50000);
    say(0, 20000);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    assert_int_equal(receive(&n, &why), RINGRED_PENDING);
    say(20000, at);
    assert_int_equal(receive(&n, &why), RINGRED_PENDING);
    assert_int_equal(receive(&m, &why), 0);
    assert_memory_equal(got, want, 50000);
    assert_int_equal(receive(&n, &why), RINGRED_PENDING);
    assert_int_equal(other[0], 0);
}

/* A long message comes in plan order, is set aside in part, is wanted, and then the peer shares the link: it was
 * never asked for, so the next long one is the first that is. */
static void test_what_came_before_a_link_was_shared_was_not_asked_for(void **state)
{
    static const int16_t member[2] = { 0, 1 };
    struct rr_frame share = { .kind = RR_FRAME_SHARE }, heard;
    struct rr_channel *part;
    unsigned char other[10];
    ringred_error why = { 0 };

    (void)state;
    assert_int_equal(rr_channel_new(links, 2, member, &part, &why), 0);
    rr_channel_route(part, 1, 1);
    links->ops->begin(links, part, &mine);
    struct rr_move m = { .peer = 1, .way = 1, .bytes = got, .length = 50000, .ask = &mine }, next = m;
    struct rr_move n = { .peer = 1, .way = 1, .channel = part, .bytes = other, .length = 10, .ask = &mine };
    size_t at = put(0, RR_FRAME_DATA, &mine, want, 50000);
    next.slot = 1;
    say(0, at - 100);
    assert_int_equal(receive(&n, &why), RINGRED_PENDING);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    rr_frame_write(&share, wire + at);
    say(at - 100, at + RR_FRAME_BYTES);
    assert_int_equal(receive(&m, &why), 0);
    assert_memory_equal(got, want, 50000);
    assert_int_equal(recv(peer, wire, sizeof wire, MSG_DONTWAIT), -1); /* nothing was said */
    assert_int_equal(receive(&next, &why), RINGRED_PENDING);
    assert_int_equal(recv(peer, wire, sizeof wire, MSG_DONTWAIT), RR_FRAME_BYTES);
    assert_int_equal(rr_frame_read(wire, 1, &heard, &why), 0);
    assert_int_equal(heard.kind, RR_FRAME_WANT);
    assert_int_equal(heard.ask.count, 1);
}

static void test_strangers_bytes_have_a_sentence(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = 100, .ask = &mine };
    ringred_error why = { 0 };

    (void)state;
    memset(wire, 'x', 200);
    say(0, 200);
    assert_int_equal(receive(&m, &why), RINGRED_EWIRE);
    assert_int_equal(why.rank, 1);
    assert_non_null(strstr(why.text, "no ringred peer"));
}

/* ---- several streams ---- */

#define STREAMS 3
static int ends[STREAMS]; /* ours; ends[0] is peer */

static int open_streams(void **state)
{
    static const char *const settings[] = { "tcp_congestion=system", NULL };
    static const struct rr_congestion none = { "", "" };
    struct rr_settings *s = rr_alloc(1, sizeof *s);
    ringred_error why;
    int fd[2 * STREAMS] = { -1, -1, -1 }, rc = s ? 0 : -1;

    (void)state;
    for (int i = 0; i < STREAMS && rc == 0; i++) {
        int end[2];
        rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end);
        fd[STREAMS + i] = end[0];
        ends[i] = end[1];
    }
    peer = ends[0];
    if (rc == 0)
        rc = rr_settings_load(s, settings, &why);
    if (rc == 0)
        rc = rr_tcp_open(2, 0, fd, STREAMS, &none, s, NULL, &links, &why);
    rr_free(s);
    mine = (struct rr_ask){ .collective = RR_ALLREDUCE, .type = 1, .op = 1, .count = 7, .sequence = 5 };
    for (size_t i = 0; i < ROOM; i++)
        want[i] = (unsigned char)(i * 31 + i / 251);
    if (rc == 0)
        links->ops->begin(links, NULL, &mine);
    return rc;
}

static int close_streams(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++)
        close(ends[i]);
    (void)links->ops->close(links, 0, 0); /* nobody reads the goodbye */
    return 0;
}

/* A message of 60000 bytes over three streams: parts of 20480. */
#define LONG 60000
#define PART 20480

static void say_on(int stream, enum rr_frame_kind kind, const struct rr_ask *ask, size_t at, size_t bytes)
{
    struct rr_frame f = { .kind = (uint8_t)kind, .length = (uint32_t)bytes, .ask = *ask };
    unsigned char head[RR_FRAME_BYTES];

    if (kind == RR_FRAME_STRIPE)
        f.ask.root = (int32_t)at;
    rr_frame_write(&f, head);
    assert_int_equal(send(ends[stream], head, sizeof head, MSG_NOSIGNAL), sizeof head);
    if (bytes)
        assert_int_equal(send(ends[stream], want + at, bytes, MSG_NOSIGNAL), bytes);
}

static void test_stripes_come_in_any_order(void **state)
{
    static const int orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 0, 2 }, { 2, 0, 1 } };

    (void)state;
    for (size_t o = 0; o < 4; o++)
        for (int same = 0; same < 2; same++) { /* all on the first stream, or one on each */
            struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine };
            ringred_error why = { 0 };
            memset(got, 0, sizeof got);
            for (int i = 0; i < 3; i++) {
                int part = same ? i : orders[o][i];
                size_t at = (size_t)part * PART, bytes = part == 2 ? LONG - 2 * PART : PART;
                assert_int_equal(receive(&m, &why), RINGRED_PENDING);
                say_on(same ? 0 : part, part ? RR_FRAME_STRIPE : RR_FRAME_DATA, &mine, at, bytes);
            }
            assert_int_equal(receive(&m, &why), 0);
            assert_memory_equal(got, want, LONG);
            mine.sequence++;
        }
}

static void test_a_stripe_of_the_next_message_waits(void **state)
{
    struct rr_ask next = mine;
    struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine }, n = m;
    ringred_error why = { 0 };

    (void)state;
    next.sequence++;
    n.ask = &next;
    say_on(1, RR_FRAME_STRIPE, &mine, PART, PART);
    say_on(1, RR_FRAME_STRIPE, &next, PART, PART); /* before the first message is whole */
    say_on(0, RR_FRAME_DATA, &mine, 0, PART);
    say_on(0, RR_FRAME_DATA, &next, 0, PART);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    say_on(2, RR_FRAME_STRIPE, &mine, 2 * PART, LONG - 2 * PART);
    assert_int_equal(receive(&m, &why), 0);
    assert_memory_equal(got, want, LONG);
    memset(got, 0, sizeof got);
    assert_int_equal(receive(&n, &why), RINGRED_PENDING);
    say_on(2, RR_FRAME_STRIPE, &next, 2 * PART, LONG - 2 * PART);
    assert_int_equal(receive(&n, &why), 0);
    assert_memory_equal(got, want, LONG);
}

static void test_a_goodbye_does_not_overtake_stripes(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine };
    uint8_t gone[2] = { 0 };
    ringred_error why = { 0 };

    (void)state;
    say_on(0, RR_FRAME_DATA, &mine, 0, PART);
    say_on(0, RR_FRAME_BYE, &mine, 0, 0);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    assert_int_equal(links->ops->check(links, gone, &why), 0);
    assert_int_equal(gone[1], 0);
    say_on(1, RR_FRAME_STRIPE, &mine, PART, PART);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    say_on(2, RR_FRAME_STRIPE, &mine, 2 * PART, LONG - 2 * PART);
    assert_int_equal(receive(&m, &why), 0);
    assert_memory_equal(got, want, LONG);
    assert_int_equal(links->ops->check(links, gone, &why), 0);
    assert_int_equal(gone[1], RR_GONE_LINK);
}

static void test_a_peer_whose_streams_end_is_lost(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine };
    ringred_error why = { 0 };

    (void)state;
    say_on(0, RR_FRAME_DATA, &mine, 0, PART);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(receive(&m, &why), RINGRED_PENDING);
        assert_int_equal(shutdown(ends[i], SHUT_WR), 0);
    }
    assert_int_equal(receive(&m, &why), RINGRED_EPEER);
    assert_int_equal(why.rank, 1);
}

/* The others are open, but what this one owes will not come. */
static void test_a_stream_that_ends_within_a_stripe_is_a_loss(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine };
    struct rr_frame f = { .kind = RR_FRAME_STRIPE, .length = PART, .ask = mine };
    unsigned char head[RR_FRAME_BYTES];
    ringred_error why = { 0 };

    (void)state;
    f.ask.root = PART;
    rr_frame_write(&f, head);
    say_on(0, RR_FRAME_DATA, &mine, 0, PART);
    assert_int_equal(send(ends[1], head, sizeof head, MSG_NOSIGNAL), sizeof head);
    assert_int_equal(send(ends[1], want, 100, MSG_NOSIGNAL), 100);
    assert_int_equal(receive(&m, &why), RINGRED_PENDING);
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_int_equal(receive(&m, &why), RINGRED_EPEER);
    assert_int_equal(why.rank, 1);
}

static void test_a_stripe_outside_of_its_message_is_refused(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = got, .length = LONG, .ask = &mine };
    ringred_error why = { 0 };

    (void)state;
    say_on(0, RR_FRAME_DATA, &mine, 0, PART);
    say_on(1, RR_FRAME_STRIPE, &mine, LONG - 10, 11);
    assert_int_equal(receive(&m, &why), RINGRED_EWIRE);
}

static void test_a_long_message_goes_out_on_all_streams(void **state)
{
    struct rr_move m = { .peer = 1, .bytes = want, .length = LONG, .ask = &mine };
    ringred_error why = { 0 };
    size_t seen = 0;

    (void)state;
    assert_int_equal(links->ops->send(links, &m, &why), 0);
    memset(got, 0, sizeof got);
    for (int i = 0; i < STREAMS; i++) {
        unsigned char head[RR_FRAME_BYTES];
        struct rr_frame f;
        assert_int_equal(recv(ends[i], head, sizeof head, MSG_DONTWAIT), sizeof head);
        assert_int_equal(rr_frame_read(head, 0, &f, &why), 0);
        assert_int_equal(f.kind, i ? RR_FRAME_STRIPE : RR_FRAME_DATA);
        size_t at = i ? (size_t)f.ask.root : 0;
        assert_true(at + f.length <= LONG);
        assert_int_equal(recv(ends[i], got + at, f.length, MSG_DONTWAIT), f.length);
        seen += f.length;
    }
    assert_int_equal(seen, LONG);
    assert_memory_equal(got, want, LONG);
}

#define ON_STREAMS(test) cmocka_unit_test_setup_teardown(test, open_streams, close_streams)
#define ON_A_LINK(test) cmocka_unit_test_setup_teardown(test, open_link, close_link)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_LINK(test_messages_arrive_whole_behind_whatever_was_said_before),
        ON_A_LINK(test_a_message_from_many_places_goes_out_in_order),
        ON_A_LINK(test_a_peer_that_went_on_is_heard_out),
        ON_A_LINK(test_the_last_word_counts_more_than_the_errno),
        ON_A_LINK(test_what_a_lost_peer_asked_for_is_compared),
        ON_A_LINK(test_health_is_looked_at_while_a_message_is_due),
        ON_A_LINK(test_probes_leave_room_for_the_last_word),
        ON_A_LINK(test_what_is_set_aside_for_another_channel_is_found),
        ON_A_LINK(test_what_is_under_way_ends_before_another_channel_reads),
        ON_A_LINK(test_what_came_before_a_link_was_shared_was_not_asked_for),
        ON_A_LINK(test_strangers_bytes_have_a_sentence),
        ON_STREAMS(test_stripes_come_in_any_order),
        ON_STREAMS(test_a_stripe_of_the_next_message_waits),
        ON_STREAMS(test_a_goodbye_does_not_overtake_stripes),
        ON_STREAMS(test_a_peer_whose_streams_end_is_lost),
        ON_STREAMS(test_a_stream_that_ends_within_a_stripe_is_a_loss),
        ON_STREAMS(test_a_stripe_outside_of_its_message_is_refused),
        ON_STREAMS(test_a_long_message_goes_out_on_all_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
