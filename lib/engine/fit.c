/* SPDX-License-Identifier: Apache-2.0 */
/* Works out where the blocks of a plan lie for one count, and how much scratch its temps take. */
#include "engine/engine.h"

static size_t temp_bytes(const struct rr_plan *plan, uint32_t k, size_t segment, size_t element_bytes)
{
    size_t bytes = rr_block_most(segment, plan->temp[k].of, element_bytes) * element_bytes;

    return rr_round_up(bytes * plan->temp[k].parts, 2 * RR_LINE);
}

static size_t segments_of(size_t count, size_t segment)
{
    return count ? (count + segment - 1) / segment : 1;
}

static size_t slots_of(size_t segments)
{
    return segments < RR_PLAN_WINDOW ? segments : RR_PLAN_WINDOW;
}

size_t rr_program_scratch(const struct rr_plan *plan, size_t count, size_t element_bytes,
                          size_t segment)
{
    size_t most = count < segment ? count : segment, whole = 0;

    for (uint32_t k = 0; k < plan->temps; k++)
        whole += temp_bytes(plan, k, most, element_bytes);
    return whole * slots_of(segments_of(count, segment));
}

static void fit_spans(struct rr_program *p, struct rr_extent *to, size_t elements)
{
    for (uint32_t i = 0; i < p->plan->spans; i++) {
        const struct rr_span *span = &p->plan->span[i];
        struct rr_range block =
            rr_block_range((struct rr_range){ 0, elements }, span, p->element_bytes);
        size_t bytes = (block.hi - block.lo) * p->element_bytes;
        to[i].at = span->place == RR_TEMP ? span->part * bytes : block.lo * p->element_bytes;
        to[i].bytes = span->parts * bytes;
    }
}

int rr_program_fit(struct rr_engine *e, struct rr_program *p, size_t count, size_t element_bytes,
                   size_t segment)
{
    if (p->count == count && p->element_bytes == element_bytes && p->segment == segment)
        return 0;
    if (rr_program_scratch(p->plan, count, element_bytes, segment) > e->scratch_bytes)
        return RINGRED_ELIMIT;

    size_t full = count < segment ? count : segment, segments = segments_of(count, segment);
    size_t at = 0;
    p->count = count;
    p->element_bytes = element_bytes;
    p->segment = segment;
    p->slots = slots_of(segments);
    fit_spans(p, p->extent[RR_CUT_FULL], full);
    fit_spans(p, p->extent[RR_CUT_LAST], count - (segments - 1) * full);
    fit_spans(p, p->extent[RR_CUT_WHOLE], count);
    for (uint32_t k = 0; k < p->plan->temps; k++) {
        p->temp_at[k] = at;
        p->temp_bytes[k] = temp_bytes(p->plan, k, full, element_bytes);
        at += p->temp_bytes[k] * p->slots;
    }
    return 0;
}
