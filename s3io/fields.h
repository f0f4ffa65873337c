/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Fields: what a program wants of each record, and the decoder that finds them in one walk over the record and writes
 * them as rows of a batch.
 *
 * A field of fixed shape is one row of the batch, [shape...] elements. A varying field has a number of elements that
 * differs from sample to sample: one buffer holds the elements of the batch one sample after the other, and offsets
 * tell where each begins. Text, JPEG and other opaque bytes are varying fields of uint8.
 *
 * What a record may hold for a field, and the field's type:
 *
 *   integers              an integer type or bool, whose range they must fit
 *   32-bit floats         float32, float64
 *   64-bit floats         float64
 *   one value of bytes    any type: the bytes are the elements, little-endian; their number must fit the shape
 *   a column of CSV       a number, of an integer type, float32 or float64; a varying uint8 field takes the text
 *   a member of tar       one element: a number as text ("7"), as in CSV, which a line end may follow. A shape, also
 *                         [1], or varying: the member's bytes are the elements, as above
 *
 * Test  tests/unit/s3io/record/test_fields.c, test_tar.c, tests/fuzz/fuzz_record.c
 */
#ifndef PL_S3IO_FIELDS_H
#define PL_S3IO_FIELDS_H

#include "base/dtype.h"
#include "base/status.h"

#include <stddef.h>

enum { PL_FIELD_MAX_DIMS = 8 };

/** What the records are. */
enum pl_field_source {
    PL_FIELDS_RECORD,  /* the whole record is the only field, as bytes; the field's name is free */
    PL_FIELDS_EXAMPLE, /* tf.Example: the feature of that name, or the last of several */
    /* SageMaker's RecordIO-protobuf (aialgs.data.Record): the tensor of that name among the features ("values"); the
     * name "label" is the tensor "values" of the label. Sparse tensors, which have keys, are refused. */
    PL_FIELDS_PROTOBUF,
    /* CSV: the name is the number of the first column, from 0; a field of fixed shape takes as many columns as it has
     * elements, a varying one takes one */
    PL_FIELDS_CSV,
    /* a sample of PL_RECORD_TAR: the name is the member's extension, all that follows the first dot of its base name
     * ("jpg", "seg.png"); "__key__" is the folder and the name before that dot */
    PL_FIELDS_TAR,
};

/** A field. Zero-initialise, then set what differs. */
struct pl_field {
    const char *name;
    enum pl_dtype type;
    unsigned dims; /* 0: a sample has one element, unless the field is varying */
    uint64_t shape[PL_FIELD_MAX_DIMS];
    bool is_varying; /* `dims` must be 0 */
    /* Whether the field may be missing (in CSV: an empty column). Its value is then `default_data`: a row, or one
     * element that fills the row; for a varying field any number of elements. */
    bool has_default;
    const void *default_data;
    size_t default_bytes;
};

struct pl_decoder;

/**
 * Makes a decoder. Fields, names and defaults are copied. `delimiter` is the byte between the columns of CSV; 0 means a
 * comma.
 *
 * Errors  PL_INVALID names the field: no fields or more than 256, a name twice, a shape that is too large, a default
 *         that does not fit it; more than one field of PL_FIELDS_RECORD; for CSV a name that is not a number, columns
 *         of two fields, a type that is not a number.
 */
enum pl_status pl_decoder_new(enum pl_field_source source, const struct pl_field *fields, size_t count, char delimiter,
                              struct pl_decoder **ret_decoder, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the number of fields. */
size_t pl_decoder_count(const struct pl_decoder *decoder);

/** Returns the bytes of a row of field `field`; for a varying field, of one element. */
size_t pl_decoder_row_bytes(const struct pl_decoder *decoder, size_t field);

bool pl_decoder_is_varying(const struct pl_decoder *decoder, size_t field);

/** The elements of a varying field, which pl_decode() appends. Zero-initialise; release `data` with free(). */
struct pl_varying {
    unsigned char *data;
    size_t bytes;
    size_t capacity;
};

/**
 * Decodes a record of `bytes` bytes: writes the row of each field f of fixed shape to `rows[f]`, and appends the
 * elements of each varying field f to `varying[f]`. Both arrays have an item for every field; items for the other kind
 * of field are not used. `varying` may be NULL if no field is varying.
 *
 * Threads  any number of threads may use one decoder.
 * Errors   PL_NOT_FOUND: a field is missing. PL_INVALID: it has another type or number of elements. Both name the
 *          field, what was found and what was expected. PL_CORRUPT: the record is not of the decoder's source.
 *          PL_UNSUPPORTED: a sparse tensor. After an error the contents of `rows` and `varying` are undefined.
 */
enum pl_status pl_decode(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                         struct pl_varying *varying, struct pl_error *reterr) PL_MUST_CHECK;

void pl_decoder_free(struct pl_decoder *decoder);

#endif
