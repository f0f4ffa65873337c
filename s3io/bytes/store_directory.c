/* SPDX-License-Identifier: Apache-2.0 */
/* The regular files below a directory as an object store. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/source.h"
#include "s3io/store.h"
#include "s3io/store_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static enum pl_status directory_open(struct pl_store *store, const struct pl_object *object,
                                     struct pl_source **ret_source, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", store->name, object->key);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_source_open_file_at(((struct directory_store *)store)->fd, object->key, pl_text_string(&path),
                                  object->size_bytes, ret_source, reterr);
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
                              "open directory '%s'", path);
    }
    store = pl_memory_new(1, sizeof(*store), reterr);
    if (!store) {
        return PL_MEMORY;
    }
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
