/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator is made of, as JSON. */
#include "core/core.h"

#include <string.h>

static int by_name(const char *name)
{
    static const char *const names[] = { "", "allreduce", "broadcast", "barrier" };

    for (int what = RR_ALLREDUCE; what <= RR_BARRIER; what++)
        if (strcmp(name, names[what]) == 0)
            return what;
    return RINGRED_EINVAL;
}

/* The plan that a float32 call of so many bytes would run. */
static void describe_call(ringred_comm *c, const char *name, uint64_t bytes, struct rr_text *t)
{
    struct rr_call call = { .what = (enum rr_collective)by_name(name), .type = RINGRED_FLOAT32, .op = RINGRED_SUM,
                            .count = (size_t)(bytes / 4) };
    size_t segment = 0;

    rr_text_add(t, ",\"call\":{\"collective\":");
    rr_text_add_json(t, name);
    rr_text_add(t, ",\"bytes\":%llu,", (unsigned long long)bytes);
    enum rr_lane lane = call.what == RR_ALLREDUCE ? rr_choose_lane(c, (size_t)bytes) : RR_LANE_NONE;
    if (lane != RR_LANE_NONE) {
        rr_text_add(t, "\"plan\":\"%s lane\"}", lane == RR_LANE_TINY ? "tiny" : "last-arriver");
        return;
    }
    const struct rr_plan *plan = NULL;
    if (call.what != RR_BROADCAST) /* those are made at first use, maybe just now */
        plan = rr_choice_of(c, &call, &segment);
    rr_text_add(t, "\"plan\":");
    rr_text_add_json(t, plan ? plan->name : "made at first use");
    rr_text_add(t, ",\"steps\":%u,\"segment\":%llu}", plan ? plan->steps : 0,
                (unsigned long long)segment * (call.what == RR_BARRIER ? 1 : 4));
}

int64_t rr_comm_describe(ringred_comm *c, const char *collective, uint64_t bytes, char *text,
                         size_t room)
{
    struct rr_text t = { text, room, 0 };

    if (collective && (by_name(collective) < 0 || bytes > (uint64_t)INT64_MAX))
        return rr_comm_refuse(c, RINGRED_EINVAL, "describe: %.32s of %llu bytes is no call: allreduce, "
                              "broadcast and barrier are", collective, (unsigned long long)bytes);
    if (text && room)
        text[0] = 0;
    rr_text_add(&t, "{\"rank\":%d,\"size\":%d,\"local_rank\":%d,\"local_size\":%d,\"hosts\":%d,",
                c->rank, c->ranks, c->local_rank, c->local_ranks, c->layout.hosts);
    rr_text_add(&t, "\"crowded\":%s,\"kernels\":\"%s\",\"numerics\":\"%s\",\"transports\":[",
                c->crowded ? "true" : "false", rr_reduce_name(),
                c->wish == RR_ALGO_RING ? "fast" : "tree");
    if (c->engine.shared)
        rr_text_add(&t, "{\"name\":\"shm\",\"ranks\":%d,\"stage\":%zu,\"heap\":%zu}%s",
                    c->engine.shared->locals, c->engine.shared->stage_bytes,
                    c->engine.shared->heap_bytes, c->engine.links ? "," : "");
    if (c->engine.links)
        c->engine.links->ops->describe(c->engine.links, &t);
    if (!c->engine.shared && !c->engine.links)
        rr_text_add(&t, "{\"name\":\"self\"}");
    rr_text_add(&t, "]");
    if (collective)
        describe_call(c, collective, bytes, &t);
    rr_text_add(&t, "}");
    return (int64_t)t.used;
}
