/* SPDX-License-Identifier: Apache-2.0 */
/** The structure of a JSON tree, for the files of base/json only. */
#ifndef PL_BASE_JSON_PYTHON_JSON_TREE_H
#define PL_BASE_JSON_PYTHON_JSON_TREE_H

#include "base/json/python_json.h"

#include <cjson/cJSON.h>

enum {
    PL_PYTHON_JSON_INDEX_FROM = 64,    /* number of members above which an object gets a hash table of their names */
    PL_PYTHON_JSON_IS_FLOAT = 1 << 10, /* in cJSON's type: a number with a fraction or an exponent, or not finite */
};

/** The hash table of an object's names: open addressing, `count` a power of two. */
struct pl_python_json_index {
    size_t count;
    struct pl_python_json *slots[];
};

/**
 * A node. cJSON's own functions can read it: `valuestring` is the text of a string or a number, `valuedouble` a
 * number's value. An array or object keeps the number of its children in `valueint`, and its last child in
 * `child->prev`.
 */
struct pl_python_json {
    cJSON item; /* the first member */
    unsigned line;
    unsigned column;
    const struct pl_python_json *parent; /* NULL at the root */
    struct pl_python_json_index *index;  /* NULL while the object is small */
};

/** Returns an empty node of `kind`; NULL if memory is out. */
struct pl_python_json *pl_python_json_node_new(enum pl_python_json_kind kind);

/**
 * Adds `value` under `name` and takes over both, also on failure. An existing member of that name keeps its place and
 * gets the new value.
 */
enum pl_status pl_python_json_node_put(struct pl_python_json *object, char *name, struct pl_python_json *value,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Appends `item` to an array and takes it over. */
void pl_python_json_node_append(struct pl_python_json *array, struct pl_python_json *item);

#endif
