/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON by Python's exact grammar, in one pass and linear time. Columns are counted from the last reported
 * position, not from the start of the line, so that a long line costs no more than short ones.
 */
#include "base/json/json.h"
#include "base/json/python_json_tree.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_INTEGER_DIGITS = 4300,    /* CPython refuses integers with more digits (sys.int_info.default_max_str_digits) */
    MAX_STRICT_NUMBER_BYTES = 63, /* cJSON cuts longer numbers */
    FOUND_BYTES = 48,
};

struct reader {
    const char *text;
    const char *end;
    const char *at;
    const char *source;
    bool strict; /* refuse everything that json.h refuses */
    bool inner;  /* the text is the content of a JSON string: lone surrogates are allowed, U+0000 is C0 80 */
    unsigned line;
    unsigned column; /* column of `column_at` */
    const char *column_at;
    size_t nodes;
    struct pl_error *reterr;
};

/* Moves line and column on to `place`, which is never before an earlier `place`. */
static void locate(struct reader *reader, const char *place)
{
    for (; reader->column_at < place; reader->column_at++) {
        if (*reader->column_at == '\n') {
            reader->line++;
            reader->column = 1;
        } else if ((*reader->column_at & 0xC0) != 0x80) {
            reader->column++;
        }
    }
}

static enum pl_status fail_found(struct reader *reader, const char *place, const char *expected, const char *found)
{
    locate(reader, place);
    return pl_error_set(reader->reterr, PL_INVALID, "%s, line %u, column %u: expected %s, found %s", reader->source,
                        reader->line, reader->column, expected, found);
}

/* Describes the character at `place` in a text that ends at `end`: "'x'", "a line break". It may write into `text`. */
static const char *describe(const char *place, const char *end, char text[FOUND_BYTES])
{
    unsigned char byte;
    int length = 1;

    if (place >= end) {
        return "the end of the text";
    }
    byte = (unsigned char)*place;
    if (byte == '\n' || byte == '\r') {
        return "a line break";
    }
    if (byte == '\t') {
        return "a tab";
    }
    if (byte < 0x20 || byte == 0x7F) {
        snprintf(text, FOUND_BYTES, "the control character 0x%02x", byte);
        return text;
    }
    while (length < 4 && place + length < end && (place[length] & 0xC0) == 0x80) {
        length++;
    }
    snprintf(text, FOUND_BYTES, "'%.*s'", length, place);
    return text;
}

/* Returns ": remove the comma before it" if a list or object ends at `place` after a comma; otherwise "". */
static const char *hint(const char *text, const char *place, const char *end)
{
    const char *before = place;

    if (place >= end || (*place != '}' && *place != ']')) {
        return "";
    }
    while (before > text && (before[-1] == ' ' || before[-1] == '\t' || before[-1] == '\n' || before[-1] == '\r')) {
        before--;
    }
    return before > text && before[-1] == ',' ? ": remove the comma before it" : "";
}

static enum pl_status fail(struct reader *reader, const char *place, const char *expected)
{
    char text[FOUND_BYTES];
    char found[2 * FOUND_BYTES];

    snprintf(found, sizeof(found), "%s%s", describe(place, reader->end, text), hint(reader->text, place, reader->end));
    return fail_found(reader, place, expected, found);
}

static enum pl_status fail_limit(struct reader *reader, const char *place, enum pl_status status, const char *what,
                                 long limit)
{
    locate(reader, place);
    return pl_error_set(reader->reterr, status, "%s, line %u, column %u: expected at most %ld %s, found more",
                        reader->source, reader->line, reader->column, limit, what);
}

/* Refuses the duplicate name at `place`, quoted as in the text; reader->at is after the colon. */
static enum pl_status fail_twice(struct reader *reader, const char *place)
{
    size_t length = (size_t)(reader->at - 1 - place);
    char found[FOUND_BYTES + 8];

    while (place[length - 1] != '"') {
        length--;
    }
    length = length > FOUND_BYTES ? pl_text_whole_bytes(place, FOUND_BYTES) : length;
    snprintf(found, sizeof(found), "%.*s twice", (int)length, place);
    return fail_found(reader, place, "each key once", found);
}

/* Refuses an escape that strict JSON does not allow; reader->at is after it. */
static enum pl_status fail_escape(struct reader *reader, uint32_t code, const char *expected)
{
    char found[16];

    snprintf(found, sizeof(found), "\\u%04x", code);
    return fail_found(reader, reader->at - 6, expected, found);
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' || *reader->at == '\r')) {
        reader->at++;
    }
}

static bool next_is(const struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    return (size_t)(reader->end - reader->at) >= length && memcmp(reader->at, word, length) == 0;
}

/* Whether `at` is the in-memory form of a lone surrogate: three bytes that are not UTF-8. */
static bool is_surrogate(const char *at, const char *end)
{
    return end - at >= 3 && (unsigned char)at[0] == 0xED && (at[1] & 0xE0) == 0xA0 && (at[2] & 0xC0) == 0x80;
}

/* Reads four hex digits at `at`. If they are not hex digits, returns false; `*ret_bad` is then the first wrong one. */
static bool read_hex4(const struct reader *reader, const char *at, uint32_t *ret_code, const char **ret_bad)
{
    uint32_t code = 0;

    for (int i = 0; i < 4; i++) {
        int digit = at + i < reader->end ? pl_text_hex_value(at[i]) : -1;

        if (digit < 0) {
            *ret_bad = at + i < reader->end ? at + i : reader->end;
            return false;
        }
        code = code << 4 | (uint32_t)digit;
    }
    *ret_code = code;
    return true;
}

/* Reads one escape; reader->at is on the backslash. */
static enum pl_status read_escape(struct reader *reader, struct pl_text *text)
{
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    const char *bad = NULL;
    uint32_t code;
    uint32_t low;

    if (reader->at + 1 >= reader->end || reader->at[1] != 'u') {
        for (const char *pair = plain; reader->at + 1 < reader->end && *pair != '\0'; pair += 2) {
            if (pair[0] == reader->at[1]) {
                pl_text_append_char(text, pair[1]);
                reader->at += 2;
                return PL_OK;
            }
        }
        return fail(reader, reader->at + 1, "one of \" \\ / b f n r t u after '\\'");
    }
    if (!read_hex4(reader, reader->at + 2, &code, &bad)) {
        return fail(reader, bad, "four hex digits after '\\u'");
    }
    reader->at += 6;
    if (code >= 0xD800 && code <= 0xDBFF && next_is(reader, "\\u") && read_hex4(reader, reader->at + 2, &low, &bad) &&
        low >= 0xDC00 && low <= 0xDFFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        reader->at += 6;
    }
    if (reader->strict && code == 0) {
        return fail_escape(reader, code, "no U+0000 in a string");
    }
    if (reader->strict && code >= 0xD800 && code <= 0xDFFF) {
        return fail_escape(reader, code, "both halves of a surrogate pair");
    }
    pl_python_json_encode(text, code);
    return PL_OK;
}

/* Reads a string; reader->at is on its first quote. */
static enum pl_status read_string(struct reader *reader, char **ret_text)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    reader->at++;
    for (;;) {
        const char *run = reader->at;
        unsigned char byte;
        size_t bytes;

        while (run < reader->end && (unsigned char)*run >= 0x20 && (unsigned char)*run < 0x80 && *run != '"' &&
               *run != '\\') {
            run++;
        }
        pl_text_append_n(&text, reader->at, (size_t)(run - reader->at));
        reader->at = run;
        if (run >= reader->end) {
            return fail(reader, run, "a closing '\"'");
        }
        byte = (unsigned char)*run;
        if (byte == '"') {
            reader->at++;
            return pl_text_take(&text, ret_text, reader->reterr);
        }
        if (byte == '\\') {
            PL_TRY(read_escape(reader, &text));
            continue;
        }
        if (byte < 0x20 || (reader->inner && byte == 0xC0)) {
            return fail(reader, run, "no raw control character in a string");
        }
        bytes = reader->inner && is_surrogate(run, reader->end) ? 3 : pl_text_character_bytes(run, reader->end);
        if (bytes == 0) {
            char found[16];

            snprintf(found, sizeof(found), "the byte 0x%02x", byte);
            return fail_found(reader, run, "UTF-8 text", found);
        }
        pl_text_append_n(&text, run, bytes);
        reader->at += bytes;
    }
}

static const char *skip_digits(const struct reader *reader, const char *at)
{
    while (at < reader->end && *at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

/* Returns the end of the number at reader->at; reader->at itself if there is no number. */
static const char *number_end(const struct reader *reader, bool *ret_is_float)
{
    const char *at = reader->at;
    const char *more;

    if (at < reader->end && *at == '-') {
        at++;
    }
    if (at >= reader->end || *at < '0' || *at > '9') {
        return reader->at;
    }
    at = *at == '0' ? at + 1 : skip_digits(reader, at);
    if (at < reader->end && *at == '.' && skip_digits(reader, at + 1) > at + 1) {
        at = skip_digits(reader, at + 1);
        *ret_is_float = true;
    }
    if (at < reader->end && (*at == 'e' || *at == 'E')) {
        more = at + 1;
        if (more < reader->end && (*more == '+' || *more == '-')) {
            more++;
        }
        if (skip_digits(reader, more) > more) {
            at = skip_digits(reader, more);
            *ret_is_float = true;
        }
    }
    return at;
}

/* Checks that the number from reader->at to `end` is strict JSON, and that a double can hold it. */
static enum pl_status check_strict(struct reader *reader, const char *end, bool is_float)
{
    static const char most[] = "9007199254740992"; /* PL_JSON_MAX_INTEGER */
    const char *digits = reader->at + (*reader->at == '-');
    const char *run = reader->at;
    const char *expected = NULL;
    char number[MAX_STRICT_NUMBER_BYTES + 1], found[MAX_STRICT_NUMBER_BYTES + 3];
    double value = 0.0;

    while (run < reader->end && *run != '\0' && strchr("+-.0123456789Ee", *run)) {
        run++;
    }
    if (run - reader->at > MAX_STRICT_NUMBER_BYTES) {
        return fail_limit(reader, reader->at, PL_LIMIT, "bytes in a number", MAX_STRICT_NUMBER_BYTES);
    }
    snprintf(number, sizeof(number), "%.*s", (int)(run - reader->at), reader->at);
    snprintf(found, sizeof(found), "'%s'", number);
    if (end != run) {
        expected = "a number";
    } else if (is_float) {
        expected = pl_text_number(number, &value) && isfinite(value) ? NULL : "a number that a double can hold";
    } else if (end - digits >= (int)sizeof(most) ||
               (end - digits == sizeof(most) - 1 && memcmp(digits, most, sizeof(most) - 1) > 0)) {
        expected = "an integer of at most 2^53 (larger ones are given as text)";
    }
    return expected ? fail_found(reader, reader->at, expected, found) : PL_OK;
}

/* Stores the number from reader->at to `end` in `node`. */
static enum pl_status take_number(struct reader *reader, const char *end, bool is_float, struct pl_python_json *node)
{
    node->item.type = cJSON_Number | (is_float ? PL_PYTHON_JSON_IS_FLOAT : 0);
    node->item.valuestring = pl_memory_string_n(reader->at, (size_t)(end - reader->at), reader->reterr);
    PL_TRY(node->item.valuestring ? PL_OK : PL_MEMORY);
    pl_text_number(node->item.valuestring, &node->item.valuedouble);
    reader->at = end;
    return PL_OK;
}

static enum pl_status read_number(struct reader *reader, struct pl_python_json *node)
{
    bool is_float = false;
    const char *end = number_end(reader, &is_float);

    if (reader->strict && reader->at < reader->end &&
        (*reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9'))) {
        PL_TRY(check_strict(reader, end, is_float));
    }
    if (end == reader->at) {
        return fail(reader, reader->at, "a value");
    }
    if (!is_float && end - reader->at - (*reader->at == '-') > MAX_INTEGER_DIGITS) {
        return fail_limit(reader, reader->at, PL_INVALID, "digits in an integer", MAX_INTEGER_DIGITS);
    }
    return take_number(reader, end, is_float, node);
}

static enum pl_status read_scalar(struct reader *reader, struct pl_python_json *node)
{
    static const struct {
        const char *word;
        int type;
    } words[] = {{"null", cJSON_NULL}, {"true", cJSON_True}, {"false", cJSON_False}};
    static const char *const not_finite[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < PL_ARRAY_ITEMS(words); i++) {
        if (next_is(reader, words[i].word)) {
            node->item.type = words[i].type;
            reader->at += strlen(words[i].word);
            return PL_OK;
        }
    }
    for (size_t i = 0; !reader->strict && i < PL_ARRAY_ITEMS(not_finite); i++) {
        if (next_is(reader, not_finite[i])) {
            return take_number(reader, reader->at + strlen(not_finite[i]), true, node);
        }
    }
    return read_number(reader, node);
}

static enum pl_status read_value(struct reader *reader, int depth, struct pl_python_json **ret_node);

/* Reads one "name": of an object. */
static enum pl_status read_name(struct reader *reader, const char *expected, char **ret_name)
{
    enum pl_status status;

    if (reader->at >= reader->end || *reader->at != '"') {
        return fail(reader, reader->at, expected);
    }
    PL_TRY(read_string(reader, ret_name));
    skip_blanks(reader);
    if (reader->at >= reader->end || *reader->at != ':') {
        status = fail(reader, reader->at, "':' after a key");
        free(*ret_name);
        *ret_name = NULL;
        return status;
    }
    reader->at++;
    return PL_OK;
}

/* Reads the children of the array or object `node`; reader->at is after its opening bracket. */
static enum pl_status read_children(struct reader *reader, int depth, struct pl_python_json *node)
{
    bool is_object = node->item.type == cJSON_Object;
    char closing = is_object ? '}' : ']';

    skip_blanks(reader);
    if (reader->at < reader->end && *reader->at == closing) {
        reader->at++;
        return PL_OK;
    }
    for (bool first = true;; first = false) {
        PL_AUTO_FREE char *name = NULL;
        struct pl_python_json *child = NULL;
        const char *place;

        skip_blanks(reader);
        place = reader->at;
        if (is_object) {
            PL_TRY(read_name(
                reader, first ? "a key (a name in double quotes) or '}'" : "a key (a name in double quotes)", &name));
            if (reader->strict && pl_python_json_member(node, name)) {
                return fail_twice(reader, place);
            }
        }
        PL_TRY(read_value(reader, depth + 1, &child));
        if (is_object) {
            PL_TRY(pl_python_json_node_put(node, PL_TAKE(name), child, reader->reterr));
        } else {
            pl_python_json_node_append(node, child);
        }
        skip_blanks(reader);
        if (reader->at < reader->end && *reader->at == closing) {
            reader->at++;
            return PL_OK;
        }
        if (reader->at >= reader->end || *reader->at != ',') {
            return fail(reader, reader->at, is_object ? "',' or '}'" : "',' or ']'");
        }
        reader->at++;
    }
}

static enum pl_status read_value(struct reader *reader, int depth, struct pl_python_json **ret_node)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *node = NULL;

    skip_blanks(reader);
    if (!reader->strict && ++reader->nodes > PL_PYTHON_JSON_MAX_NODES) {
        return fail_limit(reader, reader->at, PL_LIMIT, "values", PL_PYTHON_JSON_MAX_NODES);
    }
    node = pl_python_json_node_new(PL_PYTHON_JSON_NULL);
    if (!node) {
        return pl_error_set(reader->reterr, PL_MEMORY, "%s: out of memory", reader->source);
    }
    locate(reader, reader->at);
    node->line = reader->line;
    node->column = reader->column;
    if (reader->at < reader->end && *reader->at == '"') {
        node->item.type = cJSON_String;
        PL_TRY(read_string(reader, &node->item.valuestring));
    } else if (reader->at < reader->end && (*reader->at == '{' || *reader->at == '[')) {
        if (depth == PL_PYTHON_JSON_MAX_DEPTH) {
            return fail_limit(reader, reader->at, PL_LIMIT, "levels of nesting", PL_PYTHON_JSON_MAX_DEPTH);
        }
        node->item.type = *reader->at == '{' ? cJSON_Object : cJSON_Array;
        reader->at++;
        PL_TRY(read_children(reader, depth, node));
    } else {
        PL_TRY(read_scalar(reader, node));
    }
    *ret_node = PL_TAKE(node);
    return PL_OK;
}

/* Counts the values of a strict text before memory is allocated for them. */
static enum pl_status bound_values(struct reader *reader)
{
    bool in_string = false;
    char before = '\0'; /* the last byte that is not a blank */
    size_t values = 1;

    for (const char *at = reader->text; at < reader->end; at++) {
        if (in_string) {
            at += *at == '\\';
            in_string = at < reader->end && *at != '"';
        } else if (!strchr(" \t\r\n", *at) || *at == '\0') {
            in_string = *at == '"';
            values += *at == ',' || *at == '[' || *at == '{';
            values -= (*at == ']' && before == '[') || (*at == '}' && before == '{');
            before = *at;
        }
        if (values > PL_JSON_MAX_VALUES) {
            return fail_limit(reader, at, PL_LIMIT, "values", PL_JSON_MAX_VALUES);
        }
    }
    return PL_OK;
}

static enum pl_status parse(struct reader *reader, struct pl_python_json **ret_root)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    reader->at = reader->column_at = reader->text;
    reader->line = reader->column = 1;
    if (reader->strict && reader->end - reader->text > PL_JSON_MAX_BYTES) {
        return fail_limit(reader, reader->text, PL_LIMIT, "bytes", PL_JSON_MAX_BYTES);
    }
    if (reader->strict) {
        PL_TRY(bound_values(reader));
    }
    if (next_is(reader, "\xEF\xBB\xBF")) {
        return fail_found(reader, reader->text, "a value", "a byte order mark");
    }
    PL_TRY(read_value(reader, 0, &root));
    skip_blanks(reader);
    if (reader->at != reader->end) {
        return fail(reader, reader->at, "the end of the text");
    }
    *ret_root = PL_TAKE(root);
    return PL_OK;
}

enum pl_status pl_python_json_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_python_json **ret_root, struct pl_error *reterr)
{
    struct reader reader = {.text = text, .end = text + bytes, .source = source, .reterr = reterr};

    return parse(&reader, ret_root);
}

enum pl_status pl_python_json_parse_strict(const char *text, size_t bytes, const char *source,
                                           struct pl_python_json **ret_root, struct pl_error *reterr)
{
    struct reader reader = {.text = text, .end = text + bytes, .source = source, .strict = true, .reterr = reterr};

    return parse(&reader, ret_root);
}

enum pl_status pl_python_json_parse_inner(const char *text, const char *source, struct pl_python_json **ret_root,
                                          struct pl_error *reterr)
{
    struct reader reader = {
        .text = text, .end = text + strlen(text), .source = source, .inner = true, .reterr = reterr};

    return parse(&reader, ret_root);
}
