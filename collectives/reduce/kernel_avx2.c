/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction kernels for AVX2. */
#include "collectives/reduce/kernel_tables.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define VECTOR_BYTES 32
#define VECTOR_KERNEL pl_kernel_avx2
#define VECTOR_NAME "avx2"
#include "collectives/reduce/kernel_vector.inc"

static inline void load_part(char padded[VECTOR_BYTES], const char *at, size_t bytes)
{
    memset(padded, 0, VECTOR_BYTES);
    move_part(padded, at, bytes);
}

static inline bool has_nan(float_vector first, float_vector second)
{
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)first, (__m256)second, _CMP_UNORD_Q)) != 0;
}

static inline float_vector load_half(const char *at)
{
    return (float_vector)_mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
}

static inline half_vector store_half(float_vector value)
{
    return (half_vector)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}

static inline float_vector load_brain(const char *at)
{
    return (float_vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at)), 16);
}

static inline half_vector store_brain(float_vector value)
{
    __m256i bits = (__m256i)value;
    __m256i high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i nan = (__m256i)_mm256_cmp_ps((__m256)value, (__m256)value, _CMP_UNORD_Q);

    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    return (half_vector)_mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
