/* SPDX-License-Identifier: Apache-2.0 */
/* A program with an event loop of its own: it sleeps in poll, on the library's descriptor beside whatever else it has,
 * here a timer that stands for a user interface. Run it with
 *
 *     ringred-run -n 3 ringred-example-event-loop
 */
#include <ringred/ringred.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define COUNT ((size_t)1 << 20)
#define SUMS 8

static void must(int32_t rc, const ringred_error *why)
{
    if (rc >= RINGRED_OK)
        return;
    fprintf(stderr, "%s: %s\n", ringred_status_text(rc), why->text);
    exit(1);
}

int main(void)
{
    struct itimerspec every = { { 0, 2000000 }, { 0, 2000000 } };
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    ringred_request *request[SUMS] = { NULL };
    ringred_comm *comm;
    ringred_error why;
    float *gradient;
    int left = SUMS;
    uint64_t ticks = 0, n;

    ringred_error_init(&why);
    must(ringred_comm_create(NULL, &comm, &why), &why);
    must(ringred_alloc(comm, SUMS * COUNT * sizeof *gradient, (void **)&gradient), &why);
    for (size_t i = 0; i < SUMS * COUNT; i++)
        gradient[i] = (float)(ringred_comm_rank(comm) + 1);
    for (int i = 0; i < SUMS; i++)
        must(ringred_allreduce_start(comm, gradient + (size_t)i * COUNT, gradient + (size_t)i * COUNT, COUNT,
                                     RINGRED_FLOAT32, RINGRED_AVG, &request[i]), &why);
    if (timer < 0 || timerfd_settime(timer, 0, &every, NULL) < 0)
        return 1;
    struct pollfd wait[2] = { { timer, POLLIN, 0 }, { ringred_comm_descriptor(comm), POLLIN, 0 } };
    must(wait[1].fd, &why);
    for (;;) {
        must(ringred_poll(comm), &why);
        for (int i = 0; i < SUMS; i++) {
            const int32_t rc = request[i] ? ringred_test(request[i]) : RINGRED_PENDING;
            must(rc, &why);
            if (rc == RINGRED_OK) {
                request[i] = NULL;
                left--;
            }
        }
        if (!left)
            break;
        (void)poll(wait, 2, -1); /* interrupted or not, we look at everything */
        if (read(timer, &n, sizeof n) == (ssize_t)sizeof n)
            ticks += n;
    }
    const float want = (float)(ringred_comm_size(comm) + 1) / 2;
    for (size_t i = 0; i < SUMS * COUNT; i += 997)
        if (gradient[i] != want) {
            fprintf(stderr, "element %zu is %g, not %g\n", i, (double)gradient[i], (double)want);
            return 1;
        }
    if (ringred_comm_rank(comm) == 0)
        printf("%d averages of %zu floats; the loop went on meanwhile (%llu ticks)\n", SUMS, COUNT, (unsigned long long)ticks);
    must(ringred_free(gradient), &why);
    must(ringred_comm_destroy(comm), &why);
    close(timer);
    return 0;
}
