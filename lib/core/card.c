/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks must agree on is exchanged and compared before the first collective. */
#include "core/card.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Settings that decide what all ranks do together. */
static const enum rr_setting must_agree[] = {
    RR_SET_TRANSPORT,      RR_SET_NUMERICS, RR_SET_SEGMENT,     RR_SET_RANKS_PER_HOST, RR_SET_STAGE, RR_SET_HEAP,
    RR_SET_TCP_STREAMS,    RR_SET_TCP_ENCRYPTION,            RR_SET_ALGORITHM,      RR_SET_TEAM,
};
#define MUST_AGREE (sizeof must_agree / sizeof *must_agree)

/* Numbers as numbers: 64K and 65536 are one. */
static void write_agreed(const struct rr_settings *s, char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };

    for (size_t i = 0; i < MUST_AGREE; i++) {
        enum rr_setting which = must_agree[i];
        bool is_word = which == RR_SET_TRANSPORT || which == RR_SET_NUMERICS || which == RR_SET_ALGORITHM ||
                       which == RR_SET_TCP_ENCRYPTION || which == RR_SET_TEAM;
        if (is_word)
            rr_text_add(&t, "%s\n", rr_setting_text(s, which));
        else
            rr_text_add(&t, "%lld\n", (long long)rr_setting(s, which));
    }
}

void rr_card_write(const ringred_comm *c, struct rr_card *card)
{
    const struct rr_settings *s = &c->family->settings;
    cpu_set_t set;

    memset(card, 0, sizeof *card);
    card->machine = rr_machine_hash();
    card->tuning = c->family->tuning ? c->family->tuning->hash : 0;
    write_agreed(s, card->agreed, sizeof card->agreed);
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set); /* then no CPU is known, and all count as crowded */
    for (int cpu = 0; cpu < RR_CARD_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            card->cpus[cpu / 64] |= 1ull << cpu % 64;
}

/* The value of one of them, as another rank wrote it. */
static void read_agreed(const struct rr_card *card, size_t which, char *value, size_t room)
{
    const char *at = card->agreed, *end = at + sizeof card->agreed;
    size_t n = 0;

    for (size_t i = 0; i < which; i++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line ? line + 1 : end;
    }
    for (; at + n < end && at[n] && at[n] != '\n' && n < room - 1; n++)
        value[n] = at[n];
    value[n] = 0;
    rr_text_tame(value);
}

const char *rr_who(const struct rr_boot *boot, int rank, char *text, size_t room)
{
    const struct rr_member *m = rr_boot_member(boot, rank);

    snprintf(text, room, "rank %d on %.40s (pid %d)", rank, m->name, m->pid);
    return text;
}

static int settings_differ(const struct rr_boot *boot, const struct rr_card *card, int r, ringred_error *why)
{
    char first[80], other[80], one[112], two[112];

    for (size_t i = 0; i < MUST_AGREE; i++) {
        read_agreed(&card[0], i, one, sizeof one);
        read_agreed(&card[r], i, two, sizeof two);
        if (strcmp(one, two) != 0)
            return rr_fail(why, RINGRED_ECONFIG, r, 0, "the setting %s must be the same on all ranks: it is \"%s\" on %s "
                           "and \"%s\" on %s", rr_setting_name(must_agree[i]), one,
                           rr_who(boot, 0, first, sizeof first), two, rr_who(boot, r, other, sizeof other));
    }
    return rr_fail(why, RINGRED_ECONFIG, r, 0, "%s and %s have long settings that differ: \"%s\"...",
                   rr_who(boot, 0, first, sizeof first), rr_who(boot, r, other, sizeof other), two);
}

int rr_cards_compare(const ringred_comm *c, const struct rr_boot *boot, const struct rr_card *card, ringred_error *why)
{
    char first[80], other[80];

    for (int r = 1; r < c->ranks; r++)
        if (memcmp(card[r].agreed, card[0].agreed, sizeof card->agreed))
            return settings_differ(boot, card, r, why);
    for (int r = 1; r < c->ranks; r++)
        if (card[r].tuning != card[0].tuning)
            return rr_fail(why, RINGRED_ECONFIG, r, 0,
                           "the tuning tables differ: %s has %s (%016llx), %s has %s (%016llx); the setting "
                           "tuning must name the same table everywhere", rr_who(boot, 0, first, sizeof first),
                           card[0].tuning ? "one" : "none", (unsigned long long)card[0].tuning,
                           rr_who(boot, r, other, sizeof other), card[r].tuning ? "another" : "none",
                           (unsigned long long)card[r].tuning);
    return 0;
}

/* Are there more ranks, with `each` threads, on rank `of`'s machine than CPUs that they may use? */
static bool is_crowded(const ringred_comm *c, const struct rr_card *card, int of, int each)
{
    int ranks = 0, cpus = 0;

    for (int r = 0; r < c->ranks; r++)
        ranks += card[r].machine == card[of].machine;
    for (int w = 0; w < RR_CARD_CPUS / 64; w++) {
        uint64_t all = 0;
        for (int r = 0; r < c->ranks; r++)
            all |= card[r].machine == card[of].machine ? card[r].cpus[w] : 0;
        cpus += __builtin_popcountll(all);
    }
    return each * ranks > cpus;
}

void rr_cards_count_cpus(ringred_comm *c, const struct rr_card *card)
{
    c->family->crowded = is_crowded(c, card, c->rank, 1);
    c->family->roomy = !is_crowded(c, card, c->rank, 2);
    for (int r = 0; r < c->ranks && !c->family->crowded_any; r++) /* a machine is looked at by its lowest rank */
        c->family->crowded_any = (r == 0 || card[r].machine != card[r - 1].machine) && is_crowded(c, card, r, 1);
}
