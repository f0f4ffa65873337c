/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a tree. Small JSON libraries do not keep what Paceline needs: a node's place in its file, a number's
 * text, U+0000, and exact look-up of names in constant time.
 */
#include "base/json/python_json_tree.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct pl_python_json *pl_python_json_node_new(enum pl_python_json_kind kind)
{
    struct pl_python_json *node = pl_memory_new(1, sizeof(*node), NULL);

    if (node) {
        node->kind = kind;
    }
    return node;
}

/* Releases what `node` holds, but not `node` itself. The parser bounds the depth, so recursion is safe. */
static void clear(struct pl_python_json *node)
{
    struct pl_python_json *child = node->first;

    while (child) {
        struct pl_python_json *next = child->next;

        pl_python_json_free(child);
        child = next;
    }
    free(node->text);
    free(node->slots);
    node->first = NULL;
    node->last = NULL;
    node->text = NULL;
    node->slots = NULL;
    node->slots_count = 0;
    node->count = 0;
}

void pl_python_json_free(struct pl_python_json *root)
{
    if (root) {
        clear(root);
        free(root->name);
        free(root);
    }
}

void pl_python_json_free_at(struct pl_python_json **root_at)
{
    pl_python_json_free(*root_at);
    *root_at = NULL;
}

/* Hashes `name`, starting from the object's own address, so that nobody can prepare colliding names. */
static size_t hash(const struct pl_python_json *object, const char *name)
{
    uint64_t value =
        pl_hash(PL_HASH_START ^ ((uint64_t)(uintptr_t)object * UINT64_C(0x9E3779B97F4A7C15)), name, strlen(name));

    return (size_t)(value ^ (value >> 32));
}

/* Returns the slot that holds `name`, or else the free slot for it. */
static struct pl_python_json **find_slot(const struct pl_python_json *object, const char *name)
{
    size_t at = hash(object, name) & (object->slots_count - 1);

    while (object->slots[at] && strcmp(object->slots[at]->name, name) != 0) {
        at = (at + 1) & (object->slots_count - 1);
    }
    return &object->slots[at];
}

/* Keeps the table at most half full once the object is large. */
static enum pl_status index_grow(struct pl_python_json *object, struct pl_error *reterr)
{
    size_t want = 4 * (size_t)PL_PYTHON_JSON_INDEX_FROM;

    if (object->count < PL_PYTHON_JSON_INDEX_FROM || 2 * object->count + 2 <= object->slots_count) {
        return PL_OK;
    }
    while (want < 4 * object->count) {
        want *= 2;
    }
    free(object->slots);
    object->slots_count = 0;
    object->slots = pl_memory_new(want, sizeof(*object->slots), reterr);
    if (!object->slots) {
        return PL_MEMORY;
    }
    object->slots_count = want;
    for (struct pl_python_json *child = object->first; child; child = child->next) {
        *find_slot(object, child->name) = child;
    }
    return PL_OK;
}

static struct pl_python_json *find_member(const struct pl_python_json *object, const char *name)
{
    if (object->slots) {
        return *find_slot(object, name);
    }
    for (struct pl_python_json *child = object->first; child; child = child->next) {
        if (strcmp(child->name, name) == 0) {
            return child;
        }
    }
    return NULL;
}

void pl_python_json_node_append(struct pl_python_json *array, struct pl_python_json *item)
{
    if (!array->last) {
        array->first = item;
    } else {
        array->last->next = item;
    }
    array->last = item;
    array->count++;
}

/* Gives `place` the contents of `value`, and frees the emptied node `value`; `place` keeps its name and neighbours. */
static void replace(struct pl_python_json *place, struct pl_python_json *value)
{
    char *name = place->name;
    struct pl_python_json *next = place->next;

    clear(place);
    free(value->name);
    *place = *value;
    place->name = name;
    place->next = next;
    free(value);
    /* The hashes of the table begin from the object's address, which has just changed. */
    if (place->slots) {
        memset(place->slots, 0, place->slots_count * sizeof(*place->slots));
        for (struct pl_python_json *child = place->first; child; child = child->next) {
            *find_slot(place, child->name) = child;
        }
    }
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
    free(value->name);
    value->name = name;
    if (index_grow(object, reterr) != PL_OK) {
        pl_python_json_free(value);
        return PL_MEMORY;
    }
    pl_python_json_node_append(object, value);
    if (object->slots) {
        *find_slot(object, name) = value;
    }
    return PL_OK;
}

enum pl_python_json_kind pl_python_json_kind(const struct pl_python_json *node)
{
    return node->kind;
}

const struct pl_python_json *pl_python_json_member(const struct pl_python_json *node, const char *name)
{
    return node && node->kind == PL_PYTHON_JSON_OBJECT ? find_member(node, name) : NULL;
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
