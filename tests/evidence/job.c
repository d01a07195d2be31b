/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS (120 * RINGRED_SECOND)

static int64_t patience_end(const struct job *job)
{
    return job_now_ns() + (job->patience_ns ? job->patience_ns : PATIENCE_NS);
}

static struct job *mine; /* the job that this process is a rank of */

int64_t job_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * RINGRED_SECOND + t.tv_nsec;
}

void job_nap_ms(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&t, NULL);
}

int job_entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static bool owns_socket(pid_t pid, unsigned long inode)
{
    char path[64], link[64], want[64];
    DIR *d;
    struct dirent *e;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof want, "socket:[%lu]", inode);
    d = opendir(path);
    while (d && !found && (e = readdir(d))) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof link - 1);

        if (n < 0)
            continue;
        link[n] = '\0';
        found = !strcmp(link, want);
    }
    if (d)
        closedir(d);
    return found;
}

int job_ports(pid_t pid, int *port, int room)
{
    static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };
    int found = 0;

    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(tables[i], "re");
        char line[512];
        unsigned at, state;
        unsigned long inode;

        while (f && found < room && fgets(line, sizeof line, f))
            if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu",
                       &at, &state, &inode) == 3 &&
                state == 10 && owns_socket(pid, inode))
                port[found++] = (int)at;
        if (f)
            fclose(f);
    }
    return found;
}

int job_names(pid_t pid, char (*name)[JOB_NAME], int room)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512], path[JOB_NAME + 1];
    unsigned long inode;
    unsigned flags;
    int found = 0;

    while (f && found < room && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %*x %*x %x %*x %*x %lu @%64s", &flags, &inode, path) == 3 && flags & 0x10000 &&
            strlen(path) < JOB_NAME && owns_socket(pid, inode))
            strcpy(name[found++], path);
    if (f)
        fclose(f);
    return found;
}

void job_open(struct job *job, int size, const char *transport)
{
    static char setting[64];

    *job = (struct job){ .size = size };
    snprintf(setting, sizeof setting, "transport=%s", transport);
    job->settings[0] = setting;
    job->shared =
        mmap(NULL, sizeof *job->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job->shared == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
}

void job_fail(int rank, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(mine->shared->said[rank], sizeof mine->shared->said[rank], format, arguments);
    va_end(arguments);
    atomic_fetch_add(&mine->shared->failed, 1);
    _exit(1);
}

void job_meet(struct job *job, int of)
{
    int seen = atomic_fetch_add(&job->shared->meetings, 1) + 1;
    int want = (seen + of - 1) / of * of;
    int64_t end = patience_end(job);

    while (atomic_load(&job->shared->meetings) < want && job_now_ns() < end)
        job_nap_ms(1);
}

ringred_comm *job_join(struct job *job, int which, int rank, int size, const char *const *settings)
{
    struct job_shared *s = job->shared;
    ringred_config config;
    ringred_error why;
    ringred_comm *comm;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    if (rank == 0) {
        if (ringred_unique_id_create(&s->id[which], &why) < 0)
            job_fail(rank, "%s", why.text);
        atomic_store(&s->id_is_there[which], 1);
    }
    while (!atomic_load(&s->id_is_there[which]))
        job_nap_ms(1);
    config.rank = rank;
    config.size = size;
    config.id = &s->id[which];
    config.settings = settings;
    config.timeout_ns = job->init_timeout_ns;
    if (ringred_comm_create(&config, &comm, &why) < 0)
        job_fail(rank, "%s", why.text);
    return comm;
}

/* Each rank gets a CPU of its own where there are enough, as launchers do. */
static void pin(int rank, int size)
{
    cpu_set_t allowed, one;
    int seen = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < size)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one); /* a wish: things only take longer */
        }
}

void job_start_rank(struct job *job, int rank, job_body body)
{
    ringred_comm *comm;

    job->pid[rank] = fork();
    if (job->pid[rank] != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    mine = job;
    pin(rank, job->size);
    comm = job_join(job, 0, rank, job->size, job->settings);
    body(job, comm, rank);
    _exit(0);
}

void job_start(struct job *job, job_body body)
{
    for (int r = 0; r < job->size; r++)
        job_start_rank(job, r, body);
}

void job_start_bare(struct job *job, void (*body)(struct job *job, int rank))
{
    for (int r = 0; r < job->size; r++) {
        job->pid[r] = fork();
        if (job->pid[r] != 0)
            continue;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        mine = job;
        pin(r, job->size);
        body(job, r);
        _exit(0);
    }
}

bool job_wait(struct job *job, int lost)
{
    bool fine = job_end(job, lost);

    job_done(job);
    return fine;
}

void job_done(struct job *job)
{
    munmap(job->shared, sizeof *job->shared);
}

bool job_end(struct job *job, int lost)
{
    int64_t end = patience_end(job);
    bool fine = true;

    for (int r = 0; r < job->size; r++) {
        int status = 0;
        pid_t pid;

        while ((pid = waitpid(job->pid[r], &status, WNOHANG)) == 0 && job_now_ns() < end)
            job_nap_ms(1);
        if (pid == 0) {
            fprintf(stderr, "rank %d hangs\n", r);
            kill(job->pid[r], SIGKILL);
            waitpid(job->pid[r], &status, 0);
            fine = false;
        } else if (r != lost && status != 0) {
            const char *said = job->shared->said[r];

            fprintf(stderr, "rank %d: %s\n", r, *said ? said : "ended without a word");
            fine = false;
        }
    }
    return fine;
}
