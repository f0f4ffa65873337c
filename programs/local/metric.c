/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the values of a job's metrics in the lines of its log. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "programs/local/metric.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 160, NUMBER_BYTES = 64, MOST_DIGITS = 19, MOST_STEPS = 1000000 /* of a search in one line */ };

struct metric {
    const char *name, *expression;
    pcre2_code *code;
    uint64_t count;
    double last, least, most;
    char first[SHOWN_BYTES + 1];
    bool ended_early;                                      /* a search was given up; said once */
    bool has_wrong;                                        /* the expression matched, and its group was no number */
    char wrong[NUMBER_BYTES], wrong_line[SHOWN_BYTES + 1]; /* of the first such line */
    unsigned nearness; /* how many letters of the expression's beginning the nearest line has */
    char nearest[SHOWN_BYTES + 1];
};

struct pl_local_metrics {
    pcre2_match_context *context;
    void (*found)(void *argument, size_t index, double value, const char *line, size_t length);
    void *argument;
    size_t count;
    struct metric metrics[];
};

static enum pl_status compile(struct metric *metric, struct pl_error *reterr)
{
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR words[160];
    uint32_t groups = 0;
    int code = 0;

    metric->code = pcre2_compile((PCRE2_SPTR)metric->expression, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (!metric->code) {
        pcre2_get_error_message(code, words, sizeof(words));
        return pl_error_set(reterr, PL_INVALID, "metric '%s': the expression '%s' is wrong at character %zu: %s",
                            metric->name, metric->expression, at + 1, (const char *)words);
    }
    pcre2_pattern_info(metric->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    return groups > 0 ? PL_OK
                      : pl_error_set(reterr, PL_INVALID,
                                     "metric '%s': the expression '%s' has no group: expected ( ) around the number",
                                     metric->name, metric->expression);
}

enum pl_status pl_local_metrics_new(const struct pl_local_pair *pairs, size_t count,
                                    struct pl_local_metrics **ret_metrics, struct pl_error *reterr)
{
    struct pl_local_metrics *metrics = pl_memory_new(1, sizeof(*metrics) + count * sizeof(metrics->metrics[0]), reterr);
    enum pl_status status = PL_OK;

    if (!metrics) {
        return PL_MEMORY;
    }
    metrics->context = pcre2_match_context_create(NULL);
    if (!metrics->context) {
        status = pl_error_set(reterr, PL_MEMORY, "no memory for metrics");
    } else {
        pcre2_set_match_limit(metrics->context, MOST_STEPS);
    }
    for (size_t i = 0; status == PL_OK && i < count; i++) {
        metrics->metrics[i] = (struct metric){.name = pairs[i].name, .expression = pairs[i].value};
        metrics->count = i + 1;
        status = compile(&metrics->metrics[i], reterr);
    }
    if (status != PL_OK) {
        pl_local_metrics_free(metrics);
        return status;
    }
    *ret_metrics = metrics;
    return PL_OK;
}

bool pl_local_metrics_number_after(const char *line, size_t length, const char *words, uint64_t *ret_number)
{
    const size_t bytes = strlen(words);
    const char *at = memmem(line, length, words, bytes), *end = line + length;
    uint64_t number = 0;
    size_t digits = 0;

    for (at = at ? at + bytes : end; at < end && isdigit((unsigned char)*at) && digits < MOST_DIGITS; at++, digits++) {
        number = number * 10 + (uint64_t)(*at - '0');
    }
    *ret_number = number;
    return digits > 0;
}

static void copy_line(char to[SHOWN_BYTES + 1], const char *line, size_t length)
{
    const size_t bytes = pl_text_whole_bytes(line, length < SHOWN_BYTES ? length : SHOWN_BYTES);

    memcpy(to, line, bytes);
    to[bytes] = '\0';
    pl_text_mask(to, bytes);
}

static bool is_plain(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
}

/* A line that has less than half of the letters is near by chance. */
static bool has_near(const struct metric *metric)
{
    unsigned letters = 0;

    for (const char *letter = metric->expression; *letter != '\0'; letter++) {
        letters += is_plain(*letter);
    }
    return metric->nearness > 0 && 2 * metric->nearness >= letters;
}

/* Counts the letters and digits that the expression begins with and that the line has in this order. */
static void compare(struct metric *metric, const char *line, size_t length)
{
    unsigned nearness = 0;
    const char *at = line;

    for (const char *letter = metric->expression; *letter != '\0'; letter++) {
        const bool plain = is_plain(*letter);
        const char *found = plain ? memchr(at, *letter, length - (size_t)(at - line)) : at;

        if (!found) {
            break;
        }
        nearness += plain;
        at = found + plain;
    }
    if (nearness > metric->nearness) {
        metric->nearness = nearness;
        copy_line(metric->nearest, line, length);
    }
}

static void take(struct metric *metric, double value, const char *line, size_t length)
{
    if (metric->count == 0) {
        copy_line(metric->first, line, length);
        metric->least = metric->most = value;
    }
    metric->count++;
    metric->last = value;
    metric->least = fmin(metric->least, value);
    metric->most = fmax(metric->most, value);
}

static void say_given_up(struct metric *metric, int code)
{
    PCRE2_UCHAR words[160];

    if (metric->ended_early) {
        return;
    }
    metric->ended_early = true;
    if (code == PCRE2_ERROR_MATCHLIMIT) {
        pl_log(PL_LOG_WARNING, "metric '%s': the search of a line took more than %d steps and was given up",
               metric->name, (int)MOST_STEPS);
    } else {
        pcre2_get_error_message(code, words, sizeof(words));
        pl_log(PL_LOG_WARNING, "metric '%s': the search of a line was given up: %s", metric->name, (const char *)words);
    }
}

/* Keeps what the first group has, as far as there is room for it. */
static void note_wrong(struct metric *metric, pcre2_match_data *found, const char *line, size_t length)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(found);
    const bool has_group = pcre2_get_ovector_count(found) > 1 && at[2] != PCRE2_UNSET && at[3] >= at[2];
    const size_t all = has_group ? at[3] - at[2] : 0;
    const size_t bytes = has_group ? pl_text_whole_bytes(line + at[2], all < NUMBER_BYTES ? all : NUMBER_BYTES - 1) : 0;

    if (!metric->has_wrong) {
        metric->has_wrong = true;
        memcpy(metric->wrong, has_group ? line + at[2] : "", bytes);
        metric->wrong[bytes] = '\0';
        pl_text_mask(metric->wrong, bytes);
        copy_line(metric->wrong_line, line, length);
    }
}

static void search(struct pl_local_metrics *metrics, struct metric *metric, const char *line, size_t length)
{
    pcre2_match_data *found = pcre2_match_data_create_from_pattern(metric->code, NULL);
    char text[NUMBER_BYTES];
    PCRE2_SIZE bytes = sizeof(text);
    double value;
    int got;

    if (!found) {
        return;
    }
    got = pcre2_match(metric->code, (PCRE2_SPTR)line, length, 0, 0, found, metrics->context);
    if (got > 0 && pcre2_substring_copy_bynumber(found, 1, (PCRE2_UCHAR *)text, &bytes) == 0 &&
        pl_text_number(text, &value)) {
        take(metric, value, line, length);
        if (metrics->found) {
            metrics->found(metrics->argument, (size_t)(metric - metrics->metrics), value, line, length);
        }
    } else if (got > 0) {
        note_wrong(metric, found, line, length);
    } else if (got != PCRE2_ERROR_NOMATCH) {
        say_given_up(metric, got);
    } else if (metric->count == 0) {
        compare(metric, line, length);
    }
    pcre2_match_data_free(found);
}

void pl_local_metrics_read(struct pl_local_metrics *metrics, const char *line, size_t length)
{
    for (size_t i = 0; i < metrics->count; i++) {
        search(metrics, &metrics->metrics[i], line, length);
    }
}

void pl_local_metrics_follow(struct pl_local_metrics *metrics,
                             void (*found)(void *argument, size_t index, double value, const char *line, size_t length),
                             void *argument)
{
    metrics->found = found;
    metrics->argument = argument;
}

void pl_local_metrics_print(const struct pl_local_metrics *metrics, FILE *out)
{
    for (size_t i = 0; i < metrics->count; i++) {
        const struct metric *metric = &metrics->metrics[i];

        if (metric->count > 0) {
            fprintf(out, "Metric %s: last %.9g, lowest %.9g, highest %.9g, %" PRIu64 " value%s; first in: %s\n",
                    metric->name, metric->last, metric->least, metric->most, metric->count,
                    metric->count == 1 ? "" : "s", metric->first);
        } else if (metric->has_wrong) {
            pl_log(PL_LOG_WARNING, "metric '%s': the group of '%s' is '%s', expected a number; the first such line: %s",
                   metric->name, metric->expression, metric->wrong, metric->wrong_line);
        } else {
            pl_log(PL_LOG_WARNING, "metric '%s': no line of the log matches '%s'%s%s", metric->name, metric->expression,
                   has_near(metric) ? "; the nearest line: " : "", has_near(metric) ? metric->nearest : "");
        }
    }
}

void pl_local_metrics_free(struct pl_local_metrics *metrics)
{
    for (size_t i = 0; metrics && i < metrics->count; i++) {
        pcre2_code_free(metrics->metrics[i].code);
    }
    if (metrics) {
        pcre2_match_context_free(metrics->context);
    }
    free(metrics);
}
