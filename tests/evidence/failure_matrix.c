/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: however and whenever a rank fails, the others learn it in time, with its name, and nothing is left behind.
 * Each cell of {cause x moment x layout x mode} is a job of four ranks, of which the last fails.
 *     failure_matrix [--hosts PID,PID] [WORD..]   all cells, or those whose line has all the words
 *     failure_matrix --sample ..                  some of them; the bounds are five times as wide
 * Two processes that hold network namespaces (failure_matrix.sh makes them) stand for hosts; without them all ranks
 * lie on this one, and no wire can be cut. */
#include "failure.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINGER_NS   RINGRED_SECOND
#define PATIENCE_NS (30 * RINGRED_SECOND)
#define KNOWN_NS    (2 * RINGRED_SECOND) /* where the kernel knows */
#define INIT_WORDS_NS (3 * RINGRED_SECOND) /* for the root's word on who is missing, and for telling the others */
#define LATER_NS    (RINGRED_SECOND / 5)
#define QUIET_NS    10000000 /* CPU in QUIET_MS */

static const char *const causes[] = { "kill", "stop", "cut both ways", "cut one way", "reset", "exit early",
                                      "exit in init", "nth allocation", "memory cgroup" };
static const char *const moments[] = { "idle", "init", "small loop", "16 MiB loop", "shrink", "destroy" };
static const char *const layouts[] = { "shm", "tcp", "2 hosts x 2" };
static const char *const modes[] = { "blocking", "started", "thread" };

static bool hosts, sample;
static int shown, wrong, meaningless;

struct trial {
    struct cell cell;
    struct job job;
    struct notes *notes;
    int64_t cpu_ns[RANKS]; /* of each rank when the failure was caused */
    bool ended[RANKS], hung[RANKS];
    char fault[400];       /* what does not hold; empty: nothing */
};

__attribute__((format(printf, 2, 3))) static void blame(struct trial *t, const char *format, ...)
{
    size_t used = strlen(t->fault);
    va_list arguments;

    va_start(arguments, format);
    if (used + 3 < sizeof t->fault) {
        used += (size_t)snprintf(t->fault + used, sizeof t->fault - used, "%s", used ? "; " : "");
        vsnprintf(t->fault + used, sizeof t->fault - used, format, arguments);
    }
    va_end(arguments);
}

/* ---- running a cell ---- */

static void settings_of(struct job *job, const struct cell *c)
{
    int n = 1;

    job->settings[n++] = "peer_timeout=2";
    job->settings[n++] = "linger=1";
    if (c->mode == BLOCKING && c->cause == STOP)
        job->settings[n++] = "timeout=3.5";
    if (c->moment == INIT)
        job->settings[n++] = "log=trace"; /* tells when the moment has come */
    if (c->mode == THREAD)
        job->settings[n++] = "progress=thread";
    if (c->layout == TWO_HOSTS && !hosts)
        job->settings[n++] = "ranks_per_host=2";
    job->init_timeout_ns = INIT_TIMEOUT_NS;
}

static int64_t cpu_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t = { 0 };

    if (clock_getcpuclockid(pid, &clock) == 0)
        (void)clock_gettime(clock, &t); /* it has just ended: 0 */
    return t.tv_sec * RINGRED_SECOND + t.tv_nsec;
}

static bool is_at_moment(const struct trial *t)
{
    const struct notes *n = t->notes;
    bool all = true;

    if (t->cell.moment == INIT)
        return atomic_load(&n->ready[1]) && atomic_load(&n->ready[CULPRIT]);
    if (t->cell.moment == SHRINK)
        return atomic_load(&n->ready[0]) && atomic_load(&n->ready[1]) && atomic_load(&n->ready[CULPRIT]);
    if (t->cell.moment == SMALL || t->cell.moment == LARGE)
        return atomic_load(&n->calls) >= 3;
    for (int r = 0; r < RANKS; r++)
        all = atomic_load(&n->ready[r]) && all;
    return all;
}

static void reap(struct trial *t)
{
    for (int r = 0; r < RANKS; r++) {
        int status;

        if (t->ended[r] || waitpid(t->job.pid[r], &status, WNOHANG) != t->job.pid[r])
            continue;
        t->ended[r] = true;
        if (r == CULPRIT && t->cell.cause == CGROUP)
            atomic_store(&t->notes->failed_ns, job_now_ns());
        if (*t->job.shared->said[r])
            blame(t, "rank %d: %s", r, t->job.shared->said[r]);
        else if (status && r != CULPRIT)
            blame(t, "rank %d ended with status %#x", r, (unsigned)status);
    }
}

static bool all_ended(const struct trial *t, bool culprit)
{
    for (int r = 0; r < RANKS; r++)
        if (!t->ended[r] && (culprit || r != CULPRIT))
            return false;
    return true;
}

/* The stopped rank goes on when every wait has timed out, or when nobody waits for it any more. */
static bool may_go_on(const struct trial *t)
{
    bool all = true;

    for (int r = 0; r < RANKS; r++)
        all = all && (r == CULPRIT || atomic_load(&t->notes->over[r]));
    return t->cell.cause == STOP && (all || all_ended(t, false));
}

static void await_end(struct trial *t)
{
    int64_t end = job_now_ns() + PATIENCE_NS;

    while (!all_ended(t, true) && job_now_ns() < end) {
        reap(t);
        if (may_go_on(t) && !t->ended[CULPRIT])
            kill(t->job.pid[CULPRIT], SIGCONT);
        job_nap_ms(1);
    }
    for (int r = 0; r < RANKS; r++) {
        if (t->ended[r])
            continue;
        t->hung[r] = true;
        kill(t->job.pid[r], SIGKILL);
        waitpid(t->job.pid[r], NULL, 0);
    }
}

static void fail_at_moment(struct trial *t)
{
    int64_t end = job_now_ns() + PATIENCE_NS;

    if (t->cell.cause == NO_MEMORY && t->cell.moment != DESTROY)
        return; /* the ranks agree when */
    while (!is_at_moment(t) && !atomic_load(&t->job.shared->failed) && job_now_ns() < end)
        job_nap_ms(1);
    if (!is_at_moment(t))
        blame(t, "the moment does not come");
    for (int r = 0; r < RANKS; r++)
        t->cpu_ns[r] = cpu_of(t->job.pid[r]);
    failure_cause(&t->job);
}

static void run(struct trial *t)
{
    job_open(&t->job, RANKS, t->cell.layout == SHM ? "shm" : t->cell.layout == TCP ? "tcp" : "auto");
    settings_of(&t->job, &t->cell);
    t->notes = notes_of(&t->job);
    t->notes->cell = t->cell;
    atomic_store(&t->notes->last, t->cell.cause == NO_MEMORY ? 6 : INT_MAX);
    job_start_bare(&t->job, failure_rank);
    failure_prepare(&t->job);
    fail_at_moment(t);
    await_end(t);
    failure_clean(&t->job);
}

/* ---- judging it ---- */

struct bound {
    bool fine, lost, late, memory, partition; /* statuses that are right: 0, EPEER, ETIMEOUT, ENOMEM, EPARTITION */
    bool names;                    /* EPEER and ENOMEM must name a rank at fault */
    int64_t most_ns, least_ns;
};

static bool is_wire(enum cause c)
{
    return c == CUT_BOTH || c == CUT_ONE || c == RESET;
}

static bool is_silent(enum cause c)
{
    return c == CUT_BOTH || c == CUT_ONE;
}

/* Nobody knows of a rank that ran out of memory before it had reached anybody. */
static struct bound bound_of_init(const struct cell *c, int rank)
{
    struct bound b = { .lost = true, .names = true, .most_ns = KNOWN_NS };

    if (c->cause == STOP || is_silent(c->cause) || c->cause == NO_MEMORY || rank == LATE) {
        b.late = true;
        b.most_ns = INIT_TIMEOUT_NS + INIT_WORDS_NS + RINGRED_SECOND;
    }
    b.lost = c->cause != STOP;
    b.fine = b.memory = c->cause == NO_MEMORY;
    return b;
}

/* Those that are left go on; where the wire is cut, the side with rank 0, which is no minority in either layout. */
static struct bound bound_of_shrink(const struct cell *c, int rank)
{
    struct bound b = { .fine = true, .names = true, .most_ns = KNOWN_NS };

    if (c->cause == STOP) { /* it may have been counted already */
        b.late = true;
        b.most_ns = SHRINK_TIMEOUT_NS + INIT_WORDS_NS + RINGRED_SECOND;
    }
    if (is_silent(c->cause)) {
        b.partition = failure_host_of(c->layout, rank) != 0;
        b.fine = !b.partition;
        b.most_ns = PEER_TIMEOUT_NS + KNOWN_NS;
    }
    b.memory = c->cause == NO_MEMORY;
    return b;
}

static struct bound bound_of(const struct cell *c, int rank)
{
    struct bound b = { .lost = true, .names = true, .most_ns = KNOWN_NS };

    if (c->moment == SHRINK)
        return bound_of_shrink(c, rank);

    if (c->moment == INIT)
        return bound_of_init(c, rank);
    if (c->cause == NO_MEMORY)
        return (struct bound){ .fine = true, .most_ns = PATIENCE_NS };
    if (c->moment == DESTROY)
        return (struct bound){ .fine = true, .lost = true, .most_ns = LINGER_NS + KNOWN_NS };
    if (c->cause == STOP)
        return (struct bound){ .late = true, .most_ns = CALL_TIMEOUT_NS + KNOWN_NS,
                               .least_ns = CALL_TIMEOUT_NS - RINGRED_SECOND / 2 };
    if (is_silent(c->cause))
        b.most_ns = PEER_TIMEOUT_NS + KNOWN_NS;
    return b;
}

/* Where a wire is cut, either side takes the other for lost. Connections are reset one by one, so that who notices
 * first may still tell the other side: it is either end of one. */
static bool is_at_fault(const struct cell *c, int rank, int named)
{
    if (c->cause == RESET)
        return named >= 0;
    if (!is_wire(c->cause))
        return named == CULPRIT;
    return named >= 0 && failure_host_of(c->layout, named) != failure_host_of(c->layout, rank);
}

static bool is_survivor(const struct cell *c, int rank)
{
    return rank != CULPRIT || is_wire(c->cause) || c->cause == NO_MEMORY;
}

static int64_t took_ns(const struct trial *t, int rank)
{
    const struct outcome *o = &t->notes->of[rank];
    int64_t from = atomic_load(&t->notes->failed_ns);

    if ((t->cell.moment == INIT || t->cell.moment == SHRINK) && rank == LATE && o->began_ns > from)
        from = o->began_ns;
    return from && o->ended_ns > from ? o->ended_ns - from : 0;
}

/* That the time is over is nobody's fault, unless a rank never arrived for want of memory. */
static bool must_name(const struct trial *t, int r, const struct bound *b)
{
    int status = t->notes->of[r].status;

    if (r == CULPRIT && !is_wire(t->cell.cause))
        return false;
    return b->names && status < 0 && (status != RINGRED_ETIMEOUT || t->cell.cause == NO_MEMORY);
}

static void judge_call(struct trial *t, int r, const struct bound *b)
{
    const struct outcome *o = &t->notes->of[r];
    int64_t took = took_ns(t, r), most = b->most_ns * (sample ? 5 : 1);
    bool right = (o->status == 0 && b->fine) || (o->status == RINGRED_EPEER && b->lost) ||
                 (o->status == RINGRED_ETIMEOUT && b->late) || (o->status == RINGRED_ENOMEM && b->memory) ||
                 (o->status == RINGRED_EPARTITION && b->partition);

    if (!right)
        blame(t, "rank %d has status %d: %s", r, o->status, o->text);
    if (must_name(t, r, b) && !is_at_fault(&t->cell, r, o->named))
        blame(t, "rank %d names %d: %s", r, o->named, o->text);
    if (took > most || took < b->least_ns)
        blame(t, "rank %d took %.3f s", r, (double)took / 1e9);
}

static int64_t cpu_used(const struct trial *t, int r)
{
    const struct outcome *o = &t->notes->of[r];

    return t->cpu_ns[r] && o->cpu_ns > t->cpu_ns[r] ? o->cpu_ns - t->cpu_ns[r] : 0;
}

static void judge_after(struct trial *t, int r)
{
    const struct outcome *o = &t->notes->of[r];
    int64_t slack = sample ? 5 : 1, cpu = RINGRED_SECOND / (t->cell.moment == LARGE ? 1 : 4) + took_ns(t, r) / 10;

    if (o->later != o->status)
        blame(t, "rank %d: a later call gives %d after %d", r, o->later, o->status);
    if (o->later_ns > LATER_NS * slack)
        blame(t, "rank %d: a later call took %.3f s", r, (double)o->later_ns / 1e9);
    if (o->destroy_ns > (LINGER_NS + KNOWN_NS) * slack)
        blame(t, "rank %d: destroy took %.3f s", r, (double)o->destroy_ns / 1e9);
    if (o->destroyed != 0 && o->destroyed != RINGRED_EPEER && o->destroyed != o->status)
        blame(t, "rank %d: destroy gives %d", r, o->destroyed);
    if (cpu_used(t, r) > cpu * slack || o->quiet_ns > QUIET_NS * slack)
        blame(t, "rank %d used %.3f s of CPU, then %.4f s", r, (double)cpu_used(t, r) / 1e9, (double)o->quiet_ns / 1e9);
    if (o->descriptors || o->threads)
        blame(t, "rank %d has %d descriptors and %d threads more", r, o->descriptors, o->threads);
}

static void judge(struct trial *t, int files)
{
    for (int r = 0; r < RANKS; r++) {
        struct bound b = bound_of(&t->cell, r);

        if (t->hung[r])
            blame(t, "rank %d hangs", r);
        if (t->hung[r] || !is_survivor(&t->cell, r) || *t->job.shared->said[r])
            continue;
        judge_call(t, r, &b);
        judge_after(t, r);
    }
    if (waitpid(-1, NULL, WNOHANG) >= 0)
        blame(t, "a process is left");
    if (job_entries("/dev/shm") != files)
        blame(t, "/dev/shm has %d entries more", job_entries("/dev/shm") - files);
}

/* ---- the table ---- */

static void name_of(const struct cell *c, char *text, size_t room)
{
    snprintf(text, room, "%-14s | %-11s | %-11s | %-8s", causes[c->cause], moments[c->moment], layouts[c->layout],
             modes[c->mode]);
}

static const char *status_word(int status)
{
    return status == 0 ? "0" : status == RINGRED_EPEER ? "EPEER" : status == RINGRED_ETIMEOUT ? "ETIMEOUT"
         : status == RINGRED_ENOMEM ? "ENOMEM" : status == RINGRED_EPARTITION ? "EPARTITION" : "other";
}

static void print(const struct trial *t, const char *name)
{
    int64_t slowest = 0, cpu = 0;

    printf("%s |", name);
    for (int r = 0; r < RANKS; r++) {
        const struct outcome *o = &t->notes->of[r];

        if (!is_survivor(&t->cell, r)) {
            printf(" -");
            continue;
        }
        printf(" %s", status_word(o->status));
        if (o->named >= 0 && o->status < 0)
            printf(":%d", o->named);
        slowest = took_ns(t, r) > slowest ? took_ns(t, r) : slowest;
        cpu = cpu_used(t, r) > cpu ? cpu_used(t, r) : cpu;
    }
    if (t->cell.nth)
        printf(" (allocation %d)", t->cell.nth);
    printf(" | %.3f s | %.3f s | %s%s\n", (double)slowest / 1e9, (double)cpu / 1e9, *t->fault ? "FAILS: " : "holds",
           t->fault);
    fflush(stdout);
}

static void try_cell(const struct cell *c, const char *name)
{
    struct trial t = { .cell = *c };
    int files = job_entries("/dev/shm");

    run(&t);
    judge(&t, files);
    print(&t, name);
    shown++;
    wrong += *t.fault != 0;
    job_done(&t.job);
}

static bool is_wanted(const char *name, char *const *words)
{
    for (; *words; words++)
        if (!strstr(name, *words))
            return false;
    return true;
}

/* Every 7th of those that end at once, every 29th of those that wait. */
static bool is_sampled(const struct cell *c)
{
    int at = (((int)c->cause * MOMENTS + (int)c->moment) * LAYOUTS + (int)c->layout) * MODES + (int)c->mode;

    return at % (c->cause == STOP || is_silent(c->cause) ? 29 : 7) == 0;
}

static void try_if_wanted(const struct cell *c, char *const *words)
{
    const char *cannot = failure_cannot(c, hosts);
    char name[100];

    name_of(c, name, sizeof name);
    if (!is_wanted(name, words) || (sample && (cannot || !is_sampled(c))))
        return;
    if (cannot) {
        printf("%s | %s\n", name, cannot);
        fflush(stdout); /* or a rank that exits says it again */
        meaningless++;
        return;
    }
    if (c->cause != NO_MEMORY || (c->moment != INIT && c->moment != SHRINK)) {
        try_cell(c, name);
        return;
    }
    for (int nth = 1; nth <= (sample ? 1 : 64); nth += 1 + nth / 4) {
        struct cell one = *c;

        one.nth = nth;
        try_cell(&one, name);
    }
}

static void try_all(char *const *words)
{
    struct cell c = { 0 };

    for (int i = 0; i < CAUSES * MOMENTS * LAYOUTS * MODES; i++) {
        c.mode = (enum mode)(i % MODES);
        c.layout = (enum layout)(i / MODES % LAYOUTS);
        c.moment = (enum moment)(i / MODES / LAYOUTS % MOMENTS);
        c.cause = (enum cause)(i / MODES / LAYOUTS / MOMENTS);
        try_if_wanted(&c, words);
    }
}

/* What others leave in /dev/shm meanwhile is not ours: a folder of our own, where that may be had. */
static void own_shm(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("none", "/dev/shm", "tmpfs", 0, NULL); /* else that of all */
}

int main(int argc, char **argv)
{
    int keepers[2], at = 1;

    if (at < argc && strcmp(argv[at], "--sample") == 0) {
        sample = true;
        at++;
    }
    if (at + 1 < argc && strcmp(argv[at], "--hosts") == 0 &&
        sscanf(argv[at + 1], "%d,%d", &keepers[0], &keepers[1]) == 2) {
        failure_enter_hosts(keepers);
        hosts = true;
        at += 2;
    }
    own_shm();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    printf("cause | moment | layout | mode | status of each rank:whom it names | slowest | CPU | \n");
    fflush(stdout);
    try_all(argv + at);
    printf("%s: %d of %d jobs are as they should be; %d cells have no meaning\n", wrong || !shown ? "FAILS" : "holds",
           shown - wrong, shown, meaningless);
    return wrong || !shown ? 1 : 0;
}
