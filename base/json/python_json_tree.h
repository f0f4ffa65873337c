/* SPDX-License-Identifier: Apache-2.0 */
/** The nodes of a JSON tree, only for the files of base/json. */
#ifndef PL_BASE_JSON_PYTHON_JSON_TREE_H
#define PL_BASE_JSON_PYTHON_JSON_TREE_H

#include "base/json/python_json.h"

#include <cjson/cJSON.h>

enum {
    PL_PYTHON_JSON_INDEX_FROM = 64,    /* objects with more members have a hash table of their names */
    PL_PYTHON_JSON_IS_FLOAT = 1 << 10, /* in cJSON's type: a number with a fraction or an exponent, or not finite */
};

/** The hash table of an object's names: open addressing, `count` a power of two. */
struct pl_python_json_index {
    size_t count;
    struct pl_python_json *slots[];
};

/**
 * A node. cJSON's own functions can read it: `valuestring` is the text of a string or a number, `valuedouble` is a
 * number's value. For an array or object, `valueint` is the number of children, and `child->prev` is the last child.
 */
struct pl_python_json {
    cJSON item; /* must be the first member */
    unsigned line;
    unsigned column;
    const struct pl_python_json *parent; /* NULL at the root */
    struct pl_python_json_index *index;  /* NULL while the object is small */
};

/** Returns an empty node of `kind`, or NULL if memory is out. */
struct pl_python_json *pl_python_json_node_new(enum pl_python_json_kind kind);

/**
 * Adds `value` under `name`; takes ownership of both, even if it fails. If the name exists, that member keeps its
 * position and gets the new value.
 */
enum pl_status pl_python_json_node_put(struct pl_python_json *object, char *name, struct pl_python_json *value,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Appends `item` to an array, which owns it then. */
void pl_python_json_node_append(struct pl_python_json *array, struct pl_python_json *item);

#endif
