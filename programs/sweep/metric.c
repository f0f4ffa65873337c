/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the numbers of a metric and its steps in lines. */
#include "programs/sweep/metric.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

enum { NUMBER_BYTES = 64 };

static enum pl_status compile(const char *pattern, regex_t *regex, struct pl_error *reterr)
{
    char why[128];
    int code = regcomp(regex, pattern, REG_EXTENDED);

    if (code == 0) {
        return PL_OK;
    }
    regerror(code, regex, why, sizeof(why));
    return pl_error_set(reterr, PL_INVALID, "the regular expression '%.200s': %s", pattern, why);
}

enum pl_status pl_metric_open(struct pl_metric *metric, const char *value_regex, const char *step_regex,
                              int64_t last_step, struct pl_error *reterr)
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
    for (size_t i = 0; i < PL_METRIC_LINES; i++) {
        metric->lines[i].metric = metric;
    }
    return PL_OK;
}

/* The number of the first group; false where there is none. */
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
    return pl_text_number(number, ret_number) && isfinite(*ret_number);
}

static void end_line(struct pl_metric_line *line)
{
    struct pl_metric *metric = line->metric;
    double step, value;

    line->bytes[line->used] = '\0';
    line->used = 0;
    if (!metric->counts && find_number(&metric->step_regex, line->bytes, &step) && fabs(step) < 0x1p62) {
        metric->step = (int64_t)step;
        metric->has_step = true;
    }
    if (!metric->has_step || !find_number(&metric->value_regex, line->bytes, &value)) {
        return;
    }
    metric->step += metric->counts ? 1 : 0;
    if (metric->waiting == PL_METRIC_WAITING) {
        metric->waiting--;
    }
    metric->reports[metric->waiting].step = metric->step;
    metric->reports[metric->waiting++].value = value;
}

void pl_metric_add(struct pl_metric_line *line, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n' || bytes[i] == '\r') {
            end_line(line);
        } else if (line->used < sizeof(line->bytes) - 1) {
            line->bytes[line->used++] = bytes[i] != '\0' ? bytes[i] : '?';
        }
    }
}

void pl_metric_end(struct pl_metric_line *line)
{
    end_line(line);
}

bool pl_metric_next(struct pl_metric *metric, int64_t *ret_step, double *ret_value)
{
    if (metric->taken == metric->waiting) {
        metric->taken = metric->waiting = 0;
        return false;
    }
    *ret_step = metric->reports[metric->taken].step;
    *ret_value = metric->reports[metric->taken++].value;
    return true;
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
