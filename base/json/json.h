/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Strict JSON, for replies, requests, headers and our own files. base/json/python_json.h has the same trees, for text
 * that must keep Python's grammar or the digits of numbers; CONTRIBUTING.md says which to use.
 *
 * The parser also refuses text that cJSON would accept or change: invalid UTF-8, a byte order mark, raw control
 * characters, \u0000, half a surrogate pair, 007 and 1., integers beyond 2^53, numbers that no double holds, text after
 * the value, duplicate names, and more levels, values or bytes than the bounds. Names are compared byte by byte.
 *
 * A value of the wrong kind is refused with its path: "config.json: resources.hosts[2]: expected a string, found the
 * number 7". Messages show numbers, but never the contents of a string.
 *
 * Threads  any number may read a document at the same time; cJSON's only global, its last error, is not used.
 * Source   RFC 8259.
 * Test     tests/unit/base/json/test_json.c, tests/unit/base/json/json_against_python.py
 */
#ifndef PL_BASE_JSON_JSON_H
#define PL_BASE_JSON_JSON_H

#include "base/status.h"

#include <stddef.h>

struct cJSON;

enum {
    PL_JSON_MAX_BYTES = 128 << 20,
    PL_JSON_MAX_DEPTH = 128,
    PL_JSON_MAX_VALUES = 16 << 20, /* each takes 88 bytes and its text */
};

/** Every integer up to this magnitude is exact as a double. */
#define PL_JSON_MAX_INTEGER (INT64_C(1) << 53)

enum pl_json_kind {
    PL_JSON_NOTHING, /* the value is missing */
    PL_JSON_NULL,
    PL_JSON_BOOL,
    PL_JSON_NUMBER,
    PL_JSON_STRING,
    PL_JSON_LIST,
    PL_JSON_OBJECT,
};

/** A document. It owns all values read from it. */
struct pl_json;

/**
 * A value of a document, or a missing value: reading it gives an error that says what was expected, and where. May be
 * copied while the document exists. Only base/json/json.c uses the members.
 */
struct pl_json_value {
    const struct pl_json *document;
    const struct cJSON *item;   /* NULL if the value is missing */
    const struct cJSON *parent; /* parent of a missing value */
    const char *name;           /* name of a missing value; NULL: it would be the next item of a list */
    enum pl_json_kind wanted;   /* kind that a missing value should have: a member or item of it was read */
};

/**
 * Reads one JSON text of `bytes` bytes; blanks around it are allowed. `source` names the text in errors:
 * "FILE:LINE:COLUMN: expected ..., found ...".
 *
 * Errors  PL_INVALID (grammar, encoding, duplicate names, numbers), PL_LIMIT (the bounds above), PL_MEMORY.
 */
enum pl_status pl_json_parse(const char *text, size_t bytes, const char *source, struct pl_json **ret_document,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Reads and parses the file at `path`, at most `max_bytes`. Errors: PL_NOT_FOUND if the file does not exist. */
enum pl_status pl_json_read(const char *path, size_t max_bytes, struct pl_json **ret_document,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Frees the document. Overwrites strings first, because some are secrets. */
void pl_json_free(struct pl_json *document);

PL_CLEANUP(pl_json_free_at, struct pl_json, pl_json_free)
#define PL_AUTO_JSON __attribute__((cleanup(pl_json_free_at)))

struct pl_json_value pl_json_root(const struct pl_json *document);

/**
 * Returns the member `name` of an object, or a missing value if there is none. `name` must exist as long as the result.
 */
struct pl_json_value pl_json_member(struct pl_json_value object, const char *name);

/**
 * Iterate over the items of a list or the members of an object. They return a missing value after the last one, and for
 * all other values.
 */
struct pl_json_value pl_json_first(struct pl_json_value value);
struct pl_json_value pl_json_next(struct pl_json_value value);

enum pl_json_kind pl_json_kind(struct pl_json_value value);
bool pl_json_exists(struct pl_json_value value);

/** Counts the items of a list or the members of an object, in linear time; 0 for other values. */
size_t pl_json_count(struct pl_json_value value);

/** Returns the value's name in its object; NULL in a list or at the root. */
const char *pl_json_name(struct pl_json_value value);

/* Read a value of a certain kind. Errors: PL_INVALID with the path if the value is missing or of another kind. */

enum pl_status pl_json_expect(struct pl_json_value value, enum pl_json_kind kind,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a string's text, in UTF-8 without U+0000. The document owns it. */
enum pl_status pl_json_text(struct pl_json_value value, const char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_json_text(), but returns `fallback`, which may be NULL, if the value is missing or null. */
enum pl_status pl_json_text_or(struct pl_json_value value, const char *fallback, const char **ret_text,
                               struct pl_error *reterr) PL_MUST_CHECK;

enum pl_status pl_json_bool(struct pl_json_value value, bool *ret_value, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_json_double(struct pl_json_value value, double *ret_value, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns an integer (7 or 7.0) from `least` to `most`; both bounds lie between -PL_JSON_MAX_INTEGER and
 * PL_JSON_MAX_INTEGER.
 */
enum pl_status pl_json_int64(struct pl_json_value value, int64_t least, int64_t most, int64_t *ret_value,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Reports a value that only the caller can check: PL_INVALID, "SOURCE: PATH: expected `expected`, found ...". */
enum pl_status pl_json_wrong(struct pl_json_value value, const char *expected, struct pl_error *reterr);

#endif
