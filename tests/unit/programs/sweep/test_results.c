/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/results.c. */
#include "base/memory.h"
#include "base/text.h"
#include "programs/sweep/results.h"
#include "tests/support/unit.h"

#include <math.h>
#include <string.h>

static char algo[] = "algo-1";
static char reason[] = "exit code 3: a\tlong tale\xFF that goes on and on, well beyond what a row has room for\nmore";

static void make(const char *text, struct pl_sweep_space **ret_space, struct pl_scheduler **ret_scheduler)
{
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_sweep_space_parse(text, strlen(text), "S", ret_space, &error), &error);
    ck_assert_ok(pl_scheduler_new(*ret_space, ret_scheduler, &error), &error);
}

static void run(struct pl_scheduler *scheduler, size_t trial, double value, enum pl_sweep_end end)
{
    pl_scheduler_note_start(scheduler, trial);
    pl_scheduler_note_report(scheduler, trial, 2, value);
    pl_scheduler_note_end(scheduler, trial, end);
}

START_TEST(each_trial_is_a_line_of_json_and_a_row_the_best_first_and_the_failed_last)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_scheduler *scheduler = NULL;
    struct pl_sweep_record records[5] = {
        {.seconds = 1.5, .host = algo}, {.seconds = 2, .host = algo, .reason = reason}, {.seconds = 12.3456}, {0}, {0}};
    PL_AUTO_TEXT struct pl_text lines = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text cut = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    size_t best = SIZE_MAX;

    make("{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2.50, \"x\\ty\", true, 4]}}", &space,
         &scheduler);
    ck_assert(!pl_sweep_results_best(space, scheduler, &best));
    run(scheduler, 0, 0.25, PL_SWEEP_END_COMPLETED);
    run(scheduler, 1, 0.9, PL_SWEEP_END_FAILED);
    run(scheduler, 2, 0.1, PL_SWEEP_END_STOPPED);
    run(scheduler, 3, (double)NAN, PL_SWEEP_END_COMPLETED);
    ck_assert_ok(pl_sweep_results_jsonl(space, scheduler, records, &lines, &error), &error);
    ck_assert_str_eq(
        pl_text_string(&lines),
        "{\"trial\": 0, \"point\": 0, \"state\": \"completed\", \"hyperparameters\": {\"a\": 1}, \"acc\": 0.25, "
        "\"best_step\": 2, \"step\": 2, \"runs\": 1, \"seconds\": 1.500, \"host\": \"algo-1\", \"reason\": null}\n"
        "{\"trial\": 1, \"point\": 1, \"state\": \"failed\", \"hyperparameters\": {\"a\": 2.50}, \"acc\": 0.9, "
        "\"best_step\": 2, \"step\": 2, \"runs\": 1, \"seconds\": 2.000, \"host\": \"algo-1\", \"reason\": "
        "\"exit code 3: a\\tlong tale? that goes on and on, well beyond what a row has room for\\nmore\"}\n"
        "{\"trial\": 2, \"point\": 2, \"state\": \"stopped\", \"hyperparameters\": {\"a\": \"x\\ty\"}, \"acc\": 0.1, "
        "\"best_step\": 2, \"step\": 2, \"runs\": 1, \"seconds\": 12.346, \"host\": null, \"reason\": null}\n"
        "{\"trial\": 3, \"point\": 3, \"state\": \"completed\", \"hyperparameters\": {\"a\": true}, \"acc\": null, "
        "\"best_step\": null, \"step\": 2, \"runs\": 1, \"seconds\": 0.000, \"host\": null, \"reason\": null}\n"
        "{\"trial\": 4, \"point\": 4, \"state\": \"waiting\", \"hyperparameters\": {\"a\": 4}, \"acc\": null, "
        "\"best_step\": null, \"step\": null, \"runs\": 0, \"seconds\": null, \"host\": null, \"reason\": null}\n");
    ck_assert(pl_sweep_results_best(space, scheduler, &best) && best == 0);
    pl_sweep_results_table(space, scheduler, records, 10, &table);
    ck_assert_str_eq(
        pl_text_string(&table),
        "trial           acc      step  state       seconds  hyperparameters\n"
        "    0          0.25         2  completed       1.5  a=1\n"
        "    2           0.1         2  stopped        12.3  a=\"x\\ty\"\n"
        "    3             -         2  completed       0.0  a=true\n"
        "    4             -         -  waiting         0.0  a=4\n"
        "    1           0.9         2  failed          2.0  a=2.50  exit code 3: a\tlong tale? that goes on "
        "and on, well beyond w...\n");
    pl_sweep_results_table(space, scheduler, records, 1, &cut);
    ck_assert_str_eq(pl_text_string(&cut), "trial           acc      step  state       seconds  hyperparameters\n"
                                           "    0          0.25         2  completed       1.5  a=1\n"
                                           "... and 4 more\n");
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(with_seeds_a_row_is_a_point_with_mean_and_spread_and_the_best_mean_has_the_model)
{
    static const double values[] = {0.1, 0.05, 0.9, 0.3, 0.6, 0.05}; /* points 0, 1, 2 with one seed, then the other */
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_scheduler *scheduler = NULL;
    struct pl_sweep_record records[6] = {{0}, {0}, {.reason = reason}, {0}, {0}, {.reason = reason}};
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE;
    size_t best = SIZE_MAX;

    make("{\"metric\": \"loss\", \"goal\": \"minimize\", \"space\": {\"a\": [1, 2, 3]}, \"seeds\": [7, 8]}", &space,
         &scheduler);
    for (size_t i = 0; i < 6; i++) {
        bool fails = i % 3 == 2;

        run(scheduler, i, values[i], fails ? PL_SWEEP_END_FAILED : PL_SWEEP_END_COMPLETED);
    }
    ck_assert(pl_sweep_results_best(space, scheduler, &best)); /* trial 1 has the best value */
    ck_assert_uint_eq(best, 0);
    pl_sweep_results_table(space, scheduler, records, 10, &table);
    ck_assert_str_eq(pl_text_string(&table),
                     "point          loss        spread  count  hyperparameters\n"
                     "    0           0.2      0.141421      2  a=1\n"
                     "    1         0.325      0.388909      2  a=2\n"
                     "    2             -             -      0  a=3  exit code 3: a\tlong tale? "
                     "that goes on and on, well beyond w...\n");
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_point_with_fewer_finite_values_comes_after_one_with_more)
{
    /* points 0, 1, 2 with one seed, then the other: point 0 has a failed trial, point 2 a value that is not finite */
    static const double values[] = {0.99, 0.5, 0.98, 0.99, 0.4, (double)NAN};
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_scheduler *scheduler = NULL;
    struct pl_sweep_record records[6] = {{0}};
    PL_AUTO_TEXT struct pl_text table = PL_TEXT_NONE;
    size_t best = SIZE_MAX;

    make("{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2, 3]}, \"seeds\": [7, 8]}", &space,
         &scheduler);
    for (size_t i = 0; i < 6; i++) {
        run(scheduler, i, values[i], i == 0 ? PL_SWEEP_END_FAILED : PL_SWEEP_END_COMPLETED);
    }
    ck_assert(pl_sweep_results_best(space, scheduler, &best));
    ck_assert_uint_eq(best, 1);
    pl_sweep_results_table(space, scheduler, records, 10, &table);
    ck_assert_str_eq(pl_text_string(&table), "point           acc        spread  count  hyperparameters\n"
                                             "    1          0.45     0.0707107      2  a=2\n"
                                             "    0          0.99             -      1  a=1\n"
                                             "    2          0.98             -      1  a=3\n");
    pl_scheduler_free(scheduler);
}
END_TEST

START_TEST(a_trial_that_pauses_when_the_sweep_is_done_has_been_stopped)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_scheduler *scheduler = NULL;
    struct pl_sweep_record records[2] = {{0}, {0}};
    PL_AUTO_TEXT struct pl_text before = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text after = PL_TEXT_NONE;
    size_t best = SIZE_MAX;

    make("{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2]}, \"scheduler\": {\"asha\": {}}}",
         &space, &scheduler);
    run(scheduler, 0, 0.5, PL_SWEEP_END_STOPPED);
    pl_sweep_results_table(space, scheduler, records, 10, &before);
    ck_assert_ptr_nonnull(strstr(pl_text_string(&before), "  paused  "));
    run(scheduler, 1, 0.5, PL_SWEEP_END_STOPPED);
    pl_sweep_results_table(space, scheduler, records, 10, &after);
    ck_assert_ptr_null(strstr(pl_text_string(&after), "paused"));
    ck_assert_ptr_nonnull(strstr(pl_text_string(&after), "  stopped  "));
    ck_assert(pl_sweep_results_best(space, scheduler, &best) && best == 0);
    pl_scheduler_free(scheduler);
}
END_TEST

UNIT_MAIN("programs/sweep/results", each_trial_is_a_line_of_json_and_a_row_the_best_first_and_the_failed_last,
          with_seeds_a_row_is_a_point_with_mean_and_spread_and_the_best_mean_has_the_model,
          a_point_with_fewer_finite_values_comes_after_one_with_more,
          a_trial_that_pauses_when_the_sweep_is_done_has_been_stopped)
