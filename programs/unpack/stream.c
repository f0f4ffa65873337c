/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives directories with libarchive. */
#include "programs/unpack/stream.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20 };

static const char end_name[] = ".paceline-end-of-stream";

static void reader_free_at(struct archive **archive)
{
    archive_read_free(*archive);
}

static void writer_free_at(struct archive **archive)
{
    archive_write_free(*archive);
}

static void entry_free_at(struct archive_entry **entry)
{
    archive_entry_free(*entry);
}

#define AUTO_READER __attribute__((cleanup(reader_free_at)))
#define AUTO_WRITER __attribute__((cleanup(writer_free_at)))
#define AUTO_ENTRY __attribute__((cleanup(entry_free_at)))

static enum pl_status no_memory(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_MEMORY, "out of memory for an archive");
}

/* What libarchive says of its last call. */
static enum pl_status raise_archive(struct archive *archive, const char *what, const char *name,
                                    struct pl_error *reterr)
{
    const char *words = archive_error_string(archive);

    return pl_error_set(reterr, archive_errno(archive) > 0 ? PL_SYSTEM : PL_CORRUPT, "%s '%.200s': %.300s", what, name,
                        words ? words : "no words of libarchive's");
}

static enum pl_status enter(const char *directory, struct pl_error *reterr)
{
    return chdir(directory) == 0 ? PL_OK : pl_error_errno(reterr, "enter '%s'", directory);
}

/* Copy the data of the entry that both archives stand at. */
static enum pl_status copy_data(struct archive *from, struct archive *to, const char *name, bool to_disk,
                                struct pl_error *reterr)
{
    const void *block;
    size_t bytes;
    la_int64_t at;

    for (;;) {
        const int got = archive_read_data_block(from, &block, &bytes, &at);

        if (got == ARCHIVE_EOF) {
            return PL_OK;
        }
        if (got != ARCHIVE_OK) {
            return raise_archive(from, "read", name, reterr);
        }
        if (to_disk ? archive_write_data_block(to, block, bytes, at) != ARCHIVE_OK
                    : archive_write_data(to, block, bytes) != (la_ssize_t)bytes) {
            return raise_archive(to, "write", name, reterr);
        }
    }
}

static enum pl_status pack_entry(struct archive *disk, struct archive *out, struct archive_entry *entry,
                                 struct pl_error *reterr)
{
    const char *name = archive_entry_pathname(entry);
    const mode_t type = archive_entry_filetype(entry);

    if (!name || strcmp(name, ".") == 0 || (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)) {
        return PL_OK;
    }
    if (archive_write_header(out, entry) != ARCHIVE_OK) {
        return raise_archive(out, "send", name, reterr);
    }
    return type == AE_IFREG ? copy_data(disk, out, name, false, reterr) : PL_OK;
}

static enum pl_status pack_all(struct archive *disk, struct archive *out, struct pl_error *reterr)
{
    AUTO_ENTRY struct archive_entry *entry = archive_entry_new();

    PL_TRY(entry ? PL_OK : no_memory(reterr));
    if (archive_read_disk_open(disk, ".") != ARCHIVE_OK) {
        return raise_archive(disk, "read", ".", reterr);
    }
    for (;;) {
        const int got = archive_read_next_header2(disk, entry);

        if (got == ARCHIVE_EOF) {
            return PL_OK;
        }
        if (got != ARCHIVE_OK) {
            return raise_archive(disk, "read", "a directory", reterr);
        }
        PL_TRY(pack_entry(disk, out, entry, reterr));
        if (archive_read_disk_can_descend(disk) && archive_read_disk_descend(disk) != ARCHIVE_OK) {
            return raise_archive(disk, "read", archive_entry_pathname(entry), reterr);
        }
        archive_entry_clear(entry);
    }
}

static enum pl_status pack_end(struct archive *out, struct pl_error *reterr)
{
    AUTO_ENTRY struct archive_entry *entry = archive_entry_new();

    PL_TRY(entry ? PL_OK : no_memory(reterr));
    archive_entry_set_pathname(entry, end_name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, 0);
    if (archive_write_header(out, entry) != ARCHIVE_OK || archive_write_close(out) != ARCHIVE_OK) {
        return raise_archive(out, "send", end_name, reterr);
    }
    return PL_OK;
}

enum pl_status pl_stream_pack(const char *directory, int fd, struct pl_error *reterr)
{
    AUTO_READER struct archive *disk = archive_read_disk_new();
    AUTO_WRITER struct archive *out = archive_write_new();

    if (!disk || !out || archive_write_set_format_pax(out) != ARCHIVE_OK ||
        archive_write_set_options(out, "hdrcharset=BINARY") != ARCHIVE_OK || /* names are bytes */
        archive_write_set_bytes_per_block(out, BLOCK_BYTES) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(out, 1) != ARCHIVE_OK || archive_write_open_fd(out, fd) != ARCHIVE_OK ||
        archive_read_disk_set_symlink_physical(disk) != ARCHIVE_OK ||
        archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
                                                 ARCHIVE_READDISK_NO_FFLAGS | ARCHIVE_READDISK_NO_SPARSE) !=
            ARCHIVE_OK) {
        return no_memory(reterr);
    }
    if (access(directory, F_OK) == 0) {
        PL_TRY(enter(directory, reterr));
        PL_TRY(pack_all(disk, out, reterr));
    } else if (errno != ENOENT) {
        return pl_error_errno(reterr, "look at '%s'", directory);
    }
    return pack_end(out, reterr);
}

/* The entries up to the one that says that all have come. */
static enum pl_status receive_all(struct archive *in, struct archive *disk, struct pl_error *reterr)
{
    struct archive_entry *entry;

    for (;;) {
        const int got = archive_read_next_header(in, &entry);
        const char *name = got == ARCHIVE_OK ? archive_entry_pathname(entry) : NULL;

        if (got == ARCHIVE_EOF) {
            return pl_error_set(reterr, PL_CORRUPT, "the stream of a directory ends before its last entry");
        }
        if (!name) {
            return raise_archive(in, "receive", "a directory", reterr);
        }
        if (strcmp(name, end_name) == 0) {
            return archive_write_close(disk) == ARCHIVE_OK ? PL_OK : raise_archive(disk, "write", name, reterr);
        }
        if (archive_write_header(disk, entry) != ARCHIVE_OK) {
            return raise_archive(disk, "make", name, reterr);
        }
        if (archive_entry_filetype(entry) == AE_IFREG) {
            PL_TRY(copy_data(in, disk, name, true, reterr));
        }
        if (archive_write_finish_entry(disk) != ARCHIVE_OK) {
            return raise_archive(disk, "write", name, reterr);
        }
    }
}

static enum pl_status receive_into(const char *directory, int fd, struct pl_error *reterr)
{
    AUTO_READER struct archive *in = archive_read_new();
    AUTO_WRITER struct archive *disk = archive_write_disk_new();

    if (!in || !disk || archive_read_support_format_tar(in) != ARCHIVE_OK ||
        archive_write_disk_set_options(disk, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_UNLINK |
                                                 ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                                                 ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS) != ARCHIVE_OK) {
        return no_memory(reterr);
    }
    if (archive_read_open_fd(in, fd, BLOCK_BYTES) != ARCHIVE_OK) {
        return raise_archive(in, "receive", directory, reterr);
    }
    PL_TRY(pl_file_make_dirs(directory, 0755, reterr));
    PL_TRY(enter(directory, reterr));
    return receive_all(in, disk, reterr);
}

enum pl_status pl_stream_receive(const char *directory, int fd, bool in_place, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text incoming = PL_TEXT_NONE;
    enum pl_status status;

    if (in_place) {
        return receive_into(directory, fd, reterr);
    }
    pl_text_printf(&incoming, "%s.incoming", directory);
    PL_TRY(pl_text_check(&incoming, reterr));
    pl_file_remove_tree(pl_text_string(&incoming));
    status = receive_into(pl_text_string(&incoming), fd, reterr);
    if (status != PL_OK) {
        pl_file_remove_tree(pl_text_string(&incoming));
        return status;
    }
    pl_file_remove_tree(directory);
    return rename(pl_text_string(&incoming), directory) == 0
               ? PL_OK
               : pl_error_errno(reterr, "rename '%s' to '%s'", pl_text_string(&incoming), directory);
}
