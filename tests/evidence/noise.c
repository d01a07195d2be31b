/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: 50 connections of noise, silence, one byte a second and another job's hello to where a
 * job meets: the job starts all the same, and none of them joins. noise [ranks, 3] */
#include "job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUESTS     50
#define HELLO_MOST 4096
#define BOUND_NS   (10 * RINGRED_SECOND)

struct notes {
    atomic_int done;
};

static struct notes *notes_of(struct job *job)
{
    return (struct notes *)(void *)job->shared->notes;
}

static void sum_and_leave(struct job *job, ringred_comm *comm, int rank)
{
    float x = (float)(rank + 1), want = (float)(job->size * (job->size + 1) / 2);
    int rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);

    if (rc < 0 || x != want)
        job_fail(rank, "status %d, the sum is %g instead of %g", rc, (double)x, (double)want);
    atomic_fetch_add(&notes_of(job)->done, 1);
    if (ringred_comm_destroy(comm) < 0)
        job_fail(rank, "destroy failed");
}

#define PORTS 8

static int dial(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    perror("connect");
    exit(1);
}

/* What another job says to whoever comes: its rank 0 greets, and we listen. */
static size_t catch_hello(unsigned char *hello)
{
    int ports[PORTS], found = 0;
    ssize_t got = 0;
    pid_t pid = fork();

    if (pid == 0) {
        ringred_unique_id id;
        ringred_config config;
        ringred_comm *comm;

        ringred_config_init(&config, sizeof config);
        config.rank = 0;
        config.size = 2;
        config.id = &id;
        config.timeout_ns = RINGRED_SECOND;
        _exit(ringred_unique_id_create(&id, NULL) < 0 ||
              ringred_comm_create(&config, &comm, NULL) < 0);
    }
    job_nap_ms(200); /* it listens in more than one place; only the meeting place speaks */
    found = job_ports(pid, ports, PORTS);
    for (int i = 0; i < found && got <= 0; i++) {
        int fd = dial(ports[i]);

        job_nap_ms(50);
        got = recv(fd, hello, HELLO_MOST, MSG_DONTWAIT);
        close(fd);
    }
    waitpid(pid, NULL, 0);
    return got > 0 ? (size_t)got : 0;
}

static void send_noise(int fd)
{
    unsigned char noise[512];

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)rand();
    (void)send(fd, noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT); /* it may be refused */
}

/* Guest i: noise, silence, another job's hello, or its first byte (the others follow, one a
 * second). */
static int send_guest(int port, int i, const unsigned char *hello, size_t bytes)
{
    int fd = dial(port);

    if (i % 4 == 0)
        send_noise(fd);
    else if (i % 4 == 2)
        (void)send(fd, hello, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return fd;
}

static void drip(const int *guest, const unsigned char *hello, size_t at)
{
    for (int i = 3; i < GUESTS; i += 4)
        (void)send(guest[i], hello + at, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Whether a rank of another job, with another secret, gets in. */
static bool stranger_joins(int port)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        char root[64];
        ringred_config config;
        ringred_comm *comm;

        snprintf(root, sizeof root, "127.0.0.1:%d", port);
        ringred_config_init(&config, sizeof config);
        config.rank = 1;
        config.size = 3;
        config.root = root;
        config.key = "the secret of another job";
        config.key_bytes = strlen(config.key);
        config.timeout_ns = RINGRED_SECOND;
        _exit(ringred_comm_create(&config, &comm, NULL) < 0 ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return status != 0;
}

int main(int argc, char **argv)
{
    static unsigned char hello[HELLO_MOST];
    int guest[GUESTS], ports[PORTS], found, ranks = argc > 1 ? atoi(argv[1]) : 3;
    size_t bytes = catch_hello(hello), dripped = 0;
    int64_t began_ns, took_ns;
    struct job job;
    bool joined = false, fine;

    if (!bytes) {
        fprintf(stderr, "the other job said nothing\n");
        return 1;
    }
    job_open(&job, ranks, "auto");
    job_start_rank(&job, 0, sum_and_leave);
    while (!atomic_load(&job.shared->id_is_there[0]))
        job_nap_ms(1);
    job_nap_ms(100);
    found = job_ports(job.pid[0], ports, PORTS);
    for (int i = 0; i < GUESTS; i++)
        guest[i] = send_guest(ports[i % found], i, hello, bytes);
    for (int i = 0; i < found; i++)
        joined = stranger_joins(ports[i]) || joined;
    for (; dripped < 3; dripped++) {
        drip(guest, hello, dripped % bytes);
        job_nap_ms(1000);
    }

    began_ns = job_now_ns();
    for (int r = 1; r < ranks; r++)
        job_start_rank(&job, r, sum_and_leave);
    while (atomic_load(&notes_of(&job)->done) < ranks && !atomic_load(&job.shared->failed) &&
           job_now_ns() < began_ns + 2 * BOUND_NS)
        job_nap_ms(1);
    took_ns = job_now_ns() - began_ns;
    fine = job_wait(&job, -1) && !joined && took_ns < BOUND_NS;
    printf("%s: among %d strange connections the job of %d ranks began %.3f s after its last "
           "ranks, %s\n",
           fine ? "holds" : "FAILS", GUESTS, ranks, (double)took_ns / 1e9,
           joined ? "but a stranger joined" : "and no stranger joined");
    return fine ? 0 : 1;
}
