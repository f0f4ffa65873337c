/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all byte sources, and the sources over memory and over a regular file. */
#include "s3io/source.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum pl_status pl_source_init(struct pl_source *source, const struct pl_source_ops *ops, const char *name,
                              struct pl_error *reterr)
{
    source->ops = ops;
    source->cancelled = false;
    source->name = pl_memory_string(name, reterr);
    return source->name ? PL_OK : PL_MEMORY;
}

enum pl_status pl_source_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr)
{
    size_t got = 0;

    PL_BUG_IF(bytes == 0);
    if (__atomic_load_n(&source->cancelled, __ATOMIC_ACQUIRE)) {
        return pl_error_set(reterr, PL_CANCELLED, "reading '%s' was cancelled", source->name);
    }
    if (!source->ended) {
        PL_TRY(source->ops->read(source, data, bytes, deadline_ns, &got, reterr));
        source->offset_bytes += got;
        source->ended = got == 0;
    }
    *ret_bytes = got;
    return PL_OK;
}

void pl_source_cancel(struct pl_source *source)
{
    __atomic_store_n(&source->cancelled, true, __ATOMIC_RELEASE);
    if (source->ops->cancel) {
        source->ops->cancel(source);
    }
}

void pl_source_close(struct pl_source *source)
{
    if (source) {
        free(source->name);
        source->ops->close(source);
    }
}

struct memory_source {
    struct pl_source head;
    const unsigned char *next;
    size_t left;
};

static enum pl_status memory_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                  size_t *ret_bytes, struct pl_error *reterr)
{
    struct memory_source *memory = (struct memory_source *)source;
    size_t got = pl_number_min(bytes, memory->left);

    (void)deadline_ns;
    (void)reterr;
    if (got) {
        memcpy(data, memory->next, got);
        memory->next += got;
        memory->left -= got;
    }
    *ret_bytes = got;
    return PL_OK;
}

static size_t memory_view(struct pl_source *source, const unsigned char **ret_data)
{
    struct memory_source *memory = (struct memory_source *)source;
    size_t left = memory->left;

    *ret_data = memory->next;
    memory->left = 0;
    source->offset_bytes += left;
    source->ended = true;
    return left;
}

static void memory_close(struct pl_source *source)
{
    free(source);
}

static const struct pl_source_ops memory_ops = {.read = memory_read, .view = memory_view, .close = memory_close};

enum pl_status pl_source_open_memory(const char *name, const void *data, size_t bytes, struct pl_source **ret_source,
                                     struct pl_error *reterr)
{
    struct memory_source *memory;

    PL_TRY(pl_memory_alloc(&memory, 1, sizeof(*memory), reterr));
    memory->next = data;
    memory->left = bytes;
    if (pl_source_init(&memory->head, &memory_ops, name, reterr) != PL_OK) {
        free(memory);
        return PL_MEMORY;
    }
    *ret_source = &memory->head;
    return PL_OK;
}

#define ANY_SIZE UINT64_MAX

struct file_source {
    struct pl_source head;
    int fd;
    uint64_t size_bytes; /* the expected size, or ANY_SIZE */
};

static enum pl_status changed(const char *name, uint64_t listed_bytes, uint64_t bytes, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT,
                        "'%s' has changed: it had %llu bytes when it was listed, and has %llu bytes now. Write data "
                        "elsewhere, then rename it",
                        name, (unsigned long long)listed_bytes, (unsigned long long)bytes);
}

/* Reads from a regular file, which is always ready: the deadline is not needed. */
static enum pl_status file_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                size_t *ret_bytes, struct pl_error *reterr)
{
    struct file_source *file = (struct file_source *)source;
    uint64_t end_bytes;
    ssize_t got;

    (void)deadline_ns;
    do {
        got = read(file->fd, data, bytes);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return pl_error_errno(reterr, "read '%s' at byte %llu", source->name, (unsigned long long)source->offset_bytes);
    }
    end_bytes = source->offset_bytes + (uint64_t)got;
    if (file->size_bytes != ANY_SIZE && (end_bytes > file->size_bytes || (got == 0 && end_bytes < file->size_bytes))) {
        return changed(source->name, file->size_bytes, end_bytes, reterr);
    }
    *ret_bytes = (size_t)got;
    return PL_OK;
}

static void file_close(struct pl_source *source)
{
    pl_file_close_at(&((struct file_source *)source)->fd);
    free(source);
}

static const struct pl_source_ops file_ops = {.read = file_read, .close = file_close};

enum pl_status pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                      uint64_t first_byte, struct pl_source **ret_source, struct pl_error *reterr)
{
    /* O_NONBLOCK, because a FIFO in a directory of files must not block the open. It has no effect on regular files. */
    PL_AUTO_CLOSE int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct file_source *made;
    struct stat info;

    if (fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT || errno == ENOTDIR ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO,
                              errno, "cannot open '%s'", name);
    }
    /* fstat() of the open descriptor needs no round trip on a mounted file system. */
    if (fstat(fd, &info) != 0) {
        return pl_error_errno(reterr, "fstat '%s'", name);
    }
    if (!S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a regular file", name);
    }
    if (size_bytes != ANY_SIZE && (uint64_t)info.st_size != size_bytes) {
        return changed(name, size_bytes, (uint64_t)info.st_size, reterr);
    }
    if (first_byte > 0 && lseek(fd, (off_t)first_byte, SEEK_SET) < 0) {
        return pl_error_errno(reterr, "seek to byte %llu of '%s'", (unsigned long long)first_byte, name);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    PL_TRY(pl_memory_alloc(&made, 1, sizeof(*made), reterr));
    if (pl_source_init(&made->head, &file_ops, name, reterr) != PL_OK) {
        free(made);
        return PL_MEMORY;
    }
    made->head.offset_bytes = first_byte;
    made->fd = fd;
    made->size_bytes = size_bytes;
    fd = -1;
    *ret_source = &made->head;
    return PL_OK;
}

enum pl_status pl_source_open_file(const char *path, struct pl_source **ret_source, struct pl_error *reterr)
{
    return pl_source_open_file_at(AT_FDCWD, path, path, ANY_SIZE, 0, ret_source, reterr);
}
