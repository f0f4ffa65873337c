/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Prints values as the Python toolkit prints them into arguments and variables: str(), repr() and compact JSON.
 *
 * Source  docs/contract.md, "What a program sees"
 * Test    tests/unit/entrypoint/job/test_pyrepr.c, tests/integration/golden.py
 */
#ifndef PL_ENTRYPOINT_JOB_PYREPR_H
#define PL_ENTRYPOINT_JOB_PYREPR_H

#include "base/json/python_json.h"
#include "base/text.h"
#include "entrypoint/job/strv.h"

/** Append repr() of a decoded JSON value: 'a b', True, None, [1, 2.5], {'k': 'v'} with members in file order. */
void pl_pyrepr_append(const struct pl_python_json *node, struct pl_text *text);

/**
 * Append the value of a hyperparameter as an argument: null is empty, a string is copied, an object is
 * "key=value,key=value" sorted by key with each value through str(), and all others are str().
 */
void pl_pyrepr_append_argument(const struct pl_python_json *node, struct pl_text *text);

/** Append the value as version 3 of the SDK does, for arguments and variables: a string is copied, and all others are
 * json.dumps(). */
void pl_pyrepr_append_dumps(const struct pl_python_json *node, struct pl_text *text);

/** Add "--name" and value for every member of `object` as version 3 of the SDK does: in file order, null as "null". */
void pl_pyrepr_dumps_arguments(const struct pl_python_json *object, struct pl_strv *words);

/**
 * Add "--name" (or "-n" for one character, "" for an empty name) and value for every member of `object`, sorted by
 * name. Values keep the inner form.
 */
void pl_pyrepr_arguments(const struct pl_python_json *object, struct pl_strv *words);

#endif
