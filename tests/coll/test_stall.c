/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that does not move: past stall_warning every rank that waits says in one line which it is and who is missing;
 * and when that rank comes, all goes well. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAYS "has not moved for"

struct stall_case {
    struct coll_setup setup;
    size_t count;
};

struct heard {
    char line[400];
    int times;
};

static void hear(void *context, int32_t level, const char *line)
{
    struct heard *h = context;

    if (level != RINGRED_LOG_WARN || !strstr(line, SAYS))
        return;
    snprintf(h->line, sizeof h->line, "%s", line);
    h->times++;
}

/* Is the number among those of "not here yet: rank 1, 3"? */
static bool is_missed(const char *line, int rank)
{
    const char *at = strstr(line, "not here yet: rank ");
    char *end = NULL;

    for (at = at ? at + strlen("not here yet: rank ") : NULL; at; at = *end == ',' ? end + 1 : NULL)
        if (strtol(at, &end, 10) == rank)
            return true;
    return false;
}

static void wait_and_hear(struct rank *me, ringred_comm *comm, const struct stall_case *c, float *x, struct heard *h)
{
    ringred_request *request;
    int culprit = me->size - 1;
    bool late = me->rank == culprit;

    h->times = 0;
    if (late)
        ranks_meet(me);
    coll_must(comm, ringred_allreduce_start(comm, x, x, c->count, RINGRED_FLOAT32, RINGRED_MAX, &request), "start");
    while (!late && !h->times)
        rank_check_int(ringred_wait(request, RINGRED_SECOND / 10), RINGRED_PENDING);
    if (!late) {
        rank_check_msg(is_missed(h->line, culprit), "rank %d is not missed: %s", culprit, h->line);
        rank_check_msg(strstr(h->line, "allreduce (max)") && strstr(h->line, "operation "), "which one? %s", h->line);
        rank_check_int(ringred_wait(request, RINGRED_SECOND / 5), RINGRED_PENDING);
        rank_check_int(h->times, 1);
        ranks_meet(me);
    }
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    rank_check(x[c->count - 1] == (float)me->size);
}

static void stalled(struct rank *me)
{
    const struct stall_case *c = me->argument;
    struct heard h = { { 0 }, 0 };
    ringred_config wishes;
    float *x = malloc(c->count * sizeof *x);

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = hear;
    wishes.log_context = &h;
    ringred_comm *comm = coll_open_with(me, &c->setup, &wishes);
    for (int round = 0; round < 2; round++) { /* the second one, too */
        for (size_t i = 0; i < c->count; i++)
            x[i] = (float)(me->rank + 1);
        wait_and_hear(me, comm, c, x, &h);
    }
    free(x);
    coll_close(comm);
}

#define STALL "stall_warning=0.4", "timeout=60"

static void test_who_is_missing_is_said_once(void **state)
{
    static const struct stall_case cases[] = {
        { { 2, { "transport=shm", STALL } }, 4 },
        { { 3, { "transport=shm", STALL } }, 1 << 12 },
        { { 3, { "transport=shm", STALL } }, 1 << 18 },
        { { 2, { "transport=tcp", STALL } }, 4 },
        { { 3, { "transport=tcp", STALL } }, 1 << 18 },
        { { 4, { "ranks_per_host=2", STALL } }, 1 << 10 },
        { { 4, { "ranks_per_host=2", STALL } }, 1 << 18 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ranks_plan plan = { .size = cases[i].setup.ranks, .run = stalled,
                                         .argument = (void *)(uintptr_t)&cases[i] };
        char text[200];
        coll_setup_text(&cases[i].setup, text, sizeof text);
        print_message("             %s, %zu elements\n", text, cases[i].count);
        ranks_run(&plan);
    }
}

/* Rank 1 waits for a message, which rank 0 sends when it has been missed. */
static void stalled_message(struct rank *me)
{
    struct heard h = { { 0 }, 0 };
    ringred_config wishes;
    ringred_request *request;
    int32_t x[2] = { 0 };

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = hear;
    wishes.log_context = &h;
    ringred_comm *comm = coll_open_with(me, me->argument, &wishes);
    if (me->rank == 1) {
        coll_must(comm, ringred_recv_start(comm, x, 2, RINGRED_INT32, 0, 5, NULL, &request), "recv");
        while (!h.times)
            rank_check_int(ringred_wait(request, RINGRED_SECOND / 10), RINGRED_PENDING);
        rank_check_msg(strstr(h.line, "of 2 int32 with tag 5 from rank 0 " SAYS), "which one? %s", h.line);
        rank_check_int(ringred_wait(request, RINGRED_SECOND / 5), RINGRED_PENDING);
        rank_check_int(h.times, 1);
    }
    ranks_meet(me);
    if (me->rank == 0)
        coll_must(comm, ringred_send(comm, x, 2, RINGRED_INT32, 1, 5), "send");
    else
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    coll_close(comm);
}

static void test_a_message_that_does_not_come_is_told_of_once(void **state)
{
    static const struct coll_setup two[] = { { 2, { "transport=shm", STALL } }, { 2, { "transport=tcp", STALL } } };

    (void)state;
    coll_each(two, 2, stalled_message, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_missing_is_said_once),
        cmocka_unit_test(test_a_message_that_does_not_come_is_told_of_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
