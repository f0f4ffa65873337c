/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A growing text. Appending cannot fail at the call; running out of memory is remembered and reported once by
 * pl_text_take() or pl_text_check(), so that building a text reads as a list of lines.
 */
#ifndef PL_BASE_TEXT_H
#define PL_BASE_TEXT_H

#include "base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct pl_text {
    char *data; /* NUL at `length` whenever not NULL; may hold NULs itself */
    size_t length;
    size_t capacity;
    bool failed;
};

#define PL_TEXT_NONE ((struct pl_text){.data = NULL})

/** `PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;` */
#define PL_AUTO_TEXT __attribute__((cleanup(pl_text_done)))

void pl_text_append(struct pl_text *text, const char *string);
void pl_text_append_n(struct pl_text *text, const char *bytes, size_t length);
void pl_text_append_char(struct pl_text *text, char byte);

/** Append `word` in single quotes: one word for a shell, whatever is in it. */
void pl_text_append_quoted(struct pl_text *text, const char *word);

/**
 * Numbers have a point and no separators, whatever locale the program has set: what is written here is also read by
 * others.
 */
void pl_text_printf(struct pl_text *text, const char *format, ...) PL_PRINTF(2, 3);
void pl_text_vprintf(struct pl_text *text, const char *format, va_list args) PL_PRINTF(2, 0);

/** Forget the content, keep the memory. */
void pl_text_clear(struct pl_text *text);

/** PL_MEMORY when an append could not be done. */
enum pl_status pl_text_check(const struct pl_text *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Hand the text over: `*ret_string` is NUL-terminated, the caller frees it; `text` is empty afterwards. */
enum pl_status pl_text_take(struct pl_text *text, char **ret_string, struct pl_error *reterr) PL_MUST_CHECK;

/** The content so far as a C string, "" when empty; valid until the next append. */
const char *pl_text_string(const struct pl_text *text);

void pl_text_done(struct pl_text *text);

/** The length of the UTF-8 character at `at`, which lies before `end`; 0 when there is none. */
size_t pl_text_character_bytes(const char *at, const char *end);

/**
 * How many of the `length` bytes of a text are left without the beginning of a UTF-8 character that they end with: 0 to
 * 3 bytes less, for a text that was cut at a number of bytes.
 */
size_t pl_text_whole_bytes(const char *bytes, size_t length);

/**
 * Put a '?' in place of each of `length` bytes that belongs to no UTF-8 character: text from outside, or cut in the
 * middle of one.
 */
void pl_text_mask_broken(char *bytes, size_t length);

/**
 * The length of the control character at `at`, which lies before `end`; 0 when there is none. Those are U+0000 to
 * U+001F, U+007F and, in two bytes, U+0080 to U+009F: a terminal obeys them.
 */
size_t pl_text_control_bytes(const char *at, const char *end);

/**
 * As pl_text_mask_broken(), and put a '?' in place of each byte of a control character but tab and line feed: what
 * programs, hosts and files say, before it is shown.
 */
void pl_text_mask(char *bytes, size_t length);

/**
 * Read all of `text` as strtod(3) does, but always with a point; false when that is no number, or not all of it is one.
 */
bool pl_text_number(const char *text, double *ret_number);

/**
 * The number in base `base` after `field` and a colon at the beginning of a line, as in /proc/PID/status; `fallback`
 * where there is no such line.
 */
uint64_t pl_text_field_number(const char *text, const char *field, int base, uint64_t fallback);

/** What a hexadecimal digit stands for; -1 when it is none. */
int pl_text_hex_value(char digit);

#endif
