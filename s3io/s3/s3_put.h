/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Uploading a byte source: one request for a small object, a multipart upload with parallel parts for a large one.
 *
 * Every part carries its CRC32C. A failure aborts the upload, and so does a stop request, so that no parts are left to
 * be paid for. Success means that a later HEAD shows the size that was sent.
 *
 * Source  Amazon S3 user guide: "Uploading and copying objects using multipart upload"; CompleteMultipartUpload answers
 *         200 before it knows whether it worked, so its document decides.
 * Test    tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_PUT_H
#define PL_S3IO_S3_S3_PUT_H

#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_headers.h"
#include "s3io/source.h"

#define PL_S3_SIZE_UNKNOWN UINT64_MAX
/* S3 refuses smaller parts, but for the last; less goes up with one request */
#define PL_S3_LEAST_PART_BYTES (UINT64_C(5) << 20)

/** Zero-initialise, then set what differs. */
struct pl_s3_upload_options {
    uint64_t budget_bytes; /* 0: 64 MiB; for the parts in flight */
    /* 0: 16 MiB, more when `size_bytes` asks for it; a fourth of the budget at most, unless 10,000 parts need more */
    uint64_t part_bytes;
    bool no_checksums;                   /* for servers that refuse x-amz-checksum-crc32c */
    const struct pl_s3_headers *headers; /* that the object is written with; NULL: none. They outlive the call */
    /* On the caller's thread; each may be NULL. */
    void (*progress)(void *context, uint64_t bytes); /* the bytes that have arrived */
    /* the cancel callback, called ten times a second; must return at once: false aborts the upload, PL_CANCELLED */
    bool (*go_on)(void *context);
    void *context;
};

/**
 * Write all bytes of `source` to s3://`bucket`/`key`.
 *
 * Units   size_bytes: what the source will give, as far as it is known, else PL_S3_SIZE_UNKNOWN; a source that gives
 *         another number is PL_CORRUPT and leaves the object as it was.
 * Errors  PL_LIMIT for more bytes than 10,000 parts hold; what source and server say.
 */
enum pl_status pl_s3_upload(struct pl_s3_client *client, const char *bucket, const char *key, struct pl_source *source,
                            uint64_t size_bytes, const struct pl_s3_upload_options *options, int64_t deadline_ns,
                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
