/* SPDX-License-Identifier: Apache-2.0 */
/* Making and sharing out the memory that record.h describes. */
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int64_t real_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A memory file that cannot shrink under whoever reads it; -1. Its pages come slot by slot. */
static int make_file(void)
{
    if (sizeof(struct rr_record) > rr_file_limit()) {
        errno = EFBIG;
        return -1;
    }
    int fd = rr_fd_own(memfd_create("ringred-operations", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd >= 0 && ftruncate(fd, sizeof(struct rr_record)) == 0 &&
        fallocate(fd, 0, 0, offsetof(struct rr_record, slot)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int system = errno;
    rr_fd_close(fd);
    errno = system;
    return -1;
}

static void *map(int fd)
{
    void *at = mmap(NULL, sizeof(struct rr_record), PROT_READ | PROT_WRITE,
                    fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

static void write_head(const struct rr_family *f, const unsigned char *id, struct rr_record_head *h)
{
    h->version = RR_RECORD_VERSION;
    h->slots = RR_RECORD_SLOTS;
    h->entries = RR_RECORD_ENTRIES;
    h->pid = (int32_t)getpid();
    h->rank = f->rank;
    h->size = f->ranks;
    h->failed_rank = -1;
    for (int i = 0; i < 8; i++)
        snprintf(h->job + 2 * i, 3, "%02x", id[i]);
    if (gethostname(h->host, sizeof h->host - 1))
        h->host[0] = 0;
    snprintf(h->library, sizeof h->library, "%s", RINGRED_VERSION);
    h->ns = rr_now_ns();
    h->ticks = rr_ticks();
    h->real_ns = real_ns();
    h->magic = RR_RECORD_MAGIC;
}

int rr_record_open(struct rr_family *f, const struct rr_boot *boot, ringred_error *why)
{
    unsigned char id[32];

    f->record_fd = make_file();
    if (f->record_fd < 0) {
        rr_fail(why, RINGRED_ESYSTEM, -1, errno, "no memory file of operations: other processes cannot read them");
        rr_log(&f->log, RINGRED_LOG_TRACE, "%s", why->text);
    }
    f->record = map(f->record_fd);
    if (!f->record)
        return rr_fail(why, RINGRED_ENOMEM, -1, errno, "no memory for a record of operations");
    rr_boot_secret(boot, "record of operations", id); /* nothing else is known by what it tells */
    write_head(f, id, &f->record->head);
    rr_record_take(f->first, "all");
    return 0;
}

void rr_record_close(struct rr_family *f)
{
    if (f->record)
        munmap(f->record, sizeof *f->record);
    rr_fd_close(f->record_fd);
}

/* A slot that nobody has, with its pages; NULL. */
static struct rr_record_slot *find_slot(struct rr_family *f)
{
    for (int i = 0; i < RR_RECORD_SLOTS; i++) {
        struct rr_record_slot *s = &f->record->slot[i];
        uint32_t free = RR_RECORD_FREE;
        if (!atomic_compare_exchange_strong(&s->used, &free, RR_RECORD_TAKEN))
            continue;
        if (f->record_fd < 0 ||
            fallocate(f->record_fd, 0, (off_t)((char *)s - (char *)f->record), sizeof *s) == 0)
            return s;
        atomic_store(&s->used, RR_RECORD_FREE);
        return NULL;
    }
    return NULL;
}

void rr_record_copy(void *to, const void *from, size_t bytes)
{
    typedef uint64_t __attribute__((may_alias)) word;
    word *t = to;
    const word *f = from;

    for (size_t i = 0; i < bytes / sizeof *t; i++)
        __atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_ACQUIRE), __ATOMIC_RELAXED);
}

void rr_record_take(ringred_comm *c, const char *name)
{
    struct rr_record_slot *s = find_slot(c->family), mine = { .used = RR_RECORD_TAKEN };

    c->record = s ? s : &c->family->record->unread;
    if (!s)
        return;
    mine.rank = c->rank;
    mine.size = c->ranks;
    snprintf(mine.name, sizeof mine.name, "%s", name);
    for (int r = 0; r < c->ranks; r++)
        mine.member[r] = (int16_t)(c->member ? c->member[r] : r);
    rr_record_copy(s, &mine, sizeof mine);
    atomic_store(&s->used, RR_RECORD_USED);
}

/* A name that does not fit ends in a hash of itself. */
void rr_record_take_part(const ringred_comm *parent, ringred_comm *c, uint32_t split, int first)
{
    char name[sizeof c->record->name + 32];
    uint64_t h = 0;
    int used = snprintf(name, sizeof name, "%s/%u.%d", parent->record->name, split, first);

    for (int i = 0; i < used; i++)
        h = (h ^ (unsigned char)name[i]) * 0xff51afd7ed558ccdu + 0x9e3779b97f4a7c15u;
    if ((size_t)used >= sizeof c->record->name)
        snprintf(name + sizeof c->record->name - 18, 18, "-%016llx", (unsigned long long)h);
    rr_record_take(c, name);
}

void rr_record_leave(ringred_comm *c)
{
    if (c->record != &c->family->record->unread)
        atomic_store(&c->record->used, RR_RECORD_FREE);
    c->record = &c->family->record->unread;
}

void rr_record_fail(struct rr_record *r, const ringred_error *why)
{
    struct rr_record_head *h = &r->head;

    h->failed_rank = why->rank;
    memcpy(h->error, why->text, sizeof h->error);
    atomic_store(&h->failed_ns, rr_now_ns());
    atomic_store(&h->status, why->code);
}

/* With progress owned. awaits, missing: a byte for each rank. */
void rr_record_still(ringred_comm *c, uint64_t number, const uint8_t *awaits, const uint8_t *missing)
{
    struct rr_record_slot *s = c->record;

    for (int w = 0; w < RR_RECORD_RANKS / 64; w++) {
        uint64_t a = 0, m = 0;
        for (int r = 64 * w; r < c->ranks && r < 64 * (w + 1); r++) {
            a |= (uint64_t)(awaits[r] != 0) << r % 64;
            m |= (uint64_t)(missing[r] != 0) << r % 64;
        }
        atomic_store_explicit(&s->awaits[w], a, memory_order_relaxed);
        atomic_store_explicit(&s->missing[w], m, memory_order_relaxed);
    }
    atomic_store_explicit(&s->still, number, memory_order_release);
}
