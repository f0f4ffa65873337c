/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Python's own stacks, which its faulthandler writes. `PACELINE_HANG_S` puts `programs/python/sitecustomize.py` on
 * PYTHONPATH, which registers a signal and a file. `paceline stacks` sends the signal and reads the file.
 *
 * Source  Python's documentation of faulthandler.register() and site (sitecustomize).
 * Test    tests/unit/programs/stacks/test_python.c
 */
#ifndef PL_PROGRAMS_STACKS_PYTHON_H
#define PL_PROGRAMS_STACKS_PYTHON_H

#include "base/text.h"
#include "programs/stacks/stacks.h"

enum { PL_PYTHON_SIGNAL = 62 }; /* SIGRTMAX - 2, as in sitecustomize.py */

/**
 * Makes the process `program->pid` write its stacks, and fills in `program->python`. Does nothing if the process did
 * not register the signal or is stopped. Waits until `deadline_ns` at most.
 */
void pl_python_collect(struct pl_stacks_program *program, int64_t deadline_ns);

/** Appends the main thread's functions of `stacks`, the outermost first, each with a newline. */
void pl_python_append_key(const char *stacks, struct pl_text *text);

/** Appends at most `most_lines` lines of the report. Returns their number. */
size_t pl_python_append_report(const char *stacks, size_t most_lines, struct pl_text *text);

/**
 * Appends what the main thread is doing: "wait (threading.py line 320), called by get (queue.py line 171), called by
 * main (train.py line 8)". False if that is unknown.
 */
bool pl_python_append_place(const char *stacks, struct pl_text *text);

#endif
