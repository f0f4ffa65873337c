/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Conversions of float16 and bfloat16, in code that is valid C11 and CUDA C++. The conversion to float32 is exact. The
 * conversion from float32 rounds to nearest, ties to even, and a value that is too large becomes infinity. A NaN keeps
 * its sign and the upper bits of its payload, and becomes quiet, as in a CPU's own conversions.
 *
 * Source  IEEE 754-2019, sections 3.6 and 6.2.
 * Test    tests/unit/base/test_half.c
 */
#ifndef PL_BASE_HALF_H
#define PL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PL_HALF_CODE static __device__ __forceinline__
#else
#define PL_HALF_CODE static inline
#endif

PL_HALF_CODE float pl_half_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

PL_HALF_CODE uint32_t pl_half_bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

PL_HALF_CODE float pl_half_float16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 0x1f) {
        return pl_half_float_of_bits(sign | 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000 : 0));
    }
    if (exponent == 0) {
        /* Subnormal: fraction * 2^-24, exact in float32. */
        float magnitude = (float)fraction * 0x1p-24F;

        return sign != 0 ? -magnitude : magnitude;
    }
    return pl_half_float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

PL_HALF_CODE uint16_t pl_half_float16_from_float(float value)
{
    uint32_t bits = pl_half_bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    }
    if (magnitude >= 0x477ff000) {
        return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    }
    if (magnitude < 0x38800000) {
        /* Subnormal result: add 0.5, whose last bit is 2^-24, so that the adder rounds at this bit. */
        float rounded = pl_half_float_of_bits(magnitude) + 0.5F;

        return (uint16_t)(sign | (pl_half_bits_of_float(rounded) - pl_half_bits_of_float(0.5F)));
    }
    magnitude += 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((magnitude - (UINT32_C(112) << 23)) >> 13));
}

PL_HALF_CODE float pl_half_bfloat16_to_float(uint16_t brain)
{
    return pl_half_float_of_bits((uint32_t)brain << 16);
}

PL_HALF_CODE uint16_t pl_half_bfloat16_from_float(float value)
{
    uint32_t bits = pl_half_bits_of_float(value);

    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#endif
