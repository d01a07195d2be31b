/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of strangers' transports: making them, and proving on each that both ends know the job's key. */
#include "transport/link.h"

#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define TABLE_LEAST sizeof(ringred_transport) /* what the first release of the interface has */

/* ---- finding ---- */

static int check_table(const ringred_transport *by, const struct rr_loaded *loaded, ringred_error *why)
{
    const char *lacks = NULL;

    RR_TRY(rr_plugin_check(loaded, by ? by->struct_size : 0, by ? by->name : NULL, TABLE_LEAST, why));
    lacks = !by->open ? "open" : !by->address ? "address" : !by->connect ? "connect" : !by->send ? "send"
            : !by->recv ? "recv" : !by->finish ? "finish" : !by->reset ? "reset" : !by->drained ? "drained"
            : !by->watch ? "watch" : !by->close ? "close" : NULL;
    return lacks ? rr_fail(why, RINGRED_EVERSION, -1, 0, "%s: its table has no function \"%s\"", loaded->file, lacks) : 0;
}

int rr_plugin_find(const char *name, const ringred_transport **by, ringred_error *why)
{
    ringred_transport_entry entry;
    struct rr_loaded loaded;

    RR_TRY(rr_plugin_load(RR_PLUGIN_TRANSPORT, name, &loaded, why));
    memcpy(&entry, &loaded.entry, sizeof entry);
    const ringred_transport *found = entry();
    RR_TRY(check_table(found, &loaded, why));
    *by = found;
    return 0;
}

int rr_wires_read(const char *text, struct rr_wires *wires, ringred_error *why)
{
    const char *name = strncmp(text, "shm,", 4) == 0 ? text + 4 : text;

    *wires = (struct rr_wires){ .shm = name != text || strcmp(text, "auto") == 0 || strcmp(text, "shm") == 0 };
    if (strcmp(text, "shm") == 0)
        return 0;
    if (strcmp(text, "auto") == 0)
        name = "tcp";
    if (strcmp(name, "tcp") != 0)
        RR_TRY(rr_plugin_find(name, &wires->by, why));
    snprintf(wires->name, sizeof wires->name, "%s", name);
    return 0;
}

/* ---- proofs: hello (who I am, a nonce), then a MAC over both hellos ---- */

#define HELLO 32
#define PROOF 32

struct lane {
    int peer, rail;
    unsigned char out[HELLO + PROOF], in[HELLO + PROOF];
    size_t sent, got;
};

static void write_hello(const struct rr_plugin *p, struct lane *l)
{
    const uint32_t words[4] = { 0x316e6c72, (uint32_t)p->me, (uint32_t)l->peer, (uint32_t)l->rail }; /* "rln1" */

    memcpy(l->out, words, sizeof words);
    randombytes_buf(l->out + sizeof words, HELLO - sizeof words);
}

static void prove(const unsigned char key[32], const unsigned char *mine, const unsigned char *theirs, unsigned char *proof)
{
    crypto_generichash_state s;

    crypto_generichash_init(&s, key, 32, PROOF);
    crypto_generichash_update(&s, mine, HELLO);
    crypto_generichash_update(&s, theirs, HELLO);
    crypto_generichash_final(&s, proof, PROOF);
}

static int check_hello(const struct rr_plugin *p, const struct lane *l, ringred_error *why)
{
    uint32_t words[4];

    memcpy(words, l->in, sizeof words);
    if (words[0] == 0x316e6c72 && words[1] == (uint32_t)l->peer && words[2] == (uint32_t)p->me && words[3] == (uint32_t)l->rail)
        return 0;
    return rr_fail(why, RINGRED_EAUTH, l->peer, 0, "transport %s: lane %d to rank %d is another's, or carries other bytes "
                   "than were sent", p->by->name, l->rail, l->peer);
}

/* What can be done for one lane now. PENDING; 0: it is proved. */
static int lane_turn(const struct rr_plugin *p, struct lane *l, const unsigned char key[32], ringred_error *why)
{
    unsigned char due[PROOF];
    int32_t system = 0;
    size_t ready = l->got >= HELLO ? sizeof l->out : HELLO;
    const ringred_span out = { l->out + l->sent, ready - l->sent };
    int64_t k = out.length ? p->by->send(p->self, l->peer, l->rail, &out, 1, &system) : 0;

    l->sent += k > 0 ? (size_t)k : 0;
    const ringred_span in = { l->in + l->got, (l->got < HELLO ? HELLO : sizeof l->in) - l->got };
    int64_t n = k >= 0 && in.length ? p->by->recv(p->self, l->peer, l->rail, &in, 1, &system) : 0;
    if (k < 0 || n < 0)
        return rr_fail(why, RINGRED_EPEER, l->peer, system, "transport %s: lane %d to rank %d ended before it was proved",
                       p->by->name, l->rail, l->peer);
    l->got += (size_t)n;
    if (n > 0 && l->got == HELLO) {
        RR_TRY(check_hello(p, l, why));
        prove(key, l->out, l->in, l->out + HELLO);
    }
    if (l->got < sizeof l->in || l->sent < sizeof l->out)
        return RINGRED_PENDING;
    prove(key, l->in, l->out, due);
    if (sodium_memcmp(due, l->in + HELLO, PROOF) != 0)
        return rr_fail(why, RINGRED_EAUTH, l->peer, 0, "transport %s: rank %d did not prove on lane %d that it knows the job's "
                       "key", p->by->name, l->peer, l->rail);
    return 0;
}

static int prove_lanes(const struct rr_plugin *p, struct lane *lane, int lanes, ringred_error *why)
{
    unsigned char key[32];
    int64_t asked = rr_now_ns();

    rr_boot_secret(p->boot, "ringred lane", key);
    for (int left = lanes; left;) {
        left = 0;
        for (int i = 0; i < lanes; i++) {
            if (lane[i].got == sizeof lane[i].in && lane[i].sent == sizeof lane[i].out)
                continue;
            int rc = lane_turn(p, &lane[i], key, why);
            RR_TRY(rc);
            left += rc == RINGRED_PENDING;
        }
        if (p->by->progress)
            p->by->progress(p->self);
        int64_t now = rr_now_ns();
        if (left && now >= p->deadline_ns)
            return rr_fail(why, RINGRED_ETIMEOUT, -1, 0, "transport %s: %d of %d lanes were not proved in time", p->by->name,
                           left, lanes);
        if (now >= asked + RR_INTERRUPT_NS / 2) {
            asked = now;
            if (rr_is_interrupted(&p->interrupt))
                return rr_fail(why, RINGRED_EINTERRUPTED, p->me, 0, "the caller interrupted rank %d while it made a communicator",
                               p->me);
        }
        (void)sched_yield();
    }
    return 0;
}

static int prove_all(const struct rr_plugin *p, const uint8_t *streams, ringred_error *why)
{
    struct lane *lane = rr_alloc((size_t)(p->ranks * p->rails), sizeof *lane);
    int lanes = 0;

    if (!lane)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d lanes", p->ranks * p->rails);
    for (int peer = 0; peer < p->ranks; peer++)
        for (int rail = 0; rail < streams[peer]; rail++, lanes++) {
            lane[lanes].peer = peer;
            lane[lanes].rail = rail;
            write_hello(p, &lane[lanes]);
        }
    int rc = prove_lanes(p, lane, lanes, why);
    rr_free(lane);
    return rc;
}

/* ---- opening ---- */

static struct rr_plugin_host *make_host(const struct rr_plugin *p)
{
    struct rr_plugin_host *h = rr_alloc(1, sizeof *h);

    if (!h)
        return NULL;
    rr_plugin_host_init(h, p->settings, p->log, p->interrupt);
    rr_boot_secret(p->boot, "ringred plug-in", h->secret);
    h->table.rank = p->me;
    h->table.ranks = p->ranks;
    h->table.rails = p->rails;
    return h;
}

struct offer {
    int32_t bytes;      /* of the address; < 0: a status, and why */
    char text[RINGRED_ADDRESS_MOST];
};

static int open_self(struct rr_plugin *p, const ringred_host *host, struct offer *mine, ringred_error *why)
{
    int rc = p->by->usable ? p->by->usable(host, why) : 0;

    if (rc == 0)
        rc = p->by->open(host, &p->self, why);
    if (rc == 0 && (rc = p->by->address(p->self, mine->text, why)) > RINGRED_ADDRESS_MOST)
        rc = rr_fail(why, RINGRED_EINTERNAL, -1, 0, "transport %s: an address of %d bytes", p->by->name, rc);
    mine->bytes = rc;
    if (rc < 0)
        snprintf(mine->text, sizeof mine->text, "%s", why->text);
    return rc;
}

/* Everybody's addresses; if somebody has none, all fail with his words. */
static int exchange(const struct rr_plugin *p, const struct offer *mine, struct offer *all, ringred_error *why)
{
    RR_TRY(rr_boot_allgather(p->boot, mine, sizeof *mine, all, why));
    for (int r = 0; r < p->ranks; r++)
        if (all[r].bytes < 0) {
            all[r].text[sizeof all[r].text - 1] = 0;
            return rr_fail(why, all[r].bytes, r, 0, "rank %d cannot use transport %s: %.300s", r, p->by->name, all[r].text);
        }
    return 0;
}

static int connect_all(const struct rr_plugin *p, const uint8_t *streams, const struct offer *all, ringred_error *why)
{
    const void **address = rr_alloc((size_t)p->ranks, sizeof *address);
    int32_t *bytes = rr_alloc((size_t)p->ranks, sizeof *bytes);
    int rc = address && bytes ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d addresses", p->ranks);

    for (int r = 0; r < p->ranks && rc == 0; r++) {
        address[r] = all[r].text;
        bytes[r] = all[r].bytes > RINGRED_ADDRESS_MOST ? 0 : all[r].bytes;
    }
    if (rc == 0)
        rc = p->by->connect(p->self, streams, address, bytes, p->deadline_ns, why);
    rr_free(address);
    rr_free(bytes);
    return rc;
}

static int open_lanes(struct rr_plugin *p, const ringred_host *host, const uint8_t *streams, ringred_error *why)
{
    struct offer *all = rr_alloc((size_t)p->ranks + 1, sizeof *all), *mine = all + p->ranks;
    ringred_error own;

    if (!all)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for %d addresses", p->ranks);
    ringred_error_init(&own);
    int failed = open_self(p, host, mine, &own);
    int rc = exchange(p, mine, all, why);
    if (failed < 0 && rc < 0)
        *why = own;
    rc = rc == 0 ? connect_all(p, streams, all, why) : rc;
    if (rc == 0)
        rc = prove_all(p, streams, why);
    rr_free(all);
    return rc;
}

int rr_plugin_open(struct rr_plugin *p, const uint8_t *wanted, struct rr_transport **transport, ringred_error *why)
{
    struct rr_plugin_host *c = make_host(p);
    uint8_t *streams = rr_alloc((size_t)p->ranks, 1);
    struct rr_links *links;
    int rc = c && streams ? 0 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a transport");

    for (int r = 0; r < p->ranks && streams; r++)
        streams[r] = wanted[r] ? (uint8_t)p->rails : 0;
    if (rc == 0)
        rc = open_lanes(p, &c->table, streams, why);
    const struct rr_lanes from = { .ranks = p->ranks, .me = p->me, .by = p->by, .self = p->self, .streams = streams };
    if (rc == 0)
        rc = rr_links_open(&from, p->settings, p->log, &links, why);
    rr_free(streams);
    if (rc == 0) {
        links->host = c;
        *transport = &links->base;
        return 0;
    }
    if (p->self)
        p->by->close(p->self, 0);
    rr_free(c);
    return rc;
}
