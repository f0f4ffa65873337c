/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Keeps the last bytes of a stream in fixed memory, and returns the last lines of them as text that is safe to show. It
 * also keeps the line that says why a program failed, wherever in the stream that line was.
 */
#ifndef PL_ENTRYPOINT_OUTPUT_TAIL_H
#define PL_ENTRYPOINT_OUTPUT_TAIL_H

#include "entrypoint/output/cause.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    PL_TAIL_BYTES = 8192,
    PL_TAIL_LINE_BYTES = 400, /* a longer line keeps its beginning and ends in "..." */
    PL_TAIL_PLACE_BYTES = PL_CAUSE_PLACE_BYTES + 24,
};

/** Zero-initialise; holds no resources. */
struct pl_tail {
    size_t used;         /* bytes held, at most PL_TAIL_BYTES */
    size_t write_offset; /* where the next byte goes */
    char bytes[PL_TAIL_BYTES];
    struct pl_cause cause;
};

void pl_tail_add(struct pl_tail *tail, const char *bytes, size_t count);

/**
 * Write the last whole lines that fit to `text` (at most `text_bytes` with the NUL), oldest first, each with a newline,
 * and return the length. Blank lines are left out. Of a line with carriage returns (a progress bar) only the last state
 * is kept. Terminal control sequences are removed, and bytes that are not UTF-8 become '?'.
 */
size_t pl_tail_lines(const struct pl_tail *tail, char *text, size_t text_bytes);

/** Write the line of `tail->cause`, cleaned in the same way, to `text`; "" if there is none. */
void pl_tail_cause(struct pl_tail *tail, char text[static PL_TAIL_LINE_BYTES + 1]);

/**
 * Write where that line's exception was raised to `text`, as clean: "train.py:31", "train.py:31, rank 3" with
 * `with_rank` where the stream names the rank, or "".
 */
void pl_tail_place(struct pl_tail *tail, bool with_rank, char text[static PL_TAIL_PLACE_BYTES]);

#endif
