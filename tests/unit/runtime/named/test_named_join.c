/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/rounds.c, runtime/named/run.c. */
/* Uneven data: ranks that have run out join and stay neutral. Names in capitals are the inventory's behaviours. */
#include "collectives/world_private.h"
#include "tests/unit/runtime/named/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* I4: what an average divides by is an option. */
static void divisor_body(struct rank *self)
{
    const struct pl_named_options options = {.join_divisor = *(const enum pl_named_divisor *)self->data};
    int divisor = options.join_divisor == PL_NAMED_DIVIDE_BY_SIZE ? self->size : self->size - 1, last;

    ENGINE(&options);
    if (self->rank != 1) {
        float mean = 12, scaled = 12, all = 12;
        const int64_t large = (INT64_C(1) << 60) + 1; /* no double holds it */
        int64_t whole = large;
        struct pl_named_op op = {
            .name = "mean", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .send = &mean, .recv = &mean};
        struct pl_named_op with_scales = {.name = "scaled",
                                          .kind = PL_ALLREDUCE,
                                          .dtype = PL_FLOAT32,
                                          .op = PL_AVERAGE,
                                          .scaled = true,
                                          .prescale = 0.5,
                                          .postscale = 4,
                                          .send = &scaled,
                                          .recv = &scaled};
        struct pl_named_op of_whole = {
            .name = "whole", .kind = PL_ALLREDUCE, .dtype = PL_INT64, .op = PL_AVERAGE, .send = &whole, .recv = &whole};

        expect_ok(engine_run(named, &op, NULL, &error));
        expect(fabsf(mean - (float)(12 * (self->size - 1)) / (float)divisor) < 1e-5F, "%g", (double)mean);
        expect_ok(engine_run(named, &with_scales, NULL, &error));
        expect(fabsf(scaled - (float)(24 * (self->size - 1)) / (float)divisor) < 1e-4F, "%g", (double)scaled);
        expect_ok(engine_run(named, &of_whole, NULL, &error));
        expect(whole == large * (self->size - 1) / divisor, "%lld", (long long)whole);
        expect_ok(engine_join(named, &last, &error));
        op = (struct pl_named_op){
            .name = "mean", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .send = &all, .recv = &all};
        expect_ok(engine_run(named, &op, NULL, &error)); /* all are back */
        expect(all == 12, "%g", (double)all);
    } else {
        float all = 12;
        struct pl_named_op op = {
            .name = "mean", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_AVERAGE, .send = &all, .recv = &all};

        expect_ok(engine_join(named, &last, &error));
        expect_ok(engine_run(named, &op, NULL, &error));
        expect(all == 12, "%g", (double)all);
    }
    engine_free(named);
}

TEST(an_average_divides_by_the_ranks_that_gave_or_by_all)
{
    for (int size = 2; size <= 4; size++) {
        enum pl_named_divisor divisors[] = {PL_NAMED_DIVIDE_BY_CONTRIBUTORS, PL_NAMED_DIVIDE_BY_SIZE};

        ck_assert_bodies(size, divisor_body, &divisors[0]);
        ck_assert_bodies(size, divisor_body, &divisors[1]);
    }
}

/* The residual of an operation without a name is not added to the one that has its number after a join. */
static void forgetting_body(struct rank *self)
{
    /* more digits than float16 has: the rest of the first would round the second up */
    static const float given[] = {1.00044F, 1.00024F};
    enum { ELEMS = 20000 };
    float *data = calloc(ELEMS, sizeof(*data));
    int last;

    ENGINE(NULL);
    for (int epoch = 0; epoch < 2; epoch++) {
        struct pl_named_op op = sum_of(NULL, data, ELEMS);
        int wrong = 0;

        op.flags = PL_WIRE_FLOAT16;
        for (int e = 0; e < ELEMS; e++) {
            data[e] = given[epoch];
        }
        expect_ok(engine_run(named, &op, NULL, &error));
        for (int e = 0; e < ELEMS; e++) {
            wrong += data[e] != 2.0F;
        }
        expect(wrong == 0, "epoch %d: %d sums are not 2", epoch, wrong);
        expect_ok(engine_join(named, &last, &error));
    }
    engine_free(named);
    free(data);
}

TEST(rounding_errors_of_operations_without_a_name_are_forgotten)
{
    struct rank_body body = {.body = forgetting_body};

    ck_assert_ranks(2, &(struct pl_world_options){.pretend_ranks_per_host = 1}, expect_rank, &body);
}

/* The bits of 3 and of -3 (3 again where there is no sign) in each type. */
static const uint64_t three[PL_DTYPE_COUNT][2] = {
    [PL_FLOAT32] = {0x40400000, 0xC0400000},
    [PL_FLOAT64] = {UINT64_C(0x4008000000000000), UINT64_C(0xC008000000000000)},
    [PL_FLOAT16] = {0x4200, 0xC200},
    [PL_BFLOAT16] = {0x4040, 0xC040},
    [PL_INT8] = {3, UINT64_C(-3)},
    [PL_INT16] = {3, UINT64_C(-3)},
    [PL_INT32] = {3, UINT64_C(-3)},
    [PL_INT64] = {3, UINT64_C(-3)},
    [PL_UINT8] = {3, 3},
    [PL_BOOL] = {1, 0},
};

/* I5: a joined rank's element changes no result of the only rank left, whatever the type. */
static void neutral_body(struct rank *self)
{
    float again = 1;
    struct pl_named_op unnamed = {
        .kind = PL_ALLREDUCE, .dtype = PL_FLOAT32, .op = PL_SUM, .send = &again, .recv = &again};
    int last;

    ENGINE(NULL);
    if (self->rank == 0) {
        for (int dtype = 0; dtype < PL_DTYPE_COUNT; dtype++) {
            for (int op = PL_SUM; op < PL_OP_COUNT; op++) {
                for (int negative = 0; negative < 2; negative++) {
                    uint64_t value = three[dtype][negative], given = value;
                    struct pl_named_op reduce = {.kind = PL_ALLREDUCE,
                                                 .dtype = (enum pl_dtype)dtype,
                                                 .op = (enum pl_op)op,
                                                 .send = &value,
                                                 .recv = &value};

                    if (op == PL_ADASUM || (op == PL_AVERAGE && dtype == PL_BOOL)) {
                        continue;
                    }
                    expect_ok(engine_run(named, &reduce, NULL, &error));
                    expect(memcmp(&value, &given, pl_dtype_bytes((enum pl_dtype)dtype)) == 0,
                           "type %d, op %d: %llx, not %llx", dtype, op, (unsigned long long)value,
                           (unsigned long long)given);
                }
            }
        }
    }
    expect_ok(engine_join(named, &last, &error));
    expect(last == 0, "last is %d", last);
    expect_ok(engine_run(named, &unnamed, NULL, &error)); /* all count from the same number again */
    expect((int)again == self->size, "%g", (double)again);
    engine_free(named);
}

TEST(a_joined_rank_is_neutral_in_every_type_and_operation)
{
    ck_assert_bodies(2, neutral_body, NULL);
    ck_assert_bodies(3, neutral_body, NULL);
}

UNIT_MAIN("runtime/named_join")
