/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/half.h, base/dtype.c. */
#include "base/dtype.h"
#include "base/half.h"
#include "base/random.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdbool.h>

/* A type by its definition: `fraction_bits` bits of fraction, and exponents with the bias `bias`. */
struct format {
    int fraction_bits;
    int bias;
    uint16_t infinity;
    float (*to_float)(uint16_t bits);
    uint16_t (*from_float)(float value);
};

static const struct format formats[] = {
    {10, 15, 0x7c00, pl_half_float16_to_float, pl_half_float16_from_float},
    {7, 127, 0x7f80, pl_half_bfloat16_to_float, pl_half_bfloat16_from_float},
};

/* Returns the number that `bits` stand for; they are finite and have no sign. For infinity it returns the number that
 * would follow the largest one. */
static double number_of(const struct format *format, uint16_t bits)
{
    int exponent = bits >> format->fraction_bits;
    int fraction = bits & ((1 << format->fraction_bits) - 1);
    int whole = exponent ? fraction + (1 << format->fraction_bits) : fraction;

    return ldexp(whole, (exponent ? exponent : 1) - format->bias - format->fraction_bits);
}

TEST(every_number_is_exact_in_float32_and_comes_back)
{
    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        const struct format *format = &formats[f];

        for (unsigned bits = 0; bits < format->infinity; bits++) {
            float value = format->to_float((uint16_t)bits);

            ck_assert(!signbit(value) && (double)value == number_of(format, (uint16_t)bits));
            ck_assert_uint_eq(format->from_float(value), bits);
            ck_assert(pl_half_bits_of_float(format->to_float((uint16_t)(bits | 0x8000))) ==
                      pl_half_bits_of_float(-value));
            ck_assert_uint_eq(format->from_float(-value), bits | 0x8000);
        }
        ck_assert(isinf(format->to_float(format->infinity)) && format->to_float(format->infinity) > 0);
        ck_assert_uint_eq(format->from_float(INFINITY), format->infinity);
        ck_assert_uint_eq(format->from_float(-INFINITY), format->infinity | 0x8000);
    }
}

/* Returns the nearest number to `value`, which is at least 0; if two are equally near, the one with an even last
 * bit. */
static uint16_t nearest(const struct format *format, float value)
{
    unsigned low = 0, high = format->infinity;

    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        *(number_of(format, (uint16_t)middle) <= (double)value ? &low : &high) = middle;
    }
    double below = (double)value - number_of(format, (uint16_t)low);
    double above = number_of(format, (uint16_t)high) - (double)value;

    return (uint16_t)(below < above || (below == above && low % 2 == 0) ? low : high);
}

TEST(what_lies_between_rounds_to_the_nearest_and_ties_to_even)
{
    uint64_t random = 28;

    for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
        const struct format *format = &formats[f];

        for (unsigned bits = 0; bits < format->infinity; bits++) {
            float middle = (float)(number_of(format, (uint16_t)bits) / 2 + number_of(format, (uint16_t)(bits + 1)) / 2);

            ck_assert_uint_eq(format->from_float(middle), bits + bits % 2);
            ck_assert_uint_eq(format->from_float(nextafterf(middle, 0)), bits);
            ck_assert_uint_eq(format->from_float(nextafterf(middle, INFINITY)), bits + 1);
        }
        for (int i = 0; i < 20000; i++) {
            float value = pl_half_float_of_bits((uint32_t)(pl_random_next(&random) % 0x7f800000));

            ck_assert_uint_eq(format->from_float(value), nearest(format, value));
            ck_assert_uint_eq(format->from_float(-value), nearest(format, value) | 0x8000);
        }
    }
}

TEST(a_nan_stays_one_with_its_sign_and_upper_bits_and_is_quiet)
{
    ck_assert_uint_eq(pl_half_float16_from_float(pl_half_float_of_bits(0x7fc00000)), 0x7e00);
    ck_assert_uint_eq(pl_half_float16_from_float(pl_half_float_of_bits(0xff802000)), 0xfe01);
    ck_assert_uint_eq(pl_half_float16_from_float(pl_half_float_of_bits(0x7f800001)), 0x7e00);
    ck_assert_uint_eq(pl_half_bfloat16_from_float(pl_half_float_of_bits(0xffc00000)), 0xffc0);
    ck_assert_uint_eq(pl_half_bfloat16_from_float(pl_half_float_of_bits(0x7f800001)), 0x7fc0);
    ck_assert(isnan(pl_half_float16_to_float(0x7c01)) && isnan(pl_half_bfloat16_to_float(0x7f81)));
    ck_assert_uint_eq(pl_half_bits_of_float(pl_half_float16_to_float(0xfe01)), 0xffc02000);
}

TEST(every_type_is_found_by_its_text)
{
    for (unsigned i = 0; i < PL_DTYPE_COUNT; i++) {
        enum pl_dtype found = PL_DTYPE_COUNT;

        ck_assert(pl_dtype_find(pl_dtype_text((enum pl_dtype)i), &found));
        ck_assert_uint_eq(found, i);
        ck_assert_uint_gt(pl_dtype_bytes(found), 0);
    }
    ck_assert_uint_eq(pl_dtype_bytes(PL_DTYPE_COUNT), 0);
}

UNIT_MAIN("base/half")
