/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a question and telling what was assumed. One table has all names; numbers come with their units
 * and are kept in seconds, bytes, and bytes in a second. */
#include "sim/sim.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum kind { NUMBER, BYTES, RATE, TIME };

/* What is assumed where nothing is said: hosts at 10 Gb/s in one room, as plain sockets find them. */
static const struct row {
    const char *name, *key; /* in a question; in the answer, with its unit */
    enum kind kind;
    double least, most, usual;
} rows[RR_SIM_VALUES] = {
    [RR_SIM_NODES] = { "nodes", "nodes", NUMBER, 1, RR_SIM_RANKS, 2 },
    [RR_SIM_PER_HOST] = { "per_host", "per_host", NUMBER, 1, RR_SIM_RANKS, 1 },
    [RR_SIM_BYTES] = { "bytes", "bytes", BYTES, 0, 1e12, 1 << 20 },
    [RR_SIM_ELEMENT] = { "element", "element_bytes", BYTES, 1, 64, 4 },
    [RR_SIM_SEGMENT] = { "segment", "segment_bytes", BYTES, 0, 1e12, 0 },
    [RR_SIM_ROOT] = { "root", "root", NUMBER, 0, RR_SIM_RANKS, 0 },
    [RR_SIM_IN_PLACE] = { "in_place", "in_place", NUMBER, 0, 1, 1 },
    [RR_SIM_RATE] = { "rate", "rate_bytes_per_s", RATE, 0, 1e14, 1.25e9 },
    [RR_SIM_FLOW] = { "flow", "flow_bytes_per_s", RATE, 0, 1e14, 0 },
    [RR_SIM_EFFICIENCY] = { "efficiency", "efficiency", NUMBER, 0.01, 1, 0.94 },
    [RR_SIM_STREAMS] = { "streams", "streams", NUMBER, 0, 64, 0 },
    [RR_SIM_LATENCY] = { "latency", "latency_s", TIME, 0, 100, 20e-6 },
    [RR_SIM_SEND] = { "send", "send_s", TIME, 0, 1, 2e-6 },
    [RR_SIM_RECV] = { "recv", "recv_s", TIME, 0, 1, 2e-6 },
    [RR_SIM_BUFFER] = { "buffer", "buffer_bytes", BYTES, 0, 1e12, 256 << 10 },
    [RR_SIM_HEADER] = { "header", "header_bytes", BYTES, 0, 1e6, 32 },
    [RR_SIM_LOOP_RATE] = { "loop_rate", "loop_rate_bytes_per_s", RATE, 0, 1e14, 4e9 },
    [RR_SIM_LOOP_LATENCY] = { "loop_latency", "loop_latency_s", TIME, 0, 100, 4e-6 },
    [RR_SIM_SIGNAL] = { "signal", "signal_s", TIME, 0, 1, 100e-9 },
    [RR_SIM_COPY] = { "copy", "copy_bytes_per_s", RATE, 0, 1e14, 8e9 },
    [RR_SIM_REDUCE] = { "reduce", "reduce_bytes_per_s", RATE, 0, 1e14, 16e9 },
    [RR_SIM_CPUS] = { "cpus", "cpus", NUMBER, 0, 65536, 0 },
    [RR_SIM_ALL_CPUS] = { "all_cpus", "all_cpus", NUMBER, 0, 65536, 0 },
    [RR_SIM_SLOW_HOST] = { "slow_host", "slow_host", NUMBER, -1, RR_SIM_RANKS - 1, -1 },
    [RR_SIM_SLOW_RATE] = { "slow_rate", "slow_rate_bytes_per_s", RATE, 0, 1e14, 0 },
    [RR_SIM_DETAIL] = { "detail", "detail", NUMBER, 0, 1, 0 },
};

/* ---- numbers with units ---- */

static const struct unit {
    const char *name;
    enum kind kind;
    double of;
} units[] = {
    { "k", BYTES, 1 << 10 },   { "m", BYTES, 1 << 20 },    { "g", BYTES, 1 << 30 },    { "s", TIME, 1 },
    { "ms", TIME, 1e-3 },      { "us", TIME, 1e-6 },       { "ns", TIME, 1e-9 },       { "kbit", RATE, 1e3 / 8 },
    { "mbit", RATE, 1e6 / 8 }, { "gbit", RATE, 1e9 / 8 },  { "kb", RATE, 1e3 },        { "mb", RATE, 1e6 },
    { "gb", RATE, 1e9 },       { "", NUMBER, 1 },          { "", BYTES, 1 },           { "", RATE, 1 },
    { "", TIME, 1 },
};

static bool read_value(const char *text, enum kind kind, double *value)
{
    char *end;

    errno = 0;
    double number = strtod(text, &end);
    if (end == text || errno || isspace((unsigned char)*text) || *text == '+' || !(number > -1e15 && number < 1e15))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (units[i].kind == kind && strcasecmp(end, units[i].name) == 0) {
            *value = number * units[i].of;
            return kind == RATE || kind == TIME || *value == (double)(long long)*value || kind == NUMBER;
        }
    return false;
}

static const char *example_of(enum kind kind)
{
    return kind == BYTES  ? "bytes, such as 64K or 4M"
           : kind == RATE ? "a rate, such as 200mbit, 10gbit or 4GB"
           : kind == TIME ? "a time, such as 50us or 1ms"
                          : "a number";
}

static bool is_whole(int which)
{
    return which != RR_SIM_EFFICIENCY;
}

static int set_value(struct rr_question *q, int which, const char *text, ringred_error *why)
{
    const struct row *row = &rows[which];
    double value;

    if (!read_value(text, row->kind, &value))
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s wants %s, not \"%.40s\"", row->name, example_of(row->kind),
                       text);
    if (!(value >= row->least && value <= row->most))
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s is from %g to %g, not %.40s", row->name, row->least,
                       row->most, text);
    if (row->kind == NUMBER && is_whole(which) && value != (double)(int)value)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%s wants a whole number, not %.40s", row->name, text);
    q->value[which] = value;
    return 0;
}

/* ---- names ---- */

static int set_collective(struct rr_question *q, const char *text, ringred_error *why)
{
    for (int what = 1; what < RR_COLLECTIVES; what++)
        if (strcmp(text, rr_collective_name((enum rr_collective)what)) == 0) {
            q->what = (enum rr_collective)what;
            return 0;
        }
    return rr_fail(why, RINGRED_EINVAL, -1, 0, "there is no collective \"%.40s\" (as allreduce is)", text);
}

static int unknown(const char *name, ringred_error *why)
{
    const char *nearest = "collective";

    if (rr_word_distance(name, "algorithm") < rr_word_distance(name, nearest))
        nearest = "algorithm";
    for (int i = 0; i < RR_SIM_VALUES; i++)
        if (rr_word_distance(name, rows[i].name) < rr_word_distance(name, nearest))
            nearest = rows[i].name;
    return rr_fail(why, RINGRED_EINVAL, -1, 0, "a question has no \"%.40s\"; the nearest is \"%s\"", name, nearest);
}

static int set(struct rr_question *q, const char *name, const char *value, ringred_error *why)
{
    if (strcmp(name, "collective") == 0)
        return set_collective(q, value, why);
    if (strcmp(name, "algorithm") == 0) {
        if (strlen(value) >= sizeof q->algorithm)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "algorithm: that is too long");
        memcpy(q->algorithm, value, strlen(value) + 1);
        return 0;
    }
    for (int i = 0; i < RR_SIM_VALUES; i++)
        if (strcmp(name, rows[i].name) == 0)
            return set_value(q, i, value, why);
    return unknown(name, why);
}

/* ---- the whole ---- */

static void set_usual(struct rr_question *q)
{
    *q = (struct rr_question){ .what = RR_ALLREDUCE, .algorithm = "auto" };
    for (int i = 0; i < RR_SIM_VALUES; i++)
        q->value[i] = rows[i].usual;
}

static int check(const struct rr_question *q, ringred_error *why)
{
    double ranks = q->value[RR_SIM_NODES] * q->value[RR_SIM_PER_HOST];

    if (ranks > RR_SIM_RANKS)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "%.0f ranks: at most %d are simulated", ranks, RR_SIM_RANKS);
    if (q->value[RR_SIM_ROOT] >= ranks)
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "root %.0f is not one of %.0f ranks", q->value[RR_SIM_ROOT], ranks);
    if (q->value[RR_SIM_SLOW_HOST] >= q->value[RR_SIM_NODES])
        return rr_fail(why, RINGRED_EINVAL, -1, 0, "slow_host %.0f is not one of %.0f nodes",
                       q->value[RR_SIM_SLOW_HOST], q->value[RR_SIM_NODES]);
    return 0;
}

int rr_question_read(const char *text, struct rr_question *q, ringred_error *why)
{
    static const char blank[] = " \t\n";
    char word[320];

    set_usual(q);
    for (text += strspn(text, blank); *text; text += strspn(text, blank)) {
        size_t n = strcspn(text, blank);
        if (n >= sizeof word)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "\"%.40s...\" is too long", text);
        memcpy(word, text, n);
        word[n] = 0;
        char *value = strchr(word, '=');
        if (!value)
            return rr_fail(why, RINGRED_EINVAL, -1, 0, "\"%.40s\": a question is name=value name=value ...", word);
        *value = 0;
        RR_TRY(set(q, word, value + 1, why));
        text += n;
    }
    return check(q, why);
}

struct rr_machine rr_question_machine(const struct rr_question *q)
{
    const double *v = q->value;

    return (struct rr_machine){
        .latency_s = v[RR_SIM_LATENCY],
        .send_s = v[RR_SIM_SEND],
        .recv_s = v[RR_SIM_RECV],
        .rate = v[RR_SIM_RATE] * v[RR_SIM_EFFICIENCY],
        .flow = v[RR_SIM_FLOW] * v[RR_SIM_EFFICIENCY],
        .slow_rate = v[RR_SIM_SLOW_RATE] * v[RR_SIM_EFFICIENCY],
        .slow_host = (int)v[RR_SIM_SLOW_HOST],
        .streams = v[RR_SIM_STREAMS] < 1 ? 1 : (int)v[RR_SIM_STREAMS],
        .buffer_bytes = v[RR_SIM_BUFFER],
        .header_bytes = v[RR_SIM_HEADER],
        .loop_rate = v[RR_SIM_LOOP_RATE],
        .loop_s = v[RR_SIM_LOOP_LATENCY],
        .signal_s = v[RR_SIM_SIGNAL],
        .copy = v[RR_SIM_COPY],
        .reduce = v[RR_SIM_REDUCE],
        .cpus = (int)v[RR_SIM_CPUS],
        .all_cpus = (int)v[RR_SIM_ALL_CPUS],
    };
}

void rr_question_print(const struct rr_question *q, struct rr_text *t)
{
    rr_text_add(t, "{\"collective\":\"%s\"", rr_collective_name(q->what));
    for (int i = 0; i < RR_SIM_VALUES; i++)
        if (i != RR_SIM_DETAIL)
            rr_text_add(t, ",\"%s\":%.12g", rows[i].key, q->value[i]);
    rr_text_add(t, "}");
}
