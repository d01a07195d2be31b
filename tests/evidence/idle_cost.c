/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: an idle communicator costs nothing: four ranks that do nothing for 10 s use at most 1 ms of CPU and 5 context
 * switches each, with and without a progress thread; and so do those that are left when one of them has been killed.
 *     idle_cost             all layouts
 *     idle_cost --sample    2 s each, and five times as wide for their length */
#include "job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS   4
#define CULPRIT 3
#define CPU_NS  1000000 /* in 10 s */
#define SWITCHES 5

struct cost {
    int64_t cpu_ns;
    long switches; /* the one of the nap that it all happens in included */
};

struct notes {
    struct cost healthy[RANKS], broken[RANKS];
    int seconds;
};

static struct notes *notes_of(struct job *job)
{
    return (struct notes *)(void *)job->shared->notes;
}

static struct cost used(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (struct cost){ ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * RINGRED_SECOND +
                              ((int64_t)u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000,
                          u.ru_nvcsw + u.ru_nivcsw };
}

static struct cost be_idle(int seconds)
{
    struct timespec nap = { seconds, 0 };
    struct cost before = used();

    nanosleep(&nap, NULL);
    struct cost after = used();
    return (struct cost){ after.cpu_ns - before.cpu_ns, after.switches - before.switches };
}

static void live(struct job *job, ringred_comm *comm, int rank)
{
    struct notes *n = notes_of(job);
    static float x[100000];

    for (int i = 0; i < 20; i++)
        if (ringred_allreduce(comm, x, x, i % 2 ? 100000 : 1, RINGRED_FLOAT32, RINGRED_SUM) < 0)
            job_fail(rank, "allreduce fails");
    job_meet(job, RANKS);
    job_nap_ms(50); /* a progress thread spins for a moment after the last operation */
    n->healthy[rank] = be_idle(n->seconds);
    job_meet(job, RANKS);
    if (rank == CULPRIT)
        (void)kill(getpid(), SIGKILL);
    if (ringred_barrier(comm) != RINGRED_EPEER)
        job_fail(rank, "the killed rank is not missed");
    job_nap_ms(50);
    n->broken[rank] = be_idle(n->seconds);
    (void)ringred_comm_destroy(comm); /* broken */
}

struct layout {
    char name[64];
    const char *settings[3];
    struct job job;
};

static void begin(struct layout *l, int seconds)
{
    snprintf(l->name, sizeof l->name, "%s %s", l->settings[0], l->settings[1]);
    job_open(&l->job, RANKS, "auto");
    for (int i = 0; l->settings[i]; i++)
        l->job.settings[i] = l->settings[i];
    notes_of(&l->job)->seconds = seconds;
    job_start(&l->job, live);
}

static bool end(struct layout *l, int seconds, int wide)
{
    struct cost worst[2] = { { 0, 0 }, { 0, 0 } };
    bool fine = job_end(&l->job, CULPRIT);

    for (int r = 0; r < RANKS; r++)
        for (int after = 0; after < 2 && !(after && r == CULPRIT); after++) {
            const struct cost *c = after ? &notes_of(&l->job)->broken[r] : &notes_of(&l->job)->healthy[r];
            worst[after].cpu_ns = c->cpu_ns > worst[after].cpu_ns ? c->cpu_ns : worst[after].cpu_ns;
            worst[after].switches = c->switches > worst[after].switches ? c->switches : worst[after].switches;
        }
    job_done(&l->job);
    int64_t cpu = (int64_t)CPU_NS * seconds / 10 * wide;
    long switches = (SWITCHES * seconds + 9) / 10 * wide;
    for (int after = 0; after < 2; after++)
        fine = fine && worst[after].cpu_ns <= cpu && worst[after].switches <= switches;
    printf("%-34s idle: %.3f ms, %ld switches; after a death: %.3f ms, %ld switches%s\n", l->name, (double)worst[0].cpu_ns / 1e6,
           worst[0].switches, (double)worst[1].cpu_ns / 1e6, worst[1].switches, fine ? "" : "   TOO MUCH");
    return fine;
}

/* All at once: what is idle is in nobody's way. */
int main(int argc, char **argv)
{
    static struct layout layouts[] = {
        { .settings = { "transport=shm", "progress=caller" } },    { .settings = { "transport=shm", "progress=thread" } },
        { .settings = { "transport=tcp", "progress=caller" } },    { .settings = { "transport=tcp", "progress=thread" } },
        { .settings = { "ranks_per_host=2", "progress=caller" } }, { .settings = { "ranks_per_host=2", "progress=thread" } },
    };
    bool sample = argc > 1 && strcmp(argv[1], "--sample") == 0, fine = true;
    int seconds = sample ? 2 : 10;

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        begin(&layouts[i], seconds);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        fine = end(&layouts[i], seconds, sample ? 5 : 1) && fine;
    printf("%s: an idle communicator of %d ranks uses no CPU, for %d s%s\n", fine ? "holds" : "FAILS", RANKS, seconds,
           sample ? ", with five times the bounds" : "");
    return !fine;
}
