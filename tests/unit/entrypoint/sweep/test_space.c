/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/sweep/space_parse.c, entrypoint/sweep/space_expand.c, entrypoint/sweep/metric.c,
 * entrypoint/sweep/value.c, entrypoint/sweep/job_sweep.c. */
#include "base/text.h"
#include "entrypoint/sweep/job_sweep.h"
#include "tests/unit/entrypoint/tree.h"

#include <math.h>
#include <regex.h>

#define HEAD "{\"metric\": \"acc\", \"goal\": \"maximize\", "

static struct pl_sweep_space *parsed(const char *text)
{
    struct pl_sweep_space *space = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_sweep_space_parse(text, strlen(text), "S", &space, &error), &error);
    return space;
}

/* The trials of `text`, each on a line as POINT HYPERPARAMETERS. */
static void check_trials(const char *text, const char *expected)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = parsed(text);
    PL_AUTO_TEXT struct pl_text trials = PL_TEXT_NONE;

    for (size_t i = 0; i < space->trials_count; i++) {
        pl_text_printf(&trials, "%zu %s\n", space->trials[i].point, space->trials[i].hyperparameters);
    }
    ck_assert_str_eq(pl_text_string(&trials), expected);
}

START_TEST(a_grid_is_in_the_order_of_the_file_and_its_last_dimension_changes_first)
{
    check_trials(HEAD "\"space\": {\"b\": [1e-3, 2.50], \"a\": {\"int\": [-1, 1]}}}", "0 {\"b\": 1e-3, \"a\": -1}\n"
                                                                                      "1 {\"b\": 1e-3, \"a\": 0}\n"
                                                                                      "2 {\"b\": 1e-3, \"a\": 1}\n"
                                                                                      "3 {\"b\": 2.50, \"a\": -1}\n"
                                                                                      "4 {\"b\": 2.50, \"a\": 0}\n"
                                                                                      "5 {\"b\": 2.50, \"a\": 1}\n");
    check_trials(HEAD "\"search\": \"grid\", \"space\": {\"l\": {\"log\": [0.0001, 1, 5]}, \"c\": {\"choice\": "
                      "[\"x\\\"y\", true]}}}",
                 "0 {\"l\": 0.0001, \"c\": \"x\\\"y\"}\n1 {\"l\": 0.0001, \"c\": true}\n"
                 "2 {\"l\": 0.001, \"c\": \"x\\\"y\"}\n3 {\"l\": 0.001, \"c\": true}\n"
                 "4 {\"l\": 0.01, \"c\": \"x\\\"y\"}\n5 {\"l\": 0.01, \"c\": true}\n"
                 "6 {\"l\": 0.1, \"c\": \"x\\\"y\"}\n7 {\"l\": 0.1, \"c\": true}\n"
                 "8 {\"l\": 1.0, \"c\": \"x\\\"y\"}\n9 {\"l\": 1.0, \"c\": true}\n");
    check_trials(HEAD "\"space\": {\"f\": {\"float\": [0.1, 0.5, 5]}}}",
                 "0 {\"f\": 0.1}\n1 {\"f\": 0.2}\n2 {\"f\": 0.3}\n3 {\"f\": 0.4}\n4 {\"f\": 0.5}\n");
}
END_TEST

START_TEST(a_list_may_have_a_point_twice_and_points_of_other_names)
{
    check_trials(HEAD "\"search\": \"list\", \"space\": [{\"a\": 1}, {\"b\": \"x\"}, {\"a\": 1}, {}]}",
                 "0 {\"a\": 1}\n1 {\"b\": \"x\"}\n2 {\"a\": 1}\n3 {}\n");
}
END_TEST

START_TEST(each_point_is_trained_once_with_each_seed_all_points_with_the_first_one_before)
{
    check_trials(HEAD "\"space\": {\"a\": [1, 2]}, \"seeds\": [7, 5]}", "0 {\"a\": 1, \"seed\": 7}\n"
                                                                        "1 {\"a\": 2, \"seed\": 7}\n"
                                                                        "0 {\"a\": 1, \"seed\": 5}\n"
                                                                        "1 {\"a\": 2, \"seed\": 5}\n");
    check_trials(HEAD "\"search\": \"list\", \"space\": [{}], \"seeds\": {\"name\": \"s\", \"values\": [1]}}",
                 "0 {\"s\": 1}\n");
}
END_TEST

#define DRAWN                                                                                                          \
    "\"seed\": 1, \"space\": {\"l\": {\"log\": [0.01, 1]}, \"i\": {\"int\": [1, 6]}, \"f\": {\"float\": [-1, 1]}, "    \
    "\"c\": [16, 32]}}"

/* As another program (Python) draws them: other machines, compilers and C libraries must, too. */
START_TEST(draws_follow_from_the_seed_alone_and_the_first_do_not_depend_on_how_many_there_are)
{
    static const char first[] = "0 {\"l\": 0.13586986702, \"i\": 2, \"f\": 0.942005507174, \"c\": 32}\n";
    static const char more[] = "1 {\"l\": 0.0773623051134, \"i\": 3, \"f\": 0.754697373528, \"c\": 32}\n"
                               "2 {\"l\": 0.0372406599661, \"i\": 5, \"f\": -0.1917156619, \"c\": 16}\n";
    PL_AUTO_TEXT struct pl_text all = PL_TEXT_NONE;

    pl_text_printf(&all, "%s%s", first, more);
    check_trials(HEAD "\"search\": \"random\", \"trials\": 1, " DRAWN, first);
    check_trials(HEAD "\"search\": \"random\", \"trials\": 3, " DRAWN, pl_text_string(&all));
}
END_TEST

START_TEST(drawn_values_lie_in_their_ranges_and_read_back_as_the_same_number)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = parsed(
        HEAD "\"search\": \"random\", \"trials\": 2000, \"space\": {\"l\": {\"log\": [1e-5, 3e-5]}, \"i\": {\"int\": "
             "[-1, 1]}, \"f\": {\"float\": [0.1, 0.3]}, \"w\": {\"int\": [-9007199254740992, 9007199254740992]}}}");
    unsigned seen[3] = {0, 0, 0};
    unsigned low_half = 0;

    for (size_t i = 0; i < space->trials_count; i++) {
        struct pl_error error = PL_ERROR_NONE;
        PL_AUTO_PYTHON_JSON struct pl_python_json *values = NULL;
        const char *text = space->trials[i].hyperparameters;
        double l, f;
        int64_t whole;

        ck_assert_ok(pl_python_json_parse_strict(text, strlen(text), "trial", &values, &error), &error);
        l = pl_python_json_double(pl_python_json_member(values, "l"));
        f = pl_python_json_double(pl_python_json_member(values, "f"));
        ck_assert_ok(pl_python_json_int64(pl_python_json_member(values, "i"), &whole, &error), &error);
        ck_assert(l >= 1e-5 && l <= 3e-5 && f >= 0.1 && f <= 0.3 && whole >= -1 && whole <= 1);
        seen[whole + 1]++;
        low_half += l < sqrt(1e-5 * 3e-5);
    }
    ck_assert(seen[0] > 500 && seen[1] > 500 && seen[2] > 500);
    ck_assert(low_half > 850 && low_half < 1150);
}
END_TEST

UNIT_MAIN("entrypoint/sweep/space", a_grid_is_in_the_order_of_the_file_and_its_last_dimension_changes_first,
          a_list_may_have_a_point_twice_and_points_of_other_names,
          each_point_is_trained_once_with_each_seed_all_points_with_the_first_one_before,
          draws_follow_from_the_seed_alone_and_the_first_do_not_depend_on_how_many_there_are,
          drawn_values_lie_in_their_ranges_and_read_back_as_the_same_number)
