/* SPDX-License-Identifier: Apache-2.0 */
/* See compare.h. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 128

static unsigned char *source_room[RR_REDUCE_SOURCES], *destination_room[COMPARE_DESTINATIONS];
static unsigned char *want, *again;
static float weights[RR_REDUCE_SOURCES];

int compare_set_up(void **state)
{
    static const float some[] = { 1, 0.5f, -2, 1 / 3.0f, 0.7f, 1e-30f, 3e18f, 0, 0x1p-149f, -1 };
    const size_t bytes = rr_round_up(COMPARE_BYTES + 2 * GUARD, 64);

    (void)state;
    for (int k = 0; k < RR_REDUCE_SOURCES; k++) {
        source_room[k] = aligned_alloc(64, bytes);
        weights[k] = some[k % 10];
    }
    for (int d = 0; d < COMPARE_DESTINATIONS; d++)
        destination_room[d] = aligned_alloc(64, bytes);
    want = malloc(COMPARE_BYTES);
    again = malloc(COMPARE_BYTES);
    return 0;
}

int compare_tear_down(void **state)
{
    (void)state;
    for (int k = 0; k < RR_REDUCE_SOURCES; k++)
        free(source_room[k]);
    for (int d = 0; d < COMPARE_DESTINATIONS; d++)
        free(destination_room[d]);
    free(want);
    free(again);
    return 0;
}

int compare_pairs(struct compare_pair *pair)
{
    int n = 0;

    for (int type = 1; type < RR_TYPES; type++)
        for (int op = RINGRED_SUM; op < RINGRED_SUM + RR_OPS; op++)
            if (rr_op_legal(type, op))
                pair[n++] = (struct compare_pair){ type, op };
    return n;
}

/* ---- drawing ---- */

static bool is_narrow(int type)
{
    return type >= RINGRED_FLOAT16 && type <= RINGRED_FLOAT8_E5M2;
}

static bool is_integer(int type)
{
    return type >= RINGRED_INT8 && type <= RINGRED_BOOL;
}

static void draw_extras(struct rr_reduce *r, struct numbers_random *random)
{
    static const uint32_t divisors[] = { 1, 1, 2, 3, 4, 5, 7, 8, 64, 100, 256, 1u << 24 | 1, UINT32_MAX };
    static const double scales[] = { 0.5, 3, -1e-3, 1 / 3.0, 0x1p-140, 1e30 };
    const bool sums = r->op == RINGRED_SUM || r->op == RINGRED_AVG;

    if (sums && r->type != RINGRED_BOOL)
        r->divisor = divisors[numbers_below(random, sizeof divisors / sizeof divisors[0])];
    if (sums && !is_integer(r->type)) {
        r->weight = numbers_below(random, 6) == 0 ? weights : NULL;
        r->scale = numbers_below(random, 6) == 0 ? scales[numbers_below(random, 6)] : 0;
    }
    if (is_narrow(r->type)) {
        r->wide_sources = numbers_below(random, 5) == 0;
        r->wide_destinations = numbers_below(random, 5) == 0;
    }
}

struct compare_call compare_draw(struct compare_pair pair, int k, int d, size_t count,
                                 struct numbers_random *random)
{
    struct compare_call c = { .reduce = { .type = pair.type, .op = pair.op, .sources = k, .destinations = d,
                                          .divisor = 1, .count = count } };
    const bool odd = numbers_below(random, 8) == 0; /* not even aligned to elements */
    const bool aligned = numbers_below(random, 4) == 0;

    draw_extras(&c.reduce, random);
    c.kind = numbers_below(random, 2) ? NUMBERS_WILD : NUMBERS_ROUNDING;
    c.in_place = numbers_below(random, 3) == 0 ? (int)numbers_below(random, (uint64_t)k) : -1;
    if (c.reduce.wide_sources != c.reduce.wide_destinations)
        c.in_place = -1;
    c.seed = numbers_next(random);
    for (int i = 0; i < k + d; i++) {
        const size_t unit = odd ? 1 : rr_type_bytes(pair.type);
        const size_t offset = aligned ? 0 : numbers_below(random, 64) / unit * unit;

        if (i < k)
            c.source_offset[i] = offset;
        else
            c.destination_offset[i - k] = offset;
    }
    return c;
}

/* ---- comparing ---- */

static int source_type(const struct rr_reduce *r)
{
    return is_narrow(r->type) && r->wide_sources ? RINGRED_FLOAT32 : r->type;
}

static int destination_type(const struct rr_reduce *r)
{
    return is_narrow(r->type) && r->wide_destinations ? RINGRED_FLOAT32 : r->type;
}

static bool wrong(char *text, size_t room, const char *kernel, const struct compare_call *c, const char *what)
{
    const struct rr_reduce *r = &c->reduce;

    snprintf(text, room,
             "%s: %s: %s %s of %zu, %d into %d, divisor %u, scale %g, weights %d, wide %d %d, in place %d, "
             "offsets %zu, %zu",
             what, kernel, rr_type_name(r->type), rr_op_name(r->op), r->count, r->sources, r->destinations,
             r->divisor, r->scale, r->weight != NULL, r->wide_sources, r->wide_destinations, c->in_place,
             c->source_offset[0], c->destination_offset[0]);
    return false;
}

static void fill_sources(const struct compare_call *c, const void **source)
{
    for (int k = 0; k < c->reduce.sources; k++) {
        unsigned char *at = source_room[k] + GUARD + c->source_offset[k];

        numbers_fill(at, source_type(&c->reduce), c->kind, c->seed, k, 0, c->reduce.count);
        source[k] = at;
    }
}

bool compare_reference(const struct compare_call *c, char *text, size_t room)
{
    const struct rr_reduce *r = &c->reduce;
    const struct numbers_call model = { r->type, r->op, r->sources, r->divisor, r->wide_sources,
                                        r->wide_destinations, r->weight, r->scale };
    const void *source[RR_REDUCE_SOURCES];
    void *to = want;
    struct rr_reduce one = *r;
    char which[160];

    fill_sources(c, source);
    one.destinations = 1;
    rr_reduce_reference(r->type, r->op)(&one, &to, source);
    numbers_reduce(again, &model, source, r->count);
    if (numbers_differ(want, again, destination_type(r), r->count, which, sizeof which) < 0)
        return true;
    return wrong(text, room, "reference", c, which);
}

static bool all_are(const unsigned char *from, const unsigned char *to, unsigned char value)
{
    for (; from < to; from++)
        if (*from != value)
            return false;
    return true;
}

static bool is_untouched_around(const unsigned char *room, const unsigned char *at, size_t bytes)
{
    return all_are(room, at, 0xa5) && all_are(at + bytes, at + bytes + GUARD / 2, 0xa5);
}

static bool sources_are_as_before(const struct compare_call *c, const void *const *source)
{
    const int type = source_type(&c->reduce);

    for (int k = 0; k < c->reduce.sources; k++) {
        if (k == c->in_place)
            continue;
        numbers_fill(again, type, c->kind, c->seed, k, 0, c->reduce.count);
        if (memcmp(again, source[k], c->reduce.count * rr_type_bytes(type)) != 0)
            return false;
    }
    return true;
}

bool compare_kernel(const char *name, rr_reduce_fn kernel, const struct compare_call *c, char *text,
                    size_t room)
{
    const int type = destination_type(&c->reduce);
    const size_t bytes = c->reduce.count * rr_type_bytes(type);
    const void *source[RR_REDUCE_SOURCES];
    void *destination[COMPARE_DESTINATIONS];
    char which[160];

    fill_sources(c, source);
    for (int d = 0; d < c->reduce.destinations; d++) {
        memset(destination_room[d], 0xa5, c->destination_offset[d] + bytes + 2 * GUARD);
        destination[d] = destination_room[d] + GUARD + c->destination_offset[d];
    }
    if (c->in_place >= 0)
        destination[0] = (unsigned char *)source_room[c->in_place] + GUARD + c->source_offset[c->in_place];
    kernel(&c->reduce, destination, source);

    for (int d = 0; d < c->reduce.destinations; d++) {
        if (numbers_differ(destination[d], want, type, c->reduce.count, which, sizeof which) >= 0)
            return wrong(text, room, name, c, which);
        if (!(d == 0 && c->in_place >= 0) && !is_untouched_around(destination_room[d], destination[d], bytes))
            return wrong(text, room, name, c, "wrote outside of a destination");
    }
    return sources_are_as_before(c, source) || wrong(text, room, name, c, "wrote into a source");
}
