/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/stacks/collect.c, programs/stacks/describe.c. */
#include "base/clock.h"
#include "entrypoint/proc/proc.h"
#include "programs/stacks/stacks.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3 };

#define LONG_NS (60 * PL_NS_PER_S)

static int ready_fds[2];

/* Functions that a stack must show: they are not inlined, and do not end with their call, which would be a tail
 * call. */
__attribute__((noinline)) static void stand_here(void)
{
    ck_assert_int_eq(write(ready_fds[1], "x", 1), 1);
    for (;;) {
        pause();
    }
}

__attribute__((noinline)) static void turn_here(void)
{
    ck_assert_int_eq(write(ready_fds[1], "x", 1), 1);
    for (;;) {
        __asm__ volatile("");
    }
}

__attribute__((noinline)) static void *serve_here(void *argument)
{
    stand_here();
    return argument;
}

__attribute__((noinline)) static void stand_with_threads(void)
{
    pthread_t thread;

    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, serve_here, NULL), 0);
    }
    stand_here();
}

/* Starts a process that runs `body`. On return it has begun to run it, with all its `threads`. */
static pid_t start(void (*body)(void), int threads)
{
    pid_t pid;
    char byte;

    ck_assert_int_eq(pipe(ready_fds), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* the collector is not its parent */
        body();
        _exit(0);
    }
    for (int i = 0; i < threads; i++) {
        ck_assert_int_eq(read(ready_fds[0], &byte, 1), 1);
    }
    close(ready_fds[0]);
    close(ready_fds[1]);
    return pid;
}

static void end(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static char state_of(pid_t pid)
{
    struct pl_proc_stat stat;

    ck_ok(pl_proc_read_stat, pid, 0, &stat);
    return stat.state;
}

static void await_state(pid_t pid, const char *states)
{
    int64_t deadline_ns = pl_deadline_after_ns(LONG_NS);

    while (!strchr(states, state_of(pid))) {
        ck_assert_msg(!pl_deadline_passed(deadline_ns), "the state is %c, not one of %s", state_of(pid), states);
        pl_clock_nap(PL_NS_PER_MS, deadline_ns);
    }
}

static struct pl_stacks_program *collect(pid_t pid)
{
    struct pl_stacks_program *program = NULL;

    ck_ok(pl_collect_program, pid, pl_collect_describe, pl_deadline_after_ns(LONG_NS), &program);
    return program;
}

static bool has_function(const struct pl_stacks_thread *thread, const char *name)
{
    for (size_t i = 0; i < thread->frame_count; i++) {
        if (strcmp(thread->frames[i].function, name) == 0) {
            return true;
        }
    }
    return false;
}

TEST(a_known_function_is_on_the_stack_and_the_process_goes_on)
{
    void (*const bodies[])(void) = {stand_here, turn_here};
    static const char *const names[] = {"stand_here", "turn_here"};

    for (int i = 0; i < 2; i++) {
        pid_t pid = start(bodies[i], 1);
        struct pl_stacks_program *program = collect(pid);

        ck_assert_str_eq(program->problem, "");
        ck_assert_uint_ge(program->thread_count, 1); /* a sanitizer has an additional thread */
        ck_assert_int_eq(program->threads[0].tid, pid);
        ck_assert_str_eq(program->threads[0].problem, "");
        ck_assert_msg(has_function(&program->threads[0], names[i]), "%s is not on the stack", names[i]);
        ck_assert_msg(has_function(&program->threads[0], "main"), "main is not on the stack");
        ck_assert(!program->handles_usr1 && !program->is_python);
        await_state(pid, i == 0 ? "S" : "R");
        pl_collect_free(program);
        end(pid);
    }
}

TEST(every_thread_has_its_stack)
{
    pid_t pid = start(stand_with_threads, 1 + THREADS);
    struct pl_stacks_program *program = collect(pid);

    ck_assert_str_eq(program->problem, "");
    ck_assert_int_eq(program->threads[0].tid, pid);
    ck_assert(has_function(&program->threads[0], "stand_with_threads"));
    ck_assert_uint_ge(program->thread_count, 1 + THREADS);
    for (size_t i = 1, found = 0; i < program->thread_count; i++) {
        found += has_function(&program->threads[i], "serve_here");
        ck_assert(i + 1 < program->thread_count || found == THREADS);
    }
    pl_collect_free(program);
    end(pid);
}

TEST(a_stopped_process_has_a_stack_and_stays_stopped)
{
    pid_t pid = start(stand_here, 1);
    struct pl_stacks_program *program;

    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    await_state(pid, "T");
    program = collect(pid);
    ck_assert_int_eq(program->threads[0].state, 'T');
    ck_assert(has_function(&program->threads[0], "stand_here"));
    pl_collect_free(program);
    await_state(pid, "T");
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    await_state(pid, "S");
    end(pid);
}

TEST(a_process_that_has_ended_is_said_to_have)
{
    pid_t pid = start(stand_here, 1);
    struct pl_stacks_program *program;
    siginfo_t info;

    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    program = collect(pid);
    ck_assert_str_eq(program->problem, "it has ended, and its parent has not waited for it");
    pl_collect_free(program);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    program = collect(pid);
    ck_assert_str_eq(program->problem, "it has ended");
    pl_collect_free(program);
}

TEST(a_process_that_is_traced_is_said_to_be)
{
    pid_t pid = start(stand_here, 1);
    struct pl_stacks_program *program;
    char wanted[64];

    await_state(pid, "S");
    ck_assert_int_eq(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
    program = collect(pid);
    snprintf(wanted, sizeof(wanted), "it is being traced by process %d (", (int)getpid());
    ck_assert_msg(strncmp(program->problem, wanted, strlen(wanted)) == 0, "%s", program->problem);
    ck_assert_int_eq(program->threads[0].state, 'S');
    pl_collect_free(program);
    end(pid);
}

static void describe_and_hang(struct pl_stacks_program *program, int64_t deadline_ns)
{
    pl_describe_program(program);
    for (;;) {
        pause();
    }
}

static void describe_and_die(struct pl_stacks_program *program, int64_t deadline_ns)
{
    pl_describe_program(program);
    raise(SIGKILL);
}

TEST(what_was_found_is_reported_when_the_rest_takes_too_long_or_fails)
{
    pid_t pid = start(stand_here, 1);
    struct pl_stacks_program *program = NULL;

    await_state(pid, "S");
    ck_ok(pl_collect_program, pid, describe_and_hang, pl_deadline_after_ns(PL_NS_PER_MS), &program);
    ck_assert_str_eq(program->problem, "the time was over before the whole program was read");
    pl_collect_free(program);
    ck_ok(pl_collect_program, pid, describe_and_die, pl_deadline_after_ns(LONG_NS), &program);
    ck_assert_str_eq(program->problem, "the process that reads it was killed by signal 9 (Killed)");
    ck_assert_int_eq(program->threads[0].tid, pid);
    ck_assert_int_eq(program->threads[0].state, 'S');
    pl_collect_free(program);
    end(pid);
}

static void stop_and_hang(struct pl_stacks_program *program, int64_t deadline_ns)
{
    ptrace(PTRACE_SEIZE, program->pid, NULL, NULL);
    ptrace(PTRACE_INTERRUPT, program->pid, NULL, NULL);
    for (;;) {
        pause();
    }
}

TEST(nothing_stays_stopped_when_the_command_is_killed_in_the_middle)
{
    pid_t pid = start(stand_here, 1), command = fork();
    struct pl_stacks_program *program;

    if (command == 0) {
        _exit(pl_collect_program(pid, stop_and_hang, PL_DEADLINE_NEVER, &program, NULL) == PL_OK);
    }
    await_state(pid, "t");
    end(command);
    await_state(pid, "S");
    end(pid);
}

TEST(what_does_not_allow_ptrace_is_explained)
{
    static const char none[] = "CapEff:\t00000000a80425fb\nSeccomp:\t2\n";
    static const char all[] = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
    char text[512];

    pl_collect_explain(EPERM, none, "1\n", text, sizeof(text));
    ck_assert_str_eq(text, "ptrace: Operation not permitted (this process has no CAP_SYS_PTRACE, "
                           "kernel.yama.ptrace_scope is 1, a seccomp filter is active); `docker exec --privileged` "
                           "allows it, or a container that was started with `--cap-add SYS_PTRACE`");
    pl_collect_explain(EPERM, all, "3\n", text, sizeof(text));
    ck_assert_str_eq(text, "ptrace: Operation not permitted (this process has the capability CAP_SYS_PTRACE, "
                           "kernel.yama.ptrace_scope is 3); the host's administrator has switched ptrace off for all");
}

/* If ptrace is not allowed at all, the tests cannot run. */
static int prepare(void)
{
    pid_t pid = fork();
    long traced;

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    traced = ptrace(PTRACE_SEIZE, pid, NULL, NULL);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (traced != 0) {
        puts("ptrace is not allowed here");
        return 77;
    }
    return 0;
}

UNIT_MAIN_AFTER("programs/stacks/collect", prepare())
