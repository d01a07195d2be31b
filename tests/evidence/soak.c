/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: four ranks that make random collectives and suffer random faults, for as long as one likes, never hang, never get a wrong
 * number, and do not grow. Each round is a communicator of another layout; in most of them something goes wrong, and in some those that
 * are left shrink, go on, and take in a new process for the one that was killed. Ranks are processes that live on from round to round.
 *     soak [SECONDS, 180] [SEED] */
#include "calls.h"
#include "job.h"

#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SIZE       4
#define OPERATIONS 24
#define HANG_S     60
#define SETTLED    60      /* rounds after which a process should not grow any more */
#define GROWTH_KB  2048    /* of private memory, which the allocator may keep in pieces */
#define ROOM       ((size_t)(SIZE + 1) * 8 * 70000)

enum fault { NOTHING, KILLED, ABORTED, DISAGREES, LEAVES, STOPPED, LATE, FAULTS };
static const char *const fault_names[] = { "nothing", "killed", "aborted", "disagrees", "leaves", "stopped", "late" };

static const char *const layouts[][4] = {
    { "transport=shm" }, { "transport=tcp" }, { "ranks_per_host=2" }, { "ranks_per_host=2", "tcp_streams=2" },
    { "transport=shm", "progress=thread" }, { "transport=tcp", "progress=thread" }, { "ranks_per_host=3" },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

struct round {
    uint64_t seed;
    const char *const *layout;
    enum fault fault;
    int culprit, at;            /* the operation in which it happens */
};

/* What all processes see. A slot is a rank of each round's first communicator. */
struct board {
    struct round round;
    atomic_int number;          /* of the round; -1: it is over */
    atomic_int done[SIZE];      /* the last round that the slot has ended */
    atomic_int id_of, newcomer_id_of; /* the round that the id is of */
    ringred_unique_id id, newcomer_id;
    _Atomic uint64_t operations, checked;
};
static struct board *board;
static pid_t pid[SIZE];
static struct calls_memory memory; /* of this process; windows are each round's own */

/* ---- what a process holds ---- */

struct held {
    int descriptors, threads, mappings;
    long private_kb;
};

static struct held hold(void)
{
    (void)malloc_trim(0); /* what was freed is not held */
    struct held h = { job_entries("/proc/self/fd"), job_entries("/proc/self/task"), 0, 0 };
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    long kb;

    while (f && fgets(line, sizeof line, f))
        h.mappings++;
    if (f)
        fclose(f);
    f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_Clean: %ld", &kb) == 1 || sscanf(line, "Private_Dirty: %ld", &kb) == 1)
            h.private_kb += kb;
    if (f)
        fclose(f);
    return h;
}

static void check_growth(const struct held *then)
{
    struct held now = hold();

    rank_check_msg(now.descriptors == then->descriptors && now.threads == then->threads && now.mappings <= then->mappings + 8 &&
                       now.private_kb <= then->private_kb + GROWTH_KB,
                   "grew from %d descriptors, %d threads, %d mappings, %ld KiB to %d, %d, %d, %ld", then->descriptors, then->threads,
                   then->mappings, then->private_kb, now.descriptors, now.threads, now.mappings, now.private_kb);
}

/* ---- operations ---- */

/* The nth operation of a round is the same on all ranks. */
static void draw(struct call *c, const struct rank *me, uint64_t seed)
{
    static const int types[] = { RINGRED_INT8, RINGRED_INT32, RINGRED_FLOAT32, RINGRED_FLOAT64, RINGRED_BFLOAT16, RINGRED_UINT64 };
    static const size_t most[] = { 1, 40, 3000, 70000 };
    struct numbers_random r = { seed };

    *c = (struct call){ .kind = (enum calls_kind)numbers_below(&r, CALLS_KINDS), .exact = true };
    c->v = calls_collectives[c->kind].has_v && numbers_below(&r, 4) == 0;
    c->root = (int)numbers_below(&r, (uint64_t)me->size);
    c->count = numbers_below(&r, most[numbers_below(&r, 4)] + 1);
    c->in_place = numbers_below(&r, 3) == 0 && !(c->v && c->kind == CALLS_ALLTOALL);
    c->job = (struct numbers_job){ types[numbers_below(&r, 6)], RINGRED_MAX, me->size, NUMBERS_COUNTING, numbers_next(&r), 0, NULL };
    if (numbers_below(&r, 2))
        c->job.op = c->job.type == RINGRED_INT8 || c->job.type == RINGRED_BFLOAT16 ? RINGRED_MIN : RINGRED_SUM;
}

static int32_t operate(ringred_comm *comm, const struct rank *me, uint64_t seed)
{
    struct numbers_random mine = { seed + 77 + (uint64_t)me->rank };
    struct call c;

    draw(&c, me, seed);
    calls_prepare(&c, &memory, me, &mine);
    int32_t rc = calls_run(comm, &c);
    atomic_fetch_add(&board->operations, 1);
    if (rc == 0) {
        calls_check(&c, &memory, me);
        atomic_fetch_add(&board->checked, 1);
    }
    return rc;
}

/* What the culprit does instead of an operation of all. 0: it goes on with it. */
static int32_t misbehave(ringred_comm *comm, const struct round *r, bool *left)
{
    const struct timespec late = { 0, 700000000 };
    int32_t x[2] = { 0 };

    switch (r->fault) {
    case KILLED:
        (void)kill(getpid(), SIGKILL);
        return 0;
    case STOPPED:
        (void)kill(getpid(), SIGSTOP); /* the parent makes it go on */
        return 0;
    case ABORTED:
        return ringred_comm_abort(comm);
    case DISAGREES: /* no operation of the others is like this */
        return ringred_allreduce(comm, x, x, 2, RINGRED_INT32, RINGRED_BXOR);
    case LEAVES:
        *left = true;
        (void)ringred_comm_destroy(comm); /* it may be broken by then */
        return RINGRED_EPEER;
    case LATE:
        (void)nanosleep(&late, NULL);
        return 0;
    default:
        return 0;
    }
}

/* ---- a round of a slot ---- */

static ringred_comm *make(int slot, int number, const struct round *r)
{
    const char *settings[8] = { "peer_timeout=5", "linger=1", "stage=256K", "heap=16M" };
    ringred_comm *comm = NULL;
    ringred_config config;
    ringred_error why;
    int n = 4;

    for (int i = 0; i < 2 && r->layout[i]; i++)
        settings[n++] = r->layout[i];
    settings[n] = r->fault == LATE ? "timeout=0.3" : "timeout=40";
    ringred_config_init(&config, sizeof config);
    if (slot == 0) {
        rank_check_int(ringred_unique_id_create(&board->id, &why), 0);
        atomic_store(&board->id_of, number);
    }
    while (atomic_load(&board->id_of) < number)
        job_nap_ms(1);
    config.rank = slot;
    config.size = SIZE;
    config.id = &board->id;
    config.settings = settings;
    int32_t rc = ringred_comm_create(&config, &comm, &why);
    rank_check_msg(rc == 0, "create: %d, %s", rc, why.text);
    return comm;
}

static bool is_expected(const struct round *r, int rank, int32_t rc)
{
    if (r->fault == LATE && rank == r->culprit && rc == 0)
        return true; /* the others had sent all that it needed before they gave up */
    switch (r->fault) {
    case NOTHING:
    case STOPPED:
        return rc == 0;
    case KILLED:
    case LEAVES:
        return rc == RINGRED_EPEER;
    case ABORTED:
        return rc == RINGRED_EABORTED;
    case DISAGREES:
        return rc == RINGRED_EMISMATCH;
    default:
        return rc == RINGRED_ETIMEOUT;
    }
}

/* Operations until one fails; the memory that mates may reach is the communicator's own. */
static int32_t go_through(ringred_comm *comm, struct rank *me, const struct round *r, bool faulty, bool *left)
{
    int32_t rc = 0;

    for (int i = 0; rc == 0 && i < OPERATIONS; i++) {
        if (faulty && me->rank == r->culprit && i == r->at)
            rc = misbehave(comm, r, left);
        if (rc == 0)
            rc = operate(comm, me, r->seed + (uint64_t)i);
    }
    return rc ? rc : ringred_barrier(comm); /* not every operation needs every rank */
}

/* The others go on without the one that was killed, and take in whoever takes its place. */
static void recover(ringred_comm *comm, struct rank *me, int number, const struct round *r)
{
    ringred_comm *smaller = NULL, *larger = NULL;
    struct round calm = *r;
    ringred_error why;
    bool left;

    int32_t rc = ringred_comm_shrink(comm, 30 * RINGRED_SECOND, &smaller, NULL, &why);
    rank_check_msg(rc == 0 && ringred_comm_size(smaller) == SIZE - 1, "shrink: %d, %s", rc, why.text);
    me->rank = ringred_comm_rank(smaller);
    me->size = SIZE - 1;
    calm.seed = r->seed * 3;
    rank_check_int(go_through(smaller, me, &calm, false, &left), 0);
    if (me->rank == 0) {
        rank_check_int(ringred_unique_id_create(&board->newcomer_id, &why), 0);
        atomic_store(&board->newcomer_id_of, number);
    }
    rc = ringred_comm_grow(smaller, &board->newcomer_id, SIZE, 30 * RINGRED_SECOND, &larger, &why);
    rank_check_msg(rc == 0, "grow: %d, %s", rc, why.text);
    rank_check_int(ringred_comm_destroy(smaller), 0);
    me->size = SIZE;
    calm.seed = r->seed * 5;
    rank_check_int(go_through(larger, me, &calm, false, &left), 0);
    rank_check_int(ringred_comm_destroy(larger), 0);
}

static void take_part(int slot, int number, const struct round *r)
{
    struct rank me = { .rank = slot, .size = SIZE };
    ringred_comm *comm = make(slot, number, r);
    bool left = false;

    calls_memory_open(&memory, comm, ROOM);
    int32_t rc = go_through(comm, &me, r, true, &left);
    rank_check_msg(is_expected(r, slot, rc), "status %d after rank %d was: %s", rc, r->culprit, fault_names[r->fault]);
    if (r->fault == KILLED)
        recover(comm, &me, number, r);
    if (!left)
        (void)ringred_comm_destroy(comm); /* says how it broke, if it did */
    calls_memory_close(&memory);
}

/* A process that takes the place of one that was killed: its first communicator is the larger one. */
static void take_place(int number, const struct round *r)
{
    struct rank me = { .rank = SIZE - 1, .size = SIZE };
    const char *settings[8] = { "peer_timeout=5", "linger=1", "stage=256K", "heap=16M", "timeout=40" };
    struct round calm = *r;
    ringred_comm *comm = NULL;
    ringred_config config;
    ringred_error why;
    bool left;

    for (int i = 0; i < 2 && r->layout[i]; i++)
        settings[5 + i] = r->layout[i];
    while (atomic_load(&board->newcomer_id_of) < number)
        job_nap_ms(1);
    ringred_config_init(&config, sizeof config);
    config.rank = SIZE - 1;
    config.size = SIZE;
    config.id = &board->newcomer_id;
    config.settings = settings;
    int32_t rc = ringred_comm_create(&config, &comm, &why);
    rank_check_msg(rc == 0, "join: %d, %s", rc, why.text);
    calls_memory_open(&memory, comm, ROOM);
    calm.seed = r->seed * 5;
    rank_check_int(go_through(comm, &me, &calm, false, &left), 0);
    rank_check_int(ringred_comm_destroy(comm), 0);
    calls_memory_close(&memory);
}

static void live(int slot, int first, bool newcomer)
{
    struct held settled = { 0 };

    for (int number = first, rounds = 0;; number++, rounds++) {
        while (atomic_load(&board->number) < number && atomic_load(&board->number) >= 0)
            job_nap_ms(1);
        if (atomic_load(&board->number) < 0)
            break;
        const struct round r = board->round;
        if (newcomer && number == first)
            take_place(number, &r);
        else
            take_part(slot, number, &r);
        if (rounds == SETTLED)
            settled = hold();
        if (rounds > SETTLED)
            check_growth(&settled);
        atomic_store(&board->done[slot], number);
    }
    _exit(0);
}

/* ---- the parent ---- */

static void start(int slot, int first, bool newcomer)
{
    fflush(stdout);
    pid[slot] = fork();
    if (pid[slot] == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        live(slot, first, newcomer);
    }
}

/* Looks after the processes until all have ended the round. 0: fine. */
static int watch(int number, const struct round *r)
{
    int64_t end = job_now_ns() + HANG_S * RINGRED_SECOND;

    for (;;) {
        bool all = true;
        for (int s = 0; s < SIZE; s++) {
            int status = 0;
            pid_t changed = waitpid(pid[s], &status, WNOHANG | WUNTRACED);
            if (changed == pid[s] && WIFSTOPPED(status)) {
                for (int i = 0; i < 200; i++) /* the others wait for it meanwhile */
                    job_nap_ms(1);
                (void)kill(pid[s], SIGCONT);
            } else if (changed == pid[s] && r->fault == KILLED && s == r->culprit && WIFSIGNALED(status)) {
                start(s, number, true);
            } else if (changed == pid[s]) {
                printf("the process of rank %d ended with %#x\n", s, (unsigned)status);
                return 1;
            }
            all = all && atomic_load(&board->done[s]) >= number;
        }
        if (all)
            return 0;
        if (job_now_ns() >= end) {
            printf("it hangs:");
            for (int s = 0; s < SIZE; s++)
                printf(" rank %d %s", s, atomic_load(&board->done[s]) >= number ? "has ended" : "has not");
            printf("\n");
            return 1;
        }
        job_nap_ms(1);
    }
}

static void draw_round(struct round *r, struct numbers_random *random)
{
    *r = (struct round){ .seed = numbers_next(random) >> 8, .layout = layouts[numbers_below(random, LAYOUTS)] };
    r->fault = numbers_below(random, 3) == 0 ? NOTHING : (enum fault)numbers_below(random, FAULTS);
    r->culprit = (int)numbers_below(random, SIZE);
    r->at = (int)numbers_below(random, OPERATIONS);
}

static void end_all(void)
{
    atomic_store(&board->number, -1);
    for (int s = 0; s < SIZE; s++) {
        int64_t end = job_now_ns() + 5 * RINGRED_SECOND;
        while (waitpid(pid[s], NULL, WNOHANG) == 0 && job_now_ns() < end)
            job_nap_ms(1);
        if (kill(pid[s], 0) == 0 && waitpid(pid[s], NULL, WNOHANG) == 0) {
            (void)kill(pid[s], SIGKILL);
            (void)waitpid(pid[s], NULL, 0);
        }
    }
}

int main(int argc, char **argv)
{
    long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 180;
    struct numbers_random random = { argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL) };
    int64_t began = job_now_ns(), end = began + seconds * RINGRED_SECOND;
    int rounds = 0, failed = 0, of[FAULTS] = { 0 };

    printf("seed %llu\n", (unsigned long long)random.state);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    for (int s = 0; s < SIZE; s++)
        start(s, 1, false);
    while (!failed && job_now_ns() < end) {
        draw_round(&board->round, &random);
        atomic_store(&board->number, ++rounds);
        failed = watch(rounds, &board->round);
        of[board->round.fault]++;
    }
    if (failed)
        printf("in round %d: %s %s, rank %d in operation %d was: %s\n", rounds, board->round.layout[0],
               board->round.layout[1] ? board->round.layout[1] : "", board->round.culprit, board->round.at,
               fault_names[board->round.fault]);
    end_all();
    for (int f = 0; f < FAULTS; f++)
        printf("%s%s %d", f ? ", " : "faults: ", fault_names[f], of[f]);
    printf("\n%s: %d rounds in %.0f s, %llu operations, of which %llu were checked\n", failed ? "FAILS" : "holds", rounds,
           (double)(job_now_ns() - began) / 1e9,
           (unsigned long long)board->operations, (unsigned long long)board->checked);
    return failed;
}
