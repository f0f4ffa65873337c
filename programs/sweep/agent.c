/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, stops and ends the trials of this host. */
#include "programs/sweep/agent.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/launch/companion.h"
#include "entrypoint/supervise/shim.h"
#include "programs/sweep/archive.h"
#include "programs/sweep/job_sweep.h"
#include "programs/sweep/metric_reader.h"
#include "programs/sweep/own_tree.h"
#include "programs/sweep/slots.h"
#include "programs/sweep/tree.h"
#include "programs/sweep/trial_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A trial that is stopped must end earlier than its host. */
#define STOP_EARLIER_S 5.0
#define STOP_LEAST_S 3.0
#define STOP_SHARE 0.6

enum {
    WAITING_BYTES = 1 << 20, /* unsent bytes to the coordinator above which the agent reads no more from trials */
    REPORTS = 256,           /* most reports that a trial's shim sends in one call */
    SPARE_FILES = 64,
};

/* A trial that runs here. */
struct running {
    int trial;
    struct pl_link link; /* link to its shim; closed when the trial is over */
    bool ended;          /* its exit report was handled */
    bool signalled;      /* it was asked to end */
};

struct agent {
    const struct pl_job *job;
    struct pl_signals *signals;
    struct pl_link link; /* link to the coordinator */
    struct pl_slots slots;
    int *ports; /* by slot */
    char *self; /* path of paceline-sweep */
    bool own_trees;
    struct pl_shared_marks marks; /* used if trials have no trees of their own */
    bool wants_models, has_warned;
    struct running *running;
    size_t count, capacity;
    bool over;
};

void pl_sweep_message_handle(const struct pl_sweep_message *table, size_t count, void *context, int host,
                             const struct pl_frame *frame)
{
    for (size_t i = 0; i < count && frame->type == PL_FRAME_MESSAGE && frame->count > 0; i++) {
        if (strcmp(frame->fields[0], table[i].word) == 0 && frame->count >= table[i].fields) {
            table[i].handle(context, host, frame);
        }
    }
}

/* Sends a message to the coordinator. A failure means that the coordinator is gone, and then the agent ends. */
#define SEND(agent, ...) ((agent)->over |= PL_LINK_SEND(&(agent)->link, PL_FRAME_MESSAGE, NULL, __VA_ARGS__) != PL_OK)

static enum pl_status set_number(struct pl_environment *environment, const char *name, double number,
                                 struct pl_error *reterr)
{
    char text[32];

    snprintf(text, sizeof(text), "%.10g", number);
    return pl_environment_set(environment, name, text, reterr);
}

/* Limits the threads of libraries that would start one for every CPU of the host. */
static enum pl_status set_threads(const struct agent *agent, const struct pl_trial_order *order,
                                  struct pl_environment *environment, struct pl_error *reterr)
{
    static const char *const variables[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    const int threads = agent->slots.cpus / order->processes;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(variables); i++) {
        if (!pl_environment_get(environment, variables[i])) {
            PL_TRY(set_number(environment, variables[i], threads > 0 ? threads : 1, reterr));
        }
    }
    return PL_OK;
}

double pl_sweep_stop_s(const struct pl_job *job)
{
    const double whole_s = (double)job->settings.stop_ns / (double)PL_NS_PER_S;
    const double own_s =
        whole_s - STOP_EARLIER_S > whole_s * STOP_SHARE ? whole_s - STOP_EARLIER_S : whole_s * STOP_SHARE;

    return own_s > STOP_LEAST_S ? own_s : STOP_LEAST_S;
}

static enum pl_status make_environment(const struct agent *agent, const struct pl_trial_order *order,
                                       const struct pl_trial_folder *folder, struct pl_environment **ret_environment,
                                       struct pl_error *reterr)
{
    static const char *const ours[] = {"PACELINE_SWEEP",  "PACELINE_SWEEP_TIME_S",   "PACELINE_SWEEP_FRESH",
                                       "PACELINE_CHECK",  "PACELINE_CHECKPOINT_DIR", "PACELINE_PS",
                                       PL_RUNDIR_VARIABLE};
    const struct pl_job *job = agent->job;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_TEXT struct pl_text visible = PL_TEXT_NONE;

    PL_TRY(pl_environment_new_copy(job->process, &environment, reterr));
    for (size_t i = 0; i < PL_ARRAY_ITEMS(ours); i++) {
        pl_environment_unset(environment, ours[i]);
    }
    PL_TRY(pl_environment_set(environment, "SAGEMAKER_BASE_DIR", agent->own_trees ? job->paths.base : folder->base,
                              reterr));
    /* the agent's host has installed them already */
    PL_TRY(pl_environment_set(environment, "PACELINE_INSTALL", "0", reterr));
    PL_TRY(set_number(environment, "PACELINE_TRIAL", order->trial, reterr));
    PL_TRY(set_number(environment, "PACELINE_TRIAL_CPUS", agent->slots.cpus, reterr));
    PL_TRY(set_number(environment, "PACELINE_TRIAL_GPUS", agent->slots.gpus, reterr));
    PL_TRY(set_number(environment, "PET_MASTER_PORT", agent->ports[order->slot], reterr)); /* read by torchrun */
    PL_TRY(set_number(environment, "MASTER_PORT", agent->ports[order->slot], reterr));     /* read by ranks of MPI */
    PL_TRY(set_number(environment, "PACELINE_STOP_S", pl_sweep_stop_s(job), reterr));
    PL_TRY(set_threads(agent, order, environment, reterr));
    pl_slots_visible(&agent->slots, order->slot, &visible);
    PL_TRY(pl_text_check(&visible, reterr));
    if (visible.length > 0) {
        PL_TRY(pl_environment_set(environment, "CUDA_VISIBLE_DEVICES", pl_text_string(&visible), reterr));
    }
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

/* Reads a trial's output, in its shim. */
struct reader {
    int trial;
    struct pl_metric_reader *metric;
    bool is_failure_sent; /* whether the failure was sent */
};

static int open_reader(void *context)
{
    const struct reader *reader = context;

    return pl_metric_reader_open(reader->metric);
}

static void read_output(void *context, int fd, const char *bytes, size_t count)
{
    const struct reader *reader = context;

    pl_metric_reader_add(reader->metric, fd == STDOUT_FILENO, bytes, count);
}

#define SEND_OF_TRIAL(reader, link, ...)                                                                               \
    do {                                                                                                               \
        char trial_text[16];                                                                                           \
                                                                                                                       \
        snprintf(trial_text, sizeof(trial_text), "%d", (reader)->trial);                                               \
        if (PL_LINK_SEND((link), PL_FRAME_MESSAGE, NULL, __VA_ARGS__) != PL_OK) {                                      \
            pl_link_close(link);                                                                                       \
        }                                                                                                              \
    } while (0)

/* Sends at most REPORTS values; returns false if more may wait. */
static bool send_reports(struct reader *reader, struct pl_link *link)
{
    char step_text[32], value_text[32];
    double value;
    int64_t step;

    for (int i = 0; i < REPORTS && link->fd >= 0; i++) {
        if (!pl_metric_reader_next(reader->metric, &step, &value)) {
            return true;
        }
        snprintf(step_text, sizeof(step_text), "%lld", (long long)step);
        snprintf(value_text, sizeof(value_text), "%.17g", value);
        SEND_OF_TRIAL(reader, link, "report", trial_text, step_text, value_text);
    }
    return link->fd < 0;
}

static bool send_found(void *context, struct pl_link *link, bool ended)
{
    struct reader *reader = context;
    PL_AUTO_TEXT struct pl_text warning = PL_TEXT_NONE, why_not = PL_TEXT_NONE;
    bool all;

    if (ended) {
        pl_metric_reader_end(reader->metric);
    }
    all = send_reports(reader, link);
    pl_metric_reader_warn(reader->metric, &warning);
    if (warning.length > 0) {
        pl_log(PL_LOG_WARNING, "trial %d: %s", reader->trial, pl_text_string(&warning));
    }
    if (all && !reader->is_failure_sent && pl_metric_reader_failure(reader->metric)) {
        reader->is_failure_sent = true;
        SEND_OF_TRIAL(reader, link, "unread", trial_text, pl_metric_reader_failure(reader->metric));
    }
    if (all && ended) {
        pl_metric_reader_why_not(reader->metric, &why_not);
        if (why_not.length > 0) {
            pl_text_mask(why_not.data, why_not.length);
            SEND_OF_TRIAL(reader, link, "unseen", trial_text, pl_text_string(&why_not));
        }
    }
    return all;
}

static enum pl_status add_running(struct agent *agent, int trial, int fd, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int owned_fd = fd;
    struct running running = {.trial = trial};

    PL_TRY(pl_memory_grow(&agent->running, &agent->capacity, agent->count + 1, sizeof(*agent->running), reterr));
    PL_TRY(pl_link_open(&running.link, fd, reterr));
    owned_fd = -1;
    agent->running[agent->count++] = running;
    return PL_OK;
}

static enum pl_status start_shim(struct agent *agent, const struct pl_trial_order *order,
                                 const struct pl_process_setup *setup, struct pl_error *reterr)
{
    struct reader reader = {.trial = order->trial};
    char prefix[32];
    const struct pl_shim_reader watch = {
        .prefix = prefix, .context = &reader, .open = open_reader, .add = read_output, .send = send_found};
    const struct pl_shim_options options = {.source = PL_EXIT_SOURCE_PROGRAM,
                                            .rank = -1,
                                            .reader = &watch,
                                            .host = agent->job->current_host,
                                            .progress_ns = agent->job->settings.progress_ns,
                                            .program_words = 1,
                                            .setup = *setup};
    enum pl_status status;
    pid_t pid;
    int fd;

    snprintf(prefix, sizeof(prefix), "[trial %d] ", order->trial);
    PL_TRY(pl_metric_reader_new(order->metric_name, order->metric_regex, order->step_regex, order->last_step,
                                &reader.metric, reterr));
    status = pl_shim_fork(&options, agent->signals, &pid, &fd, reterr);
    pl_metric_reader_free(reader.metric); /* the shim has its own copy */
    return status == PL_OK ? add_running(agent, order->trial, fd, reterr) : status;
}

static enum pl_status start_trial(struct agent *agent, const struct pl_trial_order *order, struct pl_error *reterr)
{
    const struct pl_job *job = agent->job;
    struct pl_process_setup setup = PL_PROCESS_SETUP_NONE;
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_STRV struct pl_strv argv = PL_STRV_NONE;

    const struct pl_trial_kind kind = {
        .processes = order->processes, .own_tree = agent->own_trees, .hyperparameters = order->hyperparameters};

    PL_TRY(order->slot < agent->slots.count
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "expected a slot below this host's number of slots, found %d",
                              order->slot));
    PL_TRY(pl_trial_folder_name(job, order->trial, &folder, reterr));
    if (order->is_first) {
        PL_TRY(pl_sweep_archive_one(folder.checkpoints, reterr));
        PL_TRY(pl_sweep_archive_one(folder.model, reterr));
        PL_TRY(pl_sweep_archive_one(folder.output_data, reterr));
    }
    PL_TRY(pl_trial_folder_make(job, &folder, &kind, reterr));
    PL_TRY(make_environment(agent, order, &folder, &environment, reterr));
    if (agent->own_trees) {
        PL_TRY(pl_own_tree_words(job, &folder, agent->self, &argv, reterr));
    }
    PL_TRY(pl_strv_add(&argv, job->self_path, reterr));
    PL_TRY(pl_strv_add(&argv, job->command.count > 0 ? "--" : "train", reterr));
    PL_TRY(pl_strv_add_all(&argv, &job->command, reterr));
    setup.argv = (const char *const *)argv.items;
    setup.environment = pl_environment_strings(environment);
    setup.cwd = agent->own_trees ? job->paths.base : folder.base;
    return start_shim(agent, order, &setup, reterr);
}

static void send_end(struct agent *agent, int trial, bool ok, bool has_model, const char *reason)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", trial);
    SEND(agent, "ended", text, ok ? "0" : "1", has_model ? "1" : "0", reason);
}

static enum pl_status read_order(const struct pl_frame *frame, struct pl_trial_order *ret_order,
                                 struct pl_error *reterr)
{
    int64_t trial, slot, processes, is_first, last_step;

    PL_TRY(pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, reterr));
    PL_TRY(pl_link_frame_number(frame, 2, 0, INT32_MAX, &slot, reterr));
    PL_TRY(pl_link_frame_number(frame, 3, 1, INT32_MAX, &processes, reterr));
    PL_TRY(pl_link_frame_number(frame, 4, 0, 1, &is_first, reterr));
    PL_TRY(pl_link_frame_number(frame, 5, 0, INT64_MAX, &last_step, reterr));
    *ret_order = (struct pl_trial_order){.trial = (int)trial,
                                         .slot = (int)slot,
                                         .processes = (int)processes,
                                         .is_first = is_first != 0,
                                         .last_step = last_step,
                                         .hyperparameters = frame->fields[6],
                                         .metric_regex = frame->fields[7],
                                         .step_regex = *frame->fields[8] != '\0' ? frame->fields[8] : NULL,
                                         .metric_name = frame->fields[9]};
    return PL_OK;
}

static void handle_trial(void *context, int host, const struct pl_frame *frame)
{
    struct agent *agent = context;
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_trial_order order;

    (void)host;
    if (read_order(frame, &order, &error) != PL_OK) {
        pl_log_error(&error, "reading an order to run a trial");
    } else if (start_trial(agent, &order, &error) != PL_OK) {
        send_end(agent, order.trial, false, false, pl_error_text(&error, text, sizeof(text)));
    }
}

static void handle_signal(void *context, int host, const struct pl_frame *frame)
{
    struct agent *agent = context;
    int64_t trial, number;

    (void)host;
    if (pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, NULL) != PL_OK ||
        pl_link_frame_number(frame, 2, 1, 64, &number, NULL) != PL_OK) {
        return;
    }
    for (size_t i = 0; i < agent->count; i++) {
        struct running *running = &agent->running[i];

        if (running->trial == trial && !running->ended) {
            running->signalled = true;
            if (PL_LINK_SEND(&running->link, PL_FRAME_STOP, NULL, frame->fields[2]) != PL_OK) {
                pl_link_close(&running->link);
            }
        }
    }
}

static void handle_forget(void *context, int host, const struct pl_frame *frame)
{
    const struct agent *agent = context;
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    int64_t trial;

    (void)host;
    if (pl_link_frame_number(frame, 1, 0, INT32_MAX, &trial, NULL) == PL_OK &&
        pl_trial_folder_name(agent->job, (int)trial, &folder, NULL) == PL_OK) {
        pl_trial_folder_forget(&folder, strcmp(frame->fields[2], "model") == 0);
    }
}

/* Checks the trial's model as soon as the trial is over, so that the user learns of a wrong one before the last trial
 * ends. */
static enum pl_status check_model(struct agent *agent, const struct running *running,
                                  const struct pl_trial_folder *folder, bool *ret_has_model, struct pl_error *reterr)
{
    bool empty = true;

    PL_TRY(pl_sweep_tree_check_model(folder->model, agent->own_trees ? agent->job->paths.model : folder->model, &empty,
                                     reterr));
    *ret_has_model = !empty;
    if (empty && !running->signalled && !agent->has_warned) {
        agent->has_warned = true;
        pl_log(PL_LOG_WARNING,
               "trial %d has left no model in '%s' (SM_MODEL_DIR). The job fails if the best trial leaves no model, "
               "unless the sweep has \"model\": false",
               running->trial, folder->model);
    }
    return PL_OK;
}

/* Fails the job if trials share folders and a shared one has changed: nobody can tell whose model it holds. */
static void check_shared(struct agent *agent, int trial)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!agent->own_trees && pl_shared_check(agent->job, &agent->marks, trial, &error) != PL_OK) {
        SEND(agent, "failed", error.cause);
    }
}

/* Ends a trial: sends its end, with the reason if it failed, and removes its temporary folders. */
static void end_trial(struct agent *agent, struct running *running, const struct pl_exit_report *exit_report)
{
    PL_AUTO_TRIAL_FOLDER struct pl_trial_folder folder = PL_TRIAL_FOLDER_NONE;
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;
    struct pl_error error = PL_ERROR_NONE;
    bool ok = pl_exit_report_ok(exit_report), has_model = false;

    running->ended = true;
    if (pl_trial_folder_name(agent->job, running->trial, &folder, NULL) == PL_OK) {
        if (!ok) {
            pl_trial_folder_reason(&folder, &reason);
        } else if (agent->wants_models && check_model(agent, running, &folder, &has_model, &error) != PL_OK) {
            ok = false;
            pl_text_printf(&reason, "its model cannot be kept: %s", error.cause);
        }
        pl_trial_folder_remove(&folder);
    }
    if (!ok && reason.length == 0) {
        pl_exit_report_sentence(exit_report, &reason);
    }
    check_shared(agent, running->trial);
    send_end(agent, running->trial, ok, has_model, pl_text_string(&reason));
}

/* Handles a shim that ended without a report: it was killed, and its program with it. */
static void end_lost(struct agent *agent, struct running *running)
{
    struct pl_exit_report exit_report = PL_EXIT_REPORT_NONE;

    exit_report.signalled = true;
    exit_report.code = SIGKILL;
    snprintf(exit_report.host, sizeof(exit_report.host), "%s", agent->job->current_host);
    end_trial(agent, running, &exit_report);
}

static void read_shim(struct agent *agent, struct running *running)
{
    struct pl_exit_report exit_report;
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&running->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(&running->link, &frame, NULL);
        if (status == PL_OK && frame.type == PL_FRAME_MESSAGE) {
            agent->over |= pl_link_send(&agent->link, PL_FRAME_MESSAGE, frame.fields, frame.count, NULL) != PL_OK;
        } else if (status == PL_OK && frame.type == PL_FRAME_ENDED && !running->ended &&
                   pl_exit_report_receive(&frame, &exit_report, NULL) == PL_OK) {
            end_trial(agent, running, &exit_report);
        }
    }
    if (status != PL_END) {
        if (!running->ended) {
            end_lost(agent, running);
        }
        pl_link_close(&running->link);
    }
}

static void read_coordinator(struct agent *agent)
{
    static const struct pl_sweep_message table[] = {
        {"trial", 10, handle_trial}, {"signal", 3, handle_signal}, {"forget", 3, handle_forget}};
    struct pl_frame frame;
    enum pl_status status = pl_link_read(&agent->link, NULL);

    while (status == PL_OK) {
        status = pl_link_next(&agent->link, &frame, NULL);
        if (status == PL_OK) {
            pl_sweep_message_handle(table, PL_ARRAY_ITEMS(table), agent, 0, &frame);
        }
    }
    agent->over = agent->over || status != PL_END;
}

static void drop_closed(struct agent *agent)
{
    size_t kept = 0;

    for (size_t i = 0; i < agent->count; i++) {
        if (agent->running[i].link.fd >= 0) {
            agent->running[kept++] = agent->running[i];
        }
    }
    agent->count = kept;
}

/* Reads signals and reaps processes. No signal stops an agent: the coordinator decides on a stop and sends it. */
static void take_signals(const struct agent *agent)
{
    while (pl_signals_next(agent->signals) != 0) {
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

static enum pl_status poll_once(struct agent *agent, struct pl_error *reterr)
{
    const size_t count = agent->count;
    PL_AUTO_FREE struct pollfd *waits = pl_memory_new(count + 2, sizeof(*waits), reterr);

    if (!waits) {
        return PL_MEMORY;
    }
    waits[0] = (struct pollfd){.fd = agent->signals->fd, .events = POLLIN};
    waits[1] = (struct pollfd){.fd = agent->link.fd, .events = pl_link_events(&agent->link)};
    for (size_t i = 0; i < count; i++) {
        waits[2 + i] =
            (struct pollfd){.fd = agent->running[i].link.fd, .events = pl_link_events(&agent->running[i].link)};
        /* trials print faster than the coordinator reads */
        if (agent->link.out.length - agent->link.sent_bytes > WAITING_BYTES) {
            waits[2 + i].events &= (short)~POLLIN;
        }
    }
    if (poll(waits, (nfds_t)count + 2, -1) < 0) {
        return errno == EINTR ? PL_OK : pl_error_errno(reterr, "poll");
    }
    if (waits[0].revents != 0) {
        take_signals(agent);
    }
    for (size_t i = 0; i < count; i++) {
        if (waits[2 + i].revents != 0) {
            pl_link_flush(&agent->running[i].link);
            read_shim(agent, &agent->running[i]);
        }
    }
    if (waits[1].revents != 0) {
        pl_link_flush(&agent->link);
        read_coordinator(agent);
    }
    drop_closed(agent);
    return PL_OK;
}

/* Raises the limit of open files for all slots, once. */
static enum pl_status check_files(struct agent *agent, struct pl_error *reterr)
{
    const size_t needed = SPARE_FILES + 2 * (size_t)agent->slots.count;
    struct rlimit limit = {.rlim_max = 0};

    if (pl_signals_raise_files(agent->signals, needed)) {
        return PL_OK;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    return pl_error_set(reterr, PL_LIMIT,
                        "the sweep's %d slots need %zu open files on host %s, whose limit is %llu (ulimit -n): "
                        "expected fewer slots, or a higher limit",
                        agent->slots.count, needed, agent->job->current_host, (unsigned long long)limit.rlim_max);
}

static enum pl_status check_folder(const char *path, struct pl_error *reterr)
{
    PL_TRY(pl_file_make_dirs(path, 0755, reterr));
    return access(path, W_OK | X_OK) == 0 ? PL_OK : pl_error_errno(reterr, "access '%s' for writing", path);
}

static enum pl_status check_folders(const struct pl_job *job, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    pl_trial_folder_root(job, &path);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(check_folder(pl_text_string(&path), reterr));
    pl_text_clear(&path);
    pl_text_printf(&path, "%s/sweep", job->paths.base);
    PL_TRY(pl_text_check(&path, reterr));
    PL_TRY(check_folder(pl_text_string(&path), reterr));
    PL_TRY(check_folder(job->paths.model, reterr));
    return check_folder(job->paths.output_data, reterr);
}

static void choose_trees(struct agent *agent)
{
    struct pl_error error = PL_ERROR_NONE;

    agent->own_trees = pl_own_tree_probe(agent->job, &error) == PL_OK;
    if (agent->own_trees) {
        pl_log(PL_LOG_INFO,
               "each trial on host %s has its own model, checkpoints, output and input folders in %s, by mounts",
               agent->job->current_host, agent->job->paths.base);
        return;
    }
    pl_log(PL_LOG_INFO,
           "trials on host %s share %s, because the system allows no mounts (%s): programs must use SM_MODEL_DIR and "
           "PACELINE_CHECKPOINT_DIR",
           agent->job->current_host, agent->job->paths.base, error.cause);
    pl_shared_mark(agent->job, &agent->marks);
}

static enum pl_status make_slots(struct agent *agent, struct pl_error *reterr)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;

    PL_TRY(pl_sweep_space_of_job(agent->job, &space, reterr));
    PL_TRY(space ? PL_OK : pl_error_set(reterr, PL_INVALID, "the job of this host has no sweep"));
    PL_TRY(pl_slots_of_job(agent->job, space, &agent->slots, reterr));
    agent->wants_models = space->model;
    PL_TRY(check_files(agent, reterr));
    PL_TRY(check_folders(agent->job, reterr));
    PL_TRY(pl_companion_find(agent->job->self_path, "paceline-sweep", &agent->self, reterr));
    return pl_slots_find_ports(agent->slots.count, &agent->ports, reterr);
}

/* Makes standard input's socket the link, and /dev/null standard input. */
static enum pl_status open_link(struct agent *agent, struct pl_error *reterr)
{
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    PL_AUTO_CLOSE int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0) {
        return pl_error_errno(reterr, "moving the coordinator's socket away from standard input");
    }
    return pl_link_open(&agent->link, fd, reterr);
}

static enum pl_status run(struct agent *agent, struct pl_error *reterr)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES], number[16];
    struct pl_error error = PL_ERROR_NONE;

    PL_TRY(open_link(agent, reterr));
    if (make_slots(agent, &error) != PL_OK) {
        SEND(agent, "failed", pl_error_text(&error, text, sizeof(text)));
        pl_link_drain(&agent->link, pl_deadline_after_ns(PL_NS_PER_S));
        return PL_OK;
    }
    choose_trees(agent);
    snprintf(number, sizeof(number), "%d", agent->slots.count);
    SEND(agent, "slots", number);
    while (!agent->over) {
        PL_TRY(poll_once(agent, reterr));
    }
    return PL_OK;
}

int pl_sweep_agent_run(const struct pl_job *job, struct pl_signals *signals)
{
    struct agent agent = {.job = job, .signals = signals, .link = PL_LINK_NONE};
    struct pl_error error = PL_ERROR_NONE;
    const enum pl_status status = run(&agent, &error);

    if (status != PL_OK) {
        pl_log_error(&error, "the sweep's agent on host %s failed", job->current_host);
    }
    for (size_t i = 0; i < agent.count; i++) {
        pl_link_close(&agent.running[i].link); /* ends the trial */
    }
    free(agent.running);
    free(agent.ports);
    free(agent.self);
    pl_link_close(&agent.link);
    return status == PL_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
