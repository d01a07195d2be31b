/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and operators: their names and sizes, and which type takes which operator. */
#include "reduce/reduce.h"

#include <string.h>

#define OP(name) (1u << (RINGRED_##name - RINGRED_SUM))
#define SUMS (OP(SUM) | OP(AVG) | OP(PROD))
#define ORDER (OP(MIN) | OP(MAX))
#define BITS (OP(BAND) | OP(BOR) | OP(BXOR))
#define TRUTH (OP(LAND) | OP(LOR) | OP(LXOR))
#define OF_FLOATS (SUMS | ORDER)
#define OF_INTEGERS (SUMS | ORDER | BITS | TRUTH)

struct type {
    const char *name;
    unsigned ops;
};

static const struct type types[RR_TYPES] = {
    [0] = { "?", 0 },
    [RINGRED_FLOAT32] = { "float32", OF_FLOATS },
    [RINGRED_FLOAT64] = { "float64", OF_FLOATS },
    [RINGRED_FLOAT16] = { "float16", OF_FLOATS },
    [RINGRED_BFLOAT16] = { "bfloat16", OF_FLOATS },
    [RINGRED_FLOAT8_E4M3FN] = { "float8_e4m3fn", OF_FLOATS },
    [RINGRED_FLOAT8_E5M2] = { "float8_e5m2", OF_FLOATS },
    [RINGRED_INT8] = { "int8", OF_INTEGERS },
    [RINGRED_INT16] = { "int16", OF_INTEGERS },
    [RINGRED_INT32] = { "int32", OF_INTEGERS },
    [RINGRED_INT64] = { "int64", OF_INTEGERS },
    [RINGRED_UINT8] = { "uint8", OF_INTEGERS },
    [RINGRED_UINT16] = { "uint16", OF_INTEGERS },
    [RINGRED_UINT32] = { "uint32", OF_INTEGERS },
    [RINGRED_UINT64] = { "uint64", OF_INTEGERS },
    [RINGRED_BOOL] = { "bool", OF_INTEGERS & ~OP(AVG) },
    [RINGRED_COMPLEX64] = { "complex64", SUMS },
    [RINGRED_COMPLEX128] = { "complex128", SUMS },
    [RINGRED_BYTES] = { "bytes", 0 },
};

const uint8_t rr_type_bytes_table[RR_TYPES] = {
    [RINGRED_FLOAT32] = 4, [RINGRED_FLOAT64] = 8,       [RINGRED_FLOAT16] = 2,
    [RINGRED_BFLOAT16] = 2, [RINGRED_FLOAT8_E4M3FN] = 1, [RINGRED_FLOAT8_E5M2] = 1,
    [RINGRED_INT8] = 1,    [RINGRED_INT16] = 2,         [RINGRED_INT32] = 4,
    [RINGRED_INT64] = 8,   [RINGRED_UINT8] = 1,         [RINGRED_UINT16] = 2,
    [RINGRED_UINT32] = 4,  [RINGRED_UINT64] = 8,        [RINGRED_BOOL] = 1,
    [RINGRED_COMPLEX64] = 8, [RINGRED_COMPLEX128] = 16, [RINGRED_BYTES] = 1,
};

static const char *const ops[RR_OPS] = {
    "sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor",
};

static bool is_type(int type)
{
    return type > 0 && type < RR_TYPES;
}

static bool is_op(int op)
{
    return op >= RINGRED_SUM && op < RINGRED_SUM + RR_OPS;
}

bool rr_op_legal(int type, int op)
{
    return is_type(type) && is_op(op) && (types[type].ops >> (op - RINGRED_SUM) & 1);
}

const char *rr_type_name(int type)
{
    return types[is_type(type) ? type : 0].name;
}

const char *rr_op_name(int op)
{
    return is_op(op) ? ops[op - RINGRED_SUM] : "?";
}

int rr_type_of_name(const char *name)
{
    for (int type = 1; type < RR_TYPES; type++)
        if (strcmp(name, types[type].name) == 0)
            return type;
    return -1;
}

int rr_op_of_name(const char *name)
{
    for (int op = 0; op < RR_OPS; op++)
        if (strcmp(name, ops[op]) == 0)
            return RINGRED_SUM + op;
    return -1;
}
