/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the SM_* and other variables that the Python toolkit gives a training program. */
#include "entrypoint/job/variables.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/pyrepr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of one run of pl_variables_add(). */
struct builder {
    const struct pl_job *job;
    struct pl_environment *environment;
    struct pl_environment *inherited;
    struct pl_strv *warnings;
    struct pl_error *reterr;
};

static bool needs_bytes(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text == 0xC0 || (unsigned char)*text == 0xED) {
            return true;
        }
    }
    return false;
}

enum pl_status pl_variables_os_text(const char *inner, struct pl_text *text)
{
    while (*inner != '\0') {
        unsigned bytes;
        uint32_t code = pl_python_json_decode(inner, &bytes);

        if (code == 0) {
            return PL_INVALID;
        }
        if (bytes == 3 && code >= 0xDC80 && code <= 0xDCFF) {
            pl_text_append_char(text, (char)(code - 0xDC00));
        } else if (bytes == 3 && code >= 0xD800 && code <= 0xDFFF) {
            pl_text_append(text, "\xEF\xBF\xBD");
        } else {
            pl_text_append_n(text, inner, bytes);
        }
        inner += bytes;
    }
    return PL_OK;
}

/* Set one variable, unless Linux or its name makes that impossible. */
static enum pl_status set(struct builder *builder, const char *name, const char *value)
{
    PL_AUTO_TEXT struct pl_text name_bytes = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text value_bytes = PL_TEXT_NONE;

    if (needs_bytes(name) || needs_bytes(value)) {
        if (pl_variables_os_text(name, &name_bytes) != PL_OK || pl_variables_os_text(value, &value_bytes) != PL_OK) {
            return pl_strv_printf(builder->warnings, builder->reterr, "%s is not set: a variable cannot contain U+0000",
                                  name);
        }
        PL_TRY(pl_text_check(&name_bytes, builder->reterr));
        PL_TRY(pl_text_check(&value_bytes, builder->reterr));
        name = pl_text_string(&name_bytes);
        value = pl_text_string(&value_bytes);
    }
    if (strchr(name, '=')) {
        return pl_strv_printf(builder->warnings, builder->reterr, "%s is not set: a variable's name cannot contain '='",
                              name);
    }
    if (strlen(name) + strlen(value) + 2 > PL_VARIABLES_STRING_MAX_BYTES) {
        /* An existing variable of this name has another value, so remove it. */
        pl_environment_unset(builder->environment, name);
        if (builder->inherited) {
            pl_environment_unset(builder->inherited, name);
        }
        return pl_strv_printf(builder->warnings, builder->reterr,
                              "%s is not set: its %zu bytes are more than Linux passes in one variable (%d)", name,
                              strlen(value), PL_VARIABLES_STRING_MAX_BYTES);
    }
    return pl_environment_set(builder->environment, name, value, builder->reterr);
}

static enum pl_status set_json(struct builder *builder, const char *name, const struct pl_python_json *node)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (builder->job->drivers.source) {
        pl_pyrepr_append_dumps(node, &text);
    } else {
        pl_pyrepr_append_variable(node, &text);
    }
    PL_TRY(pl_text_check(&text, builder->reterr));
    return set(builder, name, pl_text_string(&text));
}

static enum pl_status set_int(struct builder *builder, const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    return set(builder, name, text);
}

static struct pl_python_json *json_group_names(const struct pl_job *job)
{
    struct pl_python_json *list = pl_python_json_new_array();
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    for (; group && list; group = pl_python_json_next(group)) {
        if (pl_python_json_append(list, pl_python_json_copy(pl_python_json_member(group, "instance_group_name")),
                                  NULL) != PL_OK) {
            pl_python_json_free(list);
            return NULL;
        }
    }
    return list;
}

static struct pl_python_json *json_group_hosts(const struct pl_job *job)
{
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    for (; group; group = pl_python_json_next(group)) {
        if (strcmp(pl_python_json_text(pl_python_json_member(group, "instance_group_name")), job->group_name) == 0) {
            return pl_python_json_copy(pl_python_json_member(group, "hosts"));
        }
    }
    return pl_python_json_new_array();
}

static struct pl_python_json *json_group_dict(const struct pl_job *job)
{
    struct pl_python_json *dict = pl_python_json_new_object();
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    for (; group && dict; group = pl_python_json_next(group)) {
        if (pl_python_json_set(dict, pl_python_json_text(pl_python_json_member(group, "instance_group_name")),
                               pl_python_json_copy(group), NULL) != PL_OK) {
            pl_python_json_free(dict);
            return NULL;
        }
    }
    return dict;
}

/* Returns the channels in file order, as version 3 of the SDK does. */
static struct pl_python_json *json_channels(const struct pl_job *job)
{
    struct pl_python_json *list = pl_python_json_new_array();

    for (size_t i = 0; i < job->channels_count && list; i++) {
        if (pl_python_json_append(list, pl_python_json_new_string(job->channels[i].name), NULL) != PL_OK) {
            pl_python_json_free(list);
            list = NULL;
        }
    }
    return list;
}

/* Returns the channels' names in sorted order, as the toolkit does. */
static struct pl_python_json *json_channel_names(const struct pl_job *job)
{
    const struct pl_python_json **sorted = pl_python_json_sorted(job->input_data);
    struct pl_python_json *list = pl_python_json_new_array();

    for (size_t i = 0; sorted && sorted[i] && list; i++) {
        if (pl_python_json_append(list, pl_python_json_new_string(pl_python_json_name(sorted[i])), NULL) != PL_OK) {
            pl_python_json_free(list);
            list = NULL;
        }
    }
    free(sorted);
    return list;
}

static struct pl_python_json *json_channel_dirs(const struct pl_job *job)
{
    struct pl_python_json *dict = pl_python_json_new_object();

    for (size_t i = 0; i < job->channels_count && dict; i++) {
        if (pl_python_json_set(dict, job->channels[i].name, pl_python_json_new_string(job->channels[i].path), NULL) !=
            PL_OK) {
            pl_python_json_free(dict);
            return NULL;
        }
    }
    return dict;
}

/* Returns a string node, or null for NULL. */
static struct pl_python_json *json_text(const char *text)
{
    return text ? pl_python_json_new_string(text) : pl_python_json_new_null();
}

static bool is_hetero(const struct pl_job *job)
{
    return job->groups && pl_python_json_count(job->groups) > 1;
}

/* Returns the program's name without ".py". The caller frees it. */
static char *module_name(const struct pl_job *job)
{
    const char *name = job->program ? job->program : "None";
    const size_t length = strlen(name) - (pl_text_ends_with(name, ".py") ? strlen(".py") : 0);

    return pl_memory_string_n(name, length, NULL);
}

static bool is_on_path(const struct pl_job *job, const char *name)
{
    PL_AUTO_FREE char *path = NULL;

    return pl_file_find_program(name, pl_environment_get(job->process, "PATH"), &path, NULL) == PL_OK;
}

/* Returns null, unless SM_HP_MP_PARAMETERS was set in the environment before. */
static struct pl_python_json *json_modelparallel(const struct pl_job *job)
{
    const char *value = pl_environment_get(job->process, "SM_HP_MP_PARAMETERS");

    return !value ? pl_python_json_new_null() : pl_python_json_new_bool(*value != '\0' && strcmp(value, "{}") != 0);
}

/* Set a variable from a tree; null is an empty text. */
static enum pl_status set_node(struct builder *builder, const char *name, const struct pl_python_json *node)
{
    return pl_python_json_kind(node) == PL_PYTHON_JSON_NULL ? set(builder, name, "") : set_json(builder, name, node);
}

/* A value that the toolkit gives a program: as a variable, as a member of SM_TRAINING_ENV, or as both. */
struct value {
    const char *variable, *member;
    struct pl_python_json *node;
};

/* Make `all` of the values that are members of it, then set the variables. The values but `all` are released in any
 * case. */
static enum pl_status add_values(struct builder *builder, const struct value *values, size_t count,
                                 struct pl_python_json *all)
{
    enum pl_status status = PL_OK;

    for (size_t i = 0; i < count; i++) {
        if (values[i].member && pl_python_json_set(all, values[i].member, values[i].node, builder->reterr) != PL_OK) {
            status = PL_MEMORY;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (values[i].variable && status == PL_OK) {
            status = values[i].node
                         ? set_node(builder, values[i].variable, values[i].node)
                         : pl_error_set(builder->reterr, PL_MEMORY, "out of memory making %s", values[i].variable);
        }
        if (!values[i].member && values[i].node != all) {
            pl_python_json_free(values[i].node);
        }
    }
    return status;
}

/* Add the variables of the toolkit's table, in its order. */
static enum pl_status add_fixed(struct builder *builder)
{
    const struct pl_job *job = builder->job;
    const bool is_master = strcmp(job->current_host, job->master_host) == 0;
    PL_AUTO_FREE char *module = module_name(job);
    PL_AUTO_PYTHON_JSON struct pl_python_json *all = pl_python_json_new_object();
    const struct value values[] = {
        {"SM_HOSTS", "hosts", pl_strv_json(&job->hosts)},
        {"SM_NETWORK_INTERFACE_NAME", "network_interface_name", json_text(job->network_interface)},
        {"SM_HPS", "hyperparameters", pl_python_json_copy(job->hyperparameters)},
        {"SM_USER_ENTRY_POINT", "user_entry_point", json_text(job->program)},
        {"SM_FRAMEWORK_PARAMS", "additional_framework_parameters", pl_python_json_copy(job->framework)},
        {"SM_RESOURCE_CONFIG", "resource_config", pl_python_json_copy(job->resource)},
        {"SM_INPUT_DATA_CONFIG", "input_data_config", pl_python_json_copy(job->input_data)},
        {"SM_OUTPUT_DATA_DIR", "output_data_dir", json_text(job->paths.output_data)},
        {"SM_CHANNELS", NULL, job->drivers.source ? json_channels(job) : json_channel_names(job)},
        {"SM_CURRENT_HOST", "current_host", json_text(job->current_host)},
        {"SM_CURRENT_INSTANCE_TYPE", "current_instance_type", json_text(job->instance_type)},
        {"SM_CURRENT_INSTANCE_GROUP", "current_instance_group", json_text(job->group_name)},
        {"SM_CURRENT_INSTANCE_GROUP_HOSTS", "current_instance_group_hosts", json_group_hosts(job)},
        {"SM_INSTANCE_GROUPS", "instance_groups", json_group_names(job)},
        {"SM_INSTANCE_GROUPS_DICT", "instance_groups_dict", json_group_dict(job)},
        {"SM_DISTRIBUTION_INSTANCE_GROUPS", "distribution_instance_groups", pl_strv_json(&job->distribution_groups)},
        {"SM_IS_HETERO", "is_hetero", pl_python_json_new_bool(is_hetero(job))},
        {"SM_MODULE_NAME", "module_name", module ? json_text(module) : NULL},
        {"SM_LOG_LEVEL", "log_level", pl_python_json_copy(job->log_level)},
        {"SM_FRAMEWORK_MODULE", "framework_module", json_text(job->framework_module)},
        {"SM_INPUT_DIR", "input_dir", json_text(job->paths.input)},
        {"SM_INPUT_CONFIG_DIR", "input_config_dir", json_text(job->paths.input_config)},
        {"SM_OUTPUT_DIR", "output_dir", json_text(job->paths.output)},
        {"SM_NUM_CPUS", "num_cpus", pl_python_json_new_int64(job->cpus)},
        {"SM_NUM_GPUS", "num_gpus", pl_python_json_new_int64(job->gpus)},
        {"SM_NUM_NEURONS", "num_neurons", pl_python_json_new_int64(job->neuron_cores)},
        {"SM_MODEL_DIR", "model_dir", json_text(job->paths.model)},
        {"SM_MODULE_DIR", "module_dir", json_text(job->module_dir)},
        {"SM_TRAINING_ENV", NULL, all},
        {"SM_USER_ARGS", NULL, pl_strv_json(&job->user_args)},
        {"SM_OUTPUT_INTERMEDIATE_DIR", "output_intermediate_dir", json_text(job->paths.output_intermediate)},
        {NULL, "channel_input_dirs", json_channel_dirs(job)},
        {NULL, "distribution_hosts", pl_strv_json(&job->distribution_hosts)},
        {NULL, "is_master", pl_python_json_new_bool(is_master)},
        {NULL, "is_modelparallel_enabled", json_modelparallel(job)},
        {NULL, "is_smddpmprun_installed", pl_python_json_new_bool(is_on_path(job, "smddpmprun"))},
        {NULL, "is_smddprun_installed", pl_python_json_new_bool(is_on_path(job, "smddprun"))},
        {NULL, "job_name", json_text(job->job_name)},
        {NULL, "master_hostname", json_text(job->master_host)},
        {job->topology ? "SM_TOPOLOGY" : NULL, "topology",
         job->topology ? pl_python_json_copy(job->topology) : pl_python_json_new_array()},
    };

    if (job->drivers.source) { /* members that only version 3 of the SDK has */
        const struct value more[] = {
            {NULL, "master_addr", json_text(job->master_host)},
            {NULL, "master_port", pl_python_json_new_int64(PL_JOB_MASTER_PORT)},
            {NULL, "input_data_dir", json_text(job->paths.input_data)},
        };

        add_values(builder, more, PL_ARRAY_ITEMS(more), all);
    }
    return add_values(builder, values, PL_ARRAY_ITEMS(values), all);
}

/* Append `prefix`, such as "SM_HP_", and `name` with its ASCII letters in upper case. */
static enum pl_status upper_name(struct builder *builder, const char *prefix, const char *name, struct pl_text *text)
{
    pl_text_append(text, prefix);
    for (; *name != '\0'; name++) {
        pl_text_append_char(text, *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name);
    }
    return pl_text_check(text, builder->reterr);
}

static enum pl_status add_named(struct builder *builder)
{
    const struct pl_job *job = builder->job;

    for (size_t i = 0; i < job->channels_count; i++) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

        PL_TRY(upper_name(builder, "SM_CHANNEL_", job->channels[i].name, &name));
        PL_TRY(set(builder, pl_text_string(&name), job->channels[i].path));
    }
    for (const struct pl_python_json *member = pl_python_json_first(job->hyperparameters); member;
         member = pl_python_json_next(member)) {
        PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

        PL_TRY(upper_name(builder, "SM_HP_", pl_python_json_name(member), &name));
        PL_TRY(set_json(builder, pl_text_string(&name), member));
    }
    return PL_OK;
}

/* Set PYTHONPATH, with the code directory first. The interpreter appends its own search path. */
static enum pl_status add_python_path(struct builder *builder)
{
    const char *before = pl_environment_get_or(builder->job->process, "PYTHONPATH", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_append(&path, builder->job->paths.code);
    if (before) {
        pl_text_printf(&path, ":%s", before);
    }
    PL_TRY(pl_text_check(&path, builder->reterr));
    return set(builder, "PYTHONPATH", pl_text_string(&path));
}

/* Python buffers its output to a pipe until it has 8 KiB: the log would be empty for hours, and the last lines of a
 * killed program would be lost. A variable that the user has set stays, even if it is empty. */
static enum pl_status add_python_unbuffered(struct builder *builder)
{
    static const char name[] = "PYTHONUNBUFFERED";

    return pl_environment_get(builder->job->process, name) ? PL_OK : set(builder, name, "1");
}

static enum pl_status add_settings(struct builder *builder)
{
    const struct pl_job *job = builder->job;

    for (size_t i = 0; i < job->setting_values.count; i++) {
        const char *equals = strchr(job->setting_values.items[i], '=');
        PL_AUTO_FREE char *name = pl_memory_string_n(job->setting_values.items[i],
                                                     (size_t)(equals - job->setting_values.items[i]), builder->reterr);

        if (!name) {
            return PL_MEMORY;
        }
        /* an empty variable counts as not set */
        if (!pl_environment_get_or(job->process, name, NULL)) {
            PL_TRY(set(builder, name, equals + 1));
        }
    }
    return PL_OK;
}

/* Add SM_HP_BATCH_SIZE to the toolkit's SM_HP_BATCH-SIZE, whose name no shell accepts. */
static enum pl_status add_underscored(struct builder *builder)
{
    for (const struct pl_python_json *member = pl_python_json_first(builder->job->hyperparameters); member;
         member = pl_python_json_next(member)) {
        PL_AUTO_FREE char *name = pl_memory_string(pl_python_json_name(member), builder->reterr);
        PL_AUTO_TEXT struct pl_text upper = PL_TEXT_NONE;

        if (!name) {
            return PL_MEMORY;
        }
        for (char *at = strchr(name, '-'); at; at = strchr(at, '-')) {
            *at = '_';
        }
        PL_TRY(upper_name(builder, "SM_HP_", name, &upper));
        PL_TRY(set_json(builder, pl_text_string(&upper), member));
    }
    return PL_OK;
}

/* The variables of version 3 of the SDK that the toolkit does not have. */
static enum pl_status add_drivers(struct builder *builder)
{
    const struct pl_job *job = builder->job;
    const struct pl_drivers *drivers = &job->drivers;
    const struct pl_python_json *script = pl_python_json_member(drivers->source, "entry_script");
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_printf(&path, "%s/failure", job->paths.output);
    PL_TRY(pl_text_check(&path, builder->reterr));
    PL_TRY(set(builder, "SM_INPUT_DATA_DIR", job->paths.input_data));
    PL_TRY(set(builder, "SM_OUTPUT_FAILURE", pl_text_string(&path)));
    PL_TRY(set(builder, "SM_MASTER_ADDR", job->master_host));
    PL_TRY(set_int(builder, "SM_MASTER_PORT", PL_JOB_MASTER_PORT));
    PL_TRY(set_int(builder, "SM_HOST_COUNT", (int)job->hosts.count));
    PL_TRY(set_int(builder, "SM_CURRENT_HOST_RANK", job->host_index));
    PL_TRY(set(builder, "SM_SOURCE_DIR", job->paths.code));
    PL_TRY(set(builder, "SM_ENTRY_SCRIPT",
               script && pl_python_json_kind(script) == PL_PYTHON_JSON_STRING ? pl_python_json_text(script) : ""));
    if (pl_python_json_count(drivers->distributed) > 0) {
        PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;

        pl_text_printf(&folder, "%s/distributed_drivers", drivers->directory);
        PL_TRY(pl_text_check(&folder, builder->reterr));
        PL_TRY(set(builder, "SM_DISTRIBUTED_DRIVER_DIR", pl_text_string(&folder)));
        PL_TRY(set_json(builder, "SM_DISTRIBUTED_CONFIG", drivers->distributed));
    }
    return add_underscored(builder);
}

/* Tell the runtime where the platform keeps the job's checkpoints, if this is not the default. */
static enum pl_status add_checkpoint_dir(struct builder *builder)
{
    const struct pl_job *job = builder->job;

    return !job->checkpoint_dir || job->settings.checkpoint_dir
               ? PL_OK
               : set(builder, "PACELINE_CHECKPOINT_DIR", job->checkpoint_dir);
}

/* The library in the ranks logs as much as the entry point. `paceline plan` does not print this variable: the toolkit
 * has SM_LOG_LEVEL alone. */
static enum pl_status add_log(struct builder *builder)
{
    const struct pl_job *job = builder->job;

    return !builder->inherited || job->settings.names_log_level || job->own_log_level == PL_LOG_INFO
               ? PL_OK
               : pl_environment_set(builder->inherited, "PACELINE_LOG", pl_log_level_text(job->own_log_level),
                                    builder->reterr);
}

enum pl_status pl_variables_add(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_environment *inherited, struct pl_strv *warnings, struct pl_error *reterr)
{
    struct builder builder = {
        .job = job, .environment = environment, .inherited = inherited, .warnings = warnings, .reterr = reterr};

    PL_TRY(add_fixed(&builder));
    PL_TRY(add_named(&builder));
    if (job->drivers.source) {
        PL_TRY(add_drivers(&builder));
    }
    PL_TRY(set(&builder, "SAGEMAKER_JOB_NAME", job->sagemaker_job_name ? job->sagemaker_job_name : ""));
    PL_TRY(set(&builder, "CURRENT_HOST", job->current_host));
    PL_TRY(set(&builder, "SAGEMAKER_REGION", job->region));
    PL_TRY(add_python_path(&builder));
    PL_TRY(add_python_unbuffered(&builder));
    PL_TRY(add_checkpoint_dir(&builder));
    PL_TRY(add_log(&builder));
    return add_settings(&builder);
}
