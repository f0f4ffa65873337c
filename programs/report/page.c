/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a report as one HTML page. */
#include "base/memory.h"
#include "entrypoint/job/secrets.h"
#include "entrypoint/version.h"
#include "programs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The coordinates of a curve: whole numbers, which are short. */
enum { CURVE_WIDTH = 10000, CURVE_HEIGHT = 1000, MOST_ROWS = 100, CELL_BYTES = 400 };

/* Colours have a contrast of 4.5 and more with their background, light and dark: tests/integration/report.py. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--panel:#ffffff;--text:#16191d;--soft:#565e68;--line:#d9dde3;"
    "--accent:#0b5fa5;--good:#146c2e;--bad:#a8201a;--warn:#7a5200;--computes:#0b5fa5;--data:#b45309;--saves:#7c3aed;"
    "--waits:#c2c8d0;--moves:#0f766e}"
    "@media(prefers-color-scheme:dark){:root{--page:#121417;--panel:#1b1e23;--text:#e7eaee;--soft:#a4adb8;"
    "--line:#343a43;--accent:#74b6f2;--good:#7ddb97;--bad:#ff9a92;--warn:#f0c368;--computes:#74b6f2;--data:#f0a04b;"
    "--saves:#b79bff;--waits:#4a525d;--moves:#4fc3b0}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:62rem;margin:0 auto;padding:2rem 1rem 3rem}"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 .4rem;overflow-wrap:anywhere}"
    "h2{font-size:1.1rem;margin:0 0 .8rem}"
    "h3{font-size:1rem;margin:0;overflow-wrap:anywhere}"
    "p{margin:.4rem 0}"
    "section,header{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:1.2rem;"
    "margin:0 0 1rem}"
    ".status{font-weight:600}.Completed{color:var(--good)}.Failed{color:var(--bad)}.Stopped,.Interrupted{"
    "color:var(--warn)}"
    ".soft,figcaption p,footer{color:var(--soft)}.small{font-size:.85rem}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.6rem 0 0;padding:.8rem;border:1px solid var(--line);"
    "border-radius:6px;font:.85rem/1.45 ui-monospace,monospace;background:var(--page)}"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(7rem,1fr));gap:.8rem;margin:1rem 0 0}"
    "dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-weight:600;overflow-wrap:anywhere}"
    ".curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem 2rem}"
    "figure{margin:0;min-width:0;break-inside:avoid}"
    "figcaption p{margin:0;font-size:.85rem}"
    ".plot{display:grid;grid-template-columns:auto 1fr;gap:.2rem .5rem;margin:.5rem 0;font-size:.75rem;"
    "color:var(--soft);font-variant-numeric:tabular-nums}"
    ".y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;line-height:1}"
    ".x{grid-column:2;display:flex;justify-content:space-between}"
    ".plot svg{width:100%;height:9rem;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}"
    ".bar svg{display:block;width:100%;min-width:9rem;height:.9rem}"
    ".grid{stroke:var(--line);fill:none;vector-effect:non-scaling-stroke}"
    ".range{fill:var(--accent);fill-opacity:.3;stroke:var(--accent);stroke-width:1;vector-effect:non-scaling-stroke}"
    ".value{fill:none;stroke:var(--accent);stroke-width:2;stroke-linejoin:round;vector-effect:non-scaling-stroke}"
    ".table{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}"
    "th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{color:var(--soft);font-weight:600}"
    ".number{text-align:right;white-space:nowrap}"
    ".wide{overflow-wrap:anywhere}"
    "summary{cursor:pointer;color:var(--accent);font-size:.85rem}"
    "ul{margin:.4rem 0;padding-left:1.2rem}li{overflow-wrap:anywhere;margin:.2rem 0}"
    ".key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.3rem;vertical-align:-.05rem}"
    ".keys span{margin-right:1rem;white-space:nowrap}"
    ".computes{fill:var(--computes);background:var(--computes)}.data{fill:var(--data);background:var(--data)}"
    ".saves{fill:var(--saves);background:var(--saves)}.waits{fill:var(--waits);background:var(--waits)}"
    ".moves{fill:var(--moves);background:var(--moves)}"
    "footer{font-size:.85rem}"
    "@media print{:root{color-scheme:light}body{background:none;font-size:11pt}main{max-width:none;padding:0}"
    "section,header{border:0;padding:0;margin:0 0 1.2rem}.key{print-color-adjust:exact}}";

/* Appends text from outside: what is no UTF-8, and control characters but a line feed and a tab, become '?'. */
static void append_text_n(struct pl_text *html, const char *text, size_t length)
{
    const char *end = text + length;

    for (const char *at = text; at < end;) {
        const size_t control = pl_text_control_bytes(at, end), bytes = pl_text_character_bytes(at, end);

        if (*at == '&') {
            pl_text_append(html, "&amp;");
        } else if (*at == '<') {
            pl_text_append(html, "&lt;");
        } else if (*at == '>') {
            pl_text_append(html, "&gt;");
        } else if (*at == '"') {
            pl_text_append(html, "&quot;");
        } else if (bytes == 0 || (control > 0 && *at != '\n' && *at != '\t')) {
            pl_text_append_char(html, '?');
        } else {
            pl_text_append_n(html, at, bytes);
        }
        at += control > bytes ? control : bytes > 0 ? bytes : 1;
    }
}

static void append_text(struct pl_text *html, const char *text)
{
    append_text_n(html, text, strlen(text));
}

/* Appends `<NAME class="CLASS">TEXT</NAME>`; the first two are ours. */
static void append_element(struct pl_text *html, const char *name, const char *class, const char *text)
{
    pl_text_printf(html, class ? "<%s class=\"%s\">" : "<%s>", name, class);
    append_text(html, text);
    pl_text_printf(html, "</%s>", name);
}

static void append_number_cell(struct pl_text *html, double number)
{
    pl_text_printf(html, "<td class=\"number\">%.6g</td>", number);
}

static void begin_section(struct pl_text *html, const char *title)
{
    pl_text_append(html, "<section>\n");
    append_element(html, "h2", NULL, title);
    pl_text_append(html, "\n");
}

/* `names` ends with NULL; those that begin with '#' are above numbers. */
static void begin_table(struct pl_text *html, const char *const *names)
{
    pl_text_append(html, "<div class=\"table\"><table><thead><tr>");
    for (; *names; names++) {
        const bool number = **names == '#';

        pl_text_append(html, number ? "<th scope=\"col\" class=\"number\">" : "<th scope=\"col\">");
        append_text(html, *names + number);
        pl_text_append(html, "</th>");
    }
    pl_text_append(html, "</tr></thead><tbody>\n");
}

static void end_table(struct pl_text *html)
{
    pl_text_append(html, "</tbody></table></div>\n");
}

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
        append_text_n(html, text, strnlen(text, CELL_BYTES));
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
                append_text(html, pl_json_name(item));
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
    append_element(html, "dt", NULL, name);
    append_element(html, "dd", NULL, pl_text_string(&value));
    pl_text_append(html, "</div>\n");
}

static void append_seconds(struct pl_text *html, const struct pl_json *job)
{
    const struct pl_json_value all =
        job ? pl_json_member(pl_json_root(job), "seconds") : (struct pl_json_value){.document = NULL};
    double seconds;

    for (struct pl_json_value item = pl_json_first(all); pl_json_exists(item); item = pl_json_next(item)) {
        if (number_of(item, &seconds) && pl_json_name(item)) {
            append_fact(html, pl_json_name(item), "%.1f s", seconds);
        }
    }
}

static void append_head(const struct pl_report *report, struct pl_text *html)
{
    const char *status = text_member(report->job, "TrainingJobStatus");
    const char *second = text_member(report->job, "SecondaryStatus");
    const char *reason = text_member(report->job, "FailureReason");

    pl_text_append(html, "<header>\n");
    append_element(html, "h1", NULL, report->name);
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
        append_text(html, status);
        if (second && strcmp(second, status) != 0) {
            pl_text_append(html, " (");
            append_text(html, second);
            pl_text_append(html, ")");
        }
        pl_text_append(html, "</p>\n");
    }
    if (report->launch) {
        append_element(html, "p", "soft", report->launch);
    }
    if (reason) {
        append_element(html, "pre", NULL, reason);
    }
    pl_text_append(html, "\n<dl>\n");
    append_fact(html, "hosts", "%zu", report->hosts);
    if (report->rank_count > 0) {
        append_fact(html, "ranks with a trace", "%zu", report->rank_count);
    }
    append_seconds(html, report->job);
    pl_text_append(html, "</dl>\n</header>\n");
}

/* ---- curves ---- */

struct frame {
    double left, right, low, high;
};

static double part_of(double value, double low, double high)
{
    return high > low ? (value - low) / (high - low) : 0.5;
}

static void append_point(struct pl_text *html, const struct frame *frame, double x, double y)
{
    pl_text_printf(html, "%d,%d ", (int)lround(part_of(x, frame->left, frame->right) * CURVE_WIDTH),
                   (int)lround((1.0 - part_of(y, frame->low, frame->high)) * CURVE_HEIGHT));
}

static void append_curve(struct pl_text *html, const struct pl_series *series, const struct frame *frame)
{
    pl_text_printf(html,
                   "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path class=\"grid\" "
                   "d=\"M0 0H%d M0 %dH%d\"/>",
                   CURVE_WIDTH, CURVE_HEIGHT, CURVE_WIDTH, CURVE_HEIGHT / 2, CURVE_WIDTH);
    if (series->width > 1) { /* up along the highest values, back along the lowest */
        pl_text_append(html, "<polygon class=\"range\" points=\"");
        for (size_t i = 0; i < series->used; i++) {
            append_point(html, frame, series->stretches[i].most_x, series->stretches[i].most);
        }
        for (size_t i = series->used; i-- > 0;) {
            append_point(html, frame, series->stretches[i].least_x, series->stretches[i].least);
        }
    } else {
        pl_text_append(html, "<polyline class=\"value\" points=\"");
        for (size_t i = 0; i < series->used; i++) {
            append_point(html, frame, series->stretches[i].first_x, series->stretches[i].last);
        }
        if (series->used == 1) { /* a line that one sees */
            pl_text_printf(html, "0,%d %d,%d ", CURVE_HEIGHT / 2, CURVE_WIDTH, CURVE_HEIGHT / 2);
        }
    }
    pl_text_append(html, "\"/></svg>\n");
}

static void append_numbers(struct pl_text *html, const struct pl_series *series)
{
    static const char *const names[] = {"#from", "#to", "#lowest", "#highest", "#last", NULL};
    const size_t group = (series->used + MOST_ROWS - 1) / MOST_ROWS;

    pl_text_append(html, "<details><summary>Numbers</summary>\n");
    begin_table(html, names);
    for (size_t i = 0; i < series->used; i += group) {
        struct pl_series_stretch row = series->stretches[i];

        for (size_t k = i + 1; k < i + group && k < series->used; k++) {
            row.least = fmin(row.least, series->stretches[k].least);
            row.most = fmax(row.most, series->stretches[k].most);
            row.last = series->stretches[k].last;
            row.last_x = series->stretches[k].last_x;
        }
        pl_text_append(html, "<tr>");
        pl_text_printf(html, "<td class=\"number\">%.10g</td><td class=\"number\">%.10g</td>", row.first_x, row.last_x);
        append_number_cell(html, row.least);
        append_number_cell(html, row.most);
        append_number_cell(html, row.last);
        pl_text_append(html, "</tr>\n");
    }
    end_table(html);
    pl_text_append(html, "</details>\n");
}

static void append_series(struct pl_text *html, const struct pl_series *series)
{
    const struct frame frame = {.left = series->stretches[0].first_x,
                                .right = series->stretches[series->used - 1].last_x,
                                .low = series->least,
                                .high = series->most};

    pl_text_append(html, "<figure><figcaption>");
    append_element(html, "h3", NULL, series->name);
    pl_text_printf(html, "<p>last %.6g, lowest %.6g, highest %.6g, %" PRIu64 " value%s", series->last, series->least,
                   series->most, series->count, series->count == 1 ? "" : "s");
    if (series->not_finite > 0) {
        pl_text_printf(html, ", and %" PRIu64 " that %s no number", series->not_finite,
                       series->not_finite == 1 ? "is" : "are");
    }
    pl_text_append(html, "</p></figcaption>\n<div class=\"plot\"><div class=\"y\">");
    pl_text_printf(html, "<span>%.4g</span><span>%.4g</span><span>%.4g</span></div>\n", series->most,
                   series->least + (series->most - series->least) / 2, series->least);
    append_curve(html, series, &frame);
    pl_text_printf(html, "<div class=\"x\"><span>%.10g</span><span>%.10g</span></div></div>\n", frame.left,
                   frame.right);
    if (*series->first_line != '{') { /* a line of metrics.jsonl says no more than its name */
        pl_text_append(html, "<p class=\"soft small wide\">First in: ");
        append_text(html, series->first_line);
        pl_text_append(html, "</p>\n");
    }
    append_numbers(html, series);
    pl_text_append(html, "</figure>\n");
}

static void append_metrics(const struct pl_report *report, struct pl_text *html)
{
    size_t shown = 0;

    begin_section(html, "Metrics");
    pl_text_append(html, "<p class=\"soft small\">");
    pl_text_append(html, report->has_definitions ? "By the job's MetricDefinitions"
                         : report->has_json      ? "The job has no MetricDefinitions: these are the numbers of its "
                                                   "metrics.jsonl"
                                                 : "The job has no MetricDefinitions: these are the words NAME=NUMBER "
                                                   "of its log");
    pl_text_append(html, ", from left to right over the step of the line, else over the number of the value.</p>\n");
    pl_text_append(html, "<div class=\"curves\">\n");
    for (size_t i = 0; i < report->series_count; i++) {
        if (report->series[i]->count > 0) {
            append_series(html, report->series[i]);
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
            append_text(html, report->series[i]->name);
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

static const char *const share_names[] = {"computes", "data", "saves", "waits", "moves"};
static const char *const share_titles[] = {"computes", "waits for data", "saves", "waits for ranks", "moves data"};

static void append_bar(struct pl_text *html, const double shares[static PL_ARRAY_ITEMS(share_names)])
{
    double at = 0;

    pl_text_append(html, "<td class=\"bar\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
                         "aria-hidden=\"true\">");
    for (size_t i = 0; i < PL_ARRAY_ITEMS(share_names); i++) {
        pl_text_printf(html, "<rect class=\"%s\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"10\"/>", share_names[i],
                       at * 10, shares[i] * 10);
        at += shares[i];
    }
    pl_text_append(html, "</svg></td>");
}

static void append_ranks(const struct pl_report *report, struct pl_text *html)
{
    static const char *const names[] = {"#rank",  "#host",  "time",   "#computes",   "#data",
                                        "#saves", "#waits", "#moves", "#times late", NULL};

    begin_section(html, "Time by rank");
    if (report->rings == 0) {
        pl_text_append(html, "<p class=\"soft\">There are no traces. With the variable "
                             "PACELINE_TRACE=/opt/ml/output/data/trace.json ranks of Paceline's library and of "
                             "Horovod leave some.</p>\n</section>\n");
        return;
    }
    pl_text_append(html, "<p>");
    append_text(html, pl_text_string(&report->comparison));
    pl_text_append(html, "</p>\n");
    if (report->rank_count > 0) {
        pl_text_append(html, "<p class=\"soft small keys\">");
        for (size_t i = 0; i < PL_ARRAY_ITEMS(share_names); i++) {
            pl_text_printf(html, "<span><i class=\"key %s\"></i>%s</span> ", share_names[i], share_titles[i]);
        }
        pl_text_append(html, "</p>\n");
        begin_table(html, names);
    }
    for (size_t i = 0; i < report->rank_count; i++) {
        const struct pl_trace_rank *rank = &report->ranks[i];
        const double shares[] = {rank->computes, rank->data, rank->saves, rank->waits, rank->moves};

        pl_text_printf(html, "<tr><td class=\"number\">%d</td><td class=\"number\">%d</td>", rank->rank, rank->host);
        append_bar(html, shares);
        for (size_t k = 0; k < PL_ARRAY_ITEMS(shares); k++) {
            pl_text_printf(html, "<td class=\"number\">%.1f %%</td>", shares[k]);
        }
        pl_text_printf(html, "<td class=\"number\">%" PRIu64 "</td></tr>\n", rank->late);
    }
    if (report->rank_count > 0) {
        end_table(html);
    }
    pl_text_append(html, "</section>\n");
}

/* ---- tables and lists ---- */

/* The columns are the members of the first trial's line. */
static void append_trials(const struct pl_report *report, struct pl_text *html)
{
    PL_AUTO_TEXT struct pl_text title = PL_TEXT_NONE;
    struct pl_json_value first, item;

    if (report->trial_count == 0) {
        return;
    }
    pl_text_printf(&title, "Sweep: %zu trial%s", report->all_trials, report->all_trials == 1 ? "" : "s");
    begin_section(html, pl_text_string(&title));
    pl_text_append(html, "<div class=\"table\"><table><thead><tr>");
    first = pl_json_root(report->trials[0]);
    for (item = pl_json_first(first); pl_json_exists(item); item = pl_json_next(item)) {
        pl_text_append(html, "<th scope=\"col\">");
        append_text(html, pl_json_name(item));
        pl_text_append(html, "</th>");
    }
    pl_text_append(html, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < report->trial_count; i++) {
        pl_text_append(html, "<tr>");
        for (item = pl_json_first(first); pl_json_exists(item); item = pl_json_next(item)) {
            pl_text_append(html, "<td>");
            append_value(html, pl_json_member(pl_json_root(report->trials[i]), pl_json_name(item)));
            pl_text_append(html, "</td>");
        }
        pl_text_append(html, "</tr>\n");
    }
    end_table(html);
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
    begin_section(html, title);
    pl_text_append(html, "<ul>\n");
    for (size_t i = 0; i < notes->count; i++) {
        append_element(html, "li", NULL, notes->texts[i]);
        pl_text_append(html, "\n");
    }
    pl_text_append(html, "</ul>\n");
    if (notes->all > notes->count) {
        pl_text_printf(html, "<p>The first %zu of %zu.</p>\n", notes->count, notes->all);
    }
    pl_text_append(html, "</section>\n");
}

/* A row for each member of an object. Secrets are not shown. */
static size_t append_settings(struct pl_text *html, struct pl_json_value object)
{
    size_t count = 0;

    for (struct pl_json_value item = pl_json_first(object); pl_json_exists(item); item = pl_json_next(item)) {
        const char *name = pl_json_name(item);

        if (!name) {
            continue;
        }
        pl_text_append(html, "<tr><td class=\"wide\">");
        append_text(html, name);
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

    begin_section(html, "Hyperparameters and settings");
    pl_text_append(html, "<p class=\"soft small\">What the job sets; all else has its default.</p>\n");
    begin_table(html, names);
    count = append_settings(html, given);
    count += report->job ? append_settings(html, pl_json_member(job, "Environment")) : 0;
    end_table(html);
    if (count == 0) {
        pl_text_append(html, "<p>None.</p>\n");
    }
    pl_text_append(html, "</section>\n");
}

void pl_report_page(const struct pl_report *report, struct pl_text *html)
{
    pl_text_append(html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
                         "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    append_text(html, report->name);
    pl_text_append(html, " - Paceline</title>\n<style>");
    pl_text_append(html, style);
    pl_text_append(html, "</style>\n</head>\n<body>\n<main>\n");
    append_head(report, html);
    append_metrics(report, html);
    append_ranks(report, html);
    append_trials(report, html);
    append_notes(html, "Resumed", &report->resumes);
    append_notes(html, "Warnings", &report->warnings);
    append_all_settings(report, html);
    append_notes(html, "Not in this report", &report->problems);
    pl_text_printf(html, "<footer><p>Written by Paceline %s.</p></footer>\n</main>\n</body>\n</html>\n", pl_version);
}
