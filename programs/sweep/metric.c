/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a metric's values and its steps in lines. */
#include "programs/sweep/metric.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* COMPARED_BYTES of a line are compared with the metric's name. LEAST_COMMON equal characters make them alike. */
enum { NUMBER_BYTES = 64, COMPARED_BYTES = 1024, LEAST_COMMON = 3 };

static enum pl_status compile(const char *pattern, regex_t *regex, struct pl_error *reterr)
{
    char why[128];
    int code = regcomp(regex, pattern, REG_EXTENDED);

    if (code == 0) {
        return PL_OK;
    }
    regerror(code, regex, why, sizeof(why));
    return pl_error_set(reterr, PL_INVALID, "compiling the regular expression '%.200s': %s", pattern, why);
}

enum pl_status pl_metric_open(struct pl_metric *metric, const char *name, const char *value_regex,
                              const char *step_regex, int64_t last_step, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(compile(value_regex, &metric->value_regex, reterr));
    metric->counts = !step_regex;
    status = metric->counts ? PL_OK : compile(step_regex, &metric->step_regex, reterr);
    if (status != PL_OK) {
        regfree(&metric->value_regex);
        return status;
    }
    metric->is_open = true;
    metric->has_step = metric->counts;
    metric->step = metric->counts ? last_step : 0;
    metric->name = name;
    return PL_OK;
}

/* Finds the number of the first group. Returns false if there is none. */
static bool find_number(const regex_t *regex, const char *text, double *ret_number)
{
    regmatch_t matches[2];
    char number[NUMBER_BYTES];
    size_t bytes;

    if (regexec(regex, text, 2, matches, 0) != 0 || matches[1].rm_so < 0) {
        return false;
    }
    bytes = (size_t)(matches[1].rm_eo - matches[1].rm_so);
    if (bytes >= sizeof(number)) {
        return false;
    }
    memcpy(number, text + matches[1].rm_so, bytes);
    number[bytes] = '\0';
    return pl_text_number(number, ret_number);
}

void pl_metric_find_step(struct pl_metric *metric, const char *line)
{
    double step;

    if (!metric->counts && find_number(&metric->step_regex, line, &step) && fabs(step) < 0x1p62) {
        metric->step = (int64_t)step;
        metric->has_step = true;
    }
}

static int folded(char byte)
{
    return strchr("_-. \t/", byte) ? '_' : tolower((unsigned char)byte);
}

/* Returns the length of the longest text that is in both the name and the line. Case is ignored, and all characters
 * that join words count as equal. */
static int common(const char *name, const char *line)
{
    int most = 0;

    for (size_t i = 0; i < COMPARED_BYTES && line[i] != '\0'; i++) {
        for (const char *at = name; *at != '\0'; at++) {
            int count = 0;

            while (at[count] != '\0' && line[i + (size_t)count] != '\0' &&
                   folded(at[count]) == folded(line[i + (size_t)count])) {
                count++;
            }
            most = count > most ? count : most;
        }
    }
    return most;
}

/* Keeps a line with a number if it is at least as near as the lines before it. */
static void keep_nearest(struct pl_metric *metric, const char *line, bool has_value)
{
    const size_t length = strlen(line);
    const size_t shown = length > PL_METRIC_SHOWN_BYTES ? pl_text_whole_bytes(line, PL_METRIC_SHOWN_BYTES) : length;
    const int alike = common(metric->name, line);
    const int nearness = alike >= LEAST_COMMON ? alike : 1;

    if (has_value || (!metric->lacks_step && nearness >= metric->nearness && strpbrk(line, "0123456789"))) {
        metric->lacks_step = has_value;
        metric->nearness = nearness;
        memcpy(metric->nearest, line, shown);
        metric->nearest[shown] = '\0';
    }
}

bool pl_metric_find_value(struct pl_metric *metric, const char *line, int64_t *ret_step, double *ret_value)
{
    const bool has_value = find_number(&metric->value_regex, line, ret_value);

    if (!metric->has_reported && !(has_value && metric->has_step)) {
        keep_nearest(metric, line, has_value);
    }
    if (!has_value || !metric->has_step) {
        return false;
    }
    metric->has_reported = true;
    metric->step += metric->counts ? 1 : 0;
    *ret_step = metric->step;
    return true;
}

void pl_metric_why_not(const struct pl_metric *metric, struct pl_text *words)
{
    if (metric->lacks_step) {
        pl_text_printf(words, "it printed no step before its first value, which is in the line '%s'", metric->nearest);
    } else if (metric->nearness > 0) {
        pl_text_printf(words, "the nearest line is '%s'", metric->nearest);
    } else {
        pl_text_append(words, "it has printed no line with a number");
    }
}

void pl_metric_close(struct pl_metric *metric)
{
    if (!metric->is_open) {
        return;
    }
    regfree(&metric->value_regex);
    if (!metric->counts) {
        regfree(&metric->step_regex);
    }
    metric->is_open = false;
}
