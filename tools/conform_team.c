/* SPDX-License-Identifier: Apache-2.0 */
/* What <ringred/team.h> asks of a team. Ranks use the table directly; in the last tests it runs under the library. */
#include "conform.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static const ringred_team *by;

bool conform_team_load(void *symbol)
{
    ringred_team_entry entry;

    memcpy(&entry, &symbol, sizeof entry);
    by = entry();
    return by && by->struct_size >= sizeof *by && by->name && strcmp(by->name, conform_name) == 0 && by->can &&
           by->id && by->open && by->start && by->test && by->abort && by->close;
}

int32_t conform_team_usable(ringred_error *why)
{
    return by->usable ? by->usable(NULL, why) : 0;
}

/* ---- making one ---- */

static int32_t open_until(struct me *m, int64_t timeout_ns, ringred_error *why)
{
    struct hall *hall = m->hall;

    ringred_error_init(why);
    if (m->rank == 0)
        hall->bytes[0] = by->id(&m->host, hall->address[0], why);
    conform_meet(m);
    MUST(hall->bytes[0] >= 0 && hall->bytes[0] <= RINGRED_ADDRESS_MOST, "id returned %d: %s", hall->bytes[0],
         why->text);
    if (timeout_ns < 0)
        return RINGRED_EPEER; /* this rank does not come */
    return by->open(&m->host, hall->address[0], hall->bytes[0], conform_now_ns() + timeout_ns, &m->self, why);
}

static void open_team(struct me *m)
{
    ringred_error why;

    conform_furnish(m);
    MUST(open_until(m, conform_limit_s * RINGRED_SECOND / 3, &why) == 0, "rank %d: open: %s", m->rank, why.text);
}

static void start(struct me *m, const ringred_team_call *call)
{
    const int64_t before = conform_now_ns();
    ringred_error why;

    ringred_error_init(&why);
    MUST(by->start(m->self, call, &why) == 0, "rank %d: start: %s", m->rank, why.text);
    MUST(conform_now_ns() - before < RINGRED_SECOND, "rank %d: start waited", m->rank);
}

static int32_t test(struct me *m)
{
    ringred_error why;

    ringred_error_init(&why);
    const int32_t rc = by->test(m->self, &why);
    MUST(rc == 0 || rc == RINGRED_PENDING, "rank %d: test returned %d: %s", m->rank, rc, why.text);
    return rc;
}

static void run(struct me *m, const ringred_team_call *call)
{
    const int64_t until = conform_now_ns() + conform_limit_s * RINGRED_SECOND / 3;

    start(m, call);
    while (test(m) != 0) {
        MUST(conform_now_ns() < until, "rank %d: collective %d of %zu elements does not end", m->rank, call->collective,
             call->count);
        sched_yield();
    }
}

/* ---- numbers ---- */

#define MOST 20000

static int32_t value(int rank, size_t i)
{
    return (int32_t)((i * 37 + (size_t)rank * 101) % 1009) - 300;
}

/* What a rank must have of element i of its output, which has `count` elements in a part. */
static int32_t due(const struct me *m, const ringred_team_call *call, size_t i)
{
    const size_t count = call->count, part = i / count, at = i % count;
    int32_t sum = 0;

    switch (call->collective) {
    case RINGRED_BROADCAST:
        return value(call->root, i);
    case RINGRED_ALLGATHER:
    case RINGRED_GATHER:
        return value((int)part, at);
    case RINGRED_SCATTER:
        return value(call->root, (size_t)m->rank * count + i);
    case RINGRED_ALLTOALL:
        return value((int)part, (size_t)m->rank * count + at);
    default:
        for (int r = 0; r < m->ranks; r++) {
            const int32_t x = value(r, call->collective == RINGRED_REDUCE_SCATTER ? (size_t)m->rank * count + i : i);
            sum = r == 0 ? x : call->op == RINGRED_MAX ? (x > sum ? x : sum) : sum + x;
        }
        return call->op == RINGRED_AVG ? sum / m->ranks : sum;
    }
}

static bool is_rooted(int32_t collective)
{
    return collective == RINGRED_BROADCAST || collective == RINGRED_REDUCE || collective == RINGRED_GATHER ||
           collective == RINGRED_SCATTER;
}

static bool reduces(int32_t collective)
{
    return collective == RINGRED_ALLREDUCE || collective == RINGRED_REDUCE || collective == RINGRED_REDUCE_SCATTER;
}

/* Parts of what this rank reads and writes. */
static size_t parts_in(const struct me *m, const ringred_team_call *c)
{
    const bool root = c->root < 0 || c->root == m->rank;

    if (c->collective == RINGRED_REDUCE_SCATTER || c->collective == RINGRED_ALLTOALL)
        return (size_t)m->ranks;
    return c->collective == RINGRED_SCATTER              ? (root ? (size_t)m->ranks : 0)
           : c->collective == RINGRED_BROADCAST && !root ? 0
                                                         : 1;
}

static size_t parts_out(const struct me *m, const ringred_team_call *c)
{
    const bool root = c->root < 0 || c->root == m->rank;

    if (c->collective == RINGRED_ALLGATHER || c->collective == RINGRED_ALLTOALL)
        return (size_t)m->ranks;
    return c->collective == RINGRED_GATHER            ? (root ? (size_t)m->ranks : 0)
           : c->collective == RINGRED_REDUCE && !root ? 0
                                                      : 1;
}

static void check_call(struct me *m, ringred_team_call *call, bool in_place)
{
    static int32_t in[MOST * RANKS], out[MOST * RANKS];
    const size_t ins = parts_in(m, call) * call->count, outs = parts_out(m, call) * call->count;
    int32_t *from = in_place ? out : in;

    if (in_place && call->collective == RINGRED_ALLGATHER)
        from = out + (size_t)m->rank * call->count;
    memset(out, 0x55, sizeof out);
    for (size_t i = 0; i < ins; i++)
        from[i] = value(m->rank, i);
    call->send = ins ? from : NULL;
    call->recv = outs ? out : NULL;
    run(m, call);
    for (size_t i = 0; i < outs; i++)
        MUST(out[i] == due(m, call, i),
             "rank %d: collective %d, op %d, of %zu elements%s: element %zu is %d and not %d", m->rank,
             call->collective, call->op, call->count, in_place ? " in place" : "", i, out[i], due(m, call, i));
    MUST(outs == MOST * RANKS || out[outs] == 0x55555555, "rank %d: collective %d wrote behind its end", m->rank,
         call->collective);
    for (size_t i = 0; i < ins && !in_place; i++)
        MUST(in[i] == value(m->rank, i), "rank %d: collective %d changed what it was to read", m->rank,
             call->collective);
    call->send = NULL;
    call->recv = NULL;
}

static ringred_team_call call_of(const struct me *m, int32_t collective, int32_t type, int32_t op, size_t count)
{
    return (ringred_team_call){ .struct_size = sizeof(ringred_team_call),
                                .collective = collective,
                                .count = count,
                                .type = type,
                                .op = reduces(collective) ? op : 0,
                                .root = is_rooted(collective) ? 1 : -1,
                                .ranks = m->ranks,
                                .scale = 1 };
}

static void integers_come_out_right(struct me *m)
{
    static const int32_t ops[] = { RINGRED_SUM, RINGRED_MAX, RINGRED_AVG };
    static const size_t counts[] = { 1, 7, 1000, MOST };
    int ran = 0;

    open_team(m);
    for (int32_t what = RINGRED_ALLREDUCE; what <= RINGRED_ALLTOALL; what++)
        for (int op = 0; op < (reduces(what) ? 3 : 1); op++)
            for (int n = 0; n < 4; n++) {
                ringred_team_call call = call_of(m, what, RINGRED_INT32, ops[op], counts[n]);
                if (by->can(&call) != 0)
                    continue;
                ran++;
                check_call(m, &call, false);
                if (what == RINGRED_ALLREDUCE || what == RINGRED_ALLGATHER)
                    check_call(m, &call, true);
            }
    MUST(ran, "it can no collective of int32");
    conform_meet(m);
    by->close(m->self);
}

static void what_it_can_is_the_same_everywhere(struct me *m)
{
    uint64_t h = 0;

    open_team(m);
    for (int round = 0; round < 2; round++)
        for (int32_t what = RINGRED_ALLREDUCE; what <= RINGRED_ALLTOALL; what++)
            for (int32_t type = RINGRED_FLOAT32; type <= RINGRED_BYTES; type++)
                for (int32_t op = RINGRED_SUM; op <= RINGRED_LXOR; op++) {
                    const ringred_team_call call = call_of(m, what, type, op, (size_t)type * 100);
                    const int32_t rc = by->can(&call);
                    MUST(rc == 0 || rc == RINGRED_EUNSUPPORTED, "rank %d: can returned %d", m->rank, rc);
                    h = (h ^ (rc == 0)) * 0x100000001b3u + 7;
                }
    atomic_store(&m->hall->flag[m->rank], (int)(h >> 32));
    conform_meet(m);
    MUST(atomic_load(&m->hall->flag[0]) == (int)(h >> 32), "rank %d: can answers otherwise than on rank 0", m->rank);
    conform_meet(m);
    by->close(m->self);
}

/* ---- waiting ---- */

static ringred_team_call some_call(struct me *m, int32_t *x)
{
    ringred_team_call call = call_of(m, RINGRED_ALLREDUCE, RINGRED_INT32, RINGRED_SUM, 1000);

    if (by->can(&call) != 0)
        call = call_of(m, RINGRED_ALLGATHER, RINGRED_INT32, RINGRED_SUM, 1000 / (size_t)m->ranks);
    MUST(by->can(&call) == 0, "it can neither allreduce nor allgather int32");
    call.send = x;
    call.recv = x + 1000;
    return call;
}

static void sleepers_are_woken(struct me *m)
{
    static int32_t x[2000];
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    const ringred_team_call call = some_call(m, x);

    open_team(m);
    const int fd = by->descriptor ? by->descriptor(m->self) : -1;
    const int set = fd >= 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;
    MUST(fd < 0 || (set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0),
         "rank %d: descriptor %d cannot be watched", m->rank, fd);
    for (int i = 0; i < 20; i++) {
        const int64_t until = conform_now_ns() + conform_limit_s * RINGRED_SECOND / 6;
        if (m->rank == i % m->ranks) /* comes when the others sleep */
            for (int r = 0; r < m->ranks; r++)
                while (r != m->rank && atomic_load(&m->hall->flag[r]) <= i && conform_now_ns() < until)
                    sched_yield();
        start(m, &call);
        while (test(m) == RINGRED_PENDING) {
            atomic_store(&m->hall->flag[m->rank], i + 1);
            const int woken = set >= 0 ? epoll_wait(set, &event, 1, conform_limit_s * 1000 / 6) : sched_yield() + 1;
            MUST(woken > 0 && conform_now_ns() < until, "rank %d: the call does not end, or its end woke nobody",
                 m->rank);
        }
        atomic_store(&m->hall->flag[m->rank], i + 1);
    }
    conform_meet(m);
    by->close(m->self);
}

static void abort_frees_ranks_that_wait(struct me *m)
{
    static int32_t x[2000];
    const ringred_team_call call = some_call(m, x);

    open_team(m);
    conform_meet(m);
    if (m->rank != 1) { /* which does not come */
        start(m, &call);
        for (int i = 0; i < 100; i++)
            MUST(test(m) == RINGRED_PENDING, "rank %d: a call has ended that rank 1 is not in", m->rank);
        conform_meet(m); /* all wait */
        by->abort(m->self);
        memset(x, 0x33, sizeof x);
        conform_meet(m); /* all have aborted */
        MUST(x[0] == 0x33333333 && memcmp(x, x + 1, sizeof x - sizeof *x) == 0,
             "rank %d: a buffer was written after abort", m->rank);
    } else {
        conform_meet(m);
        conform_meet(m);
        by->abort(m->self);
    }
    by->close(m->self);
}

static void open_keeps_its_deadline(struct me *m)
{
    ringred_error why;
    const int64_t before = conform_now_ns();

    conform_furnish(m);
    const int32_t rc = open_until(m, m->rank == m->ranks - 1 ? -1 : RINGRED_SECOND / 2, &why);
    /* a team that needs nobody to come may open; the library finds out elsewhere */
    MUST(rc <= 0, "rank %d: open returned %d", m->rank, rc);
    MUST(conform_now_ns() - before < 5 * RINGRED_SECOND, "rank %d: open kept its deadline of 0.5 s for %g s", m->rank,
         (double)(conform_now_ns() - before) / 1e9);
    MUST(rc == 0 || m->rank == m->ranks - 1 || why.text[0], "rank %d: open failed without a sentence", m->rank);
    conform_meet(m);
    if (rc == 0)
        by->close(m->self);
}

static void open_and_run(struct me *m)
{
    static int32_t x[2000];
    const ringred_team_call call = some_call(m, x);

    open_team(m);
    run(m, &call);
}

static void close_team(struct me *m)
{
    by->close(m->self);
}

static void nothing_is_left_open(struct me *m)
{
    conform_leave_nothing_open(m, open_and_run, close_team);
}

/* ---- through the library ---- */

#define RESULTS ((size_t)5 * MOST)

static void run_all(struct me *m, ringred_comm *comm, float *result, int32_t *whole)
{
    static float in[MOST * RANKS];
    static int32_t exact[MOST];
    ringred_comm *part;

    for (size_t i = 0; i < MOST * RANKS; i++)
        in[i] = (float)((i * 7919 + (size_t)m->rank * 104729) % 1000003) / 1013.0f;
    for (size_t i = 0; i < MOST; i++)
        exact[i] = value(m->rank, i) * 1000003;
    conform_must(m, comm, ringred_allreduce(comm, in, result, MOST, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    conform_must(m, comm, ringred_reduce_scatter(comm, in, result + MOST, MOST, RINGRED_FLOAT32, RINGRED_AVG),
                 "reduce_scatter");
    conform_must(m, comm, ringred_broadcast(comm, in, result + 2 * MOST, MOST, RINGRED_FLOAT32, 1), "broadcast");
    conform_must(m, comm, ringred_allreduce(comm, exact, whole, MOST, RINGRED_INT32, RINGRED_SUM), "allreduce");
    conform_must(m, comm, ringred_allreduce(comm, exact, whole + MOST, MOST, RINGRED_INT32, RINGRED_AVG), "allreduce");
    conform_must(m, comm, ringred_comm_split(comm, m->rank % 2, 0, &part), "split");
    conform_must(m, part, ringred_allreduce(part, in, result + 3 * MOST, MOST, RINGRED_FLOAT32, RINGRED_SUM),
                 "allreduce of a half");
    conform_must(m, comm, ringred_reduce(comm, in, result + 4 * MOST, MOST, RINGRED_FLOAT32, RINGRED_SUM, 0), "reduce");
    MUST(ringred_comm_destroy(part) == 0, "rank %d: destroying a half failed", m->rank);
}

static void numbers_are_those_of_the_library(struct me *m)
{
    float *mine = calloc(RESULTS, sizeof *mine), *theirs = calloc(RESULTS, sizeof *theirs);
    int32_t *whole = calloc(4 * MOST, sizeof *whole);
    char setting[64];

    MUST(mine && theirs && whole, "no memory");
    snprintf(setting, sizeof setting, "team=%s", conform_name);
    ringred_comm *a = conform_library_open(m, setting, by->order == RINGRED_ORDER_TREE ? NULL : "numerics=fast");
    run_all(m, a, mine, whole);
    MUST(ringred_comm_destroy(a) == 0, "rank %d: destroy failed with team %s", m->rank, conform_name);
    ringred_comm *b = conform_library_open(m, "team=", NULL);
    run_all(m, b, theirs, whole + 2 * MOST);
    MUST(ringred_comm_destroy(b) == 0, "rank %d: destroy failed without a team", m->rank);
    MUST(memcmp(whole, whole + 2 * MOST, 2 * MOST * sizeof *whole) == 0,
         "rank %d: sums of integers differ from the library's", m->rank);
    for (size_t i = 0; i < RESULTS; i++)
        MUST(by->order == RINGRED_ORDER_TREE ? memcmp(&mine[i], &theirs[i], sizeof *mine) == 0
                                             : fabsf(mine[i] - theirs[i]) <= 1e-5f * fabsf(theirs[i]),
             "rank %d: result %zu is %.9g, the library's %.9g", m->rank, i, (double)mine[i], (double)theirs[i]);
    free(mine);
    free(theirs);
    free(whole);
}

static void the_library_names_a_rank_that_dies(struct me *m)
{
    char setting[64];
    ringred_error why;
    int32_t x = 1, rc = 0;

    snprintf(setting, sizeof setting, "team=%s", conform_name);
    ringred_comm *comm = conform_library_open(m, setting, NULL);
    conform_must(m, comm, ringred_allreduce(comm, &x, &x, 1, RINGRED_INT32, RINGRED_MAX), "allreduce");
    conform_meet(m); /* all are through */
    if (m->rank == 2)
        raise(SIGKILL);
    while (rc == 0)
        rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_INT32, RINGRED_MAX);
    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    MUST(rc == RINGRED_EPEER && why.rank == 2, "rank %d: rank 2 died; the library got status %d, rank %d: %s", m->rank,
         rc, why.rank, why.text);
    (void)ringred_comm_destroy(comm); /* it tells of the same */
}

const struct conform_test conform_team_tests[] = {
    { "integers come out right", integers_come_out_right, 3, 0, -1 },
    { "what it can is the same everywhere", what_it_can_is_the_same_everywhere, 2, 0, -1 },
    { "sleepers are woken", sleepers_are_woken, 3, 0, -1 },
    { "abort frees ranks that wait", abort_frees_ranks_that_wait, 3, 0, -1 },
    { "open keeps its deadline", open_keeps_its_deadline, 3, 0, -1 },
    { "nothing is left open", nothing_is_left_open, 3, 0, -1 },
    { "numbers are those of the library", numbers_are_those_of_the_library, 4, 0, -1 },
    { "the library names a rank that dies", the_library_names_a_rank_that_dies, 4, 0, 2 },
};
const int conform_team_tests_made = (int)(sizeof conform_team_tests / sizeof conform_team_tests[0]);
