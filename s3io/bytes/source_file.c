/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file as a byte source. */
#include "base/file.h"
#include "base/memory.h"
#include "s3io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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
                                      struct pl_source **ret_source, struct pl_error *reterr)
{
    /* O_NONBLOCK, because a FIFO in a directory of files must not block the open. It has no effect on regular files. */
    PL_AUTO_CLOSE int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct file_source *made;
    struct stat info;

    if (fd < 0) {
        return pl_error_raise(reterr, errno == ENOENT || errno == ENOTDIR ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO,
                              errno, "open '%s'", name);
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
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    made = pl_memory_new(1, sizeof(*made), reterr);
    if (!made) {
        return PL_MEMORY;
    }
    if (pl_source_init(&made->head, &file_ops, name, reterr) != PL_OK) {
        free(made);
        return PL_MEMORY;
    }
    made->fd = fd;
    made->size_bytes = size_bytes;
    fd = -1;
    *ret_source = &made->head;
    return PL_OK;
}

enum pl_status pl_source_open_file(const char *path, struct pl_source **ret_source, struct pl_error *reterr)
{
    return pl_source_open_file_at(AT_FDCWD, path, path, ANY_SIZE, ret_source, reterr);
}
