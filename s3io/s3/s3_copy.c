/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads objects into files, with resuming and renaming. */
#include "s3io/s3/s3_get.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/s3/sigv4.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOCK_TRIES = 100, /* most attempts; one more is needed whenever another download renames the file meanwhile */
    NUMBER_BYTES = 16,
    PART_BYTES = NUMBER_BYTES + 6, /* length of ".XXXXXXXXXXXXXXXX.part" */
    READ_BYTES = 256 * 1024,
};

struct download {
    struct pl_s3_client *client;
    struct pl_s3_fetch *fetches;
    size_t count;
    const struct pl_s3_stream_options *options;
    int64_t read_timeout_ns;
    const struct pl_s3_progress *progress;
    size_t current; /* index of the fetch whose file is open */
    int fd;         /* -1 if no file is open */
    /* checksum of the bytes of a file that is resumed; for other files the stream checks it */
    struct pl_checksum checksum;
    struct pl_text part_path;
};

enum pl_status pl_s3_local_path(const char *directory, const char *key, struct pl_text *path, struct pl_error *reterr)
{
    const char *at = key;

    for (;;) {
        size_t length = strcspn(at, "/");

        if (length == 0 || (length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.')) {
            return pl_error_set(reterr, PL_INVALID, "the key '%s' cannot be the path of a file in a directory", key);
        }
        if (!at[length]) {
            break;
        }
        at += length + 1;
    }
    pl_text_printf(path, "%s%s%s", directory, *directory && directory[strlen(directory) - 1] == '/' ? "" : "/", key);
    return pl_text_check(path, reterr);
}

/*
 * Makes the name of the unfinished file. It has a number from the ETag, so that bytes of another version are never
 * continued. A long name is cut, and then the number covers the whole name too, which makes it unique. The number is
 * the beginning of a hash: two long names with the same beginning and the same ETag have different numbers.
 */
static enum pl_status name_part(const struct pl_s3_fetch *fetch, struct pl_text *path, struct pl_error *reterr)
{
    const char *slash = strrchr(fetch->path, '/'), *name = slash ? slash + 1 : fetch->path;
    size_t directory = (size_t)(name - fetch->path), length = strlen(name);
    PL_AUTO_TEXT struct pl_text told_by = PL_TEXT_NONE;
    char hex[PL_SIGV4_HEX_BYTES];

    pl_text_append(&told_by, fetch->object.etag ? fetch->object.etag : "");
    if (length > NAME_MAX - PART_BYTES) {
        pl_text_printf(&told_by, "/%s", name);
        length = pl_text_whole_bytes(name, NAME_MAX - PART_BYTES); /* some file systems accept nothing but UTF-8 */
    }
    PL_TRY(pl_text_check(&told_by, reterr));
    PL_TRY(pl_sigv4_hash(pl_text_string(&told_by), told_by.length, hex, reterr));
    pl_text_clear(path);
    pl_text_append_n(path, fetch->path, directory + length);
    pl_text_printf(path, ".%.*s.part", NUMBER_BYTES, hex);
    return pl_text_check(path, reterr);
}

static bool is_there(const struct pl_s3_fetch *fetch)
{
    struct stat info;

    return fetch->modified_s >= 0 && stat(fetch->path, &info) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size == fetch->object.size_bytes && (int64_t)info.st_mtime == fetch->modified_s;
}

/* Finds where to resume an unfinished file. Its name depends on the ETag, so its bytes belong to this object. Asks the
 * server for the object's checksum, because a listing does not have it. */
static enum pl_status find_beginning(struct download *download, struct pl_s3_fetch *fetch, struct pl_error *reterr)
{
    struct pl_s3_object *object = &fetch->object;
    struct stat info;

    object->first_byte = 0;
    PL_TRY(name_part(fetch, &download->part_path, reterr));
    if (object->etag && lstat(download->part_path.data, &info) == 0 && S_ISREG(info.st_mode) &&
        (uint64_t)info.st_size <= object->size_bytes) {
        object->first_byte = (uint64_t)info.st_size;
    }
    if (object->first_byte && object->checksum.kind == PL_CHECKSUM_NONE) {
        int64_t deadline_ns = pl_deadline_after_ns(download->read_timeout_ns);
        struct pl_s3_info head = {.etag = NULL};

        PL_TRY(pl_s3_head(download->client, object->bucket, object->key, deadline_ns, &head, reterr));
        object->checksum = head.checksum;
        pl_s3_info_done(&head);
    }
    return PL_OK;
}

/* Opens and locks the unfinished file; no other download may write it. Tries again if the file got its final name
 * between open() and flock(). */
static enum pl_status lock_part(struct download *download, struct stat *ret_info, struct pl_error *reterr)
{
    const char *path = download->part_path.data;
    struct stat named;

    for (unsigned tries = 0; tries < LOCK_TRIES; tries++) {
        download->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (download->fd < 0) {
            return pl_error_errno(reterr, "open '%s' for writing", path);
        }
        /* On a file system without locks it is written without a lock. */
        if (flock(download->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            return pl_error_set(reterr, PL_FAILED, "'%s' is being written by another download", path);
        }
        if (fstat(download->fd, ret_info) != 0) { /* not before the lock, because its size may change until then */
            return pl_error_errno(reterr, "fstat '%s'", path);
        }
        if (lstat(path, &named) == 0 && named.st_dev == ret_info->st_dev && named.st_ino == ret_info->st_ino) {
            return PL_OK;
        }
        pl_file_close_at(&download->fd);
    }
    return pl_error_set(
        reterr, PL_FAILED,
        "'%s' is a different file each time it is opened: see whether its file system keeps inode numbers", path);
}

static enum pl_status is_shorter(const struct download *download, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "'%s' has become shorter during the download", download->part_path.data);
}

/* Adds the bytes of an earlier run to the checksum. */
static enum pl_status add_left(struct download *download, uint64_t bytes, struct pl_error *reterr)
{
    PL_AUTO_FREE unsigned char *block = NULL;
    size_t got;

    PL_TRY(pl_memory_alloc(&block, READ_BYTES, 1, reterr));
    for (uint64_t done = 0; done < bytes; done += got) {
        PL_TRY(pl_file_read_some(download->fd, block, pl_number_min(bytes - done, READ_BYTES),
                                 pl_deadline_after_ns(download->read_timeout_ns), download->part_path.data, &got,
                                 reterr));
        if (got == 0) {
            return is_shorter(download, reterr);
        }
        pl_checksum_add(&download->checksum, block, got);
    }
    return PL_OK;
}

static enum pl_status open_part(struct download *download, size_t index, struct pl_error *reterr)
{
    const struct pl_s3_fetch *fetch = &download->fetches[index];
    uint64_t first = fetch->object.first_byte;
    struct stat info;

    PL_TRY(pl_file_make_parents(fetch->path, 0777, reterr));
    PL_TRY(name_part(fetch, &download->part_path, reterr));
    PL_TRY(lock_part(download, &info, reterr));
    download->current = index;
    if ((uint64_t)info.st_size < first) {
        return is_shorter(download, reterr);
    }
    download->checksum = (struct pl_checksum){.kind = first ? fetch->object.checksum.kind : PL_CHECKSUM_NONE};
    if (download->checksum.kind != PL_CHECKSUM_NONE) {
        PL_TRY(add_left(download, first, reterr));
    }
    if (ftruncate(download->fd, (off_t)first) != 0 || lseek(download->fd, (off_t)first, SEEK_SET) < 0) {
        return pl_error_errno(reterr, "truncate or seek '%s'", download->part_path.data);
    }
    return PL_OK;
}

/* Removes an unfinished file with wrong bytes, so that no run continues it. */
static void remove_part(const struct download *download, struct pl_error *reterr)
{
    if (unlink(download->part_path.data) != 0) {
        pl_error_context(reterr, "'%s' has wrong bytes and cannot be removed: remove it yourself",
                         download->part_path.data);
    }
}

/* Gives a complete file its time and its name. It stays locked until then: another download would take it for an
 * unfinished file. */
static enum pl_status finish_file(struct download *download, struct pl_error *reterr)
{
    const struct pl_s3_fetch *fetch = &download->fetches[download->current];
    const char *path = download->part_path.data;
    int written_fd = fcntl(download->fd, F_DUPFD_CLOEXEC, 0);

    if (written_fd < 0) {
        return pl_error_errno(reterr, "duplicate the descriptor of '%s'", path);
    }
    if (fetch->modified_s >= 0) {
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)fetch->modified_s}};

        futimens(written_fd, times); /* if this fails, a later run fetches the object again */
    }
    /* Network file systems report a failed write here. */
    if (close(written_fd) != 0) {
        pl_error_errno(reterr, "close '%s'", path);
        remove_part(download, reterr);
        return PL_SYSTEM;
    }
    if (rename(path, fetch->path) != 0) {
        return pl_error_errno(reterr, "rename '%s' to '%s'", path, fetch->path);
    }
    pl_file_close_at(&download->fd);
    return PL_OK;
}

static enum pl_status write_chunk(struct download *download, size_t base, const struct pl_s3_chunk *chunk,
                                  struct pl_error *reterr)
{
    size_t index = base + chunk->object;
    const struct pl_s3_object *object = &download->fetches[index].object;

    if (download->fd < 0) {
        PL_TRY(open_part(download, index, reterr));
    }
    pl_checksum_add(&download->checksum, chunk->data, chunk->bytes);
    if (chunk->last) {
        PL_TRY(pl_s3_check_whole(object, &download->checksum, &object->checksum, reterr));
    }
    PL_TRY(pl_file_write_fd(download->fd, chunk->data, chunk->bytes, download->part_path.data, reterr));
    if (download->progress) {
        download->progress->moved(download->progress->context, download->fetches[index].path, chunk->bytes);
    }
    return chunk->last ? finish_file(download, reterr) : PL_OK;
}

/* Runs one stream over the fetches from number `base` on. */
static enum pl_status run_stream(struct download *download, size_t base, struct pl_error *reterr)
{
    size_t count = download->count - base;
    PL_AUTO_FREE struct pl_s3_object *objects = NULL;
    struct pl_s3_stream *stream = NULL;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&objects, count, sizeof(*objects), reterr));
    for (size_t i = 0; i < count; i++) {
        objects[i] = download->fetches[base + i].object;
    }
    PL_TRY(pl_s3_stream_open(download->client, objects, count, download->options, &stream, reterr));
    do {
        struct pl_s3_chunk chunk;

        status = pl_s3_stream_next(stream, pl_deadline_after_ns(download->read_timeout_ns), &chunk, reterr);
        if (status == PL_OK) {
            status = write_chunk(download, base, &chunk, reterr);
        }
    } while (status == PL_OK);
    pl_s3_stream_close(stream);
    return status == PL_END ? PL_OK : status;
}

/* Runs streams until all fetches are done. If bytes do not match their checksum, they are fetched once more. */
static enum pl_status run(struct download *download, struct pl_error *reterr)
{
    size_t base = 0, refetched = SIZE_MAX;

    for (;;) {
        enum pl_status status = run_stream(download, base, reterr);
        size_t current = download->current;

        if (download->fd >= 0) {
            if (status == PL_CORRUPT) {
                remove_part(download, reterr);
            }
            pl_file_close_at(&download->fd);
        } else if (status == PL_CORRUPT) {
            return status; /* there is no file to begin again */
        }
        if (status != PL_CORRUPT || refetched == current) {
            return status;
        }
        refetched = base = current;
        download->fetches[current].object.first_byte = 0;
    }
}

enum pl_status pl_s3_download(struct pl_s3_client *client, struct pl_s3_fetch *fetches, size_t count,
                              const struct pl_s3_stream_options *options, bool again, int64_t read_timeout_ns,
                              const struct pl_s3_progress *progress, struct pl_error *reterr)
{
    struct download download = {.client = client,
                                .fetches = fetches,
                                .options = options,
                                .read_timeout_ns = read_timeout_ns,
                                .progress = progress,
                                .fd = -1};
    enum pl_status status = PL_OK;

    /* Move the objects that must be fetched to the front. */
    for (size_t i = 0; i < count && status == PL_OK; i++) {
        struct stat info;

        /* The new file replaces its name, which must not belong to a device or a directory. */
        if (stat(fetches[i].path, &info) == 0 && !S_ISREG(info.st_mode)) {
            status = pl_error_set(reterr, PL_INVALID, "'%s' exists already and is not a file", fetches[i].path);
            continue;
        }
        if (!again && is_there(&fetches[i])) {
            if (progress) {
                progress->moved(progress->context, fetches[i].path, fetches[i].object.size_bytes);
            }
            continue;
        }
        status = find_beginning(&download, &fetches[i], reterr);
        if (progress && fetches[i].object.first_byte) {
            progress->moved(progress->context, fetches[i].path, fetches[i].object.first_byte);
        }
        fetches[download.count++] = fetches[i];
    }
    if (status == PL_OK && download.count) {
        status = run(&download, reterr);
    }
    pl_text_done(&download.part_path);
    return status;
}
