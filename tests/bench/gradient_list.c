/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/gradient_list.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16 << 20 };

static enum pl_status read_tensors(const struct pl_json *tensors, struct gradient_list *list, struct pl_error *reterr)
{
    for (const struct pl_json *tensor = pl_json_first(tensors); tensor; tensor = pl_json_next(tensor)) {
        const struct pl_json *name = pl_json_member(tensor, "name"), *count = pl_json_member(tensor, "count");
        int64_t elems = 0;

        if (!name || !count) {
            return pl_error_set(reterr, PL_INVALID, "line %u: a tensor has \"name\" and \"count\"", pl_json_line(tensor));
        }
        PL_TRY(pl_json_int64(count, &elems, reterr));
        list->names[list->count] = pl_memory_string(pl_json_text(name), reterr);
        if (!list->names[list->count]) {
            return PL_MEMORY;
        }
        list->counts[list->count++] = (uint64_t)elems;
        list->elems += (uint64_t)elems;
    }
    return PL_OK;
}

enum pl_status gradient_list_read(const char *path, struct gradient_list *ret_list, struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *root = NULL;
    const struct pl_json *tensors, *name;
    struct gradient_list list = {.count = 0};
    enum pl_status status;

    PL_TRY(pl_json_read(path, FILE_BYTES, &root, reterr));
    tensors = pl_json_member(root, "tensors");
    name = pl_json_member(root, "model");
    if (!tensors || !name) {
        return pl_error_set(reterr, PL_INVALID, "'%s': expected an object with \"model\" and \"tensors\"", path);
    }
    list.name = pl_memory_string(pl_json_text(name), reterr);
    list.names = pl_memory_new(pl_json_count(tensors), sizeof(char *), reterr);
    list.counts = pl_memory_new(pl_json_count(tensors), sizeof(uint64_t), reterr);
    status = list.name && list.names && list.counts ? read_tensors(tensors, &list, reterr) : PL_MEMORY;
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
