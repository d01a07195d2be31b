/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors in many places: what is found, written and read there is what a plain copy would have. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 64

static char room[2 * BYTES];
static struct rr_piece piece[BYTES];

/* Pieces of lengths from 1 to `most`, with a hole behind each, from the end of the room to its front. */
static struct rr_pieces lay_out(unsigned seed, size_t most)
{
    struct rr_pieces p = { piece, 0 };
    size_t end = 0, hole = sizeof room;

    while (end < BYTES) {
        seed = seed * 1103515245 + 12345;
        size_t n = 1 + (seed >> 16) % most;
        n = n < BYTES - end ? n : BYTES - end;
        hole -= n + (hole - n > BYTES - end - n); /* a hole, while there is room for some */
        end += n;
        piece[p.n++] = (struct rr_piece){ room + hole, end };
    }
    return p;
}

static char *at(const struct rr_pieces *p, size_t byte)
{
    size_t i = 0, begins = 0;

    while (p->piece[i].end <= byte)
        begins = p->piece[i++].end;
    return p->piece[i].at + (byte - begins);
}

static void test_every_byte_is_found_and_no_more_than_lies_in_a_row(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 50; seed++) {
        const struct rr_pieces p = lay_out(seed, 1 + seed);
        for (size_t from = 0; from < BYTES; from++)
            for (size_t wanted = 1; wanted <= BYTES - from; wanted++) {
                const struct rr_spot spot = { .pieces = &p, .from = from };
                size_t n = wanted;
                assert_ptr_equal(rr_spot_run(&spot, &n), at(&p, from));
                assert_in_range(n, 1, wanted);
                assert_ptr_equal(at(&p, from + n - 1), at(&p, from) + n - 1);
                size_t end = from + n;
                bool ends = false;
                for (size_t i = 0; i < p.n; i++)
                    ends = ends || p.piece[i].end == end;
                assert_true(n == wanted || ends);
            }
    }
}

static void test_what_is_put_is_got(void **state)
{
    char in[BYTES], out[BYTES];

    (void)state;
    for (unsigned seed = 0; seed < 50; seed++) {
        const struct rr_pieces p = lay_out(seed, 1 + seed % 9);
        for (size_t from = 0; from < BYTES; from += 7)
            for (size_t n = 0; n <= BYTES - from; n += 5) {
                memset(room, 0, sizeof room);
                for (size_t i = 0; i < n; i++)
                    in[i] = (char)(1 + i);
                rr_spot_put((struct rr_spot){ .pieces = &p, .from = from }, in, n);
                size_t written = 0;
                for (size_t i = 0; i < sizeof room; i++)
                    written += room[i] != 0;
                assert_int_equal(written, n);
                for (size_t i = 0; i < n; i++)
                    assert_int_equal(*at(&p, from + i), in[i]);
                rr_spot_get((struct rr_spot){ .pieces = &p, .from = from }, out, n);
                assert_memory_equal(out, in, n);
            }
    }
}

static void test_one_place_is_as_good(void **state)
{
    struct rr_spot spot = { .at = room };
    size_t n = 40;

    (void)state;
    spot = rr_spot_behind(spot, 10);
    assert_ptr_equal(rr_spot_run(&spot, &n), room + 10);
    assert_int_equal(n, 40);
    rr_spot_put(spot, "abc", 3);
    assert_memory_equal(room + 10, "abc", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_is_found_and_no_more_than_lies_in_a_row),
        cmocka_unit_test(test_what_is_put_is_got),
        cmocka_unit_test(test_one_place_is_as_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
