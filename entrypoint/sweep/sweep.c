/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a sweep the supervisor's extension, and deals its events to the parts. */
#include "entrypoint/sweep/sweep.h"

#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/sweep/job_sweep.h"
#include "entrypoint/sweep/sweep_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_worker(const struct pl_sweep *sweep)
{
    return sweep->plan->role == PL_LAUNCH_PLAN_WORKER;
}

/* A worker's link to the master; NULL: it is gone. */
static struct pl_connection *master_link(const struct pl_supervisor *supervisor)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_MASTER && connection->begun && !connection->dropped) {
            return connection;
        }
    }
    return NULL;
}

static enum pl_status start(struct pl_supervisor *supervisor, struct pl_error *reterr)
{
    struct pl_sweep *sweep = supervisor->extension_state;
    struct pl_connection *link = master_link(supervisor);
    char slots[16];

    if (!is_worker(sweep)) {
        return pl_sweep_master_start(sweep, reterr);
    }
    snprintf(slots, sizeof(slots), "%d", sweep->here.slots.count);
    if (link != NULL) {
        PL_SUPERVISE_SEND(supervisor, link, PL_FRAME_SLOTS, slots);
    }
    return PL_OK;
}

/* A trial of this host is over, or has not begun. */
static void notify_end(struct pl_sweep *sweep, int trial, bool ok, const char *reason)
{
    struct pl_connection *link = is_worker(sweep) ? master_link(sweep->supervisor) : NULL;
    char text[16];

    if (!is_worker(sweep)) {
        pl_sweep_master_note_end(sweep, trial, ok, reason);
    } else if (link != NULL) {
        snprintf(text, sizeof(text), "%d", trial);
        PL_SUPERVISE_SEND(sweep->supervisor, link, PL_FRAME_TRIAL_ENDED, text, ok ? "0" : "1", reason);
    }
}

static void ended(struct pl_supervisor *supervisor, const struct pl_connection *connection,
                  const struct pl_exit_report *exit_report)
{
    struct pl_sweep *sweep = supervisor->extension_state;
    PL_AUTO_TEXT struct pl_text reason = PL_TEXT_NONE;

    pl_trials_host_end(&sweep->here, exit_report, &reason);
    notify_end(sweep, connection->rank, pl_exit_report_ok(exit_report), pl_text_string(&reason));
}

/* The master wants a trial to run here. */
static void run_order(struct pl_sweep *sweep, const struct pl_frame *frame)
{
    char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_trial_order order;

    if (pl_trials_host_read_order(frame, &order, &error) != PL_OK) {
        pl_supervise_fail(sweep->supervisor, "%s", error.cause);
    } else if (sweep->supervisor->stop_number != 0) {
        notify_end(sweep, order.trial, true, "");
    } else if (pl_trials_host_start(&sweep->here, &order, &error) != PL_OK) {
        notify_end(sweep, order.trial, false, pl_error_text(&error, text, sizeof(text)));
    }
}

static void note_report(struct pl_sweep *sweep, const struct pl_frame *frame)
{
    struct pl_connection *link = is_worker(sweep) ? master_link(sweep->supervisor) : NULL;
    int64_t trial, step;
    double value;

    if (frame->count < 3 || pl_link_frame_number(frame, 0, 0, INT32_MAX, &trial, NULL) != PL_OK ||
        pl_link_frame_number(frame, 1, INT64_MIN, INT64_MAX, &step, NULL) != PL_OK ||
        !pl_text_number(frame->fields[2], &value) || !isfinite(value)) {
        return;
    }
    if (!is_worker(sweep)) {
        pl_sweep_master_note_report(sweep, (int)trial, step, value);
    } else if (link != NULL) {
        PL_SUPERVISE_SEND(sweep->supervisor, link, PL_FRAME_REPORT, frame->fields[0], frame->fields[1],
                          frame->fields[2]);
    }
}

static void master_frame(struct pl_sweep *sweep, const struct pl_connection *connection, const struct pl_frame *frame)
{
    int64_t number = 0, failed;
    const bool numbered = pl_link_frame_number(frame, 0, 0, INT32_MAX, &number, NULL) == PL_OK;

    if (frame->type == PL_FRAME_SLOTS && numbered && number > 0 && (size_t)connection->index + 1 < sweep->hosts_count) {
        pl_sweep_master_note_slots(sweep, connection->index + 1, (int)number);
    } else if (frame->type == PL_FRAME_REPORT) {
        note_report(sweep, frame);
    } else if (frame->type == PL_FRAME_TRIAL_ENDED && numbered && frame->count >= 3 &&
               pl_link_frame_number(frame, 1, 0, 1, &failed, NULL) == PL_OK) {
        pl_sweep_master_note_end(sweep, (int)number, failed == 0, frame->fields[2]);
    } else if (frame->type == PL_FRAME_PIECE) {
        pl_sweep_move_note_piece(sweep, frame);
    } else if (frame->type == PL_FRAME_STORED) {
        pl_sweep_move_note_stored(sweep, frame);
    }
}

static void worker_frame(struct pl_sweep *sweep, struct pl_connection *connection, const struct pl_frame *frame)
{
    int64_t trial = 0, number;
    const bool numbered = pl_link_frame_number(frame, 0, 0, INT32_MAX, &trial, NULL) == PL_OK;

    if (frame->type == PL_FRAME_TRIAL) {
        run_order(sweep, frame);
    } else if (frame->type == PL_FRAME_TRIAL_STOP && numbered &&
               pl_link_frame_number(frame, 1, 1, 64, &number, NULL) == PL_OK) {
        pl_trials_host_signal(&sweep->here, (int)trial, (int)number);
    } else if (frame->type == PL_FRAME_TRIAL_FORGET && numbered) {
        pl_trials_host_forget(&sweep->here, (int)trial);
    } else if (frame->type == PL_FRAME_FETCH) {
        pl_sweep_move_answer_fetch(sweep, connection, frame);
    } else if (frame->type == PL_FRAME_PIECE) {
        pl_sweep_move_answer_piece(sweep, connection, frame);
    }
}

static void take_frame(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_sweep *sweep = supervisor->extension_state;

    if (connection->kind == PL_CONNECTION_SHIM) {
        note_report(sweep, frame);
    } else if (connection->kind == PL_CONNECTION_WORKER) {
        master_frame(sweep, connection, frame);
    } else if (connection->kind == PL_CONNECTION_MASTER && connection->begun) {
        worker_frame(sweep, connection, frame);
    }
}

static enum pl_status cut_slots(const struct pl_job *job, const struct pl_sweep_space *space,
                                struct pl_slots *ret_slots, struct pl_error *reterr)
{
    const struct pl_slots_machine machine =
        pl_slots_look(job->current_host, job->gpus, pl_environment_get(job->process, "CUDA_VISIBLE_DEVICES"));

    return pl_slots_cut(&machine, space->processes, space->slots, ret_slots, reterr);
}

static enum pl_status fill(struct pl_sweep *sweep, struct pl_error *reterr)
{
    const struct pl_job *job = sweep->supervisor->job;

    PL_TRY(pl_sweep_space_of_job(job, &sweep->space, reterr));
    PL_TRY(cut_slots(job, sweep->space, &sweep->here.slots, reterr));
    sweep->hosts_count = sweep->plan->hosts.count;
    sweep->hosts = pl_memory_new(sweep->hosts_count, sizeof(*sweep->hosts), reterr);
    sweep->records = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->records), reterr);
    sweep->runs = pl_memory_new(sweep->space->trials_count, sizeof(*sweep->runs), reterr);
    return sweep->hosts != NULL && sweep->records != NULL && sweep->runs != NULL ? PL_OK : PL_MEMORY;
}

enum pl_status pl_sweep_open(struct pl_supervisor *supervisor, const struct pl_launch_plan *plan,
                             struct pl_sweep **ret_sweep, struct pl_error *reterr)
{
    static const struct pl_extension extension = {
        .start = start, .ended = ended, .frame = take_frame, .tick = pl_sweep_master_tick};
    struct pl_sweep *sweep = pl_memory_new(1, sizeof(*sweep), reterr);
    enum pl_status status;

    if (sweep == NULL) {
        return PL_MEMORY;
    }
    sweep->supervisor = supervisor;
    sweep->plan = plan;
    sweep->here.supervisor = supervisor;
    sweep->first_failed = -1;
    status = fill(sweep, reterr);
    if (status != PL_OK) {
        pl_sweep_close(sweep);
        return status;
    }
    supervisor->watch.hang_ns = 0; /* each trial, a job of its own, has its own watch */
    supervisor->extension = &extension;
    supervisor->extension_state = sweep;
    *ret_sweep = sweep;
    return PL_OK;
}

void pl_sweep_close(struct pl_sweep *sweep)
{
    if (sweep == NULL) {
        return;
    }
    if (sweep->supervisor->extension_state == sweep) {
        sweep->supervisor->extension = NULL;
        sweep->supervisor->extension_state = NULL;
    }
    pl_trials_host_done(&sweep->here);
    pl_files_piece_done(&sweep->piece);
    for (size_t i = 0; sweep->records != NULL && i < sweep->space->trials_count; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    for (size_t i = 0; sweep->hosts != NULL && i < sweep->hosts_count; i++) {
        free(sweep->hosts[i].trials);
    }
    if (sweep->journal != NULL) {
        pl_sweep_journal_close(sweep->journal);
    }
    pl_scheduler_free(sweep->scheduler);
    free(sweep->ended_badly);
    free(sweep->records);
    free(sweep->runs);
    free(sweep->hosts);
    pl_sweep_space_free(sweep->space);
    free(sweep);
}

enum pl_status pl_sweep_describe(const struct pl_job *job, struct pl_python_json **ret_object, struct pl_error *reterr)
{
    PL_AUTO_SWEEP_SPACE struct pl_sweep_space *space = NULL;
    PL_AUTO_PYTHON_JSON struct pl_python_json *object = pl_python_json_new_object();
    struct pl_slots slots;

    PL_TRY(pl_sweep_space_of_job(job, &space, reterr));
    PL_TRY(cut_slots(job, space, &slots, reterr));
    PL_TRY(pl_python_json_set(object, "trials", pl_python_json_new_int64((int64_t)space->trials_count), reterr));
    PL_TRY(pl_python_json_set(object, "processes", pl_python_json_new_int64(space->processes), reterr));
    PL_TRY(pl_python_json_set(object, "slots", pl_python_json_new_int64(slots.count), reterr));
    PL_TRY(pl_python_json_set(object, "cpus", pl_python_json_new_int64(slots.cpus), reterr));
    PL_TRY(pl_python_json_set(object, "gpus", pl_python_json_new_int64(slots.gpus), reterr));
    PL_TRY(pl_python_json_set(object, "metric", pl_python_json_new_string(space->metric_name), reterr));
    *ret_object = PL_TAKE(object);
    return PL_OK;
}
