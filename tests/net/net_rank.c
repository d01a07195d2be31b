/* SPDX-License-Identifier: Apache-2.0 */
/* One rank for the scripts of this folder: makes a communicator as the environment says (arguments are settings
 * that come first), checks sums, and says what came of it on one line:
 *     rank 1 of 3: right sums, made in 0.012 s
 *     rank 1 of 3: status -302 after 2.001 s: nothing answered as root at ...
 * With --sockets also each TCP socket that the library has listened on, connected or accepted:
 *     socket listen 10.9.0.1:4711
 *     socket connect 10.9.0.1:4712 10.9.0.2:4713
 * With --hold it stays until its standard input ends. Exit status 0, 1 for wrong sums, 3 for no communicator. */
#include <ringred/ringred.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COUNT ((size_t)1 << 20)
#define SOCKETS 512

/* ---- the library's calls, on their way to the kernel ---- */

static char sockets[SOCKETS][160];
static int noted;

static const char *text_of(const struct sockaddr_storage *s, char text[80])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)s;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)s;
    bool is_ip4 = s->ss_family == AF_INET;

    inet_ntop(s->ss_family, is_ip4 ? (const void *)&in4->sin_addr : (const void *)&in6->sin6_addr, ip, sizeof ip);
    snprintf(text, 80, is_ip4 ? "%s:%d" : "[%s]:%d", ip, ntohs(is_ip4 ? in4->sin_port : in6->sin6_port));
    return text;
}

static void note(const char *what, int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t n = sizeof here, m = sizeof there;
    char mine[80], theirs[80] = "";

    if (getsockname(fd, (struct sockaddr *)&here, &n) < 0 || noted == SOCKETS ||
        (here.ss_family != AF_INET && here.ss_family != AF_INET6))
        return;
    if (getpeername(fd, (struct sockaddr *)&there, &m) == 0)
        text_of(&there, theirs);
    snprintf(sockets[noted++], sizeof sockets[0], "socket %s %s %s", what, text_of(&here, mine), theirs);
}

__attribute__((visibility("default"))) int listen(int fd, int backlog)
{
    int rc = (int)syscall(SYS_listen, fd, backlog);

    if (rc == 0)
        note("listen", fd);
    return rc;
}

__attribute__((visibility("default"))) int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes)
{
    int rc = (int)syscall(SYS_connect, fd, to.__sockaddr__, bytes);

    note("connect", fd);
    return rc;
}

__attribute__((visibility("default"))) int accept4(int fd, __SOCKADDR_ARG from, socklen_t *bytes, int flags)
{
    int got = (int)syscall(SYS_accept4, fd, from.__sockaddr__, bytes, flags);

    if (got >= 0)
        note("accept", got);
    return got;
}

/* ---- the rank ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int sums_are_right(ringred_comm *comm, float *vector)
{
    int size = ringred_comm_size(comm), rank = ringred_comm_rank(comm);
    float want = (float)(size * (size + 1) / 2);

    for (size_t count = 1; count <= COUNT; count *= 1024) {
        for (size_t i = 0; i < count; i++)
            vector[i] = (float)(rank + 1);
        if (ringred_allreduce(comm, vector, vector, count, RINGRED_FLOAT32, RINGRED_SUM) < 0)
            return 0;
        for (size_t i = 0; i < count; i++)
            if (vector[i] != want)
                return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    const char *settings[32] = { NULL }, *rank = getenv("RINGRED_RANK"), *size = getenv("RINGRED_SIZE");
    bool tell_sockets = false, hold = false;
    float *vector = malloc(COUNT * sizeof *vector);
    ringred_comm *comm = NULL;
    ringred_config config;
    ringred_error why;
    int given = 0;

    for (int i = 1; i < argc && given < 31; i++) {
        if (strcmp(argv[i], "--sockets") == 0)
            tell_sockets = true;
        else if (strcmp(argv[i], "--hold") == 0)
            hold = true;
        else
            settings[given++] = argv[i];
    }
    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    config.settings = settings;
    double began = now();
    int rc = ringred_comm_create(&config, &comm, &why);
    double took = now() - began;
    if (rc < 0) {
        printf("rank %s of %s: status %d after %.3f s: %s\n", rank ? rank : "?", size ? size : "?", rc, took, why.text);
        free(vector);
        return 3;
    }
    bool right = vector && sums_are_right(comm, vector);
    (void)ringred_comm_error(comm, &why);
    printf("rank %d of %d: %s, made in %.3f s%s%s\n", ringred_comm_rank(comm), ringred_comm_size(comm),
           right ? "right sums" : "WRONG sums", took, why.code ? ": " : "", why.code ? why.text : "");
    for (int i = 0; i < noted && tell_sockets; i++)
        puts(sockets[i]);
    fflush(stdout);
    while (hold && getchar() != EOF)
        ;
    rc = ringred_comm_destroy(comm);
    free(vector);
    return right && rc == 0 ? 0 : 1;
}
