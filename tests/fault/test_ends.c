/* SPDX-License-Identifier: Apache-2.0 */
/* Forks, threads, signals and ends of programs, at any moment and in any call. Tests that are of a report have its
 * number (docs/TESTING.md). */
#include "coll.h"
#include "self.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CULPRIT 1
#define COUNT   ((size_t)1 << 20) /* of floats: 4 MiB */

static const struct coll_setup layouts[] = {
    { 4, { "transport=shm" } },
    { 4, { "transport=tcp" } },
    { 4, { "ranks_per_host=2" } },
    { 4, { "transport=shm", "progress=thread" } },
    { 4, { "ranks_per_host=2", "progress=thread" } },
};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

static float *filled(size_t count, float value)
{
    float *x = malloc(count * sizeof *x);

    rank_check(x != NULL);
    for (size_t i = 0; i < count; i++)
        x[i] = value;
    return x;
}

static void check_all(const float *x, size_t count, float want)
{
    for (size_t i = 0; i < count; i++)
        rank_check_msg(x[i] == want, "element %zu is %g, not %g", i, (double)x[i], (double)want);
}

/* Ends like ringred_comm_destroy does after a failure. */
static void check_lost(ringred_comm *comm, int32_t rc)
{
    ringred_error why;

    ringred_error_init(&why);
    rank_check_int(ringred_comm_error(comm, &why), 0);
    rank_check_msg(rc == RINGRED_EPEER, "%d: %s", rc, why.text);
    rank_check_msg(why.rank == CULPRIT, "rank %d is named: %s", why.rank, why.text);
    rank_check_int(ringred_comm_destroy(comm), RINGRED_EPEER);
}

/* ---- PR-42: forks ---- */

static void op(void *context, const void *left, const void *right, void *result, size_t count)
{
    (void)context;
    (void)left;
    (void)right;
    (void)result;
    (void)count;
}

/* What a child finds: every call refuses. The number of the first one that does not, 0 if there is none. */
static int calls_of_a_child(ringred_comm *comm, ringred_request *request, void *memory)
{
    static float x[64];
    const size_t counts[RANKS_MOST] = { 0 };
    const void *send[1] = { x };
    void *recv[1] = { x }, *more = NULL;
    const int32_t types[1] = { RINGRED_FLOAT32 };
    ringred_request *another = NULL;
    ringred_comm *part = NULL;
    ringred_unique_id id;
    ringred_message message;
    ringred_call call;
    ringred_error why;
    const int32_t F = RINGRED_FLOAT32, S = RINGRED_SUM;

    memset(&id, 0, sizeof id);
    ringred_message_init(&message, sizeof message);
    ringred_call_init(&call, sizeof call, RINGRED_BARRIER);
#define REFUSED(expression)                       \
    do {                                          \
        if ((expression) != RINGRED_EFORKED)      \
            return __LINE__;                      \
    } while (0)
    REFUSED(ringred_wait(request, 0));
    REFUSED(ringred_test(request));
    REFUSED(ringred_poll(comm));
    REFUSED(ringred_allreduce(comm, x, x, 1, F, S));
    REFUSED(ringred_allreduce_start(comm, x, x, 1, F, S, &another));
    REFUSED(ringred_reduce(comm, x, x, 1, F, S, 0));
    REFUSED(ringred_reduce_scatter(comm, x, x, 1, F, S));
    REFUSED(ringred_broadcast(comm, x, x, 1, F, 0));
    REFUSED(ringred_allgather(comm, x + 32, x, 1, F));
    REFUSED(ringred_gather(comm, x + 32, x, 1, F, 0));
    REFUSED(ringred_scatter(comm, x, x + 32, 1, F, 0));
    REFUSED(ringred_alltoall(comm, x, x + 32, 1, F));
    REFUSED(ringred_allgatherv(comm, x, 0, x, counts, NULL, F));
    REFUSED(ringred_reduce_scatterv(comm, x, x, counts, F, S));
    REFUSED(ringred_alltoallv(comm, x, counts, NULL, x, counts, NULL, F));
    REFUSED(ringred_allreduce_list(comm, send, recv, counts, types, 1, S));
    REFUSED(ringred_barrier(comm));
    REFUSED(ringred_barrier_start(comm, &another));
    REFUSED(ringred_run(comm, &call));
    REFUSED(ringred_start(comm, &call, &another));
    REFUSED(ringred_send(comm, x, 1, F, 0, 1));
    REFUSED(ringred_send_start(comm, x, 1, F, 0, 1, &another));
    REFUSED(ringred_recv(comm, x, 1, F, 0, 1, &message));
    REFUSED(ringred_recv_start(comm, x, 1, F, 0, 1, &message, &another));
    REFUSED(ringred_comm_split(comm, 0, 0, &part));
    REFUSED(ringred_comm_group(comm, types, 1, &part));
    REFUSED(ringred_comm_shrink(comm, 0, &part, NULL, &why));
    REFUSED(ringred_comm_grow(comm, &id, 9, 0, &part, &why));
    REFUSED(ringred_op_create(comm, op, NULL, 4, &(int32_t){ 0 }));
    REFUSED(ringred_comm_descriptor(comm));
    REFUSED(ringred_alloc(comm, 4096, &more));
    REFUSED(ringred_free(memory));
    REFUSED(ringred_comm_abort(comm));
    REFUSED(ringred_comm_destroy(comm));
    return 0;
}

static bool ends_well(pid_t pid, const char *what)
{
    int status = -1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    rank_check_msg(WIFEXITED(status), "%s: a child ended with %#x", what, (unsigned)status);
    rank_check_msg(WEXITSTATUS(status) == 0, "%s: line %d", what, WEXITSTATUS(status));
    return true;
}

/* The descriptors above 2 that an exec would hand on. */
static int handed_on(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        int fd = atoi(e->d_name), flags = e->d_name[0] == '.' ? -1 : fcntl(fd, F_GETFD);
        n += flags >= 0 && fd > 2 && !(flags & FD_CLOEXEC);
    }
    if (d)
        closedir(d);
    return n;
}

static void fork_in_the_middle(struct rank *me)
{
    ringred_comm *comm;
    float *x = filled(COUNT, (float)(me->rank + 1));
    int before = handed_on();
    ringred_request *request;
    int line[2];
    void *memory;

    comm = coll_open(me, me->argument);
    coll_must(comm, ringred_alloc(comm, 4096, &memory), "ringred_alloc");
    rank_check(ringred_comm_descriptor(comm) >= 0);
    rank_check_int(handed_on(), before);
    rank_check(pipe2(line, O_CLOEXEC) == 0);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT; i++)
            x[i] = (float)(me->rank + 1);
        coll_must(comm, ringred_allreduce_start(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
        pid_t pid = round == 3 ? 0 : fork();
        if (pid == 0 && round != 3) {
            int line_of = calls_of_a_child(comm, request, memory);
            if (write(line[1], &line_of, sizeof line_of) != sizeof line_of)
                _exit(1);
            if (round == 0)
                _exit(0);
            if (round == 1)
                execlp("true", "true", NULL);
            quick_exit(0);
        }
        if (round == 3)
            rank_check_int(system("exit 0"), 0);
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait beside a fork");
        check_all(x, COUNT, (float)(me->size * (me->size + 1) / 2));
        int refused = 0;
        if (round != 3) {
            rank_check(ends_well(pid, "a fork"));
            rank_check(read(line[0], &refused, sizeof refused) == sizeof refused);
            rank_check_msg(refused == 0, "the call in line %d is not refused in a child", refused);
        }
        coll_must(comm, ringred_barrier(comm), "barrier after a fork");
    }
    rank_check_int(ringred_free(memory), 0);
    free(x);
    close(line[0]);
    close(line[1]);
    coll_close(comm);
}

static void test_PR_42_forks_in_the_middle_of_a_collective_change_nothing(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, fork_in_the_middle, 60);
}

/* Another thread forks workers again and again, which outlive their parent. */
struct workers {
    atomic_bool stop;
    atomic_int made;
};

static int alive[2]; /* a worker lives until nobody holds the other end any more */

static void *make_workers(void *of)
{
    struct workers *w = of;
    char byte;

    while (!atomic_load(&w->stop) && atomic_load(&w->made) < 60) {
        pid_t pid = fork();
        if (pid == 0) {
            close(alive[1]);
            _exit(read(alive[0], &byte, 1) != 0);
        }
        atomic_fetch_add(&w->made, pid > 0);
    }
    return NULL;
}

static void die_after_workers(struct rank *me)
{
    struct workers w = { false, 0 };
    pthread_t thread;

    if (me->rank == CULPRIT) {
        rank_check(pthread_create(&thread, NULL, make_workers, &w) == 0);
        while (!atomic_load(&w.made))
            sched_yield();
    }
    ringred_comm *comm = coll_open(me, me->argument);
    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me);
    if (me->rank == CULPRIT) {
        atomic_store(&w.stop, true);
        pthread_join(thread, NULL);
        (void)kill(getpid(), SIGKILL);
    }
    check_lost(comm, ringred_barrier(comm));
}

static void test_PR_42_workers_forked_while_it_is_made_do_not_hide_a_death(void **state)
{
    (void)state;
    for (int i = 0; i < 15; i++) {
        assert_int_equal(pipe(alive), 0);
        ranks_run(&(struct ranks_plan){ .size = 4, .run = die_after_workers, .may_die = 1u << CULPRIT,
                                        .argument = (void *)(uintptr_t)&layouts[i % 3] });
        close(alive[0]);
        close(alive[1]);
    }
}

/* ---- PR-43: threads ---- */

#define THREADS 8
#define EACH    60

struct crew {
    ringred_comm *comm;
    int size;
    atomic_int *wrong;
    bool own;
};

static void *call_often(void *of)
{
    struct crew *c = of;

    for (int i = 0; i < EACH; i++) {
        int32_t x[1000];
        int32_t rc;
        for (int k = 0; k < 1000; k++)
            x[k] = k;
        do { /* one thread at a time: others try again */
            rc = ringred_allreduce(c->comm, x, x, 1000, RINGRED_INT32, RINGRED_SUM);
            if (rc == RINGRED_EBUSY)
                sched_yield();
        } while (rc == RINGRED_EBUSY && !c->own);
        bool right = rc == 0;
        for (int k = 0; k < 1000; k++)
            right = right && x[k] == k * c->size;
        if (!right)
            atomic_fetch_add(c->wrong, 1);
    }
    return NULL;
}

static void many_threads(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument), *part[THREADS];
    pthread_t thread[THREADS];
    struct crew crew[THREADS];
    atomic_int wrong = 0;

    for (int i = 0; i < THREADS; i++)
        coll_must(comm, ringred_comm_split(comm, 0, 0, &part[i]), "split");
    for (int own = 0; own < 2; own++) {
        for (int i = 0; i < THREADS; i++) {
            crew[i] = (struct crew){ own ? part[i] : comm, me->size, &wrong, own };
            rank_check(pthread_create(&thread[i], NULL, call_often, &crew[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
        rank_check_int(atomic_load(&wrong), 0);
    }
    for (int i = 0; i < THREADS; i++)
        coll_close(part[i]);
    coll_close(comm);
}

static void test_PR_43_eight_threads_share_one_communicator_or_have_their_own(void **state)
{
    static const struct coll_setup setups[] = {
        { 2, { "transport=shm" } }, { 2, { "transport=tcp" } }, { 2, { "transport=shm", "progress=thread" } },
    };

    (void)state;
    coll_each(setups, 3, many_threads, 60);
}

/* ---- PR-44: sends and receives that wait for each other ---- */

static void cross(struct rank *me)
{
    ringred_comm *comm = coll_open(me, me->argument);
    float *mine = filled(2 * COUNT, (float)me->rank), *theirs = filled(2 * COUNT, -1), *sum = filled(COUNT, 1);
    int peer = me->rank ^ 1;

    for (int order = 0; order < 4; order++) { /* who begins with what; or all receives last */
        ringred_request *send, *recv, *all;
        bool first = order == 0 || (order == 2 && me->rank % 2) || order == 3;
        for (size_t i = 0; i < COUNT; i++)
            sum[i] = 1;
        if (!first)
            coll_must(comm, ringred_recv_start(comm, theirs, 2 * COUNT, RINGRED_FLOAT32, peer, order, NULL, &recv), "receive");
        coll_must(comm, ringred_send_start(comm, mine, 2 * COUNT, RINGRED_FLOAT32, peer, order, &send), "send");
        coll_must(comm, ringred_allreduce_start(comm, sum, sum, COUNT, RINGRED_FLOAT32, RINGRED_SUM, &all), "allreduce");
        if (order == 3)
            coll_must(comm, ringred_wait(all, RINGRED_FOREVER), "allreduce before the receive");
        if (first)
            coll_must(comm, ringred_recv_start(comm, theirs, 2 * COUNT, RINGRED_FLOAT32, peer, order, NULL, &recv), "receive");
        coll_must(comm, ringred_wait(send, RINGRED_FOREVER), "send");
        if (order != 3)
            coll_must(comm, ringred_wait(all, RINGRED_FOREVER), "allreduce");
        coll_must(comm, ringred_wait(recv, RINGRED_FOREVER), "receive");
        check_all(theirs, 2 * COUNT, (float)peer);
        check_all(sum, COUNT, (float)me->size);
        memset(theirs, 0xff, 2 * COUNT * sizeof *theirs);
    }
    free(mine);
    free(theirs);
    free(sum);
    coll_close(comm);
}

static void test_PR_44_sends_and_receives_in_any_order_beside_a_collective(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, cross, 60);
}

/* ---- PR-45: signals ---- */

static atomic_int alarms, elsewhere; /* those that another thread than the first has handled */
static pthread_t first_thread;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&alarms, 1);
    if (!pthread_equal(pthread_self(), first_thread))
        atomic_fetch_add(&elsewhere, 1);
}

/* A signal every half millisecond and more, whose handlers interrupt every call of the system. */
static void storm(bool on)
{
    const struct sigaction count = { .sa_handler = count_signal };
    struct itimerval alarm = { { 0, on ? 700 : 0 }, { 0, on ? 700 : 0 } };
    static timer_t timer;
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    struct itimerspec often = { { 0, on ? 1100000 : 0 }, { 0, on ? 1100000 : 0 } };

    first_thread = pthread_self();
    rank_check(sigaction(SIGALRM, &count, NULL) == 0 && sigaction(SIGUSR1, &count, NULL) == 0 && sigaction(SIGCHLD, &count, NULL) == 0);
    if (on)
        rank_check(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0);
    rank_check(setitimer(ITIMER_REAL, &alarm, NULL) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    if (!on)
        timer_delete(timer);
}

static void add(void *context, const void *left, const void *right, void *result, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        int64_t a, b;
        memcpy(&a, (const char *)left + 8 * i, 8);
        memcpy(&b, (const char *)right + 8 * i, 8);
        a += b;
        memcpy((char *)result + 8 * i, &a, 8);
    }
}

static void sums_in_a_storm(struct rank *me, ringred_comm *comm)
{
    int n = ringred_comm_size(comm), r = ringred_comm_rank(comm), sum_of_all = n * (n + 1) / 2;
    float *x = filled(COUNT, (float)(r + 1));
    int64_t y[8] = { r, r, r, r, r, r, r, r };
    int32_t of[RANKS_MOST], to[RANKS_MOST], operator;
    ringred_request *request;
    ringred_message message;
    void *memory;

    (void)me;
    coll_must(comm, ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM), "allreduce");
    check_all(x, COUNT, (float)sum_of_all);
    coll_must(comm, ringred_broadcast(comm, x, x, COUNT, RINGRED_FLOAT32, n - 1), "broadcast");
    coll_must(comm, ringred_reduce_scatter(comm, x, x + COUNT / 2, COUNT / 16, RINGRED_FLOAT32, RINGRED_MAX), "reduce_scatter");
    check_all(x + COUNT / 2, COUNT / 16, (float)sum_of_all);
    for (int i = 0; i < n; i++)
        to[i] = 100 * r + i;
    coll_must(comm, ringred_alltoall(comm, to, of, 1, RINGRED_INT32), "alltoall");
    for (int i = 0; i < n; i++)
        rank_check_int(of[i], 100 * i + r);
    coll_must(comm, ringred_gather(comm, to, of, 1, RINGRED_INT32, 0), "gather");
    coll_must(comm, ringred_scatter(comm, of, to, 1, RINGRED_INT32, 0), "scatter");
    rank_check_int(to[0], 100 * r);
    coll_must(comm, ringred_allgather(comm, to, of, 1, RINGRED_INT32), "allgather");
    coll_must(comm, ringred_op_create(comm, add, NULL, 8, &operator), "op_create");
    coll_must(comm, ringred_allreduce(comm, y, y, 8, RINGRED_BYTES, operator), "an operator of ours");
    rank_check_int(y[7], n * (n - 1) / 2);
    coll_must(comm, ringred_alloc(comm, 1 << 20, &memory), "ringred_alloc");
    memset(memory, 0, 1 << 20);
    coll_must(comm, ringred_allreduce_start(comm, memory, memory, 1 << 18, RINGRED_FLOAT32, RINGRED_SUM, &request), "start");
    int fd = ringred_comm_descriptor(comm);
    rank_check(fd >= 0);
    int32_t rc;
    while ((rc = ringred_poll(comm)) == RINGRED_PENDING && ringred_wait(request, 0) == RINGRED_PENDING)
        (void)poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 1000); /* EINTR, in our own call: look again */
    if (rc == 0)
        coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "wait");
    rank_check(rc >= 0);
    rank_check_int(ringred_free(memory), 0);
    ringred_message_init(&message, sizeof message);
    coll_must(comm, ringred_send_start(comm, x, COUNT, RINGRED_FLOAT32, (r + 1) % n, 3, &request), "send");
    coll_must(comm, ringred_recv(comm, memory = filled(COUNT, 0), COUNT, RINGRED_FLOAT32, (r + n - 1) % n, 3, &message), "receive");
    coll_must(comm, ringred_wait(request, RINGRED_FOREVER), "send");
    rank_check_int(message.source, (r + n - 1) % n);
    check_all((float *)memory + COUNT / 2 + COUNT / 16, 8, (float)sum_of_all);
    free(memory);
    coll_must(comm, ringred_barrier(comm), "barrier");
    free(x);
}

static void grow_in_a_storm(struct rank *me, const struct coll_setup *setup)
{
    const char *settings[COLL_SETTINGS + 1] = { "timeout=20" };
    ringred_comm *comm = NULL, *larger = NULL;
    ringred_unique_id id[2];
    ringred_config config;
    ringred_error why;
    int32_t rc;

    for (int i = 0; i < COLL_SETTINGS - 1 && setup->setting[i]; i++)
        settings[i + 1] = setup->setting[i];
    memset(id, 0, sizeof id);
    if (me->rank == 0)
        rank_check(ringred_unique_id_create(&id[0], &why) == 0 && ringred_unique_id_create(&id[1], &why) == 0);
    ranks_pass(me, id, sizeof id);
    ringred_config_init(&config, sizeof config);
    config.settings = settings;
    config.rank = me->rank;
    config.size = me->size - 1;
    config.id = &id[0];
    if (me->rank < me->size - 1) {
        rc = ringred_comm_create(&config, &comm, &why);
        rank_check_msg(rc == 0, "create: %d, %s", rc, why.text);
        rc = ringred_comm_grow(comm, &id[1], me->size, 20 * RINGRED_SECOND, &larger, &why);
    } else {
        config.size = me->size;
        config.id = &id[1];
        rc = ringred_comm_create(&config, &larger, &why);
    }
    rank_check_msg(rc == 0, "grow: %d, %s", rc, why.text);
    coll_must(larger, ringred_barrier(larger), "barrier of the larger one");
    coll_close(comm);
    coll_close(larger);
}

static void in_a_storm(struct rank *me)
{
    const struct coll_setup *setup = me->argument;
    ringred_comm *comm, *part, *smaller = NULL;
    int32_t list[RANKS_MOST];
    ringred_error why;

    storm(true);
    for (int round = 0; round < 3; round++) {
        comm = coll_open(me, setup);
        for (int i = 0; i < me->size; i++)
            list[i] = me->size - 1 - i;
        sums_in_a_storm(me, comm);
        coll_must(comm, ringred_comm_split(comm, me->rank % 2, 0, &part), "split");
        coll_close(part);
        coll_must(comm, ringred_comm_group(comm, list, me->size, &part), "group");
        coll_must(part, ringred_barrier(part), "barrier of a group");
        pid_t pid = fork(); /* and SIGCHLD */
        if (pid == 0)
            _exit(0);
        rank_check(ends_well(pid, "a child in a storm"));
        ranks_meet(me);
        coll_close(part);
        int32_t rc = ringred_comm_shrink(comm, 20 * RINGRED_SECOND, &smaller, NULL, &why);
        rank_check_msg(rc == 0, "shrink: %d, %s", rc, why.text);
        rank_check_int(ringred_comm_size(smaller), me->size);
        (void)ringred_comm_destroy(comm); /* broken by it */
        coll_must(smaller, ringred_barrier(smaller), "barrier of those that are left");
        coll_close(smaller);
        grow_in_a_storm(me, setup);
    }
    storm(false);
    rank_check_msg(atomic_load(&alarms) > 20, "%d signals only", atomic_load(&alarms));
    rank_check_int(atomic_load(&elsewhere), 0);
}

static void test_PR_45_storms_of_signals_surface_in_no_call(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, in_a_storm, 60);
}

/* Neither handlers nor the mask of a thread change by anything the library does. */
static void keep_handlers(struct rank *me)
{
    struct sigaction before[NSIG], now;
    sigset_t mask, mask_now;

    for (int s = 1; s < NSIG; s++)
        (void)sigaction(s, NULL, &before[s]); /* some are the C library's own */
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    ringred_comm *comm = coll_open(me, me->argument);
    coll_must(comm, ringred_barrier(comm), "barrier");
    for (int closed = 0; closed < 2; closed++) {
        for (int s = 1; s < NSIG; s++)
            if (sigaction(s, NULL, &now) == 0)
                rank_check_msg(now.sa_handler == before[s].sa_handler, "the handler of signal %d has changed", s);
        pthread_sigmask(SIG_SETMASK, NULL, &mask_now);
        rank_check_int(memcmp(&mask, &mask_now, sizeof(long)), 0);
        if (!closed)
            coll_close(comm);
    }
}

static void test_PR_45_handlers_and_masks_stay_the_programs(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, keep_handlers, 30);
}

/* The default action of SIGTERM ends a rank that waits in any call. */
struct term {
    struct coll_setup setup;
    bool made; /* else it waits for the others in create */
};

static void term_in(long us)
{
    struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM };
    const struct itimerspec when = { .it_value = { 0, us * 1000 } };
    timer_t timer;

    rank_check(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0 && timer_settime(timer, 0, &when, NULL) == 0);
}

static void wait_for_nobody(const struct term *t, struct rank *me)
{
    struct rank first = *me;
    ringred_comm *comm = NULL;
    ringred_unique_id id;
    ringred_config wishes;
    ringred_error why;

    ringred_config_init(&wishes, sizeof wishes);
    rank_check(ringred_unique_id_create(&id, &why) == 0);
    wishes.id = &id;
    first.rank = 0;
    term_in(50000);
    int32_t rc = coll_try(&first, &t->setup, &wishes, &comm, &why);
    rank_check_msg(false, "create has ended before the signal: %d, %s", rc, why.text);
}

static void be_ended(struct rank *me)
{
    const struct term *t = me->argument;
    ringred_comm *comm = NULL;
    float x;

    if (!t->made) {
        if (me->rank == CULPRIT)
            wait_for_nobody(t, me);
        return;
    }
    comm = coll_open(me, &t->setup);
    coll_must(comm, ringred_barrier(comm), "barrier");
    ranks_meet(me);
    if (me->rank == CULPRIT) {
        term_in(50000);
        (void)ringred_barrier(comm); /* which nobody else comes to */
        rank_check_msg(false, "the barrier has ended before the signal");
    }
    check_lost(comm, ringred_recv(comm, &x, 1, RINGRED_FLOAT32, CULPRIT, 1, NULL));
}

static void test_PR_45_sigterm_ends_a_rank_that_waits(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int made = 0; made < 2; made++) {
            struct term t = { layouts[i], made };
            ranks_run(&(struct ranks_plan){ .size = 4, .run = be_ended, .argument = &t, .may_die = 1u << CULPRIT, .deadline_s = 20 });
        }
}

/* SIGPIPE ends whoever writes to a connection, or to a log, that nobody reads. */
static void write_to_nobody(struct rank *me)
{
    float *x = filled(COUNT, 1);
    int line[2];

    signal(SIGPIPE, SIG_DFL);
    if (me->rank == 0) { /* its log has no reader */
        rank_check(pipe(line) == 0);
        close(line[0]);
    }
    int kept = dup(STDERR_FILENO);
    if (me->rank == 0)
        rank_check(dup2(line[1], STDERR_FILENO) == STDERR_FILENO && close(line[1]) == 0);
    ringred_comm *comm = coll_open(me, me->argument);
    ranks_meet(me);
    for (int i = 0; i < 3 && me->rank == CULPRIT; i++)
        (void)ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_SUM); /* it is its last act */
    if (me->rank == CULPRIT)
        _exit(0);
    int32_t rc = 0;
    while (rc == 0)
        rc = ringred_allreduce(comm, x, x, COUNT, RINGRED_FLOAT32, RINGRED_MAX);
    rank_check(rc == RINGRED_EPEER || rc == RINGRED_EMISMATCH);
    (void)ringred_comm_destroy(comm); /* broken */
    rank_check(dup2(kept, STDERR_FILENO) == STDERR_FILENO);
    close(kept);
    free(x);
}

static void test_PR_45_sigpipe_never_comes(void **state)
{
    static const struct coll_setup setups[] = {
        { 3, { "transport=tcp", "log=trace" } }, { 4, { "ranks_per_host=2", "log=trace", "progress=thread" } }, { 3, { "transport=shm", "log=trace" } },
    };

    (void)state;
    coll_each(setups, 3, write_to_nobody, 30);
}

/* ---- how a program ends ---- */

enum way { RETURNS, EXITS, LEAVES, SEGFAULTS, ABORTS, THREAD_EXITS, WAYS };

struct ending {
    struct coll_setup setup;
    enum way way;
};

static ringred_comm *kept; /* leak checkers see it there */
static ringred_request *pending;
static float *kept_x;

static void *leave(void *of)
{
    (void)of;
    exit(7);
}

static void end_by(enum way way)
{
    const struct rlimit no_core = { 0, 0 };
    pthread_t thread;

    (void)setrlimit(RLIMIT_CORE, &no_core); /* a file is of no use */
    switch (way) {
    case RETURNS:
    case EXITS:
        exit(7);
    case LEAVES:
        _exit(7);
    case SEGFAULTS:
        signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
        break;
    case ABORTS:
        signal(SIGABRT, SIG_DFL);
        abort();
    default: /* while another thread waits in a call */
        if (pthread_create(&thread, NULL, leave, NULL) == 0)
            (void)ringred_wait(pending, RINGRED_FOREVER);
    }
    pause();
}

static void end_in_flight(struct rank *me)
{
    const struct ending *e = me->argument;
    int status = -1;
    pid_t pid = fork(); /* the rank; this process looks at how it ends */

    if (pid == 0) {
        kept = coll_open(me, &e->setup);
        kept_x = filled(COUNT, 1);
        coll_must(kept, ringred_barrier(kept), "barrier");
        ranks_meet(me);
        if (me->rank == CULPRIT) {
            coll_must(kept, ringred_allreduce_start(kept, kept_x, kept_x, 100, RINGRED_FLOAT32, RINGRED_SUM, &pending), "start");
            end_by(e->way);
        }
        int32_t rc = 0;
        for (int i = 0; rc == 0 && i < 10; i++) /* the first one may have gone well for all others */
            rc = ringred_allreduce(kept, kept_x, kept_x, 100, RINGRED_FLOAT32, RINGRED_SUM);
        check_lost(kept, rc);
        kept = NULL;
        free(kept_x);
        exit(0);
    }
    rank_check(waitpid(pid, &status, 0) == pid);
    if (me->rank != CULPRIT)
        rank_check_int(status, 0);
    else if (e->way == SEGFAULTS || e->way == ABORTS)
        rank_check_msg(WIFSIGNALED(status) && WTERMSIG(status) == (e->way == ABORTS ? SIGABRT : SIGSEGV), "ended with %#x",
                       (unsigned)status);
    else
        rank_check_msg(WIFEXITED(status) && WEXITSTATUS(status) == 7, "ended with %#x", (unsigned)status);
}

static void test_a_program_may_end_in_any_way_in_the_middle(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUTS; i++)
        for (int way = RETURNS; way < WAYS; way++) {
            struct ending e = { layouts[i], (enum way)way };
            ranks_fork(4, end_in_flight, &e);
        }
}

static bool destroys; /* at the end; not while another thread may still be in a call */

static void destroy_late(void)
{
    if (destroys && kept && ringred_comm_destroy(kept) < 0)
        _exit(3);
    kept = NULL;
}

__attribute__((destructor)) static void destroy_last(void)
{
    destroy_late();
}

/* In functions of atexit that were there before the communicator, or in destructors, or never. */
static void at_exit(struct rank *me)
{
    destroys = true;
    if (me->rank == 0)
        rank_check(atexit(destroy_late) == 0);
    kept = coll_open(me, me->argument);
    coll_must(kept, ringred_barrier(kept), "barrier");
    if (me->rank == 1) {
        coll_close(kept);
        kept = NULL;
    }
}

static void test_a_communicator_may_be_destroyed_at_exit(void **state)
{
    (void)state;
    coll_each(layouts, LAYOUTS, at_exit, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_42_forks_in_the_middle_of_a_collective_change_nothing),
        cmocka_unit_test(test_PR_42_workers_forked_while_it_is_made_do_not_hide_a_death),
        cmocka_unit_test(test_PR_43_eight_threads_share_one_communicator_or_have_their_own),
        cmocka_unit_test(test_PR_44_sends_and_receives_in_any_order_beside_a_collective),
        cmocka_unit_test(test_PR_45_storms_of_signals_surface_in_no_call),
        cmocka_unit_test(test_PR_45_handlers_and_masks_stay_the_programs),
        cmocka_unit_test(test_PR_45_sigterm_ends_a_rank_that_waits),
        cmocka_unit_test(test_PR_45_sigpipe_never_comes),
        cmocka_unit_test(test_a_program_may_end_in_any_way_in_the_middle),
        cmocka_unit_test(test_a_communicator_may_be_destroyed_at_exit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
