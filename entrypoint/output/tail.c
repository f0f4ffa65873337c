/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last bytes of a stream, and cleans its last lines for display. */
#include "entrypoint/output/tail.h"

#include "base/number.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

void pl_tail_add(struct pl_tail *tail, const char *bytes, size_t count)
{
    pl_cause_add(&tail->cause, bytes, count);
    if (count > PL_TAIL_BYTES) {
        bytes += count - PL_TAIL_BYTES;
        count = PL_TAIL_BYTES;
    }
    while (count > 0) {
        size_t room = PL_TAIL_BYTES - tail->write_offset;
        size_t part = pl_number_min(count, room);

        memcpy(tail->bytes + tail->write_offset, bytes, part);
        tail->write_offset = (tail->write_offset + part) % PL_TAIL_BYTES;
        tail->used = tail->used + part < PL_TAIL_BYTES ? tail->used + part : PL_TAIL_BYTES;
        bytes += part;
        count -= part;
    }
}

/* Returns the bytes of the control character at `text`, or of the terminal control sequence that begins there; 0 if
 * there is neither. */
static size_t control_length(const char *text, size_t room)
{
    const size_t bytes = pl_text_control_bytes(text, text + room);

    if (*text == '\t' || bytes == 0) {
        return 0;
    }
    if (*text == 0x1B && room >= 2 && text[1] != '[') {
        return 2;
    }
    if (*text != 0x1B && (bytes < 2 || (unsigned char)text[1] != 0x9B)) {
        return bytes;
    }
    for (size_t length = 2; length < room; length++) { /* after ESC [, or after U+009B, which means the same */
        if (text[length] >= 0x40 && text[length] <= 0x7E) {
            return length + 1;
        }
    }
    return room;
}

/* Shorten the list of versions in pip's message about a requirement that it cannot meet: the newest versions, at the
 * list's end, tell most. Returns the new length. */
static size_t keep_newest(char *line, size_t length)
{
    static const char mark[] = "(from versions: ", cut[] = "..., ";
    char *list = memmem(line, length, mark, strlen(mark)), *kept;
    size_t before;

    if (!list) {
        return length;
    }
    list += strlen(mark);
    before = (size_t)(list - line) + strlen(cut);
    if (before >= PL_TAIL_LINE_BYTES) {
        return length;
    }
    kept = memmem(line + length - (PL_TAIL_LINE_BYTES - before), PL_TAIL_LINE_BYTES - before, ", ", 2);
    if (!kept) {
        return length;
    }
    kept += 2;
    length -= (size_t)(kept - line);
    memcpy(list, cut, strlen(cut));
    memmove(line + before, kept, length);
    return before + length;
}

/* Make `line` of `length` bytes safe to show, in place. Returns the new length. */
static size_t clean_line(char *line, size_t length)
{
    size_t from = 0, to = 0;

    while (length > 0 && line[length - 1] == '\r') {
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\r') {
            from = i + 1;
        }
    }
    while (from < length) {
        const size_t control = control_length(line + from, length - from);

        if (control > 0) {
            from += control;
        } else {
            line[to++] = line[from++];
        }
    }
    pl_text_mask(line, to); /* also mask control characters that the removal of others has formed */
    while (to > 0 && (line[to - 1] == ' ' || line[to - 1] == '\t')) {
        to--;
    }
    if (to > PL_TAIL_LINE_BYTES) {
        to = keep_newest(line, to);
    }
    if (to > PL_TAIL_LINE_BYTES) {
        to = PL_TAIL_LINE_BYTES - 3;
        while (to > 0 && ((unsigned char)line[to] & 0xC0) == 0x80) {
            to--; /* do not cut a character in two */
        }
        memcpy(line + to, "...", 3);
        to += 3;
    }
    return to;
}

void pl_tail_cause(struct pl_tail *tail, char text[static PL_TAIL_LINE_BYTES + 1])
{
    char line[PL_CAUSE_LINE_BYTES + 1];
    size_t length;

    strcpy(line, pl_cause_text(&tail->cause));
    length = clean_line(line, strlen(line));
    memcpy(text, line, length);
    text[length] = '\0';
}

void pl_tail_place(struct pl_tail *tail, bool with_rank, char text[static PL_TAIL_PLACE_BYTES])
{
    const bool has_cause = pl_cause_text(&tail->cause)[0] != '\0';
    const int rank = with_rank && has_cause ? pl_cause_rank(&tail->cause) : -1;
    size_t length;

    strcpy(text, has_cause ? pl_cause_place(&tail->cause) : "");
    length = clean_line(text, strlen(text));
    text[length] = '\0';
    if (rank >= 0) {
        snprintf(text + length, PL_TAIL_PLACE_BYTES - length, "%srank %d", length > 0 ? ", " : "", rank);
    }
}

size_t pl_tail_lines(const struct pl_tail *tail, char *text, size_t text_bytes)
{
    char flat[PL_TAIL_BYTES + 1];
    size_t start = (tail->write_offset + PL_TAIL_BYTES - tail->used) % PL_TAIL_BYTES;
    size_t first_part = pl_number_min(PL_TAIL_BYTES - start, tail->used);
    size_t end = tail->used, free_from = text_bytes;

    if (text_bytes == 0) {
        return 0;
    }
    memcpy(flat, tail->bytes + start, first_part);
    memcpy(flat + first_part, tail->bytes, tail->used - first_part);
    free_from--; /* the NUL */
    text[free_from] = '\0';
    while (end > 0) {
        size_t begin = end, length;

        if (flat[end - 1] == '\n') {
            begin = end = end - 1;
        }
        while (begin > 0 && flat[begin - 1] != '\n') {
            begin--;
        }
        length = clean_line(flat + begin, end - begin);
        if (length > 0) {
            if (length + 1 > free_from) {
                break;
            }
            free_from -= length + 1;
            memcpy(text + free_from, flat + begin, length);
            text[free_from + length] = '\n';
        }
        end = begin;
    }
    memmove(text, text + free_from, text_bytes - free_from);
    return text_bytes - 1 - free_from;
}
