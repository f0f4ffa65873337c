/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/record.c. */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/memory.h"
#include "tests/unit/entrypoint/tree.h"

#include <stdlib.h>
#include <unistd.h>

#define SPACE(values) "{\"metric\": \"score\", \"goal\": \"maximize\", \"space\": {\"x\": [" values "]}}"

static struct tree tree;
static struct pl_sweep sweep;
static struct pl_error error;

static void close_record(void)
{
    for (size_t i = 0; sweep.space && i < sweep.space->trials_count; i++) {
        pl_text_done(&sweep.runs[i].reason);
    }
    pl_file_close_at(&sweep.lock_fd);
    pl_file_close_at(&sweep.room_fd);
    free(sweep.folder);
    free(sweep.fresh);
    free(sweep.runs);
    pl_sweep_space_free(sweep.space);
    sweep = (struct pl_sweep){.lock_fd = -1, .room_fd = -1, .first_failed = -1};
}

/* Opens the record of a job with these hyperparameters, for the specification `text`. */
static enum pl_status open_record(const char *hyperparameters, const char *text)
{
    close_record();
    error = PL_ERROR_NONE;
    tree_hyperparameters(&tree, hyperparameters);
    ck_ok(tree_job, &tree);
    ck_ok(pl_sweep_space_parse, text, strlen(text), "S", &sweep.space);
    sweep.job = tree.job;
    sweep.hosts_count = 1;
    sweep.runs = pl_memory_new(sweep.space->trials_count, sizeof(*sweep.runs), &error);
    ck_assert_ptr_nonnull(sweep.runs);
    return pl_sweep_record_open(&sweep, &error);
}

static void setup(void)
{
    sweep = (struct pl_sweep){.lock_fd = -1, .room_fd = -1, .first_failed = -1};
    tree_setup(&tree);
}

static void teardown(void)
{
    close_record();
    tree_done(&tree);
}

static void note(size_t trial, enum pl_sweep_state state, double value)
{
    struct pl_sweep_run *run = &sweep.runs[trial];

    run->state = state;
    run->has_value = value >= 0;
    run->value = value;
    run->code = state == PL_SWEEP_FAILED ? 3 : 0;
    run->seconds = 1.5;
    if (state == PL_SWEEP_FAILED) {
        pl_text_append(&run->reason, "it said \"no\"\nand ended");
    }
    pl_sweep_record_write(&sweep);
    ck_assert_msg(!sweep.failed, "%s", sweep.reason);
}

static void refused(const char *hyperparameters, const char *text, const char *words)
{
    ck_assert_int_eq(open_record(hyperparameters, text), PL_INVALID);
    ck_assert_msg(!!strstr(error.cause, words), "%s", error.cause);
    ck_has(error.cause, "(paceline_sweep_fresh=");
}

TEST(what_is_over_is_there_again)
{
    char id[sizeof(sweep.id)];

    setup();
    ck_assert_ok(open_record("{\"epochs\": \"9\"}", SPACE("1, 2.50, \"a\"")), &error);
    memcpy(id, sweep.id, sizeof(id));
    note(0, PL_SWEEP_COMPLETED, 0.25);
    note(2, PL_SWEEP_FAILED, -1);
    ck_assert_ok(open_record("{\"epochs\": \"9\"}", SPACE("1, 2.50, \"a\", 7")), &error); /* one more at the end */
    ck_assert_str_eq(sweep.id, id);
    ck_assert_int_eq(sweep.runs[0].state, PL_SWEEP_COMPLETED);
    ck_assert(sweep.runs[0].has_value && sweep.runs[0].value == 0.25);
    ck_assert_int_eq(sweep.runs[1].state, PL_SWEEP_WAITING);
    ck_assert_int_eq(sweep.runs[2].state, PL_SWEEP_FAILED);
    ck_assert_int_eq(sweep.runs[2].code, 3);
    ck_assert_str_eq(pl_text_string(&sweep.runs[2].reason), "it said \"no\"\nand ended");
    ck_assert_int_eq(sweep.first_failed, 2);
    ck_assert_int_eq(sweep.runs[3].state, PL_SWEEP_WAITING);
    teardown();
}

TEST(another_sweep_is_refused_by_what_differs)
{
    setup();
    ck_assert_ok(open_record("{\"epochs\": \"9\", \"api_token\": \"1\"}", SPACE("1, 2")), &error);
    note(0, PL_SWEEP_COMPLETED, 1);
    refused("{\"epochs\": \"90\", \"api_token\": \"1\"}", SPACE("1, 2"), "hyperparameters.epochs was 9 and is 90");
    refused("{\"api_token\": \"1\"}", SPACE("1, 2"), "hyperparameters.epochs was 9 and is missing");
    refused("{\"epochs\": \"9\"}", SPACE("1, 3"), "trial 1 had {\"x\": 2} and has {\"x\": 3}");
    refused("{\"epochs\": \"9\"}", SPACE("1"), "with more trials");
    refused("{\"epochs\": \"9\"}", "{\"metric\": \"loss\", \"goal\": \"minimize\", \"space\": {\"x\": [1, 2]}}",
            "metric was score by ");
    /* secrets and what the platform says of a job may change */
    ck_assert_ok(open_record("{\"epochs\": \"9\", \"api_token\": \"2\", \"sagemaker_region\": \"a\"}", SPACE("1, 2")),
                 &error);
    teardown();
}

TEST(what_differs_is_shown_however_far_it_is)
{
    PL_AUTO_TEXT struct pl_text was = PL_TEXT_NONE, is = PL_TEXT_NONE;

    setup();
    pl_text_printf(&was, "{\"path\": \"%0200d1\"}", 0);
    pl_text_printf(&is, "{\"path\": \"%0200d2\"}", 0);
    ck_assert_ok(open_record(was.data, SPACE("1, 2")), &error);
    note(0, PL_SWEEP_COMPLETED, 1);
    refused(is.data, SPACE("1, 2"), "hyperparameters.path was ...0");
    ck_has(error.cause, "01\" and is ...0");
    ck_has(error.cause, "02\" (paceline_sweep_fresh=");
    refused(was.data, "{\"metric\": \"score\", \"goal\": \"minimize\", \"space\": {\"x\": [1, 2]}}",
            "maximize and is ");
    ck_has(error.cause, "minimize (paceline_sweep_fresh=");
    teardown();
}

TEST(the_metric_may_change_while_nothing_has_succeeded)
{
    setup();
    ck_assert_ok(open_record("{}", SPACE("1, 2")), &error);
    note(0, PL_SWEEP_FAILED, -1);
    ck_assert_ok(open_record("{}", "{\"metric\": \"loss\", \"goal\": \"minimize\", \"space\": {\"x\": [1, 2]}}"),
                 &error);
    teardown();
}

TEST(a_request_for_a_new_sweep_counts_once)
{
    char id[sizeof(sweep.id)], second[sizeof(sweep.id)];

    setup();
    ck_assert_ok(open_record("{}", SPACE("1, 2")), &error);
    memcpy(id, sweep.id, sizeof(id));
    ck_assert_ok(open_record("{\"paceline_sweep_fresh\": \"1\"}", SPACE("8")), &error);
    ck_assert_str_ne(sweep.id, id);
    memcpy(second, sweep.id, sizeof(id));
    ck_assert_ok(open_record("{\"paceline_sweep_fresh\": \"1\"}", SPACE("8")), &error);
    ck_assert_str_eq(sweep.id, second);
    ck_assert_ok(open_record("{\"paceline_sweep_fresh\": \"2\"}", SPACE("8")), &error);
    ck_assert_str_ne(sweep.id, second);
    teardown();
}

TEST(a_damaged_file_is_refused_by_its_line)
{
    static const char *const damaged[][2] = {{"\"trial\": 1", "\"trial\": 0"},
                                             {"completed", "complete"},
                                             {"\"code\": 0", "\"code\": -1"},
                                             {"{\"trial\": 0", "{\"trial: 0"},
                                             {"{\"sweep\": \"", "{\"sweep\": \"../"}};
    PL_AUTO_TEXT struct pl_text changed = PL_TEXT_NONE;
    PL_AUTO_FREE char *text = NULL;
    char path[PATH_MAX];

    setup();
    snprintf(path, sizeof(path), "%s/checkpoints/sweep/trials.jsonl", tree.base);
    ck_assert_ok(open_record("{}", SPACE("1, 2")), &error);
    note(0, PL_SWEEP_COMPLETED, 1);
    ck_ok(pl_file_read, path, 65536, &text, NULL);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(damaged); i++) {
        const char *at = strstr(text, damaged[i][0]);

        ck_assert_ptr_nonnull(at);
        pl_text_clear(&changed);
        pl_text_printf(&changed, "%.*s%s%s", (int)(at - text), text, damaged[i][1], at + strlen(damaged[i][0]));
        tree_write(&tree, "checkpoints/sweep/trials.jsonl", pl_text_string(&changed));
        refused("{}", SPACE("1, 2"), "is damaged in its line ");
    }
    text[strlen(text) - 1] = '\0';
    tree_write(&tree, "checkpoints/sweep/trials.jsonl", text);
    refused("{}", SPACE("1, 2"), "ends within a line");
    tree_write(&tree, "checkpoints/sweep/trials.jsonl", "");
    refused("{}", SPACE("1, 2"), "is empty");
    teardown();
}

TEST(two_sweeps_do_not_share_a_folder)
{
    struct pl_sweep second = {.lock_fd = -1, .room_fd = -1};

    setup();
    ck_assert_ok(open_record("{}", SPACE("1, 2")), &error);
    second.job = sweep.job;
    second.space = sweep.space;
    ck_fails(PL_LIMIT, "belongs to a sweep that is running", pl_sweep_record_open, &second);
    pl_file_close_at(&second.lock_fd);
    free(second.folder);
    teardown();
}

UNIT_MAIN("programs/sweep/record")
