/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/hosts.c, programs/sweep/space.c, programs/sweep/space_expand.c. */
/* The cases of tests/data/sweep-spaces.txt have a specification: `spec`, or `spec_lines` with \n for the end of a line;
 * `line` is one of a program's output. */
#include "programs/sweep/sweep.h"

#include "base/text.h"
#include "entrypoint/output/pattern.h"
#include "tests/support/cases.h"
#include "tests/unit/entrypoint/tree.h"

#include <math.h>

/* The beginning of a specification with all required members except the space. */
#define HEAD "{\"metric\": \"acc\", \"goal\": \"maximize\", "

static char spec_of_case[2048], output[256];
static struct pl_sweep_space *space_of_case;

static void set_spec(char *rest)
{
    snprintf(spec_of_case, sizeof(spec_of_case), "%s", rest);
}

static void set_spec_lines(char *rest)
{
    set_spec(cases_unescape(rest));
}

static void set_line(char *rest)
{
    snprintf(output, sizeof(output), "%s", rest);
}

static void forget(void)
{
    pl_sweep_space_free(space_of_case);
    space_of_case = NULL;
}

static enum pl_status parse(struct pl_error *reterr)
{
    forget();
    return pl_sweep_space_parse(spec_of_case, strlen(spec_of_case), "S", &space_of_case, reterr);
}

/* A line a trial: POINT HYPERPARAMETERS. */
static void print_trials(struct pl_text *text)
{
    for (size_t i = 0; i < space_of_case->trials_count; i++) {
        pl_text_printf(text, "%zu ", i % space_of_case->points_count);
        pl_sweep_space_print(space_of_case, i, text);
        pl_text_append_char(text, '\n');
    }
}

/* Returns the number that the expression of the metric finds in the line; NULL if there is none. */
static const char *number(struct pl_text *text)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_pattern *pattern = NULL;
    double found = 0;

    ck_ok(pl_pattern_new, space_of_case->metric_regex, &pattern);
    if (pl_pattern_number(pattern, output, strlen(output), &found, &error) == PL_OK) {
        pl_text_printf(text, "%.15g", found);
    }
    pl_pattern_free(pattern);
    return text->length > 0 ? pl_text_string(text) : NULL;
}

static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    const struct pl_sweep_space *space = space_of_case;

    if (strcmp(name, "number") == 0) {
        return number(text);
    }
    if (strcmp(name, "metric") == 0 || strcmp(name, "regex") == 0) {
        return name[0] == 'm' ? space->metric_name : space->metric_regex;
    }
    if (strcmp(name, "trials") == 0) {
        print_trials(text);
    } else if (strcmp(name, "trials_count") == 0) {
        pl_text_printf(text, "%zu", space->trials_count);
    } else {
        *ret_known = strcmp(name, "said") == 0;
        pl_text_printf(text, "maximize %d, %d processes, %d slots, %g failed, %g s, model %d, seed %s", space->maximize,
                       (int)space->processes, (int)space->slots, space->max_failed, space->trial_time_s, space->model,
                       space->seed_name ? space->seed_name : "none");
    }
    return pl_text_string(text);
}

static struct cases cases = {.verbs = (const struct cases_verb[]){{"spec", set_spec},
                                                                  {"spec_lines", set_spec_lines},
                                                                  {"line", set_line},
                                                                  {NULL, NULL}},
                             .actions = (const struct cases_action[]){{"parse", parse}, {NULL, NULL}},
                             .find = find,
                             .end = forget};

TEST(drawn_values_lie_in_their_ranges_and_read_back_as_the_same_number)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    static const char text_of_space[] =
        HEAD "\"search\": \"random\", \"trials\": 2000, \"space\": {\"l\": {\"log\": [1e-5, 3e-5]}, \"i\": {\"int\": "
             "[-1, 1]}, \"f\": {\"float\": [0.1, 0.3]}, \"w\": {\"int\": [-9007199254740992, 9007199254740992]}}}";
    unsigned seen[3] = {0, 0, 0};
    unsigned low_half = 0;

    ck_ok(pl_sweep_space_parse, text_of_space, strlen(text_of_space), "S", &space);
    for (size_t i = 0; i < space->trials_count; i++) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *values = NULL;
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        double l, f;
        int64_t whole;

        pl_sweep_space_print(space, i, &text);
        ck_ok(pl_python_json_parse_strict, text.data, text.length, "trial", &values);
        l = pl_python_json_double(pl_python_json_member(values, "l"));
        f = pl_python_json_double(pl_python_json_member(values, "f"));
        ck_ok(pl_python_json_int64, pl_python_json_member(values, "i"), &whole);
        ck_assert(l >= 1e-5 && l <= 3e-5 && f >= 0.1 && f <= 0.3 && whole >= -1 && whole <= 1);
        seen[whole + 1]++;
        low_half += l < sqrt(1e-5 * 3e-5);
    }
    ck_assert(seen[0] > 500 && seen[1] > 500 && seen[2] > 500);
    ck_assert(low_half > 850 && low_half < 1150);
}

TEST(hyperparameters_of_too_many_bytes_are_refused)
{
    PL_AUTO_FREE char *large = NULL;
    struct pl_sweep_space *space = NULL;
    struct pl_error error = PL_ERROR_NONE;

    large = pl_memory_new(200000, 1, &error); /* a text of 100,000 bytes in each of 1,000 trials */
    strcpy(large, HEAD "\"space\": {\"b\": {\"int\": [1, 1000]}, \"a\": [\"");
    memset(large + strlen(large), 'x', 100000);
    strcat(large, "\"]}}");
    ck_fails_as(PL_LIMIT, "S: expected at most 67108864 bytes of hyperparameters in all trials, found more",
                pl_sweep_space_parse, large, strlen(large), "S", &space);
}

/* In the form of the SDK: each hyperparameter is a string, which may contain JSON. */
TEST(a_job_has_its_specification_inline_as_text_or_object_or_in_a_file)
{
    static const char spec[] = "{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"z\": [1, 2], \"a\": [3]}}";
    static const char quoted[] = "\"{\\\"metric\\\": \\\"acc\\\", \\\"goal\\\": \\\"maximize\\\", \\\"space\\\": "
                                 "{\\\"z\\\": [1, 2], \\\"a\\\": [3]}}\"";
    const char *const values[] = {spec, quoted, "\"sweep.json\"", "\"\\\"sweep.json\\\"\""};
    struct pl_sweep_space *space = NULL;
    AUTO_TREE struct tree tree = tree_new();

    tree_write(&tree, "code/sweep.json", spec);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(values); i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_text_printf(&text, "{\"paceline_sweep\": %s}", values[i]);
        tree_hyperparameters(&tree, pl_text_string(&text));
        ck_ok(tree_job, &tree);
        ck_ok(pl_sweep_space_of_job, tree.job, &space);
        ck_assert_uint_eq(space->trials_count, 2);
        ck_assert_str_eq(space->trials[1].items[0], "z=2"); /* z stays before a */
        ck_assert_str_eq(space->trials[1].items[1], "a=3");
        pl_sweep_space_free(space);
    }
    tree_hyperparameters(&tree, "{\"paceline_sweep\": \"none.json\"}");
    ck_ok(tree_job, &tree);
    ck_assert_int_eq(pl_sweep_space_of_job(tree.job, &space, &tree.error), PL_NOT_FOUND);
    ck_assert_str_eq(tree.error.context, "paceline_sweep: expected a JSON object or a file in the code directory");
    tree_env(&tree, "PACELINE_SWEEP", " {\"metric\": 1}"); /* the variable takes precedence */
    ck_ok(tree_job, &tree);
    ck_fails(PL_INVALID, "paceline_sweep, line 1, column 2: space: expected", pl_sweep_space_of_job, tree.job, &space);
    tree_env(&tree, "PACELINE_SWEEP", "");
    tree_hyperparameters(&tree, "{\"paceline_sweep\": null}");
    ck_ok(tree_job, &tree);
    ck_fails(PL_NOT_FOUND, "the job has no sweep", pl_sweep_space_of_job, tree.job, &space);
}

TEST(devices_are_cut_into_slots)
{
    static const struct {
        int cpus, gpus, processes, wanted;
        struct pl_slots slots;
    } cuts[] = {{9, 0, 4, 0, {2, 4, 0}},
                {32, 8, 2, 0, {4, 8, 2}},
                {32, 8, 1, 2, {2, 16, 4}}, /* fewer slots, with more devices each */
                {4, 2, 1, 6, {6, 1, 1}},   /* more slots than GPUs share them */
                {64, 2, 3, 1, {1, 64, 2}}};
    struct pl_slots slots;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(cuts); i++) {
        ck_ok(pl_slots_cut, "algo-1", cuts[i].cpus, cuts[i].gpus, cuts[i].processes, cuts[i].wanted, &slots);
        ck_assert_mem_eq(&slots, &cuts[i].slots, sizeof(slots));
    }
    ck_fails_as(PL_INVALID,
                "the sweep has 5 processes per trial, and host algo-7 has 4 CPUs: expected at most 4 "
                "processes, or the number of slots in \"slots\"",
                pl_slots_cut, "algo-7", 4, 0, 5, 0, &slots);
    ck_fails(PL_INVALID, "has 2 GPUs", pl_slots_cut, "algo-7", 64, 2, 3, 0, &slots);
}

CASES_MAIN("programs/sweep/space")
