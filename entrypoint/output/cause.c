/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line and the place of the last exception in the output of a Python program. */
#include "entrypoint/output/cause.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"
#define SMALL_LETTERS "abcdefghijklmnopqrstuvwxyz"
#define NAME_LETTERS SMALL_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_."

/* Returns the length of one tag: torch's "[rank1]: ", torchrun's "[default1]:", mpirun's "[1,1]<stderr>:", Paceline's
 * "[rank 1] "; 0 if the line has none. */
static size_t one_tag(const char *line)
{
    const char *at = line + 1, *end;
    size_t letters, more;
    bool spaced;

    if (*line != '[') {
        return 0;
    }
    letters = strspn(at, NAME_LETTERS);
    spaced = letters > 0 && at[letters] == ' ';
    at += letters + (spaced ? 1 : 0);
    more = strspn(at, letters > 0 ? DIGITS : DIGITS ",");
    end = at + more;
    if (more == 0 || *end != ']') {
        return 0;
    }
    end++;
    if (pl_text_begins_with(end, "<stderr>") || pl_text_begins_with(end, "<stdout>")) {
        end += strlen("<stderr>");
    }
    if (*end == ':') {
        return (size_t)(end - line) + (end[1] == ' ' ? 2 : 1);
    }
    return spaced && *end == ' ' ? (size_t)(end - line) + 1 : 0;
}

/* Returns the length of all tags: torchrun's may be before torch's. */
static size_t tag_bytes(const char *line)
{
    size_t bytes = 0, next = one_tag(line);

    while (next > 0 && bytes + next < PL_CAUSE_TAG_BYTES) {
        bytes += next;
        next = one_tag(line + bytes);
    }
    return bytes;
}

/* Returns the writer with this tag. If all entries are used, the oldest is given to a new tag and loses its state. */
static struct pl_cause_writer *writer_of(struct pl_cause *cause, const char *tag, size_t bytes)
{
    const size_t places = PL_CAUSE_WRITERS - 1; /* the first one is for lines without a tag */
    size_t known = cause->writers_used < places ? cause->writers_used : places;
    struct pl_cause_writer *writer;

    while (bytes > 0 && tag[bytes - 1] == ' ') {
        bytes--; /* torch puts no blank before its own log's lines */
    }
    if (bytes == 0) {
        return &cause->writers[0];
    }
    for (size_t i = 1; i <= known; i++) {
        if (strncmp(cause->writers[i].tag, tag, bytes) == 0 && cause->writers[i].tag[bytes] == '\0') {
            return &cause->writers[i];
        }
    }
    writer = &cause->writers[1 + cause->writers_used++ % places];
    *writer = (struct pl_cause_writer){.open = 0};
    memcpy(writer->tag, tag, bytes);
    return writer;
}

/* Whether the name ends as names of Python's own exceptions do, such as "Error", and has more before it. */
static bool is_usual_name(const char *name, size_t length)
{
    static const char *const tails[] = {"Error", "Exception", "Interrupt"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(tails); i++) {
        size_t bytes = strlen(tails[i]);

        if (length > bytes && name[length - bytes - 1] != '.' && pl_text_ends_with_n(name, length, tails[i])) {
            return true;
        }
    }
    return false;
}

/* In a traceback: whether the name can be a class, "Name" or "package.name", and not "WARNING" or "epoch": other
 * threads may print lines in between. The name of a class within a function is "f.<locals>.Name". */
static bool is_class_name(const char *name, size_t length)
{
    return strcspn(name, SMALL_LETTERS) < length &&
           (memchr(name, '.', length) || (*name >= 'A' && *name <= 'Z') || *name == '_');
}

/* Returns the length of the name in "Name: text", or of a name alone; 0 if the line has no such name. */
static size_t exception_name(const char *line, bool in_traceback)
{
    size_t length = strspn(line, NAME_LETTERS DIGITS "<>");

    return length > 0 && strspn(line, NAME_LETTERS) > 0 &&
                   (line[length] == '\0' ||
                    (line[length] == ':' && (line[length + 1] == ' ' || line[length + 1] == '\0'))) &&
                   (in_traceback ? is_class_name(line, length) : is_usual_name(line, length))
               ? length
               : 0;
}

/* Find pip's message about its last attempt to connect. The message after it says only that pip has found no
 * version. */
static const char *find_connection(const char *line)
{
    static const char last[] = "Retrying (Retry(total=0,", broken[] = "connection broken by ";

    return strstr(line, last) ? strstr(line, broken) : NULL;
}

/* Returns the path after its last `part`; NULL if it has none. */
static const char *after_last(const char *path, const char *part)
{
    const char *found = NULL;

    for (const char *at = strstr(path, part); at; at = strstr(at + 1, part)) {
        found = at + strlen(part);
    }
    return found;
}

/* Returns to whom the file `path` belongs. `*ret_shown` is the end of the path that a message shows. */
static enum pl_cause_nearness nearness_of(const struct pl_cause *cause, const char *path, const char **ret_shown)
{
    static const char *const packages[] = {"/site-packages/", "/dist-packages/"};

    *ret_shown = path;
    for (size_t i = 0; i < PL_ARRAY_ITEMS(packages); i++) {
        const char *below = after_last(path, packages[i]);

        if (below) {
            *ret_shown = below;
            return PL_CAUSE_LIBRARY;
        }
    }
    if (*path == '<' || strstr(path, "/lib/python")) { /* such as <string>, <frozen runpy> */
        return PL_CAUSE_LIBRARY;
    }
    if (*path != '/') {
        return PL_CAUSE_OWN; /* older versions of Python name the program as it was started */
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cause->folders); i++) {
        const char *folder = cause->folders[i];
        size_t bytes = folder ? strlen(folder) : 0;

        while (bytes > 0 && folder[bytes - 1] == '/') {
            bytes--;
        }
        if (folder && strncmp(path, folder, bytes) == 0 && path[bytes] == '/') {
            *ret_shown = path + bytes + 1;
            return PL_CAUSE_OWN;
        }
    }
    return PL_CAUSE_ELSEWHERE;
}

static void set_place(char place[static PL_CAUSE_PLACE_BYTES], const char *path, int line)
{
    enum { NUMBER_BYTES = 12 };
    const size_t bytes = strlen(path), most = PL_CAUSE_PLACE_BYTES - NUMBER_BYTES - 1;

    if (bytes > most) {
        snprintf(place, PL_CAUSE_PLACE_BYTES, "...%s:%d", path + bytes - (most - 3), line);
    } else {
        snprintf(place, PL_CAUSE_PLACE_BYTES, "%s:%d", path, line);
    }
}

static void forget_frames(struct pl_cause_writer *writer)
{
    writer->place[0] = '\0';
    writer->nearness = PL_CAUSE_LIBRARY;
}

/* Reads `File "PATH", line N, in NAME`. A SyntaxError of the program itself may begin with such a line without NAME. */
static void read_frame(const struct pl_cause *cause, const char *text, struct pl_cause_writer *writer)
{
    static const char begin[] = "File \"", middle[] = "\", line ";
    const bool in_traceback = writer->open > 0 || writer->group != PL_CAUSE_NO_GROUP;
    const char *shown, *at = pl_text_begins_with(text, begin) ? strstr(text, middle) : NULL;
    char path[PL_CAUSE_LINE_BYTES + 1], *end;
    enum pl_cause_nearness nearness;
    long line;

    if (!at) {
        return;
    }
    line = strtol(at + strlen(middle), &end, 10);
    if (line < 1 || line > INT32_MAX || (*end != '\0' && !(in_traceback && pl_text_begins_with(end, ", in ")))) {
        return;
    }
    if (!in_traceback) {
        forget_frames(writer);
        writer->is_syntax = true;
    }
    snprintf(path, sizeof(path), "%.*s", (int)(at - text - (ptrdiff_t)strlen(begin)), text + strlen(begin));
    nearness = nearness_of(cause, path, &shown);
    if (nearness >= writer->nearness) {
        writer->nearness = nearness;
        set_place(writer->place, shown, (int)line);
    }
}

static void keep(struct pl_cause *cause, const char *line, const char *place, const char *tag)
{
    memmove(cause->found, line, strlen(line) + 1);
    snprintf(cause->found_place, sizeof(cause->found_place), "%s", place);
    snprintf(cause->found_tag, sizeof(cause->found_tag), "%s", tag);
    cause->later_bytes = 0;
}

/* Returns the text of a line that gives the reason for the line before, as uv prints it; else NULL. */
static const char *find_reason(const char *line)
{
    static const char *const beginnings[] = {"  cause: ", "  Caused by: ", "  \u2570\u2500\u25B6 "};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(beginnings); i++) {
        if (pl_text_begins_with(line, beginnings[i])) {
            return line + strlen(beginnings[i]);
        }
    }
    return NULL;
}

/* Join uv's error and the reasons in the lines after it to one line. An error without reasons is not uv's. */
static void join_reasons(struct pl_cause *cause, const char *line)
{
    static const char error[] = "error: ", cross[] = "  \u00D7 ";
    const char *reason = cause->error[0] != '\0' ? find_reason(line) : NULL;
    size_t bytes = strlen(cause->error);

    if (reason) {
        snprintf(cause->error + bytes, sizeof(cause->error) - bytes, "%s %s", cause->error[bytes - 1] == ':' ? "" : ":",
                 reason);
        keep(cause, cause->error, "", "");
    } else {
        snprintf(cause->error, sizeof(cause->error), "%s",
                 pl_text_begins_with(line, error)   ? line + strlen(error)
                 : pl_text_begins_with(line, cross) ? line + strlen(cross)
                                                    : "");
    }
}

/* Whether it is torch's own tag: "[rank1]:", not "[rank 1]". */
static bool is_torchs(const char *tag)
{
    const char *number = after_last(tag, "[rank");

    return number && *number >= '0' && *number <= '9';
}

/* Whether the exception is a consequence of the found one: a rank of torch.distributed fails because another rank has
 * failed, or torchrun says that a rank has failed. */
static bool is_consequence(const struct pl_cause *cause, const struct pl_cause_writer *writer, const char *line,
                           size_t name_bytes)
{
    if (cause->found[0] == '\0') {
        return false;
    }
    return (is_torchs(cause->found_tag) && cause->later_bytes <= PL_CAUSE_FIRST_BYTES &&
            strcmp(cause->found_tag, writer->tag) != 0) ||
           (cause->later_bytes <= PL_CAUSE_OLD_BYTES && pl_text_ends_with_n(line, name_bytes, "ChildFailedError"));
}

static void keep_exception(struct pl_cause *cause, const struct pl_cause_writer *writer, const char *line,
                           size_t name_bytes, bool has_place)
{
    if (!is_consequence(cause, writer, line, name_bytes)) {
        keep(cause, line, has_place ? writer->place : "", writer->tag);
    }
}

static void begin_traceback(struct pl_cause_writer *writer)
{
    if (writer->in_frames && writer->open > 0) {
        writer->open++;
        writer->is_mixed = true;
    } else {
        writer->open = 1;
        writer->is_mixed = false;
    }
    writer->in_frames = true;
    writer->is_syntax = false;
    forget_frames(writer);
}

/* Read a line of an exception group, after its margin of "|" or "+". */
static void read_group(struct pl_cause *cause, struct pl_cause_writer *writer, const char *text)
{
    const size_t length = strlen(text);
    size_t name_bytes;

    writer->in_frames = false;
    if (*text == '-' || *text == '+') { /* this line separates two exceptions of the group */
        writer->group = writer->group == PL_CAUSE_GROUP_FOUND ? PL_CAUSE_GROUP_OVER : writer->group;
        return;
    }
    if (pl_text_begins_with(text, "During handling of ") ||
        pl_text_begins_with(text, "The above exception was the direct cause")) {
        writer->group = writer->group == PL_CAUSE_GROUP_FOUND ? PL_CAUSE_GROUP_WAITS : writer->group;
        return;
    }
    read_frame(cause, text + strspn(text, " "), writer);
    name_bytes = writer->group == PL_CAUSE_GROUP_WAITS ? exception_name(text, true) : 0;
    if (name_bytes > 0) {
        keep_exception(cause, writer, text, name_bytes, true);
        writer->open = 0;
        if (!pl_text_ends_with_n(text, length, " sub-exceptions)") &&
            !pl_text_ends_with_n(text, length, " sub-exception)")) {
            writer->group = PL_CAUSE_GROUP_FOUND;
        }
    }
}

/* Read a line that is not indented. */
static void read_first(struct pl_cause *cause, struct pl_cause_writer *writer, const char *line)
{
    const char *connection = find_connection(line);
    size_t name_bytes = exception_name(line, writer->open > 0);
    const bool is_syntax =
        writer->is_syntax && (pl_text_begins_with(line, "SyntaxError") ||
                              pl_text_begins_with(line, "IndentationError") || pl_text_begins_with(line, "TabError"));

    writer->in_frames = writer->is_syntax = false;
    writer->group = PL_CAUSE_NO_GROUP;
    if (connection) {
        keep(cause, connection, "", writer->tag);
        return;
    }
    if (name_bytes == 0) {
        return;
    }
    if (!writer->is_ignored) {
        keep_exception(cause, writer, line, name_bytes, is_syntax || (writer->open > 0 && !writer->is_mixed));
    }
    writer->is_ignored = false;
    writer->open -= writer->open > 0 ? 1 : 0;
    writer->is_mixed = writer->is_mixed && writer->open > 0;
}

/* Removes the colours that Python gives its tracebacks if FORCE_COLOR or the like is set. */
static void remove_colours(char *line)
{
    char *to = line;

    for (const char *from = line; *from != '\0';) {
        const size_t bytes = pl_text_begins_with(from, "\033[") ? 2 + strspn(from + 2, DIGITS ";") : 0;

        if (bytes > 0 && from[bytes] == 'm') {
            from += bytes + 1;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static void end_line(struct pl_cause *cause)
{
    static const char traceback[] = "Traceback (most recent call last):", group[] = "+ Exception Group ";
    struct pl_cause_writer *writer;
    const char *line, *text;
    size_t tag;

    cause->line[cause->line_bytes] = '\0';
    cause->line_bytes = 0;
    remove_colours(cause->line);
    tag = tag_bytes(cause->line);
    if (tag > 0 && cause->lines == PL_CAUSE_UNTAGGED) {
        return;
    }
    join_reasons(cause, cause->line);
    line = cause->line + tag;
    text = line + strspn(line, " \t");
    if (*text == '\0') {
        return;
    }
    writer = writer_of(cause, cause->line, tag);
    if (strstr(line, traceback)) {
        if (*text != '|') {
            writer->group = pl_text_begins_with(text, group) ? PL_CAUSE_GROUP_WAITS : PL_CAUSE_NO_GROUP;
        }
        begin_traceback(writer);
    } else if (text > line && writer->group != PL_CAUSE_NO_GROUP && (*text == '|' || *text == '+')) {
        read_group(cause, writer, text + (text[1] == ' ' ? 2 : 1));
    } else if (text > line) {
        writer->in_frames = writer->open > 0;
        read_frame(cause, text, writer);
    } else if (pl_text_begins_with(line, "Exception ignored ")) {
        writer->is_ignored = true;
    } else {
        read_first(cause, writer, line);
    }
}

void pl_cause_add(struct pl_cause *cause, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n' || bytes[i] == '\r') {
            end_line(cause);
        } else if (cause->line_bytes < PL_CAUSE_LINE_BYTES) {
            cause->line[cause->line_bytes++] = bytes[i];
        }
        cause->later_bytes++;
    }
}

const char *pl_cause_text(struct pl_cause *cause)
{
    end_line(cause);
    return cause->later_bytes <= PL_CAUSE_OLD_BYTES ? cause->found : "";
}

const char *pl_cause_place(const struct pl_cause *cause)
{
    return cause->later_bytes <= PL_CAUSE_OLD_BYTES ? cause->found_place : "";
}

int pl_cause_rank(const struct pl_cause *cause)
{
    static const char begin[] = "[rank";
    const char *at = after_last(cause->found_tag, begin);
    char *end = NULL;
    long rank = at ? strtol(at, &end, 10) : -1;

    return at && end != at && *end == ']' && rank >= 0 && rank <= INT32_MAX ? (int)rank : -1;
}
