/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody who built it with the first headers and has not looked at it since: two ranks, each call that
 * takes a struct, each way to wait. Built with the frozen headers, run with the library of today. */
#include <ringred/ringred.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(claim)                                                         \
    do {                                                                    \
        if (!(claim)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static void done(void *context, int32_t status)
{
    *(int *)context = status == RINGRED_OK ? 1 : -1;
}

static void run(int rank, const ringred_unique_id *id)
{
    static const char *const settings[] = { "init_timeout=20", "timeout=20", NULL };
    ringred_config config;
    ringred_error why;
    ringred_comm *comm = NULL, *part = NULL;
    ringred_request *request;
    ringred_message message;
    ringred_call call;
    float x[4] = { 1, 2, 3, 4 }, *window, sum = 0;
    int told = 0;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    config.rank = rank;
    config.size = 2;
    config.id = id;
    config.settings = settings;
    NEED(ringred_comm_create(&config, &comm, &why) == RINGRED_OK);
    NEED(ringred_comm_rank(comm) == rank && ringred_comm_size(comm) == 2);
    NEED(ringred_allreduce(comm, x, x, 4, RINGRED_FLOAT32, RINGRED_AVG) == RINGRED_OK && x[3] == 4);
    NEED(ringred_alloc(comm, 4096, (void **)&window) == RINGRED_OK);
    NEED(ringred_allreduce_start(comm, x, window, 4, RINGRED_FLOAT32, RINGRED_SUM, &request) == RINGRED_OK);
    NEED(ringred_wait(request, 20 * RINGRED_SECOND) == RINGRED_OK && window[0] == 2);
    NEED(ringred_free(window) == RINGRED_OK);
    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = x;
    call.recv = &sum;
    call.count = 1;
    call.type = RINGRED_FLOAT32;
    call.op = RINGRED_SUM;
    call.scale = 0.5;
    call.done = done;
    call.done_context = &told;
    NEED(ringred_start(comm, &call, NULL) == RINGRED_OK);
    while (!told)
        NEED(ringred_poll(comm) >= RINGRED_OK);
    NEED(told == 1 && sum == 1);
    ringred_message_init(&message, sizeof message);
    if (rank == 0)
        NEED(ringred_send(comm, x, 2, RINGRED_FLOAT32, 1, 5) == RINGRED_OK);
    else
        NEED(ringred_recv(comm, x, 4, RINGRED_FLOAT32, RINGRED_ANY_SOURCE, 5, &message) == RINGRED_OK &&
             message.source == 0 && message.count == 2);
    NEED(ringred_comm_split(comm, rank, 0, &part) == RINGRED_OK && ringred_comm_size(part) == 1);
    NEED(ringred_comm_destroy(part) == RINGRED_OK);
    NEED(ringred_allreduce(comm, x, x, 1, RINGRED_SUM, RINGRED_FLOAT32) == RINGRED_EINVAL);
    NEED(ringred_comm_error(comm, &why) == RINGRED_OK && why.code == RINGRED_EINVAL && why.text[0]);
    NEED(ringred_barrier(comm) == RINGRED_OK);
    NEED(ringred_comm_destroy(comm) == RINGRED_OK);
    exit(0);
}

int main(void)
{
    ringred_unique_id id;
    ringred_error why;
    int status, to[2];
    pid_t child;

    /* the id is made by the process that becomes rank 0, which is this one's child */
    NEED(pipe(to) == 0);
    child = fork();
    NEED(child >= 0);
    if (child == 0) {
        NEED(ringred_unique_id_create(&id, &why) == RINGRED_OK);
        NEED(write(to[1], &id, sizeof id) == (ssize_t)sizeof id);
        run(0, &id);
    }
    NEED(read(to[0], &id, sizeof id) == (ssize_t)sizeof id);
    if (fork() == 0)
        run(1, &id);
    for (int i = 0; i < 2; i++)
        NEED(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("library %s, built with %s\n", ringred_version(), RINGRED_VERSION);
    return 0;
}
