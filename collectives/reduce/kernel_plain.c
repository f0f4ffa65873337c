/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The reference: portable C, one block at a time. A block of each source is loaded into the accumulator's type,
 * combined, finished and stored. The three accumulator types are float, double and a 128-bit integer, in which a sum of
 * integers cannot overflow.
 */
#include "base/half.h"
#include "collectives/reduce/kernel_tables.h"

#include <math.h>
#include <string.h>

enum { BLOCK_ELEMS = 256 };

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

/* Rounds toward zero and saturates; NaN becomes 0. */
static wide wide_of_double(double value, wide low, wide high)
{
    if (isnan(value)) {
        return 0;
    }
    if (value <= (double)low) {
        return low;
    }
    return value >= (double)high ? high : (wide)value;
}

/* ---- floating point: load, combine, finish, store ---- */

static void load_floats(enum pl_dtype dtype, float *restrict into, const char *source, size_t at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;

        if (dtype == PL_FLOAT32) {
            memcpy(&into[i], source + (at + i) * sizeof(float), sizeof(float));
        } else {
            memcpy(&half, source + (at + i) * sizeof(half), sizeof(half));
            into[i] = dtype == PL_FLOAT16 ? pl_half_float16_to_float(half) : pl_half_bfloat16_to_float(half);
        }
    }
}

static void store_floats(enum pl_dtype dtype, char *dest, const float *restrict from, size_t at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == PL_FLOAT32) {
            memcpy(dest + (at + i) * sizeof(float), &from[i], sizeof(float));
        } else {
            uint16_t half =
                dtype == PL_FLOAT16 ? pl_half_float16_from_float(from[i]) : pl_half_bfloat16_from_float(from[i]);

            memcpy(dest + (at + i) * sizeof(half), &half, sizeof(half));
        }
    }
}

#define DEFINE_COMBINE(name, type, product, is_nan, is_negative)                                                       \
    static void combine_##name(enum pl_op op, type *restrict sum, const type *restrict next, size_t count)             \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case PL_SUM:                                                                                                   \
        case PL_AVERAGE:                                                                                               \
            for (size_t i = 0; i < count; i++) {                                                                       \
                sum[i] = sum[i] + next[i];                                                                             \
            }                                                                                                          \
            break;                                                                                                     \
        case PL_MIN:                                                                                                   \
            for (size_t i = 0; i < count; i++) {                                                                       \
                bool keep = sum[i] < next[i] || is_nan(sum[i]) || (sum[i] == next[i] && is_negative(sum[i]));          \
                sum[i] = keep ? sum[i] : next[i];                                                                      \
            }                                                                                                          \
            break;                                                                                                     \
        case PL_MAX:                                                                                                   \
            for (size_t i = 0; i < count; i++) {                                                                       \
                bool keep = sum[i] > next[i] || is_nan(sum[i]) || (sum[i] == next[i] && !is_negative(sum[i]));         \
                sum[i] = keep ? sum[i] : next[i];                                                                      \
            }                                                                                                          \
            break;                                                                                                     \
        case PL_PRODUCT:                                                                                               \
            for (size_t i = 0; i < count; i++) {                                                                       \
                sum[i] = product(sum[i], next[i]);                                                                     \
            }                                                                                                          \
            break;                                                                                                     \
        case PL_ADASUM:                                                                                                \
        case PL_OP_COUNT:                                                                                              \
            break;                                                                                                     \
        }                                                                                                              \
    }

#define FLOAT_PRODUCT(a, b) ((a) * (b))
#define NEVER(a) false
#define WIDE_PRODUCT(a, b) ((wide)((unsigned_wide)(a) * (unsigned_wide)(b)))
DEFINE_COMBINE(float, float, FLOAT_PRODUCT, isnan, signbit)
DEFINE_COMBINE(double, double, FLOAT_PRODUCT, isnan, signbit)
DEFINE_COMBINE(wide, wide, WIDE_PRODUCT, NEVER, NEVER)

static bool divides(const struct pl_reduction *reduction)
{
    return (reduction->op == PL_SUM || reduction->op == PL_AVERAGE) && reduction->divisor > 1;
}

#define DEFINE_SCALE(name, type)                                                                                       \
    static void multiply_##name(type *values, type factor, size_t count)                                               \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            values[i] *= factor;                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    static void finish_##name(const struct pl_reduction *reduction, type *values, size_t count)                        \
    {                                                                                                                  \
        if (divides(reduction)) {                                                                                      \
            type divisor = (type)reduction->divisor;                                                                   \
                                                                                                                       \
            for (size_t i = 0; i < count; i++) {                                                                       \
                values[i] /= divisor;                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        if (reduction->postscale != 1) {                                                                               \
            multiply_##name(values, (type)reduction->postscale, count);                                                \
        }                                                                                                              \
    }
DEFINE_SCALE(float, float)
DEFINE_SCALE(double, double)

static void reduce_float(const struct pl_reduction *reduction, void *const *dest, uint32_t dests,
                         const void *const *source, uint32_t sources, size_t at, size_t count)
{
    float sum[BLOCK_ELEMS];
    float next[BLOCK_ELEMS];

    for (uint32_t k = 0; k < sources; k++) {
        float *into = k == 0 ? sum : next;

        load_floats(reduction->dtype, into, source[k], at, count);
        if (reduction->prescale != 1) {
            multiply_float(into, (float)reduction->prescale, count);
        }
        if (k > 0) {
            combine_float(reduction->op, sum, next, count);
        }
    }
    finish_float(reduction, sum, count);
    for (uint32_t j = 0; j < dests; j++) {
        store_floats(reduction->dtype, dest[j], sum, at, count);
    }
}

static void reduce_double(const struct pl_reduction *reduction, void *const *dest, uint32_t dests,
                          const void *const *source, uint32_t sources, size_t at, size_t count)
{
    double sum[BLOCK_ELEMS];
    double next[BLOCK_ELEMS];

    for (uint32_t k = 0; k < sources; k++) {
        double *into = k == 0 ? sum : next;

        memcpy(into, (const char *)source[k] + at * sizeof(double), count * sizeof(double));
        if (reduction->prescale != 1) {
            multiply_double(into, reduction->prescale, count);
        }
        if (k > 0) {
            combine_double(reduction->op, sum, next, count);
        }
    }
    finish_double(reduction, sum, count);
    for (uint32_t j = 0; j < dests; j++) {
        memcpy((char *)dest[j] + at * sizeof(double), sum, count * sizeof(double));
    }
}

/* ---- integers and bool ---- */

/* dtype, C type, lowest, highest */
#define INTEGER_LIST(X)                                                                                                \
    X(PL_INT8, int8_t, INT8_MIN, INT8_MAX)                                                                             \
    X(PL_INT16, int16_t, INT16_MIN, INT16_MAX)                                                                         \
    X(PL_INT32, int32_t, INT32_MIN, INT32_MAX)                                                                         \
    X(PL_INT64, int64_t, INT64_MIN, INT64_MAX)                                                                         \
    X(PL_UINT8, uint8_t, 0, UINT8_MAX)

static void integer_range(enum pl_dtype dtype, wide *low, wide *high)
{
#define RANGE(name, type, lowest, highest)                                                                             \
    if (dtype == name) {                                                                                               \
        *low = (lowest);                                                                                               \
        *high = (highest);                                                                                             \
    }
    *low = 0;
    *high = 1;
    INTEGER_LIST(RANGE)
#undef RANGE
}

static void load_wides(enum pl_dtype dtype, wide *into, const char *source, size_t at, size_t count)
{
#define LOAD(name, type, lowest, highest)                                                                              \
    if (dtype == name) {                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type value;                                                                                                \
                                                                                                                       \
            memcpy(&value, source + (at + i) * sizeof(value), sizeof(value));                                          \
            into[i] = value;                                                                                           \
        }                                                                                                              \
    }
    INTEGER_LIST(LOAD)
#undef LOAD
    if (dtype == PL_BOOL) {
        for (size_t i = 0; i < count; i++) {
            into[i] = source[at + i] != 0;
        }
    }
}

static void store_wides(enum pl_dtype dtype, char *dest, const wide *from, size_t at, size_t count)
{
#define STORE(name, type, lowest, highest)                                                                             \
    if (dtype == name) {                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type value = (type)from[i]; /* wraps, as GCC and Clang define it */                                        \
                                                                                                                       \
            memcpy(dest + (at + i) * sizeof(value), &value, sizeof(value));                                            \
        }                                                                                                              \
    }
    INTEGER_LIST(STORE)
#undef STORE
    if (dtype == PL_BOOL) {
        for (size_t i = 0; i < count; i++) {
            dest[at + i] = (char)(from[i] != 0);
        }
    }
}

static enum pl_op bool_op(enum pl_op op)
{
    return op == PL_SUM || op == PL_AVERAGE || op == PL_MAX ? PL_MAX : PL_MIN;
}

static void reduce_integer(const struct pl_reduction *reduction, void *const *dest, uint32_t dests,
                           const void *const *source, uint32_t sources, size_t at, size_t count)
{
    bool is_bool = reduction->dtype == PL_BOOL;
    enum pl_op op = is_bool ? bool_op(reduction->op) : reduction->op;
    wide sum[BLOCK_ELEMS];
    wide next[BLOCK_ELEMS];
    wide low;
    wide high;

    integer_range(reduction->dtype, &low, &high);
    for (uint32_t k = 0; k < sources; k++) {
        wide *into = k == 0 ? sum : next;

        load_wides(reduction->dtype, into, source[k], at, count);
        for (size_t i = 0; !is_bool && reduction->prescale != 1 && i < count; i++) {
            into[i] = wide_of_double((double)into[i] * reduction->prescale, low, high);
        }
        if (k > 0) {
            combine_wide(op, sum, next, count);
        }
    }
    for (size_t i = 0; !is_bool && divides(reduction) && i < count; i++) {
        sum[i] /= reduction->divisor;
    }
    for (size_t i = 0; !is_bool && reduction->postscale != 1 && i < count; i++) {
        sum[i] = wide_of_double((double)sum[i] * reduction->postscale, low, high);
    }
    for (uint32_t j = 0; j < dests; j++) {
        store_wides(reduction->dtype, dest[j], sum, at, count);
    }
}

static void plain_reduce(const struct pl_reduction *reduction, void *const *dest, uint32_t dests,
                         const void *const *source, uint32_t sources, size_t count_elems)
{
    PL_BUG_IF(reduction->op >= PL_ADASUM || reduction->dtype >= PL_DTYPE_COUNT);
    for (size_t at = 0; at < count_elems; at += BLOCK_ELEMS) {
        size_t count = count_elems - at < BLOCK_ELEMS ? count_elems - at : BLOCK_ELEMS;

        switch (reduction->dtype) {
        case PL_FLOAT32:
        case PL_FLOAT16:
        case PL_BFLOAT16:
            reduce_float(reduction, dest, dests, source, sources, at, count);
            break;
        case PL_FLOAT64:
            reduce_double(reduction, dest, dests, source, sources, at, count);
            break;
        case PL_INT8:
        case PL_INT16:
        case PL_INT32:
        case PL_INT64:
        case PL_UINT8:
        case PL_BOOL:
            reduce_integer(reduction, dest, dests, source, sources, at, count);
            break;
        case PL_DTYPE_COUNT:
            break;
        }
    }
}

static void plain_copy(void *dest, const void *source, size_t bytes, enum pl_kernel_store store)
{
    (void)store;
    if (bytes > 0) {
        memcpy(dest, source, bytes);
    }
}

static void plain_narrow(enum pl_dtype dest_dtype, uint16_t *dest, const float *source, size_t count_elems)
{
    for (size_t i = 0; i < count_elems; i++) {
        dest[i] =
            dest_dtype == PL_FLOAT16 ? pl_half_float16_from_float(source[i]) : pl_half_bfloat16_from_float(source[i]);
    }
}

static void plain_widen(enum pl_dtype source_dtype, float *dest, const uint16_t *source, size_t count_elems)
{
    for (size_t i = 0; i < count_elems; i++) {
        dest[i] =
            source_dtype == PL_FLOAT16 ? pl_half_float16_to_float(source[i]) : pl_half_bfloat16_to_float(source[i]);
    }
}

const struct pl_kernel pl_kernel_plain = {
    .name = "plain",
    .reduce = plain_reduce,
    .copy = plain_copy,
    .narrow = plain_narrow,
    .widen = plain_widen,
};
