/* SPDX-License-Identifier: Apache-2.0 */
/* Finds numbers in lines by PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "entrypoint/output/pattern.h"

#include "base/memory.h"
#include "base/text.h"

#include <pcre2.h>
#include <stdlib.h>

enum { NUMBER_BYTES = 64, WORDS_BYTES = 160, MOST_STEPS = 10000000 /* steps of a search in one line */ };

struct pl_pattern {
    pcre2_code *code;
    pcre2_match_context *context;
    pcre2_match_data *found;
    const char *line; /* line of the last search, if it matched; else NULL */
};

static enum pl_status compile(struct pl_pattern *pattern, const char *expression, struct pl_error *reterr)
{
    PCRE2_UCHAR words[WORDS_BYTES];
    PCRE2_SIZE at = 0;
    uint32_t groups = 0;
    int code = 0;

    pattern->code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (!pattern->code) {
        pcre2_get_error_message(code, words, sizeof(words));
        return pl_error_set(reterr, PL_INVALID, "a regular expression that is right at character %zu (%s)", at + 1,
                            (const char *)words);
    }
    pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    if (groups == 0) {
        return pl_error_set(reterr, PL_INVALID, "a regular expression with a group around the number, ([0-9.]+)");
    }
    pattern->context = pcre2_match_context_create(NULL);
    pattern->found = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    if (!pattern->context || !pattern->found) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for a regular expression");
    }
    pcre2_set_match_limit(pattern->context, MOST_STEPS);
    return PL_OK;
}

enum pl_status pl_pattern_new(const char *expression, struct pl_pattern **ret_pattern, struct pl_error *reterr)
{
    struct pl_pattern *pattern = pl_memory_new(1, sizeof(*pattern), reterr);
    const enum pl_status status = pattern ? compile(pattern, expression, reterr) : PL_MEMORY;

    if (status != PL_OK) {
        pl_pattern_free(pattern);
        return status;
    }
    *ret_pattern = pattern;
    return PL_OK;
}

enum pl_status pl_pattern_number(struct pl_pattern *pattern, const char *line, size_t length, double *ret_number,
                                 struct pl_error *reterr)
{
    char text[NUMBER_BYTES];
    PCRE2_UCHAR words[WORDS_BYTES];
    PCRE2_SIZE bytes = sizeof(text);
    const int got = pcre2_match(pattern->code, (PCRE2_SPTR)line, length, 0, 0, pattern->found, pattern->context);

    pattern->line = got > 0 ? line : NULL;
    if (got == PCRE2_ERROR_MATCHLIMIT) {
        return pl_error_set(reterr, PL_LIMIT, "the search of a line took more than %d steps and was given up",
                            (int)MOST_STEPS);
    }
    if (got < 0 && got != PCRE2_ERROR_NOMATCH) {
        pcre2_get_error_message(got, words, sizeof(words));
        return pl_error_set(reterr, PL_LIMIT, "the search of a line was given up: %s", (const char *)words);
    }
    return got > 0 && pcre2_substring_copy_bynumber(pattern->found, 1, (PCRE2_UCHAR *)text, &bytes) == 0 &&
                   pl_text_number(text, ret_number)
               ? PL_OK
               : pl_error_set(reterr, PL_NOT_FOUND, "no number");
}

const char *pl_pattern_group(const struct pl_pattern *pattern, size_t *ret_length)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(pattern->found);
    const bool has_group = pattern->line && pcre2_get_ovector_count(pattern->found) > 1 && at[2] != PCRE2_UNSET;

    *ret_length = has_group && at[3] > at[2] ? at[3] - at[2] : 0;
    return has_group ? pattern->line + at[2] : pattern->line;
}

void pl_pattern_free(struct pl_pattern *pattern)
{
    if (pattern) {
        pcre2_match_data_free(pattern->found);
        pcre2_match_context_free(pattern->context);
        pcre2_code_free(pattern->code);
    }
    free(pattern);
}
