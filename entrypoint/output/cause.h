/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Finds the line of a stream that says why a Python program failed: the line of the last exception, or pip's message
 * about a connection after its last attempt. The line is kept while the stream passes, because a dump of any length may
 * follow it.
 *
 * The line of an exception is the first line after "Traceback (most recent call last):" that is not indented. Without a
 * traceback, as for a SyntaxError, it is a line that begins with a name such as ValueError and a colon. torch's tag
 * `[rank1]: ` before each line is skipped, and so are the exceptions that Python reports as "Exception ignored".
 *
 * Test  tests/unit/entrypoint/output/test_tail.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_CAUSE_H
#define PL_ENTRYPOINT_OUTPUT_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    PL_CAUSE_LINE_BYTES = 1024, /* of a longer line only the beginning is kept */
    /* if more output than this follows an exception, the exception did not end the program */
    PL_CAUSE_OLD_BYTES = 256 * 1024,
};

/** Zero-initialise; holds no resources. */
struct pl_cause {
    char line[PL_CAUSE_LINE_BYTES + 1]; /* the beginning of the line that is being read, with a NUL */
    size_t line_bytes;
    bool in_traceback;
    bool is_ignored; /* Python has ignored the next exception */
    char found[PL_CAUSE_LINE_BYTES + 1];
    size_t later_bytes; /* printed since */
};

void pl_cause_add(struct pl_cause *cause, const char *bytes, size_t count);

/**
 * Returns the line as it was printed, without torch's tag, or "" if there is none. The last line counts even if it has
 * no end yet.
 */
const char *pl_cause_text(struct pl_cause *cause);

#endif
