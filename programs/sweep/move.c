/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a trial's checkpoints or the best model: paceline-unpack sends on one host and receives on the other. */
#include "programs/sweep/state.h"

#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/supervise/process.h"
#include "programs/sweep/trial_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SENDER, RECEIVER };

static const char *const folder_names[] = {
    [PL_SWEEP_CHECKPOINTS] = "checkpoints", [PL_SWEEP_OWN_MODEL] = "model", [PL_SWEEP_MODEL] = "model"};

/* Reads the last line of a process's standard error, without its newline. */
static void read_words(int fd, char *words, size_t words_bytes)
{
    char text[512];
    ssize_t bytes = fd >= 0 ? pread(fd, text, sizeof(text) - 1, 0) : 0;
    const char *line;

    bytes = bytes > 0 ? bytes : 0;
    while (bytes > 0 && text[bytes - 1] == '\n') {
        bytes--;
    }
    text[bytes] = '\0';
    line = strrchr(text, '\n');
    snprintf(words, words_bytes, "%s", line ? line + 1 : text);
}

/* Ends the move. `words` is the reason if it failed, else NULL. */
static void end_move(struct pl_sweep *sweep, const char *words)
{
    struct pl_sweep_move *move = &sweep->move;

    move->is_on = false;
    move->is_over = true;
    if (words && move->is_aborted) {
        words = "the job was stopped; the folder stays in its place for the job's next start";
    }
    if (words && move->from == move->to) {
        snprintf(move->reason, sizeof(move->reason), "its %s could not be copied to '%s': %s",
                 folder_names[move->folder], sweep->job->paths.model, words);
    } else if (words) {
        snprintf(move->reason, sizeof(move->reason), "its %s could not be moved from host %s to host %s: %s",
                 folder_names[move->folder], sweep->job->hosts.items[move->from], sweep->job->hosts.items[move->to],
                 words);
    } else if (move->from != move->to) {
        pl_log(PL_LOG_INFO, "moved the %s of trial %d from host %s to host %s in %.1f s", folder_names[move->folder],
               move->trial, sweep->job->hosts.items[move->from], sweep->job->hosts.items[move->to],
               (double)(pl_clock_now_ns() - move->begun_ns) / (double)PL_NS_PER_S);
    }
}

/* Takes the ends of both processes. If the sender has failed, its message is the reason: the receiver only finds that
 * the rest is missing. */
static void take_ends(struct pl_sweep *sweep)
{
    struct pl_sweep_move *move = &sweep->move;
    const int which = move->ends[SENDER].code != 0 ? SENDER : RECEIVER;
    char words[600];

    if (move->ends[which].code == 0) {
        end_move(sweep, NULL);
        return;
    }
    read_words(move->ends[which].words_fd, words, sizeof(words) - 40);
    if (words[0] == '\0') {
        snprintf(words, sizeof(words), "%s ended with code %d", which == SENDER ? "the sender" : "the receiver",
                 move->ends[which].code);
    }
    end_move(sweep, words);
}

/* Starts the sender or the receiver. `words` are the arguments of paceline-unpack, with NULL at the end. */
static enum pl_status start_end(struct pl_sweep *sweep, int which, int host, const char *const *words, int pipe_fd,
                                struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv program = PL_STRV_NONE, argv = PL_STRV_NONE;
    PL_AUTO_FREE char *companion = NULL;

    PL_TRY(pl_companion_find(sweep->job->self_path, "paceline-unpack", &companion, reterr));
    PL_TRY(pl_strv_add(&program, companion, reterr));
    PL_TRY(pl_strv_add_list(&program, words, reterr));
    PL_TRY(pl_sweep_hosts_words(sweep, host, PL_EXEC_STDIO, &program, &argv, reterr));
    sweep->move.ends[which].words_fd = pl_fd_new_memory("paceline-move", 0);
    if (sweep->move.ends[which].words_fd < 0) {
        return pl_error_errno(reterr, "memfd_create");
    }
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdin_fd = which == RECEIVER ? pipe_fd : -1;
    setup.stdout_fd = which == SENDER ? pipe_fd : -1;
    setup.stderr_fd = sweep->move.ends[which].words_fd;
    setup.own_group = true;
    setup.signals = sweep->signals;
    setup.death_signal = SIGKILL;
    return pl_process_spawn(&setup, &sweep->move.ends[which].pid, reterr);
}

static enum pl_status begin(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const struct pl_sweep_move *move = &sweep->move;
    const bool is_model = move->folder == PL_SWEEP_MODEL;
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_CLOSE int read_fd = -1, write_fd = -1;
    const char *own;
    int fds[2];

    PL_TRY(pl_trial_folder_name(sweep->job, move->trial, &folder, reterr));
    own = move->folder == PL_SWEEP_CHECKPOINTS ? folder.checkpoints : folder.model;
    if (is_model && move->from == move->to) {
        return start_end(sweep, RECEIVER, move->to,
                         (const char *const[]){"--copy", folder.model, sweep->job->paths.model, NULL}, -1, reterr);
    }
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return pl_error_errno(reterr, "pipe2");
    }
    read_fd = fds[0];
    write_fd = fds[1];
    PL_TRY(start_end(sweep, RECEIVER, move->to,
                     (const char *const[]){is_model ? "--receive-in-place" : "--receive",
                                           is_model ? sweep->job->paths.model : own, NULL},
                     read_fd, reterr));
    return start_end(sweep, SENDER, move->from, (const char *const[]){is_model ? "--pack-model" : "--pack", own, NULL},
                     write_fd, reterr);
}

void pl_sweep_move_begin(struct pl_sweep *sweep, int trial, enum pl_sweep_folder folder, int from, int to)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_sweep_move_done(sweep);
    sweep->move = (struct pl_sweep_move){.is_on = true, .trial = trial, .folder = folder, .from = from, .to = to};
    sweep->move.ends[SENDER].words_fd = sweep->move.ends[RECEIVER].words_fd = -1;
    sweep->move.begun_ns = pl_clock_now_ns();
    if (from != to) {
        pl_log(PL_LOG_INFO, "moving the %s of trial %d from host %s to host %s", folder_names[folder], trial,
               sweep->job->hosts.items[from], sweep->job->hosts.items[to]);
    }
    if (begin(sweep, &error) != PL_OK) {
        end_move(sweep, error.cause);
    }
}

bool pl_sweep_move_note_end(struct pl_sweep *sweep, pid_t pid, int code)
{
    struct pl_sweep_move *move = &sweep->move;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(move->ends); i++) {
        if (move->ends[i].pid == pid) {
            move->ends[i].pid = 0;
            move->ends[i].code = code;
            if (move->is_on && move->ends[SENDER].pid == 0 && move->ends[RECEIVER].pid == 0) {
                take_ends(sweep);
            }
            return true;
        }
    }
    return false;
}

void pl_sweep_move_abort(struct pl_sweep *sweep, bool at_once)
{
    struct pl_sweep_move *move = &sweep->move;

    move->is_aborted = true;
    if (!at_once && move->ends[SENDER].pid > 0) {
        kill(-move->ends[SENDER].pid, SIGKILL); /* the receiver removes what it has received, and ends */
        return;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(move->ends); i++) {
        if (move->ends[i].pid > 0) {
            kill(-move->ends[i].pid, SIGKILL);
        }
    }
    end_move(sweep, "");
}

void pl_sweep_move_done(struct pl_sweep *sweep)
{
    for (size_t i = 0; i < PL_ARRAY_ITEMS(sweep->move.ends); i++) {
        if (sweep->move.ends[i].pid > 0) {
            kill(-sweep->move.ends[i].pid, SIGKILL);
        }
        if (sweep->move.ends[i].words_fd > 0) {
            close(sweep->move.ends[i].words_fd);
        }
    }
    sweep->move = (struct pl_sweep_move){.is_on = false};
}
