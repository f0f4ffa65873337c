/* SPDX-License-Identifier: Apache-2.0 */
/* An S3 object as a byte source. */
#include "s3io/s3/s3_get.h"

#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

struct s3_source {
    struct pl_source head;
    struct pl_s3_stream *stream;
    struct pl_s3_object object;
    char *bucket, *key, *etag; /* the object's */
    struct pl_s3_chunk chunk;  /* being handed out */
    size_t given;              /* of it */
};

static struct s3_source *of_source(struct pl_source *source)
{
    return (struct s3_source *)source;
}

static enum pl_status s3_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr)
{
    struct s3_source *s3 = of_source(source);
    size_t left = s3->chunk.bytes - s3->given;

    while (left == 0) {
        enum pl_status status = pl_s3_stream_next(s3->stream, deadline_ns, &s3->chunk, reterr);

        s3->given = 0;
        if (status != PL_OK) {
            s3->chunk.bytes = 0;
            *ret_bytes = 0;
            return status == PL_END ? PL_OK : status;
        }
        left = s3->chunk.bytes;
    }
    bytes = bytes < left ? bytes : left;
    memcpy(data, (const char *)s3->chunk.data + s3->given, bytes);
    s3->given += bytes;
    *ret_bytes = bytes;
    return PL_OK;
}

static void s3_cancel(struct pl_source *source)
{
    pl_s3_stream_cancel(of_source(source)->stream);
}

static void s3_close(struct pl_source *source)
{
    struct s3_source *s3 = of_source(source);

    pl_s3_stream_close(s3->stream);
    free(s3->bucket);
    free(s3->key);
    free(s3->etag);
    free(s3);
}

enum pl_status pl_source_s3_open_object(struct pl_s3_client *client, const char *name,
                                        const struct pl_s3_object *object, const struct pl_s3_stream_options *options,
                                        struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = s3_read, .cancel = s3_cancel, .close = s3_close};
    struct s3_source *s3 = pl_memory_new(1, sizeof(*s3), reterr);
    enum pl_status status = PL_MEMORY;

    if (!s3) {
        return PL_MEMORY;
    }
    s3->object = *object;
    s3->object.bucket = s3->bucket = pl_memory_string(object->bucket, reterr);
    s3->object.key = s3->key = pl_memory_string(object->key, reterr);
    s3->object.etag = s3->etag = object->etag ? pl_memory_string(object->etag, reterr) : NULL;
    if (s3->bucket && s3->key && (s3->etag || !object->etag)) {
        status = pl_source_init(&s3->head, &ops, name, reterr);
    }
    if (status == PL_OK) {
        status = pl_s3_stream_open(client, &s3->object, 1, options, &s3->stream, reterr);
    }
    if (status != PL_OK) {
        free(s3->head.name);
        s3_close(&s3->head);
        return status;
    }
    *ret_source = &s3->head;
    return PL_OK;
}

enum pl_status pl_source_s3_open(struct pl_s3_client *client, const char *uri,
                                 const struct pl_s3_stream_options *options, struct pl_source **ret_source,
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;
    struct pl_s3_object object = {.bucket = NULL};

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    if (!*key) {
        return pl_error_set(reterr, PL_INVALID, "'%s' names a bucket, not an object", uri);
    }
    object.bucket = bucket;
    object.key = key;
    return pl_source_s3_open_object(client, uri, &object, options, ret_source, reterr);
}

enum pl_status pl_s3_fetch_text(struct pl_s3_client *client, const char *uri, size_t max_bytes, int64_t deadline_ns,
                                char **ret_text, size_t *ret_bytes, struct pl_error *reterr)
{
    const struct pl_s3_stream_options options = {.budget_bytes = 4 << 20, .part_bytes = 1 << 20};
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE char *piece = pl_memory_new(1, 1 << 16, reterr);

    if (!piece) {
        return PL_MEMORY;
    }
    PL_TRY(pl_source_s3_open(client, uri, &options, &source, reterr));
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
