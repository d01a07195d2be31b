/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a fusion say of their gradients in its first step. Bytes 0 and 1: where rank 1's begins and rank
 * 2's; the rest is what they say. Mine are those of rank 0 if they make sense: then, if all have them, they are in its order;
 * else there is one sentence that a terminal can bear. */
#include "fuzz.h"

#include "fusion/table.c"

#include <stdlib.h>

#define RANKS 3

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void check_sentence(int rc, const ringred_error *why)
{
    must(rc == RINGRED_EMISMATCH || rc == RINGRED_EWIRE);
    must(why->code == rc && why->rank >= 0 && why->rank < RANKS && memchr(why->text, 0, sizeof why->text));
    for (const char *at = why->text; *at; at++)
        must((unsigned char)*at >= ' ');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    size_t n = bytes - 2, one = data[0] < n ? data[0] : n, two = one + (data[1] < n - one ? data[1] : n - one);
    const uint64_t length[RANKS] = { one, two - one, n - two };
    const size_t at[RANKS] = { 0, one, two };
    unsigned char *all = calloc(RANKS, n + !n);
    struct rr_gradients mine = { 0 }, first = { 0 };
    const ringred_comm c = { .ranks = RANKS };
    ringred_error why = { 0 };

    must(all != NULL);
    for (int r = 0; r < RANKS; r++)
        memcpy(all + (size_t)r * n, data + 2 + at[r], length[r]);
    if (read_rank(all, length[0], 0, &mine, &why) == 0)
        must(read_rank(all, length[0], 0, &first, &why) == 0);
    int rc = compare_all(&mine, &c, all, length, n, &why);
    if (rc < 0)
        check_sentence(rc, &why);
    for (size_t i = 0; rc == 0 && i < first.n; i++)
        must(mine.n == first.n && strcmp(mine.gradient[i].key, first.gradient[i].key) == 0 && mine.count[i] == first.count[i]);
    rr_gradients_free(&mine);
    rr_gradients_free(&first);
    free(all);
    return 0;
}

static size_t say(uint8_t *to, const char *const *keys, size_t n, int32_t type)
{
    struct rr_gradients t = { 0 };

    for (size_t i = 0; i < n; i++)
        must(rr_gradients_add(&t, keys[i], NULL, 7 + i, type) == 0);
    size_t bytes = size_of(&t);
    write_to(&t, to);
    rr_gradients_free(&t);
    return bytes;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const keys[] = { "a", "layer1.weight", "b\n" };
    size_t at = 2;

    if (which > 5 || room < 300)
        return 0;
    for (int r = 0; r < RANKS; r++) {
        bool odd = which == r + 1;
        size_t n = say(to + at, keys + (which == 4 && r == 2), odd || which == 4 ? 2 : 3,
                       which == 5 && r == 1 ? RINGRED_BFLOAT16 : RINGRED_FLOAT32);
        if (r < 2)
            to[r] = (uint8_t)n;
        at += n;
    }
    return at;
}
