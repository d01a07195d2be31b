/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-bench tune: measures every way in which the library can run a collective here, in turns, and
 * writes the table of the fastest that the setting tuning reads. One communicator does it all: a
 * function that the library asks (ringred_config.choose) forces the ways. What ranks decide in common,
 * how often to repeat and what to leave out, they decide from the slowest rank's times. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WAYS       48 /* of one point */
#define NAME_BYTES 40
#define ROUNDS     7
#define POINTS     512
#define BATCH_MOST 4000
#define HOPELESS   2.5  /* times as long as the best: not measured again */
#define WORTH      0.97 /* of the usual way's time, or it stays */
#define SEGMENTED  ((size_t)512 << 10)

struct way {
    char name[NAME_BYTES];
    uint64_t segment; /* bytes; 0: as usual */
    double us[ROUNDS], median;
    int rounds;
};

struct point {
    const struct bench_row *row;
    size_t bytes; /* of one part */
    struct way best;
    double usual_us;
};

struct tuning {
    struct bench_options options;
    struct bench_rank rank;
    const char *out, *json_name;
    FILE *json;
    const struct bench_row *rows[BENCH_COLLECTIVES];
    int row_count;
    double budget; /* seconds for all */
    int hosts;
    const struct way *force; /* NULL: as usual */
    char usual[NAME_BYTES];  /* of the latest call */
    struct way ways[WAYS];
    int way_count;
    struct point points[POINTS];
    int point_count;
};

static void tune_help(void)
{
    printf("usage: ringred-bench tune [-o FILE] [options]\n\n"
           "Measures every algorithm that can run a collective with these ranks, and three segments for\n"
           "long vectors, in turns; checks their results; and writes a table of the fastest for the\n"
           "setting tuning. What is not faster by 3 %% than what the library takes by itself is left as\n"
           "it is. Sizes are those of one part. Takes about two minutes on a machine with nothing else\n"
           "to do.\n\n"
           "  -o FILE              the table (standard output)\n"
           "  --collectives A,B    (allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall)\n"
           "  --sizes A,B,..       bytes (64,512,2K,8K,32K,128K,512K,2M,8M)\n"
           "  --budget S           seconds for all of it (100)\n"
           "  --json FILE          all that was measured\n"
           "  --ranks, --transport, --set, --rendezvous, --no-pin, ... as without tune\n");
}

/* ---- the command line ---- */

static bool take_collectives(struct tuning *t, const char *list)
{
    for (t->row_count = 0; *list;) {
        char name[NAME_BYTES];
        size_t n = strcspn(list, ",");

        if (n >= sizeof name)
            n = sizeof name - 1;
        memcpy(name, list, n);
        name[n] = '\0';
        t->rows[t->row_count] = bench_row_of(name);
        if (!t->rows[t->row_count] || t->rows[t->row_count]->uneven ||
            t->rows[t->row_count]->send == BENCH_NOTHING)
            return bench_complain("'%s' cannot be tuned", name);
        if (++t->row_count == BENCH_COLLECTIVES)
            break;
        list += n + (list[n] == ',');
    }
    return t->row_count > 0 || bench_complain("--collectives wants names with commas between them");
}

/* Takes the flags that are ours; false: it is another. */
static bool take_flag(struct tuning *t, const char *flag, const char *value, bool *fine)
{
    if (!strcmp(flag, "-o") || !strcmp(flag, "--out"))
        t->out = value;
    else if (!strcmp(flag, "--json"))
        t->json_name = value;
    else if (!strcmp(flag, "--collectives"))
        *fine = take_collectives(t, value);
    else if (!strcmp(flag, "--budget"))
        *fine = (t->budget = atof(value)) > 0 || bench_complain("--budget wants seconds");
    else
        return false;
    return true;
}

/* The rest goes to the parser that all measuring shares, which wants a collective. */
static bool parse(struct tuning *t, int argc, char **argv)
{
    static char usual_sizes[] = "--sizes=64,512,2K,8K,32K,128K,512K,2M,8M", any[] = "allreduce";
    static char **rest; /* lives as long as the program: options point into it */
    bool fine = take_collectives(t, "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall");
    bool help = false;
    int n = 0;

    rest = calloc((size_t)argc + 3, sizeof *rest);
    if (!rest)
        return bench_complain("no memory");
    rest[n++] = argv[0];
    rest[n++] = usual_sizes;
    for (int i = 1; i < argc && fine; i++) {
        char name[NAME_BYTES];
        char *value = strchr(argv[i], '=');

        snprintf(name, sizeof name, "%.*s", value ? (int)(value - argv[i]) : NAME_BYTES - 1,
                 argv[i]);
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
            tune_help();
            exit(0);
        }
        if (value ? take_flag(t, name, value + 1, &fine)
                  : i + 1 < argc && take_flag(t, name, argv[i + 1], &fine))
            i += !value;
        else
            rest[n++] = argv[i];
    }
    rest[n++] = any;
    return fine && bench_parse(&t->options, n, rest, &help);
}

/* ---- forcing ---- */

static void choose(void *context, ringred_choice *choice)
{
    struct tuning *t = context;

    snprintf(t->usual, sizeof t->usual, "%s", choice->algorithm);
    if (!t->force)
        return;
    choice->algorithm = t->force->name;
    choice->segment = t->force->segment;
}

/* ---- what there is ---- */

/* The library's description of a call; NULL after saying why. */
static char *describe(struct tuning *t, const char *collective, size_t bytes)
{
    int64_t need = ringred_comm_describe(t->rank.comm, collective, bytes, NULL, 0);
    char *text = need < 0 ? NULL : malloc((size_t)need + 1);

    if (text)
        (void)ringred_comm_describe(t->rank.comm, collective, bytes, text, (size_t)need + 1);
    else
        bench_complain("%s", need < 0 ? ringred_status_text((int32_t)need) : "no memory");
    return text;
}

static void add_way(struct tuning *t, const char *name, size_t n, uint64_t segment)
{
    struct way *w = &t->ways[t->way_count];

    if (t->way_count == WAYS || n >= NAME_BYTES)
        return;
    *w = (struct way){ .segment = segment };
    memcpy(w->name, name, n);
    t->way_count++;
}

static bool has_segments(const char *name, size_t n)
{
    return !(n == 4 && (!strncmp(name, "tiny", n) || !strncmp(name, "last", n)));
}

static bool list_ways(struct tuning *t, const char *collective, size_t bytes)
{
    static const char key[] = "\"candidates\":[";
    static const uint64_t segments[] = { 128 << 10, 512 << 10, 2 << 20 };
    char *text = describe(t, collective, bytes);
    const char *at = text ? strstr(text, key) : NULL;

    t->way_count = 0;
    for (at = at ? at + sizeof key - 1 : NULL; at && *at == '"';) {
        size_t n = strcspn(at + 1, "\"");

        add_way(t, at + 1, n, 0);
        for (size_t i = 0; bytes >= SEGMENTED && has_segments(at + 1, n) && i < 3; i++)
            if (segments[i] < bytes)
                add_way(t, at + 1, n, segments[i]);
        at += n + 2;
        at += *at == ',';
    }
    free(text);
    return t->way_count > 0 || bench_complain("no algorithm for %s of %zu bytes", collective, bytes);
}

/* ---- measuring ---- */

static int times(struct tuning *t, const struct bench_point *p, const struct way *w, int batch,
                 double *one)
{
    double start;
    int rc = 0;

    t->force = w;
    if (batch > 1)
        rc = bench_call(&t->rank, p); /* what ran before was another way */
    start = bench_now();
    for (int i = 0; i < batch && rc >= 0; i++)
        rc = bench_call(&t->rank, p);
    *one = (bench_now() - start) / batch;
    t->force = NULL;
    return rc < 0 ? rc : bench_largest(&t->rank, one, 1);
}

/* 0, a status, or 1: the result was wrong. */
static int check_way(struct tuning *t, const struct bench_point *p, const struct way *w)
{
    double wrong;
    int rc;

    bench_fill(&t->rank, p);
    t->force = w;
    rc = bench_call(&t->rank, p);
    t->force = NULL;
    if (rc < 0)
        return rc;
    wrong = (double)bench_count_wrong(&t->rank, p);
    rc = bench_largest(&t->rank, &wrong, 1);
    if (rc >= 0 && wrong > 0)
        bench_complain("%s gave %.0f wrong elements in %s", w->name, wrong,
                       t->options.row->name);
    return rc < 0 ? rc : wrong > 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double best_of(const struct tuning *t)
{
    double best = 0;

    for (int i = 0; i < t->way_count; i++)
        if (i == 0 || t->ways[i].median < best)
            best = t->ways[i].median;
    return best;
}

/* The first round shows how long each takes, and what is hopeless. */
static int first_round(struct tuning *t, const struct bench_point *p)
{
    double one;

    for (int i = 0; i < t->way_count; i++) {
        struct way *w = &t->ways[i];
        int rc = check_way(t, p, w);

        if (rc)
            return rc;
        rc = times(t, p, w, 2, &one);
        if (rc >= 0)
            rc = times(t, p, w, one < 1e-3 ? 10 : 1, &one);
        if (rc < 0)
            return rc;
        w->us[0] = w->median = one * 1e6;
        w->rounds = 1;
    }
    return 0;
}

static int next_round(struct tuning *t, const struct bench_point *p, double slot, double limit_us)
{
    double one;

    for (int i = 0; i < t->way_count; i++) {
        struct way *w = &t->ways[i];
        int batch = w->median > 0 ? (int)(slot * 1e6 / w->median) : BATCH_MOST, rc;

        if (w->median > limit_us)
            continue;
        batch = batch < 1 ? 1 : batch > BATCH_MOST ? BATCH_MOST : batch;
        rc = times(t, p, w, batch, &one);
        if (rc < 0)
            return rc;
        w->us[w->rounds++ - 1] = one * 1e6; /* the first round only warmed up */
    }
    return 0;
}

static int measure_ways(struct tuning *t, const struct bench_point *p, double seconds)
{
    int rc = first_round(t, p);
    double limit_us = best_of(t) * HOPELESS, slot = seconds / (ROUNDS * t->way_count);

    for (int round = 1; round < ROUNDS && rc == 0 && t->way_count > 1; round++)
        rc = next_round(t, p, slot, limit_us);
    for (int i = 0; i < t->way_count && rc == 0; i++) {
        struct way *w = &t->ways[i];
        int n = w->rounds - 1;

        if (n < 1)
            continue;
        qsort(w->us, (size_t)n, sizeof *w->us, compare);
        w->median = w->us[n / 2];
    }
    return rc;
}

/* ---- what came out ---- */

static const struct way *find_usual(const struct tuning *t)
{
    for (int i = 0; i < t->way_count; i++)
        if (!t->ways[i].segment && !strcmp(t->ways[i].name, t->usual))
            return &t->ways[i];
    return &t->ways[0];
}

static void judge(struct tuning *t, struct point *at)
{
    const struct way *best = find_usual(t), *usual = best;

    for (int i = 0; i < t->way_count; i++)
        if (t->ways[i].median < usual->median * WORTH && t->ways[i].median < best->median)
            best = &t->ways[i];
    at->best = *best;
    at->usual_us = usual->median;
}

static void tell(struct tuning *t, const struct point *at)
{
    fprintf(stderr, "# %-15s %9zu B: %-20s %9llu %10.2f us, usual: %s, %.2f us\n", at->row->name,
            at->bytes, at->best.name, (unsigned long long)at->best.segment, at->best.median,
            find_usual(t)->name, at->usual_us);
    if (!t->json)
        return;
    fprintf(t->json, "%s\n{\"collective\":\"%s\",\"bytes\":%zu,\"usual\":\"%s\",\"ways\":[",
            t->point_count > 1 ? "," : "", at->row->name, at->bytes, find_usual(t)->name);
    for (int i = 0; i < t->way_count; i++)
        fprintf(t->json, "%s{\"algorithm\":\"%s\",\"segment\":%llu,\"us\":%.3f}", i ? "," : "",
                t->ways[i].name, (unsigned long long)t->ways[i].segment, t->ways[i].median);
    fprintf(t->json, "]}");
}

static bool tune_point(struct tuning *t, const struct bench_row *row, size_t bytes, double seconds)
{
    bool parts = row->send == BENCH_PARTS || row->recv == BENCH_PARTS;
    struct bench_point p = { .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .width = 4 };
    struct point *at = &t->points[t->point_count];
    int rc = RINGRED_ENOMEM;

    t->options.row = row;
    t->options.collective = bench_collective_of(row);
    bench_shape(&t->rank, &p, bytes * (parts ? (size_t)t->rank.size : 1));
    *at = (struct point){ .row = row, .bytes = p.count * p.width };
    p.send = bench_memory(&t->rank, p.sends * p.width);
    p.recv = bench_memory(&t->rank, p.recvs * p.width);
    if (p.send && p.recv && list_ways(t, row->name, at->bytes)) {
        rc = bench_call(&t->rank, &p); /* and so `usual` is known */
        snprintf(at->best.name, sizeof at->best.name, "%s", t->usual);
        if (rc >= 0)
            rc = measure_ways(t, &p, seconds);
    }
    bench_memory_free(&t->rank, p.send);
    bench_memory_free(&t->rank, p.recv);
    if (rc < 0)
        return bench_say_failure(&t->rank, rc);
    snprintf(t->usual, sizeof t->usual, "%s", at->best.name);
    judge(t, at);
    t->point_count++;
    if (t->rank.rank == 0)
        tell(t, at);
    return rc == 0;
}

/* ---- the table ---- */

static bool is_same(const struct way *a, const struct way *b)
{
    return a->segment == b->segment && !strcmp(a->name, b->name);
}

static void print_bytes(FILE *out, double from, double to)
{
    char text[64];

    if (from > 0 && to > 0)
        snprintf(text, sizeof text, "%.0f..%.0f", from, to);
    else if (from > 0)
        snprintf(text, sizeof text, "%.0f..", from);
    else
        snprintf(text, sizeof text, to > 0 ? "..%.0f" : "*", to);
    fprintf(out, " %-20s", text);
}

/* The rows of one collective, from `first` on; between two sizes a row ends in the middle, as ratios
 * go. Where the next point begins. */
static int print_rows(const struct tuning *t, FILE *out, int first)
{
    double from = 0;
    int i = first;

    for (; i < t->point_count && t->points[i].row == t->points[first].row; i++) {
        const struct point *at = &t->points[i], *next = at + 1;
        bool last = i + 1 == t->point_count || next->row != at->row;
        double to = last ? 0 : floor(sqrt((double)at->bytes * (double)next->bytes));

        if (!last && is_same(&at->best, &next->best))
            continue;
        fprintf(out, "%-15s * %4d %4d", at->row->name, t->rank.size, t->hosts);
        print_bytes(out, from, to);
        fprintf(out, " %-22s ", at->best.name);
        if (at->best.segment)
            fprintf(out, "%llu\n", (unsigned long long)at->best.segment);
        else
            fprintf(out, "-\n");
        from = to + 1;
    }
    return i;
}

static bool print_table(const struct tuning *t)
{
    FILE *out = t->out ? fopen(t->out, "w") : stdout;
    bool written;

    if (!out)
        return bench_complain("cannot write %s", t->out);
    fprintf(out, "ringred-tuning 1\n# by ringred-bench tune of libringred %s, %d ranks, %d hosts\n",
            ringred_version(), t->rank.size, t->hosts);
    fprintf(out, "# collective type ranks hosts bytes algorithm segment\n");
    for (int i = 0; i < t->point_count;)
        i = print_rows(t, out, i);
    written = !ferror(out);
    if (out != stdout && fclose(out))
        written = false;
    return written || bench_complain("could not write all of %s", t->out ? t->out : "the table");
}

/* ---- the whole ---- */

static bool tune_all(struct tuning *t)
{
    int points = t->row_count * t->options.size_count;
    char *text = describe(t, NULL, 0);
    const char *hosts = text ? strstr(text, "\"hosts\":") : NULL;

    t->hosts = hosts ? atoi(hosts + 8) : 0;
    free(text);
    if (points > POINTS || !t->hosts)
        return bench_complain("at most %d sizes of all collectives together", POINTS);
    for (int k = 0; k < t->row_count; k++)
        for (int i = 0; i < t->options.size_count; i++)
            if (!tune_point(t, t->rows[k], t->options.sizes[i], t->budget / points))
                return false;
    return true;
}

static bool be_rank(struct tuning *t)
{
    struct bench_rank *r = &t->rank;
    bool fine;

    r->options = &t->options;
    if (!bench_open(&t->options, choose, t, &r->comm))
        return false;
    r->rank = ringred_comm_rank(r->comm);
    r->size = ringred_comm_size(r->comm);
    r->parts = calloc((size_t)r->size, sizeof *r->parts);
    if (r->rank == 0 && t->json_name) {
        t->json = fopen(t->json_name, "w");
        if (t->json)
            fprintf(t->json, "{\"results\":[");
    }
    fine = r->parts || bench_complain("no memory");
    fine = fine && (t->json || r->rank || !t->json_name || bench_complain("cannot write %s", t->json_name));
    fine = fine && tune_all(t);
    if (fine && r->rank == 0)
        fine = print_table(t);
    if (t->json && (fprintf(t->json, "\n]}\n") < 0 || fclose(t->json)))
        fine = bench_complain("could not write all of %s", t->json_name);
    free(r->parts);
    return ringred_comm_destroy(r->comm) >= 0 && fine;
}

int bench_tune(int argc, char **argv)
{
    static struct tuning t = { .budget = 100 };

    if (!parse(&t, argc - 1, argv + 1))
        return 2;
    if (t.options.child < 0 && t.options.ranks > 0)
        return bench_start_ranks(&t.options, argc, argv);
    return be_rank(&t) ? 0 : 1;
}
