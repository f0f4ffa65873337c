/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trials.jsonl in the folder `sweep` of the job's checkpoints: a line about the sweep, then one line a trial. The file
 * is written whole when a trial is over, so that it holds each trial once at every moment. The first line names the
 * folder with the trials' files: no sweep can find those of another one.
 */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"

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

const char *const pl_sweep_states[PL_SWEEP_STATES] = {[PL_SWEEP_WAITING] = "waiting",
                                                      [PL_SWEEP_COMPLETED] = "completed",
                                                      [PL_SWEEP_FAILED] = "failed",
                                                      [PL_SWEEP_STOPPED] = "stopped"};

static enum pl_status path_of(const struct pl_sweep *sweep, const char *name, struct pl_text *path,
                              struct pl_error *reterr)
{
    return pl_text_set(path, reterr, "%s/%s", sweep->folder, name);
}

static const char *job_name(const struct pl_job *job)
{
    return job->job_name ? job->job_name : job->sagemaker_job_name ? job->sagemaker_job_name : "";
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
    const char *name = job_name(job);
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE, text = PL_TEXT_NONE;
    const char *at, *found;

    pl_sweep_space_print_value(value, &whole);
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

/* Makes the sweep's identity: what it must share, besides its trials, with a sweep that it continues. */
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
    PL_TRY(pl_text_check(&program, reterr));
    PL_TRY(pl_text_set(&metric, reterr, "%s by %s, %s", sweep->space->metric_name, sweep->space->metric_regex,
                       sweep->space->maximize ? "maximize" : "minimize"));
    PL_TRY(pl_python_json_set(identity, "program", pl_python_json_new_string(pl_text_string(&program)), reterr));
    PL_TRY(pl_python_json_set(identity, "metric", pl_python_json_new_string(pl_text_string(&metric)), reterr));
    PL_TRY(pl_python_json_set(identity, "processes", pl_python_json_new_int64(sweep->space->processes), reterr));
    *ret_identity = PL_TAKE(identity);
    return PL_OK;
}

/* Returns the text of a member of an identity: all but the hyperparameters are strings or numbers. */
static const char *text_of(const struct pl_python_json *node)
{
    const enum pl_python_json_kind kind = node ? pl_python_json_kind(node) : PL_PYTHON_JSON_NULL;

    return kind == PL_PYTHON_JSON_STRING || kind == PL_PYTHON_JSON_INT ? pl_python_json_text(node) : "missing";
}

/* Appends at most SHOWN_BYTES of `whole` from the byte `from` on. */
static void append_part(const char *whole, size_t from, struct pl_text *text)
{
    const size_t bytes = strlen(whole + from);

    pl_text_append(text, from > 0 ? "..." : "");
    pl_text_append_n(text, whole + from, bytes > SHOWN_BYTES ? pl_text_whole_bytes(whole + from, SHOWN_BYTES) : bytes);
    pl_text_append(text, bytes > SHOWN_BYTES ? "..." : "");
}

/* Appends "WHAT BEFORE LINK NOW" for two texts that differ. Of long ones it shows the part with the difference. */
static void append_both(const char *what, const char *before, const char *link, const char *now, struct pl_text *text)
{
    size_t same = 0, from;

    while (before[same] != '\0' && before[same] == now[same]) {
        same++;
    }
    from = same > SHOWN_BYTES / 2 && same + strlen(before + same) > SHOWN_BYTES ? same - SHOWN_BYTES / 2 : 0;
    from = pl_text_whole_bytes(before, from);
    pl_text_append(text, what);
    append_part(before, from, text);
    pl_text_append(text, link);
    append_part(now, from, text);
}

/* Appends the first difference of two objects except in `ignored`: "NAME was X and is Y"; nothing if there is none. */
static void append_difference(const struct pl_python_json *was, const struct pl_python_json *is, const char *prefix,
                              const char *ignored, struct pl_text *text)
{
    const struct pl_python_json *const sides[] = {was, is};

    for (size_t side = 0; side < PL_ARRAY_ITEMS(sides); side++) {
        for (const struct pl_python_json *node = pl_python_json_first(sides[side]); node && text->length == 0;
             node = pl_python_json_next(node)) {
            const char *name = pl_python_json_name(node);
            const char *before = text_of(pl_python_json_member(was, name));
            const char *now = text_of(pl_python_json_member(is, name));

            if (strcmp(name, ignored) != 0 && strcmp(before, now) != 0) {
                pl_text_append(text, prefix);
                pl_text_append(text, name);
                append_both(" was ", before, " and is ", now, text);
            }
        }
    }
}

static void print_row(const struct pl_sweep *sweep, size_t trial, struct pl_text *text)
{
    const struct pl_sweep_run *run = &sweep->runs[trial];

    pl_text_printf(text, "{\"trial\": %zu, \"point\": %zu, \"state\": \"%s\", \"hyperparameters\": ", trial,
                   trial % sweep->space->points_count, pl_sweep_states[run->state]);
    pl_sweep_space_print(sweep->space, trial, text);
    pl_text_append(text, ", ");
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
    if (run->reason.length > 0) {
        pl_python_json_print_string(run->reason.data, text);
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

static enum pl_status write_record(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE, path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(make_identity(sweep, &identity, reterr));
    pl_text_printf(&text, "{\"sweep\": \"%s\", \"closed_s\": %.9g, \"fresh\": ", sweep->id, sweep->closed_s);
    pl_python_json_print_string(sweep->fresh, &text);
    pl_text_append(&text, ", \"identity\": ");
    pl_python_json_print(identity, PL_PYTHON_JSON_SPACED, &text);
    pl_text_append(&text, "}\n");
    pl_sweep_record_rows(sweep, &text);
    PL_TRY(pl_text_check(&text, reterr));
    PL_TRY(path_of(sweep, "trials.jsonl", &path, reterr));
    status = pl_file_write_atomic(path.data, text.data, text.length, 0644, &error);
    if (status != PL_OK && (error.code == ENOSPC || error.code == EDQUOT)) {
        sweep->full = true;
        pl_file_close_at(&sweep->room_fd);
        return pl_file_write_atomic(path.data, text.data, text.length, 0644, reterr);
    }
    if (status != PL_OK) {
        *reterr = error;
    }
    return status;
}

void pl_sweep_record_write(struct pl_sweep *sweep)
{
    struct pl_error error = PL_ERROR_NONE;

    if (write_record(sweep, &error) != PL_OK && !sweep->full) {
        pl_sweep_fail(sweep, "%s", error.cause);
    }
}

/* Returns the member `name` of a line, or sets `*ret_wrong` to `name` if the member does not have this kind. */
static const struct pl_python_json *read_member(const struct pl_python_json *line, const char *name,
                                                enum pl_python_json_kind kind, const char **ret_wrong)
{
    const struct pl_python_json *node = pl_python_json_member(line, name);

    if (!node || pl_python_json_kind(node) != kind) {
        *ret_wrong = name;
        return NULL;
    }
    return node;
}

/* Returns the number `name` of a line, which may be NaN, or sets `*ret_wrong` to its name if it is out of the range. */
static double read_number(const struct pl_python_json *line, const char *name, double least, double most,
                          const char **ret_wrong)
{
    const struct pl_python_json *node = pl_python_json_member(line, name);
    const enum pl_python_json_kind kind = node ? pl_python_json_kind(node) : PL_PYTHON_JSON_NULL;
    const bool is = kind == PL_PYTHON_JSON_INT || kind == PL_PYTHON_JSON_FLOAT;
    const double number = is ? pl_python_json_double(node) : least;

    if (!is || number < least || number > most) {
        *ret_wrong = name;
        return least;
    }
    return number;
}

static enum pl_status damaged(const char *member, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "expected a right \"%s\"", member);
}

static enum pl_status set_fresh(struct pl_sweep *sweep, const char *request, struct pl_error *reterr)
{
    free(sweep->fresh);
    sweep->fresh = pl_memory_string(request, reterr);
    return sweep->fresh ? PL_OK : PL_MEMORY;
}

/* Reads the row of a trial; `line` is its text. */
static enum pl_status read_row(struct pl_sweep *sweep, const struct pl_python_json *row, const char *line, size_t trial,
                               struct pl_error *reterr)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const struct pl_python_json *value = pl_python_json_member(row, sweep->space->metric_name);
    const struct pl_python_json *values = pl_python_json_member(row, "hyperparameters");
    const struct pl_python_json *reason = pl_python_json_member(row, "reason"), *state, *model;
    PL_AUTO_TEXT struct pl_text is = PL_TEXT_NONE, was = PL_TEXT_NONE, words = PL_TEXT_NONE;
    const char *wrong = NULL;
    int at = 0;

    read_number(row, "trial", (double)trial, (double)trial, &wrong);
    state = read_member(row, "state", PL_PYTHON_JSON_STRING, &wrong);
    wrong = values ? wrong : "hyperparameters";
    PL_TRY(wrong ? damaged(wrong, reterr) : PL_OK);
    pl_text_append(&words, "\"hyperparameters\": ");
    pl_sweep_space_print(sweep->space, trial, &words);
    pl_text_append(&words, ", ");
    PL_TRY(pl_text_check(&words, reterr));
    if (!strstr(line, words.data)) {
        pl_sweep_space_print(sweep->space, trial, &is);
        pl_python_json_print(values, PL_PYTHON_JSON_SPACED, &was);
        pl_text_clear(&words);
        pl_text_printf(&words, "belongs to another sweep: trial %zu", trial);
        append_both(" had ", pl_text_string(&was), " and has ", pl_text_string(&is), &words);
        return other_sweep(sweep, reterr, pl_text_string(&words));
    }
    while (at < PL_SWEEP_STATES && strcmp(pl_python_json_text(state), pl_sweep_states[at]) != 0) {
        at++;
    }
    PL_TRY(at < PL_SWEEP_STATES ? PL_OK : damaged("state", reterr));
    run->state = (enum pl_sweep_state)at;
    if (!pl_sweep_is_over(run)) {
        return PL_OK;
    }
    run->code = (int)read_number(row, "code", 0, 255, &wrong);
    run->seconds = read_number(row, "seconds", 0, INFINITY, &wrong);
    model = read_member(row, "model", PL_PYTHON_JSON_BOOL, &wrong);
    run->has_model = model && pl_python_json_bool(model);
    run->has_value = value && pl_python_json_kind(value) != PL_PYTHON_JSON_NULL;
    run->value = run->has_value ? read_number(row, sweep->space->metric_name, -INFINITY, INFINITY, &wrong) : 0;
    if (reason && pl_python_json_kind(reason) != PL_PYTHON_JSON_NULL &&
        read_member(row, "reason", PL_PYTHON_JSON_STRING, &wrong)) {
        pl_text_append(&run->reason, pl_python_json_text(reason));
    }
    if (run->state == PL_SWEEP_FAILED && sweep->first_failed < 0) {
        sweep->first_failed = (int)trial;
    }
    return wrong ? damaged(wrong, reterr) : PL_OK;
}

/* Compares the file's first line with this sweep. The metric may change while no trial has a value. */
static enum pl_status read_head(struct pl_sweep *sweep, const struct pl_python_json *head, bool any_value,
                                struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = NULL;
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE, difference = PL_TEXT_NONE;
    const char *wrong = NULL, *name;
    const struct pl_python_json *id = read_member(head, "sweep", PL_PYTHON_JSON_STRING, &wrong);
    const struct pl_python_json *fresh = read_member(head, "fresh", PL_PYTHON_JSON_STRING, &wrong);
    const struct pl_python_json *was = read_member(head, "identity", PL_PYTHON_JSON_OBJECT, &wrong);
    const struct pl_python_json *values = read_member(was, "hyperparameters", PL_PYTHON_JSON_OBJECT, &wrong);

    sweep->closed_s = read_number(head, "closed_s", 0, INFINITY, &wrong);
    PL_TRY(wrong ? damaged(wrong, reterr) : PL_OK);
    name = pl_python_json_text(id);
    if (strlen(name) >= sizeof(sweep->id) || strspn(name, "0123456789abcdef") != strlen(name) || *name == '\0') {
        return damaged("sweep", reterr);
    }
    snprintf(sweep->id, sizeof(sweep->id), "%s", name);
    PL_TRY(set_fresh(sweep, pl_python_json_text(fresh), reterr));
    PL_TRY(make_identity(sweep, &identity, reterr));
    append_difference(values, pl_python_json_member(identity, "hyperparameters"), "hyperparameters.", "", &difference);
    append_difference(was, identity, "", any_value ? "" : "metric", &difference);
    PL_TRY(pl_text_set(&words, reterr, "belongs to another sweep: %s", pl_text_string(&difference)));
    return difference.length == 0 ? PL_OK : other_sweep(sweep, reterr, words.data);
}

enum pl_status pl_sweep_record_read(struct pl_sweep *sweep, char *text, struct pl_error *reterr)
{
    const bool any_value = strstr(text, "\"state\": \"completed\""); /* then the metric must be the same */
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
        status = status == PL_INVALID ? PL_CORRUPT : status;
        if (status == PL_OK && lines > sweep->space->trials_count) {
            return other_sweep(sweep, reterr, "belongs to another sweep, with more trials");
        }
        if (status == PL_OK) {
            status =
                lines == 0 ? read_head(sweep, node, any_value, &error) : read_row(sweep, node, line, lines - 1, &error);
        }
        if (status == PL_CORRUPT) {
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

/* Begins a sweep, with a name that no sweep has had. The files of an earlier one stay. */
static enum pl_status begin_new(struct pl_sweep *sweep, const char *request, const char *old, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text kept = PL_TEXT_NONE;
    uint64_t number = 0;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
        return pl_error_errno(reterr, "get random bytes");
    }
    snprintf(sweep->id, sizeof(sweep->id), "%016" PRIx64, number);
    PL_TRY(set_fresh(sweep, request, reterr));
    PL_TRY(pl_text_set(&kept, reterr, "%s/trials-before-%s.jsonl", sweep->folder, sweep->id));
    if (old && rename(old, kept.data) != 0) {
        return pl_error_errno(reterr, "rename '%s'", old);
    }
    return write_record(sweep, reterr);
}

/* Earlier versions had a journal beside this folder. */
static enum pl_status warn_of_journal(const struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    PL_TRY(path_of(sweep, "../sweep.journal", &path, reterr));
    if (access(path.data, F_OK) == 0) {
        pl_log(PL_LOG_WARNING, "'%s' is of an earlier version of Paceline and is not read: this is a new sweep",
               path.data);
    }
    return PL_OK;
}

/* Reserves disk space for the rows, as process 1 does for the failure file. */
static void keep_room(struct pl_sweep *sweep)
{
    int64_t bytes = ROOM_BYTES;

    for (size_t i = 0; i < sweep->space->trials_count; i++) {
        bytes += 2 * (ROW_BYTES / 8);
        for (size_t j = 0; j < sweep->space->trials[i].count; j++) {
            bytes += 2 * (int64_t)strlen(sweep->space->trials[i].items[j]);
        }
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

    pl_text_printf(&path, "%s/sweep", sweep->job->checkpoint_dir);
    PL_TRY(pl_text_take(&path, &sweep->folder, reterr));
    PL_TRY(pl_file_make_dirs(sweep->folder, 0755, reterr));
    sweep->lock_fd = open(sweep->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sweep->lock_fd < 0 || flock(sweep->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? pl_error_set(reterr, PL_LIMIT,
                                  "'%s' belongs to a sweep that is running: expected one job at a time", sweep->folder)
                   : pl_error_errno(reterr, "lock '%s'", sweep->folder);
    }
    return PL_OK;
}

enum pl_status pl_sweep_record_open(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const long long fresh = sweep->job->settings.sweep_fresh;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, request = PL_TEXT_NONE, head = PL_TEXT_NONE;
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    enum pl_status status;

    PL_TRY(open_folder(sweep, reterr));
    PL_TRY(path_of(sweep, "trials.jsonl", &path, reterr));
    pl_text_printf(&request, "%lld %s", fresh, job_name(sweep->job));
    pl_text_append(&head, ", \"fresh\": ");
    pl_python_json_print_string(pl_text_string(&request), &head);
    PL_TRY(pl_text_check(&head, reterr));
    status = pl_file_read(path.data, RECORD_BYTES_MAX, &text, &bytes, reterr);
    if (status == PL_NOT_FOUND) {
        PL_TRY(warn_of_journal(sweep, reterr));
        PL_TRY(begin_new(sweep, fresh != 0 ? request.data : "", NULL, reterr));
    } else if (status == PL_OK && fresh != 0 && !strstr(text, head.data)) {
        PL_TRY(begin_new(sweep, request.data, path.data, reterr)); /* a request counts once */
    } else {
        PL_TRY(status);
        PL_TRY(strlen(text) == bytes ? pl_sweep_record_read(sweep, text, reterr)
                                     : other_sweep(sweep, reterr, "has a zero byte"));
    }
    keep_room(sweep);
    return PL_OK;
}

/* Finds the entry of the folder that uses most of the disk, and returns its bytes. */
static int64_t find_largest(const char *folder, char name[NAME_MAX + 1])
{
    char *const roots[] = {(char *)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    long long most = 0;

    for (FTSENT *entry = walk ? fts_read(walk) : NULL; entry; entry = fts_read(walk)) {
        if (entry->fts_info == FTS_D || entry->fts_level < 1) {
            continue; /* a directory comes again after its contents */
        }
        entry->fts_number += entry->fts_statp->st_blocks * BLOCK_BYTES;
        entry->fts_parent->fts_number += entry->fts_number;
        if (entry->fts_level == 1 && entry->fts_number > most) {
            most = entry->fts_number;
            snprintf(name, NAME_MAX + 1, "%s", entry->fts_name);
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

    if (path_of(sweep, sweep->id, &path, NULL) != PL_OK || statvfs(sweep->folder, &info) != 0 || info.f_blocks == 0 ||
        (int64_t)(info.f_bavail * info.f_frsize) >= FULL_BYTES) {
        return;
    }
    pl_text_printf(text, "the disk of '%s' is full: it has %lld bytes, of which %lld are free", sweep->folder,
                   (long long)(info.f_blocks * info.f_frsize), (long long)(info.f_bavail * info.f_frsize));
    bytes = find_largest(path.data, name);
    if (bytes > 0) {
        pl_text_printf(text, "; the largest entry of the sweep's is '%s' with %lld bytes", name, (long long)bytes);
    }
}
