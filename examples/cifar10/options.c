/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/cifar10/options.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct number {
    const char *name;
    double least, most, fallback;
    size_t offset;
    const char *help;
};

static const struct number numbers[] = {
#define CIFAR10_NUMBER_ROW(field, name, least, most, fallback, help) {name, least, most, fallback, offsetof(struct cifar10_options, field), help},
    CIFAR10_NUMBER_LIST(CIFAR10_NUMBER_ROW)
#undef CIFAR10_NUMBER_ROW
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static double *field_of(struct cifar10_options *options, const struct number *number)
{
    return (double *)(void *)((char *)options + number->offset);
}

/* The learning rate's neighbours may be fractions; counts may not. */
static bool is_whole(const struct number *number)
{
    return number->most > 100 && number->fallback == floor(number->fallback);
}

/* Whether `word` is "--name", up to its end or a '='. */
static bool is_option(const char *word, const char *name)
{
    if (strncmp(word, "--", 2) != 0) {
        return false;
    }
    for (word += 2; *name && (*word == *name || (*word == '_' && *name == '-')); word++, name++) {
    }
    return !*name && (!*word || *word == '=');
}

static enum pl_status set_number(const struct number *number, const char *text, struct cifar10_options *options, struct pl_error *reterr)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= number->least && value <= number->most) || (is_whole(number) && value != floor(value))) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a %snumber from %g to %g", number->name, text,
                            is_whole(number) ? "whole " : "", number->least, number->most);
    }
    *field_of(options, number) = value;
    return PL_OK;
}

static enum pl_status set(const char *word, const char *value, struct cifar10_options *options, struct pl_error *reterr)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        if (is_option(word, numbers[i].name)) {
            return set_number(&numbers[i], value, options, reterr);
        }
    }
    if (is_option(word, "data")) {
        options->data = value;
        return PL_OK;
    }
    if (is_option(word, "model-dir")) {
        options->model_dir = value;
        return PL_OK;
    }
    return pl_error_set(reterr, PL_INVALID, "'%s' is not a hyperparameter of this program; --help lists them", word);
}

enum pl_status cifar10_options_parse(int argc, char *const *argv, struct cifar10_options *ret_options, struct pl_error *reterr)
{
    struct cifar10_options options = {.data = "", .model_dir = ""};

    for (size_t i = 0; i < NUMBERS; i++) {
        *field_of(&options, &numbers[i]) = numbers[i].fallback;
    }
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
    *ret_options = options;
    return PL_OK;
}

void cifar10_options_help(FILE *stream)
{
    fprintf(stream, "usage: cifar10 [--HYPERPARAMETER VALUE]...\n\n");
    for (size_t i = 0; i < NUMBERS; i++) {
        fprintf(stream, "  --%-16s %s (%g)\n", numbers[i].name, numbers[i].help, numbers[i].fallback);
    }
    fprintf(stream, "  --%-16s %s\n", "data", "directory or s3://BUCKET/PREFIX with training/ and testing/, in place of SageMaker's channels");
    fprintf(stream, "  --%-16s %s\n", "model-dir", "where model.safetensors goes, in place of SM_MODEL_DIR");
}
