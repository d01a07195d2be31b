/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made from another one. Nothing is connected, mapped or opened, a stranger's team apart: they borrow
 * memory of their ranks' heaps and have a channel on the links. Two exchanges on the parent make one, four where there
 * are teams: who belongs together; then, when each rank has what it needs, where its mates find it, or why it cannot.
 * So all ranks of a new communicator have it, or none. */
#include "core/core.h"

#include <string.h>

struct offer {
    int32_t status;             /* < 0: there will be no communicator */
    uint16_t channel;           /* what I call it on my links */
    uint16_t reserved;
    uint64_t page, generation;  /* where my page is in my heap */
    char text[104];             /* why not, if so */
};

int rr_comm_exchange(ringred_comm *parent, const void *mine, void *all, size_t bytes)
{
    const struct rr_call call = { .what = RR_ALLGATHER, .in = mine, .out = all, .count = bytes,
                                  .type = RINGRED_UINT8, .sets_up = true, .ours = true };

    return rr_comm_run(parent, &call);
}

/* ---- who belongs to it ---- */

static bool comes_before(const struct rr_split *all, int a, int b)
{
    return all[a].key < all[b].key || (all[a].key == all[b].key && a < b);
}

/* The parent's ranks with my color, in order; how many they are. */
static int find_members(const struct rr_split *all, int ranks, int me, int16_t *member)
{
    int n = 0;

    for (int r = 0; r < ranks; r++) {
        if (all[r].color != all[me].color)
            continue;
        int at = n++;
        for (; at > 0 && comes_before(all, r, member[at - 1]); at--)
            member[at] = member[at - 1];
        member[at] = (int16_t)r;
    }
    return n;
}

/* A list must be the same on all ranks that it names. */
static int check_list(const ringred_comm *parent, const struct rr_split *all, const int16_t *member, int n,
                      ringred_error *why)
{
    const struct rr_split *mine = &all[parent->rank];

    for (int i = 0; i < n; i++)
        if (all[member[i]].list != mine->list || all[member[i]].listed != mine->listed)
            return rr_fail(why, RINGRED_EINVAL, member[i], 0,
                           "rank %d named other ranks than rank %d: all ranks of a list must give the same one",
                           member[i], parent->rank);
    if (mine->list && n != mine->listed)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "of the %d ranks of the list, %d named it: all of them must",
                       mine->listed, n);
    return 0;
}

/* ---- one rank's part of it ---- */

static void part_free(ringred_comm *c)
{
    if (!c)
        return;
    rr_ops_free(c);
    rr_free(c->member);
    rr_free(c->host);
    rr_free(c->gone);
    rr_free(c->last);
    rr_free(c);
}

static ringred_comm *part_new(ringred_comm *parent, const int16_t *member, int n)
{
    ringred_comm *c = rr_alloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->family = parent->family;
    c->ranks = n;
    c->member = rr_alloc((size_t)n, sizeof *c->member);
    c->host = rr_alloc((size_t)n, sizeof *c->host);
    c->gone = rr_alloc((size_t)n, 1);
    if (!c->member || !c->host || !c->gone) {
        part_free(c);
        return NULL;
    }
    for (int r = 0; r < n; r++) {
        c->member[r] = parent->member ? parent->member[member[r]] : member[r];
        if (c->member[r] == c->family->rank)
            c->rank = r;
    }
    return c;
}

/* The layout, hosts numbered in order of their lowest rank; who sits with me. */
static void lay_out(ringred_comm *c)
{
    const struct rr_family *f = c->family;
    const int16_t *among = f->first->host;

    c->layout = (struct rr_layout){ .ranks = c->ranks, .host = c->host };
    for (int r = 0; r < c->ranks; r++) {
        int first = 0;
        while (among[c->member[first]] != among[c->member[r]])
            first++;
        c->host[r] = first == r ? (int16_t)c->layout.hosts++ : c->host[first];
        if (f->host[c->member[r]] == f->host[f->rank]) {
            c->local_rank += r < c->rank;
            c->local_ranks++;
        }
    }
}

/* With pool taken. */
static struct rr_plans *find_plans(ringred_comm *c, ringred_error *why)
{
    struct rr_family *f = c->family;
    struct rr_plans *p = f->plans;
    size_t bytes = (size_t)c->ranks * sizeof *c->host;

    while (p && (p->layout.ranks != c->ranks || p->rank != c->rank || p->shared != (c->engine.shared != NULL) ||
                 memcmp(p->host, c->host, bytes) != 0))
        p = p->next;
    if (p)
        return p;
    p = rr_plans_new(c, why);
    if (p && p->most_steps > f->first->plans->most_steps) {
        rr_plans_free(p);
        rr_fail(why, RINGRED_EINTERNAL, -1, 0, "plans of %d ranks are larger than those of %d", c->ranks, f->ranks);
        return NULL;
    }
    if (p) {
        p->next = f->plans;
        f->plans = p;
    }
    return p;
}

static int borrow(ringred_comm *c, struct offer *mine, ringred_error *why)
{
    struct rr_family *f = c->family;
    struct rr_engine *e = &c->engine;
    int rc = 0;

    e->rank = c->rank;
    e->ranks = c->ranks;
    e->member = c->member;
    e->polls = f->crowded ? 1 : 100;
    e->step = rr_step_run;
    e->scratch_bytes = f->first->engine.scratch_bytes;
    pthread_mutex_lock(&f->pool);
    if (f->shared && c->layout.hosts < c->ranks) {
        size_t stage = rr_stage_bytes((size_t)rr_setting(&f->settings, RR_SET_STAGE), c->local_ranks);
        rc = rr_shared_borrow(f->shared, c->ranks, c->rank, c->member, stage, &e->shared, &mine->page,
                              &mine->generation, why);
    }
    c->all_local = e->shared && c->layout.hosts == 1;
    if (rc == 0 && !(c->plans = find_plans(c, why)))
        rc = why->code;
    pthread_mutex_unlock(&f->pool);
    return rc;
}

static struct rr_transport *channels_of(const struct rr_family *f)
{
    return f->links ? f->links->core : f->post;
}

/* Frees what all have left. An errand: only the owner of progress knows of channels, and pool is taken. */
static int sweep(struct rr_family *f, void *with)
{
    (void)with;
    for (ringred_comm **at = &f->over; *at;) {
        ringred_comm *c = *at;
        if (c->engine.shared && !rr_shared_is_over(c->engine.shared)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        if (f->post)
            rr_channel_free(f->post, c->channel);
        rr_shared_free(c->engine.shared);
        part_free(c);
    }
    return 0;
}

/* The owner of progress: makes its channel. */
static int open_channel(struct rr_family *f, void *with)
{
    ringred_comm *c = ((void **)with)[0];
    ringred_error *why = ((void **)with)[1];
    int rc = rr_channel_new(channels_of(f), c->ranks, c->member, &c->channel, why);

    (void)sweep(f, NULL);
    if (rc == 0 && !c->all_local) {
        c->engine.links = f->links;
        c->engine.channel = c->channel;
    }
    return rc;
}

static int make(ringred_comm *c, struct offer *mine, ringred_error *why)
{
    void *with[2] = { c, why };

    lay_out(c);
    RR_TRY(borrow(c, mine, why));
    if (channels_of(c->family) && c->ranks > 1) {
        RR_TRY(rr_family_do(c->family, open_channel, with));
        mine->channel = rr_channel_name(c->channel);
    }
    if (!c->family->team || c->ranks == 1)
        return 0;
    int rc = rr_team_prepare(c, why);
    return rc < 0 ? rr_fail(why, rc, -1, 0, "team %s: %.300s", c->family->team->name, why->text) : 0;
}

struct parts {
    ringred_comm *c;
    const struct offer *offer;  /* [parent's ranks] */
    const int16_t *member;      /* of the parent */
};

/* The owner of progress: learns where the others' parts are. */
static int route(struct rr_family *f, void *with)
{
    const struct parts *p = with;

    (void)f;
    for (int r = 0; r < p->c->ranks && p->c->channel; r++)
        rr_channel_route(p->c->channel, r, p->offer[p->member[r]].channel);
    return 0;
}

static int meet(ringred_comm *c, const struct parts *p, ringred_error *why)
{
    struct rr_shared *s = c->engine.shared;
    int rc = 0;

    for (int i = 0; s && i < s->locals && rc == 0; i++) {
        const struct offer *o = &p->offer[p->member[s->local[i]]];
        rc = rr_shared_find(s, s->local[i], o->page, o->generation, why);
    }
    return rc;
}

/* ---- leaving it ---- */

static void take_off(ringred_comm **list, const ringred_comm *c)
{
    while (*list && *list != c)
        list = &(*list)->next;
    if (*list)
        *list = c->next;
}

struct leaver {
    ringred_comm *c;
    struct rr_crew *crew;       /* its team; NULL: none */
};

static int leave(struct rr_family *f, void *with)
{
    struct leaver *l = with;
    ringred_comm *c = l->c;

    l->crew = rr_team_leave(c);
    take_off(&f->first->next, c); /* pool is taken: an errand */
    take_off(&f->incoming, c);
    if (c->area && c != f->first) {
        c->area->taken = false;
        c->area = NULL;
    }
    if (f->links && (c->channel || c == f->first))
        rr_channel_leave(f->links->core, c->channel, c->sequence);
    return 0;
}

void rr_comm_drop(ringred_comm *c)
{
    struct rr_family *f = c->family;
    struct leaver l = { c, NULL };

    rr_requests_drop(c);
    (void)rr_family_do(f, leave, &l); /* it cannot fail */
    rr_record_leave(c);
    rr_crew_close(l.crew, f->epoll);
    if (c == f->first) {
        if (f->shared)
            rr_shared_leave(f->shared, c->sequence);
        return;
    }
    pthread_mutex_lock(&f->pool);
    rr_shared_return(c->engine.shared, c->sequence);
    c->next = f->over;
    f->over = c;
    pthread_mutex_unlock(&f->pool);
    (void)rr_family_do(f, sweep, NULL); /* it cannot fail */
}

void rr_parts_free(struct rr_family *f)
{
    while (f->over) {
        ringred_comm *c = f->over;
        f->over = c->next;
        rr_shared_free(c->engine.shared);
        part_free(c);
    }
}

static int give_up_channel(struct rr_family *f, void *with)
{
    ringred_comm *c = with;

    rr_channel_free(channels_of(f), c->channel);
    return 0;
}

/* Nobody will use it. */
static void drop_unused(ringred_comm *c)
{
    struct rr_family *f = c->family;

    rr_team_drop(c);
    if (c->channel)
        (void)rr_family_do(f, give_up_channel, c); /* it cannot fail */
    pthread_mutex_lock(&f->pool);
    rr_shared_free(c->engine.shared);
    pthread_mutex_unlock(&f->pool);
    part_free(c);
}

/* ---- the whole ---- */

static int make_offer(ringred_comm *parent, const struct rr_split *all, int16_t *member, ringred_comm **c,
                      struct offer *mine)
{
    int n = find_members(all, parent->ranks, parent->rank, member), rc = 0;
    ringred_error why = { .code = 0 };

    if (all[parent->rank].color < 0)
        return 0;
    rc = check_list(parent, all, member, n, &why);
    if (rc == 0 && (all[parent->rank].lacking || !(*c = part_new(parent, member, n))))
        rc = rr_fail(&why, RINGRED_ENOMEM, -1, 0, "no memory for another communicator");
    if (rc == 0)
        rc = make(*c, mine, &why);
    mine->status = rc;
    memcpy(mine->text, why.text, sizeof mine->text - 1);
    return n;
}

/* 0, or why one of the members could not. */
static int judge(ringred_comm *parent, const struct offer *offer, const int16_t *member, int n)
{
    for (int i = 0; i < n; i++)
        if (offer[member[i]].status < 0)
            return rr_comm_refuse(parent, offer[member[i]].status, "rank %d could not take part in a new communicator: "
                                  "%.103s", member[i], offer[member[i]].text);
    return 0;
}

/* Everything that is exchanged, of the parent's ranks. */
struct rooms {
    struct rr_split *all;
    struct offer *offer;
    int16_t *member;            /* of the new communicator */
    struct rr_team_offer *team; /* NULL: no teams */
};

/* All its ranks have their parts, and a team if there are teams: they are put together. */
static int complete(ringred_comm *c, const struct rooms *room)
{
    struct parts parts = { c, room->offer, room->member };
    ringred_error why;

    (void)rr_family_do(c->family, route, &parts); /* it cannot fail */
    int rc = meet(c, &parts, &why);
    if (rc < 0)
        (void)rr_family_abort(c->family, &why); /* the others believe in it */
    return rc;
}

static int split(ringred_comm *parent, const struct rr_split *mine, const struct rooms *room, ringred_comm **comm)
{
    struct offer own = { 0 };
    ringred_comm *c = NULL;
    const uint32_t number = atomic_fetch_add(&parent->record->splits, 1) + 1; /* all ranks make the same in turn */

    RR_TRY(rr_comm_exchange(parent, mine, room->all, sizeof *mine));
    int n = make_offer(parent, room->all, room->member, &c, &own);
    int rc = rr_comm_exchange(parent, &own, room->offer, sizeof own);
    bool met = rc == 0;
    if (met)
        rc = judge(parent, room->offer, room->member, n);
    if (met && room->team) { /* whatever became of this one: others may be made at the same time */
        int team = rr_team_split(parent, rc == 0 ? c : NULL, room->member, room->team);
        rc = rc == 0 ? team : rc;
    }
    if (rc == 0 && c)
        rc = complete(c, room);
    if (rc < 0) {
        if (c)
            drop_unused(c);
        return rc;
    }
    if (c) {
        rr_choose_init(c);
        rr_record_take_part(parent, c, number, room->member[0]);
        pthread_mutex_lock(&c->family->pool);
        c->family->handles++;
        pthread_mutex_unlock(&c->family->pool);
    }
    *comm = c;
    return 0;
}

int rr_comm_split(ringred_comm *parent, const struct rr_split *mine, ringred_comm **comm)
{
    size_t n = (size_t)parent->ranks;
    bool teams = parent->family->team != NULL;
    const struct rooms room = { rr_alloc(n, sizeof *room.all), rr_alloc(n, sizeof *room.offer),
                                rr_alloc(n, sizeof *room.member), teams ? rr_alloc(n + 1, sizeof *room.team) : NULL };
    int rc = room.all && room.offer && room.member && (room.team || !teams)
                 ? split(parent, mine, &room, comm)
                 : rr_comm_refuse(parent, RINGRED_ENOMEM, "no memory to ask %d ranks", parent->ranks);

    rr_free(room.all);
    rr_free(room.offer);
    rr_free(room.member);
    rr_free(room.team);
    return rc;
}
