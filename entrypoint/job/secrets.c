/* SPDX-License-Identifier: Apache-2.0 */
/* Finds secret values by their names, and masks them for output. */
#include "entrypoint/job/job.h"

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
    PL_PYTHON_JSON_EACH(child, node) {
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

/* Mask the value of "NAME=value" if NAME is the name of a secret. In "NAME=value;NAME=value" all text after the first
 * such name is masked, because a value may have semicolons too. Returns a text that lives as long as the job. */
static const char *mask_assignment(struct pl_job *job, const char *word)
{
    char *own = pl_pool_string(&job->pool, word);

    for (char *part = own; part;) {
        char *equals = strchr(part, '='), *semicolon = strchr(part, ';');

        if (equals && (!semicolon || equals < semicolon) && equals[1] != '\0') {
            *equals = '\0';
            if (pl_secrets_is_name(part)) {
                return pl_pool_printf(&job->pool, "%s=%s", own, mask);
            }
            *equals = '=';
        }
        part = semicolon ? semicolon + 1 : NULL;
    }
    return own;
}

/* Mask values that the custom MPI options export to ranks: -x DB_PASSWORD=..., mca_base_env_list "API_KEY=...". Text
 * that cannot be split into options is masked whole. */
static enum pl_status mask_options(struct pl_job *job, struct pl_error *reterr)
{
    static const char name[] = "sagemaker_mpi_custom_mpi_options";
    const struct pl_python_json *options = pl_python_json_member(job->framework, name);
    struct pl_strv words = {.pool = &job->pool};
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!options || pl_python_json_kind(options) != PL_PYTHON_JSON_STRING) {
        return PL_OK;
    }
    if (pl_strv_split(pl_python_json_text(options), name, &words, NULL) != PL_OK) {
        return pl_python_json_set(job->framework, name, pl_python_json_new_string(mask), reterr);
    }
    for (size_t i = 0; i < words.count; i++) {
        const char *word = mask_assignment(job, words.items[i]);

        pl_text_append(&text, i == 0 ? "" : " ");
        if (*word != '\0' && !strpbrk(word, " \t\r\n'\"\\")) {
            pl_text_append(&text, word);
        } else { /* so that pl_strv_split() returns it unchanged */
            pl_text_append_quoted(&text, word);
        }
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_python_json_set(job->framework, name, pl_python_json_new_string(pl_text_string(&text)), reterr);
}

/* Mask such values in distributed.json, whose options are a list of words. The job's variables show the whole file. */
static enum pl_status mask_drivers(struct pl_job *job, struct pl_error *reterr)
{
    static const char name[] = "mpi_additional_options";
    struct pl_drivers *drivers = &job->drivers;
    struct pl_strv words = {.pool = &job->pool};

    if (!drivers->mpi_options) {
        return PL_OK;
    }
    PL_PYTHON_JSON_EACH(item, drivers->mpi_options) {
        pl_strv_add(&words, mask_assignment(job, pl_python_json_text(item)));
    }
    PL_TRY(pl_python_json_set(drivers->distributed, name, pl_strv_json(&words), reterr));
    drivers->mpi_options = pl_python_json_member(drivers->distributed, name);
    return PL_OK;
}

/* Mask the hyperparameters that are settings, and job->settings, whose texts lie in the hyperparameters. */
static enum pl_status mask_settings(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *before = job->setting_values;

    job->setting_values = pl_python_json_new_object();
    PL_PYTHON_JSON_EACH(node, before) {
        const char *name = pl_python_json_name(node), *text = pl_python_json_text(node);
        const char *masked = mask_assignment(job, pl_pool_printf(&job->pool, "%s=%s", name, text));

        masked += *masked == '\0' ? 0 : strlen(name) + 1;
        PL_TRY(pl_python_json_set(job->setting_values, name, pl_python_json_new_string(masked), reterr));
        pl_settings_replace_text(&job->settings, text, masked);
    }
    return PL_OK;
}

enum pl_status pl_secrets_mask(struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(mask_tree(&job->hyperparameters, reterr));
    PL_TRY(mask_tree(&job->framework, reterr));
    PL_TRY(mask_options(job, reterr));
    PL_TRY(mask_drivers(job, reterr));
    PL_TRY(mask_settings(job, reterr));
    pl_job_set_arguments(job);
    return pl_pool_check(&job->pool, reterr);
}
