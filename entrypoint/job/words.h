/* SPDX-License-Identifier: Apache-2.0 */
/** A growing list of strings: an argument vector, host names, option lists. The list owns its strings. */
#ifndef PL_ENTRYPOINT_JOB_WORDS_H
#define PL_ENTRYPOINT_JOB_WORDS_H

#include "base/python_json.h"

#include <stddef.h>

struct pl_words {
    char **items; /* when not NULL, ends with a NULL, as execve(2) wants it */
    size_t count;
    size_t capacity;
};

#define PL_WORDS_NONE ((struct pl_words){.items = NULL})

/** `PL_AUTO_WORDS struct pl_words words = PL_WORDS_NONE;` */
#define PL_AUTO_WORDS __attribute__((cleanup(pl_words_done)))

enum pl_status pl_words_add(struct pl_words *words, const char *word, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_words_printf(struct pl_words *words, struct pl_error *reterr, const char *format, ...)
    PL_PRINTF(3, 4) PL_MUST_CHECK;

/** Add every word of `more`. */
enum pl_status pl_words_add_all(struct pl_words *words, const struct pl_words *more,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Add the NULL-terminated words of `list`. */
enum pl_status pl_words_add_list(struct pl_words *words, const char *const *list,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** As a JSON list of strings; NULL when memory is out. */
struct pl_python_json *pl_words_json(const struct pl_words *words);

/** The index of `word`, or -1. */
int pl_words_find(const struct pl_words *words, const char *word);

void pl_words_done(struct pl_words *words);

/**
 * Split `text` into words as a shell would: blanks separate, '...' is literal, "..." keeps blanks and knows \" \\ \$ \`
 * and a backslash before a newline, a backslash elsewhere takes the next character as it is. Nothing is expanded and no
 * shell is run. An unterminated quote or a backslash at the end is PL_INVALID, naming `what` and the column.
 */
enum pl_status pl_words_split(const char *text, const char *what, struct pl_words *words,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The step of pl_words_split(): append to `word` the one word at `*at_at`, which lies in `text` and not on a blank, and
 * move `*at_at` past it. Besides blanks, each character of `ends` ends a word unless it is quoted.
 */
enum pl_status pl_words_read(const char *text, const char *ends, const char *what, const char **at_at,
                             struct pl_text *word, struct pl_error *reterr) PL_MUST_CHECK;

/** The characters that separate words. */
#define PL_WORDS_BLANKS " \t\r\n"

#endif
