/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a table's rows: each server writes one file, and reads the files of all servers. */
#include "runtime/server/row_store.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, MOST_PARTS = 99999, BUFFER_BYTES = 1 << 20 };

static const char magic[8] = "PLROWS";

static uint64_t head_crc(const struct pl_row_file_head *head)
{
    return pl_checksum_crc32c(0, head, offsetof(struct pl_row_file_head, crc32c));
}

enum pl_status pl_row_file_check(const struct pl_row_file_head *head, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;

    if (memcmp(head->magic, magic, sizeof(magic)) != 0) {
        return pl_error_set(reterr, PL_CORRUPT, "wrong magic number: this is not a row file of Paceline");
    }
    if (head->version != VERSION) {
        return pl_error_set(reterr, PL_CORRUPT, "it is of version %llu, expected %d", (unsigned long long)head->version,
                            VERSION);
    }
    if (head->crc32c != head_crc(head)) {
        return pl_error_set(reterr, PL_CORRUPT, "the CRC-32C of its head differs from the one that it names");
    }
    if (pl_table_check(&head->table, &error) != PL_OK) {
        return pl_error_set(reterr, PL_CORRUPT, "%s", error.cause);
    }
    if (head->parts < 1 || head->parts > MOST_PARTS || head->part >= head->parts || head->rows > UINT32_MAX) {
        return pl_error_set(reterr, PL_CORRUPT, "its head cannot be right: part %llu of %llu, with %llu rows",
                            (unsigned long long)head->part, (unsigned long long)head->parts,
                            (unsigned long long)head->rows);
    }
    return PL_OK;
}

/* Part of a save; `time_ns` is 0 for an old file whose name has no time. */
struct part {
    int number, of;
    uint64_t time_ns;
};

static void print_name(char name[NAME_MAX + 1], const char *table, const struct part *part)
{
    int length = snprintf(name, NAME_MAX + 1, "%s-%05d-of-%05d", table, part->number, part->of);

    if (part->time_ns != 0) {
        length += snprintf(name + length, (size_t)(NAME_MAX + 1 - length), ".%016" PRIx64, part->time_ns);
    }
    snprintf(name + length, (size_t)(NAME_MAX + 1 - length), ".rows");
}

/* Returns whether `name` begins like a file of `table`: NAME-00000-of-00002. `*ret_rest` is the rest of the name. */
static bool read_name(const char *name, const char *table, struct part *ret_part, const char **ret_rest)
{
    struct part part = {.time_ns = 0};
    char again[NAME_MAX + 1];

    if (strncmp(name, table, strlen(table)) != 0 ||
        sscanf(name + strlen(table), "-%5d-of-%5d.%16" SCNx64, &part.number, &part.of, &part.time_ns) < 2 ||
        part.number < 0 || part.of < 1) {
        return false;
    }
    print_name(again, table, &part);
    *ret_part = part;
    *ret_rest = name + strlen(again);
    return strncmp(name, again, strlen(again)) == 0;
}

static enum pl_status open_directory(const char *directory, DIR **ret_stream, struct pl_error *reterr)
{
    *ret_stream = opendir(directory);
    return *ret_stream ? PL_OK
                       : pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                                        "cannot open directory '%s'", directory);
}

/*
 * Finds the table's newest save that is not later than `most`, and returns its part 0; `parts` is 0 if there is no
 * save.
 */
static enum pl_status find_newest(const char *directory, const char *table, uint64_t most, struct part *ret_part,
                                  struct pl_error *reterr)
{
    struct part newest = {.of = 0}, part;
    const struct dirent *entry;
    const char *rest;
    int others = 0; /* another number of parts in the names of the same save; 0: none */
    DIR *stream;

    PL_TRY(open_directory(directory, &stream, reterr));
    while ((entry = readdir(stream))) {
        if (!read_name(entry->d_name, table, &part, &rest) || *rest || part.time_ns > most) {
            continue;
        }
        if (newest.of == 0 || part.time_ns > newest.time_ns) {
            newest = (struct part){.of = part.of, .time_ns = part.time_ns};
            others = 0;
        } else if (part.time_ns == newest.time_ns && part.of != newest.of) {
            others = part.of;
        }
    }
    closedir(stream);
    if (others != 0) {
        return pl_error_set(reterr, PL_INVALID, "'%s' has files of table '%s' by %d servers and by %d: expected one",
                            directory, table, others, newest.of);
    }
    *ret_part = newest;
    return PL_OK;
}

enum pl_status pl_row_file_remove(const char *directory, const struct pl_table *table, uint64_t time_ns, bool is_whole,
                                  struct pl_error *reterr)
{
    enum pl_status status = PL_OK;
    const struct dirent *entry;
    struct part part;
    const char *rest;
    DIR *stream;

    PL_TRY(open_directory(directory, &stream, reterr));
    while ((entry = readdir(stream))) {
        const char *name = entry->d_name;
        bool is_unfinished = *name == '.'; /* a temporary file of pl_file_write_atomic() */

        if (!read_name(name + is_unfinished, table->name, &part, &rest) || *rest != (is_unfinished ? '.' : '\0') ||
            (is_unfinished ? !is_whole : (part.time_ns == time_ns) == is_whole)) {
            continue;
        }
        /* other servers of the same directory remove files too */
        if (unlinkat(dirfd(stream), name, 0) != 0 && errno != ENOENT && status == PL_OK) {
            status = pl_error_errno(reterr, "remove '%s/%s', which is of an older save", directory, name);
        }
    }
    closedir(stream);
    return status;
}

static enum pl_status print_path(struct pl_text *path, const char *directory, const char *table,
                                 const struct part *part, struct pl_error *reterr)
{
    char name[NAME_MAX + 1];

    print_name(name, table, part);
    pl_text_printf(path, "%s/%s", directory, name);
    return pl_text_check(path, reterr);
}

enum pl_status pl_row_file_write(const char *directory, const struct pl_table *table, const struct pl_row_store *store,
                                 int part, int parts, uint64_t time_ns, struct pl_error *reterr)
{
    struct pl_row_file_head head = {.version = VERSION,
                                    .table = *table,
                                    .part = (uint64_t)part,
                                    .parts = (uint64_t)parts,
                                    .rows = pl_row_store_rows(store),
                                    .time_ns = time_ns};
    uint64_t crc32c = 0, chunks = pl_row_store_chunks(store);
    PL_AUTO_FREE struct iovec *pieces = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_memory_alloc(&pieces, chunks + 2, sizeof(*pieces), reterr));
    PL_TRY(print_path(&path, directory, table->name, &(struct part){part, parts, time_ns}, reterr));
    PL_TRY(pl_file_make_dirs(directory, 0777, reterr));
    memcpy(head.magic, magic, sizeof(magic));
    head.crc32c = head_crc(&head);
    pieces[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
    for (uint64_t c = 0; c < chunks; c++) {
        pieces[c + 1] = pl_row_store_chunk(store, c);
        crc32c = pl_checksum_crc32c((uint32_t)crc32c, pieces[c + 1].iov_base, pieces[c + 1].iov_len);
    }
    pieces[chunks + 1] = (struct iovec){.iov_base = &crc32c, .iov_len = sizeof(crc32c)};
    return pl_file_write_atomic_parts(pl_text_string(&path), pieces, chunks + 2, 0666, reterr);
}

static enum pl_status read_all(int fd, const char *path, void *data, size_t bytes, struct pl_error *reterr)
{
    for (size_t at = 0, got; at < bytes; at += got) {
        PL_TRY(pl_file_read_some(fd, (char *)data + at, bytes - at, PL_DEADLINE_NEVER, path, &got, reterr));
        if (got == 0) {
            return pl_error_set(reterr, PL_CORRUPT, "it ends early");
        }
    }
    return PL_OK;
}

struct reader {
    const struct pl_table *table;
    struct pl_row_store *store;
    int host, hosts;
    char *buffer;
    uint64_t buffer_records;
    uint64_t time_ns; /* time of the save; if the name has no time, the time in part 0 */
};

static enum pl_status check_head(struct reader *reader, const struct pl_row_file_head *head, uint64_t bytes,
                                 const struct part *part, struct pl_error *reterr)
{
    const struct pl_table *table = reader->table;
    uint64_t expected;

    PL_TRY(pl_row_file_check(head, reterr));
    if (head->part != (uint64_t)part->number || head->parts != (uint64_t)part->of) {
        return pl_error_set(reterr, PL_CORRUPT, "its head says part %llu of %llu, its name another one",
                            (unsigned long long)head->part, (unsigned long long)head->parts);
    }
    if (head->table.columns != table->columns || head->table.kind != table->kind) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "its rows have %llu columns and optimizer %s, those of the table %llu and %s",
                            (unsigned long long)head->table.columns, head->table.kind == PL_ADAGRAD ? "adagrad" : "sgd",
                            (unsigned long long)table->columns, table->kind == PL_ADAGRAD ? "adagrad" : "sgd");
    }
    if (part->number == 0 && part->time_ns == 0) {
        reader->time_ns = head->time_ns;
    }
    if (head->time_ns != reader->time_ns) {
        return pl_error_set(reterr, PL_CORRUPT, "it is of another save than %s",
                            part->time_ns == 0 ? "part 0" : "its name");
    }
    expected = sizeof(*head) + head->rows * pl_row_store_record_bytes(reader->store) + sizeof(uint64_t);
    return bytes == expected ? PL_OK
                             : pl_error_set(reterr, PL_CORRUPT, "it has %llu bytes, expected %llu",
                                            (unsigned long long)bytes, (unsigned long long)expected);
}

/* Reads the records of a part, and checks their CRC. */
static enum pl_status read_records(const struct reader *reader, int fd, const char *path, uint64_t rows,
                                   struct pl_error *reterr)
{
    const uint64_t record_bytes = pl_row_store_record_bytes(reader->store);
    uint64_t said_crc, crc32c = 0;

    for (uint64_t left = rows, count; left > 0; left -= count) {
        count = left < reader->buffer_records ? left : reader->buffer_records;
        PL_TRY(read_all(fd, path, reader->buffer, count * record_bytes, reterr));
        crc32c = pl_checksum_crc32c((uint32_t)crc32c, reader->buffer, count * record_bytes);
        for (uint64_t i = 0; i < count; i++) {
            const char *record = reader->buffer + i * record_bytes;
            int64_t id;

            memcpy(&id, record, sizeof(id));
            if (pl_table_owner(id, reader->hosts) == reader->host) {
                PL_TRY(pl_row_store_put(reader->store, record, reterr));
            }
        }
    }
    PL_TRY(read_all(fd, path, &said_crc, sizeof(said_crc), reterr));
    return said_crc == crc32c
               ? PL_OK
               : pl_error_set(reterr, PL_CORRUPT, "the CRC-32C of its rows differs from the one that it names");
}

static enum pl_status read_part(struct reader *reader, const char *path, const struct part *part, bool has_records,
                                struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct pl_row_file_head head;
    struct stat info;

    if (fd < 0) {
        return errno == ENOENT ? pl_error_set(reterr, PL_NOT_FOUND, "a file of the table is missing")
                               : pl_error_errno(reterr, "open a file of the table");
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_CORRUPT, "it is not a regular file");
    }
    PL_TRY(read_all(fd, path, &head, sizeof(head), reterr));
    PL_TRY(check_head(reader, &head, (uint64_t)info.st_size, part, reterr));
    return has_records ? read_records(reader, fd, path, head.rows, reterr) : PL_OK;
}

/* Reads a save: first the heads of all parts, so that a missing part is found before records are read. */
static enum pl_status read_save(struct reader *reader, const char *directory, const struct part *save,
                                struct pl_error *reterr)
{
    struct part part = *save;

    reader->time_ns = save->time_ns;
    for (int i = 0; i < 2 * save->of; i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
        enum pl_status status;

        part.number = i % save->of;
        PL_TRY(print_path(&path, directory, reader->table->name, &part, reterr));
        status = read_part(reader, pl_text_string(&path), &part, i >= save->of, reterr);
        if (status != PL_OK) {
            pl_error_context(reterr, "'%s'", pl_text_string(&path));
            return status;
        }
    }
    return PL_OK;
}

static enum pl_status give(struct pl_error *reterr, const struct pl_error *error)
{
    if (reterr) {
        *reterr = *error;
    }
    return error->status;
}

/* Tries the saves from the newest on, until one is complete. */
static enum pl_status read_newest(struct reader *reader, const char *directory, uint64_t most,
                                  struct pl_server_rows_loaded *ret_loaded, struct pl_error *reterr)
{
    struct pl_error first = PL_ERROR_NONE;

    for (;;) {
        struct pl_error error = PL_ERROR_NONE;
        struct part save = {0};

        pl_row_store_clear(reader->store);
        PL_TRY(find_newest(directory, reader->table->name, most, &save, reterr));
        if (save.of == 0) {
            break;
        }
        error.status = read_save(reader, directory, &save, &error);
        if (error.status == PL_OK) {
            ret_loaded->oldest = ret_loaded->newest = save.time_ns;
            return PL_OK;
        }
        if (error.status != PL_NOT_FOUND && error.status != PL_CORRUPT) {
            pl_row_store_clear(reader->store);
            return give(reterr, &error);
        }
        if (first.status == PL_OK) {
            first = error;
            pl_error_text(&first, ret_loaded->passed, sizeof(ret_loaded->passed));
        }
        if (save.time_ns == 0) {
            break;
        }
        most = save.time_ns - 1;
    }
    pl_row_store_clear(reader->store);
    return first.status != PL_OK
               ? give(reterr, &first)
               : pl_error_set(reterr, PL_NOT_FOUND, "'%s' has no files of table '%s'", directory, reader->table->name);
}

enum pl_status pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                int host, int hosts, uint64_t most, struct pl_server_rows_loaded *ret_loaded,
                                struct pl_error *reterr)
{
    const uint64_t record_bytes = pl_row_store_record_bytes(store);
    struct reader reader = {.table = table, .store = store, .host = host, .hosts = hosts};
    enum pl_status status;

    reader.buffer_records = BUFFER_BYTES / record_bytes > 0 ? BUFFER_BYTES / record_bytes : 1;
    reader.buffer = pl_memory_new(reader.buffer_records, record_bytes, reterr);
    if (!reader.buffer) {
        pl_row_store_clear(store);
        return PL_MEMORY;
    }
    *ret_loaded = (struct pl_server_rows_loaded){.oldest = 0};
    status = read_newest(&reader, directory, most, ret_loaded, reterr);
    free(reader.buffer);
    return status;
}
