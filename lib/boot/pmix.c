/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx, as Open MPI's mpirun, prterun and Slurm's --mpi=pmix serve it, through whatever libpmix.so.2 there is: it is
 * opened when it is needed, so that the library needs none. What is declared here is a part of the public standard
 * (PMIx 4, chapters 3 to 7) whose layout libraries of version 4 and later share; a test compares it with pmix.h
 * where that is installed. */
#include "boot/launch.h"

#include "boot/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Guarded by the mutex. libpmix does not bear to be begun again after its end: what look has begun goes on until
 * share has used it, or the process exits, and share happens once. */
static struct {
    pthread_mutex_t mutex;
    void *library;
    int (*init)(struct pmix_proc *self, void *info, size_t infos);
    int (*finalize)(const void *info, size_t infos);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t count, const struct pmix_info *info, size_t infos,
                 void (*done)(int status, void *context), void *context);
    int (*get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info, size_t infos,
               struct pmix_value **value);
    int (*get_start)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info, size_t infos,
                     void (*done)(int status, struct pmix_value *value, void *context), void *context);
    const char *(*error)(int status);
    bool joined, ends_at_exit;
    uint32_t forks; /* of the process that has joined */
    struct pmix_proc self;
    struct rr_place known; /* what it says of this process, which never changes */
} pmix = { .mutex = PTHREAD_MUTEX_INITIALIZER, .known = { .rank = -1 } };

/* What the library's thread answers. Guarded by the mutex. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uintptr_t question; /* the one that is being waited for: later answers to others are dropped */
    bool done;
    int status;
    char text[1024];
} answer = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- the library ---- */

/* The one that the launcher belongs to, if it says where that is; else the system's. */
static void *open_library(char *tried, size_t room)
{
    static const char *const prefixes[] = { "PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX" };
    static const char *const folders[] = { "lib", "lib64", "lib/openmpi" };
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD); /* MPI may have it open */
    const char *reason;

    for (size_t i = 0; i < 9 && !library; i++) {
        const char *prefix = secure_getenv(prefixes[i / 3]);
        char path[512];
        if (!prefix || *prefix != '/')
            continue;
        snprintf(path, sizeof path, "%.400s/%s/libpmix.so.2", prefix, folders[i % 3]);
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    library = library ? library : dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    reason = library ? "" : dlerror();
    snprintf(tried, room, "%s", reason ? reason : "");
    return library;
}

/* A function of the library, into a pointer to functions. */
static bool find(const char *name, void *function)
{
    void *at = dlsym(pmix.library, name);

    memcpy(function, &at, sizeof at);
    return at != NULL;
}

static int load(ringred_error *why)
{
    char reason[200];

    if (pmix.library)
        return 0;
    pmix.library = open_library(reason, sizeof reason);
    if (!pmix.library)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "the launcher speaks PMIx, but libpmix.so.2 cannot be opened: %s",
                       reason);
    if (find("PMIx_Init", &pmix.init) && find("PMIx_Finalize", &pmix.finalize) && find("PMIx_Put", &pmix.put) &&
        find("PMIx_Commit", &pmix.commit) && find("PMIx_Fence_nb", &pmix.fence) && find("PMIx_Get", &pmix.get) &&
        find("PMIx_Get_nb", &pmix.get_start) && find("PMIx_Error_string", &pmix.error))
        return 0;
    pmix.library = NULL; /* it stays open: it may be in use by others */
    return rr_fail(why, RINGRED_ESETTING, -1, 0, "libpmix.so.2 lacks functions of PMIx 4");
}

static int refused(int status, const char *what, ringred_error *why)
{
    const char *text = pmix.error(status);

    return rr_fail(why, RINGRED_ESYSTEM, -1, 0, "PMIx: %s failed: %s (%d)", what, text ? text : "unknown", status);
}

/* With the mutex held. */
static void leave(void)
{
    if (pmix.joined && pmix.forks == rr_forks())
        (void)pmix.finalize(NULL, 0); /* there is nothing to be done about it */
    pmix.joined = false;
}

/* A launcher takes the exit of a process that is still joined for a crash. */
static void leave_at_exit(void)
{
    leave();
}

/* With the mutex held. */
static int join(ringred_error *why)
{
    RR_TRY(load(why));
    if (pmix.joined)
        return 0;
    int status = pmix.init(&pmix.self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return refused(status, "joining the launcher's server", why);
    pmix.joined = true;
    pmix.forks = rr_forks();
    pmix.ends_at_exit = pmix.ends_at_exit || atexit(leave_at_exit) == 0;
    return 0;
}

/* ---- the process ---- */

static bool get_number(const char *key, int *to)
{
    struct pmix_proc who = pmix.self;
    struct pmix_value *v = NULL;

    if (strcmp(key, PMIX_LOCAL_RANK) != 0)
        who.rank = PMIX_RANK_WILDCARD;
    if (pmix.get(&who, key, NULL, 0, &v) != PMIX_SUCCESS || !v)
        return false;
    if (v->type == PMIX_UINT16)
        *to = v->data.uint16;
    else if (v->type == PMIX_UINT32 && v->data.uint32 <= INT32_MAX)
        *to = (int)v->data.uint32;
    free(v); /* a number holds nothing else */
    return *to >= 0;
}

/* With the mutex held. */
static int ask_place(struct rr_place *p, ringred_error *why)
{
    if (!get_number(PMIX_JOB_SIZE, &p->size) || pmix.self.rank > INT32_MAX)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "PMIx does not tell how many ranks there are");
    (void)get_number(PMIX_LOCAL_RANK, &p->local_rank); /* nice to know */
    (void)get_number(PMIX_LOCAL_SIZE, &p->local_size);
    p->rank = (int)pmix.self.rank;
    p->exchange = RR_EXCHANGE_PMIX;
    pmix.known = *p;
    return 1;
}

int rr_pmix_look(const struct rr_settings *s, struct rr_place *p, ringred_error *why)
{
    int rc = 1;

    (void)s;
    if (!getenv("PMIX_RANK") || !getenv("PMIX_NAMESPACE")) {
        snprintf(p->note, sizeof p->note, "PMIX_RANK and PMIX_NAMESPACE are not set");
        return 0;
    }
    pthread_mutex_lock(&pmix.mutex);
    if (pmix.known.rank >= 0)
        *p = pmix.known;
    else
        rc = join(why);
    if (rc >= 0 && p->rank < 0)
        rc = ask_place(p, why);
    pthread_mutex_unlock(&pmix.mutex);
    if (rc < 0 && getenv("SLURM_PROCID")) { /* that says enough */
        snprintf(p->note, sizeof p->note, "%.190s", why->text);
        return 0;
    }
    return rc;
}

/* ---- rank 0's text ---- */

static void on_done(int status, void *question)
{
    pthread_mutex_lock(&answer.mutex);
    if (answer.question == (uintptr_t)question) {
        answer.status = status;
        answer.done = true;
        pthread_cond_signal(&answer.changed);
    }
    pthread_mutex_unlock(&answer.mutex);
}

static void on_value(int status, struct pmix_value *v, void *question)
{
    pthread_mutex_lock(&answer.mutex);
    if (answer.question == (uintptr_t)question) {
        answer.text[0] = 0;
        if (status == PMIX_SUCCESS && v && v->type == PMIX_STRING && v->data.string)
            snprintf(answer.text, sizeof answer.text, "%s", v->data.string); /* the value stays the library's */
        answer.status = status;
        answer.done = true;
        pthread_cond_signal(&answer.changed);
    }
    pthread_mutex_unlock(&answer.mutex);
}

static void *new_question(void)
{
    pthread_mutex_lock(&answer.mutex);
    answer.done = false;
    uintptr_t question = ++answer.question;
    pthread_mutex_unlock(&answer.mutex);
    return (void *)question;
}

/* The status of the answer, or PMIX_TIMEOUT. The clock is the system's, read anew each second: the condition is
 * older than any attribute that could name another. */
static int await(int64_t deadline_ns)
{
    pthread_mutex_lock(&answer.mutex);
    while (!answer.done && rr_now_ns() < deadline_ns) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        int64_t ns = until.tv_nsec + (int64_t)rr_deadline_ms(deadline_ns, 1000) * 1000000 + 1000000;
        until.tv_sec += ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        (void)pthread_cond_timedwait(&answer.changed, &answer.mutex, &until);
    }
    int status = answer.done ? answer.status : PMIX_ERR_TIMEOUT;
    answer.question++; /* what comes now comes too late */
    pthread_mutex_unlock(&answer.mutex);
    return status;
}

static int fence(int64_t deadline_ns, ringred_error *why)
{
    static const struct pmix_info collect = { .key = PMIX_COLLECT_DATA, .value = { PMIX_BOOL, { .flag = true } } };
    int status = pmix.fence(NULL, 0, &collect, 1, on_done, new_question());

    if (status == PMIX_SUCCESS)
        status = await(deadline_ns);
    if (status == PMIX_ERR_TIMEOUT)
        return rr_fail(why, RINGRED_ETIMEOUT, -1, 0, "not all ranks came to exchange addresses through PMIx in time");
    return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED ? 0 : refused(status, "the exchange", why);
}

static int get_text(char *text, size_t room, int64_t deadline_ns, ringred_error *why)
{
    struct pmix_proc root = pmix.self;

    root.rank = 0;
    int status = pmix.get_start(&root, PMIX_OUR_KEY, NULL, 0, on_value, new_question());
    if (status == PMIX_SUCCESS)
        status = await(deadline_ns);
    if (status != PMIX_SUCCESS)
        return status == PMIX_ERR_TIMEOUT
                   ? rr_fail(why, RINGRED_ETIMEOUT, 0, 0, "PMIx did not hand on rank 0's address in time")
                   : refused(status, "asking for rank 0's address", why);
    pthread_mutex_lock(&answer.mutex);
    int n = snprintf(text, room, "%s", answer.text);
    pthread_mutex_unlock(&answer.mutex);
    return n > 0 && (size_t)n < room
               ? 0
               : rr_fail(why, RINGRED_EWIRE, 0, 0, "rank 0's address came through PMIx with %d bytes", n);
}

/* With the mutex held. */
static int share(int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why)
{
    struct pmix_value value = { PMIX_STRING, { .string = text } };
    int status = PMIX_SUCCESS;

    RR_TRY(join(why));
    if ((int64_t)pmix.self.rank != rank)
        return rr_fail(why, RINGRED_ESETTING, rank, 0, "this is rank %d, but PMIx calls it %u", rank, pmix.self.rank);
    if (rank == 0) {
        status = pmix.put(PMIX_GLOBAL, PMIX_OUR_KEY, &value);
        status = status == PMIX_SUCCESS ? pmix.commit() : status;
    }
    if (status != PMIX_SUCCESS)
        return refused(status, "putting rank 0's address", why);
    RR_TRY(fence(deadline_ns, why));
    return rank == 0 ? 0 : get_text(text, room, deadline_ns, why);
}

int rr_pmix_share(int rank, char *text, size_t room, int64_t deadline_ns, ringred_error *why)
{
    pthread_mutex_lock(&pmix.mutex);
    int rc = share(rank, text, room, deadline_ns, why);
    leave(); /* its thread has no more to do */
    pthread_mutex_unlock(&pmix.mutex);
    return rc;
}
