/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a sweep: the best model with its hyperparameters, trials.jsonl, a table, and a line for the
 * platform. */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
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
    double mean, spread, least;
    bool maximize;
};

static bool is_better(bool maximize, double left, double right)
{
    return maximize ? left > right : left < right;
}

static struct point read_point(const struct pl_sweep *sweep, size_t number)
{
    const struct pl_sweep_space *space = sweep->space;
    struct point point = {.number = number, .best = number, .maximize = space->maximize};
    double sum = 0, squares = 0;

    for (size_t i = number; i < space->trials_count; i += space->points_count) {
        const struct pl_sweep_run *run = &sweep->runs[i];

        if (run->state != PL_SWEEP_COMPLETED || !run->has_value || !isfinite(run->value)) {
            continue;
        }
        if (point.count == 0 || is_better(space->maximize, run->value, point.least)) {
            point.best = i;
            point.least = run->value;
        }
        point.count++;
        sum += run->value;
        squares += run->value * run->value;
    }
    if (point.count > 0) {
        point.mean = sum / (double)point.count;
    }
    if (point.count > 1) {
        point.spread = sqrt(fmax(0, squares - sum * point.mean) / (double)(point.count - 1));
    }
    return point;
}

/* The best first: those with most values, of these the one with the best mean. A mean of fewer values says less: those
 * of the point's other seeds may be missing because they were bad. */
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

bool pl_sweep_result_best(const struct pl_sweep *sweep, size_t *ret_trial)
{
    struct point best = {.count = 0};

    for (size_t i = 0; i < sweep->space->points_count; i++) {
        const struct point point = read_point(sweep, i);

        if (i == 0 || compare_points(&point, &best) < 0) {
            best = point;
        }
    }
    *ret_trial = best.best;
    return best.count > 0;
}

/* Whether the trial may be the best, or already is. With seeds that is known at the end. */
static bool needs_model(const struct pl_sweep *sweep, size_t trial, size_t best)
{
    const struct pl_sweep_run *run = &sweep->runs[trial];

    return sweep->space->model && run->state == PL_SWEEP_COMPLETED && run->has_value && isfinite(run->value) &&
           (trial == best || (pl_sweep_space_has_seeds(sweep->space) && !sweep->finishing));
}

static bool take_path(struct pl_sweep *sweep, size_t trial, bool model, bool *gone, struct pl_strv *words)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_sweep_hosts_path(sweep, trial, model, &path);
    pl_strv_add_text(words, &path);
    *gone = !words->failed;
    return *gone;
}

static size_t tidy_host(struct pl_sweep *sweep, size_t host, size_t best)
{
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;
    size_t found = 0;
    enum pl_status status;

    pl_strv_add(&words, "rm", "-rf", "--");
    status = pl_strv_check(&words, &error);
    for (size_t i = host; status == PL_OK && i < sweep->space->trials_count && found < REMOVED_AT_ONCE;
         i += sweep->hosts_count) {
        struct pl_sweep_run *run = &sweep->runs[i];
        const bool over = pl_sweep_is_over(run), model = needs_model(sweep, i, best);

        if (over && !model && !run->model_gone) {
            found += take_path(sweep, i, true, &run->model_gone, &words);
        }
        if (over && !(model && !run->has_model) && !run->checkpoints_gone) {
            found += take_path(sweep, i, false, &run->checkpoints_gone, &words);
        }
    }
    if (status == PL_OK && found > 0) {
        status =
            pl_sweep_hosts_spawn(sweep, host, (const char *const *)words.items, -1, -1, &sweep->removing[host], &error);
    }
    if (status != PL_OK) {
        pl_log_error(&error, "removing the files of trials that are over");
    }
    return found;
}

void pl_sweep_result_tidy(struct pl_sweep *sweep)
{
    size_t best = SIZE_MAX, found = 0;

    if (!sweep->untidy) {
        return;
    }
    if (!pl_sweep_result_best(sweep, &best)) {
        best = SIZE_MAX;
    }
    for (size_t host = 0; host < sweep->hosts_count; host++) {
        found += sweep->removing[host] > 0 ? 1 : tidy_host(sweep, host, best);
    }
    sweep->untidy = found > 0;
}

/* Appends "learning-rate=0.01 batch-size=32", without the seed. */
static void append_hyperparameters(const struct pl_sweep_space *space, size_t trial, struct pl_text *text)
{
    const char *members = space->trials[trial].hyperparameters;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    if (pl_python_json_parse(members, strlen(members), "trial", &root, NULL) != PL_OK) {
        return; /* no memory */
    }
    for (const struct pl_python_json *node = pl_python_json_first(root); node; node = pl_python_json_next(node)) {
        if (!space->seed_name || strcmp(pl_python_json_name(node), space->seed_name) != 0) {
            pl_text_printf(text, " %s=", pl_python_json_name(node));
            pl_sweep_value_print(node, text);
        }
    }
}

static void log_row(const struct pl_sweep *sweep, const struct point *point)
{
    static const char *const states[] = {"waiting", "completed", "failed", "stopped"};
    const bool seeds = pl_sweep_space_has_seeds(sweep->space);
    const struct pl_sweep_run *run = &sweep->runs[seeds ? point->best : point->number];
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const bool has_value = seeds ? point->count > 0 : run->has_value;

    pl_text_printf(&text, "%5zu  ", point->number);
    if (has_value) {
        pl_text_printf(&text, "%12.6g", seeds ? point->mean : run->value);
    } else {
        pl_text_printf(&text, "%12s", "-");
    }
    if (seeds) {
        pl_text_printf(&text, "  %12.6g  %5zu ", point->spread, point->count);
    } else {
        pl_text_printf(&text, "  %-9s  %8.1f ", states[run->state], run->seconds);
    }
    append_hyperparameters(sweep->space, point->number, &text);
    if (run->reason && run->state == PL_SWEEP_FAILED) {
        pl_text_printf(&text, "  %.*s", (int)pl_text_whole_bytes(run->reason, strnlen(run->reason, REASON_BYTES)),
                       run->reason);
    }
    if (text.length > 0) {
        pl_text_mask(text.data, text.length);
    }
    pl_log(PL_LOG_INFO, "%s", pl_text_string(&text));
}

static void log_table(const struct pl_sweep *sweep)
{
    const size_t count = sweep->space->points_count;
    PL_AUTO_FREE struct point *points = pl_memory_new(count, sizeof(*points), NULL);

    if (!points) {
        return; /* trials.jsonl has it all */
    }
    for (size_t i = 0; i < count; i++) {
        points[i] = read_point(sweep, i);
    }
    qsort(points, count, sizeof(*points), compare_points);
    if (pl_sweep_space_has_seeds(sweep->space)) {
        pl_log(PL_LOG_INFO, "point  %12s  %12s  count  hyperparameters", sweep->space->metric_name, "spread");
    } else {
        pl_log(PL_LOG_INFO, "trial  %12s  %-9s  %8s  hyperparameters", sweep->space->metric_name, "state", "seconds");
    }
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
    pl_text_printf(&path, "%s/%s", folder, name);
    PL_TRY(pl_text_check(text, reterr));
    PL_TRY(pl_text_check(&path, reterr));
    return pl_file_write_atomic(pl_text_string(&path), text->data, text->length, 0644, reterr);
}

void pl_sweep_result_write(struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text rows = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    pl_file_close_at(&sweep->room_fd);
    pl_sweep_record_rows(sweep, &rows);
    if (write_file(sweep->job->paths.output_data, "trials.jsonl", &rows, &error) != PL_OK) {
        pl_log_error(&error, "writing trials.jsonl");
    }
    log_table(sweep);
}

/* Prints the best value: the platform reads it from the log by a regular expression. If nobody reads the log, that is
 * no failure. */
static enum pl_status print_best(const struct pl_sweep *sweep, size_t best, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;
    PL_AUTO_CLOSE int own_fd = pl_file_open_own(STDOUT_FILENO);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_text_printf(&line, "best_%s=", sweep->space->metric_name);
    pl_python_json_print_double(sweep->runs[best].value, &line);
    pl_text_printf(&line, " trial=%zu\n", best);
    PL_TRY(pl_text_check(&line, reterr));
    status = pl_file_write_by(own_fd >= 0 ? own_fd : STDOUT_FILENO, line.data, line.length,
                              pl_deadline_after_ns(RESULT_NS), "standard output", &error);
    if (status != PL_OK) {
        pl_log_error(&error, "printing the line with the best value");
    }
    return status == PL_TIMEOUT ? PL_OK : status;
}

/* The file of hyperparameters has a name that no program gives a file of its model. */
static void end(struct pl_sweep *sweep, size_t best)
{
    PL_AUTO_TEXT struct pl_text values = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    pl_text_printf(&values, "%s\n", sweep->space->trials[best].hyperparameters);
    if (write_file(sweep->job->paths.model, "sweep-hyperparameters.json", &values, &error) != PL_OK ||
        print_best(sweep, best, &error) != PL_OK) {
        pl_sweep_fail(sweep, "writing the result: %s", error.cause);
    }
    sweep->over = true;
}

static enum pl_status incoming_path(const struct pl_sweep *sweep, struct pl_text *path, struct pl_error *reterr)
{
    pl_text_printf(path, "%s/%s", sweep->job->paths.model, incoming_name);
    return pl_text_check(path, reterr);
}

/* Starts what copies the model into the folder for incoming files: on this host with hard links if that is possible,
 * from another one by tar, which keeps links, empty folders, modes, times, and names as bytes. */
static enum pl_status start_copy(struct pl_sweep *sweep, struct pl_error *reterr)
{
    struct pl_sweep_placing *placing = &sweep->placing;
    PL_AUTO_TEXT struct pl_text incoming = PL_TEXT_NONE, model = PL_TEXT_NONE;
    PL_AUTO_CLOSE int read_fd = -1, write_fd = -1, null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const size_t host = placing->trial % sweep->hosts_count;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    int pair[2];

    placing->code = 0;
    pl_sweep_hosts_path(sweep, placing->trial, true, &model);
    PL_TRY(incoming_path(sweep, &incoming, reterr));
    PL_TRY(pl_text_check(&model, reterr));
    pl_file_remove_tree(incoming.data);
    PL_TRY(pl_file_make_dirs(incoming.data, 0755, reterr));
    if (host == 0) {
        pl_text_append(&model, "/.");
        return pl_sweep_hosts_spawn(sweep, 0,
                                    (const char *const[]){"cp", placing->by_links ? "-al" : "-a", "--",
                                                          pl_text_string(&model), incoming.data, NULL},
                                    -1, placing->by_links ? null_fd : -1, &placing->pids[0], reterr);
    }
    if (pipe2(pair, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "pipe2");
    }
    read_fd = pair[0];
    write_fd = pair[1];
    setup.argv = (const char *const[]){"tar", "-xpf", "-", "-C", incoming.data, NULL};
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdin_fd = read_fd;
    setup.own_group = true;
    setup.signals = sweep->signals;
    PL_TRY(pl_sweep_hosts_spawn(sweep, host,
                                (const char *const[]){"tar", "--format=posix", "-cf", "-", "-C", model.data, ".", NULL},
                                write_fd, -1, &placing->pids[0], reterr));
    return pl_process_spawn(&setup, &placing->pids[1], reterr);
}

static bool is_name(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Gives the incoming files their places, when all of them are on disk; whatever was there before goes. */
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
    pl_sweep_hosts_path(sweep, sweep->placing.trial, true, &model);
    pl_sweep_fail(sweep, "the model of the best trial, %zu, cannot be the job's model: '%s' on host %s: %s",
                  sweep->placing.trial, pl_text_string(&model),
                  sweep->job->hosts.items[sweep->placing.trial % sweep->hosts_count], reason);
    sweep->over = true;
}

void pl_sweep_result_begin(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    sweep->placing = (struct pl_sweep_placing){.by_links = true};
    if (!pl_sweep_result_best(sweep, &sweep->placing.trial)) {
        const char *reason = sweep->first_failed >= 0 ? sweep->runs[sweep->first_failed].reason : NULL;

        pl_sweep_fail(sweep, "no trial has ended by itself with exit code 0 and a finite value of the metric '%s'%s%s",
                      sweep->space->metric_name, reason ? "; the first that failed: " : "", reason ? reason : "");
        sweep->over = true;
    } else if (!sweep->space->model) {
        end(sweep, sweep->placing.trial);
    } else if (!sweep->runs[sweep->placing.trial].has_model) {
        fail_model(sweep, "its program has saved none");
    } else if (start_copy(sweep, &error) != PL_OK) {
        fail_model(sweep, error.cause);
    } else {
        sweep->placing.is_on = true;
    }
}

bool pl_sweep_result_note_end(struct pl_sweep *sweep, pid_t pid, int code)
{
    struct pl_sweep_placing *placing = &sweep->placing;
    struct pl_error error = PL_ERROR_NONE;
    char words[64];

    if (!placing->is_on || (pid != placing->pids[0] && pid != placing->pids[1])) {
        return false;
    }
    placing->code = placing->code != 0 ? placing->code : code;
    placing->pids[pid == placing->pids[1]] = 0;
    if (placing->pids[0] > 0 || placing->pids[1] > 0) {
        return true;
    }
    placing->is_on = false;
    if (placing->code != 0 && placing->by_links && placing->trial % sweep->hosts_count == 0) {
        placing->by_links = false; /* it is on another disk */
        placing->is_on = start_copy(sweep, &error) == PL_OK;
        if (!placing->is_on) {
            fail_model(sweep, error.cause);
        }
    } else if (placing->code != 0) {
        snprintf(words, sizeof(words), "its copy ended with code %d, see the log", placing->code);
        fail_model(sweep, sweep->stop_number != 0 ? "the job was stopped; it stays in its place" : words);
    } else if (take_in(sweep, &error) != PL_OK) {
        fail_model(sweep, error.cause);
    } else {
        end(sweep, placing->trial);
    }
    return true;
}

void pl_sweep_result_abort(struct pl_sweep *sweep)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(sweep->placing.pids); i++) {
        if (sweep->placing.pids[i] > 0) {
            kill(-sweep->placing.pids[i], SIGKILL);
        }
    }
    sweep->placing.by_links = false;
}
