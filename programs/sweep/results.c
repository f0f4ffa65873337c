/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the results of a sweep as lines of JSON and as a table. */
#include "programs/sweep/results.h"

#include "base/json/python_json.h"
#include "base/memory.h"
#include "programs/sweep/space/root.h"
#include "programs/sweep/space/value.h"

#include <stdlib.h>
#include <string.h>

enum { REASON_SHOWN_BYTES = 60, STATE_COLUMNS = 9 };

/* A row of the table: a trial, or with seeds a point. */
struct row {
    size_t number; /* number of the trial or point */
    size_t first;  /* first trial of the point */
    size_t count;  /* number of trials with a value */
    size_t best;   /* the trial with the best value */
    double best_value;
    double mean, spread;
    bool failed; /* whether all its trials have failed */
    bool maximize;
};

static const char *state_text(const struct pl_scheduler *scheduler, size_t trial)
{
    enum pl_sweep_state state = pl_scheduler_progress(scheduler, trial)->state;

    return pl_sweep_state_text(state == PL_SWEEP_PAUSED && pl_scheduler_is_done(scheduler) ? PL_SWEEP_STOPPED : state);
}

static void append_step(struct pl_text *text, const char *name, bool is, int64_t step)
{
    if (is) {
        pl_text_printf(text, ", \"%s\": %lld", name, (long long)step);
    } else {
        pl_text_printf(text, ", \"%s\": null", name);
    }
}

enum pl_status pl_sweep_results_jsonl(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                                      const struct pl_sweep_record *records, struct pl_text *text,
                                      struct pl_error *reterr)
{
    for (size_t i = 0; i < space->trials_count; i++) {
        const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, i);

        pl_text_printf(text, "{\"trial\": %zu, \"point\": %zu, \"state\": \"%s\", \"hyperparameters\": %s, ", i,
                       space->trials[i].point, state_text(scheduler, i), space->trials[i].hyperparameters);
        pl_python_json_print_string(space->metric_name, text);
        pl_text_append(text, ": ");
        if (progress->has_value) {
            pl_python_json_print_double(progress->best, text);
        } else {
            pl_text_append(text, "null");
        }
        append_step(text, "best_step", progress->has_value, progress->best_step);
        append_step(text, "step", progress->has_step, progress->step);
        pl_text_printf(text, ", \"runs\": %d, \"seconds\": ", progress->runs);
        if (progress->runs > 0) {
            pl_text_printf(text, "%.3f", records[i].seconds);
        } else {
            pl_text_append(text, "null");
        }
        pl_text_append(text, ", \"host\": ");
        pl_sweep_value_print_string(records[i].host, SIZE_MAX, text);
        pl_text_append(text, ", \"reason\": ");
        pl_sweep_value_print_string(records[i].reason, SIZE_MAX, text);
        pl_text_append(text, "}\n");
    }
    return pl_text_check(text, reterr);
}

/* Fills a row from the trials of its point: every points_count-th trial from `first` on. Without seeds that is one
 * trial. */
static void fill_row(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler, struct row *row)
{
    double sum = 0, squares = 0;
    size_t failed = 0, trials = 0;

    for (size_t i = row->first; i < space->trials_count; i += space->points_count, trials++) {
        const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, i);

        if (progress->state == PL_SWEEP_FAILED) {
            failed++;
        } else if (progress->has_value) {
            if (row->count == 0 ||
                (row->maximize ? progress->best > row->best_value : progress->best < row->best_value)) {
                row->best = i;
                row->best_value = progress->best;
            }
            row->count++;
            sum += progress->best;
        }
    }
    row->failed = failed == trials;
    row->mean = row->count > 0 ? sum / (double)row->count : 0;
    for (size_t i = row->first; i < space->trials_count; i += space->points_count) {
        const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, i);

        if (progress->state != PL_SWEEP_FAILED && progress->has_value) {
            squares += (progress->best - row->mean) * (progress->best - row->mean);
        }
    }
    row->spread = row->count > 1 ? pl_sweep_root(squares / (double)(row->count - 1)) : 0;
}

/* Orders rows: those with most values first, of these the best first, then rows without a value, then failed ones. A
 * mean of fewer values says less: those of the point's other seeds may be missing because they were bad. */
static int compare_rows(const void *left_at, const void *right_at)
{
    const struct row *left = left_at, *right = right_at;

    if (left->failed != right->failed) {
        return left->failed ? 1 : -1;
    }
    if (left->count != right->count) {
        return left->count > right->count ? -1 : 1;
    }
    if (left->count > 0 && left->mean != right->mean) {
        return (left->mean > right->mean) == left->maximize ? -1 : 1;
    }
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Makes the sorted rows, one per point; without seeds a point has one trial. Returns NULL if there is no memory. */
static struct row *make_rows(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler)
{
    struct row *rows = pl_memory_new(space->points_count, sizeof(*rows), NULL);
    size_t best;

    for (size_t i = 0; rows && i < space->points_count; i++) {
        rows[i] = (struct row){.number = i, .first = i, .maximize = space->maximize};
        fill_row(space, scheduler, &rows[i]);
    }
    if (rows) {
        qsort(rows, space->points_count, sizeof(*rows), compare_rows);
    }
    /* if several trials have the best value, the first that reported it comes first, as in pl_scheduler_best() */
    if (rows && !pl_sweep_space_has_seeds(space) && pl_scheduler_best(scheduler, &best)) {
        for (size_t i = 0; i < space->points_count; i++) {
            if (rows[i].number == best) {
                struct row row = rows[i];

                memmove(&rows[1], &rows[0], i * sizeof(*rows));
                rows[0] = row;
            }
        }
    }
    return rows;
}

bool pl_sweep_results_best(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler, size_t *ret_trial)
{
    struct row *rows = NULL;
    bool found = false;

    if (!pl_sweep_space_has_seeds(space)) {
        return pl_scheduler_best(scheduler, ret_trial);
    }
    rows = make_rows(space, scheduler);
    if (!rows) {
        return pl_scheduler_best(scheduler, ret_trial); /* without memory, choose the best trial and ignore seeds */
    }
    found = rows[0].count > 0;
    if (found) {
        *ret_trial = rows[0].best;
    }
    free(rows);
    return found;
}

/* Appends "learning-rate=0.01 batch-size=32", without the seed. */
static void append_hyperparameters(const struct pl_sweep_space *space, size_t trial, struct pl_text *text)
{
    const char *members = space->trials[trial].hyperparameters;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    bool first = true;

    if (pl_python_json_parse(members, strlen(members), "trial", &root, NULL) != PL_OK) {
        pl_text_append(text, members); /* no memory to parse them */
        return;
    }
    for (const struct pl_python_json *node = pl_python_json_first(root); node;
         node = pl_python_json_next(node), first = false) {
        const char *name = pl_python_json_name(node);

        if (!space->seed_name || strcmp(name, space->seed_name) != 0) {
            PL_AUTO_TEXT struct pl_text quoted = PL_TEXT_NONE;

            pl_python_json_print_string(name, &quoted); /* ASCII, without control characters of a terminal */
            pl_text_printf(text, "%s%.*s=", first ? "" : " ", quoted.length > 2 ? (int)quoted.length - 2 : 0,
                           pl_text_string(&quoted) + (quoted.length > 2));
            if (pl_python_json_kind(node) == PL_PYTHON_JSON_INT || pl_python_json_kind(node) == PL_PYTHON_JSON_FLOAT) {
                pl_text_append(text, pl_python_json_text(node));
            } else {
                pl_python_json_print(node, PL_PYTHON_JSON_SPACED, text);
            }
        }
    }
}

/* Appends the beginning of a reason's first line. */
static void append_reason(const char *reason, struct pl_text *text)
{
    size_t length = strcspn(reason, "\n");
    size_t start;

    length = length > REASON_SHOWN_BYTES ? pl_text_whole_bytes(reason, REASON_SHOWN_BYTES) : length;
    pl_text_append(text, "  ");
    start = text->length;
    pl_text_append_n(text, reason, length);
    if (text->length > start && !text->failed) {
        pl_text_mask(text->data + start, text->length - start);
    }
    pl_text_append(text, reason[length] != '\0' ? "..." : "");
}

static void append_number(struct pl_text *text, int columns, bool is, double number)
{
    char digits[32] = "-";
    PL_AUTO_TEXT struct pl_text printed = PL_TEXT_NONE;

    if (is) {
        pl_text_printf(&printed, "%.6g", number); /* pl_text_printf() prints a decimal point in every locale */
    }
    pl_text_printf(text, "  %*s", columns, is ? pl_text_string(&printed) : digits);
}

static void append_trial(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                         const struct pl_sweep_record *records, int columns, const struct row *row,
                         struct pl_text *text)
{
    const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, row->number);

    pl_text_printf(text, "%5zu", row->number);
    append_number(text, columns, progress->has_value, progress->best);
    append_number(text, 8, progress->has_step, (double)progress->step);
    pl_text_printf(text, "  %-*s  %8.1f  ", STATE_COLUMNS, state_text(scheduler, row->number),
                   records[row->number].seconds);
    append_hyperparameters(space, row->number, text);
    if (row->failed && records[row->number].reason) {
        append_reason(records[row->number].reason, text);
    }
    pl_text_append(text, "\n");
}

static void append_point(const struct pl_sweep_space *space, const struct pl_sweep_record *records, int columns,
                         const struct row *row, struct pl_text *text)
{
    pl_text_printf(text, "%5zu", row->number);
    append_number(text, columns, row->count > 0, row->mean);
    append_number(text, 12, row->count > 1, row->spread);
    pl_text_printf(text, "  %5zu  ", row->count);
    append_hyperparameters(space, row->first, text);
    if (row->failed && records[row->first].reason) {
        append_reason(records[row->first].reason, text);
    }
    pl_text_append(text, "\n");
}

void pl_sweep_results_table(const struct pl_sweep_space *space, const struct pl_scheduler *scheduler,
                            const struct pl_sweep_record *records, size_t most_rows, struct pl_text *text)
{
    bool seeds = pl_sweep_space_has_seeds(space);
    struct row *rows = make_rows(space, scheduler);
    size_t shown = space->points_count < most_rows ? space->points_count : most_rows;
    int columns = strlen(space->metric_name) > 12 ? (int)strlen(space->metric_name) : 12;

    if (!rows) {
        text->failed = true;
        return;
    }
    if (seeds) {
        pl_text_printf(text, "point  %*s  %12s  count  hyperparameters\n", columns, space->metric_name, "spread");
    } else {
        pl_text_printf(text, "trial  %*s  %8s  %-*s  %8s  hyperparameters\n", columns, space->metric_name, "step",
                       STATE_COLUMNS, "state", "seconds");
    }
    for (size_t i = 0; i < shown; i++) {
        if (seeds) {
            append_point(space, records, columns, &rows[i], text);
        } else {
            append_trial(space, scheduler, records, columns, &rows[i], text);
        }
    }
    if (shown < space->points_count) {
        pl_text_printf(text, "... and %zu more\n", space->points_count - shown);
    }
    free(rows);
}
