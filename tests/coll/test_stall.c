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
    int ranks;
    const char *setting;
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

static ringred_comm *open_hearing(struct rank *me, const char *setting, struct heard *h)
{
    const char *settings[] = { "timeout=60", "stall_warning=0.4", "log=none", setting, NULL };
    ringred_unique_id id;
    ringred_config config;
    ringred_comm *comm = NULL;
    ringred_error why;

    memset(&id, 0, sizeof id);
    ringred_error_init(&why);
    if (me->rank == 0)
        rank_check_int(ringred_unique_id_create(&id, &why), 0);
    ranks_pass(me, &id, sizeof id);
    ringred_config_init(&config, sizeof config);
    config.rank = me->rank;
    config.size = me->size;
    config.id = &id;
    config.settings = settings;
    config.log = hear;
    config.log_context = h;
    rank_check_msg(ringred_comm_create(&config, &comm, &why) == 0, "no communicator: %s", why.text);
    return comm;
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
    ringred_comm *comm = open_hearing(me, c->setting, &h);
    float *x = malloc(c->count * sizeof *x);

    for (int round = 0; round < 2; round++) { /* the second one, too */
        for (size_t i = 0; i < c->count; i++)
            x[i] = (float)(me->rank + 1);
        wait_and_hear(me, comm, c, x, &h);
    }
    free(x);
    coll_must(comm, ringred_comm_destroy(comm), "destroy");
}

static void test_who_is_missing_is_said_once(void **state)
{
    static const struct stall_case cases[] = {
        { 2, "transport=shm", 4 },      { 3, "transport=shm", 1 << 12 },    { 3, "transport=shm", 1 << 18 },
        { 2, "transport=tcp", 4 },      { 3, "transport=tcp", 1 << 18 },    { 4, "ranks_per_host=2", 1 << 10 },
        { 4, "ranks_per_host=2", 1 << 18 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ranks_plan plan = { .size = cases[i].ranks, .run = stalled,
                                         .argument = (void *)(uintptr_t)&cases[i] };
        print_message("             %d ranks, %s, %zu elements\n", cases[i].ranks, cases[i].setting, cases[i].count);
        ranks_run(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_missing_is_said_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
