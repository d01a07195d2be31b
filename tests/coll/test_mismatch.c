/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that ask for different collectives are told so, every one of them, in this call or the next,
 * and never get success with wrong numbers. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum wrong { COUNT, TYPE, OP, ROOT, KIND, ZERO, WRONGS };

struct campaign {
    const struct coll_setup *setup;
    enum wrong wrong;
    size_t count;
};

/* One rank asks for something else than the others. */
static int32_t ask(ringred_comm *comm, const struct campaign *p, bool odd, void *x)
{
    size_t count = p->count;
    int32_t type = RINGRED_FLOAT32, op = RINGRED_SUM;

    if (p->wrong == ROOT)
        return ringred_broadcast(comm, x, x, count, type, odd ? 1 : 0);
    if (p->wrong == KIND && odd)
        return ringred_barrier(comm);
    if (odd) {
        count = p->wrong == ZERO ? 0 : p->wrong == COUNT ? count + 1 : count;
        type = p->wrong == TYPE ? RINGRED_FLOAT64 : type;
        op = p->wrong == OP ? RINGRED_AVG : op;
    }
    return ringred_allreduce(comm, x, x, count, type, op);
}

static void disagree(struct rank *me)
{
    const struct campaign *p = me->argument;
    ringred_comm *comm = coll_open(me, p->setup);
    void *x = calloc(p->count + 1, 8);
    ringred_error error;
    int32_t rc;

    rank_check(x != NULL);
    coll_must(comm, ringred_barrier(comm), "the agreed call before");
    ranks_meet(me); /* else a rank may still be in that call when the others find out */
    rc = ask(comm, p, me->rank == me->size - 1, x);
    if (rc == 0)
        rc = ringred_barrier(comm); /* "in this call or the next" */
    rank_check_msg(rc == RINGRED_EMISMATCH, "wrong %d, %zu elements: %d (%s)", (int)p->wrong, p->count, rc,
                   ringred_status_text(rc));
    rank_check_int(ringred_barrier(comm), RINGRED_EMISMATCH);
    ringred_error_init(&error);
    rank_check_int(ringred_comm_error(comm, &error), 0);
    rank_check_int(error.code, RINGRED_EMISMATCH);
    rank_check_msg(strstr(error.text, "rank") != NULL, "the sentence names no rank: %s", error.text);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EMISMATCH);
    free(x);
}

static void all_wrongs(const struct coll_setup *setup)
{
    static const size_t counts[] = { 1, 100, 100000 };

    for (int wrong = 0; wrong < WRONGS; wrong++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct campaign p = { setup, (enum wrong)wrong, counts[i] };

            ranks_fork(setup->ranks, disagree, &p);
        }
}

static void test_shared_memory_finds_disagreement(void **state)
{
    static const struct coll_setup two = { 2, { "transport=shm" } }, three = { 3, { "transport=shm" } };

    (void)state;
    all_wrongs(&two);
    all_wrongs(&three);
}

static void test_links_find_disagreement(void **state)
{
    static const struct coll_setup two = { 2, { "transport=tcp" } }, three = { 3, { "transport=tcp" } };

    (void)state;
    all_wrongs(&two);
    all_wrongs(&three);
}

static void test_hosts_find_disagreement(void **state)
{
    static const struct coll_setup four = { 4, { "ranks_per_host=2" } };

    (void)state;
    all_wrongs(&four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory_finds_disagreement),
        cmocka_unit_test(test_links_find_disagreement),
        cmocka_unit_test(test_hosts_find_disagreement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
