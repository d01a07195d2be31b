/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns progress, who sleeps, who is woken (lib/core/progress.c and request.c), one access at a time: two threads
 * wait for a request each, a third starts another, a fourth may abort; peers may answer or not, at any
 * time. Nobody sleeps while its request is done, while progress is free, or once the communicator is
 * broken; nobody works on a request that was given back; whoever breaks it, the peers are told. Stores
 * may be delayed as on x86. The controls leave out one thing each. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS 3
#define WAITERS 2
#define STARTER 2
#define ABORTER 3
#define THREADS 4
#define NOBODY 0xff

enum control { NONE, NO_WAKE_ON_THE_WAY, NO_OWNER_WHEN_BROKEN, COUNTED_LATE, TOLD_BEFORE_LEAVING };

enum at {
    IDLE,
    CHECK_DONE, TAKE,                                /* rr_request_wait */
    LOOK_BROKEN, ADVANCE, WAKE_ON_THE_WAY, SLEEP_BROKEN, SLEEP, /* drive */
    SEE_DONE, SEE_BROKEN, DISOWN, TELL, RELEASE, ANY_WAITERS, RELEASED, RETAKE, LEFT, /* disown */
    LOCK, COUNT, SEE_OWNED, SEE_RUNNING, ASLEEP, LOCK_AGAIN, UNCOUNT, /* sleep_on_changed */
    WAKE_LOCK, WAKE_ALL,                             /* wake_waiters, then `back` */
    START, START_TAKE, ABORT_LOCK, ABORT_BREAK, ABORT_RING, ABORT_TAKE,
    ENDED
};

struct state {
    uint8_t owned, waiters, lock, broken, told, rung; /* lock: thread + 1; rung: the owner's wake-up */
    uint8_t head, tail, came;                         /* came: operations that the peers have answered */
    uint8_t done[REQUESTS], given[REQUESTS];
    struct thread {
        uint8_t at, back;
        uint8_t until;      /* the request it waits for, or NOBODY */
        uint8_t late;       /* done[] of this request is stored, and has not got through; NOBODY */
        uint8_t saw_done, saw_broken, woken;
    } thread[THREADS];
};

static enum control without;

static bool is_done(const struct state *s, const struct thread *t, uint8_t q)
{
    return s->done[q] || t->late == q; /* one's own stores are seen at once */
}

static void get_through(struct state *s, struct thread *t)
{
    if (t->late != NOBODY)
        s->done[t->late] = 1;
    t->late = NOBODY;
}

static void give_back(struct state *s, struct thread *t)
{
    s->given[t->until] = 1;
    t->at = ENDED;
}

static void leave(struct thread *t) /* after disown */
{
    if (t->until == NOBODY)
        t->at = ENDED;
    else if (t->saw_broken && !t->saw_done && without != NO_OWNER_WHEN_BROKEN)
        t->at = LEFT;
    else
        t->at = CHECK_DONE;
}

static bool take(struct state *s, struct thread *t, enum at got, enum at not)
{
    get_through(s, t);
    t->at = (uint8_t)(s->owned ? not : got);
    s->owned = 1;
    return true;
}

/* drive: one turn of its loop */
static void advance(struct state *s, struct thread *t, char *wrong)
{
    uint8_t head = s->head;

    if (head == s->tail) {
        t->at = SEE_DONE;
        return;
    }
    if (s->given[head])
        strcpy(wrong, "a request is worked on that was given back");
    if (s->came <= head) {
        t->at = (uint8_t)(t->until == NOBODY ? DISOWN : SLEEP_BROKEN); /* the starter only polls */
        return;
    }
    s->head++;
    get_through(s, t);
    t->late = head;
    t->at = (uint8_t)(t->until == head ? SEE_DONE : t->until == NOBODY ? LOOK_BROKEN : WAKE_ON_THE_WAY);
}

static bool drives(struct state *s, struct thread *t, char *wrong)
{
    switch (t->at) {
    case LOOK_BROKEN:
        t->at = s->broken ? SEE_DONE : ADVANCE;
        return true;
    case ADVANCE:
        advance(s, t, wrong);
        return true;
    case WAKE_ON_THE_WAY:
        t->at = LOOK_BROKEN;
        if (without == NO_WAKE_ON_THE_WAY)
            return true;
        get_through(s, t);
        if (s->waiters) {
            t->at = WAKE_LOCK;
            t->back = LOOK_BROKEN;
        }
        return true;
    case SLEEP_BROKEN:
        t->at = s->broken ? LOOK_BROKEN : SLEEP;
        return true;
    case SLEEP:
        if (s->came <= s->head && !s->rung)
            return false;
        s->rung = 0;
        t->at = LOOK_BROKEN;
        return true;
    case SEE_DONE:
        t->saw_done = t->until != NOBODY && is_done(s, t, t->until);
        t->at = SEE_BROKEN;
        return true;
    case SEE_BROKEN:
        t->saw_broken = s->broken;
        t->at = DISOWN;
        return true;
    default:
        return false;
    }
}

static bool disowns(struct state *s, struct thread *t, char *wrong)
{
    switch (t->at) {
    case DISOWN:
        t->at = s->broken ? TELL : RELEASE;
        return true;
    case TELL: /* reads the buffers of the run that is under way */
        if (s->head < s->tail && s->given[s->head] && !s->told)
            strcpy(wrong, "a buffer is read that was given back");
        s->told = 1;
        t->at = RELEASE;
        return true;
    case RELEASE:
        get_through(s, t);
        s->owned = 0;
        t->at = ANY_WAITERS;
        return true;
    case ANY_WAITERS:
        t->back = RELEASED;
        t->at = s->waiters ? WAKE_LOCK : RELEASED;
        return true;
    case RELEASED:
        t->at = RETAKE;
        if (!s->broken || s->told || without == TOLD_BEFORE_LEAVING)
            leave(t);
        return true;
    case RETAKE:
        (void)take(s, t, DISOWN, LEFT);
        if (t->at == LEFT)
            leave(t);
        return true;
    case LEFT: /* broken, and progress was ours */
        give_back(s, t);
        return true;
    case WAKE_LOCK:
        if (s->lock)
            return false;
        get_through(s, t);
        s->lock = 1;
        t->at = WAKE_ALL;
        return true;
    case WAKE_ALL:
        for (int i = 0; i < THREADS; i++)
            s->thread[i].woken |= s->thread[i].at == ASLEEP;
        s->lock = 0;
        t->at = t->back;
        return true;
    default:
        return false;
    }
}

static bool sleeps(struct state *s, struct thread *t)
{
    const bool late = without == COUNTED_LATE;

    switch (t->at) {
    case LOCK:
        if (s->lock)
            return false;
        s->lock = 1;
        t->at = late ? SEE_OWNED : COUNT;
        return true;
    case COUNT:
        s->waiters++;
        t->at = late ? ASLEEP : SEE_OWNED;
        s->lock = !late;
        return true;
    case SEE_OWNED:
        t->at = (uint8_t)(s->owned ? SEE_RUNNING : late ? CHECK_DONE : UNCOUNT);
        s->lock = t->at != CHECK_DONE;
        return true;
    case SEE_RUNNING:
        t->at = (uint8_t)(is_done(s, t, t->until) ? late ? CHECK_DONE : UNCOUNT : late ? COUNT : ASLEEP);
        s->lock = t->at != ASLEEP && t->at != CHECK_DONE; /* waiting gives it up */
        return true;
    case ASLEEP:
        if (!t->woken)
            return false;
        t->woken = 0;
        t->at = LOCK_AGAIN;
        return true;
    case LOCK_AGAIN:
        if (s->lock)
            return false;
        s->lock = 1;
        t->at = UNCOUNT;
        return true;
    case UNCOUNT:
        s->waiters--;
        s->lock = 0;
        t->at = CHECK_DONE;
        return true;
    default:
        return false;
    }
}

static bool waits(struct state *s, struct thread *t)
{
    switch (t->at) {
    case CHECK_DONE:
        t->saw_done = t->saw_broken = 0;
        if (is_done(s, t, t->until) || (without == NO_OWNER_WHEN_BROKEN && s->broken))
            give_back(s, t);
        else
            t->at = TAKE;
        return true;
    case TAKE:
        return take(s, t, LOOK_BROKEN, LOCK);
    case START:
        s->tail++;
        t->at = START_TAKE;
        return true;
    case START_TAKE:
        return take(s, t, LOOK_BROKEN, ENDED);
    case ABORT_LOCK:
        if (s->lock)
            return false;
        s->lock = 1;
        t->at = ABORT_BREAK;
        return true;
    case ABORT_BREAK:
        s->broken = 1;
        for (int i = 0; i < THREADS; i++)
            s->thread[i].woken |= s->thread[i].at == ASLEEP;
        s->lock = 0;
        t->at = ABORT_RING;
        return true;
    case ABORT_RING:
        s->rung = 1;
        t->at = ABORT_TAKE;
        return true;
    case ABORT_TAKE:
        return take(s, t, DISOWN, ENDED);
    default:
        return false;
    }
}

static bool move(void *state, int which, char *wrong)
{
    struct state *s = state;

    if (which == 2 * THREADS) { /* the peers answer; or they never do */
        if (s->came == REQUESTS)
            return false;
        s->came++;
        return true;
    }
    struct thread *t = &s->thread[which % THREADS];
    if (which >= THREADS) { /* a delayed store gets through */
        bool any = t->late != NOBODY;
        get_through(s, t);
        return any;
    }
    return drives(s, t, wrong) || disowns(s, t, wrong) || sleeps(s, t) || waits(s, t);
}

/* What may stay as it is if the peers stay silent from here on. `came` is a move of its own, so this is
 * asked in every state by `settled`, not only at ends. */
static bool is_fine(const struct state *s)
{
    bool owner_sleeps = false;

    for (int i = 0; i < THREADS; i++)
        owner_sleeps = owner_sleeps || s->thread[i].at == SLEEP;
    for (int i = 0; i < THREADS; i++) {
        const struct thread *t = &s->thread[i];
        if (t->at == ENDED || t->at == IDLE)
            continue;
        if (s->broken || (t->at != SLEEP && t->at != ASLEEP))
            return false;
        if (t->at == ASLEEP && (s->done[t->until] || !s->owned || !owner_sleeps))
            return false;
    }
    return !s->broken || s->told;
}

/* In a state where no thread can move, all must be fine even if the peers never answer again. */
static bool checked_move(void *state, int which, char *wrong)
{
    struct state *s = state, copy;

    if (which == 2 * THREADS && s->came < REQUESTS) {
        bool stuck = true;
        for (int m = 0; m < 2 * THREADS && stuck; m++) {
            copy = *s;
            stuck = !move(&copy, m, wrong);
        }
        if (stuck && !is_fine(s))
            strcpy(wrong, "somebody sleeps that should not, or the peers were not told");
    }
    return move(state, which, wrong);
}

static bool may_end(const void *state)
{
    return is_fine(state);
}

static bool finds(enum control control, const char *who, const char *words)
{
    struct system system = { "requests", sizeof(struct state), 2 * THREADS + 1, checked_move, may_end };
    struct state initial;
    struct explored found;

    without = control;
    memset(&initial, 0, sizeof initial);
    initial.tail = WAITERS;
    for (int i = 0; i < THREADS; i++)
        initial.thread[i].late = initial.thread[i].until = NOBODY;
    for (uint8_t i = 0; i < WAITERS; i++) {
        initial.thread[i].until = i;
        initial.thread[i].at = CHECK_DONE;
    }
    if (!strstr(who, "two")) /* nobody waits for the first request */
        initial.thread[0].at = IDLE;
    initial.thread[STARTER].at = strstr(who, "starter") ? START : IDLE;
    initial.thread[ABORTER].at = strstr(who, "abort") ? ABORT_LOCK : IDLE;
    explore(&system, &initial, &found);
    print_message("             %s, %s: %ld states%s%s\n", words, who, found.states,
                  found.wrong[0] ? ": " : "", found.wrong);
    return found.wrong[0];
}

static void test_nobody_sleeps_for_ever(void **state)
{
    (void)state;
    assert_false(finds(NONE, "two waiters, a starter", "as it is"));
    assert_false(finds(NONE, "two waiters, an abort", "as it is"));
    assert_false(finds(NONE, "a waiter, a starter, an abort", "as it is"));
}

static void test_each_precaution_is_needed(void **state)
{
    (void)state;
    assert_true(finds(NO_WAKE_ON_THE_WAY, "two waiters", "owners that wake nobody before they leave"));
    assert_true(finds(NO_OWNER_WHEN_BROKEN, "two waiters, an abort", "given back without owning progress"));
    assert_true(finds(COUNTED_LATE, "two waiters, a starter", "waiters that count themselves late"));
    assert_true(finds(TOLD_BEFORE_LEAVING, "a waiter, a starter, an abort", "owners that do not look back"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_sleeps_for_ever),
        cmocka_unit_test(test_each_precaution_is_needed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
