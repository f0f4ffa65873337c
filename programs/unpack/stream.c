/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives directories with libarchive. */
#include "programs/unpack/stream.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20 };

static const char end_name[] = ".paceline-end-of-stream";
static const char incoming_name[] = ".paceline-incoming"; /* used in a directory that is filled in place */

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

/* Reports libarchive's error of its last call. */
static enum pl_status raise_archive(struct archive *archive, const char *what, const char *name,
                                    struct pl_error *reterr)
{
    const char *words = archive_error_string(archive);

    return pl_error_set(reterr, archive_errno(archive) > 0 ? PL_SYSTEM : PL_CORRUPT, "%s '%.200s': %.300s", what, name,
                        words ? words : "libarchive gives no reason");
}

static enum pl_status enter(const char *directory, struct pl_error *reterr)
{
    return chdir(directory) == 0 ? PL_OK : pl_error_errno(reterr, "enter '%s'", directory);
}

/* Copies the data of the current entry of both archives. */
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

static enum pl_status refuse_kind(const char *name, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_INVALID, "'%.200s' is a socket, a FIFO or a device, which cannot be kept", name);
}

static enum pl_status pack_entry(struct archive *disk, struct archive *out, struct archive_entry *entry,
                                 struct pl_error *reterr)
{
    const char *name = archive_entry_pathname(entry);
    const mode_t type = archive_entry_filetype(entry);

    if (!name || strcmp(name, ".") == 0) {
        return PL_OK;
    }
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK) {
        return refuse_kind(name, reterr);
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

static bool is_name(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static enum pl_status check_full(const char *directory, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *dir = opendir(directory);
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    if (!dir && errno != ENOENT) {
        return pl_error_errno(reterr, "open '%s'", directory);
    }
    while (entry && !is_name(entry)) {
        entry = readdir(dir);
    }
    return entry ? PL_OK : pl_error_set(reterr, PL_NOT_FOUND, "%s", dir ? "it is empty" : "it is not there");
}

enum pl_status pl_stream_pack(const char *directory, int fd, bool empty_is_wrong, struct pl_error *reterr)
{
    AUTO_READER struct archive *disk = archive_read_disk_new();
    AUTO_WRITER struct archive *out = archive_write_new();

    if (!disk || !out || archive_write_set_format_pax(out) != ARCHIVE_OK ||
        /* names are bytes, without a character set */
        archive_write_set_options(out, "hdrcharset=BINARY") != ARCHIVE_OK ||
        archive_write_set_bytes_per_block(out, BLOCK_BYTES) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(out, 1) != ARCHIVE_OK || archive_write_open_fd(out, fd) != ARCHIVE_OK ||
        archive_read_disk_set_symlink_physical(disk) != ARCHIVE_OK ||
        archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
                                                 ARCHIVE_READDISK_NO_FFLAGS | ARCHIVE_READDISK_NO_SPARSE) !=
            ARCHIVE_OK) {
        return no_memory(reterr);
    }
    if (empty_is_wrong) {
        PL_TRY(check_full(directory, reterr));
    }
    if (access(directory, F_OK) == 0) {
        PL_TRY(enter(directory, reterr));
        PL_TRY(pack_all(disk, out, reterr));
    } else if (errno != ENOENT) {
        return pl_error_errno(reterr, "look at '%s'", directory);
    }
    return pack_end(out, reterr);
}

/* Receives the entries up to the last one, which tells that all have arrived. */
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

/* Writes to disk what a crash of the machine must not undo: the whole file system, because each file has its own
 * blocks. */
static enum pl_status sync_to_disk(const char *directory, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && syncfs(fd) == 0 ? PL_OK : pl_error_errno(reterr, "writing '%s' to disk", directory);
}

/* Renames an entry over `to_fd`'s entry of this name, and removes everything that is there. */
static enum pl_status rename_over(int from_fd, int to_fd, const char *to, const char *name, struct pl_error *reterr)
{
    if (renameat(from_fd, name, to_fd, name) != 0) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_printf(&path, "%s/%s", to, name);
        PL_TRY(pl_text_check(&path, reterr));
        pl_file_remove_tree(pl_text_string(&path));
        if (renameat(from_fd, name, to_fd, name) != 0) {
            return pl_error_errno(reterr, "rename '%s' to '%s'", name, pl_text_string(&path));
        }
    }
    unlinkat(from_fd, name, 0); /* rename(2) leaves the source if both names are the same file already */
    return PL_OK;
}

/* The whole directory has been received: moves its entries to their final places. If this process is killed, the next
 * call repeats it. */
static enum pl_status adopt(const char *incoming, const char *directory, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    PL_AUTO_DIRECTORY DIR *from = opendir(incoming);
    const struct dirent *entry;

    if (fd < 0 || !from) {
        return pl_error_errno(reterr, "open '%s'", fd < 0 ? directory : incoming);
    }
    PL_TRY(sync_to_disk(incoming, reterr));
    while ((entry = readdir(from))) {
        if (is_name(entry)) {
            PL_TRY(rename_over(dirfd(from), fd, directory, entry->d_name, reterr));
        }
    }
    return rmdir(incoming) == 0 && fsync(fd) == 0 ? PL_OK : pl_error_errno(reterr, "fill '%s'", directory);
}

/* Names the folder in which the directory is made before it gets its name: next to it, or inside it, because it may be
 * a mount. */
static enum pl_status name_incoming(const char *directory, bool in_place, struct pl_text *text, struct pl_error *reterr)
{
    if (in_place) {
        PL_TRY(pl_file_make_dirs(directory, 0755, reterr));
        pl_text_printf(text, "%s/%s", directory, incoming_name);
    } else {
        pl_text_printf(text, "%s.incoming", directory);
    }
    PL_TRY(pl_text_check(text, reterr));
    pl_file_remove_tree(pl_text_string(text));
    return PL_OK;
}

enum pl_status pl_stream_receive(const char *directory, int fd, bool in_place, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text incoming = PL_TEXT_NONE;
    enum pl_status status;

    PL_TRY(name_incoming(directory, in_place, &incoming, reterr));
    status = receive_into(pl_text_string(&incoming), fd, reterr);
    if (status == PL_OK && in_place) {
        return adopt(pl_text_string(&incoming), directory, reterr);
    }
    status = status == PL_OK ? sync_to_disk(pl_text_string(&incoming), reterr) : status;
    if (status != PL_OK) {
        pl_file_remove_tree(pl_text_string(&incoming));
        return status;
    }
    pl_file_remove_tree(directory);
    return rename(pl_text_string(&incoming), directory) == 0
               ? PL_OK
               : pl_error_errno(reterr, "rename '%s' to '%s'", pl_text_string(&incoming), directory);
}

static enum pl_status link_directory(int from_fd, int to_fd, struct pl_error *reterr);

static enum pl_status link_below(int from_fd, int to_fd, const char *name, const struct stat *info,
                                 struct pl_error *reterr)
{
    const struct timespec times[] = {info->st_atim, info->st_mtim};
    PL_AUTO_CLOSE int from_below_fd = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    PL_AUTO_CLOSE int to_below_fd = -1;

    if (from_below_fd < 0 || mkdirat(to_fd, name, 0700) != 0) {
        return pl_error_errno(reterr, "copy the directory '%s'", name);
    }
    to_below_fd = openat(to_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to_below_fd < 0) {
        return pl_error_errno(reterr, "open '%s'", name);
    }
    PL_TRY(link_directory(from_below_fd, to_below_fd, reterr));
    return fchmod(to_below_fd, info->st_mode & 07777) == 0 && futimens(to_below_fd, times) == 0
               ? PL_OK
               : pl_error_errno(reterr, "copy the directory '%s'", name);
}

/* Returns PL_UNSUPPORTED if the target is on another file system, or if its file system has no hard links. */
static enum pl_status link_entry(int from_fd, int to_fd, const char *name, struct pl_error *reterr)
{
    struct stat info;

    if (fstatat(from_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return pl_error_errno(reterr, "look at '%s'", name);
    }
    if (S_ISDIR(info.st_mode)) {
        return link_below(from_fd, to_fd, name, &info, reterr);
    }
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
        return refuse_kind(name, reterr);
    }
    return linkat(from_fd, name, to_fd, name, 0) == 0
               ? PL_OK
               : pl_error_raise(reterr, PL_UNSUPPORTED, PL_DOMAIN_ERRNO, errno, "make another link to '%.200s'", name);
}

static enum pl_status link_directory(int from_fd, int to_fd, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *dir = pl_file_open_directory(from_fd, ".", 0);
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    if (!dir) {
        return pl_error_errno(reterr, "list a directory");
    }
    for (; entry; entry = readdir(dir)) {
        if (is_name(entry)) {
            PL_TRY(link_entry(from_fd, to_fd, entry->d_name, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status link_all(const char *from, const char *incoming, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int from_fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    PL_AUTO_CLOSE int to_fd = -1;

    PL_TRY(pl_file_make_dirs(incoming, 0755, reterr));
    to_fd = open(incoming, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from_fd < 0 || to_fd < 0) {
        return pl_error_errno(reterr, "open '%s'", from_fd < 0 ? from : incoming);
    }
    return link_directory(from_fd, to_fd, reterr);
}

/* Copies by two processes, because each needs its own working directory. If the sender fails, its error is reported,
 * because the receiver then only misses the rest. */
static enum pl_status copy_through_pipe(const char *from, const char *directory, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int read_fd = -1, write_fd = -1;
    struct pl_error *sender_error = mmap(NULL, sizeof(*sender_error), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* mapped until this process ends */
    int fds[2], ended = -1;
    enum pl_status status;
    pid_t pid;

    if (sender_error == MAP_FAILED || pipe2(fds, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "make a pipe");
    }
    read_fd = fds[0];
    write_fd = fds[1];
    pid = fork();
    if (pid < 0) {
        return pl_error_errno(reterr, "fork");
    }
    if (pid == 0) {
        _exit(pl_stream_pack(from, write_fd, true, sender_error) == PL_OK ? 0 : 1);
    }
    pl_file_close_at(&write_fd);
    status = pl_stream_receive(directory, read_fd, true, reterr);
    pl_file_close_at(&read_fd); /* this ends a sender whose receiver has failed */
    while (waitpid(pid, &ended, 0) < 0 && errno == EINTR) {
    }
    if (sender_error->status != PL_OK && reterr && status != PL_OK) {
        *reterr = *sender_error;
    }
    return status;
}

enum pl_status pl_stream_copy(const char *from, const char *directory, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text incoming = PL_TEXT_NONE;
    enum pl_status status;

    PL_TRY(check_full(from, reterr));
    PL_TRY(name_incoming(directory, true, &incoming, reterr));
    status = link_all(from, pl_text_string(&incoming), reterr);
    if (status != PL_UNSUPPORTED) {
        return status == PL_OK ? adopt(pl_text_string(&incoming), directory, reterr) : status;
    }
    if (reterr) {
        *reterr = PL_ERROR_NONE;
    }
    return copy_through_pipe(from, directory, reterr);
}
