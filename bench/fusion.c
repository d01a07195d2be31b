/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-bench fusion: the gradients of a model, averaged by fusion and in the ways in which one would do without it,
 * in turns. All of them are checked. */
#include "bench.h"

#include <ringred/fusion.h>

#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 40
#define ROUNDS_MOST 1000

enum way { FUSED, ONE_VECTOR, PACKED, ONE_BY_ONE, WAYS };

static const char *const way_text[WAYS] = {
    [FUSED] = "fusion, as the gradients lie",
    [ONE_VECTOR] = "one vector as long as all together",
    [PACKED] = "packed, averaged, unpacked",
    [ONE_BY_ONE] = "gradient by gradient",
};

struct fusing {
    struct bench_options options;
    struct bench_rank rank;
    struct bench_model model;
    ringred_fusion *fusion;
    const char *model_name, *json_name;
    size_t bucket;
    int rounds;
    bool lists;                 /* and measures nothing */
    float **gradient;           /* [tensors] */
    float *whole;               /* as long as all */
    double sample[WAYS][ROUNDS_MOST], median[WAYS], p10[WAYS], p90[WAYS];
    double wrong;
};

static void fusion_help(void)
{
    printf("usage: ringred-bench fusion [--model M] [options]\n\n"
           "Averages the float32 gradients of a model by fusion, as one vector, packed by hand and one by one,\n"
           "in turns; checks them all.\n\n"
           "  --model M            resnet50, bert-large, gpt2, or a file with lines \"name shape\" (resnet50)\n"
           "  --bucket SIZE        bytes from which on a bucket is full; 0: as the library likes (0)\n"
           "  --rounds N           steps that are measured (15)\n"
           "  --json FILE          what was measured\n"
           "  --list               only lists the model's gradients\n"
           "  --ranks, --transport, --set, --rendezvous, --no-pin, ... as without fusion\n");
}

/* ---- the command line ---- */

static bool take_flag(struct fusing *f, const char *flag, const char *value, bool *fine)
{
    char *end;

    if (!strcmp(flag, "--model")) {
        f->model_name = value;
    } else if (!strcmp(flag, "--json")) {
        f->json_name = value;
    } else if (!strcmp(flag, "--bucket")) {
        f->bucket = strtoull(value, &end, 10);
        f->bucket <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
        *fine = (end != value && *value != '-') || bench_complain("--bucket wants bytes, not '%s'", value);
    } else if (!strcmp(flag, "--rounds")) {
        f->rounds = atoi(value);
        *fine = (f->rounds > 0 && f->rounds <= ROUNDS_MOST) || bench_complain("--rounds is 1 to %d, not '%s'", ROUNDS_MOST, value);
    } else {
        return false;
    }
    return true;
}

/* The rest goes to the parser that all measuring shares, which wants a collective. */
static bool parse(struct fusing *f, int argc, char **argv)
{
    static char any[] = "allreduce";
    static char **rest; /* lives as long as the program: options point into it */
    bool fine = true, help = false;
    int n = 0;

    rest = calloc((size_t)argc + 2, sizeof *rest);
    if (!rest)
        return bench_complain("no memory");
    rest[n++] = argv[0];
    for (int i = 1; i < argc && fine; i++) {
        char name[NAME_BYTES];
        char *value = strchr(argv[i], '=');

        snprintf(name, sizeof name, "%.*s", value ? (int)(value - argv[i]) : NAME_BYTES - 1, argv[i]);
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
            fusion_help();
            exit(0);
        }
        if (!strcmp(name, "--list")) {
            f->lists = true;
            continue;
        }
        if (value ? take_flag(f, name, value + 1, &fine) : i + 1 < argc && take_flag(f, name, argv[i + 1], &fine))
            i += !value;
        else
            rest[n++] = argv[i];
    }
    rest[n++] = any;
    return fine && bench_parse(&f->options, n, rest, &help) && bench_model_load(&f->model, f->model_name);
}

/* ---- values: whole numbers, whose sums are exact; an average of equal ones is what they were ---- */

static float value_of(size_t tensor, size_t element)
{
    return (float)(tensor % 50 + element % 97);
}

static void fill(struct fusing *f)
{
    float *at = f->whole;

    for (size_t i = 0; i < f->model.n; i++)
        for (size_t k = 0; k < f->model.tensor[i].count; k++)
            f->gradient[i][k] = *at++ = value_of(i, k) + 2 * (float)f->rank.rank;
}

static double count_wrong(const struct fusing *f)
{
    float mean = (float)(f->rank.size - 1);
    const float *at = f->whole;
    double wrong = 0;

    for (size_t i = 0; i < f->model.n; i++)
        for (size_t k = 0; k < f->model.tensor[i].count; k++, at++)
            wrong += (f->gradient[i][k] != value_of(i, k) + mean) + (*at != value_of(i, k) + mean);
    return wrong;
}

/* ---- the ways ---- */

static int fuse(struct fusing *f)
{
    int rc = 0;

    for (size_t i = f->model.n; i-- > 0 && rc >= 0;) /* the last layer's come first */
        rc = ringred_fusion_add(f->fusion, f->model.tensor[i].name, f->gradient[i], f->model.tensor[i].count, RINGRED_FLOAT32);
    return rc < 0 ? rc : ringred_fusion_wait(f->fusion, RINGRED_FOREVER);
}

static int average(struct fusing *f, float *at, size_t count)
{
    return ringred_allreduce(f->rank.comm, at, at, count, RINGRED_FLOAT32, RINGRED_AVG);
}

static int pack(struct fusing *f)
{
    float *at = f->whole;

    for (size_t i = 0; i < f->model.n; at += f->model.tensor[i++].count)
        memcpy(at, f->gradient[i], f->model.tensor[i].count * sizeof *at);
    int rc = average(f, f->whole, f->model.elements);
    at = f->whole;
    for (size_t i = 0; i < f->model.n; at += f->model.tensor[i++].count)
        memcpy(f->gradient[i], at, f->model.tensor[i].count * sizeof *at);
    return rc;
}

static int go(struct fusing *f, enum way way)
{
    int rc = 0;

    if (way == FUSED)
        return fuse(f);
    if (way == ONE_VECTOR)
        return average(f, f->whole, f->model.elements);
    if (way == PACKED)
        return pack(f);
    for (size_t i = f->model.n; i-- > 0 && rc >= 0;)
        rc = average(f, f->gradient[i], f->model.tensor[i].count);
    return rc;
}

static int measure(struct fusing *f)
{
    int rc = 0;

    fill(f);
    for (int round = -1; round < f->rounds && rc >= 0; round++) /* the first warms up */
        for (int k = 0; k < WAYS && rc >= 0; k++) {
            enum way way = (enum way)((k + round + 1) % WAYS);
            rc = ringred_barrier(f->rank.comm);
            double start = bench_now();
            if (rc >= 0)
                rc = go(f, way);
            if (round >= 0)
                f->sample[way][round] = (bench_now() - start) * 1e6;
        }
    f->wrong = rc < 0 ? 0 : count_wrong(f);
    return rc;
}

/* ---- what came out ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int conclude(struct fusing *f)
{
    int rc = bench_largest(&f->rank, &f->wrong, 1);

    for (int way = 0; way < WAYS && rc >= 0; way++) {
        double *s = f->sample[way], of[3];
        qsort(s, (size_t)f->rounds, sizeof *s, by_size);
        of[0] = s[f->rounds / 2];
        of[1] = s[f->rounds / 10];
        of[2] = s[f->rounds - 1 - f->rounds / 10];
        rc = bench_largest(&f->rank, of, 3);
        f->median[way] = of[0];
        f->p10[way] = of[1];
        f->p90[way] = of[2];
    }
    return rc;
}

static void print(const struct fusing *f)
{
    printf("# %s: %zu gradients, %zu float32, %.1f MiB, %d ranks; us of a step of the slowest rank, %d steps\n", f->model.name,
           f->model.n, f->model.elements, (double)f->model.elements * 4 / 1048576, f->rank.size, f->rounds);
    printf("# %-36s %12s %12s %12s %8s\n", "", "median", "p10", "p90", "ratio");
    for (int way = 0; way < WAYS; way++)
        printf("  %-36s %12.1f %12.1f %12.1f %8.2f\n", way_text[way], f->median[way], f->p10[way], f->p90[way],
               f->median[way] / f->median[FUSED]);
    printf("# wrong elements: %.0f\n", f->wrong);
}

static bool write_json(const struct fusing *f)
{
    static const char *const key[WAYS] = { "fused_us", "one_vector_us", "packed_us", "one_by_one_us" };
    FILE *out = fopen(f->json_name, "w");

    if (!out)
        return bench_complain("cannot write %s", f->json_name);
    fprintf(out, "{\"results\":[{\"model\":\"%s\",\"tensors\":%zu,\"elements\":%zu,\"ranks\":%d,\"wrong\":%.0f", f->model.name,
            f->model.n, f->model.elements, f->rank.size, f->wrong);
    for (int way = 0; way < WAYS; way++)
        fprintf(out, ",\"%s\":%.1f", key[way], f->median[way]);
    bool written = fprintf(out, "}]}\n") > 0;
    return (!fclose(out) && written) || bench_complain("could not write all of %s", f->json_name);
}

/* ---- the whole ---- */

static bool say_failure(struct fusing *f, int rc)
{
    ringred_error why;

    ringred_error_init(&why);
    if (f->fusion)
        (void)ringred_fusion_error(f->fusion, &why);
    return why.code == rc ? bench_complain("rank %d: %s", f->rank.rank, why.text) : bench_say_failure(&f->rank, rc);
}

static bool open_all(struct fusing *f)
{
    ringred_fusion_options o;
    ringred_error why;

    f->gradient = calloc(f->model.n, sizeof *f->gradient);
    f->whole = bench_memory(&f->rank, f->model.elements * sizeof *f->whole);
    if (!f->gradient || !f->whole)
        return bench_complain("no memory for %zu elements", f->model.elements);
    for (size_t i = 0; i < f->model.n; i++) {
        f->gradient[i] = bench_memory(&f->rank, f->model.tensor[i].count * sizeof **f->gradient);
        if (!f->gradient[i])
            return false;
    }
    ringred_fusion_options_init(&o, sizeof o);
    o.bucket_bytes = f->bucket;
    return ringred_fusion_create(f->rank.comm, &o, &f->fusion, &why) >= 0 || bench_complain("%s", why.text);
}

static bool be_rank(struct fusing *f)
{
    struct bench_rank *r = &f->rank;

    r->options = &f->options;
    if (!bench_open(&f->options, NULL, NULL, &r->comm))
        return false;
    r->rank = ringred_comm_rank(r->comm);
    r->size = ringred_comm_size(r->comm);
    bool fine = open_all(f);
    int rc = fine ? measure(f) : 0;
    if (rc >= 0 && fine)
        rc = conclude(f);
    fine = fine && (rc >= 0 || say_failure(f, rc));
    if (fine && r->rank == 0) {
        print(f);
        fine = !f->json_name || write_json(f);
    }
    fine = ringred_fusion_destroy(f->fusion) >= 0 && fine;
    for (size_t i = 0; i < f->model.n && f->gradient; i++)
        bench_memory_free(r, f->gradient[i]);
    bench_memory_free(r, f->whole);
    free(f->gradient);
    free(f->model.tensor);
    return ringred_comm_destroy(r->comm) >= 0 && fine && !(f->wrong > 0);
}

int bench_fusion(int argc, char **argv)
{
    static struct fusing f = { .rounds = 15, .model_name = "resnet50" };

    if (!parse(&f, argc - 1, argv + 1))
        return 2;
    for (size_t i = 0; i < f.model.n && f.lists; i++)
        printf("%s %zu\n", f.model.tensor[i].name, f.model.tensor[i].count);
    if (f.lists)
        return 0;
    if (f.options.child < 0 && f.options.ranks > 0)
        return bench_start_ranks(&f.options, argc, argv);
    return be_rank(&f) ? 0 : 1;
}
