/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker role, of a host that gets the job's result from the master; mostly its ranks are started by the master's
 * mpirun: run sshd for the master's session, start mpirun's daemon when asked, forward how its ranks end and stop
 * signals, receive the result, leave no process running, exit after the master.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/ssh/command.h"
#include "entrypoint/supervise/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* mpirun's daemon ends by itself when the job does. */
#define DAEMON_GRACE_NS (PL_NS_PER_S)
/* A program that this host started itself, once the master has ended well: time to notice and save. */
#define PROGRAM_GRACE_NS (3 * PL_NS_PER_S)
/* After the result: how long the master may take to end; docker compose stops everything when the first container
 * ends. */
#define MASTER_END_NS (10 * PL_NS_PER_S)
/* its session ends before it does: time for the rest of its exit on a busy machine */
#define AFTER_MASTER_NS (PL_NS_PER_S)
#define PROGRESS_NS (30 * PL_NS_PER_S)

struct worker_state {
    struct pl_sshd sshd;
    struct pl_party *master;
    bool met, result_known;
};

static const char *master_host(const struct pl_supervisor *supervisor)
{
    return supervisor->plan->hosts.items[0];
}

static void send_ending(struct pl_supervisor *supervisor, const struct pl_ending *ending)
{
    const struct worker_state *state = supervisor->state;

    if (state->master != NULL && pl_ending_send(ending, &state->master->link, NULL) != PL_OK) {
        pl_log(PL_LOG_WARNING, "the master was not told how a program ended here");
    }
}

static void answer_start(struct pl_supervisor *supervisor, const char *text)
{
    const struct worker_state *state = supervisor->state;

    if (state->master != NULL) {
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_STARTED, text);
    }
}

static void worker_ended(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_ending *ending)
{
    struct worker_state *state = supervisor->state;

    switch (party->of) {
    case PL_ENDING_RANK:
        send_ending(supervisor, ending);
        break;
    case PL_ENDING_DAEMON:
        send_ending(supervisor, ending); /* first, since it is more specific */
        if (!party->begun) {
            answer_start(supervisor, ending->note[0] != '\0' ? ending->note : "the daemon did not start");
        }
        break;
    case PL_ENDING_SSHD:
        if (!state->result_known) {
            pl_supervise_fail_by(supervisor, ending);
        }
        break;
    case PL_ENDING_PROGRAM:
    case PL_ENDING_SIDE:
        if (!pl_ending_ok(ending) && !state->result_known) {
            send_ending(supervisor, ending);
        }
        break;
    case PL_ENDING_LAUNCHER:
    case PL_ENDING_STEP:
    case PL_ENDING_SYNC:
        break;
    }
}

/* `name` next to the file `program`, if it can be executed. */
static enum pl_status find_beside(const char *program, const char *name, char **ret_path, struct pl_error *reterr)
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
    const char *name = slash != NULL ? slash + 1 : wanted;
    PL_AUTO_FREE char *mpirun = NULL;
    PL_AUTO_FREE char *real_mpirun = NULL;
    enum pl_status status;

    PL_TRY(pl_file_find_program("mpirun", pl_environment_get(supervisor->environment, "PATH"), &mpirun, reterr));
    status = find_beside(mpirun, name, ret_path, reterr);
    real_mpirun = status != PL_OK ? realpath(mpirun, NULL) : NULL;
    return real_mpirun != NULL && find_beside(real_mpirun, name, ret_path, NULL) == PL_OK ? PL_OK : status;
}

static enum pl_status start_daemon(struct pl_supervisor *supervisor, const char *text, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_WORDS struct pl_words command = PL_WORDS_NONE;
    enum pl_status status;
    char *path;

    PL_TRY(pl_command_split_daemon(text, &command, reterr));
    status = find_daemon(supervisor, command.items[0], &path, reterr);
    if (status == PL_OK) {
        free(command.items[0]);
        command.items[0] = path;
        setup.argv = (const char *const *)command.items;
        setup.environment = pl_environment_strings(supervisor->environment);
        setup.cwd = supervisor->plan->cwd;
        status = pl_supervise_start(supervisor, PL_ENDING_DAEMON, &setup, NULL, reterr);
    }
    return status;
}

static void take_start(struct pl_supervisor *supervisor, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    if (frame->count >= 2 && start_daemon(supervisor, frame->fields[1], &error) != PL_OK) {
        answer_start(supervisor, error.cause);
    }
}

/* Some launchers have a program on every host; it starts when all hosts are there, which is when the master has
 * connected. */
static enum pl_status start_own(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    PL_TRY(pl_supervise_start_side(supervisor, reterr));
    return pl_supervise_start_main(supervisor, reterr);
}

/* A client with the job's key says that it is the master: the first one is accepted. */
static void meet_master(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_frame *frame)
{
    struct worker_state *state = supervisor->state;

    if (state->master != NULL || strcmp(frame->fields[1], master_host(supervisor)) != 0) {
        pl_log(PL_LOG_WARNING, "'%.100s' wants to be this job's master; it is %s", frame->fields[1],
               master_host(supervisor));
        party->dropped = true;
        return;
    }
    if (PL_LINK_SEND(&party->link, PL_FRAME_READY, NULL, supervisor->job->current_host) != PL_OK) {
        party->dropped = true;
        return;
    }
    state->master = party;
    state->met = true;
    party->begun = true;
    pl_supervise_pass_stop(supervisor, party); /* the stop came before the master connected */
}

static void worker_frame(struct pl_supervisor *supervisor, struct pl_party *party, const struct pl_frame *frame)
{
    struct worker_state *state = supervisor->state;
    int64_t number;

    if (party->kind == PL_PARTY_WATCH) {
        if (frame->type == PL_FRAME_BEGUN && party->of == PL_ENDING_DAEMON) {
            answer_start(supervisor, "");
        }
        return;
    }
    if (party->kind != PL_PARTY_MASTER) {
        party->dropped = true;
        return;
    }
    switch (frame->type) {
    case PL_FRAME_HELLO:
        /* the master's first frame; a later one is ignored */
        if (party != state->master && frame->count >= 2) {
            meet_master(supervisor, party, frame);
        }
        break;
    case PL_FRAME_START:
        take_start(supervisor, frame);
        break;
    case PL_FRAME_STOP:
        if (pl_frame_number(frame, 0, 1, 64, &number, NULL) == PL_OK) {
            pl_supervise_stop(supervisor, (int)number, true);
        }
        break;
    case PL_FRAME_RESULT:
        state->result_known = true;
        if (frame->count >= 2 && strcmp(frame->fields[0], "0") != 0) {
            pl_supervise_fail(supervisor, "%s", frame->fields[1]);
        }
        break;
    case PL_FRAME_READY:
    case PL_FRAME_HEARTBEAT:
    case PL_FRAME_STARTED:
    case PL_FRAME_BEGUN:
    case PL_FRAME_ENDED:
    case PL_FRAME_DONE:
    case PL_FRAME_TYPES:
        break;
    }
}

static void worker_gone(struct pl_supervisor *supervisor, struct pl_party *party, const char *why)
{
    struct worker_state *state = supervisor->state;

    if (party != state->master) {
        return;
    }
    state->master = NULL;
    if (!state->result_known) {
        pl_supervise_fail_lost(supervisor, "the master host", master_host(supervisor), why);
    }
}

static enum pl_status start_sshd(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct worker_state *state = supervisor->state;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_WORDS struct pl_words argv = PL_WORDS_NONE;

    PL_TRY(pl_supervise_open_ssh(supervisor, &state->sshd, reterr));
    PL_TRY(pl_sshd_server(&state->sshd, supervisor->job, &supervisor->rundir, &argv, reterr));
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(supervisor->environment);
    setup.cwd = "/";
    return pl_supervise_start(supervisor, PL_ENDING_SSHD, &setup, NULL, reterr);
}

static enum pl_status wait_for_master(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct worker_state *state = supervisor->state;
    const bool only_tells = supervisor->failed;
    const int64_t begun_ns = pl_clock_now_ns();
    int64_t say_ns = pl_deadline_after_ns(PROGRESS_NS);

    while (!state->met && supervisor->failed == only_tells) {
        int64_t deadline_ns = pl_supervise_meeting_deadline(supervisor, begun_ns);

        if (pl_deadline_passed(deadline_ns)) {
            if (only_tells || supervisor->stop_number != 0) {
                break;
            }
            return pl_error_set(reterr, PL_TIMEOUT, "the master host %.200s did not come within %lld s",
                                master_host(supervisor), (long long)(supervisor->peer_wait_ns / PL_NS_PER_S));
        }
        if (pl_deadline_passed(say_ns)) {
            pl_log(PL_LOG_INFO, "waiting for the master host %s", master_host(supervisor));
            say_ns = pl_deadline_after_ns(PROGRESS_NS);
        }
        PL_TRY(pl_supervise_turn(supervisor, say_ns < deadline_ns ? say_ns : deadline_ns, reterr));
    }
    return supervisor->failed || supervisor->stop_number == 0 ? PL_OK : PL_CANCELLED;
}

static enum pl_status wait_for_result(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    const struct worker_state *state = supervisor->state;

    while (!state->result_known && !supervisor->failed) {
        int64_t deadline_ns = pl_supervise_stop_deadline(supervisor, PL_SUPERVISE_KILL_NS / 2);

        PL_TRY(pl_supervise_turn(supervisor, deadline_ns, reterr));
        if (pl_deadline_passed(deadline_ns)) {
            pl_supervise_fail(supervisor, "the job did not end within %lld s after it was asked to stop",
                              (long long)(supervisor->stop_budget_ns / PL_NS_PER_S));
        }
    }
    return PL_OK;
}

/* Our own failure is the job's: notify the master. Then end everything here, say so, and wait for the master to end
 * first. */
static void leave(struct pl_supervisor *supervisor)
{
    struct worker_state *state = supervisor->state;
    const bool own_program = supervisor->plan->argv.count > 0;
    int64_t deadline_ns = pl_deadline_after_ns(own_program && !supervisor->failed ? PROGRAM_GRACE_NS : DAEMON_GRACE_NS);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    if (state->master != NULL && !state->result_known) {
        pl_supervise_failure_text(supervisor, &text);
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_RESULT, "1", pl_text_string(&text));
    }
    while (state->result_known &&
           (pl_supervise_runs(supervisor, PL_ENDING_DAEMON) || pl_supervise_runs(supervisor, PL_ENDING_PROGRAM)) &&
           !pl_deadline_passed(deadline_ns)) {
        if (pl_supervise_turn(supervisor, deadline_ns, NULL) != PL_OK) {
            break;
        }
    }
    pl_supervise_end_side(supervisor);
    pl_supervise_sweep(supervisor, true);
    if (state->master != NULL) {
        PL_SUPERVISE_SEND(supervisor, state->master, PL_FRAME_DONE, "");
    }
}

static void outlive_master(struct pl_supervisor *supervisor)
{
    const struct worker_state *state = supervisor->state;
    /* The master's own may take as long. */
    int64_t upload_ns = supervisor->plan->sync.count > 0 ? supervisor->sync_budget_ns + PL_SUPERVISE_SYNC_GRACE_NS : 0;
    int64_t deadline_ns = pl_deadline_after_ns(MASTER_END_NS + upload_ns);
    bool waited = state->master != NULL;

    while (state->master != NULL && !pl_deadline_passed(deadline_ns)) {
        if (pl_supervise_turn(supervisor, deadline_ns, NULL) != PL_OK) {
            break;
        }
    }
    if (waited) {
        pl_clock_nap(AFTER_MASTER_NS, PL_DEADLINE_NEVER);
    }
    pl_supervise_sweep(supervisor, false);
}

int pl_worker_run(struct pl_supervisor *supervisor)
{
    static const struct pl_role role = {.ended = worker_ended, .frame = worker_frame, .gone = worker_gone};
    struct worker_state state = {.sshd = PL_SSHD_NONE};
    struct pl_error error = PL_ERROR_NONE;
    const bool only_tells = supervisor->failed;
    int exit_code = only_tells ? pl_supervise_conclude(supervisor) : 0; /* the platform may end us once it knows */
    enum pl_status status;

    supervisor->role = &role;
    supervisor->state = &state;
    status = start_sshd(supervisor, &error);
    if (status == PL_OK) {
        status = wait_for_master(supervisor, &error);
    }
    if (status == PL_OK && !supervisor->failed) {
        status = start_own(supervisor, &error);
    }
    if (status == PL_OK) {
        status = wait_for_result(supervisor, &error);
    }
    pl_supervise_fail_status(supervisor, status, &error);
    leave(supervisor);
    exit_code = only_tells ? exit_code : pl_supervise_conclude(supervisor);
    pl_supervise_end_sync(supervisor);
    outlive_master(supervisor);
    pl_sshd_close(&state.sshd);
    supervisor->role = NULL;
    return exit_code;
}
