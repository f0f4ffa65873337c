/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction kernels for NEON, on 64-bit ARM. */
#include "collectives/reduce/kernel_tables.h"

#include <arm_neon.h>
#include <stdbool.h>
#include <string.h>

#define VECTOR_BYTES 16
#define VECTOR_KERNEL pl_kernel_neon
#define VECTOR_NAME "neon"
#include "collectives/reduce/kernel_vector.inc"

static inline void load_part(char padded[VECTOR_BYTES], const char *at, size_t bytes)
{
    memset(padded, 0, VECTOR_BYTES);
    move_part(padded, at, bytes);
}

static inline bool has_nan(float_vector first, float_vector second)
{
    return vmaxvq_u32((uint32x4_t)((first != first) | (second != second))) != 0;
}

static inline float_vector load_half(const char *at)
{
    return (float_vector)vcvt_f32_f16((float16x4_t)(*(const half_vector *)at));
}

static inline half_vector store_half(float_vector value)
{
    return (half_vector)vcvt_f16_f32((float32x4_t)value);
}

static inline float_vector load_brain(const char *at)
{
    return (float_vector)vshll_n_u16((uint16x4_t)(*(const half_vector *)at), 16);
}

static inline half_vector store_brain(float_vector value)
{
    uint32_vector rounded = round_to_upper(value);

    return (half_vector)vshrn_n_u32((uint32x4_t)quiet_nans(rounded, value), 16);
}
