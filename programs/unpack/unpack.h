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
 * Puts `source` into the directory `dest_fd`. A tar archive (plain, gzip, bzip2, xz or zstd) is unpacked: a file is one
 * if `is_archive`, or by its name, or by its first bytes. Any other file is copied under its own name, and of a
 * directory its contents. Links in a directory are followed; a dangling one is an error.
 *
 * Errors  PL_INVALID (neither a file nor a directory, or an entry that is refused), PL_LIMIT, PL_CORRUPT (not such an
 *         archive), PL_SYSTEM.
 */
enum pl_status pl_unpack_source(const char *source, bool is_archive, int dest_fd, const struct pl_unpack_limits *limits,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Checks, without writing, whether `source` can be what its name says. */
enum pl_status pl_unpack_look(const char *source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
