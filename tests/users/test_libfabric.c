/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the plug-in of libfabric.c, alone and beside shared memory. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef FABRIC
#define MOST 300000

static void sum_all(struct rank *me)
{
    static const size_t counts[] = { 1, 1000, MOST };
    static float send[MOST], recv[MOST];
    ringred_comm *comm = coll_open(me, me->argument);
    const float ranks = (float)(me->size * (me->size + 1) / 2);

    for (int i = 0; i < 3 * 5; i++) {
        for (size_t k = 0; k < counts[i / 5]; k++)
            send[k] = (float)((k + (size_t)i) % 1000) * (float)(me->rank + 1);
        coll_must(comm, ringred_allreduce(comm, send, recv, counts[i / 5], RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
        for (size_t k = 0; k < counts[i / 5]; k++)
            rank_check(recv[k] == (float)((k + (size_t)i) % 1000) * ranks);
    }
    coll_close(comm);
}

static void test_sums_over_libfabric_are_right(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=libfabric" } },
        { 3, { "transport=libfabric" } },
        { 4, { "transport=libfabric", "progress=thread" } },
        { 4, { "transport=shm,libfabric", "ranks_per_host=2" } },
    };

    (void)state;
    coll_each(setups, sizeof setups / sizeof setups[0], sum_all, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sums_over_libfabric_are_right) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    puts("SKIP: built without libfabric (Debian: libfabric-dev)");
    return 77;
}
#endif
