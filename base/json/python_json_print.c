/* SPDX-License-Identifier: Apache-2.0 */
/* Prints exactly what json.dumps() and repr(float) print. */
#include "base/json/python_json.h"
#include "base/json/python_json_tree.h"
#include "base/memory.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_DIGITS = 17 };

void pl_python_json_print_string(const char *string, struct pl_text *text)
{
    static const char short_forms[] = "\"\"\\\\\nn\rr\tt\ff\bb"; /* pairs: a character, and the letter of its escape */

    pl_text_append_char(text, '"');
    while (*string != '\0') {
        const char *run = string, *pair;
        unsigned bytes;
        uint32_t code;

        while (*run >= 0x20 && *run < 0x7F && *run != '"' && *run != '\\') {
            run++;
        }
        pl_text_append_n(text, string, (size_t)(run - string));
        if (*run == '\0') {
            break;
        }
        code = pl_python_json_decode(run, &bytes);
        string = run + bytes;
        for (pair = short_forms; *pair != '\0' && (uint32_t)*pair != code; pair += 2) {
        }
        if (*pair != '\0') {
            pl_text_printf(text, "\\%c", pair[1]);
        } else if (code >= 0x10000) {
            pl_text_printf(text, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                           0xDC00 + ((code - 0x10000) & 0x3FF));
        } else {
            pl_text_printf(text, "\\u%04x", code);
        }
    }
    pl_text_append_char(text, '"');
}

/* Adds 1 to a number of `count` decimal digits; false if all digits were nines. */
static bool digits_increment(char *digits, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        if (digits[i] != '9') {
            digits[i]++;
            return true;
        }
        digits[i] = '0';
    }
    return false;
}

static double digits_value(const char *digits, int exponent, locale_t c_locale)
{
    char text[48];

    snprintf(text, sizeof(text), "%c.%se%d", digits[0], digits + 1, exponent);
    return strtod_l(text, NULL, c_locale);
}

/*
 * Finds the shortest decimal digits that read back as `value` (positive and finite), and the exponent of the first
 * digit. Usually these are the correctly rounded digits of that length. Just above a power of two, the gap below is
 * half the gap above: there the next larger digits may read back although the nearest do not.
 */
static void shortest_digits(double value, char *digits, int *ret_count, int *ret_exponent)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(c_locale);

    for (int count = 1; count <= DOUBLE_DIGITS; count++) {
        char text[48];
        int exponent;

        snprintf(text, sizeof(text), "%.*e", count - 1, value);
        digits[0] = text[0];
        memcpy(digits + 1, text + 2, (size_t)(count - 1));
        digits[count] = '\0';
        exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
        *ret_count = count;
        *ret_exponent = exponent;
        if (count == DOUBLE_DIGITS || digits_value(digits, exponent, c_locale) == value) {
            break;
        }
        if (digits_increment(digits, count) && digits_value(digits, exponent, c_locale) == value) {
            break;
        }
    }
    uselocale(before);
    freelocale(c_locale);
    while (*ret_count > 1 && digits[*ret_count - 1] == '0') {
        digits[--*ret_count] = '\0';
    }
}

void pl_python_json_print_double(double value, struct pl_text *text)
{
    char digits[DOUBLE_DIGITS + 1];
    int count;
    int exponent;

    if (isnan(value)) {
        pl_text_append(text, "NaN");
        return;
    }
    if (signbit(value)) {
        pl_text_append_char(text, '-');
        value = -value;
    }
    if (isinf(value)) {
        pl_text_append(text, "Infinity");
        return;
    }
    if (value == 0.0) {
        pl_text_append(text, "0.0");
        return;
    }
    shortest_digits(value, digits, &count, &exponent);
    if (exponent < -4 || exponent >= 16) {
        pl_text_append_char(text, digits[0]);
        if (count > 1) {
            pl_text_printf(text, ".%s", digits + 1);
        }
        pl_text_printf(text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        pl_text_printf(text, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else if (count <= exponent + 1) {
        pl_text_printf(text, "%s%.*s.0", digits, exponent + 1 - count, "0000000000000000");
    } else {
        pl_text_printf(text, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
}

/* Compares names by code point. In UTF-8 this is the order of the bytes, except for U+0000's form in memory. */
static int compare_names(const void *left_at, const void *right_at)
{
    const unsigned char *left = (const unsigned char *)(*(const struct pl_python_json *const *)left_at)->item.string;
    const unsigned char *right = (const unsigned char *)(*(const struct pl_python_json *const *)right_at)->item.string;

    while (*left != '\0' && *left == *right) {
        left++;
        right++;
    }
    if (*left == 0xC0 || *right == 0xC0) {
        /* C0 begins only U+0000, which sorts after the end of a name and before all other characters. */
        int left_rank = *left == '\0' ? 0 : *left == 0xC0 ? 1 : 2;
        int right_rank = *right == '\0' ? 0 : *right == 0xC0 ? 1 : 2;

        return left_rank - right_rank;
    }
    return (int)*left - (int)*right;
}

static void print_number(const struct pl_python_json *node, struct pl_text *text)
{
    const char *digits = node->item.valuestring;

    if (node->item.type & PL_PYTHON_JSON_IS_FLOAT) {
        pl_python_json_print_double(node->item.valuedouble, text);
    } else {
        pl_text_append(text, strcmp(digits, "-0") == 0 ? "0" : digits);
    }
}

static void print_member(const struct pl_python_json *child, unsigned style, bool first, struct pl_text *text)
{
    bool spaced = (style & PL_PYTHON_JSON_SPACED) != 0;

    if (!first) {
        pl_text_append(text, spaced ? ", " : ",");
    }
    if (child->item.string) {
        pl_python_json_print_string(child->item.string, text);
        pl_text_append(text, spaced ? ": " : ":");
    }
    pl_python_json_print(child, style, text);
}

const struct pl_python_json **pl_python_json_sorted(const struct pl_python_json *node)
{
    const struct pl_python_json **sorted =
        pl_memory_new(pl_python_json_count(node) + 1, sizeof(struct pl_python_json *), NULL);
    size_t at = 0;

    if (sorted) {
        PL_PYTHON_JSON_EACH(child, node) {
            sorted[at++] = child;
        }
        qsort(sorted, at, sizeof(struct pl_python_json *), compare_names);
    }
    return sorted;
}

static void print_children(const struct pl_python_json *node, unsigned style, struct pl_text *text)
{
    const struct pl_python_json **sorted;

    if ((style & PL_PYTHON_JSON_SORTED) == 0 || pl_python_json_kind(node) == PL_PYTHON_JSON_ARRAY ||
        pl_python_json_count(node) < 2) {
        PL_PYTHON_JSON_EACH(child, node) {
            print_member(child, style, child == pl_python_json_first(node), text);
        }
        return;
    }
    sorted = pl_python_json_sorted(node);
    if (!sorted) {
        text->failed = true;
        return;
    }
    for (size_t i = 0; i < pl_python_json_count(node); i++) {
        print_member(sorted[i], style, i == 0, text);
    }
    free(sorted);
}

void pl_python_json_print(const struct pl_python_json *node, unsigned style, struct pl_text *text)
{
    const enum pl_python_json_kind kind = pl_python_json_kind(node);

    switch (kind) {
    case PL_PYTHON_JSON_NULL:
        pl_text_append(text, "null");
        break;
    case PL_PYTHON_JSON_BOOL:
        pl_text_append(text, pl_python_json_bool(node) ? "true" : "false");
        break;
    case PL_PYTHON_JSON_INT:
    case PL_PYTHON_JSON_FLOAT:
        print_number(node, text);
        break;
    case PL_PYTHON_JSON_STRING:
        pl_python_json_print_string(pl_python_json_text(node), text);
        break;
    case PL_PYTHON_JSON_ARRAY:
    case PL_PYTHON_JSON_OBJECT:
        pl_text_append_char(text, kind == PL_PYTHON_JSON_OBJECT ? '{' : '[');
        print_children(node, style, text);
        pl_text_append_char(text, kind == PL_PYTHON_JSON_OBJECT ? '}' : ']');
        break;
    }
}
