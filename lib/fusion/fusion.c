/* SPDX-License-Identifier: Apache-2.0 */
/* A step: gradients come, buckets begin in their order, and are waited for in it. A bucket is a list (core/list.c), on
 * a communicator of the fusion's own; so which operations there are, and in which order, is the same on all ranks. */
#include "fusion/table.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SHARED_BUCKET ((size_t)1 << 20) /* both: docs/ARCHITECTURE.md, Fusion */
#define LINKED_BUCKET ((size_t)4 << 20)
#define BUSY_NS 1000000  /* between two looks, for a wait that has nothing to wait for but what others add: where something */
#define IDLE_NS 10000000 /* else is in flight, and where nothing is that this thread moves */

struct bucket {
    size_t first, n;            /* of the table */
    size_t added;               /* of them, in this step */
    ringred_request *request;   /* under way; NULL: not */
};

struct ringred_fusion {
    ringred_comm *comm;
    int op;
    size_t bucket_bytes;
    pthread_mutex_t lock;       /* guards all that follows */
    pthread_cond_t changed;     /* something was added, or somebody has stopped waiting for a request */
    struct rr_gradients table;
    struct rr_agreement agreement; /* as far as it has come */
    enum { NEW, AGREEING, AGREED } state;
    bool agreeing;              /* somebody is at it */
    uint64_t step;              /* how many have ended */
    size_t added;               /* in this step */
    struct bucket *bucket;
    size_t buckets, begun, ended;
    bool starting;              /* somebody starts a bucket */
    bool waited;                /* somebody waits for the request of the first that has not ended */
    int status;                 /* what ended it; 0: nothing */
    ringred_error refused;
};

/* ---- beginning and ending ---- */

static void free_fusion(ringred_fusion *f)
{
    rr_gradients_free(&f->table);
    rr_agreement_end(&f->agreement);
    rr_free(f->bucket);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    rr_free(f);
}

int rr_fusion_open(ringred_comm *comm, const ringred_fusion_options *options, ringred_fusion **fusion)
{
    ringred_fusion *f = rr_alloc(1, sizeof *f);
    const struct rr_split all = { .color = 0, .lacking = !f };
    pthread_condattr_t monotonic;
    ringred_comm *own;

    int rc = rr_comm_split(comm, &all, &own);
    if (rc < 0) {
        rr_free(f);
        return rc;
    }
    f->comm = own;
    f->op = options->op;
    f->bucket_bytes = options->bucket_bytes ? options->bucket_bytes : own->all_local ? SHARED_BUCKET : LINKED_BUCKET;
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *fusion = f;
    return 0;
}

int rr_fusion_close(ringred_fusion *f)
{
    int rc = rr_comm_close(f->comm); /* with what is still under way */

    free_fusion(f);
    return rc;
}

/* ---- refusing ---- */

/* With the lock: why a call is refused. */
#define refuse(f, code, ...) rr_fail(&(f)->refused, code, -1, 0, __VA_ARGS__)

int rr_fusion_refuse(ringred_fusion *f, int code, const char *format, ...)
{
    va_list arguments;
    char text[sizeof f->refused.text];

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&f->lock);
    (void)refuse(f, code, "%s", text);
    pthread_mutex_unlock(&f->lock);
    return code;
}

/* It has failed: nothing more will begin. */
static int give_up(ringred_fusion *f, int status)
{
    f->status = status;
    pthread_cond_broadcast(&f->changed);
    return status;
}

ringred_comm *rr_fusion_error(ringred_fusion *f, ringred_error *error)
{
    pthread_mutex_lock(&f->lock);
    bool mine = !f->status || f->status == f->refused.code;
    if (mine && f->refused.code)
        *error = f->refused;
    pthread_mutex_unlock(&f->lock);
    return mine ? NULL : f->comm;
}

bool rr_fusion_is_forked(const ringred_fusion *f)
{
    return f->comm->family->forks != rr_forks();
}

/* ---- buckets ---- */

static size_t bytes_of(const ringred_fusion *f, size_t i)
{
    return f->table.count[i] * rr_type_bytes(f->table.type[i]);
}

/* In the order of the table: a bucket is full when it has bucket_bytes. */
static int cut(ringred_fusion *f)
{
    struct rr_gradients *t = &f->table;
    size_t bytes = f->bucket_bytes, buckets = 0;

    for (size_t i = 0; i < t->n; i++) {
        if (bytes >= f->bucket_bytes) {
            buckets++;
            bytes = 0;
        }
        t->gradient[i].bucket = buckets - 1;
        bytes += bytes_of(f, i);
    }
    f->bucket = rr_alloc(buckets + 1, sizeof *f->bucket);
    if (!f->bucket)
        return RINGRED_ENOMEM;
    f->buckets = buckets;
    for (size_t i = t->n; i-- > 0;) {
        struct bucket *b = &f->bucket[t->gradient[i].bucket];
        b->first = i;
        b->n++;
        b->added++; /* in the first step all have been */
    }
    return 0;
}

/* Without the lock, since functions of the caller's may be called meanwhile (ringred_start). */
static int start(ringred_fusion *f, struct bucket *b)
{
    const struct rr_gradients *t = &f->table;
    const struct rr_vectors v = { (const void *const *)t->at + b->first, t->at + b->first, t->count + b->first,
                                  t->type + b->first, b->n };
    const struct rr_call call = { .what = RR_ALLREDUCE, .op = f->op, .vectors = &v };

    f->starting = true;
    pthread_mutex_unlock(&f->lock);
    int rc = rr_comm_start(f->comm, &call, &b->request);
    pthread_mutex_lock(&f->lock);
    f->starting = false;
    pthread_cond_broadcast(&f->changed);
    return rc;
}

/* Those that are complete, in their order. What there is no request for now comes later; so it does after ENOMEM. */
static int begin(ringred_fusion *f)
{
    while (!f->status && !f->starting && f->state == AGREED && f->begun < f->buckets) {
        struct bucket *b = &f->bucket[f->begun];
        if (b->added < b->n)
            return 0;
        int rc = start(f, b);
        if (rc == RINGRED_ELIMIT)
            return 0;
        if (rc == RINGRED_ENOMEM && rr_family_is_ready(f->comm->family))
            return refuse(f, rc, "no memory to begin a bucket of %zu gradients", b->n);
        if (rc < 0)
            return give_up(f, rc);
        f->begun++;
    }
    return 0;
}

static void end_step(ringred_fusion *f)
{
    for (size_t i = 0; i < f->table.n; i++)
        f->table.gradient[i].added = false;
    for (size_t i = 0; i < f->buckets; i++)
        f->bucket[i].added = 0;
    f->added = f->begun = f->ended = 0;
    f->step++;
}

/* ---- adding ---- */

static int check_again(ringred_fusion *f, size_t i, const char *key, size_t count, int32_t type)
{
    const struct rr_gradients *t = &f->table;

    if (t->gradient[i].added)
        return refuse(f, RINGRED_EINVAL, "gradient \"%.200s\" is in this step already", key);
    if (t->count[i] != count || t->type[i] != type)
        return refuse(f, RINGRED_EINVAL, "gradient \"%.200s\" has %zu elements of %s, and had %zu of %s in the first step",
                      key, count, rr_type_name(type), t->count[i], rr_type_name(t->type[i]));
    return 0;
}

static int add(ringred_fusion *f, const char *key, void *gradient, size_t count, int32_t type)
{
    struct rr_gradients *t = &f->table;

    if (f->status)
        return f->status;
    if (f->state == AGREEING)
        return refuse(f, RINGRED_EINVAL, "gradient \"%.200s\" came during the first wait; all are added before it", key);
    size_t i = rr_gradients_find(t, key);
    if (i == RR_NO_GRADIENT && f->state == AGREED)
        return refuse(f, RINGRED_EINVAL, "gradient \"%.200s\" was not in the first step; all are added before its wait",
                      key);
    if (i != RR_NO_GRADIENT)
        RR_TRY(check_again(f, i, key, count, type));
    if (i == RR_NO_GRADIENT) {
        int rc = rr_gradients_add(t, key, gradient, count, type);
        if (rc < 0)
            return refuse(f, rc, "no room for one more gradient beside %zu (at most %zu)", t->n, RR_LIST_MOST);
        i = t->n - 1;
    }
    t->at[i] = gradient;
    t->gradient[i].added = true;
    f->added++;
    if (f->state != AGREED)
        return 0;
    f->bucket[t->gradient[i].bucket].added++;
    (void)begin(f); /* it is added; what could not begin does in a wait, which tells */
    pthread_cond_broadcast(&f->changed);
    return f->status;
}

int rr_fusion_add(ringred_fusion *f, const char *key, void *gradient, size_t count, int32_t type)
{
    pthread_mutex_lock(&f->lock);
    int rc = add(f, key, gradient, count, type);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* ---- waiting ---- */

/* The ranks compare what they have; then all buckets can begin. Without the lock: adding is refused meanwhile. After
 * ENOMEM it goes on, in another wait, where it was: the others have not noticed. */
static int agree(ringred_fusion *f)
{
    ringred_error why = { 0 };

    if (f->agreeing)
        return refuse(f, RINGRED_EBUSY, "another thread is in the first wait");
    f->state = AGREEING;
    f->agreeing = true;
    pthread_mutex_unlock(&f->lock);
    int rc = rr_agreement_go_on(&f->agreement, &f->table, f->comm, &why);
    pthread_mutex_lock(&f->lock);
    f->agreeing = false;
    if (rc == 0 && f->table.n && cut(f) < 0)
        rc = rr_fail(&why, RINGRED_ENOMEM, -1, 0, "no memory for the buckets of %zu gradients", f->table.n);
    f->refused = why;
    if (rc == RINGRED_ENOMEM && rr_family_is_ready(f->comm->family))
        return rc;
    rr_agreement_end(&f->agreement);
    if (rc < 0)
        return give_up(f, rc);
    f->state = f->table.n ? AGREED : NEW; /* an empty step teaches nothing */
    return 0;
}

/* Until something is added, or begins. What else this process has in flight moves meanwhile: peers may wait for it. */
static void sleep_until(ringred_fusion *f, int64_t ns)
{
    size_t before = f->added + f->begun + f->ended;

    pthread_mutex_unlock(&f->lock);
    bool busy = rr_family_poll(f->comm->family) != 0;
    pthread_mutex_lock(&f->lock);
    if (f->added + f->begun + f->ended != before || f->status)
        return;
    int64_t most = rr_now_ns() + (busy ? BUSY_NS : IDLE_NS);
    ns = ns < most ? ns : most;
    const struct timespec until = { ns / RINGRED_SECOND, ns % RINGRED_SECOND };
    pthread_cond_timedwait(&f->changed, &f->lock, &until);
}

/* One of the gradients that this rank has not added, while the others may wait for it. */
static void warn(ringred_fusion *f, int64_t began_ns)
{
    const struct rr_gradients *t = &f->table;
    size_t i = 0;

    while (i < t->n && t->gradient[i].added)
        i++;
    if (i < t->n)
        rr_log(&f->comm->family->log, RINGRED_LOG_WARN, "fusion: rank %d has not added gradient \"%.200s\" for %.3g s "
               "(%zu of %zu are missing)", f->comm->rank, t->gradient[i].key, (double)(rr_now_ns() - began_ns) / 1e9,
               t->n - f->added, t->n);
}

/* The first bucket that has not ended, for at most so long; PENDING: it has not. */
static int wait_for_one(ringred_fusion *f, int64_t timeout_ns)
{
    struct bucket *b = &f->bucket[f->ended];

    f->waited = true;
    pthread_mutex_unlock(&f->lock);
    int rc = rr_request_wait(b->request, timeout_ns);
    pthread_mutex_lock(&f->lock);
    f->waited = false;
    if (rc != RINGRED_PENDING) {
        b->request = NULL;
        f->ended++;
    }
    pthread_cond_broadcast(&f->changed);
    return rc < 0 ? give_up(f, rc) : rc;
}

static int wait_for_all(ringred_fusion *f, int64_t deadline)
{
    int64_t began = rr_now_ns(), limit = rr_setting(&f->comm->family->settings, RR_SET_STALL_WARNING);
    int64_t warn_ns = limit < 0 ? INT64_MAX : began + limit;
    uint64_t step = f->step; /* another thread may end it, and the next one begin */

    while (!f->status && f->added && f->step == step) {
        int64_t now = rr_now_ns();
        int rc = begin(f);
        if (rc < 0)
            return rc;
        if (f->ended == f->buckets) {
            end_step(f);
            pthread_cond_broadcast(&f->changed);
            break;
        }
        if (now >= warn_ns && f->added < f->table.n) {
            warn(f, began);
            warn_ns = INT64_MAX;
        }
        if (f->ended < f->begun && !f->waited) {
            rc = wait_for_one(f, deadline == INT64_MAX ? RINGRED_FOREVER : deadline > now ? deadline - now : 0);
            if (rc == RINGRED_PENDING)
                return rc;
        } else if (now >= deadline) {
            return RINGRED_PENDING;
        } else {
            sleep_until(f, deadline < warn_ns ? deadline : warn_ns);
        }
    }
    return f->status;
}

int rr_fusion_wait(ringred_fusion *f, int64_t timeout_ns)
{
    pthread_mutex_lock(&f->lock);
    int rc = f->status;
    if (rc == 0 && f->state != AGREED)
        rc = agree(f);
    if (rc == 0)
        rc = wait_for_all(f, rr_deadline(timeout_ns));
    pthread_mutex_unlock(&f->lock);
    return rc;
}

int rr_fusion_poll(ringred_fusion *f)
{
    int rc = 0;

    pthread_mutex_lock(&f->lock);
    while (rc == 0 && !f->status && f->ended < f->begun && !f->waited)
        rc = wait_for_one(f, 0);
    if (!f->status)
        (void)begin(f); /* a failure is the status */
    rc = f->status ? f->status : f->ended < f->begun ? RINGRED_PENDING : 0;
    pthread_mutex_unlock(&f->lock);
    return rc;
}
