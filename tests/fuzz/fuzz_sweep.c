/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps: specifications, and the lines of trials.jsonl. */
#include "base/json/python_json.h"
#include "base/memory.h"
#include "entrypoint/output/pattern.h"
#include "programs/sweep/space.h"
#include "programs/sweep/sweep.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check_trial(const struct pl_sweep_space *space, const struct pl_sweep_space *again, size_t trial)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE, other = PL_TEXT_NONE;

    pl_sweep_space_print(space, trial, &text);
    pl_sweep_space_print(again, trial, &other);
    PL_BUG_IF(strcmp(text.data, other.data) != 0 || strchr(text.data, '\n'));
    PL_BUG_IF(pl_python_json_parse_strict(text.data, text.length, "trial", &root, NULL) != PL_OK);
    for (const struct pl_python_json *node = pl_python_json_first(root); node; node = pl_python_json_next(node)) {
        const enum pl_python_json_kind kind = pl_python_json_kind(node);

        PL_BUG_IF(kind == PL_PYTHON_JSON_NULL || kind == PL_PYTHON_JSON_ARRAY || kind == PL_PYTHON_JSON_OBJECT);
    }
}

/* Specifications of sweeps: an accepted specification has trials whose hyperparameters are strict JSON, and expressions
 * that compile; the same text gives the same trials. A refused one has a reason. */
static int fuzz_sweep(const uint8_t *data, size_t bytes)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *again = NULL;
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_sweep_space_parse((const char *)data, bytes, "fuzz", &space, &error) != PL_OK) {
        PL_BUG_IF(strncmp(error.cause, "fuzz, line ", 11) != 0);
        return 0;
    }
    PL_BUG_IF(pl_sweep_space_parse((const char *)data, bytes, "fuzz", &again, &error) != PL_OK);
    PL_BUG_IF(space->trials_count < 1 || space->trials_count > PL_SWEEP_TRIALS_MAX);
    PL_BUG_IF(again->trials_count != space->trials_count || space->trials_count % space->points_count != 0);
    PL_BUG_IF(pl_pattern_new(space->metric_regex, &pattern, &error) != PL_OK);
    pl_pattern_free(pattern);
    for (size_t i = 0; i < space->trials_count; i++) {
        check_trial(space, again, i);
    }
    return 0;
}

enum { TRIALS = 3 };

static const char specification[] = "{\"metric\":\"m\",\"goal\":\"minimize\",\"space\":{\"a\":[1,2,3]}}";

static bool read_record(const struct pl_job *job, struct pl_sweep_space *space, const char *data, size_t bytes,
                        struct pl_text *rows)
{
    struct pl_sweep sweep = {.job = job, .space = space, .folder = "folder", .hosts_count = 1, .first_failed = -1};
    struct pl_error error = PL_ERROR_NONE;
    char *text = pl_memory_string_n(data, bytes, NULL);
    bool ok;

    PL_BUG_IF(!text);
    sweep.runs = pl_memory_new(TRIALS, sizeof(*sweep.runs), NULL);
    PL_BUG_IF(!sweep.runs);
    ok = pl_sweep_record_read(&sweep, text, &error) == PL_OK;
    PL_BUG_IF(!ok && (error.status != PL_INVALID || strncmp(error.cause, "'folder/trials.jsonl' ", 22) != 0) &&
              error.status != PL_LIMIT);
    pl_sweep_record_rows(&sweep, rows);
    for (size_t i = 0; i < TRIALS; i++) {
        pl_text_done(&sweep.runs[i].reason);
    }
    free(sweep.fresh);
    free(sweep.runs);
    free(text);
    return ok;
}

/* The lines of a sweep's trials.jsonl. What is refused has a reason that names the file. What is accepted prints the
 * same rows again. */
static int fuzz_sweep_record(const uint8_t *data, size_t bytes)
{
    static const char head[] = "{\"sweep\": \"0a\", \"closed_s\": 0, \"fresh\": \"\", \"identity\": "
                               "{\"hyperparameters\": {}, \"program\": \"\", \"metric\": \"\", \"processes\": 1}}\n";
    struct pl_job job = {.hyperparameters = pl_python_json_new_object()};
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_TEXT struct pl_text rows = PL_TEXT_NONE, again = PL_TEXT_NONE, text = PL_TEXT_NONE;
    char *host = "algo-1";
    struct pl_error error = PL_ERROR_NONE;

    job.hosts = (struct pl_strv){.items = &host, .count = 1};
    PL_BUG_IF(pl_sweep_space_parse(specification, strlen(specification), "fuzz", &space, &error) != PL_OK);
    if (!memchr(data, 0, bytes) && read_record(&job, space, (const char *)data, bytes, &rows) &&
        !strstr(pl_text_string(&rows), "completed")) { /* then the metric is compared, and not that of the head below */
        pl_text_printf(&text, "%s%s", head, pl_text_string(&rows));
        PL_BUG_IF(!read_record(&job, space, text.data, text.length, &again));
        PL_BUG_IF(strcmp(pl_text_string(&rows), pl_text_string(&again)) != 0);
    }
    pl_python_json_free(job.hyperparameters);
    return 0;
}

FUZZ_TARGETS({"sweep", fuzz_sweep}, {"sweep_record", fuzz_sweep_record})
