/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the values of a job's metrics in the lines of its log. */
#include "programs/local/metric.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/output/pattern.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 160, NUMBER_BYTES = 64, MOST_DIGITS = 19 };

struct metric {
    const char *name, *expression;
    struct pl_pattern *pattern;
    uint64_t count;
    double last, least, most;
    char first[SHOWN_BYTES + 1];
    bool ended_early;                                      /* a search was given up, and this was logged */
    bool has_wrong;                                        /* the expression matched, but its group is not a number */
    char wrong[NUMBER_BYTES], wrong_line[SHOWN_BYTES + 1]; /* that group, and the first such line */
    unsigned nearness; /* number of letters of the expression's beginning that the nearest line has */
    char nearest[SHOWN_BYTES + 1];
};

struct pl_local_metrics {
    pl_local_metrics_found *found;
    void *argument;
    size_t count;
    struct metric metrics[];
};

enum pl_status pl_local_metrics_new(const struct pl_local_pairs *pairs, pl_local_metrics_found *found, void *argument,
                                    struct pl_local_metrics **ret_metrics, struct pl_error *reterr)
{
    struct pl_local_metrics *metrics =
        pl_memory_new(1, sizeof(*metrics) + pairs->count * sizeof(metrics->metrics[0]), reterr);
    struct pl_error error = PL_ERROR_NONE;

    if (!metrics) {
        return PL_MEMORY;
    }
    metrics->found = found;
    metrics->argument = argument;
    for (; metrics->count < pairs->count; metrics->count++) {
        const struct pl_local_pair *pair = &pairs->items[metrics->count];
        struct metric *metric = &metrics->metrics[metrics->count];

        *metric = (struct metric){.name = pair->name, .expression = pair->value};
        if (pl_pattern_new(pair->value, &metric->pattern, &error) != PL_OK) {
            pl_local_metrics_free(metrics);
            return pl_error_set(reterr, error.status, "metric '%s': expected %s, found '%s'", pair->name, error.cause,
                                pair->value);
        }
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

/* Whether the nearest line has at least half of the letters; fewer can be by chance. */
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

/* Keeps the text of the first group, as much as there is room for. */
static void note_wrong(struct metric *metric, const char *group, size_t length, const char *line, size_t line_length)
{
    const size_t bytes = pl_text_whole_bytes(group, length < NUMBER_BYTES ? length : NUMBER_BYTES - 1);

    if (!metric->has_wrong) {
        metric->has_wrong = true;
        memcpy(metric->wrong, group, bytes);
        metric->wrong[bytes] = '\0';
        pl_text_mask(metric->wrong, bytes);
        copy_line(metric->wrong_line, line, line_length);
    }
}

static void search(struct pl_local_metrics *metrics, struct metric *metric, const char *line, size_t length)
{
    struct pl_error error = PL_ERROR_NONE;
    double value;
    const enum pl_status status = pl_pattern_number(metric->pattern, line, length, &value, &error);
    size_t bytes;
    const char *group = pl_pattern_group(metric->pattern, &bytes);

    if (status == PL_OK) {
        take(metric, value, line, length);
        if (metrics->found) {
            metrics->found(metrics->argument, (size_t)(metric - metrics->metrics), value, line, length);
        }
    } else if (status == PL_LIMIT && !metric->ended_early) {
        metric->ended_early = true;
        pl_log(PL_LOG_WARNING, "metric '%s': %s", metric->name, error.cause);
    } else if (group) {
        note_wrong(metric, group, bytes, line, length);
    } else if (status == PL_NOT_FOUND && metric->count == 0) {
        compare(metric, line, length);
    }
}

void pl_local_metrics_read(struct pl_local_metrics *metrics, const char *line, size_t length)
{
    for (size_t i = 0; i < metrics->count; i++) {
        search(metrics, &metrics->metrics[i], line, length);
    }
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
        pl_pattern_free(metrics->metrics[i].pattern);
    }
    free(metrics);
}
