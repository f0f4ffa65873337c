/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep: the program is paceline-sweep on the master. It starts trials of the job's program on all hosts, each as a
 * separate job. The plan fetches the code and installs its requirements once for all trials. Each trial has its own
 * variables.
 */
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/launcher.h"

#include "base/memory.h"
#include "base/text.h"

#include <strings.h>

/* A stream can be read only once, so each trial would get only a part of it. */
static enum pl_status check_channels(const struct pl_job *job, struct pl_error *reterr)
{
    PL_PYTHON_JSON_EACH(channel, job->input_data) {
        const struct pl_python_json *mode = pl_python_json_member(channel, "TrainingInputMode");

        if (mode && pl_python_json_kind(mode) == PL_PYTHON_JSON_STRING &&
            strcasecmp(pl_python_json_text(mode), "Pipe") == 0) {
            return pl_error_set(reterr, PL_INVALID,
                                "inputdataconfig.json: channel '%.200s' is in Pipe Mode: its stream can be read once, "
                                "and the trials of a sweep would each get a part of it; expected File or FastFile",
                                pl_python_json_name(channel));
        }
    }
    return PL_OK;
}

static void use_hosts(const struct pl_job *job, struct pl_launch_plan *plan)
{
    if (job->hosts.count > 1) {
        pl_launcher_use_hosts(job, &job->hosts, job->host_index, plan);
    } else {
        pl_strv_add(&plan->hosts, job->current_host);
    }
}

/* Add the words `paceline-sweep OPTION PACELINE -- COMMAND...`. */
static void add_words(const struct pl_job *job, const char *companion, const char *option, struct pl_strv *words)
{
    pl_strv_add(words, companion, option, job->self_path, "--");
    pl_strv_add_all(words, &job->command);
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_FREE char *companion = NULL;
    struct pl_program program;

    PL_TRY(check_channels(job, reterr));
    plan->processes = 1;
    plan->runs_jobs = true;
    pl_environment_free(plan->additions);
    plan->additions = NULL;
    PL_TRY(pl_environment_new_empty(&plan->additions, reterr));
    PL_TRY(pl_companion_find(job->self_path, "paceline-sweep", &companion, reterr));
    add_words(job, companion, "--look", pl_launch_plan_add_look(&plan->steps, "looking at the sweep"));
    add_words(job, companion, "--describe", &plan->show);
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    if (plan->role != PL_LAUNCH_PLAN_WORKER) {
        add_words(job, companion, "--run", &plan->argv);
        plan->program_words = 1;
    }
    return PL_OK;
}

static void describe(const struct pl_job *job, const struct pl_launch_plan *plan, struct pl_text *text)
{
    (void)job;
    pl_text_printf(text, "trials on %zu host%s", plan->hosts.count, plan->hosts.count == 1 ? "" : "s");
}

const struct pl_launcher pl_launcher_sweep = {
    .name = "sweep", .needs_link = true, .use_hosts = use_hosts, .plan = make_plan, .describe = describe};
