/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker role: the role of a host that gets the job's result from the master. It runs sshd for the master's
 * session, starts mpirun's daemon when asked, or the host's own program, forwards stop signals and how ranks and
 * programs end, receives the result, leaves no process behind, and exits after the master. If the link is beside the
 * program, the host runs and ends on its own until the master has connected. At the end: what both roles do.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/supervise/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long mpirun's daemon may take to end by itself after the job. */
#define DAEMON_GRACE_NS (PL_NS_PER_S)
/* How long a program that this host started itself may take to notice the end and save, after the master has
 * succeeded. */
#define PROGRAM_GRACE_NS (3 * PL_NS_PER_S)
/* How long the master may take to end after the result: docker compose stops all containers when the first one ends. */
#define MASTER_END_NS (10 * PL_NS_PER_S)
/* The master's session ends before the master: time for the rest of its exit on a busy machine. */
#define AFTER_MASTER_NS (PL_NS_PER_S)
#define PROGRESS_NS (30 * PL_NS_PER_S)

/* How long a host that has failed by itself waits for the master's message about the failure. */
#define MASTER_RESULT_NS (10 * PL_NS_PER_S)

static bool is_beside(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->link == PL_LAUNCH_PLAN_LINK_BESIDE;
}

static const char *master_host(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->hosts.items[0];
}

static void send_exit_report(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    if (supervisor->worker.master &&
        pl_exit_report_send(exit_report, &supervisor->worker.master->link, NULL) != PL_OK) {
        pl_log(PL_LOG_WARNING, "the end of a program on this host was not reported to the master");
    }
}

/* Report to the master whether this host is quiet, and what is known about the connections of its ranks. */
static void notify_state(struct pl_supervisor *supervisor)
{
    const enum pl_apart_state apart = pl_apart_state(&supervisor->apart);
    char number[16];

    if (supervisor->worker.master &&
        (supervisor->watch.quiet != supervisor->hang.told || apart != supervisor->apart.told)) {
        supervisor->hang.told = supervisor->watch.quiet;
        supervisor->apart.told = apart;
        snprintf(number, sizeof(number), "%d", (int)apart);
        PL_SUPERVISE_SEND(supervisor, supervisor->worker.master, PL_FRAME_QUIET, supervisor->watch.quiet ? "1" : "0",
                          number);
    }
}

static void answer_start(struct pl_supervisor *supervisor, const char *text)
{
    PL_SUPERVISE_SEND(supervisor, supervisor->worker.master, PL_FRAME_STARTED, text);
}

/* A rank or the host's own program has ended. The master decides what this means. If the link is beside the program,
 * the host also decides for itself, unless it is outside the launch. */
static void note_own_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    notify_state(supervisor); /* the state goes first, because the end may be the last frame */
    if (exit_report->source == PL_EXIT_SOURCE_RANK) {
        pl_holding_note_end(supervisor, exit_report->rank);
    }
    if (is_beside(supervisor) && !supervisor->plan->is_outside && !pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
    if (!supervisor->worker.result_known) {
        send_exit_report(supervisor, exit_report);
    }
}

static void note_sshd_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    snprintf(supervisor->worker.sshd_words, sizeof(supervisor->worker.sshd_words), "%s", exit_report->tail);
    if (supervisor->worker.result_known || !supervisor->worker.serving) {
        return;
    }
    supervisor->worker.serving = false;
    if (supervisor->worker.refusing) {
        return;
    }
    if (!is_beside(supervisor)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    } else if (!supervisor->worker.joined) {
        pl_exit_report_print(exit_report, 0, PL_FAILURE_SHOWN_BYTES, &text);
        pl_log(PL_LOG_WARNING,
               "this host is not linked to the others: %s. If one fails, the others do not notice; fix the cause, or "
               "set PACELINE_LINK=0 to accept this",
               pl_text_string(&text));
    }
}

static void worker_ended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_exit_report *exit_report)
{
    if (pl_exit_source_in(connection->source, PL_EXIT_SET_MAIN)) {
        supervisor->main_ended = true;
        supervisor->main_report = *exit_report;
        note_own_end(supervisor, exit_report);
    } else if (connection->source == PL_EXIT_SOURCE_RANK) {
        note_own_end(supervisor, exit_report);
    } else if (connection->source == PL_EXIT_SOURCE_DAEMON) {
        send_exit_report(supervisor, exit_report); /* first, because it is more specific */
        if (!connection->begun) {
            answer_start(supervisor, exit_report->note[0] != '\0' ? exit_report->note : "the daemon did not start");
        }
    } else if (connection->source == PL_EXIT_SOURCE_SSHD) {
        note_sshd_end(supervisor, exit_report);
    } else if (pl_exit_source_in(connection->source, PL_EXIT_SET_SERVERS) && !pl_exit_report_ok(exit_report) &&
               !supervisor->worker.result_known) {
        send_exit_report(supervisor, exit_report);
    }
}

/* Find `name` next to the file `program`, if it can be executed. */
static enum pl_status find_sibling(const char *program, const char *name, char **ret_path, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_text_append_n(&path, program, (size_t)(strrchr(program, '/') - program) + 1);
    pl_text_append(&path, name);
    PL_TRY(pl_text_check(&path, reterr));
    if (access(pl_text_string(&path), X_OK) != 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "there is no %s next to '%.200s'", name, program);
    }
    return pl_text_take(&path, ret_path, reterr);
}

/* Find the daemon next to this host's own mpirun, by mpirun's name in PATH or by the file that the name leads to,
 * whatever path the command has. */
static enum pl_status find_daemon(const struct pl_supervisor *supervisor, const char *wanted, char **ret_path,
                                  struct pl_error *reterr)
{
    const char *slash = strrchr(wanted, '/');
    const char *name = slash ? slash + 1 : wanted;
    PL_AUTO_FREE char *mpirun = NULL;
    PL_AUTO_FREE char *real_mpirun = NULL;
    enum pl_status status;

    PL_TRY(pl_file_find_program("mpirun", pl_environment_get(supervisor->environment, "PATH"), &mpirun, reterr));
    status = find_sibling(mpirun, name, ret_path, reterr);
    real_mpirun = status != PL_OK ? realpath(mpirun, NULL) : NULL;
    return real_mpirun && find_sibling(real_mpirun, name, ret_path, NULL) == PL_OK ? PL_OK : status;
}

static enum pl_status start_daemon(struct pl_supervisor *supervisor, const char *text, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;
    PL_AUTO_FREE char *path = NULL;

    PL_TRY(pl_command_split_daemon(text, &command, reterr));
    PL_TRY(find_daemon(supervisor, command.items[0], &path, reterr));
    pl_strv_set(&command, 0, path);
    PL_TRY(pl_strv_check(&command, reterr));
    setup.argv = (const char *const *)command.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = supervisor->plan->cwd;
    return pl_supervise_start(supervisor, PL_EXIT_SOURCE_DAEMON, &setup, NULL, reterr);
}

static void take_start(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    (void)connection;
    if (start_daemon(supervisor, frame->fields[1], &error) != PL_OK) {
        answer_start(supervisor, error.cause);
    }
}

/* Start this host's own program, which some launchers have on every host. It starts when all hosts are linked, which
 * they are when the master has connected. */
static enum pl_status start_own_program(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(pl_supervise_start_sidecars(supervisor, reterr));
    return pl_supervise_start_main(supervisor, reterr);
}

/* Report the ends of programs that happened before the master connected. */
static void report_earlier_ends(struct pl_supervisor *supervisor)
{
    char number[16];

    if (!is_beside(supervisor)) {
        return;
    }
    if (supervisor->failed && supervisor->exit_report_known) {
        send_exit_report(supervisor, &supervisor->exit_report);
    }
    if (supervisor->main_ended) {
        send_exit_report(supervisor, &supervisor->main_report);
    }
    for (size_t i = 0; i < supervisor->holding.count; i++) {
        const struct pl_holding_rank *rank = &supervisor->holding.ranks[i];

        if (!rank->ended) {
            snprintf(number, sizeof(number), "%d", rank->rank);
            PL_SUPERVISE_SEND(supervisor, supervisor->worker.master, PL_FRAME_CATCHES, number,
                              rank->catches ? "1" : "0");
        }
    }
}

/* Report to the master that this host is prepared, and what has happened here before. */
static void welcome_master(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    char processes[16];

    snprintf(processes, sizeof(processes), "%d", supervisor->job->processes_per_host);
    if (PL_LINK_SEND(&connection->link, PL_FRAME_READY, NULL, supervisor->job->current_host, processes) != PL_OK) {
        connection->dropped = true;
        return;
    }
    supervisor->worker.master = connection;
    supervisor->worker.joined = true;
    connection->ready = true;
    pl_supervise_forward_stop(supervisor, connection); /* the stop came before the master connected */
    report_earlier_ends(supervisor);
}

/* A client that has the job's key says that it is the master. The first one is accepted. */
static void accept_master(struct pl_supervisor *supervisor, struct pl_connection *connection,
                          const struct pl_frame *frame)
{
    if (connection == supervisor->worker.master || connection == supervisor->worker.early) {
        return; /* its first frame has been accepted already */
    }
    if (supervisor->worker.leaving) {
        connection->dropped = true;
        return;
    }
    if (supervisor->worker.master || supervisor->worker.early ||
        strcmp(frame->fields[1], master_host(supervisor)) != 0) {
        pl_log(PL_LOG_WARNING,
               "a connection from '%.100s' is refused: the first host of this job is '%s'. Check hosts in "
               "resourceconfig.json",
               frame->fields[1], master_host(supervisor));
        connection->dropped = true;
        return;
    }
    if (supervisor->worker.prepared) {
        welcome_master(supervisor, connection);
    } else {
        supervisor->worker.early = connection;
    }
}

static void take_all_ready(struct pl_supervisor *supervisor, struct pl_connection *connection,
                           const struct pl_frame *frame)
{
    (void)connection;
    (void)frame;
    supervisor->worker.all_ready = true;
}

static void take_begun(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    (void)frame;
    if (connection->source == PL_EXIT_SOURCE_DAEMON) {
        answer_start(supervisor, "");
    }
}

/* Forward a frame of a shim on this host that the master must get. */
static void relay_frame(struct pl_supervisor *supervisor, struct pl_connection *connection,
                        const struct pl_frame *frame)
{
    (void)connection;
    if (frame->type == PL_FRAME_CATCHES) {
        pl_holding_note_answer(supervisor, frame, PL_HOLDING_HERE);
    }
    pl_supervise_send(supervisor, supervisor->worker.master, frame->type, frame->fields, frame->count);
}

static void take_hold(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    (void)connection;
    pl_supervise_write_failure(supervisor, frame->fields[0]);
    if (supervisor->holding.state == PL_STOP_SAVING) {
        pl_stop_go(&supervisor->holding.state, PL_STOP_HELD);
    }
}

static void take_release(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    (void)connection;
    (void)frame;
    if (supervisor->holding.state != PL_STOP_RUNNING) {
        pl_supervise_release(supervisor);
    }
}

static void take_result(struct pl_supervisor *supervisor, struct pl_connection *connection,
                        const struct pl_frame *frame)
{
    (void)connection;
    supervisor->worker.result_known = true;
    supervisor->main_dismissed = supervisor->plan->is_outside;
    if (frame->count >= 2 && strcmp(frame->fields[0], "0") != 0) {
        pl_supervise_fail_as(supervisor, frame->fields[1]);
    }
}

static const struct pl_frame_rule worker_frames[] = {
    {PL_FRAME_HELLO, PL_CONNECTION_MASTER, 2, accept_master},
    {PL_FRAME_READY, PL_CONNECTION_MASTER, 0, take_all_ready},
    {PL_FRAME_START, PL_CONNECTION_MASTER, 2, take_start},
    {PL_FRAME_STOP, PL_CONNECTION_MASTER, 1, pl_supervise_take_stop},
    {PL_FRAME_HOLD, PL_CONNECTION_MASTER, 1, take_hold},
    {PL_FRAME_RELEASE, PL_CONNECTION_MASTER, 0, take_release},
    {PL_FRAME_RESULT, PL_CONNECTION_MASTER, 0, take_result},
    {PL_FRAME_START, PL_CONNECTION_RSH_AGENT, 0, pl_supervise_refuse}, /* mpirun runs on the master */
    {PL_FRAME_BEGUN, PL_CONNECTION_SHIM, 0, take_begun},
    {PL_FRAME_CATCHES, PL_CONNECTION_SHIM, 2, relay_frame},
    {PL_FRAME_SUSPENDED, PL_CONNECTION_SHIM, 2, relay_frame},
};

static void worker_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    if (connection == supervisor->worker.early) {
        supervisor->worker.early = NULL;
    }
    if (connection != supervisor->worker.master) {
        return;
    }
    supervisor->worker.master = NULL;
    if (supervisor->worker.result_known) {
        return;
    }
    if (is_beside(supervisor) && supervisor->stop_number != 0) {
        pl_log(PL_LOG_WARNING, "the master host %s went away: %s; this host saves and ends by itself",
               master_host(supervisor), why);
    } else {
        pl_supervise_fail_lost(supervisor, "the master host", master_host(supervisor), why);
    }
}

static enum pl_status start_sshd(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    enum pl_status status;

    supervisor->worker.begun_ns = pl_clock_now_ns();
    PL_TRY(pl_supervise_open_ssh(supervisor, reterr));
    PL_TRY(pl_sshd_save_hosts(&supervisor->sshd, &supervisor->rundir, supervisor->job->current_host,
                              &supervisor->plan->hosts, reterr));
    status = pl_needs_link(supervisor->job, supervisor->plan, reterr);
    status = status != PL_OK ? status
                             : pl_sshd_server(&supervisor->sshd, supervisor->job, &supervisor->rundir, &argv, reterr);
    if (status != PL_OK && is_beside(supervisor)) {
        return status;
    }
    if (status != PL_OK) {
        pl_strv_done(&argv);
        PL_TRY(pl_disconnect_words(supervisor->job->self_path, supervisor->sshd.port, reterr->cause, &argv, NULL));
        supervisor->worker.refusing = true;
    }
    setup.argv = (const char *const *)argv.items;
    setup.environment =
        /* without the preloaded library of ranks, which has no openpty() */
        pl_environment_strings(supervisor->job->process);
    setup.cwd = "/";
    PL_TRY(pl_supervise_start(supervisor, PL_EXIT_SOURCE_SSHD, &setup, NULL, reterr));
    supervisor->worker.serving = true;
    return status;
}

/* The master did not connect: end sshd. Returns its last line, which may give the reason, or "". */
static const char *end_sshd(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns = pl_deadline_after_ns(DAEMON_GRACE_NS);
    size_t length;
    char *line;

    supervisor->worker.serving = false;
    pl_supervise_signal(supervisor, PL_EXIT_SET(SSHD), SIGTERM);
    while (pl_supervise_runs(supervisor, PL_EXIT_SET(SSHD)) && pl_supervise_wait(supervisor, deadline_ns)) {
    }
    length = strlen(supervisor->worker.sshd_words);
    while (length > 0 && supervisor->worker.sshd_words[length - 1] == '\n') {
        supervisor->worker.sshd_words[--length] = '\0';
    }
    line = strrchr(supervisor->worker.sshd_words, '\n');
    return line ? line + 1 : supervisor->worker.sshd_words;
}

/* Whether the hosts that this one waits for are linked: all hosts if it is to start its program, only the master if it
 * is to report to it. */
static bool has_hosts(const struct pl_supervisor *supervisor)
{
    return supervisor->worker.joined &&
           (supervisor->worker.all_ready || supervisor->failed || supervisor->stop_number != 0);
}

static enum pl_status wait_for_master(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool report_only = supervisor->failed;
    const int64_t begun_ns = pl_clock_now_ns();
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
    const char *words;

    while (!has_hosts(supervisor) && supervisor->failed == report_only &&
           (supervisor->worker.joined || supervisor->worker.serving)) {
        int64_t deadline_ns =
            supervisor->worker.joined ? PL_DEADLINE_NEVER : pl_supervise_join_deadline(supervisor, begun_ns);

        if (pl_deadline_passed(deadline_ns)) {
            if (report_only || supervisor->stop_number != 0) {
                break;
            }
            words = end_sshd(supervisor);
            return pl_error_set(
                reterr, PL_TIMEOUT,
                "the master host %.150s did not connect within %lld s%s%.250s. " PL_SUPERVISE_LOST_ADVICE,
                master_host(supervisor), (long long)(supervisor->join_timeout_ns / PL_NS_PER_S),
                *words != '\0' ? "; sshd's last line here: " : "", words);
        }
        if (pl_deadline_passed(next_log_ns)) {
            pl_log(PL_LOG_INFO, "waiting for the master host %s%s", master_host(supervisor),
                   supervisor->worker.joined ? ", which is waiting for other hosts or preparing its program" : "");
            next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
        }
        PL_TRY(pl_supervise_poll(supervisor, next_log_ns < deadline_ns ? next_log_ns : deadline_ns, reterr));
    }
    return supervisor->failed || supervisor->stop_number == 0 ? PL_OK : PL_CANCELLED;
}

static void watch(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    pl_apart_look(&supervisor->apart, next_ns);
    pl_hang_look(supervisor, next_ns);
    notify_state(supervisor);
}

static enum pl_status wait_for_result(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    while (!supervisor->worker.result_known && !supervisor->failed) {
        int64_t deadline_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_KILL_NS / 2);
        int64_t next_ns = deadline_ns;

        watch(supervisor, &next_ns);
        PL_TRY(pl_supervise_poll(supervisor, next_ns, reterr));
        if (pl_deadline_passed(deadline_ns)) {
            pl_supervise_fail(supervisor, "the job did not end within %lld s after it was asked to stop",
                              (long long)(supervisor->stop_budget_ns / PL_NS_PER_S));
        }
    }
    return PL_OK;
}

/* Returns when a host outside the launch stops waiting for its master, which would wait for this host. */
static int64_t join_end(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->is_outside && supervisor->worker.serving && !supervisor->worker.joined
               ? pl_supervise_join_deadline(supervisor, supervisor->worker.begun_ns)
               : supervisor->worker.begun_ns;
}

/* Whether to wait: a linked host waits for the result from the master, and the master for all other hosts. A host that
 * has succeeded ends no other host. */
static bool worker_waits(const struct pl_supervisor *supervisor)
{
    return !supervisor->worker.result_known && (supervisor->worker.master || !pl_deadline_passed(join_end(supervisor)));
}

static void worker_tick(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    watch(supervisor, next_ns);
    if (!pl_deadline_passed(join_end(supervisor)) && join_end(supervisor) < *next_ns) {
        *next_ns = join_end(supervisor);
    }
    if (!supervisor->worker.master) { /* otherwise the master decides */
        pl_holding_update(supervisor, next_ns);
    }
}

/* Run the host's own program, with the link beside it. */
static enum pl_status run_own_program(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(pl_peers_resolve(supervisor, true, reterr));
    PL_TRY(pl_supervise_check(supervisor));
    if (supervisor->main_dismissed) {
        return PL_OK;
    }
    PL_TRY(pl_supervise_start_main(supervisor, reterr));
    PL_TRY(pl_supervise_wait_main(supervisor, reterr));
    if (supervisor->plan->is_outside && supervisor->main_ended && !supervisor->worker.result_known &&
        !pl_exit_report_ok(&supervisor->main_report)) {
        pl_supervise_fail_exit(supervisor, &supervisor->main_report); /* there is no other result */
    }
    return PL_OK;
}

/* The host's own program has failed: end all processes here, write the failure file, and wait for the master's result,
 * which names the first cause. If the master has not connected, it may only be late: wait for it too. */
static void report_own_failure(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!supervisor->failed || supervisor->worker.result_known ||
        (supervisor->worker.joined && !supervisor->worker.master)) {
        return;
    }
    pl_supervise_failure_text(supervisor, &text);
    /* the platform may end us once it knows of the failure */
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    pl_supervise_kill_all(supervisor, true);
    if (supervisor->worker.serving && !supervisor->worker.joined) {
        pl_log(PL_LOG_INFO, "the job has failed; waiting for the master host %s, to notify it",
               master_host(supervisor));
    }
    while (supervisor->worker.serving && !supervisor->worker.joined &&
           pl_supervise_wait(supervisor, pl_supervise_notify_deadline(supervisor, supervisor->worker.begun_ns))) {
    }
    /* a failure without an exit report is sent to the master next */
    deadline_ns = pl_deadline_after_ns(supervisor->exit_report_known ? MASTER_RESULT_NS : 0);
    while (supervisor->worker.master && !supervisor->worker.result_known &&
           pl_supervise_wait(supervisor, deadline_ns)) {
    }
}

/* This host's own failure is the failure of the job: notify the master. Then end all processes here, report that, and
 * wait for the master to end first. */
static void shut_down(struct pl_supervisor *supervisor)
{
    const bool own_program = supervisor->plan->argv.count > 0;
    int64_t deadline_ns = pl_deadline_after_ns(own_program && !supervisor->failed ? PROGRAM_GRACE_NS : DAEMON_GRACE_NS);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    supervisor->worker.leaving = !supervisor->worker.master;
    if (supervisor->worker.master && !supervisor->worker.result_known) {
        pl_supervise_failure_text(supervisor, &text);
        PL_SUPERVISE_SEND(supervisor, supervisor->worker.master, PL_FRAME_RESULT, "1", pl_text_string(&text));
    }
    if (supervisor->main_dismissed) {
        pl_supervise_signal(supervisor, PL_EXIT_SET(PROGRAM), SIGTERM);
    }
    while (supervisor->worker.result_known &&
           pl_supervise_runs(supervisor, PL_EXIT_SET(DAEMON) | PL_EXIT_SET(PROGRAM) | PL_EXIT_SET(TORCHRUN)) &&
           pl_supervise_wait(supervisor, deadline_ns)) {
    }
    pl_supervise_end_sidecars(supervisor);
    pl_supervise_kill_all(supervisor, true);
    PL_SUPERVISE_SEND(supervisor, supervisor->worker.master, PL_FRAME_DONE, "");
}

static void wait_for_master_exit(struct pl_supervisor *supervisor)
{
    /* The master's own upload may take as long. */
    int64_t upload_ns = supervisor->plan->sync.count > 0 ? supervisor->sync_budget_ns + PL_SUPERVISE_SYNC_GRACE_NS : 0;
    int64_t deadline_ns = pl_deadline_after_ns(MASTER_END_NS + upload_ns);
    bool waited = supervisor->worker.master;

    while (supervisor->worker.master && pl_supervise_wait(supervisor, deadline_ns)) {
    }
    if (waited) {
        pl_clock_nap(AFTER_MASTER_NS, PL_DEADLINE_NEVER);
    }
    pl_supervise_kill_all(supervisor, false);
}

/* Run what cannot start before the master has connected, or only report an earlier failure. */
static enum pl_status run_linked(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(wait_for_master(supervisor, reterr));
    if (!supervisor->failed) {
        PL_TRY(start_own_program(supervisor, reterr));
    }
    return wait_for_result(supervisor, reterr);
}

/* Start sshd, so that the master can link this host while it prepares; then prepare it. */
static enum pl_status prepare(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool can_run_alone = is_beside(supervisor) && !supervisor->failed;
    enum pl_status status = start_sshd(supervisor, reterr);

    PL_TRY(can_run_alone ? pl_supervise_without_link(supervisor, status, reterr) : status);
    PL_TRY(pl_supervise_prepare(supervisor, reterr));
    /* its own program waits for all names; ranks and their daemons need only this one */
    return is_beside(supervisor) || supervisor->failed ? PL_OK : pl_peers_resolve(supervisor, false, reterr);
}

static void drop_link(struct pl_supervisor *supervisor)
{
    pl_supervise_kill_all(supervisor, false);
    pl_supervise_drop(supervisor, PL_CONNECTION_MASTER);
    pl_sshd_close(&supervisor->sshd);
}

static bool runs_alone(const struct pl_supervisor *supervisor)
{
    return is_beside(supervisor) && !supervisor->report_only;
}

static enum pl_status run(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    supervisor->worker.begun_ns = pl_clock_now_ns();
    supervisor->worker.prepared = true;
    if (supervisor->worker.early) {
        welcome_master(supervisor, supervisor->worker.early);
    }
    return runs_alone(supervisor) ? run_own_program(supervisor, reterr) : run_linked(supervisor, reterr);
}

static void finish(struct pl_supervisor *supervisor)
{
    if (runs_alone(supervisor)) {
        report_own_failure(supervisor);
    }
    shut_down(supervisor);
}

static void close_link(struct pl_supervisor *supervisor)
{
    wait_for_master_exit(supervisor);
    pl_sshd_close(&supervisor->sshd);
}

static const struct pl_role worker_role = {.ended = worker_ended,
                                           .frames = worker_frames,
                                           .frames_count = PL_ARRAY_ITEMS(worker_frames),
                                           .gone = worker_gone,
                                           .tick = worker_tick,
                                           .waits = worker_waits,
                                           .prepare = prepare,
                                           .unlink = drop_link,
                                           .run = run,
                                           .finish = finish,
                                           .close = close_link};

int pl_supervise_run(struct pl_supervisor *supervisor)
{
    const bool is_worker = supervisor->plan->role == PL_LAUNCH_PLAN_WORKER;
    struct pl_error error = PL_ERROR_NONE;
    int exit_code = 0;

    supervisor->role = is_worker && supervisor->plan->link != PL_LAUNCH_PLAN_LINK_NONE ? &worker_role : &pl_master_role;
    pl_supervise_fail_status(supervisor, supervisor->role->prepare(supervisor, &error), &error);
    if (supervisor->plan->link == PL_LAUNCH_PLAN_LINK_NONE) { /* the job has this host alone */
        supervisor->role->unlink(supervisor);
        supervisor->role = &pl_master_role;
    }
    supervisor->report_only = supervisor->failed;
    if (supervisor->report_only) { /* the platform may end us once it knows of the failure */
        exit_code = pl_supervise_finish(supervisor);
    }
    pl_supervise_fail_status(supervisor, supervisor->role->run(supervisor, &error), &error);
    supervisor->role->finish(supervisor);
    exit_code = supervisor->report_only ? exit_code : pl_supervise_finish(supervisor);
    pl_supervise_end_sync(supervisor);
    supervisor->role->close(supervisor);
    supervisor->role = NULL;
    return exit_code;
}
