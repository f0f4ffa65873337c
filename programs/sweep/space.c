/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a specification. Each error has the place and what was expected; the first one is kept, and what is read after
 * it does not count. */
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

/* A value of the specification, with facts for error messages. */
struct value {
    const char *source;
    struct pl_error *error;             /* the first one */
    const struct pl_python_json *node;  /* NULL if there is no such value, or it is a member and null */
    const struct pl_python_json *above; /* the value that has it, or should have it; NULL for the root */
    const char *name;                   /* name of the value, or of the list that has it; NULL for the root */
};

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

static size_t count_of(const struct value *value)
{
    return value->node ? pl_python_json_count(value->node) : 0;
}

static struct value child(const struct value *above, const struct pl_python_json *node)
{
    const char *name = node ? pl_python_json_name(node) : NULL;

    return (struct value){above->source, above->error, node, above->node, name ? name : above->name};
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
    return (struct value){object->source, object->error, node, object->node, name};
}

/* If not `right`, sets the error: the value's place, "expected `expected`, found ...". Returns `right`. */
static bool expect(const struct value *value, bool right, const char *expected)
{
    const struct pl_python_json *place = value->node ? value->node : value->above;
    PL_AUTO_TEXT struct pl_text found = PL_TEXT_NONE;

    if (right || value->error->status != PL_OK) {
        return right;
    }
    if (is_scalar(value)) {
        pl_sweep_space_print_value(value->node, &found);
    } else {
        pl_text_append(&found,
                       value->node ? pl_python_json_kind_text(pl_python_json_kind(value->node)) : "nothing or null");
    }
    pl_error_set(value->error, PL_INVALID, "%s, line %u, column %u: %.100s%sexpected %s, found %.*s%s", value->source,
                 pl_python_json_line(place), pl_python_json_column(place), value->name ? value->name : "",
                 value->name ? ": " : "", expected, SHOWN_BYTES, pl_text_string(&found),
                 found.length > SHOWN_BYTES ? "..." : "");
    return right;
}

/* Sets the error if memory is out. */
static void *new_items(const struct value *value, size_t count, size_t item_bytes)
{
    struct pl_error error = PL_ERROR_NONE;

    return pl_memory_new(count, item_bytes, value->error->status == PL_OK ? value->error : &error);
}

static char *copy_text(const struct value *value, const char *text)
{
    char *copy = new_items(value, strlen(text) + 1, 1);

    return copy ? strcpy(copy, text) : NULL;
}

/* Returns the text of a string, or "". */
static const char *read_text(const struct value *value)
{
    return expect(value, is(value, PL_PYTHON_JSON_STRING), "a string") ? pl_python_json_text(value->node) : "";
}

static double read_number(const struct value *value, bool whole, double least, double most)
{
    const double number = is_number(value) ? pl_python_json_double(value->node) : (double)NAN;
    char expected[80] = "a number";

    if (whole) {
        snprintf(expected, sizeof(expected), "a whole number from %.0f to %.0f", least, most);
    } else if (isfinite(least)) {
        snprintf(expected, sizeof(expected), "a number from %.15g to %.15g", least, most);
    }
    return expect(value, number >= least && number <= most && !(whole && number != trunc(number)), expected) ? number
                                                                                                             : least;
}

static double read_optional(const struct value *object, const char *name, bool whole, double least, double most,
                            double otherwise)
{
    const struct value value = member(object, name);

    return value.node ? read_number(&value, whole, least, most) : otherwise;
}

/* Returns the index of a word in `words`, which ends with NULL; `expected` lists them for the error. */
static int read_word(const struct value *value, const char *const *words, const char *expected)
{
    const char *text = is(value, PL_PYTHON_JSON_STRING) ? pl_python_json_text(value->node) : "";
    int at = 0;

    while (words[at] && strcmp(words[at], text) != 0) {
        at++;
    }
    return expect(value, words[at], expected) ? at : 0;
}

/* Checks that the value is an object, and that it has only members of `names`, which ends with NULL. */
static void check_object(const struct value *value, const char *const *names)
{
    expect(value, is(value, PL_PYTHON_JSON_OBJECT), "an object");
    for (struct value item = first(value); item.node && value->error->status == PL_OK; item = next(value, &item)) {
        PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;
        bool known = false;

        for (size_t i = 0; names[i]; i++) {
            known = known || strcmp(names[i], item.name) == 0;
            pl_text_printf(&list, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " or ", names[i]);
        }
        if (!known) {
            pl_error_set(value->error, PL_INVALID, "%s, line %u, column %u: %.100s is not known here: expected %s",
                         value->source, pl_python_json_line(item.node), pl_python_json_column(item.node), item.name,
                         pl_text_string(&list));
        }
    }
}

static bool check_list(const struct value *value, const char *expected)
{
    return expect(value, is(value, PL_PYTHON_JSON_ARRAY) && count_of(value) > 0, expected);
}

/* Checks the name of a hyperparameter for programs. */
static void check_name(const struct value *value, const char *name)
{
    expect(value,
           *name != '\0' && !strchr(name, '=') && strlen(name) <= NAME_BYTES_MAX &&
               strncmp(name, "sagemaker_", 10) != 0 && strncmp(name, "paceline_", 9) != 0,
           "the name of a hyperparameter of the program, not sagemaker_* or paceline_*, without '='");
}

static void check_scalar(const struct value *value)
{
    expect(value, is_scalar(value), "a number, a string, true or false");
}

static void read_choices(const struct value *value, struct pl_sweep_dimension *dimension)
{
    if (check_list(value, "a list with at least one value")) {
        dimension->choices = new_items(value, count_of(value), sizeof(struct pl_python_json *));
    }
    for (struct value item = first(value); item.node && dimension->choices; item = next(value, &item)) {
        check_scalar(&item);
        dimension->choices[dimension->count++] = item.node;
    }
}

/* Reads [low, high], or for float and log in a grid [low, high, points]. */
static void read_range(const struct value *value, bool grid, struct pl_sweep_dimension *dimension)
{
    const bool is_int = dimension->kind == PL_SWEEP_INT, has_points = grid && !is_int;
    const char *expected = has_points ? "[low, high, points] in a grid" : "[low, high]";
    const double most = is_int ? PL_SWEEP_WHOLE_MAX : (double)INFINITY;
    struct value item = first(value);
    double low, high;

    if (!check_list(value, expected) || !expect(value, count_of(value) == (has_points ? 3U : 2U), expected)) {
        return;
    }
    low = read_number(&item, is_int, -most, most);
    item = next(value, &item);
    high = read_number(&item, is_int, -most, most);
    item = next(value, &item);
    dimension->low = low;
    dimension->high = high;
    dimension->count = has_points ? (uint64_t)read_number(&item, true, 2, PL_SWEEP_TRIALS_MAX)
                       : is_int   ? (uint64_t)((int64_t)high - (int64_t)low) + 1
                                  : 0;
    expect(value, is_int ? low <= high : low < high, is_int ? "low not above high" : "low below high");
    expect(value, dimension->kind != PL_SWEEP_LOG || (low > 0 && isfinite(high / low)),
           "low above 0, and high / low finite");
    expect(value, isfinite(high - low), "a range of finite length");
}

static void read_dimension(const struct value *value, bool grid, struct pl_sweep_dimension *dimension)
{
    static const char *const kinds[] = {"choice", "int", "float", "log", NULL};
    struct value inner = *value;

    dimension->name = value->name;
    check_name(value, value->name);
    if (!is(value, PL_PYTHON_JSON_ARRAY)) {
        expect(value, is(value, PL_PYTHON_JSON_OBJECT) && count_of(value) == 1,
               "a list of values, or {\"choice\": [...]}, {\"int\": [...]}, {\"float\": [...]} or {\"log\": [...]}");
        check_object(value, kinds);
        inner = first(value);
        while (value->error->status == PL_OK && strcmp(kinds[dimension->kind], inner.name) != 0) {
            dimension->kind++;
        }
    }
    if (dimension->kind == PL_SWEEP_CHOICE) {
        read_choices(&inner, dimension);
    } else {
        read_range(&inner, grid, dimension);
    }
}

static void read_dimensions(const struct value *space, struct pl_sweep_draft *draft)
{
    if (expect(space, is(space, PL_PYTHON_JSON_OBJECT) && count_of(space) > 0,
               "an object with at least one hyperparameter")) {
        draft->dimensions = new_items(space, count_of(space), sizeof(*draft->dimensions));
    }
    for (struct value value = first(space); value.node && draft->dimensions; value = next(space, &value)) {
        read_dimension(&value, draft->search == PL_SWEEP_GRID, &draft->dimensions[draft->dimensions_count++]);
    }
}

/* Reads the points of a list: objects of hyperparameters. */
static void read_list(const struct value *space, struct pl_sweep_draft *draft)
{
    check_list(space, "a list with at least one object, because \"search\" is \"list\"");
    for (struct value point = first(space); point.node; point = next(space, &point)) {
        expect(&point, is(&point, PL_PYTHON_JSON_OBJECT), "an object with the hyperparameters of a trial");
        for (struct value value = first(&point); value.node; value = next(&point, &value)) {
            check_name(&value, value.name);
            check_scalar(&value);
        }
    }
    draft->list = space->node;
}

static void read_search(const struct value *root, struct pl_sweep_draft *draft)
{
    static const char *const words[] = {"grid", "random", "list", NULL};
    const struct value search = member(root, "search"), trials = member(root, "trials"), space = member(root, "space");

    if (search.node) {
        draft->search = (enum pl_sweep_search)read_word(&search, words, "\"grid\", \"random\" or \"list\"");
    }
    draft->seed = read_optional(root, "seed", true, 0, PL_SWEEP_WHOLE_MAX, 0);
    if (draft->search == PL_SWEEP_RANDOM) {
        draft->trials = read_number(&trials, true, 1, PL_SWEEP_WHOLE_MAX);
    } else {
        expect(&trials, !trials.node, "no number of trials: it follows from the space unless \"search\" is \"random\"");
    }
    if (draft->search == PL_SWEEP_LIST) {
        read_list(&space, draft);
    } else {
        read_dimensions(&space, draft);
    }
}

/* Whether a point has a hyperparameter with the name of the seeds. */
static bool is_in_space(const struct value *root, const char *name)
{
    const struct value space = member(root, "space");
    bool found = pl_python_json_member(space.node, name);

    for (struct value point = first(&space); point.node; point = next(&space, &point)) {
        found = found || (is(&space, PL_PYTHON_JSON_ARRAY) && pl_python_json_member(point.node, name));
    }
    return found;
}

static void check_seeds(const struct value *seeds)
{
    check_list(seeds, "a list with at least one seed");
    if (count_of(seeds) > PL_SWEEP_TRIALS_MAX && seeds->error->status == PL_OK) {
        pl_sweep_space_too_many(seeds->source, seeds->error);
        return; /* the next loops take time */
    }
    for (struct value item = first(seeds); item.node; item = next(seeds, &item)) {
        const double seed = read_number(&item, true, 0, PL_SWEEP_WHOLE_MAX);

        for (struct value other = first(seeds); other.node != item.node; other = next(seeds, &other)) {
            expect(&item, !is_number(&other) || pl_python_json_double(other.node) != seed, "each seed once");
        }
    }
}

static void read_seeds(const struct value *root, struct pl_sweep_draft *draft, struct pl_sweep_space *space)
{
    static const char *const names[] = {"name", "values", NULL};
    const struct value seeds = member(root, "seeds");
    const bool is_object = is(&seeds, PL_PYTHON_JSON_OBJECT);
    const struct value values = is_object ? member(&seeds, "values") : seeds, name = member(&seeds, "name");
    const char *text = name.node ? read_text(&name) : "seed";

    if (!seeds.node) {
        return;
    }
    if (is_object) {
        check_object(&seeds, names);
        check_name(name.node ? &name : &seeds, text);
    }
    check_seeds(&values);
    if (is_in_space(root, text) && root->error->status == PL_OK) {
        pl_error_set(root->error, PL_INVALID,
                     "%s, line %u, column %u: %s: expected the name of a hyperparameter that the space does not have, "
                     "found \"%.60s\"",
                     root->source, pl_python_json_line(seeds.node), pl_python_json_column(seeds.node),
                     name.node ? name.name : seeds.name, text);
    }
    draft->seeds = values.node;
    draft->seeds_count = count_of(&values);
    space->seed_name = copy_text(&seeds, text);
}

/* Checks a metric's name: it becomes a member of the lines of trials.jsonl, and a part of the line "best_NAME=...". */
static void check_metric_name(const struct value *value, const char *name)
{
    static const char *const taken[] = {"trial", "point",   "state", "hyperparameters", "code",
                                        "model", "seconds", "host",  "reason"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(taken); i++) {
        expect(value, strcmp(name, taken[i]) != 0, "a different name: this one is a standard member of trials.jsonl");
    }
    for (const char *at = name; *at != '\0'; at++) {
        expect(value, pl_text_control_bytes(at, name + strlen(name)) == 0, "a name without control characters");
    }
    expect(value, *name != '\0' && strlen(name) <= NAME_BYTES_MAX, "a name of 1 to 100 bytes");
}

/* Appends the expression that finds the last number after NAME=, NAME: or NAME with blanks; NAME may be in double
 * quotes. A longer word that ends with NAME does not match. */
static void append_regex(const char *name, struct pl_text *regex)
{
    pl_text_append(regex, "^.*(?<![A-Za-z0-9_])"); /* .* takes as much as it can: so the last number is found */
    for (const char *at = name; *at != '\0'; at++) {
        pl_text_printf(regex, "%s%c", strchr(".[]{}()*+?|^$\\", *at) ? "\\" : "", *at);
    }
    pl_text_append(regex, "\"?[=: \\t]+([-+]?(?:(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][-+]?[0-9]+)?|"
                          "(?i:nan|inf(?:inity)?)\\b))");
}

static void check_regex(const struct value *value, const char *text)
{
    struct pl_pattern *pattern = NULL;
    struct pl_error error = PL_ERROR_NONE;

    if (expect(value, strlen(text) <= REGEX_BYTES_MAX, "a regular expression of at most 1024 bytes")) {
        expect(value, pl_pattern_new(text, &pattern, &error) == PL_OK, error.cause);
        pl_pattern_free(pattern);
    }
}

static void read_metric(const struct value *root, struct pl_sweep_space *space)
{
    static const char *const names[] = {"name", "regex", NULL}, *const goals[] = {"maximize", "minimize", NULL};
    const struct value metric = member(root, "metric"), goal = member(root, "goal");
    const bool is_object = is(&metric, PL_PYTHON_JSON_OBJECT);
    const struct value name = is_object ? member(&metric, "name") : metric, regex = member(&metric, "regex");
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;

    expect(&metric, is_object || is(&metric, PL_PYTHON_JSON_STRING), "a name, or {\"name\": ..., \"regex\": ...}");
    if (is_object) {
        check_object(&metric, names);
        pl_text_append(&words, read_text(&regex));
        check_regex(&regex, pl_text_string(&words));
    } else {
        append_regex(read_text(&name), &words);
    }
    check_metric_name(&name, read_text(&name));
    space->metric_name = copy_text(&name, read_text(&name));
    space->metric_regex = copy_text(&name, pl_text_string(&words));
    space->maximize = read_word(&goal, goals, "\"maximize\" or \"minimize\"") == 0;
}

static void read_all(const struct value *root, struct pl_sweep_draft *draft, struct pl_sweep_space *space)
{
    static const char *const names[] = {"space",      "search",       "trials", "seed",      "metric",
                                        "goal",       "scheduler",    "seeds",  "processes", "slots",
                                        "max_failed", "trial_time_s", "model",  NULL};
    const struct value scheduler = member(root, "scheduler"), model = member(root, "model");

    check_object(root, names);
    read_search(root, draft);
    read_metric(root, space);
    /* Schedulers were a part of sweeps. A search that looks at values starts its trials itself. */
    expect(
        &scheduler,
        !scheduler.node ||
            (is(&scheduler, PL_PYTHON_JSON_STRING) && strcmp(pl_python_json_text(scheduler.node), "none") == 0),
        "no scheduler: sweeps run each trial to its end; for a search that stops trials let Optuna, Ray Tune or Syne "
        "Tune start them by `paceline trial`");
    read_seeds(root, draft, space);
    space->processes = (int)read_optional(root, "processes", true, 1, HOST_PROCESSES_MAX, 1);
    space->slots = (int)read_optional(root, "slots", true, 1, HOST_PROCESSES_MAX, 0);
    space->max_failed = read_optional(root, "max_failed", false, 0, 1, 0.5);
    space->trial_time_s = read_optional(root, "trial_time_s", false, 0.001, TIME_S_MAX, 0);
    expect(&model, !model.node || is(&model, PL_PYTHON_JSON_BOOL), "true or false");
    space->model = !model.node || pl_python_json_bool(model.node);
}

enum pl_status pl_sweep_space_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_sweep_space **ret_space, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_SWEEP_DRAFT struct pl_sweep_draft draft = {.seeds_count = 1};
    struct pl_error error = PL_ERROR_NONE;
    struct value root = {.source = source, .error = &error};

    if (bytes > PL_SWEEP_SPEC_BYTES_MAX) {
        return pl_error_set(reterr, PL_LIMIT, "%s: expected at most %d bytes, found %zu", source,
                            PL_SWEEP_SPEC_BYTES_MAX, bytes);
    }
    PL_TRY(pl_python_json_parse_strict(text, bytes, source, &document, reterr));
    PL_TRY(pl_memory_alloc(&space, 1, sizeof(*space), reterr));
    root.node = document;
    read_all(&root, &draft, space);
    if (error.status != PL_OK) {
        *reterr = error;
        return error.status;
    }
    PL_TRY(pl_sweep_space_expand(&draft, source, space, reterr));
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
    PL_TRY(pl_text_set(&path, reterr, "%s%s%s", setting[0] == '/' ? "" : job->paths.code, setting[0] == '/' ? "" : "/",
                       setting));
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
