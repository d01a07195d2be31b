/* SPDX-License-Identifier: Apache-2.0 */
/* progress=thread: what was started moves while the caller is elsewhere; one thread for the process, which no signal
 * ever meets, which sleeps when there is nothing to do, and which is there only where it was asked for. */
#include "coll.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT ((size_t)1 << 18)

static const struct coll_setup setups[] = {
    { 2, { "progress=thread", "transport=shm" } }, { 3, { "progress=thread", "transport=tcp" } },
    { 4, { "progress=thread", "ranks_per_host=2" } },
};
enum { SETUPS = sizeof setups / sizeof setups[0] };

static void each_setup(void (*run)(struct rank *me))
{
    for (int i = 0; i < SETUPS; i++) {
        ranks_fork(setups[i].ranks, run, (void *)(uintptr_t)&setups[i]);
        ranks_threads(setups[i].ranks, run, (void *)(uintptr_t)&setups[i]);
    }
}

static void each_setup_forked(void (*run)(struct rank *me))
{
    for (int i = 0; i < SETUPS; i++)
        ranks_fork(setups[i].ranks, run, (void *)(uintptr_t)&setups[i]);
}

/* ---- what is known of this process's threads ---- */

/* How many threads there are; of those called `name`, the number of one. */
static int count_threads(const char *name, int *named, long *one)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    rank_check(d != NULL);
    *named = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], text[64] = "";
        if (e->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f && fgets(text, sizeof text, f))
            text[strcspn(text, "\n")] = 0;
        if (f)
            fclose(f);
        if (strcmp(text, name) == 0) {
            ++*named;
            *one = atol(e->d_name);
        }
    }
    closedir(d);
    return n;
}

/* A line of a thread's status, behind the colon. */
static void status_of(long thread, const char *what, char *value, size_t room)
{
    char path[64], line[256];

    snprintf(path, sizeof path, "/proc/self/task/%ld/status", thread);
    FILE *f = fopen(path, "r");
    rank_check(f != NULL);
    *value = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, what, strlen(what)) == 0)
            snprintf(value, room, "%s", line + strlen(what) + 1);
    fclose(f);
    rank_check(*value != 0);
}

static long mover(void)
{
    int named;
    long thread = 0;

    (void)count_threads("ringred", &named, &thread);
    rank_check_int(named, 1);
    return thread;
}

/* ---- moving ---- */

static float *ones(void)
{
    float *x = malloc(COUNT * sizeof *x);

    rank_check(x != NULL);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = 1;
    return x;
}

static void check_sum(float *x, int ranks)
{
    for (size_t i = 0; i < COUNT; i++)
        rank_check(x[i] == (float)ranks);
    free(x);
}

/* The last rank only starts its operation; the others' end all the same. */
static void stay_away(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;
    float *x = ones();
    bool away = me->rank + 1 == me->size;

    if (away)
        coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    else
        coll_must(comm, ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    ranks_meet(me);
    if (away)
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    check_sum(x, me->size);
    coll_close(comm);
}

static void test_what_was_started_ends_while_its_caller_is_away(void **state)
{
    (void)state;
    each_setup(stay_away);
}

/* Only this rank has the thread. */
static void differ(struct rank *me)
{
    struct coll_setup setup = *(const struct coll_setup *)me->argument;

    if (me->rank + 1 < me->size)
        setup.setting[0] = "progress=caller";
    me->argument = &setup;
    stay_away(me);
}

static void test_one_rank_alone_may_have_it(void **state)
{
    (void)state;
    each_setup_forked(differ);
}

/* Blocking calls beside what the thread is at, several in flight, on several communicators. */
static void mix(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    ringred_request *request[8], *other[8];
    float *x[8], y[8], z = 1;

    coll_must(comm, ringred_comm_split(comm, 0, -me->rank, &part), "split");
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++) {
            x[i] = ones();
            y[i] = 2;
            coll_must(comm, ringred_allreduce_start(comm, x[i], x[i], COUNT, RINGRED_FLOAT32, RINGRED_SUM,
                                                    &request[i]), "start");
            coll_must(part, ringred_allreduce_start(part, &y[i], &y[i], 1, RINGRED_FLOAT32, RINGRED_SUM, &other[i]),
                      "start");
            if (i % 3 == 0)
                coll_must(part, ringred_allreduce(part, &z, &z, 1, RINGRED_FLOAT32, RINGRED_MAX), "allreduce");
            if (i == 5)
                coll_must(comm, ringred_barrier(comm), "barrier");
        }
        for (int i = 7; i >= 0; i--) {
            int32_t rc = RINGRED_PENDING;
            while (i & 1 && (rc = ringred_test(request[i])) == RINGRED_PENDING)
                sched_yield();
            coll_must(comm, i & 1 ? rc : ringred_wait(request[i], RINGRED_FOREVER), "wait");
            coll_must(part, ringred_wait(other[i], RINGRED_FOREVER), "wait");
            check_sum(x[i], me->size);
            rank_check(y[i] == (float)(2 * me->size));
        }
    }
    coll_close(me->rank & 1 ? comm : part);
    coll_close(me->rank & 1 ? part : comm);
}

static void test_callers_and_the_thread_take_turns(void **state)
{
    (void)state;
    each_setup(mix);
}

/* ---- the thread ---- */

static void count(struct rank *me)
{
    ringred_comm *comm[3], *part;
    int named;
    long one;
    int before = count_threads("ringred", &named, &one);

    rank_check_int(named, 0);
    for (int i = 0; i < 3; i++)
        comm[i] = coll_open(me, me->argument);
    coll_must(comm[1], ringred_comm_split(comm[1], me->rank & 1, 0, &part), "split");
    coll_must(part, ringred_barrier(part), "barrier");
    rank_check_int(count_threads("ringred", &named, &one), before + 1);
    rank_check_int(named, 1);
    coll_close(comm[1]);
    coll_close(comm[0]);
    coll_must(part, ringred_barrier(part), "barrier");
    rank_check_int(count_threads("ringred", &named, &one), before + 1);
    coll_close(comm[2]);
    coll_close(part);
    rank_check_int(count_threads("ringred", &named, &one), before);
    comm[0] = coll_open(me, me->argument); /* and again */
    coll_must(comm[0], ringred_barrier(comm[0]), "barrier");
    rank_check_int(count_threads("ringred", &named, &one), before + 1);
    coll_close(comm[0]);
}

static void test_there_is_one_for_the_whole_process(void **state)
{
    (void)state;
    each_setup_forked(count);
}

static void count_none(struct rank *me)
{
    const struct coll_setup setup = { me->size, { "progress=caller" } };
    int named;
    long one;
    int before = count_threads("ringred", &named, &one);
    ringred_comm *comm = coll_open(me, &setup);

    coll_must(comm, ringred_barrier(comm), "barrier");
    rank_check_int(count_threads("ringred", &named, &one), before);
    coll_close(comm);
}

static void test_there_is_none_where_callers_do_it(void **state)
{
    (void)state;
    ranks_fork(2, count_none, NULL);
}

static void look_at_signals(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    char text[64];

    status_of(mover(), "SigBlk", text, sizeof text);
    unsigned long long blocked = strtoull(text, NULL, 16);
    for (int s = 1; s <= 31; s++)
        rank_check_msg(blocked >> (s - 1) & 1 || s == 9 || s == 19, "signal %d is not blocked", s);
    coll_close(comm);
}

static void test_no_signal_is_delivered_to_it(void **state)
{
    (void)state;
    each_setup_forked(look_at_signals);
}

static int64_t cpu_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* How often the thread has gone to sleep, once it sleeps. */
static long sleeps(long thread)
{
    char text[64];

    do {
        sched_yield();
        status_of(thread, "State", text, sizeof text);
    } while (!strchr(text, 'S'));
    status_of(thread, "voluntary_ctxt_switches", text, sizeof text);
    return atol(text);
}

static void be_idle(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;

    coll_must(comm, ringred_barrier_start(comm, &request), "start");
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    ranks_meet(me);
    long thread = mover(), before = sleeps(thread);
    int64_t since = cpu_ns(CLOCK_THREAD_CPUTIME_ID), all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    while (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - since < 100000000)
        ; /* this one computes */
    all = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - all - (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - since);
    long after = sleeps(thread);
    rank_check_msg(after == before, "it has woken %ld times in vain", after - before);
    rank_check_msg(all < 25000000, "it took %lld ns of the CPU", (long long)all);
    ranks_meet(me);
    coll_close(comm);
}

static void test_it_sleeps_while_nothing_is_to_be_done(void **state)
{
    (void)state;
    each_setup_forked(be_idle);
}

/* ---- ends ---- */

static void fork_once(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;
    float *x = ones();
    int status;

    coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        const char *const settings[] = { "progress=thread", NULL };
        int named;
        long one;
        rank_check_int(count_threads("ringred", &named, &one), 1);
        rank_check_int(ringred_wait(request, 0), RINGRED_EFORKED);
        rank_check_int(ringred_barrier(comm), RINGRED_EFORKED);
        rank_check_int(ringred_comm_destroy(comm), RINGRED_EFORKED);
#if !defined(__SANITIZE_THREAD__) /* which allows no threads in forks */
        ringred_config config;
        ringred_config_init(&config, sizeof config);
        config.rank = 0;
        config.size = 1;
        config.settings = settings;
        rank_check_int(ringred_comm_create(&config, &comm, NULL), 0);
        rank_check_int(count_threads("ringred", &named, &one), 2);
        rank_check_int(ringred_barrier_start(comm, &request), 0);
        rank_check_int(ringred_wait(request, RINGRED_FOREVER), 0);
        rank_check_int(ringred_comm_destroy(comm), 0);
#endif
        (void)settings;
        _exit(0);
    }
    rank_check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    check_sum(x, me->size);
    coll_close(comm);
}

static void test_a_fork_has_none_and_may_start_its_own(void **state)
{
    (void)state;
    each_setup_forked(fork_once);
}

static void leave(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    static ringred_request *request; /* leak checkers see it there */
    static float x = 1;

    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    if (me->rank == 0) /* for which nobody will come */
        coll_must(comm, ringred_allreduce_start(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    _exit(0);
}

static void test_exit_without_destroy_is_fine(void **state)
{
    (void)state;
    each_setup_forked(leave);
}

static void destroy_early(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;
    float *x = ones();

    if (me->rank == 0)
        coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* in the middle of it */
    memset(x, 0xff, COUNT * sizeof *x); /* nobody works on it any more */
    free(x);
}

static void test_destroy_ends_what_is_in_flight(void **state)
{
    (void)state;
    each_setup(destroy_early);
}

static void break_it(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    ringred_request *request;
    float *x = ones();

    if (me->rank + 1 < me->size) {
        coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
        ranks_meet(me);
        rank_check_int(ringred_wait(request, RINGRED_FOREVER), RINGRED_EABORTED);
    } else {
        ranks_meet(me);
        rank_check_int(ringred_comm_abort(comm), 0);
    }
    free(x);
    ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* it is broken */
}

static void test_an_abort_reaches_those_who_are_away(void **state)
{
    (void)state;
    each_setup(break_it);
}

/* ---- its CPUs ---- */

static int32_t try_cpus(const char *cpus, int *allowed)
{
    const char *const settings[] = { "progress=thread", cpus, NULL };
    ringred_config config;
    ringred_comm *comm;
    int named;
    long one;
    cpu_set_t set;

    ringred_config_init(&config, sizeof config);
    config.rank = 0;
    config.size = 1;
    config.settings = settings;
    int32_t rc = ringred_comm_create(&config, &comm, NULL);
    if (rc < 0)
        return rc;
    (void)count_threads("ringred", &named, &one);
    if (sched_getaffinity((pid_t)one, sizeof set, &set) == 0)
        *allowed = CPU_COUNT(&set);
    return ringred_comm_destroy(comm);
}

static void test_it_stays_on_the_cpus_that_it_is_given(void **state)
{
    static const char *const wrong[] = { "progress_cpus=x", "progress_cpus=0-", "progress_cpus=3-1", "progress_cpus=0,",
                                         "progress_cpus=-1", "progress_cpus=0 1", "progress_cpus=99999999999999999999" };
    char text[32];
    int allowed = 0, mine = 0;
    cpu_set_t set;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    while (!CPU_ISSET(mine, &set))
        mine++;
    snprintf(text, sizeof text, "progress_cpus=%d", mine);
    assert_int_equal(try_cpus(text, &allowed), 0);
    assert_int_equal(allowed, 1);
    assert_int_equal(try_cpus("progress_cpus=", &allowed), 0);
    assert_int_equal(allowed, CPU_COUNT(&set));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(try_cpus(wrong[i], &allowed), RINGRED_ESETTING);
    if (!CPU_ISSET(CPU_SETSIZE - 1, &set))
        assert_int_equal(try_cpus("progress_cpus=1023", &allowed), RINGRED_ESETTING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_started_ends_while_its_caller_is_away),
        cmocka_unit_test(test_one_rank_alone_may_have_it),
        cmocka_unit_test(test_callers_and_the_thread_take_turns),
        cmocka_unit_test(test_there_is_one_for_the_whole_process),
        cmocka_unit_test(test_there_is_none_where_callers_do_it),
        cmocka_unit_test(test_no_signal_is_delivered_to_it),
        cmocka_unit_test(test_it_sleeps_while_nothing_is_to_be_done),
        cmocka_unit_test(test_a_fork_has_none_and_may_start_its_own),
        cmocka_unit_test(test_exit_without_destroy_is_fine),
        cmocka_unit_test(test_destroy_ends_what_is_in_flight),
        cmocka_unit_test(test_an_abort_reaches_those_who_are_away),
        cmocka_unit_test(test_it_stays_on_the_cpus_that_it_is_given),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
