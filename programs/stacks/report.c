/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a program's report: its head, then its threads; threads at the same place are printed once. */
#include "programs/stacks/stacks.h"

#include <string.h>

static void append_head(const struct pl_stacks_program *program, const char *host, struct pl_text *text)
{
    if (host[0] != '\0') {
        pl_text_printf(text, "host %s, ", host);
    }
    if (program->rank >= 0) {
        pl_text_printf(text, "rank %d, ", program->rank);
    }
    pl_text_printf(text, "process %d: ", (int)program->pid);
    if (program->name[0] != '\0') {
        pl_text_printf(text, "%s, ", program->name);
    }
    pl_text_append(text, pl_describe_state(program->state));
    if (program->state != 0) {
        pl_text_printf(text, ", %.2f s of CPU time since its start, now %.0f %% of a core", program->cpu_s,
                       program->cpu_percent);
    }
    pl_text_append_char(text, '\n');
}

static void append_python(const struct pl_stacks_program *program, struct pl_text *text)
{
    pl_text_printf(text,
                   "  Python's own stack is shown if the job has PACELINE_HANG_S. Otherwise a program that called\n"
                   "  `faulthandler.register(signal.SIGUSR1)` prints it at `docker kill --signal USR1 CONTAINER`;\n"
                   "  this program %s\n",
                   program->handles_usr1 ? "handles SIGUSR1" : "has no handler for SIGUSR1 and would die of it");
}

static bool is_same_place(const struct pl_stacks_thread *left, const struct pl_stacks_thread *right)
{
    if (left->state != right->state || strcmp(left->wait, right->wait) != 0 ||
        strcmp(left->problem, right->problem) != 0 || left->frame_count != right->frame_count) {
        return false;
    }
    for (size_t i = 0; i < left->frame_count; i++) {
        const struct pl_stacks_frame *a = &left->frames[i], *b = &right->frames[i];

        if (strcmp(a->function, b->function) != 0 || strcmp(a->module, b->module) != 0 ||
            (a->function[0] == '\0' && a->offset != b->offset)) {
            return false;
        }
    }
    return true;
}

static void append_frame(const struct pl_stacks_frame *frame, size_t number, struct pl_text *text)
{
    pl_text_printf(text, "    #%zu ", number);
    if (frame->function[0] != '\0') {
        pl_text_printf(text, "%s (%s)\n", frame->function, frame->module);
    } else if (frame->module[0] != '\0') {
        pl_text_printf(text, "no symbol (%s+0x%llx)\n", frame->module, (unsigned long long)frame->offset);
    } else {
        pl_text_printf(text, "no file (0x%llx)\n", (unsigned long long)frame->pc);
    }
}

/* Appends the thread at `index`, with the number of other threads at the same place. Returns the number of lines. */
static size_t append_thread(const struct pl_stacks_program *program, size_t index, size_t others, struct pl_text *text)
{
    const struct pl_stacks_thread *thread = &program->threads[index];
    size_t frames = thread->frame_count < PL_REPORT_MOST_FRAMES ? thread->frame_count : PL_REPORT_MOST_FRAMES;
    bool is_cut = thread->is_cut || frames < thread->frame_count;
    bool has_problem = thread->problem[0] != '\0' && program->problem[0] == '\0';

    pl_text_printf(text, "  thread %d (%s), %s", (int)thread->tid, thread->name, pl_describe_state(thread->state));
    if (thread->wait[0] != '\0') {
        pl_text_printf(text, ", waits in %s", thread->wait);
    }
    if (others > 0) {
        pl_text_printf(text, ", and %zu more thread%s", others, others == 1 ? "" : "s");
    }
    pl_text_append_char(text, '\n');
    if (has_problem) {
        pl_text_printf(text, "    no native stack: %s\n", thread->problem);
    }
    for (size_t i = 0; i < frames; i++) {
        append_frame(&thread->frames[i], i, text);
    }
    if (is_cut) {
        pl_text_append(text, "    ... more frames\n");
    }
    return 1 + has_problem + frames + is_cut;
}

void pl_report_program(const struct pl_stacks_program *program, const char *host, struct pl_text *text)
{
    bool listed[PL_STACKS_MOST_THREADS] = {false};
    /* 5 lines for the head and the lines about the whole program */
    size_t lines = 5, left_out = program->threads_left_out;

    append_head(program, host, text);
    if (program->problem[0] != '\0') {
        pl_text_printf(text, "  %s: %s\n", program->threads[0].frame_count > 0 ? "incomplete" : "no native stacks",
                       program->problem);
    }
    lines += pl_python_append_report(program->python, PL_REPORT_MOST_PYTHON_LINES, text);
    if (program->is_python && program->python[0] == '\0' && program->state != 0 && program->state != 'Z') {
        append_python(program, text);
    }
    for (size_t i = 0; i < program->thread_count; i++) {
        size_t others = 0;

        if (listed[i]) {
            continue;
        }
        if (lines + PL_REPORT_MOST_FRAMES + 4 > PL_REPORT_MOST_LINES) { /* a thread may need all of these lines */
            left_out++;
            continue;
        }
        for (size_t j = i + 1; j < program->thread_count; j++) {
            if (!listed[j] && is_same_place(&program->threads[i], &program->threads[j])) {
                listed[j] = true;
                others++;
            }
        }
        lines += append_thread(program, i, others, text);
    }
    if (left_out > 0) {
        pl_text_printf(text, "  ... %zu more thread%s\n", left_out, left_out == 1 ? "" : "s");
    }
}

/*
 * Number of functions in a place. The innermost functions of a waiting thread tell how it waits; functions further out
 * tell for what it waits.
 */
enum { PLACE_FRAMES = 3 };

void pl_report_place(const struct pl_stacks_program *program, struct pl_text *text)
{
    const struct pl_stacks_thread *main_thread = &program->threads[0];
    size_t shown = 0;

    if (program->state == 'T' || program->state == 't') {
        pl_text_append(text, "stopped");
        return;
    }
    if (pl_python_append_place(program->python, text)) {
        return;
    }
    for (size_t i = 0; i < main_thread->frame_count && shown < PLACE_FRAMES; i++) {
        if (main_thread->frames[i].function[0] != '\0') {
            pl_text_printf(text, "%s%s", shown > 0 ? ", called by " : "", main_thread->frames[i].function);
            shown++;
        }
    }
    if (shown == 0) {
        pl_text_append(text, main_thread->wait[0] != '\0' ? main_thread->wait : pl_describe_state(program->state));
    }
}
