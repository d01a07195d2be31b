/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of other sizes: of those that are left of a broken one, or with ranks that were not there before. Each
 * is made as any other, by a rendezvous of its own; what is special is how its ranks get to know of it. */
#include "core/core.h"

#include <sodium.h>

/* ---- shrink ---- */

struct search {
    struct rr_family *family;
    struct rr_meeting *meeting;
    uint8_t *gone;              /* [ranks] RR_GONE_ */
};

/* What this machine's kernel says of the ranks. */
static void look(void *context, uint8_t *fate)
{
    struct search *s = context;
    struct rr_family *f = s->family;

    if (f->shared)
        f->shared->check(f->shared, s->gone);
    bool owned = f->links && rr_family_own(f);
    for (int r = 0; r < f->ranks; r++) {
        fate[r] = s->gone[r] & RR_GONE_MEMORY ? RR_FATE_DEAD : 0;
        if (owned && r != f->rank && f->links->ops->silent(f->links, r))
            fate[r] |= RR_FATE_SILENT;
    }
    if (owned)
        rr_family_disown(f);
}

/* While the communicator is being made: does the caller want to stop, or is one of its ranks gone? */
static int32_t is_in_vain(void *context)
{
    const struct search *s = context;

    return rr_is_interrupted(&s->family->interrupt) || rr_reunion_lost(s->meeting);
}

/* Somebody was lost meanwhile; whoever is left can try again. */
static bool may_try_again(const struct rr_family *f, int rc)
{
    return rc == RINGRED_EPEER || (rc == RINGRED_EINTERRUPTED && !rr_is_interrupted(&f->interrupt));
}

/* last: it failed in the last step, and others may believe in it. */
static void drop_half_made(struct rr_reunion *reunion, ringred_comm **half, bool last)
{
    struct rr_family *f = *half ? (*half)->family : NULL;

    if (f && last && f->reunion && f->reunion != reunion) {
        rr_reunion_adopt(reunion, f->reunion);
        f->reunion = NULL;
    }
    if (f)
        (void)rr_family_free(f);
    *half = NULL;
}

/* One communicator of those that were agreed on. *last: it failed in the last step. */
static int make(struct search *s, struct rr_agreed *a, int64_t deadline_ns, ringred_comm **half, bool *last,
                ringred_error *why)
{
    struct rr_family *f = s->family;
    ringred_error full;

    a->launch.interrupt = (struct rr_interrupt){ is_in_vain, s, "a rank was lost" };
    int rc = rr_comm_open_like(f, &a->launch, deadline_ns, half, last, why);
    if (rc < 0 && rr_is_interrupted(&f->interrupt))
        rr_fail(why, RINGRED_EINTERRUPTED, f->rank, 0, "the caller interrupted rank %d while it made a communicator", f->rank);
    if (rc < 0 && *last && rr_reunion_doubt(f->reunion, a->member, a->launch.size, &full) < 0)
        *why = full;
    return rc < 0 ? why->code : 0;
}

/* Rounds of agreeing and making until one succeeds. *half: what the last one came to; NULL: nothing that can be used. */
static int search(struct search *s, const struct rr_reunion_call *call, struct rr_agreed *a, ringred_comm **half,
                  ringred_error *why)
{
    ringred_error lost = { .code = 0 }, own;
    bool last = false;

    for (;;) {
        int rc = rr_reunion_agree(s->meeting, last, a, &own);
        if (rc == RR_AGREED_BEFORE) {
            (void)rr_family_set((*half)->family, RR_COMM_READY); /* who has been lost since is found in it as ever */
            return 0;
        }
        drop_half_made(s->family->reunion, half, last);
        if (rc < 0) {
            *why = own;
            return rc;
        }
        rc = make(s, a, call->deadline_ns, half, &last, &lost);
        if (rc == 0)
            return 0;
        if (!may_try_again(s->family, rc)) {
            drop_half_made(s->family->reunion, half, last);
            *why = lost;
            return rc;
        }
    }
}

static int alone(struct rr_family *f, ringred_comm **smaller, ringred_error *why)
{
    const struct rr_launch launch = { .size = 1, .local_rank = -1, .local_size = -1, .source = "single", .listener = -1 };
    bool last;

    return rr_comm_open_like(f, &launch, INT64_MAX, smaller, &last, why);
}

static int shrink(struct rr_family *f, int64_t timeout_ns, ringred_comm **smaller, int *member, ringred_error *why)
{
    struct search s = { .family = f, .gone = rr_alloc((size_t)f->ranks, 1) };
    struct rr_agreed a = { .member = member };
    struct rr_reunion_call call = { .log = &f->log, .settings = &f->settings, .interrupt = &f->interrupt, .look = look,
                                    .context = &s, .deadline_ns = rr_deadline(timeout_ns) };
    ringred_comm *half = NULL;

    if (!s.gone)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to look for %d ranks", f->ranks);
    call.patience_ns = timeout_ns < 0 ? INT64_MAX : rr_deadline(timeout_ns / 2);
    int rc = rr_reunion_begin(f->reunion, &call, &s.meeting, why);
    if (rc == 0) {
        rc = search(&s, &call, &a, &half, why);
        rr_reunion_end(s.meeting, rc == 0);
    }
    rr_free(s.gone);
    sodium_memzero(a.launch.key, sizeof a.launch.key);
    if (rc == 0)
        *smaller = half;
    return rc;
}

/* The others must hear of it, too, if they have not: no operation of this communicator can end any more. */
static void give_up_old(struct rr_family *f)
{
    ringred_error why;

    rr_fail(&why, RINGRED_EABORTED, f->rank, 0, "rank %d left the communicator for a smaller one", f->rank);
    (void)rr_family_abort(f, &why); /* broken already: then its first failure stays */
    if (rr_family_own(f))
        rr_family_disown(f); /* and the others are told */
}

int rr_comm_shrink(ringred_comm *c, int64_t timeout_ns, ringred_comm **smaller, int32_t *ranks, ringred_error *why)
{
    struct rr_family *f = c->family;

    if (c != f->first)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "a communicator that was split from another cannot shrink: shrink the "
                       "one of all ranks, and split that again");
    if (atomic_exchange(&f->shrinking, 1))
        return rr_fail(why, RINGRED_EBUSY, -1, 0, "another thread is looking for the ranks that are left");
    int *member = rr_alloc((size_t)f->ranks, sizeof *member);
    int rc = member ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to look for %d ranks", f->ranks);
    ringred_comm *made = NULL;

    if (rc == 0 && f->doubtful)
        rc = rr_fail(why, RINGRED_EPARTITION, -1, 0, "this rank cannot know whether a communicator of %d ranks was made: the "
                     "others may have gone on in it", f->doubtful);
    if (rc == 0) {
        give_up_old(f);
        rc = f->ranks > 1 ? shrink(f, timeout_ns, &made, member, why) : alone(f, &made, why);
    }
    for (int r = 0; rc == 0 && ranks && r < made->ranks; r++)
        ranks[r] = member[r];
    if (rc == 0)
        *smaller = made;
    rr_free(member);
    atomic_store(&f->shrinking, 0);
    return rc;
}

/* ---- grow ---- */

struct larger {
    ringred_unique_id id;       /* rank 0's */
    int32_t size, status;
};

static int check_sizes(const ringred_comm *c, const struct larger *all, ringred_error *why)
{
    for (int r = 0; r < c->ranks; r++) {
        if (all[r].status < 0)
            return rr_fail(why, all[r].status, r, 0, "rank %d cannot read the unique id: the process of rank 0 must have "
                           "made it, and it serves once", r);
        if (all[r].size != all[0].size)
            return rr_fail(why, RINGRED_EINVAL, r, 0, "rank %d wants to grow to %d ranks, rank 0 to %d", r, all[r].size,
                           all[0].size);
    }
    return 0;
}

/* It failed in the last step. Others may have gone on in it, so c's ranks go on only if they agree once more. */
static void doubt_larger(struct rr_family *f, ringred_comm **made, int size)
{
    ringred_error why;

    if (f->ranks > 1) {
        (void)rr_reunion_doubt(f->reunion, NULL, size, &why); /* where it cannot be kept, that is */
        drop_half_made(f->reunion, made, true);
    } else { /* it has nobody to agree with, and may have no listeners to add these to */
        f->doubtful = size;
        struct rr_reunion *before = f->reunion;
        f->reunion = (*made)->family->reunion;
        (*made)->family->reunion = before;
        drop_half_made(NULL, made, false);
    }
    rr_fail(&why, RINGRED_EABORTED, f->rank, 0, "rank %d cannot know whether a communicator of %d ranks was made: those "
            "that are left must agree (ringred_comm_shrink)", f->rank, size);
    (void)rr_family_abort(f, &why);
}

int rr_comm_grow(ringred_comm *c, const ringred_unique_id *id, int size, int64_t timeout_ns, ringred_comm **larger,
                 ringred_error *why)
{
    struct larger mine = { .size = size }, *all = rr_alloc((size_t)c->ranks, sizeof *all);
    struct rr_reunion *reunion = c->family->reunion; /* NULL: one rank, and nobody to tell */
    struct rr_launch launch = { .rank = 0 };
    bool last = false;
    ringred_comm *made = NULL;

    if (c != c->family->first) {
        rr_free(all);
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "a communicator that was split from another cannot grow: grow the one of "
                       "all ranks, and split that again");
    }
    if (c->rank == 0) {
        mine.id = *id;
        mine.status = rr_launch_by_id(id, 0, size, &launch, why);
        if (reunion)
            rr_reunion_mask(reunion, &mine.id);
    }
    int rc = all ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to ask %d ranks", c->ranks);
    if (rc == 0 && (rc = rr_comm_exchange(c, &mine, all, sizeof mine)) < 0)
        (void)ringred_comm_error(c, why); /* rc is its code */
    if (rc == 0)
        rc = check_sizes(c, all, why);
    if (rc == 0 && c->rank > 0) {
        rr_reunion_mask(reunion, &all[0].id);
        rc = rr_launch_by_id(&all[0].id, c->rank, size, &launch, why);
        sodium_memzero(&all[0].id, sizeof all[0].id);
    }
    rr_free(all);
    if (rc == 0) {
        launch.interrupt = c->family->interrupt;
        rc = rr_comm_open_like(c->family, &launch, rr_deadline(timeout_ns), &made, &last, why);
    }
    sodium_memzero(&launch, sizeof launch); /* it has the key */
    if (rc == 0)
        *larger = made;
    else if (last)
        doubt_larger(c->family, &made, size);
    return rc;
}
