/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CreateTrainingJob's limits, and a walk over a document by it. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "programs/local/job/limits.h"

#include "base/json/text_place.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* A key longer than MOST_KEY_BYTES is in no row, also when it is cut. */
enum {
    MOST_KEY_BYTES = 128,
    PATH_BYTES = 256,
    SHOWN_BYTES = 400,
    NAME_SHOWN_BYTES = 64,
    VALUE_SHOWN_BYTES = 80,
    MOST_WHOLE = 1 << 30
};

#define S3_ADDRESS "(https|s3)://([^/]+)/?(.*)"
#define MODES "Pipe File FastFile"
#define ONLY_S3                                                                                                        \
    "only S3 data sources are imitated: write an S3DataSource here; --channel NAME=DIR takes a folder in its place"

/* Rows of one object stand together, and an object's row stands before them. */
const struct pl_local_limit pl_local_limits[] = {
    {"TrainingJobName", PL_LOCAL_TEXT, 1, 63, .pattern = "[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", .required = true},
    {"HyperParameters", PL_LOCAL_MAP, 0, PL_LOCAL_MOST_HYPERPARAMETERS},
    {"HyperParameters{name}", PL_LOCAL_TEXT, 0, 256, .pattern = ".*"},
    {"HyperParameters{}", PL_LOCAL_TEXT, 0, 2500, .pattern = ".*"},
    {"Environment", PL_LOCAL_MAP, 0, PL_LOCAL_MOST_VARIABLES},
    {"Environment{name}", PL_LOCAL_TEXT, 0, 512, .pattern = "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"Environment{}", PL_LOCAL_TEXT, 0, 512, .pattern = "[\\S\\s]*"},
    {"AlgorithmSpecification", PL_LOCAL_OBJECT},
    {"AlgorithmSpecification.TrainingImage", PL_LOCAL_TEXT, 0, 255, .pattern = ".*"},
    {"AlgorithmSpecification.TrainingInputMode", PL_LOCAL_TEXT, .words = MODES, .required = true},
    {"AlgorithmSpecification.MetricDefinitions", PL_LOCAL_LIST, 0, PL_LOCAL_MOST_METRICS},
    {"AlgorithmSpecification.MetricDefinitions[]", PL_LOCAL_OBJECT},
    {"AlgorithmSpecification.MetricDefinitions[].Name", PL_LOCAL_TEXT, 1, 255, .pattern = ".+", .required = true},
    {"AlgorithmSpecification.MetricDefinitions[].Regex", PL_LOCAL_TEXT, 1, 500, .pattern = ".+", .required = true},
    {"AlgorithmSpecification.ContainerEntrypoint", PL_LOCAL_LIST, 1, PL_LOCAL_MOST_WORDS},
    {"AlgorithmSpecification.ContainerEntrypoint[]", PL_LOCAL_TEXT, 0, 256, .pattern = ".*"},
    {"AlgorithmSpecification.ContainerArguments", PL_LOCAL_LIST, 1, PL_LOCAL_MOST_WORDS},
    {"AlgorithmSpecification.ContainerArguments[]", PL_LOCAL_TEXT, 0, 256, .pattern = ".*"},
    {"AlgorithmSpecification.AlgorithmName", PL_LOCAL_IGNORED},
    {"AlgorithmSpecification.EnableSageMakerMetricsTimeSeries", PL_LOCAL_IGNORED},
    {"AlgorithmSpecification.TrainingImageConfig", PL_LOCAL_IGNORED},
    {"InputDataConfig", PL_LOCAL_LIST, 1, PL_LOCAL_MOST_CHANNELS},
    {"InputDataConfig[]", PL_LOCAL_OBJECT},
    {"InputDataConfig[].ChannelName", PL_LOCAL_TEXT, 1, 64, .pattern = "[A-Za-z0-9\\.\\-_]+", .required = true},
    {"InputDataConfig[].DataSource", PL_LOCAL_OBJECT, .required = true},
    {"InputDataConfig[].DataSource.FileSystemDataSource", PL_LOCAL_REFUSED, .words = ONLY_S3},
    {"InputDataConfig[].DataSource.DatasetSource", PL_LOCAL_REFUSED, .words = ONLY_S3},
    {"InputDataConfig[].DataSource.S3DataSource", PL_LOCAL_OBJECT, .required = true},
    {"InputDataConfig[].DataSource.S3DataSource.S3DataType", PL_LOCAL_TEXT,
     .words = "ManifestFile S3Prefix AugmentedManifestFile Converse", .required = true},
    {"InputDataConfig[].DataSource.S3DataSource.S3Uri", PL_LOCAL_TEXT, 0, 1024, .pattern = S3_ADDRESS,
     .required = true},
    {"InputDataConfig[].DataSource.S3DataSource.S3DataDistributionType", PL_LOCAL_TEXT,
     .words = "FullyReplicated ShardedByS3Key"},
    {"InputDataConfig[].DataSource.S3DataSource.AttributeNames", PL_LOCAL_LIST, 0, PL_LOCAL_MOST_ATTRIBUTES},
    {"InputDataConfig[].DataSource.S3DataSource.AttributeNames[]", PL_LOCAL_TEXT, 1, 256, .pattern = ".+"},
    {"InputDataConfig[].DataSource.S3DataSource.InstanceGroupNames", PL_LOCAL_LIST, 0, PL_LOCAL_MOST_GROUPS},
    {"InputDataConfig[].DataSource.S3DataSource.InstanceGroupNames[]", PL_LOCAL_TEXT, 1, 64, .pattern = ".+"},
    {"InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig", PL_LOCAL_IGNORED},
    {"InputDataConfig[].DataSource.S3DataSource.HubAccessConfig", PL_LOCAL_IGNORED},
    {"InputDataConfig[].ContentType", PL_LOCAL_TEXT, 0, 256, .pattern = ".*"},
    {"InputDataConfig[].CompressionType", PL_LOCAL_TEXT, .words = "None Gzip"},
    {"InputDataConfig[].RecordWrapperType", PL_LOCAL_TEXT, .words = "None RecordIO"},
    {"InputDataConfig[].InputMode", PL_LOCAL_TEXT, .words = MODES},
    {"InputDataConfig[].ShuffleConfig", PL_LOCAL_OBJECT},
    {"InputDataConfig[].ShuffleConfig.Seed", PL_LOCAL_WHOLE, -PL_JSON_MAX_INTEGER, PL_JSON_MAX_INTEGER,
     .required = true},
    {"ResourceConfig", PL_LOCAL_OBJECT},
    {"ResourceConfig.InstanceType", PL_LOCAL_TEXT, 1, 64},
    {"ResourceConfig.InstanceCount", PL_LOCAL_WHOLE, 0, MOST_WHOLE},
    {"ResourceConfig.InstanceGroups", PL_LOCAL_LIST, 0, PL_LOCAL_MOST_GROUPS},
    {"ResourceConfig.InstanceGroups[]", PL_LOCAL_OBJECT},
    {"ResourceConfig.InstanceGroups[].InstanceType", PL_LOCAL_TEXT, 1, 64, .required = true},
    {"ResourceConfig.InstanceGroups[].InstanceCount", PL_LOCAL_WHOLE, 0, MOST_WHOLE, .required = true},
    {"ResourceConfig.InstanceGroups[].InstanceGroupName", PL_LOCAL_TEXT, 1, 64, .pattern = ".+", .required = true},
    {"ResourceConfig.VolumeSizeInGB", PL_LOCAL_IGNORED},
    {"ResourceConfig.VolumeKmsKeyId", PL_LOCAL_IGNORED},
    {"ResourceConfig.KeepAlivePeriodInSeconds", PL_LOCAL_IGNORED},
    {"ResourceConfig.TrainingPlanArn", PL_LOCAL_IGNORED},
    {"ResourceConfig.InstancePlacementConfig", PL_LOCAL_IGNORED},
    {"ResourceConfig.InstancePreferences", PL_LOCAL_IGNORED},
    {"ResourceConfig.SelectedInstanceType", PL_LOCAL_IGNORED},
    {"ResourceConfig.SelectedInstanceCount", PL_LOCAL_IGNORED},
    {"StoppingCondition", PL_LOCAL_OBJECT},
    {"StoppingCondition.MaxRuntimeInSeconds", PL_LOCAL_WHOLE, 1, MOST_WHOLE},
    {"StoppingCondition.MaxWaitTimeInSeconds", PL_LOCAL_WHOLE, 1, MOST_WHOLE},
    {"StoppingCondition.MaxPendingTimeInSeconds", PL_LOCAL_IGNORED},
    {"EnableManagedSpotTraining", PL_LOCAL_BOOL},
    {"CheckpointConfig", PL_LOCAL_OBJECT},
    {"CheckpointConfig.S3Uri", PL_LOCAL_TEXT, 0, 1024, .pattern = S3_ADDRESS, .required = true},
    {"CheckpointConfig.LocalPath", PL_LOCAL_TEXT, 0, 4096, .pattern = ".*"},
    {"RoleArn", PL_LOCAL_IGNORED},
    {"OutputDataConfig", PL_LOCAL_IGNORED},
    {"VpcConfig", PL_LOCAL_IGNORED},
    {"Tags", PL_LOCAL_IGNORED},
    {"EnableNetworkIsolation", PL_LOCAL_IGNORED},
    {"EnableInterContainerTrafficEncryption", PL_LOCAL_IGNORED},
    {"DebugHookConfig", PL_LOCAL_IGNORED},
    {"DebugRuleConfigurations", PL_LOCAL_IGNORED},
    {"TensorBoardOutputConfig", PL_LOCAL_IGNORED},
    {"ExperimentConfig", PL_LOCAL_IGNORED},
    {"ProfilerConfig", PL_LOCAL_IGNORED},
    {"ProfilerRuleConfigurations", PL_LOCAL_IGNORED},
    {"RetryStrategy", PL_LOCAL_IGNORED},
    {"RemoteDebugConfig", PL_LOCAL_IGNORED},
    {"InfraCheckConfig", PL_LOCAL_IGNORED},
    {"SessionChainingConfig", PL_LOCAL_IGNORED},
    {"ServerlessJobConfig", PL_LOCAL_IGNORED},
    {"MlflowConfig", PL_LOCAL_IGNORED},
    {"ModelPackageConfig", PL_LOCAL_IGNORED},
    {NULL},
};

static const struct pl_local_limit *find_row(const char *path)
{
    for (const struct pl_local_limit *row = pl_local_limits; row->path; row++) {
        if (strcmp(row->path, path) == 0) {
            return row;
        }
    }
    return NULL;
}

/* The last name of a row that is a key of the object `path`; NULL for other rows. */
static const char *key_of(const struct pl_local_limit *row, const char *path)
{
    size_t length = strlen(path);
    const char *name = row->path + length + (length > 0);

    if (strncmp(row->path, path, length) != 0 || (length > 0 && row->path[length] != '.')) {
        return NULL;
    }
    return *name && !strpbrk(name, ".[{") ? name : NULL;
}

/* ---- one value ---- */

static size_t characters_of(const char *text)
{
    size_t count = 0;

    for (; *text; text++) {
        count += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return count;
}

static bool matches(const char *pattern, const char *text)
{
    PCRE2_SIZE at;
    int code;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                         PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF, &code, &at, NULL);
    pcre2_match_data *data = compiled ? pcre2_match_data_create_from_pattern(compiled, NULL) : NULL;
    bool does;

    PL_BUG_IF(!compiled);
    does = data && pcre2_match(compiled, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, 0, data, NULL) > 0;
    pcre2_match_data_free(data);
    pcre2_code_free(compiled);
    return does;
}

static bool has_word(const char *words, const char *text)
{
    size_t length = strlen(text);

    for (const char *at = words; length > 0 && (at = strstr(at, text)); at += length) {
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Appends a list of words as "a, b or c". */
static void append_choice(struct pl_text *text, const char *words)
{
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        const char *next = at + length + (at[length] == ' ');

        pl_text_append(text, at == words ? "" : *next ? ", " : " or ");
        pl_text_append_n(text, at, length);
        at = next;
    }
}

/* Writes what is wrong with a text as "expected ..., found ..."; nothing if it is right. */
static void compare_text(const struct pl_local_limit *row, const char *value, struct pl_text *wrong)
{
    size_t characters = characters_of(value);
    char shown[VALUE_SHOWN_BYTES];

    snprintf(shown, sizeof(shown), "%s", value);
    pl_text_mask(shown, strlen(shown));
    if (row->words) {
        if (!has_word(row->words, value)) {
            pl_text_append(wrong, "expected ");
            append_choice(wrong, row->words);
            pl_text_printf(wrong, ", found '%s'", shown);
        }
    } else if (characters < (size_t)row->least || characters > (size_t)row->most) {
        pl_text_printf(wrong, "expected %" PRId64 " to %" PRId64 " characters, found %zu", row->least, row->most,
                       characters);
    } else if (row->pattern && !matches(row->pattern, value)) {
        if (strcmp(row->pattern, S3_ADDRESS) == 0) {
            pl_text_printf(wrong, "expected an address s3://BUCKET/PREFIX, found '%s'", shown);
        } else if (strcmp(row->pattern, ".*") == 0 || strcmp(row->pattern, ".+") == 0) {
            pl_text_append(wrong, "expected a text without line breaks, found one with a line break");
        } else {
            pl_text_printf(wrong, "expected a text that matches %s, found '%s'", row->pattern, shown);
        }
    }
}

static void compare_number(const struct pl_local_limit *row, int64_t value, struct pl_text *wrong)
{
    const char *what = row->kind == PL_LOCAL_LIST || row->kind == PL_LOCAL_MAP ? "entries" : "";

    if (value < row->least || value > row->most) {
        pl_text_printf(wrong, "expected %s%s%" PRId64 " to %" PRId64 ", found %" PRId64, what, *what ? ": " : "",
                       row->least, row->most, value);
    }
}

/* Returns the error, or PL_OK if nothing is wrong. */
static enum pl_status refuse_option(const char *where, const struct pl_text *wrong, struct pl_error *reterr)
{
    PL_TRY(pl_text_check(wrong, reterr));
    return wrong->length == 0 ? PL_OK : pl_error_set(reterr, PL_INVALID, "%s: %s", where, pl_text_string(wrong));
}

enum pl_status pl_local_limits_check_text(const char *path, const char *where, const char *value,
                                          struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text wrong = PL_TEXT_NONE;
    const struct pl_local_limit *row = find_row(path);

    PL_BUG_IF(!row);
    compare_text(row, value, &wrong);
    return refuse_option(where, &wrong, reterr);
}

enum pl_status pl_local_limits_check_number(const char *path, const char *where, int64_t value, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text wrong = PL_TEXT_NONE;
    const struct pl_local_limit *row = find_row(path);

    PL_BUG_IF(!row);
    compare_number(row, value, &wrong);
    return refuse_option(where, &wrong, reterr);
}

/* ---- a document ---- */

/* A walk over the tree and, for places in messages, over the text beside it. */
struct walk {
    const char *text, *source;
    pl_local_ignored_fn *ignored;
    void *context;
    const char *wanted, *what; /* what is wrong with the value that is shown so; NULL: all is checked */
    char path[PATH_BYTES];     /* in the table */
    char shown[SHOWN_BYTES];   /* the same with indices and keys */
};

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++) {
        at += *at == '\\' && at[1];
    }
    return at + (*at == '"');
}

/* Returns the end of the value at `at`. The text is valid JSON. */
static const char *skip_value(const char *at)
{
    unsigned depth = 0;

    do {
        at = skip_blanks(at);
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            at += strcspn(at, " \t\r\n,:]}");
        }
    } while (depth > 0 && *at);
    return at;
}

static enum pl_status refuse(const struct walk *walk, const char *at, const char *what, struct pl_error *reterr)
{
    unsigned line, column;

    pl_text_place_find(walk->text, at, &line, &column);
    return pl_error_set(reterr, PL_INVALID, "%s, line %u, column %u: %s%s%s", walk->source, line, column, walk->shown,
                        *walk->shown ? ": " : "", what);
}

static const char *kind_text(enum pl_local_limit_kind kind)
{
    static const char *const texts[] = {
        [PL_LOCAL_OBJECT] = "an object", [PL_LOCAL_LIST] = "a list",          [PL_LOCAL_MAP] = "an object of strings",
        [PL_LOCAL_TEXT] = "a string",    [PL_LOCAL_WHOLE] = "a whole number", [PL_LOCAL_BOOL] = "true or false"};

    return texts[kind];
}

static const char *found_text(enum pl_json_kind kind)
{
    static const char *const texts[] = {
        [PL_JSON_NOTHING] = "nothing", [PL_JSON_NULL] = "null",       [PL_JSON_BOOL] = "true or false",
        [PL_JSON_NUMBER] = "a number", [PL_JSON_STRING] = "a string", [PL_JSON_LIST] = "a list",
        [PL_JSON_OBJECT] = "an object"};

    return texts[kind];
}

static enum pl_status check_value(struct walk *walk, struct pl_json_value value, const char *at,
                                  struct pl_error *reterr);

/* Goes one step down, to what `path` and `shown` are appended for, and back. */
static enum pl_status check_below(struct walk *walk, struct pl_json_value value, const char *at, const char *path,
                                  const char *shown, struct pl_error *reterr)
{
    size_t path_length = strlen(walk->path), shown_length = strlen(walk->shown);
    enum pl_status status;

    snprintf(walk->path + path_length, sizeof(walk->path) - path_length, "%s", path);
    snprintf(walk->shown + shown_length, sizeof(walk->shown) - shown_length, "%s", shown);
    status = walk->wanted && strcmp(walk->shown, walk->wanted) == 0 ? refuse(walk, at, walk->what, reterr)
                                                                    : check_value(walk, value, at, reterr);
    walk->path[path_length] = walk->shown[shown_length] = '\0';
    return status;
}

static enum pl_status refuse_key(const struct walk *walk, const char *at, const char *name, struct pl_error *reterr)
{
    struct pl_text_near near = {.name = name};
    char hint[NAME_SHOWN_BYTES * 2], what[NAME_SHOWN_BYTES * 4];

    for (const struct pl_local_limit *row = pl_local_limits; row->path; row++) {
        const char *key = key_of(row, walk->path);

        if (key) {
            pl_text_near_compare(&near, key, PL_TEXT_NEAR_EDITS);
        }
    }
    snprintf(what, sizeof(what), "CreateTrainingJob has no key '%.*s' here%s", NAME_SHOWN_BYTES, name,
             pl_text_near_hint(&near, "", hint, sizeof(hint)));
    return refuse(walk, at, what, reterr);
}

static enum pl_status check_members(struct walk *walk, struct pl_json_value object, const char *at,
                                    struct pl_error *reterr)
{
    const char *open = at;

    at = skip_blanks(at + 1);
    for (struct pl_json_value member = pl_json_first(object); pl_json_exists(member); member = pl_json_next(member)) {
        const char *name = pl_json_name(member), *key = at;
        char path[PATH_BYTES + MOST_KEY_BYTES + 2], step[MOST_KEY_BYTES + 2];
        const char *value;

        snprintf(path, sizeof(path), "%s%s%.*s", walk->path, *walk->path ? "." : "", MOST_KEY_BYTES, name);
        if (!find_row(path)) {
            return refuse_key(walk, key, name, reterr);
        }
        value = skip_blanks(skip_blanks(skip_string(at)) + 1);
        snprintf(step, sizeof(step), "%s%.*s", *walk->path ? "." : "", MOST_KEY_BYTES, name);
        PL_TRY(check_below(walk, member, value, step, step, reterr));
        at = skip_blanks(skip_value(value));
        at = skip_blanks(at + (*at == ','));
    }
    for (const struct pl_local_limit *row = pl_local_limits; row->path; row++) {
        const char *key = key_of(row, walk->path);

        if (key && row->required && *walk->path && !pl_json_exists(pl_json_member(object, key))) {
            char what[NAME_SHOWN_BYTES * 2];

            snprintf(what, sizeof(what), "the key '%s' is missing", key);
            return refuse(walk, open, what, reterr);
        }
    }
    return PL_OK;
}

static enum pl_status check_map(struct walk *walk, struct pl_json_value map, const char *at, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text wrong = PL_TEXT_NONE;
    char name_path[PATH_BYTES];

    snprintf(name_path, sizeof(name_path), "%.*s{name}", PATH_BYTES - 8, walk->path);
    at = skip_blanks(at + 1);
    for (struct pl_json_value member = pl_json_first(map); pl_json_exists(member); member = pl_json_next(member)) {
        const char *name = pl_json_name(member), *value;
        char step[NAME_SHOWN_BYTES + 8];

        compare_text(find_row(name_path), name, &wrong);
        if (wrong.length > 0) {
            pl_text_append(&wrong, " as a name");
            return refuse(walk, at, pl_text_string(&wrong), reterr);
        }
        value = skip_blanks(skip_blanks(skip_string(at)) + 1);
        snprintf(step, sizeof(step), ".%.*s", NAME_SHOWN_BYTES, name);
        PL_TRY(check_below(walk, member, value, "{}", step, reterr));
        at = skip_blanks(skip_value(value));
        at = skip_blanks(at + (*at == ','));
    }
    return PL_OK;
}

static enum pl_status check_items(struct walk *walk, struct pl_json_value list, const char *at, struct pl_error *reterr)
{
    size_t index = 0;

    at = skip_blanks(at + 1);
    for (struct pl_json_value item = pl_json_first(list); pl_json_exists(item); item = pl_json_next(item)) {
        char step[24];

        snprintf(step, sizeof(step), "[%zu]", index++);
        PL_TRY(check_below(walk, item, at, "[]", step, reterr));
        at = skip_blanks(skip_value(at));
        at = skip_blanks(at + (*at == ','));
    }
    return PL_OK;
}

static int64_t count_of(struct pl_json_value value)
{
    int64_t count = 0;

    for (struct pl_json_value item = pl_json_first(value); pl_json_exists(item); item = pl_json_next(item)) {
        count++;
    }
    return count;
}

static enum pl_status check_value(struct walk *walk, struct pl_json_value value, const char *at,
                                  struct pl_error *reterr)
{
    static const enum pl_json_kind kinds[] = {
        [PL_LOCAL_OBJECT] = PL_JSON_OBJECT, [PL_LOCAL_LIST] = PL_JSON_LIST,    [PL_LOCAL_MAP] = PL_JSON_OBJECT,
        [PL_LOCAL_TEXT] = PL_JSON_STRING,   [PL_LOCAL_WHOLE] = PL_JSON_NUMBER, [PL_LOCAL_BOOL] = PL_JSON_BOOL};
    static const struct pl_local_limit root = {.path = "", .kind = PL_LOCAL_OBJECT};
    PL_AUTO_TEXT struct pl_text wrong = PL_TEXT_NONE;
    const struct pl_local_limit *row = *walk->path ? find_row(walk->path) : &root;
    const char *text = "";
    double number = 0;

    PL_BUG_IF(!row);
    if (row->kind == PL_LOCAL_IGNORED) {
        return walk->ignored ? walk->ignored(walk->context, walk->path, reterr) : PL_OK;
    }
    if (row->kind == PL_LOCAL_REFUSED) {
        return refuse(walk, at, row->words, reterr);
    }
    if (pl_json_kind(value) != kinds[row->kind]) {
        pl_text_printf(&wrong, "expected %s, found %s", kind_text(row->kind), found_text(pl_json_kind(value)));
    } else if (row->kind == PL_LOCAL_TEXT) {
        PL_TRY(pl_json_text(value, &text, reterr));
        compare_text(row, text, &wrong);
    } else if (row->kind == PL_LOCAL_WHOLE) {
        PL_TRY(pl_json_double(value, &number, reterr));
        if (number < -(double)PL_JSON_MAX_INTEGER || number > (double)PL_JSON_MAX_INTEGER ||
            number != (double)(int64_t)number) {
            pl_text_append(&wrong, "expected a whole number");
        } else {
            compare_number(row, (int64_t)number, &wrong);
        }
    } else if (row->kind == PL_LOCAL_LIST || row->kind == PL_LOCAL_MAP) {
        compare_number(row, count_of(value), &wrong);
    }
    PL_TRY(pl_text_check(&wrong, reterr));
    if (wrong.length > 0) {
        return refuse(walk, at, pl_text_string(&wrong), reterr);
    }
    switch (row->kind) {
    case PL_LOCAL_OBJECT:
        return check_members(walk, value, at, reterr);
    case PL_LOCAL_MAP:
        return check_map(walk, value, at, reterr);
    case PL_LOCAL_LIST:
        return check_items(walk, value, at, reterr);
    default:
        return PL_OK;
    }
}

enum pl_status pl_local_limits_check(const struct pl_json *document, const char *text, const char *source,
                                     pl_local_ignored_fn *ignored, void *context, struct pl_error *reterr)
{
    struct walk walk = {.text = text, .source = source, .ignored = ignored, .context = context};

    return check_value(&walk, pl_json_root(document), skip_blanks(text), reterr);
}

enum pl_status pl_local_limits_refuse(const struct pl_json *document, const char *text, const char *source,
                                      const char *path, const char *what, struct pl_error *reterr)
{
    struct walk walk = {.text = text, .source = source, .wanted = path, .what = what};
    enum pl_status status = document ? check_value(&walk, pl_json_root(document), skip_blanks(text), reterr) : PL_OK;

    return status != PL_OK ? status : pl_error_set(reterr, PL_INVALID, "%s: %s", path, what);
}
