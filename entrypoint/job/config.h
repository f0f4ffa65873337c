/* SPDX-License-Identifier: Apache-2.0 */
/** Typed reading of a configuration file: a value of another type is an error that names the place. */
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

/** Get the string `name` of `object`. If it is absent or null: `fallback`, or PL_INVALID if that is NULL. */
enum pl_status pl_config_string(const char *path, const struct pl_python_json *object, const char *name,
                                const char *fallback, const char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/** Get the member `name`, which must be of `kind`. If it is absent or null: NULL, or PL_INVALID if `required`. */
enum pl_status pl_config_member(const char *path, const struct pl_python_json *object, const char *name,
                                enum pl_python_json_kind kind, bool required, const struct pl_python_json **ret_node,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID unless every item of `list` is a string that is not empty and that a program can get (no U+0000). */
enum pl_status pl_config_check_names(const char *path, const struct pl_python_json *list, const char *expected,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
