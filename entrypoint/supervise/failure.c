/* SPDX-License-Identifier: Apache-2.0 */
/* Writes output/failure and output/success, also on a full disk or after the program replaced the directory. */
#include "entrypoint/supervise/failure.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NEW_NAMES_MAX = 1000 };

/* If `failure` or `success` is a directory, rename it, for example to `failure.1`, and keep its contents. */
static enum pl_status move_away(const struct pl_failure *failure, const char *name, struct pl_error *reterr)
{
    char new_name[32];
    struct stat info;
    int number = 1;

    do {
        snprintf(new_name, sizeof(new_name), "%s.%d", name, number++);
    } while (number <= NEW_NAMES_MAX && fstatat(failure->directory_fd, new_name, &info, AT_SYMLINK_NOFOLLOW) == 0);
    if (renameat(failure->directory_fd, name, failure->directory_fd, new_name) != 0) {
        return pl_error_errno(reterr, "rename the directory '%s' to '%s'", name, new_name);
    }
    pl_log(PL_LOG_WARNING, "%s/%s is a directory, but a file of this name is needed: the directory is renamed to %s",
           failure->path, name, new_name);
    return PL_OK;
}

/* Returns whether the file `name` exists, and sets `ret_info`. */
static bool look(const struct pl_failure *failure, const char *name, struct stat *ret_info)
{
    return fstatat(failure->directory_fd, name, ret_info, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum pl_status make_way(const struct pl_failure *failure, const char *name, struct pl_error *reterr)
{
    struct stat info;

    return look(failure, name, &info) && S_ISDIR(info.st_mode) ? move_away(failure, name, reterr) : PL_OK;
}

/* Remove a file that an earlier run left in the same directory, because it says nothing about this run. */
static enum pl_status remove_old(const struct pl_failure *failure, const char *name, struct pl_error *reterr)
{
    struct stat info;
    /* Look first: a read-only file system also refuses to remove a file that does not exist. */
    const bool exists = look(failure, name, &info);

    if (exists && S_ISDIR(info.st_mode)) {
        return move_away(failure, name, reterr);
    }
    if (!exists && errno == ENOENT) {
        return PL_OK;
    }
    return unlinkat(failure->directory_fd, name, 0) == 0 || errno == ENOENT
               ? PL_OK
               : pl_error_errno(reterr, "remove the old file '%s'", name);
}

/* Reserve disk space, so that a program that fills the disk leaves enough for the report. Some file systems cannot
 * reserve space. */
static void reserve(struct pl_failure *failure)
{
    failure->reserve_fd = openat(failure->directory_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (failure->reserve_fd >= 0 && fallocate(failure->reserve_fd, 0, 0, PL_FAILURE_RESERVE_BYTES) == 0) {
        return;
    }
    if (errno == ENOSPC || errno == EDQUOT) {
        pl_log(PL_LOG_WARNING,
               "the disk is full under %s before the job starts: neither a failure file nor output can be written "
               "there; give the job a larger volume (volume_size in the SDK)",
               failure->path);
    }
    pl_file_close_at(&failure->reserve_fd);
}

static enum pl_status open_directory(const char *path, int *ret_fd, struct pl_error *reterr)
{
    int fd;

    PL_TRY(pl_file_make_dirs(path, 0755, reterr));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%.300s'", path);
    }
    *ret_fd = fd;
    return PL_OK;
}

enum pl_status pl_failure_open(struct pl_failure *failure, const char *output, struct pl_error *reterr)
{
    failure->path = pl_memory_string(output, reterr);
    PL_TRY(failure->path ? PL_OK : PL_MEMORY);
    PL_TRY(open_directory(output, &failure->directory_fd, reterr));
    reserve(failure);
    PL_TRY(remove_old(failure, "failure", reterr));
    return remove_old(failure, "success", reterr);
}

/* Find the directory to write the files into. A program that clears the output directory may have removed the directory
 * that is held open: no reader would look there. */
static enum pl_status choose_directory(struct pl_failure *failure, struct pl_error *reterr)
{
    struct stat held, named;
    int fd = -1;

    if (failure->directory_fd < 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "there is no output directory");
    }
    if (stat(failure->path, &named) == 0 && fstat(failure->directory_fd, &held) == 0 && named.st_dev == held.st_dev &&
        named.st_ino == held.st_ino) {
        return PL_OK;
    }
    if (open_directory(failure->path, &fd, NULL) == PL_OK) { /* if that fails, use the directory that is held open */
        pl_file_close_at(&failure->directory_fd);
        failure->directory_fd = fd;
    }
    return PL_OK;
}

/* Append about the first `max_bytes` of the file that the program wrote itself, if it wrote one. */
static void append_own(const struct pl_failure *failure, size_t max_bytes, struct pl_text *text)
{
    PL_AUTO_CLOSE int fd = openat(failure->directory_fd, "failure", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const struct pl_text *written = &failure->written;
    char part[4096];
    size_t bytes;

    while (fd >= 0 && text->length < max_bytes + written->length &&
           pl_file_read_some(fd, part, sizeof(part), 0, "failure", &bytes, NULL) == PL_OK && bytes > 0) {
        pl_text_append_n(text, part, bytes);
    }
    if (written->length > 0 && text->length >= written->length &&
        memcmp(text->data, written->data, written->length) == 0) { /* drop our own earlier text */
        memmove(text->data + failure->own_bytes, text->data + written->length, text->length - written->length);
        text->length -= written->length - failure->own_bytes;
    }
}

bool pl_failure_has_own(const struct pl_failure *failure)
{
    PL_AUTO_TEXT struct pl_text own = PL_TEXT_NONE;

    append_own(failure, 1, &own);
    return own.length > 0;
}

static enum pl_status append_report(struct pl_failure *failure, size_t own_max_bytes, const char *text,
                                    struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;
    size_t own_bytes, begin;

    append_own(failure, own_max_bytes, &whole);
    own_bytes = whole.length;
    if (whole.length > 0) {
        pl_text_append(&whole, whole.data[whole.length - 1] != '\n' ? "\n\n" : "\n");
    }
    begin = whole.length;
    pl_text_append(&whole, text);
    PL_TRY(pl_text_check(&whole, reterr));
    pl_text_mask(whole.data + begin, whole.length - begin);
    PL_TRY(pl_file_write_atomic_at(failure->directory_fd, "failure", whole.data, whole.length, 0644, reterr));
    pl_text_done(&failure->written);
    failure->written = whole;
    failure->own_bytes = own_bytes;
    whole = PL_TEXT_NONE;
    return PL_OK;
}

enum pl_status pl_failure_write(struct pl_failure *failure, const char *text, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_file_close_at(&failure->reserve_fd);
    PL_TRY(choose_directory(failure, reterr));
    PL_TRY(make_way(failure, "failure", reterr));
    if (append_report(failure, PL_FAILURE_USER_MAX_BYTES, text, &error) == PL_OK) {
        return PL_OK;
    }
    if (error.code == ENOSPC || error.code == EDQUOT) {
        return append_report(failure, PL_FAILURE_USER_MIN_BYTES, text, reterr);
    }
    if (reterr) {
        *reterr = error;
    }
    return error.status;
}

/* Remove our text from the failure file, which was written when the job seemed to fail. Only the program's own text
 * stays. */
static enum pl_status take_back(struct pl_failure *failure, struct pl_error *reterr)
{
    size_t own_bytes = failure->own_bytes;

    if (failure->written.length == 0) {
        return PL_OK;
    }
    if (own_bytes > 0) {
        return pl_file_write_atomic_at(failure->directory_fd, "failure", failure->written.data, own_bytes, 0644,
                                       reterr);
    }
    return unlinkat(failure->directory_fd, "failure", 0) == 0 || errno == ENOENT
               ? PL_OK
               : pl_error_errno(reterr, "remove the file 'failure'");
}

enum pl_status pl_failure_succeed(struct pl_failure *failure, struct pl_error *reterr)
{
    pl_file_close_at(&failure->reserve_fd);
    PL_TRY(choose_directory(failure, reterr));
    PL_TRY(take_back(failure, reterr));
    PL_TRY(make_way(failure, "success", reterr));
    return pl_file_write_atomic_at(failure->directory_fd, "success", "", 0, 0644, reterr);
}

void pl_failure_close(struct pl_failure *failure)
{
    pl_file_close_at(&failure->reserve_fd);
    pl_file_close_at(&failure->directory_fd);
    pl_text_done(&failure->written);
    free(failure->path);
    failure->path = NULL;
}

void pl_failure_full_disks(const char *const *paths, char *text, size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; paths[i]; i++) {
        struct statvfs info;
        int length;

        if (statvfs(paths[i], &info) != 0 || info.f_blocks == 0 || (info.f_flag & ST_RDONLY) != 0) {
            continue;
        }
        /* A program that got "no space" leaves less than a page free. */
        if ((uint64_t)info.f_bavail * info.f_frsize >= 4096 && (info.f_files == 0 || info.f_favail > 0)) {
            continue;
        }
        length =
            snprintf(text + used, text_bytes - used, "%s%s", used == 0 ? "the disk is full under " : ", ", paths[i]);
        if (length < 0 || (size_t)length >= text_bytes - used) {
            return;
        }
        used += (size_t)length;
    }
}
