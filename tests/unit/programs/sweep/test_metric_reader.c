/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/metric_reader.c. */
#include "programs/sweep/metric_reader.h"

#include "base/memory.h"
#include "tests/support/unit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_metric_reader *open_reader(const char *regex)
{
    struct pl_metric_reader *reader = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_metric_reader_new("acc", regex, NULL, 0, &reader, &error), &error);
    ck_assert_int_ge(pl_metric_reader_open(reader), 0);
    return reader;
}

static void add(struct pl_metric_reader *reader, size_t stream, const char *text)
{
    pl_metric_reader_add(reader, stream, text, strlen(text));
}

/* Ends the reader and checks the reports, as "STEP:VALUE ". */
static void check_reports(struct pl_metric_reader *reader, const char *expected)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    int64_t step;
    double value;

    pl_metric_reader_end(reader);
    while (pl_metric_reader_next(reader, &step, &value)) {
        pl_text_printf(&text, "%lld:%g ", (long long)step, value);
    }
    ck_assert_str_eq(pl_text_string(&text), expected);
    ck_assert_ptr_null(pl_metric_reader_failure(reader));
}

START_TEST(a_line_in_pieces_is_one_line_on_either_stream)
{
    struct pl_metric_reader *reader = open_reader("acc=([0-9.]+)");

    add(reader, 0, "ac");
    add(reader, 1, "acc=0.25\n");
    add(reader, 0, "c=0.5\nacc=0.75\r\r\n");
    add(reader, 0, "acc=1");
    check_reports(reader, "1:0.25 2:0.5 3:0.75 4:1 ");
    pl_metric_reader_free(reader);
}
END_TEST

START_TEST(the_descriptor_says_when_a_report_waits)
{
    struct pl_metric_reader *reader = NULL;
    struct pl_error error = PL_ERROR_NONE;
    struct pollfd wait = {.events = POLLIN};
    int64_t step;
    double value;

    ck_assert_ok(pl_metric_reader_new("acc", "acc=([0-9.]+)", NULL, 0, &reader, &error), &error);
    wait.fd = pl_metric_reader_open(reader);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    for (int i = 1; i < 4; i++) {
        add(reader, 0, "acc=0.5\n");
        ck_assert_int_eq(poll(&wait, 1, 60000), 1);
        ck_assert(pl_metric_reader_next(reader, &step, &value) && step == i);
        ck_assert(!pl_metric_reader_next(reader, &step, &value));
        ck_assert_int_eq(poll(&wait, 1, 0), 0);
    }
    check_reports(reader, "");
    pl_metric_reader_free(reader);
}
END_TEST

START_TEST(a_line_counts_up_to_a_mebibyte_and_a_longer_one_is_told)
{
    enum { MOST = PL_METRIC_LINE_BYTES };
    PL_AUTO_FREE char *blanks = malloc(MOST);
    struct pl_metric_reader *reader = open_reader("acc=([0-9.]+)");
    PL_AUTO_TEXT struct pl_text warning = PL_TEXT_NONE;

    ck_assert_ptr_nonnull(blanks);
    memset(blanks, ' ', MOST);
    pl_metric_reader_add(reader, 0, blanks, MOST - 8);
    add(reader, 0, "acc=0.25\n"); /* its last byte is the last one that is searched */
    pl_metric_reader_add(reader, 0, blanks, MOST - 7);
    add(reader, 0, "acc=0.75\nacc=2\n");
    check_reports(reader, "1:0.25 2:0.7 3:2 ");
    pl_metric_reader_warn(reader, &warning);
    ck_assert_ptr_nonnull(strstr(pl_text_string(&warning), "a line has more than 1048576 bytes"));
    pl_metric_reader_free(reader);
}
END_TEST

START_TEST(no_report_of_very_many_is_lost)
{
    enum { MANY = 50000 };
    struct pl_metric_reader *reader = open_reader("acc=([0-9]+)");
    int64_t step, expected = 0;
    double value;

    for (int i = 1; i <= MANY; i++) {
        char line[100];

        snprintf(line, sizeof(line), "%60s acc=%d\n", "", i);
        add(reader, 0, line);
    }
    pl_metric_reader_end(reader);
    while (pl_metric_reader_next(reader, &step, &value)) {
        expected++;
        ck_assert(step == expected && value == (double)expected);
    }
    ck_assert_int_eq(expected, MANY);
    pl_metric_reader_free(reader);
}
END_TEST

/* The expression takes longer than any test may: the reader never waits for its end. */
START_TEST(an_expression_that_lines_must_wait_for_is_named_with_its_cost)
{
    static const char regex[] = "((((.*),)*,)*,)*acc=([0-9]+)$";
    struct pl_metric_reader *reader = open_reader(regex);
    PL_AUTO_TEXT struct pl_text why_not = PL_TEXT_NONE;
    char line[16385];

    memset(line, ',', sizeof(line) - 2);
    line[sizeof(line) - 2] = '\n';
    line[sizeof(line) - 1] = '\0';
    for (int i = 0; i < 1000 && !pl_metric_reader_failure(reader); i++) {
        add(reader, 0, line);
    }
    ck_assert_ptr_nonnull(pl_metric_reader_failure(reader));
    ck_assert_ptr_nonnull(strstr(pl_metric_reader_failure(reader), "the regular expression '((((.*),)*,)*,)*acc="));
    ck_assert_ptr_nonnull(strstr(pl_metric_reader_failure(reader), " s for a line of 16383 bytes, too slow for "));
    pl_metric_reader_end(reader); /* does not wait */
    pl_metric_reader_why_not(reader, &why_not);
    ck_assert_uint_eq(why_not.length, 0);
    /* the thread still searches; the end of the process ends it */
}
END_TEST

UNIT_MAIN("programs/sweep/metric_reader", a_line_in_pieces_is_one_line_on_either_stream,
          the_descriptor_says_when_a_report_waits, a_line_counts_up_to_a_mebibyte_and_a_longer_one_is_told,
          no_report_of_very_many_is_lost, an_expression_that_lines_must_wait_for_is_named_with_its_cost)
