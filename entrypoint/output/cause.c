/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the line of the last exception in the output of a Python program. */
#include "entrypoint/output/cause.h"

#include "base/memory.h"

#include <string.h>

#define SMALL_LETTERS "abcdefghijklmnopqrstuvwxyz"
#define NAME_LETTERS SMALL_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_."

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Skip the tag that torch puts before a line: "[rank1]: ". */
static const char *skip_tag(const char *line)
{
    static const char begin[] = "[rank";
    const char *at;

    if (!begins_with(line, begin)) {
        return line;
    }
    at = line + strlen(begin);
    at += strspn(at, "0123456789");
    if (at[0] != ']' || at[1] != ':') {
        return line;
    }
    return at + (at[2] == ' ' ? 3 : 2);
}

/* Whether the name has a suffix of the names of Python's own exceptions, and more before it. */
static bool is_usual_name(const char *name, size_t length)
{
    static const char *const tails[] = {"Error", "Exception", "Interrupt"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(tails); i++) {
        size_t bytes = strlen(tails[i]);

        if (length > bytes && name[length - bytes - 1] != '.' && memcmp(name + length - bytes, tails[i], bytes) == 0) {
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

/* Whether the line is "Name: text", or the name alone. */
static bool is_exception(const char *line, bool in_traceback)
{
    size_t length = strspn(line, NAME_LETTERS "0123456789<>");

    return length > 0 && strspn(line, NAME_LETTERS) > 0 &&
           (line[length] == '\0' || (line[length] == ':' && (line[length + 1] == ' ' || line[length + 1] == '\0'))) &&
           (in_traceback ? is_class_name(line, length) : is_usual_name(line, length));
}

/* Find pip's message about its last attempt to connect. The message after it says only that pip has found no
 * version. */
static const char *find_connection(const char *line)
{
    static const char last[] = "Retrying (Retry(total=0,", broken[] = "connection broken by ";

    return strstr(line, last) ? strstr(line, broken) : NULL;
}

static void keep(struct pl_cause *cause, const char *line)
{
    memmove(cause->found, line, strlen(line) + 1);
    cause->later_bytes = 0;
}

static void end_line(struct pl_cause *cause)
{
    const char *line, *connection;

    cause->line[cause->line_bytes] = '\0';
    cause->line_bytes = 0;
    line = skip_tag(cause->line);
    if (strstr(line, "Traceback (most recent call last):")) {
        cause->in_traceback = true;
    } else if (begins_with(line, "Exception ignored ")) {
        cause->is_ignored = true;
    } else if (*line != '\0' && *line != ' ' && *line != '\t') {
        connection = find_connection(line);
        if (connection) {
            keep(cause, connection);
        } else if (is_exception(line, cause->in_traceback)) {
            if (!cause->is_ignored) {
                keep(cause, line);
            }
            cause->is_ignored = cause->in_traceback = false;
        }
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
