/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the process environment that can be read, changed and passed to a child. */
#include "base/environment.h"

#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pl_environment {
    char **strings; /* count + 1 pointers, the last one is NULL */
    size_t count;
    size_t capacity;
};

static enum pl_status append(struct pl_environment *environment, char *string, struct pl_error *reterr)
{
    PL_TRY(
        pl_memory_grow(&environment->strings, &environment->capacity, environment->count + 2, sizeof(char *), reterr));
    environment->strings[environment->count++] = string;
    environment->strings[environment->count] = NULL;
    return PL_OK;
}

static enum pl_status new_from(char *const *strings, struct pl_environment **ret_environment, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    size_t count = 0;

    while (strings && strings[count]) {
        count++;
    }
    PL_TRY(pl_memory_alloc(&environment, 1, sizeof(*environment), reterr));
    PL_TRY(pl_memory_grow(&environment->strings, &environment->capacity, count + 1, sizeof(char *), reterr));
    for (; environment->count < count; environment->count++) {
        char *copy = pl_memory_string(strings[environment->count], reterr);

        PL_TRY(copy ? PL_OK : PL_MEMORY);
        environment->strings[environment->count] = copy;
    }
    environment->strings[count] = NULL;
    *ret_environment = PL_TAKE(environment);
    return PL_OK;
}

enum pl_status pl_environment_new(struct pl_environment **ret_environment, struct pl_error *reterr)
{
    return new_from(environ, ret_environment, reterr);
}

enum pl_status pl_environment_new_empty(struct pl_environment **ret_environment, struct pl_error *reterr)
{
    return new_from(NULL, ret_environment, reterr);
}

enum pl_status pl_environment_new_copy(const struct pl_environment *source, struct pl_environment **ret_environment,
                                       struct pl_error *reterr)
{
    return new_from(source->strings, ret_environment, reterr);
}

void pl_environment_free(struct pl_environment *environment)
{
    if (!environment) {
        return;
    }
    for (size_t i = 0; i < environment->count; i++) {
        free(environment->strings[i]);
    }
    free(environment->strings);
    free(environment);
}

/* Returns the variable's index, or count if it is unset. The first of two equal names wins, as in getenv(3). */
static size_t find(const struct pl_environment *environment, const char *name, size_t length)
{
    if (memchr(name, '=', length)) {
        return environment->count; /* "A=B" must not find "A=B=C" */
    }
    for (size_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->strings[i], name, length) == 0 && environment->strings[i][length] == '=') {
            return i;
        }
    }
    return environment->count;
}

const char *pl_environment_get(const struct pl_environment *environment, const char *name)
{
    const size_t length = strlen(name), at = find(environment, name, length);

    return at < environment->count ? environment->strings[at] + length + 1 : NULL;
}

const char *pl_environment_own(const char *name)
{
    size_t length = strlen(name);

    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return (*entry)[length + 1] != '\0' ? *entry + length + 1 : NULL;
        }
    }
    return NULL;
}

const char *pl_environment_get_or(const struct pl_environment *environment, const char *name, const char *fallback)
{
    const char *value = pl_environment_get(environment, name);

    return value && *value ? value : fallback;
}

enum pl_status pl_environment_get_number_or(const struct pl_environment *environment, const char *name,
                                            unsigned fallback, unsigned most, unsigned *ret_number,
                                            struct pl_error *reterr)
{
    const char *text = pl_environment_get_or(environment, name, NULL);
    unsigned long number;
    char *end;

    if (!text) {
        *ret_number = fallback;
        return PL_OK;
    }
    number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s is '%s': expected a whole number from 1", name, text);
    }
    *ret_number = number < most ? (unsigned)number : most;
    return PL_OK;
}

/* Sets the variable whose name is the first `length` bytes of `name`. */
static enum pl_status set(struct pl_environment *environment, const char *name, size_t length, const char *value,
                          struct pl_error *reterr)
{
    PL_AUTO_FREE char *string = NULL;
    size_t at;

    if (length == 0 || memchr(name, '=', length)) {
        return pl_error_set(reterr, PL_INVALID, "'%.*s' is not a name for an environment variable", (int)length, name);
    }
    PL_TRY(pl_memory_alloc(&string, length + strlen(value) + 2, 1, reterr));
    memcpy(string, name, length);
    string[length] = '=';
    strcpy(string + length + 1, value);
    at = find(environment, name, length);
    if (at < environment->count) {
        free(environment->strings[at]);
        environment->strings[at] = PL_TAKE(string);
        return PL_OK;
    }
    PL_TRY(append(environment, string, reterr));
    string = NULL;
    return PL_OK;
}

enum pl_status pl_environment_set(struct pl_environment *environment, const char *name, const char *value,
                                  struct pl_error *reterr)
{
    return set(environment, name, strlen(name), value, reterr);
}

enum pl_status pl_environment_export(const char *name, const char *value, struct pl_error *reterr)
{
    if (setenv(name, value, 0) != 0) {
        return pl_error_errno(reterr, "set the variable %s", name);
    }
    return PL_OK;
}

enum pl_status pl_environment_put(struct pl_environment *environment, const char *string, struct pl_error *reterr)
{
    const size_t length = strcspn(string, "=");

    return string[length] == '='
               ? set(environment, string, length, string + length + 1, reterr)
               : pl_error_set(reterr, PL_INVALID, "'%s' sets no environment variable: expected NAME=value", string);
}

enum pl_status pl_environment_add(struct pl_environment *environment, const struct pl_environment *more,
                                  struct pl_error *reterr)
{
    for (size_t i = 0; i < more->count; i++) {
        PL_TRY(pl_environment_put(environment, more->strings[i], reterr));
    }
    return PL_OK;
}

void pl_environment_unset(struct pl_environment *environment, const char *name)
{
    size_t at;

    while ((at = find(environment, name, strlen(name))) < environment->count) {
        free(environment->strings[at]);
        memmove(&environment->strings[at], &environment->strings[at + 1], (environment->count - at) * sizeof(char *));
        environment->count--;
    }
}

char *const *pl_environment_strings(const struct pl_environment *environment)
{
    return environment->strings;
}
