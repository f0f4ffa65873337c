/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The head of an HTTP response, parsed line by line: the status, and the headers that an S3 client uses.
 *
 * Source  RFC 9110 (fields, Content-Range, Retry-After); Amazon S3 API Reference (common response headers).
 * Test    tests/unit/s3io/s3/test_texts.c, tests/fuzz/fuzz_s3.c
 */
#ifndef PL_S3IO_HTTP_HTTP_HEAD_H
#define PL_S3IO_HTTP_HTTP_HEAD_H

#include "base/checksum.h"
#include "base/status.h"

#include <stddef.h>

enum {
    PL_HTTP_ETAG_BYTES = 160,
    PL_HTTP_HEAD_MAX_BYTES = 65536, /* limit for all lines together; a longer head is an error */
};

struct pl_http_head {
    int status;
    size_t head_bytes;
    int64_t content_length;          /* -1 if it is missing */
    int64_t range_first, range_last; /* -1 if Content-Range is missing or unsatisfied */
    int64_t range_total;             /* -1 if it is missing */
    int64_t retry_after_s;           /* -1 if it is missing */
    int64_t date_s;                  /* the server's clock, seconds since 1970; -1 if it is missing */
    int64_t last_modified_s;         /* -1 if it is missing */
    /* checksum of the whole object, not of its parts; CRC32C if the server sends several */
    struct pl_checksum checksum;
    bool composite;                /* the server sent a checksum of the parts' checksums */
    bool full_object;              /* x-amz-checksum-type: FULL_OBJECT */
    char etag[PL_HTTP_ETAG_BYTES]; /* with its quotes; "" if it is missing */
    char region[64];               /* x-amz-bucket-region */
    char request_id[80];           /* x-amz-request-id */
};

/** Prepares the head for its first line. */
void pl_http_head_init(struct pl_http_head *head);

/**
 * Parses one line, with or without its line end. A status line resets the head, so that after a "100 Continue" only the
 * last head counts. Unknown fields are skipped. A known field that cannot be parsed is an error: using only a part of
 * it would be worse.
 *
 * Errors  PL_CORRUPT: a malformed line or field. PL_LIMIT: the head is too long.
 */
enum pl_status pl_http_head_line(struct pl_http_head *head, const char *line, size_t bytes,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Parses "2026-01-31T12:00:00Z", with any fraction of a second. Stores seconds since 1970. */
bool pl_http_head_iso_time(const char *text, int64_t *ret_s);

/**
 * Decodes a number of 4 or 8 `bytes`, big-endian in standard base64, as in x-amz-checksum-crc32c. Returns false if
 * `text` is anything else.
 */
bool pl_http_head_base64_number(const char *text, size_t bytes, uint64_t *ret_number);

/** Stores the base64 of `word`, 8 characters. */
void pl_http_head_word_base64(uint32_t word, char text[static 9]);

#endif
