/* SPDX-License-Identifier: Apache-2.0 */
/* Averages a vector between the processes of a job:  ringred-run -n 4 ringred-example-allreduce */
#include <ringred/ringred.h>

#include <stdio.h>

#define COUNT ((size_t)1000000)

static int fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

int main(void)
{
    ringred_comm *comm;
    ringred_request *request;
    ringred_error why;
    void *memory;

    ringred_error_init(&why);
    if (ringred_comm_create(NULL, &comm, &why) < 0) /* the launcher's environment says who we are */
        return fail(why.text);
    if (ringred_alloc(comm, COUNT * sizeof(float), &memory) < 0) /* or any memory of your own */
        return fail("no memory");

    float *gradient = memory;
    int rank = ringred_comm_rank(comm), size = ringred_comm_size(comm);
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = (float)(rank + 1);

    int32_t rc = ringred_allreduce_start(comm, gradient, gradient, COUNT, RINGRED_FLOAT32,
                                         RINGRED_AVG, &request);
    if (rc >= 0) /* compute something else here */
        rc = ringred_wait(request, 30 * RINGRED_SECOND);
    if (rc < 0) {
        (void)ringred_comm_error(comm, &why);
        return fail(why.code ? why.text : ringred_status_text(rc));
    }
    printf("rank %d of %d: the average is %g\n", rank, size, (double)gradient[COUNT - 1]);
    (void)ringred_free(memory);
    return ringred_comm_destroy(comm) < 0;
}
