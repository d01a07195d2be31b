/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: gradients in any order, by any thread, over several steps, in buckets of any size, become what allreduce makes
 * of each; ranks that have others are told; what makes no sense is refused in words. */
#include "coll.h"

#include <ringred/fusion.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY  60
#define STEPS 6

static const struct coll_setup setups[] = {
    { 1, { "transport=shm" } },
    { 2, { "transport=shm" } },
    { 3, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
    { 3, { "transport=shm", "progress=thread" } },
    { 2, { "transport=tcp", "progress=thread", "tcp_streams=2" } },
};
enum { SETUPS = sizeof setups / sizeof setups[0] };

struct gradient {
    char key[40];
    int32_t type;
    size_t count;
    void *at, *alone;
};

struct model {
    ringred_comm *comm;
    ringred_fusion *fusion;
    struct gradient g[MANY];
};

static void must(struct model *m, int32_t rc, const char *what)
{
    ringred_error why;

    ringred_error_init(&why);
    if (rc != 0)
        (void)ringred_fusion_error(m->fusion, &why);
    rank_check_msg(rc == 0, "%s: %d, %s", what, rc, why.text);
}

static void open_model(struct model *m, struct rank *me, size_t bucket)
{
    static const int32_t types[] = { RINGRED_FLOAT32, RINGRED_BFLOAT16, RINGRED_FLOAT16, RINGRED_FLOAT64 };
    ringred_fusion_options o;
    ringred_error why;
    struct numbers_random all = { 5 };

    m->comm = coll_open(me, me->argument);
    ringred_fusion_options_init(&o, sizeof o);
    o.bucket_bytes = bucket;
    int32_t rc = ringred_fusion_create(m->comm, &o, &m->fusion, &why);
    rank_check_msg(rc == 0, "%s", why.text);
    for (int i = 0; i < MANY; i++) {
        struct gradient *g = &m->g[i];
        snprintf(g->key, sizeof g->key, "layer%d.weight", i);
        g->type = types[numbers_below(&all, 4)];
        g->count = numbers_below(&all, 8) ? numbers_below(&all, 5000) : 30000 + numbers_below(&all, 90000);
        g->at = malloc(g->count * 8 + 8);
        g->alone = malloc(g->count * 8 + 8);
        rank_check(g->at && g->alone);
    }
}

static void free_model(struct model *m)
{
    for (int i = 0; i < MANY; i++) {
        free(m->g[i].at);
        free(m->g[i].alone);
    }
}

static void close_model(struct model *m)
{
    must(m, ringred_fusion_destroy(m->fusion), "destroy");
    coll_close(m->comm);
    free_model(m);
}

static void fill(struct model *m, struct rank *me, int step)
{
    for (int i = 0; i < MANY; i++) {
        struct gradient *g = &m->g[i];
        numbers_fill(g->at, g->type, NUMBERS_ROUNDING, (uint64_t)(1000 * step + i), me->rank, 0, g->count);
        memcpy(g->alone, g->at, g->count * numbers_bytes(g->type));
    }
}

static void compare(struct model *m, const char *what)
{
    for (int i = 0; i < MANY; i++) {
        struct gradient *g = &m->g[i];
        coll_must(m->comm, ringred_allreduce(m->comm, g->alone, g->alone, g->count, g->type, RINGRED_AVG), "allreduce");
        rank_check_msg(memcmp(g->at, g->alone, g->count * numbers_bytes(g->type)) == 0, "%s: %s is not what it is alone", what,
                       g->key);
    }
}

static void add(struct model *m, int i)
{
    must(m, ringred_fusion_add(m->fusion, m->g[i].key, m->g[i].at, m->g[i].count, m->g[i].type), m->g[i].key);
}

static void shuffle(int *order, struct numbers_random *mine)
{
    for (int i = 0; i < MANY; i++)
        order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        int k = (int)numbers_below(mine, (uint64_t)i + 1), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
}

static void steps_with(struct rank *me, size_t bucket)
{
    struct numbers_random mine = { 77 + (uint64_t)me->rank };
    struct model m;
    int order[MANY];

    open_model(&m, me, bucket);
    for (int step = 0; step < STEPS; step++) {
        fill(&m, me, step);
        shuffle(order, &mine);
        for (int i = 0; i < MANY; i++) {
            add(&m, order[i]);
            if (numbers_below(&mine, 5) == 0) {
                int32_t rc = ringred_fusion_poll(m.fusion);
                rank_check(rc == 0 || rc == RINGRED_PENDING);
            }
        }
        must(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), "wait");
        compare(&m, "fused");
    }
    close_model(&m);
}

static void any_order(struct rank *me)
{
    steps_with(me, 0);
    ranks_meet(me);
    steps_with(me, 1);
    ranks_meet(me);
    steps_with(me, 100000);
    ranks_meet(me);
    steps_with(me, SIZE_MAX);
}

static void test_each_gradient_becomes_what_it_is_alone(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, any_order, 120);
}

/* ---- several threads ---- */

struct part {
    struct model *m;
    int first;
};

static void *add_some(void *argument)
{
    struct part *p = argument;

    for (int i = p->first; i < MANY; i += 3)
        add(p->m, i);
    return NULL;
}

static void by_threads(struct rank *me)
{
    struct model m;
    pthread_t thread[3];

    open_model(&m, me, 50000);
    for (int step = 0; step < STEPS; step++) {
        struct part part[3];
        fill(&m, me, step);
        for (int i = 0; i < 3; i++) {
            part[i] = (struct part){ &m, i };
            rank_check_int(pthread_create(&thread[i], NULL, add_some, &part[i]), 0);
        }
        for (int i = 0; i < 3 && step == 0; i++)
            pthread_join(thread[i], NULL);
        int32_t rc = step ? ringred_fusion_wait(m.fusion, 0) : 0; /* beside them */
        rank_check(rc == 0 || rc == RINGRED_PENDING);
        for (int i = 0; i < 3 && step; i++)
            pthread_join(thread[i], NULL);
        must(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), "wait");
        compare(&m, "by threads");
    }
    close_model(&m);
}

static void test_any_thread_may_add(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, by_threads, 120);
}

/* ---- what is refused, and found ---- */

static void told(struct model *m, int32_t rc, int32_t code, const char *words)
{
    ringred_error why;

    rank_check_int(rc, code);
    ringred_error_init(&why);
    rank_check_int(ringred_fusion_error(m->fusion, &why), 0);
    rank_check_int(why.code, code);
    rank_check_msg(strstr(why.text, words) != NULL, "\"%s\" does not say \"%s\"", why.text, words);
}

static void refuse(struct rank *me)
{
    ringred_fusion_options o;
    struct model m;
    char large[300] = "";
    float x[4] = { 0 };

    open_model(&m, me, 0);
    ringred_fusion *f = m.fusion;
    memset(large, 'k', sizeof large - 1);
    rank_check_int(ringred_fusion_add(NULL, "a", x, 4, RINGRED_FLOAT32), RINGRED_EINVAL);
    rank_check_int(ringred_fusion_wait(NULL, 0), RINGRED_EINVAL);
    rank_check_int(ringred_fusion_poll(NULL), RINGRED_EINVAL);
    rank_check_int(ringred_fusion_error(f, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_fusion_destroy(NULL), 0);
    told(&m, ringred_fusion_add(f, NULL, x, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "a key is NULL");
    told(&m, ringred_fusion_add(f, "", x, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "a key is empty");
    told(&m, ringred_fusion_add(f, large, x, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "a key is too long");
    told(&m, ringred_fusion_add(f, "a", x, 4, 99), RINGRED_EINVAL, "type 99");
    told(&m, ringred_fusion_add(f, "a", x, 4, RINGRED_BYTES), RINGRED_EINVAL, "no average");
    told(&m, ringred_fusion_add(f, "a", NULL, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "is NULL, but has 4");
    told(&m, ringred_fusion_add(f, "a", x, SIZE_MAX / 2, RINGRED_FLOAT32), RINGRED_EINVAL, "more than memory");
    told(&m, ringred_fusion_wait(f, -2), RINGRED_EINVAL, "-2");
    must(&m, ringred_fusion_wait(f, RINGRED_FOREVER), "a step without any");
    must(&m, ringred_fusion_add(f, "a", x, 4, RINGRED_FLOAT32), "add");
    told(&m, ringred_fusion_add(f, "a", x, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "\"a\" is in this step already");
    must(&m, ringred_fusion_wait(f, RINGRED_FOREVER), "wait");
    told(&m, ringred_fusion_add(f, "b", x, 4, RINGRED_FLOAT32), RINGRED_EINVAL, "\"b\" was not in the first step");
    told(&m, ringred_fusion_add(f, "a", x, 3, RINGRED_FLOAT32), RINGRED_EINVAL, "has 3 elements of float32, and had 4");
    told(&m, ringred_fusion_add(f, "a", x, 4, RINGRED_FLOAT64), RINGRED_EINVAL, "float64, and had 4 of float32");
    must(&m, ringred_fusion_wait(f, 0), "nothing to wait for");
    ringred_fusion_options_init(&o, sizeof o);
    o.op = RINGRED_MAX;
    ringred_error why;
    rank_check_int(ringred_fusion_create(m.comm, &o, &f, &why), RINGRED_EINVAL);
    rank_check(strstr(why.text, "averaged or summed") != NULL);
    o.struct_size = 4;
    rank_check_int(ringred_fusion_create(m.comm, &o, &f, NULL), RINGRED_EINVAL);
    rank_check_int(ringred_fusion_create(NULL, NULL, &f, NULL), RINGRED_EINVAL);
    close_model(&m);
}

static void test_nonsense_is_refused_in_words(void **state)
{
    (void)state;
    ranks_fork(2, refuse, (void *)(uintptr_t)&setups[1]);
}

enum wrong { MISSING, EXTRA, COUNT, TYPE, WRONGS };

struct campaign {
    const struct coll_setup *setup;
    enum wrong wrong;
    int who;
};

static void disagree(struct rank *me)
{
    static const char *const words[] = {
        [MISSING] = "has no gradient \"b\" in the first step",
        [EXTRA] = "has no gradient \"c\" in the first step",
        [COUNT] = "gradient \"b\" has",
        [TYPE] = "gradient \"a\" has",
    };
    const struct campaign *p = me->argument;
    float x[8] = { 0 };
    struct model m;
    bool odd = me->rank == p->who;

    m.comm = coll_open(me, p->setup);
    coll_must(m.comm, ringred_fusion_create(m.comm, NULL, &m.fusion, NULL), "create");
    ranks_meet(me);
    must(&m, ringred_fusion_add(m.fusion, "a", x, 2, odd && p->wrong == TYPE ? RINGRED_INT32 : RINGRED_FLOAT32), "a");
    if (!odd || p->wrong != MISSING)
        must(&m, ringred_fusion_add(m.fusion, "b", x + 2, odd && p->wrong == COUNT ? 3 : 2, RINGRED_FLOAT32), "b");
    if (odd && p->wrong == EXTRA)
        must(&m, ringred_fusion_add(m.fusion, "c", x + 5, 2, RINGRED_FLOAT32), "c");
    told(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), RINGRED_EMISMATCH, words[p->wrong]);
    told(&m, ringred_fusion_add(m.fusion, "a", x, 2, RINGRED_FLOAT32), RINGRED_EMISMATCH, words[p->wrong]);
    coll_must(m.comm, ringred_barrier(m.comm), "the communicator goes on");
    must(&m, ringred_fusion_destroy(m.fusion), "destroy");
    coll_close(m.comm);
}

static void test_ranks_that_have_other_gradients_are_told(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i++)
        for (int wrong = 0; wrong < WRONGS; wrong++)
            for (int who = 0; who < setups[i].ranks; who++) {
                struct campaign p = { &setups[i], (enum wrong)wrong, who };
                ranks_fork(setups[i].ranks, disagree, &p);
            }
}

/* ---- what does not come ---- */

struct heard {
    pthread_mutex_t lock;
    char text[400];
};

static void listen_to(void *context, int32_t level, const char *line)
{
    struct heard *h = context;

    (void)level;
    pthread_mutex_lock(&h->lock);
    if (strstr(line, "fusion:"))
        snprintf(h->text, sizeof h->text, "%s", line);
    pthread_mutex_unlock(&h->lock);
}

static void missing(struct rank *me)
{
    struct heard heard = { .lock = PTHREAD_MUTEX_INITIALIZER };
    ringred_config wishes;
    float x[8] = { 0 };
    struct model m;

    ringred_config_init(&wishes, sizeof wishes);
    wishes.log = listen_to;
    wishes.log_context = &heard;
    m.comm = coll_open_with(me, me->argument, &wishes);
    coll_must(m.comm, ringred_fusion_create(m.comm, NULL, &m.fusion, NULL), "create");
    for (int step = 0; step < 2; step++) {
        must(&m, ringred_fusion_add(m.fusion, "first", x, 2, RINGRED_FLOAT32), "first");
        if (step && me->rank == 1) {
            while (!heard.text[0])
                rank_check_int(ringred_fusion_wait(m.fusion, 300000000), RINGRED_PENDING);
            rank_check_msg(strstr(heard.text, "rank 1 has not added gradient \"late\"") != NULL, "%s", heard.text);
        }
        must(&m, ringred_fusion_add(m.fusion, "late", x + 2, 2, RINGRED_FLOAT32), "late");
        must(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), "wait");
    }
    must(&m, ringred_fusion_destroy(m.fusion), "destroy");
    coll_close(m.comm);
}

static void test_a_gradient_that_does_not_come_is_named(void **state)
{
    static const struct coll_setup setup = { 2, { "stall_warning=0.1", "log=warn" } };

    (void)state;
    ranks_fork(2, missing, (void *)(uintptr_t)&setup);
}

/* The last gradient is added by a function that the library calls, of an operation on another communicator. */
static void add_last(void *context, int32_t status)
{
    rank_check_int(status, 0);
    add(context, MANY - 1);
}

static void by_callback(struct rank *me)
{
    struct model m;
    float x = 1;

    open_model(&m, me, 20000);
    for (int step = 0; step < STEPS; step++) {
        fill(&m, me, step);
        for (int i = 0; i < MANY - (step > 0); i++)
            add(&m, i);
        if (step) {
            ringred_call call;
            ringred_call_init(&call, sizeof call, RINGRED_ALLREDUCE);
            call.send = call.recv = &x;
            call.count = 1;
            call.type = RINGRED_FLOAT32;
            call.op = RINGRED_AVG;
            call.done = add_last;
            call.done_context = &m;
            coll_must(m.comm, ringred_start(m.comm, &call, NULL), "start");
        }
        must(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), "wait");
        compare(&m, "by a callback");
    }
    close_model(&m);
}

static void test_callbacks_may_add(void **state)
{
    (void)state;
    coll_each(setups, SETUPS, by_callback, 60);
}

/* A rank that is lost in the middle of a step. */
static void lost(struct rank *me)
{
    struct model m;
    ringred_error why;

    open_model(&m, me, 20000);
    fill(&m, me, 0);
    for (int i = 0; i < MANY; i++)
        add(&m, i);
    must(&m, ringred_fusion_wait(m.fusion, RINGRED_FOREVER), "wait");
    ranks_meet(me);
    for (int i = 0; i < MANY; i++) {
        if (me->rank == 1 && i == MANY / 2)
            _Exit(0);
        int32_t rc = ringred_fusion_add(m.fusion, m.g[i].key, m.g[i].at, m.g[i].count, m.g[i].type);
        rank_check(rc == 0 || rc == RINGRED_EPEER);
    }
    rank_check_int(ringred_fusion_wait(m.fusion, RINGRED_FOREVER), RINGRED_EPEER);
    ringred_error_init(&why);
    rank_check_int(ringred_fusion_error(m.fusion, &why), 0);
    rank_check_msg(why.code == RINGRED_EPEER && why.rank == 1, "%d, rank %d, %s", why.code, why.rank, why.text);
    rank_check_int(ringred_fusion_poll(m.fusion), RINGRED_EPEER);
    (void)ringred_fusion_destroy(m.fusion); /* tells of it, too */
    (void)ringred_comm_destroy(m.comm);
    free_model(&m);
}

static void test_a_rank_that_is_lost_is_named(void **state)
{
    (void)state;
    for (int i = 1; i < SETUPS; i++)
        ranks_fork(setups[i].ranks, lost, (void *)(uintptr_t)&setups[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_gradient_becomes_what_it_is_alone),
        cmocka_unit_test(test_any_thread_may_add),
        cmocka_unit_test(test_nonsense_is_refused_in_words),
        cmocka_unit_test(test_ranks_that_have_other_gradients_are_told),
        cmocka_unit_test(test_a_gradient_that_does_not_come_is_named),
        cmocka_unit_test(test_callbacks_may_add),
        cmocka_unit_test(test_a_rank_that_is_lost_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
