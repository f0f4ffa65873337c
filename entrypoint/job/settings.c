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
 * The settings, without PACELINE_, those of the runtime last; docs/settings.md describes the others. Settings without a
 * field are read elsewhere: python/ reads LIBRARY; Paceline itself sets those from RUN_DIR to RANK_WORKERS and those of
 * a trial. If a text has no list of words, the code that reads the text checks it.
 */
static const struct setting {
    const char *name;
    size_t at;
    enum { ELSEWHERE, TEXT, BOOL, NUMBER, KNOB } type; /* KNOB: `at` is the knob, which is only checked */
    const char *unit;                                  /* the unit of a number, or the words that a text may be */
    double least, most;
    const char *fallback;
    int64_t unit_ns;  /* unit of a time in nanoseconds; 0: the number is not a time and is not scaled */
    const char *word; /* a word that is allowed instead of a number, and means -1 */
} settings[] = {{"PYTHON", FIELD(python)},
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
                {"DIVIDE_PIPES", FIELD(divide_pipes), .fallback = "1"},
                {"REPORT", FIELD(report), .fallback = "0"},
                {"MAX_RESTARTS", FIELD(max_restarts), "a whole number", 0, 1000, "0"},
                {"SWEEP", FIELD(sweep)},
                {"SWEEP_TIME_S", FIELD(sweep_time_ns), "seconds", 0, 8640000, "0", PL_NS_PER_S},
                {"SWEEP_FRESH", FIELD(sweep_fresh), "a number", 0, 1000000, "0"},
                {"CHECKPOINT_DIR", FIELD(checkpoint_dir)},
                {.name = "LIBRARY"},
                {.name = "RUN_DIR"},
                {.name = "FIFOS"},
                {.name = "RESTART"},
                {.name = "BASH_ENV"},
                {.name = "HOST_NAME"},
                {.name = "ACTIVITY"},
                {.name = "KEPT"},
                {.name = "PYTHON_STACKS"},
                {.name = "PS_SOCKET"},
                {.name = "PS_WORKER"},
                {.name = "PS_PLACE"},
                {.name = "RANK_WORKERS"},
                {"TRIAL", FIELD(trial)},
                {"TRIAL_CPUS", FIELD(trial_cpus), "CPUs", 1, 65536},
                {"TRIAL_GPUS", FIELD(trial_gpus), "GPUs", 0, 65536},
#define KNOB_ROW(id, small_name, knob_type, unit_or_words, default_text, horovod, help)                                \
    {.name = #id, .at = PL_KNOB_##id, .type = KNOB, .fallback = (default_text)},
                PL_KNOB_LIST(KNOB_ROW)
#undef KNOB_ROW
};

enum { PREFIX_BYTES = sizeof("PACELINE_") - 1, OWN_SETTINGS = PL_ARRAY_ITEMS(settings) - PL_KNOB_COUNT };

/* Find the setting, without its prefix, that `name` was probably meant to be. */
static struct pl_text_near nearest(const char *name)
{
    struct pl_text_near near = {.name = name + PREFIX_BYTES};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        pl_text_near_compare(&near, settings[i].name, PL_TEXT_NEAR_EDITS);
    }
    return near;
}

/* Returns the setting of the variable `name`, in any case of its letters, or NULL. */
static const struct setting *find(const char *name)
{
    size_t at = 0;

    while (at < PL_ARRAY_ITEMS(settings) && strcasecmp(name + PREFIX_BYTES, settings[at].name) != 0) {
        at++;
    }
    return at < PL_ARRAY_ITEMS(settings) ? &settings[at] : NULL;
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
    struct pl_knobs knobs = {0};

    switch (setting->type) {
    case ELSEWHERE:
        return PL_OK;
    case KNOB:
        return pl_knob_set(&knobs, (enum pl_knob)setting->at, text, what, reterr);
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
    for (; *text != '\0'; text++) {
        *text = (char)(*text >= 'A' && *text <= 'Z' ? *text + ('a' - 'A') : *text);
    }
}

/* Read a hyperparameter. Messages use its name in small letters, in whatever case it was written. */
static enum pl_status read_hyperparameter(const char *name, const char *text, struct pl_job_settings *values,
                                          struct pl_error *reterr)
{
    const struct setting *setting = find(name);
    char what[80];

    snprintf(what, sizeof(what), "hyperparameter %s", name);
    lower(what);
    return setting ? read_value(setting, text, what, values, reterr) : PL_OK;
}

/* Check the settings for how uploads of the job are encrypted. */
static enum pl_status check_encryption(const struct pl_job_settings *values, struct pl_error *reterr)
{
    static const struct pl_s3_encryption_names names = {
        .algorithm = "PACELINE_SSE", .key_id = "PACELINE_SSE_KMS_KEY_ID", .bucket_key = "PACELINE_BUCKET_KEY_ENABLED"};
    const struct pl_s3_encryption encryption = {
        .algorithm = values->sse, .key_id = values->sse_kms_key_id, .bucket_key = values->bucket_key_enabled};

    return values->sse || values->sse_kms_key_id || values->bucket_key_enabled
               ? pl_s3_encryption_check(&encryption, &names, reterr)
               : PL_OK;
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

enum pl_status pl_settings_read(const struct pl_environment *environment, const struct pl_python_json *hyperparameters,
                                struct pl_job_settings *values, struct pl_error *reterr)
{
    enum pl_status first = PL_OK;
    struct pl_error error = PL_ERROR_NONE;
    PL_AUTO_ENVIRONMENT struct pl_environment *all = NULL; /* the environment with the hyperparameters, if any */
    struct pl_knobs knobs;

    *values = (struct pl_job_settings){.log_level = PL_LOG_INFO};
    for (size_t i = 0; i < OWN_SETTINGS; i++) {
        if (settings[i].fallback) {
            PL_TRY(read_value(&settings[i], settings[i].fallback, settings[i].name, values, reterr));
        }
    }
    PL_TRY(pl_python_json_first(hyperparameters) ? pl_environment_new_copy(environment, &all, reterr) : PL_OK);
    PL_PYTHON_JSON_EACH(node, hyperparameters) {
        const char *name = pl_python_json_name(node), *text = pl_python_json_text(node);

        /* the variable takes precedence, unless it is empty */
        if (*text != '\0' && !pl_environment_get_or(environment, name, NULL)) {
            keep_first(&first, read_hyperparameter(name, text, values, &error), &error, reterr);
            PL_TRY(pl_environment_set(all, name, text, reterr));
        }
    }
    for (size_t i = 0; i < OWN_SETTINGS; i++) {
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
    PL_TRY(pl_knobs_resolve(all ? all : environment, &knobs, reterr));
    values->names_log_level = knobs.values[PL_KNOB_LOG].source != PL_KNOB_FROM_DEFAULT &&
                              pl_log_level_read(pl_knob_text(&knobs, PL_KNOB_LOG), &values->log_level);
    return PL_OK;
}

/* Whether two texts are the same number for a knob. */
static bool is_same_number(enum pl_knob knob, const char *one, const char *other)
{
    struct pl_knobs knobs[2] = {0};

    return pl_knob_info(knob)->type < PL_KNOB_TYPE_TEXT && pl_knob_set(&knobs[0], knob, one, "", NULL) == PL_OK &&
           pl_knob_set(&knobs[1], knob, other, "", NULL) == PL_OK &&
           pl_knob_real(&knobs[0], knob) == pl_knob_real(&knobs[1], knob);
}

bool pl_settings_is_default(const char *name, const char *text)
{
    struct pl_job_settings values[2];
    const struct setting *setting = strncasecmp(name, "PACELINE_", PREFIX_BYTES) == 0 ? find(name) : NULL;

    if (!setting || !setting->fallback || strcmp(text, setting->fallback) == 0) {
        return setting && setting->fallback;
    }
    if (setting->type == KNOB) {
        return is_same_number((enum pl_knob)setting->at, text, setting->fallback);
    }
    memset(values, 0, sizeof(values));
    return read_value(setting, text, name, &values[0], NULL) == PL_OK &&
           read_value(setting, setting->fallback, name, &values[1], NULL) == PL_OK &&
           memcmp(&values[0], &values[1], sizeof(values[0])) == 0;
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

/* Check the name in NAME or NAME=value. */
static enum pl_status check(const char *string, bool is_variable, struct pl_strv *warnings, struct pl_error *reterr)
{
    PL_AUTO_FREE char *name = pl_memory_string_n(string, strcspn(string, "="), reterr);
    const struct setting *setting = name ? find(name) : NULL;
    struct pl_text_near near;
    char hint[100] = "";

    PL_TRY(name ? PL_OK : PL_MEMORY);
    near = nearest(name);
    if (is_variable && setting && strncmp(name, "PACELINE_", PREFIX_BYTES) != 0) {
        near = (struct pl_text_near){.meant = setting->name, .edits = 1};
    }
    if ((near.meant && near.edits == 0) || (!near.meant && is_variable) || pl_knob_is_gone(name, strlen(name))) {
        return PL_OK; /* rank 0 warns of a setting that no longer exists */
    }
    if (near.meant) {
        snprintf(hint, sizeof(hint), "; did you mean PACELINE_%s?", near.meant);
    }
    if (!is_variable) { /* hyperparameters are written in lower case */
        lower(name);
        lower(hint);
    }
    pl_strv_printf(warnings, "%s%s is not a setting of Paceline and is ignored%s", is_variable ? "" : "hyperparameter ",
                   name, hint);
    return PL_OK;
}

enum pl_status pl_settings_check(const struct pl_environment *environment, const struct pl_python_json *hyperparameters,
                                 struct pl_strv *warnings, struct pl_error *reterr)
{
    for (char *const *string = pl_environment_strings(environment); *string; string++) {
        if (strncasecmp(*string, "PACELINE_", PREFIX_BYTES) == 0) {
            PL_TRY(check(*string, true, warnings, reterr));
        }
    }
    PL_PYTHON_JSON_EACH(node, hyperparameters) {
        PL_TRY(check(pl_python_json_name(node), false, warnings, reterr));
    }
    return PL_OK;
}
