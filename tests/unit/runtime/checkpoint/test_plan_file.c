/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/checkpoint/checkpoint_format.c. */
#include "runtime/safetensors.h"

#include "base/memory.h"
#include "runtime/plan.h"
#include "tests/support/scratch.h"
#include "tests/unit/runtime/ranks.h"

#include <string.h>
#include <unistd.h>

/* Odd counts, so that tensors have gaps between them; several buckets, so that one ends within a tensor. */
static const uint64_t shapes[3][2] = {{3, 7}, {5, 1}, {100, 9}};
static const char *const names[3] = {"conv.weight", "conv.bias", "dense \"1\""};

static float value_of(size_t tensor, uint64_t elem)
{
    return (float)(tensor * 1000 + elem) + 0.5F;
}

static struct pl_plan *make_plan(struct pl_world *world)
{
    struct pl_plan_options options = {.bucket_bytes = 256};
    struct pl_plan *plan = NULL;
    size_t index;

    ck_ok(pl_plan_new, world, &options, &plan);
    for (size_t t = 0; t < 3; t++) {
        ck_ok(pl_plan_add, plan, names[t], t == 1 ? 1 : 2, shapes[t], &index);
    }
    return plan;
}

static void writes_and_reads(struct pl_world *world, void *context)
{
    const char *path = context;
    const struct pl_metadata metadata[] = {{"step", "7"}, {"format", "a \\ and a \""}};

    AUTO_PLAN struct pl_plan *plan = make_plan(world);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_safetensors *file = NULL;

    ck_ok(pl_plan_seal, plan);
    for (size_t t = 0; t < 3; t++) {
        for (uint64_t e = 0; e < pl_plan_tensor(plan, t)->count_elems; e++) {
            pl_plan_tensor(plan, t)->value[e] = value_of(t, e);
        }
    }
    ck_ok(pl_plan_file_write, plan, path, metadata, 2);
    ck_ok(pl_safetensors_open, path, &file);
    ck_assert_uint_eq(pl_safetensors_count(file), 3);
    for (size_t t = 0; t < 3; t++) {
        const struct pl_tensor *tensor = pl_safetensors_tensor(file, t);
        PL_AUTO_FREE float *values = pl_memory_new(tensor->bytes, 1, &error);
        unsigned dims = t == 1 ? 1 : 2;

        ck_assert_str_eq(tensor->name, names[t]);
        ck_assert_int_eq(tensor->dtype, PL_FLOAT32);
        ck_assert_uint_eq(tensor->dims, dims);
        ck_assert_mem_eq(tensor->shape, shapes[t], dims * sizeof(uint64_t));
        ck_assert_uint_eq(tensor->bytes, shapes[t][0] * (dims == 2 ? shapes[t][1] : 1) * sizeof(float));
        ck_ok(pl_safetensors_read, file, t, values);
        for (uint64_t e = 0; e < tensor->bytes / sizeof(float); e++) {
            ck_assert(values[e] == value_of(t, e));
        }
    }
    ck_assert_str_eq(pl_safetensors_metadata(file, "step"), "7");
    ck_assert_str_eq(pl_safetensors_metadata(file, "format"), "a \\ and a \"");
    pl_safetensors_close(file);
}

TEST(every_tensor_comes_back_by_name_with_shape_and_values)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    scratch_path(&scratch, "made/on the way/model.safetensors", path);
    ranks_run(1, writes_and_reads, path);
}

static void refuses(struct pl_world *world, void *context)
{
    AUTO_PLAN struct pl_plan *plan = make_plan(world);
    const char *path = context;

    ck_fails(PL_INVALID, "pl_plan_seal() comes first", pl_plan_file_write, plan, path, NULL, 0);
    ck_ok(pl_plan_seal, plan);
    ck_ok(pl_plan_file_write, plan, path, NULL, 0); /* a file now, so it cannot be a directory */
    {
        char below[PATH_MAX];

        snprintf(below, sizeof(below), "%.4000s/model.safetensors", path);
        ck_fails(PL_INVALID, path, pl_plan_file_write, plan, below, NULL, 0);
    }
}

TEST(an_unsealed_plan_and_a_bad_place_are_refused)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    scratch_path(&scratch, "model.safetensors", path);
    ranks_run(1, refuses, path);
}

UNIT_MAIN("runtime/plan_file")
