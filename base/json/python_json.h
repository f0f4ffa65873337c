/* SPDX-License-Identifier: Apache-2.0 */
/**
 * JSON by Python's grammar: what json.loads() takes is taken, what it refuses is refused, and what json.dumps() prints
 * is printed. Numbers keep their text (a 30-digit integer stays one), strings keep \u0000 and lone surrogates.
 *
 * Strings inside are UTF-8 with two additions: U+0000 is the two bytes C0 80 and a lone surrogate is its three-byte
 * form, so every JSON string is a C string and prints back as it was. pl_python_json_string_bytes() gives the bytes a
 * program should see.
 *
 * Source  RFC 8259; Python's json module (NaN, Infinity, -Infinity accepted; control characters in strings refused).
 * Test    tests/unit/base/json/test_python_json.c
 */
#ifndef PL_BASE_JSON_PYTHON_JSON_H
#define PL_BASE_JSON_PYTHON_JSON_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

enum pl_python_json_kind {
    PL_PYTHON_JSON_NULL,
    PL_PYTHON_JSON_BOOL,
    PL_PYTHON_JSON_INT,   /* no fraction and no exponent, any number of digits */
    PL_PYTHON_JSON_FLOAT, /* everything else that is a number, NaN and the infinities included */
    PL_PYTHON_JSON_STRING,
    PL_PYTHON_JSON_ARRAY,
    PL_PYTHON_JSON_OBJECT,
};

/** A node of a tree; the root owns all. */
struct pl_python_json;

enum {
    PL_PYTHON_JSON_MAX_DEPTH = 128,
    PL_PYTHON_JSON_MAX_NODES = 1000000,
};

/**
 * Parse one JSON text of `bytes` bytes (surrounding blanks allowed). `source` names it in errors:
 * "FILE:LINE:COLUMN: expected ..., found ...". Of duplicate names in an object the last wins, at the first's place.
 *
 * Errors  PL_INVALID (grammar, encoding), PL_LIMIT (PL_PYTHON_JSON_MAX_DEPTH, PL_PYTHON_JSON_MAX_NODES), PL_MEMORY.
 */
enum pl_status pl_python_json_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_python_json **ret_root, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_python_json_parse() for a text that is itself the content of a JSON string (pl_python_json_text()): lone
 * surrogates are allowed in it, and a raw U+0000 is the control character that it is.
 */
enum pl_status pl_python_json_parse_inner(const char *text, const char *source, struct pl_python_json **ret_root,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_python_json_parse() for strict JSON: what base/json/json.h refuses is refused, duplicate names included. For
 * programs that link no cJSON, and values that keep their text.
 */
enum pl_status pl_python_json_parse_strict(const char *text, size_t bytes, const char *source,
                                           struct pl_python_json **ret_root, struct pl_error *reterr) PL_MUST_CHECK;

/** Read and parse the file at `path`, at most `max_bytes`. A missing file is PL_NOT_FOUND. */
enum pl_status pl_python_json_read(const char *path, size_t max_bytes, struct pl_python_json **ret_root,
                                   struct pl_error *reterr) PL_MUST_CHECK;

void pl_python_json_free(struct pl_python_json *root);
void pl_python_json_free_at(struct pl_python_json **root_at);

#define PL_AUTO_PYTHON_JSON __attribute__((cleanup(pl_python_json_free_at)))

enum pl_python_json_kind pl_python_json_kind(const struct pl_python_json *node);

/** "an object", "a string", ...: for messages. */
const char *pl_python_json_kind_text(enum pl_python_json_kind kind);

bool pl_python_json_bool(const struct pl_python_json *node);

/** The text of a string, or the lexeme of a number as it is in the file. */
const char *pl_python_json_text(const struct pl_python_json *node);

/** Whole value of an integer node; PL_LIMIT when it does not fit in 64 bits. */
enum pl_status pl_python_json_int64(const struct pl_python_json *node, int64_t *ret_value,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Value of any number node, rounded as strtod(3) does. */
double pl_python_json_double(const struct pl_python_json *node);

/** Where the node began in its source, from 1; 0 for a node made by hand. */
unsigned pl_python_json_line(const struct pl_python_json *node);
unsigned pl_python_json_column(const struct pl_python_json *node);

/** Items of an array or members of an object; 0 for others. */
size_t pl_python_json_count(const struct pl_python_json *node);

/** First child of an array or object, NULL when there is none; then the one after `node`. */
const struct pl_python_json *pl_python_json_first(const struct pl_python_json *node);
const struct pl_python_json *pl_python_json_next(const struct pl_python_json *node);

/** The name of `node` in its object, NULL in an array or at the root. */
const char *pl_python_json_name(const struct pl_python_json *node);

/** The member `name` of an object, compared byte by byte; NULL when absent or when `node` is no object. */
const struct pl_python_json *pl_python_json_member(const struct pl_python_json *node, const char *name);

/**
 * The members of an object by code point of their names, then NULL; free() the list. NULL when memory is
 * out.
 */
const struct pl_python_json **pl_python_json_sorted(const struct pl_python_json *node);

/** The bytes of a string node: U+0000 as one zero byte, lone surrogates as U+FFFD each. */
void pl_python_json_string_bytes(const struct pl_python_json *node, struct pl_text *text);

/* Making trees. A node added to a parent belongs to it. NULL means out of memory; adding NULL is PL_MEMORY. */
struct pl_python_json *pl_python_json_new_null(void);
struct pl_python_json *pl_python_json_new_bool(bool value);
struct pl_python_json *pl_python_json_new_int64(int64_t value);
struct pl_python_json *pl_python_json_new_string(const char *text);
struct pl_python_json *pl_python_json_new_array(void);
struct pl_python_json *pl_python_json_new_object(void);
struct pl_python_json *pl_python_json_copy(const struct pl_python_json *node);
enum pl_status pl_python_json_append(struct pl_python_json *array, struct pl_python_json *item,
                                     struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_python_json_set(struct pl_python_json *object, const char *name, struct pl_python_json *value,
                                  struct pl_error *reterr) PL_MUST_CHECK;

enum pl_python_json_style {
    PL_PYTHON_JSON_COMPACT,        /* separators "," and ":" */
    PL_PYTHON_JSON_SPACED,         /* ", " and ": " (json.dumps' default) */
    PL_PYTHON_JSON_SORTED = 1 << 4 /* names by code point at every level; or it to a style */
};

/**
 * Append `node` as json.dumps() prints it: non-ASCII as \uXXXX, floats as Python's repr, integers as their lexeme (-0
 * as 0).
 */
void pl_python_json_print(const struct pl_python_json *node, unsigned style, struct pl_text *text);

/** Append `value` as Python's repr(float): the shortest text that reads back as the same double. */
void pl_python_json_print_double(double value, struct pl_text *text);

/** Append `string` as a JSON string with its quotes. */
void pl_python_json_print_string(const char *string, struct pl_text *text);

/**
 * Decode one character of the inner form at `text`: returns its code point (U+0000 for C0 80, D800..DFFF for a lone
 * surrogate) and sets `*ret_bytes`. A byte that begins no character is U+DC00 plus the byte, as Python's
 * surrogateescape has it.
 */
uint32_t pl_python_json_decode(const char *text, unsigned *ret_bytes);

/** Append the inner form of `code`. */
void pl_python_json_encode(struct pl_text *text, uint32_t code);

#endif
