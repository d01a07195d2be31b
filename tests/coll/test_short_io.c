/* SPDX-License-Identifier: Apache-2.0 */
/* Whole jobs whose every read and write of a socket is short, and now and then interrupted: they meet, add, pass messages, lose a
 * rank, begin again and end, with right sums, in pieces that end at every place that there is: 1 byte, few, and those about
 * which headers, notes and records have. */
#include "coll.h"
#include "short_io.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT "timeout=60"
#define MOST    5000
#define LONG    40000 /* it is offered first, and goes over all streams */

static const struct coll_setup layouts[] = {
    { 3, { "transport=tcp", TIMEOUT } },
    { 3, { "transport=tcp", TIMEOUT, "tcp_encryption=on" } },
    { 3, { "transport=tcp", TIMEOUT, "tcp_encryption=chacha20", "tcp_streams=2" } },
    { 3, { "transport=tcp", TIMEOUT, "tcp_streams=3", "progress=thread" } },
    { 4, { "hosts=aabb", TIMEOUT, "tcp_encryption=on" } },
    { 3, { "transport=shm", TIMEOUT } },
};

static void check_sum(ringred_comm *comm, int count)
{
    static int32_t x[MOST], sum[MOST];
    int32_t ranks = ringred_comm_size(comm), rank = ringred_comm_rank(comm);

    for (int i = 0; i < count; i++)
        x[i] = i * 3 + rank;
    memset(sum, 0xee, sizeof sum);
    coll_must(comm, ringred_allreduce(comm, x, sum, (size_t)count, RINGRED_INT32, RINGRED_SUM), "allreduce");
    for (int i = 0; i < count; i++)
        rank_check_int(sum[i], i * 3 * ranks + ranks * (ranks - 1) / 2);
}

/* In three places, of which two are longer than what is copied together first. */
static void check_list(ringred_comm *comm)
{
    static int32_t x[3][MOST];
    int32_t ranks = ringred_comm_size(comm), rank = ringred_comm_rank(comm);
    const int32_t types[3] = { RINGRED_INT32, RINGRED_INT32, RINGRED_INT32 };
    const size_t counts[3] = { MOST - 1000, 7, MOST };
    void *at[3] = { x[0], x[1], x[2] };

    for (int k = 0; k < 3; k++)
        for (int i = 0; i < MOST; i++)
            x[k][i] = i * 3 + k + rank;
    coll_must(comm, ringred_allreduce_list(comm, (const void *const *)at, at, counts, types, 3, RINGRED_SUM), "list");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < MOST; i++)
            rank_check_int(x[k][i], (size_t)i < counts[k] ? (i * 3 + k) * ranks + ranks * (ranks - 1) / 2 : i * 3 + k + rank);
}

/* Around the ring. */
static void pass_message(ringred_comm *comm, size_t bytes)
{
    static unsigned char out[LONG], in[LONG];
    int32_t ranks = ringred_comm_size(comm), rank = ringred_comm_rank(comm);
    ringred_request *sent, *got;

    memset(out, 'a' + rank, bytes);
    coll_must(comm, ringred_recv_start(comm, in, bytes, RINGRED_UINT8, (rank + ranks - 1) % ranks, 7, NULL, &got), "receiving");
    coll_must(comm, ringred_send_start(comm, out, bytes, RINGRED_UINT8, (rank + 1) % ranks, 7, &sent), "sending");
    coll_must(comm, ringred_wait(sent, -1), "sent");
    coll_must(comm, ringred_wait(got, -1), "got");
    for (size_t i = 0; i < bytes; i++)
        rank_check_int(in[i], 'a' + (rank + ranks - 1) % ranks);
}

/* The last rank ends in the middle; the others go on, and take it in again. */
static void job(struct rank *me)
{
    static const int counts[] = { 0, 1, 7, 1000, MOST };
    ringred_comm *comm = coll_open(me, me->argument), *left = NULL;
    bool last = me->rank == me->size - 1, meets_sockets = short_io_count() > 0;
    ringred_error why;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_sum(comm, counts[i]);
        pass_message(comm, (size_t)counts[i]);
    }
    check_list(comm);
    pass_message(comm, LONG);
    rank_check(meets_sockets);
    ranks_meet(me);
    if (last) {
        (void)ringred_comm_destroy(comm); /* as if it had ended */
        return;
    }
    int32_t rc = ringred_comm_shrink(comm, 60 * RINGRED_SECOND, &left, NULL, &why);
    rank_check_msg(rc == 0, "shrink: %d, %s", rc, why.text);
    rank_check_int(ringred_comm_size(left), me->size - 1);
    (void)ringred_comm_destroy(comm); /* says how it broke */
    check_sum(left, 1000);
    coll_close(left);
}

static void in_pieces(long bytes)
{
    short_io_set(bytes); /* the ranks are forks */
    printf("             pieces of %ld\n", bytes);
    coll_each(layouts, sizeof layouts / sizeof *layouts, job, 120);
    short_io_set(-1);
}

static void test_a_byte_at_a_time(void **state)
{
    (void)state;
    in_pieces(1);
}

static void test_few_bytes_at_a_time(void **state)
{
    (void)state;
    in_pieces(0);
    in_pieces(7);
}

/* Handshakes are in messages of 16 to 88 bytes, heads have 16 and 32, records 20 more than they hold. */
static void test_pieces_about_as_long_as_what_is_sent(void **state)
{
    (void)state;
    in_pieces(19);
    in_pieces(33);
    in_pieces(1021);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_byte_at_a_time),
        cmocka_unit_test(test_few_bytes_at_a_time),
        cmocka_unit_test(test_pieces_about_as_long_as_what_is_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
