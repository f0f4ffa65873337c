/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/s3/s3_reply.c. */
#include "base/clock.h"
#include "s3io/s3/s3_reply.h"
#include "tests/support/unit.h"

TEST(answers_are_classified)
{
    static const struct {
        int status;
        const char *code;
        enum pl_s3_retry_action action;
    } rows[] = {{503, "SlowDown", PL_S3_SLOWER},
                {503, "", PL_S3_SLOWER},
                {500, "InternalError", PL_S3_RETRY},
                {200, "InternalError", PL_S3_RETRY},
                {400, "IDPCommunicationError", PL_S3_RETRY},
                {400, "RequestTimeout", PL_S3_RETRY},
                {408, "", PL_S3_RETRY},
                {502, "", PL_S3_RETRY},
                {504, "", PL_S3_RETRY},
                {429, "", PL_S3_SLOWER},
                {400, "ExpiredToken", PL_S3_NEW_CREDENTIALS},
                {301, "PermanentRedirect", PL_S3_REGION},
                {301, "", PL_S3_REGION},
                {400, "AuthorizationHeaderMalformed", PL_S3_REGION},
                {403, "RequestTimeTooSkewed", PL_S3_CLOCK},
                {403, "AccessDenied", PL_S3_FINAL},
                {404, "NoSuchKey", PL_S3_FINAL},
                {412, "PreconditionFailed", PL_S3_FINAL},
                {416, "InvalidRange", PL_S3_FINAL},
                {501, "NotImplemented", PL_S3_FINAL}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(pl_s3_retry_classify(rows[i].status, rows[i].code) == rows[i].action, "%d %s", rows[i].status,
                      rows[i].code);
    }
}

TEST(final_answers_have_their_status)
{
    ck_assert_int_eq(pl_s3_retry_status(404, ""), PL_NOT_FOUND);
    ck_assert_int_eq(pl_s3_retry_status(200, "NoSuchUpload"), PL_NOT_FOUND);
    ck_assert_int_eq(pl_s3_retry_status(400, "InvalidRequest"), PL_INVALID);
    ck_assert_int_eq(pl_s3_retry_status(416, "InvalidRange"), PL_INVALID);
    ck_assert_int_eq(pl_s3_retry_status(501, "NotImplemented"), PL_UNSUPPORTED);
    ck_assert_int_eq(pl_s3_retry_status(403, "AccessDenied"), PL_FAILED);
}

TEST(waits_grow_and_stay_within_bounds)
{
    for (unsigned attempt = 1; attempt < 100; attempt++) {
        int64_t most_ns = 0;

        for (uint64_t random = 1; random < 1000; random++) {
            int64_t delay_ns = pl_s3_retry_delay_ns(attempt, -1, random * UINT64_C(0x9e3779b97f4a7c15));

            ck_assert(delay_ns >= 0 && delay_ns < 20 * PL_NS_PER_S);
            most_ns = delay_ns > most_ns ? delay_ns : most_ns;
        }
        ck_assert(most_ns > (attempt < 7 ? (90 * PL_NS_PER_MS) << attempt : 12 * PL_NS_PER_S));
    }
}

TEST(the_server_is_believed_a_minute)
{
    ck_assert_int_ge(pl_s3_retry_delay_ns(1, 2, 0), 2 * PL_NS_PER_S);
    ck_assert_int_le(pl_s3_retry_delay_ns(1, 1000000, 12345), 63 * PL_NS_PER_S);
}

TEST(repetitions_share_a_quota)
{
    const int64_t begin_ns = 5 * PL_NS_PER_S;
    struct pl_s3_retry_quota retry_quota = pl_s3_retry_quota_full(begin_ns);

    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, begin_ns), 0);
    }
    for (int i = 1; i <= 1000; i++) { /* one failure per second, one after the other */
        ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, begin_ns), i * PL_NS_PER_S);
    }
    ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, begin_ns + 1001 * PL_NS_PER_S), 0);
    ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, begin_ns + 1001 * PL_NS_PER_S), PL_NS_PER_S);
}

TEST(successes_fill_the_quota_and_no_more)
{
    struct pl_s3_retry_quota retry_quota = pl_s3_retry_quota_full(0);

    pl_s3_retry_quota_put(&retry_quota, 7);
    for (int i = 0; i < 102; i++) {
        ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, 0), i < 100 ? 0 : (i - 99) * PL_NS_PER_S);
    }
    pl_s3_retry_quota_put(&retry_quota, 3);
    ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, 0), 0);
    ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, 0), PL_NS_PER_S);
    for (int i = 0; i < 101; i++) { /* more time does not add more tokens */
        ck_assert_int_eq(pl_s3_retry_quota_take(&retry_quota, 9000 * PL_NS_PER_S), i < 100 ? 0 : PL_NS_PER_S);
    }
}

UNIT_MAIN("s3io/s3_retry")
