/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/report.c. */
#include "programs/stacks/stacks.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_stacks_program *program;
static struct pl_text text;

static void set_up(size_t threads)
{
    program = calloc(1, sizeof(*program));
    ck_assert_ptr_nonnull(program);
    text = PL_TEXT_NONE;
    *program = (struct pl_stacks_program){.pid = 40, .rank = 2, .state = 'R', .cpu_s = 1.5, .cpu_percent = 99.6};
    strcpy(program->name, "/opt/train");
    program->thread_count = threads;
    for (size_t i = 0; i < threads; i++) {
        program->threads[i].tid = 40 + (pid_t)i;
        program->threads[i].state = 'S';
        strcpy(program->threads[i].name, "worker");
        strcpy(program->threads[i].wait, "futex_do_wait");
    }
}

static void add_frame(size_t thread, const char *function, const char *module)
{
    struct pl_stacks_frame *frame = &program->threads[thread].frames[program->threads[thread].frame_count++];

    *frame = (struct pl_stacks_frame){.pc = 0x1234, .offset = 0x34};
    snprintf(frame->function, sizeof(frame->function), "%s", function);
    snprintf(frame->module, sizeof(frame->module), "%s", module);
}

static const char *report(void)
{
    pl_text_clear(&text);
    pl_report_program(program, "", &text);
    return pl_text_string(&text);
}

static size_t count_lines(const char *at)
{
    size_t lines = 0;

    for (; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    return lines;
}

static void tear_down(void)
{
    pl_text_done(&text);
    free(program);
}

TEST(threads_at_the_same_place_are_listed_once)
{
    set_up(4);
    program->threads[0].state = 'R';
    program->threads[0].wait[0] = '\0';
    add_frame(0, "stuck_here", "train");
    for (size_t i = 1; i < 4; i++) {
        add_frame(i, "", "libc.so.6");
        add_frame(i, i == 2 ? "other" : "work", "train");
        add_frame(i, "", "");
    }
    ck_assert_str_eq(
        report(), "rank 2, process 40: /opt/train, running, 1.50 s of CPU time since its start, now 100 % of a core\n"
                  "  thread 40 (worker), running\n"
                  "    #0 stuck_here (train)\n"
                  "  thread 41 (worker), sleeping, waits in futex_do_wait, and 1 more thread\n"
                  "    #0 no symbol (libc.so.6+0x34)\n"
                  "    #1 work (train)\n"
                  "    #2 no file (0x1234)\n"
                  "  thread 42 (worker), sleeping, waits in futex_do_wait\n"
                  "    #0 no symbol (libc.so.6+0x34)\n"
                  "    #1 other (train)\n"
                  "    #2 no file (0x1234)\n");
    tear_down();
}

TEST(without_stacks_the_reason_is_given_once)
{
    set_up(3);
    program->rank = -1;
    strcpy(program->problem, "ptrace: it is refused");
    strcpy(program->threads[0].problem, "ptrace: it is refused");
    strcpy(program->threads[1].problem, "ptrace: it is refused");
    ck_assert_str_eq(report(),
                     "process 40: /opt/train, running, 1.50 s of CPU time since its start, now 100 % of a core\n"
                     "  no native stacks: ptrace: it is refused\n"
                     "  thread 40 (worker), sleeping, waits in futex_do_wait, and 1 more thread\n"
                     "  thread 42 (worker), sleeping, waits in futex_do_wait\n");
    tear_down();
}

TEST(a_thread_without_a_stack_has_its_own_reason)
{
    set_up(2);
    add_frame(0, "main", "train");
    strcpy(program->threads[1].problem, "it has ended");
    ck_has(report(), "  thread 41 (worker), sleeping, waits in futex_do_wait\n"
                     "    no native stack: it has ended\n");
    strcpy(program->problem, "the time was over");
    ck_has(report(), "\n  incomplete: the time was over\n");
    tear_down();
}

TEST(a_program_that_has_ended_has_no_numbers)
{
    set_up(0);
    program->state = 0;
    program->is_python = true;
    strcpy(program->problem, "it has ended meanwhile");
    ck_assert_str_eq(report(), "rank 2, process 40: /opt/train, ended\n  no native stacks: it has ended meanwhile\n");
    tear_down();
}

TEST(python_is_told_how_to_print_its_own_stack)
{
    set_up(1);
    program->is_python = true;
    ck_has(report(), "faulthandler.register(signal.SIGUSR1)");
    ck_has(report(), "docker kill --signal USR1 CONTAINER");
    ck_has(report(), "would die of it");
    program->handles_usr1 = true;
    ck_lacks(report(), "would die of it");
    tear_down();
}

TEST(frames_and_lines_are_bounded_and_what_is_left_out_is_counted)
{
    char name[32];

    set_up(PL_STACKS_MOST_THREADS);
    program->threads_left_out = 5;
    program->is_python = true;
    for (size_t i = 0; i < PL_STACKS_MOST_THREADS; i++) {
        for (size_t j = 0; j < PL_STACKS_MOST_FRAMES; j++) {
            snprintf(name, sizeof(name), "f%zu_%zu", i, j);
            add_frame(i, name, "train");
        }
    }
    strcpy(program->threads[0].wait, "");
    ck_assert_uint_le(count_lines(report()), PL_REPORT_MOST_LINES);
    ck_has(report(), "    #39 f0_39 (train)\n    ... more frames\n");
    ck_lacks(report(), "f0_40");
    ck_has(report(), " f3_0 ");
    ck_has(report(), "  ... 513 more threads\n"); /* 512 + 5 threads, without the four that are shown */
    tear_down();
}

UNIT_MAIN("programs/stacks/report")
