/* SPDX-License-Identifier: Apache-2.0 */
/** The structure of a JSON tree, for the files python_json*.c only. */
#ifndef PL_BASE_JSON_PYTHON_JSON_TREE_H
#define PL_BASE_JSON_PYTHON_JSON_TREE_H

#include "base/json/python_json.h"

/** Number of members above which an object gets a hash table of their names. */
enum { PL_PYTHON_JSON_INDEX_FROM = 16 };

struct pl_python_json {
    enum pl_python_json_kind kind;
    bool boolean;
    unsigned line;
    unsigned column;
    char *name; /* name in the parent object, else NULL */
    char *text; /* text of a string or number, else NULL */
    struct pl_python_json *first;
    struct pl_python_json *last;
    struct pl_python_json *next;
    size_t count;
    struct pl_python_json **slots; /* open addressing, slots_count a power of two; NULL while the object is small */
    size_t slots_count;
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
