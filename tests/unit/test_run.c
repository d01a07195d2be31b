/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-run: what ranks are given, how their output comes back, and how they end. The path of the
 * tool is the first argument; the test starts itself as a rank, too. */
#include "boot/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *tool, *self;

struct run {
    pid_t pid;
    int out;            /* both outputs of the tool */
    char text[1 << 16]; /* what came, as a text */
    size_t used, total; /* kept, and all */
    int status;         /* as a shell would have it */
};

static void run_start(struct run *r, const char *const *arguments)
{
    const char *argv[32] = { tool };
    int end[2], n = 1;

    memset(r, 0, sizeof *r);
    while (*arguments)
        argv[n++] = *arguments++;
    argv[n] = NULL;
    assert_int_equal(pipe2(end, O_CLOEXEC), 0);
    fflush(NULL);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0) {
        dup2(end[1], 1);
        dup2(end[1], 2);
        execv(tool, (char **)(uintptr_t)argv);
        _exit(99);
    }
    close(end[1]);
    r->out = end[0];
}

/* Reads until the words have come, or with NULL until the end. */
static void run_read(struct run *r, const char *words)
{
    char piece[4096];

    while (!words || !strstr(r->text, words)) {
        ssize_t n = read(r->out, piece, sizeof piece);
        if (n <= 0) {
            if (words)
                fail_msg("\"%s\" did not come, but: %s", words, r->text);
            return;
        }
        r->total += (size_t)n;
        if (r->used + (size_t)n < sizeof r->text) {
            memcpy(r->text + r->used, piece, (size_t)n);
            r->used += (size_t)n;
        }
    }
}

static void run_wait(struct run *r)
{
    int status;

    run_read(r, NULL);
    close(r->out);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define RUN(r, ...)                                               \
    do {                                                          \
        run_start(r, (const char *const[]){ __VA_ARGS__, NULL }); \
        run_wait(r);                                              \
    } while (0)

static void expect(const struct run *r, int status, const char *words)
{
    if (r->status != status || !strstr(r->text, words))
        fail_msg("status %d, expected %d and \"%s\": %s", r->status, status, words, r->text);
}

static struct run r; /* its text is large for a stack */

static void test_ranks_are_told_their_place(void **state)
{
    (void)state;
    RUN(&r, "-n", "3", "sh", "-c",
        "echo $RINGRED_RANK of $RINGRED_SIZE, $RINGRED_LOCAL_RANK of $RINGRED_LOCAL_SIZE");
    expect(&r, 0, "[0] 0 of 3, 0 of 3\n");
    expect(&r, 0, "[1] 1 of 3, 1 of 3\n");
    expect(&r, 0, "[2] 2 of 3, 2 of 3\n");
    RUN(&r, "--ranks=5", "--ranks-per-host=2", "--", "sh", "-c",
        "echo $RINGRED_RANK: $RINGRED_LOCAL_RANK of $RINGRED_LOCAL_SIZE, $RINGRED_RANKS_PER_HOST");
    expect(&r, 0, "[3] 3: 1 of 2, 2\n");
    expect(&r, 0, "[4] 4: 0 of 1, 2\n");
}

static void test_ranks_find_each_other_twice(void **state)
{
    (void)state;
    RUN(&r, "-n", "4", self, "as-rank");
    for (int i = 0; i < 4; i++) {
        char words[64];
        snprintf(words, sizeof words, "[%d] met twice with a key", i);
        expect(&r, 0, words);
    }
}

static void test_the_key_shows_nowhere_but_in_the_pipe(void **state)
{
    (void)state;
    RUN(&r, "-n", "2", "sh", "-c",
        "test -z \"$RINGRED_KEY$RINGRED_KEY_FILE\" && echo key of $(wc -c <&$RINGRED_KEY_FD) "
        "bytes");
    expect(&r, 0, "[0] key of 32 bytes");
    expect(&r, 0, "[1] key of 32 bytes");
}

static void test_variables_are_passed_and_ours_win(void **state)
{
    (void)state;
    RUN(&r, "-n", "1", "-x", "COLOUR=dark blue", "--env", "RINGRED_RANK=7", "sh", "-c",
        "echo \"$COLOUR, $RINGRED_RANK\"");
    expect(&r, 0, "[0] dark blue, 0\n");
}

static void test_the_status_is_that_of_the_first_failure(void **state)
{
    (void)state;
    RUN(&r, "-n", "3", "sh", "-c", "test $RINGRED_RANK = 1 && exit 7; exec sleep 1000");
    expect(&r, 7, "rank 1 (pid ");
    expect(&r, 7, "ended with status 7; ending the others");
    RUN(&r, "-n", "2", "sh", "-c", "test $RINGRED_RANK = 1 && kill -SEGV $$; exec sleep 1000");
    expect(&r, 128 + SIGSEGV, "rank 1 (pid ");
    expect(&r, 128 + SIGSEGV, "was killed by signal 11");
    /* a rank that does not hear SIGTERM, and its children, end all the same */
    RUN(&r, "-n", "2", "--grace", "0", "sh", "-c",
        "test $RINGRED_RANK = 1 && exit 3; trap '' TERM; sleep 1000 & sleep 1000");
    expect(&r, 3, "ended with status 3");
}

static void test_what_cannot_run_is_named_once(void **state)
{
    (void)state;
    RUN(&r, "-n", "2", "./no/such/program");
    expect(&r, 127, "ringred-run: cannot run ./no/such/program: No such file or directory\n");
    RUN(&r, "-n", "2", "/");
    expect(&r, 126, "cannot run /");
    RUN(&r, "sh");
    expect(&r, 125, "-n RANKS");
    RUN(&r, "-n", "0", "sh");
    expect(&r, 125, "not a number from 1");
    RUN(&r, "-n", "2");
    expect(&r, 125, "say what to run");
    RUN(&r, "-n", "2", "-x", "NOTHING", "sh");
    expect(&r, 125, "NAME=VALUE");
    RUN(&r, "--help");
    expect(&r, 0, "Usage: ringred-run -n RANKS");
}

static void test_lines_stay_whole_and_bytes_as_they_are(void **state)
{
    (void)state;
    /* 100 lines of each rank in two pieces each: never mixed */
    RUN(&r, "-n", "3", "sh", "-c",
        "i=0; while [ $i -lt 100 ]; do printf 'a%d' $i; echo b$RINGRED_RANK; i=$((i + 1)); done");
    int lines = 0;
    for (char *line = r.text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        int rank, number, again;
        assert_int_equal(sscanf(line, "[%d] a%db%d", &rank, &number, &again), 3);
        assert_int_equal(rank, again);
        lines++;
    }
    assert_int_equal(lines, 300);

    RUN(&r, "-n", "1", "sh", "-c", "printf 'x\\0y\\377z'; printf 'no end' >&2");
    assert_non_null(memmem(r.text, r.used, "[0] x\0y\377z\n", 10));
    assert_non_null(memmem(r.text, r.used, "[0] no end\n", 11));

    RUN(&r, "-n", "2", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' q; echo");
    assert_true(r.total >= 6000000);
    assert_true(r.total < 6000200);

    RUN(&r, "-n", "2", "--no-prefix", "sh", "-c", "echo plain");
    assert_string_equal(r.text, "plain\nplain\n");
}

static void stop_with(int sig, int status)
{
    run_start(&r, (const char *const[]){
                      "-n", "2", "sh", "-c",
                      "echo rank $RINGRED_RANK pid $$ end$RINGRED_RANK; exec sleep 1000", NULL });
    pid_t pid[2] = { 0 };
    run_read(&r, "end0");
    run_read(&r, "end1");
    assert_int_equal(sscanf(strstr(r.text, "rank 0 pid "), "rank 0 pid %d", &pid[0]), 1);
    assert_int_equal(sscanf(strstr(r.text, "rank 1 pid "), "rank 1 pid %d", &pid[1]), 1);
    assert_int_equal(kill(r.pid, sig), 0);
    run_wait(&r);
    assert_int_equal(r.status, status);
    for (int i = 0; i < 2; i++) {
        if (sig ==
            SIGKILL) /* orphans of the tool come to this test: wait for the kernel to end them */
            assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
        assert_int_equal(kill(pid[i], 0), -1);
    }
}

static void test_a_signal_ends_all_ranks(void **state)
{
    (void)state;
    stop_with(SIGTERM, 128 + SIGTERM);
    stop_with(SIGINT, 128 + SIGINT);
    stop_with(SIGKILL, 128 + SIGKILL); /* nobody is left to forward it */
}

/* ---- hosts ---- */

static char launcher[] = "/tmp/ringred-test-XXXXXX"; /* takes a host and a command, and runs it here */

static void write_launcher(void)
{
    static const char text[] = "#!/bin/sh\nexport LAUNCHED=$1\nshift\necho a greeting\nexec \"$@\"\n";
    int fd = mkstemp(launcher);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
}

#define HOSTS(list) "--hosts", list, "--launch-with", launcher

static void test_ranks_of_hosts_are_told_their_place(void **state)
{
    (void)state;
    assert_int_equal(setenv("RINGRED_SPIN", "7", 1), 0);
    RUN(&r, HOSTS("a:2,b"), "-x", "COLOUR=dark blue", "sh", "-c",
        "echo $RINGRED_RANK of $RINGRED_SIZE, $RINGRED_LOCAL_RANK of $RINGRED_LOCAL_SIZE on $LAUNCHED, $COLOUR, "
        "$RINGRED_SPIN, $(pwd), \"$1\"", "-", "two\nlines");
    unsetenv("RINGRED_SPIN");
    char here[256], words[400];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(words, sizeof words, "[0] 0 of 3, 0 of 2 on a, dark blue, 7, %s, two\n", here);
    expect(&r, 0, words);
    expect(&r, 0, "[1] 1 of 3, 1 of 2 on a, ");
    expect(&r, 0, "[2] 2 of 3, 0 of 1 on b, ");
    expect(&r, 0, "a greeting\n");
    assert_null(strchr(r.text, '\1'));
    RUN(&r, "-n", "3", HOSTS("a:2,b:2,c:2"), "--no-prefix", "sh", "-c", "echo $RINGRED_SIZE on $LAUNCHED");
    expect(&r, 0, "3 on a\n");
    expect(&r, 0, "3 on b\n");
    assert_null(strstr(r.text, "on c"));
    assert_null(strchr(r.text, '['));
}

static void test_ranks_of_hosts_find_each_other_with_a_key(void **state)
{
    (void)state;
    RUN(&r, HOSTS("a:2,b:1,[fd00::1]:1"), self, "as-rank");
    for (int i = 0; i < 4; i++) {
        char words[64];
        snprintf(words, sizeof words, "[%d] met twice with a key", i);
        expect(&r, 0, words);
    }
}

static void test_a_failure_on_a_host_ends_the_job(void **state)
{
    (void)state;
    RUN(&r, HOSTS("a:2,b:2"), "sh", "-c", "test $RINGRED_RANK = 3 && exit 7; exec sleep 1000");
    expect(&r, 7, "ringred-run: b: rank 3 (pid ");
    expect(&r, 7, "ended with status 7; ending the others");
    RUN(&r, HOSTS("a,b"), "sh", "-c", "test $RINGRED_RANK = 0 && kill -SEGV $$; exec sleep 1000");
    expect(&r, 128 + SIGSEGV, "ringred-run: a: rank 0 (pid ");
    RUN(&r, HOSTS("a,b"), "./no/such/program");
    expect(&r, 127, "cannot run ./no/such/program");
    RUN(&r, "--hosts", "a", "--launch-with", "./no/such/launcher", "sh");
    expect(&r, 127, "cannot run ./no/such/launcher");
    RUN(&r, "--hosts", "a", "--launch-with", "false", "sh");
    expect(&r, 1, "false on host a ended with status 1");
}

static void stop_hosts_with(int sig, int status)
{
    pid_t pid[2] = { 0 };

    run_start(&r, (const char *const[]){ HOSTS("a,b"), "sh", "-c",
                                         "echo rank $RINGRED_RANK pid $$ end$RINGRED_RANK; exec sleep 1000", NULL });
    run_read(&r, "end0");
    run_read(&r, "end1");
    assert_int_equal(sscanf(strstr(r.text, "rank 0 pid "), "rank 0 pid %d", &pid[0]), 1);
    assert_int_equal(sscanf(strstr(r.text, "rank 1 pid "), "rank 1 pid %d", &pid[1]), 1);
    assert_int_equal(kill(r.pid, sig), 0);
    run_wait(&r);
    assert_int_equal(r.status, status);
    while (sig == SIGKILL && waitpid(-1, NULL, 0) > 0) /* orphans of the tool, which come to this test */
        continue;
    for (int i = 0; i < 2; i++)
        assert_int_equal(kill(pid[i], 0), -1);
}

static void test_a_signal_ends_the_ranks_of_all_hosts(void **state)
{
    (void)state;
    stop_hosts_with(SIGTERM, 128 + SIGTERM);
    stop_hosts_with(SIGINT, 128 + SIGINT);
    stop_hosts_with(SIGKILL, 128 + SIGKILL);
}

static void test_lists_of_hosts_are_read_or_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/ringred-test-XXXXXX";
    const char text[] = "# ours\n a slots=2 # two\n\nb:1\nc\n";
    int fd = mkstemp(path);

    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    RUN(&r, "--hostfile", path, "--launch-with", launcher, "sh", "-c", "echo $RINGRED_RANK on $LAUNCHED");
    expect(&r, 0, "[1] 1 on a\n");
    expect(&r, 0, "[2] 2 on b\n");
    expect(&r, 0, "[3] 3 on c\n");
    unlink(path);
    RUN(&r, HOSTS("a,b,a"), "sh");
    expect(&r, 125, "host a is listed twice");
    RUN(&r, HOSTS("a,,b"), "sh");
    expect(&r, 125, "a host has no name");
    RUN(&r, HOSTS("-oProxyCommand=x"), "sh");
    expect(&r, 125, "begins with -");
    RUN(&r, HOSTS("a:0"), "sh");
    expect(&r, 125, "not a number from 1");
    RUN(&r, "-n", "4", HOSTS("a:2,b"), "sh");
    expect(&r, 125, "the hosts have room for 3 ranks, not for 4");
    RUN(&r, "--hostfile", "/nowhere", "sh");
    expect(&r, 125, "cannot read /nowhere");
    RUN(&r, HOSTS("a"), "--ranks-per-host", "2", "sh");
    expect(&r, 125, "makes no sense with --hosts");
    RUN(&r, "--agent");
    expect(&r, 125, "--agent is not for users");
}

/* ---- a reader that does not read ---- */

struct stalled {
    char dir[40], words[160];
    int end[2]; /* of the pipe that is the tool's output: the test keeps both, and reads neither */
    pid_t tool;
};

/* Two ranks: 0 writes for ever, 1 sleeps. Returns when the pipe is full. */
static void stalled_start(struct stalled *s)
{
    struct pollfd p;

    strcpy(s->dir, "/tmp/ringred-test-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(pipe2(s->end, O_CLOEXEC), 0);
    snprintf(s->words, sizeof s->words,
             "echo $$ >%s/$RINGRED_RANK; test $RINGRED_RANK = 0 && exec yes; exec sleep 1000",
             s->dir);
    fflush(NULL);
    s->tool = fork();
    if (s->tool == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(s->end[1], 1);
        dup2(s->end[1], 2);
        execl(tool, tool, "-n", "2", "sh", "-c", s->words, NULL);
        _exit(99);
    }
    p = (struct pollfd){ .fd = s->end[1], .events = POLLOUT };
    while (poll(&p, 1, 0) != 0)
        poll(NULL, 0, 1);
}

static pid_t stalled_rank(const struct stalled *s, int rank)
{
    char path[64];
    int pid = 0;

    snprintf(path, sizeof path, "%s/%d", s->dir, rank);
    while (pid == 0) {
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%d", &pid) != 1)
            pid = 0;
        if (f)
            fclose(f);
        poll(NULL, 0, 1);
    }
    return pid;
}

/* Reads what there is, for the tool to end; returns its status. */
static int stalled_end(struct stalled *s)
{
    char path[64];
    int status;

    close(s->end[1]);
    r = (struct run){ .pid = s->tool, .out = s->end[0] };
    run_read(&r, NULL);
    close(s->end[0]);
    assert_int_equal(waitpid(s->tool, &status, 0), s->tool);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d", s->dir, i);
        unlink(path);
    }
    rmdir(s->dir);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void await_end(pid_t pid) /* reaped or not */
{
    for (char state = 'R'; state != 'Z' && state != 0; poll(NULL, 0, 1)) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *f = fopen(path, "re");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (f)
            fclose(f);
    }
}

static void test_a_reader_that_stalls_does_not_keep_signals_out(void **state)
{
    (void)state;
    static const int signals[] = { SIGINT, SIGTERM };

    for (int i = 0; i < 2; i++) {
        struct stalled s;
        pid_t rank;
        stalled_start(&s);
        rank = stalled_rank(&s, 0);
        alarm(60);
        assert_int_equal(kill(s.tool, signals[i]), 0);
        siginfo_t info;
        assert_int_equal(waitid(P_PID, (id_t)s.tool, &info, WEXITED | WNOWAIT), 0);
        alarm(0);
        assert_int_equal(stalled_end(&s), 128 + signals[i]);
        assert_int_equal(kill(rank, 0), -1);
    }
}

static void test_a_reader_that_stalls_does_not_hide_a_death(void **state)
{
    (void)state;
    struct stalled s;

    stalled_start(&s);
    pid_t writer = stalled_rank(&s, 0), sleeper = stalled_rank(&s, 1);
    alarm(60);
    assert_int_equal(kill(sleeper, SIGKILL), 0);
    await_end(writer); /* the tool has ended it, with its output still in the way */
    alarm(0);
    assert_int_equal(stalled_end(&s), 128 + SIGKILL);
}

/* ---- as a rank ---- */

static int as_rank(void)
{
    static struct rr_settings settings;
    static struct rr_log log;
    ringred_error why = { 0 };
    struct rr_launch launch;
    struct rr_boot *boot;
    int all[16];

    for (int times = 0; times < 2; times++) {
        if (rr_settings_load(&settings, NULL, &why) < 0 ||
            rr_launch_find(NULL, &settings, &launch, &why) < 0 ||
            rr_boot_open(&launch, &settings, &log, rr_deadline(60 * RINGRED_SECOND), &boot, &why) <
                0 ||
            rr_boot_allgather(boot, &launch.rank, sizeof launch.rank, all, &why) < 0) {
            puts(why.text);
            return 1;
        }
        for (int i = 0; i < launch.size; i++)
            if (all[i] != i)
                return 2;
        rr_boot_close(boot);
    }
    printf("met twice %s a key\n", launch.has_key ? "with" : "without");
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_told_their_place),
        cmocka_unit_test(test_ranks_find_each_other_twice),
        cmocka_unit_test(test_the_key_shows_nowhere_but_in_the_pipe),
        cmocka_unit_test(test_variables_are_passed_and_ours_win),
        cmocka_unit_test(test_the_status_is_that_of_the_first_failure),
        cmocka_unit_test(test_what_cannot_run_is_named_once),
        cmocka_unit_test(test_lines_stay_whole_and_bytes_as_they_are),
        cmocka_unit_test(test_a_signal_ends_all_ranks),
        cmocka_unit_test(test_ranks_of_hosts_are_told_their_place),
        cmocka_unit_test(test_ranks_of_hosts_find_each_other_with_a_key),
        cmocka_unit_test(test_a_failure_on_a_host_ends_the_job),
        cmocka_unit_test(test_a_signal_ends_the_ranks_of_all_hosts),
        cmocka_unit_test(test_lists_of_hosts_are_read_or_refused),
        cmocka_unit_test(test_a_reader_that_stalls_does_not_keep_signals_out),
        cmocka_unit_test(test_a_reader_that_stalls_does_not_hide_a_death),
    };

    if (argc > 1 && strcmp(argv[1], "as-rank") == 0)
        return as_rank();
    if (argc < 2) {
        fprintf(stderr, "usage: %s path/to/ringred-run\n", argv[0]);
        return 1;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    tool = argv[1];
    self = argv[0];
    write_launcher();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(launcher);
    return rc;
}
