/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and operators by name, and which type takes which operator (docs/NUMBERS.md). */
#include "bench.h"

#include <string.h>

#define OP(name)    (1u << (RINGRED_##name - RINGRED_SUM))
#define SUMS        (OP(SUM) | OP(AVG) | OP(PROD))
#define OF_FLOATS   (SUMS | OP(MIN) | OP(MAX))
#define OF_BOOL     (OF_INTEGERS & ~OP(AVG))
#define OF_INTEGERS (OF_FLOATS | OP(BAND) | OP(BOR) | OP(BXOR) | OP(LAND) | OP(LOR) | OP(LXOR))

/* In the order in which "all" takes them. */
static const struct type {
    int32_t type;
    unsigned width, ops;
    const char *name, *library; /* nccl-tests' name, or ours where it has none; ours */
} types[BENCH_TYPES] = {
    { RINGRED_INT8, 1, OF_INTEGERS, "int8", "int8" },
    { RINGRED_UINT8, 1, OF_INTEGERS, "uint8", "uint8" },
    { RINGRED_INT16, 2, OF_INTEGERS, "int16", "int16" },
    { RINGRED_UINT16, 2, OF_INTEGERS, "uint16", "uint16" },
    { RINGRED_INT32, 4, OF_INTEGERS, "int32", "int32" },
    { RINGRED_UINT32, 4, OF_INTEGERS, "uint32", "uint32" },
    { RINGRED_INT64, 8, OF_INTEGERS, "int64", "int64" },
    { RINGRED_UINT64, 8, OF_INTEGERS, "uint64", "uint64" },
    { RINGRED_FLOAT16, 2, OF_FLOATS, "half", "float16" },
    { RINGRED_FLOAT32, 4, OF_FLOATS, "float", "float32" },
    { RINGRED_FLOAT64, 8, OF_FLOATS, "double", "float64" },
    { RINGRED_BFLOAT16, 2, OF_FLOATS, "bfloat16", "bfloat16" },
    { RINGRED_FLOAT8_E4M3FN, 1, OF_FLOATS, "fp8_e4m3", "float8_e4m3fn" },
    { RINGRED_FLOAT8_E5M2, 1, OF_FLOATS, "fp8_e5m2", "float8_e5m2" },
    { RINGRED_BOOL, 1, OF_BOOL, "bool", "bool" },
    { RINGRED_COMPLEX64, 8, SUMS, "complex64", "complex64" },
    { RINGRED_COMPLEX128, 16, SUMS, "complex128", "complex128" },
    { RINGRED_BYTES, 1, 0, "bytes", "bytes" },
};

static const char *const ops[BENCH_OPS] = {
    "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor",
};

static const struct type *row(int32_t type)
{
    for (int i = 0; i < BENCH_TYPES; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const char *bench_type_name(int32_t type)
{
    return row(type) ? row(type)->name : "none";
}

const char *bench_type_long(int32_t type)
{
    return row(type) ? row(type)->library : "none";
}

size_t bench_width(int32_t type)
{
    return row(type) ? row(type)->width : 1;
}

const char *bench_op_name(int32_t op)
{
    return op >= RINGRED_SUM && op < RINGRED_SUM + BENCH_OPS ? ops[op - RINGRED_SUM] : "none";
}

bool bench_is_pair(int32_t type, int32_t op)
{
    return row(type) && op >= RINGRED_SUM && (row(type)->ops >> (op - RINGRED_SUM) & 1);
}

/* ---- lists ---- */

/* The number behind the first `length` characters; 0: unknown. */
typedef int32_t (*lookup)(const char *name, size_t length);

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && !strncmp(name, text, length);
}

static int32_t find_type(const char *name, size_t length)
{
    for (int i = 0; i < BENCH_TYPES; i++)
        if (is_name(types[i].name, name, length) || is_name(types[i].library, name, length))
            return types[i].type;
    return 0;
}

static int32_t find_op(const char *name, size_t length)
{
    for (int i = 0; i < BENCH_OPS; i++)
        if (is_name(ops[i], name, length))
            return RINGRED_SUM + i;
    return 0;
}

/* Reads names with commas between them into at most `most` numbers; how many, or 0 with the name
 * that is not known at *text. */
static int read_list(const char **text, lookup find, int32_t *numbers, int most)
{
    for (int n = 0; n < most; n++) {
        size_t length = strcspn(*text, ",");

        numbers[n] = find(*text, length);
        if (!numbers[n])
            return 0;
        *text += length;
        if (!**text)
            return n + 1;
        ++*text;
    }
    return 0;
}

static void list_types(FILE *out)
{
    for (int i = 0; i < BENCH_TYPES; i++) {
        bool two = strcmp(types[i].name, types[i].library) != 0;

        fprintf(out, " %s%s%s%s", types[i].name, two ? "=" : "", two ? types[i].library : "",
                i == 7 || i == 13 ? "\n      " : "");
    }
    fprintf(out, "\n");
}

static void list_ops(FILE *out)
{
    for (int i = 0; i < BENCH_OPS; i++)
        fprintf(out, " %s", ops[i]);
    fprintf(out, "\n");
}

void bench_list_types(FILE *out)
{
    fprintf(out, "\nTypes:");
    list_types(out);
    fprintf(out, "Operators:");
    list_ops(out);
    fprintf(out, "With all, pairs of type and operator that do not exist are left out.\n");
}

bool bench_parse_types(struct bench_options *o, const char *text)
{
    o->all_types = !strcmp(text, "all");
    o->type_count = o->all_types ? BENCH_TYPES : read_list(&text, find_type, o->types, BENCH_TYPES);
    for (int i = 0; o->all_types && i < BENCH_TYPES; i++)
        o->types[i] = types[i].type;
    if (o->type_count)
        return true;
    bench_complain("type '%s' is not known; there are all, and", text);
    fprintf(stderr, "      ");
    list_types(stderr);
    return false;
}

bool bench_parse_ops(struct bench_options *o, const char *text)
{
    o->all_ops = !strcmp(text, "all");
    o->op_count = o->all_ops ? BENCH_OPS : read_list(&text, find_op, o->ops, BENCH_OPS);
    for (int i = 0; o->all_ops && i < BENCH_OPS; i++)
        o->ops[i] = RINGRED_SUM + i;
    if (o->op_count)
        return true;
    bench_complain("operator '%s' is not known; there are all, and", text);
    fprintf(stderr, "      ");
    list_ops(stderr);
    return false;
}
