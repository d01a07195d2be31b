/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of hand.h.
 *
 *   listener                                  dialler
 *   greeting: version, purpose, rank, job, nonce   -->
 *        <--   proof: version, purpose, from, to, nonce, MAC(key, "dial" greeting proof)
 *   welcome: version, answer, MAC(key, "accept" greeting proof welcome)   -->
 *        <--   taken: version, purpose
 *
 * The listener speaks first, so that a dialler that has reached somebody else's service says
 * nothing to it. The dialler proves first, so that a stranger gets no MAC out of a listener. Both
 * nonces, both ranks, direction, purpose, version and job lie under both MACs: nothing can be
 * replayed, reflected or carried over to another connection. Where connections are encrypted, nonces are public keys,
 * whose exchange gives keys that are this connection's alone. A dialler may try several addresses at
 * once and says which connection it has taken: only that one exists for the listener. All numbers are
 * little-endian. */
#include "boot/hand.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES 10 /* magic and version: the same place in every message and every version */

static const unsigned char magic[8] = { 'r', 'i', 'n', 'g', 'r', 'e', 'd', '\n' };
static const unsigned char label_dial[16] = "ringred dial";
static const unsigned char label_accept[16] = "ringred accept";
static const unsigned char label_seal[16] = "ringred seal";

static void put_u16(unsigned char *to, uint16_t v)
{
    memcpy(to, &v, sizeof v);
}

static void put_i32(unsigned char *to, int32_t v)
{
    memcpy(to, &v, sizeof v);
}

static int32_t get_i32(const unsigned char *from)
{
    int32_t v;

    memcpy(&v, from, sizeof v);
    return v;
}

static void write_head(unsigned char *message, size_t bytes)
{
    memset(message, 0, bytes);
    memcpy(message, magic, sizeof magic);
    put_u16(message + 8, RR_WIRE_VERSION);
}

/* ---- the MACs ---- */

static void mac(const struct rr_hand *h, const unsigned char label[16], size_t of_welcome,
                unsigned char out[RR_MAC_BYTES])
{
    crypto_generichash_state s;
    size_t of_proof = RR_PROOF_BYTES - (of_welcome ? 0 : RR_MAC_BYTES);

    crypto_generichash_init(&s, h->badge.key, RR_KEY_BYTES, RR_MAC_BYTES);
    crypto_generichash_update(&s, label, 16);
    crypto_generichash_update(&s, h->greeting, RR_GREETING_BYTES);
    crypto_generichash_update(&s, h->proof, of_proof);
    crypto_generichash_update(&s, h->welcome, of_welcome);
    crypto_generichash_final(&s, out, RR_MAC_BYTES);
    sodium_memzero(&s, sizeof s);
}

static bool mac_holds(const struct rr_hand *h, const unsigned char label[16], size_t of_welcome,
                      const unsigned char *given)
{
    unsigned char right[RR_MAC_BYTES];

    mac(h, label, of_welcome, right);
    return sodium_memcmp(right, given, RR_MAC_BYTES) == 0;
}

/* ---- sealing: X25519 between the nonces, which the MACs cover ---- */

/* Whoever learns the job's key later cannot open what was sealed before: that took a secret which is gone. */
static void write_nonce(struct rr_hand *h, unsigned char nonce[RR_NONCE_BYTES])
{
    if (!h->badge.offers) {
        randombytes_buf(nonce, RR_NONCE_BYTES);
        return;
    }
    randombytes_buf(h->secret, sizeof h->secret);
    (void)crypto_scalarmult_base(nonce, h->secret); /* cannot fail */
}

/* The proof's MAC holds. One key for each direction, from the job's key, the exchange and all that was said. */
static enum rr_verdict make_seal(struct rr_hand *h, uint8_t theirs, const unsigned char *their_nonce, bool dials)
{
    unsigned char shared[crypto_scalarmult_BYTES], keys[2 * RR_KEY_BYTES];
    crypto_generichash_state s;

    if (!(h->badge.offers & theirs & RR_OFFERS_SEAL))
        return RR_VERDICT_NONE;
    if (crypto_scalarmult(shared, h->secret, their_nonce) != 0)
        return RR_VERDICT_KEY; /* a point that honest ends do not draw */
    crypto_generichash_init(&s, h->badge.key, RR_KEY_BYTES, sizeof keys);
    crypto_generichash_update(&s, label_seal, sizeof label_seal);
    crypto_generichash_update(&s, shared, sizeof shared);
    crypto_generichash_update(&s, h->greeting, RR_GREETING_BYTES);
    crypto_generichash_update(&s, h->proof, RR_PROOF_BYTES);
    crypto_generichash_final(&s, keys, sizeof keys);
    memcpy(h->seal.out, keys + (dials ? 0 : RR_KEY_BYTES), RR_KEY_BYTES);
    memcpy(h->seal.in, keys + (dials ? RR_KEY_BYTES : 0), RR_KEY_BYTES);
    h->seal.cipher = h->badge.offers & theirs & RR_OFFERS_AES ? RR_CIPHER_AES256GCM : RR_CIPHER_CHACHA20;
    sodium_memzero(&s, sizeof s);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(keys, sizeof keys);
    return RR_VERDICT_NONE;
}

/* Those who meet may differ, and are told so by name when they compare their settings. */
static bool seals_alike(const struct rr_hand *h, uint8_t theirs)
{
    return h->badge.purpose == RR_PURPOSE_MEET || !((h->badge.offers ^ theirs) & RR_OFFERS_SEAL);
}

uint8_t rr_hand_offers(const struct rr_settings *settings)
{
    switch (rr_setting(settings, RR_SET_TCP_ENCRYPTION)) {
    case 0:
        return 0;
    case 1:
        return crypto_aead_aes256gcm_is_available() ? RR_OFFERS_SEAL | RR_OFFERS_AES : RR_OFFERS_SEAL;
    default:
        return RR_OFFERS_SEAL;
    }
}

static void forget(struct rr_hand *h)
{
    sodium_memzero(h->secret, sizeof h->secret);
    sodium_memzero(&h->seal, sizeof h->seal);
}

/* ---- the four messages ---- */

/* greeting: head 10, purpose 1, offers 1, rank 4, job 16, nonce 32 */
static void write_greeting(struct rr_hand *h)
{
    write_head(h->greeting, RR_GREETING_BYTES);
    h->greeting[10] = (unsigned char)h->badge.purpose;
    h->greeting[11] = h->badge.offers;
    put_i32(h->greeting + 12, h->badge.rank);
    memcpy(h->greeting + 16, h->badge.job, RR_JOB_BYTES);
    write_nonce(h, h->greeting + 32);
}

static enum rr_verdict judge_greeting(const struct rr_hand *h)
{
    if (memcmp(h->greeting + 16, h->badge.job, RR_JOB_BYTES) != 0)
        return RR_VERDICT_OTHER_JOB;
    if (h->greeting[10] != h->badge.purpose || get_i32(h->greeting + 12) != h->peer)
        return RR_VERDICT_OTHER_RANK;
    return seals_alike(h, h->greeting[11]) ? RR_VERDICT_NONE : RR_VERDICT_SEAL;
}

/* proof: head 10, purpose 1, offers 1, from 4, to 4, stream 4, nonce 32, MAC 32 */
static void write_proof(struct rr_hand *h)
{
    write_head(h->proof, RR_PROOF_BYTES);
    h->proof[10] = (unsigned char)h->badge.purpose;
    h->proof[11] = h->badge.offers;
    put_i32(h->proof + 12, h->badge.rank);
    put_i32(h->proof + 16, h->peer);
    put_i32(h->proof + 20, h->badge.stream);
    write_nonce(h, h->proof + 24);
    mac(h, label_dial, 0, h->proof + 56);
}

static enum rr_verdict judge_proof(struct rr_hand *h)
{
    if (!mac_holds(h, label_dial, 0, h->proof + 56))
        return RR_VERDICT_KEY;
    if (h->proof[10] != h->badge.purpose || get_i32(h->proof + 16) != h->badge.rank)
        return RR_VERDICT_OTHER_RANK;
    if (!seals_alike(h, h->proof[11]))
        return RR_VERDICT_SEAL;
    h->stream = get_i32(h->proof + 20);
    return make_seal(h, h->proof[11], h->proof + 24, false);
}

/* welcome: head 10, answer 1 (1: refused, without a MAC), zero 5, MAC 32 */
static void write_welcome(struct rr_hand *h, bool refused)
{
    write_head(h->welcome, RR_WELCOME_BYTES);
    h->welcome[10] = refused;
    if (!refused)
        mac(h, label_accept, RR_WELCOME_BYTES - RR_MAC_BYTES, h->welcome + 16);
}

static enum rr_verdict judge_welcome(struct rr_hand *h)
{
    bool holds = mac_holds(h, label_accept, RR_WELCOME_BYTES - RR_MAC_BYTES, h->welcome + 16);

    return holds && h->welcome[10] == 0 ? make_seal(h, h->greeting[11], h->greeting + 32, true) : RR_VERDICT_KEY;
}

/* taken: head 10, purpose 1, zero 5 */
static void write_taken(struct rr_hand *h)
{
    write_head(h->taken, RR_TAKEN_BYTES);
    h->taken[10] = (unsigned char)h->badge.purpose;
}

/* ---- moving bytes ---- */

static int fail(struct rr_hand *h, enum rr_verdict verdict, int system)
{
    if (h->fd >= 0)
        rr_fd_close(h->fd);
    forget(h);
    h->fd = -1;
    h->state = RR_HAND_FAILED;
    h->verdict = verdict;
    h->system = system;
    return -1;
}

static void go(struct rr_hand *h, enum rr_hand_state state)
{
    h->state = state;
    h->done = 0;
}

/* 0: all `bytes` are through. */
static int move(struct rr_hand *h, unsigned char *message, size_t bytes, bool out)
{
    while (h->done < bytes) {
        unsigned char *at = message + h->done;
        size_t left = bytes - h->done;
        ssize_t n = out ? send(h->fd, at, left, MSG_NOSIGNAL) : recv(h->fd, at, left, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RINGRED_PENDING;
        if (n <= 0)
            return fail(h, RR_VERDICT_LOST, n < 0 ? errno : 0);
        if (h->done == 0 && !out && rr_now_ns() + RR_HAND_STALL_NS < h->give_up_ns)
            h->give_up_ns = rr_now_ns() + RR_HAND_STALL_NS;
        h->done += (size_t)n;
    }
    return 0;
}

/* Judges magic and version as soon as they are there: the rest may have another length then. */
static enum rr_verdict judge_head(struct rr_hand *h, const unsigned char *message)
{
    uint16_t version;

    if (memcmp(message, magic, h->done < sizeof magic ? h->done : sizeof magic) != 0)
        return RR_VERDICT_STRANGER;
    if (h->done < HEAD_BYTES)
        return RR_VERDICT_NONE;
    memcpy(&version, message + 8, sizeof version);
    h->version = version;
    return version == RR_WIRE_VERSION ? RR_VERDICT_NONE : RR_VERDICT_VERSION;
}

static int take(struct rr_hand *h, unsigned char *message, size_t bytes)
{
    int rc = h->done < HEAD_BYTES ? move(h, message, HEAD_BYTES, false) : 0;

    if (rc >= 0) {
        enum rr_verdict verdict = judge_head(h, message);
        if (verdict == RR_VERDICT_VERSION && message == h->greeting) {
            unsigned char mine[HEAD_BYTES]; /* so that the other end can name my version, too */
            write_head(mine, sizeof mine);
            (void)send(h->fd, mine, sizeof mine, MSG_NOSIGNAL); /* a courtesy */
        }
        if (verdict)
            return fail(h, verdict, 0);
    }
    return rc ? rc : move(h, message, bytes, false);
}

/* ---- the steps ---- */

/* A dialler can meet itself when its own port was picked by the kernel to dial that very port. */
static bool meets_itself(int fd)
{
    struct sockaddr_storage a = { 0 }, b = { 0 };
    socklen_t n = sizeof a, m = sizeof b;

    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0 ||
        getpeername(fd, (struct sockaddr *)&b, &m) < 0)
        return false;
    return a.ss_family != AF_UNIX && n == m && memcmp(&a, &b, n) == 0;
}

static int connecting(struct rr_hand *h)
{
    struct pollfd p = { .fd = h->fd, .events = POLLOUT };
    int error = 0;
    socklen_t n = sizeof error;

    if (poll(&p, 1, 0) == 0)
        return RINGRED_PENDING;
    if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error || meets_itself(h->fd))
        return fail(h, RR_VERDICT_LOST, error ? error : ECONNREFUSED);
    go(h, RR_HAND_READ_GREETING);
    return 0;
}

static int read_greeting(struct rr_hand *h)
{
    enum rr_verdict verdict;
    int rc = take(h, h->greeting, RR_GREETING_BYTES);

    if (rc)
        return rc;
    verdict = judge_greeting(h);
    if (verdict)
        return fail(h, verdict, 0);
    write_proof(h);
    go(h, RR_HAND_SEND_PROOF);
    return 0;
}

static int send_proof(struct rr_hand *h)
{
    int rc = move(h, h->proof, RR_PROOF_BYTES, true);

    if (rc)
        return rc;
    go(h, RR_HAND_READ_WELCOME);
    return 0;
}

static int read_welcome(struct rr_hand *h)
{
    enum rr_verdict verdict;
    int rc = take(h, h->welcome, RR_WELCOME_BYTES);

    if (rc)
        return rc;
    verdict = judge_welcome(h);
    if (!verdict && rr_fd_has_ended(h->fd))
        verdict = RR_VERDICT_LOST; /* a listener that has lost patience would never know that it was taken */
    if (verdict)
        return fail(h, verdict, 0);
    write_taken(h);
    go(h, RR_HAND_SEND_TAKEN);
    return 0;
}

static int send_taken(struct rr_hand *h)
{
    int rc = move(h, h->taken, RR_TAKEN_BYTES, true);

    if (rc == 0)
        go(h, RR_HAND_PROVED);
    return rc;
}

static int send_greeting(struct rr_hand *h)
{
    int rc = move(h, h->greeting, RR_GREETING_BYTES, true);

    if (rc == 0)
        go(h, RR_HAND_READ_PROOF);
    return rc;
}

static int read_proof(struct rr_hand *h)
{
    enum rr_verdict verdict;
    int rc = take(h, h->proof, RR_PROOF_BYTES);

    if (h->done >= 16)
        h->peer = get_i32(h->proof + 12); /* a claim until the MAC is checked; for the log */
    if (rc)
        return rc;
    verdict = judge_proof(h);
    write_welcome(h, verdict != RR_VERDICT_NONE);
    if (verdict) {
        (void)send(h->fd, h->welcome, RR_WELCOME_BYTES, MSG_NOSIGNAL); /* a courtesy */
        return fail(h, verdict, 0);
    }
    go(h, RR_HAND_SEND_WELCOME);
    return 0;
}

static int send_welcome(struct rr_hand *h)
{
    int rc = move(h, h->welcome, RR_WELCOME_BYTES, true);

    if (rc == 0)
        go(h, RR_HAND_READ_TAKEN);
    return rc;
}

static int read_taken(struct rr_hand *h)
{
    unsigned char said[RR_TAKEN_BYTES];
    int rc = take(h, h->taken, RR_TAKEN_BYTES);

    if (rc)
        return rc;
    memcpy(said, h->taken, sizeof said);
    write_taken(h);
    if (memcmp(said, h->taken, sizeof said) != 0) /* there is only one way to say it */
        return fail(h, RR_VERDICT_STRANGER, 0);
    go(h, RR_HAND_PROVED);
    return 0;
}

static const struct hand_row {
    short events;
    int (*step)(struct rr_hand *h); /* NULL: nothing more to do */
} rows[] = {
    [RR_HAND_FREE] = { 0, NULL },
    [RR_HAND_CONNECTING] = { POLLOUT, connecting },
    [RR_HAND_READ_GREETING] = { POLLIN, read_greeting },
    [RR_HAND_SEND_PROOF] = { POLLOUT, send_proof },
    [RR_HAND_READ_WELCOME] = { POLLIN, read_welcome },
    [RR_HAND_SEND_TAKEN] = { POLLOUT, send_taken },
    [RR_HAND_SEND_GREETING] = { POLLOUT, send_greeting },
    [RR_HAND_READ_PROOF] = { POLLIN, read_proof },
    [RR_HAND_SEND_WELCOME] = { POLLOUT, send_welcome },
    [RR_HAND_READ_TAKEN] = { POLLIN, read_taken },
    [RR_HAND_PROVED] = { 0, NULL },
    [RR_HAND_FAILED] = { 0, NULL },
};

/* ---- the door ---- */

static void begin(struct rr_hand *h, const struct rr_badge *badge, int fd, enum rr_hand_state state)
{
    memset(h, 0, sizeof *h);
    h->badge = *badge;
    h->fd = fd;
    h->peer = -1;
    h->state = state;
}

void rr_hand_dial(struct rr_hand *h, const struct rr_badge *badge, int fd, int peer,
                  int64_t give_up_ns)
{
    begin(h, badge, fd, RR_HAND_CONNECTING);
    h->peer = peer;
    h->give_up_ns = give_up_ns;
}

void rr_hand_accept(struct rr_hand *h, const struct rr_badge *badge, int fd)
{
    begin(h, badge, fd, RR_HAND_SEND_GREETING);
    h->give_up_ns = rr_now_ns() + RR_HAND_NS;
    write_greeting(h);
}

short rr_hand_events(const struct rr_hand *h)
{
    return rows[h->state].events;
}

int rr_hand_step(struct rr_hand *h)
{
    int rc = 0;

    while (rc == 0 && rows[h->state].step)
        rc = rows[h->state].step(h);
    if (rc == RINGRED_PENDING && rr_now_ns() >= h->give_up_ns)
        return fail(h, RR_VERDICT_SLOW, 0);
    if (h->state == RR_HAND_FAILED)
        return -1;
    return rc;
}

void rr_hand_drop(struct rr_hand *h)
{
    if (h->state != RR_HAND_FREE && h->fd >= 0)
        rr_fd_close(h->fd);
    forget(h);
    h->fd = -1;
    h->state = RR_HAND_FREE;
}

int rr_hand_take(struct rr_hand *h)
{
    int fd = h->fd;

    forget(h);
    h->fd = -1;
    h->state = RR_HAND_FREE;
    return fd;
}

const char *rr_verdict_text(enum rr_verdict verdict)
{
    static const char *const texts[] = {
        [RR_VERDICT_NONE] = "not tried",
        [RR_VERDICT_LOST] = "connection closed",
        [RR_VERDICT_SLOW] = "no answer in time",
        [RR_VERDICT_STRANGER] = "somebody answered who is not libringred",
        [RR_VERDICT_VERSION] = "another wire version",
        [RR_VERDICT_OTHER_JOB] = "another job answered",
        [RR_VERDICT_OTHER_RANK] = "another rank answered",
        [RR_VERDICT_SEAL] = "one end encrypts and the other does not (setting tcp_encryption)",
        [RR_VERDICT_KEY] = "another key",
    };

    return texts[verdict];
}
