/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the launcher and makes the plan of what this host runs. */
#include "entrypoint/launch/plan.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/hyperparameters.h"
#include "entrypoint/job/settings.h"
#include "entrypoint/job/variables.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/needs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Returns where intermediate output goes, or NULL if it is not asked for. */
static const char *intermediate_uri(const struct pl_job *job)
{
    const struct pl_python_json *uri = pl_python_json_member(job->platform, "sagemaker_s3_output");

    return uri && pl_python_json_kind(uri) == PL_PYTHON_JSON_STRING && *pl_python_json_text(uri) != '\0'
               ? pl_python_json_text(uri)
               : NULL;
}

/* Whether the directory exists already: probably the platform or local mode has mounted it and uploads it. */
static bool has_intermediate(const struct pl_job *job)
{
    struct stat info;

    return stat(job->paths.output_intermediate, &info) == 0;
}

/* Also false if the kernel cannot tell. */
static bool is_mount(const char *path)
{
    struct statx info;

    return statx(AT_FDCWD, path, 0, 0, &info) == 0 && (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Add the options by which paceline-sync encrypts its uploads as the job wants. */
static enum pl_status add_encryption(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const struct pl_job_settings *settings = &job->settings;

    if (settings->sse) {
        PL_TRY(pl_strv_add_list(&plan->sync, (const char *const[]){"--sse", settings->sse, NULL}, reterr));
    }
    if (settings->sse_kms_key_id) {
        PL_TRY(pl_strv_add_list(&plan->sync, (const char *const[]){"--sse-kms-key-id", settings->sse_kms_key_id, NULL},
                                reterr));
    }
    return settings->bucket_key_enabled ? pl_strv_add(&plan->sync, "--bucket-key-enabled", reterr) : PL_OK;
}

/* Check the address, unless the platform has made the directory: then the platform knows the address. */
static enum pl_status check_uri(const struct pl_job *job, const char *uri, struct pl_error *reterr)
{
    if (has_intermediate(job)) {
        return PL_OK;
    }
    if (strncmp(uri, "s3://", 5) != 0 && strncmp(uri, "file://", 7) != 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "hyperparameter sagemaker_s3_output: expected s3:// or file://, found '%s'", uri);
    }
    if (strcmp(uri, "s3://") == 0 || strncmp(uri, "s3:///", 6) == 0) {
        /* Without a bucket, the first directory after it would be taken for a bucket, which may belong to somebody
         * else. */
        return pl_error_set(reterr, PL_INVALID,
                            "hyperparameter sagemaker_s3_output: expected a bucket after s3://, found '%s'", uri);
    }
    return PL_OK;
}

/* Plan `paceline-sync DIRECTORY URI/JOB/output/intermediate`; SageMaker's toolkit gives the folders these names. */
static enum pl_status plan_sync(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const char *uri = intermediate_uri(job);
    const char *name = pl_environment_get_or(job->process, "TRAINING_JOB_NAME", "");
    PL_AUTO_FREE char *companion = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char seconds[32];

    if (!uri) {
        return PL_OK;
    }
    PL_TRY(check_uri(job, uri, reterr));
    if (strncmp(uri, "s3://", 5) != 0) {
        return PL_OK;
    }
    if (has_intermediate(job)) {
        if (is_mount(job->paths.output_intermediate)) {
            return PL_OK;
        }
        return pl_strv_printf(&plan->warnings, reterr,
                              "sagemaker_s3_output is set, and %s is there already: nothing is uploaded; remove it if "
                              "an earlier run left it",
                              job->paths.output_intermediate);
    }
    if (pl_companion_find(job->self_path, "paceline-sync", &companion, NULL) != PL_OK) {
        return pl_strv_printf(
            &plan->warnings, reterr,
            "sagemaker_s3_output is set, and this image has no paceline-sync: intermediate output stays in %s",
            job->paths.output_intermediate);
    }
    pl_text_printf(&text, "%s%s%s%soutput/intermediate", uri, uri[strlen(uri) - 1] == '/' ? "" : "/", name,
                   *name != '\0' ? "/" : "");
    PL_TRY(pl_text_check(&text, reterr));
    snprintf(seconds, sizeof(seconds), "%.10g", (double)job->settings.intermediate_ns / (double)PL_NS_PER_S);
    PL_TRY(pl_strv_add_list(&plan->sync, (const char *const[]){companion, "--finish", seconds, NULL}, reterr));
    PL_TRY(add_encryption(job, plan, reterr));
    return pl_strv_add_list(&plan->sync,
                            (const char *const[]){job->paths.output_intermediate, pl_text_string(&text), NULL}, reterr);
}

/* A group that does not exist leaves the host outside every distribution: with a misspelt name each host would train by
 * itself and succeed. */
static enum pl_status warn_of_unknown_groups(const struct pl_job *job, struct pl_launch_plan *plan,
                                             struct pl_error *reterr)
{
    for (size_t i = 0; i < job->distribution_groups.count; i++) {
        const char *name = job->distribution_groups.items[i];
        const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;
        bool found = strcmp(name, job->group_name) == 0;

        for (; group && !found; group = pl_python_json_next(group)) {
            found = strcmp(name, pl_python_json_text(pl_python_json_member(group, "instance_group_name"))) == 0;
        }
        if (!found) {
            PL_TRY(pl_strv_printf(&plan->warnings, reterr,
                                  "sagemaker_distribution_instance_groups names '%s', and the job has no such group: "
                                  "expected names of instance_groups in "
                                  "resourceconfig.json",
                                  name));
        }
    }
    return PL_OK;
}

/* A program that expects a chief would look for a cluster that is not described to it. */
static enum pl_status warn_of_unused_chief(const struct pl_job *job, struct pl_launch_plan *plan,
                                           struct pl_error *reterr)
{
    if (!job->settings.tf_chief || plan->side || job->distribution_index < 0) {
        return PL_OK;
    }
    return pl_strv_printf(&plan->warnings, reterr,
                          "PACELINE_TF_CHIEF has no effect here: it is for sagemaker_parameter_server_enabled on "
                          "several hosts");
}

static enum pl_status fill(const struct pl_job *job, const struct pl_launcher *launcher, struct pl_launch_plan *plan,
                           struct pl_error *reterr)
{
    plan->launcher = launcher;
    plan->cwd = pl_memory_string(job->paths.code, reterr);
    PL_TRY(plan->cwd ? PL_OK : PL_MEMORY);
    PL_TRY(pl_environment_new_empty(&plan->additions, reterr));
    PL_TRY(pl_environment_new_copy(job->process, &plan->environment, reterr));
    PL_TRY(pl_variables_add(job, plan->additions, plan->environment, &plan->warnings, reterr));
    plan->needs_names = job->hosts.count > 1 &&
                        strcasecmp(pl_environment_get_or(job->process, "SM_STUDIO_LOCAL_MODE", ""), "true") != 0;
    PL_TRY(pl_strv_add_all(&plan->warnings, &job->conflicts, reterr));
    PL_TRY(warn_of_unknown_groups(job, plan, reterr));
    PL_TRY(pl_interface_set(job, plan->additions, reterr));
    PL_TRY(launcher->plan(job, plan, reterr));
    PL_TRY(pl_needs_link(job, plan, reterr));
    PL_TRY(warn_of_unused_chief(job, plan, reterr));
    PL_TRY(plan_sync(job, plan, reterr));
    PL_TRY(pl_hyperparameters_check(job->framework, &plan->warnings, reterr));
    PL_TRY(pl_settings_check(job->process, &job->setting_values, &plan->warnings, reterr));
    return pl_environment_add(plan->environment, plan->additions, reterr);
}

enum pl_status pl_launch_plan_new(const struct pl_job *job, const struct pl_launcher *launcher,
                                  struct pl_launch_plan **ret_plan, struct pl_error *reterr)
{
    struct pl_launch_plan *plan = pl_memory_new(1, sizeof(*plan), reterr);
    enum pl_status status;

    if (!plan) {
        return PL_MEMORY;
    }
    status = fill(job, launcher, plan, reterr);
    if (status != PL_OK && plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        pl_launch_plan_free(plan);
        plan = NULL;
    } else if (status != PL_OK) {
        pl_strv_done(&plan->argv);
        pl_strv_done(&plan->show);
        pl_strv_done(&plan->sync);
    }
    *ret_plan = plan;
    return status;
}

static enum pl_status fill_notify(const struct pl_job *job, const struct pl_launcher *launcher,
                                  struct pl_launch_plan *plan, struct pl_error *reterr)
{
    plan->launcher = launcher;
    plan->cwd = pl_memory_string(job->paths.base, reterr);
    PL_TRY(plan->cwd ? PL_OK : PL_MEMORY);
    PL_TRY(pl_environment_new_empty(&plan->additions, reterr));
    PL_TRY(pl_environment_new_copy(job->process, &plan->environment, reterr));
    if (launcher->use_hosts && !job->is_partial) {
        return launcher->use_hosts(job, plan, reterr);
    }
    return job->distribution_index <
                   0 /* the host is outside the distribution, or its name differs from those in the configuration */
               ? PL_OK
               : pl_launcher_use_hosts(job, &job->distribution_hosts, job->distribution_index, plan, reterr);
}

enum pl_status pl_launch_plan_new_notify(const struct pl_job *job, const struct pl_launcher *launcher,
                                         struct pl_launch_plan **ret_plan, struct pl_error *reterr)
{
    PL_AUTO_LAUNCH_PLAN struct pl_launch_plan *plan = pl_memory_new(1, sizeof(*plan), reterr);

    PL_TRY(plan ? PL_OK : PL_MEMORY);
    PL_TRY(fill_notify(job, launcher, plan, reterr));
    *ret_plan = PL_TAKE(plan);
    return PL_OK;
}

static void free_sidecars(struct pl_sidecar *side)
{
    while (side) {
        struct pl_sidecar *next = side->next;

        pl_strv_done(&side->argv);
        pl_environment_free(side->environment);
        free(side);
        side = next;
    }
}

void pl_launch_plan_free(struct pl_launch_plan *plan)
{
    if (!plan) {
        return;
    }
    pl_strv_done(&plan->hosts);
    pl_strv_done(&plan->outside_hosts);
    free(plan->slots);
    pl_strv_done(&plan->argv);
    pl_strv_done(&plan->warnings);
    pl_strv_done(&plan->sync);
    pl_steps_done(&plan->steps);
    pl_steps_done(&plan->probes);
    pl_environment_free(plan->additions);
    pl_environment_free(plan->environment);
    free_sidecars(plan->side);
    pl_strv_done(&plan->show);
    pl_python_json_free(plan->shown);
    free(plan->cwd);
    free(plan->chmod_path);
    free(plan);
}

void pl_launch_plan_free_at(struct pl_launch_plan **plan_at)
{
    pl_launch_plan_free(*plan_at);
    *plan_at = NULL;
}

static enum pl_status make_intermediate(const struct pl_job *job, struct pl_error *reterr)
{
    const char *uri = intermediate_uri(job);

    return !uri || has_intermediate(job) ? PL_OK : pl_file_make_dirs(job->paths.output_intermediate, 0755, reterr);
}

enum pl_status pl_launch_plan_prepare(const struct pl_job *job, const struct pl_launch_plan *plan,
                                      struct pl_error *reterr)
{
    const char *const always[] = {job->paths.code, job->paths.model, job->paths.output_data};
    struct stat info;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(always); i++) {
        /* If the directory exists already, for example in a read-only mount, it must not be made. */
        if (stat(always[i], &info) != 0) {
            PL_TRY(pl_file_make_dirs(always[i], 0755, reterr));
        }
    }
    PL_TRY(make_intermediate(job, reterr));
    if (plan->chmod_path && chmod(plan->chmod_path, 0777) != 0) {
        return pl_error_errno(reterr, "making the program '%s' executable", plan->chmod_path);
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
