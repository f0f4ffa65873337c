/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A growing text. An append cannot fail at the call: an out-of-memory error is remembered and reported once by
 * pl_text_take() or pl_text_check(), so that building a text reads as a list of lines.
 */
#ifndef PL_BASE_TEXT_H
#define PL_BASE_TEXT_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pl_text {
    char *data; /* bytes with a NUL at `length`, or NULL; the text may hold NULs itself */
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

/** Appends `word` in single quotes, so that a shell reads it as one word, whatever characters it has. */
void pl_text_append_quoted(struct pl_text *text, const char *word);

/**
 * Appends a formatted text. Numbers have a decimal point and no separators in any locale, since other programs read the
 * text too.
 */
void pl_text_printf(struct pl_text *text, const char *format, ...) PL_PRINTF(2, 3);
void pl_text_vprintf(struct pl_text *text, const char *format, va_list args) PL_PRINTF(2, 0);

/** Replaces the text by a formatted one. Errors: PL_MEMORY. */
enum pl_status pl_text_set(struct pl_text *text, struct pl_error *reterr, const char *format, ...)
    PL_PRINTF(3, 4) PL_MUST_CHECK;

/** Empties the text but keeps its memory. */
void pl_text_clear(struct pl_text *text);

/** Returns PL_MEMORY if an append has failed. */
enum pl_status pl_text_check(const struct pl_text *text, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Hands the text over to the caller: `*ret_string` is NUL-terminated, and the caller frees it. `text` is empty
 * afterwards.
 */
enum pl_status pl_text_take(struct pl_text *text, char **ret_string, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the content so far as a C string, "" if empty; valid until the next append. */
const char *pl_text_string(const struct pl_text *text);

void pl_text_done(struct pl_text *text);

/** Returns the length of the UTF-8 character at `at`, which lies before `end`; 0 if there is none. */
size_t pl_text_character_bytes(const char *at, const char *end);

/**
 * Returns how many of the `length` bytes are left without an incomplete UTF-8 character at their end: 0 to 3 bytes
 * less. It is for a text that was cut at a number of bytes.
 */
size_t pl_text_whole_bytes(const char *bytes, size_t length);

/**
 * Replaces each of the `length` bytes that is not part of a UTF-8 character by '?'. It is for text from outside, or
 * text that was cut within a character.
 */
void pl_text_mask_broken(char *bytes, size_t length);

/**
 * Returns the length of the control character at `at`, which lies before `end`; 0 if there is none. Control characters
 * are U+0000 to U+001F, U+007F and, in two bytes, U+0080 to U+009F: a terminal obeys them.
 */
size_t pl_text_control_bytes(const char *at, const char *end);

/**
 * The same as pl_text_mask_broken(), and replaces each byte of a control character by '?', except tab and line feed.
 * Texts from programs, hosts and files pass it before they are shown.
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
 * Reads all of `text` as strtod(3) does, but always with a decimal point; false if `text` is not a number as a whole.
 */
bool pl_text_number(const char *text, double *ret_number);

/**
 * Returns the number in base `base` after `field` and a colon at the beginning of a line, as in /proc/PID/status;
 * `fallback` if there is no such line.
 */
uint64_t pl_text_field_number(const char *text, const char *field, int base, uint64_t fallback);

/** Returns the value of a hexadecimal digit; -1 if `digit` is not one. */
int pl_text_hex_value(char digit);

enum { PL_TEXT_NEAR_EDITS = 2 }; /* the usual limit for the distance of two names */

/* Finds what a mistyped name was probably meant to be: the nearest of the candidates that were compared with it so
 * far. */
struct pl_text_near {
    const char *name;
    const char *meant; /* borrowed; NULL if no candidate is near */
    unsigned edits;    /* its distance from `name` */
};

/* Returns the edit distance: how many characters to insert, delete or change to turn `a` into `b`; at most `limit` +
 * 1. */
unsigned pl_text_distance(const char *a, const char *b, unsigned limit);

/** Keeps `candidate` if its distance is at most `limit` and less than that of the kept one. */
void pl_text_near_compare(struct pl_text_near *near, const char *candidate, unsigned limit);

/** Writes " (did you mean 'PREFIXmeant'?)", or "" if no candidate is near. Returns `text`. */
const char *pl_text_near_hint(const struct pl_text_near *near, const char *prefix, char *text, size_t bytes);

#endif
