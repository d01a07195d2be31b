/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of the caller's: associative, not commutative, over elements of any size, by every algorithm and on every
 * layout. An element is a matrix modulo a prime (or, where it is too small for that, an affine map), and behind that
 * bytes of which every other one comes from the first rank and the rest from the last. */
#include "coll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PRIME 65521u

struct shape {
    size_t bytes;
    long calls;                 /* of the function; the caller's own business */
};

static void affine(const unsigned char *l, const unsigned char *r, unsigned char *to)
{
    unsigned a = l[0] * r[0] % 251u, b = (l[0] * r[1] + l[1]) % 251u;

    to[0] = (unsigned char)a;
    to[1] = (unsigned char)b;
}

static void product(const unsigned char *l, const unsigned char *r, unsigned char *to)
{
    uint32_t a[4], b[4], c[4];

    memcpy(a, l, 16);
    memcpy(b, r, 16);
    for (int i = 0; i < 4; i++)
        c[i] = (uint32_t)(((uint64_t)a[i & 2] * b[i & 1] + (uint64_t)a[(i & 2) + 1] * b[2 + (i & 1)]) % PRIME);
    memcpy(to, c, 16);
}

static void combine(void *context, const void *left, const void *right, void *result, size_t count)
{
    struct shape *s = context;
    const unsigned char *l = left, *r = right;
    unsigned char *to = result;

    s->calls++;
    for (size_t k = 0; k < count; k++, l += s->bytes, r += s->bytes, to += s->bytes) {
        size_t i = s->bytes < 16 ? s->bytes < 2 ? 0 : 2 : 16;
        if (i == 16)
            product(l, r, to);
        else if (i == 2)
            affine(l, r, to);
        for (; i < s->bytes; i++)
            to[i] = i & 1 ? r[i] : l[i];
    }
}

static void put(const struct shape *s, unsigned char *x, int rank, size_t first, size_t count)
{
    for (size_t k = first; k < first + count; k++, x += s->bytes) {
        struct numbers_random r = { k * 1000 + (uint64_t)rank };
        for (size_t i = 0; i < s->bytes; i++)
            x[i] = (unsigned char)(s->bytes < 16 ? numbers_next(&r) % 251 : numbers_next(&r));
        for (size_t i = 0; i < 4 && s->bytes >= 16; i++)
            memcpy(x + 4 * i, &(uint32_t){ (uint32_t)(numbers_next(&r) % PRIME) }, 4);
    }
}

/* In the order of ranks; which brackets does not matter. */
static void check(struct shape *s, const unsigned char *got, int ranks, size_t first, size_t count, const char *what)
{
    unsigned char *sum = malloc(s->bytes), *next = malloc(s->bytes);

    rank_check(sum && next);
    for (size_t k = 0; k < count; k++) {
        put(s, sum, 0, first + k, 1);
        for (int r = 1; r < ranks; r++) {
            put(s, next, r, first + k, 1);
            combine(s, sum, next, sum, 1);
        }
        rank_check_msg(memcmp(got + k * s->bytes, sum, s->bytes) == 0,
                       "%s: element %zu of %zu, of %zu bytes, is not the product in the order of ranks", what, k, count,
                       s->bytes);
    }
    free(sum);
    free(next);
}

static unsigned char *room(size_t bytes)
{
    unsigned char *p = malloc(bytes + 3);

    rank_check(p != NULL);
    return p + 3; /* elements may begin anywhere */
}

static void drop(unsigned char *p)
{
    free(p - 3);
}

static void reduce_all(ringred_comm *comm, struct rank *me, struct shape *s, int32_t op, size_t count, bool in_place)
{
    size_t n = (size_t)me->size, bytes = count * s->bytes;
    unsigned char *x = room(n * bytes + 1), *y = in_place ? x : room(n * bytes + 1);
    int root = (int)(count % n);

    put(s, x, me->rank, 0, count);
    coll_must(comm, ringred_allreduce(comm, x, y, count, RINGRED_BYTES, op), "allreduce");
    check(s, y, me->size, 0, count, "allreduce");
    put(s, x, me->rank, 7, count);
    coll_must(comm, ringred_reduce(comm, x, y, count, RINGRED_BYTES, op, root), "reduce");
    if (me->rank == root)
        check(s, y, me->size, 7, count, "reduce");
    put(s, x, me->rank, 9, n * count);
    unsigned char *part = in_place ? x + (size_t)me->rank * bytes : y;
    coll_must(comm, ringred_reduce_scatter(comm, x, part, count, RINGRED_BYTES, op), "reduce_scatter");
    check(s, part, me->size, 9 + (size_t)me->rank * count, count, "reduce_scatter");
    drop(x);
    if (y != x)
        drop(y);
}

static void reduce_uneven(ringred_comm *comm, struct rank *me, struct shape *s, int32_t op)
{
    size_t counts[NUMBERS_RANKS], all = 0, before = 0;

    for (int r = 0; r < me->size; r++) {
        counts[r] = (size_t)(r * 37 % 50);
        before += r < me->rank ? counts[r] : 0;
        all += counts[r];
    }
    unsigned char *x = room(all * s->bytes + 1), *y = room(counts[me->rank] * s->bytes + 1);
    put(s, x, me->rank, 0, all);
    coll_must(comm, ringred_reduce_scatterv(comm, x, y, counts, RINGRED_BYTES, op), "reduce_scatterv");
    check(s, y, me->size, before, counts[me->rank], "reduce_scatterv");
    drop(x);
    drop(y);
}

static void products(struct rank *me)
{
    static const size_t sizes[] = { 16, 3, 1, 20, 100, 5000 }, counts[] = { 0, 1, 2, 17, 120, 1000, 9000 };
    enum { SIZES = sizeof sizes / sizeof *sizes, COUNTS = sizeof counts / sizeof *counts };
    ringred_comm *comm = coll_open(me, me->argument);
    struct shape shape[SIZES] = { 0 };

    for (int i = 0; i < SIZES; i++) {
        int32_t op = 0;
        shape[i].bytes = sizes[i];
        coll_must(comm, ringred_op_create(comm, combine, &shape[i], sizes[i], &op), "op_create");
        for (int j = 0; j < COUNTS; j++)
            if (counts[j] * sizes[i] <= 160000)
                reduce_all(comm, me, &shape[i], op, counts[j], (i + j + me->rank) & 1);
        if (sizes[i] <= 100)
            reduce_uneven(comm, me, &shape[i], op);
    }
    coll_close(comm);
}

static void test_products_come_in_the_order_of_ranks(void **state)
{
    static const struct coll_setup setups[] = {
        { 1, { "transport=shm" } },
        { 2, { "transport=shm" } },
        { 3, { "transport=shm", "algorithm=last", "stage=256K" } },
        { 4, { "transport=shm", "algorithm=shm-oneshot,shm-reduce" } },
        { 5, { "transport=shm", "algorithm=twoshot,shm-reduce-twoshot", "segment=1024" } },
        { 2, { "transport=tcp" } },
        { 3, { "transport=tcp", "algorithm=star,reduce", "segment=1024" } },
        { 5, { "transport=tcp", "algorithm=doubling,reduce-twoshot" } },
        { 6, { "transport=tcp", "algorithm=twoshot", "segment=1024" } },
        { 4, { "transport=tcp", "algorithm=oneshot" } },
        { 3, { "transport=tcp", "algorithm=ring,ring-reduce-scatter", "numerics=fast" } },
        { 4, { "ranks_per_host=2" } },
        { 6, { "ranks_per_host=2", "segment=1024" } },
        { 6, { "ranks_per_host=3" } },
        { 4, { "ranks_per_host=2", "progress=thread" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        char text[200];
        coll_setup_text(&setups[i], text, sizeof text);
        print_message("             %s\n", text);
        ranks_fork(setups[i].ranks, products, (void *)(uintptr_t)&setups[i]);
    }
    ranks_threads(3, products, (void *)(uintptr_t)&setups[7]);
}

/* From memory that mates reach: they fold my elements, with functions of their own. */
static void windows(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct shape s = { 48, 0 };
    int32_t op;
    void *x, *y;

    coll_must(comm, ringred_op_create(comm, combine, &s, s.bytes, &op), "op_create");
    coll_must(comm, ringred_alloc(comm, 9000 * s.bytes, &x), "alloc");
    coll_must(comm, ringred_alloc(comm, 9000 * s.bytes, &y), "alloc");
    put(&s, x, me->rank, 0, 9000);
    coll_must(comm, ringred_allreduce(comm, x, y, 9000, RINGRED_BYTES, op), "allreduce");
    rank_check(s.calls > 0);
    check(&s, y, me->size, 0, 9000, "allreduce");
    coll_must(comm, ringred_allreduce(comm, x, x, 9000, RINGRED_BYTES, op), "allreduce");
    check(&s, x, me->size, 0, 9000, "allreduce in place");
    rank_check_int(ringred_free(x), 0);
    rank_check_int(ringred_free(y), 0);
    coll_close(comm);
}

static void test_memory_that_mates_reach(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 3, { "transport=shm" } } };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        ranks_fork(setups[i].ranks, windows, (void *)(uintptr_t)&setups[i]);
}

/* ---- what is refused ---- */

static void refuse(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part;
    struct shape s = { 16, 0 };
    unsigned char x[64] = { 0 };
    int32_t op = -7, other, last = 0;

    rank_check_int(ringred_op_create(NULL, combine, &s, 16, &op), RINGRED_EINVAL);
    rank_check_int(ringred_op_create(comm, NULL, &s, 16, &op), RINGRED_EINVAL);
    rank_check_int(ringred_op_create(comm, combine, &s, 0, &op), RINGRED_EINVAL);
    rank_check_int(ringred_op_create(comm, combine, &s, ((size_t)1 << 20) + 1, &op), RINGRED_EINVAL);
    rank_check_int(ringred_op_create(comm, combine, &s, 16, NULL), RINGRED_EINVAL);
    /* every rank is told, and nothing has changed */
    rank_check_int(ringred_op_create(comm, combine, &s, me->rank ? 16 : 8, &op), RINGRED_EINVAL);
    rank_check_int(op, -7);
    rank_check_int(ringred_allreduce(comm, x, x, 1, RINGRED_BYTES, 320), RINGRED_EINVAL);
    coll_must(comm, ringred_op_create(comm, combine, &s, 16, &op), "op_create");
    coll_must(comm, ringred_op_create(comm, combine, NULL, 8, &other), "op_create");
    rank_check(op != other);
    rank_check_int(ringred_allreduce(comm, x, x, 1, RINGRED_FLOAT32, op), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce(comm, x, x, SIZE_MAX / 16, RINGRED_BYTES, op), RINGRED_EINVAL);
    rank_check_int(ringred_allreduce(comm, x, x + 16, 2, RINGRED_BYTES, op), RINGRED_EINVAL); /* overlap */
    rank_check_int(ringred_allreduce(comm, x, x, 1, RINGRED_BYTES, other + 1), RINGRED_EINVAL);
    coll_must(comm, ringred_comm_split(comm, 0, 0, &part), "split");
    rank_check_int(ringred_allreduce(part, x, x, 1, RINGRED_BYTES, op), RINGRED_EINVAL); /* it is comm's */
    coll_close(part);
    for (int i = 2; i < 64; i++)
        coll_must(comm, ringred_op_create(comm, combine, &s, 16, &last), "op_create");
    rank_check_int(ringred_op_create(comm, combine, &s, 16, &last), RINGRED_ELIMIT);
    memset(x, 0, sizeof x);
    x[0] = x[12] = 1; /* the identity */
    coll_must(comm, ringred_allreduce(comm, x, x, 1, RINGRED_BYTES, last), "allreduce");
    rank_check(x[0] == 1 && x[4] == 0 && x[12] == 1);
    coll_close(comm);
}

static void test_wrong_operators_are_refused(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 3, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        ranks_fork(setups[i].ranks, refuse, (void *)(uintptr_t)&setups[i]);
}

/* The largest there are, where they fit and where not; the communicator goes on. */
static void be_large(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct shape s = { (size_t)1 << 20, 0 };
    unsigned char *x = room(2 * s.bytes), *y = room(2 * s.bytes);
    int32_t op;

    coll_must(comm, ringred_op_create(comm, combine, &s, s.bytes, &op), "op_create");
    put(&s, x, me->rank, 0, 2);
    int32_t rc = ringred_allreduce(comm, x, y, 2, RINGRED_BYTES, op);
    rank_check_msg(rc == 0 || rc == RINGRED_ELIMIT, "%d", rc);
    if (rc == 0)
        check(&s, y, me->size, 0, 2, "allreduce");
    coll_must(comm, ringred_barrier(comm), "barrier");
    drop(x);
    drop(y);
    coll_close(comm);
}

static void test_the_largest_fit_or_are_refused(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } }, { 2, { "transport=tcp" } }, { 5, { "transport=tcp", "algorithm=twoshot" } },
        { 4, { "ranks_per_host=2" } }, { 2, { "transport=shm", "stage=65536" } },
        { 2, { "transport=shm", "stage=64M" } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        ranks_fork(setups[i].ranks, be_large, (void *)(uintptr_t)&setups[i]);
}


/* Ranks that use different operators of one communicator. */
static void disagree(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    struct shape s = { 16, 0 };
    unsigned char x[320] = { 0 };
    int32_t op[2];

    for (int i = 0; i < 2; i++)
        coll_must(comm, ringred_op_create(comm, combine, &s, 16, &op[i]), "op_create");
    ranks_meet(me);
    int32_t rc = ringred_allreduce(comm, x, x, 20, RINGRED_BYTES, op[me->rank & 1]);
    if (rc == 0)
        rc = ringred_barrier(comm);
    rank_check_int(rc, RINGRED_EMISMATCH);
    (void)ringred_comm_destroy(comm); /* it is broken */
}

static void test_ranks_that_use_other_operators_are_told(void **state)
{
    static const struct coll_setup setups[] = { { 2, { "transport=shm" } }, { 2, { "transport=tcp" } } };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        ranks_fork(setups[i].ranks, disagree, (void *)(uintptr_t)&setups[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_come_in_the_order_of_ranks),
        cmocka_unit_test(test_memory_that_mates_reach),
        cmocka_unit_test(test_wrong_operators_are_refused),
        cmocka_unit_test(test_the_largest_fit_or_are_refused),
        cmocka_unit_test(test_ranks_that_use_other_operators_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
