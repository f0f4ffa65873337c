/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Downloads objects into files. A file is written under a temporary name next to its place and renamed when it is
 * complete. An interrupted download is resumed, and a file that exists already is skipped.
 *
 * Test  tests/unit/s3io/s3/test_s3_copy.c, tests/integration/s3_server.py, tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_COPY_H
#define PL_S3IO_S3_S3_COPY_H

#include "s3io/s3/s3_get.h"

/** An object and the path of its file. */
struct pl_s3_fetch {
    struct pl_s3_object object; /* its ETag and size must be set */
    const char *path;
    int64_t modified_s; /* becomes the file's time, by which a later run recognises it; -1 if it is unknown */
};

/** Progress callbacks. They are called on the caller's thread. */
struct pl_s3_progress {
    void *context;
    void (*moved)(void *context, const char *name, uint64_t bytes);
};

/**
 * Downloads `count` objects in order, in parallel ranges. Makes the directories. Skips a file that has the object's
 * size and time, unless `again`. Resumes an unfinished file of the same ETag ("PATH.XXXXXXXXXXXXXXXX.part"). If the
 * checksum of the whole object is known, the unfinished file is read first; a HEAD asks for the checksum if `object`
 * does not have it.
 *
 * Errors  those of pl_s3_stream_next(). PL_FAILED: another download writes the unfinished file. If the bytes do not
 *         match their checksum, they are removed and fetched once more from the beginning.
 */
enum pl_status pl_s3_download(struct pl_s3_client *client, struct pl_s3_fetch *fetches, size_t count,
                              const struct pl_s3_stream_options *options, bool again, int64_t read_timeout_ns,
                              const struct pl_s3_progress *progress, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends DIRECTORY/KEY to `path`. PL_INVALID for keys that would lead out of the directory ("..", empty parts) or
 * cannot be files.
 */
enum pl_status pl_s3_local_path(const char *directory, const char *key, struct pl_text *path,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
