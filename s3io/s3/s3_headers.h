/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The headers with which an object is written: its encryption, and its properties (type, metadata).
 *
 * Source  Amazon S3 API Reference: PutObject, CreateMultipartUpload, HeadObject, GetObjectTagging.
 * Test    tests/unit/s3io/s3/test_s3_headers.c, tests/integration/s3_objects.py
 */
#ifndef PL_S3IO_S3_S3_HEADERS_H
#define PL_S3IO_S3_S3_HEADERS_H

#include "base/status.h"
#include "s3io/s3/sigv4.h"

#include <stdbool.h>

/**
 * The server-side encryption of an object that is written. It needs no client: the entry point checks a job's settings
 * with it before the job starts.
 * Zero-initialised it means the bucket's own default. Strings stay the caller's.
 */
struct pl_s3_encryption {
    const char *algorithm; /* "AES256", "aws:kms", "aws:kms:dsse" */
    const char *key_id;    /* id, alias or ARN of a KMS key; NULL for AWS's own key of the account */
    bool bucket_key;       /* needs fewer calls of KMS; only with "aws:kms" */
};

/** What messages call the three members of struct pl_s3_encryption: names of options or settings. */
struct pl_s3_encryption_names {
    const char *algorithm, *key_id, *bucket_key;
};

/** The names of the tools' options, "--sse" and so on. */
extern const struct pl_s3_encryption_names pl_s3_encryption_options;

/** Checks `encryption`. PL_INVALID names the wrong member, by `names`, and what was expected. */
enum pl_status pl_s3_encryption_check(const struct pl_s3_encryption *encryption,
                                      const struct pl_s3_encryption_names *names,
                                      struct pl_error *reterr) PL_MUST_CHECK;

enum { PL_S3_MOST_HEADERS = 64 };

/** Zero-initialise; release with pl_s3_headers_done(). */
struct pl_s3_headers {
    struct pl_sigv4_header items[PL_S3_MOST_HEADERS]; /* names in lower case */
    char *lines[PL_S3_MOST_HEADERS];                  /* "name: value" */
    size_t count;
};

#define PL_AUTO_S3_HEADERS __attribute__((cleanup(pl_s3_headers_done)))

void pl_s3_headers_done(struct pl_s3_headers *headers);

/** Adds the headers of `encryption`, which was checked. */
enum pl_status pl_s3_headers_add_encryption(struct pl_s3_headers *headers, const struct pl_s3_encryption *encryption,
                                            struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Adds those lines of a response's head that are properties of the object: its content type, encoding, language and
 * disposition, cache control, time of expiry, and user metadata. PL_LIMIT if there are more than PL_S3_MOST_HEADERS.
 */
enum pl_status pl_s3_headers_add_carried(struct pl_s3_headers *headers, const char *head,
                                         struct pl_error *reterr) PL_MUST_CHECK;

#endif
