/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of settings: name, type, range, default and what each is for. The same name serves as
 * "name=value" argument and, in capitals after RINGRED_, as environment variable. */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

enum kind { NUMBER, BYTES, SECONDS, CHOICE, TEXT, SECRET };

static const struct row {
    const char *name;
    enum kind kind;
    int64_t least, most;
    const char *fallback;
    const char *choices; /* CHOICE: words with | between; an unlisted word is an error */
    const char *help;
} rows[RR_SETTINGS] = {
    [RR_SET_TRANSPORT] = { "transport", TEXT, 0, 0, "auto", NULL,
                           "how ranks reach each other: shm, tcp, the name of a plug-in, or shm,NAME: shm inside a host and "
                           "NAME between hosts; auto: shm,tcp" },
    [RR_SET_TEAM] = { "team", TEXT, 0, 0, "", NULL,
                      "a plug-in that runs whole collectives, those that it can; sums of floats if numerics=fast, or "
                      "if it keeps the library's order; empty: none" },
    [RR_SET_ALGORITHM] = { "algorithm", TEXT, 0, 0, "auto", NULL,
                           "plans by name, with commas, each for its collective and where it is possible "
                           "(ringred-info --algorithms); auto: by size" },
    [RR_SET_TUNING] = { "tuning", TEXT, 0, 0, "", NULL,
                        "file with a table of measured choices (ringred-bench tune writes one), the same for all "
                        "ranks; empty: none" },
    [RR_SET_NUMERICS] = { "numerics", CHOICE, 0, 0, "canonical", "canonical|portable|fast",
                          "canonical: one summation tree, over unequal hosts that of the layout; portable: the same "
                          "bits on every layout of hosts; fast: any order" },
    [RR_SET_SEGMENT] = { "segment", BYTES, 0, 1 << 26, "0", NULL,
                         "bytes of a vector that are handled as one piece; 0: chosen" },
    [RR_SET_HOST] = { "host", TEXT, 0, 0, "", NULL,
                      "ranks with another value count as being on another host" },
    [RR_SET_RANKS_PER_HOST] = { "ranks_per_host", NUMBER, 0, 1 << 16, "0", NULL,
                                "pretend that each n ranks in turn share a host; 0: as it is" },
    [RR_SET_INTERFACE] = { "interface", TEXT, 0, 0, "", NULL,
                           "network interfaces to use, by name, address or network (10.0.0.0/8), with commas; empty: "
                           "any that reaches the peer" },
    [RR_SET_PORT_RANGE] = { "port_range", TEXT, 0, 0, "", NULL,
                            "ports that may be used, 20000-20100, at both ends of a connection; empty: any" },
    [RR_SET_KEY] = { "key", SECRET, 16, 0, "", NULL, "the job's secret, at least 16 bytes" },
    [RR_SET_KEY_FILE] = { "key_file", TEXT, 0, 0, "", NULL,
                          "a file only its owner can read that holds the job's secret" },
    [RR_SET_KEY_FD] = { "key_fd", NUMBER, -1, 1 << 20, "-1", NULL,
                        "a descriptor to read the job's secret from; launchers use it" },
    [RR_SET_REQUIRE_KEY] = { "require_key", NUMBER, 0, 1, "0", NULL,
                             "1: refuse to start without a secret" },
    [RR_SET_INIT_TIMEOUT] = { "init_timeout", SECONDS, 0, 0, "60", NULL,
                              "seconds that making a communicator may take" },
    [RR_SET_TIMEOUT] = { "timeout", SECONDS, 0, 0, "-1", NULL,
                         "seconds that a blocking collective may take; -1: for ever" },
    [RR_SET_PEER_TIMEOUT] = { "peer_timeout", SECONDS, 0, 0, "30", NULL,
                              "seconds of silence of a peer's kernel after which it counts as lost" },
    [RR_SET_STALL_WARNING] = { "stall_warning", SECONDS, 0, 0, "30", NULL,
                               "seconds for which an operation must not have moved before a warning says who is missing; "
                               "-1: never" },
    [RR_SET_DUMP_DIR] = { "dump_dir", TEXT, 0, 0, "", NULL,
                          "folder for a file of each rank's last operations, written when a communicator breaks and at a stall "
                          "warning (ringred-info --merge-dumps reads them); empty: none" },
    [RR_SET_LINGER] = { "linger", SECONDS, 0, 0, "5", NULL,
                        "seconds that destroy waits for peers to take what was sent" },
    [RR_SET_TCP_CONGESTION] = { "tcp_congestion", TEXT, 0, 0, "auto", NULL,
                                "congestion control of data sockets: auto (probed), system, or a name" },
    [RR_SET_TCP_STREAMS] = { "tcp_streams", NUMBER, 0, 16, "0", NULL,
                             "connections to each rank of another host; 0: as many as make 16 from each host, "
                             "at most 8" },
    [RR_SET_TCP_ENCRYPTION] = { "tcp_encryption", CHOICE, 0, 0, "off", "off|on|chacha20",
                                "on: what travels over TCP is encrypted, which takes a key; chacha20: also where both ends "
                                "have AES in hardware" },
    [RR_SET_STAGE] = { "stage", BYTES, 0, 1 << 30, "0", NULL,
                       "bytes of shared memory per rank that ordinary buffers are handed over in, at "
                       "least 64K; 0: chosen" },
    [RR_SET_HEAP] = { "heap", BYTES, 0, (int64_t)1 << 44, "0", NULL,
                      "most bytes of ringred_alloc memory per rank; 0: as much as the host has" },
    [RR_SET_SPIN] = { "spin", NUMBER, -1, 1000000, "-1", NULL,
                      "microseconds to spin or yield before sleeping; -1: chosen" },
    [RR_SET_PROGRESS] = { "progress", CHOICE, 0, 0, "caller", "caller|thread",
                          "who moves operations that were started: whoever calls the library, or a thread as well, "
                          "one for the process" },
    [RR_SET_PROGRESS_CPUS] = { "progress_cpus", TEXT, 0, 0, "", NULL,
                               "CPUs that the progress thread may use, such as 0-3,7; empty: those of the caller that "
                               "starts it" },
    [RR_SET_LOG] = { "log", CHOICE, 0, 0, "none", "none|error|warn|info|trace",
                     "lines on standard error" },
    [RR_SET_TRACE] = { "trace", TEXT, 0, 0, "", NULL,
                       "file for a Chrome trace, %r is the rank; empty: none" },
    [RR_SET_FAULT] = { "fault", TEXT, 0, 0, "", NULL,
                       "faults to inject, for tests (docs/TESTING.md)" },
    [RR_SET_RANK] = { "rank", NUMBER, -1, 1 << 20, "-1", NULL, "this process's rank" },
    [RR_SET_SIZE] = { "size", NUMBER, -1, 1 << 20, "-1", NULL, "number of ranks in the job" },
    [RR_SET_LOCAL_RANK] = { "local_rank", NUMBER, -1, 1 << 20, "-1", NULL, "rank on this host" },
    [RR_SET_LOCAL_SIZE] = { "local_size", NUMBER, -1, 1 << 20, "-1", NULL, "ranks on this host" },
    [RR_SET_ROOT] = { "root", TEXT, 0, 0, "", NULL, "host:port where rank 0 listens" },
    [RR_SET_ROOT_FD] = { "root_fd", NUMBER, -1, 1 << 20, "-1", NULL,
                         "a listening socket for rank 0; launchers use it" },
    [RR_SET_CONFIG] = { "config", TEXT, 0, 0, "", NULL,
                        "file with settings as lines name = value, which variables and arguments override; empty: none" },
};

const char *rr_setting_name(enum rr_setting which)
{
    return rows[which].name;
}

const char *rr_setting_help(enum rr_setting which)
{
    return rows[which].help;
}

size_t rr_word_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);

    if (n >= 64)
        return n;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = corner + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            corner = row[j];
            row[j] = row[j] + 1 < change ? row[j] + 1 : change;
            row[j] = row[j - 1] + 1 < row[j] ? row[j - 1] + 1 : row[j];
        }
    }
    return row[n];
}

static int find(const char *name, const char *shown, ringred_error *why)
{
    int nearest = 0;

    for (int i = 0; i < RR_SETTINGS; i++) {
        if (strcasecmp(name, rows[i].name) == 0)
            return i;
        if (rr_word_distance(name, rows[i].name) < rr_word_distance(name, rows[nearest].name))
            nearest = i;
    }
    return rr_fail(why, RINGRED_ESETTING, -1, 0,
                   "there is no setting \"%s\"; the nearest is \"%s\"", shown, rows[nearest].name);
}

static bool parse_bytes(const char *text, int64_t *number)
{
    char *end;

    errno = 0;
    long long v = strtoll(text, &end, 10);
    int shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == text || errno || end[shift != 0] || v < 0 || v > INT64_MAX >> shift)
        return false;
    *number = v << shift;
    return true;
}

static bool parse_number(const char *text, int64_t *number)
{
    char *end;

    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && !*end && !errno;
}

static bool parse_seconds(const char *text, int64_t *number)
{
    char *end;

    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || errno || !(v == -1 || (v >= 0 && v <= 1e9)))
        return false;
    *number = v == -1 ? -1 : (int64_t)(v * 1e9);
    return true;
}

static bool parse_choice(const char *choices, const char *text, int64_t *number)
{
    size_t n = strlen(text);

    *number = 0;
    for (const char *at = choices; n && at; (*number)++) {
        const char *bar = strchr(at, '|');
        size_t m = bar ? (size_t)(bar - at) : strlen(at);
        if (m == n && strncasecmp(at, text, n) == 0)
            return true;
        at = bar ? bar + 1 : NULL;
    }
    return false;
}

/* The range or form of a row, in words. */
static const char *form(const struct row *row, char *room, size_t bytes)
{
    switch (row->kind) {
    case CHOICE:
        return row->choices;
    case SECONDS:
        return "seconds, or -1 for ever";
    case SECRET:
        return "a text of at least 16 bytes";
    case NUMBER:
    case BYTES:
        snprintf(room, bytes, "%lld to %lld%s", (long long)row->least, (long long)row->most,
                 row->kind == BYTES ? " bytes (K, M, G allowed)" : "");
        return room;
    default:
        return "a text of at most 255 bytes";
    }
}

static bool accept(const struct row *row, const char *text, struct rr_setting_value *v)
{
    int64_t n = 0;
    bool ok = strlen(text) < sizeof v->text;

    switch (row->kind) {
    case NUMBER:
        ok = ok && parse_number(text, &n) && n >= row->least && n <= row->most;
        break;
    case BYTES:
        ok = ok && parse_bytes(text, &n) && n >= row->least && n <= row->most;
        break;
    case SECONDS:
        ok = ok && parse_seconds(text, &n);
        break;
    case CHOICE:
        ok = ok && parse_choice(row->choices, text, &n);
        break;
    case SECRET:
        ok = ok && (!*text || strlen(text) >= (size_t)row->least);
        break;
    case TEXT:
        break;
    }
    if (!ok)
        return false;
    v->number = n;
    memcpy(v->text, text, strlen(text) + 1);
    for (char *c = v->text; *c && row->kind == CHOICE; c++)
        *c = (char)tolower((unsigned char)*c); /* as the table spells it */
    return true;
}

static int set(struct rr_settings *s, int which, const char *shown, const char *value,
               const char *origin, ringred_error *why)
{
    const struct row *row = &rows[which];
    char room[96];

    if (!accept(row, value, &s->value[which]))
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%s is \"%.64s\", which is not %s", shown,
                       row->kind == SECRET ? "(hidden)" : value, form(row, room, sizeof room));
    snprintf(s->value[which].origin, sizeof s->value[which].origin, "%s", origin);
    return 0;
}

int rr_setting_find(const char *name, ringred_error *why)
{
    return find(name, name, why);
}

int rr_settings_set(struct rr_settings *s, const char *name, const char *value, const char *origin,
                    ringred_error *why)
{
    int which = find(name, name, why);

    return which < 0 ? which : set(s, which, name, value, origin, why);
}

/* RINGRED_ variables that are not settings: read by the Python package and by secure loaders. */
static bool is_foreign(const char *name)
{
    static const char *const known[] = { "LIBRARY", "PLUGIN_PATH", "JOB" };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

static int load_environment(struct rr_settings *s, ringred_error *why)
{
    for (char **e = environ; e && *e; e++) {
        char name[64];
        const char *equals = strchr(*e, '=');
        if (strncmp(*e, "RINGRED_", 8) != 0 || !equals)
            continue;
        size_t n = (size_t)(equals - *e);
        n = n < sizeof name ? n : sizeof name - 1; /* a longer name is none of ours, cut or not */
        memcpy(name, *e, n);
        name[n] = 0;
        if (is_foreign(name + 8))
            continue;
        int which = find(name + 8, name, why);
        RR_TRY(which);
        if (which != RR_SET_CONFIG) /* has been read */
            RR_TRY(set(s, which, name, equals + 1, "environment", why));
    }
    return 0;
}

/* The last argument that names a file wins over the variable, which a program with more rights than its user
 * does not heed. */
static int load_file(struct rr_settings *s, const char *const *arguments, ringred_error *why)
{
    const char *path = secure_getenv("RINGRED_CONFIG"), *origin = "environment";

    for (; arguments && *arguments; arguments++)
        if (strncasecmp(*arguments, "config=", 7) == 0) {
            path = *arguments + 7;
            origin = "argument";
        }
    if (!path)
        return 0;
    RR_TRY(set(s, RR_SET_CONFIG, "config", path, origin, why));
    return *path ? rr_settings_read_file(s, path, why) : 0;
}

int rr_settings_load(struct rr_settings *s, const char *const *arguments, ringred_error *why)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < RR_SETTINGS; i++)
        RR_TRY(set(s, i, rows[i].name, rows[i].fallback, "default", why));
    RR_TRY(load_file(s, arguments, why));
    RR_TRY(load_environment(s, why));
    for (; arguments && *arguments; arguments++) {
        char name[64];
        const char *equals = strchr(*arguments, '=');
        if (!equals || equals - *arguments >= (long)sizeof name) /* no more of it: it may be a secret */
            return rr_fail(why, RINGRED_ESETTING, -1, 0,
                           "the setting \"%.12s...\" is not of the form name=value", *arguments);
        memcpy(name, *arguments, (size_t)(equals - *arguments));
        name[equals - *arguments] = 0;
        RR_TRY(rr_settings_set(s, name, equals + 1, "argument", why));
    }
    return 0;
}

void rr_settings_describe(const struct rr_settings *s, struct rr_text *t)
{
    static const char *const kinds[] = { "number", "bytes", "seconds", "choice", "text", "secret" };
    char room[96];

    rr_text_add(t, "[");
    for (int i = 0; i < RR_SETTINGS; i++) {
        const struct rr_setting_value *v = &s->value[i];
        rr_text_add(t, "%s{\"name\":\"%s\",\"value\":", i ? "," : "", rows[i].name);
        rr_text_add_json(t, rows[i].kind == SECRET && v->text[0] ? "(hidden)" : v->text);
        rr_text_add(t, ",\"origin\":");
        rr_text_add_json(t, v->origin);
        rr_text_add(t, ",\"type\":\"%s\",\"form\":", kinds[rows[i].kind]);
        rr_text_add_json(t, form(&rows[i], room, sizeof room));
        rr_text_add(t, ",\"default\":");
        rr_text_add_json(t, rows[i].fallback);
        rr_text_add(t, ",\"help\":");
        rr_text_add_json(t, rows[i].help);
        rr_text_add(t, "}");
    }
    rr_text_add(t, "]");
}
