/* SPDX-License-Identifier: Apache-2.0 */
/* Filling buffers and checking results. Positions in a send buffer fall into 256 classes, by a
 * hash; what a rank has there depends on the rank and the class (numbers.c), so that a block in the
 * wrong place, a rank left out or a rank counted twice all show. Where nothing is reduced it is
 * scrambled bits. What must come out is one table of 256 elements for each rank or reduction. Input
 * must be as it was afterwards, and where nothing is due nothing may have been written. */
#include "bench.h"

#include <string.h>

#define CLASSES 256

struct table {
    unsigned char element[CLASSES * BENCH_WIDEST];
};

/* Elements that lie one behind the other, and the position of the first. */
struct range {
    void *at;
    size_t position, count;
};

static struct table sent_by(const struct bench_rank *r, const struct bench_point *p, int rank)
{
    struct table t;

    for (unsigned k = 0; k < CLASSES; k++) {
        uint64_t bits[2] = { bench_mix((uint64_t)rank, k), bench_mix(k, ~(uint64_t)rank) };

        if (r->options->row->reduces)
            bench_encode(p->type, bench_number_of(p->type, p->op, r->size, rank, k),
                         t.element + k * p->width);
        else
            memcpy(t.element + k * p->width, bits, p->width);
    }
    return t;
}

static struct table reduced(const struct bench_rank *r, const struct bench_point *p)
{
    struct table t;

    for (unsigned k = 0; k < CLASSES; k++)
        bench_encode(p->type, bench_reduced(p->type, p->op, r->size, k), t.element + k * p->width);
    return t;
}

/* ---- one range: the width is a constant in each copy ---- */

static inline size_t class_of(size_t position)
{
    return (uint32_t)position * 2654435761u >> 24;
}

static inline void fill_width(struct range to, const struct table *t, size_t width)
{
    for (size_t i = 0; i < to.count; i++)
        memcpy((char *)to.at + i * width, t->element + class_of(to.position + i) * width, width);
}

static bool is_zero(const unsigned char *number, size_t width)
{
    unsigned bits = number[width - 1] & 0x7f;

    for (size_t i = 0; i < width - 1; i++)
        bits |= number[i];
    return !bits;
}

/* The same floats, of this width, one by one; zeros may differ in sign. */
static bool are_equal(const unsigned char *a, const unsigned char *b, size_t width, size_t each)
{
    for (size_t i = 0; i < width; i += each)
        if (memcmp(a + i, b + i, each) && !(is_zero(a + i, each) && is_zero(b + i, each)))
            return false;
    return true;
}

/* The size of the floats that a type consists of; 0 if it does not. */
static size_t float_width(int32_t type)
{
    if (type == RINGRED_COMPLEX64 || type == RINGRED_COMPLEX128)
        return bench_width(type) / 2;
    return type >= RINGRED_FLOAT32 && type <= RINGRED_FLOAT8_E5M2 ? bench_width(type) : 0;
}

static inline size_t wrong_width(struct range got, const struct table *t, size_t width,
                                 size_t zeros)
{
    size_t wrong = 0;

    for (size_t i = 0; i < got.count; i++) {
        const unsigned char *is = (const unsigned char *)got.at + i * width;
        const unsigned char *due = t->element + class_of(got.position + i) * width;

        if (memcmp(is, due, width) && !(zeros && are_equal(is, due, width, zeros)))
            wrong++;
    }
    return wrong;
}

static void fill(const struct bench_point *p, struct range to, const struct table *t)
{
    switch (p->width) {
    case 1:
        fill_width(to, t, 1);
        break;
    case 2:
        fill_width(to, t, 2);
        break;
    case 4:
        fill_width(to, t, 4);
        break;
    case 8:
        fill_width(to, t, 8);
        break;
    default:
        fill_width(to, t, p->width);
        break;
    }
}

/* zeros: those of either sign are as good, in floats of this width; 0: they are not */
static size_t count_wrong(const struct bench_point *p, struct range got, const struct table *t,
                          size_t zeros)
{
    switch (p->width) {
    case 1:
        return wrong_width(got, t, 1, zeros);
    case 2:
        return wrong_width(got, t, 2, zeros);
    case 4:
        return wrong_width(got, t, 4, zeros);
    case 8:
        return wrong_width(got, t, 8, zeros);
    default:
        return wrong_width(got, t, p->width, zeros);
    }
}

/* ---- whole buffers ---- */

#define NOT_WRITTEN 0xee

static void *element(void *buffer, const struct bench_point *p, size_t i)
{
    return (char *)buffer + i * p->width;
}

void bench_fill(const struct bench_rank *r, const struct bench_point *p)
{
    struct table mine = sent_by(r, p, r->rank);

    memset(p->recv, NOT_WRITTEN, p->recvs * p->width); /* a result that nobody wrote must show */
    fill(p, (struct range){ p->send, 0, p->sends }, &mine);
}

/* Parts that came from each rank. */
static size_t wrong_parts(const struct bench_rank *r, const struct bench_point *p)
{
    bool dealt = r->options->row->send == BENCH_PARTS;
    size_t wrong = 0, at = 0;

    for (int from = 0; from < r->size; from++) {
        size_t count = bench_part(r, p, from, r->rank);
        size_t position = dealt ? bench_before(r, p, from, r->rank) : 0;
        struct table t = sent_by(r, p, from);

        wrong += count_wrong(p, (struct range){ element(p->recv, p, at), position, count }, &t, 0);
        at += count;
    }
    return wrong;
}

static size_t wrong_result(const struct bench_rank *r, const struct bench_point *p)
{
    const struct bench_row *row = r->options->row;
    struct range got = { p->recv, row->send == BENCH_PARTS ? p->before : 0, p->recvs };
    struct table t;

    if (row->recv == BENCH_PARTS)
        return wrong_parts(r, p);
    t = row->reduces ? reduced(r, p) : sent_by(r, p, r->options->root);
    return count_wrong(p, got, &t, row->reduces ? float_width(p->type) : 0);
}

static size_t count_written(const struct bench_point *p)
{
    const unsigned char *byte = p->recv;
    size_t written = 0;

    for (size_t i = 0; i < p->recvs * p->width; i++)
        written += byte[i] != NOT_WRITTEN;
    return written;
}

/* Elements of the input that changed, but for those that the result has overwritten in place. */
static size_t changed_input(const struct bench_rank *r, const struct bench_point *p, bool receives)
{
    struct table mine = sent_by(r, p, r->rank);
    size_t before = p->sends, behind = p->sends;

    if (p->in_place && receives) {
        before = p->sends > p->recvs ? p->before : 0;
        behind = p->sends > p->recvs ? p->before + p->own : p->sends;
    }
    return count_wrong(p, (struct range){ p->send, 0, before }, &mine, 0) +
           count_wrong(p, (struct range){ element(p->send, p, behind), behind, p->sends - behind },
                       &mine, 0);
}

size_t bench_count_wrong(const struct bench_rank *r, const struct bench_point *p)
{
    bool receives = r->options->row->root != BENCH_TO_ROOT || r->rank == r->options->root;
    size_t wrong = changed_input(r, p, receives);

    if (receives)
        return wrong + wrong_result(r, p);
    return wrong + (p->in_place ? 0 : count_written(p));
}
