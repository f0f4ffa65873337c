/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The code of the kernels, in the common subset of C11 and CUDA C++: kernel_cuda.cu compiles it for devices, the tests
 * for the host, where the threads of a block are a loop. A kernel's body is called once per block, with the number of
 * the block. Work that all threads must finish before any thread continues is in a PL_EACH_THREAD loop of its own,
 * followed by PL_BARRIER().
 *
 *   chunk    PL_CHUNK_ELEMS elements of one tensor, or fewer at its end: the work of a block in one round, for any
 *            sizes of tensors
 *   group    the elements that a thread moves at once: 16 bytes of the wider of the two types
 *
 * Private to device/ and its tests.
 */
#ifndef PL_DEVICE_KERNEL_CODE_H
#define PL_DEVICE_KERNEL_CODE_H

#include "base/half.h"
#include "device/kernel.h"
#include "device/kernel_private.h"

#include <math.h>
#include <stdint.h>

enum { PL_THREADS = 256, PL_CHUNK_ELEMS = 4096, PL_NORM_BLOCKS = PL_DEVICE_NORM_BYTES / 2 / sizeof(double) };

#ifdef __CUDACC__
#define PL_CODE static __device__ __forceinline__
#define PL_SHARED __shared__
#define PL_BARRIER() __syncthreads()
#define PL_EACH_THREAD(thread) for (uint32_t thread = threadIdx.x, thread##_left = 1; thread##_left; thread##_left = 0)
#define PL_GLOBAL(type, pointer) (__builtin_assume(__isGlobal(pointer)), pointer)
#define PL_UNROLL _Pragma("unroll")
#else
#define PL_CODE static inline
#define PL_SHARED
#define PL_BARRIER()
#define PL_EACH_THREAD(thread) for (uint32_t thread = 0; thread < PL_THREADS; thread++)
#define PL_GLOBAL(type, pointer) (pointer)
#define PL_UNROLL
#endif
#define PL_RAW(bytes) __attribute__((aligned(bytes), may_alias)) /* memory that can hold any type */

struct PL_RAW(16) pl_raw16 {
    uint32_t word[4];
};
struct PL_RAW(8) pl_raw8 {
    uint32_t word[2];
};
struct PL_RAW(4) pl_raw4 {
    uint32_t word[1];
};
struct PL_RAW(2) pl_raw2 {
    uint16_t half[1];
};
struct PL_RAW(1) pl_raw1 {
    uint8_t byte[1];
};
typedef double PL_RAW(8) pl_raw_double;
struct PL_RAW(16) pl_raw_doubles {
    double value[2];
};

/* ---- numbers ---- */

PL_CODE bool is_nan_bits(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

/* These use the device's own conversions if it has them; they return the same NaN for every NaN. */
PL_CODE float float_of_half(uint16_t half)
{
#ifdef __CUDACC__
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    return pl_half_float16_to_float(half);
#endif
}

PL_CODE uint16_t half_of_float(float value)
{
#ifdef __CUDACC__
    uint16_t half;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    return is_nan_bits(pl_half_bits_of_float(value)) ? 0x7fff : pl_half_float16_from_float(value);
#endif
}

PL_CODE float float_of_brain(uint16_t brain)
{
    return pl_half_bfloat16_to_float(brain);
}

PL_CODE uint16_t brain_of_float(float value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t brain;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain) : "f"(value));
    return brain;
#else
    return is_nan_bits(pl_half_bits_of_float(value)) ? 0x7fff : pl_half_bfloat16_from_float(value);
#endif
}

PL_CODE float widen(const enum pl_dtype dtype, uint32_t half)
{
    return dtype == PL_FLOAT16 ? float_of_half((uint16_t)half) : float_of_brain((uint16_t)half);
}

PL_CODE uint32_t narrow(const enum pl_dtype dtype, float value)
{
    return dtype == PL_FLOAT16 ? half_of_float(value) : brain_of_float(value);
}

/* ---- groups of elements; dtype and elems are constants wherever these are inlined ---- */

PL_CODE uint32_t bytes_of(const enum pl_dtype dtype)
{
    return dtype == PL_FLOAT64 ? 8 : dtype == PL_FLOAT32 ? 4 : 2;
}

PL_CODE void load_words(const uint32_t words, const char *at, uint32_t *to)
{
    if (words == 4) {
        struct pl_raw16 raw = *(const struct pl_raw16 *)at;

        PL_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            to[i] = raw.word[i];
        }
    } else {
        struct pl_raw8 raw = *(const struct pl_raw8 *)at;

        to[0] = raw.word[0];
        to[1] = raw.word[1];
    }
}

PL_CODE void store_words(const uint32_t words, char *at, const uint32_t *from)
{
    if (words == 4) {
        struct pl_raw16 raw;

        PL_UNROLL for (uint32_t i = 0; i < 4; i++)
        {
            raw.word[i] = from[i];
        }
        *(struct pl_raw16 *)at = raw;
    } else {
        struct pl_raw8 raw;

        raw.word[0] = from[0];
        raw.word[1] = from[1];
        *(struct pl_raw8 *)at = raw;
    }
}

PL_CODE float load_float(const enum pl_dtype dtype, const char *at)
{
    return dtype == PL_FLOAT32 ? pl_half_float_of_bits(((const struct pl_raw4 *)at)->word[0])
                               : widen(dtype, ((const struct pl_raw2 *)at)->half[0]);
}

PL_CODE void store_float(const enum pl_dtype dtype, char *at, float value)
{
    if (dtype == PL_FLOAT32) {
        ((struct pl_raw4 *)at)->word[0] = pl_half_bits_of_float(value);
    } else {
        ((struct pl_raw2 *)at)->half[0] = (uint16_t)narrow(dtype, value);
    }
}

/* Loads `elems` neighbours, 4 or 8, in one or two accesses of 8 or 16 bytes. */
PL_CODE void load_floats(const enum pl_dtype dtype, const uint32_t elems, const char *at, float *to)
{
    uint32_t word[4];

    load_words(elems * bytes_of(dtype) / 4, at, word);
    PL_UNROLL for (uint32_t i = 0; i < elems; i++)
    {
        to[i] = dtype == PL_FLOAT32 ? pl_half_float_of_bits(word[i & 3])
                                    : widen(dtype, word[i / 2] >> (i % 2 * 16) & 0xffff);
    }
}

PL_CODE void store_floats(const enum pl_dtype dtype, const uint32_t elems, char *at, const float *from)
{
    uint32_t word[4] = {0, 0, 0, 0};

    PL_UNROLL for (uint32_t i = 0; i < elems; i++)
    {
        if (dtype == PL_FLOAT32) {
            word[i & 3] = pl_half_bits_of_float(from[i]);
        } else {
            word[i / 2] |= narrow(dtype, from[i]) << (i % 2 * 16);
        }
    }
    store_words(elems * bytes_of(dtype) / 4, at, word);
}

#endif
