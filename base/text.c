/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text, UTF-8 checks, and numbers that do not depend on the locale. */
#include "base/text.h"

#include "base/memory.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_BYTES = 64 };

/* Returns the locale "C". In glibc it is a constant: nothing is allocated. */
static locale_t plain_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Makes room for `more` bytes and a NUL; returns false if memory is out. */
static bool make_room(struct pl_text *text, size_t more)
{
    size_t want;

    if (text->failed) {
        return false;
    }
    if (__builtin_add_overflow(text->length, more, &want) || __builtin_add_overflow(want, (size_t)1, &want) ||
        (want > text->capacity &&
         pl_memory_grow(&text->data, &text->capacity, want < LEAST_BYTES ? LEAST_BYTES : want, 1, NULL) != PL_OK)) {
        text->failed = true;
        return false;
    }
    return true;
}

void pl_text_append_n(struct pl_text *text, const char *bytes, size_t length)
{
    if (!make_room(text, length)) {
        return;
    }
    if (length > 0) { /* `data` may be NULL if there are no bytes */
        memcpy(text->data + text->length, bytes, length);
    }
    text->length += length;
    text->data[text->length] = '\0';
}

void pl_text_append(struct pl_text *text, const char *string)
{
    pl_text_append_n(text, string, strlen(string));
}

void pl_text_append_char(struct pl_text *text, char byte)
{
    pl_text_append_n(text, &byte, 1);
}

void pl_text_append_quoted(struct pl_text *text, const char *word)
{
    pl_text_append_char(text, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            pl_text_append(text, "'\\''");
        } else {
            pl_text_append_char(text, *word);
        }
    }
    pl_text_append_char(text, '\'');
}

void pl_text_vprintf(struct pl_text *text, const char *format, va_list args)
{
    locale_t plain = plain_locale();
    locale_t before = uselocale(plain);
    va_list again;
    int length;

    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, args);
    if (length < 0) {
        text->failed = true;
    } else if (make_room(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
    uselocale(before);
    freelocale(plain);
}

void pl_text_printf(struct pl_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pl_text_vprintf(text, format, args);
    va_end(args);
}

void pl_text_clear(struct pl_text *text)
{
    text->length = 0;
    text->failed = false;
    if (text->data) {
        text->data[0] = '\0';
    }
}

enum pl_status pl_text_check(const struct pl_text *text, struct pl_error *reterr)
{
    if (text->failed) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for a text of more than %zu bytes", text->length);
    }
    return PL_OK;
}

enum pl_status pl_text_set(struct pl_text *text, struct pl_error *reterr, const char *format, ...)
{
    va_list args;

    pl_text_clear(text);
    va_start(args, format);
    pl_text_vprintf(text, format, args);
    va_end(args);
    return pl_text_check(text, reterr);
}

enum pl_status pl_text_take(struct pl_text *text, char **ret_string, struct pl_error *reterr)
{
    pl_text_append_n(text, "", 0); /* an untouched text becomes "" */
    PL_TRY(pl_text_check(text, reterr));
    *ret_string = text->data;
    *text = PL_TEXT_NONE;
    return PL_OK;
}

const char *pl_text_string(const struct pl_text *text)
{
    return text->data ? text->data : "";
}

size_t pl_text_character_bytes(const char *at, const char *end)
{
    const unsigned char *byte = (const unsigned char *)at;
    size_t bytes = byte[0] < 0x80   ? 1
                   : byte[0] < 0xC2 ? 0
                   : byte[0] < 0xE0 ? 2
                   : byte[0] < 0xF0 ? 3
                   : byte[0] < 0xF5 ? 4
                                    : 0;

    if ((size_t)(end - at) < bytes) {
        return 0;
    }
    for (size_t i = 1; i < bytes; i++) {
        if ((byte[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    /* longer than needed, a surrogate, or beyond the last code point */
    if ((byte[0] == 0xE0 && byte[1] < 0xA0) || (byte[0] == 0xED && byte[1] > 0x9F) ||
        (byte[0] == 0xF0 && byte[1] < 0x90) || (byte[0] == 0xF4 && byte[1] > 0x8F)) {
        return 0;
    }
    return bytes;
}

size_t pl_text_whole_bytes(const char *bytes, size_t length)
{
    for (size_t back = 1; back < 4 && back <= length; back++) {
        unsigned char byte = (unsigned char)bytes[length - back];
        size_t wanted = byte < 0xC2 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF5 ? 4 : 1;

        if ((byte & 0xC0) != 0x80) {
            return wanted > back ? length - back : length;
        }
    }
    return length;
}

void pl_text_mask_broken(char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t part = (unsigned char)bytes[at] < 0x80 ? 1 : pl_text_character_bytes(bytes + at, bytes + length);

        if (part == 0) {
            bytes[at] = '?';
            part = 1;
        }
        at += part;
    }
}

size_t pl_text_control_bytes(const char *at, const char *end)
{
    const unsigned char byte = (unsigned char)at[0];

    if (byte < 0x20 || byte == 0x7F) {
        return 1;
    }
    return byte == 0xC2 && end - at >= 2 && (unsigned char)at[1] >= 0x80 && (unsigned char)at[1] < 0xA0 ? 2 : 0;
}

void pl_text_mask(char *bytes, size_t length)
{
    pl_text_mask_broken(bytes, length);
    for (size_t at = 0; at < length; at++) {
        if ((bytes[at] < ' ' || bytes[at] > '~') && bytes[at] != '\t' && bytes[at] != '\n') {
            memset(bytes + at, '?', pl_text_control_bytes(bytes + at, bytes + length));
        }
    }
}

bool pl_text_ends_with(const char *text, const char *end)
{
    return pl_text_ends_with_n(text, strlen(text), end);
}

bool pl_text_number(const char *text, double *ret_number)
{
    locale_t plain = plain_locale();
    char *end;

    *ret_number = strtod_l(text, &end, plain);
    freelocale(plain);
    return end != text && *end == '\0';
}

uint64_t pl_text_field_number(const char *text, const char *field, int base, uint64_t fallback)
{
    size_t length = strlen(field);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, field, length) == 0 && line[length] == ':') {
            return strtoull(line + length + 1, NULL, base);
        }
    }
    return fallback;
}

int pl_text_hex_value(char digit)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = digit == '\0' ? NULL : strchr(digits, digit);

    return at ? (int)(at - digits) % 16 : -1;
}

void pl_text_done(struct pl_text *text)
{
    free(text->data);
    *text = PL_TEXT_NONE;
}

unsigned pl_text_distance(const char *a, const char *b, unsigned limit)
{
    unsigned best = limit;

    for (; *a != '\0' && *a == *b; a++, b++) {
    }
    if (*a == '\0' && *b == '\0') {
        return 0;
    }
    if (limit == 0) {
        return 1;
    }
    for (unsigned way = 1; way <= 3; way++) { /* leave out a character of `a`, of `b`, or of both */
        if (((way & 1) == 0 || *a != '\0') && ((way & 2) == 0 || *b != '\0')) {
            unsigned rest = pl_text_distance(a + (way & 1), b + (way >> 1), limit - 1);

            best = rest < best ? rest : best;
        }
    }
    return best + 1;
}

void pl_text_near_compare(struct pl_text_near *near, const char *candidate, unsigned limit)
{
    unsigned edits = pl_text_distance(near->name, candidate, limit);

    if (edits <= limit && (!near->meant || edits < near->edits)) {
        near->meant = candidate;
        near->edits = edits;
    }
}

const char *pl_text_near_hint(const struct pl_text_near *near, const char *prefix, char *text, size_t bytes)
{
    text[0] = '\0';
    if (near->meant) {
        snprintf(text, bytes, " (did you mean '%s%s'?)", prefix, near->meant);
    }
    return text;
}
