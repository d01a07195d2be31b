/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the engine does as a Chrome trace (setting trace): one bar per step from when it could
 * first run to when it had ended, one per operation. For looking at, in chrome://tracing or Perfetto.
 * It stands between the engine and its steps; without the setting it costs nothing. */
#include "engine/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct rr_trace {
    FILE *file;
    int rank;
    int64_t *since_ns;  /* [most_steps] when the step's instance under way was first tried; 0: none is */
    int64_t begun_ns;   /* the operation under way */
    bool comma;
};

static void bar(struct rr_trace *t, int row, const char *name, int64_t from, int64_t to,
                const char *detail)
{
    fprintf(t->file,
            "%s{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{%s}}",
            t->comma ? ",\n" : "", name, (double)from / 1e3, (double)(to - from) / 1e3, t->rank, row,
            detail);
    t->comma = true;
}

static void name_of(const struct rr_step *s, char *name, size_t room)
{
    static const char *const kinds[RR_STEP_LAST] = {
        [RR_STEP_SEND] = "send to",   [RR_STEP_RECV] = "receive from", [RR_STEP_REDUCE] = "reduce",
        [RR_STEP_COPY] = "copy",      [RR_STEP_SIGNAL] = "signal",     [RR_STEP_AWAIT] = "await",
    };

    if (s->kind == RR_STEP_SEND || s->kind == RR_STEP_RECV)
        snprintf(name, room, "%s %d", kinds[s->kind], s->peer);
    else
        snprintf(name, room, "%s", kinds[s->kind]);
}

static int traced_step(struct rr_engine *e, struct rr_run *r, uint32_t x, size_t segment,
                       ringred_error *why)
{
    struct rr_trace *t = e->trace;
    int64_t now = rr_now_ns();
    char name[32], detail[96];

    if (!t->since_ns[x])
        t->since_ns[x] = now;
    int rc = rr_step_run(e, r, x, segment, why);
    if (rc == RINGRED_PENDING)
        return rc;
    name_of(&r->program->plan->step[x], name, sizeof name);
    snprintf(detail, sizeof detail, "\"operation\":%llu,\"step\":%u,\"segment\":%zu,\"status\":%d",
             (unsigned long long)r->ask.sequence, x, segment, rc);
    bar(t, 1, name, t->since_ns[x], rr_now_ns(), detail);
    t->since_ns[x] = 0;
    return rc;
}

void rr_trace_begin(struct rr_engine *e)
{
    if (e->trace)
        e->trace->begun_ns = rr_now_ns();
}

void rr_trace_end(struct rr_engine *e, const struct rr_run *r)
{
    char name[128], detail[96];
    struct rr_text text = { name, sizeof name, 0 };

    if (!e->trace)
        return;
    rr_ask_print(&r->ask, &text);
    snprintf(detail, sizeof detail, "\"operation\":%llu,\"lane\":%d",
             (unsigned long long)r->ask.sequence, (int)r->lane);
    bar(e->trace, 0, name, e->trace->begun_ns, rr_now_ns(), detail);
}

int rr_trace_open(struct rr_engine *e, const char *path, uint32_t most_steps, ringred_error *why)
{
    char name[512];
    const char *mark = strstr(path, "%r");

    if (!*path)
        return 0;
    if (mark)
        snprintf(name, sizeof name, "%.*s%d%s", (int)(mark - path), path, e->rank, mark + 2);
    else
        snprintf(name, sizeof name, "%s", path);
    struct rr_trace *t = rr_alloc(1, sizeof *t);
    if (t)
        t->since_ns = rr_alloc(most_steps, sizeof *t->since_ns);
    if (!t || !t->since_ns) {
        rr_free(t);
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a trace");
    }
    t->rank = e->rank;
    t->file = fopen(name, "we");
    if (!t->file) {
        int system = errno;
        rr_free(t->since_ns);
        rr_free(t);
        return rr_fail(why, RINGRED_ESYSTEM, -1, system, "cannot write the trace to %.200s", name);
    }
    fputs("[\n", t->file);
    e->trace = t;
    e->step = traced_step;
    return 0;
}

void rr_trace_close(struct rr_engine *e)
{
    if (!e->trace)
        return;
    fputs("\n]\n", e->trace->file);
    fclose(e->trace->file);
    rr_free(e->trace->since_ns);
    rr_free(e->trace);
    e->trace = NULL;
}
