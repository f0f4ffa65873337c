/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model's gradients from a JSON file. */
#include "examples/synthetic/gradient_list.h"

#include "base/json/json.h"
#include "base/memory.h"

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

static enum pl_status read_tensors(struct pl_json_value tensors, struct gradient_list *list, struct pl_error *reterr)
{
    for (struct pl_json_value tensor = pl_json_first(tensors); pl_json_exists(tensor); tensor = pl_json_next(tensor)) {
        const char *name;
        int64_t elems;

        PL_TRY(pl_json_text(pl_json_member(tensor, "name"), &name, reterr));
        PL_TRY(pl_json_int64(pl_json_member(tensor, "count"), 1, MOST_ELEMS, &elems, reterr));
        PL_TRY(add(list, name, (uint64_t)elems, reterr));
    }
    return PL_OK;
}

enum pl_status gradient_list_read(const char *path, struct gradient_list *ret_list, struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    struct pl_json_value tensors;
    const char *name;
    struct gradient_list list = {.count = 0};
    enum pl_status status;

    PL_TRY(pl_json_read(path, FILE_BYTES, &document, reterr));
    tensors = pl_json_member(pl_json_root(document), "tensors");
    PL_TRY(pl_json_text(pl_json_member(pl_json_root(document), "model"), &name, reterr));
    PL_TRY(pl_json_expect(tensors, PL_JSON_LIST, reterr));
    if (pl_json_count(tensors) == 0) {
        return pl_json_wrong(pl_json_first(tensors), "a tensor", reterr);
    }
    status = allocate(&list, name, pl_json_count(tensors), reterr);
    if (status == PL_OK) {
        status = read_tensors(tensors, &list, reterr);
    }
    if (status != PL_OK) {
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
