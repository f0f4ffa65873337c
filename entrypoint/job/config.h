/* SPDX-License-Identifier: Apache-2.0 */
/** Reads a configuration file with typed values. A value of another type is an error that names its line and column. */
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
    const char **text;                  /* receives the text; NULL: the member is a list */
    const struct pl_python_json **list; /* receives the list; NULL: the member is a text */
    const char *fallback;               /* the text if the member is absent or null */
    bool is_optional;                   /* the text or list is NULL if the member is absent, null or an empty text */
};

/** Read `count` members of `object`, which has been read from the file `path`. Errors: PL_INVALID. */
enum pl_status pl_config_members(const char *path, const struct pl_python_json *object,
                                 const struct pl_config_member *members, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** PL_INVALID unless every item of `list` is a string that is not empty and that a program can get (no U+0000). */
enum pl_status pl_config_check_names(const char *path, const struct pl_python_json *list, const char *expected,
                                     struct pl_error *reterr) PL_MUST_CHECK;

#endif
