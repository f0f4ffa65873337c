/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Python's own stacks, written by its faulthandler: `programs/python/sitecustomize.py`, which `PACELINE_HANG_S`
 * puts on PYTHONPATH, registers a signal and a file, and `paceline stacks` sends the one and reads the other.
 *
 * Source  Python's documentation of faulthandler.register() and site (sitecustomize).
 * Test    tests/unit/programs/stacks/test_python.c
 */
#ifndef PL_PROGRAMS_STACKS_PYTHON_H
#define PL_PROGRAMS_STACKS_PYTHON_H

#include "base/text.h"
#include "programs/stacks/stacks.h"

enum { PL_PYTHON_SIGNAL = 62 }; /* SIGRTMAX - 2, as the hook has it */

/**
 * Have the process `program->pid` write its stacks, and fill in `program->python`; nothing happens to one without the
 * hook, or that is stopped. Waits until `deadline_ns` at the longest.
 */
void pl_python_collect(struct pl_stacks_program *program, int64_t deadline_ns);

/** Append the main thread's functions of `stacks`, the outermost first, each with a newline. */
void pl_python_append_key(const char *stacks, struct pl_text *text);

/** Append at most `most_lines` lines of the report. Returns how many. */
size_t pl_python_append_report(const char *stacks, size_t most_lines, struct pl_text *text);

/** Append where the main thread stands: "wait (threading.py line 320) in get (queue.py line
 * 171) in main (train.py line 8)". False: not known. */
bool pl_python_append_place(const char *stacks, struct pl_text *text);

#endif
