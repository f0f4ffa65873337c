/* SPDX-License-Identifier: Apache-2.0 */
/* The objects under an S3 prefix, or of a manifest, as a store. */
#include "s3io/s3/s3_get.h"

#include "base/environment.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/manifest.h"
#include "s3io/s3/s3_client.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_BYTES (UINT64_C(64) << 20)

struct s3_store {
    struct pl_store head;
    struct pl_s3_client *client;
    struct pl_s3_client *own; /* `client` if it belongs to the store; NULL if it belongs to the caller */
    char *bucket;
    char *prefix;
    size_t directory_bytes;       /* length of the prefix, up to its last '/' */
    struct pl_manifest manifest;  /* its bucket is NULL if all listed objects count */
    struct pl_s3_listing listing; /* sorted by key; has the objects' ETags */
};

static int compare_entries(const void *left, const void *right)
{
    return strcmp(((const struct pl_s3_entry *)left)->key, ((const struct pl_s3_entry *)right)->key);
}

static enum pl_status list_named(const struct s3_store *s3, struct pl_object_list *list, struct pl_error *reterr)
{
    const struct pl_manifest *manifest = &s3->manifest;

    for (size_t i = 0; i < manifest->count; i++) {
        PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE;
        const struct pl_s3_entry *entry;

        PL_TRY(pl_text_set(&key, reterr, "%s%s", manifest->prefix, manifest->keys[i]));
        entry = pl_s3_listing_find(&s3->listing, key.data);
        if (!entry) {
            return pl_error_set(reterr, PL_NOT_FOUND, "'%s' has the object s3://%s/%s, which does not exist",
                                s3->head.name, s3->bucket, key.data);
        }
        PL_TRY(pl_object_list_add(list, key.data + s3->directory_bytes, key.length - s3->directory_bytes,
                                  entry->size_bytes, reterr));
    }
    return PL_OK;
}

static enum pl_status s3_list(struct pl_store *store, int64_t deadline_ns, struct pl_object_list *list,
                              struct pl_error *reterr)
{
    struct s3_store *s3 = (struct s3_store *)store;

    pl_s3_listing_done(&s3->listing);
    s3->listing = (struct pl_s3_listing){.items = NULL};
    PL_TRY(pl_s3_list(s3->client, s3->bucket, s3->prefix, deadline_ns, &s3->listing, reterr));
    if (s3->listing.count > 1) {
        qsort(s3->listing.items, s3->listing.count, sizeof(*s3->listing.items), compare_entries);
    }
    if (s3->manifest.bucket) {
        return list_named(s3, list, reterr);
    }
    for (size_t i = 0; i < s3->listing.count; i++) {
        const struct pl_s3_entry *entry = &s3->listing.items[i];
        size_t bytes = strlen(entry->key);

        if (bytes <= s3->directory_bytes || (entry->size_bytes == 0 && entry->key[bytes - 1] == '/')) {
            continue;
        }
        PL_TRY(pl_object_list_add(list, entry->key + s3->directory_bytes, bytes - s3->directory_bytes,
                                  entry->size_bytes, reterr));
    }
    return PL_OK;
}

struct wanted_key {
    const char *directory; /* only its first `directory_bytes` count */
    size_t directory_bytes;
    const char *rest;
};

static int compare_wanted(const void *key, const void *item)
{
    const struct wanted_key *wanted = key;
    const struct pl_s3_entry *entry = item;
    int order = strncmp(wanted->directory, entry->key, wanted->directory_bytes);

    return order ? order : strcmp(wanted->rest, entry->key + wanted->directory_bytes);
}

/* Returns the entry of an object in the listing. */
static const struct pl_s3_entry *entry_of(const struct s3_store *s3, const struct pl_object *object)
{
    const struct wanted_key wanted = {s3->prefix, s3->directory_bytes, object->key};
    const struct pl_s3_entry *entry = NULL;

    if (s3->listing.count) {
        entry = bsearch(&wanted, s3->listing.items, s3->listing.count, sizeof(*entry), compare_wanted);
    }
    PL_BUG_IF(!entry); /* objects come from the store's last list */
    return entry;
}

/* Objects that one stream fetches in order. */
struct s3_fetch {
    const struct s3_store *s3;
    struct pl_object_order order;
    struct pl_s3_stream *stream;
};

static struct pl_s3_object fetched_object(const void *context, size_t position)
{
    const struct s3_fetch *fetch = context;
    const struct pl_s3_entry *entry = entry_of(fetch->s3, pl_object_order_at(&fetch->order, position));

    return (struct pl_s3_object){.bucket = fetch->s3->bucket,
                                 .key = entry->key,
                                 .etag = entry->etag,
                                 .size_bytes = entry->size_bytes,
                                 .first_byte = position ? 0 : fetch->order.first_byte};
}

static enum pl_status s3_fetch(struct pl_store *store, const struct pl_object_order *order, void **ret_fetch,
                               struct pl_error *reterr)
{
    const struct pl_s3_stream_options options = {.budget_bytes = BUDGET_BYTES};
    PL_AUTO_FREE struct s3_fetch *fetch = NULL;
    struct pl_s3_order objects = {.count = pl_object_order_count(order), .at = fetched_object};

    PL_TRY(pl_memory_alloc(&fetch, 1, sizeof(*fetch), reterr));
    objects.context = fetch;
    fetch->s3 = (struct s3_store *)store;
    fetch->order = *order;
    PL_TRY(pl_s3_stream_open_order(fetch->s3->client, &objects, &options, &fetch->stream, reterr));
    *ret_fetch = PL_TAKE(fetch);
    return PL_OK;
}

static enum pl_status s3_name_object(struct pl_store *store, const struct pl_object *object, struct pl_text *name,
                                     struct pl_error *reterr)
{
    const struct s3_store *s3 = (const struct s3_store *)store;

    return pl_text_set(name, reterr, "s3://%s/%.*s%s", s3->bucket, (int)s3->directory_bytes, s3->prefix, object->key);
}

static enum pl_status s3_open_fetched(void *context, uint64_t position, struct pl_source **ret_source,
                                      struct pl_error *reterr)
{
    struct s3_fetch *fetch = context;
    const struct pl_s3_object object = fetched_object(fetch, position);
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    PL_TRY(pl_text_set(&name, reterr, "s3://%s/%s", object.bucket, object.key));
    PL_TRY(pl_s3_stream_source(fetch->stream, position, pl_text_string(&name), ret_source, reterr));
    (*ret_source)->offset_bytes = object.first_byte;
    return PL_OK;
}

static const char *s3_etag(struct pl_store *store, const struct pl_object *object)
{
    return entry_of((struct s3_store *)store, object)->etag;
}

static void s3_fetch_close(void *context)
{
    struct s3_fetch *fetch = context;

    pl_s3_stream_close(fetch->stream);
    free(fetch);
}

static void s3_close(struct pl_store *store)
{
    struct s3_store *s3 = (struct s3_store *)store;

    pl_s3_listing_done(&s3->listing);
    pl_manifest_done(&s3->manifest);
    free(s3->bucket);
    free(s3->prefix);
    pl_s3_client_free(s3->own);
    free(s3);
}

static const struct pl_store_ops s3_ops = {.list = s3_list,
                                           .fetch = s3_fetch,
                                           .open_fetched = s3_open_fetched,
                                           .fetch_close = s3_fetch_close,
                                           .name_object = s3_name_object,
                                           .etag = s3_etag,
                                           .close = s3_close};

/* Finds the common prefix of all keys of a manifest, so that as little as possible is listed. It ends between
 * characters: a server takes nothing but UTF-8. */
static enum pl_status common_prefix(const struct pl_manifest *manifest, char **ret_prefix, struct pl_error *reterr)
{
    const char *first = manifest->count ? manifest->keys[0] : "";
    size_t common = strlen(first);
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    for (size_t i = 1; i < manifest->count; i++) {
        size_t same = 0;

        while (same < common && manifest->keys[i][same] == first[same]) {
            same++;
        }
        common = same;
    }
    pl_text_append(&text, manifest->prefix);
    pl_text_append_n(&text, first, pl_text_whole_bytes(first, common));
    return pl_text_take(&text, ret_prefix, reterr);
}

static enum pl_status set_prefix(struct s3_store *s3, const char *uri, struct pl_error *reterr)
{
    const char *slash;

    PL_TRY(pl_s3_uri_parse(uri, &s3->bucket, &s3->prefix, reterr));
    slash = strrchr(s3->prefix, '/');
    s3->directory_bytes = slash ? (size_t)(slash - s3->prefix) + 1 : 0;
    return PL_OK;
}

static enum pl_status set_manifest(struct s3_store *s3, const char *uri, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(pl_manifest_fetch(s3->client, uri, deadline_ns, &s3->manifest, reterr));
    s3->directory_bytes = strlen(s3->manifest.prefix);
    s3->bucket = pl_memory_string(s3->manifest.bucket, reterr);
    return s3->bucket ? common_prefix(&s3->manifest, &s3->prefix, reterr) : PL_MEMORY;
}

enum pl_status pl_store_s3_open(struct pl_s3_client *client, const char *uri, bool is_manifest, int64_t deadline_ns,
                                struct pl_store **ret_store, struct pl_error *reterr)
{
    struct s3_store *s3;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&s3, 1, sizeof(*s3), reterr));
    s3->client = client;
    status = is_manifest ? set_manifest(s3, uri, deadline_ns, reterr) : set_prefix(s3, uri, reterr);
    if (status == PL_OK) {
        status = pl_store_init(&s3->head, &s3_ops, uri, reterr);
    }
    if (status != PL_OK) {
        s3_close(&s3->head);
        return status;
    }
    *ret_store = &s3->head;
    return PL_OK;
}

enum pl_status pl_store_open(const char *uri, struct pl_store **ret_store, struct pl_error *reterr)
{
    const struct pl_s3_options options = {.endpoint_url = NULL};
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_S3_CLIENT struct pl_s3_client *client = NULL;

    if (!pl_s3_uri_is(uri)) {
        return pl_store_open_directory(uri, false, ret_store, reterr);
    }
    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_s3_client_new(environment, &options, &client, reterr));
    PL_TRY(pl_store_s3_open(client, uri, false, 0, ret_store, reterr));
    ((struct s3_store *)*ret_store)->own = PL_TAKE(client);
    return PL_OK;
}
