/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files and descriptors: bounded reads, atomic writes, reads and writes with a deadline. */
#include "base/file.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longest time for reading a whole file if it is a pipe. */
#define READ_NS (30 * PL_NS_PER_S)

void pl_file_close_at(int *fd)
{
    int saved_errno = errno;

    if (*fd >= 0) {
        close(*fd);
        *fd = -1; /* poll(2) skips -1, and a second close cannot close a reused number */
    }
    errno = saved_errno;
}

DIR *pl_file_open_directory(int parent_fd, const char *name, int flags)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

    if (!directory) {
        pl_file_close_at(&fd);
    }
    return directory;
}

void pl_file_close_directory_at(DIR **directory)
{
    if (*directory) {
        closedir(*directory);
    }
}

int pl_file_poll(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int ready = poll(&poll_fd, 1, pl_deadline_poll_ms(deadline_ns));

        if (ready > 0 || (ready == 0 && pl_deadline_passed(deadline_ns)) || (ready < 0 && errno != EINTR)) {
            return ready;
        }
    }
}

static enum pl_status wait_readable(int fd, int64_t deadline_ns, const char *what, struct pl_error *reterr)
{
    int ready = pl_file_poll(fd, POLLIN, deadline_ns);

    if (ready < 0) {
        return pl_error_errno(reterr, "poll '%s'", what);
    }
    return ready > 0 ? PL_OK : pl_error_set(reterr, PL_TIMEOUT, "no data from '%s' before the deadline", what);
}

static enum pl_status read_fd(int fd, const char *what, size_t max_bytes, char **ret_data, size_t *ret_bytes,
                              struct pl_error *reterr)
{
    PL_AUTO_FREE char *data = NULL;
    size_t capacity = 0, used = 0;
    int64_t deadline_ns = pl_deadline_after_ns(READ_NS);
    struct stat info;
    bool known = fstat(fd, &info) == 0;
    bool piped = known && S_ISFIFO(info.st_mode);

    if (known && S_ISREG(info.st_mode) && info.st_size > 0 && (size_t)info.st_size <= max_bytes) {
        PL_TRY(pl_memory_grow(&data, &capacity, (size_t)info.st_size + 2, 1, reterr));
    }
    for (;;) {
        ssize_t got;

        PL_TRY(pl_memory_grow(&data, &capacity, used + 2, 1, reterr));
        got = read(fd, data + used, capacity - used - 1);
        if (got < 0 && errno == EAGAIN) {
            PL_TRY(wait_readable(fd, deadline_ns, what, reterr));
            continue;
        }
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return pl_error_errno(reterr, "read '%s'", what);
        }
        if (got == 0 && used == 0 && piped) {
            return pl_error_set(reterr, PL_INVALID, "'%s' is a FIFO into which nobody writes: expected a file", what);
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
        if (used > max_bytes) {
            return pl_error_set(reterr, PL_LIMIT, "'%s' is larger than %zu bytes", what, max_bytes);
        }
    }
    data[used] = '\0';
    *ret_data = PL_TAKE(data);
    if (ret_bytes) {
        *ret_bytes = used;
    }
    return PL_OK;
}

static enum pl_status open_error(const char *path, struct pl_error *reterr)
{
    return pl_error_raise(reterr, errno == ENOENT || errno == ENOTDIR ? PL_NOT_FOUND : PL_SYSTEM, PL_DOMAIN_ERRNO,
                          errno, "cannot open '%s'", path);
}

enum pl_status pl_file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_bytes,
                            struct pl_error *reterr)
{
    /* without O_NONBLOCK, open() would wait for a FIFO's writer */
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return open_error(path, reterr);
    }
    return read_fd(fd, path, max_bytes, ret_data, ret_bytes, reterr);
}

int pl_file_allocate(int fd, off_t offset, off_t bytes)
{
    sigset_t all, before;
    int code;

    /*
     * Block signals: a signal makes most kernels undo the allocation, so with a frequent timer the call would never
     * finish.
     */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do {
        code = posix_fallocate(fd, offset, bytes);
    } while (code == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

enum pl_status pl_file_write_fd(int fd, const void *data, size_t bytes, const char *what, struct pl_error *reterr)
{
    const char *next = data;

    while (bytes > 0) {
        ssize_t written = write(fd, next, bytes);

        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return pl_error_errno(reterr, "write '%s'", what);
        }
        next += written;
        bytes -= (size_t)written;
    }
    return PL_OK;
}

bool pl_file_move(int from_fd, int to_fd)
{
    char bytes[16384];
    ssize_t count;

    do {
        count = read(from_fd, bytes, sizeof(bytes));
    } while (count < 0 && errno == EINTR);
    return count > 0 && pl_file_write_fd(to_fd, bytes, (size_t)count, "the other end", NULL) == PL_OK;
}

enum pl_status pl_file_write_by(int fd, const void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                struct pl_error *reterr)
{
    const char *next = data;
    bool is_late = false;

    while (bytes > 0) {
        ssize_t written;

        if (pl_file_poll(fd, POLLOUT, deadline_ns) == 0 || is_late) {
            return pl_error_set(reterr, PL_TIMEOUT, "cannot write '%s': nobody reads it", what);
        }
        written = write(fd, next, bytes);
        if (written < 0 && errno == EAGAIN) {
            is_late = pl_deadline_passed(deadline_ns);
            pl_clock_nap(PL_FILE_RETRY_NS, deadline_ns);
        } else if (written < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "write '%s'", what);
        }
        next += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return PL_OK;
}

int pl_file_open_own(int fd)
{
    struct stat info;
    char path[32];

    if (fstat(fd, &info) != 0 || (!S_ISFIFO(info.st_mode) && isatty(fd) == 0)) {
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Creates a file with a temporary name that no other process or call uses; O_EXCL ensures that. */
static int open_temporary(int dir_fd, const char *name, mode_t mode, char *temporary, size_t temporary_bytes)
{
    for (unsigned attempt = 0; attempt < 100; attempt++) {
        int fd;

        /*
         * Use only the beginning of `name`, so that the temporary name is valid even if `name` has the greatest length.
         */
        snprintf(temporary, temporary_bytes, ".%.200s.%ld.%llx", name, (long)getpid(),
                 (unsigned long long)pl_clock_now_ns() + attempt);
        fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

static enum pl_status write_atomic_parts_at(int dir_fd, const char *name, const struct iovec *parts, size_t count,
                                            mode_t mode, struct pl_error *reterr)
{
    char temporary[NAME_MAX + 1];
    PL_AUTO_CLOSE int fd = -1;
    enum pl_status status = PL_OK;

    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not a file name", name);
    }
    fd = open_temporary(dir_fd, name, mode, temporary, sizeof(temporary));
    if (fd < 0) {
        return pl_error_errno(reterr, "create a temporary file for '%s'", name);
    }
    for (size_t i = 0; status == PL_OK && i < count; i++) {
        status = pl_file_write_fd(fd, parts[i].iov_base, parts[i].iov_len, name, reterr);
    }
    if (status == PL_OK && fsync(fd) != 0) {
        status = pl_error_errno(reterr, "fsync '%s'", name);
    }
    if (status == PL_OK && renameat(dir_fd, temporary, dir_fd, name) != 0) {
        status = pl_error_errno(reterr, "rename a temporary file to '%s'", name);
    }
    if (status != PL_OK) {
        unlinkat(dir_fd, temporary, 0);
        return status;
    }
    /* Some file systems (FUSE mounts) refuse fsync on a directory; the rename itself is done. */
    if (fsync(dir_fd) != 0 && errno != EINVAL && errno != EBADF && errno != ENOSYS) {
        return pl_error_errno(reterr, "fsync the directory of '%s'", name);
    }
    return PL_OK;
}

/* Converts constant data to a struct iovec, which has no const pointer. Writing does not change the bytes. */
static struct iovec part_of(const void *data, size_t bytes)
{
    union {
        const void *constant;
        void *plain;
    } pointer = {.constant = data};

    return (struct iovec){.iov_base = pointer.plain, .iov_len = bytes};
}

enum pl_status pl_file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t bytes, mode_t mode,
                                       struct pl_error *reterr)
{
    struct iovec part = part_of(data, bytes);

    return write_atomic_parts_at(dir_fd, name, &part, 1, mode, reterr);
}

enum pl_status pl_file_write_atomic(const char *path, const void *data, size_t bytes, mode_t mode,
                                    struct pl_error *reterr)
{
    struct iovec part = part_of(data, bytes);

    return pl_file_write_atomic_parts(path, &part, 1, mode, reterr);
}

enum pl_status pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                          struct pl_error *reterr)
{
    const char *slash = strrchr(path, '/');
    PL_AUTO_FREE char *directory = slash ? pl_memory_string_n(path, slash == path ? 1 : (size_t)(slash - path), reterr)
                                         : pl_memory_string(".", reterr);
    PL_AUTO_CLOSE int dir_fd = -1;
    enum pl_status status;

    PL_TRY(directory ? PL_OK : PL_MEMORY);
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return open_error(directory, reterr);
    }
    status = write_atomic_parts_at(dir_fd, slash ? slash + 1 : path, parts, count, mode, reterr);
    if (status != PL_OK) {
        pl_error_context(reterr, "in directory '%s'", directory);
    }
    return status;
}

enum pl_status pl_file_read_some(int fd, void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                 size_t *ret_bytes, struct pl_error *reterr)
{
    for (;;) {
        ssize_t got;

        PL_TRY(wait_readable(fd, deadline_ns, what, reterr));
        got = read(fd, data, bytes);
        if (got < 0) {
            if (errno == EINTR || errno == EAGAIN) {
                continue;
            }
            return pl_error_errno(reterr, "read '%s'", what);
        }
        *ret_bytes = (size_t)got;
        return PL_OK;
    }
}

enum pl_status pl_file_set_nonblock(int fd, bool nonblock, struct pl_error *reterr)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0) {
        return pl_error_errno(reterr, "set O_NONBLOCK on descriptor %d", fd);
    }
    return PL_OK;
}

enum pl_status pl_file_make_dirs(const char *path, mode_t mode, struct pl_error *reterr)
{
    PL_AUTO_FREE char *prefix = pl_memory_string(path, reterr);
    struct stat info;

    PL_TRY(prefix ? PL_OK : PL_MEMORY);
    for (char *at = prefix + 1; *prefix; at++) {
        char saved = *at;

        if (saved != '/' && saved != '\0') {
            continue;
        }
        *at = '\0';
        if (mkdir(prefix, mode) != 0 && errno != EEXIST) {
            return pl_error_errno(reterr, "create directory '%s'", prefix);
        }
        *at = saved;
        if (saved == '\0') {
            break;
        }
    }
    if (stat(path, &info) != 0) {
        return pl_error_errno(reterr, "stat '%s'", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return pl_error_raise(reterr, PL_INVALID, PL_DOMAIN_ERRNO, ENOTDIR, "cannot create directory '%s'", path);
    }
    return PL_OK;
}

enum pl_status pl_file_make_parents(const char *path, mode_t mode, struct pl_error *reterr)
{
    const char *slash = strrchr(path, '/');
    PL_AUTO_FREE char *directory = NULL;

    if (!slash || slash == path) {
        return PL_OK;
    }
    directory = pl_memory_string_n(path, (size_t)(slash - path), reterr);
    return directory ? pl_file_make_dirs(directory, mode, reterr) : PL_MEMORY;
}

/* Opens a directory whose entries are to be removed. If its mode forbids this, changes the mode first. */
static DIR *open_to_remove(int parent_fd, const char *name)
{
    struct stat info;

    if (fstatat(parent_fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode)) {
        return NULL;
    }
    if (info.st_uid == geteuid() && (info.st_mode & S_IRWXU) != S_IRWXU) {
        fchmodat(parent_fd, name, S_IRWXU, AT_SYMLINK_NOFOLLOW);
    }
    return pl_file_open_directory(parent_fd, name, O_NOFOLLOW);
}

/* Removes an entry. If it cannot be removed, continues with the others. */
static void remove_at(int parent_fd, const char *name)
{
    PL_AUTO_DIRECTORY DIR *directory = NULL;
    const struct dirent *entry;

    if (unlinkat(parent_fd, name, 0) == 0) {
        return;
    }
    directory = open_to_remove(parent_fd, name);
    while (directory && (entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove_at(dirfd(directory), entry->d_name);
        }
    }
    unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void pl_file_remove_tree(const char *path)
{
    remove_at(AT_FDCWD, path);
}

static bool is_program(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

enum pl_status pl_file_find_program(const char *name, const char *path, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_FREE char *candidate = NULL;
    size_t bytes;

    if (!path || *path == '\0') {
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    }
    bytes = strlen(path) + strlen(name) + sizeof("./");
    PL_TRY(pl_memory_alloc(&candidate, bytes, 1, reterr));
    if (strchr(name, '/')) {
        *ret_path = strcpy(PL_TAKE(candidate), name);
        return PL_OK;
    }
    for (const char *at = path; *name != '\0';) {
        const size_t length = strcspn(at, ":");

        snprintf(candidate, bytes, "%.*s/%s", length > 0 ? (int)length : 1, length > 0 ? at : ".", name);
        if (is_program(candidate)) {
            *ret_path = PL_TAKE(candidate);
            return PL_OK;
        }
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
    return pl_error_raise(reterr, PL_NOT_FOUND, PL_DOMAIN_ERRNO, ENOENT, "program '%.200s' is not in PATH", name);
}
