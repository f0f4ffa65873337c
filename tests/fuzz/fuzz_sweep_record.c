/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a sweep's trials.jsonl. What is refused has a reason that names the file. What is accepted prints the
 * same rows again. */
#include "base/memory.h"
#include "programs/sweep/sweep.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
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
