/* SPDX-License-Identifier: Apache-2.0 */
/* The wire format of protocol buffers: varints, fields and repeated scalars. */
#include "s3io/record/protobuf.h"

#include "s3io/record/record_formats.h"

static bool read_varint(struct pl_protobuf *protobuf, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && protobuf->next < protobuf->end; shift += 7) {
        unsigned char byte = *protobuf->next++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return shift < 63 || byte <= 1;
        }
    }
    return false;
}

static bool take(struct pl_protobuf *protobuf, uint64_t bytes, struct pl_view *ret_view)
{
    if (bytes > (uint64_t)(protobuf->end - protobuf->next)) {
        return false;
    }
    *ret_view = (struct pl_view){.data = protobuf->next, .bytes = (size_t)bytes};
    protobuf->next += bytes;
    return true;
}

enum pl_status pl_protobuf_next(struct pl_protobuf *protobuf, struct pl_protobuf_field *ret_field)
{
    uint64_t key, bytes;
    bool good = false;

    if (protobuf->next == protobuf->end) {
        return PL_END;
    }
    if (!read_varint(protobuf, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX >> 3) {
        return PL_CORRUPT;
    }
    *ret_field = (struct pl_protobuf_field){.number = (uint32_t)(key >> 3)};
    switch (key & 7) {
    case PL_PROTOBUF_VARINT:
        ret_field->wire = PL_PROTOBUF_VARINT;
        good = read_varint(protobuf, &ret_field->value);
        break;
    case PL_PROTOBUF_FIXED64:
        ret_field->wire = PL_PROTOBUF_FIXED64;
        good = take(protobuf, 8, &ret_field->view);
        break;
    case PL_PROTOBUF_BYTES:
        ret_field->wire = PL_PROTOBUF_BYTES;
        good = read_varint(protobuf, &bytes) && take(protobuf, bytes, &ret_field->view);
        break;
    case PL_PROTOBUF_FIXED32:
        ret_field->wire = PL_PROTOBUF_FIXED32;
        good = take(protobuf, 4, &ret_field->view);
        break;
    default:
        break;
    }
    return good ? PL_OK : PL_CORRUPT;
}

static bool packed_scalar(struct pl_protobuf *packed, enum pl_protobuf_wire wire, uint64_t *ret_value)
{
    struct pl_view view;

    if (wire == PL_PROTOBUF_VARINT) {
        return read_varint(packed, ret_value);
    }
    if (!take(packed, 4, &view)) {
        return false;
    }
    *ret_value = pl_record_load_le32(view.data);
    return true;
}

enum pl_status pl_protobuf_scalar(struct pl_protobuf *message, struct pl_protobuf_run *run, uint32_t number,
                                  enum pl_protobuf_wire wire, uint64_t *ret_value)
{
    for (;;) {
        struct pl_protobuf_field field;

        if (run->packed.next != run->packed.end) {
            return packed_scalar(&run->packed, wire, ret_value) ? PL_OK : PL_CORRUPT;
        }
        PL_TRY(pl_protobuf_next(message, &field));
        if (field.number != number) {
            continue;
        }
        if (field.wire == PL_PROTOBUF_BYTES) {
            run->packed = pl_protobuf_of(field.view);
        } else if (field.wire != wire) {
            return PL_CORRUPT;
        } else if (wire == PL_PROTOBUF_VARINT) {
            *ret_value = field.value;
            return PL_OK;
        } else {
            *ret_value = pl_record_load_le32(field.view.data);
            return PL_OK;
        }
    }
}
