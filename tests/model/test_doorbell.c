/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking (lib/transport/doorbell.c), one memory access at a time, on processors that
 * delay stores (x86; membarrier makes other architectures no weaker than this): whoever sleeps though
 * what it waits for was published is woken. Without the sleeper's fence it is not, and the model must
 * find that. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST 2

enum publisher_at { STORE, LOAD_SLEEPERS, LOAD_ASLEEP, EXCHANGE, WRITE_BELL, PUBLISHED };
enum sleeper_at { LOOK, SET_ASLEEP, COUNT, FENCE, LOOK_AGAIN, SLEEP, CLEAR_ASLEEP, UNCOUNT, READ_BELL, AWAKE };

struct state {
    uint8_t sleepers;
    struct {
        uint8_t at, published; /* as this processor knows; memory has */
        uint8_t counter;       /* less while stores are delayed */
        uint8_t bell;          /* the sleeper it looks at */
    } p[MOST];
    struct {
        uint8_t at, round;
        uint8_t asleep, bell, edge; /* edge: the bell has rung since it was last waited for */
    } s[MOST];
};

static struct {
    int publishers, sleepers, rounds;
    bool fence;
} setup;

static void publisher_next(struct state *s, int i, int bell)
{
    s->p[i].bell = (uint8_t)bell;
    s->p[i].at = LOAD_ASLEEP;
    if (bell == setup.sleepers) {
        s->p[i].bell = 0;
        s->p[i].at = s->p[i].published == setup.rounds ? PUBLISHED : STORE;
    }
}

static bool publisher(struct state *s, int i)
{
    int bell = s->p[i].bell;

    switch (s->p[i].at) {
    case STORE:
        s->p[i].published++;
        s->p[i].at = LOAD_SLEEPERS;
        return true;
    case LOAD_SLEEPERS:
        publisher_next(s, i, s->sleepers ? 0 : setup.sleepers);
        return true;
    case LOAD_ASLEEP:
        if (s->s[bell].asleep)
            s->p[i].at = EXCHANGE;
        else
            publisher_next(s, i, bell + 1);
        return true;
    case EXCHANGE:
        s->p[i].counter = s->p[i].published; /* it waits for stores */
        if (s->s[bell].asleep)
            s->p[i].at = WRITE_BELL;
        else
            publisher_next(s, i, bell + 1);
        s->s[bell].asleep = 0;
        return true;
    case WRITE_BELL:
        s->s[bell].bell = s->s[bell].edge = 1;
        publisher_next(s, i, bell + 1);
        return true;
    default:
        return false;
    }
}

static bool is_there(const struct state *s, int i)
{
    for (int p = 0; p < setup.publishers; p++)
        if (s->p[p].counter <= s->s[i].round)
            return false;
    return true;
}

static bool sleeper(struct state *s, int i)
{
    switch (s->s[i].at) {
    case LOOK:
        if (is_there(s, i)) {
            s->s[i].round++;
            s->s[i].at = s->s[i].round == setup.rounds ? AWAKE : LOOK;
        } else {
            s->s[i].at = SET_ASLEEP;
        }
        return true;
    case SET_ASLEEP:
        s->s[i].asleep = 1;
        s->s[i].at = COUNT;
        return true;
    case COUNT:
        s->sleepers++;
        s->s[i].at = FENCE;
        return true;
    case FENCE:
        for (int p = 0; p < setup.publishers && setup.fence; p++)
            s->p[p].counter = s->p[p].published;
        s->s[i].at = LOOK_AGAIN;
        return true;
    case LOOK_AGAIN:
        s->s[i].at = is_there(s, i) ? CLEAR_ASLEEP : SLEEP;
        return true;
    case SLEEP:
        if (!s->s[i].edge)
            return false;
        s->s[i].at = s->s[i].bell ? CLEAR_ASLEEP : SLEEP; /* a bell that was read meanwhile wakes nobody */
        s->s[i].edge = 0;
        return true;
    case CLEAR_ASLEEP:
        s->s[i].asleep = 0;
        s->s[i].at = UNCOUNT;
        return true;
    case UNCOUNT:
        s->sleepers--;
        s->s[i].at = READ_BELL;
        return true;
    case READ_BELL:
        s->s[i].bell = 0;
        s->s[i].at = LOOK;
        return true;
    default:
        return false;
    }
}

static bool move(void *state, int which, char *wrong)
{
    struct state *s = state;

    (void)wrong;
    if (which < setup.publishers)
        return publisher(s, which);
    which -= setup.publishers;
    if (which < setup.publishers) { /* a delayed store gets through */
        if (s->p[which].counter == s->p[which].published)
            return false;
        s->p[which].counter++;
        return true;
    }
    return sleeper(s, which - setup.publishers);
}

static bool may_end(const void *state)
{
    const struct state *s = state;

    for (int i = 0; i < setup.sleepers; i++)
        if (s->s[i].at != AWAKE)
            return false;
    return true;
}

static bool finds(int publishers, int sleepers, int rounds, bool fence)
{
    struct system system = { "doorbell", sizeof(struct state), 2 * publishers + sleepers, move, may_end };
    struct state initial;
    struct explored found;

    setup.publishers = publishers;
    setup.sleepers = sleepers;
    setup.rounds = rounds;
    setup.fence = fence;
    memset(&initial, 0, sizeof initial);
    explore(&system, &initial, &found);
    print_message("             %d publishers, %d sleepers, %d rounds, %s: %ld states%s%s\n", publishers,
                  sleepers, rounds, fence ? "fence" : "no fence", found.states, found.wrong[0] ? ": " : "",
                  found.wrong);
    return found.wrong[0];
}

static void test_whoever_sleeps_is_woken(void **state)
{
    (void)state;
    assert_false(finds(1, 1, 3, true));
    assert_false(finds(2, 1, 2, true));
    assert_false(finds(1, 2, 2, true));
    assert_false(finds(2, 2, 1, true));
}

static void test_without_the_fence_a_sleeper_is_forgotten(void **state)
{
    (void)state;
    assert_true(finds(1, 1, 1, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whoever_sleeps_is_woken),
        cmocka_unit_test(test_without_the_fence_a_sleeper_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
