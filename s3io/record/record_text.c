/* SPDX-License-Identifier: Apache-2.0 */
/* Text lines and CSV records. Source: RFC 4180 for line ends inside quotes; Python's csv module for quotes inside
 * unquoted fields. Text of other dialects is refused as soon as it is recognised. */
#include "s3io/record/record_formats.h"

#include <string.h>

/* Returns the rest of the input as the last record, or PL_END if there is nothing left. */
static enum pl_status last_line(struct pl_record_reader *reader, struct pl_record *ret_record,
                                uint64_t *ret_framed_bytes)
{
    if (reader->window.available == 0) {
        return PL_END;
    }
    ret_record->data = reader->window.data;
    ret_record->bytes = reader->window.available;
    *ret_framed_bytes = reader->window.available;
    return PL_OK;
}

/* Returns a record of `bytes` bytes without its line end. Returns false if it is empty and empty records are left
 * out. */
static bool finish_line(struct pl_record_reader *reader, size_t bytes, struct pl_record *ret_record,
                        uint64_t *ret_framed_bytes)
{
    const unsigned char *data = reader->window.data;

    *ret_framed_bytes = bytes + 1;
    if (bytes > 0 && data[bytes - 1] == '\r') {
        bytes--;
    }
    ret_record->data = data;
    ret_record->bytes = bytes;
    return bytes > 0 || reader->options.keep_empty_lines;
}

enum pl_status pl_record_find_lines(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                    struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;
    size_t seen = 0;

    (void)check;
    for (;;) {
        const unsigned char *end;

        PL_TRY(pl_window_need(window, seen + 1, deadline_ns, reterr));
        if (window->available <= seen) {
            return last_line(reader, ret_record, ret_framed_bytes);
        }
        end = memchr(window->data + seen, '\n', window->available - seen);
        if (!end) {
            seen = window->available;
            PL_TRY(pl_record_check_length(reader, seen, reterr));
            continue;
        }
        if (finish_line(reader, (size_t)(end - window->data), ret_record, ret_framed_bytes)) {
            return pl_record_check_length(reader, ret_record->bytes, reterr);
        }
        pl_window_consume(window, (size_t)*ret_framed_bytes);
        seen = 0;
    }
}

/* The state of a scan through a CSV record. */
struct scan {
    unsigned char delimiter;
    bool open; /* inside quotes */
    /* position after the closing quote: a quote there makes a doubled quote, and the field is open again */
    size_t closed;
    const char *wrong; /* the sign that the text is not CSV as in RFC 4180, or NULL */
    size_t wrong_at;
};

/* Whether a field begins at `at`: at the beginning of the record at `data`, or after a delimiter. Some writers begin a
 * file with a byte order mark. */
static bool begins_field(const unsigned char *data, size_t at, unsigned char delimiter)
{
    return at == 0 || data[at - 1] == delimiter || (at == 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0);
}

static bool refuse(struct scan *scan, size_t at, const char *wrong)
{
    scan->wrong = wrong;
    scan->wrong_at = at;
    return false;
}

/*
 * Handles the quote at `at`; the data has `end` bytes. Returns false if a backslash before the quote must be an escape.
 * A backslash before a closing quote may belong to the field ("C:\"), if a delimiter, a line end or another quote
 * follows.
 */
static bool pass_quote(struct scan *scan, const unsigned char *data, size_t at, size_t end)
{
    bool escaped = at > 0 && data[at - 1] == '\\';

    if (scan->open) {
        scan->open = false;
        scan->closed = at + 1;
        if (escaped && at + 1 < end && data[at + 1] != scan->delimiter && !memchr("\"\r\n", data[at + 1], 3)) {
            return refuse(scan, at - 1, "a backslash before a quote: RFC 4180 writes two quotes instead");
        }
        return true;
    }
    scan->open = at == scan->closed || begins_field(data, at, scan->delimiter);
    return scan->open || !escaped ||
           refuse(scan, at - 1, "a backslash before a quote: RFC 4180 writes two quotes instead");
}

/* Scans data[at, stop), which has no line end; the data has `end` bytes. Returns false if it finds another dialect. */
static bool pass_line(struct scan *scan, const unsigned char *data, size_t at, size_t stop, size_t end)
{
    const unsigned char *wrong = memchr(data + at, '\0', stop - at);

    if (wrong) {
        return refuse(scan, (size_t)(wrong - data), "a NUL byte: expected UTF-8, not UTF-16");
    }
    for (;;) {
        const unsigned char *quote = memchr(data + at, '"', stop - at);
        size_t to = quote ? (size_t)(quote - data) : stop;

        wrong = scan->open ? NULL : memchr(data + at, '\r', to - at);
        if (wrong && (wrong + 1 == data + end || wrong[1] != '\n')) {
            return refuse(scan, (size_t)(wrong - data), "a carriage return without a line feed after it");
        }
        if (!quote) {
            return true;
        }
        if (!pass_quote(scan, data, to, end)) {
            return false;
        }
        at = to + 1;
    }
}

/*
 * Returns the position of the first line end in data[seen, limit) that is not inside quotes, or `limit`; the data has
 * `end` bytes. A quote opens only at the beginning of a field. Inside an unquoted field (5" disk) it is an ordinary
 * character.
 */
static size_t find_line_end(struct scan *scan, const unsigned char *data, size_t seen, size_t limit, size_t end)
{
    while (seen < limit) {
        const unsigned char *line_end = memchr(data + seen, '\n', limit - seen);
        size_t stop = line_end ? (size_t)(line_end - data) : limit;

        if (!pass_line(scan, data, seen, stop, end) || (line_end && !scan->open)) {
            return stop;
        }
        seen = stop + (line_end ? 1 : 0);
    }
    return seen;
}

static enum pl_status no_rfc4180(const struct pl_record_reader *reader, size_t at, const char *what,
                                 struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_UNSUPPORTED, "'%s': record %llu is not CSV as in RFC 4180: at byte %llu is %s",
                        reader->source->name, (unsigned long long)reader->next_index,
                        (unsigned long long)(reader->window.offset_bytes + at), what);
}

static enum pl_status check_byte_order(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    if (window->offset_bytes > 0) {
        return PL_OK;
    }
    PL_TRY(pl_window_need(window, 2, deadline_ns, reterr));
    if (window->available >= 2 &&
        (memcmp(window->data, "\xff\xfe", 2) == 0 || memcmp(window->data, "\xfe\xff", 2) == 0)) {
        return no_rfc4180(reader, 0, "UTF-16's byte order mark: expected UTF-8", reterr);
    }
    return PL_OK;
}

/* Returns the rest of the input as the last record. */
static enum pl_status last_csv(struct pl_record_reader *reader, bool open, struct pl_record *ret_record,
                               uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    if (!open) {
        return last_line(reader, ret_record, ret_framed_bytes);
    }
    if (!reader->options.skip_corrupt) {
        return pl_record_corrupt(reader, reterr, "the input ends inside quotes");
    }
    pl_record_skip_bytes(reader, reader->window.available);
    return PL_END;
}

enum pl_status pl_record_find_csv(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                  struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;
    struct scan scan = {.delimiter = reader->options.delimiter ? (unsigned char)reader->options.delimiter : ','};
    size_t seen = 0, held = 0;

    (void)check;
    PL_TRY(check_byte_order(reader, deadline_ns, reterr));
    for (;;) {
        PL_TRY(pl_window_need(window, seen + held + 1, deadline_ns, reterr));
        if (window->available <= seen) {
            return last_csv(reader, scan.open, ret_record, ret_framed_bytes, reterr);
        }
        /* The meaning of these two bytes depends on the next byte, so hold them back until it is there. */
        held = !window->ended && memchr("\"\r", window->data[window->available - 1], 2);
        seen = find_line_end(&scan, window->data, seen, window->available - held, window->available);
        if (scan.wrong) {
            return no_rfc4180(reader, scan.wrong_at, scan.wrong, reterr);
        }
        PL_TRY(pl_record_check_length(reader, seen, reterr));
        if (seen == window->available - held) {
            continue;
        }
        if (finish_line(reader, seen, ret_record, ret_framed_bytes)) {
            return PL_OK;
        }
        pl_window_consume(window, (size_t)*ret_framed_bytes);
        scan.closed = 0;
        seen = held = 0;
    }
}

enum pl_status pl_record_find_whole(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                    struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    (void)check;
    if (reader->whole_done) {
        return PL_END;
    }
    while (!window->ended) {
        PL_TRY(pl_record_check_length(reader, window->available, reterr));
        PL_TRY(pl_window_need(window, window->available + 1, deadline_ns, reterr));
    }
    PL_TRY(pl_record_check_length(reader, window->available, reterr));
    ret_record->data = window->data;
    ret_record->bytes = window->available;
    *ret_framed_bytes = window->available;
    reader->whole_done = true;
    return PL_OK;
}
