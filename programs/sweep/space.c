/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a specification. Each error has the place and what was expected. */
#include "programs/sweep/space.h"

#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "entrypoint/output/pattern.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_BYTES_MAX = 100,
    REGEX_BYTES_MAX = 1024,
    HOST_PROCESSES_MAX = 4096,
    TIME_S_MAX = 10 * 365 * 86400,
    SHOWN_BYTES = 60,
};

/* A value of the text, with what a message needs. */
struct value {
    const char *source;
    const struct pl_python_json *node;  /* NULL if there is no such value, or it is a member and null */
    const struct pl_python_json *above; /* what it is or would be a part of; NULL for the root */
    const char *name;                   /* its own, or that of the list in which it is; NULL for the root */
};

static const char *const kind_names[] = {"choice", "int", "float", "log", NULL};

static bool is(const struct value *value, enum pl_python_json_kind kind)
{
    return value->node && pl_python_json_kind(value->node) == kind;
}

static bool is_number(const struct value *value)
{
    return is(value, PL_PYTHON_JSON_INT) || is(value, PL_PYTHON_JSON_FLOAT);
}

static bool is_scalar(const struct value *value)
{
    return is_number(value) || is(value, PL_PYTHON_JSON_STRING) || is(value, PL_PYTHON_JSON_BOOL);
}

static struct value child(const struct value *above, const struct pl_python_json *node)
{
    const char *name = node ? pl_python_json_name(node) : NULL;

    return (struct value){above->source, node, above->node, name ? name : above->name};
}

/* Iterate over the items of a list or the members of an object; `node` is NULL after the last. */
static struct value first(const struct value *above)
{
    return child(above, above->node ? pl_python_json_first(above->node) : NULL);
}

static struct value next(const struct value *above, const struct value *value)
{
    return child(above, pl_python_json_next(value->node));
}

static struct value member(const struct value *object, const char *name)
{
    const struct pl_python_json *node = pl_python_json_member(object->node, name);

    node = node && pl_python_json_kind(node) != PL_PYTHON_JSON_NULL ? node : NULL;
    return (struct value){object->source, node, object->node, name};
}

/* Sets the error with the place, "expected `expected`, found ...", and returns PL_INVALID. */
static enum pl_status wrong(const struct value *value, const char *expected, struct pl_error *reterr)
{
    const struct pl_python_json *place = value->node ? value->node : value->above;
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;

    if (is_scalar(value)) {
        pl_sweep_space_print_value(value->node, &found);
    } else {
        pl_text_append(&found,
                       value->node ? pl_python_json_kind_text(pl_python_json_kind(value->node)) : "nothing or null");
    }
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %.100s%sexpected %s, found %.*s%s", value->source,
                        pl_python_json_line(place), pl_python_json_column(place), value->name ? value->name : "",
                        value->name ? ": " : "", expected, SHOWN_BYTES, pl_text_string(&found),
                        found.length > SHOWN_BYTES ? "..." : "");
}

static enum pl_status read_text(const struct value *value, const char **ret_text, struct pl_error *reterr)
{
    PL_TRY(is(value, PL_PYTHON_JSON_STRING) ? PL_OK : wrong(value, "a string", reterr));
    *ret_text = pl_python_json_text(value->node);
    return PL_OK;
}

static enum pl_status read_number(const struct value *value, bool whole, double least, double most, double *ret_number,
                                  struct pl_error *reterr)
{
    const double number = is_number(value) ? pl_python_json_double(value->node) : (double)NAN;
    char expected[80] = "a number";

    if (number >= least && number <= most && !(whole && number != trunc(number))) {
        *ret_number = number;
        return PL_OK;
    }
    if (whole) {
        snprintf(expected, sizeof(expected), "a whole number from %.0f to %.0f", least, most);
    } else if (isfinite(least)) {
        snprintf(expected, sizeof(expected), "a number from %.15g to %.15g", least, most);
    }
    return wrong(value, expected, reterr);
}

/* Finds the index of a word in `words`, which ends with NULL; `expected` lists them for the error. */
static enum pl_status read_word(const struct value *value, const char *const *words, const char *expected,
                                size_t *ret_index, struct pl_error *reterr)
{
    for (size_t i = 0; is(value, PL_PYTHON_JSON_STRING) && words[i]; i++) {
        if (strcmp(words[i], pl_python_json_text(value->node)) == 0) {
            *ret_index = i;
            return PL_OK;
        }
    }
    return wrong(value, expected, reterr);
}

/* Checks that the value is an object, and that it has only members of `names`, which ends with NULL. */
static enum pl_status check_object(const struct value *value, const char *const *names, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    PL_TRY(is(value, PL_PYTHON_JSON_OBJECT) ? PL_OK : wrong(value, "an object", reterr));
    for (struct value item = first(value); item.node; item = next(value, &item)) {
        size_t at = 0;

        while (names[at] && strcmp(names[at], item.name) != 0) {
            at++;
        }
        if (names[at]) {
            continue;
        }
        for (size_t i = 0; names[i]; i++) {
            pl_text_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
        }
        return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %.100s is not known here: expected %s",
                            value->source, pl_python_json_line(item.node), pl_python_json_column(item.node), item.name,
                            pl_text_string(&list));
    }
    return PL_OK;
}

static enum pl_status check_list(const struct value *value, const char *expected, struct pl_error *reterr)
{
    return is(value, PL_PYTHON_JSON_ARRAY) && pl_python_json_first(value->node) ? PL_OK
                                                                                : wrong(value, expected, reterr);
}

/* Checks the name of a hyperparameter for programs. */
static enum pl_status check_name(const struct value *value, const char *name, struct pl_error *reterr)
{
    return *name != '\0' && !strchr(name, '=') && strlen(name) <= NAME_BYTES_MAX &&
                   strncmp(name, "sagemaker_", 10) != 0 && strncmp(name, "paceline_", 9) != 0
               ? PL_OK
               : wrong(value, "the name of a hyperparameter of the program, not sagemaker_* or paceline_*, without '='",
                       reterr);
}

static enum pl_status check_scalar(const struct value *value, struct pl_error *reterr)
{
    return is_scalar(value) ? PL_OK : wrong(value, "a number, a string, true or false", reterr);
}

static enum pl_status read_choices(const struct value *value, struct pl_sweep_dimension *dimension,
                                   struct pl_error *reterr)
{
    PL_TRY(check_list(value, "a list with at least one value", reterr));
    dimension->choices = pl_memory_new(pl_python_json_count(value->node), sizeof(struct pl_python_json *), reterr);
    PL_TRY(dimension->choices ? PL_OK : PL_MEMORY);
    for (struct value item = first(value); item.node; item = next(value, &item)) {
        PL_TRY(check_scalar(&item, reterr));
        dimension->choices[dimension->count++] = item.node;
    }
    return PL_OK;
}

/* Reads [low, high], or for float and log in a grid [low, high, points]. */
static enum pl_status read_range(const struct value *value, bool grid, struct pl_sweep_dimension *dimension,
                                 struct pl_error *reterr)
{
    const bool is_int = dimension->kind == PL_SWEEP_INT, has_points = grid && !is_int;
    const char *expected = has_points ? "[low, high, points] in a grid" : "[low, high]";
    const double most = is_int ? PL_SWEEP_WHOLE_MAX : (double)INFINITY;
    double points = 0;
    struct value item;

    PL_TRY(check_list(value, expected, reterr));
    if (pl_python_json_count(value->node) != (has_points ? 3U : 2U)) {
        return wrong(value, expected, reterr);
    }
    item = first(value);
    PL_TRY(read_number(&item, is_int, -most, most, &dimension->low, reterr));
    item = next(value, &item);
    PL_TRY(read_number(&item, is_int, -most, most, &dimension->high, reterr));
    item = next(value, &item);
    PL_TRY(has_points ? read_number(&item, true, 2, PL_SWEEP_TRIALS_MAX, &points, reterr) : PL_OK);
    if (is_int ? dimension->low > dimension->high : !(dimension->low < dimension->high)) {
        return wrong(value, is_int ? "low not above high" : "low below high", reterr);
    }
    if (dimension->kind == PL_SWEEP_LOG && (dimension->low <= 0 || !isfinite(dimension->high / dimension->low))) {
        return wrong(value, "low above 0, and high / low finite", reterr);
    }
    if (!isfinite(dimension->high - dimension->low)) {
        return wrong(value, "a range of finite length", reterr);
    }
    dimension->count = is_int ? (uint64_t)((int64_t)dimension->high - (int64_t)dimension->low) + 1 : (uint64_t)points;
    return PL_OK;
}

static enum pl_status read_dimension(const struct value *value, bool grid, struct pl_sweep_dimension *dimension,
                                     struct pl_error *reterr)
{
    struct value inner = *value;

    dimension->name = value->name;
    PL_TRY(check_name(value, value->name, reterr));
    if (!is(value, PL_PYTHON_JSON_ARRAY)) {
        if (!is(value, PL_PYTHON_JSON_OBJECT) || pl_python_json_count(value->node) != 1) {
            return wrong(value,
                         "a list of values, or {\"choice\": [...]}, {\"int\": [...]}, {\"float\": [...]} or {\"log\": "
                         "[...]}",
                         reterr);
        }
        PL_TRY(check_object(value, kind_names, reterr));
        inner = first(value);
        while (strcmp(kind_names[dimension->kind], inner.name) != 0) {
            dimension->kind++;
        }
    }
    return dimension->kind == PL_SWEEP_CHOICE ? read_choices(&inner, dimension, reterr)
                                              : read_range(&inner, grid, dimension, reterr);
}

static enum pl_status read_dimensions(const struct value *space, struct pl_sweep_draft *draft, struct pl_error *reterr)
{
    const size_t count = is(space, PL_PYTHON_JSON_OBJECT) ? pl_python_json_count(space->node) : 0;

    PL_TRY(count > 0 ? PL_OK : wrong(space, "an object with at least one hyperparameter", reterr));
    draft->dimensions = pl_memory_new(count, sizeof(*draft->dimensions), reterr);
    PL_TRY(draft->dimensions ? PL_OK : PL_MEMORY);
    for (struct value value = first(space); value.node; value = next(space, &value)) {
        PL_TRY(read_dimension(&value, draft->search == PL_SWEEP_GRID, &draft->dimensions[draft->dimensions_count++],
                              reterr));
    }
    return PL_OK;
}

/* Reads the points of a list: objects of hyperparameters. */
static enum pl_status read_list(const struct value *space, struct pl_sweep_draft *draft, struct pl_error *reterr)
{
    PL_TRY(check_list(space, "a list with at least one object, because \"search\" is \"list\"", reterr));
    for (struct value point = first(space); point.node; point = next(space, &point)) {
        PL_TRY(is(&point, PL_PYTHON_JSON_OBJECT)
                   ? PL_OK
                   : wrong(&point, "an object with the hyperparameters of a trial", reterr));
        for (struct value value = first(&point); value.node; value = next(&point, &value)) {
            PL_TRY(check_name(&value, value.name, reterr));
            PL_TRY(check_scalar(&value, reterr));
        }
    }
    draft->list = space->node;
    return PL_OK;
}

static enum pl_status read_search(const struct value *root, struct pl_sweep_draft *draft, struct pl_error *reterr)
{
    static const char *const words[] = {"grid", "random", "list", NULL};
    const struct value search = member(root, "search"), trials = member(root, "trials"), space = member(root, "space");
    size_t index = PL_SWEEP_GRID;

    PL_TRY(search.node ? read_word(&search, words, "\"grid\", \"random\" or \"list\"", &index, reterr) : PL_OK);
    draft->search = (enum pl_sweep_search)index;
    if (draft->search == PL_SWEEP_RANDOM) {
        PL_TRY(read_number(&trials, true, 1, PL_SWEEP_WHOLE_MAX, &draft->trials, reterr));
    } else if (trials.node) {
        return wrong(&trials, "no number of trials: it follows from the space unless \"search\" is \"random\"", reterr);
    }
    return draft->search == PL_SWEEP_LIST ? read_list(&space, draft, reterr) : read_dimensions(&space, draft, reterr);
}

/* Whether a point has a hyperparameter with the name of the seeds. */
static bool is_in_space(const struct pl_sweep_draft *draft, const char *name)
{
    bool found = false;

    for (size_t i = 0; i < draft->dimensions_count; i++) {
        found = found || strcmp(draft->dimensions[i].name, name) == 0;
    }
    for (const struct pl_python_json *point = draft->list ? pl_python_json_first(draft->list) : NULL; point;
         point = pl_python_json_next(point)) {
        found = found || pl_python_json_member(point, name);
    }
    return found;
}

static enum pl_status check_seeds(const struct value *seeds, struct pl_error *reterr)
{
    double seed;

    PL_TRY(check_list(seeds, "a list with at least one seed", reterr));
    PL_TRY(pl_python_json_count(seeds->node) <= PL_SWEEP_TRIALS_MAX ? PL_OK
                                                                    : pl_sweep_space_too_many(seeds->source, reterr));
    for (struct value item = first(seeds); item.node; item = next(seeds, &item)) {
        PL_TRY(read_number(&item, true, 0, PL_SWEEP_WHOLE_MAX, &seed, reterr));
        for (struct value other = first(seeds); other.node != item.node; other = next(seeds, &other)) {
            PL_TRY(pl_python_json_double(other.node) != seed ? PL_OK : wrong(&item, "each seed once", reterr));
        }
    }
    return PL_OK;
}

static enum pl_status read_seeds(const struct value *root, struct pl_sweep_draft *draft, struct pl_sweep_space *space,
                                 struct pl_error *reterr)
{
    static const char *const names[] = {"name", "values", NULL};
    const struct value seeds = member(root, "seeds");
    struct value name = seeds, values = seeds;
    const char *text = "seed";

    draft->seeds_count = 1;
    if (!seeds.node) {
        return PL_OK;
    }
    if (is(&seeds, PL_PYTHON_JSON_OBJECT)) {
        PL_TRY(check_object(&seeds, names, reterr));
        values = member(&seeds, "values");
        name = member(&seeds, "name");
        if (name.node) {
            PL_TRY(read_text(&name, &text, reterr));
            PL_TRY(check_name(&name, text, reterr));
        }
    }
    PL_TRY(check_seeds(&values, reterr));
    draft->seeds = values.node;
    draft->seeds_count = pl_python_json_count(values.node);
    if (is_in_space(draft, text)) {
        return pl_error_set(reterr, PL_INVALID,
                            "%s, line %u, column %u: %s: expected the name of a hyperparameter that the space does not "
                            "have, found \"%.60s\"",
                            root->source, pl_python_json_line(seeds.node), pl_python_json_column(seeds.node),
                            name.node ? name.name : seeds.name, text);
    }
    space->seed_name = pl_memory_string(text, reterr);
    return space->seed_name ? PL_OK : PL_MEMORY;
}

/* Checks a metric's name: it becomes a member of the lines of trials.jsonl, and a part of the line "best_NAME=...". */
static enum pl_status check_metric_name(const struct value *value, const char *name, struct pl_error *reterr)
{
    static const char *const taken[] = {"trial", "point",   "state", "hyperparameters", "code",
                                        "model", "seconds", "host",  "reason"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(taken); i++) {
        if (strcmp(name, taken[i]) == 0) {
            return wrong(value, "a different name: this one is a standard member of trials.jsonl", reterr);
        }
    }
    for (const char *at = name; *at != '\0'; at++) {
        if (pl_text_control_bytes(at, name + strlen(name)) > 0) {
            return wrong(value, "a name without control characters", reterr);
        }
    }
    return *name == '\0' || strlen(name) > NAME_BYTES_MAX ? wrong(value, "a name of 1 to 100 bytes", reterr) : PL_OK;
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

static enum pl_status read_regex(const struct value *value, char **ret_regex, struct pl_error *reterr)
{
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;
    const char *text;

    PL_TRY(read_text(value, &text, reterr));
    if (strlen(text) > REGEX_BYTES_MAX) {
        return wrong(value, "a regular expression of at most 1024 bytes", reterr);
    }
    if (pl_pattern_new(text, &pattern, &error) != PL_OK) {
        return wrong(value, error.cause, reterr);
    }
    pl_pattern_free(pattern);
    *ret_regex = pl_memory_string(text, reterr);
    return *ret_regex ? PL_OK : PL_MEMORY;
}

static enum pl_status read_metric(const struct value *root, struct pl_sweep_space *space, struct pl_error *reterr)
{
    static const char *const names[] = {"name", "regex", NULL}, *const goals[] = {"maximize", "minimize", NULL};
    const struct value metric = member(root, "metric"), goal = member(root, "goal");
    const bool is_object = is(&metric, PL_PYTHON_JSON_OBJECT);
    const struct value name = is_object ? member(&metric, "name") : metric, regex = member(&metric, "regex");
    const char *text;
    size_t index = 0;

    PL_TRY(is_object || is(&metric, PL_PYTHON_JSON_STRING)
               ? PL_OK
               : wrong(&metric, "a name, or {\"name\": ..., \"regex\": ...}", reterr));
    PL_TRY(is_object ? check_object(&metric, names, reterr) : PL_OK);
    PL_TRY(is_object ? read_regex(&regex, &space->metric_regex, reterr) : PL_OK);
    PL_TRY(read_text(&name, &text, reterr));
    PL_TRY(check_metric_name(&name, text, reterr));
    space->metric_name = pl_memory_string(text, reterr);
    PL_TRY(space->metric_name ? PL_OK : PL_MEMORY);
    PL_TRY(is_object ? PL_OK : make_regex(text, &space->metric_regex, reterr));
    PL_TRY(read_word(&goal, goals, "\"maximize\" or \"minimize\"", &index, reterr));
    space->maximize = index == 0;
    return PL_OK;
}

/* Schedulers were a part of sweeps. A search that looks at values starts its trials itself. */
static enum pl_status refuse_scheduler(const struct value *root, struct pl_error *reterr)
{
    const struct value value = member(root, "scheduler");

    return !value.node || (is(&value, PL_PYTHON_JSON_STRING) && strcmp(pl_python_json_text(value.node), "none") == 0)
               ? PL_OK
               : wrong(&value,
                       "no scheduler: sweeps run each trial to its end; for a search that stops trials let Optuna, Ray "
                       "Tune or Syne Tune start them by `paceline trial`",
                       reterr);
}

static enum pl_status read_numbers(const struct value *root, struct pl_sweep_draft *draft, struct pl_sweep_space *space,
                                   struct pl_error *reterr)
{
    double processes = 1, slots = 0;
    const struct {
        const char *name;
        bool whole;
        double least, most, *number;
    } numbers[] = {{"seed", true, 0, PL_SWEEP_WHOLE_MAX, &draft->seed},
                   {"processes", true, 1, HOST_PROCESSES_MAX, &processes},
                   {"slots", true, 1, HOST_PROCESSES_MAX, &slots},
                   {"max_failed", false, 0, 1, &space->max_failed},
                   {"trial_time_s", false, 0.001, TIME_S_MAX, &space->trial_time_s}};
    const struct value model = member(root, "model");

    space->max_failed = 0.5;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        const struct value value = member(root, numbers[i].name);

        PL_TRY(value.node
                   ? read_number(&value, numbers[i].whole, numbers[i].least, numbers[i].most, numbers[i].number, reterr)
                   : PL_OK);
    }
    space->processes = (int)processes;
    space->slots = (int)slots;
    PL_TRY(!model.node || is(&model, PL_PYTHON_JSON_BOOL) ? PL_OK : wrong(&model, "true or false", reterr));
    space->model = !model.node || pl_python_json_bool(model.node);
    return PL_OK;
}

static enum pl_status read_all(const struct value *root, struct pl_sweep_space *space, struct pl_error *reterr)
{
    static const char *const names[] = {"space",      "search",       "trials", "seed",      "metric",
                                        "goal",       "scheduler",    "seeds",  "processes", "slots",
                                        "max_failed", "trial_time_s", "model",  NULL};
    PL_AUTO_SWEEP_DRAFT struct pl_sweep_draft draft = {.search = PL_SWEEP_GRID};

    PL_TRY(check_object(root, names, reterr));
    PL_TRY(read_search(root, &draft, reterr));
    PL_TRY(read_metric(root, space, reterr));
    PL_TRY(refuse_scheduler(root, reterr));
    PL_TRY(read_seeds(root, &draft, space, reterr));
    PL_TRY(read_numbers(root, &draft, space, reterr));
    return pl_sweep_space_expand(&draft, root->source, space, reterr);
}

enum pl_status pl_sweep_space_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    struct value root = {.source = source};

    if (bytes > PL_SWEEP_SPEC_BYTES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d bytes, found %zu", source,
                            PL_SWEEP_SPEC_BYTES_MAX, bytes);
    }
    PL_TRY(pl_python_json_parse_strict(text, bytes, source, &document, reterr));
    space = pl_memory_new(1, sizeof(*space), reterr);
    PL_TRY(space ? PL_OK : PL_MEMORY);
    root.node = document;
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
    status = pl_sweep_space_read(path.data, ret_space, reterr);
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
        pl_strv_done(&space->trials[i]);
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
