/* SPDX-License-Identifier: Apache-2.0 */
/* Handing a unique id from rank 0 to the others: through the key-value space of a launcher, or through what the
 * caller has: an allgather, or a store. The id carries the job's key, so both must be private to the job. */
#include "boot/launch.h"

#include "boot/inside.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STORE_KEY "ringred.id"
#define ROUNDED_NS ((int64_t)2000000) /* a store may count in milliseconds */
#define ID_TEXT   (2 * sizeof(ringred_unique_id) + 1)

/* A space serves one exchange: what came of it holds for all communicators of this process, whose rank 0 keeps
 * its listener. Guarded by the mutex, which is held during the exchange: no caller's code runs in it. */
static struct {
    pthread_mutex_t mutex;
    bool tried;
    uint32_t forks; /* of the process that tried */
    int listener;
    ringred_unique_id id;
    ringred_error failure; /* code 0: none */
} shared = { .mutex = PTHREAD_MUTEX_INITIALIZER, .listener = -1 };

/* The id as a text, since values of a space may be texts; an empty one where rank 0 could not make it. */
static int share_id(enum rr_exchange how, const struct rr_settings *settings, int rank, int64_t deadline_ns,
                    ringred_error *why)
{
    char text[ID_TEXT] = "-";
    size_t bytes = 0;
    ringred_error made = { 0 };
    int rc = rank == 0 ? rr_unique_id_open(settings, &shared.id, &made) : 0;

    if (rank == 0 && rc == 0)
        sodium_bin2hex(text, sizeof text, shared.id.bytes, sizeof shared.id.bytes);
    rc = (how == RR_EXCHANGE_PMI ? rr_pmi_share : rr_pmix_share)(rank, text, sizeof text, deadline_ns, why);
    if (rc == 0 && made.code < 0)
        rc = (*why = made, made.code);
    if (rc == 0 && (sodium_hex2bin(shared.id.bytes, sizeof shared.id.bytes, text, strlen(text), NULL, &bytes, NULL) ||
                    bytes != sizeof shared.id.bytes))
        rc = rr_fail(why, RINGRED_ESYSTEM, 0, 0, "rank 0 could not open a place to meet; its own error says why");
    sodium_memzero(text, sizeof text);
    return rc;
}

/* With the mutex held. */
static int exchange_once(enum rr_exchange how, const struct rr_settings *settings, int rank, int64_t deadline_ns,
                         ringred_error *why)
{
    struct rr_launch made = { .rank = rank };
    int rc;

    if (shared.tried && shared.forks != rr_forks())
        return rr_fail(why, RINGRED_EFORKED, -1, 0,
                       "this process is a fork of a rank, whose place in the job is not its own");
    if (shared.tried)
        return shared.failure.code < 0 ? (*why = shared.failure, why->code) : 0;
    shared.tried = true;
    shared.forks = rr_forks();
    rc = share_id(how, settings, rank, deadline_ns, &shared.failure);
    if (rc < 0)
        *why = shared.failure;
    if (rank == 0 && rr_unique_id_read(&shared.id, &made, NULL) == 0) {
        if (rc == 0)
            shared.listener = rr_unique_id_keep(made.job);
        else
            rr_unique_id_spent(rr_unique_id_listener(made.job));
    }
    sodium_memzero(&made, sizeof made);
    return rc;
}

int rr_exchange_space(enum rr_exchange how, const struct rr_settings *settings, int64_t deadline_ns,
                      struct rr_launch *launch, ringred_error *why)
{
    pthread_mutex_lock(&shared.mutex);
    int rc = exchange_once(how, settings, launch->rank, deadline_ns, why);
    if (rc == 0)
        rc = rr_unique_id_read(&shared.id, launch, why);
    launch->listener = rc == 0 && launch->rank == 0 ? shared.listener : -1;
    pthread_mutex_unlock(&shared.mutex);
    return rc;
}

/* ---- the caller's own means ---- */

static int by_allgather(const ringred_config *config, int rank, int size, ringred_unique_id *id, ringred_error *why)
{
    ringred_unique_id *all = rr_alloc((size_t)size, sizeof *all);
    int32_t rc;

    if (!all)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for the ids of %d ranks", size);
    rc = config->allgather(config->allgather_context, id, sizeof *id, all);
    *id = all[0];
    sodium_memzero(all, (size_t)size * sizeof *all);
    rr_free(all);
    return rc == 0 ? 0
                   : rr_fail(why, RINGRED_ESYSTEM, -1, 0, "config.allgather failed on rank %d: it returned %d", rank,
                             rc);
}

static int by_set(const ringred_store *store, ringred_unique_id *id, ringred_error *why)
{
    int32_t rc = store->set(store->context, STORE_KEY, id, sizeof *id);

    return rc == 0 ? 0
                   : rr_fail(why, RINGRED_ESYSTEM, 0, 0, "config.store could not set " STORE_KEY ": it returned %d",
                             rc);
}

static int by_get(const ringred_store *store, int64_t deadline_ns, ringred_unique_id *id, ringred_error *why)
{
    int64_t left = deadline_ns == INT64_MAX ? -1 : deadline_ns - rr_now_ns();
    int64_t n = store->get(store->context, STORE_KEY, id, sizeof *id, left < 0 && deadline_ns != INT64_MAX ? 0 : left);

    if (n == (int64_t)sizeof *id)
        return 0;
    if (n < 0 && deadline_ns != INT64_MAX && rr_now_ns() + ROUNDED_NS >= deadline_ns)
        return rr_fail(why, RINGRED_ETIMEOUT, 0, 0, "rank 0 did not put " STORE_KEY " into config.store in time");
    return n < 0 ? rr_fail(why, RINGRED_ESYSTEM, 0, 0, "config.store could not get " STORE_KEY ": it returned %lld",
                           (long long)n)
                 : rr_fail(why, RINGRED_EINVAL, 0, 0, "config.store has %lld bytes as " STORE_KEY ", not %zu",
                           (long long)n, sizeof *id);
}

static int check_store(const ringred_store *store, ringred_error *why)
{
    if (store->struct_size < sizeof *store)
        return rr_fail(why, RINGRED_EINVAL, -1, 0,
                       "config.store.struct_size is %u; call ringred_store_init first (%zu)",
                       store->struct_size, sizeof *store);
    if (rr_struct_is_newer(store, store->struct_size, sizeof *store))
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "config.store has fields that are newer than this library (%s)",
                       RINGRED_VERSION);
    if (!store->set || !store->get)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "config.store has no function %s", store->set ? "get" : "set");
    return 0;
}

int rr_exchange_own(const ringred_config *config, const struct rr_settings *settings, int64_t deadline_ns,
                    struct rr_launch *launch, ringred_error *why)
{
    ringred_unique_id id = { { 0 } };
    struct rr_launch made = { .rank = 0 };
    ringred_error own = { 0 };
    int rc = config->store ? check_store(config->store, why) : 0;

    if (rc < 0)
        return rc;
    if (launch->rank == 0 && rr_unique_id_open(settings, &id, &own) < 0)
        memset(&id, 0, sizeof id); /* the others are told as much, and need not wait */
    if (launch->rank == 0 && own.code == 0)
        (void)rr_unique_id_read(&id, &made, &own); /* what was just written can be read */
    if (config->allgather)
        rc = by_allgather(config, launch->rank, launch->size, &id, why);
    else
        rc = launch->rank == 0 ? by_set(config->store, &id, why) : by_get(config->store, deadline_ns, &id, why);
    if (own.code < 0) /* the first cause */
        rc = (*why = own, own.code);
    if (rc == 0 && sodium_is_zero(id.bytes, sizeof id.bytes))
        rc = rr_fail(why, RINGRED_ESYSTEM, 0, 0, "rank 0 could not open a place to meet; its own error says why");
    if (rc == 0)
        rc = rr_take_id(&id, launch, why);
    if (rc < 0 && launch->rank == 0)
        rr_unique_id_spent(rr_unique_id_listener(made.job));
    launch->fresh = config->allgather ? "config.allgather" : "config.store";
    sodium_memzero(&id, sizeof id);
    sodium_memzero(&made, sizeof made);
    return rc;
}
