/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker role, of a host that gets the job's result from the master: run sshd for the master's session, start
 * mpirun's daemon when asked or the host's own program, forward how ranks and programs end and stop signals, receive
 * the result, leave no process running, exit after the master. Where the link is beside the program, the host runs and
 * ends by itself until the master has come.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/needs.h"
#include "entrypoint/ssh/command.h"
#include "entrypoint/ssh/disconnect.h"
#include "entrypoint/supervise/peers.h"
#include "entrypoint/supervise/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* mpirun's daemon ends by itself when the job does. */
#define DAEMON_GRACE_NS (PL_NS_PER_S)
/* Time for a program that this host started itself to notice the end and save, once the master has succeeded. */
#define PROGRAM_GRACE_NS (3 * PL_NS_PER_S)
/* After the result: how long the master may take to end; docker compose stops everything when the first container
 * ends. */
#define MASTER_END_NS (10 * PL_NS_PER_S)
/* its session ends before it does: time for the rest of its exit on a busy machine */
#define AFTER_MASTER_NS (PL_NS_PER_S)
#define PROGRESS_NS (30 * PL_NS_PER_S)

/* A host that has failed by itself waits so long for what the master says of it. */
#define MASTER_RESULT_NS (10 * PL_NS_PER_S)

struct worker_state {
    struct pl_sshd sshd;
    struct pl_connection *master;
    struct pl_connection *early; /* the master's, until this host is prepared */
    bool prepared;
    bool joined, result_known;
    bool all_ready;                             /* the master has said that all hosts are there */
    bool leaving;                               /* without the master: one that comes now is not taken */
    bool serving;                               /* sshd runs here, */
    bool refusing;                              /* or what says in its place why it cannot */
    int64_t begun_ns;                           /* when it was started */
    char sshd_words[PL_EXIT_REPORT_TAIL_BYTES]; /* its last lines, once it has ended */
};

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
    const struct worker_state *state = supervisor->state;

    if (state->master && pl_exit_report_send(exit_report, &state->master->link, NULL) != PL_OK) {
        pl_log(PL_LOG_WARNING, "the master was not told how a program ended here");
    }
}

/* Whether nothing happens here any more, or something does again, and what is known of the ranks' connections. */
static void notify_state(struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;
    const enum pl_apart_state apart = pl_apart_state(&supervisor->apart);
    char number[16];

    if (state->master && (supervisor->watch.quiet != supervisor->hang.told || apart != supervisor->apart.told)) {
        supervisor->hang.told = supervisor->watch.quiet;
        supervisor->apart.told = apart;
        snprintf(number, sizeof(number), "%d", (int)apart);
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_QUIET, supervisor->watch.quiet ? "1" : "0", number);
    }
}

static void answer_start(struct pl_supervisor *supervisor, const char *text)
{
    const struct worker_state *state = supervisor->state;

    if (state->master) {
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_STARTED, text);
    }
}

/* A rank or the host's own program has ended: the master says what that means, and where the link is beside the
 * program, the host itself too, unless it is outside the launch. */
static void note_own_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    const struct worker_state *state = supervisor->state;

    notify_state(supervisor); /* before the end that it may be known by */
    if (exit_report->source == PL_EXIT_SOURCE_RANK) {
        pl_holding_note_end(supervisor, exit_report->rank);
    }
    if (is_beside(supervisor) && !supervisor->plan->is_outside && !pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
    if (!state->result_known) {
        send_exit_report(supervisor, exit_report);
    }
}

static void note_sshd_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    struct worker_state *state = supervisor->state;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    snprintf(state->sshd_words, sizeof(state->sshd_words), "%s", exit_report->tail);
    if (state->result_known || !state->serving) {
        return;
    }
    state->serving = false;
    if (state->refusing) {
        return;
    }
    if (!is_beside(supervisor)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    } else if (!state->joined) {
        pl_exit_report_print(exit_report, PL_FAILURE_SHOWN_BYTES, &text);
        pl_log(PL_LOG_WARNING, "this host is not linked to the others, so that none is told how another ends: %s",
               pl_text_string(&text));
    }
}

static void worker_ended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_exit_report *exit_report)
{
    struct worker_state *state = supervisor->state;

    switch (connection->source) {
    case PL_EXIT_SOURCE_RANK:
        note_own_end(supervisor, exit_report);
        break;
    case PL_EXIT_SOURCE_DAEMON:
        send_exit_report(supervisor, exit_report); /* first, since it is more specific */
        if (!connection->begun) {
            answer_start(supervisor, exit_report->note[0] != '\0' ? exit_report->note : "the daemon did not start");
        }
        break;
    case PL_EXIT_SOURCE_SSHD:
        note_sshd_end(supervisor, exit_report);
        break;
    case PL_EXIT_SOURCE_PROGRAM:
    case PL_EXIT_SOURCE_AGENT:
        supervisor->main_ended = true;
        supervisor->main_report = *exit_report;
        note_own_end(supervisor, exit_report);
        break;
    case PL_EXIT_SOURCE_SIDECAR:
    case PL_EXIT_SOURCE_WORKER_SERVER:
        if (!pl_exit_report_ok(exit_report) && !state->result_known) {
            send_exit_report(supervisor, exit_report);
        }
        break;
    case PL_EXIT_SOURCE_LAUNCHER:
    case PL_EXIT_SOURCE_STEP:
    case PL_EXIT_SOURCE_SYNC:
    case PL_EXIT_SOURCE_STACKS:
    case PL_EXIT_SOURCE_EXEC:
        break;
    }
}

/* `name` next to the file `program`, if it can be executed. */
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

/* Where the daemon is: next to this host's own mpirun, by the name that is in PATH or the file it leads to, whatever
 * the command says. */
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
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE, whole = PL_STRV_NONE;
    enum pl_status status;
    char *path;

    PL_TRY(pl_command_split_daemon(text, &command, reterr));
    status = find_daemon(supervisor, command.items[0], &path, reterr);
    if (status == PL_OK) {
        free(command.items[0]);
        command.items[0] = path;
        PL_TRY(pl_strv_add_all(&whole, &supervisor->plan->daemon_prefix, reterr));
        PL_TRY(pl_strv_add_all(&whole, &command, reterr));
        setup.argv = (const char *const *)whole.items;
        setup.environment = pl_environment_strings(supervisor->environment);
        setup.cwd = supervisor->plan->cwd;
        status = pl_supervise_start(supervisor, PL_EXIT_SOURCE_DAEMON, &setup, NULL, reterr);
    }
    return status;
}

static void take_start(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    (void)connection;
    if (start_daemon(supervisor, frame->fields[1], &error) != PL_OK) {
        answer_start(supervisor, error.cause);
    }
}

/* Some launchers have a program on every host; it starts when all hosts are there, which is when the master has
 * connected. */
static enum pl_status start_own_program(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(pl_supervise_start_sidecars(supervisor, reterr));
    return pl_supervise_start_main(supervisor, reterr);
}

/* What happened here before the master came. */
static void report_earlier_ends(struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;
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

        if (!rank->ended && state->master) {
            snprintf(number, sizeof(number), "%d", rank->rank);
            PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_CATCHES, number, rank->catches ? "1" : "0");
        }
    }
}

/* Tell the master that this host is prepared, and what has happened here before. */
static void welcome_master(struct pl_supervisor *supervisor, struct pl_connection *connection)
{
    struct worker_state *state = supervisor->state;
    char processes[16];

    snprintf(processes, sizeof(processes), "%d", supervisor->job->processes_per_host);
    if (PL_LINK_SEND(&connection->link, PL_FRAME_READY, NULL, supervisor->job->current_host, processes) != PL_OK) {
        connection->dropped = true;
        return;
    }
    state->master = connection;
    state->joined = true;
    connection->begun = true;
    pl_supervise_forward_stop(supervisor, connection); /* the stop came before the master connected */
    report_earlier_ends(supervisor);
}

/* A client with the job's key says that it is the master: the first one is accepted. */
static void accept_master(struct pl_supervisor *supervisor, struct pl_connection *connection,
                          const struct pl_frame *frame)
{
    struct worker_state *state = supervisor->state;

    if (connection == state->master || connection == state->early) {
        return; /* it was, by its first frame */
    }
    if (state->leaving) {
        connection->dropped = true;
        return;
    }
    if (state->master || state->early || strcmp(frame->fields[1], master_host(supervisor)) != 0) {
        pl_log(PL_LOG_WARNING, "'%.100s' wants to be this job's master; it is %s", frame->fields[1],
               master_host(supervisor));
        connection->dropped = true;
        return;
    }
    if (state->prepared) {
        welcome_master(supervisor, connection);
    } else {
        state->early = connection;
    }
}

static void take_all_ready(struct pl_supervisor *supervisor, struct pl_connection *connection,
                           const struct pl_frame *frame)
{
    struct worker_state *state = supervisor->state;

    (void)connection;
    (void)frame;
    state->all_ready = true;
}

static void take_begun(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    (void)frame;
    if (connection->source == PL_EXIT_SOURCE_DAEMON) {
        answer_start(supervisor, "");
    }
}

/* What a shim of this host says, and the master has to know. */
static void relay_frame(struct pl_supervisor *supervisor, struct pl_connection *connection,
                        const struct pl_frame *frame)
{
    const struct worker_state *state = supervisor->state;

    (void)connection;
    if (frame->type == PL_FRAME_CATCHES) {
        pl_holding_note_answer(supervisor, frame, PL_HOLDING_HERE);
    }
    if (state->master) {
        pl_supervise_send(supervisor, state->master, frame->type, frame->fields, frame->count);
    }
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
    struct worker_state *state = supervisor->state;

    (void)connection;
    state->result_known = true;
    supervisor->main_dismissed = supervisor->plan->is_outside;
    if (frame->count >= 2 && strcmp(frame->fields[0], "0") != 0) {
        pl_supervise_fail_as(supervisor, frame->fields[1]);
    }
}

/* mpirun runs on the master. */
static void refuse_agent(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    (void)supervisor;
    (void)frame;
    connection->dropped = true;
}

static const struct pl_frame_rule worker_frames[] = {
    {PL_FRAME_HELLO, PL_CONNECTION_MASTER, 2, accept_master},
    {PL_FRAME_READY, PL_CONNECTION_MASTER, 0, take_all_ready},
    {PL_FRAME_START, PL_CONNECTION_MASTER, 2, take_start},
    {PL_FRAME_STOP, PL_CONNECTION_MASTER, 1, pl_supervise_take_stop},
    {PL_FRAME_HOLD, PL_CONNECTION_MASTER, 1, take_hold},
    {PL_FRAME_RELEASE, PL_CONNECTION_MASTER, 0, take_release},
    {PL_FRAME_RESULT, PL_CONNECTION_MASTER, 0, take_result},
    {PL_FRAME_START, PL_CONNECTION_AGENT, 0, refuse_agent},
    {PL_FRAME_BEGUN, PL_CONNECTION_SHIM, 0, take_begun},
    {PL_FRAME_CATCHES, PL_CONNECTION_SHIM, 2, relay_frame},
    {PL_FRAME_SUSPENDED, PL_CONNECTION_SHIM, 2, relay_frame},
};

static void worker_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    struct worker_state *state = supervisor->state;

    if (connection == state->early) {
        state->early = NULL;
    }
    if (connection != state->master) {
        return;
    }
    state->master = NULL;
    if (state->result_known) {
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
    struct worker_state *state = supervisor->state;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    state->begun_ns = pl_clock_now_ns();
    PL_TRY(pl_supervise_open_ssh(supervisor, &state->sshd, reterr));
    PL_TRY(pl_sshd_save_hosts(&state->sshd, &supervisor->rundir, supervisor->job->current_host,
                              &supervisor->plan->hosts, reterr));
    status = pl_needs_link(supervisor->job, supervisor->plan, &error);
    status =
        status != PL_OK ? status : pl_sshd_server(&state->sshd, supervisor->job, &supervisor->rundir, &argv, &error);
    if (status != PL_OK && reterr) {
        *reterr = error;
    }
    if (status != PL_OK && is_beside(supervisor)) {
        return status;
    }
    if (status != PL_OK) {
        pl_strv_done(&argv);
        PL_TRY(pl_disconnect_words(supervisor->job->self_path, state->sshd.port, error.cause, &argv, NULL));
        state->refusing = true;
    }
    setup.argv = (const char *const *)argv.items;
    setup.environment =
        pl_environment_strings(supervisor->job->process); /* ranks' preloaded library has no openpty() */
    setup.cwd = "/";
    PL_TRY(pl_supervise_start(supervisor, PL_EXIT_SOURCE_SSHD, &setup, NULL, reterr));
    state->serving = true;
    return status;
}

/* The master did not come: end sshd, whose last line may say why. "" if it has none. */
static const char *end_sshd(struct pl_supervisor *supervisor)
{
    struct worker_state *state = supervisor->state;
    int64_t deadline_ns = pl_deadline_after_ns(DAEMON_GRACE_NS);
    size_t length;
    char *line;

    state->serving = false;
    pl_supervise_signal(supervisor, PL_EXIT_SOURCE_SSHD, SIGTERM);
    while (pl_supervise_runs(supervisor, PL_EXIT_SOURCE_SSHD) && pl_supervise_wait(supervisor, deadline_ns)) {
    }
    length = strlen(state->sshd_words);
    while (length > 0 && state->sshd_words[length - 1] == '\n') {
        state->sshd_words[--length] = '\0';
    }
    line = strrchr(state->sshd_words, '\n');
    return line ? line + 1 : state->sshd_words;
}

/* Whether the hosts are there that this one waits for: all to start its program, the master alone to report to it. */
static bool has_hosts(const struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;

    return state->joined && (state->all_ready || supervisor->failed || supervisor->stop_number != 0);
}

static enum pl_status wait_for_master(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct worker_state *state = supervisor->state;
    const bool report_only = supervisor->failed;
    const int64_t begun_ns = pl_clock_now_ns();
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
    const char *words;

    while (!has_hosts(supervisor) && supervisor->failed == report_only && (state->joined || state->serving)) {
        int64_t deadline_ns = state->joined ? PL_DEADLINE_NEVER : pl_supervise_join_deadline(supervisor, begun_ns);

        if (pl_deadline_passed(deadline_ns)) {
            if (report_only || supervisor->stop_number != 0) {
                break;
            }
            words = end_sshd(supervisor);
            return pl_error_set(reterr, PL_TIMEOUT, "the master host %.200s did not come within %lld s%s%.300s",
                                master_host(supervisor), (long long)(supervisor->join_timeout_ns / PL_NS_PER_S),
                                *words != '\0' ? "; sshd's last words here: " : "", words);
        }
        if (pl_deadline_passed(next_log_ns)) {
            pl_log(PL_LOG_INFO, "waiting for the master host %s%s", master_host(supervisor),
                   state->joined ? ", which waits for other hosts or prepares" : "");
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
    const struct worker_state *state = supervisor->state;

    while (!state->result_known && !supervisor->failed) {
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

/* When a host outside the launch waits for its master no longer, which would wait for it. */
static int64_t join_end(const struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;

    return supervisor->plan->is_outside && state->serving && !state->joined
               ? pl_supervise_join_deadline(supervisor, state->begun_ns)
               : state->begun_ns;
}

/* A linked host waits for the master's word, and the master for all the others: none that has ended well ends one. */
static bool worker_waits(const struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;

    return !state->result_known && (state->master || !pl_deadline_passed(join_end(supervisor)));
}

static void worker_tick(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    const struct worker_state *state = supervisor->state;

    watch(supervisor, next_ns);
    if (!pl_deadline_passed(join_end(supervisor)) && join_end(supervisor) < *next_ns) {
        *next_ns = join_end(supervisor);
    }
    if (!state->master) { /* else the master decides */
        pl_holding_update(supervisor, next_ns);
    }
}

/* The host's own program, with the link beside it. */
static enum pl_status run_own_program(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct worker_state *state = supervisor->state;

    PL_TRY(pl_peers_resolve(supervisor, reterr));
    if (supervisor->failed || supervisor->stop_number != 0) {
        return supervisor->failed ? PL_FAILED : PL_CANCELLED;
    }
    if (supervisor->main_dismissed) {
        return PL_OK;
    }
    PL_TRY(pl_supervise_start_main(supervisor, reterr));
    PL_TRY(pl_supervise_wait_main(supervisor, reterr));
    if (supervisor->plan->is_outside && supervisor->main_ended && !state->result_known &&
        !pl_exit_report_ok(&supervisor->main_report)) {
        pl_supervise_fail_exit(supervisor, &supervisor->main_report); /* there is no other result */
    }
    return PL_OK;
}

/* The host's own program has failed: end what runs here, write the failure file, and wait for the master's words, which
 * name the first cause; and for the master itself, where it may only be late. */
static void report_own_failure(struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;
    int64_t deadline_ns;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!supervisor->failed || state->result_known || (state->joined && !state->master)) {
        return;
    }
    pl_supervise_failure_text(supervisor, &text);
    pl_supervise_write_failure(supervisor, pl_text_string(&text)); /* the platform may end us once it knows */
    pl_supervise_kill_all(supervisor, true);
    if (state->serving && !state->joined) {
        pl_log(PL_LOG_INFO, "the job has failed; waiting for the master host %s, to tell it", master_host(supervisor));
    }
    while (state->serving && !state->joined &&
           pl_supervise_wait(supervisor, pl_supervise_notify_deadline(supervisor, state->begun_ns))) {
    }
    /* a failure that is not a program's is sent to the master next */
    deadline_ns = pl_deadline_after_ns(supervisor->exit_report_known ? MASTER_RESULT_NS : 0);
    while (state->master && !state->result_known && pl_supervise_wait(supervisor, deadline_ns)) {
    }
}

/* Our own failure is the job's: notify the master. Then end everything here, say so, and wait for the master to end
 * first. */
static void shut_down(struct pl_supervisor *supervisor)
{
    struct worker_state *state = supervisor->state;
    const bool own_program = supervisor->plan->argv.count > 0;
    int64_t deadline_ns = pl_deadline_after_ns(own_program && !supervisor->failed ? PROGRAM_GRACE_NS : DAEMON_GRACE_NS);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    state->leaving = !state->master;
    if (state->master && !state->result_known) {
        pl_supervise_failure_text(supervisor, &text);
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_RESULT, "1", pl_text_string(&text));
    }
    if (supervisor->main_dismissed) {
        pl_supervise_signal(supervisor, PL_EXIT_SOURCE_PROGRAM, SIGTERM);
    }
    while (state->result_known &&
           (pl_supervise_runs(supervisor, PL_EXIT_SOURCE_DAEMON) ||
            pl_supervise_runs(supervisor, PL_EXIT_SOURCE_PROGRAM) ||
            pl_supervise_runs(supervisor, PL_EXIT_SOURCE_AGENT)) &&
           pl_supervise_wait(supervisor, deadline_ns)) {
    }
    pl_supervise_end_sidecars(supervisor);
    pl_supervise_kill_all(supervisor, true);
    if (state->master) {
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_DONE, "");
    }
}

static void wait_for_master_exit(struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;
    /* The master's own may take as long. */
    int64_t upload_ns = supervisor->plan->sync.count > 0 ? supervisor->sync_budget_ns + PL_SUPERVISE_SYNC_GRACE_NS : 0;
    int64_t deadline_ns = pl_deadline_after_ns(MASTER_END_NS + upload_ns);
    bool waited = state->master;

    while (state->master && pl_supervise_wait(supervisor, deadline_ns)) {
    }
    if (waited) {
        pl_clock_nap(AFTER_MASTER_NS, PL_DEADLINE_NEVER);
    }
    pl_supervise_kill_all(supervisor, false);
}

/* What cannot start before the master has come, or is only to report what failed before. */
static enum pl_status run_linked(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(wait_for_master(supervisor, reterr));
    if (!supervisor->failed) {
        PL_TRY(start_own_program(supervisor, reterr));
    }
    return wait_for_result(supervisor, reterr);
}

/* Start sshd, so that the master can link this host while it prepares, and prepare it. */
static enum pl_status prepare(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool can_run_alone = is_beside(supervisor) && !supervisor->failed;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = start_sshd(supervisor, &error);

    if (can_run_alone) {
        status = pl_supervise_without_link(supervisor, status, &error);
    } else if (status != PL_OK && reterr) {
        *reterr = error;
    }
    PL_TRY(status);
    return pl_supervise_prepare(supervisor, reterr);
}

int pl_worker_run(struct pl_supervisor *supervisor)
{
    static const struct pl_role role = {.ended = worker_ended,
                                        .frames = worker_frames,
                                        .frames_count = PL_ARRAY_ITEMS(worker_frames),
                                        .gone = worker_gone,
                                        .tick = worker_tick,
                                        .waits = worker_waits};
    struct worker_state state = {.sshd = PL_SSHD_NONE};
    struct pl_error error = PL_ERROR_NONE;
    bool report_only;
    int exit_code;
    enum pl_status status;

    supervisor->role = &role;
    supervisor->state = &state;
    status = prepare(supervisor, &error);
    pl_supervise_fail_status(supervisor, status, &error);
    if (supervisor->plan->link == PL_LAUNCH_PLAN_LINK_NONE) {
        pl_supervise_kill_all(supervisor, false);
        pl_supervise_drop(supervisor, PL_CONNECTION_MASTER);
        pl_sshd_close(&state.sshd);
        return pl_master_run(supervisor); /* of a job of this host alone */
    }
    report_only = supervisor->failed;
    exit_code = report_only ? pl_supervise_finish(supervisor) : 0; /* the platform may end us once it knows */
    state.begun_ns = pl_clock_now_ns();
    state.prepared = true;
    if (state.early) {
        welcome_master(supervisor, state.early);
    }
    if (is_beside(supervisor) && !report_only) {
        status = run_own_program(supervisor, &error);
        pl_supervise_fail_status(supervisor, status, &error);
        report_own_failure(supervisor);
    } else {
        status = run_linked(supervisor, &error);
        pl_supervise_fail_status(supervisor, status, &error);
    }
    shut_down(supervisor);
    exit_code = report_only ? exit_code : pl_supervise_finish(supervisor);
    pl_supervise_end_sync(supervisor);
    wait_for_master_exit(supervisor);
    pl_sshd_close(&state.sshd);
    supervisor->role = NULL;
    return exit_code;
}
