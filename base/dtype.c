/* SPDX-License-Identifier: Apache-2.0 */
/* The names of element types and reduction operations, and the type with a given name. */
#include "base/dtype.h"

#include <string.h>

static const char *const dtypes[PL_DTYPE_COUNT] = {
#define PL_DTYPE_ROW(name, bytes, text) [PL_##name] = text,
    PL_DTYPE_LIST(PL_DTYPE_ROW)
#undef PL_DTYPE_ROW
};

static const char *const ops[PL_OP_COUNT] = {
#define PL_OP_ROW(name, text) [PL_##name] = text,
    PL_OP_LIST(PL_OP_ROW)
#undef PL_OP_ROW
};

const char *pl_dtype_text(enum pl_dtype dtype)
{
    return (unsigned)dtype < PL_DTYPE_COUNT ? dtypes[dtype] : "unknown type";
}

bool pl_dtype_find(const char *text, enum pl_dtype *ret_dtype)
{
    for (unsigned i = 0; i < PL_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i], text) == 0) {
            *ret_dtype = (enum pl_dtype)i;
            return true;
        }
    }
    return false;
}

bool pl_dtype_is_float(enum pl_dtype dtype)
{
    return dtype == PL_FLOAT32 || dtype == PL_FLOAT64 || dtype == PL_FLOAT16 || dtype == PL_BFLOAT16;
}

const char *pl_op_text(enum pl_op op)
{
    return (unsigned)op < PL_OP_COUNT ? ops[op] : "unknown operation";
}
