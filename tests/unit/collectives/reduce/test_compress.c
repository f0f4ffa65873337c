/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/reduce/compress.c. */
#include "base/memory.h"
#include "collectives/reduce/compress.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

static const unsigned wires[] = {PL_WIRE_FLOAT16, PL_WIRE_BFLOAT16, PL_WIRE_INT8};
/* half a step of the largest value, which is 0.5 */
static const double half_steps[] = {0.5 / 2048, 0.5 / 256, 0.5 / 254};

static float value_of(int round, uint64_t i)
{
    return (float)((i * 2654435761U + (uint64_t)round * 40503U) % 1009) / 1008.0F - 0.5F;
}

/* With the previous residual in the data, and in a separate array. */
TEST(what_rounding_leaves_is_kept)
{
    static const uint64_t counts[] = {1, 16, 255, 256, 257, 1000};

    for (size_t w = 0; w < PL_ARRAY_ITEMS(wires); w++) {
        for (size_t c = 0; c < 2 * PL_ARRAY_ITEMS(counts); c++) {
            const enum pl_compress_residual use = c % 2 ? PL_COMPRESS_ADD : PL_COMPRESS_REPLACE;
            const uint64_t count = counts[c / 2], bytes = pl_compress_bytes(wires[w], count);
            float data[1000], residual[1000] = {0.0F}, whole[1000], found[1000], packed[1002];

            ck_assert_uint_le(bytes, count * 4 + 4);
            for (int round = 0; round < 3; round++) {
                for (uint64_t i = 0; i < count; i++) {
                    data[i] = value_of(round, i);
                    whole[i] = data[i] + residual[i]; /* the value to send */
                }
                memset((char *)packed + bytes, 0x5a, 4);
                pl_compress_pack(pl_kernel_best(), wires[w], packed, use == PL_COMPRESS_ADD ? data : whole, residual,
                                 use, count);
                ck_assert_int_eq(((char *)packed)[bytes + 3], 0x5a);
                pl_compress_unpack(pl_kernel_best(), wires[w], found, packed, false, count);
                for (uint64_t i = 0; i < count; i++) {
                    ck_assert(data[i] == value_of(round, i));
                    ck_assert_msg(fabs((double)(found[i] + residual[i] - whole[i])) < 1e-6,
                                  "%s, element %d of %d: %g and %g are kept of %g", pl_compress_name(wires[w]), (int)i,
                                  (int)count, (double)found[i], (double)residual[i], (double)whole[i]);
                    ck_assert(fabs((double)residual[i]) <= 1.1 * half_steps[w]);
                }
                pl_compress_unpack(pl_kernel_best(), wires[w], data, packed, true, count);
                for (uint64_t i = 0; i < count; i++) {
                    ck_assert(data[i] == found[i] + value_of(round, i));
                }
            }
        }
    }
}

TEST(without_a_residual_the_same_is_sent_and_nothing_kept)
{
    for (size_t w = 0; w < PL_ARRAY_ITEMS(wires); w++) {
        float data[300], residual[300] = {0.0F}, with[301] = {0.0F}, without[301] = {0.0F};

        for (uint64_t i = 0; i < 300; i++) {
            data[i] = value_of(1, i);
        }
        pl_compress_pack(pl_kernel_best(), wires[w], with, data, residual, PL_COMPRESS_REPLACE, 300);
        pl_compress_pack(pl_kernel_best(), wires[w], without, data, NULL, PL_COMPRESS_REPLACE, 300);
        ck_assert_mem_eq(with, without, pl_compress_bytes(wires[w], 300));
    }
}

TEST(what_is_not_finite_or_very_small_harms_nothing)
{
    for (size_t w = 0; w < PL_ARRAY_ITEMS(wires); w++) {
        float data[300] = {1.0F, NAN, INFINITY}, residual[300] = {0.0F}, found[300], packed[301];

        data[299] = 0.25F; /* in the second block */
        pl_compress_pack(pl_kernel_best(), wires[w], packed, data, residual, PL_COMPRESS_ADD, 300);
        pl_compress_unpack(pl_kernel_best(), wires[w], found, packed, false, 300);
        ck_assert(!isfinite(found[1]) && !isfinite(found[2]) && fabsf(found[299] - 0.25F) < 1e-6F);
        for (int i = 0; i < 300; i++) {
            ck_assert(isfinite(residual[i]));
            data[i] = 1e-44F; /* subnormal */
            residual[i] = 0.0F;
        }
        pl_compress_pack(pl_kernel_best(), wires[w], packed, data, residual, PL_COMPRESS_ADD, 300);
        pl_compress_unpack(pl_kernel_best(), wires[w], found, packed, false, 300);
        for (int i = 0; i < 300; i++) {
            ck_assert_msg(found[i] + residual[i] == data[i], "%s, element %d: %g + %g differ from %g",
                          pl_compress_name(wires[w]), i, (double)found[i], (double)residual[i], (double)data[i]);
        }
    }
}

TEST(types_have_the_names_of_the_settings)
{
    for (size_t w = 0; w < PL_ARRAY_ITEMS(wires); w++) {
        ck_assert_uint_eq(pl_compress_named(pl_compress_name(wires[w])), wires[w]);
    }
    ck_assert_uint_eq(pl_compress_named(""), 0);
    ck_assert_uint_eq(pl_compress_named("int4"), 0);
    ck_assert_str_eq(pl_compress_name(0), "float32");
    ck_assert_ptr_null(pl_compress_name(PL_WIRE_FLOAT16 | PL_WIRE_BFLOAT16));
    ck_assert_uint_eq(pl_compress_bytes(0, 7), 28);
}

UNIT_MAIN("collectives/reduce/compress")
