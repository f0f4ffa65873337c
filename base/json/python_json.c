/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a tree: cJSON's nodes, extended by the position in the file and a look-up of names in constant time. Our
 * parser fills them, so that numbers keep their text and strings keep U+0000. Calls can make trees, too.
 */
#include "base/json/python_json.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json/python_json_tree.h"
#include "base/memory.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pl_python_json *pl_python_json_node_new(enum pl_python_json_kind kind)
{
    static const int types[] = {
        [PL_PYTHON_JSON_NULL] = cJSON_NULL,     [PL_PYTHON_JSON_BOOL] = cJSON_False,
        [PL_PYTHON_JSON_INT] = cJSON_Number,    [PL_PYTHON_JSON_FLOAT] = cJSON_Number | PL_PYTHON_JSON_IS_FLOAT,
        [PL_PYTHON_JSON_STRING] = cJSON_String, [PL_PYTHON_JSON_ARRAY] = cJSON_Array,
        [PL_PYTHON_JSON_OBJECT] = cJSON_Object,
    };
    struct pl_python_json *node = pl_memory_new(1, sizeof(*node), NULL);

    if (node) {
        node->item.type = types[kind];
    }
    return node;
}

/* A loop over children that may change. */
#define EACH(child, parent)                                                                                            \
    for (struct pl_python_json *child = (struct pl_python_json *)(parent)->item.child; child;                          \
         child = (struct pl_python_json *)child->item.next)

/* Releases the members of `node` except its name, but not `node`. The parser bounds the depth, so recursion is safe. */
static void clear(struct pl_python_json *node)
{
    cJSON *child = node->item.child;

    while (child) {
        cJSON *next = child->next;

        pl_python_json_free((struct pl_python_json *)child);
        child = next;
    }
    free(node->item.valuestring);
    free(node->index);
}

void pl_python_json_free(struct pl_python_json *root)
{
    if (root) {
        clear(root);
        free(root->item.string);
        free(root);
    }
}

/* Hashes `name`. The start value is the table's address, so that an attacker cannot prepare colliding names. */
static size_t hash(const struct pl_python_json_index *index, const char *name)
{
    uint64_t value =
        pl_hash(PL_HASH_START ^ ((uint64_t)(uintptr_t)index * UINT64_C(0x9E3779B97F4A7C15)), name, strlen(name));

    return (size_t)(value ^ (value >> 32));
}

/* Returns the slot of `name`, or else the free slot for it. */
static struct pl_python_json **find_slot(struct pl_python_json_index *index, const char *name)
{
    size_t at = hash(index, name) & (index->count - 1);

    while (index->slots[at] && strcmp(index->slots[at]->item.string, name) != 0) {
        at = (at + 1) & (index->count - 1);
    }
    return &index->slots[at];
}

/* Keeps the table at most half full, if the object is large enough to have one. */
static enum pl_status index_grow(struct pl_python_json *object, struct pl_error *reterr)
{
    const size_t count = (size_t)object->item.valueint;
    size_t want = 4 * (size_t)PL_PYTHON_JSON_INDEX_FROM;

    if (count < PL_PYTHON_JSON_INDEX_FROM || (object->index && 2 * count + 2 <= object->index->count)) {
        return PL_OK;
    }
    while (want < 4 * count) {
        want *= 2;
    }
    free(object->index);
    PL_TRY(pl_memory_alloc(&object->index, 1, sizeof(*object->index) + want * sizeof(object->index->slots[0]), reterr));
    object->index->count = want;
    EACH(child, object)
    {
        *find_slot(object->index, child->item.string) = child;
    }
    return PL_OK;
}

static struct pl_python_json *find_member(const struct pl_python_json *object, const char *name)
{
    if (object->index) {
        return *find_slot(object->index, name);
    }
    EACH(child, object)
    {
        if (strcmp(child->item.string, name) == 0) {
            return child;
        }
    }
    return NULL;
}

void pl_python_json_node_append(struct pl_python_json *array, struct pl_python_json *item)
{
    cJSON *first = array->item.child;

    if (first) {
        item->item.prev = first->prev;
        first->prev->next = &item->item;
        first->prev = &item->item;
    } else {
        array->item.child = item->item.prev = &item->item;
    }
    item->parent = array;
    array->item.valueint++;
}

/* Moves the contents of `value` to `place`, and frees the node `value`; `place` keeps its name and neighbours. */
static void replace(struct pl_python_json *place, struct pl_python_json *value)
{
    const struct pl_python_json was = *place;

    clear(place);
    free(value->item.string);
    *place = *value;
    place->item.string = was.item.string;
    place->item.next = was.item.next;
    place->item.prev = was.item.prev;
    place->parent = was.parent;
    EACH(child, place)
    {
        child->parent = place;
    }
    free(value);
}

enum pl_status pl_python_json_node_put(struct pl_python_json *object, char *name, struct pl_python_json *value,
                                       struct pl_error *reterr)
{
    struct pl_python_json *old = find_member(object, name);

    if (old) {
        free(name);
        replace(old, value);
        return PL_OK;
    }
    free(value->item.string);
    value->item.string = name;
    if (index_grow(object, reterr) != PL_OK) {
        pl_python_json_free(value);
        return PL_MEMORY;
    }
    pl_python_json_node_append(object, value);
    if (object->index) {
        *find_slot(object->index, name) = value;
    }
    return PL_OK;
}

enum pl_python_json_kind pl_python_json_kind(const struct pl_python_json *node)
{
    switch (node->item.type & 0xFF) {
    case cJSON_False:
    case cJSON_True:
        return PL_PYTHON_JSON_BOOL;
    case cJSON_Number:
        return node->item.type & PL_PYTHON_JSON_IS_FLOAT ? PL_PYTHON_JSON_FLOAT : PL_PYTHON_JSON_INT;
    case cJSON_String:
        return PL_PYTHON_JSON_STRING;
    case cJSON_Array:
        return PL_PYTHON_JSON_ARRAY;
    case cJSON_Object:
        return PL_PYTHON_JSON_OBJECT;
    default:
        return PL_PYTHON_JSON_NULL;
    }
}

const struct pl_python_json *pl_python_json_member(const struct pl_python_json *node, const char *name)
{
    return node && pl_python_json_kind(node) == PL_PYTHON_JSON_OBJECT ? find_member(node, name) : NULL;
}

void pl_python_json_encode(struct pl_text *text, uint32_t code)
{
    if (code == 0) {
        pl_text_append_n(text, "\xC0\x80", 2);
    } else if (code < 0x80) {
        pl_text_append_char(text, (char)code);
    } else if (code < 0x800) {
        pl_text_append_char(text, (char)(0xC0 | code >> 6));
        pl_text_append_char(text, (char)(0x80 | (code & 0x3F)));
    } else if (code < 0x10000) {
        pl_text_append_char(text, (char)(0xE0 | code >> 12));
        pl_text_append_char(text, (char)(0x80 | (code >> 6 & 0x3F)));
        pl_text_append_char(text, (char)(0x80 | (code & 0x3F)));
    } else {
        pl_text_append_char(text, (char)(0xF0 | code >> 18));
        pl_text_append_char(text, (char)(0x80 | (code >> 12 & 0x3F)));
        pl_text_append_char(text, (char)(0x80 | (code >> 6 & 0x3F)));
        pl_text_append_char(text, (char)(0x80 | (code & 0x3F)));
    }
}

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
    static const char *const texts[] = {
        [PL_PYTHON_JSON_NULL] = "null",        [PL_PYTHON_JSON_BOOL] = "a boolean",
        [PL_PYTHON_JSON_INT] = "an integer",   [PL_PYTHON_JSON_FLOAT] = "a float",
        [PL_PYTHON_JSON_STRING] = "a string",  [PL_PYTHON_JSON_ARRAY] = "a list",
        [PL_PYTHON_JSON_OBJECT] = "an object",
    };

    return texts[kind];
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
    return node ? (size_t)node->item.valueint : 0;
}

const struct pl_python_json *pl_python_json_first(const struct pl_python_json *node)
{
    return node ? (const struct pl_python_json *)node->item.child : NULL;
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
    return text ? new_text(PL_PYTHON_JSON_STRING, text) : pl_python_json_new_null();
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
    PL_PYTHON_JSON_EACH(child, node) {
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
