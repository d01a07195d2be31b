/* SPDX-License-Identifier: Apache-2.0 */
/* Waking ranks that sleep. Publishers look at one shared number and, nearly always, do nothing else:
 * the fence that makes this safe is paid for by whoever goes to sleep (membarrier makes all CPUs that
 * run a registered process pass a fence). Where that call is refused, sleepers sleep in slices. */
#include "transport/shared.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static int membarrier_call(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

bool rr_shm_fences(void)
{
    int offered = membarrier_call(MEMBARRIER_CMD_QUERY);

    return offered > 0 && (offered & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
           membarrier_call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void rr_shm_ring(struct rr_shared *s)
{
    const struct rr_shared *home = s->home ? s->home : s;
    const struct rr_shm *m = (const struct rr_shm *)home;
    const uint64_t one = 1;

    atomic_fetch_add(&s->host->sleepers, 0); /* a fence, for callers that have not looked at it */
    for (int i = 0; i < s->locals; i++) {
        int rank = s->home ? s->mate[s->local[i]].home : s->local[i];
        if (rank == home->me || m->bell[rank] < 0 || !atomic_load(&home->mate[rank].page->asleep) ||
            !atomic_exchange(&home->mate[rank].page->asleep, 0))
            continue;
        ssize_t ignored = write(m->bell[rank], &one, sizeof one);
        (void)ignored; /* it can only be full, and then it has rung */
    }
}

int rr_shared_sleep_begin(struct rr_shared *s)
{
    atomic_store(&s->mate[s->me].page->asleep, 1);
    atomic_fetch_add(&s->host->sleepers, 1);
    if (s->fences && membarrier_call(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0)
        return 0;
    return RINGRED_EUNSUPPORTED;
}

void rr_shared_sleep_end(struct rr_shared *s)
{
    struct rr_shm *m = (struct rr_shm *)s;
    uint64_t rung;

    atomic_store(&s->mate[s->me].page->asleep, 0);
    atomic_fetch_sub(&s->host->sleepers, 1);
    ssize_t ignored = read(m->bell[s->me], &rung, sizeof rung);
    (void)ignored; /* nothing in it is as good */
}
