/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a report as one HTML page. */
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/settings.h"
#include "entrypoint/version.h"
#include "programs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CELL_BYTES = 400 };

#define LEAST_SHARE 0.05 /* percent: smaller shares are printed as 0.0 */

extern const char pl_report_style[]; /* page.css, by style.S */

static const char *text_member(const struct pl_json *document, const char *name)
{
    const char *text = NULL;

    return document && pl_json_text(pl_json_member(pl_json_root(document), name), &text, NULL) == PL_OK ? text : NULL;
}

static bool number_of(struct pl_json_value value, double *ret_number)
{
    return pl_json_kind(value) == PL_JSON_NUMBER && pl_json_double(value, ret_number, NULL) == PL_OK;
}

/* Appends a value of JSON as people write it: text without quotes, numbers, and lists and objects by their members. */
static void append_value(struct pl_text *html, struct pl_json_value value)
{
    const enum pl_json_kind kind = pl_json_kind(value);
    const char *text = "", *between = "";
    double number = 0;
    bool yes = false;

    if (kind == PL_JSON_STRING && pl_json_text(value, &text, NULL) == PL_OK) {
        pl_html_text_n(html, text, strnlen(text, CELL_BYTES));
        pl_text_append(html, strlen(text) > CELL_BYTES ? " ..." : "");
    } else if (number_of(value, &number)) {
        pl_text_printf(html, "%.9g", number);
    } else if (kind == PL_JSON_BOOL && pl_json_bool(value, &yes, NULL) == PL_OK) {
        pl_text_append(html, yes ? "true" : "false");
    } else if (kind == PL_JSON_LIST || kind == PL_JSON_OBJECT) {
        for (struct pl_json_value item = pl_json_first(value); pl_json_exists(item); item = pl_json_next(item)) {
            pl_text_append(html, between);
            between = ", ";
            if (pl_json_name(item)) {
                pl_html_text(html, pl_json_name(item));
                pl_text_append(html, "=");
            }
            append_value(html, item);
        }
    }
}

static void append_fact(struct pl_text *html, const char *name, const char *format, ...) PL_PRINTF(3, 4);

static void append_fact(struct pl_text *html, const char *name, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text value = PL_TEXT_NONE;
    va_list args;

    va_start(args, format);
    pl_text_vprintf(&value, format, args);
    va_end(args);
    pl_text_append(html, "<div>");
    pl_html_element(html, "dt", NULL, name);
    pl_html_element(html, "dd", NULL, pl_text_string(&value));
    pl_text_append(html, "</div>\n");
}

/* Appends when and by what the job ran. Of a time in job.json, "2026-11-28T14:53:43+00:00", it shows day and minute. */
static void append_launch(const struct pl_report *report, struct pl_text *html)
{
    enum { DAY_BYTES = 10, MINUTE_AT = 11, MINUTE_BYTES = 5 };
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *time = text_member(report->job, "CreationTime");

    if (time && strlen(time) >= MINUTE_AT + MINUTE_BYTES) {
        pl_text_printf(&text, "Started on %.*s at %.*s UTC. ", DAY_BYTES, time, MINUTE_BYTES, time + MINUTE_AT);
    }
    if (report->launch) {
        pl_text_printf(&text, "Paceline %s.", report->launch);
    }
    if (text.length > 0) {
        pl_html_element(html, "p", "soft", pl_text_string(&text));
    }
}

static void append_seconds(struct pl_text *html, const struct pl_json *job)
{
    static const char *const phases[][2] = {{"preparation", "Preparation"}, {"program", "Program"}, {"end", "End"}};
    const struct pl_json_value all =
        job ? pl_json_member(pl_json_root(job), "seconds") : (struct pl_json_value){.document = NULL};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(phases); i++) {
        double seconds;

        if (number_of(pl_json_member(all, phases[i][0]), &seconds)) {
            append_fact(html, phases[i][1], "%.1f s", seconds);
        }
    }
}

static void append_head(const struct pl_report *report, struct pl_text *html)
{
    const char *status = text_member(report->job, "TrainingJobStatus");
    const char *second = text_member(report->job, "SecondaryStatus");
    const char *reason = text_member(report->job, "FailureReason");

    pl_text_append(html, "<header>\n");
    pl_html_element(html, "h1", NULL, report->name);
    if (!status && report->failure) {
        status = "Failed";
    }
    reason = reason ? reason : report->failure;
    if (status) {
        static const char *const known[] = {"Completed", "Failed", "Stopped", "Interrupted"};
        const char *class = "status";

        for (size_t i = 0; i < PL_ARRAY_ITEMS(known); i++) {
            class = strcmp(status, known[i]) == 0 ? known[i] : class;
        }
        pl_text_printf(html, "<p class=\"status %s\">", class);
        pl_html_text(html, status);
        if (second && strcmp(second, status) != 0) {
            pl_text_append(html, " (");
            pl_html_text(html, second);
            pl_text_append(html, ")");
        }
        pl_text_append(html, "</p>\n");
    }
    append_launch(report, html);
    if (reason) {
        pl_html_element(html, "pre", NULL, reason);
    }
    pl_text_append(html, "\n<dl>\n");
    append_fact(html, "Hosts", "%zu", report->hosts);
    if (report->rank_count > 0) {
        append_fact(html, "Ranks with a trace", "%zu", report->rank_count);
    }
    append_seconds(html, report->job);
    pl_text_append(html, "</dl>\n</header>\n");
}

/* Returns where the metrics' numbers come from. */
static const char *source_of_metrics(const struct pl_report *report)
{
    if (report->has_throughput) {
        return "By the job's MetricDefinitions; the throughput is that of its metrics.jsonl.";
    }
    if (report->has_definitions) {
        return "By the job's MetricDefinitions.";
    }
    if (report->best) {
        return "Each trial has a line: the words NAME=NUMBER of its log.";
    }
    return report->has_json ? "The job has no MetricDefinitions: these are the numbers of its metrics.jsonl."
                            : "The job has no MetricDefinitions: these are the words NAME=NUMBER of its log.";
}

static void append_metrics(const struct pl_report *report, struct pl_text *html)
{
    size_t shown = 0;

    pl_html_section(html, "Metrics");
    pl_html_element(html, "p", "soft small", source_of_metrics(report));
    pl_text_append(html, "<div class=\"curves\">\n");
    for (size_t i = 0; i < report->series_count; i++) {
        if (report->series[i]->count > 0) {
            pl_html_curve(html, report->series[i]);
            shown++;
        }
    }
    pl_text_append(html, "</div>\n");
    if (shown == 0) {
        pl_text_append(html, report->logs == 0 ? "<p>There is neither a log here nor output/data/metrics.jsonl.</p>\n"
                                               : "<p>No line of the log has a value.</p>\n");
    }
    for (size_t i = 0; report->logs > 0 && i < report->series_count; i++) {
        if (report->series[i]->count == 0) {
            pl_text_append(html, "<p>No line of the log has a value of ");
            pl_html_text(html, report->series[i]->name);
            pl_text_append(html, ".</p>\n");
        }
    }
    if (report->left_out > 0) {
        pl_text_printf(html, "<p>Left out: %" PRIu64 " values of further names; there is room for %d.</p>\n",
                       report->left_out, PL_REPORT_MOST_SERIES);
    }
    pl_text_append(html, "</section>\n");
}

/* ---- ranks ---- */

static const char *const share_names[PL_TRACE_SHARES] = {"computes", "data", "saves", "waits", "moves"};
static const char *const share_titles[PL_TRACE_SHARES] = {"computes", "waits for data", "saves", "waits for ranks",
                                                          "moves data"};

static void append_bar(struct pl_text *html, const double shares[PL_TRACE_SHARES])
{
    double at = 0;

    pl_text_append(html, "<td class=\"bar\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
                         "aria-hidden=\"true\">");
    for (size_t k = 0; k < PL_TRACE_SHARES; k++) {
        if (shares[k] >= LEAST_SHARE) {
            pl_text_printf(html, "<rect class=\"%s\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"10\"/>", share_names[k],
                           at * 10, shares[k] * 10);
        }
        at += shares[k];
    }
    pl_text_append(html, "</svg></td>");
}

/* Leaves out columns whose shares are 0 for all ranks, with their colours. */
static void append_rank_table(const struct pl_report *report, struct pl_text *html)
{
    bool has[PL_TRACE_SHARES] = {false};

    for (size_t i = 0; i < report->rank_count; i++) {
        for (size_t k = 0; k < PL_TRACE_SHARES; k++) {
            has[k] = has[k] || report->ranks[i].shares[k] >= LEAST_SHARE;
        }
    }
    pl_text_append(html, "<p class=\"soft small keys\">");
    for (size_t k = 0; k < PL_TRACE_SHARES; k++) {
        if (has[k]) {
            pl_text_printf(html, "<span><i class=\"key %s\"></i>%s</span> ", share_names[k], share_titles[k]);
        }
    }
    pl_text_append(html, "</p>\n<div class=\"table\"><table class=\"ranks\"><thead><tr>"
                         "<th scope=\"col\" class=\"number\">rank</th><th scope=\"col\">host</th>"
                         "<th scope=\"col\" class=\"bar\">time</th>");
    for (size_t k = 0; k < PL_TRACE_SHARES; k++) {
        if (has[k]) {
            pl_text_printf(html, "<th scope=\"col\" class=\"number\">%s</th>", share_names[k]);
        }
    }
    pl_text_append(html, "<th scope=\"col\" class=\"number\">times late</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < report->rank_count; i++) {
        const struct pl_trace_rank *rank = &report->ranks[i];

        pl_text_printf(html, "<tr><td class=\"number\">%d</td>", rank->rank);
        pl_html_element(html, "td", "name", rank->host);
        append_bar(html, rank->shares);
        for (size_t k = 0; k < PL_TRACE_SHARES; k++) {
            if (has[k]) {
                pl_text_printf(html, "<td class=\"number\">%.1f %%</td>", rank->shares[k]);
            }
        }
        pl_text_printf(html, "<td class=\"number\">%" PRIu64 "</td></tr>\n", rank->late);
    }
    pl_html_table_end(html);
}

static void append_ranks(const struct pl_report *report, struct pl_text *html)
{
    pl_html_section(html, "Time by rank");
    if (report->rings == 0 && report->trial_rings > 0) {
        pl_text_append(html, "<p class=\"soft\">Each trial has traces of its own: paceline trace --summary reads those "
                             "of one trial.</p>\n</section>\n");
        return;
    }
    if (report->rings == 0) {
        pl_text_append(html, "<p class=\"soft\">There are no traces. With the variable "
                             "PACELINE_TRACE=/opt/ml/output/data/trace.json ranks of Paceline's library and of "
                             "Horovod leave some.</p>\n</section>\n");
        return;
    }
    pl_text_append(html, "<p>");
    pl_html_text(html, pl_text_string(&report->comparison));
    pl_text_append(html, "</p>\n");
    if (report->rank_count > 0) {
        append_rank_table(report, html);
    }
    pl_text_append(html, "</section>\n");
}

/* ---- tables and lists ---- */

/* Whether the member has a text in any trial: trials without a reason have an empty one. */
static bool is_told(const struct pl_report *report, const char *name)
{
    for (size_t i = 0; i < report->trial_count; i++) {
        const struct pl_json_value value = pl_json_member(pl_json_root(report->trials[i]), name);
        const char *text = "";

        if (pl_json_exists(value) && pl_json_kind(value) != PL_JSON_NULL &&
            (pl_json_text(value, &text, NULL) != PL_OK || *text)) {
            return true;
        }
    }
    return false;
}

static bool is_best(const struct pl_report *report, size_t index)
{
    const char *at = report->best ? strstr(report->best, " trial=") : NULL;
    double best, trial;

    return at && pl_text_number(at + strlen(" trial="), &best) &&
           number_of(pl_json_member(pl_json_root(report->trials[index]), "trial"), &trial) && best == trial;
}

/* Appends the table of trials. Its columns are the members of the first trial's line. */
static void append_trials(const struct pl_report *report, struct pl_text *html)
{
    PL_AUTO_TEXT struct pl_text title = PL_TEXT_NONE;
    struct pl_json_value first, item;

    if (report->trial_count == 0) {
        return;
    }
    pl_text_printf(&title, "Sweep: %zu trial%s", report->all_trials, report->all_trials == 1 ? "" : "s");
    pl_html_section(html, pl_text_string(&title));
    if (report->best) {
        pl_text_append(html, "<p>Best: ");
        pl_html_element(html, "b", NULL, report->best);
        pl_text_append(html, "</p>\n");
    }
    pl_text_append(html, "<div class=\"table\"><table><thead><tr>");
    first = pl_json_root(report->trials[0]);
    for (item = pl_json_first(first); pl_json_exists(item); item = pl_json_next(item)) {
        if (is_told(report, pl_json_name(item))) {
            pl_text_append(html, pl_json_kind(item) == PL_JSON_NUMBER ? "<th scope=\"col\" class=\"number\">"
                                                                      : "<th scope=\"col\">");
            pl_html_text(html, pl_json_name(item));
            pl_text_append(html, "</th>");
        }
    }
    pl_text_append(html, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < report->trial_count; i++) {
        pl_text_append(html, is_best(report, i) ? "<tr class=\"best\">" : "<tr>");
        for (item = pl_json_first(first); pl_json_exists(item); item = pl_json_next(item)) {
            if (is_told(report, pl_json_name(item))) {
                const struct pl_json_value value = pl_json_member(pl_json_root(report->trials[i]), pl_json_name(item));

                pl_text_append(html, pl_json_kind(value) == PL_JSON_NUMBER   ? "<td class=\"number\">"
                                     : pl_json_kind(value) == PL_JSON_STRING ? "<td class=\"word\">"
                                                                             : "<td>");
                append_value(html, value);
                pl_text_append(html, "</td>");
            }
        }
        pl_text_append(html, "</tr>\n");
    }
    pl_html_table_end(html);
    if (report->all_trials > report->trial_count) {
        pl_text_printf(html, "<p>The first %zu of %zu trials; trials.jsonl has all.</p>\n", report->trial_count,
                       report->all_trials);
    }
    pl_text_append(html, "</section>\n");
}

static void append_notes(struct pl_text *html, const char *title, const struct pl_report_notes *notes)
{
    if (notes->all == 0) {
        return;
    }
    pl_html_section(html, title);
    pl_text_append(html, "<ul>\n");
    for (size_t i = 0; i < notes->texts.count; i++) {
        pl_html_element(html, "li", NULL, notes->texts.items[i]);
        pl_text_append(html, "\n");
    }
    pl_text_append(html, "</ul>\n");
    if (notes->all > notes->texts.count) {
        pl_text_printf(html, "<p>The first %zu of %zu.</p>\n", notes->texts.count, notes->all);
    }
    pl_text_append(html, "</section>\n");
}

/* Appends a row for each member, except settings of Paceline's with their default. Secrets are not shown. */
static size_t append_settings(struct pl_text *html, struct pl_json_value object)
{
    size_t count = 0;

    for (struct pl_json_value item = pl_json_first(object); pl_json_exists(item); item = pl_json_next(item)) {
        const char *name = pl_json_name(item), *text = NULL;

        if (!name || (pl_json_text(item, &text, NULL) == PL_OK && pl_settings_is_default(name, text))) {
            continue;
        }
        pl_text_append(html, "<tr><td class=\"wide\">");
        pl_html_text(html, name);
        pl_text_append(html, "</td><td class=\"wide\">");
        if (pl_secrets_is_name(name)) {
            pl_text_append(html, "***");
        } else {
            append_value(html, item);
        }
        pl_text_append(html, "</td></tr>\n");
        count++;
    }
    return count;
}

static void append_all_settings(const struct pl_report *report, struct pl_text *html)
{
    static const char *const names[] = {"name", "value", NULL};
    const struct pl_json_value none = {.document = NULL};
    const struct pl_json_value job = report->job ? pl_json_root(report->job) : none;
    const struct pl_json_value given = report->job               ? pl_json_member(job, "HyperParameters")
                                       : report->hyperparameters ? pl_json_root(report->hyperparameters)
                                                                 : none;
    size_t count;

    pl_html_section(html, "Hyperparameters and settings");
    pl_text_append(
        html,
        "<p class=\"soft small\">What the job sets. Settings of Paceline's with their default are left out.</p>\n");
    pl_html_table(html, names);
    count = append_settings(html, given);
    count += report->job ? append_settings(html, pl_json_member(job, "Environment")) : 0;
    pl_html_table_end(html);
    if (count == 0) {
        pl_text_append(html, "<p>None.</p>\n");
    }
    pl_text_append(html, "</section>\n");
}

void pl_report_page(const struct pl_report *report, struct pl_text *html)
{
    pl_text_append(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
                         "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    pl_html_text(html, report->name);
    pl_text_append(html, " - Paceline</title>\n<style>");
    pl_text_append(html, pl_report_style);
    pl_text_append(html, "</style>\n</head>\n<body>\n<main>\n");
    append_head(report, html);
    append_trials(report, html);
    append_metrics(report, html);
    append_ranks(report, html);
    append_notes(html, "Resumed", &report->resumes);
    append_notes(html, "Warnings", &report->warnings);
    append_all_settings(report, html);
    append_notes(html, "Not in this report", &report->problems);
    pl_text_printf(html, "<footer><p>Written by Paceline %s.</p></footer>\n</main>\n</body>\n</html>\n", pl_version);
}
