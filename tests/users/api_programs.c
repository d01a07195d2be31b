/* SPDX-License-Identifier: Apache-2.0 */
/* The C programs of the wish list, as users would write them; a rank of a job that some launcher starts. */
#include <ringred/ringred.h>

#include <stdio.h>
#include <stdlib.h>

static void die(const char *text)
{
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static void check(int32_t rc, const char *what)
{
    if (rc < 0)
        die(what);
}

static void compute(void)
{
}

static void steps(ringred_comm *comm, size_t n)
{
    void *grad;
    ringred_request *req;

    check(ringred_alloc(comm, n * sizeof(float), &grad), "alloc");
    float *x = grad;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(ringred_comm_rank(comm) + 1);
    check(ringred_allreduce(comm, grad, grad, n, RINGRED_FLOAT32, RINGRED_AVG), "allreduce");
    check(ringred_allreduce_start(comm, grad, grad, n, RINGRED_FLOAT32, RINGRED_AVG, &req), "start");
    compute();
    check(ringred_wait(req, 60 * RINGRED_SECOND), "wait");
    if (x[n - 1] != (float)(ringred_comm_size(comm) + 1) / 2)
        die("a wrong average");
    check(ringred_free(grad), "free");
}

/* The form with options, a list of mixed types, a part, and messages. */
static void more(ringred_comm *comm)
{
    ringred_comm *part;
    ringred_call call;
    ringred_message came;
    double a[2] = { 1, 2 };
    int64_t b = 3, token = ringred_comm_rank(comm);
    void *many[] = { a, &b };
    const size_t counts[] = { 2, 1 };
    const int32_t types[] = { RINGRED_FLOAT64, RINGRED_INT64 };
    int32_t size = ringred_comm_size(comm), rank = ringred_comm_rank(comm);

    ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
    call.send = call.recv = a;
    call.count = 2;
    call.type = RINGRED_FLOAT64;
    call.op = RINGRED_SUM;
    call.scale = 0.5;
    call.timeout_ns = 60 * RINGRED_SECOND;
    check(ringred_run(comm, &call), "run");
    if (a[1] != size)
        die("a wrong scaled sum");
    check(ringred_allreduce_list(comm, (const void *const *)many, many, counts, types, 2, RINGRED_MAX), "list");
    check(ringred_comm_split(comm, rank % 2, rank, &part), "split");
    check(ringred_barrier(part), "barrier of a part");
    check(ringred_comm_destroy(part), "destroy a part");
    if (size > 1 && rank == 1)
        check(ringred_send(comm, &token, 1, RINGRED_INT64, 0, 7), "send");
    ringred_message_init(&came, sizeof came);
    if (size > 1 && rank == 0) {
        check(ringred_recv(comm, &token, 1, RINGRED_INT64, RINGRED_ANY_SOURCE, 7, &came), "recv");
        if (came.source != 1 || token != 1)
            die("a wrong message");
    }
}

int main(void)
{
    ringred_comm *comm;
    ringred_error why;

    ringred_error_init(&why);
    if (ringred_comm_create(NULL, &comm, &why) < 0)
        die(why.text);
    steps(comm, 100000);
    more(comm);
    printf("rank %d of %d: fine\n", ringred_comm_rank(comm), ringred_comm_size(comm));
    return ringred_comm_destroy(comm) < 0;
}
