/* SPDX-License-Identifier: Apache-2.0 */
/* Specifications of sweeps: an accepted specification has trials whose hyperparameters are strict JSON, and expressions
 * that compile; the same text gives the same trials. A refused one has a reason. */
#include "base/json/python_json.h"
#include "entrypoint/output/pattern.h"
#include "programs/sweep/space.h"
#include "tests/support/fuzz.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
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
