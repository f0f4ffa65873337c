/* SPDX-License-Identifier: Apache-2.0 */
/**
 * HTTP/1.1 transfers, all driven by one thread of the engine's own. Whatever belongs to requests runs on that thread,
 * so the code above needs no locks among its requests: other threads hand in tasks with pl_http_post().
 *
 * Threads  pl_http_post() and pl_http_run() from any; pl_http_send(), pl_http_cancel() and all callbacks on the
 *          engine's thread only.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_HTTP_HTTP_H
#define PL_S3IO_HTTP_HTTP_H

#include "base/status.h"
#include "base/text.h"
#include "s3io/http/http_head.h"

#include <stddef.h>

struct pl_http;

/** Zero-initialise, then set what differs. Strings are copied. */
struct pl_http_options {
    const char *ca_bundle;     /* NULL: the system's certificates */
    unsigned idle_connections; /* kept open for reuse */
    /* 0: 10 s without a byte in either direction end a transfer, and twice as long below the low-speed limit */
    int64_t stall_ns;
};

/** Something to do on the engine's thread. Embed it, set `run`; it may be posted again once it runs. */
struct pl_http_task {
    void (*run)(struct pl_http_task *task);
    struct pl_http_task *next; /* the engine's */
};

struct pl_http_request;

/**
 * Callbacks of a request. None may call pl_http_cancel() or free the request but `done`, in which the request is the
 * owner's again.
 */
struct pl_http_handler {
    /* The head of the final response is there; anything but PL_OK ends the transfer with it. May be NULL. */
    enum pl_status (*head)(struct pl_http_request *request, struct pl_error *reterr);
    /* A piece of the body. */
    enum pl_status (*body)(struct pl_http_request *request, const void *data, size_t bytes, struct pl_error *reterr);
    /* PL_OK: a whole response came, whatever its HTTP status. Otherwise request->error says why and whether to try
     * again. */
    void (*done)(struct pl_http_request *request, enum pl_status status);
};

/** Zero-initialise, then set the first part; memory stays the owner's and unchanged until `done`. */
struct pl_http_request {
    const struct pl_http_handler *handler;
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    const void *body;
    size_t body_bytes;
    bool direct;               /* without a proxy: for link-local services */
    bool plain_allowed;        /* http:// as well as https:// */
    bool long_timeout;         /* long timeout: the server may be silent twenty times as long, and slow */
    int64_t start_ns;          /* not before; 0: at once */
    int64_t deadline_ns;       /* ends the request for good */
    struct pl_text *head_text; /* NULL, or where the lines of the final response's head are kept */

    /* Results. */
    struct pl_http_head head;
    uint64_t received_bytes; /* body bytes given to the handler in this transfer */
    struct pl_error error;

    /* The engine's. */
    struct pl_http_request *previous, *next;
    void *easy, *lines;
    bool running, head_done;
    enum pl_status callback_status; /* what a callback returned */
    int64_t progress_ns, slow_since_ns;
    uint64_t progress_bytes, slow_bytes;
    char error_text[256]; /* libcurl's error message */
};

/** Start the engine's thread; it blocks all signals. */
enum pl_status pl_http_new(const struct pl_http_options *options, struct pl_http **ret_http,
                           struct pl_error *reterr) PL_MUST_CHECK;

/**
 * End the thread: every request gets `done` with PL_CANCELLED first, then nothing runs any more. NULL is fine.
 */
void pl_http_free(struct pl_http *http);

/** Have `task` run once on the engine's thread. Tasks run in the order of posting. Cannot fail. */
void pl_http_post(struct pl_http *http, struct pl_http_task *task);

/** The same, and wait until it has run. Not on the engine's thread. */
void pl_http_run(struct pl_http *http, struct pl_http_task *task);

/**
 * Begin a request; `done` comes later, never from within this call. A request may be sent again from its own `done`.
 */
void pl_http_send(struct pl_http *http, struct pl_http_request *request);

/** Forget a request that was sent and is not done: `done` will not come. Not from `head` and `body`. */
void pl_http_cancel(struct pl_http *http, struct pl_http_request *request);

#endif
