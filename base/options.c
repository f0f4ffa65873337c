/* SPDX-License-Identifier: Apache-2.0 */
/* Reads command lines by getopt_long(). An error names the option, its value and what was expected. */
#include "base/options.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HINT_BYTES = 300 };

/* Lists the options that begin with the `length` characters at `name`: "--quiet or --quick"; "" if there are fewer than
 * two. */
static const char *candidates(const struct option *table, const char *name, int length, char text[HINT_BYTES])
{
    size_t used = 0, count = 0;

    text[0] = '\0';
    for (const struct option *option = table; option->name; option++) {
        if (strncmp(option->name, name, (size_t)length) == 0 && used < HINT_BYTES) {
            used += (size_t)snprintf(text + used, HINT_BYTES - used, "%s--%s", count > 0 ? " or " : "", option->name);
            count++;
        }
    }
    if (count < 2) {
        text[0] = '\0';
    }
    return text;
}

/* Reports a word that is not an option: several options may begin with it, or the name of one may be similar. */
static enum pl_status unknown(const struct option *table, const char *word, int length, struct pl_error *reterr)
{
    char name[64], text[HINT_BYTES];
    struct pl_text_near spelling = {.name = name};

    if (length > 2 && candidates(table, word + 2, length - 2, text)[0] != '\0') {
        return pl_error_set(reterr, PL_INVALID, "option %.*s is ambiguous: it can be %s", length, word, text);
    }
    snprintf(name, sizeof(name), "%.*s", length - 2, word + 2);
    for (const struct option *option = table; option->name; option++) {
        pl_text_near_compare(&spelling, option->name, PL_TEXT_NEAR_EDITS);
    }
    return pl_error_set(reterr, PL_INVALID, "there is no option %.*s%s; --help lists the options", length, word,
                        pl_text_near_hint(&spelling, "--", text, sizeof(text)));
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
    if (optopt) { /* a known option that takes no value was given one */
        return pl_error_set(reterr, PL_INVALID, "%.*s takes no value, found '%s'", length, word, word + length + 1);
    }
    return unknown(table, word, length, reterr);
}

enum pl_status pl_options_next(int argc, char **argv, const char *letters, const struct option *table, int *ret_option,
                               struct pl_error *reterr)
{
    bool ends_at_word = *letters == '+'; /* getopt_long() knows '+' as the first letter only */
    char own_letters[64];
    int option;

    PL_BUG_IF(snprintf(own_letters, sizeof(own_letters), "%s:%s", ends_at_word ? "+" : "", letters + ends_at_word) >=
              (int)sizeof(own_letters));
    opterr = 0;
    option = getopt_long(argc, argv, own_letters, table, NULL);
    if (option == ':' || option == '?') {
        return misused(argc, argv, table, option == ':', reterr);
    }
    if (option == -1) {
        return PL_END;
    }
    *ret_option = option;
    return PL_OK;
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
