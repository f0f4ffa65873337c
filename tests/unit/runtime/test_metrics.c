/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/metrics.c. */
#include "runtime/metrics.h"

#include "base/file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

START_TEST(a_line_for_regular_expressions_and_one_of_json)
{
    struct pl_metrics metrics = PL_METRICS_NONE;
    struct pl_error error = PL_ERROR_NONE;
    struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char *line = NULL;
    size_t line_bytes = 0;
    char *text = NULL;
    FILE *stream = open_memstream(&line, &line_bytes);

    scratch_path(&scratch, "metrics.jsonl", path);
    for (int epoch = 1; epoch <= 2; epoch++) {
        pl_metrics_whole(&metrics, "epoch", epoch);
        pl_metrics_real(&metrics, "train_loss", 4, 0.0712345);
        ck_assert_ok(pl_metrics_write(&metrics, stream, path, &error), &error);
    }
    fclose(stream);
    ck_assert_str_eq(line, "epoch=1 train_loss=0.0712\nepoch=2 train_loss=0.0712\n");
    ck_assert_ok(pl_file_read(path, 1000, &text, NULL, &error), &error);
    ck_assert_str_eq(text, "{\"epoch\": 1, \"train_loss\": 0.0712345}\n{\"epoch\": 2, \"train_loss\": 0.0712345}\n");
    free(line);
    free(text);
    pl_metrics_done(&metrics);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_an_error)
{
    struct pl_metrics metrics = PL_METRICS_NONE;
    FILE *stream = fopen("/dev/null", "w");

    pl_metrics_whole(&metrics, "epoch", 1);
    ck_assert_int_eq(pl_metrics_write(&metrics, stream, "/dev/null/metrics.jsonl", NULL), PL_SYSTEM);
    fclose(stream);
    pl_metrics_done(&metrics);
}
END_TEST

/* The unit tests' stderr is no terminal. */
START_TEST(no_progress_line_without_a_terminal)
{
    int pipe_fds[2];
    int saved = dup(STDERR_FILENO);
    char byte;

    ck_assert_int_eq(pipe(pipe_fds), 0);
    ck_assert_int_ge(dup2(pipe_fds[1], STDERR_FILENO), 0);
    pl_metrics_show_progress("epoch %d", 1);
    pl_metrics_clear_progress();
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(pipe_fds[1]);
    ck_assert_int_eq(read(pipe_fds[0], &byte, 1), 0);
    close(pipe_fds[0]);
    close(saved);
}
END_TEST

UNIT_MAIN("runtime/metrics", a_line_for_regular_expressions_and_one_of_json, a_file_that_cannot_be_written_is_an_error,
          no_progress_line_without_a_terminal)
