/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A directory as a stream: a tar archive of pax format of everything in it, files, directories, symbolic links, modes
 * and times, names as bytes, with an entry at its end that says that nothing is missing. A socket, FIFO or device is an
 * error.
 *
 * Test  tests/unit/programs/unpack/test_stream.c
 */
#ifndef PL_PROGRAMS_UNPACK_STREAM_H
#define PL_PROGRAMS_UNPACK_STREAM_H

#include "base/status.h"

#include <stdbool.h>

/**
 * Write the directory, an absolute path as below, to `fd`. One that does not exist is an empty one; with
 * `empty_is_wrong` both are PL_NOT_FOUND. Changes the working directory.
 */
enum pl_status pl_stream_pack(const char *directory, int fd, bool empty_is_wrong,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Make `directory` of the stream that comes from `fd`: with `in_place` what is there stays unless the stream has
 * another of its name; else all of it is replaced. Both happen once the stream has come whole and is on disk; after a
 * kill the next call does it again. Nothing is written outside of it. Changes the working directory.
 *
 * Errors  PL_CORRUPT: it is no such stream, or it ends early; PL_SYSTEM.
 */
enum pl_status pl_stream_receive(const char *directory, int fd, bool in_place, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Copy `from`, in which there is something, into `directory` on the same host, in place as above: by further links to
 * its files where one file system has both, which needs no room, else as a stream. `from` stays as it is.
 */
enum pl_status pl_stream_copy(const char *from, const char *directory, struct pl_error *reterr) PL_MUST_CHECK;

#endif
