/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What SageMaker takes in the body of CreateTrainingJob, as one table: of each key that matters for a job's container
 * its kind and limits, and the keys that have no meaning on this machine.
 *
 * Source  the model of the API that botocore carries (sagemaker 2017-07-24), with which tests/integration/local_job.py
 *         compares the table
 * Test    tests/unit/programs/local/test_job.c
 */
#ifndef PL_PROGRAMS_LOCAL_LIMITS_H
#define PL_PROGRAMS_LOCAL_LIMITS_H

#include "base/json/json.h"

/* Limits of the API's lists, by which a job's arrays have their sizes too. */
enum {
    PL_LOCAL_MOST_HYPERPARAMETERS = 100,
    PL_LOCAL_MOST_VARIABLES = 100,
    PL_LOCAL_MOST_METRICS = 40,
    PL_LOCAL_MOST_CHANNELS = 20,
    PL_LOCAL_MOST_ATTRIBUTES = 16,
    PL_LOCAL_MOST_GROUPS = 5,
    PL_LOCAL_MOST_WORDS = 100,
};

enum pl_local_limit_kind {
    PL_LOCAL_OBJECT,
    PL_LOCAL_LIST,
    PL_LOCAL_MAP,
    PL_LOCAL_TEXT,
    PL_LOCAL_WHOLE,
    PL_LOCAL_BOOL,
    PL_LOCAL_IGNORED, /* valid, but without a meaning here; what is below it is not checked */
    PL_LOCAL_REFUSED, /* valid, but not imitated; `words` says what to do */
};

struct pl_local_limit {
    const char *path; /* "InputDataConfig[].ChannelName"; {} is a value of a map, {name} its key */
    enum pl_local_limit_kind kind;
    int64_t least, most; /* characters, items, or the number itself */
    const char *pattern; /* that the whole text matches (PCRE2); NULL: any */
    const char *words;   /* the values that it may have, with blanks between them; NULL: any */
    bool required;
};

/** Ends with a row without a path. */
extern const struct pl_local_limit pl_local_limits[];

/** Is told each key that has no meaning here, by its path. */
typedef enum pl_status pl_local_ignored_fn(void *context, const char *path, struct pl_error *reterr);

/**
 * Checks all of a document, whose text is `text`.
 *
 * Errors  PL_INVALID: "SOURCE, line L, column C: PATH: expected ..., found ..."
 */
enum pl_status pl_local_limits_check(const struct pl_json *document, const char *text, const char *source,
                                     pl_local_ignored_fn *ignored, void *context,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the error that `what` is wrong with the value of `path` (InputDataConfig[0].InputMode), with its place in the
 * document, which pl_local_limits_check() has taken. Without a document, or such a value in it, there is no place.
 */
enum pl_status pl_local_limits_refuse(const struct pl_json *document, const char *text, const char *source,
                                      const char *path, const char *what, struct pl_error *reterr) PL_MUST_CHECK;

/** Checks a text for the key `path`. `where` names its place in the error, such as "--channel". */
enum pl_status pl_local_limits_check_text(const char *path, const char *where, const char *value,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** The same for a number of items or a whole number. */
enum pl_status pl_local_limits_check_number(const char *path, const char *where, int64_t value,
                                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
