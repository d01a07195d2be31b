/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-info: what this library is, what it can use here, how it is set, and what a call would
 * do. */
#include <ringred/ringred.h>

#include "dumps.h"
#include "json.h"

#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MOST    256
#define SETTINGS_MOST 32

struct request {
    const char *only;       /* member of the description to show; NULL: all but long lists */
    const char *collective; /* NULL: no call is asked about */
    unsigned long long bytes;
    const char *type;       /* of --choice */
    int ranks, hosts;
    bool raw, choice;
    int pid;                /* of --dump; 0: none */
    char **dumps;           /* of --merge-dumps, up to NULL; NULL: none */
    const char *say[SETTINGS_MOST]; /* figures for --choice */
    int say_count;
    const char *settings[SETTINGS_MOST + 1];
    int setting_count;
};

static void help(FILE *out)
{
    fputs(
        "usage: ringred-info [--settings | --launcher | --algorithms] [--json]\n"
        "       ringred-info COLLECTIVE SIZE [--ranks N] [--set NAME=VALUE]... [--json]\n"
        "       ringred-info --choice COLLECTIVE SIZE [TYPE] [--ranks N] [--hosts H] [--set NAME=VALUE]...\n"
        "                    [--say NAME=VALUE]... [--json]\n"
        "       ringred-info --dump PID\n"
        "       ringred-info --merge-dumps FILE|FOLDER... [--json]\n\n"
        "Without COLLECTIVE: this build, the transports that can be used here, and why others "
        "cannot.\n"
        "  --settings         every setting with its value, where that comes from, and its range\n"
        "  --launcher         this process's place in a job, which launcher says so, and why not another\n"
        "  --algorithms       every plan: its rounds, bytes and needs, and how the setting "
        "algorithm "
        "names it\n"
        "With it: starts N ranks on this machine (2) and shows the plan that such a call would "
        "run.\n"
        "  COLLECTIVE         allreduce, reduce, broadcast, allgather, gather, reduce_scatter, "
        "scatter, alltoall,\n"
        "                     barrier\n"
        "  SIZE               bytes of one part; 64K and 1M are understood\n"
        "  --set NAME=VALUE   a setting to try\n"
        "  --json             the library's own words\n"
        "With --choice: starts nothing; shows which algorithm and segment would run, which rule decides,\n"
        "and what every other way is expected to take, for N ranks on H equal hosts (1).\n"
        "  TYPE               float32, or another one\n"
        "  --say NAME=VALUE   of the network, such as rate=25gbit or latency=10us (docs/USER.md); this\n"
        "                     machine's memory, flags and loopback are measured\n"
        "When a job hangs (docs/USER.md):\n"
        "  --dump PID         what a process of this machine did last, even if it is stopped: JSON, a line for each job\n"
        "  --merge-dumps      what such files of a job's ranks say together: who asked for something else, who never\n"
        "                     came, who failed first, whose dump is missing\n",
        out);
}

/* ---- asking the library ---- */

typedef int64_t (*describe_fn)(const struct request *r, ringred_comm *comm, char *text,
                               size_t room);

static int64_t of_library(const struct request *r, ringred_comm *comm, char *text, size_t room)
{
    (void)r;
    (void)comm;
    return ringred_describe(text, room);
}

static int64_t of_call(const struct request *r, ringred_comm *comm, char *text, size_t room)
{
    return ringred_comm_describe(comm, r->collective, r->bytes, text, room);
}

/* The question is about the machine that this one is, as far as nobody says otherwise. */
static void put_question(const struct request *r, char *question, size_t room)
{
    cpu_set_t set;
    int used = snprintf(question, room, "collective=%s bytes=%llu type=%s nodes=%d per_host=%d measure=1",
                        r->collective, r->bytes, r->type, r->hosts, r->ranks / r->hosts);

    if (!sched_getaffinity(0, sizeof set, &set) && (size_t)used < room)
        used += snprintf(question + used, room - (size_t)used, " cpus=%d", CPU_COUNT(&set));
    for (int i = 0; i < r->say_count && (size_t)used < room; i++)
        used += snprintf(question + used, room - (size_t)used, " %s", r->say[i]);
}

static int64_t of_choice(const struct request *r, ringred_comm *comm, char *text, size_t room)
{
    char question[2048];

    (void)comm;
    put_question(r, question, sizeof question);
    return ringred_explain(question, r->settings, text, room);
}

/* The whole text, to be freed; NULL after saying why. */
static char *ask(describe_fn describe, const struct request *r, ringred_comm *comm)
{
    int64_t need = describe(r, comm, NULL, 0), room = need + 256; /* figures that are measured vary */
    char *text = need < 0 ? NULL : malloc((size_t)room);

    if (text)
        need = describe(r, comm, text, (size_t)room);
    if (need >= 0 && text)
        return text;
    if (describe == of_choice && need < 0) {
        char why[512]; /* the sentence that came instead of the answer */

        (void)describe(r, comm, why, sizeof why);
        fprintf(stderr, "ringred-info: %s\n", why);
    } else {
        fprintf(stderr, "ringred-info: %s\n",
                need < 0 ? ringred_status_text((int32_t)need) : "no memory");
    }
    free(text);
    return NULL;
}

/* ---- showing ---- */

static void show_settings(const char *settings)
{
    for (const char *s = json_first(settings); s; s = json_after(s)) {
        char name[64], value[256], origin[288], form[256], usual[256], text[512];

        json_text(json_member(s, "name"), name, sizeof name);
        json_text(json_member(s, "value"), value, sizeof value);
        json_text(json_member(s, "origin"), origin, sizeof origin);
        json_text(json_member(s, "form"), form, sizeof form);
        json_text(json_member(s, "default"), usual, sizeof usual);
        json_text(json_member(s, "help"), text, sizeof text);
        printf("%s = %s", name, *value ? value : "(empty)");
        if (!strcmp(origin, "default"))
            printf("   by default\n");
        else
            printf("   from %s%s; default %s\n", strchr(origin, ':') ? "" : "the ", origin, *usual ? usual : "(empty)");
        printf("    %s\n    %s\n", text, form);
    }
}

static bool is_true(const char *value)
{
    return value && *value == 't';
}

/* "A=1, B=2" of a list of texts. */
static const char *joined(const char *list, char *room, size_t bytes)
{
    size_t used = 0;

    room[0] = 0;
    for (const char *at = json_first(list); at && used < bytes; at = json_after(at)) {
        char text[160];
        int n = snprintf(room + used, bytes - used, "%s%s", used ? ", " : "", json_text(at, text, sizeof text));
        used += n > 0 ? (size_t)n : 0;
    }
    return room;
}

static void show_launchers(const char *list)
{
    printf("\nlooked for, in this order:\n");
    for (const char *at = json_first(list); at; at = json_after(at)) {
        char name[32], note[512], found[512], rank[16], size[16];
        bool recognised = is_true(json_member(at, "recognised"));

        json_text(json_member(at, "name"), name, sizeof name);
        json_text(json_member(at, "note"), note, sizeof note);
        json_text(json_member(at, "rank"), rank, sizeof rank);
        json_text(json_member(at, "size"), size, sizeof size);
        joined(json_member(at, "variables"), found, sizeof found);
        if (recognised)
            printf("  %-12s rank %s of %s: %s%s%s%s\n", name, rank, size, found, *note ? "; " : "", note,
                   is_true(json_member(at, "used")) ? " <- used" : "");
        else
            printf("  %-12s no: %s\n", name, note);
    }
}

static void show_launcher(const char *launcher)
{
    char error[512], source[64], root[512], key[64], rank[16], size[16], local[16], locals[16];
    const char *why = json_member(launcher, "error");

    json_text(json_member(launcher, "source"), source, sizeof source);
    json_text(json_member(launcher, "rank"), rank, sizeof rank);
    json_text(json_member(launcher, "size"), size, sizeof size);
    json_text(json_member(launcher, "local_rank"), local, sizeof local);
    json_text(json_member(launcher, "local_size"), locals, sizeof locals);
    json_text(json_member(launcher, "root"), root, sizeof root);
    json_text(json_member(launcher, "key"), key, sizeof key);
    if (why) {
        printf("refused: %s\n", json_text(why, error, sizeof error));
    } else {
        printf("place:   rank %s of %s", rank, size);
        if (strcmp(local, "-1"))
            printf(", on its host %s of %s", local, strcmp(locals, "-1") ? locals : "?");
        printf("; by %s\n", strcmp(source, "single") ? source : "nothing: no launcher was recognised");
        printf("rank 0:  %s\n", *root ? root : "this is the only rank");
        printf("key:     %s\n", strcmp(key, "none") ? key : "none: whoever reaches rank 0 can join");
    }
    show_launchers(json_member(launcher, "launchers"));
}

/* Bytes of the longest text that any element has under a key, and of the key itself. */
static int width_of(const char *list, const char *key)
{
    size_t most = strlen(key);

    for (const char *at = json_first(list); at; at = json_after(at)) {
        char text[160];
        size_t length = strlen(json_text(json_member(at, key), text, sizeof text));

        most = length > most ? length : most;
    }
    return (int)most;
}

static void add_need(const char *text, int *said)
{
    if (*text)
        printf("%s%s", (*said)++ ? "; " : "", text);
}

static void show_needs(const char *row)
{
    char more[160];
    int said = 0;

    add_need(is_true(json_member(row, "shared")) ? "one host" : "", &said);
    add_need(is_true(json_member(row, "linked")) ? "links" : "", &said);
    add_need(is_true(json_member(row, "tree")) ? "" : "numerics=fast", &said);
    add_need(json_text(json_member(row, "needs"), more, sizeof more), &said);
    printf("\n");
}

static void show_algorithms(const char *list)
{
    static const char *const columns[] = { "collective", "name", "rounds", "bytes" };

    for (size_t i = 0; i < 4; i++)
        printf("%-*s  ", width_of(list, columns[i]), columns[i]);
    printf("needs\n");
    for (const char *row = json_first(list); row; row = json_after(row)) {
        for (size_t i = 0; i < 4; i++) {
            char text[160];

            json_text(json_member(row, columns[i]), text, sizeof text);
            printf("%-*s  ", width_of(list, columns[i]), text);
        }
        show_needs(row);
    }
    printf("\nn ranks on h hosts; S: the bytes of one part. rounds: messages, or waits in shared "
           "memory, "
           "that follow\neach other. bytes: what the busiest rank sends over links or puts into "
           "shared "
           "memory.\n");
}

static void show(const struct request *r, const char *text)
{
    static const char *const long_ones[] = { "settings", "algorithms", "launcher", NULL };
    const char *part = r->only ? json_member(text, r->only) : text;

    if (r->raw && !r->only)
        printf("%s\n", text);
    else if (r->raw && part)
        printf("%.*s\n", (int)(json_end(part) - part), part);
    else if (r->only && !strcmp(r->only, "settings"))
        show_settings(part);
    else if (r->only && !strcmp(r->only, "algorithms"))
        show_algorithms(part);
    else if (r->only && !strcmp(r->only, "launcher") && part)
        show_launcher(part);
    else if (r->only)
        json_print(stdout, part, 0);
    else
        json_print_without(stdout, text, long_ones);
}

static int show_library(const struct request *r)
{
    char *text = ask(of_library, r, NULL);

    if (!text)
        return 1;
    show(r, text);
    free(text);
    return 0;
}

/* ---- choices ---- */

static double seconds_of(const char *candidate)
{
    char text[64];

    return atof(json_text(json_member(candidate, "seconds"), text, sizeof text));
}

static void show_candidate(const char *candidate)
{
    char name[64], text[160], segment[32];
    const char *refused = json_member(candidate, "refused");

    json_text(json_member(candidate, "algorithm"), name, sizeof name);
    if (refused) {
        printf("  %-22s %10s  %12s  %s\n", name, "-", "-", json_text(refused, text, sizeof text));
        return;
    }
    json_text(json_member(candidate, "segment"), segment, sizeof segment);
    printf("  %-22s %10s  %9.1f us\n", name, strcmp(segment, "0") ? segment : "-", seconds_of(candidate) * 1e6);
}

static void show_rule(const char *text)
{
    const char *choice = json_member(text, "choice");
    char rule[32], name[64], segment[32], line[32];

    json_text(json_member(choice, "rule"), rule, sizeof rule);
    json_text(json_member(choice, "algorithm"), name, sizeof name);
    json_text(json_member(choice, "segment"), segment, sizeof segment);
    json_text(json_member(choice, "line"), line, sizeof line);
    printf("would run: %s%s%s\n", name, strcmp(segment, "0") ? ", in segments of at most " : "",
           strcmp(segment, "0") ? segment : "");
    if (!strcmp(rule, "table"))
        printf("because:   line %s of the table (setting tuning)\n", line);
    else
        printf("because:   %s\n", !strcmp(rule, "setting") ? "the setting algorithm asks for it"
                                                           : "of its size: the library's own limits");
}

static int show_choice(const struct request *r)
{
    char *text = ask(of_choice, r, NULL);
    char name[64];

    if (!text)
        return 1;
    if (r->raw) {
        printf("%s\n", text);
    } else {
        show_rule(text);
        printf("\n  %-22s %10s  %12s\n", "algorithm", "segment", "predicted");
        for (const char *at = json_first(json_member(text, "candidates")); at; at = json_after(at))
            show_candidate(at);
        json_text(json_member(json_member(text, "model"), "algorithm"), name, sizeof name);
        printf("\nThe prediction would take %s; predictions explain, they do not choose.\nThey assume:\n", name);
        json_print(stdout, json_member(text, "assumptions"), 2);
    }
    free(text);
    return 0;
}

/* ---- asking about a call: ranks on this machine ---- */

static ringred_comm *join(const struct request *r, int rank, const ringred_unique_id *id)
{
    ringred_config config;
    ringred_error why;
    ringred_comm *comm;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    config.rank = rank;
    config.size = r->ranks;
    config.id = id;
    config.settings = r->settings;
    if (ringred_comm_create(&config, &comm, &why) >= 0)
        return comm;
    if (rank == 0)
        fprintf(stderr, "ringred-info: %s\n", why.text);
    return NULL;
}

/* Another rank: joins, waits until rank 0 has asked what it wanted, leaves. */
static int be_company(const struct request *r, int rank, int fd)
{
    ringred_unique_id id;
    ringred_comm *comm;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(fd, &id, sizeof id) != sizeof id)
        return 1;
    comm = join(r, rank, &id);
    if (!comm)
        return 1;
    (void)ringred_barrier(comm); /* ends with a failure where rank 0 is gone: just as well */
    return ringred_comm_destroy(comm) < 0;
}

/* Starts the other ranks before this process has used the library; their ends of the pipes in fd.
 */
static bool start_company(const struct request *r, int *fd)
{
    for (int rank = 1; rank < r->ranks; rank++) {
        int ends[2];
        pid_t pid;

        if (pipe(ends))
            return false;
        pid = fork();
        if (pid == 0)
            _exit(be_company(r, rank, ends[0]));
        close(ends[0]);
        fd[rank] = ends[1];
        if (pid < 0)
            return false;
    }
    return true;
}

static ringred_comm *gather(const struct request *r)
{
    int fd[RANKS_MOST] = { 0 };
    ringred_unique_id id;
    ringred_error why;

    ringred_error_init(&why);
    if (!start_company(r, fd)) {
        perror("ringred-info: cannot start the ranks");
        return NULL;
    }
    if (ringred_unique_id_create(&id, &why) < 0) {
        fprintf(stderr, "ringred-info: %s\n", why.text);
        return NULL;
    }
    for (int rank = 1; rank < r->ranks; rank++)
        if (write(fd[rank], &id, sizeof id) != sizeof id)
            return NULL;
    return join(r, 0, &id);
}

static int show_call(const struct request *r)
{
    ringred_comm *comm = gather(r);
    char *text = comm ? ask(of_call, r, comm) : NULL;

    if (text)
        show(r, text);
    if (comm) {
        (void)ringred_barrier(comm);
        (void)ringred_comm_destroy(comm); /* nothing was in flight that could be lost */
    }
    while (comm && wait(NULL) > 0)
        continue;
    free(text);
    return text ? 0 : 1;
}

/* ---- when a job hangs ---- */

static int show_process(int pid)
{
    char why[512];

    for (int32_t which = 0;; which++) {
        int64_t need = ringred_dump_process(pid, which, why, sizeof why), room = need + 4096; /* it may go on */
        char *text = need < 0 ? NULL : malloc((size_t)room);
        if (need < 0 && which)
            return 0;
        if (text)
            need = ringred_dump_process(pid, which, text, (size_t)room);
        bool told = text && need >= 0 && need < room;
        if (told)
            printf("%s\n", text);
        else
            fprintf(stderr, "ringred-info: %s\n", text && need < 0 ? text : need < 0 ? why : "no memory");
        free(text);
        if (!told)
            return 1;
    }
}

static int merge_dumps(const struct request *r)
{
    struct dumps *d = dumps_new(stderr);

    for (char **path = r->dumps; d && *path; path++)
        (void)dumps_add_path(d, *path); /* what is of no use has been said */
    bool told = d && dumps_report(d, stdout, r->raw);
    dumps_free(d);
    return !told;
}

/* ---- the command line ---- */

static bool read_bytes(const char *text, unsigned long long *bytes)
{
    static const char suffixes[] = "KMG";
    char *end;
    const char *suffix;

    *bytes = strtoull(text, &end, 10);
    suffix = *end ? strchr(suffixes, *end) : NULL;
    if (end == text || *text == '-' || (*end && (!suffix || end[1])))
        return false;
    if (suffix)
        *bytes <<= 10 * (suffix - suffixes + 1);
    return true;
}

static bool parse(struct request *r, int argc, char **argv)
{
    static const struct option flags[] = {
        { "settings", no_argument, NULL, 's' },    { "launcher", no_argument, NULL, 'l' },
        { "algorithms", no_argument, NULL, 'a' },  { "json", no_argument, NULL, 'j' },
        { "ranks", required_argument, NULL, 'n' }, { "set", required_argument, NULL, 'S' },
        { "choice", no_argument, NULL, 'c' },      { "hosts", required_argument, NULL, 'H' },
        { "say", required_argument, NULL, 'y' },   { "help", no_argument, NULL, 'h' },
        { "dump", required_argument, NULL, 'd' },  { "merge-dumps", no_argument, NULL, 'm' },
        { 0 },
    };
    bool merge = false;
    int flag;

    *r = (struct request){ .ranks = 2, .hosts = 1, .type = "float32" };
    while ((flag = getopt_long(argc, argv, "n:h", flags, NULL)) != -1) {
        if (flag == 's' || flag == 'l' || flag == 'a')
            r->only = flag == 's' ? "settings" : flag == 'l' ? "launcher" : "algorithms";
        else if (flag == 'j')
            r->raw = true;
        else if (flag == 'c')
            r->choice = true;
        else if (flag == 'H')
            r->hosts = atoi(optarg);
        else if (flag == 'y' && r->say_count < SETTINGS_MOST)
            r->say[r->say_count++] = optarg;
        else if (flag == 'n')
            r->ranks = atoi(optarg);
        else if (flag == 'S' && r->setting_count < SETTINGS_MOST)
            r->settings[r->setting_count++] = optarg;
        else if (flag == 'd')
            r->pid = atoi(optarg);
        else if (flag == 'm')
            merge = true;
        else if (flag == 'h')
            exit((help(stdout), 0));
        else
            return false;
    }
    if (merge && optind < argc)
        return r->dumps = argv + optind, true;
    if (merge)
        return fprintf(stderr, "ringred-info: say which files, or a folder\n"), false;
    if (r->choice && (r->hosts < 1 || r->ranks < r->hosts || r->ranks % r->hosts))
        return fprintf(stderr, "ringred-info: --ranks is a multiple of --hosts\n"), false;
    if (!r->choice && (r->ranks < 1 || r->ranks > RANKS_MOST))
        return fprintf(stderr, "ringred-info: --ranks is 1 to %d\n", RANKS_MOST), false;
    if (optind == argc && !r->choice)
        return true;
    if (optind == argc)
        return fprintf(stderr, "ringred-info: say a collective, such as: --choice allreduce 1M\n"), false;
    if (r->choice && optind + 3 == argc)
        r->type = argv[--argc];
    for (char *c = argv[optind]; *c; c++) /* reduce-scatter will do */
        *c = *c == '-' ? '_' : *c;
    r->collective = argv[optind];
    if (optind + 2 == argc && read_bytes(argv[optind + 1], &r->bytes))
        return true;
    return fprintf(stderr, "ringred-info: say a collective and a size, such as: allreduce 1M\n"),
           false;
}

int main(int argc, char **argv)
{
    struct request r;

    if (!parse(&r, argc, argv)) {
        help(stderr);
        return 2;
    }
    if (r.pid || r.dumps)
        return r.pid ? show_process(r.pid) : merge_dumps(&r);
    return r.choice ? show_choice(&r) : r.collective ? show_call(&r) : show_library(&r);
}
