/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON by Python's exact grammar, in one pass and linear time. A column is counted from the place of the last
 * one, not from the start of the line, so that a file of one long line costs no more than any other.
 */
#include "base/json/json_check.h"
#include "base/json/python_json.h"
#include "base/json/python_json_tree.h"
#include "base/json/text_place.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* CPython refuses longer integers (sys.int_info.default_max_str_digits). */
enum { MAX_INTEGER_DIGITS = 4300 };

struct reader {
    const char *text;
    const char *end;
    const char *at;
    const char *source;
    bool unique; /* duplicate names are refused */
    bool inner;  /* the text is the content of a JSON string: lone surrogates are allowed, U+0000 is C0 80 */
    unsigned line;
    unsigned column; /* column of `column_at` */
    const char *column_at;
    size_t nodes;
    struct pl_error *reterr;
};

/* Moves line and column on to `place`, which never lies before the last place asked for. */
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

static enum pl_status fail(struct reader *reader, const char *place, const char *expected)
{
    char text[PL_TEXT_PLACE_FOUND_BYTES];

    locate(reader, place);
    return pl_error_set(reader->reterr, PL_INVALID, "%s, line %u, column %u: expected %s, found %s%s", reader->source,
                        reader->line, reader->column, expected, pl_text_place_found(place, reader->end, text),
                        pl_text_place_hint(reader->text, place, reader->end));
}

static enum pl_status fail_limit(struct reader *reader, const char *place, enum pl_status status, const char *what,
                                 long limit)
{
    locate(reader, place);
    return pl_error_set(reader->reterr, status, "%s, line %u, column %u: expected at most %ld %s, found more",
                        reader->source, reader->line, reader->column, limit, what);
}

/* Refuses the duplicate name at `place`, quoted as in the text; reader->at is after its colon. */
static enum pl_status fail_twice(struct reader *reader, const char *place)
{
    size_t length = (size_t)(reader->at - 1 - place);

    while (place[length - 1] != '"') {
        length--;
    }
    length = length > PL_TEXT_PLACE_FOUND_BYTES ? pl_text_whole_bytes(place, PL_TEXT_PLACE_FOUND_BYTES) : length;
    locate(reader, place);
    return pl_error_set(reader->reterr, PL_INVALID, "%s, line %u, column %u: expected each key once, found %.*s twice",
                        reader->source, reader->line, reader->column, (int)length, place);
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

/* Whether `at` is the form in memory of a lone surrogate: three bytes that are not UTF-8. */
static bool is_surrogate(const char *at, const char *end)
{
    return end - at >= 3 && (unsigned char)at[0] == 0xED && (at[1] & 0xE0) == 0xA0 && (at[2] & 0xC0) == 0x80;
}

/* Reads four hex digits at `at`; false, with the first wrong place, if they are not hex digits. */
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

    if (reader->at + 1 >= reader->end) {
        return fail(reader, reader->end, "an escape after '\\'");
    }
    if (reader->at[1] != 'u') {
        for (const char *pair = plain; *pair != '\0'; pair += 2) {
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
            return fail(reader, run, "no raw control character inside a string");
        }
        bytes = reader->inner && is_surrogate(run, reader->end) ? 3 : pl_text_character_bytes(run, reader->end);
        if (bytes == 0) {
            locate(reader, run);
            return pl_error_set(reader->reterr, PL_INVALID,
                                "%s, line %u, column %u: expected UTF-8 text, found the byte 0x%02x", reader->source,
                                reader->line, reader->column, byte);
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

/* Returns the end of the number at reader->at, which is reader->at itself if there is none. */
static const char *number_end(const struct reader *reader, enum pl_python_json_kind *ret_kind)
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
    *ret_kind = PL_PYTHON_JSON_INT;
    if (at < reader->end && *at == '.' && skip_digits(reader, at + 1) > at + 1) {
        at = skip_digits(reader, at + 1);
        *ret_kind = PL_PYTHON_JSON_FLOAT;
    }
    if (at < reader->end && (*at == 'e' || *at == 'E')) {
        more = at + 1;
        if (more < reader->end && (*more == '+' || *more == '-')) {
            more++;
        }
        if (skip_digits(reader, more) > more) {
            at = skip_digits(reader, more);
            *ret_kind = PL_PYTHON_JSON_FLOAT;
        }
    }
    return at;
}

static enum pl_status read_scalar(struct reader *reader, struct pl_python_json *node)
{
    static const struct {
        const char *word;
        enum pl_python_json_kind kind;
        bool value;
    } words[] = {
        {"null", PL_PYTHON_JSON_NULL, false},      {"true", PL_PYTHON_JSON_BOOL, true},
        {"false", PL_PYTHON_JSON_BOOL, false},     {"NaN", PL_PYTHON_JSON_FLOAT, false},
        {"Infinity", PL_PYTHON_JSON_FLOAT, false}, {"-Infinity", PL_PYTHON_JSON_FLOAT, false},
    };
    const char *end;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(words); i++) {
        if (next_is(reader, words[i].word)) {
            node->kind = words[i].kind;
            node->boolean = words[i].value;
            reader->at += strlen(words[i].word);
            if (node->kind == PL_PYTHON_JSON_FLOAT) {
                node->text = pl_memory_string(words[i].word, reader->reterr);
                return node->text ? PL_OK : PL_MEMORY;
            }
            return PL_OK;
        }
    }
    end = number_end(reader, &node->kind);
    if (end == reader->at) {
        return fail(reader, reader->at, "a value");
    }
    if (node->kind == PL_PYTHON_JSON_INT && end - reader->at - (*reader->at == '-') > MAX_INTEGER_DIGITS) {
        return fail_limit(reader, reader->at, PL_INVALID, "digits in an integer", MAX_INTEGER_DIGITS);
    }
    node->text = pl_memory_string_n(reader->at, (size_t)(end - reader->at), reader->reterr);
    reader->at = end;
    return node->text ? PL_OK : PL_MEMORY;
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
    bool is_object = node->kind == PL_PYTHON_JSON_OBJECT;
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
            if (reader->unique && pl_python_json_member(node, name)) {
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
    if (++reader->nodes > PL_PYTHON_JSON_MAX_NODES) {
        return fail_limit(reader, reader->at, PL_LIMIT, "values", PL_PYTHON_JSON_MAX_NODES);
    }
    if (depth > PL_PYTHON_JSON_MAX_DEPTH) {
        return fail_limit(reader, reader->at, PL_LIMIT, "levels of nesting", PL_PYTHON_JSON_MAX_DEPTH);
    }
    node = pl_python_json_node_new(PL_PYTHON_JSON_NULL);
    if (!node) {
        return pl_error_set(reader->reterr, PL_MEMORY, "%s: out of memory", reader->source);
    }
    locate(reader, reader->at);
    node->line = reader->line;
    node->column = reader->column;
    if (reader->at < reader->end && *reader->at == '"') {
        node->kind = PL_PYTHON_JSON_STRING;
        PL_TRY(read_string(reader, &node->text));
    } else if (reader->at < reader->end && (*reader->at == '{' || *reader->at == '[')) {
        node->kind = *reader->at == '{' ? PL_PYTHON_JSON_OBJECT : PL_PYTHON_JSON_ARRAY;
        reader->at++;
        PL_TRY(read_children(reader, depth, node));
    } else {
        PL_TRY(read_scalar(reader, node));
    }
    *ret_node = PL_TAKE(node);
    return PL_OK;
}

static enum pl_status parse(struct reader *reader, struct pl_python_json **ret_root)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

    reader->at = reader->column_at = reader->text;
    reader->line = reader->column = 1;
    if (next_is(reader, "\xEF\xBB\xBF")) {
        return pl_error_set(reader->reterr, PL_INVALID,
                            "%s, line 1, column 1: expected a value, found a byte order mark", reader->source);
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
    struct reader reader = {.text = text, .end = text + bytes, .source = source, .unique = true, .reterr = reterr};

    PL_TRY(pl_json_check(text, bytes, source, reterr));
    return parse(&reader, ret_root);
}

enum pl_status pl_python_json_parse_inner(const char *text, const char *source, struct pl_python_json **ret_root,
                                          struct pl_error *reterr)
{
    struct reader reader = {
        .text = text, .end = text + strlen(text), .source = source, .inner = true, .reterr = reterr};

    return parse(&reader, ret_root);
}
