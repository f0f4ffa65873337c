/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/mnist/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum pl_status parse_COUNT(const char *name, const char *text, mnist_COUNT *ret_value, struct pl_error *reterr)
{
    char *end;

    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    if (end == text || *end || errno != 0 || strchr(text, '-')) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a whole number from 0", name, text);
    }
    return PL_OK;
}

static enum pl_status parse_REAL(const char *name, const char *text, mnist_REAL *ret_value, struct pl_error *reterr)
{
    char *end;

    *ret_value = strtod(text, &end);
    if (end == text || *end || !isfinite(*ret_value) || *ret_value < 0.0) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a number from 0", name, text);
    }
    return PL_OK;
}

static enum pl_status parse_TEXT(const char *name, const char *text, mnist_TEXT *ret_value, struct pl_error *reterr)
{
    (void)name;
    (void)reterr;
    *ret_value = text;
    return PL_OK;
}

/* Whether `word` is "--name", up to its end or a '='. */
static bool is_option(const char *word, const char *name)
{
    if (strncmp(word, "--", 2) != 0) {
        return false;
    }
    word += 2;
    while (*name && (*word == *name || (*word == '_' && *name == '-'))) {
        word++;
        name++;
    }
    return !*name && (!*word || *word == '=');
}

static enum pl_status set(const char *word, const char *value, struct mnist_options *options, struct pl_error *reterr)
{
#define MNIST_OPTION_SET(field, name, type, fallback, help)                                                                                          \
    if (is_option(word, name)) {                                                                                                                     \
        return parse_##type(name, value, &options->field, reterr);                                                                                   \
    }
    MNIST_OPTION_LIST(MNIST_OPTION_SET)
#undef MNIST_OPTION_SET
    return pl_error_set(reterr, PL_INVALID, "'%s' is not a hyperparameter of this program; --help lists them", word);
}

enum pl_status mnist_options_parse(int argc, char *const *argv, struct mnist_options *ret_options, struct pl_error *reterr)
{
    struct mnist_options options;

#define MNIST_OPTION_DEFAULT(field, name, type, fallback, help) PL_TRY(parse_##type(name, fallback, &options.field, reterr));
    MNIST_OPTION_LIST(MNIST_OPTION_DEFAULT)
#undef MNIST_OPTION_DEFAULT
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *value = strchr(word, '=');

        if (value) {
            value++;
        } else if (i + 1 < argc) {
            value = argv[++i];
        } else {
            return pl_error_set(reterr, PL_INVALID, "'%s' needs a value behind it", word);
        }
        PL_TRY(set(word, value, &options, reterr));
    }
    if (options.batch_size == 0 || options.batch_size > 65536) {
        return pl_error_set(reterr, PL_INVALID, "--batch-size is %llu, expected 1 to 65536", (unsigned long long)options.batch_size);
    }
    *ret_options = options;
    return PL_OK;
}

void mnist_options_help(FILE *stream)
{
    fprintf(stream, "usage: mnist [--HYPERPARAMETER VALUE]...\n\n");
#define MNIST_OPTION_HELP(field, name, type, fallback, help) fprintf(stream, "  --%-20s %s (%s)\n", name, help, *fallback ? fallback : "none");
    MNIST_OPTION_LIST(MNIST_OPTION_HELP)
#undef MNIST_OPTION_HELP
}
