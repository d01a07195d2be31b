/* SPDX-License-Identifier: Apache-2.0 */
/* A record as JSON: what a rank did last, in which operation it is, and for whom it waits as far as it knows. The record may
 * come from anywhere: nothing in it is believed but that it has the length of one. */
#include "core/core.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A reading of both clocks that is later than the record's own: between the two, ticks are even. */
struct clocks {
    const struct rr_record_head *head;
    int64_t ns;
    uint64_t ticks;
};

static int64_t ns_of_ticks(const struct clocks *k, uint64_t ticks)
{
    const struct rr_record_head *h = k->head;
    uint64_t span = (uint64_t)k->ns - (uint64_t)h->ns;

    if (ticks <= h->ticks || k->ticks <= h->ticks || k->ns <= h->ns)
        return h->ns;
    if (ticks >= k->ticks || span > INT64_MAX)
        return k->ns;
    uint64_t past = (uint64_t)((double)(ticks - h->ticks) / (double)(k->ticks - h->ticks) * (double)span);
    return past < span ? (int64_t)((uint64_t)h->ns + past) : k->ns;
}

/* "2026-12-02T20:16:29.123456Z"; "" where it makes no sense. */
static void add_time(const struct clocks *k, const char *name, int64_t ns, struct rr_text *t)
{
    uint64_t real = (uint64_t)k->head->real_ns + (uint64_t)ns - (uint64_t)k->head->ns;
    time_t seconds = (time_t)(real / 1000000000);
    char text[32] = "";
    struct tm tm;

    if (real <= INT64_MAX && gmtime_r(&seconds, &tm))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    rr_text_add(t, "\"%s\":\"%s.%06uZ\"", name, text, (unsigned)(real / 1000 % 1000000));
}

static void add_text(const char *name, const char *bytes, size_t room, struct rr_text *t)
{
    char text[512];

    snprintf(text, sizeof text, "%.*s", (int)room, bytes);
    rr_text_add(t, "\"%s\":", name);
    rr_text_add_json(t, text);
}

/* ---- operations ---- */

static const char *how_name(uint64_t how)
{
    unsigned lane = how & 0xff, algo = how >> 8 & 0xffffff;

    if (lane == RR_LANE_TEAM)
        return "team";
    if (lane > RR_LANE_LAST || (lane == RR_LANE_NONE && algo >= RR_ALGOS))
        return "?";
    return rr_way_name((struct rr_way){ (enum rr_lane)lane, lane == RR_LANE_NONE ? (enum rr_algo)algo : RR_ALGO_COPY });
}

static struct rr_ask ask_of(const struct rr_record_entry *e)
{
    uint64_t what = e->what;

    return (struct rr_ask){ .collective = (uint8_t)what, .type = (uint8_t)(what >> 8), .op = (uint8_t)(what >> 16),
                            .root = (int32_t)(what >> 32), .count = e->count, .sequence = e->number };
}

/* Of the whole vector, or of one part. 0: not known, or none. */
static uint64_t bytes_of(const struct rr_ask *ask, uint64_t count, uint64_t how)
{
    uint64_t each = ask->op && 256 + ask->op >= RR_USER_OP ? how >> 32 : rr_type_bytes(ask->type), bytes;

    return __builtin_mul_overflow(count, each, &bytes) ? 0 : bytes;
}

static void add_operation(const struct rr_record_entry *e, const struct clocks *k, struct rr_text *t)
{
    const struct rr_ask ask = ask_of(e);
    enum rr_collective what = rr_ask_what(&ask);
    uint64_t count = ask.collective & RR_LISTED ? ask.count >> 32 : ask.count & ((1ull << RR_ASK_COUNT) - 1);
    bool named = what >= 1 && what < RR_COLLECTIVES, listed = ask.collective & RR_LISTED;
    char words[256];
    struct rr_text said = { words, sizeof words, 0 };

    rr_ask_print(&ask, &said);
    rr_text_add(t, "{\"number\":%llu,\"state\":\"%s\",", (unsigned long long)ask.sequence,
                e->done ? "done" : k->head->status < 0 ? "failed" : "running");
    add_text("what", words, sizeof words, t);
    rr_text_add(t, ",\"collective\":\"%s%s\",\"type\":\"%s\",\"op\":\"%s\",\"root\":%d", named ? rr_collective_name(what) : "?",
                ask.collective & RR_RAGGED ? "v" : listed ? "_list" : "",
                listed || what == RR_BARRIER ? "" : rr_type_name(ask.type),
                !ask.op ? "" : 256 + ask.op >= RR_USER_OP ? "user" : rr_op_name(256 + ask.op),
                named && rr_is_rooted(what) ? rr_ask_root(&ask) : -1);
    rr_text_add(t, ",\"count\":%llu,\"bytes\":%llu,\"algorithm\":\"%s\",", (unsigned long long)count,
                listed ? 0 : (unsigned long long)bytes_of(&ask, count, e->how), how_name(e->how));
    add_time(k, "begun", ns_of_ticks(k, e->begun), t);
    if (e->done && e->ended_ns) {
        rr_text_add(t, ",");
        add_time(k, "ended", (int64_t)e->ended_ns, t);
    }
    rr_text_add(t, "}");
}

/* An entry is passed over while it is being written, and where it was written anew behind its place in the ring. */
static const struct rr_record_entry *entry_of(const struct rr_record_slot *s, uint64_t number)
{
    const struct rr_record_entry *e = &s->entry[number % RR_RECORD_ENTRIES];

    return number && e->number == number && e->again == number ? e : NULL;
}

static uint64_t last_number(const struct rr_record_slot *s)
{
    uint64_t last = 0;

    for (int i = 0; i < RR_RECORD_ENTRIES; i++)
        if (s->entry[i].number > last && entry_of(s, s->entry[i].number))
            last = s->entry[i].number;
    return last;
}

/* Ranks of the job. */
static void add_ranks(const struct rr_record_slot *s, const char *name, const _Atomic uint64_t *bits, int size,
                      struct rr_text *t)
{
    int n = 0;

    rr_text_add(t, "\"%s\":[", name);
    for (int r = 0; r < size; r++)
        if (!bits || (bits[r / 64] >> r % 64 & 1))
            rr_text_add(t, "%s%d", n++ ? "," : "", s->member[r]);
    rr_text_add(t, "]");
}

static void add_slot(const struct rr_record_slot *s, const struct clocks *k, struct rr_text *t)
{
    uint64_t last = last_number(s);
    const struct rr_record_entry *running = entry_of(s, last);
    int size = s->size < 0 ? 0 : s->size > RR_RECORD_RANKS ? RR_RECORD_RANKS : s->size, n = 0;

    rr_text_add(t, "{");
    add_text("name", s->name, sizeof s->name, t);
    rr_text_add(t, ",\"rank\":%d,\"size\":%d,", s->rank, size);
    add_ranks(s, "members", NULL, size, t);
    if (running && !running->done && s->still == last) {
        rr_text_add(t, ",");
        add_ranks(s, "waits_for", s->awaits, size, t);
        rr_text_add(t, ",");
        add_ranks(s, "not_here", s->missing, size, t);
    }
    rr_text_add(t, ",\"operations\":[");
    for (uint64_t number = last > RR_RECORD_ENTRIES ? last - RR_RECORD_ENTRIES + 1 : 1; number <= last && last; number++) {
        const struct rr_record_entry *e = entry_of(s, number);
        if (!e)
            continue;
        rr_text_add(t, "%s", n++ ? "," : "");
        add_operation(e, k, t);
        if (number == UINT64_MAX)
            break;
    }
    rr_text_add(t, "]}");
}

/* ---- the whole ---- */

static void add_head(const struct clocks *k, struct rr_text *t)
{
    const struct rr_record_head *h = k->head;

    rr_text_add(t, "{\"schema\":\"ringred-dump\",\"version\":1,");
    add_text("library", h->library, sizeof h->library, t);
    rr_text_add(t, ",");
    add_text("job", h->job, sizeof h->job, t);
    rr_text_add(t, ",\"rank\":%d,\"size\":%d,", h->rank, h->size);
    add_text("host", h->host, sizeof h->host, t);
    rr_text_add(t, ",\"pid\":%d,", h->pid);
    add_time(k, "time", k->ns, t);
    rr_text_add(t, ",\"status\":%d", h->status);
    if (h->status >= 0)
        return;
    rr_text_add(t, ",\"error\":{\"rank\":%d,", h->failed_rank);
    add_time(k, "time", h->failed_ns, t);
    rr_text_add(t, ",");
    add_text("text", h->error, sizeof h->error, t);
    rr_text_add(t, "}");
}

static void print(const struct rr_record_head *head, const struct rr_record_slot *slot, int slots, struct rr_text *t)
{
    const struct clocks k = { head, rr_now_ns(), rr_ticks() };
    int n = 0;

    add_head(&k, t);
    rr_text_add(t, ",\"communicators\":[");
    for (int i = 0; i < slots; i++)
        if (slot[i].used == RR_RECORD_USED) {
            rr_text_add(t, "%s", n++ ? "," : "");
            add_slot(&slot[i], &k, t);
        }
    rr_text_add(t, "]}");
}

void rr_dump_print(const struct rr_record *r, struct rr_text *t)
{
    print(&r->head, r->slot, RR_RECORD_SLOTS, t);
}

/* Takes no lock: the status is written after the sentence, and both once. */
static void copy_head(const struct rr_record *r, struct rr_record_head *head)
{
    int32_t status = atomic_load(&r->head.status);

    *head = (struct rr_record_head){ .pid = r->head.pid, .rank = r->head.rank, .size = r->head.size,
                                     .real_ns = r->head.real_ns, .ns = r->head.ns, .ticks = r->head.ticks };
    memcpy(head->job, r->head.job, sizeof head->job);
    memcpy(head->host, r->head.host, sizeof head->host);
    memcpy(head->library, r->head.library, sizeof head->library);
    if (!status)
        return;
    head->status = status;
    head->failed_ns = r->head.failed_ns;
    head->failed_rank = r->head.failed_rank;
    memcpy(head->error, r->head.error, sizeof head->error);
}

int64_t rr_comm_dump(ringred_comm *c, char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };
    struct rr_record_head head;
    struct rr_record_slot slot;

    copy_head(c->family->record, &head);
    rr_record_copy(&slot, c->record, sizeof slot);
    print(&head, &slot, 1, &t);
    return (int64_t)t.used;
}

struct rr_record *rr_dump_copy(const struct rr_family *f)
{
    struct rr_record *copy = rr_alloc(1, sizeof *copy);

    if (!copy)
        return NULL;
    copy_head(f->record, &copy->head);
    for (int i = 0; i < RR_RECORD_SLOTS; i++)
        if (atomic_load(&f->record->slot[i].used) == RR_RECORD_USED)
            rr_record_copy(&copy->slot[i], &f->record->slot[i], sizeof copy->slot[i]);
    return copy;
}

int rr_dump_read(const void *bytes, size_t length, struct rr_text *t, ringred_error *why)
{
    struct rr_record_head head;

    if (length < sizeof head)
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "%zu bytes are no record of operations", length);
    memcpy(&head, bytes, sizeof head);
    if (head.magic != RR_RECORD_MAGIC)
        return rr_fail(why, RINGRED_EWIRE, -1, 0, "these bytes are no record of operations");
    if (head.version != RR_RECORD_VERSION || head.slots != RR_RECORD_SLOTS || head.entries != RR_RECORD_ENTRIES ||
        length != sizeof(struct rr_record))
        return rr_fail(why, RINGRED_EVERSION, -1, 0, "a record of operations of version %u (%zu bytes), and this library reads "
                       "%u (%zu bytes)", head.version, length, RR_RECORD_VERSION, sizeof(struct rr_record));
    struct rr_record *copy = rr_alloc(1, sizeof *copy);
    if (!copy)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a record of operations");
    memcpy(copy, bytes, sizeof *copy);
    rr_dump_print(copy, t);
    rr_free(copy);
    return 0;
}
