/* SPDX-License-Identifier: Apache-2.0 */
/* Classifies error responses, and computes back-off and the retry quota. */
#include "s3io/s3/s3_retry.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

static bool is_any(const char *code, const char *const *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(code, codes[i]) == 0) {
            return true;
        }
    }
    return false;
}

enum pl_s3_retry_action pl_s3_retry_classify(int http_status, const char *code)
{
    static const char *const slower[] = {"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded",
                                         "TooManyRequests"};
    static const char *const again[] = {"InternalError",    "RequestTimeout", "ServiceUnavailable",
                                        "OperationAborted", "BadDigest",      "IDPCommunicationError"};
    static const char *const keys[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "ExpiredTokenException"};
    static const char *const region[] = {"PermanentRedirect", "AuthorizationHeaderMalformed", "IncorrectEndpoint",
                                         "IllegalLocationConstraintException"};
    static const char *const skew[] = {"RequestTimeTooSkewed", "RequestExpired"};

    if (is_any(code, slower, PL_ARRAY_ITEMS(slower))) {
        return PL_S3_SLOWER;
    }
    if (is_any(code, again, PL_ARRAY_ITEMS(again))) {
        return PL_S3_RETRY;
    }
    if (is_any(code, keys, PL_ARRAY_ITEMS(keys))) {
        return PL_S3_NEW_CREDENTIALS;
    }
    if (is_any(code, region, PL_ARRAY_ITEMS(region)) || http_status == 301) {
        return PL_S3_REGION;
    }
    if (is_any(code, skew, PL_ARRAY_ITEMS(skew))) {
        return PL_S3_CLOCK;
    }
    switch (http_status) {
    case 307:
    case 308:
        return PL_S3_REGION;
    case 429:
    case 503:
        return PL_S3_SLOWER;
    case 408:
    case 500:
    case 502:
    case 504:
        return PL_S3_RETRY;
    default:
        return PL_S3_FINAL;
    }
}

enum pl_status pl_s3_retry_status(int http_status, const char *code)
{
    if (http_status == 404 || strncmp(code, "NoSuch", 6) == 0) {
        return PL_NOT_FOUND;
    }
    if (http_status == 400 || http_status == 416) {
        return PL_INVALID;
    }
    return http_status == 501 ? PL_UNSUPPORTED : PL_FAILED;
}

int64_t pl_s3_retry_delay_ns(unsigned attempt, int64_t retry_after_s, uint64_t random)
{
    const int64_t most_ns = 20 * PL_NS_PER_S;
    int64_t limit_ns = attempt < 8 ? (100 * PL_NS_PER_MS) << attempt : most_ns;
    int64_t delay_ns;

    limit_ns = limit_ns < most_ns ? limit_ns : most_ns;
    delay_ns = (int64_t)(random % (uint64_t)limit_ns);
    if (retry_after_s >= 0) {
        int64_t asked_ns = (retry_after_s < 60 ? retry_after_s : 60) * PL_NS_PER_S;

        delay_ns = delay_ns < asked_ns ? asked_ns + delay_ns / 8 : delay_ns;
    }
    return delay_ns;
}

static const double full_quota = 100;

struct pl_s3_retry_quota pl_s3_retry_quota_full(int64_t now_ns)
{
    return (struct pl_s3_retry_quota){.left = full_quota, .counted_ns = now_ns};
}

int64_t pl_s3_retry_quota_take(struct pl_s3_retry_quota *retry_quota, int64_t now_ns)
{
    double left = retry_quota->left + (double)(now_ns - retry_quota->counted_ns) / PL_NS_PER_S;

    retry_quota->left = (left < full_quota ? left : full_quota) - 1;
    retry_quota->counted_ns = now_ns;
    return retry_quota->left >= 0 ? 0 : (int64_t)(-retry_quota->left * PL_NS_PER_S);
}

void pl_s3_retry_quota_put(struct pl_s3_retry_quota *retry_quota, unsigned count)
{
    retry_quota->left = retry_quota->left + count < full_quota ? retry_quota->left + count : full_quota;
}
