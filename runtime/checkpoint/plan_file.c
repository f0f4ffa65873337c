/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a plan's values as a safetensors file, and comparing a file's tensors with a plan's. */
#include "runtime/safetensors.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "runtime/checkpoint/checkpoint_format.h"
#include "runtime/gradient/plan_private.h"

#include <string.h>

struct pl_tensor pl_plan_file_tensor(const struct pl_plan_tensor *tensor, const char *name, const float *array)
{
    struct pl_tensor described = {
        .name = name, .dtype = PL_FLOAT32, .dims = tensor->dims, .data = array + tensor->offset_elems};

    _Static_assert(sizeof(described.shape) == sizeof(tensor->shape), "both take as many dimensions");
    memcpy(described.shape, tensor->shape, sizeof(described.shape));
    described.bytes = tensor->count_elems * sizeof(float);
    return described;
}

static void print_tensor(struct pl_text *text, const struct pl_tensor *tensor)
{
    pl_text_printf(text, "'%s', %s [", tensor->name, pl_dtype_text(tensor->dtype));
    for (unsigned d = 0; d < tensor->dims; d++) {
        pl_text_printf(text, "%s%llu", d > 0 ? ", " : "", (unsigned long long)tensor->shape[d]);
    }
    pl_text_append(text, "]");
}

static bool is_same(const struct pl_tensor *stored, const struct pl_tensor *wanted)
{
    return strcmp(stored->name, wanted->name) == 0 && stored->dtype == wanted->dtype && stored->dims == wanted->dims &&
           memcmp(stored->shape, wanted->shape, sizeof(stored->shape)) == 0;
}

enum pl_status pl_plan_file_compare(const char *path, const struct pl_safetensors *file, const struct pl_tensor *wanted,
                                    size_t count, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    size_t stored_count = pl_safetensors_count(file), i = 0;

    while (i < count && i < stored_count && is_same(pl_safetensors_tensor(file, i), &wanted[i])) {
        i++;
    }
    if (i == count && i == stored_count) {
        return PL_OK;
    }
    if (i < stored_count) {
        print_tensor(&text, pl_safetensors_tensor(file, i));
    } else {
        pl_text_append(&text, "no further tensor");
    }
    pl_text_append(&text, ", and the program wants ");
    if (i < count) {
        print_tensor(&text, &wanted[i]);
    } else {
        pl_text_append(&text, "none");
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_error_set(reterr, PL_MISMATCH, "'%s' is of another model or optimizer: it has %s", path,
                        pl_text_string(&text));
}

enum pl_status pl_plan_file_write(const struct pl_plan *plan, const char *path, const struct pl_metadata *metadata,
                                  size_t metadata_count, struct pl_error *reterr)
{
    size_t count = pl_plan_tensor_count(plan);
    PL_AUTO_FREE struct pl_tensor *tensors = NULL;
    PL_AUTO_FREE float *copy = NULL;
    const float *values = pl_plan_values(plan);

    PL_TRY(pl_plan_check_sealed(plan, reterr));
    tensors = pl_memory_new(count, sizeof(*tensors), reterr);
    if (!tensors) {
        return PL_MEMORY;
    }
    if (pl_plan_device(plan)) {
        copy = pl_memory_new_aligned(pl_plan_elems(plan), sizeof(float), 64, reterr);
        if (!copy) {
            return PL_MEMORY;
        }
        PL_TRY(pl_plan_read_array(plan, values, copy, reterr));
        values = copy;
    }
    for (size_t i = 0; i < count; i++) {
        const struct pl_plan_tensor *tensor = pl_plan_tensor(plan, i);

        tensors[i] = pl_plan_file_tensor(tensor, tensor->name, values);
    }
    PL_TRY(pl_file_make_parents(path, 0777, reterr));
    return pl_safetensors_write(path, tensors, count, metadata, metadata_count, reterr);
}
