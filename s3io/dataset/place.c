/* SPDX-License-Identifier: Apache-2.0 */
/* Places in a stream: the trail of the program while a dataset's threads read ahead, and the text of a place. */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/dataset/dataset_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, CHECK_BYTES = 20 /* ,"check":"xxxxxxxx"} */ };

/* The trail: the shuffle buffer as it was at the batch that the program has taken. */

enum pl_status pl_trail_init(struct pl_trail *trail, size_t shuffle_samples, size_t most_steps, struct pl_error *reterr)
{
    trail->most = most_steps;
    PL_TRY(pl_memory_alloc(&trail->steps, most_steps, sizeof(*trail->steps), reterr));
    return pl_memory_alloc(&trail->buffer, shuffle_samples + 1, sizeof(*trail->buffer), reterr);
}

void pl_trail_done(struct pl_trail *trail)
{
    for (size_t i = 0; trail->steps && i < trail->most; i++) {
        free(trail->steps[i].changes);
    }
    free(trail->steps);
    free(trail->buffer);
}

void pl_trail_start(struct pl_trail *trail, uint64_t epoch, uint64_t first_epoch)
{
    trail->position = (struct pl_position){.epoch = epoch, .first_epoch = first_epoch};
    trail->count = 0;
    trail->taken = 0;
}

enum pl_status pl_step_add(struct pl_step *step, size_t slot, const struct pl_record *record, struct pl_error *reterr)
{
    struct pl_change *change;

    PL_TRY(pl_memory_grow(&step->changes, &step->capacity, step->count + 1, sizeof(*step->changes), reterr));
    change = &step->changes[step->count++];
    change->slot = slot;
    change->is_last = !record;
    if (record) {
        change->place = (struct pl_stream_place){.index = record->index,
                                                 .object = record->object,
                                                 .number = record->number,
                                                 .offset_bytes = record->offset_bytes};
    }
    return PL_OK;
}

static void apply(struct pl_trail *trail, const struct pl_step *step)
{
    for (size_t i = 0; i < step->count; i++) {
        const struct pl_change *change = &step->changes[i];

        if (change->is_last) {
            trail->buffer[change->slot] = trail->buffer[--trail->count];
        } else {
            trail->buffer[change->slot] = change->place;
            trail->count += change->slot == trail->count;
        }
    }
    trail->position = step->after;
}

void pl_trail_take(struct pl_trail *trail, struct pl_step *step)
{
    struct pl_step *oldest = &trail->steps[trail->taken % trail->most], taken = *step;

    if (trail->taken++ >= trail->most) {
        apply(trail, oldest);
    }
    *step = *oldest;
    *oldest = taken;
    step->count = 0;
    if (step->capacity > 4 * taken.count) { /* the step had the first fill of the epoch's shuffle buffer */
        free(step->changes);
        *step = (struct pl_step){.changes = NULL};
    }
}

/* Names of the properties that must be equal in a place and in the stream where it is restored. */
enum { TRAITS = 8 };
static const char *const trait_names[TRAITS] = {"source", "format",  "compression", "order",
                                                "split",  "shuffle", "seed",        "batch"};

struct traits {
    struct pl_text texts[TRAITS];
};

static void traits_done(struct traits *traits)
{
    for (int i = 0; i < TRAITS; i++) {
        pl_text_done(&traits->texts[i]);
    }
}

#define AUTO_TRAITS __attribute__((cleanup(traits_done)))

/* Makes a name fit for JSON, whose texts are UTF-8. */
static void mask(struct pl_text *text)
{
    if (text->data) {
        pl_text_mask_broken(text->data, text->length);
    }
}

/* Sets the traits of a stream and of its dataset, which may be NULL. */
static void describe(const struct pl_stream *stream, const struct pl_dataset *dataset, struct traits *traits)
{
    static const char *const formats[] = {"tfrecord", "recordio", "lines", "csv", "idx", "whole", "tar"};
    static const char *const compressions[] = {"none", "gzip", "zstd", "auto"};
    const struct pl_stream_options *options = &stream->options;
    const struct pl_record_options *records = &options->records;
    struct pl_text *texts = traits->texts, *format = &texts[1];

    pl_text_printf(&texts[0], "%s%s", stream->name, stream->store ? "" : " in Pipe Mode");
    mask(&texts[0]);
    pl_text_append(format, (unsigned)records->format < PL_ARRAY_ITEMS(formats) ? formats[records->format] : "unknown");
    pl_text_append(format, stream->channel.wrapper == PL_CHANNEL_WRAPPER_RECORDIO ? " wrapped in RecordIO" : "");
    pl_text_append(format, records->join == PL_RECORD_JOIN_CONCAT ? ", parts concatenated" : "");
    pl_text_append(format, records->keep_empty_lines ? " with empty lines" : "");
    pl_text_append(format, records->skip_corrupt ? " without corrupt records" : "");
    if (records->delimiter && records->delimiter != ',') {
        pl_text_printf(format, " delimited by byte %d", (unsigned char)records->delimiter);
    }
    pl_text_append(&texts[2], (unsigned)options->compression < PL_ARRAY_ITEMS(compressions)
                                  ? compressions[options->compression]
                                  : "unknown");
    pl_text_append(&texts[3], options->shuffle_objects ? "shuffled objects" : "objects by key");
    pl_text_append(&texts[4], options->split == PL_STREAM_SPLIT_OBJECTS ? "objects" : "records");
    pl_text_printf(&texts[5], "%zu", dataset ? dataset->options.shuffle_samples : 0);
    pl_text_printf(&texts[6], "%" PRIu64, options->seed);
    pl_text_printf(&texts[7], "%zu", dataset ? dataset->options.batch_samples : 0);
}

static enum pl_status check_traits(const struct pl_stream *stream, const struct pl_dataset *dataset,
                                   struct pl_json_value root, struct pl_error *reterr)
{
    AUTO_TRAITS struct traits traits = {.texts = {{.data = NULL}}};

    describe(stream, dataset, &traits);
    for (int i = 0; i < TRAITS; i++) {
        const char *found;

        PL_TRY(pl_text_check(&traits.texts[i], reterr));
        PL_TRY(pl_json_text(pl_json_member(root, trait_names[i]), &found, reterr));
        if (strcmp(found, pl_text_string(&traits.texts[i])) != 0) {
            return pl_error_set(reterr, PL_MISMATCH, "the saved place is of another %s: found '%s', expected '%s'",
                                trait_names[i], found, pl_text_string(&traits.texts[i]));
        }
    }
    return PL_OK;
}

/* Returns a digest of the listed objects: their keys, sizes and ETags. A file's time is left out: a job that is started
 * again on another host may have fetched its files once more. */
static uint64_t digest_of(struct pl_stream *stream)
{
    uint64_t digest = 0;

    for (size_t i = 0; !stream->has_digest && i < stream->list.count; i++) {
        const struct pl_object *object = &stream->list.items[i];
        const char *etag = pl_store_etag(stream->store, object);

        digest = pl_checksum_crc64nvme(digest, object->key, strlen(object->key) + 1);
        digest = pl_checksum_crc64nvme(digest, &object->size_bytes, sizeof(object->size_bytes));
        digest = pl_checksum_crc64nvme(digest, etag ? etag : "", etag ? strlen(etag) + 1 : 1);
    }
    stream->digest = stream->has_digest ? stream->digest : digest;
    stream->has_digest = true;
    return stream->digest;
}

/* Returns where reading must begin to restore a place: at the oldest record of the shuffle buffer. */
static struct pl_stream_place oldest_of(const struct pl_trail *trail)
{
    struct pl_stream_place oldest = trail->position.next;

    for (size_t i = 0; i < trail->count; i++) {
        oldest = trail->buffer[i].index < oldest.index ? trail->buffer[i] : oldest;
    }
    return oldest;
}

/* Appends a place as four numbers. There may be many places, so this does not print each number by itself. */
static void append_place(struct pl_text *text, const struct pl_stream_place *place)
{
    uint64_t numbers[] = {place->offset_bytes, place->number, place->object, place->index};
    char digits[PL_ARRAY_ITEMS(numbers) * 21];
    size_t at = sizeof(digits);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
        digits[--at] = ' ';
        do {
            digits[--at] = (char)('0' + numbers[i] % 10);
            numbers[i] /= 10;
        } while (numbers[i]);
    }
    pl_text_append_n(text, digits + at, sizeof(digits) - at);
}

static enum pl_status read_number(struct pl_json_value value, uint64_t *ret_number, struct pl_error *reterr)
{
    int64_t number;

    PL_TRY(pl_json_int64(value, 0, PL_JSON_MAX_INTEGER, &number, reterr));
    *ret_number = (uint64_t)number;
    return PL_OK;
}

/* Reads at most `most` places; each is a list of four numbers. */
static enum pl_status read_places(struct pl_json_value value, struct pl_stream_place *places, size_t most,
                                  size_t *ret_count, struct pl_error *reterr)
{
    const char *text;

    PL_TRY(pl_json_text(value, &text, reterr));
    for (*ret_count = 0; *text; ++*ret_count) {
        struct pl_stream_place place;
        uint64_t *const numbers[] = {&place.index, &place.object, &place.number, &place.offset_bytes};

        for (size_t i = 0; i < PL_ARRAY_ITEMS(numbers); i++) {
            char *end;

            *numbers[i] = strtoull(text, &end, 10);
            if (*text < '0' || *text > '9' || *end != ' ') {
                return pl_json_wrong(value, "places of four numbers", reterr);
            }
            text = end + 1;
        }
        if (*ret_count == most || place.number > place.index) {
            return pl_json_wrong(value, "no more places than the buffer has, with numbers up to their index", reterr);
        }
        places[*ret_count] = place;
    }
    return PL_OK;
}

/* The numbers of a position, by name. */
enum { NUMBERS = 8 };
static const char *const number_names[NUMBERS] = {"epoch", "first_epoch", "batches", "samples",
                                                  "bytes", "skipped",     "index",   "origin"};

static void numbers_of(struct pl_position *position, uint64_t *numbers[NUMBERS])
{
    uint64_t *const all[NUMBERS] = {&position->epoch, &position->first_epoch, &position->batches, &position->samples,
                                    &position->bytes, &position->skipped,     &position->index,   &position->origin};

    memcpy(numbers, all, sizeof(all));
}

/* Writes what identifies the stream's objects: a digest of all, and the object where reading is going to begin. */
static enum pl_status write_objects(struct pl_json_writer *writer, struct pl_stream *stream,
                                    const struct pl_trail *trail, struct pl_error *reterr)
{
    const struct pl_object_order order = pl_stream_order(stream, trail->position.epoch);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    uint64_t at = oldest_of(trail).object;

    PL_TRY(pl_text_set(&text, reterr, "%016" PRIx64, digest_of(stream)));
    pl_json_write_object(writer, "objects");
    pl_json_write_int64(writer, "count", (int64_t)stream->list.count);
    pl_json_write_text(writer, "digest", pl_text_string(&text));
    if (at < pl_object_order_count(&order)) {
        const struct pl_object *object = pl_object_order_at(&order, at);
        const char *etag = pl_store_etag(stream->store, object);

        PL_TRY(pl_text_set(&text, reterr, "%s", object->key));
        mask(&text);
        pl_json_write_text(writer, "key", pl_text_string(&text));
        pl_json_write_int64(writer, "bytes", (int64_t)object->size_bytes);
        pl_json_write_text(writer, "etag", etag ? etag : "");
    }
    pl_json_write_close(writer);
    return PL_OK;
}

static enum pl_status check_objects(struct pl_json_value objects, struct pl_stream *stream, uint64_t epoch, uint64_t at,
                                    struct pl_error *reterr)
{
    const struct pl_object_order order = pl_stream_order(stream, epoch);
    PL_AUTO_TEXT struct pl_text digest = PL_TEXT_NONE, now_key = PL_TEXT_NONE;
    const char *found, *key, *etag;
    uint64_t count, bytes;

    PL_TRY(pl_text_set(&digest, reterr, "%016" PRIx64, digest_of(stream)));
    PL_TRY(pl_json_text(pl_json_member(objects, "digest"), &found, reterr));
    if (strcmp(found, pl_text_string(&digest)) == 0) {
        return PL_OK;
    }
    PL_TRY(read_number(pl_json_member(objects, "count"), &count, reterr));
    if (count == stream->list.count && pl_json_exists(pl_json_member(objects, "key")) &&
        at < pl_object_order_count(&order)) {
        const struct pl_object *now = pl_object_order_at(&order, at);
        const char *now_etag = pl_store_etag(stream->store, now);

        PL_TRY(pl_text_set(&now_key, reterr, "%s", now->key));
        mask(&now_key);
        now_etag = now_etag ? now_etag : "";
        PL_TRY(pl_json_text(pl_json_member(objects, "key"), &key, reterr));
        PL_TRY(read_number(pl_json_member(objects, "bytes"), &bytes, reterr));
        PL_TRY(pl_json_text(pl_json_member(objects, "etag"), &etag, reterr));
        if (strcmp(key, pl_text_string(&now_key)) != 0 || bytes != now->size_bytes || strcmp(etag, now_etag) != 0) {
            return pl_error_set(reterr, PL_MISMATCH,
                                "the data has changed since the place was saved: object %" PRIu64 " is '%s' of %" PRIu64
                                " bytes%s%s, and was '%s' of %" PRIu64 " bytes%s%s",
                                at, pl_text_string(&now_key), now->size_bytes, *now_etag ? ", ETag " : "", now_etag,
                                key, bytes, *etag ? ", ETag " : "", etag);
        }
    }
    return pl_error_set(
        reterr, PL_MISMATCH,
        "the data has changed since the place was saved: its list has %zu objects and the digest %s, and "
        "had %" PRIu64 " objects and the digest %s (of keys, sizes and ETags)",
        stream->list.count, pl_text_string(&digest), count, found);
}

/* Returns the rank that the stream's places belong to. */
static struct pl_shard owner_of(const struct pl_stream *stream)
{
    const struct pl_stream_options *options = &stream->options;

    return stream->channel.is_dealt && options->dealt_to.size ? options->dealt_to : options->deal;
}

/* Adapts a place that another rank saved, or another number of ranks. The deal begins again after the records
 * that all ranks together have taken. In dealt FIFOs each rank counts its own records. */
static enum pl_status fit_ranks(const struct pl_stream *stream, const struct pl_dataset *dataset,
                                struct pl_json_value root, struct pl_position *position, struct pl_error *reterr)
{
    const struct pl_stream_options *options = &stream->options;
    const struct pl_shard deal = owner_of(stream);
    /* After equally many batches the ranks are in the same round of the deal, and at the end of an epoch together. */
    bool is_even = options->split == PL_STREAM_SPLIT_RECORDS && !options->records.skip_corrupt;
    bool was_dealt, is_dealt = stream->channel.is_dealt;
    uint64_t rank, size;

    PL_TRY(read_number(pl_json_member(root, "rank"), &rank, reterr));
    PL_TRY(read_number(pl_json_member(root, "size"), &size, reterr));
    PL_TRY(pl_json_bool(pl_json_member(root, "is_dealt"), &was_dealt, reterr));
    if ((rank == deal.rank && size == deal.size && was_dealt == is_dealt) || (is_even && position->is_end)) {
        return PL_OK;
    }
    if (was_dealt != is_dealt || (is_dealt && size != deal.size)) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "the saved place is that of rank %" PRIu64 " of %" PRIu64
                            "%s, this is rank %u of %u%s: in the middle of an epoch the number of the record in a FIFO "
                            "that is divided says nothing of another division",
                            rank, size, was_dealt ? " with a FIFO of its own" : "", deal.rank, deal.size,
                            is_dealt ? " with a FIFO of its own" : "");
    }
    if ((dataset && dataset->options.shuffle_samples) || !is_even) {
        return pl_error_set(
            reterr, PL_MISMATCH,
            "the saved place is that of rank %" PRIu64 " of %" PRIu64
            ", this is rank %u of %u: in the middle of an epoch that is possible only where records are "
            "dealt, without a shuffle buffer and without skip_corrupt",
            rank, size, deal.rank, deal.size);
    }
    if (size == 0 || rank >= size || position->origin > position->index) {
        return pl_json_wrong(pl_json_member(root, "rank"), "a rank below size, and origin not above index", reterr);
    }
    if (is_dealt) {
        return PL_OK;
    }
    if (position->index > position->origin) { /* also count the other ranks' records of the last round */
        position->index += size - 1 - (rank + size - position->origin % size) % size;
    }
    position->origin = position->index;
    if (size != deal.size) {
        position->samples = position->index / deal.size;
        position->batches = dataset ? position->samples / dataset->options.batch_samples : 0;
    }
    return PL_OK;
}

/* Whether nothing of the epoch was dealt yet. */
static bool is_start(const struct pl_position *position)
{
    return position->samples == 0 && position->index == 0 && !position->is_end;
}

/* Appends the text of a place. */
static enum pl_status write_text(struct pl_stream *stream, const struct pl_dataset *dataset,
                                 const struct pl_trail *trail, struct pl_text *text, struct pl_error *reterr)
{
    AUTO_TRAITS struct traits traits = {.texts = {{.data = NULL}}};
    PL_AUTO_TEXT struct pl_text places = PL_TEXT_NONE;
    struct pl_json_writer writer = PL_JSON_WRITER(text);
    struct pl_position position = trail->position;
    uint64_t *numbers[NUMBERS];
    char random[17];

    describe(stream, dataset, &traits);
    numbers_of(&position, numbers);
    snprintf(random, sizeof(random), "%016" PRIx64, position.random);
    pl_json_write_object(&writer, NULL);
    pl_json_write_int64(&writer, "version", VERSION);
    for (int i = 0; i < TRAITS; i++) {
        PL_TRY(pl_text_check(&traits.texts[i], reterr));
        pl_json_write_text(&writer, trait_names[i], pl_text_string(&traits.texts[i]));
    }
    pl_json_write_int64(&writer, "rank", owner_of(stream).rank);
    pl_json_write_int64(&writer, "size", owner_of(stream).size);
    pl_json_write_bool(&writer, "is_dealt", stream->channel.is_dealt);
    for (int i = 0; i < NUMBERS; i++) {
        pl_json_write_int64(&writer, number_names[i], (int64_t)*numbers[i]);
    }
    pl_json_write_bool(&writer, "is_end", position.is_end);
    pl_json_write_text(&writer, "random", random);
    append_place(&places, &position.next);
    PL_TRY(pl_text_check(&places, reterr));
    pl_json_write_text(&writer, "next", pl_text_string(&places));
    if (stream->store && !is_start(&position)) {
        PL_TRY(write_objects(&writer, stream, trail, reterr));
    }
    pl_json_write_close(&writer);
    return pl_json_write_end(&writer, reterr);
}

/* Writes a place as JSON whose last members are the shuffle buffer, which needs no escapes, and a checksum of all
 * before it. */
static enum pl_status save(struct pl_stream *stream, const struct pl_dataset *dataset, const struct pl_trail *trail,
                           char **ret_text, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    PL_TRY(write_text(stream, dataset, trail, &text, reterr));
    text.data[--text.length] = '\0'; /* removes the closing brace */
    pl_text_append(&text, ",\"buffer\":\"");
    for (size_t i = 0; i < trail->count; i++) {
        append_place(&text, &trail->buffer[i]);
    }
    pl_text_append(&text, "\"");
    PL_TRY(pl_text_check(&text, reterr));
    pl_text_printf(&text, ",\"check\":\"%08x\"}", pl_checksum_crc32c(0, text.data, text.length));
    return pl_text_take(&text, ret_text, reterr);
}

static enum pl_status check_text(const char *text, struct pl_error *reterr)
{
    size_t bytes = strlen(text), before = bytes > CHECK_BYTES ? bytes - CHECK_BYTES : 0;
    char check[CHECK_BYTES + 1];

    snprintf(check, sizeof(check), ",\"check\":\"%08x\"}", pl_checksum_crc32c(0, text, before));
    return strcmp(text + before, check) == 0
               ? PL_OK
               : pl_error_set(reterr, PL_CORRUPT,
                              "the text of the saved place is damaged: it ends with '%.*s', expected is '%s'",
                              CHECK_BYTES, text + before, check);
}

/* Reads the position and the shuffle buffer. */
static enum pl_status read_trail(struct pl_json_value root, size_t most, struct pl_trail *trail,
                                 struct pl_error *reterr)
{
    struct pl_position *position = &trail->position;
    uint64_t *numbers[NUMBERS];
    const char *random;
    size_t count;

    numbers_of(position, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        PL_TRY(read_number(pl_json_member(root, number_names[i]), numbers[i], reterr));
    }
    PL_TRY(pl_json_bool(pl_json_member(root, "is_end"), &position->is_end, reterr));
    PL_TRY(pl_json_text(pl_json_member(root, "random"), &random, reterr));
    position->random = strtoull(random, NULL, 16);
    PL_TRY(read_places(pl_json_member(root, "next"), &position->next, 1, &count, reterr));
    PL_TRY(read_places(pl_json_member(root, "buffer"), trail->buffer, most, &trail->count, reterr));
    return count == 1 && position->first_epoch <= position->epoch
               ? PL_OK
               : pl_json_wrong(root, "one place in next, and first_epoch not above epoch", reterr);
}

/* Reads a place and checks it against the stream. */
static enum pl_status read_text(struct pl_stream *stream, const struct pl_dataset *dataset, const char *text,
                                int64_t deadline_ns, struct pl_trail *trail, struct pl_stream_place *ret_from,
                                struct pl_error *reterr)
{
    PL_AUTO_JSON struct pl_json *document = NULL;
    struct pl_json_value root;
    uint64_t version;

    PL_TRY(check_text(text, reterr));
    PL_TRY(pl_json_parse(text, strlen(text), "the saved place", &document, reterr));
    root = pl_json_root(document);
    PL_TRY(read_number(pl_json_member(root, "version"), &version, reterr));
    if (version != VERSION) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "the saved place has version %" PRIu64 ", expected is %d", version,
                            VERSION);
    }
    PL_TRY(check_traits(stream, dataset, root, reterr));
    PL_TRY(read_trail(root, dataset ? dataset->options.shuffle_samples : 0, trail, reterr));
    if (is_start(&trail->position)) {
        trail->count = 0;
        return PL_OK;
    }
    *ret_from = oldest_of(trail);
    PL_TRY(fit_ranks(stream, dataset, root, &trail->position, reterr));
    if (!stream->store) {
        if (stream->channel.is_shuffled) {
            pl_log(
                PL_LOG_WARNING,
                "channel '%s' has a ShuffleConfig, with which each FIFO has another order: the rest of epoch %" PRIu64
                " has other samples than without the stop",
                stream->name, trail->position.epoch);
        }
        return PL_OK;
    }
    PL_TRY(pl_stream_list(stream, deadline_ns, reterr));
    return check_objects(pl_json_member(root, "objects"), stream, trail->position.epoch, ret_from->object, reterr);
}

enum pl_status pl_trail_save(const struct pl_trail *trail, const struct pl_dataset *dataset, uint64_t back,
                             char **ret_text, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_stream_place *buffer = NULL;
    struct pl_trail now = *trail;
    uint64_t kept = pl_number_min(trail->taken, trail->most);

    if (back > kept) {
        return pl_error_set(reterr, PL_LIMIT,
                            "the place %" PRIu64 " batches back is not known any more, only that of %" PRIu64
                            " (max_batches)",
                            back, kept);
    }
    PL_TRY(pl_memory_alloc(&buffer, dataset->options.shuffle_samples + 1, sizeof(*buffer), reterr));
    memcpy(buffer, trail->buffer, trail->count * sizeof(*buffer));
    now.buffer = buffer;
    for (uint64_t i = trail->taken - kept; i < trail->taken - back; i++) {
        apply(&now, &trail->steps[i % trail->most]);
    }
    now.position.is_end |= dataset->over && back == 0;
    now.count = now.position.is_end ? 0 : now.count;
    return save(dataset->stream, dataset, &now, ret_text, reterr);
}

enum pl_status pl_trail_restore(struct pl_trail *trail, const struct pl_dataset *dataset, const char *text,
                                struct pl_stream_place *ret_from, struct pl_error *reterr)
{
    trail->taken = 0;
    return read_text(dataset->stream, dataset, text, pl_deadline_after_ns(dataset->options.timeout_ns), trail, ret_from,
                     reterr);
}

enum pl_status pl_stream_save(struct pl_stream *stream, char **ret_text, struct pl_error *reterr)
{
    struct pl_trail trail = {.position = {.epoch = stream->epoch, .first_epoch = stream->epoch}};

    if (!stream->started) {
        return pl_error_set(reterr, PL_INVALID, "cannot save the place: no epoch of '%s' has begun", stream->name);
    }
    trail.position.samples = pl_stream_counts(stream).records;
    trail.position.next = pl_stream_where(stream);
    trail.position.index = trail.position.next.index;
    return save(stream, NULL, &trail, ret_text, reterr);
}

enum pl_status pl_stream_restore(struct pl_stream *stream, const char *text, int64_t deadline_ns,
                                 struct pl_error *reterr)
{
    struct pl_stream_place from = {.index = 0};
    struct pl_trail trail = {.count = 0};

    PL_TRY(read_text(stream, NULL, text, deadline_ns, &trail, &from, reterr));
    PL_TRY(pl_stream_start_at(stream, trail.position.epoch, &from, deadline_ns, reterr));
    return pl_stream_pass(stream, trail.position.index, deadline_ns, reterr);
}
