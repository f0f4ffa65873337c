/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all object stores: sorted lists of objects. */
#include "s3io/store.h"

#include "base/memory.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <stdlib.h>
#include <string.h>

enum pl_status pl_object_list_add(struct pl_object_list *list, const char *key, size_t key_bytes, uint64_t size_bytes,
                                  struct pl_error *reterr)
{
    char *copy;

    PL_TRY(pl_memory_grow(&list->items, &list->capacity, list->count + 1, sizeof(*list->items), reterr));
    copy = pl_memory_string_n(key, key_bytes, reterr);
    if (!copy) {
        return PL_MEMORY;
    }
    list->items[list->count++] = (struct pl_object){.key = copy, .size_bytes = size_bytes};
    return PL_OK;
}

/* Compares keys byte by byte, as in S3's listings. */
static int compare_keys(const void *left, const void *right)
{
    return strcmp(((const struct pl_object *)left)->key, ((const struct pl_object *)right)->key);
}

void pl_object_list_done(struct pl_object_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].key);
    }
    free(list->items);
    memset(list, 0, sizeof(*list));
}

enum pl_status pl_store_init(struct pl_store *store, const struct pl_store_ops *ops, const char *name,
                             struct pl_error *reterr)
{
    store->ops = ops;
    store->name = pl_memory_string(name, reterr);
    return store->name ? PL_OK : PL_MEMORY;
}

enum pl_status pl_store_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                             struct pl_error *reterr)
{
    PL_TRY(store->ops->list(store, deadline_ns, list, reterr));
    if (list->count > 1) {
        qsort(list->items, list->count, sizeof(*list->items), compare_keys);
    }
    return PL_OK;
}

static const struct pl_object *item_at(const void *context, uint64_t position)
{
    return &((const struct pl_object_list *)context)->items[position];
}

struct pl_object_order pl_object_list_order(const struct pl_object_list *list)
{
    return (struct pl_object_order){.context = list, .count = list->count, .at = item_at};
}

enum pl_status pl_store_reader_open(struct pl_store_reader *reader, struct pl_store *store,
                                    const struct pl_object_order *order, struct pl_error *reterr)
{
    *reader = (struct pl_store_reader){.store = store, .order = *order};
    return store->ops->fetch ? store->ops->fetch(store, order, &reader->fetch, reterr) : PL_OK;
}

enum pl_status pl_store_reader_next(struct pl_store_reader *reader, struct pl_source **ret_source,
                                    const struct pl_object **ret_object, struct pl_error *reterr)
{
    const struct pl_object *object;

    if (reader->position >= reader->order.count) {
        return PL_END;
    }
    object = reader->order.at(reader->order.context, reader->position);
    PL_TRY(reader->fetch ? reader->store->ops->open_fetched(reader->fetch, reader->position, ret_source, reterr)
                         : reader->store->ops->open(reader->store, object, ret_source, reterr));
    reader->position++;
    *ret_object = object;
    return PL_OK;
}

void pl_store_reader_close(struct pl_store_reader *reader)
{
    if (reader->fetch) {
        reader->store->ops->fetch_close(reader->fetch);
    }
    memset(reader, 0, sizeof(*reader));
}

void pl_store_close(struct pl_store *store)
{
    if (store) {
        free(store->name);
        store->ops->close(store);
    }
}

void pl_store_close_at(struct pl_store **store_at)
{
    pl_store_close(*store_at);
}
