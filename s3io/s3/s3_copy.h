/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Objects to files: written to a temporary name next to the file and renamed when whole, resumed after an interruption,
 * skipped when they are there already.
 *
 * Test  tests/unit/s3io/s3/test_s3_copy.c, tests/integration/s3_server.py, tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_COPY_H
#define PL_S3IO_S3_S3_COPY_H

#include "s3io/s3/s3_get.h"

/** An object and where it goes. */
struct pl_s3_fetch {
    struct pl_s3_object object; /* with ETag and size */
    const char *path;
    int64_t modified_s; /* becomes the file's time, by which a later run recognises it; -1: unknown */
};

/** Progress callbacks; called on the caller's thread. */
struct pl_s3_progress {
    void *context;
    void (*moved)(void *context, const char *name, uint64_t bytes);
};

/**
 * Fetch `count` objects in order, in parallel ranges. Directories are made. A file that has the object's size and time
 * is left alone unless `again`; an unfinished one of the same ETag ("PATH.XXXXXXXXXXXXXXXX.part") is continued, and
 * read first, if the checksum of the whole is known, which a HEAD finds out where `object` does not tell it.
 *
 * Errors  as pl_s3_stream_next(); PL_FAILED for an unfinished file that another download is writing; bytes that fail
 *         their checksum are removed and fetched once more from the beginning.
 */
enum pl_status pl_s3_download(struct pl_s3_client *client, struct pl_s3_fetch *fetches, size_t count,
                              const struct pl_s3_stream_options *options, bool again, int64_t read_timeout_ns,
                              const struct pl_s3_progress *progress, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append DIRECTORY/KEY to `path`. PL_INVALID for keys that would lead elsewhere ("..", empty parts) or are not files.
 */
enum pl_status pl_s3_local_path(const char *directory, const char *key, struct pl_text *path,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
