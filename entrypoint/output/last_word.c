/* SPDX-License-Identifier: Apache-2.0 */
/* Tells error messages of programs and shells from other lines, by their forms. */
#include "entrypoint/output/last_word.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Whether the first `bytes` bytes of `text` end with `tail`. */
static bool ends_with(const char *text, size_t bytes, const char *tail)
{
    const size_t tail_bytes = strlen(tail);

    return bytes >= tail_bytes && memcmp(text + bytes - tail_bytes, tail, tail_bytes) == 0;
}

/* Whether the text begins with what a program's name or path begins with, and not as a tag, a date or a number does. */
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
    return memchr(name, '/', bytes) || ends_with(name, bytes, ".sh");
}

/* Returns what follows "SCRIPT: line 3: " or "SCRIPT: 3: ", or NULL. */
static const char *after_script(const char *line)
{
    const size_t name_bytes = strcspn(line, ": ");
    const char *at = line + name_bytes;
    size_t digits;

    if (!begins_as_name(line) || !begins_with(at, ": ") || !is_shell(line, name_bytes)) {
        return NULL;
    }
    at += strlen(": ");
    at += begins_with(at, "line ") ? strlen("line ") : 0;
    digits = strspn(at, "0123456789");
    return digits > 0 && begins_with(at + digits, ": ") ? at + digits + strlen(": ") : NULL;
}

/* Whether the name before "error: " is a program's: one word; of argparse also "python3 -m package" and "train.py fit",
 * whose own texts follow it. */
static bool is_program(const char *name, size_t bytes, const char *text)
{
    static const char *const texts[] = {
        "argument ", "the following arguments are required: ", "unrecognized arguments: ", "one of the arguments "};
    const size_t word_bytes = strcspn(name, " ");

    if (word_bytes >= bytes || begins_with(name, "python") || ends_with(name, word_bytes, ".py")) {
        return true;
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(texts); i++) {
        if (begins_with(text, texts[i])) {
            return true;
        }
    }
    return false;
}

/* "NAME: error: TEXT". A number after it is a metric. */
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

/* "NAME: error while loading shared libraries: ...", "NAME: symbol lookup error: ..." */
static bool is_loaders(const char *line)
{
    const size_t name_bytes = strcspn(line, " ");

    return begins_as_name(line) && ends_with(line, name_bytes, ":") &&
           (begins_with(line + name_bytes, " error while loading shared libraries: ") ||
            begins_with(line + name_bytes, " symbol lookup error: "));
}

/* The text before the words by which the code is explained; 0 where the line has none. */
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
        if (ends_with(line, bytes, tails[i])) {
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

        if (*bytes_at > left + right && begins_with(text, pairs[i][0]) && ends_with(text, *bytes_at, pairs[i][1])) {
            *bytes_at -= left + right;
            return text + left;
        }
    }
    return text;
}

/* "foo: command not found" of a shell after its script, "env: 'foo': No such file or directory" of a program that
 * starts another. */
static void find_command(const char *line, const char *after, int code, struct pl_last_word *word)
{
    static const char *const starters[] = {"env: ", "/usr/bin/env: ", "timeout: failed to run command ",
                                           "nohup: failed to run command ", "nice: "};
    const char *at = after;
    size_t bytes;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(starters) && !at; i++) {
        at = begins_with(line, starters[i]) ? line + strlen(starters[i]) : NULL;
    }
    if (!at) {
        return;
    }
    at += begins_with(at, "exec: ") ? strlen("exec: ") : 0;
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
