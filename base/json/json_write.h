/* SPDX-License-Identifier: Apache-2.0 */
/**
 * JSON written value by value to a text, for which no tree is built. What pl_json_write_end() passes, base/json/json.h
 * reads back with the same values: numbers have the digits that it takes for that, all text is ASCII by escapes.
 *
 * A list of calls reads as the document does; the first thing that JSON cannot hold is remembered and told at the end:
 *
 *   struct pl_json_writer writer = PL_JSON_WRITER(&text);
 *
 *   pl_json_write_object(&writer, NULL);
 *   pl_json_write_text(&writer, "model", name);
 *   pl_json_write_close(&writer);
 *   return pl_json_write_end(&writer, reterr);
 *
 * `name` is NULL at the root and in a list, and a name not used before in an object.
 *
 * Test  tests/unit/base/json/test_json_write.c
 */
#ifndef PL_BASE_JSON_JSON_WRITE_H
#define PL_BASE_JSON_JSON_WRITE_H

#include "base/json/json.h"
#include "base/text.h"

struct pl_json_writer {
    struct pl_text *text;
    unsigned depth;
    bool comma;                       /* something stands before in this list or object */
    bool ended;                       /* the root is complete */
    char closings[PL_JSON_MAX_DEPTH]; /* by depth */
    const char *wrong;                /* the first thing that JSON cannot hold */
    char wrong_name[64];              /* under which it stood */
};

#define PL_JSON_WRITER(to) ((struct pl_json_writer){.text = (to)})

void pl_json_write_object(struct pl_json_writer *writer, const char *name);
void pl_json_write_list(struct pl_json_writer *writer, const char *name);

/** The end of the object or list that was begun last. */
void pl_json_write_close(struct pl_json_writer *writer);

void pl_json_write_null(struct pl_json_writer *writer, const char *name);
void pl_json_write_bool(struct pl_json_writer *writer, const char *name, bool value);
void pl_json_write_text(struct pl_json_writer *writer, const char *name, const char *value);
void pl_json_write_double(struct pl_json_writer *writer, const char *name, double value);

/** Within PL_JSON_MAX_INTEGER. */
void pl_json_write_int64(struct pl_json_writer *writer, const char *name, int64_t value);

/** As a string of digits, for pl_json_uint64(): seeds and the like, which other readers would round. */
void pl_json_write_uint64(struct pl_json_writer *writer, const char *name, uint64_t value);

/** A value of a document and all below it. */
void pl_json_write_value(struct pl_json_writer *writer, const char *name, struct pl_json_value value);

/** Errors  PL_INVALID: a number that is not finite or too large, text that is no UTF-8; PL_MEMORY. */
enum pl_status pl_json_write_end(const struct pl_json_writer *writer, struct pl_error *reterr) PL_MUST_CHECK;

#endif
