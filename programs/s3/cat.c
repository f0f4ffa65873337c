/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3 cat`: writes objects to standard output. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "programs/s3/s3.h"

#include <stdlib.h>
#include <unistd.h>

enum pl_status pl_tool_cat(struct pl_tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_object *objects = pl_memory_new((size_t)tool->arg_count, sizeof(*objects), reterr);
    struct pl_s3_stream *stream = NULL;
    enum pl_status status = PL_OK;
    int parsed = 0;

    if (!objects) {
        return PL_MEMORY;
    }
    if (tool->arg_count == 0) {
        return pl_error_set(reterr, PL_INVALID, "expected s3://BUCKET/KEY...");
    }
    for (; parsed < tool->arg_count && status == PL_OK; parsed++) {
        char *bucket = NULL, *key = NULL;

        status = pl_s3_uri_parse(tool->args[parsed], &bucket, &key, reterr);
        objects[parsed].bucket = bucket;
        objects[parsed].key = key;
        if (status == PL_OK && !*key) {
            status = pl_error_set(reterr, PL_INVALID, "'%s' is a bucket: expected an object", tool->args[parsed]);
        }
    }
    if (status == PL_OK) {
        status = pl_tool_connect(tool, reterr);
    }
    if (status == PL_OK) {
        status =
            pl_s3_stream_open(tool->client, objects, (size_t)tool->arg_count, &tool->stream_options, &stream, reterr);
    }
    while (status == PL_OK) {
        struct pl_s3_chunk chunk;

        status = pl_s3_stream_next(stream, pl_deadline_after_ns(tool->timeout_ns), &chunk, reterr);
        if (status == PL_OK) {
            status = pl_file_write_fd(STDOUT_FILENO, chunk.data, chunk.bytes, "standard output", reterr);
        }
    }
    pl_s3_stream_close(stream);
    for (int i = 0; i < parsed; i++) {
        free((char *)(uintptr_t)objects[i].bucket);
        free((char *)(uintptr_t)objects[i].key);
    }
    return status == PL_END ? PL_OK : status;
}
