/* SPDX-License-Identifier: Apache-2.0 */
/* Writes strict JSON; python_json_print.c prints digits and escapes. */
#include "base/json/json_write.h"

#include "base/file.h"
#include "base/json/python_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void refuse(struct pl_json_writer *writer, const char *name, const char *wrong)
{
    if (!writer->wrong) {
        writer->wrong = wrong;
        snprintf(writer->wrong_name, sizeof(writer->wrong_name), "%s", name ? name : "");
        pl_text_mask_broken(writer->wrong_name, strlen(writer->wrong_name));
    }
}

static void append_string(struct pl_json_writer *writer, const char *name, const char *string)
{
    const char *end = string + strlen(string);
    size_t bytes = 1;

    for (const char *at = string; at < end && bytes > 0; at += bytes) {
        bytes = pl_text_character_bytes(at, end);
    }
    if (bytes == 0) {
        refuse(writer, name, "text that is not UTF-8");
        return;
    }
    pl_python_json_print_string(string, writer->text);
}

static void begin_line(struct pl_json_writer *writer)
{
    if (writer->lines) {
        pl_text_append_char(writer->text, '\n');
        for (unsigned i = 0; i < writer->depth; i++) {
            pl_text_append(writer->text, "  ");
        }
    }
}

/* Writes the comma and the name before a value, if they are needed. */
static void begin(struct pl_json_writer *writer, const char *name)
{
    bool in_object = writer->depth > 0 && writer->closings[writer->depth - 1] == '}';

    PL_BUG_IF(writer->ended || in_object == !name);
    if (writer->comma) {
        pl_text_append_char(writer->text, ',');
    }
    if (writer->depth > 0) {
        begin_line(writer);
    }
    if (name) {
        append_string(writer, name, name);
        pl_text_append(writer->text, writer->lines ? ": " : ":");
    }
    writer->comma = true;
    writer->ended = writer->depth == 0;
}

static void open_with(struct pl_json_writer *writer, const char *name, char opening, char closing)
{
    PL_BUG_IF(writer->depth == PL_JSON_MAX_DEPTH);
    begin(writer, name);
    pl_text_append_char(writer->text, opening);
    writer->closings[writer->depth++] = closing;
    writer->comma = false;
    writer->ended = false;
}

void pl_json_write_object(struct pl_json_writer *writer, const char *name)
{
    open_with(writer, name, '{', '}');
}

void pl_json_write_list(struct pl_json_writer *writer, const char *name)
{
    open_with(writer, name, '[', ']');
}

void pl_json_write_close(struct pl_json_writer *writer)
{
    PL_BUG_IF(writer->depth == 0);
    writer->depth--;
    if (writer->comma) {
        begin_line(writer);
    }
    pl_text_append_char(writer->text, writer->closings[writer->depth]);
    writer->comma = true;
    writer->ended = writer->depth == 0;
}

void pl_json_write_null(struct pl_json_writer *writer, const char *name)
{
    begin(writer, name);
    pl_text_append(writer->text, "null");
}

void pl_json_write_bool(struct pl_json_writer *writer, const char *name, bool value)
{
    begin(writer, name);
    pl_text_append(writer->text, value ? "true" : "false");
}

void pl_json_write_text(struct pl_json_writer *writer, const char *name, const char *value)
{
    begin(writer, name);
    append_string(writer, name, value);
}

void pl_json_write_double(struct pl_json_writer *writer, const char *name, double value)
{
    begin(writer, name);
    if (isfinite(value)) {
        pl_python_json_print_double(value, writer->text);
    } else {
        refuse(writer, name, "a number that is not finite");
    }
}

void pl_json_write_int64(struct pl_json_writer *writer, const char *name, int64_t value)
{
    begin(writer, name);
    if (value >= -PL_JSON_MAX_INTEGER && value <= PL_JSON_MAX_INTEGER) {
        pl_text_printf(writer->text, "%" PRId64, value);
    } else {
        refuse(writer, name, "an integer beyond 2^53");
    }
}

enum pl_status pl_json_write_end(const struct pl_json_writer *writer, struct pl_error *reterr)
{
    PL_BUG_IF(!writer->ended);
    if (writer->wrong) {
        return pl_error_set(reterr, PL_INVALID, "JSON cannot hold %s%s%s%s", writer->wrong,
                            *writer->wrong_name ? ", which '" : "", writer->wrong_name,
                            *writer->wrong_name ? "' is" : "");
    }
    return pl_text_check(writer->text, reterr);
}

enum pl_status pl_json_write_file(const struct pl_json_writer *writer, const char *path, mode_t mode,
                                  struct pl_error *reterr)
{
    PL_TRY(pl_json_write_end(writer, reterr));
    pl_text_append_char(writer->text, '\n');
    PL_TRY(pl_text_check(writer->text, reterr));
    return pl_file_write_atomic(path, writer->text->data, writer->text->length, mode, reterr);
}
