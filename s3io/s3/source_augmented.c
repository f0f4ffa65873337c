/* SPDX-License-Identifier: Apache-2.0 */
/* An augmented manifest and its objects as one stream of RecordIO records. */
#include "s3io/s3/s3_get.h"

#include "base/memory.h"
#include "s3io/record/record_formats.h"
#include "s3io/s3/manifest.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

struct augmented_source {
    struct pl_source head;
    const struct pl_augmented *augmented;
    struct pl_s3_object *objects; /* the referenced objects, in the order of the records */
    struct pl_s3_stream *stream;  /* NULL if there are no references */
    struct pl_sampler sampler;    /* the rank's lines after `line` */
    bool over;                    /* no line is left */
    uint64_t line;                /* the line whose attribute comes next */
    size_t attribute;
    /* The record that is being read: its frame, a value or pieces of an object, its padding. */
    unsigned char frame[PL_RECORDIO_HEAD_BYTES];
    size_t frame_left;
    const char *data;
    size_t data_left;
    size_t padding_left;
    bool object_open; /* more chunks of the object follow */
};

static const struct pl_manifest_value *value_at(const struct pl_augmented *augmented, uint64_t line, size_t attribute)
{
    return &augmented->values[line * augmented->attributes + attribute];
}

static enum pl_status frame_record(struct augmented_source *source, uint64_t bytes, struct pl_error *reterr)
{
    if (bytes > PL_RECORDIO_MOST_BYTES) {
        return pl_error_set(reterr, PL_LIMIT,
                            "'%s' has an object of %llu bytes, which does not fit into a RecordIO record",
                            source->head.name, (unsigned long long)bytes);
    }
    pl_record_recordio_head(0, (uint32_t)bytes, source->frame);
    source->frame_left = sizeof(source->frame);
    source->padding_left = (size_t)(-bytes & 3);
    return PL_OK;
}

/* Takes the next bytes of an object. The first chunk begins the record. */
static enum pl_status take_chunk(struct augmented_source *source, bool first, int64_t deadline_ns,
                                 struct pl_error *reterr)
{
    struct pl_s3_chunk chunk;
    enum pl_status status = pl_s3_stream_next(source->stream, deadline_ns, &chunk, reterr);

    if (status == PL_END) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' ended before its last object", source->head.name);
    }
    PL_TRY(status);
    if (first) {
        PL_TRY(frame_record(source, chunk.size_bytes, reterr));
    }
    source->data = chunk.data;
    source->data_left = chunk.bytes;
    source->object_open = !chunk.last;
    return PL_OK;
}

/* Begins the next record. Sets `*ret_end` after the last one. */
static enum pl_status next_record(struct augmented_source *source, int64_t deadline_ns, bool *ret_end,
                                  struct pl_error *reterr)
{
    const struct pl_manifest_value *value;

    *ret_end = source->over;
    if (*ret_end) {
        return PL_OK;
    }
    value = value_at(source->augmented, source->line, source->attribute);
    if (value->bucket) {
        PL_TRY(take_chunk(source, true, deadline_ns, reterr));
    } else {
        source->data = value->text;
        source->data_left = strlen(value->text);
        PL_TRY(frame_record(source, source->data_left, reterr));
    }
    if (++source->attribute == source->augmented->attributes) {
        source->attribute = 0;
        source->over = !pl_sampler_next(&source->sampler, &source->line);
    }
    return PL_OK;
}

static size_t copy(void *to, size_t room, const void *from, size_t *left)
{
    size_t bytes = room < *left ? room : *left;

    memcpy(to, from, bytes);
    *left -= bytes;
    return bytes;
}

static enum pl_status augmented_read(struct pl_source *head, void *data, size_t bytes, int64_t deadline_ns,
                                     size_t *ret_bytes, struct pl_error *reterr)
{
    static const unsigned char zeros[4] = {0};
    struct augmented_source *source = (struct augmented_source *)head;

    for (;;) {
        if (source->frame_left) {
            *ret_bytes =
                copy(data, bytes, source->frame + sizeof(source->frame) - source->frame_left, &source->frame_left);
            return PL_OK;
        }
        if (source->data_left) {
            *ret_bytes = copy(data, bytes, source->data, &source->data_left);
            source->data += *ret_bytes;
            return PL_OK;
        }
        if (source->object_open) {
            PL_TRY(take_chunk(source, false, deadline_ns, reterr));
        } else if (source->padding_left) {
            *ret_bytes = copy(data, bytes, zeros, &source->padding_left);
            return PL_OK;
        } else {
            bool end;

            PL_TRY(next_record(source, deadline_ns, &end, reterr));
            if (end) {
                *ret_bytes = 0;
                return PL_OK;
            }
        }
    }
}

static void augmented_cancel(struct pl_source *head)
{
    struct augmented_source *source = (struct augmented_source *)head;

    if (source->stream) {
        pl_s3_stream_cancel(source->stream);
    }
}

static void augmented_close(struct pl_source *head)
{
    struct augmented_source *source = (struct augmented_source *)head;

    pl_s3_stream_close(source->stream);
    free(source->objects);
    free(source);
}

/* Opens all references in the rank's lines, in the order of the records. */
static enum pl_status open_objects(struct augmented_source *source, struct pl_s3_client *client,
                                   const struct pl_s3_stream_options *options, struct pl_error *reterr)
{
    const struct pl_augmented *augmented = source->augmented;
    struct pl_sampler sampler = source->sampler;
    size_t count = 0;

    source->objects =
        pl_memory_new(pl_sampler_length(&sampler) * augmented->attributes, sizeof(*source->objects), reterr);
    if (!source->objects) {
        return PL_MEMORY;
    }
    for (uint64_t line; pl_sampler_next(&sampler, &line);) {
        for (size_t attribute = 0; attribute < augmented->attributes; attribute++) {
            const struct pl_manifest_value *value = value_at(augmented, line, attribute);

            if (value->bucket) {
                source->objects[count++] = (struct pl_s3_object){.bucket = value->bucket, .key = value->text};
            }
        }
    }
    return count ? pl_s3_stream_open(client, source->objects, count, options, &source->stream, reterr) : PL_OK;
}

enum pl_status pl_source_augmented_open(struct pl_s3_client *client, const struct pl_augmented *augmented,
                                        const struct pl_augmented_options *options, struct pl_source **ret_source,
                                        struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {
        .read = augmented_read, .cancel = augmented_cancel, .close = augmented_close};
    struct augmented_source *source;
    struct pl_sampler sampler;
    enum pl_status status;

    PL_TRY(pl_sampler_init(&sampler, augmented->lines, options->seed, options->shuffle, PL_SAMPLER_JOIN, options->deal,
                           reterr));
    pl_sampler_start(&sampler, options->epoch);
    PL_TRY(pl_memory_alloc(&source, 1, sizeof(*source), reterr));
    source->augmented = augmented;
    source->sampler = sampler;
    status = pl_source_init(&source->head, &ops, "augmented manifest", reterr);
    if (status == PL_OK) {
        status = open_objects(source, client, &options->stream, reterr);
    }
    if (status != PL_OK) {
        free(source->head.name);
        augmented_close(&source->head);
        return status;
    }
    source->over = !pl_sampler_next(&source->sampler, &source->line);
    *ret_source = &source->head;
    return PL_OK;
}
