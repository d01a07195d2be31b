/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "fusion/table.h"

#include <string.h>

/* ---- finding ---- */

static uint64_t hash_of(const char *key)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 0x100000001b3u;
    return h ^ h >> 32;
}

static size_t find(const struct rr_gradients *t, const char *key, uint64_t hash)
{
    if (!t->slots)
        return RR_NO_GRADIENT;
    for (size_t at = hash & (t->slots - 1); t->slot[at]; at = (at + 1) & (t->slots - 1)) {
        const struct rr_gradient *g = &t->gradient[t->slot[at] - 1];
        if (g->hash == hash && strcmp(g->key, key) == 0)
            return t->slot[at] - 1;
    }
    return RR_NO_GRADIENT;
}

size_t rr_gradients_find(const struct rr_gradients *t, const char *key)
{
    return find(t, key, hash_of(key));
}

static void enter(struct rr_gradients *t, size_t i)
{
    size_t at = t->gradient[i].hash & (t->slots - 1);

    while (t->slot[at])
        at = (at + 1) & (t->slots - 1);
    t->slot[at] = (uint32_t)i + 1;
}

/* ---- growing ---- */

static bool grow_array(void **array, size_t n, size_t room, size_t each)
{
    void *more = rr_alloc(room, each);

    if (!more)
        return false;
    if (n)
        memcpy(more, *array, n * each);
    rr_free(*array);
    *array = more;
    return true;
}

static bool has_room(struct rr_gradients *t)
{
    size_t room = t->room ? 2 * t->room : 64;
    void *gradient = t->gradient, *at = t->at, *count = t->count, *type = t->type;

    if (t->n < t->room)
        return true;
    bool all = grow_array(&gradient, t->n, room, sizeof *t->gradient) && grow_array(&at, t->n, room, sizeof *t->at) &&
               grow_array(&count, t->n, room, sizeof *t->count) && grow_array(&type, t->n, room, sizeof *t->type);
    t->gradient = gradient;
    t->at = at;
    t->count = count;
    t->type = type;
    uint32_t *slot = all ? rr_alloc(2 * room, sizeof *slot) : NULL;
    if (!slot)
        return false;
    rr_free(t->slot);
    t->slot = slot;
    t->slots = 2 * room;
    for (size_t i = 0; i < t->n; i++)
        enter(t, i);
    t->room = room;
    return true;
}

int rr_gradients_add(struct rr_gradients *t, const char *key, void *at, size_t count, int32_t type)
{
    size_t length = strlen(key);

    if (t->n == RR_LIST_MOST)
        return RINGRED_ELIMIT;
    char *copy = has_room(t) ? rr_alloc(length + 1, 1) : NULL;
    if (!copy)
        return RINGRED_ENOMEM;
    memcpy(copy, key, length);
    t->gradient[t->n] = (struct rr_gradient){ .key = copy, .hash = hash_of(key) };
    t->at[t->n] = at;
    t->count[t->n] = count;
    t->type[t->n] = type;
    enter(t, t->n++);
    return 0;
}

void rr_gradients_free(struct rr_gradients *t)
{
    for (size_t i = 0; i < t->n; i++)
        rr_free(t->gradient[i].key);
    rr_free(t->gradient);
    rr_free(t->at);
    rr_free(t->count);
    rr_free(t->type);
    rr_free(t->slot);
    *t = (struct rr_gradients){ 0 };
}

/* ---- as bytes: for each 8 of count, 4 of type, 1 of length, the key ---- */

#define HEAD 13

static size_t size_of(const struct rr_gradients *t)
{
    size_t bytes = 0;

    for (size_t i = 0; i < t->n; i++)
        bytes += HEAD + strlen(t->gradient[i].key);
    return bytes;
}

static void write_to(const struct rr_gradients *t, unsigned char *to)
{
    for (size_t i = 0; i < t->n; i++) {
        const char *key = t->gradient[i].key;
        uint64_t count = t->count[i];
        size_t length = strlen(key);
        memcpy(to, &count, 8); /* little-endian, as all platforms are */
        memcpy(to + 8, &t->type[i], 4);
        to[12] = (unsigned char)length;
        memcpy(to + HEAD, key, length);
        to += HEAD + length;
    }
}

/* False if these are none. */
static bool read_from(struct rr_reader *r, struct rr_gradients *t, int *rc)
{
    char key[RINGRED_FUSION_KEY_MOST + 1];

    for (*rc = 0; r->at < r->end && *rc == 0;) {
        uint64_t count = rr_read_u64(r);
        int32_t type = (int32_t)rr_read_u32(r);
        size_t length = rr_read_u8(r);
        rr_read_bytes(r, key, length);
        key[length] = 0;
        if (r->bad || !rr_type_bytes(type) || strlen(key) != length || !length || rr_gradients_find(t, key) != RR_NO_GRADIENT)
            return false;
        *rc = rr_gradients_add(t, key, NULL, count, type);
    }
    return true;
}

/* ---- agreeing ---- */

static int differs(ringred_error *why)
{
    rr_text_tame(why->text); /* keys are what other ranks say that they are */
    return why->code;
}

static int lacks(ringred_error *why, const char *key, int has, int lacking)
{
    rr_fail(why, RINGRED_EMISMATCH, lacking, 0, "rank %d has no gradient \"%.200s\" in the first step, which rank %d has",
            lacking, key, has);
    return differs(why);
}

/* The first difference between rank 0's and another's. */
static int compare(const struct rr_gradients *first, const struct rr_gradients *other, int rank, ringred_error *why)
{
    for (size_t i = 0; i < first->n; i++) {
        const char *key = first->gradient[i].key;
        size_t k = rr_gradients_find(other, key);
        if (k == RR_NO_GRADIENT)
            return lacks(why, key, 0, rank);
        if (first->count[i] == other->count[k] && first->type[i] == other->type[k])
            continue;
        rr_fail(why, RINGRED_EMISMATCH, rank, 0,
                "gradient \"%.200s\" has %zu elements of %s on rank 0, and %zu of %s on rank %d", key, first->count[i],
                rr_type_name(first->type[i]), other->count[k], rr_type_name(other->type[k]), rank);
        return differs(why);
    }
    for (size_t i = 0; i < other->n; i++)
        if (rr_gradients_find(first, other->gradient[i].key) == RR_NO_GRADIENT)
            return lacks(why, other->gradient[i].key, rank, 0);
    return 0;
}

static int read_rank(const unsigned char *from, uint64_t bytes, int rank, struct rr_gradients *t, ringred_error *why)
{
    struct rr_reader r = { from, from + bytes, false };
    int rc;

    if (!read_from(&r, t, &rc))
        return rr_fail(why, RINGRED_EWIRE, rank, 0, "what rank %d says of its gradients makes no sense", rank);
    return rc < 0 ? rr_fail(why, rc, -1, 0, "no memory for the gradients of rank %d", rank) : 0;
}

/* Mine, in the order of rank 0's. */
static void take_order(struct rr_gradients *t, struct rr_gradients *first)
{
    for (size_t i = 0; i < first->n; i++) {
        size_t mine = rr_gradients_find(t, first->gradient[i].key);
        first->at[i] = t->at[mine];
        first->gradient[i].added = t->gradient[mine].added;
    }
    rr_gradients_free(t);
    *t = *first;
    *first = (struct rr_gradients){ 0 };
}

static int compare_all(struct rr_gradients *t, const ringred_comm *c, const unsigned char *all, const uint64_t *bytes,
                       size_t each, ringred_error *why)
{
    struct rr_gradients first = { 0 };
    int rc = read_rank(all, bytes[0], 0, &first, why);

    for (int r = 1; r < c->ranks && rc == 0; r++) {
        struct rr_gradients other = { 0 };
        rc = read_rank(all + (size_t)r * each, bytes[r], r, &other, why);
        if (rc == 0)
            rc = compare(&first, &other, r, why);
        rr_gradients_free(&other);
    }
    if (rc == 0)
        take_order(t, &first);
    rr_gradients_free(&first);
    return rc;
}

static int exchange_lengths(struct rr_agreement *a, const struct rr_gradients *t, ringred_comm *c)
{
    uint64_t mine = size_of(t);

    if (!a->bytes)
        a->bytes = rr_alloc((size_t)c->ranks, sizeof *a->bytes);
    RR_TRY(a->bytes ? rr_comm_exchange(c, &mine, a->bytes, sizeof mine) : RINGRED_ENOMEM);
    for (int r = 0; r < c->ranks; r++)
        a->each = a->bytes[r] > a->each ? a->bytes[r] : a->each;
    return 0;
}

static int exchange_texts(struct rr_agreement *a, const struct rr_gradients *t, ringred_comm *c)
{
    if (!a->each)
        return 0; /* nobody has any */
    if (!a->all)
        a->all = rr_alloc((size_t)c->ranks, a->each);
    unsigned char *mine = a->all ? rr_alloc(a->each, 1) : NULL;
    if (!mine)
        return RINGRED_ENOMEM;
    write_to(t, mine);
    int rc = rr_comm_exchange(c, mine, a->all, a->each);
    rr_free(mine);
    return rc;
}

int rr_agreement_go_on(struct rr_agreement *a, struct rr_gradients *t, ringred_comm *c, ringred_error *why)
{
    int rc = 0;

    for (; a->part != RR_AGREE_DONE; a->part++) {
        if (a->part == RR_AGREE_LENGTHS)
            rc = exchange_lengths(a, t, c);
        else if (a->part == RR_AGREE_TEXTS)
            rc = exchange_texts(a, t, c);
        else if (a->each)
            rc = compare_all(t, c, a->all, a->bytes, a->each, why);
        if (rc == RINGRED_ENOMEM)
            rr_fail(why, rc, -1, 0, "no memory to compare %zu gradients with those of %d ranks", t->n, c->ranks);
        if (rc < 0)
            return rc;
    }
    return 0;
}

void rr_agreement_end(struct rr_agreement *a)
{
    rr_free(a->bytes);
    rr_free(a->all);
    *a = (struct rr_agreement){ 0 };
}
