/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads a source with one request or as a multipart upload, and aborts an upload that fails. */
#include "s3io/s3/s3_client.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "s3io/s3/s3_operation.h"
#include "s3io/s3/s3_reply.h"
#include "s3io/source.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 10000, MAX_PARALLEL = 8, MIB = 1 << 20 };

/* how often to check for a stop request while the source delivers nothing */
#define CHECK_PEERS_NS (100 * PL_NS_PER_MS)
#define NAME_NS (10 * PL_NS_PER_S) /* after a stop request during the start of an upload: how long to wait for its id */
#define ABORT_NS (30 * PL_NS_PER_S)
#define LOG_NS PL_NS_PER_S /* a longer wait after the cancellation is logged */

static const uint64_t default_budget_bytes = UINT64_C(64) << 20;
static const uint64_t default_part_bytes = UINT64_C(16) << 20;

struct sent_part {
    char etag[PL_HTTP_ETAG_BYTES];
    char checksum[9];
};

/* An upload buffer and the request that sends it. */
struct part_buffer {
    struct pl_s3_operation operation;
    struct upload *upload;
    unsigned char *memory;
    size_t bytes;
    size_t part; /* index of the part, from 0 */
    char query[256 + 1024];
    char checksum[9];
    char hash[PL_SIGV4_HEX_BYTES];
    struct {
        bool busy;
    } synced; /* under the upload's lock */
};

struct upload {
    struct pl_s3_client *client;
    const char *bucket, *key;
    struct pl_source *source;
    uint64_t size_bytes, given_bytes, part_bytes;
    struct pl_s3_upload_options options;
    struct pl_s3_cancel_check cancel_check; /* callback of the options */
    int64_t deadline_ns;
    char *id;        /* id of the upload, encoded for a query */
    int64_t begun_s; /* a time by the server's clock, not after the server began the upload; -1 if it is unknown */
    struct part_buffer part_buffers[MAX_PARALLEL];
    size_t part_buffer_count;
    size_t part_count, part_capacity;
    pthread_mutex_t lock;
    pthread_cond_t changed_cond;
    struct {
        struct sent_part *parts;
        uint64_t arrived_bytes;
        enum pl_status status; /* status of the first part that failed */
        struct pl_error error;
    } synced; /* under `lock` */
};

static void part_buffer_done(struct pl_s3_operation *operation, enum pl_status status)
{
    struct part_buffer *part_buffer = operation->context;
    struct upload *upload = part_buffer->upload;

    pthread_mutex_lock(&upload->lock);
    if (status == PL_OK && !operation->head.etag[0]) {
        status = pl_error_set(&operation->error, PL_CORRUPT, "the server has accepted part %zu without an ETag",
                              part_buffer->part + 1);
    }
    if (status == PL_OK) {
        memcpy(upload->synced.parts[part_buffer->part].etag, operation->head.etag, PL_HTTP_ETAG_BYTES);
        memcpy(upload->synced.parts[part_buffer->part].checksum, part_buffer->checksum, sizeof(part_buffer->checksum));
        upload->synced.arrived_bytes += part_buffer->bytes;
    } else if (upload->synced.status == PL_OK) {
        upload->synced.status = status;
        upload->synced.error = operation->error;
    }
    part_buffer->synced.busy = false;
    pthread_cond_signal(&upload->changed_cond);
    pthread_mutex_unlock(&upload->lock);
}

static enum pl_status upload_cancelled(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "the upload was cancelled");
}

/* Reads some bytes. Returns early after a stop request, even if the source delivers nothing. */
static enum pl_status read_some(struct upload *upload, void *data, size_t bytes, size_t *ret_bytes,
                                struct pl_error *reterr)
{
    enum pl_status status;

    do {
        int64_t look_ns = upload->cancel_check.go_on ? pl_deadline_after_ns(CHECK_PEERS_NS) : PL_DEADLINE_NEVER;

        if (pl_s3_is_cancelled(&upload->cancel_check)) {
            return upload_cancelled(reterr);
        }
        status = pl_source_read(upload->source, data, bytes,
                                look_ns < upload->deadline_ns ? look_ns : upload->deadline_ns, ret_bytes, reterr);
    } while (status == PL_TIMEOUT && !pl_deadline_passed(upload->deadline_ns));
    return status;
}

/* Fills an upload buffer. `*ret_end` tells whether the source has ended. */
static enum pl_status fill(struct upload *upload, struct part_buffer *part_buffer, bool *ret_end,
                           struct pl_error *reterr)
{
    size_t got = 1, more_bytes = 0;
    char more;

    for (part_buffer->bytes = 0; got && part_buffer->bytes < upload->part_bytes; part_buffer->bytes += got) {
        PL_TRY(read_some(upload, part_buffer->memory + part_buffer->bytes, upload->part_bytes - part_buffer->bytes,
                         &got, reterr));
    }
    upload->given_bytes += part_buffer->bytes;
    *ret_end = part_buffer->bytes < upload->part_bytes || upload->given_bytes >= upload->size_bytes;
    if (upload->given_bytes == upload->size_bytes) {
        PL_TRY(read_some(upload, &more, 1, &more_bytes, reterr));
    }
    if (upload->size_bytes != PL_S3_SIZE_UNKNOWN && *ret_end &&
        upload->given_bytes + more_bytes != upload->size_bytes) {
        return pl_error_set(reterr, PL_CORRUPT, "'%s' gave %s bytes than the %llu that were expected",
                            upload->source->name,
                            upload->given_bytes + more_bytes > upload->size_bytes ? "more" : "fewer",
                            (unsigned long long)upload->size_bytes);
    }
    return PL_OK;
}

static enum pl_status send_part(struct upload *upload, struct part_buffer *part_buffer, struct pl_error *reterr)
{
    static const struct pl_s3_operation_handler handler = {.done = part_buffer_done};
    struct pl_s3_operation *operation = &part_buffer->operation;
    struct sent_part *grown;
    enum pl_status status;

    if (upload->part_count == MAX_PARTS) {
        return pl_error_set(reterr, PL_LIMIT, "the upload has more than %d parts of %llu bytes", MAX_PARTS,
                            (unsigned long long)upload->part_bytes);
    }
    pthread_mutex_lock(&upload->lock);
    grown = upload->synced.parts;
    status = pl_memory_grow(&grown, &upload->part_capacity, upload->part_count + 1, sizeof(*grown), reterr);
    upload->synced.parts = grown;
    part_buffer->synced.busy = status == PL_OK;
    pthread_mutex_unlock(&upload->lock);
    PL_TRY(status);
    part_buffer->part = upload->part_count++;
    if (snprintf(part_buffer->query, sizeof(part_buffer->query), "partNumber=%zu&uploadId=%s", part_buffer->part + 1,
                 upload->id) >= (int)sizeof(part_buffer->query)) {
        part_buffer->synced.busy = false;
        return pl_error_set(reterr, PL_LIMIT, "the server sent an upload id of %zu bytes, which is too long",
                            strlen(upload->id));
    }
    pl_s3_operation_done(operation);
    *operation = (struct pl_s3_operation){.client = upload->client,
                                          .handler = &handler,
                                          .context = part_buffer,
                                          .method = "PUT",
                                          .bucket = upload->bucket,
                                          .key = upload->key,
                                          .query = part_buffer->query,
                                          .body = part_buffer->memory,
                                          .body_bytes = part_buffer->bytes,
                                          .deadline_ns = upload->deadline_ns};
    if (!upload->options.no_checksums) {
        pl_http_head_word_base64(pl_checksum_crc32c(0, part_buffer->memory, part_buffer->bytes), part_buffer->checksum);
        operation->extra[operation->extra_count++] =
            (struct pl_sigv4_header){"x-amz-checksum-crc32c", part_buffer->checksum};
    }
    if (upload->client->plain) {
        /* Hash it here, not on the engine's thread, which drives all transfers. */
        status = pl_sigv4_hash(part_buffer->memory, part_buffer->bytes, part_buffer->hash, reterr);
        if (status != PL_OK) {
            part_buffer->synced.busy = false;
            return status;
        }
        operation->body_hash = part_buffer->hash;
    }
    pl_s3_operation_post(operation);
    return PL_OK;
}

/* Waits until an upload buffer is free, or with `all` until all are, and reports progress. Also returns when a part
 * fails; a stop request counts as a failure. */
static enum pl_status wait_part_buffer(struct upload *upload, bool all, struct part_buffer **ret_lane,
                                       struct pl_error *reterr)
{
    uint64_t told_bytes = UINT64_MAX;
    enum pl_status status;

    pthread_mutex_lock(&upload->lock);
    for (;;) {
        size_t busy = 0;

        *ret_lane = NULL;
        for (size_t i = 0; i < upload->part_buffer_count; i++) {
            busy += upload->part_buffers[i].synced.busy;
            *ret_lane = upload->part_buffers[i].synced.busy ? *ret_lane : &upload->part_buffers[i];
        }
        if (upload->options.progress && told_bytes != upload->synced.arrived_bytes) {
            told_bytes = upload->synced.arrived_bytes;
            pthread_mutex_unlock(&upload->lock);
            upload->options.progress(upload->options.context, told_bytes);
            pthread_mutex_lock(&upload->lock);
            continue;
        }
        if (upload->synced.status == PL_OK && pl_s3_is_cancelled(&upload->cancel_check)) {
            upload->synced.status = upload_cancelled(&upload->synced.error);
        }
        if (upload->synced.status != PL_OK || (all ? busy == 0 : !!*ret_lane)) {
            break;
        }
        pl_s3_cancel_wait(&upload->cancel_check, &upload->changed_cond, &upload->lock);
    }
    status = upload->synced.status;
    if (status != PL_OK && reterr) {
        *reterr = upload->synced.error;
    }
    pthread_mutex_unlock(&upload->lock);
    return status;
}

static enum pl_status send_parts(struct upload *upload, struct part_buffer *part_buffer, struct pl_error *reterr)
{
    enum pl_status status = send_part(upload, part_buffer, reterr);
    bool end = false;

    while (status == PL_OK && !end) {
        status = wait_part_buffer(upload, false, &part_buffer, reterr);
        if (status == PL_OK) {
            status = fill(upload, part_buffer, &end, reterr);
        }
        if (status == PL_OK && part_buffer->bytes) {
            status = send_part(upload, part_buffer, reterr);
        }
    }
    if (status == PL_OK) {
        status = wait_part_buffer(upload, true, &part_buffer, reterr);
    }
    for (size_t i = 0; i < upload->part_buffer_count && status != PL_OK; i++) {
        pl_s3_operation_cancel_wait(&upload->part_buffers[i].operation);
    }
    return status;
}

struct text_element {
    const char *path;
    struct pl_text *text;
    bool found;
};

static enum pl_status on_element(void *context, const char *path, const char *text, size_t bytes,
                                 struct pl_error *reterr)
{
    struct text_element *wanted = context;

    (void)reterr;
    if (strcmp(path, wanted->path) == 0) {
        wanted->found = true;
        pl_text_clear(wanted->text);
        pl_text_append_n(wanted->text, text, bytes);
    }
    return PL_OK;
}

/* Takes the text of one element of a response. PL_CORRUPT if the response does not have it. */
static enum pl_status take_element(const struct pl_text *reply, const char *path, struct pl_text *text,
                                   struct pl_error *reterr)
{
    struct text_element wanted = {.path = path, .text = text};
    struct pl_s3_xml_visitor visitor = {&wanted, on_element};

    PL_TRY(pl_s3_xml_walk(pl_text_string(reply), reply->length, &visitor, reterr));
    return wanted.found ? pl_text_check(text, reterr)
                        : pl_error_set(reterr, PL_CORRUPT, "the answer has no element '%s'", path);
}

/* Sends one request about the whole object, not about a part. */
static enum pl_status call(struct upload *upload, struct pl_s3_operation *operation,
                           const struct pl_s3_cancel_check *cancel_check, struct pl_error *reterr)
{
    operation->bucket = upload->bucket;
    operation->key = upload->key;
    operation->deadline_ns = upload->deadline_ns;
    return pl_s3_call(upload->client, operation, cancel_check, reterr);
}

/* A wait for a response without which an unfinished upload would stay on the server. */
struct last_wait {
    const struct upload *upload;
    const struct pl_s3_cancel_check *usual; /* the caller's cancel callback; NULL after it has cancelled */
    const char *what;
    int64_t limit_ns;
    int64_t until_ns, log_ns; /* set when the caller's callback cancels; PL_DEADLINE_NEVER before */
};

static bool waits_on(void *context)
{
    struct last_wait *wait = context;

    if (wait->until_ns == PL_DEADLINE_NEVER && (!wait->usual || pl_s3_is_cancelled(wait->usual))) {
        wait->until_ns = pl_deadline_after_ns(wait->limit_ns);
        wait->log_ns = pl_deadline_after_ns(LOG_NS);
    }
    if (pl_deadline_passed(wait->log_ns)) {
        wait->log_ns = PL_DEADLINE_NEVER;
        pl_log(PL_LOG_WARNING,
               "waiting up to %d s for the server to %s the upload to s3://%s/%s, so that no parts of it stay there",
               (int)(wait->limit_ns / PL_NS_PER_S), wait->what, wait->upload->bucket, wait->upload->key);
    }
    return !pl_deadline_passed(wait->until_ns);
}

static enum pl_status create(struct upload *upload, struct pl_error *reterr)
{
    struct pl_s3_operation operation = {
        .method = "POST", .query = "uploads=", .headers = upload->options.headers, .check_reply = true};
    struct last_wait wait = {.upload = upload,
                             .usual = &upload->cancel_check,
                             .what = "name",
                             .limit_ns = NAME_NS,
                             .until_ns = PL_DEADLINE_NEVER,
                             .log_ns = PL_DEADLINE_NEVER};
    struct pl_s3_cancel_check cancel_check = {.go_on = waits_on, .context = &wait};
    PL_AUTO_TEXT struct pl_text id = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text encoded = PL_TEXT_NONE;
    int64_t asked_ns = pl_clock_now_ns();
    enum pl_status status;

    if (pl_s3_is_cancelled(&upload->cancel_check)) {
        return upload_cancelled(reterr);
    }
    if (!upload->options.no_checksums) {
        operation.extra[operation.extra_count++] = (struct pl_sigv4_header){"x-amz-checksum-algorithm", "CRC32C"};
    }
    status = call(upload, &operation, &cancel_check, reterr);
    upload->begun_s =
        operation.head.date_s < 0 ? -1 : operation.head.date_s - (pl_clock_now_ns() - asked_ns) / PL_NS_PER_S - 2;
    if (status == PL_OK) {
        status = take_element(&operation.reply, "InitiateMultipartUploadResult/UploadId", &id, reterr);
    }
    pl_s3_operation_done(&operation);
    PL_TRY(status);
    pl_sigv4_encode(pl_text_string(&id), id.length, false, &encoded);
    return pl_text_take(&encoded, &upload->id, reterr);
}

static void append_escaped(const char *text, struct pl_text *xml)
{
    for (; *text; text++) {
        if (*text == '"') {
            pl_text_append(xml, "&quot;");
        } else if (*text == '<') {
            pl_text_append(xml, "&lt;");
        } else if (*text == '&') {
            pl_text_append(xml, "&amp;");
        } else {
            pl_text_append_char(xml, *text);
        }
    }
}

/* Checks that the object has the size that was sent. `ret_head` describes it; it has no ETag if the role may not
 * read. */
static enum pl_status check_result(struct upload *upload, struct pl_http_head *ret_head, struct pl_error *reterr)
{
    struct pl_s3_operation operation = {.method = "HEAD"};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = call(upload, &operation, &upload->cancel_check, &error);

    *ret_head = operation.head;
    pl_s3_operation_done(&operation);
    if (status != PL_OK && error.domain == PL_DOMAIN_HTTP && error.code == 403) {
        ret_head->etag[0] = '\0';
        return PL_OK; /* the role may write but not read */
    }
    if (status == PL_OK && operation.head.content_length != (int64_t)upload->given_bytes) {
        status = pl_error_set(&error, PL_CORRUPT, "s3://%s/%s has %lld bytes after an upload of %llu bytes",
                              upload->bucket, upload->key, (long long)operation.head.content_length,
                              (unsigned long long)upload->given_bytes);
    }
    if (status != PL_OK && reterr) {
        *reterr = error;
    }
    return status;
}

/* Whether a request whose response was lost has completed the upload: then the object exists, its ETag names as many
 * parts as were sent, and it is not older than the upload. */
static bool was_completed(struct upload *upload)
{
    struct pl_http_head head;
    char tail[24];
    size_t length, tail_length = (size_t)snprintf(tail, sizeof(tail), "-%zu\"", upload->part_count);

    if (check_result(upload, &head, NULL) != PL_OK) {
        return false;
    }
    length = strlen(head.etag);
    return length > tail_length && strcmp(head.etag + length - tail_length, tail) == 0 &&
           head.last_modified_s >= upload->begun_s;
}

static enum pl_status complete(struct upload *upload, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text xml = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text query = PL_TEXT_NONE;
    PL_AUTO_TEXT struct pl_text ignored = PL_TEXT_NONE;
    struct pl_s3_operation operation = {.method = "POST",
                                        .long_timeout = true, /* the server may need minutes to join the parts */
                                        .check_reply = true};
    enum pl_status status;

    pl_text_append(&xml, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < upload->part_count; i++) {
        pl_text_printf(&xml, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        append_escaped(upload->synced.parts[i].etag, &xml);
        pl_text_append(&xml, "</ETag>");
        if (!upload->options.no_checksums) {
            pl_text_printf(&xml, "<ChecksumCRC32C>%s</ChecksumCRC32C>", upload->synced.parts[i].checksum);
        }
        pl_text_append(&xml, "</Part>");
    }
    pl_text_append(&xml, "</CompleteMultipartUpload>");
    pl_text_printf(&query, "uploadId=%s", upload->id);
    PL_TRY(pl_text_check(&xml, reterr));
    PL_TRY(pl_text_check(&query, reterr));
    operation.query = query.data;
    operation.body = xml.data;
    operation.body_bytes = xml.length;
    status = call(upload, &operation, &upload->cancel_check, reterr);
    if (status == PL_OK) {
        status = take_element(&operation.reply, "CompleteMultipartUploadResult", &ignored, reterr);
    } else if (status == PL_NOT_FOUND && was_completed(upload)) {
        /* libcurl itself repeats a request if a kept connection was closed: so even the first response may be the
         * second one. */
        status = PL_OK;
    }
    pl_s3_operation_done(&operation);
    return status;
}

/* Aborts the upload if possible. Parts that cannot be removed now are left to the bucket's lifecycle rule. */
static void abort_upload(struct upload *upload)
{
    PL_AUTO_TEXT struct pl_text query = PL_TEXT_NONE;
    struct pl_s3_operation operation = {.method = "DELETE",
                                        .bucket = upload->bucket,
                                        .key = upload->key,
                                        .deadline_ns = pl_deadline_after_ns(ABORT_NS)};
    struct last_wait wait = {.upload = upload,
                             .what = "abort",
                             .limit_ns = ABORT_NS,
                             .until_ns = PL_DEADLINE_NEVER,
                             .log_ns = PL_DEADLINE_NEVER};
    struct pl_s3_cancel_check cancel_check = {.go_on = waits_on, .context = &wait};
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    pl_text_printf(&query, "uploadId=%s", upload->id);
    status = pl_text_check(&query, &error);
    if (status == PL_OK) {
        operation.query = query.data;
        status = pl_s3_call(upload->client, &operation, &cancel_check, &error);
    }
    if (status != PL_OK && status != PL_NOT_FOUND) {
        char text[PL_ERROR_CAUSE_BYTES + PL_ERROR_CONTEXT_BYTES];

        pl_log(PL_LOG_WARNING,
               "an upload could not be aborted. Its parts stay in s3://%s until the bucket's lifecycle rules remove "
               "them: %s",
               upload->bucket, pl_error_text(&error, text, sizeof(text)));
    }
    pl_s3_operation_done(&operation);
}

static enum pl_status choose_part_size(struct upload *upload, struct pl_error *reterr)
{
    uint64_t budget = upload->options.budget_bytes ? upload->options.budget_bytes : default_budget_bytes;
    uint64_t part = upload->options.part_bytes ? upload->options.part_bytes : default_part_bytes;
    uint64_t part_buffers;

    part = part < budget / 4 ? part : budget / 4;
    part = part < PL_S3_LEAST_PART_BYTES ? PL_S3_LEAST_PART_BYTES : part;
    if (upload->size_bytes != PL_S3_SIZE_UNKNOWN && upload->size_bytes / MAX_PARTS >= part) {
        part = (upload->size_bytes / MAX_PARTS / MIB + 1) * MIB;
    }
    /* A small object needs only a small buffer. */
    if (upload->size_bytes < part) {
        part = upload->size_bytes ? upload->size_bytes : 1;
    }
    part_buffers = budget / part;
    upload->part_bytes = part;
    upload->part_buffer_count = upload->size_bytes <= part    ? 1
                                : part_buffers < 1            ? 1
                                : part_buffers < MAX_PARALLEL ? (size_t)part_buffers
                                                              : MAX_PARALLEL;
    for (size_t i = 0; i < upload->part_buffer_count; i++) {
        upload->part_buffers[i].upload = upload;
        upload->part_buffers[i].operation.client = upload->client;
        upload->part_buffers[i].memory = malloc(part);
        if (!upload->part_buffers[i].memory) {
            return pl_error_set(reterr, PL_MEMORY, "out of memory for a part of %llu bytes", (unsigned long long)part);
        }
    }
    return PL_OK;
}

/* Uploads a small object with one request. */
static enum pl_status put_whole(struct upload *upload, const struct part_buffer *part_buffer, struct pl_error *reterr)
{
    struct pl_s3_operation operation = {.method = "PUT",
                                        .headers = upload->options.headers,
                                        .body = part_buffer->memory,
                                        .body_bytes = part_buffer->bytes};
    char checksum[9];
    enum pl_status status;

    if (!upload->options.no_checksums) {
        pl_http_head_word_base64(pl_checksum_crc32c(0, part_buffer->memory, part_buffer->bytes), checksum);
        operation.extra[operation.extra_count++] = (struct pl_sigv4_header){"x-amz-checksum-crc32c", checksum};
    }
    status = call(upload, &operation, &upload->cancel_check, reterr);
    pl_s3_operation_done(&operation);
    if (status == PL_OK && upload->options.progress) {
        upload->options.progress(upload->options.context, part_buffer->bytes);
    }
    return status;
}

static enum pl_status run(struct upload *upload, struct pl_error *reterr)
{
    struct part_buffer *first = &upload->part_buffers[0];
    struct pl_http_head head;
    bool end = false;
    enum pl_status status;

    PL_TRY(choose_part_size(upload, reterr));
    PL_TRY(fill(upload, first, &end, reterr));
    if (end) {
        PL_TRY(put_whole(upload, first, reterr));
        return check_result(upload, &head, reterr);
    }
    PL_TRY(create(upload, reterr));
    status = send_parts(upload, first, reterr);
    if (status == PL_OK) {
        status = complete(upload, reterr);
    }
    if (status != PL_OK) {
        abort_upload(upload);
        return status;
    }
    return check_result(upload, &head, reterr);
}

enum pl_status pl_s3_upload(struct pl_s3_client *client, const char *bucket, const char *key, struct pl_source *source,
                            uint64_t size_bytes, const struct pl_s3_upload_options *options, int64_t deadline_ns,
                            struct pl_error *reterr)
{
    PL_AUTO_FREE struct upload *upload = NULL;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&upload, 1, sizeof(*upload), reterr));
    upload->client = client;
    upload->bucket = bucket;
    upload->key = key;
    upload->source = source;
    upload->size_bytes = size_bytes;
    upload->deadline_ns = deadline_ns;
    if (options) {
        upload->options = *options;
    }
    upload->cancel_check =
        (struct pl_s3_cancel_check){.go_on = upload->options.go_on, .context = upload->options.context};
    pthread_mutex_init(&upload->lock, NULL);
    pthread_cond_init(&upload->changed_cond, NULL);
    status = run(upload, reterr);
    for (size_t i = 0; i < upload->part_buffer_count; i++) {
        pl_s3_operation_done(&upload->part_buffers[i].operation);
        free(upload->part_buffers[i].memory);
    }
    pthread_cond_destroy(&upload->changed_cond);
    pthread_mutex_destroy(&upload->lock);
    free(upload->synced.parts);
    free(upload->id);
    if (status != PL_OK) {
        pl_error_context(reterr, "uploading to s3://%s/%s", bucket, key);
    }
    return status;
}
