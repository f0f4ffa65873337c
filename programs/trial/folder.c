/* SPDX-License-Identifier: Apache-2.0 */
/* The /opt/ml of a trial: its content, mounts that no other process sees, and what the trial has left there. */
#include "programs/trial/trial.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/config.h"
#include "entrypoint/proc/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAILURE_MAX_BYTES = 1 << 20, CONFIG_MAX_BYTES = 16 << 20, NUMBERS = 10000 };

/* The job's hyperparameters that a trial does not get: they start the sweep, belong to the job as a whole, or say how
 * many processes run on which hosts. */
static const char *const dropped[] = {"paceline_sweep*",
                                      "paceline_check",
                                      "paceline_checkpoint_dir",
                                      "paceline_ps",
                                      "sagemaker_s3_output",
                                      "sagemaker_mpi_enabled",
                                      "sagemaker_mpi_num_of_processes_per_host",
                                      "sagemaker_mpi_num_processes",
                                      "sagemaker_parameter_server_enabled",
                                      "sagemaker_multi_worker_mirrored_strategy_enabled",
                                      "sagemaker_distribution_instance_groups",
                                      "sagemaker_distributed_dataparallel_enabled",
                                      "sagemaker_pytorch_ddp_enabled",
                                      "sagemaker_pytorch_xla_multi_worker_enabled",
                                      NULL};

static enum pl_status name_folder(const struct pl_job *job, const char *checkpoints, int number,
                                  struct pl_trial_folder *folder, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    folder->job = job;
    folder->number = number;
    checkpoints = checkpoints ? checkpoints : job->checkpoint_dir;
    pl_text_printf(&text, "%s/checkpoints", job->paths.base);
    PL_TRY(pl_text_take(&text, &folder->base_checkpoints, reterr));
    pl_text_printf(&text, "%s/sweep/trial-%04d", job->paths.base, number);
    PL_TRY(pl_text_take(&text, &folder->base, reterr));
    pl_text_printf(&text, "%s/trial-%04d", checkpoints, number);
    PL_TRY(pl_text_take(&text, &folder->checkpoints, reterr));
    pl_text_printf(&text, "%s/trial-%04d.model", checkpoints, number);
    PL_TRY(pl_text_take(&text, &folder->model, reterr));
    pl_text_printf(&text, "%s/trial-%04d", job->paths.output_data, number);
    return pl_text_take(&text, &folder->output_data, reterr);
}

static enum pl_status lock(struct pl_trial_folder *folder, struct pl_error *reterr)
{
    struct stat info = {.st_nlink = 0};

    while (info.st_nlink == 0) { /* a trial that has just ended may have removed the folder that was opened */
        PL_TRY(pl_file_make_dirs(folder->base, 0755, reterr));
        pl_file_close_at(&folder->fd);
        folder->fd = open(folder->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder->fd < 0 && errno == ENOENT) {
            continue;
        }
        if (folder->fd >= 0 && flock(folder->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            return pl_error_set(reterr, PL_LIMIT, "'%s' belongs to a trial that is running", folder->base);
        }
        if (folder->fd < 0 || fstat(folder->fd, &info) != 0) {
            return pl_error_errno(reterr, "lock '%s'", folder->base);
        }
    }
    return PL_OK;
}

static bool has_files(const struct pl_trial_folder *folder)
{
    return access(folder->checkpoints, F_OK) == 0 || access(folder->model, F_OK) == 0 ||
           access(folder->output_data, F_OK) == 0;
}

enum pl_status pl_trial_folder_take(const struct pl_job *job, const char *checkpoints, int number,
                                    struct pl_trial_folder *ret_folder, struct pl_error *reterr)
{
    enum pl_status status = PL_LIMIT;

    PL_TRY(pl_job_check_checkpoints(job, reterr));
    for (int at = number < 0 ? 0 : number; status == PL_LIMIT && at < NUMBERS; at = number < 0 ? at + 1 : NUMBERS) {
        PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

        PL_TRY(name_folder(job, checkpoints, at, &folder, reterr));
        status = lock(&folder, reterr);
        if (status == PL_OK && number < 0 && has_files(&folder)) {
            rmdir(folder.base);
            status = pl_error_set(reterr, PL_LIMIT, "all numbers of trials up to %d have files in '%s'", NUMBERS - 1,
                                  checkpoints ? checkpoints : folder.job->checkpoint_dir);
        } else if (status == PL_OK) {
            *ret_folder = folder;
            folder = PL_TRIAL_FOLDER_NONE;
        }
    }
    return status;
}

/* Copies the members of an object to `to`, without those whose name matches one of `without`. */
static enum pl_status copy_members(const struct pl_python_json *from, const char *const *without,
                                   struct pl_python_json *to, struct pl_error *reterr)
{
    for (const struct pl_python_json *member = pl_python_json_first(from); member;
         member = pl_python_json_next(member)) {
        const char *const *found = without;

        while (*found && fnmatch(*found, pl_python_json_name(member), 0) != 0) {
            found++;
        }
        PL_TRY(*found ? PL_OK
                      : pl_python_json_set(to, pl_python_json_name(member), pl_python_json_copy(member), reterr));
    }
    return PL_OK;
}

static enum pl_status set_own(struct pl_python_json *all, const char *word, struct pl_error *reterr)
{
    const char *equals = strchr(word, '=');
    PL_AUTO_FREE char *name = NULL;

    PL_BUG_IF(!equals);
    name = pl_memory_string_n(word, (size_t)(equals - word), reterr);
    return name ? pl_python_json_set(all, name, pl_python_json_new_string(equals + 1), reterr) : PL_MEMORY;
}

/* Sets the number of a trial's processes. torchrun reads the same setting as MPI. */
static enum pl_status set_processes(struct pl_python_json *all, int processes, struct pl_error *reterr)
{
    char number[16];

    if (processes == 1) {
        return PL_OK;
    }
    snprintf(number, sizeof(number), "%d", processes);
    if (!pl_python_json_member(all, "sagemaker_torch_distributed_enabled")) {
        PL_TRY(pl_python_json_set(all, "sagemaker_mpi_enabled", pl_python_json_new_string("true"), reterr));
    }
    return pl_python_json_set(all, "sagemaker_mpi_num_of_processes_per_host", pl_python_json_new_string(number),
                              reterr);
}

enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values, int processes,
                                               const struct pl_strv *hyperparameters, struct pl_text *text,
                                               struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *all = pl_python_json_new_object();

    PL_TRY(all ? copy_members(job_values, dropped, all, reterr)
               : pl_error_set(reterr, PL_MEMORY, "out of memory in writing a trial's hyperparameters"));
    for (size_t i = 0; i < hyperparameters->count; i++) {
        PL_TRY(set_own(all, hyperparameters->items[i], reterr));
    }
    PL_TRY(set_processes(all, processes, reterr));
    pl_python_json_print(all, PL_PYTHON_JSON_SPACED, text);
    return PL_OK;
}

/* Appends a resource configuration in which the host is the only one. */
static enum pl_status print_resource(const struct pl_job *job, struct pl_text *text, struct pl_error *reterr)
{
    static const char *const without[] = {"hosts", "instance_groups", "topology", NULL};
    PL_AUTO_PYTHON_JSON struct pl_python_json *resource = pl_python_json_new_object();
    struct pl_python_json *hosts = pl_python_json_new_array();

    PL_TRY(pl_python_json_set(resource, "hosts", hosts, reterr));
    PL_TRY(pl_python_json_append(hosts, pl_python_json_new_string(job->current_host), reterr));
    PL_TRY(copy_members(job->resource, without, resource, reterr));
    pl_python_json_print(resource, PL_PYTHON_JSON_SPACED, text);
    return PL_OK;
}

/* Writes a file of the trial, without fsync: nobody needs it after a crash. */
static enum pl_status write_config(const struct pl_trial_folder *folder, const char *name, const struct pl_text *text,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    PL_TRY(pl_text_check(text, reterr));
    PL_TRY(pl_text_set(&path, reterr, "%s/input/config/%s", folder->base, name));
    fd = open(path.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd < 0 ? pl_error_errno(reterr, "write '%s'", path.data)
                  : pl_file_write_fd(fd, text->data, text->length, path.data, reterr);
}

/* Copies the job's configuration: links to it would lead back into an own tree. */
static enum pl_status copy_config(const struct pl_trial_folder *folder, struct pl_error *reterr)
{
    const char *from = folder->job->paths.input_config;
    PL_AUTO_DIRECTORY DIR *directory = opendir(from);
    struct stat info;

    for (const struct dirent *entry = directory ? readdir(directory) : NULL; entry; entry = readdir(directory)) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, content = PL_TEXT_NONE;

        PL_TRY(pl_text_set(&path, reterr, "%s/%s", from, entry->d_name));
        if (entry->d_name[0] != '.' && stat(path.data, &info) == 0 && S_ISREG(info.st_mode)) {
            PL_TRY(pl_file_read(path.data, CONFIG_MAX_BYTES, &content.data, &content.length, reterr));
            PL_TRY(write_config(folder, entry->d_name, &content, reterr));
        }
    }
    return PL_OK;
}

/* Writes the trial's configuration: the job's, except three files. */
static enum pl_status write_all_config(const struct pl_trial_folder *folder, int processes,
                                       const struct pl_strv *hyperparameters, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *job_values = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, values = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text resource = PL_TEXT_NONE, checkpoints = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&path, reterr, "%s/hyperparameters.json", folder->job->paths.input_config));
    PL_TRY(pl_config_read(path.data, false, &job_values, reterr));
    PL_TRY(pl_trial_folder_hyperparameters(job_values, processes, hyperparameters, &values, reterr));
    PL_TRY(print_resource(folder->job, &resource, reterr));
    pl_text_append(&checkpoints, "{\"LocalPath\": ");
    pl_python_json_print_string(folder->own_tree ? folder->job->checkpoint_dir : folder->checkpoints, &checkpoints);
    pl_text_append(&checkpoints, "}");
    PL_TRY(copy_config(folder, reterr));
    PL_TRY(write_config(folder, "hyperparameters.json", &values, reterr));
    PL_TRY(write_config(folder, "resourceconfig.json", &resource, reterr));
    return write_config(folder, "checkpointconfig.json", &checkpoints, reterr);
}

/* Makes the directories and links of the folder. Entries of an earlier run of the trial are removed; the folder itself
 * stays, because this process has locked it. */
static enum pl_status make_entries(const struct pl_trial_folder *folder, struct pl_error *reterr)
{
    const struct {
        const char *name, *target; /* NULL: a directory */
    } entries[] = {{"input", NULL},
                   {"input/config", NULL},
                   {"output", NULL},
                   {"output/data", folder->own_tree ? NULL : folder->output_data}, /* an own tree has a mount here */
                   {"input/data", folder->job->paths.input_data},
                   {"code", folder->job->paths.code},
                   {"model", folder->model}};
    const size_t made = folder->own_tree ? 4 : PL_ARRAY_ITEMS(entries);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(entries); i++) {
        const char *name = entries[i].name, *target = entries[i].target;
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        PL_TRY(pl_text_set(&path, reterr, "%s/%s", folder->base, name));
        if (unlinkat(folder->fd, name, 0) != 0) {
            pl_file_remove_tree(path.data);
        }
        if (i < made && (target ? symlinkat(target, folder->fd, name) : mkdirat(folder->fd, name, 0755)) != 0) {
            return pl_error_errno(reterr, "make '%s'", path.data);
        }
    }
    return PL_OK;
}

enum pl_status pl_trial_folder_make(const struct pl_trial_folder *folder, int processes,
                                    const struct pl_strv *hyperparameters, struct pl_error *reterr)
{
    const char *const kept[] = {folder->checkpoints, folder->model, folder->output_data,
                                /* the trial's own are mounted here */
                                folder->base_checkpoints, folder->job->paths.model};
    const size_t count = folder->own_tree ? PL_ARRAY_ITEMS(kept) : 3;

    PL_TRY(make_entries(folder, reterr));
    for (size_t i = 0; i < count; i++) {
        PL_TRY(pl_file_make_dirs(kept[i], 0755, reterr));
    }
    return write_all_config(folder, processes, hyperparameters, reterr);
}

/* ---- the trial's folders instead of the job's ---- */

/* Enters namespaces for mounts. Errors: the system allows no mounts; then nothing that others see has changed. */
static enum pl_status enter_mounts(const struct pl_job *job, struct pl_error *reterr)
{
    if (unshare(CLONE_NEWNS) != 0) { /* some systems do not let every user make a user namespace either */
        PL_TRY(pl_mounts_enter_users(reterr));
        if (unshare(CLONE_NEWNS) != 0) {
            return pl_error_errno(reterr, "make a mount namespace");
        }
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        return pl_error_errno(reterr, "mount '/' as slave");
    }
    return pl_mounts_bind(job->paths.base, job->paths.base, reterr);
}

static enum pl_status make_mounts(const struct pl_trial_folder *folder, struct pl_error *reterr)
{
    const struct pl_job_paths *paths = &folder->job->paths;
    const size_t length = strlen(folder->base_checkpoints);
    const bool root_is_below = strncmp(folder->job->checkpoint_dir, folder->base_checkpoints, length) == 0 &&
                               strchr("/", folder->job->checkpoint_dir[length]); /* so one mount would hide the other */
    const struct {
        const char *from, *name, *to;
    } list[] = {{folder->base, "/output", paths->output},
                {folder->output_data, "", paths->output_data},
                {folder->base, "/input/config", paths->input_config},
                {folder->model, "", paths->model},
                {folder->checkpoints, "", folder->job->checkpoint_dir},
                {folder->checkpoints, "", folder->base_checkpoints}};
    const size_t count = PL_ARRAY_ITEMS(list) - root_is_below;
    PL_AUTO_TEXT struct pl_text from = PL_TEXT_NONE;
    int fds[PL_ARRAY_ITEMS(list)];

    for (size_t i = 0; i < count; i++) { /* open all first: a mount can hide the source of another one */
        PL_TRY(pl_text_set(&from, reterr, "%s%s", list[i].from, list[i].name));
        fds[i] = open(from.data, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fds[i] < 0) {
            return pl_error_errno(reterr, "open '%s'", from.data);
        }
    }
    for (size_t i = 0; i < count; i++) {
        PL_TRY(pl_text_set(&from, reterr, "/proc/self/fd/%d", fds[i]));
        PL_TRY(pl_file_make_dirs(list[i].to, 0755, reterr)); /* it may lie in what was mounted before */
        PL_TRY(pl_mounts_bind(from.data, list[i].to, reterr));
    }
    if (access(paths->input_data, F_OK) != 0) {
        return PL_OK;
    }
    PL_TRY(pl_mounts_bind(paths->input_data, paths->input_data, reterr));
    return pl_mounts_make_read_only(paths->input_data, reterr);
}

static void read_changes(const struct pl_trial_folder *folder, struct timespec ret_changed[2])
{
    struct stat info;

    ret_changed[0] = stat(folder->job->paths.model, &info) == 0 ? info.st_mtim : (struct timespec){0};
    ret_changed[1] = stat(folder->base_checkpoints, &info) == 0 ? info.st_mtim : (struct timespec){0};
}

enum pl_status pl_trial_folder_enter(struct pl_trial_folder *folder, int processes,
                                     const struct pl_strv *hyperparameters, struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;

    folder->own_tree = enter_mounts(folder->job, &error) == PL_OK;
    pl_log(PL_LOG_DEBUG, "trial %d %s%s", folder->number,
           folder->own_tree ? "has folders of its own by mounts"
                            : "shares the job's folders, because the system allows no mounts: ",
           folder->own_tree ? "" : error.cause);
    PL_TRY(pl_trial_folder_make(folder, processes, hyperparameters, reterr));
    read_changes(folder, folder->changed);
    return folder->own_tree ? make_mounts(folder, reterr) : PL_OK;
}

enum pl_status pl_trial_folder_check_shared(const struct pl_trial_folder *folder, struct pl_error *reterr)
{
    static const char *const names[] = {"model", "checkpoints"};
    static const char *const variables[] = {"SM_MODEL_DIR", "PACELINE_CHECKPOINT_DIR"};
    struct timespec now[2];

    read_changes(folder, now);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(now) && !folder->own_tree; i++) {
        if (now[i].tv_sec != folder->changed[i].tv_sec || now[i].tv_nsec != folder->changed[i].tv_nsec) {
            return pl_error_set(reterr, PL_INVALID,
                                "a program has changed '%.300s/%s', which all trials of this host share because the "
                                "system allows no mounts: expected it to use the folder in the variable %s",
                                folder->job->paths.base, names[i], variables[i]);
        }
    }
    return PL_OK;
}

/* ---- what the trial has left ---- */

void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *words = NULL;
    const char *last;
    size_t bytes = 0;

    if (pl_text_set(&path, NULL, "%s/output/failure", folder->base) != PL_OK ||
        pl_file_read(path.data, FAILURE_MAX_BYTES, &words, &bytes, NULL) != PL_OK) {
        return;
    }
    while (bytes > 0 && (words[bytes - 1] == '\n' || words[bytes - 1] == ' ')) {
        words[--bytes] = '\0';
    }
    pl_text_append_n(text, words, strcspn(words, "\n"));
    last = strrchr(words, '\n');
    if (last && strncmp(last + 1, "Program: ", 9) != 0 && strncmp(words, last + 1, strlen(last + 1)) != 0) {
        pl_text_printf(text, ": %s", last + 1);
    }
}

/* Returns the path of the model inside the trial. */
static const char *model_of(const struct pl_trial_folder *folder)
{
    return folder->own_tree ? folder->job->paths.model : folder->model;
}

/* Whether `target` stays below the folder from a directory that lies `depth` levels below it. Links in `target` are not
 * followed. */
static bool stays_inside(int depth, const char *target)
{
    for (const char *part = target + strspn(target, "/"); *part != '\0' && depth >= 0; part += strspn(part, "/")) {
        const size_t bytes = strcspn(part, "/");

        if (bytes == 2 && strncmp(part, "..", 2) == 0) {
            depth--;
        } else if (bytes != 1 || *part != '.') {
            depth++;
        }
        part += bytes;
    }
    return depth >= 0;
}

/* Makes a link relative whose absolute target is `rest` in the model: it stays right where the model is moved to. */
static enum pl_status make_relative(const FTSENT *entry, const char *rest, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text target = PL_TEXT_NONE, made = PL_TEXT_NONE;

    for (int i = 1; i < entry->fts_level; i++) {
        pl_text_append(&target, "../");
    }
    pl_text_printf(&target, "./%s", rest + strspn(rest, "/"));
    PL_TRY(pl_text_check(&target, reterr));
    PL_TRY(pl_text_set(&made, reterr, "%s.paceline-link", entry->fts_path));
    return symlink(target.data, made.data) == 0 && rename(made.data, entry->fts_path) == 0
               ? PL_OK
               : pl_error_errno(reterr, "make the link '%s'", entry->fts_path);
}

static enum pl_status check_link(const FTSENT *entry, const char *name, const struct pl_trial_folder *folder,
                                 struct pl_error *reterr)
{
    const char *seen_as = model_of(folder);
    const size_t bytes = strlen(seen_as);
    char target[PATH_MAX];
    const ssize_t length = readlink(entry->fts_accpath, target, sizeof(target) - 1);
    bool inside;

    if (length < 0) {
        return pl_error_errno(reterr, "readlink '%s'", entry->fts_path);
    }
    target[length] = '\0';
    if (*target == '/') {
        inside = strncmp(target, seen_as, bytes) == 0 && strchr("/", target[bytes]) && stays_inside(0, target + bytes);
        if (inside && !folder->own_tree) {
            return make_relative(entry, target + bytes, reterr);
        }
    } else {
        inside = stays_inside(entry->fts_level - 1, target);
    }
    return inside ? PL_OK
                  : pl_error_set(reterr, PL_INVALID, "the link '%.200s' leads out of the model, to '%.200s'", name,
                                 target);
}

static enum pl_status check_entry(const FTSENT *entry, const char *name, const struct pl_trial_folder *folder,
                                  struct pl_error *reterr)
{
    const mode_t mode = entry->fts_statp->st_mode;

    switch (entry->fts_info) {
    case FTS_SL:
    case FTS_SLNONE:
        return check_link(entry, name, folder, reterr);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        errno = entry->fts_errno;
        return pl_error_errno(reterr, "read '%s'", entry->fts_path);
    case FTS_DEFAULT:
        return pl_error_set(reterr, PL_INVALID, "'%.200s' is a %s", name,
                            S_ISSOCK(mode)   ? "socket"
                            : S_ISFIFO(mode) ? "FIFO"
                                             : "device");
    default:
        return PL_OK;
    }
}

enum pl_status pl_trial_model_check(const struct pl_trial_folder *folder, bool *ret_empty, struct pl_error *reterr)
{
    const char *path = model_of(folder);
    char *const roots[] = {(char *)path, NULL};
    FTS *walk = access(path, F_OK) == 0 ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    enum pl_status status = PL_OK;

    *ret_empty = true;
    if (!walk) {
        return errno == ENOENT ? PL_OK : pl_error_errno(reterr, "read '%s'", path);
    }
    for (const FTSENT *entry = fts_read(walk); entry && status == PL_OK; entry = fts_read(walk)) {
        if (entry->fts_level > 0) {
            *ret_empty = false;
            status = check_entry(entry, entry->fts_path + strlen(path) + 1, folder, reterr);
        }
    }
    fts_close(walk);
    return status;
}

void pl_trial_folder_leave(const struct pl_trial_folder *folder)
{
    if (folder->own_tree) {
        umount2(folder->job->checkpoint_dir, MNT_DETACH); /* this folder may lie outside of the base */
        umount2(folder->job->paths.base, MNT_DETACH);
    }
    rmdir(folder->output_data);
    rmdir(folder->checkpoints);
    rmdir(folder->model);
    pl_file_remove_tree(folder->base);
}

void pl_trial_folder_done(struct pl_trial_folder *folder)
{
    pl_file_close_at(&folder->fd);
    free(folder->base);
    free(folder->checkpoints);
    free(folder->model);
    free(folder->output_data);
    free(folder->base_checkpoints);
    *folder = PL_TRIAL_FOLDER_NONE;
}
