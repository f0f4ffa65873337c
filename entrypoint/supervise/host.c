/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job on this host, from the links to its end. The master runs the job's first process, or is alone: it runs the
 * program or mpirun, finds out how the job ended, and tells the workers. A worker runs what the master asks for, or its
 * own program, and gets the result from the master; with a link beside the program, a worker goes its own
 * way until the master has connected. No process is left, and a worker exits after the master.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/environment.h"
#include "base/log.h"
#include "entrypoint/launch/mpi_options.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Longest wait for the report of a rank on another host after mpirun's end. */
#define LATE_REPORT_NS (PL_NS_PER_S / 2)
/* An mpirun that succeeded has usually run ranks, whose reports may still be in transit. An mpirun that was asked only
 * for its version has not. */
#define FIRST_REPORT_NS (5 * PL_NS_PER_S)
/* How long a launcher may take to end a failed job itself, which it does with SIGTERM to the ranks first. */
#define LAUNCHER_GRACE_NS (3 * PL_NS_PER_S)
/* How long a host's own programs may take to end a failed job, after they were sent SIGTERM. */
#define TOLD_GRACE_NS (3 * PL_NS_PER_S / 2)
/* How long programs may still run after the loss of a host, when the job cannot succeed anyway. */
#define LOST_HOST_GRACE_NS (PL_NS_PER_S / 2)
#define SIDECAR_GRACE_NS (2 * PL_NS_PER_S)
#define DONE_WAIT_NS (7 * PL_NS_PER_S)
#define OPEN_SESSION_NS (2 * PL_NS_PER_S)
/* How long mpirun's daemon may take to end by itself after the job. */
#define DAEMON_GRACE_NS (PL_NS_PER_S)
/* How long a program that a worker started itself may take to notice the end and save, after the master has
 * succeeded. */
#define PROGRAM_GRACE_NS (3 * PL_NS_PER_S)
/* How long the master may take to end after the result: docker compose stops all containers when the first one ends. */
#define MASTER_END_NS (10 * PL_NS_PER_S)
/* The master's session ends before the master: time that its exit may take on a busy machine. */
#define AFTER_MASTER_NS (PL_NS_PER_S)
/* How long a worker that has failed by itself waits for the master's message about the failure. */
#define MASTER_RESULT_NS (10 * PL_NS_PER_S)

/* The functions that the loop of supervise.c calls. */
const struct pl_loop_calls pl_host_calls = {
    .take = pl_frames_take,
    .lose = pl_frames_lose,
    .ended = pl_host_note_end,
    .due = {[PL_TIMER_HEARTBEAT] = pl_supervise_send_heartbeats,
            [PL_TIMER_SESSIONS] = pl_links_open_due,
            [PL_TIMER_LATE_HOSTS] = pl_links_look_late,
            [PL_TIMER_EARLY_END] = pl_ranks_log_early_end,
            [PL_TIMER_APART] = pl_host_look_apart,
            [PL_TIMER_WATCH] = pl_hang_look,
            [PL_TIMER_HOLDING] = pl_holding_update,
            [PL_TIMER_LAUNCHER] = pl_supervise_stop_launcher,
            [PL_TIMER_WAIT] = pl_host_look_wait,
            [PL_TIMER_OVERDUE] = pl_supervise_fail_overdue},
};

void pl_host_go(enum pl_host_state *state, enum pl_host_state next)
{
    static const bool may_follow[][PL_HOST_ENDED + 1] = {
        /* without a plan there is nothing to run */
        [PL_HOST_PREPARING] = {[PL_HOST_LINKING] = true, [PL_HOST_ENDED] = true},
        [PL_HOST_LINKING] = {[PL_HOST_RUNNING] = true, [PL_HOST_CLOSING] = true},
        [PL_HOST_RUNNING] = {[PL_HOST_CLOSING] = true},
        [PL_HOST_CLOSING] = {[PL_HOST_ENDED] = true},
        [PL_HOST_ENDED] = {[PL_HOST_PREPARING] = true}, /* in the next attempt of the job */
    };

    PL_BUG_IF(!may_follow[*state][next]);
    *state = next;
}

/* On a worker: whether the master has sent the job's result. */
static bool knows_result(const struct pl_supervisor *supervisor)
{
    return supervisor->role != PL_HOST_MASTER && supervisor->sessions.count > 0 &&
           supervisor->sessions.items[0].state == PL_SESSION_DONE;
}

/* On a worker: whether the master has not connected yet, but still may. */
static bool awaits_master(const struct pl_supervisor *supervisor)
{
    return supervisor->role != PL_HOST_MASTER && supervisor->sessions.count > 0 &&
           supervisor->sessions.items[0].state == PL_SESSION_AWAY &&
           pl_supervise_runs(supervisor, PL_PROCESS_SET(SSHD));
}

/* --- what has ended --- */

void pl_host_note_rank(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    struct pl_main *main = &supervisor->main;

    main->ranks_ended++;
    pl_holding_note_end(supervisor, exit_report->rank);
    if (!pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    } else if (!supervisor->outcome.failed && main->left_early.rank < 0) {
        main->left_early = *exit_report;
        PL_TIMER_SET(supervisor, EARLY_END, pl_deadline_after_ns(supervisor->main.early_end_ns));
    }
}

/* A rank or a worker's own program has ended. The master decides what this means. If the link is beside the program,
 * the worker also decides for itself, unless it is outside the launch. */
static void note_on_worker(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    pl_links_send_quiet(supervisor); /* the state goes first, because the end may be the last frame */
    if (exit_report->kind == PL_PROCESS_RANK) {
        pl_holding_note_end(supervisor, exit_report->rank);
    }
    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !supervisor->plan->is_outside &&
        !pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
    if (!pl_exit_report_ok(exit_report) && pl_failure_has_own(supervisor->failure)) {
        PL_SUPERVISE_SEND(supervisor, pl_links_master(supervisor), PL_FRAME_OWN_WORDS, "");
    }
    if (!knows_result(supervisor)) {
        pl_links_send_end(supervisor, exit_report);
    }
}

static void note_main(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    supervisor->main.ended = true;
    PL_TIMER_WAKE(supervisor, WAIT);
    supervisor->main.exit_report = *exit_report;
    if (supervisor->role != PL_HOST_MASTER) {
        note_on_worker(supervisor, exit_report);
    } else if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && exit_report->kind != PL_PROCESS_LAUNCHER &&
               !pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
}

void pl_host_note_end(struct pl_supervisor *supervisor, enum pl_process_kind kind, bool begun,
                      const struct pl_exit_report *exit_report)
{
    if (kind == PL_PROCESS_SSHD) {
        pl_links_note_sshd(supervisor, exit_report);
    } else if (supervisor->state == PL_HOST_PREPARING) {
        return; /* nothing else of the job runs yet */
    } else if (pl_process_kind_in(kind, PL_PROCESS_SET_MAIN)) {
        note_main(supervisor, exit_report);
    } else if (kind == PL_PROCESS_RANK) {
        (supervisor->role != PL_HOST_MASTER ? note_on_worker : pl_host_note_rank)(supervisor, exit_report);
    } else if (kind == PL_PROCESS_STACKS) {
        pl_hang_note_end(supervisor, exit_report);
    } else if (kind == PL_PROCESS_DAEMON) {
        pl_links_send_end(supervisor, exit_report); /* first, because it is more specific */
        if (!begun) {
            PL_SUPERVISE_SEND(supervisor, pl_links_master(supervisor), PL_FRAME_STARTED,
                              exit_report->note[0] != '\0' ? exit_report->note : "the daemon did not start");
        }
    } else if (pl_process_kind_in(kind, PL_PROCESS_SET_SERVERS) && !pl_exit_report_ok(exit_report)) {
        if (supervisor->role == PL_HOST_MASTER && !supervisor->main.ended) {
            pl_supervise_fail_exit(supervisor, exit_report);
        } else if (!knows_result(supervisor)) {
            pl_links_send_end(supervisor, exit_report);
        }
    }
}

void pl_host_look_apart(struct pl_supervisor *supervisor)
{
    int64_t next_ns = PL_DEADLINE_NEVER;

    pl_apart_look(&supervisor->seen.apart, &next_ns);
    PL_TIMER_SET(supervisor, APART, next_ns);
    if (supervisor->role != PL_HOST_MASTER) {
        pl_links_send_quiet(supervisor);
    } else {
        pl_apart_log_minute(supervisor);
    }
}

/* --- running --- */

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

static enum pl_status prepare_and_start(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text agent = PL_TEXT_NONE;

    if (supervisor->role == PL_HOST_MASTER) {
        PL_TRY(apply_processes(supervisor, reterr));
    }
    if (supervisor->role == PL_HOST_MASTER && supervisor->sessions.count > 0 &&
        supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN) {
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
    const struct pl_exit_report *mpirun = &supervisor->main.exit_report, *first = &supervisor->outcome.exit_report;

    return supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN && supervisor->stop.number == 0 && !mpirun->signalled &&
           mpirun->code > 0 && mpirun->code < 128 && supervisor->outcome.exit_report_known &&
           first->kind == PL_PROCESS_RANK && first->signalled && (first->code == SIGTERM || first->code == SIGKILL);
}

/* mpirun ends its ranks when one has left with 0 but without MPI_Finalize(), and when it gets SIGTERM itself. */
static void explain_ended_ranks(struct pl_supervisor *supervisor)
{
    const bool left = supervisor->main.left_early.rank >= 0;

    supervisor->outcome.exit_report = left ? supervisor->main.left_early : supervisor->main.exit_report;
    snprintf(supervisor->outcome.exit_report.note, sizeof(supervisor->outcome.exit_report.note), "%s",
             left ? "it left without MPI_Finalize() while other ranks ran, so that mpirun ended them; does the "
                    "program leave in its middle, for example by os._exit()?"
                  : "it ended its ranks, none of which had failed: was it sent a signal?");
}

/* If all ranks have succeeded, check whether they were N programs without a connection. If a rank was connected, or
 * there are none, there is nothing to wait for. */
static enum pl_status check_ranks(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const int64_t deadline_ns = pl_deadline_after_ns(LATE_REPORT_NS);

    while (pl_apart_is_possible(supervisor) && supervisor->main.ranks_ended < supervisor->plan->processes &&
           !pl_deadline_passed(deadline_ns)) {
        PL_TRY(pl_supervise_poll(supervisor, deadline_ns, reterr));
    }
    if (!supervisor->outcome.failed && supervisor->main.ranks_ended == supervisor->plan->processes &&
        pl_apart_is_possible(supervisor)) {
        pl_apart_log_end(supervisor);
    }
    return PL_OK;
}

static enum pl_status check_main_result(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_exit_report *main_report = &supervisor->main.exit_report;
    const bool ok = supervisor->main.ended && pl_exit_report_ok(main_report);
    const bool has_ranks = supervisor->ranks == PL_LAUNCH_PLAN_RANKS_MPIRUN;
    int64_t deadline_ns = pl_deadline_after_ns(ok ? FIRST_REPORT_NS : LATE_REPORT_NS);

    if (!supervisor->main.ended) {
        return PL_OK;
    }
    /* An mpirun that was not killed has ended its ranks: a report that is not read yet may have a more severe cause. */
    while (has_ranks &&
           (supervisor->outcome.failed ? !main_report->signalled && pl_supervise_runs(supervisor, PL_PROCESS_SET(RANK))
                                       : !(ok && supervisor->main.ranks_ended > 0)) &&
           !pl_deadline_passed(deadline_ns)) {
        PL_TRY(pl_supervise_poll(supervisor, deadline_ns, reterr));
    }
    if (!ok) {
        if (has_ranks && supervisor->main.ranks_ended == supervisor->plan->processes && !supervisor->outcome.failed &&
            !main_report->signalled && main_report->note[0] == '\0') {
            /* mpirun's own message about this would not fit into the part of a failure file that people see. If a
             * report is missing, its host may know the reason. */
            snprintf(main_report->note, sizeof(main_report->note),
                     "no rank failed; did one end without MPI_Finalize(), for example by os._exit()?");
        }
        if (launcher_ended_ranks(supervisor)) {
            explain_ended_ranks(supervisor);
        }
        pl_supervise_fail_exit(supervisor, main_report);
    } else if (has_ranks && supervisor->main.ranks_ended == 0) {
        pl_supervise_fail(supervisor, "mpirun exited with code 0 but has not run the program: remove options such as "
                                      "--version or -h from sagemaker_mpi_custom_mpi_options");
    }
    return supervisor->outcome.failed ? PL_OK : check_ranks(supervisor, reterr);
}

/* Returns when a host outside the launch stops waiting for its master, which would wait for this host. */
static int64_t join_end(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->is_outside && awaits_master(supervisor) ? pl_supervise_join_deadline(supervisor)
                                                                     : supervisor->sessions.begun_ns;
}

/* Whether this host waits for others. A program that succeeds on one host ends no other host: if each host has its own
 * program, the master stays until the programs of the others have ended too, and a linked worker waits for the result
 * from the master. */
static bool waits_for_hosts(const struct pl_supervisor *supervisor)
{
    if (supervisor->role != PL_HOST_MASTER) {
        return !knows_result(supervisor) && (pl_links_master(supervisor) || !pl_deadline_passed(join_end(supervisor)));
    }
    return supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE &&
           (!supervisor->outcome.failed || pl_supervise_failed_in_stop(supervisor) ||
            pl_holding_awaits_release(supervisor)) &&
           pl_links_count(supervisor, 1U << PL_SESSION_LINKED, false) > 0;
}

static bool is_over(const struct pl_supervisor *supervisor)
{
    if (supervisor->role == PL_HOST_LED) {
        return knows_result(supervisor) || supervisor->outcome.failed;
    }
    return (supervisor->main.ended || supervisor->main.dismissed) && !waits_for_hosts(supervisor);
}

/* Returns until when the programs of a failed job may still run. */
static int64_t grace_end(const struct pl_supervisor *supervisor)
{
    const int64_t released_ns = supervisor->stop.released_ns, failed_ns = supervisor->outcome.failed_ns;
    const int64_t begin_ns = released_ns > failed_ns ? released_ns : failed_ns;

    if (!supervisor->outcome.failed || pl_supervise_failed_in_stop(supervisor) ||
        (pl_holding_awaits_release(supervisor) &&
         (supervisor->outcome.exit_report_known || supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE))) {
        return PL_DEADLINE_NEVER;
    }
    if (pl_restart_follows(supervisor) || pl_restart_is_wanted(supervisor)) {
        return pl_restart_follows(supervisor) ? begin_ns : begin_ns + PL_RESTART_GRACE_NS;
    }
    if (!supervisor->outcome.exit_report_known) {
        return begin_ns + LOST_HOST_GRACE_NS;
    }
    return begin_ns + (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE ? TOLD_GRACE_NS : LAUNCHER_GRACE_NS);
}

/* Note whether the wait is over. Programs of a failed job get SIGTERM (mpirun ends its own), then a grace period. */
void pl_host_look_wait(struct pl_supervisor *supervisor)
{
    struct pl_main *main = &supervisor->main;
    int64_t end_ns;

    if (supervisor->state != PL_HOST_RUNNING || main->over) {
        return;
    }
    if (is_over(supervisor)) {
        main->over = true;
        return;
    }
    end_ns = supervisor->role == PL_HOST_LED ? PL_DEADLINE_NEVER : grace_end(supervisor);
    if (end_ns != PL_DEADLINE_NEVER && !main->told && !pl_restart_is_wanted(supervisor) &&
        !pl_restart_follows(supervisor)) {
        pl_supervise_signal(supervisor, PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(TORCHRUN), SIGTERM);
        main->told = true;
    }
    main->over = pl_deadline_passed(end_ns);
    if (main->ended && !pl_deadline_passed(join_end(supervisor)) && join_end(supervisor) < end_ns) {
        end_ns = join_end(supervisor);
    }
    PL_TIMER_SET(supervisor, WAIT, end_ns);
}

void pl_host_go_running(struct pl_supervisor *supervisor)
{
    pl_host_go(&supervisor->state, PL_HOST_RUNNING);
    PL_TIMER_WAKE(supervisor, APART);
    PL_TIMER_WAKE(supervisor, WATCH);
    PL_TIMER_WAKE(supervisor, HOLDING);
    PL_TIMER_WAKE(supervisor, WAIT);
    pl_links_look(supervisor);
}

static enum pl_status run(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    pl_host_go(&supervisor->state, PL_HOST_LINKING); /* a host that is alone waits for nothing until it runs */
    supervisor->sessions.begun_ns = pl_clock_now_ns();
    supervisor->outcome.failed |= supervisor->outcome.exit_report_known; /* it has waited: pl_restart_must_wait() */
    if (supervisor->role != PL_HOST_MASTER) {
        pl_frames_welcome(supervisor);
    }
    if (!supervisor->outcome.failed && supervisor->role != PL_HOST_LED) {
        PL_TRY(pl_peers_resolve(supervisor, true, reterr));
    }
    PL_TRY(pl_links_await(supervisor, reterr));
    PL_TRY(pl_supervise_may_go_on(supervisor));
    if (supervisor->state == PL_HOST_LINKING) { /* on a worker the master's READY may have changed the state */
        pl_host_go_running(supervisor);
    }
    if (!supervisor->main.dismissed) {
        PL_TRY(prepare_and_start(supervisor, reterr));
    }
    while (!supervisor->main.over) {
        PL_TRY(pl_supervise_poll(supervisor, PL_DEADLINE_NEVER, reterr));
    }
    if (supervisor->role == PL_HOST_MASTER) {
        return check_main_result(supervisor, reterr);
    }
    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && supervisor->plan->is_outside && supervisor->main.ended &&
        !knows_result(supervisor) && !pl_exit_report_ok(&supervisor->main.exit_report)) { /* no other result is known */
        pl_supervise_fail_exit(supervisor, &supervisor->main.exit_report);
    }
    return PL_OK;
}

/* --- the end --- */

/* Wait a moment for sessions that are being opened: a host whose master this host is must learn that it has
 * succeeded. */
static void await_open_sessions(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns = pl_deadline_after_ns(OPEN_SESSION_NS);

    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        while ((supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE || supervisor->sessions.items[i].outside) &&
               supervisor->sessions.items[i].link && supervisor->sessions.items[i].state == PL_SESSION_AWAY &&
               pl_supervise_wait(supervisor, deadline_ns)) {
        }
    }
}

/* Whether hosts that connect now must still learn how the job ended: after a failure all hosts, after a success only
 * hosts outside the launch. */
static bool must_notify(const struct pl_supervisor *supervisor)
{
    return supervisor->sessions.opens && (supervisor->outcome.failed || supervisor->plan->outside_hosts.count > 0) &&
           pl_links_missing(supervisor, true, NULL) > 0;
}

/* Hosts that are not linked yet would continue, or wait for this one. Notify those that connect until the deadline. */
static void notify_late_hosts(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!must_notify(supervisor)) {
        return;
    }
    if (supervisor->outcome.failed) {
        pl_supervise_failure_text(supervisor, &text);
        /* the platform may end us once it knows of the failure */
        pl_supervise_write_failure(supervisor, pl_text_string(&text));
    }
    pl_log(PL_LOG_INFO, "the job has %s; waiting for the other hosts, to notify them",
           supervisor->outcome.failed ? "failed" : "ended");
    pl_links_look(supervisor);
    while (supervisor->sessions.opens &&
           pl_supervise_wait(supervisor, supervisor->outcome.failed ? pl_supervise_notify_deadline(supervisor)
                                                                    : pl_supervise_join_deadline(supervisor))) {
    }
}

/* The host's own program has failed: end all processes here, write the failure file, and wait for the master's result,
 * which names the first cause. If the master has not connected, it may only be late: wait for it too. */
static void report_to_master(struct pl_supervisor *supervisor)
{
    int64_t deadline_ns;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (!supervisor->outcome.failed || (!pl_links_master(supervisor) && !awaits_master(supervisor)) ||
        knows_result(supervisor)) {
        return;
    }
    pl_supervise_failure_text(supervisor, &text);
    /* the platform may end us once it knows of the failure */
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    pl_supervise_kill_all(supervisor, true);
    if (awaits_master(supervisor)) {
        pl_log(PL_LOG_INFO, "the job has failed; waiting for the master host %s, to notify it",
               supervisor->sessions.items[0].host);
    }
    while (awaits_master(supervisor) && pl_supervise_wait(supervisor, pl_supervise_notify_deadline(supervisor))) {
    }
    /* a failure without an exit report is sent to the master next; a master that still prepares decides later */
    deadline_ns = pl_restart_is_wanted(supervisor)
                      ? PL_DEADLINE_NEVER
                      : pl_deadline_after_ns(supervisor->outcome.exit_report_known ? MASTER_RESULT_NS : 0);
    while (pl_links_master(supervisor) && !knows_result(supervisor) && pl_supervise_wait(supervisor, deadline_ns)) {
    }
}

/* End all processes: the master's first, then those of workers as they report. The workers' sessions end last. */
static void close_host(struct pl_supervisor *supervisor)
{
    const bool is_worker = supervisor->role != PL_HOST_MASTER, own_program = supervisor->plan->argv.count > 0;
    int64_t deadline_ns;

    pl_host_go(&supervisor->state, PL_HOST_CLOSING);
    for (size_t i = 0; i < supervisor->sessions.count; i++) {
        struct pl_session *session = &supervisor->sessions.items[i];

        if (!is_worker || session->state == PL_SESSION_LINKED) {
            pl_links_send_result(supervisor, session->link);
        }
    }
    if (pl_restart_follows(supervisor)) {
        pl_supervise_kill_all(supervisor, true);
    }
    if (supervisor->main.dismissed) {
        pl_supervise_signal(supervisor, PL_PROCESS_SET(PROGRAM), SIGTERM);
    }
    if (knows_result(supervisor)) { /* give the programs here a moment to end by themselves */
        pl_supervise_end(supervisor, PL_PROCESS_SET(DAEMON) | PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(TORCHRUN), 0,
                         own_program && !supervisor->outcome.failed ? PROGRAM_GRACE_NS : DAEMON_GRACE_NS);
    }
    pl_supervise_end(supervisor, PL_PROCESS_SET_SERVERS, SIGTERM, SIDECAR_GRACE_NS);
    pl_supervise_kill_all(supervisor, true);
    if (is_worker) {
        PL_SUPERVISE_SEND(supervisor, pl_links_master(supervisor), PL_FRAME_DONE, "");
        return;
    }
    notify_late_hosts(supervisor);
    await_open_sessions(supervisor);
    deadline_ns = pl_deadline_after_ns(DONE_WAIT_NS);
    while (pl_links_count(supervisor, (1U << PL_SESSION_LINKED) | (1U << PL_SESSION_IDLE), true) > 0 &&
           pl_supervise_wait(supervisor, deadline_ns)) {
    }
    if (pl_restart_follows(supervisor)) {
        pl_restart_note_lost(supervisor);
    }
}

static void await_masters_exit(struct pl_supervisor *supervisor)
{
    /* The master's own upload may take as long. */
    const int64_t upload_ns =
        supervisor->plan->sync.count > 0 ? supervisor->job->settings.intermediate_ns + PL_SUPERVISE_SYNC_GRACE_NS : 0;
    const int64_t deadline_ns = pl_deadline_after_ns(MASTER_END_NS + upload_ns);
    const bool waited = pl_links_master(supervisor);

    while (pl_links_master(supervisor) && pl_supervise_wait(supervisor, deadline_ns)) {
    }
    if (waited && !pl_restart_follows(supervisor)) {
        pl_clock_nap(AFTER_MASTER_NS, PL_DEADLINE_NEVER);
    }
}

/* Decide on the master whether the job is started again. A host that is prepared can do so, also before it runs. */
static void decide_restart(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (supervisor->role == PL_HOST_MASTER && pl_restart_is_possible(supervisor)) {
        pl_supervise_failure_text(supervisor, &text);
        pl_restart_decide(supervisor, pl_text_string(&text), pl_links_await_all(supervisor));
    }
}

int pl_host_execute(struct pl_supervisor *supervisor)
{
    const bool report_only = supervisor->outcome.failed;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    int exit_code = 0;

    if (!supervisor->plan) {
        pl_host_go(&supervisor->state, PL_HOST_ENDED);
        return pl_supervise_write_result(supervisor);
    }
    if (supervisor->link_kind == PL_LAUNCH_PLAN_LINK_NONE) {
        pl_links_drop(supervisor);
    }
    if (report_only) { /* the platform may end us once it knows of the failure */
        exit_code = pl_supervise_write_result(supervisor);
    }
    status = run(supervisor, &error);
    if (status != PL_OK) {
        pl_supervise_fail_status(supervisor, status, &error);
    }
    if (supervisor->role != PL_HOST_MASTER && supervisor->link_kind == PL_LAUNCH_PLAN_LINK_BESIDE && !report_only) {
        report_to_master(supervisor);
    }
    decide_restart(supervisor);
    close_host(supervisor);
    if (!pl_restart_follows(supervisor)) {
        exit_code = report_only ? exit_code : pl_supervise_write_result(supervisor);
        pl_supervise_end_sync(supervisor);
    }
    if (supervisor->role != PL_HOST_MASTER) {
        await_masters_exit(supervisor);
    }
    pl_host_go(&supervisor->state, PL_HOST_ENDED);
    pl_supervise_kill_all(supervisor, false); /* ends the sessions, and thereby the workers */
    pl_links_close(supervisor);
    if (pl_restart_follows(supervisor)) {
        pl_restart_leave(supervisor);
    }
    return exit_code;
}
