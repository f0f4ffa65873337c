/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The text that `paceline stacks` prints about one program.
 *
 * Test  tests/unit/programs/stacks/test_report.c
 */
#ifndef PL_PROGRAMS_STACKS_REPORT_H
#define PL_PROGRAMS_STACKS_REPORT_H

#include "base/text.h"
#include "programs/stacks/stacks.h"

enum {
    PL_REPORT_MOST_LINES = 200, /* limit for one program */
    PL_REPORT_MOST_FRAMES = 40, /* limit for one thread, whose innermost frames are printed */
    PL_REPORT_MOST_PYTHON_LINES = 80,
};

/**
 * Appends the report: a line about the program, with the `host` unless that is "", then Python's own stacks, then each
 * thread. Threads with the same stack and state are printed once.
 */
void pl_report_program(const struct pl_stacks_program *program, const char *host, struct pl_text *text);

/** Appends what the main thread is doing, in a few words: "stopped", "poll in recv in step". */
void pl_report_place(const struct pl_stacks_program *program, struct pl_text *text);

#endif
