/* SPDX-License-Identifier: Apache-2.0 */
/* Processes on the hosts of a sweep: trials, and what removes their files. */
#include "programs/sweep/sweep.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/ssh/exec.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_NS (10 * PL_NS_PER_S) /* how long trials that are killed and removals may take at the end */

enum { SPARE_FILES = 64 };

void pl_sweep_fail(struct pl_sweep *sweep, const char *format, ...)
{
    va_list arguments;

    if (!sweep->failed) {
        sweep->failed = true;
        va_start(arguments, format);
        vsnprintf(sweep->reason, sizeof(sweep->reason), format, arguments);
        va_end(arguments);
    }
}

static bool is_here(const struct pl_sweep *sweep, size_t host)
{
    return sweep->hosts_count == 1 || (int)host == sweep->job->host_index;
}

/* Appends the command that runs `program` on the host: here that is the program itself. */
static enum pl_status add_words(const struct pl_sweep *sweep, size_t host, enum pl_exec_kind kind,
                                const struct pl_strv *program, struct pl_strv *argv, struct pl_error *reterr)
{
    if (is_here(sweep, host)) {
        pl_strv_add_all(argv, program);
        return pl_strv_check(argv, reterr);
    }
    return pl_exec_words(&sweep->sshd, sweep->run_dir, sweep->job->hosts.items[host], kind, program, argv, reterr);
}

/* Raises the limit of open files for all slots, once. */
static enum pl_status check_files(const struct pl_sweep *sweep, struct pl_error *reterr)
{
    const size_t needed = SPARE_FILES + 2 * (size_t)sweep->slots.count * sweep->hosts_count;
    struct rlimit limit = {.rlim_max = 0};

    if (pl_signals_raise_files((struct pl_signals *)sweep->signals, needed)) {
        return PL_OK;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    return pl_error_set(reterr, PL_LIMIT,
                        "the sweep's %d slots on each of %zu hosts need %zu open files on host %s, whose limit is %llu "
                        "(ulimit -n): expected fewer slots, or a higher limit",
                        sweep->slots.count, sweep->hosts_count, needed, sweep->job->current_host,
                        (unsigned long long)limit.rlim_max);
}

enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv names = PL_STRV_NONE;
    PL_AUTO_FREE char *current_host = NULL;
    const size_t slots = (size_t)sweep->slots.count * sweep->hosts_count;

    PL_TRY(check_files(sweep, reterr));
    PL_TRY(pl_companion_find(sweep->job->self_path, "paceline-trial", &sweep->trial_program, reterr));
    sweep->slot_trials = pl_memory_new(slots, sizeof(*sweep->slot_trials), reterr);
    sweep->removing = pl_memory_new(sweep->hosts_count, sizeof(*sweep->removing), reterr);
    sweep->next = pl_memory_new(sweep->hosts_count, sizeof(*sweep->next), reterr);
    PL_TRY(sweep->slot_trials && sweep->removing && sweep->next ? PL_OK : PL_MEMORY);
    for (size_t i = 0; i < slots; i++) {
        sweep->slot_trials[i] = -1;
    }
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        sweep->next[i] = i;
    }
    sweep->run_dir = pl_environment_get_or(sweep->job->process, PL_RUNDIR_VARIABLE, "");
    return sweep->hosts_count > 1 ? pl_sshd_load_hosts(sweep->run_dir, &sweep->sshd, &current_host, &names, reterr)
                                  : PL_OK;
}

/* Adds each hyperparameter as the platform's file has it: NAME=VALUE with the value's JSON text. */
static enum pl_status add_hyperparameters(const char *members, struct pl_strv *words, struct pl_error *reterr)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    PL_TRY(pl_python_json_parse(members, strlen(members), "a trial's hyperparameters", &root, reterr));
    for (const struct pl_python_json *node = pl_python_json_first(root); node; node = pl_python_json_next(node)) {
        PL_AUTO_TEXT struct pl_text value = PL_TEXT_NONE;

        pl_sweep_value_print(node, &value);
        PL_TRY(pl_text_check(&value, reterr));
        pl_strv_printf(words, "--hyperparameter=%s=%s", pl_python_json_name(node), pl_text_string(&value));
    }
    return PL_OK;
}

static enum pl_status add_trial_words(const struct pl_sweep *sweep, size_t trial, int slot, struct pl_strv *words,
                                      struct pl_error *reterr)
{
    pl_strv_add(words, sweep->trial_program, "--link");
    pl_strv_printf(words, "--checkpoints=%s/%s", sweep->folder, sweep->id);
    pl_strv_printf(words, "--metric=%s", sweep->space->metric_regex);
    pl_strv_printf(words, "--number=%zu", trial);
    pl_strv_printf(words, "--slot=%d", slot);
    pl_strv_printf(words, "--gpus=%d", sweep->slots.gpus);
    pl_strv_printf(words, "--cpus=%d", sweep->slots.cpus);
    pl_strv_printf(words, "--processes=%d", sweep->space->processes);
    PL_TRY(add_hyperparameters(sweep->space->trials[trial].hyperparameters, words, reterr));
    if (sweep->job->command.count > 0) {
        pl_strv_add(words, "--");
    }
    pl_strv_add_all(words, &sweep->job->command);
    return pl_strv_check(words, reterr);
}

enum pl_status pl_sweep_hosts_start(struct pl_sweep *sweep, size_t trial, int slot, struct pl_error *reterr)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const size_t host = trial % sweep->hosts_count;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE, argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int theirs_fd = -1, ours_fd = -1;
    int pair[2];

    PL_TRY(add_trial_words(sweep, trial, slot, &words, reterr));
    PL_TRY(add_words(sweep, host, PL_EXEC_CHANNEL, &words, &argv, reterr));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "socketpair");
    }
    ours_fd = pair[0];
    theirs_fd = pair[1];
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdin_fd = theirs_fd;
    setup.stdout_fd = is_here(sweep, host) ? -1 : theirs_fd; /* ssh reads one and writes the other */
    setup.own_group = true;
    setup.signals = sweep->signals;
    PL_TRY(pl_process_spawn(&setup, &run->pid, reterr));
    PL_TRY(pl_link_open(&run->link, ours_fd, reterr));
    ours_fd = -1;
    run->runs = true;
    run->slot = slot;
    sweep->slot_trials[host * (size_t)sweep->slots.count + (size_t)slot] = (int)trial;
    sweep->running++;
    return PL_OK;
}

void pl_sweep_hosts_path(const struct pl_sweep *sweep, size_t trial, bool model, struct pl_text *text)
{
    pl_text_printf(text, "%s/%s/trial-%04zu%s", sweep->folder, sweep->id, trial, model ? ".model" : "");
}

enum pl_status pl_sweep_hosts_spawn(const struct pl_sweep *sweep, size_t host, const char *const *words, int output_fd,
                                    int error_fd, pid_t *ret_pid, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_STRV struct pl_strv program = PL_STRV_NONE, argv = PL_STRV_NONE;

    pl_strv_add_list(&program, words);
    PL_TRY(add_words(sweep, host, PL_EXEC_STDIO, &program, &argv, reterr));
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdout_fd = output_fd;
    setup.stderr_fd = error_fd;
    setup.own_group = true;
    setup.signals = sweep->signals;
    return pl_process_spawn(&setup, ret_pid, reterr);
}

static bool any_process(const struct pl_sweep *sweep)
{
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        if (sweep->removing[i] > 0) {
            return true;
        }
    }
    return sweep->running > 0;
}

void pl_sweep_hosts_close(struct pl_sweep *sweep)
{
    const int64_t deadline_ns = pl_deadline_after_ns(END_NS);
    const size_t slots = sweep->slot_trials ? (size_t)sweep->slots.count * sweep->hosts_count : 0;

    for (size_t i = 0; i < slots; i++) {
        if (sweep->slot_trials[i] >= 0) {
            pl_link_close(&sweep->runs[sweep->slot_trials[i]].link); /* kills the trial */
        }
    }
    while (slots > 0 && any_process(sweep) && !pl_deadline_passed(deadline_ns)) {
        struct pollfd wait = {.fd = sweep->signals->fd, .events = POLLIN};
        pid_t pid;

        poll(&wait, 1, pl_deadline_poll_ms(deadline_ns));
        while (pl_signals_next(sweep->signals) != 0) {
        }
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
            for (size_t i = 0; i < sweep->hosts_count; i++) {
                sweep->removing[i] = sweep->removing[i] == pid ? 0 : sweep->removing[i];
            }
            for (size_t i = 0; i < slots; i++) {
                if (sweep->slot_trials[i] >= 0 && sweep->runs[sweep->slot_trials[i]].pid == pid) {
                    sweep->slot_trials[i] = -1;
                    sweep->running--;
                }
            }
        }
    }
}
