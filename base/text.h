/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A growing text. Appending returns no error: if memory runs out, pl_text_take() or pl_text_check() reports it at the
 * end. So code that builds a text needs no checks in between.
 */
#ifndef PL_BASE_TEXT_H
#define PL_BASE_TEXT_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pl_text {
    char *data; /* NUL-terminated at `length`, or NULL; the text itself may contain NULs */
    size_t length;
    size_t capacity;
    bool failed;
};

#define PL_TEXT_NONE ((struct pl_text){.data = NULL})

/** `PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;` frees the text at the end of the scope. */
#define PL_AUTO_TEXT __attribute__((cleanup(pl_text_done)))

void pl_text_append(struct pl_text *text, const char *string);
void pl_text_append_n(struct pl_text *text, const char *bytes, size_t length);
void pl_text_append_char(struct pl_text *text, char byte);

/** Appends `word` in single quotes, so that a shell reads it as one word, even with special characters. */
void pl_text_append_quoted(struct pl_text *text, const char *word);

/**
 * Appends a formatted text. In every locale, numbers have a decimal point and no separators, because programs read the
 * text too.
 */
void pl_text_printf(struct pl_text *text, const char *format, ...) PL_PRINTF(2, 3);
void pl_text_vprintf(struct pl_text *text, const char *format, va_list args) PL_PRINTF(2, 0);

/** Replaces the text by a formatted one. Errors: PL_MEMORY. */
enum pl_status pl_text_set(struct pl_text *text, struct pl_error *reterr, const char *format, ...)
    PL_PRINTF(3, 4) PL_MUST_CHECK;

/** Empties the text, and keeps its memory for reuse. */
void pl_text_clear(struct pl_text *text);

/** Returns PL_MEMORY if an append has failed. */
enum pl_status pl_text_check(const struct pl_text *text, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gives the text to the caller: `*ret_string` is NUL-terminated, and the caller frees it. `text` is empty afterwards.
 */
enum pl_status pl_text_take(struct pl_text *text, char **ret_string, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the content as a C string, "" if empty; valid until the next append. */
const char *pl_text_string(const struct pl_text *text);

void pl_text_done(struct pl_text *text);

/** Returns the length of the UTF-8 character at `at`, which is before `end`; 0 if there is none. */
size_t pl_text_character_bytes(const char *at, const char *end);

/**
 * Returns `length`, without an incomplete UTF-8 character at the end (0 to 3 bytes less). For text that was cut at a
 * number of bytes.
 */
size_t pl_text_whole_bytes(const char *bytes, size_t length);

/**
 * Replaces each byte that is not part of a UTF-8 character by '?'. For text from outside, and text that was cut within
 * a character.
 */
void pl_text_mask_broken(char *bytes, size_t length);

/**
 * Returns the length of the control character at `at`, which is before `end`; 0 if there is none. Control characters,
 * which a terminal would obey, are U+0000 to U+001F, U+007F and, in two bytes, U+0080 to U+009F.
 */
size_t pl_text_control_bytes(const char *at, const char *end);

/**
 * Like pl_text_mask_broken(), but also replaces each byte of a control character by '?', except tab and line feed. For
 * text from programs, hosts and files, before it is shown.
 */
void pl_text_mask(char *bytes, size_t length);

static inline bool pl_text_begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

bool pl_text_ends_with(const char *text, const char *end);

/** Whether the first `length` bytes of `text` end with `end`. */
static inline bool pl_text_ends_with_n(const char *text, size_t length, const char *end)
{
    const size_t end_length = strlen(end);

    return length >= end_length && memcmp(text + length - end_length, end, end_length) == 0;
}

/**
 * Reads all of `text` like strtod(3), but always with a decimal point. Returns false if the whole text is not a number.
 */
bool pl_text_number(const char *text, double *ret_number);

/**
 * Finds the line "FIELD: NUMBER", as in /proc/PID/status, and returns the number, in base `base`; `fallback` if there
 * is no such line.
 */
uint64_t pl_text_field_number(const char *text, const char *field, int base, uint64_t fallback);

/** Returns the value of a hexadecimal digit; -1 if `digit` is not one. */
int pl_text_hex_value(char digit);

enum { PL_TEXT_NEAR_EDITS = 2 }; /* usual limit for the edit distance of two names */

/* Finds the name that a mistyped name probably means: the nearest of the candidates that were compared with it. */
struct pl_text_near {
    const char *name;
    const char *meant; /* borrowed; NULL if no candidate is near */
    unsigned edits;    /* edit distance of `meant` from `name` */
};

/* Returns the edit distance: the number of characters to insert, delete or change to turn `a` into `b`; at most `limit`
 * + 1. */
unsigned pl_text_distance(const char *a, const char *b, unsigned limit);

/** Stores `candidate` if its distance is at most `limit` and less than the stored one's. */
void pl_text_near_compare(struct pl_text_near *near, const char *candidate, unsigned limit);

/** Writes " (did you mean 'PREFIXmeant'?)", or "" if no candidate is near. Returns `text`. */
const char *pl_text_near_hint(const struct pl_text_near *near, const char *prefix, char *text, size_t bytes);

#endif
