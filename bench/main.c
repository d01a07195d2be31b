/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-bench: measures collectives and checks their results. Either it is one rank of a job that
 * a launcher started, or it starts its own ranks on this machine. */
#include "bench.h"

#include <stdlib.h>

static bool say_failure(const struct bench_rank *r, int rc)
{
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(r->comm, &why); /* code stays 0 where the communicator is whole */
    fprintf(stderr, "ringred-bench: rank %d: %s\n", r->rank,
            why.code ? why.text : ringred_status_text(rc));
    return false;
}

/* Measures one size in one place; buffers come and go with it. */
static bool measure_place(const struct bench_rank *r, struct bench_point *p, bool in_place,
                          struct bench_result *result)
{
    bool fine = false;
    int rc;

    p->in_place = in_place;
    p->recv = bench_memory(r, p->bytes);
    p->send = in_place ? p->recv : bench_memory(r, p->bytes);
    if (p->send && p->recv) {
        rc = bench_measure(r, p, result);
        fine = rc >= 0 || say_failure(r, rc);
    }
    if (p->send != p->recv)
        bench_memory_free(r, p->send);
    bench_memory_free(r, p->recv);
    return fine;
}

static bool measure_size(const struct bench_rank *r, struct bench_report *report,
                         struct bench_point *p)
{
    struct bench_result out, in;
    int places = r->options->places;

    if ((places & BENCH_OUT_OF_PLACE) && !measure_place(r, p, false, &out))
        return false;
    if ((places & BENCH_IN_PLACE) && !measure_place(r, p, true, &in))
        return false;
    if (r->rank == 0)
        bench_report_row(report, r, p, places & BENCH_OUT_OF_PLACE ? &out : NULL,
                         places & BENCH_IN_PLACE ? &in : NULL);
    else
        report->wrong += (places & BENCH_OUT_OF_PLACE && out.wrong > 0 ? out.wrong : 0) +
                         (places & BENCH_IN_PLACE && in.wrong > 0 ? in.wrong : 0);
    return true;
}

static bool sweep(const struct bench_rank *r, struct bench_report *report, int32_t type, int32_t op)
{
    const struct bench_options *o = r->options;

    for (int i = 0; i < o->size_count; i++) {
        struct bench_point p = { .type = type, .op = op, .width = type == RINGRED_FLOAT32 ? 4 : 8 };

        p.count = o->sizes[i] / p.width;
        p.bytes = p.count * p.width;
        if (p.count > 0 && !measure_size(r, report, &p))
            return false;
    }
    return true;
}

static bool measure_all(const struct bench_rank *r, struct bench_report *report)
{
    const struct bench_options *o = r->options;
    int ops = o->collective == BENCH_ALLREDUCE ? o->op_count : 1;

    for (int cycle = 0; cycle < o->cycles; cycle++)
        for (int t = 0; t < o->type_count; t++)
            for (int k = 0; k < ops; k++)
                if (!sweep(r, report, o->types[t], o->ops[k]))
                    return false;
    return true;
}

static bool open_comm(const struct bench_options *o, ringred_comm **comm)
{
    ringred_config config;
    ringred_unique_id id;
    ringred_error why;

    ringred_config_init(&config);
    ringred_error_init(&why);
    config.settings = o->settings;
    if (o->child >= 0) {
        if (!bench_join_parent(o, &id))
            return false;
        config.id = &id;
        config.rank = o->child;
        config.size = o->ranks;
    }
    if (ringred_comm_create(&config, comm, &why) >= 0)
        return true;
    fprintf(stderr, "ringred-bench: %s\n", why.text);
    return false;
}

/* Tells whether all went well and nothing was wrong; every rank comes to the same answer. */
static bool be_rank(const struct bench_options *o)
{
    struct bench_rank r = { .options = o };
    struct bench_report report = { 0 };
    bool fine = true;

    if (!open_comm(o, &r.comm))
        return false;
    r.rank = ringred_comm_rank(r.comm);
    r.size = ringred_comm_size(r.comm);
    if (o->root >= r.size) {
        fprintf(stderr, "ringred-bench: root %d is not one of %d ranks\n", o->root, r.size);
        fine = false;
    }
    if (fine && r.rank == 0)
        fine = bench_report_open(&report, &r);
    if (fine)
        fine = measure_all(&r, &report);
    if (fine && r.rank == 0)
        fine = bench_report_close(&report, &r);
    if (ringred_comm_destroy(r.comm) < 0)
        fine = false;
    return fine && !(report.wrong > 0);
}

int main(int argc, char **argv)
{
    struct bench_options o;
    bool help = false;

    if (!bench_parse(&o, argc, argv, &help))
        return 2;
    if (help) {
        bench_help(stdout);
        return 0;
    }
    if (o.child < 0 && o.ranks > 0)
        return bench_start_ranks(&o, argc, argv);
    return be_rank(&o) ? 0 : 1;
}
