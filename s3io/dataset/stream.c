/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a channel, epoch after epoch: which objects are read, in which order, and which records belong to this
 * rank. */
#include "s3io/stream.h"

#include "base/memory.h"
#include "base/text.h"
#include "s3io/channel.h"
#include "s3io/dataset/dataset_private.h"
#include "s3io/record/record_formats.h"
#include "s3io/sampler.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 256 << 10 }; /* size of an object's window, which stays in a core's cache */

/* Sets the source that pl_stream_cancel() cancels. If the stream was cancelled before, cancels it at once. */
static void set_reading(struct pl_stream *stream, struct pl_source *source)
{
    pthread_mutex_lock(&stream->mutex);
    stream->synced.reading = source;
    if (source && stream->synced.cancelled) {
        pl_source_cancel(source);
    }
    pthread_mutex_unlock(&stream->mutex);
}

struct pl_record_counts pl_stream_counts(const struct pl_stream *stream)
{
    struct pl_record_counts counts = stream->counts;

    counts.next_index = stream->base;
    if (stream->reader) {
        struct pl_record_counts now = pl_record_reader_counts(stream->reader);

        counts.records += now.records;
        counts.record_bytes += now.record_bytes;
        counts.source_bytes += now.source_bytes;
        counts.skipped += now.skipped;
        counts.skipped_bytes += now.skipped_bytes;
        counts.next_index += now.next_index;
    }
    return counts;
}

struct pl_stream_place pl_stream_where(const struct pl_stream *stream)
{
    struct pl_stream_place place = {.index = stream->base, .object = stream->object};

    if (stream->reader) {
        struct pl_record_counts now = pl_record_reader_counts(stream->reader);

        place.index += now.next_index;
        place.number = now.next_index;
        place.offset_bytes = now.source_bytes;
    }
    return place;
}

static void close_reader(struct pl_stream *stream)
{
    if (stream->reader) {
        stream->counts = pl_stream_counts(stream);
        stream->base = stream->counts.next_index;
        if (!stream->outer) {
            set_reading(stream, NULL);
        }
        pl_record_reader_end(stream->reader);
        stream->spare = PL_TAKE(stream->reader);
        stream->object++;
    }
}

static void close_epoch(struct pl_stream *stream)
{
    close_reader(stream);
    set_reading(stream, NULL);
    pl_store_reader_close(&stream->objects);
    pl_record_reader_close(stream->outer);
    stream->outer = NULL;
}

static enum pl_status try_open_reader(struct pl_stream *stream, struct pl_source **top, struct pl_error *reterr)
{
    struct pl_record_options options = stream->options.records;

    if (options.window_bytes == 0 && stream->store) {
        options.window_bytes = WINDOW_BYTES;
    }
    if (stream->options.compression != PL_COMPRESSION_NONE) {
        PL_TRY(pl_source_open_inflate(*top, stream->options.compression, top, reterr));
    }
    if (!stream->spare) {
        return pl_record_reader_open(*top, &options, &stream->reader, reterr);
    }
    PL_TRY(pl_record_reader_begin(stream->spare, *top, options.window_bytes, reterr));
    stream->reader = PL_TAKE(stream->spare);
    return PL_OK;
}

/* Opens a reader of the records in `source`, with decompression if the options ask for it. Closes `source` on
 * failure. */
static enum pl_status open_reader(struct pl_stream *stream, struct pl_source *source, struct pl_error *reterr)
{
    enum pl_status status = try_open_reader(stream, &source, reterr);

    if (status != PL_OK) {
        set_reading(stream, NULL);
        pl_source_close(source);
    }
    return status;
}

struct pl_object_order pl_stream_order(const struct pl_stream *stream, uint64_t epoch)
{
    const struct pl_stream_options *options = &stream->options;

    return (struct pl_object_order){.list = &stream->list,
                                    .shuffle = options->shuffle_objects,
                                    .seed = options->seed,
                                    .epoch = epoch,
                                    .deal = options->split == PL_STREAM_SPLIT_OBJECTS ? options->deal
                                                                                      : (struct pl_shard){.size = 0}};
}

static enum pl_status next_file(struct pl_stream *stream, struct pl_error *reterr)
{
    const struct pl_object *object;
    struct pl_source *source;

    PL_TRY(pl_store_reader_next(&stream->objects, &source, &object, reterr));
    set_reading(stream, source);
    PL_TRY(open_reader(stream, source, reterr));
    pl_record_reader_begin_at(stream->reader, stream->first_number);
    stream->first_number = 0;
    return PL_OK;
}

/* Sets `name` to the name of the object with the number `object` in the order of the epoch. */
static enum pl_status name_object(const struct pl_stream *stream, uint64_t epoch, uint64_t object, struct pl_text *name,
                                  struct pl_error *reterr)
{
    if (stream->store) {
        const struct pl_object_order order = pl_stream_order(stream, epoch);

        return pl_store_name_object(stream->store, pl_object_order_at(&order, object), name, reterr);
    }
    return stream->channel.wrapper == PL_CHANNEL_WRAPPER_NONE
               ? pl_text_set(name, reterr, "%s_%llu", stream->path, (unsigned long long)epoch)
               : pl_text_set(name, reterr, "%s_%llu, object %llu", stream->path, (unsigned long long)epoch,
                             (unsigned long long)object);
}

/* Opens the next object of a FIFO whose objects are wrapped in RecordIO. */
static enum pl_status next_wrapped(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;
    struct pl_record object;
    struct pl_source *source;

    PL_TRY(pl_record_reader_next(stream->outer, deadline_ns, &object, reterr));
    PL_TRY(name_object(stream, stream->epoch, object.index, &name, reterr));
    PL_TRY(pl_source_open_memory(pl_text_string(&name), object.data, object.bytes, &source, reterr));
    return open_reader(stream, source, reterr);
}

static enum pl_status next_reader(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr)
{
    if (stream->store) {
        return next_file(stream, reterr);
    }
    return stream->outer ? next_wrapped(stream, deadline_ns, reterr) : PL_END;
}

enum pl_status pl_stream_pass(struct pl_stream *stream, uint64_t index, int64_t deadline_ns, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    while (status == PL_OK && pl_stream_where(stream).index < index) {
        status = stream->reader ? pl_record_reader_skip(stream->reader, deadline_ns, reterr)
                                : next_reader(stream, deadline_ns, reterr);
        if (status == PL_END && stream->reader) {
            close_reader(stream);
            status = PL_OK;
        }
    }
    if (status != PL_OK && status != PL_END) {
        pl_error_context(reterr, "channel '%s', epoch %llu", stream->name, (unsigned long long)stream->epoch);
        return status;
    }
    return PL_OK;
}

static enum pl_status next(struct pl_stream *stream, int64_t deadline_ns, struct pl_record *ret_record,
                           struct pl_error *reterr)
{
    uint32_t rank = stream->options.deal.rank, size = stream->options.deal.size;
    bool by_object = stream->options.split == PL_STREAM_SPLIT_OBJECTS;

    if (!stream->started) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' was read before an epoch was started", stream->name);
    }
    for (;;) {
        enum pl_status status;

        if (!stream->reader) {
            PL_TRY(next_reader(stream, deadline_ns, reterr));
        }
        if (!by_object && (stream->base + pl_record_reader_counts(stream->reader).next_index) % size != rank) {
            status = pl_record_reader_skip(stream->reader, deadline_ns, reterr);
        } else {
            status = pl_record_reader_next(stream->reader, deadline_ns, ret_record, reterr);
            if (status == PL_OK) {
                ret_record->index += stream->base;
                ret_record->object = stream->object;
                /* If a damaged record was skipped, the one after it can belong to a different rank. */
                if (by_object || ret_record->index % size == rank) {
                    return PL_OK;
                }
            }
        }
        if (status == PL_END) {
            close_reader(stream);
        } else if (status != PL_OK) {
            return status;
        }
    }
}

bool pl_stream_hold(const struct pl_stream *stream, const struct pl_record *record, struct pl_window_buffer **held)
{
    return stream->reader && pl_window_hold(&stream->reader->window, record->data, held);
}

void pl_stream_let_go(struct pl_stream *stream, struct pl_window_buffer *held)
{
    if (held) {
        pl_window_let_go(&(stream->reader ? stream->reader : stream->spare)->window, held);
    }
}

enum pl_status pl_stream_next(struct pl_stream *stream, int64_t deadline_ns, struct pl_record *ret_record,
                              struct pl_error *reterr)
{
    enum pl_status status = next(stream, deadline_ns, ret_record, reterr);

    if (status != PL_OK && status != PL_END) {
        pl_error_context(reterr, "channel '%s', epoch %llu", stream->name, (unsigned long long)stream->epoch);
    }
    return status;
}

static enum pl_status start_pipe(struct pl_stream *stream, uint64_t epoch, struct pl_error *reterr)
{
    struct pl_record_options wrapping = {.format = PL_RECORD_RECORDIO, .join = PL_RECORD_JOIN_CONCAT};
    struct pl_source *source;
    enum pl_status status;

    PL_TRY(pl_channel_open_epoch(&stream->channel, epoch, &source, reterr));
    set_reading(stream, source);
    if (stream->channel.wrapper == PL_CHANNEL_WRAPPER_NONE) {
        return open_reader(stream, source, reterr);
    }
    status = pl_record_reader_open(source, &wrapping, &stream->outer, reterr);
    if (status != PL_OK) {
        set_reading(stream, NULL);
        pl_source_close(source);
    }
    return status;
}

enum pl_status pl_stream_list(struct pl_stream *stream, int64_t deadline_ns, struct pl_error *reterr)
{
    if (!stream->listed) {
        PL_TRY(pl_store_list(stream->store, deadline_ns, &stream->list, reterr));
        stream->listed = true;
    }
    return stream->list.count > 0
               ? PL_OK
               : pl_error_set(reterr, PL_NOT_FOUND, "there are no objects in '%s'", stream->store->name);
}

/* Begins with the object of `from`: at that place or, if the bytes before it are needed, at the object's beginning. */
static enum pl_status start_files(struct pl_stream *stream, const struct pl_stream_place *from, int64_t deadline_ns,
                                  struct pl_error *reterr)
{
    bool is_whole =
        stream->options.compression != PL_COMPRESSION_NONE || stream->options.records.format == PL_RECORD_IDX;
    struct pl_object_order order;

    PL_TRY(pl_stream_list(stream, deadline_ns, reterr));
    order = pl_stream_order(stream, stream->epoch);
    stream->object = from->object;
    stream->base = from->index - from->number;
    if (!is_whole && (from->number || from->offset_bytes) && from->object < pl_object_order_count(&order)) {
        if (from->offset_bytes >= pl_object_order_at(&order, from->object)->size_bytes) {
            stream->object++; /* the whole object was read */
            stream->base = from->index;
        } else {
            order.first_byte = from->offset_bytes;
            stream->first_number = from->number;
        }
    }
    order.first = stream->object;
    return pl_store_reader_open(&stream->objects, stream->store, &order, reterr);
}

static enum pl_status start(struct pl_stream *stream, uint64_t epoch, const struct pl_stream_place *from,
                            int64_t deadline_ns, struct pl_error *reterr)
{
    enum pl_status status;

    close_epoch(stream);
    stream->epoch = epoch;
    stream->base = 0;
    stream->object = 0;
    stream->first_number = 0;
    stream->counts = (struct pl_record_counts){.records = 0};
    status = stream->channel.mode == PL_CHANNEL_PIPE ? start_pipe(stream, epoch, reterr)
                                                     : start_files(stream, from, deadline_ns, reterr);
    stream->started = status == PL_OK;
    return status;
}

enum pl_status pl_stream_start_at(struct pl_stream *stream, uint64_t epoch, const struct pl_stream_place *from,
                                  int64_t deadline_ns, struct pl_error *reterr)
{
    enum pl_status status = start(stream, epoch, from, deadline_ns, reterr);

    if (status != PL_OK) {
        pl_error_context(reterr, "channel '%s', epoch %llu", stream->name, (unsigned long long)epoch);
    }
    return status;
}

enum pl_status pl_stream_start(struct pl_stream *stream, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr)
{
    return pl_stream_start_at(stream, epoch, &(struct pl_stream_place){.index = 0}, deadline_ns, reterr);
}

void pl_stream_close(struct pl_stream *stream)
{
    if (!stream) {
        return;
    }
    close_epoch(stream);
    pl_record_reader_close(stream->spare);
    pl_store_close(stream->store);
    pl_object_list_done(&stream->list);
    pthread_mutex_destroy(&stream->mutex);
    free(stream->name);
    free(stream->path);
    free(stream->begun_path);
    free(stream);
}

static enum pl_status make(const struct pl_channel *channel, const struct pl_stream_options *options,
                           struct pl_stream **ret_stream, struct pl_error *reterr)
{
    struct pl_stream *stream;

    if (options->deal.rank >= options->deal.size) {
        return pl_error_set(reterr, PL_INVALID,
                            "rank %u of %u: expected a rank from 0 to the number of ranks minus one",
                            options->deal.rank, options->deal.size);
    }
    if (options->split == PL_STREAM_SPLIT_OBJECTS && channel->mode == PL_CHANNEL_PIPE) {
        return pl_error_set(reterr, PL_INVALID, "channel '%s' is in Pipe Mode, where only records can be sharded",
                            channel->name);
    }
    PL_TRY(pl_memory_alloc(&stream, 1, sizeof(*stream), reterr));
    pthread_mutex_init(&stream->mutex, NULL);
    stream->options = *options;
    if (channel->is_dealt && options->compression != PL_COMPRESSION_NONE) {
        stream->options.compression = PL_COMPRESSION_AUTO; /* a rank's FIFO has decompressed records */
    }
    stream->channel = *channel;
    stream->name = pl_memory_string(channel->name, reterr);
    stream->path = pl_memory_string(channel->path, reterr);
    stream->channel.name = stream->name;
    stream->channel.path = stream->path;
    stream->begun_path = channel->begun_path ? pl_memory_string(channel->begun_path, reterr) : NULL;
    stream->channel.begun_path = stream->begun_path;
    if (!stream->name || !stream->path || (channel->begun_path && !stream->begun_path)) {
        pl_stream_close(stream);
        return PL_MEMORY;
    }
    *ret_stream = stream;
    return PL_OK;
}

enum pl_status pl_stream_open(const struct pl_channel *channel, const struct pl_stream_options *options,
                              struct pl_stream **ret_stream, struct pl_error *reterr)
{
    struct pl_stream *stream = NULL;
    enum pl_status status = PL_OK;

    PL_TRY(make(channel, options, &stream, reterr));
    if (channel->mode != PL_CHANNEL_PIPE) {
        status = pl_channel_open_store(channel, &stream->store, reterr);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "channel '%s'", channel->name);
        pl_stream_close(stream);
        return status;
    }
    *ret_stream = stream;
    return PL_OK;
}

enum pl_status pl_stream_open_store(struct pl_store *store, const struct pl_stream_options *options,
                                    struct pl_stream **ret_stream, struct pl_error *reterr)
{
    struct pl_channel channel = {.name = store->name, .mode = PL_CHANNEL_FILE, .path = store->name};

    PL_TRY(make(&channel, options, ret_stream, reterr));
    (*ret_stream)->store = store;
    return PL_OK;
}

void pl_stream_cancel(struct pl_stream *stream, bool cancelled)
{
    pthread_mutex_lock(&stream->mutex);
    stream->synced.cancelled = cancelled;
    if (cancelled && stream->synced.reading) {
        pl_source_cancel(stream->synced.reading);
    }
    pthread_mutex_unlock(&stream->mutex);
}

void pl_stream_error_context(const struct pl_stream *stream, uint64_t epoch, const struct pl_record *record,
                             struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    if (name_object(stream, epoch, record->object, &name, NULL) == PL_OK) {
        pl_error_context(reterr, "'%s': record %llu at byte %llu", pl_text_string(&name),
                         (unsigned long long)record->number, (unsigned long long)record->offset_bytes);
    } else {
        pl_error_context(reterr, "record %llu at byte %llu", (unsigned long long)record->index,
                         (unsigned long long)record->offset_bytes);
    }
    pl_error_context(reterr, "channel '%s', epoch %llu", stream->name, (unsigned long long)epoch);
}
