/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a table's rows: each server writes its own and reads all. */
#include "runtime/server/row_file.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
        return pl_error_set(reterr, PL_CORRUPT, "it does not begin as a file of rows does");
    }
    if (head->version != VERSION) {
        return pl_error_set(reterr, PL_CORRUPT, "it is of version %llu, expected %d", (unsigned long long)head->version,
                            VERSION);
    }
    if (head->crc32c != head_crc(head)) {
        return pl_error_set(reterr, PL_CORRUPT, "its head has another CRC-32C than it says");
    }
    if (pl_table_check(&head->table, &error) != PL_OK) {
        return pl_error_set(reterr, PL_CORRUPT, "%s", error.cause);
    }
    if (head->parts < 1 || head->parts > MOST_PARTS || head->part >= head->parts || head->rows > UINT32_MAX) {
        return pl_error_set(reterr, PL_CORRUPT, "it is part %llu of %llu, with %llu rows",
                            (unsigned long long)head->part, (unsigned long long)head->parts,
                            (unsigned long long)head->rows);
    }
    return PL_OK;
}

static void print_path(struct pl_text *path, const char *directory, const char *name, int part, int parts)
{
    pl_text_printf(path, "%s/%s-%05d-of-%05d.rows", directory, name, part, parts);
}

/* Of how many parts the files of table `name` are; 0: there are none. What begins with `left` is removed: what a server
 * that was killed while it wrote its part has left. NULL: nothing is. */
static enum pl_status count_parts(const char *directory, const char *name, const char *left, int *ret_parts,
                                  struct pl_error *reterr)
{
    DIR *stream = opendir(directory);
    size_t length = strlen(name);
    const struct dirent *entry;
    int found = 0;

    if (!stream) {
        return pl_error_raise(reterr, errno == ENOENT ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO, errno,
                              "open directory '%s'", directory);
    }
    while ((entry = readdir(stream))) {
        int part, parts, end = 0;

        if (left && strncmp(entry->d_name, left, strlen(left)) == 0) {
            (void)unlinkat(dirfd(stream), entry->d_name, 0);
        }
        if (strncmp(entry->d_name, name, length) != 0 ||
            sscanf(entry->d_name + length, "-%5d-of-%5d.rows%n", &part, &parts, &end) != 2 || end == 0 ||
            entry->d_name[length + (size_t)end] != '\0' || parts < 1) {
            continue;
        }
        if (found != 0 && found != parts) {
            (void)closedir(stream);
            return pl_error_set(reterr, PL_INVALID,
                                "'%s' has files of table '%s' by %d servers and by %d: expected one", directory, name,
                                found, parts);
        }
        found = parts;
    }
    (void)closedir(stream);
    *ret_parts = found;
    return PL_OK;
}

enum pl_status pl_row_file_write(const char *directory, const struct pl_table *table, const struct pl_row_store *store,
                                 int part, int parts, uint64_t moment, struct pl_error *reterr)
{
    struct pl_row_file_head head = {.version = VERSION,
                                    .table = *table,
                                    .part = (uint64_t)part,
                                    .parts = (uint64_t)parts,
                                    .rows = pl_row_store_rows(store),
                                    .moment = moment};
    uint64_t crc32c = 0, chunks = pl_row_store_chunks(store);
    PL_AUTO_FREE struct iovec *pieces = pl_memory_new(chunks + 2, sizeof(*pieces), reterr);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, left = PL_TEXT_NONE;
    int there = 0;

    if (!pieces) {
        return PL_MEMORY;
    }
    print_path(&path, directory, table->name, part, parts);
    PL_TRY(pl_text_check(&path, reterr));
    pl_text_printf(&left, ".%s.", strrchr(path.data, '/') + 1); /* as pl_file_write_atomic() names it */
    PL_TRY(pl_text_check(&left, reterr));
    PL_TRY(pl_file_make_dirs(directory, 0777, reterr));
    PL_TRY(count_parts(directory, table->name, left.data, &there, reterr));
    if (there != 0 && there != parts) {
        return pl_error_set(reterr, PL_INVALID,
                            "'%s' has files of table '%s' by %d servers, and there are %d now: expected a directory "
                            "without them",
                            directory, table->name, there, parts);
    }
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

/* What all parts have in common is in `first`, which the first of them fills. */
static enum pl_status check_head(const struct pl_row_file_head *head, uint64_t bytes, const struct pl_table *table,
                                 int part, int parts, uint64_t record_bytes, struct pl_row_file_head *first,
                                 struct pl_error *reterr)
{
    uint64_t expected;

    PL_TRY(pl_row_file_check(head, reterr));
    if (head->part != (uint64_t)part || head->parts != (uint64_t)parts) {
        return pl_error_set(reterr, PL_CORRUPT, "it is part %llu of %llu inside", (unsigned long long)head->part,
                            (unsigned long long)head->parts);
    }
    if (head->table.columns != table->columns || head->table.kind != table->kind) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "its rows have %llu columns and optimizer %s, those of the table %llu and %s",
                            (unsigned long long)head->table.columns, head->table.kind == PL_ADAGRAD ? "adagrad" : "sgd",
                            (unsigned long long)table->columns, table->kind == PL_ADAGRAD ? "adagrad" : "sgd");
    }
    if (part == 0) {
        *first = *head;
    }
    if (head->moment != first->moment) {
        return pl_error_set(reterr, PL_MISMATCH, "it is of another save than part 0");
    }
    expected = sizeof(*head) + head->rows * record_bytes + sizeof(uint64_t);
    return bytes == expected ? PL_OK
                             : pl_error_set(reterr, PL_CORRUPT, "it has %llu bytes, expected %llu",
                                            (unsigned long long)bytes, (unsigned long long)expected);
}

struct reader {
    const struct pl_table *table;
    struct pl_row_store *store;
    int host, hosts;
    char *buffer;
    uint64_t buffer_records;
    struct pl_row_file_head first;
};

static enum pl_status read_part(struct reader *reader, const char *path, int part, int parts, struct pl_error *reterr)
{
    const uint64_t record_bytes = pl_row_store_record_bytes(reader->store);
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct pl_row_file_head head;
    uint64_t said_crc, crc32c = 0;
    struct stat info;

    if (fd < 0) {
        return errno == ENOENT ? pl_error_set(reterr, PL_NOT_FOUND, "a file of the table is missing")
                               : pl_error_errno(reterr, "open a file of the table");
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_CORRUPT, "it is no regular file");
    }
    PL_TRY(read_all(fd, path, &head, sizeof(head), reterr));
    PL_TRY(check_head(&head, (uint64_t)info.st_size, reader->table, part, parts, record_bytes, &reader->first, reterr));
    for (uint64_t left = head.rows, count; left > 0; left -= count) {
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
    return said_crc == crc32c ? PL_OK : pl_error_set(reterr, PL_CORRUPT, "its rows have another CRC-32C than it says");
}

enum pl_status pl_row_file_read(const char *directory, const struct pl_table *table, struct pl_row_store *store,
                                int host, int hosts, struct pl_error *reterr)
{
    const uint64_t record_bytes = pl_row_store_record_bytes(store);
    struct reader reader = {.table = table, .store = store, .host = host, .hosts = hosts};
    enum pl_status status = PL_OK;
    int parts = 0;

    pl_row_store_clear(store);
    PL_TRY(count_parts(directory, table->name, NULL, &parts, reterr));
    if (parts == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "'%s' has no files of table '%s'", directory, table->name);
    }
    reader.buffer_records = BUFFER_BYTES / record_bytes > 0 ? BUFFER_BYTES / record_bytes : 1;
    reader.buffer = pl_memory_new(reader.buffer_records, record_bytes, reterr);
    if (!reader.buffer) {
        return PL_MEMORY;
    }
    for (int part = 0; part < parts && status == PL_OK; part++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        print_path(&path, directory, table->name, part, parts);
        status = pl_text_check(&path, reterr);
        if (status == PL_OK) {
            status = read_part(&reader, pl_text_string(&path), part, parts, reterr);
        }
        if (status != PL_OK) {
            pl_error_context(reterr, "'%s'", pl_text_string(&path));
            pl_row_store_clear(store);
        }
    }
    free(reader.buffer);
    return status;
}
