/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank of how many this process is, and where rank 0 can be found: from the caller's config,
 * else from the variables of a launcher, else alone. What contradicts itself is refused, never
 * guessed. */
#include "boot/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* torchrun's store usually holds MASTER_PORT: rank 0 then listens on one of the ports behind it */
#define TORCH_MORE_PORTS 8

/* ---- rank and size ---- */

struct place {
    int rank, size, local_rank, local_size; /* -1: not said */
    const char *source;
};

static bool is_given(const struct rr_settings *s, enum rr_setting which)
{
    return strcmp(s->value[which].origin, "default") != 0;
}

/* A given setting must be a number from `least`: -1 is only for "not given". */
static int own_number(const struct rr_settings *s, enum rr_setting which, int least, int *to,
                      ringred_error *why)
{
    if (!is_given(s, which))
        return 0;
    *to = (int)rr_setting(s, which);
    return *to >= least
               ? 0
               : rr_fail(why, RINGRED_ESETTING, -1, 0, "the setting %s is %d; it begins at %d",
                         rr_setting_name(which), *to, least);
}

static int own_place(const struct rr_settings *s, struct place *p, ringred_error *why)
{
    RR_TRY(own_number(s, RR_SET_RANK, 0, &p->rank, why));
    RR_TRY(own_number(s, RR_SET_SIZE, 1, &p->size, why));
    RR_TRY(own_number(s, RR_SET_LOCAL_RANK, 0, &p->local_rank, why));
    RR_TRY(own_number(s, RR_SET_LOCAL_SIZE, 1, &p->local_size, why));
    p->source = "ringred-run";
    return 0;
}

static int torch_number(const char *name, int least, int most, int *to, ringred_error *why)
{
    const char *text = getenv(name);
    char *end;
    long v;

    if (!text)
        return 0;
    errno = 0;
    v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < least || v > most)
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "%s is \"%.32s\", which is not a number from %d to %d", name, text, least,
                       most);
    *to = (int)v;
    return 0;
}

static int torch_place(struct place *p, ringred_error *why)
{
    RR_TRY(torch_number("RANK", 0, INT32_MAX, &p->rank, why));
    RR_TRY(torch_number("WORLD_SIZE", 1, INT32_MAX, &p->size, why));
    RR_TRY(torch_number("LOCAL_RANK", 0, INT32_MAX, &p->local_rank, why));
    RR_TRY(torch_number("LOCAL_WORLD_SIZE", 1, INT32_MAX, &p->local_size, why));
    p->source = "torchrun";
    return 0;
}

static int launcher_place(const struct rr_settings *s, struct place *p, ringred_error *why)
{
    if (is_given(s, RR_SET_RANK) || is_given(s, RR_SET_SIZE))
        return own_place(s, p, why);
    if (getenv("RANK") || getenv("WORLD_SIZE"))
        return torch_place(p, why);
    return 0;
}

static int config_place(const ringred_config *config, struct place *p, ringred_error *why)
{
    if (!config || (config->rank == -1 && config->size == -1))
        return 0;
    if (config->rank < -1 || config->size < -1 || config->size == 0)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "config.rank is %d and config.size %d",
                       config->rank, config->size);
    if (config->rank != -1 && config->rank != p->rank)
        p->local_rank = p->local_size = -1; /* the launcher's words are about another rank */
    p->rank = config->rank != -1 ? config->rank : p->rank;
    p->size = config->size != -1 ? config->size : p->size;
    p->source = "arguments";
    return 0;
}

static int check_place(const struct place *p, ringred_error *why)
{
    bool torch = strcmp(p->source, "torchrun") == 0;

    if (p->rank < 0 || p->size < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is given, but %s is not",
                       p->rank < 0 ? (torch ? "WORLD_SIZE" : "the size")
                                   : (torch ? "RANK" : "the rank"),
                       p->rank < 0 ? (torch ? "RANK" : "the rank (RINGRED_RANK)")
                                   : (torch ? "WORLD_SIZE" : "the size (RINGRED_SIZE)"));
    if (p->size > RR_RANKS_MOST)
        return rr_fail(why, RINGRED_ELIMIT, -1, 0,
                       "the size is %d; a communicator has at most %d ranks", p->size,
                       RR_RANKS_MOST);
    if (p->rank >= p->size)
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0, "rank %d of %d: ranks go from 0 to %d",
                       p->rank, p->size, p->size - 1);
    if ((p->local_size > p->size) || (p->local_size > 0 && p->local_rank >= p->local_size))
        return rr_fail(why, RINGRED_ESETTING, p->rank, 0,
                       "local rank %d of %d contradicts rank %d of %d", p->local_rank,
                       p->local_size, p->rank, p->size);
    return 0;
}

static int find_place(const ringred_config *config, const struct rr_settings *s,
                      struct rr_launch *launch, ringred_error *why)
{
    struct place p = { -1, -1, -1, -1, "single" };

    RR_TRY(launcher_place(s, &p, why));
    RR_TRY(config_place(config, &p, why));
    if (p.rank < 0 && p.size < 0) {
        p.rank = 0;
        p.size = 1;
    }
    RR_TRY(check_place(&p, why));
    launch->rank = p.rank;
    launch->size = p.size;
    launch->local_rank = p.local_rank;
    launch->local_size = p.local_size;
    snprintf(launch->source, sizeof launch->source, "%s", p.source);
    return 0;
}

/* ---- where rank 0 is ---- */

static void name_job(struct rr_launch *launch, const char *label, const char *const *words,
                     int count)
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
static int take_root(struct rr_launch *launch, const char *text, ringred_error *why)
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
    name_job(launch, "ringred root", words, 1);
    return 0;
}

static int torch_root(struct rr_launch *launch, ringred_error *why)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const char *words[] = { host, getenv("MASTER_PORT"), getenv("TORCHELASTIC_RUN_ID"),
                            getenv("TORCHELASTIC_RESTART_COUNT") };
    bool is_held = agent && strcmp(agent, "True") == 0;
    char text[300];
    int port = -1;

    RR_TRY(torch_number("MASTER_PORT", 1, 65535, &port, why));
    if (!host || !*host || port < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is not set: where is rank 0?",
                       port < 0 ? "MASTER_PORT" : "MASTER_ADDR");
    struct rr_root root = { .port = (uint16_t)port };
    snprintf(text, sizeof text, strchr(host, ':') ? "[%.255s]:%u+%d" : "%.255s:%u+%d", host,
             rr_root_port(&root, is_held), TORCH_MORE_PORTS - is_held);
    RR_TRY(take_root(launch, text, why));
    name_job(launch, "ringred torchrun", words, 4);
    return 0;
}

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

static int take_id(const ringred_config *config, struct rr_launch *launch, ringred_error *why)
{
    if (config->root)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "config.root and config.id are both given");
    RR_TRY(rr_unique_id_read(config->id, launch, why));
    snprintf(launch->source, sizeof launch->source, "unique id");
    if (launch->rank != 0)
        return 0;
    launch->listener = rr_unique_id_listener(launch->job);
    if (launch->listener < 0)
        return rr_fail(
            why, RINGRED_EINVAL, 0, 0,
            "rank 0 must be in the process that made the unique id, and an id serves only once");
    return 0;
}

static int find_root(const ringred_config *config, const struct rr_settings *s,
                     struct rr_launch *launch, ringred_error *why)
{
    const char *given = rr_setting_text(s, RR_SET_ROOT);

    if (config && config->id)
        return take_id(config, launch, why);
    if (config && config->root)
        return take_root(launch, config->root, why);
    if (*given) {
        if (strcmp(launch->source, "single") == 0)
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "a root is given, but neither rank nor size is");
        RR_TRY(take_root(launch, given, why));
        return take_root_fd(s, launch, why);
    }
    if (launch->size == 1)
        return 0;
    if (strcmp(launch->source, "torchrun") == 0 ||
        (strcmp(launch->source, "arguments") == 0 && getenv("MASTER_ADDR")))
        return torch_root(launch, why);
    return rr_fail(
        why, RINGRED_ESETTING, launch->rank, 0,
        "rank %d of %d needs to know where rank 0 is: set root (RINGRED_ROOT) to host:port",
        launch->rank, launch->size);
}

static int find(const ringred_config *config, const struct rr_settings *settings,
                struct rr_launch *launch, ringred_error *why)
{
    memset(launch, 0, sizeof *launch);
    launch->listener = -1;
    if (config)
        launch->interrupt = (struct rr_interrupt){ config->interrupt, config->interrupt_context };
    if (sodium_init() < 0)
        return rr_fail(why, RINGRED_ESYSTEM, -1, errno, "there is no source of random numbers");
    RR_TRY(find_place(config, settings, launch, why));
    return find_root(config, settings, launch, why);
}

int rr_launch_find(const ringred_config *config, const struct rr_settings *settings,
                   struct rr_launch *launch, ringred_error *why)
{
    struct rr_launch found;

    RR_TRY(find(config, settings, &found, why));
    RR_TRY(rr_key_find(config, settings, &found, why));
    *launch = found;
    return 0;
}

void rr_launch_describe(const struct rr_settings *settings, struct rr_text *t)
{
    static const enum rr_setting keys[] = { RR_SET_KEY, RR_SET_KEY_FILE, RR_SET_KEY_FD };
    struct rr_launch launch;
    ringred_error why = { 0 };
    const char *key = "none";

    if (find(NULL, settings, &launch, &why) < 0) {
        rr_text_add(t, "{\"error\":");
        rr_text_add_json(t, why.text);
        rr_text_add(t, "}");
        return;
    }
    for (int i = 0; i < 3; i++)
        if (is_given(settings, keys[i]))
            key = rr_setting_name(keys[i]);
    rr_text_add(
        t,
        "{\"source\":\"%s\",\"rank\":%d,\"size\":%d,\"local_rank\":%d,\"local_size\":%d,\"root\":",
        launch.source, launch.rank, launch.size, launch.local_rank, launch.local_size);
    rr_text_add_json(t, launch.root);
    rr_text_add(t, ",\"key\":\"%s\"}", key);
}
