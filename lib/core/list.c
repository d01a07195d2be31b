/* SPDX-License-Identifier: Apache-2.0 */
/* Many vectors in one request. It is cut into runs, which follow each other as if they had been called for one by
 * one. Vectors of one type run together, as the pieces of one that is read and written where they lie; but for tiny
 * ones, which are copied into a bucket first, and large ones where all ranks share memory, which may have windows. All
 * ranks cut alike, from types and counts alone. What an element becomes depends neither on where it lies in a vector
 * nor on who is beside it, so the numbers are those of single calls. */
#include "core/core.h"

#include <string.h>

#define TINY_MOST ((size_t)4 << 10) /* bytes of a vector that goes into the bucket */
#define BUCKET ((size_t)1 << 20)
#define RUN_MOST ((size_t)1 << 30)   /* bytes of vectors that run together */
#define ALONE_LEAST ((size_t)64 << 10) /* in shared memory: bytes of one that runs by itself, */
#define CROWDED_LEAST ((size_t)4 << 20) /* and where each run costs turns on a CPU */

struct member {
    const char *in;
    char *out;
    size_t count;
    int32_t type;
};

struct rr_list {
    enum rr_collective what;
    int op, root;
    bool in, out;               /* this rank has vectors to read, to write */
    bool follows;               /* of a broadcast, not its root: runs are in place, and nothing is read */
    size_t n, runs, at;         /* at: the run under way */
    size_t alone_least;         /* bytes of a vector that runs by itself */
    size_t room, run_room;      /* of what follows; kept, like the bucket */
    struct member *member;
    uint32_t *order;            /* members that have elements, in the order of runs */
    struct rr_piece *in_piece, *out_piece; /* of the run under way */
    struct rr_pieces in_pieces, out_pieces;
    struct rr_list_run *run;
    char *bucket;
};

void rr_list_free(struct rr_list *l)
{
    if (!l)
        return;
    rr_free(l->member);
    rr_free(l->order);
    rr_free(l->in_piece);
    rr_free(l->out_piece);
    rr_free(l->run);
    rr_free(l->bucket);
    rr_free(l);
}

static uint64_t mix(uint64_t h, uint64_t with)
{
    h = (h ^ with) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

uint64_t rr_list_signature(const struct rr_vectors *v)
{
    uint64_t h = 0x9e3779b97f4a7c15u;

    for (size_t i = 0; i < v->n; i++)
        h = mix(mix(h, v->count[i]), (uint64_t)(uint32_t)v->type[i] + 1);
    return (uint64_t)v->n << 32 | h >> 32;
}

static bool has_room(struct rr_list *l, size_t n)
{
    if (n <= l->room)
        return true;
    rr_free(l->member);
    rr_free(l->order);
    rr_free(l->in_piece);
    rr_free(l->out_piece);
    l->room = 0;
    l->member = rr_alloc(n, sizeof *l->member);
    l->order = rr_alloc(n, sizeof *l->order);
    l->in_piece = rr_alloc(n, sizeof *l->in_piece);
    l->out_piece = rr_alloc(n, sizeof *l->out_piece);
    if (!l->member || !l->order || !l->in_piece || !l->out_piece)
        return false;
    l->room = n;
    return true;
}

static bool has_run_room(struct rr_list *l)
{
    size_t more = l->run_room ? 2 * l->run_room : 16;

    if (l->runs < l->run_room)
        return true;
    struct rr_list_run *longer = rr_alloc(more, sizeof *longer);
    if (!longer)
        return false;
    for (size_t i = 0; i < l->runs; i++)
        longer[i] = l->run[i];
    rr_free(l->run);
    l->run = longer;
    l->run_room = more;
    return true;
}

static void copy_members(struct rr_list *l, const struct rr_vectors *v)
{
    for (size_t i = 0; i < v->n; i++)
        l->member[i] = (struct member){ l->follows ? v->out[i] : l->in ? v->in[i] : NULL,
                                         l->out ? v->out[i] : NULL, v->count[i], v->type[i] };
    l->n = v->n;
}

enum { TINY, MIDDLE, ALONE, KINDS };

static int kind_of(const struct rr_list *l, size_t bytes)
{
    return bytes <= TINY_MOST ? TINY : bytes < l->alone_least ? MIDDLE : ALONE;
}

/* The runs of one type: tiny vectors, bucket by bucket, those of the middle behind the last bucket, the others one by
 * one. *used: of order. */
static bool cut(struct rr_list *l, int type, size_t *used)
{
    size_t bytes = rr_type_bytes(type);
    struct rr_list_run *open = NULL; /* that more may join */

    for (int kind = TINY; kind < KINDS; kind++)
        for (size_t i = 0; i < l->n; i++) {
            const struct member *m = &l->member[i];
            if (m->type != type || !m->count || kind_of(l, m->count * bytes) != kind)
                continue;
            if (!open || kind == ALONE ||
                open->count * bytes + m->count * bytes > (kind == TINY ? BUCKET : RUN_MOST)) {
                if (!has_run_room(l))
                    return false;
                open = &l->run[l->runs++];
                *open = (struct rr_list_run){ .type = type, .first = *used };
            }
            open->packed += kind == TINY;
            open->members++;
            open->count += m->count;
            l->order[(*used)++] = (uint32_t)i;
        }
    return true;
}

static bool has_bucket(struct rr_list *l)
{
    if (!l->bucket)
        l->bucket = rr_alloc_aligned(4096, BUCKET);
    return l->bucket != NULL;
}

static bool cut_all(struct rr_list *l)
{
    bool named[RR_TYPES] = { false };
    size_t used = 0;

    l->runs = l->at = 0;
    for (size_t i = 0; i < l->n; i++)
        named[l->member[i].type] = true;
    for (int type = 1; type < RR_TYPES; type++)
        if (named[type] && !cut(l, type, &used))
            return false;
    if (!l->runs) { /* nothing to do, but all must say so */
        if (!has_run_room(l))
            return false;
        l->run[l->runs++] = (struct rr_list_run){ .type = l->n ? l->member[0].type : RINGRED_INT32 };
    }
    for (size_t i = 0; i < l->runs; i++) {
        l->run[i].packed *= l->run[i].packed > 1; /* one is as well where it lies */
        if (l->run[i].packed && !has_bucket(l))
            return false;
    }
    return true;
}

int rr_list_take(struct ringred_request *q, const struct rr_call *call, const struct rr_shape *shape, size_t *runs)
{
    struct rr_list *l = q->list ? q->list : rr_alloc(1, sizeof *l);

    q->list = l;
    if (!l || !has_room(l, call->vectors->n))
        return RINGRED_ENOMEM;
    l->what = call->what;
    l->op = call->op;
    l->root = call->root;
    l->in = shape->in != 0;
    l->follows = call->what == RR_BROADCAST && q->comm->rank != call->root;
    l->out = shape->out != 0;
    l->alone_least = !q->comm->all_local                 ? SIZE_MAX
                     : q->comm->family->crowded_any ? CROWDED_LEAST
                                                         : ALONE_LEAST;
    copy_members(l, call->vectors);
    if (!cut_all(l))
        return RINGRED_ENOMEM;
    *runs = l->runs;
    return 0;
}

struct rr_list_run *rr_list_run(struct ringred_request *q, size_t i)
{
    return &q->list->run[i];
}

int rr_list_pack(struct ringred_request *q, size_t i)
{
    struct rr_list *l = q->list;
    struct rr_list_run *run = &l->run[i];

    if (run->members < 2)
        return 0;
    run->packed = run->members;
    return has_bucket(l) ? 0 : RINGRED_ENOMEM;
}

static bool is_scattered(const struct rr_list_run *run)
{
    return run->members > 1 && run->packed < run->members;
}

struct rr_call rr_list_call(const struct ringred_request *q, size_t i)
{
    const struct rr_list *l = q->list;
    const struct rr_list_run *run = &l->run[i];
    struct rr_call call = { .what = l->what, .op = l->op, .root = l->root, .type = run->type, .count = run->count };

    if (run->members == 1) {
        const struct member *m = &l->member[l->order[run->first]];
        call.in = m->in;
        call.out = m->out;
    } else if (is_scattered(run)) {
        call.in_pieces = l->in ? &l->in_pieces : NULL;
        call.out_pieces = l->out ? &l->out_pieces : NULL;
    } else if (run->members) {
        call.in = l->in ? l->bucket : NULL;
        call.out = l->out ? l->bucket : NULL;
    }
    return call;
}

static const struct member *member_of(const struct rr_list *l, const struct rr_list_run *run, size_t i)
{
    return &l->member[l->order[run->first + i]];
}

/* The bucket, if there is something in it, is the first piece. */
static void write_pieces(struct rr_list *l, const struct rr_list_run *run, size_t packed_bytes)
{
    size_t bytes = rr_type_bytes(run->type), end = packed_bytes, n = 0;

    if (run->packed) {
        l->in_piece[n] = l->out_piece[n] = (struct rr_piece){ l->bucket, end };
        n++;
    }
    for (size_t i = run->packed; i < run->members; i++) {
        const struct member *m = member_of(l, run, i);
        end += m->count * bytes;
        l->in_piece[n] = (struct rr_piece){ (char *)(uintptr_t)m->in, end };
        l->out_piece[n++] = (struct rr_piece){ m->out, end };
    }
    l->in_pieces = (struct rr_pieces){ l->in_piece, n };
    l->out_pieces = (struct rr_pieces){ l->out_piece, n };
}

void rr_list_begin(const struct ringred_request *q)
{
    struct rr_list *l = q->list;
    const struct rr_list_run *run = &l->run[l->at];
    size_t bytes = rr_type_bytes(run->type);
    char *to = l->bucket;

    for (size_t i = 0; i < run->packed; i++) {
        const struct member *m = member_of(l, run, i);
        if (l->in && !l->follows)
            memcpy(to, m->in, m->count * bytes);
        to += m->count * bytes;
    }
    if (is_scattered(run))
        write_pieces(l, run, run->packed ? (size_t)(to - l->bucket) : 0);
}

bool rr_list_next(struct ringred_request *q, struct rr_call *call, struct rr_list_run **next)
{
    struct rr_list *l = q->list;
    const struct rr_list_run *run = &l->run[l->at];
    size_t bytes = rr_type_bytes(run->type);
    const char *from = l->bucket;

    for (size_t i = 0; i < run->packed && l->out; i++) {
        const struct member *m = member_of(l, run, i);
        if (l->what != RR_BROADCAST || l->follows || m->in != m->out) /* what is there already is not written */
            memcpy(m->out, from, m->count * bytes);
        from += m->count * bytes;
    }
    if (++l->at == l->runs)
        return false;
    *call = rr_list_call(q, l->at);
    *next = &l->run[l->at];
    return true;
}
