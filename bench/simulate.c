/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-bench simulate: how long collectives would take on hosts that are not here. Asks the library
 * (ringred_simulate) once for each size and prints a table, and always what was assumed. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define QUESTION 2048
#define NAMES 40

struct simulation {
    char question[QUESTION]; /* all but the size */
    const char *sizes;
    FILE *json;
    int answers;
};

static void simulate_help(void)
{
    printf("usage: ringred-bench simulate --nodes N [--NAME VALUE ...]\n\n"
           "Runs the plans of collectives in virtual time. One row for each size and algorithm: the time\n"
           "until the last rank is done; the share of it that the wires need at least for these bytes,\n"
           "whatever the algorithm; how full the fullest wire was. Sizes are those of one part.\n\n"
           "  --collective C       allreduce, or another one (allreduce)\n"
           "  --algorithm A,B      names as ringred-info --algorithms has them, auto, or all (all)\n"
           "  --nodes N            hosts (2)\n"
           "  --per-host K         ranks on each (1)\n"
           "  --sizes A,B,..       bytes; suffixes K, M, G (4K,64K,1M,16M)\n"
           "  --rate R             of a host, each way, such as 10gbit or 1GB\n"
           "  --flow R             the most that one connection gets; 0: no such limit\n"
           "  --latency T          one way, such as 20us\n"
           "  --NAME VALUE         anything else that a question may name (docs/USER.md)\n"
           "  --json FILE          write the answers there\n");
}

/* ---- the command line ---- */

/* "--per-host 2" becomes " per_host=2". */
static bool add_name(struct simulation *s, const char *flag, const char *value)
{
    size_t used = strlen(s->question), room = sizeof s->question - used;
    char name[NAMES];

    if (strlen(flag) >= sizeof name || strpbrk(value, " \t\n"))
        return bench_complain("--%.40s %.40s: a value is one word", flag, value);
    for (size_t i = 0; i <= strlen(flag); i++)
        name[i] = flag[i] == '-' ? '_' : flag[i];
    if ((size_t)snprintf(s->question + used, room, " %s=%s", name, value) >= room)
        return bench_complain("the question is too long");
    return true;
}

static bool take_flag(struct simulation *s, const char *flag, const char *value)
{
    if (!strcmp(flag, "sizes")) {
        s->sizes = value;
        return true;
    }
    if (!strcmp(flag, "json")) {
        s->json = fopen(value, "w");
        return s->json || bench_complain("cannot write %s", value);
    }
    return add_name(s, flag, value);
}

static bool parse(struct simulation *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *flag = argv[i], *value = strchr(flag, '=');

        if (strncmp(flag, "--", 2) != 0)
            return bench_complain("simulate wants --NAME VALUE, not '%s'", flag);
        if (value)
            *value++ = '\0';
        else if (i + 1 < argc)
            value = argv[++i];
        else
            return bench_complain("%s wants a value", flag);
        if (!take_flag(s, flag + 2, value))
            return false;
    }
    return true;
}

/* ---- one question ---- */

/* The library's answer, to be freed; NULL after saying what is wrong. */
static char *ask(const char *question)
{
    size_t room = 1 << 16;

    for (;;) {
        char *text = malloc(room);
        int64_t need = text ? ringred_simulate(question, text, room) : RINGRED_ENOMEM;

        if (need >= 0 && (size_t)need < room)
            return text;
        if (need < 0)
            bench_complain("%s", text ? text : "no memory");
        free(text);
        if (need < 0)
            return NULL;
        room = (size_t)need + 1;
    }
}

/* The number behind "name": in the text from `at` on. */
static double number_of(const char *at, const char *name)
{
    char key[NAMES];

    snprintf(key, sizeof key, "\"%s\":", name);
    at = strstr(at, key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

static void print_assumptions(const char *text)
{
    const char *from = strchr(text + 1, '{'), *to = strchr(text, '}');

    printf("# assumed: ");
    for (; from && to && from < to; from++)
        if (*from != '{' && *from != '"')
            putchar(*from);
    printf("\n#\n# %12s %-22s %12s %8s %8s %12s\n", "bytes", "algorithm", "us", "of wire", "busiest", "messages");
}

static void print_rows(const char *size, const char *text)
{
    static const char key[] = "{\"algorithm\":\"";

    for (const char *at = strstr(text, key); at; at = strstr(at + 1, key)) {
        const char *name = at + sizeof key - 1;

        printf("  %12s %-22.*s %12.2f %7.1f%% %7.1f%% %12.0f\n", size, (int)strcspn(name, "\""), name,
               number_of(at, "seconds") * 1e6, number_of(at, "of_wire") * 100, number_of(at, "busiest") * 100,
               number_of(at, "messages"));
    }
    fflush(stdout);
}

static bool simulate_size(struct simulation *s, const char *size)
{
    char question[QUESTION + 2 * NAMES];
    char *text;

    snprintf(question, sizeof question, "algorithm=all%s bytes=%s", s->question, size);
    text = ask(question);
    if (!text)
        return false;
    if (s->answers == 0)
        print_assumptions(text);
    print_rows(size, text);
    if (s->json)
        fprintf(s->json, "%s\n%s", s->answers ? "," : "{\"schema\":1,\"results\":[", text);
    s->answers++;
    free(text);
    return true;
}

static bool simulate_sizes(struct simulation *s)
{
    for (const char *at = s->sizes; *at;) {
        char size[NAMES];
        size_t n = strcspn(at, ",");

        snprintf(size, sizeof size, "%.*s", (int)(n < sizeof size ? n : sizeof size - 1), at);
        at += n + (at[n] == ',');
        if (!simulate_size(s, size))
            return false;
    }
    return true;
}

int bench_simulate(int argc, char **argv)
{
    struct simulation s = { .sizes = "4K,64K,1M,16M" };
    bool fine;

    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        simulate_help();
        return argc < 2 ? 2 : 0;
    }
    if (!parse(&s, argc, argv))
        return 2;
    fine = simulate_sizes(&s);
    if (s.json) {
        fprintf(s.json, "%s\n]}\n", s.answers ? "" : "{\"schema\":1,\"results\":[");
        fine = fclose(s.json) == 0 && fine;
    }
    return fine ? 0 : 2;
}
