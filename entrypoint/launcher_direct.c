/* SPDX-License-Identifier: Apache-2.0 */
/* One process on this host. */
#include "entrypoint/launcher.h"

static bool matches(const struct pl_job *job)
{
    (void)job;
    return true;
}

static enum pl_status make_plan(const struct pl_job *job, struct pl_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_PROGRAM struct pl_program program = {.kind = PL_PROGRAM_COMMAND};

    PL_TRY(pl_words_add(&plan->hosts, job->current_host, reterr));
    plan->role = PL_PLAN_SINGLE;
    plan->processes = 1;
    PL_TRY(pl_program_find(job, &program, plan, reterr));
    return pl_program_use(job, &program, plan, reterr);
}

const struct pl_launcher pl_launcher_direct = {.name = "direct", .matches = matches, .plan = make_plan};
