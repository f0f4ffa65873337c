/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The table of the verbs of `paceline`. `paceline help`, each `--help`, the manual page and the shells' completions are
 * printed from it.
 *
 * Test  tests/unit/entrypoint/test_verbs.c, tests/integration/command_line.py, tests/integration/installed.sh
 */
#ifndef PL_ENTRYPOINT_VERBS_H
#define PL_ENTRYPOINT_VERBS_H

#include "base/options.h"

#include <stdio.h>

struct pl_verb_option {
    const char *name;  /* "--rate" */
    const char *value; /* the word after the option: "BYTES"; alternatives are "efa|tcp|any"; NULL: no word */
    const char *text;  /* one paragraph */
};

struct pl_verb {
    const char *name;
    const char *program;   /* file in libexec; NULL: the front binary itself */
    bool needs_words;      /* the verb is refused if it has no arguments */
    const char *summary;   /* one line; NULL: only Paceline itself starts this verb, and help does not list it */
    const char *arguments; /* words after the name, one line for each form */
    const char *text;      /* paragraphs before the options; NULL: none */
    const struct pl_verb_option *options;
    size_t option_count;
    const char *examples; /* command lines, one a line; NULL: `text` has them, or none is needed */
};

struct pl_verb_exit_code {
    const char *code; /* "0", "128 + N" */
    const char *text; /* when a verb ends with this code */
};

/** The exit codes of all verbs; the last has a NULL as its code. */
extern const struct pl_verb_exit_code pl_verbs_exit_codes[];

/** All verbs, those of the front binary first. */
extern const struct pl_verb pl_verbs[];
extern const size_t pl_verbs_count;

/** Returns NULL if there is no such verb. */
const struct pl_verb *pl_verbs_find(const char *name);

/** Prints the text of `paceline help`. */
void pl_verbs_print_list(FILE *out);

/** Prints the text of `paceline VERB --help` for the verb `name`, which must be in the table. */
void pl_verbs_print_help(const char *name, FILE *out);

/**
 * Reads the options of the verb `name` into its program's struct; see pl_options_read(). PL_END: --help, and help was
 * printed. PL_INVALID without a report: the verb needs other arguments and has none, and help was printed to standard
 * error.
 */
enum pl_status pl_verbs_read(const char *name, const struct pl_option *table, int argc, char **argv, void *options,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Logs why the command line is refused, unless `status` is PL_END. Returns the exit code. */
int pl_verbs_refuse(enum pl_status status, const struct pl_error *error);

#endif
