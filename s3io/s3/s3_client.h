/* SPDX-License-Identifier: Apache-2.0 */
/**
 * An S3 client: a handle for credentials, endpoint and connections, and the operations on single objects. Listing is in
 * s3_list.h, streaming in s3_get.h, uploading in s3_put.h.
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

struct pl_s3_client;

/**
 * Zero-initialise, then set the options that differ. For NULL and 0 the setting comes from the environment, or else is
 * the default. The comments list the variables, and after the semicolon the default. Strings are copied.
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
    unsigned attempts;    /* AWS_MAX_ATTEMPTS; 8: attempts of one request without progress */
    bool requester_pays;
    /* NULL for S3; else another service of AWS, by its name in addresses and signatures: an operation's key is a path
     * there, its bucket is "", and the endpoint is that of AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, profile */
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
void pl_s3_client_free_at(struct pl_s3_client **client_at);

#define PL_AUTO_S3_CLIENT __attribute__((cleanup(pl_s3_client_free_at)))

/** Gets an object's size, ETag and checksum (HeadObject). PL_NOT_FOUND if it does not exist. */
enum pl_status pl_s3_head(struct pl_s3_client *client, const char *bucket, const char *key, int64_t deadline_ns,
                          struct pl_s3_info *ret_info, struct pl_error *reterr) PL_MUST_CHECK;

#endif
