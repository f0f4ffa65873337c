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

    ck_assert_ok(pl_pattern_new(expression, &pattern, reterr), reterr);
    status = pl_pattern_number(pattern, line, strlen(line), ret_number, reterr);
    pl_pattern_free(pattern);
    return status;
}

TEST(the_first_group_is_the_number)
{
    struct pl_error error = PL_ERROR_NONE;
    double number = 0;

    ck_assert_ok(find("loss=(\\S+)", "epoch 3 loss=-1.5e-3 acc=2", &number, &error), &error);
    ck_assert_double_eq(number, -1.5e-3);
    ck_assert_ok(find("loss=(.*?);", "loss=nan;", &number, &error), &error);
    ck_assert(isnan(number));
    ck_assert_int_eq(find("loss=(\\S+)", "loss=x", &number, &error), PL_NOT_FOUND);
    ck_assert_int_eq(find("loss=(\\S+)", "acc=1", &number, &error), PL_NOT_FOUND);
    ck_assert_int_eq(find("loss=1(2)?", "loss=1", &number, &error), PL_NOT_FOUND);
}

TEST(the_group_is_kept_whatever_it_has)
{
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;
    double number = 0;
    size_t length = 0;

    ck_assert_ok(pl_pattern_new("loss=(\\S)?", &pattern, &error), &error);
    ck_assert_int_eq(pl_pattern_number(pattern, "loss=x", 6, &number, &error), PL_NOT_FOUND);
    ck_assert_str_eq(pl_pattern_group(pattern, &length), "x");
    ck_assert_uint_eq(length, 1);
    ck_assert_int_eq(pl_pattern_number(pattern, "loss=", 5, &number, &error), PL_NOT_FOUND);
    ck_assert_ptr_nonnull(pl_pattern_group(pattern, &length));
    ck_assert_uint_eq(length, 0);
    ck_assert_int_eq(pl_pattern_number(pattern, "acc=1", 5, &number, &error), PL_NOT_FOUND);
    ck_assert_ptr_null(pl_pattern_group(pattern, &length));
    pl_pattern_free(pattern);
}

TEST(a_wrong_expression_is_told_with_its_place)
{
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_int_eq(pl_pattern_new("a(b", &pattern, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "a regular expression that is right at character 4 (missing closing parenthesis)");
    ck_assert_int_eq(pl_pattern_new("ab", &pattern, &error), PL_INVALID);
    ck_assert_ptr_nonnull(strstr(error.cause, "a group around the number"));
}

TEST(a_search_that_takes_too_long_is_given_up)
{
    static const char line[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!";
    struct pl_error error = PL_ERROR_NONE;
    double number = 0;

    ck_assert_int_eq(find("^((a+)+)+$", line, &number, &error), PL_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.cause, "was given up"));
}

UNIT_MAIN("entrypoint/output/pattern")
