/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the headers with which an object is written, and checks its encryption. */
#include "s3io/s3/s3_headers.h"

#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/s3_reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char meta_prefix[] = "x-amz-meta-";

void pl_s3_headers_done(struct pl_s3_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        free((char *)(uintptr_t)headers->items[i].name);
        free(headers->lines[i]);
    }
    headers->count = 0;
}

static enum pl_status add(struct pl_s3_headers *headers, const char *name, size_t name_bytes, const char *value,
                          size_t value_bytes, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    PL_AUTO_FREE char *lower = pl_memory_string_n(name, name_bytes, reterr);

    if (!lower) {
        return PL_MEMORY;
    }
    if (headers->count == PL_S3_MOST_HEADERS) {
        return pl_error_set(reterr, PL_LIMIT, "an object has more than %d headers of metadata and encryption",
                            PL_S3_MOST_HEADERS);
    }
    for (char *at = lower; *at; at++) {
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at;
    }
    pl_text_printf(&line, "%s: ", lower);
    pl_text_append_n(&line, value, value_bytes);
    PL_TRY(pl_text_take(&line, &headers->lines[headers->count], reterr));
    headers->items[headers->count] =
        (struct pl_sigv4_header){.name = lower, .value = headers->lines[headers->count] + name_bytes + 2};
    lower = NULL;
    headers->count++;
    return PL_OK;
}

static enum pl_status add_string(struct pl_s3_headers *headers, const char *name, const char *value,
                                 struct pl_error *reterr)
{
    return add(headers, name, strlen(name), value, strlen(value), reterr);
}

enum pl_status pl_s3_headers_add_encryption(struct pl_s3_headers *headers, const struct pl_s3_encryption *encryption,
                                            struct pl_error *reterr)
{
    if (encryption->algorithm) {
        PL_TRY(add_string(headers, "x-amz-server-side-encryption", encryption->algorithm, reterr));
    }
    if (encryption->key_id) {
        PL_TRY(add_string(headers, "x-amz-server-side-encryption-aws-kms-key-id", encryption->key_id, reterr));
    }
    if (encryption->bucket_key) {
        PL_TRY(add_string(headers, "x-amz-server-side-encryption-bucket-key-enabled", "true", reterr));
    }
    return PL_OK;
}

static bool is_carried(const char *name, size_t bytes)
{
    static const char *const names[] = {"content-type",        "content-encoding", "content-language",
                                        "content-disposition", "cache-control",    "expires"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        if (strlen(names[i]) == bytes && strncasecmp(names[i], name, bytes) == 0) {
            return true;
        }
    }
    return bytes > sizeof(meta_prefix) - 1 && strncasecmp(name, meta_prefix, sizeof(meta_prefix) - 1) == 0;
}

enum pl_status pl_s3_headers_add_carried(struct pl_s3_headers *headers, const char *head, struct pl_error *reterr)
{
    while (*head) {
        size_t length = strcspn(head, "\r\n"), name_bytes = strcspn(head, ":\r\n");

        if (name_bytes < length && is_carried(head, name_bytes)) {
            size_t begin = name_bytes + 1, end = length;

            begin += strspn(head + begin, " \t");
            while (end > begin && (head[end - 1] == ' ' || head[end - 1] == '\t')) {
                end--;
            }
            if (end > begin) {
                PL_TRY(add(headers, head, name_bytes, head + begin, end - begin, reterr));
            }
        }
        head += length;
        head += strspn(head, "\r\n");
    }
    return PL_OK;
}

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
        return pl_error_set(reterr, PL_INVALID, "%s needs %s aws:kms or aws:kms:dsse, found %s", names->key_id,
                            names->algorithm, algorithm ? algorithm : "none");
    }
    if (encryption->bucket_key && (!algorithm || strcmp(algorithm, "aws:kms") != 0)) {
        return pl_error_set(reterr, PL_INVALID, "%s needs %s aws:kms, found %s", names->bucket_key, names->algorithm,
                            algorithm ? algorithm : "none");
    }
    return PL_OK;
}
