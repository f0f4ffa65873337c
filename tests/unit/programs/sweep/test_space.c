/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/hosts.c, programs/sweep/space.c, programs/sweep/space_expand.c. */
#include "programs/sweep/sweep.h"

#include "base/text.h"
#include "entrypoint/output/pattern.h"
#include "tests/unit/entrypoint/tree.h"

#include <math.h>

/* The beginning of a specification with all required members except the space. */
#define HEAD "{\"metric\": \"acc\", \"goal\": \"maximize\", "

static struct pl_sweep_space *parsed(const char *text)
{
    struct pl_sweep_space *space = NULL;

    ck_ok(pl_sweep_space_parse, text, strlen(text), "S", &space);
    return space;
}

/* Checks the trials of `text`, one per line as POINT HYPERPARAMETERS. */
static void check_trials(const char *text, const char *expected)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = parsed(text);
    PL_AUTO_TEXT struct pl_text trials = PL_TEXT_NONE;

    for (size_t i = 0; i < space->trials_count; i++) {
        pl_text_printf(&trials, "%zu ", i % space->points_count);
        pl_sweep_space_print(space, i, &trials);
        pl_text_append(&trials, "\n");
    }
    ck_assert_str_eq(pl_text_string(&trials), expected);
}

TEST(a_grid_is_in_the_order_of_the_file_and_its_last_dimension_changes_first)
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

TEST(a_list_may_have_a_point_twice_and_points_of_other_names)
{
    check_trials(HEAD "\"search\": \"list\", \"space\": [{\"a\": 1}, {\"b\": \"x\"}, {\"a\": 1}, {}]}",
                 "0 {\"a\": 1}\n1 {\"b\": \"x\"}\n2 {\"a\": 1}\n3 {}\n");
}

TEST(each_point_is_trained_once_with_each_seed_all_points_with_the_first_one_before)
{
    check_trials(HEAD "\"space\": {\"a\": [1, 2]}, \"seeds\": [7, 5]}", "0 {\"a\": 1, \"seed\": 7}\n"
                                                                        "1 {\"a\": 2, \"seed\": 7}\n"
                                                                        "0 {\"a\": 1, \"seed\": 5}\n"
                                                                        "1 {\"a\": 2, \"seed\": 5}\n");
    check_trials(HEAD "\"search\": \"list\", \"space\": [{}], \"seeds\": {\"name\": \"s\", \"values\": [1]}}",
                 "0 {\"s\": 1}\n");
}

#define DRAWN                                                                                                          \
    "\"seed\": 1, \"space\": {\"l\": {\"log\": [0.01, 1]}, \"i\": {\"int\": [1, 6]}, \"f\": {\"float\": [-1, 1]}, "    \
    "\"c\": [16, 32]}}"

/* Another program (in Python) has drawn these values: other machines, compilers and C libraries must draw them too. */
TEST(draws_follow_from_the_seed_alone_and_the_first_do_not_depend_on_how_many_there_are)
{
    static const char first[] = "0 {\"l\": 0.13586986702, \"i\": 2, \"f\": 0.942005507174, \"c\": 32}\n";
    static const char more[] = "1 {\"l\": 0.0773623051134, \"i\": 3, \"f\": 0.754697373528, \"c\": 32}\n"
                               "2 {\"l\": 0.0372406599661, \"i\": 5, \"f\": -0.1917156619, \"c\": 16}\n";
    PL_AUTO_TEXT struct pl_text all = PL_TEXT_NONE;

    pl_text_printf(&all, "%s%s", first, more);
    check_trials(HEAD "\"search\": \"random\", \"trials\": 1, " DRAWN, first);
    check_trials(HEAD "\"search\": \"random\", \"trials\": 3, " DRAWN, pl_text_string(&all));
}

TEST(drawn_values_lie_in_their_ranges_and_read_back_as_the_same_number)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = parsed(
        HEAD "\"search\": \"random\", \"trials\": 2000, \"space\": {\"l\": {\"log\": [1e-5, 3e-5]}, \"i\": {\"int\": "
             "[-1, 1]}, \"f\": {\"float\": [0.1, 0.3]}, \"w\": {\"int\": [-9007199254740992, 9007199254740992]}}}");
    unsigned seen[3] = {0, 0, 0};
    unsigned low_half = 0;

    for (size_t i = 0; i < space->trials_count; i++) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *values = NULL;
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        double l, f;
        int64_t whole;

        pl_sweep_space_print(space, i, &text);
        ck_ok(pl_python_json_parse_strict, text.data, text.length, "trial", &values);
        l = pl_python_json_double(pl_python_json_member(values, "l"));
        f = pl_python_json_double(pl_python_json_member(values, "f"));
        ck_ok(pl_python_json_int64, pl_python_json_member(values, "i"), &whole);
        ck_assert(l >= 1e-5 && l <= 3e-5 && f >= 0.1 && f <= 0.3 && whole >= -1 && whole <= 1);
        seen[whole + 1]++;
        low_half += l < sqrt(1e-5 * 3e-5);
    }
    ck_assert(seen[0] > 500 && seen[1] > 500 && seen[2] > 500);
    ck_assert(low_half > 850 && low_half < 1150);
}

#define SPACE "\"space\": {\"a\": [1, 2]}"
#define REGEX(text) "{\"goal\": \"minimize\", " SPACE ", \"metric\": {\"name\": \"m\", \"regex\": \"" text "\"}}"

TEST(a_wrong_specification_is_refused_with_its_place_and_what_was_expected)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"", "S, line 1, column 1: expected a value, found the end of the text"},
        {"[]", "S, line 1, column 1: expected an object, found a list"},
        {HEAD "\"space\": {\"a\": [1, 2]}", "S, line 1, column 61: expected ',' or '}', found the end of the text"},
        {HEAD "\"space\": {\"a\": [1],\n \"a\": [2]}}",
         "S, line 2, column 2: expected each key once, found \"a\" twice"},
        {HEAD SPACE ", \"sead\": 1}", "S, line 1, column 71: sead is not known here: expected space, search, trials, "
                                      "seed, metric, goal, scheduler, seeds, "
                                      "processes, slots, max_failed, trial_time_s or model"},
        {HEAD "\"seed\": 1}",
         "S, line 1, column 1: space: expected an object with at least one hyperparameter, found nothing or null"},
        {HEAD "\"space\": {}}",
         "S, line 1, column 48: space: expected an object with at least one hyperparameter, found an object"},
        {HEAD "\"space\": {\"a\": 1}}", "S, line 1, column 54: a: expected a list of values, or {\"choice\": "
                                        "[...]}, {\"int\": [...]}, {\"float\": [...]} or "
                                        "{\"log\": [...]}, found 1"},
        {HEAD "\"space\": {\"a\": {\"int\": [1, 2], \"log\": [1, 2]}}}",
         "S, line 1, column 54: a: expected a list of values, or {\"choice\": [...]}, {\"int\": [...]}, "
         "{\"float\": [...]} or "
         "{\"log\": [...]}, found an object"},
        {HEAD "\"space\": {\"a\": {\"uniform\": [1, 2]}}}",
         "S, line 1, column 66: uniform is not known here: expected choice, int, float or log"},
        {HEAD "\"space\": {\"b c\": []}}",
         "S, line 1, column 56: b c: expected a list with at least one value, found a list"},
        {HEAD "\"space\": {\"a\": [1, [2]]}}",
         "S, line 1, column 58: a: expected a number, a string, true or false, found a list"},
        {HEAD "\"space\": {\"a\": [null]}}",
         "S, line 1, column 55: a: expected a number, a string, true or false, found null"},
        {HEAD "\"space\": {\"sagemaker_program\": [1]}}", "S, line 1, column 70: sagemaker_program: expected the "
                                                          "name of a hyperparameter of the program, not sagemaker_* or "
                                                          "paceline_*, without '=', found a list"},
        {HEAD "\"space\": {\"a\": {\"int\": [2, 1]}}}",
         "S, line 1, column 62: int: expected low not above high, found a list"},
        {HEAD "\"space\": {\"a\": {\"int\": [1, 2.5]}}}",
         "S, line 1, column 66: int: expected a whole number from -9007199254740992 to 9007199254740992, "
         "found 2.5"},
        {HEAD "\"space\": {\"a\": {\"int\": [1, 2, 2]}}}",
         "S, line 1, column 62: int: expected [low, high], found a list"},
        {HEAD "\"space\": {\"a\": {\"float\": [1, 2]}}}",
         "S, line 1, column 64: float: expected [low, high, points] in a grid, found a list"},
        {HEAD "\"space\": {\"a\": {\"float\": [1, 1, 2]}}}",
         "S, line 1, column 64: float: expected low below high, found a list"},
        {HEAD "\"space\": {\"a\": {\"float\": [1, 2, 1]}}}",
         "S, line 1, column 71: float: expected a whole number from 2 to 10000, found 1"},
        {HEAD "\"space\": {\"a\": {\"float\": [-1e308, 1e308, 2]}}}",
         "S, line 1, column 64: float: expected a range of finite length, found a list"},
        {HEAD "\"space\": {\"a\": {\"log\": [0, 1, 2]}}}",
         "S, line 1, column 62: log: expected low above 0, and high / low finite, found a list"},
        {HEAD "\"space\": {\"a\": {\"log\": [1e-300, 1e300, 2]}}}",
         "S, line 1, column 62: log: expected low above 0, and high / low finite, found a list"},
        {HEAD "\"search\": \"random\", \"trials\": 2, \"space\": {\"a\": {\"log\": [1, 2, 3]}}}",
         "S, line 1, column 95: log: expected [low, high], found a list"},
        {HEAD "\"search\": \"random\", " SPACE "}",
         "S, line 1, column 1: trials: expected a whole number from 1 to 9007199254740992, found nothing or null"},
        {HEAD "\"trials\": 2, " SPACE "}",
         "S, line 1, column 49: trials: expected no number of trials: it follows from the "
         "space unless \"search\" is \"random\", found 2"},
        {HEAD "\"search\": \"bayes\", " SPACE "}",
         "S, line 1, column 49: search: expected \"grid\", \"random\" or \"list\", found \"bayes\""},
        {HEAD "\"search\": \"list\", " SPACE "}", "S, line 1, column 66: space: expected a list with at least one "
                                                  "object, because \"search\" is \"list\", found an object"},
        {HEAD "\"search\": \"list\", \"space\": [{\"a\": 1}, 2]}",
         "S, line 1, column 77: space: expected an object with the hyperparameters of a trial, found 2"},
        {HEAD "\"search\": \"list\", \"space\": [{\"a\": [1]}]}",
         "S, line 1, column 73: a: expected a number, a string, true or false, found a list"},
        {HEAD "\"seed\": -1, " SPACE "}",
         "S, line 1, column 47: seed: expected a whole number from 0 to 9007199254740992, found -1"},
        {HEAD SPACE ", \"seeds\": []}",
         "S, line 1, column 72: seeds: expected a list with at least one seed, found a list"},
        {HEAD SPACE ", \"seeds\": [1, 2, 1]}", "S, line 1, column 79: seeds: expected each seed once, found 1"},
        {HEAD SPACE ", \"seeds\": {\"name\": \"a\", \"values\": [1]}}",
         "S, line 1, column 72: name: expected the name of a hyperparameter that the space does not have, found "
         "\"a\""},
        {HEAD SPACE ", \"seeds\": {\"value\": [1]}}",
         "S, line 1, column 82: value is not known here: expected name or values"},
        {"{\"goal\": \"minimize\", " SPACE "}",
         "S, line 1, column 1: metric: expected a name, or {\"name\": ..., \"regex\": ...}, found nothing or null"},
        {"{\"metric\": \"m\", " SPACE "}",
         "S, line 1, column 1: goal: expected \"maximize\" or \"minimize\", found nothing or null"},
        {"{\"metric\": \"m\", \"goal\": \"max\", " SPACE "}",
         "S, line 1, column 25: goal: expected \"maximize\" or \"minimize\", found \"max\""},
        {"{\"metric\": \"seconds\", \"goal\": \"maximize\", " SPACE "}",
         "S, line 1, column 12: metric: expected a different name: this one is a standard member of trials.jsonl, "
         "found \"seconds\""},
        {"{\"metric\": \"\", \"goal\": \"maximize\", " SPACE "}",
         "S, line 1, column 12: metric: expected a name of 1 to 100 bytes, found \"\""},
        {"{\"metric\": \"a\\nb\", \"goal\": \"maximize\", " SPACE "}",
         "S, line 1, column 12: metric: expected a name without control characters, found \"a\\nb\""},
        {"{\"metric\": \"a\\u009bb\", \"goal\": \"maximize\", " SPACE "}",
         "S, line 1, column 12: metric: expected a name without control characters, found \"a\\u009bb\""},
        {"{\"metric\": {\"name\": \"m\"}, \"goal\": \"maximize\", " SPACE "}",
         "S, line 1, column 12: regex: expected a string, found nothing or null"},
        {REGEX("(1"),
         "S, line 1, column 79: regex: expected a regular expression that is right at character 3 (missing "
         "closing parenthesis), found \"(1\""},
        {REGEX("[0-9]+"), "S, line 1, column 79: regex: expected a regular expression with a group around the number, "
                          "([0-9.]+), found \"[0-9]+\""},
        {HEAD SPACE ", \"scheduler\": {\"asha\": {}}}",
         "S, line 1, column 76: scheduler: expected no scheduler: sweeps run each trial to its end; for a search that "
         "stops trials let Optuna, Ray Tune or Syne Tune start them by `paceline trial`, found an object"},
        {HEAD "\"space\": {\"a=b\": [1]}}", "S, line 1, column 56: a=b: expected the name of a hyperparameter of the "
                                            "program, not sagemaker_* or paceline_*, without '=', found a list"},
        {HEAD SPACE ", \"processes\": 0}",
         "S, line 1, column 76: processes: expected a whole number from 1 to 4096, found 0"},
        {HEAD SPACE ", \"slots\": 1.5}",
         "S, line 1, column 72: slots: expected a whole number from 1 to 4096, found 1.5"},
        {HEAD SPACE ", \"max_failed\": 50}",
         "S, line 1, column 77: max_failed: expected a number from 0 to 1, found 50"},
        {HEAD SPACE ", \"model\": 0}", "S, line 1, column 72: model: expected true or false, found 0"},
        {HEAD SPACE ", \"trial_time_s\": 0}",
         "S, line 1, column 79: trial_time_s: expected a number from 0.001 to 315360000, found 0"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        struct pl_sweep_space *space = NULL;

        ck_fails_as(PL_INVALID, wrong[i].told, pl_sweep_space_parse, wrong[i].text, strlen(wrong[i].text), "S", &space);
    }
}

TEST(more_trials_than_the_bound_are_refused)
{
    static const char *const wrong[] = {
        HEAD "\"space\": {\"a\": {\"int\": [1, 10001]}}}",
        HEAD "\"space\": {\"a\": {\"int\": [1, 101]}, \"b\": {\"int\": [1, 100]}}}",
        HEAD "\"space\": {\"a\": {\"int\": [-9007199254740992, 9007199254740992]}, \"b\": {\"int\": "
             "[-9007199254740992, 9007199254740992]}}}",
        HEAD "\"space\": {\"a\": {\"int\": [1, 5001]}}, \"seeds\": [1, 2]}",
        HEAD "\"space\": {\"a\": [1]}, \"search\": \"random\", \"trials\": 10001}",
    };
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *most = parsed(HEAD "\"space\": {\"a\": {\"int\": [1, 10000]}}}");
    PL_AUTO_FREE char *large = NULL;
    struct pl_sweep_space *space = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_uint_eq(most->trials_count, PL_SWEEP_TRIALS_MAX);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        ck_fails_as(PL_LIMIT, "S: expected at most 10000 trials, found more", pl_sweep_space_parse, wrong[i],
                    strlen(wrong[i]), "S", &space);
    }
    large = pl_memory_new(200000, 1, &error); /* a text of 100,000 bytes in each of 1,000 trials */
    strcpy(large, HEAD "\"space\": {\"b\": {\"int\": [1, 1000]}, \"a\": [\"");
    memset(large + strlen(large), 'x', 100000);
    strcat(large, "\"]}}");
    ck_fails_as(PL_LIMIT, "S: expected at most 67108864 bytes of hyperparameters in all trials, found more",
                pl_sweep_space_parse, large, strlen(large), "S", &space);
}

TEST(what_is_not_said_has_its_default_and_what_is_said_is_read)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *plain = parsed(HEAD SPACE "}");
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *said =
        parsed("{\"metric\": {\"name\": \"m\", \"regex\": \"m ([0-9]+)\"}, \"goal\": \"minimize\", " SPACE
               ", \"scheduler\": \"none\", \"processes\": 2, \"slots\": 8, \"max_failed\": 0, \"trial_time_s\": 1.5, "
               "\"model\": false}");

    ck_assert(plain->maximize && plain->processes == 1 && plain->slots == 0);
    ck_assert_ptr_null(plain->seed_name);
    ck_assert_double_eq(plain->max_failed, 0.5);
    ck_assert(plain->model);
    ck_assert_double_eq(plain->trial_time_s, 0);
    ck_assert(!said->maximize && said->processes == 2 && said->slots == 8);
    ck_assert_str_eq(said->metric_name, "m");
    ck_assert_str_eq(said->metric_regex, "m ([0-9]+)");
    ck_assert_double_eq(said->max_failed, 0);
    ck_assert(!said->model);
    ck_assert_double_eq(said->trial_time_s, 1.5);
}

TEST(the_expression_of_a_name_finds_the_last_number_after_it)
{
    static const struct {
        const char *name, *line, *number; /* NULL: none */
    } cases[] = {
        {"acc", "epoch=3 acc=0.5", "0.5"},
        {"acc", "acc: 1e-3, acc: -2.5E+2, loss: 3", "-2.5E+2"},
        {"acc", "acc 7", "7"},
        {"acc", "{\"acc\": .25}", ".25"},
        {"acc", "acc = 4.", "4."},
        {"acc", "acc=0.97%", "0.97"},
        {"acc", "val_acc=0.5", NULL},
        {"acc", "acc=0.1 val_acc=0.5", "0.1"},
        {"acc", "acc=nan", "nan"},
        {"acc", "acc: -Infinity, loss: 2", "-Infinity"},
        {"acc", "acc=information 5", NULL},
        {"acc", "acc0.5", NULL},
        {"acc", "accuracy=0.5", NULL},
        {"a.c*", "abc=1 a.c*=2 abc=3", "2"},
        {"top (1) [%]", "top (1) [%]: 12", "12"},
        {"^x$|y", "^x$|y=1", "1"},
        {"Test accuracy", "Test accuracy: 0.98 (10 s)", "0.98"},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        struct pl_pattern *pattern = NULL;
        struct pl_error error = PL_ERROR_NONE;
        double found = 0, expected = 0;
        enum pl_status status;

        pl_text_printf(&text, "{\"metric\": \"%s\", \"goal\": \"maximize\", " SPACE "}", cases[i].name);
        space = parsed(pl_text_string(&text));
        ck_ok(pl_pattern_new, space->metric_regex, &pattern);
        status = pl_pattern_number(pattern, cases[i].line, strlen(cases[i].line), &found, &error);
        pl_pattern_free(pattern);
        ck_assert_msg((status == PL_OK) == !!cases[i].number, "%s", cases[i].line);
        ck_assert(!cases[i].number || (pl_text_number(cases[i].number, &expected) &&
                                       (found == expected || (isnan(found) && isnan(expected)))));
    }
}

/* In the form of the SDK: each hyperparameter is a string, which may contain JSON. */
TEST(a_job_has_its_specification_inline_as_text_or_object_or_in_a_file)
{
    static const char spec[] = "{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"z\": [1, 2], \"a\": [3]}}";
    static const char quoted[] = "\"{\\\"metric\\\": \\\"acc\\\", \\\"goal\\\": \\\"maximize\\\", \\\"space\\\": "
                                 "{\\\"z\\\": [1, 2], \\\"a\\\": [3]}}\"";
    const char *const values[] = {spec, quoted, "\"sweep.json\"", "\"\\\"sweep.json\\\"\""};
    struct pl_sweep_space *space = NULL;
    AUTO_TREE struct tree tree = tree_new();

    tree_write(&tree, "code/sweep.json", spec);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(values); i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_text_printf(&text, "{\"paceline_sweep\": %s}", values[i]);
        tree_hyperparameters(&tree, pl_text_string(&text));
        ck_ok(tree_job, &tree);
        ck_ok(pl_sweep_space_of_job, tree.job, &space);
        ck_assert_uint_eq(space->trials_count, 2);
        ck_assert_str_eq(space->trials[1].items[0], "z=2"); /* z stays before a */
        ck_assert_str_eq(space->trials[1].items[1], "a=3");
        pl_sweep_space_free(space);
    }
    tree_hyperparameters(&tree, "{\"paceline_sweep\": \"none.json\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(pl_sweep_space_of_job(tree.job, &space, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "paceline_sweep: expected a JSON object or a file in the code directory");
    tree_env(&tree, "PACELINE_SWEEP", " {\"metric\": 1}"); /* the variable takes precedence */
    ck_ok(tree_job, &tree);
    ck_fails(PL_INVALID, "paceline_sweep, line 1, column 2: space: expected", pl_sweep_space_of_job, tree.job, &space);
    tree_env(&tree, "PACELINE_SWEEP", "");
    tree_hyperparameters(&tree, "{\"paceline_sweep\": null}");
    ck_ok(tree_job, &tree);
    ck_fails(PL_NOT_FOUND, "the job has no sweep", pl_sweep_space_of_job, tree.job, &space);
}

TEST(devices_are_cut_into_slots)
{
    static const struct {
        int cpus, gpus, processes, wanted;
        struct pl_slots slots;
    } cases[] = {{9, 0, 4, 0, {2, 4, 0}},
                 {32, 8, 2, 0, {4, 8, 2}},
                 {32, 8, 1, 2, {2, 16, 4}}, /* fewer slots, with more devices each */
                 {4, 2, 1, 6, {6, 1, 1}},   /* more slots than GPUs share them */
                 {64, 2, 3, 1, {1, 64, 2}}};
    struct pl_slots slots;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_ok(pl_slots_cut, "algo-1", cases[i].cpus, cases[i].gpus, cases[i].processes, cases[i].wanted, &slots);
        ck_assert_mem_eq(&slots, &cases[i].slots, sizeof(slots));
    }
    ck_fails_as(PL_INVALID,
                "the sweep has 5 processes per trial, and host algo-7 has 4 CPUs: expected at most 4 "
                "processes, or the number of slots in \"slots\"",
                pl_slots_cut, "algo-7", 4, 0, 5, 0, &slots);
    ck_fails(PL_INVALID, "has 2 GPUs", pl_slots_cut, "algo-7", 64, 2, 3, 0, &slots);
}

UNIT_MAIN("programs/sweep/space")
