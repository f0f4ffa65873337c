/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the last exception's line in what a Python program prints. */
#include "entrypoint/output/cause.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define SMALL_LETTERS "abcdefghijklmnopqrstuvwxyz"
#define NAME_LETTERS SMALL_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ_."

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* After torch's "[rank1]: ". */
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

/* Whether the name of `length` bytes ends as those of Python's own exceptions do, with something before it. */
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

/* "Name" or "package.name", not "WARNING" or "epoch": other threads may print lines in between. A class may be named
 * within a function: "f.<locals>.Name". */
static bool is_class_name(const char *name, size_t length)
{
    return strcspn(name, SMALL_LETTERS) < length &&
           (memchr(name, '.', length) || (*name >= 'A' && *name <= 'Z') || *name == '_');
}

/* "Name: text", or the name alone. */
static bool is_exception(const char *line, bool in_traceback)
{
    size_t length = strspn(line, NAME_LETTERS "0123456789<>");

    return length > 0 && strspn(line, NAME_LETTERS) > 0 &&
           (line[length] == '\0' || (line[length] == ':' && (line[length + 1] == ' ' || line[length + 1] == '\0'))) &&
           (in_traceback ? is_class_name(line, length) : is_usual_name(line, length));
}

/* pip's word on the last of its attempts; what follows is that it has found no version. */
static const char *find_connection(const char *line)
{
    static const char last[] = "Retrying (Retry(total=0,", broken[] = "connection broken by ";

    return strstr(line, last) ? strstr(line, broken) : NULL;
}

/* The text of a line that says why of the one before it, as uv prints them; else NULL. */
static const char *find_reason(const char *line)
{
    static const char *const beginnings[] = {"  cause: ", "  Caused by: ", "  \u2570\u2500\u25B6 "};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(beginnings); i++) {
        if (begins_with(line, beginnings[i])) {
            return line + strlen(beginnings[i]);
        }
    }
    return NULL;
}

static void keep(struct pl_cause *cause, const char *line)
{
    memmove(cause->found, line, strlen(line) + 1);
    cause->later_bytes = 0;
}

/* uv's error and the reasons in the lines after it, as one line. An error without reasons is none of uv's. */
static void join_reasons(struct pl_cause *cause, const char *line)
{
    const char *reason = cause->error[0] != '\0' ? find_reason(line) : NULL;
    size_t bytes = strlen(cause->error);

    if (reason) {
        snprintf(cause->error + bytes, sizeof(cause->error) - bytes, "%s %s", cause->error[bytes - 1] == ':' ? "" : ":",
                 reason);
        keep(cause, cause->error);
    } else {
        snprintf(cause->error, sizeof(cause->error), "%s",
                 begins_with(line, "error: ") || begins_with(line, "  \u00D7 ") ? line + strspn(line, " ") : "");
    }
}

static void end_line(struct pl_cause *cause)
{
    const char *line, *connection;

    cause->line[cause->line_bytes] = '\0';
    cause->line_bytes = 0;
    line = skip_tag(cause->line);
    join_reasons(cause, line);
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
