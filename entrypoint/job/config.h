/* SPDX-License-Identifier: Apache-2.0 */
/** Typed reading of a configuration file: each value is what was expected or an error that says where it is. */
#ifndef PL_ENTRYPOINT_JOB_CONFIG_H
#define PL_ENTRYPOINT_JOB_CONFIG_H

#include "base/json/python_json.h"

/**
 * Read the JSON object in the file `path`. A missing file is PL_NOT_FOUND when `required`, else an empty object.
 */
enum pl_status pl_config_read(const char *path, bool required, struct pl_python_json **ret_root,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID: "PATH:LINE:COLUMN: NAME: expected EXPECTED, found ..." for the value `node`. */
enum pl_status pl_config_wrong(const char *path, const struct pl_python_json *node, const char *expected,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** The string `name` of `object`; `fallback` when absent or null, and PL_INVALID when that is NULL. */
enum pl_status pl_config_string(const char *path, const struct pl_python_json *object, const char *name,
                                const char *fallback, const char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** The member `name` when it is of `kind`; NULL when absent or null, and PL_INVALID when `required`. */
enum pl_status pl_config_member(const char *path, const struct pl_python_json *object, const char *name,
                                enum pl_python_json_kind kind, bool required, const struct pl_python_json **ret_node,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID unless every item of `list` is a string that a program can be given (no U+0000) and not empty. */
enum pl_status pl_config_check_names(const char *path, const struct pl_python_json *list, const char *expected,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
