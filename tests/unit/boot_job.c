/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of forked ranks; see boot_job.h. */
#include "boot_job.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A bound socket that does not listen keeps the port from everybody but those who set SO_REUSEADDR,
 * as the root does: so a test needs no fixed port and leaves no gap between choosing and using one.
 */
static int hold_port(const char *host, int *port)
{
    struct rr_roots roots = { .count = 1, .at[0].port = 1 };
    struct rr_address a;
    struct sockaddr_storage s;
    const char *problem;
    int one = 1;

    snprintf(roots.at[0].host, sizeof roots.at[0].host, "%s", host);
    if (rr_roots_resolve(&roots, &a, 1, &problem) != 1)
        return -1;
    a.port = 0;
    socklen_t n = rr_address_sock(&a, &s);
    int fd = socket(s.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&s, n) < 0 || getsockname(fd, (struct sockaddr *)&s, &n) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    rr_address_of((struct sockaddr *)&s, &a);
    *port = a.port;
    return fd;
}

void job_init(struct job *job, int n, const char *host)
{
    memset(job, 0, sizeof *job);
    job->n = n;
    job->seconds = 60;
    job->log_fd = -1;
    job->holder = hold_port(host, &job->port);
    snprintf(job->root, sizeof job->root, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, job->port);
    job->at = mmap(NULL, sizeof *job->at * JOB_MOST, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(job->at, MAP_FAILED);
    assert_int_equal(pipe2(job->gate, O_CLOEXEC), 0);
    for (int i = 0; i < JOB_MOST; i++) {
        job->rank[i] = i;
        job->size[i] = n;
        job->roots[i] = job->root;
        job->key[i] = "a key that only this test knows";
    }
}

int job_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

void job_start(struct job *job, job_fn *fn)
{
    fflush(NULL);
    for (int i = 0; i < job->n; i++) {
        pid_t parent = getpid();
        job->pid[i] = fork();
        assert_true(job->pid[i] >= 0);
        if (job->pid[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        alarm(120); /* a test that hangs fails */
        struct job_rank *me = &job->at[i];
        me->pid = getpid();
        close(job->gate[1]); /* only the test's end keeps the gate shut */
        job->gate[1] = -1;
        me->fds_before = job_fds();
        int64_t began = rr_now_ns();
        me->code = fn(job, i, me);
        me->took_ns = rr_now_ns() - began;
        me->fds_after = job_fds();
        exit(0); /* not _exit: leak checkers look then */
    }
}

void job_join(struct job *job)
{
    for (int i = 0; i < job->n; i++) {
        int status;
        if (job->pid[i] <= 0)
            continue;
        assert_int_equal(waitpid(job->pid[i], &status, 0), job->pid[i]);
        if (WIFSIGNALED(status) && job->may_die[i])
            continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("process %d ended with status %x", i, status);
    }
}

void job_run(struct job *job, job_fn *fn)
{
    job_start(job, fn);
    job_join(job);
}

void job_done(struct job *job)
{
    if (job->holder >= 0)
        close(job->holder);
    close(job->gate[0]);
    if (job->gate[1] >= 0)
        close(job->gate[1]);
    munmap(job->at, sizeof *job->at * JOB_MOST);
}

void job_wait(struct job *job)
{
    char none;

    if (read(job->gate[0], &none, 1) != 0)
        _exit(4);
}

void job_release(struct job *job)
{
    close(job->gate[1]);
    job->gate[1] = -1;
}

static void log_line(void *context, int32_t level, const char *line)
{
    const struct job *job = context;
    char text[1100];

    (void)level;
    int n = snprintf(text, sizeof text, "%s\n", line);
    if (job->log_fd >= 0 && write(job->log_fd, text, (size_t)n) < 0)
        _exit(3);
}

int job_open(struct job *job, int i, struct job_rank *me, struct rr_boot **boot)
{
    static struct rr_settings settings;
    static struct rr_log log;
    struct rr_launch launch;
    ringred_config config;

    memset(&config, 0, sizeof config);
    config.rank = config.size = -1;
    for (int v = 0; job->variables[i][v]; v++)
        putenv((char *)(uintptr_t)job->variables[i][v]);
    if (!job->variables[i][0]) {
        config.rank = job->rank[i];
        config.size = job->size[i];
        config.id = job->id;
        config.root = job->id ? NULL : job->roots[i];
    }
    config.key = job->id ? NULL : job->key[i];
    config.key_bytes = config.key ? strlen(config.key) : 0;
    log = (struct rr_log){ RINGRED_LOG_TRACE, log_line, job, job->rank[i] };
    RR_TRY(rr_settings_load(&settings, job->settings, &me->why));
    RR_TRY(rr_launch_find(&config, &settings, &launch, &me->why));
    return rr_boot_open(&launch, &settings, &log, rr_deadline((int64_t)(job->seconds * 1e9)), boot,
                        &me->why);
}
