/* SPDX-License-Identifier: Apache-2.0 */
/* Passes the frames of `paceline stacks` between its tools on this host and the other hosts. */
#include "entrypoint/supervise/looking.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "entrypoint/supervise/sessions.h"

/* An answer is left out where so much waits already: the job's own frames come first. */
enum { MOST_WAITING_BYTES = PL_LINK_MAX_WAITING_BYTES / 4 };

static void forward(struct pl_supervisor *supervisor, struct pl_connection *connection, const struct pl_frame *frame)
{
    if (connection->link.out.length - connection->link.sent_bytes > MOST_WAITING_BYTES &&
        frame->type == PL_FRAME_STANDS) {
        pl_log(PL_LOG_WARNING, "where process %s stands is left out: the link is slow", frame->fields[2]);
        return;
    }
    pl_supervise_send(supervisor, connection, frame->type, frame->fields, frame->count);
}

void pl_looking_ask(struct pl_supervisor *supervisor, struct pl_connection *tool, const struct pl_frame *frame,
                    const struct pl_sessions *sessions)
{
    PL_AUTO_TEXT struct pl_text names = PL_TEXT_NONE;

    if (frame->type == PL_FRAME_LOOKED && frame->count >= 2) {
        pl_hang_note_place(supervisor, frame->fields[1]);
        return;
    }
    if (frame->type != PL_FRAME_LOOK) {
        return;
    }
    tool->begun = true;
    for (size_t i = 0; i < sessions->count; i++) {
        const struct pl_session *session = &sessions->items[i];

        if (session->ready && session->link != NULL) {
            pl_text_printf(&names, "%s\n", session->host);
            PL_SUPERVISE_SEND(supervisor, session->link, PL_FRAME_LOOK, "");
        }
    }
    PL_SUPERVISE_SEND(supervisor, tool, PL_FRAME_LOOKING, supervisor->job->current_host, pl_text_string(&names),
                      sessions->count > 0 && names.length == 0 ? "no other host is linked" : "");
}

void pl_looking_answer(struct pl_supervisor *supervisor, struct pl_connection *tool, const struct pl_frame *frame,
                       struct pl_connection *master)
{
    PL_AUTO_TEXT struct pl_text note = PL_TEXT_NONE;

    if (frame->type == PL_FRAME_LOOK) {
        pl_text_printf(&note, "these are this host's only: on the master host %s all are shown",
                       supervisor->plan->hosts.items[0]);
        PL_SUPERVISE_SEND(supervisor, tool, PL_FRAME_LOOKING, supervisor->job->current_host, "", pl_text_string(&note));
    } else if ((frame->type == PL_FRAME_STANDS || frame->type == PL_FRAME_LOOKED) && master != NULL) {
        forward(supervisor, master, frame);
    }
}

void pl_looking_start(struct pl_supervisor *supervisor, struct pl_connection *master)
{
    struct pl_error error = PL_ERROR_NONE;

    if (pl_supervise_runs(supervisor, PL_EXIT_SOURCE_STACKS)) { /* everybody gets its answer, from here on */
        PL_SUPERVISE_SEND(supervisor, master, PL_FRAME_LOOKED, supervisor->job->current_host,
                          "somebody else has just asked, and what came before is missing here: ask again");
        return;
    }
    if (pl_hang_start_stacks(supervisor, (const char *const[]){"--send", supervisor->job->current_host}, 2, &error) !=
        PL_OK) {
        PL_SUPERVISE_SEND(supervisor, master, PL_FRAME_LOOKED, supervisor->job->current_host, error.cause);
    }
}

void pl_looking_pass(struct pl_supervisor *supervisor, const struct pl_frame *frame)
{
    for (size_t i = 0; i < supervisor->connections_count; i++) {
        struct pl_connection *connection = supervisor->connections[i];

        if (connection->kind == PL_CONNECTION_STACKS && connection->begun && !connection->dropped) {
            forward(supervisor, connection, frame);
        }
    }
}
