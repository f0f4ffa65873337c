/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Turns progress bars into lines. A progress bar is one line that a program rewrites again and again after a carriage
 * return.
 *
 * A text that ends in a carriage return is a state of a bar. The newest state is written as a line when `interval_ns`
 * has passed since the last such line, and always when the line ends, another line comes or the program ends. A state
 * of blanks erases the bar from a terminal and is left out. The output has no carriage return, no backspace and no
 * escape sequence that moves the cursor or erases; colours stay. Bars below each other (tqdm's `position=1`), between
 * which ESC[A and line feeds move, have a state each. A line without a carriage return, or with one only just before
 * the line feed, belongs to no bar and passes unchanged, and so does a text longer than a state.
 *
 * Test  tests/unit/entrypoint/output/test_bars.c, tests/fuzz/fuzz_output.c, tests/integration/progress_bars.py
 */
#ifndef PL_ENTRYPOINT_OUTPUT_BARS_H
#define PL_ENTRYPOINT_OUTPUT_BARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_BARS_KEEP = -1, /* instead of an interval: the bytes stay as they come */
    PL_BARS_ROWS = 16,
    PL_BARS_TEXT_BYTES = 1024,
    PL_BARS_ESCAPE_BYTES = 32,
    /* how many bytes the output can be longer than the input: two texts of each row with their ends */
    PL_BARS_HELD_BYTES = PL_BARS_ROWS * 2 * (PL_BARS_TEXT_BYTES + 2) + PL_BARS_ESCAPE_BYTES,
};

/** One line of the terminal. */
struct pl_bars_row {
    char state[PL_BARS_TEXT_BYTES]; /* the newest state, if it was not written as a line yet */
    size_t state_bytes;
    char text[PL_BARS_TEXT_BYTES]; /* the bytes that came after that state */
    size_t text_bytes;
    bool rewrites;       /* the text begins at the start of the row again */
    bool is_erased;      /* the state was erased from the terminal: the next text is a state only if it ends as one */
    bool ends_in_return; /* a return follows each state: again, the next text is a state only if it ends as one */
};

/** Zero-initialise except `interval_ns`; holds no resources. */
struct pl_bars {
    int64_t interval_ns; /* not PL_BARS_KEEP; 0: each state is a line */
    bool is_open;        /* the last byte written before a call does not end a line */
    bool is_active;  /* a line with a carriage return has begun; the other fields are valid while it has not ended */
    bool is_bar;     /* that carriage return was not the end of the line */
    bool has_return; /* a carriage return was the last byte */
    size_t back;     /* number of backspaces at the end of the bytes so far */
    size_t cursor, rows_used;
    struct pl_bars_row rows[PL_BARS_ROWS];
    char escape[PL_BARS_ESCAPE_BYTES]; /* an escape sequence whose end has not arrived */
    size_t escape_bytes;
    int64_t due_ns;  /* earliest time to write the next state; 0: not set */
    int64_t text_ns; /* time at which the last byte arrived */
    char *out;       /* during a call: the place of the next output byte */
};

/**
 * `count` bytes have arrived at `bytes` + `kept`. The `kept` bytes before them were returned by earlier calls and are
 * not written yet. Turns them into lines in place, and returns the new number of bytes. Of these only the bytes after
 * the last line feed may change in the next call. `bytes` needs room for PL_BARS_HELD_BYTES more.
 */
size_t pl_bars_pass(struct pl_bars *bars, char *bytes, size_t kept, size_t count, int64_t now_ns);

/** Returns when pl_bars_write_due() has to write if nothing arrives before, or PL_DEADLINE_NEVER. */
int64_t pl_bars_deadline(const struct pl_bars *bars);

/** Writes the states that are due to `bytes`, which has room for PL_BARS_HELD_BYTES, and returns how many bytes. */
size_t pl_bars_write_due(struct pl_bars *bars, char *bytes, int64_t now_ns);

/** Writes all states that are left, at the end of the program, as pl_bars_write_due() does. */
size_t pl_bars_end(struct pl_bars *bars, char *bytes);

#endif
