/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator is made of, and what there is to choose from, as JSON. */
#include "core/core.h"

#include <string.h>

static int by_name(const char *name)
{
    for (int what = 1; what < RR_COLLECTIVES; what++)
        if (strcmp(name, rr_collective_name((enum rr_collective)what)) == 0)
            return what;
    return RINGRED_EINVAL;
}

static void describe_candidates(const ringred_comm *c, const struct rr_call *call, struct rr_text *t)
{
    int listed = 0;

    rr_text_add(t, "\"candidates\":[");
    if (!rr_team_refusal(c, call))
        rr_text_add(t, "%s\"team\"", listed++ ? "," : "");
    for (int i = 0; i < RR_ALGOS + RR_LANE_LAST; i++) {
        struct rr_way way = { i < RR_LANE_LAST ? (enum rr_lane)(i + RR_LANE_TINY) : RR_LANE_NONE,
                              i < RR_LANE_LAST ? RR_ALGO_COPY : (enum rr_algo)(i - RR_LANE_LAST) };
        if (rr_way_collective(way) == call->what && !rr_way_refusal(c, way, call))
            rr_text_add(t, "%s\"%s\"", listed++ ? "," : "", rr_way_name(way));
    }
    rr_text_add(t, "],");
}

/* What a float32 call (sum, root 0) of so many bytes, of each part, would run. */
static void describe_call(ringred_comm *c, const char *name, uint64_t bytes, struct rr_text *t)
{
    struct rr_call call = { .what = (enum rr_collective)by_name(name), .type = RINGRED_FLOAT32, .op = RINGRED_SUM,
                            .count = (size_t)(bytes / 4) };
    struct rr_plan *plan = NULL;

    rr_text_add(t, ",\"call\":{\"collective\":");
    rr_text_add_json(t, name);
    rr_text_add(t, ",\"bytes\":%llu,", (unsigned long long)bytes);
    describe_candidates(c, &call, t);
    struct rr_chosen x;
    rr_choose_default(c, &call, &x);
    if (x.way.lane == RR_LANE_TEAM) {
        if (rr_is_reduction(call.what))
            rr_text_add(t, "\"tree\":\"%s\",", rr_choose_tree(c, &call));
        rr_text_add(t, "\"plan\":\"team %s\"}", c->family->team->name);
        return;
    }
    if (x.way.lane != RR_LANE_NONE) {
        rr_text_add(t, "\"plan\":\"%s lane\"}", x.way.lane == RR_LANE_TINY ? "tiny" : "last-arriver");
        return;
    }
    enum rr_algo algo = x.way.algo;
    /* a plan of our own: the communicator's may be in use, or about to be made */
    int rc = rr_algo_table[algo].build(&c->layout, c->rank, 0, &plan);
    rr_text_add(t, "\"algorithm\":\"%s\",", rr_algo_table[algo].name);
    if (rr_is_reduction(call.what))
        rr_text_add(t, "\"tree\":\"%s\",", rr_choose_tree(c, &call));
    rr_text_add(t, "\"plan\":");
    rr_text_add_json(t, rc == 0 ? plan->name : "no memory");
    size_t each = rr_call_element_bytes(&call);
    rr_text_add(t, ",\"steps\":%u,\"segment\":%llu}", rc == 0 ? plan->steps : 0,
                rc == 0 ? (unsigned long long)(rr_segment_of(c, plan, call.count, each, x.segment) * each) : 0);
    if (rc == 0)
        rr_plan_free(plan);
}

int64_t rr_comm_describe(ringred_comm *c, const char *collective, uint64_t bytes, char *text,
                         size_t room)
{
    const struct rr_call sum = { .what = RR_ALLREDUCE, .type = RINGRED_FLOAT32, .op = RINGRED_SUM, .count = 1 };
    struct rr_text t = { text, room, 0 };

    if (collective && (by_name(collective) < 0 || bytes > (uint64_t)INT64_MAX))
        return rr_comm_refuse(c, RINGRED_EINVAL, "describe: %.32s of %llu bytes is no call (as allreduce is)",
                              collective, (unsigned long long)bytes);
    if (text && room)
        text[0] = 0;
    rr_text_add(&t, "{\"rank\":%d,\"size\":%d,\"local_rank\":%d,\"local_size\":%d,\"hosts\":%d,",
                c->rank, c->ranks, c->local_rank, c->local_ranks, c->layout.hosts);
    rr_text_add(&t, "\"crowded\":%s,\"kernels\":\"%s\",\"numerics\":\"%s\",\"tree\":\"%s\",\"transports\":[",
                c->family->crowded ? "true" : "false", rr_reduce_name(),
                rr_setting_text(&c->family->settings, RR_SET_NUMERICS), rr_choose_tree(c, &sum));
    if (c->engine.shared)
        rr_text_add(&t, "{\"name\":\"shm\",\"ranks\":%d,\"stage\":%zu,\"heap\":%zu}%s",
                    c->engine.shared->locals, c->engine.shared->stage_bytes,
                    c->engine.shared->heap_bytes, c->engine.links ? "," : "");
    if (c->engine.links)
        c->engine.links->ops->describe(c->engine.links, &t);
    if (!c->engine.shared && !c->engine.links)
        rr_text_add(&t, "{\"name\":\"self\"}");
    rr_text_add(&t, "]");
    if (c->family->team)
        rr_text_add(&t, ",\"team\":{\"name\":\"%s\",\"open\":%s,\"order\":\"%s\"}", c->family->team->name,
                    c->engine.crew ? "true" : "false", c->family->team->order == RINGRED_ORDER_TREE ? "tree" : "any");
    if (collective)
        describe_call(c, collective, bytes, &t);
    rr_text_add(&t, "}");
    return (int64_t)t.used;
}

/* Those that are no plans (docs/ARCHITECTURE.md), in the words of the table. */
static const struct rr_algo_row lanes[] = {
    { "tiny", RR_ALLREDUCE, true, true, false, "1", "S", "at most 64 ranks, and 2 KiB", NULL },
    { "last", RR_ALLREDUCE, true, true, false, "1", "S", "at most 64 ranks, and a quarter of the stage", NULL },
};

static void describe_row(const struct rr_algo_row *row, struct rr_text *t)
{
    rr_text_add(t, "{\"name\":\"%s\",\"collective\":\"%s\",\"rounds\":\"%s\",\"bytes\":\"%s\",", row->name,
                rr_collective_name(row->what), row->rounds, row->bytes);
    rr_text_add(t, "\"tree\":%s,\"shared\":%s,\"linked\":%s,\"needs\":\"%s\"}", row->tree ? "true" : "false",
                row->shared ? "true" : "false", row->linked ? "true" : "false", row->needs ? row->needs : "");
}

void rr_algorithms_describe(struct rr_text *t)
{
    rr_text_add(t, "[");
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        describe_row(&lanes[i], t);
        rr_text_add(t, ",");
    }
    for (int what = 1, listed = 0; what < RR_COLLECTIVES; what++)
        for (int algo = 0; algo < RR_ALGOS; algo++) {
            if (rr_algo_table[algo].what != (enum rr_collective)what)
                continue;
            rr_text_add(t, "%s", listed++ ? "," : "");
            describe_row(&rr_algo_table[algo], t);
        }
    rr_text_add(t, "]");
}
