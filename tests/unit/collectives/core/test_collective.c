/* SPDX-License-Identifier: Apache-2.0 */
/* Covers collectives/p2p/p2p.c, collectives/p2p/residuals.c, collectives/hier/hier.c, collectives/shm/run.c,
 * collectives/backends.c. */
/* The promised bits: equal on all ranks, in each run and for every layout; averages, NaN, scales, compression. */
#include "collectives/reduce/kernel.h"
#include "collectives/world.h"

#include "base/knob.h"
#include "collectives/world_private.h"
#include "tests/support/ranks.h"
#include "tests/support/unit.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { COUNT = 30011 };

static void set_knob(struct pl_knobs *knobs, enum pl_knob knob, const char *text)
{
    ck_ok(pl_knob_set, knobs, knob, text, "test");
}

/* Numbers whose sums are rounded: every order of addition gives different bits. */
static float rough(int rank, int i)
{
    return sinf((float)(rank * 131 + i) * 0.7F) * powf(10.0F, (float)((rank * 7 + i) % 9 - 4));
}

struct bits {
    unsigned flags;
    uint64_t few; /* number of elements; 0: COUNT */
    float results[8][COUNT];
};

static void sum_rough(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    struct bits *bits = argument;
    int rank = pl_world_rank(world);
    float *result = bits->results[rank];

    for (int i = 0; i < COUNT; i++) {
        result[i] = rough(rank, i);
    }
    RANKS_OK(pl_collective_run(world,
                               &((struct pl_collective){.kind = PL_ALLREDUCE,
                                                        .flags = bits->flags,
                                                        .count = bits->few ? bits->few : COUNT,
                                                        .send = result,
                                                        .recv = result}),
                               &error));
}

static void need_equal_ranks(const struct bits *bits, int size)
{
    size_t bytes = (bits->few ? bits->few : COUNT) * sizeof(float);

    for (int r = 1; r < size; r++) {
        ck_assert_msg(memcmp(bits->results[0], bits->results[r], bytes) == 0,
                      "ranks 0 and %d of %d have different bits", r, size);
    }
}

TEST(all_ranks_get_equal_bits_and_runs_repeat_them)
{
    static const char *const algorithms[] = {"", "ring", "halving", "doubling", "tree", "direct"};
    /* ranks, ranks per host */
    static const int layouts[][2] = {{4, 1}, {4, 2}, {5, 1}, {5, 3}, {6, 3}, {7, 2}, {8, 2}, {8, 4}};
    struct bits *first = calloc(1, sizeof(*first));
    struct bits *second = calloc(1, sizeof(*second));

    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        for (int size = 3; size <= 4; size++) {
            struct pl_knobs knobs;
            struct pl_world_options options = {.knobs = &knobs, .pretend_ranks_per_host = size == 4 ? 2 : 1};

            pl_knobs_default(&knobs);
            set_knob(&knobs, PL_KNOB_ALGORITHM, algorithms[i]);
            ck_assert_ranks(size, &options, sum_rough, first);
            ck_assert_ranks(size, &options, sum_rough, second);
            need_equal_ranks(first, size);
            ck_assert_int_eq(memcmp(first->results[0], second->results[0], sizeof(first->results[0])), 0);
        }
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) { /* small sums */
        struct pl_world_options options = {.pretend_ranks_per_host = layouts[i][1]};

        first->few = second->few = 1000;
        ck_assert_ranks(layouts[i][0], &options, sum_rough, first);
        ck_assert_ranks(layouts[i][0], &options, sum_rough, second);
        need_equal_ranks(first, layouts[i][0]);
        ck_assert_int_eq(memcmp(first->results[0], second->results[0], sizeof(first->results[0])), 0);
    }
    first->few = second->few = 0;
    for (int size = 2; size <= 4; size++) { /* on one host */
        ck_assert_ranks(size, NULL, sum_rough, first);
        ck_assert_ranks(size, NULL, sum_rough, second);
        need_equal_ranks(first, size);
        ck_assert_int_eq(memcmp(first->results[0], second->results[0], sizeof(first->results[0])), 0);
    }
    free(first);
    free(second);
}

TEST(reproducible_gives_the_same_bits_on_every_layout)
{
    static const int per_host[] = {0, 1, 2, 3, 4};
    struct bits *bits = calloc(1, sizeof(*bits));
    float *expected = malloc(sizeof(bits->results[0]));

    for (int i = 0; i < COUNT; i++) {
        expected[i] = rough(0, i);
        for (int r = 1; r < 6; r++) {
            expected[i] += rough(r, i); /* the promised order */
        }
    }
    bits->flags = PL_REPRODUCIBLE;
    for (size_t i = 0; i < sizeof(per_host) / sizeof(per_host[0]); i++) {
        ck_assert_ranks(6, &((struct pl_world_options){.pretend_ranks_per_host = per_host[i]}), sum_rough, bits);
        need_equal_ranks(bits, 6);
        ck_assert_msg(memcmp(bits->results[0], expected, sizeof(bits->results[0])) == 0,
                      "different bits with %d ranks per host", per_host[i]);
    }
    free(expected);
    free(bits);
}

static const struct pl_world_options layouts[] = {
    {.pretend_ranks_per_host = 0}, {.pretend_ranks_per_host = 1}, {.pretend_ranks_per_host = 2}};

static void on_layouts(ranks_function *function, void *argument)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        ck_assert_ranks(3, &layouts[i], function, argument);
        ck_assert_ranks(4, &layouts[i], function, argument);
    }
}

static void average_integers(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    uint64_t count = *(const uint64_t *)argument;
    int n = pl_world_size(world);
    int rank = pl_world_rank(world);
    int64_t *wide = calloc(count, sizeof(*wide));
    int8_t *narrow = calloc(count, sizeof(*narrow));
    int64_t sum = 0;
    int64_t expected;

    for (uint64_t i = 0; i < count; i++) {
        wide[i] = INT64_MAX - rank; /* the sum needs 66 bits */
        narrow[i] = (int8_t)(rank == 0 ? -127 : -128 + rank);
    }
    for (int r = 0; r < n; r++) {
        sum += r == 0 ? -127 : -128 + r;
    }
    expected = INT64_MAX - (n - 1) / 2 - ((n - 1) % 2 ? 1 : 0); /* (n-1)/2 below the maximum, truncated toward zero */
    {
        struct pl_error error = PL_ERROR_NONE;
        bool good = pl_allreduce(world, wide, wide, count, PL_INT64, PL_AVERAGE, &error) == PL_OK &&
                    pl_allreduce(world, narrow, narrow, count, PL_INT8, PL_AVERAGE, &error) == PL_OK;

        if (!good) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
        }
        for (uint64_t i = 0; good && i < count; i++) {
            if (wide[i] != expected || narrow[i] != (int8_t)(sum / n)) {
                snprintf(failure, RANKS_TEXT_BYTES, "element %llu: %lld, not %lld; %d, not %d", (unsigned long long)i,
                         (long long)wide[i], (long long)expected, narrow[i], (int)(sum / n));
                good = false;
            }
        }
    }
    free(wide);
    free(narrow);
}

/* Sums of 49 times a number that double cannot hold, and of 49: multiplied by 1/49 they would be too small. */
static void divide_integers(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const int64_t quotient = (INT64_C(1) << 56) + 1;
    uint64_t count = *(const uint64_t *)argument;
    int n = pl_world_size(world);
    int rank = pl_world_rank(world);
    int64_t *wide = calloc(count, sizeof(*wide));
    int8_t *narrow = calloc(count, sizeof(*narrow));
    struct pl_collective c = {.kind = PL_ALLREDUCE, .op = PL_AVERAGE, .divisor = 49, .count = count};
    struct pl_error error = PL_ERROR_NONE;
    bool good;

    for (uint64_t i = 0; i < count; i++) {
        wide[i] = rank == 0 ? -49 * quotient + n - 1 : -1;
        narrow[i] = (int8_t)(rank == 0 ? 49 - (n - 1) : 1);
    }
    c.dtype = PL_INT64;
    c.send = c.recv = wide;
    good = pl_collective_run(world, &c, &error) == PL_OK;
    c.dtype = PL_INT8;
    c.send = c.recv = narrow;
    good = good && pl_collective_run(world, &c, &error) == PL_OK;
    if (!good) {
        snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
    }
    for (uint64_t i = 0; good && i < count; i++) {
        good = wide[i] == -quotient && narrow[i] == 1;
        if (!good) {
            snprintf(failure, RANKS_TEXT_BYTES, "element %llu: %lld and %d", (unsigned long long)i, (long long)wide[i],
                     narrow[i]);
        }
    }
    free(wide);
    free(narrow);
}

TEST(integer_averages_are_exact_and_cut_toward_zero)
{
    on_layouts(average_integers, &(uint64_t){7});
    on_layouts(average_integers, &(uint64_t){20000});
    on_layouts(divide_integers, &(uint64_t){7});
    on_layouts(divide_integers, &(uint64_t){20000});
    ck_assert_ranks(1, NULL, divide_integers, &(uint64_t){7});
}

static void average_halves(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    uint64_t count = *(const uint64_t *)argument;
    uint16_t *halves = calloc(count, sizeof(*halves));
    struct pl_error error = PL_ERROR_NONE;

    for (uint64_t i = 0; i < count; i++) {
        halves[i] = 0x7bff; /* 65504, the largest float16 */
    }
    if (pl_allreduce(world, halves, halves, count, PL_FLOAT16, PL_AVERAGE, &error) != PL_OK) {
        snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
    }
    for (uint64_t i = 0; !failure[0] && i < count; i++) {
        if (halves[i] < 0x7bfe || halves[i] > 0x7bff) { /* between hosts the last bit may be rounded */
            snprintf(failure, RANKS_TEXT_BYTES, "element %llu is %#x", (unsigned long long)i, halves[i]);
        }
    }
    free(halves);
}

TEST(half_precision_averages_do_not_overflow)
{
    on_layouts(average_halves, &(uint64_t){9});
    on_layouts(average_halves, &(uint64_t){40000});
    ck_assert_ranks(18, &layouts[1], average_halves, &(uint64_t){1000}); /* too many ranks for the direct algorithm */
}

static void spread_nan(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    uint64_t count = *(const uint64_t *)argument;
    float *values = calloc(count, sizeof(*values));
    struct pl_error error = PL_ERROR_NONE;

    for (int op = PL_SUM; op <= PL_PRODUCT && !failure[0]; op++) {
        for (uint64_t i = 0; i < count; i++) {
            values[i] = (int)(i % (uint64_t)pl_world_size(world)) == pl_world_rank(world) && i % 2 ? NAN : 1.0F;
        }
        if (pl_allreduce(world, values, values, count, PL_FLOAT32, (enum pl_op)op, &error) != PL_OK) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
        }
        for (uint64_t i = 0; !failure[0] && i < count; i++) {
            if (!isnan(values[i]) != !(i % 2)) {
                snprintf(failure, RANKS_TEXT_BYTES, "%s: element %llu is %g", pl_op_text((enum pl_op)op),
                         (unsigned long long)i, (double)values[i]);
            }
        }
    }
    free(values);
}

TEST(a_nan_from_any_rank_is_a_nan_on_every_rank)
{
    on_layouts(spread_nan, &(uint64_t){40});
    on_layouts(spread_nan, &(uint64_t){30000});
}

struct scaling {
    enum pl_kind kind; /* PL_REDUCE_SCATTER: every rank has `count` elements of the result */
    double prescale, postscale;
    uint64_t count;
};

/* The input: i % 10 for floats; for integers twice that plus one, of which halving keeps i % 10. */
static void scale(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    const struct scaling *scaling = argument;
    int n = pl_world_size(world);
    bool scatters = scaling->kind == PL_REDUCE_SCATTER;
    uint64_t given = scaling->count * (scatters ? (uint64_t)n : 1);
    uint64_t first = scatters ? scaling->count * (uint64_t)pl_world_rank(world) : 0;
    float *floats = calloc(given, sizeof(*floats));
    int32_t *wholes = calloc(given, sizeof(*wholes));
    struct pl_collective c = {.kind = scaling->kind,
                              .scaled = true,
                              .prescale = scaling->prescale,
                              .postscale = scaling->postscale,
                              .count = scaling->count,
                              .send = floats,
                              .recv = floats + first};
    struct pl_collective d = c;
    struct pl_error error = PL_ERROR_NONE;

    d.dtype = PL_INT32;
    d.send = wholes;
    d.recv = wholes + first;
    for (uint64_t i = 0; i < given; i++) {
        floats[i] = (float)(i % 10);
        wholes[i] = (int32_t)(i % 10) * 2 + 1;
    }
    if (pl_collective_run(world, &c, &error) != PL_OK || pl_collective_run(world, &d, &error) != PL_OK) {
        snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
    }
    for (uint64_t i = first; !failure[0] && i < first + scaling->count; i++) {
        double expected = (double)(i % 10) * scaling->prescale * n * scaling->postscale;
        int whole = (int)((double)(i % 10 * 2 + 1) * scaling->prescale); /* truncated before the sum */

        if ((double)floats[i] != expected || wholes[i] != whole * n * (int)scaling->postscale) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s, %g and %g: element %llu: %g and %d", pl_kind_text(scaling->kind),
                     scaling->prescale, scaling->postscale, (unsigned long long)i, (double)floats[i], wholes[i]);
        }
    }
    free(floats);
    free(wholes);
}

TEST(scales_apply_before_and_after)
{
    static const double factors[][2] = {{0.5, 4.0}, {0.5, 1.0}, {1.0, 4.0}};

    for (size_t i = 0; i < 2 * sizeof(factors) / sizeof(factors[0]); i++) {
        struct scaling scaling = {.kind = i % 2 ? PL_REDUCE_SCATTER : PL_ALLREDUCE,
                                  .prescale = factors[i / 2][0],
                                  .postscale = factors[i / 2][1],
                                  .count = 11};

        ck_assert_ranks(1, NULL, scale, &scaling);
        ck_assert_ranks(2, NULL, scale, &scaling);
        on_layouts(scale, &scaling);
        scaling.count = 30000;
        on_layouts(scale, &scaling);
    }
}

struct narrow {
    unsigned flags; /* 0: by the setting wire_type */
    int count;
};

/*
 * Each result is a 16-bit number, or far from exact, but over many steps the sum of results must approach the sum of
 * inputs: no rounding error is lost for good.
 */
static void feed_back(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { STEPS = 64 };
    const struct narrow *narrow = argument;
    int count = narrow->count;
    float *values = calloc((size_t)count, sizeof(*values));
    double *total = calloc((size_t)count, sizeof(*total));
    int n = pl_world_size(world);
    struct pl_error error = PL_ERROR_NONE;

    for (int step = 0; step < STEPS && !failure[0]; step++) {
        for (int i = 0; i < count; i++) {
            values[i] = 1.0F + (float)(i % 100) * 1e-4F; /* neither a float16 nor a bfloat16 */
        }
        if (pl_collective_run(world,
                              &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                      .flags = narrow->flags,
                                                      .count = (uint64_t)count,
                                                      .send = values,
                                                      .recv = values,
                                                      .name = "w"},
                              &error) != PL_OK) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
        }
        for (int i = 0; i < count && !failure[0]; i++) {
            uint32_t bits;

            memcpy(&bits, &values[i], sizeof(bits));
            if (narrow->flags == PL_WIRE_INT8 ? step == 0 && i == 1 && fabsf(values[i] / (float)n - 1.0001F) < 0.001F
                                              : bits & 0x1fff) { /* bits that a float16 does not have */
                snprintf(failure, RANKS_TEXT_BYTES, "%d elements travelled as float32", count);
            }
            total[i] += (double)values[i];
        }
    }
    for (int i = 0; i < count && !failure[0]; i++) {
        double expected = (double)(1.0F + (float)(i % 100) * 1e-4F) * n * STEPS;

        if (fabs(total[i] - expected) > 0.0005 * expected) {
            snprintf(failure, RANKS_TEXT_BYTES, "element %d adds up to %.4f, not %.4f", i, total[i], expected);
        }
    }
    free(values);
    free(total);
}

/* The rounding error of one name is not added to another name. */
static void keep_apart(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { STEPS = 20, LONG = 20000 };
    static const char *const names[2] = {"rounds", "exact"};
    float *values = calloc(LONG, sizeof(*values));
    struct pl_error error = PL_ERROR_NONE;

    for (int step = 0; step < 2 * STEPS && !failure[0]; step++) {
        for (int i = 0; i < LONG; i++) {
            values[i] = step % 2 ? 1.0F : 1.0001F;
        }
        if (pl_collective_run(world,
                              &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                      .flags = PL_WIRE_FLOAT16,
                                                      .count = LONG,
                                                      .send = values,
                                                      .recv = values,
                                                      .name = names[step % 2]},
                              &error) != PL_OK) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
        }
        for (int i = 0; i < LONG && step % 2 && !failure[0]; i++) {
            if (values[i] != (float)pl_world_size(world)) {
                snprintf(failure, RANKS_TEXT_BYTES, "step %d: element %d is %.6f", step, i, (double)values[i]);
            }
        }
    }
    free(values);
}

/* A step whose numbers overflow, as now and then in a program with a loss scale, does not spoil later steps. */
static void overflow_once(struct pl_world *world, void *argument, char failure[RANKS_TEXT_BYTES])
{
    enum { STEPS = 4, LONG = 20000 };
    static const float spoiled[3] = {1e6F, INFINITY, NAN};
    float *values = calloc(LONG, sizeof(*values));
    struct pl_error error = PL_ERROR_NONE;

    for (int step = 0; step < STEPS && !failure[0]; step++) {
        for (int i = 0; i < LONG; i++) {
            values[i] = step == 0 && i % 4 < 3 ? spoiled[i % 4] : 1.0F;
        }
        if (pl_collective_run(world,
                              &(struct pl_collective){.kind = PL_ALLREDUCE,
                                                      .flags = PL_WIRE_FLOAT16,
                                                      .count = LONG,
                                                      .send = values,
                                                      .recv = values,
                                                      .name = "overflows"},
                              &error) != PL_OK) {
            snprintf(failure, RANKS_TEXT_BYTES, "%s", error.cause);
        }
        for (int i = 0; i < LONG && step > 0 && !failure[0]; i++) {
            if (values[i] != (float)pl_world_size(world)) {
                snprintf(failure, RANKS_TEXT_BYTES, "step %d: element %d is %.6f", step, i, (double)values[i]);
            }
        }
    }
    free(values);
}

TEST(an_overflow_on_a_narrow_wire_passes)
{
    ck_assert_ranks(2, &layouts[1], overflow_once, NULL);
    ck_assert_ranks(4, &layouts[2], overflow_once, NULL);
}

TEST(rounding_errors_of_two_names_stay_apart)
{
    ck_assert_ranks(2, &layouts[1], keep_apart, NULL);
    ck_assert_ranks(4, &layouts[2], keep_apart, NULL);
}

TEST(a_narrow_wire_loses_nothing_for_good)
{
    static const unsigned flags[] = {PL_WIRE_FLOAT16, PL_WIRE_BFLOAT16, PL_WIRE_INT8, 0};
    static const int counts[] = {40000, 8000}; /* between hosts of several ranks: in shares, and as a whole */
    struct pl_knobs knobs;

    pl_knobs_default(&knobs);
    set_knob(&knobs, PL_KNOB_WIRE_TYPE, "bfloat16");
    for (int i = 0; i < 8; i++) {
        struct narrow narrow = {.flags = flags[i % 4], .count = counts[i / 4]};
        const struct pl_knobs *setting = narrow.flags ? NULL : &knobs;

        ck_assert_ranks(2, &((struct pl_world_options){.knobs = setting, .pretend_ranks_per_host = 1}), feed_back,
                        &narrow);
        ck_assert_ranks(3, &((struct pl_world_options){.knobs = setting, .pretend_ranks_per_host = 1}), feed_back,
                        &narrow);
        ck_assert_ranks(4, &((struct pl_world_options){.knobs = setting, .pretend_ranks_per_host = 2}), feed_back,
                        &narrow);
    }
}

UNIT_MAIN("collectives/collective")
