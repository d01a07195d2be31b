/* SPDX-License-Identifier: Apache-2.0 */
/* Short reads and writes at every boundary: a handshake, notes, PMI-1, keys and files of settings come through in pieces of 1 to
 * as many bytes as they have, among interruptions. Whole jobs: tests/coll/test_short_io.c. */
#include "boot/inside.h"
#include "boot/launch.h"
#include "short_io.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const unsigned char key[RR_KEY_BYTES] = "a key";
static const unsigned char job[RR_JOB_BYTES] = "a job";

static void pair(int end[2], int flags)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0, end), 0);
}

/* Else this test would show nothing. */
static void test_it_is_short(void **state)
{
    (void)state;
    char bytes[64] = "", got[64];
    int end[2], interrupted = 0;

    short_io_set(5);
    pair(end, SOCK_NONBLOCK);
    for (int i = 0; i < 100; i++) {
        ssize_t n = send(end[0], bytes, sizeof bytes, 0);
        assert_true(n == 5 || (n < 0 && errno == EINTR));
        interrupted += n < 0;
        n = recv(end[1], got, sizeof got, 0);
        assert_true((n > 0 && n <= 5) || (n < 0 && (errno == EINTR || errno == EAGAIN)));
    }
    assert_true(interrupted > 0 && short_io_count() > 90);
    close(end[0]);
    close(end[1]);
}

static void test_handshakes(void **state)
{
    (void)state;
    struct rr_badge one = { .key = key, .job = job, .rank = 1, .purpose = RR_PURPOSE_DATA, .stream = 2 },
                    four = { .key = key, .job = job, .rank = 4, .purpose = RR_PURPOSE_DATA };

    for (int bytes = 0; bytes <= RR_PROOF_BYTES; bytes++) {
        one.offers = four.offers = bytes % 2 ? RR_OFFERS_SEAL : 0;
        struct rr_hand dialler, listener;
        int end[2], dialled = RINGRED_PENDING, accepted = RINGRED_PENDING;
        short_io_set(bytes);
        pair(end, SOCK_NONBLOCK);
        rr_hand_dial(&dialler, &one, end[0], 4, INT64_MAX);
        rr_hand_accept(&listener, &four, end[1]);
        for (int turn = 0; turn < 10000 && (dialled || accepted); turn++) {
            dialled = dialled == RINGRED_PENDING ? rr_hand_step(&dialler) : dialled;
            accepted = accepted == RINGRED_PENDING ? rr_hand_step(&listener) : accepted;
        }
        assert_int_equal(dialled, 0);
        assert_int_equal(accepted, 0);
        assert_int_equal(listener.peer, 1);
        assert_int_equal(listener.stream, 2);
        assert_memory_equal(listener.seal.in, dialler.seal.out, RR_KEY_BYTES);
        rr_hand_drop(&dialler);
        rr_hand_drop(&listener);
    }
}

static void notes(enum rr_cipher cipher)
{
    const struct rr_seal seal = { cipher, { 1 }, { 2 } }, twin = { cipher, { 2 }, { 1 } };
    unsigned char sent[300], heard[300];

    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (unsigned char)(i * 7);
    for (int bytes = 0; bytes <= RR_NOTE_HEAD + (int)sizeof sent; bytes += bytes < 40 ? 1 : 13) {
        struct rr_line from, to;
        int end[2];
        short_io_set(bytes);
        pair(end, SOCK_NONBLOCK);
        assert_int_equal(rr_line_open(&from, end[0], 1, &seal), 0);
        assert_int_equal(rr_line_open(&to, end[1], 0, &twin), 0);
        for (uint32_t step = 1; step <= 3; step++) { /* with a body, with none */
            size_t length = step == 2 ? 0 : sizeof sent;
            enum rr_line_news news = RR_LINE_QUIET;
            rr_line_send(&from, RR_NOTE_UP, step, sent, length);
            memset(heard, 0, sizeof heard);
            for (int turn = 0; turn < 10000 && news != RR_LINE_WHOLE; turn++) {
                assert_true(!from.sending || rr_line_write(&from) >= 0);
                news = rr_line_read(&to);
                if (news == RR_LINE_HEADED)
                    to.body = heard;
            }
            assert_int_equal(news, RR_LINE_WHOLE);
            assert_true(to.in.kind == RR_NOTE_UP && to.in.step == step && to.in.bytes == length);
            assert_memory_equal(heard, sent, length);
            rr_line_next(&to);
        }
        rr_line_close(&from);
        assert_int_equal(rr_line_read(&to), RR_LINE_ENDED);
        rr_line_close(&to);
    }
}

static void test_notes(void **state)
{
    (void)state;
    notes(RR_CIPHER_NONE);
    notes(RR_CIPHER_CHACHA20);
}

/* A server for one client: answers each line, remembers what was put. */
static void serve(int fd, const char *value)
{
    char line[4096], answer[4096];
    size_t used = 0;

    for (;;) {
        ssize_t n = read(fd, line + used, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(0);
        if (line[used++] != '\n')
            continue;
        line[used - 1] = 0;
        used = 0;
        if (strncmp(line, "cmd=init", 8) == 0)
            strcpy(answer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
        else if (strncmp(line, "cmd=get_maxes", 13) == 0)
            strcpy(answer, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
        else if (strncmp(line, "cmd=get_my_kvsname", 18) == 0)
            strcpy(answer, "cmd=my_kvsname kvsname=kvs_1\n");
        else if (strncmp(line, "cmd=barrier_in", 14) == 0)
            strcpy(answer, "cmd=barrier_out rc=0\n");
        else if (strncmp(line, "cmd=finalize", 12) == 0)
            strcpy(answer, "cmd=finalize_ack rc=0\n");
        else if (strstr(line, "key=ringred-bytes"))
            snprintf(answer, sizeof answer, "cmd=get_result rc=0 msg=success value=%zu\n", strlen(value));
        else
            snprintf(answer, sizeof answer, "cmd=get_result rc=0 msg=success value=%s\n", value);
        for (size_t at = 0; at < strlen(answer);) {
            n = write(fd, answer + at, strlen(answer) - at);
            at += n > 0 ? (size_t)n : 0;
        }
    }
}

static void test_pmi(void **state)
{
    (void)state;
    static const char value[] = "what-rank-0-has-put-there,-long-enough-to-come-in-several-pieces";
    char text[600];
    ringred_error why;

    for (int bytes = 0; bytes <= 70; bytes += bytes < 9 ? 1 : 12) {
        int end[2], status;
        short_io_set(bytes);
        pair(end, 0);
        pid_t server = fork();
        assert_true(server >= 0);
        if (server == 0) {
            close(end[0]);
            serve(end[1], value);
        }
        close(end[1]);
        assert_int_equal(rr_pmi_talk(end[0], false, 1, text, sizeof text, rr_deadline(60 * RINGRED_SECOND), &why), 0);
        assert_string_equal(text, value);
        close(end[0]);
        assert_int_equal(waitpid(server, &status, 0), server);
        assert_int_equal(status, 0);
    }
}

static int file_of(const char *text, char path[64])
{
    int fd = memfd_create("short", MFD_CLOEXEC);

    short_io_set(-1);
    assert_true(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* The key that comes of a setting. */
static void find_key(const char *setting, const char *value, struct rr_launch *launch)
{
    static struct rr_settings settings;
    static const char *const none[] = { NULL };
    ringred_error why;

    *launch = (struct rr_launch){ .size = 2 };
    assert_int_equal(rr_settings_load(&settings, none, &why), 0);
    assert_int_equal(rr_settings_set(&settings, setting, value, "a test", &why), 0);
    assert_int_equal(rr_key_find(NULL, &settings, launch, &why), 0);
    assert_true(launch->has_key);
}

static void test_keys(void **state)
{
    (void)state;
    static const char secret[] = "a secret of this job, on a line\n";
    struct rr_launch plain, file, piped;
    char path[64], number[16];
    int end[2];

    find_key("key", "a secret of this job, on a line", &plain);
    for (int bytes = 0; bytes <= (int)sizeof secret; bytes++) {
        int fd = file_of(secret, path);
        assert_int_equal(pipe(end), 0);
        assert_int_equal(write(end[1], secret, sizeof secret - 1), sizeof secret - 1);
        close(end[1]);
        snprintf(number, sizeof number, "%d", end[0]);
        short_io_set(bytes);
        find_key("key_file", path, &file);
        find_key("key_fd", number, &piped);
        assert_memory_equal(file.key, plain.key, RR_KEY_BYTES);
        assert_memory_equal(piped.key, plain.key, RR_KEY_BYTES);
        close(fd);
    }
}

static void test_files_of_settings(void **state)
{
    (void)state;
    static const char text[] = "# ours\nstage = 64K\ntimeout = 7\nsegment = 1M\n";
    static const char *const none[] = { NULL };
    static struct rr_settings settings;
    char path[64];
    ringred_error why;
    int fd = file_of(text, path);

    for (int bytes = 0; bytes <= (int)sizeof text; bytes++) {
        short_io_set(-1);
        assert_int_equal(rr_settings_load(&settings, none, &why), 0);
        short_io_set(bytes);
        assert_int_equal(rr_settings_read_file(&settings, path, &why), 0);
        assert_int_equal(rr_setting(&settings, RR_SET_STAGE), 65536);
        assert_int_equal(rr_setting(&settings, RR_SET_SEGMENT), 1 << 20);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_short),
        cmocka_unit_test(test_handshakes),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_pmi),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_files_of_settings),
    };

    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
