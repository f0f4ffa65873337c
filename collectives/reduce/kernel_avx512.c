/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction kernels for AVX-512. */
#include "collectives/reduce/kernel_tables.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define VECTOR_BYTES 64
#define VECTOR_KERNEL pl_kernel_avx512
#define VECTOR_NAME "avx512"
#include "collectives/reduce/kernel_vector.inc"

/* Loads only the bytes of the part. A wider load may touch the next cache line, which another core may own, even where
 * the mask is off. */
static inline void load_part(char padded[VECTOR_BYTES], const char *at, size_t bytes)
{
    __mmask64 mask = ((__mmask64)1 << bytes) - 1;
    __m512i vector = bytes <= 16   ? _mm512_zextsi128_si512(_mm_maskz_loadu_epi8((__mmask16)mask, at))
                     : bytes <= 32 ? _mm512_zextsi256_si512(_mm256_maskz_loadu_epi8((__mmask32)mask, at))
                                   : _mm512_maskz_loadu_epi8(mask, at);

    _mm512_storeu_si512(padded, vector);
}

static inline bool has_nan(float_vector first, float_vector second)
{
    return _mm512_cmp_ps_mask((__m512)first, (__m512)second, _CMP_UNORD_Q) != 0;
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
