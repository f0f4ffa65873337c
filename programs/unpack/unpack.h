/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Puts the user's code into the code directory: unpacks an untrusted archive, or copies a directory.
 *
 * Nothing is written outside the destination. Names are resolved one part at a time below its descriptor, and links are
 * never followed. An entry with an absolute name or "..", a symbolic link or a device is an error. A hard link to a
 * file that was unpacked before becomes a copy. Entries that were unpacked before an error stay.
 *
 * Test    tests/unit/programs/unpack/test_unpack.c, tests/fuzz/fuzz_unpack.c
 */
#ifndef PL_PROGRAMS_UNPACK_UNPACK_H
#define PL_PROGRAMS_UNPACK_UNPACK_H

#include "base/status.h"

#include <stddef.h>

struct pl_unpack_limits {
    int64_t max_bytes;   /* limit for the bytes of all files together */
    int64_t max_entries; /* limit for the number of files and directories */
};

/**
 * Unpacks the tar archive `path` (plain, gzip, bzip2, xz or zstd) into the directory `dest_fd`.
 *
 * Errors  PL_INVALID (an entry that is refused), PL_LIMIT, PL_CORRUPT (not such an archive), PL_SYSTEM.
 */
enum pl_status pl_unpack_file(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** The same as pl_unpack_file() for an archive in memory. */
enum pl_status pl_unpack_memory(const void *data, size_t bytes, int dest_fd, const struct pl_unpack_limits *limits,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Copies the contents of the directory `path` into `dest_fd`. Links are followed; a dangling link is an error. */
enum pl_status pl_unpack_copy_tree(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Copies the file `path` into `dest_fd` under its own name. */
enum pl_status pl_unpack_copy_file(const char *path, int dest_fd, const struct pl_unpack_limits *limits,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Checks whether pl_unpack_file() could begin with `path`. Errors: those that pl_unpack_file() has before it writes.
 */
enum pl_status pl_unpack_check(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether `path` begins like an archive that pl_unpack_file() can read. */
bool pl_unpack_is_archive(const char *path);

#endif
