/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all object stores: sorted lists of objects. And the regular files below a directory as a store. */
#include "s3io/store.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

enum pl_status pl_store_name_object(struct pl_store *store, const struct pl_object *object, struct pl_text *name,
                                    struct pl_error *reterr)
{
    return store->ops->name_object ? store->ops->name_object(store, object, name, reterr)
                                   : pl_text_set(name, reterr, "%s/%s", store->name, object->key);
}

const char *pl_store_etag(struct pl_store *store, const struct pl_object *object)
{
    return store->ops->etag ? store->ops->etag(store, object) : NULL;
}

uint64_t pl_object_order_count(const struct pl_object_order *order)
{
    const struct pl_shard *deal = &order->deal;
    uint64_t count = order->list->count;

    count = deal->size ? count / deal->size + (count % deal->size > deal->rank) : count;
    return count > order->first ? count - order->first : 0;
}

const struct pl_object *pl_object_order_at(const struct pl_object_order *order, uint64_t position)
{
    uint64_t index = position + order->first;

    index = order->deal.size ? index * order->deal.size + order->deal.rank : index;
    return &order->list->items[order->shuffle ? pl_sampler_order(index, order->list->count, order->seed, order->epoch)
                                              : index];
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

    if (reader->position >= pl_object_order_count(&reader->order)) {
        return PL_END;
    }
    object = pl_object_order_at(&reader->order, reader->position);
    PL_TRY(reader->fetch
               ? reader->store->ops->open_fetched(reader->fetch, reader->position, ret_source, reterr)
               : reader->store->ops->open(reader->store, object, reader->position ? 0 : reader->order.first_byte,
                                          ret_source, reterr));
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

enum { MAX_DEPTH = 64 };

struct directory_store {
    struct pl_store head;
    int fd;
    bool dotted; /* whether names that begin with a dot are listed */
};

static enum pl_status walk(struct directory_store *store, int dir_fd, struct pl_text *key, unsigned depth,
                           struct pl_object_list *list, struct pl_error *reterr);

static enum pl_status add_entry(struct directory_store *store, int dir_fd, const struct dirent *entry,
                                struct pl_text *key, unsigned depth, struct pl_object_list *list,
                                struct pl_error *reterr)
{
    struct stat info = {.st_mode = 0};

    /* Most file systems report in the entry that it is a directory. Each file costs one stat, for its size. Symbolic
     * links are followed: FastFile, and datasets in File mode, consist of them. */
    if (entry->d_type == DT_DIR) {
        info.st_mode = S_IFDIR;
    } else if (fstatat(dir_fd, entry->d_name, &info, 0) != 0) {
        return pl_error_errno(reterr, "stat '%s/%s'", store->head.name, pl_text_string(key));
    }
    if (S_ISDIR(info.st_mode)) {
        PL_AUTO_CLOSE int fd = openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0) {
            return pl_error_errno(reterr, "open directory '%s/%s'", store->head.name, pl_text_string(key));
        }
        pl_text_append_char(key, '/');
        return walk(store, fd, key, depth + 1, list, reterr);
    }
    if (!S_ISREG(info.st_mode)) {
        return PL_OK;
    }
    PL_TRY(pl_text_check(key, reterr));
    return pl_object_list_add(list, pl_text_string(key), key->length, (uint64_t)info.st_size, reterr);
}

static void close_directory_at(DIR **directory)
{
    if (*directory) {
        closedir(*directory);
    }
}

static enum pl_status walk(struct directory_store *store, int dir_fd, struct pl_text *key, unsigned depth,
                           struct pl_object_list *list, struct pl_error *reterr)
{
    size_t prefix = key->length;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    __attribute__((cleanup(close_directory_at))) DIR *directory = fd < 0 ? NULL : fdopendir(fd);

    if (!directory) {
        enum pl_status status = pl_error_errno(reterr, "open directory '%s/%s'", store->head.name, pl_text_string(key));

        pl_file_close_at(&fd);
        return status;
    }
    if (depth > MAX_DEPTH) {
        return pl_error_set(reterr, PL_LIMIT,
                            "'%s/%s' is more than %d directories deep: see whether symbolic links form a loop",
                            store->head.name, pl_text_string(key), (int)MAX_DEPTH);
    }
    for (;;) {
        const struct dirent *entry;

        errno = 0;
        entry = readdir(directory);
        if (!entry) {
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (entry->d_name[0] == '.' && !store->dotted)) {
            continue;
        }
        pl_text_append(key, entry->d_name);
        PL_TRY(pl_text_check(key, reterr));
        PL_TRY(add_entry(store, dir_fd, entry, key, depth, list, reterr));
        key->length = prefix;
        key->data[prefix] = '\0';
    }
    return errno ? pl_error_errno(reterr, "read directory '%s'", store->head.name) : PL_OK;
}

static enum pl_status directory_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                                     struct pl_error *reterr)
{
    struct directory_store *directory = (struct directory_store *)store;
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;

    (void)deadline_ns;
    return walk(directory, directory->fd, &key, 0, list, reterr);
}

static enum pl_status directory_open(struct pl_store *store, const struct pl_object *object, uint64_t first_byte,
                                     struct pl_source **ret_source, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_store_name_object(store, object, &path, reterr));
    return pl_source_open_file_at(((struct directory_store *)store)->fd, object->key, pl_text_string(&path),
                                  object->size_bytes, first_byte, ret_source, reterr);
}

static void directory_close(struct pl_store *store)
{
    pl_file_close_at(&((struct directory_store *)store)->fd);
    free(store);
}

static const struct pl_store_ops directory_ops = {
    .list = directory_list, .open = directory_open, .close = directory_close};

enum pl_status pl_store_open_directory(const char *path, bool dotted, struct pl_store **ret_store,
                                       struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct directory_store *store;

    if (fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "cannot open directory '%s'", path);
    }
    PL_TRY(pl_memory_alloc(&store, 1, sizeof(*store), reterr));
    if (pl_store_init(&store->head, &directory_ops, path, reterr) != PL_OK) {
        free(store);
        return PL_MEMORY;
    }
    store->fd = fd;
    store->dotted = dotted;
    fd = -1;
    *ret_store = &store->head;
    return PL_OK;
}
