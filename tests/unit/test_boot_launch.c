/* SPDX-License-Identifier: Apache-2.0 */
/* How a process finds its place in a job, and what is refused because it contradicts itself; keys;
 * unique ids; root lists. */
#include "boot_job.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct rr_settings settings;
static struct rr_launch launch;
static ringred_error why;

static void config_init(ringred_config *c)
{
    memset(c, 0, sizeof *c);
    c->rank = c->size = -1;
}

/* "A=1 B=2": sets these and no other variable that a launcher knows, then finds. */
static int find_with(const char *variables, const ringred_config *config)
{
    static const char *const known[] = {
        "RINGRED_RANK",         "RINGRED_SIZE",
        "RINGRED_LOCAL_RANK",   "RINGRED_LOCAL_SIZE",
        "RINGRED_ROOT",         "RINGRED_ROOT_FD",
        "RINGRED_KEY",          "RINGRED_KEY_FILE",
        "RINGRED_KEY_FD",       "RINGRED_REQUIRE_KEY",
        "RINGRED_INIT_TIMEOUT", "RANK",
        "WORLD_SIZE",           "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",     "MASTER_ADDR",
        "MASTER_PORT",          "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_RUN_ID",  "TORCHELASTIC_RESTART_COUNT",
    };
    char copy[512], *at = copy, *word;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        unsetenv(known[i]);
    snprintf(copy, sizeof copy, "%s", variables);
    while ((word = strsep(&at, " ")) != NULL) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
    memset(&why, 0, sizeof why);
    int rc = rr_settings_load(&settings, NULL, &why);
    return rc < 0 ? rc : rr_launch_find(config, &settings, &launch, &why);
}

static void expect_place(int rank, int size, const char *source, const char *root)
{
    assert_int_equal(launch.rank, rank);
    assert_int_equal(launch.size, size);
    assert_string_equal(launch.source, source);
    assert_string_equal(launch.root, root);
}

static void test_nothing_at_all_is_one_rank(void **state)
{
    (void)state;
    assert_int_equal(find_with("", NULL), 0);
    expect_place(0, 1, "single", "");
    assert_int_equal(launch.local_rank, -1);
    assert_false(launch.has_key);
}

static void test_our_own_variables_are_found(void **state)
{
    (void)state;
    assert_int_equal(
        find_with("RINGRED_RANK=3 RINGRED_SIZE=5 RINGRED_LOCAL_RANK=1 RINGRED_LOCAL_SIZE=2 "
                  "RINGRED_ROOT=10.0.0.5:29400 RANK=0 WORLD_SIZE=2",
                  NULL),
        0);
    expect_place(3, 5, "ringred-run", "10.0.0.5:29400");
    assert_int_equal(launch.local_rank, 1);
    assert_int_equal(launch.local_size, 2);
}

static void test_torchrun_is_found_and_its_store_avoided(void **state)
{
    (void)state;
    assert_int_equal(
        find_with("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node-a "
                  "MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
                  NULL),
        0);
    expect_place(1, 2, "torchrun", "node-a:29501+7");
    assert_int_equal(find_with("RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=29500", NULL),
                     0);
    expect_place(1, 2, "torchrun", "[fd00::1]:29500+8");
}

static void test_torchrun_jobs_differ_by_run_and_restart_not_by_size(void **state)
{
    (void)state;
    unsigned char job[RR_JOB_BYTES];
    const char *base = "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=x";
    static const struct {
        const char *variables;
        bool same;
    } rows[] = {
        { "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=x", true },
        { "RANK=0 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=x", true },
        { "RANK=1 WORLD_SIZE=2 MASTER_ADDR=b MASTER_PORT=1 TORCHELASTIC_RUN_ID=x", false },
        { "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=2 TORCHELASTIC_RUN_ID=x", false },
        { "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=y", false },
        { "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 TORCHELASTIC_RUN_ID=x "
          "TORCHELASTIC_RESTART_COUNT=1",
          false },
    };

    assert_int_equal(find_with(base, NULL), 0);
    memcpy(job, launch.job, sizeof job);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(find_with(rows[i].variables, NULL), 0);
        assert_int_equal(memcmp(job, launch.job, sizeof job) == 0, rows[i].same);
    }
}

static void test_arguments_come_before_the_environment(void **state)
{
    (void)state;
    ringred_config c;

    config_init(&c);
    c.rank = 1;
    c.size = 2;
    c.root = "127.0.0.1:1234";
    assert_int_equal(
        find_with("RINGRED_RANK=3 RINGRED_SIZE=5 RINGRED_LOCAL_RANK=3 RINGRED_ROOT=h:1", &c), 0);
    expect_place(1, 2, "arguments", "127.0.0.1:1234");
    assert_int_equal(launch.local_rank, -1); /* that was about another rank */

    config_init(&c);
    c.size = 4; /* the rank from the environment */
    assert_int_equal(find_with("RINGRED_RANK=3 RINGRED_ROOT=h:1", &c), 0);
    expect_place(3, 4, "arguments", "h:1");
}

static void test_contradictions_are_refused_with_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *variables, *word;
    } rows[] = {
        { "RINGRED_RANK=1", "RINGRED_SIZE" },
        { "RINGRED_SIZE=2", "RINGRED_RANK" },
        { "RINGRED_RANK=2 RINGRED_SIZE=2 RINGRED_ROOT=h:1", "from 0 to 1" },
        { "RINGRED_RANK=-1 RINGRED_SIZE=2 RINGRED_ROOT=h:1", "begins at 0" },
        { "RINGRED_RANK=-1", "begins at 0" },
        { "RINGRED_RANK=x RINGRED_SIZE=2", "not -1 to" },
        { "RINGRED_RANK=0 RINGRED_SIZE=0", "begins at 1" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2", "RINGRED_ROOT" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "RINGRED_ROOT" },
        { "RINGRED_ROOT=h:1", "neither rank nor size" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h", "host:port" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:0", "host:port" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:65536", "host:port" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=::1:5", "host:port" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1,", "host:port" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1 RINGRED_LOCAL_RANK=2 "
          "RINGRED_LOCAL_SIZE=2",
          "local" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1 RINGRED_LOCAL_SIZE=3", "local" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1 RINGRED_ROOT_FD=0", "root_fd" },
        { "RANK=0", "WORLD_SIZE" },
        { "WORLD_SIZE=2", "RANK" },
        { "RANK=2 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "from 0 to 1" },
        { "RANK=-1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "RANK" },
        { "RANK=1x WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "RANK" },
        { "RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR" },
        { "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT" },
        { "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000", "MASTER_PORT" },
        { "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1 RINGRED_KEY=short", "16" },
        { "RINGRED_KEY=0123456789abcdef RINGRED_KEY_FILE=/nowhere", "both" },
        { "RINGRED_KEY_FILE=/nowhere/at/all", "/nowhere/at/all" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = find_with(rows[i].variables, NULL);
        if (rc != RINGRED_ESETTING || !strstr(why.text, rows[i].word))
            fail_msg("%s: %d %s", rows[i].variables, rc, why.text);
    }
    assert_int_equal(find_with("RINGRED_RANK=0 RINGRED_SIZE=5000 RINGRED_ROOT=h:1", NULL),
                     RINGRED_ELIMIT);
}

static void test_arguments_that_contradict_are_refused(void **state)
{
    (void)state;
    ringred_config c;
    ringred_unique_id id = { { 0 } };

    config_init(&c);
    c.rank = -2;
    assert_int_equal(find_with("", &c), RINGRED_EINVAL);
    config_init(&c);
    c.rank = 0;
    c.size = 0;
    assert_int_equal(find_with("", &c), RINGRED_EINVAL);
    config_init(&c);
    c.rank = 0;
    c.size = 2;
    c.root = "h:1";
    c.id = &id;
    assert_int_equal(find_with("", &c), RINGRED_EINVAL);
    c.root = NULL;
    assert_int_equal(find_with("", &c), RINGRED_EINVAL); /* an id of zeros */
    c.id = NULL;
    c.root = "h:1";
    c.key = "too short";
    c.key_bytes = 9;
    assert_int_equal(find_with("", &c), RINGRED_ESETTING);
}

/* ---- keys ---- */

#define PLACE "RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:1 "

static void test_a_key_is_the_same_wherever_it_comes_from(void **state)
{
    (void)state;
    unsigned char key[RR_KEY_BYTES];
    char path[] = "/tmp/ringred-test-XXXXXX", variables[256];
    const char *secret = "sixteen-letters!";
    int fd = mkstemp(path), end[2];
    ringred_config c;

    assert_int_equal(find_with(PLACE "RINGRED_KEY=sixteen-letters!", NULL), 0);
    assert_true(launch.has_key);
    memcpy(key, launch.key, sizeof key);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "sixteen-letters!\n", 17), 17);
    close(fd);
    snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FILE=%s", path);
    assert_int_equal(find_with(variables, NULL), 0);
    assert_memory_equal(key, launch.key, sizeof key);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(find_with(variables, NULL), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "0640"));
    unlink(path);

    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], secret, 16), 16);
    close(end[1]);
    snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FD=%d", end[0]);
    for (int times = 0; times < 3; times++) { /* it can be read once, but is asked for again */
        assert_int_equal(find_with(variables, NULL), 0);
        assert_memory_equal(key, launch.key, sizeof key);
        if (times == 0) /* the number still means the pipe, which programs from here do not get */
            assert_int_equal(fcntl(end[0], F_GETFD), FD_CLOEXEC);
        if (times == 1)
            close(end[0]);
    }

    config_init(&c);
    c.key = secret;
    c.key_bytes = 16;
    assert_int_equal(find_with(PLACE "RINGRED_KEY=another-key-of-the-environment", &c), 0);
    assert_memory_equal(key, launch.key, sizeof key);
}

static void pipe_with(int end[2], const char *secret)
{
    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], secret, strlen(secret)), strlen(secret));
}

static void test_another_pipe_of_the_same_number_has_another_key(void **state)
{
    (void)state;
    unsigned char first[RR_KEY_BYTES], second[RR_KEY_BYTES];
    char variables[256];
    int a[2], b[2];

    find_with(PLACE "RINGRED_KEY=the-second-of-two-keys", NULL);
    memcpy(second, launch.key, sizeof second);
    pipe_with(a, "the-first-of-two-keys");
    close(a[1]);
    snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FD=%d", a[0]);
    assert_int_equal(find_with(variables, NULL), 0);
    memcpy(first, launch.key, sizeof first);
    assert_memory_not_equal(first, second, sizeof first);

    pipe_with(b, "the-second-of-two-keys");
    close(b[1]);
    assert_int_equal(dup2(b[0], a[0]), a[0]);
    assert_int_equal(find_with(variables, NULL), 0);
    assert_memory_equal(second, launch.key, sizeof second);
    snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FD=%d", b[0]); /* that pipe again */
    assert_int_equal(find_with(variables, NULL), 0);
    assert_memory_equal(second, launch.key, sizeof second);
    close(a[0]);
    close(b[0]);
    snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FD=%d", a[0]); /* closed, and not the latest */
    assert_int_equal(find_with(variables, NULL), RINGRED_ESETTING);
}

static void test_a_pipe_that_does_not_end_is_waited_for_in_bounds(void **state)
{
    (void)state;
    unsigned char key[RR_KEY_BYTES];
    char variables[256];
    int end[2];

    find_with(PLACE "RINGRED_KEY=a-key-in-two-pieces", NULL);
    memcpy(key, launch.key, sizeof key);
    pipe_with(end, "a-key-in-");
    snprintf(variables, sizeof variables, PLACE "RINGRED_INIT_TIMEOUT=0.05 RINGRED_KEY_FD=%d",
             end[0]);
    assert_int_equal(find_with(variables, NULL), RINGRED_ETIMEOUT);
    assert_non_null(strstr(why.text, "key_fd"));
    assert_int_equal(write(end[1], "two-pieces", 10), 10); /* nothing of it is lost */
    close(end[1]);
    assert_int_equal(find_with(variables, NULL), 0);
    assert_memory_equal(key, launch.key, sizeof key);
    close(end[0]);
}

static void test_a_key_that_is_too_long_is_refused_wherever_its_lines_end(void **state)
{
    (void)state;
    static const char *const behind[] = { "", "\n", "\r\n", "\n\n\n", "k", "\nmore", "\n                more" };
    char variables[256], secret[4096 + 32];
    int end[2];

    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        memset(secret, 'k', 4096);
        strcpy(secret + 4096, behind[i]);
        pipe_with(end, secret);
        close(end[1]);
        snprintf(variables, sizeof variables, PLACE "RINGRED_KEY_FD=%d", end[0]);
        assert_int_equal(find_with(variables, NULL), i < 4 ? 0 : RINGRED_ESETTING);
        close(end[0]);
    }
}

static void test_without_a_key_jobs_still_differ(void **state)
{
    (void)state;
    unsigned char key[RR_KEY_BYTES];

    assert_int_equal(find_with(PLACE, NULL), 0);
    assert_false(launch.has_key);
    memcpy(key, launch.key, sizeof key);
    assert_int_equal(find_with("RINGRED_RANK=1 RINGRED_SIZE=2 RINGRED_ROOT=other-name:1", NULL), 0);
    assert_memory_equal(key, launch.key, sizeof key); /* one root may be written in many ways */
    assert_int_equal(find_with("RINGRED_RANK=0 RINGRED_SIZE=2 RINGRED_ROOT=h:2", NULL), 0);
    assert_memory_not_equal(key, launch.key, sizeof key);
    assert_int_equal(find_with(PLACE "RINGRED_REQUIRE_KEY=1", NULL), RINGRED_EAUTH);
    assert_int_equal(find_with("RINGRED_REQUIRE_KEY=1", NULL),
                     0); /* alone: nobody to prove it to */
    assert_int_equal(find_with(PLACE "RINGRED_TCP_ENCRYPTION=on", NULL), RINGRED_EAUTH);
    assert_non_null(strstr(why.text, "tcp_encryption needs a key"));
    assert_int_equal(find_with(PLACE "RINGRED_TCP_ENCRYPTION=on RINGRED_KEY=sixteen-bytes-or-more", NULL), 0);
}

/* ---- unique ids ---- */

static void test_a_fork_keeps_no_listener_of_a_unique_id(void **state)
{
    (void)state;
    ringred_unique_id id;
    ringred_config c;
    int status;

    find_with("", NULL);
    assert_int_equal(ringred_unique_id_create(&id, &why), 0);
    config_init(&c);
    c.id = &id;
    c.rank = 0;
    c.size = 2;
    assert_int_equal(find_with("", &c), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool closed = fcntl(launch.listener, F_GETFD) < 0;
        _exit(closed && find_with("", &c) == RINGRED_EINVAL && strstr(why.text, "the process that made") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(fcntl(launch.listener, F_GETFD) >= 0);
    rr_unique_id_spent(launch.listener);
}

static void test_a_unique_id_names_its_maker_and_carries_a_key(void **state)
{
    (void)state;
    ringred_unique_id id, other;
    unsigned char key[RR_KEY_BYTES];
    ringred_config c;
    int before = job_fds();

    find_with("", NULL);
    assert_int_equal(ringred_unique_id_create(NULL, &why), RINGRED_EINVAL);
    assert_int_equal(ringred_unique_id_create(&id, &why), 0);
    assert_int_equal(ringred_unique_id_create(&other, &why), 0);
    config_init(&c);
    c.id = &id;
    c.rank = 1;
    c.size = 2;
    assert_int_equal(find_with("", &c), 0);
    assert_string_equal(launch.source, "unique id");
    assert_true(launch.has_key);
    assert_int_equal(launch.listener, -1);
    assert_non_null(strstr(launch.root, "127.0.0.1:"));
    memcpy(key, launch.key, sizeof key);
    c.rank = 0;
    assert_int_equal(find_with("", &c), 0);
    assert_true(launch.listener >= 0);
    int first = launch.listener;
    c.id = &other;
    assert_int_equal(find_with("", &c), 0);
    assert_memory_not_equal(key, launch.key, sizeof key);
    c.key = "a key besides the id's";
    c.key_bytes = 22;
    assert_int_equal(find_with("", &c), RINGRED_EINVAL);
    c.key = NULL;

    rr_unique_id_spent(launch.listener);
    rr_unique_id_spent(first);
    assert_int_equal(job_fds(), before);
    assert_int_equal(find_with("", &c), RINGRED_EINVAL); /* used up */
    assert_non_null(strstr(why.text, "once"));
    for (size_t i = 0; i < 240; i += 7) {
        ringred_unique_id bad = id;
        bad.bytes[i] ^= 0x40;
        c.id = &bad;
        c.rank = 1;
        assert_int_equal(find_with("", &c), RINGRED_EINVAL);
    }
}

/* ---- root lists and descriptions ---- */

static void test_ports_behind_the_last_go_on_below(void **state)
{
    (void)state;
    struct rr_roots roots;
    uint16_t seen[9];

    assert_int_equal(rr_roots_parse("[::1]:65530+8", &roots, &why), 0);
    assert_int_equal(roots.count, 1);
    assert_string_equal(roots.at[0].host, "::1");
    for (int k = 0; k <= 8; k++) {
        seen[k] = rr_root_port(&roots.at[0], k);
        assert_true(seen[k] >= 1024);
        for (int j = 0; j < k; j++)
            assert_int_not_equal(seen[j], seen[k]);
    }
    assert_int_equal(rr_roots_parse("a:1,b:2+3,127.0.0.1:3", &roots, &why), 0);
    assert_int_equal(roots.count, 3);
    assert_false(roots.numeric);
    assert_false(rr_roots_are_loopback(&roots));
    assert_int_equal(rr_roots_parse("127.0.0.1:1,[::1]:2,localhost:3", &roots, &why), 0);
    assert_true(rr_roots_are_loopback(&roots));
    assert_int_equal(rr_roots_parse("1:1,2:2,3:3,4:4,5:5,6:6,7:7,8:8,9:9", &roots, &why),
                     RINGRED_ESETTING);
}

static struct rr_net net;

static int pick(const char *interface)
{
    rr_net_close(&net);
    assert_int_equal(rr_settings_set(&settings, "interface", interface, "argument", &why), 0);
    return rr_net_open(&settings, &net, &why);
}

static void test_an_unknown_interface_is_named_with_those_there_are(void **state)
{
    (void)state;
    static const char *const unknown[] = { "nosuch0", "lo,nosuch0", "203.0.113.7", "203.0.113.0/24", "lo,", "127.0.0.1/33" };
    struct rr_address a[RR_ADDRESSES];

    find_with("", NULL);
    assert_int_equal(pick("lo"), 0);
    assert_true(rr_net_addresses(&net, a, RR_ADDRESSES) >= 1);
    assert_true(a[0].loopback);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(pick(unknown[i]), RINGRED_ESETTING);
        assert_non_null(strstr(why.text, "lo (127.0.0.1"));
    }
    assert_int_equal(pick("lo,nosuch0"), RINGRED_ESETTING);
    assert_non_null(strstr(why.text, "\"nosuch0\""));
}

static void test_interfaces_are_picked_by_name_address_or_network(void **state)
{
    (void)state;
    static const char *const ways[] = { "lo", "127.0.0.1", "127.0.0.0/8", "127.0.0.1,lo", "0.0.0.0/0", "::/0" };
    struct rr_address a[RR_ADDRESSES];

    find_with("", NULL);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (pick(ways[i]) < 0 && strchr(ways[i], ':'))
            continue; /* a machine without IPv6 */
        int n = rr_net_addresses(&net, a, RR_ADDRESSES);
        assert_true(net.picked && n >= 1);
        assert_true(a[0].loopback);
        for (int k = 0; k < n && i < 4; k++)
            assert_true(a[k].loopback);
        for (int k = 0; k < n && i >= 4; k++)
            assert_int_equal(a[k].family, i == 4 ? RR_FAMILY_IP4 : RR_FAMILY_IP6);
    }
    assert_int_equal(pick(""), 0);
    assert_false(net.picked);
    rr_net_close(&net);
}

static void test_a_range_of_ports_is_two_ports(void **state)
{
    (void)state;
    static const char *const wrong[] = { "x", "0-5", "20001-20000", "5-", "-5", "1-65536", "1-2-3", "20000-20100 " };

    find_with("", NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(rr_settings_set(&settings, "port_range", wrong[i], "argument", &why), 0);
        assert_int_equal(rr_net_open(&settings, &net, &why), RINGRED_ESETTING);
        assert_non_null(strstr(why.text, "port_range is \""));
    }
    assert_int_equal(rr_settings_set(&settings, "port_range", "20000-20100", "argument", &why), 0);
    assert_int_equal(rr_net_open(&settings, &net, &why), 0);
    assert_int_equal(net.least, 20000);
    assert_int_equal(net.most, 20100);
    rr_net_close(&net);
}

static void test_the_description_says_what_would_be_used(void **state)
{
    (void)state;
    char text[1024];
    struct rr_text t = { text, sizeof text, 0 };

    find_with(PLACE "RINGRED_KEY=sixteen-letters!", NULL);
    rr_launch_describe(&settings, &t);
    assert_non_null(strstr(text, "\"source\":\"ringred-run\""));
    assert_non_null(strstr(text, "\"key\":\"key\""));
    assert_null(strstr(text, "sixteen"));
    find_with("RINGRED_RANK=1", NULL);
    t.used = 0;
    rr_launch_describe(&settings, &t);
    assert_non_null(strstr(text, "\"error\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_at_all_is_one_rank),
        cmocka_unit_test(test_our_own_variables_are_found),
        cmocka_unit_test(test_torchrun_is_found_and_its_store_avoided),
        cmocka_unit_test(test_torchrun_jobs_differ_by_run_and_restart_not_by_size),
        cmocka_unit_test(test_arguments_come_before_the_environment),
        cmocka_unit_test(test_contradictions_are_refused_with_their_names),
        cmocka_unit_test(test_arguments_that_contradict_are_refused),
        cmocka_unit_test(test_a_key_is_the_same_wherever_it_comes_from),
        cmocka_unit_test(test_another_pipe_of_the_same_number_has_another_key),
        cmocka_unit_test(test_a_pipe_that_does_not_end_is_waited_for_in_bounds),
        cmocka_unit_test(test_a_key_that_is_too_long_is_refused_wherever_its_lines_end),
        cmocka_unit_test(test_without_a_key_jobs_still_differ),
        cmocka_unit_test(test_a_fork_keeps_no_listener_of_a_unique_id),
        cmocka_unit_test(test_a_unique_id_names_its_maker_and_carries_a_key),
        cmocka_unit_test(test_ports_behind_the_last_go_on_below),
        cmocka_unit_test(test_an_unknown_interface_is_named_with_those_there_are),
        cmocka_unit_test(test_interfaces_are_picked_by_name_address_or_network),
        cmocka_unit_test(test_a_range_of_ports_is_two_ports),
        cmocka_unit_test(test_the_description_says_what_would_be_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
