/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of a message: streams that are slow get less, whether their queues tell or their time. */
#include "transport/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAMS 4

static struct rr_stream stream[STREAMS];
static struct rr_move message;
static struct rr_link line;

static int set_up(void **state)
{
    (void)state;
    memset(stream, 0, sizeof stream);
    memset(&line, 0, sizeof line);
    memset(&message, 0, sizeof message);
    for (int i = 0; i < STREAMS; i++)
        stream[i].fd = -1;
    line.stream = stream;
    line.streams = STREAMS;
    line.sending = &message;
    rr_share_begin(&line);
    return 0;
}

static void queue(int i, size_t bytes)
{
    stream[i].busy = true;
    stream[i].out_bytes = bytes;
    stream[i].sent = RR_FRAME_BYTES;
}

static void test_queues_are_filled_to_one_level(void **state)
{
    (void)state;
    message.length = 90000; /* with what waits: 70000 for each of three, and the fourth has more */
    queue(0, 20000);
    queue(1, 60000);
    queue(2, 40000);
    queue(3, 100000);
    rr_share_level(&line);
    assert_int_equal(line.level, 70000);
    assert_int_equal(rr_share_part(&line, &stream[0]), rr_round_up(50000, RR_STRIPE_GRAIN));
    assert_int_equal(rr_share_part(&line, &stream[1]), rr_round_up(10000, RR_STRIPE_GRAIN));
    assert_int_equal(rr_share_part(&line, &stream[2]), rr_round_up(30000, RR_STRIPE_GRAIN));
    assert_int_equal(rr_share_part(&line, &stream[3]), 0);
}

static void test_the_last_bytes_go_to_one_stream(void **state)
{
    (void)state;
    for (message.length = 1; message.length <= 2 * RR_STRIPE_GRAIN; message.length++) {
        rr_share_level(&line);
        if (message.length <= RR_STRIPE_GRAIN)
            assert_int_equal(rr_share_part(&line, &stream[0]), message.length);
        else
            assert_true(rr_share_part(&line, &stream[0]) > 0);
    }
}

static void test_a_message_is_given_away_whole(void **state)
{
    (void)state;
    srand(5);
    for (int round = 0; round < 2000; round++) {
        uint64_t busy[STREAMS];
        for (int i = 0; i < STREAMS; i++) {
            busy[i] = (uint64_t)rand() % 200000;
            queue(i, (size_t)rand() % 300000);
        }
        rr_share_weigh(&line, busy);
        message.length = 1 + (size_t)rand() % 3000000;
        line.given = 0;
        while (line.given < message.length) {
            size_t before = line.given;
            rr_share_level(&line);
            for (int i = 0; i < STREAMS && line.given < message.length; i++) {
                size_t part = rr_share_part(&line, &stream[i]);
                assert_true(part <= RR_STRIPE_MOST && line.given + part <= message.length);
                line.given += part;
                stream[i].out_bytes += part;
            }
            assert_true(line.given > before); /* somebody always takes some */
        }
    }
}

/* As a link whose streams have these speeds, and are busy for as long as their parts need. */
static void go_round(const double *speed, int rounds)
{
    while (rounds-- > 0) {
        uint64_t busy[STREAMS];
        for (int i = 0; i < STREAMS; i++)
            busy[i] = (uint64_t)(100 * stream[i].weight / speed[i]);
        rr_share_weigh(&line, busy);
    }
}

static void test_shares_follow_speeds(void **state)
{
    static const double speed[STREAMS] = { 1, 1, 0.5, 0.25 }, other[STREAMS] = { 0.25, 1, 1, 1 };
    static const double *const both[] = { speed, other };

    (void)state;
    for (int k = 0; k < 2; k++) { /* and speeds may change */
        go_round(both[k], 30);
        for (int i = 0; i < STREAMS; i++)
            for (int j = 0; j < STREAMS; j++) {
                double is = (double)stream[i].weight / stream[j].weight, due = both[k][i] / both[k][j];
                assert_true(is > due / 1.3 && is < due * 1.3);
            }
    }
}

static void test_equal_streams_stay_equal(void **state)
{
    static const uint64_t ticks[STREAMS] = { 100000, 104000, 96000, 100000 };

    (void)state;
    for (int round = 0; round < 100; round++)
        rr_share_weigh(&line, ticks);
    for (int i = 1; i < STREAMS; i++)
        assert_int_equal(stream[i].weight, stream[0].weight);
}

static void test_a_stream_that_stands_still_is_not_forgotten(void **state)
{
    static const double speed[STREAMS] = { 1, 1, 1, 1e-4 };

    (void)state;
    go_round(speed, 100);
    assert_true(stream[3].weight > 0 && stream[3].weight < stream[0].weight / 8);
    message.length = 1 << 20;
    rr_share_level(&line);
    assert_true(rr_share_part(&line, &stream[3]) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_queues_are_filled_to_one_level, set_up),
        cmocka_unit_test_setup(test_the_last_bytes_go_to_one_stream, set_up),
        cmocka_unit_test_setup(test_a_message_is_given_away_whole, set_up),
        cmocka_unit_test_setup(test_shares_follow_speeds, set_up),
        cmocka_unit_test_setup(test_equal_streams_stay_equal, set_up),
        cmocka_unit_test_setup(test_a_stream_that_stands_still_is_not_forgotten, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
