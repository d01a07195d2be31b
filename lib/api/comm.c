/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to communicators: check arguments, convert, forward. */
#include "core/core.h"

#include <string.h>

void ringred_config_init(ringred_config *config, size_t size)
{
    const ringred_config ours = { .rank = -1, .size = -1 };

    rr_struct_init(config, size, &ours, sizeof ours);
}

void ringred_store_init(ringred_store *store, size_t size)
{
    const ringred_store ours = { 0 };

    rr_struct_init(store, size, &ours, sizeof ours);
}

#define CONFIG_LEAST offsetof(ringred_config, choose) /* what the first release had */

/* A caller's struct of another size: what is missing is zero, what is too much must be zero. */
static int read_config(const ringred_config *given, ringred_config *config, ringred_error *why)
{
    ringred_config_init(config, sizeof *config);
    if (!given)
        return 0;
    if (given->struct_size < CONFIG_LEAST)
        return rr_fail(why, RINGRED_EINVAL, -1, 0,
                       "config.struct_size is %u; call ringred_config_init first (%zu)",
                       given->struct_size, CONFIG_LEAST);
    if (rr_struct_is_newer(given, given->struct_size, sizeof *config))
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "config has fields that are newer than this library (%s)",
                       RINGRED_VERSION);
    memcpy(config, given, given->struct_size < sizeof *config ? given->struct_size : sizeof *config);
    config->struct_size = sizeof *config;
    if (config->rank < -1 || config->size < -1 || config->size == 0)
        return rr_fail(why, RINGRED_EINVAL, -1, 0,
                       "config has rank %d of size %d: give a rank from 0 to size - 1, or -1 for both",
                       config->rank, config->size);
    return 0;
}

int32_t ringred_comm_create(const ringred_config *given, ringred_comm **comm, ringred_error *why)
{
    ringred_config config;
    ringred_error own;

    if (!why)
        why = &own;
    ringred_error_init(why);
    if (!comm)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "comm is NULL: where should the communicator go?");
    RR_TRY(read_config(given, &config, why));
    return rr_comm_open(&config, comm, why);
}

static int make_part(ringred_comm *comm, const struct rr_split *mine, ringred_comm **part)
{
    if (comm->family->forks != rr_forks())
        return RINGRED_EFORKED;
    return rr_comm_split(comm, mine, part);
}

int32_t ringred_comm_split(ringred_comm *comm, int32_t color, int32_t key, ringred_comm **part)
{
    const struct rr_split mine = { .color = color, .key = key };

    if (!comm)
        return RINGRED_EINVAL;
    if (!part)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "split: part is NULL: where should the communicator go?");
    if (color < RINGRED_NO_COLOR)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "split: color is %d; give one from 0 up, or %d to belong to none",
                              color, RINGRED_NO_COLOR);
    return make_part(comm, &mine, part);
}

int32_t ringred_comm_group(ringred_comm *comm, const int32_t *ranks, int32_t count, ringred_comm **part)
{
    struct rr_split mine = { .color = RINGRED_NO_COLOR, .listed = count, .list = 1 };
    bool named[RR_REDUCE_SOURCES] = { false };

    if (!comm)
        return RINGRED_EINVAL;
    if (!part || count < 0 || count > comm->ranks || (count > 0 && !ranks))
        return rr_comm_refuse(comm, RINGRED_EINVAL, "group: %d ranks at %p, part at %p: give up to %d ranks", count,
                              (const void *)ranks, (void *)part, comm->ranks);
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->ranks || named[ranks[i]])
            return rr_comm_refuse(comm, RINGRED_EINVAL, "group: rank %d at place %d: give ranks from 0 to %d, each once",
                                  ranks[i], i, comm->ranks - 1);
        named[ranks[i]] = true;
        mine.list = (mine.list ^ (uint64_t)(uint32_t)ranks[i]) * 0xff51afd7ed558ccdu + 0x9e3779b97f4a7c15u;
        if (ranks[i] == comm->rank) {
            mine.color = ranks[0];
            mine.key = i;
        }
    }
    if (count > 0 && mine.color < 0)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "group: the list does not name this rank, %d; a rank that belongs "
                              "to no list gives an empty one", comm->rank);
    return make_part(comm, &mine, part);
}

static int check_remake(const char *what, const ringred_comm *comm, int64_t timeout_ns, ringred_comm *const *made,
                        ringred_error *why)
{
    if (!comm || !made)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s: %s is NULL", what, comm ? "where the communicator goes" : "comm");
    if (timeout_ns < -1)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s: timeout_ns is %lld; give nanoseconds, 0 for the setting init_timeout, "
                       "or -1", what, (long long)timeout_ns);
    if (comm->family->forks != rr_forks())
        return rr_fail(why, RINGRED_EFORKED, -1, 0, "%s", ringred_status_text(RINGRED_EFORKED));
    return 0;
}

static int64_t time_of(const ringred_comm *comm, int64_t timeout_ns)
{
    return timeout_ns ? timeout_ns : rr_setting(&comm->family->settings, RR_SET_INIT_TIMEOUT);
}

int32_t ringred_comm_shrink(ringred_comm *comm, int64_t timeout_ns, ringred_comm **smaller, int32_t *ranks,
                            ringred_error *why)
{
    ringred_error own;

    why = why ? why : &own;
    ringred_error_init(why);
    RR_TRY(check_remake("shrink", comm, timeout_ns, smaller, why));
    return rr_comm_shrink(comm, time_of(comm, timeout_ns), smaller, ranks, why);
}

int32_t ringred_comm_grow(ringred_comm *comm, const ringred_unique_id *id, int32_t size, int64_t timeout_ns,
                          ringred_comm **larger, ringred_error *why)
{
    ringred_error own;

    why = why ? why : &own;
    ringred_error_init(why);
    RR_TRY(check_remake("grow", comm, timeout_ns, larger, why));
    if (comm->rank == 0 && !id)
        return rr_fail(why, RINGRED_EINVAL, 0, 0, "grow: rank 0 gives no id; make one with ringred_unique_id_create");
    if (size <= comm->ranks || size > RR_RANKS_MOST)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "grow: size is %d; give more than the %d ranks there are", size,
                       comm->ranks);
    return rr_comm_grow(comm, id, size, time_of(comm, timeout_ns), larger, why);
}

int32_t ringred_op_create(ringred_comm *comm, ringred_op_fn fn, void *context, size_t element_bytes, int32_t *op)
{
    if (!comm)
        return RINGRED_EINVAL;
    if (!fn || !op)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "op_create: %s is NULL", fn ? "op" : "fn");
    if (!element_bytes || element_bytes > RR_USER_BYTES_MOST)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "op_create: element_bytes is %zu; give 1 to %zu", element_bytes,
                              RR_USER_BYTES_MOST);
    return rr_op_create(comm, fn, context, element_bytes, op);
}

int32_t ringred_comm_destroy(ringred_comm *comm)
{
    return comm ? rr_comm_close(comm) : RINGRED_OK;
}

int32_t ringred_comm_abort(ringred_comm *comm)
{
    ringred_error why;

    if (!comm)
        return RINGRED_EINVAL;
    if (comm->family->forks != rr_forks())
        return RINGRED_EFORKED;
    rr_fail(&why, RINGRED_EABORTED, comm->family->rank, 0, "rank %d aborted the communicator", comm->family->rank);
    return rr_family_abort(comm->family, &why);
}

int32_t ringred_comm_rank(const ringred_comm *comm)
{
    return comm ? comm->rank : RINGRED_EINVAL;
}

int32_t ringred_comm_size(const ringred_comm *comm)
{
    return comm ? comm->ranks : RINGRED_EINVAL;
}

int32_t ringred_comm_local_rank(const ringred_comm *comm)
{
    return comm ? comm->local_rank : RINGRED_EINVAL;
}

int32_t ringred_comm_local_size(const ringred_comm *comm)
{
    return comm ? comm->local_ranks : RINGRED_EINVAL;
}

/* A rank of the job as this communicator calls it. */
static int rank_here(const ringred_comm *c, int rank)
{
    for (int r = 0; r < c->ranks && c->member; r++)
        if (c->member[r] == rank)
            return r;
    return c->member ? -1 : rank;
}

int32_t ringred_comm_error(const ringred_comm *comm, ringred_error *error)
{
    ringred_comm *c = (ringred_comm *)(uintptr_t)comm; /* its lock changes, it does not */

    if (!comm || !error || error->struct_size < sizeof *error)
        return RINGRED_EINVAL;
    if (comm->family->forks != rr_forks())
        return RINGRED_EFORKED; /* another thread may have held the lock when it was copied */
    pthread_mutex_lock(&c->family->lock);
    const ringred_error *which = c->family->fault.code ? &c->family->fault : &c->refused;
    uint32_t size = error->struct_size;
    if (which->code)
        *error = *which;
    else
        ringred_error_init(error);
    if (which == &c->family->fault)
        error->rank = rank_here(c, error->rank);
    error->struct_size = size;
    pthread_mutex_unlock(&c->family->lock);
    return RINGRED_OK;
}

int64_t ringred_comm_describe(ringred_comm *comm, const char *collective, uint64_t bytes, char *text,
                              size_t room)
{
    if (!comm || (room && !text))
        return RINGRED_EINVAL;
    if (comm->family->forks != rr_forks())
        return RINGRED_EFORKED;
    return rr_comm_describe(comm, collective, bytes, text, room);
}

int64_t ringred_comm_dump(ringred_comm *comm, char *text, size_t room)
{
    if (!comm || (room && !text))
        return RINGRED_EINVAL;
    return comm->family->forks != rr_forks() ? RINGRED_EFORKED : rr_comm_dump(comm, text, room);
}
