/* SPDX-License-Identifier: Apache-2.0 */
/* The elements that a walk over a record finds for a field, and what is wrong with them. */
#include "base/memory.h"
#include "base/text.h"
#include "s3io/record/fields_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void print_expected(const struct pl_decoder_field *field, struct pl_text *text)
{
    pl_text_append(text, pl_dtype_text(field->type));
    if (field->is_varying) {
        pl_text_append(text, ", any number");
    }
    for (unsigned i = 0; i < field->dims; i++) {
        pl_text_printf(text, "%s%llu", i ? ", " : " [", (unsigned long long)field->shape[i]);
    }
    pl_text_append(text, field->dims ? "]" : "");
}

enum pl_status pl_field_unexpected(const struct pl_decoder_field *field, struct pl_error *reterr, const char *format,
                                   ...)
{
    PL_AUTO_TEXT struct pl_text expected = PL_TEXT_NONE;
    char found[160];
    va_list args;

    va_start(args, format);
    vsnprintf(found, sizeof(found), format, args);
    va_end(args);
    print_expected(field, &expected);
    return pl_error_set(reterr, PL_INVALID, "field '%s': found %s, expected %s", field->name, found,
                        pl_text_string(&expected));
}

enum pl_status pl_field_room(struct pl_field_sink *sink, uint64_t items, unsigned char **ret_at,
                             struct pl_error *reterr)
{
    const struct pl_decoder_field *field = sink->field;
    uint64_t before = sink->items;

    sink->items += items;
    if (field->is_varying) {
        struct pl_varying *varying = sink->varying;
        size_t bytes = (size_t)items * field->item_bytes;

        PL_TRY(pl_memory_grow(&varying->data, &varying->capacity, varying->bytes + bytes, 1, reterr));
        *ret_at = varying->data + varying->bytes;
        varying->bytes += bytes;
    } else {
        *ret_at = sink->items <= field->items ? sink->row + before * field->item_bytes : NULL;
    }
    return PL_OK;
}

enum pl_status pl_field_put_bytes(struct pl_field_sink *sink, const void *data, size_t bytes, struct pl_error *reterr)
{
    unsigned char *at;

    if (bytes % sink->field->item_bytes) {
        return pl_field_unexpected(sink->field, reterr, "%zu bytes", bytes);
    }
    PL_TRY(pl_field_room(sink, bytes / sink->field->item_bytes, &at, reterr));
    if (at && bytes) {
        memcpy(at, data, bytes);
    }
    return PL_OK;
}

enum pl_status pl_field_put_integer(const struct pl_decoder_field *field, int64_t value, unsigned char *at,
                                    struct pl_error *reterr)
{
    unsigned bits = (unsigned)field->item_bytes * 8;
    bool is_unsigned = field->type == PL_UINT8 || field->type == PL_BOOL;
    int64_t least = is_unsigned ? 0 : bits == 64 ? INT64_MIN : -(INT64_C(1) << (bits - 1));
    int64_t most = field->type == PL_BOOL ? 1 : is_unsigned ? UINT8_MAX : bits == 64 ? INT64_MAX : -least - 1;

    if (value < least || value > most) {
        return pl_field_unexpected(field, reterr, "the integer %lld", (long long)value);
    }
    memcpy(at, &value, field->item_bytes); /* little-endian, as all machines are */
    return PL_OK;
}

enum pl_status pl_field_end(struct pl_field_sink *sink, bool missing, struct pl_error *reterr)
{
    const struct pl_decoder_field *field = sink->field;

    if (missing && !field->has_default) {
        PL_AUTO_TEXT struct pl_text expected = PL_TEXT_NONE;

        print_expected(field, &expected);
        return pl_error_set(reterr, PL_NOT_FOUND, "field '%s' is missing and has no default, expected %s", field->name,
                            pl_text_string(&expected));
    }
    if (missing) {
        return pl_field_put_bytes(sink, field->fallback, field->fallback_bytes, reterr);
    }
    if (!field->is_varying && sink->items != field->items) {
        return pl_field_unexpected(field, reterr, "%llu element%s", (unsigned long long)sink->items,
                                   sink->items == 1 ? "" : "s");
    }
    return PL_OK;
}
