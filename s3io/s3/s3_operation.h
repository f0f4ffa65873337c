/* SPDX-License-Identifier: Apache-2.0 */
/**
 * One S3 request with all its attempts: signing, retrying, resuming inside a range, following regions, new credentials.
 * Internal to the S3 client. Everything here runs on the engine's thread except s3_client.c, which is for threads that
 * wait.
 */
#ifndef PL_S3IO_S3_S3_OPERATION_H
#define PL_S3IO_S3_S3_OPERATION_H

#include "base/checksum.h"
#include "base/environment.h"
#include "base/text.h"
#include "s3io/http/http.h"
#include "s3io/s3/address.h"
#include "s3io/s3/credentials.h"
#include "s3io/s3/s3_headers.h"
#include "s3io/s3/s3_reply.h"

#include <pthread.h>

enum {
    PL_S3_MAX_EXTRA = 6,
    PL_S3_MAX_HEADERS = 16,
    PL_S3_MAX_REPLY_BYTES = 16 << 20,
};

struct pl_s3_operation;

struct pl_s3_operation_handler {
    /* Gets the bytes of a ranged GET, in order, each exactly once; `at` counts from the beginning of the range. */
    enum pl_status (*sink)(struct pl_s3_operation *operation, uint64_t at, const void *data, size_t bytes,
                           struct pl_error *reterr);
    /* The first valid head of a ranged GET has come: object_bytes and etag are known. May be NULL. */
    void (*found)(struct pl_s3_operation *operation);
    /* Drops all bytes that sink() got: they did not match their checksum and are sent again. */
    void (*rewind)(struct pl_s3_operation *operation);
    /* The operation has ended; called once. */
    void (*done)(struct pl_s3_operation *operation, enum pl_status status);
};

/** Zero-initialise, then set the members before the results. The owner keeps its memory unchanged until `done`. */
struct pl_s3_operation {
    struct pl_s3_client *client;
    const struct pl_s3_operation_handler *handler;
    void *context; /* used by the handler */
    const char *method, *bucket, *key;
    const char *query;                             /* NULL, or the part of the URL after the '?', percent-encoded */
    struct pl_sigv4_header extra[PL_S3_MAX_EXTRA]; /* names in lower case */
    size_t extra_count;
    const struct pl_s3_headers *headers; /* further headers, or NULL */
    bool keep_head;                      /* keep the response's head in `head_text` */
    const void *body;
    size_t body_bytes;
    const char *body_hash; /* hex SHA-256 of the body, for plain HTTP; NULL: computed when it is needed */
    bool long_timeout;     /* see struct pl_http_request */
    bool check_reply;      /* a response with status 200 may have an error document */
    int64_t deadline_ns;
    bool ranged; /* GET of `range_bytes` from `range_first`; the object may end earlier */
    uint64_t range_first, range_bytes;
    char etag[PL_HTTP_ETAG_BYTES]; /* "" until it is known; afterwards every request is pinned to it */
    bool total_known;              /* object_bytes is known: a response with another size is for a different version */

    /* The results. */
    struct pl_http_head head;
    struct pl_text reply; /* body of the response, except for a ranged GET */
    struct pl_text head_text;
    struct pl_error error;
    uint64_t object_bytes;   /* size of the whole object; set before `found` */
    uint64_t received_bytes; /* bytes of the range that were received */
    uint64_t expected_bytes; /* bytes of the range in total; set before `found` */
    unsigned tries;          /* number of requests that were sent */

    /* The following is used by the operation itself. */
    struct pl_http_request request;
    struct pl_credentials_waiter waiter;
    struct pl_http_task start_task;
    struct pl_s3_operation *next_pending;
    enum { PL_S3_IDLE, PL_S3_PENDING, PL_S3_CREDENTIALS, PL_S3_SENT } state;
    struct pl_s3_address address;
    struct pl_text url;
    struct pl_text lines[PL_S3_MAX_HEADERS];
    const char *line_pointers[PL_S3_MAX_HEADERS + PL_S3_MOST_HEADERS];
    unsigned attempt; /* number of retries without progress */
    unsigned taken;   /* tokens taken from the client's retry quota and not put back */
    unsigned redirects;
    char used_region[64];
    uint64_t generation;
    uint64_t resumed_bytes;              /* `received_bytes` at the beginning of this attempt */
    struct pl_checksum checksum, wanted; /* checksum of the received bytes; checksum that the server sent */
    bool is_found, refreshed, clock_set, crc_checked;
};

/** Writes URL, headers and signature of the next attempt into operation->request. */
enum pl_status pl_s3_build(struct pl_s3_operation *operation, struct pl_error *reterr) PL_MUST_CHECK;

/** Begins the operation. If the request cannot be built, `done` is called from within this call. */
void pl_s3_operation_start(struct pl_s3_operation *operation);

/** Begins the operation from another thread. `done` is called on the engine's thread. */
void pl_s3_operation_post(struct pl_s3_operation *operation);

/** Cancels the operation without a call of `done`. */
void pl_s3_operation_cancel(struct pl_s3_operation *operation);

/**
 * Cancels the operation from the thread that posted it. When this returns, the operation has ended: with PL_CANCELLED,
 * unless it had ended before.
 */
void pl_s3_operation_cancel_wait(struct pl_s3_operation *operation);

/** Releases the operation's memory. Not while it runs. */
void pl_s3_operation_done(struct pl_s3_operation *operation);

/**
 * A cancel callback. A waiting thread calls it several times a second. If it returns false, the wait is cancelled with
 * PL_CANCELLED. NULL means that it never cancels.
 */
struct pl_s3_cancel_check {
    bool (*go_on)(void *context);
    void *context;
};

static inline bool pl_s3_is_cancelled(const struct pl_s3_cancel_check *cancel_check)
{
    return cancel_check && cancel_check->go_on && !cancel_check->go_on(cancel_check->context);
}

/** Waits for `cond`, under `lock`, at most until the next call of `cancel_check`, which may be NULL. */
void pl_s3_cancel_wait(const struct pl_s3_cancel_check *cancel_check, pthread_cond_t *cond, pthread_mutex_t *lock);

/** Runs `operation` (without handler) from another thread and waits for its end. `cancel_check` may be NULL. */
enum pl_status pl_s3_call(struct pl_s3_client *client, struct pl_s3_operation *operation,
                          const struct pl_s3_cancel_check *cancel_check, struct pl_error *reterr) PL_MUST_CHECK;

struct pl_s3_region {
    struct pl_s3_region *next;
    char *bucket;
    char region[64];
};

struct pl_s3_client {
    struct pl_environment *environment;
    struct pl_http *http;
    struct pl_credentials *credentials;
    struct pl_s3_endpoint_config endpoint_config;
    char *endpoint_url, *region;
    char *service; /* name of a service other than S3; NULL for S3 */
    bool plain;    /* whether the scheme is http:// */
    bool requester_pays;
    unsigned connections, attempts;

    /* The following belongs to the engine's thread. */
    struct pl_s3_region *regions; /* regions of buckets, learned from responses */
    int64_t clock_offset_s;       /* difference of the server's clock from ours */
    /* most operations at a time: halved when the server asks to slow down, then grows slowly */
    double window;
    unsigned active;
    int64_t halved_ns;
    struct pl_s3_operation *pending, **pending_last;
    uint64_t random;
    struct pl_s3_retry_quota retry_quota;
};

#endif
