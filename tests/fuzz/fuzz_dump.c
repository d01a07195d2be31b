/* SPDX-License-Identifier: Apache-2.0 */
/* What another process left behind. Byte 0: 0: the memory file of its operations, of which the rest is zero; else the texts
 * of dumps, with a zero byte between two, that are put together. */
#include "fuzz.h"

#include "core/core.h"
#include "dumps.h"

#include <stdlib.h>
#include <string.h>

static void must(bool claim)
{
    if (!claim)
        abort();
}

/* The head, then the first communicator. */
static void read_record(const uint8_t *data, size_t bytes)
{
    static char text[1 << 20];
    struct rr_record *r = calloc(1, sizeof *r);
    struct rr_text t = { text, sizeof text, 0 };
    ringred_error why = { 0 };
    size_t head = bytes < sizeof r->head ? bytes : sizeof r->head, rest = bytes - head;

    must(r != NULL);
    memcpy(&r->head, data, head);
    memcpy(&r->slot, data + head, rest < sizeof r->slot ? rest : sizeof r->slot);
    int rc = rr_dump_read(r, sizeof *r, &t, &why);
    must(rc == 0 ? t.used > 2 && t.used < sizeof text && strlen(text) == t.used && text[t.used - 1] == '}'
                 : why.code == rc && memchr(why.text, 0, sizeof why.text));
    must(rr_dump_read(r, bytes < 4096 ? bytes : 4096, &t, &why) < 0);
    if (rc == 0) { /* what it says is a dump, or of a rank that there cannot be */
        struct dumps *d = dumps_new(NULL);
        must(d && (dumps_add(d, "record", text, t.used) || r->head.rank < 0 || r->head.size <= r->head.rank ||
                   r->head.size > 4096 || r->head.pid < 0));
        dumps_free(d);
    }
    free(r);
}

static void merge(const char *data, size_t bytes)
{
    char *said = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&said, &length);

    must(out != NULL);
    for (int json = 0; json < 2; json++) {
        struct dumps *d = dumps_new(out);
        must(d != NULL);
        for (size_t at = 0; at < bytes;) {
            const char *end = memchr(data + at, 0, bytes - at);
            size_t n = end ? (size_t)(end - (data + at)) : bytes - at;
            (void)dumps_add(d, "fuzzed", data + at, n); /* it may be of no use */
            at += n + 1;
        }
        (void)dumps_report(d, out, json);
        dumps_free(d);
    }
    must(fclose(out) == 0);
    for (size_t i = 0; i < length; i++) /* it may be shown on a terminal */
        must((unsigned char)said[i] >= ' ' ? said[i] != 0x7f : said[i] == '\n');
    free(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes && data[0])
        merge((const char *)data + 1, bytes - 1);
    else if (bytes)
        read_record(data + 1, bytes - 1);
    return 0;
}

static size_t seed_record(uint8_t *to, int64_t ns)
{
    static struct rr_record_head head = { .magic = RR_RECORD_MAGIC, .version = RR_RECORD_VERSION, .slots = RR_RECORD_SLOTS,
                                          .entries = RR_RECORD_ENTRIES, .pid = 7, .size = 2, .job = "00ff", .host = "here",
                                          .library = "0.1.0", .real_ns = 1, .ticks = 1, .status = -301,
                                          .failed_rank = 1, .error = "rank 1 is gone" };
    static struct rr_record_slot slot = { .used = RR_RECORD_USED, .size = 2, .name = "all", .member = { 0, 1 }, .still = 3,
                                          .awaits = { 2 }, .missing = { 2 } };

    for (uint64_t number = 1; number <= 3; number++) {
        const struct rr_ask ask = { .collective = RR_ALLREDUCE, .type = 10, .op = 1, .count = 4, .sequence = number };
        rr_record_begin(&slot, &ask, RR_LANE_TINY);
        if (number < 3)
            rr_record_end(&slot, number);
    }
    head.ns = ns;
    to[0] = 0;
    memcpy(to + 1, &head, sizeof head);
    memcpy(to + 1 + sizeof head, &slot, sizeof slot);
    return 1 + sizeof head + sizeof slot;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
#define HEAD "{\"schema\":\"ringred-dump\",\"version\":1,\"job\":\"j\",\"size\":2,\"host\":\"h\",\"pid\":7,\"time\":\"T\",\"status\":0,"
#define OPS "\"communicators\":[{\"name\":\"all\",\"members\":[0,1],\"not_here\":[1],\"operations\":[{\"number\":1,\"state\":\"done\",\"what\":"
    static const char seeds[][1024] = {
        "\1" HEAD "\"rank\":0," OPS "\"barrier\",\"begun\":\"T1\"},{\"number\":2,\"state\":\"running\",\"what\":\"A\"}]}]}\0"
        HEAD "\"rank\":1," OPS "\"barrier\",\"begun\":\"T1\"}]},{\"name\":\"all/1.0\"}]}",
        "\1" HEAD "\"rank\":0,\"communicators\":[{\"name\":\"all\",\"not_here\":[\"\x1b[2J\",1],\"operations\":"
        "[{\"number\":1,\"state\":\"running\",\"what\":\"A\"}]}]}",
        "\1" HEAD "\"rank\":0,\"error\":{\"rank\":1,\"text\":\"gone\"}," OPS "\"A\"}]}]} " HEAD "\"rank\":1," OPS "\"B\"}]}]}",
    };
    size_t n = sizeof seeds[0];

    if (room < 8192 || which > 4)
        return 0;
    if (which >= 3)
        return seed_record(to, which == 3 ? 1 : INT64_MIN + 1);
    memcpy(to, seeds[which], n);
    while (n && !to[n - 1])
        n--;
    return n;
}
