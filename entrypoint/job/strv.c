/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of memory, growing lists of strings (argv), and a function that splits a command line like a shell. */
#include "entrypoint/job/strv.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Each block is allocated by itself, so that tools that check bounds see it. */
struct pl_pool_block {
    struct pl_pool_block *next;
    max_align_t data[];
};

void *pl_pool_new(struct pl_pool *pool, size_t count, size_t item_bytes)
{
    struct pl_pool_block *block = NULL;
    size_t bytes;

    if (!__builtin_mul_overflow(count, item_bytes, &bytes) && !__builtin_add_overflow(bytes, sizeof(*block), &bytes)) {
        block = pl_memory_new(1, bytes, NULL);
    }
    if (!block) {
        pool->failed = true;
        return NULL;
    }
    block->next = pool->blocks;
    pool->blocks = block;
    return block->data;
}

char *pl_pool_string_n(struct pl_pool *pool, const char *text, size_t length)
{
    static char empty[] = "";
    char *copy = pl_pool_new(pool, length + 1, 1);

    return copy ? memcpy(copy, text, length) : empty;
}

char *pl_pool_string(struct pl_pool *pool, const char *text)
{
    return pl_pool_string_n(pool, text, strlen(text));
}

char *pl_pool_printf(struct pl_pool *pool, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    return pl_pool_text(pool, &text);
}

char *pl_pool_text(struct pl_pool *pool, const struct pl_text *text)
{
    pool->failed = pool->failed || text->failed;
    return pl_pool_string_n(pool, pl_text_string(text), text->length);
}

enum pl_status pl_pool_check(const struct pl_pool *pool, struct pl_error *reterr)
{
    return pool->failed ? pl_error_set(reterr, PL_MEMORY, "out of memory") : PL_OK;
}

void pl_pool_done(struct pl_pool *pool)
{
    while (pool->blocks) {
        struct pl_pool_block *next = pool->blocks->next;

        free(pool->blocks);
        pool->blocks = next;
    }
    pool->failed = false;
}

static struct pl_pool *pool_of(struct pl_strv *words)
{
    return words->pool ? words->pool : &words->own;
}

static bool has_failed(const struct pl_strv *words)
{
    return words->pool ? words->pool->failed : words->own.failed;
}

static bool make_room(struct pl_strv *words)
{
    const size_t capacity = words->capacity ? 2 * words->capacity : 8;
    char **items;

    if (words->count + 2 <= words->capacity) {
        return true;
    }
    items = pl_pool_new(pool_of(words), capacity, sizeof(*items));
    if (!items) {
        return false;
    }
    if (words->count > 0) {
        memcpy(items, words->items, words->count * sizeof(*items));
    }
    words->items = items;
    words->capacity = capacity;
    return true;
}

void pl_strv_add_list(struct pl_strv *words, const char *const *list)
{
    for (; list && *list; list++) {
        if (make_room(words)) {
            words->items[words->count++] = pl_pool_string(pool_of(words), *list);
            words->items[words->count] = NULL;
        }
    }
}

void pl_strv_add_all(struct pl_strv *words, const struct pl_strv *more)
{
    pool_of(words)->failed |= has_failed(more);
    for (size_t i = 0; i < more->count; i++) {
        pl_strv_add(words, more->items[i]);
    }
}

void pl_strv_add_text(struct pl_strv *words, const struct pl_text *text)
{
    pool_of(words)->failed |= text->failed;
    pl_strv_add(words, pl_text_string(text));
}

void pl_strv_printf(struct pl_strv *words, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    pl_strv_add_text(words, &text);
}

void pl_strv_set(struct pl_strv *words, size_t at, const char *word)
{
    PL_BUG_IF(at >= words->count);
    words->items[at] = pl_pool_string(pool_of(words), word);
}

enum pl_status pl_strv_check(const struct pl_strv *words, struct pl_error *reterr)
{
    return has_failed(words) ? pl_error_set(reterr, PL_MEMORY, "no memory for a list of %zu words", words->count)
                             : PL_OK;
}

struct pl_python_json *pl_strv_json(const struct pl_strv *words)
{
    struct pl_python_json *list = pl_python_json_new_array();

    for (size_t i = 0; i < words->count && list; i++) {
        if (pl_python_json_append(list, pl_python_json_new_string(words->items[i]), NULL) != PL_OK) {
            pl_python_json_free(list);
            return NULL;
        }
    }
    return list;
}

int pl_strv_find(const struct pl_strv *words, const char *word)
{
    for (size_t i = 0; i < words->count; i++) {
        if (strcmp(words->items[i], word) == 0) {
            return (int)i;
        }
    }
    return -1;
}

void pl_strv_remove(struct pl_strv *words, size_t at, size_t count)
{
    PL_BUG_IF(at + count > words->count);
    /* The NULL after the last word is moved too. */
    memmove(&words->items[at], &words->items[at + count], (words->count - at - count + 1) * sizeof(*words->items));
    words->count -= count;
}

void pl_strv_done(struct pl_strv *words)
{
    pl_pool_done(&words->own);
    *words = (struct pl_strv){.pool = words->pool};
}

/* Read the part of a word in double quotes; `at` is just after the first quote. Returns the position of the closing
 * quote, or NULL. */
static const char *split_quoted(const char *at, struct pl_text *word)
{
    for (; *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0' && strchr("\"\\$`\n", at[1])) {
            at++;
            if (*at == '\n') {
                continue;
            }
        }
        if (*at == '\0') {
            return NULL;
        }
        pl_text_append_char(word, *at);
    }
    return at;
}

enum pl_status pl_strv_read_word(const char *text, const char *ends, const char *what, const char **at_at,
                                 struct pl_text *word, struct pl_error *reterr)
{
    const char *at = *at_at;

    while (*at != '\0' && !strchr(PL_STRV_BLANKS, *at) && !strchr(ends, *at)) {
        const char *start = at;

        if (*at == '\'') {
            at = strchr(at + 1, '\'');
            if (at) {
                pl_text_append_n(word, start + 1, (size_t)(at - start - 1));
            }
        } else if (*at == '"') {
            at = split_quoted(at + 1, word);
        } else if (*at == '\\' && at[1] == '\0') {
            return pl_error_set(reterr, PL_INVALID,
                                "%s: expected a character after the backslash at column %td, found the end", what,
                                start - text + 1);
        } else if (*at == '\\') {
            at++;
            if (*at != '\n') {
                pl_text_append_char(word, *at);
            }
        } else {
            pl_text_append_char(word, *at);
        }
        if (!at) {
            return pl_error_set(reterr, PL_INVALID, "%s: the quote %c at column %td is not closed", what, *start,
                                start - text + 1);
        }
        at++;
    }
    *at_at = at;
    return PL_OK;
}

enum pl_status pl_strv_split(const char *text, const char *what, struct pl_strv *words, struct pl_error *reterr)
{
    const char *at = text;

    for (;;) {
        PL_AUTO_TEXT struct pl_text word = PL_TEXT_NONE;

        at += strspn(at, PL_STRV_BLANKS);
        if (*at == '\0') {
            return pl_strv_check(words, reterr);
        }
        PL_TRY(pl_strv_read_word(text, "", what, &at, &word, reterr));
        pl_strv_add_text(words, &word);
    }
}
