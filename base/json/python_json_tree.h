/* SPDX-License-Identifier: Apache-2.0 */
/** How a JSON tree is kept: for the files python_json*.c only. */
#ifndef PL_BASE_JSON_PYTHON_JSON_TREE_H
#define PL_BASE_JSON_PYTHON_JSON_TREE_H

#include "base/json/python_json.h"

/** Objects with more members than this get a hash table over their names. */
enum { PL_PYTHON_JSON_INDEX_FROM = 16 };

struct pl_python_json {
    enum pl_python_json_kind kind;
    bool boolean;
    unsigned line;
    unsigned column;
    char *name; /* in the parent object, else NULL */
    char *text; /* string or number lexeme, else NULL */
    struct pl_python_json *first;
    struct pl_python_json *last;
    struct pl_python_json *next;
    size_t count;
    struct pl_python_json **slots; /* open addressing, slots_count a power of two; NULL while the object is small */
    size_t slots_count;
};

/** An empty node of `kind`; NULL when memory is out. */
struct pl_python_json *pl_python_json_node_new(enum pl_python_json_kind kind);

/**
 * Add `value` under `name`, both taken over whatever happens. A member of that name keeps its place and gets the new
 * value.
 */
enum pl_status pl_python_json_node_put(struct pl_python_json *object, char *name, struct pl_python_json *value,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Add `item` after the others of an array; taken over. */
void pl_python_json_node_append(struct pl_python_json *array, struct pl_python_json *item);

#endif
