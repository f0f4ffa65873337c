/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the entry point's settings, their checks, and suggestions for mistyped names. */
#include "entrypoint/job/settings.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/s3_headers.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The offset of the field `name` of struct pl_job_settings, and its type. */
#define FIELD(name)                                                                                                    \
    .at = offsetof(struct pl_job_settings, name),                                                                      \
    .type = _Generic(((struct pl_job_settings *)NULL)->name, const char * : TEXT, bool : BOOL, int64_t : NUMBER)

/*
 * The settings that do not belong to the runtime, without PACELINE_; docs/contract.md and docs/supervision.md describe
 * them. Settings without a field are read elsewhere: LIBRARY is for examples/python; Paceline itself sets those from
 * RUN_DIR to RANK_WORKERS and those of a trial. For a text without a list of words, the code that reads it checks it.
 */
static const struct setting {
    const char *name;
    size_t at;
    enum { ELSEWHERE, TEXT, BOOL, NUMBER } type;
    const char *unit; /* the unit of a number, or the words that a text may be */
    double least, most;
    const char *fallback;
    int64_t unit_ns;  /* only for times; 0: the number is not scaled */
    const char *word; /* what may stand in place of a number, and is -1 */
} settings[] = {
    {"PYTHON", FIELD(python)},
    {"INSTALL", FIELD(install), .fallback = "1"},
    {"UV", FIELD(uv), .fallback = "1"},
    {"CHECK", FIELD(check), .fallback = "0"},
    {"SOURCE_MAX_BYTES", FIELD(source_max_bytes), "bytes", 0, 0x1p53, "17179869184"},
    {"MPI_VERSION", FIELD(mpi_version)},
    {"PEER_WAIT_S", FIELD(peer_wait_ns), "seconds", 1, 86400, "900", PL_NS_PER_S},
    {"SILENCE_S", FIELD(silence_ns), "seconds", 1, 3600, "30", PL_NS_PER_S},
    {"STOP_S", FIELD(stop_ns), "seconds", 3, 86400, "110", PL_NS_PER_S},
    {"SSH_PORT", FIELD(ssh_port), "a port", 1, 65535, "22"},
    {"SSH_DIR", FIELD(ssh_dir)},
    {"SSH_SECRET", FIELD(ssh_secret)},
    {"LINK", FIELD(link), .fallback = "1"},
    {"SDK_DRIVERS", FIELD(sdk_drivers)},
    {"TF_CHIEF", FIELD(tf_chief)},
    {"PS", FIELD(ps), "native tensorflow", .fallback = "tensorflow"},
    {"PS_WORKERS_PER_HOST", FIELD(ps_workers_per_host), "workers", 1, 1024, "1"},
    {"PS_MIN_WORKERS", FIELD(ps_min_workers), "all N", .fallback = "all"},
    {"INTERMEDIATE_S", FIELD(intermediate_ns), "seconds", 1, 3600, "60", PL_NS_PER_S},
    {"SSE", FIELD(sse)},
    {"SSE_KMS_KEY_ID", FIELD(sse_kms_key_id)},
    {"BUCKET_KEY_ENABLED", FIELD(bucket_key_enabled)},
    {"HANG_S", FIELD(hang_ns), "seconds", 0, 864000, "0", PL_NS_PER_S},
    {"INDEPENDENT_RANKS", FIELD(independent_ranks)},
    {"HANG_ACTION", FIELD(hang_action), "report end", .fallback = "report"},
    {"PROGRESS_S", FIELD(progress_ns), "seconds", 0, 86400, "10", PL_NS_PER_S, "keep"},
    {"RANK_TAGS", FIELD(rank_tags), "auto rank off", .fallback = "auto"},
    {"REPORT", FIELD(report), .fallback = "0"},
    {"SWEEP", FIELD(sweep)},
    {"SWEEP_TIME_S", FIELD(sweep_time_ns), "seconds", 0, 8640000, "0", PL_NS_PER_S},
    {"SWEEP_FRESH", FIELD(sweep_fresh), "a number", 0, 1000000, "0"},
    {"CHECKPOINT_DIR", FIELD(checkpoint_dir)},
    {.name = "LIBRARY"},
    {.name = "RUN_DIR"},
    {.name = "BASH_ENV"},
    {.name = "HOST_NAME"},
    {.name = "ACTIVITY"},
    {.name = "PYTHON_STACKS"},
    {.name = "PS_SOCKET"},
    {.name = "PS_WORKER"},
    {.name = "RANK_WORKERS"},
    {"TRIAL", FIELD(trial)},
    {"TRIAL_CPUS", FIELD(trial_cpus), "CPUs", 1, 65536},
    {"TRIAL_GPUS", FIELD(trial_gpus), "GPUs", 0, 65536},
};

enum { PREFIX_BYTES = sizeof("PACELINE_") - 1 };

static const char *name_at(size_t i)
{
    if (i < PL_ARRAY_ITEMS(settings)) {
        return settings[i].name;
    }
    i -= PL_ARRAY_ITEMS(settings);
    return i < PL_KNOB_COUNT ? pl_knob_info((enum pl_knob)i)->variable + PREFIX_BYTES : NULL;
}

/* Find the setting, without its prefix, that `name` was probably meant to be. */
static struct pl_text_near nearest(const char *name)
{
    struct pl_text_near near = {.name = name + PREFIX_BYTES};
    const char *candidate;

    for (size_t i = 0; (candidate = name_at(i)); i++) {
        pl_text_near_compare(&near, candidate, PL_TEXT_NEAR_EDITS);
    }
    return near;
}

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        if (strcmp(name + PREFIX_BYTES, settings[i].name) == 0) {
            return &settings[i];
        }
    }
    return NULL;
}

static enum pl_status read_number(const struct setting *setting, const char *text, const char *what, int64_t *ret_value,
                                  struct pl_error *reterr)
{
    bool whole = setting->unit_ns == 0;
    double value;

    if (setting->word && strcmp(text, setting->word) == 0) {
        *ret_value = -1;
        return PL_OK;
    }
    if ((whole && text[strspn(text, "0123456789")] != '\0') || !pl_text_number(text, &value) ||
        !(value >= setting->least && value <= setting->most)) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%.60s': expected %s from %.0f to %.0f%s%s", what, text,
                            setting->unit, setting->least, setting->most, setting->word ? ", or " : "",
                            setting->word ? setting->word : "");
    }
    *ret_value = whole ? (int64_t)value : (int64_t)(value * (double)setting->unit_ns + 0.5);
    return PL_OK;
}

/* Set the field of a setting. Messages call the setting `what`. */
static enum pl_status read_value(const struct setting *setting, const char *text, const char *what,
                                 struct pl_job_settings *values, struct pl_error *reterr)
{
    void *field = (char *)values + setting->at;

    switch (setting->type) {
    case ELSEWHERE:
        return PL_OK;
    case TEXT:
        *(const char **)field = text;
        return setting->unit ? pl_knob_read_word(text, setting->unit, what, reterr) : PL_OK;
    case BOOL:
        return pl_knob_read_bool(text, what, field, reterr);
    case NUMBER:
        return read_number(setting, text, what, field, reterr);
    }
    return PL_OK;
}

static void lower(char *text)
{
    for (; text && *text != '\0'; text++) {
        *text = (char)(*text >= 'A' && *text <= 'Z' ? *text + ('a' - 'A') : *text);
    }
}

/* Read a hyperparameter. Messages use its name in small letters, in whatever case it was written. */
static enum pl_status read_hyperparameter(const char *name, const char *text, struct pl_job_settings *values,
                                          struct pl_error *reterr)
{
    const struct setting *setting = find(name);
    struct pl_knobs knobs;
    char what[80];

    snprintf(what, sizeof(what), "hyperparameter %s", name);
    lower(what);
    if (setting) {
        return read_value(setting, text, what, values, reterr);
    }
    pl_knobs_default(&knobs);
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        if (strcmp(name, pl_knob_info((enum pl_knob)i)->variable) == 0) {
            return pl_knob_set(&knobs, (enum pl_knob)i, text, what, reterr);
        }
    }
    return PL_OK;
}

/* Check the settings for how uploads of the job are encrypted. */
static enum pl_status check_encryption(const struct pl_job_settings *values, struct pl_error *reterr)
{
    static const struct pl_s3_encryption_names names = {
        .algorithm = "PACELINE_SSE", .key_id = "PACELINE_SSE_KMS_KEY_ID", .bucket_key = "PACELINE_BUCKET_KEY_ENABLED"};
    const struct pl_s3_encryption encryption = {
        .algorithm = values->sse, .key_id = values->sse_kms_key_id, .bucket_key = values->bucket_key_enabled};

    return pl_s3_encryption_check(&encryption, &names, reterr);
}

/* Keep only the first of several errors. */
static void keep_first(enum pl_status *first, enum pl_status status, const struct pl_error *error,
                       struct pl_error *reterr)
{
    if (*first == PL_OK && status != PL_OK && reterr) {
        *reterr = *error;
    }
    *first = *first == PL_OK ? status : *first;
}

enum pl_status pl_settings_read(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                struct pl_job_settings *values, struct pl_error *reterr)
{
    enum pl_status first = PL_OK;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_ENVIRONMENT struct pl_environment *all = NULL;
    struct pl_knobs knobs;

    *values = (struct pl_job_settings){.log_level = PL_LOG_INFO};
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        if (settings[i].fallback) {
            PL_TRY(read_value(&settings[i], settings[i].fallback, settings[i].name, values, reterr));
        }
    }
    PL_TRY(pl_environment_new_copy(environment, &all, reterr));
    for (size_t i = 0; i < hyperparameters->count; i++) {
        const char *equals = strchr(hyperparameters->items[i], '=');
        PL_AUTO_FREE char *name =
            pl_memory_string_n(hyperparameters->items[i], (size_t)(equals - hyperparameters->items[i]), reterr);

        if (!name) {
            return PL_MEMORY;
        }
        /* the variable takes precedence, unless it is empty */
        if (equals[1] != '\0' && !pl_environment_get_or(environment, name, NULL)) {
            keep_first(&first, read_hyperparameter(name, equals + 1, values, &error), &error, reterr);
            PL_TRY(pl_environment_set(all, name, equals + 1, reterr));
        }
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        char name[64];
        const char *text;

        snprintf(name, sizeof(name), "PACELINE_%s", settings[i].name);
        text = pl_environment_get_or(environment, name, NULL);
        if (text) {
            keep_first(&first, read_value(&settings[i], text, name, values, &error), &error, reterr);
        }
    }
    PL_TRY(first);
    PL_TRY(check_encryption(values, reterr));
    PL_TRY(pl_knobs_resolve(all, &knobs, reterr));
    values->names_log_level = knobs.values[PL_KNOB_LOG].source != PL_KNOB_FROM_DEFAULT &&
                              pl_log_level_read(pl_knob_text(&knobs, PL_KNOB_LOG), &values->log_level);
    return PL_OK;
}

bool pl_settings_is_default(const char *name, const char *text)
{
    struct pl_job_settings values[2];
    struct pl_knobs knobs[2];
    char upper[80];
    const struct setting *setting;

    if (strncasecmp(name, "PACELINE_", PREFIX_BYTES) != 0 || strlen(name) >= sizeof(upper)) {
        return false;
    }
    for (size_t i = 0; i <= strlen(name); i++) {
        upper[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - ('a' - 'A') : name[i]);
    }
    setting = find(upper);
    if (setting && setting->type != TEXT) {
        memset(values, 0, sizeof(values));
        return setting->fallback && read_value(setting, text, name, &values[0], NULL) == PL_OK &&
               read_value(setting, setting->fallback, name, &values[1], NULL) == PL_OK &&
               memcmp(&values[0], &values[1], sizeof(values[0])) == 0;
    }
    if (setting) {
        return setting->fallback && strcmp(text, setting->fallback) == 0;
    }
    pl_knobs_default(&knobs[0]);
    knobs[1] = knobs[0];
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        const struct pl_knob_info *info = pl_knob_info((enum pl_knob)i);
        const struct pl_knob_value *given = &knobs[0].values[i], *fallback = &knobs[1].values[i];

        if (strcmp(upper, info->variable) == 0) {
            return pl_knob_set(&knobs[0], (enum pl_knob)i, text, name, NULL) == PL_OK &&
                   (info->type == PL_KNOB_TYPE_TEXT || info->type == PL_KNOB_TYPE_WORD
                        ? strcmp(given->text, fallback->text) == 0
                        : given->real == fallback->real);
        }
    }
    return false;
}

void pl_settings_replace_text(struct pl_job_settings *values, const char *before, const char *after)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        void *field = (char *)values + settings[i].at;

        if (settings[i].type == TEXT && *(const char **)field == before) {
            *(const char **)field = after;
        }
    }
}

/* Check PACELINE_NAME=value in `string`. */
static enum pl_status check(const char *string, bool is_variable, struct pl_strv *warnings, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text hint = PL_TEXT_NONE;
    struct pl_text_near near;

    pl_text_append_n(&name, string, strcspn(string, "="));
    PL_TRY(pl_text_check(&name, reterr));
    near = nearest(pl_text_string(&name));
    if ((near.meant && near.edits == 0) || (!near.meant && is_variable) || pl_knob_is_gone(string, name.length)) {
        return PL_OK; /* rank 0 warns of a setting that no longer exists */
    }
    if (near.meant) {
        pl_text_printf(&hint, "; did you mean PACELINE_%s?", near.meant);
        PL_TRY(pl_text_check(&hint, reterr));
    }
    if (!is_variable) { /* as hyperparameters are written */
        lower(name.data);
        lower(near.meant ? hint.data : NULL);
    }
    return pl_strv_printf(warnings, reterr, "%s%s is not a setting of Paceline and is ignored%s",
                          is_variable ? "" : "hyperparameter ", pl_text_string(&name), pl_text_string(&hint));
}

enum pl_status pl_settings_check(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                 struct pl_strv *warnings, struct pl_error *reterr)
{
    for (char *const *string = pl_environment_strings(environment); *string; string++) {
        if (strncmp(*string, "PACELINE_", PREFIX_BYTES) == 0) {
            PL_TRY(check(*string, true, warnings, reterr));
        }
    }
    for (size_t i = 0; i < hyperparameters->count; i++) {
        PL_TRY(check(hyperparameters->items[i], false, warnings, reterr));
    }
    return PL_OK;
}
