/* SPDX-License-Identifier: Apache-2.0 */
/** Descriptors and whole files: reading with a bound, writing atomically, reading and writing with a deadline. */
#ifndef PL_BASE_FILE_H
#define PL_BASE_FILE_H

#include "base/clock.h"
#include "base/status.h"

#include <dirent.h>
#include <poll.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/** Closes `*fd` unless it is negative, and sets it to -1; errno is unchanged. */
void pl_file_close_at(int *fd);

/** `PL_AUTO_CLOSE int fd = -1;` closes a descriptor that is not negative at the end of the scope. */
#define PL_AUTO_CLOSE __attribute__((cleanup(pl_file_close_at)))

/**
 * Opens the directory `name` in `parent_fd` for reading; `flags` are passed to openat(2). Returns NULL with errno on
 * failure.
 */
DIR *pl_file_open_directory(int parent_fd, const char *name, int flags);

/** Closes `*directory` unless it is NULL. */
void pl_file_close_directory_at(DIR **directory);

#define PL_AUTO_DIRECTORY __attribute__((cleanup(pl_file_close_directory_at)))

/**
 * Reads the whole file at `path` into NUL-terminated heap memory, which the caller frees; `ret_bytes` may be NULL. A
 * pipe may be read too. Errors: PL_LIMIT if the file is larger than `max_bytes`; PL_NOT_FOUND, with errno kept, if it
 * does not exist; for a pipe PL_INVALID if it has no writer, and PL_TIMEOUT if reading takes more than 30 s.
 */
enum pl_status pl_file_read(const char *path, size_t max_bytes, char **ret_data, size_t *ret_bytes,
                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Replaces or creates `path` with `bytes` of `data`. A reader sees either the old or the complete new content: the
 * function writes a temporary file in the same directory, calls fsync, renames the file and calls fsync on the
 * directory.
 */
enum pl_status pl_file_write_atomic(const char *path, const void *data, size_t bytes, mode_t mode,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_file_write_atomic(), relative to the directory descriptor `dir_fd`; `name` must be one path component. */
enum pl_status pl_file_write_atomic_at(int dir_fd, const char *name, const void *data, size_t bytes, mode_t mode,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_file_write_atomic(), for content in `count` parts, which are written in order without a copy. */
enum pl_status pl_file_write_atomic_parts(const char *path, const struct iovec *parts, size_t count, mode_t mode,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Allocates `bytes` from `offset` on in the file or memory file now. Without this call, a store to a mapping raises
 * SIGBUS if the file system is full. Returns 0 or an error number.
 */
int pl_file_allocate(int fd, off_t offset, off_t bytes) PL_MUST_CHECK;

/** Writes all `bytes`; continues after short writes and EINTR. `what` names the target in the error. */
enum pl_status pl_file_write_fd(int fd, const void *data, size_t bytes, const char *what,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copies at most 16 KiB from `from_fd` to `to_fd`; waits for both if necessary. Returns false at the end of `from_fd`,
 * or if reading or writing fails.
 */
bool pl_file_move(int from_fd, int to_fd) PL_MUST_CHECK;

/**
 * Like pl_file_write_fd(), but returns PL_TIMEOUT if it cannot write everything until `deadline_ns`. A descriptor
 * without O_NONBLOCK may block beyond the deadline.
 */
enum pl_status pl_file_write_by(int fd, const void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Time to wait before the next write to a descriptor that polls as writable but accepts nothing. Either another writer
 * was faster, or it is a terminal with room for one byte: a line's end needs two.
 */
#define PL_FILE_RETRY_NS (5 * PL_NS_PER_MS)

/**
 * Opens the pipe or terminal `fd` again for writing, O_NONBLOCK and close-on-exec. If a pipe has other writers, a
 * write(2) may block although the pipe has just polled as writable, and O_NONBLOCK on `fd` itself would affect the
 * other writers too. Returns -1 if `fd` is neither a pipe nor a terminal, or if the system refuses.
 */
int pl_file_open_own(int fd) PL_MUST_CHECK;

/** Waits until `deadline_ns` for `events` of poll(2). Returns 1; 0 after the deadline; or -1 with errno. */
int pl_file_poll(int fd, short events, int64_t deadline_ns);

/**
 * Reads once, at most `bytes`, and waits until `deadline_ns` for data. `*ret_bytes` is 0 at the end of file. The
 * descriptor may be blocking or non-blocking, and is still usable after PL_TIMEOUT.
 */
enum pl_status pl_file_read_some(int fd, void *data, size_t bytes, int64_t deadline_ns, const char *what,
                                 size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets or clears O_NONBLOCK. */
enum pl_status pl_file_set_nonblock(int fd, bool nonblock, struct pl_error *reterr) PL_MUST_CHECK;

/** Creates the directory `path` and its missing parents with `mode`; an existing directory is not an error. */
enum pl_status pl_file_make_dirs(const char *path, mode_t mode, struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_file_make_dirs(), for the directory of the file `path`, which need not exist. */
enum pl_status pl_file_make_parents(const char *path, mode_t mode, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Removes the directory `path` and its contents; skips entries that cannot be removed. Links are not followed. The mode
 * of a directory does not protect it if the caller owns it.
 */
void pl_file_remove_tree(const char *path);

/**
 * Finds the program `name`. A name with a '/' is itself the path; otherwise takes the first executable file in the
 * directories of `path`. They are separated by colons, and an empty one is the current directory. If `path` is NULL or
 * "", the system's default is used. The caller frees `*ret_path`. Errors: PL_NOT_FOUND, with the code ENOENT, if there
 * is no such program.
 */
enum pl_status pl_file_find_program(const char *name, const char *path, char **ret_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

#endif
