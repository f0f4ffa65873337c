/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master role: the role of the host that runs the job's first process, or of the only host. It connects to the
 * workers, runs the program or mpirun, finds out how the job ended, notifies the workers, and ends all processes.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/mpi_options.h"
#include "entrypoint/launch/needs.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PROGRESS_NS (10 * PL_NS_PER_S)
/* The report of a rank on another host may arrive just after mpirun's end. */
#define LATE_REPORT_NS (PL_NS_PER_S / 2)
/* An mpirun that succeeded has usually run ranks, whose reports may still be in transit. An mpirun that was asked only
 * for its version has not. */
#define FIRST_REPORT_NS (5 * PL_NS_PER_S)
#define DONE_WAIT_NS (7 * PL_NS_PER_S)
/* A host that is not linked after this time is named in the log once, while the program runs. */
#define LATE_LINK_NS (60 * PL_NS_PER_S)
#define OPEN_SESSION_NS (2 * PL_NS_PER_S)

static void note_rank_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    supervisor->master.ranks_ended++;
    pl_holding_note_end(supervisor, exit_report->rank);
    if (!pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    } else if (!supervisor->failed && supervisor->master.left_early.rank < 0) {
        supervisor->master.left_early = *exit_report;
        supervisor->master.left_early_ns = pl_clock_now_ns();
    }
}

static void master_ended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_exit_report *exit_report)
{
    const enum pl_exit_source source = connection->source;

    if (pl_exit_source_in(source, PL_EXIT_SET_MAIN)) {
        supervisor->main_ended = true;
        supervisor->main_report = *exit_report;
        if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && source != PL_EXIT_SOURCE_LAUNCHER &&
            !pl_exit_report_ok(exit_report)) {
            pl_supervise_fail_exit(supervisor, exit_report);
        }
    } else if (source == PL_EXIT_SOURCE_RANK) {
        note_rank_end(supervisor, exit_report);
    } else if (source == PL_EXIT_SOURCE_STACKS) {
        pl_hang_note_end(supervisor, exit_report);
    } else if (pl_exit_source_in(source, PL_EXIT_SET_SERVERS) && !supervisor->main_ended &&
               !pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
}

/* Find the agent that asked for the daemon of worker number `index`. */
static struct pl_connection *find_agent(struct pl_supervisor *supervisor, int index)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_RSH_AGENT && connection->index == index && !connection->dropped) {
            return connection;
        }
    }
    return NULL;
}

/* Log the reason. mpirun only sees that its agent exits with 1, and its own last lines do not give the reason. */
static void reject_start(struct pl_supervisor *supervisor, const char *host, const char *why)
{
    if (supervisor->stop_number == 0) {
        pl_supervise_fail(supervisor, "Open MPI's daemon on host '%.200s' does not start: %s", host, why);
    }
}

/* mpirun wants a daemon on a host. At most one agent asks for one host. */
static void forward_start(struct pl_supervisor *supervisor, struct pl_connection *agent, const struct pl_frame *frame)
{
    static const char not_ours[] = "this host is not a worker of the job";

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        struct pl_session *session = &supervisor->sessions.items[i];

        if (strcmp(session->host, frame->fields[0]) == 0 && session->link) {
            agent->index = (int)i;
            agent->dropped =
                PL_LINK_SEND(&session->link->link, PL_FRAME_START, NULL, session->host, frame->fields[1]) != PL_OK;
            return;
        }
    }
    agent->dropped = PL_LINK_SEND(&agent->link, PL_FRAME_STARTED, NULL, not_ours) != PL_OK;
    reject_start(supervisor, frame->fields[0], not_ours);
}

static void send_result(struct pl_supervisor *supervisor, struct pl_connection *link)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (supervisor->failed) {
        pl_supervise_failure_text(supervisor, &text);
    }
    PL_SUPERVISE_SEND(supervisor, link, PL_FRAME_RESULT, supervisor->failed ? "1" : "0", pl_text_string(&text));
}

/* Find the session of a worker that has sent a frame. The session exists, because the link is up. */
static struct pl_session *session_of(const struct pl_supervisor *supervisor, const struct pl_connection *connection)
{
    return pl_sessions_find(supervisor, connection);
}

static void take_ready(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_session *session = session_of(supervisor, connection);
    int64_t processes;

    if (frame->count < 1 || strcmp(frame->fields[0], session->host) != 0) {
        pl_supervise_fail(
            supervisor,
            "the host name '%.200s' leads to a host whose own name is '%.200s': check the names in resourceconfig.json",
            session->host, frame->count > 0 ? frame->fields[0] : "");
        return;
    }
    if (pl_link_frame_number(frame, 1, 1, PL_JOB_PROCESSES_MAX, &processes, NULL) == PL_OK) {
        session->processes = (int)processes;
    }
    session->ready = true;
    connection->ready = true;
    pl_supervise_forward_stop(supervisor, connection); /* it connected too late to get the stop with the others */
    pl_holding_ask_again(supervisor);
    if (supervisor->master.result_sent) {
        send_result(supervisor, connection);
    }
}

/* The end of a host outside the launch ends no other host: the result of the launch counts. */
static void warn_of_outside_end(const struct pl_session *session, const struct pl_exit_report *exit_report)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!pl_exit_report_ok(exit_report)) {
        pl_exit_report_sentence(exit_report, &text);
        pl_log(PL_LOG_WARNING, "%s; %s is outside the distribution, and only the result of the distribution counts",
               pl_text_string(&text), session->host);
    }
}

static void take_end(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_session *session = session_of(supervisor, connection);
    struct pl_exit_report exit_report;

    if (pl_exit_report_receive(frame, &exit_report, NULL) != PL_OK) {
        return;
    }
    if (exit_report.source == PL_EXIT_SOURCE_RANK) {
        note_rank_end(supervisor, &exit_report);
        return;
    }
    if (exit_report.source == PL_EXIT_SOURCE_PROGRAM || exit_report.source == PL_EXIT_SOURCE_TORCHRUN) {
        session->program_ended = true;
    }
    if (session->outside) {
        warn_of_outside_end(session, &exit_report);
    } else if (!pl_exit_report_ok(&exit_report)) {
        pl_supervise_fail_exit(supervisor, &exit_report);
    }
}

/* A worker itself cannot go on. Its message may already name the host, if the configuration is the reason. */
static void fail_worker(struct pl_supervisor *supervisor, const char *host, const char *words)
{
    const size_t length = strlen(host);
    const bool named = strncmp(words, "host ", 5) == 0 && strncmp(words + 5, host, length) == 0 &&
                       strncmp(words + 5 + length, ": ", 2) == 0;

    if (named) {
        pl_supervise_fail(supervisor, "%s", words);
    } else {
        pl_supervise_fail(supervisor, "host %.200s: %.700s", host, words);
    }
}

static void take_worker_failure(struct pl_supervisor *supervisor, struct pl_connection *connection,
                                const struct pl_frame *frame)
{
    fail_worker(supervisor, session_of(supervisor, connection)->host, frame->fields[1]);
}

/* Tell the agent that waits for it whether the daemon of its host runs. */
static void take_started(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    const struct pl_session *session = session_of(supervisor, connection);
    struct pl_connection *agent = find_agent(supervisor, (int)(session - supervisor->sessions.items));

    if (agent) {
        agent->dropped = PL_LINK_SEND(&agent->link, PL_FRAME_STARTED, NULL, frame->fields[0]) != PL_OK;
    }
    if (frame->fields[0][0] != '\0') {
        reject_start(supervisor, session->host, frame->fields[0]);
    }
}

static void take_done(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    (void)frame;
    session_of(supervisor, connection)->done = true;
}

static void take_answer(struct pl_supervisor *supervisor, struct pl_connection *connection,
                        const struct pl_frame *frame)
{
    const struct pl_session *session = session_of(supervisor, connection);

    pl_holding_note_answer(supervisor, frame, session ? (int)(session - supervisor->sessions.items) : PL_HOLDING_HERE);
}

static void take_quiet(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_session *session = session_of(supervisor, connection);
    int64_t number;

    session->quiet = strcmp(frame->fields[0], "1") == 0;
    if (pl_link_frame_number(frame, 1, PL_APART_UNKNOWN, PL_APART_CONNECTED, &number, NULL) == PL_OK) {
        session->apart = (enum pl_apart_state)number;
    }
}

static const struct pl_frame_rule master_frames[] = {
    {PL_FRAME_READY, PL_CONNECTION_WORKER, 0, take_ready},
    {PL_FRAME_STARTED, PL_CONNECTION_WORKER, 1, take_started},
    {PL_FRAME_ENDED, PL_CONNECTION_WORKER, 0, take_end},
    {PL_FRAME_STOP, PL_CONNECTION_WORKER, 1, pl_supervise_take_stop},
    {PL_FRAME_RESULT, PL_CONNECTION_WORKER, 2, take_worker_failure},
    {PL_FRAME_DONE, PL_CONNECTION_WORKER, 0, take_done},
    {PL_FRAME_CATCHES, PL_CONNECTION_WORKER, 2, take_answer},
    {PL_FRAME_CATCHES, PL_CONNECTION_SHIM, 2, take_answer},
    {PL_FRAME_SUSPENDED, PL_CONNECTION_WORKER, 2, pl_supervise_note_suspended},
    {PL_FRAME_QUIET, PL_CONNECTION_WORKER, 1, take_quiet},
    {PL_FRAME_START, PL_CONNECTION_RSH_AGENT, 2, forward_start},
    {PL_FRAME_HELLO, PL_CONNECTION_MASTER, 0, pl_supervise_refuse}, /* this host is the master */
};

/* Whether the host has left after success: its own program has succeeded, and it has nothing more to do. */
static bool has_left(const struct pl_supervisor *supervisor, const struct pl_session *session)
{
    return (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE || session->outside) && session->program_ended &&
           !supervisor->failed;
}

static void master_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    struct pl_session *session = pl_sessions_find(supervisor, connection);

    if (!session) {
        return;
    }
    session->link = NULL;
    pl_holding_lose_host(supervisor, (int)(session - supervisor->sessions.items));
    if (session->ready && !session->done && !has_left(supervisor, session)) {
        if (session->outside) {
            pl_log(PL_LOG_WARNING, "host %s, outside the distribution, is lost: %s", session->host, why);
        } else {
            pl_supervise_fail_lost(supervisor, "host", session->host, why);
        }
    } else if (!session->ready) {
        pl_sessions_failed(supervisor, session);
        if (session->refused && supervisor->link_kind == PL_LAUNCH_PLAN_LINK_NEEDED && !session->outside) {
            fail_worker(supervisor, session->host, session->reason);
        }
    }
}

/* Warn of ranks that have succeeded while others still run, for example in MPI_Init(), which then never returns. */
static void log_early_end(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    const int64_t due_ns = supervisor->master.left_early_ns + supervisor->early_end_ns;
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    if (supervisor->ranks != PL_LAUNCH_PLAN_RANKS_MPIRUN || supervisor->master.left_early.rank < 0 ||
        supervisor->master.left_early_told || supervisor->main_ended || supervisor->failed ||
        supervisor->stop_number != 0) {
        return;
    }
    if (!pl_deadline_passed(due_ns)) {
        *next_ns = due_ns < *next_ns ? due_ns : *next_ns;
        return;
    }
    pl_exit_report_name(PL_EXIT_SOURCE_RANK, supervisor->master.left_early.rank, supervisor->master.left_early.host,
                        &name);
    pl_log(PL_LOG_WARNING, "%s ended with 0 %lld s ago, and %d of %d ranks still run", pl_text_string(&name),
           (long long)(supervisor->early_end_ns / PL_NS_PER_S),
           supervisor->plan->processes - supervisor->master.ranks_ended, supervisor->plan->processes);
    supervisor->master.left_early_told = true;
}

/* Whether all other hosts are quiet. A host that is not linked does not count as quiet, because nothing is known of
 * it. */
static bool others_are_quiet(const struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (session->outside) {
            continue;
        }
        if (!session->ready || (!session->quiet && !session->program_ended)) {
            return false;
        }
    }
    return true;
}

static void open_sessions(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    struct pl_error error = PL_ERROR_NONE;

    if (supervisor->master.linking && pl_sessions_open_due(supervisor, next_ns, &error) != PL_OK &&
        !supervisor->master.failure_told) {
        pl_log_error(&error, "there is no link to another host yet, it will be tried again");
        supervisor->master.failure_told = true;
    }
}

/* Call while the program runs: opens sessions, and names the hosts that are late, once. */
static void master_tick(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    const int64_t late_ns = supervisor->sessions.begun_ns + LATE_LINK_NS;
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    pl_holding_update(supervisor, next_ns);
    log_early_end(supervisor, next_ns);
    pl_apart_look(&supervisor->apart, next_ns);
    pl_apart_log_minute(supervisor);
    pl_hang_look(supervisor, next_ns);
    pl_hang_decide(supervisor, others_are_quiet(supervisor));
    if (supervisor->stop_number != 0 && supervisor->main_started) {
        supervisor->master.linking = false; /* each host that is not linked yet saves and ends on its own */
    }
    if (!supervisor->master.linking) {
        return;
    }
    if (pl_sessions_missing(supervisor, true, &names) == 0) {
        pl_log(PL_LOG_INFO, "all %zu hosts are linked", supervisor->sessions.count + 1);
        supervisor->master.linking = false;
        return;
    }
    if (pl_deadline_passed(supervisor->sessions.begun_ns + supervisor->join_timeout_ns)) {
        supervisor->master.linking = false;
        return;
    }
    if (!supervisor->master.late_told && pl_deadline_passed(late_ns)) {
        pl_log(PL_LOG_WARNING, "not linked to %s yet: a failure there is not noticed here. Read the log of that host",
               pl_text_string(&names));
        supervisor->master.late_told = true;
    }
    if (!supervisor->master.late_told && late_ns < *next_ns) {
        *next_ns = late_ns;
    }
    open_sessions(supervisor, next_ns);
}

/* Whether the master must wait. A program that succeeds on one host ends no other host: if each host has its own
 * program, the master stays until the programs of the others have ended too. */
static bool master_waits(const struct pl_supervisor *supervisor)
{
    if (supervisor->link_kind != PL_LAUNCH_PLAN_LINK_BESIDE ||
        (supervisor->failed && !pl_supervise_failed_in_stop(supervisor) && !pl_holding_is_on(supervisor))) {
        return false;
    }
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (session->link && session->ready && !session->program_ended && !session->outside) {
            return true;
        }
    }
    return false;
}

/* Wait for the workers' links before the program starts, or to report an earlier failure. */
static enum pl_status connect_workers(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const int64_t begun_ns = pl_clock_now_ns();
    const bool report_only = supervisor->failed; /* for example if a stop ended the step that makes the keys */
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);

    for (;;) {
        PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
        int64_t deadline_ns = pl_supervise_join_deadline(supervisor, begun_ns);
        int64_t next_ns = next_log_ns < deadline_ns ? next_log_ns : deadline_ns;
        size_t missing = pl_sessions_missing(supervisor, false, &names);
        if (missing == 0 || supervisor->failed != report_only) {
            return PL_OK;
        }
        if (pl_deadline_passed(deadline_ns)) {
            if (report_only || supervisor->stop_number != 0) {
                return PL_OK;
            }
            return pl_error_set(reterr, PL_TIMEOUT,
                                "%zu of %zu hosts did not connect within %lld s: %.300s. " PL_SUPERVISE_LOST_ADVICE,
                                missing, supervisor->plan->hosts.count,
                                (long long)(supervisor->join_timeout_ns / PL_NS_PER_S), pl_text_string(&names));
        }
        if (pl_deadline_passed(next_log_ns)) {
            pl_log(PL_LOG_INFO, "waiting for %zu of %zu hosts: %s", missing, supervisor->plan->hosts.count,
                   pl_text_string(&names));
            next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
        }
        PL_TRY(pl_sessions_open_due(supervisor, &next_ns, reterr));
        PL_TRY(pl_supervise_poll(supervisor, next_ns, reterr));
    }
}

/* Begin to link the workers. This goes on while this host prepares. */
static enum pl_status begin_links(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const bool report_only = supervisor->failed;
    enum pl_status status = pl_sessions_make(supervisor, reterr);

    if (status != PL_OK || supervisor->sessions.count == 0) {
        return status;
    }
    status = pl_needs_link(supervisor->job, supervisor->plan, reterr);
    status = status == PL_OK ? pl_sessions_prepare(supervisor, reterr) : status;
    supervisor->master.can_link = supervisor->master.linking = status == PL_OK;
    return supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !report_only
               ? pl_supervise_without_link(supervisor, status, reterr)
               : status;
}

/* Drop the links if the plan has none, for example because its program survives the loss of hosts by itself. */
static void drop_links(struct pl_supervisor *supervisor)
{
    if (!supervisor->master.can_link) {
        return;
    }
    pl_supervise_kill_all(supervisor, false);
    pl_supervise_drop(supervisor, PL_CONNECTION_WORKER);
    pl_sessions_close(supervisor);
    supervisor->master.can_link = supervisor->master.linking = false;
}

/* If the program cannot start without the workers, wait for them, and notify them when all are linked. */
static enum pl_status link_workers(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    supervisor->sessions.begun_ns = pl_clock_now_ns();
    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !supervisor->failed) {
        return PL_OK;
    }
    supervisor->master.linking =
        supervisor->plan->outside_hosts.count > 0; /* hosts outside the launch need not be there */
    PL_TRY(connect_workers(supervisor, reterr));
    for (size_t i = 0; i < supervisor->sessions.count && !supervisor->failed && supervisor->stop_number == 0; i++) {
        if (supervisor->sessions.items[i].ready && supervisor->sessions.items[i].link) {
            PL_SUPERVISE_SEND(supervisor, supervisor->sessions.items[i].link, PL_FRAME_READY,
                              supervisor->job->current_host);
        }
    }
    return PL_OK;
}

/* The hosts are linked. Those that have devices of their own have reported how many processes these make. */
static enum pl_status apply_processes(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    int *slots = supervisor->plan->slots;

    if (!slots) {
        return PL_OK;
    }
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];
        const int index = pl_strv_find(&supervisor->plan->hosts, session->host);

        if (index >= 0 && slots[index] == 0 && session->processes == 0) {
            return pl_error_set(reterr, PL_INVALID, "host '%.200s' has not reported how many processes it gets",
                                session->host);
        }
        if (index >= 0 && slots[index] == 0) {
            slots[index] = session->processes;
        }
    }
    PL_BUG_IF(pl_mpi_hosts_wait(supervisor->plan));
    return pl_mpi_hosts_apply(supervisor->job, supervisor->plan, reterr);
}

static enum pl_status start_main(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text agent = PL_TEXT_NONE;

    PL_TRY(apply_processes(supervisor, reterr));
    if (supervisor->sessions.count > 0 && supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN) {
        /* mpirun asks us for its daemons instead of running ssh. A variable tells it so, and its command line stays the
         * usual one. */
        pl_text_printf(&agent, "%s relay --agent", supervisor->job->self_path);
        PL_TRY(pl_text_check(&agent, reterr));
        PL_TRY(pl_environment_set(supervisor->environment, "OMPI_MCA_plm_rsh_agent", pl_text_string(&agent), reterr));
        PL_TRY(pl_environment_set(supervisor->environment, "PRTE_MCA_plm_ssh_agent", pl_text_string(&agent), reterr));
    }
    return pl_supervise_start_main(supervisor, reterr);
}

/* Whether mpirun has ended its ranks although none of them had failed. In that case its exit code is its own, not 128 +
 * the signal of a rank, and all that is known of the ranks is the signal that mpirun sent them. */
static bool launcher_ended_ranks(const struct pl_supervisor *supervisor)
{
    const struct pl_exit_report *mpirun = &supervisor->main_report, *first = &supervisor->exit_report;

    return supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN && supervisor->stop_number == 0 && !mpirun->signalled &&
           mpirun->code > 0 && mpirun->code < 128 && supervisor->exit_report_known &&
           first->source == PL_EXIT_SOURCE_RANK && first->signalled &&
           (first->code == SIGTERM || first->code == SIGKILL);
}

/* mpirun ends its ranks when one has left with 0 but without MPI_Finalize(), and when it gets SIGTERM itself. */
static void explain_ended_ranks(struct pl_supervisor *supervisor)
{
    const bool left = supervisor->master.left_early.rank >= 0;

    supervisor->exit_report = left ? supervisor->master.left_early : supervisor->main_report;
    snprintf(supervisor->exit_report.note, sizeof(supervisor->exit_report.note), "%s",
             left ? "it left without MPI_Finalize() while other ranks ran, so that mpirun ended them; does the "
                    "program leave in its middle, for example by os._exit()?"
                  : "it ended its ranks, none of which had failed: was it sent a signal?");
}

/* If all ranks have succeeded, check whether they were N programs without a connection. If a rank was connected, there
 * is nothing to wait for. */
static enum pl_status check_ranks(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const int64_t deadline_ns = pl_deadline_after_ns(LATE_REPORT_NS);

    while (pl_apart_is_possible(supervisor) && supervisor->master.ranks_ended < supervisor->plan->processes &&
           !pl_deadline_passed(deadline_ns)) {
        PL_TRY(pl_supervise_poll(supervisor, deadline_ns, reterr));
    }
    if (!supervisor->failed && supervisor->master.ranks_ended == supervisor->plan->processes &&
        pl_apart_is_possible(supervisor)) {
        pl_apart_log_end(supervisor);
    }
    return PL_OK;
}

static enum pl_status check_main_result(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_exit_report *main_report = &supervisor->main_report;
    const bool ok = supervisor->main_ended && pl_exit_report_ok(main_report);
    const bool has_ranks = supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN;
    int64_t deadline_ns = pl_deadline_after_ns(ok ? FIRST_REPORT_NS : LATE_REPORT_NS);

    if (!supervisor->main_ended) {
        return PL_OK;
    }
    while (has_ranks && !supervisor->failed && !(ok && supervisor->master.ranks_ended > 0) &&
           !pl_deadline_passed(deadline_ns)) {
        PL_TRY(pl_supervise_poll(supervisor, deadline_ns, reterr));
    }
    if (!ok) {
        if (has_ranks && supervisor->master.ranks_ended == supervisor->plan->processes && !supervisor->failed &&
            !main_report->signalled && main_report->note[0] == '\0') {
            /* mpirun's own message about this is longer than the part of a failure file that people see. If a report is
             * missing, its host may know the reason. */
            snprintf(main_report->note, sizeof(main_report->note),
                     "no rank failed; did one end without MPI_Finalize(), for example by os._exit()?");
        }
        if (launcher_ended_ranks(supervisor)) {
            explain_ended_ranks(supervisor);
        }
        pl_supervise_fail_exit(supervisor, main_report);
    } else if (has_ranks && supervisor->master.ranks_ended == 0) {
        pl_supervise_fail(supervisor, "mpirun exited with code 0 but has not run the program: remove options such as "
                                      "--version or -h from sagemaker_mpi_custom_mpi_options");
    }
    return supervisor->failed ? PL_OK : check_ranks(supervisor, reterr);
}

static enum pl_status run_job(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    if (!supervisor->failed) {
        PL_TRY(pl_peers_resolve(supervisor, true, reterr));
    }
    if (supervisor->master.can_link) {
        PL_TRY(link_workers(supervisor, reterr));
    }
    PL_TRY(pl_supervise_check(supervisor));
    PL_TRY(pl_supervise_start_sidecars(supervisor, reterr));
    PL_TRY(start_main(supervisor, reterr));
    PL_TRY(pl_supervise_wait_main(supervisor, reterr));
    return check_main_result(supervisor, reterr);
}

/* Give sessions that are being opened a moment: a host that takes this one as its master must learn that this host has
 * succeeded. */
static void await_open_sessions(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns = pl_deadline_after_ns(OPEN_SESSION_NS);

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        while ((supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE || supervisor->sessions.items[i].outside) &&
               supervisor->sessions.items[i].link && !supervisor->sessions.items[i].ready &&
               pl_supervise_wait(supervisor, deadline_ns)) {
        }
    }
}

static bool workers_done(const struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        const struct pl_session *session = &supervisor->sessions.items[i];

        if (session->link && session->ready && !session->done) {
            return false;
        }
    }
    return true;
}

/* Whether hosts that connect now must still learn how the job ended: all hosts after a failure, otherwise the hosts
 * that end with it. */
static bool must_notify(const struct pl_supervisor *supervisor)
{
    return supervisor->master.linking && (supervisor->failed || supervisor->plan->outside_hosts.count > 0) &&
           pl_sessions_missing(supervisor, true, NULL) > 0 &&
           !(supervisor->stop_number != 0 && supervisor->main_started);
}

/* Hosts that are not linked yet would continue, or wait for this one. Notify those that connect soon after the
 * start. */
static void notify_late_hosts(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!must_notify(supervisor)) {
        return;
    }
    if (supervisor->failed) {
        pl_supervise_failure_text(supervisor, &text);
        /* the platform may end us once it knows of the failure */
        pl_supervise_write_failure(supervisor, pl_text_string(&text));
    }
    pl_log(PL_LOG_INFO, "the job has %s; waiting for the other hosts, to notify them",
           supervisor->failed ? "failed" : "ended");
    while (supervisor->master.linking) {
        int64_t next_ns = supervisor->failed ? pl_supervise_notify_deadline(supervisor, supervisor->sessions.begun_ns)
                                             : pl_supervise_join_deadline(supervisor, supervisor->sessions.begun_ns);
        bool late = pl_deadline_passed(next_ns);

        master_tick(supervisor, &next_ns);
        if (late || !supervisor->master.linking || pl_supervise_poll(supervisor, next_ns, NULL) != PL_OK) {
            break;
        }
    }
}

/* Leave no process: first here, then on the workers as they report. Their sessions end last. */
static void finish(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns;

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        send_result(supervisor, supervisor->sessions.items[i].link);
    }
    supervisor->master.result_sent = true;
    pl_supervise_end_sidecars(supervisor);
    pl_supervise_kill_all(supervisor, true);
    notify_late_hosts(supervisor);
    await_open_sessions(supervisor);
    deadline_ns = pl_deadline_after_ns(DONE_WAIT_NS);
    while (!workers_done(supervisor) && pl_supervise_wait(supervisor, deadline_ns)) {
    }
}

static void close_links(struct pl_supervisor *supervisor)
{
    pl_supervise_kill_all(supervisor, false); /* ends the sessions, and thereby the workers */
    pl_sessions_close(supervisor);
}

const struct pl_role pl_master_role = {.ended = master_ended,
                                       .frames = master_frames,
                                       .frames_count = PL_ARRAY_ITEMS(master_frames),
                                       .gone = master_gone,
                                       .tick = master_tick,
                                       .prepare_tick = open_sessions,
                                       .waits = master_waits,
                                       .link = begin_links,
                                       .unlink = drop_links,
                                       .run = run_job,
                                       .finish = finish,
                                       .close = close_links};
