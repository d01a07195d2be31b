/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of strangers: what the library asks of one, with the sentences that it gives put into ours. When it is asked
 * is the engine's business, and core's. */
#include "transport/transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define TABLE_LEAST sizeof(ringred_team) /* what the first release of the interface has */

static int check_table(const ringred_team *by, const struct rr_loaded *loaded, ringred_error *why)
{
    const char *lacks = NULL;

    RR_TRY(rr_plugin_check(loaded, by ? by->struct_size : 0, by ? by->name : NULL, TABLE_LEAST, why));
    if (by->order != RINGRED_ORDER_ANY && by->order != RINGRED_ORDER_TREE)
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "%s: it adds in order %d, which this library does not know", loaded->file,
                       by->order);
    lacks = !by->can     ? "can"
            : !by->id    ? "id"
            : !by->open  ? "open"
            : !by->start ? "start"
            : !by->test  ? "test"
            : !by->abort ? "abort"
            : !by->close ? "close"
                         : NULL;
    return lacks ? rr_fail(why, RINGRED_EVERSION, -1, 0, "%s: its table has no function \"%s\"", loaded->file, lacks) : 0;
}

int rr_team_find(const char *name, const ringred_team **by, ringred_error *why)
{
    ringred_team_entry entry;
    struct rr_loaded loaded;

    RR_TRY(rr_plugin_load(RR_PLUGIN_TEAM, name, &loaded, why));
    memcpy(&entry, &loaded.entry, sizeof entry);
    const ringred_team *found = entry();
    RR_TRY(check_table(found, &loaded, why));
    *by = found;
    return 0;
}

/* ---- making one ---- */

int rr_crew_id(const struct rr_crew *c, void *id, ringred_error *why)
{
    int rc = c->by->id(&c->host.table, id, why);

    return rc <= RINGRED_ADDRESS_MOST ? rc : rr_fail(why, RINGRED_EINTERNAL, -1, 0, "an id of %d bytes", rc);
}

/* What a function of it failed with, as ours. */
static int failed(const struct rr_crew *c, int rc, const char *what, ringred_error *why)
{
    if (rc > 0)
        return rr_fail(why, RINGRED_EINTERNAL, -1, 0, "team %s: %s answered %d", c->by->name, what, rc);
    int32_t system = why->system; /* which its sentence has in words */
    rr_fail(why, rc, why->rank, 0, "team %s: %.400s", c->by->name, why->text[0] ? why->text : what);
    why->system = system;
    return rc;
}

static int watch(struct rr_crew *c, int epoll, ringred_error *why)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };

    c->fd = c->by->descriptor ? c->by->descriptor(c->self) : -1;
    if (c->fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) == 0)
        return 0;
    int system = errno;
    c->fd = -1;
    return rr_fail(why, RINGRED_ESYSTEM, -1, system, "team %s: its descriptor cannot be watched", c->by->name);
}

int rr_crew_open(struct rr_crew *c, const struct rr_team_offer *first, int epoll, int64_t deadline_ns,
                 ringred_error *why)
{
    int bytes = first->bytes < RINGRED_ADDRESS_MOST ? first->bytes : RINGRED_ADDRESS_MOST;

    ringred_error_init(why);
    why->rank = -1;
    c->fd = -1;
    int rc = c->by->open(&c->host.table, first->text, bytes, deadline_ns, &c->self, why);
    if (rc) {
        c->self = NULL;
        return failed(c, rc, "open", why);
    }
    return watch(c, epoll, why);
}

/* ---- calls ---- */

int rr_crew_start(struct rr_crew *c, const ringred_team_call *call, ringred_error *why)
{
    ringred_error_init(why);
    why->rank = -1;
    c->busy = true;
    c->gone_ns = 0;
    int rc = c->by->start(c->self, call, why);
    return rc ? failed(c, rc, "start", why) : 0;
}

int rr_crew_test(struct rr_crew *c, ringred_error *why)
{
    ringred_error_init(why);
    why->rank = -1;
    int rc = c->by->test(c->self, why);
    if (rc == RINGRED_PENDING)
        return rc;
    if (rc)
        return failed(c, rc, "test", why);
    c->busy = false;
    return 0;
}

void rr_crew_abort(struct rr_crew *c)
{
    if (c->self && !c->aborted)
        c->by->abort(c->self);
    c->aborted = true;
}

void rr_crew_close(struct rr_crew *c, int epoll)
{
    if (!c)
        return;
    if (c->busy)
        rr_crew_abort(c);
    if (c->self && c->fd >= 0)
        (void)epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL); /* it is there */
    if (c->self)
        c->by->close(c->self);
    rr_free(c);
}
