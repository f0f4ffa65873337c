/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Hyperparameters as SageMaker passes them: --name value or --name=value; '_' and '-' mean the same. A program has a
 * struct with a field for each and a table that describes them:
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
    NN_OPTION_TEXT,  /* const char *, into argv or the table */
};

struct nn_option {
    const char *field; /* batch_size is called --batch-size; NULL closes a table */
    enum nn_option_type type;
    size_t offset;
    const char *fallback;
    double least, most; /* of numbers */
    const char *help;
};

/** A number, whole or not as the field's type says. `most` of whole numbers is at most 2^53. */
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
 * Fill the struct that `table` describes: defaults, then the arguments of `argv`. PL_INVALID says which argument was
 * wrong and what was expected.
 */
enum pl_status nn_options_parse(const struct nn_option *table, int argc, char *const *argv, void *ret_options,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** What --help prints. */
void nn_options_help(const struct nn_option *table, const char *program, FILE *stream);

#endif
