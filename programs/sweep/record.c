/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trials.jsonl in the folder `sweep` of the job's checkpoints: a line about the sweep, then one line a trial. The file
 * is written whole when a trial is over, so that it holds each trial once at every moment. The files of the trials are
 * in a folder with the name that the first line has: no sweep can find those of another one.
 */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    RECORD_BYTES_MAX = 256 << 20,
    ROW_BYTES = 4096, /* bytes of a row without the hyperparameters, with a long reason */
    ROOM_BYTES =
        64 * 1024, /* reserved on the disk, and the rows twice: the old file stays until the new one is whole */
    FULL_BYTES = 256 * 1024, /* a disk with less free space counts as full: the rest is reserved here */
    BLOCK_BYTES = 512,       /* unit of st_blocks */
    SHOWN_BYTES = 100,
};

static const char *const states[] = {[PL_SWEEP_WAITING] = "waiting",
                                     [PL_SWEEP_COMPLETED] = "completed",
                                     [PL_SWEEP_FAILED] = "failed",
                                     [PL_SWEEP_STOPPED] = "stopped"};

static void path_of(const struct pl_sweep *sweep, const char *name, struct pl_text *path)
{
    pl_text_printf(path, "%s/%s", sweep->folder, name);
}

/* Sets the error for a file that does not belong to this sweep; `words` say why. */
static enum pl_status other_sweep(const struct pl_sweep *sweep, struct pl_error *reterr, const char *words)
{
    return pl_error_set(reterr, PL_INVALID,
                        "'%.300s/trials.jsonl' %s (paceline_sweep_fresh=%lld starts a new sweep, and keeps the present "
                        "files)",
                        sweep->folder, words, (long long)sweep->job->settings.sweep_fresh + 1);
}

/* Sets a member to the value as text, without the job's name, which the SDK puts into addresses in S3. */
static enum pl_status set_value(const struct pl_job *job, struct pl_python_json *object,
                                const struct pl_python_json *value, struct pl_error *reterr)
{
    const char *name = job->job_name ? job->job_name : job->sagemaker_job_name ? job->sagemaker_job_name : "";
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE, text = PL_TEXT_NONE;
    const char *at, *found;

    pl_sweep_value_print(value, &whole);
    PL_TRY(pl_text_check(&whole, reterr));
    for (at = pl_text_string(&whole); *name != '\0' && (found = strstr(at, name)); at = found + strlen(name)) {
        pl_text_append_n(&text, at, (size_t)(found - at));
        pl_text_append(&text, "JOB");
    }
    pl_text_append(&text, at);
    PL_TRY(pl_text_check(&text, reterr));
    return pl_python_json_set(object, pl_python_json_name(value), pl_python_json_new_string(pl_text_string(&text)),
                              reterr);
}

/* Makes what a sweep has to have in common with the one that it continues, besides its trials. */
static enum pl_status make_identity(const struct pl_sweep *sweep, struct pl_python_json **ret_identity,
                                    struct pl_error *reterr)
{
    const struct pl_job *job = sweep->job;
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = pl_python_json_new_object();
    struct pl_python_json *values = pl_python_json_new_object();
    PL_AUTO_TEXT struct pl_text metric = PL_TEXT_NONE, program = PL_TEXT_NONE;

    PL_TRY(pl_python_json_set(identity, "hyperparameters", values, reterr));
    for (const struct pl_python_json *node = pl_python_json_first(job->hyperparameters); node;
         node = pl_python_json_next(node)) {
        if (!pl_secrets_is_name(pl_python_json_name(node))) {
            PL_TRY(set_value(job, values, node, reterr));
        }
    }
    pl_text_append(&program, job->program ? job->program : "");
    for (size_t i = 0; i < job->command.count; i++) {
        pl_text_append_quoted(&program, job->command.items[i]);
    }
    pl_text_printf(&metric, "%s by %s, %s", sweep->space->metric_name, sweep->space->metric_regex,
                   sweep->space->maximize ? "maximize" : "minimize");
    PL_TRY(pl_text_check(&program, reterr));
    PL_TRY(pl_text_check(&metric, reterr));
    PL_TRY(pl_python_json_set(identity, "program", pl_python_json_new_string(pl_text_string(&program)), reterr));
    PL_TRY(pl_python_json_set(identity, "metric", pl_python_json_new_string(pl_text_string(&metric)), reterr));
    PL_TRY(pl_python_json_set(identity, "processes", pl_python_json_new_int64(sweep->space->processes), reterr));
    *ret_identity = PL_TAKE(identity);
    return PL_OK;
}

static void append_shown(const struct pl_python_json *node, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;

    if (node && pl_python_json_kind(node) == PL_PYTHON_JSON_STRING) {
        pl_text_append(&whole, pl_python_json_text(node));
    } else if (node) {
        pl_sweep_value_print(node, &whole);
    }
    pl_text_printf(text, "%.*s%s", SHOWN_BYTES, node ? pl_text_string(&whole) : "missing",
                   whole.length > SHOWN_BYTES ? "..." : "");
}

static bool is_same(const struct pl_python_json *left, const struct pl_python_json *right)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE, others = PL_TEXT_NONE;

    if (!left || !right) {
        return false;
    }
    pl_python_json_print(left, PL_PYTHON_JSON_SPACED, &words);
    pl_python_json_print(right, PL_PYTHON_JSON_SPACED, &others);
    return strcmp(pl_text_string(&words), pl_text_string(&others)) == 0;
}

/* Appends the first difference of two objects: "NAME was X and is Y"; nothing if there is none. */
static void describe_difference(const struct pl_python_json *was, const struct pl_python_json *is, const char *prefix,
                                const char *ignored, struct pl_text *text)
{
    const struct pl_python_json *const sides[] = {was, is};

    for (size_t side = 0; side < PL_ARRAY_ITEMS(sides); side++) {
        for (const struct pl_python_json *node = pl_python_json_first(sides[side]); node && text->length == 0;
             node = pl_python_json_next(node)) {
            const char *name = pl_python_json_name(node);
            const struct pl_python_json *before = pl_python_json_member(was, name);
            const struct pl_python_json *now = pl_python_json_member(is, name);

            if (strcmp(name, ignored) == 0 || is_same(before, now)) {
                continue;
            }
            if (before && now && pl_python_json_kind(before) == PL_PYTHON_JSON_OBJECT && *prefix == '\0') {
                describe_difference(before, now, "hyperparameters.", "", text);
                continue;
            }
            pl_text_printf(text, "%s%s was ", prefix, name);
            append_shown(before, text);
            pl_text_append(text, " and is ");
            append_shown(now, text);
        }
    }
}

static void print_row(const struct pl_sweep *sweep, size_t trial, struct pl_text *text)
{
    const struct pl_sweep_run *run = &sweep->runs[trial];

    pl_text_printf(text, "{\"trial\": %zu, \"point\": %zu, \"state\": \"%s\", \"hyperparameters\": %s, ", trial,
                   sweep->space->trials[trial].point, states[run->state], sweep->space->trials[trial].hyperparameters);
    pl_python_json_print_string(sweep->space->metric_name, text);
    pl_text_append(text, ": ");
    if (run->has_value) {
        pl_python_json_print_double(run->value, text);
    } else {
        pl_text_append(text, "null");
    }
    if (pl_sweep_is_over(run)) {
        pl_text_printf(text, ", \"code\": %d, \"seconds\": %.3f, \"model\": %s", run->code, run->seconds,
                       run->has_model ? "true" : "false");
    } else {
        pl_text_append(text, ", \"code\": null, \"seconds\": null, \"model\": false");
    }
    pl_text_append(text, ", \"host\": ");
    pl_python_json_print_string(sweep->job->hosts.items[trial % sweep->hosts_count], text);
    pl_text_append(text, ", \"reason\": ");
    if (run->reason) {
        pl_python_json_print_string(run->reason, text);
    } else {
        pl_text_append(text, "null");
    }
    pl_text_append(text, "}\n");
}

void pl_sweep_record_rows(const struct pl_sweep *sweep, struct pl_text *text)
{
    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        print_row(sweep, i, text);
    }
}

enum pl_status pl_sweep_record_write(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(make_identity(sweep, &identity, reterr));
    pl_text_printf(&text, "{\"sweep\": \"%s\", \"closed_s\": %.9g, \"fresh\": ", sweep->id, sweep->closed_s);
    pl_python_json_print_string(sweep->fresh ? sweep->fresh : "", &text);
    pl_text_append(&text, ", \"identity\": ");
    pl_python_json_print(identity, PL_PYTHON_JSON_SPACED, &text);
    pl_text_append(&text, "}\n");
    pl_sweep_record_rows(sweep, &text);
    path_of(sweep, "trials.jsonl", &path);
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(pl_text_check(&path, reterr));
    status = pl_file_write_atomic(pl_text_string(&path), text.data, text.length, 0644, &error);
    if (status != PL_OK && (error.code == ENOSPC || error.code == EDQUOT)) {
        sweep->full = true;
        pl_file_close_at(&sweep->room_fd);
        return pl_file_write_atomic(pl_text_string(&path), text.data, text.length, 0644, reterr);
    }
    if (status != PL_OK) {
        *reterr = error;
    }
    return status;
}

/* Reads the row of a trial; `line` is its text. */
static enum pl_status read_row(struct pl_sweep *sweep, const struct pl_python_json *row, const char *line, size_t trial,
                               struct pl_error *reterr)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const struct pl_sweep_value root = {.source = "trials.jsonl", .node = row, .above = row};
    const struct pl_sweep_value number = pl_sweep_value_member(&root, "trial");
    const struct pl_sweep_value state = pl_sweep_value_member(&root, "state");
    const struct pl_sweep_value value = pl_sweep_value_member(&root, sweep->space->metric_name);
    const struct pl_sweep_value code = pl_sweep_value_member(&root, "code");
    const struct pl_sweep_value seconds = pl_sweep_value_member(&root, "seconds");
    const struct pl_sweep_value model = pl_sweep_value_member(&root, "model");
    const struct pl_sweep_value reason = pl_sweep_value_member(&root, "reason");
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    int64_t whole = 0;
    const char *word;

    PL_TRY(pl_sweep_value_whole(&number, (int64_t)trial, (int64_t)trial, &whole, reterr));
    PL_TRY(pl_sweep_value_text(&state, &word, reterr));
    pl_text_printf(&words, "\"hyperparameters\": %s, ", sweep->space->trials[trial].hyperparameters);
    PL_TRY(pl_text_check(&words, reterr));
    if (!strstr(line, pl_text_string(&words))) {
        pl_text_clear(&words);
        pl_text_printf(&words, "belongs to another sweep: trial %zu had ", trial);
        append_shown(pl_python_json_member(row, "hyperparameters"), &words);
        pl_text_printf(&words, " and has %.*s", SHOWN_BYTES, sweep->space->trials[trial].hyperparameters);
        return other_sweep(sweep, reterr, pl_text_string(&words));
    }
    for (int i = 0; i < PL_SWEEP_STATES; i++) {
        run->state = strcmp(word, states[i]) == 0 ? (enum pl_sweep_state)i : run->state;
    }
    if (!pl_sweep_is_over(run)) {
        return strcmp(word, states[PL_SWEEP_WAITING]) == 0 ? PL_OK
                                                           : pl_sweep_value_wrong(&state, "a trial's state", reterr);
    }
    PL_TRY(pl_sweep_value_whole(&code, 0, 255, &whole, reterr));
    PL_TRY(pl_sweep_value_number(&seconds, 0, INFINITY, &run->seconds, reterr));
    run->code = (int)whole;
    run->has_value = value.node;
    run->has_model = pl_sweep_value_is(&model, PL_PYTHON_JSON_BOOL) && pl_python_json_bool(model.node);
    PL_TRY(value.node ? pl_sweep_value_number(&value, -INFINITY, INFINITY, &run->value, reterr) : PL_OK);
    if (reason.node) {
        PL_TRY(pl_sweep_value_text(&reason, &word, reterr));
        run->reason = pl_memory_string(word, reterr);
        PL_TRY(run->reason ? PL_OK : PL_MEMORY);
    }
    if (run->state == PL_SWEEP_FAILED && sweep->first_failed < 0) {
        sweep->first_failed = (int)trial;
    }
    return PL_OK;
}

/* Compares the file's first line with this sweep. The metric may change while no trial has a value. */
static enum pl_status read_head(struct pl_sweep *sweep, const struct pl_python_json *head, bool any_value,
                                struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = NULL;
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE, difference = PL_TEXT_NONE;
    const struct pl_sweep_value root = {.source = "trials.jsonl", .node = head, .above = head};
    const struct pl_sweep_value id = pl_sweep_value_member(&root, "sweep");
    const struct pl_sweep_value fresh = pl_sweep_value_member(&root, "fresh");
    const struct pl_sweep_value closed = pl_sweep_value_member(&root, "closed_s");
    const struct pl_sweep_value was = pl_sweep_value_member(&root, "identity");
    const char *name, *request;

    PL_TRY(pl_sweep_value_text(&id, &name, reterr));
    PL_TRY(pl_sweep_value_text(&fresh, &request, reterr));
    PL_TRY(pl_sweep_value_number(&closed, 0, INFINITY, &sweep->closed_s, reterr));
    if (!pl_sweep_value_is(&was, PL_PYTHON_JSON_OBJECT)) {
        return pl_sweep_value_wrong(&was, "an object", reterr);
    }
    if (strlen(name) >= sizeof(sweep->id) || strspn(name, "0123456789abcdef") != strlen(name) || *name == '\0') {
        return pl_sweep_value_wrong(&id, "the name of a sweep", reterr);
    }
    snprintf(sweep->id, sizeof(sweep->id), "%s", name);
    free(sweep->fresh);
    sweep->fresh = pl_memory_string(request, reterr);
    PL_TRY(sweep->fresh ? PL_OK : PL_MEMORY);
    PL_TRY(make_identity(sweep, &identity, reterr));
    describe_difference(was.node, identity, "", any_value ? "" : "metric", &difference);
    if (difference.length == 0) {
        return PL_OK;
    }
    pl_text_printf(&words, "belongs to another sweep: %s", pl_text_string(&difference));
    PL_TRY(pl_text_check(&words, reterr));
    return other_sweep(sweep, reterr, pl_text_string(&words));
}

enum pl_status pl_sweep_record_read(struct pl_sweep *sweep, char *text, struct pl_error *reterr)
{
    const bool any_value = strstr(text, "\"state\": \"completed\""); /* then the metric is the one that it was */
    size_t lines = 0;

    for (char *line = text, *end; *line != '\0'; line = end + 1, lines++) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *node = NULL;
        PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status;

        end = strchrnul(line, '\n');
        if (*end == '\0') {
            return other_sweep(sweep, reterr, "ends within a line");
        }
        *end = '\0';
        status = pl_python_json_parse(line, (size_t)(end - line), "trials.jsonl", &node, &error);
        if (status == PL_OK && lines > sweep->space->trials_count) {
            return other_sweep(sweep, reterr, "belongs to another sweep, with more trials");
        }
        if (status == PL_OK) {
            status =
                lines == 0 ? read_head(sweep, node, any_value, &error) : read_row(sweep, node, line, lines - 1, &error);
        }
        if (status == PL_INVALID && !strstr(error.cause, "paceline_sweep_fresh=")) {
            pl_text_printf(&words, "is damaged in its line %zu: %s", lines + 1, error.cause);
            return other_sweep(sweep, reterr, pl_text_string(&words));
        }
        if (status != PL_OK) {
            *reterr = error;
            return status;
        }
    }
    if (lines <= sweep->space->trials_count) {
        sweep->closed_s = 0; /* trials were added: the sweep goes on */
    }
    return lines > 0 ? PL_OK : other_sweep(sweep, reterr, "is empty");
}

/* Earlier versions had a journal beside this folder. */
static void warn_of_journal(const struct pl_sweep *sweep)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    path_of(sweep, "../sweep.journal", &path);
    if (pl_text_check(&path, NULL) == PL_OK && access(pl_text_string(&path), F_OK) == 0) {
        pl_log(PL_LOG_WARNING, "'%s' is of an earlier version of Paceline and is not read: this is a new sweep",
               pl_text_string(&path));
    }
}

/* Begins a sweep, with a name that none has had. The files of an earlier one stay. */
static enum pl_status begin_new(struct pl_sweep *sweep, const char *request, bool has_old, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, kept = PL_TEXT_NONE;
    uint64_t number = 0;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
        return pl_error_errno(reterr, "getrandom");
    }
    snprintf(sweep->id, sizeof(sweep->id), "%016" PRIx64, number);
    free(sweep->fresh);
    sweep->fresh = pl_memory_string(request, reterr);
    PL_TRY(sweep->fresh ? PL_OK : PL_MEMORY);
    path_of(sweep, "trials.jsonl", &path);
    pl_text_printf(&kept, "%s/trials-before-%s.jsonl", sweep->folder, sweep->id);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_text_check(&kept, reterr));
    if (has_old && rename(pl_text_string(&path), pl_text_string(&kept)) != 0) {
        return pl_error_errno(reterr, "rename '%s'", pl_text_string(&path));
    }
    return pl_sweep_record_write(sweep, reterr);
}

/* Reserves disk space for the rows, as process 1 does for the failure file. */
static void keep_room(struct pl_sweep *sweep)
{
    int64_t bytes = ROOM_BYTES;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        bytes += 2 * (ROW_BYTES / 8 + (int64_t)strlen(sweep->space->trials[i].hyperparameters));
    }
    sweep->room_fd = open(sweep->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (sweep->room_fd >= 0 && fallocate(sweep->room_fd, 0, 0, bytes) != 0) {
        pl_file_close_at(&sweep->room_fd);
    }
}

/* Locks the folder: two sweeps in it would overwrite each other's rows. */
static enum pl_status open_folder(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_job_checkpoints(sweep->job, &path);
    pl_text_append(&path, "/sweep");
    PL_TRY(pl_text_take(&path, &sweep->folder, reterr));
    PL_TRY(pl_file_make_dirs(sweep->folder, 0755, reterr));
    sweep->lock_fd = open(sweep->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sweep->lock_fd < 0 || flock(sweep->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? pl_error_set(reterr, PL_LIMIT, "'%s' is that of a sweep that runs: expected one job at a time",
                                  sweep->folder)
                   : pl_error_errno(reterr, "lock '%s'", sweep->folder);
    }
    return PL_OK;
}

enum pl_status pl_sweep_record_open(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const struct pl_job *job = sweep->job;
    const char *name = job->job_name ? job->job_name : job->sagemaker_job_name ? job->sagemaker_job_name : "";
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, request = PL_TEXT_NONE, head = PL_TEXT_NONE;
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    enum pl_status status;

    PL_TRY(open_folder(sweep, reterr));
    path_of(sweep, "trials.jsonl", &path);
    pl_text_printf(&request, "%lld %s", (long long)job->settings.sweep_fresh, name);
    pl_text_append(&head, ", \"fresh\": ");
    pl_python_json_print_string(pl_text_string(&request), &head);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_text_check(&head, reterr));
    status = pl_file_read(pl_text_string(&path), RECORD_BYTES_MAX, &text, &bytes, reterr);
    if (status == PL_NOT_FOUND) {
        warn_of_journal(sweep);
        status = begin_new(sweep, job->settings.sweep_fresh != 0 ? pl_text_string(&request) : "", false, reterr);
    } else if (status == PL_OK && job->settings.sweep_fresh != 0 && !strstr(text, pl_text_string(&head))) {
        status = begin_new(sweep, pl_text_string(&request), true, reterr); /* a request counts once */
    } else if (status == PL_OK) {
        status = strlen(text) == bytes ? pl_sweep_record_read(sweep, text, reterr)
                                       : other_sweep(sweep, reterr, "has a zero byte");
    }
    PL_TRY(status);
    keep_room(sweep);
    return PL_OK;
}

/* Finds the entry of the folder that uses most of the disk. */
static int64_t find_largest(const char *folder, char name[NAME_MAX + 1])
{
    char *const roots[] = {(char *)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    char now[NAME_MAX + 1] = "";
    int64_t most = 0, bytes = 0;

    for (FTSENT *entry = walk ? fts_read(walk) : NULL; entry; entry = fts_read(walk)) {
        if (entry->fts_level == 1 && entry->fts_info != FTS_DP) {
            snprintf(now, sizeof(now), "%s", entry->fts_name);
            bytes = 0;
        }
        bytes +=
            entry->fts_info != FTS_DP && entry->fts_level > 0 ? (int64_t)entry->fts_statp->st_blocks * BLOCK_BYTES : 0;
        if (bytes > most) {
            most = bytes;
            memcpy(name, now, sizeof(now));
        }
    }
    if (walk) {
        fts_close(walk);
    }
    return most;
}

void pl_sweep_record_full(const struct pl_sweep *sweep, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    char name[NAME_MAX + 1] = "";
    struct statvfs info;
    int64_t bytes;

    path_of(sweep, sweep->id, &path);
    if (pl_text_check(&path, NULL) != PL_OK || statvfs(sweep->folder, &info) != 0 || info.f_blocks == 0 ||
        (int64_t)(info.f_bavail * info.f_frsize) >= FULL_BYTES) {
        return;
    }
    pl_text_printf(text, "the disk of '%s' is full: it has %lld bytes, of which %lld are free", sweep->folder,
                   (long long)(info.f_blocks * info.f_frsize), (long long)(info.f_bavail * info.f_frsize));
    bytes = find_largest(pl_text_string(&path), name);
    if (bytes > 0) {
        pl_text_printf(text, "; the largest entry of the sweep's is '%s' with %lld bytes", name, (long long)bytes);
    }
}
