/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Hyperparameters in SageMaker's form: --name value or --name=value; '_' and '-' mean the same. A program has a struct
 * with a field for each hyperparameter, and a table that describes the fields:
 *
 *   struct options { uint64_t epochs; double momentum; const char *data; };
 *   static const struct nn_option table[] = {
 *       NN_NUMBER(struct options, epochs, "3", 1, 1e6, "number of passes over the samples"),
 *       NN_NUMBER(struct options, momentum, "0.9", 0, 1, "of SGD"),
 *       NN_TEXT(struct options, data, "", "directory with training/ and testing/"),
 *       NN_OPTIONS_END,
 *   };
 *
 * Test  tests/unit/examples/test_options.c
 */
#ifndef EXAMPLES_NN_OPTIONS_H
#define EXAMPLES_NN_OPTIONS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum nn_option_type {
    NN_OPTION_WHOLE, /* uint64_t */
    NN_OPTION_REAL,  /* double */
    NN_OPTION_TEXT,  /* const char *, which points into argv or the table */
};

struct nn_option {
    const char *field; /* name of the field: batch_size is called --batch-size; NULL ends a table */
    enum nn_option_type type;
    size_t offset;
    const char *fallback;
    double least, most; /* range of a number */
    const char *help;
};

/** A number, an integer or real by the field's type. `most` of an integer is at most 2^53. */
#define NN_NUMBER(owner, name, default_text, smallest, largest, help_text)                                             \
    {                                                                                                                  \
        .field = #name,                                                                                                \
        .type = _Generic(((owner *)0)->name, uint64_t                                                                  \
                         : NN_OPTION_WHOLE, double                                                                     \
                         : NN_OPTION_REAL),                                                                            \
        .offset = offsetof(owner, name), .fallback = (default_text), .least = (smallest), .most = (largest),           \
        .help = (help_text)                                                                                            \
    }

/* clang-format off */
#define NN_TEXT(owner, name, default_text, help_text)                            \
    {                                                                            \
        .field = #name,                                                          \
        .type = _Generic(((owner *)0)->name, const char *: NN_OPTION_TEXT),      \
        .offset = offsetof(owner, name), .fallback = (default_text), .help = (help_text) \
    }
/* clang-format on */

#define NN_OPTIONS_END                                                                                                 \
    {                                                                                                                  \
        .field = NULL                                                                                                  \
    }

/**
 * Fills the struct that `table` describes: first with the defaults, then with the arguments in `argv`. Errors:
 * PL_INVALID names the wrong argument and what was expected.
 */
enum pl_status nn_options_parse(const struct nn_option *table, int argc, char *const *argv, void *ret_options,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Prints the help text. */
void nn_options_help(const struct nn_option *table, const char *program, FILE *stream);

#endif
