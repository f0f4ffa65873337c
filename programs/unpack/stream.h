/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A directory as a stream: a tar archive in pax format of all files, directories and symbolic links, with modes and
 * times. Names are bytes. An entry at its end tells that nothing is missing. A socket, FIFO or device is an error.
 *
 * Test  tests/unit/programs/unpack/test_stream.c
 */
#ifndef PL_PROGRAMS_UNPACK_STREAM_H
#define PL_PROGRAMS_UNPACK_STREAM_H

#include "base/status.h"

#include <stdbool.h>

/**
 * Writes the directory, an absolute path, to `fd`. A directory that does not exist counts as empty; with
 * `empty_is_wrong` an empty directory is PL_NOT_FOUND. Changes the working directory.
 */
enum pl_status pl_stream_pack(const char *directory, int fd, bool empty_is_wrong,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes `directory` from the stream in `fd`. With `in_place`, existing files stay unless the stream has others of the
 * same name. Without, the whole directory is replaced. Both happen once the stream has arrived completely and is on
 * disk; after a kill the next call repeats it. Nothing is written outside of the directory. Changes the working
 * directory.
 *
 * Errors  PL_CORRUPT if it is not such a stream or ends early; PL_SYSTEM.
 */
enum pl_status pl_stream_receive(const char *directory, int fd, bool in_place, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copies `from`, which must not be empty, into `directory` on the same host, as pl_stream_receive() with `in_place`. If
 * both are on one file system it makes hard links, which need no space; otherwise it copies a stream. `from` is
 * unchanged.
 */
enum pl_status pl_stream_copy(const char *from, const char *directory, struct pl_error *reterr) PL_MUST_CHECK;

#endif
