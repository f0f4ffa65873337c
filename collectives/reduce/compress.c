/* SPDX-License-Identifier: Apache-2.0 */
/* float32 in 16 or 8 bits, with error feedback. */
#include "collectives/reduce/compress.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, MOST = 127 };

static const struct {
    unsigned wire;
    const char *name;
} types[] = {{0, "float32"}, {PL_WIRE_FLOAT16, "float16"}, {PL_WIRE_BFLOAT16, "bfloat16"}, {PL_WIRE_INT8, "int8"}};

unsigned pl_compress_named(const char *text)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(types); i++) {
        if (strcmp(text, types[i].name) == 0) {
            return types[i].wire;
        }
    }
    return 0;
}

const char *pl_compress_name(unsigned wire)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(types); i++) {
        if (types[i].wire == wire) {
            return types[i].name;
        }
    }
    return NULL;
}

uint64_t pl_compress_bytes(unsigned wire, uint64_t count)
{
    if (wire == PL_WIRE_INT8) {
        return count + (count + BLOCK - 1) / BLOCK * sizeof(float);
    }
    return count * (wire ? sizeof(uint16_t) : sizeof(float));
}

static enum pl_dtype dtype_of(unsigned wire)
{
    return wire == PL_WIRE_FLOAT16 ? PL_FLOAT16 : PL_BFLOAT16;
}

/* The elements of a packed int8 vector, which follow the scales. */
static int8_t *elements_of(void *packed, uint64_t count)
{
    return (int8_t *)((float *)packed + (count + BLOCK - 1) / BLOCK);
}

/* The scale of a block: NaN if a value is not finite, 0 if all values are too small. */
static float scale_of(const float *value, uint64_t count)
{
    float largest = 0.0F;
    bool is_finite = true;

    for (uint64_t i = 0; i < count; i++) {
        float size = fabsf(value[i]);

        largest = size > largest ? size : largest;
        is_finite = is_finite && isfinite(size);
    }
    return is_finite ? largest / MOST : NAN;
}

/* Packs a block; `sent` gets the values that it unpacks to. */
static void pack_int8(int8_t *packed, float *scale, const float *value, float *sent, uint64_t count)
{
    *scale = scale_of(value, count);
    for (uint64_t i = 0; i < count; i++) {
        float steps = *scale > 0.0F ? value[i] / *scale : 0.0F;
        int whole = (int)(steps + (steps < 0.0F ? -0.5F : 0.5F)); /* if the scale is NaN, `steps` is 0 */

        whole = whole > MOST ? MOST : whole < -MOST ? -MOST : whole;
        packed[i] = (int8_t)whole;
        sent[i] = (float)whole * *scale;
    }
}

void pl_compress_pack(const struct pl_kernel *kernel, unsigned wire, void *packed, const float *data, float *residual,
                      enum pl_compress_residual use, uint64_t count)
{
    int8_t *bytes = elements_of(packed, count);
    uint16_t *halves = packed;
    float sent[BLOCK];

    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t length = count - at < BLOCK ? count - at : BLOCK;
        const float *value = data + at;

        if (residual && use == PL_COMPRESS_ADD) {
            for (uint64_t i = 0; i < length; i++) {
                residual[at + i] += data[at + i];
            }
            value = residual + at;
        }
        if (wire == PL_WIRE_INT8) {
            pack_int8(bytes + at, (float *)packed + at / BLOCK, value, sent, length);
        } else {
            pl_kernel_narrow(kernel, dtype_of(wire), halves + at, value, length);
        }
        if (!residual) {
            continue;
        }
        if (wire != PL_WIRE_INT8) {
            pl_kernel_widen(kernel, dtype_of(wire), sent, halves + at, length);
        }
        for (uint64_t i = 0; i < length; i++) {
            float rest = value[i] - sent[i];

            residual[at + i] = isfinite(rest) ? rest : 0.0F;
        }
    }
}

static void unpack_block(const struct pl_kernel *kernel, unsigned wire, float *data, const void *packed, uint64_t at,
                         uint64_t length, uint64_t count)
{
    const float *scales = packed;
    const int8_t *bytes = (const int8_t *)(scales + (count + BLOCK - 1) / BLOCK);

    if (wire != PL_WIRE_INT8) {
        pl_kernel_widen(kernel, dtype_of(wire), data, (const uint16_t *)packed + at, length);
        return;
    }
    for (uint64_t i = 0; i < length; i++) {
        data[i] = (float)bytes[at + i] * scales[at / BLOCK];
    }
}

void pl_compress_unpack(const struct pl_kernel *kernel, unsigned wire, float *data, const void *packed, bool combine,
                        uint64_t count)
{
    float piece[BLOCK];

    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t length = count - at < BLOCK ? count - at : BLOCK;

        unpack_block(kernel, wire, combine ? piece : data + at, packed, at, length, count);
        for (uint64_t i = 0; combine && i < length; i++) {
            data[at + i] = piece[i] + data[at + i];
        }
    }
}
