/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a sweep's journal, and brings a scheduler back from one. */
#include "programs/sweep/journal.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "programs/sweep/value.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REASON_BYTES_MAX = 4096 };

static const char head[] = "{\"sweep\": 1, \"specification\": ";

struct pl_sweep_journal {
    int fd;
    char *path;
    off_t bytes; /* of whole lines */
    bool broken; /* a part of a line could not be taken back */
};

/* How an end is written. */
static const char *const ends[] = {
    [PL_SWEEP_END_COMPLETED] = "completed",
    [PL_SWEEP_END_STOPPED] = "stopped",
    [PL_SWEEP_END_FAILED] = "failed",
    [PL_SWEEP_END_LOST] = "lost",
};

/* What is read from a journal, and applied. */
struct replay {
    const struct pl_sweep_space *space;
    struct pl_scheduler *scheduler;
    struct pl_sweep_record *records;
};

static enum pl_status write_line(struct pl_sweep_journal *journal, const struct pl_text *line, bool to_disk,
                                 struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(pl_text_check(line, reterr));
    if (journal->broken) {
        return pl_error_set(reterr, PL_SYSTEM, "'%s' ends with a part of a line since an earlier error", journal->path);
    }
    status = pl_file_write_fd(journal->fd, line->data, line->length, journal->path, reterr);
    if (status != PL_OK) {
        journal->broken = ftruncate(journal->fd, journal->bytes) != 0;
        return status;
    }
    journal->bytes += (off_t)line->length;
    if (to_disk && fdatasync(journal->fd) != 0) {
        return pl_error_errno(reterr, "bring '%s' to disk", journal->path);
    }
    return PL_OK;
}

enum pl_status pl_sweep_journal_start(struct pl_sweep_journal *journal, size_t trial, const char *host,
                                      struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_printf(&line, "{\"start\": %zu, \"host\": ", trial);
    pl_sweep_value_print_string(host, REASON_BYTES_MAX, &line);
    pl_text_append(&line, "}\n");
    return write_line(journal, &line, true, reterr);
}

enum pl_status pl_sweep_journal_report(struct pl_sweep_journal *journal, size_t trial, int64_t step, double value,
                                       struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    if (step < 1 || step > PL_SWEEP_STEP_MAX) {
        return PL_OK; /* it changes nothing */
    }
    pl_text_printf(&line, "{\"report\": %zu, \"step\": %lld, \"value\": ", trial, (long long)step);
    if (isfinite(value)) {
        pl_python_json_print_double(value, &line);
    } else {
        pl_text_append(&line, "null");
    }
    pl_text_append(&line, "}\n");
    return write_line(journal, &line, false, reterr);
}

static void append_end(struct pl_text *text, size_t trial, enum pl_sweep_end end, double seconds, const char *reason)
{
    pl_text_printf(text, "{\"end\": %zu, \"how\": \"%s\", \"seconds\": ", trial, ends[end]);
    pl_python_json_print_double(isfinite(seconds) ? seconds : 0, text);
    pl_text_append(text, ", \"reason\": ");
    pl_sweep_value_print_string(reason, REASON_BYTES_MAX, text);
    pl_text_append(text, "}\n");
}

enum pl_status pl_sweep_journal_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end,
                                    double seconds, const char *reason, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    append_end(&line, trial, end, seconds, reason);
    return write_line(journal, &line, true, reterr);
}

enum pl_status pl_sweep_journal_closed(struct pl_sweep_journal *journal, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_append(&line, "{\"closed\": true}\n");
    return write_line(journal, &line, true, reterr);
}

/* The number of a trial that is in the state that the event needs. */
static enum pl_status read_trial(const struct replay *replay, const struct pl_sweep_value *root, const char *event,
                                 size_t *ret_trial, struct pl_error *reterr)
{
    struct pl_sweep_value value = pl_sweep_value_member(root, event);
    bool starts = strcmp(event, "start") == 0;
    enum pl_sweep_state state;
    int64_t number = 0;

    PL_TRY(pl_sweep_value_whole(&value, 0, (int64_t)replay->space->trials_count - 1, &number, reterr));
    state = pl_scheduler_progress(replay->scheduler, (size_t)number)->state;
    if (starts ? state != PL_SWEEP_WAITING && state != PL_SWEEP_PAUSED : state != PL_SWEEP_RUNNING) {
        return pl_sweep_value_wrong(&value, starts ? "a trial that waits or pauses then" : "a trial that runs then",
                                    reterr);
    }
    *ret_trial = (size_t)number;
    return PL_OK;
}

/* `*text` is replaced by the string `name`, or NULL where that is null. */
static enum pl_status read_string(const struct pl_sweep_value *root, const char *name, char **text,
                                  struct pl_error *reterr)
{
    struct pl_sweep_value value = pl_sweep_value_member(root, name);
    const char *read = NULL;

    free(*text);
    *text = NULL;
    if (value.node && pl_python_json_kind(value.node) == PL_PYTHON_JSON_NULL) {
        return PL_OK;
    }
    PL_TRY(pl_sweep_value_text(&value, &read, reterr));
    *text = pl_memory_string(read, reterr);
    return *text ? PL_OK : PL_MEMORY;
}

static enum pl_status replay_start(struct replay *replay, const struct pl_sweep_value *root, struct pl_error *reterr)
{
    static const char *const names[] = {"start", "host", NULL};
    size_t trial = 0;

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    PL_TRY(read_trial(replay, root, "start", &trial, reterr));
    PL_TRY(read_string(root, "host", &replay->records[trial].host, reterr));
    pl_scheduler_note_start(replay->scheduler, trial);
    return PL_OK;
}

static enum pl_status replay_report(struct replay *replay, const struct pl_sweep_value *root, struct pl_error *reterr)
{
    static const char *const names[] = {"report", "step", "value", NULL};
    struct pl_sweep_value step_value = pl_sweep_value_member(root, "step");
    struct pl_sweep_value value = pl_sweep_value_member(root, "value");
    double number = (double)NAN;
    int64_t step = 0;
    size_t trial = 0;

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    PL_TRY(read_trial(replay, root, "report", &trial, reterr));
    PL_TRY(pl_sweep_value_whole(&step_value, 1, PL_SWEEP_STEP_MAX, &step, reterr));
    if (!value.node || pl_python_json_kind(value.node) != PL_PYTHON_JSON_NULL) {
        PL_TRY(pl_sweep_value_number(&value, &number, reterr));
    }
    pl_scheduler_note_report(replay->scheduler, trial, step, number);
    return PL_OK;
}

static enum pl_status replay_end(struct replay *replay, const struct pl_sweep_value *root, struct pl_error *reterr)
{
    static const char *const names[] = {"end", "how", "seconds", "reason", NULL};
    struct pl_sweep_value how = pl_sweep_value_member(root, "how");
    struct pl_sweep_value seconds_value = pl_sweep_value_member(root, "seconds");
    const char *text = NULL;
    double seconds = 0;
    size_t trial = 0;

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    PL_TRY(read_trial(replay, root, "end", &trial, reterr));
    PL_TRY(pl_sweep_value_text(&how, &text, reterr));
    PL_TRY(pl_sweep_value_number(&seconds_value, &seconds, reterr));
    PL_TRY(read_string(root, "reason", &replay->records[trial].reason, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(ends); i++) {
        if (strcmp(ends[i], text) == 0) {
            replay->records[trial].seconds += seconds;
            pl_scheduler_note_end(replay->scheduler, trial, (enum pl_sweep_end)i);
            return PL_OK;
        }
    }
    return pl_sweep_value_wrong(&how, "completed, stopped, failed or lost", reterr);
}

/* Errors begin with ":1:COLUMN: ". */
static enum pl_status replay_event(struct replay *replay, const char *line, size_t bytes, struct pl_error *reterr)
{
    static const char *const names[] = {"start", "report", "end", "closed", NULL};
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    struct pl_sweep_value root;

    PL_TRY(pl_python_json_parse_strict(line, bytes, "", &document, reterr));
    root = pl_sweep_value_root(document, "");
    if (pl_python_json_member(document, "start")) {
        return replay_start(replay, &root, reterr);
    }
    if (pl_python_json_member(document, "report")) {
        return replay_report(replay, &root, reterr);
    }
    if (pl_python_json_member(document, "end")) {
        return replay_end(replay, &root, reterr);
    }
    PL_TRY(pl_sweep_value_object(&root, names, reterr));
    if (pl_python_json_count(document) == 0) {
        return pl_sweep_value_wrong(&root, "an object with start, report, end or closed", reterr);
    }
    pl_scheduler_close(replay->scheduler);
    return PL_OK;
}

/* Line `number` of the file at `path`, without its end. */
static enum pl_status replay_line(struct replay *replay, const char *line, size_t bytes, const char *path,
                                  size_t number, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = replay_event(replay, line, bytes, &error);

    if (status == PL_OK) {
        return PL_OK;
    }
    return pl_error_set(reterr, status, "%s:%zu:%s", path, number,
                        error.cause + (strncmp(error.cause, ":1:", 3) == 0 ? 3 : 0));
}

/* The first line, with its end. */
static enum pl_status make_head(const struct pl_sweep_space *space, struct pl_text *line, struct pl_error *reterr)
{
    pl_text_append(line, head);
    pl_python_json_print_string(space->text, line);
    pl_text_append(line, "}\n");
    return pl_text_check(line, reterr);
}

/* Whether a first line, which may have lost its end, is `expected` as far as it goes. */
static enum pl_status check_head(const char *path, const struct pl_text *expected, const char *line, size_t bytes,
                                 struct pl_error *reterr)
{
    if (bytes <= expected->length && memcmp(line, expected->data, bytes) == 0) {
        return PL_OK;
    }
    if (bytes >= sizeof(head) - 1 && memcmp(line, head, sizeof(head) - 1) == 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "'%s' is of another sweep, with another specification; remove it to begin again", path);
    }
    return pl_error_set(reterr, PL_INVALID, "%s:1: expected the journal of a sweep, found something else", path);
}

/* Read the lines and apply them; journal->bytes is how far they are whole. */
static enum pl_status replay_file(struct pl_sweep_journal *journal, FILE *file, struct replay *replay,
                                  const struct pl_text *first, struct pl_error *reterr)
{
    PL_AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;

    for (size_t number = 1; (bytes = getline(&line, &capacity, file)) > 0; number++) {
        if (number == 1) {
            PL_TRY(check_head(journal->path, first, line, (size_t)bytes, reterr));
        }
        if (line[bytes - 1] != '\n') {
            break;
        }
        if (number > 1) {
            PL_TRY(replay_line(replay, line, (size_t)bytes - 1, journal->path, number, reterr));
        }
        journal->bytes += (off_t)bytes;
    }
    return ferror(file) ? pl_error_errno(reterr, "read '%s'", journal->path) : PL_OK;
}

static enum pl_status replay_fd(struct pl_sweep_journal *journal, struct replay *replay, const struct pl_text *first,
                                struct pl_error *reterr)
{
    int fd = fcntl(journal->fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    enum pl_status status;

    if (!file) {
        status = pl_error_errno(reterr, "read '%s'", journal->path);
        pl_file_close_at(&fd);
        return status;
    }
    status = replay_file(journal, file, replay, first, reterr);
    fclose(file);
    return status;
}

/* A new file must also be found after a crash. */
static enum pl_status sync_folder(const char *path, struct pl_error *reterr)
{
    PL_AUTO_FREE char *folder = pl_memory_string(path, reterr);
    PL_AUTO_CLOSE int fd = -1;
    char *slash = folder ? strrchr(folder, '/') : NULL;

    if (!folder) {
        return PL_MEMORY;
    }
    if (slash) {
        slash[slash == folder] = '\0';
    }
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        return pl_error_errno(reterr, "bring the folder of '%s' to disk", path);
    }
    return PL_OK;
}

/* Open and lock the file. */
static enum pl_status take_file(struct pl_sweep_journal *journal, struct pl_error *reterr)
{
    struct stat info;

    journal->fd = open(journal->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (journal->fd < 0 || fstat(journal->fd, &info) != 0) {
        return pl_error_errno(reterr, "open '%s'", journal->path);
    }
    if (!S_ISREG(info.st_mode)) {
        return pl_error_set(reterr, PL_INVALID, "'%s': expected a file for the journal of a sweep, found another kind",
                            journal->path);
    }
    if (flock(journal->fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? pl_error_set(reterr, PL_INVALID, "'%s' is in use by another sweep", journal->path)
                                    : pl_error_errno(reterr, "lock '%s'", journal->path);
    }
    return PL_OK;
}

/* What ran when the journal ended is lost, which the journal then says too. */
static enum pl_status lose_running(struct pl_sweep_journal *journal, struct replay *replay, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text lines = PL_TEXT_NONE;

    for (size_t i = 0; i < replay->space->trials_count; i++) {
        if (pl_scheduler_progress(replay->scheduler, i)->state == PL_SWEEP_RUNNING) {
            pl_scheduler_note_end(replay->scheduler, i, PL_SWEEP_END_LOST);
            append_end(&lines, i, PL_SWEEP_END_LOST, 0, NULL);
        }
    }
    return lines.length > 0 || lines.failed ? write_line(journal, &lines, true, reterr) : PL_OK;
}

static enum pl_status open_and_replay(struct pl_sweep_journal *journal, struct replay *replay, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text first = PL_TEXT_NONE;

    PL_TRY(make_head(replay->space, &first, reterr));
    PL_TRY(take_file(journal, reterr));
    PL_TRY(replay_fd(journal, replay, &first, reterr));
    if (ftruncate(journal->fd, journal->bytes) != 0) {
        return pl_error_errno(reterr, "cut the last line of '%s', which has no end", journal->path);
    }
    if (journal->bytes == 0) {
        PL_TRY(write_line(journal, &first, true, reterr));
        PL_TRY(sync_folder(journal->path, reterr));
    }
    return lose_running(journal, replay, reterr);
}

enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     struct pl_scheduler *scheduler, struct pl_sweep_record *records,
                                     struct pl_sweep_journal **ret_journal, struct pl_error *reterr)
{
    struct replay replay = {.space = space, .scheduler = scheduler, .records = records};
    struct pl_sweep_journal *journal = pl_memory_new(1, sizeof(*journal), reterr);
    enum pl_status status = PL_MEMORY;

    if (!journal) {
        return PL_MEMORY;
    }
    journal->fd = -1;
    journal->path = pl_memory_string(path, reterr);
    if (journal->path) {
        status = open_and_replay(journal, &replay, reterr);
    }
    if (status != PL_OK) {
        pl_sweep_journal_close(journal);
        return status;
    }
    *ret_journal = journal;
    return PL_OK;
}

void pl_sweep_journal_close(struct pl_sweep_journal *journal)
{
    if (journal) {
        pl_file_close_at(&journal->fd);
        free(journal->path);
        free(journal);
    }
}
