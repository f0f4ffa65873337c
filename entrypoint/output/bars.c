/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the cursor of a terminal as far as progress bars move it. */
#include "entrypoint/output/bars.h"

#include "base/clock.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

/* A text without an end counts as a whole state after this time. */
#define UNFINISHED_NS (PL_NS_PER_S / 4)
#define ESCAPE '\033'

/* Returns the length without blanks at the end: a bar covers the rest of a longer state with them. */
static size_t trimmed(const char *text, size_t bytes)
{
    while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\t')) {
        bytes--;
    }
    return bytes;
}

static bool has_text(const struct pl_bars_row *row)
{
    return trimmed(row->text, row->text_bytes) > 0;
}

static struct pl_bars_row *current(struct pl_bars *bars)
{
    return &bars->rows[bars->cursor];
}

static void put(struct pl_bars *bars, const char *text, size_t bytes)
{
    memmove(bars->out, text, bytes); /* input and output share this memory */
    bars->out += bytes;
    if (bytes > 0) {
        bars->is_open = bars->out[-1] != '\n';
    }
}

static void put_line(struct pl_bars *bars, const char *text, size_t bytes)
{
    if (bars->is_open) {
        put(bars, "\n", 1);
    }
    put(bars, text, bytes);
    put(bars, "\n", 1);
}

static void put_state(struct pl_bars *bars, struct pl_bars_row *row)
{
    if (row->state_bytes > 0) {
        put_line(bars, row->state, row->state_bytes);
        row->state_bytes = 0;
    }
}

static void forget_text(struct pl_bars_row *row, bool rewrites)
{
    row->text_bytes = 0;
    row->rewrites = rewrites;
}

/* The row's text is a whole state: keep it. A state of blanks only erases the one before. */
static void complete(struct pl_bars *bars, struct pl_bars_row *row)
{
    if (has_text(row)) {
        row->state_bytes = trimmed(row->text, row->text_bytes);
        memcpy(row->state, row->text, row->state_bytes);
        row->is_erased = false;
        if (bars->interval_ns == 0) {
            put_state(bars, row);
        }
    } else {
        row->is_erased = row->is_erased || row->text_bytes > 0;
    }
    bars->back = 0;
}

/* Whether the row's text, if a line feed comes next, is not a state of its bar. */
static bool is_line(const struct pl_bars_row *row)
{
    return has_text(row) && (!row->rewrites || row->is_erased || row->ends_in_return);
}

/* Write the row's last line: its text if it has some, else its state. */
static void put_row(struct pl_bars *bars, struct pl_bars_row *row)
{
    if (!has_text(row) || is_line(row)) {
        put_state(bars, row);
    }
    if (has_text(row)) {
        put_line(bars, row->text, row->rewrites ? trimmed(row->text, row->text_bytes) : row->text_bytes);
    }
}

/* Write a text that is too long for a state as it is. */
static void put_long_text(struct pl_bars *bars)
{
    const size_t cursor = bars->cursor;
    struct pl_bars_row *row = current(bars);

    for (size_t i = 0; i < bars->rows_used; i++) {
        if (i != cursor) {
            put_row(bars, &bars->rows[i]);
        }
    }
    put_state(bars, row);
    if (bars->is_open && row->rewrites) {
        put(bars, "\n", 1);
    }
    put(bars, row->text, row->text_bytes);
    bars->is_active = false;
}

/* Add bytes to the row's text. They overwrite bytes that backspaces went back over. Ends the bar if there are too
 * many. */
static void add_text(struct pl_bars *bars, const char *bytes, size_t count)
{
    struct pl_bars_row *row = current(bars);

    for (; bars->back > 0; bars->back--) {
        while (row->text_bytes > 0 && ((unsigned char)row->text[row->text_bytes - 1] & 0xC0) == 0x80) {
            row->text_bytes--; /* a character of several bytes */
        }
        row->text_bytes -= row->text_bytes > 0 ? 1 : 0;
    }
    if (row->text_bytes + count > sizeof(row->text)) {
        put_long_text(bars);
        put(bars, bytes, count);
        return;
    }
    memcpy(row->text + row->text_bytes, bytes, count);
    row->text_bytes += count;
}

/* Write as text what began like an escape sequence but is none. */
static void put_escape(struct pl_bars *bars)
{
    const size_t bytes = bars->escape_bytes;

    bars->escape_bytes = 0;
    add_text(bars, bars->escape, bytes);
}

static size_t read_bar(struct pl_bars *bars, const char *bytes, size_t count);

/* The line belongs to a bar: read the text before its first carriage return again, as a bar's. */
static void read_again(struct pl_bars *bars)
{
    char text[PL_BARS_TEXT_BYTES];
    const size_t bytes = current(bars)->text_bytes;

    memcpy(text, current(bars)->text, bytes);
    forget_text(current(bars), false);
    bars->is_bar = true;
    for (size_t at = 0; at < bytes;) {
        at += read_bar(bars, text + at, bytes - at);
    }
    put_escape(bars);
}

static void carriage_return(struct pl_bars *bars)
{
    struct pl_bars_row *row;

    bars->has_return = false;
    if (!bars->is_bar) {
        read_again(bars);
    }
    row = current(bars);
    row->ends_in_return = row->ends_in_return || (!row->rewrites && has_text(row));
    complete(bars, row);
    forget_text(row, true);
}

/* Write the rows down to `last`, and forget them. */
static void put_rows(struct pl_bars *bars, size_t last)
{
    for (size_t i = 0; i <= last; i++) {
        put_row(bars, &bars->rows[i]);
    }
    bars->rows_used -= last + 1;
    memmove(bars->rows, bars->rows + last + 1, bars->rows_used * sizeof(*bars->rows));
    bars->cursor = 0;
    bars->is_active = bars->rows_used > 0;
}

/* Move the cursor up. Rows above the first one were written before. */
static void go_up(struct pl_bars *bars, size_t rows)
{
    complete(bars, current(bars));
    forget_text(current(bars), false);
    if (rows > bars->cursor) {
        const size_t more = pl_number_min(rows - bars->cursor, PL_BARS_ROWS - bars->rows_used);

        memmove(bars->rows + more, bars->rows, bars->rows_used * sizeof(*bars->rows));
        memset(bars->rows, 0, more * sizeof(*bars->rows));
        bars->rows_used += more;
        bars->cursor = 0;
    } else {
        bars->cursor -= rows;
    }
}

static void go_down(struct pl_bars *bars, size_t rows)
{
    complete(bars, current(bars));
    forget_text(current(bars), false);
    bars->cursor = pl_number_min(bars->cursor + rows, bars->rows_used - 1);
}

static void begin(struct pl_bars *bars, const char *text, size_t bytes, int64_t now_ns)
{
    memset(bars->rows, 0, sizeof(*bars->rows));
    memcpy(bars->rows[0].text, text, bytes);
    bars->rows[0].text_bytes = bytes;
    bars->rows_used = 1;
    bars->cursor = bars->back = bars->escape_bytes = 0;
    bars->is_bar = bars->has_return = false;
    bars->is_active = true;
    bars->due_ns = now_ns + bars->interval_ns;
}

static void erase(struct pl_bars *bars, bool whole)
{
    struct pl_bars_row *row = current(bars);

    if (whole || row->text_bytes == 0) {
        complete(bars, row);
        forget_text(row, true);
        /* a program that draws several lines erases each of them first */
        row->is_erased = bars->cursor + 1 == bars->rows_used;
    }
}

static void line_feed(struct pl_bars *bars)
{
    struct pl_bars_row *row = current(bars);

    if (bars->has_return && row->ends_in_return && !row->is_erased) {
        carriage_return(bars); /* the last state, and then a line feed */
    }
    bars->back = 0;
    bars->has_return = false;
    if (!bars->is_bar) { /* the line's only carriage return was the one before this byte */
        put(bars, row->text, row->text_bytes);
        put(bars, "\n", 1);
        bars->is_active = false;
    } else if (bars->cursor + 1 < bars->rows_used && !is_line(row)) {
        go_down(bars, 1); /* to the next bar */
    } else {
        for (size_t i = 0; i < bars->rows_used && is_line(row); i++) {
            if (i != bars->cursor) {
                put_state(bars, &bars->rows[i]);
            }
        }
        put_rows(bars, bars->cursor);
    }
}

/* Obey a complete control sequence: ESC [ NUMBER LETTER. */
static void control(struct pl_bars *bars)
{
    const char letter = bars->escape[bars->escape_bytes - 1];
    const unsigned long number = strtoul(bars->escape + 2, NULL, 10); /* the letter ends it */
    const size_t rows = number > 0 ? pl_number_min(number, PL_BARS_ROWS) : 1;
    const size_t bytes = bars->escape_bytes;

    bars->escape_bytes = 0;
    if (letter == 'A' || letter == 'F') {
        go_up(bars, rows);
    } else if (letter == 'B' || letter == 'E') {
        go_down(bars, rows);
    } else if (letter == 'G' && number <= 1) {
        carriage_return(bars);
    } else if (letter == 'K') {
        erase(bars, number > 0);
    } else if (!strchr("CDGHJSTdfhlsu", letter)) {
        add_text(bars, bars->escape, bytes);
    }
}

static void read_escape(struct pl_bars *bars, char byte)
{
    const size_t bytes = ++bars->escape_bytes;

    bars->escape[bytes - 1] = byte;
    if (bytes == 2 && byte == '[') {
        return;
    }
    if (bytes > 2 && byte >= 0x40 && byte <= 0x7E) {
        control(bars);
    } else if (bytes == 2 || bytes == sizeof(bars->escape) || byte < ' ') {
        put_escape(bars);
    }
}

static bool is_plain(char byte)
{
    return byte != '\r' && byte != '\n' && byte != '\b' && byte != ESCAPE;
}

/* Reads at least one byte of a line with a carriage return. Returns how many. */
static size_t read_bar(struct pl_bars *bars, const char *bytes, size_t count)
{
    const size_t room = sizeof(current(bars)->text) - current(bars)->text_bytes;
    size_t plain = 0;

    if (bars->escape_bytes > 0 && is_plain(*bytes)) {
        read_escape(bars, *bytes);
        return 1;
    }
    if (bars->escape_bytes > 0) {
        put_escape(bars);
        return 0;
    }
    if (*bytes == '\r') {
        bars->has_return = true;
        return 1;
    }
    if (*bytes == '\n') {
        line_feed(bars);
        return 1;
    }
    if (bars->has_return) {
        carriage_return(bars);
    }
    if (*bytes == '\b') {
        bars->back++;
        return 1;
    }
    if (*bytes == ESCAPE) {
        bars->escape[bars->escape_bytes++] = ESCAPE;
        return 1;
    }
    while (plain < count && plain <= room && is_plain(bytes[plain])) {
        plain++;
    }
    add_text(bars, bytes, plain);
    return plain;
}

/* Passes whole lines without a carriage return, and begins the first line that has one. If a line is too long for a
 * state, or has been written in part, its text passes too. Returns how many bytes were read. */
static size_t read_lines(struct pl_bars *bars, const char *bytes, size_t count, int64_t now_ns)
{
    const char *end = memchr(bytes, '\r', count);
    const char *line = end ? memrchr(bytes, '\n', (size_t)(end - bytes)) : NULL;
    const size_t before = !end ? count : line ? (size_t)(line - bytes) + 1 : 0;
    const size_t text = end ? (size_t)(end - bytes) - before : 0;
    const bool passes = text > PL_BARS_TEXT_BYTES || (bars->is_open && !line);

    put(bars, bytes, passes ? before + text : before);
    if (end) {
        begin(bars, bytes + before, passes ? 0 : text, now_ns);
    }
    return before + text;
}

size_t pl_bars_pass(struct pl_bars *bars, char *bytes, size_t kept, size_t count, int64_t now_ns)
{
    const bool was_open = bars->is_open;
    const char *next, *end, *line;
    size_t from = kept;

    if (!bars->is_active && !memchr(bytes + kept, '\r', count)) {
        return kept + count;
    }
    if (!bars->is_active) { /* the line that has begun is read again */
        line = memrchr(bytes, '\n', kept);
        from = line ? (size_t)(line - bytes) + 1 : 0;
        bars->is_open = bars->is_open && !line;
    }
    count += kept - from;
    memmove(bytes + from + PL_BARS_HELD_BYTES, bytes + from, count);
    next = bytes + from + PL_BARS_HELD_BYTES;
    end = next + count;
    bars->out = bytes + from;
    bars->text_ns = now_ns;
    while (next < end) {
        next += bars->is_active ? read_bar(bars, next, (size_t)(end - next))
                                : read_lines(bars, next, (size_t)(end - next), now_ns);
    }
    count = (size_t)(bars->out - bytes);
    if (!bars->is_active) {
        bars->is_open = was_open && !memrchr(bytes, '\n', count);
    }
    return count + pl_bars_write_due(bars, bytes + count, now_ns);
}

int64_t pl_bars_deadline(const struct pl_bars *bars)
{
    const int64_t text_ns = bars->text_ns + UNFINISHED_NS;

    if (!bars->is_active) {
        return PL_DEADLINE_NEVER;
    }
    for (size_t i = 0; i < bars->rows_used; i++) {
        if (bars->rows[i].state_bytes > 0) {
            return bars->due_ns;
        }
    }
    return !has_text(&bars->rows[bars->cursor]) ? PL_DEADLINE_NEVER : bars->due_ns > text_ns ? bars->due_ns : text_ns;
}

size_t pl_bars_write_due(struct pl_bars *bars, char *bytes, int64_t now_ns)
{
    if (now_ns < pl_bars_deadline(bars)) {
        return 0;
    }
    bars->out = bytes;
    if (bars->has_return || now_ns - bars->text_ns >= UNFINISHED_NS) {
        carriage_return(bars);
    }
    for (size_t i = 0; i < bars->rows_used; i++) {
        put_state(bars, &bars->rows[i]);
    }
    bars->due_ns = now_ns + bars->interval_ns;
    return (size_t)(bars->out - bytes);
}

size_t pl_bars_end(struct pl_bars *bars, char *bytes)
{
    bars->out = bytes;
    if (bars->is_active) {
        put_escape(bars);
    }
    if (bars->is_active && bars->has_return) {
        carriage_return(bars);
    }
    if (bars->is_active) {
        put_rows(bars, bars->rows_used - 1);
    }
    return (size_t)(bars->out - bytes);
}
