/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Uploads a byte source: a small object with one request, a large one as a multipart upload with parallel parts.
 *
 * Every part has its CRC32C. After a failure or a stop request the upload is aborted, so that no parts are left that
 * cost money. After a success, a HEAD has shown that the object has the size that was sent.
 *
 * Source  Amazon S3 user guide: "Uploading and copying objects using multipart upload". CompleteMultipartUpload answers
 *         200 before it knows whether it has succeeded, so the document in its answer decides.
 * Test    tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_PUT_H
#define PL_S3IO_S3_S3_PUT_H

#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_headers.h"
#include "s3io/source.h"

#define PL_S3_SIZE_UNKNOWN UINT64_MAX
/* S3 refuses smaller parts, except for the last one. A smaller object is uploaded with one request. */
#define PL_S3_LEAST_PART_BYTES (UINT64_C(5) << 20)

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_s3_upload_options {
    uint64_t budget_bytes; /* memory for the parts in flight; 0 means 64 MiB */
    /* 0 means 16 MiB, or more if `size_bytes` needs it. At most a fourth of the budget, unless 10,000 parts need
     * more */
    uint64_t part_bytes;
    bool no_checksums; /* for servers that refuse x-amz-checksum-crc32c */
    /* headers with which the object is written, or NULL; they must outlive the call */
    const struct pl_s3_headers *headers;
    /* Callbacks on the caller's thread; each may be NULL. */
    void (*progress)(void *context, uint64_t bytes); /* `bytes` have arrived in total */
    /* called ten times a second; must return at once. If it returns false, the upload is aborted with PL_CANCELLED */
    bool (*go_on)(void *context);
    void *context;
};

/**
 * Uploads all bytes of `source` to s3://`bucket`/`key`.
 *
 * Units   size_bytes: the size of the source if it is known, else PL_S3_SIZE_UNKNOWN. If the source has another size,
 *         the result is PL_CORRUPT, and the object is unchanged.
 * Errors  PL_LIMIT: the source has more bytes than 10,000 parts can hold. The errors of the source and of the server.
 */
enum pl_status pl_s3_upload(struct pl_s3_client *client, const char *bucket, const char *key, struct pl_source *source,
                            uint64_t size_bytes, const struct pl_s3_upload_options *options, int64_t deadline_ns,
                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
