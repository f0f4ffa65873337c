/* SPDX-License-Identifier: Apache-2.0 */
/* An S3 object as a byte source. */
#include "s3io/s3/s3_get.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

struct pl_s3_reader {
    struct pl_s3_stream *stream;
    struct pl_s3_chunk chunk; /* the chunk that is being read */
    size_t given;             /* number of bytes of `chunk` that were read */
    bool any;                 /* there has been a chunk */
};

struct s3_source {
    struct pl_source head;
    struct pl_s3_reader *reader;
    size_t position;
    struct pl_s3_object *only; /* the only object of the reader, which the source owns; NULL if it is the caller's */
};

static struct s3_source *of_source(struct pl_source *source)
{
    return (struct s3_source *)source;
}

static enum pl_status next_chunk(struct pl_s3_reader *reader, const struct s3_source *source, int64_t deadline_ns,
                                 struct pl_error *reterr)
{
    struct pl_s3_chunk chunk;
    enum pl_status status = pl_s3_stream_next(reader->stream, deadline_ns, &chunk, reterr);

    reader->given = reader->chunk.bytes = 0; /* the chunk is not valid any more */
    PL_BUG_IF(status == PL_END);             /* each object has a last chunk */
    PL_TRY(status);
    PL_BUG_IF(chunk.object > source->position);
    reader->chunk = chunk;
    reader->any = true;
    return PL_OK;
}

static enum pl_status s3_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr)
{
    struct s3_source *s3 = of_source(source);
    struct pl_s3_reader *reader = s3->reader;
    const struct pl_s3_chunk *chunk = &reader->chunk;

    for (;;) {
        bool ours = reader->any && chunk->object == s3->position;

        if (ours && (reader->given < chunk->bytes || chunk->last)) {
            break;
        }
        PL_TRY(next_chunk(reader, s3, deadline_ns, reterr));
    }
    bytes = pl_number_min(bytes, chunk->bytes - reader->given);
    if (bytes) {
        memcpy(data, (const char *)chunk->data + reader->given, bytes);
    }
    reader->given += bytes;
    *ret_bytes = bytes;
    return PL_OK;
}

static void s3_cancel(struct pl_source *source)
{
    pl_s3_stream_cancel(of_source(source)->reader->stream);
}

static void s3_close(struct pl_source *source)
{
    struct s3_source *s3 = of_source(source);

    if (s3->only) {
        pl_s3_reader_close(s3->reader);
        free(s3->only);
    }
    free(s3);
}

enum pl_status pl_s3_reader_open(struct pl_s3_client *client, const struct pl_s3_order *order,
                                 const struct pl_s3_stream_options *options, struct pl_s3_reader **ret_reader,
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_reader *reader = NULL;

    PL_TRY(pl_memory_alloc(&reader, 1, sizeof(*reader), reterr));
    PL_TRY(pl_s3_stream_open_order(client, order, options, &reader->stream, reterr));
    *ret_reader = PL_TAKE(reader);
    return PL_OK;
}

void pl_s3_reader_close(struct pl_s3_reader *reader)
{
    if (reader) {
        pl_s3_stream_close(reader->stream);
        free(reader);
    }
}

enum pl_status pl_s3_reader_source(struct pl_s3_reader *reader, size_t position, const char *name,
                                   struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = s3_read, .cancel = s3_cancel, .close = s3_close};
    PL_AUTO_FREE struct s3_source *s3 = NULL;

    PL_TRY(pl_memory_alloc(&s3, 1, sizeof(*s3), reterr));
    s3->reader = reader;
    s3->position = position;
    PL_TRY(pl_source_init(&s3->head, &ops, name, reterr));
    *ret_source = &PL_TAKE(s3)->head;
    return PL_OK;
}

static struct pl_s3_object only_object(const void *context, size_t position)
{
    (void)position;
    return *(const struct pl_s3_object *)context;
}

enum pl_status pl_source_s3_open(struct pl_s3_client *client, const char *name, const struct pl_s3_object *object,
                                 const struct pl_s3_stream_options *options, struct pl_source **ret_source,
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_object *only = pl_memory_new(1, sizeof(*only), reterr);
    const struct pl_s3_order order = {.context = only, .count = 1, .at = only_object};
    struct pl_s3_reader *reader;
    enum pl_status status;

    if (!only) {
        return PL_MEMORY;
    }
    *only = *object;
    PL_TRY(pl_s3_reader_open(client, &order, options, &reader, reterr));
    status = pl_s3_reader_source(reader, 0, name, ret_source, reterr);
    if (status != PL_OK) {
        pl_s3_reader_close(reader);
        return status;
    }
    of_source(*ret_source)->only = PL_TAKE(only);
    return PL_OK;
}

enum pl_status pl_s3_fetch_text(struct pl_s3_client *client, const char *uri, size_t max_bytes, int64_t deadline_ns,
                                char **ret_text, size_t *ret_bytes, struct pl_error *reterr)
{
    const struct pl_s3_stream_options options = {.budget_bytes = 4 << 20, .part_bytes = 1 << 20};
    PL_AUTO_FREE char *bucket = NULL, *key = NULL;
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *piece = NULL;

    PL_TRY(pl_memory_alloc(&piece, 1, 1 << 16, reterr));
    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    if (!*key) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is a bucket: expected an object", uri);
    }
    PL_TRY(pl_source_s3_open(client, uri, &(struct pl_s3_object){.bucket = bucket, .key = key}, &options, &source,
                             reterr));
    for (;;) {
        size_t got;

        PL_TRY(pl_source_read(source, piece, 1 << 16, deadline_ns, &got, reterr));
        if (got == 0) {
            break;
        }
        if (text.length + got > max_bytes) {
            return pl_error_set(reterr, PL_LIMIT, "'%s' is longer than %zu bytes", uri, max_bytes);
        }
        pl_text_append_n(&text, piece, got);
    }
    *ret_bytes = text.length;
    return pl_text_take(&text, ret_text, reterr);
}
