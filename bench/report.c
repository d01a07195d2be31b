/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 shows: nccl-tests' columns on stdout, one row as soon as it is measured, and the same
 * results as JSON in a file, where asked for. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double busbw_factor(const struct bench_rank *r)
{
    double n = r->size, crossings = r->options->row->crossings;

    return crossings > 0 ? crossings * (n - 1) / n : 1;
}

/* bytes per microsecond are MB/s */
static double algbw_gbs(const struct bench_point *p, const struct bench_result *x)
{
    return x->median > 0 ? (double)p->bytes / x->median / 1e3 : 0;
}

/* nccl-tests says -1 where there is none. */
static int root_of(const struct bench_options *o)
{
    return o->row->root == BENCH_NO_ROOT ? -1 : o->root;
}

static const char *memory_name(const struct bench_options *o)
{
    return o->symmetric ? "symmetric" : "ordinary";
}

/* Columns of one place that not everybody asks for: their names and units. */
static const char *more_names(const struct bench_options *o)
{
    return o->percentiles ? "      p10      p90      p99    worst" : "";
}

static const char *overlap_names(const struct bench_options *o)
{
    return o->overlap ? "   compute    beside hidden" : "";
}

static const char *overlap_units(const struct bench_options *o)
{
    return o->overlap ? "      (us)      (us)    (%)" : "";
}

static void head_of_columns(const struct bench_options *o)
{
    const char *more = more_names(o);

    printf("#%48s", "");
    if (o->row->send != BENCH_NOTHING && o->places & BENCH_OUT_OF_PLACE)
        printf("   %-*s", 31 + (int)(strlen(more) + strlen(overlap_names(o))), "out-of-place");
    if (o->row->send != BENCH_NOTHING && o->places & BENCH_IN_PLACE)
        printf("   in-place");
    printf("\n#%10s %12s %10s %6s %6s", "size", "count", "type", "redop", "root");
    for (int i = BENCH_OUT_OF_PLACE; i <= BENCH_IN_PLACE; i++)
        if (o->places & i)
            printf(" %9s %7s %7s%s%s %6s", "time", "algbw", "busbw", more, overlap_names(o),
                   "#wrong");
    printf("\n#%10s %12s %10s %6s %6s", "(B)", "(elements)", "", "", "");
    for (int i = BENCH_OUT_OF_PLACE; i <= BENCH_IN_PLACE; i++)
        if (o->places & i)
            printf(" %9s %7s %7s%*s%s %6s", "(us)", "(GB/s)", "(GB/s)", (int)strlen(more), "",
                   overlap_units(o), "");
    printf("\n");
}

/* What connections of this rank are encrypted with. */
static const char *find_cipher(const struct bench_rank *r)
{
    static const char *const ciphers[] = { "aes256gcm", "chacha20poly1305" };
    int64_t need = ringred_comm_describe(r->comm, NULL, 0, NULL, 0);
    char *text = need > 0 ? malloc((size_t)need + 1) : NULL, name[32];
    const char *found = "none";

    if (text && ringred_comm_describe(r->comm, NULL, 0, text, (size_t)need + 1) > 0)
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "\"%s\":", ciphers[i]);
            const char *at = strstr(text, name);
            if (at && strtol(at + strlen(name), NULL, 10) > 0)
                found = ciphers[i];
        }
    free(text);
    return found;
}

static void head(const struct bench_report *report, const struct bench_rank *r)
{
    const struct bench_options *o = r->options;
    bool sealed = strcmp(report->cipher, "none") != 0;
    char host[64] = "";

    (void)gethostname(host, sizeof host - 1);
    printf("# libringred %s, %s, %d ranks, rank 0 on %s, transport %s%s%s, %s memory\n", ringred_version(),
           o->row->name, r->size, host, o->transport, sealed ? " with " : "", sealed ? report->cipher : "",
           memory_name(o));
    printf("# time: the median call of the slowest rank; %s\n",
           o->check ? "results are checked before and after the timed calls"
                    : "results are not checked");
    if (o->row->uneven)
        printf("# parts are %g to %g times as long as their mean, which is the count\n",
               1 - o->uneven, 1 + o->uneven);
    if (o->overlap)
        printf("# compute: alone; beside: between start and wait; hidden: what that saves, of the "
               "time\n");
    printf("#\n");
    head_of_columns(o);
    fflush(stdout);
}

bool bench_report_open(struct bench_report *report, const struct bench_rank *r)
{
    const char *path = r->options->json;

    *report = (struct bench_report){ .cipher = find_cipher(r) };
    if (path) {
        report->json = fopen(path, "w");
        if (!report->json) {
            fprintf(stderr, "ringred-bench: cannot write %s: %s\n", path, strerror(errno));
            return false;
        }
        fprintf(report->json, "{\"schema\":1,\"results\":[");
    }
    head(report, r);
    return true;
}

static void json_overlap(FILE *out, const struct bench_result *x)
{
    fprintf(out, ",\"overlap\":{\"compute_us\":%.3f,\"both_us\":%.3f,\"hidden\":%.4f}", x->compute,
            x->both, x->hidden);
}

static void json_row(struct bench_report *report, const struct bench_rank *r,
                     const struct bench_point *p, const struct bench_result *x, bool in_place)
{
    const struct bench_options *o = r->options;
    FILE *out = report->json;

    fprintf(out,
            "%s\n{\"collective\":\"%s\",\"bytes\":%zu,\"count\":%zu,\"dtype\":\"%s\","
            "\"op\":\"%s\",\"root\":%d,\"ranks\":%d,\"transport\":\"%s\",\"encryption\":\"%s\","
            "\"memory\":\"%s\",\"in_place\":%s,\"iters\":%ld,\"wrong\":%.0f,",
            report->rows++ ? "," : "", o->row->name, p->bytes, p->count, bench_type_long(p->type),
            bench_op_name(p->op), root_of(o), r->size, o->transport, report->cipher, memory_name(o),
            in_place ? "true" : "false", x->calls, x->wrong < 0 ? 0 : x->wrong);
    if (o->row->uneven)
        fprintf(out, "\"uneven\":%g,", o->uneven);
    fprintf(out,
            "\"time_us\":{\"median\":%.3f,\"p10\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"mean\":%.3f,"
            "\"max\":%.3f},\"algbw_gbs\":%.4f,\"busbw_gbs\":%.4f",
            x->median, x->p10, x->p90, x->p99, x->mean, x->worst, algbw_gbs(p, x),
            algbw_gbs(p, x) * busbw_factor(r));
    if (o->overlap)
        json_overlap(out, x);
    fprintf(out, "}");
    fflush(out);
}

static void half_row(struct bench_report *report, const struct bench_rank *r,
                     const struct bench_point *p, const struct bench_result *x, bool in_place)
{
    double busbw = algbw_gbs(p, x) * busbw_factor(r);

    printf(" %9.2f %7.2f %7.2f", x->median, algbw_gbs(p, x), busbw);
    if (r->options->percentiles)
        printf(" %8.2f %8.2f %8.2f %8.2f", x->p10, x->p90, x->p99, x->worst);
    if (r->options->overlap)
        printf(" %9.2f %9.2f %6.1f", x->compute, x->both, 100 * x->hidden);
    if (x->wrong < 0)
        printf(" %6s", "N/A");
    else
        printf(" %6.0f", x->wrong);
    report->busbw_sum += busbw;
    report->wrong += x->wrong > 0 ? x->wrong : 0;
    report->points++;
    if (report->json)
        json_row(report, r, p, x, in_place);
}

void bench_report_skipped(const struct bench_options *o, int32_t type)
{
    int skipped = 0;

    for (int k = 0; k < o->op_count; k++) {
        if (bench_is_pair(type, o->ops[k]))
            continue;
        printf("%s%s", skipped++ ? ", " : "# left out, there is no ", bench_op_name(o->ops[k]));
    }
    if (skipped)
        printf(" of %s\n", bench_type_name(type));
}

void bench_report_row(struct bench_report *report, const struct bench_rank *r,
                      const struct bench_point *p, const struct bench_result *out,
                      const struct bench_result *in)
{
    printf(" %10zu %12zu %10s %6s %6d", p->bytes, p->count, bench_type_name(p->type),
           bench_op_name(p->op), root_of(r->options));
    if (out)
        half_row(report, r, p, out, false);
    if (in)
        half_row(report, r, p, in, true);
    printf("\n");
    fflush(stdout);
}

bool bench_report_close(struct bench_report *report, const struct bench_rank *r)
{
    bool written = true;

    printf("# Out of bounds values : %.0f %s\n", report->wrong,
           report->wrong > 0 ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %.4f\n#\n",
           report->points ? report->busbw_sum / (double)report->points : 0.0);
    fflush(stdout);
    if (report->json) {
        fprintf(report->json, "\n]}\n");
        written = !ferror(report->json);
        if (fclose(report->json) || !written) {
            fprintf(stderr, "ringred-bench: could not write all of %s\n", r->options->json);
            written = false;
        }
    }
    return written;
}
