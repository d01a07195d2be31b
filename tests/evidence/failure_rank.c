/* SPDX-License-Identifier: Apache-2.0 */
#include "failure.h"

#include "base/base.h" /* for rr_alloc_fail_after alone: all else is the client's */

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SMALL_COUNT ((size_t)16)
#define LARGE_COUNT ((size_t)4 << 20) /* of floats: 16 MiB */
#define TRIES       1000

static int network[2] = { -1, -1 }, names[2] = { -1, -1 }; /* namespaces of the hosts */

/* ---- hosts ---- */

static int open_space(int pid, const char *kind)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, kind);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void failure_enter_hosts(const int *keepers)
{
    for (int h = 0; h < 2; h++) {
        network[h] = open_space(keepers[h], "net");
        names[h] = open_space(keepers[h], "uts");
    }
}

int failure_enter(int host)
{
    if (network[host] < 0)
        return 0;
    return setns(network[host], CLONE_NEWNET) || setns(names[host], CLONE_NEWUTS) ? -1 : 0;
}

int failure_host_of(enum layout layout, int rank)
{
    return layout == SHM ? 0 : layout == TCP ? rank == CULPRIT : rank / 2;
}

/* ---- what a rank sees of itself ---- */

static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * RINGRED_SECOND + t.tv_nsec;
}

/* ---- calls in the three modes ---- */

struct place {
    struct job *job;
    struct notes *notes;
    struct outcome *mine;
    ringred_comm *comm;
    float *data;
    size_t count;
    int rank;
};

static bool is_stop_started(const struct notes *n)
{
    return n->cell.cause == STOP && n->cell.mode != BLOCKING;
}

static int poll_request(ringred_request *request, int64_t end)
{
    int rc;

    do {
        rc = ringred_test(request);
        if (rc == RINGRED_PENDING)
            job_nap_ms(1);
    } while (rc == RINGRED_PENDING && job_now_ns() < end);
    return rc;
}

static int wait_for(const struct place *p, ringred_request *request, int64_t limit_ns)
{
    int rc = p->notes->cell.mode == STARTED ? ringred_wait(request, limit_ns)
                                            : poll_request(request, job_now_ns() + limit_ns);

    return rc == RINGRED_PENDING ? RINGRED_ETIMEOUT : rc;
}

/* A wait that times out leaves its request running: when the stopped rank goes on, it ends well. */
static int outlast(const struct place *p, ringred_request *request, int call)
{
    struct notes *n = p->notes;
    int rc = wait_for(p, request, CALL_TIMEOUT_NS);

    if (rc != RINGRED_ETIMEOUT)
        return rc;
    p->mine->status = rc;
    p->mine->named = -1;
    p->mine->ended_ns = job_now_ns();
    p->mine->cpu_ns = cpu_ns();
    if (p->rank == 0)
        atomic_store(&n->last, call + 3);
    atomic_store(&n->over[p->rank], 1);
    return wait_for(p, request, 10 * RINGRED_SECOND);
}

static int sum(const struct place *p, int call)
{
    ringred_request *request;
    int rc;

    if (p->notes->cell.mode == BLOCKING)
        return ringred_allreduce(p->comm, p->data, p->data, p->count, RINGRED_FLOAT32, RINGRED_AVG);
    rc = ringred_allreduce_start(p->comm, p->data, p->data, p->count, RINGRED_FLOAT32, RINGRED_AVG, &request);
    if (rc < 0)
        return rc;
    if (is_stop_started(p->notes) && p->rank != CULPRIT)
        return outlast(p, request, call);
    return wait_for(p, request, 15 * RINGRED_SECOND);
}

/* ---- noticing ---- */

static void note(const struct place *p, int rc, const ringred_error *why)
{
    struct outcome *o = p->mine;

    o->ended_ns = job_now_ns();
    o->cpu_ns = cpu_ns();
    o->status = rc;
    o->named = why->rank;
    snprintf(o->text, sizeof o->text, "%.150s", why->text);
}

static void note_call(const struct place *p, int rc)
{
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(p->comm, &why);
    note(p, rc, &why);
}

static void be_quiet(const struct place *p)
{
    int64_t before = cpu_ns();

    job_nap_ms(QUIET_MS);
    p->mine->quiet_ns = cpu_ns() - before;
}

/* ---- the moments ---- */

static void *act_when_told(void *of)
{
    struct job *job = of;

    while (!atomic_load(&notes_of(job)->act))
        job_nap_ms(1);
    failure_cause_own(job);
    return NULL;
}

/* In the middle of calls memory ends by a thread's hand; a rank that exits does so between two. */
static void watch(const struct place *p)
{
    pthread_t thread;

    if (p->rank == CULPRIT && p->notes->cell.cause == CGROUP && p->notes->cell.moment != INIT &&
        pthread_create(&thread, NULL, act_when_told, p->job))
        job_fail(p->rank, "no thread");
}

static void exit_if_told(const struct place *p)
{
    if (p->rank == CULPRIT && p->notes->cell.cause == EXIT_EARLY && atomic_load(&p->notes->act))
        failure_cause_own(p->job);
}

/* Asked in calls that set up. */
static int32_t in_init(void *of)
{
    const struct place *p = of;
    struct job *job = p->job;
    struct notes *n = p->notes;

    if (n->cell.moment == SHRINK && n->shrinks[p->rank])
        atomic_store(&n->ready[p->rank], 1);
    if (p->rank == CULPRIT && atomic_load(&n->act) && failure_is_own(n->cell.cause))
        failure_cause_own(job);
    return 0;
}

/* The moment of init: rank 0 has counted this rank, and waits for the late one. */
static void on_log(void *of, int32_t level, const char *line)
{
    const struct place *p = of;

    (void)level;
    if (strstr(line, "has counted this rank"))
        atomic_store(&p->notes->ready[p->rank], 1);
}

static int create(struct place *p, ringred_error *why)
{
    struct job_shared *s = p->job->shared;
    ringred_config config;

    ringred_config_init(&config, sizeof config);
    if (p->rank == 0) {
        if (ringred_unique_id_create(&s->id[0], why) < 0)
            job_fail(p->rank, "%s", why->text);
        atomic_store(&s->id_is_there[0], 1);
    }
    while (!atomic_load(&s->id_is_there[0]))
        job_nap_ms(1);
    config.rank = p->rank;
    config.size = RANKS;
    config.id = &s->id[0];
    config.settings = p->job->settings;
    config.timeout_ns = p->job->init_timeout_ns;
    if (p->notes->cell.moment == INIT) {
        config.log = on_log;
        config.log_context = p;
    }
    config.interrupt = in_init;
    config.interrupt_context = p;
    return ringred_comm_create(&config, &p->comm, why);
}

static void await_moment(const struct place *p)
{
    struct notes *n = p->notes;

    atomic_store(&n->ready[p->rank], 1);
    while (!atomic_load(&n->failed) && p->rank != CULPRIT)
        job_nap_ms(1);
    while (!atomic_load(&n->failed) && !failure_is_own(n->cell.cause))
        job_nap_ms(1);
    while (!atomic_load(&n->act) && failure_is_own(n->cell.cause) && p->rank == CULPRIT)
        job_nap_ms(1);
    while (!atomic_load(&n->failed) && n->cell.cause == CGROUP) /* its thread may be slower than this one, which may end it all */
        job_nap_ms(1);
    exit_if_told(p);
    if (n->cell.cause == NO_MEMORY && p->rank == CULPRIT)
        atomic_store(&n->failed, 1);
}

/* The nth allocation of a collective's first use fails, for every n: nothing has changed each time. */
static int first_use(const struct place *p)
{
    int rc = RINGRED_ENOMEM;

    if (p->rank != CULPRIT)
        return ringred_reduce(p->comm, p->data, p->data, p->count, RINGRED_FLOAT32, RINGRED_AVG, 1);
    for (int nth = 1; rc == RINGRED_ENOMEM && nth < TRIES; nth++) {
        rr_alloc_fail_after(nth, false);
        rc = ringred_reduce(p->comm, p->data, p->data, p->count, RINGRED_FLOAT32, RINGRED_AVG, 1);
        rr_alloc_fail_after(0, false);
    }
    return rc;
}

static void loop(const struct place *p)
{
    struct notes *n = p->notes;
    int rc = 0;

    for (int i = 0; rc == 0 && i <= atomic_load(&n->last); i++) {
        exit_if_told(p);
        p->mine->began_ns = job_now_ns();
        rc = n->cell.cause == NO_MEMORY && i == 3 ? first_use(p) : sum(p, i);
        atomic_fetch_add(&n->calls, p->rank == 0 && rc == 0);
    }
    if (rc != 0 || !atomic_load(&n->over[p->rank])) {
        note_call(p, rc);
        be_quiet(p);
    }
}

static void later(const struct place *p)
{
    int64_t began = job_now_ns();
    float x = 1;

    p->mine->later = p->mine->status;
    if (p->mine->status < 0 && !atomic_load(&p->notes->over[p->rank]))
        p->mine->later = ringred_allreduce(p->comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);
    p->mine->later_ns = job_now_ns() - began;
}

static void destroy(struct place *p)
{
    int64_t began = job_now_ns();

    p->mine->destroyed = ringred_comm_destroy(p->comm);
    p->mine->destroy_ns = job_now_ns() - began;
}

/* With a request that cannot end unless the mode is blocking. */
static void destroy_at_once(struct place *p)
{
    const struct notes *n = p->notes;
    ringred_request *request;
    ringred_error why;

    await_moment(p);
    p->mine->began_ns = job_now_ns();
    if (n->cell.mode != BLOCKING && n->cell.cause != NO_MEMORY && p->rank != CULPRIT &&
        ringred_allreduce_start(p->comm, p->data, p->data, p->count, RINGRED_FLOAT32, RINGRED_SUM, &request) < 0)
        request = NULL; /* it is known already */
    rr_alloc_fail_after(p->rank == CULPRIT && n->cell.cause == NO_MEMORY, true);
    destroy(p);
    rr_alloc_fail_after(0, false);
    ringred_error_init(&why);
    note(p, p->mine->destroyed, &why);
    p->mine->later = p->mine->status;
}

/* All but one look for each other when the culprit fails; then that one comes, too. */
static void shrink(struct place *p)
{
    struct notes *n = p->notes;
    ringred_comm *smaller = NULL;
    ringred_error why;

    while (p->rank == LATE && !atomic_load(&n->failed))
        job_nap_ms(1);
    p->mine->began_ns = job_now_ns();
    if (p->rank == CULPRIT && n->cell.cause == NO_MEMORY) {
        atomic_store(&n->ready[p->rank], 1);
        atomic_store(&n->failed_ns, job_now_ns());
        atomic_store(&n->failed, 1);
        rr_alloc_fail_after(n->cell.nth, false);
    }
    n->shrinks[p->rank] = true;
    int rc = ringred_comm_shrink(p->comm, SHRINK_TIMEOUT_NS, &smaller, NULL, &why);
    rr_alloc_fail_after(0, false);
    note(p, rc, &why);
    be_quiet(p);
    p->mine->later = rc;
    int least = n->cell.layout == TWO_HOSTS && (n->cell.cause == CUT_BOTH || n->cell.cause == CUT_ONE) ? 2 : RANKS - 1;
    if (rc == 0 && (ringred_comm_size(smaller) < least || ringred_barrier(smaller) < 0))
        job_fail(p->rank, "what was made is of %d ranks, or does not work", ringred_comm_size(smaller));
    (void)ringred_comm_destroy(smaller);
}

static void live(struct place *p)
{
    enum moment m = p->notes->cell.moment;

    watch(p);
    if (m == SHRINK) {
        shrink(p);
        (void)ringred_comm_destroy(p->comm); /* says that it is broken */
        return;
    }
    if (m == DESTROY) {
        if (sum(p, 0) < 0)
            job_fail(p->rank, "the first call fails");
        destroy_at_once(p);
        return;
    }
    if (m == IDLE)
        await_moment(p);
    loop(p);
    later(p);
    destroy(p);
}

static int create_at_moment(struct place *p, ringred_error *why)
{
    struct notes *n = p->notes;
    bool init = n->cell.moment == INIT, starved = init && n->cell.cause == NO_MEMORY && p->rank == CULPRIT;
    int rc;

    while (p->rank == CULPRIT && !atomic_load(&n->placed))
        job_nap_ms(1);
    while (p->rank == LATE && init && !atomic_load(&n->failed))
        job_nap_ms(1);
    p->mine->began_ns = job_now_ns();
    if (starved) {
        atomic_store(&n->ready[p->rank], 1);
        atomic_store(&n->failed_ns, job_now_ns());
        atomic_store(&n->failed, 1);
        rr_alloc_fail_after(n->cell.nth, false);
    }
    rc = create(p, why);
    rr_alloc_fail_after(0, false);
    return rc;
}

void failure_rank(struct job *job, int rank)
{
    struct notes *n = notes_of(job);
    struct place p = { .job = job, .notes = n, .mine = &n->of[rank], .rank = rank };
    int descriptors, threads, rc;
    ringred_error why;

    if (failure_enter(failure_host_of(n->cell.layout, rank)))
        job_fail(rank, "the host cannot be entered");
    p.count = n->cell.moment == LARGE ? LARGE_COUNT : SMALL_COUNT;
    p.data = calloc(p.count, sizeof *p.data);
    if (!p.data)
        job_fail(rank, "no memory");
    ringred_error_init(&why);
    descriptors = job_entries("/proc/self/fd");
    threads = job_entries("/proc/self/task");
    rc = create_at_moment(&p, &why);
    if (rc == 0) {
        live(&p);
    } else {
        note(&p, rc, &why);
        p.mine->later = rc;
        be_quiet(&p);
    }
    p.mine->descriptors = job_entries("/proc/self/fd") - descriptors;
    p.mine->threads = job_entries("/proc/self/task") - threads;
    atomic_store(&p.mine->done, 1);
}
