/* SPDX-License-Identifier: Apache-2.0 */
/* Finds secret values by their names, and masks them for output. */
#include "entrypoint/job/secrets.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char mask[] = "***";

/* Whether a part of a name ends between these two characters: "a-b", "aB". */
static bool is_border(char before, char after)
{
    return !isalnum((unsigned char)before) || !isalnum((unsigned char)after) ||
           (islower((unsigned char)before) && isupper((unsigned char)after));
}

/* Whether `name` contains `word` in any case; with `whole`, as a part of its own: "hf_token", "hfToken". */
static bool has_word(const char *name, const char *word, bool whole)
{
    size_t length = strlen(word);

    for (const char *at = strcasestr(name, word); at; at = strcasestr(at + 1, word)) {
        if (!whole || ((at == name || is_border(at[-1], at[0])) && is_border(at[length - 1], at[length]))) {
            return true;
        }
    }
    return false;
}

bool pl_secrets_is_name(const char *name)
{
    static const struct {
        const char *word;
        bool whole;
    } words[] = {
        {"password", false}, {"passwd", false},    {"secret", false}, {"credential", false},
        {"apikey", false},   {"accesskey", false}, {"key", true},     {"keys", true},
        {"token", true},     {"private", true},    {"creds", true},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(words); i++) {
        if (has_word(name, words[i].word, words[i].whole)) {
            return true;
        }
    }
    return false;
}

static bool is_empty(const struct pl_python_json *node)
{
    return pl_python_json_kind(node) == PL_PYTHON_JSON_NULL ||
           (pl_python_json_kind(node) == PL_PYTHON_JSON_STRING && *pl_python_json_text(node) == '\0');
}

/* Returns a copy of `node` with masked values, or NULL if memory is out. The parser has limited its depth. */
static struct pl_python_json *masked_copy(const struct pl_python_json *node)
{
    const char *name = pl_python_json_name(node);
    bool is_object = pl_python_json_kind(node) == PL_PYTHON_JSON_OBJECT;
    PL_AUTO_PYTHON_JSON struct pl_python_json *copy = NULL;

    if (name && pl_secrets_is_name(name) && !is_empty(node)) {
        return pl_python_json_new_string(mask);
    }
    if (!is_object && pl_python_json_kind(node) != PL_PYTHON_JSON_ARRAY) {
        return pl_python_json_copy(node);
    }
    copy = is_object ? pl_python_json_new_object() : pl_python_json_new_array();
    for (const struct pl_python_json *child = pl_python_json_first(node); child; child = pl_python_json_next(child)) {
        struct pl_python_json *item = masked_copy(child);

        if ((is_object ? pl_python_json_set(copy, pl_python_json_name(child), item, NULL)
                       : pl_python_json_append(copy, item, NULL)) != PL_OK) {
            return NULL;
        }
    }
    return PL_TAKE(copy);
}

static enum pl_status mask_tree(struct pl_python_json **tree_at, struct pl_error *reterr)
{
    struct pl_python_json *copy = masked_copy(*tree_at);

    if (!copy) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory masking secrets");
    }
    pl_python_json_free(*tree_at);
    *tree_at = copy;
    return PL_OK;
}

/* Mask the value of "NAME=value" if NAME is the name of a secret. In "NAME=value;NAME=value" what follows the first
 * such name is masked: a value may have semicolons too. */
static enum pl_status mask_assignment(char **word_at, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char *part = *word_at, *masked = NULL;

    while (part) {
        char *equals = strchr(part, '='), *semicolon = strchr(part, ';');

        if (equals && (!semicolon || equals < semicolon) && equals[1] != '\0') {
            *equals = '\0';
            if (pl_secrets_is_name(part)) {
                pl_text_printf(&text, "%s=%s", *word_at, mask);
                PL_TRY(pl_text_take(&text, &masked, reterr));
                free(*word_at);
                *word_at = masked;
                return PL_OK;
            }
            *equals = '=';
        }
        part = semicolon ? semicolon + 1 : NULL;
    }
    return PL_OK;
}

/* Append `word` so that pl_strv_split() returns it unchanged. It is quoted only if necessary. */
static void append_quoted(const char *word, struct pl_text *text)
{
    if (*word != '\0' && !strpbrk(word, " \t\r\n'\"\\")) {
        pl_text_append(text, word);
        return;
    }
    pl_text_append_char(text, '\'');
    for (; *word != '\0'; word++) {
        pl_text_append(text, *word == '\'' ? "'\\'" : "");
        pl_text_append_char(text, *word);
    }
    pl_text_append_char(text, '\'');
}

/* Mask values that the custom MPI options export to ranks: -x DB_PASSWORD=..., mca_base_env_list "API_KEY=...". Text
 * that cannot be split into options is masked whole. */
static enum pl_status mask_options(struct pl_python_json *framework, struct pl_error *reterr)
{
    static const char name[] = "sagemaker_mpi_custom_mpi_options";
    const struct pl_python_json *options = pl_python_json_member(framework, name);
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!options || pl_python_json_kind(options) != PL_PYTHON_JSON_STRING) {
        return PL_OK;
    }
    if (pl_strv_split(pl_python_json_text(options), name, &words, NULL) != PL_OK) {
        return pl_python_json_set(framework, name, pl_python_json_new_string(mask), reterr);
    }
    for (size_t i = 0; i < words.count; i++) {
        PL_TRY(mask_assignment(&words.items[i], reterr));
        pl_text_append(&text, i == 0 ? "" : " ");
        append_quoted(words.items[i], &text);
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_python_json_set(framework, name, pl_python_json_new_string(pl_text_string(&text)), reterr);
}

/* Mask the same in distributed.json, whose options are a list of words. The job's variables show the whole file. */
static enum pl_status mask_drivers(struct pl_drivers *drivers, struct pl_error *reterr)
{
    static const char name[] = "mpi_additional_options";
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    if (!drivers->mpi_options) {
        return PL_OK;
    }
    for (const struct pl_python_json *item = pl_python_json_first(drivers->mpi_options); item;
         item = pl_python_json_next(item)) {
        PL_TRY(pl_strv_add(&words, pl_python_json_text(item), reterr));
        PL_TRY(mask_assignment(&words.items[words.count - 1], reterr));
    }
    PL_TRY(pl_python_json_set(drivers->distributed, name, pl_strv_json(&words), reterr));
    drivers->mpi_options = pl_python_json_member(drivers->distributed, name);
    return PL_OK;
}

/* Mask the job's hyperparameters that are settings, and the settings' values, which lie in them. */
static enum pl_status mask_settings(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv before = job->setting_values;

    job->setting_values = PL_STRV_NONE;
    PL_TRY(pl_strv_add_all(&job->setting_values, &before, reterr));
    for (size_t i = 0; i < before.count; i++) {
        PL_TRY(mask_assignment(&job->setting_values.items[i], reterr));
        pl_settings_replace_text(&job->settings, strchr(before.items[i], '=') + 1,
                                 strchr(job->setting_values.items[i], '=') + 1);
    }
    return PL_OK;
}

enum pl_status pl_secrets_mask(struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(mask_tree(&job->hyperparameters, reterr));
    PL_TRY(mask_tree(&job->framework, reterr));
    PL_TRY(mask_options(job->framework, reterr));
    PL_TRY(mask_drivers(&job->drivers, reterr));
    PL_TRY(mask_settings(job, reterr));
    return pl_job_set_arguments(job, reterr);
}
