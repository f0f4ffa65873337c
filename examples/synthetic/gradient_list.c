/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model's gradients from a JSON file. */
#include "examples/synthetic/gradient_list.h"

#include "base/memory.h"
#include "base/python_json.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16 << 20 };

#define MOST_ELEMS (INT64_C(1) << 40)

static enum pl_status allocate(struct gradient_list *list, const char *name, size_t capacity, struct pl_error *reterr)
{
    list->name = pl_memory_string(name, reterr);
    list->names = pl_memory_new(capacity, sizeof(char *), reterr);
    list->counts = pl_memory_new(capacity, sizeof(uint64_t), reterr);
    return list->name && list->names && list->counts ? PL_OK : PL_MEMORY;
}

static enum pl_status add(struct gradient_list *list, const char *name, uint64_t elems, struct pl_error *reterr)
{
    list->names[list->count] = pl_memory_string(name, reterr);
    if (!list->names[list->count]) {
        return PL_MEMORY;
    }
    list->counts[list->count++] = elems;
    list->elems += elems;
    return PL_OK;
}

static enum pl_status read_tensors(const struct pl_python_json *tensors, struct gradient_list *list,
                                   struct pl_error *reterr)
{
    for (const struct pl_python_json *tensor = pl_python_json_first(tensors); tensor;
         tensor = pl_python_json_next(tensor)) {
        const struct pl_python_json *name = pl_python_json_member(tensor, "name"),
                                    *count = pl_python_json_member(tensor, "count");
        int64_t elems = 0;

        if (!name || pl_python_json_kind(name) != PL_PYTHON_JSON_STRING || !count) {
            return pl_error_set(reterr, PL_INVALID, "line %u: a tensor has \"name\" and \"count\"",
                                pl_python_json_line(tensor));
        }
        PL_TRY(pl_python_json_int64(count, &elems, reterr));
        if (elems <= 0 || elems > MOST_ELEMS) {
            return pl_error_set(reterr, PL_INVALID, "line %u: a tensor of %lld elements", pl_python_json_line(tensor),
                                (long long)elems);
        }
        PL_TRY(add(list, pl_python_json_text(name), (uint64_t)elems, reterr));
    }
    return PL_OK;
}

enum pl_status gradient_list_read(const char *path, struct gradient_list *ret_list, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    const struct pl_python_json *tensors, *name;
    struct gradient_list list = {.count = 0};
    enum pl_status status;

    PL_TRY(pl_python_json_read(path, FILE_BYTES, &root, reterr));
    tensors = pl_python_json_member(root, "tensors");
    name = pl_python_json_member(root, "model");
    if (!tensors || pl_python_json_count(tensors) == 0 || !name || pl_python_json_kind(name) != PL_PYTHON_JSON_STRING) {
        return pl_error_set(reterr, PL_INVALID, "'%s': expected an object with \"model\" and \"tensors\"", path);
    }
    status = allocate(&list, pl_python_json_text(name), pl_python_json_count(tensors), reterr);
    if (status == PL_OK) {
        status = read_tensors(tensors, &list, reterr);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "reading '%s'", path);
        gradient_list_done(&list);
        return status;
    }
    *ret_list = list;
    return PL_OK;
}

enum pl_status gradient_list_default(struct gradient_list *ret_list, struct pl_error *reterr)
{
    static const struct {
        const char *name;
        uint64_t elems;
    } tensors[] = {
        {"conv1.weight", 32 * 3 * 3},          {"conv1.bias", 32},
        {"conv2.weight", 64 * 3 * 3 * 32},     {"conv2.bias", 64},
        {"dense1.weight", 128 * 12 * 12 * 64}, {"dense1.bias", 128},
        {"dense2.weight", 10 * 128},           {"dense2.bias", 10},
    };
    struct gradient_list list = {.count = 0};
    enum pl_status status = allocate(&list, "digits", PL_ARRAY_ITEMS(tensors), reterr);

    for (size_t i = 0; status == PL_OK && i < PL_ARRAY_ITEMS(tensors); i++) {
        status = add(&list, tensors[i].name, tensors[i].elems, reterr);
    }
    if (status != PL_OK) {
        gradient_list_done(&list);
        return status;
    }
    *ret_list = list;
    return PL_OK;
}

void gradient_list_done(struct gradient_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->names[i]);
    }
    free(list->name);
    free(list->names);
    free(list->counts);
    memset(list, 0, sizeof(*list));
}
