/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/journal.c. */
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "programs/sweep/journal.h"
#include "programs/sweep/journal_file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/sweep/journal_sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens a sweep of `trials` trials, at most TRIALS, that may take `limit_s`. */
static void sweep_open_as(struct sweep *sweep, const char *path, int trials, double limit_s)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = pl_python_json_new_object();
    const struct pl_sweep_asked asked = {.identity = identity, .limit_s = limit_s};
    struct pl_error error = PL_ERROR_NONE;
    char text[256];

    *sweep = (struct sweep){.space = NULL};
    snprintf(text, sizeof(text),
             "{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": {\"int\": [1, %d]}}, "
             "\"search\": \"random\", \"trials\": %d}",
             100, trials);
    ck_assert_ok(pl_sweep_space_parse(text, strlen(text), "S", &sweep->space, &error), &error);
    ck_assert_ok(pl_scheduler_new(sweep->space, &sweep->scheduler, &error), &error);
    ck_assert_ok(
        pl_sweep_journal_open(path, sweep->space, &asked, sweep->scheduler, sweep->records, &sweep->journal, &error),
        &error);
}

static void sweep_open(struct sweep *sweep, const char *path)
{
    sweep_open_as(sweep, path, TRIALS, 60);
}

/* Appends lines to the journal at `path`; each has no closing brace. */
static void append(const char *path, const char *const *lines, size_t count)
{
    PL_AUTO_FREE char *name = pl_memory_string(path, NULL);
    struct pl_journal_file file = {.fd = -1, .path = name};
    PL_AUTO_JOURNAL_LINE struct pl_journal_line line = {.stream = NULL};
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_ok(pl_journal_file_take(&file, 0, &error), &error);
    ck_assert_ok(pl_journal_line_open(&file, &line, &error), &error);
    while (pl_journal_line_next(&file, &line, &error) == PL_OK) {
    }
    for (size_t i = 0; i < count; i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_text_append(&text, lines[i]);
        ck_assert_ok(pl_journal_file_write(&file, &text, false, &error), &error);
    }
    pl_file_close_at(&file.fd);
}

START_TEST(a_second_value_of_a_step_counts_only_if_its_line_says_so)
{
    static const char *const lines[] = {
        "{\"start\": 0, \"host\": null",
        "{\"report\": 0, \"step\": 1, \"value\": 0.5",
        "{\"report\": 0, \"step\": 1, \"value\": 0.9", /* an earlier version ignored this report */
        "{\"start\": 1, \"host\": null",
        "{\"report\": 1, \"step\": 0, \"value\": 0.5",
        "{\"report\": 1, \"step\": 0, \"value\": 0.4, \"again\": true",
    };
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    sweep_open(&sweep, path);
    sweep_done(&sweep);
    append(path, lines, PL_ARRAY_ITEMS(lines));
    sweep_open(&sweep, path);
    ck_assert_double_eq(pl_scheduler_progress(sweep.scheduler, 0)->best, 0.5);
    ck_assert_double_eq(pl_scheduler_progress(sweep.scheduler, 1)->best, 0.4);
    sweep_done(&sweep);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_sweep_whose_time_was_over_goes_on_with_more_time_or_more_trials)
{
    static const struct {
        int trials;
        double limit_s;
        const char *line; /* how the journal says that the time was over */
        size_t waiting;   /* number of the trials that wait afterwards */
    } cases[] = {
        {4, 60, "{\"closed\": true, \"limit_s\": 60.0", 0},
        {4, 30, "{\"closed\": true, \"limit_s\": 60.0", 0},
        {4, 61, "{\"closed\": true, \"limit_s\": 60.0", 2},
        {4, (double)INFINITY, "{\"closed\": true, \"limit_s\": 60.0", 2},
        {5, 30, "{\"closed\": true, \"limit_s\": 60.0", 3},
        {4, 1e6, "{\"closed\": true", 0}, /* the line of an earlier version */
        {4, (double)INFINITY, "{\"closed\": true", 2},
        {5, 60, "{\"closed\": true", 3},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        /* trial 0 has succeeded, trial 1 was stopped because the time was over */
        const char *const lines[] = {
            "{\"start\": 0, \"host\": null",
            "{\"end\": 0, \"how\": \"completed\", \"seconds\": 1.0, \"reason\": null",
            "{\"start\": 1, \"host\": null",
            cases[i].line,
        };
        struct scratch scratch = scratch_new();
        char path[PATH_MAX];
        struct sweep sweep;

        scratch_path(&scratch, "journal", path);
        sweep_open_as(&sweep, path, 4, 60);
        sweep_done(&sweep);
        append(path, lines, PL_ARRAY_ITEMS(lines));
        for (int again = 0; again < 2; again++) { /* the journal keeps that the sweep goes on */
            size_t waiting = 0;

            sweep_open_as(&sweep, path, cases[i].trials, cases[i].limit_s);
            ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 0)->state, PL_SWEEP_COMPLETED);
            ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 1)->state, PL_SWEEP_STOPPED);
            for (size_t trial = 0; trial < (size_t)cases[i].trials; trial++) {
                waiting += pl_scheduler_progress(sweep.scheduler, trial)->state == PL_SWEEP_WAITING;
            }
            ck_assert_uint_eq(waiting, cases[i].waiting);
            ck_assert_int_eq(pl_scheduler_is_closed(sweep.scheduler), waiting == 0);
            sweep_done(&sweep);
        }
        scratch_done(&scratch);
    }
}
END_TEST

UNIT_MAIN("programs/sweep/journal_lines", a_second_value_of_a_step_counts_only_if_its_line_says_so,
          a_sweep_whose_time_was_over_goes_on_with_more_time_or_more_trials)
