/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the job description from /opt/ml/input/config and the container's environment. */
#include "entrypoint/job/job.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/config.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/pyrepr.h"
#include "entrypoint/job/settings.h"
#include "s3io/s3/credentials.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_base[] = "/opt/ml";

const char *pl_job_base_dir(const struct pl_environment *process)
{
    return pl_environment_get_or(process, "SAGEMAKER_BASE_DIR", default_base);
}

static const char *config_path(struct pl_job *job, const char *name)
{
    return pl_pool_printf(&job->pool, "%s/%s", job->paths.input_config, name);
}

bool pl_job_has_program(const struct pl_job *job, const char *name)
{
    PL_AUTO_FREE char *path = NULL;

    return pl_file_find_program(name, pl_environment_get(job->process, "PATH"), &path, NULL) == PL_OK;
}

/* In a trial the model's directory may be a link. A program that removes the directory and makes it again would lose
 * the link, so it gets the path behind it. */
static void name_model(struct pl_job *job)
{
    char target[PATH_MAX];
    const ssize_t length =
        pl_environment_get(job->process, "PACELINE_TRIAL") ? readlink(job->paths.model, target, sizeof(target)) : -1;

    if (length > 0 && length < (ssize_t)sizeof(target) && target[0] == '/') {
        job->paths.model = pl_pool_string_n(&job->pool, target, (size_t)length);
    }
}

/* Slashes at the end of the base are removed. */
static enum pl_status make_paths(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_job_paths *paths = &job->paths;
    const char *base = pl_job_base_dir(job->process);
    size_t length = strlen(base);
    const struct {
        const char *tail;
        const char **path;
    } list[] = {
        {"", &paths->base},
        {"code", &paths->code},
        {"input", &paths->input},
        {"input/config", &paths->input_config},
        {"input/data", &paths->input_data},
        {"model", &paths->model},
        {"output", &paths->output},
        {"output/data", &paths->output_data},
        {"output/intermediate", &paths->output_intermediate},
    };

    if (base[0] != '/') {
        return pl_error_set(reterr, PL_INVALID, "SAGEMAKER_BASE_DIR: expected an absolute path, found '%s'", base);
    }
    while (length > 1 && base[length - 1] == '/') {
        length--;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        *list[i].path = pl_pool_printf(&job->pool, "%.*s%s%s", (int)length, base,
                                       *list[i].tail == '\0' || length == 1 ? "" : "/", list[i].tail);
    }
    name_model(job);
    return pl_pool_check(&job->pool, reterr);
}

static enum pl_status read_channels(struct pl_job *job, struct pl_error *reterr)
{
    const char *path = config_path(job, "inputdataconfig.json");

    PL_TRY(pl_config_read(path, false, &job->input_data, reterr));
    job->channels = pl_pool_new(&job->pool, pl_python_json_count(job->input_data), sizeof(*job->channels));
    PL_TRY(pl_pool_check(&job->pool, reterr));
    PL_PYTHON_JSON_EACH(member, job->input_data) {
        const char *name = pl_python_json_name(member);

        if (*name == '\0' || strstr(name, "\xC0\x80")) {
            return pl_config_wrong(path, member, "a channel under a name that is not empty", reterr);
        }
        job->channels[job->channels_count++] = (struct pl_job_channel){
            .name = name, .path = pl_pool_printf(&job->pool, "%s/%s", job->paths.input_data, name)};
    }
    return PL_OK;
}

static enum pl_status read_checkpoints(struct pl_job *job, struct pl_error *reterr)
{
    const char *path = config_path(job, "checkpointconfig.json");
    const struct pl_config_member place = {"LocalPath", .text = &job->checkpoint_dir, .is_optional = true};

    PL_TRY(pl_config_read(path, false, &job->checkpoint_config, reterr));
    PL_TRY(pl_config_members(path, job->checkpoint_config, &place, 1, reterr));
    return !job->checkpoint_dir || *job->checkpoint_dir == '/'
               ? PL_OK
               : pl_config_wrong(path, pl_python_json_member(job->checkpoint_config, "LocalPath"), "an absolute path",
                                 reterr);
}

/* Get the text of a reserved hyperparameter; NULL if it is absent, null or empty. */
static enum pl_status platform_text(const struct pl_job *job, const char *name, const char **ret_text,
                                    struct pl_error *reterr)
{
    const struct pl_python_json *node = pl_python_json_member(job->platform, name);

    *ret_text = NULL;
    if (!node || pl_python_json_kind(node) == PL_PYTHON_JSON_NULL) {
        return PL_OK;
    }
    if (pl_python_json_kind(node) != PL_PYTHON_JSON_STRING && pl_python_json_kind(node) != PL_PYTHON_JSON_INT &&
        pl_python_json_kind(node) != PL_PYTHON_JSON_FLOAT) {
        return pl_error_set(reterr, PL_INVALID, "hyperparameter %s: expected a string, found %s", name,
                            pl_python_json_kind_text(pl_python_json_kind(node)));
    }
    if (strstr(pl_python_json_text(node), "\xC0\x80")) {
        return pl_error_set(reterr, PL_INVALID, "hyperparameter %s: expected a string without U+0000", name);
    }
    *ret_text = *pl_python_json_text(node) != '\0' ? pl_python_json_text(node) : NULL;
    return PL_OK;
}

/* Set the region: `named`, else the one that boto3 uses: AWS_DEFAULT_REGION, else `region` of the profile, else "". */
static void set_region(struct pl_job *job, const char *named)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    const char *region = named ? named : pl_environment_get_or(job->process, "AWS_DEFAULT_REGION", NULL);

    if (!region && pl_profile_read(job->process, &profile, NULL) == PL_OK) {
        /* files that cannot be read are not an error here: the code that needs their credentials reports them */
        region = profile.region;
    }
    job->region = pl_pool_string(&job->pool, region ? region : "");
}

static enum pl_status read_hyperparameters(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *raw = NULL;
    const char *program = NULL;
    const char *region = NULL;
    const struct pl_python_json *level;

    PL_TRY(pl_config_read(config_path(job, "hyperparameters.json"), false, &raw, reterr));
    PL_TRY(pl_hyperparameters_sort(raw, job, reterr));
    PL_TRY(platform_text(job, "sagemaker_program", &program, reterr));
    job->program = pl_environment_get_or(job->process, "SAGEMAKER_PROGRAM", program);
    job->overridden_program = program && strcmp(program, job->program) != 0 ? program : NULL;
    PL_TRY(platform_text(job, "sagemaker_submit_directory", &job->submit_uri, reterr));
    job->module_dir = job->submit_uri ? job->submit_uri : job->paths.code;
    job->job_name = pl_environment_get(job->process, "TRAINING_JOB_NAME");
    PL_TRY(platform_text(job, "sagemaker_job_name", &job->sagemaker_job_name, reterr));
    PL_TRY(platform_text(job, "sagemaker_region", &region, reterr));
    set_region(job, region);
    level = pl_python_json_member(job->platform, "sagemaker_container_log_level");
    job->log_level = level && pl_python_json_kind(level) != PL_PYTHON_JSON_NULL ? pl_python_json_copy(level)
                                                                                : pl_python_json_new_int64(20);
    if (!job->log_level) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory reading hyperparameters");
    }
    job->framework_module = pl_environment_get_or(job->process, "SAGEMAKER_TRAINING_MODULE", NULL);
    pl_job_set_arguments(job);
    return pl_strv_check(&job->user_args, reterr);
}

void pl_job_set_arguments(struct pl_job *job)
{
    const bool by_sdk = job->drivers.entry_script && job->program == job->drivers.entry_script;

    pl_strv_done(&job->user_args);
    (by_sdk ? pl_pyrepr_dumps_arguments : pl_pyrepr_arguments)(job->hyperparameters, &job->user_args);
}

/* A number or a name of Python's logging. False for anything else. */
static bool read_python_level(const struct pl_python_json *value, enum pl_log_level *ret_level)
{
    static const struct {
        const char *name;
        double most; /* the largest number of this level */
        enum pl_log_level level;
    } levels[] = {{"DEBUG", 10, PL_LOG_DEBUG},
                  {"INFO", 20, PL_LOG_INFO},
                  {"WARNING", 30, PL_LOG_WARNING},
                  {"ERROR", 40, PL_LOG_ERROR},
                  {"CRITICAL", 50, PL_LOG_ERROR}};
    const bool is_text = pl_python_json_kind(value) == PL_PYTHON_JSON_STRING;
    int64_t whole;
    double number;

    if (is_text ? !pl_text_number(pl_python_json_text(value), &number)
                : pl_python_json_int64(value, &whole, NULL) != PL_OK) {
        number = -1;
    } else if (!is_text) {
        number = (double)whole;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(levels); i++) {
        if ((number >= 0 && number <= levels[i].most) ||
            (is_text && strcmp(pl_python_json_text(value), levels[i].name) == 0)) {
            *ret_level = levels[i].level;
            return true;
        }
    }
    return false;
}

/* Choose the level of Paceline's own lines: the setting, else sagemaker_container_log_level. */
static void choose_log_level(struct pl_job *job)
{
    static const char name[] = "sagemaker_container_log_level";
    const struct pl_python_json *value = pl_python_json_member(job->platform, name);

    job->own_log_level = job->settings.log_level;
    if (!job->settings.names_log_level && value && pl_python_json_kind(value) != PL_PYTHON_JSON_NULL &&
        !read_python_level(value, &job->own_log_level)) {
        pl_strv_printf(&job->conflicts,
                       "hyperparameter %s has no effect on Paceline's own lines: expected a number of Python's "
                       "logging from 0 to 50; PACELINE_LOG=debug, info, warning or error sets them too",
                       name);
    }
}

/* PACELINE_PS says which parameter servers a job gets. Our own servers need no other hyperparameter. */
static enum pl_status choose_server(struct pl_job *job, struct pl_error *reterr)
{
    if (strcmp(job->settings.ps, "native") != 0) {
        return PL_OK;
    }
    job->launches &= ~(unsigned)PL_JOB_PARAMETER_SERVER;
    if (job->launches) {
        return pl_error_set(
            reterr, PL_INVALID,
            "PACELINE_PS is 'native', but the job also asks for another distribution (%s): expected only one",
            job->launches & PL_JOB_MPI        ? "mpi"
            : job->launches & PL_JOB_TORCHRUN ? "torch_distributed"
                                              : "one of the sagemaker_*_enabled");
    }
    job->launches = PL_JOB_NATIVE_SERVER;
    return PL_OK;
}

/* A trial of a sweep gets only a part of its host's devices. */
static void use_share(struct pl_job *job)
{
    if (job->settings.trial_cpus > 0) {
        job->cpus = (int)job->settings.trial_cpus;
        job->gpus = (int)job->settings.trial_gpus;
    }
}

static enum pl_status choose_checkpoints(struct pl_job *job, struct pl_error *reterr)
{
    if (job->settings.checkpoint_dir) {
        job->checkpoint_dir = job->settings.checkpoint_dir;
        return *job->checkpoint_dir == '/'
                   ? PL_OK
                   : pl_error_set(reterr, PL_INVALID, "PACELINE_CHECKPOINT_DIR is '%s': expected an absolute path",
                                  job->checkpoint_dir);
    }
    if (!job->checkpoint_dir) {
        job->checkpoint_dir = pl_pool_printf(&job->pool, "%s/checkpoints", job->paths.base);
    }
    return PL_OK;
}

/* Derive values from the files and the settings, which have been checked. */
static enum pl_status derive(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_devices devices;
    struct pl_devices_efa efa;

    pl_drivers_choose_launch(job);
    PL_TRY(choose_server(job, reterr));
    job->cpus = pl_devices_cpus();
    job->cpu_limit = pl_devices_cpu_limit("");
    devices = pl_devices_count("", job->instance_type);
    job->gpus = devices.gpus;
    job->neuron_cores = devices.neuron_cores;
    use_share(job);
    pl_devices_efa("", &efa);
    job->efa = efa.count > 0;
    PL_TRY(pl_hosts_choose(job, reterr));
    if (job->distribution_hosts.count < 2) { /* a program on one host has no other host to share a server with */
        job->launches &= ~(unsigned)PL_JOB_PARAMETER_SERVER;
    }
    return pl_hosts_count_processes(job, reterr);
}

static enum pl_status fill(struct pl_job *job, const struct pl_strv *command, struct pl_error *reterr)
{
    PL_TRY(make_paths(job, reterr));
    PL_TRY(pl_hosts_read(job, reterr));
    PL_TRY(read_channels(job, reterr));
    PL_TRY(pl_drivers_read(job, reterr));
    PL_TRY(read_checkpoints(job, reterr));
    PL_TRY(read_hyperparameters(job, reterr));
    if (command) {
        pl_strv_add_all(&job->command, command);
    }
    PL_TRY(pl_settings_read(job->process, job->setting_values, &job->settings, reterr));
    PL_TRY(choose_checkpoints(job, reterr));
    choose_log_level(job);
    PL_TRY(pl_drivers_choose_program(job, reterr));
    PL_TRY(derive(job, reterr));
    return pl_pool_check(&job->pool, reterr);
}

/* If a setting among the hyperparameters is wrong, use only the settings of the environment. If the distribution's
 * groups are not known, use all hosts of the job, and take this host's group as one of the distribution's. */
static enum pl_status fill_partial(struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(make_paths(job, reterr));
    PL_TRY(pl_hosts_read(job, reterr));
    if (pl_drivers_read(job, NULL) != PL_OK) {
        pl_drivers_done(&job->drivers);
    }
    read_hyperparameters(job, NULL);
    if (pl_settings_read(job->process, job->setting_values, &job->settings, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "settings that cannot be read keep their default values");
    }
    PL_TRY(choose_checkpoints(job, reterr));
    if (job->framework) {
        derive(job, NULL);
    }
    job->job_name = pl_environment_get(job->process, "TRAINING_JOB_NAME");
    if (job->distribution_hosts.count == 0) {
        pl_strv_add_all(&job->distribution_hosts, &job->hosts);
        pl_strv_add(&job->distribution_groups, job->group_name);
        job->distribution_index = pl_strv_find(&job->hosts, job->current_host);
    }
    return pl_pool_check(&job->pool, reterr);
}

static enum pl_status make(const struct pl_environment *process, const char *self_path, const struct pl_strv *command,
                           bool partial, struct pl_job **ret_job, struct pl_error *reterr)
{
    struct pl_job *job;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&job, 1, sizeof(*job), reterr));
    job->hosts.pool = job->conflicts.pool = job->command.pool = job->user_args.pool = &job->pool;
    job->distribution_groups.pool = job->distribution_hosts.pool = job->outside_hosts.pool = &job->pool;
    job->process = process;
    job->self_path = self_path;
    job->is_partial = partial;
    status = partial ? fill_partial(job, reterr) : fill(job, command, reterr);
    if (status != PL_OK) {
        pl_job_free(job);
        return status;
    }
    *ret_job = job;
    return PL_OK;
}

enum pl_status pl_job_new(const struct pl_environment *process, const char *self_path, const struct pl_strv *command,
                          struct pl_job **ret_job, struct pl_error *reterr)
{
    return make(process, self_path, command, false, ret_job, reterr);
}

enum pl_status pl_job_new_partial(const struct pl_environment *process, const char *self_path, struct pl_job **ret_job,
                                  struct pl_error *reterr)
{
    return make(process, self_path, NULL, true, ret_job, reterr);
}

void pl_job_free(struct pl_job *job)
{
    if (!job) {
        return;
    }
    pl_python_json_free(job->resource);
    pl_python_json_free(job->input_data);
    pl_python_json_free(job->checkpoint_config);
    pl_python_json_free(job->hyperparameters);
    pl_python_json_free(job->framework);
    pl_python_json_free(job->platform);
    pl_python_json_free(job->log_level);
    pl_drivers_done(&job->drivers);
    pl_python_json_free(job->setting_values);
    pl_pool_done(&job->pool);
    free(job);
}

enum pl_status pl_job_check_checkpoints(const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *model = NULL, *checkpoints = NULL;

    PL_TRY(pl_file_make_dirs(job->paths.model, 0755, reterr));
    PL_TRY(pl_file_make_dirs(job->checkpoint_dir, 0755, reterr));
    model = realpath(job->paths.model, NULL);
    checkpoints = realpath(job->checkpoint_dir, NULL);
    return model && checkpoints && strncmp(checkpoints, model, strlen(model)) == 0 &&
                   strchr("/", checkpoints[strlen(model)])
               ? pl_error_set(reterr, PL_INVALID,
                              "the checkpoints' folder '%s' is the model's, or in it: trials need one elsewhere, "
                              "because they keep models of their own there",
                              job->checkpoint_dir)
               : PL_OK;
}
