/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of what sums promise, from the executable reference (numerics.c): for each type, over
 * layouts of hosts up to 16 ranks, whether an allreduce gives the bits that it gives on one host.
 *     promise            prints it
 *     promise FILE       says whether the file has it, line by line */
#include "numerics.h"

#include <stdio.h>
#include <string.h>

#define ELEMENTS 256
#define MOST_TEXT 4096

static const struct row {
    const char *name;
    int type;
} rows[] = {
    { "float64, float32", RINGRED_FLOAT32 },
    { "float16", RINGRED_FLOAT16 },
    { "bfloat16", RINGRED_BFLOAT16 },
    { "float8_e4m3fn", RINGRED_FLOAT8_E4M3FN },
    { "float8_e5m2", RINGRED_FLOAT8_E5M2 },
    { "integers, bool", RINGRED_INT32 },
    { "complex", RINGRED_COMPLEX64 },
};

enum layouts { EVEN, OTHER, PORTABLE };

/* Do hosts hold equal, contiguous blocks of 2^k ranks? */
static bool is_even(const uint8_t *host, int ranks, int hosts)
{
    const int each = ranks / hosts;

    for (int r = 0; r < ranks; r++)
        if (ranks % hosts || (each & (each - 1)) || host[r] != r / each)
            return false;
    return true;
}

/* Numbers the hosts of so many ranks each, in turn or dealt out like cards; how many. */
static int lay_out(uint8_t *host, int ranks, int each, bool dealt)
{
    const int hosts = (ranks + each - 1) / each;

    for (int r = 0; r < ranks; r++)
        host[r] = (uint8_t)(dealt ? r % hosts : r / each);
    return hosts;
}

/* Elements that differ from those on one host, over all such layouts of so many ranks. */
static long differing_of(int type, enum layouts which, int ranks)
{
    static unsigned char flat[ELEMENTS * 16], hosts[ELEMENTS * 16];
    const size_t bytes = numbers_bytes(type);
    uint8_t host[NUMBERS_RANKS];
    long others = 0;

    for (int i = 2; i < 2 * ranks; i++) {
        struct numbers_job job = { .type = type, .op = RINGRED_SUM, .ranks = ranks,
                                   .kind = NUMBERS_ROUNDING, .seed = (uint64_t)ranks * 64 + 1 };
        const int n = lay_out(host, ranks, i / 2, i % 2);

        if (which != PORTABLE && is_even(host, ranks, n) != (which == EVEN))
            continue;
        numbers_expect(flat, &job, 0, ELEMENTS);
        job.host = which == PORTABLE ? NULL : host;
        numbers_expect(hosts, &job, 0, ELEMENTS);
        for (size_t k = 0; k < ELEMENTS; k++)
            others += memcmp(flat + k * bytes, hosts + k * bytes, bytes) != 0;
    }
    return others;
}

static bool differs(int type, enum layouts which)
{
    long others = 0;

    for (int ranks = 2; ranks <= 16; ranks++)
        others += differing_of(type, which, ranks);
    return others > 0;
}

static void print_table(char *text, size_t room)
{
    const char *same = "the same bits on every layout";
    int used = snprintf(text, room, "| type | canonical, even hosts | canonical, other hosts | portable |\n"
                                    "|---|---|---|---|\n");

    for (size_t i = 0; i < sizeof rows / sizeof *rows && (size_t)used < room; i++) {
        const bool rounds = differs(rows[i].type, EVEN), moves = differs(rows[i].type, OTHER);

        used += snprintf(text + used, room - (size_t)used, "| %s | %s | %s | %s |\n", rows[i].name,
                         rounds ? "one more rounding" : same,
                         !moves ? same : rounds ? "the layout's tree, one more rounding" : "the layout's tree",
                         differs(rows[i].type, PORTABLE) ? "differs" : same);
    }
}

int main(int argc, char **argv)
{
    static char table[MOST_TEXT], file[1 << 16];

    print_table(table, sizeof table);
    if (argc < 2) {
        fputs(table, stdout);
        return 0;
    }
    FILE *f = fopen(argv[1], "r");
    size_t n = f ? fread(file, 1, sizeof file - 1, f) : 0;
    if (f)
        fclose(f);
    file[n] = 0;
    if (strstr(file, table))
        return 0;
    printf("%s has not the reference's table:\n%s", argv[1], table);
    return 1;
}
