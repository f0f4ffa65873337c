/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the SM_* and other variables that the Python toolkit gives a training program. */
#include "entrypoint/job/job.h"

#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/job/pyrepr.h"

#include <string.h>

/* The state of one run of pl_variables_add(). */
struct builder {
    const struct pl_job *job;
    struct pl_environment *environment;
    struct pl_environment *inherited;
    struct pl_strv *warnings;
    struct pl_pool *pool; /* owns the texts, and knows whether memory is out */
};

/* U+0000 and surrogates begin with one of these. */
#define NOT_BYTES "\xC0\xED"

enum pl_status pl_variables_os_text(const char *inner, struct pl_text *text)
{
    while (*inner != '\0') {
        unsigned bytes = (unsigned)strcspn(inner, NOT_BYTES);
        uint32_t code;

        pl_text_append_n(text, inner, bytes);
        inner += bytes;
        code = pl_python_json_decode(inner, &bytes);
        if (*inner == '\0') {
            return PL_OK;
        }
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

/* Make `*text_at` the bytes that a program gets; false for U+0000. */
static bool take_bytes(struct builder *builder, const char **text_at)
{
    PL_AUTO_TEXT struct pl_text bytes = PL_TEXT_NONE;

    if (pl_variables_os_text(*text_at, &bytes) != PL_OK) {
        return false;
    }
    *text_at = pl_pool_text(builder->pool, &bytes);
    return true;
}

/* Set one variable, unless Linux or its name makes that impossible. */
static void set(struct builder *builder, const char *name, const char *value)
{
    const char *const inner_name = name;

    if ((strpbrk(name, NOT_BYTES) && !take_bytes(builder, &name)) ||
        (strpbrk(value, NOT_BYTES) && !take_bytes(builder, &value))) {
        pl_strv_printf(builder->warnings, "%s is not set: a variable cannot contain U+0000", inner_name);
    } else if (strchr(name, '=')) {
        pl_strv_printf(builder->warnings, "%s is not set: a variable's name cannot contain '='", name);
    } else if (strlen(name) + strlen(value) + 2 > PL_VARIABLES_STRING_MAX_BYTES) {
        /* An existing variable of this name has another value, so remove it. */
        pl_environment_unset(builder->environment, name);
        if (builder->inherited) {
            pl_environment_unset(builder->inherited, name);
        }
        pl_strv_printf(builder->warnings,
                       "%s is not set: its %zu bytes are more than Linux passes in one variable (%d)", name,
                       strlen(value), PL_VARIABLES_STRING_MAX_BYTES);
    } else if (pl_environment_set(builder->environment, name, value, NULL) != PL_OK) {
        builder->pool->failed = true;
    }
}

/* Set a variable to a node: a string as it is; all else as JSON, either sorted and compact with null as empty, or as
 * version 3 of the SDK has it. */
static void set_json(struct builder *builder, const char *name, const struct pl_python_json *node)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (builder->job->drivers.source || pl_python_json_kind(node) == PL_PYTHON_JSON_STRING) {
        pl_pyrepr_append_dumps(node, &text);
    } else if (pl_python_json_kind(node) != PL_PYTHON_JSON_NULL) {
        pl_python_json_print(node, PL_PYTHON_JSON_COMPACT | PL_PYTHON_JSON_SORTED, &text);
    }
    set(builder, name, pl_pool_text(builder->pool, &text));
}

/* Add a value to a list, or to an object under `name`. */
static void put(struct builder *builder, struct pl_python_json *to, const char *name, struct pl_python_json *value)
{
    const enum pl_status status =
        name ? pl_python_json_set(to, name, value, NULL) : pl_python_json_append(to, value, NULL);

    builder->pool->failed |= status != PL_OK;
}

/* The instance groups, as the variables have them. */
struct groups {
    struct pl_python_json *names, *by_name, *own_hosts;
};

static struct groups make_groups(struct builder *builder)
{
    struct groups groups = {.names = pl_python_json_new_array(), .by_name = pl_python_json_new_object()};
    const struct pl_python_json *own = NULL;

    PL_PYTHON_JSON_EACH(group, builder->job->groups) {
        const char *name = pl_hosts_group_name(group);

        own = !own && strcmp(name, builder->job->group_name) == 0 ? pl_python_json_member(group, "hosts") : own;
        put(builder, groups.names, NULL, pl_python_json_new_string(name));
        put(builder, groups.by_name, name, pl_python_json_copy(group));
    }
    groups.own_hosts = own ? pl_python_json_copy(own) : pl_python_json_new_array();
    return groups;
}

/* Returns the channels' names: in file order, as version 3 of the SDK has them, or sorted, as the toolkit has them. */
static struct pl_python_json *json_channels(struct builder *builder)
{
    const struct pl_job *job = builder->job;
    PL_AUTO_FREE const struct pl_python_json **sorted = pl_python_json_sorted(job->input_data);
    struct pl_python_json *list = pl_python_json_new_array();

    for (size_t i = 0; sorted && sorted[i]; i++) {
        put(builder, list, NULL,
            pl_python_json_new_string(job->drivers.source ? job->channels[i].name : pl_python_json_name(sorted[i])));
    }
    builder->pool->failed |= !sorted;
    return list;
}

static struct pl_python_json *json_channel_dirs(struct builder *builder)
{
    struct pl_python_json *dict = pl_python_json_new_object();

    for (size_t i = 0; i < builder->job->channels_count; i++) {
        put(builder, dict, builder->job->channels[i].name, pl_python_json_new_string(builder->job->channels[i].path));
    }
    return dict;
}

/* Returns the program's name without ".py". */
static struct pl_python_json *json_module(struct builder *builder)
{
    const char *name = builder->job->program ? builder->job->program : "None";
    const size_t length = strlen(name) - (pl_text_ends_with(name, ".py") ? strlen(".py") : 0);

    return pl_python_json_new_string(pl_pool_string_n(builder->pool, name, length));
}

/* Returns null, unless SM_HP_MP_PARAMETERS was set in the environment before. */
static struct pl_python_json *json_modelparallel(const struct pl_job *job)
{
    const char *value = pl_environment_get(job->process, "SM_HP_MP_PARAMETERS");

    return !value ? pl_python_json_new_null() : pl_python_json_new_bool(*value != '\0' && strcmp(value, "{}") != 0);
}

/* A value that the toolkit gives a program: as a variable, as a member of SM_TRAINING_ENV, or as both. */
struct value {
    const char *variable, *member;
    struct pl_python_json *node;
};

/* Make `all` from the values that are its members, then set the variables; null becomes an empty text. Always releases
 * the values, but not `all`. */
static void add_values(struct builder *builder, const struct value *values, size_t count, struct pl_python_json *all)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i].member) {
            builder->pool->failed |= pl_python_json_set(all, values[i].member, values[i].node, NULL) != PL_OK;
        }
    }
    for (size_t i = 0; i < count; i++) {
        builder->pool->failed |= !values[i].node;
        if (values[i].variable && !builder->pool->failed) {
            pl_python_json_kind(values[i].node) == PL_PYTHON_JSON_NULL
                ? set(builder, values[i].variable, "")
                : set_json(builder, values[i].variable, values[i].node);
        }
        if (!values[i].member && values[i].node != all) {
            pl_python_json_free(values[i].node);
        }
    }
}

/* Add the variables of the toolkit's table, in its order. */
static void add_fixed(struct builder *builder)
{
    const struct pl_job *job = builder->job;
    const bool is_master = strcmp(job->current_host, job->master_host) == 0;
    const struct groups groups = make_groups(builder);
    PL_AUTO_PYTHON_JSON struct pl_python_json *all = pl_python_json_new_object();
    const struct value values[] = {
        {"SM_HOSTS", "hosts", pl_strv_json(&job->hosts)},
        {"SM_NETWORK_INTERFACE_NAME", "network_interface_name", pl_python_json_new_string(job->network_interface)},
        {"SM_HPS", "hyperparameters", pl_python_json_copy(job->hyperparameters)},
        {"SM_USER_ENTRY_POINT", "user_entry_point", pl_python_json_new_string(job->program)},
        {"SM_FRAMEWORK_PARAMS", "additional_framework_parameters", pl_python_json_copy(job->framework)},
        {"SM_RESOURCE_CONFIG", "resource_config", pl_python_json_copy(job->resource)},
        {"SM_INPUT_DATA_CONFIG", "input_data_config", pl_python_json_copy(job->input_data)},
        {"SM_OUTPUT_DATA_DIR", "output_data_dir", pl_python_json_new_string(job->paths.output_data)},
        {"SM_CHANNELS", NULL, json_channels(builder)},
        {"SM_CURRENT_HOST", "current_host", pl_python_json_new_string(job->current_host)},
        {"SM_CURRENT_INSTANCE_TYPE", "current_instance_type", pl_python_json_new_string(job->instance_type)},
        {"SM_CURRENT_INSTANCE_GROUP", "current_instance_group", pl_python_json_new_string(job->group_name)},
        {"SM_CURRENT_INSTANCE_GROUP_HOSTS", "current_instance_group_hosts", groups.own_hosts},
        {"SM_INSTANCE_GROUPS", "instance_groups", groups.names},
        {"SM_INSTANCE_GROUPS_DICT", "instance_groups_dict", groups.by_name},
        {"SM_DISTRIBUTION_INSTANCE_GROUPS", "distribution_instance_groups", pl_strv_json(&job->distribution_groups)},
        {"SM_IS_HETERO", "is_hetero", pl_python_json_new_bool(pl_python_json_count(job->groups) > 1)},
        {"SM_MODULE_NAME", "module_name", json_module(builder)},
        {"SM_LOG_LEVEL", "log_level", pl_python_json_copy(job->log_level)},
        {"SM_FRAMEWORK_MODULE", "framework_module", pl_python_json_new_string(job->framework_module)},
        {"SM_INPUT_DIR", "input_dir", pl_python_json_new_string(job->paths.input)},
        {"SM_INPUT_CONFIG_DIR", "input_config_dir", pl_python_json_new_string(job->paths.input_config)},
        {"SM_OUTPUT_DIR", "output_dir", pl_python_json_new_string(job->paths.output)},
        {"SM_NUM_CPUS", "num_cpus", pl_python_json_new_int64(job->cpus)},
        {"SM_NUM_GPUS", "num_gpus", pl_python_json_new_int64(job->gpus)},
        {"SM_NUM_NEURONS", "num_neurons", pl_python_json_new_int64(job->neuron_cores)},
        {"SM_MODEL_DIR", "model_dir", pl_python_json_new_string(job->paths.model)},
        {"SM_MODULE_DIR", "module_dir", pl_python_json_new_string(job->module_dir)},
        {"SM_TRAINING_ENV", NULL, all},
        {"SM_USER_ARGS", NULL, pl_strv_json(&job->user_args)},
        {"SM_OUTPUT_INTERMEDIATE_DIR", "output_intermediate_dir",
         pl_python_json_new_string(job->paths.output_intermediate)},
        {NULL, "channel_input_dirs", json_channel_dirs(builder)},
        {NULL, "distribution_hosts", pl_strv_json(&job->distribution_hosts)},
        {NULL, "is_master", pl_python_json_new_bool(is_master)},
        {NULL, "is_modelparallel_enabled", json_modelparallel(job)},
        {NULL, "is_smddpmprun_installed", pl_python_json_new_bool(pl_job_has_program(job, "smddpmprun"))},
        {NULL, "is_smddprun_installed", pl_python_json_new_bool(pl_job_has_program(job, "smddprun"))},
        {NULL, "job_name", pl_python_json_new_string(job->job_name)},
        {NULL, "master_hostname", pl_python_json_new_string(job->master_host)},
        {job->topology ? "SM_TOPOLOGY" : NULL, "topology",
         job->topology ? pl_python_json_copy(job->topology) : pl_python_json_new_array()},
    };

    if (job->drivers.source) { /* members that only version 3 of the SDK has */
        const struct value more[] = {
            {NULL, "master_addr", pl_python_json_new_string(job->master_host)},
            {NULL, "master_port", pl_python_json_new_int64(PL_JOB_MASTER_PORT)},
            {NULL, "input_data_dir", pl_python_json_new_string(job->paths.input_data)},
        };

        add_values(builder, more, PL_ARRAY_ITEMS(more), all);
    }
    add_values(builder, values, PL_ARRAY_ITEMS(values), all);
}

/* Set the variable whose name is `prefix`, such as "SM_HP_", and `name` with its ASCII letters in upper case. One of
 * `text` and `node` is NULL. */
static void set_upper(struct builder *builder, const char *prefix, const char *name, const char *text,
                      const struct pl_python_json *node)
{
    char *upper = pl_pool_printf(builder->pool, "%s%s", prefix, name);

    for (char *at = upper; *at != '\0'; at++) {
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    }
    text ? set(builder, upper, text) : set_json(builder, upper, node);
}

static void add_named(struct builder *builder)
{
    const struct pl_job *job = builder->job;

    for (size_t i = 0; i < job->channels_count; i++) {
        set_upper(builder, "SM_CHANNEL_", job->channels[i].name, job->channels[i].path, NULL);
    }
    PL_PYTHON_JSON_EACH(member, job->hyperparameters) {
        set_upper(builder, "SM_HP_", pl_python_json_name(member), NULL, member);
    }
}

/* Set PYTHONPATH, with the code directory first. The interpreter appends its own search path. */
static void add_python_path(struct builder *builder)
{
    const char *before = pl_environment_get_or(builder->job->process, "PYTHONPATH", NULL);

    set(builder, "PYTHONPATH",
        pl_pool_printf(builder->pool, "%s%s%s", builder->job->paths.code, before ? ":" : "", before ? before : ""));
}

static void add_settings(struct builder *builder)
{
    PL_PYTHON_JSON_EACH(node, builder->job->setting_values) {
        /* an empty variable counts as not set */
        if (!pl_environment_get_or(builder->job->process, pl_python_json_name(node), NULL)) {
            set(builder, pl_python_json_name(node), pl_python_json_text(node));
        }
    }
}

/* Add SM_HP_BATCH_SIZE to the toolkit's SM_HP_BATCH-SIZE, whose name no shell accepts. */
static void add_underscored(struct builder *builder)
{
    PL_PYTHON_JSON_EACH(member, builder->job->hyperparameters) {
        char *name = pl_pool_string(builder->pool, pl_python_json_name(member));

        for (char *at = name; (at = strchr(at, '-'));) {
            *at = '_';
        }
        set_upper(builder, "SM_HP_", name, NULL, member);
    }
}

/* The variables of version 3 of the SDK that the toolkit does not have. */
static void add_drivers(struct builder *builder)
{
    const struct pl_job *job = builder->job;
    const struct pl_drivers *drivers = &job->drivers;
    const struct pl_python_json *script = pl_python_json_member(drivers->source, "entry_script");

    set(builder, "SM_INPUT_DATA_DIR", job->paths.input_data);
    set(builder, "SM_OUTPUT_FAILURE", pl_pool_printf(builder->pool, "%s/failure", job->paths.output));
    set(builder, "SM_MASTER_ADDR", job->master_host);
    set(builder, "SM_MASTER_PORT", pl_pool_printf(builder->pool, "%d", PL_JOB_MASTER_PORT));
    set(builder, "SM_HOST_COUNT", pl_pool_printf(builder->pool, "%zu", job->hosts.count));
    set(builder, "SM_CURRENT_HOST_RANK", pl_pool_printf(builder->pool, "%d", job->host_index));
    set(builder, "SM_SOURCE_DIR", job->paths.code);
    set(builder, "SM_ENTRY_SCRIPT",
        script && pl_python_json_kind(script) == PL_PYTHON_JSON_STRING ? pl_python_json_text(script) : "");
    if (pl_python_json_count(drivers->distributed) > 0) {
        set(builder, "SM_DISTRIBUTED_DRIVER_DIR",
            pl_pool_printf(builder->pool, "%s/distributed_drivers", drivers->directory));
        set_json(builder, "SM_DISTRIBUTED_CONFIG", drivers->distributed);
    }
    add_underscored(builder);
}

enum pl_status pl_variables_add(const struct pl_job *job, struct pl_environment *environment,
                                struct pl_environment *inherited, struct pl_strv *warnings, struct pl_error *reterr)
{
    PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};
    struct builder builder = {
        .job = job, .environment = environment, .inherited = inherited, .warnings = warnings, .pool = &pool};

    add_fixed(&builder);
    add_named(&builder);
    if (job->drivers.source) {
        add_drivers(&builder);
    }
    set(&builder, "SAGEMAKER_JOB_NAME", job->sagemaker_job_name ? job->sagemaker_job_name : "");
    set(&builder, "CURRENT_HOST", job->current_host);
    set(&builder, "SAGEMAKER_REGION", job->region);
    add_python_path(&builder);
    if (!pl_environment_get(job->process, "PYTHONUNBUFFERED")) {
        /* Python buffers its output to a pipe until it has 8 KiB: the log would be empty for hours, and the last lines
         * of a killed program would be lost. A variable that the user has set stays, even if it is empty. */
        set(&builder, "PYTHONUNBUFFERED", "1");
    }
    if (!job->settings.checkpoint_dir &&
        (strcmp(job->paths.base, "/opt/ml") != 0 || pl_python_json_member(job->checkpoint_config, "LocalPath"))) {
        /* tells the program where the job's checkpoints are, if this may not be the default */
        set(&builder, "PACELINE_CHECKPOINT_DIR", job->checkpoint_dir);
    }
    add_settings(&builder);
    if (inherited && !job->settings.names_log_level && job->own_log_level != PL_LOG_INFO) {
        /* The library in the ranks logs as much as the entry point. `paceline plan` does not print this variable: the
         * toolkit has SM_LOG_LEVEL alone. */
        PL_TRY(pl_environment_set(inherited, "PACELINE_LOG", pl_log_level_text(job->own_log_level), reterr));
    }
    return pool.failed ? pl_error_set(reterr, PL_MEMORY, "out of memory making the program's variables")
                       : pl_strv_check(warnings, reterr);
}
