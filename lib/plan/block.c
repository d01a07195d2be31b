/* SPDX-License-Identifier: Apache-2.0 */
/* Where blocks begin and end. Blocks begin at whole lines, so that two ranks that write
 * neighbouring blocks of one buffer never share a line. */
#include "plan/plan.h"

/* Elements of every block but the last ones, which may be shorter or empty. */
static size_t block_elements(size_t elements, size_t of, size_t element_bytes)
{
    size_t line = element_bytes < RR_LINE ? RR_LINE / element_bytes : 1;
    size_t share = elements / of + (elements % of != 0);

    return (share + line - 1) / line * line;
}

struct rr_range rr_block_range(struct rr_range r, const struct rr_span *s, size_t element_bytes)
{
    for (int i = 0; i < RR_LEVELS && s->of[i] != 1; i++) {
        size_t elements = r.hi - r.lo;
        size_t p = block_elements(elements, s->of[i], element_bytes);
        size_t lo = s->at[i] * p, hi = lo + p;

        r.hi = r.lo + (hi < elements ? hi : elements);
        r.lo = r.lo + (lo < elements ? lo : elements);
    }
    return r;
}

size_t rr_block_most(size_t elements, const uint16_t *of, size_t element_bytes)
{
    for (int i = 0; i < RR_LEVELS && of[i] != 1; i++) {
        size_t p = block_elements(elements, of[i], element_bytes);
        if (p < elements)
            elements = p;
    }
    return elements;
}
