/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/options.c. */
#include "base/options.h"
#include "tests/support/unit.h"

#include <stdio.h>

enum { EPOCHS = 256, QUIET, QUICK };

static const struct option table[] = {{"epochs", required_argument, NULL, EPOCHS},
                                      {"quiet", no_argument, NULL, QUIET},
                                      {"quick", no_argument, NULL, QUICK},
                                      {NULL, 0, NULL, 0}};

/* Read `words` (a NULL after the last) up to the first error. Returns its report, or "" if there is none. */
static const char *complaint(char **words)
{
    static struct pl_error error;
    enum pl_status status = PL_OK;
    int count = 0, option;

    error = PL_ERROR_NONE;
    while (words[count]) {
        count++;
    }
    optind = 0; /* getopt_long() must begin again */
    while (status == PL_OK) {
        status = pl_options_next(count, words, "v", table, &option, &error);
    }
    ck_assert_int_eq(status, error.status == PL_OK ? PL_END : PL_INVALID);
    return error.cause;
}

#define COMPLAINT(...) complaint((char *[]){"program", __VA_ARGS__, NULL})

START_TEST(options_come_in_order_and_other_words_stay)
{
    char *words[] = {"program", "FROM", "--epochs", "3", "-v", "--quiet", "TO", "--epochs=4", NULL};
    const int wanted[] = {EPOCHS, 'v', QUIET, EPOCHS};
    struct pl_error error = PL_ERROR_NONE;
    int option;

    optind = 0;
    for (size_t i = 0; i < 4; i++) {
        ck_assert_ok(pl_options_next(8, words, "v", table, &option, &error), &error);
        ck_assert_int_eq(option, wanted[i]);
    }
    ck_assert_str_eq(optarg, "4");
    ck_assert_int_eq(pl_options_next(8, words, "v", table, &option, &error), PL_END);
    ck_assert_int_eq(optind, 6);
    ck_assert_str_eq(words[6], "FROM");
    ck_assert_str_eq(words[7], "TO");
}
END_TEST

START_TEST(a_plus_ends_the_options_at_the_first_other_word)
{
    char *words[] = {"program", "--quiet", "OTHER", "--epochs", "3", NULL};
    struct pl_error error = PL_ERROR_NONE;
    int option;

    optind = 0;
    ck_assert_ok(pl_options_next(5, words, "+v", table, &option, &error), &error);
    ck_assert_int_eq(option, QUIET);
    ck_assert_int_eq(pl_options_next(5, words, "+v", table, &option, &error), PL_END);
    ck_assert_int_eq(optind, 2);
}
END_TEST

START_TEST(a_wrong_option_is_named)
{
    ck_assert_str_eq(COMPLAINT("--quiet", "--epochs", "2", "--quie"), "");
    ck_assert_str_eq(COMPLAINT("--epoks=2"),
                     "there is no option --epoks (did you mean '--epochs'?); --help lists the options");
    ck_assert_str_eq(COMPLAINT("--qui"), "option --qui is ambiguous: it can be --quiet or --quick");
    ck_assert_str_eq(COMPLAINT("--nonsense"), "there is no option --nonsense; --help lists the options");
    ck_assert_str_eq(COMPLAINT("a", "--epochs"), "--epochs needs a value; --help lists the options");
    ck_assert_str_eq(COMPLAINT("--quiet=yes"), "--quiet takes no value, found 'yes'");
    ck_assert_str_eq(COMPLAINT("-x"), "there is no option -x; --help lists the options");
    ck_assert_str_eq(COMPLAINT("-vx", "--quiet"), "there is no option -x; --help lists the options");
}
END_TEST

START_TEST(a_number_out_of_place_is_named_with_what_was_expected)
{
    static const char *const wrong[] = {"", "x", "-1", "+1", " 1", "1x", "0", "11", "18446744073709551617", "1.5"};
    struct pl_error error = PL_ERROR_NONE;
    uint64_t number = 7;
    double real = 7;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char wanted[100];

        ck_assert_int_eq(pl_options_whole("epochs", wrong[i], 1, 10, &number, &error), PL_INVALID);
        snprintf(wanted, sizeof(wanted), "--epochs is '%s', expected a whole number from 1 to 10", wrong[i]);
        ck_assert_str_eq(error.cause, wanted);
    }
    ck_assert_int_eq(pl_options_whole("seed", "18446744073709551616", 0, UINT64_MAX, &number, &error), PL_INVALID);
    ck_assert_uint_eq(number, 7);
    ck_assert_ok(pl_options_whole("seed", "18446744073709551615", 0, UINT64_MAX, &number, &error), &error);
    ck_assert_uint_eq(number, UINT64_MAX);
    ck_assert_int_eq(pl_options_real("finish", "nan", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_int_eq(pl_options_real("finish", "", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_int_eq(pl_options_real("finish", "1s", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_int_eq(pl_options_real("finish", "11", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_str_eq(error.cause, "--finish is '11', expected a number from 0.1 to 10");
    ck_assert_double_eq(real, 7);
    ck_assert_ok(pl_options_real("finish", "1.5", 0.1, 10, &real, &error), &error);
    ck_assert_double_eq(real, 1.5);
}
END_TEST

UNIT_MAIN("base/options", options_come_in_order_and_other_words_stay, a_plus_ends_the_options_at_the_first_other_word,
          a_wrong_option_is_named, a_number_out_of_place_is_named_with_what_was_expected)
