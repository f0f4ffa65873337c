/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a model's gradients from a JSON file. */
#include "examples/synthetic/gradient_list.h"

#include "base/memory.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16 << 20 };

#define MOST_ELEMS 0x1p40

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

static enum pl_status wrong(const char *path, const char *what, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "%s: expected %s", path, what);
}

/* Reads the file's text and adds a NUL. */
static enum pl_status read_text(const char *path, char **ret_text, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = pl_memory_new(FILE_BYTES + 1, 1, reterr);
    FILE *file = text ? fopen(path, "r") : NULL;
    size_t bytes;
    bool failed;

    if (!text) {
        return PL_MEMORY;
    }
    if (!file) {
        return pl_error_errno(reterr, "open '%s'", path);
    }
    bytes = fread(text, 1, FILE_BYTES + 1, file);
    failed = ferror(file);
    fclose(file);
    if (failed || bytes > FILE_BYTES) {
        return wrong(path, "a file of at most 16 MiB", reterr);
    }
    text[bytes] = '\0';
    *ret_text = PL_TAKE(text);
    return PL_OK;
}

static enum pl_status read_tensors(const char *path, const cJSON *tensors, struct gradient_list *list,
                                   struct pl_error *reterr)
{
    const cJSON *tensor;

    cJSON_ArrayForEach(tensor, tensors)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(tensor, "name"));
        double elems = cJSON_GetNumberValue(cJSON_GetObjectItem(tensor, "count")); /* NaN: there is no count */

        if (!name || !(elems >= 1.0 && elems <= MOST_ELEMS) || elems != floor(elems)) {
            return pl_error_set(reterr, PL_INVALID,
                                "%s: tensors[%zu]: expected a name and a count from 1 to 1099511627776", path,
                                list->count);
        }
        PL_TRY(add(list, name, (uint64_t)elems, reterr));
    }
    return PL_OK;
}

static enum pl_status read_document(const char *path, const cJSON *document, struct gradient_list *list,
                                    struct pl_error *reterr)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(document, "model"));
    const cJSON *tensors = cJSON_GetObjectItem(document, "tensors");

    if (!name || strpbrk(name, "\"\\")) {
        return wrong(path, "{\"model\": NAME, ...} without quotes in the name", reterr);
    }
    if (!cJSON_IsArray(tensors) || cJSON_GetArraySize(tensors) == 0) {
        return wrong(path, "a list of tensors", reterr);
    }
    PL_TRY(allocate(list, name, (size_t)cJSON_GetArraySize(tensors), reterr));
    return read_tensors(path, tensors, list, reterr);
}

enum pl_status gradient_list_read(const char *path, struct gradient_list *ret_list, struct pl_error *reterr)
{
    struct gradient_list list = {.count = 0};
    PL_AUTO_FREE char *text = NULL;
    enum pl_status status;
    cJSON *document;

    PL_TRY(read_text(path, &text, reterr));
    document = cJSON_Parse(text);
    if (!document) {
        return wrong(path, "JSON", reterr);
    }
    status = read_document(path, document, &list, reterr);
    cJSON_Delete(document);
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
