/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a sweep: the best model with its hyperparameters, trials.jsonl, a table, and a line for the
 * platform. */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/json/python_json.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLE_ROWS = 20, REASON_BYTES = 60, REMOVED_AT_ONCE = 200 };

#define RESULT_NS (5 * PL_NS_PER_S) /* how long a blocked reader of the log is waited for */

static const char incoming_name[] = ".paceline-incoming";

/* A point: a trial, or with seeds the trials that differ in their seeds alone. */
struct point {
    size_t number, count; /* count: how many of its trials have a value */
    size_t best;          /* the trial with the best value */
    double mean;
    bool maximize;
};

static bool has_finite(const struct pl_sweep_run *run)
{
    return run->state == PL_SWEEP_COMPLETED && run->has_value && isfinite(run->value);
}

static bool is_better(bool maximize, double left, double right)
{
    return maximize ? left > right : left < right;
}

static struct point read_point(const struct pl_sweep *sweep, size_t number)
{
    const struct pl_sweep_space *space = sweep->space;
    struct point point = {.number = number, .best = number, .maximize = space->maximize};
    double sum = 0;

    for (size_t i = number; i < space->trials_count; i += space->points_count) {
        if (has_finite(&sweep->runs[i])) {
            if (point.count == 0 || is_better(space->maximize, sweep->runs[i].value, sweep->runs[point.best].value)) {
                point.best = i;
            }
            point.count++;
            sum += sweep->runs[i].value;
        }
    }
    point.mean = point.count > 0 ? sum / (double)point.count : 0;
    return point;
}

/* Sorts the best points first: those with most values, of these the one with the best mean. A mean of fewer values says
 * less: those of the point's other seeds may be missing because they were bad. */
static int compare_points(const void *left_at, const void *right_at)
{
    const struct point *left = left_at, *right = right_at;

    if (left->count != right->count) {
        return left->count > right->count ? -1 : 1;
    }
    if (left->count > 0 && left->mean != right->mean) {
        return is_better(left->maximize, left->mean, right->mean) ? -1 : 1;
    }
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Returns the best trial so far: of those that completed with a finite value, with seeds of the best point. SIZE_MAX if
 * there is none. */
static size_t find_best(const struct pl_sweep *sweep)
{
    struct point best = read_point(sweep, 0);

    for (size_t i = 1; i < sweep->space->points_count; i++) {
        const struct point point = read_point(sweep, i);

        best = compare_points(&point, &best) < 0 ? point : best;
    }
    return best.count > 0 ? best.best : SIZE_MAX;
}

/* Starts the removal of files on a host, and returns how many. A trial that may be the best needs its model, or, if it
 * has none, its checkpoints, from which it can save one. With seeds the best trial is known at the end. */
static size_t tidy_host(struct pl_sweep *sweep, size_t host, size_t best)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE, argv = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;
    size_t found = 0;
    enum pl_status status;

    pl_strv_add(&words, "rm", "-rf", "--");
    for (size_t i = host; i < sweep->space->trials_count && found < REMOVED_AT_ONCE; i += sweep->hosts_count) {
        struct pl_sweep_run *run = &sweep->runs[i];
        const bool needed =
            sweep->space->model && has_finite(run) && (i == best || (sweep->space->seed_name && !sweep->finishing));
        bool *const gone[] = {&run->checkpoints_gone, &run->model_gone};
        const bool keeps[] = {needed && !run->has_model, needed};

        for (size_t kind = 0; kind < PL_ARRAY_ITEMS(gone); kind++) {
            PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

            if (pl_sweep_is_over(run) && !keeps[kind] && !*gone[kind]) {
                pl_sweep_hosts_path(sweep, i, gone[kind] == &run->model_gone, &path);
                pl_strv_add_text(&words, &path);
                *gone[kind] = true;
                found++;
            }
        }
    }
    status = pl_strv_check(&words, &error);
    status = status == PL_OK ? pl_sweep_hosts_words(sweep, host, false, &words, &argv, &error) : status;
    if (status == PL_OK && found > 0) {
        status = pl_sweep_hosts_spawn(sweep, &argv, -1, -1, &sweep->removing[host], &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "cannot remove the files of trials that are over");
    }
    return found;
}

void pl_sweep_result_tidy(struct pl_sweep *sweep)
{
    const size_t best = sweep->untidy ? find_best(sweep) : SIZE_MAX;
    size_t found = 0;

    for (size_t host = 0; sweep->untidy && host < sweep->hosts_count; host++) {
        found += sweep->removing[host] > 0 ? 1 : tidy_host(sweep, host, best);
    }
    sweep->untidy = found > 0;
}

static void log_row(const struct pl_sweep *sweep, const struct point *point)
{
    const char *seed = sweep->space->seed_name;
    const struct pl_strv *words = &sweep->space->trials[point->number];
    const struct pl_sweep_run *run = &sweep->runs[seed ? point->best : point->number];
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, "%5zu  ", point->number);
    if (seed ? point->count > 0 : run->has_value) {
        pl_text_printf(&text, "%12.6g", seed ? point->mean : run->value);
    } else {
        pl_text_printf(&text, "%12s", "-");
    }
    if (seed) {
        pl_text_printf(&text, "  %5zu ", point->count);
    } else {
        pl_text_printf(&text, "  %-9s  %8.1f ", pl_sweep_states[run->state], run->seconds);
    }
    for (size_t i = 0; i < words->count - (seed ? 1 : 0); i++) { /* the seed is the last */
        pl_text_printf(&text, " %s", words->items[i]);
    }
    if (run->state == PL_SWEEP_FAILED && run->reason.length > 0) {
        const size_t bytes = run->reason.length < REASON_BYTES ? run->reason.length : REASON_BYTES;

        pl_text_printf(&text, "  %.*s", (int)pl_text_whole_bytes(run->reason.data, bytes), run->reason.data);
    }
    pl_text_mask(text.data, text.length);
    pl_log(PL_LOG_INFO, "%s", pl_text_string(&text));
}

static void log_table(const struct pl_sweep *sweep)
{
    const size_t count = sweep->space->points_count;
    const bool seeds = sweep->space->seed_name;
    PL_AUTO_FREE struct point *points = pl_memory_new(count, sizeof(*points), NULL);

    if (!points) {
        return; /* trials.jsonl has all of it */
    }
    for (size_t i = 0; i < count; i++) {
        points[i] = read_point(sweep, i);
    }
    qsort(points, count, sizeof(*points), compare_points);
    pl_log(PL_LOG_INFO, "%s  %12s  %s  hyperparameters", seeds ? "point" : "trial", sweep->space->metric_name,
           seeds ? "count" : "state       seconds");
    for (size_t i = 0; i < count && i < TABLE_ROWS; i++) {
        log_row(sweep, &points[i]);
    }
    if (count > TABLE_ROWS) {
        pl_log(PL_LOG_INFO, "... and %zu more", count - TABLE_ROWS);
    }
}

static enum pl_status write_file(const char *folder, const char *name, const struct pl_text *text,
                                 struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(pl_file_make_dirs(folder, 0755, reterr));
    PL_TRY(pl_text_check(text, reterr));
    PL_TRY(pl_text_set(&path, reterr, "%s/%s", folder, name));
    return pl_file_write_atomic(path.data, text->data, text->length, 0644, reterr);
}

void pl_sweep_result_write(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text rows = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    pl_file_close_at(&sweep->room_fd);
    pl_sweep_record_rows(sweep, &rows);
    if (write_file(sweep->job->paths.output_data, "trials.jsonl", &rows, &error) != PL_OK) {
        pl_log_error(&error, "cannot write trials.jsonl");
    }
    log_table(sweep);
}

/* Prints the best value, which the platform reads from the log by a regular expression. If no process reads the log,
 * that is not a failure. */
static enum pl_status print_best(const struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    PL_AUTO_CLOSE int own_fd = pl_file_open_own(STDOUT_FILENO);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_text_printf(&line, "best_%s=", sweep->space->metric_name);
    pl_python_json_print_double(sweep->runs[sweep->placed].value, &line);
    pl_text_printf(&line, " trial=%zu\n", sweep->placed);
    PL_TRY(pl_text_check(&line, reterr));
    status = pl_file_write_by(own_fd >= 0 ? own_fd : STDOUT_FILENO, line.data, line.length,
                              pl_deadline_after_ns(RESULT_NS), "standard output", &error);
    if (status != PL_OK) {
        pl_log_error(&error, "cannot print the line with the best value");
    }
    return status == PL_TIMEOUT ? PL_OK : status;
}

/* Writes the best hyperparameters, to a file name that no program gives to a file of its model, and ends the sweep. */
static void end(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text values = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    pl_sweep_space_print(sweep->space, sweep->placed, &values);
    pl_text_append(&values, "\n");
    if (write_file(sweep->job->paths.model, "sweep-hyperparameters.json", &values, &error) != PL_OK ||
        print_best(sweep, &error) != PL_OK) {
        pl_sweep_fail(sweep, "cannot write the result: %s", error.cause);
    }
    sweep->over = true;
}

static enum pl_status incoming_path(const struct pl_sweep *sweep, struct pl_text *path, struct pl_error *reterr)
{
    return pl_text_set(path, reterr, "%s/%s", sweep->job->paths.model, incoming_name);
}

/* Starts what copies the model into the folder for incoming files: on this host with hard links if that is possible,
 * from another one by tar, which keeps links, empty folders, modes, times, and names as bytes. */
static enum pl_status start_copy(struct pl_sweep *sweep, struct pl_error *reterr)
{
    static const char here[] = "cp -al -- \"$1/.\" \"$0\" 2>/dev/null ||" /* if it is on another disk */
                               " { rm -rf -- \"$0\" && mkdir -- \"$0\" && cp -a -- \"$1/.\" \"$0\"; }";
    static const char there[] = /* the exit code is that of the first command that failed */
        "code=$({ { \"$@\"; echo $? >&3; } | tar -xpf - -C \"$0\"; } 3>&1) && exit \"$code\"";
    const size_t host = sweep->placed % sweep->hosts_count;
    PL_AUTO_TEXT struct pl_text incoming = PL_TEXT_NONE, model = PL_TEXT_NONE;
    PL_AUTO_STRV struct pl_strv source = PL_STRV_NONE, argv = PL_STRV_NONE;

    pl_sweep_hosts_path(sweep, sweep->placed, true, &model);
    PL_TRY(pl_text_check(&model, reterr));
    PL_TRY(incoming_path(sweep, &incoming, reterr));
    pl_file_remove_tree(incoming.data);
    PL_TRY(pl_file_make_dirs(incoming.data, 0755, reterr));
    pl_strv_add(&argv, "sh", "-c", host == 0 ? here : there, incoming.data);
    if (host == 0) {
        pl_strv_add(&argv, model.data);
    } else {
        pl_strv_add(&source, "tar", "--format=posix", "-cf", "-", "-C", model.data, ".");
        PL_TRY(pl_sweep_hosts_words(sweep, host, false, &source, &argv, reterr));
    }
    return pl_sweep_hosts_spawn(sweep, &argv, -1, -1, &sweep->placing, reterr);
}

static bool is_name(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Moves the incoming files into place when all of them are on disk; files that were there before are removed. */
static enum pl_status take_in(const struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *model = pl_file_open_directory(AT_FDCWD, sweep->job->paths.model, 0);
    PL_AUTO_DIRECTORY DIR *incoming = model ? pl_file_open_directory(dirfd(model), incoming_name, O_NOFOLLOW) : NULL;
    size_t count = 0;

    if (!incoming || syncfs(dirfd(incoming)) != 0) {
        return pl_error_errno(reterr, "sync '%s'", sweep->job->paths.model);
    }
    for (const struct dirent *entry = readdir(incoming); entry; entry = readdir(incoming)) {
        count += is_name(entry->d_name);
    }
    if (count == 0) {
        return pl_error_set(reterr, PL_INVALID, "it is empty");
    }
    for (const struct dirent *entry = readdir(model); entry; entry = readdir(model)) {
        if (is_name(entry->d_name) && strcmp(entry->d_name, incoming_name) != 0 &&
            unlinkat(dirfd(model), entry->d_name, 0) != 0) {
            PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

            pl_text_printf(&path, "%s/%s", sweep->job->paths.model, entry->d_name);
            pl_file_remove_tree(pl_text_string(&path));
        }
    }
    rewinddir(incoming);
    for (const struct dirent *entry = readdir(incoming); entry; entry = readdir(incoming)) {
        if (is_name(entry->d_name) && renameat(dirfd(incoming), entry->d_name, dirfd(model), entry->d_name) != 0) {
            return pl_error_errno(reterr, "rename '%s'", entry->d_name);
        }
    }
    return unlinkat(dirfd(model), incoming_name, AT_REMOVEDIR) == 0
               ? PL_OK
               : pl_error_errno(reterr, "remove '%s'", incoming_name);
}

static void fail_model(struct pl_sweep *sweep, const char *reason)
{
    PL_AUTO_TEXT struct pl_text model = PL_TEXT_NONE, incoming = PL_TEXT_NONE;

    if (incoming_path(sweep, &incoming, NULL) == PL_OK) {
        pl_file_remove_tree(incoming.data);
    }
    pl_sweep_hosts_path(sweep, sweep->placed, true, &model);
    pl_sweep_fail(sweep, "the model of the best trial, %zu, cannot be the job's model: '%s' on host %s: %s",
                  sweep->placed, pl_text_string(&model), sweep->job->hosts.items[sweep->placed % sweep->hosts_count],
                  reason);
    sweep->over = true;
}

void pl_sweep_result_begin(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->placed = find_best(sweep);
    if (sweep->placed == SIZE_MAX) {
        const char *reason = sweep->first_failed >= 0 ? pl_text_string(&sweep->runs[sweep->first_failed].reason) : "";

        pl_sweep_fail(sweep, "no trial has ended by itself with exit code 0 and a finite value of the metric '%s'%s%s",
                      sweep->space->metric_name, *reason ? "; the first that failed: " : "", reason);
        sweep->over = true;
    } else if (!sweep->space->model) {
        end(sweep);
    } else if (!sweep->runs[sweep->placed].has_model) {
        fail_model(sweep, "its program has saved none");
    } else if (start_copy(sweep, &error) != PL_OK) {
        fail_model(sweep, error.cause);
    }
}

void pl_sweep_result_note_end(struct pl_sweep *sweep, int code)
{
    struct pl_error error = PL_ERROR_NONE;
    char words[64];

    sweep->placing = 0;
    if (code != 0) {
        snprintf(words, sizeof(words), "its copy ended with code %d, see the log", code);
        fail_model(sweep, sweep->stop_number != 0 ? "the job was stopped; it stays in its place" : words);
    } else if (take_in(sweep, &error) != PL_OK) {
        fail_model(sweep, error.cause);
    } else {
        end(sweep);
    }
}
