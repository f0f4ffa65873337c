/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun over the distribution hosts: the toolkit's options in the toolkit's order, then each rank through `paceline
 * rank`. Paceline's own parameter servers are ranks too: one per host, which starts the program as its workers.
 */
#include "base/environment.h"
#include "base/memory.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/launch/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

static void add_nccl(const char *interface, const char *level, struct pl_strv *argv)
{
    pl_strv_add(argv, "-x", "NCCL_MIN_NRINGS=4", "-x");
    pl_strv_printf(argv, "NCCL_SOCKET_IFNAME=%s", interface);
    pl_strv_add(argv, "-x");
    pl_strv_printf(argv, "NCCL_DEBUG=%s", level);
    pl_strv_add(argv, "-x", "LD_LIBRARY_PATH", "-x", "PATH");
}

/* Preload the library that makes gethostname() return the job's name for the host; libraries that were preloaded before
 * stay. mpirun and its daemons load it too: an mpirun whose own name is in its host list needs no ssh to itself. */
static enum pl_status set_host_name(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    const char *before = pl_environment_get_or(job->process, "LD_PRELOAD", NULL);
    PL_AUTO_FREE char *library = NULL;

    PL_TRY(pl_companion_find(job->self_path, "libpaceline-hostname.so", &library, reterr));
    pl_launcher_set(plan, "PACELINE_HOST_NAME", job->hosts.items[job->host_index]);
    pl_launcher_set(plan, "LD_PRELOAD",
                    pl_pool_printf(&plan->pool, "%s%s%s", library, before ? ":" : "", before ? before : ""));
    return PL_OK;
}

/* Open MPI cuts the domain off a host's name. It would then start a daemon on a host that the job does not have, or
 * take two hosts for one. Versions 4 and 5 read variables of different names. A value that the container has set
 * stays. */
static void keep_domain_names(const struct pl_job *job, struct pl_launch_plan *plan)
{
    bool has_domain = false;

    for (size_t i = 0; i < job->distribution_hosts.count; i++) {
        has_domain = has_domain || strchr(job->distribution_hosts.items[i], '.');
    }
    if (has_domain) {
        pl_launcher_set_unless_set(job, plan, "OMPI_MCA_orte_keep_fqdn_hostnames", "1");
        pl_launcher_set_unless_set(job, plan, "PRTE_MCA_prte_keep_fqdn_hostnames", "1");
    }
}

/* Set what `paceline rank` cannot get from Open MPI: the host of rank 0, and the number of this host, for Lightning. */
static void set_torch_hosts(const struct pl_job *job, struct pl_launch_plan *plan)
{
    pl_launcher_set(plan, PL_LAUNCHER_MASTER_VARIABLE, job->master_host);
    pl_launcher_set_unless_set(job, plan, "NODE_RANK", pl_pool_printf(&plan->pool, "%d", job->distribution_index));
}

/* Whether words[at] is the value of an option -x and begins with `prefix`. */
static bool is_export_of(const struct pl_strv *words, size_t at, const char *prefix)
{
    return at > 0 && strcmp(words->items[at - 1], "-x") == 0 && strncmp(words->items[at], prefix, strlen(prefix)) == 0;
}

/* Add the user's options. If the user preloads a library, ours stays in front of it: without ours the ranks would share
 * one host name. */
static void add_custom(const struct pl_strv *custom, const char *libraries, struct pl_strv *argv)
{
    static const char preload[] = "LD_PRELOAD=";

    for (size_t i = 0; i < custom->count; i++) {
        if (is_export_of(custom, i, preload)) {
            pl_strv_printf(argv, "%s%s:%s", preload, libraries, custom->items[i] + strlen(preload));
        } else {
            pl_strv_add(argv, custom->items[i]);
        }
    }
}

/* Each rank uses the SM_* variables of its own host instead of those that mpirun exports. So a variable that the user
 * adds with -x SM_NAME=value is set on every host. As with the toolkit, it does not replace a variable of the job. */
static void keep_exports(const struct pl_strv *custom, struct pl_launch_plan *plan)
{
    for (size_t i = 0; i < custom->count; i++) {
        const char *equals = strchr(custom->items[i], '='), *name;

        if (!is_export_of(custom, i, "SM_") || !equals) {
            continue;
        }
        name = pl_pool_string_n(&plan->pool, custom->items[i], (size_t)(equals - custom->items[i]));
        if (!pl_environment_get(plan->additions, name)) {
            pl_launcher_set(plan, name, equals + 1);
        }
    }
}

static void add_fabric(const struct pl_job *job, struct pl_strv *argv)
{
    static const char *const credentials[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};

    if (pl_launcher_has_efa(job)) {
        pl_strv_add(argv, "-x", "FI_PROVIDER=efa", "-x", "NCCL_PROTO=simple");
    }
    if (pl_launcher_has_efa_rdma(job->instance_type)) {
        pl_strv_add(argv, "-x", "FI_EFA_USE_DEVICE_RDMA=1");
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(credentials); i++) {
        if (pl_environment_get(job->process, credentials[i])) {
            pl_strv_add(argv, "-x", credentials[i]);
        }
    }
}

/* Add -x NAME for each SM_* variable in the order in which the toolkit builds them, PYTHONPATH last. */
static void add_names(const struct pl_launch_plan *plan, struct pl_strv *argv)
{
    for (char *const *at = pl_environment_strings(plan->additions); *at; at++) {
        if (strncmp(*at, "SM_", 3) == 0) {
            pl_strv_add(argv, "-x");
            pl_strv_printf(argv, "%.*s", (int)strcspn(*at, "="), *at);
        }
    }
    pl_strv_add(argv, "-x", "PYTHONPATH");
}

/* SageMaker's model parallel library reads its settings from a hyperparameter. */
static void add_model_parallel(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_strv *argv)
{
    const char *parameters = pl_environment_get(plan->additions, "SM_HP_MP_PARAMETERS");
    const char *torch = pl_environment_get(job->process, "SM_DLC_TORCH_VERSION");
    const struct pl_python_json *backend =
        pl_python_json_member(pl_python_json_member(job->hyperparameters, "mp_parameters"), "ddp_dist_backend");

    if (!parameters || strcmp(parameters, "{}") == 0) {
        return;
    }
    if (torch) {
        pl_strv_add(argv, "-x", "NCCL_PROTO=simple");
        if (atoi(torch) > 1) {
            pl_strv_add(argv, "-x", "NCCL_ALGO=ring");
        }
    }
    if ((!backend || strcmp(pl_python_json_text(backend), "auto") == 0) && pl_job_has_program(job, "smddpmprun")) {
        pl_strv_add(argv, "smddpmprun", "-i", job->instance_type, "--allow-bypass");
    }
}

/* Take the number of processes of the user's options: mpirun uses the last one that it finds, and they come after the
 * plan's. */
static void use_other_count(const struct pl_job *job, const struct pl_mpi_options_custom *custom,
                            struct pl_launch_plan *plan)
{
    const bool by_sdk = job->drivers.mpi_options;

    if (custom->processes >= 0 && custom->processes != plan->processes) {
        pl_strv_printf(&plan->warnings,
                       "%s makes mpirun start %ld processes, not the %d that the job has: name the number in %s",
                       by_sdk ? "mpi_additional_options" : "sagemaker_mpi_custom_mpi_options", custom->processes,
                       plan->processes, by_sdk ? "process_count_per_node" : "sagemaker_mpi_num_of_processes_per_host");
        plan->processes = (int)custom->processes;
    }
}

/* Returns the first distribution group of another instance type than this host's, or NULL if all hosts have the same
 * type or the file does not give types. */
static const char *find_other_type(const struct pl_job *job)
{
    PL_PYTHON_JSON_EACH(group, job->groups) {
        const struct pl_python_json *type = pl_python_json_member(group, "instance_type");

        if (pl_strv_find(&job->distribution_groups, pl_hosts_group_name(group)) >= 0 &&
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
static void warn_of_other_types(const struct pl_job *job, struct pl_launch_plan *plan)
{
    const char *other = pl_mpi_hosts_wait(plan) ? find_other_type(job) : NULL;

    if (other) {
        pl_strv_printf(&plan->warnings,
                       "there are hosts of another type (%s): each tells at the start how many processes its devices "
                       "make, and is taken to have %d as this one here; sagemaker_mpi_num_of_processes_per_host names "
                       "the number, or one for each group",
                       other, job->devices);
    }
}

/* `PY -m mpi4py` makes an uncaught exception abort all ranks. Paceline ends the job when a rank fails anyway, so an
 * image does not need mpi4py: a probe asks the interpreter once whether mpi4py is there. */
static void probe_mpi4py(const struct pl_program *program, struct pl_launch_plan *plan)
{
    pl_strv_add(pl_launch_plan_add_step(&plan->probes, "looking for mpi4py", plan->cwd), program->python, "-c",
                "import importlib.util as u, sys; sys.exit(u.find_spec('mpi4py') is None)");
    plan->probes.items[0].is_probe = true;
    plan->optional_from = plan->argv.count + 1;
    plan->optional_count = 2;
}

/* Add the command of a host's server; the words of its workers follow it. */
static enum pl_status add_server(const struct pl_job *job, struct pl_strv *argv, struct pl_error *reterr)
{
    const char *least = job->settings.ps_min_workers;
    PL_AUTO_FREE char *server = NULL;

    PL_TRY(pl_companion_find(job->self_path, "paceline-server", &server, reterr));
    pl_strv_add(argv, server, "--workers");
    pl_strv_printf(argv, "%" PRId64, job->settings.ps_workers_per_host);
    if (strcmp(least, "all") != 0) {
        pl_strv_add(argv, "--min-workers", least);
    }
    return PL_OK;
}

static enum pl_status make_argv(const struct pl_job *job, const struct pl_program *program,
                                const struct pl_mpi_options_custom *custom, int major, struct pl_launch_plan *plan,
                                struct pl_error *reterr)
{
    const bool by_server = job->launches & PL_JOB_NATIVE_SERVER;
    const char *libraries = pl_environment_get(plan->additions, "LD_PRELOAD"), *interface;
    struct pl_strv *argv = &plan->argv;
    size_t first;

    PL_TRY(pl_mpi_hosts_add(job, custom->oversubscribe, plan, reterr));
    use_other_count(job, custom, plan);
    warn_of_other_types(job, plan);
    interface = pl_interface_choose(job, plan);
    plan->program_words = 1;
    pl_mpi_options_add_fixed(major, interface, &custom->words, argv);
    add_nccl(pl_environment_get_or(job->process, "NCCL_SOCKET_IFNAME", interface), custom->nccl_debug, argv);
    pl_strv_add(argv, "-x");
    pl_strv_printf(argv, "LD_PRELOAD=%s", libraries);
    add_custom(&custom->words, libraries, argv);
    add_fabric(job, argv);
    add_names(plan, argv);
    add_model_parallel(job, plan, argv);
    pl_strv_add(argv, job->self_path, "rank");
    first = argv->count;
    if (by_server) {
        PL_TRY(add_server(job, argv, reterr));
    } else if (program->kind == PL_PROGRAM_SCRIPT || program->kind == PL_PROGRAM_PACKAGE) {
        probe_mpi4py(program, plan);
    }
    pl_program_add_name(program, by_server ? NULL : "mpi4py", argv);
    pl_strv_add(argv, "--");
    PL_TRY(pl_program_add_arguments(job, program, argv, reterr));
    pl_mpi_options_guard(argv, first);
    return PL_OK;
}

/* Read the user's options: the list of words in distributed.json, else the text of the hyperparameter. */
static enum pl_status read_options(const struct pl_job *job, struct pl_mpi_options_custom *custom,
                                   struct pl_launch_plan *plan, struct pl_error *reterr)
{
    static const char name[] = "sagemaker_mpi_custom_mpi_options";
    const struct pl_python_json *options = pl_python_json_member(job->framework, name);
    const bool is_null = !options || pl_python_json_kind(options) == PL_PYTHON_JSON_NULL;
    struct pl_strv words = {.pool = &plan->pool};

    if (job->drivers.mpi_options) {
        PL_PYTHON_JSON_EACH(item, job->drivers.mpi_options) {
            pl_strv_add(&words, pl_python_json_text(item));
        }
        if (!is_null) {
            pl_strv_printf(&plan->warnings,
                           "distributed.json has mpi_additional_options; the hyperparameter %s has no effect", name);
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
    struct pl_mpi_options_custom custom = {.words = {.pool = &plan->pool}};
    struct pl_program program;
    int major;

    PL_TRY(pl_mpi_options_major(job, &major, reterr));
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    PL_TRY(pl_needs_tool(job, &program, "mpirun", "build it with Open MPI (openmpi-bin), or with Paceline's Dockerfile",
                         plan, reterr));
    plan->ranks = PL_LAUNCH_PLAN_RANKS_MPIRUN;
    PL_TRY(set_host_name(job, plan, reterr));
    keep_domain_names(job, plan);
    set_torch_hosts(job, plan);
    /* mpirun warns about a variable that it is to pass on but that is not set. The dynamic linker treats an empty value
     * as unset. */
    pl_launcher_set_unless_set(job, plan, "LD_LIBRARY_PATH", "");
    plan->processes = job->processes;
    PL_TRY(read_options(job, &custom, plan, reterr));
    if (job->is_check) {
        pl_mpi_options_remove_mapping(&custom); /* the check has its own number of ranks on each host */
    }
    PL_TRY(check_names(job, &custom.words, major, reterr));
    keep_exports(&custom.words, plan);
    return plan->role == PL_LAUNCH_PLAN_MASTER ? make_argv(job, &program, &custom, major, plan, reterr) : PL_OK;
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

static enum pl_status make_server_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    pl_launcher_set(plan, PL_LAUNCHER_WORKERS_VARIABLE,
                    pl_pool_printf(&plan->pool, "%" PRId64, job->settings.ps_workers_per_host));
    return make_plan(job, plan, reterr);
}

static void describe_server(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    pl_text_printf(text, "a server with %" PRId64 " worker(s) on each of %zu host(s)",
                   job->settings.ps_workers_per_host, plan->hosts.count);
}

const struct pl_launcher pl_launcher_mpi = {
    .name = "mpi", .launch = PL_JOB_MPI, .needs_link = true, .plan = make_plan, .describe = describe};
const struct pl_launcher pl_launcher_native_server = {.name = "native_server",
                                                      .launch = PL_JOB_NATIVE_SERVER,
                                                      .needs_link = true,
                                                      .plan = make_server_plan,
                                                      .describe = describe_server};
