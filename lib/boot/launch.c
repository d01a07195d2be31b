/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of how many this process is, and where rank 0 can be found: from the caller's config,
 * else from the variables of a launcher, else alone. What contradicts itself is refused, never
 * guessed. */
#include "boot/launch.h"

#include "boot/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* What all launchers have to say. */
struct view {
    struct {
        int rc; /* 1: recognised, 0: not, < 0: its variables make no sense, and why says so */
        struct rr_place place;
        ringred_error why;
    } of[RR_LAUNCHERS];
    int chosen; /* the first that is recognised, or makes no sense; -1: none */
};

/* ---- names ---- */

void rr_name_job(struct rr_launch *launch, const char *label, const char *const *words, int count)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, NULL, 0, sizeof launch->job);
    crypto_generichash_update(&s, (const unsigned char *)label, strlen(label) + 1);
    for (int i = 0; i < count; i++)
        if (words[i])
            crypto_generichash_update(&s, (const unsigned char *)words[i], strlen(words[i]) + 1);
    crypto_generichash_final(&s, launch->job, sizeof launch->job);
}

/* The ports, not the hosts: ranks may write the same place in different ways. */
int rr_take_root(struct rr_launch *launch, const char *text, ringred_error *why)
{
    struct rr_roots roots;
    char ports[RR_ROOTS * 12] = "";
    struct rr_text t = { ports, sizeof ports, 0 };
    const char *words[] = { ports };

    RR_TRY(rr_roots_parse(text, &roots, why));
    if (strlen(text) >= sizeof launch->root)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "the root is longer than %zu bytes",
                       sizeof launch->root - 1);
    memcpy(launch->root, text, strlen(text) + 1);
    for (int i = 0; i < roots.count; i++)
        rr_text_add(&t, "%u+%u ", roots.at[i].port, roots.at[i].more);
    rr_name_job(launch, "ringred root", words, 1);
    return 0;
}

int rr_take_host(struct rr_launch *launch, const char *host, int port, int more, ringred_error *why)
{
    char text[300];

    snprintf(text, sizeof text, strchr(host, ':') ? "[%.255s]:%d+%d" : "%.255s:%d+%d", host,
             port > 65535 ? port - 16 : port, more);
    return rr_take_root(launch, text, why);
}

/* "RANK=0, WORLD_SIZE=2": those of a launcher's variables that are set. */
static const char *shown(const struct rr_launcher *l, char *room, size_t bytes)
{
    struct rr_text t = { room, bytes, 0 };

    room[0] = 0;
    for (const char *const *name = l->variables; *name; name++)
        if (getenv(*name))
            rr_text_add(&t, "%s%s=%.40s", t.used ? ", " : "", *name, getenv(*name));
    return room;
}

/* ---- rank and size ---- */

/* Whether a place is possible at all. `as`: whose words they are, as a sentence begins. */
static int check_place(const struct rr_place *p, const char *as, ringred_error *why)
{
    if (p->rank < 0 || p->size < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is given, but %s is not",
                       p->rank < 0 ? "the size" : "the rank",
                       p->rank < 0 ? "the rank (RINGRED_RANK)" : "the size (RINGRED_SIZE)");
    if (p->size > RR_RANKS_MOST)
        return rr_fail(why, RINGRED_ELIMIT, -1, 0, "the size is %d; a communicator has at most %d ranks", p->size,
                       RR_RANKS_MOST);
    if (p->rank >= p->size)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0, "%srank %d of %d: ranks go from 0 to %d", as, p->rank,
                       p->size, p->size - 1);
    if ((p->local_size > p->size) || (p->local_size > 0 && p->local_rank >= p->local_size))
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0, "%slocal rank %d of %d contradicts rank %d of %d", as,
                       p->local_rank, p->local_size, p->rank, p->size);
    return 0;
}

/* "Slurm (SLURM_PROCID=3, SLURM_NTASKS=2) says: " */
static int check_launcher(int which, const struct rr_place *p, ringred_error *why)
{
    char as[200], values[150];

    if (which == 0) /* settings, which may come from anywhere and in halves */
        return 0;
    snprintf(as, sizeof as, "%s (%s) says: ", rr_launchers[which].name,
             shown(&rr_launchers[which], values, sizeof values));
    return check_place(p, as, why);
}

static void look_at_all(const struct rr_settings *s, struct view *v)
{
    v->chosen = -1;
    for (int i = 0; i < RR_LAUNCHERS; i++) {
        struct rr_place *p = &v->of[i].place;
        *p = (struct rr_place){ -1, -1, -1, -1, -1, -1, RR_EXCHANGE_NONE, "" };
        if (rr_launchers[i].look == rr_pmix_look && v->chosen >= 0) /* it would have to talk to a server */
            snprintf(p->note, sizeof p->note, "not asked, since %s comes before it", rr_launchers[v->chosen].name);
        else
            v->of[i].rc = rr_launchers[i].look(s, p, &v->of[i].why);
        if (v->of[i].rc > 0) {
            int rc = check_launcher(i, p, &v->of[i].why);
            v->of[i].rc = rc < 0 ? rc : 1;
        }
        if (v->of[i].rc != 0 && v->chosen < 0)
            v->chosen = i;
    }
}

static bool is_same(const struct rr_place *a, const struct rr_place *b)
{
    return a->rank == b->rank && a->size == b->size;
}

/* Whether both can be true. An outer launcher counts what it has started: agents of torchrun, or tasks and
 * containers in which equally many processes have been started, rank after rank. */
static bool fits(const struct rr_launcher *inner, const struct rr_place *a, const struct rr_launcher *outer,
                 const struct rr_place *b)
{
    bool agents = a->group_size > 0, step = outer->per_node || outer->look == rr_slurm_look;

    if (is_same(a, b))
        return true;
    if (step && (inner->nests || agents))
        return true;
    if (agents)
        return a->group_size == b->size;
    return step && a->size % b->size == 0 && a->rank / (a->size / b->size) == b->rank;
}

/* Our own variables override all others. */
static int check_others(const struct view *v, ringred_error *why)
{
    char mine[160], other[160];
    const struct rr_place *p = &v->of[v->chosen].place, *q;

    for (int i = v->chosen + 1; i < RR_LAUNCHERS && v->chosen > 0; i++) {
        q = &v->of[i].place;
        if (v->of[i].rc <= 0 || fits(&rr_launchers[v->chosen], p, &rr_launchers[i], q))
            continue;
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "%s says rank %d of %d (%s), but %s says rank %d of %d (%s): unset what is not meant, or set "
                       "RINGRED_RANK and RINGRED_SIZE",
                       rr_launchers[v->chosen].name, p->rank, p->size,
                       shown(&rr_launchers[v->chosen], mine, sizeof mine),
                       rr_launchers[i].name, q->rank, q->size, shown(&rr_launchers[i], other, sizeof other));
    }
    return 0;
}

/* Whatever the launchers say, if they make sense; a caller who gives rank and size has decided already. */
static int launcher_place(const struct view *v, bool decided, struct rr_place *p, const char **source,
                          ringred_error *why)
{
    if (v->chosen < 0 || (decided && v->of[v->chosen].rc < 0))
        return 0;
    if (v->of[v->chosen].rc < 0) {
        *why = v->of[v->chosen].why;
        return why->code;
    }
    if (!decided)
        RR_TRY(check_others(v, why));
    *p = v->of[v->chosen].place;
    *source = rr_launchers[v->chosen].name;
    return 0;
}

static int config_place(const ringred_config *config, struct rr_place *p, const char **source, ringred_error *why)
{
    if (!config || (config->rank == -1 && config->size == -1))
        return 0;
    if (config->rank < -1 || config->size < -1 || config->size == 0)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "config.rank is %d and config.size %d",
                       config->rank, config->size);
    if ((config->rank != -1 && config->rank != p->rank) || (config->size != -1 && config->size < p->local_size))
        p->local_rank = p->local_size = -1; /* the launcher's words are about another rank */
    p->rank = config->rank != -1 ? config->rank : p->rank;
    p->size = config->size != -1 ? config->size : p->size;
    *source = "arguments";
    return 0;
}

static int find_place(const ringred_config *config, const struct view *v, struct rr_launch *launch,
                      ringred_error *why)
{
    struct rr_place p = { -1, -1, -1, -1, -1, -1, RR_EXCHANGE_NONE, "" };
    const char *source = "single";
    bool decided = config && config->rank != -1 && config->size != -1;

    RR_TRY(launcher_place(v, decided, &p, &source, why));
    RR_TRY(config_place(config, &p, &source, why));
    if (p.rank < 0 && p.size < 0) {
        p.rank = 0;
        p.size = 1;
    }
    RR_TRY(check_place(&p, "", why));
    launch->rank = p.rank;
    launch->size = p.size;
    launch->local_rank = p.local_rank;
    launch->local_size = p.local_size;
    snprintf(launch->source, sizeof launch->source, "%s", source);
    return 0;
}

/* ---- where rank 0 is ---- */

/* The launcher's listener stays open for as long as the process lives: ranks that come early for
 * the next communicator wait in its queue. */
static int take_root_fd(const struct rr_settings *s, struct rr_launch *launch, ringred_error *why)
{
    int fd = (int)rr_setting(s, RR_SET_ROOT_FD), listens = 0;
    socklen_t n = sizeof listens;

    if (launch->rank != 0 || fd < 0)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) < 0 || !listens)
        return rr_fail(why, RINGRED_ESETTING, 0, 0,
                       "descriptor %d (root_fd) is not a listening socket", fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
        return rr_fail(why, RINGRED_ESYSTEM, 0, errno, "cannot use descriptor %d (root_fd)", fd);
    launch->listener = fd;
    return 0;
}

int rr_take_id(const ringred_unique_id *id, struct rr_launch *launch, ringred_error *why)
{
    RR_TRY(rr_unique_id_read(id, launch, why));
    launch->fresh = "unique id";
    if (launch->rank != 0)
        return 0;
    launch->listener = rr_unique_id_listener(launch->job);
    if (launch->listener < 0)
        return rr_fail(
            why, RINGRED_EINVAL, 0, 0,
            "rank 0 must be in the process that made the unique id, and an id serves only once");
    return 0;
}

/* At most one way may be given. */
static int check_ways(const ringred_config *config, ringred_error *why)
{
    static const char *const names[] = { "root", "id", "allgather", "store" };
    const bool given[] = { config->root != NULL, config->id != NULL, config->allgather != NULL, config->store != NULL };
    int first = -1;

    for (int i = 0; i < 4; i++) {
        if (given[i] && first >= 0)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "config.%s and config.%s are both given", names[first],
                           names[i]);
        first = given[i] ? i : first;
    }
    return 0;
}

static const char *name_of_space(enum rr_exchange how)
{
    return how == RR_EXCHANGE_PMI ? "PMI key-value space" : "PMIx key-value space";
}

/* By what one launcher says. 0: it does not say it. */
static int root_by(int which, const struct rr_place *p, const struct rr_settings *s, int64_t deadline_ns,
                   struct rr_launch *launch, ringred_error *why)
{
    if (p->exchange != RR_EXCHANGE_NONE) {
        launch->fresh = name_of_space(p->exchange);
        if (deadline_ns >= 0)
            RR_TRY(rr_exchange_space(p->exchange, s, deadline_ns, launch, why));
        return 1;
    }
    if (!rr_launchers[which].root)
        return 0;
    RR_TRY(rr_launchers[which].root(p, launch, why));
    return 1;
}

/* By the launcher that was chosen, or by another one that says the same of rank and size, but more of rank 0. */
static int launcher_root(const struct view *v, const struct rr_settings *s, int64_t deadline_ns,
                         struct rr_launch *launch, ringred_error *why)
{
    const struct rr_place self = { .rank = launch->rank, .size = launch->size };
    ringred_error first = { 0 }, next;

    for (int i = 0; i < RR_LAUNCHERS; i++) {
        if (v->of[i].rc <= 0 || !is_same(&v->of[i].place, &self))
            continue;
        int rc = root_by(i, &v->of[i].place, s, deadline_ns, launch, &next);
        if (rc > 0 || (rc < 0 && rc != RINGRED_ESETTING))
            return rc > 0 ? 0 : (*why = next, rc);
        if (rc < 0 && first.code == 0)
            first = next;
    }
    if (first.code < 0)
        return *why = first, first.code;
    return rr_fail(
        why, RINGRED_ESETTING, launch->rank, 0,
        "rank %d of %d needs to know where rank 0 is: set root (RINGRED_ROOT) to host:port%s%s",
        launch->rank, launch->size, v->chosen > 0 && v->of[v->chosen].place.note[0] ? "; " : "",
        v->chosen > 0 ? v->of[v->chosen].place.note : "");
}

/* deadline_ns < 0: only say where; exchange nothing. */
static int find_root(const ringred_config *config, const struct view *v, const struct rr_settings *s,
                     int64_t deadline_ns, struct rr_launch *launch, ringred_error *why)
{
    const char *given = rr_setting_text(s, RR_SET_ROOT);

    if (config)
        RR_TRY(check_ways(config, why));
    if (config && config->id) {
        snprintf(launch->source, sizeof launch->source, "unique id");
        return rr_take_id(config->id, launch, why);
    }
    if (config && config->root)
        return rr_take_root(launch, config->root, why);
    if (config && (config->allgather || config->store))
        return launch->size > 1 ? rr_exchange_own(config, s, deadline_ns, launch, why) : 0;
    if (*given) {
        if (strcmp(launch->source, "single") == 0)
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "a root is given, but neither rank nor size is");
        RR_TRY(rr_take_root(launch, given, why));
        return take_root_fd(s, launch, why);
    }
    if (launch->size == 1)
        return 0;
    if (strcmp(launch->source, "arguments") == 0 && getenv("MASTER_ADDR"))
        return rr_launchers[1].root(NULL, launch, why); /* torch's convention, whoever says which rank this is */
    return launcher_root(v, s, deadline_ns, launch, why);
}

static int find(const ringred_config *config, const struct rr_settings *settings, int64_t deadline_ns,
                const struct view *v, struct rr_launch *launch, ringred_error *why)
{
    memset(launch, 0, sizeof *launch);
    launch->listener = -1;
    if (config)
        launch->interrupt = (struct rr_interrupt){ config->interrupt, config->interrupt_context, NULL };
    if (sodium_init() < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "there is no source of random numbers");
    RR_TRY(find_place(config, v, launch, why));
    return find_root(config, v, settings, deadline_ns, launch, why);
}

/* Where both an exchanged id and the caller bring a key, the caller's is meant. */
static bool has_own_key(const ringred_config *config, const struct rr_settings *s)
{
    return (config && config->key) || rr_is_given(s, RR_SET_KEY) || rr_is_given(s, RR_SET_KEY_FILE) ||
           rr_is_given(s, RR_SET_KEY_FD);
}

int rr_launch_find(const ringred_config *config, const struct rr_settings *settings,
                   struct rr_launch *launch, ringred_error *why)
{
    int64_t timeout = config && config->timeout_ns ? config->timeout_ns : rr_setting(settings, RR_SET_INIT_TIMEOUT);
    int64_t deadline = rr_deadline(timeout);
    struct view *v = rr_alloc(1, sizeof *v);
    struct rr_launch found;
    int rc;

    if (!v)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to look for launchers");
    look_at_all(settings, v);
    rc = find(config, settings, deadline, v, &found, why);
    rr_free(v);
    if (rc == 0) {
        if (!(config && config->id) && has_own_key(config, settings))
            found.has_key = false;
        rc = rr_key_find(config, settings, &found, why);
        if (rc < 0 && found.listener >= 0)
            rr_unique_id_spent(found.listener);
    }
    if (rc == 0)
        *launch = found;
    sodium_memzero(&found, sizeof found); /* it has the key */
    return rc;
}

/* ---- in words ---- */

static void describe_variables(const struct rr_launcher *l, struct rr_text *t)
{
    const char *comma = "";

    rr_text_add(t, "[");
    for (const char *const *name = l->variables; *name; name++) {
        char text[160];
        if (!getenv(*name))
            continue;
        snprintf(text, sizeof text, "%s=%.100s", *name, getenv(*name));
        rr_text_add(t, "%s", comma);
        rr_text_add_json(t, text);
        comma = ",";
    }
    rr_text_add(t, "]");
}

static void describe_all(const struct view *v, struct rr_text *t)
{
    for (int i = 0; i < RR_LAUNCHERS; i++) {
        const struct rr_place *p = &v->of[i].place;
        rr_text_add(t, "%s{\"name\":\"%s\",\"recognised\":%s,\"used\":%s,\"variables\":", i ? "," : "",
                    rr_launchers[i].name, v->of[i].rc > 0 ? "true" : "false",
                    i == v->chosen && v->of[i].rc > 0 ? "true" : "false");
        describe_variables(&rr_launchers[i], t);
        if (v->of[i].rc > 0)
            rr_text_add(t, ",\"rank\":%d,\"size\":%d", p->rank, p->size);
        rr_text_add(t, ",\"note\":");
        rr_text_add_json(t, v->of[i].rc < 0 ? v->of[i].why.text : p->note);
        rr_text_add(t, "}");
    }
}

static const char *describe_key(const struct rr_settings *settings, const struct rr_launch *launch)
{
    static const enum rr_setting keys[] = { RR_SET_KEY, RR_SET_KEY_FILE, RR_SET_KEY_FD };

    for (int i = 0; i < 3; i++)
        if (rr_is_given(settings, keys[i]))
            return rr_setting_name(keys[i]);
    return launch->fresh ? launch->fresh : "none";
}

void rr_launch_describe(const struct rr_settings *settings, struct rr_text *t)
{
    struct rr_launch launch;
    ringred_error why = { 0 };
    struct view *v = rr_alloc(1, sizeof *v);

    if (!v) {
        rr_text_add(t, "{\"error\":\"no memory\"}");
        return;
    }
    look_at_all(settings, v);
    if (find(NULL, settings, -1, v, &launch, &why) < 0) {
        rr_text_add(t, "{\"error\":");
        rr_text_add_json(t, why.text);
    } else {
        rr_text_add(
            t,
            "{\"source\":\"%s\",\"rank\":%d,\"size\":%d,\"local_rank\":%d,\"local_size\":%d,\"root\":",
            launch.source, launch.rank, launch.size, launch.local_rank, launch.local_size);
        rr_text_add_json(t, launch.root[0] || !launch.fresh ? launch.root : launch.fresh);
        rr_text_add(t, ",\"key\":\"%s\"", describe_key(settings, &launch));
    }
    rr_text_add(t, ",\"launchers\":[");
    describe_all(v, t);
    rr_text_add(t, "]}");
    rr_free(v);
}
