/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the objects under a prefix, and stops if pages repeat or have nothing new. */
#include "s3io/s3/s3_client.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/memory.h"
#include "s3io/s3/s3_operation.h"
#include "s3io/s3/s3_reply.h"

#include <stdlib.h>
#include <string.h>

static void entry_done(struct pl_s3_entry *entry)
{
    free(entry->key);
    free(entry->etag);
    *entry = (struct pl_s3_entry){.key = NULL};
}

void pl_s3_listing_done(struct pl_s3_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        entry_done(&listing->items[i]);
    }
    free(listing->items);
    *listing = (struct pl_s3_listing){.items = NULL};
}

static int compare_key(const void *key, const void *entry)
{
    return strcmp(key, ((const struct pl_s3_entry *)entry)->key);
}

const struct pl_s3_entry *pl_s3_listing_find(const struct pl_s3_listing *listing, const char *key)
{
    return listing->count ? bsearch(key, listing->items, listing->count, sizeof(*listing->items), compare_key) : NULL;
}

struct page {
    struct pl_s3_listing *listing;
    struct pl_s3_entry entry; /* the entry that is being parsed */
    bool has_size, is_list, truncated;
    bool encoded; /* keys are percent-encoded */
    char *next;
};

static enum pl_status copy_text(char **target, const char *text, size_t bytes, struct pl_error *reterr)
{
    free(*target);
    *target = pl_memory_string_n(text, bytes, reterr);
    return *target ? PL_OK : PL_MEMORY;
}

static enum pl_status parse_size(const char *text, size_t bytes, uint64_t *ret_size, struct pl_error *reterr)
{
    uint64_t size = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || i >= 18) {
            return pl_error_set(reterr, PL_CORRUPT, "a list has the size '%.30s': expected a number", text);
        }
        size = size * 10 + (uint64_t)(text[i] - '0');
    }
    *ret_size = size;
    return bytes ? PL_OK : pl_error_set(reterr, PL_CORRUPT, "a list has an empty size");
}

static enum pl_status add_entry(struct page *page, struct pl_error *reterr)
{
    struct pl_s3_listing *listing = page->listing;

    if (!page->entry.key || (!page->entry.is_prefix && !page->has_size)) {
        return pl_error_set(reterr, PL_CORRUPT, "a list has an entry without key or size");
    }
    PL_TRY(pl_memory_grow(&listing->items, &listing->capacity, listing->count + 1, sizeof(*listing->items), reterr));
    listing->items[listing->count++] = page->entry;
    page->entry = (struct pl_s3_entry){.modified_s = -1};
    page->has_size = false;
    return PL_OK;
}

static enum pl_status on_element(void *context, const char *path, const char *text, size_t bytes,
                                 struct pl_error *reterr)
{
    static const char root[] = "ListBucketResult";
    struct page *page = context;

    if (strncmp(path, root, sizeof(root) - 1) != 0) {
        return PL_OK;
    }
    path += sizeof(root) - 1;
    if (strcmp(path, "/Contents/Key") == 0) {
        return copy_text(&page->entry.key, text, bytes, reterr);
    }
    if (strcmp(path, "/Contents/ETag") == 0) {
        return copy_text(&page->entry.etag, text, bytes, reterr);
    }
    if (strcmp(path, "/Contents/Size") == 0) {
        page->has_size = true;
        return parse_size(text, bytes, &page->entry.size_bytes, reterr);
    }
    if (strcmp(path, "/CommonPrefixes/Prefix") == 0) {
        page->entry.is_prefix = true;
        return copy_text(&page->entry.key, text, bytes, reterr);
    }
    if (strcmp(path, "/Contents") == 0 || strcmp(path, "/CommonPrefixes") == 0) {
        return add_entry(page, reterr);
    }
    if (strcmp(path, "/NextContinuationToken") == 0) {
        return copy_text(&page->next, text, bytes, reterr);
    }
    if (strcmp(path, "/Contents/LastModified") == 0) {
        if (!pl_http_head_iso_time(text, &page->entry.modified_s)) {
            page->entry.modified_s = -1;
        }
    } else if (strcmp(path, "/IsTruncated") == 0) {
        page->truncated = strcmp(text, "true") == 0;
    } else if (strcmp(path, "/EncodingType") == 0) {
        page->encoded = strcmp(text, "url") == 0;
    } else if (*path == '\0') {
        page->is_list = true;
    }
    return PL_OK;
}

/* Decodes a key in place. A space may be encoded as "+". */
static enum pl_status decode_key(char *key, struct pl_error *reterr)
{
    char *to = key;

    for (const char *from = key; *from; from++, to++) {
        if (*from == '%') {
            int high = pl_text_hex_value(from[1]), low = high < 0 ? -1 : pl_text_hex_value(from[2]);

            if (low < 0 || (high == 0 && low == 0)) {
                return pl_error_set(reterr, PL_CORRUPT, "a list has the key '%.60s' with a wrong encoding", key);
            }
            *to = (char)(high * 16 + low);
            from += 2;
        } else {
            *to = *from == '+' ? ' ' : *from;
        }
    }
    *to = '\0';
    return PL_OK;
}

enum pl_status pl_s3_list_parse(const char *text, size_t bytes, struct pl_s3_listing *listing, char **ret_next,
                                struct pl_error *reterr)
{
    struct page page = {.listing = listing, .entry = {.modified_s = -1}};
    struct pl_s3_xml_visitor visitor = {&page, on_element};
    size_t before = listing->count;
    enum pl_status status = pl_s3_xml_walk(text, bytes, &visitor, reterr);

    entry_done(&page.entry);
    for (size_t i = before; i < listing->count && page.encoded && status == PL_OK; i++) {
        status = decode_key(listing->items[i].key, reterr);
    }
    if (status == PL_OK && !page.is_list) {
        status = pl_error_set(reterr, PL_CORRUPT, "the answer to a list request is not a ListBucketResult");
    }
    if (status == PL_OK && page.truncated && (!page.next || !*page.next)) {
        status = pl_error_set(reterr, PL_CORRUPT, "a list is truncated and has no token of its next page");
    }
    if (status != PL_OK || !page.truncated) {
        free(page.next);
        page.next = NULL;
    }
    if (status == PL_OK) {
        *ret_next = page.next;
    }
    return status;
}

static void add_item(struct pl_text *query, const char *name, const char *value)
{
    pl_text_printf(query, "&%s=", name);
    pl_sigv4_encode(value, strlen(value), false, query);
}

static enum pl_status ask(struct pl_s3_client *client, const char *bucket, const char *query, int64_t deadline_ns,
                          struct pl_s3_listing *listing, char **ret_next, struct pl_error *reterr)
{
    struct pl_s3_operation operation = {
        .method = "GET", .bucket = bucket, .query = query, .check_reply = true, .deadline_ns = deadline_ns};
    enum pl_status status = pl_s3_call(client, &operation, NULL, reterr);

    if (status == PL_OK) {
        status = pl_s3_list_parse(pl_text_string(&operation.reply), operation.reply.length, listing, ret_next, reterr);
        if (status != PL_OK) {
            pl_error_context(reterr, "listing s3://%s", bucket);
        }
    }
    pl_s3_operation_done(&operation);
    return status;
}

void pl_s3_pages_done(struct pl_s3_pages *pages)
{
    free(pages->token);
    free(pages->kept_token);
    free(pages->greatest_key);
    *pages = (struct pl_s3_pages){.token = NULL};
}

/* Returns a digest of the objects of a page, or 0 if it has none. Prefixes are left out: they may repeat if a server
 * has many keys below one of them. */
static uint64_t digest(const struct pl_s3_entry *entries, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        sum = entries[i].is_prefix ? sum : pl_checksum_crc64nvme(sum, entries[i].key, strlen(entries[i].key) + 1);
    }
    return sum;
}

/*
 * Detects tokens that repeat, and objects that repeat with new tokens. Each page is compared with a kept page. A page
 * is kept for twice as many pages as the kept page before it, so a cycle of any length is found (Brent's algorithm).
 */
static enum pl_status keep_page(struct pl_s3_pages *pages, uint64_t objects, struct pl_error *reterr)
{
    if ((pages->kept_token && strcmp(pages->kept_token, pages->token) == 0) ||
        (objects && objects == pages->kept_objects)) {
        return pl_error_set(reterr, PL_CORRUPT, "the server sends the same page again and again");
    }
    if (pages->count >= pages->keep_at_count) {
        PL_TRY(copy_text(&pages->kept_token, pages->token, strlen(pages->token), reterr));
        pages->kept_objects = objects;
        pages->keep_at_count = 2 * pages->count;
    }
    return PL_OK;
}

enum pl_status pl_s3_pages_take(struct pl_s3_pages *pages, const struct pl_s3_entry *entries, size_t count, char *next,
                                int64_t now_ns, struct pl_error *reterr)
{
    const char *greatest = pages->greatest_key;

    free(pages->token);
    pages->token = next;
    pages->count++;
    for (size_t i = 0; i < count; i++) {
        greatest = !greatest || strcmp(entries[i].key, greatest) > 0 ? entries[i].key : greatest;
    }
    if (pages->count == 1 || greatest != pages->greatest_key) {
        pages->grown_ns = now_ns;
        pages->grown_count = pages->count;
    }
    if (greatest != pages->greatest_key) {
        char *copy = pl_memory_string(greatest, reterr);

        if (!copy) {
            return PL_MEMORY;
        }
        free(pages->greatest_key);
        pages->greatest_key = copy;
    }
    if (!next) {
        return PL_OK;
    }
    PL_TRY(keep_page(pages, digest(entries, count), reterr));
    if (pages->timeout_ns && now_ns - pages->grown_ns > pages->timeout_ns) {
        return pl_error_set(reterr, PL_TIMEOUT,
                            "the last %zu pages of a list had no new key in %lld s, and there are more pages",
                            pages->count - pages->grown_count, (long long)(pages->timeout_ns / PL_NS_PER_S));
    }
    return PL_OK;
}

enum pl_status pl_s3_list_page(struct pl_s3_client *client, const char *bucket, const char *prefix,
                               const char *delimiter, struct pl_s3_pages *pages, int64_t deadline_ns,
                               struct pl_s3_listing *listing, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text query = PL_TEXT_NONE;
    size_t before = listing->count;
    char *next = NULL;
    enum pl_status status;

    pl_text_append(&query, "list-type=2");
    if (*prefix) {
        add_item(&query, "prefix", prefix);
    }
    if (delimiter) {
        add_item(&query, "delimiter", delimiter);
    }
    if (pages->token) {
        add_item(&query, "continuation-token", pages->token);
    }
    add_item(&query, "encoding-type", "url"); /* XML cannot have every byte that a key may have */
    PL_TRY(pl_text_check(&query, reterr));
    PL_TRY(ask(client, bucket, query.data, deadline_ns, listing, &next, reterr));
    status = pl_s3_pages_take(pages, listing->items + before, listing->count - before, next, pl_clock_now_ns(), reterr);
    if (status != PL_OK) {
        pl_error_context(reterr, "listing s3://%s", bucket);
    }
    return status;
}

enum pl_status pl_s3_list(struct pl_s3_client *client, const char *bucket, const char *prefix, int64_t deadline_ns,
                          struct pl_s3_listing *listing, struct pl_error *reterr)
{
    PL_AUTO_S3_PAGES struct pl_s3_pages pages = {.token = NULL};

    do {
        PL_TRY(pl_s3_list_page(client, bucket, prefix, NULL, &pages, deadline_ns, listing, reterr));
    } while (pages.token);
    return PL_OK;
}
