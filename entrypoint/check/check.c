/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the job that checks the hosts of another job, and its plan. */
#include "entrypoint/check/check.h"

#include "base/environment.h"
#include "base/knob.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"
#include "entrypoint/launch/mpi_options.h"

#include <string.h>

enum { HOST_WORDS = 5 }; /* `mpirun --host LIST -np NUMBER`: options are inserted after these words */
enum { RANKS_MOST = 2 }; /* per host: enough for two TCP flows, and for memory that ranks of one host share */

/* Read the options in the setting, which is empty, "0", "1" or the options themselves. */
static enum pl_status read_setting(const struct pl_job *job, struct pl_strv *words, bool *ret_wanted,
                                   struct pl_error *reterr)
{
    const char *text = job->settings.check;

    *ret_wanted = true;
    if (strncmp(text, "--", 2) == 0) {
        return pl_strv_split(text, "PACELINE_CHECK", words, reterr);
    }
    if (pl_knob_read_bool(text, "PACELINE_CHECK", ret_wanted, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_INVALID,
                            "PACELINE_CHECK is '%.100s': expected 1, 0, or options of `paceline check`", text);
    }
    return PL_OK;
}

/* Choose the hosts that are checked: those of the distribution; without a distribution all hosts; on a host outside the
 * distribution this host alone. */
static void choose_hosts(struct pl_job *check)
{
    const bool distributed = check->distribution_groups.count > 0;

    if (pl_launcher_includes(check)) {
        return;
    }
    pl_strv_done(&check->distribution_hosts);
    pl_strv_done(&check->distribution_groups);
    check->distribution_index = distributed ? 0 : check->host_index;
    pl_strv_add(&check->distribution_groups, check->group_name);
    if (distributed) {
        pl_strv_add(&check->distribution_hosts, check->current_host);
    } else {
        pl_strv_add_all(&check->distribution_hosts, &check->hosts);
    }
    check->master_host = check->distribution_hosts.count > 0 ? check->distribution_hosts.items[0] : "";
}

static enum pl_status fill_command(struct pl_job *check, const struct pl_strv *words, struct pl_error *reterr)
{
    PL_AUTO_FREE char *program = NULL;
    PL_AUTO_TEXT struct pl_text hosts = PL_TEXT_NONE;

    if (pl_companion_find(check->self_path, "paceline-check", &program, NULL) != PL_OK) {
        return pl_error_set(reterr, PL_NOT_FOUND,
                            "this image has no paceline-check, which is built only if Open MPI is installed");
    }
    pl_strv_add(&check->command, program, "--ranks");
    pl_strv_printf(&check->command, "%d", check->processes_per_host);
    pl_strv_add(&check->command, "--hosts");
    for (size_t i = 0; i < check->distribution_hosts.count; i++) {
        pl_text_printf(&hosts, "%s%s", i > 0 ? "," : "", check->distribution_hosts.items[i]);
    }
    pl_strv_add_text(&check->command, &hosts);
    if (pl_launcher_has_efa(check)) {
        pl_strv_add(&check->command, "--listed-efa");
    }
    pl_strv_add_all(&check->command, words);
    return PL_OK;
}

/* Set the same number of ranks on each host. Do not wait for hosts outside the distribution. */
static enum pl_status set_ranks(struct pl_job *check, struct pl_error *reterr)
{
    const size_t hosts = check->distribution_hosts.count;

    check->processes_per_host = check->processes_per_host < RANKS_MOST ? check->processes_per_host : RANKS_MOST;
    check->host_processes = pl_pool_new(&check->pool, hosts, sizeof(*check->host_processes));
    PL_TRY(pl_pool_check(&check->pool, reterr));
    for (size_t i = 0; i < hosts; i++) {
        check->host_processes[i] = check->processes_per_host;
    }
    check->named_processes = 0;
    check->processes = check->processes_per_host * (int)hosts;
    pl_strv_done(&check->outside_hosts);
    return PL_OK;
}

enum pl_status pl_check_new(const struct pl_job *job, const struct pl_strv *words, struct pl_job **ret_check,
                            struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv options = PL_STRV_NONE;
    PL_AUTO_JOB struct pl_job *check = NULL;
    bool wanted = true;

    *ret_check = NULL;
    if (!words) {
        PL_TRY(read_setting(job, &options, &wanted, reterr));
    }
    if (!wanted) {
        return PL_OK;
    }
    PL_TRY(pl_job_new(job->process, job->self_path, NULL, &check, reterr));
    choose_hosts(check);
    pl_strv_done(&check->command); /* version 3 of the SDK names one in its files */
    PL_TRY(fill_command(check, words ? words : &options, reterr));
    check->is_check = true;
    check->launches = PL_JOB_MPI;
    check->program = NULL;
    check->submit_uri = NULL;
    PL_TRY(set_ranks(check, reterr));
    *ret_check = PL_TAKE(check);
    return PL_OK;
}

/* Change mpirun's options so that it prints only the program's table: without the map of the job and without a tag
 * before each line. A timeout ends mpirun if the check does not end. */
static void adapt_mpirun(struct pl_strv *argv)
{
    struct pl_strv before;

    pl_mpi_options_remove_map(argv);
    pl_mpi_options_remove_tags(argv);
    before = *argv;
    *argv = (struct pl_strv){.pool = before.pool};
    for (size_t i = 0; i < before.count; i++) {
        if (i == HOST_WORDS) {
            pl_strv_add(argv, "--timeout", "180");
        }
        pl_strv_add(argv, before.items[i]);
    }
}

enum pl_status pl_check_adapt_plan(struct pl_launch_plan *plan, struct pl_error *reterr)
{
    pl_launch_plan_steps_done(&plan->steps);
    pl_launch_plan_steps_done(&plan->probes);
    pl_strv_done(&plan->sync);
    PL_TRY(pl_environment_set(plan->environment, PL_LAUNCHER_TAGS_VARIABLE, "off", reterr));
    if (plan->role != PL_LAUNCH_PLAN_WORKER) {
        adapt_mpirun(&plan->argv);
    }
    return pl_pool_check(&plan->pool, reterr);
}
