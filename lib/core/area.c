/* SPDX-License-Identifier: Apache-2.0 */
/* What runs work with: an area for each communicator that has something to do. Areas are made when more
 * communicators are at work than ever before, and kept. */
#include "core/core.h"

#define SCRATCH_BYTES ((size_t)8 << 20) /* touched only where plans over links need it */

static void area_free(struct rr_area *a)
{
    rr_free(a->scratch);
    rr_free(a->done);
    rr_free(a->bases);
    rr_free(a->send);
    rr_free(a->recv);
    rr_free(a);
}

static struct rr_area *area_new(const struct rr_family *f)
{
    struct rr_area *a = rr_alloc(1, sizeof *a);
    size_t n = (size_t)f->ranks;

    if (!a)
        return NULL;
    a->scratch = rr_alloc_aligned(4096, f->links ? SCRATCH_BYTES : RR_LINE);
    a->done = rr_alloc(f->first->plans->most_steps, sizeof *a->done);
    a->bases = rr_alloc(n, sizeof *a->bases);
    a->send = rr_alloc(n, sizeof *a->send);
    a->recv = rr_alloc(n, sizeof *a->recv);
    if (a->scratch && a->done && a->bases && a->send && a->recv)
        return a;
    area_free(a);
    return NULL;
}

int rr_area_add(struct rr_family *f, struct rr_area **area, ringred_error *why)
{
    struct rr_area *a = f->areas;

    while (a && a->taken)
        a = a->next;
    if (!a) {
        a = area_new(f);
        if (!a)
            return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for another operation at the same time");
        a->number = f->areas_made++;
        a->next = f->areas;
        f->areas = a;
    }
    a->taken = true;
    *area = a;
    return 0;
}

void rr_area_bind(ringred_comm *c, struct rr_area *a)
{
    struct rr_engine *e = &c->engine;

    c->area = a;
    c->queue = a->queue;
    e->scratch = a->scratch;
    e->scratch_bytes = c->family->links ? SCRATCH_BYTES : RR_LINE;
    e->done = a->done;
    e->bases = a->bases;
    e->send = a->send;
    e->recv = a->recv;
}

void rr_areas_free(struct rr_family *f)
{
    while (f->areas) {
        struct rr_area *a = f->areas;
        f->areas = a->next;
        area_free(a);
    }
}
