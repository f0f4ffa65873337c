/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Strict JSON, read by cJSON: replies, requests, headers and files of our own. What must keep Python's grammar or a
 * number's text stays with base/json/python_json.h; CONTRIBUTING.md says which to use when.
 *
 * base/json/json_check.h refuses, before cJSON sees it, what cJSON would take or change: bytes that are no UTF-8, a
 * byte order mark, raw control characters, \u0000, half a surrogate pair, 007 and 1., integers beyond 2^53 (stated as
 * text they keep their value: pl_json_uint64()), numbers that no double holds, more after the text, more levels, values
 * or bytes than the bounds. Duplicate names are refused afterwards. Names are compared byte by byte.
 *
 * A value of the wrong kind is refused with its path: "config.json: resources.hosts[2]: expected a string, found the
 * number 7". Messages show numbers, and never what a string holds.
 *
 * Threads  any number of threads may read one document; cJSON's only global, the place of its last error, is not used.
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
    PL_JSON_MAX_VALUES = 16 << 20, /* cJSON takes 64 bytes for each */
};

/** Integers up to this size have a double of their own. */
#define PL_JSON_MAX_INTEGER (INT64_C(1) << 53)

enum pl_json_kind {
    PL_JSON_NOTHING, /* there is no such value */
    PL_JSON_NULL,
    PL_JSON_BOOL,
    PL_JSON_NUMBER,
    PL_JSON_STRING,
    PL_JSON_LIST,
    PL_JSON_OBJECT,
};

/** A document; it owns all that was read. */
struct pl_json;

/**
 * A value of a document, or the place where one was looked for: asked for its text, it tells in the error what was
 * expected where. To be copied freely while the document lives; the members are for base/json/json.c only.
 */
struct pl_json_value {
    const struct pl_json *document;
    const struct cJSON *item;   /* NULL: nothing */
    const struct cJSON *parent; /* where nothing was found */
    const char *name;           /* under which nothing was found, NULL for the next item */
    enum pl_json_kind wanted;   /* what should have been there, since something was looked for below it */
};

/**
 * Read one JSON text of `bytes` bytes (surrounding blanks allowed). `source` names it in errors:
 * "FILE:LINE:COLUMN: expected ..., found ...".
 *
 * Errors  PL_INVALID (grammar, encoding, duplicate names, numbers), PL_LIMIT (the bounds above), PL_MEMORY.
 */
enum pl_status pl_json_parse(const char *text, size_t bytes, const char *source, struct pl_json **ret_document,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Read and parse the file at `path`, at most `max_bytes`. A missing file is PL_NOT_FOUND. */
enum pl_status pl_json_read(const char *path, size_t max_bytes, struct pl_json **ret_document,
                            struct pl_error *reterr) PL_MUST_CHECK;

/** Strings are overwritten before they are freed, since some are secrets. */
void pl_json_free(struct pl_json *document);
void pl_json_free_at(struct pl_json **document_at);

#define PL_AUTO_JSON __attribute__((cleanup(pl_json_free_at)))

struct pl_json_value pl_json_root(const struct pl_json *document);

/** The member `name` (which must live as long as the result) of an object; nothing where there is none. */
struct pl_json_value pl_json_member(struct pl_json_value object, const char *name);

/** The items of a list or members of an object, one after the other, then nothing; of other values at once nothing. */
struct pl_json_value pl_json_first(struct pl_json_value value);
struct pl_json_value pl_json_next(struct pl_json_value value);

enum pl_json_kind pl_json_kind(struct pl_json_value value);
bool pl_json_exists(struct pl_json_value value);

/** Items of a list or members of an object, counted one by one; 0 for others. */
size_t pl_json_count(struct pl_json_value value);

/** The name under which it stands in its object, NULL in a list or at the root. */
const char *pl_json_name(struct pl_json_value value);

/* What a value is. PL_INVALID with the path where it is nothing or of another kind. */

enum pl_status pl_json_expect(struct pl_json_value value, enum pl_json_kind kind,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** UTF-8 without U+0000; the document owns it. */
enum pl_status pl_json_text(struct pl_json_value value, const char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_json_text(), and `fallback`, which may be NULL, where there is nothing or null. */
enum pl_status pl_json_text_or(struct pl_json_value value, const char *fallback, const char **ret_text,
                               struct pl_error *reterr) PL_MUST_CHECK;

enum pl_status pl_json_bool(struct pl_json_value value, bool *ret_value, struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_json_double(struct pl_json_value value, double *ret_value, struct pl_error *reterr) PL_MUST_CHECK;

/** A whole number (7 or 7.0) from `least` to `most`, which lie within PL_JSON_MAX_INTEGER on both sides of 0. */
enum pl_status pl_json_int64(struct pl_json_value value, int64_t least, int64_t most, int64_t *ret_value,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** All 64 bits, as pl_json_write_uint64() has them: a string of decimal digits, no number. */
enum pl_status pl_json_uint64(struct pl_json_value value, uint64_t *ret_value, struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID for a value that only the caller can check: "SOURCE: PATH: expected `expected`, found ...". */
enum pl_status pl_json_wrong(struct pl_json_value value, const char *expected, struct pl_error *reterr);

#endif
