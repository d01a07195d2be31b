/* SPDX-License-Identifier: Apache-2.0 */
/* Keeping what a reunion needs, for as long as a communicator may ask for one; and remembering the communicators whose
 * making this rank cannot be sure of. */
#include "boot/keep.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

#define KEPT_MOST 8 /* reunions of earlier communicators whose listeners are kept */

/* ---- keeping ---- */

/* Communicators may be made and destroyed by several threads. */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER;

void rr_reunion_hold(struct rr_reunion *u)
{
    pthread_mutex_lock(&holding);
    if (u)
        u->holders++;
    pthread_mutex_unlock(&holding);
}

static bool let_go(struct rr_reunion *u)
{
    pthread_mutex_lock(&holding);
    bool last = --u->holders == 0;
    pthread_mutex_unlock(&holding);
    return last;
}

void rr_reunion_drop(struct rr_reunion *u)
{
    while (u && let_go(u)) {
        struct rr_reunion *before = u->before;
        rr_reunion_drop(u->half); /* these have none */
        for (int i = 0; i < u->doubts; i++)
            rr_free(u->doubt[i].in);
        for (int i = 0; i < u->listeners; i++)
            rr_fd_close(u->listener[i]);
        sodium_memzero(u->key, sizeof u->key);
        rr_free(u->entry);
        rr_free(u);
        u = before;
    }
}

/* The address by which a rank was reached is the one that answers for it. */
static void keep_known(struct rr_entry *e)
{
    char text[RR_ADDRESS_TEXT];

    for (int i = 0; i < e->addresses; i++)
        if (strcmp(rr_address_text(&e->address[i], text), e->member.address) == 0) {
            e->address[0] = e->address[i];
            e->addresses = 1;
            return;
        }
}

/* Those that are too old to be kept. */
static struct rr_reunion *cut_off(struct rr_reunion *u)
{
    struct rr_reunion *rest = NULL;

    pthread_mutex_lock(&holding);
    for (int i = 0; u && i < KEPT_MOST; i++)
        u = u->before;
    if (u) {
        rest = u->before;
        u->before = NULL;
    }
    pthread_mutex_unlock(&holding);
    return rest;
}

int rr_boot_keep(struct rr_boot *b, struct rr_reunion *before, struct rr_reunion **reunion, ringred_error *why)
{
    struct rr_reunion *u = rr_alloc(1, sizeof *u);

    if (!u)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator of %d ranks", b->size);
    *u = (struct rr_reunion){ .holders = 1, .rank = b->rank, .size = b->size, .has_key = b->launch.has_key };
    memcpy(u->key, b->launch.key, sizeof u->key);
    memcpy(u->job, b->session, sizeof u->job);
    u->entry = rr_alloc((size_t)b->size, sizeof *u->entry);
    if (!u->entry) {
        rr_reunion_drop(u);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to make a communicator of %d ranks", b->size);
    }
    memcpy(u->entry, b->entry, (size_t)b->size * sizeof *u->entry);
    for (int r = 0; r < b->size; r++)
        keep_known(&u->entry[r]);
    for (int i = 0; b->data && i < b->data->listeners; i++)
        u->listener[u->listeners++] = rr_fd_own(b->data->listener[i]);
    if (b->data)
        b->data->listeners = 0;
    u->before = before;
    rr_reunion_drop(cut_off(u));
    *reunion = u;
    return 0;
}

void rr_reunion_mask(const struct rr_reunion *u, ringred_unique_id *id)
{
    unsigned char mask[RR_KEY_BYTES], *key = id->bytes + RR_ID_KEY;

    crypto_generichash(mask, sizeof mask, id->bytes + RR_ID_JOB, RR_JOB_BYTES, u->key, sizeof u->key);
    for (size_t i = 0; i < sizeof mask; i++)
        key[i] ^= mask[i];
    sodium_memzero(mask, sizeof mask);
}

/* ---- doubt ---- */

int rr_reunion_doubt(struct rr_reunion *u, const int *member, int size, ringred_error *why)
{
    struct rr_doubt d = { size, NULL };

    if (u->doubts < RR_DOUBTS)
        d.in = rr_alloc((size_t)u->size, 1);
    u->forgot = u->forgot || !d.in;
    if (!d.in)
        return rr_fail(why, u->doubts < RR_DOUBTS ? RINGRED_ENOMEM : RINGRED_EPARTITION, -1, 0,
                       "rank %d cannot remember one more communicator that others may have gone on in", u->rank);
    for (int i = 0; i < (member ? size : u->size); i++)
        d.in[member ? member[i] : i] = 1;
    u->doubt[u->doubts++] = d;
    return 0;
}

void rr_reunion_adopt(struct rr_reunion *u, struct rr_reunion *half)
{
    pthread_mutex_lock(&holding);
    struct rr_reunion *before = half->before;
    half->before = u->half;
    u->half = half;
    pthread_mutex_unlock(&holding);
    rr_reunion_drop(before);
}
