/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Makes lines of progress bars, which are one line that a program writes again and again after a carriage return.
 *
 * A text that a carriage return ends is a state of a bar. The newest state is a line of its own when `interval_ns` has
 * passed since the one before, and always when the line ends, another line comes or the program ends. A state of blanks
 * erases the bar from a terminal and is left out. What is written has no carriage return, no backspace and no escape
 * sequence that moves the cursor or erases; colours stay. Bars below each other (tqdm's `position=1`) go up and down by
 * ESC[A and line feeds: each of them has a state of its own. A line without a carriage return, or with one before the
 * line feed alone, is none of a bar's and passes unchanged, and so does a text that is longer than a state.
 *
 * Test  tests/unit/entrypoint/output/test_bars.c, tests/fuzz/fuzz_output.c, tests/integration/progress_bars.py
 */
#ifndef PL_ENTRYPOINT_OUTPUT_BARS_H
#define PL_ENTRYPOINT_OUTPUT_BARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_BARS_KEEP = -1, /* an interval: the bytes stay as they come */
    PL_BARS_ROWS = 16,
    PL_BARS_TEXT_BYTES = 1024,
    PL_BARS_ESCAPE_BYTES = 32,
    /* how much longer than what arrives the lines can be: two texts of each row with their ends */
    PL_BARS_HELD_BYTES = PL_BARS_ROWS * 2 * (PL_BARS_TEXT_BYTES + 2) + PL_BARS_ESCAPE_BYTES,
};

/** One line of the terminal. */
struct pl_bars_row {
    char state[PL_BARS_TEXT_BYTES]; /* the newest one, if no line has been made of it yet */
    size_t state_bytes;
    char text[PL_BARS_TEXT_BYTES]; /* what has come after it */
    size_t text_bytes;
    bool rewrites;  /* the text begins at the row's begin again */
    bool is_erased; /* the state is not on the terminal any more: the next text is not a state unless it ends as one */
    bool ends_in_return; /* the bar has its carriage return after each state, not before it: the same holds */
};

/** Zero-initialise except `interval_ns`; holds no resources. */
struct pl_bars {
    int64_t interval_ns; /* not PL_BARS_KEEP; 0: each state is a line */
    bool is_open;        /* what was written last, before the bytes of a call, does not end a line */
    bool is_active;  /* a line with a carriage return has begun; the other fields are valid while it has not ended */
    bool is_bar;     /* that carriage return was not its end */
    bool has_return; /* a carriage return was the last byte */
    size_t back;     /* how many backspaces were the last bytes */
    size_t cursor, rows_used;
    struct pl_bars_row rows[PL_BARS_ROWS];
    char escape[PL_BARS_ESCAPE_BYTES]; /* a sequence whose end has not come */
    size_t escape_bytes;
    int64_t due_ns;  /* when the next state may be a line; 0: not set */
    int64_t text_ns; /* when the last byte came */
    char *out;       /* during a call: where the next byte goes */
};

/**
 * `count` bytes have arrived at `bytes` + `kept`. The `kept` bytes before them were returned by earlier calls and are
 * not written yet. Makes lines of them, in place, and returns how many bytes there are then, of which only the bytes
 * after the last line feed may change in the next call. Needs room for PL_BARS_HELD_BYTES more.
 */
size_t pl_bars_pass(struct pl_bars *bars, char *bytes, size_t kept, size_t count, int64_t now_ns);

/** When pl_bars_write_due() has something to write, if nothing arrives before: a time, or PL_DEADLINE_NEVER. */
int64_t pl_bars_deadline(const struct pl_bars *bars);

/** Writes the states that are due to `bytes`, which has room for PL_BARS_HELD_BYTES, and returns how many bytes. */
size_t pl_bars_write_due(struct pl_bars *bars, char *bytes, int64_t now_ns);

/** The same for all that is left, at the end of the program. */
size_t pl_bars_end(struct pl_bars *bars, char *bytes);

#endif
