/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a trial's checkpoints or the best model from one host to another over the control links. */
#include "entrypoint/sweep/sweep_state.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES_AT_ONCE = 64 }; /* from one directory of this host to another, before other events have their turn */

static const char *const kind_names[] = {"checkpoints", "model"};

/* What is on its way has arrived, or not. */
static void end_move(struct pl_sweep *sweep, const char *error)
{
    struct pl_sweep_move *move = &sweep->move;

    move->is_on = false;
    move->is_over = true;
    pl_trials_host_abort(&sweep->here);
    if (error != NULL) {
        snprintf(move->reason, sizeof(move->reason), "its %s did not get from host %s to host %s: %s",
                 kind_names[move->kind], sweep->plan->hosts.items[move->from], sweep->plan->hosts.items[move->to],
                 error);
    }
}

void pl_sweep_move_begin(struct pl_sweep *sweep, int trial, enum pl_trials_host_kind kind, int from, int to)
{
    sweep->move = (struct pl_sweep_move){
        .is_on = true, .begins = true, .due = true, .trial = trial, .kind = kind, .from = from, .to = to};
}

static void note_stored(struct pl_sweep *sweep, const char *error)
{
    if (*error != '\0') {
        end_move(sweep, error);
    } else if (sweep->move.last) {
        end_move(sweep, NULL);
    } else {
        sweep->move.begins = false;
        sweep->move.due = true;
    }
}

static void send_piece(struct pl_sweep *sweep, struct pl_connection *connection, bool begins, const char *trial,
                       const char *kind, const char *error)
{
    PL_AUTO_TEXT struct pl_text data = PL_TEXT_NONE;
    char mode[16];

    snprintf(mode, sizeof(mode), "%u", (unsigned)sweep->piece.mode);
    pl_files_encode(sweep->piece.data, sweep->piece.bytes, &data);
    PL_SUPERVISE_SEND(sweep->supervisor, connection, PL_FRAME_PIECE, trial, kind, begins ? "1" : "0", mode,
                      pl_text_string(&sweep->piece.path),
                      pl_text_check(&data, NULL) == PL_OK ? pl_text_string(&data) : "", error);
}

/* Bring the piece to where it belongs. */
static void hand_over(struct pl_sweep *sweep)
{
    const struct pl_sweep_move *move = &sweep->move;
    struct pl_connection *link = move->to > 0 ? pl_sweep_link(sweep, move->to) : NULL;
    struct pl_error error = PL_ERROR_NONE;
    char trial[16], kind[16];

    sweep->move.last = sweep->piece.path.length == 0;
    if (move->to == 0) {
        if (pl_trials_host_store(&sweep->here, move->trial, move->kind, move->begins, &sweep->piece, &error) != PL_OK) {
            end_move(sweep, error.cause);
        } else {
            note_stored(sweep, "");
        }
    } else if (link != NULL) {
        snprintf(trial, sizeof(trial), "%d", move->trial);
        snprintf(kind, sizeof(kind), "%d", (int)move->kind);
        send_piece(sweep, link, move->begins, trial, kind, "");
    }
}

static void ask(struct pl_sweep *sweep)
{
    const struct pl_sweep_move *move = &sweep->move;
    struct pl_connection *link = move->from > 0 ? pl_sweep_link(sweep, move->from) : NULL;
    struct pl_error error = PL_ERROR_NONE;
    char trial[16], kind[16];

    sweep->move.due = false;
    if (move->from == 0) {
        if (pl_trials_host_fetch(&sweep->here, move->trial, move->kind, move->begins, &sweep->piece, &error) != PL_OK) {
            end_move(sweep, error.cause);
        } else {
            hand_over(sweep);
        }
    } else if (link != NULL) {
        snprintf(trial, sizeof(trial), "%d", move->trial);
        snprintf(kind, sizeof(kind), "%d", (int)move->kind);
        PL_SUPERVISE_SEND(sweep->supervisor, link, PL_FRAME_FETCH, trial, kind, move->begins ? "1" : "0");
    }
}

void pl_sweep_move_go_on(struct pl_sweep *sweep, int64_t *next_ns)
{
    for (int pieces = 0; sweep->move.is_on && sweep->move.due && pieces < PIECES_AT_ONCE; pieces++) {
        ask(sweep);
    }
    if (sweep->move.is_on && sweep->move.due) {
        *next_ns = 0;
    }
}

/* Read a PIECE frame into the piece. */
static enum pl_status read_piece(struct pl_sweep *sweep, const struct pl_frame *frame, struct pl_error *reterr)
{
    int64_t mode;

    if (frame->count < 7) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: a PIECE frame with %zu fields, not 7", frame->count);
    }
    if (*frame->fields[6] != '\0') {
        return pl_error_set(reterr, PL_PEER, "%s", frame->fields[6]);
    }
    PL_TRY(pl_link_frame_number(frame, 3, 0, INT32_MAX, &mode, reterr));
    pl_text_clear(&sweep->piece.path);
    pl_text_append(&sweep->piece.path, frame->fields[4]);
    PL_TRY(pl_text_check(&sweep->piece.path, reterr));
    sweep->piece.mode = (mode_t)mode;
    return pl_files_decode(frame->fields[5], &sweep->piece, reterr);
}

static bool is_ours(const struct pl_sweep *sweep, const struct pl_frame *frame)
{
    int64_t trial;

    return sweep->move.is_on && pl_link_frame_number(frame, 0, 0, INT32_MAX, &trial, NULL) == PL_OK &&
           trial == sweep->move.trial;
}

void pl_sweep_move_note_piece(struct pl_sweep *sweep, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;

    if (!is_ours(sweep, frame)) {
        return;
    }
    if (read_piece(sweep, frame, &error) != PL_OK) {
        end_move(sweep, error.cause);
    } else {
        hand_over(sweep);
    }
}

void pl_sweep_move_note_stored(struct pl_sweep *sweep, const struct pl_frame *frame)
{
    if (is_ours(sweep, frame) && frame->count >= 2) {
        note_stored(sweep, frame->fields[1]);
    }
}

/* Which folder a frame is about. */
static bool read_place(const struct pl_frame *frame, int *ret_trial, enum pl_trials_host_kind *ret_kind,
                       bool *ret_begins)
{
    int64_t trial, kind, begins;

    if (pl_link_frame_number(frame, 0, 0, INT32_MAX, &trial, NULL) != PL_OK ||
        pl_link_frame_number(frame, 1, 0, PL_TRIALS_HOST_MODEL, &kind, NULL) != PL_OK ||
        pl_link_frame_number(frame, 2, 0, 1, &begins, NULL) != PL_OK) {
        return false;
    }
    *ret_trial = (int)trial;
    *ret_kind = (enum pl_trials_host_kind)kind;
    *ret_begins = begins == 1;
    return true;
}

void pl_sweep_move_answer_fetch(struct pl_sweep *sweep, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_trials_host_kind kind;
    bool begins;
    int trial;

    if (!read_place(frame, &trial, &kind, &begins)) {
        return;
    }
    if (pl_trials_host_fetch(&sweep->here, trial, kind, begins, &sweep->piece, &error) != PL_OK) {
        sweep->piece.bytes = 0;
    }
    send_piece(sweep, connection, begins, frame->fields[0], frame->fields[1], error.cause);
}

void pl_sweep_move_answer_piece(struct pl_sweep *sweep, struct pl_connection *connection, const struct pl_frame *frame)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_trials_host_kind kind;
    enum pl_status status;
    bool begins;
    int trial;

    if (!read_place(frame, &trial, &kind, &begins)) {
        return;
    }
    status = read_piece(sweep, frame, &error);
    if (status == PL_OK) {
        status = pl_trials_host_store(&sweep->here, trial, kind, begins, &sweep->piece, &error);
    }
    PL_SUPERVISE_SEND(sweep->supervisor, connection, PL_FRAME_STORED, frame->fields[0],
                      status == PL_OK ? "" : error.cause);
}
