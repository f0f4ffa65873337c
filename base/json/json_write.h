/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A writer that appends JSON to a text value by value, without a tree. base/json/json.h reads this text with exactly
 * the same values, if pl_json_write_end() succeeds. The text is ASCII.
 *
 * The order of calls is the order of the document. The first value that JSON cannot represent is reported at the end:
 *
 *   struct pl_json_writer writer = PL_JSON_WRITER(&text);
 *
 *   pl_json_write_object(&writer, NULL);
 *   pl_json_write_text(&writer, "model", name);
 *   pl_json_write_close(&writer);
 *   return pl_json_write_end(&writer, reterr);
 *
 * `name` is NULL at the root and in a list; in an object it is a new name.
 *
 * Test  tests/unit/base/json/test_json_write.c
 */
#ifndef PL_BASE_JSON_JSON_WRITE_H
#define PL_BASE_JSON_JSON_WRITE_H

#include "base/json/json.h"
#include "base/text.h"

#include <sys/types.h>

struct pl_json_writer {
    struct pl_text *text;
    unsigned depth;
    bool lines;                       /* each value is on its own line, indented; set it before the first value */
    bool comma;                       /* the list or object has a value already */
    bool ended;                       /* the root is complete */
    char closings[PL_JSON_MAX_DEPTH]; /* closing brackets of the open lists and objects, by depth */
    const char *wrong;                /* description of the first value that JSON cannot represent */
    char wrong_name[64];              /* name of this value */
};

#define PL_JSON_WRITER(to) ((struct pl_json_writer){.text = (to)})

void pl_json_write_object(struct pl_json_writer *writer, const char *name);
void pl_json_write_list(struct pl_json_writer *writer, const char *name);

/** Ends the object or list that was begun last. */
void pl_json_write_close(struct pl_json_writer *writer);

void pl_json_write_null(struct pl_json_writer *writer, const char *name);
void pl_json_write_bool(struct pl_json_writer *writer, const char *name, bool value);
void pl_json_write_text(struct pl_json_writer *writer, const char *name, const char *value);
void pl_json_write_double(struct pl_json_writer *writer, const char *name, double value);

/** Writes an integer from -PL_JSON_MAX_INTEGER to PL_JSON_MAX_INTEGER. */
void pl_json_write_int64(struct pl_json_writer *writer, const char *name, int64_t value);

/** Ends the text. Errors: PL_INVALID if a number was not finite or too large, or a text was not UTF-8; PL_MEMORY. */
enum pl_status pl_json_write_end(const struct pl_json_writer *writer, struct pl_error *reterr) PL_MUST_CHECK;

/** Ends the text with a line break, and writes it to the file `path` by pl_file_write_atomic(). */
enum pl_status pl_json_write_file(const struct pl_json_writer *writer, const char *path, mode_t mode,
                                  struct pl_error *reterr) PL_MUST_CHECK;

#endif
