/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What to do about an answer that is no success, and how long to wait before trying again. Pure functions: the caller
 * brings time and chance.
 *
 * Source  Amazon S3 API Reference: "Error responses"; "Exponential Backoff And Jitter" (AWS Architecture Blog) for full
 *         jitter; "Retry behavior" (AWS
 * SDKs and Tools Reference Guide) for the allowance of its standard mode. Test    tests/unit/s3io/s3/test_s3_retry.c
 */
#ifndef PL_S3IO_S3_S3_RETRY_H
#define PL_S3IO_S3_S3_RETRY_H

#include "base/status.h"

enum pl_s3_verdict {
    PL_S3_FINAL,    /* the answer stands */
    PL_S3_RETRY,    /* the same again, later */
    PL_S3_SLOWER,   /* the same again, later, and fewer at a time */
    PL_S3_NEW_KEYS, /* the keys have expired */
    PL_S3_REGION,   /* the bucket is elsewhere */
    PL_S3_CLOCK,    /* our clock is wrong */
};

/** Judge an HTTP status with the code of its error document ("" when there was none). */
enum pl_s3_verdict pl_s3_retry_judge(int http_status, const char *code);

/** Our status for such an answer when it is final. */
enum pl_status pl_s3_retry_status(int http_status, const char *code);

/**
 * How long to wait before attempt `attempt` (1 is the first repetition): a random time up to 0.1 s doubled each time,
 * at most 20 s; never less than `retry_after_s` when the server gave one (-1: it did not), of which a minute is
 * believed.
 */
int64_t pl_s3_retry_delay_ns(unsigned attempt, int64_t retry_after_s, uint64_t random);

/**
 * All repetitions of a client together: each takes one of 100 out of this allowance, each success puts back what it
 * took and one more, and each second brings one. Where a service fails altogether its clients soon knock once a second,
 * however many transfers wait. Unlike the SDKs', a repetition for which nothing is left waits for its second instead of
 * failing: attempts and deadlines decide about that.
 */
struct pl_s3_allowance {
    double left; /* below 0: so many are owed */
    int64_t counted_ns;
};

/** A full one. */
struct pl_s3_allowance pl_s3_allowance_full(int64_t now_ns);

/** Take one; how long the repetition has to wait for it. */
int64_t pl_s3_allowance_take(struct pl_s3_allowance *allowance, int64_t now_ns);

/** Put `count` back, up to the full measure. */
void pl_s3_allowance_put(struct pl_s3_allowance *allowance, unsigned count);

#endif
