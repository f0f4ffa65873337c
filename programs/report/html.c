/* SPDX-License-Identifier: Apache-2.0 */
/* Writes elements that several parts of a page have, and the curves of metrics. */
#include "programs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The coordinates of a curve: whole numbers, which are short. */
enum { CURVE_WIDTH = 10000, CURVE_HEIGHT = 1000, MOST_LINES = 5, MOST_DOTS = 60, MOST_ROWS = 100 };

void pl_html_text_n(struct pl_text *html, const char *text, size_t length)
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

void pl_html_text(struct pl_text *html, const char *text)
{
    pl_html_text_n(html, text, strlen(text));
}

void pl_html_element(struct pl_text *html, const char *name, const char *class, const char *text)
{
    pl_text_printf(html, class ? "<%s class=\"%s\">" : "<%s>", name, class);
    pl_html_text(html, text);
    pl_text_printf(html, "</%s>", name);
}

static void number_cell(struct pl_text *html, double number)
{
    pl_text_printf(html, "<td class=\"number\">%.6g</td>", number);
}

void pl_html_section(struct pl_text *html, const char *title)
{
    pl_text_append(html, "<section>\n");
    pl_html_element(html, "h2", NULL, title);
    pl_text_append(html, "\n");
}

void pl_html_table(struct pl_text *html, const char *const *names)
{
    pl_text_append(html, "<div class=\"table\"><table><thead><tr>");
    for (; *names; names++) {
        const bool number = **names == '#';

        pl_text_append(html, number ? "<th scope=\"col\" class=\"number\">" : "<th scope=\"col\">");
        pl_html_text(html, *names + number);
        pl_text_append(html, "</th>");
    }
    pl_text_append(html, "</tr></thead><tbody>\n");
}

void pl_html_table_end(struct pl_text *html)
{
    pl_text_append(html, "</tbody></table></div>\n");
}

/* ---- curves ---- */

struct frame {
    double left, right, low, high;
    double step; /* distance of two lines; 0: there is only one value */
    int lines;
};

/* Returns a step of 1, 2 or 5 times a power of ten, at most MOST_LINES of which are in `range`. */
static double round_step(double range)
{
    const double raw = range / (MOST_LINES - 1), power = pow(10, floor(log10(raw))), factor = raw / power;

    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

/* The lines are at round numbers, the lowest at or below all values and the highest at or above them. */
static struct frame frame_of(const struct pl_series *series)
{
    struct frame frame = {.left = series->stretches[0].first_x, .right = series->stretches[0].last_x, .lines = 1};
    double step, low, high;

    for (size_t i = 0; i < series->used; i++) { /* a job that goes on after a checkpoint repeats steps */
        frame.left = fmin(frame.left, series->stretches[i].first_x);
        frame.right = fmax(frame.right, series->stretches[i].last_x);
    }
    frame.low = series->least;
    frame.high = series->most;
    step = round_step(frame.high - frame.low);
    low = floor(frame.low / step) * step;
    high = ceil(frame.high / step) * step;
    if (isfinite(low) && isfinite(high) && high > low && (high - low) / step < MOST_LINES + 1) {
        frame.low = low;
        frame.high = high;
        frame.step = step;
        frame.lines = (int)lround((high - low) / step) + 1;
    }
    return frame;
}

static double part_of(double value, double low, double high)
{
    return high > low ? (value - low) / (high - low) : 0.5;
}

static void append_point(struct pl_text *html, const struct frame *frame, double x, double y)
{
    pl_text_printf(html, "%d,%d ", (int)lround(part_of(x, frame->left, frame->right) * CURVE_WIDTH),
                   (int)lround((1.0 - part_of(y, frame->low, frame->high)) * CURVE_HEIGHT));
}

/* Whether the curve has several lines: a sweep's trials print their values in turn, and each has a line. */
static bool has_lines(const struct pl_series *series)
{
    return series->lines > 1;
}

/* Whether the stretch does not continue the one before it: another host's log, or steps that are repeated. */
static bool goes_back(const struct pl_series *series, size_t i)
{
    return i > 0 && series->stretches[i].first_x < series->stretches[i - 1].last_x;
}

/* Appends the area of a curve: up along the highest values, and back along the lowest. */
static void append_range(struct pl_text *html, const struct pl_series *series, const struct frame *frame)
{
    for (size_t begin = 0, end; begin < series->used; begin = end) {
        pl_text_append(html, "<polygon class=\"range\" points=\"");
        for (end = begin; end < series->used && (end == begin || !goes_back(series, end)); end++) {
            append_point(html, frame, series->stretches[end].most_x, series->stretches[end].most);
        }
        for (size_t i = end; i-- > begin;) {
            append_point(html, frame, series->stretches[i].least_x, series->stretches[i].least);
        }
        pl_text_append(html, "\"/>");
    }
}

/* Appends the line of one trial. Values between its own belong to other trials. */
static void append_line_of(struct pl_text *html, const struct pl_series *series, const struct frame *frame,
                           unsigned line)
{
    const struct pl_series_stretch *before = NULL;

    for (size_t i = 0; i < series->used; i++) {
        const struct pl_series_stretch *stretch = &series->stretches[i];

        if (stretch->line == line) {
            pl_text_append(html, !before || stretch->first_x < before->first_x ? "M" : "");
            append_point(html, frame, stretch->first_x, stretch->last);
            before = stretch;
        }
    }
}

static void append_line(struct pl_text *html, const struct pl_series *series, const struct frame *frame)
{
    if (series->used > 1) {
        pl_text_append(html, "<path class=\"value\" d=\"");
        for (unsigned line = 0; line < series->lines; line++) {
            append_line_of(html, series, frame, line);
        }
        pl_text_append(html, "\"/>");
    }
    if (series->used <= MOST_DOTS) {
        pl_text_append(html, "<path class=\"dots\" d=\"");
        for (size_t i = 0; i < series->used; i++) {
            pl_text_append(html, "M");
            append_point(html, frame, series->stretches[i].first_x, series->stretches[i].last);
            pl_text_append(html, "h0");
        }
        pl_text_append(html, "\"/>");
    }
}

/* For many values of several trials: appends dots for the lowest and the highest of each stretch. */
static void append_cloud(struct pl_text *html, const struct pl_series *series, const struct frame *frame)
{
    pl_text_append(html, "<path class=\"dots small\" d=\"");
    for (size_t i = 0; i < series->used; i++) {
        pl_text_append(html, "M");
        append_point(html, frame, series->stretches[i].least_x, series->stretches[i].least);
        pl_text_append(html, "h0M");
        append_point(html, frame, series->stretches[i].most_x, series->stretches[i].most);
        pl_text_append(html, "h0");
    }
    pl_text_append(html, "\"/>");
}

static void append_curve(struct pl_text *html, const struct pl_series *series, const struct frame *frame)
{
    pl_text_printf(html,
                   "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path class=\"grid\" "
                   "d=\"",
                   CURVE_WIDTH, CURVE_HEIGHT);
    for (int i = 0; i + 1 < frame->lines; i++) {
        pl_text_printf(html, "M0 %dH%d", (int)lround((double)CURVE_HEIGHT * i / (frame->lines - 1)), CURVE_WIDTH);
    }
    pl_text_append(html, "\"/>");
    if (series->width > 1 && has_lines(series)) {
        append_cloud(html, series, frame);
    } else if (series->width > 1) {
        append_range(html, series, frame);
    } else {
        append_line(html, series, frame);
    }
    pl_text_append(html, "</svg>\n");
}

/* Appends the labels. The label of a single value is in the middle. */
static void append_labels(struct pl_text *html, const struct frame *frame)
{
    pl_text_append(html, "<div class=\"y\">");
    if (frame->step == 0) {
        pl_text_printf(html, "<span></span><span>%.6g</span><span></span>", frame->low / 2 + frame->high / 2);
    }
    for (int i = frame->lines; i-- > 0 && frame->step > 0;) { /* a product, so that 0 is exactly 0 */
        pl_text_printf(html, "<span>%.6g</span>", (round(frame->low / frame->step) + i) * frame->step);
    }
    pl_text_append(html, "</div>\n");
}

static const char *x_title(const struct pl_series *series)
{
    return series->has_steps ? "step" : "number of the value";
}

static void append_numbers(struct pl_text *html, const struct pl_series *series)
{
    static const char *const stretches[] = {"#from", "#to", "#lowest", "#highest", "#last", NULL};
    const char *const values[] = {series->has_steps ? "#step" : "#number", "#value", NULL};
    const size_t group = (series->used + MOST_ROWS - 1) / MOST_ROWS;
    const bool single = series->width == 1 && group == 1;

    pl_text_append(html, "<details><summary>Numbers</summary>\n");
    pl_html_table(html, single ? values : stretches);
    for (size_t i = 0; i < series->used; i += group) {
        struct pl_series_stretch row = series->stretches[i];

        for (size_t k = i + 1; k < i + group && k < series->used; k++) {
            row.least = fmin(row.least, series->stretches[k].least);
            row.most = fmax(row.most, series->stretches[k].most);
            row.last = series->stretches[k].last;
            row.last_x = series->stretches[k].last_x;
        }
        pl_text_printf(html, "<tr><td class=\"number\">%.10g</td>", row.first_x);
        if (!single) {
            pl_text_printf(html, "<td class=\"number\">%.10g</td>", row.last_x);
            number_cell(html, row.least);
            number_cell(html, row.most);
        }
        number_cell(html, row.last);
        pl_text_append(html, "</tr>\n");
    }
    pl_html_table_end(html);
    if (*series->first_line != '{') { /* a line of metrics.jsonl says no more than its name */
        pl_text_append(html, "<p class=\"soft small wide\">The first value is in the line: ");
        pl_html_text(html, series->first_line);
        pl_text_append(html, "</p>\n");
    }
    pl_text_append(html, "</details>\n");
}

void pl_html_curve(struct pl_text *html, const struct pl_series *series)
{
    const struct frame frame = frame_of(series);

    pl_text_append(html, "<figure><figcaption>");
    pl_html_element(html, "h3", NULL, series->name);
    pl_text_printf(html, "<p>last <b>%.6g</b>, lowest %.6g, highest %.6g, %" PRIu64 " value%s", series->last,
                   series->least, series->most, series->count, series->count == 1 ? "" : "s");
    if (series->not_finite > 0) {
        pl_text_printf(html, ", and %" PRIu64 " that %s", series->not_finite,
                       series->not_finite == 1 ? "is not a number" : "are not numbers");
    }
    pl_text_append(html, "</p></figcaption>\n<div class=\"plot\">");
    append_labels(html, &frame);
    append_curve(html, series, &frame);
    pl_text_printf(html, "<div class=\"x\"><span>%.10g</span><span>%s</span><span>%.10g</span></div></div>\n",
                   frame.left, x_title(series), frame.right);
    append_numbers(html, series);
    pl_text_append(html, "</figure>\n");
}
