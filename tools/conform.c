/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-conform: does a transport keep what <ringred/transport.h> says, or a team (conform_team.c) what
 * <ringred/team.h> does? Each test forks ranks that use the plug-in's table directly, as the library does; the last
 * ones run collectives over it and compare bits with those over shared memory. See usage(). */
#include "conform.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int conform_limit_s = 60;
const char *conform_name;

static const ringred_transport *by;

/* ---- ranks of one test ---- */

void conform_broken(struct me *m, const char *format, ...)
{
    va_list arguments;

    if (atomic_fetch_add(&m->hall->failed, 1) == 0) {
        va_start(arguments, format);
        vsnprintf(m->hall->text, sizeof m->hall->text, format, arguments);
        va_end(arguments);
    }
    _exit(1);
}

int64_t conform_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * RINGRED_SECOND + t.tv_nsec;
}

void conform_meet(struct me *m)
{
    const int due = ++m->gates * m->ranks;

    atomic_fetch_add(&m->hall->arrived, 1);
    while (atomic_load(&m->hall->arrived) < due && !atomic_load(&m->hall->failed))
        sched_yield();
    if (atomic_load(&m->hall->failed))
        _exit(1);
}

/* ---- the host table, as plain as can be ---- */

static void host_log(void *context, int32_t level, const char *line)
{
    (void)context;
    if (level <= RINGRED_LOG_ERROR)
        fprintf(stderr, "%s\n", line);
}

static int32_t host_fail(ringred_error *why, int32_t code, int32_t rank, int32_t system, const char *text)
{
    if (why) {
        ringred_error_init(why);
        why->code = code;
        why->rank = rank;
        why->system = system;
        snprintf(why->text, sizeof why->text, "%s", text);
    }
    return code;
}

static const char *host_setting(void *context, const char *which)
{
    (void)context;
    return strcmp(which, "transport") == 0 ? conform_name : NULL;
}

static void host_secret(void *context, const char *label, unsigned char secret[32])
{
    (void)context;
    for (size_t i = 0, n = strlen(label); i < 32; i++)
        secret[i] = (unsigned char)(i * 7 + (n ? (unsigned char)label[i % n] : 0));
}

static int32_t host_own(void *context, int32_t fd)
{
    (void)context;
    return fd;
}

static void host_close(void *context, int32_t fd)
{
    (void)context;
    close(fd);
}

static int32_t host_is_interrupted(void *context)
{
    (void)context;
    return 0;
}

void conform_furnish(struct me *m)
{
    m->host = (ringred_host){ .struct_size = sizeof m->host,
                              .rank = m->rank,
                              .ranks = m->ranks,
                              .rails = m->rails,
                              .peer_timeout_ns = 2 * RINGRED_SECOND,
                              .context = m,
                              .log = host_log,
                              .fail = host_fail,
                              .now_ns = conform_now_ns,
                              .setting = host_setting,
                              .secret = host_secret,
                              .own_descriptor = host_own,
                              .close_descriptor = host_close,
                              .is_interrupted = host_is_interrupted };
    for (int r = 0; r < m->ranks; r++)
        m->wanted[r] = r != m->rank;
}

static void open_self(struct me *m)
{
    ringred_error why;

    ringred_error_init(&why);
    MUST(by->open(&m->host, &m->self, &why) == 0, "rank %d: open: %s", m->rank, why.text);
    const int32_t n = by->address(m->self, m->hall->address[m->rank], &why);
    MUST(n >= 0 && n <= RINGRED_ADDRESS_MOST, "rank %d: address returned %d: %s", m->rank, n, n < 0 ? why.text : "");
    m->hall->bytes[m->rank] = n;
}

static int32_t connect_self(struct me *m, int64_t timeout_ns, ringred_error *why)
{
    const void *address[RANKS];

    for (int r = 0; r < m->ranks; r++)
        address[r] = m->hall->address[r];
    ringred_error_init(why);
    return by->connect(m->self, m->wanted, address, m->hall->bytes, conform_now_ns() + timeout_ns, why);
}

static void open_all(struct me *m)
{
    ringred_error why;

    conform_furnish(m);
    open_self(m);
    conform_meet(m);
    MUST(connect_self(m, conform_limit_s * RINGRED_SECOND / 3, &why) == 0, "rank %d: connect: %s", m->rank, why.text);
}

static void rest(void)
{
    sched_yield();
}

static void step(struct me *m)
{
    if (by->progress)
        by->progress(m->self);
    rest();
}

static void close_all(struct me *m)
{
    const int64_t until = conform_now_ns() + conform_limit_s * RINGRED_SECOND / 6;

    for (int peer = 0; peer < m->ranks; peer++)
        for (int rail = 0; m->wanted[peer] && rail < m->rails; rail++)
            by->finish(m->self, peer, rail);
    for (int peer = 0; peer < m->ranks; peer++)
        for (int rail = 0; m->wanted[peer] && rail < m->rails; rail++)
            while (by->drained(m->self, peer, rail) != 0) {
                MUST(conform_now_ns() < until, "rank %d: drained: rank %d does not get what was sent on lane %d",
                     m->rank, peer, rail);
                step(m);
            }
    by->close(m->self, until);
}

/* ---- numbers that both ends know ---- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static unsigned char byte_at(int from, int to, int rail, uint64_t at)
{
    uint64_t s = (uint64_t)(from * 64 + to) * 97 + (uint64_t)rail + (at >> 3) * 0x100000001b3u;

    return (unsigned char)(draw(&s) >> 8 * (at & 7));
}

/* One end of a lane that carries `bytes` each way, in pieces of random lengths. */
struct flow {
    int peer, rail;
    uint64_t bytes, sent, got, random;
    unsigned char out[3][9000];
    size_t length[3], lo; /* pieces that are offered; bytes of them that were taken */
    size_t most;
};

static void prepare(const struct me *m, struct flow *f)
{
    uint64_t at = f->sent;

    f->lo = 0;
    for (int i = 0; i < 3; i++) {
        f->length[i] = draw(&f->random) % (f->most + 1);
        f->length[i] = f->length[i] < f->bytes - at ? f->length[i] : (size_t)(f->bytes - at);
        for (size_t k = 0; k < f->length[i]; k++)
            f->out[i][k] = byte_at(m->rank, f->peer, f->rail, at++);
    }
}

static void flow_send(struct me *m, struct flow *f)
{
    size_t all = f->length[0] + f->length[1] + f->length[2], skip = f->lo;
    ringred_span part[3];
    int parts = 0;
    int32_t system = 0;

    if (f->lo == all) {
        memset(f->out, 0xee, sizeof f->out); /* what was taken is ours again */
        prepare(m, f);
        all = f->length[0] + f->length[1] + f->length[2];
        skip = 0;
    }
    for (int i = 0; i < 3; i++) {
        const size_t k = skip < f->length[i] ? skip : f->length[i];
        skip -= k;
        if (f->length[i] - k || (parts == 0 && i == 2))
            part[parts++] = (ringred_span){ f->out[i] + k, f->length[i] - k };
    }
    if (all == 0)
        return;
    const int64_t k = by->send(m->self, f->peer, f->rail, part, parts, &system);
    MUST(k >= 0, "rank %d: send to rank %d: status %lld, errno %d", m->rank, f->peer, (long long)k, system);
    MUST((uint64_t)k <= all - f->lo, "rank %d: send took %lld of %zu bytes", m->rank, (long long)k, all - f->lo);
    f->lo += (size_t)k;
    f->sent += (uint64_t)k;
}

static void flow_recv(struct me *m, struct flow *f)
{
    unsigned char in[2][7000];
    const size_t a = draw(&f->random) % (f->most + 1) % sizeof in[0], b = 1 + draw(&f->random) % (sizeof in[1] - 1);
    const ringred_span part[2] = { { in[0], a }, { in[1], b } };
    const bool one = a == 0;
    int32_t system = 0;
    const int64_t k = by->recv(m->self, f->peer, f->rail, part + one, 2 - one, &system);

    MUST(k >= 0, "rank %d: recv from rank %d: status %lld, errno %d", m->rank, f->peer, (long long)k, system);
    MUST((uint64_t)k <= a + b, "rank %d: recv gave %lld of %zu bytes", m->rank, (long long)k, a + b);
    for (uint64_t i = 0; i < (uint64_t)k; i++) {
        const unsigned char is = i < a ? in[0][i] : in[1][i - a], due = byte_at(f->peer, m->rank, f->rail, f->got + i);
        MUST(is == due, "rank %d: byte %llu from rank %d on lane %d is %02x, not %02x", m->rank,
             (unsigned long long)(f->got + i), f->peer, f->rail, is, due);
    }
    f->got += (uint64_t)k;
}

static void exchange(struct me *m, uint64_t bytes, size_t most)
{
    struct flow *flow = calloc((size_t)(m->ranks * m->rails), sizeof *flow);
    int n = 0;

    for (int peer = 0; peer < m->ranks; peer++)
        for (int rail = 0; m->wanted[peer] && rail < m->rails; rail++, n++) {
            flow[n].peer = peer;
            flow[n].rail = rail;
            flow[n].bytes = bytes;
            flow[n].most = most;
            flow[n].random = (uint64_t)(m->rank * 1000 + peer * 10 + rail);
        }
    for (bool busy = true; busy;) {
        busy = false;
        for (int i = 0; i < n; i++) {
            if (flow[i].sent < bytes)
                flow_send(m, &flow[i]);
            if (flow[i].got < bytes)
                flow_recv(m, &flow[i]);
            busy = busy || flow[i].sent < bytes || flow[i].got < bytes;
        }
        step(m);
    }
    free(flow);
}

/* ---- the tests ---- */

static void lanes_keep_order_and_bytes(struct me *m)
{
    open_all(m);
    exchange(m, 300000, 8000);
    conform_meet(m);
    close_all(m);
}

static void small_pieces_arrive(struct me *m)
{
    open_all(m);
    exchange(m, 3000, 9);
    conform_meet(m);
    close_all(m);
}

static void only_lanes_that_are_wanted_are_made(struct me *m)
{
    ringred_error why;

    conform_furnish(m);
    for (int r = 0; r < m->ranks; r++)
        m->wanted[r] = r != m->rank && (r + m->rank) % 2 == 1;
    open_self(m);
    conform_meet(m);
    MUST(connect_self(m, conform_limit_s * RINGRED_SECOND / 3, &why) == 0, "rank %d: connect: %s", m->rank, why.text);
    exchange(m, 5000, 1000);
    conform_meet(m);
    close_all(m);
}

/* Both ends send much at once, from one piece of memory: neither may wait for the other. */
static void large_pieces_go_both_ways(struct me *m)
{
    const size_t bytes = (size_t)24 << 20;
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    size_t sent = 0, got = 0;
    const int peer = m->rank ^ 1;

    open_all(m);
    for (size_t i = 0; i < bytes; i += 509)
        out[i] = (unsigned char)(i / 509 + (size_t)m->rank);
    while (sent < bytes || got < bytes) {
        const ringred_span from = { out + sent, bytes - sent }, to = { in + got, bytes - got };
        int32_t system = 0;
        const int64_t k = sent < bytes ? by->send(m->self, peer, 0, &from, 1, &system) : 0;
        const int64_t n = got < bytes ? by->recv(m->self, peer, 0, &to, 1, &system) : 0;
        MUST(k >= 0 && n >= 0, "rank %d: status %lld of send, %lld of recv, errno %d", m->rank, (long long)k, (long long)n,
             system);
        sent += (size_t)k;
        got += (size_t)n;
        step(m);
    }
    for (size_t i = 0; i < bytes; i += 509)
        MUST(in[i] == (unsigned char)(i / 509 + (size_t)peer), "rank %d: byte %zu of a large piece is wrong", m->rank, i);
    conform_meet(m);
    close_all(m);
    free(out);
    free(in);
}

static void a_rank_that_does_not_read_holds_up_nobody(struct me *m)
{
    static unsigned char out[1 << 16];
    const ringred_span part = { out, sizeof out };
    int32_t system = 0;

    open_all(m);
    if (m->rank == 1) { /* fills its lane to rank 0, which does not look */
        const int64_t until = conform_now_ns() + RINGRED_SECOND / 5;
        for (size_t sum = 0; sum < (size_t)64 << 20 && conform_now_ns() < until;) {
            const int64_t k = by->send(m->self, 0, 0, &part, 1, &system);
            MUST(k >= 0, "rank 1: send: status %lld, errno %d", (long long)k, system);
            sum += (size_t)k;
            if (k == 0)
                step(m);
        }
    }
    conform_meet(m);
    m->wanted[m->rank < 2 ? 1 - m->rank : 0] = 0;
    if (m->rank >= 2)
        m->wanted[0] = m->wanted[1] = 1;
    exchange(m, 20000, 3000);
    conform_meet(m);
    by->close(m->self, 0); /* with bytes on their way */
}

/* Asleep in the set; what comes must wake, also what progress takes in between. */
static void take_or_sleep(struct me *m, int set, int peer, size_t want, int turns)
{
    unsigned char in[256];
    size_t got = 0;

    while (got < want) {
        const ringred_span part = { in, want - got };
        struct epoll_event event;
        int32_t system = 0;
        if (by->progress)
            by->progress(m->self);
        const int again = by->arm ? by->arm(m->self) : 0;
        const int64_t k = by->recv(m->self, peer, 0, &part, 1, &system);
        MUST(k >= 0, "rank %d: recv: status %lld, errno %d", m->rank, (long long)k, system);
        got += (size_t)k;
        if (k > 0 || again)
            continue;
        atomic_store(&m->hall->flag[m->rank], 1);
        for (int turn = 0; turn < turns; turn++)
            step(m);
        MUST(epoll_wait(set, &event, 1, conform_limit_s * 1000 / 6) == 1,
             "rank %d slept %d s in the set of watch: bytes of rank %d did not wake it", m->rank, conform_limit_s / 6,
             peer);
    }
}

static void sleepers_are_woken(struct me *m)
{
    const int set = epoll_create1(EPOLL_CLOEXEC), peer = m->rank ^ 1;
    ringred_error why;

    open_all(m);
    MUST(set >= 0 && by->watch(m->self, set, &why) == 0, "rank %d: watch: %s", m->rank, why.text);
    for (int round = 0; round < 200; round++) {
        const unsigned char word[3] = { 1, 2, 3 };
        if ((round + m->rank) % 2) {
            take_or_sleep(m, set, peer, sizeof word, round % 2 ? 0 : 200);
            continue;
        }
        while (round % 3 == 0 && !atomic_load(&m->hall->flag[peer]) && !atomic_load(&m->hall->failed))
            rest(); /* sometimes it sleeps before we send */
        atomic_store(&m->hall->flag[peer], 0);
        for (size_t sent = 0; sent < sizeof word;) {
            const ringred_span part = { (void *)(uintptr_t)(word + sent), sizeof word - sent };
            int32_t system = 0;
            const int64_t k = by->send(m->self, peer, 0, &part, 1, &system);
            MUST(k >= 0, "rank %d: send: status %lld, errno %d", m->rank, (long long)k, system);
            sent += (size_t)k;
            if (k == 0)
                step(m);
        }
        if (round == 100)
            atomic_store(&m->hall->flag[peer], 0);
    }
    conform_meet(m);
    close_all(m);
    close(set);
}

/* Reads to the end; how many bytes there were. */
static uint64_t read_out(struct me *m, int peer, int64_t timeout_ns, int32_t *system)
{
    const int64_t until = conform_now_ns() + timeout_ns;
    uint64_t sum = 0;

    for (;;) {
        unsigned char in[4096];
        const ringred_span part = { in, sizeof in };
        const int64_t k = by->recv(m->self, peer, 0, &part, 1, system);
        MUST(k >= 0 || k == RINGRED_EPEER, "rank %d: recv: status %lld", m->rank, (long long)k);
        if (k < 0)
            return sum;
        sum += (uint64_t)k;
        MUST(k > 0 || conform_now_ns() < until, "rank %d: the end of the lane of rank %d did not come", m->rank, peer);
        if (k == 0)
            step(m);
    }
}

static void finish_comes_behind_all_bytes(struct me *m)
{
    const int peer = m->rank ^ 1;
    int32_t system = 99;

    open_all(m);
    if (m->rank % 2 == 0) { /* the odd one finishes, and still reads */
        MUST(read_out(m, peer, conform_limit_s * RINGRED_SECOND / 3, &system) == 200000,
             "rank %d: bytes before the end were lost", m->rank);
        MUST(system == 0, "rank %d: a peer that finished is reported with errno %d instead of 0", m->rank, system);
    }
    struct flow f = { .peer = peer, .bytes = 200000, .most = 8000, .random = 5 };
    while (m->rank % 2 && f.sent < f.bytes) {
        flow_send(m, &f);
        step(m);
    }
    if (m->rank % 2)
        by->finish(m->self, peer, 0);
    f.sent = 0;
    f.lo = f.length[0] = f.length[1] = f.length[2] = 0;
    f.bytes = 50000;
    while (m->rank % 2 ? f.got < f.bytes : f.sent < f.bytes) {
        if (m->rank % 2)
            flow_recv(m, &f);
        else
            flow_send(m, &f);
        step(m);
    }
    conform_meet(m);
    close_all(m);
}

static void reset_breaks_a_lane_for_both(struct me *m)
{
    int32_t system = 0;
    const int peer = m->rank ^ 1;

    open_all(m);
    conform_meet(m);
    if (m->rank % 2)
        by->reset(m->self, peer, 0);
    (void)read_out(m, peer, conform_limit_s * RINGRED_SECOND / 3, &system);
    conform_meet(m);
    by->close(m->self, 0);
}

static void a_dead_peer_is_found(struct me *m)
{
    int32_t system = 0;

    open_all(m);
    conform_meet(m);
    if (m->rank == 1)
        _exit(0); /* without a word */
    if (!by->silence)
        (void)read_out(m, 1, conform_limit_s * RINGRED_SECOND / 3, &system);
    const int64_t until = conform_now_ns() + conform_limit_s * RINGRED_SECOND / 3;
    for (bool found = !by->silence; !found;) { /* the lane breaks, or its silence shows */
        unsigned char in[64];
        const ringred_span part = { in, sizeof in };
        found = by->recv(m->self, 1, 0, &part, 1, &system) < 0 || by->silence(m->self, 1) > m->host.peer_timeout_ns;
        MUST(found || conform_now_ns() < until, "rank %d: rank 1 is dead, which neither recv nor silence told",
             m->rank);
        step(m);
    }
    by->close(m->self, 0);
}

static void a_rank_that_does_not_come_is_named(struct me *m)
{
    ringred_error why;

    conform_furnish(m);
    open_self(m);
    conform_meet(m);
    if (m->rank == m->ranks - 1) { /* it is there, and does not connect */
        conform_meet(m);
        by->close(m->self, 0);
        return;
    }
    const int64_t before = conform_now_ns();
    const int32_t rc = connect_self(m, RINGRED_SECOND / 2, &why);
    /* transports whose lanes need nobody to come may connect; the library's proof finds it then */
    MUST(rc == 0 || rc == RINGRED_ETIMEOUT || rc == RINGRED_EPEER, "rank %d: connect returned %d: %s", m->rank, rc, why.text);
    MUST(conform_now_ns() - before < 5 * RINGRED_SECOND, "rank %d: connect kept its deadline of 0.5 s for %g s",
         m->rank, (double)(conform_now_ns() - before) / 1e9);
    MUST(rc == 0 || why.text[0], "rank %d: connect failed without a sentence", m->rank);
    conform_meet(m);
    by->close(m->self, 0);
}

static int descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

void conform_leave_nothing_open(struct me *m, void (*open_and_use)(struct me *m), void (*close)(struct me *m))
{
    bool inherited[1024];
    int before = 0;

    for (int fd = 0; fd < 1024; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    for (int round = 0; round < 5; round++) {
        if (round == 1)
            before = descriptors();
        open_and_use(m);
        for (int fd = 0; fd < 1024 && round == 0; fd++)
            MUST(inherited[fd] || fcntl(fd, F_GETFD) < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC),
                 "rank %d: descriptor %d is not close-on-exec", m->rank, fd);
        conform_meet(m);
        close(m);
        conform_meet(m);
    }
    MUST(descriptors() <= before, "rank %d: %d descriptors before, %d after opening and closing four times", m->rank,
         before, descriptors());
}

static void open_and_exchange(struct me *m)
{
    open_all(m);
    exchange(m, 100, 50);
}

static void nothing_is_left_open(struct me *m)
{
    conform_leave_nothing_open(m, open_and_exchange, close_all);
}

/* ---- through the library ---- */

ringred_comm *conform_library_open(struct me *m, const char *setting, const char *another)
{
    const char *settings[] = { "init_timeout=20", "timeout=20", setting, another, NULL };
    ringred_config config;
    ringred_comm *comm;
    ringred_error why;

    ringred_error_init(&why);
    if (m->rank == 0)
        MUST(ringred_unique_id_create(&m->hall->id, &why) == 0, "unique id: %s", why.text);
    conform_meet(m);
    ringred_config_init(&config, sizeof config);
    config.rank = m->rank;
    config.size = m->ranks;
    config.id = &m->hall->id;
    config.settings = settings;
    MUST(ringred_comm_create(&config, &comm, &why) == 0, "rank %d: %s: %s", m->rank, setting, why.text);
    return comm;
}

static ringred_comm *library_open(struct me *m, const char *transport)
{
    char setting[64];

    snprintf(setting, sizeof setting, "transport=%s", transport);
    return conform_library_open(m, setting, NULL);
}

void conform_must(struct me *m, ringred_comm *comm, int32_t rc, const char *what)
{
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    MUST(rc == 0, "rank %d: %s: %s", m->rank, what, why.text);
}

#define MOST 70000

static void run_all(struct me *m, ringred_comm *comm, float *result)
{
    static float in[MOST * RANKS];
    static const size_t counts[] = { 1, 1000, MOST };
    ringred_comm *part;

    for (int i = 0; i < MOST * RANKS; i++)
        in[i] = (float)(((uint64_t)i * 7919 + (uint64_t)m->rank * 104729) % 1000003) / 1013.0f;
    for (int c = 0; c < 3; c++) {
        const size_t n = counts[c];
        conform_must(m, comm, ringred_allreduce(comm, in, result, n, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
        result += n;
        conform_must(m, comm, ringred_reduce_scatter(comm, in, result, n, RINGRED_FLOAT32, RINGRED_AVG),
                     "reduce_scatter");
        result += n;
        conform_must(m, comm, ringred_allgather(comm, in, result, n, RINGRED_FLOAT32), "allgather");
        result += n * (size_t)m->ranks;
        conform_must(m, comm, ringred_alltoall(comm, in, result, n, RINGRED_FLOAT32), "alltoall");
        result += n * (size_t)m->ranks;
        conform_must(m, comm, ringred_broadcast(comm, in, result, n, RINGRED_FLOAT32, 1), "broadcast");
        result += n;
    }
    conform_must(m, comm, ringred_comm_split(comm, m->rank % 2, 0, &part), "split");
    conform_must(m, part, ringred_allreduce(part, in, result, 5000, RINGRED_FLOAT32, RINGRED_SUM),
                 "allreduce of a half");
    result += 5000;
    if (m->rank % 2)
        conform_must(m, comm, ringred_send(comm, in, MOST, RINGRED_FLOAT32, m->rank - 1, 7), "send");
    else
        conform_must(m, comm, ringred_recv(comm, result, MOST, RINGRED_FLOAT32, m->rank + 1, 7, NULL), "recv");
    MUST(ringred_comm_destroy(part) == 0, "rank %d: destroying a half failed", m->rank);
}

#define RESULTS ((size_t)3 * MOST * (3 + 2 * RANKS) + 5000 + MOST)

static void the_bits_are_those_of_shared_memory(struct me *m)
{
    float *mine = calloc(RESULTS, sizeof *mine), *theirs = calloc(RESULTS, sizeof *theirs);
    ringred_comm *a = library_open(m, conform_name), *b;

    run_all(m, a, mine);
    MUST(ringred_comm_destroy(a) == 0, "rank %d: destroy failed over %s", m->rank, conform_name);
    b = library_open(m, "shm");
    run_all(m, b, theirs);
    MUST(ringred_comm_destroy(b) == 0, "rank %d: destroy failed over shm", m->rank);
    MUST(memcmp(mine, theirs, RESULTS * sizeof *mine) == 0, "rank %d: results differ from those over shared memory", m->rank);
    free(mine);
    free(theirs);
}

static void the_library_names_a_rank_that_dies(struct me *m)
{
    ringred_comm *comm = library_open(m, conform_name);
    ringred_error why;
    float x = 1;
    int32_t rc = 0;

    conform_must(m, comm, ringred_barrier(comm), "barrier");
    conform_meet(m); /* all are through */
    if (m->rank == 2)
        raise(SIGKILL);
    while (rc == 0)
        rc = ringred_allreduce(comm, &x, &x, 1, RINGRED_FLOAT32, RINGRED_SUM);
    ringred_error_init(&why);
    (void)ringred_comm_error(comm, &why);
    MUST(rc == RINGRED_EPEER && why.rank == 2, "rank %d: rank 2 died; the library got status %d, rank %d: %s", m->rank, rc,
         why.rank, why.text);
    (void)ringred_comm_destroy(comm); /* it tells of the same */
}

static const struct conform_test tests[] = {
    { "lanes keep order and bytes", lanes_keep_order_and_bytes, 4, 1, -1 },
    { "several rails do, too", lanes_keep_order_and_bytes, 3, 3, -1 },
    { "small pieces arrive", small_pieces_arrive, 2, 1, -1 },
    { "only lanes that are wanted are made", only_lanes_that_are_wanted_are_made, 4, 2, -1 },
    { "large pieces go both ways at once", large_pieces_go_both_ways, 2, 1, -1 },
    { "a rank that does not read holds up nobody else", a_rank_that_does_not_read_holds_up_nobody, 4, 1, -1 },
    { "sleepers are woken", sleepers_are_woken, 2, 1, -1 },
    { "finish comes behind all bytes", finish_comes_behind_all_bytes, 2, 1, -1 },
    { "reset breaks a lane for both ends", reset_breaks_a_lane_for_both, 2, 1, -1 },
    { "a dead peer is found", a_dead_peer_is_found, 3, 1, -1 },
    { "connect keeps its deadline", a_rank_that_does_not_come_is_named, 3, 1, -1 },
    { "nothing is left open", nothing_is_left_open, 3, 2, -1 },
    { "collectives give the bits of shared memory", the_bits_are_those_of_shared_memory, 4, 1, -1 },
    { "the library names a rank that dies", the_library_names_a_rank_that_dies, 4, 1, 2 },
};
#define TESTS ((int)(sizeof tests / sizeof tests[0]))

/* ---- running them ---- */

static void rank_main(const struct conform_test *t, int rank, struct hall *hall)
{
    struct me m = { .rank = rank, .ranks = t->ranks, .rails = t->rails, .hall = hall };

    alarm((unsigned)conform_limit_s);
    t->run(&m);
    _exit(0);
}

/* How a rank that ended otherwise than it should did so. */
static void judge(const struct conform_test *t, int rank, int status, struct hall *hall)
{
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (rank == t->dies && WIFSIGNALED(status)))
        return;
    if (atomic_fetch_add(&hall->failed, 1) != 0)
        return;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(hall->text, sizeof hall->text, "rank %d did not end within %d s", rank, conform_limit_s);
    else if (WIFSIGNALED(status))
        snprintf(hall->text, sizeof hall->text, "rank %d ended by signal %d", rank, WTERMSIG(status));
    else
        snprintf(hall->text, sizeof hall->text, "rank %d ended with %d", rank, WEXITSTATUS(status));
}

static bool run(const struct conform_test *t)
{
    struct hall *hall = mmap(NULL, sizeof *hall, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[RANKS];
    int status;

    if (hall == MAP_FAILED) {
        perror("ringred-conform: mmap");
        exit(2);
    }
    fflush(stdout);
    for (int r = 0; r < t->ranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0)
            rank_main(t, r, hall);
        if (pid[r] < 0) {
            perror("ringred-conform: fork");
            exit(2);
        }
    }
    for (int r = 0; r < t->ranks; r++)
        if (waitpid(pid[r], &status, 0) == pid[r])
            judge(t, r, status, hall);
    const bool fine = atomic_load(&hall->failed) == 0;
    printf("%s  %s%s%s\n", fine ? "ok  " : "FAIL", t->text, fine ? "" : ": ", hall->text);
    munmap(hall, sizeof *hall);
    return fine;
}

static int usage(FILE *to, int rc)
{
    fprintf(to, "usage: ringred-conform [--limit S] NAME [TEST...]\n"
                "Tests the plug-in libringred-NAME.so, a transport or a team, which is looked for in the folders of\n"
                "RINGRED_PLUGIN_PATH. TEST: parts of the names of tests; none: all of them. A test may take S seconds\n"
                "(60). Ends with 0 if all pass, 1 if one fails, 2 if there is no such plug-in.\n");
    return rc;
}

static bool load_transport(void *symbol)
{
    ringred_transport_entry entry;

    memcpy(&entry, &symbol, sizeof entry);
    by = entry();
    return by && by->struct_size >= sizeof *by && by->name && strcmp(by->name, conform_name) == 0;
}

/* The plug-in as the library would load it: it must find it itself in the last tests. */
static bool load(bool *team)
{
    const char *path = getenv("RINGRED_PLUGIN_PATH");
    char file[4096], at[4096];
    void *object = NULL;

    snprintf(at, sizeof at, "%s", path && *path ? path : ".");
    for (char *one = strtok(at, ":"); one && !object; one = strtok(NULL, ":")) {
        snprintf(file, sizeof file, "%.3000s/libringred-%.64s.so", one, conform_name);
        if (access(file, R_OK) == 0 && !(object = dlopen(file, RTLD_NOW | RTLD_LOCAL)))
            fprintf(stderr, "ringred-conform: %s\n", dlerror());
    }
    if (!object) {
        fprintf(stderr, "ringred-conform: there is no libringred-%s.so in %s (variable RINGRED_PLUGIN_PATH)\n",
                conform_name, path && *path ? path : ".");
        return false;
    }
    void *lanes = dlsym(object, "ringred_transport_1"), *whole = dlsym(object, "ringred_team_1");
    *team = !lanes;
    if (lanes ? load_transport(lanes) : whole && conform_team_load(whole))
        return true;
    fprintf(stderr,
            "ringred-conform: %s has neither ringred_transport_1 nor ringred_team_1 that returns a whole table named "
            "\"%s\"\n",
            file, conform_name);
    return false;
}

static bool is_wanted(const struct conform_test *t, char **words, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(t->text, words[i]))
            return true;
    return n == 0;
}

int main(int argc, char **argv)
{
    ringred_error why;
    int passed = 0, failed = 0;
    bool team;

    if (argc > 2 && strcmp(argv[1], "--limit") == 0) {
        conform_limit_s = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (argc < 2 || conform_limit_s < 1 || strcmp(argv[1], "--help") == 0)
        return argc < 2 || conform_limit_s < 1 ? usage(stderr, 2) : usage(stdout, 0);
    conform_name = argv[1];
    if (!load(&team))
        return 2;
    ringred_error_init(&why);
    if (team ? conform_team_usable(&why) < 0 : by->usable && by->usable(NULL, &why) < 0) {
        printf("ringred-conform: %s cannot be used here: %s\n", conform_name, why.text);
        return 2;
    }
    for (int i = 0; i < (team ? conform_team_tests_made : TESTS); i++) {
        const struct conform_test *t = team ? &conform_team_tests[i] : &tests[i];
        if (!is_wanted(t, argv + 2, argc - 2))
            continue;
        if (run(t))
            passed++;
        else
            failed++;
    }
    if (!passed && !failed) {
        printf("ringred-conform: there is no test of that name for %s\n", conform_name);
        return 2;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
