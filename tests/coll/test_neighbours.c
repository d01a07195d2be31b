/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator costs the rest of the machine: nothing while it is idle, since nothing is there that
 * could run, no thread and no timer (PR-47, horovod/horovod#2804: a helper thread and changed pinning cut
 * training to a third), and a share near
 * its due where ranks outnumber CPUs (PR-48, open-mpi/ompi#10426: ranks that spin while they wait). */
#include "coll.h"
#include "self.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 1000

/* Timers of this process, and descriptors of timers. */
static int timers(void)
{
    char path[300], to[64];
    DIR *d = opendir("/proc/self/fd");
    FILE *f = fopen("/proc/self/timers", "r");
    int n = f && fgetc(f) != EOF;

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t k = readlink(path, to, sizeof to - 1);
        to[k > 0 ? k : 0] = 0;
        n += strstr(to, "timerfd") != NULL;
    }
    if (d)
        closedir(d);
    if (f)
        fclose(f);
    return n;
}

static void idle(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    float x[64] = { 0 };
    cpu_set_t before, after;
    int alone = self_look().threads;

    rank_check(sched_getaffinity(0, sizeof before, &before) == 0);
    ringred_comm *comm = coll_open(me, setup);
    coll_must(comm, ringred_allreduce(comm, x, x, 64, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    rank_check(sched_getaffinity(0, sizeof after, &after) == 0);
    rank_check_msg(CPU_EQUAL(&before, &after), "the affinity mask has changed");
    rank_check_int(self_look().threads, alone);
    rank_check_int(timers(), 0);
    coll_close(comm);
}

static void test_pr_47_an_idle_communicator_costs_nothing(void **state)
{
    static struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 2, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        ranks_fork(2, idle, &setups[i]);
}

/* Sixteen ranks on two CPUs: a rank that spins while it waits would hold up those that it waits for, for
 * milliseconds at a time, and the thousand rounds would take minutes. */
static void crowd(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    float x[1024] = { 0 };
    cpu_set_t all, two;
    int cpus = 0;

    rank_check(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&two);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && cpus < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &two);
            cpus++;
        }
    rank_check(sched_setaffinity(0, sizeof two, &two) == 0);
    ringred_comm *comm = coll_open(me, setup);
    for (int i = 0; i < ROUNDS; i++) {
        coll_must(comm, ringred_barrier(comm), "barrier");
        coll_must(comm, ringred_allreduce(comm, x, x, 1024, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    }
    coll_close(comm);
}

static void test_pr_48_ranks_that_outnumber_cpus_give_way(void **state)
{
    static struct coll_setup setups[] = { { 16, { "transport=shm" } }, { 16, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        struct ranks_plan plan = { .size = 16, .run = crowd, .argument = &setups[i], .deadline_s = 60 };
        ranks_run(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pr_47_an_idle_communicator_costs_nothing),
        cmocka_unit_test(test_pr_48_ranks_that_outnumber_cpus_give_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
