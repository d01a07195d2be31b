/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes or threads; see ranks.h. */
#include "ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define GRACE_NS INT64_C(3000000000) /* what the others get after one has failed */

struct ranks_hall {
    pthread_barrier_t barrier;
    _Alignas(64) char shared[RANKS_SHARED];
    _Alignas(64) char passed[4096];
};

/* What the parent knows of one rank. */
struct child {
    pid_t pid;
    int pidfd, text;        /* text: a memory file that is the rank's stderr */
    bool ended, failed;
    char why[128];
};

struct thread {
    pthread_t thread;
    struct rank me;
    void (*run)(struct rank *me);
    char why[1024];         /* "" if nothing failed */
};

static _Thread_local struct thread *this_thread; /* NULL in a process */
static _Thread_local int this_rank = -1;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- inside a rank ---- */

_Noreturn void ranks_fail(const char *file, int line, const char *format, ...)
{
    char text[900];
    va_list more;

    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    if (this_thread != NULL) {
        snprintf(this_thread->why, sizeof this_thread->why, "%s:%d: %s", file, line, text);
        pthread_exit(NULL);
    }
    fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, this_rank, text);
    _exit(1);
}

void ranks_check_int(const char *file, int line, const char *what, long long got, long long want)
{
    if (got != want)
        ranks_fail(file, line, "%s is %lld, should be %lld", what, got, want);
}

void ranks_meet(struct rank *me)
{
    pthread_barrier_wait(&me->hall->barrier);
}

void ranks_pass(struct rank *me, void *bytes, size_t count)
{
    rank_check(count <= sizeof me->hall->passed);
    if (me->rank == 0)
        memcpy(me->hall->passed, bytes, count);
    ranks_meet(me);
    if (me->rank != 0)
        memcpy(bytes, me->hall->passed, count);
    ranks_meet(me);
}

/* ---- processes ---- */

static struct ranks_hall *hall_open(int size)
{
    struct ranks_hall *hall = mmap(NULL, sizeof *hall, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;

    assert_true(hall != MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&hall->barrier, &shared, (unsigned)size);
    pthread_barrierattr_destroy(&shared);
    return hall;
}

/* Not destroyed: a rank that was killed may stand in the barrier, and destroying would wait for it. */
static void hall_close(struct ranks_hall *hall)
{
    munmap(hall, sizeof *hall);
}

static _Noreturn void child_main(const struct ranks_plan *plan, int rank, struct ranks_hall *hall, int text)
{
    static const int caught_by_cmocka[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
    struct rank me = { rank, plan->size, plan->argument, hall->shared, hall };

    for (size_t i = 0; i < sizeof caught_by_cmocka / sizeof caught_by_cmocka[0]; i++)
        signal(caught_by_cmocka[i], SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives its test */
    dup2(text, STDERR_FILENO);
    this_rank = rank;
    plan->run(&me);
    exit(0); /* and not _exit: sanitizers report there */
}

static void child_start(const struct ranks_plan *plan, int rank, struct ranks_hall *hall, struct child *c)
{
    c->text = memfd_create("rank", MFD_CLOEXEC);
    assert_true(c->text >= 0);
    fflush(NULL);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0)
        child_main(plan, rank, hall, c->text);
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    assert_true(c->pidfd >= 0);
}

static void child_end(struct child *c, bool may_die)
{
    int status = 0;

    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    c->ended = true;
    if (WIFSIGNALED(status) && !may_die && !c->failed) {
        c->failed = true;
        snprintf(c->why, sizeof c->why, "died of signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
        c->failed = true;
        snprintf(c->why, sizeof c->why, "ended with status %d", WEXITSTATUS(status));
    }
}

/* Waits until one of them ends, or for the deadline. */
static void wait_for_one(const struct ranks_plan *plan, struct child *child, int64_t deadline_ns)
{
    struct pollfd fds[RANKS_MOST];
    const int64_t left = (deadline_ns - now_ns() + 999999) / 1000000;

    for (int r = 0; r < plan->size; r++) {
        fds[r].fd = child[r].ended ? -1 : child[r].pidfd;
        fds[r].events = POLLIN;
        fds[r].revents = 0;
    }
    if (poll(fds, (nfds_t)plan->size, left > 0 ? (int)left : 0) <= 0)
        return;
    for (int r = 0; r < plan->size; r++)
        if (fds[r].revents)
            child_end(&child[r], plan->may_die >> r & 1);
}

static int running(const struct ranks_plan *plan, const struct child *child)
{
    int n = 0;

    for (int r = 0; r < plan->size; r++)
        n += !child[r].ended;
    return n;
}

static bool anyone_failed(const struct ranks_plan *plan, const struct child *child)
{
    for (int r = 0; r < plan->size; r++)
        if (child[r].failed)
            return true;
    return false;
}

static void stop_all(const struct ranks_plan *plan, struct child *child, bool blame)
{
    for (int r = 0; r < plan->size; r++) {
        if (child[r].ended)
            continue;
        child[r].failed = blame;
        snprintf(child[r].why, sizeof child[r].why, "had not ended in time");
        kill(child[r].pid, SIGKILL);
        child_end(&child[r], true);
    }
}

/* What a rank wrote to stderr, and how it ended. */
static void report(const struct child *c, int rank)
{
    char text[4096];
    off_t at = 0;

    if (c->why[0] != 0)
        print_error("rank %d %s\n", rank, c->why);
    for (;;) {
        const ssize_t n = pread(c->text, text, sizeof text - 1, at);

        if (n <= 0)
            break;
        text[n] = 0;
        at += n;
        print_error("rank %d wrote: %s\n", rank, text);
    }
}

static void run_processes(const struct ranks_plan *plan, int64_t deadline_ns)
{
    struct ranks_hall *hall = hall_open(plan->size);
    struct child child[RANKS_MOST] = { 0 };
    bool failed = false;

    for (int r = 0; r < plan->size; r++)
        child_start(plan, r, hall, &child[r]);
    while (running(plan, child) > 0 && now_ns() < deadline_ns) {
        wait_for_one(plan, child, deadline_ns);
        if (!failed && anyone_failed(plan, child)) {
            failed = true;
            if (now_ns() + GRACE_NS < deadline_ns)
                deadline_ns = now_ns() + GRACE_NS;
        }
    }
    stop_all(plan, child, true);
    failed = anyone_failed(plan, child);
    for (int r = 0; r < plan->size; r++) {
        if (failed)
            report(&child[r], r);
        close(child[r].text);
        close(child[r].pidfd);
    }
    hall_close(hall);
    if (failed)
        fail_msg("a rank failed");
}

/* ---- threads ---- */

static void *thread_main(void *argument)
{
    struct thread *t = argument;

    this_thread = t;
    this_rank = t->me.rank;
    t->run(&t->me);
    return NULL;
}

/* A thread that hangs cannot be ended, so the process is. */
static void thread_end(struct thread *t, int64_t deadline_ns)
{
    struct timespec until;
    int64_t left = deadline_ns - now_ns();

    clock_gettime(CLOCK_REALTIME, &until);
    left = (left > 0 ? left : 0) + until.tv_nsec;
    until.tv_sec += left / 1000000000;
    until.tv_nsec = left % 1000000000;
    if (pthread_timedjoin_np(t->thread, NULL, &until) == 0)
        return;
    fprintf(stderr, "rank %d (a thread) had not ended in time\n", t->me.rank);
    _exit(1);
}

static void run_threads(const struct ranks_plan *plan, int64_t deadline_ns)
{
    struct ranks_hall *hall = hall_open(plan->size);
    struct thread *thread = calloc((size_t)plan->size, sizeof *thread);
    int failed = 0;

    assert_non_null(thread);
    for (int r = 0; r < plan->size; r++) {
        thread[r].me = (struct rank){ r, plan->size, plan->argument, hall->shared, hall };
        thread[r].run = plan->run;
        assert_int_equal(pthread_create(&thread[r].thread, NULL, thread_main, &thread[r]), 0);
    }
    for (int r = 0; r < plan->size; r++) {
        thread_end(&thread[r], deadline_ns);
        if (thread[r].why[0] == 0)
            continue;
        failed++;
        print_error("rank %d: %s\n", r, thread[r].why);
        if (now_ns() + GRACE_NS < deadline_ns)
            deadline_ns = now_ns() + GRACE_NS;
    }
    free(thread);
    hall_close(hall);
    if (failed)
        fail_msg("a rank failed");
}

void ranks_run(const struct ranks_plan *plan)
{
    const int64_t deadline_ns = now_ns() + (plan->deadline_s ? plan->deadline_s : 120) * INT64_C(1000000000);

    assert_in_range(plan->size, 1, RANKS_MOST);
    if (plan->threads)
        run_threads(plan, deadline_ns);
    else
        run_processes(plan, deadline_ns);
}

void ranks_fork(int size, void (*run)(struct rank *me), void *argument)
{
    const struct ranks_plan plan = { .size = size, .run = run, .argument = argument };

    ranks_run(&plan);
}

void ranks_threads(int size, void (*run)(struct rank *me), void *argument)
{
    const struct ranks_plan plan = { .size = size, .run = run, .argument = argument, .threads = true };

    ranks_run(&plan);
}
