/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins of strangers. Byte 0: the table of a transport, or of a team; the name of one; or its lanes, with a rank at the
 * other end that says anything: nobody who does not know the key is believed. */
#include "fuzz.h"

#include "boot/boot.h"

/* What boot would carry: the offers of all ranks. */
static int offers(struct rr_boot *boot, const void *mine, size_t bytes, void *all, ringred_error *why);
static void no_secret(const struct rr_boot *boot, const char *label, unsigned char secret[32]);

#define rr_boot_allgather offers
#define rr_boot_secret    no_secret
#include "transport/plugin.c"
#undef TABLE_LEAST
#define check_table check_team
#include "transport/team.c"
#undef check_table

#include <sodium.h>
#include <stdlib.h>

#define RANKS 3

static const uint8_t *at, *end;
static size_t piece;

static void must(bool claim)
{
    if (!claim)
        abort();
}

static uint8_t next(void)
{
    return at < end ? *at++ : 0;
}

static int offers(struct rr_boot *boot, const void *mine, size_t bytes, void *all, ringred_error *why)
{
    size_t n = (size_t)(end - at) < (RANKS - 1) * bytes ? (size_t)(end - at) : (RANKS - 1) * bytes;

    (void)boot, (void)why;
    if (next() % 8 == 0) /* theirs from here */
        n = 0;
    memset(all, 0, RANKS * bytes);
    memcpy(all, mine, bytes);
    n = n < (size_t)(end - at) ? n : (size_t)(end - at);
    memcpy((char *)all + bytes, at, n);
    at += n;
    return 0;
}

static void no_secret(const struct rr_boot *boot, const char *label, unsigned char secret[32])
{
    (void)boot, (void)label;
    randombytes_buf(secret, 32);
}

/* ---- a plug-in ---- */

static int self;

static int32_t fake_usable(const ringred_host *host, ringred_error *why)
{
    (void)host;
    return next() == 9 ? rr_fail(why, RINGRED_EUNSUPPORTED, -1, 0, "not here") : 0;
}
static int32_t fake_open(const ringred_host *host, void **to, ringred_error *why)
{
    (void)host, (void)why;
    *to = &self;
    return 0;
}
static int32_t fake_address(void *me, void *address, ringred_error *why)
{
    (void)me, (void)why;
    memset(address, 7, RINGRED_ADDRESS_MOST);
    return 4 * next();
}
static int32_t fake_connect(void *me, const uint8_t *rails, const void *const *address, const int32_t *bytes, int64_t deadline_ns,
                            ringred_error *why)
{
    (void)me, (void)rails, (void)deadline_ns, (void)why;
    for (int r = 0; r < RANKS; r++)
        must(bytes[r] <= RINGRED_ADDRESS_MOST && address[r]);
    return 0;
}
static int64_t fake_send(void *me, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    (void)me, (void)peer, (void)rail, (void)system;
    return parts ? (int64_t)(part->length < piece ? part->length : piece) : 0;
}
static int64_t fake_recv(void *me, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    size_t n = (size_t)(end - at);

    (void)me, (void)peer, (void)rail, (void)parts;
    n = n < piece ? n : piece;
    n = n < part->length ? n : part->length;
    if (at == end)
        return *system = 104, RINGRED_EPEER;
    memcpy(part->bytes, at, n);
    at += n;
    return (int64_t)n;
}
static void fake_close(void *me, int64_t deadline_ns)
{
    (void)me, (void)deadline_ns;
}

static void lanes(bool whole)
{
    static struct rr_settings settings;
    static struct rr_log log;
    static const ringred_transport by = { .struct_size = sizeof by, .name = "fake", .usable = fake_usable, .open = fake_open,
                                          .address = fake_address, .connect = fake_connect, .send = fake_send,
                                          .recv = fake_recv, .close = fake_close };
    const uint8_t wanted[RANKS] = { 0, 1, 1 };
    struct rr_plugin p = { .by = &by, .ranks = RANKS, .me = 0, .rails = 2, .settings = &settings, .log = &log,
                           .deadline_ns = rr_deadline(RINGRED_SECOND) };
    struct rr_transport *made = NULL;
    struct lane lane = { .peer = 1, .rail = 0 };
    unsigned char key[32];
    ringred_error why = { 0 };
    int rc;

    if (whole) {
        rc = rr_plugin_open(&p, wanted, &made, &why);
        must(rc < 0 && !made && why.code == rc && why.text[0]);
        return;
    }
    no_secret(NULL, "", key);
    write_hello(&p, &lane);
    do
        rc = lane_turn(&p, &lane, key, &why);
    while (rc == RINGRED_PENDING);
    must(rc < 0 && why.code == rc && why.text[0]);
}

/* ---- tables ---- */

static void any(void)
{
}

/* A function, or none. */
#define SOME(function) memcpy(&(function), &(void (*[2])(void)){ NULL, any }[next() & 1], sizeof(function))

static const char *some_name(void)
{
    static const char *const names[] = { "fake", NULL, "", "another of a long name", "fake" };

    return names[next() % 5];
}

static void transport_table(void)
{
    const struct rr_loaded loaded = { .name = "fake", .file = "libringred-fake.so" };
    ringred_transport by = { .struct_size = (uint32_t)(next() | next() << 8), .name = some_name() };
    ringred_error why = { 0 };

    SOME(by.open), SOME(by.address), SOME(by.connect), SOME(by.send), SOME(by.recv), SOME(by.finish), SOME(by.reset);
    SOME(by.drained), SOME(by.watch), SOME(by.close);
    bool has_all = by.open && by.address && by.connect && by.send && by.recv && by.finish && by.reset && by.drained &&
                   by.watch && by.close && by.name && strcmp(by.name, "fake") == 0 && by.struct_size >= sizeof by;
    must(check_table(next() == 3 ? NULL : &by, &loaded, &why) == (has_all && why.code == 0 ? 0 : RINGRED_EVERSION));
}

static int answer; /* of a team's next function */

static int32_t team_open(const ringred_host *host, const void *id, int32_t bytes, int64_t deadline_ns, void **me, ringred_error *why)
{
    (void)host, (void)id, (void)deadline_ns;
    must(bytes <= RINGRED_ADDRESS_MOST);
    *me = &self;
    if (answer < 0 && answer % 2)
        rr_fail(why, answer, next(), 5, "a sentence of its own");
    return answer;
}
static int32_t team_start(void *me, const ringred_team_call *call, ringred_error *why)
{
    (void)me, (void)call, (void)why;
    return answer;
}
static int32_t team_test(void *me, ringred_error *why)
{
    (void)me, (void)why;
    return answer;
}
static int32_t team_id(const ringred_host *host, void *id, ringred_error *why)
{
    (void)host, (void)why;
    memset(id, 1, 4);
    return 8 * answer;
}
static int32_t team_descriptor(void *me)
{
    (void)me;
    return 1 << 20;
}
static void team_end(void *me)
{
    (void)me;
}

static void team_answers(void)
{
    static const ringred_team by = { .struct_size = sizeof by, .name = "fake", .id = team_id, .open = team_open,
                                     .start = team_start, .test = team_test, .abort = team_end, .close = team_end,
                                     .descriptor = team_descriptor };
    static const ringred_team plain = { .struct_size = sizeof by, .name = "fake", .id = team_id, .open = team_open,
                                        .start = team_start, .test = team_test, .abort = team_end, .close = team_end };
    struct rr_crew *c = rr_alloc(1, sizeof *c);
    struct rr_team_offer first = { .bytes = (int8_t)next() * 64 };
    ringred_error why = { 0 };
    ringred_team_call call;

    must(c != NULL);
    memset(&call, 0, sizeof call);
    c->by = next() % 4 ? &plain : &by;
    answer = (int8_t)next();
    must(rr_crew_id(c, first.text, &why) <= RINGRED_ADDRESS_MOST);
    for (int i = 0; i < 3; i++) {
        answer = (int8_t)next();
        answer = i == 0 && answer % 4 == 0 ? 0 : answer;
        ringred_error_init(&why);
        int rc = i == 0 ? rr_crew_open(c, &first, -1, 0, &why) : i == 1 ? rr_crew_start(c, &call, &why) : rr_crew_test(c, &why);
        must(rc == 0 || rc == RINGRED_PENDING || (rc < 0 && why.code == rc && memchr(why.text, 0, sizeof why.text) && why.text[0]));
        if (rc < 0)
            break;
    }
    rr_crew_close(c, -1);
}

static void team_table(void)
{
    const struct rr_loaded loaded = { .name = "fake", .file = "libringred-fake.so" };
    ringred_team by = { .struct_size = (uint32_t)(next() | next() << 8), .name = some_name(), .order = next() % 4 };
    ringred_error why = { 0 };

    SOME(by.can), SOME(by.id), SOME(by.open), SOME(by.start), SOME(by.test), SOME(by.abort), SOME(by.close);
    int rc = check_team(next() == 3 ? NULL : &by, &loaded, &why);
    must(rc == 0 ? by.can && by.id && by.open && by.start && by.test && by.abort && by.close && by.name : rc == RINGRED_EVERSION);
}

static void name(void)
{
    char text[300];
    size_t n = (size_t)(end - at) < sizeof text - 1 ? (size_t)(end - at) : sizeof text - 1;
    struct rr_wires wires;
    ringred_error why = { 0 };

    memcpy(text, at, n);
    text[n] = 0;
    setenv("RINGRED_PLUGIN_PATH", "/nowhere:/neither", 1);
    int rc = rr_wires_read(text, &wires, &why);
    must(rc == 0 ? !wires.by && memchr(wires.name, 0, sizeof wires.name) : rc < 0 && why.code == rc && why.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || sodium_init() < 0)
        return 0;
    piece = data[1] ? data[1] : bytes;
    at = data + 2;
    end = data + bytes;
    switch (data[0] % 6) {
    case 0:
        transport_table();
        break;
    case 1:
        team_table();
        break;
    case 2:
        name();
        break;
    case 3:
        team_answers();
        break;
    default:
        lanes(data[0] % 6 == 4);
    }
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const names[] = { "auto", "shm", "shm,tcp", "tcp", "shm,fake", "no/name" };
    static const uint32_t hello[4] = { 0x316e6c72, 1, 0, 0 };

    if (room < 2048 || which > 13)
        return 0;
    memset(to, 0, 2048);
    if (which < 6) {
        to[0] = 2;
        memcpy(to + 2, names[which], strlen(names[which]));
        return 2 + strlen(names[which]);
    }
    switch (which) {
    case 6: /* whole tables */
    case 7:
        to[0] = (uint8_t)(which - 6);
        to[2] = 0xff;
        memset(to + 5, 1, 16);
        return 20;
    case 8: /* a team that opens, starts and is done, and one that fails */
    case 9:
        to[0] = 3;
        to[3] = 1;
        to[5] = which == 9 ? 0xfb : 0;
        return 12;
    case 10: /* a lane */
    case 11:
        to[0] = 5;
        to[1] = which == 11 ? 5 : 0;
        memcpy(to + 2, hello, sizeof hello);
        return 2 + 64;
    case 12: /* all, with offers: its own address, then theirs */
        to[0] = 4;
        to[3] = 16;
        to[4] = 0;
        memcpy(to + 5, hello, sizeof hello);
        return 5 + 600;
    default:
        to[0] = 4;
        to[3] = 16;
        to[4] = 1;
        to[5] = to[6] = to[7] = to[8] = 0xff;
        return 5 + 1000;
    }
}
