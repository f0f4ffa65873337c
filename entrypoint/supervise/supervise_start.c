/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's programs: what is started from a plan, and steps that run to their end. */
#include "entrypoint/supervise/supervise.h"

#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_GRACE_NS (2 * PL_NS_PER_S)
/* how long before the end of a stop's time uploads are aborted, which the server has to be told */
#define URGE_SYNC_NS (8 * PL_NS_PER_S)

/* How many words of a command a report may show: of the user's program what the plan says, of our own steps all but
 * code after -c. */
static size_t program_words(const struct pl_supervisor *supervisor, enum pl_ending_of of, const char *const *argv)
{
    size_t words = 0;

    switch (of) {
    case PL_ENDING_PROGRAM:
        return supervisor->plan->program_words;
    case PL_ENDING_STEP:
        while (argv[words] != NULL && strcmp(argv[words], "-c") != 0) {
            words++;
        }
        return words;
    case PL_ENDING_RANK:
    case PL_ENDING_LAUNCHER:
    case PL_ENDING_DAEMON:
    case PL_ENDING_SSHD:
    case PL_ENDING_SIDE:
    case PL_ENDING_SYNC:
        break;
    }
    return 1;
}

enum pl_status pl_supervise_start(struct pl_supervisor *supervisor, enum pl_ending_of of,
                                  const struct pl_process_setup *setup, struct pl_party **ret_party,
                                  struct pl_error *reterr)
{
    const struct pl_job_paths *paths = &supervisor->job->paths;
    const char *const disks[] = {paths->output, paths->output_data, paths->model, paths->code,
                                 "/tmp",        "/dev/shm",         NULL};
    struct pl_watch watch = {.of = of,
                             .rank = -1,
                             .host = supervisor->job->current_host,
                             .program_words = program_words(supervisor, of, setup->argv),
                             .setup = *setup,
                             .disks = disks};
    struct pl_party *party;
    enum pl_status status;
    pid_t pid;
    int fd;

    PL_TRY(pl_watch_fork(&watch, supervisor->signals, &pid, &fd, reterr));
    status = pl_supervise_add(supervisor, PL_PARTY_WATCH, fd, &party, reterr);
    if (status != PL_OK) {
        kill(pid, SIGKILL);
        return status;
    }
    party->of = of;
    party->pid = pid;
    if (ret_party != NULL) {
        *ret_party = party;
    }
    return PL_OK;
}

enum pl_status pl_supervise_start_side(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct pl_launch_plan_side *side = supervisor->plan->side;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    if (side == NULL) {
        return PL_OK;
    }
    setup.argv = (const char *const *)side->argv.items;
    setup.environment = pl_environment_strings(side->environment);
    setup.cwd = supervisor->plan->cwd;
    return pl_supervise_start(supervisor, PL_ENDING_SIDE, &setup, NULL, reterr);
}

enum pl_status pl_supervise_start_main(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct pl_launch_plan *plan = supervisor->plan;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    if (plan->argv.count == 0) {
        return PL_OK;
    }
    setup.argv = (const char *const *)plan->argv.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = plan->cwd;
    setup.foreground = !plan->spawns_ranks;
    return pl_supervise_start(supervisor, plan->spawns_ranks ? PL_ENDING_LAUNCHER : PL_ENDING_PROGRAM, &setup, NULL,
                              reterr);
}

void pl_supervise_end_side(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns = pl_deadline_after_ns(SIDE_GRACE_NS);

    pl_supervise_signal(supervisor, PL_ENDING_SIDE, SIGTERM);
    while (pl_supervise_runs(supervisor, PL_ENDING_SIDE) && !pl_deadline_passed(deadline_ns)) {
        if (pl_supervise_turn(supervisor, deadline_ns, NULL) != PL_OK) {
            return;
        }
    }
}

void pl_supervise_start_sync(struct pl_supervisor *supervisor)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (supervisor->plan->sync.count == 0) {
        return;
    }
    setup.argv = (const char *const *)supervisor->plan->sync.items;
    setup.environment = pl_environment_strings(supervisor->job->process);
    setup.cwd = supervisor->job->paths.base;
    setup.keep_blocked = true; /* the stop of a short job must not end it before it has seen what the job wrote */
    if (pl_supervise_start(supervisor, PL_ENDING_SYNC, &setup, NULL, &error) != PL_OK) {
        pl_log_error(&error, "intermediate output is not uploaded");
    }
}

void pl_supervise_end_sync(struct pl_supervisor *supervisor)
{
    int64_t budget_end_ns = pl_deadline_after_ns(supervisor->sync_budget_ns + PL_SUPERVISE_SYNC_GRACE_NS);
    bool urged = false;

    pl_supervise_signal(supervisor, PL_ENDING_SYNC, SIGTERM);
    while (pl_supervise_runs(supervisor, PL_ENDING_SYNC)) {
        /* the stop may come meanwhile */
        int64_t stop_ns = pl_supervise_stop_deadline(supervisor, urged ? PL_SUPERVISE_KILL_NS : URGE_SYNC_NS);
        int64_t deadline_ns = stop_ns < budget_end_ns ? stop_ns : budget_end_ns;

        if (pl_deadline_passed(deadline_ns)) {
            if (urged || pl_deadline_passed(budget_end_ns)) {
                break;
            }
            urged = true;
            pl_supervise_signal(supervisor, PL_ENDING_SYNC, SIGINT);
        } else if (pl_supervise_turn(supervisor, deadline_ns, NULL) != PL_OK) {
            break;
        }
    }
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        struct pl_party *party = supervisor->parties[i];

        if (party->kind == PL_PARTY_WATCH && party->of == PL_ENDING_SYNC && !party->ended) {
            pl_log(PL_LOG_WARNING, "intermediate output was not uploaded in time");
            party->ended = true;
            kill(party->pid, SIGKILL);
        }
    }
}

struct step_state {
    const struct pl_launch_plan_step *step;
    const struct pl_party *party;
    bool ended;
    bool ok;
};

static void step_ended(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_ending *ending)
{
    struct step_state *state = supervisor->state;

    if (party != state->party) {
        return;
    }
    state->ended = true;
    state->ok = pl_ending_ok(ending);
    if (!state->ok && !state->step->is_question) {
        pl_supervise_fail_by(supervisor, ending);
    }
}

enum pl_status pl_supervise_step(struct pl_supervisor *supervisor, const struct pl_launch_plan_step *step,
                                 char *const *environment, struct pl_error *reterr)
{
    static const struct pl_role role = {.ended = step_ended};
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    const struct pl_role *outer_role = supervisor->role;
    void *outer_state = supervisor->state;
    const bool failed_before = supervisor->failed, stopped_before = supervisor->stop_number != 0;
    enum pl_status status;
    struct step_state state = {.step = step};
    struct pl_party *party = NULL;

    supervisor->role = &role;
    supervisor->state = &state;
    setup.argv = (const char *const *)step->argv.items;
    setup.environment = environment;
    setup.cwd = step->cwd != NULL ? step->cwd : supervisor->job->paths.base;
    pl_log(step->is_question ? PL_LOG_DEBUG : PL_LOG_INFO, "%s", step->what);
    status = pl_supervise_start(supervisor, PL_ENDING_STEP, &setup, &party, reterr);
    state.party = party;
    while (status == PL_OK && !state.ended) {
        int64_t deadline_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_KILL_NS);

        status = pl_supervise_turn(supervisor, deadline_ns, reterr);
        if (pl_deadline_passed(deadline_ns)) {
            break;
        }
    }
    pl_supervise_sweep(supervisor, false);
    supervisor->role = outer_role;
    supervisor->state = outer_state;
    PL_TRY(status);
    if (supervisor->stop_number != 0 && !stopped_before) {
        return PL_CANCELLED;
    }
    if (supervisor->failed && !failed_before) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_ending_report(&supervisor->ending, PL_FAILURE_SHOWN_BYTES - strlen(step->what) - 2, &text);
        snprintf(supervisor->reason, sizeof(supervisor->reason), "%s: %s", step->what, pl_text_string(&text));
        supervisor->ending_known = false;
        return PL_FAILED;
    }
    return state.ok ? PL_OK : step->is_question ? PL_NOT_FOUND : PL_FAILED;
}

enum pl_status pl_supervise_open_ssh(struct pl_supervisor *supervisor, struct pl_sshd *sshd, struct pl_error *reterr)
{
    struct pl_launch_plan_step step;
    enum pl_status status = pl_sshd_plan_keys(supervisor->job, &supervisor->rundir, &step, reterr);

    if (status == PL_OK && step.what != NULL) {
        status = pl_supervise_step(supervisor, &step, pl_environment_strings(supervisor->environment), reterr);
    }
    if (status == PL_CANCELLED &&
        pl_supervise_step(supervisor, &step, pl_environment_strings(supervisor->environment), NULL) == PL_OK) {
        /* the stop ended it like a program; without keys the other hosts could not be notified of the stop */
        status = PL_OK;
    }
    free(step.what);
    pl_words_done(&step.argv);
    PL_TRY(status);
    return pl_sshd_open(sshd, supervisor->job, &supervisor->rundir, reterr);
}
