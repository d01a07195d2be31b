/* SPDX-License-Identifier: Apache-2.0 */
/* The bet of docs/ARCHITECTURE.md: an engine that walks plans is as good as hand-written loops. Three
 * allreduces (direct two-shot over sockets, staged and symmetric in shared memory) run as plans and
 * as the plainest loops over the same sockets, flags and kernels, in turns in one process. The answers
 * of both are checked. Prints the loop's time over the plan's, the median of the rounds. Every round
 * lies at another address, since where caches are tight one address may cost either side a fifth.
 *   bet [--ranks N] [--rounds N] [--floor 0.85] [--from BYTES] */
#include "algo/algo.h"
#include "engine/engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 8
#define STAGE ((size_t)4 << 20)
#define HEAP ((size_t)64 << 20)
#define MOST ((size_t)32 << 20) /* bytes of the largest vector */
#define STRIDE ((size_t)4160)  /* from one round's address to the next */
#define ROUNDS 64
#define SEGMENT ((size_t)384 << 10)

enum how { SOCKETS, STAGED, SYMMETRIC, HOWS };
static const char *const how_names[HOWS] = { "two-shot over sockets", "staged pipeline", "symmetric push" };
static const enum rr_algo algos[HOWS] = { RR_ALGO_TWOSHOT, RR_ALGO_SHM_TWOSHOT, RR_ALGO_SHM_TWOSHOT };

/* What the forked ranks share: the engine's pages, and flags of the loops' own. */
struct area {
    struct rr_host_page host;
    struct rr_page page[RANKS];
    struct flag {
        _Alignas(128) _Atomic uint64_t value;
    } ready[RANKS], numbers_ready[RANKS];
    double numbers[2][RANKS];
};

static int ranks = 2, rounds = 21, me;
static struct area *area;
static char *stages, *heaps; /* [ranks] each, shared */
static int fds[RANKS];
static bool crowded;
static uint64_t turn, number_turn;
static size_t stage_at;
static char *scratch;
static rr_reduce_fn sum;

static void fail(const char *what)
{
    fprintf(stderr, "bet: rank %d: %s (%s)\n", me, what, strerror(errno));
    _exit(1);
}

static void wait_for(_Atomic uint64_t *flag, uint64_t value)
{
    while (atomic_load_explicit(flag, memory_order_acquire) < value)
        if (crowded)
            sched_yield();
        else
            rr_pause();
}

static void meet(void)
{
    atomic_store_explicit(&area->ready[me].value, ++turn, memory_order_release);
    for (int r = 0; r < ranks; r++)
        wait_for(&area->ready[r].value, turn);
}

static double most_of(double mine)
{
    double *slot = area->numbers[number_turn & 1], most = mine;

    slot[me] = mine;
    atomic_store_explicit(&area->numbers_ready[me].value, ++number_turn, memory_order_release);
    for (int r = 0; r < ranks; r++) {
        wait_for(&area->numbers_ready[r].value, number_turn);
        most = slot[r] > most ? slot[r] : most;
    }
    return most;
}

/* ---- the loops ---- */

static size_t part(size_t count, int r)
{
    size_t p = ((count + (size_t)ranks - 1) / (size_t)ranks + 15) & ~(size_t)15;

    return (size_t)r == (size_t)ranks || (size_t)r * p > count ? count : (size_t)r * p;
}

static void add_all(float *const *to, int d, float *const *from, size_t count)
{
    const struct rr_reduce job = { .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .sources = ranks,
                                   .destinations = d, .divisor = 1, .count = count };
    void *destination[RANKS];
    const void *source[RANKS];

    if (!count)
        return;
    for (int i = 0; i < d; i++)
        destination[i] = to[i];
    for (int i = 0; i < ranks; i++)
        source[i] = from[i];
    sum(&job, destination, source);
}

static void loop_symmetric(float *buffer, size_t count)
{
    size_t lo = part(count, me), hi = part(count, me + 1), at = (size_t)((char *)buffer - (heaps + (size_t)me * HEAP));
    float *all[RANKS];

    for (int r = 0; r < ranks; r++)
        all[r] = (float *)(void *)(heaps + (size_t)r * HEAP + at) + lo;
    meet();
    add_all(all, ranks, all, hi - lo);
    meet();
}

static void loop_staged(float *buffer, size_t count)
{
    for (size_t at = 0; at < count; at += SEGMENT / 4) {
        float *user = buffer + at, *from[RANKS], *to[2];
        size_t k = count - at < SEGMENT / 4 ? count - at : SEGMENT / 4, bytes = (k * 4 + 127) & ~(size_t)127;
        size_t lo = part(k, me), hi = part(k, me + 1);
        stage_at = stage_at + bytes > STAGE ? 0 : stage_at;
        float *mine = (float *)(void *)(stages + (size_t)me * STAGE + stage_at);
        rr_copy(mine, user, lo * 4);
        rr_copy(mine + hi, user + hi, (k - hi) * 4);
        meet();
        for (int r = 0; r < ranks; r++)
            from[r] = r == me ? user + lo : (float *)(void *)(stages + (size_t)r * STAGE + stage_at) + lo;
        to[0] = user + lo;
        to[1] = mine + lo;
        add_all(to, 2, from, hi - lo);
        meet();
        for (int r = 0; r < ranks; r++) {
            size_t a = part(k, r), b = part(k, r + 1);
            if (r != me)
                rr_copy(user + a, (float *)(void *)(stages + (size_t)r * STAGE + stage_at) + a, (b - a) * 4);
        }
        stage_at += bytes;
    }
}

struct leg {
    const char *out;
    char *in;
    size_t send, recv, sent, got;
};

static void exchange(struct leg *legs)
{
    for (int left = 1; left;) {
        left = 0;
        for (int r = 0; r < ranks; r++) {
            struct leg *l = &legs[r];
            ssize_t k;
            if (r == me)
                continue;
            if (l->sent < l->send && (k = send(fds[r], l->out + l->sent, l->send - l->sent, MSG_DONTWAIT)) > 0)
                l->sent += (size_t)k;
            if (l->got < l->recv && (k = recv(fds[r], l->in + l->got, l->recv - l->got, MSG_DONTWAIT)) > 0)
                l->got += (size_t)k;
            left |= l->sent < l->send || l->got < l->recv;
        }
        if (left && crowded)
            sched_yield();
    }
}

static void loop_sockets(float *buffer, size_t count)
{
    size_t piece = 65536 * (size_t)ranks; /* elements: 256 KiB for each rank */

    for (size_t at = 0; at < count; at += piece) {
        float *user = buffer + at, *from[RANKS];
        size_t k = count - at < piece ? count - at : piece, lo = part(k, me), hi = part(k, me + 1);
        struct leg legs[RANKS] = { { 0 } };
        for (int r = 0; r < ranks; r++) {
            from[r] = r == me ? user + lo : (float *)(void *)(scratch + (size_t)r * (1 << 20));
            legs[r] = (struct leg){ (char *)(user + part(k, r)), (char *)from[r],
                                    (part(k, r + 1) - part(k, r)) * 4, (hi - lo) * 4, 0, 0 };
        }
        exchange(legs);
        add_all((float *[]){ user + lo }, 1, from, hi - lo);
        for (int r = 0; r < ranks; r++)
            legs[r] = (struct leg){ (char *)(user + lo), (char *)(user + part(k, r)), (hi - lo) * 4,
                                    (part(k, r + 1) - part(k, r)) * 4, 0, 0 };
        exchange(legs);
    }
}

static void (*const loops[HOWS])(float *, size_t) = { loop_sockets, loop_staged, loop_symmetric };

/* ---- the plans ---- */

static struct rr_shared shared;
static struct rr_mate mates[RANKS];
static int16_t everybody[RANKS], hosts[RANKS];
static struct rr_engine engine;
static struct rr_program program[HOWS];
static uint64_t sequence;

static void nothing(struct rr_shared *s)
{
    (void)s;
}

static int mapped(struct rr_shared *s, int peer, uint64_t offset, size_t bytes)
{
    (void)s, (void)peer, (void)offset, (void)bytes;
    return 0;
}

static void engine_init(void)
{
    struct rr_settings settings;
    const char *const system[] = { "tcp_congestion=system", NULL };
    const struct rr_congestion congestion = { "reno", "reno" }; /* as tcp_pair has set it */
    ringred_error why;
    uint32_t most = 0;

    for (int r = 0; r < ranks; r++) {
        mates[r] = (struct rr_mate){ .page = &area->page[r], .stage = stages + (size_t)r * STAGE, .heap = heaps + (size_t)r * HEAP };
        everybody[r] = hosts[r] = (int16_t)r;
    }
    shared = (struct rr_shared){ .host = &area->host, .team = &area->host.team, .mate = mates, .local = everybody, .locals = ranks,
                                 .me = me, .stage_bytes = STAGE, 
                                 .heap_bytes = HEAP, .windows = true, .ring = nothing,
                                 .touch = mapped };
    engine = (struct rr_engine){ .rank = me, .ranks = ranks, .shared = &shared, .scratch_bytes = 8u << 20,
                                 .polls = crowded ? 1 : 100, .step = rr_step_run };
    engine.scratch = rr_alloc_aligned(4096, engine.scratch_bytes);
    if (rr_settings_load(&settings, system, &why) < 0 ||
        rr_tcp_open(ranks, me, fds, 1, &congestion, &settings, NULL, &engine.links, &why) < 0)
        fail(why.text);
    for (int h = 0; h < HOWS; h++) {
        struct rr_plan *plan;
        int16_t one[RANKS] = { 0 };
        struct rr_layout layout = { ranks, h == SOCKETS ? ranks : 1, h == SOCKETS ? hosts : one };
        if (rr_algo_table[algos[h]].build(&layout, me, 0, &plan) < 0)
            fail("no plan");
        program[h] = (struct rr_program){ .plan = plan };
        for (int cut = 0; cut < RR_CUTS; cut++)
            program[h].extent[cut] = rr_alloc(plan->spans, sizeof(struct rr_extent));
        program[h].temp_at = rr_alloc(plan->temps, sizeof(size_t));
        program[h].temp_bytes = rr_alloc(plan->temps, sizeof(size_t));
        most = plan->steps > most ? plan->steps : most;
    }
    engine.done = rr_alloc(most, sizeof *engine.done);
    engine.bases = rr_alloc((size_t)ranks, sizeof *engine.bases);
    engine.send = rr_alloc((size_t)ranks, sizeof *engine.send);
    engine.recv = rr_alloc((size_t)ranks, sizeof *engine.recv);
}

static void plan_run(enum how h, float *buffer, size_t count)
{
    size_t segment = (h == SOCKETS ? 262144 * (size_t)ranks : SEGMENT) / 4;
    struct rr_run run = { .program = &program[h], .in = (char *)buffer, .out = (char *)buffer, .count = count,
                          .element_bytes = 4, .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .divisor = 1, .reduce = sum };
    ringred_error why;
    bool moved;
    int rc;

    run.ask = (struct rr_ask){ .collective = RR_ALLREDUCE, .type = RINGRED_FLOAT32, .op = 1, .count = count,
                               .sequence = ++sequence };
    if (rr_program_fit(&engine, run.program, count, 4, segment) < 0)
        fail("does not fit");
    rr_run_begin(&engine, &run);
    while ((rc = rr_run_advance(&engine, &run, &moved, &why)) == RINGRED_PENDING)
        if (!moved && crowded)
            sched_yield();
    if (rc < 0)
        fail(why.text);
}

/* ---- measuring ---- */

static void call(enum how h, bool plan, float *buffer, size_t count)
{
    if (plan)
        plan_run(h, buffer, count);
    else
        loops[h](buffer, count);
}

static void check(enum how h, bool plan, float *buffer, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buffer[i] = (float)(me + 1 + (int)(i % 7));
    call(h, plan, buffer, count);
    for (size_t i = 0; i < count; i++)
        if (buffer[i] != (float)(ranks * (ranks + 1) / 2 + ranks * (int)(i % 7)))
            fail("a wrong sum");
    memset(buffer, 0, count * 4);
    meet();
}

static double time_of(enum how h, bool plan, float *buffer, size_t count, int calls)
{
    meet();
    int64_t start = rr_now_ns();
    for (int i = 0; i < calls; i++)
        call(h, plan, buffer, count);
    return most_of((double)(rr_now_ns() - start) / calls);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of loop / plan over the rounds. */
static double ratio_at(enum how h, size_t bytes, float *buffer)
{
    size_t count = bytes / 4;
    double ratio[ROUNDS], loop_ns[ROUNDS], plan_ns[ROUNDS], each;
    int calls;

    check(h, false, buffer, count);
    check(h, true, buffer, count);
    each = time_of(h, true, buffer, count, 3);
    calls = (int)(10e6 / each);
    calls = calls < 3 ? 3 : calls > 20000 ? 20000 : calls;
    for (int i = 0; i < rounds; i++) {
        bool first = i & 1;
        float *here = buffer + (size_t)i * (STRIDE / sizeof(float));
        double a = time_of(h, first, here, count, calls), b = time_of(h, !first, here, count, calls);
        loop_ns[i] = first ? b : a;
        plan_ns[i] = first ? a : b;
        ratio[i] = loop_ns[i] / plan_ns[i];
    }
    check(h, false, buffer, count);
    check(h, true, buffer, count);
    qsort(ratio, (size_t)rounds, sizeof *ratio, by_value);
    qsort(loop_ns, (size_t)rounds, sizeof *loop_ns, by_value);
    qsort(plan_ns, (size_t)rounds, sizeof *plan_ns, by_value);
    if (me == 0)
        printf("%-22s %8zu KiB  loop %10.2f us  plan %10.2f us  loop/plan %.2f (%.2f-%.2f)\n", how_names[h],
               bytes >> 10, loop_ns[rounds / 2] / 1e3, plan_ns[rounds / 2] / 1e3, ratio[rounds / 2],
               ratio[rounds / 8], ratio[rounds - 1 - rounds / 8]);
    return ratio[rounds / 2];
}

static int rank_main(double floor, size_t from)
{
    float *private = rr_alloc_aligned(2u << 20, MOST + ROUNDS * STRIDE);
    double least = 1e9;

    scratch = rr_alloc_aligned(4096, (size_t)RANKS << 20);
    sum = rr_reduce_kernel(RINGRED_FLOAT32, RINGRED_SUM);
    engine_init();
    memset(heaps + (size_t)me * HEAP, 0, MOST + ROUNDS * STRIDE);
    meet();
    for (int r = 0; r < ranks; r++) /* map the others' pages before anything is timed */
        for (size_t i = 0; i < MOST + ROUNDS * STRIDE; i += 4096)
            (void)*(volatile char *)(heaps + (size_t)r * HEAP + i);
    for (int h = 0; h < HOWS; h++)
        for (size_t bytes = from; bytes <= MOST; bytes *= 4) {
            float *buffer = h == SYMMETRIC ? (float *)(void *)(heaps + (size_t)me * HEAP) : private;
            double ratio = ratio_at((enum how)h, bytes, buffer);
            least = ratio < least ? ratio : least;
        }
    if (me == 0)
        printf("least loop/plan from %zu bytes: %.2f (%.2f needed)\n", from, least, floor);
    return least < floor;
}

/* ---- set-up ---- */

static void *map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

static void tcp_pair(int pair[2])
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    if (bind(listener, (struct sockaddr *)&at, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &length))
        fail("listen");
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(pair[0], (struct sockaddr *)&at, length))
        fail("connect");
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) {
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(pair[i], IPPROTO_TCP, TCP_CONGESTION, "reno", 4); /* both ways use the same sockets */
    }
}

int main(int argc, char **argv)
{
    double floor = 0.85;
    size_t from = 4096;
    int all[RANKS][RANKS], status, bad = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--ranks"))
            ranks = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--floor"))
            floor = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--from"))
            from = strtoul(argv[i + 1], NULL, 10);
    }
    if (ranks < 2 || ranks > RANKS || rounds < 1 || rounds > ROUNDS)
        return 2;
    crowded = ranks > cpus;
    area = map(sizeof *area);
    stages = map(STAGE * (size_t)ranks);
    heaps = map(HEAP * (size_t)ranks);
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j <= i; j++) {
            int pair[2] = { -1, -1 };
            if (i != j)
                tcp_pair(pair);
            all[i][j] = pair[0];
            all[j][i] = pair[1];
        }
    for (me = ranks - 1; me > 0; me--)
        if (fork() == 0)
            break;
    if (!crowded) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(me, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    memcpy(fds, all[me], sizeof fds);
    bad = rank_main(floor, from);
    if (me)
        _exit(bad);
    while (wait(&status) > 0)
        bad |= status;
    return bad != 0;
}
