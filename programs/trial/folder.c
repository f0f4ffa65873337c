/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the folder of a trial. */
#include "programs/trial/trial.h"

#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/config.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

    folder->number = number;
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
            return pl_error_set(reterr, PL_LIMIT, "'%s' is that of a trial that runs", folder->base);
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

    for (int at = number < 0 ? 0 : number; status == PL_LIMIT && at < NUMBERS; at = number < 0 ? at + 1 : NUMBERS) {
        PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;

        PL_TRY(name_folder(job, checkpoints, at, &folder, reterr));
        status = lock(&folder, reterr);
        if (status == PL_OK && number < 0 && has_files(&folder)) {
            rmdir(folder.base);
            status = pl_error_set(reterr, PL_LIMIT, "all numbers of trials up to %d have files in '%s'", NUMBERS - 1,
                                  checkpoints);
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

    if (!equals || equals == word) {
        return pl_error_set(reterr, PL_INVALID, "--hyperparameter: expected NAME=VALUE, found '%.200s'", word);
    }
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

enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values,
                                               const struct pl_trial_kind *kind, struct pl_text *text,
                                               struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *all = pl_python_json_new_object();

    PL_TRY(all ? copy_members(job_values, dropped, all, reterr)
               : pl_error_set(reterr, PL_MEMORY, "out of memory in writing a trial's hyperparameters"));
    for (size_t i = 0; i < kind->hyperparameters->count; i++) {
        PL_TRY(set_own(all, kind->hyperparameters->items[i], reterr));
    }
    PL_TRY(set_processes(all, kind->processes, reterr));
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

    pl_text_printf(&path, "%s/input/config/%s", folder->base, name);
    PL_TRY(pl_text_check(text, reterr));
    PL_TRY(pl_text_check(&path, reterr));
    fd = open(path.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return fd < 0 ? pl_error_errno(reterr, "write '%s'", path.data)
                  : pl_file_write_fd(fd, text->data, text->length, path.data, reterr);
}

/* Copies the job's configuration: links to it would lead back into an own tree. */
static enum pl_status copy_config(const struct pl_job *job, const struct pl_trial_folder *folder,
                                  struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(job->paths.input_config);
    struct stat info;

    for (const struct dirent *entry = directory ? readdir(directory) : NULL; entry; entry = readdir(directory)) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, content = PL_TEXT_NONE;

        PL_TRY(pl_text_set(&path, reterr, "%s/%s", job->paths.input_config, entry->d_name));
        if (entry->d_name[0] != '.' && stat(path.data, &info) == 0 && S_ISREG(info.st_mode)) {
            PL_TRY(pl_file_read(path.data, CONFIG_MAX_BYTES, &content.data, &content.length, reterr));
            PL_TRY(write_config(folder, entry->d_name, &content, reterr));
        }
    }
    return PL_OK;
}

/* Writes the trial's configuration: the job's, but for three files. */
static enum pl_status write_all_config(const struct pl_job *job, const struct pl_trial_folder *folder,
                                       const struct pl_trial_kind *kind, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *job_values = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, root = PL_TEXT_NONE, values = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text resource = PL_TEXT_NONE, checkpoints = PL_TEXT_NONE;

    pl_job_checkpoints(job, &root);
    pl_text_printf(&path, "%s/hyperparameters.json", job->paths.input_config);
    PL_TRY(pl_text_check(&root, reterr));
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_config_read(path.data, false, &job_values, reterr));
    PL_TRY(pl_trial_folder_hyperparameters(job_values, kind, &values, reterr));
    PL_TRY(print_resource(job, &resource, reterr));
    pl_text_append(&checkpoints, "{\"LocalPath\": ");
    pl_python_json_print_string(kind->own_tree ? root.data : folder->checkpoints, &checkpoints);
    pl_text_append(&checkpoints, "}");
    PL_TRY(copy_config(job, folder, reterr));
    PL_TRY(write_config(folder, "hyperparameters.json", &values, reterr));
    PL_TRY(write_config(folder, "resourceconfig.json", &resource, reterr));
    return write_config(folder, "checkpointconfig.json", &checkpoints, reterr);
}

/* Makes the directories and links of the folder. What an earlier run of the trial has left goes; the folder itself
 * stays: this process has locked it. */
static enum pl_status make_entries(const struct pl_job *job, const struct pl_trial_folder *folder, bool own_tree,
                                   struct pl_error *reterr)
{
    const struct {
        const char *name, *target; /* NULL: a directory */
    } entries[] = {{"input", NULL},
                   {"input/config", NULL},
                   {"output", NULL},
                   {"output/data", own_tree ? NULL : folder->output_data}, /* an own tree has a mount here */
                   {"input/data", job->paths.input_data},
                   {"code", job->paths.code},
                   {"model", folder->model}};
    const size_t made = own_tree ? 4 : PL_ARRAY_ITEMS(entries);

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

enum pl_status pl_trial_folder_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    const struct pl_trial_kind *kind, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text shared = PL_TEXT_NONE;
    const char *const kept[] = {folder->checkpoints, folder->model, folder->output_data};

    PL_TRY(make_entries(job, folder, kind->own_tree, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(kept); i++) {
        PL_TRY(pl_file_make_dirs(kept[i], 0755, reterr));
    }
    if (kind->own_tree) { /* the trial's own are mounted here */
        pl_text_printf(&shared, "%s/checkpoints", job->paths.base);
        PL_TRY(pl_text_check(&shared, reterr));
        PL_TRY(pl_file_make_dirs(shared.data, 0755, reterr));
        PL_TRY(pl_file_make_dirs(job->paths.model, 0755, reterr));
    }
    return write_all_config(job, folder, kind, reterr);
}

void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *words = NULL;
    const char *last;
    size_t bytes = 0;

    pl_text_printf(&path, "%s/output/failure", folder->base);
    if (pl_text_check(&path, NULL) != PL_OK ||
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

void pl_trial_folder_remove(const struct pl_trial_folder *folder)
{
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
    *folder = PL_TRIAL_FOLDER_NONE;
}
