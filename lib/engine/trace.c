/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the engine does as a Chrome trace (setting trace): one bar per step from when it could
 * first run to when it had ended, one per operation. For looking at, in chrome://tracing or Perfetto.
 * It stands between the engine and its steps; without the setting it costs nothing. */
#include "engine/step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER 32768 /* of our own: stdio's would be written once more by a fork that exits */

struct rr_trace {
    int fd;             /* -1: what could not be written has ended it */
    int rank;
    const struct rr_log *log;
    int64_t *since_ns;  /* [most_steps] when the step's instance under way was first tried; 0: none is */
    int64_t begun_ns;   /* the operation under way */
    uint64_t written;
    size_t used;
    bool comma;
    char buffer[BUFFER];
};

/* A trace is a wish: where it cannot be written, the operations go on without it. */
static void flush(struct rr_trace *t)
{
    size_t at = 0;

    while (t->fd >= 0 && at < t->used) {
        bool has_room = t->written + t->used <= rr_file_limit();
        ssize_t n = has_room ? write(t->fd, t->buffer + at, t->used - at) : -1;
        int system = has_room ? errno : EFBIG;
        if (n < 0 && system == EINTR)
            continue;
        if (n < 0) {
            char room[128];
            rr_log(t->log, RINGRED_LOG_WARN, "the trace ends early: it cannot be written (%s)",
                   strerror_r(system, room, sizeof room));
            rr_fd_close(t->fd);
            t->fd = -1;
            break;
        }
        at += (size_t)n;
        t->written += (uint64_t)n;
    }
    t->used = 0;
}

static void put(struct rr_trace *t, const char *text, size_t bytes)
{
    if (bytes > sizeof t->buffer - t->used)
        flush(t);
    memcpy(t->buffer + t->used, text, bytes);
    t->used += bytes;
}

static void bar(struct rr_trace *t, int row, const char *name, int64_t from, int64_t to,
                const char *detail)
{
    char line[512];
    int n = snprintf(line, sizeof line,
                     "%s{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{%s}}",
                     t->comma ? ",\n" : "", name, (double)from / 1e3, (double)(to - from) / 1e3, t->rank, row,
                     detail);

    if (t->fd < 0 || n < 0 || (size_t)n >= sizeof line)
        return; /* name and detail are ours, and short */
    put(t, line, (size_t)n);
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

int rr_trace_open(struct rr_engine *e, const char *path, uint32_t most_steps, const struct rr_log *log, ringred_error *why)
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
    t->log = log;
    t->fd = rr_fd_own(open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (t->fd < 0) {
        int system = errno;
        rr_free(t->since_ns);
        rr_free(t);
        return rr_fail(why, system == EMFILE || system == ENFILE ? RINGRED_ELIMIT : RINGRED_ESYSTEM, -1, system,
                       "cannot write the trace to %.200s", name);
    }
    put(t, "[\n", 2);
    e->trace = t;
    e->step = traced_step;
    return 0;
}

void rr_trace_close(struct rr_engine *e)
{
    struct rr_trace *t = e->trace;

    if (!t)
        return;
    put(t, "\n]\n", 3);
    flush(t);
    rr_fd_close(t->fd);
    rr_free(t->since_ns);
    rr_free(t);
    e->trace = NULL;
}
