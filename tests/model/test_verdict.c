/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of a host (lib/transport/shm.c): several ranks find failures at once, one of them may die
 * while it writes its own. Nobody reads half of two sentences; unless somebody died, all have one and
 * the same. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3

enum at { WORKS, JUDGES, WRITES0, WRITES1, DECLARES, WAITS, READS0, READS1, KNOWS, DEAD };

struct state {
    uint8_t verdict, word[2], deaths;
    struct {
        uint8_t at, got[2];
    } rank[RANKS];
};

static bool declares_first; /* the control: said to be there before it is */

static void judge(struct state *s, int r)
{
    s->rank[r].at = s->verdict ? WAITS : declares_first ? DECLARES : WRITES0;
    if (!s->verdict)
        s->verdict = 1;
}

static bool rank_moves(struct state *s, int r)
{
    uint8_t mine = (uint8_t)(r + 1), *at = &s->rank[r].at;

    switch (*at) {
    case WORKS: /* finds a failure of its own, or looks */
        *at = JUDGES;
        return true;
    case JUDGES:
        judge(s, r);
        return true;
    case WRITES0:
        s->word[0] = mine;
        *at = WRITES1;
        return true;
    case WRITES1:
        s->word[1] = mine;
        *at = declares_first ? KNOWS : DECLARES;
        s->rank[r].got[0] = s->rank[r].got[1] = mine;
        return true;
    case DECLARES:
        s->verdict = 2;
        *at = declares_first ? WRITES0 : KNOWS;
        return true;
    case WAITS:
        if (s->verdict == 2) {
            *at = READS0;
        } else if (s->deaths) { /* no longer: its own sentence stands */
            s->rank[r].got[0] = s->rank[r].got[1] = mine;
            *at = KNOWS;
        } else {
            return false;
        }
        return true;
    case READS0:
        s->rank[r].got[0] = s->word[0];
        *at = READS1;
        return true;
    case READS1:
        s->rank[r].got[1] = s->word[1];
        *at = KNOWS;
        return true;
    default:
        return false;
    }
}

static bool looks(struct state *s, int r)
{
    if (s->rank[r].at != WORKS || s->verdict != 2)
        return false;
    s->rank[r].at = READS0;
    return true;
}

static bool dies(struct state *s, int r)
{
    if (s->deaths || s->rank[r].at == KNOWS || s->rank[r].at == DEAD)
        return false;
    s->rank[r].at = DEAD;
    s->deaths = 1;
    return true;
}

static bool move(void *state, int which, char *wrong)
{
    struct state *s = state;
    int r = which % RANKS;
    bool moved = which < RANKS ? rank_moves(s, r) : which < 2 * RANKS ? looks(s, r) : dies(s, r);

    if (s->rank[r].at == KNOWS && (s->rank[r].got[0] != s->rank[r].got[1] || !s->rank[r].got[0]))
        strcpy(wrong, "a sentence of two halves was read");
    return moved;
}

static bool may_end(const void *state)
{
    const struct state *s = state;

    for (int r = 0; r < RANKS; r++)
        if ((s->rank[r].at != KNOWS && s->rank[r].at != DEAD) ||
            (!s->deaths && s->rank[r].got[0] != s->rank[0].got[0]))
            return false;
    return true;
}

static bool finds(bool control)
{
    struct system system = { "verdict", sizeof(struct state), 3 * RANKS, move, may_end };
    struct state initial;
    struct explored found;

    declares_first = control;
    memset(&initial, 0, sizeof initial);
    explore(&system, &initial, &found);
    print_message("             %s: %ld states%s%s\n", control ? "declared first" : "declared last",
                  found.states, found.wrong[0] ? ": " : "", found.wrong);
    return found.wrong[0];
}

static void test_all_have_one_whole_sentence(void **state)
{
    (void)state;
    assert_false(finds(false));
}

static void test_not_if_it_is_declared_before_it_is_written(void **state)
{
    (void)state;
    assert_true(finds(true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_one_whole_sentence),
        cmocka_unit_test(test_not_if_it_is_declared_before_it_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
