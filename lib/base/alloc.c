/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the library, so that a test can count them and make the nth one fail. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static atomic_long made;      /* allocations so far */
static atomic_long failing;   /* counts down to the allocation that fails; 0: none */
static atomic_bool and_after; /* everything after it fails too */

void rr_alloc_fail_after(long nth, bool from_there)
{
    atomic_store(&and_after, from_there);
    atomic_store(&failing, nth);
}

long rr_alloc_count(void)
{
    return atomic_load(&made);
}

static bool fails_now(void)
{
    atomic_fetch_add(&made, 1);
    if (RR_LIKELY(atomic_load(&failing) == 0))
        return false;
    if (atomic_load(&failing) == 1)
        return !atomic_load(&and_after) ? (atomic_store(&failing, 0), true) : true;
    atomic_fetch_sub(&failing, 1);
    return false;
}

void *rr_alloc(size_t count, size_t bytes)
{
    size_t whole;

    if (fails_now() || __builtin_mul_overflow(count, bytes, &whole))
        return NULL;
    return calloc(1, whole ? whole : 1);
}

void *rr_alloc_aligned(size_t alignment, size_t bytes)
{
    size_t whole = rr_round_up(bytes ? bytes : 1, alignment);
    void *p = whole < bytes || fails_now() ? NULL : aligned_alloc(alignment, whole);

    if (p)
        memset(p, 0, whole);
    return p;
}

void rr_free(void *memory)
{
    free(memory);
}
