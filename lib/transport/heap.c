/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for ringred_alloc. A heap is a sparse memfd that every mate maps once, whole, when the
 * communicator is made; an allocation is a range of it whose pages are reserved now, so its name
 * between ranks is an offset and nothing is passed later. What is in use is listed in private memory:
 * a mate that writes out of bounds can spoil numbers, not the allocator. A heap goes when its
 * communicator has let go of it and its last range is freed. */
#include "transport/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    size_t at, bytes;
    struct range *next;         /* by address */
};

struct rr_heap {
    int fd;                     /* -1: private memory, one allocation */
    char *base;
    size_t bytes;
    bool owned;                 /* by a communicator */
    uint32_t forks;             /* rr_forks() when it was made: a child must not give pages back */
    struct range *used;
    struct rr_heap *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and everything in it */
static struct rr_heap *heaps;

/* A fork while another thread holds the lock would leave it held in the child for ever. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)rr_fd_own(-1); /* its lock is taken inside ours: watching forks it comes first, so locks last */
    (void)pthread_atfork(before_fork, after_fork, after_fork); /* no memory: then as without it */
}

static void lock_heaps(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

static struct rr_heap *heap_add(struct rr_heap heap)
{
    struct rr_heap *h = rr_alloc(1, sizeof *h);

    if (!h)
        return NULL;
    lock_heaps();
    *h = heap;
    h->forks = rr_forks();
    h->next = heaps;
    heaps = h;
    pthread_mutex_unlock(&lock);
    return h;
}

/* With the lock held: frees a heap that nobody uses any more. */
static void heap_sweep(struct rr_heap *h)
{
    struct rr_heap **at = &heaps;

    if (h->owned || h->used)
        return;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    munmap(h->base, h->bytes);
    rr_fd_close(h->fd);
    rr_free(h);
}

struct rr_heap *rr_heap_new(size_t bytes)
{
    int fd;

    if (bytes > rr_file_limit())
        return NULL;
    fd = rr_fd_own(memfd_create("ringred-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL)) {
        rr_fd_close(fd);
        return NULL;
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    struct rr_heap *h = NULL;
    if (base != MAP_FAILED)
        h = heap_add((struct rr_heap){ .fd = fd, .base = base, .bytes = bytes, .owned = true });
    if (!h) {
        if (base != MAP_FAILED)
            munmap(base, bytes);
        rr_fd_close(fd);
    }
    return h;
}

int rr_heap_fd(const struct rr_heap *h)
{
    return h->fd;
}

char *rr_heap_base(const struct rr_heap *h)
{
    return h->base;
}

void rr_heap_release(struct rr_heap *h)
{
    if (!h)
        return;
    lock_heaps();
    h->owned = false;
    heap_sweep(h);
    pthread_mutex_unlock(&lock);
}

/* First fit. NULL: no gap is large enough, or no memory for the list. */
static struct range *take_range(struct rr_heap *h, size_t bytes)
{
    struct range **at = &h->used, *r;
    size_t from = 0;

    while (*at && (*at)->at - from < bytes) {
        from = (*at)->at + (*at)->bytes;
        at = &(*at)->next;
    }
    if (h->bytes - from < bytes || !(r = rr_alloc(1, sizeof *r)))
        return NULL;
    *r = (struct range){ from, bytes, *at };
    *at = r;
    return r;
}

static void drop_range(struct rr_heap *h, struct range *r, bool pages)
{
    struct range **at = &h->used;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (h->fd >= 0 && pages) /* gives the pages back; zeroes for whoever comes next */
        (void)fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->at, (off_t)r->bytes);
    rr_free(r);
}

static void touch(char *from, size_t bytes)
{
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t i = 0; i < bytes; i += 4096) /* kernels before 5.14 */
        *(volatile char *)(from + i) = 0;
}

static int alloc_shared(struct rr_heap *h, size_t bytes, void **memory, ringred_error *why)
{
    int rc = 0;

    lock_heaps();
    struct range *r = take_range(h, bytes);
    if (!r) {
        rc = rr_fail(why, RINGRED_ENOMEM, -1, 0, "no %zu bytes left in the heap of %zu (setting heap)",
                     bytes, h->bytes);
    } else if (fallocate(h->fd, 0, (off_t)r->at, (off_t)bytes)) {
        rc = rr_fail(why, RINGRED_ENOMEM, -1, errno, "cannot reserve %zu bytes of shared memory", bytes);
        drop_range(h, r, true);
    } else {
        *memory = h->base + r->at;
        touch(*memory, bytes);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int alloc_private(size_t bytes, void **memory, ringred_error *why)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rr_heap *h = NULL;

    if (base != MAP_FAILED)
        h = heap_add((struct rr_heap){ .fd = -1, .base = base, .bytes = bytes });
    if (h) {
        lock_heaps();
        struct range *r = take_range(h, bytes);
        if (!r)
            heap_sweep(h);
        pthread_mutex_unlock(&lock);
        if (r) {
            (void)madvise(base, bytes, MADV_HUGEPAGE); /* a wish */
            touch(base, bytes);
            *memory = base;
            return 0;
        }
    } else if (base != MAP_FAILED) {
        munmap(base, bytes);
    }
    return rr_fail(why, RINGRED_ENOMEM, -1, errno, "cannot map %zu bytes of memory", bytes);
}

int rr_heap_alloc(struct rr_shared *s, size_t bytes, void **memory, ringred_error *why)
{
    size_t whole = rr_round_up(bytes ? bytes : 1, RR_HEAP_CHUNK);

    if (whole < bytes)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "%zu bytes are more than any machine has", bytes);
    if (s && s->windows)
        return alloc_shared(((struct rr_shm *)s)->heap, whole, memory, why);
    return alloc_private(whole, memory, why);
}

static int heap_free(void *memory, bool pages)
{
    int rc = RINGRED_EINVAL;

    lock_heaps();
    for (struct rr_heap *h = heaps; h && rc; h = h->next) {
        size_t at = (size_t)((char *)memory - h->base);
        if ((char *)memory < h->base || at >= h->bytes)
            continue;
        if (h->forks != rr_forks()) {
            rc = RINGRED_EFORKED;
            break;
        }
        for (struct range *r = h->used; r; r = r->next)
            if (r->at == at) {
                drop_range(h, r, pages);
                heap_sweep(h);
                rc = 0;
                break;
            }
        break;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int rr_heap_free(void *memory)
{
    return heap_free(memory, true);
}

void rr_heap_leave(void *memory)
{
    (void)heap_free(memory, false); /* it is ours */
}
