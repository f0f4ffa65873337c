/* SPDX-License-Identifier: Apache-2.0 */
/**
 * S3's responses: a walk over the elements of their XML, what to do after an error, and how long to wait before a
 * retry. Pure functions: the caller passes the time and random numbers.
 *
 * Source  Amazon S3 API Reference: "Error responses", "REST Error Responses"; "Exponential Backoff And Jitter" (AWS
 *         Architecture Blog) for full jitter; "Retry behavior" (AWS SDKs and Tools Reference Guide) for the retry quota
 *         of its standard mode.
 * Test    tests/unit/s3io/s3/test_s3_retry.c, test_s3_list.c, tests/fuzz/fuzz_s3.c
 */
#ifndef PL_S3IO_S3_S3_REPLY_H
#define PL_S3IO_S3_S3_REPLY_H

#include "base/status.h"

#include <stddef.h>

enum pl_s3_retry_action {
    PL_S3_FINAL,           /* do not retry: the response is the result */
    PL_S3_RETRY,           /* send the same request again, later */
    PL_S3_SLOWER,          /* send the same request again, later, and fewer requests at a time */
    PL_S3_NEW_CREDENTIALS, /* the keys have expired */
    PL_S3_REGION,          /* the bucket is in another region */
    PL_S3_CLOCK,           /* our clock is wrong */
};

/** Classifies an HTTP status with the code of its error document ("" if there was none). */
enum pl_s3_retry_action pl_s3_retry_classify(int http_status, const char *code);

/** Returns our status for a response that is not retried. */
enum pl_status pl_s3_retry_status(int http_status, const char *code);

/**
 * Returns how long to wait before attempt `attempt` (1 is the first retry): a random time up to 0.1 s, doubled with
 * each attempt, at most 20 s. It is at least the `retry_after_s` that the server sent (-1: it sent none), of which at
 * most a minute counts.
 */
int64_t pl_s3_retry_delay_ns(unsigned attempt, int64_t retry_after_s, uint64_t random);

/**
 * The retry quota (token bucket) of a client. It has 100 tokens. Each retry takes one; each success puts back the
 * tokens that it took and one more; each second adds one. If a service fails completely, its clients soon retry only
 * once per second, however many transfers wait. Unlike in the SDKs, a retry without a token does not fail but waits for
 * its second: the number of attempts and the deadline limit it.
 */
struct pl_s3_retry_quota {
    double left; /* below 0: number of tokens that are owed */
    int64_t counted_ns;
};

/** Returns a full quota. */
struct pl_s3_retry_quota pl_s3_retry_quota_full(int64_t now_ns);

/** Takes a token. Returns how long the retry must wait for it. */
int64_t pl_s3_retry_quota_take(struct pl_s3_retry_quota *retry_quota, int64_t now_ns);

/** Puts `count` tokens back, up to the full quota. */
void pl_s3_retry_quota_put(struct pl_s3_retry_quota *retry_quota, unsigned count);

/** Called at the end of every element, with its path ("ListBucketResult/Contents/Key") and its text. */
struct pl_s3_xml_visitor {
    void *context;
    enum pl_status (*element)(void *context, const char *path, const char *text, size_t text_bytes,
                              struct pl_error *reterr);
};

/**
 * Walks over a whole document. A document type declaration is an error: S3 sends none, and its entities could make a
 * small input very large.
 *
 * Errors  PL_CORRUPT: the text is not XML. PL_LIMIT: elements are nested deeper than 32. The visitor's errors.
 */
enum pl_status pl_s3_xml_walk(const char *text, size_t bytes, const struct pl_s3_xml_visitor *visitor,
                              struct pl_error *reterr) PL_MUST_CHECK;

struct pl_s3_error_document {
    char code[64]; /* "NoSuchKey"; "" if the text is not an error document */
    char message[256];
    char region[64];
};

/** Parses an <Error> document, STS's <ErrorResponse> around one, or {"message"}. For other texts the code is "". */
void pl_s3_error_parse(const char *text, size_t bytes, struct pl_s3_error_document *ret_document);

/** Copies `text_bytes` of `text`, and truncates them to fit. */
void pl_s3_xml_copy(char *target, size_t target_bytes, const char *text, size_t text_bytes);

#endif
