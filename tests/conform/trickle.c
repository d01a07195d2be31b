/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that keeps to the letter of the interface and to nothing else: it takes and gives few bytes at a time,
 * often none for no reason; only once it has told a sleeper that what comes will tell, it holds nothing back until the next
 * bytes; and what has gone out it knows only after progress. */
#define RINGRED_TRANSPORT_ENTRY_OF_UNIX
#include "../../examples/plugin/unix.c"

static ringred_transport trickle;
static _Thread_local uint32_t dice = 1;
static _Thread_local bool withheld, honest, worked;

static uint32_t throw(uint32_t sides)
{
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 8) % sides;
}

/* The first bytes of the parts, at most some. */
static int32_t cut(const ringred_span *part, int32_t parts, ringred_span *few)
{
    size_t most = 1 + throw(throw(4) ? 60000 : 9);
    int32_t n = 0;

    for (int32_t i = 0; i < parts && most; i++) {
        few[n] = part[i];
        few[n].length = few[n].length < most ? few[n].length : most;
        most -= few[n++].length;
    }
    return n;
}

static int64_t trickle_send(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    ringred_span few[8];

    if (!honest && throw(3) == 0) {
        withheld = true;
        return 0;
    }
    worked = false;
    return unix_send(self, peer, rail, few, cut(part, parts < 8 ? parts : 8, few), system);
}

static int64_t trickle_recv(void *self, int32_t peer, int32_t rail, const ringred_span *part, int32_t parts, int32_t *system)
{
    ringred_span few[8];

    if (!honest && throw(3) == 0) {
        withheld = true;
        return 0;
    }
    const int64_t k = unix_recv(self, peer, rail, few, cut(part, parts < 8 ? parts : 8, few), system);
    honest = honest && k == 0;
    return k;
}

static int32_t trickle_arm(void *self)
{
    const bool again = withheld || throw(4) == 0;

    (void)self;
    withheld = false;
    honest = !again;
    return again ? RINGRED_PENDING : 0;
}

static void trickle_progress(void *self)
{
    (void)self;
    worked = true;
}

static int32_t trickle_drained(void *self, int32_t peer, int32_t rail)
{
    return worked ? unix_drained(self, peer, rail) : RINGRED_PENDING;
}

__attribute__((visibility("default"))) const ringred_transport *RINGRED_TRANSPORT_ENTRY(void);

const ringred_transport *RINGRED_TRANSPORT_ENTRY(void)
{
    trickle = table;
    trickle.name = "trickle";
    trickle.text = "few bytes at a time";
    trickle.send = trickle_send;
    trickle.recv = trickle_recv;
    trickle.arm = trickle_arm;
    trickle.drained = trickle_drained;
    trickle.progress = trickle_progress;
    return &trickle;
}
