/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What lies under a prefix (ListObjectsV2), page by page or all at once.
 *
 * Source  Amazon S3 API Reference: ListObjectsV2.
 * Test    tests/unit/s3io/test_s3_list.c, tests/fuzz/fuzz_s3_list.c
 */
#ifndef PL_S3IO_S3_LIST_H
#define PL_S3IO_S3_LIST_H

#include "s3io/s3_client.h"

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
 * Append what one page holds; `*ret_next` is the token of the next page (the caller frees it) or NULL behind the last.
 *
 * Errors  PL_CORRUPT for anything that is no list page, or a page that says there is more without saying where.
 */
enum pl_status pl_s3_list_parse(const char *text, size_t bytes, struct pl_s3_listing *listing, char **ret_next,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Append one page of what `bucket` holds whose keys begin with `prefix`, in key order; with a `delimiter` ("/"; NULL for none) only one
 * level, deeper ones as common prefixes behind the objects of their page. `*token_at` says which page: NULL the first, and afterwards
 * the next, or NULL behind the last; the caller frees it.
 */
enum pl_status pl_s3_list_page(struct pl_s3_client *client, const char *bucket, const char *prefix, const char *delimiter, char **token_at,
                               int64_t deadline_ns, struct pl_s3_listing *listing, struct pl_error *reterr) PL_MUST_CHECK;

/** Append all pages without a delimiter. */
enum pl_status pl_s3_list(struct pl_s3_client *client, const char *bucket, const char *prefix, int64_t deadline_ns, struct pl_s3_listing *listing,
                          struct pl_error *reterr) PL_MUST_CHECK;

#endif
