/* SPDX-License-Identifier: Apache-2.0 */
/* Promise: whatever is thrown at where a job listens, while it meets, adds, meets again and ends, its sums are right, nobody
 * joins, and no descriptor is left. What the ranks say to each other is captured as they say it (they call this program's send
 * and sendmsg), and said again at once, to every listener that they have: whole, cut, with bits changed, in another order, one
 * connection's beginning with another's end, as the listener's own words, those of another listener, and garbage; in pieces,
 * with and without an end. One rank at a time is slow somewhere, so that the others listen for long.
 *     live_listener [SECONDS, 5] [SEED] */
#include "job.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE      4
#define ATTACKERS 2
#define GUESTS    40  /* connections that an attacker has at once: two of them have more than a listener keeps */
#define RECORDS   512
#define WORDS     2048
#define PLACES    64
#define TURNS     50  /* of the attackers, while the ranks add */
#define STALL     200 /* and while one of them keeps the others waiting */
#define SENDS     24  /* how late that may be */
#define COUNT     3000
#define PATIENCE  (60 * RINGRED_SECOND)
#define GREETING  64  /* bytes that a listener says to anybody; docs/WIRE.md */
#define WELCOME   48  /* and to whom it believes, with a zero at 10 */

static const char *const layouts[][4] = {
    { "transport=tcp" },
    { "transport=tcp", "tcp_encryption=on", "tcp_streams=2" },
    { "ranks_per_host=2", "tcp_encryption=chacha20" },
    { "ranks_per_host=2", "progress=thread" },
    { "transport=shm" },
};
#define LAYOUTS ((int)(sizeof layouts / sizeof *layouts))

/* What one end of a connection has said; a process writes it while others read, and may find it half changed. */
struct record {
    atomic_size_t bytes;
    unsigned char said[WORDS];
};

/* What all processes see. */
static struct board {
    atomic_int ends, rounds, id_of;
    ringred_unique_id id;
    atomic_int come[2];      /* ranks, so far, at the two places where they wait for each other */
    atomic_int over;         /* the time is */
    atomic_long turns, connections, greeted, believed, words, operations;
    atomic_ulong recorded;
    struct record record[RECORDS];
    atomic_int ports_seen, names_seen; /* most at once */
} *board;

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* Returns when the attackers have gone on for a while. */
static void let_them(long turns, const struct job *job)
{
    long until = atomic_load(&board->turns) + turns;

    while (atomic_load(&board->turns) < until && !atomic_load(&job->shared->failed))
        job_nap_ms(1);
}

/* ---- capturing: in ranks ---- */

static const struct job *records; /* NULL: this is no rank */
static atomic_int sends_left;     /* before it waits, since the others listen meanwhile */

static void real(const char *name, void *function)
{
    void *at = dlsym(RTLD_NEXT, name);

    memcpy(function, &at, sizeof at);
}

/* The record of a socket's words, by the kernel's number for it. */
static struct record *record_of(int fd)
{
    static _Thread_local struct {
        uint64_t cookie;
        struct record *of;
    } known[64];
    uint64_t cookie = 0;
    socklen_t n = sizeof cookie;

    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) < 0)
        return NULL;
    if (known[cookie % 64].cookie != cookie) { /* else it goes on in another record */
        known[cookie % 64].cookie = cookie;
        known[cookie % 64].of = &board->record[atomic_fetch_add(&board->recorded, 1) % RECORDS];
        atomic_store(&known[cookie % 64].of->bytes, 0);
    }
    return known[cookie % 64].of;
}

static void capture(int fd, const struct iovec *part, size_t parts, size_t bytes)
{
    int kept = errno;
    struct record *r = record_of(fd);

    for (size_t i = 0; i < parts && bytes && r; i++) {
        size_t at = atomic_load(&r->bytes), n = part[i].iov_len < bytes ? part[i].iov_len : bytes;
        bytes -= n;
        n = at + n < WORDS ? n : WORDS - (at < WORDS ? at : WORDS);
        memcpy(r->said + at, part[i].iov_base, n);
        atomic_store(&r->bytes, at + n);
    }
    errno = kept;
}

static void dawdle(void)
{
    int kept = errno;

    if (records && atomic_fetch_sub(&sends_left, 1) == 0)
        let_them(STALL, records);
    errno = kept;
}

#define SEEN __attribute__((visibility("default")))

SEEN ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);

    if (!next)
        real("send", &next);
    dawdle();
    ssize_t n = next(fd, from, bytes, flags);
    if (records && n > 0)
        capture(fd, &(struct iovec){ (void *)(uintptr_t)from, bytes }, 1, (size_t)n);
    return n;
}

SEEN ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);

    if (!next)
        real("sendmsg", &next);
    dawdle();
    ssize_t n = next(fd, message, flags);
    if (records && n > 0)
        capture(fd, message->msg_iov, message->msg_iovlen, (size_t)n);
    return n;
}

/* ---- attacking ---- */

struct place {
    struct sockaddr_storage at;
    socklen_t bytes;
};

/* Where the ranks listen now. */
static int find_places(const struct job *job, struct place *place)
{
    int port[PLACES], n = 0, ports = 0;
    char name[PLACES][JOB_NAME];

    for (int r = 0; r < SIZE; r++) {
        int found = job_ports(job->pid[r], port, PLACES);
        for (int i = 0; i < found && n < PLACES; i++, n++) {
            struct sockaddr_in *a = (struct sockaddr_in *)(void *)&place[n].at;
            *a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port[i]),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
            place[n].bytes = sizeof *a;
        }
    }
    ports = n;
    for (int r = 0; r < SIZE; r++) {
        int found = job_names(job->pid[r], name, PLACES);
        for (int i = 0; i < found && n < PLACES; i++, n++) {
            struct sockaddr_un *a = (struct sockaddr_un *)(void *)&place[n].at;
            size_t length = strlen(name[i]);
            *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
            memcpy(a->sun_path + 1, name[i], length); /* abstract: it begins with a zero */
            place[n].bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
        }
    }
    if (ports > atomic_load(&board->ports_seen))
        atomic_store(&board->ports_seen, ports);
    if (n - ports > atomic_load(&board->names_seen))
        atomic_store(&board->names_seen, n - ports);
    return n;
}

/* A connection of an attacker. */
struct guest {
    int fd; /* -1: none */
    struct guest *hears; /* passes on what that one is told; itself: what it is told itself */
    unsigned char words[2 * WORDS], told[GREETING + WELCOME];
    size_t bytes, said, heard;
};

static size_t some_words(unsigned char *to)
{
    const struct record *r = &board->record[draw(RECORDS)];
    size_t n = atomic_load(&r->bytes);

    memcpy(to, r->said, n);
    return n;
}

/* In pieces, of which two change places. */
static size_t reorder(unsigned char *words, size_t n)
{
    unsigned char first[WORDS];
    size_t a = n ? draw((uint32_t)n) : 0, b = n ? draw((uint32_t)n) : 0;
    size_t lo = a < b ? a : b, hi = a < b ? b : a;

    memcpy(first, words, lo);
    memmove(words, words + lo, hi - lo);
    memcpy(words + (hi - lo), first, lo);
    return n;
}

static size_t choose_words(unsigned char *to, uint32_t how)
{
    size_t n = how == 5 ? draw(WORDS) : some_words(to), other;

    switch (how) {
    case 0: /* as it was */
        return n;
    case 1:
        return n ? draw((uint32_t)n) : 0;
    case 2:
        for (uint32_t i = 1 + draw(3); i && n; i--)
            to[draw((uint32_t)n)] ^= (unsigned char)(1u << draw(8));
        return n;
    case 3:
        return reorder(to, n);
    case 4: /* the beginning of one, then all of another */
        n = n ? draw((uint32_t)n) : 0;
        other = some_words(to + n);
        return n + other;
    case 5:
        for (size_t i = 0; i < n; i++)
            to[i] = (unsigned char)draw(256);
        if (draw(2) && n > 10)
            memcpy(to, "ringred\n\2", 10);
        return n;
    default: /* after what it passes on */
        return draw(3) ? 0 : n;
    }
}

static void end(struct guest *g)
{
    static const struct linger at_once = { 1, 0 };

    if (draw(4)) /* else politely */
        (void)setsockopt(g->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(g->fd);
    g->fd = -1;
}

static void begin(struct guest *g, struct guest *all, const struct place *place)
{
    uint32_t how = draw(10) % 8;

    g->fd = socket(place->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (g->fd < 0)
        return;
    if (connect(g->fd, (const struct sockaddr *)&place->at, place->bytes) < 0 && errno != EINPROGRESS) {
        close(g->fd); /* it listens no more, or too many wait */
        g->fd = -1;
        return;
    }
    g->said = g->heard = 0;
    g->hears = how == 6 ? g : how == 7 ? &all[draw(GUESTS)] : NULL;
    g->bytes = choose_words(g->words, how);
    atomic_fetch_add(&board->connections, 1);
}

static void listen_to(struct guest *g)
{
    unsigned char more[256];
    bool whole = g->heard == sizeof g->told;
    ssize_t n = recv(g->fd, whole ? more : g->told + g->heard, whole ? sizeof more : sizeof g->told - g->heard, 0);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != ENOTCONN)) {
        end(g);
        return;
    }
    if (n < 0 || whole)
        return;
    atomic_fetch_add(&board->greeted, g->heard < GREETING && g->heard + (size_t)n >= GREETING);
    g->heard += (size_t)n;
    if (g->heard == sizeof g->told && g->told[GREETING + 10] == 0)
        atomic_fetch_add(&board->believed, 1);
}

/* A piece of what it is to say; often all. */
static void say(struct guest *g)
{
    size_t left = g->bytes - g->said, n = left && draw(2) ? 1 + draw((uint32_t)left) : left;
    ssize_t k;

    if (g->hears && g->hears->heard) { /* first that */
        memmove(g->words + g->hears->heard, g->words, g->bytes);
        memcpy(g->words, g->hears->told, g->hears->heard);
        g->bytes += g->hears->heard;
        g->hears = NULL;
        return;
    }
    if (left && !g->hears) {
        k = send(g->fd, g->words + g->said, n, MSG_NOSIGNAL);
        g->said += k > 0 ? (size_t)k : 0;
        atomic_fetch_add(&board->words, k > 0 ? k : 0);
    } else if (draw(8) == 0) {
        end(g);
    } else if (draw(8) == 0) {
        (void)shutdown(g->fd, SHUT_WR);
    }
}

static void attack(const struct job *job, uint64_t seed)
{
    static struct guest guest[GUESTS];
    struct place place[PLACES];
    int places = 0;

    state = seed;
    for (int i = 0; i < GUESTS; i++)
        guest[i].fd = -1;
    for (long turn = 0; !atomic_load(&board->ends); turn++) {
        struct pollfd none = { .fd = -1 };
        if (turn % 16 == 0)
            places = find_places(job, place);
        for (int i = 0; i < GUESTS; i++) {
            struct guest *g = &guest[i];
            if (g->fd < 0 && places && draw(8) == 0)
                begin(g, guest, &place[draw((uint32_t)places)]);
            if (g->fd >= 0)
                listen_to(g);
            if (g->fd >= 0)
                say(g);
        }
        (void)poll(&none, 1, 1); /* the machine is the ranks', too */
        atomic_fetch_add(&board->turns, 1);
    }
    _exit(0);
}

/* ---- the job ---- */

/* All ranks have come here, by no means of the library's. */
static void meet(const struct job *job, int place, int time)
{
    atomic_fetch_add(&board->come[place], 1);
    while (atomic_load(&board->come[place]) < SIZE * (time + 1) && !atomic_load(&job->shared->failed))
        job_nap_ms(1);
}

/* Until rank 0 has seen the attackers do something, which it tells the others in the sums. */
static void sum_up(ringred_comm *comm, int rank)
{
    static int32_t x[COUNT], sum[COUNT];
    const int32_t size = ringred_comm_size(comm);
    long until = atomic_load(&board->turns) + TURNS;

    if (size != SIZE)
        job_fail(rank, "%d ranks", size);
    for (bool goes_on = true; goes_on; atomic_fetch_add(&board->operations, rank == 0)) {
        for (int i = 1; i < COUNT; i++)
            x[i] = i + rank;
        x[0] = rank == 0 && atomic_load(&board->turns) < until;
        int32_t rc = ringred_allreduce(comm, x, sum, COUNT, RINGRED_INT32, RINGRED_SUM);
        if (rc < 0) {
            ringred_error why;
            ringred_error_init(&why);
            (void)ringred_comm_error(comm, &why);
            job_fail(rank, "allreduce: %s", why.text);
        }
        for (int i = 1; i < COUNT; i++)
            if (sum[i] != SIZE * i + SIZE * (SIZE - 1) / 2)
                job_fail(rank, "somebody has joined: the sum is %d", (int)sum[i]);
        goes_on = sum[0];
    }
}

static ringred_comm *open_comm(int rank, int round)
{
    ringred_config config;
    ringred_comm *comm = NULL;
    ringred_error why;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    if (rank == 0) {
        if (ringred_unique_id_create(&board->id, &why) < 0)
            job_fail(rank, "%s", why.text);
        atomic_store(&board->id_of, round);
    }
    while (atomic_load(&board->id_of) != round)
        job_nap_ms(1);
    config.rank = rank;
    config.size = SIZE;
    config.id = &board->id;
    config.settings = layouts[round % LAYOUTS];
    config.timeout_ns = PATIENCE;
    if (ringred_comm_create(&config, &comm, &why) < 0)
        job_fail(rank, "create: %s", why.text);
    return comm;
}

/* A communicator; then, as after a failure, one of those that are left, who are all. Each time one of them is slow somewhere. */
static void do_round(const struct job *job, int rank, int round)
{
    ringred_comm *comm, *next = NULL;
    ringred_error why;

    ringred_error_init(&why);
    atomic_store(&sends_left, rank == round % SIZE ? (int)draw(SENDS) : -1);
    comm = open_comm(rank, round);
    sum_up(comm, rank);
    meet(job, 0, round);
    atomic_store(&sends_left, rank == (round + 1) % SIZE ? (int)draw(SENDS) : -1);
    if (ringred_comm_shrink(comm, PATIENCE, &next, NULL, &why) < 0)
        job_fail(rank, "shrink: %s", why.text);
    (void)ringred_comm_destroy(comm); /* shrinking has aborted it */
    sum_up(next, rank);
    if (ringred_comm_destroy(next) < 0)
        job_fail(rank, "destroy failed");
}

static void run_rank(struct job *job, int rank)
{
    int held = 0;

    records = job;
    state += (uint64_t)rank;
    for (int round = 0; !atomic_load(&board->ends); round++) {
        do_round(job, rank, round);
        int now = job_entries("/proc/self/fd");
        held = round == 0 ? now : held;
        if (now != held)
            job_fail(rank, "%d descriptors after round %d, %d after the first", now, round, held);
        meet(job, 1, 2 * round);
        if (rank == 0 && round >= LAYOUTS - 1 && atomic_load(&board->over))
            atomic_store(&board->ends, 1);
        meet(job, 1, 2 * round + 1);
        atomic_fetch_add(&board->rounds, rank == 0);
    }
}

/* Until the time is over, or a rank has failed. */
static bool run(struct job *job, int64_t for_ns, uint64_t seed)
{
    pid_t attacker[ATTACKERS];
    int64_t until = job_now_ns() + for_ns;

    job_start_bare(job, run_rank);
    for (int i = 0; i < ATTACKERS; i++) {
        attacker[i] = fork();
        if (attacker[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            attack(job, seed * ATTACKERS + (uint64_t)i);
        }
    }
    while (job_now_ns() < until && !atomic_load(&job->shared->failed))
        job_nap_ms(10);
    atomic_store(&board->over, 1);
    bool fine = job_wait(job, -1);
    atomic_store(&board->ends, 1);
    for (int i = 0; i < ATTACKERS; i++) {
        int status = 1;
        fine = attacker[i] > 0 && waitpid(attacker[i], &status, 0) == attacker[i] && status == 0 && fine;
    }
    return fine;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)getpid();
    struct job job;

    state = seed;
    job_open(&job, SIZE, "auto");
    job.patience_ns = (int64_t)(seconds * (double)RINGRED_SECOND) + 4 * PATIENCE;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    atomic_store(&board->id_of, -1);
    bool fine = run(&job, (int64_t)(seconds * (double)RINGRED_SECOND), seed);
    fine = fine && atomic_load(&board->believed) == 0 && atomic_load(&board->greeted) && atomic_load(&board->ports_seen) && atomic_load(&board->names_seen);
    printf("%s: %ld connections, %ld of them greeted, with %ld bytes of %lu captured ones and garbage, to up to %d ports and "
           "%d names at once: %ld were believed; %ld sums in %d rounds (seed %llu)\n",
           fine ? "holds" : "FAILS", atomic_load(&board->connections), atomic_load(&board->greeted),
           atomic_load(&board->words), atomic_load(&board->recorded),
           atomic_load(&board->ports_seen), atomic_load(&board->names_seen), atomic_load(&board->believed),
           atomic_load(&board->operations), atomic_load(&board->rounds), (unsigned long long)seed);
    return fine ? 0 : 1;
}
