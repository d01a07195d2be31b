/* SPDX-License-Identifier: Apache-2.0 */
#include "failure.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP_BYTES "100663296" /* of memory: 96 MiB */
#define BITE        ((size_t)1 << 20)

static char group[512]; /* folder of the culprit's memory cgroup */

/* ---- the memory cgroup, a child of our own ---- */

static bool write_to(const char *name, const char *text)
{
    char path[600];
    int fd;
    bool fine;

    snprintf(path, sizeof path, "%s/%s", group, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    fine = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return fine;
}

static bool group_in(const char *root, const char *line)
{
    snprintf(group, sizeof group, "%s%.300s/ringred-%d", root, line, (int)getpid());
    if (mkdir(group, 0700))
        return false;
    if (write_to("memory.limit_in_bytes", GROUP_BYTES) || write_to("memory.max", GROUP_BYTES))
        return true;
    rmdir(group);
    return false;
}

static bool group_make(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[400];
    bool made = false;

    while (f && !made && fgets(line, sizeof line, f)) {
        const char *v1 = strstr(line, ":memory:"), *v2 = strncmp(line, "0::", 3) == 0 ? line + 3 : NULL;

        line[strcspn(line, "\n")] = 0;
        if (v1)
            made = group_in("/sys/fs/cgroup/memory", v1 + 8);
        else if (v2)
            made = group_in("/sys/fs/cgroup", v2);
    }
    if (f)
        fclose(f);
    if (!made)
        *group = 0;
    return made;
}

static bool group_works(void)
{
    static int works = -1;

    if (works < 0) {
        works = group_make();
        if (works)
            rmdir(group);
    }
    return works;
}

static void eat(void)
{
    for (;;) {
        char *p = malloc(BITE);

        if (p)
            for (size_t i = 0; i < BITE; i += 4096)
                ((volatile char *)p)[i] = 1;
    }
}

/* ---- the wires ---- */

/* Runs a tool on a host; its words are of no interest. */
static bool tool(int host, const char *const *words)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || failure_enter(host))
            _exit(126);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* What comes to the host from the other is lost. */
static bool deafen(int host)
{
    return tool(host, (const char *const[]){ "iptables", "-A", "INPUT", "-i", "eth0", "-j", "DROP", NULL });
}

/* The kernel ends every connection of the host with a reset. */
static bool reset(int host)
{
    return tool(host, (const char *const[]){ "ss", "-K", "-t", "state", "established", NULL });
}

/* ---- */

bool failure_is_own(enum cause cause)
{
    return cause == EXIT_EARLY || cause == EXIT_IN_INIT || cause == CGROUP || cause == NO_MEMORY;
}

static const char *cannot_wires(const struct cell *c, bool hosts)
{
    bool wires = c->cause == CUT_BOTH || c->cause == CUT_ONE || c->cause == RESET;

    if (wires && c->layout == SHM)
        return "shared memory has no wire";
    if (wires && !hosts)
        return "needs network namespaces: run failure_matrix.sh as root";
    return NULL;
}

const char *failure_cannot(const struct cell *c, bool hosts)
{
    if ((c->moment == INIT || c->moment == SHRINK) && c->mode == STARTED)
        return "making a communicator has no started form";
    if (c->cause == EXIT_IN_INIT && c->moment != INIT)
        return "is of init";
    if (c->cause == EXIT_EARLY && c->moment == INIT)
        return "is the row exit in init";
    if (c->cause == NO_MEMORY && c->moment == IDLE)
        return "an idle rank allocates nothing";
    if (c->cause == CGROUP && !group_works())
        return "no memory cgroup can be made here";
    return cannot_wires(c, hosts);
}

void failure_prepare(struct job *job)
{
    struct notes *n = notes_of(job);
    char pid[16];

    if (n->cell.cause == CGROUP && group_make()) {
        snprintf(pid, sizeof pid, "%d", (int)job->pid[CULPRIT]);
        (void)write_to("cgroup.procs", pid); /* if not, the culprit is not killed, and the cell does not hold */
    }
    atomic_store(&n->placed, 1);
}

void failure_cause(struct job *job)
{
    struct notes *n = notes_of(job);
    bool done = true;

    atomic_store(&n->failed_ns, job_now_ns());
    switch (n->cell.cause) {
    case KILL:
        kill(job->pid[CULPRIT], SIGKILL);
        break;
    case STOP:
        kill(job->pid[CULPRIT], SIGSTOP);
        break;
    case CUT_BOTH:
        done = deafen(0) && deafen(1);
        break;
    case CUT_ONE:
        done = deafen(0);
        break;
    case RESET:
        done = reset(1);
        break;
    default:
        atomic_store(&n->act, 1);
        return;
    }
    if (!done)
        fprintf(stderr, "the failure could not be caused\n");
    atomic_store(&n->failed, 1);
}

void failure_cause_own(struct job *job)
{
    struct notes *n = notes_of(job);

    atomic_store(&n->failed_ns, job_now_ns());
    atomic_store(&n->failed, 1);
    if (n->cell.cause == CGROUP)
        eat();
    exit(0);
}

void failure_clean(struct job *job)
{
    const struct notes *n = notes_of(job);

    for (int host = 0; host < 2; host++)
        if (n->cell.cause == CUT_BOTH || n->cell.cause == CUT_ONE)
            (void)tool(host, (const char *const[]){ "iptables", "-F", NULL });
    if (n->cell.cause == CGROUP && *group && rmdir(group))
        fprintf(stderr, "%s stays\n", group);
}
