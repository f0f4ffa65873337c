/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a folder in pieces, and puts one together. */
#include "entrypoint/sweep/files.h"

#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/strv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct pl_files_reader {
    char *folder;
    struct pl_strv paths;
    size_t at; /* of paths: the one that is read next, or is being read */
    int fd;    /* of that file; -1: it was not opened yet */
};

struct pl_files_writer {
    char *folder, *target; /* where pieces go, and what it is renamed to at last; the same in place */
    char *path;            /* of the file that is being written; NULL */
    int fd;
    bool finished;
};

static enum pl_status list(struct pl_files_reader *reader, const char *below, struct pl_error *reterr);

static enum pl_status list_one(struct pl_files_reader *reader, const char *below, const char *name,
                               struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;
    struct stat info;

    pl_text_printf(&path, "%s%s%s", below, *below != '\0' ? "/" : "", name);
    pl_text_printf(&whole, "%s/%s", reader->folder, pl_text_string(&path));
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_text_check(&whole, reterr));
    if (lstat(pl_text_string(&whole), &info) != 0) {
        return errno == ENOENT ? PL_OK : pl_error_errno(reterr, "look at '%s'", pl_text_string(&whole));
    }
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) {
        return PL_OK;
    }
    if (reader->paths.count == PL_FILES_ENTRIES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "'%s' has more than %d files: expected less in a folder that moves",
                            reader->folder, PL_FILES_ENTRIES_MAX);
    }
    PL_TRY(pl_strv_add(&reader->paths, pl_text_string(&path), reterr));
    return S_ISDIR(info.st_mode) ? list(reader, pl_text_string(&path), reterr) : PL_OK;
}

static enum pl_status list(struct pl_files_reader *reader, const char *below, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;
    enum pl_status status = PL_OK;
    DIR *directory;

    pl_text_printf(&whole, "%s%s%s", reader->folder, *below != '\0' ? "/" : "", below);
    PL_TRY(pl_text_check(&whole, reterr));
    directory = opendir(pl_text_string(&whole));
    if (directory == NULL) {
        return errno == ENOENT ? PL_OK : pl_error_errno(reterr, "read '%s'", pl_text_string(&whole));
    }
    for (const struct dirent *entry = readdir(directory); entry != NULL && status == PL_OK;
         entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            status = list_one(reader, below, entry->d_name, reterr);
        }
    }
    (void)closedir(directory);
    return status;
}

enum pl_status pl_files_reader_open(const char *folder, struct pl_files_reader **ret_reader, struct pl_error *reterr)
{
    struct pl_files_reader *reader = pl_memory_new(1, sizeof(*reader), reterr);
    enum pl_status status;

    if (reader == NULL) {
        return PL_MEMORY;
    }
    reader->fd = -1;
    reader->folder = pl_memory_string(folder, reterr);
    status = reader->folder != NULL ? list(reader, "", reterr) : PL_MEMORY;
    if (status != PL_OK) {
        pl_files_reader_free(reader);
        return status;
    }
    *ret_reader = reader;
    return PL_OK;
}

/* Open what is next; what has gone meanwhile, as old checkpoints do, is passed over. */
static enum pl_status open_next(struct pl_files_reader *reader, struct stat *info, struct pl_error *reterr)
{
    for (; reader->at < reader->paths.count; reader->at++) {
        PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;

        pl_text_printf(&whole, "%s/%s", reader->folder, reader->paths.items[reader->at]);
        PL_TRY(pl_text_check(&whole, reterr));
        reader->fd = open(pl_text_string(&whole), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (reader->fd >= 0) {
            break;
        }
        if (errno != ENOENT && errno != ELOOP) {
            return pl_error_errno(reterr, "read '%s'", pl_text_string(&whole));
        }
    }
    if (reader->fd >= 0 && fstat(reader->fd, info) != 0) {
        return pl_error_errno(reterr, "look at '%s'", reader->paths.items[reader->at]);
    }
    return PL_OK;
}

enum pl_status pl_files_read(struct pl_files_reader *reader, struct pl_files_piece *piece, struct pl_error *reterr)
{
    struct stat info;
    ssize_t bytes = 1;

    pl_text_clear(&piece->path);
    piece->bytes = 0;
    if (reader->fd < 0) {
        PL_TRY(open_next(reader, &info, reterr));
    } else if (fstat(reader->fd, &info) != 0) {
        return pl_error_errno(reterr, "look at '%s'", reader->paths.items[reader->at]);
    }
    if (reader->at == reader->paths.count) {
        return PL_OK;
    }
    piece->mode = info.st_mode;
    pl_text_append(&piece->path, reader->paths.items[reader->at]);
    PL_TRY(pl_text_check(&piece->path, reterr));
    while (S_ISREG(info.st_mode) && bytes > 0 && piece->bytes < sizeof(piece->data)) {
        bytes = read(reader->fd, piece->data + piece->bytes, sizeof(piece->data) - piece->bytes);
        if (bytes < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "read '%s'", reader->paths.items[reader->at]);
        }
        piece->bytes += bytes > 0 ? (size_t)bytes : 0;
        bytes = bytes < 0 ? 1 : bytes;
    }
    if (piece->bytes < sizeof(piece->data)) {
        pl_file_close_at(&reader->fd);
        reader->at++;
    }
    return PL_OK;
}

void pl_files_reader_free(struct pl_files_reader *reader)
{
    if (reader != NULL) {
        pl_file_close_at(&reader->fd);
        pl_strv_done(&reader->paths);
        free(reader->folder);
        free(reader);
    }
}

enum pl_status pl_files_writer_open(const char *folder, bool in_place, struct pl_files_writer **ret_writer,
                                    struct pl_error *reterr)
{
    struct pl_files_writer *writer = pl_memory_new(1, sizeof(*writer), reterr);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    if (writer == NULL) {
        return PL_MEMORY;
    }
    writer->fd = -1;
    pl_text_printf(&path, "%s%s", folder, in_place ? "" : ".incoming");
    status = pl_text_take(&path, &writer->folder, reterr);
    writer->target = status == PL_OK ? pl_memory_string(folder, reterr) : NULL;
    status = writer->target == NULL ? PL_MEMORY : status;
    if (status == PL_OK) {
        if (!in_place) {
            pl_file_remove_tree(writer->folder);
        }
        status = pl_file_make_dirs(writer->folder, 0755, reterr);
    }
    if (status != PL_OK) {
        pl_files_writer_free(writer);
        return status;
    }
    *ret_writer = writer;
    return PL_OK;
}

/* Whether it stays below the folder: no component leads up, none is empty. */
static bool is_below(const char *path)
{
    for (;;) {
        const size_t bytes = strcspn(path, "/");

        if (bytes == 0 || (bytes == 1 && path[0] == '.') || (bytes == 2 && path[0] == '.' && path[1] == '.')) {
            return false;
        }
        if (path[bytes] == '\0') {
            return true;
        }
        path += bytes + 1;
    }
}

/* Network file systems report a failed write here. */
static enum pl_status close_file(struct pl_files_writer *writer, struct pl_error *reterr)
{
    const int fd = writer->fd;

    writer->fd = -1;
    return fd < 0 || close(fd) == 0 ? PL_OK : pl_error_errno(reterr, "write '%s/%s'", writer->folder, writer->path);
}

/* All is there: it takes the place of what was there before. */
static enum pl_status finish(struct pl_files_writer *writer, struct pl_error *reterr)
{
    PL_TRY(close_file(writer, reterr));
    writer->finished = true;
    if (strcmp(writer->folder, writer->target) == 0) {
        return PL_OK;
    }
    pl_file_remove_tree(writer->target);
    return rename(writer->folder, writer->target) == 0
               ? PL_OK
               : pl_error_errno(reterr, "rename '%s' to '%s'", writer->folder, writer->target);
}

static enum pl_status open_file(struct pl_files_writer *writer, const char *path, mode_t mode, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;

    PL_TRY(close_file(writer, reterr));
    free(writer->path);
    writer->path = pl_memory_string(path, reterr);
    PL_TRY(writer->path != NULL ? PL_OK : PL_MEMORY);
    pl_text_printf(&whole, "%s/%s", writer->folder, path);
    PL_TRY(pl_text_check(&whole, reterr));
    writer->fd = open(pl_text_string(&whole), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode & 0777);
    return writer->fd >= 0 ? PL_OK : pl_error_errno(reterr, "write '%s'", pl_text_string(&whole));
}

enum pl_status pl_files_write(struct pl_files_writer *writer, const struct pl_files_piece *piece,
                              struct pl_error *reterr)
{
    const char *path = pl_text_string(&piece->path);

    if (*path == '\0') {
        return finish(writer, reterr);
    }
    if (!is_below(path)) {
        return pl_error_set(reterr, PL_INVALID, "a file of a folder that moves: expected a path below it, found '%s'",
                            path);
    }
    if (S_ISDIR(piece->mode)) {
        PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;

        pl_text_printf(&whole, "%s/%s", writer->folder, path);
        PL_TRY(pl_text_check(&whole, reterr));
        return pl_file_make_dirs(pl_text_string(&whole), piece->mode & 0777, reterr);
    }
    if (writer->path == NULL || strcmp(writer->path, path) != 0) {
        PL_TRY(open_file(writer, path, piece->mode, reterr));
    }
    return pl_file_write_fd(writer->fd, piece->data, piece->bytes, path, reterr);
}

void pl_files_writer_free(struct pl_files_writer *writer)
{
    if (writer != NULL) {
        pl_file_close_at(&writer->fd);
        if (!writer->finished && writer->target != NULL && strcmp(writer->folder, writer->target) != 0) {
            pl_file_remove_tree(writer->folder);
        }
        free(writer->path);
        free(writer->folder);
        free(writer->target);
        free(writer);
    }
}

void pl_files_piece_done(struct pl_files_piece *piece)
{
    pl_text_done(&piece->path);
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void pl_files_encode(const char *data, size_t bytes, struct pl_text *text)
{
    for (size_t at = 0; at < bytes; at += 3) {
        const size_t have = bytes - at < 3 ? bytes - at : 3;
        uint32_t word = 0;
        char four[4];

        for (size_t i = 0; i < 3; i++) {
            word = word << 8 | (i < have ? (unsigned char)data[at + i] : 0U);
        }
        for (size_t i = 0; i < 4; i++) {
            four[i] = i <= have ? digits[word >> (18 - 6 * i) & 63] : '=';
        }
        pl_text_append_n(text, four, sizeof(four));
    }
}

enum pl_status pl_files_decode(const char *text, struct pl_files_piece *piece, struct pl_error *reterr)
{
    const size_t length = strlen(text);

    piece->bytes = 0;
    if (length % 4 != 0 || length / 4 * 3 > sizeof(piece->data) + 2) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: %zu characters are no piece of a file", length);
    }
    for (size_t at = 0; at < length; at += 4) {
        const bool last = at + 4 == length;
        const size_t have = last && text[at + 2] == '=' ? 1 : last && text[at + 3] == '=' ? 2 : 3;
        uint32_t word = 0;

        for (size_t i = 0; i < 4; i++) {
            const char *digit = i <= have && text[at + i] != '\0' ? strchr(digits, text[at + i]) : NULL;

            if (i <= have ? digit == NULL : text[at + i] != '=') {
                return pl_error_set(reterr, PL_CORRUPT, "control link: what came is no piece of a file");
            }
            word = word << 6 | (digit != NULL ? (uint32_t)(digit - digits) : 0U);
        }
        if (piece->bytes + have > sizeof(piece->data)) {
            return pl_error_set(reterr, PL_CORRUPT, "control link: a piece of a file is too long");
        }
        for (size_t i = 0; i < have; i++) {
            piece->data[piece->bytes++] = (char)(unsigned char)(word >> (16 - 8 * i));
        }
    }
    return PL_OK;
}
