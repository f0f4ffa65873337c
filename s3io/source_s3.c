/* SPDX-License-Identifier: Apache-2.0 */
#include "s3io/s3_get.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct s3_source {
    struct pl_source head;
    struct pl_s3_client *client;
    struct pl_s3_stream *stream;
    struct pl_s3_object *objects;
    size_t count;
    struct pl_s3_chunk chunk; /* being handed out */
    size_t given;             /* of it */
};

static struct s3_source *of_source(struct pl_source *source)
{
    return (struct s3_source *)source;
}

static void free_objects(struct pl_s3_object *objects, size_t count)
{
    for (size_t i = 0; objects && i < count; i++) {
        free((char *)(uintptr_t)objects[i].bucket);
        free((char *)(uintptr_t)objects[i].key);
        free((char *)(uintptr_t)objects[i].etag);
    }
    free(objects);
}

static enum pl_status s3_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns, size_t *ret_bytes, struct pl_error *reterr)
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
    free_objects(s3->objects, s3->count);
    free(s3);
}

static enum pl_status copy_objects(const struct pl_s3_object *objects, size_t count, struct pl_s3_object **ret_copies, struct pl_error *reterr)
{
    struct pl_s3_object *copies = pl_memory_new(count, sizeof(*copies), reterr);

    if (!copies) {
        return PL_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        copies[i] = objects[i];
        copies[i].bucket = pl_memory_string(objects[i].bucket, reterr);
        copies[i].key = pl_memory_string(objects[i].key, reterr);
        copies[i].etag = objects[i].etag ? pl_memory_string(objects[i].etag, reterr) : NULL;
        if (!copies[i].bucket || !copies[i].key || (objects[i].etag && !copies[i].etag)) {
            free_objects(copies, i + 1);
            return PL_MEMORY;
        }
    }
    *ret_copies = copies;
    return PL_OK;
}

enum pl_status pl_source_open_s3_objects(struct pl_s3_client *client, const char *name, const struct pl_s3_object *objects, size_t count,
                                         const struct pl_s3_stream_options *options, struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = s3_read, .cancel = s3_cancel, .close = s3_close};
    struct s3_source *s3 = pl_memory_new(1, sizeof(*s3), reterr);
    enum pl_status status;

    if (!s3) {
        return PL_MEMORY;
    }
    s3->client = client;
    s3->count = count;
    status = copy_objects(objects, count, &s3->objects, reterr);
    if (status == PL_OK) {
        status = pl_source_init(&s3->head, &ops, name, reterr);
    }
    if (status == PL_OK) {
        status = pl_s3_stream_open(client, s3->objects, count, options, &s3->stream, reterr);
    }
    if (status != PL_OK) {
        free(s3->head.name);
        free_objects(s3->objects, s3->objects ? count : 0);
        free(s3);
        return status;
    }
    *ret_source = &s3->head;
    return PL_OK;
}

enum pl_status pl_source_open_s3(struct pl_s3_client *client, const char *uri, const struct pl_s3_stream_options *options,
                                 struct pl_source **ret_source, struct pl_error *reterr)
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
    return pl_source_open_s3_objects(client, uri, &object, 1, options, ret_source, reterr);
}
