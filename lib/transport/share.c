/* SPDX-License-Identifier: Apache-2.0 */
/* Which stream of a link gets how much of a message, so that all end with it at once.
 *
 * Two things tell that the path of one is slower than those of the others. What is left in its queue of earlier
 * messages: of the next one it gets so much less. And, where queues run empty between messages, how long the kernel
 * says that it was busy: who was busy longer than the mean gets a smaller part from then on. That is a control loop,
 * which rests where all are busy for equally long, whatever the cause. */
#include "transport/link.h"

#define EVEN 1024                /* the mean weight */
#define LEAST (EVEN / 16)        /* a slow stream still shows whether it became faster */
#define MEASURE_BYTES ((size_t)2 << 20)
#define MEASURE_US 80000         /* the kernel counts in ticks of 1 to 10 ms */
#define SURE_PERCENT 10          /* smaller differences are taken for ticks */

static size_t filled(const struct rr_stream *s, size_t level)
{
    return level * s->weight / EVEN;
}

void rr_share_level(struct rr_link *l)
{
    size_t left = l->sending->length - l->given;
    int under = l->streams + 1, before;

    l->level = SIZE_MAX;
    if (left <= RR_STRIPE_GRAIN) /* goes in one part; and less has no level, with whole numbers */
        return;
    for (int i = 0; i < l->streams; i++)
        l->stream[i].waiting = rr_stream_waiting(&l->stream[i]);
    do { /* water finds its level; who is above it drops out */
        size_t sum = left, weights = 0;
        before = under;
        under = 0;
        for (int i = 0; i < l->streams; i++) {
            const struct rr_stream *s = &l->stream[i];
            if (l->level != SIZE_MAX && s->waiting >= filled(s, l->level))
                continue;
            sum += s->waiting;
            weights += s->weight;
            under++;
        }
        l->level = sum * EVEN / weights;
    } while (under < before);
}

/* What is long is given in several parts, so that a stream that is fast after all can take more. */
size_t rr_share_part(const struct rr_link *l, const struct rr_stream *s)
{
    size_t left = l->sending->length - l->given, full = filled(s, l->level);

    if (l->streams == 1 || left <= RR_STRIPE_GRAIN)
        return left;
    if (s->waiting >= full)
        return 0;
    size_t part = rr_round_up(full - s->waiting, RR_STRIPE_GRAIN);
    part = part < RR_STRIPE_MOST ? part : RR_STRIPE_MOST;
    return part < left ? part : left;
}

void rr_share_weigh(struct rr_link *l, const uint64_t *busy_us)
{
    uint64_t sum = 0, weights = 0;

    for (int i = 0; i < l->streams; i++)
        sum += busy_us[i];
    for (int i = 0; i < l->streams; i++) {
        uint32_t *weight = &l->stream[i].weight;
        uint64_t percent = 100 * sum / (uint64_t)l->streams / (busy_us[i] + 1);
        percent = percent > 125 ? 125 : percent < 80 ? 80 : percent;
        if (percent > 100 + SURE_PERCENT || percent < 100 - SURE_PERCENT)
            *weight = (uint32_t)(*weight * percent / 100);
        weights += *weight;
    }
    for (int i = 0; i < l->streams; i++) {
        uint32_t *weight = &l->stream[i].weight;
        *weight = (uint32_t)(*weight * EVEN * (uint64_t)l->streams / weights);
        *weight = *weight < LEAST ? LEAST : *weight;
    }
}

void rr_share_begin(struct rr_link *l)
{
    for (int i = 0; i < l->streams; i++)
        l->stream[i].weight = EVEN;
}

/* For how long a stream has had something to send. false: nobody knows. */
static bool busy_time(const struct rr_stream *s, uint64_t *us)
{
    int64_t busy = s->by->busy_us ? s->by->busy_us(s->self, s->peer, s->rail) : -1;

    *us = (uint64_t)busy;
    return busy >= 0;
}

void rr_share_sent(struct rr_link *l, size_t bytes)
{
    uint64_t now[RR_STREAMS_MOST], busy[RR_STREAMS_MOST], most = 0;

    l->unmeasured += bytes;
    if (l->unmeasured < MEASURE_BYTES)
        return;
    l->unmeasured = 0;
    for (int i = 0; i < l->streams; i++) {
        if (!busy_time(&l->stream[i], &now[i]))
            return;
        busy[i] = now[i] - l->stream[i].busy_us;
        most = busy[i] > most ? busy[i] : most;
    }
    if (most < MEASURE_US)
        return;
    rr_share_weigh(l, busy);
    for (int i = 0; i < l->streams; i++)
        l->stream[i].busy_us = now[i];
}
