/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and removes the folders of a trial. */
#include "programs/trial/folder.h"

#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAILURE_MAX_BYTES = 1 << 20, CONFIG_MAX_BYTES = 16 << 20 };

/* The job's hyperparameters that a trial does not get: they start the sweep, belong to the job as a whole, or say how
 * many processes run on which hosts. */
static const char *const dropped[] = {"paceline_check",
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
                                      "sagemaker_pytorch_xla_multi_worker_enabled"};

enum pl_status pl_trial_folder_name(const struct pl_job *job, const char *checkpoints, int number,
                                    struct pl_trial_folder *ret_folder, struct pl_error *reterr)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_text_printf(&text, "%s/sweep/trial-%04d", job->paths.base, number);
    PL_TRY(pl_text_take(&text, &folder.base, reterr));
    pl_text_printf(&text, "%s/trial-%04d", checkpoints, number);
    PL_TRY(pl_text_take(&text, &folder.checkpoints, reterr));
    pl_text_printf(&text, "%s/trial-%04d.model", checkpoints, number);
    PL_TRY(pl_text_take(&text, &folder.model, reterr));
    pl_text_printf(&text, "%s/trial-%04d", job->paths.output_data, number);
    PL_TRY(pl_text_take(&text, &folder.output_data, reterr));
    *ret_folder = folder;
    folder = PL_TRIAL_FOLDER_NONE;
    return PL_OK;
}

static bool is_dropped(const char *name)
{
    bool found = strncmp(name, "paceline_sweep", sizeof("paceline_sweep") - 1) == 0;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(dropped) && !found; i++) {
        found = strcmp(name, dropped[i]) == 0;
    }
    return found;
}

/* Sets the number of a trial's processes. torchrun reads the same setting as MPI. */
static enum pl_status set_processes(struct pl_python_json *object, int processes, struct pl_error *reterr)
{
    static const char torchrun[] = "sagemaker_torch_distributed_enabled";
    char number[16];

    if (processes == 1) {
        return PL_OK;
    }
    snprintf(number, sizeof(number), "%d", processes);
    if (!pl_python_json_member(object, torchrun)) {
        PL_TRY(pl_python_json_set(object, "sagemaker_mpi_enabled", pl_python_json_new_string("true"), reterr));
    }
    return pl_python_json_set(object, "sagemaker_mpi_num_of_processes_per_host", pl_python_json_new_string(number),
                              reterr);
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

enum pl_status pl_trial_folder_hyperparameters(const struct pl_python_json *job_values,
                                               const struct pl_trial_kind *kind, struct pl_text *text,
                                               struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *all = pl_python_json_new_object();

    if (!all) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory in writing a trial's hyperparameters");
    }
    for (const struct pl_python_json *member = pl_python_json_first(job_values); member;
         member = pl_python_json_next(member)) {
        if (!is_dropped(pl_python_json_name(member))) {
            PL_TRY(pl_python_json_set(all, pl_python_json_name(member), pl_python_json_copy(member), reterr));
        }
    }
    for (size_t i = 0; i < kind->hyperparameters->count; i++) {
        PL_TRY(set_own(all, kind->hyperparameters->items[i], reterr));
    }
    PL_TRY(set_processes(all, kind->processes, reterr));
    pl_python_json_print(all, PL_PYTHON_JSON_SPACED, text);
    return pl_text_check(text, reterr);
}

/* Prints a resource configuration in which the host is the only one. */
static enum pl_status print_resource(const struct pl_job *job, struct pl_text *text, struct pl_error *reterr)
{
    static const char *const without[] = {"hosts", "instance_groups", "topology"};
    PL_AUTO_PYTHON_JSON struct pl_python_json *resource = pl_python_json_new_object();
    struct pl_python_json *hosts = pl_python_json_new_array();

    PL_TRY(pl_python_json_set(resource, "hosts", hosts, reterr));
    PL_TRY(pl_python_json_append(hosts, pl_python_json_new_string(job->current_host), reterr));
    for (const struct pl_python_json *member = pl_python_json_first(job->resource); member;
         member = pl_python_json_next(member)) {
        bool kept = true;

        for (size_t i = 0; i < PL_ARRAY_ITEMS(without); i++) {
            kept = kept && strcmp(pl_python_json_name(member), without[i]) != 0;
        }
        if (kept) {
            PL_TRY(pl_python_json_set(resource, pl_python_json_name(member), pl_python_json_copy(member), reterr));
        }
    }
    pl_python_json_print(resource, PL_PYTHON_JSON_SPACED, text);
    return pl_text_check(text, reterr);
}

static enum pl_status print_checkpoint_config(const char *directory, struct pl_text *text, struct pl_error *reterr)
{
    pl_text_append(text, "{\"LocalPath\": ");
    pl_python_json_print_string(directory, text);
    pl_text_append(text, "}");
    return pl_text_check(text, reterr);
}

/* Writes a file of the trial, without fsync: nobody needs it after a crash. */
static enum pl_status write_config(const struct pl_trial_folder *folder, const char *name, const struct pl_text *text,
                                   struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_CLOSE int fd = -1;

    pl_text_printf(&path, "%s/input/config/%s", folder->base, name);
    PL_TRY(pl_text_check(&path, reterr));
    fd = open(pl_text_string(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return pl_error_errno(reterr, "write '%s'", pl_text_string(&path));
    }
    return pl_file_write_fd(fd, text->data, text->length, pl_text_string(&path), reterr);
}

static enum pl_status link_to(const char *target, const struct pl_trial_folder *folder, const char *name,
                              struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", folder->base, name);
    PL_TRY(pl_text_check(&path, reterr));
    return symlink(target, pl_text_string(&path)) == 0 || errno == EEXIST
               ? PL_OK
               : pl_error_errno(reterr, "symlink '%s'", pl_text_string(&path));
}

/* Adds a file of the job's configuration that the trial does not have itself. With an own tree it is a copy: a link to
 * it would lead back into the trial's tree. */
static enum pl_status add_config(const struct pl_job *job, const struct pl_trial_folder *folder, const char *name,
                                 bool copy, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text target = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text link = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text content = PL_TEXT_NONE;
    PL_AUTO_FREE char *bytes = NULL;
    size_t count = 0;

    pl_text_printf(&target, "%s/%s", job->paths.input_config, name);
    pl_text_printf(&link, "input/config/%s", name);
    PL_TRY(pl_text_check(&target, reterr));
    PL_TRY(pl_text_check(&link, reterr));
    if (!copy) {
        return link_to(pl_text_string(&target), folder, pl_text_string(&link), reterr);
    }
    PL_TRY(pl_file_read(pl_text_string(&target), CONFIG_MAX_BYTES, &bytes, &count, reterr));
    pl_text_append_n(&content, bytes, count);
    return write_config(folder, name, &content, reterr);
}

static bool is_own_config(const char *name)
{
    return strcmp(name, "hyperparameters.json") == 0 || strcmp(name, "resourceconfig.json") == 0 ||
           strcmp(name, "checkpointconfig.json") == 0;
}

static enum pl_status add_all_config(const struct pl_job *job, const struct pl_trial_folder *folder, bool copy,
                                     struct pl_error *reterr)
{
    PL_AUTO_DIRECTORY DIR *directory = opendir(job->paths.input_config);
    enum pl_status status = PL_OK;
    struct stat info;

    for (const struct dirent *entry = directory ? readdir(directory) : NULL; entry && status == PL_OK;
         entry = readdir(directory)) {
        if (entry->d_name[0] != '.' && !is_own_config(entry->d_name) &&
            fstatat(dirfd(directory), entry->d_name, &info, 0) == 0 && (!copy || S_ISREG(info.st_mode))) {
            status = add_config(job, folder, entry->d_name, copy, reterr);
        }
    }
    return status;
}

static enum pl_status make_below(const char *base, const char *name, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/%s", base, name);
    PL_TRY(pl_text_check(&path, reterr));
    return pl_file_make_dirs(pl_text_string(&path), 0755, reterr);
}

static enum pl_status make_directories(const struct pl_job *job, const struct pl_trial_folder *folder, bool own_tree,
                                       struct pl_error *reterr)
{
    PL_TRY(make_below(folder->base, "input/config", reterr));
    PL_TRY(make_below(folder->base, "output", reterr));
    if (own_tree) { /* the trial's other folders are mounted here */
        PL_TRY(make_below(folder->base, "output/data", reterr));
        PL_TRY(make_below(job->paths.base, "checkpoints", reterr));
        PL_TRY(pl_file_make_dirs(job->paths.model, 0755, reterr));
    }
    PL_TRY(pl_file_make_dirs(folder->checkpoints, 0755, reterr));
    PL_TRY(pl_file_make_dirs(folder->model, 0755, reterr));
    return pl_file_make_dirs(folder->output_data, 0755, reterr);
}

static enum pl_status make_links(const struct pl_job *job, const struct pl_trial_folder *folder,
                                 struct pl_error *reterr)
{
    PL_TRY(link_to(job->paths.input_data, folder, "input/data", reterr));
    PL_TRY(link_to(job->paths.code, folder, "code", reterr));
    PL_TRY(link_to(folder->model, folder, "model", reterr));
    return link_to(folder->output_data, folder, "output/data", reterr);
}

/* Removes what an earlier run of the trial has left. The folder itself stays: this process has locked it. */
static void clear(const struct pl_trial_folder *folder)
{
    static const char *const names[] = {"input", "output", "code", "model"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(names); i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        pl_text_printf(&path, "%s/%s", folder->base, names[i]);
        if (pl_text_check(&path, NULL) == PL_OK && unlink(pl_text_string(&path)) != 0) {
            pl_file_remove_tree(pl_text_string(&path));
        }
    }
}

enum pl_status pl_trial_folder_lock(const struct pl_trial_folder *folder, int *ret_fd, struct pl_error *reterr)
{
    struct stat info = {.st_nlink = 0};
    PL_AUTO_CLOSE int fd = -1;

    while (info.st_nlink == 0) { /* a trial that has just ended may have removed the folder that was opened */
        PL_TRY(pl_file_make_dirs(folder->base, 0755, reterr));
        pl_file_close_at(&fd);
        fd = open(folder->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) {
            continue;
        }
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            return pl_error_set(reterr, PL_LIMIT, "'%s' is that of a trial that runs", folder->base);
        }
        if (fd < 0 || fstat(fd, &info) != 0) {
            return pl_error_errno(reterr, "lock '%s'", folder->base);
        }
    }
    *ret_fd = fd;
    fd = -1;
    return PL_OK;
}

enum pl_status pl_trial_folder_make(const struct pl_job *job, const struct pl_trial_folder *folder,
                                    const struct pl_trial_kind *kind, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *job_values = NULL;
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, root = PL_TEXT_NONE, values = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text resource = PL_TEXT_NONE, checkpoints = PL_TEXT_NONE;

    clear(folder);
    pl_job_checkpoints(job, &root);
    PL_TRY(pl_text_check(&root, reterr));
    pl_text_printf(&path, "%s/hyperparameters.json", job->paths.input_config);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(pl_config_read(pl_text_string(&path), false, &job_values, reterr));
    PL_TRY(pl_trial_folder_hyperparameters(job_values, kind, &values, reterr));
    PL_TRY(print_resource(job, &resource, reterr));
    PL_TRY(print_checkpoint_config(kind->own_tree ? pl_text_string(&root) : folder->checkpoints, &checkpoints, reterr));
    PL_TRY(make_directories(job, folder, kind->own_tree, reterr));
    PL_TRY(write_config(folder, "hyperparameters.json", &values, reterr));
    PL_TRY(write_config(folder, "resourceconfig.json", &resource, reterr));
    PL_TRY(write_config(folder, "checkpointconfig.json", &checkpoints, reterr));
    PL_TRY(add_all_config(job, folder, kind->own_tree, reterr));
    return kind->own_tree ? PL_OK : make_links(job, folder, reterr);
}

void pl_trial_folder_reason(const struct pl_trial_folder *folder, struct pl_text *text)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *words = NULL;
    const char *last;
    size_t bytes = 0, first_bytes;

    pl_text_printf(&path, "%s/output/failure", folder->base);
    if (pl_text_check(&path, NULL) != PL_OK ||
        pl_file_read(pl_text_string(&path), FAILURE_MAX_BYTES, &words, &bytes, NULL) != PL_OK) {
        return;
    }
    while (bytes > 0 && (words[bytes - 1] == '\n' || words[bytes - 1] == ' ')) {
        words[--bytes] = '\0';
    }
    first_bytes = strcspn(words, "\n");
    pl_text_append_n(text, words, first_bytes);
    last = strrchr(words, '\n');
    if (last && strncmp(last + 1, "Program: ", 9) != 0 && strncmp(words, last + 1, strlen(last + 1)) != 0) {
        pl_text_printf(text, ": %s", last + 1);
    }
}

void pl_trial_folder_done(struct pl_trial_folder *folder)
{
    free(folder->base);
    free(folder->checkpoints);
    free(folder->model);
    free(folder->output_data);
    *folder = PL_TRIAL_FOLDER_NONE;
}
