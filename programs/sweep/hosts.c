/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of a sweep's hosts, and the processes on them. */
#include "programs/sweep/sweep.h"

#include "base/cpus.h"
#include "base/file.h"
#include "base/memory.h"
#include "entrypoint/job/devices.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/ssh/relay.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

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

enum pl_status pl_slots_cut(const char *host, int cpus, int gpus, int processes, int wanted, struct pl_slots *ret_slots,
                            struct pl_error *reterr)
{
    const int devices = gpus > 0 ? gpus : cpus;
    struct pl_slots slots = {.count = wanted > 0 ? wanted : devices / processes};

    if (slots.count == 0) {
        return pl_error_set(reterr, PL_INVALID,
                            "the sweep has %d processes per trial, and host %.200s has %d %s: expected at most %d "
                            "processes, or the number of slots in \"slots\"",
                            processes, host, devices, gpus > 0 ? "GPUs" : "CPUs", devices);
    }
    slots.cpus = cpus / slots.count > 0 ? cpus / slots.count : 1;
    slots.gpus = gpus / slots.count > 0 ? gpus / slots.count : gpus > 0;
    if (slots.gpus > 0 && slots.gpus < processes) {
        slots.gpus = processes < gpus ? processes : gpus; /* slots share these GPUs */
    }
    *ret_slots = slots;
    return PL_OK;
}

enum pl_status pl_slots_of_job(const struct pl_job *job, const struct pl_sweep_space *space, struct pl_slots *ret_slots,
                               struct pl_error *reterr)
{
    const char *visible = pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES");
    const int limit = pl_devices_cpu_limit("");
    int gpus = job->gpus, cpus = pl_devices_cpus();
    struct pl_cpus allowed;

    if (sched_getaffinity(0, sizeof(allowed), allowed.sets) == 0) {
        cpus = CPU_COUNT_S(sizeof(allowed), allowed.sets);
    }
    cpus = limit > 0 && limit < cpus ? limit : cpus;
    if (gpus > 0 && visible) {
        gpus = 0;
        for (const char *at = visible; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
            gpus += strcspn(at, ",") > 0;
        }
    }
    return pl_slots_cut(job->current_host, cpus, gpus, space->processes, space->slots, ret_slots, reterr);
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

static const char *run_dir(const struct pl_sweep *sweep)
{
    return pl_environment_get_or(sweep->job->process, PL_RUNDIR_VARIABLE, "");
}

enum pl_status pl_sweep_hosts_open(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const size_t slots = (size_t)sweep->slots.count * sweep->hosts_count;
    PL_AUTO_STRV struct pl_strv names = PL_STRV_NONE;
    PL_AUTO_FREE char *current_host = NULL;

    PL_TRY(check_files(sweep, reterr));
    PL_TRY(pl_companion_find(sweep->job->self_path, "paceline-trial", &sweep->trial_program, reterr));
    PL_TRY(pl_memory_alloc(&sweep->removing, sweep->hosts_count, sizeof(*sweep->removing), reterr));
    PL_TRY(pl_memory_alloc(&sweep->next, sweep->hosts_count, sizeof(*sweep->next), reterr));
    for (size_t i = 0; i < sweep->hosts_count; i++) {
        sweep->next[i] = i;
    }
    PL_TRY(pl_memory_alloc(&sweep->in_slot, slots, sizeof(*sweep->in_slot), reterr));
    sweep->slots_count = slots;
    return sweep->hosts_count > 1 ? pl_sshd_load_hosts(run_dir(sweep), &sweep->sshd, &current_host, &names, reterr)
                                  : PL_OK;
}

enum pl_status pl_sweep_hosts_words(const struct pl_sweep *sweep, size_t host, bool channel,
                                    const struct pl_strv *program, struct pl_strv *argv, struct pl_error *reterr)
{
    if (host == 0) {
        pl_strv_add_all(argv, program);
        return pl_strv_check(argv, reterr);
    }
    return pl_exec_words(&sweep->sshd, run_dir(sweep), sweep->job->hosts.items[host],
                         channel ? PL_EXEC_CHANNEL : PL_EXEC_STDIO, program, argv, reterr);
}

enum pl_status pl_sweep_hosts_spawn(const struct pl_sweep *sweep, const struct pl_strv *argv, int input_fd,
                                    int output_fd, pid_t *ret_pid, struct pl_error *reterr)
{
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;

    PL_TRY(pl_strv_check(argv, reterr));
    setup.argv = (const char *const *)argv->items;
    setup.environment = pl_environment_strings(sweep->job->process);
    setup.stdin_fd = input_fd;
    setup.stdout_fd = output_fd;
    setup.own_group = true;
    setup.signals = sweep->signals;
    return pl_process_spawn(&setup, ret_pid, reterr);
}

static enum pl_status add_trial_words(const struct pl_sweep *sweep, size_t trial, size_t slot, struct pl_strv *words,
                                      struct pl_error *reterr)
{
    const struct pl_strv *values = &sweep->space->trials[trial];

    pl_strv_add(words, sweep->trial_program, "--link");
    pl_strv_printf(words, "--checkpoints=%s/%s", sweep->folder, sweep->id);
    pl_strv_printf(words, "--metric=%s", sweep->space->metric_regex);
    pl_strv_printf(words, "--number=%zu", trial);
    pl_strv_printf(words, "--slot=%zu", slot % (size_t)sweep->slots.count);
    pl_strv_printf(words, "--gpus=%d", sweep->slots.gpus);
    pl_strv_printf(words, "--cpus=%d", sweep->slots.cpus);
    pl_strv_printf(words, "--processes=%d", sweep->space->processes);
    for (size_t i = 0; i < values->count; i++) {
        pl_strv_printf(words, "--hyperparameter=%s", values->items[i]);
    }
    if (sweep->job->command.count > 0) {
        pl_strv_add(words, "--");
    }
    pl_strv_add_all(words, &sweep->job->command);
    return pl_strv_check(words, reterr);
}

enum pl_status pl_sweep_hosts_start(struct pl_sweep *sweep, size_t trial, size_t slot, struct pl_error *reterr)
{
    struct pl_sweep_run *run = &sweep->runs[trial];
    const size_t host = trial % sweep->hosts_count;
    PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE, argv = PL_STRV_NONE;
    PL_AUTO_CLOSE int theirs_fd = -1, ours_fd = -1;
    int pair[2];

    PL_TRY(add_trial_words(sweep, trial, slot, &words, reterr));
    PL_TRY(pl_sweep_hosts_words(sweep, host, true, &words, &argv, reterr));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return pl_error_errno(reterr, "make a socket pair");
    }
    ours_fd = pair[0];
    theirs_fd = pair[1];
    /* ssh reads the link from one descriptor and writes it to the other */
    PL_TRY(pl_sweep_hosts_spawn(sweep, &argv, theirs_fd, host == 0 ? -1 : theirs_fd, &run->pid, reterr));
    PL_TRY(pl_link_open(&run->link, ours_fd, reterr));
    ours_fd = -1;
    run->runs = true;
    sweep->in_slot[slot] = run;
    sweep->running++;
    return PL_OK;
}

void pl_sweep_hosts_path(const struct pl_sweep *sweep, size_t trial, bool model, struct pl_text *text)
{
    pl_text_printf(text, "%s/%s/trial-%04zu%s", sweep->folder, sweep->id, trial, model ? ".model" : "");
}
