/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/status.c. */
#include "base/status.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <string.h>

TEST(cause_holds_the_system_words)
{
    struct pl_error error = PL_ERROR_NONE;

    errno = ENOENT;
    ck_assert_int_eq(pl_error_errno(&error, "open '%s'", "/x"), PL_SYSTEM);
    ck_assert_str_eq(error.cause, "cannot open '/x': No such file or directory");
    ck_assert_int_eq((int)error.code, ENOENT);
}

TEST(context_is_appended_and_never_pushes_the_cause_out)
{
    struct pl_error error = PL_ERROR_NONE;
    char text[1200];

    pl_error_set(&error, PL_CORRUPT, "bad magic");
    pl_error_context(&error, "record %d", 7);
    pl_error_context(&error, "channel '%s'", "training");
    ck_assert_str_eq(pl_error_text(&error, text, sizeof(text)), "bad magic (record 7; channel 'training')");
    for (int i = 0; i < 1000; i++) {
        pl_error_context(&error, "caller %d", i);
    }
    ck_assert_str_eq(error.cause, "bad magic");
    ck_assert(strlen(error.context) < sizeof(error.context));
}

TEST(long_cause_is_cut_visibly)
{
    struct pl_error error = PL_ERROR_NONE;
    char big[2000];

    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    pl_error_raise(&error, PL_SYSTEM, PL_DOMAIN_ERRNO, EPERM, "%s", big);
    ck_assert_uint_eq(strlen(error.cause), sizeof(error.cause) - 1);
    ck_assert_str_eq(error.cause + strlen(error.cause) - 3, "...");
}

TEST(null_report_is_allowed)
{
    ck_assert_int_eq(pl_error_set(NULL, PL_TIMEOUT, "x"), PL_TIMEOUT);
    pl_error_context(NULL, "x");
}

UNIT_MAIN("base/status")
