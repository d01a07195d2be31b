/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of what sums promise, from the executable reference (numerics.c): for each type, over all
 * layouts of equal hosts up to 16 ranks, whether an allreduce gives the bits that it gives on one host.
 *     promise            prints it
 *     promise FILE       says whether the file has it, line by line */
#include "numerics.h"

#include <stdio.h>
#include <string.h>

#define ELEMENTS 2048
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

/* Elements of all layouts that differ from those on one host, of a million. */
static double differing(int type, bool portable)
{
    static unsigned char flat[ELEMENTS * 16], hosts[ELEMENTS * 16];
    size_t bytes = numbers_bytes(type);
    double all = 0, others = 0;

    for (int ranks = 2; ranks <= 16; ranks++)
        for (int per_host = 2; per_host < ranks; per_host *= 2) {
            struct numbers_job job = { .type = type, .op = RINGRED_SUM, .ranks = ranks,
                                       .kind = NUMBERS_ROUNDING, .seed = (uint64_t)ranks * 64 + 1 };
            if (ranks % per_host)
                continue;
            numbers_expect(flat, &job, 0, ELEMENTS);
            job.per_host = portable ? 0 : per_host;
            numbers_expect(hosts, &job, 0, ELEMENTS);
            for (size_t i = 0; i < ELEMENTS; i++)
                others += memcmp(flat + i * bytes, hosts + i * bytes, bytes) != 0;
            all += ELEMENTS;
        }
    return 1e6 * others / all;
}

static const char *words(double differing)
{
    return differing > 0 ? "one more rounding where hosts of several ranks exchange sums"
                         : "the same bits on every layout";
}

static void print_table(char *text, size_t room)
{
    int used = snprintf(text, room, "| type | canonical | portable |\n|---|---|---|\n");

    for (size_t i = 0; i < sizeof rows / sizeof *rows && (size_t)used < room; i++)
        used += snprintf(text + used, room - (size_t)used, "| %s | %s | %s |\n", rows[i].name,
                         words(differing(rows[i].type, false)), words(differing(rows[i].type, true)));
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
