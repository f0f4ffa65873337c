/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline stacks` prints of one program.
 *
 * Test  tests/unit/programs/stacks/test_report.c
 */
#ifndef PL_PROGRAMS_STACKS_REPORT_H
#define PL_PROGRAMS_STACKS_REPORT_H

#include "base/text.h"
#include "programs/stacks/stacks.h"

enum {
    PL_REPORT_MOST_LINES = 200, /* of one program */
    PL_REPORT_MOST_FRAMES = 40, /* of one thread, the innermost */
    PL_REPORT_MOST_PYTHON_LINES = 80,
};

/** Append the report, with the `host` where that is not "": a line about the program, then Python's own stacks, then
 * each thread, those with the same stack and state once. */
void pl_report_program(const struct pl_stacks_program *program, const char *host, struct pl_text *text);

/** Append where the main thread stands, in a few words: "stopped", "poll in recv in step". */
void pl_report_place(const struct pl_stacks_program *program, struct pl_text *text);

#endif
