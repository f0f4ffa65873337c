/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The master role, of the host that runs the job's first process or its only one: connect to the workers, run the
 * program or mpirun, find out how the job ended, notify the workers, end everything.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/peers.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_AGAIN_NS (200 * PL_NS_PER_MS)
#define PROGRESS_NS (10 * PL_NS_PER_S)
/* mpirun ends a failed job itself, ranks first with SIGTERM; this is how long it may take. */
#define LAUNCHER_GRACE_NS (3 * PL_NS_PER_S)
/* The same after the loss of a host, when the job cannot end well anyway. */
#define LOST_HOST_GRACE_NS (PL_NS_PER_S / 2)
/* A rank's report from another host may come just after mpirun's end. */
#define LATE_REPORT_NS (PL_NS_PER_S / 2)
/* An mpirun that ended well has run ranks, whose reports may still be in transit; one that was asked for its version
 * has not. */
#define FIRST_REPORT_NS (5 * PL_NS_PER_S)
#define DONE_WAIT_NS (7 * PL_NS_PER_S)
/* How long a rank's shim may take to say whether its program handles a stop. */
#define ANSWER_NS (PL_NS_PER_S)

struct worker {
    const char *host;
    struct pl_connection *link; /* NULL while there is no session */
    int ssh_stderr_fd;          /* a memory file with ssh's stderr */
    int64_t next_try_ns;        /* PL_DEADLINE_NEVER while a session is up or being made */
    bool ready, done;
    char reason[200]; /* why the last session failed */
};

/* What a rank's shim said when it was sent the stop. */
struct answer {
    int rank;
    bool catches; /* its program has a handler for the signal */
    bool ended;
};

struct master {
    struct pl_sshd sshd;
    struct worker *workers; /* hosts[1..] of the plan */
    size_t workers_count;
    bool main_ended;
    int ranks_ended; /* on all hosts */
    struct answer *answers;
    size_t answers_count, answers_capacity;
    int unasked_ended; /* ranks that ended before they were sent the stop */
    bool held;         /* the hosts were notified that ranks that have ended wait for others */
    struct pl_exit_report main_report;
};

static struct worker *worker_of(struct master *master, const struct pl_connection *connection)
{
    for (size_t i = 0; i < master->workers_count; i++) {
        if (master->workers[i].link == connection) {
            return &master->workers[i];
        }
    }
    return NULL;
}

static void note_answer(struct master *master, const struct pl_frame *frame)
{
    int64_t rank, catches;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_link_frame_number(frame, 0, 0, INT32_MAX, &rank, NULL) != PL_OK ||
        pl_link_frame_number(frame, 1, 0, 1, &catches, NULL) != PL_OK) {
        return;
    }
    if (pl_memory_grow(&master->answers, &master->answers_capacity, master->answers_count + 1, sizeof(*master->answers),
                       &error) != PL_OK) {
        pl_log_error(&error, "note how rank %d handles the stop", (int)rank);
        return;
    }
    master->answers[master->answers_count++] = (struct answer){.rank = (int)rank, .catches = catches == 1};
}

static void note_rank_end(struct pl_supervisor *supervisor, const struct pl_exit_report *exit_report)
{
    struct master *master = supervisor->state;
    size_t i = 0;

    master->ranks_ended++;
    while (i < master->answers_count && master->answers[i].rank != exit_report->rank) {
        i++;
    }
    if (i < master->answers_count) {
        master->answers[i].ended = true;
    } else {
        master->unasked_ended++;
    }
    if (!pl_exit_report_ok(exit_report)) {
        pl_supervise_fail_exit(supervisor, exit_report);
    }
}

static void master_ended(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_exit_report *exit_report)
{
    struct master *master = supervisor->state;

    switch (connection->source) {
    case PL_EXIT_SOURCE_PROGRAM:
    case PL_EXIT_SOURCE_LAUNCHER:
        master->main_ended = true;
        master->main_report = *exit_report;
        break;
    case PL_EXIT_SOURCE_RANK:
        note_rank_end(supervisor, exit_report);
        break;
    case PL_EXIT_SOURCE_SIDECAR:
        if (!master->main_ended && !pl_exit_report_ok(exit_report)) {
            pl_supervise_fail_exit(supervisor, exit_report);
        }
        break;
    case PL_EXIT_SOURCE_DAEMON:
    case PL_EXIT_SOURCE_SSHD:
    case PL_EXIT_SOURCE_STEP:
    case PL_EXIT_SOURCE_SYNC:
        break;
    }
}

/* The agent that asked for the daemon of worker number `index`. */
static struct pl_connection *find_agent(struct pl_supervisor *supervisor, int index)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_AGENT && connection->index == index && !connection->dropped) {
            return connection;
        }
    }
    return NULL;
}

/* mpirun only sees its agent exit with 1, and its own last lines would not give the reason. */
static void reject_start(struct pl_supervisor *supervisor, const char *host, const char *why)
{
    if (supervisor->stop_number == 0) {
        pl_supervise_fail(supervisor, "Open MPI's daemon on host '%.200s' does not start: %s", host, why);
    }
}

/* mpirun wants a daemon on a host, where there is one at most. */
static void forward_start(struct pl_supervisor *supervisor, struct pl_connection *agent, const struct pl_frame *frame)
{
    static const char not_ours[] = "this host is not a worker of the job";
    struct master *master = supervisor->state;

    for (size_t i = 0; i < master->workers_count; i++) {
        struct worker *worker = &master->workers[i];

        if (strcmp(worker->host, frame->fields[0]) == 0 && worker->link != NULL) {
            agent->index = (int)i;
            agent->dropped =
                PL_LINK_SEND(&worker->link->link, PL_FRAME_START, NULL, worker->host, frame->fields[1]) != PL_OK;
            return;
        }
    }
    agent->dropped = PL_LINK_SEND(&agent->link, PL_FRAME_STARTED, NULL, not_ours) != PL_OK;
    reject_start(supervisor, frame->fields[0], not_ours);
}

static void handle_ready(struct pl_supervisor *supervisor, struct worker *worker, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    if (frame->count < 1 || strcmp(frame->fields[0], worker->host) != 0) {
        pl_supervise_fail(
            supervisor,
            "host name '%.200s' leads to a host that calls itself '%.200s': check the names in resourceconfig.json",
            worker->host, frame->count > 0 ? frame->fields[0] : "");
        return;
    }
    worker->ready = true;
    connection->begun = true;
    pl_supervise_forward_stop(supervisor, connection); /* it connected too late to get it with the others */
}

static void handle_worker_frame(struct pl_supervisor *supervisor, struct worker *worker,
                                struct pl_connection *connection, const struct pl_frame *frame)
{
    struct master *master = supervisor->state;
    struct pl_connection *agent;
    struct pl_exit_report exit_report;
    int64_t number;

    switch (frame->type) {
    case PL_FRAME_READY:
        handle_ready(supervisor, worker, connection, frame);
        break;
    case PL_FRAME_STARTED:
        if (frame->count >= 1) {
            agent = find_agent(supervisor, (int)(worker - master->workers));
            if (agent != NULL) {
                agent->dropped = PL_LINK_SEND(&agent->link, PL_FRAME_STARTED, NULL, frame->fields[0]) != PL_OK;
            }
            if (frame->fields[0][0] != '\0') {
                reject_start(supervisor, worker->host, frame->fields[0]);
            }
        }
        break;
    case PL_FRAME_ENDED:
        if (pl_exit_report_receive(frame, &exit_report, NULL) == PL_OK) {
            if (exit_report.source == PL_EXIT_SOURCE_RANK) {
                note_rank_end(supervisor, &exit_report);
            } else if (!pl_exit_report_ok(&exit_report)) {
                pl_supervise_fail_exit(supervisor, &exit_report);
            }
        }
        break;
    case PL_FRAME_STOP:
        if (pl_link_frame_number(frame, 0, 1, 64, &number, NULL) == PL_OK) {
            pl_supervise_stop(supervisor, (int)number, true);
        }
        break;
    case PL_FRAME_RESULT: /* the worker itself cannot go on */
        pl_supervise_fail(supervisor, "host %.200s: %.700s", worker->host,
                          frame->count >= 2 ? frame->fields[1] : "failed");
        break;
    case PL_FRAME_DONE:
        worker->done = true;
        break;
    case PL_FRAME_CATCHES:
        note_answer(master, frame);
        break;
    case PL_FRAME_HELLO:
    case PL_FRAME_HEARTBEAT:
    case PL_FRAME_START:
    case PL_FRAME_BEGUN:
    case PL_FRAME_HOLD:
    case PL_FRAME_RELEASE:
    case PL_FRAME_TYPES:
        break;
    }
}

static void master_frame(struct pl_supervisor *supervisor, struct pl_connection *connection,
                         const struct pl_frame *frame)
{
    struct master *master = supervisor->state;
    struct worker *worker = worker_of(master, connection);

    if (worker != NULL) {
        handle_worker_frame(supervisor, worker, connection, frame);
    } else if (connection->kind == PL_CONNECTION_SHIM && frame->type == PL_FRAME_CATCHES) {
        note_answer(master, frame);
    } else if (connection->kind == PL_CONNECTION_AGENT && frame->type == PL_FRAME_START && frame->count >= 2) {
        forward_start(supervisor, connection, frame);
    } else if (connection->kind == PL_CONNECTION_MASTER) {
        connection->dropped = true; /* this host is the master */
    }
}

/*
 * The last line that ssh wrote, without the names that are in the progress line anyway. Where a server hangs up before
 * its greeting, as OpenSSH 9.8 does to a client that has failed to log in a few times, the message of the earlier
 * sessions stays the reason.
 */
static void read_reason(struct worker *worker)
{
    char words[2048];
    ssize_t bytes = worker->ssh_stderr_fd >= 0 ? pread(worker->ssh_stderr_fd, words, sizeof(words) - 1, 0) : 0;
    const char *line;

    while (bytes > 0 && (words[bytes - 1] == '\n' || words[bytes - 1] == '\r')) {
        bytes--;
    }
    words[bytes > 0 ? bytes : 0] = '\0';
    line = strrchr(words, '\n') != NULL ? strrchr(words, '\n') + 1 : words;
    if (worker->reason[0] != '\0' && (line[0] == '\0' || strncmp(line, "kex_exchange_identification: ", 29) == 0)) {
        return;
    }
    if (strncmp(line, "ssh: connect to host ", 21) == 0 && strrchr(line, ':') != NULL) {
        line = strrchr(line, ':') + 1;
        line += strspn(line, " ");
    }
    snprintf(worker->reason, sizeof(worker->reason), "%.180s", line[0] != '\0' ? line : "the session ended");
}

static void master_gone(struct pl_supervisor *supervisor, struct pl_connection *connection, const char *why)
{
    struct worker *worker = worker_of(supervisor->state, connection);

    if (worker == NULL) {
        return;
    }
    worker->link = NULL;
    if (worker->ready && !worker->done) {
        pl_supervise_fail_lost(supervisor, "host", worker->host, why);
    } else if (!worker->ready) {
        read_reason(worker);
        worker->next_try_ns = pl_deadline_after_ns(TRY_AGAIN_NS);
    }
}

/* One ssh session whose stdin and stdout are the link. */
static enum pl_status open_session(struct pl_supervisor *supervisor, struct worker *worker, struct pl_error *reterr)
{
    struct master *master = supervisor->state;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int far_fd = -1;
    enum pl_status status;
    int pair[2];
    pid_t pid;

    PL_TRY(pl_sshd_client(&master->sshd, &supervisor->rundir, worker->host, &argv, reterr));
    pl_file_close_at(&worker->ssh_stderr_fd);
    worker->ssh_stderr_fd = memfd_create("ssh", MFD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    far_fd = pair[1];
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.signals = supervisor->signals;
    setup.stdin_fd = setup.stdout_fd = far_fd;
    setup.stderr_fd = worker->ssh_stderr_fd;
    setup.own_group = true; /* so that it gets no signals that a terminal sends to the foreground */
    status = pl_process_spawn(&setup, &pid, reterr);
    if (status != PL_OK) {
        close(pair[0]);
        return status;
    }
    PL_TRY(pl_supervise_add(supervisor, PL_CONNECTION_WORKER, pair[0], &worker->link, reterr));
    worker->link->pid = pid;
    worker->next_try_ns = PL_DEADLINE_NEVER;
    return PL_LINK_SEND(&worker->link->link, PL_FRAME_HELLO, reterr, "master", supervisor->job->current_host);
}

static size_t count_missing(const struct master *master, struct pl_text *text)
{
    size_t missing = 0;

    for (size_t i = 0; i < master->workers_count; i++) {
        const struct worker *worker = &master->workers[i];

        if (!worker->ready && ++missing <= 5) {
            pl_text_printf(text, "%s%s (%s)", missing > 1 ? ", " : "", worker->host,
                           worker->reason[0] != '\0' ? worker->reason : "no answer yet");
        }
    }
    if (missing > 5) {
        pl_text_append(text, ", ...");
    }
    return missing;
}

/* Open sessions that are due; the time of the next one. */
static enum pl_status open_due_sessions(struct pl_supervisor *supervisor, int64_t *next_ns, struct pl_error *reterr)
{
    struct master *master = supervisor->state;

    for (size_t i = 0; i < master->workers_count; i++) {
        struct worker *worker = &master->workers[i];

        if (worker->link == NULL && pl_deadline_passed(worker->next_try_ns)) {
            PL_TRY(open_session(supervisor, worker, reterr));
        }
        if (worker->next_try_ns < *next_ns) {
            *next_ns = worker->next_try_ns;
        }
    }
    return PL_OK;
}

static enum pl_status connect_workers(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct master *master = supervisor->state;
    const int64_t begun_ns = pl_clock_now_ns();
    int64_t next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
    bool report_only;

    PL_TRY(pl_supervise_open_ssh(supervisor, &master->sshd, reterr));
    PL_TRY(pl_sshd_prepare_client(&master->sshd, &supervisor->rundir, reterr));
    report_only = supervisor->failed; /* for example when a stop ended the making of keys */
    for (;;) {
        PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;
        int64_t deadline_ns = pl_supervise_join_deadline(supervisor, begun_ns);
        int64_t next_ns = next_log_ns < deadline_ns ? next_log_ns : deadline_ns;
        size_t missing = count_missing(master, &names);

        if (missing == 0 || supervisor->failed != report_only) {
            return PL_OK;
        }
        if (pl_deadline_passed(deadline_ns)) {
            if (report_only || supervisor->stop_number != 0) {
                return PL_OK;
            }
            return pl_error_set(reterr, PL_TIMEOUT, "%zu of %zu hosts did not come within %lld s: %.400s", missing,
                                supervisor->plan->hosts.count, (long long)(supervisor->join_timeout_ns / PL_NS_PER_S),
                                pl_text_string(&names));
        }
        if (pl_deadline_passed(next_log_ns)) {
            pl_log(PL_LOG_INFO, "waiting for %zu of %zu hosts: %s", missing, supervisor->plan->hosts.count,
                   pl_text_string(&names));
            next_log_ns = pl_deadline_after_ns(PROGRESS_NS);
        }
        PL_TRY(open_due_sessions(supervisor, &next_ns, reterr));
        PL_TRY(pl_supervise_poll(supervisor, next_ns, reterr));
    }
}

static enum pl_status start_main(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct master *master = supervisor->state;
    PL_AUTO_TEXT struct pl_text agent = PL_TEXT_NONE;

    if (master->workers_count > 0 && supervisor->plan->spawns_ranks) {
        /* mpirun asks us for its daemons instead of running ssh; by a variable, so that its command line stays as
         * usual. */
        pl_text_printf(&agent, "%s relay --agent", supervisor->job->self_path);
        PL_TRY(pl_text_check(&agent, reterr));
        PL_TRY(pl_environment_set(supervisor->environment, "OMPI_MCA_plm_rsh_agent", pl_text_string(&agent), reterr));
        PL_TRY(pl_environment_set(supervisor->environment, "PRTE_MCA_plm_ssh_agent", pl_text_string(&agent), reterr));
    }
    return pl_supervise_start_main(supervisor, reterr);
}

/* True when the failed program ended while the job was being stopped: the others have the stop's time, unless mpirun
 * ends them. */
static bool failed_while_stopping(const struct pl_supervisor *supervisor)
{
    return supervisor->failed && supervisor->exit_report_known && supervisor->stop_number != 0 &&
           supervisor->stop_ns <= supervisor->failed_ns && !supervisor->plan->spawns_ranks;
}

/* During a stop, until every rank that handles it has ended: shims whose rank has ended wait, so that mpirun does not
 * end those that save. */
static bool is_holding(const struct pl_supervisor *supervisor)
{
    return supervisor->stop_number != 0 && supervisor->plan->spawns_ranks && !supervisor->released;
}

/* How long the launcher of a failed job may still take. */
static int64_t grace_end(const struct pl_supervisor *supervisor)
{
    int64_t begin_ns =
        supervisor->released_ns > supervisor->failed_ns ? supervisor->released_ns : supervisor->failed_ns;

    if (!supervisor->failed || failed_while_stopping(supervisor) ||
        (supervisor->exit_report_known && is_holding(supervisor))) {
        return PL_DEADLINE_NEVER;
    }
    return begin_ns + (supervisor->exit_report_known ? LAUNCHER_GRACE_NS : LOST_HOST_GRACE_NS);
}

static size_t count_saving(const struct master *master)
{
    size_t count = 0;

    for (size_t i = 0; i < master->answers_count; i++) {
        count += master->answers[i].catches && !master->answers[i].ended;
    }
    return count;
}

/* A rank has ended badly while others save: the failure file is written on every host before they go on, as the
 * platform may kill all before they have ended. */
static void hold(struct pl_supervisor *supervisor, size_t saving)
{
    struct master *master = supervisor->state;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    pl_supervise_failure_text(supervisor, &text);
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    for (size_t i = 0; i < master->workers_count; i++) {
        if (master->workers[i].link != NULL) {
            PL_SUPERVISE_SEND(supervisor, master->workers[i].link, PL_FRAME_HOLD, pl_text_string(&text));
        }
    }
    pl_log(PL_LOG_WARNING, "%.*s; waiting for %zu rank%s with a handler to save and end",
           (int)strcspn(pl_text_string(&text), "\n"), pl_text_string(&text), saving, saving == 1 ? "" : "s");
    master->held = true;
}

static void release(struct pl_supervisor *supervisor)
{
    struct master *master = supervisor->state;

    pl_supervise_release(supervisor);
    for (size_t i = 0; i < master->workers_count; i++) {
        if (master->workers[i].link != NULL) {
            PL_SUPERVISE_SEND(supervisor, master->workers[i].link, PL_FRAME_RELEASE, "");
        }
    }
}

/* Hold, or release once all answers are there, or should be, and nobody saves. */
static void hold_or_release(struct pl_supervisor *supervisor)
{
    struct master *master = supervisor->state;
    size_t saving = count_saving(master);

    if (!is_holding(supervisor)) {
        return;
    }
    if (saving > 0) {
        if (!master->held && supervisor->failed && supervisor->exit_report_known) {
            hold(supervisor, saving);
        }
    } else if ((int)master->answers_count + master->unasked_ended >= supervisor->plan->processes ||
               pl_deadline_passed(supervisor->stop_ns + ANSWER_NS)) {
        release(supervisor);
    }
}

/* Wait until the main program has ended, or until waiting is useless. */
static enum pl_status wait_for_main(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct master *master = supervisor->state;
    bool launcher_stopped = false, program_stopped = false;

    while (!master->main_ended) {
        int64_t stop_launcher_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_STOP_LAUNCHER_NS);
        int64_t kill_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_KILL_NS);
        int64_t next_ns = launcher_stopped ? kill_ns : stop_launcher_ns;
        int64_t answers_ns = supervisor->stop_ns + ANSWER_NS; /* of a stop */

        if (grace_end(supervisor) < next_ns) {
            next_ns = grace_end(supervisor);
        }
        if (is_holding(supervisor) && !pl_deadline_passed(answers_ns) && answers_ns < next_ns) {
            next_ns = answers_ns;
        }
        PL_TRY(pl_supervise_poll(supervisor, next_ns, reterr));
        hold_or_release(supervisor);
        if (supervisor->failed && !program_stopped && !failed_while_stopping(supervisor)) {
            pl_supervise_signal(supervisor, PL_EXIT_SOURCE_PROGRAM, SIGTERM); /* mpirun ends its ranks itself */
            program_stopped = true;
        }
        if (pl_deadline_passed(grace_end(supervisor))) {
            return PL_OK;
        }
        if (pl_deadline_passed(kill_ns)) {
            pl_supervise_fail(supervisor, "the program did not end within %lld s after it was asked to stop",
                              (long long)(supervisor->stop_budget_ns / PL_NS_PER_S));
            return PL_OK;
        }
        if (!launcher_stopped && pl_deadline_passed(stop_launcher_ns)) {
            pl_supervise_signal(supervisor, PL_EXIT_SOURCE_LAUNCHER, SIGTERM);
            launcher_stopped = true;
        }
    }
    return PL_OK;
}

static enum pl_status check_main_result(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct master *master = supervisor->state;
    const bool ok = master->main_ended && pl_exit_report_ok(&master->main_report);
    const bool has_ranks = supervisor->plan->spawns_ranks;
    int64_t deadline_ns = pl_deadline_after_ns(ok ? FIRST_REPORT_NS : LATE_REPORT_NS);

    if (!master->main_ended) {
        return PL_OK;
    }
    while (has_ranks && !supervisor->failed && !(ok && master->ranks_ended > 0) && !pl_deadline_passed(deadline_ns)) {
        PL_TRY(pl_supervise_poll(supervisor, deadline_ns, reterr));
    }
    if (!ok) {
        if (has_ranks && master->ranks_ended == supervisor->plan->processes && !supervisor->failed &&
            !master->main_report.signalled && master->main_report.note[0] == '\0') {
            /* mpirun's own message for it is longer than what a failure file shows. A host whose report is missing may
             * know better. */
            snprintf(master->main_report.note, sizeof(master->main_report.note),
                     "no rank failed; did one end without MPI_Finalize(), which pl_runtime_stop() calls?");
        }
        pl_supervise_fail_exit(supervisor, &master->main_report);
    } else if (has_ranks && master->ranks_ended == 0) {
        pl_supervise_fail(
            supervisor,
            "mpirun ended with code 0 and has not run the program: look at sagemaker_mpi_custom_mpi_options");
    }
    return PL_OK;
}

static enum pl_status run_job(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct master *master = supervisor->state;

    if (supervisor->plan->needs_names && !supervisor->failed) {
        PL_TRY(pl_peers_resolve(supervisor, &supervisor->job->hosts, reterr));
    }
    if (master->workers_count > 0) {
        PL_TRY(connect_workers(supervisor, reterr));
    }
    if (supervisor->failed) {
        return PL_FAILED;
    }
    if (supervisor->stop_number != 0) {
        return PL_CANCELLED;
    }
    PL_TRY(pl_supervise_start_sidecar(supervisor, reterr));
    PL_TRY(start_main(supervisor, reterr));
    PL_TRY(wait_for_main(supervisor, reterr));
    return check_main_result(supervisor, reterr);
}

static void send_result(struct pl_supervisor *supervisor)
{
    struct master *master = supervisor->state;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (supervisor->failed) {
        pl_supervise_failure_text(supervisor, &text);
    }
    for (size_t i = 0; i < master->workers_count; i++) {
        struct worker *worker = &master->workers[i];

        if (worker->link != NULL) {
            PL_SUPERVISE_SEND(supervisor, worker->link, PL_FRAME_RESULT, supervisor->failed ? "1" : "0",
                              pl_text_string(&text));
        }
    }
}

static bool workers_done(const struct master *master)
{
    for (size_t i = 0; i < master->workers_count; i++) {
        if (master->workers[i].link != NULL && master->workers[i].ready && !master->workers[i].done) {
            return false;
        }
    }
    return true;
}

/* No process may be left: first here, then, as they report, on the workers, whose sessions end last. */
static void finish(struct pl_supervisor *supervisor)
{
    struct master *master = supervisor->state;
    int64_t deadline_ns = pl_deadline_after_ns(DONE_WAIT_NS);

    send_result(supervisor);
    pl_supervise_end_sidecar(supervisor);
    pl_supervise_kill_all(supervisor, true);
    while (!workers_done(master) && !pl_deadline_passed(deadline_ns)) {
        if (pl_supervise_poll(supervisor, deadline_ns, NULL) != PL_OK) {
            break;
        }
    }
}

static enum pl_status make_workers(struct pl_supervisor *supervisor, struct master *master, struct pl_error *reterr)
{
    const struct pl_launch_plan *plan = supervisor->plan;

    if (!plan->needs_link || plan->hosts.count < 2) {
        return PL_OK;
    }
    master->workers = pl_memory_new(plan->hosts.count - 1, sizeof(*master->workers), reterr);
    if (master->workers == NULL) {
        return PL_MEMORY;
    }
    master->workers_count = plan->hosts.count - 1;
    for (size_t i = 0; i < master->workers_count; i++) {
        master->workers[i] = (struct worker){.host = plan->hosts.items[i + 1], .ssh_stderr_fd = -1};
    }
    return PL_OK;
}

int pl_master_run(struct pl_supervisor *supervisor)
{
    static const struct pl_role role = {.ended = master_ended, .frame = master_frame, .gone = master_gone};
    struct master master = {.sshd = PL_SSHD_NONE};
    struct pl_error error = PL_ERROR_NONE;
    const bool report_only = supervisor->failed;
    int exit_code = report_only ? pl_supervise_finish(supervisor) : 0; /* the platform may end us once it knows */
    enum pl_status status;

    supervisor->role = &role;
    supervisor->state = &master;
    status = make_workers(supervisor, &master, &error);
    if (status == PL_OK) {
        status = run_job(supervisor, &error);
    }
    pl_supervise_fail_status(supervisor, status, &error);
    finish(supervisor);
    exit_code = report_only ? exit_code : pl_supervise_finish(supervisor);
    pl_supervise_end_sync(supervisor);
    pl_supervise_kill_all(supervisor, false); /* ends the sessions, and so the workers */
    for (size_t i = 0; i < master.workers_count; i++) {
        pl_file_close_at(&master.workers[i].ssh_stderr_fd);
    }
    free(master.workers);
    free(master.answers);
    pl_sshd_close(&master.sshd);
    supervisor->role = NULL;
    return exit_code;
}
