/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives/kernel_tables.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define VECTOR_BYTES 64
#define VECTOR_KERNEL pl_kernel_avx512
#define VECTOR_NAME "avx512"
#include "collectives/kernel_vector.inc"

static inline void vector_stream(char *at, const void *vector)
{
    _mm512_stream_si512((void *)at, _mm512_loadu_si512(vector));
}

static inline void half_stream(char *at, const void *vector)
{
    _mm256_stream_si256((void *)at, _mm256_loadu_si256(vector));
}

static inline float_vector load_half(const char *at)
{
    return (float_vector)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

static inline half_vector store_half(float_vector value)
{
    return (half_vector)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline float_vector load_brain(const char *at)
{
    return (float_vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at)), 16);
}

static inline half_vector store_brain(float_vector value)
{
    __m512i bits = (__m512i)value;
    __m512i high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);

    rounded = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
    return (half_vector)_mm512_cvtepi32_epi16(rounded);
}
