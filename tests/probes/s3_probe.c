/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores and sources over S3 for tests: prints or writes out what they give.
 *
 *   s3_probe prefix URI                          each object: its key, size and CRC32C
 *   s3_probe manifest URI                        the same of a ManifestFile
 *   s3_probe augmented URI RANK SIZE EPOCH NAME...   the RecordIO stream; EPOCH -1: no shuffle
 *   s3_probe stream URI SEED EPOCHS              a stream with each object as a record, in turn: number, bytes, CRC32C;
 *                                                SEED -1: in key order
 *   s3_probe drain BUDGET_MIB URI                read it all; prints bytes, CRC32C and peak memory in KiB
 */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_get.h"
#include "s3io/source.h"
#include "s3io/store_private.h"
#include "s3io/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 16 };

static const int64_t limit_ns = 60 * PL_NS_PER_S;

static enum pl_status drain(struct pl_source *source, FILE *out, uint64_t *ret_bytes, uint32_t *ret_crc32c,
                            struct pl_error *reterr)
{
    static char piece[PIECE_BYTES];

    *ret_bytes = 0;
    *ret_crc32c = 0;
    for (;;) {
        size_t got;

        PL_TRY(pl_source_read(source, piece, sizeof(piece), pl_deadline_after_ns(limit_ns), &got, reterr));
        if (got == 0) {
            return PL_OK;
        }
        *ret_bytes += got;
        *ret_crc32c = pl_checksum_crc32c(*ret_crc32c, piece, got);
        if (out && fwrite(piece, 1, got, out) != got) {
            return pl_error_set(reterr, PL_SYSTEM, "standard output is gone");
        }
    }
}

static enum pl_status show_store(struct pl_store *store, struct pl_error *reterr)
{
    PL_AUTO_OBJECT_LIST struct pl_object_list list = {.items = NULL};
    PL_AUTO_STORE_READER struct pl_store_reader reader = {.store = NULL};
    const struct pl_object_order order = {.list = &list};

    PL_TRY(pl_store_list(store, pl_deadline_after_ns(limit_ns), &list, reterr));
    PL_TRY(pl_store_reader_open(&reader, store, &order, reterr));
    for (size_t i = 0; i < list.count; i++) {
        PL_AUTO_SOURCE struct pl_source *source = NULL;
        const struct pl_object *object;
        uint64_t bytes;
        uint32_t crc32c;

        PL_TRY(pl_store_reader_next(&reader, &source, &object, reterr));
        PL_TRY(drain(source, NULL, &bytes, &crc32c, reterr));
        printf("%s\t%llu\t%08x\n", object->key, (unsigned long long)bytes, crc32c);
    }
    return PL_OK;
}

static enum pl_status show_augmented(struct pl_s3_client *client, char **words, int count, struct pl_error *reterr)
{
    PL_AUTO_AUGMENTED struct pl_augmented augmented = {.values = NULL};
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    struct pl_augmented_options options = {.seed = 42};
    uint64_t bytes;
    uint32_t crc32c;

    options.deal.rank = (uint32_t)atoi(words[1]);
    options.deal.size = (uint32_t)atoi(words[2]);
    options.shuffle = atoi(words[3]) >= 0;
    options.epoch = options.shuffle ? (uint64_t)atoi(words[3]) : 0;
    PL_TRY(pl_manifest_fetch_augmented(client, words[0], (const char *const *)(words + 4), (size_t)count - 4,
                                       pl_deadline_after_ns(limit_ns), &augmented, reterr));
    PL_TRY(pl_source_augmented_open(client, &augmented, &options, &source, reterr));
    return drain(source, stdout, &bytes, &crc32c, reterr);
}

static enum pl_status show_epoch(struct pl_stream *stream, uint64_t epoch, struct pl_error *reterr)
{
    enum pl_status status = pl_stream_start(stream, epoch, pl_deadline_after_ns(limit_ns), reterr);

    while (status == PL_OK) {
        struct pl_record record;

        status = pl_stream_next(stream, pl_deadline_after_ns(limit_ns), &record, reterr);
        if (status == PL_OK) {
            printf("%llu\t%zu\t%08x\n", (unsigned long long)record.index, record.bytes,
                   pl_checksum_crc32c(0, record.data, record.bytes));
        }
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status show_stream(struct pl_s3_client *client, char **words, struct pl_error *reterr)
{
    struct pl_stream_options options = {.records = {.format = PL_RECORD_WHOLE}, .deal = {.size = 1}};
    struct pl_stream *stream = NULL;
    struct pl_store *store;
    enum pl_status status;

    options.shuffle_objects = atoi(words[1]) >= 0;
    options.seed = options.shuffle_objects ? (uint64_t)atoi(words[1]) : 0;
    PL_TRY(pl_store_s3_open(client, words[0], false, 0, &store, reterr));
    status = pl_stream_open_store(store, &options, &stream, reterr);
    if (status != PL_OK) {
        pl_store_close(store);
        return status;
    }
    for (uint64_t epoch = 0; epoch < (uint64_t)atoi(words[2]) && status == PL_OK; epoch++) {
        status = show_epoch(stream, epoch, reterr);
    }
    pl_stream_close(stream);
    return status;
}

/* The peak memory of this program alone: the value of getrusage(2) includes the parent's before exec. */
static long peak_kib(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[128];
    long kib = -1;

    while (file && kib < 0 && fgets(line, sizeof(line), file)) {
        sscanf(line, "VmHWM: %ld kB", &kib);
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

static enum pl_status run(struct pl_s3_client *client, const char *verb, char **words, int count,
                          struct pl_error *reterr)
{
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_FREE char *bucket = NULL, *key = NULL;
    PL_AUTO_SOURCE struct pl_source *source = NULL;

    if (strcmp(verb, "prefix") == 0 && count == 1) {
        PL_TRY(pl_store_s3_open(client, words[0], false, 0, &store, reterr));
        return show_store(store, reterr);
    }
    if (strcmp(verb, "manifest") == 0 && count == 1) {
        PL_TRY(pl_store_s3_open(client, words[0], true, pl_deadline_after_ns(limit_ns), &store, reterr));
        return show_store(store, reterr);
    }
    if (strcmp(verb, "augmented") == 0 && count >= 5) {
        return show_augmented(client, words, count, reterr);
    }
    if (strcmp(verb, "stream") == 0 && count == 3) {
        return show_stream(client, words, reterr);
    }
    if (strcmp(verb, "drain") == 0 && count == 2) {
        const struct pl_s3_stream_options options = {.budget_bytes = (uint64_t)atoi(words[0]) << 20};
        uint64_t bytes;
        uint32_t crc32c;

        PL_TRY(pl_s3_uri_parse(words[1], &bucket, &key, reterr));
        PL_TRY(pl_source_s3_open(client, words[1], &(struct pl_s3_object){.bucket = bucket, .key = key}, &options,
                                 &source, reterr));
        PL_TRY(drain(source, NULL, &bytes, &crc32c, reterr));
        printf("%llu\t%08x\t%ld\n", (unsigned long long)bytes, crc32c, peak_kib());
        return PL_OK;
    }
    return pl_error_set(reterr, PL_INVALID, "see the comment on top of s3_probe.c");
}

int main(int argc, char **argv)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;
    struct pl_s3_options options = {.connections = 8};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status =
        argc < 2 ? pl_error_set(&error, PL_INVALID, "no verb") : pl_environment_new(&environment, &error);
    char text[1200];

    if (status == PL_OK && strcmp(argv[1], "stream") == 0) {
        options.connections = 0; /* as many as the tools use */
    }
    if (status == PL_OK) {
        status = pl_s3_client_new(environment, &options, &client, &error);
    }
    if (status == PL_OK) {
        status = run(client, argv[1], argv + 2, argc - 2, &error);
    }
    if (status != PL_OK) {
        fprintf(stderr, "s3_probe: %s\n", pl_error_text(&error, text, sizeof(text)));
    }
    return status == PL_OK ? 0 : 1;
}
