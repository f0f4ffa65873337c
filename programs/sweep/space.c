/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a specification. Checks each name and type; each error has the place and what was expected. */
#include "programs/sweep/space.h"

#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/output/pattern.h"
#include "programs/sweep/space_draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES_MAX = 100, REGEX_BYTES_MAX = 1024, HOST_PROCESSES_MAX = 4096, TIME_S_MAX = 10 * 365 * 86400 };

static const char dimension_kinds[] =
    "a list of values, or {\"choice\": [...]}, {\"int\": [...]}, {\"float\": [...]} or {\"log\": [...]}";

/* Finds the optional member `name` of `object`. Returns false if it is missing or null. */
static bool find(const struct pl_sweep_value *object, const char *name, struct pl_sweep_value *ret_value)
{
    *ret_value = pl_sweep_value_member(object, name);
    return ret_value->node;
}

/* Reads an optional whole number; `*number` keeps its value if there is no such member. */
static enum pl_status read_whole(const struct pl_sweep_value *object, const char *name, int64_t least, int64_t most,
                                 int64_t *number, struct pl_error *reterr)
{
    struct pl_sweep_value value;

    return find(object, name, &value) ? pl_sweep_value_whole(&value, least, most, number, reterr) : PL_OK;
}

/* Finds the index of `value` in `words`, which ends with NULL; `expected` lists them for the error. */
static enum pl_status read_word(const struct pl_sweep_value *value, const char *const *words, const char *expected,
                                size_t *ret_index, struct pl_error *reterr)
{
    const char *text = NULL;

    for (size_t i = 0; pl_sweep_value_text(value, &text, NULL) == PL_OK && words[i]; i++) {
        if (strcmp(words[i], text) == 0) {
            *ret_index = i;
            return PL_OK;
        }
    }
    return pl_sweep_value_wrong(value, expected, reterr);
}

/* Checks the name of a hyperparameter for programs. */
static enum pl_status check_name(const struct pl_sweep_value *value, const char *name, struct pl_error *reterr)
{
    if (*name == '\0' || strchr(name, '=') || strlen(name) > NAME_BYTES_MAX || strncmp(name, "sagemaker_", 10) == 0 ||
        strncmp(name, "paceline_", 9) == 0) {
        return pl_sweep_value_wrong(
            value, "the name of a hyperparameter of the program, not sagemaker_* or paceline_*, without '='", reterr);
    }
    return PL_OK;
}

/* Checks that the value is a list with at least one item. */
static enum pl_status check_list(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr)
{
    if (!pl_sweep_value_is(value, PL_PYTHON_JSON_ARRAY) || pl_python_json_count(value->node) == 0) {
        return pl_sweep_value_wrong(value, expected, reterr);
    }
    return PL_OK;
}

static enum pl_status read_choices(const struct pl_sweep_value *value, struct pl_sweep_dimension *dimension,
                                   struct pl_error *reterr)
{
    PL_TRY(check_list(value, "a list with at least one value", reterr));
    dimension->kind = PL_SWEEP_DIMENSION_CHOICE;
    dimension->choices = pl_memory_new(pl_python_json_count(value->node), sizeof(struct pl_python_json *), reterr);
    if (!dimension->choices) {
        return PL_MEMORY;
    }
    for (const struct pl_python_json *node = pl_python_json_first(value->node); node;
         node = pl_python_json_next(node)) {
        if (!pl_sweep_value_is_scalar(node)) {
            struct pl_sweep_value item = pl_sweep_value_child(value, node);

            return pl_sweep_value_wrong(&item, "a number, a string, true or false", reterr);
        }
        dimension->choices[dimension->count++] = node;
    }
    return PL_OK;
}

/* Reads [low, high], or for float and log in a grid [low, high, points]. */
static enum pl_status read_range(const struct pl_sweep_value *value, bool grid, struct pl_sweep_dimension *dimension,
                                 struct pl_error *reterr)
{
    bool is_int = dimension->kind == PL_SWEEP_DIMENSION_INT;
    const char *expected = is_int ? "[low, high]" : grid ? "[low, high, points] in a grid" : "[low, high]";
    double ends[2] = {0, 0};
    int64_t whole = 0, points = 0;
    size_t index = 0;

    PL_TRY(check_list(value, expected, reterr));
    if (pl_python_json_count(value->node) != (grid && !is_int ? 3U : 2U)) {
        return pl_sweep_value_wrong(value, expected, reterr);
    }
    for (const struct pl_python_json *node = pl_python_json_first(value->node); node;
         node = pl_python_json_next(node), index++) {
        struct pl_sweep_value item = pl_sweep_value_child(value, node);

        if (index == 2) {
            PL_TRY(pl_sweep_value_whole(&item, 2, PL_SWEEP_TRIALS_MAX, &points, reterr));
        } else if (is_int) {
            PL_TRY(pl_sweep_value_whole(&item, -PL_SWEEP_WHOLE_MAX, PL_SWEEP_WHOLE_MAX, &whole, reterr));
            ends[index] = (double)whole;
        } else {
            PL_TRY(pl_sweep_value_number(&item, -INFINITY, INFINITY, &ends[index], reterr));
        }
    }
    if (is_int ? ends[0] > ends[1] : !(ends[0] < ends[1])) {
        return pl_sweep_value_wrong(value, is_int ? "low not above high" : "low below high", reterr);
    }
    if (dimension->kind == PL_SWEEP_DIMENSION_LOG && (ends[0] <= 0 || !isfinite(ends[1] / ends[0]))) {
        return pl_sweep_value_wrong(value, "low above 0, and high / low finite", reterr);
    }
    if (!isfinite(ends[1] - ends[0])) {
        return pl_sweep_value_wrong(value, "a range of finite length", reterr);
    }
    dimension->low = ends[0];
    dimension->high = ends[1];
    dimension->count = is_int ? (uint64_t)((int64_t)ends[1] - (int64_t)ends[0]) + 1 : (uint64_t)points;
    return PL_OK;
}

static enum pl_status read_dimension(const struct pl_sweep_value *value, bool grid,
                                     struct pl_sweep_dimension *dimension, struct pl_error *reterr)
{
    static const char *const names[] = {"choice", "int", "float", "log", NULL};
    const struct pl_python_json *node;
    struct pl_sweep_value inner;

    dimension->name = pl_python_json_name(value->node);
    PL_TRY(check_name(value, dimension->name, reterr));
    if (pl_python_json_kind(value->node) == PL_PYTHON_JSON_ARRAY) {
        return read_choices(value, dimension, reterr);
    }
    if (pl_python_json_kind(value->node) != PL_PYTHON_JSON_OBJECT || pl_python_json_count(value->node) != 1) {
        return pl_sweep_value_wrong(value, dimension_kinds, reterr);
    }
    PL_TRY(pl_sweep_value_object(value, names, reterr));
    node = pl_python_json_first(value->node);
    inner = pl_sweep_value_child(value, node);
    for (int kind = PL_SWEEP_DIMENSION_CHOICE; names[kind]; kind++) {
        if (strcmp(names[kind], pl_python_json_name(node)) == 0) {
            dimension->kind = (enum pl_sweep_dimension_kind)kind;
        }
    }
    return dimension->kind == PL_SWEEP_DIMENSION_CHOICE ? read_choices(&inner, dimension, reterr)
                                                        : read_range(&inner, grid, dimension, reterr);
}

static enum pl_status read_dimensions(const struct pl_sweep_value *space, struct pl_sweep_draft *draft,
                                      struct pl_error *reterr)
{
    if (!pl_sweep_value_is(space, PL_PYTHON_JSON_OBJECT) || pl_python_json_count(space->node) == 0) {
        return pl_sweep_value_wrong(space, "an object with at least one hyperparameter", reterr);
    }
    draft->dimensions = pl_memory_new(pl_python_json_count(space->node), sizeof(*draft->dimensions), reterr);
    if (!draft->dimensions) {
        return PL_MEMORY;
    }
    for (const struct pl_python_json *node = pl_python_json_first(space->node); node;
         node = pl_python_json_next(node)) {
        struct pl_sweep_value value = pl_sweep_value_child(space, node);
        struct pl_sweep_dimension *dimension = &draft->dimensions[draft->dimensions_count++];

        PL_TRY(read_dimension(&value, draft->search == PL_SWEEP_SEARCH_GRID, dimension, reterr));
    }
    return PL_OK;
}

/* Reads the points of a list: objects of hyperparameters. */
static enum pl_status read_list(const struct pl_sweep_value *space, struct pl_sweep_draft *draft,
                                struct pl_error *reterr)
{
    size_t index = 0;

    PL_TRY(check_list(space, "a list with at least one object, because \"search\" is \"list\"", reterr));
    for (const struct pl_python_json *node = pl_python_json_first(space->node); node;
         node = pl_python_json_next(node), index++) {
        struct pl_sweep_value point = pl_sweep_value_child(space, node);

        if (pl_python_json_kind(node) != PL_PYTHON_JSON_OBJECT) {
            return pl_sweep_value_wrong(&point, "an object with the hyperparameters of a trial", reterr);
        }
        for (const struct pl_python_json *member = pl_python_json_first(node); member;
             member = pl_python_json_next(member)) {
            struct pl_sweep_value value = pl_sweep_value_child(&point, member);

            PL_TRY(check_name(&value, pl_python_json_name(member), reterr));
            if (!pl_sweep_value_is_scalar(member)) {
                return pl_sweep_value_wrong(&value, "a number, a string, true or false", reterr);
            }
        }
    }
    draft->list = space->node;
    return PL_OK;
}

static enum pl_status read_search(const struct pl_sweep_value *root, struct pl_sweep_draft *draft,
                                  struct pl_error *reterr)
{
    static const char *const words[] = {"grid", "random", "list", NULL};
    struct pl_sweep_value space = pl_sweep_value_member(root, "space");
    struct pl_sweep_value value;
    size_t search = PL_SWEEP_SEARCH_GRID;
    int64_t number = 0;

    if (find(root, "search", &value)) {
        PL_TRY(read_word(&value, words, "\"grid\", \"random\" or \"list\"", &search, reterr));
    }
    draft->search = (enum pl_sweep_search)search;
    PL_TRY(read_whole(root, "seed", 0, PL_SWEEP_WHOLE_MAX, &number, reterr));
    draft->seed = (uint64_t)number;
    if (find(root, "trials", &value) && draft->search != PL_SWEEP_SEARCH_RANDOM) {
        return pl_sweep_value_wrong(
            &value, "no number of trials: it follows from the space unless \"search\" is \"random\"", reterr);
    }
    if (draft->search == PL_SWEEP_SEARCH_RANDOM) {
        PL_TRY(pl_sweep_value_whole(&value, 1, PL_SWEEP_WHOLE_MAX, &number, reterr));
        draft->trials = (size_t)number;
    }
    return draft->search == PL_SWEEP_SEARCH_LIST ? read_list(&space, draft, reterr)
                                                 : read_dimensions(&space, draft, reterr);
}

/* Whether a point has a hyperparameter with the name of the seeds. */
static bool is_in_space(const struct pl_sweep_draft *draft, const char *name)
{
    for (size_t i = 0; i < draft->dimensions_count; i++) {
        if (strcmp(draft->dimensions[i].name, name) == 0) {
            return true;
        }
    }
    for (const struct pl_python_json *point = draft->list ? pl_python_json_first(draft->list) : NULL; point;
         point = pl_python_json_next(point)) {
        if (pl_python_json_member(point, name)) {
            return true;
        }
    }
    return false;
}

static enum pl_status read_seed_values(const struct pl_sweep_value *values, struct pl_sweep_draft *draft,
                                       struct pl_error *reterr)
{
    PL_TRY(check_list(values, "a list with at least one seed", reterr));
    if (pl_python_json_count(values->node) > PL_SWEEP_TRIALS_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d trials, found more", values->source,
                            PL_SWEEP_TRIALS_MAX);
    }
    draft->seeds = pl_memory_new(pl_python_json_count(values->node), sizeof(*draft->seeds), reterr);
    if (!draft->seeds) {
        return PL_MEMORY;
    }
    for (const struct pl_python_json *node = pl_python_json_first(values->node); node;
         node = pl_python_json_next(node)) {
        struct pl_sweep_value item = pl_sweep_value_child(values, node);

        PL_TRY(pl_sweep_value_whole(&item, 0, PL_SWEEP_WHOLE_MAX, &draft->seeds[draft->seeds_count], reterr));
        for (size_t i = 0; i < draft->seeds_count; i++) {
            if (draft->seeds[i] == draft->seeds[draft->seeds_count]) {
                return pl_sweep_value_wrong(&item, "each seed once", reterr);
            }
        }
        draft->seeds_count++;
    }
    return PL_OK;
}

static enum pl_status read_seeds(const struct pl_sweep_value *root, struct pl_sweep_draft *draft,
                                 struct pl_sweep_space *space, struct pl_error *reterr)
{
    static const char *const names[] = {"name", "values", NULL};
    struct pl_sweep_value seeds, name, values;
    const char *text = "seed";

    if (!find(root, "seeds", &seeds)) {
        return PL_OK;
    }
    values = name = seeds;
    if (pl_python_json_kind(seeds.node) == PL_PYTHON_JSON_OBJECT) {
        PL_TRY(pl_sweep_value_object(&seeds, names, reterr));
        values = pl_sweep_value_member(&seeds, "values");
        if (find(&seeds, "name", &name)) {
            PL_TRY(pl_sweep_value_text(&name, &text, reterr));
            PL_TRY(check_name(&name, text, reterr));
        }
    }
    PL_TRY(read_seed_values(&values, draft, reterr));
    if (is_in_space(draft, text)) {
        return pl_error_set(
            reterr, PL_INVALID,
            "%s, line %u, column %u: %s: expected the name of a hyperparameter that the space does not have, found "
            "\"%.60s\"",
            root->source, pl_python_json_line(seeds.node), pl_python_json_column(seeds.node),
            name.node ? name.name : seeds.name, text);
    }
    space->seed_name = pl_memory_string(text, reterr);
    draft->seed_name = space->seed_name;
    return space->seed_name ? PL_OK : PL_MEMORY;
}

/* Checks a metric's name: it becomes a member of the lines of trials.jsonl, and a part of the line "best_NAME=...". */
static enum pl_status check_metric_name(const struct pl_sweep_value *value, const char *name, struct pl_error *reterr)
{
    static const char *const taken[] = {"trial", "point",   "state", "hyperparameters", "code",
                                        "model", "seconds", "host",  "reason"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(taken); i++) {
        if (strcmp(name, taken[i]) == 0) {
            return pl_sweep_value_wrong(value, "a different name: this one is a standard member of trials.jsonl",
                                        reterr);
        }
    }
    for (const char *at = name; *at != '\0'; at++) {
        if (pl_text_control_bytes(at, name + strlen(name)) > 0) {
            return pl_sweep_value_wrong(value, "a name without control characters", reterr);
        }
    }
    return *name == '\0' || strlen(name) > NAME_BYTES_MAX
               ? pl_sweep_value_wrong(value, "a name of 1 to 100 bytes", reterr)
               : PL_OK;
}

/* Makes the expression that finds the last number after NAME=, NAME: or NAME with blanks; NAME may be in double quotes.
 * A longer word that ends with NAME does not match. */
static enum pl_status make_regex(const char *name, char **ret_regex, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text regex = PL_TEXT_NONE;

    pl_text_append(&regex, "^.*(?<![A-Za-z0-9_])"); /* .* takes as much as it can: so the last number is found */
    for (const char *at = name; *at != '\0'; at++) {
        pl_text_printf(&regex, "%s%c", strchr(".[]{}()*+?|^$\\", *at) ? "\\" : "", *at);
    }
    pl_text_append(&regex, "\"?[=: \\t]+([-+]?(?:(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][-+]?[0-9]+)?|"
                           "(?i:nan|inf(?:inity)?)\\b))");
    return pl_text_take(&regex, ret_regex, reterr);
}

static enum pl_status read_regex(const struct pl_sweep_value *value, char **ret_regex, struct pl_error *reterr)
{
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;
    const char *text;

    PL_TRY(pl_sweep_value_text(value, &text, reterr));
    if (strlen(text) > REGEX_BYTES_MAX) {
        return pl_sweep_value_wrong(value, "a regular expression of at most 1024 bytes", reterr);
    }
    if (pl_pattern_new(text, &pattern, &error) != PL_OK) {
        return pl_sweep_value_wrong(value, error.cause, reterr);
    }
    pl_pattern_free(pattern);
    *ret_regex = pl_memory_string(text, reterr);
    return *ret_regex ? PL_OK : PL_MEMORY;
}

static enum pl_status read_metric(const struct pl_sweep_value *root, struct pl_sweep_space *space,
                                  struct pl_error *reterr)
{
    static const char *const names[] = {"name", "regex", NULL};
    static const char *const goals[] = {"maximize", "minimize", NULL};
    struct pl_sweep_value metric = pl_sweep_value_member(root, "metric");
    struct pl_sweep_value goal = pl_sweep_value_member(root, "goal");
    struct pl_sweep_value name = metric;
    const char *text;
    size_t index = 0;

    if (pl_sweep_value_is(&metric, PL_PYTHON_JSON_OBJECT)) {
        struct pl_sweep_value regex = pl_sweep_value_member(&metric, "regex");

        PL_TRY(pl_sweep_value_object(&metric, names, reterr));
        name = pl_sweep_value_member(&metric, "name");
        PL_TRY(read_regex(&regex, &space->metric_regex, reterr));
    } else if (!pl_sweep_value_is(&metric, PL_PYTHON_JSON_STRING)) {
        return pl_sweep_value_wrong(&metric, "a name, or {\"name\": ..., \"regex\": ...}", reterr);
    }
    PL_TRY(pl_sweep_value_text(&name, &text, reterr));
    PL_TRY(check_metric_name(&name, text, reterr));
    space->metric_name = pl_memory_string(text, reterr);
    if (!space->metric_name) {
        return PL_MEMORY;
    }
    if (!space->metric_regex) {
        PL_TRY(make_regex(text, &space->metric_regex, reterr));
    }
    PL_TRY(read_word(&goal, goals, "\"maximize\" or \"minimize\"", &index, reterr));
    space->maximize = index == 0;
    return PL_OK;
}

/* Schedulers were a part of sweeps. A search that looks at values starts its trials itself. */
static enum pl_status refuse_scheduler(const struct pl_sweep_value *root, struct pl_error *reterr)
{
    struct pl_sweep_value value;

    if (!find(root, "scheduler", &value) ||
        (pl_sweep_value_is(&value, PL_PYTHON_JSON_STRING) && strcmp(pl_python_json_text(value.node), "none") == 0)) {
        return PL_OK;
    }
    return pl_sweep_value_wrong(&value,
                                "no scheduler: sweeps run each trial to its end; for a search that stops trials let "
                                "Optuna, Ray Tune or Syne Tune start them by `paceline trial`",
                                reterr);
}

static enum pl_status read_bounds(const struct pl_sweep_value *root, struct pl_sweep_space *space,
                                  struct pl_error *reterr)
{
    int64_t processes = 1, slots = 0;
    struct pl_sweep_value value;

    PL_TRY(read_whole(root, "processes", 1, HOST_PROCESSES_MAX, &processes, reterr));
    PL_TRY(read_whole(root, "slots", 1, HOST_PROCESSES_MAX, &slots, reterr));
    space->processes = (int)processes;
    space->slots = (int)slots;
    space->max_failed = 0.5;
    space->model = true;
    if (find(root, "model", &value)) {
        if (pl_python_json_kind(value.node) != PL_PYTHON_JSON_BOOL) {
            return pl_sweep_value_wrong(&value, "true or false", reterr);
        }
        space->model = pl_python_json_bool(value.node);
    }
    if (find(root, "max_failed", &value)) {
        PL_TRY(pl_sweep_value_number(&value, 0, 1, &space->max_failed, reterr));
    }
    if (find(root, "trial_time_s", &value)) {
        PL_TRY(pl_sweep_value_number(&value, 0.001, TIME_S_MAX, &space->trial_time_s, reterr));
    }
    return PL_OK;
}

static enum pl_status read_all(const struct pl_sweep_value *root, struct pl_sweep_space *space, struct pl_error *reterr)
{
    static const char *const names[] = {"space",      "search",       "trials", "seed",      "metric",
                                        "goal",       "scheduler",    "seeds",  "processes", "slots",
                                        "max_failed", "trial_time_s", "model",  NULL};
    PL_AUTO_SWEEP_DRAFT struct pl_sweep_draft draft = {.seed = 0};

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    PL_TRY(read_search(root, &draft, reterr));
    PL_TRY(read_metric(root, space, reterr));
    PL_TRY(refuse_scheduler(root, reterr));
    PL_TRY(read_seeds(root, &draft, space, reterr));
    PL_TRY(read_bounds(root, space, reterr));
    return pl_sweep_draft_expand(&draft, root->source, space, reterr);
}

enum pl_status pl_sweep_space_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct pl_sweep_value root;

    if (bytes > PL_SWEEP_SPEC_BYTES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d bytes, found %zu", source,
                            PL_SWEEP_SPEC_BYTES_MAX, bytes);
    }
    PL_TRY(pl_python_json_parse_strict(text, bytes, source, &document, reterr));
    space = pl_memory_new(1, sizeof(*space), reterr);
    if (!space) {
        return PL_MEMORY;
    }
    root = (struct pl_sweep_value){.source = source, .node = document, .above = document};
    PL_TRY(read_all(&root, space, reterr));
    *ret_space = PL_TAKE(space);
    return PL_OK;
}

enum pl_status pl_sweep_space_read(const char *path, struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, PL_SWEEP_SPEC_BYTES_MAX, &text, &bytes, reterr));
    return pl_sweep_space_parse(text, bytes, path, ret_space, reterr);
}

enum pl_status pl_sweep_space_of_job(const struct pl_job *job, struct pl_sweep_space **ret_space,
                                     struct pl_error *reterr)
{
    const char *setting = job->settings.sweep;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    if (!setting) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "the job has no sweep: expected PACELINE_SWEEP, the hyperparameter paceline_sweep, or a "
                            "file as an argument");
    }
    if (setting[strspn(setting, " \t\r\n")] == '{') {
        return pl_sweep_space_parse(setting, strlen(setting), "paceline_sweep", ret_space, reterr);
    }
    pl_text_printf(&path, "%s%s%s", setting[0] == '/' ? "" : job->paths.code, setting[0] == '/' ? "" : "/", setting);
    PL_TRY(pl_text_check(&path, reterr));
    status = pl_sweep_space_read(pl_text_string(&path), ret_space, reterr);
    if (status == PL_NOT_FOUND) {
        pl_error_context(reterr, "paceline_sweep: expected a JSON object or a file in the code directory");
    }
    return status;
}

void pl_sweep_space_free(struct pl_sweep_space *space)
{
    if (!space) {
        return;
    }
    for (size_t i = 0; i < space->trials_count; i++) {
        free(space->trials[i].hyperparameters);
    }
    free(space->trials);
    free(space->metric_name);
    free(space->metric_regex);
    free(space->seed_name);
    free(space);
}

void pl_sweep_space_free_at(struct pl_sweep_space **space_at)
{
    pl_sweep_space_free(*space_at);
    *space_at = NULL;
}
