/* SPDX-License-Identifier: Apache-2.0 */
/* Files, directories and S3 prefixes as one store: the objects of each follow those of the one before it. */
#include "base/memory.h"
#include "base/text.h"
#include "s3io/dataset/dataset_private.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file, a directory or an S3 prefix. */
struct part {
    char *path;
    struct pl_store *store; /* NULL for a file */
    struct pl_object_list list;
};

struct many {
    struct pl_store head;
    struct part *parts;
    size_t count;
};

/* The objects of one part that are read, in their order. */
struct picked {
    struct pl_object_list list; /* borrows its keys */
    void *fetch;                /* NULL if each object is opened alone */
    uint64_t next;
};

struct many_fetch {
    struct many *many;
    struct pl_object_order order;
    struct picked *picked; /* [count] */
};

static enum pl_status list_file(struct part *part, struct pl_error *reterr)
{
    struct stat info;

    if (stat(part->path, &info) != 0) {
        return pl_error_errno(reterr, "stat '%s'", part->path);
    }
    return pl_object_list_add(&part->list, part->path, strlen(part->path), (uint64_t)info.st_size, reterr);
}

/* Lists each part. The keys begin with the part's number, so that sorting keeps the parts in their order. */
static enum pl_status many_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                                struct pl_error *reterr)
{
    struct many *many = (struct many *)store;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;

    for (size_t p = 0; p < many->count; p++) {
        struct part *part = &many->parts[p];

        pl_object_list_done(&part->list);
        PL_TRY(part->store ? pl_store_list(part->store, deadline_ns, &part->list, reterr) : list_file(part, reterr));
        if (part->list.count == 0) {
            return pl_error_set(reterr, PL_NOT_FOUND, "'%s' holds no objects", part->path);
        }
        for (size_t i = 0; i < part->list.count; i++) {
            const struct pl_object *object = &part->list.items[i];

            PL_TRY(pl_text_set(&key, reterr, "%08zu/%s", p, object->key));
            PL_TRY(pl_object_list_add(list, pl_text_string(&key), key.length, object->size_bytes, reterr));
        }
    }
    return PL_OK;
}

/* Returns the part that has an object of the list; `*ret_object` is the object as the part lists it. */
static struct part *part_of(struct many *many, const struct pl_object *object, struct pl_object *ret_object)
{
    struct part *part = &many->parts[strtoul(object->key, NULL, 10)];

    *ret_object = (struct pl_object){.key = strchr(object->key, '/') + 1, .size_bytes = object->size_bytes};
    return part;
}

static void many_fetch_close(void *context)
{
    struct many_fetch *fetch = context;

    for (size_t p = 0; fetch->picked && p < fetch->many->count; p++) {
        if (fetch->picked[p].fetch) {
            fetch->many->parts[p].store->ops->fetch_close(fetch->picked[p].fetch);
        }
        free(fetch->picked[p].list.items);
    }
    free(fetch->picked);
    free(fetch);
}

static enum pl_status begin_fetch(struct many_fetch *fetch, struct pl_error *reterr)
{
    struct many *many = fetch->many;
    const struct part *first = NULL;

    PL_TRY(pl_memory_alloc(&fetch->picked, many->count, sizeof(*fetch->picked), reterr));
    for (uint64_t i = 0; i < pl_object_order_count(&fetch->order); i++) {
        struct pl_object object;
        const struct part *part = part_of(many, pl_object_order_at(&fetch->order, i), &object);
        struct pl_object_list *list = &fetch->picked[part - many->parts].list;

        first = first ? first : part;
        PL_TRY(pl_memory_grow(&list->items, &list->capacity, list->count + 1, sizeof(*list->items), reterr));
        list->items[list->count++] = object;
    }
    for (size_t p = 0; p < many->count; p++) {
        struct pl_object_order order = {.list = &fetch->picked[p].list};

        order.first_byte = &many->parts[p] == first ? fetch->order.first_byte : 0;
        if (many->parts[p].store && many->parts[p].store->ops->fetch && order.list->count > 0) {
            PL_TRY(many->parts[p].store->ops->fetch(many->parts[p].store, &order, &fetch->picked[p].fetch, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status many_fetch(struct pl_store *store, const struct pl_object_order *order, void **ret_fetch,
                                 struct pl_error *reterr)
{
    struct many_fetch *fetch;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&fetch, 1, sizeof(*fetch), reterr));
    fetch->many = (struct many *)store;
    fetch->order = *order;
    status = begin_fetch(fetch, reterr);
    if (status != PL_OK) {
        many_fetch_close(fetch);
        return status;
    }
    *ret_fetch = fetch;
    return PL_OK;
}

static enum pl_status many_open_fetched(void *context, uint64_t position, struct pl_source **ret_source,
                                        struct pl_error *reterr)
{
    struct many_fetch *fetch = context;
    struct pl_object object;
    const struct part *part = part_of(fetch->many, pl_object_order_at(&fetch->order, position), &object);
    struct picked *picked = &fetch->picked[part - fetch->many->parts];
    uint64_t first_byte = position ? 0 : fetch->order.first_byte;

    if (!part->store) {
        return pl_source_open_file_at(AT_FDCWD, part->path, part->path, object.size_bytes, first_byte, ret_source,
                                      reterr);
    }
    if (!picked->fetch) {
        return part->store->ops->open(part->store, &object, first_byte, ret_source, reterr);
    }
    PL_TRY(part->store->ops->open_fetched(picked->fetch, picked->next, ret_source, reterr));
    picked->next++;
    return PL_OK;
}

static enum pl_status many_name_object(struct pl_store *store, const struct pl_object *object, struct pl_text *name,
                                       struct pl_error *reterr)
{
    struct pl_object inner;
    const struct part *part = part_of((struct many *)store, object, &inner);

    return part->store ? pl_store_name_object(part->store, &inner, name, reterr)
                       : pl_text_set(name, reterr, "%s", part->path);
}

static const char *many_etag(struct pl_store *store, const struct pl_object *object)
{
    struct pl_object inner;
    const struct part *part = part_of((struct many *)store, object, &inner);

    return part->store ? pl_store_etag(part->store, &inner) : NULL;
}

static void many_close(struct pl_store *store)
{
    struct many *many = (struct many *)store;

    for (size_t p = 0; many->parts && p < many->count; p++) {
        pl_store_close(many->parts[p].store);
        pl_object_list_done(&many->parts[p].list);
        free(many->parts[p].path);
    }
    free(many->parts);
    free(many);
}

static enum pl_status open_part(struct part *part, const char *path, struct pl_error *reterr)
{
    struct stat info;

    part->path = pl_memory_string(path, reterr);
    if (!part->path) {
        return PL_MEMORY;
    }
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode) ? PL_OK : pl_store_open(path, &part->store, reterr);
}

enum pl_status pl_store_open_many(const char *const *paths, size_t count, struct pl_store **ret_store,
                                  struct pl_error *reterr)
{
    static const struct pl_store_ops ops = {.list = many_list,
                                            .fetch = many_fetch,
                                            .open_fetched = many_open_fetched,
                                            .fetch_close = many_fetch_close,
                                            .name_object = many_name_object,
                                            .etag = many_etag,
                                            .close = many_close};
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    struct many *many;
    enum pl_status status;

    PL_TRY(count > 1 ? pl_text_set(&name, reterr, "%s and %zu more", paths[0], count - 1)
                     : pl_text_set(&name, reterr, "%s", paths[0]));
    PL_TRY(pl_memory_alloc(&many, 1, sizeof(*many), reterr));
    status = pl_memory_alloc(&many->parts, count, sizeof(*many->parts), reterr);
    many->count = count;
    for (size_t p = 0; status == PL_OK && p < count; p++) {
        status = open_part(&many->parts[p], paths[p], reterr);
    }
    if (status == PL_OK) {
        status = pl_store_init(&many->head, &ops, pl_text_string(&name), reterr);
    }
    if (status != PL_OK) {
        many_close(&many->head);
        return status;
    }
    *ret_store = &many->head;
    return PL_OK;
}
