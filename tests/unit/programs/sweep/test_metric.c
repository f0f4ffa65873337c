/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/metric.c. */
#include "programs/sweep/metric.h"

#include "base/text.h"
#include "tests/support/unit.h"

#include <string.h>

static struct pl_metric metric;

static void open_metric(const char *step_regex, int64_t last_step)
{
    struct pl_error error = PL_ERROR_NONE;

    metric = PL_METRIC_NONE;
    ck_assert_ok(pl_metric_open(&metric, "acc=([-+0-9.e]+)", step_regex, last_step, &error), &error);
}

static void add(size_t line, const char *text)
{
    pl_metric_add(&metric.lines[line], text, strlen(text));
}

/* The reports that wait, as "STEP:VALUE ". */
static void check_reports(const char *expected)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int64_t step;
    double value;

    while (pl_metric_next(&metric, &step, &value)) {
        pl_text_printf(&text, "%lld:%g ", (long long)step, value);
    }
    ck_assert_str_eq(pl_text_string(&text), expected);
}

START_TEST(a_line_in_pieces_is_one_line)
{
    open_metric("epoch=([0-9]+)", 0);
    add(0, "epoch=1 ac");
    check_reports("");
    add(0, "c=0.5\nepoch=2 acc=0.75\r");
    add(0, "epoch=3 acc=nan\nepoch=4 acc=1e-3");
    check_reports("1:0.5 2:0.75 ");
    pl_metric_end(&metric.lines[0]);
    check_reports("4:0.001 ");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(a_step_counts_for_the_lines_after_it_on_either_stream)
{
    open_metric("epoch ([0-9]+)", 0);
    add(1, "acc=0.1\n"); /* of no step */
    add(0, "epoch 7\n");
    add(1, "acc=0.2\nother\nacc=0.3\n");
    check_reports("7:0.2 7:0.3 ");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(without_a_step_reports_are_counted)
{
    open_metric(NULL, 5);
    add(0, "acc=1\nnothing\nacc=2\n");
    check_reports("6:1 7:2 ");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(a_line_without_end_and_more_reports_than_fit_need_no_more_memory)
{
    char many[PL_METRIC_LINE_BYTES];

    open_metric(NULL, 0);
    memset(many, 'x', sizeof(many));
    for (int i = 0; i < 100; i++) {
        pl_metric_add(&metric.lines[0], many, sizeof(many));
    }
    add(0, " acc=1\n"); /* after the bytes that count */
    check_reports("");
    for (int i = 0; i < PL_METRIC_WAITING + 9; i++) {
        add(0, "acc=1\n");
    }
    add(0, "acc=2\n");
    for (size_t i = 0; i + 1 < PL_METRIC_WAITING; i++) {
        int64_t step;
        double value;

        ck_assert(pl_metric_next(&metric, &step, &value));
    }
    check_reports("266:2 ");
    pl_metric_close(&metric);
}
END_TEST

START_TEST(an_expression_that_does_not_compile_is_refused)
{
    struct pl_error error = PL_ERROR_NONE;

    metric = PL_METRIC_NONE;
    ck_assert_int_eq(pl_metric_open(&metric, "a(", NULL, 0, &error), PL_INVALID);
    ck_assert_int_eq(pl_metric_open(&metric, "a", "b(", 0, &error), PL_INVALID);
    pl_metric_close(&metric);
}
END_TEST

UNIT_MAIN("programs/sweep/metric", a_line_in_pieces_is_one_line, a_step_counts_for_the_lines_after_it_on_either_stream,
          without_a_step_reports_are_counted, a_line_without_end_and_more_reports_than_fit_need_no_more_memory,
          an_expression_that_does_not_compile_is_refused)
