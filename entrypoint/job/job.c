/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the job description from /opt/ml/input/config and the container's environment. */
#include "entrypoint/job/job.h"

#include "base/efa.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/job/capacity.h"
#include "entrypoint/job/config.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/job/hyperparameters.h"
#include "entrypoint/job/precedence.h"
#include "entrypoint/job/processes.h"
#include "entrypoint/job/pyrepr.h"
#include "entrypoint/job/settings.h"
#include "s3io/s3/credentials.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char default_base[] = "/opt/ml";

const char *pl_job_base_dir(const struct pl_environment *process)
{
    return pl_environment_get_or(process, "SAGEMAKER_BASE_DIR", default_base);
}

/* Set `*ret_path` to "BASE/TAIL"; slashes at the end of the base are removed. */
static enum pl_status join(const char *base, const char *tail, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    size_t length = strlen(base);

    while (length > 1 && base[length - 1] == '/') {
        length--;
    }
    pl_text_append_n(&path, base, length);
    if (*tail != '\0') {
        pl_text_printf(&path, "%s%s", length == 1 && base[0] == '/' ? "" : "/", tail);
    }
    return pl_text_take(&path, ret_path, reterr);
}

/* In a trial the model's directory may be a link. A program that removes the directory and makes it again would lose
 * the link, so it gets the path behind it. */
static enum pl_status name_model(struct pl_job *job, struct pl_error *reterr)
{
    char target[PATH_MAX];
    const ssize_t length =
        pl_environment_get(job->process, "PACELINE_TRIAL") ? readlink(job->paths.model, target, sizeof(target)) : -1;

    if (length <= 0 || length == (ssize_t)sizeof(target) || target[0] != '/') {
        return PL_OK;
    }
    free(job->paths.model);
    job->paths.model = pl_memory_string_n(target, (size_t)length, reterr);
    return job->paths.model ? PL_OK : PL_MEMORY;
}

static enum pl_status make_paths(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_job_paths *paths = &job->paths;
    const char *base = pl_job_base_dir(job->process);
    const struct {
        const char *tail;
        char **path;
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
    for (size_t i = 0; i < PL_ARRAY_ITEMS(list); i++) {
        PL_TRY(join(base, list[i].tail, list[i].path, reterr));
    }
    return name_model(job, reterr);
}

static enum pl_status config_path(const struct pl_job *job, const char *name, char **ret_path, struct pl_error *reterr)
{
    return join(job->paths.input_config, name, ret_path, reterr);
}

/* Add the names of `list` to `names`, each only once. */
static enum pl_status add_hosts(const char *path, const struct pl_python_json *list, struct pl_strv *names,
                                struct pl_error *reterr)
{
    PL_TRY(pl_config_check_names(path, list, "a host name", reterr));
    for (const struct pl_python_json *host = pl_python_json_first(list); host; host = pl_python_json_next(host)) {
        if (pl_strv_find(names, pl_python_json_text(host)) >= 0) {
            return pl_config_wrong(path, host, "each host once", reterr);
        }
        PL_TRY(pl_strv_add(names, pl_python_json_text(host), reterr));
    }
    return PL_OK;
}

/* Check the hosts of one group: each is one of "hosts" and belongs to no earlier group. So their total number has a
 * limit. */
static enum pl_status check_group_hosts(const char *path, const struct pl_python_json *list, const struct pl_job *job,
                                        struct pl_strv *grouped, struct pl_error *reterr)
{
    size_t first = grouped->count;
    const struct pl_python_json *host = pl_python_json_first(list);

    PL_TRY(add_hosts(path, list, grouped, reterr));
    for (size_t i = first; i < grouped->count; i++, host = pl_python_json_next(host)) {
        if (pl_strv_find(&job->hosts, grouped->items[i]) < 0) {
            return pl_config_wrong(path, host, "one of the names in \"hosts\"", reterr);
        }
    }
    return PL_OK;
}

/* Check instance_groups and topology for the types that later code relies on. */
static enum pl_status check_groups(const char *path, struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv grouped = PL_STRV_NONE;

    PL_TRY(pl_config_member(path, job->resource, "instance_groups", PL_PYTHON_JSON_ARRAY, false, &job->groups, reterr));
    for (const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL; group;
         group = pl_python_json_next(group)) {
        const struct pl_python_json *hosts = NULL;
        const char *name = NULL;

        if (pl_python_json_kind(group) != PL_PYTHON_JSON_OBJECT) {
            return pl_config_wrong(path, group, "an object", reterr);
        }
        PL_TRY(pl_config_string(path, group, "instance_group_name", NULL, &name, reterr));
        PL_TRY(pl_config_member(path, group, "hosts", PL_PYTHON_JSON_ARRAY, true, &hosts, reterr));
        PL_TRY(check_group_hosts(path, hosts, job, &grouped, reterr));
    }
    job->topology = pl_python_json_member(job->resource, "topology");
    if (job->topology && !pl_hyperparameters_is_true(job->topology)) {
        job->topology = NULL;
    }
    return PL_OK;
}

/* The file that each job has. */
static enum pl_status read_first(const char *path, struct pl_python_json **ret_root, struct pl_error *reterr)
{
    const enum pl_status status = pl_config_read(path, true, ret_root, reterr);

    return status == PL_NOT_FOUND
               ? pl_error_set(
                     reterr, status,
                     "there is no job here: '%.200s' does not exist. SageMaker writes it; `paceline demo` runs "
                     "a job without SageMaker",
                     path)
               : status;
}

static enum pl_status read_resource(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;
    const struct pl_python_json *hosts = NULL;
    const struct pl_python_json *current;

    PL_TRY(config_path(job, "resourceconfig.json", &path, reterr));
    PL_TRY(read_first(path, &job->resource, reterr));
    PL_TRY(pl_config_string(path, job->resource, "current_host", NULL, &job->current_host, reterr));
    PL_TRY(pl_config_member(path, job->resource, "hosts", PL_PYTHON_JSON_ARRAY, true, &hosts, reterr));
    if (pl_python_json_count(hosts) == 0 || pl_python_json_count(hosts) > PL_JOB_HOSTS_MAX) {
        return pl_config_wrong(path, hosts, "1 to 4096 host names", reterr);
    }
    PL_TRY(add_hosts(path, hosts, &job->hosts, reterr));
    job->host_index = pl_strv_find(&job->hosts, job->current_host);
    current = pl_python_json_member(job->resource, "current_host");
    if (job->host_index < 0) {
        /* SageMaker Studio's local mode runs one container whose name is not in the list. */
        if (strcasecmp(pl_environment_get_or(job->process, "SM_STUDIO_LOCAL_MODE", ""), "true") != 0) {
            return pl_config_wrong(path, current, "one of the names in \"hosts\"", reterr);
        }
        job->host_index = 0;
    }
    PL_TRY(pl_config_string(path, job->resource, "network_interface_name", "eth0", &job->network_interface, reterr));
    PL_TRY(pl_config_string(path, job->resource, "current_instance_type", "local", &job->instance_type, reterr));
    PL_TRY(pl_config_string(path, job->resource, "current_group_name", "homogeneousCluster", &job->group_name, reterr));
    return check_groups(path, job, reterr);
}

static enum pl_status read_channels(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;

    PL_TRY(config_path(job, "inputdataconfig.json", &path, reterr));
    PL_TRY(pl_config_read(path, false, &job->input_data, reterr));
    job->channels = pl_memory_new(pl_python_json_count(job->input_data) + 1, sizeof(*job->channels), reterr);
    if (!job->channels) {
        return PL_MEMORY;
    }
    for (const struct pl_python_json *member = pl_python_json_first(job->input_data); member;
         member = pl_python_json_next(member)) {
        struct pl_job_channel *channel = &job->channels[job->channels_count++];

        channel->name = pl_python_json_name(member);
        if (*channel->name == '\0' || strstr(channel->name, "\xC0\x80")) {
            return pl_config_wrong(path, member, "a channel under a name that is not empty", reterr);
        }
        PL_TRY(join(job->paths.input_data, channel->name, &channel->path, reterr));
    }
    return PL_OK;
}

static enum pl_status read_checkpoints(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;
    const char *named;

    PL_TRY(config_path(job, "checkpointconfig.json", &path, reterr));
    PL_TRY(pl_config_read(path, false, &job->checkpoint_config, reterr));
    PL_TRY(pl_config_string(path, job->checkpoint_config, "LocalPath", "", &named, reterr));
    if (*named != '\0' && *named != '/') {
        return pl_config_wrong(path, pl_python_json_member(job->checkpoint_config, "LocalPath"), "an absolute path",
                               reterr);
    }
    job->checkpoint_dir = *named != '\0' ? named : NULL;
    return PL_OK;
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
static enum pl_status set_region(struct pl_job *job, const char *named, struct pl_error *reterr)
{
    PL_AUTO_PROFILE struct pl_profile profile = {.access_key = NULL};
    const char *region = named ? named : pl_environment_get_or(job->process, "AWS_DEFAULT_REGION", NULL);

    if (!region && pl_profile_read(job->process, &profile, NULL) == PL_OK) {
        /* files that cannot be read are not an error here: the code that needs their credentials reports them */
        region = profile.region;
    }
    job->region = pl_memory_string(region ? region : "", reterr);
    return job->region ? PL_OK : PL_MEMORY;
}

static enum pl_status read_hyperparameters(struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_FREE char *path = NULL;
    PL_AUTO_PYTHON_JSON struct pl_python_json *raw = NULL;
    struct pl_hyperparameters sorted;
    enum pl_status status;
    const char *program = NULL;
    const char *region = NULL;
    const struct pl_python_json *level;

    PL_TRY(config_path(job, "hyperparameters.json", &path, reterr));
    PL_TRY(pl_config_read(path, false, &raw, reterr));
    status = pl_hyperparameters_sort(raw, &sorted, reterr);
    job->hyperparameters = sorted.user;
    job->framework = sorted.framework;
    job->platform = sorted.platform;
    job->setting_values = sorted.setting_values;
    PL_TRY(status);
    PL_TRY(platform_text(job, "sagemaker_program", &program, reterr));
    job->program = pl_environment_get_or(job->process, "SAGEMAKER_PROGRAM", program);
    job->overridden_program = program && strcmp(program, job->program) != 0 ? program : NULL;
    PL_TRY(platform_text(job, "sagemaker_submit_directory", &job->submit_uri, reterr));
    job->module_dir = job->submit_uri ? job->submit_uri : job->paths.code;
    job->job_name = pl_environment_get(job->process, "TRAINING_JOB_NAME");
    PL_TRY(platform_text(job, "sagemaker_job_name", &job->sagemaker_job_name, reterr));
    PL_TRY(platform_text(job, "sagemaker_region", &region, reterr));
    PL_TRY(set_region(job, region, reterr));
    level = pl_python_json_member(job->platform, "sagemaker_container_log_level");
    job->log_level = level && pl_python_json_kind(level) != PL_PYTHON_JSON_NULL ? pl_python_json_copy(level)
                                                                                : pl_python_json_new_int64(20);
    if (!job->log_level) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory reading hyperparameters");
    }
    job->framework_module = pl_environment_get_or(job->process, "SAGEMAKER_TRAINING_MODULE", NULL);
    return pl_job_set_arguments(job, reterr);
}

enum pl_status pl_job_set_arguments(struct pl_job *job, struct pl_error *reterr)
{
    const bool by_sdk = job->drivers.entry_script && job->program == job->drivers.entry_script;

    pl_strv_done(&job->user_args);
    return (by_sdk ? pl_pyrepr_dumps_arguments : pl_pyrepr_arguments)(job->hyperparameters, &job->user_args, reterr);
}

static bool switched_on(const struct pl_job *job, const char *name)
{
    return pl_hyperparameters_is_true(pl_python_json_member(job->framework, name));
}

static bool is_distributed(const struct pl_job_switches *on)
{
    return on->mpi || on->native_server || on->parameter_server || on->multi_worker_mirrored || on->torch_distributed ||
           on->smddp || on->xla;
}

/* Version 3 of the SDK launches on all hosts, whatever their groups are. */
static enum pl_status choose_all_groups(struct pl_job *job, struct pl_error *reterr)
{
    if (!job->groups) {
        return pl_strv_add(&job->distribution_groups, job->group_name, reterr);
    }
    for (const struct pl_python_json *group = pl_python_json_first(job->groups); group;
         group = pl_python_json_next(group)) {
        PL_TRY(pl_strv_add(&job->distribution_groups,
                           pl_python_json_text(pl_python_json_member(group, "instance_group_name")), reterr));
    }
    return PL_OK;
}

static enum pl_status choose_groups(struct pl_job *job, struct pl_error *reterr)
{
    const struct pl_python_json *named =
        pl_python_json_member(job->framework, "sagemaker_distribution_instance_groups");

    if (named && pl_hyperparameters_is_true(named)) {
        if (pl_python_json_kind(named) != PL_PYTHON_JSON_ARRAY) {
            return pl_error_set(
                reterr, PL_INVALID,
                "hyperparameter sagemaker_distribution_instance_groups: expected a list of group names, found %s",
                pl_python_json_kind_text(pl_python_json_kind(named)));
        }
        for (const struct pl_python_json *item = pl_python_json_first(named); item; item = pl_python_json_next(item)) {
            if (pl_python_json_kind(item) != PL_PYTHON_JSON_STRING) {
                return pl_error_set(
                    reterr, PL_INVALID,
                    "hyperparameter sagemaker_distribution_instance_groups: expected group names, found %s",
                    pl_python_json_kind_text(pl_python_json_kind(item)));
            }
            PL_TRY(pl_strv_add(&job->distribution_groups, pl_python_json_text(item), reterr));
        }
        return PL_OK;
    }
    if (job->drivers.launch != PL_DRIVERS_LAUNCH_OPEN) {
        return choose_all_groups(job, reterr);
    }
    if (is_distributed(&job->switches)) {
        return pl_strv_add(&job->distribution_groups, job->group_name, reterr);
    }
    return PL_OK;
}

/* If the distribution has named groups, all hosts of other groups are outside it. */
static enum pl_status choose_outside_hosts(struct pl_job *job, struct pl_error *reterr)
{
    const struct pl_python_json *named =
        pl_python_json_member(job->framework, "sagemaker_distribution_instance_groups");

    if (!named || !pl_hyperparameters_is_true(named) || !is_distributed(&job->switches) ||
        job->distribution_hosts.count == 0) {
        return PL_OK;
    }
    for (size_t i = 0; i < job->hosts.count; i++) {
        if (pl_strv_find(&job->distribution_hosts, job->hosts.items[i]) < 0) {
            PL_TRY(pl_strv_add(&job->outside_hosts, job->hosts.items[i], reterr));
        }
    }
    return PL_OK;
}

/* Choose the hosts of the distribution groups in file order, or all hosts if the file has no groups. Hosts of one
 * capacity unit are put together. */
static enum pl_status choose_hosts(struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(choose_groups(job, reterr));
    if (!job->groups) {
        PL_TRY(pl_strv_add_all(&job->distribution_hosts, &job->hosts, reterr));
    } else {
        for (const struct pl_python_json *group = pl_python_json_first(job->groups); group;
             group = pl_python_json_next(group)) {
            const struct pl_python_json *host = pl_python_json_first(pl_python_json_member(group, "hosts"));

            if (pl_strv_find(&job->distribution_groups,
                             pl_python_json_text(pl_python_json_member(group, "instance_group_name"))) < 0) {
                continue;
            }
            for (; host; host = pl_python_json_next(host)) {
                PL_TRY(pl_strv_add(&job->distribution_hosts, pl_python_json_text(host), reterr));
            }
        }
    }
    PL_TRY(choose_outside_hosts(job, reterr));
    PL_TRY(pl_capacity_order(job->topology, &job->distribution_hosts, reterr));
    job->master_host = job->distribution_hosts.count > 0 ? job->distribution_hosts.items[0] : job->hosts.items[0];
    /* Studio's local mode has another name for this host: host_index says which it is */
    job->distribution_index = pl_strv_find(&job->distribution_hosts, job->hosts.items[job->host_index]);
    if (job->distribution_index < 0 && pl_strv_find(&job->distribution_groups, job->group_name) >= 0) {
        return pl_error_set(
            reterr, PL_INVALID,
            "resourceconfig.json: this host '%s' is in the group '%s', but not among that group's hosts",
            job->current_host, job->group_name);
    }
    return PL_OK;
}

/* PACELINE_PS says which parameter servers a job gets. Our own servers need no other hyperparameter. */
static enum pl_status choose_server(struct pl_job *job, struct pl_error *reterr)
{
    if (strcmp(job->settings.ps, "native") != 0) {
        return PL_OK;
    }
    job->switches.parameter_server = false;
    if (is_distributed(&job->switches)) {
        return pl_error_set(
            reterr, PL_INVALID,
            "PACELINE_PS is 'native', but the job also asks for another distribution (%s): expected only one",
            job->switches.mpi                 ? "mpi"
            : job->switches.torch_distributed ? "torch_distributed"
                                              : "one of the sagemaker_*_enabled");
    }
    job->switches.native_server = true;
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

/* Derive values from the files and the settings, which have been checked. */
static enum pl_status derive(struct pl_job *job, struct pl_error *reterr)
{
    struct pl_efa efa;

    job->switches = (struct pl_job_switches){
        .mpi = switched_on(job, "sagemaker_mpi_enabled"),
        .parameter_server = switched_on(job, "sagemaker_parameter_server_enabled"),
        .multi_worker_mirrored = switched_on(job, "sagemaker_multi_worker_mirrored_strategy_enabled"),
        .torch_distributed = switched_on(job, "sagemaker_torch_distributed_enabled"),
        .smddp = switched_on(job, "sagemaker_distributed_dataparallel_enabled") ||
                 switched_on(job, "sagemaker_pytorch_ddp_enabled"),
        .xla = switched_on(job, "sagemaker_pytorch_xla_multi_worker_enabled"),
    };
    PL_TRY(pl_precedence_launch(job, reterr));
    PL_TRY(choose_server(job, reterr));
    job->cpus = pl_devices_cpus();
    job->gpus = pl_devices_gpus("");
    job->neuron_cores = pl_devices_neuron_cores("", job->instance_type);
    use_share(job);
    pl_efa_read("", &efa);
    job->efa = efa.count > 0;
    PL_TRY(choose_hosts(job, reterr));
    return pl_processes_count(job, reterr);
}

static enum pl_status fill(struct pl_job *job, const struct pl_strv *command, struct pl_error *reterr)
{
    PL_TRY(make_paths(job, reterr));
    PL_TRY(read_resource(job, reterr));
    PL_TRY(read_channels(job, reterr));
    PL_TRY(pl_drivers_read(job->paths.input_data, &job->drivers, reterr));
    PL_TRY(read_checkpoints(job, reterr));
    PL_TRY(read_hyperparameters(job, reterr));
    if (command) {
        PL_TRY(pl_strv_add_all(&job->command, command, reterr));
    }
    PL_TRY(pl_settings_read(job->process, &job->setting_values, &job->settings, reterr));
    PL_TRY(pl_precedence_log(job, reterr));
    PL_TRY(pl_precedence_program(job, reterr));
    return derive(job, reterr);
}

/* If a setting among the hyperparameters is wrong, use only the settings of the environment. If the distribution's
 * groups are not known, use all hosts of the job, and take this host's group as one of the distribution's. */
static enum pl_status fill_partial(struct pl_job *job, struct pl_error *reterr)
{
    PL_TRY(make_paths(job, reterr));
    PL_TRY(read_resource(job, reterr));
    if (pl_drivers_read(job->paths.input_data, &job->drivers, NULL) != PL_OK) {
        pl_drivers_done(&job->drivers);
    }
    read_hyperparameters(job, NULL);
    if (pl_settings_read(job->process, &job->setting_values, &job->settings, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "settings that cannot be read keep their default values");
    }
    if (job->framework) {
        derive(job, NULL);
    }
    job->job_name = pl_environment_get(job->process, "TRAINING_JOB_NAME");
    if (job->distribution_hosts.count == 0) {
        PL_TRY(pl_strv_add_all(&job->distribution_hosts, &job->hosts, reterr));
        PL_TRY(pl_strv_add(&job->distribution_groups, job->group_name, reterr));
        job->distribution_index = pl_strv_find(&job->hosts, job->current_host);
    }
    return PL_OK;
}

static enum pl_status make(const struct pl_environment *process, const char *self_path, const struct pl_strv *command,
                           bool partial, struct pl_job **ret_job, struct pl_error *reterr)
{
    struct pl_job *job = pl_memory_new(1, sizeof(*job), reterr);
    enum pl_status status;

    if (!job) {
        return PL_MEMORY;
    }
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
    free(job->paths.base);
    free(job->paths.code);
    free(job->paths.input);
    free(job->paths.input_config);
    free(job->paths.input_data);
    free(job->paths.model);
    free(job->paths.output);
    free(job->paths.output_data);
    free(job->paths.output_intermediate);
    for (size_t i = 0; i < job->channels_count; i++) {
        free(job->channels[i].path);
    }
    free(job->channels);
    free(job->region);
    pl_python_json_free(job->resource);
    pl_python_json_free(job->input_data);
    pl_python_json_free(job->checkpoint_config);
    pl_python_json_free(job->hyperparameters);
    pl_python_json_free(job->framework);
    pl_python_json_free(job->platform);
    pl_python_json_free(job->log_level);
    pl_drivers_done(&job->drivers);
    pl_strv_done(&job->conflicts);
    pl_strv_done(&job->hosts);
    pl_strv_done(&job->setting_values);
    pl_strv_done(&job->command);
    pl_strv_done(&job->user_args);
    pl_strv_done(&job->distribution_groups);
    pl_strv_done(&job->distribution_hosts);
    pl_strv_done(&job->outside_hosts);
    free(job->host_processes);
    free(job);
}

void pl_job_free_at(struct pl_job **job_at)
{
    pl_job_free(*job_at);
    *job_at = NULL;
}
