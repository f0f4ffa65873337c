/* SPDX-License-Identifier: Apache-2.0 */
/* Text lines and CSV records. Source: RFC 4180 for the line ends inside quotes; for quotes inside unquoted fields, how
 * Python's csv reads them. */
#include "s3io/record/record_formats.h"

#include <string.h>

/* The rest of the input as the last record, or PL_END when there is nothing. */
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

/* A record of `bytes` without its "\n"; false when it is empty and empty ones are left out. */
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

/* The state of a scan through the quotes of a CSV record. */
struct quotes {
    bool open;
    /* the position after the closing quote: another one there is a doubled quote and opens the field again */
    size_t closed;
};

/* Does a field begin at `at`, as the first of the record at `data` or after a delimiter? Some writers begin a file with
 * a byte order mark. */
static bool begins_field(const unsigned char *data, size_t at, unsigned char delimiter)
{
    return at == 0 || data[at - 1] == delimiter || (at == 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0);
}

/*
 * The first line end in data[seen, end) that is not inside quotes, or `end`. A quote opens only where a field begins:
 * inside an unquoted one (5" disk) it is a character as any other.
 */
static size_t find_line_end(const unsigned char *data, size_t seen, size_t end, unsigned char delimiter,
                            struct quotes *quotes)
{
    while (seen < end) {
        const unsigned char *line_end = memchr(data + seen, '\n', end - seen);
        const unsigned char *stop = line_end ? line_end : data + end;

        for (const unsigned char *at = data + seen; (at = memchr(at, '"', (size_t)(stop - at))) != NULL; at++) {
            size_t here = (size_t)(at - data);

            if (quotes->open) {
                quotes->open = false;
                quotes->closed = here + 1;
            } else {
                quotes->open = here == quotes->closed || begins_field(data, here, delimiter);
            }
        }
        if (line_end && !quotes->open) {
            return (size_t)(line_end - data);
        }
        seen = (size_t)(stop - data) + (line_end != NULL);
    }
    return seen;
}

enum pl_status pl_record_find_csv(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                  struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;
    unsigned char delimiter = reader->options.delimiter ? (unsigned char)reader->options.delimiter : ',';
    struct quotes quotes = {.open = false};
    size_t seen = 0;

    (void)check;
    for (;;) {
        PL_TRY(pl_window_need(window, seen + 1, deadline_ns, reterr));
        if (window->available <= seen) {
            if (quotes.open && !reader->options.skip_corrupt) {
                return pl_record_corrupt(reader, reterr, "the input ends inside quotes");
            }
            if (quotes.open) {
                pl_record_skip_bytes(reader, window->available);
                return PL_END;
            }
            return last_line(reader, ret_record, ret_framed_bytes);
        }
        seen = find_line_end(window->data, seen, window->available, delimiter, &quotes);
        PL_TRY(pl_record_check_length(reader, seen, reterr));
        if (seen == window->available) {
            continue;
        }
        if (finish_line(reader, seen, ret_record, ret_framed_bytes)) {
            return PL_OK;
        }
        pl_window_consume(window, (size_t)*ret_framed_bytes);
        quotes.closed = 0;
        seen = 0;
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
