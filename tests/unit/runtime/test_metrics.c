/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/metrics.c. */
#include "runtime/metrics.h"

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <math.h>

TEST(a_line_for_regular_expressions_and_one_of_json)
{
    struct pl_metrics metrics = PL_METRICS_NONE;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    char *line = NULL;
    size_t line_bytes = 0;
    char *text = NULL;
    FILE *stream = open_memstream(&line, &line_bytes);

    scratch_path(&scratch, "made/on the way/metrics.jsonl", path);
    for (int epoch = 1; epoch <= 2; epoch++) {
        pl_metrics_whole(&metrics, "epoch", epoch);
        pl_metrics_real(&metrics, "train_loss", 4, 0.0712345);
        ck_ok(pl_metrics_write, &metrics, stream, path);
    }
    fclose(stream);
    ck_assert_str_eq(line, "epoch=1 train_loss=0.0712\nepoch=2 train_loss=0.0712\n");
    ck_ok(pl_file_read, path, 1000, &text, NULL);
    ck_assert_str_eq(text, "{\"epoch\": 1, \"train_loss\": 0.0712345}\n{\"epoch\": 2, \"train_loss\": 0.0712345}\n");
    free(line);
    free(text);
    pl_metrics_done(&metrics);
}

/* Strict readers of JSON take the whole file, and the regular expressions still see what it was. */
TEST(numbers_that_json_has_not_are_null)
{
    static const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.5, -0.0};
    static const char *const names[] = {"loss", "up", "down", "half", "zero"};
    PL_AUTO_JSON struct pl_json *document = NULL;
    struct pl_metrics metrics = PL_METRICS_NONE;
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    size_t line_bytes = 0, bytes;
    char path[PATH_MAX];
    char *line = NULL, *text = NULL;
    FILE *stream = open_memstream(&line, &line_bytes);

    scratch_path(&scratch, "metrics.jsonl", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(values); i++) {
        pl_metrics_real(&metrics, names[i], 1, values[i]);
    }
    ck_ok(pl_metrics_write, &metrics, stream, path);
    fclose(stream);
    ck_assert_str_eq(line, "loss=nan up=inf down=-inf half=0.5 zero=-0.0\n");
    ck_ok(pl_file_read, path, 1000, &text, &bytes);
    ck_assert_str_eq(text, "{\"loss\": null, \"up\": null, \"down\": null, \"half\": 0.5, \"zero\": -0.0}\n");
    ck_ok(pl_json_parse, text, bytes, "metrics", &document);
    free(line);
    free(text);
    pl_metrics_done(&metrics);
}

TEST(a_file_that_cannot_be_written_is_an_error)
{
    struct pl_metrics metrics = PL_METRICS_NONE;
    FILE *stream = fopen("/dev/null", "w");

    pl_metrics_whole(&metrics, "epoch", 1);
    ck_assert_int_eq(pl_metrics_write(&metrics, stream, "/dev", NULL), PL_SYSTEM);
    pl_metrics_whole(&metrics, "epoch", 1);
    ck_assert_int_eq(pl_metrics_write(&metrics, stream, "/dev/null/metrics.jsonl", NULL), PL_INVALID);
    fclose(stream);
    pl_metrics_done(&metrics);
}

/* The unit tests' stderr is not a terminal. */
TEST(no_progress_line_without_a_terminal)
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

UNIT_MAIN("runtime/metrics")
