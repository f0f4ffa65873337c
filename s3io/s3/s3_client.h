/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An S3 client: a handle for credentials, endpoint and connections, the operations on single objects, uploads and
 * listings. Streaming and downloading are in s3_get.h.
 *
 * Every operation is retried with back-off if that can help. It follows a bucket to its region, gets new credentials
 * after the old ones have expired, and ends by its deadline.
 *
 * Threads  several threads may use a client at the same time; its own thread drives all transfers.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_CLIENT_H
#define PL_S3IO_S3_S3_CLIENT_H

#include "base/checksum.h"
#include "base/environment.h"
#include "s3io/s3/address.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/s3_headers.h"
#include "s3io/source.h"

struct pl_s3_client;

/**
 * Zero-initialise, then set the options that differ. For NULL and 0 the setting comes from the environment, otherwise
 * it has its default. The comments list the variables, then a semicolon and the default. Strings are copied.
 */
struct pl_s3_options {
    /* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, S3_ENDPOINT_URL, profile; AWS's endpoint. http:// is used only if it is
     * given */
    const char *endpoint_url;
    const char *region; /* AWS_REGION, AWS_DEFAULT_REGION, profile; us-east-1 */
    enum pl_s3_style style;
    const char *ca_bundle; /* AWS_CA_BUNDLE, profile; the system's certificates */
    struct pl_credentials_options credentials;
    unsigned connections; /* number of transfers at a time; 16 */
    unsigned attempts;    /* AWS_MAX_ATTEMPTS; 8. Number of attempts of one request without progress */
    bool requester_pays;
    /* NULL for S3; otherwise the name of another AWS service in addresses and signatures. Then an operation's key is a
     * path, its bucket is "", and the endpoint comes from AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, profile. */
    const char *service;
    int64_t stall_ns; /* 10 s: a transfer that moves no byte for this time is started again */
};

/** The known properties of an object. Zero-initialise; release with pl_s3_info_done(). */
struct pl_s3_info {
    uint64_t size_bytes;
    char *etag; /* with its quotes; NULL if it is unknown */
    int64_t modified_s;
    struct pl_checksum checksum; /* checksum of the whole object, as the server sent it */
    char *head;                  /* the lines of the response's head, for pl_s3_headers_add_carried() */
};

void pl_s3_info_done(struct pl_s3_info *info);

/** Makes a client. No request is sent yet. PL_NOT_FOUND: there are no credentials. PL_INVALID: a setting is invalid. */
enum pl_status pl_s3_client_new(const struct pl_environment *environment, const struct pl_s3_options *options,
                                struct pl_s3_client **ret_client, struct pl_error *reterr) PL_MUST_CHECK;

/** Closes the connections and ends the thread. The client must not be in use. Does nothing for NULL. */
void pl_s3_client_free(struct pl_s3_client *client);

PL_CLEANUP(pl_s3_client_free_at, struct pl_s3_client, pl_s3_client_free)
#define PL_AUTO_S3_CLIENT __attribute__((cleanup(pl_s3_client_free_at)))

/** Gets an object's size, ETag and checksum (HeadObject). PL_NOT_FOUND if it does not exist. */
enum pl_status pl_s3_head(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                          struct pl_s3_info *ret_info, struct pl_error *reterr) PL_MUST_CHECK;

/*
 * Uploads a byte source: a small object with one request, a large one as a multipart upload with parallel parts.
 *
 * Every part has its CRC32C. After a failure or a stop request the upload is aborted, so that no parts are left that
 * cost money. After a success, a HEAD has shown that the object has the size that was sent.
 *
 * Source  Amazon S3 user guide: "Uploading and copying objects using multipart upload". CompleteMultipartUpload answers
 *         200 before it knows whether it has succeeded, so the document in its answer decides.
 * Test    tests/integration/s3_faults.py
 */

#define PL_S3_SIZE_UNKNOWN UINT64_MAX
/* S3 refuses smaller parts, except for the last one. A smaller object is uploaded with one request. */
#define PL_S3_LEAST_PART_BYTES (UINT64_C(5) << 20)

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_s3_upload_options {
    uint64_t budget_bytes; /* memory for the parts in flight; 0 means 64 MiB */
    /* 0 means 16 MiB, or more if `size_bytes` needs it. At most a fourth of the budget, unless 10,000 parts need
     * more */
    uint64_t part_bytes;
    bool no_checksums; /* send no checksums: for servers that refuse x-amz-checksum-crc32c */
    /* headers with which the object is written, or NULL; they must outlive the call */
    const struct pl_s3_headers *headers;
    /* Callbacks on the caller's thread; each may be NULL. */
    void (*progress)(void *context, uint64_t bytes); /* `bytes` have arrived in total */
    /* called ten times a second; must return at once. If it returns false, the upload is aborted with PL_CANCELLED */
    bool (*go_on)(void *context);
    void *context;
};

/**
 * Uploads all bytes of `source` to s3://`bucket`/`key`.
 *
 * Units   size_bytes: the size of the source if it is known, else PL_S3_SIZE_UNKNOWN. If the source has another size,
 *         the result is PL_CORRUPT, and the object is unchanged.
 * Errors  PL_LIMIT: the source has more bytes than 10,000 parts can hold. The errors of the source and of the server.
 */
enum pl_status pl_s3_upload(struct pl_s3_client *client, const char *bucket, const char *key, struct pl_source *source,
                            uint64_t size_bytes, const struct pl_s3_upload_options *options, int64_t deadline_ns,
                            struct pl_error *reterr) PL_MUST_CHECK;

/*
 * Lists the objects under a prefix (ListObjectsV2), page by page or all at once.
 *
 * Source  Amazon S3 API Reference: ListObjectsV2.
 * Test    tests/unit/s3io/s3/test_s3_list.c, tests/fuzz/fuzz_s3.c
 */

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
