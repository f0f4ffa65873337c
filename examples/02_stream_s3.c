/* SPDX-License-Identifier: Apache-2.0 */
/* Stream records. The ranks share the lines of all objects below an S3 prefix, without a copy on disk.
 *
 *   cc 02_stream_s3.c -o stream_s3 $(pkg-config --cflags --libs paceline)
 *   mpirun -n 2 ./stream_s3 s3://BUCKET/PREFIX
 *
 * The environment has the keys (AWS_ACCESS_KEY_ID and so on), see docs/s3.md. A directory works instead of s3://.
 */
#include "runtime/paceline.h"

#include <stdio.h>
#include <stdlib.h>

static enum pl_status run(const char *uri, struct pl_error *reterr)
{
    const int64_t deadline_ns = pl_deadline_after_ns(300 * PL_NS_PER_S); /* for the whole epoch */
    struct pl_stream_options options = {.records = {.format = PL_RECORD_LINES}, .compression = PL_COMPRESSION_AUTO};
    struct pl_runtime *runtime;
    struct pl_store *store;
    struct pl_stream *stream;
    struct pl_record record;
    enum pl_status status;
    int64_t own[2] = {0, 0}, all[2]; /* lines, bytes */

    PL_TRY(pl_runtime_start(&runtime, reterr));
    struct pl_world *world = pl_runtime_world(runtime);
    const int rank = pl_world_rank(world);

    PL_TRY(pl_store_open(uri, &store, reterr));
    options.deal = (struct pl_shard){.rank = (uint32_t)rank, .size = (uint32_t)pl_world_size(world)};
    PL_TRY(pl_stream_open_store(store, &options, &stream, reterr)); /* line i belongs to rank i mod size */
    PL_TRY(pl_stream_start(stream, 0, deadline_ns, reterr));        /* epoch 0: lists the objects and begins to read */
    while ((status = pl_stream_next(stream, deadline_ns, &record, reterr)) == PL_OK) {
        own[0]++; /* record.data is valid until the next call */
        own[1] += (int64_t)record.bytes;
    }
    if (status != PL_END) {
        return status;
    }
    pl_stream_close(stream); /* also closes the store */

    PL_TRY(pl_allreduce(world, own, all, 2, PL_INT64, PL_SUM, reterr));
    printf("rank %d: %lld of %lld lines, %lld of %lld bytes\n", rank, (long long)own[0], (long long)all[0],
           (long long)own[1], (long long)all[1]);
    pl_runtime_stop(runtime);
    return PL_OK;
}

int main(int argc, char **argv)
{
    struct pl_error error = PL_ERROR_NONE;

    if (argc != 2) {
        fprintf(stderr, "usage: stream_s3 s3://BUCKET/PREFIX\n");
        return 2;
    }
    if (run(argv[1], &error) != PL_OK) {
        pl_log_error(&error, "stream_s3");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
