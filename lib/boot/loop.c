/* SPDX-License-Identifier: Apache-2.0 */
/* The one loop of the boot room: waits for lines, gates and dials at once, moves exchanges through
 * the root, and sees to it that a failure anywhere ends the set-up everywhere, with the same
 * sentence. */
#include "boot/inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TELL_NS ((int64_t)1000000000) /* most that telling the others of a failure may take */

/* ---- exchanges ---- */

void rr_gathering_begin(struct rr_boot *b, const struct rr_gathering *x)
{
    b->step++;
    b->x = *x;
    b->x.active = true;
    b->x.got = 1;
    for (int i = 0; i < b->lines; i++)
        b->line[i].answered = b->line[i].given = false;
    if (!b->is_root && b->line[0].fd >= 0)
        rr_line_send(&b->line[0], x->up, b->step, x->mine, x->up_bytes);
}

bool rr_gathering_is_done(const struct rr_boot *b)
{
    return b->x.done;
}

/* The root has all parts: hands the answer to every line that has not got it yet. */
static void answer(struct rr_boot *b)
{
    bool done = true;

    for (int i = 1; i < b->size; i++) {
        struct rr_line *l = &b->line[i];
        if (!l->answered && !l->sending) {
            rr_line_send(l, b->x.down, b->step, b->x.answer, b->x.down_bytes);
            l->answered = true;
            if (rr_line_write(l) < 0)
                l->sending = true; /* its end shows at the next turn */
        }
        done = done && l->answered && !l->sending;
    }
    b->x.done = done;
}

/* ---- notes ---- */

static size_t index_of(const struct rr_boot *b, const struct rr_line *l)
{
    return (size_t)(l - b->line);
}

/* 1: the note of this head is due now. 0: in a later call. < 0: never. */
static int is_due(const struct rr_boot *b, const struct rr_line *l, ringred_error *why)
{
    enum rr_note_kind kind = b->is_root ? b->x.up : b->x.down;
    size_t bytes = b->is_root ? b->x.up_bytes : b->x.down_bytes;
    uint32_t later = b->is_root ? RR_NOTE_UP : RR_NOTE_DOWN;

    if (l->in.kind == RR_NOTE_FAIL && l->in.bytes == RR_FAIL_BYTES)
        return 1;
    if (l->in.bytes == 0 &&
        (l->in.kind == RR_NOTE_BYE || (l->in.kind == RR_NOTE_HERE && !b->is_root)))
        return 1;
    if (b->x.active && l->in.kind == kind && l->in.step == b->step && l->in.bytes == bytes) {
        if (!l->given)
            return 1;
        return rr_fail(
            why, RINGRED_EWIRE, l->rank, 0,
            "rank %d sent its part of step %u twice while the communicator was being made", l->rank,
            b->step);
    }
    if (l->in.kind == later && l->in.step == b->step + 1)
        return 0;
    return rr_fail(why, RINGRED_EWIRE, l->rank, 0,
                   "rank %d sent something that was not due while the communicator was being made "
                   "(note %u of step %u instead of %u, %llu bytes)",
                   l->rank, l->in.kind, l->in.step, b->step, (unsigned long long)l->in.bytes);
}

static int whole(struct rr_boot *b, struct rr_line *l, ringred_error *why)
{
    switch (l->in.kind) {
    case RR_NOTE_FAIL:
        return rr_fail_read(l->fail, RR_FAIL_BYTES, why);
    case RR_NOTE_BYE:
        l->left = true;
        return 0;
    case RR_NOTE_HERE:
        l->joined = true;
        rr_log(b->log, RINGRED_LOG_TRACE, "rank 0 at %s has counted this rank", b->where);
        return 0;
    case RR_NOTE_JOIN:
        return rr_meet_joined(b, l, why);
    case RR_NOTE_UP:
        l->given = true;
        b->x.answering = ++b->x.got == b->size;
        return 0;
    default:
        b->x.done = true;
        return 0;
    }
}

static int ended(struct rr_boot *b, struct rr_line *l, ringred_error *why)
{
    int r = l->rank, system = l->system;

    rr_line_close(l);
    if (l->left && (!b->x.active || b->x.done || (l->answered && !l->sending)))
        return 0;                                 /* it has what it came for, and so have we */
    if (!l->joined && (b->is_root || !l->left)) { /* not counted: whoever dialled may dial again */
        if (l == &b->line[0] && b->dials)
            rr_dial_again(&b->dial[0]);
        return 0;
    }
    if (!b->is_root)
        return rr_fail(why, RINGRED_EPEER, 0, system,
                       "rank 0 at %s ended while the communicator was being made", b->where);
    return rr_fail(why, RINGRED_EPEER, r, system,
                   "rank %d on %s (pid %d) ended while the communicator was being made", r,
                   b->entry[r].member.name, b->entry[r].member.pid);
}

/* Takes what has come on a line. */
static int take(struct rr_boot *b, struct rr_line *l, ringred_error *why)
{
    for (;;) {
        enum rr_line_news news = rr_line_read(l);
        if (news == RR_LINE_QUIET)
            return 0;
        if (news == RR_LINE_ENDED)
            return ended(b, l, why);
        int due = is_due(b, l, why);
        if (due <= 0)
            return due;
        if (news == RR_LINE_HEADED) {
            l->body = b->is_root ? b->x.ups + index_of(b, l) * b->x.up_bytes : b->x.answer;
            continue;
        }
        int rc = whole(b, l, why);
        rr_line_next(l);
        if (rc < 0 || b->x.done || l->fd < 0)
            return rc; /* what comes after belongs to the next call */
    }
}

static int line_turn(struct rr_boot *b, struct rr_line *l, ringred_error *why)
{
    if (l->fd >= 0 && l->sending && rr_line_write(l) < 0) {
        /* what it sent before it went says more than the errno */
        RR_TRY(take(b, l, why));
        if (l->fd >= 0)
            return ended(b, l, why);
    }
    return l->fd >= 0 && rr_polls_ready(&b->polls, l->at) && rr_line_wants_input(l)
               ? take(b, l, why)
               : 0;
}

/* ---- the turn ---- */

static void collect(struct rr_boot *b)
{
    b->polls.used = 0;
    for (int i = 0; i < b->lines; i++) {
        struct rr_line *l = &b->line[i];
        short events = (short)((rr_line_wants_input(l) ? POLLIN : 0) | (l->sending ? POLLOUT : 0));
        l->at = l->fd >= 0 && events ? rr_polls_add(&b->polls, l->fd, events) : -1;
    }
    struct rr_gate *gates[] = { b->meet, b->data, b->local };
    for (int i = 0; i < 3; i++)
        if (gates[i] && gates[i]->open)
            rr_gate_polls(gates[i], &b->polls);
    for (int i = 0; i < b->dials; i++)
        rr_dial_polls(&b->dial[i], &b->polls);
}

static int dialled(struct rr_boot *b, struct rr_dial *d)
{
    return d->badge.purpose == RR_PURPOSE_MEET ? rr_meet_dialled(b, d) : rr_wire_dialled(b, d);
}

static int dials_turn(struct rr_boot *b)
{
    for (int i = 0; i < b->dials; i++) {
        struct rr_dial *d = &b->dial[i];
        enum rr_dial_state before = d->state;
        if (before == RR_DIAL_TRYING)
            rr_dial_turn(d, &b->polls);
        if (d->state != before && (d->state == RR_DIAL_DONE || d->state == RR_DIAL_FATAL))
            RR_TRY(dialled(b, d));
    }
    return 0;
}

/* Notes that came before they were due. 1: that moved something. */
static int take_parked(struct rr_boot *b, ringred_error *why)
{
    int got = b->x.got;
    bool done = b->x.done;

    for (int i = 0; i < b->lines; i++)
        if (b->line[i].fd >= 0 && !rr_line_wants_input(&b->line[i]))
            RR_TRY(take(b, &b->line[i], why));
    if (b->x.answering && !b->x.done)
        answer(b);
    return got != b->x.got || done != b->x.done;
}

static int gates_turn(struct rr_boot *b, ringred_error *why)
{
    struct rr_gate *gates[] = { b->meet, b->data, b->local };
    rr_admit *admit[] = { rr_meet_admit, rr_wire_admit, rr_local_admit };

    for (int i = 0; i < 3; i++) {
        if (!gates[i] || !gates[i]->open)
            continue;
        rr_gate_turn(gates[i], &b->polls, b->log, admit[i], b);
        if (gates[i]->limited)
            return rr_fail(why, rr_system_code(gates[i]->limited), b->rank, gates[i]->limited,
                           "rank %d cannot accept a connection", b->rank);
    }
    return 0;
}

int rr_boot_turn(struct rr_boot *b)
{
    ringred_error why = { 0 };
    int moved = take_parked(b, &why);

    if (moved)
        return moved < 0 ? rr_boot_fail(b, &why) : 0;
    collect(b);
    int most = b->launch.interrupt.fn ? RR_INTERRUPT_NS / 1000000 : 1000;
    if (poll(b->polls.at, (nfds_t)b->polls.used, rr_deadline_ms(b->polls.wake_ns, most)) < 0 &&
        errno != EINTR) {
        rr_fail(&why, RINGRED_ESYSTEM, -1, errno, "cannot wait for the other ranks");
        return rr_boot_fail(b, &why);
    }
    for (int i = 0; i < b->lines; i++)
        if (line_turn(b, &b->line[i], &why) < 0)
            return rr_boot_fail(b, &why);
    if (gates_turn(b, &why) < 0)
        return rr_boot_fail(b, &why);
    RR_TRY(dials_turn(b));
    if (b->x.answering && !b->x.done)
        answer(b);
    return b->failure.code;
}

static bool is_interrupted(struct rr_boot *b, ringred_error *why)
{
    int64_t now = rr_now_ns();

    if (now < b->asked_ns + RR_INTERRUPT_NS / 2)
        return false;
    b->asked_ns = now;
    if (!rr_is_interrupted(&b->launch.interrupt))
        return false;
    if (b->launch.interrupt.reason)
        rr_fail(why, RINGRED_EINTERRUPTED, b->rank, 0, "%s while rank %d made a communicator",
                b->launch.interrupt.reason, b->rank);
    else
        rr_fail(why, RINGRED_EINTERRUPTED, b->rank, 0, "the caller interrupted rank %d while it made a communicator",
                b->rank);
    return true;
}

int rr_boot_loop(struct rr_boot *b, bool (*done)(const struct rr_boot *b),
                 int (*expired)(struct rr_boot *b, ringred_error *why), int64_t deadline_ns)
{
    ringred_error why = { 0 };

    while (!done(b)) {
        /* the root's own deadline may come nearer as ranks arrive that have less time left */
        int64_t until = b->is_root && b->deadline_ns < deadline_ns ? b->deadline_ns : deadline_ns;
        b->polls.wake_ns = until;
        RR_TRY(rr_boot_turn(b));
        if (done(b))
            break;
        if (rr_now_ns() >= until) {
            expired(b, &why);
            return rr_boot_fail(b, &why);
        }
        if (is_interrupted(b, &why))
            return rr_boot_fail(b, &why);
    }
    return 0;
}

/* ---- failure ---- */

/* Sends the failure as soon as the line is free, then says no more, and reads on until the other
 * end has closed: closing at once could throw away what is still on its way to it. */
static void tell_line(struct rr_line *l, unsigned char *frame, const ringred_error *failure,
                      bool *told)
{
    unsigned char ignored[512];
    ssize_t n;

    if (rr_line_write(l) < 0) {
        rr_line_close(l);
        return;
    }
    if (!l->sending && !*told) {
        rr_fail_write(failure, frame);
        rr_line_send(l, RR_NOTE_FAIL, 0, frame, RR_FAIL_BYTES);
        *told = true;
        if (rr_line_write(l) < 0) {
            rr_line_close(l);
            return;
        }
    }
    if (*told && !l->sending)
        (void)shutdown(l->fd, SHUT_WR); /* the other end sees what it sees */
    do
        n = recv(l->fd, ignored, sizeof ignored, 0);
    while (n > 0 || (n < 0 && errno == EINTR));
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
        rr_line_close(l);
}

/* True: somebody is still to be told, or to be heard out. */
static bool tell_lines(struct rr_boot *b, unsigned char *frame)
{
    bool open = false;

    for (int i = 0; i < b->lines; i++) {
        struct rr_line *l = &b->line[i];
        if (l->fd >= 0)
            tell_line(l, frame, &b->failure, &l->answered);
        if (l->fd >= 0)
            rr_polls_add(&b->polls, l->fd, (short)(POLLIN | (l->sending ? POLLOUT : 0)));
        open = open || l->fd >= 0;
    }
    return open;
}

/* Ranks that were started wrongly, or with too few descriptors, cannot meet however often they try: those that have not
 * come yet are waited for, too, so that they need not try until their own deadline. */
static bool waits_for_late_ones(const struct rr_boot *b)
{
    int code = b->failure.code;

    if ((code != RINGRED_ECONFIG && code != RINGRED_ELIMIT) || !b->is_root || !b->meet || !b->meet->open)
        return false;
    for (int r = 1; r < b->size; r++)
        if (!b->line[r].heard)
            return true;
    return false;
}

static void tell(struct rr_boot *b)
{
    unsigned char frame[RR_FAIL_BYTES];
    int64_t until = rr_now_ns() + TELL_NS;

    for (int i = 0; i < b->lines; i++) {
        b->line[i].answered = false; /* from here on: has been told */
        b->line[i].heard = b->line[i].fd >= 0;
    }
    while (rr_now_ns() < until) {
        b->polls.used = 0;
        b->polls.wake_ns = until;
        bool open = tell_lines(b, frame), late = waits_for_late_ones(b);
        if (!open && !late)
            return;
        if (late)
            rr_gate_polls(b->meet, &b->polls);
        (void)poll(b->polls.at, (nfds_t)b->polls.used, rr_deadline_ms(b->polls.wake_ns, 1000));
        if (late)
            rr_gate_turn(b->meet, &b->polls, b->log, rr_meet_admit, b);
        for (int r = 1; r < b->size && late; r++)
            b->line[r].heard = b->line[r].heard || b->line[r].fd >= 0;
    }
}

/* Lack of memory and the like: the others must hear whose. */
static void name_myself(const struct rr_boot *b, ringred_error *failure)
{
    char text[sizeof failure->text];

    if (failure->rank >= 0 || failure->code <= RINGRED_EPEER)
        return;
    failure->rank = b->rank;
    snprintf(text, sizeof text, "rank %d: %.*s", b->rank, (int)sizeof text - 20, failure->text);
    memcpy(failure->text, text, sizeof text);
}

int rr_boot_fail(struct rr_boot *b, const ringred_error *failure)
{
    if (b->failure.code)
        return b->failure.code;
    b->failure = *failure;
    name_myself(b, &b->failure);
    b->x.active = false;
    bool expected = b->launch.interrupt.reason && b->failure.code == RINGRED_EINTERRUPTED;
    rr_log(b->log, expected ? RINGRED_LOG_INFO : RINGRED_LOG_ERROR, "%s", b->failure.text);
    tell(b);
    for (int i = 0; i < b->lines; i++)
        rr_line_close(&b->line[i]);
    return failure->code;
}

void rr_boot_tell(struct rr_boot *b, const ringred_error *why)
{
    (void)rr_boot_fail(b, why); /* the code is the caller's own */
}

int rr_system_code(int system)
{
    switch (system) {
    case EMFILE:
    case ENFILE:
        return RINGRED_ELIMIT;
    case ENOMEM:
    case ENOBUFS:
        return RINGRED_ENOMEM;
    default:
        return RINGRED_ESYSTEM;
    }
}

const char *rr_boot_period(const struct rr_boot *b, char text[32])
{
    snprintf(text, 32, "%.3g s", (double)(b->deadline_ns - b->started_ns) / 1e9);
    return text;
}
