/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a job left: its description, logs, failure, traces and trials. */
#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "programs/local/metric.h"
#include "programs/report/report.h"
#include "s3io/store_private.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_JSON_BYTES = 4 << 20,
    MOST_FAILURE_BYTES = 64 << 10,
    MOST_NUMBER_BYTES = 40,
    MOST_LINE_BYTES = 64 << 10,
    MOST_HOSTS = 250,
    MOST_RINGS = 4096,
    NOTE_BYTES = 500,
    MOST_TRIAL = 1000000,
};

struct reader {
    const char *folder;
    struct pl_report *report;
    struct pl_local_pairs definitions;
    struct pl_local_metrics *metrics; /* finds metrics by the job's definitions; NULL if there are none */
    struct pl_strv rings;             /* paths of the trace rings of the last attempt */
    long attempt;                     /* the number of the last attempt */
    bool is_sweep;                    /* its trials have lines of the log that begin with "[trial N] " */
    char unpacked[PATH_MAX];          /* a temporary folder; "" if there is none */
};

static void add_note(struct pl_report_notes *notes, const char *text, size_t length)
{
    const size_t bytes = pl_text_whole_bytes(text, length < NOTE_BYTES ? length : NOTE_BYTES);

    notes->all++;
    if (notes->texts.count < PL_REPORT_MOST_NOTES) {
        pl_strv_printf(&notes->texts, "%.*s", (int)bytes, text);
    }
}

static void add_problem(struct reader *reader, const struct pl_error *error)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    pl_error_text(error, text, sizeof(text));
    add_note(&reader->report->problems, text, strlen(text));
}

static enum pl_status add_series(struct reader *reader, const char *name, size_t length, struct pl_series **ret_series,
                                 struct pl_error *reterr)
{
    struct pl_series *series;

    PL_TRY(pl_memory_alloc(&series, 1, sizeof(*series), reterr));
    memcpy(series->name, name, length < PL_SERIES_NAME_BYTES ? length : PL_SERIES_NAME_BYTES);
    reader->report->series[reader->report->series_count++] = series;
    *ret_series = series;
    return PL_OK;
}

/* Returns N of "step=N" in the line; -1 without one. */
static double find_step(const char *line, size_t length)
{
    uint64_t step;

    return pl_local_metrics_number_after(line, length, "step=", &step) ? (double)step : -1;
}

/* Returns N + 1 of a line that begins with "[trial N] "; else 0. */
static unsigned trial_of(const char *line, size_t length)
{
    static const char begin[] = "[trial ";
    uint64_t number;

    return length > sizeof(begin) && strncmp(line, begin, sizeof(begin) - 1) == 0 &&
                   pl_local_metrics_number_after(line, length, begin, &number) && number < MOST_TRIAL
               ? (unsigned)number + 1
               : 0;
}

/* Adds a value at `x`, or with a negative x by its number. */
static void add_value(struct pl_series *series, double x, double value, const char *line, size_t length)
{
    if (series->count == 0) {
        const size_t bytes = pl_text_whole_bytes(line, length < PL_SERIES_LINE_BYTES ? length : PL_SERIES_LINE_BYTES);

        memcpy(series->first_line, line, bytes);
        series->first_line[bytes] = '\0';
        series->has_steps = x >= 0;
    }
    series->line = trial_of(line, length);
    pl_series_add(series, x >= 0 ? x : (double)(series->count + series->not_finite + 1), value);
}

static void take_definition(void *reader_at, size_t index, double value, const char *line, size_t length)
{
    struct reader *reader = reader_at;

    add_value(reader->report->series[index], find_step(line, length), value, line, length);
}

static bool is_name(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '.' || letter == '-' || letter == '/';
}

static void take_word(struct reader *reader, const char *name, size_t name_length, double x, double value,
                      const char *line, size_t length)
{
    struct pl_report *report = reader->report;
    struct pl_series *series = NULL;

    if (name_length > PL_SERIES_NAME_BYTES || (name_length == 4 && strncmp(name, "step", 4) == 0) ||
        (name_length == 5 && strncmp(name, "epoch", 5) == 0)) {
        return;
    }
    for (size_t i = 0; i < report->series_count && !series; i++) {
        if (strncmp(report->series[i]->name, name, name_length) == 0 && report->series[i]->name[name_length] == '\0') {
            series = report->series[i];
        }
    }
    if (!series && report->series_count == PL_REPORT_MOST_SERIES) {
        report->left_out++;
    } else if (series || add_series(reader, name, name_length, &series, NULL) == PL_OK) {
        add_value(series, x, value, line, length);
    }
}

/* Takes each NAME=NUMBER of the line. */
static void take_words(struct reader *reader, const char *line, size_t length)
{
    const double x = find_step(line, length);
    const char *end = line + length;

    for (const char *at = memchr(line, '=', length); at; at = memchr(at, '=', (size_t)(end - at))) {
        const char *name = at, *number = ++at;
        char text[MOST_NUMBER_BYTES + 1];
        size_t bytes = 0;
        double value;

        while (name > line && is_name(name[-1])) {
            name--;
        }
        while (number + bytes < end && bytes <= MOST_NUMBER_BYTES && !isspace((unsigned char)number[bytes]) &&
               number[bytes] != ',' && number[bytes] != ';') {
            bytes++;
        }
        if (bytes == 0 || bytes > MOST_NUMBER_BYTES || name + 1 == number) {
            continue;
        }
        memcpy(text, number, bytes);
        text[bytes] = '\0';
        if (pl_text_number(text, &value)) {
            take_word(reader, name, (size_t)(number - 1 - name), x, value, line, length);
        }
    }
}

static bool has(const char *line, size_t length, const char *words)
{
    return memmem(line, length, words, strlen(words));
}

/* Takes from "paceline: version 0.2.0, mpi: 2 ranks on 2 hosts; this is algo-1, the master" what all hosts share. */
static void take_launch(struct reader *reader, const char *line, size_t length)
{
    const char *end = memmem(line, length, "; this is ", strlen("; this is "));
    const size_t skip = strlen("paceline: ");

    if (!reader->report->launch && end) {
        reader->report->launch = strndup(line + skip, (size_t)(end - line) - skip);
        reader->is_sweep = reader->report->launch && strstr(reader->report->launch, ", sweep: ");
    }
}

static void take_line(struct reader *reader, const char *line, size_t length)
{
    if (has(line, length, "warning: ")) {
        add_note(&reader->report->warnings, line, length);
    }
    if (has(line, length, "resuming after step ")) {
        add_note(&reader->report->resumes, line, length);
    }
    if (strncmp(line, "paceline: version ", strlen("paceline: version ")) == 0) {
        take_launch(reader, line, length);
    }
    if (reader->is_sweep && strncmp(line, "best_", strlen("best_")) == 0 && !reader->report->best) {
        reader->report->best = strndup(line, length < NOTE_BYTES ? length : NOTE_BYTES);
    }
    if (reader->metrics) {
        pl_local_metrics_read(reader->metrics, line, length);
    } else if (reader->is_sweep && trial_of(line, length) == 0) {
        return; /* the sweep's lines about trials are in the table of trials */
    } else if (!reader->report->has_json && strncmp(line, "paceline: ", strlen("paceline: ")) != 0) {
        take_words(reader, line, length);
    }
}

static enum pl_status read_log(struct reader *reader, const char *path, struct pl_error *reterr)
{
    FILE *file = fopen(path, "re");
    PL_AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    bool failed;

    if (!file) {
        return pl_error_errno(reterr, "open '%s'", path);
    }
    while ((length = getline(&line, &capacity, file)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            length--;
        }
        line[length] = '\0';
        take_line(reader, line, (size_t)length < MOST_LINE_BYTES ? (size_t)length : MOST_LINE_BYTES);
    }
    failed = ferror(file) != 0;
    fclose(file);
    reader->report->logs++;
    return failed ? pl_error_errno(reterr, "read '%s'", path) : PL_OK;
}

/* Makes `path` FOLDER/NAME. */
static enum pl_status path_of(struct pl_text *path, const char *folder, const char *name, struct pl_error *reterr)
{
    return pl_text_set(path, reterr, "%s/%s", folder, name);
}

/* Reads a file of JSON that may be missing. */
static void read_json(struct reader *reader, const char *folder, const char *name, struct pl_json **ret_document)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = path_of(&path, folder, name, &error);

    if (status == PL_OK && !*ret_document) {
        status = pl_json_read(path.data, MOST_JSON_BYTES, ret_document, &error);
    }
    if (status != PL_OK && status != PL_NOT_FOUND) {
        add_problem(reader, &error);
    }
}

static void read_failure(struct reader *reader, const char *tree)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = path_of(&path, tree, "output/failure", &error);

    if (status == PL_OK && !reader->report->failure) {
        status = pl_file_read(path.data, MOST_FAILURE_BYTES, &reader->report->failure, NULL, &error);
    }
    if (status != PL_OK && status != PL_NOT_FOUND) {
        add_problem(reader, &error);
    }
}

/* Gives each line of a file of JSON to `take`, which may keep the document by taking it. A line that is not JSON, as
 * the half one of a killed program, is a problem of its own, and the others count. */
static enum pl_status read_lines(struct reader *reader, const char *path,
                                 void (*take)(struct reader *reader, struct pl_json **document, const char *line,
                                              size_t length),
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    size_t bytes = 0, number = 1;

    PL_TRY(pl_file_read(path, PL_JSON_MAX_BYTES, &text, &bytes, reterr));
    for (char *line = text, *end; line < text + bytes; line = end + 1, number++) {
        PL_AUTO_JSON struct pl_json *document = NULL;
        PL_AUTO_TEXT struct pl_text place = PL_TEXT_NONE;
        struct pl_error error = PL_ERROR_NONE;

        end = memchr(line, '\n', (size_t)(text + bytes - line));
        end = end ? end : text + bytes;
        if (end == line) {
            continue;
        }
        PL_TRY(pl_text_set(&place, reterr, "%s:%zu", path, number));
        if (pl_json_parse(line, (size_t)(end - line), place.data, &document, &error) != PL_OK) {
            add_problem(reader, &error);
        } else {
            take(reader, &document, line, (size_t)(end - line));
        }
    }
    return PL_OK;
}

static void take_trial(struct reader *reader, struct pl_json **document, const char *line, size_t length)
{
    struct pl_report *report = reader->report;

    (void)line;
    (void)length;
    report->all_trials++;
    if (report->trial_count < PL_REPORT_MOST_TRIALS) {
        report->trials[report->trial_count++] = *document;
        *document = NULL;
    }
}

/* Takes a line of the runtime's metrics: {"epoch": 1, "step": 24, "train_loss": 1.6}. Null: not a finite number. */
static void take_metrics(struct reader *reader, struct pl_json **document, const char *line, size_t length)
{
    const struct pl_json_value root = pl_json_root(*document);
    double x = -1, value;

    if (pl_json_double(pl_json_member(root, "step"), &x, NULL) != PL_OK) {
        x = -1;
    }
    for (struct pl_json_value item = pl_json_first(root); pl_json_exists(item); item = pl_json_next(item)) {
        const char *name = pl_json_name(item);

        value = NAN;
        if (reader->metrics && name && !pl_text_ends_with(name, "_per_second")) {
            continue; /* the definitions name what matters, and rarely the throughput */
        }
        if (name && (pl_json_kind(item) == PL_JSON_NULL || pl_json_double(item, &value, NULL) == PL_OK)) {
            take_word(reader, name, strlen(name), x, value, line, length);
            reader->report->has_throughput = reader->metrics;
        }
    }
    reader->report->has_json = !reader->metrics;
}

/* Takes a ring if it is of the job's last attempt. A job that was started again has rings of each attempt:
 * trace-restart1.json.rank0.ring and so on. */
static void take_ring(struct reader *reader, const char *name, const char *path)
{
    const char *mark = strstr(name, "-restart");
    const long attempt = mark ? strtol(mark + strlen("-restart"), NULL, 10) : 0;

    if (attempt > reader->attempt) {
        pl_strv_done(&reader->rings);
        reader->attempt = attempt;
    }
    if (attempt == reader->attempt && reader->rings.count < MOST_RINGS) {
        pl_strv_add(&reader->rings, path);
    }
}

/* Takes rings, trials and metrics from `data`, which is output/data of a tree. */
static enum pl_status read_data(struct reader *reader, const char *data, struct pl_error *reterr)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list files = {.items = NULL};
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (access(data, F_OK) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_store_open_directory(data, true, &store, reterr));
    PL_TRY(pl_store_list(store, PL_DEADLINE_NEVER, &files, reterr));
    for (size_t i = 0; i < files.count; i++) {
        const char *name = files.items[i].key;
        enum pl_status status = PL_OK;

        PL_TRY(path_of(&path, data, name, reterr));
        if (pl_text_ends_with(name, ".ring") && strncmp(name, "trial-", strlen("trial-")) == 0) {
            reader->report->trial_rings++;
        } else if (pl_text_ends_with(name, ".ring")) {
            take_ring(reader, name, path.data);
            PL_TRY(pl_strv_check(&reader->rings, reterr));
        } else if (strcmp(name, "trials.jsonl") == 0) {
            status = read_lines(reader, path.data, take_trial, &error);
        } else if (strcmp(name, "metrics.jsonl") == 0) {
            status = read_lines(reader, path.data, take_metrics, &error);
        }
        if (status != PL_OK) {
            add_problem(reader, &error);
        }
    }
    return PL_OK;
}

/* Reads the output of a job whose trees are gone, as `paceline local` packed it. */
static enum pl_status read_packed(struct reader *reader, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    const char *parent = pl_environment_own("TMPDIR");

    PL_TRY(path_of(&path, reader->folder, "output.tar.gz", reterr));
    if (access(path.data, F_OK) != 0) {
        return PL_OK;
    }
    snprintf(reader->unpacked, sizeof(reader->unpacked), "%s/paceline-report-XXXXXX",
             parent && *parent ? parent : "/tmp");
    if (!mkdtemp(reader->unpacked)) {
        const enum pl_status status = pl_error_errno(reterr, "make the folder '%s'", reader->unpacked);

        *reader->unpacked = '\0';
        return status;
    }
    PL_TRY(pl_packed_take(path.data, reader->unpacked, reterr));
    return read_data(reader, reader->unpacked, reterr);
}

static void read_tree(struct reader *reader, const char *tree)
{
    PL_AUTO_TEXT struct pl_text data = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    read_json(reader, tree, "input/config/resourceconfig.json", &reader->report->config);
    read_json(reader, tree, "input/config/hyperparameters.json", &reader->report->hyperparameters);
    read_failure(reader, tree);
    if (path_of(&data, tree, "output/data", &error) != PL_OK || read_data(reader, data.data, &error) != PL_OK) {
        add_problem(reader, &error);
    }
}

/* Makes a series for each of the job's MetricDefinitions, in their order. */
static enum pl_status read_definitions(struct reader *reader, struct pl_error *reterr)
{
    struct pl_json_value list, item;
    struct pl_series *series;
    size_t count = 0;

    if (!reader->report->job) {
        return PL_OK;
    }
    list = pl_json_member(pl_json_root(reader->report->job), "MetricDefinitions");
    count = pl_json_count(list);
    if (count == 0) {
        return PL_OK;
    }
    if (count > PL_REPORT_MOST_SERIES) {
        return pl_json_wrong(list, "at most 40 definitions", reterr);
    }
    for (item = pl_json_first(list); pl_json_exists(item); item = pl_json_next(item)) {
        struct pl_local_pair *pair = &reader->definitions.items[reader->definitions.count++];

        PL_TRY(pl_json_text(pl_json_member(item, "Name"), &pair->name, reterr));
        PL_TRY(pl_json_text(pl_json_member(item, "Regex"), &pair->value, reterr));
        PL_TRY(add_series(reader, pair->name, strlen(pair->name), &series, reterr));
    }
    PL_TRY(pl_local_metrics_new(&reader->definitions, take_definition, reader, &reader->metrics, reterr));
    reader->report->has_definitions = true;
    return PL_OK;
}

static enum pl_status name_job(struct reader *reader, struct pl_error *reterr)
{
    struct pl_report *report = reader->report;
    const char *name = NULL;
    PL_AUTO_FREE char *whole = NULL;

    if (report->job) {
        PL_TRY(pl_json_text_or(pl_json_member(pl_json_root(report->job), "TrainingJobName"), NULL, &name, reterr));
    }
    if (!name) {
        name = pl_environment_own("TRAINING_JOB_NAME");
    }
    if (!name || *name == '\0') {
        whole = realpath(reader->folder, NULL);
        name = whole ? whole : reader->folder;
    }
    report->name = pl_memory_string(name, reterr);
    return report->name ? PL_OK : PL_MEMORY;
}

/* Returns the number of the job's hosts: an earlier job of the same name may have left files of more hosts. */
static int64_t host_count(const struct pl_report *report)
{
    int64_t hosts = MOST_HOSTS;

    if (!report->job ||
        pl_json_int64(pl_json_member(pl_json_member(pl_json_root(report->job), "ResourceConfig"), "InstanceCount"), 1,
                      MOST_HOSTS, &hosts, NULL) != PL_OK) {
        return MOST_HOSTS;
    }
    return hosts;
}

/* Reads algo-1, algo-2 and so on, as far as there is a log or a tree. */
static void read_hosts(struct reader *reader)
{
    const int64_t hosts = host_count(reader->report);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    char name[32];

    for (int host = 1; host <= hosts; host++) {
        struct pl_error error = PL_ERROR_NONE;
        bool found = false;

        snprintf(name, sizeof(name), "algo-%d", host);
        if (path_of(&path, reader->folder, name, &error) == PL_OK && access(path.data, F_OK) == 0) {
            read_tree(reader, path.data);
            found = true;
        }
        snprintf(name, sizeof(name), "algo-%d.log", host);
        if (path_of(&path, reader->folder, name, &error) == PL_OK && access(path.data, F_OK) == 0) {
            if (read_log(reader, path.data, &error) != PL_OK) {
                add_problem(reader, &error);
            }
            found = true;
        }
        if (!found) {
            return;
        }
        reader->report->hosts++;
    }
}

/* Whether the folder has the tree of its first host, or is one. */
static enum pl_status has_tree(const struct reader *reader, bool *ret_has, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text tree = PL_TEXT_NONE, config = PL_TEXT_NONE;

    PL_TRY(path_of(&tree, reader->folder, "algo-1", reterr));
    PL_TRY(path_of(&config, reader->folder, "input/config", reterr));
    *ret_has = access(tree.data, F_OK) == 0 || access(config.data, F_OK) == 0;
    return PL_OK;
}

static enum pl_status read_all(struct reader *reader, struct pl_error *reterr)
{
    struct pl_report *report = reader->report;
    bool is_unpacked;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    read_json(reader, reader->folder, "job.json", &report->job);
    PL_TRY(name_job(reader, reterr));
    if (read_definitions(reader, &error) != PL_OK) {
        add_problem(reader, &error);
    }
    PL_TRY(has_tree(reader, &is_unpacked, reterr));
    if (!is_unpacked && read_packed(reader, &error) != PL_OK) { /* before the logs: they repeat what it has */
        add_problem(reader, &error);
    }
    read_hosts(reader);
    PL_TRY(path_of(&path, reader->folder, "input/config", reterr));
    if (report->hosts == 0 && access(path.data, F_OK) == 0) {
        read_tree(reader, reader->folder);
        report->hosts = report->config ? pl_json_count(pl_json_member(pl_json_root(report->config), "hosts")) : 1;
    }
    if (report->hosts == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "'%s' is not a folder of a job: expected algo-1 or algo-1.log there, as `paceline local` "
                            "leaves them, or input/config, as in /opt/ml",
                            reader->folder);
    }
    report->rings = reader->rings.count;
    if (report->rings > 0 &&
        pl_trace_compare((const char *const *)reader->rings.items, report->rings, &report->comparison, &report->ranks,
                         &report->rank_count, &error) != PL_OK) {
        report->rings = 0;
        add_problem(reader, &error);
    }
    return PL_OK;
}

enum pl_status pl_report_read(const char *folder, struct pl_report *report, struct pl_error *reterr)
{
    struct reader reader = {.folder = folder, .report = report};
    enum pl_status status = read_all(&reader, reterr);

    pl_local_metrics_free(reader.metrics);
    pl_strv_done(&reader.rings);
    if (*reader.unpacked) {
        pl_file_remove_tree(reader.unpacked);
    }
    return status;
}

void pl_report_done(struct pl_report *report)
{
    pl_json_free(report->job);
    pl_json_free(report->config);
    pl_json_free(report->hyperparameters);
    free(report->name);
    free(report->failure);
    free(report->launch);
    free(report->best);
    for (size_t i = 0; i < report->series_count; i++) {
        free(report->series[i]);
    }
    pl_strv_done(&report->warnings.texts);
    pl_strv_done(&report->resumes.texts);
    pl_strv_done(&report->problems.texts);
    pl_text_done(&report->comparison);
    free(report->ranks);
    for (size_t i = 0; i < report->trial_count; i++) {
        pl_json_free(report->trials[i]);
    }
}
