/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in 16 or 8 bits, with error feedback. */
#include "runtime/server/wire.h"

#include "base/knob.h"
#include "base/memory.h"
#include "collectives/reduce/kernel.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, MOST = 127 };

static const char *const names[] = {[PL_SERVER_FLOAT32] = "float32",
                                    [PL_SERVER_FLOAT16] = "float16",
                                    [PL_SERVER_BFLOAT16] = "bfloat16",
                                    [PL_SERVER_INT8] = "int8"};

enum pl_status pl_server_wire_read(const char *text, enum pl_server_wire *ret_wire, struct pl_error *reterr)
{
    enum pl_server_wire wire = PL_SERVER_FLOAT32;

    PL_TRY(*text ? pl_knob_read_word(text, "float16 bfloat16 int8", "ps_wire_type", reterr) : PL_OK);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        wire = strcmp(text, names[i]) == 0 ? (enum pl_server_wire)i : wire;
    }
    *ret_wire = wire;
    return PL_OK;
}

const char *pl_server_wire_name(enum pl_server_wire wire)
{
    return names[wire];
}

uint64_t pl_server_wire_bytes(enum pl_server_wire wire, uint64_t count)
{
    switch (wire) {
    case PL_SERVER_FLOAT32:
        break;
    case PL_SERVER_FLOAT16:
    case PL_SERVER_BFLOAT16:
        return count * sizeof(uint16_t);
    case PL_SERVER_INT8:
        return count + (count + BLOCK - 1) / BLOCK * sizeof(float);
    }
    return count * sizeof(float);
}

static float keep(float rest)
{
    return isfinite(rest) ? rest : 0.0F;
}

/* The scale of a block: NaN where a value is not finite, 0 where all are too small. */
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

/* A block; the residual is the block's values before. */
static void pack_int8(int8_t *packed, float *scale, float *value, uint64_t count)
{
    *scale = scale_of(value, count);
    for (uint64_t i = 0; i < count; i++) {
        float steps = *scale > 0.0F ? value[i] / *scale : 0.0F;
        int whole = (int)(steps + (steps < 0.0F ? -0.5F : 0.5F)); /* NaN is not above 0: 0 */

        whole = whole > MOST ? MOST : whole < -MOST ? -MOST : whole;
        packed[i] = (int8_t)whole;
        value[i] = keep(value[i] - (float)whole * *scale);
    }
}

void pl_server_wire_pack(enum pl_server_wire wire, void *packed, const float *gradient, float *residual, uint64_t count)
{
    const struct pl_kernel *kernel = pl_kernel_best();
    const enum pl_dtype dtype = wire == PL_SERVER_FLOAT16 ? PL_FLOAT16 : PL_BFLOAT16;
    float *scales = packed, value[BLOCK];
    int8_t *bytes = (int8_t *)(scales + (count + BLOCK - 1) / BLOCK);
    uint16_t *halves = packed;

    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint64_t length = count - at < BLOCK ? count - at : BLOCK;

        for (uint64_t i = 0; i < length; i++) {
            residual[at + i] += gradient[at + i];
        }
        if (wire == PL_SERVER_INT8) {
            pack_int8(bytes + at, &scales[at / BLOCK], residual + at, length);
            continue;
        }
        pl_kernel_narrow(kernel, dtype, halves + at, residual + at, length);
        pl_kernel_widen(kernel, dtype, value, halves + at, length);
        for (uint64_t i = 0; i < length; i++) {
            residual[at + i] = keep(residual[at + i] - value[i]);
        }
    }
}

void pl_server_wire_unpack(enum pl_server_wire wire, float *data, const void *packed, uint64_t count)
{
    const float *scales = packed;
    const int8_t *bytes = (const int8_t *)(scales + (count + BLOCK - 1) / BLOCK);

    if (wire != PL_SERVER_INT8) {
        pl_kernel_widen(pl_kernel_best(), wire == PL_SERVER_FLOAT16 ? PL_FLOAT16 : PL_BFLOAT16, data, packed, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        data[i] = (float)bytes[i] * scales[i / BLOCK];
    }
}
