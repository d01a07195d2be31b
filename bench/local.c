/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks on this machine: this program again, once per rank, each with a socket to the
 * parent. Rank 0 makes the job's id, which carries its key, and the parent hands it to the others
 * through those sockets: no fixed port, and nothing secret among the arguments. */
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_S 5 /* what the others get to notice a rank's failure by themselves */

struct local_rank {
    pid_t pid; /* 0: ended */
    int fd;
};

static bool read_whole(int fd, void *to, size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t got = read(fd, at, bytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static bool write_whole(int fd, const void *from, size_t bytes)
{
    const char *at = from;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* ---- in the child ---- */

/* Gives rank `me` the me-th CPU that we may use, where there are enough. */
static void pin(int me, int ranks)
{
    cpu_set_t allowed, one;
    int seen = 0;

    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < ranks)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != me)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one); /* a wish: the figures only get noisier */
        return;
    }
}

bool bench_join_parent(const struct bench_options *o, ringred_unique_id *id)
{
    ringred_error why;

    if (!o->no_pin)
        pin(o->child, o->ranks);
    ringred_error_init(&why);
    if (o->child > 0)
        return read_whole(o->child_fd, id, sizeof *id); /* silent: rank 0 or the parent said why */
    if (ringred_unique_id_create(id, &why) < 0) {
        fprintf(stderr, "ringred-bench: rank 0: %s\n", why.text);
        return false;
    }
    return write_whole(o->child_fd, id, sizeof *id);
}

/* ---- in the parent ---- */

static void become_rank(const struct bench_options *o, int rank, int fd, int argc, char **argv)
{
    char **arguments = calloc((size_t)argc + 4, sizeof *arguments);
    char child[32], ranks[32];

    if (!arguments)
        _exit(1);
    snprintf(child, sizeof child, "--child=%d:%d", rank, fd);
    snprintf(ranks, sizeof ranks, "--ranks=%d", o->ranks);
    for (int i = 0; i < argc; i++)
        arguments[i] = argv[i];
    arguments[argc] = ranks;
    arguments[argc + 1] = child;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a bench that is killed leaves no ranks behind */
    execv("/proc/self/exe", arguments);
    fprintf(stderr, "ringred-bench: cannot start rank %d: %s\n", rank, strerror(errno));
    _exit(1);
}

static bool start_rank(const struct bench_options *o, struct local_rank *l, int rank, int argc,
                       char **argv)
{
    int ends[2];
    pid_t parent = getpid();

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return false;
    l->fd = ends[0];
    l->pid = fork();
    if (l->pid == 0) {
        int fd = dup(ends[1]); /* without close-on-exec */

        if (fd < 0 || getppid() != parent)
            _exit(1);
        become_rank(o, rank, fd, argc, argv);
    }
    close(ends[1]);
    if (l->pid < 0)
        l->pid = 0;
    return l->pid != 0;
}

static bool hand_out_id(const struct local_rank *l, int ranks)
{
    ringred_unique_id id;

    if (!read_whole(l[0].fd, &id, sizeof id))
        return false;
    for (int r = 1; r < ranks; r++)
        if (!write_whole(l[r].fd, &id, sizeof id))
            return false;
    return true;
}

static void end_ranks(struct local_rank *l, int ranks, int with)
{
    for (int r = 0; r < ranks; r++)
        if (l[r].pid)
            kill(l[r].pid, with);
}

/* Notes the end of one rank; its code if it failed. */
static int note_end(struct local_rank *l, int ranks, pid_t pid, int status)
{
    for (int r = 0; r < ranks; r++) {
        if (l[r].pid != pid)
            continue;
        l[r].pid = 0;
        if (WIFEXITED(status))
            return WEXITSTATUS(status);
        fprintf(stderr, "ringred-bench: rank %d was ended by signal %d (%s)\n", r, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return 1;
    }
    return 0;
}

/* Waits for all; after a failure the others get a moment to say what they saw, then are ended. */
static int wait_for_ranks(struct local_rank *l, int ranks, int code)
{
    struct timespec nap = { 0, 20 * 1000 * 1000 };
    int naps = 0, left = ranks;

    for (int r = 0; r < ranks; r++)
        left -= l[r].pid == 0;
    while (left > 0) {
        int status, ended;
        pid_t pid = waitpid(-1, &status, code ? WNOHANG : 0);

        if (pid < 0 && errno != EINTR)
            break;
        if (pid > 0) {
            left--;
            ended = note_end(l, ranks, pid, status);
            code = code ? code : ended;
        } else if (pid == 0) {
            nanosleep(&nap, NULL);
            if (++naps == GRACE_S * 50)
                end_ranks(l, ranks, SIGKILL);
        }
    }
    return code;
}

int bench_start_ranks(const struct bench_options *o, int argc, char **argv)
{
    struct local_rank *l = calloc((size_t)o->ranks, sizeof *l);
    int code = 0;

    if (!l) {
        fprintf(stderr, "ringred-bench: no memory\n");
        return 1;
    }
    for (int r = 0; r < o->ranks && !code; r++) {
        if (start_rank(o, &l[r], r, argc, argv))
            continue;
        fprintf(stderr, "ringred-bench: cannot start rank %d: %s\n", r, strerror(errno));
        code = 1;
    }
    if (code || !hand_out_id(l, o->ranks)) {
        end_ranks(l, o->ranks, SIGTERM);
        code = 1;
    }
    code = wait_for_ranks(l, o->ranks, code);
    for (int r = 0; r < o->ranks; r++)
        if (l[r].fd > 0)
            close(l[r].fd);
    free(l);
    return code;
}
