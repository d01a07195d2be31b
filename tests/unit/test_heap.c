/* SPDX-License-Identifier: Apache-2.0 */
/* ringred_alloc's heaps: where ranges go, what is refused, who outlives whom. */
#include "transport/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CHUNKS 16

static struct rr_shm shm;
static ringred_error why;

static int open_heap(void **state)
{
    (void)state;
    memset(&shm, 0, sizeof shm);
    shm.base.windows = true;
    shm.heap = rr_heap_new(CHUNKS * RR_HEAP_CHUNK);
    return shm.heap ? 0 : -1;
}

static char *take(size_t chunks)
{
    void *p = NULL;

    assert_int_equal(rr_heap_alloc(&shm.base, chunks * RR_HEAP_CHUNK, &p, &why), 0);
    assert_int_equal((uintptr_t)p % 4096, 0);
    return p;
}

static void check_full(size_t chunks)
{
    void *p = &shm;

    assert_int_equal(rr_heap_alloc(&shm.base, chunks * RR_HEAP_CHUNK, &p, &why), RINGRED_ENOMEM);
    assert_ptr_equal(p, &shm); /* outputs only on success */
    assert_non_null(strstr(why.text, "setting heap"));
}

static void test_the_first_gap_that_fits_is_taken(void **state)
{
    char *base = rr_heap_base(shm.heap), *p[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        p[i] = take(4);
    check_full(1);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(p[i], base + (size_t)i * 4 * RR_HEAP_CHUNK);
    assert_int_equal(rr_heap_free(p[1]), 0);
    assert_int_equal(rr_heap_free(p[3]), 0);
    check_full(5);
    char *a = take(1), *b = take(4), *c = take(3);
    assert_ptr_equal(a, p[1]);
    assert_ptr_equal(b, p[3]);
    assert_ptr_equal(c, p[1] + RR_HEAP_CHUNK);
    check_full(1);
    char *left[] = { p[0], p[2], a, b, c };
    for (int i = 0; i < 5; i++)
        assert_int_equal(rr_heap_free(left[i]), 0);
    char *whole = take(CHUNKS);
    assert_ptr_equal(whole, base);
    assert_int_equal(rr_heap_free(whole), 0);
    rr_heap_release(shm.heap);
}

static void test_memory_is_zeroed_each_time(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        char *p = take(2);
        for (size_t i = 0; i < 2 * RR_HEAP_CHUNK; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0x77, 2 * RR_HEAP_CHUNK);
        assert_int_equal(rr_heap_free(p), 0);
    }
    rr_heap_release(shm.heap);
}

static void test_what_is_not_ours_is_refused(void **state)
{
    char *p = take(1), local[8];
    char *other = malloc(100);

    (void)state;
    assert_int_equal(rr_heap_free(other), RINGRED_EINVAL);
    assert_int_equal(rr_heap_free(local), RINGRED_EINVAL);
    assert_int_equal(rr_heap_free(p + 1), RINGRED_EINVAL);
    assert_int_equal(rr_heap_free(p + RR_HEAP_CHUNK), RINGRED_EINVAL); /* inside the heap, and not given out */
    p[0] = 5;
    assert_int_equal(p[0], 5);
    assert_int_equal(rr_heap_free(p), 0);
    assert_int_equal(rr_heap_free(p), RINGRED_EINVAL); /* twice */
    rr_heap_release(shm.heap);
    assert_int_equal(rr_heap_free(p), RINGRED_EINVAL); /* and after the heap has gone */
    free(other);
}

static void test_memory_outlives_its_communicator(void **state)
{
    char *p = take(2), *q = take(1);

    (void)state;
    rr_heap_release(shm.heap);
    memset(p, 1, 2 * RR_HEAP_CHUNK);
    assert_int_equal(rr_heap_free(p), 0);
    q[RR_HEAP_CHUNK - 1] = 9;
    assert_int_equal(rr_heap_free(q), 0);
    assert_int_equal(msync(p, 4096, MS_ASYNC), -1); /* unmapped with its last range */
}

static void test_without_mates_memory_is_private(void **state)
{
    void *p[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rr_heap_alloc(NULL, 100000, &p[i], &why), 0);
        assert_int_equal((uintptr_t)p[i] % 4096, 0);
        memset(p[i], 1, 100000);
    }
    assert_int_equal(rr_heap_free((char *)p[0] + 4096), RINGRED_EINVAL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rr_heap_free(p[i]), 0);
    assert_int_equal(rr_heap_alloc(NULL, SIZE_MAX - 5, &p[0], &why), RINGRED_ENOMEM);
    assert_int_equal(rr_heap_alloc(NULL, SIZE_MAX / 2, &p[0], &why), RINGRED_ENOMEM);
    assert_int_equal(rr_heap_alloc(NULL, 0, &p[0], &why), 0); /* a pointer that can be freed */
    assert_int_equal(rr_heap_free(p[0]), 0);
}

/* A child that frees what it has inherited must not take the pages from under its parent. */
static void test_a_fork_cannot_free_its_parents_memory(void **state)
{
    char *p = take(1);
    int status;

    (void)state;
    memset(p, 0x42, RR_HEAP_CHUNK);
    pid_t child = fork();
    if (child == 0)
        _exit(rr_heap_free(p) == RINGRED_EFORKED ? 0 : 1);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < RR_HEAP_CHUNK; i++)
        assert_int_equal(p[i], 0x42);
    assert_int_equal(rr_heap_free(p), 0);
    rr_heap_release(shm.heap);
}

static void test_without_memory_for_the_list_nothing_changes(void **state)
{
    void *p = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        rr_alloc_fail_after(1, false);
        assert_int_equal(rr_heap_alloc(i ? NULL : &shm.base, 1, &p, &why), RINGRED_ENOMEM);
        assert_null(p);
    }
    rr_alloc_fail_after(2, false);
    assert_int_equal(rr_heap_alloc(NULL, 1, &p, &why), RINGRED_ENOMEM);
    rr_alloc_fail_after(1, false);
    assert_null(rr_heap_new(RR_HEAP_CHUNK));
    rr_alloc_fail_after(0, false);
    p = take(CHUNKS);
    assert_int_equal(rr_heap_free(p), 0);
    rr_heap_release(shm.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_first_gap_that_fits_is_taken, open_heap),
        cmocka_unit_test_setup(test_memory_is_zeroed_each_time, open_heap),
        cmocka_unit_test_setup(test_what_is_not_ours_is_refused, open_heap),
        cmocka_unit_test_setup(test_memory_outlives_its_communicator, open_heap),
        cmocka_unit_test(test_without_mates_memory_is_private),
        cmocka_unit_test_setup(test_a_fork_cannot_free_its_parents_memory, open_heap),
        cmocka_unit_test_setup(test_without_memory_for_the_list_nothing_changes, open_heap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
