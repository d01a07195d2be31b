/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins of strangers, transports and teams: finding, loading and listing them, and what the library offers them. A
 * plug-in stays loaded for as long as the process lives. */
#include "transport/transport.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

#ifndef RR_PLUGIN_FOLDER
#define RR_PLUGIN_FOLDER "/usr/lib/ringred"
#endif

static const struct kind {
    const char *name, *entry, *stem; /* stem: the entry without its number */
    const char *built_in;            /* for people */
} kinds[] = {
    [RR_PLUGIN_TRANSPORT] = { "transport", TEXT(RINGRED_TRANSPORT_ENTRY), "ringred_transport",
                              "neither built in (shm, tcp) nor " },
    [RR_PLUGIN_TEAM] = { "team", TEXT(RINGRED_TEAM_ENTRY), "ringred_team", "no " },
};

/* ---- finding ---- */

bool rr_plugin_is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_");

    return n > 0 && n <= 15 && name[n] == 0;
}

const char *rr_plugin_folders(void)
{
    const char *path = secure_getenv("RINGRED_PLUGIN_PATH");

    return path && *path ? path : RR_PLUGIN_FOLDER;
}

/* The first folder of the path that has the file: its whole name. */
static bool find_file(const char *name, char *file, size_t room)
{
    const char *at = rr_plugin_folders();

    while (*at) {
        size_t n = strcspn(at, ":");
        if (n && snprintf(file, room, "%.*s/libringred-%s.so", (int)n, at, name) < (int)room && access(file, R_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* A plug-in of another interface exports the same name with another number. */
static int wrong_entry(const struct kind *kind, void *object, const char *file, ringred_error *why)
{
    char other[64];

    for (int abi = 0; abi < 100; abi++) {
        snprintf(other, sizeof other, "%s_%d", kind->stem, abi);
        if (dlsym(object, other))
            return rr_fail(why, RINGRED_EVERSION, -1, 0, "%s is made for plug-in interface %d, this library has %d",
                           file, abi, RINGRED_PLUGIN_ABI_VERSION);
    }
    return rr_fail(why, RINGRED_EVERSION, -1, 0, "%s exports no function %s: it is no %s", file, kind->entry,
                   kind->name);
}

int rr_plugin_load(enum rr_plugin_kind which, const char *name, struct rr_loaded *loaded, ringred_error *why)
{
    const struct kind *kind = &kinds[which];

    if (!rr_plugin_is_name(name) || !find_file(name, loaded->file, sizeof loaded->file))
        return rr_fail(why, RINGRED_ESETTING, -1, 0,
                       "there is no %s \"%.32s\": %slibringred-%.32s.so in %.200s (variable RINGRED_PLUGIN_PATH)",
                       kind->name, name, kind->built_in, name, rr_plugin_folders());
    loaded->name = name;
    void *object = dlopen(loaded->file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!object)
        return rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0, "cannot load the %s %s: %s", kind->name, name, dlerror());
    loaded->entry = dlsym(object, kind->entry);
    return loaded->entry ? 0 : wrong_entry(kind, object, loaded->file, why);
}

int rr_plugin_check(const struct rr_loaded *loaded, uint32_t size, const char *calls_itself, size_t least,
                    ringred_error *why)
{
    if (size < least)
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "%s: its table has %u bytes, this library wants %zu",
                       loaded->file, size, least);
    if (!calls_itself || strcmp(calls_itself, loaded->name) != 0)
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "%s: it calls itself \"%.15s\", not \"%s\"", loaded->file,
                       calls_itself ? calls_itself : "", loaded->name);
    return 0;
}

/* ---- listing ---- */

static bool exports(const char *name, enum rr_plugin_kind which)
{
    struct rr_loaded ignored;

    return rr_plugin_load(which, name, &ignored, NULL) == 0;
}

static void describe_one(const char *name, enum rr_plugin_kind which, int *listed, struct rr_text *text)
{
    const ringred_transport *transport;
    const ringred_team *team;
    const char *is = NULL;
    ringred_error why;
    int rc = 0;

    ringred_error_init(&why);
    if (which == RR_PLUGIN_TRANSPORT && (rc = rr_plugin_find(name, &transport, &why)) == 0) {
        is = transport->text;
        rc = transport->usable ? transport->usable(NULL, &why) : 0;
    }
    if (which == RR_PLUGIN_TEAM && (rc = rr_team_find(name, &team, &why)) == 0) {
        is = team->text;
        rc = team->usable ? team->usable(NULL, &why) : 0;
    }
    rr_text_add(text, "%s{\"name\":\"%s\",\"usable\":%s,\"plugin\":true,\"%s\":", (*listed)++ ? "," : "", name,
                rc < 0 ? "false" : "true", rc < 0 ? "why" : "text");
    rr_text_add_json(text, rc < 0 ? why.text : is ? is : "");
    rr_text_add(text, "}");
}

static void describe_folder(const char *folder, enum rr_plugin_kind which, int *listed, struct rr_text *text)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    char name[16];
    int end;

    while (d && (e = readdir(d))) {
        end = 0;
        if (sscanf(e->d_name, "libringred-%15[a-z0-9_-].so%n", name, &end) != 1 || !end || e->d_name[end])
            continue;
        if (exports(name, RR_PLUGIN_TEAM) ? which == RR_PLUGIN_TEAM || exports(name, which)
                                          : which == RR_PLUGIN_TRANSPORT)
            describe_one(name, which, listed, text);
    }
    if (d)
        closedir(d);
}

void rr_plugins_describe(enum rr_plugin_kind which, int listed, struct rr_text *text)
{
    char folder[PATH_MAX];

    for (const char *at = rr_plugin_folders(); *at;) {
        size_t n = strcspn(at, ":");
        if (n && n < sizeof folder) {
            memcpy(folder, at, n);
            folder[n] = 0;
            describe_folder(folder, which, &listed, text);
        }
        at += n + (at[n] == ':');
    }
}

/* ---- the host table ---- */

static void host_log(void *context, int32_t level, const char *line)
{
    rr_log(((struct rr_plugin_host *)context)->log, level, "%s", line);
}

static int32_t host_fail(ringred_error *why, int32_t code, int32_t rank, int32_t system, const char *text)
{
    return rr_fail(why, code, rank, system, "%s", text);
}

static int64_t host_now(void)
{
    return rr_now_ns();
}

static const char *host_setting(void *context, const char *name)
{
    const struct rr_settings *s = ((struct rr_plugin_host *)context)->settings;

    for (int i = 0; i < RR_SETTINGS; i++)
        if (strcmp(rr_setting_name((enum rr_setting)i), name) == 0)
            return i == RR_SET_KEY ? NULL : rr_setting_text(s, (enum rr_setting)i);
    return NULL;
}

static void host_secret(void *context, const char *label, unsigned char secret[32])
{
    const struct rr_plugin_host *c = context;

    crypto_generichash(secret, 32, (const unsigned char *)label, strlen(label), c->secret, sizeof c->secret);
}

static int32_t host_own(void *context, int32_t fd)
{
    (void)context;
    return rr_fd_own(fd);
}

static void host_close(void *context, int32_t fd)
{
    (void)context;
    rr_fd_close(fd);
}

static int32_t host_is_interrupted(void *context)
{
    return rr_is_interrupted(&((struct rr_plugin_host *)context)->interrupt);
}

void rr_plugin_host_init(struct rr_plugin_host *h, const struct rr_settings *settings, const struct rr_log *log,
                         struct rr_interrupt interrupt)
{
    h->settings = settings;
    h->log = log;
    h->interrupt = interrupt;
    h->table = (ringred_host){ .struct_size = sizeof h->table,
                               .peer_timeout_ns = rr_setting(settings, RR_SET_PEER_TIMEOUT),
                               .context = h,
                               .log = host_log,
                               .fail = host_fail,
                               .now_ns = host_now,
                               .setting = host_setting,
                               .secret = host_secret,
                               .own_descriptor = host_own,
                               .close_descriptor = host_close,
                               .is_interrupted = host_is_interrupted };
}
