/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a sweep is, and finds the first difference between two sweeps. */
#include "programs/sweep/identity.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/secrets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 5000, FILE_BYTES = 1 << 20, ALL_BYTES = 256 << 20, DEPTH_MAX = 32, SHOWN_BYTES = 60 };

static const char *const of_trials[] = {"space", "search", "seed", "seeds"};
static const char *const of_metric[] = {"metric", "scheduler"};

static enum pl_status set_text(struct pl_python_json *object, const char *name, const char *text,
                               struct pl_error *reterr)
{
    return text ? pl_python_json_set(object, name, pl_python_json_new_string(text), reterr) : PL_OK;
}

static enum pl_status set_number(struct pl_python_json *object, const char *name, int64_t number,
                                 struct pl_error *reterr)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)number);
    return set_text(object, name, text, reterr);
}

/* Adds a new object as the member `name` of `parent`. */
static enum pl_status set_object(struct pl_python_json *parent, const char *name, struct pl_python_json **ret_object,
                                 struct pl_error *reterr)
{
    *ret_object = pl_python_json_new_object();
    return pl_python_json_set(parent, name, *ret_object, reterr);
}

/* Appends the value as text without the job's name, which the SDK puts into addresses in S3. */
static enum pl_status print_value(const struct pl_python_json *value, const char *job_name, struct pl_text *text,
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text whole = PL_TEXT_NONE;
    const char *at, *found;

    pl_python_json_print(value, PL_PYTHON_JSON_SPACED, &whole);
    PL_TRY(pl_text_check(&whole, reterr));
    for (at = pl_text_string(&whole); *job_name != '\0' && (found = strstr(at, job_name));
         at = found + strlen(job_name)) {
        pl_text_append_n(text, at, (size_t)(found - at));
        pl_text_append(text, "JOB");
    }
    pl_text_append(text, at);
    return pl_text_check(text, reterr);
}

/* Adds the members of `value` by their names, or its items by their numbers, as texts. */
static enum pl_status set_children(struct pl_python_json *parent, const char *name, const struct pl_python_json *value,
                                   const char *job_name, struct pl_error *reterr)
{
    struct pl_python_json *all = NULL;
    size_t index = 0;

    PL_TRY(set_object(parent, name, &all, reterr));
    for (const struct pl_python_json *child = pl_python_json_first(value); child;
         child = pl_python_json_next(child), index++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        char number[24];

        snprintf(number, sizeof(number), "%zu", index);
        if (!pl_python_json_name(child) || !pl_secrets_is_name(pl_python_json_name(child))) {
            PL_TRY(print_value(child, job_name, &text, reterr));
            PL_TRY(set_text(all, pl_python_json_name(child) ? pl_python_json_name(child) : number,
                            pl_text_string(&text), reterr));
        }
    }
    return PL_OK;
}

/* Adds the varied hyperparameters as the user wrote them. */
static enum pl_status set_space(struct pl_python_json *identity, const struct pl_sweep_space *space,
                                struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *written = NULL;

    PL_TRY(pl_python_json_parse(space->text, strlen(space->text), "paceline_sweep", &written, reterr));
    PL_TRY(set_children(identity, "space", pl_python_json_member(written, "space"), "", reterr));
    for (size_t i = 1; i < PL_ARRAY_ITEMS(of_trials); i++) {
        const struct pl_python_json *member = pl_python_json_member(written, of_trials[i]);
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        if (member) {
            PL_TRY(print_value(member, "", &text, reterr));
            PL_TRY(set_text(identity, of_trials[i], pl_text_string(&text), reterr));
        }
    }
    return PL_OK;
}

static enum pl_status set_metric(struct pl_python_json *identity, const struct pl_sweep_space *space,
                                 struct pl_error *reterr)
{
    static const char *const kinds[] = {
        [PL_SWEEP_SCHEDULER_NONE] = "none", [PL_SWEEP_SCHEDULER_ASHA] = "asha", [PL_SWEEP_SCHEDULER_MEDIAN] = "median"};
    struct pl_python_json *metric = NULL, *scheduler = NULL;

    PL_TRY(set_object(identity, "metric", &metric, reterr));
    PL_TRY(set_text(metric, "name", space->metric_name, reterr));
    PL_TRY(set_text(metric, "regex", space->metric_regex, reterr));
    PL_TRY(set_text(metric, "goal", space->maximize ? "maximize" : "minimize", reterr));
    PL_TRY(set_object(identity, "scheduler", &scheduler, reterr));
    PL_TRY(set_text(scheduler, "kind", kinds[space->scheduler], reterr));
    PL_TRY(set_text(scheduler, "step", space->step_regex, reterr));
    PL_TRY(set_number(scheduler, "min", space->min_step, reterr));
    PL_TRY(set_number(scheduler, "factor", space->factor, reterr));
    PL_TRY(set_number(scheduler, "max", space->max_step, reterr));
    return set_number(scheduler, "least_trials", space->least_trials, reterr);
}

/* Adds a setting that changes what a program computes. */
static enum pl_status set_setting(struct pl_python_json *settings, const struct pl_job *job, const char *name,
                                  struct pl_error *reterr)
{
    const size_t bytes = strlen(name);
    const char *value = pl_environment_get_or(job->process, name, NULL);

    for (size_t i = 0; i < job->setting_values.count && !value; i++) {
        const char *item = job->setting_values.items[i];

        value = strncmp(item, name, bytes) == 0 && item[bytes] == '=' ? item + bytes + 1 : NULL;
    }
    return set_text(settings, name, value, reterr);
}

static enum pl_status set_launch(struct pl_python_json *identity, const struct pl_job *job,
                                 const struct pl_sweep_space *space, struct pl_error *reterr)
{
    struct pl_python_json *settings = NULL;
    PL_AUTO_PYTHON_JSON struct pl_python_json *command = pl_strv_json(&job->command);

    PL_TRY(set_number(identity, "processes", space->processes, reterr));
    PL_TRY(set_text(identity, "launcher",
                    space->processes == 1             ? "none"
                    : job->switches.torch_distributed ? "torchrun"
                                                      : "mpirun",
                    reterr));
    PL_TRY(set_text(identity, "program", job->program, reterr));
    PL_TRY(command ? PL_OK : pl_error_set(reterr, PL_MEMORY, "out of memory describing the sweep"));
    PL_TRY(set_children(identity, "command", command, "", reterr));
    PL_TRY(set_object(identity, "settings", &settings, reterr));
    PL_TRY(set_setting(settings, job, "PACELINE_WIRE_TYPE", reterr));
    return set_setting(settings, job, "PACELINE_REPRODUCIBLE", reterr);
}

/* What the description of the code covers so far. */
struct cover {
    struct pl_python_json *code;
    size_t files, bytes;
    char *buffer; /* FILE_BYTES */
};

static bool is_left_out(const char *name)
{
    const size_t length = strlen(name);

    return name[0] == '.' || strcmp(name, "__pycache__") == 0 || (length > 4 && strcmp(name + length - 4, ".pyc") == 0);
}

static enum pl_status cover_file(struct cover *cover, const char *path, const char *name, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    char text[64];
    ssize_t bytes = 0;

    if (fd < 0 || fstat(fd, &info) != 0) {
        return set_text(cover->code, name, "cannot be read", reterr);
    }
    if (cover->bytes < ALL_BYTES) {
        bytes = pread(fd, cover->buffer, FILE_BYTES, 0);
        bytes = bytes > 0 ? bytes : 0;
    }
    cover->bytes += (size_t)bytes;
    snprintf(text, sizeof(text), "%lld bytes, %016llx", (long long)info.st_size,
             (unsigned long long)pl_checksum_crc64nvme(0, cover->buffer, (size_t)bytes));
    return set_text(cover->code, name, text, reterr);
}

/* Adds the files of a folder in the order of their names. The files of a sub-folder come in the place of its name. */
static enum pl_status cover_folder(struct cover *cover, const char *path, const char *prefix, int depth,
                                   struct pl_error *reterr)
{
    struct dirent **entries = NULL;
    const int count = scandir(path, &entries, NULL, alphasort);
    enum pl_status status = PL_OK;

    for (int i = 0; i < count; i++) {
        PL_AUTO_FREE struct dirent *entry = entries[i];
        PL_AUTO_TEXT struct pl_text inner = PL_TEXT_NONE, name = PL_TEXT_NONE;
        struct stat info;

        pl_text_printf(&inner, "%s/%s", path, entry->d_name);
        pl_text_printf(&name, "%s%s", prefix, entry->d_name);
        if (status != PL_OK || is_left_out(entry->d_name) || lstat(pl_text_string(&inner), &info) != 0) {
            continue;
        }
        if (S_ISDIR(info.st_mode) && depth < DEPTH_MAX) {
            pl_text_append_char(&name, '/');
            status = cover_folder(cover, pl_text_string(&inner), pl_text_string(&name), depth + 1, reterr);
        } else if (!S_ISDIR(info.st_mode) && cover->files++ < FILES_MAX) {
            status = cover_file(cover, pl_text_string(&inner), pl_text_string(&name), reterr);
        }
    }
    free(entries);
    return status;
}

static enum pl_status set_code(struct pl_python_json *identity, const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *buffer = pl_memory_new(1, FILE_BYTES, reterr);
    struct cover cover = {.buffer = buffer};

    if (!buffer) {
        return PL_MEMORY;
    }
    PL_TRY(set_object(identity, "code", &cover.code, reterr));
    return cover_folder(&cover, job->paths.code, "", 0, reterr);
}

enum pl_status pl_sweep_identity_new(const struct pl_job *job, const struct pl_sweep_space *space,
                                     struct pl_python_json **ret_identity, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *identity = pl_python_json_new_object();
    const char *job_name = job->job_name ? job->job_name : job->sagemaker_job_name;

    if (!identity) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory describing the sweep");
    }
    PL_TRY(set_space(identity, space, reterr));
    PL_TRY(set_metric(identity, space, reterr));
    PL_TRY(set_launch(identity, job, space, reterr));
    PL_TRY(set_children(identity, "hyperparameters", job->hyperparameters, job_name ? job_name : "", reterr));
    PL_TRY(set_code(identity, job, reterr));
    *ret_identity = PL_TAKE(identity);
    return PL_OK;
}

uint64_t pl_sweep_identity_trials(const struct pl_sweep_space *space, size_t count)
{
    uint64_t checksum = 0;

    for (size_t i = 0; i < count; i++) {
        const uint64_t point = space->trials[i].point;

        checksum = pl_checksum_crc64nvme(checksum, &point, sizeof(point));
        checksum = pl_checksum_crc64nvme(checksum, space->trials[i].hyperparameters,
                                         strlen(space->trials[i].hyperparameters) + 1);
    }
    return checksum;
}

static void append_shown(const struct pl_python_json *value, struct pl_text *words)
{
    const char *text = !value                                                ? "nothing"
                       : pl_python_json_kind(value) == PL_PYTHON_JSON_STRING ? pl_python_json_text(value)
                                                                             : "something else";
    const size_t length = strlen(text);

    pl_text_append_n(words, text, length > SHOWN_BYTES ? pl_text_whole_bytes(text, SHOWN_BYTES) : length);
    pl_text_append(words, length > SHOWN_BYTES ? "..." : "");
}

static bool tell(const char *group, const char *name, const struct pl_python_json *before,
                 const struct pl_python_json *now, struct pl_text *words)
{
    pl_text_printf(words, "%s%s%.100s was ", group, *group != '\0' ? "." : "", name);
    append_shown(before, words);
    pl_text_append(words, " and is ");
    append_shown(now, words);
    return true;
}

static bool same(const struct pl_python_json *before, const struct pl_python_json *now)
{
    return before && now && pl_python_json_kind(before) == PL_PYTHON_JSON_STRING &&
           pl_python_json_kind(now) == PL_PYTHON_JSON_STRING &&
           strcmp(pl_python_json_text(before), pl_python_json_text(now)) == 0;
}

/* Compares two objects whose values are texts. */
static bool children_differ(const char *group, const struct pl_python_json *before, const struct pl_python_json *now,
                            struct pl_text *words)
{
    const bool new_counts = strcmp(group, "code") != 0;

    for (const struct pl_python_json *old = pl_python_json_first(before); old; old = pl_python_json_next(old)) {
        const struct pl_python_json *other = pl_python_json_member(now, pl_python_json_name(old));

        if (!same(old, other)) {
            return tell(group, pl_python_json_name(old), old, other, words);
        }
    }
    for (const struct pl_python_json *new = pl_python_json_first(now); new &&new_counts;
         new = pl_python_json_next(new)) {
        if (!pl_python_json_member(before, pl_python_json_name(new))) {
            return tell(group, pl_python_json_name(new), NULL, new, words);
        }
    }
    return false;
}

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_compared(const char *name, unsigned also)
{
    return ((also & PL_SWEEP_IDENTITY_TRIALS) != 0 || !is_one_of(name, of_trials, PL_ARRAY_ITEMS(of_trials))) &&
           ((also & PL_SWEEP_IDENTITY_METRIC) != 0 || !is_one_of(name, of_metric, PL_ARRAY_ITEMS(of_metric)));
}

static bool is_object(const struct pl_python_json *value)
{
    return value && pl_python_json_kind(value) == PL_PYTHON_JSON_OBJECT;
}

bool pl_sweep_identity_differs(const struct pl_python_json *before, const struct pl_python_json *now, unsigned also,
                               struct pl_text *words)
{
    /* two rounds: each of the two may have members that the other has not */
    for (int round = 0; round < 2; round++) {
        for (const struct pl_python_json *member = pl_python_json_first(round == 0 ? before : now); member;
             member = pl_python_json_next(member)) {
            const char *name = pl_python_json_name(member);
            const struct pl_python_json *old = pl_python_json_member(before, name);
            const struct pl_python_json *new = pl_python_json_member(now, name);

            if (!is_compared(name, also)) {
                continue;
            }
            if (is_object(old) && is_object(new) ? children_differ(name, old, new, words)
                                                 : !same(old, new) && tell("", name, old, new, words)) {
                return true;
            }
        }
    }
    return false;
}
