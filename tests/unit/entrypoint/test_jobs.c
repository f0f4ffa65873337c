/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/job/job.c, entrypoint/job/config.c, entrypoint/job/hyperparameters.c, entrypoint/job/hosts.c,
 * entrypoint/job/drivers.c, entrypoint/job/secrets.c, entrypoint/job/settings.c,
 * entrypoint/job/variables.c, entrypoint/launch/plan.c, entrypoint/launch/plan_print.c, entrypoint/launch/program.c,
 * entrypoint/launch/source.c, entrypoint/launch/interface.c, entrypoint/launch/mpi_options.c,
 * entrypoint/launch/needs.c, entrypoint/launch/launcher.c, entrypoint/launch/launcher_direct.c,
 * entrypoint/launch/launcher_mpi.c, entrypoint/launch/launcher_torchrun.c, entrypoint/launch/launcher_tensorflow.c. */
/*
 * Jobs and their plans as data: the cases of a file of tests/data/jobs/. What tests/support/cases.h has, and:
 *
 *   env NAME=TEXT, unset NAME       variables of the container
 *   hp JSON, resource JSON          hyperparameters.json, resourceconfig.json
 *   two_hosts NAME                  this host is NAME of algo-1 and algo-2
 *   file PATH TEXT, remove PATH     below the base directory, which is <base>; TEXT may have \n, \r and \xHH
 *   built PATH                      the rest of the case is left out if this build has no such file
 *   slots N N                       sets the room of the two hosts
 *   command WORDS                   what follows `--`, for command_plan
 */
#include "base/environment.h"
#include "entrypoint/job/job.h"
#include "entrypoint/launch/mpi_options.h"
#include "tests/support/cases.h"
#include "tests/unit/entrypoint/tree.h"

#include <stddef.h>

static struct tree tree;
static struct pl_launch_plan_steps source;
static struct pl_environment *added; /* by `variables` */
static struct pl_strv added_warnings;
static struct pl_strv command;

/* --- what a case writes --- */

static void set_env(char *rest)
{
    *strchr(rest, '=') = '\0';
    tree_env(&tree, rest, rest + strlen(rest) + 1);
}

static void unset_env(char *rest)
{
    pl_environment_unset(tree.environment, rest);
}

static void set_hyperparameters(char *rest)
{
    tree_hyperparameters(&tree, rest);
}

static void set_resource(char *rest)
{
    tree_write(&tree, "input/config/resourceconfig.json", rest);
}

static void set_two_hosts(char *rest)
{
    tree_two_hosts(&tree, rest);
}

static void write_file(char *rest)
{
    const char *text = cases_unescape(cases_cut(rest));

    tree_write(&tree, rest, text);
}

static void remove_file(char *rest)
{
    char path[PATH_MAX];

    ck_assert_int_eq(remove(scratch_path(&tree.scratch, rest, path)), 0);
}

static void need_built(char *rest)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", PL_TEST_BUILD, rest);
    cases.left_out = access(path, R_OK) != 0;
}

static void set_slots(char *rest)
{
    tree.plan->slots[0] = atoi(rest);
    tree.plan->slots[1] = atoi(cases_cut(rest));
}

static void set_command(char *rest)
{
    ck_ok(pl_strv_split, rest, "command", &command);
}

static const struct cases_verb verbs[] = {{"env", set_env},
                                          {"unset", unset_env},
                                          {"hp", set_hyperparameters},
                                          {"resource", set_resource},
                                          {"two_hosts", set_two_hosts},
                                          {"file", write_file},
                                          {"remove", remove_file},
                                          {"built", need_built},
                                          {"slots", set_slots},
                                          {"command", set_command},
                                          {NULL, NULL}};

/* --- what it does --- */

static enum pl_status do_job(struct pl_error *reterr)
{
    return tree_job(&tree, reterr);
}

static enum pl_status do_plan(struct pl_error *reterr)
{
    return tree_plan(&tree, reterr);
}

static enum pl_status plan_hosts(struct pl_error *reterr)
{
    pl_launch_plan_free(PL_TAKE(tree.plan));
    return pl_launch_plan_begin(tree.job, &tree.plan, reterr);
}

/* The hosts first, as `paceline train` does. */
static enum pl_status do_hosts(struct pl_error *reterr)
{
    PL_TRY(tree_job(&tree, reterr));
    return plan_hosts(reterr);
}

static enum pl_status do_fill(struct pl_error *reterr)
{
    return pl_launch_plan_fill(tree.job, tree.plan, reterr);
}

/* The hosts of a job that is refused. */
static enum pl_status do_partial(struct pl_error *reterr)
{
    ck_assert_int_ne(tree_job(&tree, reterr), PL_OK);
    PL_TRY(pl_job_new_partial(tree.environment, PL_TEST_BUILD "/entrypoint/paceline", &tree.job, reterr));
    return plan_hosts(reterr);
}

static enum pl_status plan_again(struct pl_error *reterr)
{
    pl_launch_plan_free(PL_TAKE(tree.plan));
    return pl_launch_plan_new(tree.job, &tree.plan, reterr);
}

/* The plan as it is printed. */
static enum pl_status do_masked(struct pl_error *reterr)
{
    PL_TRY(tree_job(&tree, reterr));
    PL_TRY(pl_secrets_mask(tree.job, reterr));
    return plan_again(reterr);
}

/* The plan of the job with the words of `command`. */
static enum pl_status do_command_plan(struct pl_error *reterr)
{
    pl_job_free_at(&tree.job);
    PL_TRY(pl_job_new(tree.environment, PL_TEST_BUILD "/entrypoint/paceline", &command, &tree.job, reterr));
    return plan_again(reterr);
}

static enum pl_status do_source(struct pl_error *reterr)
{
    pl_launch_plan_steps_done(&source);
    source = (struct pl_launch_plan_steps){.count = 0};
    PL_TRY(tree_job(&tree, reterr));
    return pl_source_plan(tree.job, &source, reterr);
}

static enum pl_status do_prepare(struct pl_error *reterr)
{
    return pl_launch_plan_prepare(tree.job, tree.plan, reterr);
}

static enum pl_status do_apply(struct pl_error *reterr)
{
    return pl_mpi_hosts_apply(tree.job, tree.plan, reterr);
}

static enum pl_status do_variables(struct pl_error *reterr)
{
    pl_environment_free(added);
    pl_strv_done(&added_warnings);
    ck_ok(pl_environment_new_empty, &added);
    PL_TRY(tree_job(&tree, reterr));
    return pl_variables_add(tree.job, added, NULL, &added_warnings, reterr);
}

static const struct cases_action actions[] = {
    {"job", do_job},         {"plan", do_plan},     {"hosts_first", do_hosts},         {"fill", do_fill},
    {"partial", do_partial}, {"masked", do_masked}, {"command_plan", do_command_plan}, {"source", do_source},
    {"prepare", do_prepare}, {"apply", do_apply},   {"variables", do_variables},       {NULL, NULL}};

/* --- what it compares --- */

enum kind { TEXT, INT, INT64, SIZE, BOOL, WORDS, COUNT, JSON, ROLE, LINK, RANKS, LAUNCHER };

#define JOB(name, kind, field)                                                                                         \
    {                                                                                                                  \
#name, true, kind, offsetof(struct pl_job, field)                                                              \
    }
#define PLAN(name, kind, field)                                                                                        \
    {                                                                                                                  \
#name, false, kind, offsetof(struct pl_launch_plan, field)                                                     \
    }
static const struct field {
    const char *name;
    bool of_job;
    enum kind kind;
    size_t offset;
} fields[] = {
    JOB(interface, TEXT, network_interface),
    JOB(type, TEXT, instance_type),
    JOB(group, TEXT, group_name),
    JOB(master, TEXT, master_host),
    JOB(current, TEXT, current_host),
    JOB(region, TEXT, region),
    JOB(program, TEXT, program),
    JOB(requirements, TEXT, requirements),
    JOB(code, TEXT, paths.code),
    JOB(ranks_of_job, INT, processes),
    JOB(ranks_of_host, INT, processes_per_host),
    JOB(channels, SIZE, channels_count),
    JOB(distribution, WORDS, distribution_hosts),
    JOB(index, INT, distribution_index),
    JOB(all_hosts, WORDS, hosts),
    JOB(launches, INT, launches),
    JOB(arguments, WORDS, user_args),
    JOB(hyperparameters, JSON, hyperparameters),
    JOB(framework, JSON, framework),
    JOB(settings, JSON, setting_values),
    JOB(drivers, TEXT, drivers.source),
    JOB(install, BOOL, settings.install),
    JOB(ssh_port, INT64, settings.ssh_port),
    JOB(stop_ns, INT64, settings.stop_ns),
    JOB(sse, TEXT, settings.sse),
    JOB(sse_key, TEXT, settings.sse_kms_key_id),
    JOB(bucket_key, BOOL, settings.bucket_key_enabled),
    PLAN(role, ROLE, role),
    PLAN(link, LINK, link),
    PLAN(ranks, RANKS, ranks),
    PLAN(launcher, LAUNCHER, launcher),
    PLAN(argv, WORDS, argv),
    PLAN(words, COUNT, argv),
    PLAN(program_words, SIZE, program_words),
    PLAN(warnings, WORDS, warnings),
    PLAN(warnings_count, COUNT, warnings),
    PLAN(hosts, WORDS, hosts),
    PLAN(outside, WORDS, outside_hosts),
    PLAN(is_outside, BOOL, is_outside),
    PLAN(needs_names, BOOL, needs_names),
    PLAN(processes, INT, processes),
    PLAN(cwd, TEXT, cwd),
    PLAN(chmod, TEXT, chmod_path),
    PLAN(steps, SIZE, steps.count),
    PLAN(restarts, INT, restarts),
};

static const char *print(const void *at, enum kind kind, struct pl_text *text)
{
    static const char *const links[] = {"none", "needed", "beside"}, *const ranks[] = {"none", "mpirun", "torchrun"};

    switch (kind) {
    case TEXT:
        return *(const char *const *)at;
    case INT:
        pl_text_printf(text, "%d", *(const int *)at);
        break;
    case INT64:
        pl_text_printf(text, "%lld", (long long)*(const int64_t *)at);
        break;
    case SIZE:
        pl_text_printf(text, "%zu", *(const size_t *)at);
        break;
    case BOOL:
        return *(const bool *)at ? "yes" : "no";
    case WORDS:
        return joined(at);
    case COUNT:
        pl_text_printf(text, "%zu", ((const struct pl_strv *)at)->count);
        break;
    case JSON:
        pl_python_json_print(*(struct pl_python_json *const *)at, PL_PYTHON_JSON_COMPACT, text);
        break;
    case ROLE:
        return pl_launch_plan_role_text(*(const enum pl_launch_plan_role *)at);
    case LINK:
        return links[*(const enum pl_launch_plan_link *)at];
    case RANKS:
        return ranks[*(const enum pl_launch_plan_ranks *)at];
    case LAUNCHER:
        return (*(const struct pl_launcher *const *)at)->name;
    }
    return pl_text_string(text);
}

/* A step's argv, only_looks or variable. */
static const char *find_in_step(const struct pl_launch_plan_steps *steps, char number, const char *name)
{
    const struct pl_launch_plan_step *step = &steps->items[number - '0'];

    ck_assert_uint_lt((size_t)(number - '0'), steps->count);
    if (strcmp(name, "argv") == 0) {
        return joined(&step->argv);
    }
    if (strcmp(name, "only_looks") == 0) {
        return step->only_looks ? "yes" : "no";
    }
    return step->additions ? pl_environment_get(step->additions, name) : NULL;
}

static const char *find_in_sidecar(char number, const char *name)
{
    const struct pl_sidecar *side = tree.plan->side;

    for (int i = number - '0'; i > 0 && side; i--) {
        side = side->next;
    }
    return !side ? NULL : strcmp(name, "argv") == 0 ? joined(&side->argv) : pl_environment_get(side->environment, name);
}

/* env.NAME and add.NAME are variables of the plan, var.NAME is one of `variables`; stepN, sourceN and sideN are the
 * plan's steps, those that fetch the code, and sidecars. */
static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    static const struct pl_launch_plan_steps none;
    const char *dot = strchr(name, '.');

    for (size_t i = 0; i < PL_ARRAY_ITEMS(fields); i++) {
        const char *of = fields[i].of_job ? (const char *)tree.job : (const char *)tree.plan;

        if (strcmp(fields[i].name, name) == 0) {
            ck_assert_msg(of, "there is no job or plan with '%s'", name);
            return print(of + fields[i].offset, fields[i].kind, text);
        }
    }
    if (dot && strncmp(name, "env.", 4) == 0) {
        return pl_environment_get(tree.plan->environment, dot + 1);
    }
    if (dot && strncmp(name, "add.", 4) == 0) {
        return pl_environment_get(tree.plan->additions, dot + 1);
    }
    if (dot && strncmp(name, "var.", 4) == 0) {
        return pl_environment_get(added, dot + 1);
    }
    if (dot && strncmp(name, "step", 4) == 0) {
        return find_in_step(&tree.plan->steps, dot[-1], dot + 1);
    }
    if (dot && strncmp(name, "source", 6) == 0) {
        return find_in_step(&source, dot[-1], dot + 1);
    }
    if (dot && strncmp(name, "side", 4) == 0) {
        return find_in_sidecar(dot[-1], dot + 1);
    }
    if (strcmp(name, "hosts_wait") == 0) {
        return pl_mpi_hosts_wait(tree.plan) ? "yes" : "no";
    }
    if (strcmp(name, "source_steps") == 0) {
        return print(&source.count, SIZE, text);
    }
    if (strcmp(name, "added_warnings") == 0) {
        return print(&added_warnings.count, SIZE, text);
    }
    *ret_known = strcmp(name, "printed") == 0;
    if (*ret_known) {
        ck_ok(pl_launch_plan_print, tree.job, tree.plan, &none, text);
    }
    return pl_text_string(text);
}

static void begin(void)
{
    tree_setup(&tree);
    cases_let("base", tree.base);
}

static void end(void)
{
    pl_environment_free(added);
    pl_strv_done(&added_warnings);
    pl_strv_done(&command);
    pl_launch_plan_steps_done(&source);
    tree_done(&tree);
}

static struct cases cases = {.verbs = verbs, .actions = actions, .find = find, .begin = begin, .end = end};

CASES_MAIN("entrypoint/jobs")
