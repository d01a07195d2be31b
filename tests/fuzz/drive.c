/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target as an ordinary test: its seeds, every beginning of each, and a fixed number of
 * mutations drawn from a fixed random sequence, so that every run does the same; then the inputs of a folder.
 *   drive FOLDER           all that
 *   drive --replay PATH... these inputs alone, of folders or files
 *   drive --seeds FOLDER   writes the seeds there, for libFuzzer to begin with */
#include "fuzz.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
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

/* ---- inputs of files ---- */

static bool try_file(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *f = fopen(path, "rb");

    if (!f)
        return false;
    size_t n = fread(bytes, 1, sizeof bytes, f);
    bool whole = feof(f) != 0;
    fclose(f);
    if (whole)
        try_input(bytes, n);
    return whole;
}

/* How many there were; 0: it cannot be read, or one of them cannot. */
static int try_path(const char *path)
{
    DIR *folder = opendir(path);
    char name[4096];
    int n = 0;

    if (!folder)
        return try_file(path);
    for (struct dirent *e; (e = readdir(folder));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (!try_file(name)) {
            fprintf(stderr, "%s cannot be read\n", name);
            n = -1;
            break;
        }
        n++;
    }
    closedir(folder);
    return n < 0 ? 0 : n;
}

static const char *corpus;

static void test_no_input_of_the_corpus_does_harm(void **unused)
{
    (void)unused;
    if (corpus)
        assert_true(try_path(corpus) > 0);
}

static int write_seeds(const char *folder)
{
    static uint8_t seed[ROOM];
    char name[4096];
    size_t bytes;

    for (int which = 0; (bytes = fuzz_seed(which, seed, ROOM)) > 0; which++) {
        snprintf(name, sizeof name, "%s/seed-%02d", folder, which);
        FILE *f = fopen(name, "wb");
        if (!f || fwrite(seed, 1, bytes, f) != bytes || fclose(f) != 0) {
            perror(name);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_input_does_harm),
                                        cmocka_unit_test(test_no_input_of_the_corpus_does_harm) };

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    if (argc > 2 && strcmp(argv[1], "--replay") == 0) {
        for (int i = 2; i < argc; i++)
            (void)try_path(argv[i]); /* there may be none of a target's own */
        return 0;
    }
    corpus = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
