/* SPDX-License-Identifier: Apache-2.0 */
/* Parses hyperparameters of the form --name value into a struct, by a table. */
#include "examples/nn/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64 };

/* Returns the option's name, without "--". */
static const char *name_of(const struct nn_option *option, char name[NAME_BYTES])
{
    size_t length = 0;

    for (; option->field[length] && length < NAME_BYTES - 1; length++) {
        name[length] = (char)(option->field[length] == '_' ? '-' : option->field[length]);
    }
    name[length] = '\0';
    return name;
}

/* Whether `word` is "--name", alone or followed by '='. */
static bool is_option(const char *word, const char *field)
{
    if (strncmp(word, "--", 2) != 0) {
        return false;
    }
    for (word += 2; *field && (*word == *field || (*word == '-' && *field == '_')); word++, field++) {
    }
    return !*field && (!*word || *word == '=');
}

static bool read_number(const struct nn_option *option, const char *text, void *field)
{
    char *end;

    errno = 0;
    if (option->type == NN_OPTION_WHOLE) {
        uint64_t value = strtoull(text, &end, 10);

        *(uint64_t *)field = value;
        return end != text && !*end && errno == 0 && !strchr(text, '-') && (double)value >= option->least &&
               (double)value <= option->most;
    }
    *(double *)field = strtod(text, &end);
    return end != text && !*end && *(double *)field >= option->least && *(double *)field <= option->most;
}

static enum pl_status set(const struct nn_option *option, const char *text, void *options, struct pl_error *reterr)
{
    void *field = (char *)options + option->offset;
    char name[NAME_BYTES];

    if (option->type == NN_OPTION_TEXT) {
        *(const char **)field = text;
        return PL_OK;
    }
    if (!read_number(option, text, field)) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a %s from %.16g to %.16g",
                            name_of(option, name), text, option->type == NN_OPTION_WHOLE ? "whole number" : "number",
                            option->least, option->most);
    }
    return PL_OK;
}

enum pl_status nn_options_parse(const struct nn_option *table, int argc, char *const *argv, void *ret_options,
                                struct pl_error *reterr)
{
    for (const struct nn_option *option = table; option->field; option++) {
        PL_TRY(set(option, option->fallback, ret_options, reterr));
    }
    for (int i = 1; i < argc; i++) {
        const struct nn_option *option = table;
        const char *word = argv[i];
        const char *value = strchr(word, '=');

        while (option->field && !is_option(word, option->field)) {
            option++;
        }
        if (!option->field) {
            return pl_error_set(reterr, PL_INVALID, "'%s' is not a hyperparameter of this program; --help lists them",
                                word);
        }
        if (!value && i + 1 == argc) {
            return pl_error_set(reterr, PL_INVALID, "'%s' needs a value after it", word);
        }
        PL_TRY(set(option, value ? value + 1 : argv[++i], ret_options, reterr));
    }
    return PL_OK;
}

void nn_options_help(const struct nn_option *table, const char *program, FILE *stream)
{
    fprintf(stream, "usage: %s [--HYPERPARAMETER VALUE]...\n\n", program);
    for (const struct nn_option *option = table; option->field; option++) {
        char name[NAME_BYTES];

        fprintf(stream, "  --%-20s %s (%s)\n", name_of(option, name), option->help,
                *option->fallback ? option->fallback : "none");
    }
}
