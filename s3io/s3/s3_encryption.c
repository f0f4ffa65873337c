/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a user's settings for the encryption of objects. */
#include "s3io/s3/s3_encryption.h"

#include <string.h>

enum { MOST_KEY_BYTES = 2048 }; /* KMS's own limit */

const struct pl_s3_encryption_names pl_s3_encryption_options = {
    .algorithm = "--sse", .key_id = "--sse-kms-key-id", .bucket_key = "--bucket-key-enabled"};

static bool is_any_of(const char *text, const char *const *words)
{
    while (*words && strcmp(text, *words) != 0) {
        words++;
    }
    return *words;
}

/* Whether the text can be the id of a key: it goes into a header unchanged. */
static bool is_key_id(const char *text)
{
    size_t length = strlen(text);

    for (const char *at = text; *at; at++) {
        if (*at <= ' ' || *at > '~') {
            return false;
        }
    }
    return length > 0 && length <= MOST_KEY_BYTES;
}

enum pl_status pl_s3_encryption_check(const struct pl_s3_encryption *encryption,
                                      const struct pl_s3_encryption_names *names, struct pl_error *reterr)
{
    static const char *const algorithms[] = {"AES256", "aws:kms", "aws:kms:dsse", NULL};
    const char *algorithm = encryption->algorithm;

    if (algorithm && !is_any_of(algorithm, algorithms)) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%.60s': expected AES256, aws:kms or aws:kms:dsse",
                            names->algorithm, algorithm);
    }
    if (encryption->key_id && !is_key_id(encryption->key_id)) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%.60s': expected the id, alias or ARN of a KMS key",
                            names->key_id, encryption->key_id);
    }
    if (encryption->key_id && (!algorithm || strncmp(algorithm, "aws:kms", 7) != 0)) {
        return pl_error_set(reterr, PL_INVALID, "%s needs %s aws:kms or aws:kms:dsse, which is %s", names->key_id,
                            names->algorithm, algorithm ? algorithm : "not given");
    }
    if (encryption->bucket_key && (!algorithm || strcmp(algorithm, "aws:kms") != 0)) {
        return pl_error_set(reterr, PL_INVALID, "%s needs %s aws:kms, which is %s", names->bucket_key, names->algorithm,
                            algorithm ? algorithm : "not given");
    }
    return PL_OK;
}
