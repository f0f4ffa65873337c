/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The options of a program's command line: getopt_long() over a table. Each row describes an option and the field for
 * its value. An error names the option, its value and what was expected.
 *
 *   struct tool { bool quiet; uint64_t epochs; const char *region; };
 *   #define PL_OPTIONS_OF struct tool
 *   static const struct pl_option table[] = {
 *       PL_OPTION("--quiet", NULL, "no line an epoch", PL_TO(quiet))
 *       PL_OPTION("--epochs", "N", "stop after N epochs", PL_TO_NUMBER(epochs, 1, 1000))
 *       PL_OPTIONS_END
 *   };
 *
 * The options of paceline's verbs are in entrypoint/options.h; help is generated from them.
 *
 * Test  tests/unit/base/test_options.c, tests/integration/command_line.py
 */
#ifndef PL_BASE_OPTIONS_H
#define PL_BASE_OPTIONS_H

#include "base/status.h"

#include <getopt.h>
#include <stddef.h>

/* exit code after a wrong command line; a message has said what is wrong and what was expected */
enum { PL_EXIT_USAGE = 2 };

/** Reads `text`, the value of --`name`, into the field. */
typedef enum pl_status pl_option_reader(const char *name, const char *text, void *field, struct pl_error *reterr);

struct pl_option {
    const char *name;  /* "--rate"; NULL ends the table */
    const char *value; /* name of its value: "BYTES"; "efa|tcp|any": the value is one of these words; NULL: no value */
    char letter;       /* short form, one letter; 0: none */
    bool is_first;     /* the option is read before all others, which can then change its effect */
    bool ends_at_word; /* last row: the first word that is not an option ends the options */
    size_t at;         /* offset of the field */
    enum pl_option_type {
        PL_OPTION_BOOL,  /* true if the option is given */
        PL_OPTION_TEXT,  /* the value as it is */
        PL_OPTION_REAL,  /* a double */
        PL_OPTION_INT,   /* an int or an enum */
        PL_OPTION_INT64, /* an int64_t or a uint64_t */
    } type;
    long double least, most; /* range of a number; long double is exact for every uint64_t */
    uint64_t unit;           /* factor for an integer; 0: none */
    int number;              /* if there is no range: value to store; for several words, the number of the first one */
    pl_option_reader *read;  /* reads the value instead of the members above; NULL: none */
};

/* A row: the name, the value's name, the help text, and the field: one of the PL_TO...() below, which may be followed
 * by other members. */
#define PL_OPTION(option, argument, words, ...) {.name = (option), .value = (argument), __VA_ARGS__},
#define PL_OPTIONS_END PL_OPTION(NULL, NULL, NULL, .ends_at_word = false)
/* Last row if a program with its own options may follow: its name ends our options. */
#define PL_OPTIONS_THEN_PROGRAM PL_OPTION(NULL, NULL, NULL, .ends_at_word = true)

/* The field is a bool or text, or an int for one of several words, in the struct that PL_OPTIONS_OF names. */
#define PL_TO(field)                                                                                                   \
    .at = offsetof(PL_OPTIONS_OF, field), .type = _Generic(((PL_OPTIONS_OF *)NULL)->field, bool                        \
                                                           : PL_OPTION_BOOL, const char *                              \
                                                           : PL_OPTION_TEXT, double                                    \
                                                           : PL_OPTION_REAL, int                                       \
                                                           : PL_OPTION_INT, unsigned                                   \
                                                           : PL_OPTION_INT, int64_t                                    \
                                                           : PL_OPTION_INT64, uint64_t                                 \
                                                           : PL_OPTION_INT64)
/* The field is an int or enum, which becomes `constant`; for one of several words, `constant` plus the word's index. */
#define PL_TO_VALUE(field, constant) PL_TO(field), .number = (int)(constant)
/* The field is a number: an integer or real, by its type. */
#define PL_TO_NUMBER(field, smallest, largest) PL_TO(field), .least = (smallest), .most = (largest)
#define PL_TO_UNITS(field, smallest, largest, size) PL_TO_NUMBER(field, smallest, largest), .unit = (size)
/* A function stores the value in this field. */
#define PL_TO_READER(field, function) .at = offsetof(PL_OPTIONS_OF, field), .read = (function)

/**
 * Reads the options into the struct `target`, which contains the defaults. Afterwards the other arguments begin at
 * `optind`. --help and -h exist in every program.
 *
 * Errors  PL_END (without a report) at --help; PL_INVALID for an option that is not in `table`, is used wrongly or has
 *         a wrong value.
 */
enum pl_status pl_options_read(const struct pl_option *table, int argc, char **argv, void *target,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Reads `text`, the value of --`name`, as an integer from `least` to `most`. */
enum pl_status pl_options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_options_whole(), for a real number. */
enum pl_status pl_options_real(const char *name, const char *text, double least, double most, double *ret_number,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
