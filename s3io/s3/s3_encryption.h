/* SPDX-License-Identifier: Apache-2.0 */
/**
 * How the server is to encrypt an object that is written. Needs nothing of the client's: the entry point checks a job's
 * settings by it before the job starts.
 *
 * Source  Amazon S3 API Reference: PutObject, CreateMultipartUpload (x-amz-server-side-encryption and its family).
 * Test    tests/unit/s3io/s3/test_s3_headers.c, tests/integration/s3_objects.py
 */
#ifndef PL_S3IO_S3_S3_ENCRYPTION_H
#define PL_S3IO_S3_S3_ENCRYPTION_H

#include "base/status.h"

#include <stdbool.h>

/** Zero-initialise: what the bucket does by itself. Strings stay the caller's. */
struct pl_s3_encryption {
    const char *algorithm; /* "AES256", "aws:kms", "aws:kms:dsse" */
    const char *key_id;    /* of a KMS key: an id, an alias or an ARN; NULL: AWS's own of the account */
    bool bucket_key;       /* fewer calls of KMS, with "aws:kms" alone */
};

/** What a user calls the three: options or settings. */
struct pl_s3_encryption_names {
    const char *algorithm, *key_id, *bucket_key;
};

/** As the tools call them: "--sse" and so on. */
extern const struct pl_s3_encryption_names pl_s3_encryption_options;

/** PL_INVALID, naming what is wrong and what was expected. */
enum pl_status pl_s3_encryption_check(const struct pl_s3_encryption *encryption,
                                      const struct pl_s3_encryption_names *names,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
