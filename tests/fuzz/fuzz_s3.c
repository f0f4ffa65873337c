/* SPDX-License-Identifier: Apache-2.0 */
/* What S3 and the endpoints of credentials answer. */
#include "base/memory.h"
#include "s3io/http/http_head.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_client.h"
#include "s3io/s3/s3_reply.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Replies of credential endpoints and of STS, profile files, and the addresses that tokens may be sent to. */
static int fuzz_credentials(const uint8_t *data, size_t bytes)
{
    struct pl_credentials_reply reply;
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    struct pl_error error = PL_ERROR_NONE;
    /* strict sanitizers refuse strndup() of bytes without a NUL */
    char *url = pl_memory_string_n((const char *)data, bytes, NULL);

    if (pl_credentials_reply_parse((const char *)data, bytes, &reply, &error) == PL_OK ||
        pl_credentials_reply_parse_sts((const char *)data, bytes, &reply, &error) == PL_OK) {
        PL_BUG_IF(!reply.access_key || !reply.secret_key || strpbrk(reply.access_key, "\r\n"));
        PL_BUG_IF(reply.session_token && strpbrk(reply.session_token, "\r\n"));
        pl_credentials_reply_done(&reply);
    }
    if (pl_profile_parse((const char *)data, bytes, "default", bytes % 2, &profile, &error) == PL_OK &&
        profile.access_key) {
        PL_BUG_IF(strchr(profile.access_key, '\n'));
    }
    if (url) {
        pl_credentials_reply_url_allowed(url);
    }
    free(url);
    return 0;
}

/* Manifests of both kinds: entries that are accepted are complete, whatever the input is. */
static int fuzz_manifest(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"a-ref", "b"};
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};
    struct pl_error error = PL_ERROR_NONE;

    if (pl_manifest_parse((const char *)data, bytes, "fuzz", &manifest, &error) == PL_OK) {
        PL_BUG_IF(!manifest.bucket || !manifest.prefix);
        for (size_t i = 0; i < manifest.count; i++) {
            PL_BUG_IF(!manifest.keys[i]);
        }
    }
    if (pl_manifest_parse_augmented((const char *)data, bytes, "fuzz", names, 2, &augmented, &error) == PL_OK) {
        for (size_t i = 0; i < augmented.lines * augmented.attributes; i++) {
            PL_BUG_IF(!augmented.values[i].text || (i % 2 == 0) == !augmented.values[i].bucket);
        }
    }
    return 0;
}

/* List pages and error documents: in a page that is accepted, entries have keys, and an incomplete page has a token. */
static int fuzz_s3_list(const uint8_t *data, size_t bytes)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    struct pl_s3_error_document document;
    struct pl_error error = PL_ERROR_NONE;
    char *next = NULL;

    if (pl_s3_list_parse((const char *)data, bytes, &listing, &next, &error) == PL_OK) {
        for (size_t i = 0; i < listing.count; i++) {
            PL_BUG_IF(!listing.items[i].key);
        }
        PL_BUG_IF(next && !*next);
    } else {
        PL_BUG_IF(error.cause[0] == '\0' || next);
    }
    free(next);
    pl_s3_error_parse((const char *)data, bytes, &document);
    PL_BUG_IF(strlen(document.code) >= sizeof(document.code));
    return 0;
}

/* Heads of HTTP answers, line by line: values that are accepted are consistent. */
static int fuzz_http_head(const uint8_t *data, size_t bytes)
{
    struct pl_http_head head;
    struct pl_error error = PL_ERROR_NONE;

    pl_http_head_init(&head);
    while (bytes) {
        const uint8_t *newline = memchr(data, '\n', bytes);
        size_t length = newline ? (size_t)(newline - data) + 1 : bytes;

        if (pl_http_head_line(&head, (const char *)data, length, &error) != PL_OK) {
            PL_BUG_IF(error.cause[0] == '\0');
            return 0;
        }
        PL_BUG_IF(head.range_first > head.range_last || (head.range_total >= 0 && head.range_last >= head.range_total));
        PL_BUG_IF(head.content_length < -1 || strlen(head.etag) >= sizeof(head.etag));
        data += length;
        bytes -= length;
    }
    return 0;
}

FUZZ_TARGETS({"credentials", fuzz_credentials}, {"manifest", fuzz_manifest}, {"s3_list", fuzz_s3_list},
             {"http_head", fuzz_http_head})
