/* SPDX-License-Identifier: Apache-2.0 */
/* Reading values from a tree, and making trees by calls. */
#include "base/json/python_json.h"

#include "base/file.h"
#include "base/json/python_json_tree.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pl_status pl_python_json_read(const char *path, size_t max_bytes, struct pl_python_json **ret_root,
                                   struct pl_error *reterr)
{
    PL_AUTO_FREE char *data = NULL;
    size_t bytes = 0;

    PL_TRY(pl_file_read(path, max_bytes, &data, &bytes, reterr));
    return pl_python_json_parse(data, bytes, path, ret_root, reterr);
}

const char *pl_python_json_kind_text(enum pl_python_json_kind kind)
{
    switch (kind) {
    case PL_PYTHON_JSON_NULL:
        return "null";
    case PL_PYTHON_JSON_BOOL:
        return "a boolean";
    case PL_PYTHON_JSON_INT:
        return "an integer";
    case PL_PYTHON_JSON_FLOAT:
        return "a float";
    case PL_PYTHON_JSON_STRING:
        return "a string";
    case PL_PYTHON_JSON_ARRAY:
        return "a list";
    case PL_PYTHON_JSON_OBJECT:
        return "an object";
    }
    return "?";
}

bool pl_python_json_bool(const struct pl_python_json *node)
{
    return node->item.type == cJSON_True;
}

const char *pl_python_json_text(const struct pl_python_json *node)
{
    return node->item.valuestring ? node->item.valuestring : "";
}

enum pl_status pl_python_json_int64(const struct pl_python_json *node, int64_t *ret_value, struct pl_error *reterr)
{
    const char *text = pl_python_json_text(node);
    char *end = NULL;
    long long value;

    if (pl_python_json_kind(node) != PL_PYTHON_JSON_INT) {
        return pl_error_set(reterr, PL_INVALID, "expected an integer, found %s",
                            pl_python_json_kind_text(pl_python_json_kind(node)));
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0') {
        return pl_error_set(reterr, PL_LIMIT, "the integer %.40s%s does not fit in 64 bits", text,
                            strlen(text) > 40 ? "..." : "");
    }
    *ret_value = value;
    return PL_OK;
}

double pl_python_json_double(const struct pl_python_json *node)
{
    return node->item.valuedouble;
}

unsigned pl_python_json_line(const struct pl_python_json *node)
{
    return node->line;
}

unsigned pl_python_json_column(const struct pl_python_json *node)
{
    return node->column;
}

size_t pl_python_json_count(const struct pl_python_json *node)
{
    return (size_t)node->item.valueint;
}

const struct pl_python_json *pl_python_json_first(const struct pl_python_json *node)
{
    return (const struct pl_python_json *)node->item.child;
}

const struct pl_python_json *pl_python_json_next(const struct pl_python_json *node)
{
    return (const struct pl_python_json *)node->item.next;
}

const char *pl_python_json_name(const struct pl_python_json *node)
{
    return node->item.string;
}

uint32_t pl_python_json_decode(const char *text, unsigned *ret_bytes)
{
    const unsigned char *byte = (const unsigned char *)text;
    uint32_t code;

    *ret_bytes = 1;
    if (byte[0] < 0x80) {
        return byte[0];
    }
    if (byte[0] == 0xC0 && byte[1] == 0x80) {
        *ret_bytes = 2;
        return 0;
    }
    if (byte[0] >= 0xC2 && byte[0] < 0xE0 && (byte[1] & 0xC0) == 0x80) {
        *ret_bytes = 2;
        return (uint32_t)(byte[0] & 0x1F) << 6 | (byte[1] & 0x3F);
    }
    if ((byte[0] & 0xF0) == 0xE0 && (byte[1] & 0xC0) == 0x80 && (byte[2] & 0xC0) == 0x80) {
        code = (uint32_t)(byte[0] & 0x0F) << 12 | (uint32_t)(byte[1] & 0x3F) << 6 | (byte[2] & 0x3F);
        if (code >= 0x800) {
            *ret_bytes = 3;
            return code;
        }
    }
    if ((byte[0] & 0xF8) == 0xF0 && (byte[1] & 0xC0) == 0x80 && (byte[2] & 0xC0) == 0x80 && (byte[3] & 0xC0) == 0x80) {
        code = (uint32_t)(byte[0] & 0x07) << 18 | (uint32_t)(byte[1] & 0x3F) << 12 | (uint32_t)(byte[2] & 0x3F) << 6 |
               (byte[3] & 0x3F);
        if (code >= 0x10000 && code <= 0x10FFFF) {
            *ret_bytes = 4;
            return code;
        }
    }
    return 0xDC00u + byte[0];
}

void pl_python_json_string_bytes(const struct pl_python_json *node, struct pl_text *text)
{
    const char *at = pl_python_json_text(node);

    while (*at != '\0') {
        unsigned bytes;
        uint32_t code = pl_python_json_decode(at, &bytes);

        if (code == 0) {
            pl_text_append_char(text, '\0');
        } else if (code >= 0xD800 && code <= 0xDFFF && bytes == 3) {
            pl_text_append(text, "\xEF\xBF\xBD");
        } else {
            pl_text_append_n(text, at, bytes);
        }
        at += bytes;
    }
}

struct pl_python_json *pl_python_json_new_null(void)
{
    return pl_python_json_node_new(PL_PYTHON_JSON_NULL);
}

struct pl_python_json *pl_python_json_new_bool(bool value)
{
    struct pl_python_json *node = pl_python_json_node_new(PL_PYTHON_JSON_BOOL);

    if (node && value) {
        node->item.type = cJSON_True;
    }
    return node;
}

static struct pl_python_json *new_text(enum pl_python_json_kind kind, const char *text)
{
    struct pl_python_json *node = pl_python_json_node_new(kind);

    if (node) {
        node->item.valuestring = pl_memory_string(text, NULL);
        if (!node->item.valuestring) {
            pl_python_json_free(node);
            return NULL;
        }
    }
    return node;
}

struct pl_python_json *pl_python_json_new_int64(int64_t value)
{
    struct pl_python_json *node;
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    node = new_text(PL_PYTHON_JSON_INT, text);
    if (node) {
        node->item.valuedouble = (double)value;
    }
    return node;
}

struct pl_python_json *pl_python_json_new_string(const char *text)
{
    return new_text(PL_PYTHON_JSON_STRING, text);
}

struct pl_python_json *pl_python_json_new_array(void)
{
    return pl_python_json_node_new(PL_PYTHON_JSON_ARRAY);
}

struct pl_python_json *pl_python_json_new_object(void)
{
    return pl_python_json_node_new(PL_PYTHON_JSON_OBJECT);
}

struct pl_python_json *pl_python_json_copy(const struct pl_python_json *node)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(node);
    struct pl_python_json *copy =
        node->item.valuestring ? new_text(kind, node->item.valuestring) : pl_python_json_node_new(kind);

    if (!copy) {
        return NULL;
    }
    copy->item.type = node->item.type;
    copy->item.valuedouble = node->item.valuedouble;
    copy->line = node->line;
    copy->column = node->column;
    for (const struct pl_python_json *child = pl_python_json_first(node); child; child = pl_python_json_next(child)) {
        struct pl_python_json *twin = pl_python_json_copy(child);
        enum pl_status status = kind == PL_PYTHON_JSON_OBJECT ? pl_python_json_set(copy, child->item.string, twin, NULL)
                                                              : pl_python_json_append(copy, twin, NULL);

        if (status != PL_OK) {
            pl_python_json_free(copy);
            return NULL;
        }
    }
    return copy;
}

enum pl_status pl_python_json_append(struct pl_python_json *array, struct pl_python_json *item, struct pl_error *reterr)
{
    if (!array || !item) {
        pl_python_json_free(item);
        return pl_error_set(reterr, PL_MEMORY, "out of memory while building JSON");
    }
    PL_BUG_IF(pl_python_json_kind(array) != PL_PYTHON_JSON_ARRAY);
    pl_python_json_node_append(array, item);
    return PL_OK;
}

enum pl_status pl_python_json_set(struct pl_python_json *object, const char *name, struct pl_python_json *value,
                                  struct pl_error *reterr)
{
    char *own_name = object && value ? pl_memory_string(name, NULL) : NULL;

    if (!own_name) {
        pl_python_json_free(value);
        return pl_error_set(reterr, PL_MEMORY, "out of memory while building JSON");
    }
    PL_BUG_IF(pl_python_json_kind(object) != PL_PYTHON_JSON_OBJECT);
    return pl_python_json_node_put(object, own_name, value, reterr);
}
