/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a CSV record: columns as numbers or as text. The record's quotes were checked when it was found. */
#include "s3io/record/fields_private.h"

#include "base/text.h"

#include <string.h>

enum { MOST_NUMBER_BYTES = 128, MOST_DIGITS = 15, MOST_POWER = 22 };

/* A column: its text without the enclosing quotes; a quote in the text is doubled. */
struct column {
    const char *text;
    size_t bytes;
    bool is_quoted;
    bool is_followed; /* text other than blanks stands after the closing quote */
};

/* Takes the next column off `*at`, and moves `*at` past its delimiter. After the last column `*at` is NULL. */
static struct column next_column(const char **at, const char *end, char delimiter)
{
    struct column column = {.text = *at};
    const char *stop = *at;

    column.is_quoted = stop < end && *stop == '"';
    if (column.is_quoted) {
        column.text = ++stop;
        while (stop < end && (*stop != '"' || (stop + 1 < end && stop[1] == '"'))) {
            stop += *stop == '"' ? 2 : 1;
        }
        column.bytes = (size_t)(stop - column.text);
        do {
            stop++;
        } while (stop < end && *stop != delimiter && (*stop == ' ' || *stop == '\t'));
        column.is_followed = stop < end && *stop != delimiter;
    }
    stop = stop < end ? memchr(stop, delimiter, (size_t)(end - stop)) : NULL;
    if (!column.is_quoted) {
        column.bytes = (size_t)((stop ? stop : end) - column.text);
    }
    *at = stop ? stop + 1 : NULL;
    return column;
}

/* Reads what most numbers are: up to 15 digits with a point, and an exponent, so that one exact operation makes the
 * nearest double of them. False for all others. */
static bool read_plain(const char *text, double *ret_number)
{
    static const double powers[MOST_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool is_negative = *text == '-';
    const char *at = text + (*text == '-' || *text == '+'), *point = NULL;
    uint64_t digits = 0;
    int count = 0, power = 0;

    for (; (*at >= '0' && *at <= '9') || (*at == '.' && !point); at++) {
        if (*at == '.') {
            point = at;
        } else {
            digits = digits * 10 + (uint64_t)(*at - '0');
            count++;
        }
        if (count > MOST_DIGITS) {
            return false;
        }
    }
    power = point ? (int)(point + 1 - at) : 0;
    if (count > 0 && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1 + (at[1] == '-' || at[1] == '+');
        int value = 0;

        if (*exponent < '0' || *exponent > '9') {
            return false;
        }
        for (; *exponent >= '0' && *exponent <= '9' && value < 1000; exponent++) {
            value = value * 10 + (*exponent - '0');
        }
        power += at[1] == '-' ? -value : value;
        at = exponent;
    }
    if (count == 0 || *at || power > MOST_POWER || power < -MOST_POWER) {
        return false;
    }
    *ret_number = power < 0 ? (double)digits / powers[-power] : (double)digits * powers[power];
    *ret_number = is_negative ? -*ret_number : *ret_number;
    return true;
}

static bool read_integer(const char *text, int64_t *ret_number)
{
    bool is_negative = *text == '-';
    const char *at = text + (*text == '-' || *text == '+');
    int64_t value = 0;

    if (!*at) {
        return false;
    }
    for (; *at; at++) {
        int digit = *at - '0';

        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) { /* counted below zero, where there is one number more */
            return false;
        }
    }
    *ret_number = value;
    return is_negative || !__builtin_sub_overflow(0, value, ret_number);
}

enum pl_status pl_field_put_number(const struct pl_decoder_field *field, const char *number, size_t bytes,
                                   unsigned char *at, struct pl_error *reterr)
{
    char text[MOST_NUMBER_BYTES] = "";
    size_t begin = 0, end = bytes;
    int64_t whole;
    double real;

    while (begin < end && (number[begin] == ' ' || number[begin] == '\t')) {
        begin++;
    }
    while (end > begin && (number[end - 1] == ' ' || number[end - 1] == '\t')) {
        end--;
    }
    if (end - begin < sizeof(text)) {
        memcpy(text, number + begin, end - begin);
    }
    if (pl_field_is_integer(field->type)) {
        if (read_integer(text, &whole)) {
            return pl_field_put_integer(field, whole, at, reterr);
        }
    } else if (read_plain(text, &real) || pl_text_number(text, &real)) {
        float narrow = (float)real;

        memcpy(at, field->type == PL_FLOAT32 ? (const void *)&narrow : (const void *)&real, field->item_bytes);
        return PL_OK;
    }
    return pl_field_unexpected(field, reterr, "'%.*s'", (int)(bytes < 40 ? bytes : 40), number);
}

/* Appends the text of a column, with one quote for each doubled quote. */
static enum pl_status put_text(struct pl_field_sink *sink, const struct column *column, struct pl_error *reterr)
{
    const char *at = column->text, *end = column->text + column->bytes;

    while (column->is_quoted && at < end) {
        const char *quote = memchr(at, '"', (size_t)(end - at));

        if (!quote) {
            break;
        }
        PL_TRY(pl_field_put_bytes(sink, at, (size_t)(quote + 1 - at), reterr));
        at = quote + 2 < end ? quote + 2 : end;
    }
    return pl_field_put_bytes(sink, at, (size_t)(end - at), reterr);
}

static enum pl_status put_column(struct pl_field_sink *sink, uint64_t item, const struct column *column,
                                 struct pl_error *reterr)
{
    const struct pl_decoder_field *field = sink->field;

    if (field->is_varying) {
        return column->bytes == 0 && field->has_default ? pl_field_end(sink, true, reterr)
                                                        : put_text(sink, column, reterr);
    }
    sink->row += item * field->item_bytes;
    if (column->bytes > 0) {
        return pl_field_put_number(field, column->text, column->bytes, sink->row, reterr);
    }
    if (!field->has_default) {
        return pl_error_set(reterr, PL_NOT_FOUND, "field '%s': column %llu is empty, and there is no default",
                            field->name, (unsigned long long)(field->column + item));
    }
    memcpy(sink->row, field->fallback + item * field->item_bytes, field->item_bytes);
    return PL_OK;
}

enum pl_status pl_fields_csv(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                             struct pl_varying *varying, struct pl_error *reterr)
{
    bool has_mark = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0;
    const char *at = (const char *)data + (has_mark ? 3 : 0), *end = (const char *)data + bytes;
    size_t number = 0;

    for (; number < decoder->columns && at; number++) {
        struct column column = next_column(&at, end, decoder->delimiter);

        if (column.is_followed) {
            return pl_error_set(reterr, PL_INVALID,
                                "column %zu has text after its closing quote, expected the delimiter '%c'", number,
                                decoder->delimiter);
        }
        if (decoder->owners[number]) {
            struct pl_field_sink sink = pl_field_sink_of(decoder, decoder->owners[number] - 1U, rows, varying);

            PL_TRY(put_column(&sink, number - sink.field->column, &column, reterr));
        }
    }
    return number == decoder->columns
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID, "found %zu columns, expected at least %zu for the fields", number,
                              decoder->columns);
}
