/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous, data links and local sockets between real processes on loopback. */
#include "boot_job.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- what ranks do ---- */

/* Sends each peer a byte of mine and expects its: 0 if all is as it should be. */
static int talk(const int *fd, int size, int me, bool all)
{
    for (int r = 0; r < size; r++) {
        unsigned char out[2] = { (unsigned char)me, (unsigned char)r };
        if ((fd[r] >= 0) != (all ? r != me : fd[r] >= 0))
            return 1;
        if (fd[r] >= 0 && send(fd[r], out, 2, MSG_NOSIGNAL) != 2)
            return 2;
    }
    for (int r = 0; r < size; r++) {
        unsigned char in[2];
        if (fd[r] < 0)
            continue;
        struct pollfd p = { .fd = fd[r], .events = POLLIN };
        if (poll(&p, 1, 60000) != 1 || recv(fd[r], in, 2, MSG_WAITALL) != 2 || in[0] != r || in[1] != me)
            return 3;
    }
    return 0;
}

static void close_all(int *fd, int size)
{
    for (int r = 0; r < size; r++)
        if (fd[r] >= 0)
            close(fd[r]);
}

static int use(struct rr_boot *boot, int size, int rank, struct job_rank *me)
{
    uint8_t want[JOB_MOST];
    int fd[JOB_MOST], rc;
    uint32_t mine = 1000u + (uint32_t)rank, all[JOB_MOST];

    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, all, &me->why));
    for (int r = 0; r < size; r++)
        if (all[r] != 1000u + (uint32_t)r || rr_boot_member(boot, r)->host != rr_boot_member(boot, 0)->host)
            return 10;
    memset(want, 1, sizeof want);
    want[rank] = 0;
    RR_TRY(rr_boot_wire(boot, want, fd, &me->why));
    rc = talk(fd, size, rank, true);
    close_all(fd, size);
    if (rc)
        return 20 + rc;
    RR_TRY(rr_boot_local(boot, fd, &me->why));
    for (int r = 0; r < size; r++)
        if ((fd[r] >= 0) != (rank == 0 ? r != 0 : r == 0))
            return 30;
    rc = talk(fd, size, rank, false);
    close_all(fd, size);
    return rc ? 40 + rc : rr_boot_allgather(boot, &mine, sizeof mine, all, &me->why);
}

static int whole_life(struct job *job, int i, struct job_rank *me)
{
    struct rr_boot *boot;

    RR_TRY(job_open(job, i, me, &boot));
    int rc = use(boot, job->size[i], job->rank[i], me);
    rr_boot_close(boot);
    return rc;
}

/* ---- tests ---- */

static void check_all_fine(const struct job *job)
{
    for (int i = 0; i < job->n; i++) {
        if (job->at[i].code)
            fail_msg("process %d: %d %s", i, job->at[i].code, job->at[i].why.text);
        assert_int_equal(job->at[i].fds_before, job->at[i].fds_after);
    }
}

static void test_any_number_of_ranks_meets_and_wires(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct job job;
        job_init(&job, n, "127.0.0.1");
        job_run(&job, whole_life);
        check_all_fine(&job);
        job_done(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks_meets_and_wires),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
