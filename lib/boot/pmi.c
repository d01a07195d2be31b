/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1, as MPICH's Hydra, Intel MPI and Slurm's pmi2 speak it: lines of "cmd=... name=value ..." over a socket that
 * the launcher left open. Rank 0 puts a text into the job's key-value space, all meet in a barrier, the others get
 * it. Each answer is bounded, and is waited for no longer than the deadline. */
#include "boot/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LINE_BYTES  4096
#define VALUE_BYTES 1024
#define PIECE_LEAST 32

struct pmi {
    int fd;
    int64_t deadline_ns;
    char line[LINE_BYTES]; /* the latest answer, without its end */
    char ahead[LINE_BYTES]; /* what came behind it */
    size_t used;
    char space[256]; /* the name of the key-value space */
    int piece;       /* most bytes of a value */
};

/* ---- lines ---- */

bool rr_pmi_value(const char *line, const char *name, char *to, size_t room)
{
    size_t n = strlen(name);

    for (const char *at = line; *at;) {
        size_t word = strcspn(at, " ");
        if (word > n && at[n] == '=' && strncmp(at, name, n) == 0) {
            if (word - n - 1 >= room)
                return false;
            memcpy(to, at + n + 1, word - n - 1);
            to[word - n - 1] = 0;
            return true;
        }
        at += word + strspn(at + word, " ");
    }
    return false;
}

static int lost(int system, const char *what, ringred_error *why)
{
    if (system == ETIMEDOUT)
        return rr_fail(why, RINGRED_ETIMEOUT, -1, 0, "the launcher did not answer \"%s\" (PMI-1) in time: have all "
                                                     "ranks come?", what);
    return rr_fail(why, RINGRED_ESYSTEM, -1, system, "cannot talk to the launcher through PMI_FD (\"%s\")%s", what,
                   system ? "" : ": it has closed it");
}

/* 0, or an errno. */
static int await(const struct pmi *p, short events)
{
    for (;;) {
        struct pollfd one = { .fd = p->fd, .events = events };
        int ready = poll(&one, 1, rr_deadline_ms(p->deadline_ns, 1000));
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return errno;
        if (rr_now_ns() >= p->deadline_ns)
            return ETIMEDOUT;
    }
}

/* 0, or an errno. */
static int say(const struct pmi *p, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        int system = await(p, POLLOUT);
        if (system)
            return system;
        ssize_t n = send(p->fd, text, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        text += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The next line into p->line. 0, an errno, or -1 at the end. */
static int hear(struct pmi *p)
{
    char *end;

    while (!(end = memchr(p->ahead, '\n', p->used))) {
        int system = p->used == sizeof p->ahead ? EMSGSIZE : await(p, POLLIN);
        if (system)
            return system;
        ssize_t n = recv(p->fd, p->ahead + p->used, sizeof p->ahead - p->used, MSG_DONTWAIT);
        if (n == 0)
            return -1;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        p->used += n > 0 ? (size_t)n : 0;
    }
    size_t n = (size_t)(end - p->ahead);
    memcpy(p->line, p->ahead, n);
    p->line[n] = 0;
    p->used -= n + 1;
    memmove(p->ahead, end + 1, p->used);
    return 0;
}

/* Says a command, whose first word is cmd=WHAT, and hears its answer. */
static int ask(struct pmi *p, const char *text, const char *answer, ringred_error *why)
{
    char what[32] = "", command[32] = "", rc[16] = "0", message[128] = "no reason given";

    (void)rr_pmi_value(text, "cmd", what, sizeof what);
    what[strcspn(what, "\n")] = 0;
    int system = say(p, text);
    if (system == 0)
        system = hear(p);
    if (system)
        return lost(system < 0 ? 0 : system, what, why);
    (void)rr_pmi_value(p->line, "cmd", command, sizeof command);
    (void)rr_pmi_value(p->line, "rc", rc, sizeof rc);
    (void)rr_pmi_value(p->line, "msg", message, sizeof message);
    if (strcmp(command, answer) != 0)
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "the launcher answered \"%s\" (PMI-1) with \"%.100s\"", what,
                       p->line);
    return strcmp(rc, "0") == 0 ? 0
                                : rr_fail(why, RINGRED_ESYSTEM, -1, 0, "the launcher refused \"%s\" (PMI-1): %s", what,
                                          message);
}

/* ---- the conversation ---- */

static int begin(struct pmi *p, bool joined, ringred_error *why)
{
    char most[16] = "";

    if (!joined)
        RR_TRY(ask(p, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", why));
    RR_TRY(ask(p, "cmd=get_maxes\n", "maxes", why));
    (void)rr_pmi_value(p->line, "vallen_max", most, sizeof most);
    long bytes = strtol(most, NULL, 10) - 1;
    if (bytes < PIECE_LEAST)
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "the launcher's values (PMI-1) may have \"%s\" bytes", most);
    p->piece = bytes < VALUE_BYTES ? (int)bytes : VALUE_BYTES;
    RR_TRY(ask(p, "cmd=get_my_kvsname\n", "my_kvsname", why));
    if (!rr_pmi_value(p->line, "kvsname", p->space, sizeof p->space))
        return rr_fail(why, RINGRED_EWIRE, -1, 0,
                       "the launcher's key-value space (PMI-1) has no name, or one too long");
    return 0;
}

static int put_all(struct pmi *p, const char *text, ringred_error *why)
{
    char command[LINE_BYTES];
    size_t n = strlen(text), at = 0;

    for (int k = 0; at < n || k == 0; k++) {
        size_t piece = n - at < (size_t)p->piece ? n - at : (size_t)p->piece;
        snprintf(command, sizeof command, "cmd=put kvsname=%s key=ringred-%d value=%.*s\n", p->space, k, (int)piece,
                 text + at);
        RR_TRY(ask(p, command, "put_result", why));
        at += piece;
    }
    snprintf(command, sizeof command, "cmd=put kvsname=%s key=ringred-bytes value=%zu\n", p->space, n);
    return ask(p, command, "put_result", why);
}

static int get_one(struct pmi *p, const char *key, char *to, size_t room, ringred_error *why)
{
    char command[512];

    snprintf(command, sizeof command, "cmd=get kvsname=%s key=%s\n", p->space, key);
    RR_TRY(ask(p, command, "get_result", why));
    return rr_pmi_value(p->line, "value", to, room)
               ? 0
               : rr_fail(why, RINGRED_EWIRE, 0, 0, "the launcher has no fitting value for %s (PMI-1)", key);
}

static int get_all(struct pmi *p, char *text, size_t room, ringred_error *why)
{
    char number[24], key[32];
    size_t used = 0;

    RR_TRY(get_one(p, "ringred-bytes", number, sizeof number, why));
    size_t n = strtoul(number, NULL, 10);
    if (n >= room)
        return rr_fail(why, RINGRED_EWIRE, 0, 0, "rank 0 put %zu bytes into the launcher's space (PMI-1), not %zu", n,
                       room - 1);
    text[0] = 0;
    for (int k = 0; used < n; k++) {
        snprintf(key, sizeof key, "ringred-%d", k);
        RR_TRY(get_one(p, key, text + used, room - used, why));
        if (!text[used])
            return rr_fail(why, RINGRED_EWIRE, 0, 0, "%s in the launcher's space (PMI-1) is empty", key);
        used += strlen(text + used);
    }
    return 0;
}

int rr_pmi_talk(int fd, bool joined, int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why)
{
    struct pmi *p = rr_alloc(1, sizeof *p);

    if (!p)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to talk to the launcher");
    p->fd = fd;
    p->deadline_ns = deadline_ns;
    int rc = begin(p, joined, why);
    if (rc == 0 && rank == 0)
        rc = put_all(p, text, why);
    if (rc == 0)
        rc = ask(p, "cmd=barrier_in\n", "barrier_out", why);
    if (rc == 0 && rank != 0)
        rc = get_all(p, text, room, why);
    if (rc == 0 && !joined) /* else the launcher would take our exit for a crash */
        rc = ask(p, "cmd=finalize\n", "finalize_ack", why);
    rr_free(p);
    return rc;
}

/* Whether MPI is at work in this process: then the conversation is its own to begin and to end. */
static bool mpi_is_up(void)
{
    union {
        void *object;
        int (*function)(int *);
    } initialized = { dlsym(RTLD_DEFAULT, "MPI_Initialized") };
    int up = 0;

    return initialized.object && initialized.function(&up) == 0 && up;
}

int rr_pmi_share(int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why)
{
    int fd = -1, type = 0;
    socklen_t n = sizeof type;

    RR_TRY(rr_env_number("PMI_FD", 0, INT32_MAX, &fd, why));
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_STREAM)
        return rr_fail(why, RINGRED_ESETTING, rank, 0,
                       "PMI_FD is %d, which is not a socket of the launcher's: was this process started by another "
                       "one of the job?",
                       fd);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* programs from here are no ranks */
    return rr_pmi_talk(fd, mpi_is_up(), rank, text, room, deadline_ns, why);
}
