/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a metric's regular expression from its name, or checks one that the user has written. */
#include "programs/sweep/space/metric_regex.h"

#include "base/memory.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits for nested groups, and for characters after each repeat is expanded. The C library's compiler does expand
 * them, and the nested groups of (((a+)+)+)+ double the size at each level. */
enum { NESTED_MAX = 64, WRITTEN_OUT_MAX = 2000 };

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

enum pl_status pl_metric_regex_of_name(const char *name, char **ret_regex, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text regex = PL_TEXT_NONE;

    /* .* matches as much as it can, so that the last number is found. Without ^ a line that does not match would be
     * tried again from each of its bytes. \< (an extension of the C library) is the beginning of a word, so that
     * "accuracy" does not match in "val_accuracy". */
    pl_text_append(&regex, strchr(LETTERS DIGITS "_", name[0]) ? "^.*\\<" : "^.*");
    for (const char *at = name; *at != '\0'; at++) {
        pl_text_printf(&regex, "%s%c", strchr(".[]{}()*+?|^$\\", *at) ? "\\" : "", *at);
    }
    pl_text_append(&regex, "\"?[=: \t]+([-+]?(([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?|[nN][aA][nN]\\>|"
                           "[iI][nN][fF]([iI][nN][iI][tT][yY])?\\>))");
    return pl_text_take(&regex, ret_regex, reterr);
}

/* Returns the closing ] of the bracket expression at `at`, or the end of the text. */
static const char *bracket_end(const char *at)
{
    at++;
    at += *at == '^';
    at += *at == ']';
    while (*at != '\0' && *at != ']') {
        const char *close = at[0] == '[' && at[1] == ':' ? strstr(at + 2, ":]") : NULL;

        at = close ? close + 2 : at + 1;
    }
    return at;
}

/* Returns what to write instead of an escape of other grammars; NULL if POSIX has the escape too. */
static const char *instead_of(const char *escape)
{
    switch (escape[1]) {
    case 'd':
        return "[0-9] in place of \\d";
    case 'w':
        return "[A-Za-z0-9_] in place of \\w";
    case 's':
        return "[[:space:]] in place of \\s";
    default:
        return escape[1] != '\0' && strchr(LETTERS DIGITS, escape[1])
                   ? "no backslash before a letter or digit (this is POSIX's grammar)"
                   : NULL;
    }
}

/* Finds syntax of other grammars. Returns what was expected instead, or NULL if there is nothing wrong. */
static const char *find_foreign(const char *regex)
{
    const char *wrong = NULL;

    for (const char *at = regex; *at != '\0' && !wrong; at++) {
        if (*at == '\\') {
            wrong = instead_of(at);
            at += at[1] != '\0';
        } else if (*at == '[') {
            const char *end = bracket_end(at);

            for (; at < end && !wrong; at++) {
                wrong = *at == '\\' ? instead_of(at) : NULL;
            }
            if (*at == '\0') {
                break;
            }
        } else if (at[0] == '(' && at[1] == '?') {
            wrong = "no (?...): a group is (...) here";
        } else if (strchr("*+?}", at[0]) && at[1] == '?') {
            wrong = "no *? or +?, which do not exist here: for (.*?); write ([^;]*);";
        }
    }
    return wrong;
}

/* Returns how many copies of the preceding item {m,n} or {m,} at `at` expands to. */
static size_t repeats(const char *at)
{
    char *end;
    unsigned long least = strtoul(at + 1, &end, 10);
    unsigned long most = *end == ',' ? strtoul(end + 1, NULL, 10) : 0;

    least = most > least ? most : least + (*end == ',');
    return least < 1 ? 1 : least > WRITTEN_OUT_MAX ? WRITTEN_OUT_MAX : least;
}

static bool is_too_large(const char *regex)
{
    size_t written[NESTED_MAX + 1] = {0}; /* by depth */
    size_t item = 0;                      /* size of the item that a repeat would copy */
    size_t depth = 0;

    for (const char *at = regex; *at != '\0' && written[depth] <= WRITTEN_OUT_MAX; at++) {
        size_t more = 1;

        if (*at == '(') {
            if (++depth > NESTED_MAX) {
                return true;
            }
            written[depth] = 1;
            continue;
        }
        if (*at == ')' && depth > 0) {
            more = item = written[depth--];
        } else if (*at == '+' || *at == '{') {
            more = item * ((*at == '+' ? 2 : repeats(at)) - 1);
            item += more;
            at += *at == '{' ? strcspn(at, "}") : 0;
        } else if (*at != '*' && *at != '?') {
            at = *at == '[' ? bracket_end(at) : at + (at[0] == '\\' && at[1] != '\0');
            item = 1;
        }
        written[depth] += more;
        if (*at == '\0') {
            break;
        }
    }
    return written[depth] > WRITTEN_OUT_MAX;
}

static enum pl_status check(const struct pl_sweep_value *value, const char *text, struct pl_error *reterr)
{
    const char *foreign = find_foreign(text);
    char words[100], expected[160];
    regex_t regex;
    size_t groups;
    int code;

    if (strlen(text) > PL_SWEEP_REGEX_BYTES_MAX) {
        return pl_sweep_value_wrong(value, "a regular expression of at most 1024 bytes", reterr);
    }
    if (foreign) {
        return pl_sweep_value_wrong(value, foreign, reterr);
    }
    if (is_too_large(text)) {
        return pl_sweep_value_wrong(value, "a regular expression with fewer nested repeats", reterr);
    }
    code = regcomp(&regex, text, REG_EXTENDED);
    if (code == REG_ESPACE) {
        return pl_error_set(reterr, PL_MEMORY, "%s: %s: no memory to compile it", value->source, value->path);
    }
    if (code != 0) {
        regerror(code, &regex, words, sizeof(words));
        snprintf(expected, sizeof(expected), "an extended regular expression (%s)", words);
        return pl_sweep_value_wrong(value, expected, reterr);
    }
    groups = regex.re_nsub;
    regfree(&regex);
    return groups > 0 ? PL_OK : pl_sweep_value_wrong(value, "a group around the number, ([0-9.]+)", reterr);
}

enum pl_status pl_metric_regex_read(const struct pl_sweep_value *value, char **ret_regex, struct pl_error *reterr)
{
    const char *text;

    PL_TRY(pl_sweep_value_text(value, &text, reterr));
    PL_TRY(check(value, text, reterr));
    *ret_regex = pl_memory_string(text, reterr);
    return *ret_regex ? PL_OK : PL_MEMORY;
}
