/* SPDX-License-Identifier: Apache-2.0 */
/* Teams of strangers (setting team): which calls they get, and how each communicator comes by one, all of its ranks or
 * none. */
#include "core/core.h"

#include <stdio.h>
#include <string.h>

/* ---- which calls ---- */

static int32_t public_number(enum rr_collective what)
{
    static const int32_t numbers[RR_COLLECTIVES] = {
        [RR_ALLREDUCE] = RINGRED_ALLREDUCE,
        [RR_BROADCAST] = RINGRED_BROADCAST,
        [RR_REDUCE] = RINGRED_REDUCE,
        [RR_ALLGATHER] = RINGRED_ALLGATHER,
        [RR_GATHER] = RINGRED_GATHER,
        [RR_SCATTER] = RINGRED_SCATTER,
        [RR_REDUCE_SCATTER] = RINGRED_REDUCE_SCATTER,
        [RR_ALLTOALL] = RINGRED_ALLTOALL,
    };

    return numbers[what]; /* a barrier has none */
}

ringred_team_call rr_team_call(const ringred_comm *c, const struct rr_call *call)
{
    return (ringred_team_call){ .struct_size = sizeof(ringred_team_call),
                                .collective = public_number(call->what),
                                .send = call->in,
                                .recv = call->out,
                                .count = call->count,
                                .type = call->type,
                                .op = rr_is_reduction(call->what) ? call->op : 0,
                                .root = rr_is_rooted(call->what) ? call->root : -1,
                                .ranks = c->ranks,
                                .scale = call->scale == 0 ? 1 : call->scale };
}

static bool is_rounded(int type)
{
    return rr_is_narrow(type) || type == RINGRED_FLOAT32 || type == RINGRED_FLOAT64 || type == RINGRED_COMPLEX64 ||
           type == RINGRED_COMPLEX128;
}

/* Would it give other numbers than are promised? */
static const char *numbers_differ(const ringred_comm *c, const struct rr_call *call)
{
    bool fast = strcmp(rr_setting_text(&c->family->settings, RR_SET_NUMERICS), "fast") == 0;

    if (fast || !rr_is_reduction(call->what) || !is_rounded(call->type))
        return NULL;
    if (c->family->team->order != RINGRED_ORDER_TREE)
        return "it adds in another order, for which numerics=fast asks";
    return rr_has_other_bits(c, call, RR_ALGO_ONESHOT)
               ? "sums like this one usually go by way of hosts, which rounds otherwise"
               : NULL;
}

const char *rr_team_refusal(const ringred_comm *c, const struct rr_call *call)
{
    const ringred_team *by = c->family->team;

    if (!by)
        return "the setting team names none";
    if (c->ranks == 1)
        return "one rank has one way";
    if (!public_number(call->what) || !call->count || call->ragged || call->vectors || call->user || call->ours)
        return "no team takes such a call";
    const char *differ = numbers_differ(c, call);
    if (differ)
        return differ;
    ringred_team_call asked = rr_team_call(c, call);
    asked.send = NULL;
    asked.recv = NULL;
    return by->can(&asked) == 0 ? NULL : "it says that it cannot";
}

bool rr_team_takes(const ringred_comm *c, const struct rr_call *call)
{
    return !(c->wished & 1u << call->what) && !rr_team_refusal(c, call);
}

/* ---- getting one ---- */

static struct rr_crew *crew_new(const ringred_comm *c)
{
    const struct rr_family *f = c->family;
    struct rr_crew *crew = rr_alloc(1, sizeof *crew);

    if (!crew)
        return NULL;
    rr_plugin_host_init(&crew->host, &f->settings, &f->log, f->interrupt);
    memcpy(crew->host.secret, f->team_secret, sizeof f->team_secret);
    crew->host.table.rank = c->rank;
    crew->host.table.ranks = c->ranks;
    crew->by = f->team;
    crew->fd = -1;
    return crew;
}

int rr_team_prepare(ringred_comm *c, ringred_error *why)
{
    struct rr_crew *crew = crew_new(c);
    struct rr_family *f = c->family;

    if (!crew)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a team");
    pthread_mutex_lock(&f->pool);
    c->engine.crew = crew;
    crew->next = f->crews;
    f->crews = crew;
    pthread_mutex_unlock(&f->pool);
    ringred_error_init(why);
    return f->team->usable ? f->team->usable(&crew->host.table, why) : 0;
}

static void say(struct rr_team_offer *mine, int rc, const ringred_error *why)
{
    memset(mine, 0, sizeof *mine);
    mine->bytes = rc;
    if (rc < 0)
        snprintf(mine->text, sizeof mine->text, "%s", why->text);
}

/* Rank 0's id. It is made only when all ranks can use the team, since nobody takes it back. */
static void say_id(const ringred_comm *c, struct rr_team_offer *mine)
{
    ringred_error why;

    ringred_error_init(&why);
    memset(mine, 0, sizeof *mine);
    int rc = c && c->rank == 0 ? rr_crew_id(c->engine.crew, mine->text, &why) : 0;
    if (rc < 0)
        say(mine, rc, &why);
    mine->bytes = rc;
}

/* What one rank cannot do, none does. member NULL: all of them. */
static int judge(const struct rr_family *f, const struct rr_team_offer *all, const int16_t *member, int n,
                 ringred_error *why)
{
    for (int i = 0; i < n; i++) {
        const struct rr_team_offer *one = &all[member ? member[i] : i];
        if (one->bytes < 0)
            return rr_fail(why, one->bytes, i, 0, "rank %d cannot use team %s: %.300s", i,
                           rr_setting_text(&f->settings, RR_SET_TEAM), one->text);
    }
    return 0;
}

static int find(ringred_comm *c, ringred_error *why)
{
    struct rr_family *f = c->family;

    RR_TRY(rr_team_find(rr_setting_text(&f->settings, RR_SET_TEAM), &f->team, why));
    return rr_team_prepare(c, why);
}

/* An exchange in which each rank says whether it can go on. */
static int agree(ringred_comm *c, struct rr_boot *boot, struct rr_team_offer *all, ringred_error *why)
{
    RR_TRY(rr_boot_allgather(boot, all + c->ranks, sizeof *all, all, why));
    return judge(c->family, all, NULL, c->ranks, why);
}

static int meet(ringred_comm *c, struct rr_boot *boot, int64_t deadline, struct rr_team_offer *all, ringred_error *why)
{
    struct rr_team_offer *mine = all + c->ranks;
    struct rr_family *f = c->family;
    ringred_error own;

    rr_boot_secret(boot, "ringred team", f->team_secret);
    int rc = find(c, &own);
    say(mine, rc, &own);
    RR_TRY(agree(c, boot, all, why));
    if (c->ranks == 1) {
        rr_team_drop(c);
        return 0;
    }
    say_id(c, mine);
    RR_TRY(agree(c, boot, all, why));
    return rr_crew_open(c->engine.crew, &all[0], f->epoll, deadline, why);
}

int rr_team_meet(ringred_comm *c, struct rr_boot *boot, int64_t deadline, ringred_error *why)
{
    struct rr_team_offer *all = rr_alloc((size_t)c->ranks + 1, sizeof *all);

    if (!all)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to ask %d ranks", c->ranks);
    int rc = meet(c, boot, deadline, all, why);
    rr_free(all);
    return rc;
}

/* Two exchanges more for a split: the id; then who has it open. All ranks of the parent come to both, whatever becomes
 * of their own. */
int rr_team_split(ringred_comm *parent, ringred_comm *c, const int16_t *member, struct rr_team_offer *all)
{
    struct rr_team_offer *mine = all + parent->ranks;
    struct rr_family *f = parent->family;
    int64_t timeout = rr_setting(&f->settings, RR_SET_INIT_TIMEOUT);
    ringred_error why;

    if (c && c->ranks == 1)
        c = NULL;
    int n = c ? c->ranks : 0;
    say_id(c, mine);
    RR_TRY(rr_comm_exchange(parent, mine, all, sizeof *mine));
    int rc = judge(f, all, member, n, &why);
    if (rc == 0 && c)
        rc = rr_crew_open(c->engine.crew, &all[member[0]], f->epoll, rr_deadline(timeout), &why);
    say(mine, rc, &why);
    RR_TRY(rr_comm_exchange(parent, mine, all, sizeof *mine));
    rc = judge(f, all, member, n, &why);
    return rc < 0 ? rr_comm_refuse(parent, rc, "%s", why.text) : 0;
}

/* ---- its end ---- */

struct rr_crew *rr_team_leave(ringred_comm *c)
{
    struct rr_crew *crew = c->engine.crew, **at = &c->family->crews;

    while (crew && *at != crew)
        at = &(*at)->next;
    if (crew)
        *at = crew->next;
    c->engine.crew = NULL;
    return crew;
}

void rr_team_drop(ringred_comm *c)
{
    struct rr_family *f = c->family;

    pthread_mutex_lock(&f->pool);
    struct rr_crew *crew = rr_team_leave(c);
    pthread_mutex_unlock(&f->pool);
    rr_crew_close(crew, f->epoll);
}

/* What is at work stays in the list: only the owner of progress takes it off. */
static struct rr_crew *at_work(struct rr_family *f)
{
    pthread_mutex_lock(&f->pool);
    struct rr_crew *crew = f->crews;
    while (crew && (!crew->busy || crew->aborted))
        crew = crew->next;
    pthread_mutex_unlock(&f->pool);
    return crew;
}

void rr_teams_abort(struct rr_family *f)
{
    for (struct rr_crew *crew = f->team ? at_work(f) : NULL; crew; crew = at_work(f))
        rr_crew_abort(crew);
}

bool rr_teams_ring(const struct rr_family *f)
{
    for (const ringred_comm *c = f->team ? f->running : NULL; c; c = c->next) {
        const struct ringred_request *q = c->active ? rr_at_head(c) : NULL;
        const struct rr_crew *crew = c->engine.crew;
        if (crew && q && q->run.team && q->run.handed && (crew->fd < 0 || crew->lost.code))
            return false;
    }
    return true;
}
