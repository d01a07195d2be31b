/* SPDX-License-Identifier: Apache-2.0 */
/* A team of a stranger's, the fake NCCL, through the library. */
#include "coll.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How many calls the fake has had in this process. */
static int calls_of(const char *team)
{
    char file[4096];
    _Atomic int *calls;

    snprintf(file, sizeof file, "%s/libringred-%s.so", getenv("RINGRED_PLUGIN_PATH"), team);
    void *object = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    rank_check_msg(object != NULL, "the team %s was not loaded", team);
    *(void **)&calls = dlsym(object, "fake_nccl_calls");
    rank_check(calls != NULL);
    return atomic_load(calls);
}

static void sums(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float x = (float)me->rank + 1;

    coll_must(comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    rank_check(x == (float)(me->size * (me->size + 1) / 2));
    rank_check_int(calls_of("fakenccl"), 1);
    coll_close(comm);
}

static void test_a_team_adds(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "team=fakenccl", "numerics=fast" } } };

    (void)state;
    coll_each(setups, sizeof setups / sizeof setups[0], sums, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_team_adds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
