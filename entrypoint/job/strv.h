/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A growing list of strings: an argument vector, host names, option lists. The list owns its strings, or its pool does.
 * An append returns no error: if memory is out, the list remembers that, and pl_strv_check() reports it once, or for a
 * pool pl_pool_check().
 */
#ifndef PL_ENTRYPOINT_JOB_STRV_H
#define PL_ENTRYPOINT_JOB_STRV_H

#include "base/json/python_json.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * Memory that is freed as a whole: all parts of one description, such as a job, live as long as the description. A call
 * returns no error: if memory is out, the pool remembers that, and pl_pool_check() reports it once.
 */
struct pl_pool {
    struct pl_pool_block *blocks; /* the newest first */
    bool failed;
};

/** `PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};` frees the memory at the end of the scope. */
#define PL_AUTO_POOL __attribute__((cleanup(pl_pool_done)))

/** Returns `count` zeroed items of `item_bytes`; NULL if memory is out. */
void *pl_pool_new(struct pl_pool *pool, size_t count, size_t item_bytes) PL_MUST_CHECK;

/** Return a copy of `text`, of its first `length` bytes, or a formatted text; "" if memory is out. */
char *pl_pool_string(struct pl_pool *pool, const char *text);
char *pl_pool_string_n(struct pl_pool *pool, const char *text, size_t length);
char *pl_pool_text(struct pl_pool *pool, const struct pl_text *text);
char *pl_pool_printf(struct pl_pool *pool, const char *format, ...) PL_PRINTF(2, 3);

/** Returns PL_MEMORY if memory has run out. */
enum pl_status pl_pool_check(const struct pl_pool *pool, struct pl_error *reterr) PL_MUST_CHECK;

void pl_pool_done(struct pl_pool *pool);

struct pl_strv {
    char **items; /* NULL, or a list that ends with NULL, as execve(2) needs it; the words are the pool's */
    size_t count;
    size_t capacity;
    struct pl_pool *pool; /* owns the list's memory; NULL: `own` owns it, until pl_strv_done() */
    struct pl_pool own;
};

#define PL_STRV_NONE ((struct pl_strv){.items = NULL})

/** Use: `PL_AUTO_STRV struct pl_strv words = PL_STRV_NONE;` */
#define PL_AUTO_STRV __attribute__((cleanup(pl_strv_done)))

/** Add one or more words, none of which is NULL. */
#define pl_strv_add(words, ...) pl_strv_add_list(words, (const char *const[]){__VA_ARGS__, NULL})

/** Add the NULL-terminated words of `list`, which may be NULL. */
void pl_strv_add_list(struct pl_strv *words, const char *const *list);

/** Add every word of `more`, which need not end with NULL. */
void pl_strv_add_all(struct pl_strv *words, const struct pl_strv *more);

/** Add the text as one word. */
void pl_strv_add_text(struct pl_strv *words, const struct pl_text *text);
void pl_strv_printf(struct pl_strv *words, const char *format, ...) PL_PRINTF(2, 3);

/** Replace word number `at`, which must exist. */
void pl_strv_set(struct pl_strv *words, size_t at, const char *word);

/** Returns PL_MEMORY if an append has failed. */
enum pl_status pl_strv_check(const struct pl_strv *words, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the words as a JSON list of strings, or NULL if memory is out. */
struct pl_python_json *pl_strv_json(const struct pl_strv *words);

/** Returns the index of `word`, or -1. */
int pl_strv_find(const struct pl_strv *words, const char *word);

/** Remove `count` words from number `at` on. They must exist. */
void pl_strv_remove(struct pl_strv *words, size_t at, size_t count);

/** Empty the list. */
void pl_strv_done(struct pl_strv *words);

/**
 * Split `text` into words like a shell: blanks separate words, '...' is literal, "..." keeps blanks and interprets \"
 * \\ \$ \` and a backslash before a newline, and elsewhere a backslash takes the next character literally. Nothing is
 * expanded, and no shell runs. An unterminated quote or a backslash at the end is PL_INVALID, with `what` and the
 * column in the message.
 */
enum pl_status pl_strv_split(const char *text, const char *what, struct pl_strv *words,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * One step of pl_strv_split(): append the word at `*at_at` to `word`, and move `*at_at` past it. `*at_at` lies in
 * `text` and not on a blank. Besides blanks, each character of `ends` ends a word unless it is quoted.
 */
enum pl_status pl_strv_read_word(const char *text, const char *ends, const char *what, const char **at_at,
                                 struct pl_text *word, struct pl_error *reterr) PL_MUST_CHECK;

/** The characters that separate words. */
#define PL_STRV_BLANKS " \t\r\n"

#endif
