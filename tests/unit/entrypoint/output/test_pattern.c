/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/pattern.c. */
#include "entrypoint/output/pattern.h"

#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

static enum pl_status find(const char *expression, const char *line, double *ret_number, struct pl_error *reterr)
{
    struct pl_pattern *pattern = NULL;
    enum pl_status status;

    ck_ok(pl_pattern_new, expression, &pattern);
    status = pl_pattern_number(pattern, line, strlen(line), ret_number, reterr);
    pl_pattern_free(pattern);
    return status;
}

TEST(the_first_group_is_the_number)
{
    double number = 0;

    ck_ok(find, "loss=(\\S+)", "epoch 3 loss=-1.5e-3 acc=2", &number);
    ck_assert_double_eq(number, -1.5e-3);
    ck_ok(find, "loss=(.*?);", "loss=nan;", &number);
    ck_assert(isnan(number));
    ck_fails(PL_NOT_FOUND, "", find, "loss=(\\S+)", "loss=x", &number);
    ck_fails(PL_NOT_FOUND, "", find, "loss=(\\S+)", "acc=1", &number);
    ck_fails(PL_NOT_FOUND, "", find, "loss=1(2)?", "loss=1", &number);
}

TEST(the_group_is_kept_whatever_it_has)
{
    struct pl_pattern *pattern = NULL;
    double number = 0;
    size_t length = 0;

    ck_ok(pl_pattern_new, "loss=(\\S)?", &pattern);
    ck_fails(PL_NOT_FOUND, "", pl_pattern_number, pattern, "loss=x", 6, &number);
    ck_assert_str_eq(pl_pattern_group(pattern, &length), "x");
    ck_assert_uint_eq(length, 1);
    ck_fails(PL_NOT_FOUND, "", pl_pattern_number, pattern, "loss=", 5, &number);
    ck_assert_ptr_nonnull(pl_pattern_group(pattern, &length));
    ck_assert_uint_eq(length, 0);
    ck_fails(PL_NOT_FOUND, "", pl_pattern_number, pattern, "acc=1", 5, &number);
    ck_assert_ptr_null(pl_pattern_group(pattern, &length));
    pl_pattern_free(pattern);
}

TEST(a_wrong_expression_is_told_with_its_place)
{
    struct pl_pattern *pattern = NULL;

    ck_fails_as(PL_INVALID, "a regular expression that is right at character 4 (missing closing parenthesis)",
                pl_pattern_new, "a(b", &pattern);
    ck_fails(PL_INVALID, "a group around the number", pl_pattern_new, "ab", &pattern);
}

TEST(a_search_that_takes_too_long_is_given_up)
{
    static const char line[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    double number = 0;

    ck_fails(PL_LIMIT, "was given up", find, "^((a+)+)+$", line, &number);
}

UNIT_MAIN("entrypoint/output/pattern")
