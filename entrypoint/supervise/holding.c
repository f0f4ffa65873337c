/* SPDX-License-Identifier: Apache-2.0 */
/*
 * During a stop, the end of one rank must not end ranks that save: mpirun and torchrun end all ranks when one has left,
 * and under Open MPI 5 a rank ends when the connection of another one closes. So a rank without a handler for the
 * signal gets it last, and the shims of ended ranks wait, until all ranks with a handler have ended; then the shims are
 * released. One host decides: the master for itself and the hosts that are linked to it; any other host for itself.
 */
#include "entrypoint/supervise/supervise.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

/* How long a rank's shim may take to answer whether its program handles a stop. */
#define ANSWER_NS (PL_NS_PER_S)

void pl_holding_note_answer(struct pl_supervisor *supervisor, const struct pl_frame *frame, int host)
{
    struct pl_holding *holding = &supervisor->stop.holding;
    int64_t rank, catches;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_link_frame_number(frame, 0, 0, INT32_MAX, &rank, NULL) != PL_OK ||
        pl_link_frame_number(frame, 1, 0, 1, &catches, NULL) != PL_OK) {
        return;
    }
    if (pl_memory_grow(&holding->ranks, &holding->capacity, holding->count + 1, sizeof(*holding->ranks), &error) !=
        PL_OK) {
        pl_log_error(&error, "cannot note how rank %d handles the stop", (int)rank);
        return;
    }
    holding->ranks[holding->count++] =
        (struct pl_holding_rank){.rank = (int)rank, .host = host, .catches = catches == 1};
    PL_TIMER_WAKE(supervisor, HOLDING);
}

void pl_holding_ask_again(struct pl_supervisor *supervisor)
{
    if (supervisor->stop.state != PL_STOP_RUNNING) {
        supervisor->stop.holding.asked_ns = pl_clock_now_ns();
        pl_stop_go(&supervisor->stop.state, PL_STOP_SAVING);
        PL_TIMER_WAKE(supervisor, HOLDING);
    }
}

void pl_holding_lose_host(struct pl_supervisor *supervisor, int host)
{
    for (size_t i = 0; i < supervisor->stop.holding.count; i++) {
        supervisor->stop.holding.ranks[i].ended =
            supervisor->stop.holding.ranks[i].ended || supervisor->stop.holding.ranks[i].host == host;
    }
    PL_TIMER_WAKE(supervisor, HOLDING);
}

/* Returns the time until which ranks may answer. */
static int64_t answers_end(const struct pl_supervisor *supervisor)
{
    int64_t asked_ns = supervisor->stop.holding.asked_ns;

    return (asked_ns > supervisor->stop.ns ? asked_ns : supervisor->stop.ns) + ANSWER_NS;
}

void pl_holding_note_end(struct pl_supervisor *supervisor, int rank)
{
    struct pl_holding *holding = &supervisor->stop.holding;
    size_t i = 0;

    while (i < holding->count && holding->ranks[i].rank != rank) {
        i++;
    }
    if (i < holding->count) {
        holding->ranks[i].ended = true;
    } else {
        holding->unasked_ended++;
    }
    PL_TIMER_WAKE(supervisor, HOLDING);
}

bool pl_holding_awaits_release(const struct pl_supervisor *supervisor)
{
    const enum pl_stop_state state = supervisor->stop.state;

    return supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE && (state == PL_STOP_SAVING || state == PL_STOP_HELD);
}

static size_t count_saving(const struct pl_holding *holding)
{
    size_t count = 0;

    for (size_t i = 0; i < holding->count; i++) {
        count += holding->ranks[i].catches && !holding->ranks[i].ended;
    }
    return count;
}

static void send_to_workers(struct pl_supervisor *supervisor, enum pl_frame_type type, const char *text)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        if (supervisor->connections[i]->kind == PL_CONNECTION_WORKER &&
            supervisor->connections[i]->state == PL_CONNECTION_READY) {
            PL_SUPERVISE_SEND(supervisor, supervisor->connections[i], type, text);
        }
    }
}

void pl_holding_release(struct pl_supervisor *supervisor)
{
    pl_stop_go(&supervisor->stop.state, PL_STOP_RELEASED);
    supervisor->stop.released_ns = pl_clock_now_ns();
    PL_TIMER_WAKE(supervisor, WAIT);
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_SHIM && connection->process_kind == PL_PROCESS_RANK) {
            pl_supervise_notify(connection, PL_FRAME_RELEASE, "");
        }
    }
    if (!supervisor->seen.ranks) {
        pl_supervise_signal(supervisor, PL_PROCESS_SET(TORCHRUN), SIGTERM); /* the agent still looks for the others */
    }
}

/* Find a rank that gets the signal only after the others have saved; -1 if there is none. */
static int find_deferred(const struct pl_holding *holding)
{
    for (size_t i = 0; i < holding->count; i++) {
        if (!holding->ranks[i].catches && !holding->ranks[i].ended) {
            return holding->ranks[i].rank;
        }
    }
    return -1;
}

static void hold(struct pl_supervisor *supervisor)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char name[16];

    if (supervisor->outcome.failed) {
        pl_supervise_failure_text(supervisor, &text);
    } else {
        pl_text_printf(&text, "the job was stopped by %s; rank %d has no handler for this signal\n",
                       pl_signals_name(supervisor->stop.number, name), find_deferred(&supervisor->stop.holding));
    }
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    send_to_workers(supervisor, PL_FRAME_HOLD, pl_text_string(&text));
    pl_log(PL_LOG_WARNING, "%.*s; the others have time to save and end", (int)strcspn(pl_text_string(&text), "\n"),
           pl_text_string(&text));
    pl_stop_go(&supervisor->stop.state, PL_STOP_HELD);
    PL_TIMER_WAKE(supervisor, WAIT); /* how long a failed job waits depends on the state */
}

/* Whether this host decides: the master does for all that are linked to it. */
static bool decides(const struct pl_supervisor *supervisor)
{
    return supervisor->state == PL_HOST_RUNNING &&
           (supervisor->role == PL_HOST_MASTER || (supervisor->role == PL_HOST_WORKER && !pl_links_master(supervisor)));
}

void pl_holding_update(struct pl_supervisor *supervisor)
{
    struct pl_holding *holding = &supervisor->stop.holding;
    const enum pl_stop_state state = supervisor->stop.state;
    const bool has_ranks = supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE, failed = supervisor->outcome.failed;
    size_t saving;
    bool answered;

    if (!decides(supervisor) || state == PL_STOP_RUNNING || state == PL_STOP_RELEASED) {
        return;
    }
    saving = count_saving(holding);
    answered = (int)holding->count + holding->unasked_ended >= supervisor->plan->processes ||
               pl_deadline_passed(answers_end(supervisor));
    if (saving > 0 || !has_ranks) {
        const bool has_others = saving > 0 || pl_links_count(supervisor, 1U << PL_SESSION_LINKED, true) > 0;

        if (state == PL_STOP_SAVING && has_others &&
            ((failed && supervisor->outcome.exit_report_known) ||
             (!failed && answered && find_deferred(holding) >= 0))) {
            hold(supervisor);
        }
    } else if (answered) {
        pl_holding_release(supervisor);
        send_to_workers(supervisor, PL_FRAME_RELEASE, "");
    }
    if (pl_holding_awaits_release(supervisor) && !answered) {
        PL_TIMER_SET(supervisor, HOLDING, answers_end(supervisor));
    }
}
