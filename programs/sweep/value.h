/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A value of strict JSON with its place in a text that a user has written. Each function that reads a value returns an
 * error with the place and what was expected: "SOURCE, line 1, column 9: batch-size: expected ..., found ...". Numbers
 * keep their text.
 *
 * Test  tests/unit/programs/sweep/test_space.c
 */
#ifndef PL_PROGRAMS_SWEEP_VALUE_H
#define PL_PROGRAMS_SWEEP_VALUE_H

#include "base/json/python_json.h"

struct pl_sweep_value {
    const char *source;
    const struct pl_python_json *node;  /* NULL if there is no such value */
    const struct pl_python_json *above; /* what it is or would be a part of; NULL for the root */
    const char *name;                   /* its own, or that of the list in which it is; NULL for the root */
};

/** Returns the member `name`; its `node` is NULL if there is no such member, or it is null. */
struct pl_sweep_value pl_sweep_value_member(const struct pl_sweep_value *object, const char *name);

/** Returns `node`, an item or a member of `above`, as a value. */
struct pl_sweep_value pl_sweep_value_child(const struct pl_sweep_value *above, const struct pl_python_json *node);

/** Sets the error with the place, "expected `expected`, found ...", and returns PL_INVALID. */
enum pl_status pl_sweep_value_wrong(const struct pl_sweep_value *value, const char *expected, struct pl_error *reterr);

/** Whether the value is there and of this kind. */
bool pl_sweep_value_is(const struct pl_sweep_value *value, enum pl_python_json_kind kind);

/* Each of these functions reads a value of its type. PL_INVALID if the value is missing or of another type. */
enum pl_status pl_sweep_value_text(const struct pl_sweep_value *value, const char **ret_text,
                                   struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_sweep_value_number(const struct pl_sweep_value *value, double least, double most, double *ret_number,
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

#endif
