/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of programs that hung, or were told nothing of use, when a rank died, left, came late or disagreed. Each test
 * is named by its report (docs/TESTING.md). */
#include "coll.h"
#include "self.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CULPRIT 1
#define COUNT   ((size_t)1 << 20)      /* of floats: 4 MiB */
#define BOUND   (5 * 2 * RINGRED_SECOND) /* what the kernel knows is told within 2 s; five times that here */

extern char **environ;

static uint64_t seed;

static const struct coll_setup layouts[] = {
    { 4, { "transport=shm" } },
    { 4, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

static void check_named(ringred_comm *comm, int32_t rc, int32_t status, int rank)
{
    ringred_error why;

    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(rc == status, "%d, not %d: %s", rc, status, why.text);
    rank_check_int(why.code, status);
    rank_check_msg(rank < 0 || why.rank == rank, "rank %d is to be named, not %d: %s", rank, why.rank, why.text);
}

static float *ones(size_t count)
{
    float *x = malloc(count * sizeof *x);

    rank_check(x != NULL);
    for (size_t i = 0; i < count; i++)
        x[i] = 1;
    return x;
}

/* ---- PR-12: how a link may end ---- */

enum end { KILLED, CLOSED, RESET, ENDS };

struct ending {
    struct coll_setup setup;
    enum end end;
};

/* All connections of this process are closed in order, or with a reset when it ends. */
static void spoil_connections(enum end end)
{
    const struct linger reset = { 1, 0 };
    DIR *d = opendir("/proc/self/fd");

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        int fd = atoi(e->d_name), domain = 0, listens = 0;
        socklen_t n = sizeof domain, m = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) || domain == AF_UNIX ||
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &m) || listens)
            continue;
        if (end == CLOSED)
            shutdown(fd, SHUT_RDWR);
        else
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    if (d)
        closedir(d);
}

static void end_in_the_middle(struct rank *me)
{
    const struct ending *c = me->argument;
    ringred_comm *comm = coll_open(me, &c->setup);
    float *x = ones(COUNT), *y = ones(COUNT), *z = ones(COUNT);
    ringred_request *one, *two;
    int32_t rc = 0;

    for (int i = 0; i < 3; i++)
        coll_must(comm, ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_AVG), "allreduce");
    ranks_meet(me); /* a failure ends what is in flight elsewhere, too */
    coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_AVG, &one), "start");
    if (me->rank == CULPRIT) {
        (void)ringred_test(one); /* some of it has gone out */
        if (c->end == KILLED)
            (void)kill(getpid(), SIGKILL);
        spoil_connections(c->end);
        if (c->end == RESET)
            _exit(0);
    }
    int64_t began = self_now_ns();
    rc = ringred_allreduce_start(comm, y, y, COUNT, RINGRED_FLOAT32, RINGRED_AVG, &two);
    int32_t first = ringred_wait(one, RINGRED_FOREVER), second = rc ? rc : ringred_wait(two, RINGRED_FOREVER);
    rank_check(first == 0 || first == RINGRED_EPEER); /* the last bytes may have been on their way */
    check_named(comm, second, RINGRED_EPEER, me->rank == CULPRIT ? -1 : c->end == CLOSED ? -1 : CULPRIT);
    rank_check(self_now_ns() - began < BOUND);
    for (int i = 0; i < 100; i++)
        rank_check_int(ringred_allreduce(comm, z, z, 1, RINGRED_FLOAT32, RINGRED_SUM), RINGRED_EPEER);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
    rank_check(self_now_ns() - began < BOUND);
    free(x);
    free(y);
    free(z);
}

static void test_PR_12_a_link_that_ends_in_any_way_ends_every_wait(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int end = KILLED; end < ENDS; end++) {
            struct ending c = { layouts[i], (enum end)end };
            if (i == 0 && end != KILLED)
                continue; /* shared memory has no connections */
            ranks_run(&(struct ranks_plan){ .size = 4, .run = end_in_the_middle, .argument = &c, .may_die = 1u << CULPRIT });
        }
}

/* ---- PR-15: half-open connections ---- */

static int line[2]; /* whoever reads it goes on until the survivors have ended */

/* A worker as loaders of data have it: it outlives its parent, and has inherited all that is inherited. */
static void have_a_worker(bool exec)
{
    char *const words[] = { (char[]){ "cat" }, NULL };
    posix_spawn_file_actions_t files;
    pid_t pid;
    char byte;

    if (exec) {
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, line[0], 0);
        posix_spawn_file_actions_addclose(&files, line[1]);
        rank_check(posix_spawnp(&pid, "cat", &files, NULL, words, environ) == 0);
        posix_spawn_file_actions_destroy(&files);
        return;
    }
    pid = fork();
    rank_check(pid >= 0);
    if (pid == 0) {
        close(line[1]);
        _exit(read(line[0], &byte, 1) != 0);
    }
}

struct worker {
    struct coll_setup setup;
    bool exec;
};

static void die_beside_a_worker(struct rank *me)
{
    const struct worker *w = me->argument;
    ringred_comm *comm = coll_open(me, &w->setup);
    float x = 1;

    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    ranks_meet(me);
    if (me->rank == CULPRIT) {
        have_a_worker(w->exec);
        (void)kill(getpid(), SIGKILL);
    }
    int64_t began = self_now_ns();
    int32_t rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);
    check_named(comm, rc, RINGRED_EPEER, CULPRIT);
    rank_check(self_now_ns() - began < BOUND);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
}

static void test_PR_15_a_child_that_lives_on_does_not_hide_a_death(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * LAYOUTS; i++) {
        struct worker w = { layouts[i / 2], i % 2 };
        assert_int_equal(pipe(line), 0);
        ranks_run(&(struct ranks_plan){ .size = 4, .run = die_beside_a_worker, .argument = &w, .may_die = 1u << CULPRIT });
        close(line[0]);
        close(line[1]); /* the worker ends now */
    }
}

/* ---- PR-16: killed at any moment ---- */

struct shot {
    struct coll_setup setup;
    int culprit;
    long after_us;
};

/* The kernel sends the signal; the rank does not know when. */
static void be_shot_in(long us)
{
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
    const struct itimerspec when = { .it_value = { 0, us * 1000 + 1 } };
    timer_t timer;

    rank_check(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0 && timer_settime(timer, 0, &when, NULL) == 0);
}

static void be_shot(struct rank *me)
{
    const struct shot *s = me->argument;
    int64_t began = self_now_ns();
    ringred_comm *comm = NULL;
    ringred_error why;
    int32_t rc = 0;

    float *x = ones(COUNT / 16);
    ringred_unique_id id;
    ringred_config wishes;
    memset(&id, 0, sizeof id);
    if (me->rank == 0)
        rank_check_int(ringred_unique_id_create(&id, &why), 0);
    ranks_pass(me, &id, sizeof id); /* from now on nobody needs the culprit */
    if (me->rank == s->culprit)
        be_shot_in(s->after_us);
    ringred_config_init(&wishes, sizeof wishes);
    wishes.id = &id;
    rc = coll_try(me, &s->setup, &wishes, &comm, &why);
    if (rc < 0) {
        /* one that died before anybody had heard of it is missed when the time is over */
        rank_check_msg(rc == RINGRED_EPEER || rc == RINGRED_ETIMEOUT, "making it: %d, %s", rc, why.text);
        rank_check_msg(why.rank == s->culprit || rc == RINGRED_ETIMEOUT, "names %d: %s", why.rank, why.text);
        free(x);
        return;
    }
    for (int i = 0; i < 40 && rc == 0; i++) {
        rc = ringred_allreduce(comm, x, x, i % 2 ? 10 : COUNT / 16, RINGRED_FLOAT32, RINGRED_AVG);
        rank_check_msg(rc < 0 || x[9] == 1, "call %d succeeded with %g", i, (double)x[9]);
    }
    if (rc < 0)
        check_named(comm, rc, RINGRED_EPEER, s->culprit);
    rc = ringred_comm_destroy(comm);
    rank_check_msg(rc == 0 || rc == RINGRED_EPEER, "destroy: %d", rc);
    rank_check(self_now_ns() - began < 2 * BOUND);
    free(x);
}

static void test_PR_16_killed_at_any_moment_all_name_the_same_rank(void **state)
{
    struct numbers_random random = { seed };

    (void)state;
    for (int i = 0; i < self_times(48, 500); i++) {
        struct shot s = { layouts[i % (int)LAYOUTS], 0, 0 };
        s.setup.ranks = 2 + (int)numbers_below(&random, 4);
        s.setup.setting[1] = "init_timeout=2";
        s.culprit = (int)numbers_below(&random, (uint64_t)s.setup.ranks);
        s.after_us = (long)numbers_below(&random, 30000);
        ranks_run(&(struct ranks_plan){ .size = s.setup.ranks, .run = be_shot, .argument = &s,
                                        .may_die = UINT64_C(1) << s.culprit });
    }
}

/* ---- PR-36: names that stay ---- */

static int names_of_ours(void)
{
    static const char *const folders[] = { "/dev/shm", "/tmp", "/var/tmp", "/dev/mqueue" };
    char text[512];
    int n = 0;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        DIR *d = opendir(folders[i]);
        for (struct dirent *e; d && (e = readdir(d)) != NULL;)
            n += i == 0 || i == 3 || strstr(e->d_name, "ringred") != NULL;
        if (d)
            closedir(d);
    }
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && fgets(text, sizeof text, f))
        n += strstr(text, "ringred") != NULL;
    if (f)
        fclose(f);
    f = fopen("/proc/sysvipc/shm", "re");
    while (f && fgets(text, sizeof text, f))
        n++;
    if (f)
        fclose(f);
    return n;
}

static void all_be_shot(struct rank *me)
{
    const struct shot *s = me->argument;
    float *x = ones(COUNT / 16);

    for (int round = 0;; round++) {
        ringred_comm *comm = coll_open(me, &s->setup);
        void *memory;
        if (round == 0) {
            ranks_meet(me);
            be_shot_in(s->after_us);
        }
        coll_must(comm, ringred_alloc(comm, 1 << 20, &memory), "ringred_alloc");
        while (ringred_allreduce(comm, x, x, COUNT / 16, RINGRED_FLOAT32, RINGRED_AVG) == 0)
            ;
        for (;;) /* a mate was first */
            pause();
    }
}

static void test_PR_36_ranks_that_are_killed_leave_no_names(void **state)
{
    struct numbers_random random = { seed };
    int before = names_of_ours();

    (void)state;
    for (int i = 0; i < self_times(30, 200); i++) {
        struct shot s = { layouts[i % (int)LAYOUTS], 0, (long)numbers_below(&random, 4000) };
        ranks_run(&(struct ranks_plan){ .size = 4, .run = all_be_shot, .argument = &s, .may_die = 15 });
    }
    for (int look = 0; look < 1000 && names_of_ours() > before; look++) /* those of other jobs on this machine go */
        (void)poll(NULL, 0, 20);
    assert_true(names_of_ours() <= before);
}

/* ---- PR-17: who leaves at once ---- */

#define EAGER 2048 /* of uint32: 8 KiB; four of them find room in sockets, and in rings */
#define EAGER_MESSAGES 4

/* Returns when the process has ended, whether or not it has been collected. */
static void await_end(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        return; /* it has been collected already */
    (void)poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, -1); /* if it fails, the test has only less to say */
    close(fd);
}

static void send_and_leave(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static uint32_t message[EAGER];
    pid_t pid = getpid();

    ranks_pass(me, &pid, sizeof pid);
    for (uint32_t k = 0; k < EAGER_MESSAGES && me->rank == 0; k++) {
        for (uint32_t i = 0; i < EAGER; i++)
            message[i] = i * 3 + k;
        coll_must(comm, ringred_send(comm, message, EAGER, RINGRED_UINT32, 1, 7), "send");
    }
    if (me->rank == 0) {
        rank_check_int(ringred_comm_destroy(comm), 0);
        _exit(0);
    }
    await_end(pid);
    for (uint32_t k = 0; k < EAGER_MESSAGES && me->rank == 1; k++) {
        coll_must(comm, ringred_recv(comm, message, EAGER, RINGRED_UINT32, 0, 7, NULL), "receive from one that has left");
        for (uint32_t i = 0; i < EAGER; i++)
            rank_check(message[i] == i * 3 + k);
    }
    coll_close(comm);
}

/* The last operation ends well everywhere, though its fastest rank has left. */
static void leave_first(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float *x = ones(COUNT);
    pid_t pid = getpid();

    ranks_pass(me, &pid, sizeof pid);
    if (me->rank != 0) { /* the others have not even begun when it has done its part */
        ringred_request *request;
        coll_must(comm, ringred_broadcast_start(comm, x, x, COUNT / 64, RINGRED_FLOAT32, 0, &request), "start");
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "broadcast of one that leaves");
    } else {
        x[COUNT / 64 - 1] = 5;
        coll_must(comm, ringred_broadcast(comm, x, x, COUNT / 64, RINGRED_FLOAT32, 0), "broadcast");
    }
    rank_check(x[COUNT / 64 - 1] == 5);
    coll_must(comm, ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_AVG), "the last operation");
    rank_check(x[COUNT / 64 - 1] == 5 && x[COUNT - 1] == 1);
    if (me->rank == 0) {
        rank_check_int(ringred_comm_destroy(comm), 0);
        _exit(0);
    }
    rank_check_int(ringred_comm_destroy(comm), 0);
    free(x);
}

static void test_PR_17_what_was_sent_arrives_though_its_sender_has_left(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, send_and_leave, 30);
    for (int i = 0; i < 5; i++)
        coll_each(layouts, LAYOUTS, leave_first, 30);
}

/* ---- PR-20: other calls on other ranks ---- */

enum wrong { ORDER, SAME_BYTES, ROOT, OPERATOR, WRONGS };

struct quarrel {
    struct coll_setup setup;
    enum wrong wrong;
};

static int32_t other_call(ringred_comm *comm, enum wrong wrong, bool odd, void *x)
{
    switch (wrong) {
    case ORDER:
        return odd ? ringred_allreduce(comm, x, x, 100, RINGRED_FLOAT32, RINGRED_SUM)
                   : ringred_broadcast(comm, x, x, 100, RINGRED_FLOAT32, 0);
    case SAME_BYTES:
        return odd ? ringred_allreduce(comm, x, x, 50, RINGRED_FLOAT64, RINGRED_SUM)
                   : ringred_allreduce(comm, x, x, 100, RINGRED_FLOAT32, RINGRED_SUM);
    case ROOT:
        return ringred_reduce(comm, x, x, 100, RINGRED_FLOAT32, RINGRED_SUM, odd ? 1 : 0);
    default:
        return ringred_allreduce(comm, x, x, 100, RINGRED_FLOAT32, odd ? RINGRED_MAX : RINGRED_SUM);
    }
}

static void quarrel(struct rank *me)
{
    static const char *const words[WRONGS][2] = { { "broadcast", "allreduce" }, { "50 float64", "100 float32" },
                                                  { "root 0", "root 1" }, { "sum", "max" } };
    const struct quarrel *q = me->argument;
    ringred_comm *comm = coll_open(me, &q->setup);
    double x[100] = { 0 };
    ringred_error why;

    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me);
    int32_t rc = other_call(comm, q->wrong, me->rank % 2, x);
    for (int i = 0; i < 3 && rc == 0; i++) /* "in this call or the next" */
        rc = i ? ringred_barrier(comm) : other_call(comm, q->wrong, me->rank % 2 == 0, x);
    check_named(comm, rc, RINGRED_EMISMATCH, -1);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    for (int i = 0; i < 2; i++)
        rank_check_msg(strstr(why.text, words[q->wrong][i]) != NULL, "no word of \"%s\": %s", words[q->wrong][i], why.text);
    rank_check_msg(strstr(strstr(why.text, "rank") ? strstr(why.text, "rank") + 1 : "", "rank"), "names no two ranks: %s", why.text);
    rank_check_int(ringred_barrier(comm), RINGRED_EMISMATCH);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EMISMATCH);
}

static void test_PR_20_ranks_that_make_other_calls_are_told_both(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int wrong = 0; wrong < WRONGS; wrong++) {
            struct quarrel q = { layouts[i], (enum wrong)wrong };
            ranks_fork(4, quarrel, &q);
        }
}

/* ---- PR-21: who is late ---- */

struct late {
    struct coll_setup setup;
    unsigned who;
};

/* Those that are late come when the others have been told; they are told the same. */
static void come_late(struct rank *me)
{
    const struct late *l = me->argument;
    ringred_comm *comm = coll_open(me, &l->setup);
    char *first = (char *)me->shared + 64 * me->rank; /* the rank that each one names */
    bool late = l->who >> me->rank & 1;
    ringred_error why;

    coll_must(comm, ringred_barrier(comm), "barrier");
    if (late)
        ranks_meet(me);
    int32_t rc = ringred_barrier(comm);
    if (late && rc == 0) /* all others had come to that one */
        rc = ringred_barrier(comm);
    check_named(comm, rc, RINGRED_ETIMEOUT, -1);
    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(why.rank >= 0 && (l->who >> why.rank & 1), "names rank %d, which was there: %s", why.rank, why.text);
    *first = (char)why.rank;
    if (!late)
        ranks_meet(me);
    ranks_meet(me);
    rank_check_msg(*first == *(char *)me->shared, "rank 0 was told of rank %d, and this one of %d: %s", *(char *)me->shared, *first,
                   why.text);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_ETIMEOUT);
}

static void test_PR_21_all_blame_the_same_late_rank_be_it_the_root(void **state)
{
    static const unsigned who[] = { 1, 8, 6 };

    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < 3; k++) {
            struct late l = { layouts[i], who[k] };
            l.setup.setting[1] = "timeout=0.3";
            ranks_fork(4, come_late, &l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_12_a_link_that_ends_in_any_way_ends_every_wait),
        cmocka_unit_test(test_PR_15_a_child_that_lives_on_does_not_hide_a_death),
        cmocka_unit_test(test_PR_16_killed_at_any_moment_all_name_the_same_rank),
        cmocka_unit_test(test_PR_17_what_was_sent_arrives_though_its_sender_has_left),
        cmocka_unit_test(test_PR_20_ranks_that_make_other_calls_are_told_both),
        cmocka_unit_test(test_PR_21_all_blame_the_same_late_rank_be_it_the_root),
        cmocka_unit_test(test_PR_36_ranks_that_are_killed_leave_no_names),
    };

    seed = numbers_seed("test_hangs");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
