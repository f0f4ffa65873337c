/* SPDX-License-Identifier: Apache-2.0 */
/* Reads command lines by getopt_long() and a table. An error names the option, its value and what was expected. */
#include "base/options.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 62, FIRST_CODE = 256 };

/* Reports an unknown option: it may be an ambiguous beginning of several, or similar to one. */
static enum pl_status unknown(const struct option *table, const char *word, int length, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text candidates = PL_TEXT_NONE;
    char name[64], hint[100];
    struct pl_text_near spelling = {.name = name};
    size_t count = 0;

    snprintf(name, sizeof(name), "%.*s", length - 2, word + 2);
    for (const struct option *option = table; option->name; option++) {
        if (strncmp(option->name, name, strlen(name)) == 0) {
            pl_text_printf(&candidates, "%s--%s", count++ > 0 ? " or " : "", option->name);
        }
        pl_text_near_compare(&spelling, option->name, PL_TEXT_NEAR_EDITS);
    }
    if (*name && count > 1) {
        return pl_error_set(reterr, PL_INVALID, "option %.*s is ambiguous: it can be %s", length, word,
                            pl_text_string(&candidates));
    }
    return pl_error_set(reterr, PL_INVALID, "there is no option %.*s%s; --help lists the options", length, word,
                        pl_text_near_hint(&spelling, "--", hint, sizeof(hint)));
}

static enum pl_status misused(int argc, char **argv, const struct option *table, bool lacks_value,
                              struct pl_error *reterr)
{
    const char *word = optind > 1 && optind <= argc ? argv[optind - 1] : "";
    int length = (int)strcspn(word, "=");

    if (strncmp(word, "--", 2) != 0) {
        return pl_error_set(reterr, PL_INVALID, "there is no option -%c; --help lists the options", optopt);
    }
    if (lacks_value) {
        return pl_error_set(reterr, PL_INVALID, "%s needs a value; --help lists the options", word);
    }
    if (optopt) { /* known option without a value, used with one */
        return pl_error_set(reterr, PL_INVALID, "%.*s takes no value, found '%s'", length, word, word + length + 1);
    }
    return unknown(table, word, length, reterr);
}

enum pl_status pl_options_whole(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number,
                                struct pl_error *reterr)
{
    unsigned long long number;
    char *end;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || number < least || number > most) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a whole number from %llu to %llu", name, text,
                            (unsigned long long)least, (unsigned long long)most);
    }
    *ret_number = number;
    return PL_OK;
}

enum pl_status pl_options_real(const char *name, const char *text, double least, double most, double *ret_number,
                               struct pl_error *reterr)
{
    double number;

    if (!pl_text_number(text, &number) || !(number >= least && number <= most)) {
        return pl_error_set(reterr, PL_INVALID, "--%s is '%s', expected a number from %g to %g", name, text, least,
                            most);
    }
    *ret_number = number;
    return PL_OK;
}

/* Finds `text` among the words that the option accepts. */
static enum pl_status find_word(const struct pl_option *option, const char *text, int *ret_place,
                                struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text list = PL_TEXT_NONE;
    const char *word = option->value;

    for (int place = 0; *word != '\0'; place++) {
        const size_t length = strcspn(word, "|");
        const bool is_last = word[length] == '\0';

        if (strncmp(text, word, length) == 0 && text[length] == '\0') {
            *ret_place = place;
            return PL_OK;
        }
        pl_text_append(&list, place == 0 ? "" : is_last ? " or " : ", ");
        pl_text_append_n(&list, word, length);
        word += length + !is_last;
    }
    return pl_error_set(reterr, PL_INVALID, "%s is '%s', expected %s", option->name, text, pl_text_string(&list));
}

/* Stores the option's value in its field. `text` is NULL for an option without a value. */
static enum pl_status take(const struct pl_option *option, const char *text, void *target, struct pl_error *reterr)
{
    void *field = (char *)target + option->at;
    const char *name = option->name + 2;
    uint64_t whole = (uint64_t)option->number;
    int place = 0;

    if (option->read) {
        return option->read(name, text, field, reterr);
    }
    if (text && strchr(option->value, '|')) {
        PL_TRY(find_word(option, text, &place, reterr));
        whole += (uint64_t)place;
    }
    if (option->most > 0 && option->type != PL_OPTION_REAL) {
        PL_TRY(pl_options_whole(name, text, (uint64_t)option->least, (uint64_t)option->most, &whole, reterr));
        whole *= option->unit > 0 ? option->unit : 1;
    }
    switch (option->type) {
    case PL_OPTION_BOOL:
        *(bool *)field = true;
        return PL_OK;
    case PL_OPTION_TEXT:
        *(const char **)field = text;
        return PL_OK;
    case PL_OPTION_REAL:
        return pl_options_real(name, text, (double)option->least, (double)option->most, field, reterr);
    case PL_OPTION_INT:
        *(int *)field = (int)whole;
        return PL_OK;
    case PL_OPTION_INT64:
        *(uint64_t *)field = whole;
        return PL_OK;
    }
    return PL_OK;
}

/* Reads only the options with `is_first`, or only the others. */
static enum pl_status read_some(const struct pl_option *table, bool is_first, const char *letters,
                                const struct option *rows, int argc, char **argv, void *target, struct pl_error *reterr)
{
    int code;

    opterr = 0;
    optind = 0; /* 0 makes glibc start again at the first argument */
    while ((code = getopt_long(argc, argv, letters, rows, NULL)) != -1) {
        const struct pl_option *option = table;

        if (code == 'h') {
            return PL_END;
        }
        if (code == ':' || code == '?') {
            return misused(argc, argv, rows, code == ':', reterr);
        }
        while (code < FIRST_CODE ? option->letter != code : option != &table[code - FIRST_CODE]) {
            option++;
        }
        PL_TRY(option->is_first == is_first ? take(option, optarg, target, reterr) : PL_OK);
    }
    return PL_OK;
}

enum pl_status pl_options_read(const struct pl_option *table, int argc, char **argv, void *target,
                               struct pl_error *reterr)
{
    struct option rows[MOST_OPTIONS + 2] = {{.name = NULL}};
    char letters[MOST_OPTIONS + 4], *end;
    bool has_first = false;
    size_t count = 0;

    while (table[count].name) {
        count++;
    }
    PL_BUG_IF(count > MOST_OPTIONS);
    /* '+': stop at the first other word; ':': tell a missing value from an unknown option */
    end = stpcpy(letters, table[count].ends_at_word ? "+:h" : ":h");
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct option){table[i].name + 2, table[i].value ? required_argument : no_argument, NULL,
                                  FIRST_CODE + (int)i};
        has_first = has_first || table[i].is_first;
        if (table[i].letter) {
            *end++ = table[i].letter;
        }
    }
    *end = '\0';
    rows[count] = (struct option){"help", no_argument, NULL, 'h'};
    if (has_first) {
        PL_TRY(read_some(table, true, letters, rows, argc, argv, target, reterr));
    }
    return read_some(table, false, letters, rows, argc, argv, target, reterr);
}
