/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads lines with chained checksums. */
#include "programs/sweep/journal_file.h"

#include "base/checksum.h"
#include "base/file.h"
#include "programs/sweep/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CRC_DIGITS = 8 };

static const char head[] = "{\"sweep\": ";
static const char old_head[] = "{\"sweep\": 1, ";
static const char crc_head[] = ", \"crc\": \"";
static const char crc_end[] = "\"}";

/* Length of a line's end, without the newline. */
enum { CRC_BYTES = sizeof(crc_head) - 1 + CRC_DIGITS + sizeof(crc_end) - 1 };

enum pl_status pl_journal_file_sync_folder(const struct pl_journal_file *file, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    pl_sweep_archive_folder_of(file->path, &folder);
    PL_TRY(pl_text_check(&folder, reterr));
    fd = open(pl_text_string(&folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        return pl_error_errno(reterr, "fsync the folder of '%s'", file->path);
    }
    return PL_OK;
}

static enum pl_status in_use(const struct pl_journal_file *file, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "'%s' is in use by another sweep", file->path);
}

enum pl_status pl_journal_file_take(struct pl_journal_file *file, int flags, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(file->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags, 0644);
    struct stat info, named;

    if (fd < 0 && errno != EEXIST) {
        return pl_error_errno(reterr, "open '%s'", file->path);
    }
    if (fd < 0) {
        return in_use(file, reterr);
    }
    if (fstat(fd, &info) != 0) {
        return pl_error_errno(reterr, "fstat '%s'", file->path);
    }
    if (!S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s': expected a file for the journal of a sweep, found another kind",
                            file->path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? in_use(file, reterr) : pl_error_errno(reterr, "flock '%s'", file->path);
    }
    if (stat(file->path, &named) != 0 || named.st_ino != info.st_ino) {
        return in_use(file, reterr); /* another sweep has archived this file in the meantime */
    }
    pl_file_close_at(&file->fd);
    file->fd = fd;
    fd = -1;
    return PL_OK;
}

enum pl_status pl_journal_file_write(struct pl_journal_file *file, struct pl_text *line, bool to_disk,
                                     struct pl_error *reterr)
{
    const uint32_t crc = pl_checksum_crc32c(file->crc, line->data, line->length);
    enum pl_status status;

    pl_text_printf(line, "%s%08" PRIx32 "%s\n", crc_head, crc, crc_end);
    PL_TRY(pl_text_check(line, reterr));
    if (file->broken) {
        return pl_error_set(reterr, PL_SYSTEM,
                            "'%s' ends with an incomplete line after an earlier error: nothing more can be appended",
                            file->path);
    }
    status = pl_file_write_fd(file->fd, line->data, line->length, file->path, reterr);
    if (status == PL_OK && to_disk &&
        fdatasync(file->fd) != 0) { /* over NFS, and with a quota, it tells of a full disk */
        status = pl_error_errno(reterr, "fdatasync '%s'", file->path);
    }
    if (status != PL_OK) {
        file->broken = ftruncate(file->fd, file->bytes) != 0;
        return status;
    }
    file->bytes += (off_t)line->length;
    file->crc = crc;
    return PL_OK;
}

void pl_journal_line_done(struct pl_journal_line *line)
{
    if (line->stream) {
        fclose(line->stream);
    }
    free(line->text);
}

enum pl_status pl_journal_line_open(struct pl_journal_file *file, struct pl_journal_line *line, struct pl_error *reterr)
{
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);

    line->stream = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!line->stream || fseeko(line->stream, 0, SEEK_SET) != 0) {
        const enum pl_status status = pl_error_errno(reterr, "read '%s'", file->path);

        if (!line->stream) {
            pl_file_close_at(&fd);
        }
        return status;
    }
    file->bytes = 0;
    file->crc = 0;
    return PL_OK;
}

/* Sets the error "PATH, line LINE, column COLUMN: expected `expected`, found `found`". */
static enum pl_status wrong_line(const struct pl_journal_file *file, const struct pl_journal_line *line, size_t column,
                                 const char *expected, const char *found, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "%s, line %zu, column %zu: expected %s, found %s", file->path, line->number,
                        column, expected, found);
}

/* Whether the first `bytes` of a line have the end of a complete line. */
static bool has_crc(const char *text, size_t bytes)
{
    return bytes >= CRC_BYTES && memcmp(text + bytes - CRC_BYTES, crc_head, sizeof(crc_head) - 1) == 0 &&
           memcmp(text + bytes - (sizeof(crc_end) - 1), crc_end, sizeof(crc_end) - 1) == 0;
}

/* Checks the rest of a file that has no newline. Returns PL_END if it is a line that was written in part. */
static enum pl_status check_rest(const struct pl_journal_file *file, const struct pl_journal_line *line, size_t bytes,
                                 struct pl_error *reterr)
{
    const size_t head_bytes = bytes < sizeof(head) - 1 ? bytes : sizeof(head) - 1;

    if (has_crc(line->text, bytes - 1)) { /* the line is complete, and another character is in place of the newline */
        return wrong_line(file, line, bytes, "the end of the line", "something else", reterr);
    }
    if (line->number == 1 && memcmp(line->text, head, head_bytes) != 0) {
        return wrong_line(file, line, 1, "the journal of a sweep", "something else", reterr);
    }
    return PL_END;
}

enum pl_status pl_journal_line_next(struct pl_journal_file *file, struct pl_journal_line *line, struct pl_error *reterr)
{
    const ssize_t read_bytes = getline(&line->text, &line->capacity, line->stream);
    const size_t bytes = read_bytes > 0 ? (size_t)read_bytes : 0;
    char expected[64], found[CRC_DIGITS + 3];
    uint32_t crc;

    line->number++;
    if (bytes == 0) {
        return ferror(line->stream) ? pl_error_errno(reterr, "read '%s'", file->path) : PL_END;
    }
    if (line->text[bytes - 1] != '\n') {
        return check_rest(file, line, bytes, reterr);
    }
    if (line->number == 1 && strncmp(line->text, old_head, sizeof(old_head) - 1) == 0 &&
        !has_crc(line->text, bytes - 1)) {
        return wrong_line(file, line, 11, "a journal of version 2", "version 1, which an earlier Paceline wrote",
                          reterr);
    }
    if (!has_crc(line->text, bytes - 1)) {
        return line->number == 1
                   ? wrong_line(file, line, 1, "the journal of a sweep", "something else", reterr)
                   : wrong_line(file, line, bytes, "a checksum before the end of the line", "none", reterr);
    }
    line->bytes = bytes - 1 - CRC_BYTES;
    crc = pl_checksum_crc32c(file->crc, line->text, line->bytes);
    snprintf(expected, sizeof(expected), "the checksum %08" PRIx32 " of this line and all lines before it", crc);
    snprintf(found, sizeof(found), "%.*s", CRC_DIGITS, line->text + line->bytes + sizeof(crc_head) - 1);
    if (strncmp(expected + sizeof("the checksum ") - 1, found, CRC_DIGITS) != 0) {
        return wrong_line(file, line, line->bytes + sizeof(crc_head), expected, found, reterr);
    }
    line->text[line->bytes++] = '}';
    file->bytes += read_bytes;
    file->crc = crc;
    return PL_OK;
}
