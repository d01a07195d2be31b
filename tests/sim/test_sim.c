/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against times worked out by hand, and what must hold of every plan: it ends, it is not
 * faster than the wire, what leaves arrives, and more bytes take no less time. */
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RATE 1.25e8 /* 1 Gb/s */
#define LATENCY 50e-6
#define MI ((size_t)1 << 20)

/* Hosts whose CPUs cost nothing; nothing is buffered. */
static struct rr_machine plain(void)
{
    return (struct rr_machine){ .latency_s = LATENCY, .rate = RATE, .slow_host = -1, .streams = 1 };
}

static struct rr_sim case_of(enum rr_algo algo, int hosts, int per_host, size_t bytes, const struct rr_machine *m)
{
    return (struct rr_sim){ .algo = algo, .hosts = hosts, .per_host = per_host, .count = bytes / 4,
                            .segment = bytes / 4 + 1, .element_bytes = 4, .in_place = true, .machine = m };
}

static struct rr_simulated run(const struct rr_sim *s)
{
    struct rr_simulated r;
    ringred_error why;

    ringred_error_init(&why);
    if (rr_simulate(s, &r, &why) < 0)
        fail_msg("%s", why.text);
    return r;
}

static double seconds(enum rr_algo algo, int hosts, int per_host, size_t bytes, const struct rr_machine *m)
{
    struct rr_sim s = case_of(algo, hosts, per_host, bytes, m);
    struct rr_simulated r = run(&s);
    double time = r.seconds;

    rr_simulated_free(&r);
    return time;
}

static void same(double got, double want)
{
    double off = got > want ? got - want : want - got;

    if (off > 2e-11 + want * 1e-9)
        fail_msg("%.12g s, not %.12g s", got, want);
}

/* ---- by hand ---- */

static void test_a_message_takes_overhead_wire_latency_overhead(void **state)
{
    struct rr_machine m = plain();

    (void)state;
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, 1000000, &m), 1000000 / RATE + LATENCY);
    m.send_s = 3e-6;
    m.recv_s = 7e-6;
    m.header_bytes = 100;
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, 1000000, &m), 3e-6 + 1000100 / RATE + LATENCY + 7e-6);
    same(seconds(RR_ALGO_DISSEMINATION, 2, 1, 0, &m), 3e-6 + 100 / RATE + LATENCY + 7e-6);
    m.copy = 1e9; /* what fits into a chunk is copied before the wire begins and after it has ended */
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, 10000, &m), 10e-6 + 20000 / m.copy + 10100 / RATE + LATENCY);
}

static void test_a_send_is_done_when_the_rest_fits_into_the_socket(void **state)
{
    struct rr_machine m = plain();
    struct rr_sim s = case_of(RR_ALGO_GATHER, 2, 1, MI, &m);

    (void)state;
    m.buffer_bytes = MI / 4;
    struct rr_simulated r = run(&s);
    same(r.rank_s[1], (double)MI * 3 / 4 / RATE);
    same(r.rank_s[0], (double)MI / RATE + LATENCY);
    rr_simulated_free(&r);
}

static void test_a_twoshot_is_two_rounds_of_the_least_bytes(void **state)
{
    struct rr_machine m = plain();

    (void)state;
    for (int h = 2; h <= 4; h++) {
        double bytes = 12 * (double)MI;
        same(seconds(RR_ALGO_TWOSHOT, h, 1, 12 * MI, &m), 2 * ((h - 1) * bytes / h / RATE + LATENCY));
    }
}

static void test_a_ring_is_as_many_rounds_as_it_has_hops(void **state)
{
    struct rr_machine m = plain();

    (void)state;
    for (int h = 2; h <= 6; h++) {
        double block = 64 * 1024;
        same(seconds(RR_ALGO_RING, h, 1, (size_t)h * 65536, &m), 2 * (h - 1) * (block / RATE + LATENCY));
        same(seconds(RR_ALGO_RING_ALLGATHER, h, 1, 65536, &m), (h - 1) * (block / RATE + LATENCY));
    }
    same(seconds(RR_ALGO_DOUBLING, 8, 1, 65536, &m), 3 * (65536 / RATE + LATENCY));
}

static void test_a_stream_gets_no_more_than_its_cap(void **state)
{
    struct rr_machine m = plain();
    double wire = (double)MI / RATE;

    (void)state;
    m.flow = RATE / 4;
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, MI, &m), 4 * wire + LATENCY);
    m.streams = 2;
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, MI, &m), 2 * wire + LATENCY);
    m.streams = 8;
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, MI, &m), wire + LATENCY);
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, 16384, &m), 4 * 16384 / RATE + LATENCY); /* is not cut */
    m.streams = 1;
    m.flow = RATE / 3; /* everybody with everybody: three streams fill the wire */
    same(seconds(RR_ALGO_TWOSHOT, 4, 1, 4 * MI, &m), 2 * (3 * wire + LATENCY));
}

static void test_incast_shares_the_wire_into_the_root(void **state)
{
    struct rr_machine m = plain();
    struct rr_sim s = case_of(RR_ALGO_GATHER, 4, 1, MI, &m);

    (void)state;
    struct rr_simulated r = run(&s);
    for (int i = 1; i < 4; i++) {
        same(r.rank_s[i], 3 * (double)MI / RATE);
        assert_true(r.out[i] == MI);
    }
    same(r.seconds, 3 * (double)MI / RATE + LATENCY);
    assert_true(r.in[0] == 3 * MI && r.messages == 3);
    rr_simulated_free(&r);
}

static void test_what_a_slow_host_leaves_the_others_take(void **state)
{
    struct rr_machine m = plain();
    struct rr_sim s = case_of(RR_ALGO_GATHER, 4, 1, MI, &m);
    double bytes = MI;

    (void)state;
    m.slow_host = 2;
    m.slow_rate = RATE / 10;
    struct rr_simulated r = run(&s);
    same(r.rank_s[1], bytes / (RATE * 0.45));
    same(r.rank_s[3], bytes / (RATE * 0.45));
    same(r.rank_s[2], bytes / (RATE / 10));
    rr_simulated_free(&r);
    same(seconds(RR_ALGO_BINOMIAL, 2, 1, MI, &m), bytes / RATE + LATENCY); /* it is not in this one */
}

static void test_ranks_of_a_host_share_its_wire(void **state)
{
    struct rr_machine m = plain();
    double bytes = MI;

    (void)state;
    m.loop_rate = 1e12;
    /* each host has 2 x 2 parts for the other */
    same(seconds(RR_ALGO_ALLTOALL, 2, 2, MI, &m), 4 * bytes / RATE + LATENCY);
}

static void test_shared_memory_costs_copies_sums_and_signals(void **state)
{
    struct rr_machine m = plain();

    (void)state;
    m.signal_s = 1e-6;
    same(seconds(RR_ALGO_SHM_BARRIER, 1, 4, 0, &m), 1e-6);
    m.copy = 1e9;
    m.reduce = 2e9;
    for (int n = 2; n <= 4; n *= 2) {
        /* publish the others' blocks, sum mine into my output and my stage, fetch the others' */
        double bytes = MI, copied = (2.0 * (n - 1) + 1) / n * bytes;
        same(seconds(RR_ALGO_SHM_TWOSHOT, 1, n, MI, &m), copied / m.copy + bytes / m.reduce + 2e-6);
    }
}

static void test_ranks_that_outnumber_cpus_take_turns(void **state)
{
    struct rr_machine m = plain();

    (void)state;
    m.reduce = 1e9;
    same(seconds(RR_ALGO_SHM_TWOSHOT, 1, 4, MI, &m), (double)MI / m.reduce);
    m.cpus = 2;
    same(seconds(RR_ALGO_SHM_TWOSHOT, 1, 4, MI, &m), 2 * (double)MI / m.reduce);
    m.cpus = 0;
    m.all_cpus = 1; /* of pretended hosts together */
    same(seconds(RR_ALGO_TWOSHOT, 2, 1, MI, &m),
         2 * (double)MI / m.reduce + 2 * ((double)MI / 2 / RATE + LATENCY));
}

/* ---- of every plan ---- */

static const int layouts[][2] = { { 1, 1 }, { 1, 4 }, { 1, 7 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 7, 1 },
                                  { 8, 1 }, { 2, 2 }, { 4, 2 }, { 3, 4 }, { 2, 3 }, { 17, 1 } };
#define LAYOUTS (sizeof layouts / sizeof *layouts)

static struct rr_machine usual(void)
{
    struct rr_question q;

    assert_int_equal(rr_question_read("", &q, NULL), 0);
    return rr_question_machine(&q);
}

/* False: this layout cannot be done so. */
static bool run_any(const struct rr_sim *s, struct rr_simulated *r)
{
    ringred_error why;

    ringred_error_init(&why);
    int rc = rr_simulate(s, r, &why);
    if (rc < 0 && rc != RINGRED_EINVAL)
        fail_msg("%s, %d x %d: %s", rr_algo_table[s->algo].name, s->hosts, s->per_host, why.text);
    return rc == 0;
}

static void check_sums(const struct rr_sim *s, const struct rr_simulated *r)
{
    double out = 0, in = 0, bytes = (double)(s->count * s->element_bytes);

    for (int h = 0; h < s->hosts; h++) {
        out += r->out[h];
        in += r->in[h];
    }
    if (out != in || r->busiest > 1 + 1e-9 || r->seconds < rr_sim_least(rr_algo_table[s->algo].what, s, bytes))
        fail_msg("%s, %d x %d: %.12g s, busiest %g, %.0f bytes out, %.0f in", rr_algo_table[s->algo].name,
                 s->hosts, s->per_host, r->seconds, r->busiest, out, in);
}

static void test_every_plan_ends_and_none_beats_the_wire(void **state)
{
    struct rr_machine m = usual();
    int done = 0;

    (void)state;
    m.cpus = 2;
    for (int algo = 0; algo < RR_ALGOS; algo++)
        for (size_t l = 0; l < LAYOUTS; l++)
            for (int place = 0; place < 2; place++) {
                struct rr_simulated r;
                struct rr_sim s = case_of((enum rr_algo)algo, layouts[l][0], layouts[l][1], 300004, &m);
                s.segment = 7001;
                s.in_place = place;
                s.root = s.hosts * s.per_host - 1;
                if (rr_algo_table[algo].what == RR_BARRIER)
                    s.count = 0;
                if (!run_any(&s, &r))
                    continue;
                check_sums(&s, &r);
                rr_simulated_free(&r);
                done++;
            }
    assert_true(done > 300);
}

static void test_more_bytes_take_no_less_time(void **state)
{
    struct rr_machine m = usual();

    (void)state;
    for (int algo = 0; algo < RR_ALGOS; algo++)
        for (size_t l = 0; l < LAYOUTS; l++) {
            double last = 0;
            for (size_t bytes = 64; bytes <= MI; bytes *= 4) {
                struct rr_simulated r;
                struct rr_sim s = case_of((enum rr_algo)algo, layouts[l][0], layouts[l][1], bytes, &m);
                s.segment = 16384;
                if (rr_algo_table[algo].what == RR_BARRIER || !run_any(&s, &r))
                    break;
                if (r.seconds < last * 0.99) /* a CPU may happen upon a better order of its steps */
                    fail_msg("%s, %d x %d: %zu bytes take %g s, a quarter of them %g", rr_algo_table[algo].name,
                             s.hosts, s.per_host, bytes, r.seconds, last);
                last = r.seconds;
                rr_simulated_free(&r);
            }
        }
}

static void test_equal_questions_have_equal_answers(void **state)
{
    static char a[1 << 14], b[1 << 14];
    static const char question[] = "algorithm=all nodes=5 per_host=3 bytes=3M flow=300mbit cpus=2 detail=1";

    (void)state;
    assert_true(ringred_simulate(question, a, sizeof a) > 0);
    assert_true(ringred_simulate(question, b, sizeof b) > 0);
    assert_string_equal(a, b);
    assert_true(ringred_simulate(question, NULL, 0) == (int64_t)strlen(a));
}

/* Leaks show under the address sanitizer. */
static void test_it_survives_a_lack_of_memory_anywhere(void **state)
{
    char text[2048];
    long n = 1;

    (void)state;
    for (;; n++) {
        rr_alloc_fail_after(n, false);
        int64_t rc = ringred_simulate("nodes=2 per_host=2 bytes=1M algorithm=twoshot", text, sizeof text);
        rr_alloc_fail_after(0, false);
        if (rc >= 0)
            break;
        assert_int_equal(rc, RINGRED_ENOMEM);
    }
    assert_true(n > 50);
}

/* ---- questions ---- */

static void test_bad_questions_are_refused_in_words(void **state)
{
    static const struct {
        const char *question, *word;
    } bad[] = {
        { "latncy=5us", "the nearest is \"latency\"" },
        { "algorithm=twoshat", "the nearest is \"twoshot\"" },
        { "algorithm=shm-twoshot nodes=2", "not possible" },
        { "algorithm=ring collective=barrier", "not possible" },
        { "collective=allreduc", "allreduc" },
        { "nodes=0", "from 1" },
        { "nodes=2.5", "whole" },
        { "nodes=1e300", "nodes" },
        { "nodes=nan", "nodes" },
        { "nodes=4096 per_host=2", "at most" },
        { "bytes=4q", "such as 64K" },
        { "bytes=", "bytes wants" },
        { "latency=-5us", "from 0" },
        { "rate=10furlongs", "such as 200mbit" },
        { "root=2", "root 2" },
        { "slow_host=2", "slow_host" },
        { "nodes", "name=value" },
        { "=5", "the nearest" },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ringred_simulate(bad[i].question, text, sizeof text), RINGRED_EINVAL);
        if (!strstr(text, bad[i].word))
            fail_msg("%s: %s", bad[i].question, text);
    }
    assert_int_equal(ringred_simulate(NULL, text, sizeof text), RINGRED_EINVAL);
    assert_int_equal(ringred_simulate("", NULL, 5), RINGRED_EINVAL);
}

static void test_an_answer_says_what_was_assumed(void **state)
{
    char text[2048];

    (void)state;
    assert_true(ringred_simulate("nodes=8 rate=1gbit latency=1ms bytes=64K", text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"rate_bytes_per_s\":125000000,"));
    assert_non_null(strstr(text, "\"latency_s\":0.001,"));
    assert_non_null(strstr(text, "\"streams\":3,")); /* as a communicator there would have */
    assert_non_null(strstr(text, "\"algorithm\":\"twoshot\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_takes_overhead_wire_latency_overhead),
        cmocka_unit_test(test_a_send_is_done_when_the_rest_fits_into_the_socket),
        cmocka_unit_test(test_a_twoshot_is_two_rounds_of_the_least_bytes),
        cmocka_unit_test(test_a_ring_is_as_many_rounds_as_it_has_hops),
        cmocka_unit_test(test_a_stream_gets_no_more_than_its_cap),
        cmocka_unit_test(test_incast_shares_the_wire_into_the_root),
        cmocka_unit_test(test_what_a_slow_host_leaves_the_others_take),
        cmocka_unit_test(test_ranks_of_a_host_share_its_wire),
        cmocka_unit_test(test_shared_memory_costs_copies_sums_and_signals),
        cmocka_unit_test(test_ranks_that_outnumber_cpus_take_turns),
        cmocka_unit_test(test_every_plan_ends_and_none_beats_the_wire),
        cmocka_unit_test(test_more_bytes_take_no_less_time),
        cmocka_unit_test(test_equal_questions_have_equal_answers),
        cmocka_unit_test(test_it_survives_a_lack_of_memory_anywhere),
        cmocka_unit_test(test_bad_questions_are_refused_in_words),
        cmocka_unit_test(test_an_answer_says_what_was_assumed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
