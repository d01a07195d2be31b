/* SPDX-License-Identifier: Apache-2.0 */
/* The base room: settings, failures, text, reading, time, allocation. */
#include "base/base.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

extern char **environ;

static struct rr_settings settings;
static ringred_error why;

static int load(const char *a, const char *b)
{
    const char *const arguments[] = { a, b, NULL };

    memset(&why, 0, sizeof why);
    return rr_settings_load(&settings, arguments, &why);
}

static void must_refuse(const char *argument, const char *words)
{
    assert_int_equal(load(argument, NULL), RINGRED_ESETTING);
    assert_int_equal(why.code, RINGRED_ESETTING);
    if (!strstr(why.text, words))
        fail_msg("%s: \"%s\" does not say \"%s\"", argument, why.text, words);
}

/* ---- settings ---- */

static void test_settings_have_values_and_origins(void **state)
{
    (void)state;
    assert_int_equal(setenv("RINGRED_SPIN", "7", 1), 0);
    assert_int_equal(setenv("RINGRED_STAGE", "128k", 1), 0);
    assert_int_equal(load("stage=1M", "Transport=TCP"), 0);
    assert_int_equal(rr_setting(&settings, RR_SET_SPIN), 7);
    assert_string_equal(settings.value[RR_SET_SPIN].origin, "environment");
    assert_int_equal(rr_setting(&settings, RR_SET_STAGE), 1 << 20); /* an argument beats the environment */
    assert_string_equal(settings.value[RR_SET_STAGE].origin, "argument");
    assert_string_equal(settings.value[RR_SET_LINGER].origin, "default");
    assert_int_equal(rr_setting(&settings, RR_SET_LINGER), 5 * RINGRED_SECOND);
    unsetenv("RINGRED_SPIN");
    unsetenv("RINGRED_STAGE");
}

static void read_file(const char *text, bool own)
{
    memset(&why, 0, sizeof why);
    assert_int_equal(load(NULL, NULL), 0);
    (void)rr_settings_read(&settings, "/etc/r", text, strlen(text), own, &why); /* why has the code, too */
}

static void test_a_file_comes_before_variables_and_arguments(void **state)
{
    char path[] = "/tmp/ringred-test-XXXXXX", argument[64], origin[64];
    const char text[] = "# a remark\n\n transport = tcp  # another\nspin=5\nstage = 256K\r\nheap = 1G";
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    snprintf(argument, sizeof argument, "config=%s", path);
    assert_int_equal(setenv("RINGRED_SPIN", "7", 1), 0);
    assert_int_equal(setenv("RINGRED_CONFIG", "/nowhere", 1), 0); /* the argument comes before it */
    assert_int_equal(load(argument, "stage=1M"), 0);
    assert_string_equal(rr_setting_text(&settings, RR_SET_TRANSPORT), "tcp");
    assert_int_equal(rr_setting(&settings, RR_SET_SPIN), 7);
    assert_int_equal(rr_setting(&settings, RR_SET_STAGE), 1 << 20);
    assert_int_equal(rr_setting(&settings, RR_SET_HEAP), 1 << 30);
    snprintf(origin, sizeof origin, "%s:6", path);
    assert_string_equal(settings.value[RR_SET_HEAP].origin, origin);
    assert_string_equal(settings.value[RR_SET_SPIN].origin, "environment");
    assert_string_equal(settings.value[RR_SET_CONFIG].origin, "argument");
    unsetenv("RINGRED_SPIN");
    assert_int_equal(setenv("RINGRED_CONFIG", path, 1), 0);
    assert_int_equal(load(NULL, NULL), 0);
    assert_int_equal(rr_setting(&settings, RR_SET_SPIN), 5);
    assert_string_equal(settings.value[RR_SET_CONFIG].origin, "environment");
    assert_int_equal(setenv("RINGRED_CONFIG", "/tmp", 1), 0);
    assert_int_equal(load(NULL, NULL), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "/tmp (config) is not a regular file"));
    assert_int_equal(setenv("RINGRED_CONFIG", "/nowhere/at/all", 1), 0);
    assert_int_equal(load(NULL, NULL), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    unsetenv("RINGRED_CONFIG");
    unlink(path);
}

static void test_what_is_wrong_in_a_file_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text;
        bool own;
        const char *sentence;
    } rows[] = {
        { "\n\ntransprot = tcp", true, "/etc/r:3: there is no setting \"transprot\"; the nearest is \"transport\"" },
        { "spin = soon", true, "/etc/r:1: spin is \"soon\", which is not -1 to 1000000" },
        { "log=warn\nno such line", true, "/etc/r:2: this is not of the form name = value" },
        { "= tcp", true, "/etc/r:1: this is not of the form" },
        { "log=warn\nlog=info", true, "/etc/r:2: log is set twice" },
        { "rank = 1", true, "/etc/r:1: rank cannot be set here: it differs between the processes" },
        { "config = /etc/other", true, "/etc/r:1: config cannot be set here: a file cannot name another one" },
        { "key = sixteen-letters!", false, "/etc/r:1: key cannot be set here: others can read this file" },
        { "key = short", true, "/etc/r:1: key is \"(hidden)\", which is not a text of at least 16 bytes" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        read_file(rows[i].text, rows[i].own);
        if (why.code != RINGRED_ESETTING || strncmp(why.text, rows[i].sentence, strlen(rows[i].sentence)) != 0)
            fail_msg("%s: %d %s", rows[i].text, why.code, why.text);
    }
    read_file("key = sixteen-letters!\n", true);
    assert_int_equal(why.code, 0);
    assert_int_equal(rr_settings_read(&settings, "f", "log\0=warn", 9, true, &why), RINGRED_ESETTING);
    char line[600];
    memset(line, 'x', sizeof line);
    assert_int_equal(rr_settings_read(&settings, "f", line, sizeof line, true, &why), RINGRED_ESETTING);
    assert_string_equal(why.text, "f:1: the line is longer than 511 bytes");
}

static void test_every_setting_may_be_set_to_its_default(void **state)
{
    (void)state;
    assert_int_equal(load(NULL, NULL), 0);
    for (int i = 0; i < RR_SETTINGS; i++) {
        struct rr_settings again = settings;
        assert_int_equal(rr_settings_set(&again, rr_setting_name((enum rr_setting)i),
                                         rr_setting_text(&settings, (enum rr_setting)i), "launcher", &why), 0);
        assert_int_equal(again.value[i].number, settings.value[i].number);
        assert_true(strlen(rr_setting_help((enum rr_setting)i)) > 4);
    }
}

static void test_unknown_settings_name_the_nearest(void **state)
{
    (void)state;
    must_refuse("transprot=tcp", "\"transport\"");
    must_refuse("TIMOUT=3", "\"timeout\"");
    must_refuse("=3", "there is no setting \"\"");
    must_refuse("transport", "name=value");
    must_refuse("", "name=value");
    assert_int_equal(setenv("RINGRED_ALGORTHM", "ring", 1), 0);
    must_refuse(NULL, "\"algorithm\"");
    unsetenv("RINGRED_ALGORTHM");
    /* longer than any name */
    static const char name[] = "RINGRED_TIMEOUT_OF_A_COLLECTIVE_THAT_TAKES_VERY_LONG_INDEED_WHATEVER_IT_DOES";
    assert_int_equal(setenv(name, "1", 1), 0);
    must_refuse(NULL, "there is no setting");
    unsetenv(name);
    assert_int_equal(load(NULL, NULL), 0);
}

static void test_values_are_checked(void **state)
{
    static const char *const wrong[][2] = {
        { "numerics=ib", "canonical|portable|fast" },      { "numerics=", "canonical|portable|fast" },
        { "numerics=fast|portable", "canonical|portable|fast" },{ "spin=1000001", "-1 to 1000000" },
        { "spin=1x", "-1 to 1000000" },          { "spin=", "-1 to 1000000" },
        { "spin=99999999999999999999", "-1 to" },{ "segment=65M", "0 to" },
        { "stage=2G", "0 to" },              { "stage=-1", "bytes (K, M, G allowed)" },
        { "heap=99999999999G", "bytes" },        { "stage=64KB", "bytes" },
        { "timeout=-2", "or -1 for ever" },      { "timeout=nan", "or -1 for ever" },
        { "timeout=inf", "or -1 for ever" },     { "timeout=1e10", "or -1 for ever" },
        { "timeout=", "or -1 for ever" },        { "timeout=1s", "or -1 for ever" },
        { "require_key=2", "0 to 1" },           { "key=short", "at least 16 bytes" },
    };
    char text[300] = "host=";

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        must_refuse(wrong[i][0], wrong[i][1]);
    memset(text + 5, 'x', 256);
    must_refuse(text, "at most 255 bytes");
    text[5 + 255] = 0;
    assert_int_equal(load(text, NULL), 0);
    assert_int_equal(load("timeout=0.25", "init_timeout=-1"), 0);
    assert_int_equal(rr_setting(&settings, RR_SET_TIMEOUT), RINGRED_SECOND / 4);
    assert_int_equal(rr_setting(&settings, RR_SET_INIT_TIMEOUT), -1);
}

static void test_the_key_is_shown_nowhere(void **state)
{
    static char room[32768];
    struct rr_text t = { room, sizeof room, 0 };

    (void)state;
    must_refuse("key=hunter2", "(hidden)");
    assert_null(strstr(why.text, "hunter2"));
    must_refuse("key hunter2hunter2hunter2", "name=value");
    assert_null(strstr(why.text, "hunter2hunter2"));
    assert_int_equal(load("key=hunter2hunter2hunter2", NULL), 0);
    assert_string_equal(rr_setting_text(&settings, RR_SET_KEY), "hunter2hunter2hunter2");
    rr_settings_describe(&settings, &t);
    assert_true(t.used < sizeof room);
    assert_null(strstr(room, "hunter2"));
    assert_non_null(strstr(room, "(hidden)"));
}

/* ---- failures and text ---- */

static void test_failures_have_their_numbers_and_one_sentence(void **state)
{
    char long_text[900];

    (void)state;
    assert_int_equal(rr_fail(&why, RINGRED_EPEER, 3, ECONNRESET, "rank %d is gone", 3), RINGRED_EPEER);
    assert_int_equal(why.struct_size, sizeof why);
    assert_int_equal(why.rank, 3);
    assert_int_equal(why.system, ECONNRESET);
    assert_string_equal(why.text, "rank 3 is gone (Connection reset by peer)");
    assert_int_equal(rr_fail(NULL, RINGRED_EPEER, 3, 0, "nobody listens"), RINGRED_EPEER);
    assert_int_equal(rr_fail(&why, RINGRED_EWIRE, -1, 0, "again: %s", why.text), RINGRED_EWIRE);
    assert_string_equal(why.text, "again: rank 3 is gone (Connection reset by peer)");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    rr_fail(&why, RINGRED_EWIRE, -1, EPIPE, "%s", long_text);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

static void check_json(const char *string, const char *want)
{
    char room[200];
    struct rr_text t = { room, sizeof room, 0 };

    rr_text_add_json(&t, string);
    assert_string_equal(room, want);
    assert_int_equal(t.used, strlen(want));
}

static void test_json_texts_are_escaped(void **state)
{
    (void)state;
    check_json("", "\"\"");
    check_json("a\"b\\c", "\"a\\\"b\\\\c\"");
    check_json("\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\x7f\"");
    check_json("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
    check_json("\xfc", "\"\\ufffd\"");                             /* Latin-1 */
    check_json("a\xe2\x82", "\"a\\ufffd\\ufffd\"");                /* cut short */
    check_json("\xc0\xaf", "\"\\ufffd\\ufffd\"");                  /* longer than need be */
    check_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");       /* half a surrogate pair */
    check_json("\xf4\x90\x80\x80x", "\"\\ufffd\\ufffd\\ufffd\\ufffdx\"");
}

static void test_texts_of_others_are_tame(void **state)
{
    char text[] = "a\x1b[2Jb\n\x7f\xc3\xa4 c"; /* a terminal would clear its screen */

    (void)state;
    rr_text_tame(text);
    assert_string_equal(text, "a?[2Jb??\xc3\xa4 c");
}

static void test_texts_say_what_they_would_need(void **state)
{
    char room[8] = "";
    struct rr_text t = { room, sizeof room, 0 }, none = { NULL, 0, 0 };

    (void)state;
    rr_text_add(&t, "%s", "12345");
    rr_text_add(&t, "%d", 67890);
    rr_text_add_json(&t, "x");
    assert_string_equal(room, "1234567");
    assert_int_equal(t.used, 13);
    rr_text_add(&none, "%d", 1000);
    assert_int_equal(none.used, 4);
}

/* ---- the log ---- */

static char logged[2000];
static int32_t logged_level;

static void keep(void *context, int32_t level, const char *line)
{
    (void)context;
    logged_level = level;
    snprintf(logged, sizeof logged, "%s", line);
}

static void test_log_lines_are_whole_and_only_those_asked_for(void **state)
{
    struct rr_log log = { RINGRED_LOG_WARN, keep, NULL, 5 };
    char long_text[3000];

    (void)state;
    logged[0] = 0;
    rr_log(&log, RINGRED_LOG_INFO, "not this");
    assert_string_equal(logged, "");
    rr_log(&log, RINGRED_LOG_WARN, "this %d", 1);
    assert_string_equal(logged, "ringred warning rank 5: this 1");
    assert_int_equal(logged_level, RINGRED_LOG_WARN);
    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    rr_log(&log, RINGRED_LOG_ERROR, "%s", long_text);
    assert_true(strlen(logged) > 900 && strlen(logged) < 1024);
    rr_log(NULL, RINGRED_LOG_ERROR, "nowhere");
}

/* ---- reading ---- */

static void test_readers_stop_at_the_end(void **state)
{
    static const unsigned char bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
    struct rr_reader r = { bytes, bytes + sizeof bytes, false };
    unsigned char two[2];

    (void)state;
    assert_int_equal(rr_read_u8(&r), 1);
    assert_int_equal(rr_read_u16(&r), 0x0302);
    assert_int_equal(rr_read_u32(&r), 0x07060504);
    assert_true(rr_read_u64(&r) == 0x0f0e0d0c0b0a0908u);
    assert_false(r.bad);
    rr_read_bytes(&r, two, 2); /* one is left */
    assert_true(r.bad);
    assert_int_equal(two[0] | two[1], 0);
    assert_int_equal(rr_read_u8(&r), 0); /* bad stays bad */
    assert_ptr_equal(r.at, bytes + 15);
}

/* ---- time ---- */

static void test_deadlines(void **state)
{
    int64_t now = rr_now_ns();

    (void)state;
    assert_true(rr_now_ns() >= now);
    assert_true(rr_deadline(RINGRED_FOREVER) == INT64_MAX);
    assert_true(rr_deadline(INT64_MAX) == INT64_MAX);
    assert_true(rr_deadline(RINGRED_SECOND) >= now + RINGRED_SECOND);
    assert_int_equal(rr_deadline_ms(now, 1000), 0);
    assert_int_equal(rr_deadline_ms(INT64_MAX, 1000), 1000);
    assert_int_equal(rr_deadline_ms(0, 1000), 0);
    assert_int_equal(rr_deadline_ms(INT64_MIN / 2, 1000), 0);
    assert_int_equal(rr_deadline_ms(INT64_MAX - 1, 1000), 1000);
    assert_in_range(rr_deadline_ms(rr_now_ns() + 3600 * RINGRED_SECOND, 1000000000), 3500000, 3600000);
}

/* ---- allocation ---- */

static void test_allocations_are_zeroed_checked_and_counted(void **state)
{
    long before = rr_alloc_count();
    unsigned char *p = rr_alloc(0, 0), *q = rr_alloc_aligned(4096, 5000);

    (void)state;
    assert_non_null(p);
    assert_non_null(q);
    assert_int_equal((uintptr_t)q % 4096, 0);
    for (size_t i = 0; i < 8192; i++)
        assert_int_equal(q[i], 0);
    rr_free(p);
    rr_free(q);
    rr_free(NULL);
    volatile size_t half = SIZE_MAX / 2; /* else the compiler knows better */
    assert_null(rr_alloc(half, 3));
    assert_null(rr_alloc_aligned(64, SIZE_MAX - 3));
    assert_true(rr_alloc_count() > before);
}

static void test_the_nth_allocation_fails(void **state)
{
    void *p[4];

    (void)state;
    rr_alloc_fail_after(2, false);
    for (int i = 0; i < 4; i++) {
        p[i] = rr_alloc(1, 8);
        assert_int_equal(p[i] == NULL, i == 1);
        rr_free(p[i]);
    }
    rr_alloc_fail_after(3, true);
    for (int i = 0; i < 4; i++) {
        p[i] = i & 1 ? rr_alloc_aligned(64, 8) : rr_alloc(1, 8);
        assert_int_equal(p[i] == NULL, i >= 2);
        rr_free(p[i]);
    }
    rr_alloc_fail_after(0, false);
    p[0] = rr_alloc(1, 8);
    assert_non_null(p[0]);
    rr_free(p[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_have_values_and_origins),
        cmocka_unit_test(test_a_file_comes_before_variables_and_arguments),
        cmocka_unit_test(test_what_is_wrong_in_a_file_is_named_with_its_line),
        cmocka_unit_test(test_every_setting_may_be_set_to_its_default),
        cmocka_unit_test(test_unknown_settings_name_the_nearest),
        cmocka_unit_test(test_values_are_checked),
        cmocka_unit_test(test_the_key_is_shown_nowhere),
        cmocka_unit_test(test_failures_have_their_numbers_and_one_sentence),
        cmocka_unit_test(test_json_texts_are_escaped),
        cmocka_unit_test(test_texts_of_others_are_tame),
        cmocka_unit_test(test_texts_say_what_they_would_need),
        cmocka_unit_test(test_log_lines_are_whole_and_only_those_asked_for),
        cmocka_unit_test(test_readers_stop_at_the_end),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_allocations_are_zeroed_checked_and_counted),
        cmocka_unit_test(test_the_nth_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
