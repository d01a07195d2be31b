/* SPDX-License-Identifier: Apache-2.0 */
/* What a prediction needs to know of this machine: how fast memory is copied and summed, how long a flag and a
 * message take. Each is the best of several short tries, since whatever else runs here only makes it worse. */
#include "core/paper.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20)
#define TRY_NS 6000000 /* for each figure; there are five */
#define CHUNK ((size_t)64 << 10)
#define SMALL 64
#define ROUNDS 200

/* ---- memory ---- */

static double rate_of_copy(char *to, const char *from, int64_t until)
{
    double best = 0;

    do {
        int64_t since = rr_now_ns();
        rr_copy(to, from, BUFFER);
        int64_t took = rr_now_ns() - since;
        double rate = (double)BUFFER / ((double)(took ? took : 1) * 1e-9);
        best = rate > best ? rate : best;
    } while (rr_now_ns() < until);
    return best;
}

static double rate_of_sum(char *to, const char *from, int64_t until)
{
    const void *const source[] = { from, to };
    void *const destination[] = { to };
    const struct rr_reduce sum = { .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .sources = 2, .destinations = 1,
                                   .divisor = 1, .count = BUFFER / 4 };
    rr_reduce_fn kernel = rr_reduce_kernel(sum.type, sum.op);
    double best = 0;

    do {
        int64_t since = rr_now_ns();
        kernel(&sum, destination, source);
        int64_t took = rr_now_ns() - since;
        double rate = 2.0 * (double)BUFFER / ((double)(took ? took : 1) * 1e-9);
        best = rate > best ? rate : best;
    } while (rr_now_ns() < until);
    return best;
}

/* ---- a flag ---- */

struct ball {
    _Alignas(2 * RR_LINE) _Atomic uint32_t there;
    _Alignas(2 * RR_LINE) _Atomic uint32_t back;
};
#define ENOUGH UINT32_MAX

static void wait_for(_Atomic uint32_t *flag, uint32_t not)
{
    for (int turn = 1; atomic_load_explicit(flag, memory_order_acquire) == not; turn++)
        if (turn % 1000 == 0)
            sched_yield();
}

static void *give_back(void *argument)
{
    struct ball *b = argument;

    for (uint32_t seen = 0; seen != ENOUGH;) {
        wait_for(&b->there, seen);
        seen = atomic_load_explicit(&b->there, memory_order_acquire);
        atomic_store_explicit(&b->back, seen, memory_order_release);
    }
    return NULL;
}

static double time_of_flag(int64_t until)
{
    static const int rounds = 50;
    struct ball ball = { 0 };
    sigset_t all, kept;
    pthread_t thread;
    uint32_t n = 0;
    double best = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &kept); /* the thread is none of the program's */
    int rc = pthread_create(&thread, NULL, give_back, &ball);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (rc)
        return 0;
    do {
        int64_t since = rr_now_ns();
        for (int i = 0; i < rounds; i++, n++) {
            atomic_store_explicit(&ball.there, n + 1, memory_order_release);
            wait_for(&ball.back, n);
        }
        double one = (double)(rr_now_ns() - since) * 1e-9 / (2 * rounds);
        best = best == 0 || one < best ? one : best;
    } while (rr_now_ns() < until);
    atomic_store(&ball.there, ENOUGH);
    pthread_join(thread, NULL);
    return best;
}

/* ---- messages over loopback ---- */

/* A connection with both its ends here; 0, or -1 and nothing is open. */
static int connect_to_myself(int *end)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    end[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    end[1] = -1;
    if (door >= 0 && end[0] >= 0 && bind(door, (struct sockaddr *)&at, sizeof at) == 0 && listen(door, 1) == 0 &&
        getsockname(door, (struct sockaddr *)&at, &length) == 0 && connect(end[0], (struct sockaddr *)&at, sizeof at) == 0)
        end[1] = accept4(door, NULL, NULL, SOCK_CLOEXEC);
    if (door >= 0)
        close(door);
    if (end[1] >= 0) {
        (void)setsockopt(end[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* it only gets slower */
        return 0;
    }
    if (end[0] >= 0)
        close(end[0]);
    return -1;
}

/* Seconds to hand over so many bytes, sending and receiving in turn; 0: it failed. */
static double time_of_message(const int *end, char *bytes, size_t count, int64_t until)
{
    double best = 0;

    for (int i = 0; i < ROUNDS && (i == 0 || rr_now_ns() < until); i++) {
        int64_t since = rr_now_ns();
        size_t sent = 0, got = 0;
        while (got < count) {
            ssize_t n = sent < count ? send(end[0], bytes, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
            sent += n > 0 ? (size_t)n : 0;
            n = recv(end[1], bytes, count - got, sent < count || n < 0 ? MSG_DONTWAIT : 0);
            if (n == 0)
                return 0;
            got += n > 0 ? (size_t)n : 0;
            if (rr_now_ns() > until + TRY_NS)
                return 0;
        }
        double one = (double)(rr_now_ns() - since) * 1e-9;
        best = best == 0 || one < best ? one : best;
    }
    return best;
}

static void measure_messages(struct rr_figures *f, char *bytes)
{
    struct timeval patience = { .tv_usec = 10000 };
    int end[2];

    if (connect_to_myself(end) < 0)
        return;
    (void)setsockopt(end[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience); /* else a loss could stall us */
    double small = time_of_message(end, bytes, SMALL, rr_now_ns() + TRY_NS);
    double large = time_of_message(end, bytes, CHUNK, rr_now_ns() + TRY_NS);
    f->message_s = small / 2;
    if (large > small)
        f->loop_rate = (double)(CHUNK - SMALL) / (large - small);
    close(end[0]);
    close(end[1]);
}

void rr_figures_measure(struct rr_figures *f)
{
    char *a = rr_alloc_aligned(4096, BUFFER), *b = rr_alloc_aligned(4096, BUFFER);

    *f = (struct rr_figures){ 0 };
    if (a && b) {
        memset(a, 0, BUFFER);
        memset(b, 0, BUFFER);
        f->copy = rate_of_copy(a, b, rr_now_ns() + TRY_NS);
        f->reduce = rate_of_sum(a, b, rr_now_ns() + TRY_NS);
        measure_messages(f, a);
    }
    f->signal_s = time_of_flag(rr_now_ns() + TRY_NS);
    rr_free(a);
    rr_free(b);
}

/* Tiny: everybody publishes and sums. Last: everybody copies in, the last sums, everybody copies out, on as many
 * CPUs as there are. */
double rr_lane_cost(enum rr_lane lane, int ranks, double bytes, const struct rr_machine *m)
{
    double turns = m->cpus > 0 && ranks > m->cpus ? (double)ranks / m->cpus : 1;
    double sum = m->reduce > 0 ? ranks * bytes / m->reduce : 0, copy = m->copy > 0 ? bytes / m->copy : 0;

    return lane == RR_LANE_TINY ? m->signal_s + turns * (copy + sum) : 2 * m->signal_s + sum + 2 * turns * copy;
}
