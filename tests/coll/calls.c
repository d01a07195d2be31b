/* SPDX-License-Identifier: Apache-2.0 */
/* See calls.h. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64

const struct calls_collective calls_collectives[CALLS_KINDS] = {
    [CALLS_REDUCE] = { "reduce", '1', 'r', true, false },
    [CALLS_REDUCE_SCATTER] = { "reduce_scatter", 'n', '1', true, true },
    [CALLS_ALLGATHER] = { "allgather", '1', 'n', false, true },
    [CALLS_GATHER] = { "gather", '1', 'R', false, true },
    [CALLS_SCATTER] = { "scatter", 'R', '1', false, true },
    [CALLS_ALLTOALL] = { "alltoall", 'n', 'n', false, true },
    [CALLS_ALLREDUCE] = { "allreduce", '1', '1', true, false },
    [CALLS_BROADCAST] = { "broadcast", 'r', '1', false, false },
    [CALLS_BARRIER] = { "barrier", '0', '0', false, false },
};

static int parts(char code, bool root, int n)
{
    switch (code) {
    case '1':
        return 1;
    case 'n':
        return n;
    case 'r':
        return root;
    case 'R':
        return root ? n : 0;
    default:
        return 0;
    }
}

/* ---- buffers ---- */

void calls_memory_open(struct calls_memory *m, ringred_comm *comm, size_t bytes)
{
    m->bytes = bytes;
    m->window_bytes = bytes < CALLS_WINDOW ? bytes : CALLS_WINDOW;
    m->want = malloc(bytes);
    rank_check(m->want != NULL);
    for (int i = 0; i < 2; i++) {
        void *window = NULL;

        m->plain[i] = malloc(bytes);
        rank_check(m->plain[i] != NULL);
        coll_must(comm, ringred_alloc(comm, m->window_bytes, &window), "ringred_alloc");
        m->window[i] = window;
    }
}

void calls_memory_close(struct calls_memory *m)
{
    for (int i = 0; i < 2; i++) {
        free(m->plain[i]);
        rank_check_int(ringred_free(m->window[i]), 0);
    }
    free(m->want);
}

static unsigned char *place(const struct calls_memory *m, int which, const struct call *c,
                            struct numbers_random *mine)
{
    const int most = c->in_parts > c->out_parts ? c->in_parts : c->out_parts;
    const size_t need = (size_t)most * c->bytes + CALLS_MARGIN;
    bool in_window = numbers_below(mine, 2) && need <= m->window_bytes;
    size_t offset = numbers_below(mine, 3) ? 0 : numbers_below(mine, 64);

    rank_check(need <= m->bytes);
    return (in_window ? m->window[which] : m->plain[which]) + GUARD +
           offset / numbers_bytes(c->job.type) * numbers_bytes(c->job.type);
}

/* ---- numbers that repeat after a period ---- */

/* The array begins with n elements; the rest, up to count, repeats it. */
static void repeat(unsigned char *to, size_t n, size_t count, size_t bytes)
{
    for (size_t i = n; i < count; i += n) {
        const size_t left = count - i;

        memcpy(to + i * bytes, to, (left < n ? left : n) * bytes);
    }
}

/* Elements first .. of a rank's input, or (rank -1) of the reduction of all. */
static void numbers(const struct call *c, unsigned char *to, int rank, size_t first, size_t count)
{
    const struct numbers_job *job = &c->job;
    const size_t bytes = numbers_bytes(job->type);
    size_t at = c->period ? first % c->period : first, done = 0;

    while (done < count && done < (c->period ? c->period : count)) {
        size_t n = count - done;

        if (c->period && n > c->period - at)
            n = c->period - at;
        if (c->period && n > c->period - done)
            n = c->period - done;
        if (rank < 0)
            numbers_expect(to + done * bytes, job, at, n);
        else
            numbers_fill(to + done * bytes, job->type, job->kind, job->seed, rank, at, n);
        done += n;
        at = c->period ? (at + n) % c->period : at + n;
    }
    if (done < count)
        repeat(to, done, count, bytes);
}

void calls_prepare(struct call *c, const struct calls_memory *m, const struct rank *me,
                   struct numbers_random *mine)
{
    const struct calls_collective *what = &calls_collectives[c->kind];
    size_t own;

    c->bytes = c->count * numbers_bytes(c->job.type);
    c->in_parts = parts(what->in, me->rank == c->root, me->size);
    c->out_parts = parts(what->out, me->rank == c->root, me->size);
    own = (size_t)me->rank * c->bytes;
    c->in_place = c->in_place && c->in_parts && c->out_parts;
    c->send = place(m, 0, c, mine);
    c->recv = place(m, 1, c, mine);
    if (c->in_place && c->in_parts == c->out_parts)
        c->recv = c->send;
    else if (c->in_place && c->in_parts < c->out_parts)
        c->send = c->recv + own;
    else if (c->in_place)
        c->recv = c->send + own;
    else
        memset(c->recv, 0xee, c->bytes * (size_t)c->out_parts);
    memset(c->recv - GUARD, 0xa5, c->in_place ? 0 : GUARD);
    memset(c->recv + c->bytes * (size_t)c->out_parts, 0x5a, c->in_place ? 0 : GUARD);
    numbers(c, c->send, me->rank, 0, c->count * (size_t)c->in_parts);
    snprintf(c->text, sizeof c->text, "%s%s of %zu, type %d, op %d, root %d, %s, seed 0x%llx", what->name,
             c->v ? "v" : "", c->count, c->job.type, c->job.op, c->root,
             c->in_place ? "in place" : "out of place", (unsigned long long)c->job.seed);
}

/* ---- the call ---- */

static int32_t run_v(ringred_comm *comm, const struct call *c, const void *send, void *recv)
{
    size_t counts[RANKS_MOST];
    int type = c->job.type;

    for (int i = 0; i < RANKS_MOST; i++)
        counts[i] = c->count;
    switch (c->kind) {
    case CALLS_REDUCE_SCATTER:
        return ringred_reduce_scatterv(comm, send, recv, counts, type, c->job.op);
    case CALLS_ALLGATHER:
        return ringred_allgatherv(comm, send, c->count, recv, counts, NULL, type);
    case CALLS_GATHER:
        return ringred_gatherv(comm, send, c->count, recv, recv ? counts : NULL, NULL, type, c->root);
    case CALLS_SCATTER:
        return ringred_scatterv(comm, send, send ? counts : NULL, NULL, recv, c->count, type, c->root);
    default:
        return ringred_alltoallv(comm, send, counts, NULL, recv, counts, NULL, type);
    }
}

int32_t calls_run(ringred_comm *comm, const struct call *c)
{
    const void *send = c->in_parts ? c->send : NULL;
    void *recv = c->out_parts ? c->recv : NULL;
    int type = c->job.type, op = c->job.op;

    if (c->v)
        return run_v(comm, c, send, recv);
    switch (c->kind) {
    case CALLS_REDUCE:
        return ringred_reduce(comm, send, recv, c->count, type, op, c->root);
    case CALLS_REDUCE_SCATTER:
        return ringred_reduce_scatter(comm, send, recv, c->count, type, op);
    case CALLS_ALLGATHER:
        return ringred_allgather(comm, send, recv, c->count, type);
    case CALLS_GATHER:
        return ringred_gather(comm, send, recv, c->count, type, c->root);
    case CALLS_SCATTER:
        return ringred_scatter(comm, send, recv, c->count, type, c->root);
    case CALLS_ALLTOALL:
        return ringred_alltoall(comm, send, recv, c->count, type);
    case CALLS_ALLREDUCE:
        return ringred_allreduce(comm, send, recv, c->count, type, op);
    case CALLS_BROADCAST:
        return ringred_broadcast(comm, send, recv, c->count, type, c->root);
    default:
        return ringred_barrier(comm);
    }
}

/* ---- what must have come out ---- */

/* Part p of my output. */
static void expect(const struct call *c, const struct rank *me, int p, unsigned char *want)
{
    size_t mine = (size_t)me->rank * c->count;

    switch (c->kind) {
    case CALLS_REDUCE:
    case CALLS_ALLREDUCE:
        numbers(c, want, -1, 0, c->count);
        break;
    case CALLS_REDUCE_SCATTER:
        numbers(c, want, -1, mine, c->count);
        break;
    case CALLS_ALLGATHER:
    case CALLS_GATHER:
        numbers(c, want, p, 0, c->count);
        break;
    case CALLS_SCATTER:
        numbers(c, want, c->root, mine, c->count);
        break;
    case CALLS_BROADCAST:
        numbers(c, want, c->root, 0, c->count);
        break;
    default:
        numbers(c, want, p, mine, c->count);
        break;
    }
}

void calls_check(const struct call *c, const struct calls_memory *m, const struct rank *me)
{
    char text[200];
    size_t all = c->bytes * (size_t)c->out_parts;
    bool bits = !calls_collectives[c->kind].reduces || c->exact;

    for (int p = 0; p < c->out_parts; p++) {
        const unsigned char *got = c->recv + (size_t)p * c->bytes;
        long at;

        expect(c, me, p, m->want);
        at = bits ? numbers_differ(got, m->want, c->job.type, c->count, text, sizeof text)
                  : numbers_stray(got, m->want, c->job.type, c->count, 0.002, text, sizeof text);
        rank_check_msg(at < 0, "%s: part %d: %s", c->text, p, text);
    }
    for (size_t i = 0; i < GUARD && !c->in_place; i++)
        rank_check_msg(c->recv[-1 - (ptrdiff_t)i] == 0xa5 && c->recv[all + i] == 0x5a,
                       "%s: wrote outside of recv", c->text);
    if (c->in_place)
        return;
    numbers(c, m->want, me->rank, 0, c->count * (size_t)c->in_parts);
    rank_check_msg(memcmp(c->send, m->want, c->bytes * (size_t)c->in_parts) == 0, "%s: send was written", c->text);
}
