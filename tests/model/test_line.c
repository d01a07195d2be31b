/* SPDX-License-Identifier: Apache-2.0 */
/* The arrival line (lib/engine/lane.c), one memory access at a time, on processors that let plain
 * accesses pass each other and keep only what release and acquire promise: two words of payload, a
 * hash, and the counter that is written last and read first. With two lines in turn a reader sees
 * nothing of another operation; with one it does, and so it does if the counter may pass the
 * payload. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 2
#define OPS 4
#define PENDING (2 * FIELDS)

enum field { WORD0, WORD1, HASH, COUNTER, FIELDS };

struct state {
    uint8_t line[RANKS][2][FIELDS];  /* memory; a value is the operation's number */
    struct rank {
        uint8_t op, next;            /* the operation under way; its next store, or FIELDS: look at the counter */
        uint8_t stores;
        struct store {
            uint8_t slot, field, value;
        } store[PENDING];            /* that have not got through yet, in order */
        uint8_t loads, load_op;      /* loads of load_op that are still to be done, a bit per field */
    } rank[RANKS];
};

static struct {
    uint8_t lines;
    bool release;
} setup;

static void drop_store(struct rank *r, int i)
{
    r->stores--;
    memmove(&r->store[i], &r->store[i + 1], (size_t)(r->stores - i) * sizeof r->store[0]);
    memset(&r->store[r->stores], 0, sizeof r->store[0]);
}

/* A delayed store gets through: not before an older one to the same place; a counter only after all
 * that its rank has stored before, and after the loads of the operation before. */
static bool get_through(struct state *s, int rank, int i)
{
    struct rank *r = &s->rank[rank];

    if (i >= r->stores)
        return false;
    const struct store store = r->store[i];
    for (int k = 0; k < i; k++)
        if (r->store[k].slot == store.slot && r->store[k].field == store.field)
            return false;
    if (store.field == COUNTER && setup.release && (i > 0 || r->loads))
        return false;
    s->line[rank][store.slot][store.field] = store.value;
    drop_store(r, i);
    return true;
}

static bool load(struct state *s, int rank, int field, char *wrong)
{
    struct rank *r = &s->rank[rank];

    if (!(r->loads >> field & 1))
        return false;
    r->loads &= (uint8_t)~(1u << field);
    if (s->line[!rank][r->load_op % setup.lines][field] != r->load_op)
        strcpy(wrong, "a payload of another operation was read");
    if (!r->loads)
        r->load_op = 0;
    return true;
}

static bool advance(struct state *s, int rank)
{
    struct rank *r = &s->rank[rank];

    if (r->op > OPS)
        return false;
    if (r->next < FIELDS) {
        if (r->stores == PENDING)
            return false;
        r->store[r->stores++] =
            (struct store){ (uint8_t)(r->op % setup.lines), r->next++, r->op };
        return true;
    }
    if (s->line[!rank][r->op % setup.lines][COUNTER] < r->op || r->loads)
        return false;
    r->loads = 1u << WORD0 | 1u << WORD1 | 1u << HASH;
    r->load_op = r->op++;
    r->next = 0;
    return true;
}

static bool move(void *state, int which, char *wrong)
{
    struct state *s = state;
    int rank = which % RANKS, what = which / RANKS;

    if (what == 0)
        return advance(s, rank);
    if (what <= COUNTER)
        return load(s, rank, what - 1, wrong);
    return get_through(s, rank, what - 1 - COUNTER);
}

static bool may_end(const void *state)
{
    const struct state *s = state;

    return s->rank[0].op > OPS && s->rank[1].op > OPS;
}

static bool finds(uint8_t lines, bool release)
{
    struct system system = { "line", sizeof(struct state), RANKS * (1 + COUNTER + PENDING), move, may_end };
    struct state initial;
    struct explored found;

    setup.lines = lines;
    setup.release = release;
    memset(&initial, 0, sizeof initial);
    for (int r = 0; r < RANKS; r++)
        initial.rank[r].op = 1;
    explore(&system, &initial, &found);
    print_message("             lines in turn: %d, counter stored %s: %ld states%s%s\n", lines,
                  release ? "last" : "anyhow", found.states, found.wrong[0] ? ": " : "", found.wrong);
    return found.wrong[0];
}

static void test_two_lines_are_enough(void **state)
{
    (void)state;
    assert_false(finds(2, true));
}

static void test_one_line_is_not(void **state)
{
    (void)state;
    assert_true(finds(1, true));
    assert_true(finds(2, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_lines_are_enough),
        cmocka_unit_test(test_one_line_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
