/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Lists the objects under a prefix (ListObjectsV2), page by page or all at once.
 *
 * Source  Amazon S3 API Reference: ListObjectsV2.
 * Test    tests/unit/s3io/s3/test_s3_list.c, tests/fuzz/fuzz_s3_list.c
 */
#ifndef PL_S3IO_S3_S3_LIST_H
#define PL_S3IO_S3_S3_LIST_H

#include "s3io/s3/s3_client.h"

struct pl_s3_entry {
    char *key;  /* with `is_prefix`: a common prefix, which ends with the delimiter */
    char *etag; /* with its quotes; NULL if it is unknown */
    uint64_t size_bytes;
    int64_t modified_s; /* seconds since 1970; -1 if it is unknown */
    bool is_prefix;
};

/** Zero-initialise; release with pl_s3_listing_done(). */
struct pl_s3_listing {
    struct pl_s3_entry *items;
    size_t count;
    size_t capacity;
};

#define PL_AUTO_S3_LISTING __attribute__((cleanup(pl_s3_listing_done)))

void pl_s3_listing_done(struct pl_s3_listing *listing);

/** Returns the entry of `key` in a listing in key order, or NULL. */
const struct pl_s3_entry *pl_s3_listing_find(const struct pl_s3_listing *listing, const char *key);

/**
 * Appends the entries of one page. `*ret_next` is the token of the next page, which the caller frees, or NULL after the
 * last page.
 *
 * Errors  PL_CORRUPT: the text is not a list page, or the page is truncated and has no token of the next one.
 */
enum pl_status pl_s3_list_parse(const char *text, size_t bytes, struct pl_s3_listing *listing, char **ret_next,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** The position in a list. Zero-initialise, set `timeout_ns`, release with pl_s3_pages_done(). */
struct pl_s3_pages {
    int64_t timeout_ns; /* limit for a time in which no page has a new key; 0 means no limit */

    char *token; /* token of the next page; NULL before the first page and after the last one */
    size_t count;
    /* greatest key of all pages. S3 lists in key order, so a page without a greater one has nothing new */
    char *greatest_key;
    size_t grown_count;    /* number of the page with the greatest key */
    int64_t grown_ns;      /* when that page came */
    char *kept_token;      /* token of an earlier page */
    uint64_t kept_objects; /* digest of the objects on that page; 0 if there were none */
    size_t keep_at_count;  /* number of the page whose token and objects will be kept next */
};

#define PL_AUTO_S3_PAGES __attribute__((cleanup(pl_s3_pages_done)))

void pl_s3_pages_done(struct pl_s3_pages *pages);

/**
 * Notes a page with `entries`. `next` is the token of the page after it; it belongs to `pages` from then on. If many
 * keys were deleted, a page may have no keys, and more such pages may follow: that is accepted until the timeout.
 *
 * Errors  PL_CORRUPT: tokens, or pages with objects, repeat in a cycle. PL_TIMEOUT.
 */
enum pl_status pl_s3_pages_take(struct pl_s3_pages *pages, const struct pl_s3_entry *entries, size_t count, char *next,
                                int64_t now_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the next page of the objects in `bucket` whose keys begin with `prefix`, in key order. With a `delimiter`
 * ("/"; NULL for none) there is only one level: deeper levels are common prefixes after the objects of their page. If
 * `pages->token` is not NULL afterwards, there is another page.
 *
 * Errors  those of pl_s3_pages_take(), and the server's.
 */
enum pl_status pl_s3_list_page(struct pl_s3_client *client, const char *bucket, const char *prefix,
                               const char *delimiter, struct pl_s3_pages *pages, int64_t deadline_ns,
                               struct pl_s3_listing *listing, struct pl_error *reterr) PL_MUST_CHECK;

/** Appends all pages, without a delimiter. The deadline is for all of them together. */
enum pl_status pl_s3_list(struct pl_s3_client *client, const char *bucket, const char *prefix, int64_t deadline_ns,
                          struct pl_s3_listing *listing, struct pl_error *reterr) PL_MUST_CHECK;

#endif
