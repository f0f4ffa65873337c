/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A value of strict JSON and the place where it stands, for what a user has written: asked for what it is, it tells in
 * the error what was expected where, "SOURCE:LINE:COLUMN: space.batch-size: expected ..., found ...".
 *
 * base/json/json.h does the same for programs that link cJSON; the front binary links libc alone, and numbers keep
 * their text here.
 *
 * Test  tests/unit/programs/sweep/test_space.c, tests/unit/programs/sweep/test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_VALUE_H
#define PL_PROGRAMS_SWEEP_VALUE_H

#include "base/json/python_json.h"

struct pl_sweep_value {
    const char *source;
    const struct pl_python_json *node;  /* NULL: there is nothing */
    const struct pl_python_json *above; /* where nothing was found */
    char path[120];                     /* "space.batch-size[2]", "" for the root; cut */
};

struct pl_sweep_value pl_sweep_value_root(const struct pl_python_json *root, const char *source);

/** The member `name`; nothing if there is none. */
struct pl_sweep_value pl_sweep_value_member(const struct pl_sweep_value *object, const char *name);

/** An item or a member of `above`: `node`, and its index there. */
struct pl_sweep_value pl_sweep_value_child(const struct pl_sweep_value *above, const struct pl_python_json *node,
                                           size_t index);

/** PL_INVALID: "SOURCE:LINE:COLUMN: PATH: expected `expected`, found ...". */
enum pl_status pl_sweep_value_wrong(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr);

/* What a value is; PL_INVALID where it is nothing or something else. */
enum pl_status pl_sweep_value_text(const struct pl_sweep_value *value, const char **ret_text,
                                   struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_value_number(const struct pl_sweep_value *value, double *ret_number,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** A whole number (7 or 7.0) from `least` to `most`, which lie within 2^53 on both sides of 0. */
enum pl_status pl_sweep_value_whole(const struct pl_sweep_value *value, int64_t least, int64_t most,
                                    int64_t *ret_number, struct pl_error *reterr) PL_MUST_CHECK;

/** An object whose members have only names of `names`, which ends with NULL. */
enum pl_status pl_sweep_value_object(const struct pl_sweep_value *value, const char *const *names,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** A number, a string, true or false: what a hyperparameter may be. */
bool pl_sweep_value_is_scalar(const struct pl_python_json *node);

/** Append it as it was written. */
void pl_sweep_value_print(const struct pl_python_json *node, struct pl_text *text);

/**
 * Append text that may come from a program as a JSON string, of at most `most_bytes` of it: no byte of it keeps the
 * document from being read. NULL is null.
 */
void pl_sweep_value_print_string(const char *string, size_t most_bytes, struct pl_text *text);

#endif
