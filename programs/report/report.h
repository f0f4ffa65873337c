/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline report` knows of a job from its files, and the functions that make a page of it. All texts come from
 * outside: they enter the page through pl_html_text() alone, so that none of them becomes HTML.
 *
 * Test  tests/integration/report.py, tests/unit/programs/report/test_series.c
 */
#ifndef PL_PROGRAMS_REPORT_REPORT_H
#define PL_PROGRAMS_REPORT_REPORT_H

#include "base/json/json.h"
#include "base/text.h"
#include "entrypoint/job/strv.h"
#include "programs/report/summary.h"

enum {
    PL_REPORT_MOST_SERIES = 40, /* the most MetricDefinitions of a job */
    PL_REPORT_MOST_NOTES = 50,
    PL_REPORT_MOST_TRIALS = 500,
};

/** A list of texts; `all` also counts texts for which there was no room. */
struct pl_report_notes {
    struct pl_strv texts;
    size_t all;
};

/*
 * The values of a metric in bounded memory: the lowest, the highest and the last value of each stretch of equally many
 * values. When there is no room for another stretch, each two neighbouring stretches become one.
 */

enum {
    PL_SERIES_STRETCHES = 1000, /* an even number; a curve has at most two points of each stretch */
    PL_SERIES_NAME_BYTES = 64,
    PL_SERIES_LINE_BYTES = 160,
};

struct pl_series_stretch {
    double first_x, last_x;
    double least, least_x, most, most_x, last;
    uint64_t count;
    unsigned line; /* `line` of the series at its first value */
};

/** Zero-initialise, and set `name`, and `has_steps` with the first value. */
struct pl_series {
    char name[PL_SERIES_NAME_BYTES + 1];
    char first_line[PL_SERIES_LINE_BYTES + 1]; /* the line of the log with the first value */
    uint64_t count;                            /* finite values */
    uint64_t not_finite;
    unsigned line,
        lines;      /* the curve's line of the next value, and the number of lines: each trial of a sweep has a line */
    bool has_steps; /* x is a step, not the number of the value */
    double first, last, least, most;
    uint64_t width; /* number of values in a full stretch */
    size_t used;
    struct pl_series_stretch stretches[PL_SERIES_STRETCHES];
};

/** Adds the value `y` at `x`, the step or the number of the value. NaN and infinities are only counted. */
void pl_series_add(struct pl_series *series, double x, double y);

/** Zero-initialise. */
struct pl_report {
    struct pl_json *job;    /* job.json, which `paceline local` writes; NULL if absent */
    struct pl_json *config; /* resourceconfig.json of a tree; NULL if absent */
    struct pl_json *hyperparameters;
    char *name;    /* name of the job; if that is unknown, of the folder */
    char *failure; /* text of a failure file; NULL if there is none */
    char *launch;  /* version, launcher, ranks and hosts, from the log's first line; NULL if unknown */
    char *best;    /* a sweep's last line: "best_accuracy=0.9 trial=4"; NULL if there is none */
    size_t hosts, logs;
    bool has_definitions; /* the job has MetricDefinitions */
    bool has_throughput;  /* `series` has throughput from metrics.jsonl besides MetricDefinitions */
    bool has_json;        /* the job wrote its metrics as JSON: words of its log would repeat them */
    struct pl_series *series[PL_REPORT_MOST_SERIES];
    size_t series_count;
    uint64_t left_out;                        /* number of values of metrics for which there was no room */
    struct pl_report_notes warnings, resumes; /* lines of the log */
    size_t rings, trial_rings;                /* number of trace rings, of the job itself and of its trials */
    struct pl_text comparison;                /* the sentences of pl_trace_compare() */
    struct pl_trace_rank *ranks;
    size_t rank_count;
    struct pl_json *trials[PL_REPORT_MOST_TRIALS];
    size_t trial_count, all_trials;
    struct pl_report_notes problems; /* files that could not be read */
};

/** Reads the folder of a job of `paceline local`, or a tree as /opt/ml. Errors: PL_NOT_FOUND if it is neither. */
enum pl_status pl_report_read(const char *folder, struct pl_report *report, struct pl_error *reterr) PL_MUST_CHECK;

void pl_report_done(struct pl_report *report);

/** Appends the page: one HTML file without scripts and without addresses of other files. */
void pl_report_page(const struct pl_report *report, struct pl_text *html);

/**
 * Unpacks metrics.jsonl, trials.jsonl and all rings of the archive `path` into `folder`. Each '/' of a name becomes
 * '-', so that no archive can write outside of `folder`.
 *
 * Errors  PL_LIBRARY (not such an archive), PL_SYSTEM.
 */
enum pl_status pl_packed_take(const char *path, const char *folder, struct pl_error *reterr) PL_MUST_CHECK;

/* ---- html.c: elements of a page ---- */

/** Appends text from outside: what is not UTF-8, and control characters except a line feed and a tab, become '?'. */
void pl_html_text(struct pl_text *html, const char *text);

/** pl_html_text() for `length` bytes. */
void pl_html_text_n(struct pl_text *html, const char *text, size_t length);

/** Appends `<NAME class="CLASS">TEXT</NAME>`; `name` and `class` are our own words, and `class` may be NULL. */
void pl_html_element(struct pl_text *html, const char *name, const char *class, const char *text);

/** Begins a section, which the caller ends by `</section>`. */
void pl_html_section(struct pl_text *html, const char *title);

/** Begins a table. `names` ends with NULL; those that begin with '#' are above numbers. */
void pl_html_table(struct pl_text *html, const char *const *names);

void pl_html_table_end(struct pl_text *html);

/** Appends the curve of a series that has at least one value. */
void pl_html_curve(struct pl_text *html, const struct pl_series *series);

#endif
