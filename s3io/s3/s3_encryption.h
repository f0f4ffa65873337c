/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The server-side encryption of an object that is written. It needs no client: the entry point checks a job's settings
 * with it before the job starts.
 *
 * Source  Amazon S3 API Reference: PutObject, CreateMultipartUpload (the x-amz-server-side-encryption headers).
 * Test    tests/unit/s3io/s3/test_s3_headers.c, tests/integration/s3_objects.py
 */
#ifndef PL_S3IO_S3_S3_ENCRYPTION_H
#define PL_S3IO_S3_S3_ENCRYPTION_H

#include "base/status.h"

#include <stdbool.h>

/** Zero-initialised it means the bucket's own default. Strings stay the caller's. */
struct pl_s3_encryption {
    const char *algorithm; /* "AES256", "aws:kms", "aws:kms:dsse" */
    const char *key_id;    /* id, alias or ARN of a KMS key; NULL for AWS's own key of the account */
    bool bucket_key;       /* needs fewer calls of KMS; only with "aws:kms" */
};

/** The user's names of the three: options or settings. */
struct pl_s3_encryption_names {
    const char *algorithm, *key_id, *bucket_key;
};

/** The names of the tools' options, "--sse" and so on. */
extern const struct pl_s3_encryption_names pl_s3_encryption_options;

/** PL_INVALID, with the wrong option and what was expected. */
enum pl_status pl_s3_encryption_check(const struct pl_s3_encryption *encryption,
                                      const struct pl_s3_encryption_names *names,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
