/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a measurement. Large ordinary ones ask for huge pages, as tuned programs do: it
 * halves what the kernel's copies between processes cost. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE      ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

static void *ordinary(size_t bytes)
{
    size_t align = bytes < HUGE_PAGE ? PAGE : HUGE_PAGE;
    size_t whole = (bytes + align - 1) & ~(align - 1);
    void *memory = aligned_alloc(align, whole);

    if (memory && align == HUGE_PAGE)
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* a wish: works without */
    return memory;
}

void *bench_memory(const struct bench_rank *r, size_t bytes)
{
    void *memory = NULL;

    bytes = bytes ? bytes : 1; /* a call of no elements gets a buffer, too */
    bytes = bytes ? bytes : 1; /* a part may be empty */
    if (r->options->symmetric) {
        int rc = ringred_alloc(r->comm, bytes, &memory);

        if (rc < 0)
            fprintf(stderr, "ringred-bench: rank %d: %zu bytes of symmetric memory: %s\n", r->rank,
                    bytes, ringred_status_text(rc));
        return rc < 0 ? NULL : memory;
    }
    memory = ordinary(bytes);
    if (!memory)
        fprintf(stderr, "ringred-bench: rank %d: no memory for %zu bytes\n", r->rank, bytes);
    else
        memset(memory, 0, bytes); /* every page is there before anything is timed */
    return memory;
}

void bench_memory_free(const struct bench_rank *r, void *memory)
{
    if (r->options->symmetric)
        (void)ringred_free(memory); /* it came from ringred_alloc or is NULL */
    else
        free(memory);
}
