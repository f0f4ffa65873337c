/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes hyperparameters.json and sorts its names by who reads them: the user, the framework, the platform,
 * settings. */
#include "entrypoint/job/job.h"

#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/pyrepr.h"

#include <string.h>
#include <strings.h>

static const char sagemaker_prefix[] = "sagemaker_";
static const char paceline_prefix[] = "paceline_";

/* Reserved names that have no variable of their own. */
static const char *const consumed[] = {
    "sagemaker_program",        "sagemaker_submit_directory",    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",         "sagemaker_container_log_level", "sagemaker_job_name",
    "default_user_module_name", "_tuning_objective_metric",      "sagemaker_s3_output",
};

const struct pl_hyperparameters_launch pl_hyperparameters_launch_names[] = {
    {"sagemaker_mpi_enabled", PL_JOB_MPI},
    {"sagemaker_parameter_server_enabled", PL_JOB_PARAMETER_SERVER},
    {"sagemaker_multi_worker_mirrored_strategy_enabled", PL_JOB_MULTI_WORKER_MIRRORED},
    {"sagemaker_torch_distributed_enabled", PL_JOB_TORCHRUN},
    {"sagemaker_distributed_dataparallel_enabled", PL_JOB_SMDDP},
    {"sagemaker_pytorch_ddp_enabled", PL_JOB_SMDDP},
    {"sagemaker_pytorch_xla_multi_worker_enabled", PL_JOB_XLA},
    {.name = NULL},
};

/* Other names that SageMaker, its SDK and the toolkit know. Paceline reads the first of them. The others have no
 * effect, but are not mistakes. */
static const char *const framework[] = {
    "sagemaker_mpi_num_of_processes_per_host",
    "sagemaker_mpi_num_processes",
    "sagemaker_mpi_custom_mpi_options",
    "sagemaker_distribution_instance_groups",
    "sagemaker_distributed_dataparallel_custom_mpi_options",
    "sagemaker_toolkit_native_launcher_enabled",
    "sagemaker_instance_type",
    "sagemaker_network_interface_name",
    "sagemaker_recipe_local_path",
    "sagemaker_estimator",
    "sagemaker_estimator_module",
    "sagemaker_estimator_class_name",
};

enum { LONG_NEAR_EDITS = 3, LONG_BYTES = 24 };

static bool is_consumed(const char *name)
{
    size_t at = 0;

    while (at < PL_ARRAY_ITEMS(consumed) && strcmp(name, consumed[at]) != 0) {
        at++;
    }
    return at < PL_ARRAY_ITEMS(consumed);
}

/* Decode a string by json.loads(); if that fails, keep the string. Copy any other value. Returns NULL if memory is
 * out. */
static struct pl_python_json *decode(const struct pl_python_json *raw)
{
    struct pl_python_json *decoded = NULL;
    enum pl_status status;

    if (pl_python_json_kind(raw) != PL_PYTHON_JSON_STRING) {
        return pl_python_json_copy(raw);
    }
    status = pl_python_json_parse_inner(pl_python_json_text(raw), "hyperparameter", &decoded, NULL);
    if (status == PL_OK) {
        return decoded;
    }
    return status == PL_MEMORY ? NULL : pl_python_json_copy(raw);
}

/* Add a setting: paceline_timeout_s = 60 becomes PACELINE_TIMEOUT_S=60. */
static enum pl_status add_setting(const char *name, const struct pl_python_json *value, struct pl_job *job,
                                  struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char *variable = pl_pool_string(&job->pool, name);

    for (char *at = variable; *at != '\0'; at++) {
        bool keep = (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');

        *at = (char)(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : keep ? *at : '_');
    }
    if (pl_python_json_kind(value) != PL_PYTHON_JSON_NULL) {
        /* members keep their order: in the space of a sweep, this is the order of a grid */
        pl_pyrepr_append_dumps(value, &text);
    }
    PL_TRY(pl_text_check(&text, reterr));
    return pl_python_json_set(job->setting_values, variable, pl_python_json_new_string(pl_text_string(&text)), reterr);
}

static enum pl_status sort_one(const char *name, const struct pl_python_json *value, struct pl_job *job,
                               struct pl_error *reterr)
{
    if (strncasecmp(name, paceline_prefix, sizeof(paceline_prefix) - 1) == 0) {
        return add_setting(name, value, job, reterr);
    }
    if (strncmp(name, sagemaker_prefix, sizeof(sagemaker_prefix) - 1) != 0 && !is_consumed(name)) {
        return pl_python_json_set(job->hyperparameters, name, pl_python_json_copy(value), reterr);
    }
    for (const struct pl_hyperparameters_launch *one = pl_hyperparameters_launch_names; one->name; one++) {
        job->launches |= strcmp(name, one->name) == 0 && pl_hyperparameters_is_true(value) ? one->launch : 0;
    }
    PL_TRY(pl_python_json_set(job->platform, name, pl_python_json_copy(value), reterr));
    return is_consumed(name) ? PL_OK : pl_python_json_set(job->framework, name, pl_python_json_copy(value), reterr);
}

enum pl_status pl_hyperparameters_sort(const struct pl_python_json *raw, struct pl_job *job, struct pl_error *reterr)
{
    job->hyperparameters = pl_python_json_new_object();
    job->framework = pl_python_json_new_object();
    job->platform = pl_python_json_new_object();
    job->setting_values = pl_python_json_new_object();
    if (!job->hyperparameters || !job->framework || !job->platform || !job->setting_values) {
        return pl_error_set(reterr, PL_MEMORY, "out of memory reading hyperparameters");
    }
    PL_PYTHON_JSON_EACH(member, raw) {
        PL_AUTO_PYTHON_JSON struct pl_python_json *value = decode(member);

        if (!value) {
            return pl_error_set(reterr, PL_MEMORY, "out of memory reading hyperparameters");
        }
        PL_TRY(sort_one(pl_python_json_name(member), value, job, reterr));
    }
    return PL_OK;
}

static void compare(struct pl_text_near *near, const char *candidate)
{
    pl_text_near_compare(near, candidate, strlen(candidate) >= LONG_BYTES ? LONG_NEAR_EDITS : PL_TEXT_NEAR_EDITS);
}

void pl_hyperparameters_check(const struct pl_python_json *parameters, struct pl_strv *warnings)
{
    PL_PYTHON_JSON_EACH(member, parameters) {
        struct pl_text_near near = {.name = pl_python_json_name(member)};

        for (const struct pl_hyperparameters_launch *one = pl_hyperparameters_launch_names; one->name; one++) {
            compare(&near, one->name);
        }
        for (size_t i = 0; i < PL_ARRAY_ITEMS(framework); i++) {
            compare(&near, framework[i]);
        }
        for (size_t i = 0; i < PL_ARRAY_ITEMS(consumed); i++) {
            compare(&near, consumed[i]);
        }
        if (near.meant && near.edits > 0) {
            pl_strv_printf(warnings,
                           "the hyperparameter '%s' has no effect, because SageMaker does not know it; did you mean "
                           "'%s'?",
                           near.name, near.meant);
        }
    }
}

bool pl_hyperparameters_is_true(const struct pl_python_json *node)
{
    if (!node) {
        return false;
    }
    switch (pl_python_json_kind(node)) {
    case PL_PYTHON_JSON_NULL:
        return false;
    case PL_PYTHON_JSON_BOOL:
        return pl_python_json_bool(node);
    case PL_PYTHON_JSON_INT:
        return strspn(pl_python_json_text(node), "-0") != strlen(pl_python_json_text(node));
    case PL_PYTHON_JSON_FLOAT:
        return pl_python_json_double(node) != 0.0;
    case PL_PYTHON_JSON_STRING:
        return *pl_python_json_text(node) != '\0' && strcasecmp(pl_python_json_text(node), "false") != 0;
    case PL_PYTHON_JSON_ARRAY:
    case PL_PYTHON_JSON_OBJECT:
        return pl_python_json_count(node) > 0;
    }
    return false;
}
