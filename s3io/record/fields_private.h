/* SPDX-License-Identifier: Apache-2.0 */
/** The internals of a decoder, and where the elements that its walks find go. Internal to s3io/record. */
#ifndef PL_S3IO_RECORD_FIELDS_PRIVATE_H
#define PL_S3IO_RECORD_FIELDS_PRIVATE_H

#include "s3io/fields.h"

enum { PL_FIELDS_MOST = 256 };

struct pl_decoder_field {
    char *name;
    size_t name_bytes;
    enum pl_dtype type;
    size_t item_bytes; /* size of an element */
    uint64_t items;    /* number of elements of a row; 0 if the field is varying */
    bool is_varying;
    bool has_default;
    unsigned char *fallback; /* the default: a whole row, or the elements of a varying field */
    size_t fallback_bytes;
    unsigned dims;
    uint64_t shape[PL_FIELD_MAX_DIMS];
    uint32_t column; /* CSV: number of the field's first column */
};

struct pl_decoder {
    enum pl_field_source source;
    char delimiter;
    size_t count;
    struct pl_decoder_field *fields;
    uint16_t *owners; /* CSV: for each of `columns` columns the field that it belongs to, plus 1; 0: none */
    size_t columns;
};

/** Takes the elements of one field of one record: those that no longer fit the row are only counted. */
struct pl_field_sink {
    const struct pl_decoder_field *field;
    unsigned char *row;
    struct pl_varying *varying;
    uint64_t items; /* number of elements that came */
};

/** Makes room for `items` more elements at `*ret_at`, which is NULL if the row has no room for them. */
enum pl_status pl_field_room(struct pl_field_sink *sink, uint64_t items, unsigned char **ret_at,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Takes `data`, the elements in little-endian order. PL_INVALID if it ends inside an element. */
enum pl_status pl_field_put_bytes(struct pl_field_sink *sink, const void *data, size_t bytes,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Writes an integer as one element of `field` to `at`. PL_INVALID if it does not fit the type. */
enum pl_status pl_field_put_integer(const struct pl_decoder_field *field, int64_t value, unsigned char *at,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Writes the number in `text`, as in a column of CSV, as one element of `field` to `at`. PL_INVALID if it is none. */
enum pl_status pl_field_put_number(const struct pl_decoder_field *field, const char *text, size_t bytes,
                                   unsigned char *at, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns whether `type` is an integer type or bool. */
static inline bool pl_field_is_integer(enum pl_dtype type)
{
    return type == PL_BOOL || (!pl_dtype_is_float(type) && type < PL_DTYPE_COUNT);
}

/** Sets PL_INVALID; the text tells what was found for the field and what was expected. */
enum pl_status pl_field_unexpected(const struct pl_decoder_field *field, struct pl_error *reterr, const char *format,
                                   ...) PL_PRINTF(3, 4);

/** Ends a field: takes its default if `missing`, and checks the number of elements. */
enum pl_status pl_field_end(struct pl_field_sink *sink, bool missing, struct pl_error *reterr) PL_MUST_CHECK;

/** Decode a record, as pl_decode(): fields_message.c, fields_csv.c and fields_tar.c. */
typedef enum pl_status pl_fields_walk(const struct pl_decoder *decoder, const void *data, size_t bytes,
                                      void *const *rows, struct pl_varying *varying, struct pl_error *reterr);

pl_fields_walk pl_fields_message, pl_fields_csv, pl_fields_tar;

static inline struct pl_field_sink pl_field_sink_of(const struct pl_decoder *decoder, size_t field, void *const *rows,
                                                    struct pl_varying *varying)
{
    return (struct pl_field_sink){
        .field = &decoder->fields[field], .row = rows[field], .varying = varying ? &varying[field] : NULL};
}

#endif
