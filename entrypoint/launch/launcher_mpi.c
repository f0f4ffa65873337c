/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun over the distribution hosts: the toolkit's options in the toolkit's order, then each rank through `paceline
 * rank`. Paceline's own parameter servers are ranks too: one per host, which starts the program as its workers.
 */
#include "base/environment.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/mpi_hosts.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/launch/steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool matches(const struct pl_job *job)
{
    return job->switches.mpi && pl_launcher_includes(job);
}

/* The longest host name that Open MPI 4 survives: with one more character it writes past the end of a buffer and
 * aborts. */
enum { OPENMPI4_NAME_MAX = 56 };

/* Open MPI 4 packs the names of all hosts into a pattern, which allows only these characters. Its component `naive`
 * keeps the list unpacked: a user who chooses a component by `--mca regx` or OMPI_MCA_regx is trusted to know this. */
static enum pl_status check_names(const struct pl_job *job, const struct pl_strv *custom, int major,
                                  struct pl_error *reterr)
{
    static const char taken[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const bool chosen = pl_strv_find(custom, "regx") >= 0 || pl_environment_get(job->process, "OMPI_MCA_regx");

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        const char *host = job->distribution_hosts.items[i];

        if (strpbrk(host, ",: \t\r\n")) {
            return pl_error_set(reterr, PL_INVALID,
                                "resourceconfig.json: the host name '%.200s' cannot be in mpirun's host list: expected "
                                "no ',', ':' or blank",
                                host);
        }
        if (major == 4 && strlen(host) > OPENMPI4_NAME_MAX) {
            return pl_error_set(reterr, PL_INVALID,
                                "resourceconfig.json: the host name '%.200s' is too long for Open MPI 4: expected at "
                                "most %d characters, found %zu; rename the host",
                                host, OPENMPI4_NAME_MAX, strlen(host));
        }
        if (major == 4 && !chosen && host[strspn(host, taken)] != '\0') {
            return pl_error_set(reterr, PL_INVALID,
                                "resourceconfig.json: Open MPI 4 does not take the host name '%.200s': expected "
                                "letters, digits, dots and hyphens, found '%c'; rename the host, or for '_' put --mca "
                                "regx naive into sagemaker_mpi_custom_mpi_options",
                                host, host[strspn(host, taken)]);
        }
    }
    return PL_OK;
}

static enum pl_status add_export(struct pl_strv *argv, const char *text, struct pl_error *reterr)
{
    return pl_strv_add_list(argv, (const char *const[]){"-x", text, NULL}, reterr);
}

static enum pl_status add_nccl(const char *interface, const char *level, struct pl_strv *argv, struct pl_error *reterr)
{
    PL_TRY(add_export(argv, "NCCL_MIN_NRINGS=4", reterr));
    PL_TRY(pl_strv_add(argv, "-x", reterr));
    PL_TRY(pl_strv_printf(argv, reterr, "NCCL_SOCKET_IFNAME=%s", interface));
    PL_TRY(pl_strv_add(argv, "-x", reterr));
    PL_TRY(pl_strv_printf(argv, reterr, "NCCL_DEBUG=%s", level));
    PL_TRY(add_export(argv, "LD_LIBRARY_PATH", reterr));
    return add_export(argv, "PATH", reterr);
}

/* Preload the library that makes gethostname() return the job's name for the host; libraries that were preloaded before
 * stay. mpirun and its daemons load it too: an mpirun whose own name is in its host list needs no ssh to itself. */
static enum pl_status set_host_name(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const char *before = pl_environment_get_or(job->process, "LD_PRELOAD", NULL);
    PL_AUTO_FREE char *library = NULL;
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;

    PL_TRY(pl_companion_find(job->self_path, "libpaceline-hostname.so", &library, reterr));
    pl_text_append(&list, library);
    if (before) {
        pl_text_printf(&list, ":%s", before);
    }
    PL_TRY(pl_text_check(&list, reterr));
    PL_TRY(pl_launcher_set(plan, "PACELINE_HOST_NAME", job->hosts.items[job->host_index], reterr));
    return pl_launcher_set(plan, "LD_PRELOAD", pl_text_string(&list), reterr);
}

/* Open MPI cuts the domain off a host's name. It would then start a daemon on a host that the job does not have, or
 * take two hosts for one. Versions 4 and 5 read variables of different names. A value that the container has set
 * stays. */
static enum pl_status keep_domain_names(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char *const names[] = {"OMPI_MCA_orte_keep_fqdn_hostnames", "PRTE_MCA_prte_keep_fqdn_hostnames"};
    bool has_domain = false;

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        has_domain = has_domain || strchr(job->distribution_hosts.items[i], '.');
    }
    for (size_t i = 0; has_domain && i < PL_ARRAY_ITEMS(names); i++) {
        if (!pl_environment_get(job->process, names[i])) {
            PL_TRY(pl_launcher_set(plan, names[i], "1", reterr));
        }
    }
    return PL_OK;
}

/* Set what `paceline rank` cannot get from Open MPI: the host of rank 0, and the number of this host, for Lightning. */
static enum pl_status set_torch_hosts(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", job->distribution_index);
    PL_TRY(pl_launcher_set(plan, PL_LAUNCHER_MASTER_VARIABLE, job->master_host, reterr));
    return pl_environment_get(job->process, "NODE_RANK") ? PL_OK : pl_launcher_set(plan, "NODE_RANK", number, reterr);
}

/* Whether words[at] is the value of an option -x and begins with `prefix`. */
static bool is_export_of(const struct pl_strv *words, size_t at, const char *prefix)
{
    return at > 0 && strcmp(words->items[at - 1], "-x") == 0 && strncmp(words->items[at], prefix, strlen(prefix)) == 0;
}

/* Add the user's options. If the user preloads a library, ours stays in front of it: without ours the ranks would share
 * one host name. */
static enum pl_status add_custom(const struct pl_strv *custom, const char *libraries, struct pl_strv *argv,
                                 struct pl_error *reterr)
{
    static const char preload[] = "LD_PRELOAD=";

    for (size_t i = 0; i < custom->count; i++) {
        if (is_export_of(custom, i, preload)) {
            PL_TRY(pl_strv_printf(argv, reterr, "%s%s:%s", preload, libraries, custom->items[i] + strlen(preload)));
        } else {
            PL_TRY(pl_strv_add(argv, custom->items[i], reterr));
        }
    }
    return PL_OK;
}

/* Each rank uses the SM_* variables of its own host instead of those that mpirun exports. So a variable that the user
 * adds with -x SM_NAME=value is set on every host. As with the toolkit, it does not replace a variable of the job. */
static enum pl_status keep_exports(const struct pl_strv *custom, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    for (size_t i = 0; i < custom->count; i++) {
        const char *equals = strchr(custom->items[i], '=');
        PL_AUTO_FREE char *name = NULL;

        if (!is_export_of(custom, i, "SM_") || !equals) {
            continue;
        }
        name = pl_memory_string_n(custom->items[i], (size_t)(equals - custom->items[i]), reterr);
        PL_TRY(name ? PL_OK : PL_MEMORY);
        if (!pl_environment_get(plan->additions, name)) {
            PL_TRY(pl_launcher_set(plan, name, equals + 1, reterr));
        }
    }
    return PL_OK;
}

static enum pl_status add_fabric(const struct pl_job *job, struct pl_strv *argv, struct pl_error *reterr)
{
    static const char *const credentials[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};

    if (pl_launcher_has_efa(job)) {
        PL_TRY(add_export(argv, "FI_PROVIDER=efa", reterr));
        PL_TRY(add_export(argv, "NCCL_PROTO=simple", reterr));
    }
    if (pl_launcher_has_efa_rdma(job->instance_type)) {
        PL_TRY(add_export(argv, "FI_EFA_USE_DEVICE_RDMA=1", reterr));
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(credentials); i++) {
        if (pl_environment_get(job->process, credentials[i])) {
            PL_TRY(add_export(argv, credentials[i], reterr));
        }
    }
    return PL_OK;
}

/* Add -x NAME for each SM_* variable in the order in which the toolkit builds them, PYTHONPATH last. */
static enum pl_status add_names(const struct pl_launch_plan *plan, struct pl_strv *argv, struct pl_error *reterr)
{
    for (char *const *at = pl_environment_strings(plan->additions); *at; at++) {
        PL_AUTO_FREE char *name = NULL;

        if (strncmp(*at, "SM_", 3) != 0) {
            continue;
        }
        name = pl_memory_string_n(*at, strcspn(*at, "="), reterr);
        PL_TRY(name ? PL_OK : PL_MEMORY);
        PL_TRY(add_export(argv, name, reterr));
    }
    return add_export(argv, "PYTHONPATH", reterr);
}

/* SageMaker's model parallel library reads its settings from a hyperparameter. */
static enum pl_status add_model_parallel(const struct pl_job *job, const struct pl_launch_plan *plan,
                                         struct pl_strv *argv, struct pl_error *reterr)
{
    const char *parameters = pl_environment_get(plan->additions, "SM_HP_MP_PARAMETERS");
    const char *torch = pl_environment_get(job->process, "SM_DLC_TORCH_VERSION");
    const struct pl_python_json *backend =
        pl_python_json_member(pl_python_json_member(job->hyperparameters, "mp_parameters"), "ddp_dist_backend");
    PL_AUTO_FREE char *smddpmprun = NULL;

    if (!parameters || strcmp(parameters, "{}") == 0) {
        return PL_OK;
    }
    if (torch) {
        PL_TRY(add_export(argv, "NCCL_PROTO=simple", reterr));
        if (atoi(torch) > 1) {
            PL_TRY(add_export(argv, "NCCL_ALGO=ring", reterr));
        }
    }
    if ((!backend || strcmp(pl_python_json_text(backend), "auto") == 0) &&
        pl_file_find_program("smddpmprun", pl_environment_get(job->process, "PATH"), &smddpmprun, NULL) == PL_OK) {
        return pl_strv_add_list(
            argv, (const char *const[]){"smddpmprun", "-i", job->instance_type, "--allow-bypass", NULL}, reterr);
    }
    return PL_OK;
}

/* mpirun uses the last number of processes that it finds, and the user's options come after the plan's. */
static enum pl_status warn_of_other_count(const struct pl_job *job, const struct pl_mpi_options_custom *custom,
                                          struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const bool by_sdk = job->drivers.mpi_options;

    if (custom->processes < 0 || custom->processes == plan->processes) {
        return PL_OK;
    }
    return pl_strv_printf(&plan->warnings, reterr,
                          "%s makes mpirun start %ld processes, not the %d that the job has: name the number in %s",
                          by_sdk ? "mpi_additional_options" : "sagemaker_mpi_custom_mpi_options", custom->processes,
                          plan->processes,
                          by_sdk ? "process_count_per_node" : "sagemaker_mpi_num_of_processes_per_host");
}

/* Returns the first distribution group of another instance type than this host's, or NULL if all hosts have the same
 * type or the file does not give types. */
static const char *find_other_type(const struct pl_job *job)
{
    const struct pl_python_json *group = job->groups ? pl_python_json_first(job->groups) : NULL;

    for (; group; group = pl_python_json_next(group)) {
        const struct pl_python_json *type = pl_python_json_member(group, "instance_type");

        if (pl_strv_find(&job->distribution_groups,
                         pl_python_json_text(pl_python_json_member(group, "instance_group_name"))) >= 0 &&
            pl_python_json_count(pl_python_json_member(group, "hosts")) > 0 && type &&
            pl_python_json_kind(type) == PL_PYTHON_JSON_STRING &&
            strcmp(pl_python_json_text(type), job->instance_type) != 0) {
            return pl_python_json_text(type);
        }
    }
    return NULL;
}

/* Warn of hosts of another type: the number of their processes is known only when they are linked, so the plan alone
 * does not have it. */
static enum pl_status warn_of_other_types(const struct pl_job *job, struct pl_launch_plan *plan,
                                          struct pl_error *reterr)
{
    const char *other = pl_mpi_hosts_wait(plan) ? find_other_type(job) : NULL;

    if (!other) {
        return PL_OK;
    }
    return pl_strv_printf(&plan->warnings, reterr,
                          "there are hosts of another type (%s): each tells at the start how many processes its "
                          "devices make, and is taken to have %d as this one here; "
                          "sagemaker_mpi_num_of_processes_per_host names the number, or one for each group",
                          other, job->devices);
}

/* `PY -m mpi4py` makes an uncaught exception abort all ranks. Paceline ends the job when a rank fails anyway, so an
 * image does not need mpi4py: a probe asks the interpreter once whether mpi4py is there. */
static enum pl_status probe_mpi4py(const struct pl_program *program, struct pl_launch_plan *plan,
                                   struct pl_error *reterr)
{
    struct pl_strv *argv = NULL;

    PL_TRY(pl_steps_add(&plan->probes, "looking for mpi4py", plan->cwd, &argv, reterr));
    plan->probes.items[0].is_probe = true;
    plan->optional_from = plan->argv.count + 1;
    plan->optional_count = 2;
    return pl_strv_add_list(
        argv,
        (const char *const[]){program->python, "-c",
                              "import importlib.util as u, sys; sys.exit(u.find_spec('mpi4py') is None)", NULL},
        reterr);
}

/* Add the command of a host's server; the words of its workers follow it. */
static enum pl_status add_server(const struct pl_job *job, struct pl_strv *argv, struct pl_error *reterr)
{
    const char *least = job->settings.ps_min_workers;
    PL_AUTO_FREE char *server = NULL;

    PL_TRY(pl_companion_find(job->self_path, "paceline-server", &server, reterr));
    PL_TRY(pl_strv_add_list(argv, (const char *const[]){server, "--workers", NULL}, reterr));
    PL_TRY(pl_strv_printf(argv, reterr, "%" PRId64, job->settings.ps_workers_per_host));
    return strcmp(least, "all") == 0
               ? PL_OK
               : pl_strv_add_list(argv, (const char *const[]){"--min-workers", least, NULL}, reterr);
}

static enum pl_status make_argv(const struct pl_job *job, const struct pl_program *program,
                                const struct pl_mpi_options_custom *custom, int major, struct pl_launch_plan *plan,
                                struct pl_error *reterr)
{
    const char *libraries = pl_environment_get(plan->additions, "LD_PRELOAD");
    PL_AUTO_FREE char *interface = NULL;
    size_t first;

    PL_TRY(pl_mpi_hosts_add(job, custom->oversubscribe, plan, reterr));
    PL_TRY(warn_of_other_count(job, custom, plan, reterr));
    PL_TRY(warn_of_other_types(job, plan, reterr));
    PL_TRY(pl_interface_choose(job, plan, &interface, reterr));
    plan->program_words = 1;
    PL_TRY(pl_mpi_options_add_fixed(major, interface, &custom->words, &plan->argv, reterr));
    PL_TRY(add_nccl(pl_environment_get_or(job->process, "NCCL_SOCKET_IFNAME", interface), custom->nccl_debug,
                    &plan->argv, reterr));
    PL_TRY(pl_strv_add(&plan->argv, "-x", reterr));
    PL_TRY(pl_strv_printf(&plan->argv, reterr, "LD_PRELOAD=%s", libraries));
    PL_TRY(add_custom(&custom->words, libraries, &plan->argv, reterr));
    PL_TRY(add_fabric(job, &plan->argv, reterr));
    PL_TRY(add_names(plan, &plan->argv, reterr));
    PL_TRY(add_model_parallel(job, plan, &plan->argv, reterr));
    PL_TRY(pl_strv_add_list(&plan->argv, (const char *const[]){job->self_path, "rank", NULL}, reterr));
    first = plan->argv.count;
    if (job->switches.native_server) {
        PL_TRY(add_server(job, &plan->argv, reterr));
    } else if (program->kind == PL_PROGRAM_SCRIPT || program->kind == PL_PROGRAM_PACKAGE) {
        PL_TRY(probe_mpi4py(program, plan, reterr));
    }
    PL_TRY(pl_program_add_name(program, job->switches.native_server ? NULL : "mpi4py", &plan->argv, reterr));
    PL_TRY(pl_strv_add(&plan->argv, "--", reterr));
    PL_TRY(pl_program_add_arguments(job, program, &plan->argv, reterr));
    return pl_mpi_options_guard(&plan->argv, first, reterr);
}

/* Read the user's options: the list of words in distributed.json, else the text of the hyperparameter. */
static enum pl_status read_options(const struct pl_job *job, struct pl_mpi_options_custom *custom,
                                   struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char name[] = "sagemaker_mpi_custom_mpi_options";
    const struct pl_python_json *options = pl_python_json_member(job->framework, name);
    const bool is_null = !options || pl_python_json_kind(options) == PL_PYTHON_JSON_NULL;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;

    if (job->drivers.mpi_options) {
        for (const struct pl_python_json *item = pl_python_json_first(job->drivers.mpi_options); item;
             item = pl_python_json_next(item)) {
            PL_TRY(pl_strv_add(&words, pl_python_json_text(item), reterr));
        }
        if (!is_null) {
            PL_TRY(pl_strv_printf(&plan->warnings, reterr,
                                  "distributed.json has mpi_additional_options; the hyperparameter %s has no effect",
                                  name));
        }
        return pl_mpi_options_sort(&words, "mpi_additional_options of distributed.json", custom, reterr);
    }
    if (!is_null && pl_python_json_kind(options) != PL_PYTHON_JSON_STRING) {
        return pl_error_set(reterr, PL_INVALID, "hyperparameter %s: expected a string, found %s", name,
                            pl_python_json_kind_text(pl_python_json_kind(options)));
    }
    return pl_mpi_options_split(is_null ? "" : pl_python_json_text(options), custom, reterr);
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_PROGRAM struct pl_program program = {.kind = PL_PROGRAM_COMMAND};
    struct pl_mpi_options_custom custom = {.nccl_debug = NULL};
    enum pl_status status;
    int major;

    PL_TRY(pl_launcher_use_hosts(job, &job->distribution_hosts, job->distribution_index, plan, reterr));
    PL_TRY(pl_mpi_options_major(job, &major, reterr));
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    PL_TRY(pl_needs_tool(job, &program, "mpirun", "build it with Open MPI (openmpi-bin), or with Paceline's Dockerfile",
                         plan, reterr));
    plan->ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
    PL_TRY(set_host_name(job, plan, reterr));
    PL_TRY(keep_domain_names(job, plan, reterr));
    PL_TRY(set_torch_hosts(job, plan, reterr));
    if (!pl_environment_get(job->process, "LD_LIBRARY_PATH")) {
        /* mpirun warns about a variable that it is to pass on but that is not set. The dynamic linker treats an empty
         * value as unset. */
        PL_TRY(pl_launcher_set(plan, "LD_LIBRARY_PATH", "", reterr));
    }
    plan->processes = job->processes;
    status = read_options(job, &custom, plan, reterr);
    if (job->is_check) {
        pl_mpi_options_remove_mapping(&custom); /* the check has its own number of ranks on each host */
    }
    if (status == PL_OK) {
        status = check_names(job, &custom.words, major, reterr);
    }
    if (status == PL_OK) {
        status = keep_exports(&custom.words, plan, reterr);
    }
    if (status == PL_OK && plan->role == PL_LAUNCH_PLAN_MASTER) {
        status = make_argv(job, &program, &custom, major, plan, reterr);
    }
    pl_mpi_options_custom_done(&custom);
    return status;
}

static void describe(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        if (job->host_processes[i] == 0) {
            pl_text_printf(text, "ranks by each host's own devices on %zu hosts", plan->hosts.count);
            return;
        }
    }
    pl_launcher_describe_ranks(plan, text);
}

static bool matches_server(const struct pl_job *job)
{
    return job->switches.native_server && pl_launcher_includes(job);
}

static enum pl_status make_server_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    char workers[24];

    snprintf(workers, sizeof(workers), "%" PRId64, job->settings.ps_workers_per_host);
    PL_TRY(pl_launcher_set(plan, PL_LAUNCHER_WORKERS_VARIABLE, workers, reterr));
    return make_plan(job, plan, reterr);
}

static void describe_server(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    pl_text_printf(text, "a server with %" PRId64 " worker(s) on each of %zu host(s)",
                   job->settings.ps_workers_per_host, plan->hosts.count);
}

const struct pl_launcher pl_launcher_mpi = {
    .name = "mpi", .needs_link = true, .matches = matches, .plan = make_plan, .describe = describe};
const struct pl_launcher pl_launcher_native_server = {.name = "native_server",
                                                      .needs_link = true,
                                                      .matches = matches_server,
                                                      .plan = make_server_plan,
                                                      .describe = describe_server};
