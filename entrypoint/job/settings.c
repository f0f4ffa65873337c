/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the entry point's settings, their checks, and suggestions for mistyped names. */
#include "entrypoint/job/settings.h"

#include "base/environment.h"
#include "base/knob.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/spelling.h"
#include "s3io/s3/s3_encryption.h"

#include <stdio.h>
#include <string.h>

/*
 * The settings that are not the runtime's, without PACELINE_; docs/contract.md and docs/supervision.md say what they
 * do. LIBRARY is for examples/python, and those from RUN_DIR on are set by Paceline itself. A number has a default; a
 * text is checked by the code that reads it.
 */
static const struct setting {
    const char *name;
    enum { TEXT, WORD, BOOL, WHOLE, REAL } type;
    const char *unit; /* the words that it may be, of a WORD */
    double least, most, fallback;
} settings[] = {
    {.name = "PYTHON"},
    {.name = "INSTALL", .type = BOOL},
    {.name = "CHECK"},
    {"SOURCE_MAX_BYTES", WHOLE, "bytes", 0, 0x1p53, 0x1p34},
    {.name = "MPI_VERSION"},
    {"PEER_WAIT_S", REAL, "seconds", 1, 86400, 900},
    {"SILENCE_S", REAL, "seconds", 1, 3600, 30},
    {"STOP_S", REAL, "seconds", 3, 86400, 110},
    {"SSH_PORT", WHOLE, "a port", 1, 65535, 22},
    {.name = "SSH_DIR"},
    {.name = "SSH_SECRET"},
    {.name = "LINK", .type = BOOL},
    {.name = "SDK_DRIVERS", .type = BOOL},
    {.name = "TF_CHIEF", .type = BOOL},
    {.name = "PS", .type = WORD, .unit = "native tensorflow"},
    {"PS_WORKERS_PER_HOST", WHOLE, "workers", 1, 1024, 1},
    {.name = "PS_MIN_WORKERS", .type = WORD, .unit = "all N"},
    {"INTERMEDIATE_S", REAL, "seconds", 1, 3600, 60},
    {.name = "SSE"},
    {.name = "SSE_KMS_KEY_ID"},
    {.name = "BUCKET_KEY_ENABLED", .type = BOOL},
    {"HANG_S", REAL, "seconds", 0, 864000, 0},
    {.name = "INDEPENDENT_RANKS", .type = BOOL},
    {.name = "HANG_ACTION", .type = WORD, .unit = "report end"},
    {.name = "SWEEP"},
    {"SWEEP_TIME_S", REAL, "seconds", 0, 8640000, 0},
    {.name = "CHECKPOINT_DIR"},
    {.name = "LIBRARY"},
    {.name = "RUN_DIR"},
    {.name = "BASH_ENV"},
    {.name = "HOST_NAME"},
    {.name = "ACTIVITY"},
    {.name = "PYTHON_STACKS"},
    {.name = "PS_SOCKET"},
    {.name = "PS_WORKER"},
    {.name = "TRIAL"},
    {"TRIAL_CPUS", WHOLE, "CPUs", 1, 65536, 0},
    {"TRIAL_GPUS", WHOLE, "GPUs", 0, 65536, 0},
};

enum { NEAR_EDITS = 2, PREFIX_BYTES = sizeof("PACELINE_") - 1 };

static const char *name_at(size_t i)
{
    if (i < PL_ARRAY_ITEMS(settings)) {
        return settings[i].name;
    }
    i -= PL_ARRAY_ITEMS(settings);
    return i < PL_KNOB_COUNT ? pl_knob_info((enum pl_knob)i)->variable + PREFIX_BYTES : NULL;
}

/* The setting that `name` was probably meant to be, without its prefix; NULL when none is near. */
static const char *nearest(const char *name, unsigned *ret_edits)
{
    const char *found = NULL;
    const char *candidate;

    *ret_edits = NEAR_EDITS + 1;
    for (size_t i = 0; (candidate = name_at(i)) != NULL; i++) {
        unsigned count = pl_spelling_distance(name + PREFIX_BYTES, candidate, NEAR_EDITS);

        if (count < *ret_edits) {
            *ret_edits = count;
            found = candidate;
        }
    }
    return found;
}

bool pl_settings_have(const char *name)
{
    unsigned count = 1;

    return strncmp(name, "PACELINE_", PREFIX_BYTES) == 0 &&
           (pl_knob_is_gone(name, strlen(name)) || (nearest(name, &count) != NULL && count == 0));
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

/* `what` is how messages call the setting. */
static enum pl_status read_number(const struct setting *setting, const char *text, const char *what, double *ret_value,
                                  struct pl_error *reterr)
{
    bool whole = setting->type == WHOLE;

    if ((whole && text[strspn(text, "0123456789")] != '\0') || !pl_text_number(text, ret_value) ||
        !(*ret_value >= setting->least && *ret_value <= setting->most)) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%.60s': expected %s from %.0f to %.0f", what, text,
                            setting->unit, setting->least, setting->most);
    }
    return PL_OK;
}

const char *pl_settings_text(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                             const char *name, const char *fallback)
{
    const char *value = pl_environment_get_or(environment, name, NULL);
    size_t length = strlen(name);

    PL_BUG_IF(!pl_settings_have(name));
    for (size_t i = 0; value == NULL && i < hyperparameters->count; i++) {
        const char *item = hyperparameters->items[i];

        if (strncmp(item, name, length) == 0 && item[length] == '=' && item[length + 1] != '\0') {
            value = item + length + 1;
        }
    }
    return value != NULL ? value : fallback;
}

double pl_settings_number(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                          const char *name)
{
    const struct setting *setting = find(name);
    const char *text = pl_settings_text(environment, hyperparameters, name, NULL);
    double value;

    PL_BUG_IF(setting == NULL || (setting->type != WHOLE && setting->type != REAL));
    value = setting->fallback;
    PL_BUG_IF(text != NULL && read_number(setting, text, name, &value, NULL) != PL_OK); /* pl_settings_check_values() */
    return value;
}

/* Check the value of the setting `name`; other names may have any value. */
static enum pl_status check_value(const char *name, const char *text, const char *what, struct pl_error *reterr)
{
    const struct setting *setting = find(name);
    struct pl_knobs setting_values;
    double number;
    bool yes;

    if (setting != NULL) {
        return setting->type == TEXT   ? PL_OK
               : setting->type == WORD ? pl_knob_read_word(text, setting->unit, what, reterr)
               : setting->type == BOOL ? pl_knob_read_bool(text, what, &yes, reterr)
                                       : read_number(setting, text, what, &number, reterr);
    }
    pl_knobs_default(&setting_values);
    for (unsigned i = 0; i < PL_KNOB_COUNT; i++) {
        if (strcmp(name, pl_knob_info((enum pl_knob)i)->variable) == 0) {
            return pl_knob_set(&setting_values, (enum pl_knob)i, text, what, reterr);
        }
    }
    return PL_OK;
}

/* The same for a hyperparameter, which messages name in small letters, whatever case it was written in. */
static enum pl_status check_hyperparameter(const char *name, const char *text, struct pl_error *reterr)
{
    char what[80];
    int length = snprintf(what, sizeof(what), "hyperparameter %s", name);

    for (int i = 0; i < length && i < (int)sizeof(what) - 1; i++) {
        what[i] = (char)(what[i] >= 'A' && what[i] <= 'Z' ? what[i] + 32 : what[i]);
    }
    return check_value(name, text, what, reterr);
}

/* How what the job uploads is to be encrypted. */
static enum pl_status check_encryption(const struct pl_environment *environment, struct pl_error *reterr)
{
    static const struct pl_s3_encryption_names names = {
        .algorithm = "PACELINE_SSE", .key_id = "PACELINE_SSE_KMS_KEY_ID", .bucket_key = "PACELINE_BUCKET_KEY_ENABLED"};
    struct pl_s3_encryption encryption = {
        .algorithm = pl_environment_get_or(environment, names.algorithm, NULL),
        .key_id = pl_environment_get_or(environment, names.key_id, NULL),
    };
    const char *bucket_key = pl_environment_get_or(environment, names.bucket_key, NULL);

    if (bucket_key != NULL) {
        PL_TRY(pl_knob_read_bool(bucket_key, names.bucket_key, &encryption.bucket_key, reterr));
    }
    return pl_s3_encryption_check(&encryption, &names, reterr);
}

enum pl_status pl_settings_check_values(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                        struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *all = NULL;
    struct pl_knobs setting_values;

    PL_TRY(pl_environment_new_copy(environment, &all, reterr));
    for (size_t i = 0; i < hyperparameters->count; i++) {
        const char *equals = strchr(hyperparameters->items[i], '=');
        PL_AUTO_FREE char *name =
            pl_memory_string_n(hyperparameters->items[i], (size_t)(equals - hyperparameters->items[i]), reterr);

        if (name == NULL) {
            return PL_MEMORY;
        }
        /* the variable wins, an empty one is none */
        if (equals[1] != '\0' && pl_environment_get_or(environment, name, NULL) == NULL) {
            PL_TRY(check_hyperparameter(name, equals + 1, reterr));
            PL_TRY(pl_environment_set(all, name, equals + 1, reterr));
        }
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(settings); i++) {
        char name[64];
        const char *text;

        snprintf(name, sizeof(name), "PACELINE_%s", settings[i].name);
        text = pl_environment_get_or(all, name, NULL);
        if (text != NULL) {
            PL_TRY(check_value(name, text, name, reterr));
        }
    }
    PL_TRY(check_encryption(all, reterr));
    return pl_knobs_resolve(all, &setting_values, reterr);
}

/* `string` is PACELINE_NAME=value. */
static enum pl_status check(const char *string, bool is_variable, struct pl_strv *warnings, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text hint = PL_TEXT_NONE;
    const char *meant;
    unsigned count;

    pl_text_append_n(&name, string, strcspn(string, "="));
    PL_TRY(pl_text_check(&name, reterr));
    meant = nearest(pl_text_string(&name), &count);
    if (count == 0 || (meant == NULL && is_variable) || pl_knob_is_gone(string, name.length)) {
        return PL_OK; /* of one that is gone rank 0 warns */
    }
    if (meant != NULL) {
        pl_text_printf(&hint, "; PACELINE_%s is one", meant);
        PL_TRY(pl_text_check(&hint, reterr));
    }
    return pl_strv_printf(warnings, reterr, "%s%s is no setting of Paceline and has no effect%s", pl_text_string(&name),
                          is_variable ? "" : " (a hyperparameter)", pl_text_string(&hint));
}

enum pl_status pl_settings_check(const struct pl_environment *environment, const struct pl_strv *hyperparameters,
                                 struct pl_strv *warnings, struct pl_error *reterr)
{
    for (char *const *string = pl_environment_strings(environment); *string != NULL; string++) {
        if (strncmp(*string, "PACELINE_", PREFIX_BYTES) == 0) {
            PL_TRY(check(*string, true, warnings, reterr));
        }
    }
    for (size_t i = 0; i < hyperparameters->count; i++) {
        PL_TRY(check(hyperparameters->items[i], false, warnings, reterr));
    }
    return PL_OK;
}
