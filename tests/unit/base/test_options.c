/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/options.c. */
#include "base/options.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

struct tool {
    bool quiet, quick, verbose;
    int count, style, after_style;
    enum { COLOUR_NONE, COLOUR_RED, COLOUR_BLUE } colour;
    int64_t time_ns;
    uint64_t seed;
    double rate;
    const char *path, *way;
    char order[8];
};

/* Appends the value. */
static enum pl_status add_letter(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    ck_assert(strcmp(name, "letter") == 0 || strcmp(name, "first") == 0);
    if (strlen(text) != 1) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected one letter", name, text);
    }
    strcat(field, text);
    return PL_OK;
}

static enum pl_status keep_style(const char *name, const char *text, void *all, struct pl_error *reterr)
{
    struct tool *tool = all;

    ck_assert(!text && !reterr->cause[0] && strcmp(name, "after") == 0);
    tool->after_style = tool->style;
    return PL_OK;
}

#define PL_OPTIONS_OF struct tool
#define ROWS(ROW)                                                                                                      \
    ROW("--quiet", NULL, "", PL_TO(quiet))                                                                             \
    ROW("--quick", NULL, "", PL_TO(quick))                                                                             \
    ROW("--verbose", NULL, "", PL_TO(verbose), .letter = 'v')                                                          \
    ROW("--epochs", "N", "", PL_TO_NUMBER(count, 1, 10))                                                               \
    ROW("--style", NULL, "", PL_TO_VALUE(style, 7))                                                                    \
    ROW("--after", NULL, "", .read = keep_style)                                                                       \
    ROW("--colour", "red|blue", "", PL_TO_VALUE(colour, COLOUR_RED))                                                   \
    ROW("--time", "SECONDS", "", PL_TO_UNITS(time_ns, 0, 60, 1000))                                                    \
    ROW("--seed", "N", "", PL_TO_NUMBER(seed, 0, UINT64_MAX))                                                          \
    ROW("--rate", "N", "", PL_TO_NUMBER(rate, 0.5, 2))                                                                 \
    ROW("--path", "FILE", "", PL_TO(path))                                                                             \
    ROW("--way", "up|down|on", "", PL_TO(way))                                                                         \
    ROW("--letter", "C", "", PL_TO_READER(order, add_letter))                                                          \
    ROW("--first", "C", "", PL_TO_READER(order, add_letter), .is_first = true)
static const struct pl_option table[] = {ROWS(PL_OPTION) PL_OPTIONS_END};
static const struct pl_option before_program[] = {ROWS(PL_OPTION) PL_OPTIONS_THEN_PROGRAM};

static struct tool tool;

/* Reads `words` (a NULL after the last) into `tool`. Returns the report, or "" if there is none. */
static const char *complaint(const struct pl_option *rows, char **words, enum pl_status wanted)
{
    static struct pl_error error;
    int count = 0;

    error = PL_ERROR_NONE;
    tool = (struct tool){.seed = 1};
    while (words[count]) {
        count++;
    }
    ck_assert_int_eq(pl_options_read(rows, count, words, &tool, &error), wanted);
    return error.cause;
}

#define COMPLAINT(...) complaint(table, (char *[]){"program", __VA_ARGS__, NULL}, PL_INVALID)
#define READ(...) ck_assert_str_eq(complaint(table, (char *[]){"program", __VA_ARGS__, NULL}, PL_OK), "")

TEST(each_value_goes_to_its_field)
{
    char *words[] = {"program", "FROM", "--epochs", "3", "-v", "--quiet", "TO", "--epochs=4", NULL};

    ck_assert_str_eq(complaint(table, words, PL_OK), "");
    ck_assert(tool.quiet && tool.verbose && !tool.quick);
    ck_assert_int_eq(tool.count, 4);
    ck_assert_int_eq(optind, 6);
    ck_assert_str_eq(words[6], "FROM");
    ck_assert_str_eq(words[7], "TO");
    READ("--col", "blue", "--time", "60", "--rate=1.5", "--path", "-", "--way", "down", "--style", "--after");
    ck_assert_int_eq(tool.colour, COLOUR_BLUE);
    ck_assert_int_eq(tool.time_ns, 60000);
    ck_assert_double_eq(tool.rate, 1.5);
    ck_assert_str_eq(tool.path, "-");
    ck_assert_str_eq(tool.way, "down");
    ck_assert_int_eq(tool.after_style, 7);
    ck_assert_uint_eq(tool.seed, 1);
    READ("--seed", "18446744073709551615", "--colour=red", "--after", "--style");
    ck_assert_uint_eq(tool.seed, UINT64_MAX);
    ck_assert_int_eq(tool.colour, COLOUR_RED);
    ck_assert_int_eq(tool.after_style, 0);
}

TEST(an_option_that_is_first_is_read_before_all_others)
{
    READ("--letter", "b", "word", "--letter=c", "--first", "a");
    ck_assert_str_eq(tool.order, "abc");
    ck_assert_str_eq(COMPLAINT("--letter", "bb", "--first", "aa"), "--first is 'aa', expected one letter");
}

TEST(a_program_with_options_of_its_own_ends_the_options)
{
    char *words[] = {"program", "--quiet", "OTHER", "--epochs", "30", NULL};

    ck_assert_str_eq(complaint(before_program, words, PL_OK), "");
    ck_assert(tool.quiet && tool.count == 0);
    ck_assert_int_eq(optind, 2);
}

TEST(help_ends_the_options)
{
    ck_assert_str_eq(complaint(table, (char *[]){"program", "FILE", "--he", "--epochs", "x", NULL}, PL_END), "");
    ck_assert_str_eq(complaint(before_program, (char *[]){"program", "-h", NULL}, PL_END), "");
}

TEST(a_wrong_option_is_named)
{
    READ("--quiet", "--epochs", "2", "--quie");
    ck_assert_str_eq(COMPLAINT("--epoks=2"),
                     "there is no option --epoks (did you mean '--epochs'?); --help lists the options");
    ck_assert_str_eq(COMPLAINT("--qui"), "option --qui is ambiguous: it can be --quiet or --quick");
    ck_assert_str_eq(COMPLAINT("--nonsense"), "there is no option --nonsense; --help lists the options");
    ck_assert_str_eq(COMPLAINT("a", "--epochs"), "--epochs needs a value; --help lists the options");
    ck_assert_str_eq(COMPLAINT("--quiet=yes"), "--quiet takes no value, found 'yes'");
    ck_assert_str_eq(COMPLAINT("-x"), "there is no option -x; --help lists the options");
    ck_assert_str_eq(COMPLAINT("-vx", "--quiet"), "there is no option -x; --help lists the options");
    ck_assert_str_eq(COMPLAINT("--epochs", "11"), "--epochs is '11', expected a whole number from 1 to 10");
    ck_assert_str_eq(COMPLAINT("--rate", "0.4"), "--rate is '0.4', expected a number from 0.5 to 2");
    ck_assert_str_eq(COMPLAINT("--colour", "re"), "--colour is 're', expected red or blue");
    ck_assert_str_eq(COMPLAINT("--way", "upp"), "--way is 'upp', expected up, down or on");
}

TEST(a_number_out_of_place_is_named_with_what_was_expected)
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
    ck_ok(pl_options_whole, "seed", "18446744073709551615", 0, UINT64_MAX, &number);
    ck_assert_uint_eq(number, UINT64_MAX);
    ck_assert_int_eq(pl_options_real("finish", "nan", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_int_eq(pl_options_real("finish", "", 0.1, 10, &real, &error), PL_INVALID);
    ck_assert_int_eq(pl_options_real("finish", "1s", 0.1, 10, &real, &error), PL_INVALID);
    ck_fails_as(PL_INVALID, "--finish is '11', expected a number from 0.1 to 10", pl_options_real, "finish", "11", 0.1,
                10, &real);
    ck_assert_double_eq(real, 7);
    ck_ok(pl_options_real, "finish", "1.5", 0.1, 10, &real);
    ck_assert_double_eq(real, 1.5);
}

UNIT_MAIN("base/options")
