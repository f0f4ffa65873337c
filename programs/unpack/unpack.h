/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Bringing the user's code into the code directory: unpacking an untrusted archive, or copying a
 * directory.
 *
 * Nothing is written outside the destination: names are resolved one part at a time below its descriptor, links are
 * never followed, and an entry with an absolute name or "..", a symbolic link or a device ends it with an error. A hard
 * link to a file that was unpacked before it becomes a copy. What was unpacked before an error stays.
 *
 * Test    tests/unit/programs/unpack/test_unpack.c, tests/fuzz/fuzz_unpack.c
 */
#ifndef PL_PROGRAMS_UNPACK_UNPACK_H
#define PL_PROGRAMS_UNPACK_UNPACK_H

#include "base/status.h"

#include <stddef.h>

struct pl_unpack_limits {
    int64_t max_bytes;   /* of all files together */
    int64_t max_entries; /* files and directories */
};

/**
 * Unpack the tar archive (plain, gzip, bzip2, xz or zstd) `path` into the directory `dest_fd`.
 *
 * Errors  PL_INVALID (an entry that is refused), PL_LIMIT, PL_CORRUPT (not such an archive), PL_SYSTEM.
 */
enum pl_status pl_unpack_file(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_unpack_file() for an archive in memory. */
enum pl_status pl_unpack_memory(const void *data, size_t bytes, int dest_fd, const struct pl_unpack_limits *limits,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copy what the directory `path` holds into `dest_fd`. Links in it are followed as files, a dangling one is an error.
 */
enum pl_status pl_unpack_copy_tree(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Copy the file `path` into `dest_fd` under its own name. */
enum pl_status pl_unpack_copy_file(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Whether pl_unpack_file() could begin with `path`: the errors that it would have before it writes anything. */
enum pl_status pl_unpack_check(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** True when the beginning of `path` is that of an archive pl_unpack_file() knows. */
bool pl_unpack_is_archive(const char *path);

#endif
