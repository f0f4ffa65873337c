/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Keeps the last bytes of a stream in fixed memory, and returns the last lines of them as text that is safe to show. It
 * also keeps the line that says why a program failed, wherever in the stream that line was.
 *
 * Test  tests/unit/entrypoint/output/test_tail.c, test_cause.c
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
    size_t write_offset; /* offset of the next byte in `bytes` */
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
 * Write to `text` where the exception of that line was raised, cleaned in the same way: "train.py:31"; "train.py:31,
 * rank 3" with `with_rank` if the stream names the rank; or "".
 */
void pl_tail_place(struct pl_tail *tail, bool with_rank, char text[static PL_TAIL_PLACE_BYTES]);

enum { PL_LAST_WORD_COMMAND_BYTES = 128 };

/**
 * What the last line of a program's stderr says about the program's end, if the line is an error message. Only these
 * forms count, since a log line or a metric may be last, too:
 *
 *     train.py: error: argument --epochs: invalid int value: 'three'     argparse, and many programs in C
 *     ./train.sh: line 3: foo: command not found                         bash; dash: "./train.sh: 3: foo: not found"
 *     ./train: error while loading shared libraries: libx.so.1: ...      the dynamic loader
 *     env: 'foo': No such file or directory                              with the exit codes 126 and 127
 */
struct pl_last_word {
    bool is_error;
    bool is_loader; /* the line is the dynamic loader's: the code 127 is its own, not that of a shell */
    /* with the codes 126 and 127: the command that could not be executed or was not found; "": the line names none */
    char command[PL_LAST_WORD_COMMAND_BYTES];
};

/** Reads the line of a program that exited with `code`. */
struct pl_last_word pl_last_word_read(const char *line, int code);

#endif
