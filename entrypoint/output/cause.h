/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The line of a stream that says why a Python program failed: the last exception's own line, or what pip says of a
 * connection after its last attempt, or uv's error with its reasons. It is kept as the stream passes, whose end may be a
 * dump of any length.
 *
 * An exception's line is the first after "Traceback (most recent call last):" that is not indented, or, as of a
 * SyntaxError, one that begins with a name such as ValueError and a colon. torch's tag `[rank1]: ` before each line is
 * skipped, and what Python reports as "Exception ignored" is left out.
 *
 * Test  tests/unit/entrypoint/output/test_tail.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_CAUSE_H
#define PL_ENTRYPOINT_OUTPUT_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    PL_CAUSE_LINE_BYTES = 1024,      /* of a longer line the beginning is kept */
    PL_CAUSE_OLD_BYTES = 256 * 1024, /* an exception after which so much was printed did not end the program */
};

/** Zero-initialise; holds no resources. */
struct pl_cause {
    char line[PL_CAUSE_LINE_BYTES + 1]; /* the beginning of the line that is read now, with a NUL */
    size_t line_bytes;
    bool in_traceback;
    bool is_ignored;                     /* the next exception is one that Python has ignored */
    char error[PL_CAUSE_LINE_BYTES + 1]; /* uv's, with the reasons so far; "" after another line */
    char found[PL_CAUSE_LINE_BYTES + 1];
    size_t later_bytes; /* printed since */
};

void pl_cause_add(struct pl_cause *cause, const char *bytes, size_t count);

/** The line, as it was printed, without torch's tag; also where its end has not come. "" when there is none. */
const char *pl_cause_text(struct pl_cause *cause);

#endif
