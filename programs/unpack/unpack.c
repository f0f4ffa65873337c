/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks tar archives with libarchive, and copies directories. Nothing is written outside the destination. */
#include "programs/unpack/unpack.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 64 * 1024, MAX_DEPTH = 100 };

/* The state of one unpacking, with what is left of its limits. */
struct unpacker {
    int64_t left_bytes;
    int64_t left_entries;
    const struct pl_unpack_limits *limits;
    struct pl_error *reterr;
};

static enum pl_status count_entry(struct unpacker *unpacker)
{
    if (--unpacker->left_entries < 0) {
        return pl_error_set(unpacker->reterr, PL_LIMIT, "expected at most %lld files and directories, found more",
                            (long long)unpacker->limits->max_entries);
    }
    return PL_OK;
}

static enum pl_status count_bytes(struct unpacker *unpacker, size_t bytes)
{
    if ((int64_t)bytes > unpacker->left_bytes) {
        return pl_error_set(unpacker->reterr, PL_LIMIT, "expected at most %lld bytes of code, found more",
                            (long long)unpacker->limits->max_bytes);
    }
    unpacker->left_bytes -= (int64_t)bytes;
    return PL_OK;
}

static void archive_free_at(struct archive **archive)
{
    archive_read_free(*archive);
}

static struct archive *new_reader(void)
{
    struct archive *archive = archive_read_new();

    /* Use only filters that run inside this process, not external programs. */
    if (archive && archive_read_support_filter_gzip(archive) == ARCHIVE_OK &&
        archive_read_support_filter_bzip2(archive) == ARCHIVE_OK &&
        archive_read_support_filter_xz(archive) == ARCHIVE_OK &&
        archive_read_support_filter_zstd(archive) == ARCHIVE_OK &&
        archive_read_support_format_tar(archive) == ARCHIVE_OK) {
        return archive;
    }
    archive_read_free(archive);
    return NULL;
}

/*
 * Opens the directory below `dir_fd` that holds `name`, and sets `*ret_last` to the last part of `name`. With `make` it
 * creates missing directories. Each part is opened without following links.
 */
static enum pl_status open_parent(struct unpacker *unpacker, int dir_fd, char *name, bool make, int *ret_fd,
                                  const char **ret_last)
{
    PL_AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *part = name;

    if (fd < 0) {
        return pl_error_errno(unpacker->reterr, "open the code directory");
    }
    for (char *slash = strchr(part, '/'); slash; slash = strchr(part, '/')) {
        int next;

        *slash = '\0';
        if (*part != '\0' && strcmp(part, ".") != 0) {
            if (make && mkdirat(fd, part, 0755) != 0 && errno != EEXIST) {
                return pl_error_errno(unpacker->reterr, "make the directory '%s'", part);
            }
            next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (next < 0) {
                return pl_error_errno(unpacker->reterr, "open the directory '%s'", part);
            }
            close(fd);
            fd = next;
        }
        part = slash + 1;
    }
    *ret_fd = fd;
    fd = -1;
    *ret_last = part;
    return PL_OK;
}

/* Creates the file `last` in `dir_fd`, after removing anything of that name that is not a directory. */
static enum pl_status create_file(struct unpacker *unpacker, int dir_fd, const char *last, mode_t mode, int *ret_fd)
{
    int fd;

    if (unlinkat(dir_fd, last, 0) != 0 && errno != ENOENT) {
        return pl_error_errno(unpacker->reterr, "replace '%s'", last);
    }
    fd = openat(dir_fd, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, (mode & 0777) | 0600);
    if (fd < 0) {
        return pl_error_errno(unpacker->reterr, "create '%s'", last);
    }
    *ret_fd = fd;
    return PL_OK;
}

static enum pl_status make_directory(struct unpacker *unpacker, int dir_fd, const char *last)
{
    struct stat info;

    if (*last == '\0' || strcmp(last, ".") == 0) {
        return PL_OK;
    }
    if (mkdirat(dir_fd, last, 0755) == 0) {
        return PL_OK;
    }
    if (errno == EEXIST && fstatat(dir_fd, last, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
        return PL_OK;
    }
    return pl_error_errno(unpacker->reterr, "make the directory '%s'", last);
}

static enum pl_status refuse(struct unpacker *unpacker, const char *name, const char *why)
{
    return pl_error_set(unpacker->reterr, PL_INVALID, "the entry '%.200s' is refused: %s", name, why);
}

/* Whether a part of `name` is "..". */
static bool leads_up(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Refuses an entry that must not be unpacked, before anything is written. */
static enum pl_status check_entry(struct unpacker *unpacker, struct archive_entry *entry, const char *name)
{
    mode_t type = archive_entry_filetype(entry);
    const char *target = archive_entry_hardlink(entry);

    if (*name == '\0') {
        return refuse(unpacker, name, "it has no name");
    }
    if (*name == '/') {
        return refuse(unpacker, name, "its name is absolute");
    }
    if (leads_up(name)) {
        return refuse(unpacker, name, "its name leads outside the code directory");
    }
    if (archive_entry_symlink(entry) || type == AE_IFLNK) {
        return refuse(unpacker, name, "it is a symbolic link; pack the file that it leads to (tar -h)");
    }
    if (target && (*target == '/' || leads_up(target))) {
        return refuse(unpacker, name, "it is a hard link to a name outside the code directory");
    }
    if (!target && type != AE_IFREG && type != AE_IFDIR) {
        return refuse(unpacker, name, "it is neither a file nor a directory");
    }
    return count_entry(unpacker);
}

static enum pl_status read_failed(struct archive *archive, struct pl_error *reterr)
{
    const char *text = archive_error_string(archive);

    return pl_error_raise(reterr, PL_CORRUPT, PL_DOMAIN_ARCHIVE, archive_errno(archive),
                          "cannot read the tar archive (plain, or with gzip, bzip2, xz or zstd): %s",
                          text ? text : "unknown error");
}

/* Writes the data of the current entry to `fd`. Holes count as data, so that a sparse entry cannot evade the limit. */
static enum pl_status write_data(struct unpacker *unpacker, struct archive *archive, int64_t size, int fd,
                                 const char *name)
{
    int64_t end = 0;

    for (;;) {
        const void *block = NULL;
        size_t bytes = 0;
        int64_t offset = 0;
        int result = archive_read_data_block(archive, &block, &bytes, &offset);

        if (result == ARCHIVE_EOF) {
            break;
        }
        if (result != ARCHIVE_OK) {
            return read_failed(archive, unpacker->reterr);
        }
        if (offset < end) {
            return refuse(unpacker, name, "its pieces overlap");
        }
        if (offset > end) {
            PL_TRY(count_bytes(unpacker, (size_t)(offset - end)));
            if (lseek(fd, (off_t)offset, SEEK_SET) < 0) {
                return pl_error_errno(unpacker->reterr, "write '%s'", name);
            }
        }
        PL_TRY(count_bytes(unpacker, bytes));
        PL_TRY(pl_file_write_fd(fd, block, bytes, name, unpacker->reterr));
        end = offset + (int64_t)bytes;
    }
    if (size > end) {
        PL_TRY(count_bytes(unpacker, (size_t)(size - end)));
        if (ftruncate(fd, (off_t)size) != 0) {
            return pl_error_errno(unpacker->reterr, "write '%s'", name);
        }
    }
    return PL_OK;
}

static enum pl_status copy_data(struct unpacker *unpacker, int from_fd, const char *name, int dest_fd)
{
    PL_AUTO_CLOSE int to_fd = -1;
    PL_AUTO_FREE char *block = pl_memory_new(BLOCK_BYTES, 1, unpacker->reterr);
    struct stat info;

    PL_TRY(block ? PL_OK : PL_MEMORY);
    if (fstat(from_fd, &info) != 0) {
        return pl_error_errno(unpacker->reterr, "read '%s'", name);
    }
    PL_TRY(create_file(unpacker, dest_fd, name, info.st_mode, &to_fd));
    for (;;) {
        ssize_t bytes = read(from_fd, block, BLOCK_BYTES);

        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes < 0) {
            return pl_error_errno(unpacker->reterr, "read '%s'", name);
        }
        if (bytes == 0) {
            return PL_OK;
        }
        PL_TRY(count_bytes(unpacker, (size_t)bytes));
        PL_TRY(pl_file_write_fd(to_fd, block, (size_t)bytes, name, unpacker->reterr));
    }
}

/*
 * Turns a hard link to an earlier entry into a copy of that file. The file is found below the destination without
 * following links, as all files are. It is read before the link's own file, which may be the same, is replaced.
 */
static enum pl_status copy_link(struct unpacker *unpacker, const char *target, const char *name, int dest_fd,
                                int parent_fd, const char *last)
{
    PL_AUTO_FREE char *parts = pl_memory_string(target, unpacker->reterr);
    struct unpacker quiet = {.reterr = NULL};
    PL_AUTO_CLOSE int from_parent_fd = -1;
    PL_AUTO_CLOSE int fd = -1;
    const char *from_last = NULL;
    struct stat info;

    PL_TRY(parts ? PL_OK : PL_MEMORY);
    if (open_parent(&quiet, dest_fd, parts, false, &from_parent_fd, &from_last) == PL_OK) {
        fd = openat(from_parent_fd, from_last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return refuse(unpacker, name,
                      "it is a hard link to a name that no earlier file of the archive has; pack separate files (tar "
                      "--hard-dereference)");
    }
    return copy_data(unpacker, fd, last, parent_fd);
}

static enum pl_status unpack_entry(struct unpacker *unpacker, struct archive *archive, struct archive_entry *entry,
                                   int dest_fd)
{
    const char *given = archive_entry_pathname(entry);
    PL_AUTO_FREE char *name = NULL;
    PL_AUTO_FREE char *parts = NULL;
    PL_AUTO_CLOSE int parent_fd = -1;
    PL_AUTO_CLOSE int fd = -1;
    const char *last = NULL;
    const char *target = archive_entry_hardlink(entry);
    bool is_directory = !target && archive_entry_filetype(entry) == AE_IFDIR;

    name = pl_memory_string(given ? given : "", unpacker->reterr);
    PL_TRY(name ? PL_OK : PL_MEMORY);
    PL_TRY(check_entry(unpacker, entry, name));
    parts = pl_memory_string(name, unpacker->reterr);
    PL_TRY(parts ? PL_OK : PL_MEMORY);
    PL_TRY(open_parent(unpacker, dest_fd, parts, true, &parent_fd, &last));
    if (is_directory) {
        return make_directory(unpacker, parent_fd, last);
    }
    if (*last == '\0' || strcmp(last, ".") == 0) {
        return refuse(unpacker, name, "a file cannot have the name of a directory");
    }
    if (target) {
        return copy_link(unpacker, target, name, dest_fd, parent_fd, last);
    }
    PL_TRY(create_file(unpacker, parent_fd, last, archive_entry_perm(entry), &fd));
    return write_data(unpacker, archive, archive_entry_size(entry), fd, name);
}

/* Reads the next header. PL_END after the last entry; an archive without entries is an error. */
static enum pl_status next_header(struct archive *archive, bool first, struct archive_entry **ret_entry,
                                  struct pl_error *reterr)
{
    int result = archive_read_next_header(archive, ret_entry);

    if (result == ARCHIVE_EOF) {
        return first ? pl_error_set(reterr, PL_CORRUPT, "the archive is empty") : PL_END;
    }
    return result == ARCHIVE_OK || result == ARCHIVE_WARN ? PL_OK : read_failed(archive, reterr);
}

static enum pl_status open_archive(const char *path, struct archive **ret_archive, struct pl_error *reterr)
{
    *ret_archive = new_reader();
    if (!*ret_archive) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory reading %s", path);
    }
    return archive_read_open_filename(*ret_archive, path, BLOCK_BYTES) == ARCHIVE_OK
               ? PL_OK
               : read_failed(*ret_archive, reterr);
}

static enum pl_status unpack_archive(struct unpacker *unpacker, const char *path, int dest_fd)
{
    __attribute__((cleanup(archive_free_at))) struct archive *archive = NULL;

    PL_TRY(open_archive(path, &archive, unpacker->reterr));
    for (bool first = true;; first = false) {
        struct archive_entry *entry = NULL;
        enum pl_status status = next_header(archive, first, &entry, unpacker->reterr);

        if (status != PL_OK) {
            return status == PL_END ? PL_OK : status;
        }
        PL_TRY(unpack_entry(unpacker, archive, entry, dest_fd));
    }
}

/* Whether unpack_archive() could begin with the file. Errors: those of unpack_archive() before it writes. */
static enum pl_status check_archive(const char *path, struct pl_error *reterr)
{
    __attribute__((cleanup(archive_free_at))) struct archive *archive = NULL;
    struct archive_entry *entry = NULL;

    PL_TRY(open_archive(path, &archive, reterr));
    return next_header(archive, true, &entry, reterr);
}

static enum pl_status copy_directory(struct unpacker *unpacker, int from_fd, int dest_fd, int depth);

/* Copies one entry of the directory `from_fd`; a link is followed. */
static enum pl_status copy_entry(struct unpacker *unpacker, int from_fd, const char *name, int dest_fd, int depth)
{
    PL_AUTO_CLOSE int fd = openat(from_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    PL_AUTO_CLOSE int below_fd = -1;
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0) {
        return pl_error_errno(unpacker->reterr, "open '%s'", name);
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        return refuse(unpacker, name, "it is neither a file nor a directory");
    }
    PL_TRY(count_entry(unpacker));
    if (S_ISREG(info.st_mode)) {
        return copy_data(unpacker, fd, name, dest_fd);
    }
    PL_TRY(make_directory(unpacker, dest_fd, name));
    below_fd = openat(dest_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below_fd < 0) {
        return pl_error_errno(unpacker->reterr, "open '%s'", name);
    }
    return copy_directory(unpacker, fd, below_fd, depth + 1);
}

static enum pl_status copy_directory(struct unpacker *unpacker, int from_fd, int dest_fd, int depth)
{
    PL_AUTO_DIRECTORY DIR *dir = pl_file_open_directory(from_fd, ".", 0);
    const struct dirent *entry;
    enum pl_status status = PL_OK;

    if (!dir) {
        return pl_error_errno(unpacker->reterr, "list a directory");
    }
    if (depth > MAX_DEPTH) {
        return pl_error_set(unpacker->reterr, PL_LIMIT,
                            "expected at most %d levels of directories, found more (a link to a parent?)", MAX_DEPTH);
    }
    while (status == PL_OK && (errno = 0, entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            status = copy_entry(unpacker, from_fd, entry->d_name, dest_fd, depth);
        }
    }
    if (status == PL_OK && errno != 0) {
        status = pl_error_errno(unpacker->reterr, "list a directory");
    }
    return status;
}

/*
 * Whether the name contains .tar or .tgz. If such a file is not an archive it is damaged: that is an error, and it is
 * not copied as a file.
 */
static bool has_archive_name(const char *source)
{
    for (const char *tar = strstr(basename(source), ".tar"); tar; tar = strstr(tar + 1, ".tar")) {
        if (tar[4] == '\0' || tar[4] == '.') {
            return true;
        }
    }
    return strlen(source) > 4 && pl_text_ends_with(source, ".tgz");
}

static enum pl_status stat_source(const char *source, struct stat *ret_info, struct pl_error *reterr)
{
    if (stat(source, ret_info) != 0) {
        return pl_error_errno(reterr, "open '%s'", source);
    }
    return S_ISREG(ret_info->st_mode) || S_ISDIR(ret_info->st_mode)
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "'%s' is neither a file nor a directory", source);
}

enum pl_status pl_unpack_look(const char *source, struct pl_error *reterr)
{
    struct stat info;

    PL_TRY(stat_source(source, &info, reterr));
    return S_ISREG(info.st_mode) && has_archive_name(source) ? check_archive(source, reterr) : PL_OK;
}

enum pl_status pl_unpack_source(const char *source, bool is_archive, int dest_fd, const struct pl_unpack_limits *limits,
                                struct pl_error *reterr)
{
    struct unpacker unpacker = {
        .left_bytes = limits->max_bytes, .left_entries = limits->max_entries, .limits = limits, .reterr = reterr};
    PL_AUTO_CLOSE int fd = -1;
    struct stat info;

    PL_TRY(stat_source(source, &info, reterr));
    if (S_ISREG(info.st_mode) && (is_archive || has_archive_name(source) || check_archive(source, NULL) == PL_OK)) {
        return unpack_archive(&unpacker, source, dest_fd);
    }
    fd = open(source, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", source);
    }
    if (S_ISDIR(info.st_mode)) {
        return copy_directory(&unpacker, fd, dest_fd, 0);
    }
    PL_TRY(count_entry(&unpacker));
    return copy_data(&unpacker, fd, basename(source), dest_fd);
}
