/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a tree: cJSON's, with what cJSON does not keep: a node's place in its file, and exact look-up of names
 * in constant time. Our parser fills them, so that numbers keep their text, and strings U+0000.
 */
#include "base/json/python_json_tree.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

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

static struct pl_python_json *first_of(const struct pl_python_json *node)
{
    return (struct pl_python_json *)node->item.child;
}

static struct pl_python_json *next_of(const struct pl_python_json *node)
{
    return (struct pl_python_json *)node->item.next;
}

/* Releases what `node` holds but its name, and not `node` itself. The parser bounds the depth, so recursion is safe. */
static void clear(struct pl_python_json *node)
{
    struct pl_python_json *child = first_of(node);

    while (child) {
        struct pl_python_json *next = next_of(child);

        pl_python_json_free(child);
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

void pl_python_json_free_at(struct pl_python_json **root_at)
{
    pl_python_json_free(*root_at);
    *root_at = NULL;
}

/* Hashes `name`, starting from the table's own address, so that nobody can prepare colliding names. */
static size_t hash(const struct pl_python_json_index *index, const char *name)
{
    uint64_t value =
        pl_hash(PL_HASH_START ^ ((uint64_t)(uintptr_t)index * UINT64_C(0x9E3779B97F4A7C15)), name, strlen(name));

    return (size_t)(value ^ (value >> 32));
}

/* Returns the slot that holds `name`, or else the free slot for it. */
static struct pl_python_json **find_slot(struct pl_python_json_index *index, const char *name)
{
    size_t at = hash(index, name) & (index->count - 1);

    while (index->slots[at] && strcmp(index->slots[at]->item.string, name) != 0) {
        at = (at + 1) & (index->count - 1);
    }
    return &index->slots[at];
}

/* Keeps the table at most half full once the object is large. */
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
    object->index = pl_memory_new(1, sizeof(*object->index) + want * sizeof(object->index->slots[0]), reterr);
    if (!object->index) {
        return PL_MEMORY;
    }
    object->index->count = want;
    for (struct pl_python_json *child = first_of(object); child; child = next_of(child)) {
        *find_slot(object->index, child->item.string) = child;
    }
    return PL_OK;
}

static struct pl_python_json *find_member(const struct pl_python_json *object, const char *name)
{
    if (object->index) {
        return *find_slot(object->index, name);
    }
    for (struct pl_python_json *child = first_of(object); child; child = next_of(child)) {
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
    array->item.valueint++;
}

/* Gives `place` the contents of `value`, and frees the emptied node `value`; `place` keeps its name and neighbours. */
static void replace(struct pl_python_json *place, struct pl_python_json *value)
{
    const cJSON was = place->item;

    clear(place);
    free(value->item.string);
    *place = *value;
    place->item.string = was.string;
    place->item.next = was.next;
    place->item.prev = was.prev;
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
