/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the launcher and makes the plan of what this host runs. */
#include "entrypoint/launch/plan.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/job/settings.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/needs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Distributions that the toolkit starts and Paceline does not. */
static const struct pl_launcher smddp = {
    .name = "smddp",
    .launch = PL_JOB_SMDDP,
    .cause = "SageMaker's distributed data parallel library (smddp) is not supported: use "
             "distribution={\"torch_distributed\": {\"enabled\": True}} and init_process_group(\"nccl\") instead of "
             "\"smddp\"; for a program with Horovod distribution={\"mpi\": {\"enabled\": True}}"};
static const struct pl_launcher xla = {
    .name = "xla",
    .launch = PL_JOB_XLA,
    .cause = "PyTorch/XLA workers (Training Compiler) are not supported, use MPI: distribution={\"mpi\": {\"enabled\": "
             "True}}"};

/* A job that is not a sweep gets the first launcher that matches. The last matches every job. */
static const struct pl_launcher *const launchers[] = {
    &pl_launcher_mpi,
    &pl_launcher_native_server,
    &smddp,
    &pl_launcher_torchrun,
    &pl_launcher_parameter_server,
    &pl_launcher_multi_worker_mirrored,
    &xla,
    &pl_launcher_direct,
};

static const struct pl_launcher *choose(const struct pl_job *job)
{
    const unsigned launches = pl_launcher_includes(job) ? job->launches : 0;
    size_t at = 0;

    if (job->settings.sweep && !job->is_check) {
        return &pl_launcher_sweep;
    }
    while (launchers[at]->launch && !(launchers[at]->launch & launches)) {
        at++;
    }
    return launchers[at];
}

/* Returns the address for intermediate output, or NULL if the job wants none. */
static const char *intermediate_uri(const struct pl_job *job)
{
    const struct pl_python_json *uri = pl_python_json_member(job->platform, "sagemaker_s3_output");

    return uri && pl_python_json_kind(uri) == PL_PYTHON_JSON_STRING && *pl_python_json_text(uri) != '\0'
               ? pl_python_json_text(uri)
               : NULL;
}

/* Whether the directory is a mount: the platform or local mode has made it then, and uploads it. False if it is not
 * there, or the kernel cannot tell. */
static bool is_mounted(const struct pl_job *job)
{
    struct statx info;

    return statx(AT_FDCWD, job->paths.output_intermediate, 0, 0, &info) == 0 &&
           (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Check the address, unless the platform has made the directory: then the platform knows the address. */
static enum pl_status check_uri(const struct pl_job *job, const char *uri, struct pl_error *reterr)
{
    if (is_mounted(job)) {
        return PL_OK;
    }
    if (strncmp(uri, "s3://", 5) != 0 && strncmp(uri, "file://", 7) != 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "hyperparameter sagemaker_s3_output: expected s3:// or file://, found '%s'", uri);
    }
    if (strcmp(uri, "s3://") == 0 || strncmp(uri, "s3:///", 6) == 0) {
        /* If the bucket were missing, the first directory would be taken for a bucket, which may belong to somebody
         * else. */
        return pl_error_set(reterr, PL_INVALID,
                            "hyperparameter sagemaker_s3_output: expected a bucket after s3://, found '%s'", uri);
    }
    return PL_OK;
}

/* Plan `paceline-sync DIRECTORY URI/JOB/output/intermediate`; SageMaker's toolkit gives the folders these names. */
static enum pl_status plan_sync(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const struct pl_job_settings *settings = &job->settings;
    const char *uri = intermediate_uri(job);
    const char *name = pl_environment_get_or(job->process, "TRAINING_JOB_NAME", "");
    PL_AUTO_FREE char *companion = NULL;

    if (!uri) {
        return PL_OK;
    }
    PL_TRY(check_uri(job, uri, reterr));
    if (strncmp(uri, "s3://", 5) != 0 || is_mounted(job)) {
        return PL_OK;
    }
    if (pl_companion_find(job->self_path, "paceline-sync", &companion, NULL) != PL_OK) {
        pl_strv_printf(&plan->warnings,
                       "sagemaker_s3_output is set, and this image has no paceline-sync: intermediate output stays in "
                       "%s",
                       job->paths.output_intermediate);
        return PL_OK;
    }
    pl_strv_add(&plan->sync, companion, "--finish");
    pl_strv_printf(&plan->sync, "%.10g", (double)settings->intermediate_ns / (double)PL_NS_PER_S);
    if (settings->sse) {
        pl_strv_add(&plan->sync, "--sse", settings->sse);
    }
    if (settings->sse_kms_key_id) {
        pl_strv_add(&plan->sync, "--sse-kms-key-id", settings->sse_kms_key_id);
    }
    if (settings->bucket_key_enabled) {
        pl_strv_add(&plan->sync, "--bucket-key-enabled");
    }
    pl_strv_add(&plan->sync, job->paths.output_intermediate);
    pl_strv_printf(&plan->sync, "%s%s%s%soutput/intermediate", uri, uri[strlen(uri) - 1] == '/' ? "" : "/", name,
                   *name != '\0' ? "/" : "");
    return PL_OK;
}

/* Whether ranks share this host. mpirun's own options may say otherwise, and each rank looks again. */
static bool has_ranks(const struct pl_job *job, const struct pl_launch_plan *plan)
{
    const int64_t here =
        job->launches & PL_JOB_NATIVE_SERVER ? job->settings.ps_workers_per_host : job->processes_per_host;

    return plan->ranks != PL_LAUNCH_PLAN_RANKS_NONE && job->settings.divide_pipes && !job->is_check &&
           (here > 1 || (size_t)plan->processes > plan->hosts.count);
}

/* Plan a `paceline-split CHANNEL` for each channel in Pipe Mode: the ranks of a host cannot read one FIFO. */
static enum pl_status plan_splits(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_FREE char *companion = NULL;
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
    struct pl_sidecar **end = &plan->side;

    PL_PYTHON_JSON_EACH(channel, has_ranks(job, plan) ? job->input_data : NULL) {
        const struct pl_python_json *mode = pl_python_json_member(channel, "TrainingInputMode");
        const char *name = pl_python_json_name(channel);
        struct pl_sidecar *side;

        if (!mode || pl_python_json_kind(mode) != PL_PYTHON_JSON_STRING ||
            strcmp(pl_python_json_text(mode), "Pipe") != 0 || strpbrk(name, ",/")) {
            continue;
        }
        if (!companion) {
            PL_TRY(pl_companion_find(job->self_path, "paceline-split", &companion, reterr));
        }
        side = pl_pool_new(&plan->pool, 1, sizeof(*side));
        PL_TRY(pl_pool_check(&plan->pool, reterr));
        *side = (struct pl_sidecar){
            .name = pl_pool_string(&plan->pool, name), .is_split = true, .argv = {.pool = &plan->pool}};
        pl_strv_add(&side->argv, companion, name);
        pl_text_printf(&names, "%s%s", names.length > 0 ? "," : "", name);
        while (*end) {
            end = &(*end)->next;
        }
        *end = side;
    }
    PL_TRY(pl_text_check(&names, reterr));
    if (names.length > 0) {
        pl_launcher_set(plan, "PACELINE_FIFOS", names.data);
    }
    return PL_OK;
}

/* A group that does not exist leaves the host outside every distribution: with a misspelt name each host would train by
 * itself and succeed. */
static void warn_of_unknown_groups(const struct pl_job *job, struct pl_launch_plan *plan)
{
    for (size_t i = 0; i < job->distribution_groups.count; i++) {
        const char *name = job->distribution_groups.items[i];
        bool found = strcmp(name, job->group_name) == 0;

        PL_PYTHON_JSON_EACH(group, job->groups) {
            found = found || strcmp(name, pl_hosts_group_name(group)) == 0;
        }
        if (!found) {
            pl_strv_printf(&plan->warnings,
                           "sagemaker_distribution_instance_groups names '%s', and the job has no such group: "
                           "expected names of instance_groups in resourceconfig.json",
                           name);
        }
    }
}

/* Whether torchrun itself decides what the loss of a rank or host means. */
static bool is_elastic(const struct pl_job *job, const struct pl_launch_plan *plan)
{
    return plan->launcher == &pl_launcher_torchrun
               ? plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE
               : plan->launcher == &pl_launcher_direct && pl_launcher_is_elastic(job->process, &plan->argv);
}

/* In a sweep each trial is started again by itself, and the sweep is not. */
static void set_restarts(const struct pl_job *job, struct pl_launch_plan *plan)
{
    const char *why = NULL;

    if (job->settings.max_restarts == 0 || job->is_check || plan->runs_jobs) {
        return;
    }
    if (is_elastic(job, plan)) {
        why = "torchrun's --max_restarts and --nnodes say what the loss of a rank or host means";
    } else if (plan->is_outside || plan->outside_hosts.count > 0) {
        why = "there are hosts outside the distribution";
    } else if (job->hosts.count > 1 && plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        why = "the hosts are not linked";
    } else {
        plan->restarts = (int)job->settings.max_restarts;
        return;
    }
    pl_strv_printf(&plan->warnings, "PACELINE_MAX_RESTARTS has no effect here: %s", why);
}

enum pl_status pl_launch_plan_fill(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    plan->cwd = pl_pool_string(&plan->pool, job->paths.code);
    PL_TRY(pl_variables_add(job, plan->additions, plan->environment, &plan->warnings, reterr));
    plan->needs_names = job->hosts.count > 1 &&
                        strcasecmp(pl_environment_get_or(job->process, "SM_STUDIO_LOCAL_MODE", ""), "true") != 0;
    pl_strv_add_all(&plan->warnings, &job->conflicts);
    warn_of_unknown_groups(job, plan);
    PL_TRY(pl_interface_set(job, plan->additions, reterr));
    if (plan->launcher->cause) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s", plan->launcher->cause);
    }
    /* This calls a launcher of `launchers`: without a distribution, make_plan() of launcher_direct.c. */
    PL_TRY(plan->launcher->plan(job, plan, reterr));
    PL_TRY(pl_needs_link(job, plan, reterr));
    if (job->settings.tf_chief && !plan->side && job->distribution_index >= 0) {
        /* A program that expects a chief would look for a cluster that is not described to it. */
        pl_strv_add(&plan->warnings,
                    "PACELINE_TF_CHIEF has no effect here: it is for sagemaker_parameter_server_enabled "
                    "on several hosts");
    }
    PL_TRY(plan_splits(job, plan, reterr));
    set_restarts(job, plan);
    PL_TRY(plan_sync(job, plan, reterr));
    pl_hyperparameters_check(job->framework, &plan->warnings);
    PL_TRY(pl_settings_check(job->process, job->setting_values, &plan->warnings, reterr));
    PL_TRY(pl_environment_add(plan->environment, plan->additions, reterr));
    PL_TRY(pl_pool_check(&plan->steps.pool, reterr));
    PL_TRY(pl_pool_check(&plan->probes.pool, reterr));
    return pl_pool_check(&plan->pool, reterr);
}

enum pl_status pl_launch_plan_new(const struct pl_job *job, struct pl_launch_plan **ret_plan, struct pl_error *reterr)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = NULL;

    PL_TRY(pl_launch_plan_begin(job, &plan, reterr));
    PL_TRY(pl_launch_plan_fill(job, plan, reterr));
    *ret_plan = PL_TAKE(plan);
    return PL_OK;
}

enum pl_status pl_launch_plan_begin(const struct pl_job *job, struct pl_launch_plan **ret_plan, struct pl_error *reterr)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = pl_memory_new(1, sizeof(*plan), reterr);

    PL_TRY(plan ? PL_OK : PL_MEMORY);
    plan->hosts.pool = plan->outside_hosts.pool = plan->argv.pool = &plan->pool;
    plan->sync.pool = plan->show.pool = plan->warnings.pool = &plan->pool;
    plan->launcher = choose(job);
    PL_TRY(pl_environment_new_empty(&plan->additions, reterr));
    PL_TRY(pl_environment_new_copy(job->process, &plan->environment, reterr));
    plan->cwd = pl_pool_string(&plan->pool, job->paths.base);
    if (plan->launcher->use_hosts && !job->is_partial) {
        plan->launcher->use_hosts(job, plan);
    } else if (job->distribution_index >= 0) {
        /* else it is outside the distribution, or its name differs from those in the configuration */
        pl_launcher_use_hosts(job, &job->distribution_hosts, job->distribution_index, plan);
    }
    PL_TRY(pl_pool_check(&plan->pool, reterr));
    *ret_plan = PL_TAKE(plan);
    return PL_OK;
}

void pl_launch_plan_steps_done(struct pl_launch_plan_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        pl_environment_free(steps->items[i].additions);
    }
    steps->count = 0;
    pl_pool_done(&steps->pool);
}

void pl_launch_plan_free(struct pl_launch_plan *plan)
{
    if (!plan) {
        return;
    }
    pl_launch_plan_steps_done(&plan->steps);
    pl_launch_plan_steps_done(&plan->probes);
    pl_environment_free(plan->additions);
    pl_environment_free(plan->environment);
    for (const struct pl_sidecar *side = plan->side; side; side = side->next) {
        pl_environment_free(side->environment);
    }
    pl_python_json_free(plan->shown);
    pl_pool_done(&plan->pool);
    free(plan);
}

enum pl_status pl_launch_plan_prepare(const struct pl_job *job, const struct pl_launch_plan *plan,
                                      struct pl_error *reterr)
{
    const char *const folders[] = {job->paths.code, job->paths.model, job->paths.output_data,
                                   intermediate_uri(job) ? job->paths.output_intermediate : NULL};
    struct stat info;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(folders); i++) {
        /* If the directory exists already, for example in a read-only mount, it must not be made. */
        if (folders[i] && stat(folders[i], &info) != 0) {
            PL_TRY(pl_file_make_dirs(folders[i], 0755, reterr));
        }
    }
    if (plan->chmod_path && chmod(plan->chmod_path, 0777) != 0) {
        return pl_error_errno(reterr, "make the program '%s' executable", plan->chmod_path);
    }
    return PL_OK;
}

void pl_launch_plan_drop_optional(struct pl_launch_plan *plan)
{
    pl_strv_remove(&plan->argv, plan->optional_from, plan->optional_count);
    plan->optional_count = 0;
}

const char *pl_launch_plan_role_text(enum pl_launch_plan_role role)
{
    switch (role) {
    case PL_LAUNCH_PLAN_SINGLE:
        return "single";
    case PL_LAUNCH_PLAN_MASTER:
        return "master";
    case PL_LAUNCH_PLAN_WORKER:
        return "worker";
    }
    return "?";
}
