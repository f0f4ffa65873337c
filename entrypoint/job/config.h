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

/** A member of an object: a text, or a list. */
struct pl_config_member {
    const char *name;
    const char **text;                  /* set to the text, or */
    const struct pl_python_json **list; /* set to the list */
    const char *fallback;               /* stands for a text that is absent or null */
    bool is_optional;                   /* NULL if it is absent, null, or an empty text */
};

/** Read `count` members of `object`, which has been read from the file `path`. Errors: PL_INVALID. */
enum pl_status pl_config_members(const char *path, const struct pl_python_json *object,
                                 const struct pl_config_member *members, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID unless every item of `list` is a string that is not empty and that a program can get (no U+0000). */
enum pl_status pl_config_check_names(const char *path, const struct pl_python_json *list, const char *expected,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
