/* SPDX-License-Identifier: Apache-2.0 */
/* The roll call: what ranks that were started wrongly, late, or not at all are told, and how soon, through the public
 * calls alone. Each rank is a process; the numbers are those of the reports that told of such trouble elsewhere. */
#include <ringred/ringred.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 8
#define AT_ONCE 2.0 /* seconds; what is asserted is five times that, since machines are busy at times */

struct comer {
    /* how it is started */
    int rank, size;
    const char *root;          /* NULL: the roll's */
    double after, limit;       /* comes so many seconds late; its time limit */
    const char *settings[4];
    bool again;                /* after a failure it makes another communicator, with those that have come */
    /* what came of it */
    int32_t code;
    ringred_error why;
    double took;
    int pid, warnings;
    char warning[300];
};

struct roll {
    int n, holder;
    char root[64];
    struct comer *at; /* shared */
    pid_t pid[MOST];
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A bound socket that does not listen keeps the port for whoever sets SO_REUSEADDR, as the root does. */
static int hold_port(int *port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof in;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    *port = ntohs(in.sin_port);
    return fd;
}

static void roll_init(struct roll *r, int n, double limit)
{
    int port;

    memset(r, 0, sizeof *r);
    r->n = n;
    r->holder = hold_port(&port);
    snprintf(r->root, sizeof r->root, "127.0.0.1:%d", port);
    r->at = mmap(NULL, sizeof *r->at * MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->at != MAP_FAILED);
    for (int i = 0; i < n; i++)
        r->at[i] = (struct comer){ .rank = i, .size = n, .limit = limit };
}

static void roll_done(struct roll *r)
{
    close(r->holder);
    munmap(r->at, sizeof *r->at * MOST);
}

static void on_log(void *context, int32_t level, const char *line)
{
    struct comer *me = context;

    if (level != RINGRED_LOG_WARN)
        return;
    if (me->warnings++ == 0)
        snprintf(me->warning, sizeof me->warning, "%s", line);
}

static int32_t create(const struct roll *r, struct comer *me, int rank, int size, double limit, ringred_error *why)
{
    ringred_config config;
    ringred_comm *comm;
    float x = (float)(rank + 1);

    ringred_config_init(&config, sizeof config);
    config.rank = rank;
    config.size = size;
    config.root = me->root ? me->root : r->root;
    config.key = "the key of this test";
    config.key_bytes = strlen(config.key);
    config.timeout_ns = (int64_t)(limit * 1e9);
    config.settings = me->settings;
    config.log = on_log;
    config.log_context = me;
    int32_t rc = ringred_comm_create(&config, &comm, why);
    if (rc < 0)
        return rc;
    rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);
    if (rc == 0 && x != (float)(size * (size + 1) / 2))
        rc = 1; /* wrong sum */
    int32_t closed = ringred_comm_destroy(comm);
    return rc ? rc : closed;
}

static void come(const struct roll *r, struct comer *me)
{
    me->pid = getpid();
    if (me->after > 0)
        (void)poll(NULL, 0, (int)(me->after * 1000)); /* the lateness is the test */
    double began = now();
    me->code = create(r, me, me->rank, me->size, me->limit, &me->why);
    me->took = now() - began;
}

/* Those that have come once meet again: under new numbers, in order of the old ones. */
static void come_again(const struct roll *r, struct comer *me)
{
    int rank = 0, size = 0;
    ringred_error why;

    for (int i = 0; i < r->n; i++) {
        size += r->at[i].again;
        rank += r->at[i].again && r->at[i].rank < me->rank;
    }
    if (create(r, me, rank, size, 60, &why) != 0)
        _exit(2);
}

static void roll_start(struct roll *r)
{
    fflush(NULL);
    for (int i = 0; i < r->n; i++) {
        pid_t parent = getpid();
        r->pid[i] = fork();
        assert_true(r->pid[i] >= 0);
        if (r->pid[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        alarm(120);
        come(r, &r->at[i]);
        if (r->at[i].again)
            come_again(r, &r->at[i]);
        exit(0); /* not _exit: leak checkers look then */
    }
}

static void roll_end(struct roll *r)
{
    double slowest = 0;

    for (int i = 0; i < r->n; i++) {
        int status;
        assert_int_equal(waitpid(r->pid[i], &status, 0), r->pid[i]);
        if (status)
            fail_msg("process %d ended with status %x: %s", i, status, r->at[i].why.text);
        slowest = r->at[i].took > slowest ? r->at[i].took : slowest;
    }
    print_message("             the last was told after %.3f s\n", slowest);
}

static void roll_run(struct roll *r)
{
    roll_start(r);
    roll_end(r);
}

static void expect(const struct roll *r, int i, int32_t code, const char *words, double bound)
{
    const struct comer *c = &r->at[i];

    if (c->code != code || (words && !strstr(c->why.text, words)))
        fail_msg("process %d (rank %d): status %d instead of %d, \"%s\"", i, c->rank, c->code, code, c->why.text);
    if (c->took > 5 * bound)
        fail_msg("process %d (rank %d) was told after %.3f s: %s", i, c->rank, c->took, c->why.text);
}

/* ---- ranks that cannot meet ---- */

static void test_pr_06_local_ranks_given_as_ranks(void **state)
{
    (void)state;
    struct roll r;
    char pids[2][32];

    roll_init(&r, 4, 30);
    for (int i = 0; i < 4; i++)
        r.at[i].rank = i % 2;
    roll_run(&r);
    for (int i = 0; i < 4; i++) {
        expect(&r, i, RINGRED_ECONFIG, "was started twice: on ", AT_ONCE);
        int twin = strstr(r.at[i].why.text, "rank 0 ") ? 0 : 1;
        for (int k = 0; k < 2; k++) {
            snprintf(pids[k], sizeof pids[k], "(pid %d)", r.at[twin + 2 * k].pid);
            expect(&r, i, RINGRED_ECONFIG, pids[k], AT_ONCE);
        }
    }
    roll_done(&r);
}

static void test_pr_06_another_size(void **state)
{
    (void)state;
    struct roll r;

    roll_init(&r, 4, 30);
    r.at[2].size = 3;
    roll_run(&r);
    for (int i = 0; i < 4; i++)
        expect(&r, i, RINGRED_ECONFIG, "rank 2 on ", AT_ONCE);
    expect(&r, 0, RINGRED_ECONFIG, "was started for 3 ranks, but rank 0 on ", AT_ONCE);
    roll_done(&r);
}

/* Refused by the process itself, before it uses any network: the root need not exist. */
static void test_pr_06_ranks_out_of_range(void **state)
{
    (void)state;
    static const struct {
        int rank, size;
        int32_t code;
        const char *words;
    } wrong[] = {
        { 4, 4, RINGRED_ESETTING, "rank 4 of 4: ranks go from 0 to 3" },
        { 7, 4, RINGRED_ESETTING, "rank 7 of 4: ranks go from 0 to 3" },
        { -2, 4, RINGRED_EINVAL, "config has rank -2 of size 4" },
        { 0, 0, RINGRED_EINVAL, "config has rank 0 of size 0" },
    };
    struct roll r;

    roll_init(&r, 4, 30);
    for (int i = 0; i < 4; i++) {
        r.at[i].rank = wrong[i].rank;
        r.at[i].size = wrong[i].size;
        r.at[i].root = "no-such-host.invalid:1";
    }
    roll_run(&r);
    for (int i = 0; i < 4; i++)
        expect(&r, i, wrong[i].code, wrong[i].words, AT_ONCE);
    roll_done(&r);
}

/* Each setting that must be the same is named, with both values and both ranks. */
static void test_settings_that_must_agree_are_named(void **state)
{
    (void)state;
    static const char *const differ[][3] = {
        { "stage", "64K", "128K" },        { "segment", "0", "1M" },
        { "numerics", "canonical", "fast" }, { "algorithm", "auto", "star" },
        { "transport", "auto", "tcp" },    { "tcp_streams", "1", "2" },
        { "heap", "1M", "2M" },            { "ranks_per_host", "1", "3" },
        { "tcp_encryption", "on", "off" }, { "tcp_encryption", "off", "chacha20" },
    };

    for (size_t k = 0; k < sizeof differ / sizeof *differ; k++) {
        static char one[64], two[64];
        struct roll r;
        char words[96];
        roll_init(&r, 3, 30);
        snprintf(one, sizeof one, "%s=%s", differ[k][0], differ[k][1]);
        snprintf(two, sizeof two, "%s=%s", differ[k][0], differ[k][2]);
        for (int i = 0; i < 3; i++)
            r.at[i].settings[0] = i == 2 ? two : one;
        roll_run(&r);
        for (int i = 0; i < 3; i++) {
            snprintf(words, sizeof words, "the setting %s must be the same on all ranks", differ[k][0]);
            expect(&r, i, RINGRED_ECONFIG, words, AT_ONCE);
            snprintf(words, sizeof words, " on rank 2 on ");
            expect(&r, i, RINGRED_ECONFIG, words, AT_ONCE);
            snprintf(words, sizeof words, "(pid %d)", r.at[2].pid);
            expect(&r, i, RINGRED_ECONFIG, words, AT_ONCE);
            snprintf(words, sizeof words, "(pid %d)", r.at[0].pid);
            expect(&r, i, RINGRED_ECONFIG, words, AT_ONCE);
        }
        roll_done(&r);
    }
}

/* ---- ranks that are late, or never come ---- */

static void test_pr_08_missing_ranks_are_named_at_the_deadline(void **state)
{
    (void)state;
    struct roll r;
    char words[128];
    double longest = 0;

    roll_init(&r, 6, 1);
    for (int i = 0; i < 6; i++) {
        r.at[i].size = 8;
        r.at[i].rank = i < 3 ? i : i + 1; /* 3 and 7 do not come */
        r.at[i].again = true;
    }
    roll_run(&r); /* and they met again, as six */
    for (int i = 0; i < 6; i++) {
        snprintf(words, sizeof words, "ranks 3, 7 never arrived at %s within ", r.root);
        expect(&r, i, RINGRED_ETIMEOUT, words, 1);
        expect(&r, i, RINGRED_ETIMEOUT, " s (here: 0-2, 4-6 of 8)", 1);
        snprintf(words, sizeof words, "(pid %d, %d, ", r.at[0].pid, r.at[1].pid);
        expect(&r, i, RINGRED_ETIMEOUT, words, 1);
        longest = r.at[i].took > longest ? r.at[i].took : longest;
    }
    assert_true(longest >= 0.9); /* of whoever came first: the others have the time that he has left */
    roll_done(&r);
}

static void test_pr_08_one_that_comes_late_but_in_time(void **state)
{
    (void)state;
    struct roll r;

    roll_init(&r, 4, 2.5);
    r.at[2].after = 2;
    roll_run(&r);
    for (int i = 0; i < 4; i++)
        expect(&r, i, 0, NULL, 2.5);
    roll_done(&r);
}

static void test_pr_08_one_that_comes_too_late(void **state)
{
    (void)state;
    struct roll r;

    roll_init(&r, 4, 1);
    r.at[2].after = 1.4;
    roll_run(&r);
    for (int i = 0; i < 4; i++)
        if (i != 2)
            expect(&r, i, RINGRED_ETIMEOUT, "rank 2 never arrived at ", 1);
    expect(&r, 2, RINGRED_ETIMEOUT, "nothing answered as root at ", 1);
    expect(&r, 2, RINGRED_ETIMEOUT, "refused", 1);
    roll_done(&r);
}

static void test_pr_09_ranks_with_other_root_ports(void **state)
{
    (void)state;
    struct roll r;
    static char root[2][64];
    int fd[2], port;

    roll_init(&r, 3, 1);
    for (int i = 0; i < 2; i++) {
        fd[i] = hold_port(&port);
        snprintf(root[i], sizeof root[i], "127.0.0.1:%d", port);
        r.at[i + 1].root = root[i];
    }
    roll_run(&r);
    expect(&r, 0, RINGRED_ETIMEOUT, "ranks 1, 2 never arrived at ", 1);
    for (int i = 0; i < 2; i++) {
        char words[200];
        snprintf(words, sizeof words, "nothing answered as root at %s within ", root[i]);
        expect(&r, i + 1, RINGRED_ETIMEOUT, words, 1);
        expect(&r, i + 1, RINGRED_ETIMEOUT, "Connection refused", 1);
        close(fd[i]);
    }
    roll_done(&r);
}

/* ---- strangers ---- */

#define STRANGERS 50

static int dial(const struct roll *r)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    in.sin_port = htons((uint16_t)atoi(strchr(r->root, ':') + 1));
    for (;;) { /* the root may not listen yet */
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        if (connect(fd, (struct sockaddr *)&in, sizeof in) == 0)
            return fd;
        assert_int_equal(errno, ECONNREFUSED);
        close(fd);
        (void)poll(NULL, 0, 1);
    }
}

/* What the root says to whoever comes, with another job in it: a well-formed beginning of somebody else's. */
static size_t greeting_of_another(const struct roll *r, unsigned char *to, size_t room)
{
    int fd = dial(r);
    ssize_t n = recv(fd, to, room, MSG_WAITALL);

    close(fd);
    assert_true(n == (ssize_t)room);
    to[16] ^= 0xff;
    return (size_t)n;
}

static void test_pr_10_strangers_neither_join_nor_stall(void **state)
{
    (void)state;
    struct roll r;
    unsigned char noise[256], greeting[64];
    int fd[STRANGERS];

    roll_init(&r, 3, 60);
    r.at[1].after = r.at[2].after = 0.3; /* while the strangers are already there */
    roll_start(&r);
    size_t bytes = greeting_of_another(&r, greeting, sizeof greeting);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)(i * 37 + 5);
    for (int i = 0; i < STRANGERS; i++) {
        fd[i] = dial(&r);
        if (i % 4 == 0)
            (void)send(fd[i], noise, sizeof noise, MSG_NOSIGNAL); /* it may be refused at its first byte */
        else if (i % 4 == 1)
            (void)send(fd[i], greeting, bytes, MSG_NOSIGNAL);
        else if (i % 4 == 2)
            (void)send(fd[i], greeting, 1, MSG_NOSIGNAL); /* and then nothing more */
    }
    roll_end(&r);
    for (int i = 0; i < 3; i++)
        expect(&r, i, 0, NULL, AT_ONCE);
    assert_int_equal(r.at[0].warnings, 1);
    assert_non_null(strstr(r.at[0].warning, "refused a connection from 127.0.0.1:"));
    for (int i = 0; i < STRANGERS; i++)
        close(fd[i]);
    roll_done(&r);
}

/* ---- the same port again ---- */

static void test_pr_05_a_killed_job_leaves_its_port_free(void **state)
{
    (void)state;
    struct roll r;

    roll_init(&r, 3, 60);
    for (int times = 0; times < 3; times++) {
        r.at[2].after = 600; /* never: the others have met at the port, and are killed there */
        roll_start(&r);
        int fd = dial(&r);
        char byte;
        assert_int_equal(recv(fd, &byte, 1, 0), 1); /* the root is at it */
        for (int i = 0; i < 3; i++) {
            kill(r.pid[i], SIGKILL);
            assert_int_equal(waitpid(r.pid[i], NULL, 0), r.pid[i]);
        }
        close(fd);
        r.at[2].after = 0;
        roll_run(&r);
        for (int i = 0; i < 3; i++)
            expect(&r, i, 0, NULL, AT_ONCE);
    }
    roll_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pr_06_local_ranks_given_as_ranks),
        cmocka_unit_test(test_pr_06_another_size),
        cmocka_unit_test(test_pr_06_ranks_out_of_range),
        cmocka_unit_test(test_settings_that_must_agree_are_named),
        cmocka_unit_test(test_pr_08_missing_ranks_are_named_at_the_deadline),
        cmocka_unit_test(test_pr_08_one_that_comes_late_but_in_time),
        cmocka_unit_test(test_pr_08_one_that_comes_too_late),
        cmocka_unit_test(test_pr_09_ranks_with_other_root_ports),
        cmocka_unit_test(test_pr_10_strangers_neither_join_nor_stall),
        cmocka_unit_test(test_pr_05_a_killed_job_leaves_its_port_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
