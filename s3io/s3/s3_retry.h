/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What to do about an error answer, and how long to wait before retrying. Pure functions: the caller
 * passes the time and random numbers.
 *
 * Source  Amazon S3 API Reference: "Error responses"; "Exponential Backoff And Jitter" (AWS Architecture Blog) for full
 *         jitter; "Retry behavior" (AWS
 * SDKs and Tools Reference Guide) for the retry quota of its standard mode. Test    tests/unit/s3io/s3/test_s3_retry.c
 */
#ifndef PL_S3IO_S3_S3_RETRY_H
#define PL_S3IO_S3_S3_RETRY_H

#include "base/status.h"

enum pl_s3_retry_action {
    PL_S3_FINAL,           /* the answer stands */
    PL_S3_RETRY,           /* the same again, later */
    PL_S3_SLOWER,          /* the same again, later, and fewer at a time */
    PL_S3_NEW_CREDENTIALS, /* the keys have expired */
    PL_S3_REGION,          /* the bucket is elsewhere */
    PL_S3_CLOCK,           /* our clock is wrong */
};

/** Classify an HTTP status with the code of its error document ("" when there was none). */
enum pl_s3_retry_action pl_s3_retry_classify(int http_status, const char *code);

/** Our status for such an answer when it is final. */
enum pl_status pl_s3_retry_status(int http_status, const char *code);

/**
 * How long to wait before attempt `attempt` (1 is the first retry): a random time up to 0.1 s doubled each time,
 * at most 20 s; never less than `retry_after_s` when the server gave one (-1: it did not), of which at most a minute is
 * used.
 */
int64_t pl_s3_retry_delay_ns(unsigned attempt, int64_t retry_after_s, uint64_t random);

/**
 * The retry quota (token bucket) of a client: each retry takes one of 100 tokens, each success puts back what it
 * took and one more, and each second adds one. When a service fails altogether its clients soon retry only once a
 * second, however many transfers wait. Unlike in the SDKs, a retry without a token waits for its second instead of
 * failing: the number of attempts and the deadline decide when to give up.
 */
struct pl_s3_retry_quota {
    double left; /* below 0: so many are owed */
    int64_t counted_ns;
};

/** A full quota. */
struct pl_s3_retry_quota pl_s3_retry_quota_full(int64_t now_ns);

/** Take one; how long the retry has to wait for it. */
int64_t pl_s3_retry_quota_take(struct pl_s3_retry_quota *retry_quota, int64_t now_ns);

/** Put `count` back, up to the full quota. */
void pl_s3_retry_quota_put(struct pl_s3_retry_quota *retry_quota, unsigned count);

#endif
