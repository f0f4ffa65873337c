/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a sample of a tar archive: its members by their extensions. */
#include "s3io/record/fields_private.h"
#include "s3io/record/record_formats.h"

#include <string.h>

/* Puts a member's bytes, or the number that is their text, into the field of this name, if there is one. */
static enum pl_status put_named(const struct pl_decoder *decoder, const char *name, const char *data, size_t bytes,
                                void *const *rows, struct pl_varying *varying, bool *found, struct pl_error *reterr)
{
    struct pl_field_sink sink;
    size_t index = 0;

    while (index < decoder->count && strcmp(decoder->fields[index].name, name) != 0) {
        index++;
    }
    if (index == decoder->count) {
        return PL_OK;
    }
    if (found[index]) {
        return pl_error_set(reterr, PL_CORRUPT, "field '%s': the sample has two members of this name", name);
    }
    found[index] = true;
    sink = pl_field_sink_of(decoder, index, rows, varying);
    if (sink.field->is_varying || sink.field->dims > 0) {
        PL_TRY(pl_field_put_bytes(&sink, data, bytes, reterr));
        return pl_field_end(&sink, false, reterr);
    }
    while (bytes > 0 && (data[bytes - 1] == '\n' || data[bytes - 1] == '\r')) {
        bytes--;
    }
    return pl_field_put_number(sink.field, data, bytes, sink.row, reterr);
}

enum pl_status pl_fields_tar(const struct pl_decoder *decoder, const void *data, size_t bytes, void *const *rows,
                             struct pl_varying *varying, struct pl_error *reterr)
{
    struct pl_record_tar_member member = {.want = 0};
    bool found[PL_FIELDS_MOST] = {false}, has_key = false;

    for (size_t at = 0; at < bytes; at = member.end) {
        PL_TRY(pl_record_tar_next(data, bytes, at, 0, &member, reterr));
        if (member.want > bytes || member.end > bytes || member.is_zero) {
            return pl_error_set(reterr, PL_CORRUPT, "the sample ends inside a member: expected whole tar members");
        }
        if (member.key_bytes > 0) {
            PL_TRY(put_named(decoder, member.name + member.key_bytes + 1, (const char *)data + member.data_at,
                             (size_t)member.bytes, rows, varying, found, reterr));
        }
        if (member.key_bytes > 0 && !has_key) {
            has_key = true;
            PL_TRY(put_named(decoder, "__key__", member.name, member.key_bytes, rows, varying, found, reterr));
        }
    }
    for (size_t i = 0; i < decoder->count; i++) {
        struct pl_field_sink sink = pl_field_sink_of(decoder, i, rows, varying);

        if (!found[i]) {
            PL_TRY(pl_field_end(&sink, true, reterr));
        }
    }
    return PL_OK;
}
