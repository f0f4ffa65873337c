/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An S3 client: a handle for credentials, endpoint and connections, and the operations on single objects. Listing is in
 * s3_list.h, streaming in s3_get.h, uploading in s3_put.h.
 *
 * Every operation is retried with back-off where that can help, follows a bucket to its region, fetches new credentials
 * when the old ones expire, and ends by its deadline.
 *
 * Threads  a client may be used by several threads at once; its own thread drives all transfers.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_CLIENT_H
#define PL_S3IO_S3_S3_CLIENT_H

#include "base/checksum.h"
#include "base/environment.h"
#include "s3io/s3/address.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/s3_headers.h"

struct pl_s3_client;

/**
 * Zero-initialise, then set what differs; NULL and 0 mean "from the environment" and then the default. Strings are
 * copied.
 */
struct pl_s3_options {
    /* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, S3_ENDPOINT_URL, profile; AWS. http:// only if given so */
    const char *endpoint_url;
    const char *region; /* AWS_REGION, AWS_DEFAULT_REGION, profile; us-east-1 */
    enum pl_s3_style style;
    const char *ca_bundle; /* AWS_CA_BUNDLE, profile; the system's */
    struct pl_credentials_options credentials;
    unsigned connections; /* 16: transfers at a time */
    unsigned attempts;    /* AWS_MAX_ATTEMPTS; 8: tries of one request that make no progress */
    bool requester_pays;
    int64_t stall_ns; /* 10 s: a transfer that moves no byte for so long is started again */
};

/** What is known of an object. Zero-initialise, release with pl_s3_info_done(). */
struct pl_s3_info {
    uint64_t size_bytes;
    char *etag; /* with its quotes; NULL: unknown */
    int64_t modified_s;
    struct pl_checksum checksum; /* of the whole object, as the server sent it */
    char *head;                  /* the lines of the answer's head, for pl_s3_headers_add_carried() */
};

void pl_s3_info_done(struct pl_s3_info *info);

/** Nothing is sent yet. PL_NOT_FOUND when there are no credentials; PL_INVALID for invalid settings. */
enum pl_status pl_s3_client_new(const struct pl_environment *environment, const struct pl_s3_options *options,
                                struct pl_s3_client **ret_client, struct pl_error *reterr) PL_MUST_CHECK;

/** Close connections and end the thread. Nothing may use the client any more. NULL is fine. */
void pl_s3_client_free(struct pl_s3_client *client);
void pl_s3_client_free_at(struct pl_s3_client **client_at);

#define PL_AUTO_S3_CLIENT __attribute__((cleanup(pl_s3_client_free_at)))

/** Ask for an object's size, ETag and checksum (HeadObject). PL_NOT_FOUND when there is none. */
enum pl_status pl_s3_head(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                          struct pl_s3_info *ret_info, struct pl_error *reterr) PL_MUST_CHECK;

/** Add the object's tags (GetObjectTagging) to the headers of its copy. */
enum pl_status pl_s3_add_tags(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                              struct pl_s3_headers *headers, struct pl_error *reterr) PL_MUST_CHECK;

/** Delete an object (DeleteObject); one that does not exist is fine. */
enum pl_status pl_s3_delete(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                            struct pl_error *reterr) PL_MUST_CHECK;

#endif
