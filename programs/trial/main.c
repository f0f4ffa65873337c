/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paceline trial [OPTION...] [-- PROGRAM [ARGUMENT...]]
 *
 * A trial is a job in a job: `paceline train` in an /opt/ml of its own. A sweep starts each of its trials by this
 * program, on the trial's host, with options that verbs.c does not list:
 *
 *   --link             standard input is a link to the sweep (entrypoint/ssh/link.h): SIGNAL frames are signals for the
 *                      trial, its end kills the trial, and a MESSAGE tells the result; the trial's lines have a tag
 *   --checkpoints DIR  where the folders of the trial's checkpoints and model are
 *   --metric REGEX     what finds the metric in the trial's lines
 *   --slot N           the trial's GPUs are those of this slot, not free ones
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/options.h"
#include "entrypoint/output/pattern.h"
#include "entrypoint/ssh/rundir.h"
#include "entrypoint/supervise/shim.h"
#include "entrypoint/verbs.h"
#include "programs/trial/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

/* A trial that is stopped must end earlier than its host. */
#define STOP_EARLIER_S 5.0
#define STOP_LEAST_S 3.0
#define STOP_SHARE 0.6

/* Ports below those that Linux gives to connections (net.ipv4.ip_local_port_range). Trials begin at different ones. */
enum { PORT_FIRST = 20000, PORTS = 12000, PORT_STEP = 37 };

enum { LINE_BYTES = 1 << 20 /* longer lines are searched up to here */, NUMBERS = 10000, DEVICES_MAX = 65536 };

struct trial {
    struct pl_job *job;
    struct pl_link link; /* link to the sweep */
    bool linked;
    const char *checkpoints, *metric;
    int64_t number, gpus, cpus, processes, slot; /* -1: not named */
    struct pl_strv hyperparameters;
    struct pl_trial_folder folder;
    bool fresh; /* the trial began without checkpoints */
    struct pl_pattern *pattern;
    struct pl_text lines[2]; /* unfinished lines of stdout and stderr */
    bool has_value, given_up;
    double value; /* the metric's last value */
};

static void search(struct trial *trial, struct pl_text *line)
{
    struct pl_error error = PL_ERROR_NONE;
    const enum pl_status status =
        pl_pattern_number(trial->pattern, pl_text_string(line), line->length, &trial->value, &error);

    trial->has_value = trial->has_value || status == PL_OK;
    if (status == PL_LIMIT && !trial->given_up) {
        trial->given_up = true;
        pl_log(PL_LOG_WARNING, "trial %d: the metric's regular expression '%.200s': %s", trial->folder.number,
               trial->metric, error.cause);
    }
    pl_text_clear(line);
}

static void read_output(void *context, int fd, const char *bytes, size_t count)
{
    struct trial *trial = context;
    struct pl_text *line = &trial->lines[fd == STDERR_FILENO];

    for (const char *end = bytes + count; bytes < end;) {
        const char *line_end = memchr(bytes, '\n', (size_t)(end - bytes));
        const size_t length = (size_t)((line_end ? line_end : end) - bytes);
        const size_t room = line->length < LINE_BYTES ? LINE_BYTES - line->length : 0;

        pl_text_append_n(line, bytes, length < room ? length : room);
        bytes += length + (line_end ? 1 : 0);
        if (line_end) {
            search(trial, line);
        }
    }
}

static enum pl_status set_number(struct pl_environment *environment, const char *name, double number,
                                 struct pl_error *reterr)
{
    char text[32];

    snprintf(text, sizeof(text), "%.10g", number);
    return pl_environment_set(environment, name, text, reterr);
}

/* Sets the trial's devices: all CPUs and GPUs of the container if the options name none. */
static enum pl_status set_devices(const struct trial *trial, struct pl_environment *environment,
                                  struct pl_error *reterr)
{
    static const char *const threads[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    const int64_t share = trial->cpus / trial->processes;
    PL_AUTO_TEXT struct pl_text visible = PL_TEXT_NONE;

    /* libraries would start a thread for every CPU of the host */
    for (size_t i = 0; trial->cpus > 0 && i < PL_ARRAY_ITEMS(threads); i++) {
        if (!pl_environment_get(environment, threads[i])) {
            PL_TRY(set_number(environment, threads[i], share > 0 ? (double)share : 1, reterr));
        }
    }
    if (trial->gpus >= 0) {
        PL_TRY(pl_trial_devices_take(trial->job, (int)trial->gpus, (int)trial->slot, &visible, reterr));
    }
    if (trial->gpus > 0 || (trial->gpus == 0 && trial->job->gpus > 0)) {
        PL_TRY(pl_environment_set(environment, "CUDA_VISIBLE_DEVICES", pl_text_string(&visible), reterr));
    }
    PL_TRY(set_number(environment, "PACELINE_TRIAL_CPUS",
                      trial->cpus > 0 ? (double)trial->cpus : (double)trial->job->cpus, reterr));
    return set_number(environment, "PACELINE_TRIAL_GPUS",
                      trial->gpus >= 0 ? (double)trial->gpus : (double)trial->job->gpus, reterr);
}

/* Sets a port for ranks that meet on this host. It is free now, and the system gives it to no other connection. */
static enum pl_status set_port(struct pl_environment *environment, struct pl_error *reterr)
{
    for (int i = 0; i < PORTS; i++) {
        const int port = PORT_FIRST + (int)(((int64_t)getpid() * PORT_STEP + i) % PORTS);
        const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        PL_AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
            PL_TRY(set_number(environment, "PET_MASTER_PORT", port, reterr)); /* read by torchrun */
            return set_number(environment, "MASTER_PORT", port, reterr);      /* read by ranks of MPI */
        }
    }
    return pl_error_set(reterr, PL_LIMIT, "found no free port from %d to %d", PORT_FIRST, PORT_FIRST + PORTS - 1);
}

static double stop_s(const struct pl_job *job)
{
    const double whole_s = (double)job->settings.stop_ns / (double)PL_NS_PER_S;

    return MAX(STOP_LEAST_S, MAX(whole_s - STOP_EARLIER_S, whole_s * STOP_SHARE));
}

static enum pl_status make_environment(const struct trial *trial, struct pl_environment **ret_environment,
                                       struct pl_error *reterr)
{
    static const char *const ours[] = {"PACELINE_SWEEP",  "PACELINE_SWEEP_TIME_S",   "PACELINE_SWEEP_FRESH",
                                       "PACELINE_CHECK",  "PACELINE_CHECKPOINT_DIR", "PACELINE_PS",
                                       PL_RUNDIR_VARIABLE};
    const struct pl_job *job = trial->job;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;

    PL_TRY(pl_environment_new_copy(job->process, &environment, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(ours); i++) {
        pl_environment_unset(environment, ours[i]);
    }
    PL_TRY(pl_environment_set(environment, "SAGEMAKER_BASE_DIR",
                              trial->folder.own_tree ? job->paths.base : trial->folder.base, reterr));
    PL_TRY(pl_environment_set(environment, "PACELINE_INSTALL", "0", reterr)); /* the job has installed all */
    PL_TRY(set_number(environment, "PACELINE_TRIAL", (double)trial->folder.number, reterr));
    PL_TRY(set_number(environment, "PACELINE_STOP_S", stop_s(job), reterr));
    PL_TRY(set_port(environment, reterr));
    PL_TRY(set_devices(trial, environment, reterr));
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

static enum pl_status run_program(struct trial *trial, const struct pl_signals *signals,
                                  struct pl_exit_report *ret_report, struct pl_error *reterr)
{
    const struct pl_job *job = trial->job;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;
    char tag[32];
    struct pl_shim_options options = {.kind = PL_PROCESS_PROGRAM,
                                      .rank = -1,
                                      .host = job->current_host,
                                      .program_words = 1,
                                      .read = trial->pattern ? read_output : NULL,
                                      .context = trial,
                                      .setup = PL_PROCESS_SETUP_NONE};

    PL_TRY(make_environment(trial, &environment, reterr));
    pl_strv_add(&argv, job->self_path, job->command.count > 0 ? "--" : "train");
    pl_strv_add_all(&argv, &job->command);
    PL_TRY(pl_strv_check(&argv, reterr));
    options.setup.argv = (const char *const *)argv.items;
    options.setup.environment = pl_environment_strings(environment);
    options.setup.cwd = trial->folder.own_tree ? job->paths.base : trial->folder.base;
    if (trial->linked) {
        snprintf(tag, sizeof(tag), "[trial %d] ", trial->folder.number);
        options.tag = tag;
    }
    pl_shim_run(&options, signals, &trial->link, ret_report);
    for (size_t i = 0; trial->pattern && i < PL_ARRAY_ITEMS(trial->lines); i++) {
        search(trial, &trial->lines[i]);
    }
    return PL_OK;
}

/* Tells the sweep how the trial has ended: completed, failed, or wrong, which ends the sweep. */
static void send_result(struct trial *trial, const char *state, int code, bool model, const char *reason)
{
    char value[32] = "", code_text[16];

    if (trial->has_value) {
        snprintf(value, sizeof(value), "%.17g", trial->value);
    }
    snprintf(code_text, sizeof(code_text), "%d", code);
    if (PL_LINK_SEND(&trial->link, PL_FRAME_MESSAGE, NULL, "result", state, code_text, value, trial->fresh ? "1" : "0",
                     model ? "1" : "0", reason) == PL_OK) {
        pl_link_drain(&trial->link, PL_DEADLINE_NEVER);
    }
}

static int code_of(const struct pl_exit_report *exit_report)
{
    return exit_report->signalled ? 128 + exit_report->code : exit_report->code;
}

/* Tells the sweep what the trial has left. */
static void report_end(struct trial *trial, const struct pl_exit_report *exit_report)
{
    const char *state = pl_exit_report_ok(exit_report) ? "completed" : "failed";
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    bool empty = true;

    if (!pl_exit_report_ok(exit_report)) {
        pl_trial_folder_reason(&trial->folder, &reason);
        if (reason.length == 0) {
            pl_exit_report_sentence(exit_report, &reason);
        }
    } else if (pl_trial_model_check(&trial->folder, &empty, &error) != PL_OK) {
        state = "failed";
        pl_text_printf(&reason, "its model cannot be kept: %s", error.cause);
    }
    if (pl_trial_folder_check_shared(&trial->folder, &error) != PL_OK) {
        state = "wrong";
        pl_text_clear(&reason);
        pl_text_printf(&reason, "while trial %d ran, %s", trial->folder.number, error.cause);
    }
    pl_text_mask(reason.data, reason.length);
    send_result(trial, state, code_of(exit_report), !empty, pl_text_string(&reason));
}

/* Makes standard input's socket the link, and /dev/null standard input. */
static enum pl_status open_link(struct trial *trial, struct pl_error *reterr)
{
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0) {
        return pl_error_errno(reterr, "move the sweep's socket away from standard input");
    }
    return pl_link_open(&trial->link, fd, reterr);
}

static enum pl_status run(struct trial *trial, const struct pl_signals *signals, struct pl_exit_report *exit_report,
                          struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(trial->metric ? pl_pattern_new(trial->metric, &trial->pattern, reterr) : PL_OK);
    PL_TRY(pl_trial_folder_take(trial->job, trial->checkpoints, (int)trial->number, &trial->folder, reterr));
    trial->fresh = access(trial->folder.checkpoints, F_OK) != 0; /* an empty folder was removed */
    status = pl_trial_folder_enter(&trial->folder, (int)trial->processes, &trial->hyperparameters, reterr);
    status = status == PL_OK ? run_program(trial, signals, exit_report, reterr) : status;
    if (status == PL_OK && trial->linked) {
        report_end(trial, exit_report);
    }
    pl_trial_folder_leave(&trial->folder);
    return status;
}

static enum pl_status add_hyperparameter(const char *name, const char *text, void *field, struct pl_error *reterr)
{
    struct pl_strv *words = field;

    if (*text == '=' || !strchr(text, '=')) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected NAME=VALUE", name, text);
    }
    pl_strv_add(words, text);
    return pl_strv_check(words, reterr);
}

/* Options that only the sweep passes to a trial. */
#define SWEEP_OPTIONS(ROW)                                                                                             \
    ROW("--link", NULL, NULL, PL_TO(linked))                                                                           \
    ROW("--checkpoints", "DIR", NULL, PL_TO(checkpoints))                                                              \
    ROW("--metric", "REGEX", NULL, PL_TO(metric))                                                                      \
    ROW("--slot", "N", NULL, PL_TO_NUMBER(slot, 0, DEVICES_MAX))
#define PL_OPTIONS_OF struct trial
static const struct pl_option options[] = {PL_TRIAL_OPTIONS(PL_OPTION) SWEEP_OPTIONS(PL_OPTION) PL_OPTIONS_END};

static enum pl_status open_job(struct trial *trial, const struct pl_environment *environment, char **self_at,
                               char **words, struct pl_error *reterr)
{
    PL_AUTO_STRV struct pl_strv command = PL_STRV_NONE;

    pl_strv_add_list(&command, (const char *const *)words);
    PL_TRY(trial->linked ? open_link(trial, reterr) : PL_OK);
    PL_TRY(pl_companion_find_paceline(self_at, reterr));
    return pl_job_new(environment, *self_at, &command, &trial->job, reterr);
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE char *self = NULL;
    struct trial trial = {.link = PL_LINK_NONE,
                          .number = -1,
                          .gpus = -1,
                          .slot = -1,
                          .processes = 1,
                          .hyperparameters = PL_STRV_NONE,
                          .folder = PL_TRIAL_FOLDER_NONE};
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;
    struct pl_signals signals = PL_SIGNALS_NONE;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_log_open("paceline trial");
    status = pl_verbs_read("trial", options, argc, argv, &trial, &error);
    if (status == PL_OK && !trial.linked && optind == argc) {
        status = pl_error_set(&error, PL_INVALID, "expected the trial's program: -- PROGRAM [ARGUMENT...]");
    }
    if (status != PL_OK) {
        return pl_verbs_refuse(status, &error);
    }
    status = pl_environment_new(&environment, &error);
    status = status == PL_OK ? pl_signals_open(&signals, &error) : status;
    status = status == PL_OK ? open_job(&trial, environment, &self, argv + optind, &error) : status;
    status = status == PL_OK ? run(&trial, &signals, &exit_report, &error) : status;
    if (status != PL_OK) {
        if (trial.linked) {
            send_result(&trial, "failed", EXIT_FAILURE, false, pl_error_text(&error, text, sizeof(text)));
        } else {
            pl_log_error(&error, "trial");
        }
        return EXIT_FAILURE;
    }
    return code_of(&exit_report);
}
