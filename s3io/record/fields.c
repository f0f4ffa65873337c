/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: the list of fields, checked and copied. */
#include "s3io/fields.h"

#include "base/memory.h"
#include "s3io/record/fields_private.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 1 << 20 };

/* The largest row: a larger one must be a mistake, and products of sizes stay far from overflow. */
#define MOST_ROW_BYTES (UINT64_C(1) << 40)

static enum pl_status refuse(const struct pl_decoder_field *field, struct pl_error *reterr, const char *what)
{
    return pl_error_set(reterr, PL_INVALID, "field '%s': %s", field->name, what);
}

static enum pl_status set_shape(struct pl_decoder_field *made, const struct pl_field *field, struct pl_error *reterr)
{
    if (made->item_bytes == 0) {
        return pl_error_set(reterr, PL_INVALID, "field '%s': unknown type %d", made->name, (int)field->type);
    }
    if (field->dims > PL_FIELD_MAX_DIMS || (field->is_varying && field->dims)) {
        return refuse(made, reterr, field->is_varying ? "a varying field has no shape" : "at most 8 dimensions");
    }
    made->is_varying = field->is_varying;
    made->items = !field->is_varying;
    made->dims = field->dims;
    for (unsigned i = 0; i < field->dims; i++) {
        made->shape[i] = field->shape[i];
        if (__builtin_mul_overflow(made->items, field->shape[i], &made->items) ||
            made->items > MOST_ROW_BYTES / made->item_bytes) {
            return refuse(made, reterr, "the shape is larger than 1 TiB");
        }
    }
    return !field->is_varying && made->items == 0 ? refuse(made, reterr, "the shape has no elements") : PL_OK;
}

static enum pl_status set_default(struct pl_decoder_field *made, const struct pl_field *field, struct pl_error *reterr)
{
    size_t row_bytes = (size_t)made->items * made->item_bytes, bytes = field->default_bytes;

    made->has_default = field->has_default;
    if (!field->has_default) {
        return PL_OK;
    }
    if (made->is_varying ? bytes % made->item_bytes != 0 : bytes != row_bytes && bytes != made->item_bytes) {
        return refuse(made, reterr, "the default is not one element, or a whole row");
    }
    made->fallback_bytes = made->is_varying ? bytes : row_bytes;
    PL_TRY(pl_memory_alloc(&made->fallback, made->fallback_bytes + 1, 1, reterr));
    for (size_t at = 0; at < made->fallback_bytes; at += bytes) {
        memcpy(made->fallback + at, field->default_data, bytes);
    }
    return PL_OK;
}

/* Gives the columns of a CSV record to the field. */
static enum pl_status set_columns(struct pl_decoder *decoder, size_t index, struct pl_error *reterr)
{
    struct pl_decoder_field *field = &decoder->fields[index];
    uint64_t items = field->is_varying ? 1 : field->items, end;
    size_t capacity = decoder->columns;
    char *rest;

    field->column = (uint32_t)strtoul(field->name, &rest, 10);
    if (strspn(field->name, "0123456789") != field->name_bytes || field->name_bytes == 0 || field->name_bytes > 7) {
        return refuse(field, reterr, "the name of a field of CSV is the number of its first column, from 0");
    }
    if (field->is_varying ? field->type != PL_UINT8 : field->type == PL_FLOAT16 || field->type == PL_BFLOAT16) {
        return refuse(field, reterr,
                      "CSV gives numbers, but not of half-width types, and varying uint8, which is text");
    }
    end = field->column + items;
    if (end > MOST_COLUMNS) {
        return refuse(field, reterr, "more than a million columns");
    }
    if (end > decoder->columns) {
        PL_TRY(pl_memory_grow(&decoder->owners, &capacity, end, sizeof(*decoder->owners), reterr));
        memset(decoder->owners + decoder->columns, 0, (end - decoder->columns) * sizeof(*decoder->owners));
        decoder->columns = end;
    }
    for (uint64_t column = field->column; column < end; column++) {
        if (decoder->owners[column]) {
            return pl_error_set(reterr, PL_INVALID, "field '%s': column %llu belongs to field '%s', too", field->name,
                                (unsigned long long)column, decoder->fields[decoder->owners[column] - 1].name);
        }
        decoder->owners[column] = (uint16_t)(index + 1);
    }
    return PL_OK;
}

static enum pl_status add_field(struct pl_decoder *decoder, const struct pl_field *field, struct pl_error *reterr)
{
    struct pl_decoder_field *made = &decoder->fields[decoder->count];

    made->name = pl_memory_string(field->name ? field->name : "", reterr);
    if (!made->name) {
        return PL_MEMORY;
    }
    made->name_bytes = strlen(made->name);
    made->type = field->type;
    made->item_bytes = pl_dtype_bytes(field->type);
    decoder->count++;
    for (size_t i = 0; i + 1 < decoder->count; i++) {
        if (strcmp(decoder->fields[i].name, made->name) == 0) {
            return refuse(made, reterr, "two fields have this name");
        }
    }
    PL_TRY(set_shape(made, field, reterr));
    PL_TRY(set_default(made, field, reterr));
    if (decoder->source == PL_FIELDS_TAR && !made->is_varying && made->dims == 0 &&
        (made->type == PL_FLOAT16 || made->type == PL_BFLOAT16)) {
        return refuse(made, reterr, "a member as one element is a number as text, but not of half-width types");
    }
    return decoder->source == PL_FIELDS_CSV ? set_columns(decoder, decoder->count - 1, reterr) : PL_OK;
}

enum pl_status pl_decoder_new(enum pl_field_source source, const struct pl_field *fields, size_t count, char delimiter,
                              struct pl_decoder **ret_decoder, struct pl_error *reterr)
{
    struct pl_decoder *decoder;
    enum pl_status status;

    if ((unsigned)source > PL_FIELDS_TAR) {
        return pl_error_set(reterr, PL_INVALID, "unknown source of fields %d", (int)source);
    }
    if (count == 0 || count > (source == PL_FIELDS_RECORD ? 1 : PL_FIELDS_MOST)) {
        return pl_error_set(reterr, PL_INVALID, "%zu fields: expected 1%s", count,
                            source == PL_FIELDS_RECORD ? ", the record itself" : " to 256");
    }
    PL_TRY(pl_memory_alloc(&decoder, 1, sizeof(*decoder), reterr));
    decoder->source = source;
    decoder->delimiter = delimiter ? delimiter : ',';
    status = pl_memory_alloc(&decoder->fields, count, sizeof(*decoder->fields), reterr);
    for (size_t i = 0; status == PL_OK && i < count; i++) {
        status = add_field(decoder, &fields[i], reterr);
    }
    if (status != PL_OK) {
        pl_decoder_free(decoder);
        return status;
    }
    *ret_decoder = decoder;
    return PL_OK;
}

size_t pl_decoder_count(const struct pl_decoder *decoder)
{
    return decoder->count;
}

size_t pl_decoder_row_bytes(const struct pl_decoder *decoder, size_t field)
{
    const struct pl_decoder_field *of = &decoder->fields[field];

    return of->item_bytes * (of->is_varying ? 1 : (size_t)of->items);
}

bool pl_decoder_is_varying(const struct pl_decoder *decoder, size_t field)
{
    return decoder->fields[field].is_varying;
}

static enum pl_status whole_record(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                                   struct pl_varying *varying, struct pl_error *reterr)
{
    struct pl_field_sink sink = pl_field_sink_of(decoder, 0, rows, varying);

    PL_TRY(pl_field_put_bytes(&sink, data, bytes, reterr));
    return pl_field_end(&sink, false, reterr);
}

enum pl_status pl_decode(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                         struct pl_varying *varying, struct pl_error *reterr)
{
    static pl_fields_walk *const walks[] = {
        [PL_FIELDS_RECORD] = whole_record,        [PL_FIELDS_EXAMPLE] = pl_fields_message,
        [PL_FIELDS_PROTOBUF] = pl_fields_message, [PL_FIELDS_CSV] = pl_fields_csv,
        [PL_FIELDS_TAR] = pl_fields_tar,
    };

    return walks[decoder->source](decoder, data, bytes, rows, varying, reterr);
}

void pl_decoder_free(struct pl_decoder *decoder)
{
    if (decoder) {
        for (size_t i = 0; decoder->fields && i < decoder->count; i++) {
            free(decoder->fields[i].name);
            free(decoder->fields[i].fallback);
        }
        free(decoder->fields);
        free(decoder->owners);
        free(decoder);
    }
}
