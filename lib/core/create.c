/* SPDX-License-Identifier: Apache-2.0 */
/* Making and closing communicators: settings, rendezvous, who shares memory with whom, links, plans. */
#include "core/card.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SPIN_NS 200000         /* a wake-up on another CPU costs 20 to 80 us (docs/ARCHITECTURE.md) */
#define CROWDED_SPIN_NS 500000 /* yielding: whoever else is ready runs meanwhile */

/* ---- layout ---- */

/* Hosts by number, in order of their lowest rank. */
static int find_layout(ringred_comm *c, const struct rr_boot *boot, bool apart, ringred_error *why)
{
    c->host = rr_alloc((size_t)c->ranks, sizeof *c->host);
    if (!c->host)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    c->layout = (struct rr_layout){ .ranks = c->ranks, .host = c->host };
    for (int r = 0; r < c->ranks; r++) {
        int first = r;
        for (int s = 0; s < r && !apart && first == r; s++)
            if (rr_boot_member(boot, s)->host == rr_boot_member(boot, r)->host)
                first = s;
        c->host[r] = first == r ? (int16_t)c->layout.hosts++ : c->host[first];
    }
    if (!c->family->host)
        c->family->host = rr_alloc((size_t)c->ranks, sizeof *c->family->host);
    if (!c->family->host)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    c->local_rank = c->local_ranks = 0;
    for (int r = 0; r < c->ranks; r++) {
        int16_t first = 0;
        while (rr_boot_member(boot, first)->host != rr_boot_member(boot, r)->host)
            first++;
        c->family->host[r] = first;
    }
    for (int r = 0; r < c->ranks; r++)
        if (rr_boot_member(boot, r)->host == rr_boot_member(boot, c->rank)->host) {
            c->local_rank += r < c->rank;
            c->local_ranks++;
        }
    return 0;
}

/* ---- shared memory and links ---- */

/* fd has room for one of each rank. */
static int open_shared(ringred_comm *c, struct rr_boot *boot, int *fd, int64_t deadline, ringred_error *why)
{
    for (int r = 0; r < c->ranks; r++)
        fd[r] = -1;
    int rc = rr_boot_local(boot, fd, why);
    if (rc == 0)
        rc = rr_shared_open(c->ranks, c->rank, boot, fd, &c->family->settings, deadline, &c->family->shared, why);
    c->engine.shared = c->family->shared;
    for (int r = 0; r < c->ranks; r++)
        rr_fd_close(fd[r]);
    return rc;
}

/* The rank at which sharing failed: those whose mate was lost only followed. The number of ranks: none. */
static int first_failed(const ringred_comm *c, const struct rr_card *card)
{
    int follower = c->ranks;

    for (int r = 0; r < c->ranks; r++) {
        if (card[r].shared_failed && card[r].shared_failed != RINGRED_EPEER)
            return r;
        if (card[r].shared_failed && follower == c->ranks)
            follower = r;
    }
    return follower;
}

/* What another rank says of itself. */
static int shared_failed(struct rr_card *card, int rank, ringred_error *why)
{
    bool known = card->shared_failed < 0 && card->shared_failed > -1000;

    card->shared_why[sizeof card->shared_why - 1] = 0;
    rr_text_tame(card->shared_why);
    return rr_fail(why, known ? card->shared_failed : RINGRED_EWIRE, rank, 0, "rank %d could not share memory: %s", rank,
                   card->shared_why);
}

/* Everybody shares memory with its mates, or nobody does. */
static int share(ringred_comm *c, struct rr_boot *boot, int64_t deadline, struct rr_card *card,
                 ringred_error *why)
{
    struct rr_card mine = card[c->rank];
    ringred_error own;
    bool must = !c->family->wires.name[0];
    int *fd = rr_alloc((size_t)c->ranks, sizeof *fd);

    if (!fd) /* the mates wait for this rank: it must tell, not just be missing */
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    mine.shared_failed = open_shared(c, boot, fd, deadline, &own);
    rr_free(fd);
    if (mine.shared_failed)
        snprintf(mine.shared_why, sizeof mine.shared_why, "%.*s", (int)sizeof mine.shared_why - 1, own.text);
    mine.no_windows = !mine.shared_failed && !c->engine.shared->windows;
    mine.no_fences = !mine.shared_failed && !c->engine.shared->fences;
    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, card, why));
    for (int r = 0; r < c->ranks; r++) {
        if (card[r].no_windows && c->engine.shared) {
            c->engine.shared->windows = false;
            rr_log(&c->family->log, RINGRED_LOG_WARN,
                   "rank %d has no address space for shared buffers of %zu bytes (setting heap): "
                   "ringred_alloc gives ordinary memory", r, c->engine.shared->heap_bytes);
        }
        if (card[r].no_fences && c->engine.shared)
            c->engine.shared->fences = false;
    }
    int failed = first_failed(c, card);
    if (failed == c->ranks)
        return 0;
    rr_shared_close(c->engine.shared, 0);
    c->engine.shared = c->family->shared = NULL;
    if (must)
        return failed == c->rank ? (*why = own, own.code) : shared_failed(&card[failed], failed, why);
    if (mine.shared_failed)
        rr_log(&c->family->log, RINGRED_LOG_WARN, "no shared memory, links instead: %s", own.text);
    rr_free(c->host);
    return find_layout(c, boot, true, why);
}

/* As boot does for those that are reached over the network: one line for each peer. */
static void tell_mates(const ringred_comm *c, const struct rr_boot *boot)
{
    char text[80];

    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && c->layout.host[r] == c->layout.host[c->rank])
            rr_log(&c->family->log, RINGRED_LOG_INFO, "link to %s: shared memory (the same host)",
                   rr_who(boot, r, text, sizeof text));
}

/* The lowest rank of each machine finds out what suits its loopback; the others take that. */
static int congestion(ringred_comm *c, struct rr_boot *boot, struct rr_card *card, ringred_error *why)
{
    struct rr_card mine = card[c->rank];
    int lowest = 0;

    while (card[lowest].machine != mine.machine)
        lowest++;
    if (lowest == c->rank && strcmp(rr_setting_text(&c->family->settings, RR_SET_TCP_CONGESTION), "auto") == 0)
        mine.congestion = rr_congestion_probe();
    RR_TRY(rr_boot_allgather(boot, &mine, sizeof mine, card, why));
    RR_TRY(rr_congestion_choose(&c->family->settings, card[lowest].congestion, &c->family->congestion, why));
    rr_boot_congestion(boot, c->family->congestion.inside, c->family->congestion.outside);
    rr_log(&c->family->log, RINGRED_LOG_INFO, "congestion control: %s inside a host, %s between hosts",
           c->family->congestion.inside, c->family->congestion.outside);
    return 0;
}

/* Networks give one connection a part of the wire only (EC2: 5 Gb/s, 10 in a placement group), so that a
 * host wants many at once. All exchanges of ours use those to all other hosts at the same time. */
#define FLOWS_PER_HOST 16
#define STREAMS_MOST 8

int rr_choose_streams(int hosts, int local)
{
    int flows = (hosts > 1 ? hosts - 1 : 1) * local, streams = (FLOWS_PER_HOST + flows - 1) / flows;

    return streams < STREAMS_MOST ? streams : STREAMS_MOST;
}

static int streams_between_hosts(const ringred_comm *c, const struct rr_boot *boot)
{
    int wish = (int)rr_setting(&c->family->settings, RR_SET_TCP_STREAMS), others = 0, local = 0;
    uint64_t net = rr_boot_net(boot, 0); /* the answer is the same on all ranks */

    for (int r = 0; r < c->ranks; r++) {
        if (rr_boot_net(boot, r) == net)
            local++;
        else
            others++;
    }
    if (wish || !others)
        return wish ? wish : 1;
    return rr_choose_streams((c->ranks + local - 1) / local, local);
}

static int link_up(ringred_comm *c, struct rr_boot *boot, struct rr_card *card, ringred_error *why)
{
    size_t n = (size_t)c->ranks;

    RR_TRY(congestion(c, boot, card, why));
    int streams = streams_between_hosts(c, boot);
    for (int r = 1; r < c->ranks; r++)
        c->family->wired = c->family->wired || rr_boot_net(boot, r) != rr_boot_net(boot, 0);
    uint8_t *want = rr_alloc(n, 1);
    int *fd = rr_alloc(n * (size_t)streams, sizeof *fd), rc = RINGRED_ENOMEM;
    bool encrypts = rr_setting(&c->family->settings, RR_SET_TCP_ENCRYPTION);
    struct rr_seal *seal = encrypts ? rr_alloc(n * (size_t)streams, sizeof *seal) : NULL;

    if (want && fd && (seal || !encrypts)) {
        for (int r = 0; r < c->ranks; r++) {
            bool near = rr_boot_net(boot, r) == rr_boot_net(boot, c->rank);
            want[r] = r == c->rank ? 0 : near && !rr_setting(&c->family->settings, RR_SET_TCP_STREAMS) ? 1 : (uint8_t)streams;
            c->family->links_wanted += want[r];
        }
        rc = rr_boot_wire(boot, want, streams, fd, seal, why);
        if (rc == 0)
            rc = rr_tcp_open(c->ranks, c->rank, fd, streams, &c->family->congestion, &c->family->settings, &c->family->log,
                             &c->family->links, why);
        if (rc == 0 && encrypts)
            rc = rr_links_seal(c->family->links, seal, streams, why);
    } else {
        rr_fail(why, rc, -1, 0, "no memory for %d links", c->ranks);
    }
    if (seal)
        sodium_memzero(seal, n * (size_t)streams * sizeof *seal);
    rr_free(want);
    rr_free(fd);
    rr_free(seal);
    return rc;
}

/* Links by a stranger's transport, to all ranks that do not share memory with this one: whoever shares it posts
 * messages there. */
static int plug_in(ringred_comm *c, struct rr_boot *boot, int64_t deadline, ringred_error *why)
{
    struct rr_family *f = c->family;
    int rails = (int)rr_setting(&f->settings, RR_SET_TCP_STREAMS);
    struct rr_plugin p = { .by = f->wires.by, .ranks = c->ranks, .me = c->rank, .rails = rails ? rails : 1, .boot = boot,
                           .settings = &f->settings, .log = &f->log, .interrupt = f->interrupt, .deadline_ns = deadline };
    uint8_t *wanted = rr_alloc((size_t)c->ranks, 1);

    if (!wanted)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d links", c->ranks);
    for (int r = 0; r < c->ranks; r++)
        wanted[r] = r != c->rank;
    for (int r = 1; r < c->ranks; r++)
        f->wired = f->wired || rr_boot_net(boot, r) != rr_boot_net(boot, 0);
    int rc = rr_plugin_open(&p, wanted, &f->links, why);
    rr_free(wanted);
    return rc;
}

static int make_engine(ringred_comm *c, ringred_error *why)
{
    struct rr_family *f = c->family;
    struct rr_engine *e = &c->engine;
    struct rr_area *area;

    e->rank = c->rank;
    e->ranks = c->ranks;
    e->polls = f->crowded ? 1 : 100;
    e->step = rr_step_run;
    RR_TRY(rr_area_add(f, &area, why));
    rr_area_bind(c, area);
    c->gone = rr_alloc((size_t)c->ranks, 1);
    f->gone = rr_alloc((size_t)c->ranks, 1);
    c->request = rr_alloc(RR_REQUESTS, sizeof *c->request);
    if (!c->gone || !f->gone || !c->request)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the engine");
    f->epoll = rr_fd_own(epoll_create1(EPOLL_CLOEXEC));
    f->wake = rr_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    if (f->epoll < 0 || f->wake < 0 || epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->wake, &event))
        return rr_fail(why, RINGRED_ELIMIT, -1, errno, "cannot make an epoll set");
    RR_TRY(rr_faulty_wrap(c->ranks, c->rank, &f->settings, &f->links, f->shared, why));
    e->links = f->links;
    RR_TRY(rr_trace_open(e, rr_setting_text(&f->settings, RR_SET_TRACE), c->plans->most_steps, &f->log, why));
    if (f->shared && !f->links)
        RR_TRY(rr_post_open(f->shared, c->ranks, c->rank, &f->log, &f->post, why));
    if (f->shared)
        RR_TRY(rr_shared_watch(f->shared, f->epoll, why));
    if (f->links)
        RR_TRY(f->links->ops->watch(f->links, f->epoll, why));
    return 0;
}

static int make_ready(ringred_comm *c, ringred_error *why)
{
    struct rr_family *f = c->family;
    int64_t spin = rr_setting(&f->settings, RR_SET_SPIN);

    c->plans = rr_plans_new(c, why);
    if (!c->plans)
        return why->code;
    RR_TRY(make_engine(c, why));
    rr_choose_init(c);
    rr_tuning_look(c);
    f->spin_ns = spin >= 0 ? spin * 1000 : f->crowded ? CROWDED_SPIN_NS : SPIN_NS;
    if (rr_setting(&f->settings, RR_SET_PROGRESS))
        RR_TRY(rr_mover_attach(f, why));
    return 0;
}

static int join(ringred_comm *c, struct rr_boot *boot, int64_t deadline, ringred_error *why)
{
    const struct rr_wires *wires = &c->family->wires;
    struct rr_card *card = rr_alloc((size_t)c->ranks, sizeof *card);
    int rc;

    if (!card)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d ranks", c->ranks);
    rr_card_write(c, &card[c->rank]);
    struct rr_card mine = card[c->rank];
    rc = rr_boot_allgather(boot, &mine, sizeof mine, card, why);
    if (rc == 0)
        rc = rr_cards_compare(c, boot, card, why);
    if (rc == 0)
        rc = find_layout(c, boot, !wires->shm, why);
    if (rc == 0 && !wires->name[0] && c->layout.hosts > 1)
        rc = rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0,
                     "transport=shm, but the %d ranks are on %d hosts: use auto or tcp", c->ranks,
                     c->layout.hosts);
    if (rc == 0 && c->layout.hosts < c->ranks) /* a rank without mates opens a stage of its own */
        rc = share(c, boot, deadline, card, why);
    c->all_local = c->engine.shared && c->layout.hosts == 1;
    if (rc == 0 && c->engine.shared)
        tell_mates(c, boot);
    if (rc == 0)
        rr_cards_count_cpus(c, card);
    if (rc == 0 && c->layout.hosts > 1)
        rc = wires->by ? plug_in(c, boot, deadline, why) : link_up(c, boot, card, why);
    if (rc == 0)
        rc = rr_record_open(c->family, boot, why);
    if (rc == 0)
        rc = make_ready(c, why);
    if (rc == 0 && *rr_setting_text(&c->family->settings, RR_SET_TEAM))
        rc = rr_team_meet(c, boot, deadline, why);
    if (rc == 0 && c->ranks > 1)
        rc = rr_boot_keep(boot, c->family->reunion, &c->family->reunion, why);
    rr_free(card);
    return rc;
}

/* ---- the communicator ---- */

/* It is for the library's own sockets: what strangers carry would leave the host in clear. */
static int check_encryption(const struct rr_family *f, ringred_error *why)
{
    const char *team = rr_setting_text(&f->settings, RR_SET_TEAM);

    if (!rr_setting(&f->settings, RR_SET_TCP_ENCRYPTION) || (!f->wires.by && !*team))
        return 0;
    return rr_fail(why, RINGRED_ESETTING, -1, 0, "tcp_encryption encrypts what travels over TCP, and not what %s=%s carries: "
                   "choose one of them", *team ? "team" : "transport", *team ? team : f->wires.name);
}

static int read_settings(struct rr_family *f, ringred_error *why)
{
    RR_TRY(rr_wires_read(rr_setting_text(&f->settings, RR_SET_TRANSPORT), &f->wires, why));
    RR_TRY(check_encryption(f, why));
    RR_TRY(rr_choose_check(&f->settings, why));
    return rr_mover_check(&f->settings, why);
}

static int configure(struct rr_family *f, const ringred_config *config, struct rr_launch *launch,
                     ringred_error *why)
{
    RR_TRY(rr_settings_load(&f->settings, config->settings, why));
    RR_TRY(read_settings(f, why));
    RR_TRY(rr_tuning_load(rr_setting_text(&f->settings, RR_SET_TUNING), &f->tuning, why));
    f->choose = config->choose;
    f->choose_context = config->choose_context;
    f->interrupt = (struct rr_interrupt){ config->interrupt, config->interrupt_context, NULL };
    f->log = (struct rr_log){ (int)rr_setting(&f->settings, RR_SET_LOG), config->log,
                              config->log_context, -1 };
    if (config->log && f->log.level == RINGRED_LOG_NONE)
        f->log.level = RINGRED_LOG_INFO;
    return rr_launch_find(config, &f->settings, launch, why);
}

/* As its ranks were configured that make another one. */
static int configure_like(struct rr_family *f, const struct rr_family *old, ringred_error *why)
{
    f->settings = old->settings;
    *f->settings.value[RR_SET_TRACE].text = 0; /* the file is old's, and is not written over */
    RR_TRY(read_settings(f, why));
    f->tuning = rr_tuning_hold(old->tuning); /* its file may be another one by now */
    f->choose = old->choose;
    f->choose_context = old->choose_context;
    f->interrupt = old->interrupt;
    f->log = old->log;
    rr_reunion_hold(f->reunion = old->reunion);
    return 0;
}

/* Says how many descriptors making a communicator takes, where that is what there were too few of: at least those of the
 * rendezvous, until the layout is known (docs/USER.md, Limits). */
static void tell_need(const ringred_comm *c, ringred_error *why)
{
    struct rr_text t = { why->text, sizeof why->text, strlen(why->text) };
    int shared = c->family->wires.shm && c->local_ranks > 1 ? 5 * c->local_ranks + 1 : 0;
    int links = c->family->links_wanted ? c->ranks + c->family->links_wanted + 4 : 0;
    int meeting = c->rank == 0 ? c->ranks + 3 : 4;

    if (why->system == EMFILE)
        rr_text_add(&t, "; making this communicator of %d ranks takes %s %d beside those that are open", c->ranks,
                    shared + links ? "up to" : "at least", shared + links ? shared + links : meeting);
}

/* What every rank has to be able to do; then what makes it a communicator. A rank that cannot go on says so before
 * anybody believes in it. */
static int meet_and_join(ringred_comm *c, const struct rr_launch *launch, int64_t deadline, bool *last,
                         ringred_error *why)
{
    struct rr_family *f = c->family;
    struct rr_boot *boot = NULL;

    c->rank = f->rank = f->log.rank = launch->rank;
    c->ranks = f->ranks = launch->size;
    if (f->ranks > RR_REDUCE_SOURCES) {
        rr_launch_drop(launch);
        return rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0,
                       "this release makes communicators of up to %d ranks, not of %d",
                       RR_REDUCE_SOURCES, f->ranks);
    }
    (void)rr_family_set(f, RR_COMM_WIRING);
    int rc = rr_boot_open(launch, &f->settings, &f->log, deadline, &boot, why);
    if (rc == 0)
        rc = join(c, boot, deadline, why);
    if (rc < 0)
        tell_need(c, why);
    *last = rc == 0;
    if (rc == 0)
        rc = rr_boot_allgather(boot, NULL, 0, NULL, why);
    else if (boot)
        rr_boot_tell(boot, why);
    rr_boot_close(boot);
    return rc;
}

/* *last: it was made, and what failed is being sure of it. */
static int open_all(ringred_comm *c, const ringred_config *config, bool *last, ringred_error *why)
{
    struct rr_family *f = c->family;
    struct rr_launch launch;
    int64_t began = rr_now_ns();

    *last = false;
    RR_TRY(configure(f, config, &launch, why));
    int64_t timeout = config->timeout_ns ? config->timeout_ns
                                         : rr_setting(&f->settings, RR_SET_INIT_TIMEOUT);
    int64_t deadline = rr_deadline(timeout);
    if (deadline != INT64_MAX) /* finding rank 0 may have taken a part of it */
        deadline -= rr_now_ns() - began;
    int rc = meet_and_join(c, &launch, deadline, last, why);
    sodium_memzero(&launch, sizeof launch); /* it has the key */
    return rc;
}

static void free_kept(struct ringred_request *q)
{
    rr_free(q->room);
    rr_list_free(q->list);
}

static void first_free(ringred_comm *c)
{
    for (int i = 0; c->request && i < RR_REQUESTS; i++)
        free_kept(&c->request[i]);
    rr_ops_free(c);
    rr_trace_close(&c->engine);
    rr_plans_free(c->plans);
    rr_free(c->request);
    rr_free(c->gone);
    rr_free(c->last);
    rr_free(c->host);
    rr_free(c);
}

/* A team that is closed in the middle of an operation leaves its others in it. */
static uint64_t last_ended(const ringred_comm *c)
{
    const struct ringred_request *q = c->engine.crew ? rr_at_head(c) : NULL;

    return q ? q->run.ask.sequence - 1 : c->sequence;
}

int rr_family_free(struct rr_family *f)
{
    int64_t linger = rr_setting(&f->settings, RR_SET_LINGER);
    uint64_t last = f->first ? last_ended(f->first) : 0;
    int rc = 0;

    rr_mover_detach(f);
    rr_listen_close(f);
    if (f->first)
        rr_team_drop(f->first);
    if (f->links) {
        f->links->core->interrupt = &f->interrupt;
        rc = f->links->ops->close(f->links, last, rr_deadline(linger));
    }
    rr_post_close(f->post);
    rr_parts_free(f);
    rr_shared_close(f->shared, last);
    if (f->first)
        first_free(f->first);
    rr_areas_free(f);
    while (f->plans) {
        struct rr_plans *p = f->plans;
        f->plans = p->next;
        rr_plans_free(p);
    }
    while (f->chunks) {
        struct rr_chunk *chunk = f->chunks;
        f->chunks = chunk->next;
        for (int i = 0; i < RR_REQUESTS; i++)
            free_kept(&chunk->request[i]);
        rr_free(chunk);
    }
    rr_tuning_free(f->tuning);
    rr_reunion_drop(f->reunion);
    rr_free(f->host);
    rr_record_close(f);
    rr_fd_close(f->epoll);
    rr_fd_close(f->wake);
    rr_free(f->gone);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->pool);
    rr_free(f);
    return rc;
}

static struct rr_family *family_new(void)
{
    struct rr_family *f = rr_alloc(1, sizeof *f);
    pthread_condattr_t monotonic;

    if (!f)
        return NULL;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->pool, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    f->epoll = f->wake = f->record_fd = -1;
    f->listener.set = f->listener.timer = f->listener.bell = -1;
    f->forks = rr_forks();
    f->handles = 1;
    f->talk_comers_end = &f->talk_comers;
    f->first = f->running = rr_alloc(1, sizeof *f->first);
    if (f->first) {
        f->first->family = f;
        return f;
    }
    (void)rr_family_free(f);
    return NULL;
}

int rr_comm_open(const ringred_config *config, ringred_comm **comm, ringred_error *why)
{
    struct rr_family *f = family_new();
    bool last;

    if (!f)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a communicator");
    int rc = open_all(f->first, config, &last, why);
    if (rc == 0 || last)
        (void)rr_family_set(f, RR_COMM_READY);
    if (rc < 0 && last)
        (void)rr_family_abort(f, why); /* others may be at work in it: they hear why, and not that this rank has left */
    if (rc < 0)
        (void)rr_family_free(f); /* what failed is in *why */
    else
        *comm = f->first;
    return rc;
}

int rr_comm_open_like(const struct rr_family *old, const struct rr_launch *launch, int64_t deadline_ns,
                      ringred_comm **comm, bool *last, ringred_error *why)
{
    struct rr_family *f = family_new();

    *last = false;
    int rc = f ? configure_like(f, old, why) : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a communicator");
    if (rc < 0)
        rr_launch_drop(launch);
    else
        rc = meet_and_join(f->first, launch, deadline_ns, last, why);
    if (rc == 0)
        (void)rr_family_set(f, RR_COMM_READY);
    if (rc == 0 || *last)
        *comm = f->first;
    else if (f)
        (void)rr_family_free(f); /* what failed is in *why */
    return rc;
}

/* What is in flight on a communicator that others outlive must end first: half of it may be on the links. */
static void finish(ringred_comm *c)
{
    struct rr_family *f = c->family;
    int64_t deadline = rr_deadline(rr_setting(&f->settings, RR_SET_LINGER)), ask = rr_now_ns() + RR_INTERRUPT_NS / 2;
    ringred_error why;

    while ((rr_at_head(c) || atomic_load(&c->talking)) && atomic_load(&f->state) == RR_COMM_READY) {
        (void)rr_family_poll(f);
        int64_t now = rr_now_ns();
        if (now < deadline && now < ask)
            continue;
        ask = now + RR_INTERRUPT_NS / 2;
        if (now < deadline && !rr_is_interrupted(&f->interrupt))
            continue;
        rr_fail(&why, RINGRED_EABORTED, f->rank, 0,
                "rank %d destroyed a communicator in the middle of an operation, and others share its links", f->rank);
        (void)rr_family_abort(f, &why);
    }
    while (atomic_load(&c->owed)) { /* by another thread, or by us if the family is broken */
        if (rr_family_own(f))
            rr_family_disown(f);
        if (atomic_load(&c->owed))
            (void)poll(NULL, 0, 1);
    }
}

/* 0: it is not broken. */
static int fault_of(struct rr_family *f)
{
    pthread_mutex_lock(&f->lock);
    int code = f->fault.code;
    pthread_mutex_unlock(&f->lock);
    return code;
}

/* Nobody moves anything any more, and what a callback starts now is refused. */
static void last_words(struct rr_family *f)
{
    rr_mover_detach(f);
    if (!rr_family_own(f))
        return; /* another thread is still inside a call, which is the caller's mistake */
    if (!fault_of(f))
        atomic_store(&f->told, true); /* there is nothing to tell */
    (void)rr_family_set(f, RR_COMM_CLOSED);
    rr_teams_abort(f);
    rr_requests_give_up(f, RINGRED_EABORTED);
    rr_family_disown(f);
}

int rr_comm_close(ringred_comm *c)
{
    struct rr_family *f = c->family;

    if (f->forks != rr_forks())
        return RINGRED_EFORKED; /* the parent's: left alone */
    pthread_mutex_lock(&f->pool);
    bool alone = f->handles == 1;
    pthread_mutex_unlock(&f->pool);
    if (alone)
        last_words(f);
    else
        finish(c);
    int rc = fault_of(f);
    if (!alone || c != f->first)
        rr_comm_drop(c);
    pthread_mutex_lock(&f->pool);
    bool last = --f->handles == 0;
    pthread_mutex_unlock(&f->pool);
    if (!last)
        return rc; /* the family may be gone: another thread may have destroyed the last one */
    (void)rr_family_set(f, RR_COMM_CLOSED);
    int undelivered = rr_family_free(f);
    return rc ? rc : undelivered;
}
