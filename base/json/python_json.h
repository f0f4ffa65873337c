/* SPDX-License-Identifier: Apache-2.0 */
/**
 * JSON by Python's grammar: it accepts what json.loads() accepts, refuses what json.loads() refuses, and prints what
 * json.dumps() prints. Numbers keep their text, so an integer keeps all its digits; strings keep \u0000 and lone
 * surrogates.
 *
 * Strings in memory are UTF-8 with two additions: U+0000 is the two bytes C0 80, and a lone surrogate has a form of
 * three bytes. So every JSON string is a C string and prints back unchanged. pl_python_json_string_bytes() gives the
 * bytes that a program should see.
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
    PL_PYTHON_JSON_INT,   /* no fraction and no exponent; any number of digits */
    PL_PYTHON_JSON_FLOAT, /* all other numbers, also NaN and the infinities */
    PL_PYTHON_JSON_STRING,
    PL_PYTHON_JSON_ARRAY,
    PL_PYTHON_JSON_OBJECT,
};

/** A node of a tree; the root owns all nodes. */
struct pl_python_json;

enum {
    PL_PYTHON_JSON_MAX_DEPTH = 128,
    PL_PYTHON_JSON_MAX_NODES = 1000000,
};

/**
 * Parses one JSON text of `bytes` bytes; blanks around it are allowed. `source` names the text in errors:
 * "FILE:LINE:COLUMN: expected ..., found ...". If an object has a name twice, the last value counts, in the position of
 * the first.
 *
 * Errors  PL_INVALID (grammar, encoding), PL_LIMIT (PL_PYTHON_JSON_MAX_DEPTH, PL_PYTHON_JSON_MAX_NODES), PL_MEMORY.
 */
enum pl_status pl_python_json_parse(const char *text, size_t bytes, const char *source,
                                    struct pl_python_json **ret_root, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Like pl_python_json_parse(), for a text that is the content of a JSON string (pl_python_json_text()): lone surrogates
 * are allowed, and U+0000 counts as a raw control character.
 */
enum pl_status pl_python_json_parse_inner(const char *text, const char *source, struct pl_python_json **ret_root,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Like pl_python_json_parse(), for strict JSON: refuses everything that base/json/json.h refuses, also duplicate names.
 * For values that must keep their text.
 */
enum pl_status pl_python_json_parse_strict(const char *text, size_t bytes, const char *source,
                                           struct pl_python_json **ret_root, struct pl_error *reterr) PL_MUST_CHECK;

/** Reads and parses the file at `path`, at most `max_bytes`. Errors: PL_NOT_FOUND if the file does not exist. */
enum pl_status pl_python_json_read(const char *path, size_t max_bytes, struct pl_python_json **ret_root,
                                   struct pl_error *reterr) PL_MUST_CHECK;

void pl_python_json_free(struct pl_python_json *root);

PL_CLEANUP(pl_python_json_free_at, struct pl_python_json, pl_python_json_free)
#define PL_AUTO_PYTHON_JSON __attribute__((cleanup(pl_python_json_free_at)))

enum pl_python_json_kind pl_python_json_kind(const struct pl_python_json *node);

/** Returns the kind's name for messages, for example "an object". */
const char *pl_python_json_kind_text(enum pl_python_json_kind kind);

bool pl_python_json_bool(const struct pl_python_json *node);

/** Returns the text of a string, or of a number as it is in the file. */
const char *pl_python_json_text(const struct pl_python_json *node);

/** Returns the value of an integer node. Errors: PL_LIMIT if the value does not fit in 64 bits. */
enum pl_status pl_python_json_int64(const struct pl_python_json *node, int64_t *ret_value,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the value of any number node, rounded like strtod(3). */
double pl_python_json_double(const struct pl_python_json *node);

/** Return the line and column at which the node begins in its source, from 1; 0 if a call has made the node. */
unsigned pl_python_json_line(const struct pl_python_json *node);
unsigned pl_python_json_column(const struct pl_python_json *node);

/** Returns the number of items of an array or of members of an object; 0 for other nodes, and for NULL. */
size_t pl_python_json_count(const struct pl_python_json *node);

/**
 * Return the first child of an array or object, which may be NULL, and the child after `node`; NULL if there is none.
 */
const struct pl_python_json *pl_python_json_first(const struct pl_python_json *node);
const struct pl_python_json *pl_python_json_next(const struct pl_python_json *node);

/** Loops over the children of `parent`, which may be NULL. */
#define PL_PYTHON_JSON_EACH(child, parent)                                                                             \
    for (const struct pl_python_json *child = pl_python_json_first(parent); child; child = pl_python_json_next(child))

/** Returns the name of `node` in its object; NULL in an array or at the root. */
const char *pl_python_json_name(const struct pl_python_json *node);

/** Returns the member `name` of an object, compared byte by byte; NULL if it is absent or `node` is not an object. */
const struct pl_python_json *pl_python_json_member(const struct pl_python_json *node, const char *name);

/**
 * Returns the members of an object, sorted by the code points of their names, then NULL. The caller frees the list.
 * Returns NULL if memory is out.
 */
const struct pl_python_json **pl_python_json_sorted(const struct pl_python_json *node);

/** Appends the bytes of a string node: U+0000 as one zero byte, each lone surrogate as U+FFFD. */
void pl_python_json_string_bytes(const struct pl_python_json *node, struct pl_text *text);

/*
 * Make the nodes of a tree. A parent owns the nodes that are added to it. A result NULL means that memory is out;
 * adding NULL returns PL_MEMORY.
 */
struct pl_python_json *pl_python_json_new_null(void);
struct pl_python_json *pl_python_json_new_bool(bool value);
struct pl_python_json *pl_python_json_new_int64(int64_t value);
struct pl_python_json *pl_python_json_new_string(const char *text); /* NULL makes a null node */
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
    PL_PYTHON_JSON_SORTED = 1 << 4 /* names by code point at every level; combine it with a style by | */
};

/**
 * Appends `node` as json.dumps() prints it: non-ASCII characters as \uXXXX, floats as by Python's repr, integers with
 * their own digits (-0 as 0).
 */
void pl_python_json_print(const struct pl_python_json *node, unsigned style, struct pl_text *text);

/** Appends `value` as Python's repr(float): the shortest text that reads back as the same double. */
void pl_python_json_print_double(double value, struct pl_text *text);

/** Appends `string` as a JSON string with its quotes. */
void pl_python_json_print_string(const char *string, struct pl_text *text);

/**
 * Decodes one character in the form that strings have in memory. Returns its code point (U+0000 for C0 80, D800..DFFF
 * for a lone surrogate) and sets `*ret_bytes`. A byte that begins no character gives U+DC00 plus the byte, as with
 * Python's surrogateescape.
 */
uint32_t pl_python_json_decode(const char *text, unsigned *ret_bytes);

/** Appends the character `code` in that form. */
void pl_python_json_encode(struct pl_text *text, uint32_t code);

#endif
