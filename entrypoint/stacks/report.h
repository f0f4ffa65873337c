/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline stacks` prints of one program.
 *
 * Test  tests/unit/entrypoint/stacks/test_report.c
 */
#ifndef PL_ENTRYPOINT_STACKS_REPORT_H
#define PL_ENTRYPOINT_STACKS_REPORT_H

#include "base/text.h"
#include "entrypoint/stacks/stacks.h"

enum {
    PL_REPORT_MOST_LINES = 200, /* of one program */
    PL_REPORT_MOST_FRAMES = 40, /* of one thread, the innermost */
};

/** Append the report: a line about the program, then each thread, those with the same stack and state once. */
void pl_report_program(const struct pl_stacks_program *program, struct pl_text *text);

#endif
