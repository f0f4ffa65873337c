/* SPDX-License-Identifier: Apache-2.0 */
/* Lists objects, for `cp` and for `paceline s3 ls`; and `paceline s3 cat`, which writes them to standard output. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "programs/s3/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * Limit for the time until a list has a new key, as a multiple of the limit for one request: after many deletions there
 * may be many pages without keys.
 */
enum { LIST_TIMEOUT_FACTOR = 10 };

enum { TIME_BYTES = 32 };

static enum pl_status next_page(struct pl_tool *tool, const char *bucket, const char *prefix, const char *delimiter,
                                struct pl_s3_pages *pages, struct pl_s3_listing *listing, struct pl_error *reterr)
{
    size_t before = pages->count;
    enum pl_status status = pl_s3_list_page(tool->client, bucket, prefix, delimiter, pages,
                                            pl_deadline_after_ns(tool->timeout_ns), listing, reterr);

    if (status == PL_TIMEOUT && pages->count > before) { /* the list's limit has passed, not that of a request */
        pl_error_context(reterr, "use a longer --timeout: a list may take %d times as long", LIST_TIMEOUT_FACTOR);
    }
    return status;
}

enum pl_status pl_tool_list(struct pl_tool *tool, const char *bucket, const char *prefix, struct pl_s3_listing *listing,
                            struct pl_error *reterr)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.timeout_ns = LIST_TIMEOUT_FACTOR * tool->timeout_ns};

    do {
        PL_TRY(next_page(tool, bucket, prefix, NULL, &pages, listing, reterr));
    } while (pages.token);
    return PL_OK;
}

/* Writes a time in UTC; "" where it is not known. */
static const char *time_text(int64_t modified_s, char text[TIME_BYTES])
{
    time_t modified = (time_t)modified_s;
    struct tm utc;

    text[0] = '\0';
    if (modified_s >= 0 && gmtime_r(&modified, &utc)) {
        strftime(text, TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    return text;
}

/* Prints one JSON object, and a newline. */
static enum pl_status print_entry_json(const struct pl_s3_entry *entry, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(&text);
    char when[TIME_BYTES];

    pl_json_write_object(&writer, NULL);
    if (entry->is_prefix) {
        pl_json_write_text(&writer, "prefix", entry->key);
    } else {
        pl_json_write_text(&writer, "key", entry->key);
        pl_json_write_int64(&writer, "bytes", (int64_t)entry->size_bytes);
        pl_json_write_text(&writer, "modified", time_text(entry->modified_s, when));
    }
    pl_json_write_close(&writer);
    PL_TRY(pl_json_write_end(&writer, reterr));
    puts(pl_text_string(&text));
    return PL_OK;
}

static enum pl_status print_entry(const struct pl_s3_entry *entry, bool json, struct pl_error *reterr)
{
    char when[TIME_BYTES];

    if (json) {
        return print_entry_json(entry, reterr);
    }
    if (entry->is_prefix) {
        printf("%20s %15s %s\n", "", "PREFIX", entry->key);
    } else {
        printf("%20s %15llu %s\n", time_text(entry->modified_s, when), (unsigned long long)entry->size_bytes,
               entry->key);
    }
    return PL_OK;
}

enum pl_status pl_tool_ls(struct pl_tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *prefix = NULL;
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.timeout_ns = LIST_TIMEOUT_FACTOR * tool->timeout_ns};
    size_t count = 0;

    if (tool->arg_count != 1) {
        return pl_error_set(reterr, PL_INVALID, "expected one s3://BUCKET/PREFIX");
    }
    PL_TRY(pl_s3_uri_parse(tool->args[0], &bucket, &prefix, reterr));
    PL_TRY(pl_tool_connect(tool, reterr));
    do {
        PL_AUTO_S3_LISTING struct pl_s3_listing page = {.items = NULL};

        PL_TRY(next_page(tool, bucket, prefix, tool->recursive ? NULL : "/", &pages, &page, reterr));
        for (size_t i = 0; i < page.count && !ferror(stdout); i++) {
            PL_TRY(print_entry(&page.items[i], tool->json, reterr));
        }
        if (ferror(stdout) || fflush(stdout) != 0) { /* a reader that has seen enough (`| head`) is not a failure */
            return errno == EPIPE ? PL_OK : pl_error_errno(reterr, "write standard output");
        }
        count += page.count;
    } while (pages.token);
    return count ? PL_OK : pl_error_set(reterr, PL_NOT_FOUND, "nothing under '%s'", tool->args[0]);
}

enum pl_status pl_tool_cat(struct pl_tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_s3_object *objects = NULL;
    struct pl_s3_stream *stream = NULL;
    enum pl_status status = PL_OK;
    int parsed = 0;

    PL_TRY(pl_memory_alloc(&objects, (size_t)tool->arg_count, sizeof(*objects), reterr));
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
