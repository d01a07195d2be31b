/* SPDX-License-Identifier: Apache-2.0 */
/* A library in the shape of NCCL, for memory of hosts, and the team that it makes for libringred. Everything goes by
 * way of rank 0: each rank sends what it has there and gets what it shall have. A thread of each communicator does what
 * was issued, in that order. With FAKE_TREE defined it adds in libringred's order, else the same from rank 1 round to
 * rank 0; with FAKE_LIES it only says so, with FAKE_LACKS a function is missing.
 *
 * Variables make it misbehave: FAKE_NCCL_UNUSABLE=RANK, FAKE_NCCL_FAIL, _STALL and _DIE=RANK:CALL (from 1, of the
 * process), _DEAF (an end of a connection is not told), _NO_BELL, _MUTE (there is a bell, and it does not ring),
 * _CANNOT. It counts its calls in fake_nccl_calls, and what was aborted. */
#include <ringred/team.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef FAKE_NAME
#define FAKE_NAME "fakenccl"
#endif

/* ==== what a libnccl has ==== */

typedef enum {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclTypes
} ncclDataType_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
typedef struct { /* of making a communicator: when to give up */
    const ringred_host *host;
    int64_t deadline_ns;
} ncclConfig_t;

enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER };

struct op {
    enum kind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
};

#define QUEUE 64

struct ncclComm {
    int rank, ranks;
    int *fd;  /* [ranks] rank 0: to each other one; others: [0] */
    int bell; /* rings at the end of each operation */
    pthread_t thread;
    bool joined;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct op queue[QUEUE];
    unsigned issued, ended;
    ncclResult_t error;
    bool aborted, stops;
};

__attribute__((visibility("default"))) _Atomic int fake_nccl_calls, fake_nccl_aborts;

/* ---- adding ---- */

#define FOLD(name, type, as)                                                 \
    static void name(void *into, const void *from, size_t n, ncclRedOp_t op) \
    {                                                                        \
        type *a = into;                                                      \
        const type *b = from;                                                \
        for (size_t i = 0; i < n; i++)                                       \
            a[i] = op == ncclProd  ? (type)((as)a[i] * (as)b[i])             \
                   : op == ncclMax ? (b[i] > a[i] ? b[i] : a[i])             \
                   : op == ncclMin ? (b[i] < a[i] ? b[i] : a[i])             \
                                   : (type)((as)a[i] + (as)b[i]);            \
    }
#define FINISH_INT(name, type)                        \
    static void name(void *into, size_t n, int ranks) \
    {                                                 \
        type *a = into;                               \
        for (size_t i = 0; i < n; i++)                \
            a[i] = (type)(a[i] / (type)ranks);        \
    }
#define FINISH_FLOAT(name, type, nan)                 \
    static void name(void *into, size_t n, int ranks) \
    {                                                 \
        type *a = into;                               \
        for (size_t i = 0; i < n; i++) {              \
            a[i] = a[i] / (type)ranks;                \
            a[i] = isnan(a[i]) ? nan : a[i];          \
        }                                             \
    }
FOLD(fold_int8, int8_t, uint32_t)
FOLD(fold_uint8, uint8_t, uint32_t)
FOLD(fold_int32, int32_t, uint32_t)
FOLD(fold_uint32, uint32_t, uint32_t)
FOLD(fold_int64, int64_t, uint64_t)
FOLD(fold_uint64, uint64_t, uint64_t)
FOLD(fold_float, float, float)
FOLD(fold_double, double, double)
FINISH_INT(finish_int8, int8_t)
FINISH_INT(finish_uint8, uint8_t)
FINISH_INT(finish_int32, int32_t)
FINISH_INT(finish_uint32, uint32_t)
FINISH_INT(finish_int64, int64_t)
FINISH_INT(finish_uint64, uint64_t)
FINISH_FLOAT(finish_float, float, NAN)
FINISH_FLOAT(finish_double, double, (double)NAN)

static const struct type {
    size_t bytes;
    void (*fold)(void *into, const void *from, size_t n, ncclRedOp_t op);
    void (*finish)(void *into, size_t n, int ranks);
} types[ncclTypes] = {
    [ncclInt8] = { 1, fold_int8, finish_int8 },
    [ncclUint8] = { 1, fold_uint8, finish_uint8 },
    [ncclInt32] = { 4, fold_int32, finish_int32 },
    [ncclUint32] = { 4, fold_uint32, finish_uint32 },
    [ncclInt64] = { 8, fold_int64, finish_int64 },
    [ncclUint64] = { 8, fold_uint64, finish_uint64 },
    [ncclFloat16] = { 2, NULL, NULL },
    [ncclFloat32] = { 4, fold_float, finish_float },
    [ncclFloat64] = { 8, fold_double, finish_double },
};

/* in[rank] is overwritten; the result is in[0]. The first ranks in pairs until a power of two is left, then a balanced
 * tree. */
static void add(char **in, int ranks, const struct op *o)
{
    const struct type *t = &types[o->type];
    int left = 1, odd;

    while (2 * left <= ranks)
        left *= 2;
    odd = ranks - left;
    for (int i = 0; i < left; i++) {
        char *a = in[i < odd ? 2 * i : i + odd];
        if (i < odd)
            t->fold(a, in[2 * i + 1], o->count, o->op);
        in[i] = a;
    }
    for (; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++) {
            t->fold(in[2 * i], in[2 * i + 1], o->count, o->op);
            in[i] = in[2 * i];
        }
    t->finish(in[0], o->count, o->op == ncclAvg ? ranks : 1);
}

/* ---- moving ---- */

static size_t in_bytes(const struct op *o, int ranks, int rank)
{
    const size_t part = o->count * types[o->type].bytes;

    return o->kind == REDUCE_SCATTER ? part * (size_t)ranks : o->kind == BROADCAST && rank != o->root ? 0 : part;
}

static size_t out_bytes(const struct op *o, int ranks, int rank)
{
    const size_t part = o->count * types[o->type].bytes;

    return o->kind == ALL_GATHER ? part * (size_t)ranks : o->kind == REDUCE && rank != o->root ? 0 : part;
}

static bool put(int fd, const void *bytes, size_t n)
{
    for (const char *at = bytes; n;) {
        const ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return false;
        at += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return true;
}

static bool get(int fd, void *bytes, size_t n)
{
    for (char *at = bytes; n;) {
        const ssize_t k = recv(fd, at, n, 0);
        if (k == 0 || (k < 0 && errno != EINTR))
            return false;
        at += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return true;
}

/* What a rank gets of what all have; where it is. `room` has a place for as much as all have. */
static const char *result_for(const struct op *o, int ranks, int rank, char **in, char **order, char *room)
{
    const size_t part = o->count * types[o->type].bytes, from = o->kind == REDUCE_SCATTER ? (size_t)rank * part : 0;

    if (o->kind == BROADCAST)
        return in[o->root];
    for (int r = 0; r < ranks; r++) {
        memcpy(room + (size_t)r * part, in[r] + from, part);
#ifdef FAKE_TREE
        order[r] = room + (size_t)r * part;
#else
        order[(r + ranks - 1) % ranks] = room + (size_t)r * part;
#endif
    }
    if (o->kind == ALL_GATHER)
        return room;
    add(order, ranks, o);
    return order[0];
}

static bool serve(ncclComm_t c, const struct op *o, char **in, char **order, char *room)
{
    for (int r = 1; r < c->ranks; r++)
        if (!get(c->fd[r], in[r], in_bytes(o, c->ranks, r)))
            return false;
    memcpy(in[0], o->send ? o->send : "", in_bytes(o, c->ranks, 0));
    for (int r = 0; r < c->ranks; r++) {
        const size_t bytes = out_bytes(o, c->ranks, r);
        const char *result = bytes ? result_for(o, c->ranks, r, in, order, room) : NULL;
        if (r == 0 && bytes)
            memcpy(o->recv, result, bytes);
        else if (bytes && !put(c->fd[r], result, bytes))
            return false;
    }
    return true;
}

static bool run_on_first(ncclComm_t c, const struct op *o)
{
    const size_t n = (size_t)c->ranks, most = o->count * types[o->type].bytes * n + 1;
    char **in = calloc(2 * n, sizeof *in), *room = malloc(most * (n + 1));
    bool fine = in && room;

    for (size_t r = 0; r < n && fine; r++)
        in[r] = room + (r + 1) * most;
    fine = fine && serve(c, o, in, in + n, room);
    free(in);
    free(room);
    return fine;
}

/* ---- what goes wrong on purpose ---- */

static bool is_meant(const char *variable, int rank, int call)
{
    const char *text = getenv(variable);
    int of = -1, number = 0;

    return text && sscanf(text, "%d:%d", &of, &number) >= 1 && of == rank && (!number || number == call);
}

/* With the lock taken. */
static void wait_for_abort(ncclComm_t c)
{
    while (!c->aborted)
        pthread_cond_wait(&c->changed, &c->lock);
}

/* ---- the thread ---- */

static ncclResult_t run(ncclComm_t c, const struct op *o)
{
    const int call = atomic_fetch_add(&fake_nccl_calls, 1) + 1;
    bool fine = true;

    if (is_meant("FAKE_NCCL_FAIL", c->rank, call))
        return ncclSystemError;
    if (is_meant("FAKE_NCCL_STALL", c->rank, call)) {
        pthread_mutex_lock(&c->lock);
        wait_for_abort(c);
        pthread_mutex_unlock(&c->lock);
        return ncclSystemError;
    }
    if (is_meant("FAKE_NCCL_DIE", c->rank, call)) {
        if (c->rank)
            (void)put(c->fd[0], o->send, in_bytes(o, c->ranks, c->rank) / 2); /* its last */
        raise(SIGKILL);
    }
    if (c->rank == 0)
        fine = run_on_first(c, o);
    else
        fine = put(c->fd[0], o->send, in_bytes(o, c->ranks, c->rank)) &&
               get(c->fd[0], o->recv, out_bytes(o, c->ranks, c->rank));
    if (fine)
        return ncclSuccess;
    pthread_mutex_lock(&c->lock);
    if (getenv("FAKE_NCCL_DEAF"))
        wait_for_abort(c);
    pthread_mutex_unlock(&c->lock);
    return ncclRemoteError;
}

static void *work(void *argument)
{
    ncclComm_t c = argument;
    const uint64_t one = 1;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->ended == c->issued && !c->stops && !c->aborted)
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->aborted || c->ended == c->issued)
            break;
        const struct op o = c->queue[c->ended % QUEUE];
        pthread_mutex_unlock(&c->lock);
        const ncclResult_t rc = run(c, &o);
        pthread_mutex_lock(&c->lock);
        c->error = c->error ? c->error : rc;
        c->ended++;
        if (!getenv("FAKE_NCCL_MUTE") && write(c->bell, &one, sizeof one) < 0)
            break; /* it cannot be full */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- communicators ---- */

#define PENDING_MOST 64
static struct {
    pthread_mutex_t lock;
    unsigned made;
    struct {
        ncclUniqueId id;
        int fd;
    } listens[PENDING_MOST]; /* until rank 0 comes; fd 0: free */
} ids = { .lock = PTHREAD_MUTEX_INITIALIZER };

static socklen_t address_of(const ncclUniqueId *id, struct sockaddr_un *to)
{
    const size_t n = strnlen(id->internal, 100);

    *to = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(to->sun_path + 1, id->internal, n); /* abstract: nothing is left in the file system */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct sockaddr_un to;
    int at = 0;

    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&ids.lock);
    snprintf(id->internal, sizeof id->internal, "fake-nccl-%ld-%u", (long)getpid(), ids.made++);
    while (at < PENDING_MOST && ids.listens[at].fd)
        at++;
    const int fd = at < PENDING_MOST ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    const bool fine = fd >= 0 && bind(fd, (struct sockaddr *)&to, address_of(id, &to)) == 0 && listen(fd, 128) == 0;
    if (fine) {
        ids.listens[at].id = *id;
        ids.listens[at].fd = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&ids.lock);
    return fine ? ncclSuccess : ncclSystemError;
}

static int take_listener(const ncclUniqueId *id)
{
    int fd = -1;

    pthread_mutex_lock(&ids.lock);
    for (int i = 0; i < PENDING_MOST; i++)
        if (ids.listens[i].fd && memcmp(&ids.listens[i].id, id, sizeof *id) == 0) {
            fd = ids.listens[i].fd;
            ids.listens[i].fd = 0;
        }
    pthread_mutex_unlock(&ids.lock);
    return fd;
}

static bool wait_readable(int fd, const ncclConfig_t *config)
{
    struct pollfd p = { fd, POLLIN, 0 };

    while (config->host->now_ns() < config->deadline_ns && !config->host->is_interrupted(config->host->context))
        if (poll(&p, 1, 50) > 0)
            return true;
    return false;
}

static ncclResult_t gather_all(ncclComm_t c, int listener, const ncclConfig_t *config)
{
    for (int here = 1; here < c->ranks; here++) {
        int32_t rank = 0;
        const int fd = wait_readable(listener, config) ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0)
            return ncclRemoteError;
        if (!wait_readable(fd, config) || !get(fd, &rank, sizeof rank) || rank < 1 || rank >= c->ranks ||
            c->fd[rank] >= 0) {
            close(fd);
            return ncclRemoteError;
        }
        c->fd[rank] = fd;
    }
    for (int r = 1; r < c->ranks; r++)
        if (!put(c->fd[r], "+", 1))
            return ncclRemoteError;
    return ncclSuccess;
}

static ncclResult_t reach_first(ncclComm_t c, const ncclUniqueId *id, const ncclConfig_t *config)
{
    struct sockaddr_un to;
    int32_t rank = c->rank;
    char sign;

    c->fd[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd[0] < 0 || connect(c->fd[0], (struct sockaddr *)&to, address_of(id, &to)) < 0)
        return ncclSystemError;
    const bool fine = put(c->fd[0], &rank, sizeof rank) && wait_readable(c->fd[0], config) && get(c->fd[0], &sign, 1);
    return fine ? ncclSuccess : ncclRemoteError;
}

static void ncclCommFree(ncclComm_t c)
{
    for (int r = 0; r < c->ranks && c->fd; r++)
        if (c->fd[r] >= 0)
            close(c->fd[r]);
    if (c->bell >= 0)
        close(c->bell);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c->fd);
    free(c);
}

static ncclResult_t start_thread(ncclComm_t c)
{
    sigset_t every, before;

    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    const int rc = pthread_create(&c->thread, NULL, work, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? ncclSystemError : ncclSuccess;
}

static ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                           const ncclConfig_t *config)
{
    ncclComm_t c = calloc(1, sizeof *c);
    ncclResult_t rc = ncclSystemError;
    const int listener = rank == 0 ? take_listener(&id) : -1;

    if (!c)
        return rc;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->rank = rank;
    c->ranks = ranks;
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->fd = malloc((size_t)ranks * sizeof *c->fd);
    for (int r = 0; r < ranks && c->fd; r++)
        c->fd[r] = -1;
    if (c->fd && c->bell >= 0)
        rc = rank ? reach_first(c, &id, config) : gather_all(c, listener, config);
    if (rc == ncclSuccess)
        rc = start_thread(c);
    if (listener >= 0)
        close(listener);
    if (rc == ncclSuccess)
        *comm = c;
    else
        ncclCommFree(c);
    return rc;
}

static void end_thread(ncclComm_t c, bool aborts)
{
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    c->aborted = c->aborted || aborts;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    for (int r = 0; r < c->ranks && aborts; r++)
        if (c->fd[r] >= 0)
            (void)shutdown(c->fd[r], SHUT_RDWR); /* it may be so already */
    if (!c->joined)
        pthread_join(c->thread, NULL);
    c->joined = true;
}

static void ncclCommAbort(ncclComm_t c)
{
    end_thread(c, true);
    atomic_fetch_add(&fake_nccl_aborts, 1);
}

static void ncclCommDestroy(ncclComm_t c)
{
    end_thread(c, false);
    ncclCommFree(c);
}

static ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    pthread_mutex_lock(&c->lock);
    *error = c->error ? c->error : c->ended != c->issued ? ncclInProgress : ncclSuccess;
    pthread_mutex_unlock(&c->lock);
    return ncclSuccess;
}

static ncclResult_t issue(ncclComm_t c, const struct op *o)
{
    ncclResult_t rc = ncclInvalidUsage;

    pthread_mutex_lock(&c->lock);
    if (c->issued - c->ended < QUEUE) {
        c->queue[c->issued++ % QUEUE] = *o;
        rc = ncclSuccess;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ==== the team ==== */

static const int8_t type_of[] = {
    /* + 1 */
    [RINGRED_INT8] = ncclInt8 + 1,       [RINGRED_UINT8] = ncclUint8 + 1,
    [RINGRED_INT32] = ncclInt32 + 1,     [RINGRED_UINT32] = ncclUint32 + 1,
    [RINGRED_INT64] = ncclInt64 + 1,     [RINGRED_UINT64] = ncclUint64 + 1,
    [RINGRED_FLOAT16] = ncclFloat16 + 1, [RINGRED_FLOAT32] = ncclFloat32 + 1,
    [RINGRED_FLOAT64] = ncclFloat64 + 1, [RINGRED_BYTES] = 0,
};

static int op_of(int32_t op)
{
    return op == RINGRED_SUM    ? ncclSum
           : op == RINGRED_PROD ? ncclProd
           : op == RINGRED_MAX  ? ncclMax
           : op == RINGRED_MIN  ? ncclMin
           : op == RINGRED_AVG  ? ncclAvg
                                : -1;
}

static int kind_of(int32_t collective)
{
    return collective == RINGRED_ALLREDUCE        ? ALL_REDUCE
           : collective == RINGRED_REDUCE         ? REDUCE
           : collective == RINGRED_REDUCE_SCATTER ? REDUCE_SCATTER
           : collective == RINGRED_BROADCAST      ? BROADCAST
           : collective == RINGRED_ALLGATHER      ? ALL_GATHER
                                                  : -1;
}

static int32_t fake_can(const ringred_team_call *call)
{
    const int type = (size_t)call->type < sizeof type_of ? type_of[call->type] - 1 : -1,
              kind = kind_of(call->collective);
    const bool is_float = type == ncclFloat32 || type == ncclFloat64;
    bool fine = type >= 0 && kind >= 0 && call->scale == 1 && !getenv("FAKE_NCCL_CANNOT");

    if (call->op)
        fine = fine && types[type].fold && op_of(call->op) >= 0;
#ifdef FAKE_TREE
    if (call->op && is_float) /* what a NaN does to the others is libringred's own */
        fine = fine && (call->op == RINGRED_SUM || call->op == RINGRED_AVG);
#else
    (void)is_float;
#endif
    return fine ? 0 : RINGRED_EUNSUPPORTED;
}

static int32_t fake_usable(const ringred_host *host, ringred_error *why)
{
    if (host && is_meant("FAKE_NCCL_UNUSABLE", host->rank, 0))
        return host->fail(why, RINGRED_EUNSUPPORTED, -1, 0, "there is no device here");
    return 0;
}

static int32_t fake_id(const ringred_host *host, void *to, ringred_error *why)
{
    if (ncclGetUniqueId(to) != ncclSuccess)
        return host->fail(why, RINGRED_ESYSTEM, -1, errno, "no unique id");
    return (int32_t)sizeof(ncclUniqueId);
}

struct self {
    const ringred_host *host;
    ncclComm_t comm;
};

static int32_t fake_open(const ringred_host *host, const void *id, int32_t bytes, int64_t deadline_ns, void **self,
                         ringred_error *why)
{
    struct self *s = malloc(sizeof *s);
    const ncclConfig_t config = { host, deadline_ns };
    ncclUniqueId unique;

    if (!s || bytes != (int32_t)sizeof unique) {
        free(s);
        return host->fail(why, RINGRED_ENOMEM, -1, 0, "no memory, or no id of ours");
    }
    memcpy(&unique, id, sizeof unique);
    s->host = host;
    if (ncclCommInitRankConfig(&s->comm, host->ranks, unique, host->rank, &config) != ncclSuccess) {
        free(s);
        return host->fail(why, RINGRED_ETIMEOUT, -1, 0, "the ranks did not come together");
    }
    *self = s;
    return 0;
}

static int32_t fake_start(void *self, const ringred_team_call *call, ringred_error *why)
{
    struct self *s = self;
    const struct op o = { (enum kind)kind_of(call->collective),
                          call->send,
                          call->recv,
                          call->count,
                          (ncclDataType_t)(type_of[call->type] - 1),
                          call->op ? (ncclRedOp_t)op_of(call->op) : ncclSum,
                          call->root };

    return issue(s->comm, &o) == ncclSuccess ? 0 : s->host->fail(why, RINGRED_EINTERNAL, -1, 0, "the queue is full");
}

static int32_t fake_test(void *self, ringred_error *why)
{
    struct self *s = self;
    ncclResult_t error;

    (void)ncclCommGetAsyncError(s->comm, &error); /* it always answers */
    if (error == ncclSuccess || error == ncclInProgress)
        return error == ncclSuccess ? 0 : RINGRED_PENDING;
    return s->host->fail(why, error == ncclRemoteError ? RINGRED_EPEER : RINGRED_ESYSTEM, -1, 0,
                         error == ncclRemoteError ? "remote error: a connection has ended" : "unhandled system error");
}

static int32_t fake_descriptor(void *self)
{
    return getenv("FAKE_NCCL_NO_BELL") ? -1 : ((struct self *)self)->comm->bell;
}

static void fake_abort(void *self)
{
    ncclCommAbort(((struct self *)self)->comm);
}

static void fake_close(void *self)
{
    ncclCommDestroy(((struct self *)self)->comm);
    free(self);
}

__attribute__((visibility("default"))) const ringred_team *RINGRED_TEAM_ENTRY(void);

const ringred_team *RINGRED_TEAM_ENTRY(void)
{
    static ringred_team table = {
        .struct_size = sizeof table,
#if defined FAKE_TREE || defined FAKE_LIES
        .order = RINGRED_ORDER_TREE,
#else
        .order = RINGRED_ORDER_ANY,
#endif
        .name = FAKE_NAME,
        .text = "collectives by way of rank 0, for tests",
        .usable = fake_usable,
        .can = fake_can,
        .id = fake_id,
        .open = fake_open,
        .start = fake_start,
        .test = fake_test,
        .descriptor = fake_descriptor,
        .abort = fake_abort,
        .close = fake_close,
    };

#ifdef FAKE_LACKS
    table.start = NULL;
#endif
    return &table;
}
