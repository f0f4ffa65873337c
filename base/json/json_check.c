/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that a text is strict JSON. cJSON accepts 007, 1., invalid UTF-8, a byte order mark and control characters,
 * cuts strings at \u0000, turns 1e400 into null and changes the integer 2^53 + 1. This check refuses all of that.
 */
#include "base/json/json_check.h"

#include "base/json/json.h"
#include "base/json/text_place.h"
#include "base/memory.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NUMBER_BYTES = 63 }; /* cJSON would cut longer numbers */

struct check {
    const char *text;
    const char *end;
    const char *at;
    const char *source;
    unsigned depth;
    bool in_object[PL_JSON_MAX_DEPTH]; /* whether the open item is an object, by depth */
    size_t values;
    struct pl_error *reterr;
};

static enum pl_status fail_found(const struct check *check, const char *place, enum pl_status status,
                                 const char *expected, const char *found)
{
    unsigned line, column;

    pl_text_place_find(check->text, place, &line, &column);
    return pl_error_set(check->reterr, status, "%s, line %u, column %u: expected %s, found %s%s", check->source, line,
                        column, expected, found, pl_text_place_hint(check->text, place, check->end));
}

static enum pl_status fail(const struct check *check, const char *place, const char *expected)
{
    char text[PL_TEXT_PLACE_FOUND_BYTES];

    return fail_found(check, place, PL_INVALID, expected, pl_text_place_found(place, check->end, text));
}

static enum pl_status fail_limit(const struct check *check, long limit, const char *what)
{
    char expected[64];

    snprintf(expected, sizeof(expected), "at most %ld %s", limit, what);
    return fail_found(check, check->at, PL_LIMIT, expected, "more");
}

static bool next_is(const struct check *check, char byte)
{
    return check->at < check->end && *check->at == byte;
}

static void skip_blanks(struct check *check)
{
    while (next_is(check, ' ') || next_is(check, '\t') || next_is(check, '\n') || next_is(check, '\r')) {
        check->at++;
    }
}

/* Reads the four hex digits of "\uXXXX" at `at`. */
static enum pl_status read_hex4(const struct check *check, const char *at, uint32_t *ret_code)
{
    *ret_code = 0;
    for (int i = 2; i < 6; i++) {
        int digit = at + i < check->end ? pl_text_hex_value(at[i]) : -1;

        if (digit < 0) {
            return fail(check, at + i < check->end ? at + i : check->end, "four hex digits after '\\u'");
        }
        *ret_code = *ret_code << 4 | (uint32_t)digit;
    }
    return PL_OK;
}

/* Checks "\uXXXX", or two of them that make one character. */
static enum pl_status check_unicode_escape(struct check *check)
{
    char found[16];
    uint32_t code, low;

    PL_TRY(read_hex4(check, check->at, &code));
    snprintf(found, sizeof(found), "\\u%04x", code);
    if (code == 0) {
        return fail_found(check, check->at, PL_INVALID, "no U+0000 in a string", found);
    }
    if (code >= 0xD800 && code <= 0xDFFF) {
        const char *second = check->at + 6;

        if (code >= 0xDC00 || check->end - second < 2 || second[0] != '\\' || second[1] != 'u') {
            return fail_found(check, check->at, PL_INVALID, "both halves of a surrogate pair", found);
        }
        PL_TRY(read_hex4(check, second, &low));
        if (low < 0xDC00 || low > 0xDFFF) {
            return fail_found(check, check->at, PL_INVALID, "both halves of a surrogate pair", found);
        }
        check->at += 6;
    }
    check->at += 6;
    return PL_OK;
}

static enum pl_status check_escape(struct check *check)
{
    const char *letter = check->at + 1;

    if (letter < check->end && *letter == 'u') {
        return check_unicode_escape(check);
    }
    if (letter >= check->end || *letter == '\0' || !strchr("\"\\/bfnrt", *letter)) {
        return fail(check, letter, "one of \" \\ / b f n r t u after '\\'");
    }
    check->at += 2;
    return PL_OK;
}

/* Checks a string; check->at is on its first quote. */
static enum pl_status check_string(struct check *check)
{
    check->at++;
    while (check->at < check->end && *check->at != '"') {
        unsigned char byte = (unsigned char)*check->at;
        char found[16];
        size_t bytes;

        if (byte == '\\') {
            PL_TRY(check_escape(check));
            continue;
        }
        if (byte < 0x20) {
            return fail(check, check->at, "no raw control character in a string");
        }
        bytes = byte < 0x80 ? 1 : pl_text_character_bytes(check->at, check->end);
        if (bytes == 0) {
            snprintf(found, sizeof(found), "the byte 0x%02x", byte);
            return fail_found(check, check->at, PL_INVALID, "UTF-8 text", found);
        }
        check->at += bytes;
    }
    if (check->at >= check->end) {
        return fail(check, check->at, "a closing '\"'");
    }
    check->at++;
    return PL_OK;
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

/*
 * Whether the bytes from `at` to `end` are one number. `*ret_whole` gets the number's digits if it has neither a point
 * nor an exponent.
 */
static bool is_number(const char *at, const char *end, const char **ret_whole)
{
    const char *digits = at + (at < end && *at == '-');
    const char *next = skip_digits(digits, end);

    *ret_whole = next == end ? digits : NULL;
    if (next == digits || (*digits == '0' && next > digits + 1)) {
        return false;
    }
    if (next < end && *next == '.') {
        digits = next + 1;
        next = skip_digits(digits, end);
        if (next == digits) {
            return false;
        }
    }
    if (next < end && (*next == 'e' || *next == 'E')) {
        digits = next + 1;
        digits += digits < end && (*digits == '+' || *digits == '-');
        next = skip_digits(digits, end);
        if (next == digits) {
            return false;
        }
    }
    return next == end;
}

static enum pl_status fail_number(const struct check *check, const char *number, const char *expected)
{
    char found[MAX_NUMBER_BYTES + 3];

    snprintf(found, sizeof(found), "'%s'", number);
    return fail_found(check, check->at, PL_INVALID, expected, found);
}

static bool is_number_byte(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.' || byte == 'e' || byte == 'E';
}

/* Checks one number: the longest run of bytes that can be part of a number, as cJSON reads it too. */
static enum pl_status check_number(struct check *check)
{
    static const char most[] = "9007199254740992"; /* PL_JSON_MAX_INTEGER */
    const char *run = check->at;
    const char *whole;
    char copy[MAX_NUMBER_BYTES + 1];
    size_t bytes, digits;
    double value;

    while (run < check->end && is_number_byte(*run)) {
        run++;
    }
    bytes = (size_t)(run - check->at);
    if (bytes > MAX_NUMBER_BYTES) {
        return fail_limit(check, MAX_NUMBER_BYTES, "bytes in a number");
    }
    memcpy(copy, check->at, bytes);
    copy[bytes] = '\0';
    if (!is_number(check->at, run, &whole)) {
        return fail_number(check, copy, "a number");
    }
    digits = whole ? (size_t)(run - whole) : 0;
    if (digits >= sizeof(most) || (digits == sizeof(most) - 1 && memcmp(whole, most, digits) > 0)) {
        return fail_number(check, copy, "an integer of at most 2^53 (larger ones are given as text)");
    }
    if (strpbrk(copy, "eE") && (!pl_text_number(copy, &value) || !isfinite(value))) {
        return fail_number(check, copy, "a number that a double can hold");
    }
    check->at = run;
    return PL_OK;
}

static enum pl_status check_word(struct check *check)
{
    static const char *const words[] = {"null", "true", "false"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(words); i++) {
        size_t length = strlen(words[i]);

        if ((size_t)(check->end - check->at) >= length && memcmp(check->at, words[i], length) == 0) {
            check->at += length;
            return PL_OK;
        }
    }
    return fail(check, check->at, "a value");
}

/* Checks a name and its colon. */
static enum pl_status check_name(struct check *check, const char *expected)
{
    skip_blanks(check);
    if (!next_is(check, '"')) {
        return fail(check, check->at, expected);
    }
    PL_TRY(check_string(check));
    skip_blanks(check);
    if (!next_is(check, ':')) {
        return fail(check, check->at, "':' after a key");
    }
    check->at++;
    return PL_OK;
}

/* Enters the list or object at check->at; `*ret_empty` tells that it ends at once. */
static enum pl_status check_opening(struct check *check, bool *ret_empty)
{
    bool is_object = *check->at == '{';

    if (check->depth == PL_JSON_MAX_DEPTH) {
        return fail_limit(check, PL_JSON_MAX_DEPTH, "levels of nesting");
    }
    check->at++;
    skip_blanks(check);
    *ret_empty = next_is(check, is_object ? '}' : ']');
    if (*ret_empty) {
        check->at++;
        return PL_OK;
    }
    check->in_object[check->depth++] = is_object;
    return is_object ? check_name(check, "a key (a name in double quotes) or '}'") : PL_OK;
}

/* Checks a value up to its end, or up to its first item. */
static enum pl_status check_value(struct check *check, bool *ret_open)
{
    bool empty;

    *ret_open = false;
    skip_blanks(check);
    if (++check->values > PL_JSON_MAX_VALUES) {
        return fail_limit(check, PL_JSON_MAX_VALUES, "values");
    }
    if (next_is(check, '{') || next_is(check, '[')) {
        PL_TRY(check_opening(check, &empty));
        *ret_open = !empty;
        return PL_OK;
    }
    if (next_is(check, '"')) {
        return check_string(check);
    }
    if (next_is(check, '-') || (check->at < check->end && *check->at >= '0' && *check->at <= '9')) {
        return check_number(check);
    }
    return check_word(check);
}

/* Checks the text after a value: ends of lists and objects, then a comma. `*ret_more` is true unless all are closed. */
static enum pl_status check_closings(struct check *check, bool *ret_more)
{
    for (;;) {
        bool is_object;

        skip_blanks(check);
        if (check->depth == 0) {
            *ret_more = false;
            return check->at == check->end ? PL_OK : fail(check, check->at, "the end of the text");
        }
        is_object = check->in_object[check->depth - 1];
        if (next_is(check, ',')) {
            check->at++;
            *ret_more = true;
            return is_object ? check_name(check, "a key (a name in double quotes)") : PL_OK;
        }
        if (!next_is(check, is_object ? '}' : ']')) {
            return fail(check, check->at, is_object ? "',' or '}'" : "',' or ']'");
        }
        check->at++;
        check->depth--;
    }
}

enum pl_status pl_json_check(const char *text, size_t bytes, const char *source, struct pl_error *reterr)
{
    static const char mark[] = "\xEF\xBB\xBF";
    struct check check = {.text = text, .end = text + bytes, .at = text, .source = source, .reterr = reterr};
    bool more = true;

    if (bytes > PL_JSON_MAX_BYTES) {
        return fail_limit(&check, PL_JSON_MAX_BYTES, "bytes");
    }
    if (bytes >= sizeof(mark) - 1 && memcmp(text, mark, sizeof(mark) - 1) == 0) {
        return fail_found(&check, text, PL_INVALID, "a value", "a byte order mark");
    }
    while (more) {
        bool open = false;

        PL_TRY(check_value(&check, &open));
        if (!open) {
            PL_TRY(check_closings(&check, &more));
        }
    }
    return PL_OK;
}
