/* SPDX-License-Identifier: Apache-2.0 */
/* Takes over the plan, and starts programs: the plan's own, steps that run to their end, and the report of a hang. */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/supervise/blas.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* how long before the end of a stop's time uploads are aborted: the server must be told */
#define ABORT_SYNC_NS (8 * PL_NS_PER_S)

enum { SPARE_FILES = 256 };

/*
 * The directory in which Open MPI 5 keeps its files. By default this is a directory in /tmp whose name has the host and
 * the process number, and Open MPI refuses to start if it exists. It exists if a container was killed and started
 * again, because its processes have the same numbers.
 */
#define OPENMPI5_FILES_VARIABLE "PRTE_MCA_prte_tmpdir_base"

/* Open the run directory and put into it the name by which torchrun starts ranks. */
static enum pl_status open_rundir(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                                  struct pl_error *reterr)
{
    char link[PL_RUNDIR_PATH_BYTES + sizeof(PL_RUNDIR_PYTHON)];

    if (supervisor->rundir.path[0] == '\0') {
        PL_TRY(pl_rundir_open(&supervisor->rundir, reterr));
    }
    snprintf(link, sizeof(link), "%s/" PL_RUNDIR_FIFOS, supervisor->rundir.path);
    pl_file_remove_tree(link); /* left by a program that ran before */
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_TORCHRUN) {
        snprintf(link, sizeof(link), "%s/" PL_RUNDIR_PYTHON, supervisor->rundir.path);
        if (symlink(supervisor->job->self_path, link) != 0) {
            return pl_error_errno(reterr, "make the link '%s'", link);
        }
    }
    return PL_OK;
}

/* Whether the job itself says where Open MPI's files lie: in a variable, or among the options for mpirun. */
static bool names_openmpi_files(const struct pl_job *job, const char *name)
{
    static const char options[] = "sagemaker_mpi_custom_mpi_options";
    const struct pl_python_json *custom = pl_python_json_member(job->framework, options);
    bool found =
        custom && pl_python_json_kind(custom) == PL_PYTHON_JSON_STRING && strstr(pl_python_json_text(custom), name);

    PL_PYTHON_JSON_EACH(item, job->drivers.mpi_options) {
        found = found || strstr(pl_python_json_text(item), name);
    }
    for (char *const *at = pl_environment_strings(job->process); *at; at++) {
        found = found || (strncmp(*at, "OMPI_MCA_", 9) == 0 && strstr(*at, name));
    }
    return found;
}

/* If another attempt may follow, a killed Open MPI must leave nothing: its files (those of Open MPI 5 in any case) and
 * its shared memory lie in directories that are removed with this one. */
static enum pl_status set_openmpi_files(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    static const char *const memory[] = {"OMPI_MCA_btl_vader" PL_RUNDIR_MEMORY_END,
                                         "OMPI_MCA_btl_sm" PL_RUNDIR_MEMORY_END, "OMPI_MCA_osc_sm" PL_RUNDIR_MEMORY_END,
                                         "OMPI_MCA_osc_rdma" PL_RUNDIR_MEMORY_END};
    const struct pl_launch_plan *plan = supervisor->plan;
    struct pl_environment *environment = supervisor->environment;
    const char *path = supervisor->rundir.path;

    if (!pl_environment_get(plan->environment, OPENMPI5_FILES_VARIABLE)) {
        PL_TRY(pl_environment_set(environment, OPENMPI5_FILES_VARIABLE, path, reterr));
    }
    if (plan->restarts > 0 && plan->role != PL_LAUNCH_PLAN_WORKER &&
        !names_openmpi_files(supervisor->job, "tmpdir_base")) { /* a worker's daemon: start_daemon() of frames.c */
        PL_TRY(pl_environment_set(environment, "OMPI_MCA_" PL_RUNDIR_MPIRUN_FILES, path, reterr));
    }
    if (plan->restarts > 0 && !names_openmpi_files(supervisor->job, PL_RUNDIR_MEMORY_END)) {
        pl_rundir_open_memory(&supervisor->rundir);
        for (size_t i = 0; i < PL_ARRAY_ITEMS(memory) && supervisor->rundir.memory[0] != '\0'; i++) {
            PL_TRY(pl_environment_set(environment, memory[i], supervisor->rundir.memory, reterr));
        }
    }
    return PL_OK;
}

/* torchrun starts its ranks by the program in PYTHON_EXEC; the rank's shim finds the real interpreter. */
static enum pl_status use_own_python(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const char *before = pl_environment_get(supervisor->environment, "PYTHON_EXEC");
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (before) {
        PL_TRY(pl_environment_set(supervisor->environment, PL_RUNDIR_PYTHON_VARIABLE, before, reterr));
    }
    PL_TRY(pl_text_set(&path, reterr, "%s/" PL_RUNDIR_PYTHON, supervisor->rundir.path));
    return pl_environment_set(supervisor->environment, "PYTHON_EXEC", pl_text_string(&path), reterr);
}

/* A session needs two descriptors, a rank of this host at most two; the spare ones are for everything else. */
static void raise_files(struct pl_supervisor *supervisor)
{
    const size_t hosts = supervisor->plan->hosts.count + supervisor->plan->outside_hosts.count;
    const size_t programs = (size_t)supervisor->job->processes_per_host + 1;
    const size_t count = SPARE_FILES + 2 * (hosts + programs);

    if (!pl_signals_raise_files(supervisor->signals, count)) {
        pl_log(PL_LOG_WARNING,
               "process 1 may run out of descriptors: it needs about %zu for %zu hosts and %zu programs here, and the "
               "hard limit is lower; start the container with docker run --ulimit nofile=65536",
               count, hosts, programs);
    }
}

static void set_link_and_role(struct pl_supervisor *supervisor, enum pl_launch_plan_link link)
{
    supervisor->link_kind = link;
    supervisor->role = link == PL_LAUNCH_PLAN_LINK_NONE || supervisor->plan->role != PL_LAUNCH_PLAN_WORKER
                           ? PL_HOST_MASTER
                       : link == PL_LAUNCH_PLAN_LINK_BESIDE ? PL_HOST_WORKER
                                                            : PL_HOST_LED;
}

enum pl_status pl_supervise_link(struct pl_supervisor *supervisor, struct pl_launch_plan *plan, struct pl_error *reterr)
{
    enum pl_status status;

    supervisor->plan = plan;
    set_link_and_role(supervisor, plan->link);
    if (plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        return PL_OK;
    }
    PL_TRY(pl_environment_new_copy(plan->environment, &supervisor->environment, reterr));
    raise_files(supervisor);
    status = pl_rundir_open(&supervisor->rundir, reterr);
    if (status == PL_OK) {
        return pl_links_begin(supervisor, reterr);
    }
    if (supervisor->outcome.failed || plan->link == PL_LAUNCH_PLAN_LINK_NEEDED) {
        return status;
    }
    /* pl_supervise_set_plan() needs the directory too, and warns */
    set_link_and_role(supervisor, PL_LAUNCH_PLAN_LINK_NONE);
    return PL_OK;
}

enum pl_status pl_supervise_set_plan(struct pl_supervisor *supervisor, struct pl_launch_plan *plan,
                                     struct pl_error *reterr)
{
    enum pl_status status;

    supervisor->plan = plan;
    supervisor->ranks = plan->ranks;
    set_link_and_role(supervisor, plan->link);
    supervisor->seen.watch.hang_ns = plan->runs_jobs ? 0 : supervisor->seen.watch.hang_ns;
    raise_files(supervisor);
    pl_environment_free(supervisor->environment);
    supervisor->environment = NULL;
    PL_TRY(pl_environment_new_copy(plan->environment, &supervisor->environment, reterr));
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE && plan->link == PL_LAUNCH_PLAN_LINK_NONE &&
        supervisor->seen.watch.hang_ns == 0 && plan->restarts == 0) {
        return PL_OK;
    }
    status = open_rundir(supervisor, plan, reterr);
    if (status == PL_OK) {
        status = pl_restart_give_opened(supervisor, reterr);
    }
    if (status == PL_OK && plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN) {
        status = set_openmpi_files(supervisor, reterr);
    }
    if (status == PL_OK) {
        status = pl_rundir_save_environment(&supervisor->rundir, supervisor->environment, reterr);
    }
    if (status == PL_OK) {
        status = pl_watch_prepare(&supervisor->seen.watch, supervisor->job, &supervisor->rundir,
                                  plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE, supervisor->environment, reterr);
    }
    if (status != PL_OK) {
        pl_rundir_close(&supervisor->rundir);
        if (plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN || plan->link == PL_LAUNCH_PLAN_LINK_NEEDED) {
            return status;
        }
        pl_log_error(reterr, "the job runs without a link between its hosts, without reports of its ranks, and without "
                             "a watch for hangs");
        supervisor->ranks = PL_LAUNCH_PLAN_RANKS_NONE;
        set_link_and_role(supervisor, PL_LAUNCH_PLAN_LINK_NONE);
        supervisor->seen.watch.hang_ns = 0;
        pl_environment_unset(supervisor->environment, PL_RUNDIR_FIFOS_VARIABLE);
        return PL_OK;
    }
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN) {
        PL_TRY(pl_environment_set(supervisor->environment, PL_RUNDIR_PIPES_VARIABLE, "1", reterr));
    }
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_TORCHRUN) {
        PL_TRY(use_own_python(supervisor, reterr));
    }
    return pl_environment_set(supervisor->environment, PL_RUNDIR_VARIABLE, supervisor->rundir.path, reterr);
}

/* Returns how many words of a command a report may show: for the user's program the number in the plan, for our own
 * steps all words before -c, which is followed by code. */
static size_t program_words(const struct pl_supervisor *supervisor, enum pl_process_kind kind, const char *const *argv)
{
    size_t words = 0;

    if (kind != PL_PROCESS_STEP) {
        return pl_process_kind_in(kind, PL_PROCESS_SET_MAIN) ? supervisor->plan->program_words : 1;
    }
    while (argv[words] && strcmp(argv[words], "-c") != 0) {
        words++;
    }
    return words;
}

/* Parameter servers and the program that they serve write to one log, so their output is written in whole lines. A
 * program that is alone shares its log with no other: its stdout passes only because of progress bars. */
static enum pl_shim_stdout stdout_of(const struct pl_supervisor *supervisor, enum pl_process_kind kind)
{
    if (!pl_process_kind_in(kind, PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET_SERVERS)) {
        return PL_SHIM_STDOUT_OWN;
    }
    return supervisor->plan->side                                  ? PL_SHIM_STDOUT_LINES
           : supervisor->job->settings.progress_ns == PL_BARS_KEEP ? PL_SHIM_STDOUT_OWN
                                                                   : PL_SHIM_STDOUT_ALONE;
}

/* Ranks have shims of their own, which search what ranks print. mpirun prints no exception itself; torchrun may. */
static enum pl_cause_lines searched_of(const struct pl_supervisor *supervisor, enum pl_process_kind kind)
{
    return supervisor->ranks == PL_LAUNCH_PLAN_RANKS_NONE ? PL_CAUSE_ALL
           : kind == PL_PROCESS_LAUNCHER                  ? PL_CAUSE_NONE
           : kind == PL_PROCESS_TORCHRUN                  ? PL_CAUSE_UNTAGGED
                                                          : PL_CAUSE_ALL;
}

enum pl_status pl_supervise_start(struct pl_supervisor *supervisor, enum pl_process_kind kind,
                                  const struct pl_process_setup *setup, struct pl_connection **ret_connection,
                                  struct pl_error *reterr)
{
    const struct pl_job_paths *paths = &supervisor->job->paths;
    const char *const disks[] = {paths->output, paths->output_data, paths->model, paths->code,
                                 "/tmp",        "/dev/shm",         NULL};
    struct pl_shim_options options = {.kind = kind,
                                      .stdout_as = stdout_of(supervisor, kind),
                                      .searched = searched_of(supervisor, kind),
                                      .without_blocks = kind == PL_PROCESS_LAUNCHER && !pl_log_shows(PL_LOG_DEBUG),
                                      .rank = -1,
                                      .host = supervisor->job->current_host,
                                      .progress_ns = supervisor->job->settings.progress_ns,
                                      .program_words = program_words(supervisor, kind, setup->argv),
                                      .setup = *setup,
                                      .disks = disks};
    struct pl_connection *connection;
    enum pl_status status;
    pid_t pid;
    int fd;

    PL_TRY(pl_shim_fork(&options, supervisor->signals, &pid, &fd, reterr));
    status = pl_supervise_add(supervisor, PL_CONNECTION_SHIM, fd, &connection, reterr);
    if (status != PL_OK) {
        kill(pid, SIGKILL);
        return status;
    }
    connection->process_kind = kind;
    connection->pid = pid;
    if (ret_connection) {
        *ret_connection = connection;
    }
    return PL_OK;
}

static enum pl_status start_sidecars(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    for (const struct pl_sidecar *side = supervisor->plan->side; side; side = side->next) {
        if (side->is_split && supervisor->ranks == PL_LAUNCH_PLAN_RANKS_NONE) {
            continue; /* without the run directory ranks have no FIFOs of their own */
        }
        setup.argv = (const char *const *)side->argv.items;
        setup.environment = pl_environment_strings(side->environment ? side->environment : supervisor->environment);
        setup.cwd = supervisor->plan->cwd;
        PL_TRY(pl_supervise_start(supervisor,
                                  side->is_split    ? PL_PROCESS_SPLIT
                                  : side->is_worker ? PL_PROCESS_WORKER_SERVER
                                                    : PL_PROCESS_SIDECAR,
                                  &setup, NULL, reterr));
    }
    return PL_OK;
}

/* Remove options that `paceline plan` prints because the toolkit has them, but whose output the log need not have. */
static void adapt_mpirun(struct pl_supervisor *supervisor)
{
    if (supervisor->ranks != PL_LAUNCH_PLAN_RANKS_MPIRUN) {
        return;
    }
    if (!pl_log_shows(PL_LOG_DEBUG)) {
        pl_mpi_options_remove_map(&supervisor->plan->argv);
    }
    if (strcmp(supervisor->job->settings.rank_tags, "auto") != 0) {
        pl_mpi_options_remove_tags(&supervisor->plan->argv);
    }
}

enum pl_status pl_supervise_start_main(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    static const enum pl_process_kind kinds[] = {[PL_LAUNCH_PLAN_RANKS_NONE] = PL_PROCESS_PROGRAM,
                                                 [PL_LAUNCH_PLAN_RANKS_MPIRUN] = PL_PROCESS_LAUNCHER,
                                                 [PL_LAUNCH_PLAN_RANKS_TORCHRUN] = PL_PROCESS_TORCHRUN};
    const struct pl_launch_plan *plan = supervisor->plan;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    PL_TRY(start_sidecars(supervisor, reterr));
    if (plan->argv.count == 0) {
        return PL_OK;
    }
    adapt_mpirun(supervisor);
    setup.argv = (const char *const *)plan->argv.items;
    if (plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE) { /* ranks get the variable from `paceline rank` */
        PL_TRY(pl_blas_set_core(setup.argv, supervisor->environment, reterr));
    }
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = plan->cwd;
    setup.foreground = plan->ranks == PL_LAUNCH_PLAN_RANKS_NONE;
    supervisor->main.started = true;
    return pl_supervise_start(supervisor, kinds[plan->ranks], &setup, NULL, reterr);
}

void pl_supervise_end(struct pl_supervisor *supervisor, unsigned kinds, int number, int64_t grace_ns)
{
    const int64_t deadline_ns = pl_deadline_after_ns(grace_ns);

    if (number != 0) {
        pl_supervise_signal(supervisor, kinds, number);
    }
    while (pl_supervise_runs(supervisor, kinds) && pl_supervise_wait(supervisor, deadline_ns)) {
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
    /* the stop of a short job must not end the upload before it has seen what the job wrote */
    setup.keep_blocked = true;
    if (pl_supervise_start(supervisor, PL_PROCESS_SYNC, &setup, NULL, &error) != PL_OK) {
        pl_log_error(&error, "intermediate output is not uploaded");
    }
}

void pl_supervise_end_sync(struct pl_supervisor *supervisor)
{
    int64_t budget_end_ns =
        pl_deadline_after_ns(supervisor->job->settings.intermediate_ns + PL_SUPERVISE_SYNC_GRACE_NS);
    bool aborting = false;

    pl_supervise_signal(supervisor, PL_PROCESS_SET(SYNC), SIGTERM);
    while (pl_supervise_runs(supervisor, PL_PROCESS_SET(SYNC))) {
        /* a stop may begin during the wait */
        int64_t stop_ns = pl_supervise_stop_deadline(supervisor, aborting ? PL_SUPERVISE_KILL_NS : ABORT_SYNC_NS);
        int64_t deadline_ns = stop_ns < budget_end_ns ? stop_ns : budget_end_ns;

        if (pl_deadline_passed(deadline_ns)) {
            if (aborting || pl_deadline_passed(budget_end_ns)) {
                break;
            }
            aborting = true;
            pl_supervise_signal(supervisor, PL_PROCESS_SET(SYNC), SIGINT);
        } else if (pl_supervise_poll(supervisor, deadline_ns, NULL) != PL_OK) {
            break;
        }
    }
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && connection->process_kind == PL_PROCESS_SYNC &&
            connection->state <= PL_CONNECTION_READY) {
            pl_log(PL_LOG_WARNING, "intermediate output was not uploaded in time");
            pl_connection_go(&connection->state, PL_CONNECTION_ENDED);
            kill(connection->pid, SIGKILL);
        }
    }
}

enum pl_status pl_supervise_may_go_on(const struct pl_supervisor *supervisor)
{
    return supervisor->outcome.failed ? PL_FAILED : supervisor->stop.number != 0 ? PL_CANCELLED : PL_OK;
}

enum pl_status pl_supervise_step(struct pl_supervisor *supervisor, const struct pl_launch_plan_step *step,
                                 char *const *environment, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    const bool failed_before = supervisor->outcome.failed, stopped_before = supervisor->stop.number != 0;
    struct pl_waiter waiter = {.over = false};
    struct pl_connection *connection = NULL;
    bool ok, fails; /* fails: the job, because of this step */
    enum pl_status status;

    setup.argv = (const char *const *)step->argv.items;
    setup.environment = environment;
    setup.cwd = step->cwd ? step->cwd : supervisor->job->paths.base;
    /* the stdout of `paceline plan` is for its JSON */
    setup.stdout_fd = step->only_looks ? STDERR_FILENO : setup.stdout_fd;
    pl_log(step->is_long ? PL_LOG_INFO : PL_LOG_DEBUG, "%s", step->what);
    status = pl_supervise_start(supervisor, PL_PROCESS_STEP, &setup, &connection, reterr);
    if (status == PL_OK) {
        connection->waiter = &waiter;
    }
    while (status == PL_OK && !waiter.over && supervisor->outcome.failed == failed_before) {
        int64_t deadline_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_KILL_NS);

        status = pl_supervise_poll(supervisor, deadline_ns, reterr);
        if (pl_deadline_passed(deadline_ns)) {
            break;
        }
    }
    ok = waiter.over && pl_exit_report_ok(&waiter.exit_report);
    fails = waiter.over && !ok && !step->is_probe && !supervisor->outcome.failed;
    if (fails) {
        pl_supervise_fail_exit(supervisor, &waiter.exit_report);
    }
    pl_supervise_kill_all(supervisor, true);
    PL_TRY(status);
    if (supervisor->stop.number != 0 && !stopped_before) {
        return PL_CANCELLED;
    }
    if (fails) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_exit_report_print_step(&waiter.exit_report, step->what, PL_FAILURE_SHOWN_BYTES, &text);
        snprintf(supervisor->outcome.reason, sizeof(supervisor->outcome.reason), "%s", pl_text_string(&text));
        supervisor->outcome.exit_report_known = false;
        return PL_FAILED;
    }
    if (supervisor->outcome.failed && !failed_before) {
        return PL_FAILED;
    }
    return ok ? PL_OK : step->is_probe ? PL_NOT_FOUND : PL_FAILED;
}

enum pl_status pl_supervise_steps(struct pl_supervisor *supervisor, const struct pl_launch_plan_steps *steps,
                                  const struct pl_environment *environment, struct pl_error *reterr)
{
    for (size_t i = 0; i < steps->count; i++) {
        PL_AUTO_ENVIRONMENT struct pl_environment *own = NULL;

        PL_TRY(pl_supervise_may_go_on(supervisor));
        PL_TRY(pl_environment_new_copy(environment, &own, reterr));
        if (steps->items[i].additions) {
            PL_TRY(pl_environment_add(own, steps->items[i].additions, reterr));
        }
        PL_TRY(pl_supervise_step(supervisor, &steps->items[i], pl_environment_strings(own), reterr));
    }
    return PL_OK;
}

static bool is_on(const struct pl_supervisor *supervisor)
{
    return supervisor->seen.watch.hang_ns > 0 && !supervisor->outcome.failed && supervisor->stop.number == 0 &&
           !supervisor->main.ended;
}

static double hang_s(const struct pl_supervisor *supervisor)
{
    return (double)supervisor->seen.watch.hang_ns / (double)PL_NS_PER_S;
}

void pl_hang_look(struct pl_supervisor *supervisor)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    if (supervisor->state == PL_HOST_RUNNING && is_on(supervisor)) {
        pl_watch_look(&supervisor->seen.watch, pl_supervise_runs(supervisor, PL_PROCESS_SET(STACKS)), &next_ns);
        PL_TIMER_SET(supervisor, WATCH, next_ns);
        pl_hang_decide(supervisor);
    }
}

static enum pl_status start_report(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_FREE char *path = NULL;
    char own[16];

    supervisor->seen.watch.rebase = true;
    PL_TRY(pl_companion_find(supervisor->job->self_path, PL_WATCH_REPORTER, &path, reterr));
    snprintf(own, sizeof(own), "%d", (int)getpid());
    setup.argv = (const char *const[]){path, "--below", own, "--log", supervisor->job->current_host, NULL};
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = "/";
    return pl_supervise_start(supervisor, PL_PROCESS_STACKS, &setup, NULL, reterr);
}

/* Do what the settings ask for after a hang. The line at `place` says what the first program of the report does; "" if
 * that is not known. */
static void end_job(struct pl_supervisor *supervisor, const char *place)
{
    if (!is_on(supervisor)) {
        return;
    }
    if (!supervisor->seen.watch.ends) {
        pl_log(PL_LOG_WARNING, "the job keeps running; with PACELINE_HANG_ACTION=end it ends");
        return;
    }
    supervisor->outcome.hangs = !supervisor->outcome.failed;
    pl_supervise_fail(
        supervisor,
        "the job hangs, nothing has happened on any rank for %.0f s%s%.*s\n"
        "Next: find out why %s does not return; the log has the stacks of all ranks. If it is only slow, set the "
        "hyperparameter paceline_hang_s to more seconds; paceline_hang_action=end is what has ended the job.",
        hang_s(supervisor), place[0] != '\0' ? "; " : "", (int)strcspn(place, "\n"), place,
        place[0] != '\0' ? "the first call named here" : "the program");
}

/* Whether all other hosts are quiet. A host that is not linked does not count as quiet, because nothing is known about
 * it. */
static bool others_are_quiet(const struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (!session->outside &&
            (session->state < PL_SESSION_LINKED ||
             (!session->quiet && session->state != PL_SESSION_IDLE && session->state != PL_SESSION_DONE))) {
            return false;
        }
    }
    return true;
}

void pl_hang_decide(struct pl_supervisor *supervisor)
{
    struct pl_watch *hang = &supervisor->seen.watch;
    struct pl_error error = PL_ERROR_NONE;

    if (supervisor->role != PL_HOST_MASTER) {
        pl_links_send_quiet(supervisor);
        return;
    }
    if (!is_on(supervisor) || !supervisor->seen.watch.quiet || !others_are_quiet(supervisor)) {
        hang->reported = hang->reported && pl_supervise_runs(supervisor, PL_PROCESS_SET(STACKS));
        return;
    }
    if (hang->reported) {
        return;
    }
    hang->reported = true;
    pl_log(PL_LOG_WARNING,
           "the job hangs: no rank has made progress for %.0f s (PACELINE_HANG_S): no output, no other input or "
           "output, no collective, no record. What each rank is doing, the one that differs first:",
           hang_s(supervisor));
    if (start_report(supervisor, &error) != PL_OK) {
        pl_log_error(&error, "cannot show what the ranks are doing");
        end_job(supervisor, "");
    }
}

void pl_hang_note_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const char *tail = exit_report->tail;
    const size_t bytes = strlen(tail);
    const char *before = bytes > 0 ? memrchr(tail, '\n', bytes - 1) : NULL;

    PL_TIMER_WAKE(supervisor, WATCH);
    end_job(supervisor, !pl_exit_report_ok(exit_report) ? "" : before ? before + 1 : tail);
}
