/* SPDX-License-Identifier: Apache-2.0 */
/* ringred-bench: measures collectives and checks their results. Either it is one rank of a job that
 * a launcher started, or it starts its own ranks on this machine. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

bool bench_say_failure(const struct bench_rank *r, int rc)
{
    ringred_error why;

    ringred_error_init(&why);
    (void)ringred_comm_error(r->comm, &why); /* code stays 0 where the communicator is whole */
    fprintf(stderr, "ringred-bench: rank %d: %s\n", r->rank,
            why.code ? why.text : ringred_status_text(rc));
    return false;
}

/* In place, the buffer of fewer parts is this rank's part of the other. */
static bool open_buffers(const struct bench_rank *r, struct bench_point *p, bool in_place)
{
    size_t own = p->before * p->width;

    p->in_place = in_place;
    p->send = p->recv = NULL;
    if (!in_place) {
        p->recv = bench_memory(r, p->recvs * p->width);
        p->send = bench_memory(r, p->sends * p->width);
        return p->send && p->recv;
    }
    p->send = p->recv = bench_memory(r, p->bytes);
    if (p->recv && r->options->row->send < r->options->row->recv)
        p->send = (char *)p->recv + own;
    else if (p->recv && r->options->row->send > r->options->row->recv)
        p->recv = (char *)p->send + own;
    return p->recv != NULL;
}

static void close_buffers(const struct bench_rank *r, struct bench_point *p)
{
    char *send = p->send, *recv = p->recv;

    if (p->in_place) {
        bench_memory_free(r, recv < send ? recv : send);
    } else {
        bench_memory_free(r, send);
        bench_memory_free(r, recv);
    }
}

/* Measures one size in one place; buffers come and go with it. */
static bool measure_place(const struct bench_rank *r, struct bench_point *p, bool in_place,
                          struct bench_result *result)
{
    static struct bench_point others[BENCH_COMMS];
    int more = r->options->comms - 1, opened = 0;
    bool fine = open_buffers(r, p, in_place);

    for (; fine && opened < more; opened++) {
        others[opened] = *p;
        fine = open_buffers(r, &others[opened], in_place);
    }
    p->others = more ? others : NULL;
    if (fine) {
        int rc = bench_measure(r, p, result);

        fine = rc >= 0 || bench_say_failure(r, rc);
    }
    for (int k = 0; k < opened; k++)
        close_buffers(r, &others[k]);
    close_buffers(r, p);
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

/* Type and operator are 0 where the collective has none. */
static bool sweep(const struct bench_rank *r, struct bench_report *report, int32_t type, int32_t op)
{
    const struct bench_options *o = r->options;

    for (int i = 0; i < o->size_count; i++) {
        struct bench_point p = { .type = type, .op = op, .width = bench_width(type) };

        bench_shape(r, &p, o->sizes[i]);
        if (!measure_size(r, report, &p))
            return false;
    }
    return true;
}

static bool sweep_ops(const struct bench_rank *r, struct bench_report *report, int32_t type)
{
    const struct bench_options *o = r->options;

    if (!o->row->reduces)
        return sweep(r, report, type, 0);
    if (r->rank == 0)
        bench_report_skipped(o, type);
    for (int k = 0; k < o->op_count; k++)
        if (bench_is_pair(type, o->ops[k]) && !sweep(r, report, type, o->ops[k]))
            return false;
    return true;
}

static bool measure_all(const struct bench_rank *r, struct bench_report *report)
{
    const struct bench_options *o = r->options;

    for (int cycle = 0; cycle < o->cycles; cycle++) {
        if (o->row->send == BENCH_NOTHING && !sweep(r, report, 0, 0))
            return false;
        for (int t = 0; o->row->send != BENCH_NOTHING && t < o->type_count; t++)
            if (!sweep_ops(r, report, o->types[t]))
                return false;
    }
    return true;
}

bool bench_open(const struct bench_options *o, ringred_choose_fn choose, void *context,
                ringred_comm **comm)
{
    ringred_config config;
    ringred_unique_id id;
    ringred_error why;

    ringred_config_init(&config, sizeof config);
    ringred_error_init(&why);
    config.settings = o->settings;
    config.choose = choose;
    config.choose_context = context;
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

static bool open_others(struct bench_rank *r)
{
    for (int k = 0; k < r->options->comms - 1; k++) {
        int rc = ringred_comm_split(r->comm, 0, 0, &r->others[k]);

        if (rc < 0)
            return bench_say_failure(r, rc);
    }
    return true;
}

/* Tells whether all went well and nothing was wrong; every rank comes to the same answer. */
static bool be_rank(const struct bench_options *o)
{
    struct bench_rank r = { .options = o };
    struct bench_report report = { 0 };
    bool fine = true;

    if (!bench_open(o, NULL, NULL, &r.comm))
        return false;
    r.rank = ringred_comm_rank(r.comm);
    r.size = ringred_comm_size(r.comm);
    r.parts = calloc((size_t)r.size, sizeof *r.parts);
    if (o->root >= r.size || !r.parts)
        fine = r.parts ? bench_complain("root %d is not one of %d ranks", o->root, r.size)
                       : bench_complain("no memory");
    fine = fine && open_others(&r);
    if (fine && r.rank == 0)
        fine = bench_report_open(&report, &r);
    if (fine)
        fine = measure_all(&r, &report);
    if (fine && r.rank == 0)
        fine = bench_report_close(&report, &r);
    free(r.parts);
    for (int k = 0; k < o->comms - 1; k++)
        if (ringred_comm_destroy(r.others[k]) < 0)
            fine = false;
    if (ringred_comm_destroy(r.comm) < 0)
        fine = false;
    return fine && !(report.wrong > 0);
}

int main(int argc, char **argv)
{
    static struct bench_options o; /* what it points to stays reachable to the end */
    bool help = false;

    if (argc > 1 && !strcmp(argv[1], "simulate"))
        return bench_simulate(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "tune"))
        return bench_tune(argc, argv);
    if (argc > 1 && !strcmp(argv[1], "fusion"))
        return bench_fusion(argc, argv);
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
