/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of ringred-bench: the flags of nccl-tests that mean something between processes,
 * and our own. One table holds them all; help is printed from it. */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum flag {
    FLAG_MIN = 'b',
    FLAG_MAX = 'e',
    FLAG_STEP = 'i',
    FLAG_FACTOR = 'f',
    FLAG_ITERATIONS = 'n',
    FLAG_WARMUPS = 'w',
    FLAG_OP = 'o',
    FLAG_TYPE = 'd',
    FLAG_CHECK = 'c',
    FLAG_ROOT = 'r',
    FLAG_THREADS = 't',
    FLAG_GPUS = 'g',
    FLAG_AGGREGATE = 'm',
    FLAG_CYCLES = 'N',
    FLAG_TIMEOUT = 'T',
    FLAG_HELP = 'h',
    FLAG_RANKS = 256,
    FLAG_TRANSPORT,
    FLAG_SIZES,
    FLAG_SECONDS,
    FLAG_MEMORY,
    FLAG_JSON,
    FLAG_RENDEZVOUS,
    FLAG_PERCENTILES,
    FLAG_PLACE,
    FLAG_NO_PIN,
    FLAG_ASYNC,
    FLAG_OVERLAP,
    FLAG_COMPUTE,
    FLAG_UNEVEN,
    FLAG_COMMS,
    FLAG_SET,
    FLAG_CHILD
};

/* text NULL: not for users */
static const struct flag_row {
    const char *name;
    int flag;
    const char *value, *text;
} flags[] = {
    { "minbytes", FLAG_MIN, "SIZE", "smallest size of the sweep (8)" },
    { "maxbytes", FLAG_MAX, "SIZE", "largest size of the sweep (64M)" },
    { "stepfactor", FLAG_FACTOR, "N", "each size is N times the last (2)" },
    { "stepbytes", FLAG_STEP, "SIZE", "or each size is SIZE more than the last" },
    { "sizes", FLAG_SIZES, "A,B,..", "exactly these sizes; suffixes K, M, G" },
    { "datatype", FLAG_TYPE, "TYPES", "element types, see below; with commas, or all (float32)" },
    { "dtype", FLAG_TYPE, "TYPES", "the same" },
    { "op", FLAG_OP, "OPS", "operators, see below; with commas, or all (sum)" },
    { "root", FLAG_ROOT, "RANK", "of reduce, broadcast, gather and scatter (0)" },
    { "uneven", FLAG_UNEVEN, "F",
      "of the collectives with v: parts are 1 - F to 1 + F of their mean (0.5)" },
    { "seconds", FLAG_SECONDS, "S", "time for each measured point (0.1)" },
    { "iters", FLAG_ITERATIONS, "N", "or a fixed number of calls" },
    { "warmup_iters", FLAG_WARMUPS, "N",
      "calls before them (5); with --seconds as many as it needs" },
    { "agg_iters", FLAG_AGGREGATE, "N",
      "time N calls as one (16 under 5 us, 4 under 50 us, else 1)" },
    { "run_cycles", FLAG_CYCLES, "N", "run the sweep N times (1)" },
    { "check", FLAG_CHECK, "0|1", "check results before and after the timed calls (1)" },
    { "place", FLAG_PLACE, "P", "in, out or both (both; with --json: in)" },
    { "memory", FLAG_MEMORY, "M", "ordinary, or symmetric: from ringred_alloc (ordinary)" },
    { "async", FLAG_ASYNC, NULL, "start and wait instead of the blocking call" },
    { "comms", FLAG_COMMS, "K",
      "the call on K communicators at once, half of the ranks in the other order (1)" },
    { "overlap", FLAG_OVERLAP, NULL,
      "compute between start and wait, and tell what that saves (see below)" },
    { "compute", FLAG_COMPUTE, "US", "the same, for so many microseconds (as long as the call)" },
    { "percentiles", FLAG_PERCENTILES, NULL, "print p10, p90, p99 and the worst call too" },
    { "json", FLAG_JSON, "FILE", "write the results there" },
    { "ranks", FLAG_RANKS, "N", "start N ranks on this machine (2 where no launcher started us)" },
    { "nthreads", FLAG_THREADS, "N", "ranks are this number" },
    { "ngpus", FLAG_GPUS, "N", "times this one, as nccl-tests counts them" },
    { "rendezvous", FLAG_RENDEZVOUS, "env", "be one rank of a job, as the environment says" },
    { "transport", FLAG_TRANSPORT, "T", "shm, tcp, auto (auto)" },
    { "set", FLAG_SET, "NAME=VALUE", "a setting of the library; may be repeated" },
    { "timeout", FLAG_TIMEOUT, "S", "seconds that one call may take" },
    { "no-pin", FLAG_NO_PIN, NULL, "do not give each started rank a CPU of its own" },
    { "help", FLAG_HELP, NULL, "this text" },
    { "child", FLAG_CHILD, "R:FD", NULL },
};
#define FLAGS (sizeof flags / sizeof flags[0])

/* The sweep, until it is known whether --sizes replaces it. */
struct sweep {
    size_t least, most, step;
    double factor;
    int threads, gpus;
    bool place_given, uneven_given, env;
};

bool bench_complain(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "ringred-bench: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return false;
}

void bench_help(FILE *out)
{
    fprintf(out,
            "usage: ringred-bench COLLECTIVE [options]\n"
            "       ringred-bench simulate --nodes N [options]    (simulate --help)\n"
            "       ringred-bench tune [-o FILE] [options]        (tune --help)\n"
            "       ringred-bench fusion [--model M] [options]    (fusion --help)\n\n"
            "Measures a collective between processes, and checks its results. Time is the median\n"
            "call of the slowest rank; calls follow each other without a barrier. Size and\n"
            "bandwidths are nccl-tests': the size is that of the longer buffer of a call.\n\n"
            "Collectives:\n  ");
    bench_list_collectives(out);
    fprintf(out, "\n\n");
    for (size_t i = 0; i < FLAGS; i++) {
        char left[64];

        if (!flags[i].text)
            continue;
        snprintf(left, sizeof left, "%c%c%s--%s%s%s", flags[i].flag < 256 ? '-' : ' ',
                 flags[i].flag < 256 ? flags[i].flag : ' ', flags[i].flag < 256 ? ", " : "  ",
                 flags[i].name, flags[i].value ? " " : "", flags[i].value ? flags[i].value : "");
        fprintf(out, "  %-28s %s\n", left, flags[i].text);
    }
    bench_list_types(out);
    fprintf(
        out,
        "\nOverlap: the same work is done alone and between start and wait. Work of the library\n"
        "moves inside its own calls only, so today little is hidden: what the kernel carries\n"
        "on with, and what other ranks do from shared memory.\n");
}

/* A size such as 64K at *at, which moves past it. */
static bool read_size(const char **at, size_t *size)
{
    static const char suffixes[] = "KMG";
    const char *suffix;
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(*at, &end, 10);
    if (end == *at || **at == '-' || errno)
        return false;
    suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
    if (suffix && *end) {
        int shift = 10 * (int)(suffix - suffixes + 1);

        if (number > (SIZE_MAX >> shift))
            return false;
        number <<= shift;
        end += end[1] == 'B' || end[1] == 'b' ? 2 : 1;
    }
    *size = (size_t)number;
    *at = end;
    return true;
}

static bool one_size(const char *name, const char *text, size_t *size)
{
    const char *at = text;

    if (!read_size(&at, size) || *at)
        return bench_complain("--%s wants a size such as 8, 64K or 1G, not '%s'", name, text);
    return true;
}

static bool size_list(struct bench_options *o, const char *text)
{
    const char *at = text;

    for (o->size_count = 0; o->size_count < BENCH_SIZES; at++) {
        if (!read_size(&at, &o->sizes[o->size_count++]) || (*at && *at != ','))
            return bench_complain(
                "--sizes wants sizes with commas between them, such as 8,1K,64K, not '%s'", text);
        if (!*at)
            return true;
    }
    return bench_complain("--sizes takes at most %d sizes", BENCH_SIZES);
}

static bool whole(const char *name, const char *text, int least, int *number)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < least || value > INT_MAX)
        return bench_complain("--%s wants a whole number of at least %d, not '%s'", name, least,
                              text);
    *number = (int)value;
    return true;
}

static bool real(const char *name, const char *text, double above, double *number)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value > above) || value > 1e9)
        return bench_complain("--%s wants a number above %g, not '%s'", name, above, text);
    *number = value;
    return true;
}

static bool share(const char *name, const char *text, double *number)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= 0 && value <= 1))
        return bench_complain("--%s wants a number from 0 to 1, not '%s'", name, text);
    *number = value;
    return true;
}

/* Adds "name=value" to the settings; name NULL: text is whole already. */
static bool setting(struct bench_options *o, const char *name, const char *text)
{
    char *whole_text = NULL;
    size_t room = (name ? strlen(name) : 0) + strlen(text) + 2;

    if (!name && !strchr(text, '='))
        return bench_complain("--set wants name=value, not '%s'", text);
    if (o->setting_count == BENCH_SETTINGS)
        return bench_complain("at most %d settings can be given", BENCH_SETTINGS);
    whole_text = malloc(room); /* lives as long as the program */
    if (!whole_text)
        return bench_complain("no memory");
    snprintf(whole_text, room, "%s%s%s", name ? name : "", name ? "=" : "", text);
    o->settings[o->setting_count++] = whole_text;
    o->settings[o->setting_count] = NULL;
    return true;
}

static bool place(struct bench_options *o, const char *text)
{
    if (!strcmp(text, "in"))
        o->places = BENCH_IN_PLACE;
    else if (!strcmp(text, "out"))
        o->places = BENCH_OUT_OF_PLACE;
    else if (!strcmp(text, "both"))
        o->places = BENCH_IN_PLACE | BENCH_OUT_OF_PLACE;
    else
        return bench_complain("--place is in, out or both, not '%s'", text);
    return true;
}

static bool memory(struct bench_options *o, const char *text)
{
    o->symmetric = !strcmp(text, "symmetric");
    if (!o->symmetric && strcmp(text, "ordinary"))
        return bench_complain("--memory is ordinary or symmetric, not '%s'", text);
    return true;
}

static bool transport(struct bench_options *o, const char *text)
{
    o->transport = text;
    return setting(o, "transport", text);
}

static bool rendezvous(struct sweep *s, const char *text)
{
    s->env = !strcmp(text, "env");
    return s->env || bench_complain("--rendezvous can only be env, not '%s'", text);
}

static bool child(struct bench_options *o, const char *text)
{
    return sscanf(text, "%d:%d", &o->child, &o->child_fd) == 2 ||
           bench_complain("--child is not for users");
}

static bool check(struct bench_options *o, const char *text)
{
    int rounds = 1;

    if (!whole("check", text, 0, &rounds))
        return false;
    o->check = rounds != 0;
    return true;
}

/* The flags that shape the sweep and the timing. */
static bool comms(struct bench_options *o, const char *v)
{
    return whole("comms", v, 1, &o->comms) &&
           (o->comms <= BENCH_COMMS ||
            bench_complain("--comms takes 1 to %d, not %d", BENCH_COMMS, o->comms));
}

static bool apply_amount(struct bench_options *o, struct sweep *s, int flag, const char *v)
{
    switch (flag) {
    case FLAG_MIN:
        return one_size("minbytes", v, &s->least);
    case FLAG_MAX:
        return one_size("maxbytes", v, &s->most);
    case FLAG_STEP:
        return one_size("stepbytes", v, &s->step);
    case FLAG_UNEVEN:
        s->uneven_given = true;
        return share("uneven", v, &o->uneven);
    case FLAG_FACTOR:
        return real("stepfactor", v, 1, &s->factor);
    case FLAG_SIZES:
        return size_list(o, v);
    case FLAG_SECONDS:
        return real("seconds", v, 0, &o->seconds);
    case FLAG_ITERATIONS:
        o->seconds = 0;
        return whole("iters", v, 1, &o->iterations);
    case FLAG_WARMUPS:
        return whole("warmup_iters", v, 0, &o->warmups);
    case FLAG_AGGREGATE:
        return whole("agg_iters", v, 1, &o->together);
    case FLAG_COMMS:
        return comms(o, v);
    case FLAG_CYCLES:
        return whole("run_cycles", v, 1, &o->cycles);
    case FLAG_RANKS:
        return whole("ranks", v, 1, &o->ranks);
    case FLAG_THREADS:
        return whole("nthreads", v, 1, &s->threads);
    case FLAG_GPUS:
        return whole("ngpus", v, 1, &s->gpus);
    default:
        return false;
    }
}

static bool apply(struct bench_options *o, struct sweep *s, int flag, const char *v)
{
    switch (flag) {
    case FLAG_OP:
        return bench_parse_ops(o, v);
    case FLAG_TYPE:
        return bench_parse_types(o, v);
    case FLAG_CHECK:
        return check(o, v);
    case FLAG_ROOT:
        return whole("root", v, 0, &o->root);
    case FLAG_TIMEOUT:
        return setting(o, "timeout", v);
    case FLAG_TRANSPORT:
        return transport(o, v);
    case FLAG_SET:
        return setting(o, NULL, v);
    case FLAG_MEMORY:
        return memory(o, v);
    case FLAG_PLACE:
        s->place_given = true;
        return place(o, v);
    case FLAG_JSON:
        o->json = v;
        return true;
    case FLAG_RENDEZVOUS:
        return rendezvous(s, v);
    case FLAG_PERCENTILES:
        return o->percentiles = true;
    case FLAG_NO_PIN:
        return o->no_pin = true;
    case FLAG_ASYNC:
        return o->asynchronous = true;
    case FLAG_OVERLAP:
        return o->asynchronous = o->overlap = true;
    case FLAG_COMPUTE:
        o->asynchronous = o->overlap = true;
        return real("compute", v, 0, &o->compute_s);
    case FLAG_CHILD:
        return child(o, v);
    default:
        return apply_amount(o, s, flag, v);
    }
}

/* getopt's view of the table. */
static void describe_flags(struct option *longs, char *shorts)
{
    for (size_t i = 0; i < FLAGS; i++) {
        *longs++ = (struct option){ flags[i].name, flags[i].value != NULL, NULL, flags[i].flag };
        if (flags[i].flag >= 256)
            continue;
        *shorts++ = (char)flags[i].flag;
        if (flags[i].value)
            *shorts++ = ':';
    }
    *longs = (struct option){ 0 };
    *shorts = '\0';
}

/* Lays out the sizes from -b, -e, -f and -i. */
static bool fill_sweep(struct bench_options *o, const struct sweep *s)
{
    size_t size = s->least;

    if (s->most < s->least)
        return bench_complain("the largest size (%zu) is below the smallest (%zu)", s->most,
                              s->least);
    for (o->size_count = 0; size <= s->most; o->size_count++) {
        double next = s->step ? (double)size + (double)s->step : (double)size * s->factor;

        if (o->size_count == BENCH_SIZES)
            return bench_complain("the sweep has more than %d sizes; make its step larger",
                                  BENCH_SIZES);
        o->sizes[o->size_count] = size;
        if (next > (double)s->most)
            size = s->most + 1;
        else
            size = (size_t)next > size ? (size_t)next : size + 1;
    }
    return true;
}

/* Whether some launcher has given this process a place in a job, or has tried to. */
static bool launched(void)
{
    int64_t need = ringred_describe(NULL, 0);
    char *text = need > 0 ? malloc((size_t)need + 1) : NULL;
    const char *launcher;
    bool alone = true;

    if (text && ringred_describe(text, (size_t)need + 1) > 0) {
        launcher = strstr(text, "\"launcher\":{");
        alone = launcher && strstr(launcher, "{\"source\":\"single\"") == launcher + strlen("\"launcher\":");
    }
    free(text);
    return !alone;
}

/* A barrier has no place, and is measured as out of place. */
static bool settle_places(struct bench_options *o, const struct sweep *s)
{
    if (!s->place_given)
        o->places = o->json ? BENCH_IN_PLACE : BENCH_IN_PLACE | BENCH_OUT_OF_PLACE;
    if (o->row->in_place)
        return true;
    if (s->place_given && o->places == BENCH_IN_PLACE)
        return bench_complain("%s cannot be done in place", o->row->name);
    o->places = BENCH_OUT_OF_PLACE;
    return true;
}

/* Pairs of type and operator that do not exist are mistakes, unless all were asked for. */
static bool settle_pairs(const struct bench_options *o)
{
    if (!o->row->reduces || o->all_types || o->all_ops)
        return true;
    for (int t = 0; t < o->type_count; t++)
        for (int k = 0; k < o->op_count; k++)
            if (!bench_is_pair(o->types[t], o->ops[k]))
                return bench_complain("there is no %s of %s (docs/NUMBERS.md)",
                                      bench_op_name(o->ops[k]), bench_type_name(o->types[t]));
    return true;
}

static bool settle_sizes(struct bench_options *o, const struct sweep *s)
{
    if (o->row->send == BENCH_NOTHING) {
        o->sizes[0] = 0;
        o->size_count = 1;
        return true;
    }
    return o->size_count || fill_sweep(o, s);
}

static bool settle(struct bench_options *o, const struct sweep *s)
{
    if (s->env && o->ranks)
        return bench_complain("--rendezvous env and --ranks contradict each other");
    if (s->threads || s->gpus)
        o->ranks = (s->threads ? s->threads : 1) * (s->gpus ? s->gpus : 1);
    if (!o->ranks && !s->env && !launched())
        o->ranks = 2;
    if (o->ranks > 4096)
        return bench_complain("%d ranks on one machine are too many", o->ranks);
    if (o->ranks && o->root >= o->ranks)
        return bench_complain("root %d is not one of %d ranks", o->root, o->ranks);
    if (s->uneven_given && !o->row->uneven)
        return bench_complain("--uneven is for the collectives with v at the end, not for %s",
                              o->row->name);
    return settle_places(o, s) && settle_pairs(o) && settle_sizes(o, s);
}

bool bench_parse(struct bench_options *o, int argc, char **argv, bool *help)
{
    struct option longs[FLAGS + 1];
    char shorts[2 * FLAGS + 1];
    struct sweep s = { .least = 8, .most = (size_t)64 << 20, .factor = 2 };
    int flag;

    *o = (struct bench_options){ .child = -1,
                                 .transport = "auto",
                                 .types = { RINGRED_FLOAT32 },
                                 .ops = { RINGRED_SUM },
                                 .type_count = 1,
                                 .op_count = 1,
                                 .uneven = 0.5,
                                 .seconds = 0.1,
                                 .warmups = 5,
                                 .cycles = 1,
                                 .comms = 1,
                                 .check = true };
    describe_flags(longs, shorts);
    while ((flag = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (flag == FLAG_HELP)
            return *help = true;
        if (flag == '?' || !apply(o, &s, flag, optarg))
            return false;
    }
    if (optind + 1 != argc)
        return bench_complain(optind == argc ? "say what to measure, such as allreduce"
                                             : "one collective at a time, please");
    o->row = bench_row_of(argv[optind]);
    if (!o->row) {
        bench_complain("'%s' cannot be measured; there are", argv[optind]);
        fprintf(stderr, "  ");
        bench_list_collectives(stderr);
        fprintf(stderr, "\n");
        return false;
    }
    o->collective = bench_collective_of(o->row);
    o->compute_s *= 1e-6;
    return settle(o, &s);
}
