/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The head of an HTTP response, line by line: the status and those headers that an S3 client acts on.
 *
 * Source  RFC 9110 (fields, Content-Range, Retry-After); Amazon S3 API Reference (common response headers).
 * Test    tests/unit/s3io/http/test_http_head.c, tests/fuzz/fuzz_http_head.c
 */
#ifndef PL_S3IO_HTTP_HTTP_HEAD_H
#define PL_S3IO_HTTP_HTTP_HEAD_H

#include "base/checksum.h"
#include "base/status.h"

#include <stddef.h>

enum {
    PL_HTTP_ETAG_BYTES = 160,
    PL_HTTP_HEAD_MAX_BYTES = 65536, /* all lines together; a longer head is refused */
};

struct pl_http_head {
    int status;
    size_t head_bytes;
    int64_t content_length;          /* -1: not given */
    int64_t range_first, range_last; /* -1: no Content-Range, or an unsatisfied one */
    int64_t range_total;             /* -1: not given */
    int64_t retry_after_s;           /* -1: not given */
    int64_t date_s;                  /* the server's clock, seconds since 1970; -1: not given */
    int64_t last_modified_s;         /* -1: not given */
    struct pl_checksum checksum;     /* of the whole object, not of its parts; CRC32C where the server gives several */
    bool composite;                  /* the server gave a checksum of the parts' checksums */
    bool full_object;                /* x-amz-checksum-type: FULL_OBJECT */
    char etag[PL_HTTP_ETAG_BYTES];   /* with its quotes, "" when absent */
    char region[64];                 /* x-amz-bucket-region */
    char request_id[80];             /* x-amz-request-id */
};

/** No line seen yet. */
void pl_http_head_init(struct pl_http_head *head);

/**
 * Parse one line, with or without its line end. A status line resets the head, so that only the last head of a "100
 * Continue" counts. Unknown fields are skipped; a known one that cannot be read is an error, because acting on half of
 * it is worse.
 *
 * Errors  PL_CORRUPT for a malformed line or field, PL_LIMIT for a head that is too long.
 */
enum pl_status pl_http_head_line(struct pl_http_head *head, const char *line, size_t bytes,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Read "2026-01-31T12:00:00Z", with any fraction of a second, as seconds since 1970. */
bool pl_http_head_iso_time(const char *text, int64_t *ret_s);

/**
 * Decode standard base64 of a big-endian number of 4 or 8 `bytes`, as x-amz-checksum-crc32c has it. False when it is
 * anything else.
 */
bool pl_http_head_base64_number(const char *text, size_t bytes, uint64_t *ret_number);

/** The base64 of `word`, 8 characters. */
void pl_http_head_word_base64(uint32_t word, char text[static 9]);

#endif
