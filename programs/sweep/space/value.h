/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A value of strict JSON with its place in a text that a user has written. Each function that reads a value returns an
 * error with the place and what was expected: "SOURCE:LINE:COLUMN: space.batch-size: expected ..., found ...".
 *
 * base/json/json.h does the same for programs that link cJSON. These functions link only libc, and numbers keep their
 * text.
 *
 * Test  tests/unit/programs/sweep/test_space.c, tests/unit/programs/sweep/test_journal.c
 */
#ifndef PL_PROGRAMS_SWEEP_VALUE_H
#define PL_PROGRAMS_SWEEP_VALUE_H

#include "base/json/python_json.h"

struct pl_sweep_value {
    const char *source;
    const struct pl_python_json *node;  /* NULL if there is no such value */
    const struct pl_python_json *above; /* if there is none: the object in which it was looked for */
    char path[120];                     /* "space.batch-size[2]", "" for the root; a long path is cut */
};

struct pl_sweep_value pl_sweep_value_root(const struct pl_python_json *root, const char *source);

/** Returns the member `name`; its `node` is NULL if there is no such member. */
struct pl_sweep_value pl_sweep_value_member(const struct pl_sweep_value *object, const char *name);

/** Returns `node` as a value: an item or a member of `above`, at `index`. */
struct pl_sweep_value pl_sweep_value_child(const struct pl_sweep_value *above, const struct pl_python_json *node,
                                           size_t index);

/** Sets the error "SOURCE:LINE:COLUMN: PATH: expected `expected`, found ..." and returns PL_INVALID. */
enum pl_status pl_sweep_value_wrong(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr);

/* Each of these functions reads a value of its type. PL_INVALID if the value is missing or of another type. */
enum pl_status pl_sweep_value_text(const struct pl_sweep_value *value, const char **ret_text,
                                   struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_value_number(const struct pl_sweep_value *value, double *ret_number,
                                     struct pl_error *reterr) PL_MUST_CHECK;
/** Reads a whole number (7 or 7.0) from `least` to `most`. Both limits must lie between -2^53 and 2^53. */
enum pl_status pl_sweep_value_whole(const struct pl_sweep_value *value, int64_t least, int64_t most,
                                    int64_t *ret_number, struct pl_error *reterr) PL_MUST_CHECK;

/** Checks that the value is an object, and that it has only members of `names`, an array that ends with NULL. */
enum pl_status pl_sweep_value_object(const struct pl_sweep_value *value, const char *const *names,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Returns whether it is a number, a string, true or false: the possible values of a hyperparameter. */
bool pl_sweep_value_is_scalar(const struct pl_python_json *node);

/** Appends the value as the user wrote it. */
void pl_sweep_value_print(const struct pl_python_json *node, struct pl_text *text);

/**
 * Appends at most `most_bytes` of a string as a JSON string, or null for NULL. The string may come from a program: its
 * bytes cannot make the document unreadable.
 */
void pl_sweep_value_print_string(const char *string, size_t most_bytes, struct pl_text *text);

#endif
