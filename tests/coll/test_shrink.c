/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of those that are left, and of more. Each rank adds a bit of its own, so that a sum says who took part. */
#include "coll.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT "timeout=30"

static uint64_t seed;

static const struct coll_setup layouts[] = {
    { 4, { "transport=shm", TIMEOUT } },
    { 4, { "transport=tcp", TIMEOUT } },
    { 4, { "ranks_per_host=2", TIMEOUT } },
    { 4, { "ranks_per_host=2", "progress=thread", TIMEOUT } },
    { 5, { "hosts=aabab", TIMEOUT } },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

struct shrink_case {
    const struct coll_setup *setup;
    unsigned die;               /* ranks that are killed in the middle of operations */
    unsigned die_later;         /* ranks that are killed while the others look for each other */
    unsigned stay_away;         /* ranks that live, and do not come in time */
    int after;                  /* how often a rank that is killed later has been asked whether to go on */
};

static int asked, dies_after;

static int32_t die_when_asked(void *context)
{
    (void)context;
    if (dies_after && ++asked >= dies_after)
        (void)kill(getpid(), SIGKILL);
    return 0;
}

static unsigned bits_of(ringred_comm *comm, int bit)
{
    int32_t x = 1 << bit, sum = 0;

    coll_must(comm, ringred_allreduce(comm, &x, &sum, 1, RINGRED_INT32, RINGRED_SUM), "sum over those that are left");
    return (unsigned)sum;
}

/* Operations until one fails, since a rank is killed in one of them. */
static void until_broken(struct rank *me, ringred_comm *comm, const struct shrink_case *c)
{
    static float x[100000];
    int32_t rc = 0;
    int i = 0;

    for (; rc == 0; i++) {
        if (c->die >> me->rank & 1 && i == 5)
            (void)kill(getpid(), SIGKILL);
        if (!c->die && i == 5)
            rc = me->rank == 0 ? ringred_comm_abort(comm) : 0;
        rc = rc ? rc : ringred_allreduce(comm, x, x, i % 2 ? 10 : 100000, RINGRED_FLOAT32, RINGRED_MAX);
    }
    if (c->die >> me->rank & 1) /* another of them was quicker */
        (void)kill(getpid(), SIGKILL);
    rank_check_msg(rc == RINGRED_EPEER || rc == RINGRED_EABORTED, "status %d in operation %d", rc, i);
}

static unsigned members_of(const struct rank *me, const struct shrink_case *c)
{
    return ((1u << me->size) - 1) & ~(c->die | c->die_later | c->stay_away);
}

/* The ranks are those of `members`, in order, here and in what is summed. */
static void check_members(ringred_comm *comm, const struct rank *me, unsigned members, const int32_t *ranks)
{
    int n = 0;

    for (int r = 0; r < me->size; r++) {
        if (!(members >> r & 1))
            continue;
        rank_check_int(ranks[n], r);
        if (r == me->rank)
            rank_check_int(ringred_comm_rank(comm), n);
        n++;
    }
    rank_check_int(ringred_comm_size(comm), n);
    rank_check_int(bits_of(comm, me->rank), members);
}

static void lose_some(struct rank *me)
{
    const struct shrink_case *c = me->argument;
    ringred_comm *comm, *smaller = NULL;
    int32_t ranks[RANKS_MOST];
    ringred_config wishes;
    ringred_error why;

    ringred_config_init(&wishes, sizeof wishes);
    wishes.interrupt = die_when_asked;
    comm = coll_open_with(me, c->setup, &wishes);
    until_broken(me, comm, c);
    asked = 0;
    dies_after = c->die_later >> me->rank & 1 ? c->after : 0;
    int32_t rc = ringred_comm_shrink(comm, 20 * RINGRED_SECOND, &smaller, ranks, &why);
    rank_check_msg(rc == 0, "shrink: %d, %s", rc, why.text);
    if (dies_after) /* it was quicker */
        (void)kill(getpid(), SIGKILL);
    (void)ringred_comm_destroy(comm); /* says how it broke */
    if (c->die_later) { /* it may be a member, and then one more round is needed */
        int32_t x = 0;
        ringred_comm *last = NULL;
        while ((rc = ringred_allreduce(smaller, &x, &x, 1, RINGRED_INT32, RINGRED_SUM)) == 0 &&
               ringred_comm_size(smaller) > __builtin_popcount(members_of(me, c)))
            ;
        if (rc < 0) {
            int32_t of[RANKS_MOST];
            rc = ringred_comm_shrink(smaller, 20 * RINGRED_SECOND, &last, of, &why);
            rank_check_msg(rc == 0, "shrink again: %d, %s", rc, why.text);
            for (int r = 0; r < ringred_comm_size(last); r++)
                ranks[r] = ranks[of[r]];
            (void)ringred_comm_destroy(smaller); /* broken, too */
            smaller = last;
        }
    }
    check_members(smaller, me, members_of(me, c), ranks);
    coll_close(smaller);
}

static void run_case(const struct shrink_case *c, void (*run)(struct rank *me))
{
    ranks_run(&(struct ranks_plan){ .size = c->setup->ranks, .run = run, .argument = (void *)(uintptr_t)c,
                                    .deadline_s = 60, .may_die = c->die | c->die_later });
}

static void test_those_that_are_left_go_on_whoever_dies(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int r = 0; r < layouts[i].ranks; r++)
            run_case(&(struct shrink_case){ .setup = &layouts[i], .die = 1u << r }, lose_some);
}

static void test_a_minority_goes_on_if_the_others_are_proved_dead(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++) {
        unsigned all = (1u << layouts[i].ranks) - 1;
        run_case(&(struct shrink_case){ .setup = &layouts[i], .die = all & ~2u }, lose_some);
        run_case(&(struct shrink_case){ .setup = &layouts[i], .die = 3 }, lose_some);
    }
}

static void test_nobody_needs_to_die(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        run_case(&(struct shrink_case){ .setup = &layouts[i] }, lose_some);
}

static void test_one_more_dies_meanwhile(void **state)
{
    struct numbers_random random = { seed };

    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < 4; k++) {
            unsigned first = 1u << numbers_below(&random, (uint64_t)layouts[i].ranks), later = first;
            while (later == first)
                later = 1u << numbers_below(&random, (uint64_t)layouts[i].ranks);
            run_case(&(struct shrink_case){ .setup = &layouts[i], .die = k % 2 ? first : 0, .die_later = later,
                                            .after = 1 + (int)numbers_below(&random, 12) }, lose_some);
        }
}

/* ---- as it was configured ---- */

/* All of it, with its end; good until the next. */
static const char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "re");

    rank_check_msg(f != NULL, "there is no %s", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

/* The table of choices has gone since; the trace is of what there was before. */
static void go_on_as_before(struct rank *me)
{
    const struct shrink_case *c = me->argument;
    ringred_comm *comm = coll_open(me, c->setup), *smaller = NULL;
    char said[1 << 14], trace[64], *before;
    int32_t ranks[RANKS_MOST];
    ringred_error why;

    ranks_meet(me);
    if (me->rank == 0)
        unlink(c->setup->setting[0] + strlen("tuning="));
    ranks_meet(me);
    until_broken(me, comm, c);
    int32_t rc = ringred_comm_shrink(comm, 20 * RINGRED_SECOND, &smaller, ranks, &why);
    rank_check_msg(rc == 0, "shrink: %d, %s", rc, why.text);
    check_members(smaller, me, members_of(me, c), ranks);
    rank_check(ringred_comm_dump(smaller, said, sizeof said) < (int64_t)sizeof said);
    rank_check_msg(strstr(said, "\"algorithm\":\"doubling\"") != NULL, "%s", said);
    (void)ringred_comm_destroy(comm); /* says how it broke */
    snprintf(trace, sizeof trace, "%s-%d", c->setup->setting[0] + strlen("tuning="), me->rank);
    before = strdup(text_of(trace));
    rank_check(before && strstr(before, "allreduce") != NULL);
    coll_close(smaller);
    rank_check(strcmp(text_of(trace), before) == 0);
    free(before);
    unlink(trace);
}

static void test_what_is_made_has_the_same_table_and_leaves_the_trace_alone(void **state)
{
    char table[] = "tuning=/tmp/ringred-tuning-XXXXXX", trace[64];
    struct coll_setup setup = { 3, { table, trace, "transport=tcp", TIMEOUT } };
    int fd = mkstemp(table + strlen("tuning="));

    (void)state;
    assert_true(fd >= 0 && dprintf(fd, "ringred-tuning 1\nallreduce * * * * doubling\n") > 0);
    close(fd);
    snprintf(trace, sizeof trace, "trace=%s-%%r", table + strlen("tuning="));
    run_case(&(struct shrink_case){ .setup = &setup }, go_on_as_before);
}

/* ---- those that live and do not come ---- */

static void come_late(struct rank *me)
{
    const struct shrink_case *c = me->argument;
    ringred_comm *comm = coll_open(me, c->setup), *smaller = NULL;
    bool away = c->stay_away >> me->rank & 1;
    int32_t ranks[RANKS_MOST];
    ringred_error why;

    until_broken(me, comm, c);
    if (away)
        ranks_meet(me);
    int32_t rc = ringred_comm_shrink(comm, 2 * RINGRED_SECOND, &smaller, ranks, &why);
    if (away == !c->after) {
        rank_check_msg(rc == 0, "shrink: %d, %s", rc, why.text);
        check_members(smaller, me, away ? c->stay_away : members_of(me, c), ranks);
    } else {
        rank_check_msg(rc == RINGRED_EPARTITION, "status %d: %s", rc, why.text);
        rank_check(why.rank >= 0 && smaller == NULL);
    }
    if (!away)
        ranks_meet(me);
    (void)ringred_comm_destroy(comm); /* says how it broke */
    ranks_meet(me);
    if (smaller)
        coll_close(smaller);
}

static void test_half_goes_on_with_rank_0_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) { /* after: they may go on; else those who stayed away may, later */
        run_case(&(struct shrink_case){ .setup = &layouts[i], .stay_away = 8, .after = 1 }, come_late);
        run_case(&(struct shrink_case){ .setup = &layouts[i], .stay_away = 12, .after = 1 }, come_late);
        run_case(&(struct shrink_case){ .setup = &layouts[i], .stay_away = 3 }, come_late);
        run_case(&(struct shrink_case){ .setup = &layouts[i], .stay_away = 7 }, come_late);
    }
}

/* ---- again and again ---- */

static void shrink_to_one(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup), *smaller = NULL;
    ringred_error why;

    for (int n = setup->ranks; n > 1; n--) {
        if (ringred_comm_rank(comm) == n / 2) {
            (void)ringred_comm_destroy(comm); /* as if it had ended */
            return;
        }
        int32_t rc = ringred_comm_shrink(comm, 20 * RINGRED_SECOND, &smaller, NULL, &why);
        rank_check_msg(rc == 0, "to %d: %d, %s", n - 1, rc, why.text);
        rank_check_int(ringred_comm_size(smaller), n - 1);
        (void)ringred_comm_destroy(comm); /* broken */
        comm = smaller;
    }
    rank_check_int(bits_of(comm, 0), 1);
    rank_check_int(ringred_comm_shrink(comm, 0, &smaller, NULL, &why), 0);
    rank_check_int(ringred_comm_size(smaller), 1);
    (void)ringred_comm_destroy(comm); /* aborted by it */
    coll_close(smaller);
}

static void test_one_after_the_other_leaves(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, shrink_to_one, 60);
}

/* More generations than those whose listeners are kept; then one rank misses one. The others live: it must see that. */
static void sleep_late(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup), *smaller = NULL;
    bool away = me->rank == me->size - 1;
    ringred_error why;
    int32_t rc;

    for (int i = 0; i < (setup->ranks == 3 ? 7 : 12); i++) { /* eight are kept beside the newest */
        rc = ringred_comm_shrink(comm, 20 * RINGRED_SECOND, &smaller, NULL, &why);
        rank_check_msg(rc == 0, "generation %d: %d, %s", i, rc, why.text);
        (void)ringred_comm_destroy(comm); /* aborted by it */
        comm = smaller;
    }
    if (away)
        ranks_meet(me);
    rc = ringred_comm_shrink(comm, 2 * RINGRED_SECOND, &smaller, NULL, &why);
    rank_check_msg(rc == (away ? RINGRED_EPARTITION : 0), "%d, %s", rc, why.text);
    (void)ringred_comm_destroy(comm);
    if (!away)
        ranks_meet(me);
    ranks_meet(me); /* the others live until it has tried */
    if (!away)
        coll_close(smaller);
}

static void test_one_that_misses_a_generation_never_goes_on_beside_it(void **state)
{
    static const struct coll_setup setups[] = {
        { 3, { "transport=shm" } }, { 3, { "transport=tcp" } }, { 4, { "ranks_per_host=2" } },
    };

    (void)state;
    coll_each(setups, 3, sleep_late, 60);
}

/* ---- growing ---- */

/* The last rank is no member at first. */
static void grow_by_one(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = NULL, *larger = NULL;
    ringred_unique_id id;
    ringred_config config;
    ringred_error why;
    int32_t rc = 0;

    for (int round = 0; round < 3; round++) {
        struct rank part = *me;
        ringred_unique_id first;
        memset(&id, 0, sizeof id);
        memset(&first, 0, sizeof first);
        if (me->rank == 0) {
            rank_check_int(ringred_unique_id_create(&first, &why), 0);
            rank_check_int(ringred_unique_id_create(&id, &why), 0);
        }
        ranks_pass(me, &first, sizeof first);
        ranks_pass(me, &id, sizeof id);
        ringred_config_init(&config, sizeof config);
        config.settings = setup->setting;
        config.rank = me->rank;
        config.size = part.size = me->size - 1;
        config.id = &first;
        if (me->rank < part.size) {
            rank_check_int(ringred_comm_create(&config, &comm, &why), 0);
            rank_check_int(bits_of(comm, me->rank), (1 << part.size) - 1);
            rc = ringred_comm_grow(comm, &id, me->size, 20 * RINGRED_SECOND, &larger, &why);
        } else {
            config.size = me->size;
            config.id = &id;
            rc = ringred_comm_create(&config, &larger, &why);
        }
        rank_check_msg(rc == 0, "grow: %d, %s", rc, why.text);
        rank_check_int(ringred_comm_rank(larger), me->rank);
        rank_check_int(bits_of(larger, me->rank), (1 << me->size) - 1);
        if (comm) {
            rank_check_int(bits_of(comm, me->rank), (1 << part.size) - 1); /* it is as it was */
            coll_close(comm);
        }
        comm = NULL;
        coll_close(larger);
    }
}

static void test_a_rank_that_was_not_there_joins(void **state)
{
    static const struct coll_setup setups[] = {
        { 4, { "transport=shm" } }, { 4, { "transport=tcp" } }, { 4, { "ranks_per_host=2" } }, { 2, { "transport=auto" } },
    };

    (void)state;
    coll_each(setups, 4, grow_by_one, 60);
}

static void refuse_to_grow(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm = coll_open(me, setup), *larger = NULL, *part = NULL;
    ringred_unique_id id;
    ringred_error why;

    memset(&id, 0, sizeof id);
    rank_check_int(ringred_comm_grow(comm, &id, me->size, 0, &larger, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_grow(comm, &id, me->size + 1, -7, &larger, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_grow(comm, &id, me->size + 1, 0, NULL, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_grow(comm, &id, me->size + 1, 0, &larger, &why), RINGRED_EINVAL); /* no id at all */
    rank_check_int(why.rank, 0);
    if (me->rank == 0)
        rank_check_int(ringred_unique_id_create(&id, &why), 0);
    rank_check_int(ringred_comm_grow(comm, &id, me->size + 1 + me->rank, 0, &larger, &why), RINGRED_EINVAL);
    rank_check_msg(strstr(why.text, "rank 1 wants to grow to 5 ranks, rank 0 to 4") != NULL, "%s", why.text);
    rank_check_int(ringred_comm_grow(comm, &id, me->size + 1, RINGRED_SECOND, &larger, &why), RINGRED_ETIMEOUT);
    rank_check_msg(strstr(why.text, "rank 3") != NULL, "%s", why.text); /* nobody came */
    rank_check_int(bits_of(comm, me->rank), (1 << me->size) - 1);
    rank_check(larger == NULL);
    rank_check_int(ringred_comm_split(comm, 0, 0, &part), 0);
    rank_check_int(ringred_comm_shrink(part, 0, &larger, NULL, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_grow(part, &id, me->size + 1, 0, &larger, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_shrink(comm, -7, &larger, NULL, &why), RINGRED_EINVAL);
    rank_check_int(ringred_comm_shrink(comm, 0, NULL, NULL, &why), RINGRED_EINVAL);
    rank_check_int(bits_of(part, me->rank), (1 << me->size) - 1);
    coll_close(part);
    coll_close(comm);
}

static void test_what_is_wrong_is_refused_and_changes_nothing(void **state)
{
    static const struct coll_setup setups[] = { { 3, { "transport=shm" } }, { 3, { "transport=tcp" } } };

    (void)state;
    coll_each(setups, 2, refuse_to_grow, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_those_that_are_left_go_on_whoever_dies),
        cmocka_unit_test(test_a_minority_goes_on_if_the_others_are_proved_dead),
        cmocka_unit_test(test_nobody_needs_to_die),
        cmocka_unit_test(test_one_more_dies_meanwhile),
        cmocka_unit_test(test_what_is_made_has_the_same_table_and_leaves_the_trace_alone),
        cmocka_unit_test(test_half_goes_on_with_rank_0_only),
        cmocka_unit_test(test_one_after_the_other_leaves),
        cmocka_unit_test(test_one_that_misses_a_generation_never_goes_on_beside_it),
        cmocka_unit_test(test_a_rank_that_was_not_there_joins),
        cmocka_unit_test(test_what_is_wrong_is_refused_and_changes_nothing),
    };
    const char *given = getenv("SEED");

    seed = given ? strtoull(given, NULL, 0) : (uint64_t)getpid();
    printf("SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
