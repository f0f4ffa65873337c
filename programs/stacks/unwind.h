/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The native stacks of another process's threads, by elfutils' libdw.
 *
 * ptrace stops one thread at a time while the addresses on its stack are read; their names are looked up when it runs
 * again. PTRACE_SEIZE sends no signal, and the kernel ends the trace if this process dies: nothing stays stopped. A
 * process that a signal had stopped before stays stopped. A program can notice the trace in one way: a system call that
 * the kernel does not restart by itself (epoll_wait(2), see signal(7)) returns EINTR.
 *
 * Symbols come from the files that the process has mapped; no server for debug information is asked.
 *
 * Source  ptrace(2); libdwfl.h of elfutils.
 * Test    tests/unit/programs/stacks/test_collect.c
 */
#ifndef PL_PROGRAMS_STACKS_UNWIND_H
#define PL_PROGRAMS_STACKS_UNWIND_H

#include "base/status.h"
#include "programs/stacks/stacks.h"

/**
 * Fills in the stacks of all threads that `program` lists. A failure is written to the thread's `problem`, or to the
 * program's `problem` if no thread can have a stack.
 *
 * Threads  the calling thread becomes the tracer; the process must not have a child whose end others wait for.
 */
void pl_unwind_program(struct pl_stacks_program *program, int64_t deadline_ns);

/** Writes why ptrace was refused with `code`, and what would permit it, from what /proc shows of this process. */
void pl_unwind_explain(int code, const char *own_status, const char *yama_scope, char *ret_text, size_t text_bytes);

#endif
