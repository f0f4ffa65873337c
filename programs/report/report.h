/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline report` knows of a job, from its files. All of it is text from outside: programs/report/page.c alone
 * makes HTML of it.
 */
#ifndef PL_PROGRAMS_REPORT_REPORT_H
#define PL_PROGRAMS_REPORT_REPORT_H

#include "base/json/json.h"
#include "base/text.h"
#include "programs/report/series.h"
#include "programs/trace/summary.h"

enum {
    PL_REPORT_MOST_SERIES = 40, /* as many as a job may have MetricDefinitions */
    PL_REPORT_MOST_NOTES = 50,
    PL_REPORT_MOST_TRIALS = 500,
};

/** A list of texts; `all` counts those for which there was no room too. */
struct pl_report_notes {
    char *texts[PL_REPORT_MOST_NOTES];
    size_t count, all;
};

/** Zero-initialise. */
struct pl_report {
    struct pl_json *job;    /* job.json, which `paceline local` writes; NULL */
    struct pl_json *config; /* resourceconfig.json of a tree; NULL */
    struct pl_json *hyperparameters;
    char *name;    /* of the job; else of the folder */
    char *failure; /* a failure file; NULL */
    char *launch;  /* from the first line of the log: version, launcher, ranks and hosts; NULL */
    char *best;    /* a sweep's last line: "best_accuracy=0.9 trial=4"; NULL */
    size_t hosts, logs;
    bool has_definitions; /* the job has MetricDefinitions */
    bool has_throughput;  /* beside MetricDefinitions, of metrics.jsonl */
    bool has_json;        /* the job wrote its metrics as JSON: words of its log would be the same ones */
    struct pl_series *series[PL_REPORT_MOST_SERIES];
    size_t series_count;
    uint64_t left_out;                        /* values of further names */
    struct pl_report_notes warnings, resumes; /* lines of the log */
    size_t rings, trial_rings;                /* each trial has traces of its own */
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

#endif
