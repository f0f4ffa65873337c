/* SPDX-License-Identifier: Apache-2.0 */
/** Descriptors and whole files: reading with a bound, writing atomically, reading and writing with a deadline. */
#ifndef PL_BASE_FILE_H
#define PL_BASE_FILE_H

#include "base/clock.h"
#include "base/status.h"

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/** Close `*fd` unless it is negative, and set it to -1; errno stays. */
void pl_file_close_at(int *fd);

/** `PL_AUTO_CLOSE int fd = -1;` closes at the end of the scope when the descriptor is not negative. */
#define PL_AUTO_CLOSE __attribute__((cleanup(pl_file_close_at)))

/** The directory `name` in `parent_fd`, to be read; `flags` go to openat(2). NULL with errno. */
DIR *pl_file_open_directory(int parent_fd, const char *name, int flags);

/** Close `*directory` unless it is NULL. */
void pl_file_close_directory_at(DIR **directory);

#define PL_AUTO_DIRECTORY __attribute__((cleanup(pl_file_close_directory_at)))

/**
 * Read the whole file at `path`, at most `max_bytes` (PL_LIMIT beyond), as NUL-terminated heap memory. A missing file
 * is PL_NOT_FOUND with errno kept. A pipe may be given in place of a file: PL_INVALID where nobody writes into it,
 * PL_TIMEOUT where that takes more than 30 s. The caller frees `*ret_data`; `ret_bytes` may be NULL.
 */
enum pl_status pl_file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_bytes,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Replace or create `path` with `bytes` of `data` so that a reader sees the old content or the new, never a part:
 * an exclusive temporary file next to it, fsync, rename, fsync of the directory.
 */
enum pl_status pl_file_write_atomic(const char *path, const void *data, size_t bytes, mode_t mode,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_file_write_atomic() relative to the directory descriptor `dir_fd`; `name` must be one path component. */
enum pl_status pl_file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t bytes, mode_t mode,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_file_write_atomic() for a content in `count` parts, written one after the other without being copied.
 */
enum pl_status pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Allocate `bytes` from `offset` on in the file or memory file now: a store into the mapping of a full one would be
 * a SIGBUS. Returns 0 or an error number.
 */
int pl_file_allocate(int fd, off_t offset, off_t bytes) PL_MUST_CHECK;

/** Write all `bytes`, going on after short writes and EINTR; `what` names the target in the error. */
enum pl_status pl_file_write_fd(int fd, const void *data, size_t bytes, const char *what,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Move what `from_fd` has, 16 KiB at most, to `to_fd`, waiting for either. False at the end of one of them. */
bool pl_file_move(int from_fd, int to_fd) PL_MUST_CHECK;

/**
 * As pl_file_write_fd(), waiting for a reader until `deadline_ns`: PL_TIMEOUT. Only a descriptor that is O_NONBLOCK
 * cannot block beyond it.
 */
enum pl_status pl_file_write_by(int fd, const void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * How long to leave a descriptor alone that polls as writable and takes nothing: another writer was faster, or a
 * terminal has room for one byte and a line's end needs two, for which it polls so until it is read.
 */
#define PL_FILE_RETRY_NS (5 * PL_NS_PER_MS)

/**
 * Open the pipe or terminal `fd` once more for writing, O_NONBLOCK and close-on-exec: a write(2) to a pipe that others
 * write to as well may block although it has just polled as writable, and to set O_NONBLOCK would set it for them too.
 * -1 where it is neither, or the system refuses.
 */
int pl_file_open_own(int fd) PL_MUST_CHECK;

/** Wait until `deadline_ns` for data or the end of file: 1, 0 where the time is over, or -1 with errno. */
int pl_file_poll_readable(int fd, int64_t deadline_ns);

/**
 * Read once, at most `bytes`, waiting until `deadline_ns`; `*ret_bytes` 0 is end of file.
 * Works on blocking and non-blocking descriptors. PL_TIMEOUT leaves the descriptor usable.
 */
enum pl_status pl_file_read_some(int fd, void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                 size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** Set or clear O_NONBLOCK. */
enum pl_status pl_file_set_nonblock(int fd, bool nonblock, struct pl_error *reterr) PL_MUST_CHECK;

/** Create the directory `path` and its missing parents with `mode`; an existing directory is fine. */
enum pl_status pl_file_make_dirs(const char *path, mode_t mode, struct pl_error *reterr) PL_MUST_CHECK;

/** The same for the directory in which the file `path` lies or will lie. */
enum pl_status pl_file_make_parents(const char *path, mode_t mode, struct pl_error *reterr) PL_MUST_CHECK;

/** Remove the directory `path` with all that is in it, as far as that can be removed; links are not followed. */
void pl_file_remove_tree(const char *path);

/**
 * Where the program `name` is: itself when it has a '/', else the first executable file along `path`, a list
 * separated by colons, in which an empty entry is the current directory; NULL and "" are the system's default.
 * PL_NOT_FOUND otherwise, with the code ENOENT. The caller frees `*ret_path`.
 */
enum pl_status pl_file_find_program(const char *name, const char *path, char **ret_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
