/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/metric.c. */
#include "programs/sweep/metric.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_metric metric;

static void open_metric(const char *step_regex, int64_t last_step)
{
    struct pl_error error = PL_ERROR_NONE;

    metric = PL_METRIC_NONE;
    ck_assert_ok(pl_metric_open(&metric, "test_acc", "acc=([-+0-9.enaif]+)", step_regex, last_step, &error), &error);
}

/* Checks the report of a line, "STEP:VALUE", or "" if the line makes no report. */
static void check_line(const char *line, const char *expected)
{
    char found[64] = "";
    double value;
    int64_t step;

    pl_metric_find_step(&metric, line);
    if (pl_metric_find_value(&metric, line, &step, &value)) {
        snprintf(found, sizeof(found), "%lld:%g", (long long)step, value);
    }
    ck_assert_str_eq(found, expected);
}

static void check_why_not(const char *expected)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;

    pl_metric_why_not(&metric, &words);
    ck_assert_str_eq(pl_text_string(&words), expected);
}

START_TEST(a_step_counts_for_its_line_and_those_after_it)
{
    open_metric("epoch ([0-9]+)", 0);
    check_line("acc=0.1", ""); /* it has no step */
    check_line("epoch 7", "");
    check_line("acc=0.2", "7:0.2");
    check_line("acc=0.3", "7:0.3");
    check_line("epoch 8 acc=1e-3", "8:0.001");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(without_a_step_reports_are_counted)
{
    open_metric(NULL, 5);
    check_line("acc=1", "6:1");
    check_line("nothing", "");
    check_line("acc=nan", "7:nan");
    check_line("acc=e", "");
    check_line("acc=2", "8:2");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(the_nearest_line_is_the_last_with_a_number_that_is_most_like_the_name)
{
    open_metric(NULL, 0);
    check_why_not("it has printed no line with a number");
    check_line("test_acc is good", "");
    check_why_not("it has printed no line with a number");
    check_line("loss 7", "");
    check_line("batch 3", "");
    check_why_not("the nearest line is 'batch 3'");
    check_line("Test Acc: 0.5", "");
    check_line("loss 8", "");
    check_line("val acc 0.7", "");
    check_why_not("the nearest line is 'Test Acc: 0.5'");
    check_line("TEST-ACC: 0.6", "");
    check_why_not("the nearest line is 'TEST-ACC: 0.6'");
    pl_metric_close(&metric);
    open_metric("epoch ([0-9]+)", 0);
    check_line("test_acc 5", "");
    check_line("Epoch 1 acc=0.5", "");
    check_line("test_acc 6", "");
    check_why_not("it printed no step before its first value, which is in the line 'Epoch 1 acc=0.5'");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(an_expression_that_does_not_compile_is_refused)
{
    struct pl_error error = PL_ERROR_NONE;

    metric = PL_METRIC_NONE;
    ck_assert_int_eq(pl_metric_open(&metric, "a", "a(", NULL, 0, &error), PL_INVALID);
    ck_assert_int_eq(pl_metric_open(&metric, "a", "a", "b(", 0, &error), PL_INVALID);
    pl_metric_close(&metric);
}
END_TEST

UNIT_MAIN("programs/sweep/metric", a_step_counts_for_its_line_and_those_after_it, without_a_step_reports_are_counted,
          the_nearest_line_is_the_last_with_a_number_that_is_most_like_the_name,
          an_expression_that_does_not_compile_is_refused)
