/* SPDX-License-Identifier: Apache-2.0 */
/* Covers examples/nn/options.c. */
#include "examples/nn/options.h"

#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

struct words {
    uint64_t epochs, batch_size;
    double learning_rate;
    const char *data;
};

static const struct nn_option table[] = {
    NN_NUMBER(struct words, epochs, "3", 0, 1000, "rounds"),
    NN_NUMBER(struct words, batch_size, "64", 1, 4096, "samples a step"),
    NN_NUMBER(struct words, learning_rate, "0.02", 0, 1, "of a step"),
    NN_TEXT(struct words, data, "", "directory"),
    NN_OPTIONS_END,
};

static enum pl_status parse(const char *const *argv, struct words *ret_words, struct pl_error *reterr)
{
    char *copy[16] = {0};
    int argc = 0;

    for (; argv[argc]; argc++) {
        union {
            const char *constant;
            char *plain;
        } word = {.constant = argv[argc]};

        copy[argc] = word.plain;
    }
    return nn_options_parse(table, argc, copy, ret_words, reterr);
}

TEST(words_fill_their_fields_and_the_others_keep_defaults)
{
    struct words words;

    ck_ok(parse, (const char *const[]){"program", NULL}, &words);
    ck_assert_uint_eq(words.epochs, 3);
    ck_assert_uint_eq(words.batch_size, 64);
    ck_assert_double_eq(words.learning_rate, 0.02);
    ck_assert_str_eq(words.data, "");
    ck_ok(parse,
          (const char *const[]){"program", "--batch-size", "16", "--batch_size=32", "--data", "--odd name",
                                "--learning-rate=1e-3", NULL},
          &words);
    ck_assert_uint_eq(words.epochs, 3);
    ck_assert_uint_eq(words.batch_size, 32);
    ck_assert_double_eq(words.learning_rate, 1e-3);
    ck_assert_str_eq(words.data, "--odd name");
}

static void refused(const char *text, const char *first, const char *second)
{
    struct words words;

    ck_fails(PL_INVALID, text, parse, (const char *const[]){"program", first, second, NULL}, &words);
}

TEST(a_wrong_word_is_refused_with_what_was_expected)
{
    refused("'--epoch' is not a hyperparameter", "--epoch", "3");
    refused("'--epochss' is not a hyperparameter", "--epochss", "3");
    refused("'-epochs' is not a hyperparameter", "-epochs", "3");
    refused("'epochs' is not a hyperparameter", "epochs", "3");
    refused("'--epochs' needs a value", "--epochs", NULL);
    refused("--epochs is '', expected a whole number from 0 to 1000", "--epochs=", NULL);
    refused("--epochs is '3.5', expected a whole number", "--epochs", "3.5");
    refused("--epochs is '-1', expected a whole number", "--epochs", "-1");
    refused("--epochs is '1001', expected a whole number", "--epochs", "1001");
    refused("--epochs is '18446744073709551616', expected", "--epochs", "18446744073709551616");
    refused("--batch-size is '0', expected a whole number from 1 to 4096", "--batch_size", "0");
    refused("--learning-rate is 'fast', expected a number from 0 to 1", "--learning-rate", "fast");
    refused("--learning-rate is 'nan', expected a number", "--learning-rate", "nan");
    refused("--learning-rate is '1.5', expected a number", "--learning-rate=1.5", NULL);
    refused("--learning-rate is '0.1x', expected a number", "--learning-rate=0.1x", NULL);
}

TEST(help_names_every_option_with_its_default)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);

    nn_options_help(table, "digits", stream);
    ck_assert_int_eq(fclose(stream), 0);
    ck_has(text, "usage: digits ");
    ck_has(text, "--batch-size");
    ck_has(text, "samples a step (64)");
    ck_has(text, "directory (none)");
    free(text);
}

UNIT_MAIN("examples/options")
