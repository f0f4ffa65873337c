/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A copy of the process environment that can be read, changed and passed to a child. Only pl_environment_export()
 * changes the process's own environment. This is the only file of the project that uses `environ`.
 */
#ifndef PL_BASE_ENVIRONMENT_H
#define PL_BASE_ENVIRONMENT_H

#include "base/status.h"

#include <stddef.h>

struct pl_environment;

/** Copies this process's environment. */
enum pl_status pl_environment_new(struct pl_environment **ret_environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes an environment without variables. */
enum pl_status pl_environment_new_empty(struct pl_environment **ret_environment, struct pl_error *reterr) PL_MUST_CHECK;

enum pl_status pl_environment_new_copy(const struct pl_environment *source, struct pl_environment **ret_environment,
                                       struct pl_error *reterr) PL_MUST_CHECK;

void pl_environment_free(struct pl_environment *environment);

PL_CLEANUP(pl_environment_free_at, struct pl_environment, pl_environment_free)
#define PL_AUTO_ENVIRONMENT __attribute__((cleanup(pl_environment_free_at)))

/** Returns the value, or NULL if the variable is unset; valid until the variable is changed. */
const char *pl_environment_get(const struct pl_environment *environment, const char *name);

/** Returns the value if it is set and not empty, else `fallback`. */
const char *pl_environment_get_or(const struct pl_environment *environment, const char *name, const char *fallback);

/** Returns the value of the variable `name` of this process itself; NULL if it is unset or empty. */
const char *pl_environment_own(const char *name);

/**
 * Reads an integer of at least 1 from a variable that another program has set. Returns `most` if it is larger, and
 * `fallback` if the variable is unset or empty. Errors: PL_INVALID if it is not such an integer.
 */
enum pl_status pl_environment_get_number_or(const struct pl_environment *environment, const char *name,
                                            unsigned fallback, unsigned most, unsigned *ret_number,
                                            struct pl_error *reterr) PL_MUST_CHECK;

/** Sets or replaces a variable; a new one becomes the last. Errors: PL_INVALID if the name is empty or contains '='. */
enum pl_status pl_environment_set(struct pl_environment *environment, const char *name, const char *value,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_environment_set(), for a text NAME=value. */
enum pl_status pl_environment_put(struct pl_environment *environment, const char *string,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Sets a variable of this process itself, unless it is set, for libraries that read settings from it. Do not call it
 * while another thread may read or change the process's environment.
 */
enum pl_status pl_environment_export(const char *name, const char *value, struct pl_error *reterr) PL_MUST_CHECK;

/** Sets every variable of `more`. */
enum pl_status pl_environment_add(struct pl_environment *environment, const struct pl_environment *more,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_environment_unset(struct pl_environment *environment, const char *name);

/** Returns the "NAME=value" strings in order, then NULL, as for execve(2). They are valid until the next change. */
char *const *pl_environment_strings(const struct pl_environment *environment);

#endif
