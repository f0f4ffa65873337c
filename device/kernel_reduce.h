/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Kernels that reduce several buffers into one, by the rules of collectives/reduce/kernel.h: in the order of the
 * sources; half-width floats in float32 and rounded once; integers in their own width, or in 128 bits if they are
 * scaled or averaged. Private to device/ and its tests.
 */
#ifndef PL_DEVICE_KERNEL_REDUCE_H
#define PL_DEVICE_KERNEL_REDUCE_H

#include "device/kernel_code.h"

__extension__ typedef __int128 pl_wide;
__extension__ typedef unsigned __int128 pl_unsigned_wide;

struct pl_reduce_args {
    char *dest;
    const char *source[PL_DEVICE_MAX_SOURCES];
    uint64_t count;
    double pre;
    double divisor;
    double post;
    uint32_t sources;
    uint32_t op;     /* enum pl_op; AVERAGE is handled as SUM */
    uint32_t dtype;  /* only for the kernel of all integer types */
    uint32_t vector; /* whether all buffers are aligned to 16 bytes */
};

/* Combines first and second by the op, which is the same for a whole launch. MIN and MAX keep a NaN, and -0 is smaller
 * than +0. */
#define PL_DEFINE_COMBINE_FLOAT(name, type)                                                                            \
    PL_CODE type combine_##name(uint32_t op, type first, type second)                                                  \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case PL_PRODUCT:                                                                                               \
            return first * second;                                                                                     \
        case PL_MIN:                                                                                                   \
            return first < second || isnan(first) || (first == second && signbit(first)) ? first : second;             \
        case PL_MAX:                                                                                                   \
            return first > second || isnan(first) || (first == second && !signbit(first)) ? first : second;            \
        default:                                                                                                       \
            return first + second;                                                                                     \
        }                                                                                                              \
    }
PL_DEFINE_COMBINE_FLOAT(float, float)
PL_DEFINE_COMBINE_FLOAT(double, double)

/* `unsigned_type` is at least as wide as int, so that sums and products wrap. */
#define PL_DEFINE_COMBINE_INTEGER(name, type, unsigned_type)                                                           \
    PL_CODE type combine_##name(uint32_t op, type first, type second)                                                  \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case PL_PRODUCT:                                                                                               \
            return (type)((unsigned_type)first * (unsigned_type)second);                                               \
        case PL_MIN:                                                                                                   \
            return first < second ? first : second;                                                                    \
        case PL_MAX:                                                                                                   \
            return first > second ? first : second;                                                                    \
        default:                                                                                                       \
            return (type)((unsigned_type)first + (unsigned_type)second);                                               \
        }                                                                                                              \
    }
PL_DEFINE_COMBINE_INTEGER(int8, int8_t, uint32_t)
PL_DEFINE_COMBINE_INTEGER(int16, int16_t, uint32_t)
PL_DEFINE_COMBINE_INTEGER(int32, int32_t, uint32_t)
PL_DEFINE_COMBINE_INTEGER(int64, int64_t, uint64_t)
PL_DEFINE_COMBINE_INTEGER(uint8, uint8_t, uint32_t)
PL_DEFINE_COMBINE_INTEGER(wide, pl_wide, pl_unsigned_wide)

PL_CODE uint8_t combine_bool(uint32_t op, uint8_t first, uint8_t second)
{
    return op == PL_PRODUCT || op == PL_MIN ? first & second : first | second;
}

#define PL_AS_IS(value) (value)
#define PL_TRUTH(value) ((value) != 0)
#define PL_SCALE_FLOATS(value, factor, type) ((value) * (type)(factor))
#define PL_FINISH_FLOATS(value, a, type)                                                                               \
    ((a)->divisor != 1.0 ? (value) / (type)(a)->divisor * (type)(a)->post : (value) * (type)(a)->post)
#define PL_SCALE_NOTHING(value, factor, type) (value)
#define PL_FINISH_NOTHING(value, a, type) (value)

/* name, stored type, accumulator, combine, load, scale, finish, store */
#define PL_REDUCE_LIST(X)                                                                                              \
    X(float32, float, float, combine_float, PL_AS_IS, PL_SCALE_FLOATS, PL_FINISH_FLOATS, PL_AS_IS)                     \
    X(float64, double, double, combine_double, PL_AS_IS, PL_SCALE_FLOATS, PL_FINISH_FLOATS, PL_AS_IS)                  \
    X(float16, uint16_t, float, combine_float, float_of_half, PL_SCALE_FLOATS, PL_FINISH_FLOATS, half_of_float)        \
    X(bfloat16, uint16_t, float, combine_float, float_of_brain, PL_SCALE_FLOATS, PL_FINISH_FLOATS, brain_of_float)     \
    X(int8, int8_t, int8_t, combine_int8, PL_AS_IS, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)                     \
    X(int16, int16_t, int16_t, combine_int16, PL_AS_IS, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)                 \
    X(int32, int32_t, int32_t, combine_int32, PL_AS_IS, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)                 \
    X(int64, int64_t, int64_t, combine_int64, PL_AS_IS, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)                 \
    X(uint8, uint8_t, uint8_t, combine_uint8, PL_AS_IS, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)                 \
    X(bool, uint8_t, uint8_t, combine_bool, PL_TRUTH, PL_SCALE_NOTHING, PL_FINISH_NOTHING, PL_AS_IS)

/* Reduces `run` (1 or 2) items, PL_THREADS apart; each is one element or 16 bytes of elements. Results stay in
 * registers over all sources. */
#define PL_DEFINE_REDUCE_ITEMS(name, item, elems, sum_type, combine, LOAD, SCALE, FINISH, STORE)                       \
    PL_CODE void load_##name(const struct pl_reduce_args *a, uint32_t k, uint64_t first, const uint32_t run,           \
                             sum_type *to)                                                                             \
    {                                                                                                                  \
        struct item raw[2];                                                                                            \
                                                                                                                       \
        PL_UNROLL for (uint32_t r = 0; r < run; r++)                                                                   \
        {                                                                                                              \
            raw[r] = ((const struct item *)a->source[k])[first + r * PL_THREADS];                                      \
        }                                                                                                              \
        PL_UNROLL for (uint32_t i = 0; i < run * (elems); i++)                                                         \
        {                                                                                                              \
            to[i] = (sum_type)SCALE((sum_type)LOAD(raw[i / (elems)].elem[i % (elems)]), a->pre, sum_type);             \
        }                                                                                                              \
    }                                                                                                                  \
    PL_CODE void reduce_##name(const struct pl_reduce_args *a, uint64_t first, const uint32_t run)                     \
    {                                                                                                                  \
        sum_type sum[2 * (elems)];                                                                                     \
                                                                                                                       \
        load_##name(a, 0, first, run, sum);                                                                            \
        for (uint32_t k = 1; k < a->sources; k++) {                                                                    \
            sum_type next[2 * (elems)];                                                                                \
                                                                                                                       \
            load_##name(a, k, first, run, next);                                                                       \
            PL_UNROLL for (uint32_t i = 0; i < run * (elems); i++)                                                     \
            {                                                                                                          \
                sum[i] = combine(a->op, sum[i], next[i]);                                                              \
            }                                                                                                          \
        }                                                                                                              \
        PL_UNROLL for (uint32_t r = 0; r < run; r++)                                                                   \
        {                                                                                                              \
            struct item raw;                                                                                           \
                                                                                                                       \
            PL_UNROLL for (uint32_t i = 0; i < (elems); i++)                                                           \
            {                                                                                                          \
                raw.elem[i] = STORE(FINISH(sum[r * (elems) + i], a, sum_type));                                        \
            }                                                                                                          \
            ((struct item *)a->dest)[first + r * PL_THREADS] = raw;                                                    \
        }                                                                                                              \
    }

#define PL_DEFINE_REDUCE(name, stored, sum_type, combine, LOAD, SCALE, FINISH, STORE)                                  \
    struct PL_RAW(16) vector_##name {                                                                                  \
        stored elem[16 / sizeof(stored)];                                                                              \
    };                                                                                                                 \
    struct PL_RAW(sizeof(stored)) single_##name {                                                                      \
        stored elem[1];                                                                                                \
    };                                                                                                                 \
    PL_DEFINE_REDUCE_ITEMS(vector_##name, vector_##name, (uint32_t)(16 / sizeof(stored)), sum_type, combine, LOAD,     \
                           SCALE, FINISH, STORE)                                                                       \
    PL_DEFINE_REDUCE_ITEMS(single_##name, single_##name, 1U, sum_type, combine, LOAD, SCALE, FINISH, STORE)            \
    PL_CODE void code_reduce_##name(const struct pl_reduce_args *a, uint32_t block, uint32_t blocks)                   \
    {                                                                                                                  \
        uint64_t vectors = a->vector ? a->count / (16 / sizeof(stored)) : 0;                                           \
        uint64_t stride = (uint64_t)blocks * PL_THREADS;                                                               \
                                                                                                                       \
        PL_EACH_THREAD(thread)                                                                                         \
        {                                                                                                              \
            uint64_t at = (uint64_t)block * 2 * PL_THREADS + thread;                                                   \
                                                                                                                       \
            for (; at + PL_THREADS < vectors; at += 2 * stride) {                                                      \
                reduce_vector_##name(a, at, 2);                                                                        \
            }                                                                                                          \
            if (at < vectors) {                                                                                        \
                reduce_vector_##name(a, at, 1);                                                                        \
            }                                                                                                          \
            at = vectors * (16 / sizeof(stored)) + (uint64_t)block * PL_THREADS + thread;                              \
            for (; at < a->count; at += stride) {                                                                      \
                reduce_single_##name(a, at, 1);                                                                        \
            }                                                                                                          \
        }                                                                                                              \
    }
PL_REDUCE_LIST(PL_DEFINE_REDUCE)

/* ---- integers that are scaled or averaged ---- */

/* dtype, name, C type, lowest, highest */
#define PL_INTEGER_LIST(X)                                                                                             \
    X(PL_INT8, int8, int8_t, INT8_MIN, INT8_MAX)                                                                       \
    X(PL_INT16, int16, int16_t, INT16_MIN, INT16_MAX)                                                                  \
    X(PL_INT32, int32, int32_t, INT32_MIN, INT32_MAX)                                                                  \
    X(PL_INT64, int64, int64_t, INT64_MIN, INT64_MAX)                                                                  \
    X(PL_UINT8, uint8, uint8_t, 0, UINT8_MAX)

PL_CODE int64_t load_integer(uint32_t dtype, const char *source, uint64_t at)
{
    switch (dtype) {
#define PL_LOAD_INTEGER(id, name, type, lowest, highest)                                                               \
    case id:                                                                                                           \
        return ((const struct single_##name *)source)[at].elem[0];
        PL_INTEGER_LIST(PL_LOAD_INTEGER)
#undef PL_LOAD_INTEGER
    default:
        return 0;
    }
}

PL_CODE void store_integer(uint32_t dtype, char *dest, uint64_t at, pl_wide value)
{
    switch (dtype) {
#define PL_STORE_INTEGER(id, name, type, lowest, highest)                                                              \
    case id:                                                                                                           \
        ((struct single_##name *)dest)[at].elem[0] = (type)value;                                                      \
        break;
        PL_INTEGER_LIST(PL_STORE_INTEGER)
#undef PL_STORE_INTEGER
    default:
        break;
    }
}

/* Converts toward zero, saturating; NaN becomes 0. */
PL_CODE int64_t integer_of_double(uint32_t dtype, double value)
{
    int64_t low = 0;
    int64_t high = 0;

    switch (dtype) {
#define PL_INTEGER_RANGE(id, name, type, lowest, highest)                                                              \
    case id:                                                                                                           \
        low = (lowest);                                                                                                \
        high = (highest);                                                                                              \
        break;
        PL_INTEGER_LIST(PL_INTEGER_RANGE)
#undef PL_INTEGER_RANGE
    default:
        break;
    }
    if (isnan(value)) {
        return 0;
    }
    if (value <= (double)low) {
        return low;
    }
    return value >= (double)high ? high : (int64_t)value;
}

PL_CODE pl_wide scaled_integer(const struct pl_reduce_args *a, uint32_t k, uint64_t at)
{
    int64_t value = load_integer(a->dtype, a->source[k], at);

    return a->pre != 1.0 ? integer_of_double(a->dtype, (double)value * a->pre) : value;
}

PL_CODE void code_reduce_integers(const struct pl_reduce_args *a, uint32_t block, uint32_t blocks)
{
    PL_EACH_THREAD(thread)
    {
        for (uint64_t at = (uint64_t)block * PL_THREADS + thread; at < a->count; at += (uint64_t)blocks * PL_THREADS) {
            pl_wide sum = scaled_integer(a, 0, at);

            for (uint32_t k = 1; k < a->sources; k++) {
                sum = combine_wide(a->op, sum, scaled_integer(a, k, at));
            }
            if (a->divisor != 1.0) {
                sum /= (int64_t)a->divisor;
            }
            if (a->post != 1.0) {
                sum = integer_of_double(a->dtype, (double)sum * a->post);
            }
            store_integer(a->dtype, a->dest, at, sum);
        }
    }
}

#endif
