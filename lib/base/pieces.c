/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors that lie in many places, as the tensors of a list do: they are never copied together where a step can
 * just as well go over their pieces. */
#include "base/base.h"

#include <string.h>

char *rr_spot_run(const struct rr_spot *w, size_t *bytes)
{
    const struct rr_pieces *p = w->pieces;
    size_t low = 0, high = p ? p->n : 0;

    if (!p || !*bytes)
        return w->at;
    while (high - low > 1) { /* the last piece that begins at or before `from` */
        size_t middle = low + (high - low) / 2;
        if (p->piece[middle - 1].end <= w->from)
            low = middle;
        else
            high = middle;
    }
    size_t begins = low ? p->piece[low - 1].end : 0, left = p->piece[low].end - w->from;
    *bytes = *bytes < left ? *bytes : left;
    return p->piece[low].at + (w->from - begins);
}

void rr_spot_put(struct rr_spot to, const void *from, size_t bytes)
{
    for (size_t n = bytes; bytes; n = bytes) {
        char *at = rr_spot_run(&to, &n);
        memcpy(at, from, n);
        from = (const char *)from + n;
        to = rr_spot_behind(to, n);
        bytes -= n;
    }
}

void rr_spot_get(struct rr_spot from, void *to, size_t bytes)
{
    for (size_t n = bytes; bytes; n = bytes) {
        const char *at = rr_spot_run(&from, &n);
        memcpy(to, at, n);
        to = (char *)to + n;
        from = rr_spot_behind(from, n);
        bytes -= n;
    }
}
