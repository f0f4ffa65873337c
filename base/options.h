/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The options of a program's command line: getopt_long() over a table. Its rows, one an option, say where values go. An
 * error names the option, its value and what was expected.
 *
 *   struct tool { bool quiet; uint64_t epochs; const char *region; };
 *   #define PL_OPTIONS_OF struct tool
 *   static const struct pl_option table[] = {
 *       PL_OPTION("--quiet", NULL, "no line an epoch", PL_TO(quiet))
 *       PL_OPTION("--epochs", "N", "stop after N epochs", PL_TO_NUMBER(epochs, 1, 1000))
 *       PL_OPTIONS_END
 *   };
 *
 * The rows of a verb's options stand in entrypoint/options.h, of which help is made too.
 *
 * Test  tests/unit/base/test_options.c, tests/integration/command_line.py
 */
#ifndef PL_BASE_OPTIONS_H
#define PL_BASE_OPTIONS_H

#include "base/status.h"

#include <getopt.h>
#include <stddef.h>

/* exit code of a program for a wrong command line, after a message that tells what is wrong and what was expected */
enum { PL_EXIT_USAGE = 2 };

/** Reads `text`, the value of --`name`, into the field. */
typedef enum pl_status pl_option_reader(const char *name, const char *text, void *field, struct pl_error *reterr);

struct pl_option {
    const char *name;  /* "--rate"; NULL ends the table */
    const char *value; /* the word that follows it: "BYTES"; "efa|tcp|any": one of these words; NULL: no word */
    char letter;       /* its short form; 0: none */
    bool is_first;     /* it is read before all others, wherever it stands: they edit what it brings */
    bool ends_at_word; /* last row: the first word that is not an option ends the options */
    size_t at;         /* offset of the field */
    enum pl_option_type {
        PL_OPTION_BOOL,  /* true if the option is given */
        PL_OPTION_TEXT,  /* the value as it is */
        PL_OPTION_REAL,  /* a double */
        PL_OPTION_INT,   /* of an enum too */
        PL_OPTION_INT64, /* signed or not */
    } type;
    long double least, most; /* range of a number; the type is exact for each uint64_t too */
    uint64_t unit;           /* factor for a whole number; 0: none */
    int number;              /* without a range: what is stored, or for one of several words the number of the first */
    pl_option_reader *read;  /* reads the value instead of all this; NULL: none */
};

/* A row: the name, the value's name, the text of help, and where the value goes, which is one of the PL_TO...() below
 * and may be followed by other members. */
#define PL_OPTION(option, argument, words, ...) {.name = (option), .value = (argument), __VA_ARGS__},
#define PL_OPTIONS_END PL_OPTION(NULL, NULL, NULL, .ends_at_word = false)
/* The same where other words are a program with options of its own: the first of them ends the options. */
#define PL_OPTIONS_THEN_PROGRAM PL_OPTION(NULL, NULL, NULL, .ends_at_word = true)

/* To a bool, text, or for one of several words an int, of the struct that the macro PL_OPTIONS_OF names. */
#define PL_TO(field)                                                                                                   \
    .at = offsetof(PL_OPTIONS_OF, field), .type = _Generic(((PL_OPTIONS_OF *)NULL)->field, bool                        \
                                                           : PL_OPTION_BOOL, const char *                              \
                                                           : PL_OPTION_TEXT, double                                    \
                                                           : PL_OPTION_REAL, int                                       \
                                                           : PL_OPTION_INT, unsigned                                   \
                                                           : PL_OPTION_INT, int64_t                                    \
                                                           : PL_OPTION_INT64, uint64_t                                 \
                                                           : PL_OPTION_INT64)
/* Sets an int or enum to `constant`. The option with several words sets it to `constant` plus the index of the word. */
#define PL_TO_VALUE(field, constant) PL_TO(field), .number = (int)(constant)
/* To a number, which is whole or has a fraction as the field has. */
#define PL_TO_NUMBER(field, smallest, largest) PL_TO(field), .least = (smallest), .most = (largest)
#define PL_TO_UNITS(field, smallest, largest, size) PL_TO_NUMBER(field, smallest, largest), .unit = (size)
/* To a field by a function, or to several fields of the struct. */
#define PL_TO_READER(field, function) .at = offsetof(PL_OPTIONS_OF, field), .read = (function)
#define PL_TO_READER_OF_ALL(function) .read = (function)

/**
 * Reads the options into the struct `target`, which has the defaults. The other arguments begin at `optind` then. Each
 * program has --help and -h, too.
 *
 * Errors  PL_END (without a report) at --help; PL_INVALID for an option that is not in `table`, is used in another way
 *         or has a wrong value.
 */
enum pl_status pl_options_read(const struct pl_option *table, int argc, char **argv, void *target,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Reads `text`, the value of --`name`, as a whole number from `least` to `most`. */
enum pl_status pl_options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** The same for a number that may have a fraction. */
enum pl_status pl_options_real(const char *name, const char *text, double least, double most, double *ret_number,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
