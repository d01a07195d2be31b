/* SPDX-License-Identifier: Apache-2.0 */
/* Making communicators when something is lacking: each allocation in turn fails, in a rank alone and in
 * one of two. It ends with ENOMEM and a sentence, or works; nothing is left behind. The ranks are
 * threads, so what one of them leaks is seen here. */
#include "base/base.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct side {
    ringred_unique_id id;
    bool has_id;
    int rank, size;
    const char *transport, *patience;
    int status;
    ringred_error why;
};

static int descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int make(struct side *s)
{
    const char *const settings[] = { s->transport, s->patience, "heap=1M", "stage=64K",
                                     "tcp_congestion=system", NULL };
    ringred_comm *comm = NULL;
    ringred_config config;
    float x = 1;

    ringred_config_init(&config, sizeof config);
    config.rank = s->rank;
    config.size = s->size;
    config.id = s->has_id ? &s->id : NULL;
    config.settings = settings;
    int rc = ringred_comm_create(&config, &comm, &s->why);
    if (rc < 0)
        return comm ? 1 : rc;
    rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);
    if (rc < 0) /* the other one failed at the very end */
        (void)ringred_comm_error(comm, &s->why);
    int closed = ringred_comm_destroy(comm);
    return rc ? rc : closed;
}

static void check_end(const struct side *s, long nth)
{
    if (s->status == 0)
        return;
    if (s->status != s->why.code || !s->why.text[0])
        fail_msg("rank %d, allocation %ld: status %d, but code %d, \"%s\"", s->rank, nth, s->status,
                 s->why.code, s->why.text);
}

/* ---- one rank ---- */

static void test_a_rank_alone_does_without_any_one_allocation(void **state)
{
    struct side s = { .rank = 0, .size = 1, .transport = "transport=auto",
                      .patience = "init_timeout=10" };
    int before;
    long failed = 0;

    (void)state;
    assert_int_equal(make(&s), 0);
    before = descriptors();
    for (long nth = 1, made = 0; made >= 0; nth++) {
        made = rr_alloc_count();
        rr_alloc_fail_after(nth, nth % 2);
        s.status = make(&s);
        rr_alloc_fail_after(0, false);
        assert_true(s.status == 0 || s.status == RINGRED_ENOMEM || s.status == RINGRED_ELIMIT);
        check_end(&s, nth);
        failed += s.status != 0;
        if (rr_alloc_count() - made < nth)
            break; /* it had no nth allocation */
    }
    print_message("             %ld allocations failed\n", failed);
    assert_true(failed > 10);
    assert_int_equal(descriptors(), before);
    assert_int_equal(make(&s), 0);
}

/* ---- two ranks ---- */

static void *side_main(void *argument)
{
    struct side *s = argument;

    s->status = make(s);
    return NULL;
}

/* Both ranks' allocations count; which rank has the nth varies, and both must end. One that fails before
 * it has met the other is missed: the other waits for as long as it is told to. */
static void both(struct side *s, const char *transport, long nth, bool from_there)
{
    pthread_t thread[2];
    ringred_error why;

    assert_int_equal(ringred_unique_id_create(&s[0].id, &why), 0);
    s[1].id = s[0].id;
    rr_alloc_fail_after(nth, from_there);
    for (int r = 0; r < 2; r++) {
        s[r].rank = r;
        s[r].size = 2;
        s[r].has_id = true;
        s[r].transport = transport;
        s[r].patience = nth ? "init_timeout=0.1" : "init_timeout=10";
        assert_int_equal(pthread_create(&thread[r], NULL, side_main, &s[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(thread[r], NULL);
    rr_alloc_fail_after(0, false);
}

/* An id that was not used stays open, for a later try; this is one. */
static void use_up(struct side *s)
{
    s->size = 1;
    s->patience = "init_timeout=10";
    int rc = make(s);
    assert_true(rc == 0 || rc == RINGRED_EINVAL); /* it was used */
}

static void fail_each(const char *transport, bool from_there)
{
    static struct side s[2];
    long failed = 0, made = rr_alloc_count();

    memset(s, 0, sizeof s);
    both(s, transport, 0, false);
    assert_int_equal(s[0].status | s[1].status, 0);
    made = rr_alloc_count() - made;
    int before = descriptors();
    for (long nth = 1; nth <= made; nth++) {
        both(s, transport, nth, from_there);
        for (int r = 0; r < 2; r++)
            check_end(&s[r], nth);
        failed += s[0].status || s[1].status;
        use_up(&s[0]);
    }
    print_message("             %s: %ld allocations, %ld failures\n", transport, made, failed);
    assert_true(failed > 10);
    assert_int_equal(descriptors(), before);
}

static void test_two_ranks_both_end_when_an_allocation_fails(void **state)
{
    (void)state;
    fail_each("transport=shm", false);
    fail_each("transport=tcp", false);
}

/* Where shared memory fails, links are tried, and those want memory, too. */
static void test_two_ranks_both_end_when_memory_runs_out(void **state)
{
    (void)state;
    fail_each("transport=auto", true);
}

static void test_descriptors_stay_flat(void **state)
{
    static struct side s[2];
    int before = 0;

    (void)state;
    for (int i = 0; i < 201; i++) {
        both(s, i & 1 ? "transport=shm" : "transport=tcp", 0, false);
        assert_int_equal(s[0].status | s[1].status, 0);
        before = i == 1 ? descriptors() : before;
    }
    assert_int_equal(descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_alone_does_without_any_one_allocation),
        cmocka_unit_test(test_two_ranks_both_end_when_an_allocation_fails),
        cmocka_unit_test(test_two_ranks_both_end_when_memory_runs_out),
        cmocka_unit_test(test_descriptors_stay_flat),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
