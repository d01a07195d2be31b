/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank did last: for each communicator the operations that it has begun, in a ring. All of a family stands in
 * one memory file, "ringred-operations", which another process can read through /proc while this one hangs or is stopped.
 * Its layout is this header's, little-endian, and has a version. Nothing here allocates once the family is made; beginning
 * an operation writes one line.
 *
 * Read in ascending order, an entry is whole if its first and last word agree: the writer sets the last one, then
 * what lies between, then the first one. */
#ifndef RR_RECORD_H
#define RR_RECORD_H

#include "reduce/reduce.h"
#include "transport/transport.h"

#define RR_RECORD_MAGIC UINT64_C(0x6465722d6e697200) /* "\0rin-red" */
#define RR_RECORD_VERSION 1
#define RR_RECORD_ENTRIES 64   /* a power of two */
#define RR_RECORD_SLOTS 256    /* communicators of a family that are recorded at once */
#define RR_RECORD_RANKS 256

_Static_assert(RR_RECORD_RANKS >= RR_REDUCE_SOURCES, "members fit");

struct rr_record_entry {
    _Atomic uint64_t number;    /* of the operation; 0: none */
    _Atomic uint64_t what;      /* collective, type, op, 0, root as struct rr_ask has them */
    _Atomic uint64_t count;     /* as rr_ask has it */
    _Atomic uint64_t how;       /* lane, algorithm << 8, bytes of an element << 32 */
    _Atomic uint64_t begun;     /* rr_ticks() */
    _Atomic uint64_t ended_ns;  /* monotonic; 0: it has not, or before anybody looked what it waits for */
    _Atomic uint64_t done;
    _Atomic uint64_t again;     /* number */
};

/* One communicator. The owner of progress writes entries and what it waits for. */
struct rr_record_slot {
    _Atomic uint32_t used;      /* enum rr_record_use */
    int32_t rank, size;
    _Atomic uint32_t splits;    /* communicators made from it so far, to name the next */
    char name[64];              /* the same on all ranks: "all"; "all/2.1": of its second split, that whose rank 0 is its rank 1 */
    int16_t member[RR_RECORD_RANKS]; /* ranks of the job */
    _Atomic uint64_t still;     /* the operation that what follows is about: it has waited, see rr_stall_look */
    _Atomic uint64_t awaits[RR_RECORD_RANKS / 64], missing[RR_RECORD_RANKS / 64]; /* a bit for each rank of its own */
    _Atomic uint32_t noted_ms;  /* when that was noted, low bits */
    char spare[356];
    struct rr_record_entry entry[RR_RECORD_ENTRIES];
};
enum rr_record_use { RR_RECORD_FREE, RR_RECORD_USED, RR_RECORD_TAKEN };

struct rr_record_head {
    uint64_t magic;
    uint32_t version, slots, entries;
    int32_t pid, rank, size;    /* of the job */
    char job[24], host[64], library[24];
    int64_t real_ns, ns;        /* one moment on three clocks */
    uint64_t ticks;
    _Atomic int64_t failed_ns;  /* the family broke; guarded by its lock, as what follows: written once, status the last */
    _Atomic int32_t status;
    int32_t failed_rank;
    char error[488];
};

struct rr_record {
    struct rr_record_head head;
    char spare[4096 - sizeof(struct rr_record_head)];
    struct rr_record_slot unread; /* of communicators that are too many, all together */
    struct rr_record_slot slot[RR_RECORD_SLOTS];
};

_Static_assert(sizeof(struct rr_record_slot) == 1024 + 64 * RR_RECORD_ENTRIES, "no gaps");
_Static_assert(offsetof(struct rr_record, unread) == 4096, "no gaps");

/* With progress owned. */
static inline void rr_record_begin(struct rr_record_slot *s, const struct rr_ask *ask, uint64_t how)
{
    struct rr_record_entry *e = &s->entry[ask->sequence % RR_RECORD_ENTRIES];
    uint64_t what = (uint64_t)ask->collective | (uint64_t)ask->type << 8 | (uint64_t)ask->op << 16 |
                    (uint64_t)(uint32_t)ask->root << 32;

    atomic_store_explicit(&e->again, ask->sequence, memory_order_relaxed);
    atomic_store_explicit(&e->what, what, memory_order_release); /* not before that, and so on */
    atomic_store_explicit(&e->count, ask->count, memory_order_release);
    atomic_store_explicit(&e->how, how, memory_order_release);
    atomic_store_explicit(&e->begun, rr_ticks(), memory_order_release);
    atomic_store_explicit(&e->ended_ns, 0, memory_order_release);
    atomic_store_explicit(&e->done, 0, memory_order_release);
    atomic_store_explicit(&e->number, ask->sequence, memory_order_release);
}

static inline void rr_record_end(struct rr_record_slot *s, uint64_t number)
{
    struct rr_record_entry *e = &s->entry[number % RR_RECORD_ENTRIES];

    if (RR_UNLIKELY(atomic_load_explicit(&s->still, memory_order_relaxed) == number))
        atomic_store_explicit(&e->ended_ns, (uint64_t)rr_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&e->done, 1, memory_order_release);
}

#endif
