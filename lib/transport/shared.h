/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the transport room: what shm.c, doorbell.c and heap.c know of each other. */
#ifndef RR_TRANSPORT_SHARED_H
#define RR_TRANSPORT_SHARED_H

#include "transport/transport.h"

#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; the headers of glibc 2.28 do not have it */
#endif

struct rr_heap;

struct rr_shm {
    struct rr_shared base;      /* first: the engine's view */
    int ranks;
    void *segment;              /* host page, then a page and a stage for each local rank */
    size_t segment_bytes;
    int *bell;                  /* [ranks] eventfds of the mates; mine is bell[me] */
    int *pidfd;                 /* [ranks] -1: none */
    int32_t *pid;               /* [ranks] */
    int64_t *began;             /* [ranks] for those without pidfd: when the process began, -1: not known */
    struct rr_heap *heap;       /* mine; outlives the communicator while memory of it is in use */
    uint64_t **touched;         /* [ranks] bit per RR_HEAP_CHUNK of a mate's heap that is mapped in */
    struct rr_slot *slots;      /* room for pages of communicators that borrow, with those that are free first */
    struct rr_stage *stages;    /* for them, too */
    struct rr_window {
        uint64_t offset;
        size_t bytes;
    } *last;                    /* [ranks] what touch was asked for last */
};

#define RR_HEAP_CHUNK ((size_t)64 << 10)

/* When a process of this host began, in the kernel's ticks; 0: it has ended, even if its parent has not yet collected it;
 * -1: that cannot be known here (alive.c). */
int64_t rr_process_began(int32_t pid);

/* A heap of at most `bytes` bytes that others can map; NULL: not here. */
struct rr_heap *rr_heap_new(size_t bytes);
int rr_heap_fd(const struct rr_heap *h);
char *rr_heap_base(const struct rr_heap *h);
void rr_heap_leave(void *memory); /* frees a range whose bytes mates may still look at */
void rr_heap_release(struct rr_heap *h); /* the communicator lets go of it */

/* NULL: nothing of it may be left. */
void rr_borrow_close(struct rr_shm *m);
void rr_shm_ring(struct rr_shared *s);
bool rr_shm_fences(void);

#endif
