/* SPDX-License-Identifier: Apache-2.0 */
/* The cards that ranks exchange before they make a communicator: byte 0: what else there is; then the cards of the
 * others, as bytes. Settings that differ are named, in words that have an end. */
#include "fuzz.h"

#include "core/core.h"

static const struct rr_member *a_member(const struct rr_boot *boot, int rank);

#define rr_boot_member a_member
#include "core/card.c"

#include <stdlib.h>

#define RANKS 4

static void must(bool claim)
{
    if (!claim)
        abort();
}

static const struct rr_member *a_member(const struct rr_boot *boot, int rank)
{
    static const struct rr_member here = { .pid = 7, .name = "here" };

    (void)boot, (void)rank;
    return &here;
}

static struct rr_family *family(void)
{
    static struct rr_family f;
    static const char *const none[] = { NULL };
    ringred_error why = { 0 };

    if (!rr_setting_text(&f.settings, RR_SET_TRANSPORT)[0])
        must(rr_settings_load(&f.settings, none, &why) == 0);
    f.crowded = f.crowded_any = f.roomy = false;
    return &f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct rr_card *card = calloc(RANKS, sizeof *card);
    ringred_comm c = { .family = family(), .ranks = RANKS, .rank = 0 };
    ringred_error why = { 0 };

    must(card != NULL);
    if (bytes >= 1) {
        size_t n = bytes - 1 < (RANKS - 1) * sizeof *card ? bytes - 1 : (RANKS - 1) * sizeof *card;
        rr_card_write(&c, &card[0]);
        for (int r = 1; r < RANKS; r++)
            card[r] = card[0];
        memcpy(&card[1], data + 1, n);
        if (data[0] & 1) /* what they agree on is ours, so that what is behind it is reached */
            for (int r = 1; r < RANKS; r++)
                memcpy(card[r].agreed, card[0].agreed, sizeof card->agreed);
        int rc = rr_cards_compare(&c, NULL, card, &why);
        must(rc == 0 || (rc == RINGRED_ECONFIG && why.rank > 0 && why.rank < RANKS && memchr(why.text, 0, sizeof why.text)));
        for (const char *at = why.text; *at; at++)
            must((unsigned char)*at >= ' ');
        rr_cards_count_cpus(&c, card);
    }
    free(card);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    ringred_comm c = { .family = family(), .ranks = RANKS };
    struct rr_card card;

    if (room < 1 + 2 * sizeof card || which > 4)
        return 0;
    rr_card_write(&c, &card);
    to[0] = (uint8_t)(which == 2);
    if (which == 1)
        card.agreed[0] = '!';
    if (which == 2)
        card.tuning = 7;
    if (which == 3)
        card.machine++;
    if (which == 4)
        memset(card.agreed + 20, '\n', sizeof card.agreed - 20);
    memcpy(to + 1, &card, sizeof card);
    memcpy(to + 1 + sizeof card, &card, sizeof card);
    return 1 + (which % 2 ? 1 : 2) * sizeof card;
}
