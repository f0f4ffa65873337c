/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The native stacks of another process's threads, by elfutils' libdw.
 *
 * A thread is stopped by ptrace while the addresses on its stack are read, one thread at a time; their names are looked
 * up when it runs again. PTRACE_SEIZE sends no signal, so that nothing stays stopped when this process dies in between:
 * the kernel ends the trace then. A process that was stopped by a signal before stays so. What tracing cannot hide from
 * a program: a system call that the kernel does not restart by itself (epoll_wait(2), see signal(7)) returns EINTR.
 *
 * Symbols are those of the files that the process has mapped; no server for debug information is asked.
 *
 * Source  ptrace(2); libdwfl.h of elfutils.
 * Test    tests/unit/programs/stacks/test_collect.c
 */
#ifndef PL_PROGRAMS_STACKS_UNWIND_H
#define PL_PROGRAMS_STACKS_UNWIND_H

#include "base/status.h"
#include "programs/stacks/stacks.h"

/**
 * Fill in the stacks of all threads that `program` lists; what stands in the way is written to a thread's `problem`, or
 * to that of the program where no thread can have a stack.
 *
 * Threads  the calling thread becomes the tracer; the process must have no child whose end others wait for.
 */
void pl_unwind_program(struct pl_stacks_program *program, int64_t deadline_ns);

/** Why ptrace was refused with `code`, and what would allow it, from what /proc says of this process. */
void pl_unwind_explain(int code, const char *own_status, const char *yama_scope, char *ret_text, size_t text_bytes);

#endif
