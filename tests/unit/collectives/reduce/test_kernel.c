/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/reduce/kernel.c, collectives/reduce/kernel_plain.c, collectives/reduce/kernel_vector.inc. */
/**
 * Every kernel table against the plain one over random types, lengths, alignments and values; the plain one against
 * known results.
 */
#include "collectives/reduce/kernel.h"

#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

enum { MAX_SOURCES = 6, MAX_ELEMS = 1500, MAX_DESTS = 3, ROOM_BYTES = (MAX_ELEMS + 16) * 8 + 128 };

static uint64_t random_state = 88172645463325252ULL;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t random_below(uint32_t limit)
{
    return (uint32_t)((random_next() >> 20) % limit);
}

/* Random bits make NaNs, infinities, subnormals and zeros of both signs; most elements are ordinary numbers. */
static void fill(enum pl_dtype dtype, unsigned char *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_next();
        float small = (float)(int64_t)(bits % 2001) / 8.0F - 125.0F;
        double small_double = (double)small * 1.1;

        if (random_below(4) == 0) {
            static const uint64_t special[] = {
                0, UINT64_C(0x8000000000000000), UINT64_C(0x7c007c007c007c00), UINT64_C(0x7f8000007f800000),
                1, UINT64_C(0x80018001),         UINT64_C(0xff807f81ff807f80)};

            bits = random_below(2) == 0 ? bits : special[random_below(7)];
        } else if (dtype == PL_FLOAT32) {
            memcpy(&bits, &small, sizeof(small));
        } else if (dtype == PL_FLOAT64) {
            memcpy(&bits, &small_double, sizeof(small_double));
        } else if (dtype == PL_BFLOAT16) {
            bits = (bits & 0x8fff) | 0x3000;
        } else if (dtype == PL_FLOAT16) {
            bits = (bits & 0xbfff);
        }
        memcpy(at + i * pl_dtype_bytes(dtype), &bits, pl_dtype_bytes(dtype));
    }
}

static bool is_nan(enum pl_dtype dtype, const unsigned char *at)
{
    uint16_t half;
    float single;
    double twice;

    switch ((int)dtype) {
    case PL_FLOAT32:
        memcpy(&single, at, sizeof(single));
        return isnan(single);
    case PL_FLOAT64:
        memcpy(&twice, at, sizeof(twice));
        return isnan(twice);
    case PL_FLOAT16:
        memcpy(&half, at, sizeof(half));
        return (half & 0x7fff) > 0x7c00;
    case PL_BFLOAT16:
        memcpy(&half, at, sizeof(half));
        return (half & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

enum { PLAIN, AVX2, AVX512, NEON, TABLES };

/* The table; NULL if this processor lacks its instructions. */
static const struct pl_kernel *table(int which)
{
    static const char *const names[] = {[PLAIN] = "plain", [AVX2] = "avx2", [AVX512] = "avx512", [NEON] = "neon"};

    return pl_kernel_named(names[which]);
}

static unsigned char sources[MAX_SOURCES][ROOM_BYTES];
static unsigned char expected[MAX_DESTS][ROOM_BYTES];
static unsigned char found[MAX_DESTS][ROOM_BYTES];

static void compare_once(const struct pl_kernel *kernel)
{
    static const double scales[] = {1, 1, 1, 0.5, 1.0 / 3, -2.75, 1e30};
    struct pl_reduction reduction = {
        .dtype = (enum pl_dtype)random_below(PL_DTYPE_COUNT),
        .op = (enum pl_op)random_below(PL_ADASUM),
        .divisor = random_below(3) == 0 ? 1 + random_below(7) : 1,
        .prescale = scales[random_below(7)],
        .postscale = scales[random_below(7)],
        .store = (enum pl_kernel_store)random_below(2),
    };
    size_t bytes_each = pl_dtype_bytes(reduction.dtype);
    uint32_t count = random_below(random_below(2) == 0 ? 70 : MAX_ELEMS);
    uint32_t source_count = 1 + random_below(MAX_SOURCES);
    uint32_t dest_count = 1 + random_below(MAX_DESTS);
    bool aligned = random_below(2) == 0;
    bool in_place = random_below(3) == 0;
    const void *source[MAX_SOURCES];
    void *dest[MAX_DESTS];
    void *reference[MAX_DESTS];

    for (uint32_t k = 0; k < source_count; k++) {
        size_t offset = random_below(aligned ? 2 : 64) * bytes_each % 64;

        source[k] = sources[k] + offset;
        fill(reduction.dtype, sources[k] + offset, count);
    }
    for (uint32_t j = 0; j < dest_count; j++) {
        size_t offset = aligned ? 64 - (uintptr_t)found[j] % 64 : random_below(64);

        memset(found[j], 0xa5, ROOM_BYTES);
        memset(expected[j], 0xa5, ROOM_BYTES);
        dest[j] = found[j] + offset;
        reference[j] = expected[j] + offset;
    }
    if (in_place) {
        memcpy(dest[0], source[0], count * bytes_each);
        source[0] = dest[0];
    }
    pl_kernel_reduce(pl_kernel_named("plain"), &reduction, reference, dest_count, source, source_count, count);
    pl_kernel_reduce(kernel, &reduction, dest, dest_count, source, source_count, count);
    for (uint32_t j = 0; j < dest_count; j++) {
        if (memcmp(found[j], expected[j], ROOM_BYTES) == 0) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            const unsigned char *a = (unsigned char *)dest[j] + i * bytes_each;
            const unsigned char *b = (unsigned char *)reference[j] + i * bytes_each;

            if (is_nan(reduction.dtype, a) && is_nan(reduction.dtype, b)) {
                memcpy((unsigned char *)dest[j] + i * bytes_each, b, bytes_each);
            }
        }
        ck_assert_msg(memcmp(found[j], expected[j], ROOM_BYTES) == 0,
                      "%s differs: %s %s, %u sources, %u elements, divisor %d, scales %g %g, store %d", kernel->name,
                      pl_dtype_text(reduction.dtype), pl_op_text(reduction.op), source_count, count,
                      (int)reduction.divisor, reduction.prescale, reduction.postscale, (int)reduction.store);
    }
}

TEST(vector_kernels_give_the_bits_of_the_plain_one)
{
    for (int which = AVX2; which < TABLES; which++) {
        const struct pl_kernel *kernel = table(which);

        for (int i = 0; kernel && i < 8000; i++) {
            compare_once(kernel);
        }
    }
}

TEST(casts_agree_on_all_16_bit_values_and_random_floats)
{
    static uint16_t halves[65536];
    static float wide[2][65536];
    static uint16_t narrow[2][65536];
    static const enum pl_dtype types[] = {PL_FLOAT16, PL_BFLOAT16};

    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
    }
    for (int which = 2 * AVX2; which < 2 * TABLES; which++) {
        const struct pl_kernel *kernel = table(which / 2);
        enum pl_dtype dtype = types[which % 2];

        if (!kernel) {
            continue;
        }
        pl_kernel_widen(pl_kernel_named("plain"), dtype, wide[0], halves, 65536);
        pl_kernel_widen(kernel, dtype, wide[1], halves, 65536);
        ck_assert(memcmp(wide[0], wide[1], sizeof(wide[0])) == 0);
        pl_kernel_narrow(kernel, dtype, narrow[0], wide[0], 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            uint32_t quiet = dtype == PL_FLOAT16 ? 0x200 : 0x40;

            ck_assert_uint_eq(narrow[0][i], is_nan(dtype, (unsigned char *)&halves[i]) ? halves[i] | quiet : halves[i]);
        }
        for (int round = 0; round < 20; round++) {
            for (uint32_t i = 0; i < 65536; i++) {
                uint32_t bits = (uint32_t)random_next();

                /* Half of them are near a float16 tie, where rounding fails first. */
                bits = i % 2 == 0 ? bits : (bits & 0x8fffe000) | 0x30001000 | (bits & 1);
                memcpy(&wide[0][i], &bits, sizeof(bits));
            }
            pl_kernel_narrow(pl_kernel_named("plain"), dtype, narrow[0], wide[0], 65536);
            pl_kernel_narrow(kernel, dtype, narrow[1], wide[0], 65536);
            ck_assert(memcmp(narrow[0], narrow[1], sizeof(narrow[0])) == 0);
        }
    }
}

TEST(copies_move_every_byte_and_no_other)
{
    for (int i = 0; i < 1000 * TABLES; i++) {
        const struct pl_kernel *kernel = table(i % TABLES);
        size_t from = random_below(64);
        size_t to = random_below(64);
        size_t bytes = random_below(4000);

        if (!kernel) {
            continue;
        }
        fill(PL_INT8, sources[0], 4200);
        memset(found[0], 0xa5, 4200);
        memset(expected[0], 0xa5, 4200);
        memcpy(expected[0] + to, sources[0] + from, bytes);
        pl_kernel_copy(kernel, found[0] + to, sources[0] + from, bytes, (enum pl_kernel_store)random_below(3));
        ck_assert(memcmp(found[0], expected[0], 4200) == 0);
    }
}

#define REDUCE(kernel, type, dtype_, op_, divisor_, ret, ...)                                                          \
    do {                                                                                                               \
        const type values[] = {__VA_ARGS__};                                                                           \
        const void *from[16];                                                                                          \
        void *to[] = {(ret)};                                                                                          \
        struct pl_reduction rule = {                                                                                   \
            .dtype = (dtype_), .op = (op_), .divisor = (divisor_), .prescale = 1, .postscale = 1};                     \
                                                                                                                       \
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {                                              \
            from[v] = &values[v];                                                                                      \
        }                                                                                                              \
        pl_kernel_reduce((kernel), &rule, to, 1, from, (uint32_t)(sizeof(values) / sizeof(values[0])), 1);             \
    } while (0)

TEST(known_answers_hold_on_every_table)
{
    for (int i = PLAIN; i < TABLES; i++) {
        const struct pl_kernel *kernel = table(i);
        float single;
        uint16_t half;
        int8_t tiny;
        int64_t large;
        uint8_t truth;

        if (!kernel) {
            continue;
        }
        REDUCE(kernel, float, PL_FLOAT32, PL_SUM, 1, &single, 1e8F, 1.0F, -1e8F);
        ck_assert(single == 0); /* rank order: 1e8 + 1 rounds to 1e8 */
        REDUCE(kernel, float, PL_FLOAT32, PL_AVERAGE, 3, &single, 0.1F, 0.1F, 0.1F);
        ck_assert(single == (0.1F + 0.1F + 0.1F) / 3);
        REDUCE(kernel, float, PL_FLOAT32, PL_MAX, 1, &single, 1.0F, NAN, 2.0F);
        ck_assert(isnan(single));
        REDUCE(kernel, float, PL_FLOAT32, PL_MIN, 1, &single, 1.0F, 2.0F, NAN);
        ck_assert(isnan(single));
        REDUCE(kernel, float, PL_FLOAT32, PL_MIN, 1, &single, 0.0F, -0.0F);
        ck_assert(signbit(single));
        REDUCE(kernel, float, PL_FLOAT32, PL_MIN, 1, &single, -0.0F, 0.0F);
        ck_assert(signbit(single));
        REDUCE(kernel, float, PL_FLOAT32, PL_MAX, 1, &single, 0.0F, -0.0F);
        ck_assert(!signbit(single));
        REDUCE(kernel, float, PL_FLOAT32, PL_MAX, 1, &single, -0.0F, 0.0F);
        ck_assert(!signbit(single));
        /* 60000 + 60000 does not fit in float16, their average does. */
        REDUCE(kernel, uint16_t, PL_FLOAT16, PL_AVERAGE, 2, &half, 0x7b53, 0x7b53);
        ck_assert_uint_eq(half, 0x7b53);
        /* 2048 + 1 + 1: rounding to float16 in between would lose both ones. */
        REDUCE(kernel, uint16_t, PL_FLOAT16, PL_SUM, 1, &half, 0x6800, 0x3c00, 0x3c00);
        ck_assert_uint_eq(half, 0x6801);
        /* 256 + 1 + 1 in bfloat16 */
        REDUCE(kernel, uint16_t, PL_BFLOAT16, PL_SUM, 1, &half, 0x4380, 0x3f80, 0x3f80);
        ck_assert_uint_eq(half, 0x4381);
        REDUCE(kernel, int8_t, PL_INT8, PL_AVERAGE, 2, &tiny, 127, 126);
        ck_assert_int_eq(tiny, 126);
        REDUCE(kernel, int8_t, PL_INT8, PL_AVERAGE, 2, &tiny, -127, -126);
        ck_assert_int_eq(tiny, -126);
        REDUCE(kernel, int8_t, PL_INT8, PL_SUM, 1, &tiny, 127, 1);
        ck_assert_int_eq(tiny, -128);
        REDUCE(kernel, int64_t, PL_INT64, PL_AVERAGE, 2, &large, INT64_MAX, INT64_MAX);
        ck_assert_int_eq(large, INT64_MAX);
        REDUCE(kernel, int64_t, PL_INT64, PL_PRODUCT, 1, &large, INT64_C(1) << 40, INT64_C(3) << 30);
        ck_assert_int_eq(large, 0);
        REDUCE(kernel, uint8_t, PL_BOOL, PL_SUM, 1, &truth, 2, 0, 0);
        ck_assert_uint_eq(truth, 1);
        REDUCE(kernel, uint8_t, PL_BOOL, PL_PRODUCT, 1, &truth, 2, 1, 4);
        ck_assert_uint_eq(truth, 1);
        REDUCE(kernel, uint8_t, PL_BOOL, PL_MIN, 1, &truth, 2, 0, 4);
        ck_assert_uint_eq(truth, 0);
    }
}

TEST(scaled_integers_truncate_and_saturate)
{
    for (int i = PLAIN; i < TABLES; i++) {
        const struct pl_kernel *kernel = table(i);
        int32_t values[2] = {-7, 2000000000};
        const void *first = &values[0];
        const void *second = &values[1];
        int32_t result;
        void *to = &result;
        struct pl_reduction rule = {.dtype = PL_INT32, .op = PL_SUM, .divisor = 1, .prescale = 0.5, .postscale = 1};

        if (!kernel) {
            continue;
        }
        pl_kernel_reduce(kernel, &rule, &to, 1, &first, 1, 1);
        ck_assert_int_eq(result, -3);
        rule.prescale = 1;
        rule.postscale = 2;
        pl_kernel_reduce(kernel, &rule, &to, 1, &second, 1, 1);
        ck_assert_int_eq(result, INT32_MAX);
    }
}

TEST(names_choose_tables)
{
    ck_assert_ptr_nonnull(table(PLAIN));
#ifdef __aarch64__
    ck_assert_ptr_nonnull(table(NEON)); /* part of the architecture */
#endif
    ck_assert_ptr_eq(pl_kernel_named("auto"), pl_kernel_best());
    ck_assert_ptr_null(pl_kernel_named("mmx"));
}

UNIT_MAIN("collectives/kernel")
