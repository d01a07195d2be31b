/* SPDX-License-Identifier: Apache-2.0 */
/* Making and closing communicators: settings, rendezvous, who shares memory with whom, links, plans.
 * What the ranks must agree on is exchanged and compared before the first collective. */
#include "core/core.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define SCRATCH_BYTES ((size_t)8 << 20)
#define CPUS 1024
#define SPIN_NS 200000         /* a wake-up on another CPU costs 20 to 80 us (docs/ARCHITECTURE.md) */
#define CROWDED_SPIN_NS 500000 /* yielding: whoever else is ready runs meanwhile */

/* ---- what the ranks tell each other ---- */

_Static_assert(RR_PAGE_PARTS == RR_REDUCE_SOURCES, "a rank's page has room for each rank that there may be");

struct card {
    uint64_t machine;          /* hash of the kernel's boot id */
    int32_t shared_failed;     /* a status, when this rank could not share memory */
    int32_t no_windows;        /* this rank cannot reach every mate's heap */
    int32_t no_fences;         /* sleepers cannot make this rank pass a fence */
    int32_t congestion;        /* what probing loopback found; 0: nothing better */
    char agreed[512];          /* the settings that must be equal, in words */
    uint64_t cpus[CPUS / 64];
};

static void write_card(const ringred_comm *c, struct card *card)
{
    const struct rr_settings *s = &c->settings;
    cpu_set_t set;

    memset(card, 0, sizeof *card);
    card->machine = rr_machine_hash();
    snprintf(card->agreed, sizeof card->agreed,
             "transport=%.12s algorithm=%.255s numerics=%.12s segment=%lld ranks_per_host=%lld "
             "stage=%lld heap=%lld tcp_streams=%lld",
             rr_setting_text(s, RR_SET_TRANSPORT), rr_setting_text(s, RR_SET_ALGORITHM),
             rr_setting_text(s, RR_SET_NUMERICS), (long long)rr_setting(s, RR_SET_SEGMENT),
             (long long)rr_setting(s, RR_SET_RANKS_PER_HOST), (long long)rr_setting(s, RR_SET_STAGE),
             (long long)rr_setting(s, RR_SET_HEAP),
             (long long)rr_setting(s, RR_SET_TCP_STREAMS));
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set); /* then no CPU is known, and all count as crowded */
    for (int cpu = 0; cpu < CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            card->cpus[cpu / 64] |= 1ull << cpu % 64;
}

static int compare_cards(const ringred_comm *c, const struct card *card, ringred_error *why)
{
    for (int r = 1; r < c->ranks; r++)
        if (memcmp(card[r].agreed, card[0].agreed, sizeof card->agreed))
            return rr_fail(why, RINGRED_ECONFIG, r, 0,
                           "settings differ: rank 0 has %.220s, rank %d has %.220s", card[0].agreed, r,
                           card[r].agreed);
    return 0;
}

/* Are there more ranks on rank `of`'s machine than CPUs that they may use? */
static bool is_crowded(const ringred_comm *c, const struct card *card, int of)
{
    int ranks = 0, cpus = 0;

    for (int r = 0; r < c->ranks; r++)
        ranks += card[r].machine == card[of].machine;
    for (int w = 0; w < CPUS / 64; w++) {
        uint64_t all = 0;
        for (int r = 0; r < c->ranks; r++)
            all |= card[r].machine == card[of].machine ? card[r].cpus[w] : 0;
        cpus += __builtin_popcountll(all);
    }
    return ranks > cpus;
}

static void count_cpus(ringred_comm *c, const struct card *card)
{
    c->crowded = is_crowded(c, card, c->rank);
    for (int r = 0; r < c->ranks && !c->crowded_any; r++) /* a machine is looked at by its lowest rank */
        c->crowded_any = (r == 0 || card[r].machine != card[r - 1].machine) && is_crowded(c, card, r);
}

/* ---- layout ---- */

/* Hosts by number, in order of their lowest rank. */
static int find_layout(ringred_comm *c, const struct rr_boot *boot, bool apart)
{
    c->host = rr_alloc((size_t)c->ranks, sizeof *c->host);
    if (!c->host)
        return RINGRED_ENOMEM;
    c->layout = (struct rr_layout){ .ranks = c->ranks, .host = c->host };
    for (int r = 0; r < c->ranks; r++) {
        int first = r;
        for (int s = 0; s < r && !apart && first == r; s++)
            if (rr_boot_member(boot, s)->host == rr_boot_member(boot, r)->host)
                first = s;
        c->host[r] = first == r ? (int16_t)c->layout.hosts++ : c->host[first];
    }
    c->local_rank = c->local_ranks = 0;
    for (int r = 0; r < c->ranks; r++)
        if (rr_boot_member(boot, r)->host == rr_boot_member(boot, c->rank)->host) {
            c->local_rank += r < c->rank;
            c->local_ranks++;
        }
    return 0;
}

/* ---- shared memory and links ---- */

static int open_shared(ringred_comm *c, struct rr_boot *boot, int64_t deadline, ringred_error *why)
{
    int *fd = rr_alloc((size_t)c->ranks, sizeof *fd);

    if (!fd)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory");
    for (int r = 0; r < c->ranks; r++)
        fd[r] = -1;
    int rc = rr_boot_local(boot, fd, why);
    if (rc == 0)
        rc = rr_shared_open(c->ranks, c->rank, boot, fd, &c->settings, deadline, &c->engine.shared, why);
    for (int r = 0; r < c->ranks; r++)
        if (fd[r] >= 0)
            close(fd[r]);
    rr_free(fd);
    return rc;
}

/* Everybody shares memory with its mates, or nobody does. */
static int share(ringred_comm *c, struct rr_boot *boot, int64_t deadline, struct card *card,
                 ringred_error *why)
{
    struct card mine = card[c->rank];
    ringred_error own;
    bool must = strcmp(rr_setting_text(&c->settings, RR_SET_TRANSPORT), "shm") == 0;

    mine.shared_failed = open_shared(c, boot, deadline, &own);
    mine.no_windows = !mine.shared_failed && !c->engine.shared->windows;
    mine.no_fences = !mine.shared_failed && !c->engine.shared->fences;
    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, card, why));
    for (int r = 0; r < c->ranks; r++) {
        if (card[r].no_windows && c->engine.shared) {
            c->engine.shared->windows = false;
            rr_log(&c->log, RINGRED_LOG_WARN,
                   "rank %d has no address space for shared buffers of %zu bytes (setting heap): "
                   "ringred_alloc gives ordinary memory", r, c->engine.shared->heap_bytes);
        }
        if (card[r].no_fences && c->engine.shared)
            c->engine.shared->fences = false;
        if (!card[r].shared_failed)
            continue;
        rr_shared_close(c->engine.shared, 0);
        c->engine.shared = NULL;
        if (must)
            return r == c->rank ? (*why = own, own.code)
                                : rr_fail(why, card[r].shared_failed, r, 0,
                                          "rank %d could not share memory", r);
        if (mine.shared_failed)
            rr_log(&c->log, RINGRED_LOG_WARN, "no shared memory, links instead: %s", own.text);
        rr_free(c->host);
        return find_layout(c, boot, true);
    }
    return 0;
}

/* The lowest rank of each machine finds out what suits its loopback; the others take that. */
static int congestion(ringred_comm *c, struct rr_boot *boot, struct card *card, ringred_error *why)
{
    struct card mine = card[c->rank];
    int lowest = 0;

    while (card[lowest].machine != mine.machine)
        lowest++;
    if (lowest == c->rank && strcmp(rr_setting_text(&c->settings, RR_SET_TCP_CONGESTION), "auto") == 0)
        mine.congestion = rr_congestion_probe();
    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, card, why));
    RR_TRY(rr_congestion_choose(&c->settings, card[lowest].congestion, &c->congestion, why));
    rr_boot_congestion(boot, c->congestion.inside, c->congestion.outside);
    rr_log(&c->log, RINGRED_LOG_INFO, "congestion control: %s inside a host, %s between hosts",
           c->congestion.inside, c->congestion.outside);
    return 0;
}

/* Networks give one connection a part of the wire only (EC2: 5 Gb/s, 10 in a placement group), so that a
 * host wants many at once. All exchanges of ours use those to all other hosts at the same time. */
#define FLOWS_PER_HOST 16
#define STREAMS_MOST 8

static int streams_between_hosts(const ringred_comm *c, const struct rr_boot *boot)
{
    int wish = (int)rr_setting(&c->settings, RR_SET_TCP_STREAMS), others = 0, local = 0;
    uint64_t net = rr_boot_net(boot, 0); /* the answer is the same on all ranks */

    for (int r = 0; r < c->ranks; r++) {
        if (rr_boot_net(boot, r) == net)
            local++;
        else
            others++;
    }
    if (wish || !others)
        return wish ? wish : 1;
    int hosts = (c->ranks + local - 1) / local, flows = (hosts > 1 ? hosts - 1 : 1) * local;
    int streams = (FLOWS_PER_HOST + flows - 1) / flows;
    return streams < STREAMS_MOST ? streams : STREAMS_MOST;
}

static int link_up(ringred_comm *c, struct rr_boot *boot, struct card *card, ringred_error *why)
{
    size_t n = (size_t)c->ranks;

    RR_TRY(congestion(c, boot, card, why));
    int streams = streams_between_hosts(c, boot);
    for (int r = 1; r < c->ranks; r++)
        c->wired = c->wired || rr_boot_net(boot, r) != rr_boot_net(boot, 0);
    uint8_t *want = rr_alloc(n, 1);
    int *fd = rr_alloc(n * (size_t)streams, sizeof *fd), rc = RINGRED_ENOMEM;

    if (want && fd) {
        for (int r = 0; r < c->ranks; r++) {
            bool near = rr_boot_net(boot, r) == rr_boot_net(boot, c->rank);
            want[r] = r == c->rank ? 0 : near && !rr_setting(&c->settings, RR_SET_TCP_STREAMS) ? 1 : (uint8_t)streams;
        }
        rc = rr_boot_wire(boot, want, streams, fd, why);
        if (rc == 0)
            rc = rr_tcp_open(c->ranks, c->rank, fd, streams, &c->congestion, &c->settings, &c->log,
                             &c->engine.links, why);
    } else {
        rr_fail(why, rc, -1, 0, "no memory for %d links", c->ranks);
    }
    rr_free(want);
    rr_free(fd);
    return rc;
}

static int make_engine(ringred_comm *c, ringred_error *why)
{
    struct rr_engine *e = &c->engine;
    size_t n = (size_t)c->ranks;

    e->rank = c->rank;
    e->ranks = c->ranks;
    e->polls = c->crowded ? 1 : 100;
    e->step = rr_step_run;
    e->scratch_bytes = e->links ? SCRATCH_BYTES : RR_LINE;
    e->scratch = rr_alloc_aligned(4096, e->scratch_bytes);
    e->done = rr_alloc(e->most_steps, sizeof *e->done);
    e->bases = rr_alloc(n, sizeof *e->bases);
    e->send = rr_alloc(n, sizeof *e->send);
    e->recv = rr_alloc(n, sizeof *e->recv);
    c->gone = rr_alloc(n, 1);
    if (!e->scratch || !e->done || !e->bases || !e->send || !e->recv || !c->gone)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the engine");
    c->epoll = rr_fd_own(epoll_create1(EPOLL_CLOEXEC));
    c->wake = rr_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    if (c->epoll < 0 || c->wake < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->wake, &event))
        return rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot make an epoll set");
    RR_TRY(rr_faulty_wrap(c->ranks, c->rank, &c->settings, &e->links, e->shared, why));
    RR_TRY(rr_trace_open(e, rr_setting_text(&c->settings, RR_SET_TRACE), why));
    if (e->shared)
        RR_TRY(rr_shared_watch(e->shared, c->epoll, why));
    if (e->links)
        RR_TRY(e->links->ops->watch(e->links, c->epoll, why));
    return 0;
}

static int make_ready(ringred_comm *c, ringred_error *why)
{
    int64_t spin = rr_setting(&c->settings, RR_SET_SPIN);

    RR_TRY(rr_plans_init(c, why));
    RR_TRY(make_engine(c, why));
    rr_choose_init(c);
    c->spin_ns = spin >= 0 ? spin * 1000 : c->crowded ? CROWDED_SPIN_NS : SPIN_NS;
    return 0;
}

static int join(ringred_comm *c, struct rr_boot *boot, int64_t deadline, ringred_error *why)
{
    const char *transport = rr_setting_text(&c->settings, RR_SET_TRANSPORT);
    struct card *card = rr_alloc((size_t)c->ranks, sizeof *card);
    int rc;

    if (!card)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    write_card(c, &card[c->rank]);
    struct card mine = card[c->rank];
    rc = rr_boot_allgather(boot, &mine, sizeof mine, card, why);
    if (rc == 0)
        rc = compare_cards(c, card, why);
    if (rc == 0 && find_layout(c, boot, strcmp(transport, "tcp") == 0) < 0)
        rc = rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    if (rc == 0 && strcmp(transport, "shm") == 0 && c->layout.hosts > 1)
        rc = rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0,
                     "transport=shm, but the %d ranks are on %d hosts: use auto or tcp", c->ranks,
                     c->layout.hosts);
    if (rc == 0 && c->layout.hosts < c->ranks) /* a rank without mates opens a stage of its own */
        rc = share(c, boot, deadline, card, why);
    c->all_local = c->engine.shared && c->layout.hosts == 1;
    if (rc == 0)
        count_cpus(c, card);
    if (rc == 0 && c->layout.hosts > 1)
        rc = link_up(c, boot, card, why);
    if (rc == 0)
        rc = make_ready(c, why);
    if (rc == 0) /* a rank that cannot go on says so before anybody believes in the communicator */
        rc = rr_boot_allgather(boot, &mine, sizeof mine, card, why);
    rr_free(card);
    return rc;
}

/* ---- the communicator ---- */

static int configure(ringred_comm *c, const ringred_config *config, struct rr_launch *launch,
                     ringred_error *why)
{
    RR_TRY(rr_settings_load(&c->settings, config->settings, why));
    RR_TRY(rr_choose_check(&c->settings, why));
    c->log = (struct rr_log){ (int)rr_setting(&c->settings, RR_SET_LOG), config->log,
                              config->log_context, -1 };
    if (config->log && c->log.level == RINGRED_LOG_NONE)
        c->log.level = RINGRED_LOG_INFO;
    RR_TRY(rr_launch_find(config, &c->settings, launch, why));
    c->rank = c->log.rank = launch->rank;
    c->ranks = launch->size;
    if (c->ranks > RR_REDUCE_SOURCES)
        return rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0,
                       "this release makes communicators of up to %d ranks, not of %d",
                       RR_REDUCE_SOURCES, c->ranks);
    return 0;
}

static int open_all(ringred_comm *c, const ringred_config *config, ringred_error *why)
{
    struct rr_launch launch;
    struct rr_boot *boot = NULL;

    RR_TRY(configure(c, config, &launch, why));
    int64_t timeout = config->timeout_ns ? config->timeout_ns
                                         : rr_setting(&c->settings, RR_SET_INIT_TIMEOUT);
    int64_t deadline = rr_deadline(timeout);
    (void)rr_comm_set(c, RR_COMM_WIRING);
    int rc = rr_boot_open(&launch, &c->settings, &c->log, deadline, &boot, why);
    if (rc == 0) {
        rc = join(c, boot, deadline, why);
        if (rc < 0)
            rr_boot_tell(boot, why);
    }
    rr_boot_close(boot);
    return rc;
}

/* Works on half-made communicators. */
static int free_all(ringred_comm *c)
{
    struct rr_engine *e = &c->engine;
    int64_t linger = rr_setting(&c->settings, RR_SET_LINGER);
    int rc = 0;

    if (e->links)
        rc = e->links->ops->close(e->links, c->sequence, rr_deadline(linger));
    rr_shared_close(e->shared, c->sequence);
    rr_plans_done(c);
    rr_trace_close(e);
    rr_fd_close(c->epoll);
    rr_fd_close(c->wake);
    rr_free(e->scratch);
    rr_free(e->done);
    rr_free(e->bases);
    rr_free(e->send);
    rr_free(e->recv);
    rr_free(c->gone);
    rr_free(c->host);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    rr_free(c);
    return rc;
}

int rr_comm_open(const ringred_config *config, ringred_comm **comm, ringred_error *why)
{
    ringred_comm *c = rr_alloc(1, sizeof *c);

    if (!c)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a communicator");
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    c->epoll = c->wake = -1;
    c->forks = rr_forks();
    int rc = open_all(c, config, why);
    if (rc < 0) {
        (void)free_all(c); /* what failed is in *why */
        return rc;
    }
    (void)rr_comm_set(c, RR_COMM_READY);
    *comm = c;
    return 0;
}

int rr_comm_close(ringred_comm *c)
{
    int rc = c->fault.code;

    if (c->forks != rr_forks())
        return RINGRED_EFORKED; /* the parent's: left alone */
    (void)rr_comm_set(c, RR_COMM_CLOSED);
    int undelivered = free_all(c);
    return rc ? rc : undelivered;
}
