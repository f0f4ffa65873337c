/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's event loop, which all roles share: signals, connections, heartbeats, failures, stopping. */
#include "entrypoint/supervise/supervise.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* For how long an exit report of higher severity, closer to the root cause, may replace the first. */
#define BETTER_REASON_NS (PL_NS_PER_S / 2)
/* The same stop signal again within this time is the platform and another host saying the same thing. */
#define SAME_STOP_NS (5 * PL_NS_PER_S)
#define SWEEP_NS (5 * PL_NS_PER_S)

enum {
    MPI_UNKNOWN_ERROR = 14, /* Open MPI's MPI_ERR_UNKNOWN */
    CAUSE = 3,              /* the severity of an exit that needs no other to explain it */
};
/* How long a host that failed in its preparation waits for the others to connect, to notify them. */
#define TELL_FAILURE_NS (60 * PL_NS_PER_S)
/* A host that is stopped while hosts still wait for each other uses 1/12 of the stop budget to notify the others: most
 * of them know already, and the platform may not wait long. */
#define TELL_STOP_PART 12
/*
 * Where Open MPI 5 keeps its files. By default it uses a directory in /tmp named by host and process number, and
 * refuses to start if one of that name exists: left by a container that was killed and is started again, whose
 * processes have the same numbers.
 */
#define OPENMPI5_FILES_VARIABLE "PRTE_MCA_prte_tmpdir_base"

static int64_t setting_ns(const struct pl_job *job, const char *name)
{
    return (int64_t)(pl_job_number(job, name) * (double)PL_NS_PER_S);
}

void pl_supervise_open(struct pl_supervisor *supervisor, const struct pl_job *job, struct pl_signals *signals,
                       struct pl_failure *failure)
{
    *supervisor = (struct pl_supervisor){
        .job = job, .signals = signals, .failure = failure, .rundir = PL_RUNDIR_NONE, .ending = PL_ENDING_NONE};
    supervisor->silence_ns = setting_ns(job, "PACELINE_SILENCE_S");
    supervisor->peer_wait_ns = setting_ns(job, "PACELINE_PEER_WAIT_S");
    supervisor->sync_budget_ns = setting_ns(job, "PACELINE_INTERMEDIATE_S");
    supervisor->stop_budget_ns = setting_ns(job, "PACELINE_STOP_S");
    pl_process_adopt_orphans();
}

static void free_party(struct pl_party *party)
{
    pl_link_close(&party->link);
    free(party);
}

void pl_supervise_close(struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        free_party(supervisor->parties[i]);
    }
    free(supervisor->parties);
    supervisor->parties = NULL;
    supervisor->parties_count = 0;
    pl_rundir_close(&supervisor->rundir);
    pl_environment_free(supervisor->environment);
    supervisor->environment = NULL;
}

enum pl_status pl_supervise_take_plan(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                                      struct pl_error *reterr)
{
    supervisor->plan = plan;
    PL_TRY(pl_environment_new_copy(plan->environment, &supervisor->environment, reterr));
    if (!plan->spawns_ranks && !plan->needs_link) {
        return PL_OK;
    }
    PL_TRY(pl_rundir_open(&supervisor->rundir, reterr));
    PL_TRY(pl_rundir_save_environment(&supervisor->rundir, plan->environment, reterr));
    if (plan->spawns_ranks && pl_environment_get(plan->environment, OPENMPI5_FILES_VARIABLE) == NULL) {
        PL_TRY(pl_environment_set(supervisor->environment, OPENMPI5_FILES_VARIABLE, supervisor->rundir.path, reterr));
    }
    return pl_environment_set(supervisor->environment, PL_RUNDIR_VARIABLE, supervisor->rundir.path, reterr);
}

enum pl_status pl_supervise_add(struct pl_supervisor *supervisor, enum pl_party_kind kind, int fd,
                                struct pl_party **ret_party, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int owned_fd = fd;
    struct pl_party *party;
    enum pl_status status;

    PL_TRY(pl_memory_grow(&supervisor->parties, &supervisor->parties_capacity, supervisor->parties_count + 1,
                          sizeof(*supervisor->parties), reterr));
    party = pl_memory_new(1, sizeof(*party), reterr);
    if (party == NULL) {
        return PL_MEMORY;
    }
    *party = (struct pl_party){.link = PL_LINK_NONE, .kind = kind, .rank = -1, .index = -1};
    status = pl_link_open(&party->link, fd, reterr);
    if (status != PL_OK) {
        free(party);
        return status;
    }
    owned_fd = -1;
    supervisor->parties[supervisor->parties_count++] = party;
    if (ret_party != NULL) {
        *ret_party = party;
    }
    return PL_OK;
}

/* The exit code of a failure that is not a program's own. */
static int failure_code(const struct pl_supervisor *supervisor)
{
    return supervisor->stop_number != 0 ? 128 + supervisor->stop_number : 1;
}

/*
 * The severity: ranks, programs and their servers rank above what ends because of them; an exit or a fault above a
 * signal that was sent to all: the program got SIGTERM, or its shim SIGKILL. In between is the way Open MPI 5 ends a
 * rank whose peer closed its socket, which may be reported before the peer's own exit.
 */
static int weight(const struct pl_ending *ending)
{
    if (ending->of != PL_ENDING_RANK && ending->of != PL_ENDING_PROGRAM && ending->of != PL_ENDING_SIDE) {
        return 0;
    }
    if (ending->signalled && (ending->code == SIGTERM || ending->program[0] == '\0')) {
        return 1;
    }
    return ending->of == PL_ENDING_RANK && !ending->signalled && ending->code == MPI_UNKNOWN_ERROR ? 2 : CAUSE;
}

void pl_supervise_fail_by(struct pl_supervisor *supervisor, const struct pl_ending *ending)
{
    if (supervisor->failed) {
        bool late = pl_clock_now_ns() - supervisor->failed_ns > BETTER_REASON_NS;

        if (!supervisor->ending_known || late || weight(ending) <= weight(&supervisor->ending)) {
            return;
        }
    } else {
        supervisor->failed_ns = pl_clock_now_ns();
    }
    supervisor->failed = true;
    supervisor->ending_known = true;
    supervisor->ending = *ending;
    supervisor->exit_code = failure_code(supervisor);
    if (ending->of == PL_ENDING_PROGRAM) {
        supervisor->exit_code = ending->signalled ? 128 + ending->code : ending->code;
    }
}

void pl_supervise_fail(struct pl_supervisor *supervisor, const char *format, ...)
{
    va_list args;

    if (supervisor->failed) {
        return;
    }
    supervisor->failed = true;
    supervisor->failed_ns = pl_clock_now_ns();
    supervisor->exit_code = failure_code(supervisor);
    va_start(args, format);
    vsnprintf(supervisor->reason, sizeof(supervisor->reason), format, args);
    va_end(args);
}

void pl_supervise_fail_lost(struct pl_supervisor *supervisor, const char *whose, const char *host, const char *why)
{
    if (supervisor->failed && supervisor->ending_known && supervisor->stop_number == 0 &&
        weight(&supervisor->ending) < CAUSE) {
        supervisor->failed = false;
        supervisor->ending_known = false;
    }
    pl_supervise_fail(supervisor, "%s %.200s went away: %.300s", whose, host, why);
}

void pl_supervise_fail_status(struct pl_supervisor *supervisor, enum pl_status status, const struct pl_error *error)
{
    char name[16], text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

    if (status == PL_CANCELLED) {
        pl_supervise_fail(supervisor, "the job was stopped by %s before its program started",
                          pl_signal_name(supervisor->stop_number, name));
    } else if (status != PL_OK) {
        pl_supervise_fail(supervisor, "%s", pl_error_text(error, text, sizeof(text)));
    }
}

void pl_supervise_failure_text(const struct pl_supervisor *supervisor, struct pl_text *text)
{
    char name[16];

    if (supervisor->stop_number != 0 && supervisor->ending_known) {
        pl_text_printf(text, "the job was stopped by %s; ", pl_signal_name(supervisor->stop_number, name));
    }
    if (supervisor->ending_known) {
        pl_ending_report(&supervisor->ending, (size_t)PL_FAILURE_SHOWN_BYTES - text->length, text);
    } else {
        pl_text_append(text, supervisor->reason);
        if (text->length > 0 && text->data[text->length - 1] != '\n') {
            pl_text_append_char(text, '\n');
        }
    }
}

static bool is_live_watch(const struct pl_party *party)
{
    return party->kind == PL_PARTY_WATCH && !party->ended && !party->dropped;
}

static bool is_host_link(const struct pl_party *party)
{
    return (party->kind == PL_PARTY_WORKER || party->kind == PL_PARTY_MASTER) && !party->dropped && party->begun;
}

static void send_stop(struct pl_party *watch, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    watch->dropped = PL_LINK_SEND(&watch->link, PL_FRAME_STOP, NULL, text) != PL_OK;
}

void pl_supervise_signal(struct pl_supervisor *supervisor, enum pl_ending_of of, int number)
{
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        if (is_live_watch(supervisor->parties[i]) && supervisor->parties[i]->of == of) {
            send_stop(supervisor->parties[i], number);
        }
    }
}

void pl_supervise_stop(struct pl_supervisor *supervisor, int number, bool from_link)
{
    const enum pl_ending_of programs[] = {PL_ENDING_PROGRAM, PL_ENDING_RANK, PL_ENDING_STEP};
    const bool first = supervisor->stop_number == 0;
    int64_t early_ns;
    char name[16];

    if (!first) {
        if (from_link ||
            (number == supervisor->stop_number && pl_clock_now_ns() - supervisor->stop_ns < SAME_STOP_NS)) {
            return;
        }
    } else {
        supervisor->stop_number = number;
        supervisor->stop_ns = pl_clock_now_ns();
        early_ns = supervisor->plan != NULL && supervisor->plan->spawns_ranks ? PL_SUPERVISE_TELL_LAUNCHER_NS
                                                                              : PL_SUPERVISE_KILL_NS;
        pl_log(PL_LOG_INFO, "%s: stopping, %lld s for the program to save and end", pl_signal_name(number, name),
               (long long)((pl_supervise_stop_deadline(supervisor, early_ns) - supervisor->stop_ns) / PL_NS_PER_S));
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(programs); i++) {
        pl_supervise_signal(supervisor, programs[i], number);
    }
    for (size_t i = 0; first && i < supervisor->parties_count; i++) {
        if (is_host_link(supervisor->parties[i])) {
            pl_supervise_pass_stop(supervisor, supervisor->parties[i]);
        }
    }
}

void pl_supervise_pass_stop(struct pl_supervisor *supervisor, struct pl_party *host)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", supervisor->stop_number);
    if (supervisor->stop_number != 0) {
        PL_SUPERVISE_SEND(supervisor, host, PL_FRAME_STOP, text);
    }
}

bool pl_supervise_runs(const struct pl_supervisor *supervisor, enum pl_ending_of of)
{
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        if (is_live_watch(supervisor->parties[i]) && supervisor->parties[i]->of == of) {
            return true;
        }
    }
    return false;
}

int64_t pl_supervise_stop_deadline(const struct pl_supervisor *supervisor, int64_t early_ns)
{
    int64_t budget_ns = supervisor->stop_budget_ns;

    if (supervisor->stop_number == 0) {
        return PL_DEADLINE_NEVER;
    }
    /* A shorter budget keeps the proportions. */
    if (budget_ns < 55 * PL_NS_PER_S) {
        early_ns = (int64_t)((double)early_ns / 110e9 * (double)budget_ns * 2);
    }
    return supervisor->stop_ns + budget_ns - early_ns;
}

int64_t pl_supervise_meeting_deadline(const struct pl_supervisor *supervisor, int64_t begun_ns)
{
    if (supervisor->stop_number != 0) {
        return supervisor->stop_ns + supervisor->stop_budget_ns / TELL_STOP_PART;
    }
    return begun_ns + (supervisor->failed ? TELL_FAILURE_NS : supervisor->peer_wait_ns);
}

static void tell_ended(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_ending *ending)
{
    if (supervisor->role != NULL && supervisor->role->ended != NULL) {
        supervisor->role->ended(supervisor, party, ending);
    }
}

static void tell_frame(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_frame *frame)
{
    if (supervisor->role != NULL && supervisor->role->frame != NULL) {
        supervisor->role->frame(supervisor, party, frame);
    }
}

static void tell_gone(struct pl_supervisor *supervisor, struct pl_party *party, const char *why)
{
    if (supervisor->role != NULL && supervisor->role->gone != NULL) {
        supervisor->role->gone(supervisor, party, why);
    }
}

static void take_signal(struct pl_supervisor *supervisor, int number)
{
    switch (number) {
    case SIGINT:
    case SIGTERM:
        pl_supervise_stop(supervisor, number, false);
        break;
    case SIGHUP:
    case SIGQUIT:
    case SIGUSR1:
    case SIGUSR2:
    case SIGWINCH:
        pl_supervise_signal(supervisor, PL_ENDING_PROGRAM, number);
        pl_supervise_signal(supervisor, PL_ENDING_RANK, number);
        break;
    default:
        break;
    }
}

static void reap(void)
{
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
    } while (pid > 0 || (pid < 0 && errno == EINTR));
}

static void take_ending(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_ending *ending)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (party->ended) {
        return;
    }
    party->ended = true;
    if (party->of != PL_ENDING_SYNC) {
        tell_ended(supervisor, party, ending);
    } else if (!pl_ending_ok(ending)) {
        pl_ending_sentence(ending, &text);
        pl_log(PL_LOG_WARNING, "%s", pl_text_string(&text));
    }
}

/* A shim that ends without a report was killed, and its program with it. */
static void take_silent_end(struct pl_supervisor *supervisor, struct pl_party *party)
{
    struct pl_ending ending = PL_ENDING_NONE;

    ending.of = party->of;
    ending.rank = party->rank;
    ending.signalled = true;
    ending.code = SIGKILL;
    snprintf(ending.host, sizeof(ending.host), "%s", supervisor->job->current_host);
    take_ending(supervisor, party, &ending);
}

static void take_watch_frame(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_frame *frame)
{
    struct pl_ending ending;

    if (frame->type == PL_FRAME_BEGUN) {
        party->begun = true;
        tell_frame(supervisor, party, frame);
    } else if (frame->type == PL_FRAME_ENDED && pl_ending_receive(frame, &ending, NULL) == PL_OK) {
        take_ending(supervisor, party, &ending);
    }
}

static void take_hello(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_frame *frame)
{
    const char *kind = frame->type == PL_FRAME_HELLO && frame->count >= 2 ? frame->fields[0] : "";
    int64_t rank;

    if (strcmp(kind, "watch") == 0 && pl_frame_number(frame, 2, 0, INT32_MAX, &rank, NULL) == PL_OK) {
        party->kind = PL_PARTY_WATCH;
        party->of = PL_ENDING_RANK;
        party->rank = (int)rank;
        if (supervisor->stop_number != 0) {
            send_stop(party, supervisor->stop_number); /* it connected too late to get it with the others */
        }
    } else if (strcmp(kind, "agent") == 0) {
        party->kind = PL_PARTY_AGENT;
    } else if (strcmp(kind, "master") == 0) {
        party->kind = PL_PARTY_MASTER;
        tell_frame(supervisor, party, frame);
    } else {
        party->dropped = true;
    }
}

static void take_frames(struct pl_supervisor *supervisor, struct pl_party *party)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&party->link, &error);

    while (status == PL_OK && !party->dropped) {
        status = pl_link_next(&party->link, &frame, &error);
        if (status != PL_OK) {
            break;
        }
        if (party->kind == PL_PARTY_NEW) {
            take_hello(supervisor, party, &frame);
        } else if (party->kind == PL_PARTY_WATCH) {
            take_watch_frame(supervisor, party, &frame);
        } else if (frame.type != PL_FRAME_HEARTBEAT) {
            tell_frame(supervisor, party, &frame);
        }
    }
    if (status == PL_OK || status == PL_END || party->dropped) {
        return;
    }
    party->dropped = true;
    if (party->kind == PL_PARTY_WATCH) {
        take_silent_end(supervisor, party);
    } else if (party->kind != PL_PARTY_NEW) {
        tell_gone(supervisor, party, status == PL_PEER ? "its connection closed" : error.cause);
    }
}

static void accept_party(struct pl_supervisor *supervisor)
{
    int fd = accept4(supervisor->rundir.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pl_error error = PL_ERROR_NONE;

    if (fd >= 0 && pl_supervise_add(supervisor, PL_PARTY_NEW, fd, NULL, &error) != PL_OK) {
        pl_log_error(&error, "take a connection");
    }
}

void pl_supervise_send(struct pl_supervisor *supervisor, struct pl_party *party, enum pl_frame_type type,
                       const char *const *fields, size_t count)
{
    if (!party->dropped && pl_link_send(&party->link, type, fields, count, NULL) != PL_OK) {
        party->dropped = true;
        tell_gone(supervisor, party, "it takes no more messages");
    }
}

/* Send heartbeats, and find the connections that time out. */
static void beat(struct pl_supervisor *supervisor)
{
    int64_t now_ns = pl_clock_now_ns();
    bool due = now_ns >= supervisor->next_heartbeat_ns;
    char why[64];

    if (due) {
        supervisor->next_heartbeat_ns = now_ns + supervisor->silence_ns / 6;
    }
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        struct pl_party *party = supervisor->parties[i];

        if (!is_host_link(party)) {
            continue;
        }
        if (now_ns - party->link.heard_ns > supervisor->silence_ns) {
            snprintf(why, sizeof(why), "nothing was heard from it for %lld s",
                     (long long)(supervisor->silence_ns / PL_NS_PER_S));
            party->dropped = true;
            tell_gone(supervisor, party, why);
        } else if (due) {
            pl_supervise_send(supervisor, party, PL_FRAME_HEARTBEAT, NULL, 0);
        }
    }
}

static void forget_dropped(struct pl_supervisor *supervisor)
{
    size_t kept = 0;

    for (size_t i = 0; i < supervisor->parties_count; i++) {
        if (supervisor->parties[i]->dropped) {
            free_party(supervisor->parties[i]);
        } else {
            supervisor->parties[kept++] = supervisor->parties[i];
        }
    }
    supervisor->parties_count = kept;
}

enum pl_status pl_supervise_turn(struct pl_supervisor *supervisor, int64_t deadline_ns, struct pl_error *reterr)
{
    size_t count = supervisor->parties_count;
    PL_AUTO_FREE struct pollfd *waits = NULL;
    bool linked = false;

    waits = pl_memory_new(count + 2, sizeof(*waits), reterr);
    if (waits == NULL) {
        return PL_MEMORY;
    }
    waits[0] = (struct pollfd){.fd = supervisor->signals->fd, .events = POLLIN};
    waits[1] = (struct pollfd){.fd = supervisor->rundir.listen_fd, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        waits[2 + i] = (struct pollfd){.fd = supervisor->parties[i]->link.fd,
                                       .events = pl_link_events(&supervisor->parties[i]->link)};
        linked = linked || is_host_link(supervisor->parties[i]);
    }
    if (linked && supervisor->next_heartbeat_ns < deadline_ns) {
        deadline_ns = supervisor->next_heartbeat_ns;
    }
    if (poll(waits, (nfds_t)count + 2, pl_deadline_poll_ms(deadline_ns)) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "wait for events");
    }
    if (waits[0].revents != 0) {
        for (int number = pl_signals_next(supervisor->signals); number != 0;
             number = pl_signals_next(supervisor->signals)) {
            take_signal(supervisor, number);
        }
        reap();
    }
    for (size_t i = 0; i < count; i++) {
        if (waits[2 + i].revents != 0 && !supervisor->parties[i]->dropped) {
            pl_link_flush(&supervisor->parties[i]->link);
            take_frames(supervisor, supervisor->parties[i]);
        }
    }
    if (waits[1].revents != 0) {
        accept_party(supervisor);
    }
    if (linked) {
        beat(supervisor);
    }
    forget_dropped(supervisor);
    return PL_OK;
}

void pl_supervise_drop(struct pl_supervisor *supervisor, enum pl_party_kind kind)
{
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        supervisor->parties[i]->dropped = supervisor->parties[i]->dropped || supervisor->parties[i]->kind == kind;
    }
    forget_dropped(supervisor);
}

/* True for what is not killed with the others: the upload of intermediate output, and with `links` the processes that
 * links to other hosts run through. */
static bool survives_sweep(const struct pl_party *party, bool links)
{
    if (party->kind == PL_PARTY_WORKER) {
        return links && party->begun && !party->dropped;
    }
    return is_live_watch(party) && (party->of == PL_ENDING_SYNC || (links && party->of == PL_ENDING_SSHD));
}

void pl_supervise_sweep(struct pl_supervisor *supervisor, bool keep_links)
{
    int64_t deadline_ns = pl_deadline_after_ns(SWEEP_NS);
    PL_AUTO_FREE pid_t *keep = pl_memory_new(supervisor->parties_count, sizeof(*keep), NULL);
    size_t keep_count = 0;

    for (size_t i = 0; i < supervisor->parties_count && keep != NULL; i++) {
        if (survives_sweep(supervisor->parties[i], keep_links)) {
            keep[keep_count++] = supervisor->parties[i]->pid;
        }
    }
    /* The children of a killed process become ours, so that every round reaches one generation further. */
    while (pl_process_signal_children(SIGKILL, keep, keep_count) > 0) {
        reap();
        if (pl_deadline_passed(deadline_ns)) {
            pl_log(PL_LOG_WARNING, "some processes do not end although they were killed");
            break;
        }
        pl_clock_nap(2 * PL_NS_PER_MS, deadline_ns);
    }
    for (size_t i = 0; i < supervisor->parties_count; i++) {
        struct pl_party *party = supervisor->parties[i];

        party->dropped = party->dropped || (party->kind == PL_PARTY_WATCH && !survives_sweep(party, keep_links));
    }
    forget_dropped(supervisor);
}

int pl_supervise_conclude(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;

    if (!supervisor->failed) {
        if (pl_failure_succeed(supervisor->failure, &error) != PL_OK) {
            pl_log_error(&error, "write %s/success", supervisor->job->paths.output);
        }
        return 0;
    }
    pl_supervise_failure_text(supervisor, &text);
    if (text.length > 0) {
        pl_log(PL_LOG_ERROR, "%.*s", (int)strcspn(pl_text_string(&text), "\n"), pl_text_string(&text));
    }
    if (pl_failure_write(supervisor->failure, pl_text_string(&text), &error) != PL_OK) {
        pl_log_error(&error, "write %s/failure", supervisor->job->paths.output);
    }
    return supervisor->exit_code != 0 ? supervisor->exit_code : 1;
}
