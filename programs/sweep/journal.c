/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a sweep's journal, and restores a scheduler from it. */
#include "programs/sweep/journal.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "programs/sweep/archive.h"
#include "programs/sweep/identity.h"
#include "programs/sweep/journal_file.h"
#include "programs/sweep/space/value.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REASON_BYTES_MAX = 4096, VERSION = 2 };

/* The beginnings of lines. */
static const char head[] = "{\"sweep\": ";
static const char asked_head[] = "{\"asked\": ";
static const char report_head[] = "{\"report\": ";
struct pl_sweep_journal {
    struct pl_journal_file file;
    bool has_reports; /* whether any trial has reported a value */
};

/* The words for the ends of trials. */
static const char *const ends[] = {
    [PL_SWEEP_END_COMPLETED] = "completed", [PL_SWEEP_END_STOPPED] = "stopped", [PL_SWEEP_END_FAILED] = "failed",
    [PL_SWEEP_END_LOST] = "lost",           [PL_SWEEP_END_UNSEEN] = "unseen",
};

/* The objects to which the events of a journal are applied. */
struct replay {
    const struct pl_sweep_space *space;
    struct pl_scheduler *scheduler;
    struct pl_sweep_record *records;
    double limit_s; /* the time that the sweep had reached when it was closed last */
};

enum pl_status pl_sweep_journal_start(struct pl_sweep_journal *journal, size_t trial, const char *host,
                                      struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_printf(&line, "{\"start\": %zu, \"host\": ", trial);
    pl_sweep_value_print_string(host, REASON_BYTES_MAX, &line);
    return pl_journal_file_write(&journal->file, &line, true, reterr);
}

enum pl_status pl_sweep_journal_report(struct pl_sweep_journal *journal, size_t trial, int64_t step, double value,
                                       bool is_again, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    if (step < 0 || step > PL_SWEEP_STEP_MAX) {
        return PL_OK; /* the scheduler ignores such a step */
    }
    pl_text_printf(&line, "%s%zu, \"step\": %lld, \"value\": ", report_head, trial, (long long)step);
    if (isfinite(value)) {
        pl_python_json_print_double(value, &line);
    } else {
        pl_text_append(&line, "null");
    }
    pl_text_append(&line, is_again ? ", \"again\": true" : "");
    journal->has_reports = true;
    return pl_journal_file_write(&journal->file, &line, false, reterr);
}

static enum pl_status write_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end, double seconds,
                                const char *reason, bool to_disk, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_printf(&line, "{\"end\": %zu, \"how\": \"%s\", \"seconds\": ", trial, ends[end]);
    pl_python_json_print_double(isfinite(seconds) ? seconds : 0, &line);
    pl_text_append(&line, ", \"reason\": ");
    pl_sweep_value_print_string(reason, REASON_BYTES_MAX, &line);
    return pl_journal_file_write(&journal->file, &line, to_disk, reterr);
}

enum pl_status pl_sweep_journal_end(struct pl_sweep_journal *journal, size_t trial, enum pl_sweep_end end,
                                    double seconds, const char *reason, struct pl_error *reterr)
{
    return write_end(journal, trial, end, seconds, reason, true, reterr);
}

enum pl_status pl_sweep_journal_closed(struct pl_sweep_journal *journal, double limit_s, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    pl_text_append(&line, "{\"closed\": true, \"limit_s\": ");
    pl_python_json_print_double(limit_s, &line);
    return pl_journal_file_write(&journal->file, &line, true, reterr);
}

/* Reads the number of a trial, and checks that its state permits the event. */
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
        return pl_sweep_value_wrong(
            &value, starts ? "a trial that waits or pauses at this point" : "a trial that runs at this point", reterr);
    }
    *ret_trial = (size_t)number;
    return PL_OK;
}

/* Replaces `*text` with the string member `name`, or with NULL if the member is null. */
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
    replay->records[trial].has_begun = true;
    pl_scheduler_note_start(replay->scheduler, trial);
    return PL_OK;
}

static enum pl_status replay_report(struct replay *replay, const struct pl_sweep_value *root, struct pl_error *reterr)
{
    static const char *const names[] = {"report", "step", "value", "again", NULL};
    const struct pl_sweep_progress *progress;
    struct pl_sweep_value step_value = pl_sweep_value_member(root, "step");
    struct pl_sweep_value value = pl_sweep_value_member(root, "value");
    double number = (double)NAN;
    int64_t step = 0;
    size_t trial = 0;

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    PL_TRY(read_trial(replay, root, "report", &trial, reterr));
    PL_TRY(pl_sweep_value_whole(&step_value, 0, PL_SWEEP_STEP_MAX, &step, reterr));
    if (!value.node || pl_python_json_kind(value.node) != PL_PYTHON_JSON_NULL) {
        PL_TRY(pl_sweep_value_number(&value, &number, reterr));
    }
    progress = pl_scheduler_progress(replay->scheduler, trial);
    if (progress->has_step && step == progress->step && !pl_python_json_member(root->node, "again")) {
        return PL_OK; /* an earlier version wrote the line, and ignored the report */
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
            replay->records[trial].has_begun = i != PL_SWEEP_END_UNSEEN;
            pl_scheduler_note_end(replay->scheduler, trial, (enum pl_sweep_end)i);
            return PL_OK;
        }
    }
    return pl_sweep_value_wrong(&how, "completed, stopped, failed, lost or unseen", reterr);
}

static enum pl_status replay_closed(struct replay *replay, const struct pl_sweep_value *root, struct pl_error *reterr)
{
    static const char *const names[] = {"closed", "limit_s", NULL};
    struct pl_sweep_value closed = pl_sweep_value_member(root, "closed");
    struct pl_sweep_value limit = pl_sweep_value_member(root, "limit_s");

    PL_TRY(pl_sweep_value_object(root, names, reterr));
    if (pl_python_json_kind(closed.node) != PL_PYTHON_JSON_BOOL) {
        return pl_sweep_value_wrong(&closed, "true or false", reterr);
    }
    if (!pl_python_json_bool(closed.node)) {
        pl_scheduler_reopen(replay->scheduler);
        return PL_OK;
    }
    replay->limit_s = DBL_MAX; /* an earlier version wrote no limit */
    if (limit.node) {
        PL_TRY(pl_sweep_value_number(&limit, &replay->limit_s, reterr));
    }
    pl_scheduler_close(replay->scheduler);
    return PL_OK;
}

/* Applies one line. Its errors begin with ", line 1, column COLUMN: ". */
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
    if (pl_python_json_member(document, "closed")) {
        return replay_closed(replay, &root, reterr);
    }
    PL_TRY(pl_sweep_value_object(&root, names, reterr));
    return pl_sweep_value_wrong(&root, "an object with start, report, end or closed", reterr);
}

/* The sweep of a journal, by its first line and by the last line with a change. */
struct known {
    struct pl_python_json *document; /* NULL if the journal has no line */
    const struct pl_python_json *identity;
    char *fresh; /* NULL if the line has null */
    size_t trials;
    uint64_t digest;
};

static void known_done(struct known *known)
{
    pl_python_json_free(known->document);
    free(known->fresh);
}

#define AUTO_KNOWN __attribute__((cleanup(known_done)))

/* Reads a line with the identity of the sweep. Its errors begin with ", line 1, column COLUMN: ". */
static enum pl_status read_asked(const char *line, size_t bytes, struct known *known, struct pl_error *reterr)
{
    static const char *const names[] = {"sweep", "fresh", "asked", "trials", "digest", NULL};
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    struct pl_sweep_value root, asked, value;
    const char *digest = NULL;
    int64_t number = 0;

    PL_TRY(pl_python_json_parse_strict(line, bytes, "", &document, reterr));
    root = pl_sweep_value_root(document, "");
    PL_TRY(pl_sweep_value_object(&root, names, reterr));
    value = pl_sweep_value_member(&root, "sweep");
    if (value.node) {
        PL_TRY(pl_sweep_value_whole(&value, VERSION, VERSION, &number, reterr));
        PL_TRY(read_string(&root, "fresh", &known->fresh, reterr));
    }
    asked = pl_sweep_value_member(&root, "asked");
    if (!asked.node || pl_python_json_kind(asked.node) != PL_PYTHON_JSON_OBJECT) {
        return pl_sweep_value_wrong(&asked, "an object", reterr);
    }
    value = pl_sweep_value_member(&root, "trials");
    PL_TRY(pl_sweep_value_whole(&value, 1, PL_SWEEP_TRIALS_MAX, &number, reterr));
    value = pl_sweep_value_member(&root, "digest");
    PL_TRY(pl_sweep_value_text(&value, &digest, reterr));
    pl_python_json_free(known->document);
    known->document = PL_TAKE(document);
    known->identity = asked.node;
    known->trials = (size_t)number;
    known->digest = strtoull(digest, NULL, 16);
    return PL_OK;
}

static bool begins_with(const struct pl_journal_line *line, const char *beginning)
{
    return strncmp(line->text, beginning, strlen(beginning)) == 0;
}

/* Puts the file and the line number before an error, in place of ", line 1" if it begins so. */
static enum pl_status at_line(const struct pl_sweep_journal *journal, const struct pl_journal_line *line,
                              enum pl_status status, const struct pl_error *error, struct pl_error *reterr)
{
    static const char first_line[] = ", line 1";
    const bool is_in_line = strncmp(error->cause, first_line, strlen(first_line)) == 0;

    if (status == PL_OK) {
        return PL_OK;
    }
    return pl_error_set(reterr, status, "%s, line %zu%s%s", journal->file.path, line->number, is_in_line ? "" : ": ",
                        error->cause + (is_in_line ? strlen(first_line) : 0));
}

/* The first pass: checks the checksum of each line, and finds which sweep the journal belongs to. */
static enum pl_status scan(struct pl_sweep_journal *journal, struct known *known, struct pl_error *reterr)
{
    PL_AUTO_JOURNAL_LINE struct pl_journal_line line = {.stream = NULL};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(pl_journal_line_open(&journal->file, &line, reterr));
    while ((status = pl_journal_line_next(&journal->file, &line, reterr)) == PL_OK) {
        if (line.number == 1 || begins_with(&line, asked_head)) {
            PL_TRY(at_line(journal, &line, read_asked(line.text, line.bytes, known, &error), &error, reterr));
        }
        journal->has_reports = journal->has_reports || begins_with(&line, report_head);
    }
    return status == PL_END ? PL_OK : status;
}

/* The second pass: applies the events. */
static enum pl_status replay_all(struct pl_sweep_journal *journal, struct replay *replay, struct pl_error *reterr)
{
    PL_AUTO_JOURNAL_LINE struct pl_journal_line line = {.stream = NULL};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(pl_journal_line_open(&journal->file, &line, reterr));
    while ((status = pl_journal_line_next(&journal->file, &line, reterr)) == PL_OK) {
        if (line.number > 1 && !begins_with(&line, asked_head)) {
            PL_TRY(at_line(journal, &line, replay_event(replay, line.text, line.bytes, &error), &error, reterr));
        }
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status write_asked(struct pl_sweep_journal *journal, const struct pl_sweep_space *space,
                                  const struct pl_sweep_asked *asked, bool is_first, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    if (is_first) {
        pl_text_printf(&line, "%s%d, \"fresh\": ", head, VERSION);
        pl_sweep_value_print_string(asked->fresh, REASON_BYTES_MAX, &line);
        pl_text_append(&line, ", \"asked\": ");
    } else {
        pl_text_append(&line, asked_head);
    }
    pl_python_json_print(asked->identity, PL_PYTHON_JSON_SPACED, &line);
    pl_text_printf(&line, ", \"trials\": %zu, \"digest\": \"%016" PRIx64 "\"", space->trials_count,
                   pl_sweep_identity_trials(space, space->trials_count));
    return pl_journal_file_write(&journal->file, &line, true, reterr);
}

/* Appends the first difference between this sweep and the journal's. Appends nothing if they are the same sweep. */
static void find_difference(const struct pl_sweep_journal *journal, const struct known *known,
                            const struct pl_sweep_space *space, const struct pl_sweep_asked *asked,
                            struct pl_text *words)
{
    const bool fewer = space->trials_count < known->trials;
    const bool others = fewer || pl_sweep_identity_trials(space, known->trials) != known->digest;
    const unsigned also =
        (others ? PL_SWEEP_IDENTITY_TRIALS : 0U) | (journal->has_reports ? PL_SWEEP_IDENTITY_METRIC : 0U);

    if (!pl_sweep_identity_differs(known->identity, asked->identity, also, words) && others) {
        pl_text_printf(words, "its first trials have changed (it had %zu trials, and has %zu)", known->trials,
                       space->trials_count);
    }
}

/* Marks the trials that ran when the journal ended as lost, also in the journal. */
static enum pl_status lose_running(struct pl_sweep_journal *journal, struct replay *replay, struct pl_error *reterr)
{
    for (size_t i = 0; i < replay->space->trials_count; i++) {
        if (pl_scheduler_progress(replay->scheduler, i)->state == PL_SWEEP_RUNNING) {
            pl_scheduler_note_end(replay->scheduler, i, PL_SWEEP_END_LOST);
            PL_TRY(write_end(journal, i, PL_SWEEP_END_LOST, 0, NULL, false, reterr));
        }
    }
    return fdatasync(journal->file.fd) == 0 ? PL_OK : pl_error_errno(reterr, "fdatasync '%s'", journal->file.path);
}

/* Continues a sweep whose time was over, if the job has more time or more trials. */
static enum pl_status reopen(struct pl_sweep_journal *journal, struct replay *replay, bool has_more_trials,
                             const struct pl_sweep_asked *asked, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    if (!pl_scheduler_is_closed(replay->scheduler) || (!has_more_trials && asked->limit_s <= replay->limit_s)) {
        return PL_OK;
    }
    pl_text_append(&line, "{\"closed\": false");
    PL_TRY(pl_journal_file_write(&journal->file, &line, true, reterr));
    pl_scheduler_reopen(replay->scheduler);
    return PL_OK;
}

/* Begins a journal that is empty or has a part of a first line: no trial has begun. */
static enum pl_status begin(struct pl_sweep_journal *journal, const struct pl_sweep_space *space,
                            const struct pl_sweep_asked *asked, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;

    pl_sweep_archive_folder_of(journal->file.path, &folder);
    PL_TRY(pl_text_check(&folder, reterr));
    PL_TRY(pl_sweep_archive_trials(pl_text_string(&folder), reterr));
    PL_TRY(pl_journal_file_sync_folder(&journal->file, reterr));
    journal->file.bytes = 0;
    journal->file.crc = 0;
    journal->has_reports = false;
    if (ftruncate(journal->file.fd, 0) != 0) {
        return pl_error_errno(reterr, "removing the incomplete first line of '%s'", journal->file.path);
    }
    PL_TRY(write_asked(journal, space, asked, true, reterr));
    return pl_journal_file_sync_folder(&journal->file, reterr);
}

/* Whether to start a new sweep: the job asks for one, and the journal did not begin with the same request. So each
 * request counts once. */
static bool is_to_start_new(const struct known *known, const struct pl_sweep_asked *asked)
{
    return asked->fresh && !(known->fresh && strcmp(known->fresh, asked->fresh) == 0);
}

/* Refuses the journal: it belongs to another sweep, with `words` as the difference, or it cannot be read, with the
 * cause in `reterr` already. */
static enum pl_status refuse(const struct pl_sweep_journal *journal, const struct pl_sweep_asked *asked,
                             const char *words, struct pl_error *reterr)
{
    const long number = asked->fresh ? strtol(asked->fresh, NULL, 10) : 0;
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE, next = PL_TEXT_NONE;

    pl_sweep_archive_folder_of(journal->file.path, &folder);
    pl_sweep_archive_next(pl_text_string(&folder), &next);
    if (*words != '\0') {
        pl_error_set(reterr, PL_INVALID, "'%s' belongs to another sweep: %s", journal->file.path, words);
    }
    pl_error_context(reterr, "paceline_sweep_fresh=%ld starts a new sweep, and keeps the present files in '%s'",
                     number + 1, pl_text_string(&next));
    return PL_INVALID;
}

static enum pl_status open_and_replay(struct pl_sweep_journal *journal, struct replay *replay,
                                      const struct pl_sweep_asked *asked, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text words = PL_TEXT_NONE;
    AUTO_KNOWN struct known known = {.document = NULL};
    enum pl_status status;
    bool has_more_trials;

    PL_TRY(pl_journal_file_take(&journal->file, 0, reterr));
    status = scan(journal, &known, reterr);
    if (status != PL_OK && status != PL_INVALID && status != PL_LIMIT) {
        return status;
    }
    if (status == PL_OK && !known.document) {
        return begin(journal, replay->space, asked, reterr);
    }
    if (known.document) {
        find_difference(journal, &known, replay->space, asked, &words);
        PL_TRY(pl_text_check(&words, reterr));
    }
    if (is_to_start_new(&known, asked)) {
        PL_TRY(pl_sweep_archive_journal(journal->file.path, reterr));
        PL_TRY(pl_journal_file_take(&journal->file, O_EXCL, reterr));
        return begin(journal, replay->space, asked, reterr);
    }
    if (status != PL_OK || words.length > 0) {
        return refuse(journal, asked, status != PL_OK ? "" : pl_text_string(&words), reterr);
    }
    has_more_trials = replay->space->trials_count > known.trials;
    PL_TRY(replay_all(journal, replay, reterr));
    if (ftruncate(journal->file.fd, journal->file.bytes) != 0) {
        return pl_error_errno(reterr, "removing the incomplete last line of '%s'", journal->file.path);
    }
    PL_TRY(lose_running(journal, replay, reterr));
    PL_TRY(reopen(journal, replay, has_more_trials, asked, reterr));
    if (has_more_trials ||
        pl_sweep_identity_differs(known.identity, asked->identity, PL_SWEEP_IDENTITY_METRIC, &words)) {
        return write_asked(journal, replay->space, asked, false, reterr);
    }
    return PL_OK;
}

enum pl_status pl_sweep_journal_open(const char *path, const struct pl_sweep_space *space,
                                     const struct pl_sweep_asked *asked, struct pl_scheduler *scheduler,
                                     struct pl_sweep_record *records, struct pl_sweep_journal **ret_journal,
                                     struct pl_error *reterr)
{
    struct replay replay = {.space = space, .scheduler = scheduler, .records = records};
    struct pl_sweep_journal *journal = pl_memory_new(1, sizeof(*journal), reterr);
    enum pl_status status = PL_MEMORY;

    if (!journal) {
        return PL_MEMORY;
    }
    journal->file.fd = -1;
    journal->file.path = pl_memory_string(path, reterr);
    if (journal->file.path) {
        status = open_and_replay(journal, &replay, asked, reterr);
    }
    if (status != PL_OK) {
        pl_sweep_journal_close(journal);
        return status;
    }
    *ret_journal = journal;
    return PL_OK;
}

bool pl_sweep_journal_has_reports(const struct pl_sweep_journal *journal)
{
    return journal->has_reports;
}

void pl_sweep_journal_close(struct pl_sweep_journal *journal)
{
    if (journal) {
        pl_file_close_at(&journal->file.fd);
        free(journal->file.path);
        free(journal);
    }
}
