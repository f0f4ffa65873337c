/* SPDX-License-Identifier: Apache-2.0 */
/* Decides during a stop how long the shims of ranks that have ended wait for ranks that save. */
#include "entrypoint/supervise/holding.h"

#include "base/log.h"
#include "base/memory.h"
#include "entrypoint/supervise/supervise.h"

#include <string.h>

/* How long a rank's shim may take to answer whether its program handles a stop. */
#define ANSWER_NS (PL_NS_PER_S)

void pl_holding_note_answer(struct pl_supervisor *supervisor, const struct pl_frame *frame, int host)
{
    struct pl_holding *holding = &supervisor->holding;
    int64_t rank, catches;
    struct pl_error error = PL_ERROR_NONE;

    if (pl_link_frame_number(frame, 0, 0, INT32_MAX, &rank, NULL) != PL_OK ||
        pl_link_frame_number(frame, 1, 0, 1, &catches, NULL) != PL_OK) {
        return;
    }
    if (pl_memory_grow(&holding->ranks, &holding->capacity, holding->count + 1, sizeof(*holding->ranks), &error) !=
        PL_OK) {
        pl_log_error(&error, "note how rank %d handles the stop", (int)rank);
        return;
    }
    holding->ranks[holding->count++] =
        (struct pl_holding_rank){.rank = (int)rank, .host = host, .catches = catches == 1};
}

void pl_holding_ask_again(struct pl_supervisor *supervisor)
{
    if (supervisor->holding.state != PL_STOP_RUNNING) {
        supervisor->holding.asked_ns = pl_clock_now_ns();
        pl_stop_go(&supervisor->holding.state, PL_STOP_SAVING);
    }
}

void pl_holding_lose_host(struct pl_supervisor *supervisor, int host)
{
    for (size_t i = 0; i < supervisor->holding.count; i++) {
        supervisor->holding.ranks[i].ended =
            supervisor->holding.ranks[i].ended || supervisor->holding.ranks[i].host == host;
    }
}

/* Returns the time until which ranks may answer. */
static int64_t answers_end(const struct pl_supervisor *supervisor)
{
    int64_t asked_ns = supervisor->holding.asked_ns;

    return (asked_ns > supervisor->stop_ns ? asked_ns : supervisor->stop_ns) + ANSWER_NS;
}

void pl_holding_note_end(struct pl_supervisor *supervisor, int rank)
{
    struct pl_holding *holding = &supervisor->holding;
    size_t i = 0;

    while (i < holding->count && holding->ranks[i].rank != rank) {
        i++;
    }
    if (i < holding->count) {
        holding->ranks[i].ended = true;
    } else {
        holding->unasked_ended++;
    }
}

bool pl_holding_is_on(const struct pl_supervisor *supervisor)
{
    const enum pl_stop_state state = supervisor->holding.state;

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
        if (supervisor->connections[i]->kind == PL_CONNECTION_WORKER && supervisor->connections[i]->ready) {
            PL_SUPERVISE_SEND(supervisor, supervisor->connections[i], type, text);
        }
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

    if (supervisor->failed) {
        pl_supervise_failure_text(supervisor, &text);
    } else {
        pl_text_printf(&text, "the job was stopped by %s; rank %d has no handler for this signal\n",
                       pl_signals_name(supervisor->stop_number, name), find_deferred(&supervisor->holding));
    }
    pl_supervise_write_failure(supervisor, pl_text_string(&text));
    send_to_workers(supervisor, PL_FRAME_HOLD, pl_text_string(&text));
    pl_log(PL_LOG_WARNING, "%.*s; the others have time to save and end", (int)strcspn(pl_text_string(&text), "\n"),
           pl_text_string(&text));
    pl_stop_go(&supervisor->holding.state, PL_STOP_HELD);
}

void pl_holding_update(struct pl_supervisor *supervisor, int64_t *next_ns)
{
    struct pl_holding *holding = &supervisor->holding;
    const bool has_ranks = supervisor->ranks != PL_LAUNCH_PLAN_RANKS_NONE;
    const bool answered = (int)holding->count + holding->unasked_ended >= supervisor->plan->processes ||
                          pl_deadline_passed(answers_end(supervisor));
    size_t saving = count_saving(holding);

    if (holding->state == PL_STOP_RUNNING || holding->state == PL_STOP_RELEASED) {
        return;
    }
    if (saving > 0 || !has_ranks) {
        if (holding->state == PL_STOP_SAVING && ((supervisor->failed && supervisor->exit_report_known) ||
                                                 (!supervisor->failed && answered && find_deferred(holding) >= 0))) {
            hold(supervisor);
        }
    } else if (answered) {
        pl_supervise_release(supervisor);
        send_to_workers(supervisor, PL_FRAME_RELEASE, "");
    }
    if (pl_holding_is_on(supervisor) && !answered && answers_end(supervisor) < *next_ns) {
        *next_ns = answers_end(supervisor);
    }
}
