/* SPDX-License-Identifier: Apache-2.0 */
/* S3 objects as byte sources, and one as a text. */
#include "s3io/s3/s3_get.h"

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

struct s3_source {
    struct pl_source head;
    struct pl_s3_stream *stream;
    size_t position;           /* the object's position in the stream */
    struct pl_s3_chunk chunk;  /* the chunk that is being read; one of an earlier object is skipped */
    size_t given;              /* number of bytes of `chunk` that were read */
    struct pl_s3_object *only; /* the only object of the stream, if the source owns both; otherwise NULL */
};

static enum pl_status s3_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr)
{
    struct s3_source *s3 = (struct s3_source *)source;

    while (s3->chunk.object != s3->position || (s3->given == s3->chunk.bytes && !s3->chunk.last)) {
        struct pl_s3_chunk chunk;
        enum pl_status status = pl_s3_stream_next(s3->stream, deadline_ns, &chunk, reterr);

        PL_BUG_IF(status == PL_END); /* each object has a last chunk */
        PL_TRY(status);
        PL_BUG_IF(chunk.object > s3->position);
        s3->chunk = chunk;
        s3->given = 0;
    }
    bytes = pl_number_min(bytes, s3->chunk.bytes - s3->given);
    if (bytes) {
        memcpy(data, (const char *)s3->chunk.data + s3->given, bytes);
    }
    s3->given += bytes;
    *ret_bytes = bytes;
    return PL_OK;
}

static void s3_cancel(struct pl_source *source)
{
    pl_s3_stream_cancel(((struct s3_source *)source)->stream);
}

static void s3_close(struct pl_source *source)
{
    struct s3_source *s3 = (struct s3_source *)source;

    if (s3->only) {
        pl_s3_stream_close(s3->stream);
        free(s3->only);
    }
    free(s3);
}

enum pl_status pl_s3_stream_source(struct pl_s3_stream *stream, size_t position, const char *name,
                                   struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = s3_read, .cancel = s3_cancel, .close = s3_close};
    PL_AUTO_FREE struct s3_source *s3 = NULL;

    PL_TRY(pl_memory_alloc(&s3, 1, sizeof(*s3), reterr));
    s3->stream = stream;
    s3->position = position;
    s3->chunk.object = SIZE_MAX;
    PL_TRY(pl_source_init(&s3->head, &ops, name, reterr));
    *ret_source = &PL_TAKE(s3)->head;
    return PL_OK;
}

enum pl_status pl_source_s3_open(struct pl_s3_client *client, const char *name, const struct pl_s3_object *object,
                                 const struct pl_s3_stream_options *options, struct pl_source **ret_source,
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_object *only = NULL;
    struct pl_s3_stream *stream;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&only, 1, sizeof(*only), reterr));
    *only = *object;
    PL_TRY(pl_s3_stream_open(client, only, 1, options, &stream, reterr));
    status = pl_s3_stream_source(stream, 0, name, ret_source, reterr);
    if (status != PL_OK) {
        pl_s3_stream_close(stream);
        return status;
    }
    ((struct s3_source *)*ret_source)->only = PL_TAKE(only);
    return PL_OK;
}

enum pl_status pl_s3_fetch_text(struct pl_s3_client *client, const char *uri, size_t max_bytes, int64_t deadline_ns,
                                char **ret_text, size_t *ret_bytes, struct pl_error *reterr)
{
    const struct pl_s3_stream_options options = {.budget_bytes = 4 << 20, .part_bytes = 1 << 20};
    PL_AUTO_FREE char *bucket = NULL, *key = NULL;
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_s3_object object = {.etag = NULL};
    struct pl_s3_stream *stream;
    struct pl_s3_chunk chunk;
    enum pl_status status;

    PL_TRY(pl_s3_uri_parse(uri, &bucket, &key, reterr));
    if (!*key) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is a bucket: expected an object", uri);
    }
    object.bucket = bucket;
    object.key = key;
    PL_TRY(pl_s3_stream_open(client, &object, 1, &options, &stream, reterr));
    while ((status = pl_s3_stream_next(stream, deadline_ns, &chunk, reterr)) == PL_OK) {
        if (text.length + chunk.bytes > max_bytes) {
            status = pl_error_set(reterr, PL_LIMIT, "'%s' is longer than %zu bytes", uri, max_bytes);
            break;
        }
        pl_text_append_n(&text, chunk.bytes ? chunk.data : "", chunk.bytes);
    }
    pl_s3_stream_close(stream);
    if (status != PL_END) {
        return status;
    }
    *ret_bytes = text.length;
    return pl_text_take(&text, ret_text, reterr);
}
