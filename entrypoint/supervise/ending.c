/* SPDX-License-Identifier: Apache-2.0 */
/* Sends, receives and prints exit reports: how a supervised program ended. */
#include "entrypoint/supervise/ending.h"

#include "base/memory.h"
#include "entrypoint/supervise/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

bool pl_ending_ok(const struct pl_ending *ending)
{
    return !ending->signalled && ending->code == 0;
}

static const char *const ending_texts[] = {
#define PL_ENDING_TEXT(name, text) [PL_ENDING_##name] = text,
    PL_ENDING_LIST(PL_ENDING_TEXT)
#undef PL_ENDING_TEXT
};

enum pl_status pl_ending_send(const struct pl_ending *ending, struct pl_link *link, struct pl_error *reterr)
{
    char of[16], rank[16], code[16];

    snprintf(of, sizeof(of), "%d", (int)ending->of);
    snprintf(rank, sizeof(rank), "%d", ending->rank);
    snprintf(code, sizeof(code), "%d", ending->code);
    return PL_LINK_SEND(link, PL_FRAME_ENDED, reterr, of, rank, ending->host, ending->signalled ? "1" : "0", code,
                        ending->out_of_memory ? "1" : "0", ending->not_started ? "1" : "0", ending->program,
                        ending->note, ending->tail);
}

enum pl_status pl_ending_receive(const struct pl_frame *frame, struct pl_ending *ret_ending, struct pl_error *reterr)
{
    struct pl_ending ending = PL_ENDING_NONE;
    int64_t of, rank, signalled, code, out_of_memory, not_started;

    if (frame->count < 10) {
        return pl_error_set(reterr, PL_CORRUPT, "control link: an exit report with %zu fields, not 10", frame->count);
    }
    PL_TRY(pl_frame_number(frame, 0, 0, (int64_t)PL_ARRAY_ITEMS(ending_texts) - 1, &of, reterr));
    PL_TRY(pl_frame_number(frame, 1, -1, INT32_MAX, &rank, reterr));
    PL_TRY(pl_frame_number(frame, 3, 0, 1, &signalled, reterr));
    PL_TRY(pl_frame_number(frame, 4, 0, 255, &code, reterr));
    PL_TRY(pl_frame_number(frame, 5, 0, 1, &out_of_memory, reterr));
    PL_TRY(pl_frame_number(frame, 6, 0, 1, &not_started, reterr));
    ending.of = (enum pl_ending_of)of;
    ending.rank = (int)rank;
    ending.signalled = signalled == 1;
    ending.code = (int)code;
    ending.out_of_memory = out_of_memory == 1;
    ending.not_started = not_started == 1;
    snprintf(ending.host, sizeof(ending.host), "%s", frame->fields[2]);
    snprintf(ending.program, sizeof(ending.program), "%s", frame->fields[7]);
    snprintf(ending.note, sizeof(ending.note), "%s", frame->fields[8]);
    snprintf(ending.tail, sizeof(ending.tail), "%s", frame->fields[9]);
    *ret_ending = ending;
    return PL_OK;
}

void pl_ending_sentence(const struct pl_ending *ending, struct pl_text *text)
{
    char name[16];

    pl_text_append(text, ending_texts[ending->of]);
    if (ending->rank >= 0) {
        pl_text_printf(text, " %d", ending->rank);
    }
    if (ending->host[0] != '\0') {
        pl_text_printf(text, " on host %s", ending->host);
    }
    if (ending->not_started) {
        pl_text_append(text, " did not start");
    } else if (ending->signalled) {
        pl_text_printf(text, " was killed by signal %d (%s)", ending->code, pl_signal_name(ending->code, name));
    } else {
        pl_text_printf(text, " exited with code %d", ending->code);
    }
    if (ending->out_of_memory) {
        pl_text_append(text, ending->signalled && ending->code == SIGKILL
                                 ? ": out of memory, the container's memory limit was reached"
                                 : ": the container's memory limit was reached, and a process was killed");
    }
    if (ending->note[0] != '\0') {
        pl_text_printf(text, ": %s", ending->note);
    }
}

void pl_ending_report(const struct pl_ending *ending, size_t max_bytes, struct pl_text *text)
{
    static const char tail_heading[] = "Last lines of its stderr:\n";
    size_t start = text->length, room, skip = 0, tail_bytes = strlen(ending->tail);

    pl_ending_sentence(ending, text);
    pl_text_append_char(text, '\n');
    if (ending->program[0] != '\0') {
        pl_text_printf(text, "Program: %s\n", ending->program);
    }
    if (tail_bytes == 0 || max_bytes < text->length - start + sizeof(tail_heading)) {
        return;
    }
    room = max_bytes - (text->length - start) - sizeof(tail_heading);
    while (tail_bytes - skip > room) {
        const char *end = strchr(ending->tail + skip, '\n');

        skip = end != NULL ? (size_t)(end - ending->tail) + 1 : tail_bytes;
    }
    if (skip < tail_bytes) {
        pl_text_append(text, tail_heading);
        pl_text_append(text, ending->tail + skip);
    }
}
