/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/named/named.c, runtime/named/table.c, runtime/named/rounds.c, runtime/named/describe.c. */
/* Named tensors in worlds of collectives/: many bytes and names, Adasum, and the arithmetic where a rank has joined.
 * Names in capitals are the inventory's behaviours. */
#include "base/memory.h"
#include "collectives/world_private.h"
#include "tests/unit/runtime/named/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* C7: more bytes than any limit at which a round or a message begins, large and small members side by side. */
static void large_body(struct rank *self)
{
    enum { MEMBERS = 48, LARGE = 40000 };
    const struct pl_named_options options = {.start_bytes = 4096};
    float *data[MEMBERS];

    ENGINE(&options);
    for (int i = 0; i < MEMBERS; i++) {
        data[i] = malloc(LARGE * sizeof(float));
    }
    for (int step = 0; step < 2; step++) {
        struct pl_named_op ops[MEMBERS];
        engine_handle handle;

        for (int i = 0; i < MEMBERS; i++) {
            ops[i] = sum_of(NULL, data[i], i % 3 ? (uint64_t)(i + 1) : LARGE);
            for (uint64_t e = 0; e < ops[i].shape[0]; e++) {
                data[i][e] = (float)((uint64_t)(self->rank + i) + e % 5);
            }
        }
        expect_ok(engine_submit_group(named, "large", ops, MEMBERS, &handle, &error));
        expect_ok(engine_wait(named, handle, NULL, &error));
        for (int i = 0; i < MEMBERS; i++) {
            for (uint64_t e = 0; e < ops[i].shape[0]; e++) {
                float want =
                    (float)(self->size * (self->size - 1) / 2) + (float)self->size * (float)((uint64_t)i + e % 5);

                if (data[i][e] != want) {
                    expect(false, "member %d element %llu: %g, not %g", i, (unsigned long long)e, (double)data[i][e],
                           (double)want);
                    break;
                }
            }
        }
    }
    for (int i = 0; i < MEMBERS; i++) {
        free(data[i]);
    }
    engine_free(named);
}

TEST(a_group_may_be_larger_than_any_message)
{
    over_sizes(large_body);
}

/* Every tensor of a group is a vector of its own: parallel ones give the mean. Two small ones, of two types, and a
 * large one; then rank 0, which has joined, gives nothing. */
static void adasum_body(struct rank *self)
{
    enum { ELEMS = 40000 };
    static const double mean[] = {0, 1, 1.5, 0, 2.5};
    double wide = self->rank + 1, alone = 3;
    float *large = pl_memory_new(ELEMS, sizeof(float), NULL), small[2] = {0, (float)(self->rank + 1)};
    struct pl_named_op ops[] = {sum_of(NULL, small, 2), sum_of(NULL, large, ELEMS), sum_of(NULL, NULL, 1)};
    struct pl_named_op late = {.name = "late", .kind = PL_ALLREDUCE, .dtype = PL_FLOAT64, .op = PL_ADASUM};
    engine_handle handle;
    int last = -1;

    ENGINE(NULL);
    ops[2].dtype = PL_FLOAT64;
    ops[2].send = ops[2].recv = &wide;
    for (int i = 0; i < 3; i++) {
        ops[i].op = PL_ADASUM;
    }
    for (int i = 0; i < ELEMS; i++) {
        large[i] = (float)(2 * (self->rank + 1));
    }
    if (self->size == 3) {
        expect(engine_submit_group(named, "adasums", ops, 3, &handle, &error) == PL_UNSUPPORTED, "%s", error.cause);
    } else {
        expect_ok(engine_submit_group(named, "adasums", ops, 3, &handle, &error));
        expect_ok(engine_wait(named, handle, NULL, &error));
        expect(fabs((double)small[1] - mean[self->size]) < 1e-6 && small[0] == 0, "%g", (double)small[1]);
        expect(fabs(wide - mean[self->size]) < 1e-12, "%g", wide);
        expect(fabs((double)large[ELEMS - 1] - 2 * mean[self->size]) < 1e-5, "%g", (double)large[ELEMS - 1]);
    }
    if (self->rank > 0 && self->size != 3) {
        late.send = late.recv = &alone;
        expect_ok(engine_run(named, &late, NULL, &error));
        expect(fabs(alone - 3) < 1e-12, "%g", alone);
    }
    expect_ok(engine_join(named, &last, &error));
    free(large);
    engine_free(named);
}

TEST(a_group_of_adasums_has_a_tree_for_each_tensor)
{
    over_sizes(adasum_body);
}

/* More names than there is room for at first, in a different order on each rank. */
static void large_model_body(struct rank *self)
{
    enum { NAMES = 300 };
    engine_handle handles[NAMES];
    float values[NAMES];

    ENGINE(NULL);
    for (int step = 0; step < 2; step++) {
        for (int k = 0; k < NAMES; k++) {
            int i = (k * 7 + 100 * self->rank * step) % NAMES;
            char name[16];
            struct pl_named_op op = sum_of(name, &values[i], 1);

            snprintf(name, sizeof(name), "tensor%d", i);
            values[i] = (float)(i + step);
            expect_ok(engine_submit(named, &op, &handles[i], &error));
        }
        for (int i = 0; i < NAMES; i++) {
            expect_ok(engine_wait(named, handles[i], NULL, &error));
            expect(values[i] == (float)(self->size * (i + step)), "step %d tensor %d: %g", step, i, (double)values[i]);
        }
    }
    engine_free(named);
}

TEST(a_model_has_as_many_names_as_it_likes)
{
    ck_assert_bodies(3, large_model_body, NULL);
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

UNIT_MAIN("runtime/named")
