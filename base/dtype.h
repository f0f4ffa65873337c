/* SPDX-License-Identifier: Apache-2.0 */
/** Element types and reduction operations. Both lists are X-macros: a new entry is one line here. */
#ifndef PL_BASE_DTYPE_H
#define PL_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, bytes per element, text for people */
#define PL_DTYPE_LIST(X)                                                                                               \
    X(FLOAT32, 4, "float32")                                                                                           \
    X(FLOAT64, 8, "float64")                                                                                           \
    X(FLOAT16, 2, "float16")                                                                                           \
    X(BFLOAT16, 2, "bfloat16")                                                                                         \
    X(INT8, 1, "int8")                                                                                                 \
    X(INT16, 2, "int16")                                                                                               \
    X(INT32, 4, "int32")                                                                                               \
    X(INT64, 8, "int64")                                                                                               \
    X(UINT8, 1, "uint8")                                                                                               \
    X(BOOL, 1, "bool")

enum pl_dtype {
#define PL_DTYPE_ENUM(name, bytes, text) PL_##name,
    PL_DTYPE_LIST(PL_DTYPE_ENUM)
#undef PL_DTYPE_ENUM
        PL_DTYPE_COUNT
};

/**
 * The meaning of "reducing"; x(r) is rank r's element.
 *
 * SUM, PRODUCT  integers wrap modulo 2^bits; bool: logical or (sum), logical and (product).
 * AVERAGE       floats: the sum divided by n, which is the number of ranks or a number that the call gives; for the
 *               half-width types without overflow in between. Integers: the exact sum, kept wide, divided by n and
 *               truncated toward zero. bool: refused.
 * MIN, MAX      a NaN from any rank makes the result NaN; which zero wins is open; bool: and (min), or (max).
 * ADASUM        floats in host memory, allreduce over ranks whose number is a power of two: vectors are added in pairs
 *               so that parallel parts are averaged and orthogonal parts summed (collectives/calls/adasum.h).
 *
 * A bool element is one byte. Any non-zero byte counts as true. Results are 0 or 1.
 */
#define PL_OP_LIST(X)                                                                                                  \
    X(SUM, "sum")                                                                                                      \
    X(AVERAGE, "average")                                                                                              \
    X(MIN, "min")                                                                                                      \
    X(MAX, "max")                                                                                                      \
    X(PRODUCT, "product")                                                                                              \
    X(ADASUM, "adasum")

enum pl_op {
#define PL_OP_ENUM(name, text) PL_##name,
    PL_OP_LIST(PL_OP_ENUM)
#undef PL_OP_ENUM
        PL_OP_COUNT
};

/** Returns the bytes of one element; 0 for a value outside the list. */
static inline size_t pl_dtype_bytes(enum pl_dtype dtype)
{
    static const uint8_t item_bytes[PL_DTYPE_COUNT] = {
#define PL_DTYPE_BYTES(name, bytes, text) bytes,
        PL_DTYPE_LIST(PL_DTYPE_BYTES)
#undef PL_DTYPE_BYTES
    };

    return (unsigned)dtype < PL_DTYPE_COUNT ? item_bytes[dtype] : 0;
}

/** Returns the type's name, for example "float32"; "unknown type" for a value outside the list. */
const char *pl_dtype_text(enum pl_dtype dtype);

/** Finds the type called `text`; false if there is none. */
bool pl_dtype_find(const char *text, enum pl_dtype *ret_dtype);

/** Whether the type is float16, bfloat16, float32 or float64. */
bool pl_dtype_is_float(enum pl_dtype dtype);

/** Returns the operation's name, for example "sum". */
const char *pl_op_text(enum pl_op op);

#endif
