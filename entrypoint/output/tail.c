/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the last bytes of a stream, cleans its last lines for display, and tells error messages from other lines. */
#include "entrypoint/output/tail.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pl_tail_add(struct pl_tail *tail, const char *bytes, size_t count)
{
    if (tail->cause.lines != PL_CAUSE_NONE) {
        pl_cause_add(&tail->cause, bytes, count);
    }
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
    free_from--; /* room for the NUL */
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

enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

/* Whether the text begins like a program's name or path, and not like a tag, a date or a number. */
static bool begins_as_name(const char *text)
{
    return isalpha((unsigned char)*text) || *text == '.' || *text == '/' || *text == '_';
}

static bool is_shell(const char *name, size_t bytes)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "ksh"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(shells); i++) {
        if (bytes == strlen(shells[i]) && memcmp(name, shells[i], bytes) == 0) {
            return true;
        }
    }
    return memchr(name, '/', bytes) || pl_text_ends_with_n(name, bytes, ".sh");
}

/* Returns what follows "SCRIPT: line 3: " or "SCRIPT: 3: ", or NULL. */
static const char *after_script(const char *line)
{
    const size_t name_bytes = strcspn(line, ": ");
    const char *at = line + name_bytes;
    size_t digits;

    if (!begins_as_name(line) || !pl_text_begins_with(at, ": ") || !is_shell(line, name_bytes)) {
        return NULL;
    }
    at += strlen(": ");
    at += pl_text_begins_with(at, "line ") ? strlen("line ") : 0;
    digits = strspn(at, "0123456789");
    return digits > 0 && pl_text_begins_with(at + digits, ": ") ? at + digits + strlen(": ") : NULL;
}

/* Whether the name before "error: " is a program's: one word; of argparse also "python3 -m package" and "train.py fit",
 * whose own texts follow it. */
static bool is_program(const char *name, size_t bytes, const char *text)
{
    static const char *const texts[] = {
        "argument ", "the following arguments are required: ", "unrecognized arguments: ", "one of the arguments "};
    const size_t word_bytes = strcspn(name, " ");

    if (word_bytes >= bytes || pl_text_begins_with(name, "python") || pl_text_ends_with_n(name, word_bytes, ".py")) {
        return true;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(texts); i++) {
        if (pl_text_begins_with(text, texts[i])) {
            return true;
        }
    }
    return false;
}

/* Whether the line is "NAME: error: TEXT". If a number follows instead of TEXT, it is a metric. */
static bool is_named_error(const char *line)
{
    static const char mark[] = ": error: ";
    const char *at = strstr(line, mark), *text = at ? at + strlen(mark) : NULL;
    char *end;

    if (!at || !begins_as_name(line) || *text == '\0' || *text == ' ' || !is_program(line, (size_t)(at - line), text)) {
        return false;
    }
    strtod(text, &end);
    return end == text || isalpha((unsigned char)*end);
}

/* Whether the line is "NAME: error while loading shared libraries: ..." or "NAME: symbol lookup error: ...". */
static bool is_loaders(const char *line)
{
    const size_t name_bytes = strcspn(line, " ");

    return begins_as_name(line) && pl_text_ends_with_n(line, name_bytes, ":") &&
           (pl_text_begins_with(line + name_bytes, " error while loading shared libraries: ") ||
            pl_text_begins_with(line + name_bytes, " symbol lookup error: "));
}

/* Returns the length of the text before the words that explain the code; 0 if the line has none. */
static size_t command_bytes(const char *line, int code)
{
    static const char *const not_found[] = {": command not found", ": not found", ": No such file or directory",
                                            ": cannot execute: required file not found"},
                             *const not_executable[] = {": Permission denied", ": Is a directory",
                                                        ": cannot execute binary file: Exec format error",
                                                        ": cannot execute: required file not found",
                                                        ": Exec format error"};
    const char *const *tails = code == NOT_FOUND ? not_found : not_executable;
    const size_t count = code == NOT_FOUND ? PL_ARRAY_ITEMS(not_found) : PL_ARRAY_ITEMS(not_executable),
                 bytes = strlen(line);

    for (size_t i = 0; i < count; i++) {
        if (pl_text_ends_with_n(line, bytes, tails[i])) {
            return bytes - strlen(tails[i]);
        }
    }
    return 0;
}

/* Cut a pair of quotes, ASCII or not, off the text of `*bytes_at` bytes. */
static const char *unquoted(const char *text, size_t *bytes_at)
{
    static const char *const pairs[][2] = {{"'", "'"}, {"\u2018", "\u2019"}};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(pairs); i++) {
        const size_t left = strlen(pairs[i][0]), right = strlen(pairs[i][1]);

        if (*bytes_at > left + right && pl_text_begins_with(text, pairs[i][0]) &&
            pl_text_ends_with_n(text, *bytes_at, pairs[i][1])) {
            *bytes_at -= left + right;
            return text + left;
        }
    }
    return text;
}

/* Find the command in "foo: command not found" of a shell after its script, or in "env: 'foo': No such file or
 * directory" of a program that starts another. */
static void find_command(const char *line, const char *after, int code, struct pl_last_word *word)
{
    static const char *const starters[] = {"env: ", "/usr/bin/env: ", "timeout: failed to run command ",
                                           "nohup: failed to run command ", "nice: "};
    const char *at = after;
    size_t bytes;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(starters) && !at; i++) {
        at = pl_text_begins_with(line, starters[i]) ? line + strlen(starters[i]) : NULL;
    }
    if (!at) {
        return;
    }
    at += pl_text_begins_with(at, "exec: ") ? strlen("exec: ") : 0;
    bytes = command_bytes(at, code);
    at = unquoted(at, &bytes);
    if (bytes > 0 && bytes < sizeof(word->command) && !memchr(at, ':', bytes)) {
        snprintf(word->command, sizeof(word->command), "%.*s", (int)bytes, at);
    }
}

struct pl_last_word pl_last_word_read(const char *line, int code)
{
    const char *after = after_script(line);
    struct pl_last_word word = {.is_loader = is_loaders(line)};

    if (code == NOT_EXECUTABLE || code == NOT_FOUND) {
        find_command(line, after, code, &word);
    }
    word.is_error = after || word.is_loader || word.command[0] != '\0' || is_named_error(line);
    return word;
}
