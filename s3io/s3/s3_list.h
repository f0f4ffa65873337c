/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What lies under a prefix (ListObjectsV2), page by page or all at once.
 *
 * Source  Amazon S3 API Reference: ListObjectsV2.
 * Test    tests/unit/s3io/s3/test_s3_list.c, tests/fuzz/fuzz_s3_list.c
 */
#ifndef PL_S3IO_S3_S3_LIST_H
#define PL_S3IO_S3_S3_LIST_H

#include "s3io/s3/s3_client.h"

struct pl_s3_entry {
    char *key;  /* with `is_prefix`: a common prefix, which ends in the delimiter */
    char *etag; /* with its quotes; NULL: not given */
    uint64_t size_bytes;
    int64_t modified_s; /* seconds since 1970; -1: not given */
    bool is_prefix;
};

/** Zero-initialise, release with pl_s3_listing_done(). */
struct pl_s3_listing {
    struct pl_s3_entry *items;
    size_t count;
    size_t capacity;
};

#define PL_AUTO_S3_LISTING __attribute__((cleanup(pl_s3_listing_done)))

void pl_s3_listing_done(struct pl_s3_listing *listing);

/** The entry of `key` in a listing that is in key order, or NULL. */
const struct pl_s3_entry *pl_s3_listing_find(const struct pl_s3_listing *listing, const char *key);

/**
 * Append what one page holds; `*ret_next` is the token of the next page (the caller frees it) or NULL after the last.
 *
 * Errors  PL_CORRUPT for anything that is not a list page, or a truncated page without the token of the next.
 */
enum pl_status pl_s3_list_parse(const char *text, size_t bytes, struct pl_s3_listing *listing, char **ret_next,
                                struct pl_error *reterr) PL_MUST_CHECK;

/** The position in a list. Zero-initialise, set the long timeout, release with pl_s3_pages_done(). */
struct pl_s3_pages {
    int64_t timeout_ns; /* the longest time of pages without a new key; 0: no limit */

    char *token; /* of the next page; NULL: the first, and afterwards none */
    size_t count;
    char *greatest_key;    /* of all pages: as S3 lists by key, a page that brings no greater one brings nothing new */
    size_t grown_count;    /* the page that had it */
    int64_t grown_ns;      /* and when */
    char *kept_token;      /* an earlier one */
    uint64_t kept_objects; /* a digest of the objects on its page; 0: there were none */
    size_t keep_at_count;  /* the page whose token and objects replace them */
};

#define PL_AUTO_S3_PAGES __attribute__((cleanup(pl_s3_pages_done)))

void pl_s3_pages_done(struct pl_s3_pages *pages);

/**
 * A page with `entries` has come; `next`, whose ownership passes to `pages`, is the token of the page after it. A page
 * may be without keys where many were deleted, and more such may follow it: that is accepted until the timeout.
 *
 * Errors  PL_CORRUPT for tokens, or pages with objects, that repeat in a cycle; PL_TIMEOUT.
 */
enum pl_status pl_s3_pages_take(struct pl_s3_pages *pages, const struct pl_s3_entry *entries, size_t count, char *next,
                                int64_t now_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append the next page of what `bucket` holds whose keys begin with `prefix`, in key order; with a `delimiter` ("/";
 * NULL for none) only one level, deeper ones as common prefixes after the objects of their page. There is another one
 * while `pages->token` is not NULL afterwards.
 *
 * Errors  as pl_s3_pages_take(), and what the server says.
 */
enum pl_status pl_s3_list_page(struct pl_s3_client *client, const char *bucket, const char *prefix,
                               const char *delimiter, struct pl_s3_pages *pages, int64_t deadline_ns,
                               struct pl_s3_listing *listing, struct pl_error *reterr) PL_MUST_CHECK;

/** Append all pages without a delimiter; the deadline is for all of them. */
enum pl_status pl_s3_list(struct pl_s3_client *client, const char *bucket, const char *prefix, int64_t deadline_ns,
                          struct pl_s3_listing *listing, struct pl_error *reterr) PL_MUST_CHECK;

#endif
