/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target as an ordinary test: its seeds, every beginning of each, and a fixed number of
 * mutations drawn from a fixed random sequence, so that every run does the same. */
#include "fuzz.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROOM      8192
#define MUTATIONS 3000

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* An exact copy on the heap, so that a tool sees any byte read behind it. */
static void try_input(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);

    assert_non_null(copy);
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static size_t mutate(uint8_t *at, size_t bytes)
{
    static const uint8_t edges[] = { 0, 1, 0x7f, 0x80, 0xff };

    for (uint32_t times = 1 + draw(4); times && bytes; times--) {
        size_t i = draw((uint32_t)bytes);
        switch (draw(5)) {
        case 0:
            at[i] ^= (uint8_t)(1u << draw(8));
            break;
        case 1:
            at[i] = edges[draw(sizeof edges)];
            break;
        case 2:
            memset(at + i, edges[draw(sizeof edges)], bytes - i < 8 ? bytes - i : 8);
            break;
        case 3:
            bytes = i; /* cut */
            break;
        default: /* doubled */
            if (bytes + (bytes - i) <= ROOM) {
                memmove(at + bytes, at + i, bytes - i);
                bytes += bytes - i;
            }
        }
    }
    return bytes;
}

static void test_no_input_does_harm(void **unused)
{
    static uint8_t seed[ROOM], work[ROOM];
    size_t bytes;

    (void)unused;
    for (int which = 0; (bytes = fuzz_seed(which, seed, ROOM)) > 0; which++) {
        for (size_t cut = 0; cut <= bytes; cut += 1 + cut / 64)
            try_input(seed, cut);
        state = (uint64_t)which + 1;
        for (int i = 0; i < MUTATIONS; i++) {
            memcpy(work, seed, bytes);
            try_input(work, mutate(work, bytes));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_input_does_harm) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
